/* test_template.h - the base model's vocabulary under another chat template, for tests. */
#ifndef TESTS_HARNESS_TEST_TEMPLATE_H
#define TESTS_HARNESS_TEST_TEMPLATE_H

#include "omm/file.h"
#include "omm/gguf.h"
#include "omm/mem.h"
#include "omm/tokenizer.h"
#include "omm_test.h"

static inline void open_base_file(omm_gguf *out) {
    char path[OMM_PATH_MAX];
    const char *source = getenv("OMM_SOURCE_DIR");
    CHECK_OK(
        omm_path_join(path, source ? source : ".", "scenarios/base/openmeshmind-tiny-F16.gguf"));
    CHECK_OK(omm_gguf_open(out, path));
}

/* A Llama 3's template finds its marks in the place of others. */
static inline void put_tokens(omm_gguf_writer *w, const omm_gguf_kv *kv, const char *jinja) {
    static const char *const marks[][2] = {{"<|im_start|>", "<|start_header_id|>"},
                                           {"<|endoftext|>", "<|end_header_id|>"},
                                           {"<|im_end|>", "<|eot_id|>"}};
    omm_bytes *tokens = (omm_bytes *)omm_alloc(kv->count, sizeof *tokens);
    CHECK(tokens != NULL);
    omm_gguf_strings(tokens, kv);
    for (size_t i = 0; i < kv->count && strstr(jinja, marks[0][1]); i++)
        for (size_t m = 0; m < 3; m++)
            if (omm_bytes_equal(tokens[i], omm_bytes_str(marks[m][0])))
                tokens[i] = omm_bytes_str(marks[m][1]);
    omm_gguf_put_strings(w, "tokenizer.ggml.tokens", tokens, kv->count);
    omm_free(tokens);
}

/* Caller closes. */
static inline omm_tokenizer *open_under(const omm_gguf *base, const char *jinja) {
    omm_gguf_writer w;
    omm_buf file;
    omm_gguf g;
    omm_tokenizer *t = NULL;
    omm_gguf_writer_init(&w);
    for (size_t i = 0; i < base->kv_count; i++) {
        const omm_bytes key = base->kvs[i].key;
        if (omm_bytes_equal(key, omm_bytes_str("tokenizer.ggml.tokens")))
            put_tokens(&w, &base->kvs[i], jinja);
        else if (!omm_bytes_equal(key, omm_bytes_str("tokenizer.chat_template")))
            omm_gguf_put_kv(&w, &base->kvs[i]);
    }
    omm_gguf_put_text(&w, "tokenizer.chat_template", jinja);
    omm_buf_init(&file, SIZE_MAX / 2);
    CHECK_OK(omm_gguf_writer_finish(&file, &w));
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    CHECK_OK(omm_tokenizer_open(&t, &g));
    omm_gguf_close(&g);
    omm_buf_fini(&file);
    omm_gguf_writer_fini(&w);
    return t;
}

/* What of a Llama 3's template says how it writes calls. */
#define TEMPLATE_OF_BARE_CALLS                                                                     \
    "{% for message in messages %}{% if 'tool_calls' in message %}"                                \
    "{% set tool_call = message.tool_calls[0].function %}"                                         \
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n{\"name\": \"' + tool_call.name + "    \
    "'\", \"parameters\": ' }}{{ tool_call.arguments | tojson }}{{ '}<|eot_id|>' }}"               \
    "{% endif %}{% endfor %}"

#endif

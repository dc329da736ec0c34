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

/* Templates of other families find their marks in the place of others. */
typedef struct template_marks {
    const char *first; /* in the template */
    const char *marks[4][2];
} template_marks;

static const template_marks s_template_marks[] = {
    {"<|start_header_id|>",
     {{"<|im_start|>", "<|start_header_id|>"},
      {"<|endoftext|>", "<|end_header_id|>"},
      {"<|im_end|>", "<|eot_id|>"}}},
    {"<|start_of_role|>",
     {{"<|im_start|>", "<|start_of_role|>"},
      {"<|endoftext|>", "<|end_of_role|>"},
      {"<|im_end|>", "<|end_of_text|>"},
      {"<tool_call>", "<|tool_call|>"}}},
    {"<|extra_0|>", {{"<|im_start|>", "<|extra_0|>"}, {"<|endoftext|>", "<|extra_4|>"}}},
};

/* More of them than the vocabulary has: they take the place of the last ordinary tokens. */
static const char *const s_mistral_marks[] = {"[INST]",
                                              "[/INST]",
                                              "[SYSTEM_PROMPT]",
                                              "[/SYSTEM_PROMPT]",
                                              "[AVAILABLE_TOOLS]",
                                              "[TOOL_CALLS]",
                                              "[/AVAILABLE_TOOLS]",
                                              "[TOOL_RESULTS]",
                                              "[/TOOL_RESULTS]",
                                              "[ARGS]"};
enum {
    MISTRAL_MARKS = sizeof s_mistral_marks / sizeof *s_mistral_marks,
    BASE_MARKS = 5, /* at the end of its vocabulary */
    TYPE_CONTROL = 3,
};

static inline bool is_mistral_template(const char *jinja) {
    return strstr(jinja, s_mistral_marks[2]) != NULL;
}

static inline void put_tokens(omm_gguf_writer *w, const omm_gguf_kv *kv, const char *jinja) {
    omm_bytes *tokens = (omm_bytes *)omm_alloc(kv->count, sizeof *tokens);
    CHECK(tokens != NULL);
    omm_gguf_strings(tokens, kv);
    for (size_t f = 0; f < sizeof s_template_marks / sizeof *s_template_marks; f++)
        for (size_t i = 0; i < kv->count && strstr(jinja, s_template_marks[f].first); i++)
            for (size_t m = 0; m < 4 && s_template_marks[f].marks[m][0]; m++)
                if (omm_bytes_equal(tokens[i], omm_bytes_str(s_template_marks[f].marks[m][0])))
                    tokens[i] = omm_bytes_str(s_template_marks[f].marks[m][1]);
    for (size_t i = 0; i < MISTRAL_MARKS && is_mistral_template(jinja); i++)
        tokens[kv->count - BASE_MARKS - 1 - i] = omm_bytes_str(s_mistral_marks[i]);
    omm_gguf_put_strings(w, "tokenizer.ggml.tokens", tokens, kv->count);
    omm_free(tokens);
}

static inline void put_types(omm_gguf_writer *w, const omm_gguf_kv *kv, const char *jinja) {
    uint32_t *types = (uint32_t *)omm_alloc(kv->count, sizeof *types);
    CHECK(types != NULL);
    memcpy(types, kv->data.data, kv->count * sizeof *types);
    for (size_t i = 0; i < MISTRAL_MARKS && is_mistral_template(jinja); i++)
        types[kv->count - BASE_MARKS - 1 - i] = TYPE_CONTROL;
    omm_gguf_put_array(w, "tokenizer.ggml.token_type", OMM_GGUF_I32, types, kv->count);
    omm_free(types);
}

/* Of a model with as many positions; 0: as many as the base has.  Caller closes. */
static inline omm_tokenizer *open_with_positions(const omm_gguf *base, const char *jinja,
                                                 uint32_t positions) {
    omm_gguf_writer w;
    omm_buf file;
    omm_gguf g;
    omm_tokenizer *t = NULL;
    omm_gguf_writer_init(&w);
    for (size_t i = 0; i < base->kv_count; i++) {
        const omm_bytes key = base->kvs[i].key;
        if (omm_bytes_equal(key, omm_bytes_str("tokenizer.ggml.tokens")))
            put_tokens(&w, &base->kvs[i], jinja);
        else if (omm_bytes_equal(key, omm_bytes_str("tokenizer.ggml.token_type")))
            put_types(&w, &base->kvs[i], jinja);
        else if (positions > 0 && omm_bytes_equal(key, omm_bytes_str("llama.context_length")))
            omm_gguf_put_u32(&w, "llama.context_length", positions);
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

static inline omm_tokenizer *open_under(const omm_gguf *base, const char *jinja) {
    return open_with_positions(base, jinja, 0);
}

/* What of a Llama 3's template says how it writes calls. */
#define TEMPLATE_OF_BARE_CALLS                                                                     \
    "{% for message in messages %}{% if 'tool_calls' in message %}"                                \
    "{% set tool_call = message.tool_calls[0].function %}"                                         \
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n{\"name\": \"' + tool_call.name + "    \
    "'\", \"parameters\": ' }}{{ tool_call.arguments | tojson }}{{ '}<|eot_id|>' }}"               \
    "{% endif %}{% endfor %}"

/* What of a Hunyuan 7B's says of its turns; its answers stand in <answer>. */
#define TEMPLATE_OF_WRAPPED_ANSWERS                                                                \
    "{% for message in messages %}{% if message.role == 'system' %}{% if ns.is_first_sp %}"        \
    "{% set ns.system_prompt = ns.system_prompt + message.content %}"                              \
    "{% set ns.is_first_sp = false %}{% else %}"                                                   \
    "{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message.content %}{% endif %}"        \
    "{% endif %}{% endfor %}{{ bos_token }}{{ ns.system_prompt }}"                                 \
    "{% if ns.system_prompt != '' or tools %}{{ '<|extra_4|>' }}{% endif %}"                       \
    "{% for message in messages %}{% if message.role == 'user' %}{% set ns.is_tool = false %}"     \
    "{% set ns.is_first = false %}{% set ns.is_last_user = true %}{% if ns.is_first_user %}"       \
    "{{ message.content + '<|extra_0|>' }}{% set ns.is_first_user = false %}{% else %}"            \
    "{{ bos_token + message.content + '<|extra_0|>' }}{% endif %}{% endif %}"                      \
    "{% if message.role == 'assistant' and (message.tool_calls is not defined or "                 \
    "message.tool_calls is none) %}{% set content = message.content %}"                            \
    "{% if '<answer>' in content and not loop.last %}"                                             \
    "{% set content = content.split('<answer>')[-1].strip('</answer>').strip() %}{% endif %}"      \
    "{% set ns.is_last_user = false %}{% if ns.is_tool %}"                                         \
    "{{ '</tool_responses><|extra_0|>' + content + eos_token }}{% set ns.is_tool = false %}"       \
    "{% else %}{{ content + eos_token }}{% endif %}{% endif %}{% endfor %}"                        \
    "{% if add_generation_prompt and not ns.is_last_user and not ns.is_tool %}"                    \
    "{{ '<|extra_0|>' }}{% endif %}{% if enable_thinking is defined and not enable_thinking %}"    \
    "{{ '<think>\\n\\n</think>\\n' }}{% endif %}"

/* What of a Mistral's says that calls are [TOOL_CALLS]NAME[ARGS]{...}. */
#define TEMPLATE_OF_NAMED_CALLS                                                                    \
    "{{ '[SYSTEM_PROMPT]' + system_message + '[/SYSTEM_PROMPT]' }}"                                \
    "{% if tools is defined and tools is not none and tools|length > 0 %}"                         \
    "{% set has_tools = true %}{% set tools_definition = '[AVAILABLE_TOOLS]' + (tools | tojson) "  \
    "+ '[/AVAILABLE_TOOLS]' %}{{ tools_definition }}{% endif %}"                                   \
    "{% for message in messages %}{% if message.role == 'user' %}"                                 \
    "{{ '[INST]' + message.content + '[/INST]' }}{% elif message.role == 'assistant' %}"           \
    "{% if message.content is string %}{{ message.content }}{% endif %}"                           \
    "{% if message.tool_calls is defined and message.tool_calls is not none %}"                    \
    "{% for tool in message.tool_calls %}{% set arguments = tool.function.arguments %}"            \
    "{% if arguments is not string %}{% set arguments = arguments|tojson %}{% endif %}"            \
    "{{ '[TOOL_CALLS]' + tool.function.name + '[ARGS]' + arguments }}{% endfor %}{% endif %}"      \
    "{{ eos_token }}{% elif message.role == 'tool' %}"                                             \
    "{{ '[TOOL_RESULTS]' + message.content|string + '[/TOOL_RESULTS]' }}{% endif %}{% endfor %}"

/* What of a Granite's says that calls are <|tool_call|>[{"name": ..., "arguments": ...}, ...]. */
#define TEMPLATE_OF_LISTED_CALLS                                                                   \
    "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}"  \
    "{%- set loop_messages = messages[1:] %}{%- else %}"                                           \
    "{%- set system_message = 'It is ' + strftime_now('%B %d, %Y') + '.\nYou help.' %}"            \
    "{%- if tools and documents %}{%- set system_message = system_message + ' Both.' %}"           \
    "{%- elif tools %}{%- set system_message = system_message + ' Call.' %}"                       \
    "{%- else %}{%- set system_message = system_message + ' Talk.' %}{%- endif %}"                 \
    "{%- set loop_messages = messages %}{%- endif %}"                                              \
    "{{- '<|start_of_role|>system<|end_of_role|>' + system_message + '<|end_of_text|>\n' }}"       \
    "{%- if tools %}{{- '<|start_of_role|>tools<|end_of_role|>' }}{{- tools | tojson(indent=4) }}" \
    "{{- '<|end_of_text|>\n' }}{%- endif %}{%- for message in loop_messages %}"                    \
    "{{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] + "        \
    "'<|end_of_text|>\n' }}{%- endfor %}"

#endif

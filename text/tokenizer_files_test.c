/* tokenizer_files_test.c - the reference vectors: six vocabularies of 46 cases, two real models. */
#include "omm/chat.h"
#include "omm/mem.h"
#include "omm/tokenizer.h"
#include "testdata.h"

#include <ctype.h>
#include <string.h>

enum { FILE_MAX = 1 << 26, CASES = 46 };

static omm_tokenizer *open_tokenizer(const char *path) {
    omm_gguf g;
    omm_tokenizer *t = NULL;
    CHECK_OK(omm_gguf_open(&g, path));
    CHECK_OK(omm_tokenizer_open(&t, &g));
    omm_gguf_close(&g);
    return t;
}

static void read_all(omm_buf *out, const char *name, const char *suffix) {
    char path[OMM_PATH_MAX];
    char file[128];
    snprintf(file, sizeof file, "%s%s", name, suffix);
    testdata_path(path, file);
    omm_buf_init(out, FILE_MAX);
    CHECK_OK(omm_file_read(out, path));
    uint8_t end = 0;
    CHECK_OK(omm_buf_append(out, &end, 1)); /* a NUL, for strtoul and strstr */
}

static void print_ids(const char *what, const uint32_t *ids, size_t count) {
    fprintf(stderr, "%s", what);
    for (size_t i = 0; i < count; i++) fprintf(stderr, " %u", ids[i]);
    fprintf(stderr, "\n");
}

static void check_ids(const omm_tokens *have, const omm_tokens *want, const char *text) {
    bool same = have->count == want->count;
    for (size_t i = 0; same && i < want->count; i++) same = have->ids[i] == want->ids[i];
    if (same) return;
    fprintf(stderr, "text: '%s'\n", text);
    print_ids("have:", have->ids, have->count);
    print_ids("want:", want->ids, want->count);
    CHECK(same);
}

/* The numbers of one line. */
static void parse_line(omm_tokens *out, const char **at) {
    const char *p = *at;
    while (*p && *p != '\n') {
        char *end = NULL;
        CHECK_OK(omm_tokens_push(out, (uint32_t)strtoul(p, &end, 10)));
        CHECK(end != p);
        for (p = end; *p == ' '; p++) {
        }
    }
    *at = *p ? p + 1 : p;
}

static void check_round_trip(const omm_tokenizer *t, const omm_tokens *ids, omm_bytes text) {
    omm_buf back;
    omm_buf_init(&back, FILE_MAX);
    CHECK_OK(omm_tokenizer_decode(&back, t, ids->ids, ids->count, OMM_DETOKENIZE_SPECIAL));
    CHECK(omm_bytes_equal(omm_buf_view(&back), text));
    omm_buf stream;
    omm_detok d = {.first = true};
    omm_buf_init(&stream, FILE_MAX);
    for (size_t i = 0; i < ids->count; i++)
        CHECK_OK(omm_detok_push(&stream, &d, t, ids->ids[i], OMM_DETOKENIZE_SPECIAL));
    CHECK_EQ(d.pending_count, 0);
    CHECK(omm_bytes_equal(omm_buf_view(&stream), text));
    omm_buf_fini(&back);
    omm_buf_fini(&stream);
}

static void check_case(const omm_tokenizer *t, char *text, size_t size, const char **line) {
    omm_tokens have, want;
    omm_tokens_init(&have, FILE_MAX);
    omm_tokens_init(&want, FILE_MAX);
    parse_line(&want, line);
    CHECK_OK(omm_tokenizer_encode(&have, t, omm_bytes_of(text, size), 0));
    text[size] = 0;
    check_ids(&have, &want, text);
    check_round_trip(t, &have, omm_bytes_of(text, size));
    omm_tokens_fini(&have);
    omm_tokens_fini(&want);
}

static void test_vocab(const char *name) {
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char path[OMM_PATH_MAX];
    char base[64];
    snprintf(base, sizeof base, "vocab/%s.gguf", name);
    testdata_path(path, base);
    omm_tokenizer *t = open_tokenizer(path);
    omm_buf input, output;
    read_all(&input, base, ".inp");
    read_all(&output, base, ".out");
    char *at = (char *)input.data;
    const char *line = (const char *)output.data;
    int cases = 0;
    for (char *next = strstr(at, separator); next; next = strstr(at, separator)) {
        check_case(t, at, (size_t)(next - at), &line);
        at = next + sizeof separator - 1;
        cases++;
    }
    printf("%s: %d cases equal\n", name, cases);
    CHECK_EQ(cases, CASES);
    CHECK_EQ(*line, 0);
    omm_buf_fini(&input);
    omm_buf_fini(&output);
    omm_tokenizer_close(t);
}

/* ---- The two real models ------------------------------------------------------------------- */

/* The numbers of the array that follows `key` after `from`. */
static const char *json_ids(omm_tokens *out, const char *from, const char *key) {
    const char *p = strstr(from, key);
    CHECK(p != NULL);
    p = strchr(p, '[') + 1;
    for (;;) {
        while (isspace((unsigned char)*p) || *p == ',') p++;
        if (*p == ']') return p;
        char *end = NULL;
        CHECK_OK(omm_tokens_push(out, (uint32_t)strtoul(p, &end, 10)));
        CHECK(end != p);
        p = end;
    }
}

static void check_prompt(const omm_tokenizer *t, const char *text, size_t size, const char *from) {
    omm_tokens have, want;
    omm_tokens_init(&have, FILE_MAX);
    omm_tokens_init(&want, FILE_MAX);
    json_ids(&want, from, "\"ids\"");
    CHECK_OK(omm_tokenizer_encode(&have, t, omm_bytes_of(text, size), OMM_TOKENIZE_BOS));
    if (have.count > want.count) have.count = want.count; /* "first 256 tokens" */
    check_ids(&have, &want, text);
    omm_tokens_fini(&have);
    omm_tokens_fini(&want);
}

static void test_models(void) {
    static const char *const prompts[] = {"Once upon a time", "Lily and Tom went to the park. They",
                                          "The dog was sad because",
                                          "\"Can I have a cookie?\" asked"};
    static const char *const names[] = {"stories260K-f32", "tinystories-656K-f32"};
    omm_buf json, story;
    read_all(&json, "reference/real-models", ".json");
    read_all(&story, "data/tinystories_sample", ".txt");
    const char *p = (const char *)json.data;
    for (size_t m = 0; m < 2; m++) {
        char path[OMM_PATH_MAX];
        char file[64];
        snprintf(file, sizeof file, "models/%s.gguf", names[m]);
        testdata_path(path, file);
        omm_tokenizer *t = open_tokenizer(path);
        for (size_t i = 0; i < 5; i++) {
            p = strstr(p, "\"model\"");
            CHECK(p != NULL);
            CHECK(strncmp(p + 10, names[m], strlen(names[m])) == 0);
            if (i < 4)
                check_prompt(t, prompts[i], strlen(prompts[i]), p);
            else
                check_prompt(t, (const char *)story.data, 1200, p);
            p++;
        }
        omm_tokenizer_close(t);
    }
    omm_buf_fini(&json);
    omm_buf_fini(&story);
}

/* A vocabulary with another pre-tokenizer is refused by name. */
static void test_unknown_pre(void) {
    char path[OMM_PATH_MAX];
    testdata_path(path, "vocab/gpt-2.gguf");
    omm_gguf g, changed;
    CHECK_OK(omm_gguf_open(&g, path));
    omm_gguf_writer w;
    omm_buf file;
    omm_gguf_writer_init(&w);
    omm_buf_init(&file, FILE_MAX);
    for (size_t i = 0; i < g.kv_count; i++)
        if (!omm_bytes_equal(g.kvs[i].key, omm_bytes_str("tokenizer.ggml.pre")))
            omm_gguf_put_kv(&w, &g.kvs[i]);
    omm_gguf_put_text(&w, "tokenizer.ggml.pre", "gpt-4711");
    CHECK_OK(omm_gguf_writer_finish(&file, &w));
    CHECK_OK(omm_gguf_open_bytes(&changed, omm_buf_view(&file)));
    omm_tokenizer *t = NULL;
    CHECK_ERR(omm_tokenizer_open(&t, &changed), OMM_ERR_UNSUPPORTED);
    CHECK(strstr(omm_err_sentence(), "gpt-4711") != NULL);
    CHECK(strstr(omm_err_sentence(), "starcoder") != NULL);
    CHECK(t == NULL);
    omm_gguf_close(&changed);
    omm_gguf_close(&g);
    omm_gguf_writer_fini(&w);
    omm_buf_fini(&file);
}

/* Which chat template each file has: of these, phi-3 has the one that its model publishes, the others have none. */
static void test_templates(void) {
    static const char *const files[] = {"vocab/llama-spm",
                                        "vocab/phi-3",
                                        "vocab/gpt-2",
                                        "vocab/starcoder",
                                        "vocab/falcon",
                                        "vocab/qwen2",
                                        "models/stories260K-f32",
                                        "models/tinystories-656K-f32"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[OMM_PATH_MAX], base[64], doubt[OMM_CHAT_DOUBT_MAX];
        snprintf(base, sizeof base, "%s.gguf", files[i]);
        testdata_path(path, base);
        omm_tokenizer *t = open_tokenizer(path);
        const bool phi3 = strcmp(files[i], "vocab/phi-3") == 0,
                   qwen2 = strcmp(files[i], "vocab/qwen2") == 0;
        CHECK_EQ(omm_chat_doubt(doubt, t), !phi3);
        CHECK_EQ(omm_chat_format_of(t), phi3    ? OMM_CHAT_PHI3
                                        : qwen2 ? OMM_CHAT_CHATML
                                                : OMM_CHAT_CHATML_TEXT);
        CHECK(phi3 || strstr(doubt, "no chat template") != NULL);
        omm_tokenizer_close(t);
    }
}

int main(void) {
    test_templates();
    test_vocab("llama-spm");
    test_vocab("phi-3");
    test_vocab("gpt-2");
    test_vocab("starcoder");
    test_vocab("falcon");
    test_vocab("qwen2");
    test_models();
    test_unknown_pre();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

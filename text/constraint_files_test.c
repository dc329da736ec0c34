/* constraint_files_test.c - six real vocabularies: the tokens of a JSON text are allowed one after the other, and the sets that
 * the trees give are those of each token's bytes. */
#include "grammar_internal.h"

#include "omm/mem.h"
#include "testdata.h"

#include <string.h>

enum { CHECKED_EVERY = 17 };

static const char s_text[] =
    "{\"name\": \"Ada Lovelace\", \"born\": 1815, \"fields\": [\"mathematics\", \"computing\"], "
    "\"note\": \"She wrote: \\\"the engine weaves\\\" \xe2\x80\x94 caf\xc3\xa9 "
    "\xf0\x9f\x98\x80\\n\\u00e9\", "
    "\"links\": {\"a\": null, \"b\": [true, false, -1.5e3, {\"deep\": [[\"x\"]]}]}}";

static const char s_schema[] =
    "{\"properties\": {\"name\": {\"type\": \"string\", \"maxLength\": 14}, \"born\": {\"type\": "
    "[\"integer\", \"null\"], \"minimum\": 1000, \"maximum\": 1900}}, \"required\": [\"name\"]}";

static void check_allowed(omm_constraint *c, const omm_lexicon *x) {
    const uint32_t *allowed = omm_constraint_allowed(c);
    for (uint32_t id = 0; id < x->vocab; id++)
        if (lexicon_has(allowed, id) != omm_constraint_permits(c, id)) CHECK_EQ(id, x->vocab);
}

static void follow(const omm_tokenizer *t, const omm_lexicon *x, const omm_grammar *g) {
    omm_constraint *c = NULL;
    omm_tokens ids;
    omm_tokens_init(&ids, 1 << 12);
    CHECK_OK(omm_constraint_open(&c, g, x));
    CHECK_OK(omm_tokenizer_encode(&ids, t, omm_bytes_str(s_text), OMM_TOKENIZE_PLAIN));
    for (size_t i = 0; i < ids.count; i++) {
        if (i % CHECKED_EVERY == 0) check_allowed(c, x);
        CHECK(lexicon_has(omm_constraint_allowed(c), ids.ids[i]));
        omm_constraint_take(c, ids.ids[i]);
    }
    check_allowed(c, x);
    CHECK(same_bytes(omm_constraint_allowed(c), x->ends, x->words * sizeof(uint32_t)));
    omm_tokens_fini(&ids);
    omm_constraint_close(c);
}

static void test_vocabulary(const char *name) {
    char file[64], path[OMM_PATH_MAX];
    omm_gguf gguf;
    omm_tokenizer *t = NULL;
    omm_lexicon *x = NULL;
    omm_grammar *g = NULL;
    json_t *schema = NULL;
    snprintf(file, sizeof file, "vocab/%s.gguf", name);
    testdata_path(path, file);
    CHECK_OK(omm_gguf_open(&gguf, path));
    CHECK_OK(omm_tokenizer_open(&t, &gguf));
    const size_t header = gguf.data_offset, asked = omm_mem_asked();
    omm_gguf_close(&gguf);
    CHECK_OK(omm_lexicon_open(&x, t, omm_tokenizer_vocab(t)));
    /* plan.c counts two headers; what it asks for is more than it ever has at once */
    CHECK(omm_mem_asked() - asked < header * 5 / 2);
    CHECK_OK(omm_grammar_open_object(&g));
    follow(t, x, g);
    omm_grammar_close(g);
    CHECK_OK(omm_json_parse(&schema, omm_bytes_str(s_schema), "a schema"));
    CHECK_OK(omm_grammar_open_schema(&g, schema));
    follow(t, x, g);
    json_decref(schema);
    omm_grammar_close(g);
    omm_lexicon_close(x);
    omm_tokenizer_close(t);
}

int main(void) {
    static const char *const names[] = {"falcon", "gpt-2", "llama-spm",
                                        "phi-3",  "qwen2", "starcoder"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) test_vocabulary(names[i]);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

/* constraint_bench.c VOCABULARY.gguf [SCHEMA.json TEXT] - what keeping to a grammar costs for each token: a text, of any JSON
 * object, of the schema, or (a list: tools, {"name", "parameters"}) with calls of tools, is tokenized and followed, at each token the set of allowed ones is made and the token taken.
 * Prints the time to open a lexicon, then median, 99 % and most of both.  Run it while nothing else runs. */
#include "omm/chat.h"
#include "omm/clock.h"
#include "omm/constraint.h"
#include "omm/mem.h"
#include "omm/sample.h"

#include <stdio.h>
#include <stdlib.h>

enum { TIMES_MAX = 100000, ROUNDS = 200, SCHEMA_BYTES_MAX = 1 << 22 };

static const char s_text[] =
    "{\"name\": \"Ada Lovelace\", \"born\": 1815, \"fields\": [\"mathematics\", \"computing\"], "
    "\"note\": \"She wrote: \\\"the engine weaves algebraic patterns\\\" \xe2\x80\x94 "
    "caf\xc3\xa9\", "
    "\"links\": {\"a\": null, \"b\": [true, false, -1.5e3, {\"deep\": [[\"x\"]]}]}}";

static uint64_t s_times[TIMES_MAX];
static size_t s_count;

static void need(omm_err err) {
    if (err == OMM_OK) return;
    fprintf(stderr, "constraint_bench: %s\n", omm_err_sentence());
    exit(3);
}

static int ascending(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void follow(omm_constraint *c, const omm_tokens *ids) {
    omm_constraint_restart(c);
    for (size_t i = 0; i < ids->count && s_count < TIMES_MAX; i++) {
        const uint64_t begin = omm_measure_ns();
        const uint32_t *allowed = omm_constraint_allowed(c);
        if (!(allowed[ids->ids[i] / 32] >> (ids->ids[i] % 32) & 1)) {
            fprintf(stderr, "constraint_bench: token %zu is not allowed\n", i);
            exit(1);
        }
        omm_constraint_take(c, ids->ids[i]);
        s_times[s_count++] = omm_measure_ns() - begin;
    }
}

static double microseconds(uint64_t ns) {
    return (double)ns / 1e3;
}

enum { TOOLS_MAX = OMM_GRAMMAR_TOOLS_MAX };

static void open_calls(omm_grammar **out, const json_t *list) {
    omm_grammar_tool tools[TOOLS_MAX];
    omm_grammar_calls calls = {.tools = tools, .calls_max = OMM_CHAT_CALLS_MAX};
    for (size_t i = 0; i < json_array_size(list) && i < TOOLS_MAX; i++) {
        const json_t *one = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        tools[calls.tool_count++] = (omm_grammar_tool){
            .name = name ? name : "tool", .parameters = json_object_get(one, "parameters")};
    }
    need(calls.tool_count > 0 ? OMM_OK : omm_raise(OMM_ERR_FORMAT, "no tools"));
    need(omm_grammar_open_calls(out, &calls));
}

static void open_grammar(omm_grammar **out, const char *path) {
    json_t *schema = NULL;
    if (!path) {
        need(omm_grammar_open_object(out));
        return;
    }
    need(omm_json_load(&schema, path, SCHEMA_BYTES_MAX));
    if (json_is_array(schema))
        open_calls(out, schema);
    else
        need(omm_grammar_open_schema(out, schema));
    json_decref(schema);
}

static void bench(const omm_tokenizer *tokenizer, const char *schema, const char *written) {
    omm_lexicon *lexicon = NULL;
    omm_grammar *grammar = NULL;
    omm_constraint *c = NULL;
    omm_tokens ids;
    const size_t asked = omm_mem_asked();
    const uint64_t begin = omm_measure_ns();
    need(omm_lexicon_open(&lexicon, tokenizer, omm_tokenizer_vocab(tokenizer)));
    const uint64_t opened = omm_measure_ns() - begin;
    printf("%u tokens: lexicon %.1f ms, %.1f MB asked for\n", omm_tokenizer_vocab(tokenizer),
           microseconds(opened) / 1e3, (double)(omm_mem_asked() - asked) / 1e6);
    open_grammar(&grammar, schema);
    need(omm_constraint_open(&c, grammar, lexicon));
    omm_tokens_init(&ids, TIMES_MAX);
    need(omm_tokenizer_encode(&ids, tokenizer, omm_bytes_str(written), OMM_TOKENIZE_PLAIN));
    for (unsigned i = 0; i < ROUNDS; i++) follow(c, &ids);
    qsort(s_times, s_count, sizeof *s_times, ascending);
    printf("%zu tokens of text: median %.1f us, 99 %% %.1f us, most %.1f us\n", ids.count,
           microseconds(s_times[s_count / 2]), microseconds(s_times[s_count * 99 / 100]),
           microseconds(s_times[s_count - 1]));
    omm_tokens_fini(&ids);
    omm_constraint_close(c);
    omm_grammar_close(grammar);
    omm_lexicon_close(lexicon);
}

int main(int argc, char **argv) {
    omm_gguf gguf;
    omm_tokenizer *tokenizer = NULL;
    if (argc != 2 && argc != 4) {
        fprintf(stderr, "usage: constraint_bench VOCABULARY.gguf [SCHEMA.json TEXT]\n");
        return 2;
    }
    need(omm_gguf_open(&gguf, argv[1]));
    need(omm_tokenizer_open(&tokenizer, &gguf));
    omm_gguf_close(&gguf);
    bench(tokenizer, argc == 4 ? argv[2] : NULL, argc == 4 ? argv[3] : s_text);
    omm_tokenizer_close(tokenizer);
    return 0;
}

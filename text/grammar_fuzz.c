/* grammar_fuzz.c - any bytes as a schema, or as a list of tools, then, behind a NUL, any choices among the tokens that may come:
 * work is bounded, the tokens that are allowed are those that are by their bytes, one always is, and a text that may end is
 * JSON, or calls of the tools. */
#include "grammar_internal.h"
#include "test_vocab.h"

#include "omm/mem.h"

/* [{"name", "parameters", "strict"}, ...] */
static omm_err open_tools(omm_grammar **out, const json_t *list) {
    omm_grammar_tool tools[GRAMMAR_THREADS_MAX + 2];
    omm_grammar_calls calls = {.tools = tools, .calls_max = 3, .begun = omm_bytes_str("")};
    for (size_t i = 0; i < json_array_size(list) && i < GRAMMAR_THREADS_MAX + 2; i++) {
        const json_t *one = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        const bool fits =
            name && *name && strspn(name, "abcdefghijklmnopqrstuvwxyz_") == strlen(name);
        tools[calls.tool_count++] =
            (omm_grammar_tool){.name = fits ? name : "tool",
                               .parameters = json_object_get(one, "parameters"),
                               .strict = json_is_true(json_object_get(one, "strict"))};
    }
    if (calls.tool_count == 0) return omm_raise(OMM_ERR_FORMAT, "no tools");
    calls.thinking = calls.tool_count % 2 ? OMM_THINKING_OWN : OMM_THINKING_NONE;
    calls.form = calls.tool_count % 4 == 0 ? OMM_CALLS_BARE : OMM_CALLS_MARKED;
    if (calls.tool_count % 4 ==
        2) /* one behind a mark of its own, by how many there are and how long the first one's name is */
        calls.form =
            (omm_calls_form)(OMM_CALLS_MISTRAL + (calls.tool_count / 4 + strlen(tools[0].name)) %
                                                     (OMM_CALLS_FORM_COUNT - OMM_CALLS_MISTRAL));
    if (calls.tool_count % 8 == 0) calls.begun = omm_bytes_str(OMM_CHAT_BARE_OPENS);
    return omm_grammar_open_calls(out, &calls);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void fuzz_end(void);

enum { STEPS_MAX = 200, CHECKED_EVERY = 16 };

/* From the first input to the last. */
static omm_tokenizer *s_tokenizer;
static omm_lexicon *s_lexicon;

void fuzz_end(void) {
    omm_lexicon_close(s_lexicon);
    omm_tokenizer_close(s_tokenizer);
}

static void open_all(void) {
    const vocab_recipe recipe = {
        .mark_type = TOKEN_USER,
        .marks = {"{\"a", "\": \"", "\", \"", "\"}]}", "\\ud83d\\ude", "null, \""},
        .words = {OMM_CHAT_CALL_OPENS, "}\n" OMM_CHAT_CALL_CLOSES},
        .more = {"[TOOL_CALLS]", "[ARGS]", "<|tool_call|>", "<|/tool_call|>", "[CALL_ID]"}};
    s_tokenizer = open_vocab(&recipe);
    OMM_ASSERT(omm_lexicon_open(&s_lexicon, s_tokenizer, omm_tokenizer_vocab(s_tokenizer)) ==
               OMM_OK);
}

static uint32_t nth_allowed(const uint32_t *allowed, uint32_t nth) {
    uint32_t count = 0, id = 0;
    for (uint32_t i = 0; i < s_lexicon->words; i++)
        count += (uint32_t)__builtin_popcount(allowed[i]);
    OMM_ASSERT(count > 0);
    for (nth %= count;; id++)
        if (lexicon_has(allowed, id) && nth-- == 0) return id;
}

/* A text that has begun no call may say anything, and arguments may have a name twice. */
static void check_calls(const omm_buf *written, bool thinks, omm_calls_form form) {
    omm_chat_reply reply = {0};
    omm_thought thought = omm_thought_init(thinks, false);
    omm_thought_look(&thought, omm_buf_view(written), true);
    if (thought.answer >= written->size) return;
    if (omm_chat_parse(&reply,
                       omm_bytes_of(written->data + thought.answer, written->size - thought.answer),
                       form, NULL, NULL) == OMM_OK)
        omm_chat_reply_fini(&reply);
    else
        OMM_ASSERT(strstr(omm_err_sentence(), "without " OMM_CHAT_CALL_OPENS) ||
                   strstr(omm_err_sentence(), "duplicate"));
}

/* Behind a bare call comes nothing. */
static void check_bare(const omm_buf *written, const calls_form *calls, const uint32_t *allowed) {
    omm_chat_reply reply = {0};
    omm_buf whole;
    for (uint32_t id = 0; id < s_lexicon->vocab; id++)
        if (lexicon_has(allowed, id) && !lexicon_has(s_lexicon->ends, id)) return;
    omm_buf_init(&whole, 1 << 17);
    if (calls->begun_size > 0)
        OMM_ASSERT(omm_buf_append(&whole, OMM_CHAT_BARE_OPENS, strlen(OMM_CHAT_BARE_OPENS)) ==
                   OMM_OK);
    OMM_ASSERT(omm_buf_append(&whole, written->data, written->size) == OMM_OK);
    if (omm_chat_parse(&reply, omm_buf_view(&whole), OMM_CALLS_BARE, NULL, NULL) == OMM_OK) {
        OMM_ASSERT(reply.call_count > 0);
        omm_chat_reply_fini(&reply);
    } else {
        OMM_ASSERT(strstr(omm_err_sentence(), "duplicate") ||
                   strstr(omm_err_sentence(), "at most"));
    }
    omm_buf_fini(&whole);
}

static void check_whole(const omm_buf *written) {
    json_error_t error;
    json_t *value = json_loadb((const char *)written->data, written->size, JSON_DECODE_ANY, &error);
    OMM_ASSERT(value != NULL);
    json_decref(value);
}

static void walk(omm_constraint *c, const calls_form *calls, const uint8_t *data, size_t size) {
    const uint32_t end = omm_tokenizer_eos(s_tokenizer);
    omm_buf written;
    omm_buf_init(&written, 1 << 16);
    for (size_t i = 0; i < size && i < STEPS_MAX && !omm_constraint_has_ended(c); i++) {
        const uint32_t *allowed = omm_constraint_allowed(c);
        for (uint32_t id = 0; i % CHECKED_EVERY == 0 && id < s_lexicon->vocab; id++)
            OMM_ASSERT(lexicon_has(allowed, id) == omm_constraint_permits(c, id));
        if (lexicon_has(allowed, end) && calls->bare)
            check_bare(&written, calls, allowed);
        else if (lexicon_has(allowed, end) && calls->max > 0)
            check_calls(&written, calls->thinking == OMM_THINKING_OWN, calls->form);
        else if (lexicon_has(allowed, end))
            check_whole(&written);
        const uint32_t id = nth_allowed(allowed, data[i]);
        OMM_ASSERT(omm_tokenizer_decode(&written, s_tokenizer, &id, 1, OMM_DETOKENIZE_CONTINUE) ==
                   OMM_OK);
        omm_constraint_take(c, id);
    }
    omm_buf_fini(&written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!s_lexicon) open_all();
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    const size_t schema_size = end ? (size_t)(end - data) : size;
    json_t *schema = NULL;
    omm_grammar *g = NULL;
    omm_constraint *c = NULL;
    if (omm_json_parse(&schema, omm_bytes_of(data, schema_size), "a schema") != OMM_OK) return 0;
    const bool calls = json_is_array(schema);
    const omm_err err = calls ? open_tools(&g, schema) : omm_grammar_open_schema(&g, schema);
    json_decref(schema);
    if (err != OMM_OK) {
        OMM_ASSERT(err == OMM_ERR_FORMAT || err == OMM_ERR_UNSUPPORTED || err == OMM_ERR_TOO_BIG);
        OMM_ASSERT(omm_err_sentence()[0] != '\0');
        return 0;
    }
    OMM_ASSERT(omm_constraint_open(&c, g, s_lexicon) == OMM_OK);
    if (end) walk(c, &g->calls, end + 1, size - schema_size - 1);
    omm_constraint_close(c);
    omm_grammar_close(g);
    return 0;
}

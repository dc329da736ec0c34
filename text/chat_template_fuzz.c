/* chat_template_fuzz.c - any bytes as a template and a conversation: KIND, Jinja, 0, then ROLE, content, 0
 * again and again.  Whatever the content, the prompt has the marks of the same turns with harmless
 * content and no others. */
#include "chat_internal.h"
#include "omm/mem.h"
#include "test_vocab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void fuzz_end(void);

enum { MESSAGES_MAX = 8, TOKENS_MAX = 1 << 16, JINJA_MAX = 4096 };

static size_t read_messages(omm_message *out, const uint8_t *data, size_t size) {
    size_t count = 0;
    while (size > 0 && count < MESSAGES_MAX) {
        const uint8_t *end = memchr(data, 0, size);
        size_t used = end ? (size_t)(end - data) + 1 : size;
        size_t content = end ? used - 1 : used;
        out[count++] = (omm_message){.role = (omm_role)(data[0] % OMM_ROLE_COUNT),
                                     .content = content > 0 ? omm_bytes_of(data + 1, content - 1)
                                                            : omm_bytes_of("", 0)};
        data += used;
        size -= used;
    }
    return count;
}

/* How often a mark stands in the prompt: as its token, or else as the ids of its text. */
static size_t occurrences(const omm_tokenizer *t, const omm_prompt *p, const char *mark) {
    omm_tokens ids;
    size_t n = 0;
    omm_tokens_init(&ids, 64);
    OMM_ASSERT(omm_tokenizer_encode(&ids, t, omm_bytes_str(mark),
                                    OMM_TOKENIZE_SPECIAL | OMM_TOKENIZE_CONTINUE) == OMM_OK);
    for (size_t i = 0; i + ids.count <= p->tokens.count; i++)
        n += memcmp(p->tokens.ids + i, ids.ids, ids.count * sizeof *ids.ids) == 0;
    omm_tokens_fini(&ids);
    return n;
}

/* The model's own matter, too. */
static bool is_spoken(const tools_form *form, const char *mark) {
    for (size_t i = 0; i < FORM_SPOKEN_MAX && form->spoken[i]; i++)
        if (strcmp(form->spoken[i], mark) == 0) return true;
    return false;
}

/* A command that decides which marks there are (chat_smollm.c) is kept, and that there is nothing. */
static omm_bytes harmless_like(omm_bytes content) {
    if (content.size == 0) return content;
    return omm_bytes_str(chat_find(content, "/system_override") ? "/system_override" : "x");
}

static void compare(const omm_tokenizer *t, const omm_prompt *p, const omm_message *messages,
                    size_t count) {
    const chat_template *c = &chat_templates[omm_chat_format_of(t)];
    omm_message harmless[MESSAGES_MAX];
    omm_prompt q;
    omm_prompt_init(&q, TOKENS_MAX);
    for (size_t i = 0; i < count; i++)
        harmless[i] =
            (omm_message){.role = messages[i].role, .content = harmless_like(messages[i].content)};
    OMM_ASSERT(omm_chat_render(&q, t, harmless, count, OMM_CHAT_ANSWER) == OMM_OK);
    for (size_t i = 0; i < CHAT_MARKS_MAX && c->marks[i]; i++)
        OMM_ASSERT(occurrences(t, p, c->marks[i]) == occurrences(t, &q, c->marks[i]));
    const tools_form *form = t->tools.form;
    for (size_t i = 0; form && i < FORM_MARKS_MAX && form->marks[i]; i++)
        if (!is_spoken(form, form->marks[i]))
            OMM_ASSERT(occurrences(t, p, form->marks[i]) == occurrences(t, &q, form->marks[i]));
    OMM_ASSERT(occurrences(t, p, "</s>") == occurrences(t, &q, "</s>"));
    OMM_ASSERT(p->mask.size == p->tokens.count);
    omm_prompt_fini(&q);
}

/* Whatever was read of the template, a tool is announced with it, once. */
static void announce(const omm_tokenizer *t) {
    omm_buf out;
    json_t *tools = json_pack("[{s:s}]", "name", "f");
    if (omm_chat_announces(t)) {
        omm_buf_init(&out, 1 << 16);
        OMM_ASSERT(omm_chat_announce_tools(&out, t, omm_bytes_str("s"), tools) == OMM_OK);
        OMM_ASSERT(memmem(out.data, out.size, t->reasoning.is ? "'f'" : "\"f\"", 3) != NULL);
        omm_buf_clear(&out);
        OMM_ASSERT(omm_chat_announce_tools(&out, t, (omm_bytes){0}, tools) == OMM_OK);
        OMM_ASSERT(t->tools.form || memmem(out.data, out.size, "<|", 2) == NULL);
        omm_buf_fini(&out);
    }
    json_decref(tools);
}

/* Of the input before: many differ in their messages alone. */
static struct {
    omm_tokenizer *tokenizer;
    uint8_t kind;
    char jinja[JINJA_MAX];
} s_last;

void fuzz_end(void) {
    omm_tokenizer_close(s_last.tokenizer);
    s_last.tokenizer = NULL;
}

static const omm_tokenizer *open_kept(const vocab_recipe *r, uint8_t kind) {
    char doubt[OMM_CHAT_DOUBT_MAX];
    if (s_last.tokenizer && s_last.kind == kind && strcmp(s_last.jinja, r->jinja) == 0)
        return s_last.tokenizer;
    fuzz_end();
    s_last.tokenizer = open_vocab(r);
    s_last.kind = kind;
    memcpy(s_last.jinja, r->jinja, strlen(r->jinja) + 1);
    if (omm_chat_doubt(doubt, s_last.tokenizer))
        for (const char *d = doubt; *d; d++) OMM_ASSERT(*d >= ' ' && *d < 0x7f);
    announce(s_last.tokenizer);
    return s_last.tokenizer;
}

static void render(const omm_tokenizer *t, const omm_message *messages, size_t count) {
    omm_prompt p;
    omm_prompt_init(&p, TOKENS_MAX);
    omm_err err = omm_chat_render(&p, t, messages, count, OMM_CHAT_ANSWER);
    /* what is not UTF-8 */
    const bool quotes = (t->tools.quoted || t->tools.result) && err == OMM_ERR_FORMAT;
    OMM_ASSERT(err == OMM_OK || err == OMM_ERR_UNSUPPORTED || err == OMM_ERR_TOO_BIG || quotes);
    if (err == OMM_OK)
        compare(t, &p, messages, count);
    else
        OMM_ASSERT(p.tokens.count == 0);
    omm_prompt_fini(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const marks[7][6] = {
        {"<|im_start|>", "<|im_end|>", "<|im_sep|>", "<start_of_turn>", "<end_of_turn>"},
        {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
        {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>"},
        {"[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"},
        {"<\xef\xbd\x9cUser\xef\xbd\x9c>", "<\xef\xbd\x9c"
                                           "Assistant\xef\xbd\x9c>"},
        {"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"},
        {"[|system|]", "[|user|]", "[|assistant|]", "[|tool|]", "[|endofturn|]"}};
    if (size < 2) return 0;
    const uint8_t *end = memchr(data + 1, 0, size - 1);
    char jinja[JINJA_MAX];
    size_t jinja_size = end ? (size_t)(end - data) - 1 : size - 1;
    if (jinja_size >= sizeof jinja) return 0;
    memcpy(jinja, data + 1, jinja_size);
    jinja[jinja_size] = 0;
    vocab_recipe r = {.spm = data[0] & 1,
                      .adds_bos = data[0] >> 1 & 1,
                      .no_prefix = data[0] >> 2 & 1,
                      .mark_type = data[0] >> 3 & 1 ? TOKEN_USER : TOKEN_CONTROL,
                      .no_bytes = data[0] >> 4 & 1,
                      .jinja = jinja};
    static const char *const more[7][10] = {
        [2] = {"<|tool|>", "<|/tool|>", "<|tool_call|>", "<|/tool_call|>"},
        [3] = {"[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]",
               "[/TOOL_RESULTS]", "[ARGS]", "[CALL_ID]", "[TOOL_CONTENT]"},
        [5] = {"<|tool_call|>", "<tool_call>", "</tool_call>"},
        [6] = {"<|begin_of_sentence|>", "<|end_of_sentence|>", HUNYUAN_SYSTEM, HUNYUAN_USER,
               HUNYUAN_ASSISTANT, HUNYUAN_7B_SYSTEM, HUNYUAN_7B_ASKED, "<tool_result>"}};
    if (data[0] >> 5 < 7) memcpy(r.marks, marks[data[0] >> 5], sizeof r.marks);
    if (data[0] >> 5 < 7) memcpy(r.more, more[data[0] >> 5], sizeof r.more);
    omm_message messages[MESSAGES_MAX];
    size_t used = jinja_size + 2 < size ? jinja_size + 2 : size;
    size_t count = read_messages(messages, data + used, size - used);
    render(open_kept(&r, data[0]), messages, count);
    return 0;
}

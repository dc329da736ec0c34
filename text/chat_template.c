/* chat_template.c - the chat templates we know, and which one a model's Jinja text is.
 *
 * Jinja is not run: it is a program from a stranger.  The marks in its text tell the families apart,
 * and our own table says how a family writes its turns.  Dates that a template makes up are left
 * out; its default system prompt and how it announces tools are read by chat_announce.c.
 */
#include "chat_internal.h"
#include "jinja_shape.h"
#include "tokenizer_internal.h"

#include <stdio.h>
#include <string.h>

/* clang-format off */
#define IM(role) "<|im_start|>" role "\n"
#define HEADER(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
#define SEP(role) "<|im_start|>" role "<|im_sep|>"
#define ROLE(role) "<|start_of_role|>" role "<|end_of_role|>"
#define WIDE(role) "<\xef\xbd\x9c" role "\xef\xbd\x9c>"
#define BARS(role) "[|" role "|]\n"
#define BARS_END "[|endofturn|]\n"

/* Per role: system, user, assistant, tool. */
const chat_template chat_templates[OMM_CHAT_FORMAT_COUNT] = {
    [OMM_CHAT_CHATML] = {
        .name = "chatml", .marks = {"<|im_start|>", "<|im_end|>"},
        .before = {IM("system"), IM("user"), IM("assistant"), IM("tool")},
        .after = {"<|im_end|>\n", "<|im_end|>\n", "<|im_end|>\n", "<|im_end|>\n"}},
    [OMM_CHAT_PHI4] = {
        .name = "phi4", .marks = {"<|im_start|>", "<|im_end|>", "<|im_sep|>"},
        .before = {SEP("system"), SEP("user"), SEP("assistant")},
        .after = {"<|im_end|>", "<|im_end|>", "<|im_end|>"}},
    [OMM_CHAT_LLAMA3] = {
        .name = "llama3", .marks = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
        .bos = CHAT_BOS_FIRST, .trims = true, .trims_answers = true,
        .before = {HEADER("system"), HEADER("user"), HEADER("assistant"), HEADER("ipython")},
        .after = {"<|eot_id|>", "<|eot_id|>", "<|eot_id|>", "<|eot_id|>"}},
    [OMM_CHAT_GEMMA] = {
        .name = "gemma", .marks = {"<start_of_turn>", "<end_of_turn>"},
        .bos = CHAT_BOS_FIRST, .trims = true, .trims_answers = true, .system = CHAT_SYSTEM_FIRST,
        .before = {NULL, "<start_of_turn>user\n", "<start_of_turn>model\n"},
        .after = {NULL, "<end_of_turn>\n", "<end_of_turn>\n"}, .system_text = {"", "\n\n"}},
    [OMM_CHAT_PHI3] = {
        .name = "phi3", .marks = {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>"},
        .before = {"<|system|>\n", "<|user|>\n", "<|assistant|>\n"},
        .after = {"<|end|>\n", "<|end|>\n", "<|end|>\n"}},
    [OMM_CHAT_PHI4_MINI] = {
        .name = "phi4-mini", .marks = {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>"},
        .before = {"<|system|>", "<|user|>", "<|assistant|>"},
        .after = {"<|end|>", "<|end|>", "<|end|>"}},
    [OMM_CHAT_ZEPHYR] = {
        .name = "zephyr", .marks = {"<|system|>", "<|user|>", "<|assistant|>"}, .text_marks = true,
        .before = {"<|system|>\n", "<|user|>\n", "<|assistant|>\n"},
        .after = {CHAT_EOS "\n", CHAT_EOS "\n", CHAT_EOS "\n"},
        .stops = {"<|user|>", "<|system|>"}},
    [OMM_CHAT_LLAMA2] = {
        .name = "llama2", .marks = {"[INST]", "[/INST]", "<<SYS>>", "<</SYS>>"}, .text_marks = true,
        .bos = CHAT_BOS_TURNS, .trims = true, .trims_joined = true, .trims_answers = true,
        .system = CHAT_SYSTEM_FIRST,
        .before = {NULL, CHAT_BOS "[INST] ", ""}, .after = {NULL, " [/INST]", " " CHAT_EOS},
        .lead = " ", .system_text = {"<<SYS>>\n", "\n<</SYS>>\n\n"}, .stops = {"[INST]"}},
    [OMM_CHAT_MISTRAL_V1] = {
        .name = "mistral-v1", .marks = {"[INST]", "[/INST]"}, .text_marks = true,
        .bos = CHAT_BOS_FIRST, .system = CHAT_SYSTEM_FIRST,
        .before = {NULL, " [INST] ", ""}, .after = {NULL, " [/INST]", CHAT_EOS},
        .lead = " ", .system_text = {"", "\n\n"}, .stops = {"[INST]"}},
    [OMM_CHAT_MISTRAL_V3] = {
        .name = "mistral-v3", .marks = {"[INST]", "[/INST]"},
        .bos = CHAT_BOS_FIRST, .system = CHAT_SYSTEM_LAST, .trims_answers = true,
        .before = {NULL, "[INST] ", ""}, .after = {NULL, "[/INST]", CHAT_EOS},
        .lead = " ", .system_text = {"", "\n\n"}},
    [OMM_CHAT_MISTRAL_V3_TEKKEN] = {
        .name = "mistral-v3-tekken", .marks = {"[INST]", "[/INST]"},
        .bos = CHAT_BOS_FIRST, .system = CHAT_SYSTEM_LAST,
        .before = {NULL, "[INST]", ""}, .after = {NULL, "[/INST]", CHAT_EOS},
        .lead = "", .system_text = {"", "\n\n"}},
    [OMM_CHAT_MISTRAL_V7] = {
        .name = "mistral-v7", .marks = {"[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"},
        .bos = CHAT_BOS_FIRST, .before = {"[SYSTEM_PROMPT] ", "[INST] ", ""},
        .after = {"[/SYSTEM_PROMPT]", "[/INST]", CHAT_EOS}, .lead = " "},
    [OMM_CHAT_MISTRAL_V7_TEKKEN] = {
        .name = "mistral-v7-tekken",
        .marks = {"[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"},
        .bos = CHAT_BOS_FIRST, .before = {"[SYSTEM_PROMPT]", "[INST]", ""},
        .after = {"[/SYSTEM_PROMPT]", "[/INST]", CHAT_EOS}},
    [OMM_CHAT_TULU] = {
        .name = "tulu", .marks = {"<|system|>", "<|user|>", "<|assistant|>"}, .text_marks = true,
        .bos = CHAT_BOS_EITHER, .before = {"<|system|>\n", "<|user|>\n", "<|assistant|>\n"},
        .after = {"\n", "\n", CHAT_EOS "\n"}, .stops = {"<|user|>", "<|system|>"}},
    [OMM_CHAT_GRANITE] = {
        .name = "granite", .marks = {"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"},
        .thoughts = CHAT_THOUGHTS_NEVER, /* unless it is asked for them in another system turn */
        .before = {ROLE("system"), ROLE("user"), ROLE("assistant"), ROLE("tool")},
        .after = {"<|end_of_text|>\n", "<|end_of_text|>\n", "<|end_of_text|>\n",
                  "<|end_of_text|>\n"}},
    [OMM_CHAT_DEEPSEEK] = {
        .name = "deepseek", .marks = {WIDE("User"), WIDE("Assistant")}, .bos = CHAT_BOS_FIRST,
        .system = CHAT_SYSTEM_FRONT, .thoughts = CHAT_THOUGHTS_CUT,
        .before = {"", WIDE("User"), WIDE("Assistant")}, .after = {"", "", CHAT_EOS}},
    [OMM_CHAT_EXAONE] = {
        .name = "exaone",
        .marks = {"[|system|]", "[|user|]", "[|assistant|]", "[|tool|]", "[|endofturn|]"},
        .thoughts = CHAT_THOUGHTS_EMPTY,
        .before = {BARS("system"), BARS("user"), BARS("assistant"), BARS("tool")},
        .after = {BARS_END, BARS_END, BARS_END, BARS_END}},
    [OMM_CHAT_ERNIE] = { /* roles are text, and so are marks where a line begins with them */
        .name = "ernie",
        .marks = {"<|begin_of_sentence|>", "<|end_of_sentence|>", "\nUser: ", "\nAssistant: "},
        .begins = "<|begin_of_sentence|>", .before = {"", "User: ", "Assistant: "},
        .after = {"\n", "\n", "<|end_of_sentence|>"}},
    [OMM_CHAT_HUNYUAN] = {
        .name = "hunyuan", .marks = {HUNYUAN_SYSTEM, HUNYUAN_USER, HUNYUAN_ASSISTANT},
        .bos = CHAT_BOS_FIRST, .system = CHAT_SYSTEM_FRONT, .thoughts = CHAT_THOUGHTS_ANSWERED,
        .before = {"", HUNYUAN_USER, ""}, .after = {HUNYUAN_SYSTEM, HUNYUAN_ASSISTANT, CHAT_EOS},
        .asks = HUNYUAN_ASSISTANT},
    [OMM_CHAT_HUNYUAN_7B] = {
        .name = "hunyuan-7b", .marks = {HUNYUAN_7B_SYSTEM, HUNYUAN_7B_ASKED},
        .bos = CHAT_BOS_FIRST, .system = CHAT_SYSTEM_FRONT, .thoughts = CHAT_THOUGHTS_ANSWERED,
        .before = {"", "", ""}, .after = {HUNYUAN_7B_SYSTEM, HUNYUAN_7B_ASKED, CHAT_EOS},
        .asks = HUNYUAN_7B_ASKED, .renews = true},
    [OMM_CHAT_CHATML_TEXT] = {
        .name = "chatml-text", .marks = {"<|im_start|>", "<|im_end|>"}, .text_marks = true,
        .before = {IM("system"), IM("user"), IM("assistant"), IM("tool")},
        .after = {"<|im_end|>\n", "<|im_end|>\n", "<|im_end|>\n", "<|im_end|>\n"},
        .stops = {"<|im_end|>", "<|im_start|>"}},
};

/* The first rule that fits decides: all of `has` and none of `lacks` occur in the Jinja text. */
static const struct {
    const char *has[3], *lacks[2];
    omm_chat_format format;
} s_rules[] = {
    {{"<|im_start|>", "<|im_sep|>"}, {NULL}, OMM_CHAT_PHI4},
    {{"<|im_start|>"}, {"<end_of_utterance>"}, OMM_CHAT_CHATML},
    {{"<|start_header_id|>", "<|end_header_id|>"}, {NULL}, OMM_CHAT_LLAMA3},
    {{"<start_of_turn>"}, {"<start_of_turn>\n", "<start_of_turn>\\n"}, OMM_CHAT_GEMMA},
    {{"[INST]", "[/INST]", "<<SYS>>"}, {NULL}, OMM_CHAT_LLAMA2},
    {{"[INST]", "[/INST]", "[SYSTEM_PROMPT]"}, {NULL}, OMM_CHAT_MISTRAL_V7},
    {{"[INST]", "[/INST]"}, {NULL}, OMM_CHAT_MISTRAL_V3},
    {{"<|assistant|>", "<|end|>"}, {"\n<|end|>", "\\n<|end|>"}, OMM_CHAT_PHI3},
    {{"<|assistant|>"}, {"[gMASK]", "<|begin_of_image|>"}, OMM_CHAT_ZEPHYR},
    {{"<|assistant|>", "<|user|>"}, {"[gMASK]", "<|end|>"}, OMM_CHAT_TULU},
    {{"<|start_of_role|>", "<|end_of_role|>"}, {NULL}, OMM_CHAT_GRANITE},
    {{WIDE("User"), WIDE("Assistant")}, {NULL}, OMM_CHAT_DEEPSEEK},
    {{"[|user|]", "[|tool|]", "[|endofturn|]"}, {NULL}, OMM_CHAT_EXAONE},
    {{"User: ", "Assistant: ", "<|end_of_sentence|>"}, {NULL}, OMM_CHAT_ERNIE},
    {{HUNYUAN_USER, HUNYUAN_ASSISTANT, HUNYUAN_SYSTEM}, {NULL}, OMM_CHAT_HUNYUAN},
    {{HUNYUAN_7B_SYSTEM, HUNYUAN_7B_ASKED}, {NULL}, OMM_CHAT_HUNYUAN_7B},
};
/* clang-format on */

static bool fits(size_t rule, omm_bytes jinja) {
    for (size_t i = 0; i < 3 && s_rules[rule].has[i]; i++)
        if (!chat_find(jinja, s_rules[rule].has[i])) return false;
    for (size_t i = 0; i < 2 && s_rules[rule].lacks[i]; i++)
        if (chat_find(jinja, s_rules[rule].lacks[i])) return false;
    return true;
}

/* Zephyr ends a user turn with the end token; templates that only look like it end it otherwise. */
static bool ends_user_turn(omm_bytes jinja) {
    static const char *const ends[] = {"eos_token", "</s>", "<|endoftext|>"};
    enum { NEAR = 64 }; /* bytes from the mark: '<|user|>\n' + message['content'] + eos_token */
    const uint8_t *user = chat_find(jinja, "<|user|>");
    if (!user)
        user = chat_find(jinja, "'|>"); /* '<|' + message['role'] + '|>\n' + message['content'] */
    size_t left = user ? jinja.size - (size_t)(user - jinja.data) : 0;
    omm_bytes near = omm_bytes_of(user, left < NEAR ? left : NEAR);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (chat_find(near, ends[i])) return true;
    return false;
}

size_t chat_line_end(omm_bytes text) {
    if (text.size > 0 && text.data[0] == '\n') return 1;
    return text.size > 1 && text.data[0] == '\\' && text.data[1] == 'n' ? 2 : 0;
}

/* Phi-3 begins a line behind each role's mark, Phi-4 mini does not; its text may have lines all the same.  The line
 * end stands behind the mark, or in a string that is added to it: '|>\n'  '<|user|>' + '\n'. */
static bool breaks_line(omm_bytes jinja) {
    static const char *const marks[] = {"<|system|>", "<|user|>", "<|assistant|>", "'|>", "\"|>"};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        omm_bytes rest = jinja;
        for (const uint8_t *at; (at = chat_find(rest, marks[i])) != NULL;) {
            const uint8_t *end = rest.data + rest.size;
            at += strlen(marks[i]);
            rest = omm_bytes_of(at, (size_t)(end - at));
            while (at < end && *at && strchr("'\" +~", *at)) at++;
            if (chat_line_end(omm_bytes_of(at, (size_t)(end - at))) > 0) return true;
        }
    }
    return false;
}

/* Llama 3 has an empty line behind each role; templates with its marks and another line end are of others. */
static bool has_empty_line(omm_bytes jinja) {
    static const char mark[] = "<|end_header_id|>";
    omm_bytes rest = jinja;
    for (const uint8_t *at; (at = chat_find(rest, mark)) != NULL;) {
        const uint8_t *end = rest.data + rest.size;
        at += sizeof mark - 1;
        rest = omm_bytes_of(at, (size_t)(end - at));
        unsigned lines = 0;
        for (size_t size; (size = chat_line_end(omm_bytes_of(at, (size_t)(end - at)))) > 0;
             at += size)
            lines++;
        if (lines == 1) return false;
    }
    return true;
}

static bool is_text(const jinja_parts *p, size_t at, const char *text) {
    return jinja_is(p, at, JINJA_TEXT) && jinja_fits(jinja_text(p, at), text, JINJA_NO_NAME);
}

/* What a message says, as templates have it. */
static bool is_content(const jinja_parts *p, size_t at) {
    const omm_bytes text = jinja_text(p, at);
    return jinja_is(p, at, JINJA_OUTPUT) && (jinja_name_between(text, "", ".content").size > 0 ||
                                             jinja_fits(text, "content.val", JINJA_NO_NAME));
}

/* Content behind a text that ends with `before`; what has to follow it: a line end, or (ends) the end token and no other text. */
static bool has_turn(const jinja_parts *p, const char *before, bool ends) {
    for (size_t at = 0; at + 2 < p->count; at++) {
        if (!jinja_is(p, at, JINJA_TEXT) || !jinja_ends_with(jinja_text(p, at), before) ||
            !is_content(p, at + 1))
            continue;
        if (!ends) return is_text(p, at + 2, "\n");
        return jinja_is(p, at + 2, JINJA_OUTPUT) &&
               jinja_fits(jinja_text(p, at + 2), "eos_token", JINJA_NO_NAME) &&
               (is_text(p, at + 3, "\n") || !jinja_is(p, at + 3, JINJA_TEXT));
    }
    return false;
}

/* A user's turn ends with its line, and so does the system's; an answer with the end token. */
static bool is_tulu(const jinja_parts *p, omm_bytes jinja) {
    return has_turn(p, "<|user|>\n", false) && has_turn(p, "<|assistant|>\n", true) &&
           (!chat_find(jinja, "<|system|>") || has_turn(p, "<|system|>\n", false));
}

/* A turn of this role, or (empty) of whatever role a message has. */
static bool has_granite_turn(const jinja_parts *p, const char *role) {
    char opens[64];
    snprintf(opens, sizeof opens, "<|start_of_role|>%s%s", role, *role ? "<|end_of_role|>" : "");
    for (size_t at = 0; at < p->count; at++) {
        if (!jinja_is(p, at, JINJA_TEXT) || !jinja_ends_with(jinja_text(p, at), opens)) continue;
        size_t content = at + 1;
        if (!*role && jinja_is(p, at + 1, JINJA_OUTPUT) &&
            jinja_name_between(jinja_text(p, at + 1), "", ".role").size > 0 &&
            is_text(p, at + 2, "<|end_of_role|>"))
            content = at + 3;
        if (is_content(p, content) && is_text(p, content + 1, "<|end_of_text|>\n")) return true;
    }
    return false;
}

static bool is_granite(const jinja_parts *p) {
    return has_granite_turn(p, "") ||
           (has_granite_turn(p, "user") && has_granite_turn(p, "assistant"));
}

/* Families of which parts are looked at. */
static bool is_compared(omm_chat_format format) {
    return format == OMM_CHAT_TULU || format == OMM_CHAT_GRANITE || format == OMM_CHAT_EXAONE ||
           format == OMM_CHAT_ERNIE || format == OMM_CHAT_HUNYUAN || format == OMM_CHAT_HUNYUAN_7B;
}

static bool has_parts(omm_chat_format format, const jinja_parts *p, omm_bytes jinja) {
    switch (format) {
    case OMM_CHAT_TULU: return is_tulu(p, jinja);
    case OMM_CHAT_GRANITE: return is_granite(p);
    case OMM_CHAT_EXAONE: return exaone_is(p);
    case OMM_CHAT_ERNIE: return ernie_is(p);
    default: return hunyuan_is(p, format);
    }
}

/* What marks alone do not tell. */
static omm_err has_turns(bool *out, omm_chat_format format, omm_bytes jinja) {
    jinja_parts parts;
    *out = format == OMM_CHAT_ZEPHYR   ? ends_user_turn(jinja)
           : format == OMM_CHAT_LLAMA3 ? has_empty_line(jinja)
                                       : true;
    if (format == OMM_CHAT_CHATML) return chat_is_chatml(out, jinja);
    if (!is_compared(format)) return OMM_OK;
    const omm_err err = format == OMM_CHAT_EXAONE ? jinja_parts_read_all(&parts, jinja)
                                                  : jinja_parts_read(&parts, jinja);
    if (err == OMM_OK) *out = has_parts(format, &parts, jinja);
    jinja_parts_fini(&parts);
    return err;
}

/* The marks of a Mistral model are tokens from version 3 on; its later vocabularies are not of
 * SentencePiece, and no spaces stand around them. */
static omm_chat_format refine(omm_chat_format format, const omm_tokenizer *t, omm_bytes jinja) {
    if (format == OMM_CHAT_PHI3 && !breaks_line(jinja)) return OMM_CHAT_PHI4_MINI;
    bool v3 = format == OMM_CHAT_MISTRAL_V3;
    if (v3 && omm_tokenizer_special(t, "[INST]") == OMM_TOKEN_NONE) return OMM_CHAT_MISTRAL_V1;
    if (v3 && !t->spm) return OMM_CHAT_MISTRAL_V3_TEKKEN;
    if (format == OMM_CHAT_MISTRAL_V7 && !t->spm) return OMM_CHAT_MISTRAL_V7_TEKKEN;
    return format;
}

/* A model that was made for no turns we know may still follow some: its tokenizer writes the marks that its
 * vocabulary lacks as the text they are. */
static omm_chat_format stand_in(const omm_tokenizer *t) {
    const chat_template *c = &chat_templates[OMM_CHAT_CHATML];
    for (size_t i = 0; i < CHAT_MARKS_MAX && c->marks[i]; i++)
        if (omm_tokenizer_special(t, c->marks[i]) == OMM_TOKEN_NONE) return OMM_CHAT_CHATML_TEXT;
    return OMM_CHAT_CHATML;
}

/* Keep the beginning of a text that nobody trusts, for the user to read. */
static void keep_beginning(omm_tokenizer *t, omm_bytes jinja) {
    size_t size = jinja.size < sizeof t->chat_found - 1 ? jinja.size : sizeof t->chat_found - 1;
    for (size_t i = 0; i < size; i++) {
        uint8_t c = jinja.data[i];
        t->chat_found[i] = (char)(c >= ' ' && c < 0x7f ? c : '?');
    }
    t->chat_found[size] = 0;
}

/* The mark that closes an answer ends it, whatever the file says. */
static void mark_answer_end(omm_tokenizer *t) {
    const chat_template *c = &chat_templates[t->chat];
    for (size_t i = 0; i < CHAT_MARKS_MAX && c->marks[i]; i++) {
        const uint32_t id = omm_tokenizer_special(t, c->marks[i]);
        if (jinja_starts_with(omm_bytes_str(c->after[OMM_ROLE_ASSISTANT]), c->marks[i]) &&
            id != OMM_TOKEN_NONE)
            t->flags[id] |= TOKEN_IS_END;
    }
}

/* live: of the template what is there to run. */
static omm_err find_format(omm_tokenizer *t, omm_bytes live) {
    for (size_t i = 0; i < sizeof s_rules / sizeof s_rules[0] && !t->chat_known; i++) {
        if (!fits(i, live)) continue;
        OMM_TRY(has_turns(&t->chat_known, s_rules[i].format, live));
        if (t->chat_known) t->chat = (uint8_t)refine(s_rules[i].format, t, live);
    }
    t->chat_has_bos = t->chat_known && chat_find(live, "bos_token");
    return OMM_OK;
}

omm_err chat_recognise(omm_tokenizer *t, const omm_gguf *g) {
    omm_bytes jinja = {0};
    omm_buf live;
    t->chat = (uint8_t)stand_in(t);
    if (!omm_gguf_find(g, "tokenizer.chat_template")) return OMM_OK;
    OMM_TRY(omm_gguf_get_str(&jinja, g, "tokenizer.chat_template"));
    omm_buf_init(&live, SIZE_MAX / 2); /* no more than the template */
    omm_err err = chat_live(&live, jinja);
    if (err == OMM_OK) err = find_format(t, omm_buf_view(&live));
    omm_buf_fini(&live);
    OMM_TRY(err);
    if (!t->chat_known) {
        keep_beginning(t, jinja);
        return OMM_OK;
    }
    mark_answer_end(t);
    OMM_TRY(parts_recognise(t, jinja));
    if (chat_templates[t->chat].thoughts != CHAT_THOUGHTS_NEVER) thinking_recognise(t, jinja);
    return announce_recognise(t, g, jinja);
}

const char *omm_chat_format_name(omm_chat_format format) {
    OMM_ASSERT((unsigned)format < OMM_CHAT_FORMAT_COUNT);
    return chat_templates[format].name;
}

omm_chat_format omm_chat_format_of(const omm_tokenizer *tokenizer) {
    return (omm_chat_format)tokenizer->chat;
}

bool omm_chat_doubt(char out[OMM_CHAT_DOUBT_MAX], const omm_tokenizer *tokenizer) {
    if (tokenizer->chat_known) return false;
    const char *how =
        tokenizer->chat == OMM_CHAT_CHATML_TEXT
            ? "ChatML is used, its marks as plain text: the vocabulary has no tokens for them"
            : "ChatML is used";
    if (!tokenizer->chat_found[0]) {
        snprintf(out, OMM_CHAT_DOUBT_MAX, "the model has no chat template; %s", how);
        return true;
    }
    int used =
        snprintf(out, OMM_CHAT_DOUBT_MAX,
                 "the model's chat template is not known; %s; it begins with '%s'; known are:", how,
                 tokenizer->chat_found);
    for (int f = 0; f < OMM_CHAT_CHATML_TEXT && used < OMM_CHAT_DOUBT_MAX; f++) /* which is last */
        used += snprintf(out + used, (size_t)(OMM_CHAT_DOUBT_MAX - used), " %s",
                         chat_templates[f].name);
    return true;
}

const char *const *omm_chat_stops(size_t *count, const omm_tokenizer *tokenizer) {
    const chat_template *c = &chat_templates[tokenizer->chat];
    for (*count = 0; *count < CHAT_STOPS_MAX && c->stops[*count];) ++*count;
    return c->stops;
}

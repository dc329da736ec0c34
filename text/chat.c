/* chat.c - turns of a conversation as token ids, with what is to be learned. */
#include "chat_internal.h"
#include "jinja_shape.h"
#include "tokenizer_internal.h"

#include <string.h>

static const char *const s_roles[] = {"system", "user", "assistant", "tool", "tools"};

const char *omm_role_name(omm_role role) {
    OMM_ASSERT((unsigned)role <= OMM_ROLE_TOOLS);
    return s_roles[role];
}

omm_err omm_role_parse(omm_role *out, const char *name) {
    for (unsigned i = 0; i < OMM_ROLE_COUNT; i++)
        if (strcmp(s_roles[i], name) == 0) {
            *out = (omm_role)i;
            return OMM_OK;
        }
    return omm_raise(OMM_ERR_FORMAT, "role '%.40s': accepted are system, user, assistant, tool",
                     name);
}

void omm_prompt_init(omm_prompt *prompt, size_t tokens_max) {
    omm_tokens_init(&prompt->tokens, tokens_max);
    omm_buf_init(&prompt->mask, tokens_max);
}

void omm_prompt_fini(omm_prompt *prompt) {
    omm_tokens_fini(&prompt->tokens);
    omm_buf_fini(&prompt->mask);
}

void omm_prompt_clear(omm_prompt *prompt) {
    prompt->tokens.count = 0;
    omm_buf_clear(&prompt->mask);
}

/* ---- Writing a turn ------------------------------------------------------------------------- */

/* Text gathers in `text` until a mark or a change of the mask, and is then encoded in one piece, as
 * the text of the training data was. */
typedef struct writer {
    omm_prompt *p;
    const omm_tokenizer *t;
    const chat_template *c;
    omm_buf text;
    unsigned flags; /* OMM_TOKENIZE_PLAIN: what people and tools wrote is never more than text */
    bool glued;     /* what comes goes on after text, not after a mark */
    bool at_once;   /* of a model whose first turn says how it reasons: answers have no thoughts */
    bool past;      /* an answer from before what is asked now: its thoughts go */
    bool asked;     /* the user has had a turn */
} writer;

/* Give every token since the last call this mask. */
static omm_err mark(omm_prompt *p, uint8_t learned) {
    uint8_t *added = NULL;
    size_t count = p->tokens.count - p->mask.size;
    OMM_TRY(omm_buf_extend(&p->mask, &added, count));
    if (count > 0) memset(added, learned, count);
    return OMM_OK;
}

/* Behind a mark: what the mark swallows goes, and a space that the text has itself is the one that
 * SentencePiece puts in front. */
static omm_err flush(writer *w) {
    omm_bytes text = omm_buf_view(&w->text);
    unsigned flags = w->flags | (w->glued ? OMM_TOKENIZE_CONTINUE : 0u);
    size_t last = w->p->tokens.count;
    if (!w->glued && last > 0 && tokenizer_strips_right(w->t, w->p->tokens.ids[last - 1]))
        while (text.size > 0 && chat_is_space(text.data[0]))
            text = omm_bytes_of(text.data + 1, text.size - 1);
    if (text.size > 0 && text.data[0] == ' ') flags |= OMM_TOKENIZE_CONTINUE;
    if (text.size > 0) {
        OMM_TRY(omm_tokenizer_encode(&w->p->tokens, w->t, text, flags));
        w->glued = true;
    }
    omm_buf_clear(&w->text);
    return OMM_OK;
}

static omm_err put_id(writer *w, uint32_t id) {
    OMM_TRY(flush(w));
    w->glued = false;
    return omm_tokens_push(&w->p->tokens, id);
}

/* That of the marks (up to count, or NULL) which `text` begins with, or NULL. */
static const char *one_at(const char *const *marks, size_t count, omm_bytes text) {
    for (size_t i = 0; i < count && marks[i]; i++) {
        size_t size = strlen(marks[i]);
        if (text.size >= size && memcmp(text.data, marks[i], size) == 0) return marks[i];
    }
    return NULL;
}

/* The mark of the template, or of how it has tools, that `text` begins with, or NULL. */
static const char *mark_at(const writer *w, omm_bytes text) {
    const tools_form *form = w->t->tools.form;
    const char *mark = one_at(w->c->marks, CHAT_MARKS_MAX, text);
    return mark || !form ? mark : one_at(form->marks, FORM_MARKS_MAX, text);
}

/* The same of marks of calls, in what may have them. */
static const char *spoken_at(const writer *w, omm_bytes text) {
    const tools_form *form = w->t->tools.form;
    if (!form || (w->flags & OMM_TOKENIZE_PLAIN)) return NULL;
    return one_at(form->spoken, FORM_SPOKEN_MAX, text);
}

static omm_err put_mark(writer *w, const char *name) {
    uint32_t id = omm_tokenizer_special(w->t, name);
    if (id != OMM_TOKEN_NONE) return put_id(w, id);
    if (w->c->text_marks) return omm_buf_append(&w->text, name, strlen(name));
    return omm_raise(OMM_ERR_UNSUPPORTED,
                     "this model has no %s token, so it was not made for %s conversations", name,
                     w->c->name);
}

static omm_err put_end(writer *w) {
    uint32_t eos = omm_tokenizer_eos(w->t);
    if (eos != OMM_TOKEN_NONE) return put_id(w, eos);
    return omm_raise(OMM_ERR_UNSUPPORTED, "the model names no end token, which %s needs",
                     w->c->name);
}

static omm_err put_begin(writer *w) {
    uint32_t bos = omm_tokenizer_bos(w->t);
    return bos != OMM_TOKEN_NONE ? put_id(w, bos) : OMM_OK;
}

/* Text of the template; stops behind the first mark if `stop` is given, which then is the rest. */
static omm_err put_literal(writer *w, const char *literal, const char **stop) {
    OMM_ASSERT(literal); /* the table has it for every role that is written */
    for (const char *p = literal; *p;) {
        const char *name = mark_at(w, omm_bytes_str(p));
        bool is_mark = name || *p == CHAT_BOS[0] || *p == CHAT_EOS[0];
        if (name)
            OMM_TRY(put_mark(w, name));
        else if (*p == CHAT_BOS[0])
            OMM_TRY(put_begin(w));
        else if (*p == CHAT_EOS[0])
            OMM_TRY(put_end(w));
        else
            OMM_TRY(omm_buf_append(&w->text, p, 1));
        p += name ? strlen(name) : 1;
        if (stop) *stop = p;
        if (stop && is_mark) return OMM_OK;
    }
    return OMM_OK;
}

/* ---- Content ------------------------------------------------------------------------------- */

static bool same_ids(const omm_tokens *a, size_t a_from, const omm_tokens *b) {
    size_t count = a->count - a_from;
    return count == b->count && memcmp(a->ids + a_from, b->ids, count * sizeof *b->ids) == 0;
}

static omm_err spell(writer *w, omm_bytes name) {
    const unsigned flags = OMM_TOKENIZE_PLAIN | OMM_TOKENIZE_CONTINUE;
    OMM_TRY(flush(w));
    for (size_t i = 0, size = 1; i < name.size; i += size, size = 1) {
        const uint32_t byte = tokenizer_byte(w->t, name.data[i]);
        while (i + size < name.size && (name.data[i + size] & 0xc0) == 0x80) size++;
        if (byte != OMM_TOKEN_NONE && size == 1)
            OMM_TRY(omm_tokens_push(&w->p->tokens, byte));
        else
            OMM_TRY(omm_tokenizer_encode(&w->p->tokens, w->t, omm_bytes_of(name.data + i, size),
                                         flags));
    }
    w->glued = true;
    return OMM_OK;
}

/* Content that spells a mark which the model has as plain text: the same text in other ids, character
 * by character.  Where there are none, it cannot be told from the mark and is refused. */
static omm_err put_spelled(writer *w, const char *name) {
    omm_bytes text = omm_bytes_str(name);
    omm_tokens real;
    omm_tokens_init(&real, text.size + 1);
    OMM_TRY(flush(w));
    size_t from = w->p->tokens.count;
    omm_err err = spell(w, text);
    if (err == OMM_OK && omm_tokenizer_special(w->t, name) == OMM_TOKEN_NONE)
        err = omm_tokenizer_encode(&real, w->t, text, OMM_TOKENIZE_PLAIN | OMM_TOKENIZE_CONTINUE);
    if (err == OMM_OK && same_ids(&w->p->tokens, from, &real))
        err = omm_raise(OMM_ERR_UNSUPPORTED,
                        "a message has the text '%s', which this model cannot tell from the mark "
                        "between turns",
                        name + strspn(name, "\n"));
    omm_tokens_fini(&real);
    return err;
}

omm_bytes chat_trim(omm_bytes text) {
    while (text.size > 0 && chat_is_space(text.data[0]))
        text = omm_bytes_of(text.data + 1, text.size - 1);
    while (text.size > 0 && chat_is_space(text.data[text.size - 1])) text.size--;
    return text;
}

/* Bytes of the character of white space that the text begins with, as Python has it (str.isspace); 0: of none. */
static size_t space_size(omm_bytes text) {
    static const char *const wide[] = {
        "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81",
        "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
        "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
        "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};
    const uint8_t c = text.size > 0 ? text.data[0] : 'x';
    if (chat_is_space(c) || (c >= 0x1c && c <= 0x1f)) return 1;
    for (size_t i = 0; c >= 0x80 && i < sizeof wide / sizeof *wide; i++) {
        const size_t size = strlen(wide[i]);
        if (text.size >= size && memcmp(text.data, wide[i], size) == 0) return size;
    }
    return 0;
}

omm_bytes chat_strip_end(omm_bytes text) {
    for (size_t size = 1; size <= 3 && size <= text.size; size++) {
        if (space_size(omm_bytes_of(text.data + text.size - size, size)) != size) continue;
        text.size -= size;
        size = 0; /* from the beginning */
    }
    return text;
}

omm_bytes chat_strip_begin(omm_bytes text) {
    for (size_t size; (size = space_size(text)) > 0;)
        text = omm_bytes_of(text.data + size, text.size - size);
    return text;
}

omm_bytes chat_strip(omm_bytes text) {
    return chat_strip_end(chat_strip_begin(text));
}

/* The text ends inside a character: SentencePiece would take the bytes behind it as its rest. */
static bool ends_inside(omm_bytes text) {
    for (size_t i = 1; i <= 3 && i <= text.size; i++) {
        uint8_t c = text.data[text.size - i];
        size_t wanted = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
        if (wanted > i) return true;
    }
    return false;
}

static omm_err put_content(writer *w, omm_bytes content) {
    size_t from = 0;
    for (size_t i = 0; i < content.size;) {
        const omm_bytes rest = omm_bytes_of(content.data + i, content.size - i);
        const char *spoken = spoken_at(w, rest), *name = spoken ? spoken : mark_at(w, rest);
        uint32_t id = name ? omm_tokenizer_special(w->t, name) : OMM_TOKEN_NONE;
        size_t size = name ? strlen(name) : 1;
        if (spoken) {
            OMM_TRY(omm_buf_append(&w->text, content.data + from, i - from));
            OMM_TRY(put_id(w, id));
            from = i += size;
            continue;
        }
        /* text never becomes a control token; other marks it could */
        if (name && (id == OMM_TOKEN_NONE || !omm_tokenizer_is_control(w->t, id))) {
            OMM_TRY(omm_buf_append(&w->text, content.data + from, i - from));
            OMM_TRY(put_spelled(w, name));
            from = i + size;
        }
        i += size;
    }
    if (from == content.size) return OMM_OK;
    OMM_TRY(omm_buf_append(&w->text, content.data + from, content.size - from));
    return ends_inside(content) ? flush(w) : OMM_OK;
}

/* Content with nothing of its turn in front stands at the beginning of a line: where a mark is a line's, the rest of one is
 * spelled, too. */
static omm_err put_line(writer *w, omm_bytes content) {
    for (size_t i = 0; i < CHAT_MARKS_MAX && w->c->marks[i]; i++) {
        const char *name = w->c->marks[i] + 1;
        if (w->c->marks[i][0] != '\n' || !jinja_starts_with(content, name)) continue;
        OMM_TRY(put_spelled(w, name));
        content = omm_bytes_of(content.data + strlen(name), content.size - strlen(name));
        break;
    }
    return put_content(w, content);
}

/* ---- Turns --------------------------------------------------------------------------------- */

/* An empty thought, its marks the tokens that the model knows. */
static omm_err put_thought(writer *w, omm_bytes thought) {
    if (thought.size > 0) w->flags = 0;
    return omm_buf_append(&w->text, thought.data, thought.size);
}

static omm_bytes without_line_ends(omm_bytes text) {
    while (text.size > 0 && text.data[0] == '\n') text = omm_bytes_of(text.data + 1, text.size - 1);
    return text;
}

static omm_bytes without_thought(const writer *w, omm_bytes text) {
    switch (w->c->thoughts) {
    case CHAT_THOUGHTS_CUT: return thinking_cut(text);
    case CHAT_THOUGHTS_EMPTY: return thinking_cut_clean(text);
    case CHAT_THOUGHTS_ANSWERED: return thinking_answer(text);
    default: return omm_thought_leave_out(text);
    }
}

/* An answer that says something, and has no thought of its own here. */
static bool begins_empty(const writer *w, omm_bytes text) {
    return w->at_once || (w->c->thoughts == CHAT_THOUGHTS_EMPTY && text.size > 0 &&
                          (w->past || !thinking_is_open(text)));
}

/* The header alone, as it stands in front of a generation, then what the model writes itself. */
static omm_err put_written(writer *w, const omm_message *m) {
    omm_bytes content = w->past ? without_thought(w, m->content) : m->content;
    const char *rest = "";
    OMM_TRY(put_literal(w, w->c->before[OMM_ROLE_ASSISTANT], NULL));
    if (begins_empty(w, m->content)) OMM_TRY(put_thought(w, thinking_none(w->t)));
    OMM_TRY(flush(w));
    OMM_TRY(mark(w->p, 0));
    w->flags = 0;
    if (w->c->trims_answers) content = chat_strip(content);
    if (w->t->reasoning.is) content = without_line_ends(content);
    if (w->c->lead && !spoken_at(w, content)) OMM_TRY(put_literal(w, w->c->lead, NULL));
    OMM_TRY(put_content(w, content));
    OMM_TRY(put_literal(w, w->c->after[OMM_ROLE_ASSISTANT], &rest));
    OMM_TRY(flush(w));
    OMM_TRY(mark(w->p, !m->is_given));
    return put_literal(w, rest, NULL);
}

/* A text as JSON spells it. */
static omm_err put_quoted(writer *w, omm_bytes text) {
    omm_buf spelled;
    json_t *value = json_stringn(text.size ? (const char *)text.data : "", text.size);
    omm_buf_init(&spelled, OMM_TOKENIZER_TEXT_MAX);
    omm_err err = value ? omm_json_write_spaced(&spelled, value)
                        : omm_raise(OMM_ERR_FORMAT, "the result of a tool is not UTF-8");
    if (err == OMM_OK) err = put_content(w, omm_buf_view(&spelled));
    json_decref(value);
    omm_buf_fini(&spelled);
    return err;
}

/* As the template has it: tools that it lists end with an empty line, whether more follows or not. */
static omm_bytes trimmed(const writer *w, const omm_message *m, bool with_system) {
    const omm_bytes head = omm_buf_view(&w->t->tools.head), text = m->content;
    const bool lists = w->t->tools.lists && m->role == OMM_ROLE_SYSTEM && text.size > head.size &&
                       memcmp(text.data, head.data, head.size) == 0;
    if (!w->c->trims || lists) return text;
    return with_system && w->c->trims_joined ? chat_strip_end(text) : chat_strip(text);
}

/* A tool's result, with its id where it has one. */
static omm_err put_own_result(writer *w, const omm_message *m) {
    const tools_form *form = w->t->tools.form;
    char id[OMM_CHAT_CALL_ID_BYTES + 1] = "";
    const bool has_id = form->result[1] && m->call_id.size > 0;
    if (has_id) calls_id(id, m->call_id);
    w->flags = OMM_TOKENIZE_PLAIN;
    OMM_TRY(put_literal(w, form->result[0], NULL));
    if (form->id_first) {
        OMM_TRY(put_content(w, omm_bytes_str(id)));
        OMM_TRY(put_literal(w, form->result[1], NULL));
    }
    OMM_TRY(put_content(w, m->content));
    if (has_id && !form->id_first) {
        OMM_TRY(put_literal(w, form->result[1], NULL));
        OMM_TRY(put_content(w, omm_bytes_str(id)));
        OMM_TRY(put_literal(w, form->result[2], NULL));
    }
    return put_literal(w, form->result[3], NULL);
}

/* What is announced in a turn of its own. */
static omm_err put_tools(writer *w, omm_bytes tools) {
    const tools_form *form = w->t->tools.form;
    OMM_ASSERT(form && form->before); /* who announces so has asked */
    w->flags = OMM_TOKENIZE_PLAIN;
    OMM_TRY(put_literal(w, form->before, NULL));
    OMM_TRY(put_content(w, tools));
    return put_literal(w, form->after, NULL);
}

/* BOS once more. */
static omm_err put_renewed(writer *w) {
    const bool again = w->asked;
    w->asked = true;
    return again ? put_begin(w) : OMM_OK;
}

static omm_err put_read(writer *w, const omm_message *m, const omm_bytes *system) {
    const chat_template *c = w->c;
    if (m->role == OMM_ROLE_TOOLS) return put_tools(w, m->content);
    if (m->role == OMM_ROLE_TOOL && w->t->tools.form && w->t->tools.form->result[0])
        return put_own_result(w, m);
    const bool as_user = !c->before[m->role] || (m->role == OMM_ROLE_TOOL && w->t->reasoning.is);
    const omm_role role = as_user ? OMM_ROLE_USER : m->role;
    w->flags = role == OMM_ROLE_SYSTEM ? 0 : OMM_TOKENIZE_PLAIN;
    if (c->renews && role == OMM_ROLE_USER) OMM_TRY(put_renewed(w));
    const char *front = c->before[role];
    OMM_ASSERT(front);
    OMM_TRY(put_literal(w, front, NULL));
    if (system) {
        OMM_TRY(put_literal(w, c->system_text[0], NULL));
        OMM_TRY(put_content(w, *system)); /* as it is, whatever is trimmed */
        OMM_TRY(put_literal(w, c->system_text[1], NULL));
    }
    if (m->role == OMM_ROLE_TOOL && w->t->tools.quoted)
        OMM_TRY(put_quoted(w, m->content));
    else if (!*front)
        OMM_TRY(put_line(w, trimmed(w, m, system != NULL)));
    else
        OMM_TRY(put_content(w, trimmed(w, m, system != NULL)));
    return put_literal(w, c->after[role], NULL);
}

/* A mark inside content: its token, where the model has one. */
static omm_err put_inner_mark(writer *w, const char *mark) {
    const uint32_t id = omm_tokenizer_special(w->t, mark);
    return id != OMM_TOKEN_NONE ? put_id(w, id) : omm_buf_append(&w->text, mark, strlen(mark));
}

static bool ends_line(const char *text) {
    return *text && text[strlen(text) - 1] == '\n';
}

/* The same as a turn of their own, each as JSON. */
static omm_err put_json_result(writer *w, omm_bytes content, bool first, bool last) {
    static const char opens[] = "{\"result\": ";
    OMM_TRY(put_literal(w, first ? w->c->before[OMM_ROLE_TOOL] : "\n", NULL));
    OMM_TRY(put_inner_mark(w, "<tool_result>"));
    OMM_TRY(omm_buf_append(&w->text, opens, sizeof opens - 1));
    OMM_TRY(put_quoted(w, content));
    OMM_TRY(omm_buf_append(&w->text, "}", 1));
    OMM_TRY(put_inner_mark(w, "</tool_result>"));
    return last ? put_literal(w, w->c->after[OMM_ROLE_TOOL], NULL) : OMM_OK;
}

/* Results of tools as a user's turn, several of them one after the other in it. */
static omm_err put_response(writer *w, omm_bytes content, bool first, bool last) {
    const chat_template *c = w->c;
    w->flags = OMM_TOKENIZE_PLAIN;
    if (w->t->tools.result) return put_json_result(w, content, first, last);
    if (first) OMM_TRY(put_literal(w, c->before[OMM_ROLE_USER], NULL));
    if (!first || !ends_line(c->before[OMM_ROLE_USER])) OMM_TRY(put_literal(w, "\n", NULL));
    OMM_TRY(put_inner_mark(w, "<tool_response>"));
    OMM_TRY(omm_buf_append(&w->text, "\n", 1));
    OMM_TRY(put_content(w, content));
    OMM_TRY(omm_buf_append(&w->text, "\n", 1));
    OMM_TRY(put_inner_mark(w, "</tool_response>"));
    return last ? put_literal(w, c->after[OMM_ROLE_USER], NULL) : OMM_OK;
}

static bool follows_text(const writer *w) {
    size_t count = w->p->tokens.count;
    if (count == 0) return false;
    uint32_t last = w->p->tokens.ids[count - 1];
    return !omm_tokenizer_is_control(w->t, last) && last != omm_tokenizer_eos(w->t) &&
           !tokenizer_is_user(w->t, last);
}

static omm_err put_first(writer *w) {
    const bool says = omm_tokenizer_adds_bos(w->t);
    const bool puts = (w->c->bos == CHAT_BOS_AS_FILE && says) ||
                      (w->c->bos == CHAT_BOS_EITHER && (says || w->t->chat_has_bos)) ||
                      w->c->bos == CHAT_BOS_FIRST;
    if (w->p->tokens.count > 0) return OMM_OK;
    if (w->c->begins) return put_literal(w, w->c->begins, NULL);
    return puts ? put_begin(w) : OMM_OK;
}

/* `system` may be NULL; else it goes into this turn, which is a user's. */
static omm_err put_turn(writer *w, const omm_message *m, const omm_bytes *system) {
    w->glued = follows_text(w);
    OMM_TRY(put_first(w));
    OMM_TRY(m->role == OMM_ROLE_ASSISTANT ? put_written(w, m) : put_read(w, m, system));
    OMM_TRY(flush(w));
    return mark(w->p, 0);
}

static bool is_response(const writer *w, const omm_message *messages, size_t count, size_t at) {
    return at < count && messages[at].role == OMM_ROLE_TOOL &&
           (w->t->tools.response || w->t->tools.result);
}

/* `at`: number `at` of them is such a result. */
static omm_err put_result(writer *w, const omm_message *messages, size_t count, size_t at) {
    const bool first = at == 0 || !is_response(w, messages, count, at - 1);
    w->glued = follows_text(w);
    OMM_TRY(put_first(w));
    OMM_TRY(put_response(w, messages[at].content, first, !is_response(w, messages, count, at + 1)));
    OMM_TRY(flush(w));
    return mark(w->p, 0);
}

/* Does the prompt end with this mark? */
static bool ends_with(const writer *w, const char *mark) {
    const omm_tokens *tokens = &w->p->tokens;
    return tokens->count > 0 && tokens->ids[tokens->count - 1] == omm_tokenizer_special(w->t, mark);
}

static omm_err put_generate(writer *w, omm_chat_ending ending) {
    const bool at_once = ending == OMM_CHAT_AT_ONCE || w->at_once;
    const omm_bytes thought = at_once ? thinking_none(w->t) : omm_thinking_opening(w->t);
    w->glued = follows_text(w);
    OMM_TRY(put_first(w));
    if (w->c->asks && !ends_with(w, w->c->asks)) OMM_TRY(put_literal(w, w->c->asks, NULL));
    OMM_TRY(put_literal(w, w->c->before[OMM_ROLE_ASSISTANT], NULL));
    OMM_TRY(put_thought(w, thought));
    OMM_TRY(flush(w));
    return mark(w->p, 0);
}

/* ---- Conversations -------------------------------------------------------------------------- */

/* Where the template has no turn for the system: its messages at the front, and the user's turn that
 * takes them (`count` when there is none). */
typedef struct placed {
    omm_buf text;
    size_t taken;
    size_t turn;
} placed;

/* All of them, as one. */
static omm_err gather_system(placed *out, const omm_message *messages, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (messages[i].role != OMM_ROLE_SYSTEM) continue;
        const omm_bytes text = messages[i].content;
        if (out->text.size > 0) OMM_TRY(omm_buf_append(&out->text, "\n\n", 2));
        OMM_TRY(omm_buf_append(&out->text, text.data, text.size));
    }
    return OMM_OK;
}

static omm_err place_system(placed *out, const chat_template *c, const omm_message *messages,
                            size_t count) {
    out->turn = count;
    if (c->system == CHAT_SYSTEM_FRONT) return gather_system(out, messages, count);
    if (c->system == CHAT_SYSTEM_TURN) return OMM_OK;
    for (; out->taken < count && messages[out->taken].role == OMM_ROLE_SYSTEM; out->taken++) {
        const omm_bytes text = messages[out->taken].content;
        if (out->taken > 0) OMM_TRY(omm_buf_append(&out->text, "\n\n", 2));
        OMM_TRY(omm_buf_append(&out->text, text.data, text.size));
    }
    for (size_t i = out->taken; i < count && out->taken > 0; i++) {
        if (messages[i].role != OMM_ROLE_USER) continue;
        out->turn = i;
        if (c->system == CHAT_SYSTEM_FIRST) break;
    }
    return OMM_OK;
}

/* Answers before this turn have no thoughts any more. */
static size_t last_question(const writer *w, const omm_message *messages, size_t count,
                            omm_chat_ending ending) {
    if (ending == OMM_CHAT_WHOLE || omm_thinking_of(w->t) == OMM_THINKING_NONE) return 0;
    if (w->t->reasoning.is) return 0; /* what is given to it as content stays */
    if (w->c->thoughts == CHAT_THOUGHTS_CUT || w->c->thoughts == CHAT_THOUGHTS_EMPTY) return count;
    if (w->c->thoughts == CHAT_THOUGHTS_ANSWERED) return count > 0 ? count - 1 : 0;
    while (count > 0 && messages[count - 1].role != OMM_ROLE_USER) count--;
    return count;
}

/* A system's turn that says nothing, where the template writes none then. */
static bool is_left_out(const writer *w, const omm_message *m, bool is_first) {
    return m->role == OMM_ROLE_SYSTEM && m->content.size == 0 &&
           (w->t->chat_empty == CHAT_EMPTY_OUT ||
            (w->t->chat_empty == CHAT_EMPTY_FIRST_OUT && is_first));
}

/* The turn that the template puts in front of a conversation that has none for the system. */
static omm_err put_default(writer *w, const omm_message *messages, size_t count) {
    const omm_message turn = {.role = OMM_ROLE_SYSTEM, .content = omm_chat_default_system(w->t)};
    if (w->p->tokens.count > 0 || count == 0 || turn.content.size == 0 ||
        (messages[0].role == OMM_ROLE_SYSTEM && !is_left_out(w, &messages[0], true)))
        return OMM_OK;
    return put_turn(w, &turn, NULL);
}

/* The turn that says how the model reasons: of the system's first message and of tools that are announced. */
static omm_err put_reasoning(writer *w, const omm_message *messages, size_t count) {
    omm_buf text;
    omm_bytes system = {0}, tools = {0};
    bool ends = true;
    if (messages[0].role == OMM_ROLE_SYSTEM) system = messages[0].content;
    for (size_t i = 0; i < count && !tools.data; i++)
        if (messages[i].role == OMM_ROLE_TOOLS) tools = messages[i].content;
    w->glued = follows_text(w);
    OMM_TRY(put_first(w));
    OMM_TRY(put_literal(w, w->c->before[OMM_ROLE_SYSTEM], NULL));
    w->flags = 0;
    omm_buf_init(&text, OMM_TOKENIZER_TEXT_MAX);
    omm_err err = smollm_system(&ends, &text, w->t, system, tools, w->at_once);
    if (err == OMM_OK) err = put_content(w, omm_buf_view(&text));
    omm_buf_fini(&text);
    OMM_TRY(err);
    if (ends) OMM_TRY(put_literal(w, w->c->after[OMM_ROLE_SYSTEM], NULL));
    OMM_TRY(flush(w));
    return mark(w->p, 0);
}

/* How the model reasons follows from the beginning, and from what is asked for. */
static omm_err begin_reasoning(writer *w, const omm_message *messages, size_t count,
                               omm_chat_ending ending) {
    if (!w->t->reasoning.is || count == 0) return OMM_OK;
    const bool begins = w->p->tokens.count == 0;
    const bool has_system = begins && messages[0].role == OMM_ROLE_SYSTEM;
    w->at_once = smollm_answers_at_once(has_system ? messages[0].content : (omm_bytes){0}, ending);
    return begins ? put_reasoning(w, messages, count) : OMM_OK;
}

/* It is part of that turn. */
static bool is_said(const writer *w, const omm_message *m, bool is_first) {
    return w->t->reasoning.is &&
           (m->role == OMM_ROLE_TOOLS || (is_first && m->role == OMM_ROLE_SYSTEM));
}

static omm_err put_all(writer *w, placed *system, const omm_message *messages, size_t count,
                       omm_chat_ending ending) {
    const size_t last = last_question(w, messages, count, ending);
    const bool begins = w->p->tokens.count == 0;
    OMM_TRY(begin_reasoning(w, messages, count, ending));
    OMM_TRY(put_default(w, messages, count));
    OMM_TRY(place_system(system, w->c, messages, count));
    omm_bytes text = omm_buf_view(&system->text);
    const bool in_front = w->c->system == CHAT_SYSTEM_FRONT;
    if (in_front && text.size > 0) {
        const omm_message front = {.role = OMM_ROLE_SYSTEM, .content = text};
        OMM_TRY(put_turn(w, &front, NULL));
    }
    if (system->taken > 0 && system->turn == count) {
        const omm_message alone = {.role = OMM_ROLE_USER, .content = text};
        OMM_TRY(put_turn(w, &alone, NULL));
    }
    for (size_t i = system->taken; i < count; i++) {
        OMM_ASSERT((unsigned)messages[i].role <= OMM_ROLE_TOOLS);
        const omm_message m = messages[i];
        const bool is_first = begins && i == 0;
        if ((in_front && m.role == OMM_ROLE_SYSTEM) || is_left_out(w, &m, is_first) ||
            is_said(w, &m, is_first))
            continue;
        if (is_response(w, messages, count, i)) {
            OMM_TRY(put_result(w, messages, count, i));
            continue;
        }
        w->past = i < last;
        OMM_TRY(put_turn(w, &m, i == system->turn ? &text : NULL));
    }
    return ending == OMM_CHAT_WHOLE ? OMM_OK : put_generate(w, ending);
}

/* A prompt that goes on may have a user's turn. */
static bool has_asked(const writer *w) {
    const omm_tokens *tokens = &w->p->tokens;
    if (!w->c->renews) return false;
    const uint32_t mark = omm_tokenizer_special(w->t, w->c->asks);
    for (size_t i = 0; i < tokens->count; i++)
        if (tokens->ids[i] == mark) return true;
    return false;
}

omm_err omm_chat_render(omm_prompt *prompt, const omm_tokenizer *tokenizer,
                        const omm_message *messages, size_t count, omm_chat_ending ending) {
    if (count > OMM_CHAT_MESSAGES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "conversation of %zu messages, at most %u", count,
                         OMM_CHAT_MESSAGES_MAX);
    const size_t before = prompt->tokens.count;
    writer w = {.p = prompt, .t = tokenizer, .c = &chat_templates[omm_chat_format_of(tokenizer)]};
    w.asked = has_asked(&w);
    placed system = {.taken = 0};
    omm_buf_init(&w.text, OMM_TOKENIZER_TEXT_MAX);
    omm_buf_init(&system.text, OMM_TOKENIZER_TEXT_MAX);
    omm_err err = put_all(&w, &system, messages, count, ending);
    omm_buf_fini(&w.text);
    omm_buf_fini(&system.text);
    if (err == OMM_OK) return OMM_OK;
    prompt->tokens.count = before;
    prompt->mask.size = before;
    return err;
}

omm_err omm_chat_go_on(omm_tokens *out, const omm_tokenizer *tokenizer, omm_bytes text) {
    omm_prompt prompt = {.tokens = *out};
    writer w = {.p = &prompt, .t = tokenizer, .c = &chat_templates[omm_chat_format_of(tokenizer)]};
    const size_t before = out->count;
    omm_buf_init(&w.text, OMM_TOKENIZER_TEXT_MAX);
    w.glued = true; /* no mark of a turn is part of it */
    omm_err err = put_content(&w, text);
    if (err == OMM_OK) err = flush(&w);
    omm_buf_fini(&w.text);
    *out = prompt.tokens;
    if (err != OMM_OK) out->count = before;
    return err;
}

/* chat_internal.h - what recognising a template (chat_template.c) and rendering it (chat.c) share.
 *
 * A template is data: literals around the content of a turn.  In a literal, CHAT_BOS and CHAT_EOS stand
 * for the file's begin and end token, and each mark of the template for its id.
 */
#ifndef TEXT_CHAT_INTERNAL_H
#define TEXT_CHAT_INTERNAL_H

#include "omm/chat.h"
#include "omm/thinking.h"

#include <string.h>

#define CHAT_BOS "\x01"
#define CHAT_EOS "\x02"

/* Marks that a template and its shape share, with wide bars. */
#define HUNYUAN_(name) "<\xef\xbd\x9chy_" name "\xef\xbd\x9c>"
#define HUNYUAN_USER HUNYUAN_("User")
#define HUNYUAN_ASSISTANT HUNYUAN_("Assistant")
#define HUNYUAN_SYSTEM                                                                             \
    HUNYUAN_("place\xe2\x96\x81holder\xe2\x96\x81no\xe2\x96\x81"                                   \
             "3")
#define HUNYUAN_7B_SYSTEM "<|extra_4|>"
#define HUNYUAN_7B_ASKED "<|extra_0|>"

enum { CHAT_MARKS_MAX = 6, CHAT_STOPS_MAX = 4 };

typedef enum chat_bos {
    CHAT_BOS_AS_FILE, /* in front of the conversation where the file says add_bos_token */
    CHAT_BOS_EITHER,  /* there, or where the template has it */
    CHAT_BOS_FIRST,   /* in front of the conversation */
    CHAT_BOS_TURNS,   /* where the literals have it */
} chat_bos;

typedef enum chat_system {
    CHAT_SYSTEM_TURN,  /* a turn of its own */
    CHAT_SYSTEM_FIRST, /* in the first user turn */
    CHAT_SYSTEM_LAST,  /* in the last one */
    CHAT_SYSTEM_FRONT, /* in front of all turns, wherever it stands among them */
} chat_system;

/* Of a model that thinks: thoughts of answers in front of one that is asked for. */
typedef enum chat_thoughts {
    CHAT_THOUGHTS_OF_LAST, /* those behind the last question stay */
    CHAT_THOUGHTS_CUT, /* none: of an answer stays what stands behind the last </think>, as it is */
    CHAT_THOUGHTS_NEVER, /* it does not think, whatever its template has */
    CHAT_THOUGHTS_EMPTY, /* none, and an empty one in front of what an answer says: without white space around it */
    CHAT_THOUGHTS_ANSWERED, /* those of the last message stay; of others what they call their answer, if they do */
} chat_thoughts;

/* A system's turn that says nothing. */
typedef enum chat_empty {
    CHAT_EMPTY_WRITTEN,
    CHAT_EMPTY_FIRST_OUT, /* the first one of a conversation is as if it were not there */
    CHAT_EMPTY_OUT,       /* each is */
} chat_empty;

typedef struct chat_template {
    const char *name;
    const char *marks[CHAT_MARKS_MAX]; /* NULL at the end */
    bool text_marks;                   /* models may have the marks as plain text only */
    bool trims;                        /* white space around what is read goes */
    bool trims_joined;                 /* a user's text behind the system's: at its end alone */
    bool trims_answers;                /* and around what the assistant writes */
    chat_bos bos;
    chat_system system;
    chat_thoughts thoughts;
    const char *before[OMM_ROLE_COUNT]; /* NULL: such a turn is written as the user's */
    const char *after[OMM_ROLE_COUNT];
    const char *lead;   /* in front of what the assistant writes, written by it */
    const char *begins; /* in front of the conversation, whatever the file says of BOS */
    const char *
        asks; /* the mark that ends a user's turn and begins an answer: there in front of each that is asked for */
    bool renews;                /* BOS in front of the user's turns, but for the first */
    const char *system_text[2]; /* around the system's text in a user turn */
    const char *stops[CHAT_STOPS_MAX];
} chat_template;

extern const chat_template chat_templates[OMM_CHAT_FORMAT_COUNT]; /* chat_template.c */
/* Bytes of the line end that a template's text begins with, itself or as the escape for it; 0: none. */
size_t chat_line_end(omm_bytes text);

/* chat_shape.c: the template without comments and without branches whose condition is never true, to `out`.
 * Errors: NOMEM, TOO_BIG (out->max). */
OMM_CHECKED omm_err chat_live(omm_buf *out, omm_bytes jinja);
/* Behind ChatML's first mark stand a role and a line end, as far as that can be followed.  Errors: NOMEM. */
OMM_CHECKED omm_err chat_is_chatml(bool *out, omm_bytes jinja);

static inline bool chat_is_space(uint8_t c) {
    return c == ' ' || (c >= 9 && c <= 13);
}
/* chat.c: without white space around it; ASCII's, and Python's, which templates trim contents of */
omm_bytes chat_trim(omm_bytes text);
omm_bytes chat_strip(omm_bytes text);
omm_bytes chat_strip_begin(omm_bytes text); /* the latter, at its beginning alone, or at its end */
omm_bytes chat_strip_end(omm_bytes text);

/* Where `wanted` begins in it; NULL: nowhere. */
static inline const uint8_t *chat_find(omm_bytes text, const char *wanted) {
    return text.size ? memmem(text.data, text.size, wanted, strlen(wanted)) : NULL;
}

/* ---- tools --------------------------------------------------------------------------------- */

/* How calls are written (chat_calls.c):
 *   EACH   opens, gap, {"name", KEY}, closes   and the next one
 *   WHOLE  {"name", KEY}                       and nothing else
 *   LIST   opens, gap, [{"name", KEY}, ...], closes
 *   NAMED  opens, NAME, [CALL_ID]ID, [ARGS], {...}   and the next one */
typedef enum calls_kind { CALLS_EACH, CALLS_WHOLE, CALLS_LIST, CALLS_NAMED } calls_kind;
/* A mark, of which models have one; what begins a bare call is none. */
typedef enum calls_opener {
    OPENER_MARKED,
    OPENER_BARE,
    OPENER_MISTRAL,
    OPENER_TOOL,
    OPENER_COUNT
} calls_opener;
#define CALLS_ARGS "[ARGS]"
#define CALLS_ID "[CALL_ID]"

typedef struct calls_style {
    const char *name, *shown;
    calls_kind kind;
    calls_opener opener;
    const char *opens, *gap, *closes; /* opens NULL: calls have no mark */
    const char *key;                  /* of arguments */
    bool ids, alone;                  /* alone: no text beside calls */
} calls_style;
const calls_style *calls_style_of(omm_calls_form form);
/* OMM_CHAT_CALL_ID_BYTES letters and digits of an id: its last ones, zeros in front of fewer. */
void calls_id(char out[OMM_CHAT_CALL_ID_BYTES + 1], omm_bytes id);
static inline bool calls_is_id_byte(uint8_t c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
bool calls_is_name(omm_bytes text); /* of characters that a name may have; also none */

/* How a family's template announces tools and writes results, where that is more than a text in the system turn. */
typedef enum tools_spelling {
    TOOLS_AS_LIST,          /* one JSON list, on one line */
    TOOLS_INDENTED,         /* the same by 4 */
    TOOLS_APART,            /* each indented by 4, an empty line between */
    TOOLS_FUNCTIONS,        /* a list of the functions themselves */
    TOOLS_AS_PYTHON,        /* each on a line, as Python prints it */
    TOOLS_PYTHON_FUNCTIONS, /* the same of the functions themselves */
    TOOLS_BY_MEMBERS, /* a list; of a function texts as they are between quotes, others as JSON, and no "return" */
} tools_spelling;

enum { FORM_MARKS_MAX = 6, FORM_SPOKEN_MAX = 4 };

typedef struct tools_form {
    omm_calls_form calls;
    omm_chat_place place;
    tools_spelling spelling;
    const char *before, *after; /* around tools */
    const char *result
        [4]; /* NULL: as the family's.  In front, content and id with the second between (id_first: the
                            * other way round), the third behind an id, the last behind all */
    bool id_first;
    const char *marks[FORM_MARKS_MAX]; /* of those texts */
    const char *spoken
        [FORM_SPOKEN_MAX]; /* of what the model writes: tokens in its turns and the system's */
} tools_form;

/* chat_announce.c: the model is one of these, if it has all marks.  Its spoken ones are from now on tokens that text may have. */
void tools_take_form(omm_tokenizer *t, const tools_form *form);

/* chat_parts.c: how texts of one message are joined.  Errors: NOMEM. */
OMM_CHECKED omm_err parts_recognise(omm_tokenizer *t, omm_bytes jinja);

/* thinking.c: what the template of a known family says, and a thought without a word as it has it; empty: the model does
 * not think. */
void thinking_recognise(omm_tokenizer *t, omm_bytes jinja);
omm_bytes thinking_none(const omm_tokenizer *tokenizer);
/* Of an answer what stands behind its last </think>, as it is. */
omm_bytes thinking_cut(omm_bytes text);
/* The same without white space around it, where there is one. */
omm_bytes thinking_cut_clean(omm_bytes text);
/* What stands behind the last <answer>, without </answer> at its end and white space around it; else all of it. */
omm_bytes thinking_answer(omm_bytes text);
bool thinking_is_open(omm_bytes text); /* it begins with a thought, behind white space */
/* chat_announce.c: the same of tools.  Errors: NOMEM, FORMAT (keys of another type). */
OMM_CHECKED omm_err announce_recognise(omm_tokenizer *t, const omm_gguf *g, omm_bytes jinja);
/* chat_llama.c: of a Llama 3.  Errors: NOMEM. */
struct chat_tools;
struct jinja_parts;
OMM_CHECKED omm_err llama_recognise(struct chat_tools *out, const struct jinja_parts *parts);
/* chat_mistral.c, chat_granite.c, chat_phi.c: of their families'.  Errors: NOMEM. */
void mistral_recognise(omm_tokenizer *t, const struct jinja_parts *parts);
OMM_CHECKED omm_err granite_recognise(omm_tokenizer *t, const struct jinja_parts *parts);
void phi_recognise(omm_tokenizer *t, const struct jinja_parts *parts);
void phi3_recognise(omm_tokenizer *t, const struct jinja_parts *parts); /* its empty system turns */
/* chat_exaone.c: are these turns EXAONE 4.0's?  parts: all of them.  And of those how tools are announced.  Errors: NOMEM. */
bool exaone_is(const struct jinja_parts *parts);
OMM_CHECKED omm_err exaone_recognise(omm_tokenizer *t, const struct jinja_parts *parts);
/* chat_ernie.c, chat_hunyuan.c: the same of turns; of the smaller ones, or the largest. */
bool ernie_is(const struct jinja_parts *parts);
bool hunyuan_is(const struct jinja_parts *parts, omm_chat_format format);
/* chat_smollm.c: its first turn, tools, and none of plain ChatML.  Errors: NOMEM. */
OMM_CHECKED omm_err smollm_recognise(omm_tokenizer *t, const struct jinja_parts *parts);
/* Do answers of this conversation have no thoughts?  `system`: its first turn's, without data where that is another's. */
bool smollm_answers_at_once(omm_bytes system, omm_chat_ending ending);
/* Append what the first turn says; *ends: and then it ends.  tools: as announced, or empty.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err smollm_system(bool *ends, omm_buf *out, const omm_tokenizer *t,
                                  omm_bytes system, omm_bytes tools, bool at_once);
/* Append a tool as Python prints it.  Errors: NOMEM, TOO_BIG, FORMAT (nested too deep). */
OMM_CHECKED omm_err smollm_put_python(omm_buf *out, json_t *value);

#endif

/* grammar_internal.h - what the parts of grammars share.
 *
 *   grammar.c         rules: making, closing, and what is known of them before the first byte
 *   grammar_schema.c  JSON Schema --> rules
 *   grammar_lenient.c schemas of which something is left out, before that
 *   grammar_gather.c  their members, by all that says something of them
 *   grammar_place.c   what $ref names
 *   grammar_all_of.c  schemas that all hold, as one
 *   grammar_format.c  formats --> regular expressions
 *   grammar_calls.c   tools --> rules
 *   grammar_match.c   byte after byte through rules
 *   grammar_number.c  the same through a number
 *   grammar_pattern.c the same through a string that a regular expression describes (pattern.h)
 *   grammar_text.c    the same through a whole text, with what stands around calls
 *   lexicon.c         the tokens as a tree of bytes
 *   constraint.c      which tokens may follow
 */
#ifndef TEXT_GRAMMAR_INTERNAL_H
#define TEXT_GRAMMAR_INTERNAL_H

#include "chat_internal.h"

#include "omm/bytes.h"
#include "omm/chat.h"
#include "omm/constraint.h"
#include "pattern.h"

#define GRAMMAR_THREADS_MAX 32u
#define GRAMMAR_DEPTH_MAX 64u
#define RULE_NONE UINT32_MAX
#define INTEGER_DIGITS_MAX 18u
#define INTEGER_MAX INT64_C(999999999999999999) /* so many nines */

/* ---- rules: grammar.c -------------------------------------------------------------------------- */

typedef enum rule_kind {
    RULE_TEXTS, /* one of some texts */
    RULE_STRING,
    RULE_PATTERN, /* a string that one describes */
    RULE_INTEGER,
    RULE_NUMBER,
    RULE_OBJECT,
    RULE_ARRAY,
    RULE_CHOICE, /* one of its parts; after grammar_finish these are of other kinds */
} rule_kind;

/* whole + nano / 10^9; an end of a range that may not be itself is one nano beside it. */
#define DECIMAL_DIGITS 9u
#define DECIMAL_NANO 1000000000
typedef struct decimal {
    int64_t whole;
    int32_t nano;
} decimal;

typedef struct rule {
    rule_kind kind;
    uint32_t first,
        count;         /* TEXTS: texts; OBJECT: members; ARRAY: parts, item by item; CHOICE: parts;
                            * PATTERN: its first state */
    uint32_t names;    /* OBJECT: the first of as many texts */
    bool switches;     /* TEXTS: what stands around goes on as the rule that is the text's member */
    uint32_t rest;     /* OBJECT, ARRAY: what may come after those; RULE_NONE: nothing */
    uint32_t min, max; /* STRING, PATTERN (max alone): characters; ARRAY: items */
    decimal low,
        high; /* INTEGER, and NUMBER of a range: its value, less than INTEGER_MAX + 1 on either side */
    bool ranged;      /* that; all INTEGER are */
    int64_t multiple; /* INTEGER: of this; low and high are such themselves; 0: any */
    bool wide; /* of a tool that is not strict: where it is too much to follow it is any value */
    uint32_t height; /* values inside one another that the flattest text takes, itself among them */
    uint32_t path;   /* where it stands in the schema, in bytes; for errors */
} rule;

typedef struct member {
    uint32_t rule;
    uint32_t due; /* the first required one from this on; RULE_NONE: none */
    bool required;
} member;

/* Texts of a rule are sorted by bytes, none twice.  A name ends with its quote. */
typedef struct literal {
    uint32_t at, size; /* in bytes */
    uint32_t member;   /* a name's; of TEXTS that switch a rule */
} literal;

#define GRAMMAR_STOPS_MAX 4u

/* Of texts with calls; max 0: the text is one value. */
typedef struct calls_form {
    uint8_t max;
    omm_calls_form form;
    bool bare;                     /* a text may be a bare call, too */
    uint32_t bare_root;            /* rule of those */
    uint32_t bare_first, bare_end; /* from, to: rules that are written up to one's arguments */
    uint32_t names;                /* rule of the tools' */
    bool held;                     /* a text without calls is a value, of this rule: */
    uint32_t content;
    omm_thinking thinking;
    uint32_t begun_at, begun_size; /* in bytes */
    const char *stops[GRAMMAR_STOPS_MAX];
    size_t stop_count;
} calls_form;

/* Members, schemas and what is compared of them, looked at for schemas of which something is left out. */
#define LOOKS_MAX 16384u
typedef struct looks {
    uint32_t count, max;
} looks;

struct omm_grammar {
    calls_form calls;
    rule *rules;
    uint32_t rule_count, rule_capacity;
    uint32_t *parts;
    uint32_t part_count, part_capacity;
    member *members;
    uint32_t member_count, member_capacity;
    literal *texts;
    uint32_t text_count, text_capacity;
    omm_buf bytes;
    pattern_table patterns;
    looks looks; /* of all its schemas; max: LOOKS_MAX unless somebody says otherwise */
    uint32_t root;
    uint32_t any; /* any value; RULE_NONE: not made so far */
};

OMM_CHECKED omm_err grammar_open(omm_grammar **out);
/* All: Errors: NOMEM, TOO_BIG.  More rules or parts may move those that are there. */
OMM_CHECKED omm_err grammar_add_rule(uint32_t *out, omm_grammar *g, const rule *made);
OMM_CHECKED omm_err grammar_add_parts(uint32_t *first, omm_grammar *g, size_t count);
OMM_CHECKED omm_err grammar_add_members(uint32_t *first, omm_grammar *g, size_t count);
/* Texts whose bytes begin where g->bytes ends now, and have to be appended next. */
OMM_CHECKED omm_err grammar_add_texts(uint32_t *first, omm_grammar *g, size_t count);
void grammar_sort_texts(omm_grammar *g, uint32_t first,
                        uint32_t *count); /* of equal ones one stays */
OMM_CHECKED omm_err grammar_add_literals(uint32_t *out, omm_grammar *g, const char *const *texts,
                                         size_t count);
OMM_CHECKED omm_err grammar_any(uint32_t *out, omm_grammar *g);
OMM_CHECKED omm_err grammar_any_object(uint32_t *out, omm_grammar *g); /* another one each time */
/* grammar_schema.c: the arguments that a tool takes; strict: what is not supported is refused, else it is left out, and where
 * nothing is left any value may stand.  `name`: for errors.  Errors: as omm_grammar_open_schema. */
OMM_CHECKED omm_err grammar_add_arguments(uint32_t *out, omm_grammar *g, const char *name,
                                          json_t *schema, bool strict);
/* What omm_grammar_open_schema makes of it. */
OMM_CHECKED omm_err grammar_add_schema(uint32_t *out, omm_grammar *g, json_t *schema);
static inline bool grammar_is_in(const char *const *list, size_t count, const char *key) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i], key) == 0) return true;
    return false;
}
#define GRAMMAR_IS_IN(list, key) grammar_is_in(list, sizeof(list) / sizeof(list)[0], key)

/* grammar_place.c: a place in a schema, "#" or "#/" and a path; NULL: there is none, or the path is longer than this. */
#define GRAMMAR_POINTER_BYTES_MAX 2048u
json_t *grammar_place(json_t *root, const char *ref);
/* Below the root, with an $id of its own: what it refers to is not found from the root. */
bool grammar_has_base(const json_t *root, const json_t *schema);
bool grammar_is_note(const char *key); /* title and the like */
bool grammar_says_nothing(json_t *schema);
/* Of schemas that all hold, how many say anything.  *at: the last of them. */
size_t grammar_count_said(size_t *at, const json_t *list);
/* grammar_all_of.c: a new reference to one schema that says what allOf and what stands beside it say together; NULL: that is not
 * known exactly, or it is not looked at so long: `why`. */
#define ALL_OF_WHY_MAX 60u
json_t *all_of_join(char why[ALL_OF_WHY_MAX], json_t *root, json_t *schema, looks *l);
/* grammar_lenient.c: of keywords that stand beside one another the one that counts; NULL: the type and its own. */
const char *lenient_keyword(json_t *root, const json_t *schema);
/* Has it keywords that name members, of which that one is not all?  is_alone: it has such a one. */
bool lenient_has_members(const json_t *schema, bool is_alone);
/* New references.  The list of anyOf or oneOf, each with the type that stands beside it and that it has not itself; the schema with
 * all members that others name: the same one where they name none, or one of anyOf alone.  Of what is beyond l->max any member
 * may stand, as any value. */
json_t *lenient_typed(json_t *schema, const char *key);
/* May lenient_with_type make another one of it?  alone: lenient_keyword. */
bool lenient_has_type(const json_t *schema, const char *alone);
/* A new reference: the schema, or where its type stands elsewhere than what it describes a copy that has both.  known: a list of
 * what was made so of this root, at first empty. */
json_t *lenient_with_type(json_t *root, json_t *schema, json_t *known, looks *l);
json_t *lenient_members(json_t *root, json_t *schema, looks *l);
/* grammar_format.c: what a text of that format matches, or (wide) anything that somebody reads as one; NULL: it is not known. */
const char *grammar_format(const char *name, bool wide);
/* All rules are there: choices get their alternatives, rules their heights.  Errors: UNSUPPORTED (more alternatives than are
 * followed; a choice without any), NOMEM, TOO_BIG. */
OMM_CHECKED omm_err grammar_finish(omm_grammar *g);
/* The same, and g->root is known.  Errors: UNSUPPORTED, too, where nothing that ends fulfils it. */
OMM_CHECKED omm_err grammar_finish_root(omm_grammar *g);

/* What every text begins with and nobody draws. */
static inline omm_bytes grammar_begun(const omm_grammar *g) {
    if (g->calls.begun_size == 0) return (omm_bytes){0};
    return omm_bytes_of(g->bytes.data + g->calls.begun_at, g->calls.begun_size);
}

static inline uint32_t grammar_item(const omm_grammar *g, const rule *r, uint32_t index) {
    return index < r->count ? g->parts[r->first + index] : r->rest;
}

/* ---- a text on its way: grammar_match.c ------------------------------------------------------------ */

typedef enum phase {
    PHASE_LEAD, /* BEGIN, or one space before it */
    PHASE_BEGIN,
    PHASE_DONE,
    PHASE_TEXT,
    PHASE_STRING,
    PHASE_SIGN,
    PHASE_ZERO,
    PHASE_DIGITS,
    PHASE_POINT,
    PHASE_FRACTION,
    PHASE_E,
    PHASE_E_SIGN,
    PHASE_EXPONENT,
    PHASE_OPEN, /* behind { or [ */
    PHASE_NAME,
    PHASE_COLON,        /* it comes next */
    PHASE_VALUE,        /* or one space */
    PHASE_VALUE_SPACED, /* and no space */
    PHASE_AFTER,        /* a member or an item */
    PHASE_COMMA,        /* the next one, or one space */
    PHASE_COMMA_SPACED,
} phase;

/* Where in a string's characters: */
typedef enum letter_part {
    LETTER_BETWEEN,
    LETTER_TAIL, /* `left` more bytes, the next one from low to high */
    LETTER_ESCAPE,
    LETTER_HEX, /* `left` more digits */
    LETTER_PAIR_BACKSLASH,
    LETTER_PAIR_U,
    LETTER_PAIR_HEX,
} letter_part;

/* One way to read the text so far.  No padding: two that are equal byte by byte go on alike. */
typedef struct thread {
    uint32_t rule;   /* that is being written */
    uint32_t parent; /* frame in which it stands; FRAME_NONE: it is the whole text */
    uint32_t at;     /* characters, digits, items; of an object: the first member that may follow */
    uint32_t lo,
        hi; /* texts that begin so; of an integer, its digits' value in halves; lo of a PATTERN: state */
    uint32_t
        pos; /* bytes of them; from the colon to the value: its rule; of a PATTERN's character, its bits so far */
    uint8_t phase, depth, letter, left, low, high; /* letter of an integer: 1 behind a minus */
    uint16_t code;                                 /* of \u, so far */
} thread;
_Static_assert(sizeof(thread) == 32, "threads are compared byte by byte");

#define FRAME_NONE UINT32_MAX

/* What goes on when a value inside it has ended; its phase is AFTER.  Frames never change. */
typedef struct frame {
    uint32_t rule, at, parent;
} frame;

/* Where in a whole text: grammar_text.c. */
typedef enum text_part {
    TEXT_VALUE,       /* in the threads; none: the text cannot be so */
    TEXT_EITHER,      /* a call or content that is held: behind bytes of a mark, or none */
    TEXT_EITHER_BARE, /* the same: behind bytes of a bare call */
    TEXT_BEGIN,       /* a thought may begin */
    TEXT_LEAD,        /* free, and perhaps in a bare call; as far as that goes in the threads */
    TEXT_THOUGHT,
    TEXT_FREE,
    TEXT_OPEN,    /* a call */
    TEXT_CLOSE,   /* its value has ended */
    TEXT_BETWEEN, /* or behind all calls */
    TEXT_OVER,    /* a text that ends an answer has come */
    /* behind a mark of the form's own: */
    TEXT_LIST, /* a list, and its calls: at 0 its bracket, at 2 a call, or (1, 3) that and no blank any more */
    TEXT_AFTER, /* a call of the list */
    TEXT_SHUT,  /* the list: what closes it */
    TEXT_NAME, /* the name of a tool; alive: its number, or of those that begin so the first one's */
    TEXT_ID,   /* behind it, an id and its mark */
    TEXT_ARGS, /* the mark of arguments; all of it: they begin */
    TEXT_NEXT, /* arguments have ended; the form's mark, or a text that ends an answer */
} text_part;

#define VALUE_HELD OMM_CALLS_FORM_COUNT

typedef struct crowd {
    uint8_t part,
        at; /* so many bytes of a mark; of LEAD and EITHER_BARE, quotes; of a call's VALUE, its omm_calls_form; of content VALUE_HELD */
    uint8_t
        alive; /* bits: marks that it may be; of FREE, BEGIN and EITHER, whether that is the form's; of LEAD, quotes in all */
    uint8_t calls; /* that have ended */
    uint32_t count;
    thread list[GRAMMAR_THREADS_MAX];
} crowd;

/* Frames that threads stand in; room for all that live, and one a thread for each byte of a token. */
#define MATCH_TOKEN_BYTES_MAX 128u
#define MATCH_FRAMES_MAX (GRAMMAR_THREADS_MAX * (GRAMMAR_DEPTH_MAX + MATCH_TOKEN_BYTES_MAX))
typedef struct frames {
    uint32_t count;
    frame list[MATCH_FRAMES_MAX];
} frames;

/* Always true: the byte that leads there may follow. */
static inline bool match_go(thread *t, phase next, uint32_t at) {
    t->phase = (uint8_t)next;
    t->at = at;
    return true;
}
/* leads: a space may stand in front. */
void match_begin(crowd *out, const omm_grammar *g, uint32_t root, bool leads);
/* Beside what is there. */
void match_begin_beside(crowd *out, const omm_grammar *g, uint32_t root, bool leads);
/* One more byte.  out->count 0: it may not follow.  `out` is not `in`. */
void match_step(crowd *out, frames *f, const omm_grammar *g, const crowd *in, uint8_t byte);
bool match_is_whole(const omm_grammar *g, const crowd *c);
/* Of texts of plain characters (pattern.h): those of up to how many of them may follow, and no others.
 * ALL: any; UNKNOWN: that depends on more than how many they are. */
#define MATCH_ROOM_ALL UINT32_MAX
#define MATCH_ROOM_UNKNOWN (UINT32_MAX - 1)
uint32_t match_room(const omm_grammar *g, const crowd *c);
/* Frames that no thread stands in any more go. */
void match_compact(crowd *c, frames *f);

/* ---- numbers: grammar_number.c --------------------------------------------------------------------- */

int decimal_compare(decimal a, decimal b);
/* An end of a range, which the number may be or (exclusive) not, as those have it who read doubles, and exactly where it is a
 * whole number, or (is_integer) the values are; of what is beyond all numbers the first beyond. */
decimal decimal_bound(const json_t *number, bool is_low, bool exclusive, bool is_integer);
decimal decimal_whole(decimal a, bool up); /* the nearest integer on one side */
/* One more byte; INTEGER and NUMBER.  False: it may not follow. */
bool number_step(thread *t, const rule *r, uint8_t byte);
bool number_can_end(const thread *t, const rule *r);

/* ---- strings that a pattern describes: grammar_pattern.c --------------------------------------------- */

/* One more byte behind the first quote; false: it may not follow. */
bool pattern_step(thread *t, const omm_grammar *g, uint8_t byte);
uint32_t pattern_room(const thread *t, const omm_grammar *g); /* match_room, between characters */

/* ---- a whole text: grammar_text.c ------------------------------------------------------------------ */

void text_begin(crowd *out, const omm_grammar *g, bool leads);
/* `out` is not `in`. */
void text_step(crowd *out, frames *f, const omm_grammar *g, const crowd *in, uint8_t byte);
bool text_is_whole(const omm_grammar *g, const crowd *c);
uint32_t text_room(const omm_grammar *g, const crowd *c); /* match_room */
/* Could a token with these bytes, anywhere, have the last byte of what begins such a call? */
bool text_may_open(calls_opener opener, omm_bytes piece);

static inline bool text_goes_on(const crowd *c) {
    return c->part != TEXT_VALUE || c->count > 0;
}
/* Anything may follow that begins no call. */
static inline bool text_is_free(const crowd *c) {
    return c->part == TEXT_BEGIN || c->part == TEXT_LEAD || c->part == TEXT_THOUGHT ||
           c->part == TEXT_FREE;
}

/* ---- tokens: lexicon.c ----------------------------------------------------------------------------- */

/* A byte behind those of the nodes above it, in the order of a walk. */
typedef struct lexicon_node {
    uint32_t next;         /* node behind all below this one */
    uint32_t first, count; /* ids that end here, in `ids` of the tree */
    uint8_t byte, depth;   /* bytes before it */
} lexicon_node;

typedef struct lexicon_tree {
    lexicon_node *nodes;
    uint32_t node_count, node_capacity;
    uint32_t *ids;
    uint32_t id_count;
} lexicon_tree;

struct omm_lexicon {
    uint32_t vocab, words; /* words of bits */
    bool leads; /* texts begin with a space, which whoever reads them drops (SentencePiece) */
    lexicon_tree all;
    lexicon_tree odd;     /* those that are not plain */
    uint32_t *plain;      /* bits: whole characters, all of them plain ones (pattern.h) */
    uint16_t *characters; /* (words * 32) of a plain one; 0: it is none */
    uint32_t *ends;       /* bits */
    uint32_t *openers[OPENER_COUNT]; /* (opener_counts) ids: text_may_open */
    uint32_t opener_counts[OPENER_COUNT];
    uint8_t *bytes;
    uint32_t *at; /* (vocab + 1) bytes of an id; none: it is never allowed */
};

static inline omm_bytes lexicon_bytes(const omm_lexicon *x, uint32_t id) {
    return omm_bytes_of(x->bytes + x->at[id], x->at[id + 1] - x->at[id]);
}

static inline bool lexicon_has(const uint32_t *bits, uint32_t id) {
    return bits[id / 32] >> (id % 32) & 1;
}

#endif

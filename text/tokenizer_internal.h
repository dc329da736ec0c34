/* tokenizer_internal.h - what the parts of the tokenizer share.
 *
 *   vocab.c            text of an id, id of a text
 *   merge.c            the priority queue of both merge loops
 *   pretoken.c         regular expressions that cut text into words (all but llama)
 *   pretoken_table.c   which expressions belong to which models
 *   tokenizer_bpe.c    merges by rank inside a word (all but llama)
 *   tokenizer_spm.c    merges by score over the whole text (llama)
 *   tokenizer_encode.c special tokens first, then one of the two
 *   tokenizer_open.c   everything above, from a GGUF file
 *   tokenizer.c        look-ups and decoding
 */
#ifndef TEXT_TOKENIZER_INTERNAL_H
#define TEXT_TOKENIZER_INTERNAL_H

#include "omm/tokenizer.h"

/* ---- vocab.c ------------------------------------------------------------------------------- */

/* Texts numbered 0, 1, 2, ...; find gives the last number pushed with that text. */
typedef struct vocab {
    omm_buf text; /* all texts, one after the other */
    uint32_t *at; /* text i is text[at[i] .. at[i + 1]) */
    uint32_t count;
    uint32_t capacity;
    uint32_t *slots;       /* open addressing, number + 1, 0 when empty */
    uint32_t slot_count;   /* power of two, more than twice the count */
    uint64_t salt, factor; /* of the hash; factor is odd */
} vocab;

/* key: a digest of all that will be pushed.  Whoever writes the texts cannot know where they will lie, and so
 * not choose texts that lie in each other's way; what is found does not depend on it. */
OMM_CHECKED omm_err vocab_init(vocab *v, uint32_t capacity, const omm_digest *key);
void vocab_fini(vocab *v);
OMM_CHECKED omm_err vocab_push(vocab *v, omm_bytes text);
uint32_t vocab_find(const vocab *v, omm_bytes text); /* or OMM_TOKEN_NONE */
omm_bytes vocab_text(const vocab *v, uint32_t number);

/* ---- merge.c ------------------------------------------------------------------------------- */

/* A proposed merge of neighbours; the smallest key wins.  key = priority << 32 | left index, so
 * equal priorities go from left to right. */
typedef struct merge_item {
    uint64_t key;
    uint32_t right;
    uint32_t left_symbol, right_symbol; /* what stood there when this was proposed */
    uint32_t result;
} merge_item;

/* A symbol in a doubly linked list over the text. */
typedef struct merge_node {
    uint32_t prev, next; /* MERGE_END at the ends */
    uint32_t symbol;     /* not llama: vocab number; MERGE_END when merged away or without one */
    uint32_t at, size;   /* bytes in the text or word; size 0 when merged away */
} merge_node;

#define MERGE_END UINT32_MAX

/* Memory of one encoding, reused from word to word. */
typedef struct merge_work {
    merge_node *nodes;
    size_t node_capacity;
    merge_item *heap;
    size_t heap_count, heap_capacity;
} merge_work;

void merge_work_fini(merge_work *work);
OMM_CHECKED omm_err merge_reserve(merge_work *work, size_t nodes); /* also empties the heap */
OMM_CHECKED omm_err merge_push(merge_work *work, const merge_item *item);
bool merge_pop(merge_item *out, merge_work *work);                  /* false when empty */
void merge_unlink(merge_work *work, uint32_t left, uint32_t right); /* right leaves the list */

/* ---- pretoken.c ---------------------------------------------------------------------------- */

enum { PRETOKEN_STAGES_MAX = 6 };

typedef struct pretoken {
    const char *name;                          /* of the family, for the digest */
    const char *patterns[PRETOKEN_STAGES_MAX]; /* each cuts the pieces of the one before */
    unsigned stage_count;
    unsigned threes;  /* bit s: what stage s matches is cut in threes of characters from its end */
    unsigned joined;  /* bit s: only there, not at the ends of the match */
    bool whole_words; /* a word that is a token needs no merges */
    bool adds_bos;    /* when the file does not say */
    bool always_bos;  /* whatever the file says */
    bool characters;  /* characters are merged, not bytes */
    bool marks;       /* and spaces are U+2581 before words are cut */
    bool whole_lines; /* a run of line ends that is a token needs no merges */
    bool drops_gaps;  /* what no expression matches is left out */
    bool lowers;      /* letters are made small before words are cut */
    void *codes[PRETOKEN_STAGES_MAX]; /* pcre2_code */
    void *context;                    /* pcre2_general_context over omm_alloc */
} pretoken;

typedef struct pretoken_family {
    const char *names; /* values of tokenizer.ggml.pre, each between spaces */
    pretoken family;
} pretoken_family;

extern const pretoken_family pretoken_families[]; /* pretoken_table.c */
extern const size_t pretoken_family_count;

/* Errors: UNSUPPORTED (names those that exist), NOMEM. */
OMM_CHECKED omm_err pretoken_open(pretoken *p, omm_bytes name);
void pretoken_close(pretoken *p);

typedef omm_err (*pretoken_each)(void *ud, omm_bytes word);
/* Call `each` for every word of valid UTF-8 `text`, in order, without gaps. */
OMM_CHECKED omm_err pretoken_split(const pretoken *p, omm_bytes text, pretoken_each each, void *ud);
/* Append valid UTF-8 `text` in small letters, one for one. */
OMM_CHECKED omm_err pretoken_lower(omm_buf *out, const pretoken *p, omm_bytes text);

/* ---- The tokenizer ------------------------------------------------------------------------- */

typedef enum token_type { /* the numbers are the file format's */
                          TOKEN_NORMAL = 1,
                          TOKEN_UNKNOWN = 2,
                          TOKEN_CONTROL = 3,
                          TOKEN_USER = 4,
                          TOKEN_UNUSED = 5,
                          TOKEN_BYTE = 6,
} token_type;

enum {
    TOKEN_IS_END = 1,
    TOKEN_STRIPS_RIGHT = 2,
    TOKEN_IS_SPOKEN = 4, /* a mark of calls: the model's own text may have it, and nothing else */
};

typedef struct bpe_merge {
    uint32_t left, right; /* vocab numbers; left == MERGE_END: empty slot */
    uint32_t rank, result;
} bpe_merge;

/* What the model's own template says to it; chat_announce.c, chat_llama.c. */
typedef struct chat_tools {
    omm_buf system; /* of conversations that begin without a system turn and have no tools */
    bool announces; /* with tools: the system's text, HEAD, the tools and TAIL */
    omm_buf instead, head, tail; /* instead: where there is no system turn */
    bool empty_too;              /* or one that says nothing */
    bool apart;    /* an empty line stands behind the system's text, and not at HEAD */
    bool before;   /* a line end stands before each tool, else behind it */
    bool wrapped;  /* each tool between <tool> and </tool>, a line end behind it */
    bool response; /* results are <tool_response> of a user turn */
    bool result;   /* they are <tool_result>{"result": TEXT}</tool_result> of a tool's turn */
    uint8_t calls; /* omm_calls_form */
    bool quoted;   /* results are JSON strings */
    bool lists;    /* HEAD, each tool on lines of its own, and then the system's text */
    const struct tools_form *form; /* NULL: none of those */
} chat_tools;

/* A first turn, the system's, that says how the model reasons; chat_smollm.c. */
typedef struct chat_reasoning {
    bool is;                     /* the template has one */
    bool overrides;              /* the system's text may stand in it alone */
    bool ends;                   /* it ends without tools too */
    omm_buf front;               /* what it begins with, the date left out */
    omm_buf thinking, answering; /* what stands for the system's text, by how the model reasons */
} chat_reasoning;

struct omm_tokenizer {
    bool spm;        /* model "llama": merges by score */
    bool characters; /* of texts, and bytes have their own tokens: llama, pre.characters */
    bool marks;      /* U+2581 in a text is a space */
    bool adds_bos;
    bool space_prefix; /* llama: a space goes in front of the text */
    uint32_t count;    /* ids; the vocab may hold more texts, made by merges */
    uint32_t bos, eos, unknown;
    vocab texts;
    uint8_t *types; /* token_type per id */
    uint8_t *flags; /* TOKEN_IS_END ... per id */
    omm_buf pieces; /* what ids stand for */
    uint32_t *piece_at;
    uint32_t *specials; /* user-defined, control and unknown ids, longest text first */
    uint32_t special_count;
    uint32_t byte_symbols[256]; /* symbol of a byte; characters: id of a byte token, or none */
    float *scores;              /* llama */
    bpe_merge *merges;          /* not llama: hash table */
    uint32_t merge_slots;       /* power of two */
    omm_digest merges_digest;   /* of the merges in their order */
    pretoken pre;               /* not llama */
    bool pre_assumed;           /* the file does not name it */
    uint32_t count_said;        /* the file's vocab_size; that of the list where there is none */
    uint8_t chat;               /* omm_chat_format */
    bool chat_known;            /* the file has its template */
    uint8_t thinking;           /* omm_thinking */
    uint8_t
        thought_lines; /* line ends between a thought and an answer; 0: without one nothing is written */
    chat_tools tools;
    chat_reasoning reasoning;
    bool chat_has_bos;   /* its text has bos_token */
    uint8_t chat_joined; /* how texts of one message are (chat_parts.c) */
    uint8_t chat_empty;  /* chat_empty (chat_internal.h) */
    char chat_found[64]; /* the beginning of a template that we do not know */
};

/* A token that text may become without being asked: not a control token, nor a mark of calls, which a merge could
 * otherwise spell. */
static inline bool token_is_text(const omm_tokenizer *t, uint32_t id) {
    return id < t->count && t->types[id] != TOKEN_CONTROL && t->types[id] != TOKEN_UNKNOWN &&
           !(t->flags[id] & TOKEN_IS_SPOKEN);
}

/* From now on it is one that text may have where it is asked for, whatever the file says. */
static inline void tokenizer_speak(omm_tokenizer *t, uint32_t id) {
    t->types[id] = TOKEN_USER;
    t->flags[id] |= TOKEN_IS_SPOKEN;
}

/* White space behind it goes (Phi-3). */
static inline bool tokenizer_strips_right(const omm_tokenizer *t, uint32_t id) {
    return (t->flags[id] & TOKEN_STRIPS_RIGHT) != 0;
}

static inline bool tokenizer_is_user(const omm_tokenizer *t, uint32_t id) {
    return t->types[id] == TOKEN_USER;
}

/* characters: the token of a byte, or OMM_TOKEN_NONE. */
static inline uint32_t tokenizer_byte(const omm_tokenizer *t, uint8_t byte) {
    uint32_t id = t->characters ? t->byte_symbols[byte] : OMM_TOKEN_NONE;
    return id < t->count && t->types[id] == TOKEN_BYTE ? id : OMM_TOKEN_NONE;
}

/* chat_template.c: which template the file has.  Errors: FORMAT (the key is no text). */
OMM_CHECKED omm_err chat_recognise(omm_tokenizer *t, const omm_gguf *g);

/* tokenizer_bpe.c, tokenizer_spm.c: append the ids of text without special tokens. */
OMM_CHECKED omm_err bpe_encode(omm_tokens *out, const omm_tokenizer *t, merge_work *work,
                               omm_bytes text);
OMM_CHECKED omm_err spm_encode(omm_tokens *out, const omm_tokenizer *t, merge_work *work,
                               omm_bytes text, bool space_prefix);
/* Append `text` with U+2581 for each space, and one in front if asked for. */
OMM_CHECKED omm_err spm_escape(omm_buf *out, omm_bytes text, bool space_prefix);
/* The byte tokens of a text that is no token; once the unknown token where one of them is missing. */
OMM_CHECKED omm_err spm_put_bytes(omm_tokens *out, const omm_tokenizer *t, omm_bytes text);
/* Build the merge table and the byte symbols from `merges` ("left right" per line). */
OMM_CHECKED omm_err bpe_open(omm_tokenizer *t, const omm_bytes *merges, uint32_t count);
const bpe_merge *bpe_find(const omm_tokenizer *t, uint32_t left, uint32_t right); /* or NULL */
/* GPT-2's printable character of a byte as UTF-8; returns its 1 or 2 bytes. */
unsigned bpe_letter(uint8_t out[2], uint8_t byte);
/* The bytes that a text in that alphabet spells; false (nothing appended) if it is not in it. */
OMM_CHECKED omm_err bpe_spell(bool *spelled, omm_buf *out, omm_bytes text);

#endif

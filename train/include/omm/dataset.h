/* dataset.h - training examples from a file, as token ids with a mask of what is to be learned.
 *
 *   chat        {"messages": [{"role", "content", "tool_calls"?}, ...], "client"?, "skill"?, "tools"?}
 *   completion  {"prompt", "completion", "client"?, "skill"?}
 *   alpaca      {"instruction", "input"?, "output", "client"?, "skill"?}
 *   sharegpt    {"conversations": [{"from", "value"}, ...], "client"?, "skill"?, "tools"?}
 *   lines       {"text", "client"?, "skill"?}                           one object a line, all of these
 *   text        documents as they are, cut into windows of seq_max tokens
 *
 * A line becomes one example: ids, and learn[i] = 1 where token i is to be learned.  A line that is
 * not as described is refused with file, line, column where it is known, and reason, or (skip_bad)
 * left out and counted.
 *
 * Instead of lines a file may hold one JSON array ('[' is its first byte that is no space) of the same objects, however
 * they are spaced.  An element is to it what a line is to a file of lines, in all that is said here, with the bytes
 * from its '{' to its '}' as the raw line: so an element and a line of the same bytes are the same example, digest and
 * all.  Where an element ends is told by brackets and strings alone; where that is not known (it is cut off, a bracket
 * closes another kind, a string is not closed in its line, commas are missing or too many) or something stands behind
 * the array, the file is refused with line and column, skip_bad or not.
 *
 *   file --load--> examples in memory ----+--select, split--> data set of one node
 *   file --stream--> index, 24 bytes each-+--reader--> examples, made when they are needed
 *
 * Both ways give the same examples in the same order, the same split and the same digest, so the
 * same training to the bit; a stream needs the memory of its index and its cache only.
 *
 * alpaca and sharegpt are other spellings of chat: the instruction, an empty line and the input are the user's turn, the
 * output is the assistant's; "from" is human or user, gpt or assistant, or system.  They give the tokens of the
 * chat that says the same.
 *
 * Text: a document is tokenised as `generate` does (BOS where the model adds it, EOS at its end), in
 * pieces of at most 64 KiB cut after a line, else after a character.  Window k holds the tokens from
 * k * stride on; each token but a piece's first is learned once, in the first window that has it
 * and a token before it; what windows have in common serves the later one as context.  Each of lines is a document of
 * one piece.
 *
 * Depends on: base; engine's tokenizer.h and chat.h.  Threads: a dataset is read-only after load; a
 * reader belongs to one thread at a time.
 */
#ifndef OMM_DATASET_H
#define OMM_DATASET_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct omm_tokenizer;

#define OMM_DATASET_FILE_BYTES_MAX (256u << 20) /* in memory; a stream: 2^40 */
#define OMM_DATASET_LINE_BYTES_MAX (1u << 20)
#define OMM_DATASET_EXAMPLES_MAX 1000000u          /* in memory */
#define OMM_DATASET_STREAM_EXAMPLES_MAX (1u << 28) /* 6 GiB of index */
#define OMM_DATASET_CLIENTS_MAX (1u << 16)         /* in a stream */
#define OMM_DATASET_NAME_BYTES_MAX 128u            /* client and skill */
#define OMM_DATASET_PIECE_BYTES_MAX (64u << 10)    /* of a text, tokenised at once */
#define OMM_DATASET_SEPARATOR_BYTES_MAX 256u

/* Everything is borrowed from the dataset, or from the reader until its release. */
typedef struct omm_example {
    const uint32_t *ids;   /* (count) */
    const uint8_t *learn;  /* (count) 1: predicting this token counts; learn[0] is 0 */
    uint32_t count;        /* at most seq_max */
    uint32_t learn_count;  /* at least 1 */
    uint32_t prompt_count; /* ids before the first learned token: the prompt of the first reply */
    const char *client;
    const char *skill; /* "" when the line has none */
    const char *reply; /* text of the first learned turn; NULL: text, or loss on everything */
    bool has_call;     /* `reply` holds a tool call */
    uint32_t line;     /* 1-based, where it begins in its file; 0 from a stream */
    uint32_t element;  /* 1-based, in its array; 0: no array, or from a stream */
    omm_digest
        digest; /* BLAKE2b-256 of the raw line without its newline, or of the raw element; text, lines: of the
                          ids, u32 LE */
} omm_example;

typedef struct omm_dataset omm_dataset;

typedef enum omm_data_format {
    OMM_DATA_CHAT,
    OMM_DATA_COMPLETION,
    OMM_DATA_TEXT,
    OMM_DATA_ALPACA,
    OMM_DATA_SHAREGPT,
    OMM_DATA_LINES,
    OMM_DATA_DETECT, /* by content: what the first JSON object with a member of its own has, or else text */
} omm_data_format;

/* Documents without turns, read in windows: text and lines. */
bool omm_data_format_is_text(omm_data_format format);

typedef enum omm_data_loss {
    OMM_LOSS_DEFAULT, /* chat and what reads as one: ASSISTANT; completion: COMPLETION; text: ALL */
    OMM_LOSS_ALL,     /* every token but the first */
    OMM_LOSS_ASSISTANT,  /* all assistant turns, each with the token that closes it */
    OMM_LOSS_COMPLETION, /* the completion and its EOS; chat: the last assistant turn */
} omm_data_loss;

/* "chat", "completion", "text", "alpaca", "sharegpt", "lines", "detect"; "all", "assistant", "completion".
 * Errors: CONFIG. */
OMM_CHECKED omm_err omm_data_format_parse(omm_data_format *out, const char *name);
OMM_CHECKED omm_err omm_data_loss_parse(omm_data_loss *out, const char *name);
const char *omm_data_format_name(omm_data_format format);

/* Zeroed: what a federation reads.  Borrowed during the call, by a stream for its life. */
typedef struct omm_dataset_options {
    const char *const *clients; /* keep lines of these clients only; NULL: all */
    size_t client_count;
    uint32_t seq_max; /* an example is cut to this many tokens, at most 2^20; 0: 32,768 */
    omm_data_format format;
    omm_data_loss loss;
    bool skip_bad; /* leave bad lines out and count them */
    const char *
        bad_hint; /* said in brackets behind the reason of a bad line that is refused; NULL: nothing */
    const char *client_default; /* of a line that names none; NULL: such a line is bad */
    const char *separator;  /* text: a line that stands between documents; "": an empty one; NULL:
                            * the file is one document */
    uint32_t stride;        /* text: tokens from window to window, 1 .. seq_max; 0: seq_max - 1 */
    size_t cache_bytes_max; /* of one reader of a stream; 0: 64 MiB */
} omm_dataset_options;

/* Why a line can be bad: XX(name, text). */
#define OMM_DATA_BAD_MAP(XX)                                                                       \
    XX(LENGTH, "too long")                                                                         \
    XX(ENCODING, "not UTF-8 text")                                                                 \
    XX(JSON, "not JSON")                                                                           \
    XX(NAME, "client or skill")                                                                    \
    XX(MESSAGES, "messages")                                                                       \
    XX(CONTENT, "role or content of a message")                                                    \
    XX(TOOLS, "tools or tool calls")                                                               \
    XX(REPLY, "nothing to learn")                                                                  \
    XX(COMPLETION, "prompt or completion")                                                         \
    XX(INSTRUCTION, "instruction, input or output")                                                \
    XX(TEXT, "text of a line")

typedef enum omm_data_bad {
    OMM_DATA_BAD_NONE,
#define XX(name, text) OMM_DATA_BAD_##name,
    OMM_DATA_BAD_MAP(XX)
#undef XX
        OMM_DATA_BAD_COUNT
} omm_data_bad;

const char *omm_data_bad_text(omm_data_bad bad);

enum { OMM_DATA_BAD_SHOWN = 5, OMM_DATA_BAD_BYTES = 240 };

/* What became of the lines of a file. */
typedef struct omm_data_totals {
    omm_data_format format; /* as found */
    bool is_array;          /* of one JSON array: what is said of lines here is of its elements */
    uint64_t examples, tokens, learned;
    uint64_t dropped;    /* nothing learned is left within seq_max */
    uint64_t truncated;  /* cut to seq_max, and kept */
    uint64_t separators; /* text: lines that stand between documents */
    uint32_t longest;    /* tokens of the longest example, after the cut */
    uint64_t bad;        /* left out by skip_bad */
    uint64_t bad_by[OMM_DATA_BAD_COUNT];
    char bad_first[OMM_DATA_BAD_SHOWN]
                  [OMM_DATA_BAD_BYTES]; /* "FILE:LINE: reason", "FILE:LINE: element N: reason" */
} omm_data_totals;

/* Read and tokenise a file; `options` may be NULL.  Lines are kept in file order.
 * Errors: NOT_FOUND, IO, TOO_BIG, NOMEM, CONFIG (options that do not go together), UNSUPPORTED
 * (chat, and the model has no turns), FORMAT ("FILE:LINE: reason"), NOT_FOUND (a named client has
 * no line, or nothing is usable; says which). */
OMM_CHECKED omm_err omm_dataset_load(omm_dataset **out, const char *path,
                                     const struct omm_tokenizer *tokenizer,
                                     const omm_dataset_options *options);
/* The same from memory; `name` stands in error messages. */
OMM_CHECKED omm_err omm_dataset_parse(omm_dataset **out, omm_bytes text, const char *name,
                                      const struct omm_tokenizer *tokenizer,
                                      const omm_dataset_options *options);
/* The same as a stream: one pass makes the index.  The tokenizer, what `options` points to and the
 * file must stay.  omm_dataset_example is not for streams.  Errors: also IO (not a regular file),
 * MISMATCH (the file changed meanwhile). */
OMM_CHECKED omm_err omm_dataset_stream(omm_dataset **out, const char *path,
                                       const struct omm_tokenizer *tokenizer,
                                       const omm_dataset_options *options);
/* Every example of a file once, in order, with nothing kept.  `totals` may be NULL.  Errors: as
 * above, those of `each`. */
typedef omm_err (*omm_dataset_each)(void *ud, const omm_example *example);
OMM_CHECKED omm_err omm_dataset_scan(omm_data_totals *totals, const char *path,
                                     const struct omm_tokenizer *tokenizer,
                                     const omm_dataset_options *options, omm_dataset_each each,
                                     void *ud);

/* Whether a file is one that could be loaded, as far as that can be said without a tokenizer: every record is text, or
 * JSON with what its format asks for.  The first records_max records; 0: all.  Errors: as above, but those of tokens. */
OMM_CHECKED omm_err omm_dataset_check(const char *path, const omm_dataset_options *options,
                                      uint64_t records_max);

/* A new, independent dataset of the examples of some clients, in file order, without tokenising
 * again.  Errors: NOMEM, NOT_FOUND (a client has no example; names it). */
OMM_CHECKED omm_err omm_dataset_select(omm_dataset **out, const omm_dataset *from,
                                       const char *const *clients, size_t client_count);
/* A new dataset of examples first, first + stride, ... (a deterministic sample or hold-out).
 * `complement`: all the others instead.  Errors: NOMEM, NOT_FOUND (nothing left). */
OMM_CHECKED omm_err omm_dataset_sample(omm_dataset **out, const omm_dataset *from, size_t first,
                                       size_t stride, bool complement);
/* A new dataset of the examples with keep[index], keep of omm_dataset_count(from).
 * Errors: NOMEM, NOT_FOUND (nothing left). */
OMM_CHECKED omm_err omm_dataset_pick(omm_dataset **out, const omm_dataset *from, const bool *keep);
/* Two parts: `share` (over 0, under 1) of the examples (rounded, at least one) with the lowest
 * digests are held out, or of the clients with the lowest digests of the name; equal lines go to one
 * side.  `held_out` is always in memory.  Errors: NOMEM, NOT_FOUND (one part would be empty), CONFIG
 * (share), those of a stream's reader. */
OMM_CHECKED omm_err omm_dataset_split(omm_dataset **kept, omm_dataset **held_out,
                                      const omm_dataset *from, double share, bool by_client);
void omm_dataset_close(omm_dataset *data);

size_t omm_dataset_count(const omm_dataset *data);
const omm_example *omm_dataset_example(const omm_dataset *data, size_t index);
bool omm_dataset_is_stream(const omm_dataset *data);
size_t omm_dataset_dropped(const omm_dataset *data);
uint64_t omm_dataset_tokens(const omm_dataset *data);
uint64_t omm_dataset_learned(const omm_dataset *data);
/* Of the file; parts of a data set have totals of their own examples and no bad lines. */
const omm_data_totals *omm_dataset_totals(const omm_dataset *data);

/* Distinct clients in ascending byte order of the name, borrowed. */
size_t omm_dataset_client_count(const omm_dataset *data);
const char *omm_dataset_client(const omm_dataset *data, size_t index);

/* BLAKE2b-256 over the raw lines or elements (text and lines: the ids) of the examples in order, each followed by one
 * newline: of a JSONL file whose lines are all examples that of the file. */
omm_digest omm_dataset_digest(const omm_dataset *data);
/* What a manifest carries: keyed BLAKE2b-256 of the digest; the key stays on the node. */
omm_digest omm_dataset_commit(const omm_digest *data_digest, const uint8_t key[32]);

#endif

/* dataset_internal.h - how bytes become examples; shared by the dataset*.c files.
 *
 *   source (bytes) --scanner--> record --maker--> made (ids) --made_window--> examples
 *
 * dataset_source.c   bytes from memory or from a file that is read a window at a time
 * dataset_scan.c     a file as records: its format, its lines, elements or documents, what is skipped
 * dataset_array.c    where an element of a JSON array ends
 * dataset_make.c     one record as token ids: what the formats have in common
 * dataset_chat.c     a line with messages
 * dataset_forms.c    what a line says it is, and other spellings of a chat
 * dataset.c          data sets in memory and their parts
 * dataset_stream.c   data sets as an index of a file
 * data_reader.c      examples from either
 */
#ifndef TRAIN_DATASET_INTERNAL_H
#define TRAIN_DATASET_INTERNAL_H

#include "omm/chat_turns.h"
#include "omm/data_reader.h"
#include "omm/dataset.h"
#include "omm/json.h"
#include "omm/mem.h"
#include "omm/tokenizer.h"

enum {
    MESSAGES_MAX = 256, /* of one example */
    SEQ_DEFAULT = 32768,
    SEQ_LIMIT = 1 << 20,
    LINE_TOKENS_MAX = 1 << 20,   /* before cutting to seq_max */
    CONTENT_BYTES_MAX = 4 << 20, /* of one line's messages, tool calls rendered */
};

/* --- source --------------------------------------------------------------------------------- */

/* What tells one state of a file from another, without reading it. */
typedef struct file_identity {
    uint64_t device, inode, size;
    int64_t seconds, nanoseconds; /* of the last change */
} file_identity;

typedef struct source {
    const char *name; /* borrowed */
    omm_bytes memory; /* all of it, where fd < 0 */
    int fd;
    uint64_t size;
    file_identity identity;
    omm_buf window; /* bytes from window_at on */
    uint64_t window_at;
} source;

void source_of_memory(source *s, omm_bytes memory, const char *name);
/* Errors: NOT_FOUND, IO (also: not a regular file), TOO_BIG. */
OMM_CHECKED omm_err source_open(source *s, const char *path);
void source_close(source *s);
/* What its window takes, of a file of so many bytes. */
size_t source_window_bytes(uint64_t size);
/* Bytes from `at` on: at least `want`, or all to the end; valid until the next view.
 * Errors: NOMEM, IO, MISMATCH (the file is shorter than it was). */
OMM_CHECKED omm_err source_view(source *s, omm_bytes *out, uint64_t at, size_t want);
/* Errors: MISMATCH (size or time of change differ from `then`), IO. */
OMM_CHECKED omm_err source_check(const source *s, const file_identity *then);

/* --- record and maker ------------------------------------------------------------------------- */

/* A line, an element of an array, or a piece of a document.  40 bits of offset, 24 of size are enough. */
typedef struct record {
    omm_bytes bytes;
    uint64_t offset;
    uint32_t line;
    uint32_t element;  /* its number from 1; 0: no element */
    uint64_t column;   /* of an element: characters before it in its line */
    bool begins, ends; /* text: the first and the last piece of its document */
} record;

enum { CLIENTS_LISTED = 200 }; /* bytes of names in a message, with their end */

/* A record as tokens, not yet cut.  Everything is the maker's (or a cache's) until the next. */
typedef struct made {
    const uint32_t *ids;
    const uint8_t *learn; /* (count) NULL: text, where the window decides */
    size_t count;
    const char *client, *skill;
    const char *reply; /* as in omm_example */
    bool has_call;
    omm_digest digest; /* of the raw line or element; text: not set */
} made;

/* Turns records into tokens; its buffers serve one record after the other. */
typedef struct maker {
    const char *name; /* of the file, for messages */
    uint32_t line;    /* of the record at hand */
    uint64_t column;  /* as a record's */
    bool is_wide;     /* the record at hand has an integer that 64 bits do not hold */
    char element[32]; /* " element 7:" behind the line in messages; "": the record is none */
    omm_data_bad bad; /* why it was refused, NONE if for another reason */
    const omm_tokenizer *tokenizer;
    omm_dataset_options options; /* defaults filled in, format decided */
    bool is_asked;               /* the format, by the caller: else by the file's content */
    omm_prompt prompt;
    omm_chat_turns turns;
    omm_buf reply; /* NUL-terminated */
    omm_buf mask;  /* of a text's window */
    omm_buf names; /* client, skill: NUL-terminated */
    /* Where only some clients are wanted: the first of all that were met, for messages. */
    char met[CLIENTS_LISTED];
} maker;

/* What a line may be, for messages. */
#define MAKER_LINE                                                                                 \
    "one JSON object a line, or all in one array, with \"messages\", or with \"prompt\" and "      \
    "\"completion\", "                                                                             \
    "\"instruction\" and \"output\", \"conversations\", or \"text\""

/* "FILE:LINE: reason" or "FILE:LINE: element N: reason", as an error that skip_bad may forgive; at least one argument. */
#define BAD(m, kind, fmt, ...)                                                                     \
    make_bad((m), OMM_DATA_BAD_##kind,                                                             \
             omm_raise(OMM_ERR_FORMAT, "%s:%u:%s " fmt, (m)->name, (m)->line, (m)->element,        \
                       __VA_ARGS__))
static inline omm_err make_bad(maker *m, omm_data_bad kind, omm_err err) {
    m->bad = kind;
    return err;
}

/* Errors: CONFIG (options that make no sense). */
OMM_CHECKED omm_err maker_init(maker *m, const char *name, const omm_tokenizer *tokenizer,
                               const omm_dataset_options *options);
void maker_fini(maker *m);
/* What messages say of where a record stands. */
void maker_set_place(maker *m, const record *r);
/* Errors: FORMAT with m->bad set, NOMEM, UNSUPPORTED.  *wanted false: a line of another client. */
OMM_CHECKED omm_err maker_make(maker *m, made *out, bool *wanted, const record *r);
/* Does out->reply call a tool, as the model writes calls?  Errors: NOMEM. */
OMM_CHECKED omm_err maker_find_call(const maker *m, made *out);
/* UTF-8 without NUL, from m->line on, which it moves.  Errors: FORMAT, with m->bad set. */
OMM_CHECKED omm_err maker_check_text(maker *m, omm_bytes text);
/* Part k of a record, e->ids and e->learn not copied.  False: there is no such part.  A part in which
 * nothing is learned has learn_count 0.  *cut: tokens beyond seq_max were left out. */
OMM_CHECKED omm_err made_window(maker *m, omm_example *e, bool *there, bool *cut, const made *from,
                                uint32_t k);

/* dataset_forms.c: what the members of a line say that it is; DETECT: nothing. */
omm_data_format form_of(const json_t *root);
/* Chat, and what is read as one. */
bool form_is_chat(omm_data_format format);
/* A line that says that it is of another format than the file.  Errors: FORMAT (it is). */
OMM_CHECKED omm_err form_check(maker *m, const json_t *root);
/* alpaca, sharegpt: give `root` the messages that it spells.  Errors: FORMAT, NOMEM. */
OMM_CHECKED omm_err form_make_messages(maker *m, json_t *root);

/* dataset_chat.c: the messages of a line into m->prompt and m->reply. */
OMM_CHECKED omm_err maker_chat(maker *m, made *out, const json_t *root);

/* --- array ------------------------------------------------------------------------------------ */

enum { ELEMENT_DEPTH_MAX = 2048 }; /* jansson's own limit */

/* How far an element has been followed; zeroed: at its first byte, which is no space, comma or closing bracket. */
typedef struct element_walk {
    uint64_t kinds[ELEMENT_DEPTH_MAX / 64]; /* bit k: the k-th open bracket is a '{' */
    uint32_t depth;
    bool in_string, escaped, in_word;
    bool ended;
    const char *
        wrong; /* what the next byte is, after which nothing can be told apart; NULL: nothing yet */
} element_walk;

/* Space between values, as JSON has it. */
static inline bool data_is_space(uint8_t c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}
static inline bool data_is_blank(omm_bytes text) {
    for (size_t i = 0; i < text.size; i++)
        if (!data_is_space(text.data[i])) return false;
    return true;
}

/* How many of these bytes are of the element: all of them, up to its end, or up to what is wrong. */
size_t element_walk_on(element_walk *w, omm_bytes bytes);
/* Is the first thing in `text` a '[', and (with_object) the second a '{'? */
bool array_begins(omm_bytes text, bool with_object);
/* The element behind *at (0: the first), which moves to its end.  False: there is none, or not all of it. */
bool array_next(omm_bytes *element, omm_bytes text, size_t *at);

/* --- scan ------------------------------------------------------------------------------------- */

/* What a scan hands out: `raw` is the line or element, or the ids of a text's window. */
typedef struct found {
    const omm_example *example;
    omm_bytes raw;
    const record *record;
    uint32_t window;
} found;
typedef omm_err (*found_each)(void *ud, const found *f);

/* Decide the format, then hand out every example with something to learn.  `m->options.format` and
 * `totals` are set.  Errors: those of the parts, of `each`. */
OMM_CHECKED omm_err scan_source(omm_data_totals *totals, source *s, maker *m, found_each each,
                                void *ud);
/* The bytes that a data set's digest and its digest of an example are made of. */
omm_bytes raw_of(const maker *m, const omm_example *e, const record *r);

/* --- data set ---------------------------------------------------------------------------------- */

typedef struct stream stream;

struct omm_dataset {
    omm_arena arena; /* names; everything an example in memory points to */
    omm_data_totals totals;
    uint32_t seq_max;
    size_t count, capacity;
    omm_example *examples; /* in memory */
    omm_bytes *lines;      /* in memory: raw bytes of each */
    size_t *text_ends;     /* of documents: examples up to the end of each text */
    size_t text_count;
    stream *stream;       /* else */
    const char **clients; /* distinct, ascending */
    size_t client_count;
};

OMM_CHECKED omm_err dataset_new(omm_dataset **out);
OMM_CHECKED omm_err dataset_no_memory(void);
/* Append a deep copy. */
OMM_CHECKED omm_err dataset_add(omm_dataset *data, const omm_example *e, omm_bytes raw);
/* Errors: NOT_FOUND (no example at all, or none of a wanted client; `name` is the file's, `met` the clients that
 * there are, NULL: those of `data`). */
OMM_CHECKED omm_err dataset_check_clients(const omm_dataset *data, const char *name,
                                          const char *const *wanted, size_t count, const char *met);
/* "a, b, ...": one more name if it is not among them, whole or as dots. */
void dataset_list_client(char list[CLIENTS_LISTED], const char *client);
void dataset_count(omm_data_totals *totals, const omm_example *e);
bool name_is_among(const char *name, const char *const *names, size_t count);

/* dataset_stream.c and data_reader.c, for dataset.c. */
void stream_close(stream *s);
const char *stream_client(const omm_dataset *data, size_t index);
uint32_t stream_mark(const omm_dataset *data, size_t index); /* first 4 bytes of the digest, LE */
omm_digest stream_digest(const omm_dataset *data);
/* As omm_data_reader_take, with the bytes that the digest is made of. */
OMM_CHECKED omm_err reader_take_raw(omm_data_reader *reader, omm_example *out, omm_bytes *raw,
                                    size_t index);
/* The examples with keep[index] as a stream of their own. */
OMM_CHECKED omm_err stream_pick(omm_dataset **out, const omm_dataset *from, const bool *keep);

#endif

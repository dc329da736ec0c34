/* tools.h - private to node: the four tools, their arguments checked, their results as the base model
 * knows them from training.
 *
 * Depends on: calculator, notes, docs, engine (chat).  Threads: one thread at a time.
 */
#ifndef OMM_NODE_TOOLS_H
#define OMM_NODE_TOOLS_H

#include "omm/bytes.h"
#include "omm/chat.h"
#include "omm/docs.h"
#include "omm/err.h"
#include "omm/file.h"
#include "omm/notes.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum tool_kind {
    TOOL_CALCULATOR,
    TOOL_NOTE_SAVE,
    TOOL_NOTE_FIND,
    TOOL_SEARCH_DOCS,
    TOOL_COUNT
} tool_kind;

#define TOOL_SOURCES_MAX 8u

typedef struct tool_set {
    omm_notes *notes; /* NULL: note_save and note_find do not exist */
    omm_docs *docs;   /* NULL: search_docs does not exist */
    uint64_t now_ms;
    uint32_t passages_max; /* 1 .. TOOL_SOURCES_MAX */
    uint32_t notes_max;
    size_t bytes_max; /* of a result; what is found first is kept whole */
} tool_set;

typedef struct tool_source {
    char file[OMM_PATH_MAX];
    uint32_t number;
} tool_source;

typedef struct tool_result {
    omm_buf text;      /* for people: one result, "[1] ...\n[2] ...", or "error: ..." */
    size_t model_size; /* the model gets this much of it: "33.33" of "33.33 (rounded; ...)" */
    bool failed;
    bool nothing; /* a search that found nothing */
    tool_source sources[TOOL_SOURCES_MAX];
    size_t source_count;
} tool_result;

/* The tools that exist, in a fixed order.  Returns their number. */
size_t tools_list(omm_chat_tool out[TOOL_COUNT], const tool_set *set);
/* The same as functions of JSON, with what each does, for models that are told so.  Caller owns it.  Errors: NOMEM. */
OMM_CHECKED omm_err tools_functions(json_t **out, const tool_set *set);

/* The one argument of a well formed call, borrowed from it.
 * Errors: FORMAT (says what is wrong, for the model): no such tool, other arguments. */
OMM_CHECKED omm_err tools_check(tool_kind *kind, const char **argument, const tool_set *set,
                                const omm_tool_call *call);
/* Do it.  What goes wrong becomes a result with `failed` and "error: ..." (an I/O error, too).
 * Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err tools_run(tool_result *result, const tool_set *set, tool_kind kind,
                              const char *argument);
/* Make `result` the error that was raised last.  Errors: NOMEM, TOO_BIG. */
OMM_CHECKED omm_err tools_fail(tool_result *result);

#endif

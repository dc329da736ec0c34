/* notes.h - what the user asked the assistant to remember: short texts in one SQLite file.
 *
 *   note(id, text, saved_ms)      note_index: FTS5 over text, word stems, letters without accents
 *
 * A note is one line of text: white space is folded to single spaces.  The same text is kept once.
 * A search returns the notes that have every word of the query (words such as "the" do not count),
 * newest first; nothing is returned that misses a word.
 *
 * Depends on: base, store.  Threads: one thread at a time; one process at a time holds the file.
 */
#ifndef OMM_NOTES_H
#define OMM_NOTES_H

#include "omm/bytes.h"
#include "omm/err.h"

#include <stdbool.h>
#include <stdint.h>

#define OMM_NOTES_MAX 10000u
#define OMM_NOTE_BYTES_MAX 1000u

typedef struct omm_notes omm_notes;

/* `path` NULL: in memory, gone when closed.  The folder must exist.
 * Errors: NOMEM, IO, FORMAT (another kind of file, damaged), VERSION, STATE (open elsewhere). */
OMM_CHECKED omm_err omm_notes_open(omm_notes **out, const char *path);
void omm_notes_close(omm_notes *notes); /* NULL is fine */

/* Keep `text`, on disk before it returns.  *is_new is false when it was there already.
 * Errors: FORMAT (empty, not UTF-8, control characters), TOO_BIG (length, number of notes), IO,
 * NOMEM; then nothing has changed. */
OMM_CHECKED omm_err omm_notes_save(int64_t *id, bool *is_new, omm_notes *notes, omm_bytes text,
                                   uint64_t now_ms);
/* Errors: NOT_FOUND, IO, NOMEM. */
OMM_CHECKED omm_err omm_notes_remove(omm_notes *notes, int64_t id);

/* Gets one note; `text` is borrowed for the call, which may not use the notes. */
typedef omm_err (*omm_notes_each)(void *ud, int64_t id, omm_bytes text);
/* At most `count_max` notes that have every word, newest first.  Errors: FORMAT (no word in the
 * query, or not UTF-8), TOO_BIG (length), IO, NOMEM, those of `each`. */
OMM_CHECKED omm_err omm_notes_find(omm_notes *notes, omm_bytes query, uint32_t count_max,
                                   omm_notes_each each, void *ud);
/* All of them, oldest first, from the id after `after`.  Errors: IO, NOMEM, those of `each`. */
OMM_CHECKED omm_err omm_notes_list(omm_notes *notes, int64_t after, uint32_t count_max,
                                   omm_notes_each each, void *ud);
OMM_CHECKED omm_err omm_notes_count(uint64_t *count, omm_notes *notes);

#endif

/* docs.h - a folder of text files as passages that can be found by their words.
 *
 *   DIR/guide/heater.txt    passage 1   first paragraph
 *                           passage 2   second paragraph ...
 *
 * A passage is a paragraph: lines up to an empty one, folded to one line.  A paragraph over
 * OMM_PASSAGE_BYTES_MAX is cut into several at the ends of sentences.  A line that begins with '#'
 * is a heading: it is searched together with the passages below it, and so is the name of the file.
 *
 * Read are files ending in .txt, .text, .md, .markdown, .rst or .org that are UTF-8 without control
 * characters; others and those over a limit are counted as skipped, and so are, as one each, hidden files and folders,
 * symbolic links (which could show files from elsewhere to the model), special files, and what may not be read.
 *
 * The index (FTS5) is in memory and is built again when a file was added, removed or changed
 * (path, size or time of change).
 *
 * A search returns passages that have every word of the query, or all but one where it has three or
 * more; best bm25 first, ties by file and passage.  Words are only ever words: the query language
 * of FTS5 cannot be reached.
 *
 * Depends on: base, store.  Threads: one thread at a time.
 */
#ifndef OMM_DOCS_H
#define OMM_DOCS_H

#include "omm/bytes.h"
#include "omm/err.h"

#include <stdbool.h>
#include <stdint.h>

#define OMM_DOCS_FILES_MAX 10000u
#define OMM_DOCS_FILE_BYTES_MAX (4u << 20)
#define OMM_DOCS_TOTAL_BYTES_MAX (256u << 20)
#define OMM_PASSAGE_BYTES_MAX 600u

typedef struct omm_docs omm_docs;

typedef struct omm_docs_counts {
    uint32_t files;
    uint32_t passages;
    uint32_t skipped; /* what is no text, over a limit, hidden, a link, or not to be read */
} omm_docs_counts;

/* Reads and indexes the folder.  Errors: NOT_FOUND, IO, TOO_BIG (files, bytes), NOMEM. */
OMM_CHECKED omm_err omm_docs_open(omm_docs **out, const char *dir);
void omm_docs_close(omm_docs *docs); /* NULL is fine */

/* Read the folder again if anything in it changed.  *changed (may be NULL) says so.
 * Errors: as omm_docs_open; then the old index is kept. */
OMM_CHECKED omm_err omm_docs_refresh(bool *changed, omm_docs *docs);
omm_docs_counts omm_docs_get_counts(const omm_docs *docs);

typedef struct omm_passage {
    const char *file; /* relative path */
    uint32_t number;  /* in its file, from 1 */
    omm_bytes text;   /* one line, UTF-8 */
} omm_passage;

/* All in `passage` is borrowed for the call, which may not use the docs. */
typedef omm_err (*omm_docs_each)(void *ud, const omm_passage *passage);
/* Refresh, then call `each` for at most `count_max` passages, best first; no call: nothing fits.
 * Errors: as omm_docs_open; FORMAT (no word in the query, or not UTF-8), TOO_BIG (length), those of
 * `each`. */
OMM_CHECKED omm_err omm_docs_search(omm_docs *docs, omm_bytes query, uint32_t count_max,
                                    omm_docs_each each, void *ud);

#endif

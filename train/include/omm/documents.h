/* documents.h - texts for pretraining as a data set: documents that end with a control token.
 *
 * Control tokens in the text are those of the vocabulary, so the text must be one's own.  A document is
 * one example, or windows of seq_max tokens as in omm/dataset.h; everything but its first token
 * is learned.  The examples lie in memory, in the order of the files.
 *
 * Depends on: dataset.h.  Threads: no shared state.
 */
#ifndef OMM_DOCUMENTS_H
#define OMM_DOCUMENTS_H

#include "omm/dataset.h"

/* seq_max as in omm_dataset_options.  Errors: NOT_FOUND (a file, or no document at all), IO, FORMAT (no text), TOO_BIG,
 * NOMEM, CONFIG (separator: the vocabulary has no such token; seq_max). */
OMM_CHECKED omm_err omm_dataset_documents(omm_dataset **out, const char *const *paths, size_t count,
                                          const struct omm_tokenizer *tokenizer,
                                          const char *separator, uint32_t seq_max);

/* Examples up to the end of text number `text`: all of them from the last text on, and in a data set
 * that is not of documents. */
size_t omm_dataset_text_end(const omm_dataset *data, size_t text);

#endif

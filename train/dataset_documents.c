/* dataset_documents.c - texts whose documents end with a control token, as pretraining reads them. */
#include "dataset_internal.h"

#include "omm/documents.h"
#include "omm/file.h"

#include <string.h>

typedef struct documents {
    omm_dataset *data;
    maker maker;
    omm_tokens tokens;
    const omm_tokenizer *tokenizer;
    omm_bytes separator;
} documents;

/* All windows of one document. */
static omm_err add_document(documents *d, omm_bytes text) {
    d->tokens.count = 0;
    OMM_TRY(omm_tokenizer_encode(&d->tokens, d->tokenizer, text, OMM_TOKENIZE_SPECIAL));
    const made from = {.ids = d->tokens.ids, .count = d->tokens.count, .client = "", .skill = ""};
    for (uint32_t k = 0;; k++) {
        omm_example e;
        bool there = false, cut = false;
        OMM_TRY(made_window(&d->maker, &e, &there, &cut, &from, k));
        if (!there) return OMM_OK;
        if (e.learn_count == 0) {
            d->data->totals.dropped++;
            continue;
        }
        dataset_count(&d->data->totals, &e);
        OMM_TRY(dataset_add(d->data, &e, omm_bytes_of(e.ids, e.count * sizeof *e.ids)));
    }
}

static omm_err add_text(documents *d, omm_bytes text) {
    while (text.size > 0) {
        const uint8_t *at = memmem(text.data, text.size, d->separator.data, d->separator.size);
        const size_t size = at ? (size_t)(at - text.data) + d->separator.size : text.size;
        OMM_TRY(add_document(d, omm_bytes_of(text.data, size)));
        text = omm_bytes_of(text.data + size, text.size - size);
    }
    return OMM_OK;
}

static omm_err add_file(documents *d, const char *path) {
    omm_buf text;
    omm_buf_init(&text, OMM_DATASET_FILE_BYTES_MAX);
    omm_err err = omm_file_read(&text, path);
    d->maker.name = path;
    d->maker.line = 1;
    if (err == OMM_OK) err = maker_check_text(&d->maker, omm_buf_view(&text));
    if (err == OMM_OK) err = add_text(d, omm_buf_view(&text));
    omm_buf_fini(&text);
    return err;
}

static omm_err fill(documents *d, const char *const *paths, size_t count) {
    d->data->text_ends = omm_alloc(count, sizeof *d->data->text_ends);
    if (!d->data->text_ends) return dataset_no_memory();
    for (size_t i = 0; i < count; i++) {
        OMM_TRY(add_file(d, paths[i]));
        d->data->text_ends[d->data->text_count++] = d->data->count;
    }
    d->data->totals.format = OMM_DATA_TEXT;
    d->data->seq_max = d->maker.options.seq_max;
    return dataset_check_clients(d->data, count == 1 ? paths[0] : "texts", NULL, 0, NULL);
}

size_t omm_dataset_text_end(const omm_dataset *data, size_t text) {
    return text < data->text_count ? data->text_ends[text] : data->count;
}

omm_err omm_dataset_documents(omm_dataset **out, const char *const *paths, size_t count,
                              const omm_tokenizer *tokenizer, const char *separator,
                              uint32_t seq_max) {
    if (omm_tokenizer_special(tokenizer, separator) == OMM_TOKEN_NONE)
        return omm_raise(
            OMM_ERR_CONFIG,
            "training.separator: '%.80s' is no special token of the vocabulary; accepted: one of "
            "vocabulary.control or vocabulary.user, or of the vocabulary that vocabulary.from "
            "takes",
            separator);
    const omm_dataset_options options = {.seq_max = seq_max, .format = OMM_DATA_TEXT};
    documents d = {.tokenizer = tokenizer, .separator = omm_bytes_str(separator)};
    omm_tokens_init(&d.tokens, OMM_DATASET_FILE_BYTES_MAX);
    omm_err err = maker_init(&d.maker, "", tokenizer, &options);
    if (err == OMM_OK) err = dataset_new(&d.data);
    if (err == OMM_OK) err = fill(&d, paths, count);
    maker_fini(&d.maker);
    omm_tokens_fini(&d.tokens);
    if (err != OMM_OK) {
        omm_dataset_close(d.data);
        return err;
    }
    *out = d.data;
    return OMM_OK;
}

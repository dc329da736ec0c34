/* shard.c - see shard.h. */
#include "omm/shard.h"

#include "dataset_internal.h"

#include "omm/utf8.h"

#include <string.h>

static const omm_dataset_options s_options = {.format = OMM_DATA_CHAT, .client_default = "canary"};

/* Line breaks of JSON are spaces. */
static omm_err put_line(void *ud, const found *f) {
    omm_buf *out = ud;
    uint8_t *line = NULL;
    const omm_bytes from = f->record->bytes;
    OMM_TRY(omm_buf_extend(out, &line, from.size + 1));
    for (size_t i = 0; i < from.size; i++)
        line[i] = from.data[i] == '\n' || from.data[i] == '\r' ? ' ' : from.data[i];
    line[from.size] = '\n';
    return OMM_OK;
}

/* Not blank ones: our nodes pass over them, and to others they may be bad lines. */
static omm_err put_lines(omm_buf *out, omm_bytes text) {
    for (size_t at = 0; at < text.size;) {
        const uint8_t *from = text.data + at;
        const uint8_t *end = memchr(from, '\n', text.size - at);
        const size_t size = end ? (size_t)(end - from) + 1 : text.size - at;
        if (!data_is_blank(omm_bytes_of(from, size))) OMM_TRY(omm_buf_append(out, from, size));
        at += size;
    }
    return OMM_OK;
}

/* The file is looked through first, as only there its lines have their numbers. */
static omm_err check_line(void *ud, const found *f) {
    (void)ud;
    (void)f;
    return OMM_OK;
}

omm_err omm_shard_lines(omm_buf *out, omm_bytes text, const char *name) {
    maker m;
    source s;
    omm_data_totals totals;
    const omm_bytes unmarked = omm_utf8_without_mark(text);
    const bool is_array = array_begins(unmarked, false);
    source_of_memory(&s, text, name);
    omm_err err = maker_init(&m, name, NULL, &s_options);
    if (err == OMM_OK) err = scan_source(&totals, &s, &m, is_array ? put_line : check_line, out);
    if (err == OMM_OK && !is_array) err = put_lines(out, unmarked);
    maker_fini(&m);
    source_close(&s);
    return err;
}

omm_err omm_shard_parse(omm_dataset **out, omm_bytes text, const char *name,
                        const struct omm_tokenizer *tokenizer, const omm_recipe *recipe) {
    omm_dataset_options options = s_options;
    options.seq_max = recipe->seq_max;
    omm_dataset *data = NULL;
    OMM_TRY(omm_dataset_parse(&data, text, name, tokenizer, &options));
    const size_t count = omm_dataset_count(data);
    if (count >= OMM_SHARD_EXAMPLES_MIN) {
        *out = data;
        return OMM_OK;
    }
    omm_dataset_close(data);
    return omm_raise(OMM_ERR_CONFIG, "%s: %zu examples; accepted: %u or more", name, count,
                     OMM_SHARD_EXAMPLES_MIN);
}

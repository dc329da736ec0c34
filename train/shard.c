/* shard.c - see shard.h. */
#include "omm/shard.h"

#include "dataset_internal.h"

#include "omm/utf8.h"

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

omm_err omm_shard_lines(omm_buf *out, omm_bytes text, const char *name) {
    maker m;
    source s;
    omm_data_totals totals;
    if (!array_begins(omm_utf8_without_mark(text), false))
        return omm_buf_append(out, text.data, text.size);
    source_of_memory(&s, text, name);
    omm_err err = maker_init(&m, name, NULL, &s_options);
    if (err == OMM_OK) err = scan_source(&totals, &s, &m, put_line, out);
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

/* dataset_stream.c - data sets larger than memory: one pass makes an index of their lines. */
#include "dataset_index.h"

#include <stdlib.h>
#include <string.h>

/* A client's number is its place in the order of first appearance. */
typedef struct named {
    const char *name; /* in the data set's arena */
    uint32_t number;
} named;

/* --- index ----------------------------------------------------------------------------------- */

typedef struct indexer {
    omm_dataset *data;
    named *sorted; /* clients by name */
    size_t sorted_capacity;
    omm_hasher hasher;
} indexer;

static omm_err reserve_names(indexer *x) {
    omm_dataset *data = x->data;
    if (data->client_count < x->sorted_capacity) return OMM_OK;
    size_t wanted = x->sorted_capacity ? 2 * x->sorted_capacity : 16;
    if (data->client_count == OMM_DATASET_CLIENTS_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "data set: over %u clients", OMM_DATASET_CLIENTS_MAX);
    named *sorted = omm_grow(x->sorted, x->sorted_capacity, wanted, sizeof *sorted);
    if (!sorted) return dataset_no_memory();
    x->sorted = sorted;
    const char **names = omm_grow(data->stream->names, x->sorted_capacity, wanted, sizeof *names);
    if (!names) return dataset_no_memory();
    data->stream->names = names;
    x->sorted_capacity = wanted;
    return OMM_OK;
}

/* Binary search for `name`; a new one moves the later ones up. */
static omm_err number_of(uint32_t *out, indexer *x, const char *name) {
    omm_dataset *data = x->data;
    size_t low = 0, high = data->client_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        OMM_ASSERT(x->sorted); /* as long as the list of clients */
        int order = strcmp(x->sorted[mid].name, name);
        if (order == 0) {
            *out = x->sorted[mid].number;
            return OMM_OK;
        }
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    OMM_TRY(reserve_names(x));
    OMM_ASSERT(x->sorted);
    char *kept = omm_arena_strdup(&data->arena, name);
    if (!kept) return dataset_no_memory();
    memmove(x->sorted + low + 1, x->sorted + low, (data->client_count - low) * sizeof *x->sorted);
    *out = (uint32_t)data->client_count++;
    x->sorted[low] = (named){kept, *out};
    data->stream->names[*out] = kept;
    return OMM_OK;
}

static omm_err reserve_entry(omm_dataset *data) {
    if (data->count < data->capacity) return OMM_OK;
    if (data->count == OMM_DATASET_STREAM_EXAMPLES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "data set: over %u examples",
                         OMM_DATASET_STREAM_EXAMPLES_MAX);
    size_t wanted = data->capacity ? 2 * data->capacity : 1024;
    entry *entries = omm_grow(data->stream->entries, data->capacity, wanted, sizeof *entries);
    if (!entries) return dataset_no_memory();
    data->stream->entries = entries;
    data->capacity = wanted;
    return OMM_OK;
}

static omm_err add_entry(void *ud, const found *f) {
    indexer *x = ud;
    omm_dataset *data = x->data;
    const record *r = f->record;
    entry e = {.place = r->offset << 24 | r->bytes.size,
               .shape = (uint64_t)f->example->count << 43 |
                        (uint64_t)f->example->learn_count << 22 | (uint64_t)f->window << 2 |
                        (uint64_t)r->begins << 1 | (uint64_t)r->ends,
               .mark = omm_get_u32(f->example->digest.b)};
    OMM_ASSERT(f->window < 1U << 20);
    OMM_TRY(number_of(&e.client, x, f->example->client));
    OMM_TRY(reserve_entry(data));
    data->stream->entries[data->count++] = e;
    omm_hasher_update(&x->hasher, f->raw);
    omm_hasher_update(&x->hasher, omm_bytes_of("\n", 1));
    return OMM_OK;
}

static omm_err stream_new(omm_dataset **out, const char *path) {
    omm_dataset *data = NULL;
    OMM_TRY(dataset_new(&data));
    data->stream = omm_alloc(1, sizeof *data->stream);
    if (data->stream) data->stream->path = omm_strdup(path);
    if (!data->stream || !data->stream->path) {
        omm_dataset_close(data);
        return dataset_no_memory();
    }
    *out = data;
    return OMM_OK;
}

void stream_close(stream *s) {
    if (!s) return;
    omm_free(s->path);
    omm_free(s->entries);
    omm_free(s->names);
    omm_free(s);
}

static omm_err list_names(indexer *x) {
    omm_dataset *data = x->data;
    if (!data->client_count) return OMM_OK;
    OMM_ASSERT(x->sorted);
    data->clients = omm_alloc(data->client_count, sizeof *data->clients);
    if (!data->clients) return dataset_no_memory();
    for (size_t i = 0; i < data->client_count; i++) data->clients[i] = x->sorted[i].name;
    return OMM_OK;
}

static omm_err index_source(indexer *x, source *s, maker *m) {
    omm_dataset *data = x->data;
    OMM_ASSERT(data);
    omm_hasher_init(&x->hasher);
    OMM_TRY(scan_source(&data->totals, s, m, add_entry, x));
    OMM_TRY(source_check(s, &s->identity));
    OMM_TRY(list_names(x));
    OMM_TRY(
        dataset_check_clients(data, m->name, m->options.clients, m->options.client_count, m->met));
    data->seq_max = m->options.seq_max;
    data->stream->options = m->options;
    data->stream->options.clients = NULL; /* what is in the index is wanted */
    data->stream->tokenizer = m->tokenizer;
    data->stream->identity = s->identity;
    data->stream->digest = omm_hasher_final(&x->hasher);
    return OMM_OK;
}

omm_err omm_dataset_stream(omm_dataset **out, const char *path, const omm_tokenizer *tokenizer,
                           const omm_dataset_options *options) {
    maker m;
    source s;
    indexer x = {0};
    OMM_TRY(source_open(&s, path));
    omm_err err = maker_init(&m, path, tokenizer, options);
    if (err == OMM_OK) err = stream_new(&x.data, path);
    if (err == OMM_OK) err = index_source(&x, &s, &m);
    omm_free(x.sorted);
    maker_fini(&m);
    source_close(&s);
    if (err != OMM_OK) {
        omm_dataset_close(x.data);
        return err;
    }
    *out = x.data;
    return OMM_OK;
}

/* --- parts ----------------------------------------------------------------------------------- */

const char *stream_client(const omm_dataset *data, size_t index) {
    OMM_ASSERT(index < data->count);
    return data->stream->names[data->stream->entries[index].client];
}

uint32_t stream_mark(const omm_dataset *data, size_t index) {
    OMM_ASSERT(index < data->count);
    return data->stream->entries[index].mark;
}

omm_digest stream_digest(const omm_dataset *data) {
    return data->stream->digest;
}

static omm_err keep_entries(indexer *x, const omm_dataset *from, const bool *keep) {
    for (size_t i = 0; i < from->count; i++) {
        if (!keep[i]) continue;
        entry e = from->stream->entries[i];
        omm_example shape = {.count = entry_tokens(&e), .learn_count = entry_learned(&e)};
        OMM_TRY(number_of(&e.client, x, stream_client(from, i)));
        OMM_TRY(reserve_entry(x->data));
        x->data->stream->entries[x->data->count++] = e;
        dataset_count(&x->data->totals, &shape);
    }
    return OMM_OK;
}

/* The digest of a part is over its own lines: they are read again. */
static omm_err hash_lines(omm_dataset *data) {
    omm_data_reader *reader = NULL;
    omm_hasher hasher;
    omm_hasher_init(&hasher);
    const omm_data_reader_options once = {.cache_bytes_max = 1, .no_replies = true};
    OMM_TRY(omm_data_reader_open(&reader, data, &once));
    omm_err err = OMM_OK;
    for (size_t i = 0; i < data->count && err == OMM_OK; i++) {
        omm_example e;
        omm_bytes raw;
        err = reader_take_raw(reader, &e, &raw, i);
        if (err != OMM_OK) break;
        omm_hasher_update(&hasher, raw);
        omm_hasher_update(&hasher, omm_bytes_of("\n", 1));
        omm_data_reader_release(reader);
    }
    omm_data_reader_close(reader);
    if (err == OMM_OK) data->stream->digest = omm_hasher_final(&hasher);
    return err;
}

static omm_err fill_part(indexer *x, const omm_dataset *from, const bool *keep) {
    omm_dataset *data = x->data;
    OMM_ASSERT(data);
    data->seq_max = from->seq_max;
    data->totals.format = from->totals.format;
    data->totals.is_array = from->totals.is_array;
    data->stream->tokenizer = from->stream->tokenizer;
    data->stream->options = from->stream->options;
    data->stream->identity = from->stream->identity;
    OMM_TRY(keep_entries(x, from, keep));
    OMM_TRY(list_names(x));
    OMM_TRY(dataset_check_clients(data, "part of a data set", NULL, 0, NULL));
    return hash_lines(data);
}

omm_err stream_pick(omm_dataset **out, const omm_dataset *from, const bool *keep) {
    indexer x = {0};
    OMM_TRY(stream_new(&x.data, from->stream->path));
    omm_err err = fill_part(&x, from, keep);
    omm_free(x.sorted);
    if (err != OMM_OK) {
        omm_dataset_close(x.data);
        return err;
    }
    *out = x.data;
    return OMM_OK;
}

void omm_dataset_size(uint32_t *tokens, uint32_t *learned, const omm_dataset *data, size_t index,
                      uint32_t seq_max) {
    OMM_ASSERT(index < data->count);
    if (data->stream) {
        OMM_ASSERT(seq_max >= data->seq_max);
        *tokens = entry_tokens(&data->stream->entries[index]);
        *learned = entry_learned(&data->stream->entries[index]);
        return;
    }
    const omm_example *e = &data->examples[index];
    *tokens = e->count;
    *learned = e->learn_count;
    if (e->count <= seq_max) return;
    *tokens = seq_max;
    *learned = 0;
    for (uint32_t i = 0; i < seq_max; i++) *learned += e->learn[i];
}

/* --- scan ------------------------------------------------------------------------------------ */

typedef struct visitor {
    omm_dataset_each each;
    void *ud;
} visitor;

static omm_err visit(void *ud, const found *f) {
    const visitor *v = ud;
    return v->each(v->ud, f->example);
}

omm_err omm_dataset_scan(omm_data_totals *totals, const char *path, const omm_tokenizer *tokenizer,
                         const omm_dataset_options *options, omm_dataset_each each, void *ud) {
    maker m;
    source s;
    omm_data_totals counted = {0};
    visitor v = {each, ud};
    OMM_TRY(source_open(&s, path));
    omm_err err = maker_init(&m, path, tokenizer, options);
    if (err == OMM_OK) err = scan_source(&counted, &s, &m, visit, &v);
    maker_fini(&m);
    source_close(&s);
    if (totals) *totals = counted;
    return err;
}

typedef struct counter {
    uint64_t count, max;
} counter;

static omm_err count_form(void *ud, const found *f) {
    counter *c = ud;
    (void)f;
    return ++c->count == c->max ? omm_raise(OMM_ERR_CANCELLED, "it is enough") : OMM_OK;
}

omm_err omm_dataset_check(const char *path, const omm_dataset_options *options,
                          uint64_t records_max) {
    maker m;
    source s;
    omm_data_totals totals;
    counter c = {.max = records_max};
    OMM_TRY(source_open(&s, path));
    omm_err err = maker_init(&m, path, NULL, options);
    if (err == OMM_OK && s.size > OMM_DATASET_FILE_BYTES_MAX)
        err = omm_raise(OMM_ERR_TOO_BIG, "%s: over %u bytes", path, OMM_DATASET_FILE_BYTES_MAX);
    if (err == OMM_OK) err = scan_source(&totals, &s, &m, count_form, &c);
    if (err == OMM_OK && c.count == 0)
        err = omm_raise(OMM_ERR_NOT_FOUND, "%s: nothing to learn from%s%s", path,
                        m.options.client_count ? " of client " : "",
                        m.options.client_count ? m.options.clients[0] : "");
    maker_fini(&m);
    source_close(&s);
    return err == OMM_ERR_CANCELLED ? OMM_OK : err;
}

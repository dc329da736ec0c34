/* dataset.c - data sets in memory: load, take parts, read; and the face of those that are streams. */
#include "dataset_internal.h"

#include "omm/file.h"

#include <stdlib.h>
#include <string.h>

enum { ARENA_BYTES_MAX = 1 << 30 }; /* ids, masks, texts of one data set */

/* --- new, add, close --------------------------------------------------------------------------- */

omm_err dataset_no_memory(void) {
    return omm_raise(OMM_ERR_NOMEM, "no memory for the data set");
}

omm_err dataset_new(omm_dataset **out) {
    omm_dataset *data = omm_alloc(1, sizeof *data);
    if (!data) return dataset_no_memory();
    omm_arena_init(&data->arena, ARENA_BYTES_MAX);
    *out = data;
    return OMM_OK;
}

static void *arena_copy(omm_arena *arena, const void *from, size_t bytes) {
    void *to = omm_arena_alloc(arena, bytes ? bytes : 1, 1);
    if (to && bytes) memcpy(to, from, bytes);
    return to;
}

static omm_err reserve(omm_dataset *data) {
    if (data->count < data->capacity) return OMM_OK;
    size_t wanted = data->capacity ? 2 * data->capacity : 64;
    omm_example *examples = omm_grow(data->examples, data->capacity, wanted, sizeof *examples);
    if (!examples) return dataset_no_memory();
    data->examples = examples;
    omm_bytes *lines = omm_grow(data->lines, data->capacity, wanted, sizeof *lines);
    if (!lines) return dataset_no_memory();
    data->lines = lines;
    data->capacity = wanted;
    return OMM_OK;
}

static char *keep_text(omm_arena *arena, const char *text) {
    return text ? omm_arena_strdup(arena, text) : NULL;
}

omm_err dataset_add(omm_dataset *data, const omm_example *e, omm_bytes raw) {
    if (data->count >= OMM_DATASET_EXAMPLES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "over %u examples; a stream takes more",
                         OMM_DATASET_EXAMPLES_MAX);
    OMM_TRY(reserve(data));
    omm_example copy = *e;
    omm_arena *arena = &data->arena;
    bool raw_is_ids = (const void *)raw.data == (const void *)e->ids;
    copy.ids = arena_copy(arena, e->ids, e->count * sizeof *e->ids);
    copy.learn = arena_copy(arena, e->learn, e->count);
    copy.client = keep_text(arena, e->client);
    copy.skill = keep_text(arena, e->skill);
    copy.reply = keep_text(arena, e->reply);
    const void *line = raw_is_ids ? copy.ids : arena_copy(arena, raw.data, raw.size);
    if (!copy.ids || !copy.learn || !copy.client || !copy.skill || (e->reply && !copy.reply) ||
        !line)
        return dataset_no_memory();
    data->lines[data->count] = omm_bytes_of(line, raw.size);
    data->examples[data->count++] = copy;
    return OMM_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static omm_err list_clients(omm_dataset *data) {
    size_t count = 0;
    if (data->count == 0) return OMM_OK;
    data->clients = omm_alloc(data->count, sizeof *data->clients);
    if (!data->clients) return dataset_no_memory();
    for (size_t i = 0; i < data->count; i++) data->clients[i] = data->examples[i].client;
    qsort(data->clients, data->count, sizeof *data->clients, by_name);
    for (size_t i = 0; i < data->count; i++)
        if (count == 0 || strcmp(data->clients[count - 1], data->clients[i]) != 0)
            data->clients[count++] = data->clients[i];
    data->client_count = count;
    return OMM_OK;
}

bool name_is_among(const char *name, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

static omm_err refuse_empty(const omm_dataset *data, const char *name) {
    const omm_data_totals *t = &data->totals;
    if (t->bad)
        return omm_raise(OMM_ERR_NOT_FOUND, "%s: no example to learn from; bad %s: %llu, first %s",
                         name, t->is_array ? "elements" : "lines", (unsigned long long)t->bad,
                         t->bad_first[0]);
    if (t->dropped)
        return omm_raise(OMM_ERR_NOT_FOUND,
                         "%s: no example to learn from: what is to be learned begins after the "
                         "longest that an example may be, in all %llu of them",
                         name, (unsigned long long)t->dropped);
    return omm_raise(OMM_ERR_NOT_FOUND, "%s: no example to learn from: nothing is in it", name);
}

static bool is_listed(const char *list, const char *client) {
    const size_t size = strlen(client);
    for (const char *at = list; at; at = strstr(at, ", ")) {
        if (at != list) at += 2;
        if (strncmp(at, client, size) == 0 && (at[size] == 0 || at[size] == ',')) return true;
    }
    return false;
}

void dataset_list_client(char list[CLIENTS_LISTED], const char *client) {
    const size_t used = strlen(list), size = strlen(client);
    const char *between = used ? ", " : "";
    if (!size || is_listed(list, "...") || is_listed(list, client)) return;
    const bool fits = used + size + sizeof ", , ..." <= CLIENTS_LISTED; /* whole names */
    (void)snprintf(list + used, CLIENTS_LISTED - used, "%s%s", between, fits ? client : "...");
}

/* With some of those that there are. */
static omm_err refuse_client(const omm_dataset *data, const char *name, const char *client,
                             const char *met) {
    char known[CLIENTS_LISTED] = "";
    for (size_t i = 0; !met && data->clients && i < data->client_count; i++)
        dataset_list_client(known, data->clients[i]);
    if (!met) met = known;
    if (is_listed(met, client))
        return omm_raise(OMM_ERR_NOT_FOUND,
                         "%s: no example of client '%.128s' can be learned from: all are bad, or "
                         "begin after the longest that an example may be",
                         name, client);
    return omm_raise(OMM_ERR_NOT_FOUND, "%s: no example of client '%.128s'; it has %s", name,
                     client, met[0] ? met : "no clients");
}

omm_err dataset_check_clients(const omm_dataset *data, const char *name, const char *const *wanted,
                              size_t count, const char *met) {
    for (size_t i = 0; wanted && i < count; i++)
        if (!data->clients ||
            !bsearch(&wanted[i], data->clients, data->client_count, sizeof *data->clients, by_name))
            return refuse_client(data, name, wanted[i], met);
    return data->count > 0 ? OMM_OK : refuse_empty(data, name);
}

void omm_dataset_close(omm_dataset *data) {
    if (!data) return;
    stream_close(data->stream);
    omm_arena_fini(&data->arena);
    omm_free(data->examples);
    omm_free(data->lines);
    omm_free(data->text_ends);
    omm_free(data->clients);
    omm_free(data);
}

/* --- load -------------------------------------------------------------------------------------- */

static omm_err add_found(void *ud, const found *f) {
    return dataset_add(ud, f->example, f->raw);
}

static omm_err fill(omm_dataset *data, source *s, maker *m) {
    OMM_TRY(scan_source(&data->totals, s, m, add_found, data));
    data->seq_max = m->options.seq_max;
    OMM_TRY(list_clients(data));
    return dataset_check_clients(data, m->name, m->options.clients, m->options.client_count,
                                 m->met);
}

omm_err omm_dataset_parse(omm_dataset **out, omm_bytes text, const char *name,
                          const omm_tokenizer *tokenizer, const omm_dataset_options *options) {
    if (text.size > OMM_DATASET_FILE_BYTES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "%s: over %u bytes; a stream takes more", name,
                         OMM_DATASET_FILE_BYTES_MAX);
    maker m;
    source s;
    omm_dataset *data = NULL;
    source_of_memory(&s, text, name);
    omm_err err = maker_init(&m, name, tokenizer, options);
    if (err == OMM_OK) err = dataset_new(&data);
    if (err == OMM_OK) err = fill(data, &s, &m);
    maker_fini(&m);
    source_close(&s);
    if (err != OMM_OK) {
        omm_dataset_close(data);
        return err;
    }
    *out = data;
    return OMM_OK;
}

omm_err omm_dataset_load(omm_dataset **out, const char *path, const omm_tokenizer *tokenizer,
                         const omm_dataset_options *options) {
    omm_buf text;
    omm_buf_init(&text, OMM_DATASET_FILE_BYTES_MAX);
    omm_err err = omm_file_read(&text, path);
    if (err == OMM_OK) err = omm_dataset_parse(out, omm_buf_view(&text), path, tokenizer, options);
    omm_buf_fini(&text);
    return err;
}

/* --- parts of a dataset ---------------------------------------------------------------------- */

static const char *client_of(const omm_dataset *data, size_t index) {
    return data->stream ? stream_client(data, index) : data->examples[index].client;
}

static omm_err copy_kept(omm_dataset **out, const omm_dataset *from, const bool *keep) {
    omm_dataset *data = NULL;
    if (from->stream) return stream_pick(out, from, keep);
    OMM_TRY(dataset_new(&data));
    data->seq_max = from->seq_max;
    data->totals.format = from->totals.format;
    data->totals.is_array = from->totals.is_array;
    omm_err err = OMM_OK;
    for (size_t i = 0; i < from->count && err == OMM_OK; i++)
        if (keep[i]) {
            dataset_count(&data->totals, &from->examples[i]);
            err = dataset_add(data, &from->examples[i], from->lines[i]);
        }
    if (err == OMM_OK) err = list_clients(data);
    if (err == OMM_OK) err = dataset_check_clients(data, "part of a data set", NULL, 0, NULL);
    if (err != OMM_OK) {
        omm_dataset_close(data);
        return err;
    }
    *out = data;
    return OMM_OK;
}

omm_err omm_dataset_pick(omm_dataset **out, const omm_dataset *from, const bool *keep) {
    return copy_kept(out, from, keep);
}

static omm_err new_marks(bool **out, const omm_dataset *from) {
    *out = omm_alloc(from->count, sizeof **out);
    return *out ? OMM_OK : dataset_no_memory();
}

omm_err omm_dataset_select(omm_dataset **out, const omm_dataset *from, const char *const *clients,
                           size_t client_count) {
    bool *keep = NULL;
    OMM_TRY(dataset_check_clients(from, "data set", clients, client_count, NULL));
    OMM_TRY(new_marks(&keep, from));
    for (size_t i = 0; i < from->count; i++)
        keep[i] = name_is_among(client_of(from, i), clients, client_count);
    omm_err err = copy_kept(out, from, keep);
    omm_free(keep);
    return err;
}

omm_err omm_dataset_sample(omm_dataset **out, const omm_dataset *from, size_t first, size_t stride,
                           bool complement) {
    OMM_ASSERT(stride > 0);
    bool *keep = NULL;
    OMM_TRY(new_marks(&keep, from));
    for (size_t i = 0; i < from->count; i++)
        keep[i] = (i >= first && (i - first) % stride == 0) != complement;
    omm_err err = copy_kept(out, from, keep);
    omm_free(keep);
    return err;
}

/* --- split ----------------------------------------------------------------------------------- */

static uint32_t mark_of(const omm_digest *digest) {
    return omm_get_u32(digest->b);
}

static int by_mark(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static uint32_t lot_of_client(const char *name) {
    omm_digest digest = omm_hash(omm_bytes_str(name));
    return mark_of(&digest);
}

static uint32_t lot_of(const omm_dataset *from, size_t index, bool by_client) {
    if (by_client) return lot_of_client(client_of(from, index));
    return from->stream ? stream_mark(from, index) : mark_of(&from->examples[index].digest);
}

/* The highest lot that is held out. */
static omm_err find_threshold(uint32_t *out, const omm_dataset *from, double share,
                              bool by_client) {
    size_t count = by_client ? from->client_count : from->count;
    uint32_t *lots = omm_alloc(count, sizeof *lots);
    if (!lots) return dataset_no_memory();
    for (size_t i = 0; i < count; i++)
        lots[i] = by_client ? lot_of_client(from->clients[i]) : lot_of(from, i, false);
    qsort(lots, count, sizeof *lots, by_mark);
    size_t held = (size_t)(share * (double)count + 0.5);
    *out = lots[held > 0 ? held - 1 : 0];
    omm_free(lots);
    return OMM_OK;
}

/* Of a stream too: what is judged stays in memory. */
static omm_err bring_in(omm_dataset **out, const omm_dataset *from, const bool *keep) {
    omm_data_reader *reader = NULL;
    omm_dataset *data = NULL;
    OMM_TRY(dataset_new(&data));
    data->seq_max = from->seq_max;
    data->totals.format = from->totals.format;
    data->totals.is_array = from->totals.is_array;
    const omm_data_reader_options once = {.cache_bytes_max = 1};
    omm_err err = omm_data_reader_open(&reader, from, &once);
    for (size_t i = 0; i < from->count && err == OMM_OK; i++) {
        if (!keep[i]) continue;
        omm_example e;
        omm_bytes raw;
        err = reader_take_raw(reader, &e, &raw, i);
        if (err == OMM_OK) err = dataset_add(data, &e, raw);
        if (err == OMM_OK) dataset_count(&data->totals, &e);
        omm_data_reader_release(reader);
    }
    omm_data_reader_close(reader);
    if (err == OMM_OK) err = list_clients(data);
    if (err != OMM_OK) {
        omm_dataset_close(data);
        return err;
    }
    *out = data;
    return OMM_OK;
}

static omm_err mark_held(bool *held, size_t *count, const omm_dataset *from, double share,
                         bool by_client) {
    uint32_t threshold = 0;
    OMM_TRY(find_threshold(&threshold, from, share, by_client));
    *count = 0;
    for (size_t i = 0; i < from->count; i++) {
        held[i] = lot_of(from, i, by_client) <= threshold;
        *count += held[i];
    }
    if (*count < from->count) return OMM_OK;
    return omm_raise(OMM_ERR_NOT_FOUND, "a share of %g of %zu %s leaves none to train on", share,
                     by_client ? from->client_count : from->count,
                     by_client ? "clients" : "examples");
}

omm_err omm_dataset_split(omm_dataset **kept, omm_dataset **held_out, const omm_dataset *from,
                          double share, bool by_client) {
    if (!(share > 0) || !(share < 1))
        return omm_raise(OMM_ERR_CONFIG, "held-out share %g; accepted: over 0 and under 1", share);
    bool *held = NULL;
    size_t count = 0;
    omm_dataset *out = NULL;
    OMM_TRY(new_marks(&held, from));
    omm_err err = mark_held(held, &count, from, share, by_client);
    if (err == OMM_OK)
        err = from->stream ? bring_in(&out, from, held) : copy_kept(&out, from, held);
    for (size_t i = 0; i < from->count; i++) held[i] = !held[i];
    if (err == OMM_OK) err = copy_kept(kept, from, held);
    omm_free(held);
    if (err != OMM_OK) {
        omm_dataset_close(out);
        return err;
    }
    *held_out = out;
    return OMM_OK;
}

/* --- reading ------------------------------------------------------------------------------- */

size_t omm_dataset_count(const omm_dataset *data) {
    return data->count;
}

const omm_example *omm_dataset_example(const omm_dataset *data, size_t index) {
    OMM_ASSERT(!data->stream);
    OMM_ASSERT(index < data->count);
    return &data->examples[index];
}

bool omm_dataset_is_stream(const omm_dataset *data) {
    return data->stream != NULL;
}

uint32_t omm_dataset_seq_max(const omm_dataset *data) {
    return data->seq_max;
}

size_t omm_dataset_dropped(const omm_dataset *data) {
    return (size_t)data->totals.dropped;
}

uint64_t omm_dataset_tokens(const omm_dataset *data) {
    return data->totals.tokens;
}

uint64_t omm_dataset_learned(const omm_dataset *data) {
    return data->totals.learned;
}

const omm_data_totals *omm_dataset_totals(const omm_dataset *data) {
    return &data->totals;
}

size_t omm_dataset_client_count(const omm_dataset *data) {
    return data->client_count;
}

const char *omm_dataset_client(const omm_dataset *data, size_t index) {
    OMM_ASSERT(index < data->client_count);
    return data->clients[index];
}

omm_digest omm_dataset_digest(const omm_dataset *data) {
    if (data->stream) return stream_digest(data);
    omm_hasher hasher;
    omm_hasher_init(&hasher);
    for (size_t i = 0; i < data->count; i++) {
        omm_hasher_update(&hasher, data->lines[i]);
        omm_hasher_update(&hasher, omm_bytes_of("\n", 1));
    }
    return omm_hasher_final(&hasher);
}

omm_digest omm_dataset_commit(const omm_digest *data_digest, const uint8_t key[32]) {
    return omm_hash_keyed(omm_bytes_of(key, 32), omm_bytes_of(data_digest->b, 32));
}

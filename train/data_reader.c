/* data_reader.c - examples in any order, from memory or made again from the lines of a file. */
#include "dataset_index.h"

#include <string.h>

#define CACHE_BYTES_DEFAULT ((size_t)64 << 20)
#define BATCH_BYTES_MAX ((size_t)1 << 30)

enum { SLOTS_MAX = 4096 };

/* --- cache ----------------------------------------------------------------------------------- */

/* Tokens of one line, at the place that its offset gives; whoever comes later takes it over. */
typedef struct slot {
    uint8_t *block; /* ids, mask, client, skill, reply; NULL: empty */
    size_t bytes;
    uint64_t offset;
    made made; /* points into `block` */
} slot;

struct omm_data_reader {
    const omm_dataset *data;
    source source;
    maker maker;
    omm_arena batch; /* what was taken since the last release */
    slot *slots;
    size_t slot_count;
    size_t cached, cached_max, hand;
};

static void empty_slot(omm_data_reader *r, slot *s) {
    r->cached -= s->bytes;
    omm_free(s->block);
    *s = (slot){0};
}

static slot *slot_of(omm_data_reader *r, uint64_t offset) {
    return &r->slots[(offset * 0x9e3779b97f4a7c15ULL >> 32) % r->slot_count];
}

/* Copy `size` bytes to *at and move it on; NULL stays NULL. */
static const void *put(uint8_t **at, const void *from, size_t size) {
    if (!from) return NULL;
    uint8_t *to = *at;
    if (size) memcpy(to, from, size);
    *at += size;
    return to;
}

static size_t text_size(const char *text) {
    return text ? strlen(text) + 1 : 0;
}

/* Keep a copy if it is small enough; without memory the cache is only less full. */
static void keep_made(omm_data_reader *r, uint64_t offset, const made *m) {
    size_t bytes = m->count * (sizeof *m->ids + (m->learn ? 1 : 0)) + text_size(m->client) +
                   text_size(m->skill) + text_size(m->reply);
    if (bytes > r->cached_max / 4) return;
    slot *s = slot_of(r, offset);
    empty_slot(r, s);
    while (r->cached + bytes > r->cached_max) empty_slot(r, &r->slots[r->hand++ % r->slot_count]);
    uint8_t *at = omm_alloc(bytes, 1);
    if (!at) return;
    *s = (slot){at, bytes, offset, *m};
    r->cached += bytes;
    s->made.ids = put(&at, m->ids, m->count * sizeof *m->ids);
    s->made.learn = put(&at, m->learn, m->count);
    s->made.client = put(&at, m->client, text_size(m->client));
    s->made.skill = put(&at, m->skill, text_size(m->skill));
    s->made.reply = put(&at, m->reply, text_size(m->reply));
}

/* --- reader ---------------------------------------------------------------------------------- */

static omm_err open_stream(omm_data_reader *r) {
    const stream *s = r->data->stream;
    OMM_TRY(source_open(&r->source, s->path));
    OMM_TRY(source_check(&r->source, &s->identity));
    OMM_TRY(maker_init(&r->maker, s->path, s->tokenizer, &s->options));
    r->slot_count = r->data->count < SLOTS_MAX ? r->data->count : SLOTS_MAX;
    r->slots = omm_alloc(r->slot_count, sizeof *r->slots);
    r->cached_max = s->options.cache_bytes_max ? s->options.cache_bytes_max : CACHE_BYTES_DEFAULT;
    return r->slots ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "no memory for a reader");
}

omm_err omm_data_reader_open(omm_data_reader **out, const omm_dataset *data) {
    omm_data_reader *r = omm_alloc(1, sizeof *r);
    if (!r) return omm_raise(OMM_ERR_NOMEM, "no memory for a reader");
    r->data = data;
    r->source.fd = -1;
    omm_arena_init(&r->batch, BATCH_BYTES_MAX);
    omm_err err = data->stream ? open_stream(r) : OMM_OK;
    if (err != OMM_OK) {
        omm_data_reader_close(r);
        return err;
    }
    *out = r;
    return OMM_OK;
}

void omm_data_reader_close(omm_data_reader *r) {
    if (!r) return;
    for (size_t i = 0; r->slots && i < r->slot_count; i++) omm_free(r->slots[i].block);
    omm_free(r->slots);
    maker_fini(&r->maker);
    source_close(&r->source);
    omm_arena_fini(&r->batch);
    omm_free(r);
}

void omm_data_reader_release(omm_data_reader *r) {
    omm_arena_fini(&r->batch);
    omm_arena_init(&r->batch, BATCH_BYTES_MAX);
}

static omm_err changed(const omm_data_reader *r, const entry *e) {
    return omm_raise(OMM_ERR_MISMATCH,
                     "%s: the example at byte %llu is not what was indexed: the file has changed",
                     r->source.name, (unsigned long long)entry_offset(e));
}

/* The line of an entry as tokens, from the cache or again from the file. */
static omm_err make_again(omm_data_reader *r, made *out, omm_bytes *raw, const entry *e) {
    slot *s = slot_of(r, entry_offset(e));
    bool wanted = true;
    if (omm_data_format_is_text(r->maker.options.format))
        raw = NULL; /* its raw bytes are its ids */
    if (!raw && s->block && s->offset == entry_offset(e)) {
        *out = s->made;
        return OMM_OK;
    }
    record line = {.offset = entry_offset(e), .begins = e->shape >> 1 & 1, .ends = e->shape & 1};
    if (line.offset + entry_bytes(e) > r->source.size) return changed(r, e);
    OMM_TRY(source_view(&r->source, &line.bytes, line.offset, entry_bytes(e)));
    line.bytes.size = entry_bytes(e);
    omm_err err = maker_make(&r->maker, out, &wanted, &line);
    if (err == OMM_ERR_FORMAT) return changed(r, e);
    if (err == OMM_OK && raw)
        *raw = line.bytes;
    else if (err == OMM_OK)
        keep_made(r, line.offset, out);
    return err;
}

static omm_err copy_example(omm_arena *arena, omm_example *out, const omm_example *e) {
    *out = *e;
    uint32_t *ids = omm_arena_alloc(arena, e->count, sizeof *ids);
    uint8_t *learn = omm_arena_alloc(arena, e->count, 1);
    out->client = omm_arena_strdup(arena, e->client);
    out->skill = omm_arena_strdup(arena, e->skill);
    out->reply = e->reply ? omm_arena_strdup(arena, e->reply) : NULL;
    if (!ids || !learn || !out->client || !out->skill || (e->reply && !out->reply))
        return omm_raise(OMM_ERR_NOMEM, "no memory for an example");
    memcpy(ids, e->ids, e->count * sizeof *ids);
    memcpy(learn, e->learn, e->count);
    out->ids = ids;
    out->learn = learn;
    return OMM_OK;
}

static omm_err take(omm_data_reader *r, omm_example *out, omm_bytes *raw, const entry *from) {
    made m;
    omm_example e;
    bool there = false, cut = false;
    OMM_TRY(make_again(r, &m, raw, from));
    OMM_TRY(made_window(&r->maker, &e, &there, &cut, &m, entry_window(from)));
    if (!there || e.count != entry_tokens(from) || e.learn_count != entry_learned(from) ||
        omm_get_u32(e.digest.b) != from->mark)
        return changed(r, from);
    OMM_TRY(copy_example(&r->batch, out, &e));
    if (raw && omm_data_format_is_text(r->maker.options.format))
        *raw = omm_bytes_of(out->ids, out->count * sizeof *out->ids);
    return OMM_OK;
}

omm_err reader_take_raw(omm_data_reader *r, omm_example *out, omm_bytes *raw, size_t index) {
    OMM_ASSERT(index < r->data->count);
    OMM_ASSERT(r->data->stream);
    return take(r, out, raw, &r->data->stream->entries[index]);
}

omm_err omm_data_reader_take(omm_data_reader *r, omm_example *out, size_t index) {
    OMM_ASSERT(index < r->data->count);
    if (r->data->stream) return take(r, out, NULL, &r->data->stream->entries[index]);
    *out = r->data->examples[index];
    return OMM_OK;
}

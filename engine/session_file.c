/* session_file.c - writing and reading of sessions; the layout is in session_file.h. */
#include "omm/session_file.h"

#include "omm/file.h"
#include "omm/mem.h"
#include "session_internal.h"

#include <string.h>

#define MAGIC "OMMSESS1"
#define VERSION 2u
#define HEADER_BYTES (8 + 8 * 4 + 2 * 32)
#define DIGEST_BYTES 32u
#define PASSED_BYTES ((size_t)1 << 20) /* of a mapped file that stay in memory at most */
/* Activations of a file: 0 f32, 2 q8; 1 was q8 whose products were rounded in another order (decision 205). */
enum { FILE_F32 = 0, FILE_Q8_GONE = 1, FILE_Q8 = 2 };
#define ROPE_FAR 0x100u /* beside the activations: keys are turned by longrope's long factors */

typedef struct header {
    uint32_t version, kv_type, activations, layers, kv_heads, head_dim, position, note;
    omm_digest model, adapters;
} header;

static header header_of(const omm_session *s, const omm_digest *model) {
    const omm_model *m = s->group->graph.model;
    const omm_model_dims *d = &m->dims;
    const uint32_t far =
        omm_model_rope_far(m, s->group->graph.options.rope_positions) ? ROPE_FAR : 0;
    const bool q8 = s->group->options.activations == OMM_ACTIVATIONS_Q8;
    return (header){.version = VERSION,
                    .kv_type = s->group->options.kv_type,
                    .activations = (q8 ? FILE_Q8 : FILE_F32) | far,
                    .layers = d->layers,
                    .kv_heads = d->kv_heads,
                    .head_dim = d->head_dim,
                    .position = s->position,
                    .model = *model,
                    .adapters = session_adapters_digest(s)};
}

static size_t blocks_of(uint32_t position) {
    return ((size_t)position + OMM_KV_BLOCK - 1) / OMM_KV_BLOCK;
}

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct writer {
    omm_file_out file;
    omm_hasher hash;
} writer;

static omm_err put(writer *w, const void *data, size_t size) {
    omm_bytes view = omm_bytes_of(data, size);
    omm_hasher_update(&w->hash, view);
    return omm_file_out_write(&w->file, view);
}

static omm_err put_u32(writer *w, uint32_t v) {
    uint8_t bytes[4];
    omm_put_u32(bytes, v);
    return put(w, bytes, sizeof bytes);
}

static omm_err put_header(writer *w, const header *h) {
    const uint32_t words[] = {h->version,  h->kv_type,  h->activations, h->layers,
                              h->kv_heads, h->head_dim, h->position,    h->note};
    OMM_TRY(put(w, MAGIC, 8));
    for (size_t i = 0; i < 8; i++) OMM_TRY(put_u32(w, words[i]));
    OMM_TRY(put(w, h->model.b, sizeof h->model.b));
    return put(w, h->adapters.b, sizeof h->adapters.b);
}

/* rows of `width` bytes of which the first `used` count. */
static void clear_rows(uint8_t *data, size_t rows, size_t width, size_t used) {
    for (size_t i = 0; i < rows; i++) memset(data + i * width + used, 0, width - used);
}

/* Keys and values of floats: what no position wrote, padding of values. */
static void clear_floats(const omm_kv *kv, uint8_t *k, size_t used) {
    const size_t size = kv->type == OMM_KV_F32 ? 4 : 2, row = kv->dim_padded * size;
    uint8_t *v = k + kv->values_at;
    clear_rows(k, kv->head_dim, OMM_KV_BLOCK * size, used * size);
    clear_rows(v, 1, row * OMM_KV_BLOCK, used * row);
    clear_rows(v, used, row, kv->head_dim * size);
}

/* The same of Q8_0: both are in quads, of dimensions and of positions. */
static void clear_q8(const omm_kv *kv, uint8_t *k, size_t used) {
    const size_t half = sizeof(uint16_t), rows = OMM_KV_BLOCK;
    const size_t width = kv->dim_padded, plane = width * OMM_KV_BLOCK;
    uint8_t *v = k + kv->values_at;
    clear_rows(k, width / 4, rows * 4, used * 4);
    for (size_t i = kv->head_dim; i < width; i++)
        for (size_t j = 0; j < used; j++) k[(i / 4 * OMM_KV_BLOCK + j) * 4 + i % 4] = 0;
    for (size_t j = 0; j < OMM_KV_BLOCK; j++)
        for (size_t i = j < used ? kv->head_dim : 0; i < width; i++)
            v[(j / 4 * width + i) * 4 + j % 4] = 0;
    clear_rows(k + plane, omm_kv_groups(kv->head_dim), rows * half, used * half);
    clear_rows(v + plane, omm_kv_groups(kv->head_dim), rows * half, used * half);
}

/* Positions from `used` on of a block become zero: they may hold another sequence's. */
static void clear_after(const omm_kv *kv, uint8_t *block, size_t used) {
    for (uint32_t h = 0; h < kv->kv_heads; h++) {
        if (kv->type == OMM_KV_Q8_0)
            clear_q8(kv, block + h * kv->head_bytes, used);
        else
            clear_floats(kv, block + h * kv->head_bytes, used);
    }
}

static omm_err put_blocks(writer *w, const omm_session *s, uint8_t *room, size_t bytes) {
    for (uint32_t i = 0; i < s->group->graph.model->dims.layers; i++) {
        const omm_kv *kv = &s->kv[i];
        for (size_t b = 0; b < blocks_of(s->position); b++) {
            const size_t left = s->position - b * OMM_KV_BLOCK;
            OMM_TRY(put_u32(w, kv->blocks[b] != NULL));
            if (!kv->blocks[b]) continue;
            memcpy(room, kv->blocks[b], bytes);
            clear_after(kv, room, left < OMM_KV_BLOCK ? left : OMM_KV_BLOCK);
            OMM_TRY(put(w, room, bytes));
        }
    }
    return OMM_OK;
}

static omm_err put_all(writer *w, const omm_session *s, const omm_digest *model, omm_bytes note,
                       uint8_t *room) {
    header h = header_of(s, model);
    h.note = (uint32_t)note.size;
    OMM_TRY(put_header(w, &h));
    for (uint32_t i = 0; i < s->position; i++) OMM_TRY(put_u32(w, s->ids[i]));
    OMM_TRY(put_blocks(w, s, room, omm_kv_pool_block_bytes(s->group->pool)));
    OMM_TRY(put(w, note.data, note.size));
    omm_digest digest = omm_hasher_final(&w->hash);
    OMM_TRY(omm_file_out_write(&w->file, omm_bytes_of(digest.b, sizeof digest.b)));
    return omm_file_out_finish(&w->file, true); /* it takes the place of an earlier one */
}

omm_err omm_session_save(const omm_session *s, const char *path, const omm_digest *model,
                         omm_bytes note) {
    writer w;
    if (note.size > OMM_SESSION_NOTE_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "%zu bytes to keep with a session: at most %u", note.size,
                         OMM_SESSION_NOTE_MAX);
    uint8_t *room = (uint8_t *)omm_alloc_aligned(omm_kv_pool_block_bytes(s->group->pool), 1);
    if (!room) return omm_raise(OMM_ERR_NOMEM, "no memory to save a session");
    omm_hasher_init(&w.hash);
    omm_err err = omm_file_out_open(&w.file, path, 0600);
    if (err == OMM_OK) {
        err = put_all(&w, s, model, note, room);
        omm_file_out_close(&w.file);
    }
    omm_free(room);
    return err;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A file in memory, or mapped: then what has been passed is let go, as the cache comes beside it. */
typedef struct source {
    const omm_map *map; /* NULL: in memory */
    const char *name;
    omm_bytes file;
} source;

/* From `*from` on `at` has been reached. */
static void passed(const source *f, size_t *from, size_t at) {
    if (!f->map || at - *from < PASSED_BYTES) return;
    omm_map_release(f->map, f->map->view);
    *from = at;
}

static omm_digest hash_of(const source *f, omm_bytes content) {
    omm_hasher h;
    size_t from = 0;
    omm_hasher_init(&h);
    for (size_t at = 0, n = 0; at < content.size; at += n) {
        n = content.size - at < PASSED_BYTES ? content.size - at : PASSED_BYTES;
        omm_hasher_update(&h, omm_bytes_of(content.data + at, n));
        passed(f, &from, at + n);
    }
    return omm_hasher_final(&h);
}

static omm_err get_header(header *h, omm_reader *r, const char *path) {
    omm_bytes magic = omm_read_bytes(r, 8);
    if (r->failed || memcmp(magic.data, MAGIC, 8) != 0)
        return omm_raise(OMM_ERR_FORMAT, "%s is no session file", path);
    uint32_t *const words[] = {&h->version,  &h->kv_type,  &h->activations, &h->layers,
                               &h->kv_heads, &h->head_dim, &h->position,    &h->note};
    for (size_t i = 0; i < 8; i++) *words[i] = omm_read_u32(r);
    omm_bytes model = omm_read_bytes(r, 32), adapters = omm_read_bytes(r, 32);
    if (r->failed) return omm_raise(OMM_ERR_SIZE, "%s ends within its header", path);
    memcpy(h->model.b, model.data, 32);
    memcpy(h->adapters.b, adapters.data, 32);
    if (h->version != VERSION)
        return omm_raise(OMM_ERR_VERSION, "%s has version %u; this program reads %u", path,
                         h->version, VERSION);
    return OMM_OK;
}

/* `original`: positions before longrope's scaling. */
static omm_err same_identity(const header *got, const header *want, uint32_t original,
                             const char *path) {
    if (!omm_digest_equal(&got->model, &want->model) || got->layers != want->layers ||
        got->kv_heads != want->kv_heads || got->head_dim != want->head_dim)
        return omm_raise(OMM_ERR_MISMATCH, "%s was saved with another model", path);
    if (!omm_digest_equal(&got->adapters, &want->adapters))
        return omm_raise(OMM_ERR_MISMATCH,
                         "%s was saved with other adapters, another order or other scales", path);
    if (got->kv_type != want->kv_type)
        return omm_raise(OMM_ERR_MISMATCH, "%s has a cache of type %s, not %s", path,
                         got->kv_type < OMM_KV_TYPE_COUNT
                             ? omm_kv_type_name((omm_kv_type)got->kv_type)
                             : "unknown",
                         omm_kv_type_name((omm_kv_type)want->kv_type));
    const uint32_t activations = want->activations & ~ROPE_FAR,
                   theirs = got->activations & ~ROPE_FAR;
    if (activations == FILE_Q8 && theirs == FILE_Q8_GONE)
        return omm_raise(OMM_ERR_MISMATCH,
                         "%s is of a program whose int8 products were rounded in another order: "
                         "what goes on from it would be neither's text; begin it anew",
                         path);
    if (theirs != activations)
        return omm_raise(OMM_ERR_MISMATCH, "%s was computed with other activations than %s", path,
                         activations == FILE_Q8 ? "q8" : "f32");
    if (got->activations != want->activations)
        return omm_raise(OMM_ERR_MISMATCH,
                         "%s was computed with room for %s %u positions, where this model "
                         "(longrope) turns its keys otherwise: give the same context",
                         path, got->activations & ROPE_FAR ? "more than" : "at most", original);
    return OMM_OK;
}

static omm_err check_limits(const omm_session *s, const header *h, const char *path, bool noted) {
    if (h->position > s->group->options.positions_max)
        return omm_raise(OMM_ERR_TOO_BIG, "%s has %u positions; the session holds at most %u", path,
                         h->position, s->group->options.positions_max);
    if (h->note > OMM_SESSION_NOTE_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "%s has %u bytes beside its tokens: at most %u", path,
                         h->note, OMM_SESSION_NOTE_MAX);
    if ((h->note > 0) != noted)
        return omm_raise(OMM_ERR_MISMATCH, "%s holds %s", path,
                         noted ? "a text, not a conversation" : "a conversation, not a text");
    return OMM_OK;
}

/* First block of a layer that the next token looks at: only those before it may be absent. */
static size_t first_needed(const omm_session *s, uint32_t layer, uint32_t position) {
    const size_t window = s->group->graph.model->layers[layer].window;
    if (window == 0 || position < window) return 0;
    return ((size_t)position - window + 1) / OMM_KV_BLOCK;
}

/* Walk over all blocks; *bad: a mark that is not 0 or 1, or an absent block that is needed. */
static void skip_blocks(omm_reader *r, bool *bad, const omm_session *s, const source *f,
                        uint32_t position) {
    const size_t bytes = omm_kv_pool_block_bytes(s->group->pool);
    size_t from = r->at;
    for (uint32_t i = 0; i < s->group->graph.model->dims.layers; i++)
        for (size_t b = 0; b < blocks_of(position) && !r->failed; b++) {
            const uint32_t present = omm_read_u32(r);
            if (present > 1 || (!present && b >= first_needed(s, i, position))) *bad = true;
            if (present) omm_read_bytes(r, bytes);
            passed(f, &from, r->at);
        }
}

/* Size, digest, ids: all that can be wrong before memory is taken. */
static omm_err check_body(omm_bytes *note, const omm_session *s, const source *f, const header *h) {
    const uint32_t vocab = s->group->graph.model->dims.vocab;
    const char *path = f->name;
    bool bad = false;
    const omm_bytes content = omm_bytes_of(f->file.data, f->file.size - DIGEST_BYTES);
    omm_reader r = omm_reader_of(content);
    omm_read_bytes(&r, HEADER_BYTES);
    omm_bytes ids = omm_read_bytes(&r, (size_t)h->position * 4);
    skip_blocks(&r, &bad, s, f, h->position);
    *note = omm_read_bytes(&r, h->note);
    if (r.failed || r.at != r.in.size)
        return omm_raise(OMM_ERR_SIZE, "%s has not the size that its header says", path);
    const omm_digest digest = hash_of(f, content);
    if (memcmp(digest.b, content.data + content.size, DIGEST_BYTES) != 0)
        return omm_raise(OMM_ERR_DIGEST, "%s is damaged: its digest does not match", path);
    if (bad) return omm_raise(OMM_ERR_FORMAT, "%s lacks a part of the cache", path);
    for (uint32_t i = 0; i < h->position; i++)
        if (omm_get_u32(ids.data + (size_t)i * 4) >= vocab)
            return omm_raise(OMM_ERR_FORMAT, "%s has a token that the model has not", path);
    return OMM_OK;
}

static void take_blocks(omm_session *s, const source *f, omm_reader *r, size_t bytes) {
    size_t from = r->at;
    for (uint32_t i = 0; i < s->group->graph.model->dims.layers; i++)
        for (size_t b = 0; b < blocks_of(s->position); b++) {
            if (omm_read_u32(r)) {
                memcpy(s->kv[i].blocks[b], omm_read_bytes(r, bytes).data, bytes);
            } else {
                omm_kv_pool_give(s->group->pool, s->kv[i].blocks[b]);
                s->kv[i].blocks[b] = NULL;
            }
            passed(f, &from, r->at);
        }
}

static omm_err take(omm_session *s, const source *f, omm_reader *r, uint32_t position) {
    omm_session_truncate(s, 0);
    if (position == 0) return OMM_OK;
    omm_err err = session_reserve(s, position, false);
    if (err == OMM_OK) err = session_reserve(s, position, true);
    if (err != OMM_OK) omm_session_truncate(s, 0);
    OMM_TRY(err);
    for (uint32_t i = 0; i < position; i++) s->ids[i] = omm_read_u32(r);
    s->position = position;
    take_blocks(s, f, r, omm_kv_pool_block_bytes(s->group->pool));
    return OMM_OK;
}

static omm_err load(omm_session *s, const source *f, const omm_digest *model, omm_buf *note) {
    header h = {0};
    omm_bytes text = {0};
    const char *path = f->name;
    const header want = header_of(s, model);
    omm_reader r = omm_reader_of(f->file);
    OMM_TRY(get_header(&h, &r, path));
    OMM_TRY(same_identity(&h, &want, s->group->graph.model->dims.rope_context, path));
    if (f->file.size < HEADER_BYTES + DIGEST_BYTES)
        return omm_raise(OMM_ERR_SIZE, "%s ends before its digest", path);
    OMM_TRY(check_limits(s, &h, path, note != NULL));
    OMM_TRY(check_body(&text, s, f, &h));
    if (note) OMM_TRY(omm_buf_reserve(note, text.size));
    OMM_TRY(take(s, f, &r, h.position));
    return note ? omm_buf_append(note, text.data, text.size) : OMM_OK; /* there is room */
}

omm_err omm_session_file_kv(omm_kv_type *out, const char *path) {
    header h = {0};
    omm_map map = {0};
    OMM_TRY(omm_map_open(&map, path));
    omm_reader r = omm_reader_of(map.view);
    omm_err err = get_header(&h, &r, path);
    if (err == OMM_OK && h.kv_type >= OMM_KV_TYPE_COUNT)
        err = omm_raise(OMM_ERR_FORMAT, "%s has a cache of an unknown type", path);
    if (err == OMM_OK) *out = (omm_kv_type)h.kv_type;
    omm_map_close(&map);
    return err;
}

omm_err omm_session_load_bytes(omm_session *s, omm_bytes file, const char *name,
                               const omm_digest *model, omm_buf *note) {
    return load(s, &(source){.name = name, .file = file}, model, note);
}

omm_err omm_session_load(omm_session *s, const char *path, const omm_digest *model, omm_buf *note) {
    omm_map map;
    OMM_TRY(omm_map_open(&map, path));
    const source f = {.map = &map, .name = path, .file = map.view};
    omm_err err = load(s, &f, model, note);
    omm_map_close(&map);
    return err;
}

/* packed.c - see omm/packed.h. */
#include "omm/packed.h"

#include "gguf_internal.h"
#include "omm/clock.h"
#include "omm/mem.h"
#include "packed_internal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Of the strips in quant.h and the order here: packed_test has a digest of both. */
#define VERSION 1u
#define PAGE 4096u
#define DIGITS 16u /* of the model's digest, in the name */
#define ENDING ".packed"
#define OTHERS_WRITE 022u
/* A file that is changed twice within a tick of the clock that it is stamped by has one time for both.  Longer than
 * that of a system, and of the file systems that keep whole seconds (FAT: every second one). */
#define TICK_MS 50
#define TICK_OF_SECONDS_MS 2000

static const uint8_t s_magic[8] = {'O', 'M', 'M', 'P', 'A', 'C', 'K', '1'};

/* ---- matrices -------------------------------------------------------------------------------- */

/* The matrix number `i` of a copy.  NULL: there are no more.  rows: of those of layers, else NULL. */
static omm_matrix *matrix_at(omm_bytes **rows, omm_model *model, size_t i) {
    *rows = NULL;
    if (i == 0) return &model->embed;
    if (!model->tied && i == 1) return &model->output_own;
    i -= model->tied ? 1 : 2;
    const size_t layer = i / OMM_LORA_TARGET_COUNT, target = i % OMM_LORA_TARGET_COUNT;
    if (layer >= model->dims.layers) return NULL;
    *rows = &model->layers[layer].rows[target];
    return &model->layers[layer].weights[target];
}

static size_t padded(size_t bytes) {
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static size_t copy_bytes(omm_model *outline) {
    omm_bytes *rows = NULL;
    size_t bytes = PAGE;
    for (size_t i = 0;; i++) {
        const omm_matrix *m = matrix_at(&rows, outline, i);
        if (!m) return bytes;
        bytes += padded(omm_matrix_bytes(m));
    }
}

omm_err packed_attach(omm_model *model) {
    omm_bytes *rows = NULL;
    const omm_bytes view = model->packed->map.view;
    const size_t expected = copy_bytes(model);
    if (view.size != expected)
        return omm_raise(OMM_ERR_MISMATCH, "%s has %zu bytes: expected %zu", model->packed->path,
                         view.size, expected);
    size_t at = PAGE;
    for (size_t i = 0;; i++) {
        omm_matrix *m = matrix_at(&rows, model, i);
        if (!m) return OMM_OK;
        const size_t bytes = omm_matrix_bytes(m);
        const bool is_streamed =
            rows && rows >= &model->layers[model->resident].rows[0]; /* layers lie in order */
        union { /* a map is only read, and so are the weights of a model that lies in one */
            const uint8_t *mapped;
            uint8_t *data;
        } u = {view.data + at};
        m->data = u.data;
        m->borrowed = true;
        if (rows) *rows = is_streamed ? omm_bytes_of(view.data + at, bytes) : (omm_bytes){NULL, 0};
        if (!is_streamed) model->weight_bytes += bytes;
        at += padded(bytes);
    }
}

/* ---- names and states ------------------------------------------------------------------------ */

static const omm_map *map_of(const omm_gguf *gguf, uint32_t part) {
    return part == 0 ? &gguf->map : &gguf->more[part - 1];
}

static omm_err part_path(char out[OMM_PATH_MAX], const omm_gguf *gguf, const char *model,
                         uint32_t part) {
    if (gguf->part_count > 1) return omm_gguf_part_path(out, model, part, gguf->part_count);
    return omm_path_join(out, "", model);
}

/* Of the model's digest and of the states of its files. */
static omm_digest state_digest(const omm_gguf *gguf, const omm_digest *model) {
    omm_hasher h;
    omm_hasher_init(&h);
    omm_hasher_update(&h, omm_bytes_of(model->b, sizeof model->b));
    for (uint32_t i = 0; i < gguf->part_count; i++) {
        uint8_t bytes[4 * 8];
        const omm_file_state *s = &map_of(gguf, i)->state;
        omm_put_u64(bytes, s->inode);
        omm_put_u64(bytes + 8, s->bytes);
        omm_put_u64(bytes + 16, (uint64_t)s->modified_ns);
        omm_put_u64(bytes + 24, (uint64_t)s->changed_ns);
        omm_hasher_update(&h, omm_bytes_of(bytes, sizeof bytes));
    }
    return omm_hasher_final(&h);
}

static void header_of(uint8_t out[PAGE], const omm_gguf *gguf, size_t bytes,
                      const omm_digest *model) {
    const omm_digest state = state_digest(gguf, model);
    memset(out, 0, PAGE);
    memcpy(out, s_magic, sizeof s_magic);
    omm_put_u32(out + 8, VERSION);
    omm_put_u32(out + 12, gguf->part_count);
    omm_put_u64(out + 16, bytes);
    memcpy(out + 24, state.b, sizeof state.b);
    memcpy(out + 56, model->b, sizeof model->b);
}

/* Where copies of a model are, and how their names begin. */
typedef struct place {
    char folder[OMM_PATH_MAX];
    char first[OMM_PATH_MAX]; /* path of the model's first file */
    const char *stem;         /* its name, in `first` */
} place;

static omm_err place_of(place *out, const omm_gguf *gguf, const char *model) {
    OMM_TRY(part_path(out->first, gguf, model, 0));
    OMM_TRY(omm_path_dir(out->folder, out->first));
    const char *slash = strrchr(out->first, '/');
    out->stem = slash ? slash + 1 : out->first;
    return OMM_OK;
}

/* "<stem>.<16 digits>.packed" */
static bool is_copy_name(const char *name, const char *stem) {
    const size_t size = strlen(stem);
    if (strncmp(name, stem, size) != 0 || name[size] != '.') return false;
    const char *digits = name + size + 1;
    return strspn(digits, "0123456789abcdef") == DIGITS && strcmp(digits + DIGITS, ENDING) == 0;
}

static omm_err copy_path(char out[OMM_PATH_MAX], const place *p, const omm_digest *model) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, model);
    const int size = snprintf(out, OMM_PATH_MAX, "%s.%.*s%s", p->first, (int)DIGITS, hex, ENDING);
    if (size > 0 && size < (int)OMM_PATH_MAX) return OMM_OK;
    return omm_raise(OMM_ERR_TOO_BIG, "path too long for a packed copy: %.200s...", p->first);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Nobody writes to it who could not write to the model or as this user anyway. */
static omm_err check_owner(const omm_packed *p, const omm_gguf *gguf) {
    const omm_file_state *s = &p->map.state;
    const bool is_known =
        s->owner == 0 || s->owner == geteuid() || s->owner == gguf->map.state.owner;
    if (is_known && (s->mode & OTHERS_WRITE) == 0) return OMM_OK;
    return omm_raise(OMM_ERR_STATE,
                     "%s belongs to user %u and has rights %03o: others may write to it", p->path,
                     s->owner, s->mode);
}

static omm_err check_header(const omm_packed *p, const omm_gguf *gguf) {
    uint8_t want[PAGE];
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest model;
    const omm_bytes view = p->map.view;
    if (view.size < PAGE || memcmp(view.data, s_magic, sizeof s_magic) != 0)
        return omm_raise(OMM_ERR_FORMAT, "%s is no packed copy of a model", p->path);
    if (omm_get_u32(view.data + 8) != VERSION)
        return omm_raise(OMM_ERR_VERSION, "%s has version %u of packed copies: this program has %u",
                         p->path, omm_get_u32(view.data + 8), VERSION);
    if (omm_get_u64(view.data + 16) != view.size)
        return omm_raise(OMM_ERR_SIZE, "%s has %zu bytes, and says %llu", p->path, view.size,
                         (unsigned long long)omm_get_u64(view.data + 16));
    memcpy(model.b, view.data + 56, sizeof model.b);
    omm_digest_hex(hex, &model);
    header_of(want, gguf, view.size, &model);
    if (memcmp(want, view.data, PAGE) != 0)
        return omm_raise(OMM_ERR_MISMATCH,
                         "%s was made before the model was changed, moved or copied", p->path);
    const char *digits = p->path + strlen(p->path) - strlen(ENDING) - DIGITS;
    if (memcmp(hex, digits, DIGITS) == 0) return OMM_OK;
    return omm_raise(OMM_ERR_MISMATCH, "%s is of the model %.*s", p->path, (int)DIGITS, hex);
}

static omm_err open_one(omm_packed *out, const char *path, const omm_gguf *gguf) {
    snprintf(out->path, sizeof out->path, "%s", path);
    omm_err err = omm_map_open(&out->map, path);
    if (err == OMM_OK) err = check_owner(out, gguf);
    if (err == OMM_OK) err = check_header(out, gguf);
    if (err == OMM_OK) omm_map_prefer_huge(&out->map);
    if (err != OMM_OK) omm_map_close(&out->map);
    return err;
}

typedef struct search {
    omm_packed *out;
    const omm_gguf *gguf;
    const place *place;
    omm_err err; /* of the last that did not do; NOT_FOUND: none */
} search;

static omm_err look(void *ud, const char *name) {
    search *s = (search *)ud;
    char path[OMM_PATH_MAX];
    if (s->err == OMM_OK || !is_copy_name(name, s->place->stem)) return OMM_OK;
    OMM_TRY(omm_path_join(path, s->place->folder, name));
    s->err = open_one(s->out, path, s->gguf);
    return OMM_OK;
}

omm_err omm_packed_open(omm_packed *out, const omm_gguf *gguf, const char *model) {
    place p;
    *out = (omm_packed){0};
    search s = {.out = out, .gguf = gguf, .place = &p, .err = OMM_ERR_NOT_FOUND};
    OMM_TRY(place_of(&p, gguf, model));
    OMM_TRY(omm_dir_names(p.folder, look, &s));
    if (s.err == OMM_ERR_NOT_FOUND) return omm_raise(s.err, "%s has no packed copy", model);
    return s.err;
}

void omm_packed_close(omm_packed *packed) {
    omm_map_close(&packed->map);
    packed->path[0] = 0;
}

/* ---- making ---------------------------------------------------------------------------------- */

static omm_err write_padding(omm_file_out *file, size_t bytes) {
    static const uint8_t zeros[PAGE];
    return omm_file_out_write(file, omm_bytes_of(zeros, padded(bytes) - bytes));
}

/* Pack it, write it, and let go of both. */
static omm_err write_matrix(omm_file_out *file, const omm_gguf *gguf, const omm_matrix *m,
                            omm_bytes rows, omm_pool *pool) {
    omm_matrix packed;
    OMM_TRY(gguf_of_tensor(omm_matrix_pack_with(&packed, pool, m->format, m->rows, m->cols, rows),
                           gguf_tensor_at(gguf, rows)->name));
    omm_gguf_release(gguf, rows);
    const size_t bytes = omm_matrix_bytes(&packed);
    omm_err err = omm_file_out_write(file, omm_bytes_of(packed.data, bytes));
    omm_matrix_fini(&packed);
    return err == OMM_OK ? write_padding(file, bytes) : err;
}

static omm_bytes rows_of(const omm_gguf *gguf, size_t i, const omm_bytes *rows) {
    if (rows) return *rows;
    return omm_gguf_find_tensor(gguf, i == 0 ? "token_embd.weight" : "output.weight")->data;
}

/* Are the files at their paths still those that are open?  Then what was packed is what their states stand for. */
static omm_err check_states(const omm_gguf *gguf, const char *model) {
    for (uint32_t i = 0; i < gguf->part_count; i++) {
        char path[OMM_PATH_MAX];
        omm_file_state now;
        const omm_file_state *then = &map_of(gguf, i)->state;
        OMM_TRY(part_path(path, gguf, model, i));
        OMM_TRY(omm_file_state_read(&now, path));
        if (now.inode != then->inode || now.bytes != then->bytes ||
            now.modified_ns != then->modified_ns || now.changed_ns != then->changed_ns)
            return omm_raise(OMM_ERR_STATE, "%s was changed while it was packed", path);
    }
    return OMM_OK;
}

static void wait_for_tick(const omm_gguf *gguf) {
    const omm_clock clock = omm_clock_system();
    for (uint32_t i = 0; i < gguf->part_count; i++) {
        const int64_t changed = map_of(gguf, i)->state.changed_ns;
        const int64_t tick = changed % 1000000000 == 0 ? TICK_OF_SECONDS_MS : TICK_MS;
        const int64_t age = (int64_t)clock.wall_ms(clock.ud) - changed / 1000000;
        if (age <= tick) clock.sleep_ms(clock.ud, (uint64_t)(age < 0 ? tick : tick - age + 1));
    }
}

static omm_err write_all(omm_file_out *file, omm_model *outline, const omm_gguf *gguf,
                         const omm_digest *digest, omm_pool *pool) {
    uint8_t header[PAGE];
    omm_bytes *rows = NULL;
    const size_t bytes = copy_bytes(outline);
    header_of(header, gguf, bytes, digest);
    OMM_TRY(omm_file_out_reserve(file, bytes));
    OMM_TRY(omm_file_out_write(file, omm_bytes_of(header, sizeof header)));
    for (size_t i = 0;; i++) {
        const omm_matrix *m = matrix_at(&rows, outline, i);
        if (!m) return OMM_OK;
        OMM_TRY(write_matrix(file, gguf, m, rows_of(gguf, i, rows), pool));
    }
}

typedef struct sweep {
    const place *place;
    const char *kept; /* path */
} sweep;

/* Other copies of this model are of states that have passed. */
static omm_err remove_old(void *ud, const char *name) {
    const sweep *s = (const sweep *)ud;
    char path[OMM_PATH_MAX];
    omm_map map;
    if (!is_copy_name(name, s->place->stem)) return OMM_OK;
    OMM_TRY(omm_path_join(path, s->place->folder, name));
    if (omm_file_same(path, s->kept) || omm_map_open(&map, path) != OMM_OK) return OMM_OK;
    const bool is_copy =
        map.view.size >= PAGE && memcmp(map.view.data, s_magic, sizeof s_magic) == 0;
    omm_map_close(&map);
    return is_copy ? omm_file_remove(path) : OMM_OK;
}

static omm_err make(const omm_gguf *gguf, omm_model *outline, const char *model, omm_pool *pool) {
    place p;
    char path[OMM_PATH_MAX];
    omm_file_out file;
    OMM_TRY(place_of(&p, gguf, model));
    const omm_digest digest = omm_gguf_digest(gguf);
    OMM_TRY(copy_path(path, &p, &digest));
    OMM_TRY(omm_file_out_open(&file, path, 0644));
    omm_err err = write_all(&file, outline, gguf, &digest, pool);
    if (err == OMM_OK) err = check_states(gguf, model);
    if (err == OMM_OK) err = omm_file_out_finish(&file, true);
    omm_file_out_close(&file);
    if (err != OMM_OK) return err;
    return omm_dir_names(p.folder, remove_old, &(sweep){&p, path});
}

omm_err omm_packed_make(const omm_gguf *gguf, const char *model, omm_pool *pool) {
    omm_model outline;
    OMM_TRY(model_outline_rows(&outline, gguf));
    wait_for_tick(gguf);
    omm_err err = make(gguf, &outline, model, pool);
    omm_model_fini(&outline);
    return err;
}

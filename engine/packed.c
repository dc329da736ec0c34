/* packed.c - see omm/packed.h. */
#include "omm/packed.h"

#include "omm/clock.h"
#include "omm/file_in.h"
#include "omm/gguf.h"
#include "omm/hash.h"
#include "omm/mem.h"
#include "packed_internal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Of the strips in quant.h and the order here: packed_test has a digest of both. */
#define VERSION 1u
#define PAGE 4096u
#define DIGITS 16u /* of the state's digest, in the name */
#define ENDING ".packed"
#define TEMPORARY ".tmp." /* omm_file_out_open */
#define READ_BY_OTHERS 004u
#define RIGHTS_OF_OTHERS 066u /* and of a group: to read, to write */
/* A file that is changed twice within a tick of the clock that it is stamped by has one time for both.  Longer than
 * that of a system, and of the file systems that keep whole seconds (FAT: every second one). */
#define TICK_MS 50
#define TICK_OF_SECONDS_MS 2000
#define NS_PER_MS 1000000
#define ABANDONED_MS ((int64_t)24 * 3600 * 1000)

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

static const omm_file_state *state_of(const omm_gguf *gguf, uint32_t part) {
    return part == 0 ? &gguf->map.state : &gguf->more[part - 1].state;
}

static omm_err part_path(char out[OMM_PATH_MAX], const omm_gguf *gguf, const char *model,
                         uint32_t part) {
    if (gguf->part_count > 1) return omm_gguf_part_path(out, model, part, gguf->part_count);
    return omm_path_join(out, "", model);
}

static omm_digest state_digest(const omm_gguf *gguf) {
    omm_hasher h;
    omm_hasher_init(&h);
    for (uint32_t i = 0; i < gguf->part_count; i++) {
        uint8_t bytes[4 * 8];
        const omm_file_state *s = state_of(gguf, i);
        omm_put_u64(bytes, s->inode);
        omm_put_u64(bytes + 8, s->bytes);
        omm_put_u64(bytes + 16, s->modified_ns);
        omm_put_u64(bytes + 24, s->changed_ns);
        omm_hasher_update(&h, omm_bytes_of(bytes, sizeof bytes));
    }
    return omm_hasher_final(&h);
}

static void header_of(uint8_t out[PAGE], const omm_gguf *gguf, size_t bytes) {
    const omm_digest state = state_digest(gguf);
    memset(out, 0, PAGE);
    memcpy(out, s_magic, sizeof s_magic);
    omm_put_u32(out + 8, VERSION);
    omm_put_u32(out + 12, gguf->part_count);
    omm_put_u64(out + 16, bytes);
    memcpy(out + 24, state.b, sizeof state.b);
}

/* Where the copy of a model is, and how those of its other states are named. */
typedef struct place {
    char path[OMM_PATH_MAX];
    char folder[OMM_PATH_MAX];
    char first[OMM_PATH_MAX]; /* path of the model's first file */
    const char *stem;         /* its name, in `first` */
} place;

static omm_err place_of(place *out, const omm_gguf *gguf, const char *model) {
    char hex[OMM_DIGEST_HEX_SIZE];
    const omm_digest state = state_digest(gguf);
    OMM_TRY(part_path(out->first, gguf, model, 0));
    OMM_TRY(omm_path_dir(out->folder, out->first));
    const char *slash = strrchr(out->first, '/');
    out->stem = slash ? slash + 1 : out->first;
    omm_digest_hex(hex, &state);
    const int size =
        snprintf(out->path, sizeof out->path, "%s.%.*s%s", out->first, (int)DIGITS, hex, ENDING);
    if (size > 0 && size < (int)sizeof out->path) return OMM_OK;
    return omm_raise(OMM_ERR_TOO_BIG, "path too long for a packed copy: %.200s...", out->first);
}

/* Behind "<stem>.<16 digits>.packed"; NULL: the name does not begin so. */
static const char *behind_name(const char *name, const char *stem) {
    const size_t size = strlen(stem), ending = strlen(ENDING);
    if (strncmp(name, stem, size) != 0 || name[size] != '.') return NULL;
    const char *digits = name + size + 1;
    if (strspn(digits, "0123456789abcdef") != DIGITS) return NULL;
    return strncmp(digits + DIGITS, ENDING, ending) == 0 ? digits + DIGITS + ending : NULL;
}

/* ---- whose it is ----------------------------------------------------------------------------- */

/* What all of the model's files give. */
static uint32_t rights_of(const omm_gguf *gguf) {
    uint32_t rights = 0777;
    for (uint32_t i = 0; i < gguf->part_count; i++) rights &= state_of(gguf, i)->mode;
    return rights;
}

/* Who owns all of the model may change that as well, and root whatever there is. */
static bool is_trusted(uint32_t owner, const omm_gguf *gguf) {
    bool owns_all = true;
    for (uint32_t i = 0; i < gguf->part_count; i++)
        owns_all = owns_all && state_of(gguf, i)->owner == owner;
    return owns_all || owner == 0 || owner == geteuid();
}

/* Nobody writes to it who could not write to the model, and nobody reads it who could not read that. */
static omm_err check_owner(const omm_file_state *s, const omm_gguf *gguf, const char *path) {
    const uint32_t rights = rights_of(gguf);
    if (!is_trusted(s->owner, gguf))
        return omm_raise(
            OMM_ERR_STATE,
            "%s belongs to user %u: neither the model's owner, nor this user, nor root", path,
            s->owner);
    if ((s->mode & ~rights & RIGHTS_OF_OTHERS) == 0) return OMM_OK;
    return omm_raise(OMM_ERR_MISMATCH, "%s has rights %03o, and the model %03o", path, s->mode,
                     rights);
}

/* A group of ours need not be the model's. */
static unsigned mode_of(const omm_gguf *gguf) {
    const uint32_t rights = rights_of(gguf);
    return 0600u | (rights & READ_BY_OTHERS ? rights & 044u : 0u);
}

/* ---- opening --------------------------------------------------------------------------------- */

static omm_err check_header(const omm_packed *p, const omm_gguf *gguf) {
    uint8_t want[PAGE];
    const omm_bytes view = p->map.view;
    if (view.size < PAGE || memcmp(view.data, s_magic, sizeof s_magic) != 0)
        return omm_raise(OMM_ERR_FORMAT, "%s is no packed copy of a model", p->path);
    if (omm_get_u32(view.data + 8) != VERSION)
        return omm_raise(OMM_ERR_VERSION, "%s has version %u of packed copies: this program has %u",
                         p->path, omm_get_u32(view.data + 8), VERSION);
    if (omm_get_u64(view.data + 16) != view.size)
        return omm_raise(OMM_ERR_SIZE, "%s has %zu bytes, and says %llu", p->path, view.size,
                         (unsigned long long)omm_get_u64(view.data + 16));
    header_of(want, gguf, view.size);
    if (memcmp(want, view.data, PAGE) == 0) return OMM_OK;
    return omm_raise(OMM_ERR_FORMAT, "%s has another header than a copy of this model", p->path);
}

static omm_err open_at(omm_packed *out, const char *path, const omm_gguf *gguf) {
    snprintf(out->path, sizeof out->path, "%s", path);
    omm_err err = omm_map_open_itself(&out->map, path);
    if (err == OMM_OK) err = check_owner(&out->map.state, gguf, path);
    if (err == OMM_OK) err = check_header(out, gguf);
    if (err == OMM_OK)
        omm_map_prefer_huge(&out->map);
    else
        omm_map_close(&out->map);
    return err;
}

omm_err omm_packed_open(omm_packed *out, const omm_gguf *gguf, const char *model) {
    place p;
    *out = (omm_packed){0};
    OMM_TRY(place_of(&p, gguf, model));
    omm_err err = open_at(out, p.path, gguf);
    return err == OMM_ERR_NOT_FOUND ? omm_raise(err, "%s has no packed copy", model) : err;
}

bool omm_packed_is_void(omm_err err) {
    return err == OMM_ERR_NOT_FOUND || err == OMM_ERR_FORMAT || err == OMM_ERR_VERSION ||
           err == OMM_ERR_SIZE || err == OMM_ERR_MISMATCH;
}

void omm_packed_close(omm_packed *packed) {
    omm_map_close(&packed->map);
    packed->path[0] = 0;
}

/* ---- what is there already ------------------------------------------------------------------- */

static int64_t age_ms(const omm_file_state *s) {
    const omm_clock clock = omm_clock_system();
    return (int64_t)clock.wall_ms(clock.ud) - (int64_t)(s->changed_ns / NS_PER_MS);
}

/* Copies of states that have passed, and what somebody was killed at. */
static omm_err remove_old(void *ud, const char *name) {
    const place *p = (const place *)ud;
    const char *behind = behind_name(name, p->stem);
    char path[OMM_PATH_MAX];
    omm_map map;
    if (!behind) return OMM_OK;
    OMM_TRY(omm_path_join(path, p->folder, name));
    if (omm_file_same(path, p->path) || omm_map_open_itself(&map, path) != OMM_OK) return OMM_OK;
    const bool is_copy =
        map.view.size >= PAGE && memcmp(map.view.data, s_magic, sizeof s_magic) == 0;
    const bool is_abandoned =
        strncmp(behind, TEMPORARY, strlen(TEMPORARY)) == 0 && age_ms(&map.state) > ABANDONED_MS;
    omm_map_close(&map);
    return is_copy && (!*behind || is_abandoned) ? omm_file_remove(path) : OMM_OK;
}

/* A wish: what cannot be removed is in nobody's way but the disk's. */
static void sweep(place *p) {
    const omm_err ignored = omm_dir_names(p->folder, remove_old, p);
    (void)ignored;
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
    OMM_TRY(
        omm_gguf_of_tensor(omm_matrix_pack_with(&packed, pool, m->format, m->rows, m->cols, rows),
                           omm_gguf_tensor_at(gguf, rows)->name));
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

static omm_err write_all(omm_file_out *file, omm_model *outline, const omm_gguf *gguf,
                         omm_pool *pool) {
    uint8_t header[PAGE];
    omm_bytes *rows = NULL;
    const size_t bytes = copy_bytes(outline);
    header_of(header, gguf, bytes);
    OMM_TRY(omm_file_out_reserve(file, bytes));
    OMM_TRY(omm_file_out_write(file, omm_bytes_of(header, sizeof header)));
    for (size_t i = 0;; i++) {
        const omm_matrix *m = matrix_at(&rows, outline, i);
        if (!m) return OMM_OK;
        OMM_TRY(write_matrix(file, gguf, m, rows_of(gguf, i, rows), pool));
    }
}

/* Are the files at their paths still those that are open?  Then what was packed is what their states stand for. */
static omm_err check_states(const omm_gguf *gguf, const char *model) {
    for (uint32_t i = 0; i < gguf->part_count; i++) {
        char path[OMM_PATH_MAX];
        omm_file_state now;
        const omm_file_state *then = state_of(gguf, i);
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
        const omm_file_state *s = state_of(gguf, i);
        const int64_t tick = s->changed_ns % 1000000000 == 0 ? TICK_OF_SECONDS_MS : TICK_MS;
        const int64_t age = age_ms(s);
        if (age <= tick) clock.sleep_ms(clock.ud, (uint64_t)(age < 0 ? tick : tick - age + 1));
    }
}

/* What would be refused is not even begun: file systems have rights of their own. */
static omm_err make_at(const place *p, const omm_gguf *gguf, omm_model *outline, const char *model,
                       omm_pool *pool) {
    omm_file_out file;
    omm_file_state state;
    OMM_TRY(omm_file_out_open(&file, p->path, mode_of(gguf)));
    omm_err err = omm_file_out_state(&state, &file);
    if (err == OMM_OK) err = check_owner(&state, gguf, p->path);
    if (err == OMM_OK) err = write_all(&file, outline, gguf, pool);
    if (err == OMM_OK) err = check_states(gguf, model);
    if (err == OMM_OK) err = omm_file_out_finish(&file, true);
    omm_file_out_close(&file);
    return err;
}

static omm_err make(omm_packed *out, place *p, const omm_gguf *gguf, const char *model,
                    omm_pool *pool) {
    omm_model outline;
    omm_err err = open_at(out, p->path, gguf); /* another program may have made it just now */
    if (err == OMM_OK || !omm_packed_is_void(err)) return err;
    OMM_TRY(model_outline_rows(&outline, gguf));
    sweep(p);
    wait_for_tick(gguf);
    err = make_at(p, gguf, &outline, model, pool);
    omm_model_fini(&outline);
    return err == OMM_OK ? open_at(out, p->path, gguf) : err;
}

/* By one program at a time; the others do without meanwhile. */
static omm_err make_held(omm_packed *out, place *p, const omm_gguf *gguf, const char *model,
                         omm_pool *pool) {
    omm_file_in held;
    OMM_TRY(omm_file_in_open(&held, p->first));
    omm_err err = omm_file_hold(held.fd) ? make(out, p, gguf, model, pool)
                                         : omm_raise(OMM_ERR_STATE, "another program makes it now");
    omm_file_in_close(&held);
    return err;
}

static bool is_in(const char *folder, const char *above) {
    const size_t size = strlen(above);
    return strncmp(folder, above, size) == 0 && (folder[size] == 0 || folder[size] == '/');
}

omm_err omm_packed_make(omm_packed *out, const omm_gguf *gguf, const char *model, omm_pool *pool) {
    place p;
    *out = (omm_packed){0};
    OMM_TRY(place_of(&p, gguf, model));
    if (is_in(p.folder, "/dev") || is_in(p.folder, "/proc"))
        return omm_raise(OMM_ERR_IO, "%s keeps no files", p.folder);
    return make_held(out, &p, gguf, model, pool);
}

/* rebuild.c - from the log to what a power cut may leave. */
#include "disk.h"
#include "trace.h"

#include "omm/rng.h"
#include "omm_test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECTOR 512u

typedef struct content {
    uint8_t *data;
    size_t size;
} content;

/* An entry of a folder. */
typedef struct entry {
    uint32_t folder, object;
    const char *name;
} entry;

struct disk_state {
    const trace_op *ops;
    const trace_object *objects;
    uint64_t count;
    uint32_t object_count;
    uint64_t *synced; /* (object_count) the last sync of each, as index + 1 */
    content *files;   /* (object_count) */
    entry *entries;
    size_t entry_count;
    disk_loss loss;
    omm_rng lane;
    uint64_t drawn;
    bool (*loses)(void *ud, const char *name);
    void *ud;
};

static bool toss(disk_state *r) {
    return omm_rng_below(&r->lane, r->drawn++, 2) == 1;
}

static bool is_data(const trace_op *op) {
    return op->kind == TRACE_WRITE || op->kind == TRACE_CUT;
}

/* The folder right below the watched one that the operation is about. */
static const char *top_of(const disk_state *r, const trace_op *op) {
    const char *top = r->objects[op->object].top;
    return top[0] || is_data(op) ? top : op->name;
}

/* Is the operation lost?  A write that may be torn is not asked about here. */
static bool is_lost(disk_state *r, uint64_t index) {
    const trace_op *op = &r->ops[index];
    if (index < r->synced[op->object] || !r->loses(r->ud, top_of(r, op))) return false;
    switch (r->loss) {
    case DISK_LOSE_NOTHING: return false;
    case DISK_LOSE_UNSYNCED: return true;
    case DISK_LOSE_DATA: return is_data(op);
    case DISK_LOSE_NAMES: return !is_data(op);
    case DISK_LOSE_SOME: return toss(r);
    }
    return false;
}

/* ---- files ---- */

static void resize(content *c, size_t size) {
    uint8_t *data = realloc(c->data, size ? size : 1);
    CHECK(data);
    if (size > c->size) memset(data + c->size, 0, size - c->size);
    *c = (content){data, size};
}

static void write_part(content *c, const trace_op *op, size_t from, size_t size) {
    size_t end = (size_t)op->offset + from + size;
    if (size == 0) return;
    if (end > c->size) resize(c, end);
    CHECK(c->data);
    memcpy(c->data + op->offset + from, op->data + from, size);
}

static void do_write(disk_state *r, uint64_t index) {
    const trace_op *op = &r->ops[index];
    content *c = &r->files[op->object];
    bool is_torn = r->loss == DISK_LOSE_SOME && index >= r->synced[op->object] &&
                   r->loses(r->ud, top_of(r, op)) && toss(r);
    if (!is_torn) {
        if (!is_lost(r, index)) write_part(c, op, 0, op->size);
        return;
    }
    for (size_t at = 0; at < op->size;) { /* sectors of the file */
        size_t size = SECTOR - (size_t)(op->offset + at) % SECTOR;
        if (size > op->size - at) size = op->size - at;
        if (toss(r)) write_part(c, op, at, size);
        at += size;
    }
}

/* ---- folders ---- */

static void drop_entry(disk_state *r, uint32_t folder, const char *name) {
    for (size_t i = 0; i < r->entry_count; i++) {
        CHECK(r->entries[i].name);
        if (r->entries[i].folder == folder && strcmp(r->entries[i].name, name) == 0) {
            r->entries[i] = r->entries[--r->entry_count];
            return;
        }
    }
}

static void put_entry(disk_state *r, uint32_t folder, const char *name, uint32_t object) {
    drop_entry(r, folder, name);
    r->entries[r->entry_count++] = (entry){folder, object, name};
}

static void do_op(disk_state *r, uint64_t index) {
    const trace_op *op = &r->ops[index];
    if (op->kind == TRACE_WRITE) {
        do_write(r, index);
        return;
    }
    if (op->kind == TRACE_SYNC || is_lost(r, index)) return;
    if (op->kind == TRACE_CUT) resize(&r->files[op->object], (size_t)op->offset);
    if (op->kind == TRACE_UNNAME || op->kind == TRACE_RENAME) drop_entry(r, op->object, op->name);
    if (op->kind == TRACE_NAME) put_entry(r, op->object, op->name, op->other);
    if (op->kind == TRACE_RENAME) put_entry(r, op->object, op->to, op->other);
}

/* ---- onto the real disk ---- */

void disk_folder(char out[64]) {
    (void)snprintf(out, 64, "/dev/shm/omm-fault-XXXXXX");
    if (mkdtemp(out)) return;
    (void)snprintf(out, 64, "/tmp/omm-fault-XXXXXX");
    CHECK(mkdtemp(out));
}

bool disk_everything(void *ud, const char *name) {
    (void)ud;
    (void)name;
    return true;
}

static void put_file(const char *path, const content *c) {
    FILE *f = fopen(path, "wb");
    CHECK(f);
    CHECK(c->size == 0 || fwrite(c->data, 1, c->size, f) == c->size);
    CHECK(fclose(f) == 0);
}

static void put_folder(const disk_state *r, uint32_t folder, const char *path) {
    char inside[TRACE_PATH_MAX];
    for (size_t i = 0; i < r->entry_count; i++) {
        const entry *e = &r->entries[i];
        if (e->folder != folder) continue;
        CHECK(snprintf(inside, sizeof inside, "%s/%s", path, e->name) < (int)sizeof inside);
        if (!r->objects[e->object].is_folder) {
            put_file(inside, &r->files[e->object]);
            continue;
        }
        CHECK(mkdir(inside, 0755) == 0);
        put_folder(r, e->object, inside);
    }
}

void disk_put(const disk_state *state, const char *into) {
    put_folder(state, 0, into);
}

/* ---- equal states ---- */

static uint32_t get_u32_be(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Of an SQLite log: what comes after its last frame that ends a transaction is never read again, so
 * it is no part of the state.  Format: 32 bytes of header, the page size at 8 and two salts at 16;
 * frames of a header of 24 bytes, that end a transaction where the word at 4 is not 0 and count where
 * the salts at 8 are those of the log, and a page.  https://sqlite.org/fileformat2.html#walformat */
static size_t log_size(const content *c) {
    if (c->size < 32) return c->size;
    const size_t frame = 24 + (size_t)get_u32_be(c->data + 8);
    size_t size = 32;
    for (size_t at = 32; at + frame <= c->size; at += frame)
        if (get_u32_be(c->data + at + 4) != 0 && memcmp(c->data + at + 8, c->data + 16, 8) == 0)
            size = at + frame;
    return size;
}

static bool ends_with(const char *text, const char *end) {
    const size_t size = strlen(text), tail = strlen(end);
    return size >= tail && strcmp(text + size - tail, end) == 0;
}

static void add_digest(omm_digest *sum, const char *path, const content *c, size_t size) {
    omm_hasher h;
    omm_hasher_init(&h);
    omm_hasher_update(&h, omm_bytes_of(path, strlen(path) + 1));
    if (c) omm_hasher_update(&h, omm_bytes_of(c->data, size));
    const omm_digest one = omm_hasher_final(&h);
    for (size_t i = 0; i < sizeof sum->b; i++) sum->b[i] ^= one.b[i];
}

static void digest_folder(omm_digest *sum, const disk_state *r, uint32_t folder, const char *path) {
    char inside[TRACE_PATH_MAX];
    for (size_t i = 0; i < r->entry_count; i++) {
        const entry *e = &r->entries[i];
        if (e->folder != folder) continue;
        CHECK(snprintf(inside, sizeof inside, "%s/%s", path, e->name) < (int)sizeof inside);
        if (r->objects[e->object].is_folder) {
            add_digest(sum, inside, NULL, 0);
            digest_folder(sum, r, e->object, inside);
            continue;
        }
        const content *c = &r->files[e->object];
        add_digest(sum, inside, c, ends_with(inside, "-wal") ? log_size(c) : c->size);
    }
}

omm_digest disk_digest(const disk_state *state) {
    omm_digest sum = {{0}};
    digest_folder(&sum, state, 0, "");
    return sum;
}

/* ---- from the log ---- */

disk_state *disk_make(uint64_t count, disk_loss loss, uint64_t seed,
                      bool (*loses)(void *ud, const char *name), void *ud) {
    const omm_seed draw = omm_seed_from_u64(seed);
    disk_state *r = calloc(1, sizeof *r);
    CHECK(r);
    *r = (disk_state){.loss = loss,
                      .loses = loses,
                      .ud = ud,
                      .lane = omm_rng_init(&draw, OMM_PURPOSE_TEST, 0, 0)};
    r->ops = trace_ops(&r->count);
    r->objects = trace_objects(&r->object_count);
    CHECK(count <= r->count);
    r->count = count;
    r->synced = calloc(r->object_count, sizeof *r->synced);
    r->files = calloc(r->object_count, sizeof *r->files);
    r->entries = calloc(count + 1, sizeof *r->entries);
    CHECK(r->synced && r->files && r->entries);
    for (uint64_t i = 0; i < count; i++)
        if (r->ops[i].kind == TRACE_SYNC) r->synced[r->ops[i].object] = i + 1;
    for (uint64_t i = 0; i < count; i++) do_op(r, i);
    return r;
}

void disk_free(disk_state *state) {
    for (uint32_t i = 0; i < state->object_count; i++) free(state->files[i].data);
    free(state->synced);
    free(state->files);
    free(state->entries);
    free(state);
}

void disk_rebuild(const char *into, uint64_t count, disk_loss loss, uint64_t seed,
                  bool (*loses)(void *ud, const char *name), void *ud) {
    disk_state *state = disk_make(count, loss, seed, loses, ud);
    disk_put(state, into);
    disk_free(state);
}

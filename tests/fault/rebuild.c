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

typedef struct rebuild {
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
} rebuild;

static bool toss(rebuild *r) {
    return omm_rng_below(&r->lane, r->drawn++, 2) == 1;
}

static bool is_data(const trace_op *op) {
    return op->kind == TRACE_WRITE || op->kind == TRACE_CUT;
}

/* The folder right below the watched one that the operation is about. */
static const char *top_of(const rebuild *r, const trace_op *op) {
    const char *top = r->objects[op->object].top;
    return top[0] || is_data(op) ? top : op->name;
}

/* Is the operation lost?  A write that may be torn is not asked about here. */
static bool is_lost(rebuild *r, uint64_t index) {
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

static void do_write(rebuild *r, uint64_t index) {
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

static void drop_entry(rebuild *r, uint32_t folder, const char *name) {
    for (size_t i = 0; i < r->entry_count; i++) {
        CHECK(r->entries[i].name);
        if (r->entries[i].folder == folder && strcmp(r->entries[i].name, name) == 0) {
            r->entries[i] = r->entries[--r->entry_count];
            return;
        }
    }
}

static void put_entry(rebuild *r, uint32_t folder, const char *name, uint32_t object) {
    drop_entry(r, folder, name);
    r->entries[r->entry_count++] = (entry){folder, object, name};
}

static void do_op(rebuild *r, uint64_t index) {
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

static void put_file(const char *path, const content *c) {
    FILE *f = fopen(path, "wb");
    CHECK(f);
    CHECK(c->size == 0 || fwrite(c->data, 1, c->size, f) == c->size);
    CHECK(fclose(f) == 0);
}

static void put_folder(const rebuild *r, uint32_t folder, const char *path) {
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

void disk_rebuild(const char *into, uint64_t count, disk_loss loss, uint64_t seed,
                  bool (*loses)(void *ud, const char *name), void *ud) {
    omm_seed draw = omm_seed_from_u64(seed);
    rebuild r = {.loss = loss,
                 .loses = loses,
                 .ud = ud,
                 .lane = omm_rng_init(&draw, OMM_PURPOSE_TEST, 0, 0)};
    r.ops = trace_ops(&r.count);
    r.objects = trace_objects(&r.object_count);
    CHECK(count <= r.count);
    r.count = count;
    r.synced = calloc(r.object_count, sizeof *r.synced);
    r.files = calloc(r.object_count, sizeof *r.files);
    r.entries = calloc(count + 1, sizeof *r.entries);
    CHECK(r.synced && r.files && r.entries);
    for (uint64_t i = 0; i < count; i++)
        if (r.ops[i].kind == TRACE_SYNC) r.synced[r.ops[i].object] = i + 1;
    for (uint64_t i = 0; i < count; i++) do_op(&r, i);
    put_folder(&r, 0, into);
    for (uint32_t i = 0; i < r.object_count; i++) free(r.files[i].data);
    free(r.synced);
    free(r.files);
    free(r.entries);
}

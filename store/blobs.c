/* blobs.c - owns whole blobs by digest, and the chunks of those that are still arriving.
 *
 * A `partial` remembers which chunks of one plan are there; it is built from the folder, hashing
 * each chunk found, when a plan is first asked about after opening.  It is named by all that the
 * plan says and by its owner: what one peer announces never meets the chunks of another, even where
 * both claim to be sending the same blob. */
#include "omm/blobs.h"

#include "internal.h"
#include "omm/mem.h"
#include "small.h"

#include <stdio.h>
#include <string.h>

#define NAME_SIZE 96u

typedef struct partial {
    omm_digest name; /* omm_blob_plan_name */
    size_t chunk_count, have_count;
    bool *have; /* (chunk_count) */
    uint64_t bytes;
} partial;

struct omm_blobs {
    files files;
    small small;
    omm_blobs_options options; /* dir is not kept here */
    uint64_t total;            /* of the files */
    partial *partials;
    size_t partial_count, partial_capacity;
};

static void blob_name(char out[NAME_SIZE], const omm_digest *digest) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, digest);
    snprintf(out, NAME_SIZE, "blobs/%.2s/%s", hex, hex);
}

static void partial_name(char out[NAME_SIZE], const omm_digest *name) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, name);
    snprintf(out, NAME_SIZE, "partial/%s", hex);
}

static void chunk_name(char out[NAME_SIZE], const omm_digest *name, size_t index) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, name);
    snprintf(out, NAME_SIZE, "partial/%s/%06zu", hex, index);
}

omm_err omm_blobs_open(omm_blobs **out, const omm_blobs_options *options) {
    omm_blobs *blobs = omm_alloc(1, sizeof *blobs);
    if (!blobs) return omm_raise(OMM_ERR_NOMEM, "no memory for a blob store");
    blobs->options = *options;
    blobs->options.dir = NULL;
    omm_err err = files_open(&blobs->files, options->dir, options->durable);
    if (err == OMM_OK) err = files_total(&blobs->total, &blobs->files);
    if (err == OMM_OK) err = small_open(&blobs->small, options->db, options->small_bytes_max);
    if (err != OMM_OK) {
        omm_blobs_close(blobs);
        return err;
    }
    *out = blobs;
    return OMM_OK;
}

void omm_blobs_close(omm_blobs *blobs) {
    if (!blobs) return;
    for (size_t i = 0; i < blobs->partial_count; i++) omm_free(blobs->partials[i].have);
    omm_free(blobs->partials);
    files_close(&blobs->files);
    omm_free(blobs);
}

uint64_t omm_blobs_total(const omm_blobs *blobs) {
    return blobs->total + blobs->small.total;
}

omm_err omm_blobs_undone(omm_blobs *blobs) {
    return small_count(&blobs->small);
}

static bool has_room(const omm_blobs *blobs, uint64_t bytes) {
    uint64_t max = blobs->options.total_bytes_max;
    uint64_t total = omm_blobs_total(blobs);
    return max == 0 || (total <= max && bytes <= max - total);
}

/* ---- whole blobs ---- */

static omm_err put_whole(omm_blobs *blobs, const omm_digest *digest, omm_bytes data) {
    char name[NAME_SIZE];
    if (small_takes(&blobs->small, data.size)) return small_put(&blobs->small, digest, data);
    blob_name(name, digest);
    OMM_TRY(files_write(&blobs->files, name, data));
    blobs->total += data.size;
    return OMM_OK;
}

omm_err omm_blobs_put(omm_digest *digest, omm_blobs *blobs, omm_bytes data) {
    if (data.size > blobs->options.blob_bytes_max) {
        return omm_raise(OMM_ERR_TOO_BIG, "blob has %zu bytes, at most %llu are kept", data.size,
                         (unsigned long long)blobs->options.blob_bytes_max);
    }
    omm_digest d = omm_hash(data);
    bool has = false;
    OMM_TRY(omm_blobs_has(&has, blobs, &d));
    if (!has) {
        if (!has_room(blobs, data.size)) {
            return omm_raise(OMM_ERR_TOO_BIG, "store holds %llu bytes, %zu more is over its limit",
                             (unsigned long long)omm_blobs_total(blobs), data.size);
        }
        OMM_TRY(put_whole(blobs, &d, data));
    }
    if (digest) *digest = d;
    return OMM_OK;
}

/* A row, or else a file: a store that had no rows for small ones before may have both. */
omm_err omm_blobs_size(uint64_t *size, const omm_blobs *blobs, const omm_digest *digest) {
    char name[NAME_SIZE];
    omm_err err = small_size(size, &blobs->small, digest);
    if (err != OMM_ERR_NOT_FOUND) return err;
    blob_name(name, digest);
    return files_size(size, &blobs->files, name);
}

static omm_err read_whole(omm_buf *out, const omm_blobs *blobs, const omm_digest *digest,
                          uint64_t offset, size_t size) {
    char name[NAME_SIZE];
    omm_err err = small_read(out, &blobs->small, digest, offset, size);
    if (err != OMM_ERR_NOT_FOUND) return err;
    blob_name(name, digest);
    return files_read(out, &blobs->files, name, offset, size);
}

omm_err omm_blobs_has(bool *has, const omm_blobs *blobs, const omm_digest *digest) {
    uint64_t size;
    const omm_err err = omm_blobs_size(&size, blobs, digest);
    *has = err == OMM_OK;
    return err == OMM_ERR_NOT_FOUND ? OMM_OK : err;
}

omm_err omm_blobs_get(omm_buf *out, const omm_blobs *blobs, const omm_digest *digest) {
    char name[NAME_SIZE];
    uint64_t size;
    size_t before = out->size;
    OMM_TRY(omm_blobs_size(&size, blobs, digest));
    if (size > blobs->options.blob_bytes_max) {
        return omm_raise(OMM_ERR_TOO_BIG, "blob has %llu bytes, at most %llu are read",
                         (unsigned long long)size,
                         (unsigned long long)blobs->options.blob_bytes_max);
    }
    OMM_TRY(read_whole(out, blobs, digest, 0, (size_t)size));
    omm_digest found = omm_hash(omm_bytes_of(out->data + before, (size_t)size));
    if (omm_digest_equal(&found, digest)) return OMM_OK;
    out->size = before;
    blob_name(name, digest);
    return omm_raise(OMM_ERR_DIGEST, "%s is damaged: its bytes do not have that digest", name);
}

omm_err omm_blobs_get_range(omm_buf *out, const omm_blobs *blobs, const omm_digest *digest,
                            uint64_t offset, size_t size) {
    uint64_t whole;
    OMM_TRY(omm_blobs_size(&whole, blobs, digest));
    if (offset > whole || size > whole - offset) {
        return omm_raise(OMM_ERR_SIZE, "bytes %llu to %llu of a blob of %llu bytes",
                         (unsigned long long)offset, (unsigned long long)offset + size,
                         (unsigned long long)whole);
    }
    return read_whole(out, blobs, digest, offset, size);
}

omm_err omm_blobs_remove(omm_blobs *blobs, const omm_digest *digest) {
    char name[NAME_SIZE];
    uint64_t size;
    OMM_TRY(small_remove(&blobs->small, digest));
    blob_name(name, digest);
    if (files_size(&size, &blobs->files, name) != OMM_OK) return OMM_OK;
    OMM_TRY(files_remove(&blobs->files, name));
    blobs->total -= size;
    return OMM_OK;
}

/* ---- chunks ---- */

static size_t chunk_bytes_at(const omm_blob_plan *plan, size_t index) {
    uint64_t left = plan->size - (uint64_t)index * plan->chunk_bytes;
    return left < plan->chunk_bytes ? (size_t)left : plan->chunk_bytes;
}

static omm_err check_plan(const omm_blobs *blobs, const omm_blob_plan *plan) {
    if (plan->size > blobs->options.blob_bytes_max) {
        return omm_raise(OMM_ERR_REFUSED_SIZE, "blob of %llu bytes, at most %llu are kept",
                         (unsigned long long)plan->size,
                         (unsigned long long)blobs->options.blob_bytes_max);
    }
    if (plan->size == 0 || plan->chunk_bytes == 0) {
        return omm_raise(OMM_ERR_SIZE, "a blob and its chunks have at least one byte");
    }
    uint64_t count = plan->size / plan->chunk_bytes + (plan->size % plan->chunk_bytes != 0);
    if (count == plan->chunk_count && count <= UINT32_MAX) return OMM_OK;
    return omm_raise(OMM_ERR_SIZE, "blob of %llu bytes has %llu chunks, not %zu",
                     (unsigned long long)plan->size, (unsigned long long)count, plan->chunk_count);
}

/* Comes in one piece and is a row: never a partial. */
static bool is_small(const omm_blobs *blobs, const omm_blob_plan *plan) {
    return plan->chunk_count == 1 && small_takes(&blobs->small, plan->size);
}

omm_digest omm_blob_plan_name(const omm_blob_plan *plan) {
    uint8_t sizes[16];
    omm_put_u64(sizes, plan->size);
    omm_put_u64(sizes + 8, plan->chunk_bytes);
    omm_hasher h;
    omm_hasher_init(&h);
    omm_hasher_update(&h, omm_bytes_of(plan->owner.b, sizeof plan->owner.b));
    omm_hasher_update(&h, omm_bytes_of(plan->digest.b, sizeof plan->digest.b));
    omm_hasher_update(&h, omm_bytes_of(sizes, sizeof sizes));
    for (size_t i = 0; i < plan->chunk_count; i++)
        omm_hasher_update(&h, omm_bytes_of(plan->chunk_digests[i].b, sizeof(omm_digest)));
    return omm_hasher_final(&h);
}

static partial *find_partial(const omm_blobs *blobs, const omm_digest *name) {
    for (size_t i = 0; i < blobs->partial_count; i++) {
        if (omm_digest_equal(&blobs->partials[i].name, name)) return &blobs->partials[i];
    }
    return NULL;
}

/* Look for one chunk left by an earlier process; what does not hash right is removed. */
static omm_err recover_chunk(partial *p, omm_blobs *blobs, const omm_blob_plan *plan, size_t index,
                             omm_buf *space) {
    char name[NAME_SIZE];
    uint64_t size;
    chunk_name(name, &p->name, index);
    omm_err err = files_size(&size, &blobs->files, name);
    if (err == OMM_ERR_NOT_FOUND) return OMM_OK;
    OMM_TRY(err);
    omm_buf_clear(space);
    if (size == chunk_bytes_at(plan, index)) {
        OMM_TRY(files_read(space, &blobs->files, name, 0, (size_t)size));
        omm_digest found = omm_hash(omm_buf_view(space));
        if (omm_digest_equal(&found, &plan->chunk_digests[index])) {
            p->have[index] = true;
            p->have_count++;
            p->bytes += size;
            return OMM_OK;
        }
    }
    OMM_TRY(files_remove(&blobs->files, name));
    blobs->total -= size;
    return OMM_OK;
}

static omm_err recover(partial *p, omm_blobs *blobs, const omm_blob_plan *plan) {
    omm_buf space;
    omm_err err = OMM_OK;
    omm_buf_init(&space, plan->chunk_bytes);
    for (size_t i = 0; err == OMM_OK && i < plan->chunk_count; i++) {
        err = recover_chunk(p, blobs, plan, i, &space);
    }
    omm_buf_fini(&space);
    return err;
}

static omm_err partial_room(omm_blobs *blobs) {
    if (blobs->partial_count < blobs->partial_capacity) return OMM_OK;
    size_t capacity = blobs->partial_capacity > 0 ? 2 * blobs->partial_capacity : 8;
    partial *grown = omm_grow(blobs->partials, blobs->partial_capacity, capacity, sizeof *grown);
    if (!grown) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu partial blobs", capacity);
    blobs->partials = grown;
    blobs->partial_capacity = capacity;
    return OMM_OK;
}

/* The record of `plan`, made from what is stored when there is none yet. */
static omm_err open_partial(partial **out, omm_blobs *blobs, const omm_blob_plan *plan) {
    partial p = {.name = omm_blob_plan_name(plan), .chunk_count = plan->chunk_count};
    *out = find_partial(blobs, &p.name);
    if (*out) return OMM_OK;
    OMM_TRY(partial_room(blobs));
    p.have = omm_alloc(plan->chunk_count, sizeof *p.have);
    if (!p.have) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu chunks", plan->chunk_count);
    omm_err err = recover(&p, blobs, plan);
    if (err != OMM_OK) {
        omm_free(p.have);
        return err;
    }
    OMM_ASSERT(blobs->partials != NULL);
    blobs->partials[blobs->partial_count] = p;
    *out = &blobs->partials[blobs->partial_count++];
    return OMM_OK;
}

static void forget_partial(omm_blobs *blobs, partial *p) {
    omm_free(p->have);
    *p = blobs->partials[--blobs->partial_count];
}

omm_err omm_blobs_missing(uint32_t *missing, size_t *missing_count, omm_blobs *blobs,
                          const omm_blob_plan *plan) {
    partial *p;
    OMM_TRY(check_plan(blobs, plan));
    *missing_count = 0;
    bool has = false;
    OMM_TRY(omm_blobs_has(&has, blobs, &plan->digest));
    if (has) return OMM_OK;
    if (is_small(blobs, plan)) {
        missing[(*missing_count)++] = 0;
        return OMM_OK;
    }
    OMM_TRY(open_partial(&p, blobs, plan));
    for (size_t i = 0; i < plan->chunk_count; i++) {
        if (!p->have[i]) missing[(*missing_count)++] = (uint32_t)i;
    }
    /* Killed with all chunks and no blob yet: one more chunk, and put_chunk puts it together. */
    if (*missing_count == 0) missing[(*missing_count)++] = (uint32_t)plan->chunk_count - 1;
    return OMM_OK;
}

static omm_err check_chunk(const omm_blobs *blobs, const omm_blob_plan *plan, uint32_t index,
                           omm_bytes data) {
    if (index >= plan->chunk_count) {
        return omm_raise(OMM_ERR_REFUSED_SIZE, "chunk %u of a blob of %zu chunks", index,
                         plan->chunk_count);
    }
    if (data.size != chunk_bytes_at(plan, index)) {
        return omm_raise(OMM_ERR_REFUSED_SIZE, "chunk %u has %zu bytes, not %zu", index, data.size,
                         chunk_bytes_at(plan, index));
    }
    omm_digest found = omm_hash(data);
    if (!omm_digest_equal(&found, &plan->chunk_digests[index])) {
        return omm_raise(OMM_ERR_REFUSED_DIGEST, "chunk %u does not have its digest", index);
    }
    if (has_room(blobs, data.size)) return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_SIZE, "store holds %llu bytes, chunk %u is over its limit",
                     (unsigned long long)omm_blobs_total(blobs), index);
}

static omm_err read_chunks(omm_buf *out, const omm_blobs *blobs, const omm_blob_plan *plan) {
    char name[NAME_SIZE];
    omm_digest folder = omm_blob_plan_name(plan);
    OMM_TRY(omm_buf_reserve(out, (size_t)plan->size));
    for (size_t i = 0; i < plan->chunk_count; i++) {
        chunk_name(name, &folder, i);
        OMM_TRY(files_read(out, &blobs->files, name, 0, chunk_bytes_at(plan, i)));
    }
    return OMM_OK;
}

/* All chunks are there: make the blob, then forget the chunks.  Killed in between, the next
 * process finds the blob and the chunks, and drops the chunks when it is asked. */
static omm_err put_together(omm_blobs *blobs, const omm_blob_plan *plan) {
    char name[NAME_SIZE];
    omm_buf whole;
    omm_buf_init(&whole, (size_t)plan->size);
    omm_err err = read_chunks(&whole, blobs, plan);
    if (err == OMM_OK) {
        omm_digest found = omm_hash(omm_buf_view(&whole));
        if (!omm_digest_equal(&found, &plan->digest)) {
            OMM_TRY_OUT(omm_blobs_drop_partial(blobs, plan));
            err = omm_raise(OMM_ERR_REFUSED_DIGEST, "the chunks do not make the blob they name");
            goto out;
        }
        blob_name(name, &plan->digest);
        err = files_write(&blobs->files, name, omm_buf_view(&whole));
    }
    if (err == OMM_OK) {
        blobs->total += plan->size;
        err = omm_blobs_drop_partial(blobs, plan);
    }
out:
    omm_buf_fini(&whole);
    return err;
}

/* Its only chunk is the blob, if the plan does not contradict itself. */
static omm_err put_small(bool *complete, omm_blobs *blobs, const omm_blob_plan *plan,
                         uint32_t index, omm_bytes data) {
    bool has = false;
    OMM_TRY(omm_blobs_has(&has, blobs, &plan->digest));
    if (!has) {
        OMM_TRY(check_chunk(blobs, plan, index, data));
        if (!omm_digest_equal(&plan->chunk_digests[0], &plan->digest))
            return omm_raise(OMM_ERR_REFUSED_DIGEST, "the chunks do not make the blob they name");
        OMM_TRY(small_put(&blobs->small, &plan->digest, data));
    }
    *complete = true;
    return OMM_OK;
}

omm_err omm_blobs_put_chunk(bool *complete, omm_blobs *blobs, const omm_blob_plan *plan,
                            uint32_t index, omm_bytes data) {
    char name[NAME_SIZE];
    partial *p;
    OMM_TRY(check_plan(blobs, plan));
    if (is_small(blobs, plan)) return put_small(complete, blobs, plan, index, data);
    bool has = false;
    OMM_TRY(omm_blobs_has(&has, blobs, &plan->digest));
    if (has) {
        OMM_TRY(omm_blobs_drop_partial(blobs, plan));
        *complete = true;
        return OMM_OK;
    }
    OMM_TRY(open_partial(&p, blobs, plan));
    if (index < plan->chunk_count && !p->have[index]) {
        OMM_TRY(check_chunk(blobs, plan, index, data));
        chunk_name(name, &p->name, index);
        OMM_TRY(files_write(&blobs->files, name, data));
        p->have[index] = true;
        p->have_count++;
        p->bytes += data.size;
        blobs->total += data.size;
    } else if (index >= plan->chunk_count) {
        return check_chunk(blobs, plan, index, data);
    }
    bool is_complete = p->have_count == p->chunk_count;
    if (is_complete) OMM_TRY(put_together(blobs, plan));
    *complete = is_complete;
    return OMM_OK;
}

/* After chunks were removed with `err`: of a removal that ended half way only what is left is known, so it is counted. */
static omm_err count_left(omm_blobs *blobs, omm_err err) {
    omm_err counted = files_total(&blobs->total, &blobs->files);
    return err != OMM_OK ? err : counted;
}

omm_err omm_blobs_drop_partial(omm_blobs *blobs, const omm_blob_plan *plan) {
    char name[NAME_SIZE];
    if (is_small(blobs, plan)) return OMM_OK;
    omm_digest folder = omm_blob_plan_name(plan);
    partial *p = find_partial(blobs, &folder);
    partial_name(name, &folder);
    omm_err err = files_remove_under(&blobs->files, name);
    if (!p) return count_left(blobs, err); /* chunks of an earlier process */
    const uint64_t bytes = p->bytes;
    forget_partial(blobs, p);
    if (err != OMM_OK) return count_left(blobs, err);
    blobs->total -= bytes;
    return OMM_OK;
}

omm_err omm_blobs_drop_partials(omm_blobs *blobs) {
    omm_err err = files_remove_under(&blobs->files, "partial");
    while (blobs->partial_count > 0) forget_partial(blobs, &blobs->partials[0]);
    return count_left(blobs, err);
}

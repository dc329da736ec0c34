/* The audit's bookkeeping: failures, counts, and which files have been named by a record. */
#include "internal.h"
#include "omm/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SENTENCE_BYTES 512u

static omm_err make_room(audit *a) {
    size_t rounds = a->ev.round_count;
    a->offers = omm_arena_alloc(&a->arena, rounds + 1, sizeof *a->offers);
    return a->offers ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "no memory for %zu rounds", rounds);
}

omm_err audit_remember_submissions(audit *a) {
    size_t rounds = a->ev.round_count;
    a->submissions = omm_arena_alloc(&a->arena, rounds + 1, sizeof(audit_submission *));
    if (!a->submissions) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu rounds", rounds);
    for (size_t r = 0; r < rounds; r++) {
        size_t count = a->ev.heads[r].accepted_count;
        a->submissions[r] = omm_arena_alloc(&a->arena, count + 1, sizeof **a->submissions);
        if (!a->submissions[r]) return omm_raise(OMM_ERR_NOMEM, "no memory for submissions");
    }
    return OMM_OK;
}

omm_err audit_open(audit *a, const char *dir) {
    memset(a, 0, sizeof *a);
    OMM_TRY(evidence_load(&a->ev, dir));
    omm_arena_init(&a->arena, BUNDLE_ARENA_BYTES_MAX);
    omm_err err = make_room(a);
    if (err != OMM_OK) audit_close(a);
    return err;
}

void audit_close(audit *a) {
    omm_free(a->residuals);
    omm_arena_fini(&a->arena);
    evidence_fini(&a->ev);
}

void audit_fail(audit *a, const char *path, const char *fmt, ...) {
    char sentence[SENTENCE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, args);
    va_end(args);
    a->failures++;
    if (a->fail) a->fail(a->ud, path, sentence);
}

const omm_round_record *audit_round(audit *a, size_t r) {
    const omm_round_record *round = NULL;
    omm_err err = evidence_round(&round, &a->ev, r);
    if (err == OMM_OK) return round;
    audit_fail(a, "rounds.jsonl", "%s", omm_err_sentence());
    a->fatal = err;
    return NULL;
}

bool audit_expect(audit *a, omm_err err, const char *path) {
    a->items++;
    if (err == OMM_OK) return true;
    if (err == OMM_ERR_NOMEM) a->fatal = err;
    audit_fail(a, path, "%s", omm_err_sentence());
    return false;
}

static audit_file *find_file(audit *a, const char *path) {
    size_t low = 0;
    size_t high = a->file_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = strcmp(a->files[mid].path, path);
        if (order == 0) return &a->files[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

void audit_name(audit *a, const char *path) {
    audit_file *file = find_file(a, path);
    if (file) file->named = true;
}

bool audit_is_named(audit *a, const char *path) {
    const audit_file *file = find_file(a, path);
    return file && file->named;
}

bool audit_read(audit *a, omm_buf *out, const char *path) {
    omm_err err = omm_bundle_file_read(out, a->ev.dir, path);
    audit_name(a, path);
    if (err == OMM_ERR_NOT_FOUND)
        err = omm_raise(OMM_ERR_NOT_FOUND, "missing, though a record names it");
    return audit_expect(a, err, path);
}

omm_digest audit_blob_digest(const omm_blob *blob) {
    omm_hasher h;
    uint8_t size[8];
    omm_put_u64(size, blob->size);
    omm_hasher_init(&h);
    omm_hasher_update(&h, omm_bytes_of(size, sizeof size));
    omm_hasher_update(&h, omm_bytes_of(blob->digest.b, sizeof blob->digest.b));
    for (size_t i = 0; i < blob->chunk_count; i++)
        omm_hasher_update(&h, omm_bytes_of(blob->chunk_digests[i].b, 32));
    return omm_hasher_final(&h);
}

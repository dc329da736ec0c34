/* The bundle as files: what lies there, what the manifest says, and who signed the manifest. */
#include "verify_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 4u /* the table has two levels */

/* A file of holes may take hours to read, and no disk: over its limit nothing is read. */
static omm_err add_found(verifier *v, const char *path, const struct stat *st) {
    const uint64_t bytes = (uint64_t)st->st_size;
    uint64_t bytes_max = 0;
    if (omm_bundle_classify(&bytes_max, path) != OMM_BUNDLE_UNKNOWN && bytes > bytes_max)
        v->safe_to_read = false;
    if (v->found_count == v->found_capacity) {
        size_t capacity = v->found_capacity ? 2 * v->found_capacity : 64;
        if (capacity > 2 * (size_t)FOUND_FILES_MAX)
            return omm_raise(OMM_ERR_TOO_BIG, "more than %u files", FOUND_FILES_MAX);
        found_file *found = omm_grow(v->found, v->found_capacity, capacity, sizeof *found);
        if (!found) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu files", capacity);
        v->found = found;
        v->found_capacity = capacity;
    }
    char *copy = omm_arena_strdup(v->arena, path);
    if (!copy) return omm_raise(OMM_ERR_NOMEM, "no memory for a path");
    v->found[v->found_count++] = (found_file){copy, omm_file_state_of(st)};
    return OMM_OK;
}

static omm_err walk(verifier *v, int folder, const char *prefix, unsigned depth);

/* One entry; symbolic links and special files are reported and never opened. */
static omm_err visit(verifier *v, int folder, const char *prefix, const char *name,
                     unsigned depth) {
    char path[OMM_PATH_MAX];
    struct stat st;
    int size = snprintf(path, sizeof path, "%s%s%s", prefix, prefix[0] ? "/" : "", name);
    if (size < 0 || (size_t)size >= sizeof path)
        return omm_raise(OMM_ERR_TOO_BIG, "a path is too long");
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return omm_raise(OMM_ERR_IO, "stat %s: %s", path, strerror(errno));
    if (S_ISREG(st.st_mode)) return add_found(v, path, &st);
    if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX) {
        int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) return omm_raise(OMM_ERR_IO, "open %s: %s", path, strerror(errno));
        return walk(v, fd, path, depth + 1);
    }
    v->safe_to_read = false;
    audit_fail(v->a, path, "%s",
               S_ISLNK(st.st_mode)   ? "is a symbolic link"
               : S_ISDIR(st.st_mode) ? "is a folder where none belongs"
                                     : "is no plain file");
    return OMM_OK;
}

/* Takes over `folder`.  Of an empty one no manifest speaks, and no seal leaves one: it was added. */
static omm_err walk(verifier *v, int folder, const char *prefix, unsigned depth) {
    DIR *dir = fdopendir(folder);
    if (!dir) {
        omm_err err = omm_raise(OMM_ERR_IO, "open %s: %s", prefix, strerror(errno));
        close(folder);
        return err;
    }
    omm_err err = OMM_OK;
    bool is_empty = true;
    while (err == OMM_OK) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry) {
            if (errno != 0) err = omm_raise(OMM_ERR_IO, "read %s: %s", prefix, strerror(errno));
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        is_empty = false;
        err = visit(v, folder, prefix, entry->d_name, depth);
    }
    closedir(dir);
    if (err == OMM_OK && is_empty && depth > 0)
        audit_fail(v->a, prefix, "is an empty folder, and a bundle has none");
    return err;
}

static int compare_found(const void *a, const void *b) {
    return strcmp(((const found_file *)a)->path, ((const found_file *)b)->path);
}

omm_err verifier_walk(verifier *v) {
    int fd = open(v->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return omm_raise(errno == ENOENT || errno == ENOTDIR ? OMM_ERR_NOT_FOUND : OMM_ERR_IO,
                         "%s: %s", v->dir, strerror(errno));
    v->safe_to_read = true;
    OMM_TRY(walk(v, fd, "", 0));
    if (v->found_count) qsort(v->found, v->found_count, sizeof *v->found, compare_found);
    return OMM_OK;
}

/* --- whether it stays so --- */

omm_digest verifier_state(const verifier *v) {
    omm_hasher h;
    omm_hasher_init(&h);
    for (size_t i = 0; i < v->found_count; i++) {
        const found_file *f = &v->found[i];
        uint8_t numbers[24];
        omm_put_u64(numbers, f->state.bytes);
        omm_put_u64(numbers + 8, f->state.modified_ns);
        omm_put_u64(numbers + 16, f->state.changed_ns);
        omm_hasher_update(&h, omm_bytes_of(f->path, strlen(f->path) + 1));
        omm_hasher_update(&h, omm_bytes_of(numbers, sizeof numbers));
    }
    return omm_hasher_final(&h);
}

static bool is_as_found(const verifier *v, const found_file *f) {
    char full[OMM_PATH_MAX];
    struct stat st;
    if (omm_path_join(full, v->dir, f->path) != OMM_OK || lstat(full, &st) != 0) return false;
    const omm_file_state now = omm_file_state_of(&st), *then = &f->state;
    return S_ISREG(st.st_mode) && now.bytes == then->bytes &&
           now.modified_ns == then->modified_ns && now.changed_ns == then->changed_ns;
}

omm_err verifier_check_unchanged(const verifier *v) {
    const omm_digest state = verifier_state(v);
    for (size_t i = 0; i < v->found_count; i++)
        if (!is_as_found(v, &v->found[i]))
            return omm_raise(OMM_ERR_IO, "%s changed while the bundle was verified",
                             v->found[i].path);
    return omm_bundle_check_unchanged(&state, v->dir); /* no other has come */
}

omm_err omm_bundle_check_unchanged(const omm_digest *state, const char *dir) {
    audit a = {0}; /* what it says of links and the like is of no matter here */
    omm_arena arena;
    verifier v = {.dir = dir, .a = &a, .arena = &arena};
    omm_arena_init(&arena, REPORT_ARENA_BYTES_MAX);
    omm_err err = verifier_walk(&v);
    const omm_digest is = verifier_state(&v);
    if (err == OMM_OK && !omm_digest_equal(&is, state))
        err = omm_raise(OMM_ERR_IO, "%s: a file in it has changed since it was verified", dir);
    omm_free(v.found);
    omm_arena_fini(&arena);
    return err;
}

/* --- what the manifest says --- */

/* It was added; where no check reads it, it costs nothing. */
static void note_extra(verifier *v, const char *path) {
    const omm_bundle_class class = omm_bundle_classify(NULL, path);
    if (class == OMM_BUNDLE_MANIFEST) return;
    audit_fail(v->a, path, "is not in the manifest");
    v->has_more |= class != OMM_BUNDLE_UNKNOWN;
}

static void compare_sizes(verifier *v, manifest_file *listed, uint64_t bytes) {
    listed->is_there = bytes == listed->bytes;
    v->has_more |= bytes > listed->bytes;
    if (!listed->is_there)
        audit_fail(v->a, listed->path, "has %llu bytes, and the manifest says %llu",
                   (unsigned long long)bytes, (unsigned long long)listed->bytes);
}

/* Both lists are ascending: one pass finds what is extra and what is missing. */
static void merge_lists(verifier *v) {
    size_t i = 0;
    size_t k = 0;
    while (i < v->found_count || k < v->m.file_count) {
        const char *found = i < v->found_count ? v->found[i].path : NULL;
        const char *listed = k < v->m.file_count ? v->m.files[k].path : NULL;
        int order = !found ? 1 : !listed ? -1 : strcmp(found, listed);
        v->a->items++;
        if (order < 0) note_extra(v, found);
        if (order > 0) audit_fail(v->a, listed, "is in the manifest, and missing");
        if (order == 0) compare_sizes(v, &v->m.files[k], v->found[i].state.bytes);
        i += order <= 0;
        k += order >= 0;
    }
}

static void load_manifest(verifier *v) {
    omm_err err = omm_bundle_file_read(&v->manifest_text, v->dir, "manifest.json");
    if (err == OMM_OK) err = manifest_parse(&v->m, v->arena, omm_buf_view(&v->manifest_text));
    v->has_manifest = audit_expect(v->a, err, "manifest.json");
}

void check_files(verifier *v) {
    for (size_t i = 0; i < v->found_count; i++) {
        uint64_t bytes_max = 0;
        const found_file *f = &v->found[i];
        if (omm_bundle_classify(&bytes_max, f->path) == OMM_BUNDLE_UNKNOWN)
            audit_fail(v->a, f->path, "does not belong into a bundle");
        else if (f->state.bytes > bytes_max)
            audit_fail(v->a, f->path, "has %llu bytes, at most %llu may be",
                       (unsigned long long)f->state.bytes, (unsigned long long)bytes_max);
    }
    if (!v->safe_to_read) return;
    load_manifest(v);
    if (v->has_manifest) merge_lists(v);
}

/* minisign leaves the first line unsigned; ours has one spelling, so that no byte is free. */
static omm_err check_sig_spelling(const omm_public_key *key, omm_bytes sig) {
    char line[128];
    char hex[17];
    omm_digest id = omm_key_id(key);
    omm_hex(hex, omm_bytes_of(id.b, 8));
    int size = snprintf(line, sizeof line, "untrusted comment: signature by key %s\n", hex);
    bool same = sig.size > (size_t)size && memcmp(sig.data, line, (size_t)size) == 0 &&
                sig.data[sig.size - 1] == '\n' && memchr(sig.data, '\r', sig.size) == NULL;
    return same ? OMM_OK : omm_raise(OMM_ERR_FORMAT, "is not spelled as a seal writes it");
}

/* The signed comment names the run. */
static bool names_run(const verifier *v, omm_bytes sig) {
    char line[160];
    const int size = snprintf(line, sizeof line,
                              "\ntrusted comment: openmeshmind bundle of run %s\n", v->m.run_id);
    return memmem(sig.data, sig.size, line, (size_t)size) != NULL;
}

static bool check_seal(verifier *v, const omm_public_key *key, omm_bytes sig) {
    if (!audit_expect(v->a, check_sig_spelling(key, sig), "manifest.json.minisig")) return false;
    omm_err err = omm_minisign_verify(key, sig, omm_buf_view(&v->manifest_text));
    if (err == OMM_ERR_SIGNATURE) /* either of the two was changed */
        audit_fail(v->a, "manifest.json", "is not what manifest.json.minisig signs");
    if (err == OMM_OK && !names_run(v, sig))
        audit_fail(v->a, "manifest.json.minisig",
                   "its trusted comment does not name the run of manifest.json");
    return audit_expect(v->a, err, "manifest.json.minisig");
}

void check_signature(verifier *v) {
    omm_buf sig;
    omm_public_key key;
    if (!v->has_manifest) {
        audit_fail(v->a, "manifest.json", "is not readable, so its signature means nothing");
        return;
    }
    omm_buf_init(&sig, 4096);
    bool has_key =
        audit_expect(v->a, omm_minisign_public_parse(&key, v->m.bundle_key), "manifest.json");
    /* Our own spelling of it: the text is a stranger's, and goes to a terminal. */
    if (has_key) omm_minisign_public(v->report->signer, &key);
    if (has_key &&
        audit_expect(v->a, omm_bundle_file_read(&sig, v->dir, "manifest.json.minisig"),
                     "manifest.json.minisig") &&
        check_seal(v, &key, omm_buf_view(&sig))) {
        const omm_public_key *trusted = v->options->trusted;
        v->report->pinned = trusted && omm_public_key_equal(&key, trusted);
        v->is_signed = v->report->pinned || !trusted;
        if (!v->is_signed)
            audit_fail(v->a, "manifest.json.minisig", "is not signed by the trusted key");
    }
    omm_buf_fini(&sig);
}

static void check_digest(verifier *v, manifest_file *f) {
    char full[OMM_PATH_MAX];
    omm_digest is;
    if (!f->is_there) { /* has been said: it is another file for certain, whatever its digest */
        f->sha256 = (omm_digest){{0}};
        return;
    }
    omm_err err = omm_path_join(full, v->dir, f->path);
    if (err == OMM_OK) err = omm_sha256_file(&is, full);
    if (!audit_expect(v->a, err, f->path)) return;
    if (!omm_digest_equal(&is, &f->sha256))
        audit_fail(v->a, f->path, "is not the file that was sealed: another SHA-256");
    f->sha256 = is; /* the run digest is of what is there */
}

static void check_identity(verifier *v) {
    char path[OMM_PATH_MAX];
    omm_digest scenario;
    const evidence *ev = &v->a->ev;
    if (ev->run_file.err == OMM_OK && strcmp(ev->run.run_id, v->m.run_id) != 0)
        audit_fail(v->a, "manifest.json", "run_id is not that of run.json");
    if (omm_path_join(path, v->dir, "scenario.yaml") == OMM_OK &&
        omm_hash_file(&scenario, path) == OMM_OK &&
        !omm_digest_equal(&scenario, &v->m.scenario_digest))
        audit_fail(v->a, "manifest.json", "scenario_digest is not that of scenario.yaml");
}

void check_digests(verifier *v) {
    for (size_t i = 0; i < v->m.file_count; i++) check_digest(v, &v->m.files[i]);
    if (v->has_more) { /* which has been said, and nothing else was read */
        for (size_t i = 0; i < v->m.file_count; i++)
            if (!v->m.files[i].is_there) return;
    }
    v->report->run_digest = manifest_run_digest(v->m.files, v->m.file_count);
    if (!omm_digest_equal(&v->report->run_digest, &v->m.run_digest))
        audit_fail(v->a, "manifest.json", "run_digest is not that of the files");
    if (!v->has_more) check_identity(v);
}

/* By a record that cannot be read every file would be one too many. */
static bool has_records(verifier *v) {
    const evidence *ev = &v->a->ev;
    const bool has_run = ev->run_file.err == OMM_OK;
    if (has_run && ev->rounds_file.err == OMM_OK) return true;
    audit_fail(v->a, has_run ? "rounds.jsonl" : "run.json",
               "which files belong to the run cannot be said without it");
    return false;
}

/* Nor by an adapter from which none of the others was computed. */
static bool has_sums(verifier *v) {
    if (v->a->no_sums)
        audit_fail(v->a, omm_bundle_path_master(0).text,
                   "which payloads and adapters belong to the run cannot be said without it");
    return !v->a->no_sums;
}

void check_complete(verifier *v) {
    if (!has_records(v) || !has_sums(v)) return;
    for (size_t i = 0; i < v->a->file_count; i++) {
        const audit_file *f = &v->a->files[i];
        if (omm_bundle_classify(NULL, f->path) != OMM_BUNDLE_DETERMINISTIC) continue;
        v->a->items++;
        if (!f->named) audit_fail(v->a, f->path, "no record names it");
    }
}

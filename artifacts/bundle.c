#include "omm/bundle.h"
#include "internal.h"
#include "omm/mem.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_FILES_MAX 16u

/* A .jsonl file that is being appended to. */
typedef struct line_file {
    char path[OMM_BUNDLE_PATH_MAX];
    uint32_t count;
} line_file;

struct omm_bundle {
    char dir[OMM_PATH_MAX];
    bool durable;
    line_file lines[LINE_FILES_MAX];
    size_t line_files;
};

/* What a process killed while writing leaves behind: "<path>.tmp.<pid>.<serial>". */
static bool is_leftover(const char *path) {
    const char *mark = strstr(path, ".tmp.");
    return mark && strspn(mark + 5, "0123456789.") == strlen(mark + 5);
}

static omm_err remove_leftover(void *ud, const char *path) {
    const omm_bundle *bundle = ud;
    char full[OMM_PATH_MAX];
    if (!is_leftover(path)) return OMM_OK;
    OMM_TRY(omm_path_join(full, bundle->dir, path));
    return omm_file_remove(full);
}

omm_err omm_bundle_open(omm_bundle **out, const char *dir, bool durable) {
    char sealed[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(sealed, dir, "manifest.json"));
    if (omm_file_exists(sealed))
        return omm_raise(OMM_ERR_STATE, "%s is sealed already; a sealed bundle does not change",
                         dir);
    OMM_TRY(omm_dir_make(dir));
    omm_bundle *bundle = omm_alloc(1, sizeof *bundle);
    if (!bundle) return omm_raise(OMM_ERR_NOMEM, "no memory for a bundle");
    bundle->durable = durable;
    snprintf(bundle->dir, sizeof bundle->dir, "%s", dir); /* fits: `sealed` did */
    omm_err err = omm_dir_walk(dir, remove_leftover, bundle);
    if (err != OMM_OK) {
        omm_free(bundle);
        return err;
    }
    *out = bundle;
    return OMM_OK;
}

void omm_bundle_close(omm_bundle *bundle) {
    omm_free(bundle);
}

const char *omm_bundle_dir(const omm_bundle *bundle) {
    return bundle->dir;
}

static omm_err check_path(const char *path, size_t size) {
    uint64_t bytes_max = 0;
    omm_bundle_class class = omm_bundle_classify(&bytes_max, path);
    if (class == OMM_BUNDLE_UNKNOWN || class == OMM_BUNDLE_MANIFEST)
        return omm_raise(OMM_ERR_CONFIG, "%s is not a path to put into a bundle", path);
    if (size > bytes_max)
        return omm_raise(OMM_ERR_TOO_BIG, "%s: %zu bytes, at most %llu", path, size,
                         (unsigned long long)bytes_max);
    return OMM_OK;
}

static omm_err write_file(const omm_bundle *bundle, const char *path, omm_bytes bytes) {
    char full[OMM_PATH_MAX];
    char folder[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(full, bundle->dir, path));
    OMM_TRY(omm_path_dir(folder, full));
    OMM_TRY(omm_dir_make(folder));
    return bundle->durable ? omm_file_write(full, bytes, 0644)
                           : omm_file_write_fast(full, bytes, 0644);
}

/* OK when the file there holds exactly these bytes. */
static omm_err compare_file(const omm_bundle *bundle, const char *path, omm_bytes bytes) {
    omm_buf old;
    omm_buf_init(&old, OMM_BUNDLE_FILE_BYTES_MAX);
    omm_err err = bundle_read(&old, bundle->dir, path);
    if (err == OMM_OK && !omm_bytes_equal(omm_buf_view(&old), bytes))
        err = omm_raise(OMM_ERR_MISMATCH, "%s is in the bundle with other bytes", path);
    omm_buf_fini(&old);
    return err;
}

omm_err omm_bundle_put(omm_bundle *bundle, const char *path, omm_bytes bytes) {
    OMM_TRY(check_path(path, bytes.size));
    if (omm_bundle_has(bundle, path)) return compare_file(bundle, path, bytes);
    return write_file(bundle, path, bytes);
}

omm_err omm_bundle_replace(omm_bundle *bundle, const char *path, omm_bytes bytes) {
    OMM_TRY(check_path(path, bytes.size));
    return write_file(bundle, path, bytes);
}

bool omm_bundle_has(const omm_bundle *bundle, const char *path) {
    char full[OMM_PATH_MAX];
    return omm_path_join(full, bundle->dir, path) == OMM_OK && omm_file_exists(full);
}

omm_err omm_bundle_read(omm_buf *out, const omm_bundle *bundle, const char *path) {
    return bundle_read(out, bundle->dir, path);
}

/* --- lines --- */

static uint32_t count_lines(omm_bytes text) {
    uint32_t count = 0;
    for (size_t i = 0; i < text.size; i++) count += text.data[i] == '\n';
    return count;
}

/* Drop the torn last line of a process that was killed, and count the whole ones. */
static omm_err recover_lines(uint32_t *count, omm_bundle *bundle, const char *path) {
    omm_buf text;
    omm_buf_init(&text, OMM_BUNDLE_FILE_BYTES_MAX);
    omm_err err = bundle_read(&text, bundle->dir, path);
    if (err == OMM_ERR_NOT_FOUND) err = OMM_OK;
    if (err == OMM_OK) {
        size_t whole = text.size;
        while (whole && text.data[whole - 1] != '\n') whole--;
        *count = count_lines(omm_bytes_of(text.data, whole));
        if (whole != text.size) err = write_file(bundle, path, omm_bytes_of(text.data, whole));
    }
    omm_buf_fini(&text);
    return err;
}

static omm_err find_lines(line_file **out, omm_bundle *bundle, const char *path) {
    for (size_t i = 0; i < bundle->line_files; i++)
        if (strcmp(bundle->lines[i].path, path) == 0) {
            *out = &bundle->lines[i];
            return OMM_OK;
        }
    if (bundle->line_files == LINE_FILES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "more than %u files of lines", LINE_FILES_MAX);
    line_file *file = &bundle->lines[bundle->line_files];
    OMM_TRY(recover_lines(&file->count, bundle, path));
    snprintf(file->path, sizeof file->path, "%s", path);
    bundle->line_files++;
    *out = file;
    return OMM_OK;
}

static omm_err compare_line(const omm_bundle *bundle, const char *path, uint32_t index,
                            omm_bytes line) {
    omm_buf text;
    omm_buf_init(&text, OMM_BUNDLE_FILE_BYTES_MAX);
    omm_err err = bundle_read(&text, bundle->dir, path);
    size_t start = 0;
    uint32_t at = 0;
    for (size_t i = 0; err == OMM_OK && at < index && i < text.size; i++)
        if (text.data[i] == '\n') {
            at++;
            start = i + 1;
        }
    bool same = err == OMM_OK && text.size - start >= line.size &&
                omm_bytes_equal(omm_bytes_of(text.data + start, line.size), line);
    if (err == OMM_OK && !same)
        err = omm_raise(OMM_ERR_MISMATCH, "%s: line %u is in the bundle with other bytes", path,
                        index + 1);
    omm_buf_fini(&text);
    return err;
}

static omm_err append_line(const omm_bundle *bundle, const char *path, omm_bytes line) {
    char full[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(full, bundle->dir, path));
    return omm_file_append(full, line, bundle->durable);
}

omm_err omm_bundle_put_line(omm_bundle *bundle, const char *path, uint32_t index, omm_bytes line) {
    OMM_TRY(check_path(path, line.size));
    OMM_ASSERT(line.size > 0);
    OMM_ASSERT(line.data[line.size - 1] == '\n');
    line_file *file = NULL;
    OMM_TRY(find_lines(&file, bundle, path));
    if (index < file->count) return compare_line(bundle, path, index, line);
    if (index > file->count)
        return omm_raise(OMM_ERR_STATE, "%s: line %u cannot follow line %u", path, index + 1,
                         file->count);
    /* The first line goes through write_file, which makes folder and file durable. */
    omm_err err = index == 0 ? write_file(bundle, path, line) : append_line(bundle, path, line);
    if (err == OMM_OK)
        file->count++;
    else
        *file = bundle->lines[--bundle->line_files]; /* forget: the next call recovers the file */
    return err;
}

/* --- what the coordinator signs at the end --- */

omm_err omm_bundle_evidence_digest(omm_digest *out, const char *dir) {
    static const struct {
        const char *path;
        bool optional;
    } files[] = {
        {"eval/after.jsonl", false}, {"eval/before.jsonl", false}, {"eval/control.jsonl", true},
        {"eval/rounds.jsonl", true}, {"ledger.jsonl", true},       {"policy.yaml", false},
        {"run.json", false},         {"scenario.yaml", false},
    };
    omm_hasher h;
    omm_hasher_init(&h);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char full[OMM_PATH_MAX];
        char hex[OMM_DIGEST_HEX_SIZE];
        omm_digest digest;
        OMM_TRY(omm_path_join(full, dir, files[i].path));
        omm_err err = omm_hash_file(&digest, full);
        if (err == OMM_ERR_NOT_FOUND && files[i].optional) continue;
        OMM_TRY(err);
        omm_digest_hex(hex, &digest);
        omm_hasher_update(&h, omm_bytes_of(files[i].path, strlen(files[i].path) + 1));
        omm_hasher_update(&h, omm_bytes_str(hex));
        omm_hasher_update(&h, omm_bytes_str("\n"));
    }
    *out = omm_hasher_final(&h);
    return OMM_OK;
}

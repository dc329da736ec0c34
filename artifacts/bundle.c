#include "omm/bundle.h"
#include "internal.h"
#include "omm/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINE_FILES_MAX 16u
#define PIECE_BYTES 16384u
#define HELD_FOLDERS_MAX                                                                           \
    8u /* a round puts files into five; of further ones each file is synced by itself */

/* A .jsonl file that is being appended to. */
typedef struct line_file {
    char path[OMM_BUNDLE_PATH_MAX];
    uint32_t count;
} line_file;

struct omm_bundle {
    char dir[OMM_PATH_MAX];
    int held_dir; /* the folder, locked while this writes into it */
    bool durable;
    line_file lines[LINE_FILES_MAX];
    size_t line_files;
    bool held;
    char folders[HELD_FOLDERS_MAX][OMM_PATH_MAX]; /* to be synced; whole paths */
    size_t folder_count;
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

/* A second writer would mix its files with the first one's. */
static omm_err take_folder(omm_bundle *bundle) {
    bundle->held_dir = open(bundle->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (bundle->held_dir < 0)
        return omm_raise(OMM_ERR_IO, "open %s: %s", bundle->dir, strerror(errno));
    if (omm_file_hold(bundle->held_dir)) return OMM_OK;
    return omm_raise(OMM_ERR_STATE,
                     "another process writes into %s: end it, or name another folder", bundle->dir);
}

static omm_err begin(omm_bundle *bundle) {
    OMM_TRY(take_folder(bundle));
    if (omm_bundle_has(bundle, "manifest.json")) /* sealed between the look and the lock */
        return omm_raise(OMM_ERR_STATE, "%s is sealed already; a sealed bundle does not change",
                         bundle->dir);
    return omm_dir_walk(bundle->dir, remove_leftover, bundle);
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
    omm_err err = begin(bundle);
    if (err != OMM_OK) {
        omm_bundle_close(bundle);
        return err;
    }
    *out = bundle;
    return OMM_OK;
}

void omm_bundle_close(omm_bundle *bundle) {
    if (!bundle) return;
    if (bundle->held_dir >= 0) close(bundle->held_dir);
    omm_free(bundle);
}

const char *omm_bundle_dir(const omm_bundle *bundle) {
    return bundle->dir;
}

/* May these bytes be put there, now? */
static omm_err check_path(const omm_bundle *bundle, const char *path, size_t size) {
    uint64_t bytes_max = 0;
    if (omm_bundle_has(bundle, "manifest.json"))
        return omm_raise(OMM_ERR_STATE, "%s: %s is sealed, and does not change", path, bundle->dir);
    omm_bundle_class class = omm_bundle_classify(&bytes_max, path);
    if (class == OMM_BUNDLE_UNKNOWN || class == OMM_BUNDLE_MANIFEST)
        return omm_raise(OMM_ERR_CONFIG, "%s is not a path to put into a bundle", path);
    if (size > bytes_max)
        return omm_raise(OMM_ERR_TOO_BIG, "%s: %zu bytes, at most %llu", path, size,
                         (unsigned long long)bytes_max);
    return OMM_OK;
}

/* One that was moved away is not begun anew: what is there then is half a bundle, and in the way of the whole one. */
static omm_err make_folder(const omm_bundle *bundle, const char *folder) {
    if (!omm_file_exists(bundle->dir))
        return omm_raise(OMM_ERR_IO, "%s: the bundle was moved away; put it back", bundle->dir);
    return omm_dir_make(folder);
}

/* Will the folder be synced by settle?  It exists then. */
static omm_err hold_folder(bool *is_held, omm_bundle *bundle, const char *folder) {
    *is_held = false;
    for (size_t i = 0; bundle->held && i < bundle->folder_count && !*is_held; i++)
        *is_held = strcmp(bundle->folders[i], folder) == 0;
    if (*is_held) return OMM_OK;
    OMM_TRY(make_folder(bundle, folder));
    *is_held = bundle->held && bundle->folder_count < HELD_FOLDERS_MAX;
    if (*is_held) memcpy(bundle->folders[bundle->folder_count++], folder, strlen(folder) + 1);
    return OMM_OK;
}

static omm_err write_file(omm_bundle *bundle, const char *path, omm_bytes bytes) {
    char full[OMM_PATH_MAX];
    char folder[OMM_PATH_MAX];
    bool is_held = false;
    OMM_TRY(omm_path_join(full, bundle->dir, path));
    OMM_TRY(omm_path_dir(folder, full));
    OMM_TRY(hold_folder(&is_held, bundle, folder));
    if (!bundle->durable) return omm_file_write_fast(full, bytes, 0644);
    return is_held ? omm_file_write_unlisted(full, bytes, 0644) : omm_file_write(full, bytes, 0644);
}

/* A file that a killed process has put, but whose name may not last. */
static omm_err hold_file(omm_bundle *bundle, const char *path) {
    char full[OMM_PATH_MAX];
    char folder[OMM_PATH_MAX];
    bool is_held = false;
    if (!bundle->held || !bundle->durable) return OMM_OK;
    OMM_TRY(omm_path_join(full, bundle->dir, path));
    OMM_TRY(omm_path_dir(folder, full));
    OMM_TRY(hold_folder(&is_held, bundle, folder));
    return is_held ? OMM_OK : omm_dir_sync_of(full);
}

void omm_bundle_hold(omm_bundle *bundle) {
    OMM_ASSERT(!bundle->held);
    bundle->held = true;
    bundle->folder_count = 0;
}

omm_err omm_bundle_settle(omm_bundle *bundle) {
    OMM_ASSERT(bundle->held);
    bundle->held = false;
    for (size_t i = 0; bundle->durable && i < bundle->folder_count; i++) {
        char any[OMM_PATH_MAX];
        OMM_TRY(omm_path_join(any, bundle->folders[i], "x"));
        OMM_TRY(omm_dir_sync_of(any));
    }
    return OMM_OK;
}

/* OK when the file there holds exactly these bytes.  By digest: it may be as large as what is put, and then both in
 * memory are one too many. */
static omm_err compare_file(const omm_bundle *bundle, const char *path, omm_bytes bytes) {
    char full[OMM_PATH_MAX];
    omm_digest old;
    uint64_t size = 0;
    OMM_TRY(omm_path_join(full, bundle->dir, path));
    OMM_TRY(omm_file_size(&size, full));
    bool same = size == bytes.size;
    if (same) {
        OMM_TRY(omm_hash_file(&old, full));
        const omm_digest fresh = omm_hash(bytes);
        same = omm_digest_equal(&old, &fresh);
    }
    if (same) return OMM_OK;
    return omm_raise(OMM_ERR_MISMATCH, "%s is in the bundle %s with other bytes", path,
                     bundle->dir);
}

omm_err omm_bundle_put(omm_bundle *bundle, const char *path, omm_bytes bytes) {
    OMM_TRY(check_path(bundle, path, bytes.size));
    if (omm_bundle_has(bundle, path)) {
        OMM_TRY(compare_file(bundle, path, bytes));
        return hold_file(bundle, path);
    }
    return write_file(bundle, path, bytes);
}

omm_err omm_bundle_replace(omm_bundle *bundle, const char *path, omm_bytes bytes) {
    OMM_TRY(check_path(bundle, path, bytes.size));
    return write_file(bundle, path, bytes);
}

bool omm_bundle_has(const omm_bundle *bundle, const char *path) {
    char full[OMM_PATH_MAX];
    return omm_path_join(full, bundle->dir, path) == OMM_OK && omm_file_exists(full);
}

omm_err omm_bundle_read(omm_buf *out, const omm_bundle *bundle, const char *path) {
    return omm_bundle_file_read(out, bundle->dir, path);
}

/* --- lines --- */

static uint32_t count_lines(omm_bytes text) {
    uint32_t count = 0;
    for (size_t i = 0; i < text.size; i++) count += text.data[i] == '\n';
    return count;
}

/* What is whole in a file of lines.  A killed process leaves a line without its end.  A power cut leaves zeros, too,
 * for sectors of the last append that never came, and whole lines may follow them: JSON has no zeros. */
typedef struct line_scan {
    uint64_t bytes, whole; /* of the file; of its whole lines */
    uint32_t count;        /* of these */
    uint64_t start;        /* of the line that was asked for, where there are so many */
} line_scan;

static void scan_piece(line_scan *s, bool *is_over, omm_bytes piece, uint64_t offset,
                       uint32_t index) {
    for (size_t i = 0; i < piece.size && !*is_over; i++) {
        *is_over = piece.data[i] == 0;
        if (piece.data[i] != '\n') continue;
        s->whole = offset + i + 1;
        if (++s->count == index) s->start = s->whole;
    }
}

/* In pieces: a long run's file has many lines.  Close `in`, also after an error. */
static omm_err scan_lines(line_scan *s, omm_file_in *in, const omm_bundle *bundle, const char *path,
                          uint32_t index) {
    uint8_t piece[PIECE_BYTES];
    char full[OMM_PATH_MAX];
    uint64_t bytes_max = 0;
    bool is_over = false;
    *s = (line_scan){.bytes = 0};
    in->fd = -1;
    OMM_TRY(omm_bundle_file_find(full, &bytes_max, bundle->dir, path));
    OMM_TRY(omm_file_in_open(in, full));
    OMM_TRY(omm_file_size(&s->bytes, full));
    if (s->bytes > bytes_max) return omm_raise(OMM_ERR_TOO_BIG, "%s is over its limit", path);
    for (uint64_t at = 0; at < s->bytes && !is_over; at += sizeof piece) {
        const size_t size = s->bytes - at < sizeof piece ? (size_t)(s->bytes - at) : sizeof piece;
        OMM_TRY(omm_file_in_read(in, piece, size));
        scan_piece(s, &is_over, omm_bytes_of(piece, size), at, index);
    }
    return OMM_OK;
}

static omm_err cut_lines(omm_bundle *bundle, const char *path, uint64_t whole) {
    omm_buf text;
    omm_buf_init(&text, OMM_BUNDLE_FILE_BYTES_MAX);
    omm_err err = omm_bundle_file_read(&text, bundle->dir, path);
    if (err == OMM_OK) err = write_file(bundle, path, omm_bytes_of(text.data, (size_t)whole));
    omm_buf_fini(&text);
    return err;
}

/* Drop what is torn, and count the whole lines. */
static omm_err recover_lines(uint32_t *count, omm_bundle *bundle, const char *path) {
    omm_file_in in;
    line_scan s;
    omm_err err = scan_lines(&s, &in, bundle, path, 0);
    if (in.fd >= 0) omm_file_in_close(&in);
    if (err == OMM_OK && s.whole != s.bytes) err = cut_lines(bundle, path, s.whole);
    *count = s.count;
    return err == OMM_ERR_NOT_FOUND ? OMM_OK : err;
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

/* *same: does the file go on with these bytes? */
static omm_err compare_here(bool *same, omm_file_in *in, omm_bytes lines) {
    uint8_t piece[PIECE_BYTES];
    *same = true;
    for (size_t at = 0; at < lines.size && *same; at += sizeof piece) {
        const size_t size = lines.size - at < sizeof piece ? lines.size - at : sizeof piece;
        OMM_TRY(omm_file_in_read(in, piece, size));
        *same = memcmp(piece, lines.data + at, size) == 0;
    }
    return OMM_OK;
}

/* lines: whole ones, from number `index` on, which are all there. */
static omm_err compare_lines(const omm_bundle *bundle, const char *path, uint32_t index,
                             omm_bytes lines) {
    omm_file_in in;
    line_scan s;
    bool same = false;
    omm_err err = scan_lines(&s, &in, bundle, path, index);
    if (err == OMM_OK && s.count >= index && s.bytes - s.start >= lines.size) {
        err = omm_file_in_seek(&in, s.start);
        if (err == OMM_OK) err = compare_here(&same, &in, lines);
    }
    if (in.fd >= 0) omm_file_in_close(&in);
    if (err == OMM_OK && !same)
        err = omm_raise(OMM_ERR_MISMATCH, "%s: line %u%s is in the bundle with other bytes", path,
                        index + 1, count_lines(lines) > 1 ? ", or one behind it," : "");
    return err;
}

static omm_err append_line(const omm_bundle *bundle, const char *path, omm_bytes line) {
    char full[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(full, bundle->dir, path));
    return omm_file_append(full, line, bundle->durable);
}

/* Bytes of the first `count` lines. */
static size_t lines_bytes(omm_bytes lines, uint32_t count) {
    size_t at = 0;
    for (uint32_t seen = 0; seen < count; at++) seen += lines.data[at] == '\n';
    return at;
}

omm_err omm_bundle_put_lines(omm_bundle *bundle, const char *path, uint32_t index,
                             omm_bytes lines) {
    OMM_TRY(check_path(bundle, path, lines.size));
    OMM_ASSERT(lines.size > 0);
    OMM_ASSERT(lines.data[lines.size - 1] == '\n');
    line_file *file = NULL;
    OMM_TRY(find_lines(&file, bundle, path));
    if (index > file->count)
        return omm_raise(OMM_ERR_STATE,
                         "%s/%s: line %u cannot follow line %u: lines are lost; put the file back "
                         "from a copy",
                         bundle->dir, path, index + 1, file->count);
    const uint32_t count = count_lines(lines);
    const uint32_t there = file->count - index < count ? file->count - index : count;
    const size_t known = lines_bytes(lines, there);
    if (known > 0) OMM_TRY(compare_lines(bundle, path, index, omm_bytes_of(lines.data, known)));
    if (there == count) return OMM_OK;
    const omm_bytes fresh = omm_bytes_of(lines.data + known, lines.size - known);
    /* The first line goes through write_file, which makes folder and file durable. */
    omm_err err =
        file->count == 0 ? write_file(bundle, path, fresh) : append_line(bundle, path, fresh);
    if (err == OMM_OK)
        file->count += count - there;
    else
        *file = bundle->lines[--bundle->line_files]; /* forget: the next call recovers the file */
    return err;
}

omm_err omm_bundle_put_line(omm_bundle *bundle, const char *path, uint32_t index, omm_bytes line) {
    OMM_ASSERT(line.size == 0 || count_lines(line) == 1);
    return omm_bundle_put_lines(bundle, path, index, line);
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

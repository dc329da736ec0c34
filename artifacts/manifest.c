/* manifest.json: every file of the bundle with class, size and SHA-256, and who sealed it. */
#include "internal.h"
#include "lines.h"
#include "omm/clock.h"
#include "record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define TEXT_BYTES_MAX 1024u
#define HEAD_BYTES_MAX 65536u /* all but the files; each text to TEXT_BYTES_MAX, escaped */
#define KIND "omm-bundle"

/* One object of the list, as omm_json_write_pretty would spell it there.  A path of a bundle needs no escapes
 * (omm_bundle_classify). */
omm_err manifest_put_file(omm_buf *out, const manifest_file *f, size_t index) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, &f->sha256);
    return omm_buf_printf(out,
                          "%s\n    {\n      \"bytes\": %" PRIu64 ",\n      \"class\": \"%s\",\n"
                          "      \"path\": \"%s\",\n      \"sha256\": \"%s\"\n    }",
                          index == 0 ? "" : ",", f->bytes, bundle_class_letter(f->class), f->path,
                          hex);
}

static omm_err put_head(omm_buf *out, const manifest *m) {
    record_out r = record_begin();
    record_put_u64(&r, "schema_version", OMM_BUNDLE_SCHEMA_VERSION);
    record_put_str(&r, "kind", KIND);
    record_put_str(&r, "run_id", m->run_id);
    record_put_digest(&r, "run_digest", &m->run_digest);
    record_put_digest(&r, "scenario_digest", &m->scenario_digest);
    record_put_str(&r, "commit", m->commit);
    record_put_str(&r, "build", m->build);
    record_put_str(&r, "machine", m->machine);
    record_put_str(&r, "created", m->created);
    record_put_str(&r, "bundle_key", m->bundle_key);
    record_put(&r, "files", json_array());
    omm_err err = r.err;
    if (err == OMM_OK) err = omm_json_write_pretty(out, r.object);
    record_drop(&r);
    return err;
}

/* The list is written into the text of all else: a tree of a million files would take a gigabyte.  No text has a line
 * break. */
static const char s_list[] = "\n  \"files\": [";

static omm_err put_part(omm_buf *out, const manifest *m, bool is_end) {
    omm_buf head;
    omm_buf_init(&head, HEAD_BYTES_MAX);
    omm_err err = put_head(&head, m);
    if (err == OMM_OK) err = omm_buf_append(&head, "", 1);
    const char *text = (const char *)head.data;
    const char *list = err == OMM_OK ? strstr(text, s_list) : NULL;
    if (list) {
        const size_t begin = (size_t)(list - text) + strlen(s_list);
        err = is_end ? omm_buf_append(out, text + begin, head.size - 1 - begin)
                     : omm_buf_append(out, text, begin);
    }
    omm_buf_fini(&head);
    return err;
}

omm_err manifest_put_begin(omm_buf *out, const manifest *m) {
    return put_part(out, m, false);
}

omm_err manifest_put_end(omm_buf *out, const manifest *m, size_t file_count) {
    if (file_count > 0) OMM_TRY(omm_buf_append(out, "\n  ", 3));
    return put_part(out, m, true);
}

omm_err manifest_write(omm_buf *out, const manifest *m) {
    OMM_TRY(manifest_put_begin(out, m));
    for (size_t i = 0; i < m->file_count; i++) OMM_TRY(manifest_put_file(out, &m->files[i], i));
    return manifest_put_end(out, m, m->file_count);
}

static omm_err check_file(const manifest_file *files, size_t i, const char *class) {
    const char *path = files[i].path;
    uint64_t bytes_max = 0;
    if (!omm_path_is_inside(path))
        return omm_raise(OMM_ERR_FORMAT, "file %zu: the path leaves the bundle", i);
    omm_bundle_class is = omm_bundle_classify(&bytes_max, path);
    if (is == OMM_BUNDLE_UNKNOWN || is == OMM_BUNDLE_MANIFEST)
        return omm_raise(OMM_ERR_FORMAT, "file %zu: %s is not a path of a bundle", i, path);
    if (strcmp(class, bundle_class_letter(is)) != 0)
        return omm_raise(OMM_ERR_FORMAT, "%s: class is '%s' and must be %s", path, class,
                         bundle_class_letter(is));
    if (files[i].bytes > bytes_max)
        return omm_raise(OMM_ERR_TOO_BIG, "%s: %llu bytes, at most %llu", path,
                         (unsigned long long)files[i].bytes, (unsigned long long)bytes_max);
    int order = i ? strcmp(files[i - 1].path, path) : -1;
    if (order == 0) return omm_raise(OMM_ERR_FORMAT, "%s is listed twice", path);
    if (order > 0) return omm_raise(OMM_ERR_FORMAT, "files are not in order at %s", path);
    return OMM_OK;
}

static void get_files(record_in *r, manifest *m) {
    json_t *array = record_get_array(&m->file_count, r, "files", OMM_BUNDLE_FILES_MAX);
    m->files = record_alloc(r, m->file_count + 1, sizeof *m->files);
    for (size_t i = 0; m->files && i < m->file_count && r->err == OMM_OK; i++) {
        record_in item = record_item(r, array, i);
        m->files[i].path = record_get_str(&item, "path", OMM_BUNDLE_PATH_MAX - 1);
        m->files[i].class = omm_bundle_classify(NULL, m->files[i].path);
        m->files[i].bytes = record_get_u64(&item, "bytes", INT64_MAX);
        m->files[i].sha256 = record_get_digest(&item, "sha256");
        const char *class = record_get_str(&item, "class", 1);
        record_fail(r, item.err);
        if (r->err == OMM_OK) record_fail(r, check_file(m->files, i, class));
    }
}

static void get_head(record_in *r, manifest *m) {
    uint64_t version = record_get_u64(r, "schema_version", INT64_MAX);
    if (r->err == OMM_OK && version != OMM_BUNDLE_SCHEMA_VERSION)
        r->err = omm_raise(OMM_ERR_VERSION, "schema_version %llu, this reads %u",
                           (unsigned long long)version, OMM_BUNDLE_SCHEMA_VERSION);
    if (strcmp(record_get_str(r, "kind", TEXT_BYTES_MAX), KIND) != 0 && r->err == OMM_OK)
        r->err = omm_raise(OMM_ERR_FORMAT, "kind is not " KIND);
    uint8_t id[16];
    record_get_hex(r, "run_id", id, sizeof id);
    omm_hex(m->run_id, omm_bytes_of(id, sizeof id));
    m->run_digest = record_get_digest(r, "run_digest");
    m->scenario_digest = record_get_digest(r, "scenario_digest");
    m->commit = record_get_str(r, "commit", TEXT_BYTES_MAX);
    m->build = record_get_str(r, "build", TEXT_BYTES_MAX);
    m->machine = record_get_str(r, "machine", TEXT_BYTES_MAX);
    m->created = record_get_str(r, "created", TEXT_BYTES_MAX);
    if (r->err == OMM_OK && !omm_time_is_iso(m->created)) /* a stranger's text: not repeated */
        r->err = omm_raise(OMM_ERR_FORMAT,
                           "created: is no time; accepted: one in UTC as 2026-11-23T04:36:08.411Z");
    m->bundle_key = record_get_str(r, "bundle_key", OMM_MINISIGN_PUBLIC_SIZE - 1);
}

omm_err manifest_parse(manifest *out, omm_arena *arena, omm_bytes text) {
    manifest m;
    memset(&m, 0, sizeof m);
    record_in r = record_open(text, "manifest.json", arena);
    get_head(&r, &m);
    get_files(&r, &m);
    OMM_TRY(record_end(&r));
    omm_buf again;
    omm_buf_init(&again, text.size + 1);
    omm_err err = manifest_write(&again, &m);
    if (err == OMM_OK || err == OMM_ERR_TOO_BIG) err = record_same(text, &again, "manifest.json");
    omm_buf_fini(&again);
    if (err == OMM_OK) *out = m;
    return err;
}

/* The text without what is in the list, for lines of the file one by one. */
static omm_err keep_line(omm_buf *text, bool *in_list, omm_bytes line) {
    const omm_bytes begin = omm_bytes_str(s_list + 1);
    const omm_bytes end = omm_bytes_str("  ],\n");
    if (*in_list && omm_bytes_equal(line, end)) {
        *in_list = false;
        return omm_buf_append(text, "],\n", 3);
    }
    if (*in_list) {
        if (line.size > 4 && memcmp(line.data, "    ", 4) == 0) return OMM_OK;
        return omm_raise(OMM_ERR_FORMAT, "manifest.json: the list of files does not end");
    }
    *in_list = line.size == begin.size + 1 && memcmp(line.data, begin.data, begin.size) == 0;
    return omm_buf_append(text, line.data, *in_list ? begin.size : line.size);
}

omm_err manifest_read_head(manifest *out, omm_arena *arena, const char *dir) {
    line_reader lines;
    omm_buf text;
    omm_bytes line = {NULL, 0};
    bool in_list = false;
    omm_buf_init(&text, HEAD_BYTES_MAX);
    omm_err err = line_reader_open(&lines, dir, "manifest.json", SIZE_MAX);
    while (err == OMM_OK && (err = line_reader_next(&line, &lines)) == OMM_OK && line.size > 0)
        err = keep_line(&text, &in_list, line);
    if (err == OMM_OK) err = manifest_parse(out, arena, omm_buf_view(&text));
    line_reader_close(&lines);
    omm_buf_fini(&text);
    return err;
}

void manifest_add_to_run_digest(omm_hasher *h, const manifest_file *f) {
    char hex[OMM_DIGEST_HEX_SIZE];
    if (f->class != OMM_BUNDLE_DETERMINISTIC) return;
    omm_digest_hex(hex, &f->sha256);
    omm_sha256er_update(h, omm_bytes_of(f->path, strlen(f->path) + 1));
    omm_sha256er_update(h, omm_bytes_str(hex));
    omm_sha256er_update(h, omm_bytes_str("\n"));
}

omm_digest manifest_run_digest(const manifest_file *files, size_t count) {
    omm_hasher h;
    omm_sha256er_init(&h);
    for (size_t i = 0; i < count; i++) manifest_add_to_run_digest(&h, &files[i]);
    return omm_sha256er_final(&h);
}

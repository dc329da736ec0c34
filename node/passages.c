/* passages.c - takes a text file apart into passages (docs.h says what they are). */
#include "docs_internal.h"

#include "omm/docs.h"
#include "omm/file.h"
#include "text.h"

#include <string.h>

#define HEADING_BYTES_MAX 200u

typedef struct reader {
    omm_db *db;
    const char *path;
    omm_bytes heading; /* borrowed from the file */
    omm_buf paragraph; /* folded, one line */
    omm_buf context;   /* path without its ending, and heading */
    uint32_t passages;
} reader;

static omm_db_value text_value(omm_bytes text) {
    return (omm_db_value){.kind = OMM_DB_KIND_TEXT, .bytes = text};
}

static omm_err put_passage(reader *r, omm_bytes text) {
    const char *dot = strrchr(r->path, '.');
    size_t stem = dot ? (size_t)(dot - r->path) : strlen(r->path);
    omm_buf_clear(&r->context);
    OMM_TRY(omm_buf_append(&r->context, r->path, stem));
    OMM_TRY(omm_buf_append(&r->context, " ", 1));
    OMM_TRY(omm_buf_append(&r->context, r->heading.data, r->heading.size));
    OMM_TRY(omm_db_run(r->db,
                       "INSERT INTO passage(context, text, file, number) VALUES (?, ?, ?, ?)",
                       text_value(omm_buf_view(&r->context)), text_value(text),
                       OMM_DB_TEXT(r->path), OMM_DB_INT(r->passages + 1)));
    r->passages++;
    return OMM_OK;
}

static bool is_sentence_end(omm_bytes text, size_t at) {
    uint8_t c = text.data[at];
    return (c == '.' || c == '!' || c == '?') && text.data[at + 1] == ' ';
}

/* Where to cut a text that is too long: behind the last sentence, else the last word, that fits. */
static size_t find_cut(omm_bytes text) {
    size_t max = OMM_PASSAGE_BYTES_MAX;
    for (size_t at = max - 1; at > 0; at--)
        if (is_sentence_end(text, at)) return at + 1;
    for (size_t at = max; at > 0; at--)
        if (text.data[at] == ' ') return at;
    while ((text.data[max] & 0xc0) == 0x80) max--; /* not inside a character */
    return max;
}

static omm_err put_paragraph(reader *r) {
    omm_bytes text = omm_buf_view(&r->paragraph);
    while (text.size > OMM_PASSAGE_BYTES_MAX) {
        size_t cut = find_cut(text);
        OMM_TRY(put_passage(r, omm_bytes_of(text.data, cut)));
        text = omm_bytes_of(text.data + cut, text.size - cut);
        if (text.data[0] == ' ') text = omm_bytes_of(text.data + 1, text.size - 1);
    }
    if (text.size > 0) OMM_TRY(put_passage(r, text));
    omm_buf_clear(&r->paragraph);
    return OMM_OK;
}

static void set_heading(reader *r, omm_bytes line) {
    size_t start = 0;
    while (start < line.size && (line.data[start] == '#' || line.data[start] == ' ')) start++;
    size_t size = line.size - start;
    if (size > HEADING_BYTES_MAX) size = HEADING_BYTES_MAX;
    r->heading = omm_bytes_of(line.data + start, size);
}

static omm_err put_line(reader *r, omm_bytes line) {
    if (line.size > 0 && line.data[0] == '#') {
        OMM_TRY(put_paragraph(r));
        set_heading(r, line);
        return OMM_OK;
    }
    size_t before = r->paragraph.size;
    if (before > 0) OMM_TRY(omm_buf_append(&r->paragraph, " ", 1));
    size_t start = r->paragraph.size;
    OMM_TRY(text_fold(&r->paragraph, line));
    if (r->paragraph.size > start) return OMM_OK;
    r->paragraph.size = before; /* an empty line */
    return put_paragraph(r);
}

static omm_err put_lines(reader *r, omm_bytes text) {
    while (text.size > 0) {
        const uint8_t *end = memchr(text.data, '\n', text.size);
        size_t size = end ? (size_t)(end - text.data) : text.size;
        OMM_TRY(put_line(r, omm_bytes_of(text.data, size)));
        size += end ? 1 : 0;
        text = omm_bytes_of(text.data + size, text.size - size);
    }
    return put_paragraph(r);
}

static omm_bytes without_mark(omm_bytes text) {
    bool marked = text.size >= 3 && memcmp(text.data, "\xef\xbb\xbf", 3) == 0;
    return marked ? omm_bytes_of(text.data + 3, text.size - 3) : text;
}

static omm_err put_text(uint32_t *passages, omm_db *db, const char *path, omm_bytes text) {
    reader r = {.db = db, .path = path};
    omm_buf_init(&r.paragraph, OMM_DOCS_FILE_BYTES_MAX + 1);
    omm_buf_init(&r.context, OMM_PATH_MAX + HEADING_BYTES_MAX + 1);
    omm_err err = put_lines(&r, without_mark(text));
    omm_buf_fini(&r.paragraph);
    omm_buf_fini(&r.context);
    *passages += r.passages;
    return err;
}

omm_err docs_put_file(uint32_t *passages, bool *is_text, omm_db *db, const char *path,
                      const char *full) {
    omm_buf text;
    *is_text = false;
    omm_buf_init(&text, OMM_DOCS_FILE_BYTES_MAX);
    omm_err err = omm_file_read(&text, full);
    /* gone, or grown since; or not ours to read */
    if (err == OMM_ERR_NOT_FOUND || err == OMM_ERR_TOO_BIG || err == OMM_ERR_IO) {
        omm_buf_fini(&text);
        return OMM_OK;
    }
    if (err == OMM_OK && text_is_plain(omm_buf_view(&text))) {
        *is_text = true;
        err = put_text(passages, db, path, omm_buf_view(&text));
    }
    omm_buf_fini(&text);
    return err;
}

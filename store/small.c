/* small.c - see small.h.  A file of its own costs an inode, a folder entry and two fsyncs, many times what
 * its bytes cost when they are few. */
#include "small.h"

omm_err small_count(small *s) {
    omm_rows *rows = NULL;
    bool more = false;
    if (!s->db) return OMM_OK;
    OMM_TRY(omm_db_query(&rows, s->db,
                         "SELECT COALESCE(SUM(LENGTH(bytes)), 0) FROM small_blob WHERE id > ?",
                         OMM_DB_INT(0)));
    omm_err err = omm_rows_next(&more, rows);
    if (err == OMM_OK) s->total = more ? (uint64_t)omm_rows_int(rows, 0) : 0;
    omm_rows_close(rows);
    return err;
}

omm_err small_open(small *out, omm_db *db, size_t bytes_max) {
    small s = {.db = db, .bytes_max = bytes_max};
    if (db)
        OMM_TRY(omm_db_exec(db, "CREATE TABLE IF NOT EXISTS small_blob(id INTEGER PRIMARY KEY,"
                                " digest BLOB NOT NULL UNIQUE, bytes BLOB NOT NULL)"));
    OMM_TRY(small_count(&s));
    *out = s;
    return OMM_OK;
}

bool small_takes(const small *s, uint64_t size) {
    return s->db && size <= s->bytes_max;
}

static omm_err not_found(const omm_digest *digest) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, digest);
    return omm_raise(OMM_ERR_NOT_FOUND, "%s is not in the store", hex);
}

omm_err small_size(uint64_t *size, const small *s, const omm_digest *digest) {
    omm_rows *rows = NULL;
    bool more = false;
    if (!s->db) return not_found(digest);
    OMM_TRY(omm_db_query(&rows, s->db, "SELECT LENGTH(bytes) FROM small_blob WHERE digest = ?",
                         OMM_DB_DIGEST(digest)));
    omm_err err = omm_rows_next(&more, rows);
    if (err == OMM_OK && more) *size = (uint64_t)omm_rows_int(rows, 0);
    omm_rows_close(rows);
    if (err == OMM_OK && !more) return not_found(digest);
    return err;
}

omm_err small_put(small *s, const omm_digest *digest, omm_bytes data) {
    OMM_TRY(omm_db_run(s->db, "INSERT INTO small_blob(digest, bytes) VALUES (?, ?)",
                       OMM_DB_DIGEST(digest), OMM_DB_BLOB(data)));
    s->total += data.size;
    return OMM_OK;
}

omm_err small_read(omm_buf *out, const small *s, const omm_digest *digest, uint64_t offset,
                   size_t size) {
    omm_rows *rows = NULL;
    bool more = false;
    if (!s->db) return not_found(digest);
    OMM_TRY(omm_db_query(&rows, s->db, "SELECT bytes FROM small_blob WHERE digest = ?",
                         OMM_DB_DIGEST(digest)));
    omm_err err = omm_rows_next(&more, rows);
    if (err == OMM_OK && !more) err = not_found(digest);
    if (err == OMM_OK) {
        omm_bytes bytes = omm_rows_bytes(rows, 0);
        err = offset <= bytes.size && size <= bytes.size - offset
                  ? omm_buf_append(out, bytes.data + offset, size)
                  : omm_raise(OMM_ERR_SIZE, "the blob has %zu bytes only", bytes.size);
    }
    omm_rows_close(rows);
    return err;
}

omm_err small_remove(small *s, const omm_digest *digest) {
    uint64_t size = 0;
    omm_err err = small_size(&size, s, digest);
    if (err == OMM_ERR_NOT_FOUND) return OMM_OK;
    OMM_TRY(err);
    OMM_TRY(omm_db_run(s->db, "DELETE FROM small_blob WHERE digest = ?", OMM_DB_DIGEST(digest)));
    s->total -= size;
    return OMM_OK;
}

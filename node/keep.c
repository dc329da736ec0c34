/* keep.c - a table of named values in node.sqlite, or in memory. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

#define KEEP_APPLICATION_ID 0x4f4d4d4eu /* "OMMN" */
#define KEEP_PIECE_BYTES ((size_t)1 << 20)

static const char *const s_migrations[] = {
    "CREATE TABLE keep(name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;",
    "CREATE TABLE gave(run_id TEXT NOT NULL, round INTEGER NOT NULL, at_s INTEGER NOT NULL, "
    "submission BLOB NOT NULL, payload BLOB NOT NULL, submission_bytes INTEGER NOT NULL, "
    "payload_bytes INTEGER NOT NULL, steps INTEGER NOT NULL, tokens INTEGER NOT NULL, "
    "verdict TEXT NOT NULL, PRIMARY KEY(run_id, round)) WITHOUT ROWID;"
    "CREATE TABLE declined(id INTEGER PRIMARY KEY, first_s INTEGER NOT NULL, "
    "last_s INTEGER NOT NULL, times INTEGER NOT NULL, run_id TEXT NOT NULL, "
    "round INTEGER NOT NULL, sentence TEXT NOT NULL);",
    "CREATE TABLE canary(submission BLOB PRIMARY KEY, run_id TEXT NOT NULL, round INTEGER NOT "
    "NULL, "
    "at_s INTEGER NOT NULL, payload BLOB NOT NULL, submission_bytes INTEGER NOT NULL, "
    "payload_bytes INTEGER NOT NULL, steps INTEGER NOT NULL, tokens INTEGER NOT NULL, "
    "verdict TEXT NOT NULL) WITHOUT ROWID;",
    /* What still waits for its verdict is sent again at the next start, and marked then. */
    "ALTER TABLE gave ADD COLUMN sent INTEGER NOT NULL DEFAULT 1;"
    "ALTER TABLE canary ADD COLUMN sent INTEGER NOT NULL DEFAULT 1;"
    "UPDATE gave SET sent = 0 WHERE verdict = '';"
    "UPDATE canary SET sent = 0 WHERE verdict = '';",
};

static omm_err check_owner(omm_node *node) {
    omm_buf id;
    omm_buf_init(&id, sizeof node->id.b);
    bool found = false;
    omm_err err = node_keep_get(&found, &id, node, KEEP_KEY_ID);
    omm_bytes own = omm_bytes_of(node->id.b, sizeof node->id.b);
    if (err == OMM_OK && found && !omm_bytes_equal(omm_buf_view(&id), own))
        err = omm_raise(OMM_ERR_MISMATCH, "%s belongs to another key", node->o.state_dir);
    if (err == OMM_OK && !found) err = node_keep_put(node, KEEP_KEY_ID, own);
    omm_buf_fini(&id);
    return err;
}

omm_err node_keep_open_file(omm_db **out, const char *path, uint32_t busy_ms) {
    const omm_db_options options = {.path = path,
                                    .application_id = KEEP_APPLICATION_ID,
                                    .migrations = s_migrations,
                                    .migration_count = sizeof s_migrations / sizeof s_migrations[0],
                                    .busy_timeout_ms = busy_ms};
    return omm_db_open(out, &options);
}

omm_err node_keep_open(omm_node *node) {
    char path[OMM_PATH_MAX] = "";
    if (node->o.state_dir) {
        OMM_TRY(omm_dir_make_private(node->o.state_dir));
        OMM_TRY(omm_path_join(path, node->o.state_dir, NODE_DATABASE));
    }
    const omm_err err = node_keep_open_file(&node->db, node->o.state_dir ? path : NULL, 0);
    if (err == OMM_ERR_STATE)
        return omm_raise(err, "%s is in use by another node", node->o.state_dir);
    OMM_TRY(err);
    return check_owner(node);
}

omm_err node_keep_put(omm_node *node, const char *name, omm_bytes value) {
    return omm_db_run(node->db, "INSERT OR REPLACE INTO keep(name, value) VALUES (?, ?)",
                      OMM_DB_TEXT(name), OMM_DB_BLOB(value));
}

omm_err node_keep_put_u64(omm_node *node, const char *name, uint64_t value) {
    uint8_t bytes[8];
    omm_put_u64(bytes, value);
    return node_keep_put(node, name, omm_bytes_of(bytes, sizeof bytes));
}

omm_err node_keep_drop(omm_node *node, const char *name) {
    return omm_db_run(node->db, "DELETE FROM keep WHERE name = ?", OMM_DB_TEXT(name));
}

omm_err node_keep_get(bool *found, omm_buf *out, omm_node *node, const char *name) {
    omm_rows *rows = NULL;
    OMM_TRY(
        omm_db_query(&rows, node->db, "SELECT value FROM keep WHERE name = ?", OMM_DB_TEXT(name)));
    omm_err err = omm_rows_next(found, rows);
    if (err == OMM_OK && *found) {
        omm_bytes value = omm_rows_bytes(rows, 0);
        if (value.size > 0) err = omm_buf_append(out, value.data, value.size);
    }
    omm_rows_close(rows);
    return err;
}

/* ---- in pieces ---- */

static void piece_name(char out[64], const char *name, size_t index) {
    if (index == 0)
        (void)snprintf(out, 64, "%s", name);
    else
        (void)snprintf(out, 64, "%s/%zu", name, index);
}

omm_err node_keep_put_large(omm_node *node, const char *name, omm_bytes value) {
    OMM_TRY(node_keep_drop_large(node, name));
    for (size_t at = 0, index = 0; at == 0 || at < value.size; at += KEEP_PIECE_BYTES, index++) {
        char piece[64];
        const size_t left = value.size - at;
        piece_name(piece, name, index);
        OMM_TRY(node_keep_put(
            node, piece,
            omm_bytes_of(value.data + at, left < KEEP_PIECE_BYTES ? left : KEEP_PIECE_BYTES)));
    }
    return OMM_OK;
}

omm_err node_keep_drop_large(omm_node *node, const char *name) {
    char pieces[64];
    (void)snprintf(pieces, sizeof pieces, "%s/*", name);
    return omm_db_run(node->db, "DELETE FROM keep WHERE name = ? OR name GLOB ?", OMM_DB_TEXT(name),
                      OMM_DB_TEXT(pieces));
}

/* Room for all of it at once: what grows is held twice. */
static omm_err reserve_large(omm_buf *out, omm_node *node, const char *name) {
    char pieces[64];
    bool more = false;
    omm_rows *rows = NULL;
    (void)snprintf(pieces, sizeof pieces, "%s/*", name);
    OMM_TRY(omm_db_query(&rows, node->db,
                         "SELECT sum(length(value)) FROM keep WHERE name = ? OR name GLOB ?",
                         OMM_DB_TEXT(name), OMM_DB_TEXT(pieces)));
    omm_err err = omm_rows_next(&more, rows);
    if (err == OMM_OK && more) err = omm_buf_reserve(out, (size_t)omm_rows_int(rows, 0));
    omm_rows_close(rows);
    return err;
}

/* One that is not full is the last.  A program from before pieces writes all of a value under `name`, and leaves what
 * was behind it. */
omm_err node_keep_get_large(bool *found, omm_buf *out, omm_node *node, const char *name) {
    bool more = true;
    *found = false;
    OMM_TRY(reserve_large(out, node, name));
    for (size_t index = 0; more; index++) {
        char piece[64];
        const size_t before = out->size;
        piece_name(piece, name, index);
        OMM_TRY(node_keep_get(&more, out, node, piece));
        if (index == 0) *found = more;
        more = more && out->size - before == KEEP_PIECE_BYTES;
    }
    return OMM_OK;
}

/* ---- numbers, transactions ---- */

omm_err node_keep_get_u64(uint64_t *out, omm_node *node, const char *name) {
    omm_buf bytes;
    omm_buf_init(&bytes, 8);
    bool found = false;
    omm_err err = node_keep_get(&found, &bytes, node, name);
    *out = err == OMM_OK && bytes.size == 8 ? omm_get_u64(bytes.data) : 0;
    omm_buf_fini(&bytes);
    return err;
}

omm_err node_keep_all(omm_node *node, omm_err (*body)(omm_node *node, const void *ud),
                      const void *ud) {
    OMM_TRY(omm_db_begin(node->db));
    omm_err err = body(node, ud);
    if (err == OMM_OK) return omm_db_commit(node->db);
    omm_db_rollback(node->db);
    return err;
}

/* canary_store.c - canary.sqlite: who has which canary, and who failed.  A database of its own: what it says
 * is committed by itself, whatever group of receipts is open. */
#include "canary.h"

#include <stdio.h>
#include <string.h>

#define CANARY_APPLICATION_ID 0x4f4d4d57u /* "OMMW" */

static const char *const s_migrations[] = {
    "CREATE TABLE peer(id BLOB PRIMARY KEY, public_key BLOB NOT NULL, how TEXT NOT NULL,"
    " passes INTEGER NOT NULL, moved INTEGER NOT NULL, number INTEGER NOT NULL,"
    " state INTEGER NOT NULL, place INTEGER NOT NULL, reason TEXT NOT NULL,"
    " offer BLOB, submission BLOB, receipt BLOB) WITHOUT ROWID;"
    "CREATE TABLE failed(number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, reason TEXT NOT NULL,"
    " submission BLOB NOT NULL, receipt BLOB NOT NULL);",
};

omm_err canary_store_open(omm_db **out, const char *state_dir) {
    char path[OMM_PATH_MAX] = "";
    if (state_dir) OMM_TRY(omm_path_join(path, state_dir, "canary.sqlite"));
    const omm_db_options options = {.path = state_dir ? path : NULL,
                                    .application_id = CANARY_APPLICATION_ID,
                                    .migrations = s_migrations,
                                    .migration_count =
                                        sizeof s_migrations / sizeof s_migrations[0]};
    return omm_db_open(out, &options);
}

/* ---- peers ---- */

static omm_err put_peer(omm_db *db, const canary_peer *p) {
    return omm_db_run(db,
                      "INSERT INTO peer(id, public_key, how, passes, moved, number, state, place,"
                      " reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
                      " ON CONFLICT(id) DO UPDATE SET passes = excluded.passes,"
                      " moved = excluded.moved, number = excluded.number, state = excluded.state,"
                      " place = excluded.place, reason = excluded.reason",
                      OMM_DB_DIGEST(&p->id), OMM_DB_BLOB(omm_bytes_of(p->key.b, sizeof p->key.b)),
                      OMM_DB_TEXT(p->by), OMM_DB_INT(p->passes), OMM_DB_INT(p->moved_ms),
                      OMM_DB_INT(p->number), OMM_DB_INT(p->state), OMM_DB_INT(p->place),
                      OMM_DB_TEXT(p->reason));
}

static omm_err put_bytes(omm_db *db, const canary_peer *p, canary_column column, omm_bytes bytes) {
    static const char *const sql[] = {
        [CANARY_OFFER] = "UPDATE peer SET offer = ? WHERE id = ?",
        [CANARY_SUBMISSION] = "UPDATE peer SET submission = ? WHERE id = ?",
        [CANARY_RECEIPT] = "UPDATE peer SET receipt = ? WHERE id = ?"};
    return omm_db_run(db, sql[column], OMM_DB_BLOB(bytes), OMM_DB_DIGEST(&p->id));
}

omm_err canary_store_save(omm_db *db, const canary_peer *p, canary_column column, omm_bytes bytes) {
    if (column == CANARY_NO_BYTES) return put_peer(db, p);
    OMM_TRY(omm_db_begin(db));
    omm_err err = put_peer(db, p);
    if (err == OMM_OK) err = put_bytes(db, p, column, bytes);
    if (err == OMM_OK) return omm_db_commit(db);
    omm_db_rollback(db);
    return err;
}

omm_err canary_store_read(omm_buf *out, omm_db *db, const omm_digest *id, canary_column column) {
    static const char *const sql[] = {[CANARY_OFFER] = "SELECT offer FROM peer WHERE id = ?",
                                      [CANARY_SUBMISSION] =
                                          "SELECT submission FROM peer WHERE id = ?",
                                      [CANARY_RECEIPT] = "SELECT receipt FROM peer WHERE id = ?"};
    omm_rows *rows = NULL;
    bool more = false;
    OMM_TRY(omm_db_query(&rows, db, sql[column], OMM_DB_DIGEST(id)));
    omm_err err = omm_rows_next(&more, rows);
    if (err == OMM_OK && more) {
        const omm_bytes bytes = omm_rows_bytes(rows, 0);
        if (bytes.size > 0) err = omm_buf_append(out, bytes.data, bytes.size);
    }
    omm_rows_close(rows);
    return err;
}

omm_err canary_store_drop(omm_db *db, const omm_digest *id) {
    return omm_db_run(db, "DELETE FROM peer WHERE id = ?", OMM_DB_DIGEST(id));
}

static omm_err read_peer(canary_peer *p, const omm_rows *rows) {
    const omm_bytes key = omm_rows_bytes(rows, 1);
    *p = (canary_peer){.node = COORD_ANONYMOUS,
                       .passes = (uint32_t)omm_rows_int(rows, 3),
                       .moved_ms = (uint64_t)omm_rows_int(rows, 4),
                       .number = (uint32_t)omm_rows_int(rows, 5),
                       .state = (canary_state)omm_rows_int(rows, 6),
                       .place = (uint64_t)omm_rows_int(rows, 7)};
    if (key.size != sizeof p->key.b || p->state < CANARY_DUE || p->state > CANARY_FAILED)
        return omm_raise(OMM_ERR_FORMAT, "canary.sqlite: a row that is none");
    memcpy(p->key.b, key.data, key.size);
    (void)snprintf(p->by, sizeof p->by, "%s", omm_rows_text(rows, 2));
    (void)snprintf(p->reason, sizeof p->reason, "%s", omm_rows_text(rows, 8));
    return omm_rows_digest(&p->id, rows, 0);
}

omm_err canary_store_each(omm_db *db, omm_err (*fn)(void *ud, const canary_peer *row), void *ud) {
    omm_rows *rows = NULL;
    bool more = false;
    omm_err err = OMM_OK;
    OMM_TRY(omm_db_query(&rows, db,
                         "SELECT id, public_key, how, passes, moved, number, state, place, reason"
                         " FROM peer WHERE state >= ? ORDER BY id",
                         OMM_DB_INT(0)));
    while ((err = omm_rows_next(&more, rows)) == OMM_OK && more) {
        canary_peer row;
        err = read_peer(&row, rows);
        if (err == OMM_OK) err = fn(ud, &row);
        if (err != OMM_OK) break;
    }
    omm_rows_close(rows);
    return err;
}

/* ---- who failed ---- */

static omm_err put_failed(omm_db *db, const canary_peer *p, omm_bytes receipt) {
    OMM_TRY(omm_db_run(db,
                       "INSERT OR REPLACE INTO failed(id, reason, submission, receipt)"
                       " VALUES (?, ?, ?, ?)",
                       OMM_DB_DIGEST(&p->id), OMM_DB_TEXT(p->reason), OMM_DB_DIGEST(&p->submission),
                       OMM_DB_BLOB(receipt)));
    OMM_TRY(omm_db_run(db,
                       "DELETE FROM failed WHERE number <= (SELECT max(number) FROM failed) - ?",
                       OMM_DB_INT(CANARY_FAILED_MAX)));
    return canary_store_drop(db, &p->id);
}

omm_err canary_store_failed(omm_db *db, const canary_peer *p, omm_bytes receipt) {
    OMM_TRY(omm_db_begin(db));
    omm_err err = put_failed(db, p, receipt);
    if (err == OMM_OK) return omm_db_commit(db);
    omm_db_rollback(db);
    return err;
}

omm_err canary_store_failed_count(uint64_t *out, omm_db *db) {
    omm_rows *rows = NULL;
    bool more = false;
    *out = 0;
    OMM_TRY(
        omm_db_query(&rows, db, "SELECT COUNT(*) FROM failed WHERE number >= ?", OMM_DB_INT(0)));
    omm_err err = omm_rows_next(&more, rows);
    if (err == OMM_OK && more) *out = (uint64_t)omm_rows_int(rows, 0);
    omm_rows_close(rows);
    return err;
}

omm_err canary_store_find_failed(bool *found, char reason[OMM_COORD_REASON_MAX + 1],
                                 omm_digest *submission, omm_buf *receipt, omm_db *db,
                                 const omm_digest *id) {
    omm_rows *rows = NULL;
    OMM_TRY(omm_db_query(&rows, db, "SELECT reason, submission, receipt FROM failed WHERE id = ?",
                         OMM_DB_DIGEST(id)));
    omm_err err = omm_rows_next(found, rows);
    if (err == OMM_OK && *found && reason)
        (void)snprintf(reason, OMM_COORD_REASON_MAX + 1, "%s", omm_rows_text(rows, 0));
    if (err == OMM_OK && *found && submission) err = omm_rows_digest(submission, rows, 1);
    if (err == OMM_OK && *found && receipt) {
        const omm_bytes bytes = omm_rows_bytes(rows, 2);
        err = omm_buf_append(receipt, bytes.data, bytes.size);
    }
    omm_rows_close(rows);
    return err;
}

/* enrol_store.c - enrolment.sqlite: invitations, members, revocations.  A database of its own: what it says
 * is committed by itself, whatever the rounds are doing. */
#include "enrol.h"

#include <stdio.h>
#include <string.h>

#define ENROL_APPLICATION_ID 0x4f4d4d45u /* "OMME" */

static const char *const s_migrations[] = {
    "CREATE TABLE invitation(number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, label TEXT NOT "
    "NULL,"
    " expires INTEGER NOT NULL, withdrawn INTEGER NOT NULL DEFAULT 0, used_by BLOB);"
    "CREATE TABLE member(node INTEGER PRIMARY KEY, public_key BLOB NOT NULL UNIQUE,"
    " name TEXT NOT NULL, how TEXT NOT NULL);"
    "CREATE TABLE revoked(node INTEGER PRIMARY KEY, reason TEXT NOT NULL, wall_ms INTEGER NOT "
    "NULL);",
};

omm_err enrol_store_open(omm_db **out, const char *state_dir) {
    char path[OMM_PATH_MAX] = "";
    if (state_dir) OMM_TRY(omm_path_join(path, state_dir, ENROL_DATABASE));
    omm_db_options options = {.path = state_dir ? path : NULL,
                              .application_id = ENROL_APPLICATION_ID,
                              .migrations = s_migrations,
                              .migration_count = sizeof s_migrations / sizeof s_migrations[0]};
    return omm_db_open(out, &options);
}

/* ---- invitations ---- */

static omm_err put_all(omm_db *db, const enrol_invitation *all, size_t count) {
    for (size_t i = 0; i < count; i++)
        OMM_TRY(omm_db_run(db, "INSERT INTO invitation(id, label, expires) VALUES (?, ?, ?)",
                           OMM_DB_DIGEST(&all[i].id), OMM_DB_TEXT(all[i].label),
                           OMM_DB_INT(all[i].expires_ms)));
    return OMM_OK;
}

omm_err enrol_store_invite(omm_db *db, const enrol_invitation *all, size_t count) {
    OMM_TRY(omm_db_begin(db));
    omm_err err = put_all(db, all, count);
    if (err == OMM_OK) return omm_db_commit(db);
    omm_db_rollback(db);
    return err;
}

omm_err enrol_store_count(uint64_t *out, omm_db *db) {
    omm_rows *rows = NULL;
    bool more = false;
    *out = 0;
    OMM_TRY(omm_db_query(&rows, db, "SELECT COUNT(*) FROM invitation WHERE number >= ?",
                         OMM_DB_INT(0)));
    omm_err err = omm_rows_next(&more, rows);
    if (err == OMM_OK && more) *out = (uint64_t)omm_rows_int(rows, 0);
    omm_rows_close(rows);
    return err;
}

#define COLUMNS "id, label, expires, withdrawn, used_by"

static omm_err read_invitation(enrol_invitation *out, const omm_rows *rows) {
    *out = (enrol_invitation){.expires_ms = (uint64_t)omm_rows_int(rows, 2),
                              .withdrawn = omm_rows_int(rows, 3) != 0,
                              .used = !omm_rows_is_null(rows, 4)};
    (void)snprintf(out->label, sizeof out->label, "%s", omm_rows_text(rows, 1));
    OMM_TRY(omm_rows_digest(&out->id, rows, 0));
    return out->used ? omm_rows_digest(&out->used_by, rows, 4) : OMM_OK;
}

omm_err enrol_store_find(bool *found, enrol_invitation *out, omm_db *db, const omm_digest *id) {
    omm_rows *rows = NULL;
    OMM_TRY(omm_db_query(&rows, db, "SELECT " COLUMNS " FROM invitation WHERE id = ?",
                         OMM_DB_DIGEST(id)));
    omm_err err = omm_rows_next(found, rows);
    if (err == OMM_OK && *found) err = read_invitation(out, rows);
    omm_rows_close(rows);
    return err;
}

omm_err enrol_store_find_hex(unsigned *count, enrol_invitation *out, omm_db *db, const char *hex) {
    omm_rows *rows = NULL;
    bool more = false;
    *count = 0;
    OMM_TRY(omm_db_query(&rows, db,
                         "SELECT " COLUMNS " FROM invitation"
                         " WHERE substr(lower(hex(id)), 1, length(?1)) = ?1 LIMIT 2",
                         OMM_DB_TEXT(hex)));
    omm_err err = OMM_OK;
    while ((err = omm_rows_next(&more, rows)) == OMM_OK && more) {
        if (++*count > 1) break;
        err = read_invitation(out, rows);
        if (err != OMM_OK) break;
    }
    omm_rows_close(rows);
    return err;
}

omm_err enrol_store_withdraw(omm_db *db, const omm_digest *id) {
    return omm_db_run(db, "UPDATE invitation SET withdrawn = 1 WHERE id = ?", OMM_DB_DIGEST(id));
}

omm_err enrol_store_each(omm_db *db, uint32_t limit,
                         omm_err (*fn)(void *ud, const enrol_invitation *one), void *ud) {
    omm_rows *rows = NULL;
    bool more = false;
    omm_err err = OMM_OK;
    OMM_TRY(omm_db_query(&rows, db,
                         "SELECT " COLUMNS " FROM invitation ORDER BY number DESC LIMIT ?",
                         OMM_DB_INT(limit)));
    while ((err = omm_rows_next(&more, rows)) == OMM_OK && more) {
        enrol_invitation one;
        err = read_invitation(&one, rows);
        if (err == OMM_OK) err = fn(ud, &one);
        if (err != OMM_OK) break;
    }
    omm_rows_close(rows);
    return err;
}

/* ---- members ---- */

omm_err enrol_store_join(omm_db *db, uint32_t node, const char *name, const char *by,
                         const omm_public_key *key, const omm_digest *invitation) {
    const omm_digest id = omm_key_id(key);
    OMM_TRY(omm_db_run(db, "INSERT INTO member(node, public_key, name, how) VALUES (?, ?, ?, ?)",
                       OMM_DB_INT(node), OMM_DB_BLOB(omm_bytes_of(key->b, sizeof key->b)),
                       OMM_DB_TEXT(name), OMM_DB_TEXT(by)));
    if (!invitation) return OMM_OK;
    OMM_TRY(omm_db_run(db, "UPDATE invitation SET used_by = ? WHERE id = ? AND used_by IS NULL",
                       OMM_DB_DIGEST(&id), OMM_DB_DIGEST(invitation)));
    return omm_db_changes(db) == 1 ? OMM_OK : omm_raise(OMM_ERR_EXISTS, "invitation is used");
}

omm_err enrol_store_revoke(omm_db *db, uint32_t node, const char *reason, uint64_t wall_ms) {
    return omm_db_run(db, "INSERT INTO revoked(node, reason, wall_ms) VALUES (?, ?, ?)",
                      OMM_DB_INT(node), OMM_DB_TEXT(reason), OMM_DB_INT(wall_ms));
}

static omm_err read_key(omm_public_key *out, omm_bytes bytes) {
    if (bytes.size != sizeof out->b)
        return omm_raise(OMM_ERR_FORMAT, "enrolment.sqlite: a key of %zu bytes", bytes.size);
    memcpy(out->b, bytes.data, bytes.size);
    return OMM_OK;
}

omm_err enrol_store_members(omm_db *db,
                            omm_err (*fn)(void *ud, uint32_t node, const char *name, const char *by,
                                          const omm_public_key *key),
                            void *ud) {
    omm_rows *rows = NULL;
    bool more = false;
    omm_err err = OMM_OK;
    OMM_TRY(omm_db_query(
        &rows, db, "SELECT node, name, how, public_key FROM member WHERE node >= ? ORDER BY node",
        OMM_DB_INT(0)));
    while ((err = omm_rows_next(&more, rows)) == OMM_OK && more) {
        omm_public_key key;
        err = read_key(&key, omm_rows_bytes(rows, 3));
        if (err == OMM_OK)
            err = fn(ud, (uint32_t)omm_rows_int(rows, 0), omm_rows_text(rows, 1),
                     omm_rows_text(rows, 2), &key);
        if (err != OMM_OK) break;
    }
    omm_rows_close(rows);
    return err;
}

omm_err enrol_store_revoked(omm_db *db, omm_err (*fn)(void *ud, uint32_t node, const char *reason),
                            void *ud) {
    omm_rows *rows = NULL;
    bool more = false;
    omm_err err = OMM_OK;
    OMM_TRY(
        omm_db_query(&rows, db, "SELECT node, reason FROM revoked WHERE node >= ?", OMM_DB_INT(0)));
    while ((err = omm_rows_next(&more, rows)) == OMM_OK && more) {
        err = fn(ud, (uint32_t)omm_rows_int(rows, 0), omm_rows_text(rows, 1));
        if (err != OMM_OK) break;
    }
    omm_rows_close(rows);
    return err;
}

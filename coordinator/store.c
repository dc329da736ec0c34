/* store.c - what the coordinator remembers, in coordinator.sqlite: its tables, the run and its rounds.
 * Submissions are written and read in store_submission.c, all is read again in store_load.c; enrol_store.c and
 * canary_store.c have databases of their own, and no other file has SQL. */
#include "internal.h"

#include <stdio.h>

#define STORE_APPLICATION_ID 0x4f4d4d43u /* "OMMC" */

static const char *const s_migrations[] = {
    "CREATE TABLE run(id INTEGER PRIMARY KEY CHECK(id = 0), digest BLOB NOT NULL,"
    " state INTEGER NOT NULL, round INTEGER NOT NULL, loss REAL, close BLOB);"
    "CREATE TABLE round(round INTEGER PRIMARY KEY, offer BLOB NOT NULL, line BLOB,"
    " evaluated INTEGER NOT NULL DEFAULT 0);"
    "CREATE TABLE presence(round INTEGER NOT NULL, node INTEGER NOT NULL,"
    " offered INTEGER NOT NULL, PRIMARY KEY(round, node)) WITHOUT ROWID;"
    "CREATE TABLE submission(round INTEGER NOT NULL, digest BLOB NOT NULL, node INTEGER NOT NULL,"
    " status INTEGER NOT NULL, reason INTEGER NOT NULL, sentence TEXT NOT NULL,"
    " is_envelope INTEGER NOT NULL, bytes BLOB NOT NULL, receipt BLOB, tokens INTEGER NOT NULL,"
    " payload BLOB NOT NULL, canonical BLOB NOT NULL, norm REAL NOT NULL,"
    " PRIMARY KEY(round, digest));"
    "CREATE INDEX submission_digest ON submission(digest);"
    "CREATE INDEX submission_payload ON submission(payload);",
    "ALTER TABLE presence ADD COLUMN counter INTEGER NOT NULL DEFAULT 0;"
    "CREATE TABLE residual(node INTEGER PRIMARY KEY, digest BLOB NOT NULL);",
    "ALTER TABLE run ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;"
    "CREATE TABLE quarantine(node INTEGER PRIMARY KEY);",
    "CREATE TABLE told(node INTEGER PRIMARY KEY);",
    "CREATE TABLE counter(node INTEGER PRIMARY KEY, upto INTEGER NOT NULL);"
    "INSERT INTO counter(node, upto) SELECT node, MAX(counter) FROM presence GROUP BY node;"
    "ALTER TABLE presence DROP COLUMN counter;",
};

omm_err coord_store_open(omm_coord *c) {
    char path[OMM_PATH_MAX] = "";
    char uploads[OMM_PATH_MAX] = "";
    if (c->o.state_dir) {
        OMM_TRY(omm_dir_make_private(c->o.state_dir));
        OMM_TRY(omm_path_join(path, c->o.state_dir, "coordinator.sqlite"));
        OMM_TRY(omm_path_join(uploads, c->o.state_dir, "uploads"));
    }
    omm_db_options db = {.path = c->o.state_dir ? path : NULL,
                         .application_id = STORE_APPLICATION_ID,
                         .migrations = s_migrations,
                         .migration_count = sizeof s_migrations / sizeof s_migrations[0]};
    OMM_TRY(omm_db_open(&c->db, &db));
    omm_blobs_options blobs = {.dir = c->o.state_dir ? uploads : NULL,
                               .blob_bytes_max = c->payload_bytes_max,
                               .durable = c->o.state_dir != NULL,
                               .db = c->db,
                               .small_bytes_max = COORD_SMALL_BYTES_MAX};
    return omm_blobs_open(&c->uploads, &blobs);
}

/* ---- transactions ---- */

/* In a batch, whose transaction it is: all statements of `body`, or none. */
static omm_err in_savepoint(omm_coord *c, coord_store_body body, const void *ud) {
    OMM_TRY(omm_db_exec(c->db, "SAVEPOINT body"));
    omm_err err = body(c, ud);
    if (err == OMM_OK) return omm_db_exec(c->db, "RELEASE body");
    char why[OMM_SENTENCE_BYTES_MAX];
    (void)snprintf(why, sizeof why, "%s", omm_err_sentence());
    /* Where SQLite has rolled back all, there is no savepoint left, and the batch is lost. */
    if (omm_db_in_transaction(c->db) &&
        omm_db_exec(c->db, "ROLLBACK TO body; RELEASE body") != OMM_OK)
        omm_db_rollback(c->db);
    return omm_raise(err, "%s", why);
}

omm_err coord_store_in_transaction(omm_coord *c, coord_store_body body, const void *ud) {
    if (c->batch.open) return in_savepoint(c, body, ud);
    OMM_TRY(omm_db_begin(c->db));
    omm_err err = body(c, ud);
    if (err == OMM_OK) return omm_db_commit(c->db);
    omm_db_rollback(c->db);
    return err;
}

/* ---- the run ---- */

omm_err coord_store_state(omm_coord *c, omm_coord_state state, uint32_t round) {
    return omm_db_run(c->db, "UPDATE run SET state = ?, round = ? WHERE id = 0", OMM_DB_INT(state),
                      OMM_DB_INT(round));
}

/* Nobody of nodes[first .. last] is ready for this round any more. */
static omm_err forget_ready(omm_coord *c, int64_t first, int64_t last) {
    return omm_db_run(c->db,
                      "DELETE FROM presence WHERE round = ? AND offered = ? AND node BETWEEN ? AND "
                      "?",
                      OMM_DB_INT(c->round), OMM_DB_INT(COORD_READY), OMM_DB_INT(first),
                      OMM_DB_INT(last));
}

omm_err coord_store_gather_anew(omm_coord *c) {
    return forget_ready(c, 0, INT64_MAX);
}

static omm_err set_paused(omm_coord *c, bool paused) {
    return omm_db_run(c->db, "UPDATE run SET paused = ? WHERE id = 0", OMM_DB_INT(paused));
}

static omm_err resume_body(omm_coord *c, const void *ud) {
    (void)ud;
    OMM_TRY(set_paused(c, false));
    return coord_store_gather_anew(c);
}

omm_err coord_store_paused(omm_coord *c, bool paused) {
    return paused ? set_paused(c, true) : coord_store_in_transaction(c, resume_body, NULL);
}

typedef struct quarantine_args {
    size_t node;
    bool quarantined;
} quarantine_args;

static omm_err quarantine_body(omm_coord *c, const void *ud) {
    const quarantine_args *args = ud;
    OMM_TRY(omm_db_run(c->db,
                       args->quarantined ? "INSERT OR REPLACE INTO quarantine(node) VALUES (?)"
                                         : "DELETE FROM quarantine WHERE node = ?",
                       OMM_DB_INT(args->node)));
    return forget_ready(c, (int64_t)args->node, (int64_t)args->node);
}

omm_err coord_store_quarantine(omm_coord *c, size_t node, bool quarantined) {
    const quarantine_args args = {node, quarantined};
    return coord_store_in_transaction(c, quarantine_body, &args);
}

omm_err coord_store_loss(omm_coord *c, double loss) {
    return omm_db_run(c->db, "UPDATE run SET loss = ? WHERE id = 0", OMM_DB_REAL(loss));
}

/* ---- rounds ---- */

static omm_err offer_body(omm_coord *c, const void *ud) {
    const omm_bytes *envelope = ud;
    OMM_TRY(omm_db_run(c->db, "INSERT INTO round(round, offer) VALUES (?, ?)", OMM_DB_INT(c->round),
                       OMM_DB_BLOB(*envelope)));
    return coord_store_state(c, OMM_COORD_OPEN, c->round);
}

omm_err coord_store_offer(omm_coord *c, omm_bytes envelope) {
    return coord_store_in_transaction(c, offer_body, &envelope);
}

omm_err coord_store_presence(omm_coord *c, uint32_t node, coord_presence is) {
    return omm_db_run(c->db,
                      "INSERT OR REPLACE INTO presence(round, node, offered) VALUES (?, ?, ?)",
                      OMM_DB_INT(c->round), OMM_DB_INT(node), OMM_DB_INT(is));
}

omm_err coord_store_counter(omm_coord *c, uint32_t node, uint64_t upto) {
    return omm_db_run(c->db, "INSERT OR REPLACE INTO counter(node, upto) VALUES (?, ?)",
                      OMM_DB_INT(node), OMM_DB_INT((int64_t)upto));
}

static omm_err query_count(uint32_t *out, omm_coord *c, const char *sql, uint32_t round) {
    omm_rows *rows = NULL;
    OMM_TRY(omm_db_query(&rows, c->db, sql, OMM_DB_INT(round)));
    bool more = false;
    omm_err err = omm_rows_next(&more, rows);
    *out = more ? (uint32_t)omm_rows_int(rows, 0) : 0;
    omm_rows_close(rows);
    return err;
}

omm_err coord_store_counts_before(uint32_t *ledger_lines, uint32_t *state_lines, omm_coord *c,
                                  uint32_t round) {
    OMM_TRY(query_count(ledger_lines, c,
                        "SELECT COUNT(*) FROM submission WHERE status = 1 AND round < ?", round));
    OMM_TRY(query_count(state_lines, c, "SELECT COUNT(*) FROM round WHERE evaluated AND round < ?",
                        round));
    ++*state_lines; /* the initial adapter */
    return OMM_OK;
}

typedef struct publish_args {
    omm_bytes line;
    bool evaluated;
} publish_args;

static omm_err publish_body(omm_coord *c, const void *ud) {
    const publish_args *args = ud;
    OMM_TRY(omm_db_run(c->db, "UPDATE round SET line = ?, evaluated = ? WHERE round = ?",
                       OMM_DB_BLOB(args->line), OMM_DB_INT(args->evaluated), OMM_DB_INT(c->round)));
    if (args->evaluated && c->is_published) OMM_TRY(coord_store_loss(c, c->candidate_loss));
    return coord_store_state(c, OMM_COORD_PUBLISHED, c->round);
}

omm_err coord_store_publish(omm_coord *c, omm_bytes line, bool evaluated) {
    publish_args args = {line, evaluated};
    return coord_store_in_transaction(c, publish_body, &args);
}

static omm_err close_body(omm_coord *c, const void *ud) {
    const omm_bytes *envelope = ud;
    OMM_TRY(omm_db_run(c->db, "UPDATE run SET close = ? WHERE id = 0", OMM_DB_BLOB(*envelope)));
    return coord_store_state(c, OMM_COORD_CLOSED, c->round);
}

omm_err coord_store_close(omm_coord *c, omm_bytes close_envelope) {
    return coord_store_in_transaction(c, close_body, &close_envelope);
}

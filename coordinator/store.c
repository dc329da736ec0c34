/* store.c - what the coordinator remembers, in coordinator.sqlite; of other files only enrol_store.c has SQL. */
#include "internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
};

/* All that must not change between two starts. */
static omm_err config_digest(omm_digest *out, const omm_coord *c) {
    omm_buf record;
    omm_buf_init(&record, (size_t)1 << 28);
    omm_err err = coord_record_write(&record, c, c->listed);
    omm_hasher h;
    omm_hasher_init(&h);
    omm_hasher_update(&h, omm_buf_view(&record));
    omm_digest scenario = omm_hash(c->o.scenario_yaml);
    omm_digest policy = omm_hash(c->o.policy_yaml);
    omm_hasher_update(&h, omm_bytes_of(scenario.b, sizeof scenario.b));
    omm_hasher_update(&h, omm_bytes_of(policy.b, sizeof policy.b));
    omm_hasher_update(&h, omm_bytes_of(c->o.run_seed.b, sizeof c->o.run_seed.b));
    *out = omm_hasher_final(&h);
    omm_buf_fini(&record);
    return err;
}

omm_err coord_store_open(omm_coord *c) {
    char path[OMM_PATH_MAX] = "";
    char uploads[OMM_PATH_MAX] = "";
    if (c->o.state_dir) {
        OMM_TRY(omm_dir_make(c->o.state_dir));
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

static omm_err load_run(omm_coord *c, bool *found) {
    omm_digest want;
    OMM_TRY(config_digest(&want, c));
    omm_rows *rows = NULL;
    OMM_TRY(omm_db_query(&rows, c->db,
                         "SELECT digest, state, round, loss, close, paused FROM run WHERE id = ?",
                         OMM_DB_INT(0)));
    omm_digest have;
    omm_err err = omm_rows_next(found, rows);
    if (err == OMM_OK && *found) err = omm_rows_digest(&have, rows, 0);
    if (err == OMM_OK && *found && !omm_digest_equal(&have, &want))
        err = omm_raise(OMM_ERR_MISMATCH, "%s holds another run, or its configuration has changed",
                        c->o.state_dir ? c->o.state_dir : "memory");
    if (err == OMM_OK && *found) {
        c->state = (omm_coord_state)omm_rows_int(rows, 1);
        c->round = (uint32_t)omm_rows_int(rows, 2);
        c->has_loss = !omm_rows_is_null(rows, 3);
        c->loss = omm_rows_real(rows, 3);
        c->paused = omm_rows_int(rows, 5) != 0;
        omm_bytes close = omm_rows_bytes(rows, 4);
        err = omm_buf_append(&c->close, close.data, close.size);
    }
    omm_rows_close(rows);
    if (err != OMM_OK || *found) return err;
    return omm_db_run(c->db, "INSERT INTO run(id, digest, state, round) VALUES (0, ?, 0, 0)",
                      OMM_DB_DIGEST(&want));
}

static omm_err load_round(omm_coord *c) {
    omm_rows *rows = NULL;
    bool more = false;
    OMM_TRY(omm_db_query(&rows, c->db, "SELECT offer FROM round WHERE round = ?",
                         OMM_DB_INT(c->round)));
    omm_err err = omm_rows_next(&more, rows);
    if (err == OMM_OK && more) {
        omm_bytes offer = omm_rows_bytes(rows, 0);
        err = omm_buf_append(&c->offer, offer.data, offer.size);
    }
    omm_rows_close(rows);
    OMM_TRY(err);
    OMM_TRY(omm_db_query(&rows, c->db,
                         "SELECT line FROM round WHERE line IS NOT NULL AND round < ?"
                         " ORDER BY round DESC LIMIT 1",
                         OMM_DB_INT((int64_t)c->o.run->rounds)));
    err = omm_rows_next(&more, rows);
    if (err == OMM_OK && more) c->previous = omm_hash(omm_rows_bytes(rows, 0));
    omm_rows_close(rows);
    OMM_TRY(err);
    OMM_TRY(omm_db_query(&rows, c->db, "SELECT node, offered FROM presence WHERE round = ?",
                         OMM_DB_INT(c->round)));
    while ((err = omm_rows_next(&more, rows)) == OMM_OK && more) {
        int64_t node = omm_rows_int(rows, 0);
        if (node < 0 || (uint64_t)node >= c->o.run->node_count) continue;
        c->nodes[node].offered = omm_rows_int(rows, 1) != 0;
        c->nodes[node].ready = c->state == OMM_COORD_JOINING && !c->nodes[node].quarantined;
    }
    omm_rows_close(rows);
    return err;
}

static omm_err load_submissions(omm_coord *c) {
    omm_arena arena;
    omm_arena_init(&arena, SIZE_MAX);
    coord_row *rows = NULL;
    size_t count = 0;
    omm_err err = coord_store_rows(&rows, &count, c, c->round, &arena);
    for (size_t i = 0; i < count && err == OMM_OK; i++) {
        if (rows[i].node < 0) continue;
        coord_node *node = &c->nodes[rows[i].node];
        if (rows[i].status == COORD_PENDING && c->state == OMM_COORD_OPEN)
            err = coord_upload_restore(c, &rows[i]);
        if (rows[i].status == COORD_ACCEPTED) c->accepted_count++;
        if (rows[i].status == COORD_REFUSED) c->refused_count++;
        if (rows[i].status == COORD_ACCEPTED || rows[i].status == COORD_REFUSED)
            node->settled = true;
    }
    omm_arena_fini(&arena);
    return err;
}

/* What goes on over rounds: residuals, and the newest poll that changed anything. */
static omm_err load_nodes(omm_coord *c) {
    omm_rows *rows = NULL;
    bool more = false;
    omm_err err = OMM_OK;
    OMM_TRY(omm_db_query(&rows, c->db, "SELECT node, digest FROM residual WHERE node >= ?",
                         OMM_DB_INT(0)));
    while ((err = omm_rows_next(&more, rows)) == OMM_OK && more) {
        int64_t node = omm_rows_int(rows, 0);
        if (node < 0 || (uint64_t)node >= c->o.run->node_count) continue;
        err = omm_rows_digest(&c->nodes[node].residual, rows, 1);
        if (err != OMM_OK) break;
    }
    omm_rows_close(rows);
    OMM_TRY(err);
    OMM_TRY(omm_db_query(&rows, c->db,
                         "SELECT node, MAX(counter) FROM presence WHERE node >= ? GROUP BY node",
                         OMM_DB_INT(0)));
    while ((err = omm_rows_next(&more, rows)) == OMM_OK && more) {
        int64_t node = omm_rows_int(rows, 0);
        if (node < 0 || (uint64_t)node >= c->o.run->node_count) continue;
        c->nodes[node].has_counter = true;
        c->nodes[node].counter = (uint64_t)omm_rows_int(rows, 1);
        c->nodes[node].counter_moment = UINT64_MAX; /* before this process */
    }
    omm_rows_close(rows);
    return err;
}

omm_err coord_history_parse(omm_coord_round *out, uint32_t round, omm_bytes line) {
    omm_arena arena;
    omm_arena_init(&arena, (size_t)1 << 30);
    omm_round_record r;
    omm_err err = omm_round_record_parse(&r, &arena, line);
    if (err == OMM_OK && r.round != round)
        err =
            omm_raise(OMM_ERR_FORMAT, "line of round %u where that of %u belongs", r.round, round);
    if (err == OMM_OK)
        *out = (omm_coord_round){.round = r.round,
                                 .selected = (uint32_t)r.selected_count,
                                 .accepted = (uint32_t)r.accepted_count,
                                 .refused = (uint32_t)r.refused_count,
                                 .missing = (uint32_t)r.missing_count,
                                 .tokens = r.weight_sum,
                                 .loss = r.evaluated ? r.eval_loss : (double)NAN,
                                 .published = r.published,
                                 .voided = r.voided,
                                 .begins = omm_round_begins(&r)};
    omm_arena_fini(&arena);
    return err;
}

static omm_err load_history(omm_coord *c) {
    omm_rows *rows = NULL;
    bool more = false;
    omm_err err = OMM_OK;
    OMM_TRY(omm_db_query(&rows, c->db,
                         "SELECT line FROM round WHERE line IS NOT NULL AND round < ?"
                         " ORDER BY round",
                         OMM_DB_INT((int64_t)c->o.run->rounds)));
    while ((err = omm_rows_next(&more, rows)) == OMM_OK && more) {
        err = coord_history_parse(&c->history[c->history_count], c->history_count,
                                  omm_rows_bytes(rows, 0));
        if (err != OMM_OK) break;
        c->history_count++;
    }
    omm_rows_close(rows);
    return err;
}

/* Verdicts of every node since the run began. */
static omm_err load_totals(omm_coord *c) {
    omm_rows *rows = NULL;
    bool more = false;
    omm_err err = OMM_OK;
    OMM_TRY(omm_db_query(&rows, c->db,
                         "SELECT node, SUM(status = 1), SUM(status <> 1) FROM submission"
                         " WHERE node >= ? AND status <> 0 GROUP BY node",
                         OMM_DB_INT(0)));
    while ((err = omm_rows_next(&more, rows)) == OMM_OK && more) {
        int64_t node = omm_rows_int(rows, 0);
        if (node < 0 || (uint64_t)node >= c->o.run->node_count) continue;
        c->nodes[node].accepted_total = (uint32_t)omm_rows_int(rows, 1);
        c->nodes[node].refused_total = (uint32_t)omm_rows_int(rows, 2);
    }
    omm_rows_close(rows);
    return err;
}

static omm_err load_quarantine(omm_coord *c) {
    omm_rows *rows = NULL;
    bool more = false;
    omm_err err = OMM_OK;
    OMM_TRY(
        omm_db_query(&rows, c->db, "SELECT node FROM quarantine WHERE node >= ?", OMM_DB_INT(0)));
    while ((err = omm_rows_next(&more, rows)) == OMM_OK && more) {
        int64_t node = omm_rows_int(rows, 0);
        if (node >= 0 && (uint64_t)node < c->o.run->node_count) c->nodes[node].quarantined = true;
    }
    omm_rows_close(rows);
    return err;
}

omm_err coord_store_paused(omm_coord *c, bool paused) {
    return omm_db_run(c->db, "UPDATE run SET paused = ? WHERE id = 0", OMM_DB_INT(paused));
}

omm_err coord_store_quarantine(omm_coord *c, size_t node, bool quarantined) {
    return omm_db_run(c->db,
                      quarantined ? "INSERT OR REPLACE INTO quarantine(node) VALUES (?)"
                                  : "DELETE FROM quarantine WHERE node = ?",
                      OMM_DB_INT(node));
}

omm_err coord_store_load(omm_coord *c) {
    bool found = false;
    OMM_TRY(load_run(c, &found));
    OMM_TRY(load_history(c));
    OMM_TRY(load_totals(c));
    OMM_TRY(load_quarantine(c));
    OMM_TRY(load_round(c));
    OMM_TRY(load_nodes(c));
    if (c->offer.size > 0) OMM_TRY(coord_round_restore(c));
    return load_submissions(c);
}

static void forget_nodes(omm_coord *c) {
    for (size_t i = 0; i < c->o.run->node_count; i++) {
        coord_node *node = &c->nodes[i];
        coord_upload_end(&node->upload);
        node->ready = node->selected = node->offered = node->settled = false;
        node->quarantined = node->revoked; /* that is in a database of its own */
        node->has_counter = false;
        node->residual = c->residual_zero;
        node->replaced_count = 0;
        node->accepted_total = node->refused_total = 0;
    }
}

/* What is not in the database stays: clocks, who was told of the end, counters of this process. */
omm_err coord_store_reload(omm_coord *c) {
    forget_nodes(c);
    omm_buf_clear(&c->offer);
    omm_buf_clear(&c->close);
    c->selected_count = c->accepted_count = c->refused_count = 0;
    c->history_count = 0;
    c->has_loss = c->has_quorum = false;
    OMM_TRY(omm_blobs_undone(c->uploads));
    return coord_store_load(c);
}

omm_err coord_store_state(omm_coord *c, omm_coord_state state, uint32_t round) {
    return omm_db_run(c->db, "UPDATE run SET state = ?, round = ? WHERE id = 0", OMM_DB_INT(state),
                      OMM_DB_INT(round));
}

typedef omm_err (*body_fn)(omm_coord *c, const void *ud);

/* In a batch, whose transaction it is: all statements of `body`, or none. */
static omm_err in_savepoint(omm_coord *c, body_fn body, const void *ud) {
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

/* Run the statements of `body` in one transaction. */
static omm_err in_transaction(omm_coord *c, body_fn body, const void *ud) {
    if (c->batch.open) return in_savepoint(c, body, ud);
    OMM_TRY(omm_db_begin(c->db));
    omm_err err = body(c, ud);
    if (err == OMM_OK) return omm_db_commit(c->db);
    omm_db_rollback(c->db);
    return err;
}

static omm_err offer_body(omm_coord *c, const void *ud) {
    const omm_bytes *envelope = ud;
    OMM_TRY(omm_db_run(c->db, "INSERT INTO round(round, offer) VALUES (?, ?)", OMM_DB_INT(c->round),
                       OMM_DB_BLOB(*envelope)));
    return coord_store_state(c, OMM_COORD_OPEN, c->round);
}

omm_err coord_store_offer(omm_coord *c, omm_bytes envelope) {
    return in_transaction(c, offer_body, &envelope);
}

omm_err coord_store_presence(omm_coord *c, uint32_t node, bool offered) {
    return omm_db_run(c->db,
                      "INSERT OR REPLACE INTO presence(round, node, offered, counter)"
                      " VALUES (?, ?, ?, ?)",
                      OMM_DB_INT(c->round), OMM_DB_INT(node), OMM_DB_INT(offered),
                      OMM_DB_INT((int64_t)c->nodes[node].counter));
}

omm_err coord_store_loss(omm_coord *c, double loss) {
    return omm_db_run(c->db, "UPDATE run SET loss = ? WHERE id = 0", OMM_DB_REAL(loss));
}

#define ROW_COLUMNS                                                                                \
    "round, digest, node, status, reason, sentence, is_envelope, bytes, receipt, tokens, payload," \
    " canonical, norm"

static omm_err put_row(omm_coord *c, const coord_row *row) {
    return omm_db_run(c->db,
                      "INSERT OR REPLACE INTO submission(" ROW_COLUMNS
                      ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                      OMM_DB_INT(row->round), OMM_DB_DIGEST(&row->digest), OMM_DB_INT(row->node),
                      OMM_DB_INT(row->status), OMM_DB_INT(row->reason),
                      OMM_DB_TEXT(row->sentence ? row->sentence : ""), OMM_DB_INT(row->is_envelope),
                      OMM_DB_BLOB(row->bytes),
                      row->receipt.size ? OMM_DB_BLOB(row->receipt) : OMM_DB_NULL,
                      OMM_DB_INT(row->tokens), OMM_DB_DIGEST(&row->payload),
                      OMM_DB_DIGEST(&row->canonical), OMM_DB_REAL(row->norm));
}

static omm_err put_body(omm_coord *c, const void *ud) {
    const coord_row *row = ud;
    OMM_TRY(put_row(c, row));
    return omm_db_run(c->db, "INSERT OR REPLACE INTO residual(node, digest) VALUES (?, ?)",
                      OMM_DB_INT(row->node), OMM_DB_DIGEST(&row->residual));
}

omm_err coord_store_put(omm_coord *c, const coord_row *row) {
    return row->status == COORD_ACCEPTED ? in_transaction(c, put_body, row) : put_row(c, row);
}

omm_err coord_store_is_copy(bool *copy, omm_coord *c, const coord_row *row) {
    omm_rows *rows = NULL;
    OMM_TRY(omm_db_query(&rows, c->db,
                         "SELECT 1 FROM submission WHERE payload = ? AND round = ? AND node <> ?"
                         " AND status = 1 LIMIT 1",
                         OMM_DB_DIGEST(&row->payload), OMM_DB_INT(row->round),
                         OMM_DB_INT(row->node)));
    omm_err err = omm_rows_next(copy, rows);
    omm_rows_close(rows);
    return err;
}

omm_err coord_store_drop(omm_coord *c, uint32_t round, const omm_digest *digest) {
    return omm_db_run(c->db, "DELETE FROM submission WHERE round = ? AND digest = ?",
                      OMM_DB_INT(round), OMM_DB_DIGEST(digest));
}

static omm_err copy_bytes(omm_bytes *out, omm_bytes in, omm_arena *arena) {
    *out = (omm_bytes){0};
    if (in.size == 0) return OMM_OK;
    uint8_t *copy = omm_arena_alloc(arena, in.size, 1);
    if (!copy) return omm_raise(OMM_ERR_NOMEM, "%zu bytes of a submission", in.size);
    memcpy(copy, in.data, in.size);
    *out = omm_bytes_of(copy, in.size);
    return OMM_OK;
}

static omm_err read_row(coord_row *row, const omm_coord *c, const omm_rows *rows,
                        omm_arena *arena) {
    *row = (coord_row){.round = (uint32_t)omm_rows_int(rows, 0),
                       .node = (int32_t)omm_rows_int(rows, 2),
                       .status = (coord_status)omm_rows_int(rows, 3),
                       .reason = (omm_err)omm_rows_int(rows, 4),
                       .is_envelope = omm_rows_int(rows, 6) != 0,
                       .tokens = (uint64_t)omm_rows_int(rows, 9),
                       .norm = omm_rows_real(rows, 12)};
    if (row->node < COORD_ANONYMOUS || row->node >= (int64_t)c->o.run->node_count)
        return omm_raise(OMM_ERR_FORMAT, "submission of node %d of %zu", row->node,
                         c->o.run->node_count);
    OMM_TRY(omm_rows_digest(&row->digest, rows, 1));
    OMM_TRY(omm_rows_digest(&row->payload, rows, 10));
    OMM_TRY(omm_rows_digest(&row->canonical, rows, 11));
    row->sentence = omm_arena_strdup(arena, omm_rows_text(rows, 5));
    if (!row->sentence) return omm_raise(OMM_ERR_NOMEM, "sentence");
    OMM_TRY(copy_bytes(&row->bytes, omm_rows_bytes(rows, 7), arena));
    return copy_bytes(&row->receipt, omm_rows_bytes(rows, 8), arena);
}

omm_err coord_store_find(bool *found, coord_row *row, omm_coord *c, const omm_digest *digest,
                         omm_arena *arena) {
    omm_rows *rows = NULL;
    OMM_TRY(omm_db_query(&rows, c->db,
                         "SELECT " ROW_COLUMNS " FROM submission WHERE digest = ?"
                         " ORDER BY round DESC LIMIT 1",
                         OMM_DB_DIGEST(digest)));
    omm_err err = omm_rows_next(found, rows);
    if (err == OMM_OK && *found) err = read_row(row, c, rows, arena);
    omm_rows_close(rows);
    return err;
}

omm_err coord_store_find_payload(bool *found, coord_row *row, omm_coord *c,
                                 const omm_digest *payload, omm_arena *arena) {
    omm_rows *rows = NULL;
    OMM_TRY(omm_db_query(&rows, c->db,
                         "SELECT " ROW_COLUMNS " FROM submission WHERE payload = ?"
                         " AND receipt IS NOT NULL ORDER BY round DESC LIMIT 2",
                         OMM_DB_DIGEST(payload)));
    omm_err err = omm_rows_next(found, rows);
    if (err == OMM_OK && *found) err = read_row(row, c, rows, arena);
    bool more = false;
    if (err == OMM_OK && *found) err = omm_rows_next(&more, rows);
    /* Two of one round: whose receipt would it be?  The node asks by its envelope then. */
    if (more && (uint32_t)omm_rows_int(rows, 0) == row->round) *found = false;
    omm_rows_close(rows);
    return err;
}

omm_err coord_store_is_settled(bool *settled, omm_coord *c, uint32_t round, uint32_t node) {
    omm_rows *rows = NULL;
    OMM_TRY(omm_db_query(&rows, c->db,
                         "SELECT 1 FROM submission WHERE round = ? AND node = ?"
                         " AND status IN (1, 2) LIMIT 1",
                         OMM_DB_INT(round), OMM_DB_INT(node)));
    omm_err err = omm_rows_next(settled, rows);
    omm_rows_close(rows);
    return err;
}

omm_err coord_store_rejected(uint64_t *count, uint64_t *bytes, omm_coord *c, uint32_t round,
                             int32_t node) {
    omm_rows *rows = NULL;
    OMM_TRY(omm_db_query(&rows, c->db,
                         "SELECT COUNT(*), COALESCE(SUM(LENGTH(bytes)), 0) FROM submission"
                         " WHERE round = ? AND node = ? AND status = 3",
                         OMM_DB_INT(round), OMM_DB_INT(node)));
    bool more = false;
    omm_err err = omm_rows_next(&more, rows);
    *count = more ? (uint64_t)omm_rows_int(rows, 0) : 0;
    *bytes = more ? (uint64_t)omm_rows_int(rows, 1) : 0;
    omm_rows_close(rows);
    return err;
}

omm_err coord_store_rows(coord_row **out, size_t *count, omm_coord *c, uint32_t round,
                         omm_arena *arena) {
    *out = NULL;
    *count = 0;
    size_t capacity = 0;
    omm_rows *rows = NULL;
    OMM_TRY(omm_db_query(&rows, c->db, "SELECT COUNT(*) FROM submission WHERE round = ?",
                         OMM_DB_INT(round)));
    bool more = false;
    omm_err err = omm_rows_next(&more, rows);
    if (err == OMM_OK && more) capacity = (size_t)omm_rows_int(rows, 0);
    omm_rows_close(rows);
    OMM_TRY(err);
    if (capacity == 0) return OMM_OK;
    *out = omm_arena_alloc(arena, capacity, sizeof **out);
    if (!*out) return omm_raise(OMM_ERR_NOMEM, "%zu submissions", capacity);
    /* Nodes are in ascending order of their ids (run record), so the index orders them too. */
    OMM_TRY(omm_db_query(&rows, c->db,
                         "SELECT " ROW_COLUMNS " FROM submission WHERE round = ?"
                         " ORDER BY node, digest",
                         OMM_DB_INT(round)));
    while (*count < capacity && (err = omm_rows_next(&more, rows)) == OMM_OK && more) {
        err = read_row(&(*out)[*count], c, rows, arena);
        if (err != OMM_OK) break;
        ++*count;
    }
    omm_rows_close(rows);
    return err;
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
    return in_transaction(c, publish_body, &args);
}

static omm_err close_body(omm_coord *c, const void *ud) {
    const omm_bytes *envelope = ud;
    OMM_TRY(omm_db_run(c->db, "UPDATE run SET close = ? WHERE id = 0", OMM_DB_BLOB(*envelope)));
    return coord_store_state(c, OMM_COORD_CLOSED, c->round);
}

omm_err coord_store_close(omm_coord *c, omm_bytes close_envelope) {
    return in_transaction(c, close_body, &close_envelope);
}

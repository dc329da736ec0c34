/* store_load.c - what is in coordinator.sqlite becomes the coordinator's state: when it is opened, and after a
 * commit that failed. */
#include "internal.h"

#include <math.h>

/* ---- the run ---- */

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

omm_err coord_store_has_run(bool *out, omm_coord *c) {
    omm_rows *rows = NULL;
    OMM_TRY(omm_db_query(&rows, c->db, "SELECT id FROM run WHERE id = ?", OMM_DB_INT(0)));
    const omm_err err = omm_rows_next(out, rows);
    omm_rows_close(rows);
    return err;
}

static omm_err refuse_change(const omm_coord *c) {
    char what[512] = "";
    omm_buf record;
    omm_buf_init(&record, (size_t)1 << 28);
    const omm_err err = coord_record_write(&record, c, c->listed);
    if (err == OMM_OK) coord_name_change(what, sizeof what, c, omm_buf_view(&record));
    omm_buf_fini(&record);
    OMM_TRY(err);
    return omm_raise(OMM_ERR_CONFIG,
                     "%s holds a run that began with something else: %s; put that back, or begin a "
                     "new run in another state_dir",
                     c->o.state_dir ? c->o.state_dir : "memory", what);
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
    if (err == OMM_OK && *found && !omm_digest_equal(&have, &want)) err = refuse_change(c);
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
    /* A round is in the bundle long after it is in the database: without it, nobody's receipts would be known. */
    if (c->o.state_dir && omm_bundle_has(c->o.bundle, "rounds.jsonl"))
        return omm_raise(
            OMM_ERR_STATE,
            "%s/coordinator.sqlite is gone or empty, and the bundle %s has rounds of "
            "the run; put it back from a copy, or begin a new run in another state_dir",
            c->o.state_dir, omm_bundle_dir(c->o.bundle));
    return omm_db_run(c->db, "INSERT INTO run(id, digest, state, round) VALUES (0, ?, 0, 0)",
                      OMM_DB_DIGEST(&want));
}

/* ---- rounds ---- */

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
        omm_coord_round *past = &c->history[c->history_count];
        const bool ended_dry = past->ended_dry; /* of this process, in no line */
        err = coord_history_parse(past, c->history_count, omm_rows_bytes(rows, 0));
        if (err != OMM_OK) break;
        past->ended_dry = ended_dry;
        c->history_count++;
    }
    omm_rows_close(rows);
    return err;
}

static omm_err load_offer(omm_coord *c) {
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
    return err;
}

omm_err coord_store_master(omm_digest *out, omm_coord *c, uint32_t number) {
    omm_rows *rows = NULL;
    omm_arena arena;
    omm_round_record r;
    bool more = false;
    OMM_TRY(omm_db_query(&rows, c->db,
                         "SELECT line FROM round WHERE line IS NOT NULL AND round = ?",
                         OMM_DB_INT((int64_t)number - 1)));
    omm_arena_init(&arena, (size_t)1 << 30);
    omm_err err = omm_rows_next(&more, rows);
    if (err == OMM_OK && !more)
        err = omm_raise(OMM_ERR_FORMAT, "coordinator.sqlite: no round ended with state %u", number);
    if (err == OMM_OK) err = omm_round_record_parse(&r, &arena, omm_rows_bytes(rows, 0));
    if (err == OMM_OK) *out = r.master;
    omm_arena_fini(&arena);
    omm_rows_close(rows);
    return err;
}

omm_err omm_coord_round_line(omm_buf *line, uint64_t *at, omm_coord *c, uint32_t round) {
    omm_rows *rows = NULL;
    bool more = false;
    OMM_TRY(omm_db_query(
        &rows, c->db,
        "SELECT line, (SELECT SUM(LENGTH(b.line)) FROM round b WHERE b.round < a.round)"
        " FROM round a WHERE line IS NOT NULL AND round = ?",
        OMM_DB_INT(round)));
    omm_err err = omm_rows_next(&more, rows);
    if (err == OMM_OK && !more) err = omm_raise(OMM_ERR_NOT_FOUND, "round %u is not over", round);
    if (err == OMM_OK) {
        const omm_bytes bytes = omm_rows_bytes(rows, 0);
        *at = (uint64_t)omm_rows_int(rows, 1); /* 0 where there is none before */
        err = omm_buf_append(line, bytes.data, bytes.size);
    }
    omm_rows_close(rows);
    return err;
}

static omm_err load_previous(omm_coord *c) {
    omm_rows *rows = NULL;
    bool more = false;
    OMM_TRY(omm_run_agreed(&c->previous, c->o.run, c->o.scenario_yaml, c->o.policy_yaml));
    OMM_TRY(omm_db_query(&rows, c->db,
                         "SELECT line FROM round WHERE line IS NOT NULL AND round < ?"
                         " ORDER BY round DESC LIMIT 1",
                         OMM_DB_INT((int64_t)c->o.run->rounds)));
    omm_err err = omm_rows_next(&more, rows);
    if (err == OMM_OK && more) c->previous = omm_hash(omm_rows_bytes(rows, 0));
    omm_rows_close(rows);
    return err;
}

/* ---- nodes ---- */

typedef omm_err (*node_row_fn)(coord_node *node, omm_coord *c, const omm_rows *rows);

/* Rows of (node, ...) that `sql` finds with the one parameter; those of nodes the run does not have
 * are passed over. */
static omm_err each_node(omm_coord *c, const char *sql, int64_t parameter, node_row_fn take) {
    omm_rows *rows = NULL;
    bool more = false;
    omm_err err = OMM_OK;
    OMM_TRY(omm_db_query(&rows, c->db, sql, OMM_DB_INT(parameter)));
    while (err == OMM_OK && (err = omm_rows_next(&more, rows)) == OMM_OK && more) {
        int64_t node = omm_rows_int(rows, 0);
        if (node < 0 || (uint64_t)node >= c->o.run->node_count) continue;
        err = take(&c->nodes[node], c, rows);
    }
    omm_rows_close(rows);
    return err;
}

static omm_err take_presence(coord_node *node, omm_coord *c, const omm_rows *rows) {
    const int64_t is = omm_rows_int(rows, 1);
    node->offered = is != COORD_READY;
    if (is == COORD_DRY && c->state == OMM_COORD_OPEN && !node->has_counter) /* see take_counter */
        coord_declined_restore(c, (uint32_t)(node - c->nodes));
    node->ready = c->state == OMM_COORD_JOINING && !node->quarantined;
    return OMM_OK;
}

static omm_err take_residual(coord_node *node, omm_coord *c, const omm_rows *rows) {
    (void)c;
    return omm_rows_digest(&node->residual, rows, 1);
}

static omm_err take_counter(coord_node *node, omm_coord *c, const omm_rows *rows) {
    (void)c;
    node->counter_upto = (uint64_t)omm_rows_int(rows, 1);
    if (node->has_counter)
        return OMM_OK; /* only a batch was undone: its polls were there all the same */
    node->has_counter = true;
    node->counter = node->counter_upto; /* how far they came is not on disk */
    node->counter_moment = COORD_BEFORE;
    return OMM_OK;
}

static omm_err take_totals(coord_node *node, omm_coord *c, const omm_rows *rows) {
    (void)c;
    node->accepted_total = (uint32_t)omm_rows_int(rows, 1);
    node->refused_total = (uint32_t)omm_rows_int(rows, 2);
    return OMM_OK;
}

static omm_err take_quarantine(coord_node *node, omm_coord *c, const omm_rows *rows) {
    (void)c;
    (void)rows;
    node->quarantined = true;
    return OMM_OK;
}

/* Presence asks for the quarantine, so that is first. */
static omm_err load_nodes(omm_coord *c) {
    OMM_TRY(each_node(c,
                      "SELECT node, SUM(status = 1), SUM(status <> 1) FROM submission"
                      " WHERE node >= ? AND status <> 0 GROUP BY node",
                      0, take_totals));
    OMM_TRY(each_node(c, "SELECT node FROM quarantine WHERE node >= ?", 0, take_quarantine));
    OMM_TRY(each_node(c, "SELECT node, offered FROM presence WHERE round = ?", c->round,
                      take_presence));
    OMM_TRY(each_node(c, "SELECT node, digest FROM residual WHERE node >= ?", 0, take_residual));
    return each_node(c, "SELECT node, upto FROM counter WHERE node >= ?", 0, take_counter);
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
        if (rows[i].status != COORD_ACCEPTED && rows[i].status != COORD_REFUSED) continue;
        node->settled = true;
        node->declined = OMM_DECLINED_NOTHING;
    }
    omm_arena_fini(&arena);
    return err;
}

/* ---- all of it ---- */

omm_err coord_store_load(omm_coord *c) {
    bool found = false;
    OMM_TRY(load_run(c, &found));
    OMM_TRY(load_history(c));
    OMM_TRY(load_offer(c));
    OMM_TRY(load_previous(c));
    OMM_TRY(load_nodes(c));
    OMM_TRY(coord_told_load(c));
    if (c->offer.size > 0) OMM_TRY(coord_round_restore(c));
    OMM_TRY(load_submissions(c));
    coord_round_count_shut_out(c);
    return OMM_OK;
}

static void forget_nodes(omm_coord *c) {
    for (size_t i = 0; i < c->o.run->node_count; i++) {
        coord_node *node = &c->nodes[i];
        coord_upload_end(&node->upload);
        node->ready = node->selected = node->offered = node->settled = false;
        node->told = node->told_kept = false; /* the answers of an undone batch do not leave */
        node->quarantined = node->revoked;    /* that is in a database of its own */
        node->counter_upto = 0;
        node->residual = c->residual_zero;
        node->replaced_count = 0;
        node->accepted_total = node->refused_total = 0;
    }
}

/* What is not in the database stays: clocks, counters of this process. */
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

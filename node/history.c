/* history.c - what a node has given and declined, kept for its owner beside the node's state. */
#include "omm/node_history.h"

#include "internal.h"

#include <string.h>

#define LIST_MAX 20      /* of each kind in a report */
#define DECLINED_MAX 100 /* kept */
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

static int64_t now_s(const omm_node *node) {
    const omm_clock *clock = node->o.clock;
    return clock ? (int64_t)(clock->wall_ms(clock->ud) / 1000) : 0;
}

/* Both tables have the same columns. */
#define INSERT_INTO(TABLE)                                                                         \
    "INSERT OR REPLACE INTO " TABLE "(run_id, round, at_s, submission, payload, "                  \
    "submission_bytes, payload_bytes, steps, tokens, verdict, sent) "                              \
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, '', 0)"

static omm_err insert(omm_node *node, const char *sql, const node_gave *gave) {
    const node_job *job = &node->job;
    return omm_db_run(node->db, sql, OMM_DB_TEXT(job->offer.run_id), OMM_DB_INT(job->offer.round),
                      OMM_DB_INT(now_s(node)), OMM_DB_DIGEST(&gave->submission),
                      OMM_DB_DIGEST(&gave->payload), OMM_DB_INT(gave->submission_bytes),
                      OMM_DB_INT(gave->payload_bytes), OMM_DB_INT(job->result.steps),
                      OMM_DB_INT(job->result.tokens));
}

omm_err node_history_gave(omm_node *node, const node_gave *gave) {
    return insert(node, INSERT_INTO("gave"), gave);
}

omm_err node_history_canary(omm_node *node, const node_gave *gave) {
    return insert(node, INSERT_INTO("canary"), gave);
}

/* Before a byte of it leaves: after a kill it is rather said to be sent than not. */
omm_err node_history_sends(omm_node *node) {
    if (node->said_sent) return OMM_OK;
    const char *sql = node->gave_canary ? "UPDATE canary SET sent = 1 WHERE submission = ?"
                                        : "UPDATE gave SET sent = 1 WHERE submission = ?";
    OMM_TRY(omm_db_run(node->db, sql, OMM_DB_DIGEST(&node->submission_digest)));
    node->said_sent = true;
    return OMM_OK;
}

omm_err node_history_verdict(omm_node *node, const omm_digest *submission, const char *verdict) {
    OMM_TRY(omm_db_run(node->db, "UPDATE canary SET verdict = ? WHERE submission = ?",
                       OMM_DB_TEXT(verdict), OMM_DB_DIGEST(submission)));
    return omm_db_run(node->db, "UPDATE gave SET verdict = ? WHERE submission = ?",
                      OMM_DB_TEXT(verdict), OMM_DB_DIGEST(submission));
}

omm_err node_history_declined(omm_node *node, const omm_offer *offer, const char *sentence) {
    const int64_t now = now_s(node);
    OMM_TRY(omm_db_run(node->db,
                       "UPDATE declined SET last_s = ?, times = times + 1 WHERE id = "
                       "(SELECT max(id) FROM declined) AND run_id = ? AND round = ? AND "
                       "sentence = ?",
                       OMM_DB_INT(now), OMM_DB_TEXT(offer->run_id), OMM_DB_INT(offer->round),
                       OMM_DB_TEXT(sentence)));
    if (omm_db_changes(node->db) > 0) return OMM_OK;
    OMM_TRY(omm_db_run(node->db,
                       "INSERT INTO declined(first_s, last_s, times, run_id, round, sentence) "
                       "VALUES (?, ?, 1, ?, ?, ?)",
                       OMM_DB_INT(now), OMM_DB_INT(now), OMM_DB_TEXT(offer->run_id),
                       OMM_DB_INT(offer->round), OMM_DB_TEXT(sentence)));
    return omm_db_exec(node->db, "DELETE FROM declined WHERE id <= (SELECT max(id) FROM declined) "
                                 "- " TEXT(DECLINED_MAX));
}

/* ---- reports ---- */

static omm_err put_digest(json_t *object, const char *key, const omm_rows *rows, unsigned column) {
    omm_digest digest;
    OMM_TRY(omm_rows_digest(&digest, rows, column));
    return omm_json_set_digest(object, key, digest.b);
}

static omm_err put_gave(json_t *object, const omm_rows *rows) {
    static const char *const numbers[] = {"round",         "at_s",  "submission_bytes",
                                          "payload_bytes", "steps", "tokens"};
    OMM_TRY(omm_json_set_str(object, "run_id", omm_rows_text(rows, 6)));
    OMM_TRY(omm_json_set_str(object, "verdict", omm_rows_text(rows, 7)));
    OMM_TRY(put_digest(object, "submission", rows, 8));
    OMM_TRY(put_digest(object, "payload", rows, 9));
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
        OMM_TRY(omm_json_set_int(object, numbers[i], omm_rows_int(rows, i)));
    return omm_json_set_bool(object, "sent", omm_rows_int(rows, 10) != 0);
}

static omm_err put_declined(json_t *object, const omm_rows *rows) {
    static const char *const numbers[] = {"round", "first_s", "last_s", "times"};
    OMM_TRY(omm_json_set_str(object, "run_id", omm_rows_text(rows, 4)));
    OMM_TRY(omm_json_set_str(object, "reason", omm_rows_text(rows, 5)));
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
        OMM_TRY(omm_json_set_int(object, numbers[i], omm_rows_int(rows, i)));
    return OMM_OK;
}

static omm_err put_totals(json_t *object, const omm_rows *rows) {
    static const char *const numbers[] = {"rounds", "accepted", "waiting", "submission_bytes",
                                          "payload_bytes"};
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
        OMM_TRY(omm_json_set_int(object, numbers[i], omm_rows_int(rows, i)));
    return OMM_OK;
}

/* The rows of `sql` as objects of a list at root[key], or the only one as root[key] itself. */
static omm_err put_rows(json_t *root, const char *key, omm_db *db, const char *sql, bool is_list,
                        omm_err (*put)(json_t *object, const omm_rows *rows)) {
    omm_rows *rows = NULL;
    json_t *list = json_array();
    bool more = false;
    omm_err err = omm_db_query(&rows, db, sql, OMM_DB_INT(is_list ? LIST_MAX : 1));
    while (err == OMM_OK && (err = omm_rows_next(&more, rows)) == OMM_OK && more) {
        json_t *object = json_object();
        err = put(object, rows);
        if (json_array_append_new(list, object) != 0 && err == OMM_OK)
            err = omm_raise(OMM_ERR_NOMEM, "JSON");
    }
    omm_rows_close(rows);
    if (err == OMM_OK && is_list) return omm_json_set(root, key, list);
    if (err == OMM_OK) err = omm_json_set(root, key, json_incref(json_array_get(list, 0)));
    json_decref(list);
    return err;
}

static omm_err put_all(json_t *root, omm_db *db) {
    OMM_TRY(put_rows(root, "sent", db,
                     "SELECT count(*), coalesce(sum(verdict = 'OK'), 0), "
                     "coalesce(sum(verdict = ''), 0), coalesce(sum(submission_bytes), 0), "
                     "coalesce(sum(payload_bytes), 0) FROM gave WHERE sent LIMIT ?",
                     false, put_totals));
    OMM_TRY(put_rows(
        root, "rounds", db,
        "SELECT round, at_s, submission_bytes, payload_bytes, steps, tokens, run_id, "
        "verdict, submission, payload, sent FROM gave ORDER BY at_s DESC, round DESC LIMIT ?",
        true, put_gave));
    OMM_TRY(put_rows(root, "canaries", db,
                     "SELECT round, at_s, submission_bytes, payload_bytes, steps, tokens, run_id, "
                     "verdict, submission, payload, sent FROM canary ORDER BY at_s DESC, "
                     "round DESC LIMIT ?",
                     true, put_gave));
    return put_rows(root, "declined", db,
                    "SELECT round, first_s, last_s, times, run_id, sentence FROM declined "
                    "ORDER BY id DESC LIMIT ?",
                    true, put_declined);
}

static omm_err report(json_t **out, omm_db *db) {
    json_t *root = json_object();
    const omm_err err = put_all(root, db);
    if (err == OMM_OK)
        *out = root;
    else
        json_decref(root);
    return err;
}

omm_err omm_node_history(json_t **out, omm_node *node) {
    return report(out, node->db);
}

omm_err omm_node_history_read(json_t **out, const char *state_dir) {
    char path[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(path, state_dir, NODE_DATABASE));
    uint64_t size = 0;
    /* One that is being made has nothing in it, and no lock yet: two who open it then refuse each other. */
    if (!omm_file_exists(path) || (omm_file_size(&size, path) == OMM_OK && size == 0))
        return omm_raise(OMM_ERR_NOT_FOUND, "%s: no node has run with it", state_dir);
    omm_db *db = NULL;
    OMM_TRY(node_keep_open_file(&db, path, 1));
    const omm_err err = report(out, db);
    omm_db_close(db);
    return err;
}

/* told.c - who has heard that the run is over, over restarts too.
 *
 * It is kept after the answers have left, not with them: a coordinator that dies in between lingers once more
 * for a node that had heard, and never leaves one behind that had not.
 */
#include "internal.h"

bool omm_coord_all_told(const omm_coord *c) {
    if (c->state != OMM_COORD_CLOSED) return false;
    for (size_t i = 0; i < c->o.run->node_count; i++)
        if (c->nodes[i].counts && !c->nodes[i].told && !c->nodes[i].quarantined) return false;
    return true;
}

static omm_err keep_each(omm_coord *c) {
    for (size_t i = 0; i < c->o.run->node_count; i++)
        if (c->nodes[i].told && !c->nodes[i].told_kept)
            OMM_TRY(
                omm_db_run(c->db, "INSERT OR IGNORE INTO told(node) VALUES (?)", OMM_DB_INT(i)));
    return OMM_OK;
}

static bool is_news(const omm_coord *c) {
    for (size_t i = 0; c->state == OMM_COORD_CLOSED && i < c->o.run->node_count; i++)
        if (c->nodes[i].told && !c->nodes[i].told_kept) return true;
    return false;
}

omm_err omm_coord_keep_told(omm_coord *c) {
    OMM_ASSERT(!c->batch.open);
    OMM_TRY(coord_check_sound(c));
    if (!is_news(c)) return OMM_OK;
    OMM_TRY(omm_db_begin(c->db));
    omm_err err = keep_each(c);
    if (err == OMM_OK) err = omm_db_commit(c->db);
    omm_db_rollback(c->db);
    OMM_TRY(err);
    for (size_t i = 0; i < c->o.run->node_count; i++) c->nodes[i].told_kept = c->nodes[i].told;
    return OMM_OK;
}

omm_err coord_told_load(omm_coord *c) {
    omm_rows *rows = NULL;
    bool more = false;
    omm_err err = OMM_OK;
    OMM_TRY(omm_db_query(&rows, c->db, "SELECT node FROM told WHERE node >= ?", OMM_DB_INT(0)));
    while ((err = omm_rows_next(&more, rows)) == OMM_OK && more) {
        const int64_t node = omm_rows_int(rows, 0);
        if (node < 0 || (uint64_t)node >= c->o.run->node_count) continue;
        c->nodes[node].told = c->nodes[node].told_kept = true;
    }
    omm_rows_close(rows);
    return err;
}

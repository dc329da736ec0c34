/* store_submission.c - the table of submissions: what each node sent, and the verdict. */
#include "internal.h"

#include <string.h>

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
    return row->status == COORD_ACCEPTED ? coord_store_in_transaction(c, put_body, row)
                                         : put_row(c, row);
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

omm_err coord_store_each_accepted(omm_coord *c, uint32_t round, coord_accepted_fn each, void *ud) {
    omm_rows *rows = NULL;
    bool more = false;
    OMM_TRY(omm_db_query(&rows, c->db,
                         "SELECT payload, tokens FROM submission WHERE round = ? AND status = 1"
                         " ORDER BY node, digest",
                         OMM_DB_INT(round)));
    omm_err err = OMM_OK;
    while (err == OMM_OK && (err = omm_rows_next(&more, rows)) == OMM_OK && more) {
        omm_digest payload;
        err = omm_rows_digest(&payload, rows, 0);
        if (err == OMM_OK) err = each(ud, &payload, (uint64_t)omm_rows_int(rows, 1));
    }
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

/* statement.c - owns prepared statements: the cache, values in, rows out. */
#include "database_internal.h"

#include "omm/mem.h"

#include <string.h>

struct omm_rows {
    omm_db *db;
    prepared *from;
    bool has_row;
};

omm_db_value omm_db_value_text(const char *text) {
    if (!text) return OMM_DB_NULL;
    return (omm_db_value){.kind = OMM_DB_KIND_TEXT, .bytes = omm_bytes_str(text)};
}

static void drop_statement(prepared *s) {
    sqlite3_finalize(s->handle);
    omm_free(s->sql);
    *s = (prepared){0};
}

void db_free_statements(omm_db *db) {
    for (unsigned i = 0; i < STATEMENTS_MAX; i++) {
        OMM_ASSERT(!db->statements[i].is_busy);
        drop_statement(&db->statements[i]);
    }
}

/* The statement of `sql`, or the place for it: an empty one, else the longest unused. */
static prepared *find_statement(omm_db *db, const char *sql) {
    prepared *place = NULL;
    for (unsigned i = 0; i < STATEMENTS_MAX; i++) {
        prepared *s = &db->statements[i];
        if (s->sql && strcmp(s->sql, sql) == 0) return s;
        if (!s->is_busy && (!place || s->used_at < place->used_at)) place = s;
    }
    return place;
}

static omm_err prepare(prepared **out, omm_db *db, const char *sql) {
    prepared *s = find_statement(db, sql);
    if (!s) return omm_raise(OMM_ERR_STATE, "over %u queries are open", STATEMENTS_MAX);
    if (s->is_busy) return omm_raise(OMM_ERR_STATE, "%.100s: its rows are still open", sql);
    if (!s->sql || strcmp(s->sql, sql) != 0) {
        drop_statement(s);
        const char *rest = "";
        s->sql = omm_strdup(sql);
        if (!s->sql) return omm_raise(OMM_ERR_NOMEM, "no memory for a statement");
        int result =
            sqlite3_prepare_v3(db->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, &s->handle, &rest);
        if (result != SQLITE_OK || !s->handle || rest[strspn(rest, " \n\t;")] != '\0') {
            omm_err err = result != SQLITE_OK
                              ? db_error(db->handle, result, sql)
                              : omm_raise(OMM_ERR_USAGE, "%.100s: not one statement", sql);
            drop_statement(s);
            return err;
        }
    }
    s->used_at = ++db->tick;
    *out = s;
    return OMM_OK;
}

/* Bytes are copied: a query outlives the call that bound its values. */
static int bind_one(sqlite3_stmt *s, int at, const omm_db_value *value) {
    switch (value->kind) {
    case OMM_DB_KIND_NULL: return sqlite3_bind_null(s, at);
    case OMM_DB_KIND_INT: return sqlite3_bind_int64(s, at, value->number);
    case OMM_DB_KIND_REAL: return sqlite3_bind_double(s, at, value->real);
    case OMM_DB_KIND_TEXT:
        return sqlite3_bind_text64(s, at, (const char *)value->bytes.data, value->bytes.size,
                                   SQLITE_TRANSIENT, SQLITE_UTF8);
    case OMM_DB_KIND_BLOB:
        if (value->bytes.size == 0) return sqlite3_bind_zeroblob(s, at, 0); /* NULL is no blob */
        return sqlite3_bind_blob64(s, at, value->bytes.data, value->bytes.size, SQLITE_TRANSIENT);
    }
    return SQLITE_MISUSE;
}

static omm_err bind(omm_db *db, prepared *s, const omm_db_value *values, size_t count) {
    int wanted = sqlite3_bind_parameter_count(s->handle);
    if ((size_t)wanted != count) {
        return omm_raise(OMM_ERR_USAGE, "%.100s: wants %d values, not %zu", s->sql, wanted, count);
    }
    for (int i = 0; i < wanted; i++) {
        int result = bind_one(s->handle, i + 1, &values[i]);
        if (result != SQLITE_OK) return db_error(db->handle, result, s->sql);
    }
    return OMM_OK;
}

/* Ready for the next use; keeps no bytes of the last one. */
static void reset(prepared *s) {
    sqlite3_reset(s->handle);
    sqlite3_clear_bindings(s->handle);
}

omm_err omm_db_run_values(omm_db *db, const char *sql, const omm_db_value *values, size_t count) {
    prepared *s;
    OMM_TRY(prepare(&s, db, sql));
    omm_err err = bind(db, s, values, count);
    if (err == OMM_OK) {
        int result = sqlite3_step(s->handle);
        while (result == SQLITE_ROW) result = sqlite3_step(s->handle);
        if (result != SQLITE_DONE) err = db_error(db->handle, result, sql);
    }
    reset(s);
    return err;
}

omm_err omm_db_query_values(omm_rows **out, omm_db *db, const char *sql, const omm_db_value *values,
                            size_t count) {
    prepared *s;
    OMM_TRY(prepare(&s, db, sql));
    omm_rows *rows = omm_alloc(1, sizeof *rows);
    if (!rows) return omm_raise(OMM_ERR_NOMEM, "no memory for a query");
    omm_err err = bind(db, s, values, count);
    if (err != OMM_OK) {
        reset(s);
        omm_free(rows);
        return err;
    }
    s->is_busy = true;
    *rows = (omm_rows){.db = db, .from = s};
    *out = rows;
    return OMM_OK;
}

omm_err omm_rows_next(bool *more, omm_rows *rows) {
    int result = sqlite3_step(rows->from->handle);
    rows->has_row = result == SQLITE_ROW;
    if (result != SQLITE_ROW && result != SQLITE_DONE) {
        return db_error(rows->db->handle, result, rows->from->sql);
    }
    *more = rows->has_row;
    return OMM_OK;
}

void omm_rows_close(omm_rows *rows) {
    if (!rows) return;
    reset(rows->from);
    rows->from->is_busy = false;
    omm_free(rows);
}

/* ---- columns ---- */

static sqlite3_stmt *row(const omm_rows *rows, unsigned column) {
    OMM_ASSERT(rows->has_row);
    OMM_ASSERT(column < (unsigned)sqlite3_column_count(rows->from->handle));
    return rows->from->handle;
}

bool omm_rows_is_null(const omm_rows *rows, unsigned column) {
    return sqlite3_column_type(row(rows, column), (int)column) == SQLITE_NULL;
}

int64_t omm_rows_int(const omm_rows *rows, unsigned column) {
    return sqlite3_column_int64(row(rows, column), (int)column);
}

double omm_rows_real(const omm_rows *rows, unsigned column) {
    return sqlite3_column_double(row(rows, column), (int)column);
}

const char *omm_rows_text(const omm_rows *rows, unsigned column) {
    const unsigned char *text = sqlite3_column_text(row(rows, column), (int)column);
    return text ? (const char *)text : "";
}

omm_bytes omm_rows_bytes(const omm_rows *rows, unsigned column) {
    sqlite3_stmt *s = row(rows, column);
    const void *data = sqlite3_column_blob(s, (int)column);
    return omm_bytes_of(data, (size_t)sqlite3_column_bytes(s, (int)column));
}

omm_err omm_rows_digest(omm_digest *out, const omm_rows *rows, unsigned column) {
    omm_bytes bytes = omm_rows_bytes(rows, column);
    if (bytes.size != sizeof out->b) {
        return omm_raise(OMM_ERR_FORMAT, "column %u has %zu bytes, not %zu", column, bytes.size,
                         sizeof out->b);
    }
    memcpy(out->b, bytes.data, sizeof out->b);
    return OMM_OK;
}

/* database.h - SQLite opened, migrated, checked and backed up in one way.
 *
 * Files are in WAL mode with synchronous=FULL and foreign keys on, held by one process at a time
 * (locking_mode EXCLUSIVE), checked for integrity on open, and stepped through `migrations` by
 * user_version, each in one transaction.  They are their owner's alone (0600), and made so where they were not.  A commit that returned OK survives kill -9 and power loss.
 *
 *   omm_db_run(db, "INSERT INTO node(id, tokens) VALUES (?, ?)", OMM_DB_BLOB(id), OMM_DB_INT(7));
 *
 *   omm_rows *rows;
 *   OMM_TRY(omm_db_query(&rows, db, "SELECT name FROM node WHERE tokens > ?", OMM_DB_INT(5)));
 *   while ((err = omm_rows_next(&more, rows)) == OMM_OK && more) use(omm_rows_text(rows, 0));
 *   omm_rows_close(rows);
 *
 * Statements are kept prepared by their text, so repeating one is cheap.
 *
 * Depends on: base; SQLite.  Threads: a database belongs to one thread at a time.
 */
#ifndef OMM_DATABASE_H
#define OMM_DATABASE_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct omm_db omm_db;
typedef struct omm_rows omm_rows;

typedef struct omm_db_options {
    const char *path;              /* NULL: in memory, gone when closed */
    uint32_t application_id;       /* of this kind of database; another kind is refused */
    const char *const *migrations; /* SQL; number i takes user_version i to i + 1 */
    unsigned migration_count;
    uint32_t busy_timeout_ms; /* 0: 5,000 */
} omm_db_options;

/* Errors: IO, NOMEM, VERSION (written by a newer program), FORMAT (another kind of database, or
 * damaged), STATE (another process has it open). */
OMM_CHECKED omm_err omm_db_open(omm_db **out, const omm_db_options *options);
/* Rolls back an open transaction. */
void omm_db_close(omm_db *db);

/* BEGIN IMMEDIATE, COMMIT, ROLLBACK.  They do not nest (STATE).  A failed commit has rolled back.
 * Errors: STATE, IO, NOMEM. */
OMM_CHECKED omm_err omm_db_begin(omm_db *db);
OMM_CHECKED omm_err omm_db_commit(omm_db *db);
void omm_db_rollback(omm_db *db); /* without a transaction: nothing */
bool omm_db_in_transaction(const omm_db *db);

typedef enum omm_db_kind {
    OMM_DB_KIND_NULL,
    OMM_DB_KIND_INT,
    OMM_DB_KIND_REAL,
    OMM_DB_KIND_TEXT,
    OMM_DB_KIND_BLOB,
} omm_db_kind;

typedef struct omm_db_value {
    omm_db_kind kind;
    int64_t number;
    double real;
    omm_bytes bytes;
} omm_db_value;

omm_db_value omm_db_value_text(const char *text); /* NULL gives NULL */
static inline omm_db_value omm_db_value_digest(const omm_digest *digest) {
    return (omm_db_value){.kind = OMM_DB_KIND_BLOB,
                          .bytes = omm_bytes_of(digest->b, sizeof digest->b)};
}
#define OMM_DB_NULL ((omm_db_value){.kind = OMM_DB_KIND_NULL})
#define OMM_DB_INT(v) ((omm_db_value){.kind = OMM_DB_KIND_INT, .number = (int64_t)(v)})
#define OMM_DB_REAL(v) ((omm_db_value){.kind = OMM_DB_KIND_REAL, .real = (v)})
#define OMM_DB_TEXT(v) omm_db_value_text(v)
#define OMM_DB_BLOB(v) ((omm_db_value){.kind = OMM_DB_KIND_BLOB, .bytes = (v)})
#define OMM_DB_DIGEST(v) omm_db_value_digest(v)

/* One statement, values for its question marks (at least one; omm_db_exec is for none).
 * Errors: EXISTS (a uniqueness or other constraint), IO (disk full, I/O error), NOMEM, STATE (busy),
 * USAGE (bad SQL or wrong number of values). */
#define omm_db_run(db, sql, ...)                                                                   \
    omm_db_run_values((db), (sql), (const omm_db_value[]){__VA_ARGS__},                            \
                      sizeof((const omm_db_value[]){__VA_ARGS__}) / sizeof(omm_db_value))
OMM_CHECKED omm_err omm_db_run_values(omm_db *db, const char *sql, const omm_db_value *values,
                                      size_t count);
/* Any number of statements without values.  Same errors. */
OMM_CHECKED omm_err omm_db_exec(omm_db *db, const char *sql);
/* Rows changed by the last statement. */
uint64_t omm_db_changes(const omm_db *db);

/* Same, with rows to read.  Close them before the same SQL is used again (STATE otherwise). */
#define omm_db_query(out, db, sql, ...)                                                            \
    omm_db_query_values((out), (db), (sql), (const omm_db_value[]){__VA_ARGS__},                   \
                        sizeof((const omm_db_value[]){__VA_ARGS__}) / sizeof(omm_db_value))
OMM_CHECKED omm_err omm_db_query_values(omm_rows **out, omm_db *db, const char *sql,
                                        const omm_db_value *values, size_t count);
/* Step to the next row; *more is false after the last. */
OMM_CHECKED omm_err omm_rows_next(bool *more, omm_rows *rows);
void omm_rows_close(omm_rows *rows); /* NULL: nothing */

/* Columns of the current row, from 0.  Views are valid until the next step. */
bool omm_rows_is_null(const omm_rows *rows, unsigned column);
int64_t omm_rows_int(const omm_rows *rows, unsigned column);
double omm_rows_real(const omm_rows *rows, unsigned column);
const char *omm_rows_text(const omm_rows *rows, unsigned column); /* "" for NULL */
omm_bytes omm_rows_bytes(const omm_rows *rows, unsigned column);
/* Errors: FORMAT (not 32 bytes). */
OMM_CHECKED omm_err omm_rows_digest(omm_digest *out, const omm_rows *rows, unsigned column);

#endif

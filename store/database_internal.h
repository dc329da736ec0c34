/* database_internal.h - the connection, shared by database.c and statement.c.
 *
 * Depends on: base; SQLite.  Threads: one at a time.
 */
#ifndef OMM_STORE_DATABASE_INTERNAL_H
#define OMM_STORE_DATABASE_INTERNAL_H

#include "omm/database.h"

#include <sqlite3.h>

#define STATEMENTS_MAX 64u /* kept prepared; the least recently used one makes room */

typedef struct prepared {
    char *sql;
    sqlite3_stmt *handle;
    uint64_t used_at; /* tick of the last use */
    bool is_busy;     /* rows are open on it */
} prepared;

struct omm_db {
    sqlite3 *handle;
    prepared statements[STATEMENTS_MAX];
    uint64_t tick;
};

/* The code for an SQLite result that is not success. */
OMM_CHECKED omm_err db_error(sqlite3 *handle, int result, const char *doing);
void db_free_statements(omm_db *db);

#endif

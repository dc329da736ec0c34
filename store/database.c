/* database.c - owns SQLite connections: settings, checks, migrations, transactions. */
#include "omm/database.h"

#include "database_internal.h"
#include "omm/file.h"
#include "omm/mem.h"
#include "omm/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUSY_TIMEOUT_MS 5000u

static const char *advice(int result) {
    switch (result) {
    case SQLITE_FULL: return "; its disk needs room";
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN: return "; files have to be made and written in its folder";
    default: return "";
    }
}

omm_err db_error(sqlite3 *handle, int result, const char *doing) {
    omm_err err = OMM_ERR_IO;
    const char *path = handle ? sqlite3_db_filename(handle, "main") : NULL;
    if (result == SQLITE_IOERR_FSYNC || result == SQLITE_IOERR_DIR_FSYNC)
        omm_sync_failed(path ? path : "a database");
    switch (result & 0xff) { /* the primary code */
    case SQLITE_NOMEM: err = OMM_ERR_NOMEM; break;
    case SQLITE_CONSTRAINT: err = OMM_ERR_EXISTS; break;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: err = OMM_ERR_STATE; break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: err = OMM_ERR_FORMAT; break;
    case SQLITE_TOOBIG: err = OMM_ERR_TOO_BIG; break;
    case SQLITE_ERROR:
    case SQLITE_RANGE:
    case SQLITE_MISUSE:
    case SQLITE_MISMATCH: err = OMM_ERR_USAGE; break;
    default: break;
    }
    const char *why = handle ? sqlite3_errmsg(handle) : sqlite3_errstr(result);
    /* What is wrong with a disk is of no use to anybody who is not told which, and the statement says nothing then. */
    if (err == OMM_ERR_IO && path && path[0])
        return omm_raise(err, "%.400s: %s%s", path, why, advice(result & 0xff));
    if (err == OMM_ERR_FORMAT && path && path[0] && strcmp(path, doing) != 0)
        return omm_raise(err, "%.200s: %.120s: %s", path, doing, why);
    return omm_raise(err, "%.120s: %s", doing, why);
}

omm_err omm_db_exec(omm_db *db, const char *sql) {
    int result = sqlite3_exec(db->handle, sql, NULL, NULL, NULL);
    return result == SQLITE_OK ? OMM_OK : db_error(db->handle, result, sql);
}

/* The first column of the first row of a pragma or count. */
static omm_err get_number(int64_t *out, omm_db *db, const char *sql) {
    sqlite3_stmt *statement;
    int result = sqlite3_prepare_v2(db->handle, sql, -1, &statement, NULL);
    if (result == SQLITE_OK) result = sqlite3_step(statement);
    if (result == SQLITE_ROW) *out = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return result == SQLITE_ROW ? OMM_OK : db_error(db->handle, result, sql);
}

/* ---- open ---- */

static omm_err damaged(const omm_db *db, const char *why) {
    const char *path = sqlite3_db_filename(db->handle, "main");
    return omm_raise(
        OMM_ERR_FORMAT,
        "%.400s: the database is damaged (%.200s); put it back from a copy, and look at "
        "the disk",
        path && path[0] ? path : "memory", why);
}

/* SQLite calls it a disk error where another user's file may not be written. */
static omm_err check_access(const char *path) {
    struct stat st;
    char folder[OMM_PATH_MAX];
    const char *what = path;
    if (!path) return OMM_OK;
    if (stat(path, &st) != 0) {
        if (errno != ENOENT || omm_path_dir(folder, path) != OMM_OK || stat(folder, &st) != 0)
            return OMM_OK; /* SQLite says what it is */
        what = folder;
    }
    if (access(what, R_OK | W_OK) == 0) return OMM_OK;
    const int why = errno;
    if (why != EACCES) return omm_raise(OMM_ERR_IO, "%s: %s", what, strerror(why));
    return omm_raise(OMM_ERR_IO, "%s: %s; it is of user %u, and this program runs as %u", what,
                     strerror(why), (unsigned)st.st_uid, (unsigned)geteuid());
}

/* Its owner's alone.  What SQLite makes beside it gets its rights; what is there already of an older program does not.
 * No descriptor of a file that is there: closing it would end the locks that this process has on it. */
static void make_private(const char *path) {
    static const char *const behind[] = {"", "-wal", "-journal", "-shm"};
    char name[OMM_PATH_MAX];
    struct stat st;
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) (void)close(fd);
    if (fd >= 0) return;
    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++) {
        const int size = snprintf(name, sizeof name, "%s%s", path, behind[i]);
        if (size < 0 || (size_t)size >= sizeof name || stat(name, &st) != 0) continue;
        /* Another user's file, say, stays as it is: whether it can be used is not decided here. */
        if (S_ISREG(st.st_mode) && (st.st_mode & 077) != 0) (void)chmod(name, st.st_mode & 0700);
    }
}

static omm_err connect_file(omm_db *db, const omm_db_options *options) {
    const char *path = options->path ? options->path : ":memory:";
    int flags =
        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    if (options->path) make_private(path);
    int result = sqlite3_open_v2(path, &db->handle, flags, NULL);
    if (result != SQLITE_OK) return db_error(db->handle, result, path);
    uint32_t busy_ms = options->busy_timeout_ms > 0 ? options->busy_timeout_ms : BUSY_TIMEOUT_MS;
    sqlite3_busy_timeout(db->handle, (int)busy_ms);
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    /* EXCLUSIVE before WAL: then no shared memory file, and a second process is refused. */
    omm_err err = omm_db_exec(db, "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL;"
                                  "PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;"
                                  "PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON");
    if (err == OMM_ERR_FORMAT) return damaged(db, sqlite3_errmsg(db->handle));
    if (err != OMM_ERR_STATE) return err;
    return omm_raise(OMM_ERR_STATE, "another process has %s open, and only one can", path);
}

static omm_err check_integrity(omm_db *db) {
    sqlite3_stmt *statement;
    omm_err err = OMM_OK;
    const char *sql = "PRAGMA integrity_check(1)";
    int result = sqlite3_prepare_v2(db->handle, sql, -1, &statement, NULL);
    if (result == SQLITE_OK) result = sqlite3_step(statement);
    if (result != SQLITE_ROW) {
        err = db_error(db->handle, result, sql);
    } else {
        const char *said = (const char *)sqlite3_column_text(statement, 0);
        if (!said || strcmp(said, "ok") != 0) {
            err = damaged(db, said ? said : "no answer");
        }
    }
    sqlite3_finalize(statement);
    return err;
}

/* An empty file becomes ours; any other must say that it is. */
static omm_err check_kind(omm_db *db, uint32_t application_id) {
    int64_t found = 0, tables = 0;
    char sql[64];
    OMM_TRY(get_number(&found, db, "PRAGMA application_id"));
    OMM_TRY(get_number(&tables, db, "SELECT count(*) FROM sqlite_schema"));
    if ((uint32_t)found == application_id) return OMM_OK;
    if (found != 0 || tables != 0) {
        return omm_raise(OMM_ERR_FORMAT, "database is of kind %08x, not %08x", (unsigned)found,
                         application_id);
    }
    snprintf(sql, sizeof sql, "PRAGMA application_id=%d", (int32_t)application_id);
    return omm_db_exec(db, sql);
}

static omm_err migrate_one(omm_db *db, const char *sql, unsigned version) {
    char set[64];
    snprintf(set, sizeof set, "PRAGMA user_version=%u", version);
    OMM_TRY(omm_db_begin(db));
    omm_err err = omm_db_exec(db, sql);
    if (err == OMM_OK) err = omm_db_exec(db, set);
    if (err == OMM_OK) return omm_db_commit(db);
    omm_db_rollback(db);
    return err;
}

static omm_err migrate(omm_db *db, const omm_db_options *options) {
    int64_t version = 0;
    OMM_TRY(get_number(&version, db, "PRAGMA user_version"));
    if (version < 0 || version > options->migration_count) {
        return omm_raise(OMM_ERR_VERSION, "database has version %lld, this program knows up to %u",
                         (long long)version, options->migration_count);
    }
    for (unsigned i = (unsigned)version; i < options->migration_count; i++) {
        OMM_TRY(migrate_one(db, options->migrations[i], i + 1));
    }
    return OMM_OK;
}

omm_err omm_db_open(omm_db **out, const omm_db_options *options) {
    omm_db *db = omm_alloc(1, sizeof *db);
    if (!db) return omm_raise(OMM_ERR_NOMEM, "no memory for a database");
    omm_err err = check_access(options->path);
    if (err == OMM_OK) err = connect_file(db, options);
    if (err == OMM_OK) err = check_integrity(db);
    if (err == OMM_OK) err = check_kind(db, options->application_id);
    if (err == OMM_OK) err = migrate(db, options);
    if (err != OMM_OK) {
        omm_db_close(db);
        return err;
    }
    *out = db;
    return OMM_OK;
}

void omm_db_close(omm_db *db) {
    if (!db) return;
    db_free_statements(db);
    int result = sqlite3_close(db->handle); /* rolls back */
    OMM_ASSERT(result == SQLITE_OK);        /* rows left open are a bug */
    omm_free(db);
}

/* ---- transactions ---- */

bool omm_db_in_transaction(const omm_db *db) {
    return sqlite3_get_autocommit(db->handle) == 0;
}

omm_err omm_db_begin(omm_db *db) {
    if (omm_db_in_transaction(db)) {
        return omm_raise(OMM_ERR_STATE, "a transaction is open already");
    }
    return omm_db_exec(db, "BEGIN IMMEDIATE");
}

omm_err omm_db_commit(omm_db *db) {
    if (!omm_db_in_transaction(db)) return omm_raise(OMM_ERR_STATE, "no transaction is open");
    omm_err err = omm_db_exec(db, "COMMIT");
    if (err != OMM_OK) omm_db_rollback(db);
    return err;
}

void omm_db_rollback(omm_db *db) {
    if (!omm_db_in_transaction(db)) return;
    /* It can only fail where the transaction is already gone. */
    (void)sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
}

uint64_t omm_db_changes(const omm_db *db) {
    return (uint64_t)sqlite3_changes64(db->handle);
}

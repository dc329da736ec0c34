#include "omm/database.h"

#include "omm/file.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define APP_ID 0x4f4d4d54u

static const char *const s_migrations[] = {
    "CREATE TABLE node(id BLOB PRIMARY KEY, name TEXT, tokens INTEGER, loss REAL)",
    ("ALTER TABLE node ADD COLUMN state TEXT DEFAULT 'new';"
     "CREATE INDEX node_tokens ON node(tokens)"),
    "CREATE TABLE log(n INTEGER PRIMARY KEY, node BLOB REFERENCES node(id))",
};

static char s_dir[] = "/tmp/omm_database_test_XXXXXX";
static char s_path[OMM_PATH_MAX];

static omm_db_options options_for(const char *path, unsigned migrations) {
    return (omm_db_options){.path = path,
                            .application_id = APP_ID,
                            .migrations = s_migrations,
                            .migration_count = migrations,
                            .busy_timeout_ms = 50};
}

static omm_db *open_db(const char *path, unsigned migrations) {
    omm_db *db;
    omm_db_options options = options_for(path, migrations);
    CHECK_OK(omm_db_open(&db, &options));
    return db;
}

static int64_t number(omm_db *db, const char *sql) {
    omm_rows *rows;
    bool more;
    CHECK_OK(omm_db_query_values(&rows, db, sql, NULL, 0));
    CHECK_OK(omm_rows_next(&more, rows));
    CHECK(more);
    int64_t n = omm_rows_int(rows, 0);
    omm_rows_close(rows);
    return n;
}

static void test_values_round_trip(void) {
    omm_db *db = open_db(NULL, 3);
    omm_rows *rows;
    bool more;
    omm_digest id = omm_hash(omm_bytes_str("a node")), back;
    CHECK_OK(omm_db_run(db, "INSERT INTO node(id, name, tokens, loss) VALUES (?, ?, ?, ?)",
                        OMM_DB_DIGEST(&id), OMM_DB_TEXT("h\xc3\xa4user"), OMM_DB_INT(INT64_MIN),
                        OMM_DB_REAL(1.5)));
    CHECK_EQ(omm_db_changes(db), 1);
    CHECK_OK(omm_db_run(db, "INSERT INTO node(id, name, tokens) VALUES (?, ?, ?)",
                        OMM_DB_BLOB(omm_bytes_of(NULL, 0)), OMM_DB_TEXT(NULL), OMM_DB_NULL));
    CHECK_OK(omm_db_query(&rows, db, "SELECT id, name, tokens, loss, state FROM node WHERE id = ?",
                          OMM_DB_DIGEST(&id)));
    CHECK_OK(omm_rows_next(&more, rows));
    CHECK(more);
    CHECK_OK(omm_rows_digest(&back, rows, 0));
    CHECK(omm_digest_equal(&id, &back));
    CHECK(strcmp(omm_rows_text(rows, 1), "h\xc3\xa4user") == 0);
    CHECK_ERR(omm_rows_digest(&back, rows, 1), OMM_ERR_FORMAT);
    CHECK_EQ(omm_rows_int(rows, 2), INT64_MIN);
    CHECK(omm_rows_real(rows, 3) == 1.5);
    CHECK(strcmp(omm_rows_text(rows, 4), "new") == 0);
    CHECK_OK(omm_rows_next(&more, rows));
    CHECK(!more);
    omm_rows_close(rows);
    CHECK_OK(omm_db_query(&rows, db, "SELECT id, name, tokens FROM node WHERE tokens IS ?",
                          OMM_DB_NULL));
    CHECK_OK(omm_rows_next(&more, rows));
    CHECK(more);
    CHECK_EQ(omm_rows_bytes(rows, 0).size, 0);
    CHECK(!omm_rows_is_null(rows, 0)); /* empty, but not missing */
    CHECK(omm_rows_is_null(rows, 1));
    CHECK(strcmp(omm_rows_text(rows, 1), "") == 0);
    omm_rows_close(rows);
    omm_db_close(db);
}

static void test_errors(void) {
    omm_db *db = open_db(NULL, 3);
    omm_rows *one, *two;
    omm_db_value none = OMM_DB_NULL;
    CHECK_ERR(omm_db_exec(db, "SELEKT 1"), OMM_ERR_USAGE);
    CHECK_ERR(omm_db_run(db, "SELECT ?; SELECT 2", OMM_DB_INT(1)), OMM_ERR_USAGE);
    CHECK_ERR(omm_db_run(db, "SELECT ?, ?", OMM_DB_INT(1)), OMM_ERR_USAGE);
    CHECK_ERR(omm_db_run_values(db, "", &none, 0), OMM_ERR_USAGE);
    CHECK_OK(omm_db_run(db, "INSERT INTO node(id) VALUES (?)", OMM_DB_BLOB(omm_bytes_str("x"))));
    CHECK_ERR(omm_db_run(db, "INSERT INTO node(id) VALUES (?)", OMM_DB_BLOB(omm_bytes_str("x"))),
              OMM_ERR_EXISTS);
    CHECK_ERR(omm_db_run(db, "INSERT INTO log(node) VALUES (?)", OMM_DB_BLOB(omm_bytes_str("y"))),
              OMM_ERR_EXISTS); /* foreign keys are on */
    CHECK_OK(omm_db_query(&one, db, "SELECT ?", OMM_DB_INT(1)));
    CHECK_ERR(omm_db_query(&two, db, "SELECT ?", OMM_DB_INT(2)), OMM_ERR_STATE);
    CHECK_ERR(omm_db_run(db, "SELECT ?", OMM_DB_INT(2)), OMM_ERR_STATE);
    omm_rows_close(one);
    CHECK_OK(omm_db_query(&two, db, "SELECT ?", OMM_DB_INT(2)));
    omm_rows_close(two);
    omm_rows_close(NULL);
    omm_db_close(db);
    omm_db_close(NULL);
}

static void test_transactions(void) {
    omm_db *db = open_db(NULL, 3);
    const char *insert = "INSERT INTO node(id) VALUES (?)";
    CHECK_ERR(omm_db_commit(db), OMM_ERR_STATE);
    CHECK_OK(omm_db_begin(db));
    CHECK(omm_db_in_transaction(db));
    CHECK_ERR(omm_db_begin(db), OMM_ERR_STATE);
    CHECK_OK(omm_db_run(db, insert, OMM_DB_INT(1)));
    omm_db_rollback(db);
    CHECK(!omm_db_in_transaction(db));
    omm_db_rollback(db);
    CHECK_EQ(number(db, "SELECT count(*) FROM node"), 0);
    CHECK_OK(omm_db_begin(db));
    CHECK_OK(omm_db_run(db, insert, OMM_DB_INT(1)));
    CHECK_ERR(omm_db_run(db, insert, OMM_DB_INT(1)), OMM_ERR_EXISTS);
    CHECK(omm_db_in_transaction(db)); /* a refused statement does not end it */
    CHECK_OK(omm_db_commit(db));
    CHECK_EQ(number(db, "SELECT count(*) FROM node"), 1);
    omm_db_close(db);
}

/* More different statements than are kept, some with rows open. */
static void test_statement_cache(void) {
    omm_db *db = open_db(NULL, 3);
    omm_rows *held[8];
    char sql[64];
    bool more;
    for (unsigned round = 0; round < 2; round++) {
        for (int i = 0; i < 8; i++) {
            snprintf(sql, sizeof sql, "SELECT ? + %d", 1000 + i);
            CHECK_OK(omm_db_query(&held[i], db, sql, OMM_DB_INT(i)));
            CHECK_OK(omm_rows_next(&more, held[i]));
        }
        for (int i = 0; i < 200; i++) {
            snprintf(sql, sizeof sql, "SELECT %d", i);
            CHECK_EQ(number(db, sql), i);
        }
        for (int i = 0; i < 8; i++) {
            CHECK_EQ(omm_rows_int(held[i], 0), 1000 + 2 * i);
            omm_rows_close(held[i]);
        }
    }
    omm_db_close(db);
}

static void test_migrations(void) {
    omm_db *db = open_db(s_path, 1);
    CHECK_OK(omm_db_exec(db, "INSERT INTO node(id, name) VALUES (x'01', 'old')"));
    omm_db_close(db);
    db = open_db(s_path, 3); /* two steps further, data kept */
    CHECK_EQ(number(db, "SELECT count(*) FROM node WHERE state = 'new'"), 1);
    CHECK_EQ(number(db, "PRAGMA user_version"), 3);
    CHECK_EQ(number(db, "PRAGMA synchronous"), 2);
    CHECK_EQ(number(db, "SELECT 'wal' = journal_mode FROM pragma_journal_mode"), 1);
    omm_db_close(db);
    omm_db_options options = options_for(s_path, 2);
    CHECK_ERR(omm_db_open(&db, &options), OMM_ERR_VERSION);
    options = options_for(s_path, 3);
    options.application_id++;
    CHECK_ERR(omm_db_open(&db, &options), OMM_ERR_FORMAT);
    /* A migration that fails leaves the version before it, whole. */
    static const char *const broken[] = {"", "", "", "CREATE TABLE extra(a); SELEKT"};
    options = options_for(s_path, 4);
    options.migrations = broken;
    CHECK_ERR(omm_db_open(&db, &options), OMM_ERR_USAGE);
    db = open_db(s_path, 3);
    CHECK_EQ(number(db, "SELECT count(*) FROM sqlite_schema WHERE name = 'extra'"), 0);
    omm_db_close(db);
}

static void test_one_process(void) {
    omm_db *db = open_db(s_path, 3), *second;
    omm_db_options options = options_for(s_path, 3);
    CHECK_ERR(omm_db_open(&second, &options), OMM_ERR_STATE);
    CHECK(strstr(omm_err_sentence(), "another process has ") != NULL);
    omm_db_close(db);
    db = open_db(s_path, 3);
    omm_db_close(db);
}

/* A file of tables that does not say whose it is. */
static void test_foreign(void) {
    omm_db_options options = options_for(NULL, 3);
    char path[OMM_PATH_MAX];
    omm_db *db;
    CHECK_OK(omm_path_join(path, s_dir, "foreign.db"));
    options.path = path;
    options.application_id = 0;
    CHECK_OK(omm_db_open(&db, &options));
    omm_db_close(db);
    options.application_id = APP_ID;
    CHECK_ERR(omm_db_open(&db, &options), OMM_ERR_FORMAT);
    CHECK_OK(omm_file_remove(path));
}

/* A commit that is refused leaves nothing open, and nothing done. */
static void test_commit_refused(void) {
    omm_db *db = open_db(NULL, 3);
    CHECK_OK(omm_db_exec(db, "CREATE TABLE a(id INTEGER PRIMARY KEY);"
                             "CREATE TABLE b(a REFERENCES a(id) DEFERRABLE INITIALLY DEFERRED)"));
    CHECK_OK(omm_db_begin(db));
    CHECK_OK(omm_db_run(db, "INSERT INTO b(a) VALUES (?)", OMM_DB_INT(7)));
    CHECK_ERR(omm_db_commit(db), OMM_ERR_EXISTS);
    CHECK(!omm_db_in_transaction(db));
    CHECK_EQ(number(db, "SELECT count(*) FROM b"), 0);
    omm_db_close(db);
}

static void damage(omm_bytes whole, size_t from, size_t to, uint8_t with) {
    char path[OMM_PATH_MAX];
    omm_db *db = NULL;
    omm_buf bad;
    CHECK_OK(omm_path_join(path, s_dir, "bad.db"));
    omm_buf_init(&bad, whole.size);
    CHECK_OK(omm_buf_append(&bad, whole.data, whole.size));
    for (size_t i = from; i < to && i < bad.size; i++) bad.data[i] ^= with;
    CHECK_OK(omm_file_write_fast(path, omm_buf_view(&bad), 0644));
    omm_db_options options = options_for(path, 3);
    omm_err err = omm_db_open(&db, &options);
    if (err == OMM_OK) omm_db_close(db);
    CHECK_ERR(err, OMM_ERR_FORMAT);
    omm_buf_fini(&bad);
    CHECK_OK(omm_file_remove(path));
}

static void test_damage(void) {
    omm_buf whole;
    omm_buf_init(&whole, 1 << 20);
    omm_db *db = open_db(s_path, 3);
    for (int i = 0; i < 300; i++) {
        CHECK_OK(omm_db_run(db, "INSERT INTO node(id, tokens) VALUES (?, ?)", OMM_DB_INT(i),
                            OMM_DB_INT(i)));
    }
    omm_db_close(db); /* and with it all is in the one file */
    CHECK_OK(omm_file_read(&whole, s_path));
    damage(omm_buf_view(&whole), 0, 16, 0xff);                        /* no longer SQLite */
    damage(omm_buf_view(&whole), 4096, 4200, 0xff);                   /* a page header */
    damage(omm_buf_view(&whole), (size_t)2 * 4096, whole.size, 0x5a); /* most of it */
    damage(omm_bytes_of(whole.data, 4096), 0, 0, 0);                  /* truncated */
    omm_buf_fini(&whole);
}

/* The child says each number after its commit; whatever it said must be there after kill -9. */
static void commit_and_tell(int fd) {
    omm_db *db = open_db(s_path, 3);
    for (int64_t i = 1;; i++) {
        CHECK_OK(omm_db_begin(db));
        CHECK_OK(omm_db_run(db, "INSERT INTO log(n, node) VALUES (?, NULL)", OMM_DB_INT(2 * i)));
        CHECK_OK(
            omm_db_run(db, "INSERT INTO log(n, node) VALUES (?, NULL)", OMM_DB_INT(2 * i + 1)));
        CHECK_OK(omm_db_commit(db));
        if (write(fd, &i, sizeof i) != sizeof i) _exit(1);
    }
}

static void test_kill_9(void) {
    for (unsigned delay_ms = 20; delay_ms < 120; delay_ms += 30) {
        int fds[2];
        int64_t said = 0, next;
        CHECK_EQ(pipe(fds), 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) commit_and_tell(fds[1]);
        close(fds[1]);
        CHECK_EQ(read(fds[0], &next, sizeof next), (int64_t)sizeof next);
        usleep(delay_ms * 1000);
        CHECK_EQ(kill(pid, SIGKILL), 0);
        do {
            said = next;
        } while (read(fds[0], &next, sizeof next) == sizeof next);
        CHECK_EQ(waitpid(pid, NULL, 0), pid);
        close(fds[0]);
        omm_db *db = open_db(s_path, 3);
        int64_t rows = number(db, "SELECT count(*) FROM log");
        CHECK(rows == 2 * said || rows == 2 * (said + 1)); /* the last may not have been told */
        CHECK_OK(omm_db_exec(db, "DELETE FROM log"));
        omm_db_close(db);
    }
}

static void test_no_memory(void) {
    omm_db_options options = options_for(NULL, 3);
    for (size_t nth = 1;; nth++) {
        size_t live = omm_mem_live();
        omm_db *db = NULL;
        omm_rows *rows = NULL;
        omm_mem_fail_nth(nth);
        omm_err err = omm_db_open(&db, &options);
        if (err == OMM_OK) err = omm_db_run(db, "SELECT ?", OMM_DB_INT(1));
        if (err == OMM_OK) err = omm_db_query(&rows, db, "SELECT 1 + ?", OMM_DB_INT(1));
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        omm_rows_close(rows);
        omm_db_close(db);
        CHECK_EQ(omm_mem_live(), live);
        if (err == OMM_OK) break;
        CHECK_ERR(err, OMM_ERR_NOMEM);
        CHECK(nth < 20);
    }
}

static unsigned mode_of(const char *behind) {
    char name[OMM_PATH_MAX];
    struct stat st;
    CHECK(snprintf(name, sizeof name, "%s%s", s_path, behind) < (int)sizeof name);
    CHECK_EQ(stat(name, &st), 0);
    return st.st_mode & 07777;
}

/* What is in it is its owner's, whatever the umask says, and also where an older program made it for all. */
static void test_private(void) {
    const mode_t mask = umask(0);
    omm_db *db = open_db(s_path, 1);
    CHECK_OK(omm_db_exec(db, "INSERT INTO node(id, name) VALUES (x'07', 'a secret')"));
    CHECK_EQ(mode_of(""), 0600);
    CHECK_EQ(mode_of("-wal"), 0600);
    omm_db_close(db);
    CHECK_EQ(chmod(s_path, 0644), 0);
    db = open_db(s_path, 1);
    CHECK_EQ(mode_of(""), 0600);
    CHECK_OK(omm_db_exec(db, "INSERT INTO node(id, name) VALUES (x'08', 'another')"));
    CHECK_EQ(mode_of("-wal"), 0600);
    omm_db_close(db);
    CHECK_OK(omm_file_remove(s_path));
    (void)umask(mask);
}

/* A log that a killed process left behind. */
static void test_private_log(void) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        omm_db *db = open_db(s_path, 1);
        CHECK_OK(omm_db_exec(db, "INSERT INTO node(id, name) VALUES (x'07', 'a secret')"));
        (void)kill(getpid(), SIGKILL);
    }
    CHECK_EQ(waitpid(child, NULL, 0), child);
    char log[OMM_PATH_MAX];
    CHECK(snprintf(log, sizeof log, "%s-wal", s_path) < (int)sizeof log);
    CHECK_EQ(chmod(s_path, 0664), 0);
    CHECK_EQ(chmod(log, 0664), 0);
    omm_db *db = open_db(s_path, 1);
    CHECK_EQ(mode_of(""), 0600);
    CHECK_EQ(mode_of("-wal"), 0600);
    CHECK_EQ(number(db, "SELECT count(*) FROM node"), 1);
    omm_db_close(db);
    CHECK_OK(omm_file_remove(s_path));
}

/* Its owner reads which file, and no SQL. */
static void test_no_room(void) {
    struct rlimit before;
    omm_db *db = NULL;
    const omm_db_options options = options_for(s_path, 1);
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_max = before.rlim_max}), 0);
    CHECK_ERR(omm_db_open(&db, &options), OMM_ERR_IO);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    CHECK(strncmp(omm_err_sentence(), s_path, strlen(s_path)) == 0);
    CHECK(!strstr(omm_err_sentence(), "PRAGMA") && !strstr(omm_err_sentence(), "CREATE"));
    CHECK_OK(omm_file_remove(s_path));
}

int main(void) {
    CHECK(mkdtemp(s_dir) != NULL);
    CHECK_OK(omm_path_join(s_path, s_dir, "state.db"));
    test_private();
    test_private_log();
    test_no_room();
    test_values_round_trip();
    test_errors();
    test_transactions();
    test_statement_cache();
    test_migrations();
    test_one_process();
    test_foreign();
    test_commit_refused();
    test_damage();
    test_kill_9();
    test_no_memory();
    CHECK_OK(omm_dir_remove(s_dir));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

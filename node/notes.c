/* notes.c - owns the notes file: its schema, and what a note and a search are. */
#include "omm/notes.h"

#include "omm/database.h"
#include "omm/mem.h"
#include "text.h"

#define NOTES_APPLICATION_ID 0x4f4d4e54u /* "OMNT" */
#define MATCH_BYTES_MAX 8192u

struct omm_notes {
    omm_db *db;
};

/* The index is filled by hand, not by triggers: those would need a trusted schema. */
static const char *const s_migrations[] = {
    "CREATE TABLE note(id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL UNIQUE,"
    " saved_ms INTEGER NOT NULL);"
    "CREATE VIRTUAL TABLE note_index USING fts5(text,"
    " tokenize = 'porter unicode61 remove_diacritics 2');",
};

omm_err omm_notes_open(omm_notes **out, const char *path) {
    omm_db_options options = {.path = path,
                              .application_id = NOTES_APPLICATION_ID,
                              .migrations = s_migrations,
                              .migration_count = sizeof s_migrations / sizeof s_migrations[0],
                              .busy_timeout_ms = 500};
    omm_notes *notes = omm_alloc(1, sizeof *notes);
    if (!notes) return omm_raise(OMM_ERR_NOMEM, "no memory for the notes");
    omm_err err = omm_db_open(&notes->db, &options);
    if (err == OMM_OK) err = omm_db_exec(notes->db, "PRAGMA secure_delete=ON");
    if (err != OMM_OK) {
        omm_db_close(notes->db);
        omm_free(notes);
        return err;
    }
    *out = notes;
    return OMM_OK;
}

void omm_notes_close(omm_notes *notes) {
    if (!notes) return;
    omm_db_close(notes->db);
    omm_free(notes);
}

/* One number from one row; *found is false without a row. */
static omm_err get_number(int64_t *out, bool *found, omm_db *db, const char *sql,
                          omm_db_value value) {
    omm_rows *rows = NULL;
    OMM_TRY(omm_db_query_values(&rows, db, sql, &value, value.kind == OMM_DB_KIND_NULL ? 0 : 1));
    omm_err err = omm_rows_next(found, rows);
    if (err == OMM_OK && *found) *out = omm_rows_int(rows, 0);
    omm_rows_close(rows);
    return err;
}

omm_err omm_notes_count(uint64_t *count, omm_notes *notes) {
    int64_t number = 0;
    bool found = false;
    OMM_TRY(get_number(&number, &found, notes->db, "SELECT count(*) FROM note", OMM_DB_NULL));
    *count = (uint64_t)number;
    return OMM_OK;
}

static omm_db_value text_value(omm_bytes text) {
    return (omm_db_value){.kind = OMM_DB_KIND_TEXT, .bytes = text};
}

/* ---- Save and remove ----------------------------------------------------------------------- */

static omm_err add(int64_t *id, omm_db *db, omm_bytes text, uint64_t now_ms) {
    bool found = false;
    OMM_TRY(omm_db_run(db, "INSERT INTO note(text, saved_ms) VALUES (?, ?)", text_value(text),
                       OMM_DB_INT(now_ms)));
    OMM_TRY(get_number(id, &found, db, "SELECT last_insert_rowid()", OMM_DB_NULL));
    return omm_db_run(db, "INSERT INTO note_index(rowid, text) VALUES (?, ?)", OMM_DB_INT(*id),
                      text_value(text));
}

static omm_err finish(omm_db *db, omm_err err) {
    if (err == OMM_OK) return omm_db_commit(db);
    omm_db_rollback(db);
    return err;
}

static omm_err save_folded(int64_t *id, bool *is_new, omm_notes *notes, omm_bytes text,
                           uint64_t now_ms) {
    bool found = false;
    uint64_t count = 0;
    if (text.size == 0) return omm_raise(OMM_ERR_FORMAT, "the note is empty");
    if (text.size > OMM_NOTE_BYTES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "note of %zu bytes, at most %u", text.size,
                         OMM_NOTE_BYTES_MAX);
    OMM_TRY(
        get_number(id, &found, notes->db, "SELECT id FROM note WHERE text = ?", text_value(text)));
    *is_new = !found;
    if (found) return OMM_OK;
    OMM_TRY(omm_notes_count(&count, notes));
    if (count >= OMM_NOTES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "there are %u notes already, the most that are kept",
                         OMM_NOTES_MAX);
    OMM_TRY(omm_db_begin(notes->db));
    return finish(notes->db, add(id, notes->db, text, now_ms));
}

omm_err omm_notes_save(int64_t *id, bool *is_new, omm_notes *notes, omm_bytes text,
                       uint64_t now_ms) {
    omm_buf folded;
    if (!text_is_plain(text)) return omm_raise(OMM_ERR_FORMAT, "the note is not plain UTF-8 text");
    omm_buf_init(&folded, (size_t)2 * OMM_NOTE_BYTES_MAX);
    omm_err err = text_fold(&folded, text);
    if (err == OMM_OK) err = save_folded(id, is_new, notes, omm_buf_view(&folded), now_ms);
    omm_buf_fini(&folded);
    return err;
}

static omm_err drop(omm_db *db, int64_t id) {
    OMM_TRY(omm_db_run(db, "DELETE FROM note WHERE id = ?", OMM_DB_INT(id)));
    if (omm_db_changes(db) == 0)
        return omm_raise(OMM_ERR_NOT_FOUND, "there is no note %lld", (long long)id);
    return omm_db_run(db, "DELETE FROM note_index WHERE rowid = ?", OMM_DB_INT(id));
}

/* Its words are gone from the file, too: from free pages (secure_delete), from the index, which only marks what is
 * deleted until its parts are joined, and from the log of changes. */
omm_err omm_notes_remove(omm_notes *notes, int64_t id) {
    OMM_TRY(omm_db_begin(notes->db));
    omm_err err = drop(notes->db, id);
    if (err == OMM_OK)
        err = omm_db_exec(notes->db, "INSERT INTO note_index(note_index) VALUES('optimize')");
    OMM_TRY(finish(notes->db, err));
    return omm_db_exec(notes->db, "PRAGMA wal_checkpoint(TRUNCATE)");
}

/* ---- Read ---------------------------------------------------------------------------------- */

static omm_err give_rows(omm_rows *rows, omm_notes_each each, void *ud) {
    bool more = false;
    omm_err err = omm_rows_next(&more, rows);
    while (err == OMM_OK && more) {
        int64_t id = omm_rows_int(rows, 0);
        err = each(ud, id, omm_rows_bytes(rows, 1));
        if (err == OMM_OK) err = omm_rows_next(&more, rows);
    }
    omm_rows_close(rows);
    return err;
}

omm_err omm_notes_find(omm_notes *notes, omm_bytes query, uint32_t count_max, omm_notes_each each,
                       void *ud) {
    text_terms terms;
    omm_rows *rows = NULL;
    omm_buf match;
    OMM_TRY(text_take_terms(&terms, query));
    omm_buf_init(&match, MATCH_BYTES_MAX);
    omm_err err = text_put_match(&match, &terms, false);
    if (err == OMM_OK)
        err = omm_db_query(&rows, notes->db,
                           "SELECT rowid, text FROM note_index WHERE note_index MATCH ?"
                           " ORDER BY rowid DESC LIMIT ?",
                           text_value(omm_buf_view(&match)), OMM_DB_INT(count_max));
    omm_buf_fini(&match);
    return err == OMM_OK ? give_rows(rows, each, ud) : err;
}

omm_err omm_notes_list(omm_notes *notes, int64_t after, uint32_t count_max, omm_notes_each each,
                       void *ud) {
    omm_rows *rows = NULL;
    OMM_TRY(omm_db_query(&rows, notes->db,
                         "SELECT id, text FROM note WHERE id > ? ORDER BY id LIMIT ?",
                         OMM_DB_INT(after), OMM_DB_INT(count_max)));
    return give_rows(rows, each, ud);
}

/* docs.c - owns the index of a folder of text files: when it is made, and what it answers. */
#include "omm/docs.h"

#include "docs_internal.h"
#include "omm/database.h"
#include "omm/file.h"
#include "omm/hash.h"
#include "omm/mem.h"
#include "text.h"

#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define DOCS_APPLICATION_ID 0x4f4d4443u /* "OMDC" */
#define MATCH_BYTES_MAX 65536u          /* 16 selections of 16 words of a query of 1,000 bytes */

struct omm_docs {
    char dir[OMM_PATH_MAX];
    omm_db *db;
    omm_digest listing; /* of (path, size, time of change) of every text file */
    omm_docs_counts counts;
};

/* The context is the path and the heading.  rowid ascends with file and passage. */
static const char *const s_migrations[] = {
    "CREATE VIRTUAL TABLE passage USING fts5(context, text, file UNINDEXED, number UNINDEXED,"
    " tokenize = 'porter unicode61 remove_diacritics 2');",
};

/* ---- Which files --------------------------------------------------------------------------- */

static bool is_text_name(const char *path) {
    static const char *const s_endings[] = {".txt", ".text", ".md", ".markdown", ".rst", ".org"};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof s_endings / sizeof s_endings[0]; i++)
        if (strcasecmp(dot, s_endings[i]) == 0) return true;
    return false;
}

/* One pass over the folder; `each` gets the files that are read. */
typedef struct walk {
    const char *dir;
    omm_docs_counts counts;
    uint32_t looked_at;
    uint64_t bytes;
    omm_hasher hasher;
    omm_db *db; /* NULL: only look */
} walk;

static omm_err take_file(walk *w, const char *path, const char *full, const struct stat *info) {
    uint64_t facts[4] = {(uint64_t)info->st_size, (uint64_t)info->st_mtim.tv_sec,
                         (uint64_t)info->st_mtim.tv_nsec, (uint64_t)info->st_ino};
    omm_hasher_update(&w->hasher, omm_bytes_of(path, strlen(path) + 1));
    omm_hasher_update(&w->hasher,
                      omm_bytes_of(facts, sizeof facts)); /* never leaves this process */
    w->bytes += (uint64_t)info->st_size;
    if (w->bytes > OMM_DOCS_TOTAL_BYTES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "%s: more than %u bytes of text", w->dir,
                         OMM_DOCS_TOTAL_BYTES_MAX);
    if (!w->db) return OMM_OK;
    bool is_text = false;
    OMM_TRY(docs_put_file(&w->counts.passages, &is_text, w->db, path, full));
    if (is_text)
        w->counts.files++;
    else
        w->counts.skipped++;
    return OMM_OK;
}

static omm_err visit(void *ud, const char *path) {
    walk *w = ud;
    char full[OMM_PATH_MAX];
    struct stat info;
    OMM_TRY(omm_path_join(full, w->dir, path));
    if (w->looked_at++ >= OMM_DOCS_FILES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "%s: more than %u files, hidden ones not counted", w->dir,
                         OMM_DOCS_FILES_MAX);
    bool read = is_text_name(path) && omm_path_is_inside(path) &&
                text_is_plain(omm_bytes_str(path)) && lstat(full, &info) == 0 &&
                S_ISREG(info.st_mode) && info.st_size <= (off_t)OMM_DOCS_FILE_BYTES_MAX;
    if (!read) {
        w->counts.skipped++;
        return OMM_OK;
    }
    return take_file(w, path, full, &info);
}

static omm_err look(omm_digest *listing, omm_docs_counts *counts, const char *dir, omm_db *db) {
    walk w = {.dir = dir, .db = db};
    omm_hasher_init(&w.hasher);
    uint32_t passed_over = 0;
    OMM_TRY(omm_dir_walk_over(&passed_over, dir, visit, &w));
    *listing = omm_hasher_final(&w.hasher);
    *counts = w.counts;
    counts->skipped += passed_over;
    return OMM_OK;
}

/* ---- The index ----------------------------------------------------------------------------- */

/* The listing is of the same pass that reads the files: a file that changes meanwhile has another
 * time of change at the next look. */
static omm_err rebuild(omm_docs *docs) {
    omm_db_options options = {.application_id = DOCS_APPLICATION_ID,
                              .migrations = s_migrations,
                              .migration_count = sizeof s_migrations / sizeof s_migrations[0]};
    omm_db *db = NULL;
    omm_digest listing;
    omm_docs_counts counts;
    OMM_TRY(omm_db_open(&db, &options));
    omm_err err = omm_db_begin(db);
    if (err == OMM_OK) err = look(&listing, &counts, docs->dir, db);
    if (err == OMM_OK) err = omm_db_commit(db);
    if (err != OMM_OK) {
        omm_db_close(db);
        return err;
    }
    omm_db_close(docs->db);
    docs->db = db;
    docs->listing = listing;
    docs->counts = counts;
    return OMM_OK;
}

omm_err omm_docs_open(omm_docs **out, const char *dir) {
    omm_docs *docs = omm_alloc(1, sizeof *docs);
    if (!docs) return omm_raise(OMM_ERR_NOMEM, "no memory for the documents");
    omm_err err = omm_path_join(docs->dir, ".", dir);
    if (err == OMM_OK) err = rebuild(docs);
    if (err != OMM_OK) {
        omm_docs_close(docs);
        return err;
    }
    *out = docs;
    return OMM_OK;
}

void omm_docs_close(omm_docs *docs) {
    if (!docs) return;
    omm_db_close(docs->db);
    omm_free(docs);
}

omm_err omm_docs_refresh(bool *changed, omm_docs *docs) {
    omm_digest listing;
    omm_docs_counts counts;
    OMM_TRY(look(&listing, &counts, docs->dir, NULL));
    bool same = memcmp(&listing, &docs->listing, sizeof listing) == 0;
    if (!same) OMM_TRY(rebuild(docs));
    if (changed) *changed = !same;
    return OMM_OK;
}

omm_docs_counts omm_docs_get_counts(const omm_docs *docs) {
    return docs->counts;
}

/* ---- Search -------------------------------------------------------------------------------- */

static omm_err give_rows(uint32_t *given, omm_rows *rows, omm_docs_each each, void *ud) {
    bool more = false;
    omm_err err = omm_rows_next(&more, rows);
    while (err == OMM_OK && more) {
        omm_passage passage = {.file = omm_rows_text(rows, 0),
                               .number = (uint32_t)omm_rows_int(rows, 1),
                               .text = omm_rows_bytes(rows, 2)};
        (*given)++;
        err = each(ud, &passage);
        if (err == OMM_OK) err = omm_rows_next(&more, rows);
    }
    omm_rows_close(rows);
    return err;
}

/* bm25 to twelve decimals: a last bit that differs between machines cannot change the order. */
static omm_err search(uint32_t *given, omm_docs *docs, const text_terms *terms, bool miss_one,
                      uint32_t count_max, omm_docs_each each, void *ud) {
    omm_rows *rows = NULL;
    omm_buf match;
    omm_buf_init(&match, MATCH_BYTES_MAX);
    omm_err err = text_put_match(&match, terms, miss_one);
    omm_db_value text = {.kind = OMM_DB_KIND_TEXT, .bytes = omm_buf_view(&match)};
    if (err == OMM_OK)
        err = omm_db_query(&rows, docs->db,
                           "SELECT file, number, text FROM passage WHERE passage MATCH ?"
                           " ORDER BY CAST(round(bm25(passage) * 1e12) AS INTEGER), rowid"
                           " LIMIT ?",
                           text, OMM_DB_INT(count_max));
    omm_buf_fini(&match);
    return err == OMM_OK ? give_rows(given, rows, each, ud) : err;
}

omm_err omm_docs_search(omm_docs *docs, omm_bytes query, uint32_t count_max, omm_docs_each each,
                        void *ud) {
    text_terms terms;
    uint32_t given = 0;
    OMM_TRY(text_take_terms(&terms, query));
    OMM_TRY(omm_docs_refresh(NULL, docs));
    OMM_TRY(search(&given, docs, &terms, false, count_max, each, ud));
    if (given > 0 || terms.count < 3) return OMM_OK;
    return search(&given, docs, &terms, true, count_max, each, ud);
}

/* notes_test.c - notes saved, found, removed, refused, and there again after closing the file. */
#include "omm/notes.h"

#include "omm/file.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>
#include <unistd.h>

typedef struct found {
    char text[4096]; /* "3:the door code is 12|" ... */
    size_t size;
    omm_err stop;
} found;

static omm_err collect(void *ud, int64_t id, omm_bytes text) {
    found *f = ud;
    f->size += (size_t)snprintf(f->text + f->size, sizeof f->text - f->size, "%lld:%.*s|",
                                (long long)id, (int)text.size, (const char *)text.data);
    return f->stop;
}

static int64_t save(omm_notes *notes, const char *text) {
    int64_t id = 0;
    bool is_new = false;
    CHECK_OK(omm_notes_save(&id, &is_new, notes, omm_bytes_str(text), 1000));
    return id;
}

static void check_find(omm_notes *notes, const char *query, const char *wanted) {
    found f = {0};
    CHECK_OK(omm_notes_find(notes, omm_bytes_str(query), 10, collect, &f));
    if (strcmp(f.text, wanted) != 0) fprintf(stderr, "%s: %s\n", query, f.text);
    CHECK(strcmp(f.text, wanted) == 0);
}

static omm_notes *open_notes(const char *path) {
    omm_notes *notes = NULL;
    CHECK_OK(omm_notes_open(&notes, path));
    return notes;
}

static void fill(omm_notes *notes) {
    CHECK_EQ(save(notes, "the door code is 529"), 1);
    CHECK_EQ(save(notes, "Ida owes me 40 coins"), 2);
    CHECK_EQ(save(notes, "  buy apples\n and   plums "), 3);
    CHECK_EQ(save(notes, "birthday of Philip: 22 September"), 4);
    CHECK_EQ(save(notes, "the code of the garage is 7"), 5);
}

static void test_find(void) {
    omm_notes *notes = open_notes(NULL);
    fill(notes);
    check_find(notes, "door code", "1:the door code is 529|");
    check_find(notes, "What is the door code?", "1:the door code is 529|");
    check_find(notes, "code", "5:the code of the garage is 7|1:the door code is 529|");
    check_find(notes, "Ida owes", "2:Ida owes me 40 coins|");
    check_find(notes, "buying apple", "3:buy apples and plums|");
    check_find(notes, "birthday of Philip", "4:birthday of Philip: 22 September|");
    check_find(notes, "birthday of Paul", "");
    check_find(notes, "code OR birthday", "");
    check_find(notes, "co*", "");
    check_find(notes, "text:code", "");
    check_find(notes, "code\" OR \"Ida", "");
    check_find(notes, "\xe2\x80\x94 code", "5:the code of the garage is 7|1:the door code is 529|");
    found f = {0};
    CHECK_OK(omm_notes_find(notes, omm_bytes_str("code"), 1, collect, &f));
    CHECK(strcmp(f.text, "5:the code of the garage is 7|") == 0);
    CHECK_ERR(omm_notes_find(notes, omm_bytes_str("?!"), 1, collect, &f), OMM_ERR_FORMAT);
    f = (found){.stop = OMM_ERR_CANCELLED};
    CHECK_ERR(omm_notes_find(notes, omm_bytes_str("code"), 9, collect, &f), OMM_ERR_CANCELLED);
    check_find(notes, "door code", "1:the door code is 529|");
    omm_notes_close(notes);
}

static void test_save_and_remove(void) {
    int64_t id = 0;
    bool is_new = true;
    uint64_t count = 0;
    omm_notes *notes = open_notes(NULL);
    fill(notes);
    CHECK_OK(omm_notes_save(&id, &is_new, notes, omm_bytes_str("the door  code is 529"), 5));
    CHECK_EQ(id, 1);
    CHECK(!is_new);
    CHECK_OK(omm_notes_save(&id, &is_new, notes, omm_bytes_str("'); DROP TABLE note; --"), 5));
    CHECK(is_new);
    check_find(notes, "drop table", "6:'); DROP TABLE note; --|");
    CHECK_ERR(omm_notes_save(&id, &is_new, notes, omm_bytes_str(" \n"), 5), OMM_ERR_FORMAT);
    CHECK_ERR(omm_notes_save(&id, &is_new, notes, omm_bytes_str("a\x1b[2J"), 5), OMM_ERR_FORMAT);
    CHECK_ERR(omm_notes_save(&id, &is_new, notes, omm_bytes_str("\xff"), 5), OMM_ERR_FORMAT);
    char text[3 * OMM_NOTE_BYTES_MAX];
    memset(text, 'a', sizeof text);
    CHECK_OK(omm_notes_save(&id, &is_new, notes, omm_bytes_of(text, OMM_NOTE_BYTES_MAX), 5));
    CHECK_ERR(omm_notes_save(&id, &is_new, notes, omm_bytes_of(text, OMM_NOTE_BYTES_MAX + 1), 5),
              OMM_ERR_TOO_BIG);
    CHECK_ERR(omm_notes_save(&id, &is_new, notes, omm_bytes_of(text, sizeof text), 5),
              OMM_ERR_TOO_BIG);
    CHECK_OK(omm_notes_count(&count, notes));
    CHECK_EQ(count, 7);
    CHECK_OK(omm_notes_remove(notes, 1));
    CHECK_ERR(omm_notes_remove(notes, 1), OMM_ERR_NOT_FOUND);
    check_find(notes, "code", "5:the code of the garage is 7|");
    CHECK_EQ(save(notes, "after"), 8); /* numbers are not used again */
    found f = {0};
    CHECK_OK(omm_notes_list(notes, 2, 2, collect, &f));
    CHECK(strcmp(f.text, "3:buy apples and plums|4:birthday of Philip: 22 September|") == 0);
    omm_notes_close(notes);
}

static void test_file(void) {
    char dir[] = "/tmp/omm-notes-XXXXXX";
    char path[OMM_PATH_MAX];
    omm_notes *second = NULL;
    CHECK(mkdtemp(dir) != NULL);
    CHECK_OK(omm_path_join(path, dir, "notes.sqlite"));
    omm_notes *notes = open_notes(path);
    fill(notes);
    CHECK_ERR(omm_notes_open(&second, path), OMM_ERR_STATE);
    omm_notes_close(notes);
    notes = open_notes(path);
    check_find(notes, "door code", "1:the door code is 529|");
    omm_notes_close(notes);
    CHECK_OK(omm_file_write(path, omm_bytes_str("this is no database, but some text, see"), 0600));
    CHECK_ERR(omm_notes_open(&second, path), OMM_ERR_FORMAT);
    CHECK_OK(omm_dir_remove(dir));
}

static bool has_word(const char *dir, const char *name, const char *word) {
    char path[OMM_PATH_MAX];
    omm_buf file;
    CHECK_OK(omm_path_join(path, dir, name));
    if (!omm_file_exists(path)) return false;
    omm_buf_init(&file, 1 << 24);
    CHECK_OK(omm_file_read(&file, path));
    const bool there = file.size > 0 && memmem(file.data, file.size, word, strlen(word)) != NULL;
    omm_buf_fini(&file);
    return there;
}

/* What was removed stands nowhere in the files any more, while they are open and after. */
static void test_forgotten(void) {
    static const char *const files[] = {"notes.sqlite", "notes.sqlite-wal", "notes.sqlite-shm"};
    static const char *const words[] = {"zanzibar", "umbrella",
                                        "umbrel"}; /* as written, its stem */
    char dir[] = "/tmp/omm-notes-XXXXXX", path[OMM_PATH_MAX];
    int64_t id = 0;
    bool is_new = false, there = false;
    CHECK(mkdtemp(dir) != NULL);
    CHECK_OK(omm_path_join(path, dir, "notes.sqlite"));
    omm_notes *notes = open_notes(path);
    fill(notes);
    CHECK_OK(omm_notes_save(&id, &is_new, notes, omm_bytes_str("zanzibar umbrella"), 5));
    for (size_t i = 0; i < 3; i++) there = there || has_word(dir, files[i], "zanzibar");
    CHECK(there);
    CHECK_OK(omm_notes_remove(notes, id));
    for (int closed = 0; closed < 2; closed++) {
        for (size_t i = 0; i < 3; i++)
            for (size_t j = 0; j < 3; j++) CHECK(!has_word(dir, files[i], words[j]));
        if (!closed) check_find(notes, "door code", "1:the door code is 529|");
        if (!closed) omm_notes_close(notes);
    }
    CHECK_OK(omm_dir_remove(dir));
}

/* Every allocation of ours fails once: the call fails or works, and nothing is half done. */
static void test_no_memory(void) {
    omm_notes *notes = open_notes(NULL);
    fill(notes);
    for (size_t nth = 1;; nth++) {
        int64_t id = 0;
        bool is_new = false;
        found f = {0};
        omm_mem_fail_nth(nth);
        omm_err err = omm_notes_save(&id, &is_new, notes, omm_bytes_str("new one"), 5);
        if (err == OMM_OK) err = omm_notes_find(notes, omm_bytes_str("new"), 1, collect, &f);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        if (err == OMM_OK && strcmp(f.text, "6:new one|") == 0) {
            CHECK(nth > 3);
            break;
        }
        CHECK_ERR(err, OMM_ERR_NOMEM);
        CHECK(nth < 100);
    }
    check_find(notes, "door code", "1:the door code is 529|");
    omm_notes_close(notes);
    for (size_t nth = 1; nth < 100; nth++) {
        omm_mem_fail_nth(nth);
        omm_err err = omm_notes_open(&notes, NULL);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        if (err == OMM_OK) {
            omm_notes_close(notes);
            return;
        }
        CHECK_ERR(err, OMM_ERR_NOMEM);
    }
    CHECK(false);
}

int main(void) {
    test_find();
    test_save_and_remove();
    test_file();
    test_forgotten();
    test_no_memory();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

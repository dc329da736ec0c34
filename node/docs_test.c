/* docs_test.c - passages of a folder: where they begin, what finds them, what is skipped. */
#include "omm/docs.h"

#include "omm/file.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char s_dir[] = "/tmp/omm-docs-XXXXXX";

static void put(const char *name, const char *text) {
    char path[OMM_PATH_MAX];
    char folder[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(path, s_dir, name));
    CHECK_OK(omm_path_dir(folder, path));
    CHECK_OK(omm_dir_make(folder));
    CHECK_OK(omm_file_write_fast(path, omm_bytes_str(text), 0644));
}

static void take_away(const char *name) {
    char path[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(path, s_dir, name));
    CHECK_OK(omm_file_remove(path));
}

typedef struct found {
    char text[8192]; /* "file 1: text|" ... */
    size_t size;
    omm_err stop;
} found;

static omm_err collect(void *ud, const omm_passage *p) {
    found *f = ud;
    f->size += (size_t)snprintf(f->text + f->size, sizeof f->text - f->size, "%s %u: %.*s|",
                                p->file, p->number, (int)p->text.size, (const char *)p->text.data);
    return f->stop;
}

static void check_search(omm_docs *docs, const char *query, const char *wanted) {
    found f = {0};
    CHECK_OK(omm_docs_search(docs, omm_bytes_str(query), 3, collect, &f));
    if (strcmp(f.text, wanted) != 0) fprintf(stderr, "%s: %s\n", query, f.text);
    CHECK(strcmp(f.text, wanted) == 0);
}

static void fill(void) {
    put("heater.txt", "Manual of the heater. Clean the filter\nevery 25 days.\n\n\n"
                      "The best place for it\r\nis the garage.\r\n");
    put("town/places.md", "# Museum\nThe address is 18 Hill Street.\n\nOn Thursday it is closed.\n"
                          "# Night market\nIt opens at 8 in the evening.");
    put("words.txt", "gate filter gate filter gate\n\nA gate is a check.");
    put("picture.png", "filter");
    put("binary.txt", "filter \x01 filter");
    put("latin.txt", "filter caf\xe9");
    put(".hidden.txt", "filter");
    put(".git/config.txt", "filter");
    put("empty.txt", "");
}

#define HEATER_1 "heater.txt 1: Manual of the heater. Clean the filter every 25 days.|"
#define HEATER_2 "heater.txt 2: The best place for it is the garage.|"
#define WORDS_1 "words.txt 1: gate filter gate filter gate|"
#define MUSEUM_2 "town/places.md 2: On Thursday it is closed.|"
#define MARKET_3 "town/places.md 3: It opens at 8 in the evening.|"

static void test_search(void) {
    omm_docs *docs = NULL;
    CHECK_OK(omm_docs_open(&docs, s_dir));
    omm_docs_counts counts = omm_docs_get_counts(docs);
    CHECK_EQ(counts.files, 4);
    CHECK_EQ(counts.passages, 7);
    CHECK_EQ(counts.skipped, 5);
    check_search(docs, "clean", HEATER_1);
    check_search(docs, "heater garage", HEATER_2); /* the file's name counts */
    check_search(docs, "museum closed", MUSEUM_2); /* and the heading */
    check_search(docs, "When does the night market open?", MARKET_3);
    check_search(docs, "filters", WORDS_1 HEATER_1);
    check_search(docs, "submarine", "");
    check_search(docs, "heater submarine", "");
    check_search(docs, "heater garage submarine", HEATER_2); /* all but one of three */
    check_search(docs, "heater violin submarine", "");
    check_search(docs, "clean OR gate", "");
    check_search(docs, "context:heater", "");
    check_search(docs, "cle*", "");
    check_search(docs, "clean\" OR \"gate", "");
    found f = {0};
    CHECK_ERR(omm_docs_search(docs, omm_bytes_str(""), 3, collect, &f), OMM_ERR_FORMAT);
    f.stop = OMM_ERR_CANCELLED;
    CHECK_ERR(omm_docs_search(docs, omm_bytes_str("gate"), 3, collect, &f), OMM_ERR_CANCELLED);
    omm_docs_close(docs);
}

/* Same file, same size: only the time of change tells, by a nanosecond. */
static void edit_in_place(const char *name, const char *text) {
    char path[OMM_PATH_MAX];
    struct stat info;
    CHECK_OK(omm_path_join(path, s_dir, name));
    CHECK_EQ(stat(path, &info), 0);
    CHECK_EQ((size_t)info.st_size, strlen(text));
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK_EQ((size_t)write(fd, text, strlen(text)), strlen(text));
    info.st_mtim.tv_nsec += info.st_mtim.tv_nsec < 999999999 ? 1 : -1;
    CHECK_EQ(futimens(fd, (struct timespec[]){info.st_atim, info.st_mtim}), 0);
    CHECK_EQ(close(fd), 0);
}

static void test_refresh(void) {
    omm_docs *docs = NULL;
    bool changed = true;
    CHECK_OK(omm_docs_open(&docs, s_dir));
    CHECK_OK(omm_docs_refresh(&changed, docs));
    CHECK(!changed);
    put("new.txt", "A submarine dives.");
    check_search(docs, "submarine", "new.txt 1: A submarine dives.|");
    put("new.txt", "A submarine floats.");
    check_search(docs, "submarine", "new.txt 1: A submarine floats.|");
    edit_in_place("new.txt", "A submarine sleeps.");
    check_search(docs, "submarine", "new.txt 1: A submarine sleeps.|");
    take_away("new.txt");
    check_search(docs, "submarine", "");
    /* a link is not followed, be it one that leads nowhere (as an editor's lock), and a special file not opened */
    char path[OMM_PATH_MAX];
    const omm_docs_counts before = omm_docs_get_counts(docs);
    CHECK_OK(omm_path_join(path, s_dir, "link.txt"));
    CHECK_EQ(symlink("/etc/passwd", path), 0);
    CHECK_OK(omm_path_join(path, s_dir, "town/lock.txt"));
    CHECK_EQ(symlink("nobody@nowhere.1", path), 0);
    CHECK_OK(omm_path_join(path, s_dir, "town/loop"));
    CHECK_EQ(symlink("..", path), 0);
    CHECK_OK(omm_path_join(path, s_dir, "pipe.txt"));
    CHECK_EQ(mkfifo(path, 0600), 0);
    check_search(docs, "clean", HEATER_1);
    check_search(docs, "root", "");
    CHECK_OK(omm_docs_refresh(&changed, docs));
    CHECK(!changed);
    omm_docs *second = NULL;
    CHECK_OK(omm_docs_open(&second, s_dir));
    CHECK_EQ(omm_docs_get_counts(second).skipped, before.skipped + 4);
    CHECK_EQ(omm_docs_get_counts(second).files, before.files);
    check_search(second, "clean", HEATER_1);
    omm_docs_close(second);
    take_away("link.txt");
    take_away("town/lock.txt");
    take_away("town/loop");
    take_away("pipe.txt");
    CHECK_ERR(omm_docs_open(&second, "/nonexistent/folder"), OMM_ERR_NOT_FOUND);
    omm_docs_close(docs);
}

/* A paragraph of 1,500 bytes: cut behind sentences; without any, behind words; without those, at a
 * whole character. */
static void test_long(void) {
    static const struct {
        const char *part;
        const char *last; /* of each passage */
    } s_cases[] = {{"Ten bytes. ", "."}, {"lemons ", "lemons"}, {"\xe2\x82\xac", "\xe2\x82\xac"}};
    for (size_t i = 0; i < 3; i++) {
        char text[2000] = "";
        size_t size = 0;
        while (size < 1500)
            size += (size_t)snprintf(text + size, sizeof text - size, "%s", s_cases[i].part);
        put("long.txt", text);
        omm_docs *docs = NULL;
        found f = {0};
        CHECK_OK(omm_docs_open(&docs, s_dir));
        CHECK_OK(omm_docs_search(docs, omm_bytes_str("long"), 9, collect, &f));
        CHECK_EQ(omm_docs_get_counts(docs).passages, 7 + 3);
        for (char *end = strchr(f.text, '|'); end; end = strchr(end + 1, '|'))
            CHECK(memcmp(end - strlen(s_cases[i].last), s_cases[i].last, strlen(s_cases[i].last)) ==
                  0);
        omm_docs_close(docs);
    }
    take_away("long.txt");
}

static void test_no_memory(void) {
    for (size_t nth = 1; nth < 10000; nth++) {
        omm_docs *docs = NULL;
        found f = {0};
        omm_mem_fail_nth(nth);
        omm_err err = omm_docs_open(&docs, s_dir);
        if (err == OMM_OK) err = omm_docs_search(docs, omm_bytes_str("clean"), 1, collect, &f);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        omm_docs_close(docs);
        if (err == OMM_OK) {
            CHECK(nth > 10);
            CHECK(strcmp(f.text, HEATER_1) == 0);
            return;
        }
        CHECK_ERR(err, OMM_ERR_NOMEM);
    }
    CHECK(false);
}

int main(void) {
    CHECK(mkdtemp(s_dir) != NULL);
    fill();
    test_search();
    test_refresh();
    test_long();
    test_no_memory();
    CHECK_OK(omm_dir_remove(s_dir));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

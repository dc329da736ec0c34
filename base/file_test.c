#include "omm/file.h"
#include "omm/file_in.h"
#include "omm/hash.h"
#include "omm/mem.h"
#include "omm/mem_count.h"
#include "omm_test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char s_root[] = "/tmp/omm_file_test_XXXXXX";

static const char *at(const char *relative) {
    static char paths[8][OMM_PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 8];
    CHECK_OK(omm_path_join(path, s_root, relative));
    return path;
}

static void check_content(const char *path, const char *want) {
    omm_buf buf;
    omm_buf_init(&buf, 1u << 20);
    CHECK_OK(omm_file_read(&buf, path));
    CHECK(omm_bytes_equal(omm_buf_view(&buf), omm_bytes_str(want)));
    omm_buf_fini(&buf);
}

typedef struct seen {
    char text[4096];
    omm_err answer;
    const char *at; /* NULL: everywhere */
} seen;

static omm_err note(void *ud, const char *relative) {
    seen *s = ud;
    size_t used = strlen(s->text);
    snprintf(s->text + used, sizeof s->text - used, "%s\n", relative);
    return !s->at || strcmp(s->at, relative) == 0 ? s->answer : OMM_OK;
}

static void check_files(const char *dir, const char *want) {
    seen s = {.answer = OMM_OK};
    CHECK_OK(omm_dir_walk(dir, note, &s));
    if (strcmp(s.text, want) != 0) fprintf(stderr, "walked:\n%s", s.text);
    CHECK(strcmp(s.text, want) == 0);
}

static void write_replaces_whole_files(void) {
    CHECK_OK(omm_dir_make(at("w")));
    CHECK_OK(omm_file_write(at("w/a"), omm_bytes_str("first, longer"), 0600));
    CHECK_OK(omm_file_write(at("w/a"), omm_bytes_str("second"), 0600));
    check_content(at("w/a"), "second");
    CHECK_OK(omm_file_write_fast(at("w/a"), omm_bytes_of(NULL, 0), 0644));
    check_content(at("w/a"), "");
    struct stat st;
    CHECK_EQ(stat(at("w/a"), &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0644);
    CHECK_OK(omm_file_write(at("w/key"), omm_bytes_str("k"), 0600));
    CHECK_EQ(stat(at("w/key"), &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0600);
    check_files(at("w"), "a\nkey\n"); /* no temporary file stays */
    CHECK(omm_file_same(at("w/a"), at("w/../w/a")) && !omm_file_same(at("w/a"), at("w/key")));
    CHECK(!omm_file_same(at("w/none"), at("w/none")));
    CHECK_EQ(chdir(at("w")), 0); /* a name without a folder */
    CHECK_OK(omm_file_write("bare", omm_bytes_str("b"), 0644));
    check_content("bare", "b");
    CHECK_OK(omm_file_remove("bare"));
    CHECK_OK(omm_file_remove("bare"));
    CHECK(!omm_file_exists("bare"));
}

/* A disk that fills up in the middle, by the limit on file sizes. */
static void create_never_overwrites(void) {
    struct stat st;
    CHECK_OK(omm_dir_make(at("c")));
    CHECK_OK(omm_file_create(at("c/key"), omm_bytes_str("first"), 0600));
    CHECK_ERR(omm_file_create(at("c/key"), omm_bytes_str("second"), 0600), OMM_ERR_EXISTS);
    check_content(at("c/key"), "first");
    CHECK_EQ(stat(at("c/key"), &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0600);
    CHECK_EQ(symlink("nowhere", at("c/link")), 0);
    CHECK_ERR(omm_file_create(at("c/link"), omm_bytes_str("x"), 0600), OMM_ERR_EXISTS);
    CHECK_ERR(omm_file_create(at("c/none/key"), omm_bytes_str("x"), 0600), OMM_ERR_IO);
    CHECK_OK(omm_file_remove(at("c/link")));
    check_files(at("c"), "key\n");
    CHECK_OK(omm_file_check_private(at("c/key")));
    static const unsigned open_to[] = {0604, 0602, 0601, 0640, 0620, 0610, 0666};
    for (size_t i = 0; i < sizeof open_to / sizeof *open_to; i++) {
        CHECK_EQ(chmod(at("c/key"), open_to[i]), 0);
        CHECK_ERR(omm_file_check_private(at("c/key")), OMM_ERR_CONFIG);
    }
    CHECK_ERR(omm_file_check_private(at("c")), OMM_ERR_FORMAT);
    CHECK_ERR(omm_file_check_private(at("c/none")), OMM_ERR_NOT_FOUND);
}

typedef struct creation {
    const char *path;
    omm_err err;
} creation;

static void *create_one(void *ud) {
    creation *c = ud;
    c->err = omm_file_create(c->path, omm_bytes_str("mine"), 0600);
    return NULL;
}

/* Of two at the same moment one gets the name. */
static void create_has_one_winner(void) {
    char path[OMM_PATH_MAX];
    snprintf(path, sizeof path, "%s", at("c/race"));
    for (int i = 0; i < 200; i++) {
        pthread_t other;
        creation his = {.path = path};
        CHECK_EQ(pthread_create(&other, NULL, create_one, &his), 0);
        const omm_err mine = omm_file_create(path, omm_bytes_str("mine"), 0600);
        CHECK_EQ(pthread_join(other, NULL), 0);
        CHECK((mine == OMM_OK) != (his.err == OMM_OK));
        CHECK((mine == OMM_OK ? his.err : mine) == OMM_ERR_EXISTS);
        CHECK_OK(omm_file_remove(path));
    }
}

static void failed_write_leaves_the_old_file(void) {
    static const char old[] = "what was there";
    CHECK_OK(omm_dir_make(at("full")));
    CHECK_OK(omm_file_write(at("full/a"), omm_bytes_str(old), 0644));
    char *large = omm_alloc(100000, 1);
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    struct rlimit before;
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit small = {.rlim_cur = 50000, .rlim_max = before.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    CHECK_ERR(omm_file_write(at("full/a"), omm_bytes_of(large, 100000), 0644), OMM_ERR_IO);
    CHECK_ERR(omm_file_write_fast(at("full/new"), omm_bytes_of(large, 100000), 0644), OMM_ERR_IO);
    CHECK_ERR(omm_file_write_unlisted(at("full/new"), omm_bytes_of(large, 100000), 0644),
              OMM_ERR_IO);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    omm_free(large);
    check_content(at("full/a"), old);
    check_files(at("full"), "a\n");
}

/* Pieces appear whole at finish, and leave nothing behind without it. */
static void pieces_appear_at_finish(void) {
    omm_file_out out;
    for (int finish = 0; finish < 2; finish++) {
        CHECK_OK(omm_dir_make(at("pieces")));
        CHECK_OK(omm_file_out_open(&out, at("pieces/a"), 0644));
        CHECK_OK(omm_file_out_write(&out, omm_bytes_str("one ")));
        CHECK_OK(omm_file_out_write(&out, omm_bytes_str("two")));
        CHECK(!omm_file_exists(at("pieces/a")));
        check_content(out.temporary, "one two");
        if (out.nameless) check_files(at("pieces"), "");
        if (finish) CHECK_OK(omm_file_out_finish(&out, true));
        omm_file_out_close(&out);
        omm_file_out_close(&out);
        check_files(at("pieces"), finish ? "a\n" : "");
    }
    check_content(at("pieces/a"), "one two");
    CHECK_OK(omm_file_out_open(&out, at("pieces/a"), 0644));
    const int fd = out.fd;
    omm_file_out_close(&out);
    CHECK_EQ(open("/dev/null", O_RDONLY | O_CLOEXEC), fd); /* somebody else's from now on */
    omm_file_out_close(&out);
    CHECK_EQ(close(fd), 0);
    CHECK_ERR(omm_file_out_open(&out, at("pieces"), 0644), OMM_ERR_IO); /* a folder */
    omm_file_out_close(&out);
    CHECK_OK(omm_file_out_open(&out, at("pieces/b"), 0644));
    CHECK_OK(omm_dir_make(at("pieces/b"))); /* in the way of the rename */
    CHECK_ERR(omm_file_out_finish(&out, false), OMM_ERR_IO);
    omm_file_out_close(&out);
    check_files(at("pieces"), "a\n");
}

/* The room that is asked for is this file's, and free again once it is closed; more than there is is refused. */
static void room_is_reserved(void) {
    omm_file_out out;
    struct stat st;
    CHECK_OK(omm_file_out_open(&out, at("room"), 0644));
    CHECK_OK(omm_file_out_reserve(&out, 1 << 20));
    CHECK_EQ(fstat(out.fd, &st), 0);
    if (st.st_size == 0)
        printf("reserve: this file system promises no room\n");
    else
        CHECK(st.st_size == 1 << 20 && (uint64_t)st.st_blocks * 512 >= 1 << 20);
    if (st.st_size) CHECK_ERR(omm_file_out_reserve(&out, (uint64_t)1 << 62), OMM_ERR_IO);
    omm_file_out_close(&out);
    CHECK(!omm_file_exists(at("room")));
}

static void append_adds_to_a_file_that_is_there(void) {
    CHECK_ERR(omm_file_append(at("p-none"), omm_bytes_str("x"), true), OMM_ERR_NOT_FOUND);
    CHECK(!omm_file_exists(at("p-none")));
    CHECK_OK(omm_file_write_fast(at("p"), omm_bytes_str("one"), 0644));
    CHECK_OK(omm_file_append(at("p"), omm_bytes_str(" two"), true));
    CHECK_OK(omm_file_append(at("p"), omm_bytes_str(" three"), false));
    check_content(at("p"), "one two three");
    CHECK_EQ(symlink("p", at("p-link")), 0);
    CHECK_ERR(omm_file_append(at("p-link"), omm_bytes_str("x"), true), OMM_ERR_IO);
    CHECK_OK(omm_file_remove(at("p-link")));
    CHECK_OK(omm_file_remove(at("p")));
}

static void write_refuses_what_is_no_file(void) {
    omm_bytes x = omm_bytes_str("x");
    CHECK_ERR(omm_file_write("/dev/full", x, 0644), OMM_ERR_IO); /* must not replace a device */
    struct stat st;
    CHECK_EQ(lstat("/dev/full", &st), 0);
    CHECK(S_ISCHR(st.st_mode));
    CHECK_OK(omm_dir_make(at("r/sub")));
    CHECK_ERR(omm_file_write(at("r/sub"), x, 0644), OMM_ERR_IO);
    CHECK_ERR(omm_file_write(at("r/none/a"), x, 0644), OMM_ERR_IO);
    CHECK_OK(omm_file_write(at("r/f"), x, 0644));
    CHECK_ERR(omm_file_write(at("r/f/a"), x, 0644), OMM_ERR_IO);
    CHECK_ERR(omm_file_write("", x, 0644), OMM_ERR_IO);
    char name[OMM_PATH_MAX];
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    CHECK_ERR(omm_file_write(name, x, 0644), OMM_ERR_TOO_BIG);
    name[NAME_MAX + 1] = '\0'; /* longer than one name may be */
    CHECK_ERR(omm_file_write(name, x, 0644), OMM_ERR_TOO_BIG);
    /* No name, and a link to what is no file: refused when the file is opened, before anybody has worked for it. */
    omm_file_out out;
    CHECK_EQ(symlink("/dev/null", at("null")), 0);
    const char *const nowhere[] = {"", "x/", at("r/"), at("null")};
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++) {
        CHECK_ERR(omm_file_out_open(&out, nowhere[i], 0644), OMM_ERR_IO);
        omm_file_out_close(&out);
    }
    CHECK_EQ(unlink(at("null")), 0);
    /* A link is replaced, not written through. */
    CHECK_EQ(symlink("f", at("r/link")), 0);
    CHECK_OK(omm_file_write(at("r/link"), omm_bytes_str("y"), 0644));
    check_content(at("r/f"), "x");
    check_content(at("r/link"), "y");
    check_files(at("r"), "f\nlink\n");
    /* As in a folder that one may not write to; root may write anywhere. */
    if (geteuid() != 0) {
        CHECK_EQ(chmod(at("r"), 0500), 0);
        CHECK_ERR(omm_file_write(at("r/f"), omm_bytes_str("z"), 0644), OMM_ERR_IO);
        CHECK_EQ(chmod(at("r"), 0700), 0);
        check_content(at("r/f"), "x");
    }
}

static void stale_temporary_does_not_stand_in_the_way(void) {
    CHECK_OK(omm_dir_make(at("stale")));
    CHECK_OK(omm_file_write(at("stale/a"), omm_bytes_str("old"), 0644)); /* else none is needed */
    char name[200];
    for (unsigned i = 0; i < 60; i++) { /* the serial is somewhere among the first 60 */
        snprintf(name, sizeof name, "stale/a.tmp.%ld.%u", (long)getpid(), i);
        CHECK_OK(omm_file_write(at(name), omm_bytes_str("left"), 0644));
    }
    CHECK_OK(omm_file_write(at("stale/a"), omm_bytes_str("new"), 0644));
    check_content(at("stale/a"), "new");
}

/* The longest name that there can be is written again, which takes another name on the way. */
static void longest_name_is_written_again(void) {
    static const char *const contents[] = {"one", "two", "three"};
    char name[sizeof "long/" + NAME_MAX] = "long/";
    memset(name + 5, 'n', NAME_MAX);
    CHECK_OK(omm_dir_make(at("long")));
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        CHECK_OK(omm_file_write(at(name), omm_bytes_str(contents[i]), 0644));
        check_content(at(name), contents[i]);
    }
    name[sizeof name - 1] = '\n'; /* that name alone is there */
    char only[NAME_MAX + 2] = "";
    memcpy(only, name + 5, NAME_MAX + 1);
    check_files(at("long"), only);
}

static void read_obeys_its_limit(void) {
    omm_buf buf;
    omm_buf_init(&buf, 10);
    CHECK_OK(omm_buf_append(&buf, "ab", 2));
    CHECK_OK(omm_file_write_fast(at("ten"), omm_bytes_str("12345678"), 0644));
    CHECK_OK(omm_file_read(&buf, at("ten"))); /* appends, exactly full */
    CHECK(omm_bytes_equal(omm_buf_view(&buf), omm_bytes_str("ab12345678")));
    buf.size = 3;
    CHECK_ERR(omm_file_read(&buf, at("ten")), OMM_ERR_TOO_BIG);
    CHECK_ERR(omm_file_read(&buf, "/dev/zero"), OMM_ERR_TOO_BIG); /* a file without a size */
    CHECK_ERR(omm_file_read(&buf, at("none")), OMM_ERR_NOT_FOUND);
    CHECK_ERR(omm_file_read(&buf, s_root), OMM_ERR_IO);
    CHECK_EQ(buf.size, 3);
    CHECK_OK(omm_file_read(&buf, "/dev/null"));
    CHECK_EQ(buf.size, 3);
    omm_buf_fini(&buf);
    omm_buf_init(&buf, 0);
    CHECK_OK(omm_file_read(&buf, "/dev/null"));
    CHECK_ERR(omm_file_read(&buf, at("ten")), OMM_ERR_TOO_BIG);
    uint64_t size = 0;
    CHECK_OK(omm_file_size(&size, at("ten")));
    CHECK_EQ(size, 8);
    CHECK_ERR(omm_file_size(&size, at("none")), OMM_ERR_NOT_FOUND);
    CHECK_ERR(omm_file_size(&size, s_root), OMM_ERR_IO);
}

static void read_and_walk_survive_failing_memory(void) {
    CHECK_OK(omm_dir_make(at("mem/sub")));
    char name[40];
    for (int i = 0; i < 150; i++) {
        snprintf(name, sizeof name, "mem/%03d%s", i, "-longer-name-to-fill");
        CHECK_OK(omm_file_write_fast(at(name), omm_bytes_str("content"), 0644));
    }
    size_t live = omm_mem_live();
    size_t n = 1;
    for (;; n++) {
        omm_buf buf;
        seen s = {.answer = OMM_OK};
        omm_buf_init(&buf, 1000);
        omm_mem_fail_nth(n);
        omm_err err = omm_file_read(&buf, at("mem/000-longer-name-to-fill"));
        if (err == OMM_OK) err = omm_dir_walk(at("mem"), note, &s);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        omm_buf_fini(&buf);
        CHECK_EQ(omm_mem_live(), live);
        if (err == OMM_OK) break;
        CHECK_EQ(err, OMM_ERR_NOMEM);
        CHECK_EQ(s.text[0], 0);
    }
    CHECK(n > 5);
}

static void walk_is_in_byte_order(void) {
    static const char *const names[] = {"d/b/2", "d/b/10",     "d/b-1", "d/b.x",  "d/B",
                                        "d/a",   "d/\xc3\xa4", "d/b0",  "d/z/y/x"};
    CHECK_OK(omm_dir_make(at("d/b")));
    CHECK_OK(omm_dir_make(at("d/z/y")));
    CHECK_OK(omm_dir_make(at("d/empty/empty")));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK_OK(omm_file_write_fast(at(names[i]), omm_bytes_str("."), 0644));
    check_files(at("d"), "B\na\nb-1\nb.x\nb/10\nb/2\nb0\nz/y/x\n\xc3\xa4\n");
    char slash[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(slash, at("d"), ""));
    check_files(slash, "B\na\nb-1\nb.x\nb/10\nb/2\nb0\nz/y/x\n\xc3\xa4\n");
    seen s = {.answer = OMM_ERR_CANCELLED};
    CHECK_ERR(omm_dir_walk(at("d"), note, &s), OMM_ERR_CANCELLED);
    CHECK(strcmp(s.text, "B\n") == 0);
    s = (seen){.answer = OMM_ERR_REFUSED_DIGEST, .at = "z/y/x"}; /* what is wrong below is heard */
    CHECK_ERR(omm_dir_walk(at("d"), note, &s), OMM_ERR_REFUSED_DIGEST);
    CHECK(strcmp(s.text, "B\na\nb-1\nb.x\nb/10\nb/2\nb0\nz/y/x\n") == 0);
    CHECK_ERR(omm_dir_walk(at("none"), note, &s), OMM_ERR_NOT_FOUND);
    CHECK_ERR(omm_dir_walk(at("d/a"), note, &s), OMM_ERR_IO);
}

typedef struct counted_names {
    size_t files, folders, links, others;
    omm_err answer;
} counted_names;

static omm_err count_name(void *ud, const char *name) {
    counted_names *n = ud;
    n->files += strcmp(name, ".file") == 0 || strcmp(name, "file") == 0;
    n->folders += strcmp(name, "folder") == 0;
    n->links += strcmp(name, "link") == 0;
    n->others++;
    return n->answer;
}

static void names_are_those_of_one_folder(void) {
    counted_names n = {.answer = OMM_OK};
    CHECK_OK(omm_dir_make(at("names/folder")));
    CHECK_OK(omm_dir_names(at("names/folder"), count_name, &n));
    CHECK_EQ(n.others, 0);
    CHECK_OK(omm_file_write_fast(at("names/.file"), omm_bytes_str("."), 0644));
    CHECK_OK(omm_file_write_fast(at("names/file"), omm_bytes_str("."), 0644));
    CHECK_OK(omm_file_write_fast(at("names/folder/file"), omm_bytes_str("."), 0644));
    CHECK_EQ(symlink("nowhere", at("names/link")), 0);
    CHECK_OK(omm_dir_names(at("names"), count_name, &n));
    CHECK_EQ(n.files, 2);
    CHECK_EQ(n.folders, 1);
    CHECK_EQ(n.links, 1);
    CHECK_EQ(n.others, 4);
    n = (counted_names){.answer = OMM_ERR_CANCELLED};
    CHECK_ERR(omm_dir_names(at("names"), count_name, &n), OMM_ERR_CANCELLED);
    CHECK_EQ(n.others, 1);
    CHECK_ERR(omm_dir_names(at("names/none"), count_name, &n), OMM_ERR_NOT_FOUND);
    CHECK_ERR(omm_dir_names(at("names/file"), count_name, &n), OMM_ERR_IO);
}

static bool is_same_state(const omm_file_state *a, const omm_file_state *b) {
    return a->inode == b->inode && a->bytes == b->bytes && a->modified_ns == b->modified_ns &&
           a->changed_ns == b->changed_ns && a->owner == b->owner && a->mode == b->mode;
}

static uint64_t modified_ns(const char *path) {
    struct stat st;
    CHECK_EQ(stat(path, &st), 0);
    return (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
}

/* Of the file that a name stands for, as stat(2) has it; a map has that of its opening. */
static void states_tell_files_apart(void) {
    omm_file_state first, linked, now;
    omm_map map;
    struct stat st;
    CHECK_OK(omm_file_write_fast(at("state"), omm_bytes_str("content"), 0640));
    CHECK_EQ(symlink("state", at("state-link")), 0);
    CHECK_OK(omm_file_state_read(&first, at("state")));
    CHECK_OK(omm_file_state_read(&linked, at("state-link")));
    CHECK(is_same_state(&first, &linked));
    CHECK_EQ(stat(at("state"), &st), 0);
    CHECK_EQ(first.inode, st.st_ino);
    CHECK_EQ(first.bytes, 7);
    CHECK_EQ(first.owner, geteuid());
    CHECK_EQ(first.mode, 0640);
    CHECK_EQ(first.changed_ns, st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec);
    CHECK(first.modified_ns == modified_ns(at("state")));
    CHECK_OK(omm_map_open(&map, at("state-link")));
    const struct timespec past[2] = {{.tv_sec = 12, .tv_nsec = 34}, {.tv_sec = 56, .tv_nsec = 78}};
    CHECK_EQ(utimensat(AT_FDCWD, at("state"), past, 0), 0);
    CHECK_OK(omm_file_state_read(&now, at("state")));
    CHECK(is_same_state(&map.state, &first));
    CHECK(now.modified_ns == modified_ns(at("state")) && now.modified_ns != first.modified_ns);
    CHECK(now.changed_ns >= first.changed_ns);
    omm_map_close(&map);
    CHECK_OK(omm_file_write_fast(at("state"), omm_bytes_str("content"), 0640));
    CHECK_OK(omm_file_state_read(&now, at("state")));
    CHECK(now.inode != first.inode);
    const struct timespec far[2] = {{.tv_sec = 10413792000}, {.tv_sec = 10413792000}}; /* 2300 */
    CHECK_EQ(utimensat(AT_FDCWD, at("state"), far, 0), 0);
    CHECK_OK(omm_file_state_read(&now, at("state")));
    CHECK(now.modified_ns == modified_ns(at("state"))); /* of a file system without it the last */
    CHECK_ERR(omm_map_open_itself(&map, at("state-link")), OMM_ERR_IO);
    CHECK_OK(omm_map_open_itself(&map, at("state")));
    CHECK(is_same_state(&map.state, &now));
    omm_map_close(&map);
    omm_file_out out;
    CHECK_OK(omm_file_out_open(&out, at("state-out"), 0600));
    CHECK_OK(omm_file_out_state(&first, &out));
    CHECK_EQ(first.bytes, 0);
    CHECK_EQ(first.mode, 0600);
    CHECK_EQ(first.owner, geteuid());
    CHECK_OK(omm_file_out_finish(&out, false));
    omm_file_out_close(&out);
    CHECK_OK(omm_file_state_read(&now, at("state-out")));
    CHECK_EQ(now.inode, first.inode);
    CHECK_ERR(omm_file_state_read(&now, at("state-none")), OMM_ERR_NOT_FOUND);
    CHECK_ERR(omm_file_state_read(&now, at("names")), OMM_ERR_IO);
}

enum { LARGE_FILES = 33002, LARGE_STEP = 7919, LARGE_NAME_BYTES = 200 };

typedef struct large_walk {
    const char *root;
    size_t number; /* of the next file */
    bool skips;    /* every third is gone */
} large_walk;

/* In order, each once; every third is removed. */
static omm_err visit_large(void *ud, const char *relative) {
    large_walk *w = ud;
    char path[OMM_PATH_MAX];
    if (w->skips && w->number % 3 == 0) w->number++;
    CHECK_EQ(strlen(relative), LARGE_NAME_BYTES);
    CHECK_EQ(strtoul(relative + LARGE_NAME_BYTES - 5, NULL, 10), w->number);
    CHECK_OK(omm_path_join(path, w->root, relative));
    if (w->number++ % 3 == 0) CHECK_OK(omm_file_remove(path));
    return OMM_OK;
}

/* Many more names than are held at once, made in another order. */
static void walk_holds_some_names_at_a_time(void) {
    char root[OMM_PATH_MAX], name[OMM_PATH_MAX], number[LARGE_NAME_BYTES + 1];
    char one[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(root, s_root, "large"));
    CHECK_OK(omm_path_join(one, s_root, "large_one"));
    CHECK_OK(omm_dir_make(root));
    CHECK_OK(omm_file_write_fast(one, omm_bytes_str(""), 0644));
    for (size_t i = 0; i < LARGE_FILES; i++) {
        (void)snprintf(number, sizeof number, "%0*zu", LARGE_NAME_BYTES,
                       i * LARGE_STEP % LARGE_FILES);
        CHECK_OK(omm_path_join(name, root, number));
        CHECK_EQ(link(one, name), 0); /* quicker than a file of its own */
    }
    large_walk w = {.root = root};
    omm_mem_peak_restart();
    const size_t before = omm_mem_bytes();
    CHECK_OK(omm_dir_walk(root, visit_large, &w));
    CHECK_EQ(w.number, LARGE_FILES);
    CHECK(omm_mem_peak() - before < (size_t)LARGE_FILES * LARGE_NAME_BYTES);
    w = (large_walk){.root = root, .skips = true};
    CHECK_OK(omm_dir_walk(root, visit_large, &w));
    CHECK_EQ(w.number, LARGE_FILES);
    CHECK_OK(omm_dir_remove(root));
}

static void walk_refuses_links_and_special_files(void) {
    seen s = {.answer = OMM_OK};
    CHECK_OK(omm_dir_make(at("l/deep")));
    CHECK_OK(omm_file_write_fast(at("l/a"), omm_bytes_str("."), 0644));
    CHECK_EQ(symlink("/etc/passwd", at("l/deep/file")), 0);
    CHECK_ERR(omm_dir_walk(at("l"), note, &s), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "l/deep/file: a symbolic link") != NULL);
    CHECK_OK(omm_file_remove(at("l/deep/file")));
    CHECK_EQ(symlink("..", at("l/deep/loop")), 0);
    CHECK_ERR(omm_dir_walk(at("l"), note, &s), OMM_ERR_FORMAT);
    CHECK_OK(omm_file_remove(at("l/deep/loop")));
    CHECK_EQ(mkfifo(at("l/fifo"), 0600), 0);
    CHECK_ERR(omm_dir_walk(at("l"), note, &s), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "l/fifo: a special file") != NULL);
    CHECK_EQ(s.text[0], 0); /* refused before the first call */
}

static omm_err count_one(void *ud, const char *relative) {
    (void)relative;
    ++*(uint32_t *)ud;
    return OMM_OK;
}

static void walk_passes_over(void) {
    seen s = {.answer = OMM_OK};
    uint32_t over = 0;
    CHECK_OK(omm_dir_make(at("o/deep")));
    CHECK_OK(omm_dir_make(at("o/.git/objects")));
    CHECK_OK(omm_file_write_fast(at("o/.git/objects/a"), omm_bytes_str("."), 0644));
    CHECK_OK(omm_file_write_fast(at("o/a"), omm_bytes_str("."), 0644));
    CHECK_OK(omm_file_write_fast(at("o/.a"), omm_bytes_str("."), 0644));
    CHECK_OK(omm_file_write_fast(at("o/deep/b"), omm_bytes_str("."), 0644));
    CHECK_EQ(symlink("..", at("o/deep/loop")), 0);
    CHECK_EQ(symlink("/nowhere", at("o/deep/lock")), 0);
    CHECK_EQ(mkfifo(at("o/fifo"), 0600), 0);
    CHECK_OK(omm_dir_walk_over(&over, at("o"), note, &s));
    CHECK(strcmp(s.text, "a\ndeep/b\n") == 0);
    CHECK_EQ(over, 5);
    char path[OMM_PATH_MAX], half[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(path, s_root, "o/n"));
    for (unsigned i = 0; i < 70; i++) {
        CHECK_OK(omm_path_join(path, path, "n"));
        if (i == 30) CHECK_OK(omm_path_join(half, path, ""));
    }
    CHECK_OK(omm_dir_make(path));
    s = (seen){.answer = OMM_OK};
    over = 0;
    CHECK_OK(omm_dir_walk_over(&over, at("o"), note, &s));
    CHECK_EQ(over, 6);
    CHECK_OK(omm_dir_remove(half)); /* in two pieces: it is as deep as nothing is removed at once */
    CHECK_ERR(omm_dir_walk_over(&over, at("none"), note, &s), OMM_ERR_NOT_FOUND);
    s.answer = OMM_ERR_CANCELLED;
    CHECK_ERR(omm_dir_walk_over(&over, at("o"), note, &s), OMM_ERR_CANCELLED);
    /* counted once, though a large folder is read several times */
    char name[OMM_PATH_MAX], root[OMM_PATH_MAX], number[16];
    CHECK_OK(omm_path_join(root, s_root, "many"));
    CHECK_OK(omm_dir_make(root));
    for (unsigned i = 0; i < 9100; i++) {
        snprintf(number, sizeof number, "%s%u", i % 91 == 0 ? "." : "", i);
        CHECK_OK(omm_path_join(name, root, number));
        const int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        CHECK(fd >= 0 && close(fd) == 0);
    }
    uint32_t seen_files = 0;
    over = 0;
    CHECK_OK(omm_dir_walk_over(&over, root, count_one, &seen_files));
    CHECK_EQ(seen_files, 9000);
    CHECK_EQ(over, 100);
    CHECK_OK(omm_dir_remove(root));
}

static void folders_are_made_and_removed(void) {
    struct stat st;
    CHECK_OK(omm_dir_make(at("m/x//y/")));
    CHECK_OK(omm_dir_make(at("m/x/y")));
    CHECK_OK(omm_file_write_fast(at("m/x/f"), omm_bytes_str("."), 0644));
    CHECK_ERR(omm_dir_make(at("m/x/f")), OMM_ERR_IO);
    CHECK_ERR(omm_dir_make(at("m/x/f/g")), OMM_ERR_IO);
    CHECK_ERR(omm_dir_make(""), OMM_ERR_IO);
    CHECK_OK(omm_dir_make_private(at("m/own/alone")));
    CHECK_EQ(stat(at("m/own/alone"), &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0700);
    CHECK_EQ(chmod(at("m/own"), 0750), 0);
    CHECK_OK(omm_dir_make_private(at("m/own")));
    CHECK_EQ(stat(at("m/own"), &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0750);
    /* What a link points to outlives the folder with the link. */
    CHECK_OK(omm_dir_make(at("outside")));
    CHECK_OK(omm_file_write_fast(at("outside/kept"), omm_bytes_str("kept"), 0644));
    CHECK_EQ(symlink("../../outside", at("m/x/link")), 0);
    CHECK_EQ(symlink("m", at("m_link")), 0);
    CHECK_ERR(omm_dir_remove(at("m_link")), OMM_ERR_IO);
    CHECK_ERR(omm_dir_remove(at("m/x/f")), OMM_ERR_IO);
    CHECK_ERR(omm_dir_remove(""), OMM_ERR_IO);
    CHECK_OK(omm_dir_remove(at("m")));
    CHECK(!omm_file_exists(at("m")));
    CHECK_OK(omm_dir_remove(at("m")));
    check_content(at("outside/kept"), "kept");
}

static void nesting_is_limited(void) {
    char path[OMM_PATH_MAX];
    seen s = {.answer = OMM_OK};
    memcpy(path, at("n"), strlen(at("n")) + 1);
    for (int i = 0; i < 64; i++) CHECK_OK(omm_path_join(path, path, "d"));
    CHECK_OK(omm_dir_make(path));
    CHECK_OK(omm_dir_walk(at("n"), note, &s)); /* 64 levels below the root */
    CHECK_OK(omm_path_join(path, path, "d"));
    CHECK_OK(omm_dir_make(path));
    CHECK_OK(omm_file_write_fast(at("n/a"), omm_bytes_str("."), 0644));
    CHECK_ERR(omm_dir_walk(at("n"), note, &s), OMM_ERR_TOO_BIG);
    CHECK_EQ(s.text[0], 0); /* nothing was told of what cannot be told whole */
    CHECK_ERR(omm_dir_remove(at("n")), OMM_ERR_IO);
    CHECK_OK(omm_dir_remove(at("n/d")));
    CHECK_OK(omm_dir_remove(at("n")));
}

/* A file whose path is too long to be said is no file that is passed over in silence. */
static void walk_says_what_is_too_long(void) {
    enum { LEVELS = 15 };
    char name[NAME_MAX + 1];
    seen s = {.answer = OMM_OK};
    memset(name, 'n', NAME_MAX);
    name[NAME_MAX] = 0;
    CHECK_OK(omm_dir_make(at("far")));
    int fd = open(at("far"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i <= LEVELS; i++) {
        const char *folder = i < LEVELS ? name : "the_last_of_its_kind";
        CHECK_EQ(mkdirat(fd, folder, 0755), 0);
        const int below = openat(fd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CHECK(below >= 0);
        close(fd);
        fd = below;
    }
    CHECK_OK(omm_dir_walk(at("far"), note, &s));
    CHECK_EQ(mkdirat(fd, name, 0755), 0);
    close(fd);
    CHECK_ERR(omm_dir_walk(at("far"), note, &s), OMM_ERR_TOO_BIG);
    CHECK_OK(omm_dir_remove(at("far")));
}

static void paths_are_joined_and_split(void) {
    static const char *const join[][3] = {{"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"a", "/b", "/b"},
                                          {"", "b", "b"},    {"/", "b", "/b"},   {"a", "", "a/"},
                                          {"", "", ""}};
    static const char *const split[][2] = {{"a/b", "a"},  {"a", "."},   {"/a", "/"},
                                           {"/", "/"},    {"", "."},    {"a/b/", "a"},
                                           {"a//b", "a"}, {"//a", "/"}, {"/a/b/c", "/a/b"}};
    char out[OMM_PATH_MAX];
    for (size_t i = 0; i < sizeof join / sizeof *join; i++) {
        CHECK_OK(omm_path_join(out, join[i][0], join[i][1]));
        CHECK(strcmp(out, join[i][2]) == 0);
    }
    for (size_t i = 0; i < sizeof split / sizeof *split; i++) {
        CHECK_OK(omm_path_dir(out, split[i][0]));
        CHECK(strcmp(out, split[i][1]) == 0);
    }
    char large[OMM_PATH_MAX + 10];
    memset(large, 'x', sizeof large);
    large[OMM_PATH_MAX - 3] = '\0';
    CHECK_OK(omm_path_join(out, large, "b")); /* 4095 bytes */
    CHECK_ERR(omm_path_join(out, large, "bc"), OMM_ERR_TOO_BIG);
    large[OMM_PATH_MAX - 3] = 'x';
    memcpy(large + sizeof large - 3, "/b", 3);
    CHECK_ERR(omm_path_dir(out, large), OMM_ERR_TOO_BIG);
    CHECK_OK(omm_path_join(out, "a", "b"));
    CHECK_OK(omm_path_join(out, out, "c")); /* in place */
    CHECK(strcmp(out, "a/b/c") == 0);
    CHECK_OK(omm_path_dir(out, out));
    CHECK(strcmp(out, "a/b") == 0);
}

static void path_stays_inside(void) {
    static const char *const inside[] = {"a",   "a/b.json", "..a",        "a..",   ".hidden",
                                         "...", "a b",      "\xc3\xa4/b", "a/.b/c"};
    static const char *const outside[] = {
        "",     "/",      "/a",   "a/",   "a//b",  ".",    "..",    "./a",   "a/.", "a/..",
        "../a", "a/../b", "a\\b", "a\nb", "a\x7f", "\x01", "a/./b", "..\\a", "//a"};
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
        CHECK(omm_path_is_inside(inside[i]));
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        CHECK(!omm_path_is_inside(outside[i]));
    char large[OMM_PATH_MAX + 1];
    memset(large, 'x', sizeof large);
    large[OMM_PATH_MAX] = '\0';
    CHECK(!omm_path_is_inside(large));
    large[OMM_PATH_MAX - 1] = '\0';
    CHECK(omm_path_is_inside(large));
}

/* In a process of its own, whose end and last words are looked at. */
static void shortened_maps_end_with_a_message(void) {
    const char *path = at("shrinking");
    char said[512] = "";
    int ends[2], status = 0;
    CHECK_OK(omm_file_write_fast(path, omm_bytes_str("mapped"), 0644));
    CHECK_EQ(pipe(ends), 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        omm_map before, map;
        dup2(ends[1], STDERR_FILENO);
        omm_map_exit_when_shortened(41);
        if (omm_map_open(&before, path) != OMM_OK || omm_map_open(&map, path) != OMM_OK) _exit(1);
        omm_map_close(&before); /* which leaves its place empty */
        if (truncate(path, 0) != 0) _exit(2);
        volatile uint8_t last = map.view.data[map.view.size - 1];
        _exit(last ? 3 : 4);
    }
    close(ends[1]);
    CHECK(read(ends[0], said, sizeof said - 1) > 0);
    close(ends[0]);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 41);
    CHECK(strstr(said, "shrinking became shorter while it was read") != NULL);
}

static void maps_show_files(void) {
    omm_map map;
    CHECK_OK(omm_file_write_fast(at("map"), omm_bytes_str("mapped"), 0644));
    CHECK_OK(omm_map_open(&map, at("map")));
    omm_map_release(&map, map.view); /* less than a page: nothing to let go */
    omm_map_release(&map, omm_bytes_of(NULL, 0));
    omm_map_prefetch(&map, map.view);
    omm_map_prefetch(&map, omm_bytes_of(NULL, 0));
    omm_map_prefer_huge(&map);
    CHECK(omm_bytes_equal(map.view, omm_bytes_str("mapped")));
    CHECK_OK(omm_map_check_unchanged(&map));
    const int descriptor = map.fd;
    CHECK(fcntl(descriptor, F_GETFD) >= 0);
    omm_map_close(&map);
    CHECK(fcntl(descriptor, F_GETFD) < 0);
    omm_map_close(&map); /* twice is harmless */
    CHECK_OK(omm_file_write_fast(at("map"), omm_bytes_str(""), 0644));
    CHECK_OK(omm_map_open(&map, at("map")));
    CHECK_EQ(map.view.size, 0);
    CHECK_OK(omm_map_check_unchanged(&map)); /* nothing of it can be read */
    omm_map_close(&map);
    CHECK_ERR(omm_map_open(&map, at("none")), OMM_ERR_NOT_FOUND);
    CHECK_ERR(omm_map_open(&map, s_root), OMM_ERR_IO);
    CHECK_ERR(omm_map_open(&map, "/dev/zero"), OMM_ERR_IO);
    CHECK_EQ(mkfifo(at("pipe"), 0600), 0);
    CHECK_ERR(omm_map_open(&map, at("pipe")), OMM_ERR_IO); /* at once: nobody writes */
    CHECK_EQ(map.view.size, 0);
}

/* Longer, or another time: either is a change. */
static void changed_maps_are_told(void) {
    static const struct timespec now = {1000000000, 500};
    struct timespec times[2] = {now, now};
    omm_map map;
    CHECK_OK(omm_file_write_fast(at("grows"), omm_bytes_str("mapped"), 0644));
    CHECK_EQ(utimensat(AT_FDCWD, at("grows"), times, 0), 0);
    CHECK_OK(omm_map_open(&map, at("grows")));
    const int fd = open(at("grows"), O_WRONLY | O_APPEND | O_CLOEXEC);
    CHECK(fd >= 0 && write(fd, "!", 1) == 1 && futimens(fd, times) == 0);
    CHECK_ERR(omm_map_check_unchanged(&map), OMM_ERR_STATE);
    CHECK(strstr(omm_err_sentence(), "grows was written to while") != NULL);
    CHECK_EQ(ftruncate(fd, 6), 0);
    CHECK_EQ(futimens(fd, times), 0);
    CHECK_OK(omm_map_check_unchanged(&map));
    times[1].tv_nsec++;
    CHECK_EQ(futimens(fd, times), 0);
    CHECK_ERR(omm_map_check_unchanged(&map), OMM_ERR_STATE);
    CHECK_EQ(close(fd), 0);
    omm_map_close(&map);
}

/* What was let go is read again; what lies outside the map is not touched. */
static void released_pages(void) {
    enum { BYTES = 5 << 16 };
    static uint8_t bytes[BYTES];
    omm_map map;
    for (size_t i = 0; i < BYTES; i++) bytes[i] = (uint8_t)(i * 31 >> 5);
    CHECK_OK(omm_file_write_fast(at("pages"), omm_bytes_of(bytes, BYTES), 0644));
    CHECK_OK(omm_map_open(&map, at("pages")));
    CHECK(memcmp(map.view.data, bytes, BYTES) == 0);
    omm_map_release(&map, omm_bytes_of(map.view.data + 5, BYTES - 9));
    omm_map_release(&map, omm_bytes_of(bytes, BYTES));
    omm_map_prefetch(&map, omm_bytes_of(map.view.data + 5, BYTES - 9));
    omm_map_prefetch(&map, omm_bytes_of(bytes, BYTES));
    for (size_t i = 0; i < BYTES; i++) CHECK_EQ(bytes[i], (uint8_t)(i * 31 >> 5));
    CHECK(memcmp(map.view.data, bytes, BYTES) == 0);
    omm_map_close(&map);
}

/* Every byte once and in order; a file that ends early is said to, with its name. */
static void read_in_pieces(void) {
    char piece[8] = "";
    omm_file_in in;
    CHECK_OK(omm_file_write_fast(at("piecemeal"), omm_bytes_str("piecemeal"), 0644));
    CHECK_OK(omm_file_in_open(&in, at("piecemeal")));
    CHECK_OK(omm_file_in_read(&in, piece, 5));
    CHECK(memcmp(piece, "piece", 5) == 0);
    CHECK_OK(omm_file_in_read(&in, piece, 0));
    CHECK_OK(omm_file_in_read(&in, piece, 3));
    CHECK(memcmp(piece, "mea", 3) == 0);
    CHECK_ERR(omm_file_in_read(&in, piece, 2), OMM_ERR_SIZE);
    CHECK(strstr(omm_err_sentence(), "piecemeal ends 1 bytes early") != NULL);
    CHECK_OK(omm_file_in_seek(&in, 1));
    CHECK_OK(omm_file_in_read(&in, piece, 4));
    CHECK(memcmp(piece, "iece", 4) == 0);
    CHECK_ERR(omm_file_in_seek(&in, UINT64_MAX), OMM_ERR_IO);
    omm_file_in_close(&in);
    CHECK_ERR(omm_file_in_open(&in, at("none")), OMM_ERR_NOT_FOUND);
    CHECK_ERR(omm_file_in_open(&in, s_root), OMM_ERR_IO); /* a folder */
}

/* Whoever must read a file of a stranger's folder is not held by a pipe that nobody writes to. */
static void pipes_hold_no_reader(void) {
    omm_file_in in;
    omm_digest digest;
    omm_buf text;
    omm_buf_init(&text, 100);
    CHECK_EQ(mkfifo(at("unwritten"), 0600), 0);
    CHECK_ERR(omm_file_in_open(&in, at("unwritten")), OMM_ERR_IO);
    CHECK_ERR(omm_hash_file(&digest, at("unwritten")), OMM_ERR_IO);
    CHECK_ERR(omm_sha256_file(&digest, at("unwritten")), OMM_ERR_IO);
    CHECK_ERR(omm_file_read_plain(&text, at("unwritten")), OMM_ERR_IO);
    CHECK(strstr(omm_err_sentence(), "unwritten is not a regular file") != NULL);
    CHECK_ERR(omm_file_read_plain(&text, at("none")), OMM_ERR_NOT_FOUND);
    CHECK_OK(omm_file_write_fast(at("plain"), omm_bytes_str("plain"), 0644));
    CHECK_OK(omm_file_read_plain(&text, at("plain")));
    CHECK(omm_bytes_equal(omm_buf_view(&text), omm_bytes_str("plain")));
    omm_buf_fini(&text);
}

/* As on a file system that makes no files without a name, and promises no room.  False: this kernel lets no process say so. */
static bool refuse_nameless(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])), /* the flags */
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_TMPFILE & ~O_DIRECTORY, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Its name until it is whole: beside its own, and nobody else's, whatever a process that died has left there. */
static void is_named_beside(const char *path) {
    omm_file_out out;
    struct stat st;
    char folder[OMM_PATH_MAX], stale[3][OMM_PATH_MAX];
    CHECK_OK(omm_file_out_open(&out, path, 0600));
    CHECK(!out.nameless);
    CHECK_OK(omm_path_dir(folder, out.temporary));
    CHECK(strncmp(path, folder, strlen(folder)) == 0 && !strchr(path + strlen(folder) + 1, '/'));
    CHECK_EQ(stat(out.temporary, &st), 0);
    CHECK_EQ(st.st_mode & 07777, 0600);
    CHECK_OK(omm_file_out_reserve(&out, 1 << 20)); /* a wish */
    CHECK_OK(omm_file_out_write(&out, omm_bytes_str("half")));
    omm_file_out_close(&out);
    CHECK(!omm_file_exists(path) && !omm_file_exists(out.temporary));
    char *const number = strrchr(out.temporary, '.') + 1;
    const unsigned long serial = strtoul(number, NULL, 10);
    for (unsigned long i = 0; i < 3; i++) {
        *number = 0;
        (void)snprintf(stale[i], OMM_PATH_MAX, "%.4000s%lu", out.temporary, serial + 1 + i);
        const int fd = open(stale[i], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        CHECK(fd >= 0 && write(fd, "left", 4) == 4 && close(fd) == 0);
    }
    CHECK_OK(omm_file_write(path, omm_bytes_str("whole"), 0644));
    check_content(path, "whole");
    for (size_t i = 0; i < 3; i++) {
        check_content(stale[i], "left");
        CHECK_OK(omm_file_remove(stale[i]));
    }
    CHECK_OK(omm_file_remove(path));
}

/* Then a file has another name until it is whole, and all that is said of files holds. */
static void without_nameless_files(void) {
    int status = 0;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char deep[OMM_PATH_MAX], part[NAME_MAX];
        if (!refuse_nameless()) _exit(2);
        is_named_beside(at("named"));
        memset(part, 'd', sizeof part); /* a folder whose path is longer than any name */
        (void)snprintf(deep, sizeof deep, "deep/%.200s/%.200s", part, part);
        CHECK_OK(omm_dir_make(at(deep)));
        CHECK_OK(omm_path_join(deep, at(deep), "file"));
        is_named_beside(deep);
        CHECK_OK(omm_dir_remove(at("deep")));
        CHECK_OK(omm_dir_remove(at("long")));
        CHECK_OK(omm_dir_remove(at("w")));
        longest_name_is_written_again();
        write_replaces_whole_files();
        CHECK_OK(omm_dir_remove(at("c")));
        create_never_overwrites();
        failed_write_leaves_the_old_file();
        CHECK_OK(omm_dir_remove(at("pieces")));
        pieces_appear_at_finish();
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    if (WEXITSTATUS(status) == 2)
        printf("no file system without nameless files here\n");
    else
        CHECK_EQ(WEXITSTATUS(status), 0);
}

static omm_err count_any(void *ud, const char *name) {
    (void)name;
    ++*(size_t *)ud;
    return OMM_OK;
}

static size_t open_files(void) {
    size_t count = 0;
    CHECK_OK(omm_dir_names("/proc/self/fd", count_any, &count));
    return count;
}

int main(void) {
    CHECK(mkdtemp(s_root) != NULL);
    umask(022);
    const size_t files = open_files();
    stale_temporary_does_not_stand_in_the_way();
    longest_name_is_written_again();
    write_replaces_whole_files();
    create_never_overwrites();
    create_has_one_winner();
    failed_write_leaves_the_old_file();
    pieces_appear_at_finish();
    without_nameless_files();
    room_is_reserved();
    append_adds_to_a_file_that_is_there();
    write_refuses_what_is_no_file();
    read_obeys_its_limit();
    read_and_walk_survive_failing_memory();
    walk_is_in_byte_order();
    names_are_those_of_one_folder();
    states_tell_files_apart();
    walk_holds_some_names_at_a_time();
    walk_refuses_links_and_special_files();
    walk_passes_over();
    folders_are_made_and_removed();
    nesting_is_limited();
    walk_says_what_is_too_long();
    paths_are_joined_and_split();
    path_stays_inside();
    maps_show_files();
    changed_maps_are_told();
    shortened_maps_end_with_a_message();
    released_pages();
    read_in_pieces();
    pipes_hold_no_reader();
    CHECK_EQ(chdir("/"), 0);
    CHECK_OK(omm_dir_remove(s_root));
    CHECK_EQ(omm_mem_live(), 0);
    CHECK_EQ(open_files(), files); /* every one is closed again, whatever failed */
    return 0;
}

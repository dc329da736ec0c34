/* audit_log_test.c - what is changed, taken out, put in, doubled or cut off in a log is found, and where. */
#include "omm_test.h"

#include "omm/audit_log.h"
#include "omm/file.h"
#include "omm/mem.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ENTRIES = 6, TORN_MAX = 1 << 20 };

static char s_dir[] = "/tmp/omm-audit-XXXXXX";
static char s_path[OMM_PATH_MAX];

static omm_clock clock_of(omm_fake_clock *fake) {
    omm_clock clock = omm_clock_fake(fake);
    fake->wall_ms = 1700000000000;
    return clock;
}

static void write_log(omm_digest *head) {
    omm_fake_clock fake;
    omm_audit_log *log = NULL;
    CHECK_OK(omm_audit_log_open(&log, s_path, clock_of(&fake), NULL, NULL));
    for (int i = 0; i < ENTRIES; i++) {
        json_t *fields = json_pack("{s:i,s:s}", "round", i, "node", "\xc3\xa9va\n");
        fake.wall_ms += 1000;
        CHECK_OK(omm_audit_log_put(log, i % 2 ? "ctl" : "round_over", i ? fields : NULL, i % 2));
        if (!i) json_decref(fields);
    }
    CHECK_EQ(omm_audit_log_head(head, log), ENTRIES);
    omm_audit_log_close(log);
}

static void read_log(omm_buf *out) {
    omm_buf_init(out, 2 << 20);
    CHECK_OK(omm_file_read(out, s_path));
}

/* Whoever noted the head long ago finds it, whatever was written since. */
static void test_earlier_head(void) {
    omm_fake_clock fake;
    omm_audit_log *log = NULL;
    omm_audit_check check;
    omm_digest heads[3];
    CHECK_OK(omm_audit_log_open(&log, s_path, clock_of(&fake), NULL, NULL));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(omm_audit_log_put(log, "ctl", NULL, false));
        (void)omm_audit_log_head(&heads[i], log);
    }
    omm_audit_log_close(log);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(omm_audit_log_verify(&check, s_path, &heads[i]));
        CHECK(check.has_known && omm_digest_equal(&check.head, &heads[2]));
    }
    CHECK_OK(omm_file_remove(s_path));
}

static void test_round_trip(void) {
    omm_digest head;
    omm_audit_check check;
    write_log(&head);
    CHECK_OK(omm_audit_log_verify(&check, s_path, NULL));
    CHECK_EQ(check.entries, ENTRIES);
    CHECK(omm_digest_equal(&check.head, &head));
    CHECK(check.has_known);
    CHECK(strcmp(check.first, "2023-11-14T22:13:21.000Z") == 0);
    CHECK(strcmp(check.last, "2023-11-14T22:13:26.000Z") == 0);
    CHECK_OK(omm_audit_log_verify(&check, s_path, &head));
    CHECK(check.has_known);
    head.b[3] ^= 1;
    CHECK_OK(omm_audit_log_verify(&check, s_path, &head));
    CHECK(!check.has_known);
    struct stat st;
    CHECK(stat(s_path, &st) == 0);
    CHECK_EQ(st.st_mode & 0777, 0600);
    omm_buf lines;
    omm_buf_init(&lines, 1 << 20);
    CHECK_OK(omm_audit_log_copy(&lines, s_path, "ctl"));
    CHECK(memmem(lines.data, lines.size, "\"seq\":5}", 8) != NULL);
    CHECK(memmem(lines.data, lines.size, "round_over", 10) == NULL);
    omm_buf_fini(&lines);
}

/* Entry that verify says is broken; -1: none. */
static int broken_at(omm_bytes bytes) {
    omm_audit_check check;
    CHECK_OK(omm_file_write_fast(s_path, bytes, 0600));
    omm_err err = omm_audit_log_verify(&check, s_path, NULL);
    if (err == OMM_OK) return -1;
    CHECK_EQ(err, OMM_ERR_FORMAT);
    const char *at = strstr(omm_err_sentence(), ": entry ");
    CHECK(at != NULL);
    return (int)strtol(at + strlen(": entry "), NULL, 10);
}

static size_t line_start(const omm_buf *log, int line) {
    size_t at = 0;
    for (; line > 0; at++) line -= log->data[at] == '\n';
    return at;
}

/* Every bit of every byte: found in the entry itself or, where its form stays right, at the next one.
 * The last line's content is held by nothing but the head. */
static void test_bits(void) {
    omm_buf log;
    omm_digest head;
    omm_audit_check check;
    read_log(&log);
    int entry = 0;
    CHECK_OK(omm_audit_log_verify(&check, s_path, NULL));
    head = check.head;
    for (size_t i = 0; i < log.size; i++) {
        bool is_end = log.data[i] == '\n';
        unsigned bit = (unsigned)(i % 8);
        log.data[i] ^= (uint8_t)(1u << bit);
        int at = broken_at(omm_buf_view(&log));
        if (entry < ENTRIES - 1) {
            CHECK(at == entry || at == entry + 1);
        } else if (at < 0) {
            CHECK_OK(omm_audit_log_verify(&check, s_path, &head));
            CHECK(!check.has_known);
        }
        log.data[i] ^= (uint8_t)(1u << bit);
        entry += is_end;
    }
    omm_buf_fini(&log);
}

/* Where a line does not hold the one before, either may be the one that was changed; both are named. */
static void test_both_are_named(void) {
    omm_buf log;
    read_log(&log);
    char *at = memmem(log.data + line_start(&log, 2), 200, "\"at\":\"20", 8);
    CHECK(at != NULL);
    at[7] = '1'; /* another year, in the form of one */
    CHECK_EQ(broken_at(omm_buf_view(&log)), 3);
    CHECK(strstr(omm_err_sentence(),
                 "entry 3 (line 4) does not hold the one before: line 3 was changed, or line 4 "
                 "names another"));
    omm_buf_fini(&log);
}

static void test_lines(void) {
    omm_buf log;
    omm_buf made;
    CHECK_OK(omm_file_remove(s_path));
    write_log(&(omm_digest){{0}});
    read_log(&log);
    omm_buf_init(&made, 1 << 20);
    size_t two = line_start(&log, 2);
    size_t three = line_start(&log, 3);
    CHECK_OK(omm_buf_append(&made, log.data, two)); /* line 2 taken out */
    CHECK_OK(omm_buf_append(&made, log.data + three, log.size - three));
    CHECK_EQ(broken_at(omm_buf_view(&made)), 2);
    omm_buf_clear(&made);
    CHECK_OK(omm_buf_append(&made, log.data, three)); /* line 2 twice */
    CHECK_OK(omm_buf_append(&made, log.data + two, log.size - two));
    CHECK_EQ(broken_at(omm_buf_view(&made)), 3);
    CHECK_EQ(broken_at(omm_bytes_of(log.data + two, log.size - two)), 0); /* the beginning */
    /* The end: the chain alone cannot tell, a head that was kept can. */
    CHECK_EQ(broken_at(omm_bytes_of(log.data, three)), -1);
    CHECK_EQ(broken_at(omm_bytes_of(log.data, three - 1)), 2);
    CHECK_EQ(broken_at((omm_bytes){0}), -1);
    CHECK_EQ(broken_at(omm_bytes_str("\n")), 0);
    CHECK_EQ(broken_at(omm_bytes_str("{}\n")), 0);
    uint8_t *more = NULL;
    CHECK_OK(omm_buf_extend(&log, &more, OMM_AUDIT_LINE_BYTES_MAX + 1));
    memset(more, 'a', OMM_AUDIT_LINE_BYTES_MAX + 1);
    CHECK_EQ(broken_at(omm_buf_view(&log)), ENTRIES);
    CHECK(strstr(omm_err_sentence(), "64 KiB") != NULL);
    omm_buf_fini(&made);
    omm_buf_fini(&log);
}

/* One more line behind a whole log, which names the right entry before it. */
static int with_line(const char *colon, int seq) {
    omm_buf log;
    omm_digest head;
    char hex[OMM_DIGEST_HEX_SIZE];
    char line[256];
    CHECK_OK(omm_file_remove(s_path));
    write_log(&head);
    read_log(&log);
    omm_digest_hex(hex, &head);
    (void)snprintf(
        line, sizeof line,
        "{\"at\":\"2023-11-14T22:14:00.000Z\",\"event\":\"ctl\",\"previous\":\"%s\",\"seq\"%s%d}\n",
        hex, colon, seq);
    CHECK_OK(omm_buf_append(&log, line, strlen(line)));
    const int at = broken_at(omm_buf_view(&log));
    omm_buf_fini(&log);
    return at;
}

/* Not only the chain is looked at: a line of another number, or in another spelling, is none of ours. */
static void test_foreign(void) {
    CHECK_EQ(with_line(":", ENTRIES), -1);
    CHECK_EQ(with_line(":", ENTRIES + 1), ENTRIES);
    CHECK(strstr(omm_err_sentence(), "seq does not follow"));
    CHECK_EQ(with_line(": ", ENTRIES), ENTRIES);
    CHECK(strstr(omm_err_sentence(), "not in the spelling"));
}

/* Of what a crash left `whole` entries count; where there was more, the next one says so. */
static void goes_on(omm_bytes left, uint64_t whole) {
    omm_fake_clock fake;
    omm_audit_log *again = NULL;
    omm_audit_check check;
    size_t bytes = 0;
    for (uint64_t lines = 0; bytes < left.size && lines < whole; bytes++)
        lines += left.data[bytes] == '\n';
    CHECK_OK(omm_file_write_fast(s_path, left, 0600));
    CHECK_OK(omm_audit_log_open(&again, s_path, clock_of(&fake), NULL, NULL));
    CHECK_OK(omm_audit_log_put(again, "start", NULL, true));
    CHECK_OK(omm_audit_log_put(again, "stop", NULL, true)); /* that is said once */
    omm_audit_log_close(again);
    CHECK_OK(omm_audit_log_verify(&check, s_path, NULL));
    CHECK_EQ(check.entries, whole + 2 + (bytes < left.size));
}

/* Every place where a crash can cut the file: it goes on, says so, and the chain holds. */
static void test_crash(void) {
    omm_buf log;
    CHECK_OK(omm_file_remove(s_path));
    write_log(&(omm_digest){{0}});
    read_log(&log);
    size_t from = line_start(&log, ENTRIES - 1);
    for (size_t cut = from; cut <= log.size; cut += 7)
        goes_on(omm_bytes_of(log.data, cut), cut < log.size ? ENTRIES - 1 : ENTRIES);
    /* A power cut: sectors of the last two entries never came, what follows them did. */
    from = line_start(&log, ENTRIES - 2);
    for (size_t zero = from; zero < log.size; zero += 5) {
        const uint8_t was = log.data[zero];
        log.data[zero] = 0;
        goes_on(omm_buf_view(&log),
                zero < line_start(&log, ENTRIES - 1) ? ENTRIES - 2 : ENTRIES - 1);
        log.data[zero] = was;
    }
    omm_audit_log *refused = NULL; /* what has lost more than a power cut takes is not continued */
    omm_fake_clock fake;
    const size_t whole = log.size;
    uint8_t *zeros = NULL;
    CHECK_OK(omm_buf_extend(&log, &zeros, TORN_MAX + 1));
    memset(zeros, 0, TORN_MAX + 1);
    CHECK_OK(omm_file_write_fast(s_path, omm_buf_view(&log), 0600));
    CHECK_ERR(omm_audit_log_open(&refused, s_path, clock_of(&fake), NULL, NULL), OMM_ERR_FORMAT);
    log.size--;
    goes_on(omm_buf_view(&log), ENTRIES);
    log.size = whole; /* nor what is broken in its middle */
    log.data[10] ^= 1;
    CHECK_OK(omm_file_write_fast(s_path, omm_buf_view(&log), 0600));
    CHECK_ERR(omm_audit_log_open(&refused, s_path, clock_of(&fake), NULL, NULL), OMM_ERR_FORMAT);
    omm_buf_fini(&log);
}

/* A disk on which ten bytes more have room. */
static void half_a_line(omm_audit_log *log) {
    struct stat st;
    struct rlimit limit, before;
    CHECK_EQ(stat(s_path, &st), 0);
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = (rlim_t)st.st_size + 10;
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK_ERR(omm_audit_log_put(log, "ctl", NULL, true), OMM_ERR_IO);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
}

/* What cannot be written leaves the file and the chain as they were. */
static void test_full(void) {
    omm_fake_clock fake;
    omm_audit_log *log = NULL;
    omm_audit_check check;
    CHECK_OK(omm_file_remove(s_path));
    CHECK_OK(omm_audit_log_open(&log, s_path, clock_of(&fake), NULL, NULL));
    CHECK_OK(omm_audit_log_put(log, "start", NULL, false));
    char *big = malloc(OMM_AUDIT_LINE_BYTES_MAX + 1);
    CHECK(big != NULL);
    memset(big, 'a', OMM_AUDIT_LINE_BYTES_MAX);
    big[OMM_AUDIT_LINE_BYTES_MAX] = '\0';
    CHECK_ERR(omm_audit_log_put(log, "ctl", json_pack("{s:s}", "x", big), false), OMM_ERR_TOO_BIG);
    free(big);
    half_a_line(log);
    CHECK_OK(omm_audit_log_put(log, "stop", NULL, true));
    omm_audit_log_close(log);
    CHECK_OK(omm_audit_log_verify(&check, s_path, NULL));
    CHECK_EQ(check.entries, 2);
    CHECK_ERR(omm_audit_log_verify(&check, "/nowhere/audit.jsonl", NULL), OMM_ERR_NOT_FOUND);
    CHECK_OK(omm_file_remove(s_path)); /* and no link is followed */
    CHECK(symlink("/dev/null", s_path) == 0);
    CHECK_ERR(omm_audit_log_open(&log, s_path, clock_of(&fake), NULL, NULL), OMM_ERR_IO);
}

int main(void) {
    CHECK(mkdtemp(s_dir) != NULL);
    CHECK_OK(omm_path_join(s_path, s_dir, "audit.jsonl"));
    test_earlier_head();
    test_round_trip();
    test_bits();
    test_both_are_named();
    test_lines();
    test_foreign();
    test_crash();
    test_full();
    CHECK_OK(omm_dir_remove(s_dir));
    return 0;
}

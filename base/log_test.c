#include "omm/log.h"
#include "omm_test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char s_line[5000];
static unsigned s_lines;

static void keep(void *ud, omm_log_level level, const char *text) {
    CHECK(ud == &s_lines);
    CHECK(level <= OMM_LOG_ERROR);
    CHECK(strlen(text) < sizeof s_line);
    memcpy(s_line, text, strlen(text) + 1);
    s_lines++;
}

static void check_line(const char *want) {
    if (strcmp(s_line, want) != 0) fprintf(stderr, "logged: %s\n", s_line);
    CHECK(strcmp(s_line, want) == 0);
}

static void long_lines_are_cut(const omm_log *log) {
    char text[9000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    omm_log_event(log, OMM_LOG_WARN, "peer", OMM_LOG_INT("a", 1), OMM_LOG_STR("b", text),
                  OMM_LOG_INT("c", 3));
    check_line("1970-01-01T00:00:00.000Z WARN peer a=1 b= cut=true");
    memset(text, '\x01', sizeof text - 1); /* 6 characters each once quoted */
    omm_log_event(log, OMM_LOG_WARN, text, OMM_LOG_INT("a", 1));
    omm_log_event(log, OMM_LOG_WARN, "peer", OMM_LOG_STR("b", text));
    CHECK(strlen(s_line) < 4096);
    CHECK(strcmp(s_line + strlen(s_line) - 9, " cut=true") == 0);
    for (size_t size = 4000; size < 4096; size++) { /* around the end of the line */
        memset(text, 'x', size);
        text[size] = '\0';
        omm_log_event(log, OMM_LOG_WARN, "peer", OMM_LOG_STR("b", text));
        CHECK(strlen(s_line) < 4096);
    }
}

/* Letters stay; what would move a terminal's cursor or turn a line around does not, and what is no character. */
static void strange_characters(const omm_log *log) {
    omm_log_event(log, OMM_LOG_INFO, "x",
                  OMM_LOG_STR("a", "J\xc3\xb6rg\xe2\x82\xac\xf0\x9f\x90\xb1"));
    check_line("1970-01-01T00:00:00.000Z INFO x a=J\xc3\xb6rg\xe2\x82\xac\xf0\x9f\x90\xb1");
    omm_log_event(log, OMM_LOG_INFO, "x",
                  OMM_LOG_STR("a", "\xc2\x9b"
                                   "2J\xc2\xa0\xe2\x80\xae\xe2\x81\xa6z"));
    check_line("1970-01-01T00:00:00.000Z INFO x a=\"\\u009b2J\xc2\xa0\\u202e\\u2066z\"");
    omm_log_event(log, OMM_LOG_INFO, "x", OMM_LOG_STR("a", "\xc3("), OMM_LOG_STR("b", "\xe2\x82"));
    check_line("1970-01-01T00:00:00.000Z INFO x a=\"\\ufffd(\" b=\"\\ufffd\\ufffd\"");
}

/* The disk of the log is full for a while. */
static void lost_lines_are_counted(void) {
    char text[512] = "";
    char path[] = "/tmp/omm-log-XXXXXX";
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    const int file = mkstemp(path), before = dup(STDERR_FILENO);
    CHECK(full >= 0 && file >= 0 && before >= 0);
    const omm_log log = omm_log_stderr(OMM_LOG_WARN);
    CHECK(dup2(full, STDERR_FILENO) >= 0);
    omm_log_event(&log, OMM_LOG_WARN, "first", OMM_LOG_INT("a", 1));
    omm_log_event(&log, OMM_LOG_WARN, "second", OMM_LOG_INT("a", 1));
    CHECK(dup2(file, STDERR_FILENO) >= 0);
    omm_log_event(&log, OMM_LOG_WARN, "third", OMM_LOG_INT("a", 1));
    omm_log_event(&log, OMM_LOG_WARN, "fourth", OMM_LOG_INT("a", 1));
    CHECK(dup2(before, STDERR_FILENO) >= 0);
    CHECK(pread(file, text, sizeof text - 1, 0) > 0);
    CHECK(strstr(text, "Z WARN third a=1\n") && strstr(text, "Z WARN log_lines_lost count=2\n"));
    CHECK(strstr(text, "Z WARN fourth a=1\n") && !strstr(text, "first"));
    const char *again = strstr(text, "lost count=");
    CHECK(again && !strstr(again + 1, "lost count=")); /* said once */
    CHECK_EQ(close(full) | close(file) | close(before) | unlink(path), 0);
}

int main(void) {
    omm_fake_clock fake;
    omm_log log = {OMM_LOG_INFO, omm_clock_fake(&fake), keep, &s_lines};
    fake.wall_ms = 1795203612123;
    omm_log_event(&log, OMM_LOG_INFO, "round_open", OMM_LOG_INT("round", 3),
                  OMM_LOG_INT("least", INT64_MIN), OMM_LOG_STR("node", "n-07"));
    check_line("2026-11-20T19:40:12.123Z INFO round_open round=3 least=-9223372036854775808"
               " node=n-07");
    omm_log_event(&log, OMM_LOG_ERROR, "x", OMM_LOG_STR("a", ""), OMM_LOG_STR("b", "two words"),
                  OMM_LOG_STR("c", "q\"\\\n\x1b[2J"), OMM_LOG_STR("d", "k=v"),
                  OMM_LOG_STR("e", "\xc3\xa4"));
    check_line("2026-11-20T19:40:12.123Z ERROR x a=\"\" b=\"two words\""
               " c=\"q\\\"\\\\\\n\\u001b[2J\" d=\"k=v\" e=\xc3\xa4");
    omm_log_event(&log, OMM_LOG_INFO, "alone");
    check_line("2026-11-20T19:40:12.123Z INFO alone");

    unsigned lines = s_lines;
    omm_log_event(&log, OMM_LOG_DEBUG, "quiet", OMM_LOG_INT("a", 1));
    omm_log_event((const omm_log *)NULL, OMM_LOG_ERROR, "quiet", OMM_LOG_INT("a", 1));
    log.sink = NULL;
    omm_log_event(&log, OMM_LOG_ERROR, "quiet", OMM_LOG_INT("a", 1));
    CHECK_EQ(s_lines, lines);
    log.sink = keep;
    fake.wall_ms = 0;
    long_lines_are_cut(&log);
    strange_characters(&log);

    omm_log_level level = OMM_LOG_INFO;
    CHECK(omm_log_level_parse(&level, "error") && level == OMM_LOG_ERROR);
    CHECK(omm_log_level_parse(&level, "debug") && level == OMM_LOG_DEBUG);
    CHECK(!omm_log_level_parse(&level, "INFO") && !omm_log_level_parse(&level, ""));
    CHECK_EQ(level, OMM_LOG_DEBUG);
    log = omm_log_stderr(OMM_LOG_WARN);
    CHECK(omm_log_wants(&log, OMM_LOG_WARN) && !omm_log_wants(&log, OMM_LOG_INFO));
    omm_log_event(&log, OMM_LOG_WARN, "seen_in_the_test_output", OMM_LOG_INT("expected", 1));
    lost_lines_are_counted();
    return 0;
}

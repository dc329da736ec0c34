/* ctl_client.c - the asking end of omm/coordinator_ctl.h, and its table of actions. */
#include "ctl_wire.h"

#include "omm/clock.h"
#include "omm/coordinator_ctl.h"
#include "omm/mem.h"
#include "omm/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static const struct {
    const char *name, *argument;
} s_actions[] = {
#define XX(name, argument, help) {#name, argument},
    OMM_COORD_CTL_MAP(XX)
#undef XX
};

const char *omm_coord_ctl_name(omm_coord_ctl_action action) {
    return s_actions[action].name;
}

omm_err omm_coord_ctl_parse(omm_coord_ctl_action *out, const char *action, const char *argument) {
    for (unsigned i = 0; i < OMM_COORD_CTL_COUNT; i++) {
        if (strcmp(s_actions[i].name, action) != 0) continue;
        bool wanted = s_actions[i].argument[0] != '\0';
        bool optional = s_actions[i].argument[0] == '[';
        if (wanted && !optional && !argument[0])
            return omm_raise(OMM_ERR_USAGE, "%s: %s is missing", action, s_actions[i].argument);
        if (!wanted && argument[0])
            return omm_raise(OMM_ERR_USAGE, "%s takes no argument, and got %s", action, argument);
        *out = (omm_coord_ctl_action)i;
        return OMM_OK;
    }
    char names[512] = "";
    for (unsigned i = 0; i < OMM_COORD_CTL_COUNT; i++) {
        size_t at = strlen(names);
        (void)snprintf(names + at, sizeof names - at, "%s%s%s%s", i ? ", " : "", s_actions[i].name,
                       s_actions[i].argument[0] ? " " : "", s_actions[i].argument);
    }
    return omm_raise(OMM_ERR_USAGE, "unknown action %s; accepted: %s", action, names);
}

omm_err ctl_address(struct sockaddr_un *out, int *folder, const char *state_dir) {
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    *folder = open(state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*folder < 0)
        return omm_raise(errno == ENOENT ? OMM_ERR_NOT_FOUND : OMM_ERR_IO, "%s: %s", state_dir,
                         strerror(errno));
    (void)snprintf(out->sun_path, sizeof out->sun_path, "/proc/self/fd/%d/" CTL_SOCKET_NAME,
                   *folder);
    return OMM_OK;
}

static uint64_t now_ms(void) {
    const omm_clock clock = omm_clock_system();
    return clock.now_ms(clock.ud);
}

static omm_err no_answer(uint64_t timeout_ms) {
    return omm_raise(OMM_ERR_TIMEOUT,
                     "no answer within %llu s; it may still be done: ask for status",
                     (unsigned long long)timeout_ms / 1000);
}

/* Behind so many others that the coordinator takes none of us, it waits, too. */
static omm_err dial(int *fd, const char *state_dir, uint64_t timeout_ms) {
    struct sockaddr_un address;
    int folder = -1;
    const struct timeval wait = {.tv_sec = (time_t)(timeout_ms / 1000),
                                 .tv_usec = (suseconds_t)(timeout_ms % 1000 * 1000) + 1};
    OMM_TRY(ctl_address(&address, &folder, state_dir));
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(*fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    int result = *fd < 0 ? -1 : connect(*fd, (const struct sockaddr *)&address, sizeof address);
    int why = errno;
    (void)close(folder);
    if (result == 0) return OMM_OK;
    if (why == EAGAIN) return no_answer(timeout_ms);
    if (why == ENOENT || why == ECONNREFUSED)
        return omm_raise(OMM_ERR_NOT_FOUND, "no coordinator runs with state_dir %s", state_dir);
    return omm_raise(OMM_ERR_IO, "%s/" CTL_SOCKET_NAME ": %s%s", state_dir, strerror(why),
                     why == EACCES ? "; only the coordinator's own user and root may ask it" : "");
}

/* begin_ms: when the wait began. */
static omm_err receive(omm_buf *out, int fd, uint64_t begin_ms, uint64_t timeout_ms) {
    uint64_t end_ms = begin_ms + timeout_ms;
    char part[4096];
    for (;;) {
        uint64_t now = now_ms();
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int ready =
            now < end_ms ? poll(&wait, 1, (int)(end_ms - now > 1000 ? 1000 : end_ms - now)) : 0;
        if (ready < 0 && errno != EINTR) return omm_raise(OMM_ERR_IO, "%s", strerror(errno));
        if (ready <= 0 && now >= end_ms) return no_answer(timeout_ms);
        if (ready <= 0) continue;
        ssize_t size = recv(fd, part, sizeof part, 0);
        if (size < 0 && errno == EINTR) continue;
        if (size < 0) return omm_raise(OMM_ERR_IO, "%s", strerror(errno));
        if (size == 0) return OMM_OK;
        OMM_TRY(omm_buf_append(out, part, (size_t)size));
    }
}

static omm_err take_answer(omm_buf *answer, omm_bytes got) {
    static const struct {
        const char *line;
        omm_err err;
    } kinds[] = {{CTL_OK, OMM_OK}, {CTL_REFUSED, OMM_ERR_STATE}, {CTL_FAILED, OMM_ERR_IO}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const size_t from = strlen(kinds[i].line);
        if (got.size < from || memcmp(got.data, kinds[i].line, from) != 0) continue;
        OMM_TRY(omm_buf_append(answer, got.data + from, got.size - from));
        if (kinds[i].err == OMM_OK) return OMM_OK;
        size_t size = got.size - from;
        if (size > 0 && got.data[got.size - 1] == '\n') size--; /* a sentence has no line end */
        return omm_raise(kinds[i].err, "%.*s", (int)size, (const char *)got.data + from);
    }
    return omm_raise(OMM_ERR_CLOSED, "the coordinator ended before it answered");
}

static bool is_utf8(const char *text) {
    omm_bytes left = omm_bytes_str(text);
    while (left.size > 0) {
        const size_t size = omm_utf8_size(left.data, left.size);
        if (size == 0) return false;
        left = omm_bytes_of(left.data + size, left.size - size);
    }
    return true;
}

/* `size`: of the line, its end included. */
static omm_err check_line(const char *action, const char *argument, size_t size) {
    if (!is_utf8(argument))
        return omm_raise(OMM_ERR_USAGE,
                         "%s: not UTF-8; accepted: text in UTF-8, of a node its id, too", action);
    if (strchr(argument, '\n'))
        return omm_raise(OMM_ERR_USAGE, "%s: a line break; accepted: words on one line", action);
    if (size > OMM_COORD_CTL_LINE_MAX)
        return omm_raise(OMM_ERR_USAGE, "%s: %zu bytes with all its words, accepted: up to %u",
                         action, size - 1, OMM_COORD_CTL_LINE_MAX - 1);
    return OMM_OK;
}

omm_err omm_coord_ctl_ask(omm_buf *answer, const char *state_dir, const char *action,
                          const char *argument, uint64_t timeout_ms) {
    omm_coord_ctl_action known;
    char line[OMM_COORD_CTL_LINE_MAX + 1];
    int fd = -1;
    OMM_TRY(omm_coord_ctl_parse(&known, action, argument));
    int size = snprintf(line, sizeof line, "%s%s%s\n", action, argument[0] ? " " : "", argument);
    OMM_TRY(check_line(action, argument, (size_t)size));
    omm_buf got;
    omm_buf_init(&got, sizeof CTL_REFUSED CTL_FAILED + OMM_COORD_CTL_ANSWER_MAX);
    const uint64_t begin_ms = now_ms();
    omm_err err = dial(&fd, state_dir, timeout_ms);
    if (err == OMM_OK && send(fd, line, (size_t)size, MSG_NOSIGNAL) != size)
        err = omm_raise(OMM_ERR_IO, "%s: %s", state_dir, strerror(errno));
    if (err == OMM_OK) err = receive(&got, fd, begin_ms, timeout_ms);
    if (err == OMM_OK) err = take_answer(answer, omm_buf_view(&got));
    if (fd >= 0) (void)close(fd);
    omm_buf_fini(&got);
    return err;
}

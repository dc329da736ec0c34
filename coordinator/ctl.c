/* ctl.c - see ctl.h. */
#include "ctl.h"

#include "ctl_wire.h"

#include "omm/file.h"
#include "omm/json.h"
#include "omm/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct ctl {
    omm_clock clock;
    int listening, client; /* -1: none */
    uint64_t client_ms;    /* since when it is here */
    uint32_t uid;
    char line[OMM_COORD_CTL_LINE_MAX + 1];
    size_t size;
    bool is_whole; /* the line is here; it may wait for the state machine */
    omm_buf answer;
    char path[OMM_PATH_MAX];
};

static omm_err listen_on(ctl *c, const char *state_dir) {
    struct sockaddr_un address;
    int folder = -1;
    OMM_TRY(omm_path_join(c->path, state_dir, CTL_SOCKET_NAME));
    OMM_TRY(ctl_address(&address, &folder, state_dir));
    if (unlink(c->path) != 0 && errno != ENOENT) {
        (void)close(folder);
        return omm_raise(OMM_ERR_IO, "%s: %s", c->path, strerror(errno));
    }
    c->listening = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* The mode is set before there is a name: nobody else gets in between. */
    bool ok = c->listening >= 0 && fchmod(c->listening, 0600) == 0 &&
              bind(c->listening, (const struct sockaddr *)&address, sizeof address) == 0 &&
              listen(c->listening, 4) == 0;
    int why = errno;
    (void)close(folder);
    return ok ? OMM_OK : omm_raise(OMM_ERR_IO, "%s: %s", c->path, strerror(why));
}

omm_err ctl_open(ctl **out, const char *state_dir, omm_clock clock) {
    ctl *c = omm_alloc(1, sizeof *c);
    if (!c) return omm_raise(OMM_ERR_NOMEM, "ctl");
    c->clock = clock;
    c->listening = c->client = -1;
    omm_buf_init(&c->answer, OMM_COORD_CTL_ANSWER_MAX);
    omm_err err = listen_on(c, state_dir);
    if (err != OMM_OK) {
        ctl_close(c);
        return err;
    }
    *out = c;
    return OMM_OK;
}

static void hang_up(ctl *c) {
    if (c->client >= 0) (void)close(c->client);
    c->client = -1;
    c->size = 0;
    c->is_whole = false;
}

void ctl_close(ctl *c) {
    if (!c) return;
    hang_up(c);
    if (c->listening >= 0) {
        (void)close(c->listening);
        (void)unlink(c->path);
    }
    omm_buf_fini(&c->answer);
    omm_free(c);
}

static void take_client(ctl *c) {
    c->client = accept4(c->listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (c->client < 0) return;
    struct ucred peer = {.uid = UINT32_MAX};
    socklen_t size = sizeof peer;
    (void)getsockopt(c->client, SOL_SOCKET, SO_PEERCRED, &peer, &size);
    c->client_ms = c->clock.now_ms(c->clock.ud);
    c->uid = peer.uid;
    if (peer.uid != 0 && peer.uid != geteuid()) hang_up(c);
}

/* The whole answer goes into the socket's buffer at once, or the client has bad luck. */
static void say(ctl *c, const char *how) {
    omm_bytes text = omm_buf_view(&c->answer);
    if (send(c->client, how, strlen(how), MSG_NOSIGNAL) == (ssize_t)strlen(how) && text.size > 0)
        (void)!send(c->client, text.data, text.size, MSG_NOSIGNAL);
    hang_up(c);
}

static void say_no(ctl *c, const char *how, const char *why) {
    omm_buf_clear(&c->answer);
    (void)!omm_buf_printf(&c->answer, "%s\n", why);
    say(c, how);
}

static void refuse(ctl *c, const char *why) {
    say_no(c, CTL_REFUSED, why);
}

/* Is it about the word or about the run as it stands?  Else the coordinator cannot do what it should. */
static bool is_refusal(omm_err err) {
    return err == OMM_ERR_USAGE || err == OMM_ERR_CONFIG || err == OMM_ERR_NOT_FOUND ||
           err == OMM_ERR_STATE || err == OMM_ERR_TOO_BIG;
}

/* Into logs and JSON goes only what is UTF-8 and has no NUL. */
static bool is_text(const char *line, size_t size) {
    json_t *text = json_stringn(line, size);
    bool is = text && !memchr(line, '\0', size);
    json_decref(text);
    return is;
}

static void read_line(ctl *c) {
    ssize_t size = recv(c->client, c->line + c->size, OMM_COORD_CTL_LINE_MAX - c->size, 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
        if (c->clock.now_ms(c->clock.ud) - c->client_ms > CTL_LINE_MS) hang_up(c);
        return;
    }
    if (size <= 0) {
        hang_up(c);
        return;
    }
    c->size += (size_t)size;
    char *end = memchr(c->line, '\n', c->size);
    if (!end && c->size == OMM_COORD_CTL_LINE_MAX) {
        refuse(c, "a line that is too long");
        return;
    }
    if (end && !is_text(c->line, (size_t)(end - c->line))) {
        refuse(c, "not UTF-8; accepted: text in UTF-8");
        return;
    }
    c->is_whole = end != NULL;
    if (end) *end = '\0';
}

static bool is_here(const ctl *c) {
    char byte;
    return recv(c->client, &byte, 1, MSG_PEEK) != 0;
}

void ctl_poll(ctl *c, bool is_free, ctl_act act, void *ud) {
    if (c->client < 0) take_client(c);
    if (c->client >= 0 && !c->is_whole) read_line(c);
    if (c->client < 0 || !c->is_whole) return;
    char *argument = strchr(c->line, ' ');
    if (argument) *argument = '\0';
    ctl_request request = {.argument = argument ? argument + 1 : "", .uid = c->uid};
    omm_err err = omm_coord_ctl_parse(&request.action, c->line, request.argument);
    if (err == OMM_OK && !is_free && request.action != OMM_COORD_CTL_status) {
        if (argument) *argument = ' ';
        if (!is_here(c)) hang_up(c); /* who has gone does not want it any more */
        return;
    }
    omm_buf_clear(&c->answer);
    if (err == OMM_OK) err = act(ud, &c->answer, &request);
    if (err == OMM_OK)
        say(c, CTL_OK);
    else
        say_no(c, is_refusal(err) ? CTL_REFUSED : CTL_FAILED, omm_err_sentence());
}

/* audit_log.c - see audit_log.h. */
#include "omm/audit_log.h"

#include "omm/file.h"
#include "omm/mem.h"
#include "omm/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a power cut takes are seconds of entries.  A file that has lost more is not mended here. */
#define AUDIT_TORN_BYTES_MAX ((uint64_t)1 << 20)

struct omm_audit_log {
    int fd;
    omm_clock clock;
    uint64_t entries; /* the next entry's seq */
    omm_digest head;
    uint64_t bytes;   /* of whole lines */
    uint64_t dropped; /* of an end that a crash tore; said by the first entry */
    omm_buf line;
    char path[OMM_PATH_MAX];
};

/* ---- reading ---- */

typedef struct reader {
    FILE *file;
    const char *path;
    omm_buf line;
    uint64_t entries, bytes;
    omm_digest head; /* of the lines read */
    char at[25];
    bool torn; /* `line` and what follows is the end that a crash left */
} reader;

static omm_err broken(const reader *r, const char *why) {
    return omm_raise(OMM_ERR_FORMAT, "%s: entry %" PRIu64 " (line %" PRIu64 ") is broken: %s",
                     r->path, r->entries, r->entries + 1, why);
}

static omm_err open_reader(reader *r, const char *path) {
    *r = (reader){.path = path, .file = fopen(path, "rbe")};
    omm_buf_init(&r->line, OMM_AUDIT_LINE_BYTES_MAX);
    if (r->file) return OMM_OK;
    return omm_raise(errno == ENOENT ? OMM_ERR_NOT_FOUND : OMM_ERR_IO, "%s: %s", path,
                     strerror(errno));
}

static void close_reader(reader *r) {
    if (r->file) (void)fclose(r->file);
    omm_buf_fini(&r->line);
}

/* Which of the two was changed, no line says. */
static omm_err does_not_follow(const reader *r) {
    if (r->entries == 0) return broken(r, "it names an entry before it, and is the first line");
    return omm_raise(OMM_ERR_FORMAT,
                     "%s: entry %" PRIu64 " (line %" PRIu64
                     ") does not hold the one before: line %" PRIu64
                     " was changed, or line %" PRIu64 " names another",
                     r->path, r->entries, r->entries + 1, r->entries, r->entries + 1);
}

/* The line must be what a writer would have written, and follow the one before. */
static omm_err check_entry(reader *r, const json_t *entry, omm_buf *again) {
    int64_t seq = 0;
    uint8_t previous[32];
    const char *text = NULL;
    omm_buf_clear(again);
    OMM_TRY(omm_json_write(again, entry));
    if (!omm_bytes_equal(omm_buf_view(again), omm_buf_view(&r->line)))
        return broken(r, "not in the spelling of this log");
    if (omm_json_get_int(&seq, entry, "seq", 0, INT64_MAX) != OMM_OK ||
        omm_json_get_str(&text, entry, "event") != OMM_OK ||
        omm_json_get_digest(previous, entry, "previous") != OMM_OK ||
        omm_json_get_str(&text, entry, "at") != OMM_OK || strlen(text) != sizeof r->at - 1)
        return broken(r, "without seq, at, event or previous");
    (void)snprintf(r->at, sizeof r->at, "%s", text);
    if ((uint64_t)seq != r->entries) return broken(r, "its seq does not follow");
    return memcmp(previous, r->head.b, sizeof previous) == 0 ? OMM_OK : does_not_follow(r);
}

/* A line with its end.  A file without line ends must not become memory.  A killed process leaves half a
 * line at the end; a power cut also zeros, where sectors of what was not synced never came. */
static omm_err read_line(bool *more, reader *r) {
    int c = 0;
    omm_buf_clear(&r->line);
    r->torn = false;
    while (!r->torn && c != '\n' && (c = getc(r->file)) != EOF) {
        char byte = (char)c;
        r->torn = c == 0;
        omm_err err = omm_buf_append(&r->line, &byte, 1);
        if (err == OMM_ERR_TOO_BIG) return broken(r, "longer than 64 KiB");
        OMM_TRY(err);
    }
    if (ferror(r->file)) return omm_raise(OMM_ERR_IO, "%s: %s", r->path, strerror(errno));
    if (c == EOF && r->line.size > 0) r->torn = true;
    *more = r->line.size > 0;
    return OMM_OK;
}

/* One whole entry; *more false at the end.  *entry is for the caller to release. */
static omm_err read_entry(bool *more, json_t **entry, reader *r, omm_buf *again) {
    *entry = NULL;
    OMM_TRY(read_line(more, r));
    if (!*more || r->torn) return OMM_OK;
    omm_bytes line = omm_buf_view(&r->line);
    if (omm_json_parse(entry, line, r->path) != OMM_OK || !json_is_object(*entry)) {
        json_decref(*entry);
        *entry = NULL;
        return broken(r, "no JSON object");
    }
    omm_err err = check_entry(r, *entry, again);
    if (err != OMM_OK) {
        json_decref(*entry);
        *entry = NULL;
        return err;
    }
    r->head = omm_hash(line);
    r->entries++;
    r->bytes += line.size;
    return OMM_OK;
}

typedef omm_err (*entry_fn)(void *ud, const reader *r, const json_t *entry);

static omm_err walk(reader *r, entry_fn each, void *ud) {
    omm_buf again;
    omm_buf_init(&again, 2 * OMM_AUDIT_LINE_BYTES_MAX);
    omm_err err = OMM_OK;
    bool more = true;
    while (err == OMM_OK && more) {
        json_t *entry = NULL;
        err = read_entry(&more, &entry, r, &again);
        if (err == OMM_OK && r->torn) break;
        if (err == OMM_OK && more && each) err = each(ud, r, entry);
        json_decref(entry);
    }
    omm_buf_fini(&again);
    return err;
}

typedef struct check_walk {
    omm_audit_check *out;
    const omm_digest *known;
} check_walk;

static omm_err check_each(void *ud, const reader *r, const json_t *entry) {
    check_walk *w = ud;
    (void)entry;
    if (r->entries == 1) memcpy(w->out->first, r->at, sizeof r->at);
    memcpy(w->out->last, r->at, sizeof r->at);
    if (w->known && omm_digest_equal(w->known, &r->head)) w->out->has_known = true;
    return OMM_OK;
}

omm_err omm_audit_log_verify(omm_audit_check *out, const char *path, const omm_digest *known) {
    reader r;
    *out = (omm_audit_check){.has_known = known == NULL};
    check_walk w = {out, known};
    OMM_TRY(open_reader(&r, path));
    omm_err err = walk(&r, check_each, &w);
    if (err == OMM_OK && r.torn)
        err = broken(&r, "the file ends in it, or has a power cut's zeros");
    out->entries = r.entries;
    out->head = r.head;
    close_reader(&r);
    return err;
}

typedef struct copy_walk {
    omm_buf *out;
    const char *event;
} copy_walk;

static omm_err copy_each(void *ud, const reader *r, const json_t *entry) {
    const copy_walk *w = ud;
    if (strcmp(json_string_value(json_object_get(entry, "event")), w->event) != 0) return OMM_OK;
    return omm_buf_append(w->out, r->line.data, r->line.size);
}

omm_err omm_audit_log_copy(omm_buf *out, const char *path, const char *event) {
    reader r;
    copy_walk w = {out, event};
    OMM_TRY(open_reader(&r, path));
    omm_err err = walk(&r, copy_each, &w);
    close_reader(&r);
    return err;
}

/* ---- writing ---- */

static omm_err io_error(const omm_audit_log *log, const char *what) {
    return omm_raise(OMM_ERR_IO, "%s: %s: %s", log->path, what, strerror(errno));
}

static omm_err append(omm_audit_log *log, omm_bytes line, bool durable) {
    for (size_t at = 0; at < line.size;) {
        ssize_t wrote = write(log->fd, line.data + at, line.size - at);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) {
            omm_err err = io_error(log, "cannot write");
            /* Half a line would break the chain for what comes after it. */
            if (ftruncate(log->fd, (off_t)log->bytes) != 0) (void)io_error(log, "cannot cut");
            return err;
        }
        at += (size_t)wrote;
    }
    log->bytes += line.size;
    log->head = omm_hash(line);
    log->entries++;
    return durable ? omm_sync(log->fd, log->path) : OMM_OK;
}

static omm_err fill(json_t *entry, const omm_audit_log *log, const char *event) {
    char at[25];
    omm_time_iso(at, log->clock.wall_ms(log->clock.ud));
    OMM_TRY(omm_json_set_str(entry, "at", at));
    OMM_TRY(omm_json_set_str(entry, "event", event));
    OMM_TRY(omm_json_set_int(entry, "seq", (int64_t)log->entries));
    return omm_json_set_digest(entry, "previous", log->head.b);
}

static omm_err put(omm_audit_log *log, const char *event, json_t *taken, bool durable) {
    json_t *entry = taken ? taken : json_object();
    omm_buf_clear(&log->line);
    omm_err err = entry ? fill(entry, log, event) : omm_raise(OMM_ERR_NOMEM, "audit entry");
    if (err == OMM_OK) err = omm_json_write(&log->line, entry);
    json_decref(entry);
    if (err == OMM_OK) err = append(log, omm_buf_view(&log->line), durable);
    return err;
}

omm_err omm_audit_log_put(omm_audit_log *log, const char *event, json_t *taken, bool durable) {
    omm_err err = OMM_OK;
    if (log->dropped > 0) {
        json_t *fields = json_object();
        err = omm_json_set_int(fields, "dropped_bytes", (int64_t)log->dropped);
        if (err != OMM_OK) json_decref(fields);
        if (err == OMM_OK) err = put(log, "recovered", fields, false);
        if (err == OMM_OK) log->dropped = 0;
    }
    if (err == OMM_OK) return put(log, event, taken, durable);
    json_decref(taken);
    return err;
}

uint64_t omm_audit_log_head(omm_digest *head, const omm_audit_log *log) {
    *head = log->head;
    return log->entries;
}

/* Bytes behind the whole entries. */
static omm_err torn_bytes(uint64_t *out, const omm_audit_log *log, const reader *r) {
    struct stat st;
    if (fstat(log->fd, &st) != 0) return io_error(log, "cannot look");
    *out = (uint64_t)st.st_size - r->bytes;
    if (*out <= AUDIT_TORN_BYTES_MAX) return OMM_OK;
    return broken(r, "over 1 MiB from here on is torn, more than a power cut takes");
}

typedef struct take_walk {
    omm_audit_entry_fn each;
    void *ud;
} take_walk;

static omm_err take_each(void *ud, const reader *r, const json_t *entry) {
    const take_walk *w = ud;
    (void)r;
    return w->each ? w->each(w->ud, entry) : OMM_OK;
}

/* Where the chain stands; a torn end is cut off. */
static omm_err take_up(omm_audit_log *log, take_walk *w) {
    reader r;
    OMM_TRY(open_reader(&r, log->path));
    omm_err err = walk(&r, take_each, w);
    log->entries = r.entries;
    log->head = r.head;
    log->bytes = r.bytes;
    if (err == OMM_OK && r.torn) err = torn_bytes(&log->dropped, log, &r);
    close_reader(&r);
    OMM_TRY(err);
    if (log->dropped > 0 && ftruncate(log->fd, (off_t)log->bytes) != 0)
        return io_error(log, "cannot cut");
    return OMM_OK;
}

omm_err omm_audit_log_open(omm_audit_log **out, const char *path, omm_clock clock,
                           omm_audit_entry_fn each, void *ud) {
    take_walk walk = {each, ud};
    omm_audit_log *log = omm_alloc(1, sizeof *log);
    if (!log) return omm_raise(OMM_ERR_NOMEM, "audit log");
    log->clock = clock;
    omm_buf_init(&log->line, OMM_AUDIT_LINE_BYTES_MAX);
    (void)snprintf(log->path, sizeof log->path, "%s", path);
    log->fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    omm_err err = log->fd < 0 ? io_error(log, "cannot open") : take_up(log, &walk);
    if (err == OMM_OK)
        err = omm_dir_sync_of(path); /* it may be new: without its name no entry lasts */
    if (err != OMM_OK) {
        omm_audit_log_close(log);
        return err;
    }
    *out = log;
    return OMM_OK;
}

void omm_audit_log_close(omm_audit_log *log) {
    if (!log) return;
    if (log->fd >= 0) (void)close(log->fd);
    omm_buf_fini(&log->line);
    omm_free(log);
}

/* base_fetch.c - see omm/base_fetch.h. */
#include "omm/base_fetch.h"

#include "admission.h"
#include "base_store.h"
#include "board.h"
#include "internal.h"
#include "mirror.h"
#include "patience.h"

#include "omm/envelope.h"
#include "omm/mem.h"
#include "omm/messages.h"
#include "omm/transport.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define KEPT_ANSWER_MS 5000u   /* for the coordinator, where a model is here already */
#define BACKOFF_MIN_MS 1000u   /* of a source that failed, doubling ... */
#define BACKOFF_MAX_MS 300000u /* ... up to here */
#define WAIT_MAX_MS 60000u     /* a longer wait than this is not believed */
#define STILL_MIN_MS 1000u     /* between attempts where our own disk takes no more, doubling ... */
#define STILL_MAX_MS 30000u    /* ... up to here */
#define DOOR_BUSY_MS 600000u   /* of a coordinator from before, whose yes is "wait", too */
#define DOING_SIZE 160u
#define TROUBLE_SIZE ((BOARD_DETAIL_SIZE - DOING_SIZE - 64u) / 2)
#define SOURCES_MAX (OMM_BASE_MIRRORS_MAX * 2u + 1u)

typedef struct source {
    const char *url;   /* NULL: the coordinator */
    bool dropped;      /* wrong, or no mirror, when it was asked last: the last resort */
    uint32_t failures; /* in a row */
    uint64_t not_before_ms;
} source;

typedef struct fetch {
    const omm_base_fetch_options *o;
    omm_base_fetch_result *result;
    omm_client *client;
    omm_buf request;
    omm_arena arena; /* of the manifest */
    omm_base_model base;
    char folder[OMM_PATH_MAX];
    base_store store;
    source sources[SOURCES_MAX]; /* by preference; the last is the coordinator */
    size_t source_count;
    const source *of_piece;      /* who began the piece at hand */
    uint64_t still_at, still_ms; /* where the disk took no more, and how long that was waited for */
    patience patience;
    omm_node_options node; /* for the board */
    board board;
    char doing[DOING_SIZE]; /* for the owner */
    char refused
        [TROUBLE_SIZE]; /* by the coordinator, and why others failed; "": not since the last piece */
    char failed[TROUBLE_SIZE];
    uint64_t trouble_ms; /* since when */
    bool is_silent;      /* the coordinator, which was asked last, */
    uint64_t asked_ms;   /* since then */
} fetch;

static uint64_t now_ms(const fetch *f) {
    return patience_now_ms(&f->patience);
}

static bool is_stopped(const fetch *f) {
    return patience_is_stopped(&f->patience);
}

/* What the owner reads: what it does, and since when and why that does not go on. */
static void show_doing(fetch *f) {
    char text[BOARD_DETAIL_SIZE] = "";
    if (f->is_silent) patience_silence(text, now_ms(f) - f->asked_ms, f->client);
    if (!text[0] && (f->refused[0] || f->failed[0]))
        (void)snprintf(text, sizeof text, "%s; without success for %" PRIu64 " s: %s%s%s%s",
                       f->doing, (now_ms(f) - f->trouble_ms) / 1000,
                       f->refused[0] ? "the coordinator: " : "", f->refused,
                       f->refused[0] && f->failed[0] ? "; " : "", f->failed);
    if (!text[0]) (void)snprintf(text, sizeof text, "%s", f->doing);
    board_show(&f->board, "fetching", text, NULL, f->client, false);
}

static void sleep_until(fetch *f, uint64_t until_ms) {
    for (uint64_t now = now_ms(f); now < until_ms && !is_stopped(f); now = now_ms(f)) {
        show_doing(f);
        f->o->clock.sleep_ms(f->o->clock.ud, until_ms - now < PATIENCE_SLICE_MS
                                                 ? until_ms - now
                                                 : PATIENCE_SLICE_MS);
    }
}

/* The error at hand, of the coordinator or of one that its sentence names. */
static void note_trouble(fetch *f, bool is_coordinator) {
    if (!f->refused[0] && !f->failed[0]) f->trouble_ms = now_ms(f);
    (void)snprintf(is_coordinator ? f->refused : f->failed, TROUBLE_SIZE, "%s", omm_err_sentence());
}

static void forget_trouble(fetch *f) {
    f->refused[0] = f->failed[0] = '\0';
}

static void complain(fetch *f, const char *event, const source *s) {
    note_trouble(f, !s || !s->url);
    omm_log_event(f->o->log, OMM_LOG_WARN, event, OMM_LOG_STR("node", f->o->name),
                  OMM_LOG_STR("from", s && s->url ? s->url : "coordinator"),
                  OMM_LOG_STR("reason", omm_err_sentence()));
}

static void show(fetch *f, const source *from) {
    (void)snprintf(f->doing, sizeof f->doing, "base model: %.1f of %.1f MB, from %.90s",
                   (double)f->store.at / 1e6, (double)f->base.size / 1e6,
                   from->url ? from->url : "the coordinator");
    show_doing(f);
}

/* ---- a guest ---- */

static void wait_for_leave(fetch *f) {
    while (!is_stopped(f) && patience_must_pause(&f->patience)) {
        board_show(&f->board, "paused", f->patience.guest.view.text, NULL, f->client, false);
        f->o->clock.sleep_ms(f->o->clock.ud, PATIENCE_SLICE_MS);
    }
}

/* ---- the coordinator ---- */

/* One request, one answer, decoded into `arena`.  Errors: TIMEOUT, CLOSED, REFUSED_* (not an answer), CANCELLED. */
static omm_err ask(omm_reply *reply, fetch *f, const omm_request *request, uint64_t answer_ms,
                   omm_arena *arena) {
    omm_bytes bytes;
    omm_buf_clear(&f->request);
    OMM_TRY(omm_request_encode(&f->request, request));
    OMM_TRY(omm_client_send(f->client, omm_buf_view(&f->request)));
    const uint64_t begin_ms = now_ms(f);
    if (!f->is_silent) f->asked_ms = begin_ms;
    f->is_silent = true;
    for (;;) {
        const omm_err err = omm_client_receive(&bytes, f->client, PATIENCE_SLICE_MS);
        if (err == OMM_OK) f->is_silent = false;
        if (err == OMM_OK) patience_renew(&f->patience);
        if (err == OMM_OK) return omm_reply_decode(reply, bytes, arena);
        if (err != OMM_ERR_TIMEOUT) return err;
        if (is_stopped(f)) return omm_raise(OMM_ERR_CANCELLED, "stopped");
        /* Whoever mistyped an address shall not wait for a minute to see it. */
        patience_tell_silence(&f->patience, now_ms(f) - f->asked_ms, &f->board, "fetching", NULL,
                              f->client);
        if (now_ms(f) - begin_ms < answer_ms) continue;
        omm_client_renew(f->client);
        return omm_raise(OMM_ERR_TIMEOUT, "no answer within %" PRIu64 " ms", answer_ms);
    }
}

static bool is_own_trouble(omm_err err) {
    return err == OMM_ERR_NOMEM || err == OMM_ERR_IO;
}

static void back_off(fetch *f, source *s) {
    uint64_t ms = BACKOFF_MIN_MS;
    for (uint32_t i = 0; i < s->failures && ms < BACKOFF_MAX_MS; i++) ms *= 2;
    s->failures++;
    s->not_before_ms = now_ms(f) + (ms < BACKOFF_MAX_MS ? ms : BACKOFF_MAX_MS);
}

/* ---- the manifest ---- */

/* Signed by the coordinator that we pinned; the result lives in f->arena.  On error the model that was known still is. */
static omm_err read_manifest(fetch *f, omm_bytes bytes) {
    omm_envelope envelope;
    omm_base_model base;
    omm_arena arena;
    OMM_TRY(omm_envelope_open_as(&envelope, OMM_CONTEXT_BASE, bytes));
    if (!omm_public_key_equal(&envelope.key, &f->o->coordinator))
        return omm_raise(OMM_ERR_REFUSED_KEY,
                         "public_key: not the coordinator we pinned (coordinator_key)");
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    const omm_err err = omm_base_model_decode(&base, envelope.payload, &arena);
    if (err != OMM_OK) {
        omm_arena_fini(&arena);
        return err;
    }
    omm_arena_fini(&f->arena);
    f->arena = arena;
    f->base = base;
    return OMM_OK;
}

static omm_err ask_manifest(fetch *f, uint64_t answer_ms) {
    omm_arena arena;
    omm_reply reply = {0};
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    omm_err err = ask(&reply, f, &(omm_request){.kind = OMM_REQUEST_BASE}, answer_ms, &arena);
    if (err == OMM_OK && reply.kind == OMM_REPLY_WAIT)
        err = omm_raise(OMM_ERR_TIMEOUT, "the coordinator is busy");
    else if (err == OMM_OK && reply.kind != OMM_REPLY_BASE)
        err = omm_raise(OMM_ERR_REFUSED_BASE, "the coordinator names no base model: %s",
                        reply.kind == OMM_REPLY_REFUSED ? reply.sentence : "another answer");
    if (err == OMM_OK) err = read_manifest(f, reply.envelope);
    if (err == OMM_OK) err = base_store_put_manifest(f->folder, reply.envelope);
    omm_arena_fini(&arena);
    return err;
}

static bool has_file(const fetch *f, size_t file) {
    struct stat st;
    char path[OMM_PATH_MAX];
    return base_store_path(path, f->folder, &f->base, file) == OMM_OK && stat(path, &st) == 0 &&
           S_ISREG(st.st_mode) && (uint64_t)st.st_size == base_store_file_bytes(&f->base, file);
}

/* Is the model of f->base here?  Its name is given to whole files alone. */
static bool is_here(fetch *f) {
    f->result->path[0] = '\0';
    for (size_t file = 0; file < base_store_files(&f->base); file++)
        if (!has_file(f, file)) return false;
    return base_store_path(f->result->path, f->folder, &f->base, 0) == OMM_OK;
}

/* What was fetched before, in f->result->path. */
static bool has_kept(fetch *f) {
    omm_buf bytes;
    omm_buf_init(&bytes, OMM_ENVELOPE_BYTES_MAX);
    const bool ok = base_store_get_manifest(&bytes, f->folder) == OMM_OK &&
                    read_manifest(f, omm_buf_view(&bytes)) == OMM_OK && is_here(f);
    omm_buf_fini(&bytes);
    return ok;
}

/* *known: there is a manifest.  Asks as long as it takes, once where a model is here already. */
static omm_err need_manifest(bool *known, fetch *f) {
    source asked = {0};
    *known = has_kept(f);
    if (*known) {
        const omm_err err = ask_manifest(f, KEPT_ANSWER_MS);
        if (is_own_trouble(err)) return err;
        if (err != OMM_OK) complain(f, "base_kept", NULL);
        return OMM_OK;
    }
    (void)snprintf(f->doing, sizeof f->doing, "asks for the base model");
    while (!*known && !is_stopped(f)) {
        show_doing(f);
        wait_for_leave(f);
        const omm_err err = ask_manifest(f, f->o->answer_ms);
        if (is_own_trouble(err)) return err;
        *known = err == OMM_OK;
        if (*known || is_stopped(f)) break;
        complain(f, "base_unknown", NULL);
        back_off(f, &asked);
        sleep_until(f, asked.not_before_ms);
    }
    return OMM_OK;
}

/* ---- is it let in? ---- */

/* *again_ms: when to ask again, in `*answer` LATER. */
static omm_err ask_door(admission_answer *answer, uint64_t *again_ms, fetch *f) {
    omm_buf envelope;
    omm_arena arena;
    omm_reply reply = {0};
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    *answer = ADMISSION_LATER;
    omm_err err = admission_seal(&envelope, &f->node, NULL);
    if (err == OMM_OK)
        err = ask(&reply, f,
                  &(omm_request){.kind = OMM_REQUEST_ENROL, .envelope = omm_buf_view(&envelope)},
                  f->o->answer_ms, &arena);
    if (err == OMM_OK) err = admission_read(answer, &f->node, &reply);
    *again_ms = now_ms(f) + (reply.retry_ms < WAIT_MAX_MS ? reply.retry_ms : WAIT_MAX_MS);
    if (err == OMM_OK && reply.kind == OMM_REPLY_WAIT && reply.retry_ms == 0 && f->node.token)
        omm_log_event(f->o->log, OMM_LOG_INFO, "enrolled", OMM_LOG_STR("node", f->o->name));
    omm_arena_fini(&arena);
    omm_buf_fini(&envelope);
    return err;
}

/* Whoever is not let in hears why, and what can be done, before it has fetched anything. */
static void tell_refusal(fetch *f, omm_err reason) {
    const char *advice = node_advice(reason);
    note_trouble(f, true);
    const size_t used = strlen(f->refused);
    (void)snprintf(f->refused + used, TROUBLE_SIZE - used, "%s%s", advice[0] ? "; " : "", advice);
    omm_log_event(f->o->log, OMM_LOG_WARN, "enrol_refused", OMM_LOG_STR("node", f->o->name),
                  OMM_LOG_STR("reason", omm_err_sentence()), OMM_LOG_STR("advice", advice),
                  OMM_LOG_STR("then", "the base model is fetched when it is let in"));
}

/* A model may take hours and gigabytes.  Asks as long as it takes. */
static omm_err need_admission(fetch *f) {
    uint64_t busy_since_ms = 0; /* that it has said nothing but to wait; 0: it has not */
    source asked = {0};
    if (!f->o->key) return OMM_OK;
    (void)snprintf(f->doing, sizeof f->doing,
                   "asks to be let in, before it fetches the base model of %.1f MB",
                   (double)f->base.size / 1e6);
    while (!is_stopped(f)) {
        admission_answer answer;
        uint64_t again_ms = 0;
        const uint64_t before_ms = now_ms(f);
        show_doing(f);
        wait_for_leave(f);
        if (now_ms(f) - before_ms >= WAIT_MAX_MS) busy_since_ms = 0; /* it did not ask meanwhile */
        const omm_err err = ask_door(&answer, &again_ms, f);
        if (is_own_trouble(err) || (err == OMM_OK && answer == ADMISSION_IN)) return err;
        if (err != OMM_OK)
            busy_since_ms = 0;
        else if (busy_since_ms == 0)
            busy_since_ms = now_ms(f);
        if (is_stopped(f) || (err == OMM_OK && now_ms(f) - busy_since_ms >= DOOR_BUSY_MS)) break;
        if (answer == ADMISSION_REFUSED) {
            tell_refusal(f, err);
            again_ms = now_ms(f) + NODE_STRANGER_MS;
        } else if (err != OMM_OK) {
            complain(f, "enrol_failed", NULL);
            back_off(f, &asked);
            again_ms = asked.not_before_ms;
        }
        sleep_until(f, again_ms);
    }
    return OMM_OK;
}

/* ---- pieces from a mirror ---- */

typedef struct mirror_use {
    fetch *f;
    const source *from;
} mirror_use;

static omm_err take_bytes(void *ud, omm_bytes bytes) {
    const mirror_use *use = ud;
    const size_t piece = use->f->store.piece;
    OMM_TRY(base_store_put(&use->f->store, bytes));
    if (use->f->store.piece > piece) forget_trouble(use->f);
    use->f->result->from_mirrors += bytes.size;
    show(use->f, use->from);
    return OMM_OK;
}

static bool may_go_on(void *ud) {
    const mirror_use *use = ud;
    return !is_stopped(use->f) && !patience_must_pause(&use->f->patience);
}

/* A page that asks for a password, say, or a file that is not there yet: what is right later is asked again, where
 * nobody else can be. */
static void drop(fetch *f, source *s) {
    if (!s->dropped) f->result->mirrors_dropped++;
    s->dropped = true;
    back_off(f, s);
    complain(f, "mirror_dropped", s);
}

/* It brought a piece that is right. */
static void trust(source *s) {
    s->dropped = false;
    s->failures = 0;
}

/* Of a model in several files, one of them: the next is asked for then.  A transfer that was cut goes on at
 * once where it brought a piece; a mirror that stalls waits its turn. */
static omm_err from_mirror(fetch *f, source *s) {
    mirror_use use = {f, s};
    const size_t piece = f->store.piece;
    uint64_t from = 0;
    const size_t file = base_store_file_at(&from, &f->base, f->store.at);
    char url[OMM_MIRROR_BYTES_MAX + 1];
    if (f->base.part_count > 1 &&
        omm_mirror_part(url, s->url, file, f->base.part_count) != OMM_OK) {
        drop(f, s);
        return OMM_OK;
    }
    const mirror_get get = {.url = f->base.part_count > 1 ? url : s->url,
                            .from = from,
                            .size = base_store_file_bytes(&f->base, file),
                            .may_be_private = f->o->private_mirrors,
                            .connect_s = MIRROR_CONNECT_S,
                            .stall_s = f->o->stall_s,
                            .take = take_bytes,
                            .may_go_on = may_go_on,
                            .ud = &use};
    f->result->used_mirrors = true;
    f->is_silent = false; /* whom nobody asks now */
    const omm_err err = mirror_fetch(&get);
    if (f->store.piece > piece) trust(s);
    if (is_own_trouble(err)) return err;
    if (err == OMM_OK || err == OMM_ERR_CANCELLED) return OMM_OK;
    if (err != OMM_ERR_CLOSED && err != OMM_ERR_TIMEOUT) {
        drop(f, s);
        return OMM_OK;
    }
    complain(f, "mirror_failed", s);
    if (f->store.piece == piece || err == OMM_ERR_TIMEOUT) back_off(f, s);
    return OMM_OK;
}

/* ---- a piece from the coordinator ---- */

static omm_err take_chunk(fetch *f, const omm_reply *reply, uint32_t index, size_t size) {
    if (!omm_digest_equal(&reply->digest, &f->base.pieces[f->store.piece]) ||
        reply->index != index || reply->data.size != size)
        return omm_raise(OMM_ERR_REFUSED_DIGEST, "chunk: not the one we asked for");
    OMM_TRY(base_store_put(&f->store, reply->data));
    f->result->from_coordinator += size;
    return OMM_OK;
}

/* *more: the next chunk may be asked for at once. */
static omm_err one_chunk(bool *more, fetch *f, source *s, size_t piece, uint64_t begin) {
    const uint32_t index = (uint32_t)((f->store.at - begin) / OMM_CHUNK_BYTES);
    const uint64_t left = begin + omm_base_piece_size(&f->base, piece) - f->store.at;
    const size_t size = left < OMM_CHUNK_BYTES ? (size_t)left : OMM_CHUNK_BYTES;
    omm_arena arena;
    omm_reply reply = {0};
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    omm_err err = ask(
        &reply, f,
        &(omm_request){.kind = OMM_REQUEST_GET, .digest = f->base.pieces[piece], .index = index},
        f->o->answer_ms, &arena);
    if (err == OMM_OK && reply.kind == OMM_REPLY_WAIT)
        s->not_before_ms =
            now_ms(f) + (reply.retry_ms < WAIT_MAX_MS ? reply.retry_ms : WAIT_MAX_MS);
    else if (err == OMM_OK && reply.kind != OMM_REPLY_CHUNK)
        err = omm_raise(OMM_ERR_REFUSED_BASE, "no chunk in the answer: %s",
                        reply.kind == OMM_REPLY_REFUSED ? reply.sentence : "");
    else if (err == OMM_OK)
        err = take_chunk(f, &reply, index, size);
    *more = err == OMM_OK && reply.kind == OMM_REPLY_CHUNK;
    omm_arena_fini(&arena);
    return err;
}

static omm_err from_coordinator(fetch *f, source *s) {
    const size_t piece = f->store.piece;
    const uint64_t begin = piece * omm_base_piece_bytes(f->base.piece_chunks);
    bool more = true;
    while (more && f->store.piece == piece && !is_stopped(f)) {
        wait_for_leave(f);
        const omm_err err = one_chunk(&more, f, s, piece, begin);
        if (is_own_trouble(err)) return err;
        show(f, s);
        if (err == OMM_OK || err == OMM_ERR_CANCELLED) continue;
        complain(f, "base_failed", s);
        back_off(f, s);
        return OMM_OK;
    }
    if (f->store.piece > piece) s->failures = 0;
    if (f->store.piece > piece) forget_trouble(f);
    return OMM_OK;
}

/* ---- all of it ---- */

static void list_sources(fetch *f) {
    const omm_base_fetch_options *o = f->o;
    for (size_t i = 0; i < o->mirror_count && i < OMM_BASE_MIRRORS_MAX; i++)
        f->sources[f->source_count++] = (source){.url = o->mirrors[i]};
    for (size_t i = 0; i < f->base.mirror_count; i++)
        f->sources[f->source_count++] = (source){.url = f->base.mirrors[i]};
    f->sources[f->source_count++] = (source){0};
}

/* The first that may be asked now, of those that were dropped only where all others failed, too; else NULL, and when
 * to look again.  Who only asked us to wait has not failed: what came of a piece from there is kept. */
static source *choose(fetch *f, uint64_t *until_ms) {
    source *last_resort = NULL;
    bool has_other = false;
    *until_ms = UINT64_MAX;
    for (size_t i = 0; i < f->source_count; i++) {
        source *s = &f->sources[i];
        const bool is_free = s->not_before_ms <= now_ms(f);
        if (is_free && !s->dropped) return s;
        if (is_free && !last_resort) last_resort = s;
        has_other = has_other || (!s->dropped && s->failures == 0);
        if (!is_free && s->not_before_ms < *until_ms) *until_ms = s->not_before_ms;
    }
    return has_other ? NULL : last_resort;
}

/* A full disk, say: what is here is kept, and the same bytes are asked for again. */
static void stand_still(fetch *f) {
    const bool is_new = f->still_ms == 0 || f->still_at != f->store.at;
    f->still_at = f->store.at;
    f->still_ms = is_new ? STILL_MIN_MS : f->still_ms * 2;
    if (f->still_ms > STILL_MAX_MS) f->still_ms = STILL_MAX_MS;
    omm_log_event(f->o->log, OMM_LOG_ERROR, "base_stands_still", OMM_LOG_STR("node", f->o->name),
                  OMM_LOG_STR("detail", omm_err_sentence()), OMM_LOG_INT("here", f->store.at),
                  OMM_LOG_INT("again_ms", f->still_ms));
    note_trouble(f, false);
    sleep_until(f, now_ms(f) + f->still_ms);
}

/* A piece comes from one source, so that a wrong one is nobody else's fault. */
static omm_err get_pieces(fetch *f) {
    while (!base_store_is_whole(&f->store) && !is_stopped(f)) {
        uint64_t until_ms;
        wait_for_leave(f);
        source *s = choose(f, &until_ms);
        if (!s) {
            sleep_until(f, until_ms);
            continue;
        }
        if (s != f->of_piece) base_store_rewind(&f->store);
        f->of_piece = s;
        show(f, s);
        const omm_err err = s->url ? from_mirror(f, s) : from_coordinator(f, s);
        if (err != OMM_ERR_IO) OMM_TRY(err);
        if (err == OMM_ERR_IO) stand_still(f);
    }
    return OMM_OK;
}

static omm_err get_model(fetch *f) {
    if (f->base.size > f->o->bytes_max)
        return omm_raise(OMM_ERR_REFUSED_SIZE,
                         "the base model has %.2f GB, over max_model_gb of %.2f",
                         (double)f->base.size / 1e9, (double)f->o->bytes_max / 1e9);
    OMM_TRY(need_admission(f));
    if (is_stopped(f)) return OMM_OK;
    forget_trouble(f);
    OMM_TRY(base_store_open(&f->store, f->folder, &f->base));
    omm_log_event(f->o->log, OMM_LOG_INFO, "base_fetch", OMM_LOG_STR("node", f->o->name),
                  OMM_LOG_INT("bytes", f->base.size), OMM_LOG_INT("here", f->store.at),
                  OMM_LOG_INT("mirrors", f->source_count - 1));
    omm_err err = get_pieces(f);
    if (err == OMM_OK && base_store_is_whole(&f->store)) {
        err = base_store_finish(&f->store);
        if (err == OMM_OK) (void)snprintf(f->result->path, OMM_PATH_MAX, "%s", f->store.path);
    }
    base_store_close(&f->store);
    OMM_TRY(err);
    omm_log_event(f->o->log, OMM_LOG_INFO, f->result->path[0] ? "base_ready" : "base_stopped",
                  OMM_LOG_STR("node", f->o->name), OMM_LOG_INT("here", f->store.at),
                  OMM_LOG_INT("from_coordinator", f->result->from_coordinator),
                  OMM_LOG_INT("from_mirrors", f->result->from_mirrors),
                  OMM_LOG_INT("mirrors_dropped", f->result->mirrors_dropped));
    return OMM_OK;
}

static omm_err run(fetch *f) {
    const omm_base_fetch_options *o = f->o;
    bool known = false;
    for (size_t i = 0; i < o->mirror_count; i++) OMM_TRY(omm_mirror_check(o->mirrors[i]));
    OMM_TRY(omm_path_join(f->folder, o->state_dir, OMM_BASE_FOLDER));
    OMM_TRY(omm_dir_make_private(o->state_dir));
    OMM_TRY(omm_dir_make_private(f->folder));
    OMM_TRY(omm_client_open(&f->client, o->url,
                            &(omm_client_options){.message_bytes_max = OMM_MESSAGE_BYTES_MAX,
                                                  .reconnect_min_ms = 100,
                                                  .reconnect_max_ms = 5000,
                                                  .attempt_ms = 20000,
                                                  .tls_certificate = o->tls_certificate}));
    OMM_TRY(need_manifest(&known, f));
    if (!known) return OMM_OK;
    forget_trouble(f);
    f->result->size = f->base.size;
    if (is_here(f)) return OMM_OK;
    list_sources(f);
    return get_model(f);
}

omm_err omm_base_fetch(omm_base_fetch_result *out, const omm_base_fetch_options *options) {
    *out = (omm_base_fetch_result){0};
    fetch *f = omm_alloc(1, sizeof *f); /* too large for a stack */
    if (!f) return omm_raise(OMM_ERR_NOMEM, "fetching the base model");
    f->o = options;
    f->result = out;
    for (size_t i = 0; i < OMM_BASE_PARTS_MAX; i++) f->store.fds[i] = -1;
    omm_buf_init(&f->request, OMM_MESSAGE_BYTES_MAX);
    omm_arena_init(&f->arena, OMM_MESSAGE_ARENA_BYTES);
    f->node = (omm_node_options){.name = options->name,
                                 .state_dir = options->state_dir,
                                 .key = options->key,
                                 .coordinator = options->coordinator,
                                 .run_id = options->run_id,
                                 .token = options->token,
                                 .limits = {.work_bits_max = options->work_bits_max}};
    f->patience = (patience){.clock = options->clock,
                             .log = options->log,
                             .name = options->name,
                             .url = options->url,
                             .stop = options->stop,
                             .rules = options->guest};
    patience_init(&f->patience, options->guest_root);
    board_open(&f->board, &f->node, options->clock);
    const omm_err err = run(f);
    if (f->client) omm_client_close(f->client);
    board_close(&f->board);
    omm_arena_fini(&f->arena);
    omm_buf_fini(&f->request);
    omm_free(f);
    return err;
}

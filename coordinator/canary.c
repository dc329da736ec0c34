/* canary.c - owns who has which canary: candidates, turns, offers. */
#include "canary.h"

#include "omm/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANARY_ARENA_BYTES ((size_t)1 << 20) /* digests of chunks */

void canary_name(char out[80], const omm_coord *c, const canary_peer *p) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, &p->id);
    if (p->node >= 0)
        (void)snprintf(out, 80, "%s", c->o.run->nodes[p->node].name);
    else
        (void)snprintf(out, 80, "guest-%.8s", hex);
}

/* ---- peers ---- */

canary_peer *canary_find(const coord_canary *w, const omm_digest *id) {
    for (size_t i = 0; i < w->peer_count; i++)
        if (omm_digest_equal(&w->peers[i]->id, id)) return w->peers[i];
    return NULL;
}

static omm_err add_peer(canary_peer **out, coord_canary *w, const canary_peer *from) {
    OMM_ASSERT(w->peer_count < w->peer_max);
    canary_peer *p = omm_alloc(1, sizeof *p);
    if (!p) return omm_raise(OMM_ERR_NOMEM, "a canary");
    *p = *from;
    w->peers[w->peer_count++] = p;
    if (p->node >= 0) w->of_node[p->node] = p;
    *out = p;
    return OMM_OK;
}

void canary_forget_peer(coord_canary *w, canary_peer *peer) {
    size_t at = 0;
    while (at < w->peer_count && w->peers[at] != peer) at++;
    OMM_ASSERT(at < w->peer_count);
    w->peers[at] = w->peers[--w->peer_count];
    if (peer->node >= 0) w->of_node[peer->node] = NULL;
    coord_upload_end(&peer->upload);
    omm_free(peer);
}

static uint32_t count_candidates(const coord_canary *w) {
    uint32_t count = 0;
    for (size_t i = 0; i < w->peer_count; i++) count += w->peers[i]->node < 0;
    return count;
}

size_t canary_shard_index(const coord_canary *w, const omm_digest *digest) {
    size_t i = 0;
    while (i < w->o->shard_count && !omm_digest_equal(&w->shards[i].digest, digest)) i++;
    return i;
}

/* ---- lots: functions of the run's seed, which nobody else knows ---- */

static omm_seed lot_of(const omm_coord *c, omm_purpose purpose, const char *what, uint32_t number,
                       const omm_digest *id) {
    uint8_t context[16 + 4 + sizeof id->b] = {0};
    for (size_t i = 0; what[i] && i < 16; i++) context[i] = (uint8_t)what[i];
    omm_put_u32(context + 16, number);
    memcpy(context + 20, id->b, sizeof id->b);
    return omm_seed_derive(&c->o.run_seed, purpose, omm_bytes_of(context, sizeof context));
}

static omm_digest nonce_of(const omm_coord *c, const canary_peer *p) {
    const omm_seed seed = lot_of(c, OMM_PURPOSE_NONCE, "omm.canary", p->number, &p->id);
    omm_digest nonce;
    memcpy(nonce.b, seed.b, sizeof nonce.b);
    return nonce;
}

static size_t shard_of(const omm_coord *c, const canary_peer *p) {
    const omm_seed seed = lot_of(c, OMM_PURPOSE_SELECT, "omm.shard", p->number, &p->id);
    return (size_t)(omm_get_u64(seed.b) % c->canary->o->shard_count);
}

/* ---- offers ---- */

static omm_err seal_offer(omm_buf *envelope, const omm_coord *c, const canary_peer *p) {
    omm_offer offer;
    coord_offer_fill(&offer, c);
    offer.nonce = nonce_of(c, p);
    offer.global = c->canary->global;
    offer.selected = &p->id;
    offer.selected_count = 1;
    offer.is_canary = true;
    offer.canary = c->canary->shards[shard_of(c, p)];
    return coord_offer_seal(envelope, c, &offer);
}

/* The state changes with the commit, or not at all. */
static omm_err make_offer(omm_buf *envelope, omm_coord *c, canary_peer *p) {
    canary_peer next = *p;
    OMM_TRY(seal_offer(envelope, c, p));
    next.state = CANARY_OFFERED;
    next.offer_digest = omm_hash(omm_buf_view(envelope));
    next.moved_ms = coord_wall_ms(c);
    next.replaced_count = 0;
    OMM_TRY(canary_store_save(c->canary->db, &next, CANARY_OFFER, omm_buf_view(envelope)));
    *p = next;
    omm_crash_point(c->o.state_dir, c->o.crash_at, "canary_offered");
    return OMM_OK;
}

/* Another canary, with the next number. */
static omm_err make_due(omm_coord *c, canary_peer *p) {
    canary_peer next = *p;
    next.state = CANARY_DUE;
    next.number = p->number + 1;
    next.reason[0] = '\0';
    OMM_TRY(canary_store_save(c->canary->db, &next, CANARY_NO_BYTES, (omm_bytes){0}));
    coord_upload_end(&p->upload);
    next.upload = p->upload;
    *p = next;
    return OMM_OK;
}

static omm_err reply_offer(omm_buf *reply, omm_coord *c, canary_peer *p, bool whole) {
    omm_buf envelope;
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = p->state == CANARY_DUE
                      ? make_offer(&envelope, c, p)
                      : canary_store_read(&envelope, c->canary->db, &p->id, CANARY_OFFER);
    if (err == OMM_OK) {
        omm_reply r = {.kind = OMM_REPLY_OFFER, .envelope = omm_buf_view(&envelope)};
        const omm_bytes global = omm_buf_view(&c->canary->sent);
        if (whole && omm_wire_is_whole(envelope.size, global.size)) r.data = global;
        c->payload.down = r.data.size;
        err = omm_reply_encode(reply, &r);
    }
    omm_buf_fini(&envelope);
    return err;
}

/* ---- polls ---- */

bool coord_canary_holds(const omm_coord *c, size_t node) {
    const canary_peer *p = c->canary ? c->canary->of_node[node] : NULL;
    return p && p->state <= CANARY_WAITING;
}

omm_err coord_canary_knows(bool *known, const omm_coord *c, const omm_digest *id) {
    char reason[OMM_COORD_REASON_MAX + 1];
    bool failed = false;
    *known = false;
    if (!c->canary) return OMM_OK;
    *known = canary_find(c->canary, id) != NULL;
    if (*known) return OMM_OK;
    OMM_TRY(canary_store_find_failed(&failed, reason, NULL, NULL, c->canary->db, id));
    if (!failed) return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_KEY, "public_key: failed its canary: %s", reason);
}

omm_err coord_canary_answer_poll(omm_buf *reply, omm_coord *c, const omm_digest *id, bool whole) {
    canary_peer *p = canary_find(c->canary, id);
    OMM_ASSERT(p);
    c->peer_tries = true;
    if (c->state == OMM_COORD_CLOSED) {
        const omm_reply done = {.kind = OMM_REPLY_DONE, .envelope = omm_buf_view(&c->close)};
        return omm_reply_encode(reply, &done);
    }
    if (c->state == OMM_COORD_CLOSING || p->state == CANARY_WAITING)
        return coord_reply_wait(reply, c);
    if (p->node < 0 && p->passes >= c->canary->o->passes) { /* the run was full, or not */
        OMM_TRY(coord_canary_let_in(c, p));
        return coord_reply_wait(reply, c);
    }
    if (p->node < 0 && p->state == CANARY_PASSED) OMM_TRY(make_due(c, p));
    return reply_offer(reply, c, p, whole);
}

/* ---- candidates ---- */

bool coord_canary_tries(const omm_coord *c) {
    return c->canary && c->canary->o->passes > 0;
}

/* One that has not moved for longest, and for long, makes room; what it had begun is forgotten. */
static omm_err make_room(omm_coord *c) {
    coord_canary *w = c->canary;
    const uint64_t now = coord_wall_ms(c);
    canary_peer *oldest = NULL;
    if (count_candidates(w) < OMM_COORD_CANDIDATES_MAX) return OMM_OK;
    for (size_t i = 0; i < w->peer_count; i++) {
        canary_peer *p = w->peers[i];
        const bool is_idle =
            p->node < 0 && p->state != CANARY_WAITING && p->moved_ms + CANARY_STALE_MS <= now;
        if (is_idle && (!oldest || p->moved_ms < oldest->moved_ms)) oldest = p;
    }
    if (!oldest)
        return omm_raise(OMM_ERR_REFUSED_FULL, "enrol: %u candidates are on probation, the most",
                         OMM_COORD_CANDIDATES_MAX);
    if (oldest->state == CANARY_UPLOADING) { /* before its row: without that it has no offer */
        const omm_blob_plan plan = canary_plan(oldest);
        OMM_TRY(omm_blobs_drop_partial(w->uploads, &plan));
    }
    OMM_TRY(canary_store_drop(w->db, &oldest->id));
    canary_forget_peer(w, oldest);
    return OMM_OK;
}

omm_err coord_canary_admit(omm_coord *c, const omm_public_key *key, const char *by) {
    coord_canary *w = c->canary;
    canary_peer fresh = {
        .key = *key, .id = omm_key_id(key), .node = COORD_ANONYMOUS, .moved_ms = coord_wall_ms(c)};
    canary_peer *p = NULL;
    char name[80];
    OMM_TRY(make_room(c));
    (void)snprintf(fresh.by, sizeof fresh.by, "%s, %u canar%s", by, w->o->passes,
                   w->o->passes == 1 ? "y" : "ies");
    OMM_TRY(add_peer(&p, w, &fresh));
    const omm_err err = canary_store_save(w->db, p, CANARY_NO_BYTES, (omm_bytes){0});
    if (err != OMM_OK) {
        canary_forget_peer(w, p);
        return err;
    }
    canary_name(name, c, p);
    omm_log_event(c->o.log, OMM_LOG_INFO, "candidate", OMM_LOG_STR("node", name),
                  OMM_LOG_STR("by", by), OMM_LOG_INT("candidates", count_candidates(w)));
    omm_crash_point(c->o.state_dir, c->o.crash_at, "canary_candidate");
    return OMM_OK;
}

/* ---- turns of nodes ---- */

typedef struct turn {
    uint32_t lot, node;
} turn;

static int by_lot(const void *a, const void *b) {
    const turn *x = a, *y = b;
    if (x->lot != y->lot) return x->lot < y->lot ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

static omm_err hold(omm_coord *c, uint32_t node) {
    canary_peer *p = c->canary->of_node[node];
    const omm_run_node *is = &c->o.run->nodes[node];
    if (coord_canary_holds(c, node)) return OMM_OK; /* the opening of this round was tried before */
    if (p) return make_due(c, p);
    const canary_peer fresh = {
        .key = is->public_key, .id = is->id, .node = (int32_t)node, .state = CANARY_PASSED};
    OMM_TRY(canary_store_save(c->canary->db, &fresh, CANARY_NO_BYTES, (omm_bytes){0}));
    OMM_TRY(add_peer(&p, c->canary, &fresh));
    return make_due(c, p);
}

omm_err coord_canary_draw(bool *chosen, omm_coord *c) {
    if (!c->canary || !(c->canary->o->share > 0)) return OMM_OK;
    const double share = c->canary->o->share;
    turn *turns = omm_alloc(c->o.run->node_count, sizeof *turns);
    size_t all = 0, count = 0;
    omm_err err = OMM_OK;
    if (!turns) return omm_raise(OMM_ERR_NOMEM, "turns of %zu nodes", c->o.run->node_count);
    for (uint32_t i = 0; i < c->o.run->node_count; i++) {
        if (!chosen[i] || !c->nodes[i].counts) continue;
        const omm_seed seed =
            lot_of(c, OMM_PURPOSE_SELECT, "omm.turn", c->round, &c->o.run->nodes[i].id);
        const turn one = {omm_get_u32(seed.b), i};
        all++;
        if (one.lot < share * 0x1p32) turns[count++] = one;
    }
    qsort(turns, count, sizeof *turns, by_lot);
    /* A round must still be able to be one. */
    const size_t most = all > c->o.policy.accept_min ? all - c->o.policy.accept_min : 0;
    for (size_t i = 0; i < count && i < most && err == OMM_OK; i++) {
        err = hold(c, turns[i].node);
        if (err == OMM_OK) chosen[turns[i].node] = false;
    }
    omm_free(turns);
    return err;
}

/* ---- chunks of what an offer names ---- */

omm_err coord_canary_get(bool *handled, omm_buf *reply, omm_coord *c, const omm_request *request) {
    *handled = false;
    if (!c->canary) return OMM_OK;
    const coord_canary *w = c->canary;
    const size_t shard = canary_shard_index(w, &request->digest);
    omm_bytes all = omm_buf_view(&w->sent);
    *handled = shard < w->o->shard_count || omm_digest_equal(&request->digest, &w->global.digest);
    if (!*handled) return OMM_OK;
    if (shard < w->o->shard_count) all = w->o->shards[shard].text;
    const omm_bytes chunk = omm_chunk_view(all, request->index);
    if (chunk.size == 0)
        return omm_raise(OMM_ERR_REFUSED_SIZE, "index: %u is beyond the last chunk",
                         request->index);
    if (shard >= w->o->shard_count) c->payload.down = chunk.size;
    const omm_reply r = {
        .kind = OMM_REPLY_CHUNK, .digest = request->digest, .index = request->index, .data = chunk};
    return omm_reply_encode(reply, &r);
}

/* ---- open ---- */

static omm_err check_options(const omm_coord_canaries *o) {
    if (o->shard_count < 1 || o->shard_count > OMM_COORD_SHARDS_MAX)
        return omm_raise(OMM_ERR_CONFIG, "canary: %zu shards; accepted: 1 to %u", o->shard_count,
                         OMM_COORD_SHARDS_MAX);
    if (o->passes > OMM_COORD_CANARY_PASSES_MAX || !(o->share >= 0 && o->share <= 1))
        return omm_raise(OMM_ERR_CONFIG,
                         "canary: passes %u, share %g; accepted: 0 to %u, and 0 to 1", o->passes,
                         o->share, OMM_COORD_CANARY_PASSES_MAX);
    for (size_t i = 0; i < o->shard_count; i++)
        if (o->shards[i].text.size < 1 || o->shards[i].text.size > OMM_CANARY_BYTES_MAX)
            return omm_raise(OMM_ERR_CONFIG, "canary: %s has %zu bytes; accepted: 1 to %u",
                             o->shards[i].name, o->shards[i].text.size, OMM_CANARY_BYTES_MAX);
    return OMM_OK;
}

/* The run's first adapter, as nodes get it: `start` is what they make of it. */
static omm_err make_start(coord_canary *w, const omm_coord *c) {
    omm_digest canonical;
    OMM_TRY(coord_state_initial(&w->start, c));
    omm_buf_init(&w->sent, omm_codec_sent_bytes_max(&c->o.run->codec_down, c->layout));
    OMM_TRY(coord_broadcast_make(&w->sent, &canonical, c, w->start));
    OMM_TRY(
        omm_codec_decode(w->start, NULL, &c->o.run->codec_down, c->layout, omm_buf_view(&w->sent)));
    return omm_blob_describe(&w->global, &w->arena, omm_buf_view(&w->sent), &canonical);
}

static omm_err describe(coord_canary *w, const omm_coord *c) {
    w->shards = omm_arena_alloc(&w->arena, w->o->shard_count, sizeof *w->shards);
    if (!w->shards) return omm_raise(OMM_ERR_NOMEM, "shards");
    for (size_t i = 0; i < w->o->shard_count; i++) {
        const omm_digest digest = omm_hash(w->o->shards[i].text);
        OMM_TRY(omm_blob_describe(&w->shards[i], &w->arena, w->o->shards[i].text, &digest));
    }
    return make_start(w, c);
}

static omm_err open_files(coord_canary *w, const omm_coord *c) {
    char dir[OMM_PATH_MAX] = "", uploads[OMM_PATH_MAX] = "";
    OMM_TRY(canary_store_open(&w->db, c->o.state_dir));
    if (c->o.state_dir) {
        OMM_TRY(omm_path_join(dir, c->o.state_dir, "canaries"));
        OMM_TRY(omm_path_join(uploads, dir, "uploads"));
        OMM_TRY(omm_dir_make(dir));
    }
    const omm_blobs_options blobs = {.dir = c->o.state_dir ? uploads : NULL,
                                     .blob_bytes_max = c->payload_bytes_max,
                                     .durable = c->o.state_dir != NULL,
                                     .db = w->db,
                                     .small_bytes_max = COORD_SMALL_BYTES_MAX};
    return omm_blobs_open(&w->uploads, &blobs);
}

/* Does what was offered still hold: this run's first adapter, one of these shards? */
static omm_err offer_holds(bool *holds, omm_coord *c, canary_peer *p) {
    omm_arena arena;
    omm_envelope envelope;
    omm_offer offer;
    omm_buf bytes;
    *holds = false;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    omm_buf_init(&bytes, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = canary_store_read(&bytes, c->canary->db, &p->id, CANARY_OFFER);
    if (err == OMM_OK && bytes.size > 0 &&
        omm_envelope_open(&envelope, omm_buf_view(&bytes)) == OMM_OK &&
        omm_offer_decode(&offer, envelope.payload, &arena) == OMM_OK)
        *holds = omm_digest_equal(&offer.global.digest, &c->canary->global.digest) &&
                 canary_shard_index(c->canary, &offer.canary.digest) < c->canary->o->shard_count &&
                 strcmp(offer.run_id, c->o.run->run_id) == 0;
    p->offer_digest = omm_hash(omm_buf_view(&bytes));
    omm_buf_fini(&bytes);
    omm_arena_fini(&arena);
    return err;
}

/* What was announced, or answered last. */
static omm_err load_submission(omm_coord *c, canary_peer *p) {
    omm_buf bytes;
    omm_buf_init(&bytes, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = canary_store_read(&bytes, c->canary->db, &p->id, CANARY_SUBMISSION);
    p->submission = omm_hash(omm_buf_view(&bytes));
    if (err == OMM_OK && (p->state == CANARY_UPLOADING || p->state == CANARY_WAITING))
        err = coord_upload_open(&p->upload, &p->submission, omm_buf_view(&bytes));
    omm_buf_fini(&bytes);
    return err;
}

static omm_err load_peer(void *ud, const canary_peer *row) {
    omm_coord *c = ud;
    coord_canary *w = c->canary;
    canary_peer is = *row, *p = NULL;
    bool holds = true;
    is.node = coord_node_find(c, &is.id);
    is.chunk_ms = COORD_BEFORE;
    if (w->peer_count == w->peer_max)
        return omm_raise(OMM_ERR_TOO_BIG, "canary.sqlite: over %zu peers", w->peer_max);
    OMM_TRY(add_peer(&p, w, &is));
    if (p->place > w->places) w->places = p->place;
    if (p->state > CANARY_DUE) OMM_TRY(offer_holds(&holds, c, p));
    if (p->state > CANARY_OFFERED) OMM_TRY(load_submission(c, p));
    if (!holds && p->state <= CANARY_WAITING) return make_due(c, p);
    return OMM_OK;
}

omm_err coord_canary_open(omm_coord *c) {
    if (!c->o.canaries) return OMM_OK;
    OMM_TRY(check_options(c->o.canaries));
    coord_canary *w = omm_alloc(1, sizeof *w);
    if (!w) return omm_raise(OMM_ERR_NOMEM, "canaries");
    c->canary = w;
    w->o = c->o.canaries;
    omm_arena_init(&w->arena, CANARY_ARENA_BYTES);
    w->peer_max = (size_t)OMM_COORD_CANDIDATES_MAX + c->node_max;
    w->peers = omm_alloc(w->peer_max, sizeof(canary_peer *));
    w->of_node = omm_alloc(c->node_max, sizeof(canary_peer *));
    if (!w->peers || !w->of_node) return omm_raise(OMM_ERR_NOMEM, "canaries");
    OMM_TRY(describe(w, c));
    OMM_TRY(open_files(w, c));
    return canary_store_each(w->db, load_peer, c);
}

void coord_canary_close(omm_coord *c) {
    coord_canary *w = c->canary;
    if (!w) return;
    while (w->peer_count > 0) canary_forget_peer(w, w->peers[w->peer_count - 1]);
    if (w->uploads) omm_blobs_close(w->uploads);
    if (w->db) omm_db_close(w->db);
    omm_buf_fini(&w->sent);
    omm_arena_fini(&w->arena);
    omm_free(w->start);
    omm_free(w->peers);
    omm_free(w->of_node);
    omm_free(w);
    c->canary = NULL;
}

void coord_canary_now(omm_coord *c, uint64_t now_ms) {
    if (c->canary) c->canary->now_ms = now_ms;
}

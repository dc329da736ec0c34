/* service.c - the loop around the state machine: one request at a time, heavy work between them. */
#include "omm/coordinator_service.h"

#include "omm/file.h"
#include "omm/mem.h"
#include "omm/transport.h"

#include <stdio.h>
#include <string.h>

#define SERVICE_SLICE_MS 200u /* how soon a stop is noticed */

/* Wire bytes of one node.  Requests for chunks of the global adapter are not signed: they are booked
 * on the node that was heard last at the same address, so totals are exact, shares are not. */
typedef struct wire {
    uint64_t up, down;
    uint64_t heard; /* number of its last request; 0: none */
    char peer[OMM_PEER_SIZE];
} wire;

typedef struct service {
    const omm_coord_service_options *o;
    omm_bundle *bundle;
    omm_coord *coord;
    omm_server *server;
    omm_buf reply;
    uint64_t deadline_ms;
    wire *wires; /* (node_count) */
    size_t node_count;
    uint64_t requests;
} service;

static uint64_t now_ms(const service *s) {
    return s->o->clock.now_ms(s->o->clock.ud);
}

static bool is_stopped(const service *s) {
    return s->o->stop && atomic_load(s->o->stop);
}

static omm_err write_port(const service *s) {
    if (!s->o->port_file) return OMM_OK;
    char text[16];
    (void)snprintf(text, sizeof text, "%u\n", omm_server_port(s->server));
    return omm_file_write(s->o->port_file, omm_bytes_str(text), 0644);
}

/* ---- bytes as they passed ---- */

static void book(service *s, const char *peer, size_t request_bytes, size_t reply_bytes) {
    int32_t node = omm_coord_last_node(s->coord);
    s->requests++;
    for (size_t i = 0; node == OMM_COORD_NOBODY && i < s->node_count; i++)
        if (s->wires[i].heard && strcmp(s->wires[i].peer, peer) == 0 &&
            (node == OMM_COORD_NOBODY || s->wires[i].heard > s->wires[node].heard))
            node = (int32_t)i;
    if (node == OMM_COORD_NOBODY) return;
    wire *w = &s->wires[node];
    if (omm_coord_last_node(s->coord) == node) {
        w->heard = s->requests;
        (void)snprintf(w->peer, sizeof w->peer, "%s", peer);
    }
    w->up += omm_wire_bytes(request_bytes);
    w->down += omm_wire_bytes(reply_bytes);
}

/* Kept from stage to stage: a kill loses the counts since the last one. */
static omm_err keep_wires(const service *s) {
    char path[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(path, s->o->state_dir, "wire"));
    omm_buf bytes;
    omm_buf_init(&bytes, s->node_count * 16);
    omm_err err = OMM_OK;
    for (size_t i = 0; i < s->node_count && err == OMM_OK; i++) {
        err = omm_buf_put_u64(&bytes, s->wires[i].up);
        if (err == OMM_OK) err = omm_buf_put_u64(&bytes, s->wires[i].down);
    }
    if (err == OMM_OK) err = omm_file_write(path, omm_buf_view(&bytes), 0644);
    omm_buf_fini(&bytes);
    return err;
}

static omm_err load_wires(service *s) {
    s->node_count = omm_run_get_record(s->o->run)->node_count;
    s->wires = omm_alloc(s->node_count, sizeof *s->wires);
    if (!s->wires) return omm_raise(OMM_ERR_NOMEM, "counts of %zu nodes", s->node_count);
    char path[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(path, s->o->state_dir, "wire"));
    if (!omm_file_exists(path)) return OMM_OK;
    omm_buf bytes;
    omm_buf_init(&bytes, s->node_count * 16);
    omm_err err = omm_file_read(&bytes, path);
    for (size_t i = 0; err == OMM_OK && bytes.size == s->node_count * 16 && i < s->node_count;
         i++) {
        s->wires[i].up = omm_get_u64(bytes.data + 16 * i);
        s->wires[i].down = omm_get_u64(bytes.data + 16 * i + 8);
    }
    omm_buf_fini(&bytes);
    return err;
}

static omm_err write_wires(const service *s) {
    const omm_run_record *run = omm_run_get_record(s->o->run);
    omm_wire_record record = {.commit = s->o->commit, .node_count = s->node_count};
    memcpy(record.run_id, run->run_id, sizeof record.run_id);
    omm_wire_node *nodes = omm_alloc(s->node_count, sizeof *nodes);
    if (!nodes) return omm_raise(OMM_ERR_NOMEM, "counts of %zu nodes", s->node_count);
    for (size_t i = 0; i < s->node_count; i++)
        nodes[i] = (omm_wire_node){
            .node = run->nodes[i].id, .up = s->wires[i].up, .down = s->wires[i].down};
    record.nodes = nodes;
    omm_buf text;
    omm_buf_init(&text, (size_t)1 << 24);
    omm_err err = omm_wire_record_write(&text, &record);
    if (err == OMM_OK)
        err = omm_bundle_replace(s->bundle, "measured/wire.json", omm_buf_view(&text));
    omm_buf_fini(&text);
    omm_free(nodes);
    return err;
}

/* ---- the loop ---- */

static omm_err open_service(service *s) {
    omm_server_options server = omm_server_options_default();
    omm_coord_options options;
    omm_run_coord_options(&options, s->o->run);
    options.state_dir = s->o->state_dir;
    options.crash_at = s->o->crash_at;
    options.pool = s->o->pool;
    options.log = s->o->log;
    if (s->o->poll_ms) options.policy.poll_ms = s->o->poll_ms;
    OMM_TRY(omm_bundle_open(&s->bundle, s->o->bundle_dir, true));
    options.bundle = s->bundle;
    OMM_TRY(omm_coord_open(&s->coord, &options));
    OMM_TRY(load_wires(s));
    OMM_TRY(omm_server_open(&s->server, &server));
    OMM_TRY(omm_server_listen(s->server, s->o->url));
    OMM_TRY(write_port(s));
    omm_log_event(s->o->log, OMM_LOG_INFO, "listening", OMM_LOG_STR("url", s->o->url),
                  OMM_LOG_INT("port", omm_server_port(s->server)));
    return OMM_OK;
}

static void close_service(service *s) {
    if (s->server) omm_server_close(s->server);
    omm_coord_close(s->coord);
    omm_bundle_close(s->bundle);
    omm_free(s->wires);
    omm_buf_fini(&s->reply);
}

/* Answer one request.  Our own trouble costs the peer its answer, not us the run. */
static omm_err answer(service *s, omm_exchange *exchange, omm_bytes request) {
    omm_err err = omm_coord_step(&s->reply, &s->deadline_ms, s->coord, now_ms(s), request,
                                 omm_exchange_peer(exchange));
    if (err != OMM_OK) {
        omm_log_event(s->o->log, OMM_LOG_ERROR, "request_failed",
                      OMM_LOG_STR("detail", omm_err_detail()));
        omm_exchange_drop(exchange);
        return OMM_OK; /* whatever it is, no peer ends the service */
    }
    if (omm_coord_peer_is_fresh(s->coord)) omm_exchange_trust(exchange);
    book(s, omm_exchange_peer(exchange), request.size, s->reply.size);
    err = omm_exchange_reply(exchange, omm_buf_view(&s->reply));
    if (err != OMM_OK) /* the peer is gone; it will ask again */
        omm_log_event(s->o->log, OMM_LOG_DEBUG, "reply_lost",
                      OMM_LOG_STR("detail", omm_err_sentence()));
    return OMM_OK;
}

static omm_err listen_for(service *s, uint64_t ms) {
    omm_exchange *exchange = NULL;
    omm_bytes request;
    omm_err err = omm_server_receive(&exchange, &request, s->server,
                                     ms < SERVICE_SLICE_MS ? ms : SERVICE_SLICE_MS);
    if (err == OMM_ERR_TIMEOUT) return OMM_OK;
    if (err == OMM_ERR_REFUSED_SIZE) {
        omm_exchange_drop(exchange);
        return OMM_OK;
    }
    OMM_TRY(err);
    return answer(s, exchange, request);
}

static omm_err run_rounds(service *s) {
    while (!omm_coord_is_done(s->coord) && !is_stopped(s)) {
        uint64_t now = now_ms(s);
        if (s->deadline_ms <= now) {
            OMM_TRY(omm_coord_tick(&s->deadline_ms, s->coord, now));
            OMM_TRY(keep_wires(s));
        }
        now = now_ms(s);
        OMM_TRY(listen_for(s, s->deadline_ms <= now ? 0 : s->deadline_ms - now));
    }
    return OMM_OK;
}

static omm_err tell_nodes(service *s) {
    uint64_t begin_ms = now_ms(s);
    while (!omm_coord_all_told(s->coord) && now_ms(s) - begin_ms < s->o->linger_ms &&
           !is_stopped(s))
        OMM_TRY(listen_for(s, SERVICE_SLICE_MS));
    return OMM_OK;
}

static omm_err seal(omm_coord_service_result *result, service *s) {
    omm_bundle_seal_options options = {.key = s->o->bundle_key,
                                       .commit = s->o->commit,
                                       .build = s->o->build,
                                       .machine = s->o->machine,
                                       .wall_ms = s->o->clock.wall_ms(s->o->clock.ud)};
    OMM_TRY(write_wires(s));
    OMM_TRY(omm_bundle_seal(&result->run_digest, &result->judgement, s->bundle, &options));
    result->is_sealed = true;
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, &result->run_digest);
    omm_log_event(s->o->log, OMM_LOG_INFO, "bundle_sealed", OMM_LOG_STR("dir", s->o->bundle_dir),
                  OMM_LOG_STR("run_digest", hex));
    return OMM_OK;
}

static omm_err serve(omm_coord_service_result *result, service *s) {
    OMM_TRY(open_service(s));
    OMM_TRY(run_rounds(s));
    if (!omm_coord_is_done(s->coord)) return OMM_OK;
    OMM_TRY(tell_nodes(s));
    return is_stopped(s) && !omm_coord_all_told(s->coord) ? OMM_OK : seal(result, s);
}

omm_err omm_coord_serve(omm_coord_service_result *result,
                        const omm_coord_service_options *options) {
    *result = (omm_coord_service_result){0};
    service s = {.o = options};
    omm_buf_init(&s.reply, OMM_MESSAGE_BYTES_MAX);
    omm_err err = serve(result, &s);
    close_service(&s);
    if (err != OMM_OK) omm_coord_service_result_fini(result);
    return err;
}

void omm_coord_service_result_fini(omm_coord_service_result *result) {
    if (result->is_sealed) omm_judgement_fini(&result->judgement);
    result->is_sealed = false;
}

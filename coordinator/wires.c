/* wires.c - see wires.h. */
#include "wires.h"

#include "omm/coordinator.h"
#include "omm/evidence.h"
#include "omm/file.h"
#include "omm/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRAFFIC_NUMBERS 4u /* of a node in the file */
#define WIRE_NUMBERS 2u    /* in one of before */
#define CHUNK_OVERHEAD_BYTES                                                                       \
    256u /* a request of 50 bytes and what is around the chunk, with room to spare */

enum { UP, DOWN, UP_PAYLOAD, DOWN_PAYLOAD };

typedef struct wire {
    uint64_t counts[TRAFFIC_NUMBERS]; /* as the file has them: UP, DOWN ... */
    uint64_t heard;                   /* number of its last request; 0: none */
    int connection;                   /* that it came by; 0: none */
    char peer[OMM_PEER_SIZE];
    uint64_t
        owed; /* bytes that connections nobody has named may still be booked on it, in this round */
    uint32_t round; /* that it is of, plus 1; 0: none */
} wire;

struct wires {
    const omm_run_record *run;
    char path[OMM_PATH_MAX];
    uint32_t numbers; /* of a node: TRAFFIC_NUMBERS or WIRE_NUMBERS */
    wire *nodes;      /* (node_max) */
    uint32_t node_max;
    uint32_t *
        by_connection; /* (slots) a node that was heard by a connection of that slot, plus 1; 0: none */
    uint32_t slots; /* a power of two */
    uint64_t requests;
    uint64_t adapter_bytes; /* that a global adapter takes at most, in chunks */
    uint32_t round;
};

static size_t node_bytes(const wires *w) {
    return (size_t)8 * w->numbers;
}

/* Who joined since it was written is not in it. */
static omm_err load(wires *w) {
    if (!omm_file_exists(w->path)) return OMM_OK;
    omm_buf bytes;
    omm_buf_init(&bytes, node_bytes(w) * w->node_max);
    omm_err err = omm_file_read(&bytes, w->path);
    const size_t kept = bytes.size / node_bytes(w);
    for (size_t i = 0; err == OMM_OK && i < w->run->node_count && i < kept; i++)
        for (uint32_t k = 0; k < w->numbers; k++)
            w->nodes[i].counts[k] = omm_get_u64(bytes.data + node_bytes(w) * i + (size_t)8 * k);
    omm_buf_fini(&bytes);
    return err;
}

/* Which file it is. */
static omm_err find(wires *w, const char *state_dir) {
    char traffic[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(w->path, state_dir, "wire"));
    OMM_TRY(omm_path_join(traffic, state_dir, "traffic"));
    if (!omm_file_exists(traffic) && omm_file_exists(w->path)) return OMM_OK;
    w->numbers = TRAFFIC_NUMBERS;
    memcpy(w->path, traffic, sizeof traffic);
    return OMM_OK;
}

/* Each chunk with its request and what frames both. */
static uint64_t adapter_bytes(const omm_run_record *run) {
    const uint64_t most = omm_codec_sent_bytes_max(&run->codec_down, &run->layout);
    return most + omm_chunk_count(most) * CHUNK_OVERHEAD_BYTES;
}

omm_err wires_open(wires **out, const omm_run_record *run, uint32_t node_max,
                   const char *state_dir) {
    wires *w = omm_alloc(1, sizeof *w);
    if (!w) return omm_raise(OMM_ERR_NOMEM, "counts of bytes");
    *w = (wires){.run = run,
                 .numbers = WIRE_NUMBERS,
                 .node_max = node_max,
                 .adapter_bytes = adapter_bytes(run)};
    omm_err err = find(w, state_dir);
    w->nodes = omm_alloc(node_max, sizeof *w->nodes);
    for (w->slots = 1; w->slots < 2 * node_max; w->slots *= 2) {
    }
    w->by_connection = omm_alloc(w->slots, sizeof *w->by_connection);
    if (!w->nodes || !w->by_connection)
        err = omm_raise(OMM_ERR_NOMEM, "counts of %u nodes", node_max);
    if (err == OMM_OK) err = load(w);
    if (err != OMM_OK) {
        wires_close(w);
        return err;
    }
    *out = w;
    return OMM_OK;
}

void wires_close(wires *w) {
    if (!w) return;
    omm_free(w->nodes);
    omm_free(w->by_connection);
    omm_free(w);
}

static uint32_t *slot_of(const wires *w, int connection) {
    return &w->by_connection[(uint32_t)connection & (w->slots - 1)];
}

void wires_round(wires *w, uint32_t round) {
    w->round = round;
}

/* Who was heard last at that address. */
static int32_t last_at(const wires *w, const char *peer) {
    int32_t node = OMM_COORD_NOBODY;
    for (size_t i = 0; i < w->run->node_count; i++)
        if (w->nodes[i].heard && strcmp(w->nodes[i].peer, peer) == 0 &&
            (node == OMM_COORD_NOBODY || w->nodes[i].heard > w->nodes[node].heard))
            node = (int32_t)i;
    return node;
}

/* Who sent what nobody signed: whose connection it came by; else who was heard last at that address, if he may still have
 * so much booked on him. */
static int32_t likely(wires *w, const omm_exchange *exchange, uint64_t bytes) {
    const int connection = omm_exchange_connection(exchange);
    const uint32_t kept = *slot_of(w, connection);
    const bool is_known = kept > 0 && w->nodes[kept - 1].connection == connection;
    const int32_t node = is_known ? (int32_t)kept - 1 : last_at(w, omm_exchange_peer(exchange));
    if (node == OMM_COORD_NOBODY) return node;
    wire *n = &w->nodes[node];
    if (n->round != w->round + 1) {
        n->round = w->round + 1;
        n->owed = w->adapter_bytes;
    }
    if (!is_known && n->owed < bytes) return OMM_COORD_NOBODY;
    n->owed -= n->owed < bytes ? n->owed : bytes;
    return node;
}

static void heard(wires *w, int32_t node, const omm_exchange *exchange) {
    wire *n = &w->nodes[node];
    n->heard = w->requests;
    n->connection = omm_exchange_connection(exchange);
    (void)snprintf(n->peer, sizeof n->peer, "%s", omm_exchange_peer(exchange));
    *slot_of(w, n->connection) = (uint32_t)node + 1;
}

void wires_book(wires *w, int32_t said_by, const omm_exchange *exchange,
                const wires_passed *passed) {
    const uint64_t up = omm_wire_bytes(passed->request_bytes);
    const uint64_t down = omm_wire_bytes(passed->reply_bytes);
    w->requests++;
    if (said_by == WIRES_BASE) return;
    const int32_t node = said_by == OMM_COORD_NOBODY ? likely(w, exchange, up + down) : said_by;
    if (node == OMM_COORD_NOBODY) return;
    if (said_by == node) heard(w, node, exchange);
    uint64_t *counts = w->nodes[node].counts;
    counts[UP] += up;
    counts[DOWN] += down;
    counts[UP_PAYLOAD] += passed->payload.up;
    counts[DOWN_PAYLOAD] += passed->payload.down;
}

int wires_connection(const wires *w, size_t node) {
    return w->nodes[node].connection;
}

watch_wire wires_of(void *ud, size_t i) {
    const wires *w = ud;
    return (watch_wire){w->nodes[i].counts[UP], w->nodes[i].counts[DOWN]};
}

omm_err wires_keep(const wires *w) {
    omm_buf bytes;
    omm_buf_init(&bytes, node_bytes(w) * w->node_max);
    omm_err err = OMM_OK;
    for (size_t i = 0; i < w->run->node_count && err == OMM_OK; i++)
        for (uint32_t k = 0; k < w->numbers && err == OMM_OK; k++)
            err = omm_buf_put_u64(&bytes, w->nodes[i].counts[k]);
    if (err == OMM_OK) err = omm_file_write(w->path, omm_buf_view(&bytes), 0644);
    omm_buf_fini(&bytes);
    return err;
}

static int by_node(const void *a, const void *b) {
    return omm_digest_compare(&((const omm_wire_node *)a)->node, &((const omm_wire_node *)b)->node);
}

omm_err wires_write(const wires *w, omm_bundle *bundle, const char *commit) {
    omm_wire_record record = {.commit = commit,
                              .node_count = w->run->node_count,
                              .has_payloads = w->numbers == TRAFFIC_NUMBERS};
    memcpy(record.run_id, w->run->run_id, sizeof record.run_id);
    omm_wire_node *nodes = omm_alloc(w->node_max, sizeof *nodes);
    if (!nodes) return omm_raise(OMM_ERR_NOMEM, "counts of %zu nodes", w->run->node_count);
    for (size_t i = 0; i < w->run->node_count; i++) {
        const uint64_t *counts = w->nodes[i].counts;
        nodes[i] = (omm_wire_node){.node = w->run->nodes[i].id,
                                   .up = counts[UP],
                                   .down = counts[DOWN],
                                   .up_payload = counts[UP_PAYLOAD],
                                   .down_payload = counts[DOWN_PAYLOAD]};
    }
    qsort(nodes, w->run->node_count, sizeof *nodes, by_node);
    record.nodes = nodes;
    omm_buf text;
    omm_buf_init(&text, (size_t)1 << 24);
    omm_err err = omm_wire_record_write(&text, &record);
    if (err == OMM_OK) err = omm_bundle_replace(bundle, "measured/wire.json", omm_buf_view(&text));
    omm_buf_fini(&text);
    omm_free(nodes);
    return err;
}

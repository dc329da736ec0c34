/* meter.c - see meter.h. */
#include "meter.h"

#include "omm/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ADDRESSES_MAX 256u /* as many as there can be connections nobody vouched for */

typedef struct window {
    bool is_open;
    uint64_t begin_ms, messages, bytes;
} window;

typedef struct address_window {
    char address[OMM_PEER_SIZE];
    window window;
} address_window;

struct meter {
    meter_limits limits;
    size_t node_count;
    window *nodes; /* (node_count) */
    address_window addresses[ADDRESSES_MAX];
    window *last;
};

omm_err meter_open(meter **out, size_t node_count, const meter_limits *limits) {
    meter *m = omm_alloc(1, sizeof *m);
    window *nodes = omm_alloc(node_count, sizeof *nodes);
    if (!m || !nodes) {
        omm_free(m);
        omm_free(nodes);
        return omm_raise(OMM_ERR_NOMEM, "allowances of %zu nodes", node_count);
    }
    m->limits = *limits;
    m->node_count = node_count;
    m->nodes = nodes;
    *out = m;
    return OMM_OK;
}

void meter_close(meter *m) {
    if (!m) return;
    omm_free(m->nodes);
    omm_free(m);
}

/* Of an address, else the place of the one whose minute began first. */
static window *find_address(meter *m, const char *address) {
    address_window *oldest = &m->addresses[0];
    for (size_t i = 0; i < ADDRESSES_MAX; i++) {
        address_window *a = &m->addresses[i];
        if (strcmp(a->address, address) == 0) return &a->window;
        if (oldest->window.is_open &&
            (!a->window.is_open || a->window.begin_ms < oldest->window.begin_ms))
            oldest = a;
    }
    *oldest = (address_window){0};
    (void)snprintf(oldest->address, sizeof oldest->address, "%s", address);
    return &oldest->window;
}

static bool is_over(uint64_t value, uint64_t max, const char *what) {
    if (max == 0 || value < max) return false;
    (void)omm_raise(OMM_ERR_REFUSED_BUDGET, "%s: %" PRIu64 " within a minute, at most %" PRIu64,
                    what, value, max);
    return true;
}

uint64_t meter_take(meter *m, int32_t node, const char *address, uint64_t now_ms, size_t bytes) {
    OMM_ASSERT(node < 0 || (size_t)node < m->node_count);
    window *w = node >= 0 ? &m->nodes[node] : find_address(m, address);
    if (!w->is_open || now_ms - w->begin_ms >= METER_WINDOW_MS)
        *w = (window){.is_open = true, .begin_ms = now_ms};
    if (is_over(w->messages, m->limits.messages, "messages") ||
        is_over(w->bytes, m->limits.bytes, "bytes"))
        return w->begin_ms + METER_WINDOW_MS - now_ms;
    w->messages++;
    w->bytes += omm_wire_bytes(bytes);
    m->last = w;
    return 0;
}

void meter_add(meter *m, size_t bytes) {
    OMM_ASSERT(m->last);
    m->last->bytes += omm_wire_bytes(bytes);
}

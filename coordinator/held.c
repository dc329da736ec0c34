/* held.c - see held.h. */
#include "held.h"

bool held_has_room(const held *h) {
    return h->count < HELD_MAX && h->bytes < HELD_BYTES_MAX;
}

omm_err held_take(held *h, omm_exchange *exchange, int32_t said_by, size_t request_bytes,
                  omm_bytes reply) {
    OMM_ASSERT(h->count < HELD_MAX);
    OMM_TRY(omm_exchange_hold(exchange, reply));
    h->items[h->count++] = (held_answer){.exchange = exchange,
                                         .said_by = said_by,
                                         .request_bytes = request_bytes,
                                         .reply_bytes = reply.size};
    h->bytes += request_bytes + reply.size;
    return OMM_OK;
}

void held_payload(held *h, omm_coord_payload payload) {
    OMM_ASSERT(h->count > 0);
    h->items[h->count - 1].payload = payload;
}

void held_replace(held *h, omm_bytes reply) {
    size_t kept = 0;
    for (size_t i = 0; i < h->count; i++) {
        if (omm_exchange_hold(h->items[i].exchange, reply) != OMM_OK) continue;
        h->items[kept] = h->items[i];
        h->items[kept].payload.down = 0;
        h->items[kept++].reply_bytes = reply.size;
    }
    h->count = kept;
}

void held_send(held *h, held_sent_fn sent, void *ud) {
    for (size_t i = 0; i < h->count; i++) {
        sent(ud, &h->items[i]);
        omm_exchange_send(h->items[i].exchange);
    }
    h->count = h->bytes = 0;
}

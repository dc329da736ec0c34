/* stops.c - stop texts in a stream of pieces. */
#include "omm/stops.h"

#include <string.h>

enum { PIECE_MAX = 1 << 28 };

void omm_stops_init(omm_stops *stops) {
    memset(stops, 0, sizeof *stops);
    omm_buf_init(&stops->held, PIECE_MAX);
}

void omm_stops_fini(omm_stops *stops) {
    omm_buf_fini(&stops->held);
    memset(stops, 0, sizeof *stops);
}

omm_err omm_stops_add(omm_stops *stops, omm_bytes text) {
    if (text.size < 1 || text.size > OMM_STOP_BYTES_MAX)
        return omm_raise(OMM_ERR_USAGE, "a stop text of %zu bytes, accepted are 1 to %u", text.size,
                         OMM_STOP_BYTES_MAX);
    if (stops->count == OMM_STOPS_MAX)
        return omm_raise(OMM_ERR_USAGE, "more than %u stop texts", OMM_STOPS_MAX);
    stops->texts[stops->count++] = text;
    return OMM_OK;
}

/* Where the first stop text begins, or the size of `held`. */
static size_t find_first(const omm_stops *s, omm_bytes held) {
    size_t first = held.size;
    for (size_t i = 0; i < s->count; i++) {
        omm_bytes stop = s->texts[i];
        const uint8_t *at =
            held.size > 0 ? memmem(held.data, held.size, stop.data, stop.size) : NULL;
        if (at && (size_t)(at - held.data) < first) first = (size_t)(at - held.data);
    }
    return first;
}

/* Size of the longest end of `held` that a stop text begins with. */
static size_t may_grow(const omm_stops *s, omm_bytes held) {
    size_t longest = 0;
    for (size_t i = 0; i < s->count; i++) {
        size_t size = s->texts[i].size - 1;
        if (size > held.size) size = held.size;
        while (size > longest && memcmp(held.data + held.size - size, s->texts[i].data, size) != 0)
            size--;
        if (size > longest) longest = size;
    }
    return longest;
}

/* Give the first `size` held bytes, drop `drop`. */
static omm_err give(omm_buf *out, omm_stops *s, size_t size, size_t drop) {
    OMM_TRY(omm_buf_append(out, s->held.data, size));
    s->held.size -= drop;
    if (s->held.size > 0) memmove(s->held.data, s->held.data + drop, s->held.size);
    return OMM_OK;
}

omm_err omm_stops_push(omm_buf *out, omm_stops *stops, omm_bytes text) {
    if (stops->stopped || text.size == 0) return OMM_OK;
    size_t before = stops->held.size;
    OMM_TRY(omm_buf_append(&stops->held, text.data, text.size));
    omm_bytes held = omm_buf_view(&stops->held);
    size_t first = find_first(stops, held);
    bool found = first < held.size;
    size_t ready = found ? first : held.size - may_grow(stops, held);
    omm_err err = give(out, stops, ready, found ? held.size : ready);
    if (err != OMM_OK)
        stops->held.size = before;
    else
        stops->stopped = found;
    return err;
}

omm_err omm_stops_flush(omm_buf *out, omm_stops *stops) {
    return give(out, stops, stops->held.size, stops->held.size);
}

/* events.c - a binary heap of events; (time, node, sequence) is a total order, so every run of one
 * scenario handles the same events in the same order. */
#include "internal.h"
#include "omm/mem.h"

void sim_queue_init(sim_queue *queue) {
    *queue = (sim_queue){0};
}

void sim_queue_fini(sim_queue *queue) {
    omm_free(queue->events);
    *queue = (sim_queue){0};
}

static bool is_before(const sim_event *a, const sim_event *b) {
    if (a->at_ms != b->at_ms) return a->at_ms < b->at_ms;
    if (a->node != b->node) return a->node < b->node;
    return a->sequence < b->sequence;
}

static void swap(sim_event *a, sim_event *b) {
    sim_event t = *a;
    *a = *b;
    *b = t;
}

omm_err sim_queue_push(sim_queue *queue, uint64_t at_ms, uint32_t node, sim_event_kind kind) {
    if (queue->count == queue->capacity) {
        size_t capacity = queue->capacity ? queue->capacity * 2 : 64;
        sim_event *grown = omm_grow(queue->events, queue->capacity, capacity, sizeof *grown);
        if (!grown) return omm_raise(OMM_ERR_NOMEM, "%zu events", capacity);
        queue->events = grown;
        queue->capacity = capacity;
    }
    size_t i = queue->count++;
    queue->events[i] = (sim_event){at_ms, queue->next_sequence++, node, kind};
    for (; i > 0 && is_before(&queue->events[i], &queue->events[(i - 1) / 2]); i = (i - 1) / 2)
        swap(&queue->events[i], &queue->events[(i - 1) / 2]);
    return OMM_OK;
}

bool sim_queue_pop(sim_event *out, sim_queue *queue) {
    if (queue->count == 0) return false;
    *out = queue->events[0];
    queue->events[0] = queue->events[--queue->count];
    for (size_t i = 0;;) {
        size_t least = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2 && child < queue->count; child++)
            if (is_before(&queue->events[child], &queue->events[least])) least = child;
        if (least == i) return true;
        swap(&queue->events[i], &queue->events[least]);
        i = least;
    }
}

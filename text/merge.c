/* merge.c - a binary heap of proposed merges, and the list they act on. */
#include "tokenizer_internal.h"

#include "omm/mem.h"

#include <string.h>

enum { NODES_MIN = 256, HEAP_MIN = 256 };

void merge_work_fini(merge_work *work) {
    omm_free(work->nodes);
    omm_free(work->heap);
    memset(work, 0, sizeof *work);
}

omm_err merge_reserve(merge_work *work, size_t nodes) {
    work->heap_count = 0;
    if (nodes <= work->node_capacity) return OMM_OK;
    size_t capacity = nodes < NODES_MIN ? NODES_MIN : nodes;
    merge_node *grown = omm_alloc(capacity, sizeof *grown); /* the old contents are not needed */
    if (!grown) return omm_raise(OMM_ERR_NOMEM, "tokenizer: %zu symbols", capacity);
    omm_free(work->nodes);
    work->nodes = grown;
    work->node_capacity = capacity;
    return OMM_OK;
}

omm_err merge_push(merge_work *work, const merge_item *item) {
    if (work->heap_count == work->heap_capacity) {
        size_t capacity = work->heap_capacity ? 2 * work->heap_capacity : HEAP_MIN;
        merge_item *grown = omm_grow(work->heap, work->heap_capacity, capacity, sizeof *grown);
        if (!grown) return omm_raise(OMM_ERR_NOMEM, "tokenizer: %zu proposed merges", capacity);
        work->heap = grown;
        work->heap_capacity = capacity;
    }
    merge_item *heap = work->heap;
    size_t i = work->heap_count++;
    for (; i > 0 && heap[(i - 1) / 2].key > item->key; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = *item;
    return OMM_OK;
}

bool merge_pop(merge_item *out, merge_work *work) {
    if (work->heap_count == 0) return false;
    merge_item *heap = work->heap;
    *out = heap[0];
    const merge_item last = heap[--work->heap_count];
    size_t n = work->heap_count;
    size_t i = 0;
    for (size_t child = 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && heap[child + 1].key < heap[child].key) child++;
        if (heap[child].key >= last.key) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return true;
}

void merge_unlink(merge_work *work, uint32_t left, uint32_t right) {
    merge_node *nodes = work->nodes;
    uint32_t next = nodes[right].next;
    nodes[left].next = next;
    if (next != MERGE_END) nodes[next].prev = left;
    nodes[right].symbol = MERGE_END;
    nodes[right].size = 0;
}

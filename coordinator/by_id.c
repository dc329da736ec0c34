/* by_id.c - the nodes of a run in ascending order of their ids, which is how wire and evidence have them. */
#include "enrol.h"

#include "omm/mem.h"

#include <stdlib.h>

int32_t coord_node_find(const omm_coord *c, const omm_digest *id) {
    size_t low = 0;
    size_t high = c->o.run->node_count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        int order = omm_digest_compare(&c->o.run->nodes[c->by_id[mid]].id, id);
        if (order == 0) return (int32_t)c->by_id[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return COORD_ANONYMOUS;
}

void enrol_take_place(omm_coord *c, uint32_t index) {
    size_t at = index;
    const omm_digest *id = &c->o.run->nodes[index].id;
    while (at > 0 && omm_digest_compare(&c->o.run->nodes[c->by_id[at - 1]].id, id) > 0) {
        c->by_id[at] = c->by_id[at - 1];
        at--;
    }
    c->by_id[at] = index;
}

omm_err coord_record_write(omm_buf *out, const omm_coord *c, size_t count) {
    omm_run_record record = *c->o.run;
    omm_run_node *nodes = omm_alloc(record.node_count + 1, sizeof *nodes);
    if (!nodes) return omm_raise(OMM_ERR_NOMEM, "%zu nodes", record.node_count);
    size_t taken = 0;
    for (size_t i = 0; i < record.node_count; i++)
        if (c->by_id[i] < count) nodes[taken++] = c->o.run->nodes[c->by_id[i]];
    record.nodes = nodes;
    record.node_count = taken;
    omm_err err = omm_run_record_write(out, &record);
    omm_free(nodes);
    return err;
}

typedef struct ordered {
    omm_digest id;
    coord_row row;
} ordered;

static int by_id_then_digest(const void *a, const void *b) {
    const ordered *x = a;
    const ordered *y = b;
    if ((x->row.node < 0) != (y->row.node < 0)) return x->row.node < 0 ? -1 : 1;
    int order = omm_digest_compare(&x->id, &y->id);
    return order ? order : omm_digest_compare(&x->row.digest, &y->row.digest);
}

omm_err coord_rows_by_id(coord_row *rows, size_t count, const omm_coord *c) {
    if (!c->enrol || c->o.run->node_count == c->enrol->listed) return OMM_OK; /* they are */
    ordered *items = omm_alloc(count, sizeof *items);
    if (!items) return count ? omm_raise(OMM_ERR_NOMEM, "%zu submissions", count) : OMM_OK;
    for (size_t i = 0; i < count; i++) {
        items[i].row = rows[i];
        if (rows[i].node >= 0) items[i].id = c->o.run->nodes[rows[i].node].id;
    }
    qsort(items, count, sizeof *items, by_id_then_digest);
    for (size_t i = 0; i < count; i++) rows[i] = items[i].row;
    omm_free(items);
    return OMM_OK;
}

/* overlap.c - see overlap.h. */
#include "omm/overlap.h"

#include "omm/data_reader.h"
#include "omm/hash.h"
#include "omm/mem.h"

#include <stdlib.h>

/* --- marks ----------------------------------------------------------------------------------- */

omm_mark omm_mark_of(const omm_example *e, uint32_t tokens) {
    const size_t count = e->count < tokens ? e->count : tokens;
    const omm_digest digest = omm_hash(omm_bytes_of(e->ids, count * sizeof *e->ids));
    return (omm_mark){.hash = omm_get_u64(digest.b), .place = e->element ? e->element : e->line};
}

omm_err omm_marks_add(omm_marks *m, omm_mark mark) {
    if (m->count == m->capacity) {
        const size_t wanted = m->capacity ? 2 * m->capacity : 1024;
        omm_mark *rows = omm_grow(m->rows, m->capacity, wanted, sizeof *rows);
        if (!rows) return omm_raise(OMM_ERR_NOMEM, "no memory for the digests of the examples");
        m->rows = rows;
        m->capacity = wanted;
    }
    m->rows[m->count++] = mark;
    return OMM_OK;
}

static int in_order(const void *a, const void *b) {
    const omm_mark *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

void omm_marks_sort(omm_marks *m) {
    if (m->count) qsort(m->rows, m->count, sizeof *m->rows, in_order);
}

void omm_marks_meet(const omm_marks *m, omm_mark mark) {
    size_t low = 0, high = m->count; /* the first that is not below */
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (m->rows[mid].hash < mark.hash)
            low = mid + 1;
        else
            high = mid;
    }
    for (; low < m->count && m->rows[low].hash == mark.hash && m->rows[low].met == 0; low++)
        m->rows[low].met = mark.place;
}

void omm_marks_fini(omm_marks *m) {
    omm_free(m->rows);
    *m = (omm_marks){0};
}

/* --- what is shared -------------------------------------------------------------------------- */

/* Among the first by place, of which there are few; without one nobody finds it. */
static void show(omm_overlap *o, const omm_mark *mark) {
    size_t at = o->shown;
    if (mark->place == 0) return;
    if (at == OMM_OVERLAP_SHOWN && mark->place >= o->first[at - 1].place) return;
    if (at < OMM_OVERLAP_SHOWN)
        o->shown++;
    else
        at--;
    for (; at > 0 && o->first[at - 1].place > mark->place; at--) o->first[at] = o->first[at - 1];
    o->first[at] = *mark;
}

omm_overlap omm_marks_overlap(const omm_marks *m) {
    omm_overlap o = {0};
    for (size_t i = 0; i < m->count; i++) {
        if (m->rows[i].met == 0) continue;
        o.count++;
        show(&o, &m->rows[i]);
    }
    return o;
}

omm_overlap omm_marks_doubles(const omm_marks *marks) {
    omm_overlap o = {0};
    size_t first = 0;
    for (size_t i = 1; i < marks->count; i++) {
        if (marks->rows[i].hash != marks->rows[first].hash) {
            first = i;
            continue;
        }
        omm_mark mark = marks->rows[i];
        mark.met = marks->rows[first].place;
        o.count++;
        show(&o, &mark);
    }
    return o;
}

/* --- data sets --------------------------------------------------------------------------- */

static omm_err mark_all(omm_marks *marks, const omm_dataset *data, uint32_t tokens) {
    for (size_t i = 0; i < omm_dataset_count(data); i++)
        OMM_TRY(omm_marks_add(marks, omm_mark_of(omm_dataset_example(data, i), tokens)));
    omm_marks_sort(marks);
    return OMM_OK;
}

static omm_err meet_all(const omm_marks *marks, const omm_dataset *data, uint32_t tokens) {
    omm_data_reader *reader = NULL;
    /* each example once, in order */
    const omm_data_reader_options once = {.cache_bytes_max = 1, .no_replies = true};
    omm_err err = omm_data_reader_open(&reader, data, &once);
    for (size_t i = 0; err == OMM_OK && i < omm_dataset_count(data); i++) {
        omm_example e;
        err = omm_data_reader_take(reader, &e, i);
        if (err != OMM_OK) break;
        omm_mark mark = omm_mark_of(&e, tokens);
        if (mark.place == 0) mark.place = (uint32_t)i + 1;
        omm_marks_meet(marks, mark);
        omm_data_reader_release(reader);
    }
    omm_data_reader_close(reader);
    return err;
}

omm_err omm_dataset_doubles(omm_overlap *out, const omm_dataset *data) {
    omm_marks marks = {0};
    const omm_err err = mark_all(&marks, data, UINT32_MAX);
    if (err == OMM_OK) *out = omm_marks_doubles(&marks);
    omm_marks_fini(&marks);
    return err;
}

omm_err omm_dataset_overlap(omm_overlap *out, const omm_dataset *held_out,
                            const omm_dataset *data) {
    omm_marks marks = {0};
    const uint32_t tokens = omm_dataset_seq_max(data);
    omm_err err = mark_all(&marks, held_out, tokens);
    if (err == OMM_OK) err = meet_all(&marks, data, tokens);
    if (err == OMM_OK) *out = omm_marks_overlap(&marks);
    omm_marks_fini(&marks);
    return err;
}

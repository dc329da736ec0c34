/* data_marks.c - see data_marks.h. */
#include "data_marks.h"

#include "omm/data_reader.h"
#include "omm/hash.h"
#include "omm/mem.h"

#include <stdlib.h>

/* --- marks ----------------------------------------------------------------------------------- */

uint64_t data_mark_of(const omm_example *e, uint32_t tokens) {
    const size_t count = e->count < tokens ? e->count : tokens;
    const omm_digest digest = omm_hash(omm_bytes_of(e->ids, count * sizeof *e->ids));
    return omm_get_u64(digest.b);
}

omm_err data_marks_add(data_marks *m, uint64_t hash, uint32_t line) {
    if (m->count == m->capacity) {
        const size_t wanted = m->capacity ? 2 * m->capacity : 1024;
        data_mark *rows = omm_grow(m->rows, m->capacity, wanted, sizeof *rows);
        if (!rows) return omm_raise(OMM_ERR_NOMEM, "no memory for the digests of the examples");
        m->rows = rows;
        m->capacity = wanted;
    }
    m->rows[m->count++] = (data_mark){.hash = hash, .line = line};
    return OMM_OK;
}

static int in_order(const void *a, const void *b) {
    const data_mark *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return (x->line > y->line) - (x->line < y->line);
}

void data_marks_sort(data_marks *m) {
    if (m->count) qsort(m->rows, m->count, sizeof *m->rows, in_order);
}

void data_marks_meet(const data_marks *m, uint64_t hash, uint32_t where) {
    size_t low = 0, high = m->count; /* the first that is not below */
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (m->rows[mid].hash < hash)
            low = mid + 1;
        else
            high = mid;
    }
    for (; low < m->count && m->rows[low].hash == hash && m->rows[low].met == 0; low++)
        m->rows[low].met = where;
}

void data_marks_fini(data_marks *m) {
    omm_free(m->rows);
    *m = (data_marks){0};
}

/* --- what is shared -------------------------------------------------------------------------- */

/* Among the first by line, of which there are few; without one nobody finds it. */
static void show(data_shared *s, const data_mark *mark) {
    size_t at = s->shown;
    if (mark->line == 0) return;
    if (at == DATA_PAIRS_SHOWN && mark->line >= s->first[at - 1].line) return;
    if (at < DATA_PAIRS_SHOWN)
        s->shown++;
    else
        at--;
    for (; at > 0 && s->first[at - 1].line > mark->line; at--) s->first[at] = s->first[at - 1];
    s->first[at] = *mark;
}

data_shared data_shared_of(const data_marks *m) {
    data_shared s = {0};
    for (size_t i = 0; i < m->count; i++) {
        if (m->rows[i].met == 0) continue;
        s.count++;
        show(&s, &m->rows[i]);
    }
    return s;
}

json_t *data_shared_json(const data_shared *s) {
    json_t *pairs = json_array();
    for (size_t i = 0; i < s->shown; i++)
        json_array_append_new(
            pairs, json_pack("[I,I]", (json_int_t)s->first[i].met, (json_int_t)s->first[i].line));
    return pairs;
}

/* --- two data sets --------------------------------------------------------------------------- */

static omm_err mark_all(data_marks *marks, const omm_dataset *data, uint32_t tokens) {
    for (size_t i = 0; i < omm_dataset_count(data); i++) {
        const omm_example *e = omm_dataset_example(data, i);
        OMM_TRY(data_marks_add(marks, data_mark_of(e, tokens), e->line));
    }
    data_marks_sort(marks);
    return OMM_OK;
}

static omm_err meet_all(const data_marks *marks, const omm_dataset *data, uint32_t tokens) {
    omm_data_reader *reader = NULL;
    omm_err err = omm_data_reader_open(&reader, data);
    for (size_t i = 0; err == OMM_OK && i < omm_dataset_count(data); i++) {
        omm_example e;
        err = omm_data_reader_take(reader, &e, i);
        if (err != OMM_OK) break;
        data_marks_meet(marks, data_mark_of(&e, tokens), e.line ? e.line : (uint32_t)i + 1);
        omm_data_reader_release(reader);
    }
    omm_data_reader_close(reader);
    return err;
}

omm_err data_shared_find(data_shared *out, const omm_dataset *held_out, const omm_dataset *data) {
    data_marks marks = {0};
    const uint32_t tokens = omm_dataset_seq_max(data);
    omm_err err = mark_all(&marks, held_out, tokens);
    if (err == OMM_OK) err = meet_all(&marks, data, tokens);
    if (err == OMM_OK) *out = data_shared_of(&marks);
    data_marks_fini(&marks);
    return err;
}

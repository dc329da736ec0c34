/* sequence.c - which examples a step trains on; see sequence.h. */
#include "sequence.h"

#include "omm/documents.h"
#include "omm/mem.h"

#include <string.h>

static omm_err no_memory(size_t count) {
    return omm_raise(OMM_ERR_NOMEM, "no memory for %zu examples", count);
}

/* List what has something to learn. */
static omm_err take_kept(sequence *s) {
    const omm_dataset *data = s->options.data;
    size_t all = omm_dataset_count(data);
    s->kept = omm_alloc(all, sizeof *s->kept);
    if (!s->kept) return no_memory(all);
    s->longest = 1;
    for (size_t i = 0; i < all; i++) {
        uint32_t tokens = 0, learned = 0;
        omm_dataset_size(&tokens, &learned, data, i, s->options.seq_max);
        if (learned == 0) continue;
        if (tokens > s->longest) s->longest = tokens;
        s->kept[s->count++] = (uint32_t)i;
    }
    if (s->count > 0) return OMM_OK;
    return omm_raise(OMM_ERR_NOT_FOUND, "no example has a learned token within %u tokens",
                     s->options.seq_max);
}

/* An example has at least two tokens: one to predict another from. */
static omm_err take_memory(sequence *s) {
    s->batch_max = s->options.batch_tokens / 2 + 1;
    if (s->batch_max > s->count) s->batch_max = s->count;
    s->order = omm_alloc(s->count, sizeof *s->order);
    s->drawn = omm_alloc(s->options.listed ? s->count : 1, sizeof *s->drawn);
    s->examples = omm_alloc(s->batch_max, sizeof *s->examples);
    s->batch = omm_alloc(s->batch_max, sizeof(void *)); /* pointers */
    return s->order && s->drawn && s->examples && s->batch ? OMM_OK : no_memory(s->count);
}

omm_err sequence_open(sequence *s, const sequence_options *options) {
    const omm_dataset *data = options->data;
    *s = (sequence){.options = *options, .epoch = UINT64_MAX};
    if (omm_dataset_is_stream(data) && omm_dataset_seq_max(data) > options->seq_max)
        return omm_raise(OMM_ERR_CONFIG,
                         "the stream was indexed with examples of %u tokens, training wants %u",
                         omm_dataset_seq_max(data), options->seq_max);
    OMM_TRY(take_kept(s));
    OMM_TRY(take_memory(s));
    const omm_data_reader_options reader = {.cache_bytes_max = options->cache_bytes_max,
                                            .no_replies = true};
    return omm_data_reader_open(&s->reader, data, &reader);
}

/* A batch lies in an arena, which doubles. */
uint64_t sequence_bytes(const sequence *s) {
    const uint64_t drawn = s->options.listed ? s->count : 1;
    const uint64_t lists = (2 * s->count + drawn) * sizeof(uint32_t) +
                           s->batch_max * (sizeof *s->examples + sizeof(const omm_example *));
    if (!omm_dataset_is_stream(s->options.data)) return lists;
    const uint64_t most =
        s->longest > s->options.batch_tokens ? s->longest : s->options.batch_tokens;
    const uint64_t names = s->batch_max * 2 * (OMM_DATASET_NAME_BYTES_MAX + OMM_ARENA_ALIGN);
    const uint64_t batch =
        most * (sizeof(uint32_t) + 1) + s->batch_max * 2 * OMM_ARENA_ALIGN + names;
    return lists + 2 * batch + OMM_ARENA_BLOCK_BYTES;
}

void sequence_close(sequence *s) {
    omm_data_reader_close(s->reader);
    omm_free(s->kept);
    omm_free(s->order);
    omm_free(s->drawn);
    omm_free(s->examples);
    omm_free(s->batch);
}

/* The order so far, by text: within one it stays as it was drawn. */
static void sort_by_text(sequence *s) {
    const omm_dataset *data = s->options.data;
    size_t done = 0, first = 0;
    memcpy(s->drawn, s->order, s->count * sizeof *s->drawn);
    for (size_t text = 0; done < s->count; text++) {
        const size_t end = omm_dataset_text_end(data, text);
        for (size_t i = 0; i < s->count; i++) {
            const uint32_t index = s->kept[s->drawn[i]];
            if (index >= first && index < end) s->order[done++] = s->drawn[i];
        }
        first = end;
    }
}

/* Index in the data set of the example at a place in the endless run. */
static uint32_t index_at(sequence *s, uint64_t position) {
    uint64_t epoch = position / s->count;
    if (epoch != s->epoch) {
        omm_rng lane =
            omm_rng_init(&s->options.seed, OMM_PURPOSE_SHUFFLE, s->options.lane, (uint32_t)epoch);
        for (size_t i = 0; i < s->count; i++) s->order[i] = (uint32_t)i;
        omm_rng_shuffle_u32(s->order, s->count, &lane, 0);
        if (s->options.listed) sort_by_text(s);
        s->epoch = epoch;
    }
    return s->kept[s->order[position % s->count]];
}

omm_err sequence_take(sequence *s, size_t *count, uint64_t *tokens, uint64_t *learned,
                      uint64_t position) {
    *count = 0;
    *tokens = *learned = 0;
    omm_data_reader_release(s->reader);
    while (*count < s->batch_max) {
        uint32_t size = 0, learn_count = 0, index = index_at(s, position + *count);
        omm_dataset_size(&size, &learn_count, s->options.data, index, s->options.seq_max);
        if (*count && *tokens + size > s->options.batch_tokens) break;
        omm_example *e = &s->examples[*count];
        OMM_TRY(omm_data_reader_take(s->reader, e, index));
        e->count = size;
        e->learn_count = learn_count;
        s->batch[(*count)++] = e;
        *tokens += size;
        *learned += learn_count;
    }
    return OMM_OK;
}

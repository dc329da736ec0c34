/* stream.c - see stream.h. */
#include "stream.h"

#include "omm/gguf.h"
#include "omm/mem.h"
#include "omm/packed.h"

/* Of one target, over the layers from `resident` on. */
static uint64_t most_packed(const omm_model *model, uint32_t resident, unsigned target) {
    uint64_t most = 0;
    for (uint32_t i = resident; i < model->dims.layers; i++) {
        const uint64_t bytes = omm_matrix_bytes(&model->layers[i].weights[target]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

uint64_t model_stream_room_bytes(const omm_model *model, uint32_t resident) {
    uint64_t sum = 0;
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) sum += most_packed(model, resident, t);
    return sum;
}

uint64_t model_stream_page_bytes(const omm_model *model, uint32_t resident) {
    uint64_t most = 0;
    for (uint32_t i = resident; i < model->dims.layers; i++)
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
            const omm_matrix *m = &model->layers[i].weights[t];
            const uint64_t bytes = m->rows * (uint64_t)omm_format_row_bytes(m->format, m->cols);
            most = bytes > most ? bytes : most;
        }
    return most;
}

omm_err model_stream_init(model_stream *s, const omm_model *model) {
    *s = (model_stream){.model = model, .index = UINT32_MAX};
    if (!model->gguf) return OMM_OK; /* nothing is packed */
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
        s->room_bytes[t] = (size_t)most_packed(model, model->resident, t);
        s->rooms[t] = (uint8_t *)omm_alloc_huge(s->room_bytes[t]);
        if (s->rooms[t]) continue;
        model_stream_fini(s);
        return omm_raise(OMM_ERR_NOMEM, "no memory for a streamed layer");
    }
    return OMM_OK;
}

void model_stream_fini(model_stream *s) {
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
        omm_free_huge(s->rooms[t], s->room_bytes[t]);
    *s = (model_stream){0};
}

static void prefetch(const omm_model *model, uint32_t index) {
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
        const omm_bytes rows = model->layers[index].rows[t];
        if (model->packed)
            omm_map_prefetch(&model->packed->map, rows);
        else
            omm_gguf_prefetch(model->gguf, rows);
    }
}

/* Of a packed copy the layer at hand lies in the map; what is let go is the one before it. */
static void go_on_to(model_stream *s, uint32_t index) {
    const omm_model *model = s->model;
    for (unsigned t = 0; s->index < model->dims.layers && t < OMM_LORA_TARGET_COUNT; t++)
        omm_map_release(&model->packed->map, model->layers[s->index].rows[t]);
    s->index = index;
}

static omm_err read_matrices(model_stream *s, omm_pool *pool) {
    const omm_model *model = s->model;
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
        const omm_bytes rows = s->layer.rows[t];
        s->layer.weights[t].data = s->rooms[t];
        OMM_TRY(omm_gguf_of_tensor(omm_matrix_pack_into(&s->layer.weights[t], pool, rows),
                                   omm_gguf_tensor_at(model->gguf, rows)->name));
        omm_gguf_release(model->gguf, rows);
    }
    return OMM_OK;
}

static omm_err read_layer(model_stream *s, omm_pool *pool, uint32_t index) {
    const omm_model *model = s->model;
    s->index = UINT32_MAX;
    s->layer = model->layers[index];
    const omm_err err = read_matrices(s, pool);
    /* Behind the reading, so that all that was written before its end is noticed; and before what is wrong with the
     * weights, which may be because of that. */
    OMM_TRY(omm_gguf_check_unchanged(model->gguf));
    OMM_TRY(err);
    omm_gguf_release_all(model->gguf); /* what the system has mapped around them */
    s->index = index;
    return OMM_OK;
}

omm_err model_stream_layer(const omm_layer **out, model_stream *s, omm_pool *pool, uint32_t index) {
    const omm_model *model = s->model;
    *out = &model->layers[index];
    if (index < model->resident) return OMM_OK;
    /* while this layer is packed and computed, the disk reads the next */
    prefetch(model, index + 1 < model->dims.layers ? index + 1 : model->resident);
    if (model->packed) {
        if (index != s->index) go_on_to(s, index);
        return OMM_OK;
    }
    *out = &s->layer;
    return index == s->index ? OMM_OK : read_layer(s, pool, index);
}

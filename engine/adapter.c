/* adapter.c - packing a LoRA adapter for the graph. */
#include "adapter_internal.h"
#include "graph.h"

#include "omm/bytes.h"
#include "omm/mem.h"
#include "omm/rows.h"

#include <math.h>
#include <string.h>

adapter_input adapter_input_of(omm_lora_target target) {
    static const adapter_input inputs[OMM_LORA_TARGET_COUNT] = {
        ADAPTER_INPUT_ATTENTION, ADAPTER_INPUT_ATTENTION, ADAPTER_INPUT_ATTENTION,
        ADAPTER_INPUT_OUTPUT,    ADAPTER_INPUT_FEED,      ADAPTER_INPUT_FEED,
        ADAPTER_INPUT_DOWN};
    return inputs[target];
}

static bool same_shape(const omm_lora_shape *a, const omm_lora_shape *b) {
    return a->layer_count == b->layer_count && memcmp(a->d_in, b->d_in, sizeof a->d_in) == 0 &&
           memcmp(a->d_out, b->d_out, sizeof a->d_out) == 0;
}

/* Rows of A of all targets with this input, one after the other in `room`; their number. */
static uint32_t gather_rows(float *room, adapter_layer *out, const omm_lora *lora, uint32_t layer,
                            adapter_input input, uint32_t *d_in) {
    uint32_t rows = 0;
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
        ptrdiff_t index = omm_lora_find_index(lora, layer, (omm_lora_target)t);
        if (index < 0 || adapter_input_of((omm_lora_target)t) != input) continue;
        const omm_lora_tensor *a = &lora->tensors[index];
        *d_in = lora->shape.d_in[t];
        out->row[t] = rows;
        out->pair_scale[t] = a->scale;
        out->one_scale[input] =
            rows == 0 || (out->one_scale[input] && a->scale == out->scale[input]);
        out->scale[input] = a->scale;
        memcpy(room + (size_t)rows * *d_in, lora->values + a->offset,
               (size_t)a->rows * *d_in * sizeof *room);
        rows += a->rows;
    }
    return rows;
}

/* ---- packing --------------------------------------------------------------------------------- */

/* A block: its scale as a half, its codes. */
#define Q8_0_BYTES (sizeof(uint16_t) + OMM_QUANT_BLOCK)

/* Memory while an adapter is packed. */
typedef struct pack_room {
    float *rows;      /* [ranks of an input's targets][d_in] */
    uint16_t *stored; /* a matrix in the format at hand, of two bytes a value at most */
} pack_room;

static bool as_bf16(uint16_t *stored, const float *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (omm_f32_to_bits(values[i]) & 0xffffu) return false;
        stored[i] = (uint16_t)(omm_f32_to_bits(values[i]) >> 16);
    }
    return true;
}

static bool as_f16(uint16_t *stored, const float *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        stored[i] = omm_f32_to_f16(values[i]);
        if (omm_f32_to_bits(omm_f16_to_f32(stored[i])) != omm_f32_to_bits(values[i])) return false;
    }
    return true;
}

/* Codes of a block at this scale; false where one value is none of its multiples from -128 to 127. */
static bool block_codes(int8_t codes[OMM_QUANT_BLOCK], const float *values, float scale) {
    for (size_t i = 0; i < OMM_QUANT_BLOCK; i++) {
        const float code = values[i] / scale;
        if (!(code >= INT8_MIN && code <= INT8_MAX)) return false;
        codes[i] = (int8_t)code;
        if (omm_f32_to_bits((float)codes[i] * scale) != omm_f32_to_bits(values[i])) return false;
    }
    return true;
}

/* A block whose scale is 0 has kept the signs of its codes: -0 where one was negative. */
static void zero_block(uint8_t *block, const float *values) {
    memset(block, 0, Q8_0_BYTES);
    for (size_t i = 0; i < OMM_QUANT_BLOCK; i++)
        if (signbit(values[i])) block[2 + i] = 0xff;
}

/* Values that come out of a block of Q8_0 go back to one that gives them.  Its largest code is 127 from most writers;
 * others have 128 or less, so these are tried.  A code of 0 gives -0 where the scale is negative. */
static bool block_of(uint8_t *block, const float *values) {
    float largest = 0.0f;
    bool is_negative = false;
    for (size_t i = 0; i < OMM_QUANT_BLOCK; i++) {
        largest = fmaxf(largest, fabsf(values[i]));
        is_negative = is_negative || (values[i] == 0.0f && signbit(values[i]));
    }
    if (largest == 0.0f) {
        zero_block(block, values);
        return true;
    }
    for (unsigned i = 0; i < 128; i++) {
        const unsigned code = i < INT8_MAX ? INT8_MAX - i : 128;
        const uint16_t half = omm_f32_to_f16(largest / (float)code);
        const float size = omm_f16_to_f32(half);
        if (size * (float)code != largest) continue;
        if (!block_codes((int8_t *)block + 2, values, is_negative ? -size : size)) continue;
        omm_put_u16(block, is_negative ? half | 0x8000u : half);
        return true;
    }
    return false;
}

static bool as_q8_0(uint16_t *stored, const float *values, size_t count) {
    uint8_t *block = (uint8_t *)stored;
    for (size_t i = 0; i < count; i += OMM_QUANT_BLOCK, block += Q8_0_BYTES)
        if (!block_of(block, values + i)) return false;
    return true;
}

/* The format that has every value exactly, and the values in it unless that is F32. */
static omm_format exact_format(uint16_t *stored, const float *values, size_t count, uint32_t cols) {
    if (as_bf16(stored, values, count)) return OMM_FORMAT_BF16;
    if (as_f16(stored, values, count)) return OMM_FORMAT_F16;
    if (cols % OMM_QUANT_BLOCK == 0 && as_q8_0(stored, values, count)) return OMM_FORMAT_Q8_0;
    return OMM_FORMAT_F32;
}

/* Fewer bytes are read in less time. */
static omm_err pack_exact(omm_matrix *out, const pack_room *room, uint32_t rows, uint32_t cols,
                          const float *values) {
    const size_t count = (size_t)rows * cols;
    const omm_format format = exact_format(room->stored, values, count, cols);
    if (format == OMM_FORMAT_F32) return omm_matrix_pack_f32(out, rows, cols, values);
    return omm_matrix_pack(out, format, rows, cols,
                           omm_bytes_of(room->stored, rows * omm_format_row_bytes(format, cols)));
}

static omm_err pack_layer(omm_adapter *out, const pack_room *room, const omm_lora *lora,
                          uint32_t layer) {
    adapter_layer *l = &out->layers[layer];
    for (unsigned i = 0; i < ADAPTER_INPUT_COUNT; i++) {
        uint32_t d_in = 0, rows = gather_rows(room->rows, l, lora, layer, (adapter_input)i, &d_in);
        if (rows == 0) continue;
        OMM_TRY(pack_exact(&l->a[i], room, rows, d_in, room->rows));
        if (rows > out->rows_max) out->rows_max = rows;
    }
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
        ptrdiff_t index = omm_lora_find_index(lora, layer, (omm_lora_target)t);
        if (index < 0) continue;
        const omm_lora_tensor *b = &lora->tensors[index + 1];
        OMM_TRY(pack_exact(&l->b[t], room, b->rows, b->cols, lora->values + b->offset));
    }
    return OMM_OK;
}

static omm_err pack(omm_adapter *out, const omm_lora *lora) {
    size_t widest_in = 0, widest = 0;
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
        if (lora->shape.d_in[t] > widest_in) widest_in = lora->shape.d_in[t];
        if (lora->shape.d_out[t] > widest) widest = lora->shape.d_out[t];
    }
    const size_t rows = 3 * widest_in > widest ? 3 * widest_in : widest;
    out->layers = (adapter_layer *)omm_alloc(out->layer_count, sizeof *out->layers);
    pack_room room = {.rows =
                          (float *)omm_alloc(3 * widest_in * lora->spec.rank, sizeof *room.rows),
                      .stored = (uint16_t *)omm_alloc(rows * lora->spec.rank, sizeof *room.stored)};
    omm_err err = OMM_OK;
    if (!out->layers || !room.rows || !room.stored)
        err = omm_raise(OMM_ERR_NOMEM, "no memory to pack the adapter");
    for (uint32_t i = 0; i < out->layer_count && err == OMM_OK; i++)
        err = pack_layer(out, &room, lora, i);
    omm_free(room.rows);
    omm_free(room.stored);
    return err;
}

/* ---- digest ---------------------------------------------------------------------------------- */

static void hash_u32(omm_hasher *h, uint32_t v) {
    uint8_t bytes[4];
    omm_put_u32(bytes, v);
    omm_hasher_update(h, omm_bytes_of(bytes, sizeof bytes));
}

static void hash_f32(omm_hasher *h, float v) {
    hash_u32(h, omm_f32_to_bits(v));
}

static void hash_matrix(omm_hasher *h, const omm_matrix *m) {
    hash_u32(h, m->rows);
    hash_u32(h, m->cols);
    hash_u32(h, (uint32_t)m->format);
    if (m->data) omm_hasher_update(h, omm_bytes_of(m->data, omm_matrix_bytes(m)));
}

static omm_digest digest_of(const omm_adapter *adapter) {
    omm_hasher h;
    omm_hasher_init(&h);
    hash_f32(&h, adapter->scale);
    for (uint32_t i = 0; i < adapter->layer_count; i++) {
        const adapter_layer *l = &adapter->layers[i];
        for (unsigned j = 0; j < ADAPTER_INPUT_COUNT; j++) hash_matrix(&h, &l->a[j]);
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
            hash_matrix(&h, &l->b[t]);
            hash_f32(&h, l->pair_scale[t]);
        }
    }
    return omm_hasher_final(&h);
}

/* ---- planning -------------------------------------------------------------------------------- */

uint64_t adapter_padded(uint64_t n) {
    return (n + OMM_STRIP - 1) / OMM_STRIP * OMM_STRIP;
}

/* Rows of A of all targets of a layer with this input; *d_in stays where there are none. */
static uint64_t rows_of(const omm_lora *lora, uint32_t layer, adapter_input input, uint64_t *d_in) {
    uint64_t rows = 0;
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
        const ptrdiff_t index = omm_lora_find_index(lora, layer, (omm_lora_target)t);
        if (index < 0 || adapter_input_of((omm_lora_target)t) != input) continue;
        rows += lora->tensors[index].rows;
        *d_in = lora->tensors[index].cols;
    }
    return rows;
}

uint64_t omm_adapter_bytes(const omm_lora *lora) {
    uint64_t values = 0;
    for (uint32_t layer = 0; layer < lora->shape.layer_count; layer++) {
        for (unsigned i = 0; i < ADAPTER_INPUT_COUNT; i++) {
            uint64_t d_in = 0;
            const uint64_t rows = rows_of(lora, layer, (adapter_input)i, &d_in);
            values += adapter_padded(rows) * adapter_padded(d_in);
        }
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
            const ptrdiff_t index = omm_lora_find_index(lora, layer, (omm_lora_target)t);
            if (index < 0) continue;
            const omm_lora_tensor *b = &lora->tensors[index + 1];
            values += adapter_padded(b->rows) * adapter_padded(b->cols);
        }
    }
    return values * sizeof(float) + lora->shape.layer_count * sizeof(adapter_layer);
}

uint64_t omm_adapter_batch_bytes(const omm_lora *lora, size_t tokens) {
    uint64_t most = 0, d_in = 0;
    for (uint32_t layer = 0; layer < lora->shape.layer_count; layer++)
        for (unsigned i = 0; i < ADAPTER_INPUT_COUNT; i++) {
            const uint64_t rows = rows_of(lora, layer, (adapter_input)i, &d_in);
            if (rows > most) most = rows;
        }
    return tokens * (most * sizeof(float) + GRAPH_TERMS_PER_ROW * sizeof(omm_linear_term));
}

/* ---- opening --------------------------------------------------------------------------------- */

omm_err omm_adapter_open(omm_adapter **out, const omm_model *model, const omm_lora *lora,
                         float scale) {
    if (!same_shape(&lora->shape, &model->lora_shape))
        return omm_raise(OMM_ERR_REFUSED_SHAPE, "the adapter was made for a model of other shape");
    if (!isfinite(scale))
        return omm_raise(OMM_ERR_CONFIG, "an adapter's scale must be a finite number");
    omm_adapter *made = (omm_adapter *)omm_alloc(1, sizeof *made);
    if (!made) return omm_raise(OMM_ERR_NOMEM, "no memory for an adapter");
    made->scale = scale;
    made->layer_count = model->dims.layers;
    omm_err err = pack(made, lora);
    if (err != OMM_OK) {
        omm_adapter_close(made);
        return err;
    }
    made->digest = digest_of(made);
    *out = made;
    return OMM_OK;
}

void omm_adapter_close(omm_adapter *adapter) {
    if (!adapter) return;
    for (uint32_t i = 0; adapter->layers && i < adapter->layer_count; i++) {
        adapter_layer *l = &adapter->layers[i];
        for (unsigned j = 0; j < ADAPTER_INPUT_COUNT; j++) omm_matrix_fini(&l->a[j]);
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) omm_matrix_fini(&l->b[t]);
    }
    omm_free(adapter->layers);
    omm_free(adapter);
}

omm_digest omm_adapter_digest(const omm_adapter *adapter) {
    return adapter->digest;
}

/* lora.c - layout of the flat vector: which tensor sits where, and how it begins. */
#include "omm/lora.h"

#include "omm/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    const char *tensor;
} s_targets[OMM_LORA_TARGET_COUNT] = {
    {"q", "attn_q"},      {"k", "attn_k"},  {"v", "attn_v"},      {"o", "attn_output"},
    {"gate", "ffn_gate"}, {"up", "ffn_up"}, {"down", "ffn_down"},
};

const char *omm_lora_target_name(omm_lora_target target) {
    OMM_ASSERT((unsigned)target < OMM_LORA_TARGET_COUNT);
    return s_targets[target].name;
}

const char *omm_lora_target_tensor(omm_lora_target target) {
    OMM_ASSERT((unsigned)target < OMM_LORA_TARGET_COUNT);
    return s_targets[target].tensor;
}

static uint32_t target_bit(const char *name, size_t size) {
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
        if (strlen(s_targets[t].name) == size && memcmp(s_targets[t].name, name, size) == 0)
            return 1u << t;
    return 0;
}

omm_err omm_lora_targets_parse(uint32_t *targets, const char *list) {
    if (strcmp(list, "all") == 0) {
        *targets = OMM_LORA_ALL_TARGETS;
        return OMM_OK;
    }
    uint32_t found = 0;
    for (const char *p = list;;) {
        size_t size = strcspn(p, ",");
        uint32_t bit = target_bit(p, size);
        if (bit == 0 || (found & bit) != 0)
            return omm_raise(
                OMM_ERR_CONFIG,
                "LoRA target '%.*s' in '%s': accepted are all, or q, k, v, o, gate, up, "
                "down, each once and separated by commas",
                (int)(size < 40 ? size : 40), p, list);
        found |= bit;
        if (p[size] == 0) break;
        p += size + 1;
    }
    *targets = found;
    return OMM_OK;
}

static omm_err check_spec(const omm_lora_spec *spec, const omm_lora_shape *shape) {
    if (spec->rank < 1 || spec->rank > OMM_LORA_RANK_MAX)
        return omm_raise(OMM_ERR_CONFIG, "LoRA rank %u, accepted are 1 to %u", spec->rank,
                         OMM_LORA_RANK_MAX);
    if (!isfinite(spec->alpha) || spec->alpha == 0.0f) /* zero in a file means a scale of 1 */
        return omm_raise(OMM_ERR_CONFIG, "LoRA alpha must be finite and not zero");
    if (spec->targets == 0 || (spec->targets & ~OMM_LORA_ALL_TARGETS) != 0)
        return omm_raise(OMM_ERR_CONFIG, "LoRA targets 0x%x: at least one of seven", spec->targets);
    if (shape->layer_count < 1 || shape->layer_count > OMM_LORA_LAYERS_MAX)
        return omm_raise(OMM_ERR_CONFIG, "LoRA on %u layers, accepted are 1 to %u",
                         shape->layer_count, OMM_LORA_LAYERS_MAX);
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
        if ((spec->targets >> t & 1) != 0 && (shape->d_in[t] == 0 || shape->d_out[t] == 0))
            return omm_raise(OMM_ERR_CONFIG, "LoRA target '%s': the model has no such layer",
                             s_targets[t].name);
    return OMM_OK;
}

/* Values of one layer.  rank <= 2^10, widths < 2^32: no overflow in 64 bits for seven targets. */
static uint64_t layer_values(const omm_lora_spec *spec, const omm_lora_shape *shape) {
    uint64_t n = 0;
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
        if ((spec->targets >> t & 1) != 0)
            n += (uint64_t)spec->rank * ((uint64_t)shape->d_in[t] + shape->d_out[t]);
    return n;
}

static void add_tensor(omm_lora *lora, uint32_t layer, omm_lora_target target, bool is_b) {
    omm_lora_tensor *t = &lora->tensors[lora->tensor_count++];
    snprintf(t->name, sizeof t->name, "blk.%u.%s.weight.lora_%c", layer, s_targets[target].tensor,
             is_b ? 'b' : 'a');
    t->layer = layer;
    t->target = target;
    t->is_b = is_b;
    t->rows = is_b ? lora->shape.d_out[target] : lora->spec.rank;
    t->cols = is_b ? lora->spec.rank : lora->shape.d_in[target];
    t->offset = lora->value_count;
    lora->value_count += (size_t)t->rows * t->cols;
}

omm_err omm_lora_init(omm_lora *lora, const omm_lora_spec *spec, const omm_lora_shape *shape) {
    OMM_TRY(check_spec(spec, shape));
    uint64_t values = layer_values(spec, shape) * shape->layer_count;
    if (values > OMM_LORA_VALUES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "LoRA adapter of %llu values, at most %u",
                         (unsigned long long)values, OMM_LORA_VALUES_MAX);
    omm_lora made = {.spec = *spec, .shape = *shape};
    size_t pairs = (size_t)shape->layer_count * (size_t)__builtin_popcount(spec->targets);
    made.tensors = omm_alloc(2 * pairs, sizeof *made.tensors);
    made.values = omm_alloc_aligned((size_t)values, sizeof *made.values);
    if (!made.tensors || !made.values) {
        omm_lora_fini(&made);
        return omm_raise(OMM_ERR_NOMEM, "LoRA adapter of %llu values", (unsigned long long)values);
    }
    for (uint32_t layer = 0; layer < shape->layer_count; layer++)
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
            if ((spec->targets >> t & 1) != 0) {
                add_tensor(&made, layer, (omm_lora_target)t, false);
                add_tensor(&made, layer, (omm_lora_target)t, true);
            }
    OMM_ASSERT(made.value_count == values);
    OMM_ASSERT(made.tensor_count == 2 * pairs);
    *lora = made;
    return OMM_OK;
}

omm_err omm_lora_init_random(omm_lora *lora, const omm_lora_spec *spec, const omm_lora_shape *shape,
                             const omm_rng *rng) {
    OMM_TRY(omm_lora_init(lora, spec, shape));
    for (size_t i = 0; i < lora->tensor_count; i++) {
        const omm_lora_tensor *t = &lora->tensors[i];
        if (t->is_b) continue;
        float width = sqrtf((float)t->cols);
        size_t end = t->offset + (size_t)t->rows * t->cols;
        for (size_t v = t->offset; v < end; v++)
            lora->values[v] = (2.0f * omm_rng_unit(rng, v) - 1.0f) / width;
    }
    return OMM_OK;
}

void omm_lora_fini(omm_lora *lora) {
    omm_free(lora->tensors);
    omm_free(lora->values);
    memset(lora, 0, sizeof *lora);
}

float omm_lora_scale(const omm_lora *lora) {
    return lora->spec.alpha / (float)lora->spec.rank;
}

ptrdiff_t omm_lora_find_index(const omm_lora *lora, uint32_t layer, omm_lora_target target) {
    OMM_ASSERT((unsigned)target < OMM_LORA_TARGET_COUNT);
    uint32_t bit = 1u << target;
    if (layer >= lora->shape.layer_count || (lora->spec.targets & bit) == 0) return -1;
    unsigned per_layer = (unsigned)__builtin_popcount(lora->spec.targets);
    unsigned before = (unsigned)__builtin_popcount(lora->spec.targets & (bit - 1));
    return (ptrdiff_t)(2 * ((size_t)layer * per_layer + before));
}

void omm_lora_find(const float **a, const float **b, const omm_lora *lora, uint32_t layer,
                   omm_lora_target target) {
    ptrdiff_t i = omm_lora_find_index(lora, layer, target);
    *a = i < 0 ? NULL : lora->values + lora->tensors[i].offset;
    *b = i < 0 ? NULL : lora->values + lora->tensors[i + 1].offset;
}

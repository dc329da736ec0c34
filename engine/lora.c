/* lora.c - layout of the flat vector: which tensor sits where, and how it begins.
 *
 * Invariant: tensors[2 i] is an A and tensors[2 i + 1] its B; slots and tensors tell the same. */
#include "lora_internal.h"

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

static omm_err check_spec(const omm_lora_spec *spec, const omm_lora_shape *shape) {
    OMM_TRY(lora_check_pair((omm_lora_pair){.rank = spec->rank, .scale = 1.0f}));
    if (!isfinite(spec->alpha) || spec->alpha == 0.0f) /* zero in a file means a scale of 1 */
        return omm_raise(OMM_ERR_CONFIG, "LoRA alpha must be finite and not zero");
    if (spec->targets == 0 || (spec->targets & ~OMM_LORA_ALL_TARGETS) != 0)
        return omm_raise(OMM_ERR_CONFIG, "LoRA targets 0x%x: at least one of seven", spec->targets);
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
        if ((spec->targets >> t & 1) != 0 && (shape->d_in[t] == 0 || shape->d_out[t] == 0))
            return omm_raise(OMM_ERR_CONFIG, "LoRA target '%s': the model has no such layer",
                             s_targets[t].name);
    return OMM_OK;
}

/* ---- making ---------------------------------------------------------------------------------- */

static void add_tensor(omm_lora *lora, uint32_t layer, omm_lora_target target, omm_lora_pair pair,
                       bool is_b) {
    omm_lora_tensor *t = &lora->tensors[lora->tensor_count++];
    snprintf(t->name, sizeof t->name, "blk.%u.%s.weight.lora_%c", layer,
             lora_tensor_stem(&lora->shape, target), is_b ? 'b' : 'a');
    t->layer = layer;
    t->target = target;
    t->is_b = is_b;
    t->rows = is_b ? lora->shape.d_out[target] : pair.rank;
    t->cols = is_b ? pair.rank : lora->shape.d_in[target];
    t->scale = pair.scale;
    t->offset = lora->value_count;
    lora->value_count += (size_t)t->rows * t->cols;
}

/* Sizes, checked: rank <= 2^10, widths < 2^32, 7 * 2^10 pairs: no overflow in 64 bits. */
static omm_err count_plan(size_t *pairs, uint64_t *values, const omm_lora_plan *plan) {
    const omm_lora_shape *shape = &plan->shape;
    *pairs = 0;
    *values = 0;
    for (size_t i = 0; i < (size_t)shape->layer_count * OMM_LORA_TARGET_COUNT; i++) {
        const unsigned t = (unsigned)(i % OMM_LORA_TARGET_COUNT);
        if (plan->pairs[i].rank == 0) continue;
        OMM_TRY(lora_check_pair(plan->pairs[i]));
        if (shape->d_in[t] == 0 || shape->d_out[t] == 0)
            return omm_raise(OMM_ERR_CONFIG, "LoRA target '%s': the model has no such layer",
                             s_targets[t].name);
        *values += (uint64_t)plan->pairs[i].rank * ((uint64_t)shape->d_in[t] + shape->d_out[t]);
        ++*pairs;
    }
    if (*pairs == 0) return omm_raise(OMM_ERR_CONFIG, "LoRA adapter of no layer at all");
    if (*values > OMM_LORA_VALUES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "LoRA adapter of %llu values, at most %u",
                         (unsigned long long)*values, OMM_LORA_VALUES_MAX);
    return OMM_OK;
}

static void add_pairs(omm_lora *lora, const omm_lora_plan *plan) {
    for (uint32_t layer = 0; layer < plan->shape.layer_count; layer++)
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
            const size_t at = (size_t)layer * OMM_LORA_TARGET_COUNT + t;
            const omm_lora_pair pair = plan->pairs[at];
            if (pair.rank == 0) continue;
            lora->slots[at] = 1 + (uint32_t)lora->tensor_count;
            lora->spec.targets |= 1u << t;
            if (pair.rank > lora->spec.rank) lora->spec.rank = pair.rank;
            add_tensor(lora, layer, (omm_lora_target)t, pair, false);
            add_tensor(lora, layer, (omm_lora_target)t, pair, true);
        }
}

omm_err omm_lora_init_plan(omm_lora *lora, const omm_lora_plan *plan) {
    size_t pairs = 0;
    uint64_t values = 0;
    OMM_TRY(count_plan(&pairs, &values, plan));
    omm_lora made = {.shape = plan->shape};
    made.tensors = omm_alloc(2 * pairs, sizeof *made.tensors);
    made.slots = omm_alloc(plan->shape.layer_count, OMM_LORA_TARGET_COUNT * sizeof *made.slots);
    made.values = omm_alloc_aligned((size_t)values, sizeof *made.values);
    if (!made.tensors || !made.slots || !made.values) {
        omm_lora_fini(&made);
        return omm_raise(OMM_ERR_NOMEM, "LoRA adapter of %llu values", (unsigned long long)values);
    }
    add_pairs(&made, plan);
    OMM_ASSERT(made.value_count == values);
    OMM_ASSERT(made.tensor_count == 2 * pairs);
    made.spec.alpha = lora_alpha_for(made.tensors[0].scale, made.tensors[0].rows);
    *lora = made;
    return OMM_OK;
}

omm_err omm_lora_init(omm_lora *lora, const omm_lora_spec *spec, const omm_lora_shape *shape) {
    OMM_TRY(check_spec(spec, shape));
    omm_lora_plan plan;
    OMM_TRY(omm_lora_plan_init(&plan, shape));
    const omm_lora_pair pair = {spec->rank, spec->alpha / (float)spec->rank};
    for (size_t i = 0; i < (size_t)shape->layer_count * OMM_LORA_TARGET_COUNT; i++)
        if ((spec->targets >> i % OMM_LORA_TARGET_COUNT & 1) != 0) plan.pairs[i] = pair;
    omm_err err = omm_lora_init_plan(lora, &plan);
    if (err == OMM_OK) lora->spec.alpha = spec->alpha;
    omm_lora_plan_fini(&plan);
    return err;
}

static void fill_random(omm_lora *lora, const omm_rng *rng) {
    for (size_t i = 0; i < lora->tensor_count; i++) {
        const omm_lora_tensor *t = &lora->tensors[i];
        if (t->is_b) continue;
        float width = sqrtf((float)t->cols);
        size_t end = t->offset + (size_t)t->rows * t->cols;
        for (size_t v = t->offset; v < end; v++)
            lora->values[v] = (2.0f * omm_rng_unit(rng, v) - 1.0f) / width;
    }
}

omm_err omm_lora_init_random(omm_lora *lora, const omm_lora_spec *spec, const omm_lora_shape *shape,
                             const omm_rng *rng) {
    OMM_TRY(omm_lora_init(lora, spec, shape));
    fill_random(lora, rng);
    return OMM_OK;
}

omm_err omm_lora_init_plan_random(omm_lora *lora, const omm_lora_plan *plan, const omm_rng *rng) {
    OMM_TRY(omm_lora_init_plan(lora, plan));
    fill_random(lora, rng);
    return OMM_OK;
}

void omm_lora_fini(omm_lora *lora) {
    omm_free(lora->tensors);
    omm_free(lora->slots);
    omm_free(lora->values);
    memset(lora, 0, sizeof *lora);
}

/* ---- asking ---------------------------------------------------------------------------------- */

bool omm_lora_is_uniform(const omm_lora *lora) {
    const size_t pairs =
        (size_t)lora->shape.layer_count * (size_t)__builtin_popcount(lora->spec.targets);
    if (lora->tensor_count != 2 * pairs) return false;
    const float scale = lora->spec.alpha / (float)lora->spec.rank;
    for (size_t i = 0; i < lora->tensor_count; i += 2)
        if (lora->tensors[i].rows != lora->spec.rank || lora->tensors[i].scale != scale)
            return false;
    return true;
}

ptrdiff_t omm_lora_find_index(const omm_lora *lora, uint32_t layer, omm_lora_target target) {
    OMM_ASSERT((unsigned)target < OMM_LORA_TARGET_COUNT);
    if (layer >= lora->shape.layer_count) return -1;
    return (ptrdiff_t)lora->slots[(size_t)layer * OMM_LORA_TARGET_COUNT + target] - 1;
}

void omm_lora_find(const float **a, const float **b, const omm_lora *lora, uint32_t layer,
                   omm_lora_target target) {
    ptrdiff_t i = omm_lora_find_index(lora, layer, target);
    *a = i < 0 ? NULL : lora->values + lora->tensors[i].offset;
    *b = i < 0 ? NULL : lora->values + lora->tensors[i + 1].offset;
}

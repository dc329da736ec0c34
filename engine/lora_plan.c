/* lora_plan.c - which linear layers an adapter has, and at what rank and scale: names and patterns. */
#include "lora_internal.h"

#include "omm/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ACCEPTED                                                                                   \
    "accepted are all, all-linear, q, k, v, o, gate, up, down, attn_q, attn_k, attn_v, "           \
    "attn_output, ffn_gate, ffn_up, ffn_down and patterns over them (ffn_*)"

/* ---- names ----------------------------------------------------------------------------------- */

/* Linear in practice: only the last star can give characters back. */
bool lora_glob(const char *pattern, size_t size, const char *text) {
    size_t p = 0, star = SIZE_MAX;
    const char *kept = NULL;
    while (*text) {
        if (p < size && pattern[p] == '*') {
            star = p++;
            kept = text;
        } else if (p < size && (pattern[p] == '?' || pattern[p] == *text)) {
            p++;
            text++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            text = ++kept;
        } else {
            return false;
        }
    }
    while (p < size && pattern[p] == '*') p++;
    return p == size;
}

static bool is_word(const char *item, size_t size, const char *word) {
    return strlen(word) == size && memcmp(item, word, size) == 0;
}

static bool names_target(const char *item, size_t size, unsigned target) {
    return is_word(item, size, "all") || is_word(item, size, "all-linear") ||
           lora_glob(item, size, omm_lora_target_name((omm_lora_target)target)) ||
           lora_glob(item, size, omm_lora_target_tensor((omm_lora_target)target));
}

/* The number at *at, up to four digits and the character after it; moves behind it. */
static bool take_layer(uint32_t *out, const char **at, const char *end, char after) {
    uint32_t value = 0;
    const char *p = *at;
    for (; p < end && p < *at + 4 && *p >= '0' && *p <= '9'; p++)
        value = 10 * value + (uint32_t)(*p - '0');
    if (p == *at || p == end || *p != after) return false;
    *out = value;
    *at = p + 1;
    return true;
}

/* "blk.FIRST-LAST.REST": REST in layers FIRST to LAST; false when the item is none. */
static bool parse_range(uint32_t *first, uint32_t *last, const char **rest, const char *item,
                        size_t size) {
    *rest = item + 4;
    return take_layer(first, rest, item + size, '-') && take_layer(last, rest, item + size, '.');
}

/* "blk.3.attn_q", "blk.3-5.ffn_*", and with ".weight" behind it. */
static bool names_pair(const char *item, size_t size, uint32_t layer, unsigned target) {
    char name[OMM_GGUF_NAME_MAX];
    const char *rest = NULL;
    uint32_t first = 0, last = 0;
    if (size < 4 || memcmp(item, "blk.", 4) != 0) return names_target(item, size, target);
    const char *tensor = omm_lora_target_tensor((omm_lora_target)target);
    if (parse_range(&first, &last, &rest, item, size)) {
        const size_t rest_size = size - (size_t)(rest - item);
        snprintf(name, sizeof name, "%s.weight", tensor);
        return layer >= first && layer <= last &&
               (names_target(rest, rest_size, target) || lora_glob(rest, rest_size, name));
    }
    snprintf(name, sizeof name, "blk.%u.%s", layer, tensor);
    if (lora_glob(item, size, name)) return true;
    snprintf(name, sizeof name, "blk.%u.%s.weight", layer, tensor);
    return lora_glob(item, size, name);
}

/* The next item of a comma list; false at its end. */
static bool next_item(const char **item, size_t *size, const char **list) {
    if (!*list) return false;
    *item = *list;
    *size = strcspn(*list, ",");
    *list = (*list)[*size] ? *list + *size + 1 : NULL;
    return true;
}

static int shown(size_t size) {
    return size < 40 ? (int)size : 40;
}

omm_err omm_lora_targets_parse(uint32_t *targets, const char *list) {
    uint32_t found = 0;
    const char *item = NULL, *rest = list;
    size_t size = 0;
    while (next_item(&item, &size, &rest)) {
        uint32_t bits = 0;
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
            if (names_target(item, size, t)) bits |= 1u << t;
        if ((bits & ~found) == 0)
            return omm_raise(OMM_ERR_CONFIG,
                             "LoRA target '%.*s' in '%s' names no layer%s: " ACCEPTED
                             ", separated by commas",
                             shown(size), item, list, bits ? " that was not named before" : "");
        found |= bits;
    }
    *targets = found;
    return OMM_OK;
}

/* ---- plans ----------------------------------------------------------------------------------- */

float omm_lora_scale_of(double alpha, uint32_t rank, bool rslora) {
    OMM_ASSERT(rank >= 1);
    return (float)(alpha / (rslora ? sqrt((double)rank) : (double)rank));
}

omm_err lora_check_pair(omm_lora_pair pair) {
    if (pair.rank < 1 || pair.rank > OMM_LORA_RANK_MAX)
        return omm_raise(OMM_ERR_CONFIG, "LoRA rank %u, accepted are 1 to %u", pair.rank,
                         OMM_LORA_RANK_MAX);
    if (!isfinite(pair.scale) || pair.scale == 0.0f)
        return omm_raise(OMM_ERR_CONFIG, "LoRA scale must be finite and not zero");
    return OMM_OK;
}

omm_err omm_lora_plan_init(omm_lora_plan *plan, const omm_lora_shape *shape) {
    if (shape->layer_count < 1 || shape->layer_count > OMM_LORA_LAYERS_MAX)
        return omm_raise(OMM_ERR_CONFIG, "LoRA on %u layers, accepted are 1 to %u",
                         shape->layer_count, OMM_LORA_LAYERS_MAX);
    omm_lora_pair *pairs = omm_alloc(shape->layer_count, OMM_LORA_TARGET_COUNT * sizeof *pairs);
    if (!pairs) return omm_raise(OMM_ERR_NOMEM, "LoRA plan of %u layers", shape->layer_count);
    *plan = (omm_lora_plan){.shape = *shape, .pairs = pairs};
    return OMM_OK;
}

void omm_lora_plan_fini(omm_lora_plan *plan) {
    omm_free(plan->pairs);
    *plan = (omm_lora_plan){0};
}

/* Pairs of the model that an item names; with `set` they get `pair`. */
static size_t apply(omm_lora_plan *plan, const char *item, size_t size, const omm_lora_pair *set) {
    size_t count = 0;
    for (uint32_t layer = 0; layer < plan->shape.layer_count; layer++)
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
            if (plan->shape.d_in[t] == 0 || plan->shape.d_out[t] == 0) continue;
            if (!names_pair(item, size, layer, t)) continue;
            if (set) plan->pairs[(size_t)layer * OMM_LORA_TARGET_COUNT + t] = *set;
            count++;
        }
    return count;
}

omm_err omm_lora_plan_add(omm_lora_plan *plan, const char *list, omm_lora_pair pair) {
    const char *item = NULL, *rest = list;
    size_t size = 0;
    if (pair.rank != 0) OMM_TRY(lora_check_pair(pair));
    while (next_item(&item, &size, &rest))
        if (apply(plan, item, size, NULL) == 0)
            return omm_raise(
                OMM_ERR_CONFIG,
                "LoRA target '%.*s' in '%s' names no layer of this model, which has blk.0 to "
                "blk.%u: " ACCEPTED ", in some layers as blk.0.attn_q, blk.0.* or "
                "blk.4-7.ffn_*, separated by commas",
                shown(size), item, list, plan->shape.layer_count - 1);
    rest = list;
    while (next_item(&item, &size, &rest)) (void)apply(plan, item, size, &pair);
    return OMM_OK;
}

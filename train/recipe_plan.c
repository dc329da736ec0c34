/* recipe_plan.c - the adapter that a recipe trains: which layers, at what rank and scale.
 *
 * A rule is "PATTERN=NUMBER".  Rules apply in the order they are written to layers that are adapted;
 * one that names none of them is refused, since it was meant to do something. */
#include "omm/lora.h"
#include "omm/mem.h"
#include "omm/model.h"
#include "recipe_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double s_rank_max = 256, s_alpha_min = 1e-3, s_alpha_max = 4096; /* as the recipe's */

bool omm_recipe_is_uniform(const omm_recipe *recipe) {
    return !recipe->target_pattern[0] && !recipe->rank_pattern[0] && !recipe->alpha_pattern[0];
}

void omm_recipe_lora_spec(omm_lora_spec *out, const omm_recipe *recipe) {
    float alpha = recipe->alpha;
    if (recipe->rslora) alpha = (float)((double)alpha * sqrt((double)recipe->rank));
    *out = (omm_lora_spec){recipe->rank, alpha, recipe->targets};
}

/* ---- rules ------------------------------------------------------------------------------------- */

typedef struct rule {
    char pattern[OMM_RECIPE_TEXT];
    double number;
} rule;

static omm_err bad_rule(const char *field, const char *item, size_t size, const char *accepted) {
    return omm_raise(OMM_ERR_CONFIG,
                     "recipe: %s: '%.*s'; accepted: PATTERN=%s, separated by commas", field,
                     (int)(size < 40 ? size : 40), item, accepted);
}

/* "8" or "0.5", up to seven digits on either side: exact but for one rounding, in any locale. */
static bool read_number(double *out, const char *text, size_t size) {
    const char *const end = text + size;
    uint64_t digits = 0, unit = 1;
    size_t count = 0;
    for (; text < end && *text >= '0' && *text <= '9' && count < 7; text++, count++)
        digits = 10 * digits + (uint64_t)(*text - '0');
    if (count == 0) return false;
    if (text < end && *text == '.' && text + 1 < end)
        for (text++; text < end && *text >= '0' && *text <= '9' && unit < 10000000; text++) {
            digits = 10 * digits + (uint64_t)(*text - '0');
            unit *= 10;
        }
    *out = (double)digits / (double)unit;
    return text == end;
}

/* The next rule of a text; *more is false at its end. */
static omm_err next_rule(bool *more, rule *out, const char **rest, const char *field,
                         const char *accepted) {
    const char *item = *rest;
    const size_t size = strcspn(item, ",");
    *more = *item != 0;
    if (!*more) return OMM_OK;
    const char *equals = memchr(item, '=', size);
    if (!equals || equals == item || (item[size] == ',' && item[size + 1] == 0) ||
        !read_number(&out->number, equals + 1, (size_t)(item + size - equals - 1)))
        return bad_rule(field, item, size, accepted);
    memcpy(out->pattern, item, (size_t)(equals - item));
    out->pattern[equals - item] = 0;
    *rest = item + size + (item[size] == ',');
    return OMM_OK;
}

static bool is_rank(double x) {
    return x >= 1 && x <= s_rank_max && x == (double)(uint32_t)x;
}

static bool is_alpha(double x) {
    return x >= s_alpha_min && x <= s_alpha_max;
}

static omm_err check_rules(const char *text, const char *field, const char *accepted,
                           bool (*is_good)(double)) {
    const char *rest = text;
    for (bool more = true; more;) {
        rule r = {.number = 0};
        const char *item = rest;
        OMM_TRY(next_rule(&more, &r, &rest, field, accepted));
        if (more && !is_good(r.number)) return bad_rule(field, item, strcspn(item, ","), accepted);
    }
    return OMM_OK;
}

omm_err recipe_check_patterns(const omm_recipe *recipe) {
    if (recipe->target_pattern[0] && recipe->targets != OMM_LORA_ALL_TARGETS)
        return omm_raise(OMM_ERR_CONFIG,
                         "recipe: target_pattern and targets %#x; accepted with a "
                         "pattern: all of them",
                         recipe->targets);
    OMM_TRY(check_rules(recipe->rank_pattern, "rank_pattern", "RANK from 1 to 256", is_rank));
    return check_rules(recipe->alpha_pattern, "alpha_pattern", "ALPHA from 0.001 to 4096",
                       is_alpha);
}

static omm_err set_text(char *out, const char *text, const char *field) {
    const size_t size = text ? strlen(text) : 0;
    if (size >= OMM_RECIPE_TEXT)
        return omm_raise(OMM_ERR_CONFIG, "recipe: %s of %zu characters, at most %u", field, size,
                         OMM_RECIPE_TEXT - 1);
    memset(out, 0, OMM_RECIPE_TEXT);
    if (size) memcpy(out, text, size + 1);
    return OMM_OK;
}

omm_err omm_recipe_set_targets(omm_recipe *recipe, const char *list) {
    if (strstr(list, "blk.")) {
        OMM_TRY(set_text(recipe->target_pattern, list, "targets"));
        recipe->targets = OMM_LORA_ALL_TARGETS;
        return OMM_OK;
    }
    OMM_TRY(omm_lora_targets_parse(&recipe->targets, list));
    recipe->target_pattern[0] = 0;
    return OMM_OK;
}

omm_err omm_recipe_set_patterns(omm_recipe *recipe, const char *ranks, const char *alphas) {
    OMM_TRY(set_text(recipe->rank_pattern, ranks, "rank_pattern"));
    return set_text(recipe->alpha_pattern, alphas, "alpha_pattern");
}

/* ---- with a model -------------------------------------------------------------------------------- */

/* Which pairs are adapted: rank and scale 1 there. */
static omm_err select_pairs(omm_lora_plan *plan, const omm_recipe *recipe) {
    const omm_lora_pair one = {1, 1};
    if (recipe->target_pattern[0]) return omm_lora_plan_add(plan, recipe->target_pattern, one);
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
        if (recipe->targets >> t & 1U)
            OMM_TRY(omm_lora_plan_add(plan, omm_lora_target_tensor((omm_lora_target)t), one));
    return OMM_OK;
}

/* numbers[i] = the rule's number for the adapted pairs that it names; at least one. */
static omm_err apply_rule(double *numbers, const omm_lora_plan *plan, const rule *r,
                          const char *field) {
    const size_t count = (size_t)plan->shape.layer_count * OMM_LORA_TARGET_COUNT;
    omm_lora_plan named;
    bool any = false;
    OMM_TRY(omm_lora_plan_init(&named, &plan->shape));
    omm_err err = omm_lora_plan_add(&named, r->pattern, (omm_lora_pair){1, 1});
    for (size_t i = 0; err == OMM_OK && i < count; i++) {
        if (!named.pairs[i].rank || !plan->pairs[i].rank) continue;
        numbers[i] = r->number;
        any = true;
    }
    omm_lora_plan_fini(&named);
    if (err == OMM_ERR_CONFIG) err = omm_raise(err, "recipe: %s: %s", field, omm_err_sentence());
    if (err == OMM_OK && !any)
        err = omm_raise(OMM_ERR_CONFIG, "recipe: %s: '%s' names no layer that `targets` adapts",
                        field, r->pattern);
    return err;
}

/* With `count` each rule's number is its place in the text instead, from 1; *count: of rules. */
static omm_err apply_rules(double *numbers, unsigned *count, const omm_lora_plan *plan,
                           const char *text, const char *field) {
    const char *rest = text;
    for (bool more = true;;) {
        rule r = {.number = 0};
        OMM_TRY(next_rule(&more, &r, &rest, field, "NUMBER"));
        if (!more) return OMM_OK;
        if (count) r.number = ++*count;
        OMM_TRY(apply_rule(numbers, plan, &r, field));
    }
}

static omm_err fill(omm_lora_plan *plan, const omm_recipe *recipe, double *ranks, double *alphas) {
    const size_t count = (size_t)plan->shape.layer_count * OMM_LORA_TARGET_COUNT;
    OMM_TRY(select_pairs(plan, recipe));
    for (size_t i = 0; i < count; i++) {
        ranks[i] = recipe->rank;
        alphas[i] = (double)recipe->alpha;
    }
    OMM_TRY(apply_rules(ranks, NULL, plan, recipe->rank_pattern, "rank_pattern"));
    OMM_TRY(apply_rules(alphas, NULL, plan, recipe->alpha_pattern, "alpha_pattern"));
    for (size_t i = 0; i < count; i++) {
        if (!plan->pairs[i].rank) continue;
        const uint32_t rank = (uint32_t)ranks[i];
        plan->pairs[i] = (omm_lora_pair){rank, omm_lora_scale_of(alphas[i], rank, recipe->rslora)};
    }
    return OMM_OK;
}

omm_err omm_recipe_plan(omm_lora_plan *out, const omm_recipe *recipe, const omm_lora_shape *shape) {
    const size_t count = (size_t)shape->layer_count * OMM_LORA_TARGET_COUNT;
    omm_lora_plan plan;
    OMM_TRY(omm_recipe_validate(recipe));
    OMM_TRY(omm_lora_plan_init(&plan, shape));
    double *numbers = omm_alloc(2 * count, sizeof *numbers);
    omm_err err = numbers ? fill(&plan, recipe, numbers, numbers + count)
                          : omm_raise(OMM_ERR_NOMEM, "no memory for a plan of %zu pairs", count);
    omm_free(numbers);
    if (err == OMM_OK)
        *out = plan;
    else
        omm_lora_plan_fini(&plan);
    return err;
}

/* Places that are left over are those of rules that count. */
static omm_err find_unused(char sentence[OMM_RECIPE_DOUBT_MAX], double *places,
                           const omm_lora_plan *plan, const char *text, const char *field) {
    const size_t count = (size_t)plan->shape.layer_count * OMM_LORA_TARGET_COUNT;
    const char *rest = text;
    unsigned rules = 0;
    memset(places, 0, count * sizeof *places);
    OMM_TRY(apply_rules(places, &rules, plan, text, field));
    for (unsigned n = 1; n <= rules; n++) {
        rule r = {.number = 0};
        bool more = false;
        size_t i = 0;
        OMM_TRY(next_rule(&more, &r, &rest, field, "NUMBER"));
        while (i < count && places[i] != (double)n) i++;
        if (i < count) continue;
        (void)snprintf(sentence, OMM_RECIPE_DOUBT_MAX,
                       "%s: '%s' changes nothing: rules behind it name all of its layers, and the "
                       "last that names one counts",
                       field, r.pattern);
        break;
    }
    return OMM_OK;
}

omm_err omm_recipe_doubt(char sentence[OMM_RECIPE_DOUBT_MAX], const omm_recipe *recipe,
                         const omm_lora_shape *shape) {
    const size_t count = (size_t)shape->layer_count * OMM_LORA_TARGET_COUNT;
    omm_lora_plan plan;
    sentence[0] = 0;
    OMM_TRY(omm_recipe_validate(recipe));
    OMM_TRY(omm_lora_plan_init(&plan, shape));
    double *places = omm_alloc(count, sizeof *places);
    omm_err err = places ? select_pairs(&plan, recipe)
                         : omm_raise(OMM_ERR_NOMEM, "no memory for a plan of %zu pairs", count);
    if (err == OMM_OK)
        err = find_unused(sentence, places, &plan, recipe->rank_pattern, "rank_pattern");
    if (err == OMM_OK && !sentence[0])
        err = find_unused(sentence, places, &plan, recipe->alpha_pattern, "alpha_pattern");
    omm_free(places);
    omm_lora_plan_fini(&plan);
    return err;
}

omm_err omm_recipe_adapter(omm_lora *out, const omm_recipe *recipe, const omm_lora_shape *shape,
                           const omm_rng *lane) {
    omm_lora_spec spec;
    omm_lora_plan plan;
    omm_recipe_lora_spec(&spec, recipe);
    if (omm_recipe_is_uniform(recipe))
        return lane ? omm_lora_init_random(out, &spec, shape, lane)
                    : omm_lora_init(out, &spec, shape);
    OMM_TRY(omm_recipe_plan(&plan, recipe, shape));
    omm_err err =
        lane ? omm_lora_init_plan_random(out, &plan, lane) : omm_lora_init_plan(out, &plan);
    omm_lora_plan_fini(&plan);
    return err;
}

/* ---- the base ---------------------------------------------------------------------------------- */

static bool has_quantised(const omm_model *model) {
    bool has = omm_format_is_quantised(model->output->format);
    for (uint32_t i = 0; i < model->dims.layers; i++)
        for (size_t t = 0; t < OMM_LORA_TARGET_COUNT; t++)
            has = has || omm_format_is_quantised(model->layers[i].weights[t].format);
    return has;
}

omm_err omm_recipe_check_base(const omm_recipe *recipe, const omm_model *model) {
    if (recipe->activations != OMM_RECIPE_Q8 || has_quantised(model)) return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG,
                     "recipe: activations is q8, what quantised weights take, and this base has "
                     "none: its matrices are %s; accepted: f32, or a base that is quantised "
                     "(`meshmind quantize`)",
                     omm_format_name(model->layers[0].weights[OMM_LORA_Q].format));
}

/* recipe.c - one table describes every field; validation, bytes and YAML follow from it. */
#include "omm/recipe.h"

#include "omm/json.h"
#include "omm/lora.h"
#include "recipe_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const omm_recipe_parts_names[] = {"ab", "a", "b", "core", NULL};
const char *const omm_recipe_optimizers[] = {"adamw", "sgd", "adafactor", NULL};
const char *const omm_recipe_schedules[] = {"cosine", "linear", "constant", NULL};
const char *const omm_recipe_activations_names[] = {"f32", "q8", NULL};

static const uint8_t s_magic[4] = {'O', 'M', 'M', 'R'};

typedef struct field {
    const char *name;
    size_t offset;
    bool real;
    double min, max; /* inclusive */
} field;

#define F(member, real, min, max)                                                                  \
    { #member, offsetof(omm_recipe, member), real, min, max }

/* The order is the wire order, with the texts before the last.  Limits are wide: they keep arithmetic finite and memory bounded. */
static const field s_fields[] = {
    F(rank, false, 1, 256),
    F(alpha, true, 1e-3, 4096),
    F(targets, false, 1, OMM_LORA_ALL_TARGETS),
    F(parts, false, 0, OMM_RECIPE_PARTS_CORE),
    F(dropout, true, 0, 0.9),
    F(steps, false, 1, 1000000),
    F(batch_tokens, false, 1, 1 << 24),
    F(micro_tokens, false, 1, 1 << 16),
    F(seq_max, false, 8, 32768),
    F(learning_rate, true, 0, 10),
    F(warmup_steps, false, 0, 1000000),
    F(lr_min_ratio, true, 0, 1),
    F(beta1, true, 0, 0.99999),
    F(beta2, true, 0, 0.999999),
    F(epsilon, true, 1e-12, 1),
    F(weight_decay, true, 0, 10),
    F(clip_norm, true, 0, 1e6),
    F(prox_mu, true, 0, 1e3),
    F(seed_lane, false, 0, UINT32_MAX),
    F(optimizer, false, 0, OMM_RECIPE_ADAFACTOR),
    F(schedule, false, 0, OMM_RECIPE_CONSTANT),
    F(momentum, true, 0, 0.99999),
    F(nesterov, false, 0, 1),
    F(relative_step, false, 0, 1),
    F(rslora, false, 0, 1),
    F(b_rate_ratio, true, 0, 1024),
    F(activations, false, 0, OMM_RECIPE_Q8),
};
enum {
    FIELD_COUNT = sizeof s_fields / sizeof s_fields[0],
    FIRST_COUNT = (OMM_RECIPE_BYTES - 8) / 4,    /* of version 1 */
    SECOND_COUNT = (OMM_RECIPE_BYTES_2 - 8) / 4, /* of versions 2 and 3 */
};
_Static_assert(OMM_RECIPE_BYTES_3 + 4 * (FIELD_COUNT - SECOND_COUNT) == OMM_RECIPE_BYTES_MAX,
               "a field changed: raise the version");

/* They follow the numbers of version 2. */
static const size_t s_texts[] = {offsetof(omm_recipe, target_pattern),
                                 offsetof(omm_recipe, rank_pattern),
                                 offsetof(omm_recipe, alpha_pattern)};
static const char *const s_text_names[] = {"targets", "rank_pattern", "alpha_pattern"};
enum { TEXT_COUNT = sizeof s_texts / sizeof s_texts[0] };
static const size_t s_text_bytes = (size_t)TEXT_COUNT * OMM_RECIPE_TEXT;

static uint32_t get_bits(const omm_recipe *recipe, const field *f) {
    uint32_t bits = 0;
    memcpy(&bits, (const char *)recipe + f->offset, sizeof bits);
    return bits;
}

static double get_number(const omm_recipe *recipe, const field *f) {
    uint32_t bits = get_bits(recipe, f);
    if (!f->real) return bits;
    return (double)omm_f32_of_bits(bits);
}

/* Numbers that stand for names; those of `targets` are bits. */
static const struct {
    size_t offset;
    const char *const *names;
} s_choices[] = {{offsetof(omm_recipe, targets), NULL},
                 {offsetof(omm_recipe, parts), omm_recipe_parts_names},
                 {offsetof(omm_recipe, optimizer), omm_recipe_optimizers},
                 {offsetof(omm_recipe, schedule), omm_recipe_schedules},
                 {offsetof(omm_recipe, activations), omm_recipe_activations_names}};

/* False: a number. */
static bool is_choice(const char *const **names, const field *f) {
    for (size_t i = 0; i < sizeof s_choices / sizeof *s_choices; i++)
        if (s_choices[i].offset == f->offset) {
            *names = s_choices[i].names;
            return true;
        }
    return false;
}

bool omm_recipe_difference(char out[OMM_RECIPE_DIFFERENCE_BYTES], const omm_recipe *there,
                           const omm_recipe *here) {
    const char *other = NULL;
    const char *const *names = NULL;
    for (size_t i = 0; i < FIELD_COUNT && !other; i++) {
        const field *f = &s_fields[i];
        if (get_bits(there, f) == get_bits(here, f)) continue;
        other = f->name;
        if (is_choice(&names, f)) continue;
        (void)snprintf(out, OMM_RECIPE_DIFFERENCE_BYTES, "%s is %.*g there, %.*g here", f->name,
                       f->real ? 7 : 10, get_number(there, f), f->real ? 7 : 10,
                       get_number(here, f));
        return true;
    }
    for (size_t i = 0; i < TEXT_COUNT && !other; i++)
        if (strcmp((const char *)there + s_texts[i], (const char *)here + s_texts[i]) != 0)
            other = s_text_names[i];
    if (other) (void)snprintf(out, OMM_RECIPE_DIFFERENCE_BYTES, "another %s", other);
    return other != NULL;
}

omm_recipe omm_recipe_default(void) {
    return (omm_recipe){
        .rank = 8,
        .alpha = 16,
        .targets = OMM_LORA_ALL_TARGETS,
        .parts = OMM_RECIPE_PARTS_AB,
        .dropout = 0,
        .steps = 20,
        .batch_tokens = 2048,
        .micro_tokens = 512,
        .seq_max = 512,
        .learning_rate = 1e-2F,
        .warmup_steps = 2,
        .lr_min_ratio = 0.1F,
        .beta1 = 0.9F,
        .beta2 = 0.99F,
        .epsilon = 1e-8F,
        .weight_decay = 0,
        .clip_norm = 1,
        .prox_mu = 0,
        .seed_lane = 0,
    };
}

/* Fields that belong to one optimiser are 0 with the others, so that nobody trusts in one that is
 * not read. */
static omm_err check_together(const omm_recipe *r) {
    if (r->momentum > 0 && r->optimizer != OMM_RECIPE_SGD)
        return omm_raise(OMM_ERR_CONFIG,
                         "recipe: momentum is %g with %s; accepted: 0 (it is of sgd)",
                         (double)r->momentum, omm_recipe_optimizers[r->optimizer]);
    if (r->nesterov && r->momentum == 0) /* not 0 with sgd alone */
        return omm_raise(OMM_ERR_CONFIG, "recipe: nesterov is 1 without momentum; accepted: 0, or "
                                         "momentum over 0 with sgd");
    if (r->relative_step && r->optimizer != OMM_RECIPE_ADAFACTOR)
        return omm_raise(OMM_ERR_CONFIG,
                         "recipe: relative_step is 1 with %s; accepted: 0 (it is of adafactor)",
                         omm_recipe_optimizers[r->optimizer]);
    return OMM_OK;
}

omm_err omm_recipe_validate(const omm_recipe *recipe) {
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        const field *f = &s_fields[i];
        double v = get_number(recipe, f);
        /* Limits are compared in f32, as the value is held. */
        bool fits = f->real ? v >= (double)(float)f->min && v <= (double)(float)f->max
                            : v >= f->min && v <= f->max;
        if (!fits)
            return omm_raise(OMM_ERR_CONFIG, "recipe: %s is %.*g; accepted: %.10g to %.10g",
                             f->name, f->real ? 6 : 10, omm_nan_plain(v), f->min, f->max);
    }
    OMM_TRY(check_together(recipe));
    return recipe_check_patterns(recipe);
}

/* Gone: 5 with int8 products of another rounding (decision 205). */
enum { VERSION_LAST = 5, VERSION_GONE = 4 };

static uint32_t version_of(const omm_recipe *recipe) {
    if (recipe->activations != OMM_RECIPE_F32) return VERSION_LAST;
    if (!omm_recipe_is_uniform(recipe) || recipe->parts == OMM_RECIPE_PARTS_CORE) return 3;
    for (size_t i = FIRST_COUNT; i < SECOND_COUNT; i++)
        if (get_bits(recipe, &s_fields[i]) != 0) return 2;
    return 1;
}

static size_t count_of(uint32_t version) {
    if (version == 1) return FIRST_COUNT;
    return version < 4 ? SECOND_COUNT : FIELD_COUNT;
}

static size_t bytes_of(uint32_t version) {
    return 8 + 4 * count_of(version) + (version >= 3 ? s_text_bytes : 0);
}

/* Where field i is in the bytes. */
static size_t place_of(size_t i) {
    return 8 + 4 * i + (i < SECOND_COUNT ? 0 : s_text_bytes);
}

size_t omm_recipe_bytes(const omm_recipe *recipe) {
    return bytes_of(version_of(recipe));
}

omm_err omm_recipe_encode(omm_buf *out, const omm_recipe *recipe) {
    uint8_t *p = NULL;
    uint32_t version = version_of(recipe);
    OMM_TRY(omm_buf_extend(out, &p, omm_recipe_bytes(recipe)));
    memcpy(p, s_magic, sizeof s_magic);
    omm_put_u32(p + 4, version);
    for (size_t i = 0; i < count_of(version); i++)
        omm_put_u32(p + place_of(i), get_bits(recipe, &s_fields[i]));
    if (version < 3) return OMM_OK;
    p += OMM_RECIPE_BYTES_2;
    memset(p, 0, s_text_bytes);
    for (size_t i = 0; i < TEXT_COUNT; i++, p += OMM_RECIPE_TEXT) {
        const char *text = (const char *)recipe + s_texts[i];
        memcpy(p, text, strnlen(text, OMM_RECIPE_TEXT - 1));
    }
    return OMM_OK;
}

size_t omm_recipe_bytes_in(omm_bytes in) {
    if (in.size < 8 || memcmp(in.data, s_magic, sizeof s_magic) != 0) return 0;
    const uint32_t version = omm_get_u32(in.data + 4);
    return version >= 1 && version <= VERSION_LAST ? bytes_of(version) : 0;
}

static omm_err read_header(uint32_t *version, omm_bytes in) {
    if (in.size < 8 || in.size > OMM_RECIPE_BYTES_MAX)
        return omm_raise(OMM_ERR_SIZE, "recipe: %zu bytes instead of %u, %u, %u or %u", in.size,
                         OMM_RECIPE_BYTES, OMM_RECIPE_BYTES_2, OMM_RECIPE_BYTES_3,
                         OMM_RECIPE_BYTES_MAX);
    if (memcmp(in.data, s_magic, sizeof s_magic) != 0)
        return omm_raise(OMM_ERR_FORMAT, "recipe: does not start with OMMR");
    *version = omm_get_u32(in.data + 4);
    if (*version < 1 || *version > VERSION_LAST)
        return omm_raise(OMM_ERR_VERSION, "recipe: version %u; this program knows 1 to 3 and 5",
                         *version);
    if (*version == VERSION_GONE)
        return omm_raise(
            OMM_ERR_VERSION,
            "recipe: version 4, activations q8 of a program whose int8 products were "
            "rounded in another order (decision 205): only such a one gives its bytes");
    if (in.size != bytes_of(*version))
        return omm_raise(OMM_ERR_SIZE, "recipe: %zu bytes instead of %zu in version %u", in.size,
                         bytes_of(*version), *version);
    return OMM_OK;
}

/* Ends, and has nothing after its end. */
static omm_err read_text(char *out, const uint8_t *in) {
    memcpy(out, in, OMM_RECIPE_TEXT);
    for (size_t i = strnlen(out, OMM_RECIPE_TEXT - 1); i < OMM_RECIPE_TEXT; i++)
        if (out[i] != 0) return omm_raise(OMM_ERR_FORMAT, "recipe: a text goes on after its end");
    return OMM_OK;
}

omm_err omm_recipe_decode(omm_recipe *out, omm_bytes in) {
    uint32_t version = 0;
    OMM_TRY(read_header(&version, in));
    omm_recipe read = {0};
    for (size_t i = 0; i < count_of(version); i++) {
        uint32_t bits = omm_get_u32(in.data + place_of(i));
        if (s_fields[i].real && bits == 0x80000000U) /* one spelling of zero */
            return omm_raise(OMM_ERR_FORMAT, "recipe: %s is minus zero", s_fields[i].name);
        memcpy((char *)&read + s_fields[i].offset, &bits, sizeof bits);
    }
    for (size_t i = 0; version >= 3 && i < TEXT_COUNT; i++)
        OMM_TRY(read_text((char *)&read + s_texts[i],
                          in.data + OMM_RECIPE_BYTES_2 + i * OMM_RECIPE_TEXT));
    OMM_TRY(omm_recipe_validate(&read));
    if (version_of(&read) != version)
        return omm_raise(OMM_ERR_FORMAT,
                         "recipe: version %u, and all that it has over version %u "
                         "is 0: that is version %u",
                         version, version_of(&read), version_of(&read));
    *out = read;
    return OMM_OK;
}

/* --- YAML ---------------------------------------------------------------------------------- */

#define Y_U32(member, ...) OMM_CONFIG_U32(omm_recipe_yaml, member, __VA_ARGS__)
#define Y_REAL(member, ...) OMM_CONFIG_REAL(omm_recipe_yaml, member, __VA_ARGS__)
#define Y_PRESENT(member) .present = offsetof(omm_recipe_yaml, has_##member)

/* Fallbacks equal omm_recipe_default(); a test compares them. */
const omm_config_field omm_recipe_fields[] = {
    Y_U32(rank, .fallback = "8", Y_PRESENT(rank), .min = 1, .max = 256,
          .help = "rank of the adapter"),
    Y_REAL(alpha, .fallback = "16", Y_PRESENT(alpha), .min = 1e-3, .max = 4096,
           .help = "the adapter's output is scaled by alpha / rank"),
    OMM_CONFIG_STRING(omm_recipe_yaml, targets, .fallback = "all", Y_PRESENT(targets), .min = 1,
                      .max = OMM_RECIPE_TEXT - 1,
                      .help = "all, some of q,k,v,o,gate,up,down, or patterns: ffn_*, blk.4-7.*"),
    OMM_CONFIG_ENUM(omm_recipe_yaml, parts, omm_recipe_parts_names, .fallback = "ab",
                    .help = "which half of each pair is trained, or a core between them"),
    Y_REAL(dropout, .fallback = "0", .min = 0, .max = 0.9, .help = "on the adapter's input"),
    Y_U32(steps, .fallback = "20", .min = 1, .max = 1000000, .help = "optimiser steps"),
    Y_U32(batch_tokens, .fallback = "2048", .min = 1, .max = 1 << 24, .help = "tokens per step"),
    Y_U32(micro_tokens, .fallback = "512", .min = 1, .max = 1 << 16,
          .help = "tokens per pass; memory only, never the result"),
    Y_U32(seq_max, .fallback = "512", .min = 8, .max = 32768,
          .help = "longer examples lose their tail"),
    Y_REAL(learning_rate, .fallback = "0.01", .min = 0, .max = 10, .help = "peak"),
    Y_U32(warmup_steps, .fallback = "2", .min = 0, .max = 1000000, .help = "linear warmup"),
    Y_REAL(lr_min_ratio, .fallback = "0.1", .min = 0, .max = 1,
           .help = "the schedule ends at this share of the peak"),
    Y_REAL(beta1, .fallback = "0.9", .min = 0, .max = 0.99999, .help = "Adam, first moment"),
    Y_REAL(beta2, .fallback = "0.99", .min = 0, .max = 0.999999, .help = "Adam, second moment"),
    Y_REAL(epsilon, .fallback = "1e-8", .min = 1e-12, .max = 1, .help = "Adam"),
    Y_REAL(weight_decay, .fallback = "0", .min = 0, .max = 10, .help = "decoupled"),
    Y_REAL(clip_norm, .fallback = "1", .min = 0, .max = 1e6, .help = "global norm; 0 is off"),
    Y_REAL(prox_mu, .fallback = "0", .min = 0, .max = 1e3, .help = "FedProx term; 0 is off"),
    Y_U32(seed_lane, .fallback = "0", .min = 0, .max = UINT32_MAX,
          .help = "lane of every random number drawn from the training seed"),
    OMM_CONFIG_ENUM(omm_recipe_yaml, optimizer, omm_recipe_optimizers, .optional = true,
                    .help = "adamw when missing"),
    OMM_CONFIG_ENUM(omm_recipe_yaml, schedule, omm_recipe_schedules, .optional = true,
                    .help = "after the warmup; cosine when missing"),
    Y_REAL(momentum, .optional = true, .min = 0, .max = 0.99999, .help = "sgd"),
    Y_REAL(b_rate_ratio, .optional = true, .min = 0, .max = 1024,
           .help = "LoRA+: B's rate is this times A's; 0 is the same"),
    OMM_CONFIG_BOOL(omm_recipe_yaml, nesterov, .optional = true,
                    .help = "sgd: looks ahead by the momentum"),
    OMM_CONFIG_BOOL(omm_recipe_yaml, relative_step, .optional = true,
                    .help = "adafactor: the rate is a share of each tensor's own size"),
    OMM_CONFIG_BOOL(omm_recipe_yaml, rslora, .optional = true,
                    .help = "the scale is alpha / sqrt(rank)"),
    OMM_CONFIG_STRING(omm_recipe_yaml, rank_pattern, .optional = true, .min = 1,
                      .max = OMM_RECIPE_TEXT - 1, .help = "other ranks for some: ffn_*=4"),
    OMM_CONFIG_STRING(omm_recipe_yaml, alpha_pattern, .optional = true, .min = 1,
                      .max = OMM_RECIPE_TEXT - 1, .help = "other alphas for some: ffn_*=32"),
    OMM_CONFIG_ENUM(omm_recipe_yaml, activations, omm_recipe_activations_names, .optional = true,
                    .help = "in forward, of products with quantised weights; f32 when missing"),
    {0},
};

/* -0 is 0: the form that goes to nodes has one spelling of it. */
static void clear_signs(omm_recipe *r) {
    float *const reals[] = {&r->alpha,     &r->dropout, &r->learning_rate, &r->lr_min_ratio,
                            &r->beta1,     &r->beta2,   &r->epsilon,       &r->weight_decay,
                            &r->clip_norm, &r->prox_mu, &r->momentum,      &r->b_rate_ratio};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (*reals[i] == 0.0f) *reals[i] = 0.0f;
}

bool omm_recipe_says_shape(const omm_recipe_yaml *yaml) {
    return yaml->has_rank || yaml->has_alpha || yaml->has_targets || yaml->rslora ||
           yaml->rank_pattern || yaml->alpha_pattern;
}

omm_err omm_recipe_from_yaml(omm_recipe *out, const omm_recipe_yaml *yaml) {
    omm_recipe read = {
        .rank = yaml->rank,
        .alpha = (float)yaml->alpha,
        .parts = (uint32_t)yaml->parts,
        .dropout = (float)yaml->dropout,
        .steps = yaml->steps,
        .batch_tokens = yaml->batch_tokens,
        .micro_tokens = yaml->micro_tokens,
        .seq_max = yaml->seq_max,
        .learning_rate = (float)yaml->learning_rate,
        .warmup_steps = yaml->warmup_steps,
        .lr_min_ratio = (float)yaml->lr_min_ratio,
        .beta1 = (float)yaml->beta1,
        .beta2 = (float)yaml->beta2,
        .epsilon = (float)yaml->epsilon,
        .weight_decay = (float)yaml->weight_decay,
        .clip_norm = (float)yaml->clip_norm,
        .prox_mu = (float)yaml->prox_mu,
        .seed_lane = yaml->seed_lane,
        .optimizer = (uint32_t)yaml->optimizer,
        .schedule = (uint32_t)yaml->schedule,
        .momentum = (float)yaml->momentum,
        .nesterov = yaml->nesterov,
        .relative_step = yaml->relative_step,
        .rslora = yaml->rslora,
        .b_rate_ratio = (float)yaml->b_rate_ratio,
        .activations = (uint32_t)yaml->activations,
    };
    clear_signs(&read);
    OMM_TRY(omm_recipe_set_targets(&read, yaml->targets));
    OMM_TRY(omm_recipe_set_patterns(&read, yaml->rank_pattern, yaml->alpha_pattern));
    OMM_TRY(omm_recipe_validate(&read));
    *out = read;
    return OMM_OK;
}

/* --- JSON ---------------------------------------------------------------------------------- */

/* With the fewest digits that give this float back: 0.01, not 0.00999999978. */
static double fewest_digits(float value) {
    char text[32];
    double read = 0;
    for (int digits = 1; digits <= 9; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, (double)value);
        read = strtod(text, NULL);
        if ((float)read == value) break;
    }
    return read;
}

static json_t *targets_json(const omm_recipe *r) {
    char list[OMM_RECIPE_TEXT] = "";
    size_t used = 0;
    if (r->target_pattern[0]) return json_string(r->target_pattern);
    if (r->targets == OMM_LORA_ALL_TARGETS) return json_string("all");
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
        if (r->targets & 1U << t)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? "," : "",
                                     omm_lora_target_name((omm_lora_target)t));
    return json_string(list);
}

static bool is_switch(const field *f) {
    return f->offset == offsetof(omm_recipe, nesterov) ||
           f->offset == offsetof(omm_recipe, relative_step) ||
           f->offset == offsetof(omm_recipe, rslora);
}

static json_t *field_json(const omm_recipe *r, const field *f) {
    const char *const *names = NULL;
    const uint32_t bits = get_bits(r, f);
    if (is_choice(&names, f)) return names ? json_string(names[bits]) : targets_json(r);
    if (f->real) return json_real(fewest_digits(omm_f32_of_bits(bits)));
    return is_switch(f) ? json_boolean(bits) : json_integer(bits);
}

omm_err omm_recipe_to_json(json_t **out, const omm_recipe *recipe) {
    json_t *all = json_object();
    omm_err err = all ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "no memory for a recipe");
    for (size_t i = 0; err == OMM_OK && i < FIELD_COUNT; i++)
        err = omm_json_set(all, s_fields[i].name, field_json(recipe, &s_fields[i]));
    for (size_t i = 0; err == OMM_OK && i < TEXT_COUNT; i++) {
        const char *text = (const char *)recipe + s_texts[i];
        if (s_texts[i] != offsetof(omm_recipe, target_pattern) && text[0])
            err = omm_json_set_str(all, s_text_names[i], text);
    }
    if (err == OMM_OK)
        *out = all;
    else
        json_decref(all);
    return err;
}

/* quantise_plan.c - which tensor gets which type: the rules of quantise.h. */
#include "quantise_internal.h"

#include "omm/quant.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Layers of which some tensors get other bits: all, the first ones, or the marked ones (quantise_is_marked). */
typedef enum layer_set {
    ALL_LAYERS,
    FIRST_TWO,
    FIRST_FOUR,
    FIRST_EIGHTH,
    FIRST_SIXTEENTH,
    MARKED
} layer_set;

/* A rule of a mix: tensors of layers whose name ends so get `there` in these layers, elsewhere `else_type`. */
typedef struct mix_rule {
    const char *end; /* NULL: no more rules */
    layer_set layers;
    omm_ggml_type there, else_type;
} mix_rule;

#define VALUE ".attn_v.weight"
#define DOWN ".ffn_down.weight"
#define OUTPUT ".attn_output.weight"
#define FUSED ".attn_qkv.weight"

static const mix_rule s_no_rules[] = {{0}};
static const mix_rule s_q3_k_l[] = {{.end = VALUE, .there = OMM_GGML_Q5_K},
                                    {.end = DOWN, .there = OMM_GGML_Q5_K},
                                    {.end = OUTPUT, .there = OMM_GGML_Q5_K},
                                    {.end = FUSED, .there = OMM_GGML_Q4_K},
                                    {0}};
static const mix_rule s_q4_k_s[] = {{VALUE, FIRST_FOUR, OMM_GGML_Q5_K, OMM_GGML_Q4_K},
                                    {DOWN, FIRST_EIGHTH, OMM_GGML_Q5_K, OMM_GGML_Q4_K},
                                    {0}};
static const mix_rule s_q3_k_m[] = {{VALUE, FIRST_TWO, OMM_GGML_Q5_K, OMM_GGML_Q4_K},
                                    {DOWN, FIRST_SIXTEENTH, OMM_GGML_Q5_K, OMM_GGML_Q4_K},
                                    {.end = OUTPUT, .there = OMM_GGML_Q4_K},
                                    {.end = FUSED, .there = OMM_GGML_Q4_K},
                                    {0}};
static const mix_rule s_q4_k_m[] = {{VALUE, MARKED, OMM_GGML_Q6_K, OMM_GGML_Q4_K},
                                    {DOWN, MARKED, OMM_GGML_Q6_K, OMM_GGML_Q4_K},
                                    {.end = FUSED, .there = OMM_GGML_Q5_K},
                                    {0}};
static const mix_rule s_q5_k_m[] = {{VALUE, MARKED, OMM_GGML_Q6_K, OMM_GGML_Q5_K},
                                    {DOWN, MARKED, OMM_GGML_Q6_K, OMM_GGML_Q5_K},
                                    {.end = FUSED, .there = OMM_GGML_Q6_K},
                                    {0}};

/* A type or mix by name.  file_type: the number that general.file_type has for it. */
typedef struct recipe {
    const char *name;
    omm_ggml_type type;
    uint32_t file_type;
    const mix_rule *mix; /* NULL: one type */
} recipe;

static const recipe s_recipes[] = {
    {"F32", OMM_GGML_F32, 0, NULL},
    {"F16", OMM_GGML_F16, 1, NULL},
    {"BF16", OMM_GGML_BF16, 32, NULL},
    {"Q8_0", OMM_GGML_Q8_0, 7, NULL},
    {"Q6_K", OMM_GGML_Q6_K, 18, NULL},
    {"Q5_K", OMM_GGML_Q5_K, 16, NULL},
    {"Q5_K_M", OMM_GGML_Q5_K, 17, s_q5_k_m},
    {"Q5_K_S", OMM_GGML_Q5_K, 16, s_no_rules},
    {"Q5_1", OMM_GGML_Q5_1, 9, NULL},
    {"Q5_0", OMM_GGML_Q5_0, 8, NULL},
    {"Q4_K", OMM_GGML_Q4_K, 14, NULL},
    {"Q4_K_M", OMM_GGML_Q4_K, 15, s_q4_k_m},
    {"Q4_K_S", OMM_GGML_Q4_K, 14, s_q4_k_s},
    {"Q4_1", OMM_GGML_Q4_1, 3, NULL},
    {"Q4_0", OMM_GGML_Q4_0, 2, NULL},
    {"IQ4_NL", OMM_GGML_IQ4_NL, 25, NULL},
    {"IQ4_XS", OMM_GGML_IQ4_XS, 30, NULL},
    {"Q3_K", OMM_GGML_Q3_K, 11, NULL},
    {"Q3_K_L", OMM_GGML_Q3_K, 13, s_q3_k_l},
    {"Q3_K_M", OMM_GGML_Q3_K, 12, s_q3_k_m},
    {"Q3_K_S", OMM_GGML_Q3_K, 11, s_no_rules},
    {"Q2_K", OMM_GGML_Q2_K, 10, NULL},
    {"TQ2_0", OMM_GGML_TQ2_0, 37, NULL},
    {"TQ1_0", OMM_GGML_TQ1_0, 36, NULL},
};

enum { RECIPE_COUNT = sizeof s_recipes / sizeof *s_recipes };
enum { LEAST_ROW = 256 }; /* no block is longer */

typedef struct keep_rule {
    char pattern[128];
    omm_ggml_type type;
} keep_rule;

typedef struct plan {
    const recipe *recipe;
    keep_rule keep[OMM_QUANTISE_KEEP_MAX];
    unsigned keep_count;
    bool pure;
    const char *logits; /* the tensor that makes them */
    uint32_t layers;    /* blk.0 .. blk.layers - 1 */
    bool is_70b;        /* 80 layers whose query heads share keys and values */
} plan;

void omm_quantise_types(char *out, size_t size) {
    size_t used = 0;
    for (size_t i = 0; i < RECIPE_COUNT && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", s_recipes[i].name);
}

/* ---- options --------------------------------------------------------------------------------- */

static const recipe *recipe_named(const char *name) {
    for (size_t i = 0; i < RECIPE_COUNT; i++)
        if (strcasecmp(s_recipes[i].name, name) == 0) return &s_recipes[i];
    return NULL;
}

bool omm_quantise_knows(bool *is_mix, const char *type) {
    const recipe *r = recipe_named(type);
    *is_mix = r && r->mix;
    return r != NULL;
}

/* A mix begins with its smallest type, and what goes into no block of it becomes larger. */
uint64_t omm_quantise_bytes_least(const char *type, uint64_t values) {
    const recipe *r = recipe_named(type);
    const uint64_t dims[] = {LEAST_ROW, values / LEAST_ROW};
    uint64_t bytes = 0;
    const bool is_known = r && omm_gguf_tensor_bytes(&bytes, r->type, 2, dims) == OMM_OK;
    return is_known ? bytes : 0;
}

static omm_err find_recipe(const recipe **out, const char *name) {
    char accepted[256];
    *out = recipe_named(name);
    if (*out) return OMM_OK;
    omm_quantise_types(accepted, sizeof accepted);
    return omm_raise(OMM_ERR_CONFIG, "type '%s' is not known; accepted: %s", name, accepted);
}

static omm_err parse_keep(keep_rule *out, const char *text) {
    const recipe *r = NULL;
    const char *sign = strrchr(text, '=');
    if (!sign || sign == text || (size_t)(sign - text) >= sizeof out->pattern)
        return omm_raise(OMM_ERR_CONFIG, "'%s': expected PATTERN=TYPE, as in output.weight=Q8_0",
                         text);
    OMM_TRY(find_recipe(&r, sign + 1));
    if (r->mix) return omm_raise(OMM_ERR_CONFIG, "'%s': %s is a mix; name one type", text, r->name);
    memcpy(out->pattern, text, (size_t)(sign - text));
    out->pattern[sign - text] = '\0';
    out->type = r->type;
    return OMM_OK;
}

/* The number in blk.N.; false for tensors of no layer. */
static bool layer_of(uint32_t *out, const char *name) {
    if (strncmp(name, "blk.", 4) != 0 || name[4] < '0') return false; /* strtoul would take " 1" */
    char *end = NULL;
    const unsigned long n = strtoul(name + 4, &end, 10);
    *out = (uint32_t)n;
    return *end == '.' && n <= OMM_GGUF_TENSORS_MAX;
}

static bool is_70b(const omm_gguf *in, uint32_t layers) {
    const omm_gguf_tensor *q = omm_gguf_find_tensor(in, "blk.0.attn_q.weight");
    const omm_gguf_tensor *v = omm_gguf_find_tensor(in, "blk.0.attn_v.weight");
    return layers == 80 && q && v && v->dims[1] < q->dims[1];
}

static omm_err plan_init(plan *p, const omm_gguf *in, const omm_quantise_options *o) {
    *p = (plan){.pure = o->pure, .keep_count = o->keep_count};
    OMM_TRY(find_recipe(&p->recipe, o->type));
    if (o->pure && p->recipe->mix)
        return omm_raise(OMM_ERR_CONFIG,
                         "--pure: %s is a mix of types; accepted: one type as %s, or no --pure",
                         p->recipe->name, omm_ggml_find((uint32_t)p->recipe->type)->name);
    OMM_ASSERT(o->keep_count <= OMM_QUANTISE_KEEP_MAX);
    for (unsigned i = 0; i < o->keep_count; i++) OMM_TRY(parse_keep(&p->keep[i], o->keep[i]));
    const bool untied = omm_gguf_find_tensor(in, "output.weight") != NULL;
    p->logits = untied ? "output.weight" : "token_embd.weight";
    for (size_t i = 0; i < in->tensor_count; i++) {
        uint32_t layer = 0;
        if (layer_of(&layer, in->tensors[i].name) && layer >= p->layers) p->layers = layer + 1;
    }
    p->is_70b = is_70b(in, p->layers);
    return OMM_OK;
}

/* ---- rules ----------------------------------------------------------------------------------- */

uint64_t quantise_rows(const omm_gguf_tensor *t) {
    return t->dims[1] * t->dims[2] * t->dims[3];
}

static bool ends_with(const char *name, const char *end) {
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static bool stays_f32(const omm_gguf_tensor *t) {
    return quantise_rows(t) == 1 || ends_with(t->name, "_norm.weight") ||
           strstr(t->name, "ffn_gate_inp") != NULL;
}

/* 6 bits a weight or fewer: errors that show in the logits when the output matrix has them too. */
static bool has_few_bits(omm_ggml_type type) {
    const omm_ggml_info *info = omm_ggml_find((uint32_t)type);
    return 8 * info->bytes <= 6 * info->block;
}

bool quantise_is_marked(uint32_t layer, uint32_t layers) {
    const uint32_t eighth = layers / 8;
    return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

static bool is_in(layer_set set, uint32_t layer, uint32_t layers) {
    switch (set) {
    case FIRST_TWO: return layer < 2;
    case FIRST_FOUR: return layer < 4;
    case FIRST_EIGHTH: return layer < layers / 8;
    case FIRST_SIXTEENTH: return layer < layers / 16;
    case MARKED: return quantise_is_marked(layer, layers);
    default: return true;
    }
}

static omm_ggml_type mixed(const plan *p, const char *name) {
    omm_ggml_type type = p->recipe->type;
    uint32_t layer = 0;
    if (!layer_of(&layer, name)) return type;
    for (const mix_rule *r = p->recipe->mix; r->end; r++)
        if (ends_with(name, r->end))
            type = is_in(r->layers, layer, p->layers) ? r->there : r->else_type;
    const bool is_few = type == OMM_GGML_Q3_K || type == OMM_GGML_Q4_K;
    return p->is_70b && is_few && ends_with(name, VALUE) ? OMM_GGML_Q5_K : type;
}

/* The first `keep` that names the tensor; keep_count where none does. */
static unsigned rule_of(const plan *p, const omm_gguf_tensor *t) {
    unsigned i = 0;
    while (i < p->keep_count && fnmatch(p->keep[i].pattern, t->name, 0) != 0) i++;
    return i;
}

static omm_ggml_type wanted(const plan *p, const omm_gguf_tensor *t) {
    const omm_ggml_type type = p->recipe->type;
    if (stays_f32(t)) return OMM_GGML_F32;
    const unsigned rule = rule_of(p, t);
    if (rule < p->keep_count) return p->keep[rule].type;
    if (!p->pure && has_few_bits(type)) {
        if (strcmp(t->name, p->logits) == 0) return OMM_GGML_Q6_K;
        const bool ternary = type == OMM_GGML_TQ1_0 || type == OMM_GGML_TQ2_0;
        if (ternary && strcmp(t->name, "token_embd.weight") == 0) return OMM_GGML_Q4_K;
    }
    return p->recipe->mix ? mixed(p, t->name) : type;
}

static omm_ggml_type that_divides(omm_ggml_type type, uint64_t cols) {
    if (cols % omm_ggml_find((uint32_t)type)->block == 0) return type;
    return cols % omm_ggml_find(OMM_GGML_Q8_0)->block == 0 ? OMM_GGML_Q8_0 : OMM_GGML_F16;
}

static omm_err refuse_adapter(const omm_gguf *in) {
    char kind[32] = "model";
    if (!omm_gguf_find(in, "general.type")) return OMM_OK;
    OMM_TRY(omm_gguf_get_text(kind, sizeof kind, in, "general.type"));
    if (strcmp(kind, "adapter") != 0) return OMM_OK;
    return omm_raise(OMM_ERR_UNSUPPORTED, "this is an adapter; only models are quantised");
}

/* A pattern that nothing has is a mistake, which would show only as a worse model; so is one that others leave nothing. */
static omm_err check_keep(const plan *p, const omm_gguf *in) {
    for (unsigned i = 0; i < p->keep_count; i++) {
        bool found = false, counts = false;
        for (size_t j = 0; j < in->tensor_count && !counts; j++) {
            const omm_gguf_tensor *t = &in->tensors[j];
            if (stays_f32(t) || fnmatch(p->keep[i].pattern, t->name, 0) != 0) continue;
            found = true;
            counts = rule_of(p, t) == i;
        }
        if (!found)
            return omm_raise(OMM_ERR_CONFIG,
                             "no matrix of this model is named '%s'; it has, for example, '%s'",
                             p->keep[i].pattern, p->logits);
        if (!counts)
            return omm_raise(OMM_ERR_CONFIG,
                             "'%s' changes nothing: patterns before it name all of its matrices, "
                             "and the first that names one counts",
                             p->keep[i].pattern);
    }
    return OMM_OK;
}

omm_err quantise_plan(omm_quantise_tensor *tensors, uint32_t *file_type, const omm_gguf *in,
                      const omm_quantise_options *options) {
    plan p;
    OMM_TRY(refuse_adapter(in));
    OMM_TRY(plan_init(&p, in, options));
    OMM_TRY(check_keep(&p, in));
    *file_type = p.recipe->file_type;
    for (size_t i = 0; i < in->tensor_count; i++) {
        const omm_gguf_tensor *t = &in->tensors[i];
        omm_quantise_tensor *out = &tensors[i];
        if (t->dims[0] > OMM_MATRIX_DIM_MAX)
            return omm_raise(OMM_ERR_TOO_BIG, "tensor '%s': %llu columns, at most %u", t->name,
                             (unsigned long long)t->dims[0], OMM_MATRIX_DIM_MAX);
        out->name = t->name;
        out->from = t->type;
        out->wanted = wanted(&p, t);
        out->to = that_divides(out->wanted, t->dims[0]);
        out->elements = t->dims[0] * quantise_rows(t);
        out->bytes_from = t->data.size;
        OMM_TRY(omm_gguf_tensor_bytes(&out->bytes_to, (uint32_t)out->to, t->n_dims, t->dims));
    }
    return OMM_OK;
}

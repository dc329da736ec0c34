/* peft.c - reading a PEFT folder: names to layers, rows to GGUF's order. */
#include "omm/gguf.h"
#include "peft_internal.h"

#include "omm/mem.h"
#include "omm/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- base models ------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    bool permuted, fused;
} s_architectures[] = {
    {"llama", true, false},     {"qwen2", false, false},        {"qwen3", false, false},
    {"gemma", false, false},    {"gemma2", false, false},       {"gemma3", false, false},
    {"phi3", false, true},      {"smollm3", true, false},       {"granite", true, false},
    {"olmo2", false, false},    {"mistral3", true, false},      {"exaone4", false, false},
    {"ernie4_5", false, false}, {"hunyuan-dense", false, false}};

enum { ARCHITECTURES = sizeof s_architectures / sizeof *s_architectures };

static omm_err find_architecture(omm_peft_base *base, const omm_gguf *gguf) {
    char *name = base->shape.architecture, list[192] = "";
    size_t used = 0;
    OMM_TRY(omm_gguf_get_text(name, sizeof base->shape.architecture, gguf, "general.architecture"));
    for (size_t i = 0; i < ARCHITECTURES; i++) {
        if (strcmp(name, s_architectures[i].name) == 0) {
            base->permuted = s_architectures[i].permuted;
            base->shape.fused = s_architectures[i].fused;
            return OMM_OK;
        }
        const int n = snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                               s_architectures[i].name);
        OMM_ASSERT(n > 0 && (size_t)n < sizeof list - used);
        used += (size_t)n;
    }
    return omm_raise(OMM_ERR_UNSUPPORTED, "architecture '%s': adapters are converted for %s", name,
                     list);
}

static omm_err get_key(uint32_t *out, const omm_gguf *gguf, const char *arch, const char *key) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    return omm_gguf_get_u32(out, gguf, name);
}

/* One layer's target: the same widths in every layer. */
static omm_err take_widths(omm_lora_shape *shape, const omm_gguf *gguf, uint32_t layer,
                           omm_lora_target target) {
    char name[OMM_GGUF_NAME_MAX];
    snprintf(name, sizeof name, "blk.%u.%s.weight", layer, lora_tensor_stem(shape, target));
    const omm_gguf_tensor *t = omm_gguf_find_tensor(gguf, name);
    if (!t) return omm_raise(OMM_ERR_NOT_FOUND, "tensor '%s' is missing", name);
    if (t->dims[0] > UINT32_MAX || t->dims[1] > UINT32_MAX || t->dims[2] != 1 || t->dims[3] != 1)
        return omm_raise(OMM_ERR_TOO_BIG, "tensor '%s' is no matrix of usual size", name);
    if (layer == 0) {
        shape->d_in[target] = (uint32_t)t->dims[0];
        shape->d_out[target] = (uint32_t)t->dims[1];
    }
    if (t->dims[0] == shape->d_in[target] && t->dims[1] == shape->d_out[target]) return OMM_OK;
    return omm_raise(OMM_ERR_MISMATCH, "tensor '%s' has another shape than in layer 0", name);
}

uint32_t peft_head_dim(const omm_peft_base *base, omm_lora_target target) {
    if (!base->permuted || (target != OMM_LORA_Q && target != OMM_LORA_K)) return 0;
    return base->shape.d_out[target] / (target == OMM_LORA_Q ? base->heads : base->kv_heads);
}

static omm_err check_heads(const omm_peft_base *base) {
    const uint32_t *out = base->shape.d_out;
    const bool fits = base->heads != 0 && base->kv_heads != 0 &&
                      out[OMM_LORA_Q] % base->heads == 0 && out[OMM_LORA_K] % base->kv_heads == 0 &&
                      out[OMM_LORA_Q] / base->heads % 2 == 0 &&
                      out[OMM_LORA_Q] / base->heads == out[OMM_LORA_K] / base->kv_heads;
    if (fits) return OMM_OK;
    return omm_raise(OMM_ERR_MISMATCH,
                     "q of %u rows and k of %u do not divide into %u and %u heads", out[OMM_LORA_Q],
                     out[OMM_LORA_K], base->heads, base->kv_heads);
}

/* The file has q, k, v as one tensor and gate, up as another: what rows are whose. */
static omm_err take_stacked(omm_peft_base *b, const omm_gguf *gguf) {
    static const omm_lora_target there[] = {OMM_LORA_Q, OMM_LORA_O, OMM_LORA_UP, OMM_LORA_DOWN};
    omm_lora_shape s = b->shape;
    s.stacked = true;
    for (uint32_t layer = 0; layer < s.layer_count; layer++)
        for (size_t i = 0; i < sizeof there / sizeof *there; i++)
            OMM_TRY(take_widths(&s, gguf, layer, there[i]));
    const uint64_t q = s.d_in[OMM_LORA_O], both = s.d_out[OMM_LORA_UP];
    if (b->heads == 0 || q % b->heads != 0 ||
        q + 2 * (q / b->heads) * b->kv_heads != s.d_out[OMM_LORA_Q] ||
        both != 2 * (uint64_t)s.d_in[OMM_LORA_DOWN])
        return omm_raise(OMM_ERR_MISMATCH,
                         "attn_qkv of %u rows and ffn_up of %u are not those of %u and %u heads",
                         s.d_out[OMM_LORA_Q], s.d_out[OMM_LORA_UP], b->heads, b->kv_heads);
    const uint32_t kv = (s.d_out[OMM_LORA_Q] - (uint32_t)q) / 2;
    const uint32_t in = s.d_in[OMM_LORA_Q], ff = s.d_in[OMM_LORA_DOWN];
    const uint32_t d_in[] = {in, in, in, (uint32_t)q, s.d_in[OMM_LORA_UP], s.d_in[OMM_LORA_UP], ff};
    const uint32_t d_out[] = {(uint32_t)q,           kv, kv, s.d_out[OMM_LORA_O], ff, ff,
                              s.d_out[OMM_LORA_DOWN]};
    memcpy(b->shape.d_in, d_in, sizeof d_in);
    memcpy(b->shape.d_out, d_out, sizeof d_out);
    return OMM_OK;
}

omm_err omm_peft_base_read(omm_peft_base *base, const omm_gguf *gguf) {
    omm_peft_base b = {0};
    const char *arch = b.shape.architecture;
    OMM_TRY(omm_gguf_refuse_adapter(gguf));
    OMM_TRY(find_architecture(&b, gguf));
    OMM_TRY(get_key(&b.shape.layer_count, gguf, arch, "block_count"));
    if (b.shape.layer_count < 1 || b.shape.layer_count > OMM_LORA_LAYERS_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "%u layers, accepted are 1 to %u", b.shape.layer_count,
                         OMM_LORA_LAYERS_MAX);
    OMM_TRY(get_key(&b.heads, gguf, arch, "attention.head_count"));
    omm_err err = get_key(&b.kv_heads, gguf, arch, "attention.head_count_kv");
    if (err == OMM_ERR_NOT_FOUND) b.kv_heads = b.heads;
    if (err != OMM_OK && err != OMM_ERR_NOT_FOUND) return err;
    if (b.shape.fused) OMM_TRY(take_stacked(&b, gguf));
    for (uint32_t layer = 0; layer < b.shape.layer_count && !b.shape.fused; layer++)
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
            OMM_TRY(take_widths(&b.shape, gguf, layer, (omm_lora_target)t));
    if (b.permuted) OMM_TRY(check_heads(&b));
    omm_lora_base_read(&b.shape.base, gguf);
    *base = b;
    return OMM_OK;
}

/* ---- names ------------------------------------------------------------------------------------ */

const char *peft_module(const omm_lora_shape *shape, omm_lora_target target) {
    static const char *const modules[OMM_LORA_TARGET_COUNT] = {
        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
        "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
    OMM_ASSERT((unsigned)target < OMM_LORA_TARGET_COUNT);
    if (shape->stacked && target == OMM_LORA_Q) return "self_attn.qkv_proj";
    if (shape->stacked && target == OMM_LORA_UP) return "mlp.gate_up_proj";
    return modules[target];
}

/* What one tensor's name says. */
typedef struct place {
    uint32_t layer;
    omm_lora_target target;
    bool is_b;
    char path[PEFT_PATH_MAX]; /* "model.layers.0.self_attn.q_proj" */
} place;

static const char *after(const char *text, const char *prefix) {
    const size_t size = strlen(prefix);
    return text && strncmp(text, prefix, size) == 0 ? text + size : NULL;
}

static omm_err strange(const char *name) {
    const char *why = "no LoRA pair of a linear layer in model.layers";
    if (strstr(name, "lora_embedding_")) why = "LoRA on embeddings has no counterpart";
    if (strstr(name, "lora_magnitude_vector")) why = "DoRA has no counterpart";
    if (strstr(name, "modules_to_save")) why = "modules_to_save has no counterpart";
    if (strstr(name, "lm_head.lora_")) why = "LoRA on the output layer is not applied here";
    if (strstr(name, "qkv_proj") || strstr(name, "gate_up_proj"))
        why = "the model has q, k, v and gate, up as layers of their own";
    if (strstr(name, "shared_mlp.")) /* of Granite 4 */
        why = "of shared_mlp nothing is read; of such a model adapters of q_proj, k_proj, v_proj, "
              "o_proj are";
    return omm_raise(OMM_ERR_UNSUPPORTED, OMM_PEFT_MODEL_FILE ": tensor '%.200s': %s", name, why);
}

static omm_err parse_place(place *out, const char *name, const omm_lora_shape *shape) {
    static const char *const heads[] = {PEFT_PATH_PREFIX "layers.", "language_model.model.layers.",
                                        "model.language_model.layers."};
    const char *path = after(name, PEFT_KEY_PREFIX), *p = NULL;
    for (size_t i = 0; i < sizeof heads / sizeof *heads && !p; i++) p = after(path, heads[i]);
    if (!p || p[0] < '0' || p[0] > '9' || (p[0] == '0' && p[1] != '.')) return strange(name);
    uint32_t layer = 0;
    for (; *p >= '0' && *p <= '9'; p++) {
        layer = layer * 10 + (uint32_t)(*p - '0');
        if (layer >= OMM_LORA_LAYERS_MAX) return strange(name);
    }
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
        const char *tail = *p == '.' ? after(p + 1, peft_module(shape, (omm_lora_target)t)) : NULL;
        if (!tail) continue;
        const bool is_b = strcmp(tail, ".lora_B.weight") == 0;
        if (!is_b && strcmp(tail, ".lora_A.weight") != 0) break;
        *out = (place){.layer = layer, .target = (omm_lora_target)t, .is_b = is_b};
        snprintf(out->path, sizeof out->path, "%.*s", (int)(tail - path), path);
        return OMM_OK;
    }
    return strange(name);
}

/* ---- reading ---------------------------------------------------------------------------------- */

typedef struct reading {
    const omm_peft_base *base;
    peft_config config;
    omm_safetensors file;
    omm_lora_plan plan;
    char prefix[PEFT_PATH_MAX]; /* what stands before "layers." in this file */
} reading;

static omm_err check_matrix(const omm_safetensor *t) {
    if (t->n_dims == 2 && t->dims[0] >= 1 && t->dims[1] >= 1 && t->dims[0] <= UINT32_MAX &&
        t->dims[1] <= UINT32_MAX)
        return OMM_OK;
    return omm_raise(OMM_ERR_MISMATCH, OMM_PEFT_MODEL_FILE ": tensor '%.200s' is no matrix",
                     t->name);
}

/* The shape that a folder itself claims: the first tensor of a kind decides. */
static omm_err claim_shape(omm_lora_shape *shape, const omm_safetensors *file) {
    *shape = (omm_lora_shape){.architecture = "peft"};
    for (size_t i = 0; i < file->count; i++)
        if (strstr(file->tensors[i].name, "self_attn.qkv_proj.") ||
            strstr(file->tensors[i].name, "mlp.gate_up_proj."))
            shape->stacked = true;
    for (size_t i = 0; i < file->count; i++) {
        const omm_safetensor *t = &file->tensors[i];
        place at = {0};
        OMM_TRY(parse_place(&at, t->name, shape));
        OMM_TRY(check_matrix(t));
        if (at.layer >= shape->layer_count) shape->layer_count = at.layer + 1;
        uint32_t *width = at.is_b ? &shape->d_out[at.target] : &shape->d_in[at.target];
        if (*width == 0) *width = (uint32_t)t->dims[at.is_b ? 0 : 1];
    }
    return OMM_OK;
}

enum { LOOK_UPS_MAX = 4000000 };

/* Each tensor is looked up in both tables. */
static omm_err check_work(const reading *r) {
    const size_t patterns = r->config.ranks + r->config.alphas;
    if (patterns <= LOOK_UPS_MAX / (r->file.count + 1)) return OMM_OK;
    return omm_raise(OMM_ERR_TOO_BIG,
                     OMM_PEFT_CONFIG_FILE
                     ": %zu patterns for %zu tensors are too many to look up: at most %d together",
                     patterns, r->file.count, LOOK_UPS_MAX);
}

static omm_err take_tensor(reading *r, const omm_safetensor *t) {
    const omm_lora_shape *shape = &r->plan.shape;
    place at = {0};
    bool targeted = false;
    omm_lora_pair pair = {0};
    OMM_TRY(parse_place(&at, t->name, shape));
    OMM_TRY(check_matrix(t));
    OMM_TRY(peft_config_targets(&targeted, &r->config, at.path, at.layer));
    if (!targeted)
        return omm_raise(OMM_ERR_MISMATCH,
                         OMM_PEFT_MODEL_FILE
                         ": '%s' is not among the target modules: PEFT leaves it out",
                         at.path);
    OMM_TRY(peft_config_pair(&pair, &r->config, at.path));
    const uint32_t width = at.is_b ? shape->d_out[at.target] : shape->d_in[at.target];
    const uint64_t rows = at.is_b ? width : pair.rank, cols = at.is_b ? pair.rank : width;
    if (at.layer >= shape->layer_count || width == 0)
        return omm_raise(OMM_ERR_MISMATCH,
                         OMM_PEFT_MODEL_FILE ": '%s': the model has no such layer", at.path);
    if (t->dims[0] != rows || t->dims[1] != cols)
        return omm_raise(OMM_ERR_MISMATCH,
                         OMM_PEFT_MODEL_FILE ": '%.200s' is [%llu][%llu], model and rank want "
                                             "[%llu][%llu]",
                         t->name, (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                         (unsigned long long)rows, (unsigned long long)cols);
    const size_t stem = strlen(at.path) - strlen(strstr(at.path, "layers."));
    if (r->prefix[0] && (strlen(r->prefix) != stem || memcmp(r->prefix, at.path, stem) != 0))
        return omm_raise(OMM_ERR_MISMATCH,
                         OMM_PEFT_MODEL_FILE ": both '%s' and '%s': one model only", r->prefix,
                         at.path);
    snprintf(r->prefix, sizeof r->prefix, "%.*s", (int)stem, at.path);
    r->plan.pairs[(size_t)at.layer * OMM_LORA_TARGET_COUNT + at.target] = pair;
    return OMM_OK;
}

/* A targeted layer without tensors means a damaged folder, not an untrained layer. */
static omm_err check_complete(const reading *r) {
    for (uint32_t layer = 0; layer < r->plan.shape.layer_count; layer++)
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
            char path[2 * PEFT_PATH_MAX];
            bool targeted = false;
            if (r->plan.pairs[(size_t)layer * OMM_LORA_TARGET_COUNT + t].rank) continue;
            if (r->plan.shape.d_in[t] == 0) continue;
            snprintf(path, sizeof path, "%slayers.%u.%s", r->prefix, layer,
                     peft_module(&r->plan.shape, (omm_lora_target)t));
            OMM_TRY(peft_config_targets(&targeted, &r->config, path, layer));
            if (targeted && r->base)
                return omm_raise(OMM_ERR_NOT_FOUND,
                                 OMM_PEFT_MODEL_FILE ": '%s' is a target module without tensors",
                                 path);
        }
    return OMM_OK;
}

static omm_err fill_tensor(omm_lora *lora, const omm_lora_tensor *to, const reading *r) {
    char name[2 * PEFT_PATH_MAX];
    snprintf(name, sizeof name, PEFT_KEY_PREFIX "%slayers.%u.%s.lora_%c.weight", r->prefix,
             to->layer, peft_module(&lora->shape, to->target), to->is_b ? 'B' : 'A');
    const omm_safetensor *from = omm_safetensors_find(&r->file, name);
    if (!from)
        return omm_raise(OMM_ERR_NOT_FOUND, OMM_PEFT_MODEL_FILE ": tensor '%s' is missing", name);
    const uint32_t head_dim = r->base && to->is_b ? peft_head_dim(r->base, to->target) : 0;
    for (size_t row = 0; row < to->rows; row++) {
        const size_t other = head_dim ? peft_row(row, head_dim, true) : row;
        for (size_t col = 0; col < to->cols; col++) {
            const float v = omm_safetensor_get(from, other * to->cols + col);
            if (!isfinite(v))
                return omm_raise(OMM_ERR_NUMERIC,
                                 OMM_PEFT_MODEL_FILE ": '%s'[%zu][%zu] is not finite", name, other,
                                 col);
            lora->values[to->offset + row * to->cols + col] = v;
        }
    }
    return OMM_OK;
}

static omm_err open_files(reading *r, const char *dir) {
    char path[OMM_PATH_MAX], pickle[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(path, dir, OMM_PEFT_CONFIG_FILE));
    OMM_TRY(peft_config_open(&r->config, path));
    OMM_TRY(omm_path_join(path, dir, OMM_PEFT_MODEL_FILE));
    OMM_TRY(omm_path_join(pickle, dir, "adapter_model.bin"));
    if (!omm_file_exists(path) && omm_file_exists(pickle))
        return omm_raise(OMM_ERR_UNSUPPORTED,
                         "%s is a pickle, a program more than a file: save the adapter as "
                         "safetensors",
                         pickle);
    return omm_safetensors_open(&r->file, path);
}

/* The model that the folder was trained on, as far as it says. */
static omm_err take_base(omm_lora_base *base, const reading *r) {
    omm_lora_base said = {0};
    const char *hex = omm_safetensors_metadata(&r->file, LORA_BASE_FINGERPRINT);
    const char *name =
        json_string_value(json_object_get(r->config.root, "base_model_name_or_path"));
    if (hex) OMM_TRY(lora_base_take(&said, hex, OMM_PEFT_MODEL_FILE));
    if (name) omm_lora_base_set_name(&said, omm_bytes_str(name));
    return lora_base_meet(base, &said);
}

static omm_err read_all(omm_lora *out, reading *r, const char *dir) {
    omm_lora_shape shape = {0};
    OMM_TRY(open_files(r, dir));
    if (r->file.count == 0)
        return omm_raise(OMM_ERR_NOT_FOUND, "%s: " OMM_PEFT_MODEL_FILE " has no tensors", dir);
    if (r->base)
        shape = r->base->shape.fused ? lora_stacked_shape(&r->base->shape) : r->base->shape;
    else
        OMM_TRY(claim_shape(&shape, &r->file));
    OMM_TRY(take_base(&shape.base, r));
    OMM_TRY(omm_lora_plan_init(&r->plan, &shape));
    OMM_TRY(check_work(r));
    for (size_t i = 0; i < r->file.count; i++) OMM_TRY(take_tensor(r, &r->file.tensors[i]));
    OMM_TRY(check_complete(r));
    OMM_TRY(omm_lora_init_plan(out, &r->plan));
    for (size_t i = 0; i < out->tensor_count; i++) OMM_TRY(fill_tensor(out, &out->tensors[i], r));
    return OMM_OK;
}

static omm_err read_dir(omm_lora *out, const char *dir, const omm_peft_base *base) {
    reading r = {.base = base};
    omm_lora lora = {0};
    omm_err err = read_all(&lora, &r, dir);
    omm_lora_plan_fini(&r.plan);
    omm_safetensors_close(&r.file);
    peft_config_close(&r.config);
    if (err != OMM_OK && err != OMM_ERR_NOMEM && strncmp(omm_err_sentence(), dir, strlen(dir)) != 0)
        err = omm_raise(err, "%s: %s", dir, omm_err_sentence());
    if (err != OMM_OK)
        omm_lora_fini(&lora);
    else
        *out = lora;
    return err;
}

omm_err omm_peft_import(omm_lora *out, bool *rounded, const char *dir, const omm_peft_base *base,
                        bool rounding) {
    omm_lora lora = {0}, apart = {0};
    OMM_TRY(read_dir(&lora, dir, base));
    omm_err err = omm_lora_fold(rounded, &lora, rounding);
    if (err == OMM_OK && lora.shape.stacked) {
        err = lora_unfuse(&apart, &lora, &base->shape);
        apart.shape.base = lora.shape.base;
        omm_lora_fini(&lora);
        lora = apart;
    }
    if (err != OMM_OK)
        omm_lora_fini(&lora);
    else
        *out = lora;
    return err;
}

omm_err omm_peft_load(omm_lora *out, const char *dir) {
    return read_dir(out, dir, NULL);
}

/* plan.c - see omm/plan.h. */
#include "omm/plan.h"

#include "adapter_internal.h"
#include "lora_internal.h"
#include "session_internal.h"

#include "omm/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Binary, libraries, stacks and an empty heap.  Measured: 4 to 6 MB. */
#define PROGRAM_BYTES ((uint64_t)6 << 20)
/* A vocabulary takes its header's bytes so often: in the mapped file, as text, and as tables.
 * Measured: 4.2 (phi-3, llama-spm) to 5.5 (gpt-2). */
#define VOCABULARY_COPIES 5u
/* And a lexicon of it (constraint.h), in all that it asks for.  Measured: 1.5 (falcon) to 2.3 (llama-spm). */
#define LEXICON_COPIES 2u

typedef struct planner {
    const omm_gguf *gguf;
    const omm_plan_options *options;
    omm_model model;   /* outline */
    uint32_t resident; /* layers in memory */
    uint64_t adapter_bytes, adapter_rows;
    uint64_t adapter_loading; /* most that one takes, while it is read, beyond its packed size */
} planner;

/* ---- parts ----------------------------------------------------------------------------------- */

/* The type that has all values of the matrix which this tensor is packed into: A of layers with one input are one
 * matrix, and if their types differ only F32 surely has them all. */
static omm_ggml_type packed_type(const omm_gguf *adapter, const omm_gguf_tensor *t) {
    const omm_lora_shape names = {0};
    uint32_t layer = 0;
    omm_lora_target target = OMM_LORA_Q;
    bool is_b = false;
    if (!lora_parse_name(&layer, &target, &is_b, t->name, false) || is_b) return t->type;
    for (unsigned u = 0; u < OMM_LORA_TARGET_COUNT; u++) {
        if (adapter_input_of((omm_lora_target)u) != adapter_input_of(target)) continue;
        char name[OMM_GGUF_NAME_MAX];
        snprintf(name, sizeof name, "blk.%u.%s.weight.lora_a", layer,
                 lora_tensor_stem(&names, (omm_lora_target)u));
        const omm_gguf_tensor *other = omm_gguf_find_tensor(adapter, name);
        if (other && other->type != t->type) return OMM_GGML_F32;
    }
    return t->type;
}

/* As omm_adapter_open packs the values that a file's tensor has: those of other quantised types have no exact form
 * of 16 bits. */
static uint64_t packed_bytes(const omm_gguf *adapter, const omm_gguf_tensor *t) {
    const uint64_t values = adapter_padded(t->dims[0]) * adapter_padded(t->dims[1]);
    switch (packed_type(adapter, t)) {
    case OMM_GGML_F16:
    case OMM_GGML_BF16: return 2 * values;
    case OMM_GGML_Q8_0:
        return omm_rows_stride(OMM_GGML_Q8_0, t->dims[0]) * adapter_padded(t->dims[1]);
    default: return sizeof(float) * values;
    }
}

/* B of q, k and v in one tensor, or of gate and up: does the first of them leave the last column to others?  Then
 * each has ranks of its own (omm_lora_fuse), else all have the whole A. */
static bool is_in_blocks(const omm_gguf_tensor *b) {
    float row[OMM_LORA_RANK_MAX];
    if (b->dims[0] > OMM_LORA_RANK_MAX) return false;
    omm_rows_dequantise(row, b->type, b->data.data, b->dims[0]);
    return row[b->dims[0] - 1] == 0.0f;
}

/* Layers that share a tensor of the adapter: 3 of q, k and v, 2 of gate and up, else 1. */
static uint64_t layers_of(const planner *p, const omm_gguf_tensor *b) {
    const omm_lora_shape *shape = &p->model.lora_shape;
    const uint64_t both = (uint64_t)shape->d_out[OMM_LORA_GATE] + shape->d_out[OMM_LORA_UP];
    if (!shape->fused) return 1;
    if (strstr(b->name, ".attn_qkv.")) return 3;
    return strstr(b->name, ".ffn_up.") && b->dims[1] == both ? 2 : 1;
}

/* What a tensor's bytes become when it is taken apart for its layers: `all` times as many, a `part`th of that.
 * Blocks of equal ranks are what omm_lora_fuse makes of adapters of one rank. */
typedef struct plan_share {
    uint64_t all, part;
} plan_share;

static plan_share share_of(const planner *p, const omm_gguf *adapter, const omm_gguf_tensor *t) {
    char name[OMM_GGUF_NAME_MAX];
    const int size = snprintf(name, sizeof name, "%s", t->name);
    if (size < 1) return (plan_share){1, 1};
    const bool is_a = name[size - 1] == 'a';
    name[size - 1] = 'b';
    const omm_gguf_tensor *b = omm_gguf_find_tensor(adapter, name);
    const uint64_t layers = b ? layers_of(p, b) : 1;
    if (layers == 1) return (plan_share){1, 1};
    if (is_in_blocks(b)) return (plan_share){1, is_a ? 1 : layers};
    return (plan_share){is_a ? layers : 1, 1};
}

/* `rows`: of A that a token passes at most. */
static void add_adapter(planner *p, const omm_gguf *adapter) {
    uint64_t rank = 0, reading = 0, values = 0, apart = 0, packed = 0;
    bool is_stacked = false;
    for (size_t i = 0; i < adapter->tensor_count; i++) {
        const omm_gguf_tensor *t = &adapter->tensors[i];
        const plan_share share = share_of(p, adapter, t);
        const uint64_t bytes = t->dims[0] * t->dims[1] * sizeof(float);
        const char *tail = strstr(t->name, ".lora_a");
        if (tail && t->dims[1] > rank) rank = t->dims[1];
        is_stacked = is_stacked || share.all > 1 || share.part > 1;
        packed += share.all * packed_bytes(adapter, t) / share.part;
        apart += share.all * bytes / share.part;
        values += bytes;
        reading += t->data.size + bytes;
    }
    if (is_stacked) {
        reading += apart; /* beside what was read */
        values = apart;   /* beside what is packed: the file is closed */
    }
    const uint64_t loading = reading > packed + values ? reading - packed : values;
    if (loading > p->adapter_loading) p->adapter_loading = loading;
    p->adapter_bytes += packed;
    p->adapter_rows += 3 * rank; /* q, k and v share an input */
}

static uint64_t cache_bytes(const planner *p, const omm_session_options *o) {
    const omm_model_dims *d = &p->model.dims;
    const uint64_t blocks = ((uint64_t)o->positions_max + OMM_KV_BLOCK - 1) / OMM_KV_BLOCK;
    const uint64_t block =
        omm_kv_pool_made_bytes(omm_kv_block_bytes(o->kv_type, d->kv_heads, d->head_dim));
    const uint64_t table = sizeof(omm_kv) + blocks * sizeof(void *);
    const uint64_t one =
        d->layers * (blocks * block + table) + (uint64_t)o->positions_max * sizeof(uint32_t);
    return one * (p->options->sessions ? p->options->sessions : 1);
}

static uint64_t work_bytes(const planner *p, const omm_session_options *o) {
    const model_graph_options g = {.model = &p->model,
                                   .activations = o->activations,
                                   .rows_max = o->batch_max,
                                   .positions_max = o->positions_max};
    const uint64_t group = (sizeof(model_span) + 2 * sizeof(uint32_t)) * (uint64_t)o->batch_max;
    const uint64_t logits = p->options->logit_rows * p->model.dims.vocab * sizeof(float);
    return model_graph_activation_bytes(&g) + model_graph_rope_bytes(&g) + group + logits +
           omm_compute_bytes(p->options->threads);
}

static uint64_t adapters_bytes(const planner *p, const omm_session_options *o) {
    if (p->adapter_rows == 0) return p->adapter_bytes;
    const uint64_t row = p->adapter_rows * sizeof(float);
    return p->adapter_bytes +
           o->batch_max * (row + GRAPH_TERMS_PER_ROW * (uint64_t)sizeof(omm_linear_term));
}

/* Packed matrices of the layers in memory. */
static uint64_t resident_bytes(const planner *p) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->resident; i++)
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
            sum += omm_matrix_bytes(&p->model.layers[i].weights[t]);
    return sum;
}

/* Beyond the packed weights: the pages of the tensor at hand.  Embedding and output come first, when
 * the layers, `layers` bytes, are not there yet. */
static uint64_t loading_bytes(const planner *p, uint64_t layers) {
    uint64_t most = 0;
    for (size_t i = 0; i < p->gguf->tensor_count; i++) {
        const omm_gguf_tensor *t = &p->gguf->tensors[i];
        uint64_t bytes = t->data.size;
        if (strncmp(t->name, "blk.", 4) != 0)
            bytes = bytes > layers ? bytes - layers : 0;
        else if (strtoul(t->name + 4, NULL, 10) >= p->resident)
            bytes = 0;
        if (bytes > most) most = bytes;
    }
    return most;
}

static uint64_t streaming_bytes(const planner *p) {
    if (p->resident == p->model.dims.layers) return 0;
    return model_stream_room_bytes(&p->model, p->resident) +
           model_stream_page_bytes(&p->model, p->resident);
}

static void plan_session(omm_plan *out, const planner *p, const omm_session_options *session) {
    const bool tokens = p->options->tokenizer;
    const uint64_t layers = resident_bytes(p);
    const uint64_t ends =
        omm_matrix_bytes(&p->model.embed) + omm_matrix_bytes(&p->model.output_own);
    const uint64_t tensor = loading_bytes(p, layers);
    const uint64_t copies =
        (tokens ? VOCABULARY_COPIES : 1) + (p->options->lexicon ? LEXICON_COPIES : 0);
    const uint64_t adapter = p->adapter_rows ? p->adapter_bytes + p->adapter_loading : 0;
    *out = (omm_plan){.session = *session,
                      .layers = p->model.dims.layers,
                      .resident = p->resident,
                      .program = p->options->lodger ? 0 : PROGRAM_BYTES,
                      .weights = ends + layers + p->model.vector_bytes,
                      .vocabulary = p->gguf->data_offset * copies,
                      .loading = tensor > adapter ? tensor : adapter,
                      .cache = cache_bytes(p, session),
                      .adapters = adapters_bytes(p, session),
                      .work = work_bytes(p, session),
                      .streaming = streaming_bytes(p)};
    out->total = out->program + out->weights + out->vocabulary + out->cache + out->adapters +
                 out->work + out->streaming + omm_plan_loading_more(out);
}

uint64_t omm_plan_loading_more(const omm_plan *plan) {
    const uint64_t running = plan->cache + plan->adapters + plan->work + plan->streaming;
    return plan->loading > running ? plan->loading - running : 0;
}

/* ---- fitting --------------------------------------------------------------------------------- */

static omm_err planner_open(planner *p, omm_session_options *session, const omm_gguf *gguf,
                            const omm_gguf *const *adapters, size_t count,
                            const omm_plan_options *options) {
    *p = (planner){.gguf = gguf, .options = options};
    *session = options->session;
    OMM_TRY(omm_model_outline(&p->model, gguf));
    p->resident = p->model.dims.layers;
    omm_err err = session_options_check(session, &p->model);
    if (err != OMM_OK) omm_model_fini(&p->model);
    for (size_t i = 0; i < count; i++) add_adapter(p, adapters[i]);
    return err;
}

omm_err omm_plan_make(omm_plan *out, const omm_gguf *gguf, const omm_gguf *const *adapters,
                      size_t count, const omm_plan_options *options) {
    planner p;
    omm_session_options session;
    OMM_TRY(planner_open(&p, &session, gguf, adapters, count, options));
    if (options->stream == OMM_PLAN_STREAM_FIRST) p.resident = 0;
    plan_session(out, &p, &session);
    omm_model_fini(&p.model);
    return OMM_OK;
}

/* The most positions, a multiple of the cache's blocks, from `least` on: the plan at `least` fits. */
static void most_positions(omm_plan *out, const planner *p, uint32_t least, uint64_t bytes_max) {
    omm_session_options s = out->session;
    uint32_t low = least / OMM_KV_BLOCK, high = s.positions_max / OMM_KV_BLOCK; /* blocks */
    while (low < high) {
        const uint32_t middle = low + (high - low + 1) / 2;
        omm_plan tried;
        s.positions_max = middle * OMM_KV_BLOCK;
        plan_session(&tried, p, &s);
        if (tried.total <= bytes_max)
            low = middle;
        else
            high = middle - 1;
    }
    const uint32_t whole = low * OMM_KV_BLOCK;
    s.positions_max = whole > least ? whole : least;
    plan_session(out, p, &s);
}

static omm_err refuse(const omm_plan *least, uint64_t beside, uint64_t bytes_max) {
    char what[OMM_PLAN_TEXT_MAX], most[32];
    omm_plan_text(what, least);
    omm_plan_bytes_text(most, bytes_max);
    return omm_raise(OMM_ERR_CONFIG, "does not fit into %s: the least is %llu MB%s (%s)", most,
                     (unsigned long long)((least->total + beside + 999999) / 1000000),
                     beside > 0 ? " with that" : "", what);
}

/* With so many layers in memory as p says. */
static omm_err fit_session(omm_plan *out, const planner *p, omm_session_options session,
                           uint64_t bytes_max) {
    uint32_t least = p->options->positions_min ? p->options->positions_min : OMM_PLAN_POSITIONS_MIN;
    if (least > session.positions_max) least = session.positions_max;
    const omm_kv_type smallest =
        p->model.dims.head_dim < OMM_KV_Q8_0_DIM_MIN ? OMM_KV_F16 : OMM_KV_Q8_0;
    for (;;) {
        plan_session(out, p, &session);
        if (out->total <= bytes_max) return OMM_OK;
        if (session.kv_type == smallest || p->options->keeps_kv) break;
        session.kv_type = (omm_kv_type)(session.kv_type + 1); /* smaller in this order */
    }
    omm_plan small;
    session.positions_max = least;
    plan_session(&small, p, &session);
    if (small.total > bytes_max) return refuse(&small, p->options->beside, bytes_max);
    most_positions(out, p, least, bytes_max);
    return OMM_OK;
}

/* Beside the session of `out`, which fits when all layers are streamed. */
static void most_resident(omm_plan *out, planner *p, uint64_t bytes_max) {
    const omm_session_options session = out->session;
    for (p->resident = p->model.dims.layers; p->resident > 0; p->resident--) {
        plan_session(out, p, &session);
        if (out->total <= bytes_max) return;
    }
    plan_session(out, p, &session);
}

static omm_err fit(omm_plan *out, planner *p, omm_session_options session, uint64_t bytes_max) {
    omm_err err = OMM_ERR_CONFIG;
    if (p->options->stream != OMM_PLAN_STREAM_FIRST) err = fit_session(out, p, session, bytes_max);
    if (err == OMM_OK || p->options->stream == OMM_PLAN_STREAM_NEVER) return err;
    p->resident = 0;
    OMM_TRY(fit_session(out, p, session, bytes_max));
    most_resident(out, p, bytes_max);
    return OMM_OK;
}

omm_err omm_plan_fit(omm_plan *out, const omm_gguf *gguf, const omm_gguf *const *adapters,
                     size_t count, const omm_plan_options *options, uint64_t bytes_max) {
    planner p;
    omm_plan plan;
    omm_session_options session;
    OMM_TRY(planner_open(&p, &session, gguf, adapters, count, options));
    omm_err err = fit(&plan, &p, session, bytes_max);
    omm_model_fini(&p.model);
    if (err == OMM_OK) *out = plan;
    return err;
}

/* ---- texts ----------------------------------------------------------------------------------- */

void omm_plan_bytes_text(char out[32], uint64_t bytes) {
    if (bytes >= 1000000000)
        snprintf(out, 32, "%.2f GB", (double)bytes * 1e-9);
    else
        snprintf(out, 32, "%.1f MB", (double)bytes * 1e-6);
}

/* Append what follows ", " and a part's name, where it takes anything. */
static void add_part(char *out, const char *name, uint64_t bytes, const char *more) {
    const size_t used = strlen(out);
    char size[32];
    omm_plan_bytes_text(size, bytes);
    if (bytes > 0) snprintf(out + used, OMM_PLAN_TEXT_MAX - used, ", %s %s%s", name, size, more);
}

void omm_plan_text(char out[OMM_PLAN_TEXT_MAX], const omm_plan *plan) {
    char weights[32], cache[32], streaming[32], layers[112] = "";
    omm_plan_bytes_text(weights, plan->weights);
    omm_plan_bytes_text(cache, plan->cache);
    omm_plan_bytes_text(streaming, plan->streaming);
    if (plan->resident < plan->layers)
        snprintf(layers, sizeof layers, " (%u of %u layers; the others are read in every pass: %s)",
                 plan->resident, plan->layers, streaming);
    snprintf(out, OMM_PLAN_TEXT_MAX, "weights %s%s, cache %s (%u positions, %s)", weights, layers,
             cache, plan->session.positions_max, omm_kv_type_name(plan->session.kv_type));
    add_part(out, "adapters", plan->adapters, "");
    add_part(out, "work", plan->work, "");
    add_part(out, "vocabulary", plan->vocabulary, "");
    add_part(out, "program", plan->program, "");
    add_part(out, "loading", omm_plan_loading_more(plan), " more");
}

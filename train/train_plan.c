/* train_plan.c - see omm/train_plan.h. */
#include "omm/train_plan.h"

#include "batch.h"
#include "full_internal.h"
#include "omm/adapter.h"
#include "omm/compute.h"
#include "omm/lora.h"
#include "omm/session.h"
#include "trainer_internal.h"
#include "update.h"

#include <stdio.h>

#define READER_NAMED 100000u /* less is not worth a word */

typedef struct planner {
    const omm_train_plan_options *options;
    omm_lora lora;               /* layout of the adapter */
    core core;                   /* layout, with parts = core */
    uint64_t parameters, widest; /* what is trained, and values of the largest matrix */
    optimizer_sizes state;
    uint64_t projections; /* of GaLore, and its scratch or that of Muon */
    size_t longest;
    uint64_t reading, cache; /* of examples */
} planner;

/* ---- parts ----------------------------------------------------------------------------------- */

static omm_err size_adapter(planner *p) {
    const omm_train_plan_options *o = p->options;
    const bool has_core = o->recipe->parts == OMM_RECIPE_PARTS_CORE;
    OMM_TRY(trainer_layout(&p->lora, o->recipe, &o->model->lora_shape, o->like, NULL));
    if (has_core) OMM_TRY(core_layout(&p->core, &p->lora));
    const omm_lora *moved = has_core ? &p->core.c : &p->lora;
    p->parameters = moved->value_count;
    p->state = optimizer_sizes_of(o->recipe, moved);
    p->widest = update_room(&p->lora);
    return OMM_OK;
}

/* Without norms and biases where the model is an outline: a thousandth. */
static omm_err size_full(planner *p) {
    const omm_train_plan_options *o = p->options;
    omm_model model = *o->model; /* the list wants one that it could change */
    full_tensors t;
    OMM_TRY(full_tensors_init(&t, &model));
    const full_sizes sizes =
        full_sizes_of(o->recipe, o->galore.rank, o->muon.rate > 0, o->threads, &t);
    p->parameters = t.value_count;
    p->state = (optimizer_sizes){sizes.m, sizes.v};
    p->projections = sizes.p + sizes.scratch;
    full_tensors_fini(&t);
    return OMM_OK;
}

static omm_err size_examples(planner *p) {
    const omm_recipe *r = p->options->recipe;
    sequence s = {0};
    const sequence_options options = {.data = p->options->data,
                                      .lane = r->seed_lane,
                                      .seq_max = r->seq_max,
                                      .batch_tokens = r->batch_tokens};
    omm_err err = sequence_open(&s, &options);
    p->longest = s.longest;
    if (err == OMM_OK) {
        omm_data_reader_room room;
        omm_data_reader_room_of(&room, p->options->data);
        p->reading = sequence_bytes(&s) + room.reading;
        p->cache = room.cache;
    }
    sequence_close(&s);
    return err;
}

/* The layout of an adapter has its values: what the heap kept of them would stand beside what is planned
 * (15 MB of smollm2-135m within 400 MB). */
static void planner_close(planner *p) {
    omm_lora_fini(&p->lora);
    core_fini(&p->core);
    omm_mem_trim();
}

static omm_err planner_open(planner *p, const omm_train_plan_options *options) {
    *p = (planner){.options = options};
    OMM_TRY(omm_recipe_validate(options->recipe));
    if (!options->full) OMM_TRY(omm_recipe_check_base(options->recipe, options->model));
    OMM_TRY(options->full ? size_full(p) : size_adapter(p));
    return size_examples(p);
}

/* Values, gradient, the best, room for one B per thread; with prox_mu where what moves began; cores and
 * frozen B's. */
static uint64_t adapter_values(const planner *p) {
    const uint64_t copies = p->options->keeps_best ? 3 : 2;
    const uint64_t values = copies * p->lora.value_count + p->options->threads * p->widest;
    const uint64_t prox = p->options->recipe->prox_mu > 0 ? p->parameters : 0;
    return values + prox + 2 * p->core.c.value_count + p->core.b_count;
}

/* A copy of the values and the file; an adapter whose scales differ is one more. */
static uint64_t writing_bytes(const planner *p) {
    const uint64_t copies = p->options->full || omm_lora_is_uniform(&p->lora) ? 2 : 3;
    const uint64_t values = copies * (p->options->full ? p->parameters : p->lora.value_count);
    return values * sizeof(float);
}

/* Values, the best of them, cores, moments. */
static uint64_t checkpoint_bytes(const planner *p) {
    const uint64_t values = p->options->full ? p->parameters : p->lora.value_count;
    const uint64_t copies = p->options->keeps_best ? 2 : 1;
    if (!p->options->has_checkpoint) return 0;
    return (copies * values + p->core.c.value_count + p->state.m + p->state.v + p->projections) *
           sizeof(float);
}

/* What of the graph stays for the next one when the last step is done.  What was work goes back to the
 * heap, which may keep it. */
static uint64_t kept_bytes(const graph_sizes *sizes) {
    const uint64_t bytes = sizes->activations + sizes->logits;
    return bytes <= OMM_COMPUTE_SPARE_BYTES_MAX ? bytes : 0;
}

/* The flat vector, the best of it, and what gradients take. */
static uint64_t full_bytes(const planner *p, size_t rows) {
    const uint64_t copies = p->options->keeps_best ? 2 : 1;
    return copies * p->parameters * sizeof(float) +
           full_bytes_of(p->options->model, p->parameters, rows);
}

static size_t rows_max(const planner *p) {
    const omm_train_plan_options *o = p->options;
    return batch_rows_max(o->recipe, o->data, p->longest, o->micro_tokens);
}

/* For examples of at most `longest` tokens. */
static omm_err plan_of(omm_train_plan *out, const planner *p, size_t rows, size_t longest,
                       uint32_t checkpoint_layers) {
    const omm_train_plan_options *o = p->options;
    const uint64_t f = sizeof(float), steps = o->recipe->steps;
    const uint32_t layers = o->model->dims.layers;
    graph_sizes sizes;
    const graph_options g = {.model = o->model,
                             .lora = o->full ? NULL : &p->lora,
                             .rows_max = rows,
                             .seq_max = longest,
                             .checkpoint_layers = checkpoint_layers,
                             .drops = o->recipe->dropout > 0,
                             .q8 = !o->full && o->recipe->activations == OMM_RECIPE_Q8};
    OMM_TRY(graph_sizes_of(&sizes, &g, o->threads));
    *out = (omm_train_plan){
        .micro_tokens = (uint32_t)rows,
        .checkpoint_layers = checkpoint_layers < layers ? checkpoint_layers : layers - 1,
        .longest = (uint32_t)longest,
        .parameters = p->parameters,
        .adapter = o->full ? full_bytes(p, rows) : adapter_values(p) * f,
        .optimizer = (p->state.m + p->state.v + p->projections) * f,
        .activations = sizes.activations,
        .logits = sizes.logits,
        .work = sizes.work + omm_compute_bytes(o->threads) + rows * sizeof(float) +
                steps * (3 * sizeof(float) + sizeof(omm_digest)),
        .checkpoint = checkpoint_bytes(p),
        .reader = p->reading,
        .cache = 1};
    if (!o->full) {
        out->judged = omm_adapter_bytes(&p->lora);
        out->judging = omm_adapter_batch_bytes(&p->lora, omm_session_options_default().batch_max);
    }
    const uint64_t held = out->adapter + out->optimizer;
    const uint64_t passing = out->activations + out->logits + out->work + out->checkpoint;
    const uint64_t writing = kept_bytes(&sizes) + out->work + writing_bytes(p);
    out->writing = o->writes && writing > passing ? writing - passing : 0;
    out->total = held + passing + out->writing + out->reader;
    return OMM_OK;
}

/* A smaller cache costs time for lines that are read again, which is less than anything else costs. */
static void add_cache(omm_train_plan *out, const planner *p, uint64_t left) {
    const uint64_t cache = p->cache < left ? p->cache : left;
    out->reader += cache;
    out->total += cache;
    if (cache > 0) out->cache = cache;
}

omm_err omm_train_plan_make(omm_train_plan *out, const omm_train_plan_options *options) {
    planner p;
    omm_err err = planner_open(&p, options);
    if (err == OMM_OK) err = plan_of(out, &p, rows_max(&p), p.longest, options->checkpoint_layers);
    if (err == OMM_OK) add_cache(out, &p, UINT64_MAX);
    planner_close(&p);
    return err;
}

/* ---- fitting --------------------------------------------------------------------------------- */

/* Most rows in least .. most that fit; `least` itself does, or *fits is false. */
static omm_err most_rows(omm_train_plan *out, bool *fits, const planner *p, size_t least,
                         size_t most, uint64_t bytes_max) {
    const uint32_t layers = p->options->checkpoint_layers;
    OMM_TRY(plan_of(out, p, least, p->longest, layers));
    *fits = out->total <= bytes_max;
    while (*fits && least < most) {
        omm_train_plan tried;
        const size_t middle = least + (most - least + 1) / 2;
        OMM_TRY(plan_of(&tried, p, middle, p->longest, layers));
        if (tried.total > bytes_max) {
            most = middle - 1;
            continue;
        }
        least = middle;
        *out = tried;
    }
    return OMM_OK;
}

/* Fewest layers computed again with so many rows. */
static omm_err fewest_layers(omm_train_plan *out, bool *fits, const planner *p, size_t rows,
                             uint64_t bytes_max) {
    *fits = false;
    for (uint32_t n = p->options->checkpoint_layers; n < p->options->model->dims.layers; n++) {
        OMM_TRY(plan_of(out, p, rows, p->longest, n));
        *fits = out->total <= bytes_max;
        if (*fits) return OMM_OK;
    }
    return OMM_OK;
}

/* The longest example that would fit, one at a time, all layers computed again; 0: none. */
static omm_err longest_that_fits(uint32_t *out, const planner *p, uint64_t bytes_max) {
    size_t low = 0, high = p->longest;
    while (low < high) {
        omm_train_plan tried;
        const size_t middle = low + (high - low + 1) / 2;
        OMM_TRY(plan_of(&tried, p, middle, middle, UINT32_MAX));
        if (tried.total <= bytes_max)
            low = middle;
        else
            high = middle - 1;
    }
    *out = (uint32_t)low;
    return OMM_OK;
}

static omm_err least_of(omm_train_plan *out, const planner *p) {
    return plan_of(out, p, p->longest, p->longest, UINT32_MAX);
}

static omm_err refuse(const planner *p, uint64_t bytes_max) {
    omm_train_plan least;
    char writing[64] = "", reader[64] = "";
    OMM_TRY(least_of(&least, p));
    if (p->options->full && p->options->writes)
        snprintf(writing, sizeof writing, ", in their place %.1f when the file is written",
                 (double)writing_bytes(p) * 1e-6);
    if (least.reader > READER_NAMED)
        snprintf(reader, sizeof reader, ", reading the data %.1f", (double)least.reader * 1e-6);
    return omm_raise(OMM_ERR_CONFIG,
                     "training takes at least %.1f MB (%u tokens at once, all layers computed "
                     "again; %s %.1f, optimiser %.1f, activations %.1f, logits %.1f%s%s), and "
                     "%.1f MB are left for it",
                     (double)least.total * 1e-6, least.micro_tokens,
                     p->options->full ? "weights and gradient" : "adapter",
                     (double)least.adapter * 1e-6, (double)least.optimizer * 1e-6,
                     (double)least.activations * 1e-6, (double)least.logits * 1e-6, reader, writing,
                     (double)bytes_max * 1e-6);
}

static omm_err fit(omm_train_plan *out, const planner *p, uint64_t bytes_max) {
    omm_train_plan plan;
    bool fits = false;
    const size_t most = rows_max(p);
    size_t least = most < OMM_TRAIN_PLAN_MICRO_TOKENS ? most : OMM_TRAIN_PLAN_MICRO_TOKENS;
    if (least < p->longest) least = p->longest;
    OMM_TRY(most_rows(&plan, &fits, p, least, most, bytes_max));
    if (!fits) OMM_TRY(fewest_layers(&plan, &fits, p, least, bytes_max));
    if (!fits) OMM_TRY(fewest_layers(&plan, &fits, p, p->longest, bytes_max));
    if (!fits) return refuse(p, bytes_max);
    add_cache(&plan, p, bytes_max - plan.total);
    *out = plan;
    return OMM_OK;
}

omm_err omm_train_plan_fit(omm_train_plan *out, const omm_train_plan_options *options,
                           uint64_t bytes_max) {
    planner p;
    omm_err err = planner_open(&p, options);
    if (err == OMM_OK) err = fit(out, &p, bytes_max);
    planner_close(&p);
    return err;
}

omm_err omm_train_plan_least(omm_train_plan *out, uint32_t *longest,
                             const omm_train_plan_options *options, uint64_t bytes_max) {
    planner p;
    omm_err err = planner_open(&p, options);
    if (err == OMM_OK) err = least_of(out, &p);
    if (err == OMM_OK) err = longest_that_fits(longest, &p, bytes_max);
    planner_close(&p);
    return err;
}

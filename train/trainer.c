/* trainer.c - one run of LoRA training: batches in, adapter and digest chain out. */
#include "adamw.h"
#include "omm/hash.h"
#include "omm/mem.h"
#include "optimizer.h"
#include "schedule.h"
#include "trainer_internal.h"

#include <math.h>
#include <string.h>

/* Values are hashed and saved as they lie in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little endian only");

/* Past this the squares of AdamW would leave f32. */
static const double s_norm_max = 1e18;

/* --- digests ------------------------------------------------------------------------------- */

static omm_bytes value_bytes(const omm_lora *lora) {
    return omm_bytes_of(lora->values, lora->value_count * sizeof(float));
}

static omm_digest chain_next(const omm_digest *previous, const omm_lora *lora) {
    omm_hasher h;
    omm_hasher_init(&h);
    if (previous) omm_hasher_update(&h, omm_bytes_of(previous->b, sizeof previous->b));
    omm_hasher_update(&h, value_bytes(lora));
    return omm_hasher_final(&h);
}

/* Seed, data, model shape and start: what a checkpoint must have in common with its trainer. */
static omm_digest identity_of(const omm_trainer *t) {
    const omm_model_dims *d = &t->options.model->dims;
    omm_digest data = omm_dataset_digest(t->options.data);
    uint8_t dims[28];
    const uint32_t all[7] = {d->layers,   d->d_model,  d->d_ff, d->heads,
                             d->kv_heads, d->head_dim, d->vocab};
    for (size_t i = 0; i < 7; i++) omm_put_u32(dims + 4 * i, all[i]);
    omm_hasher h;
    omm_hasher_init(&h);
    omm_hasher_update(&h, omm_bytes_of(t->options.seed.b, sizeof t->options.seed.b));
    omm_hasher_update(&h, omm_bytes_of(data.b, sizeof data.b));
    omm_hasher_update(&h, omm_bytes_of(dims, sizeof dims));
    omm_hasher_update(&h, omm_bytes_of(t->chain[0].b, sizeof t->chain[0].b));
    return omm_hasher_final(&h);
}

/* --- open ---------------------------------------------------------------------------------- */

static omm_err take_examples(omm_trainer *t) {
    sequence_options options = {.data = t->options.data,
                                .seed = t->options.seed,
                                .lane = t->recipe.seed_lane,
                                .seq_max = t->recipe.seq_max,
                                .batch_tokens = t->recipe.batch_tokens};
    return sequence_open(&t->sequence, &options);
}

static omm_err take_start(omm_trainer *t, const omm_lora *start) {
    omm_lora_spec spec;
    omm_recipe_lora_spec(&spec, &t->recipe);
    const omm_lora_shape *shape = &t->options.model->lora_shape;
    if (!start) {
        omm_rng lane =
            omm_rng_init(&t->options.seed, OMM_PURPOSE_ADAPTER_INIT, t->recipe.seed_lane, 0);
        return omm_lora_init_random(&t->lora, &spec, shape, &lane);
    }
    OMM_TRY(omm_lora_init(&t->lora, &spec, shape));
    if (!omm_lora_is_uniform(start) || start->spec.rank != spec.rank ||
        start->spec.targets != spec.targets || start->spec.alpha != spec.alpha ||
        start->value_count != t->lora.value_count)
        return omm_raise(OMM_ERR_REFUSED_SHAPE,
                         "the start adapter has rank %u, alpha %g, targets %#x; the recipe says "
                         "%u, %g, %#x",
                         start->spec.rank, (double)start->spec.alpha, start->spec.targets,
                         spec.rank, (double)spec.alpha, spec.targets);
    memcpy(t->lora.values, start->values, t->lora.value_count * sizeof(float));
    return OMM_OK;
}

static omm_err take_vectors(omm_trainer *t) {
    size_t n = t->lora.value_count, widest = 0;
    for (size_t i = 0; i < t->lora.tensor_count; i++) {
        size_t size = (size_t)t->lora.tensors[i].rows * t->lora.tensors[i].cols;
        if (size > widest) widest = size;
    }
    if (t->recipe.prox_mu > 0) t->start = omm_alloc_aligned(n, sizeof(float));
    t->state = optimizer_sizes_of(&t->recipe, &t->lora);
    t->m = omm_alloc_aligned(t->state.m ? t->state.m : 1, sizeof(float));
    t->v = omm_alloc_aligned(t->state.v ? t->state.v : 1, sizeof(float));
    t->gradient = omm_alloc_aligned(n, sizeof(float));
    t->scratch = omm_alloc_aligned(widest, sizeof(float));
    t->losses = omm_alloc(t->recipe.steps, sizeof *t->losses);
    t->chain = omm_alloc((size_t)t->recipe.steps + 1, sizeof *t->chain);
    t->nll = omm_alloc(t->graph.rows_max, sizeof *t->nll);
    if ((t->recipe.prox_mu > 0 && !t->start) || !t->m || !t->v || !t->gradient || !t->scratch ||
        !t->losses || !t->chain || !t->nll)
        return omm_raise(OMM_ERR_NOMEM, "no memory for an adapter of %zu values", n);
    if (t->start) memcpy(t->start, t->lora.values, n * sizeof(float));
    t->chain[0] = chain_next(NULL, &t->lora);
    t->identity = identity_of(t);
    return OMM_OK;
}

/* No micro-batch is larger than its batch. */
size_t trainer_rows_max(const omm_recipe *recipe, const omm_dataset *data, size_t longest,
                        uint32_t micro_tokens) {
    size_t rows = micro_tokens > 0 ? micro_tokens : recipe->micro_tokens;
    if (rows > recipe->batch_tokens) rows = recipe->batch_tokens;
    if (rows > omm_dataset_tokens(data)) rows = omm_dataset_tokens(data);
    return rows < longest ? longest : rows;
}

static omm_err open_parts(omm_trainer *t, const omm_lora *start) {
    OMM_TRY(omm_recipe_validate(&t->recipe));
    OMM_TRY(take_examples(t));
    size_t longest = t->sequence.longest;
    OMM_TRY(take_start(t, start));
    if (!omm_all_finite(t->options.compute, t->lora.values, t->lora.value_count))
        return omm_raise(OMM_ERR_NUMERIC, "the start adapter has a value that is not finite");
    graph_options options = {
        .compute = t->options.compute,
        .model = t->options.model,
        .spec = t->lora.spec,
        .rows_max = trainer_rows_max(&t->recipe, t->options.data, longest, t->options.micro_tokens),
        .seq_max = longest,
        .checkpoint_layers = t->options.checkpoint_layers,
        .drops = t->recipe.dropout > 0,
        .watch = t->options.watch};
    OMM_TRY(graph_init(&t->graph, &options));
    return take_vectors(t);
}

omm_err omm_trainer_open(omm_trainer **out, const omm_trainer_options *options) {
    omm_trainer *t = omm_alloc(1, sizeof *t);
    if (!t) return omm_raise(OMM_ERR_NOMEM, "no memory for a trainer");
    t->options = *options;
    t->recipe = *options->recipe;
    t->options.recipe = &t->recipe;
    t->options.start = NULL;
    omm_err err = open_parts(t, options->start);
    if (err != OMM_OK) {
        omm_trainer_close(t);
        return err;
    }
    *out = t;
    return OMM_OK;
}

void omm_trainer_close(omm_trainer *t) {
    if (!t) return;
    graph_fini(&t->graph);
    omm_lora_fini(&t->lora);
    omm_free(t->start);
    omm_free(t->m);
    omm_free(t->v);
    omm_free(t->gradient);
    omm_free(t->scratch);
    omm_free(t->nll);
    sequence_close(&t->sequence);
    omm_free(t->losses);
    omm_free(t->chain);
    omm_free(t);
}

/* --- one step -------------------------------------------------------------------------------- */

/* Gradient and summed loss of the batch. */
static omm_err run_batch(omm_trainer *t, double *loss, size_t count, uint64_t learned) {
    graph *g = &t->graph;
    const omm_example **batch = t->sequence.batch;
    graph_dropout dropout = {
        .rate = t->recipe.dropout,
        .lane = omm_rng_init(&t->options.seed, OMM_PURPOSE_DROPOUT, t->recipe.seed_lane, t->step)};
    bool want_a = t->recipe.parts != OMM_RECIPE_PARTS_B;
    bool want_b = t->recipe.parts != OMM_RECIPE_PARTS_A;
    *loss = 0;
    memset(t->gradient, 0, t->lora.value_count * sizeof(float));
    graph_set_adapter(g, t->lora.values);
    for (size_t from = 0, n = 0; from < count; from += n) {
        size_t rows = 0;
        for (n = 0; from + n < count && rows + batch[from + n]->count <= g->rows_max; n++)
            rows += batch[from + n]->count;
        if (t->options.cancelled && t->options.cancelled(t->options.ud))
            return omm_raise(OMM_ERR_CANCELLED, "training stopped in step %u", t->step + 1);
        OMM_TRY(graph_forward(g, t->nll, batch + from, n, 1.0F / (float)learned, &dropout));
        for (size_t i = 0; i < g->learned; i++) *loss += (double)t->nll[i];
        graph_backward(g, t->gradient, want_a, want_b);
        dropout.first_token += rows;
    }
    return OMM_OK;
}

/* The graph leaves B's gradient as [rank][d_out]; the adapter has [d_out][rank]. */
static void transpose_b(omm_trainer *t) {
    for (size_t i = 0; i < t->lora.tensor_count; i++) {
        const omm_lora_tensor *b = &t->lora.tensors[i];
        if (!b->is_b) continue;
        float *at = t->gradient + b->offset;
        size_t rows = b->rows, cols = b->cols;
        memcpy(t->scratch, at, rows * cols * sizeof(float));
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < cols; c++) at[r * cols + c] = t->scratch[c * rows + r];
    }
}

/* The first tensor whose gradient is not usable, for people; "the loss" where none is to blame. */
static const char *culprit(const omm_trainer *t) {
    for (size_t i = 0; i < t->lora.tensor_count; i++) {
        const omm_lora_tensor *x = &t->lora.tensors[i];
        if (!(adamw_norm(t->gradient + x->offset, (size_t)x->rows * x->cols) <= s_norm_max))
            return x->name;
    }
    return "the loss";
}

omm_err omm_trainer_step(omm_trainer *t, omm_step_report *report) {
    if (omm_trainer_is_done(t))
        return omm_raise(OMM_ERR_STATE, "all %u steps are done", t->recipe.steps);
    uint64_t tokens = 0, learned = 0;
    double loss = 0;
    size_t count = 0;
    if (t->options.watch) omm_train_watch_skip(t->options.watch);
    OMM_TRY(sequence_take(&t->sequence, &count, &tokens, &learned, t->position));
    OMM_TRY(run_batch(t, &loss, count, learned));
    transpose_b(t);
    adamw_state s = {t->lora.values, t->m, t->v, t->gradient, t->start, t->lora.value_count};
    if (t->recipe.prox_mu > 0) adamw_prox(&s, t->recipe.prox_mu);
    double norm = adamw_norm(t->gradient, s.count);
    if (!isfinite(loss) || !(norm <= s_norm_max))
        return omm_raise(OMM_ERR_NUMERIC,
                         "step %u: loss %g, gradient norm %g: not usable, first seen in %s",
                         t->step + 1, loss / (double)learned, norm, culprit(t));
    float rate = schedule_rate(&t->recipe, t->step + 1);
    adamw_clip(&s, norm, t->recipe.clip_norm);
    optimizer_update(&t->lora, t->gradient, t->m, t->v, &t->recipe, rate, t->step + 1);
    t->losses[t->step++] = (float)(loss / (double)learned);
    t->chain[t->step] = chain_next(&t->chain[t->step - 1], &t->lora);
    t->position += count;
    t->tokens += tokens;
    t->learned += learned;
    if (omm_trainer_is_done(t)) graph_fini(&t->graph); /* leaves its memory to what comes next */
    if (t->options.watch) omm_train_watch_lap(t->options.watch, OMM_TRAIN_UPDATE);
    if (report)
        *report = (omm_step_report){t->step, t->losses[t->step - 1], (float)norm, rate, tokens,
                                    learned, t->chain[t->step]};
    return OMM_OK;
}

omm_err omm_trainer_run(omm_trainer *t) {
    while (!omm_trainer_is_done(t)) OMM_TRY(omm_trainer_step(t, NULL));
    return OMM_OK;
}

/* --- reading ------------------------------------------------------------------------------- */

bool omm_trainer_is_done(const omm_trainer *t) {
    return t->step >= t->recipe.steps;
}

const omm_lora *omm_trainer_adapter(const omm_trainer *t) {
    return &t->lora;
}

static float mean(const float *x, uint32_t count) {
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) sum += (double)x[i];
    return (float)(sum / count);
}

omm_train_result omm_trainer_result(const omm_trainer *t) {
    omm_train_result r = {.steps = t->step, .tokens = t->tokens, .learned = t->learned};
    uint32_t window = (t->step + 7) / 8;
    if (!window) return r;
    r.loss_first = mean(t->losses, window);
    r.loss_last = mean(t->losses + t->step - window, window);
    return r;
}

omm_digest omm_trainer_chain(const omm_trainer *t, uint32_t step) {
    OMM_ASSERT(step <= t->step);
    return t->chain[step];
}

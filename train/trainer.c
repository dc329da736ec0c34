/* trainer.c - one run of LoRA training: batches in, adapter and digest chain out. */
#include "adamw.h"
#include "batch.h"
#include "omm/hash.h"
#include "omm/mem.h"
#include "optimizer.h"
#include "schedule.h"
#include "trainer_internal.h"
#include "update.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Values are hashed and saved as they lie in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little endian only");

/* Past this the squares of AdamW would leave f32. */
static const double s_norm_max = 1e18;

/* --- digests ------------------------------------------------------------------------------- */

static omm_bytes value_bytes(const omm_lora *lora) {
    return omm_bytes_of(lora->values, lora->value_count * sizeof(float));
}

/* The digest of a step: of the one before it (NULL: there is none) and of all values. */
static void chain_begin(omm_hasher *h, const omm_digest *previous) {
    omm_hasher_init(h);
    if (previous) omm_hasher_update(h, omm_bytes_of(previous->b, sizeof previous->b));
}

static omm_digest chain_start(const omm_lora *lora) {
    omm_hasher h;
    chain_begin(&h, NULL);
    omm_hasher_update(&h, value_bytes(lora));
    return omm_hasher_final(&h);
}

/* Shapes and scales of the adapter decide too where they come from the start adapter. */
static omm_err take_identity(omm_trainer *t) {
    omm_buf layout;
    omm_buf_init(&layout, (size_t)OMM_LORA_LAYERS_MAX * OMM_LORA_TARGET_COUNT * 8);
    omm_err err = OMM_OK;
    for (size_t i = 0; i < t->lora.tensor_count && err == OMM_OK; i += 2) {
        const omm_lora_tensor *a = &t->lora.tensors[i];
        err = omm_buf_put_u32(&layout, a->rows);
        if (err == OMM_OK) err = omm_buf_put_u32(&layout, omm_f32_to_bits(a->scale));
    }
    if (err == OMM_OK)
        t->identity =
            checkpoint_identity_of(t->options.model, &t->options.model_digest, &t->options.seed,
                                   t->options.data, &t->chain[0], omm_buf_view(&layout));
    omm_buf_fini(&layout);
    return err;
}

/* --- open ---------------------------------------------------------------------------------- */

static omm_err take_examples(omm_trainer *t) {
    sequence_options options = {.data = t->options.data,
                                .seed = t->options.seed,
                                .lane = t->recipe.seed_lane,
                                .seq_max = t->recipe.seq_max,
                                .batch_tokens = t->recipe.batch_tokens,
                                .cache_bytes_max = t->options.cache_bytes_max};
    return sequence_open(&t->sequence, &options);
}

static bool same_layout(const omm_lora *a, const omm_lora *b) {
    if (a->tensor_count != b->tensor_count) return false;
    for (size_t i = 0; i < a->tensor_count; i++) {
        const omm_lora_tensor *x = &a->tensors[i], *y = &b->tensors[i];
        if (x->layer != y->layer || x->target != y->target || x->rows != y->rows ||
            x->cols != y->cols || x->scale != y->scale)
            return false;
    }
    return true;
}

/* "rank 4, alpha 16 (scale 4)", with the alpha that a recipe would say; NULL: "nothing". */
static void describe(char out[96], const omm_lora_tensor *a, bool rslora) {
    snprintf(out, 96, "nothing there");
    if (!a) return;
    const double rank = (double)a->rows;
    const double alpha = (double)a->scale * (rslora ? sqrt(rank) : rank);
    snprintf(out, 96, "rank %u, alpha %.5g%s (scale %.5g)", a->rows, alpha,
             rslora ? " with rsLoRA" : "", (double)a->scale);
}

static size_t place_of(const omm_lora_tensor *a) {
    return (size_t)a->layer * OMM_LORA_TARGET_COUNT + (size_t)a->target;
}

/* The first pair that only one has, or that both have otherwise. */
static void first_difference(const omm_lora_tensor **x, const omm_lora_tensor **y,
                             const omm_lora *a, const omm_lora *b) {
    size_t i = 0, k = 0;
    *x = *y = NULL;
    for (; i < a->tensor_count && k < b->tensor_count; i += 2, k += 2) {
        *x = &a->tensors[i];
        *y = &b->tensors[k];
        if (place_of(*x) < place_of(*y)) *y = NULL;
        if (*y && place_of(*x) > place_of(*y)) *x = NULL;
        if (!*x || !*y || (*x)->rows != (*y)->rows || (*x)->scale != (*y)->scale) return;
    }
    *x = i < a->tensor_count ? &a->tensors[i] : NULL;
    *y = k < b->tensor_count ? &b->tensors[k] : NULL;
}

static omm_err check_start(const omm_lora *lora, const omm_lora *start, bool rslora) {
    char has[96], wanted[96];
    const omm_lora_tensor *x = NULL, *y = NULL;
    if (same_layout(lora, start)) return OMM_OK;
    first_difference(&x, &y, start, lora);
    if (!x && !y)
        return omm_raise(OMM_ERR_REFUSED_SHAPE, "the start adapter is of a model of another shape");
    describe(has, x, false);
    describe(wanted, y, rslora);
    const char *name = x ? x->name : y->name;
    return omm_raise(
        OMM_ERR_REFUSED_SHAPE,
        "%.*s: the start adapter has %s, the recipe says %s; accepted: the same for all "
        "layers, or nothing said of rank, alpha and targets",
        (int)(strlen(name) - strlen(".weight.lora_a")), name, has, wanted);
}

/* The layers, ranks and scales of another adapter. */
static omm_err take_layout(omm_lora *out, const omm_lora *from) {
    omm_lora_plan plan;
    OMM_TRY(omm_lora_plan_init(&plan, &from->shape));
    for (size_t i = 0; i < from->tensor_count; i += 2) {
        const omm_lora_tensor *a = &from->tensors[i];
        plan.pairs[(size_t)a->layer * OMM_LORA_TARGET_COUNT + (unsigned)a->target] =
            (omm_lora_pair){a->rows, a->scale};
    }
    omm_err err = omm_lora_init_plan(out, &plan);
    omm_lora_plan_fini(&plan);
    if (err == OMM_OK) out->spec = from->spec;
    return err;
}

omm_err trainer_layout(omm_lora *out, const omm_recipe *recipe, const omm_lora_shape *shape,
                       const omm_lora *like, const omm_rng *lane) {
    return like ? take_layout(out, like) : omm_recipe_adapter(out, recipe, shape, lane);
}

static omm_err take_start(omm_trainer *t, const omm_lora *start) {
    const omm_lora_shape *shape = &t->options.model->lora_shape;
    const omm_seed *seed = t->options.halves ? t->options.halves : &t->options.seed;
    const omm_rng lane = omm_rng_init(seed, OMM_PURPOSE_ADAPTER_INIT, t->recipe.seed_lane, 0);
    const omm_lora *like = t->options.like_start ? start : NULL;
    OMM_TRY(trainer_layout(&t->lora, &t->recipe, shape, like, start ? NULL : &lane));
    if (start) OMM_TRY(check_start(&t->lora, start, t->recipe.rslora));
    if (start) memcpy(t->lora.values, start->values, t->lora.value_count * sizeof(float));
    if (!omm_all_finite(t->options.compute, t->lora.values, t->lora.value_count))
        return omm_raise(OMM_ERR_NUMERIC, "the start adapter has a value that is not finite");
    t->moved = &t->lora;
    if (t->recipe.parts != OMM_RECIPE_PARTS_CORE) return OMM_OK;
    t->moved = &t->core.c;
    OMM_TRY(
        core_init(&t->core, &t->lora, start ? NULL : &lane, t->options.core, t->options.compute));
    if (!omm_all_finite(t->options.compute, t->core.c.values, t->core.c.value_count))
        return omm_raise(OMM_ERR_NUMERIC, "a core to start from has a value that is not finite");
    return OMM_OK;
}

static omm_err take_vectors(omm_trainer *t) {
    const size_t n = t->lora.value_count, moved = t->moved->value_count;
    const size_t room = update_room(&t->lora) * t->options.compute->workers;
    if (t->recipe.prox_mu > 0) t->start = omm_alloc_aligned(moved, sizeof(float));
    t->state = optimizer_sizes_of(&t->recipe, t->moved);
    t->m = omm_alloc_aligned(t->state.m ? t->state.m : 1, sizeof(float));
    t->v = omm_alloc_aligned(t->state.v ? t->state.v : 1, sizeof(float));
    t->gradient = omm_alloc_aligned(n, sizeof(float));
    t->room = omm_alloc_aligned(room, sizeof(float));
    t->losses = omm_alloc(t->recipe.steps, sizeof *t->losses);
    t->chain = omm_alloc((size_t)t->recipe.steps + 1, sizeof *t->chain);
    t->nll = omm_alloc(t->graph.rows_max, sizeof *t->nll);
    if ((t->recipe.prox_mu > 0 && !t->start) || !t->m || !t->v || !t->gradient || !t->room ||
        !t->losses || !t->chain || !t->nll)
        return omm_raise(OMM_ERR_NOMEM, "no memory for an adapter of %zu values", n);
    if (t->start) memcpy(t->start, t->moved->values, moved * sizeof(float));
    t->chain[0] = chain_start(&t->lora);
    return take_identity(t);
}

static omm_err open_parts(omm_trainer *t, const omm_lora *start) {
    OMM_TRY(omm_recipe_validate(&t->recipe));
    OMM_TRY(omm_recipe_check_base(&t->recipe, t->options.model));
    OMM_TRY(take_examples(t));
    size_t longest = t->sequence.longest;
    OMM_TRY(take_start(t, start));
    graph_options options = {
        .compute = t->options.compute,
        .model = t->options.model,
        .lora = &t->lora,
        .rows_max = batch_rows_max(&t->recipe, t->options.data, longest, t->options.micro_tokens),
        .seq_max = longest,
        .rope_positions = t->recipe.seq_max,
        .checkpoint_layers = t->options.checkpoint_layers,
        .drops = t->recipe.dropout > 0,
        .q8 = t->recipe.activations == OMM_RECIPE_Q8,
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
    t->options.core = NULL;
    t->options.halves = NULL;
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
    core_fini(&t->core);
    omm_free(t->start);
    omm_free(t->m);
    omm_free(t->v);
    omm_free(t->gradient);
    omm_free(t->room);
    omm_free(t->nll);
    sequence_close(&t->sequence);
    omm_free(t->losses);
    omm_free(t->chain);
    omm_free(t);
}

/* --- one step -------------------------------------------------------------------------------- */

/* Gradient and summed loss of the batch. */
static omm_err run_batch(omm_trainer *t, double *loss, size_t count, uint64_t learned) {
    const omm_recipe *r = &t->recipe;
    const batch_options batch = {
        .graph = &t->graph,
        .examples = t->sequence.batch,
        .count = count,
        .learned = learned,
        .nll = t->nll,
        .dropout = {.rate = r->dropout,
                    .lane =
                        omm_rng_init(&t->options.seed, OMM_PURPOSE_DROPOUT, r->seed_lane, t->step)},
        .gradient = t->gradient,
        .want_a = r->parts == OMM_RECIPE_PARTS_AB || r->parts == OMM_RECIPE_PARTS_A,
        .want_b = r->parts != OMM_RECIPE_PARTS_A,
        .step = t->step + 1,
        .cancelled = t->options.cancelled,
        .ud = t->options.ud};
    memset(t->gradient, 0, t->lora.value_count * sizeof(float));
    graph_set_adapter(&t->graph, t->lora.values);
    return batch_run(loss, &batch);
}

/* Of what moves. */
static float *gradient_of(omm_trainer *t) {
    update_turn_b(t->options.compute, t->gradient, &t->lora, t->room);
    if (t->moved == &t->lora) return t->gradient;
    core_backward(&t->core, &t->lora, t->gradient, t->options.compute);
    return t->core.gradient;
}

/* The first tensor whose gradient is not usable, for people; "the loss" where none is to blame. */
static const char *culprit(const omm_trainer *t, const float *gradient) {
    for (size_t i = 0; i < t->moved->tensor_count; i++) {
        const omm_lora_tensor *x = &t->moved->tensors[i];
        if (!(adamw_norm(gradient + x->offset, (size_t)x->rows * x->cols) <= s_norm_max))
            return x->name;
    }
    return "the loss";
}

/* The next values, and their digest. */
static omm_digest move(omm_trainer *t, float *gradient, double norm, float rate) {
    const bool is_all = t->moved == &t->lora; /* else what is hashed comes of what moves */
    omm_hasher h;
    chain_begin(&h, &t->chain[t->step]);
    update_run(&(update){.compute = t->options.compute,
                         .recipe = &t->recipe,
                         .lora = t->moved,
                         .gradient = gradient,
                         .m = t->m,
                         .v = t->v,
                         .norm = norm,
                         .rate = rate,
                         .step = t->step + 1,
                         .hasher = is_all ? &h : NULL});
    if (!is_all) {
        core_apply(&t->core, &t->lora, t->options.compute);
        omm_hasher_update(&h, value_bytes(&t->lora));
    }
    return omm_hasher_final(&h);
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
    float *gradient = gradient_of(t);
    adamw_state s = {t->moved->values, t->m, t->v, gradient, t->start, t->moved->value_count};
    if (t->recipe.prox_mu > 0) update_prox(t->options.compute, &s, t->recipe.prox_mu);
    double norm = adamw_norm(gradient, s.count);
    if (!isfinite(loss) || !(norm <= s_norm_max))
        return omm_raise(OMM_ERR_NUMERIC,
                         "step %u: loss %g, gradient norm %g: not usable, first seen in %s",
                         t->step + 1, omm_nan_plain(loss / (double)learned), omm_nan_plain(norm),
                         culprit(t, gradient));
    float rate = schedule_rate(&t->recipe, t->step + 1);
    t->chain[t->step + 1] = move(t, gradient, norm, rate);
    t->losses[t->step++] = (float)(loss / (double)learned);
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

const omm_lora *omm_trainer_moved(const omm_trainer *t) {
    return t->moved;
}

static float mean(const float *x, uint32_t count) {
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) sum += (double)x[i];
    return (float)(sum / count);
}

omm_train_result trainer_result_of(const float *losses, uint32_t steps, uint64_t tokens,
                                   uint64_t learned) {
    omm_train_result r = {.steps = steps, .tokens = tokens, .learned = learned};
    const uint32_t window = (steps + 7) / 8;
    if (!window) return r;
    r.loss_first = mean(losses, window);
    r.loss_last = mean(losses + steps - window, window);
    return r;
}

omm_train_result omm_trainer_result(const omm_trainer *t) {
    return trainer_result_of(t->losses, t->step, t->tokens, t->learned);
}

omm_digest omm_trainer_chain(const omm_trainer *t, uint32_t step) {
    OMM_ASSERT(step <= t->step);
    return t->chain[step];
}

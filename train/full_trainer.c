/* full_trainer.c - one run of training over all weights of a model. */
#include "batch.h"
#include "full_internal.h"
#include "omm/mem.h"
#include "schedule.h"
#include "trainer_internal.h"

#include <math.h>
#include <string.h>

/* Past this the squares of AdamW would leave f32. */
static const double s_norm_max = 1e18;

/* --- open ------------------------------------------------------------------------------------ */

/* What is about adapters has one spelling here: two recipes that do the same are the same. */
static omm_recipe recipe_of(const omm_recipe *given) {
    omm_recipe r = *given;
    const omm_recipe plain = omm_recipe_default();
    r.rank = 1;
    r.alpha = 1;
    r.targets = plain.targets;
    r.parts = OMM_RECIPE_PARTS_AB;
    r.dropout = 0;
    r.prox_mu = 0;
    r.rslora = 0;
    r.b_rate_ratio = 0;
    r.activations = OMM_RECIPE_F32;
    memset(r.target_pattern, 0, sizeof r.target_pattern);
    memset(r.rank_pattern, 0, sizeof r.rank_pattern);
    memset(r.alpha_pattern, 0, sizeof r.alpha_pattern);
    return r;
}

static omm_err open_sequence(omm_full *t) {
    sequence_options options = {.data = t->options.data,
                                .seed = t->options.seed,
                                .lane = t->recipe.seed_lane,
                                .seq_max = t->recipe.seq_max,
                                .batch_tokens = t->recipe.batch_tokens,
                                .cache_bytes_max = t->options.cache_bytes_max,
                                .listed = t->options.listed};
    return sequence_open(&t->sequence, &options);
}

static omm_err open_graph(omm_full *t) {
    const size_t longest = t->sequence.longest;
    graph_options options = {
        .compute = t->options.compute,
        .model = t->options.model,
        .rows_max = batch_rows_max(&t->recipe, t->options.data, longest, t->options.micro_tokens),
        .seq_max = longest,
        .rope_positions = t->recipe.seq_max,
        .checkpoint_layers = t->options.checkpoint_layers};
    OMM_TRY(graph_init(&t->graph, &options));
    OMM_TRY(full_init(&t->sums, &t->tensors, &t->graph));
    t->graph.full = &t->sums;
    return OMM_OK;
}

static void take_identity(omm_full *t) {
    const omm_full_galore *g = &t->options.galore;
    const omm_digest weights = omm_full_digest(t);
    const omm_digest start = t->options.like ? full_like_digest(t->options.like) : weights;
    const omm_full_muon *m = &t->options.muon;
    uint8_t more[13];
    size_t size = 0;
    if (g->rank > 0) {
        omm_put_u32(more, g->rank);
        omm_put_u32(more + 4, g->every);
        omm_put_f32(more + 8, g->scale);
        size = 12;
    } else if (m->rate > 0) {
        omm_put_f32(more, m->rate);
        omm_put_f32(more + 4, m->momentum);
        size = 8;
    }
    if (t->options.listed) more[size++] = 1;
    t->identity = checkpoint_identity_of(t->options.model, &weights, &t->options.seed,
                                         t->options.data, &start, omm_bytes_of(more, size));
    t->before = checkpoint_identity_of(t->options.model, &weights, &t->options.seed,
                                       t->options.data, &weights, omm_bytes_of(more, size));
}

static omm_err open_weights(omm_full *t) {
    OMM_TRY(full_thaw(t->options.model));
    OMM_TRY(full_tensors_init(&t->tensors, t->options.model));
    const size_t n = t->tensors.value_count;
    if (n > OMM_FULL_VALUES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "%zu weights; at most %zu are trained all at once", n,
                         OMM_FULL_VALUES_MAX);
    t->values = omm_alloc_aligned(n, sizeof *t->values);
    if (!t->values) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu weights", n);
    full_read(t->values, &t->tensors);
    if (omm_all_finite(t->options.compute, t->values, n)) return OMM_OK;
    return omm_raise(OMM_ERR_NUMERIC, "the model has a weight that is not finite");
}

static omm_err check_galore(const omm_full *t) {
    const omm_full_galore *g = &t->options.galore;
    if (g->rank == 0) return OMM_OK;
    if (t->recipe.optimizer != OMM_RECIPE_ADAMW)
        return omm_raise(OMM_ERR_CONFIG, "galore goes with the optimiser adamw");
    if (g->every == 0 || !isfinite(g->scale) || g->scale <= 0)
        return omm_raise(
            OMM_ERR_CONFIG,
            "galore: a subspace every %u steps, scale %g; accepted: 1 and more, over 0", g->every,
            (double)g->scale);
    return OMM_OK;
}

/* A rank that no matrix has more than would change nothing, in silence. */
static omm_err check_projected(const omm_full *t) {
    const uint32_t rank = t->options.galore.rank;
    uint32_t most = 0;
    for (size_t i = 0; i < t->tensors.count; i++) {
        const uint32_t side = full_side_of(&t->tensors.items[i]);
        if (side > most) most = side;
    }
    if (rank == 0 || rank < most) return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG,
                     "galore: rank %u leaves every matrix of this model whole; accepted: 1 to %u",
                     rank, most > 0 ? most - 1 : 0);
}

static omm_err check_muon(const omm_full *t) {
    const omm_full_muon *m = &t->options.muon;
    if (m->rate == 0) return OMM_OK;
    if (t->recipe.optimizer != OMM_RECIPE_ADAMW || t->options.galore.rank > 0)
        return omm_raise(OMM_ERR_CONFIG, "muon goes with the optimiser adamw, without galore");
    if (!(m->rate > 0 && m->rate <= 1000) || !(m->momentum >= 0 && m->momentum < 1))
        return omm_raise(OMM_ERR_CONFIG,
                         "muon: a rate of %g, a momentum of %g; accepted: over 0 to 1000, 0 to "
                         "under 1",
                         (double)m->rate, (double)m->momentum);
    return OMM_OK;
}

static omm_err open_parts(omm_full *t) {
    OMM_TRY(omm_recipe_validate(&t->recipe));
    OMM_TRY(check_galore(t));
    OMM_TRY(check_muon(t));
    OMM_TRY(open_sequence(t));
    OMM_TRY(open_weights(t));
    OMM_TRY(check_projected(t));
    OMM_TRY(full_update_open(t));
    OMM_TRY(open_graph(t));
    t->losses = omm_alloc(t->recipe.steps, sizeof *t->losses);
    t->nll = omm_alloc(t->graph.rows_max, sizeof *t->nll);
    if (!t->losses || !t->nll)
        return omm_raise(OMM_ERR_NOMEM, "no memory for the losses of %u steps", t->recipe.steps);
    take_identity(t);
    return OMM_OK;
}

omm_err omm_full_open(omm_full **out, const omm_full_options *options) {
    omm_full *t = omm_alloc(1, sizeof *t);
    if (!t) return omm_raise(OMM_ERR_NOMEM, "no memory for a trainer");
    t->options = *options;
    t->recipe = recipe_of(options->recipe);
    t->options.recipe = &t->recipe;
    omm_err err = open_parts(t);
    if (err != OMM_OK) {
        omm_full_close(t);
        return err;
    }
    *out = t;
    return OMM_OK;
}

static void close_graph(omm_full *t) {
    full_fini(&t->sums);
    if (t->graph.model) graph_fini(&t->graph);
}

void omm_full_close(omm_full *t) {
    if (!t) return;
    close_graph(t);
    full_update_close(t);
    full_tensors_fini(&t->tensors);
    sequence_close(&t->sequence);
    omm_free(t->values);
    omm_free(t->nll);
    omm_free(t->losses);
    omm_free(t);
}

/* --- one step -------------------------------------------------------------------------------- */

/* The first tensor whose gradient is not usable, for people; "the loss" where none is to blame. */
static const char *culprit(const omm_full *t) {
    for (size_t i = 0; i < t->tensors.count; i++)
        if (!(t->squares[i] <= s_norm_max * s_norm_max)) return t->tensors.items[i].name;
    return "the loss";
}

omm_err omm_full_step(omm_full *t, omm_full_report *report) {
    if (omm_full_is_done(t))
        return omm_raise(OMM_ERR_STATE, "all %u steps are done", t->recipe.steps);
    uint64_t tokens = 0, learned = 0;
    double loss = 0;
    size_t count = 0;
    OMM_TRY(sequence_take(&t->sequence, &count, &tokens, &learned, t->position));
    const batch_options batch = {.graph = &t->graph,
                                 .examples = t->sequence.batch,
                                 .count = count,
                                 .learned = learned,
                                 .nll = t->nll,
                                 .step = t->step + 1,
                                 .cancelled = t->options.cancelled,
                                 .ud = t->options.ud};
    full_begin(&t->sums, t->options.compute);
    OMM_TRY(batch_run(&loss, &batch));
    full_end(&t->sums, t->options.compute, t->options.model);
    const double norm = full_gradient_norm(t);
    if (!isfinite(loss) || !(norm <= s_norm_max))
        return omm_raise(
            OMM_ERR_NUMERIC, "step %u: loss %g, gradient norm %g: not usable, first seen in %s",
            t->step + 1, omm_nan_plain(loss / (double)learned), omm_nan_plain(norm), culprit(t));
    const float rate = schedule_rate(&t->recipe, t->step + 1);
    full_update(t, norm, rate);
    t->losses[t->step++] = (float)(loss / (double)learned);
    t->position += count;
    t->tokens += tokens;
    t->learned += learned;
    if (omm_full_is_done(t)) close_graph(t); /* leaves its memory to what comes next */
    if (report)
        *report =
            (omm_full_report){t->step, t->losses[t->step - 1], (float)norm, rate, tokens, learned};
    return OMM_OK;
}

/* --- reading --------------------------------------------------------------------------------- */

bool omm_full_is_done(const omm_full *t) {
    return t->step >= t->recipe.steps;
}

uint32_t omm_full_steps(const omm_full *t) {
    return t->step;
}

uint64_t omm_full_tokens(const omm_full *t) {
    return t->tokens;
}

omm_train_result omm_full_result(const omm_full *t) {
    return trainer_result_of(t->losses, t->step, t->tokens, t->learned);
}

size_t omm_full_moments(const omm_full *t) {
    return t->m_count + t->v_count + t->p_count;
}

size_t omm_full_values(const omm_full *t) {
    return t->tensors.value_count;
}

omm_digest omm_full_digest(const omm_full *t) {
    return omm_hash(omm_bytes_of(t->values, t->tensors.value_count * sizeof *t->values));
}

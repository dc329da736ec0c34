/* What is trained, and from where: rank and alpha patterns, frozen halves, cores between them, starts
 * of any shape.  Each resumes exactly, and gives the same bytes with threads, micro-batches and every
 * instruction set; the gradient of a core against central differences; foreign checkpoints by name. */
#include "test_model.h"
#include "trainer_internal.h"

#include "omm/mem.h"

#include <math.h>
#include <string.h>

/* Central differences of the loss, which a report has in f32.  Measured maximum 1.2e-3. */
static const double s_slope_tolerance = 5e-3;

typedef struct variant {
    const char *name, *targets, *ranks, *alphas;
    uint32_t parts, optimizer;
    bool from_start; /* a start adapter of the recipe's shape */
    bool like_start; /* one of quite another */
    float prox;
} variant;

static const variant s_variants[] = {
    {.name = "patterns",
     .targets = "blk.1.*,blk.0.attn_*",
     .ranks = "ffn_*=4,v=1",
     .alphas = "q=3"},
    {.name = "larger below",
     .targets = "all",
     .ranks = "blk.0.*=7"}, /* its z in the place of others */
    {.name = "top layer, Adafactor", .targets = "blk.1.ffn_*", .optimizer = OMM_RECIPE_ADAFACTOR},
    {.name = "A frozen", .targets = "all", .parts = OMM_RECIPE_PARTS_B, .ranks = "down=5"},
    {.name = "core", .targets = "all", .parts = OMM_RECIPE_PARTS_CORE, .ranks = "ffn_*=4"},
    {.name = "core, SGD, prox",
     .targets = "q,v",
     .parts = OMM_RECIPE_PARTS_CORE,
     .optimizer = 1,
     .prox = 0.1F},
    {.name = "core from a start",
     .targets = "all",
     .parts = OMM_RECIPE_PARTS_CORE,
     .from_start = true},
    {.name = "like its start", .targets = "all", .like_start = true},
    {.name = "core like its start",
     .targets = "q",
     .parts = OMM_RECIPE_PARTS_CORE,
     .like_start = true},
};

static omm_recipe recipe_of(const variant *v) {
    omm_recipe r = omm_recipe_default();
    r.rank = 2;
    r.alpha = 2;
    r.steps = 3;
    r.batch_tokens = r.micro_tokens = 4096; /* all of them in each step: losses compare */
    r.dropout = 0.05F;
    r.learning_rate = 0.1F; /* three steps show a fall above the noise of dropout */
    r.seq_max = 72;
    r.parts = v->parts;
    r.optimizer = v->optimizer;
    r.prox_mu = v->prox;
    CHECK_OK(omm_recipe_set_targets(&r, v->targets));
    CHECK_OK(omm_recipe_set_patterns(&r, v->ranks, v->alphas));
    CHECK_OK(omm_recipe_validate(&r));
    return r;
}

/* Of the recipe's shape, or for like_start of one that no recipe here has. */
static void make_start(omm_lora *out, const test_rig *r, const variant *v) {
    omm_recipe shape = r->recipe;
    if (v->like_start) {
        CHECK_OK(omm_recipe_set_targets(&shape, "blk.0.ffn_*,blk.1.attn_*"));
        CHECK_OK(omm_recipe_set_patterns(&shape, "o=3", "o=5"));
    }
    test_adapter_of(out, &r->model, &shape, 9);
}

static omm_trainer *open_variant(test_rig *r, const variant *v, const omm_compute *compute) {
    omm_trainer *t = NULL;
    omm_lora start = {0};
    r->recipe = recipe_of(v);
    omm_trainer_options options = test_rig_options(r);
    if (v->from_start || v->like_start) {
        make_start(&start, r, v);
        options.start = &start;
        options.like_start = v->like_start;
    }
    if (compute) options.compute = compute;
    CHECK_OK(omm_trainer_open(&t, &options));
    omm_lora_fini(&start);
    return t;
}

static bool same_tensor(const omm_lora *a, const omm_lora *b, size_t i) {
    const omm_lora_tensor *x = &a->tensors[i];
    return memcmp(a->values + x->offset, b->values + x->offset,
                  (size_t)x->rows * x->cols * sizeof(float)) == 0;
}

/* ---- the same bytes --------------------------------------------------------------------------- */

static void check_resume(test_rig *r, const variant *v, const omm_trainer *whole) {
    omm_trainer *first = open_variant(r, v, NULL), *second = open_variant(r, v, NULL);
    omm_buf saved, again;
    omm_buf_init(&saved, 64 << 20);
    omm_buf_init(&again, 64 << 20);
    CHECK_OK(omm_trainer_step(first, NULL));
    CHECK_OK(omm_trainer_save(first, &saved));
    CHECK_OK(omm_trainer_resume(second, omm_buf_view(&saved)));
    CHECK_OK(omm_trainer_save(second, &again));
    CHECK(omm_bytes_equal(omm_buf_view(&saved), omm_buf_view(&again)));
    CHECK_OK(omm_trainer_run(second));
    const omm_digest a = omm_trainer_chain(whole, 3), b = omm_trainer_chain(second, 3);
    CHECK(omm_digest_equal(&a, &b));
    omm_buf_fini(&saved);
    omm_buf_fini(&again);
    omm_trainer_close(first);
    omm_trainer_close(second);
}

/* Sealed anew with a core that is no number: all that comes of it would be none either. */
static void check_core_finite(test_rig *r, const variant *v, const omm_trainer *whole) {
    omm_trainer *fresh = open_variant(r, v, NULL);
    omm_buf saved;
    omm_buf_init(&saved, 64 << 20);
    CHECK_OK(omm_trainer_save(whole, &saved));
    saved.size -= sizeof(omm_digest);
    const size_t behind = whole->state.m + whole->state.v + 1; /* its last value, and the moments */
    omm_put_f32(saved.data + saved.size - behind * sizeof(float), NAN);
    CHECK_OK(omm_hash_seal(&saved, 0));
    CHECK_ERR(omm_trainer_resume(fresh, omm_buf_view(&saved)), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "not finite"));
    omm_buf_fini(&saved);
    omm_trainer_close(fresh);
}

/* The B's that a checkpoint with a core says are not read: they come of the core. */
static void check_core_decides(test_rig *r, const variant *v, const omm_trainer *whole) {
    const size_t behind =
        sizeof(omm_digest) +
        (whole->lora.value_count + whole->core.c.value_count + whole->state.m + whole->state.v) *
            sizeof(float);
    omm_trainer *fresh = open_variant(r, v, NULL);
    omm_buf saved;
    omm_buf_init(&saved, 64 << 20);
    CHECK_OK(omm_trainer_save(whole, &saved));
    omm_put_f32(saved.data + saved.size - behind + whole->lora.tensors[1].offset * sizeof(float),
                7);
    saved.size -= sizeof(omm_digest);
    CHECK_OK(omm_hash_seal(&saved, 0));
    CHECK_OK(omm_trainer_resume(fresh, omm_buf_view(&saved)));
    CHECK(same_tensor(omm_trainer_adapter(fresh), omm_trainer_adapter(whole), 1));
    omm_buf_fini(&saved);
    omm_trainer_close(fresh);
}

static omm_digest train_with(test_rig *r, const variant *v, omm_isa isa, unsigned threads,
                             uint32_t micro, uint32_t checkpoint_layers) {
    omm_pool *pool = NULL;
    omm_compute compute;
    omm_trainer *t = NULL;
    omm_lora start = {0};
    CHECK_OK(omm_pool_open(&pool, threads));
    CHECK_OK(omm_compute_init(&compute, pool, isa));
    r->recipe = recipe_of(v);
    omm_trainer_options options = test_rig_options(r);
    options.compute = &compute;
    options.micro_tokens = micro;
    options.checkpoint_layers = checkpoint_layers;
    if (v->from_start || v->like_start) make_start(&start, r, v);
    if (start.values) options.start = &start;
    options.like_start = v->like_start;
    CHECK_OK(omm_trainer_open(&t, &options));
    CHECK_OK(omm_trainer_run(t));
    const omm_digest digest = omm_trainer_chain(t, 3);
    omm_trainer_close(t);
    omm_lora_fini(&start);
    omm_compute_fini(&compute);
    omm_pool_close(pool);
    return digest;
}

static void check_bytes(test_rig *r, const variant *v, const omm_trainer *whole) {
    static const omm_isa isas[] = {OMM_ISA_AVX2, OMM_ISA_NEON, OMM_ISA_SCALAR};
    const omm_digest first = omm_trainer_chain(whole, 3);
    unsigned ran = 0; /* every second with an example at a time, the lower layer computed again */
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        if (!omm_isa_available(isas[i])) continue;
        const omm_digest other = train_with(r, v, isas[i], 1 + ran, ran % 2 ? 1 : 150, ran % 2);
        CHECK(omm_digest_equal(&first, &other));
        ran++;
    }
    CHECK(ran >= 2 || !omm_isa_available(OMM_ISA_AVX2));
}

/* What is frozen stays, what is not moves; the file has what is trained. */
static void check_moved(test_rig *r, const variant *v, const omm_trainer *whole) {
    omm_trainer *fresh = open_variant(r, v, NULL);
    const omm_lora *now = omm_trainer_adapter(whole), *then = omm_trainer_adapter(fresh);
    CHECK_EQ(now->tensor_count, then->tensor_count);
    for (size_t i = 0; i < now->tensor_count; i++) {
        const bool frozen = !now->tensors[i].is_b && v->parts != OMM_RECIPE_PARTS_AB;
        CHECK_EQ(same_tensor(now, then, i), frozen);
    }
    omm_trainer_close(fresh);
}

/* The chain, by which bytes are compared here, is of every value: with a core of all that come of it. */
static void check_chain(const omm_trainer *t) {
    const omm_lora *adapter = omm_trainer_adapter(t);
    const omm_digest before = omm_trainer_chain(t, 2), got = omm_trainer_chain(t, 3);
    omm_hasher h;
    omm_hasher_init(&h);
    omm_hasher_update(&h, omm_bytes_of(before.b, sizeof before.b));
    omm_hasher_update(&h, omm_bytes_of(adapter->values, adapter->value_count * sizeof(float)));
    const omm_digest want = omm_hasher_final(&h);
    CHECK(omm_digest_equal(&want, &got));
}

static void check_variant(test_rig *r, const variant *v) {
    omm_trainer *whole = open_variant(r, v, NULL);
    CHECK_OK(omm_trainer_run(whole));
    check_chain(whole);
    const omm_train_result result = omm_trainer_result(whole);
    CHECK(result.loss_last < result.loss_first);
    check_moved(r, v, whole);
    check_resume(r, v, whole);
    check_core_finite(r, v, whole); /* without a core the adapter's last value lies there */
    if (v->parts == OMM_RECIPE_PARTS_CORE) check_core_decides(r, v, whole);
    check_bytes(r, v, whole);
    printf("%-22s %zu values, %zu moved, loss %.4f -> %.4f\n", v->name, whole->lora.value_count,
           whole->moved->value_count, (double)result.loss_first, (double)result.loss_last);
    omm_trainer_close(whole);
}

/* ---- cores ------------------------------------------------------------------------------------ */

/* Loss of a batch with B (C + step D) between the halves of a start: parts = ab, which leaves the loss
 * of its first step alone. */
static double loss_at(test_rig *r, const omm_trainer *t, const float *direction, double step) {
    omm_trainer *probe = NULL;
    omm_lora at = {0};
    core c = t->core;
    omm_step_report report;
    CHECK_OK(omm_recipe_adapter(&at, &r->recipe, &r->model.lora_shape, NULL));
    memcpy(at.values, t->lora.values, at.value_count * sizeof(float));
    c.c.values = omm_alloc_aligned(c.c.value_count, sizeof(float));
    for (size_t i = 0; i < c.c.value_count; i++)
        c.c.values[i] = (float)((double)t->core.c.values[i] + step * (double)direction[i]);
    core_apply(&c, &at, &r->compute);
    omm_recipe plain = r->recipe;
    plain.parts = OMM_RECIPE_PARTS_AB;
    omm_trainer_options options = test_rig_options(r);
    options.recipe = &plain;
    options.start = &at;
    CHECK_OK(omm_trainer_open(&probe, &options));
    CHECK_OK(omm_trainer_step(probe, &report));
    omm_trainer_close(probe);
    omm_free(c.c.values);
    omm_lora_fini(&at);
    return (double)report.loss;
}

/* Along the gradient of one core the loss changes by its norm. */
static void core_gradient(test_rig *r) {
    const variant v = {
        .targets = "all", .ranks = "ffn_*=4", .parts = OMM_RECIPE_PARTS_CORE, .from_start = true};
    omm_trainer *t = open_variant(r, &v, NULL);
    double worst = 0;
    r->recipe.dropout = 0;
    omm_trainer_close(t);
    omm_lora start;
    test_adapter_of(&start, &r->model, &r->recipe, 9);
    omm_trainer_options options = test_rig_options(r);
    options.start = &start;
    r->recipe.clip_norm = 0;
    r->recipe.optimizer = OMM_RECIPE_SGD;
    r->recipe.learning_rate = 0;
    r->recipe.warmup_steps = 0;
    CHECK_OK(omm_trainer_open(&t, &options));
    CHECK_OK(omm_trainer_step(t, NULL));
    const omm_lora *cores = &t->core.c;
    float *direction = omm_alloc(cores->value_count, sizeof *direction);
    for (size_t i = 0; i < cores->tensor_count; i += 3) {
        const omm_lora_tensor *x = &cores->tensors[i];
        const size_t size = (size_t)x->rows * x->cols;
        const float *g = t->core.gradient + x->offset;
        double norm = 0;
        for (size_t k = 0; k < size; k++) norm += (double)g[k] * (double)g[k];
        norm = sqrt(norm);
        CHECK(norm > 0);
        memset(direction, 0, cores->value_count * sizeof *direction);
        for (size_t k = 0; k < size; k++) direction[x->offset + k] = (float)((double)g[k] / norm);
        const double step = 5e-3, up = loss_at(r, t, direction, step);
        const double slope = (up - loss_at(r, t, direction, -step)) / (2 * step);
        const double error = fabs(slope - norm) / (norm + 1e-3);
        if (error > s_slope_tolerance)
            fprintf(stderr, "%s: slope %.6g, gradient norm %.6g\n", x->name, slope, norm);
        CHECK(error <= s_slope_tolerance);
        worst = worse_of(worst, error);
    }
    printf("gradient of cores: largest relative error %.1e\n", worst);
    omm_free(direction);
    omm_lora_fini(&start);
    omm_trainer_close(t);
}

/* Where it begins: the start adapter itself; nothing at all; not from a zero B. */
static void core_begins(test_rig *r) {
    variant v = {.targets = "all", .parts = OMM_RECIPE_PARTS_CORE, .from_start = true};
    omm_lora start;
    omm_trainer *t = open_variant(r, &v, NULL);
    make_start(&start, r, &v);
    for (size_t i = 0; i < start.tensor_count; i++)
        CHECK(same_tensor(&start, omm_trainer_adapter(t), i));
    omm_trainer_close(t);
    v.from_start = false;
    t = open_variant(r, &v, NULL);
    const omm_lora *now = omm_trainer_adapter(t);
    for (size_t i = 1; i < now->tensor_count; i += 2)
        for (size_t k = 0; k < (size_t)now->tensors[i].rows * now->tensors[i].cols; k++)
            CHECK(now->values[now->tensors[i].offset + k] == 0);
    omm_trainer_close(t);
    t = NULL;
    memset(start.values, 0, start.value_count * sizeof(float));
    omm_trainer_options options = test_rig_options(r);
    options.start = &start;
    CHECK_ERR(omm_trainer_open(&t, &options), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "B is zero"));
    omm_lora_fini(&start);
}

/* ---- refusals ----------------------------------------------------------------------------------- */

static void refused_by(test_rig *r, omm_trainer_options options, omm_bytes saved,
                       const char *word) {
    omm_trainer *t = NULL;
    CHECK_OK(omm_trainer_open(&t, &options));
    CHECK_ERR(omm_trainer_resume(t, saved), OMM_ERR_MISMATCH);
    if (!strstr(omm_err_sentence(), word)) fprintf(stderr, "%s\n", omm_err_sentence());
    CHECK(strstr(omm_err_sentence(), word));
    CHECK_OK(omm_trainer_step(t, NULL)); /* still usable */
    omm_trainer_close(t);
    (void)r;
}

static void foreign_checkpoints(test_rig *r) {
    omm_trainer *t = open_variant(r, &s_variants[0], NULL);
    omm_buf saved;
    omm_buf_init(&saved, 64 << 20);
    CHECK_OK(omm_trainer_step(t, NULL));
    CHECK_OK(omm_trainer_save(t, &saved));
    omm_trainer_close(t);
    const omm_bytes file = omm_buf_view(&saved);
    omm_trainer_options options = test_rig_options(r);
    options.model_digest.b[3] = 1;
    refused_by(r, options, file, "another model");
    options = test_rig_options(r);
    options.seed = omm_seed_from_u64(2);
    refused_by(r, options, file, "another seed");
    omm_model named = r->model;
    memcpy(named.lora_shape.architecture, "qwen2", 6);
    options = test_rig_options(r);
    options.model = &named;
    refused_by(r, options, file, "another architecture");
    omm_recipe other = r->recipe;
    CHECK_OK(omm_recipe_set_patterns(&other, "ffn_*=4,v=1", "q=4"));
    options = test_rig_options(r);
    options.recipe = &other;
    refused_by(r, options, file, "another recipe");
    omm_buf_fini(&saved);
}

static void allocations_fail(test_rig *r, const variant *v) {
    r->recipe = recipe_of(v);
    omm_trainer_options options = test_rig_options(r);
    const size_t live = omm_mem_live();
    for (size_t nth = 1;; nth++) {
        omm_trainer *t = NULL;
        omm_mem_fail_nth(nth);
        omm_err err = omm_trainer_open(&t, &options);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        if (err == OMM_OK) {
            omm_trainer_close(t);
            break;
        }
        CHECK_EQ(err, OMM_ERR_NOMEM);
        CHECK_EQ(omm_mem_live(), live);
    }
    CHECK_EQ(omm_mem_live(), live);
}

int main(void) {
    test_rig r;
    test_rig_open(&r, 3);
    core_gradient(&r);
    for (size_t i = 0; i < sizeof s_variants / sizeof *s_variants; i++)
        check_variant(&r, &s_variants[i]);
    core_begins(&r);
    foreign_checkpoints(&r);
    allocations_fail(&r, &s_variants[0]);
    allocations_fail(&r, &s_variants[3]);
    test_rig_close(&r);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

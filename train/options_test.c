/* Every option of the recipe that changes a gradient, against central differences of what it says is
 * minimised; and micro-batches of one, two and four sequences, which give the same bytes.
 *
 * A step of plain SGD is taken by the trainer: what moved, over the rate, is the gradient that
 * this option made.  The objective is summed anew in double: the loss of the step's batch with the dropout
 * of that step, and FedProx's mu / 2 |w - start|^2.
 */
#include "test_model.h"
#include "trainer_internal.h"

#include "omm/data_reader.h"
#include "omm/mem.h"
#include "omm/mem_count.h"
#include "omm/train_plan.h"

#include <math.h>
#include <string.h>

enum { LINES = 3, EPOCH_STEPS = 3 };

/* Slope along the gradient of one tensor against that gradient's norm, relative.  Measured maximum
 * 1.0e-3. */
static const double s_tolerance = 1.5e-3;
static const double s_move = 4e-3; /* to either side */
static const float s_rate = 0.5F;

typedef struct option {
    const char *name;
    uint32_t parts, rslora;
    float dropout, prox, ratio;
    const char *ranks, *alphas;
    uint32_t steps; /* of which the last is judged */
} option;

static const option s_options[] = {
    {.name = "as it is", .steps = 1},
    {.name = "rsLoRA", .rslora = 1, .steps = 1},
    {.name = "LoRA+", .ratio = 4, .steps = 1},
    {.name = "dropout", .dropout = 0.3F, .steps = 1},
    {.name = "FedProx, away from where it began", .prox = 2, .steps = 2},
    {.name = "A alone, rsLoRA", .parts = OMM_RECIPE_PARTS_A, .rslora = 1, .steps = 1},
    {.name = "B alone, LoRA+", .parts = OMM_RECIPE_PARTS_B, .ratio = 2, .steps = 1},
    {.name = "a core", .parts = OMM_RECIPE_PARTS_CORE, .steps = 1},
    {.name = "a core with rsLoRA, dropout, FedProx",
     .parts = OMM_RECIPE_PARTS_CORE,
     .rslora = 1,
     .dropout = 0.2F,
     .prox = 0.5F,
     .steps = 2},
    {.name = "ranks and alphas by pattern, with all of it",
     .rslora = 1,
     .dropout = 0.1F,
     .prox = 1,
     .ratio = 2,
     .ranks = "ffn_*=2",
     .alphas = "attn_q=3",
     .steps = 2},
};

static void make_recipe(omm_recipe *r, const option *o) {
    *r = omm_recipe_default();
    r->rank = 3;
    r->alpha = 4;
    r->parts = o->parts;
    r->rslora = o->rslora;
    r->dropout = o->dropout;
    r->prox_mu = o->prox;
    r->b_rate_ratio = o->ratio;
    r->optimizer = OMM_RECIPE_SGD;
    r->schedule = OMM_RECIPE_CONSTANT;
    r->learning_rate = s_rate;
    r->warmup_steps = 0;
    r->clip_norm = 0;
    r->steps = EPOCH_STEPS; /* one more than any judges: the trainer keeps its graph */
    r->batch_tokens = r->micro_tokens = 4096; /* all examples in each */
    CHECK_OK(omm_recipe_set_patterns(r, o->ranks, o->alphas));
}

/* Of a step's batch, with what moves at `values`. */
static double objective(omm_trainer *t, const omm_rng *lane, const float *values) {
    const size_t n = t->moved->value_count;
    double sum = 0, pull = 0;
    uint64_t learned = 0;
    for (size_t i = 0; i < LINES; i++) learned += t->sequence.batch[i]->learn_count;
    memcpy(t->moved->values, values, n * sizeof *values);
    core_apply(&t->core, &t->lora, t->options.compute);
    graph_set_adapter(&t->graph, t->lora.values);
    const graph_dropout dropout = {.lane = *lane, .rate = t->recipe.dropout};
    CHECK_OK(graph_forward(&t->graph, t->nll, t->sequence.batch, LINES, 1.0F / (float)learned,
                           &dropout));
    for (size_t i = 0; i < t->graph.learned; i++) sum += (double)t->nll[i];
    for (size_t i = 0; t->start && i < n; i++) {
        const double away = (double)values[i] - (double)t->start[i];
        pull += away * away;
    }
    return sum / (double)learned + (double)t->recipe.prox_mu / 2 * pull;
}

/* Tensor x moved from w along its gradient g: by how much the objective changes. */
static double slope(omm_trainer *t, const omm_rng *lane, const float *w, const double *g,
                    const omm_lora_tensor *x, double norm) {
    const size_t n = t->moved->value_count, end = x->offset + (size_t)x->rows * x->cols;
    float *moved = omm_alloc(n, sizeof *moved);
    double at[2], length = 0;
    CHECK(moved != NULL);
    for (int side = 0; side < 2; side++) {
        memcpy(moved, w, n * sizeof *moved);
        for (size_t i = x->offset; i < end; i++)
            moved[i] = (float)((double)w[i] + (side ? s_move : -s_move) * g[i] / norm);
        at[side] = objective(t, lane, moved);
        for (size_t i = x->offset; i < end; i++)
            length += fabs(((double)moved[i] - (double)w[i]) * g[i] / norm);
    }
    omm_free(moved);
    return (at[1] - at[0]) / length;
}

static bool is_frozen(const option *o, const omm_lora_tensor *x) {
    return o->parts == (uint32_t)(x->is_b ? OMM_RECIPE_PARTS_A : OMM_RECIPE_PARTS_B);
}

static double check_tensor(omm_trainer *t, const omm_rng *lane, const option *o, const float *w,
                           const double *g, const omm_lora_tensor *x) {
    double norm = 0;
    for (size_t i = x->offset; i < x->offset + (size_t)x->rows * x->cols; i++) norm += g[i] * g[i];
    norm = sqrt(norm);
    CHECK((norm == 0) == is_frozen(o, x));
    if (norm == 0) return 0;
    const double error = fabs(slope(t, lane, w, g, x, norm) - norm) / (norm + 1e-3);
    if (!(error <= s_tolerance))
        fprintf(stderr, "%s, %s: relative error %.2e, norm %.3e\n", o->name, x->name, error, norm);
    CHECK(error <= s_tolerance);
    return error;
}

/* What the last step moved, over its rate; `before` holds what moves before it. */
static double *gradient_of_step(const omm_trainer *t, const option *o, const float *before) {
    double *g = omm_alloc(t->moved->value_count, sizeof *g);
    CHECK(g != NULL);
    for (size_t i = 0; i < t->moved->tensor_count; i++) {
        const omm_lora_tensor *x = &t->moved->tensors[i];
        const bool is_b = o->parts != OMM_RECIPE_PARTS_CORE && x->is_b;
        const double rate = (double)s_rate * (is_b && o->ratio > 0 ? (double)o->ratio : 1);
        for (size_t k = x->offset; k < x->offset + (size_t)x->rows * x->cols; k++)
            g[k] = ((double)before[k] - (double)t->moved->values[k]) / rate;
    }
    return g;
}

static void check_option(test_rig *rig, const option *o) {
    omm_lora start;
    omm_trainer *t = NULL;
    make_recipe(&rig->recipe, o);
    test_adapter_of(&start, &rig->model, &rig->recipe, 3);
    omm_trainer_options options = test_rig_options(rig);
    options.start = &start;
    CHECK_OK(omm_trainer_open(&t, &options));
    float *before = omm_alloc(t->moved->value_count, sizeof *before);
    CHECK(before != NULL);
    for (uint32_t step = 0; step < o->steps; step++) {
        memcpy(before, t->moved->values, t->moved->value_count * sizeof *before);
        CHECK_OK(omm_trainer_step(t, NULL));
    }
    CHECK_EQ(t->position, (uint64_t)LINES * o->steps);
    const omm_rng lane =
        omm_rng_init(&options.seed, OMM_PURPOSE_DROPOUT, rig->recipe.seed_lane, o->steps - 1);
    double *g = gradient_of_step(t, o, before), worst = 0;
    for (size_t i = 0; i < t->moved->tensor_count; i++)
        worst = worse_of(worst, check_tensor(t, &lane, o, before, g, &t->moved->tensors[i]));
    printf("%s: largest relative error %.2e\n", o->name, worst);
    omm_free(g);
    omm_free(before);
    omm_trainer_close(t);
    omm_lora_fini(&start);
}

/* --- micro-batches ---------------------------------------------------------------------------- */

enum { WINDOW = 48, BATCH = 4, STEPS = 3 };

static bool count_pass(void *ud) {
    ++*(unsigned *)ud;
    return false;
}

/* The digest after STEPS steps of four sequences, `each` of them in a pass. */
static omm_digest micro_batches(test_rig *rig, omm_compute *compute, unsigned each) {
    omm_trainer *t = NULL;
    unsigned passes = 0;
    rig->recipe.micro_tokens = each * WINDOW;
    omm_trainer_options options = test_rig_options(rig);
    options.compute = compute;
    options.cancelled = count_pass;
    options.ud = &passes;
    CHECK_OK(omm_trainer_open(&t, &options));
    CHECK_OK(omm_trainer_run(t));
    CHECK_EQ(passes, STEPS * BATCH / each);
    CHECK_EQ(t->position, STEPS * BATCH);
    const omm_digest digest = omm_trainer_chain(t, STEPS);
    omm_trainer_close(t);
    return digest;
}

static void same_bytes_by_sequences(test_rig *rig) {
    static const char text[] = "The mesh minds its own: every node reads a page, keeps it, and "
                               "sends what it has learned, never what it has read. ";
    const omm_dataset_options windows = {.seq_max = WINDOW, .format = OMM_DATA_TEXT};
    omm_buf long_text;
    omm_pool *pool = NULL;
    omm_compute two;
    omm_dataset *jsonl = rig->data;
    omm_buf_init(&long_text, 1 << 16);
    for (int i = 0; i < 60; i++) CHECK_OK(omm_buf_append(&long_text, text, sizeof text - 1));
    CHECK_OK(
        omm_dataset_parse(&rig->data, omm_buf_view(&long_text), "text", rig->tokenizer, &windows));
    rig->recipe = omm_recipe_default();
    rig->recipe.rank = 3;
    rig->recipe.steps = STEPS;
    rig->recipe.dropout = 0.1F;
    rig->recipe.seq_max = WINDOW;
    rig->recipe.batch_tokens = BATCH * WINDOW;
    CHECK_OK(omm_pool_open(&pool, 2));
    CHECK_OK(omm_compute_init(&two, pool, rig->compute.isa));
    const omm_digest one = micro_batches(rig, &rig->compute, 1);
    for (unsigned each = 1; each <= BATCH; each *= 2) {
        const omm_digest alone = micro_batches(rig, &rig->compute, each);
        const omm_digest both = micro_batches(rig, &two, each);
        CHECK(omm_digest_equal(&one, &alone) && omm_digest_equal(&one, &both));
    }
    printf("micro-batches of 1, 2 and 4 sequences: the same bytes\n");
    omm_compute_fini(&two);
    omm_pool_close(pool);
    omm_buf_fini(&long_text);
    omm_dataset_close(rig->data);
    rig->data = jsonl;
}

/* Short examples and a large rank: the file while it is written is more than a step takes. */
static void plan_of_writing(const test_rig *rig) {
    omm_recipe recipe = omm_recipe_default();
    omm_train_plan without, with;
    recipe.rank = 256;
    recipe.seq_max = recipe.micro_tokens = 64;
    omm_train_plan_options o = {.model = &rig->model,
                                .recipe = &recipe,
                                .data = rig->data,
                                .threads = 1,
                                .checkpoint_layers = UINT32_MAX};
    CHECK_OK(omm_train_plan_make(&without, &o));
    o.writes = true;
    CHECK_OK(omm_train_plan_make(&with, &o));
    CHECK(without.writing == 0 && with.writing > 0);
    CHECK_EQ(with.total - without.total, with.writing);
    /* with alphas that differ there is one more copy, whose B's are folded */
    omm_train_plan uneven;
    CHECK_OK(omm_recipe_set_patterns(&recipe, "", "blk.0.attn_q=7"));
    CHECK_OK(omm_train_plan_make(&uneven, &o));
    CHECK_EQ(uneven.writing - with.writing, with.parameters * sizeof(float));
}

/* Bytes that a trainer on a stream keeps after an epoch. */
static size_t bytes_kept(const test_rig *rig, const omm_dataset *stream, size_t cache_bytes) {
    omm_recipe recipe = omm_recipe_default();
    omm_trainer *t = NULL;
    recipe.seq_max = 64;
    recipe.rank = 2;
    recipe.batch_tokens = recipe.micro_tokens = 4096;
    omm_trainer_options options = test_rig_options(rig);
    options.data = stream;
    options.recipe = &recipe;
    options.cache_bytes_max = cache_bytes;
    const size_t before = omm_mem_bytes();
    CHECK_OK(omm_trainer_open(&t, &options));
    CHECK_OK(omm_trainer_step(t, NULL));
    const size_t bytes = omm_mem_bytes() - before;
    omm_trainer_close(t);
    return bytes;
}

/* Every limit from all down to nothing: first fewer tokens at once, not under a number that is still fast,
 * then layers computed again, at last one example at a time; a limit that is met is kept. */
static void plans_fit(const test_rig *rig) {
    enum { STEP = 2048 };
    omm_recipe recipe = omm_recipe_default();
    omm_train_plan full, least, last;
    uint32_t longest = 0;
    bool all_tokens = false, all_layers = false;
    recipe.seq_max = 64;
    omm_train_plan_options o = {
        .model = &rig->model, .recipe = &recipe, .data = rig->data, .threads = 1};
    CHECK_OK(omm_train_plan_make(&full, &o));
    CHECK_OK(omm_train_plan_least(&least, &longest, &o, 0));
    CHECK(full.micro_tokens > OMM_TRAIN_PLAN_MICRO_TOKENS && full.checkpoint_layers == 0);
    CHECK(least.micro_tokens < OMM_TRAIN_PLAN_MICRO_TOKENS && least.checkpoint_layers > 0);
    last = full;
    for (uint64_t most = full.total; most >= least.total; most -= STEP) {
        omm_train_plan plan;
        CHECK_OK(omm_train_plan_fit(&plan, &o, most));
        CHECK(plan.total <= most && plan.micro_tokens <= last.micro_tokens);
        if (plan.micro_tokens > OMM_TRAIN_PLAN_MICRO_TOKENS) CHECK_EQ(plan.checkpoint_layers, 0);
        if (plan.micro_tokens == OMM_TRAIN_PLAN_MICRO_TOKENS) {
            all_tokens = all_tokens || plan.checkpoint_layers == 0;
            all_layers = all_layers || plan.checkpoint_layers > 0;
        }
        last = plan;
    }
    CHECK(all_tokens && all_layers);
    CHECK_ERR(omm_train_plan_fit(&last, &o, least.total - 1), OMM_ERR_CONFIG);
}

/* What reads a stream, and what it keeps: all where there is room, else what training leaves. */
static void plans_count_readers(const test_rig *rig) {
    char path[512];
    omm_recipe recipe = omm_recipe_default();
    omm_train_plan full, least, plan, of_memory;
    omm_data_reader_room room;
    omm_dataset *stream = NULL, *memory = NULL;
    uint32_t longest = 0;
    recipe.seq_max = 64;
    const omm_dataset_options lines = {.client_default = "local", .seq_max = 64};
    test_path(path, "scenarios/base/train.jsonl");
    CHECK_OK(omm_dataset_stream(&stream, path, rig->tokenizer, &lines));
    CHECK_OK(omm_dataset_load(&memory, path, rig->tokenizer, &lines));
    omm_data_reader_room_of(&room, stream);
    omm_train_plan_options o = {
        .model = &rig->model, .recipe = &recipe, .data = memory, .threads = 1};
    CHECK_OK(omm_train_plan_make(&of_memory, &o));
    o.data = stream;
    CHECK_OK(omm_train_plan_make(&full, &o));
    CHECK_OK(omm_train_plan_least(&least, &longest, &o, 0));
    /* The order as for data in memory, and a batch that was taken: its ids and mask. */
    const uint64_t batch = (uint64_t)recipe.batch_tokens * (sizeof(uint32_t) + 1);
    const uint64_t reading = of_memory.reader + room.reading + batch;
    CHECK(room.cache > 4 && full.cache == room.cache);
    CHECK(least.reader >= reading && full.reader == least.reader + room.cache);
    CHECK_OK(omm_train_plan_fit(&plan, &o, full.total - room.cache / 4));
    CHECK(plan.total == full.total - room.cache / 4 && plan.micro_tokens == full.micro_tokens);
    CHECK_EQ(plan.cache, room.cache - room.cache / 4);
    CHECK_OK(omm_train_plan_fit(&plan, &o, least.total));
    CHECK(plan.total == least.total && plan.cache == 1);
    CHECK_ERR(omm_train_plan_fit(&plan, &o, least.total - 1), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), ", reading the data ") != NULL);
    o.data = rig->data;
    CHECK_ERR(omm_train_plan_fit(&plan, &o, 1000), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "reading the data") == NULL); /* a few numbers */
    /* and a trainer keeps what its plan says */
    (void)bytes_kept(rig, stream, 1); /* what threads keep is there */
    const size_t none = bytes_kept(rig, stream, 1);
    CHECK(bytes_kept(rig, stream, 0) > none + room.cache / 2);
    omm_dataset_close(stream);
    omm_dataset_close(memory);
}

/* Bases of which only something is quantised can be trained in int8. */
static void one_is_enough(const test_rig *rig, omm_recipe *recipe) {
    static const char *const plain[][2] = {{"blk.0", "token_embd"},
                                           {"attn_", "ffn_"},
                                           {"attn_", "token_embd"},
                                           {"blk.", "token_embd"}};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        tiny_arch arch = test_arch("llama", OMM_FORMAT_Q8_0);
        omm_model model;
        omm_train_plan plan;
        memcpy(arch.plain, plain[i], sizeof arch.plain);
        tiny_arch_load(&model, &arch);
        const omm_train_plan_options o = {
            .model = &model, .recipe = recipe, .data = rig->data, .threads = 1};
        if (i < 3)
            CHECK_OK(omm_train_plan_make(&plan, &o));
        else
            CHECK_ERR(omm_train_plan_make(&plan, &o), OMM_ERR_CONFIG);
        omm_model_fini(&model);
    }
}

/* Their quantised inputs, of one product at a time, and nothing else: they go back with the last step, and are no part of what stays
 * while the file is written.  Of bases that have no use for them they are refused, with the plan and with the trainer; all weights have
 * none. */
static void plans_count_int8(const test_rig *rig) {
    omm_recipe recipe = omm_recipe_default();
    omm_train_plan f32, q8;
    omm_trainer *trainer = NULL;
    omm_model quantised;
    test_synth_open(&quantised, OMM_FORMAT_Q8_0); /* the widest input is of 160 */
    omm_train_plan_options o = {
        .model = &quantised, .recipe = &recipe, .data = rig->data, .threads = 1};
    CHECK_OK(omm_train_plan_make(&f32, &o));
    recipe.activations = OMM_RECIPE_Q8;
    CHECK_OK(omm_train_plan_make(&q8, &o));
    CHECK_EQ(q8.work - f32.work, omm_q8_rows_bytes(q8.micro_tokens, 160));
    CHECK_EQ(q8.total - f32.total, q8.work - f32.work);
    one_is_enough(rig, &recipe);
    o.model = &rig->model;
    CHECK_ERR(omm_train_plan_make(&q8, &o), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "activations is q8") != NULL);
    CHECK(strstr(omm_err_sentence(), "are F32") != NULL);
    o.full = true;
    CHECK_OK(omm_train_plan_make(&q8, &o));
    recipe.activations = OMM_RECIPE_F32;
    CHECK_OK(omm_train_plan_make(&f32, &o));
    CHECK_EQ(q8.total, f32.total);
    recipe.activations = OMM_RECIPE_Q8;
    omm_trainer_options options = test_rig_options(rig);
    options.recipe = &recipe;
    CHECK_ERR(omm_trainer_open(&trainer, &options), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "activations is q8") != NULL);
    omm_model_fini(&quantised);
}

/* 16 bytes a parameter with AdamW: value, gradient, two moments; what an option needs comes on top. */
static void plans_count_options(const test_rig *rig) {
    static const struct {
        uint32_t optimizer;
        float prox;
        unsigned moments, copies; /* of the parameters */
    } cases[] = {
        {OMM_RECIPE_ADAMW, 0, 2, 0}, {OMM_RECIPE_SGD, 0, 1, 0}, {OMM_RECIPE_ADAMW, 0.1F, 2, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_recipe recipe = omm_recipe_default();
        omm_train_plan plan, more;
        recipe.optimizer = cases[i].optimizer;
        recipe.prox_mu = cases[i].prox;
        omm_train_plan_options o = {
            .model = &rig->model, .recipe = &recipe, .data = rig->data, .threads = 1};
        CHECK_OK(omm_train_plan_make(&plan, &o));
        o.keeps_best = true;
        CHECK_OK(omm_train_plan_make(&more, &o));
        const uint64_t one = plan.parameters * sizeof(float);
        const uint64_t room = plan.adapter - (2 + cases[i].copies) * one; /* one B of a thread */
        CHECK_EQ(plan.optimizer, cases[i].moments * one);
        CHECK(plan.adapter > (2 + cases[i].copies) * one && room < one / 2);
        CHECK_EQ(more.adapter - plan.adapter, one);
    }
    plans_count_int8(rig);
    plan_of_writing(rig);
    plans_fit(rig);
    plans_count_readers(rig);
}

int main(void) {
    test_rig rig;
    test_rig_open(&rig, LINES);
    omm_model_fini(&rig.model);
    test_synth_open(&rig.model, OMM_FORMAT_F32);
    for (size_t i = 0; i < sizeof s_options / sizeof *s_options; i++)
        check_option(&rig, &s_options[i]);
    plans_count_options(&rig);
    same_bytes_by_sequences(&rig);
    test_rig_close(&rig);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

/* bench_train.c - see bench_train.h. */
#include "bench_train.h"
#include "loaded.h"

#include "options.h"

#include "omm/clock.h"
#include "omm/gguf.h"
#include "omm/mem.h"
#include "omm/memory.h"
#include "omm/peaks.h"
#include "omm/tokenizer.h"
#include "omm/trainer.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES_PER_TOKEN 8u /* more than any vocabulary makes of letters at random */
#define WORD_LETTERS_MAX 6u
#define LINE_BYTES 64u
#define PEAK_BUFFER_BYTES ((size_t)64 << 20) /* its read bandwidth is not asked for */

typedef struct bench {
    const bench_train_options *o;
    omm_model model;
    omm_tokenizer *tokenizer;
    omm_dataset *data;
    omm_recipe recipe;
    bench_processors processors[BENCH_THREAD_COUNTS_MAX]; /* [run_count] */
    omm_compute c; /* the trainer's: scratch for the most threads, the pool of who has the turn */
    omm_train_watch watch; /* of one step */
    omm_trainer *trainer;
    double *figures; /* [run_count][3][repeats] */
} bench;

/* ---- model and text -------------------------------------------------------------------------- */

static omm_err load(bench_train_result *r, bench *b) {
    omm_gguf gguf;
    OMM_TRY(cli_of_file(omm_gguf_open(&gguf, b->o->bench->model), "-m", b->o->bench->model));
    omm_err err = omm_tokenizer_open(&b->tokenizer, &gguf);
    if (err == OMM_OK) cli_warn_words(b->tokenizer);
    if (err == OMM_OK)
        err = bench_load(&b->model, r->architecture, &gguf, &(omm_packed){0}, UINT32_MAX);
    omm_gguf_close(&gguf);
    OMM_TRY(cli_of_file(err, "-m", b->o->bench->model));
    if (b->o->seq <= b->model.dims.context) return OMM_OK;
    return omm_raise(OMM_ERR_USAGE, "--seq %u: the model was trained for %u tokens", b->o->seq,
                     b->model.dims.context);
}

/* Words of one to six letters, a line break now and then. */
static void fill_text(char *text, size_t size) {
    uint32_t state = 1, letters = 0, line = 0;
    for (size_t i = 0; i < size; i++) {
        state = state * 1664525u + 1013904223u;
        const bool word_ends = letters > 0 && (state >> 16) % WORD_LETTERS_MAX < letters;
        text[i] = (char)('a' + (state >> 24) % 26);
        letters++;
        line++;
        if (!word_ends) continue;
        text[i] = line >= LINE_BYTES ? '\n' : ' ';
        if (line >= LINE_BYTES) line = 0;
        letters = 0;
    }
}

/* Only whole windows are kept: seq learned tokens and one before them. */
static omm_err whole_windows(bench *b) {
    const size_t count = omm_dataset_count(b->data);
    omm_dataset *kept = NULL;
    bool *keep = (bool *)omm_alloc(count, sizeof *keep);
    if (!keep) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu windows", count);
    for (size_t i = 0; i < count; i++) {
        const omm_example *x = omm_dataset_example(b->data, i);
        keep[i] = x->count == b->o->seq + 1 && x->learn_count == b->o->seq;
    }
    omm_err err = omm_dataset_pick(&kept, b->data, keep);
    omm_free(keep);
    OMM_TRY(err);
    omm_dataset_close(b->data);
    b->data = kept;
    return OMM_OK;
}

static omm_err make_data(bench *b) {
    const size_t size = (size_t)TEXT_BYTES_PER_TOKEN * (b->o->seq + 1) * 2;
    const omm_dataset_options options = {.seq_max = b->o->seq + 1, .format = OMM_DATA_TEXT};
    char *text = (char *)omm_alloc(size, 1);
    if (!text) return omm_raise(OMM_ERR_NOMEM, "no memory for a text");
    fill_text(text, size);
    omm_err err =
        omm_dataset_parse(&b->data, omm_bytes_of(text, size), "text", b->tokenizer, &options);
    omm_free(text);
    OMM_TRY(err);
    return whole_windows(b);
}

static void make_recipe(bench *b) {
    b->recipe = omm_recipe_default();
    b->recipe.rank = b->o->rank;
    b->recipe.alpha = 2.0f * (float)b->o->rank;
    b->recipe.steps = b->o->bench->thread_counts * (1 + b->o->bench->repeats);
    b->recipe.batch_tokens = b->recipe.micro_tokens = b->recipe.seq_max = b->o->seq + 1;
    b->recipe.learning_rate = 1e-4f;
    b->recipe.warmup_steps = 1;
    if (b->o->bench->activations == OMM_ACTIVATIONS_Q8) b->recipe.activations = OMM_RECIPE_Q8;
}

/* ---- operations ------------------------------------------------------------------------------ */

static double parameters_of(const omm_matrix *m) {
    return (double)m->rows * m->cols;
}

static double layer_parameters(const omm_model *model, uint32_t layer) {
    double sum = 0.0;
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
        sum += parameters_of(&model->layers[layer].weights[t]);
    return sum;
}

/* Multiply-adds of one token, twice. */
typedef struct flops {
    double step, forward, backward, adapter;
} flops;

/* Of an adapter's own products: z and dz before those of the layers, dA and dB with those of backward.  What it adds
 * to y and dx is not counted. */
static void add_adapter(flops *f, const bench *b, uint32_t checkpoint_layers) {
    const omm_lora_shape *shape = &b->model.lora_shape;
    double down = 0.0, up = 0.0;
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
        down += 2.0 * b->o->rank * shape->d_in[t];
        up += 2.0 * b->o->rank * shape->d_out[t];
    }
    f->adapter = (down + up) * b->model.dims.layers + down * checkpoint_layers;
    f->backward += (down + up) * b->model.dims.layers;
}

static flops flops_of(const bench *b, uint32_t checkpoint_layers) {
    const omm_layer *first = &b->model.layers[0];
    flops f = {0};
    double layers = 0.0, again = 0.0, down = 0.0;
    for (uint32_t i = 0; i < b->model.dims.layers; i++) {
        layers += layer_parameters(&b->model, i);
        if (i >= checkpoint_layers) continue;
        again += layer_parameters(&b->model, i);
        if (!b->model.layers[i].ffn_post_norm) /* its result is not wanted again */
            down += parameters_of(&b->model.layers[i].weights[OMM_LORA_DOWN]);
    }
    f.step = 4.0 * (layers + parameters_of(b->model.output)) + 2.0 * again;
    f.forward = 2.0 * (layers + again - down);
    f.backward = 2.0 * layers; /* below the first layer's q, k and v nobody asks */
    for (unsigned t = OMM_LORA_Q; t <= OMM_LORA_V; t++)
        f.backward -= 2.0 * parameters_of(&first->weights[t]);
    add_adapter(&f, b, checkpoint_layers);
    return f;
}

static void describe(bench_train_result *r, const bench *b) {
    const uint32_t layers = b->model.dims.layers, wanted = b->o->checkpoint_layers;
    double sum = parameters_of(b->model.output);
    for (uint32_t i = 0; i < layers; i++) sum += layer_parameters(&b->model, i);
    r->parameters = (uint64_t)sum;
    r->layers = layers;
    r->checkpoint_layers = wanted < layers ? wanted : layers - 1;
    r->token_flops = flops_of(b, r->checkpoint_layers).step;
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
        r->adapter_parameters += (uint64_t)layers * b->o->rank *
                                 (b->model.lora_shape.d_in[t] + b->model.lora_shape.d_out[t]);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Processors for every number of threads, and one trainer, which has room for the most of them. */
static omm_err open_all(bench *b, const bench_train_result *r) {
    unsigned most = 0;
    for (unsigned i = 0; i < r->run_count; i++) {
        bench_processors *p = &b->processors[i];
        OMM_TRY(bench_processors_open(p, r->runs[i].threads, r->isa));
        if (p->c.workers > b->processors[most].c.workers) most = i;
    }
    OMM_TRY(omm_compute_init(&b->c, b->processors[most].pool, r->isa));
    const omm_trainer_options options = {.model = &b->model,
                                         .data = b->data,
                                         .recipe = &b->recipe,
                                         .compute = &b->c,
                                         .seed = omm_seed_from_u64(1),
                                         .checkpoint_layers = r->checkpoint_layers,
                                         .watch = &b->watch};
    return omm_trainer_open(&b->trainer, &options);
}

static void close_all(bench *b, const bench_train_result *r) {
    omm_trainer_close(b->trainer);
    omm_compute_fini(&b->c);
    for (unsigned i = 0; i < r->run_count; i++) bench_processors_close(&b->processors[i]);
}

/* A step by the threads of `run`: its seconds; the watch has its parts. */
static omm_err step_by(bench *b, unsigned run, double *seconds, omm_step_report *report) {
    const bench_processors *p = &b->processors[run];
    b->c.pool = p->pool;
    b->c.workers = p->c.workers;
    omm_train_watch_start(&b->watch, p->pool);
    const uint64_t start = omm_measure_ns();
    const omm_err err = omm_trainer_step(b->trainer, report);
    *seconds = (double)(omm_measure_ns() - start) * 1e-9;
    return err;
}

/* Figures of `run`: tokens per second, shares in turns, speeds over those of the first run. */
typedef enum figure { FIGURE_SPEED, FIGURE_IN_TURNS, FIGURE_OVER_FIRST, FIGURES } figure;

static double *figures_of(const bench *b, unsigned run, figure which) {
    return b->figures + ((size_t)run * FIGURES + which) * b->o->bench->repeats;
}

static omm_err measure_step(bench *b, bench_train_run *run, unsigned i, uint32_t repeat,
                            double token_flops) {
    const bench_options *o = b->o->bench;
    const double turn = o->peak_seconds / o->repeats;
    omm_peaks *peaks = &b->processors[i].peaks;
    omm_step_report report;
    double seconds = 0.0;
    const double before = turn > 0.0 ? omm_peaks_fma(peaks, turn) : 0.0;
    OMM_TRY(step_by(b, i, &seconds, &report));
    const double speed = (double)report.learned / seconds;
    run->seconds += seconds;
    for (unsigned part = 0; part < OMM_TRAIN_PART_COUNT; part++) {
        run->watch.ns[part] += b->watch.ns[part];
        run->watch.work_ns[part] += b->watch.work_ns[part];
    }
    figures_of(b, i, FIGURE_SPEED)[repeat] = speed;
    if (turn <= 0.0) return OMM_OK;
    const double beside = (before + omm_peaks_fma(peaks, turn)) / 2.0;
    figures_of(b, i, FIGURE_IN_TURNS)[repeat] = speed * token_flops / beside;
    run->fma_beside += beside / o->repeats;
    return OMM_OK;
}

/* All numbers of threads in turns, forwards and backwards: what else the machine does meets all of them. */
static omm_err measure_steps(bench *b, bench_train_result *r, double token_flops) {
    const uint32_t repeats = b->o->bench->repeats;
    for (uint32_t repeat = 0; repeat < repeats; repeat++)
        for (unsigned n = 0; n < r->run_count; n++) {
            const unsigned i = repeat % 2 == 0 ? n : r->run_count - 1 - n;
            OMM_TRY(measure_step(b, &r->runs[i], i, repeat, token_flops));
        }
    for (unsigned i = 0; i < r->run_count; i++)
        for (uint32_t repeat = 0; repeat < repeats; repeat++)
            figures_of(b, i, FIGURE_OVER_FIRST)[repeat] =
                figures_of(b, i, FIGURE_SPEED)[repeat] / figures_of(b, 0, FIGURE_SPEED)[repeat];
    return OMM_OK;
}

static double rate(double token_flops, double tokens, uint64_t ns) {
    return ns > 0 ? token_flops * tokens * 1e9 / (double)ns : 0.0;
}

static void sum_up(bench_train_run *run, const bench *b, unsigned i, const flops *f) {
    const uint32_t repeats = b->o->bench->repeats;
    const double tokens = (double)b->o->seq * repeats;
    run->over_first = bench_spread_of(figures_of(b, i, FIGURE_OVER_FIRST), repeats);
    run->speed = bench_spread_of(figures_of(b, i, FIGURE_SPEED), repeats);
    run->in_turns = bench_spread_of(figures_of(b, i, FIGURE_IN_TURNS), repeats);
    run->fma_flops = b->processors[i].peaks.fma_flops;
    run->forward = rate(f->forward, tokens, run->watch.ns[OMM_TRAIN_FORWARD]);
    run->backward = rate(f->backward, tokens, run->watch.ns[OMM_TRAIN_BACKWARD]);
    run->adapter = rate(f->adapter, tokens, run->watch.ns[OMM_TRAIN_ADAPTER]);
}

static omm_err measure_runs(bench_train_result *r, bench *b) {
    const flops f = flops_of(b, r->checkpoint_layers);
    double seconds = 0.0;
    for (unsigned i = 0; i < r->run_count; i++) /* to warm up */
        OMM_TRY(step_by(b, i, &seconds, NULL));
    r->memory_peak_bytes = bench_memory_peak(0);
    for (unsigned i = 0; i < r->run_count && b->o->bench->peak_seconds > 0.0; i++) {
        bench_processors *p = &b->processors[i];
        OMM_TRY(omm_peaks_open(&p->peaks, &p->c, PEAK_BUFFER_BYTES));
    }
    OMM_TRY(measure_steps(b, r, f.step));
    for (unsigned i = 0; i < r->run_count; i++) sum_up(&r->runs[i], b, i, &f);
    return OMM_OK;
}

static omm_err measure_all(bench_train_result *r, bench *b) {
    const bench_options *o = b->o->bench;
    OMM_TRY(omm_isa_choose(&r->isa, getenv("OMM_ISA")));
    OMM_TRY(load(r, b));
    make_recipe(b);
    OMM_TRY(make_data(b));
    describe(r, b);
    r->run_count = o->thread_counts;
    for (unsigned i = 0; i < r->run_count; i++) r->runs[i].threads = o->threads[i];
    b->figures = (double *)omm_alloc((size_t)r->run_count * FIGURES * o->repeats, sizeof(double));
    if (!b->figures) return omm_raise(OMM_ERR_NOMEM, "no memory to measure %u repeats", o->repeats);
    omm_err err = open_all(b, r);
    if (err == OMM_OK) err = measure_runs(r, b);
    close_all(b, r);
    return err;
}

omm_err bench_train_measure(bench_train_result *out, const bench_train_options *options) {
    bench b = {.o = options};
    *out = (bench_train_result){0};
    omm_err err = measure_all(out, &b);
    omm_free(b.figures);
    omm_dataset_close(b.data);
    omm_tokenizer_close(b.tokenizer);
    omm_model_fini(&b.model);
    return err;
}

/* autothreads.c - see autothreads.h. */
#include "omm/autothreads.h"

#include "omm/clock.h"
#include "omm/mem.h"

#define TURNS 4u      /* 1, n, 1, n */
#define GAIN_MIN 1.05 /* n threads cost the others of this machine something */
#define ROWS_MAX 64u

typedef struct measurement {
    const omm_autothreads_options *o;
    const omm_model *model;
    float *x, *y; /* [rows][widest] */
    omm_q8_rows q8;
    uint64_t turn_ns;
    uint32_t
        next; /* matrix, counted over layers and targets: turns go on where the last one ended */
} measurement;

static uint64_t now(const measurement *m) {
    return m->o->now_ns ? m->o->now_ns(m->o->ud) : omm_measure_ns();
}

static const omm_matrix *next_matrix(measurement *m) {
    const uint32_t count = m->model->resident * OMM_LORA_TARGET_COUNT;
    if (count == 0) return m->model->output; /* all layers are streamed */
    const uint32_t i = m->next++ % count;
    return &m->model->layers[i / OMM_LORA_TARGET_COUNT].weights[i % OMM_LORA_TARGET_COUNT];
}

/* The one that the layers take; true: with activations in int8. */
static bool product(measurement *m, const omm_compute *c, const omm_matrix *w) {
    const bool q8 = m->o->activations == OMM_ACTIVATIONS_Q8 && omm_format_is_quantised(w->format);
    if (q8) {
        omm_q8_quantize(c, &m->q8, m->x, m->o->rows, w->cols);
        omm_linear_q8(c, m->y, &m->q8, w, m->o->rows);
    } else {
        omm_linear_forward(c, m->y, m->x, w, m->o->rows, false);
    }
    return q8;
}

/* Weights per second. */
static double turn(omm_autothreads *out, measurement *m, const omm_compute *c) {
    uint64_t weights = 0, end = 0;
    const uint64_t begin = now(m);
    product(m, c, next_matrix(m)); /* wakes the threads */
    const uint64_t start = now(m);
    do {
        const omm_matrix *w = next_matrix(m);
        out->products_q8 += product(m, c, w);
        out->products++;
        weights += (uint64_t)w->rows * w->cols;
        end = now(m);
    } while (end - begin < m->turn_ns);
    out->spent_ns += end - begin;
    return end > start ? (double)weights * 1e9 / (double)(end - start) : 0.0;
}

static omm_err in_turns(omm_autothreads *out, measurement *m, omm_isa isa) {
    omm_pool *pool = NULL;
    omm_compute one = {0}, many = {0};
    OMM_TRY(omm_pool_open(&pool, m->o->n));
    omm_err err = omm_compute_init(&one, NULL, isa);
    if (err == OMM_OK) err = omm_compute_init(&many, pool, isa);
    for (unsigned i = 0; err == OMM_OK && i < TURNS; i++) {
        const double rate = turn(out, m, i % 2 ? &many : &one);
        double *best = i % 2 ? &out->many : &out->one;
        if (rate > *best) *best = rate;
    }
    if (one.work) omm_compute_fini(&one);
    if (many.work) omm_compute_fini(&many);
    omm_pool_close(pool);
    return err;
}

static size_t widest(const omm_model *model) {
    const omm_matrix *o = model->output;
    size_t width = o->rows > o->cols ? o->rows : o->cols;
    for (uint32_t i = 0; i < model->dims.layers; i++)
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
            const omm_matrix *w = &model->layers[i].weights[t];
            width = w->rows > width ? w->rows : width;
            width = w->cols > width ? w->cols : width;
        }
    return width;
}

unsigned omm_autothreads_choose(double one, double many, unsigned n) {
    return one > 0.0 && many >= GAIN_MIN * one ? n : 1;
}

static omm_err allocate(measurement *m, size_t width) {
    m->x = (float *)omm_alloc_aligned(m->o->rows * width, sizeof *m->x);
    m->y = (float *)omm_alloc_aligned(m->o->rows * width, sizeof *m->y);
    if (!m->x || !m->y) return omm_raise(OMM_ERR_NOMEM, "no memory to measure threads");
    if (m->o->activations != OMM_ACTIVATIONS_Q8) return OMM_OK;
    return omm_q8_rows_init(&m->q8, m->o->rows, width);
}

omm_err omm_autothreads_measure(omm_autothreads *out, const omm_model *model, omm_isa isa,
                                const omm_autothreads_options *options) {
    const uint64_t budget =
        options->budget_ns ? options->budget_ns : OMM_AUTOTHREADS_MS * 1000000ull;
    *out = (omm_autothreads){.threads = 1};
    OMM_ASSERT(options->rows >= 1 && options->rows <= ROWS_MAX);
    if (options->n <= 1) return OMM_OK;
    measurement m = {.o = options, .model = model, .turn_ns = budget / TURNS};
    omm_err err = allocate(&m, widest(model));
    if (err == OMM_OK) err = in_turns(out, &m, isa);
    if (err == OMM_OK) out->threads = omm_autothreads_choose(out->one, out->many, options->n);
    omm_free(m.x);
    omm_free(m.y);
    omm_q8_rows_fini(&m.q8);
    return err;
}

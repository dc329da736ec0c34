/* autothreads.c - see autothreads.h. */
#include "omm/autothreads.h"

#include "omm/clock.h"
#include "omm/mem.h"

#define TURNS 4u      /* 1, n, 1, n */
#define GAIN_MIN 1.05 /* n threads cost the others of this machine something */
#define ROWS_MAX 64u

typedef struct measurement {
    const omm_model *model;
    float *x, *y; /* [rows][widest] */
    unsigned rows;
    uint32_t
        next; /* matrix, counted over layers and targets: turns go on where the last one ended */
} measurement;

static const omm_matrix *next_matrix(measurement *m) {
    const uint32_t count = m->model->resident * OMM_LORA_TARGET_COUNT;
    if (count == 0) return m->model->output; /* all layers are streamed */
    const uint32_t i = m->next++ % count;
    return &m->model->layers[i / OMM_LORA_TARGET_COUNT].weights[i % OMM_LORA_TARGET_COUNT];
}

static double turn(measurement *m, const omm_compute *c, uint64_t limit_ns) {
    uint64_t weights = 0, spent = 0;
    const omm_matrix *warm = next_matrix(m);
    omm_linear_forward(c, m->y, m->x, warm, m->rows, false); /* wakes the threads */
    const uint64_t start = omm_measure_ns();
    do {
        const omm_matrix *w = next_matrix(m);
        omm_linear_forward(c, m->y, m->x, w, m->rows, false);
        weights += (uint64_t)w->rows * w->cols;
        spent = omm_measure_ns() - start;
    } while (spent < limit_ns);
    return spent ? (double)weights * 1e9 / (double)spent : 0.0;
}

static omm_err in_turns(omm_autothreads *out, measurement *m, omm_isa isa, unsigned n) {
    omm_pool *pool = NULL;
    omm_compute one = {0}, many = {0};
    OMM_TRY(omm_pool_open(&pool, n));
    omm_err err = omm_compute_init(&one, NULL, isa);
    if (err == OMM_OK) err = omm_compute_init(&many, pool, isa);
    for (unsigned i = 0; err == OMM_OK && i < TURNS; i++) {
        const double rate = turn(m, i % 2 ? &many : &one, OMM_AUTOTHREADS_MS * 1000000ull / TURNS);
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

omm_err omm_autothreads_measure(omm_autothreads *out, const omm_model *model, omm_isa isa,
                                unsigned n, unsigned rows) {
    *out = (omm_autothreads){.threads = 1};
    OMM_ASSERT(rows >= 1 && rows <= ROWS_MAX);
    if (n <= 1) return OMM_OK;
    const size_t width = widest(model);
    measurement m = {.model = model, .rows = rows};
    m.x = (float *)omm_alloc_aligned(rows * width, sizeof *m.x);
    m.y = (float *)omm_alloc_aligned(rows * width, sizeof *m.y);
    omm_err err = m.x && m.y ? in_turns(out, &m, isa, n)
                             : omm_raise(OMM_ERR_NOMEM, "no memory to measure threads");
    if (err == OMM_OK && out->many >= GAIN_MIN * out->one) out->threads = n;
    omm_free(m.x);
    omm_free(m.y);
    return err;
}

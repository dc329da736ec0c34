/* autothreads_test.c - what is chosen of two measured speeds, which products are measured, and for how long. */
#include "omm/autothreads.h"

#include "omm/mem.h"
#include "omm_test.h"
#include "tiny_model.h"

#include <math.h>

static void test_choice(void) {
    static const struct {
        double one, many;
        unsigned threads;
    } cases[] = {
        {100, 105, 8},
        {100, 104.9, 1},
        {100, 100, 1},
        {100, 800, 8},
        {100, 3, 1},
        {1e-9, 1.06e-9, 8},
        {0, 0, 1},
        {0, 100, 1},
        {100, 0, 1},
        {(double)NAN, 100, 1},
        {100, (double)NAN, 1},
        {100, (double)INFINITY, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_EQ(omm_autothreads_choose(cases[i].one, cases[i].many, 8), cases[i].threads);
}

/* A clock that goes on by `step` whenever it is read: as long as a product takes. */
typedef struct steps {
    uint64_t now, step;
} steps;

static uint64_t step_on(void *ud) {
    steps *s = ud;
    return s->now += s->step;
}

static omm_autothreads measured(const omm_model *model, omm_activations activations,
                                uint64_t budget, uint64_t step) {
    omm_autothreads a;
    steps clock = {.now = 5, .step = step};
    const omm_autothreads_options o = {.n = 2,
                                       .rows = 3,
                                       .activations = activations,
                                       .budget_ns = budget,
                                       .now_ns = step_on,
                                       .ud = &clock};
    CHECK_OK(omm_autothreads_measure(&a, model, OMM_ISA_SCALAR, &o));
    CHECK_EQ(a.threads, omm_autothreads_choose(a.one, a.many, 2));
    /* a step for a product: so many weights as a matrix has, the smallest and the largest */
    const double weights[] = {a.one * (double)step * 1e-9, a.many * (double)step * 1e-9};
    for (size_t i = 0; i < 2; i++)
        CHECK(weights[i] > 0.999 * TINY_WIDTH * TINY_KV_HEADS * TINY_HEAD_DIM &&
              weights[i] < 1.001 * TINY_WIDTH * TINY_FF);
    return a;
}

/* Four turns share the budget; each has one product at least, and ends with the one in which its share does. */
static void test_budget(const omm_model *model) {
    static const uint64_t budgets[] = {0, 50000000, 20000000, 1000, 4};
    static const uint64_t product_ns[] = {1, 999, 1000000, 7777777, 3000000000};
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 2; k < 5; k++) {
            const uint64_t step = product_ns[k],
                           budget = budgets[i] ? budgets[i] : OMM_AUTOTHREADS_MS * 1000000ull;
            const omm_autothreads a = measured(model, OMM_ACTIVATIONS_Q8, budgets[i], step);
            CHECK(a.products >= 4);
            CHECK(a.spent_ns >= budget / 4 * 4);
            /* of each turn one product more, and the one that wakes the threads before the first */
            CHECK(a.spent_ns <= budget + 8 * step);
            CHECK_EQ(a.spent_ns, (a.products + 4) * step);
            if (step >= budget) CHECK_EQ(a.products, 4);
        }
    const omm_autothreads a = measured(model, OMM_ACTIVATIONS_Q8, 3996, product_ns[1]);
    CHECK_EQ(a.products, 4);
    const omm_autothreads longer = measured(model, OMM_ACTIVATIONS_Q8, 39960, product_ns[1]);
    CHECK_EQ(longer.products, 36);
    CHECK_EQ(longer.spent_ns, 39960);
    CHECK_EQ(measured(model, OMM_ACTIVATIONS_Q8, 400, product_ns[0]).spent_ns, 400);
}

/* What decoding uses: int8 activations where the session has them and the matrix is quantised. */
static void test_products(const omm_model *model, bool quantised) {
    const omm_autothreads q8 = measured(model, OMM_ACTIVATIONS_Q8, 400, 10);
    const omm_autothreads f32 = measured(model, OMM_ACTIVATIONS_F32, 400, 10);
    CHECK(q8.products > 4);
    CHECK_EQ(q8.products_q8, quantised ? q8.products : 0);
    CHECK_EQ(f32.products, q8.products);
    CHECK_EQ(f32.products_q8, 0);
}

static void test_one_thread(const omm_model *model) {
    omm_autothreads a;
    const omm_autothreads_options o = {.n = 1, .rows = 1};
    CHECK_OK(omm_autothreads_measure(&a, model, OMM_ISA_SCALAR, &o));
    CHECK(a.threads == 1 && a.products == 0 && a.spent_ns == 0 && a.one == 0.0);
}

static void test_allocations(const omm_model *model) {
    const size_t live = omm_mem_live();
    omm_err err = OMM_ERR_NOMEM;
    for (size_t nth = 1; err != OMM_OK; nth++) {
        omm_autothreads a;
        steps clock = {.step = 100};
        const omm_autothreads_options o = {.n = 2,
                                           .rows = 1,
                                           .activations = OMM_ACTIVATIONS_Q8,
                                           .now_ns = step_on,
                                           .ud = &clock,
                                           .budget_ns = 1};
        omm_mem_fail_nth(nth);
        err = omm_autothreads_measure(&a, model, OMM_ISA_SCALAR, &o);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
        if (err == OMM_OK) CHECK(a.products >= 4);
        CHECK_EQ(omm_mem_live(), live);
    }
}

int main(void) {
    test_choice();
    for (unsigned f = 0; f < 2; f++) {
        const tiny_options o = {.format = f ? OMM_FORMAT_Q8_0 : OMM_FORMAT_F16};
        omm_buf file;
        omm_gguf gguf;
        omm_model model;
        omm_buf_init(&file, 1 << 24);
        tiny_model_write(&file, &o);
        CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
        CHECK_OK(omm_model_load(&model, &gguf));
        test_products(&model, f == 1);
        if (f == 1) test_budget(&model);
        test_one_thread(&model);
        test_allocations(&model);
        omm_model_fini(&model);
        omm_gguf_close(&gguf);
        omm_buf_fini(&file);
    }
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

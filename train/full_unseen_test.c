/* Rows of tokens that no step had are set apart: those and no others, by as much as was asked, each its own way
 * and the same way every time; tokens of examples that no step reached are among them. */
#include "full.h"
#include "omm/full.h"
#include "omm/hash.h"
#include "omm/mem.h"
#include "test_model.h"

#include <math.h>
#include <string.h>

enum { LINES = 12, STEPS = 5, BATCH_TOKENS = 8 }; /* less than any example: a step takes one */

typedef struct trained {
    test_rig rig;
    omm_full *full;
    full_tensors tensors;
    size_t vocab, cols, count;
    bool *seen; /* [vocab] by the examples that the steps took */
} trained;

/* Of examples with the same number of tokens the first alone. */
static void one_of_each_size(omm_dataset **data) {
    omm_dataset *kept = NULL;
    bool keep[LINES] = {false};
    for (size_t i = 0; i < LINES; i++) {
        keep[i] = true;
        for (size_t k = 0; k < i; k++)
            if (omm_dataset_example(*data, k)->count == omm_dataset_example(*data, i)->count)
                keep[i] = false;
    }
    CHECK_OK(omm_dataset_pick(&kept, *data, keep));
    omm_dataset_close(*data);
    *data = kept;
}

/* The example of so many tokens. */
static const omm_example *example_of(const omm_dataset *data, uint64_t tokens) {
    const omm_example *found = NULL;
    for (size_t i = 0; i < omm_dataset_count(data); i++) {
        const omm_example *x = omm_dataset_example(data, i);
        if (x->count != tokens) continue;
        CHECK(!found);
        found = x;
    }
    CHECK(found);
    return found;
}

static void step(trained *t) {
    omm_full_report report;
    CHECK_OK(omm_full_step(t->full, &report));
    const omm_example *x = example_of(t->rig.data, report.tokens);
    for (size_t k = 0; k < x->count; k++) t->seen[x->ids[k]] = true;
}

/* Some tokens are in examples that no step took. */
static void check_seen(trained *t) {
    bool more = false;
    for (size_t i = 0; i < t->vocab; i++) t->count += !t->seen[i];
    for (size_t i = 0; i < omm_dataset_count(t->rig.data); i++) {
        const omm_example *x = omm_dataset_example(t->rig.data, i);
        for (size_t k = 0; k < x->count; k++) more = more || !t->seen[x->ids[k]];
    }
    CHECK(more && t->count > 100 && t->count < t->vocab - 20);
}

static void train(trained *t) {
    *t = (trained){0};
    test_rig_open(&t->rig, LINES);
    one_of_each_size(&t->rig.data);
    t->rig.recipe.steps = STEPS;
    t->rig.recipe.batch_tokens = BATCH_TOKENS;
    const omm_full_options options = {.model = &t->rig.model,
                                      .data = t->rig.data,
                                      .recipe = &t->rig.recipe,
                                      .compute = &t->rig.compute,
                                      .seed = omm_seed_from_u64(5)};
    CHECK_OK(omm_full_open(&t->full, &options));
    uint32_t count = 0;
    CHECK_ERR(omm_full_set_apart(t->full, &count, 0.5F), OMM_ERR_STATE);
    CHECK_OK(full_tensors_init(&t->tensors, &t->rig.model));
    t->vocab = t->rig.model.output->rows;
    t->cols = t->rig.model.output->cols;
    t->seen = omm_alloc(t->vocab, sizeof *t->seen);
    CHECK(t->seen);
    while (!omm_full_is_done(t->full)) step(t);
    check_seen(t);
}

static void forget(trained *t) {
    omm_free(t->seen);
    full_tensors_fini(&t->tensors);
    omm_full_close(t->full);
    test_rig_close(&t->rig);
}

static float *weights(const trained *t) {
    float *values = omm_alloc(t->tensors.value_count, sizeof *values);
    CHECK(values);
    full_read(values, &t->tensors);
    return values;
}

/* Root mean square of how far rows that were seen lie from their mean. */
static double size_of_others(const trained *t, const float *rows) {
    const double n = (double)(t->vocab - t->count);
    double sum = 0;
    for (size_t c = 0; c < t->cols; c++) {
        double mean = 0;
        for (size_t i = 0; i < t->vocab; i++)
            if (t->seen[i]) mean += (double)rows[i * t->cols + c] / n;
        for (size_t i = 0; i < t->vocab; i++) {
            const double d = (double)rows[i * t->cols + c] - mean;
            if (t->seen[i]) sum += d * d;
        }
    }
    return sqrt(sum / n);
}

static double distance(const float *a, const float *b, size_t cols) {
    double sum = 0;
    for (size_t c = 0; c < cols; c++)
        sum += ((double)a[c] - (double)b[c]) * ((double)a[c] - (double)b[c]);
    return sqrt(sum);
}

/* How near two of the unseen rows come to each other. */
static double nearest(const trained *t, const float *rows) {
    double least = (double)INFINITY;
    for (size_t i = 0; i < t->vocab; i++)
        for (size_t k = i + 1; k < t->vocab && !t->seen[i]; k++)
            if (!t->seen[k])
                least = fmin(least, distance(rows + i * t->cols, rows + k * t->cols, t->cols));
    return least;
}

static void check_rows(const trained *t, const float *before, const float *after, double spread) {
    const double size = size_of_others(t, before);
    CHECK(size > 0);
    for (size_t i = 0; i < t->vocab; i++) {
        const float *a = before + i * t->cols, *b = after + i * t->cols;
        if (t->seen[i])
            CHECK(memcmp(a, b, t->cols * sizeof *a) == 0);
        else
            CHECK(fabs(distance(a, b, t->cols) / size - spread) <= 1e-5);
    }
}

static omm_digest set_apart(float spread) {
    trained t;
    uint32_t count = 0;
    train(&t);
    float *before = weights(&t);
    const full_tensor *rows = full_tensor_at(&t.tensors, t.rig.model.output);
    CHECK_OK(omm_full_set_apart(t.full, &count, spread));
    float *after = weights(&t);
    CHECK_EQ(count, t.count);
    check_rows(&t, before + rows->offset, after + rows->offset, (double)spread);
    if (spread > 0)
        CHECK(nearest(&t, after + rows->offset) >
              (double)spread * size_of_others(&t, before + rows->offset) / 2);
    memcpy(before + rows->offset, after + rows->offset, t.vocab * t.cols * sizeof *after);
    CHECK(memcmp(before, after, t.tensors.value_count * sizeof *after) == 0); /* nothing else */
    const omm_digest digest = omm_full_digest(t.full);
    const omm_digest model = omm_hash(omm_bytes_of(after, t.tensors.value_count * sizeof *after));
    CHECK(omm_digest_equal(&digest, &model));
    omm_free(before);
    omm_free(after);
    forget(&t);
    return digest;
}

int main(void) {
    const omm_digest left = set_apart(0), half = set_apart(0.5F), again = set_apart(0.5F),
                     far = set_apart(2);
    CHECK(omm_digest_equal(&half, &again));
    CHECK(!omm_digest_equal(&half, &left));
    CHECK(!omm_digest_equal(&half, &far));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

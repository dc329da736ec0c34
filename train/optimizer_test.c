/* SGD and Adafactor against their formulas in double, written here once more; state sizes; LoRA+ and
 * frozen halves. */
#include "optimizer.h"

#include "omm_test.h"

#include <math.h>
#include <string.h>

enum { ROWS = 5, COLS = 19, N = ROWS * COLS, STEPS = 40 };

/* f32 state against double, relative to the largest value: measured maximum 3.1e-7. */
static const double s_tolerance = 2e-6;

static float pseudo(int i, int step) {
    return (float)((i * 7919 + step * 104729) % 2001 - 1000) / 1000.0F;
}

static double distance(const float *a, const double *b) {
    double worst = 0, largest = 0;
    for (int i = 0; i < N; i++) {
        worst = worse_of(worst, fabs((double)a[i] - b[i]));
        largest = fmax(largest, fabs(b[i]));
    }
    return worst / largest;
}

static void sgd(uint32_t nesterov) {
    omm_recipe r = omm_recipe_default();
    r.optimizer = OMM_RECIPE_SGD;
    r.momentum = 0.875F;
    r.nesterov = nesterov;
    r.weight_decay = 0.125F;
    float w[N], m[N] = {0}, g[N];
    double dw[N], dm[N] = {0};
    for (int i = 0; i < N; i++) dw[i] = (double)(w[i] = pseudo(i, 999));
    const optimizer_tensor t = {.values = w, .gradient = g, .m = m, .rows = ROWS, .cols = COLS};
    for (int step = 1; step <= STEPS; step++) {
        for (int i = 0; i < N; i++) {
            double gi = (double)(g[i] = pseudo(i, step));
            dm[i] = 0.875 * dm[i] + gi;
            dw[i] -= 0.0625 * ((nesterov ? gi + 0.875 * dm[i] : dm[i]) + 0.125 * dw[i]);
        }
        optimizer_sgd(&t, &r, 0.0625F);
    }
    printf("sgd%s: distance from double %.2e\n", nesterov ? ", nesterov" : "", distance(w, dw));
    CHECK(distance(w, dw) < s_tolerance);
}

/* One step of the paper's algorithm 4, straight from its lines. */
static void twin(double *w, double *rows, double *cols, const float *g, double b, double rate,
                 bool relative) {
    double sum = 0, squares = 0, size = 0, u[N];
    for (int i = 0; i < ROWS; i++) {
        double mean = 0;
        for (int j = 0; j < COLS; j++) mean += (double)g[i * COLS + j] * (double)g[i * COLS + j];
        sum += rows[i] = b * rows[i] + (1 - b) * (mean / COLS + 1e-30);
    }
    for (int j = 0; j < COLS; j++) {
        double mean = 0;
        for (int i = 0; i < ROWS; i++) mean += (double)g[i * COLS + j] * (double)g[i * COLS + j];
        cols[j] = b * cols[j] + (1 - b) * (mean / ROWS + 1e-30);
    }
    for (int i = 0; i < N; i++) {
        u[i] = (double)g[i] / sqrt(rows[i / COLS] * cols[i % COLS] / (sum / ROWS));
        squares += u[i] * u[i];
        size += w[i] * w[i];
    }
    double clip = fmax(1, sqrt(squares / N));
    if (relative) rate *= fmax(1e-3, sqrt(size / N));
    for (int i = 0; i < N; i++) w[i] -= rate * (u[i] / clip + 0.25 * w[i]);
}

static void adafactor(uint32_t relative) {
    omm_recipe r = omm_recipe_default();
    r.optimizer = OMM_RECIPE_ADAFACTOR;
    r.relative_step = relative;
    r.weight_decay = 0.25F;
    float w[N], v[ROWS + COLS] = {0}, g[N];
    double dw[N], rows[ROWS] = {0}, cols[COLS] = {0}, b2 = (double)r.beta2;
    for (int i = 0; i < N; i++) dw[i] = (double)(w[i] = pseudo(i, 999));
    const optimizer_tensor t = {.values = w, .gradient = g, .v = v, .rows = ROWS, .cols = COLS};
    for (int step = 1; step <= STEPS; step++) {
        double b = b2 * (1 - pow(b2, step - 1)) / (1 - pow(b2, step));
        for (int i = 0; i < N; i++) g[i] = pseudo(i, step) * (float)(1 + i % 4);
        twin(dw, rows, cols, g, b, 0.0625, relative);
        optimizer_adafactor(&t, &r, 0.0625F, (uint32_t)step);
    }
    printf("adafactor%s: distance from double %.2e\n", relative ? ", relative" : "",
           distance(w, dw));
    CHECK(distance(w, dw) < s_tolerance);
}

/* Nothing to learn, and nothing moves: no division by zero. */
static void no_gradient(void) {
    omm_recipe r = omm_recipe_default();
    float w[4] = {1, -2, 0, 4}, g[4] = {0}, v[4] = {0};
    const optimizer_tensor t = {.values = w, .gradient = g, .v = v, .rows = 2, .cols = 2};
    optimizer_adafactor(&t, &r, 1, 1);
    CHECK(w[0] == 1 && w[1] == -2 && w[2] == 0 && w[3] == 4);
}

/* What is zero moves as if it were 1e-3 large; a small gradient is no smaller a step. */
static void floors(void) {
    omm_recipe r = omm_recipe_default();
    float w[4] = {0}, g[4] = {1, -1, -1, 1}, v[4] = {0};
    const optimizer_tensor t = {.values = w, .gradient = g, .v = v, .rows = 2, .cols = 2};
    r.relative_step = 1;
    optimizer_adafactor(&t, &r, 0.5F, 1);
    for (int i = 0; i < 4; i++) CHECK(fabsf(w[i] - (i % 3 ? 5e-4F : -5e-4F)) < 1e-9F);
    r.relative_step = 0;
    for (int i = 0; i < 4; i++) {
        w[i] = v[i] = 0;
        g[i] = i % 3 ? -1e-12F : 1e-12F;
    }
    optimizer_adafactor(&t, &r, 0.5F, 1);
    for (int i = 0; i < 4; i++) CHECK(fabsf(w[i] - (i % 3 ? 0.5F : -0.5F)) < 1e-3F);
}

/* A [2][3] and B [4][2]: B moves by the ratio, the frozen half not at all, state sits where it says. */
static void adapter_of_two(void) {
    float values[14] = {0}, g[14], m[14] = {0}, v[14] = {0};
    omm_lora_tensor tensors[2] = {{.rows = 2, .cols = 3},
                                  {.rows = 4, .cols = 2, .is_b = true, .offset = 6}};
    omm_lora lora = {.tensors = tensors, .tensor_count = 2, .values = values, .value_count = 14};
    omm_recipe r = omm_recipe_default();
    for (int i = 0; i < 14; i++) g[i] = 1;
    CHECK(optimizer_sizes_of(&r, &lora).m == 14 && optimizer_sizes_of(&r, &lora).v == 14);
    const optimizer_part both = optimizer_part_after(&(optimizer_part){0}, &r, &lora, 14);
    optimizer_update(&lora, g, m, v, &both, &r, 0.5F, 1);
    for (int i = 0; i < 14; i++) CHECK(fabsf(values[i] + 0.5F) < 1e-5F && m[i] > 0 && v[i] > 0);
    for (int i = 0; i < 14; i++) values[i] = m[i] = v[i] = 0;
    r.optimizer = OMM_RECIPE_SGD;
    r.b_rate_ratio = 4;
    CHECK(optimizer_sizes_of(&r, &lora).m == 14 && optimizer_sizes_of(&r, &lora).v == 0);
    const optimizer_part all = optimizer_part_after(&(optimizer_part){0}, &r, &lora, 14);
    CHECK(all.first == 0 && all.end == 2);
    optimizer_update(&lora, g, m, v, &all, &r, 0.5F, 1);
    for (int i = 0; i < 14; i++) CHECK(values[i] == (i < 6 ? -0.5F : -2));
    r.parts = OMM_RECIPE_PARTS_A;
    const optimizer_part a = optimizer_part_after(&(optimizer_part){0}, &r, &lora, 1);
    const optimizer_part b = optimizer_part_after(&a, &r, &lora, 1);
    CHECK(a.end == 1 && b.first == 1 && b.end == 2 && b.m_at == 6 && b.v_at == 0);
    optimizer_update(&lora, g, m, v, &b, &r, 0.5F, 2);
    for (int i = 0; i < 6; i++) CHECK(values[i] == -0.5F);
    optimizer_update(&lora, g, m, v, &a, &r, 0.5F, 2);
    for (int i = 0; i < 14; i++) CHECK(values[i] == (i < 6 ? -1.0F : -2));
    r.parts = OMM_RECIPE_PARTS_B;
    r.optimizer = OMM_RECIPE_ADAFACTOR;
    CHECK(optimizer_sizes_of(&r, &lora).m == 0 && optimizer_sizes_of(&r, &lora).v == 6);
    optimizer_update(&lora, g, m, v, &all, &r, 0.5F, 1);
    for (int i = 0; i < 14; i++) CHECK((v[i] > 0) == (i < 6));
    for (int i = 0; i < 6; i++) CHECK(values[i] == -1);
    CHECK(fabsf(values[6] + 4) < 1e-5F);
}

int main(void) {
    sgd(0);
    sgd(1);
    adafactor(0);
    adafactor(1);
    no_gradient();
    floors();
    adapter_of_two();
    return 0;
}

/* AdamW against the formula in double, clipping, the proximal term; the schedule at known points. */
#include "adamw.h"
#include "schedule.h"

#include "omm_test.h"

#include <math.h>

enum { N = 37, STEPS = 50 };

/* f32 state against double: measured maximum 2.3e-6 after 50 steps. */
static const double s_tolerance = 1e-5;

static float pseudo(int i, int step) {
    return (float)((i * 7919 + step * 104729) % 2001 - 1000) / 1000.0F;
}

static void against_double(void) {
    omm_recipe r = omm_recipe_default();
    r.weight_decay = 0.1F;
    float w[N], m[N] = {0}, v[N] = {0}, g[N];
    double dw[N], dm[N] = {0}, dv[N] = {0}, worst = 0;
    for (int i = 0; i < N; i++) dw[i] = (double)(w[i] = pseudo(i, 999));
    adamw_state s = {.values = w, .m = m, .v = v, .gradient = g, .count = N};
    double b1 = (double)r.beta1, b2 = (double)r.beta2, rate = 0.01;
    for (int step = 1; step <= STEPS; step++) {
        for (int i = 0; i < N; i++) {
            double gi = (double)(g[i] = pseudo(i, step));
            dm[i] = b1 * dm[i] + (1 - b1) * gi;
            dv[i] = b2 * dv[i] + (1 - b2) * gi * gi;
            double mh = dm[i] / (1 - pow(b1, step)), vh = dv[i] / (1 - pow(b2, step));
            dw[i] -= rate * (mh / (sqrt(vh) + (double)r.epsilon) + 0.1 * dw[i]);
        }
        adamw_update(&s, &r, (float)rate, (uint32_t)step, 0, 11); /* any split */
        adamw_update(&s, &r, (float)rate, (uint32_t)step, 11, N);
    }
    for (int i = 0; i < N; i++) worst = worse_of(worst, fabs((double)w[i] - dw[i]));
    printf("adamw: largest difference from double %.2e\n", worst);
    CHECK(worst < s_tolerance);
}

static void clipping(void) {
    float w[2] = {1, 2}, start[2] = {0.5F, 2}, g[2] = {3, 4};
    adamw_state s = {.values = w, .gradient = g, .start = start, .count = 2};
    CHECK(adamw_norm(g, 2) == 5);
    adamw_clip(&s, 5, 0);
    adamw_clip(&s, 5, 6);
    CHECK(g[0] == 3 && g[1] == 4);
    adamw_clip(&s, 5, 2.5F);
    CHECK(g[0] == 1.5F && g[1] == 2);
    adamw_prox(&s, 2, 0, 1);
    CHECK(g[0] == 2.5F && g[1] == 2);
    adamw_prox(&s, 2, 1, 2);
    CHECK(g[0] == 2.5F && g[1] == 2);
    float big[N];
    for (int i = 0; i < N; i++) big[i] = 1e30F; /* the square leaves f32, the norm does not */
    CHECK(isfinite(adamw_norm(big, N)));
}

static void schedule(void) {
    omm_recipe r = omm_recipe_default();
    r.learning_rate = 1;
    r.steps = 10;
    r.warmup_steps = 4;
    r.lr_min_ratio = 0.5F;
    CHECK(schedule_rate(&r, 1) == 0.25F);
    CHECK(schedule_rate(&r, 4) == 1);
    CHECK(schedule_rate(&r, 7) == 0.75F);
    CHECK(schedule_rate(&r, 10) == 0.5F);
    r.schedule = OMM_RECIPE_LINEAR;
    CHECK(schedule_rate(&r, 2) == 0.5F && schedule_rate(&r, 4) == 1);
    CHECK(schedule_rate(&r, 7) == 0.75F && schedule_rate(&r, 10) == 0.5F);
    CHECK(schedule_rate(&r, 5) == (float)(0.5 + 0.5 * (1 - 1.0 / 6)));
    r.schedule = OMM_RECIPE_CONSTANT;
    CHECK(schedule_rate(&r, 2) == 0.5F && schedule_rate(&r, 5) == 1 && schedule_rate(&r, 10) == 1);
    r.schedule = OMM_RECIPE_COSINE;
    r.warmup_steps = 0;
    CHECK(schedule_rate(&r, 10) == 0.5F);
    r.warmup_steps = 20; /* longer than the run */
    CHECK(schedule_rate(&r, 10) == 0.5F);
    r.warmup_steps = 10; /* just as long: the last step is at the peak, and a number */
    CHECK(schedule_rate(&r, 9) == 0.9F && schedule_rate(&r, 10) == 1);
}

/* In 16 lanes whatever the count: the order of the sums is part of what a training is. */
static void norms_in_lanes(void) {
    float gradient[70];
    for (size_t i = 0; i < 70; i++) gradient[i] = 1.0F / (float)(3 * i + 1);
    for (size_t count = 0; count <= 70; count++) {
        double lanes[16] = {0};
        for (size_t i = 0; i < count; i++)
            lanes[i % 16] += (double)gradient[i] * (double)gradient[i];
        for (size_t half = 8; half; half /= 2)
            for (size_t i = 0; i < half; i++) lanes[i] += lanes[i + half];
        CHECK(adamw_norm(gradient, count) == sqrt(lanes[0]));
    }
}

int main(void) {
    norms_in_lanes();
    against_double();
    clipping();
    schedule();
    return 0;
}

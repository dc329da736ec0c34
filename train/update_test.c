/* update_test.c - by any number of threads an update gives the values, state and digest that the
 * optimiser gives tensor by tensor with one hash after it; B's gradient is turned in place; and FedProx
 * pulls every value once. */
#include "update.h"

#include "adamw.h"
#include "omm/mem.h"
#include "omm_test.h"
#include "optimizer.h"

#include <math.h>
#include <string.h>

enum { PAIRS = 83, RANK = 5 }; /* more tensors than parts, of odd sizes */

typedef struct state {
    omm_lora lora;
    omm_lora_tensor tensors[2 * PAIRS];
    float *gradient, *m, *v;
} state;

static float number(size_t i, uint32_t salt) {
    uint32_t x = (uint32_t)i * 2654435761U + salt * 40503U;
    x ^= x >> 15;
    return (float)(x % 20011U) / 10005.5F - 1.0F;
}

/* Widths in multiples of `times`. */
static void open_state(state *s, uint32_t times) {
    *s = (state){.lora.tensors = s->tensors, .lora.tensor_count = 2 * (size_t)PAIRS};
    for (size_t i = 0; i < s->lora.tensor_count; i++) {
        const uint32_t wide = times * (1 + (uint32_t)(i * 7 % 23));
        s->tensors[i] = (omm_lora_tensor){.is_b = i % 2 == 1,
                                          .rows = i % 2 ? wide : RANK,
                                          .cols = i % 2 ? RANK : wide,
                                          .offset = s->lora.value_count};
        s->lora.value_count += (size_t)RANK * wide;
    }
    const size_t n = s->lora.value_count;
    float **const all[] = {&s->lora.values, &s->gradient, &s->m, &s->v};
    for (size_t k = 0; k < 4; k++) {
        *all[k] = omm_alloc(n, sizeof(float));
        CHECK(*all[k] != NULL);
    }
    for (size_t i = 0; i < n; i++) {
        s->lora.values[i] = number(i, 1);
        s->gradient[i] = number(i, 2);
    }
}

static void close_state(state *s) {
    omm_free(s->lora.values);
    omm_free(s->gradient);
    omm_free(s->m);
    omm_free(s->v);
}

static omm_digest plain(state *s, const omm_recipe *r, double norm) {
    adamw_state clip = {.gradient = s->gradient, .count = s->lora.value_count};
    adamw_clip(&clip, norm, r->clip_norm);
    optimizer_part all =
        optimizer_part_after(&(optimizer_part){0}, r, &s->lora, s->lora.value_count);
    CHECK_EQ(all.end, s->lora.tensor_count);
    optimizer_update(&s->lora, s->gradient, s->m, s->v, &all, r, 0.25F, 3);
    return omm_hash(omm_bytes_of(s->lora.values, s->lora.value_count * sizeof(float)));
}

static void same(const float *a, const float *b, size_t n) {
    CHECK(memcmp(a, b, n * sizeof *a) == 0);
}

static void check_recipe(const omm_recipe *r, omm_pool *pool, bool hashes) {
    state one, many;
    omm_compute c;
    omm_hasher h;
    open_state(&one, 1);
    open_state(&many, 1);
    const size_t n = one.lora.value_count;
    const double norm = adamw_norm(one.gradient, n);
    CHECK(norm > (double)r->clip_norm);
    const omm_digest want = plain(&one, r, norm);
    CHECK_OK(omm_compute_init(&c, pool, OMM_ISA_SCALAR));
    omm_hasher_init(&h);
    update_run(&(update){.compute = &c,
                         .recipe = r,
                         .lora = &many.lora,
                         .gradient = many.gradient,
                         .m = many.m,
                         .v = many.v,
                         .norm = norm,
                         .rate = 0.25F,
                         .step = 3,
                         .hasher = hashes ? &h : NULL});
    const omm_digest got = omm_hasher_final(&h);
    CHECK(omm_digest_equal(&got, &want) == hashes);
    same(one.lora.values, many.lora.values, n);
    same(one.gradient, many.gradient, n);
    same(one.m, many.m, n);
    same(one.v, many.v, n);
    omm_compute_fini(&c);
    close_state(&one);
    close_state(&many);
}

static void turn(omm_pool *pool) {
    state s;
    omm_compute c;
    open_state(&s, 200); /* long enough for threads to meet */
    CHECK_OK(omm_compute_init(&c, pool, OMM_ISA_SCALAR));
    float *room = omm_alloc(c.workers * update_room(&s.lora), sizeof *room);
    CHECK(room != NULL);
    update_turn_b(&c, s.gradient, &s.lora, room);
    for (size_t i = 0; i < s.lora.tensor_count; i++) {
        const omm_lora_tensor *x = &s.tensors[i];
        for (size_t row = 0; row < x->rows; row++)
            for (size_t col = 0; col < x->cols; col++) {
                const size_t from = x->is_b ? col * x->rows + row : row * x->cols + col;
                CHECK(s.gradient[x->offset + row * x->cols + col] == number(x->offset + from, 2));
            }
    }
    omm_free(room);
    omm_compute_fini(&c);
    close_state(&s);
}

/* Blocks of values, the last one short. */
static void pull(omm_pool *pool) {
    state s;
    omm_compute c;
    open_state(&s, 40);
    const size_t n = s.lora.value_count;
    CHECK(n > (1U << 17) && n % (1U << 15) != 0);
    for (size_t i = 0; i < n; i++) s.m[i] = number(i, 3);
    CHECK_OK(omm_compute_init(&c, pool, OMM_ISA_SCALAR));
    adamw_state from = {.values = s.lora.values, .start = s.m, .gradient = s.gradient, .count = n};
    update_prox(&c, &from, 0.3F);
    for (size_t i = 0; i < n; i++)
        CHECK(s.gradient[i] == fmaf(0.3F, number(i, 1) - number(i, 3), number(i, 2)));
    omm_compute_fini(&c);
    close_state(&s);
}

static void check_threads(unsigned threads) {
    static const uint32_t parts[] = {OMM_RECIPE_PARTS_AB, OMM_RECIPE_PARTS_A, OMM_RECIPE_PARTS_B};
    static const uint32_t optimizers[] = {OMM_RECIPE_ADAMW, OMM_RECIPE_SGD, OMM_RECIPE_ADAFACTOR};
    omm_pool *pool = NULL;
    CHECK_OK(omm_pool_open(&pool, threads));
    omm_recipe r = omm_recipe_default();
    r.b_rate_ratio = 4;
    r.weight_decay = 0.01F;
    for (size_t i = 0; i < 9; i++) {
        r.parts = parts[i / 3];
        r.optimizer = optimizers[i % 3];
        for (int n = 0; n < 20; n++) check_recipe(&r, pool, n % 4 > 0);
    }
    turn(pool);
    pull(pool);
    omm_pool_close(pool);
    printf("%u threads: as one\n", threads);
}

int main(void) {
    static const unsigned threads[] = {1, 2, 3, 7};
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) check_threads(threads[i]);
    return 0;
}

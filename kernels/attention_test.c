/* attention_test.c - attention over every cache type: equal bytes on every instruction set, thread
 * count, split and cut of long caches; the definitions of kernels.h and kv.h spelled out; blocks, pools and sharing. */
#include "attention_battery.h"
#include "kernels_table.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <math.h>
#include <string.h>

static battery s_base, s_other;

/* FNV-1a over all hashes of the battery: the same from every compiler and processor. */
static const uint64_t GOLDEN = 0xbbe149b433ee29e5;

static void same_as_base(const battery *b, const char *what) {
    CHECK_EQ(s_base.count, b->count);
    for (size_t i = 0; i < b->count; i++) {
        if (s_base.rows[i].hash == b->rows[i].hash) continue;
        fprintf(stderr, "%s: %s differs\n", what, b->rows[i].name);
        exit(1);
    }
}

/* Of the last of `length` positions; q and out [heads][head_dim]. */
static omm_attention last_query(float *out, const float *q, const omm_kv *kv, size_t length,
                                uint32_t heads) {
    return (omm_attention){
        .out = out, .q = q, .kv = kv, .m = 1, .pos0 = length - 1, .heads = heads, .scale = 1.0f};
}

/* Several sequences at once are each what they are alone. */
static void each_is_alone(const omm_compute *c) {
    enum { WIDTH = 16, HEADS = 4, COUNT = 3 };
    static const size_t lengths[COUNT] = {5, 129, 2100};
    omm_kv kv[COUNT];
    omm_attention a[COUNT];
    float *q = battery_floats(1, (size_t)COUNT * HEADS * WIDTH), want[COUNT * HEADS * WIDTH];
    float got[COUNT * HEADS * WIDTH];
    for (size_t i = 0; i < COUNT; i++) {
        float *k = battery_floats(i + 9, lengths[i] * WIDTH),
              *v = battery_floats(i, lengths[i] * WIDTH);
        CHECK_OK(omm_kv_init(&kv[i], OMM_KV_F16, 1, WIDTH, (uint32_t)lengths[i]));
        omm_kv_store(c, &kv[i], k, v, lengths[i], 0);
        a[i] =
            last_query(want + i * HEADS * WIDTH, q + i * HEADS * WIDTH, &kv[i], lengths[i], HEADS);
        omm_attention_forward(c, &a[i]);
        a[i].out = got + i * HEADS * WIDTH;
        omm_free(k);
        omm_free(v);
    }
    omm_attention_each(c, a, COUNT);
    CHECK(same_bytes(want, got, sizeof want));
    for (size_t i = 0; i < COUNT; i++) omm_kv_fini(&kv[i]);
    omm_free(q);
}

/* So are several of different lengths of text, on any number of threads: the longest first, and last. */
static void texts_are_alone(void) {
    enum { WIDTH = 16, HEADS = 8, KV_HEADS = 2, COUNT = 3, MOST = 70, LENGTH = 400 };
    static const size_t texts[2][COUNT] = {{MOST, 5, 1}, {1, 5, MOST}};
    static float want[COUNT][MOST * HEADS * WIDTH], got[COUNT][MOST * HEADS * WIDTH];
    float *q = battery_floats(1, (size_t)MOST * HEADS * WIDTH);
    float *k = battery_floats(2, (size_t)LENGTH * KV_HEADS * WIDTH);
    omm_isa best;
    CHECK_OK(omm_isa_choose(&best, NULL));
    for (unsigned threads = 1; threads <= 5; threads += 2)
        for (size_t order = 0; order < 2; order++) {
            omm_kv kv;
            omm_pool *pool = NULL;
            omm_compute alone, c;
            omm_attention a[COUNT];
            CHECK_OK(omm_pool_open(&pool, threads));
            CHECK_OK(omm_compute_init(&alone, NULL, best));
            CHECK_OK(omm_compute_init(&c, pool, best));
            CHECK_OK(omm_kv_init(&kv, OMM_KV_F16, KV_HEADS, WIDTH, LENGTH));
            omm_kv_store(&c, &kv, k, k, LENGTH, 0);
            for (size_t i = 0; i < COUNT; i++) {
                a[i] = last_query(want[i], q, &kv, LENGTH, HEADS);
                a[i].m = texts[order][i];
                a[i].pos0 = LENGTH - a[i].m;
                omm_attention_forward(&alone, &a[i]);
                a[i].out = got[i];
            }
            memset(got, 0xff, sizeof got);
            omm_attention_each(&c, a, COUNT);
            for (size_t i = 0; i < COUNT; i++)
                CHECK(same_bytes(want[i], got[i], a[i].m * HEADS * WIDTH * sizeof(float)));
            omm_kv_fini(&kv);
            omm_compute_fini(&alone);
            omm_compute_fini(&c);
            omm_pool_close(pool);
        }
    omm_free(q);
    omm_free(k);
}

/* Two queries over long caches: heads alone and side by side, in sets that end before a share does. */
static void long_caches(const omm_compute *c, float *out, omm_kv_type type, uint32_t heads,
                        uint32_t kv_heads) {
    enum { WIDTH = 16 };
    static const size_t lengths[] = {2500, 1100};
    const size_t count = sizeof lengths / sizeof *lengths, row = (size_t)kv_heads * WIDTH;
    float *q = battery_floats(1, count * heads * WIDTH), *k = battery_floats(2, lengths[0] * row);
    float *v = battery_floats(3, lengths[0] * row);
    omm_kv kv[2];
    omm_attention a[2];
    for (size_t i = 0; i < count; i++) {
        CHECK_OK(omm_kv_init(&kv[i], type, kv_heads, WIDTH, (uint32_t)lengths[i]));
        omm_kv_store(c, &kv[i], k, v, lengths[i], 0);
        a[i] =
            last_query(out + i * heads * WIDTH, q + i * heads * WIDTH, &kv[i], lengths[i], heads);
    }
    omm_attention_each(c, a, count);
    for (size_t i = 0; i < count; i++) omm_kv_fini(&kv[i]);
    omm_free(q);
    omm_free(k);
    omm_free(v);
}

static void cuts_of_long_caches(void) {
    enum { MOST = 2 * 64 * 16 };
    static const uint32_t shapes[][2] = {
        {9, 3}, {20, 20}, {56, 4}, {4, 1}, {64, 1}}; /* of the last more than a tile has rows */
    static float want[MOST], got[MOST];
    omm_isa best;
    CHECK_OK(omm_isa_choose(&best, NULL));
    for (unsigned threads = 1; threads <= 7; threads += threads < 3 ? 1 : 4) {
        omm_compute alone, c;
        omm_pool *pool = NULL;
        CHECK_OK(omm_pool_open(&pool, threads));
        CHECK_OK(omm_compute_init(&alone, NULL, best));
        CHECK_OK(omm_compute_init(&c, pool, best));
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (unsigned t = OMM_KV_F16; t < OMM_KV_TYPE_COUNT; t++) {
                const size_t bytes = (size_t)2 * shapes[i][0] * 16 * sizeof *want;
                memset(got, 0xff, bytes);
                long_caches(&alone, want, (omm_kv_type)t, shapes[i][0], shapes[i][1]);
                long_caches(&c, got, (omm_kv_type)t, shapes[i][0], shapes[i][1]);
                CHECK(same_bytes(want, got, bytes));
            }
        omm_compute_fini(&alone);
        omm_compute_fini(&c);
        omm_pool_close(pool);
    }
}

/* So many sequences over so long a cache that parts of their segments have no room in a worker's scratch. */
static void more_than_scratch(void) {
    enum { WIDTH = 8, HEADS = 64, KV_HEADS = 8, LENGTH = 8 * 1024, COUNT = 32 };
    static float want[HEADS * WIDTH], got[COUNT][HEADS * WIDTH];
    float *q = battery_floats(1, (size_t)HEADS * WIDTH);
    float *k = battery_floats(2, (size_t)LENGTH * KV_HEADS * WIDTH);
    omm_attention a[COUNT];
    omm_compute c;
    omm_pool *pool = NULL;
    omm_isa best;
    omm_kv kv;
    const size_t row = ATTENTION_PART(16), segments = LENGTH / OMM_ATTENTION_SEGMENT;
    CHECK(COUNT * segments * HEADS * row > WORK_FLOATS - ATTENTION_FLOATS);
    CHECK_OK(omm_isa_choose(&best, NULL));
    CHECK_OK(omm_pool_open(&pool, 2));
    CHECK_OK(omm_compute_init(&c, pool, best));
    CHECK_OK(omm_kv_init(&kv, OMM_KV_F16, KV_HEADS, WIDTH, LENGTH));
    CHECK_EQ(kv.dim_padded, 16);
    omm_kv_store(&c, &kv, k, k, LENGTH, 0);
    for (size_t i = 0; i < COUNT; i++) a[i] = last_query(got[i], q, &kv, LENGTH, HEADS);
    a[0].out = want;
    omm_attention_forward(&c, &a[0]);
    a[0].out = got[0];
    omm_attention_each(&c, a, COUNT);
    for (size_t i = 0; i < COUNT; i++) CHECK(same_bytes(want, got[i], sizeof want));
    omm_kv_fini(&kv);
    omm_compute_fini(&c);
    omm_pool_close(pool);
    omm_free(q);
    omm_free(k);
}

static void all_equal(void) {
    omm_compute c;
    CHECK_OK(omm_compute_init(&c, NULL, OMM_ISA_SCALAR));
    attention_battery_run(&s_base, &c, 0);
    omm_compute_fini(&c);
    uint64_t all = 0;
    for (size_t i = 0; i < s_base.count; i++) all = (all ^ s_base.rows[i].hash) * 1099511628211u;
    printf("%zu results, together 0x%016" PRIx64 "\n", s_base.count, all);
    CHECK(all == GOLDEN);
    static const size_t splits[] = {0, 1, 7};
    for (unsigned isa = 0; isa < OMM_ISA_COUNT; isa++) {
        if (!omm_isa_available((omm_isa)isa) || omm_isa_floats((omm_isa)isa) != isa) continue;
        for (unsigned threads = 1; threads <= 3; threads++) {
            if (isa == OMM_ISA_SCALAR && threads != 3) continue;
            omm_pool *pool = NULL;
            CHECK_OK(omm_pool_open(&pool, threads));
            CHECK_OK(omm_compute_init(&c, pool, (omm_isa)isa));
            atomic_store(&kernels_ask_near, threads % 2 == 1); /* no byte depends on it */
            attention_battery_run(&s_other, &c, splits[threads - 1]);
            same_as_base(&s_other, omm_isa_name((omm_isa)isa));
            each_is_alone(&c);
            omm_compute_fini(&c);
            omm_pool_close(pool);
        }
    }
}

static bool same_bits(const void *a, const void *b) {
    return memcmp(a, b, sizeof(float)) == 0;
}

static float exp_of(const omm_compute *c, float x) {
    float y = 0.0f;
    omm_vec_exp(c, &y, &x, 1);
    return y;
}

static float fold16(float *l) {
    for (int s = 8; s; s /= 2)
        for (int i = 0; i < s; i++) l[i] = l[i] + l[i + s];
    return l[0];
}

enum { D = 40, GROUPS = 2 }; /* of attention by definition */

/* One head of one position as kv.h (a cache) or kernels.h (a query) quantises it. */
typedef struct quants {
    float q[D], d[GROUPS];
} quants;

static quants quantised(const float *x, bool query) {
    quants r;
    for (int g = 0; g < GROUPS; g++) {
        const int begin = g * 32, end = begin + 32 < D ? begin + 32 : D;
        float amax = 0.0f;
        for (int i = begin; i < end; i++) amax = fmaxf(amax, fabsf(x[i]));
        r.d[g] = query ? amax / 127.0f : omm_f16_to_f32(omm_f32_to_f16(amax / 127.0f));
        for (int i = begin; i < end; i++) {
            const float q = r.d[g] == 0.0f ? 0.0f : x[i] * (query ? 127.0f / amax : 1.0f / r.d[g]);
            r.q[i] = rintf(q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q);
        }
    }
    return r;
}

/* What a cache of floats gives back. */
static float cached(float x, omm_kv_type type) {
    return type == OMM_KV_F16 ? omm_f16_to_f32(omm_f32_to_f16(x)) : x;
}

static float score(omm_kv_type type, const float *q, const float *k) {
    float s = 0.0f;
    if (type != OMM_KV_Q8_0) {
        for (int i = 0; i < D; i++) s = fmaf(q[i], cached(k[i], type), s);
        return s;
    }
    const quants qq = quantised(q, true), kq = quantised(k, false);
    for (int g = 0; g < GROUPS; g++) {
        long dot = 0;
        for (int i = g * 32; i < D && i < g * 32 + 32; i++) dot += lrintf(qq.q[i] * kq.q[i]);
        s = fmaf((float)dot, kq.d[g] * qq.d[g], s);
    }
    return s;
}

/* o += p v of positions begin .. end, v [][D]. */
static void add_values(omm_kv_type type, float *o, const float *p, const float *v, int begin,
                       int end) {
    for (int i = 0; i < D && type != OMM_KV_Q8_0; i++)
        for (int j = begin; j < end; j++) o[i] = fmaf(p[j], cached(v[j * D + i], type), o[i]);
    for (int g = 0; g < GROUPS && type == OMM_KV_Q8_0; g++) {
        long sums[D] = {0};
        float most = 0.0f;
        int e = 0;
        for (int j = begin; j < end; j++)
            most = fmaxf(most, p[j] * quantised(v + (ptrdiff_t)j * D, false).d[g]);
        frexpf(most, &e); /* most = [1/2, 1) 2^e */
        if (most < 0x1p-100f) continue;
        for (int j = begin; j < end; j++) {
            const quants vq = quantised(v + (ptrdiff_t)j * D, false);
            const long u = lrint((double)(p[j] * vq.d[g]) * ldexp(1.0, 13 - e));
            for (int i = g * 32; i < D && i < g * 32 + 32; i++) sums[i] += u * lrintf(vq.q[i]);
        }
        for (int i = g * 32; i < D && i < g * 32 + 32; i++)
            o[i] = fmaf((float)sums[i], ldexpf(1.0f, e - 13), o[i]);
    }
}

/* A softmax over some positions. */
typedef struct part {
    float o[D], l, m;
} part;

typedef struct definition {
    const omm_compute *c;
    omm_kv_type type;
    const float *q, *k, *v; /* of the query; of all positions */
    int position, window;
    float softcap;
} definition;

/* Block b of 64 positions. */
static void block_by_definition(part *r, const definition *a, int b) {
    float s[64], lanes[16] = {0}, top = r->m;
    const int present = a->position - b * 64 + 1 < 64 ? a->position - b * 64 + 1 : 64;
    const int first = a->window ? a->position - a->window + 1 - b * 64 : 0;
    const int begin = first > 0 ? first : 0;
    if (begin >= present) return;
    for (int j = begin; j < present; j++) {
        s[j] = score(a->type, a->q, a->k + (ptrdiff_t)(b * 64 + j) * D) * 0.5f;
        if (a->softcap != 0.0f) omm_vec_softcap(a->c, &s[j], &s[j], a->softcap, 1);
        top = s[j] > top ? s[j] : top;
    }
    const float shrink = r->m > -INFINITY ? exp_of(a->c, r->m - top) : 0.0f;
    for (int j = begin; j < present; j++) {
        s[j] = exp_of(a->c, s[j] - top);
        lanes[j % 16] = lanes[j % 16] + s[j];
    }
    r->l = r->m > -INFINITY ? fmaf(r->l, shrink, fold16(lanes)) : fold16(lanes);
    for (int d = 0; d < D; d++) r->o[d] = r->o[d] * shrink;
    add_values(a->type, r->o, s, a->v + (ptrdiff_t)b * 64 * D, begin, present);
    r->m = top;
}

static part query_by_definition(const definition *a) {
    part all = {.m = -INFINITY};
    for (int segment = 0; segment * 1024 <= a->position; segment++) {
        part r = {.m = -INFINITY};
        for (int b = segment * 16; b < segment * 16 + 16 && b * 64 <= a->position; b++)
            block_by_definition(&r, a, b);
        if (r.m == -INFINITY) continue;
        if (all.m == -INFINITY) {
            all = r;
            continue;
        }
        const float top = all.m > r.m ? all.m : r.m;
        const float before = exp_of(a->c, all.m - top), now = exp_of(a->c, r.m - top);
        for (int d = 0; d < D; d++) all.o[d] = fmaf(r.o[d], now, all.o[d] * before);
        all.l = fmaf(r.l, now, all.l * before);
        all.m = top;
    }
    return all;
}

/* The query at `position`, after all before it or alone, by the text of kernels.h. */
static void attention_by_definition(const omm_compute *c, omm_kv_type type, int position,
                                    bool alone, int window, float softcap) {
    const size_t length = (size_t)position + 1, count = length * D;
    float *q = battery_floats(1, count), *k = battery_floats(2, count);
    float *v = battery_floats(3, count), *out = battery_floats(4, count);
    float *lse = battery_floats(5, length), log_l = 0.0f;
    omm_kv kv = {0};
    for (size_t i = 0; i < length; i++) v[i * D + 32] *= 1e-7f; /* scales: subnormal, zero */
    for (size_t i = count - D + 33; i < count; i++) v[i] *= 1e-6f;
    CHECK_OK(omm_kv_init(&kv, type, 1, D, (uint32_t)length));
    omm_kv_store(c, &kv, k, v, length, 0);
    omm_attention a = {.out = out,
                       .lse = lse,
                       .q = alone ? q + count - D : q,
                       .kv = &kv,
                       .m = alone ? 1 : length,
                       .pos0 = alone ? length - 1 : 0,
                       .heads = 1,
                       .scale = 0.5f,
                       .softcap = softcap,
                       .window = (uint32_t)window};
    omm_attention_forward(c, &a);
    const definition by = {c, type, q + count - D, k, v, position, window, softcap};
    const part want = query_by_definition(&by);
    omm_vec_log(c, &log_l, &want.l, 1);
    for (int d = 0; d < D; d++) {
        const float r = want.o[d] * (1.0f / want.l);
        CHECK(same_bits(&r, &out[(a.m - 1) * D + (size_t)d]));
    }
    const float r = want.m + log_l;
    CHECK(same_bits(&r, &lse[a.m - 1]));
    omm_kv_fini(&kv);
    omm_free(q);
    omm_free(k);
    omm_free(v);
    omm_free(out);
    omm_free(lse);
}

/* Values that are not finite are found in what attention gives, whatever the cache's type. */
static void nan_shows(const omm_compute *c, omm_kv_type type, float bad) {
    float k[32] = {0}, v[32] = {0}, q[32] = {1.0f}, out[32];
    omm_kv kv = {0};
    CHECK_OK(omm_kv_init(&kv, type, 1, 32, 64));
    v[5] = bad;
    omm_kv_store(c, &kv, k, v, 1, 0);
    omm_attention a = {.out = out, .q = q, .kv = &kv, .m = 1, .heads = 1, .scale = 1.0f};
    omm_attention_forward(c, &a);
    CHECK(!omm_all_finite(c, out, 32));
    omm_kv_fini(&kv);
}

/* Blocks come when they are needed, go back, are copied before a second owner writes. */
/* Eight bits, to the byte.  About the least half: of a scale that was rounded down none leaves its range, and where it is
 * rounded to nothing all is zero.  What is no number says so by its scale. */
static void least_scales(const omm_compute *c) {
    enum { WIDTH = 32 };
    static const struct {
        float value;
        uint16_t scale;
        int8_t quant;
    } cases[] = {{1.05e-5f, 1, 127}, /* 1.39 of the least half, 176 of it */
                 {1e-9f, 0, 0},
                 {INFINITY, OMM_KV_SCALE_NAN, 0},
                 {NAN, OMM_KV_SCALE_NAN, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const float x[WIDTH] = {cases[i].value, -cases[i].value};
        const size_t plane = (size_t)WIDTH * OMM_KV_BLOCK;
        omm_kv kv;
        CHECK_OK(omm_kv_init(&kv, OMM_KV_Q8_0, 1, WIDTH, 1));
        uint8_t *keys = (uint8_t *)kv.blocks[0], *values = keys + kv.values_at;
        memset(keys, 0, omm_kv_block_bytes(OMM_KV_Q8_0, 1, WIDTH));
        omm_kv_store(c, &kv, x, x, 1, 0);
        CHECK_EQ((int8_t)keys[0], cases[i].quant); /* four columns of a position side by side */
        CHECK_EQ((int8_t)keys[1], -cases[i].quant);
        CHECK_EQ((int8_t)values[0], cases[i].quant); /* four positions of a column */
        CHECK_EQ((int8_t)values[4], -cases[i].quant);
        CHECK_EQ(omm_get_u16(keys + plane), cases[i].scale);
        CHECK_EQ(omm_get_u16(values + plane), cases[i].scale);
        for (size_t at = 2; at < plane; at++) CHECK(keys[at] == 0 && (at == 4 || values[at] == 0));
        omm_kv_fini(&kv);
    }
}

static void blocks(void) {
    omm_kv_pool *pool = NULL;
    omm_kv a, b;
    const size_t bytes = omm_kv_block_bytes(OMM_KV_Q8_0, 2, 40);
    CHECK_EQ(bytes, 2 * 2 * (48 * 64 + 2 * 128));
    CHECK_OK(omm_kv_pool_open(&pool, bytes, 4));
    CHECK_OK(omm_kv_init_pooled(&a, OMM_KV_Q8_0, 2, 40, 300, pool));
    CHECK_OK(omm_kv_init_pooled(&b, OMM_KV_Q8_0, 2, 40, 300, pool));
    CHECK_EQ(a.positions_max, 320);
    CHECK_EQ(omm_kv_pool_blocks_made(pool), 0);
    CHECK_OK(omm_kv_reserve(&a, 0, 65));
    CHECK_EQ(omm_kv_pool_blocks_used(pool), 2);
    CHECK_OK(omm_kv_reserve(&a, 65, 63));
    CHECK_EQ(omm_kv_pool_blocks_used(pool), 2);
    memset(a.blocks[1], 7, bytes);
    b.blocks[0] = a.blocks[0];
    b.blocks[1] = a.blocks[1];
    omm_kv_pool_share(a.blocks[0]);
    omm_kv_pool_share(a.blocks[1]);
    CHECK_OK(omm_kv_reserve(&b, 100, 1));
    CHECK(b.blocks[0] == a.blocks[0] && b.blocks[1] != a.blocks[1]);
    CHECK(memcmp(a.blocks[1], b.blocks[1], bytes) == 0);
    CHECK_EQ(omm_kv_pool_blocks_used(pool), 3);
    omm_mem_fail_nth(1);
    CHECK_ERR(omm_kv_reserve(&b, 128, 1), OMM_ERR_NOMEM);
    omm_mem_fail_nth(0);
    CHECK_OK(omm_kv_reserve(&b, 128, 1));
    CHECK_ERR(omm_kv_reserve(&b, 192, 1), OMM_ERR_TOO_BIG);
    omm_kv_cut(&b, 128);
    CHECK(b.blocks[1] && !b.blocks[2]);
    omm_kv_cut(&b, 65);
    CHECK(b.blocks[1]);
    omm_kv_cut(&b, 64);
    CHECK(!b.blocks[1]);
    CHECK_EQ(omm_kv_pool_blocks_used(pool), 2);
    omm_kv_forget(&a, 127);
    CHECK(!a.blocks[0] && a.blocks[1]);
    omm_kv_forget(&a, 128);
    omm_kv_forget(&a, 130);
    CHECK(!a.blocks[1]);
    CHECK_EQ(omm_kv_pool_blocks_used(pool), 1); /* b's first */
    omm_kv_fini(&a);
    omm_kv_fini(&b);
    CHECK_EQ(omm_kv_pool_blocks_used(pool), 0);
    CHECK_EQ(omm_kv_pool_blocks_made(pool), 4);
    CHECK_EQ(omm_kv_pool_block_bytes(pool), bytes);
    omm_kv_pool_close(pool);
    CHECK_ERR(omm_kv_init(&a, OMM_KV_F32, 1u << 20, 256, 1u << 20), OMM_ERR_TOO_BIG);
    CHECK_EQ(omm_kv_block_bytes(OMM_KV_F32, 3, 64), 3 * 2 * 64 * 64 * 4);
    CHECK_EQ(omm_kv_block_bytes(OMM_KV_F16, 3, 64), 3 * 2 * 64 * 64 * 2);
    CHECK_EQ(omm_kv_block_bytes(OMM_KV_Q8_0, 3, 64), 3 * 2 * 64 * (64 + 2 * 2)); /* and scales */
    CHECK_EQ(omm_kv_pool_made_bytes(64), 64 + 64);
    CHECK_EQ(omm_kv_pool_made_bytes(65), 64 + 128);
    for (uint32_t heads = 64; heads <= 128; heads += 64) { /* 2^34 values, and twice as many */
        CHECK_OK(omm_kv_pool_open(&pool, omm_kv_block_bytes(OMM_KV_F16, heads, 256), 1));
        const omm_err err = omm_kv_init_pooled(&a, OMM_KV_F16, heads, 256, 1u << 20, pool);
        CHECK_ERR(err, heads == 64 ? OMM_OK : OMM_ERR_TOO_BIG);
        if (err == OMM_OK) omm_kv_fini(&a);
        omm_kv_pool_close(pool);
    }
    omm_kv_type type;
    CHECK_OK(omm_kv_type_parse(&type, "q8_0"));
    CHECK_EQ(type, OMM_KV_Q8_0);
    CHECK_ERR(omm_kv_type_parse(&type, "q8"), OMM_ERR_CONFIG);
    for (unsigned t = 0; t < OMM_KV_TYPE_COUNT; t++) {
        CHECK_OK(omm_kv_type_parse(&type, omm_kv_type_name((omm_kv_type)t)));
        CHECK_EQ(type, t);
    }
    const size_t live = omm_mem_live();
    for (size_t n = 1; n <= 2; n++) { /* its table, its blocks */
        omm_mem_fail_nth(n);
        CHECK_ERR(omm_kv_init(&a, OMM_KV_F32, 2, 24, 100), OMM_ERR_NOMEM);
        omm_mem_fail_nth(0);
        CHECK_EQ(omm_mem_live(), live);
    }
}

int main(void) {
    omm_compute c;
    omm_isa best;
    CHECK_OK(omm_isa_choose(&best, NULL));
    CHECK_OK(omm_compute_init(&c, NULL, best));
    for (unsigned t = 0; t < OMM_KV_TYPE_COUNT; t++) {
        static const int windows[] = {0, 1, 2, 60, 64, 66, 130, 194, 500};
        for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
            attention_by_definition(&c, (omm_kv_type)t, 193, false, windows[i],
                                    i % 2 ? 1.5f : 0.0f);
        attention_by_definition(&c, (omm_kv_type)t, 1023, true, 0, 0.0f);
        attention_by_definition(&c, (omm_kv_type)t, 1024, true, 0, 0.0f);
        attention_by_definition(&c, (omm_kv_type)t, 3333, true, 0, 0.0f);
        attention_by_definition(&c, (omm_kv_type)t, 3333, true, 1300, 0.0f);
        nan_shows(&c, (omm_kv_type)t, NAN);
        nan_shows(&c, (omm_kv_type)t, INFINITY);
    }
    each_is_alone(&c);
    omm_compute_fini(&c);
    for (unsigned isa = 0; isa < OMM_ISA_COUNT; isa++) {
        if (!omm_isa_available((omm_isa)isa)) continue;
        CHECK_OK(omm_compute_init(&c, NULL, (omm_isa)isa));
        least_scales(&c);
        omm_compute_fini(&c);
    }
    blocks();
    texts_are_alone();
    cuts_of_long_caches();
    more_than_scratch();
    all_equal();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

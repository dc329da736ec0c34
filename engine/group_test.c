/* group_test.c - several sequences at once are each what they are alone, on every instruction set,
 * thread count and batch; adapters at run time; kept prefixes; limits and running out of memory. */
#include "adapter_internal.h"
#include "kernels_battery.h"
#include "tiny_model.h"

#include "omm/mem.h"
#include "omm/mem_count.h"
#include "omm/prefix.h"
#include "omm/session.h"
#include "omm_test.h"

#include <math.h>
#include <string.h>

enum { COUNT = 5, LENGTH = 150, VOCAB = TINY_VOCAB };

typedef struct rig {
    omm_model model;
    omm_lora lora[2];
    omm_adapter *adapter[2]; /* the second at half its scale, of what a file in Q8_0 has */
} rig;

static uint32_t s_ids[COUNT][LENGTH];
static float s_want[COUNT][LENGTH * VOCAB], s_got[COUNT * LENGTH * VOCAB];

static void store_q8_0(omm_lora *lora) {
    omm_buf file;
    omm_lora stored;
    double lost = 0.0;
    omm_buf_init(&file, 1 << 22);
    CHECK_OK(omm_lora_save_as(&file, &lost, lora, OMM_GGML_Q8_0));
    CHECK_OK(omm_lora_load(&stored, omm_buf_view(&file), &lora->shape));
    omm_buf_fini(&file);
    omm_lora_fini(lora);
    *lora = stored;
}

static void rig_open(rig *r, omm_format format) {
    omm_buf file;
    omm_gguf gguf;
    omm_buf_init(&file, 1 << 22);
    tiny_model_write(&file, &(tiny_options){.format = format});
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
    CHECK_OK(omm_model_load(&r->model, &gguf));
    omm_gguf_close(&gguf);
    omm_buf_fini(&file);
    for (unsigned i = 0; i < 2; i++) {
        const uint32_t some =
            1u << OMM_LORA_K | 1u << OMM_LORA_O | 1u << OMM_LORA_UP | 1u << OMM_LORA_DOWN;
        omm_lora_spec spec = {3 + 8 * i, 6.0f, i ? some : OMM_LORA_ALL_TARGETS};
        CHECK_OK(omm_lora_init(&r->lora[i], &spec, &r->model.lora_shape));
        float *noise = battery_floats(5 + i, r->lora[i].value_count);
        for (size_t j = 0; j < r->lora[i].value_count; j++) r->lora[i].values[j] = noise[j] * 0.1f;
        omm_free(noise);
        /* Gate and up share an input, and differ. */
        for (size_t j = 0; j < r->lora[i].tensor_count; j++)
            if (r->lora[i].tensors[j].target == OMM_LORA_GATE) r->lora[i].tensors[j].scale *= 2.0f;
        if (i == 1) store_q8_0(&r->lora[i]);
        CHECK_OK(omm_adapter_open(&r->adapter[i], &r->model, &r->lora[i], i ? 0.5f : 1.0f));
    }
    CHECK_EQ(r->adapter[0]->layers[0].a[ADAPTER_INPUT_DOWN].format, OMM_FORMAT_F32);
    for (unsigned i = 0; i < ADAPTER_INPUT_COUNT; i++)
        CHECK_EQ(r->adapter[1]->layers[0].a[i].format, OMM_FORMAT_Q8_0);
}

static void rig_close(rig *r) {
    for (unsigned i = 0; i < 2; i++) {
        omm_adapter_close(r->adapter[i]);
        omm_lora_fini(&r->lora[i]);
    }
    omm_model_fini(&r->model);
}

/* Sequence i's adapters: none, the first, the second, both, both the other way round. */
static void adapt(omm_session *s, const rig *r, size_t i) {
    const omm_adapter *lists[COUNT][2] = {{NULL, NULL},
                                          {r->adapter[0], NULL},
                                          {r->adapter[1], NULL},
                                          {r->adapter[0], r->adapter[1]},
                                          {r->adapter[1], r->adapter[0]}};
    static const size_t counts[COUNT] = {0, 1, 1, 2, 2};
    CHECK_OK(omm_session_set_adapters(s, lists[i], counts[i]));
}

static void alone(const rig *r, const omm_compute *c, const omm_session_options *o) {
    for (size_t i = 0; i < COUNT; i++) {
        omm_session *s = NULL;
        CHECK_OK(omm_session_open(&s, c, &r->model, NULL, o));
        adapt(s, r, i);
        CHECK_OK(omm_session_append(s, s_ids[i], LENGTH, s_want[i], true));
        omm_session_close(s);
    }
}

static void same_rows(size_t i, size_t position, const float *row, const char *what) {
    const float *want = s_want[i] + position * VOCAB;
    if (same_bytes(want, row, VOCAB * sizeof *row)) return;
    fprintf(stderr, "%s: sequence %zu differs at position %zu\n", what, i, position);
    exit(1);
}

/* Prompts of different lengths together, then token by token together, one asking for nothing. */
static void together(const rig *r, const omm_compute *c, const omm_session_options *o,
                     const char *what) {
    omm_group *g = NULL;
    omm_session *s[COUNT];
    omm_part parts[COUNT];
    CHECK_OK(omm_group_open(&g, c, &r->model, o));
    for (size_t i = 0; i < COUNT; i++) {
        CHECK_OK(omm_session_open_in(&s[i], g));
        adapt(s[i], r, i);
        parts[i] =
            (omm_part){s[i], s_ids[i], 20 * i + 1, i % 2 ? OMM_LOGITS_LAST : OMM_LOGITS_EVERY};
    }
    CHECK_OK(omm_group_append(g, parts, COUNT, s_got));
    const float *row = s_got;
    for (size_t i = 0; i < COUNT; i++)
        for (size_t p = i % 2 ? parts[i].count - 1 : 0; p < parts[i].count; p++, row += VOCAB)
            same_rows(i, p, row, what);
    for (size_t step = 0; step < 60; step++) {
        size_t n = 0;
        for (size_t i = 0; i < COUNT; i++) {
            if (step % 7 == i) continue; /* not always the same company */
            parts[n++] = (omm_part){s[i], s_ids[i] + omm_session_position(s[i]), 1 + (step == i),
                                    i == 3 ? OMM_LOGITS_NONE : OMM_LOGITS_LAST};
        }
        CHECK_OK(omm_group_append(g, parts, n, s_got));
        row = s_got;
        for (size_t i = 0; i < COUNT; i++) {
            if (step % 7 == i || i == 3) continue;
            same_rows(i, omm_session_position(s[i]) - 1, row, what);
            row += VOCAB;
        }
    }
    for (size_t i = 0; i < COUNT; i++) omm_session_close(s[i]);
    omm_group_close(g);
}

/* Where the model has nothing that is quantised, an A in Q8_0 is what takes activations in int8, and near. */
static void takes_int8(const rig *r, const omm_compute *c) {
    double worst = 0.0, spread = 0.0;
    for (int mode = 0; mode < 2; mode++) {
        omm_session_options o = omm_session_options_default();
        o.activations = mode ? OMM_ACTIVATIONS_Q8 : OMM_ACTIVATIONS_F32;
        for (size_t i = 1; i <= 2; i++) { /* the adapter in F32, and that in Q8_0 */
            omm_session *s = NULL;
            CHECK_OK(omm_session_open(&s, c, &r->model, NULL, &o));
            adapt(s, r, i);
            CHECK_OK(omm_session_append(s, s_ids[0], 9, mode ? s_got : s_want[i], false));
            omm_session_close(s);
            if (mode) CHECK_EQ(same_bytes(s_got, s_want[i], VOCAB * sizeof *s_got), i == 1);
        }
    }
    for (size_t v = 0; v < VOCAB; v++) {
        worst = worse_of(worst, fabs((double)s_got[v] - (double)s_want[2][v]));
        spread = fmax(spread, fabs((double)s_want[2][v]));
    }
    CHECK(worst < 0.02 * spread);
}

static void all_equal(const rig *r, omm_activations mode, omm_kv_type kv) {
    omm_compute c;
    omm_session_options o = {.activations = mode, .kv_type = kv, .batch_max = 300};
    CHECK_OK(omm_compute_init(&c, NULL, OMM_ISA_SCALAR));
    alone(r, &c, &o);
    omm_compute_fini(&c);
    static const uint32_t batches[] = {256, 1, 37};
    for (unsigned isa = 0; isa < OMM_ISA_COUNT; isa++) {
        if (!omm_isa_available((omm_isa)isa)) continue;
        for (unsigned threads = 1; threads <= 3; threads++) {
            if (isa == OMM_ISA_SCALAR && threads != 2) continue;
            omm_pool *pool = NULL;
            CHECK_OK(omm_pool_open(&pool, threads));
            CHECK_OK(omm_compute_init(&c, pool, (omm_isa)isa));
            o.batch_max = batches[threads - 1];
            together(r, &c, &o, omm_isa_name((omm_isa)isa));
            omm_compute_fini(&c);
            omm_pool_close(pool);
        }
    }
}

/* ---- adapters -------------------------------------------------------------------------------- */

static void adapters(const rig *r, const omm_compute *c) {
    omm_session *s = NULL, *t = NULL;
    float a[VOCAB], b[VOCAB];
    omm_adapter *other = NULL;
    omm_lora half = r->lora[1]; /* borrows */
    for (size_t i = 0; i < half.tensor_count; i++) half.tensors[i].scale *= 0.5f;
    CHECK_OK(omm_session_open(&s, c, &r->model, NULL, NULL));
    CHECK_OK(omm_session_open(&t, c, &r->model, &half, NULL));
    CHECK_OK(omm_adapter_open(&other, &r->model, &half, 1.0f));
    omm_digest x = omm_adapter_digest(other), y = omm_adapter_digest(r->adapter[1]);
    CHECK(!omm_digest_equal(&x, &y)); /* said in another way */
    omm_adapter_close(other);
    for (size_t i = 0; i < half.tensor_count; i++) half.tensors[i].scale *= 2.0f;
    CHECK_OK(omm_session_set_adapters(s, (const omm_adapter *[]){r->adapter[1]}, 1));
    CHECK_OK(omm_session_append(s, s_ids[0], 70, a, false));
    CHECK_OK(omm_session_append(t, s_ids[0], 70, b, false));
    CHECK(same_bytes(a, b, sizeof a)); /* a scale like the file's */
    CHECK_OK(omm_session_set_adapters(s, (const omm_adapter *[]){r->adapter[1]}, 1));
    CHECK_EQ(omm_session_position(s), 70); /* the same ones: nothing to forget */
    CHECK_OK(omm_session_set_adapters(s, NULL, 0));
    CHECK_EQ(omm_session_position(s), 0);
    CHECK_OK(omm_session_append(s, s_ids[0], 70, a, false));
    CHECK(!same_bytes(a, b, sizeof a));
    omm_session_close(t);
    CHECK_OK(omm_session_open(&t, c, &r->model, NULL, NULL));
    CHECK_OK(omm_session_append(t, s_ids[0], 70, b, false));
    CHECK(same_bytes(a, b, sizeof a));
    const omm_adapter *many[OMM_ADAPTERS_MAX + 1];
    for (size_t i = 0; i <= OMM_ADAPTERS_MAX; i++) many[i] = r->adapter[0];
    CHECK_ERR(omm_session_set_adapters(s, many, OMM_ADAPTERS_MAX + 1), OMM_ERR_TOO_BIG);
    CHECK_EQ(omm_session_position(s), 70);
    omm_mem_fail_nth(1);
    CHECK_ERR(omm_session_set_adapters(s, many, OMM_ADAPTERS_MAX), OMM_ERR_NOMEM);
    omm_mem_fail_nth(0);
    CHECK_EQ(omm_session_position(s), 70);
    CHECK_OK(omm_session_set_adapters(s, many, OMM_ADAPTERS_MAX));
    CHECK_OK(omm_session_append(s, s_ids[0], 5, a, false));
    omm_session_close(s);
    omm_session_close(t);
    CHECK_ERR(omm_adapter_open(&other, &r->model, &half, INFINITY), OMM_ERR_CONFIG);
    omm_err err = OMM_ERR_NOMEM;
    for (size_t n = 1; err != OMM_OK; n++) {
        const size_t live = omm_mem_live();
        omm_mem_fail_nth(n);
        err = omm_adapter_open(&other, &r->model, &half, 0.5f);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        if (err != OMM_OK) CHECK_EQ(omm_mem_live(), live);
    }
    x = omm_adapter_digest(other);
    CHECK(omm_digest_equal(&x, &y));
    y = omm_adapter_digest(r->adapter[0]);
    CHECK(!omm_digest_equal(&x, &y));
    omm_adapter_close(other);
}

static bool is_about(uint64_t taken, uint64_t planned) { /* the heap rounds up */
    return planned <= taken && taken <= planned + planned / 64 + 4096;
}

/* A plan counts whole strips, however low the rank, and what a batch takes for an adapter in each session's group. */
static void planned(const rig *r, const omm_compute *c) {
    static const struct {
        uint32_t rank, targets;
    } cases[] = {{1, OMM_LORA_ALL_TARGETS},
                 {16, 1u << OMM_LORA_Q},
                 {40, 1u << OMM_LORA_V | 1u << OMM_LORA_Q | 1u << OMM_LORA_DOWN}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const omm_lora_spec spec = {cases[i].rank, 6.0f, cases[i].targets};
        const omm_rng rng = omm_rng_init(&(omm_seed){{1}}, OMM_PURPOSE_TEST, 0, 0);
        omm_lora lora;
        omm_adapter *a = NULL;
        omm_session *s = NULL;
        CHECK_OK(omm_lora_init_random(&lora, &spec, &r->model.lora_shape, &rng));
        for (size_t j = 0; j < lora.value_count; j++) lora.values[j] += 0x1.234566p-3f;
        size_t before = omm_mem_bytes();
        CHECK_OK(omm_adapter_open(&a, &r->model, &lora, 1.0f));
        CHECK(is_about(omm_mem_bytes() - before, omm_adapter_bytes(&lora)));
        CHECK_OK(omm_session_open(&s, c, &r->model, NULL, NULL));
        before = omm_mem_bytes();
        CHECK_OK(omm_session_set_adapters(s, (const omm_adapter *[]){a}, 1));
        const uint64_t tokens = omm_session_options_default().batch_max;
        CHECK(is_about(omm_mem_bytes() - before, omm_adapter_batch_bytes(&lora, tokens)));
        omm_session_close(s);
        omm_adapter_close(a);
        omm_lora_fini(&lora);
    }
}

/* Pairs that share an input may differ in scale: half the scale is half of B, to the bit. */
static void mixed_scales(const rig *r, const omm_compute *c) {
    omm_lora lora = r->lora[0]; /* borrows */
    float a[VOCAB], b[VOCAB];
    for (int way = 0; way < 2; way++) {
        omm_session *s = NULL;
        for (size_t i = 0; i < lora.tensor_count; i++) {
            omm_lora_tensor *t = &lora.tensors[i];
            const float factor = way ? 2.0f : 0.5f; /* and back, after the first */
            if (t->target == OMM_LORA_V) t->scale *= factor;
            if (t->target == OMM_LORA_V && t->is_b)
                for (size_t j = 0; way && j < (size_t)t->rows * t->cols; j++)
                    lora.values[t->offset + j] *= 0.5f;
        }
        CHECK_OK(omm_session_open(&s, c, &r->model, &lora, NULL));
        CHECK_OK(omm_session_append(s, s_ids[0], 9, way ? b : a, false));
        omm_session_close(s);
    }
    CHECK(same_bytes(a, b, sizeof a));
    for (size_t i = 0; i < lora.tensor_count; i++)
        for (size_t j = 0; j < (size_t)lora.tensors[i].rows * lora.tensors[i].cols; j++)
            if (lora.tensors[i].target == OMM_LORA_V && lora.tensors[i].is_b)
                lora.values[lora.tensors[i].offset + j] *= 2.0f;
}

/* Such an adapter at half its weight is one whose scales are all half as large, to the bit. */
static void mixed_scales_weighed(const rig *r, const omm_compute *c) {
    omm_lora lora = r->lora[0]; /* borrows */
    float logits[2][VOCAB];
    for (size_t i = 0; i < lora.tensor_count; i++)
        if (lora.tensors[i].target == OMM_LORA_V) lora.tensors[i].scale *= 4.0f;
    for (int way = 0; way < 2; way++) {
        omm_adapter *adapter = NULL;
        omm_session *s = NULL;
        for (size_t i = 0; way && i < lora.tensor_count; i++) lora.tensors[i].scale *= 0.5f;
        CHECK_OK(omm_adapter_open(&adapter, &r->model, &lora, way ? 1.0f : 0.5f));
        CHECK_OK(omm_session_open(&s, c, &r->model, NULL, NULL));
        CHECK_OK(omm_session_set_adapters(s, (const omm_adapter *[]){adapter}, 1));
        CHECK_OK(omm_session_append(s, s_ids[0], 9, logits[way], false));
        omm_session_close(s);
        omm_adapter_close(adapter);
    }
    CHECK(same_bytes(logits[0], logits[1], sizeof logits[0]));
    for (size_t i = 0; i < lora.tensor_count; i++)
        lora.tensors[i].scale *= lora.tensors[i].target == OMM_LORA_V ? 0.5f : 2.0f;
}

/* ---- prefixes -------------------------------------------------------------------------------- */

static void become(omm_session *s, size_t i, size_t count) {
    CHECK_OK(omm_session_become(s, s_ids[i], count, s_got));
    CHECK_EQ(omm_session_position(s), count);
    CHECK(memcmp(omm_session_ids(s), s_ids[i], count * sizeof s_ids[i][0]) == 0);
    same_rows(i, count - 1, s_got, "become");
}

/* Says so at the batch number `at`. */
typedef struct patience {
    unsigned at, asked;
} patience;

static bool is_over(void *ud) {
    patience *p = (patience *)ud;
    return ++p->asked == p->at;
}

/* Whoever stops it finds what has been computed, and the rest gives the bytes of one go. */
static void stopped_become(const rig *r, const omm_compute *c) {
    omm_session_options o = {.batch_max = 64};
    omm_session *s = NULL;
    alone(r, c, &o);
    CHECK_OK(omm_session_open(&s, c, &r->model, NULL, &o));
    adapt(s, r, 1);
    for (unsigned at = 1; at <= 3; at++) { /* of batches that begin at 0, 64 and 128 */
        patience p = {.at = at};
        const omm_session_stop stop = {is_over, &p};
        omm_session_truncate(s, 0);
        CHECK_ERR(omm_session_become_unless(s, s_ids[1], 150, s_got, &stop), OMM_ERR_CANCELLED);
        CHECK_EQ(omm_session_position(s), (at - 1) * 64);
        p.at = 100;
        CHECK_OK(omm_session_become_unless(s, s_ids[1], 150, s_got, &stop));
        CHECK_EQ(omm_session_reused(s), (at - 1) * 64);
        CHECK_EQ(p.asked, 3 + 1);
        same_rows(1, 149, s_got, "become after a stop");
    }
    patience whole = {.at = 100}; /* of ids that fill their batches */
    const omm_session_stop never = {is_over, &whole};
    omm_session_truncate(s, 0);
    CHECK_OK(omm_session_become_unless(s, s_ids[1], 128, s_got, &never));
    CHECK_EQ(whole.asked, 2);
    same_rows(1, 127, s_got, "become in whole batches");
    patience none = {.at = 100};
    const omm_session_stop stop = {is_over, &none};
    CHECK_ERR(omm_session_become_unless(s, (uint32_t[]){1, VOCAB}, 2, s_got, &stop),
              OMM_ERR_FORMAT);
    CHECK_EQ(none.asked, 0);
    omm_session_close(s);
    /* What fails between two questions is said, too. */
    o.cache_bytes_max = TINY_LAYERS * omm_kv_block_bytes(OMM_KV_F32, TINY_KV_HEADS, TINY_HEAD_DIM);
    CHECK_OK(omm_session_open(&s, c, &r->model, NULL, &o));
    CHECK_ERR(omm_session_become_unless(s, s_ids[1], 150, s_got, &stop), OMM_ERR_TOO_BIG);
    CHECK_EQ(none.asked, 2);
    CHECK_EQ(omm_session_position(s), 64);
    omm_session_close(s);
}

static void prefixes(const rig *r, const omm_compute *c, omm_kv_type kv) {
    const size_t block = TINY_LAYERS * omm_kv_block_bytes(kv, TINY_KV_HEADS, TINY_HEAD_DIM);
    omm_session_options o = {.kv_type = kv, .batch_max = 64};
    omm_group *g = NULL;
    omm_prefix_store *store = NULL, *second = NULL;
    omm_session *s[2];
    uint32_t kept[COUNT][LENGTH];
    memcpy(kept, s_ids, sizeof kept);
    for (size_t i = 0; i < COUNT; i++)
        memcpy(s_ids[i], kept[1], sizeof s_ids[i]); /* only adapters differ */
    alone(r, c, &o);
    CHECK_OK(omm_group_open(&g, c, &r->model, &o));
    CHECK_OK(omm_prefix_open(&store, g, 3 * block + 1));
    CHECK_ERR(omm_prefix_open(&second, g, block), OMM_ERR_STATE);
    for (size_t i = 0; i < 2; i++) CHECK_OK(omm_session_open_in(&s[i], g));
    adapt(s[0], r, 1);
    adapt(s[1], r, 1);
    become(s[0], 1, 130);
    CHECK_EQ(omm_prefix_stats_of(store).blocks, 2);
    CHECK_EQ(omm_prefix_stats_of(store).bytes, 2 * block);
    become(s[1], 1, 140); /* shares 128 */
    CHECK_EQ(omm_prefix_stats_of(store).positions_reused, 128);
    CHECK_EQ(omm_group_cache_bytes(g), 4 * block); /* two shared, one of each */
    become(s[0], 1, 150);
    become(s[1], 1, 129);
    CHECK_EQ(omm_prefix_stats_of(store).positions_reused, 128);
    become(s[1], 1, 128); /* the last token is computed, not the block before it */
    /* Other tokens into a shared block: into a copy of it. */
    CHECK_EQ(omm_session_truncate(s[1], 100), 100);
    CHECK_OK(omm_session_append(s[1], kept[3], 28, NULL, false));
    become(s[0], 1, 129);
    become(s[1], 1, 100);
    become(s[0], 1, 128);
    /* Under other adapters nothing is found, nor under the same in another order. */
    for (size_t i = 2; i < COUNT; i++) {
        uint64_t before = omm_prefix_stats_of(store).positions_reused;
        adapt(s[1], r, i);
        become(s[1], i, 70);
        CHECK_EQ(omm_prefix_stats_of(store).positions_reused, before);
    }
    CHECK_EQ(omm_prefix_stats_of(store).blocks, 3); /* the limit */
    CHECK_EQ(omm_prefix_stats_of(store).blocks_evicted, 2);
    adapt(s[1], r, 3); /* used after the chain of sequence 1 and so still there */
    become(s[1], 3, 70);
    CHECK_EQ(omm_prefix_stats_of(store).positions_reused, 192);
    adapt(s[1], r, 1); /* evicted */
    become(s[1], 1, 150);
    CHECK_EQ(omm_prefix_stats_of(store).positions_reused, 192);
    CHECK_ERR(omm_session_become(s[1], (uint32_t[]){1, VOCAB}, 2, s_got), OMM_ERR_FORMAT);
    for (size_t n = 1; n < 12; n++) { /* whatever runs out, what is there stays right */
        omm_session_truncate(s[0], 0);
        omm_mem_fail_nth(n);
        omm_err err = omm_session_become(s[0], s_ids[1], 140, s_got);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
        become(s[0], 1, 145);
    }
    for (size_t i = 0; i < 2; i++) omm_session_close(s[i]);
    omm_prefix_close(store);
    omm_group_close(g);
    memcpy(s_ids, kept, sizeof kept);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void limits(const rig *r, const omm_compute *c) {
    const size_t block = TINY_LAYERS * omm_kv_block_bytes(OMM_KV_F32, TINY_KV_HEADS, TINY_HEAD_DIM);
    omm_session_options o = {.batch_max = 64, .cache_bytes_max = 3 * block};
    omm_group *g = NULL;
    omm_prefix_store *store = NULL;
    omm_session *s[2];
    CHECK_OK(omm_group_open(&g, c, &r->model, &o));
    for (size_t i = 0; i < 2; i++) CHECK_OK(omm_session_open_in(&s[i], g));
    omm_part parts[2] = {{s[0], s_ids[0], 100, OMM_LOGITS_LAST},
                         {s[1], s_ids[0], 65, OMM_LOGITS_LAST}};
    CHECK_ERR(omm_group_append(g, parts, 2, s_got), OMM_ERR_TOO_BIG); /* four blocks */
    CHECK(omm_session_position(s[0]) == 0 && omm_session_position(s[1]) == 0);
    parts[1].count = 64;
    CHECK_OK(omm_group_append(g, parts, 2, s_got));
    same_rows(0, 99, s_got, "limits");
    same_rows(0, 63, s_got + VOCAB, "limits");
    CHECK_ERR(omm_session_append(s[1], s_ids[0], 1, s_got, false), OMM_ERR_TOO_BIG);
    parts[0].count = parts[1].count = 1;
    parts[1].ids = (uint32_t[]){VOCAB};
    CHECK_ERR(omm_group_append(g, parts, 2, s_got), OMM_ERR_FORMAT);
    CHECK_EQ(omm_session_position(s[0]), 100);
    omm_session_truncate(s[0], 0);
    CHECK_OK(omm_session_append(s[1], s_ids[0] + 64, 1, s_got, false));
    same_rows(0, 64, s_got, "limits");
    /* What a store keeps makes room for what a session needs. */
    omm_session_truncate(s[1], 0);
    CHECK_OK(omm_prefix_open(&store, g, 3 * block));
    CHECK_OK(omm_session_become(s[0], s_ids[0], 130, s_got));
    omm_session_truncate(s[0], 0);
    CHECK_EQ(omm_prefix_stats_of(store).blocks, 2);
    CHECK_OK(omm_session_become(s[0], s_ids[4], 150, s_got));
    CHECK(omm_prefix_stats_of(store).blocks_evicted >= 2);
    for (size_t i = 0; i < 2; i++) omm_session_close(s[i]);
    omm_prefix_close(store);
    omm_group_close(g);
}

/* Whoever gives a profile is told of all the time between two passes' ends, and nothing when it is taken back. */
static void profiles(const rig *r, const omm_compute *c) {
    omm_session *s = NULL;
    omm_profile p, before;
    uint64_t sum = 0;
    CHECK_OK(omm_session_open(&s, c, &r->model, NULL, NULL));
    omm_profile_start(&p);
    before = p;
    omm_group_set_profile(omm_session_group(s), &p);
    CHECK_OK(omm_session_append(s, s_ids[0], 20, s_got, false));
    for (unsigned i = 0; i < OMM_PROFILE_PARTS; i++) sum += p.ns[i];
    CHECK(sum > 0 && sum == p.last_ns - before.last_ns);
    CHECK(p.ns[OMM_PROFILE_QKV] > 0 && p.ns[OMM_PROFILE_DOWN] > 0 && p.ns[OMM_PROFILE_READ] == 0);
    before = p;
    omm_group_set_profile(omm_session_group(s), NULL);
    CHECK_OK(omm_session_append(s, s_ids[0], 20, s_got, false));
    CHECK(same_bytes(&p, &before, sizeof p));
    omm_session_close(s);
}

/* ---- windows --------------------------------------------------------------------------------- */

/* A layer with a window keeps what it shows and what truncate may go back to; everything else is as
 * if it kept all. */
static void windows(rig *r, const omm_compute *c) {
    enum { WINDOW = 20 };
    const size_t block = omm_kv_block_bytes(OMM_KV_F32, TINY_KV_HEADS, TINY_HEAD_DIM);
    omm_session_options all = {.batch_max = 150, .rollback_max = 1000};
    omm_session_options few = {.batch_max = 7, .rollback_max = 0};
    omm_group *g = NULL;
    omm_prefix_store *store = NULL;
    omm_session *s = NULL, *t = NULL;
    r->model.layers[0].window = WINDOW;
    alone(r, c, &all);
    CHECK_OK(omm_group_open(&g, c, &r->model, &few));
    CHECK_OK(omm_session_open_in(&s, g));
    CHECK_OK(omm_session_append(s, s_ids[0], LENGTH, s_got, true));
    for (size_t p = 0; p < LENGTH; p++) same_rows(0, p, s_got + p * VOCAB, "window");
    CHECK_EQ(omm_group_cache_bytes(g), (3 + 3) * block);
    CHECK_EQ(omm_session_truncate(s, LENGTH - 60), LENGTH - 60);
    CHECK_OK(omm_session_append(s, s_ids[0] + LENGTH - 60, 60, s_got, true));
    for (size_t p = 0; p < 60; p++) same_rows(0, LENGTH - 60 + p, s_got + p * VOCAB, "back");
    CHECK_OK(omm_session_append(s, s_ids[1], 40, NULL, false)); /* to 190: block 0 has gone */
    CHECK_EQ(omm_session_truncate(s, 130), 130);
    CHECK_EQ(omm_session_truncate(s, 84), 84); /* sees 65 .. 83 */
    CHECK_OK(omm_session_append(s, s_ids[0] + 84, LENGTH - 84, s_got, true));
    for (size_t p = 84; p < LENGTH; p++) same_rows(0, p, s_got + (p - 84) * VOCAB, "back");
    CHECK_EQ(omm_session_truncate(s, 82), 0); /* would see 63 */
    CHECK_EQ(omm_session_position(s), 0);
    become(s, 0, LENGTH);
    CHECK_OK(omm_session_append(s, s_ids[1], 40, NULL, false));
    become(s, 0, 50); /* from the beginning, as nothing else is right */
    become(s, 0, LENGTH);
    /* Kept while it was short, the chain has its first block; kept long, only what is shown. */
    CHECK_OK(omm_session_open_in(&t, g));
    CHECK_OK(omm_prefix_open(&store, g, 20 * block));
    omm_session_truncate(s, 0);
    CHECK_OK(omm_session_append(s, s_ids[0], LENGTH, NULL, false));
    CHECK_OK(omm_session_append(s, s_ids[0], 45, NULL, false)); /* 195, over by now: block 0 */
    CHECK_OK(omm_prefix_keep(store, s));
    CHECK_EQ(omm_prefix_stats_of(store).blocks, 3);
    become(t, 0, 130); /* 128 are served: they show 109 on */
    CHECK_EQ(omm_prefix_stats_of(store).positions_reused, 128);
    omm_session_truncate(t, 0);
    become(t, 0, 100); /* 64 are not: block 0 is missing */
    CHECK_EQ(omm_prefix_stats_of(store).positions_reused, 128);
    omm_session_truncate(t, 0);
    become(t, 0, 90); /* but now they are */
    CHECK_EQ(omm_prefix_stats_of(store).positions_reused, 192);
    omm_session_close(s);
    omm_session_close(t);
    omm_prefix_close(store);
    omm_group_close(g);
    /* However long what is appended at once, layers with a window have the blocks of what they show and may go back to. */
    uint32_t all_ids[TINY_CONTEXT];
    for (size_t i = 0; i < TINY_CONTEXT; i++) all_ids[i] = s_ids[i / LENGTH][i % LENGTH];
    CHECK_OK(omm_group_open(&g, c, &r->model, &few));
    CHECK_OK(omm_session_open_in(&s, g));
    r->model.layers[1].window = WINDOW;
    CHECK_OK(omm_session_append(s, all_ids, TINY_CONTEXT, NULL, false));
    CHECK_EQ(omm_group_cache_bytes(g), (3 + 3) * block);
    r->model.layers[0].window = r->model.layers[1].window = 1;
    CHECK_EQ(omm_session_truncate(s, 30), 30); /* nothing before itself has to be there */
    r->model.layers[1].window = 0;
    r->model.layers[0].window = WINDOW;
    omm_session_close(s);
    omm_group_close(g);
    /* Memory that runs out in the middle leaves the session as it was, or empty. */
    few.cache_bytes_max = 5 * block;
    CHECK_OK(omm_group_open(&g, c, &r->model, &few));
    CHECK_OK(omm_session_open_in(&s, g));
    CHECK_OK(omm_session_append(s, s_ids[0], 10, NULL, false));
    CHECK_ERR(omm_session_append(s, s_ids[0] + 10, LENGTH - 10, s_got, false), OMM_ERR_TOO_BIG);
    CHECK_EQ(omm_session_position(s), 10);
    CHECK_OK(omm_session_append(s, s_ids[0] + 10, 90, s_got, false));
    same_rows(0, 99, s_got, "after");
    omm_session_close(s);
    omm_group_close(g);
    r->model.layers[0].window = 0;
}

int main(void) {
    omm_compute c;
    omm_isa isa;
    rig r;
    for (uint32_t i = 0; i < COUNT; i++)
        for (uint32_t j = 0; j < LENGTH; j++) s_ids[i][j] = (j * j * 7 + i * 13 + j * i) % VOCAB;
    CHECK_OK(omm_isa_choose(&isa, NULL));
    CHECK_OK(omm_compute_init(&c, NULL, isa));
    rig_open(&r, OMM_FORMAT_Q8_0);
    adapters(&r, &c);
    planned(&r, &c);
    mixed_scales(&r, &c);
    mixed_scales_weighed(&r, &c);
    stopped_become(&r, &c);
    for (unsigned t = 0; t < OMM_KV_TYPE_COUNT; t++) prefixes(&r, &c, (omm_kv_type)t);
    alone(&r, &c, &(omm_session_options){.batch_max = 64}); /* what limits() compares with */
    limits(&r, &c);
    windows(&r, &c);
    profiles(&r, &c);
    all_equal(&r, OMM_ACTIVATIONS_F32, OMM_KV_F32);
    all_equal(&r, OMM_ACTIVATIONS_Q8, OMM_KV_Q8_0);
    rig_close(&r);
    rig_open(&r, OMM_FORMAT_F16);
    takes_int8(&r, &c);
    omm_compute_fini(&c);
    all_equal(&r, OMM_ACTIVATIONS_Q8, OMM_KV_F16);
    rig_close(&r);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

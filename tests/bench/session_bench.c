/* session_bench.c MODEL.gguf [THREADS [f32|cpu|attn]] - what decoding costs: positions in the cache by
 * cache type, an adapter of rank 16 on everything, several sequences at once, sampling.  Prints a table; each
 * figure is the median of its repeats, each percentage that of the ratios within a repeat.  Run it
 * while nothing else runs; with `cpu` and one thread it measures processor time, which other programs
 * disturb less; `f32` adds steps with f32 activations, `attn` leaves the steps out. */
#include "omm/clock.h"
#include "omm/mem.h"
#include "omm/sample.h"
#include "omm/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPEATS = 9, STEP_REPEATS = 41, SEQUENCES = 8, WAYS = 4 };

static omm_compute s_compute;
static omm_model s_model;
static float *s_logits;
static bool s_cpu;

static uint64_t now_ns(void) {
    struct timespec t = {0};
    if (!s_cpu) return omm_measure_ns();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void need(omm_err err) {
    if (err == OMM_OK) return;
    fprintf(stderr, "session_bench: %s\n", omm_err_sentence());
    exit(3);
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median_of(double *values, size_t count) {
    qsort(values, count, sizeof *values, ascending);
    return values[count / 2];
}

static double median(double *values) {
    return median_of(values, REPEATS);
}

/* Attention of one token over all layers, ms; keys and values are made up. */
static double attention_ms(omm_kv_type type, uint32_t positions) {
    const omm_model_dims *d = &s_model.dims;
    const size_t q_width = (size_t)d->heads * d->head_dim,
                 kv_width = (size_t)d->kv_heads * d->head_dim;
    float *q = omm_alloc_aligned(q_width, sizeof *q),
          *out = omm_alloc_aligned(q_width, sizeof *out);
    float *k = omm_alloc_aligned(64 * kv_width, sizeof *k);
    omm_kv *kv = omm_alloc(d->layers, sizeof *kv);
    double ms[REPEATS];
    for (size_t i = 0; i < 64 * kv_width; i++)
        k[i] = (float)(i * 2654435761u % 1000) / 500.0f - 1.0f;
    for (size_t i = 0; i < q_width; i++) q[i] = k[i];
    for (uint32_t i = 0; i < d->layers; i++) {
        need(omm_kv_init(&kv[i], type, d->kv_heads, d->head_dim, positions));
        for (uint32_t p = 0; p < positions; p += 64) omm_kv_store(&s_compute, &kv[i], k, k, 64, p);
    }
    for (int r = 0; r < REPEATS; r++) {
        const uint64_t start = now_ns();
        for (uint32_t i = 0; i < d->layers; i++) {
            omm_attention a = {.out = out,
                               .q = q,
                               .kv = &kv[i],
                               .m = 1,
                               .pos0 = positions - 1,
                               .heads = d->heads,
                               .scale = 0.125f};
            omm_attention_forward(&s_compute, &a);
        }
        ms[r] = (double)(now_ns() - start) / 1e6;
    }
    for (uint32_t i = 0; i < d->layers; i++) omm_kv_fini(&kv[i]);
    omm_free(kv);
    omm_free(k);
    omm_free(q);
    omm_free(out);
    return median(ms);
}

/* The adapter as a file of this type has it: the engine keeps it in as many bytes. */
static void open_stored(omm_adapter **out, const omm_lora *lora, omm_ggml_type type) {
    omm_buf file;
    omm_lora stored;
    double lost = 0.0;
    omm_buf_init(&file, SIZE_MAX / 2);
    need(omm_lora_save_as(&file, &lost, lora, type));
    need(omm_lora_load(&stored, omm_buf_view(&file), &s_model.lora_shape));
    need(omm_adapter_open(out, &s_model, &stored, 1.0f));
    omm_lora_fini(&stored);
    omm_buf_fini(&file);
}

/* Milliseconds of one step of `count` sequences, one token each: plain, with an adapter of f32
 * values, with one stored in BF16, in Q8_0 (B in F16), in turn; and how many times the plain one each took. */
static void steps_ms(double out[WAYS], double ratio[WAYS], size_t count, omm_activations mode) {
    omm_session_options o = {.activations = mode, .batch_max = 64, .positions_max = 256};
    omm_group *g = NULL;
    omm_session *s[SEQUENCES];
    omm_part parts[SEQUENCES];
    omm_lora lora;
    omm_adapter *adapters[WAYS] = {NULL};
    const omm_seed seed = omm_seed_from_u64(1);
    const omm_rng rng = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0);
    const omm_lora_spec spec = {16, 16.0f, OMM_LORA_ALL_TARGETS};
    static const uint32_t ids[16] = {5, 17, 3, 99, 4, 8, 15, 16, 23, 42, 7, 1, 9, 11, 2, 6};
    need(omm_lora_init_random(&lora, &spec, &s_model.lora_shape, &rng));
    for (size_t i = 0; i < lora.value_count; i++) /* B too; within what F16 has */
        lora.values[i] = lora.values[i] != 0.0f ? lora.values[i] : omm_rng_unit(&rng, i) - 0.5f;
    open_stored(&adapters[1], &lora, OMM_GGML_F32);
    open_stored(&adapters[2], &lora, OMM_GGML_BF16);
    open_stored(&adapters[3], &lora, OMM_GGML_Q8_0);
    need(omm_group_open(&g, &s_compute, &s_model, &o));
    double ms[WAYS][STEP_REPEATS], times[WAYS][STEP_REPEATS];
    for (size_t i = 0; i < count; i++) need(omm_session_open_in(&s[i], g));
    for (int r = 0; r < STEP_REPEATS; r++) {
        for (int turn = 0; turn < WAYS; turn++) {
            const int way = r % 2 == 0 ? turn : WAYS - 1 - turn; /* forwards and backwards */
            const omm_adapter *list[] = {adapters[way]};
            for (size_t i = 0; i < count; i++) {
                need(omm_session_set_adapters(s[i], list, way > 0));
                parts[i] = (omm_part){s[i], ids, 16, OMM_LOGITS_LAST};
            }
            need(omm_group_append(g, parts, count, s_logits));
            for (size_t i = 0; i < count; i++) parts[i].count = 1;
            const uint64_t start = now_ns();
            for (int step = 0; step < 4; step++) need(omm_group_append(g, parts, count, s_logits));
            ms[way][r] = (double)(now_ns() - start) / 4e6;
        }
        for (int way = 0; way < WAYS; way++) times[way][r] = ms[way][r] / ms[0][r];
    }
    for (int way = 0; way < WAYS; way++) {
        out[way] = median_of(ms[way], STEP_REPEATS);
        ratio[way] = median_of(times[way], STEP_REPEATS);
    }
    for (size_t i = 0; i < count; i++) omm_session_close(s[i]);
    omm_group_close(g);
    for (int way = 0; way < WAYS; way++) omm_adapter_close(adapters[way]);
    omm_lora_fini(&lora);
}

static double sample_ms(float temperature, uint32_t top_k, float top_p) {
    const uint32_t vocab = s_model.dims.vocab;
    const omm_seed seed = omm_seed_from_u64(1);
    const omm_sampler how = {.temperature = temperature,
                             .top_k = top_k,
                             .top_p = top_p,
                             .rng = omm_rng_init(&seed, OMM_PURPOSE_SAMPLE, 0, 0)};
    double ms[REPEATS];
    for (uint32_t i = 0; i < vocab; i++) s_logits[i] = (float)(i * 2654435761u % 4096) / 200.0f;
    for (int r = 0; r < REPEATS; r++) {
        uint32_t id = 0;
        const uint64_t start = now_ns();
        need(omm_sample(&id, &how, s_logits, vocab, (uint64_t)r));
        ms[r] = (double)(now_ns() - start) / 1e6;
    }
    return median(ms);
}

static void print_steps(omm_activations mode) {
    for (size_t count = 1; count <= SEQUENCES; count *= 8) {
        double ms[WAYS], ratio[WAYS];
        steps_ms(ms, ratio, count, mode);
        printf("%s, %zu sequences: %.2f ms a step, %.1f tokens/s; with rank 16 in f32 %.2f ms "
               "(%+.1f %%), in bf16 %.2f ms (%+.1f %%), in q8_0 %.2f ms (%+.1f %%)\n",
               omm_activations_name(mode), count, ms[0], 1000.0 * (double)count / ms[0], ms[1],
               100.0 * (ratio[1] - 1.0), ms[2], 100.0 * (ratio[2] - 1.0), ms[3],
               100.0 * (ratio[3] - 1.0));
    }
}

int main(int argc, char **argv) {
    omm_gguf gguf;
    omm_isa isa;
    omm_pool *pool = NULL;
    if (argc < 2) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    need(omm_isa_choose(&isa, getenv("OMM_ISA")));
    need(omm_pool_open(&pool, argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : 2));
    need(omm_compute_init(&s_compute, pool, isa));
    need(omm_gguf_open(&gguf, argv[1]));
    need(omm_model_load(&s_model, &gguf));
    omm_gguf_close(&gguf);
    s_logits = omm_alloc_aligned((size_t)SEQUENCES * s_model.dims.vocab, sizeof *s_logits);
    if (!s_logits) return 3;
    s_cpu = argc > 3 && strcmp(argv[3], "cpu") == 0;
    if (!(argc > 3 && strcmp(argv[3], "attn") == 0)) print_steps(OMM_ACTIVATIONS_Q8);
    if (argc > 3 && strcmp(argv[3], "f32") == 0) print_steps(OMM_ACTIVATIONS_F32);
    for (unsigned t = 0; t < OMM_KV_TYPE_COUNT; t++)
        printf("attention of all layers, %s: %.3f ms at 512, %.3f ms at 8192\n",
               omm_kv_type_name((omm_kv_type)t), attention_ms((omm_kv_type)t, 512),
               attention_ms((omm_kv_type)t, 8192));
    printf("sampling: all %.3f ms, top-k 40 %.3f ms, top-p 0.9 %.3f ms\n", sample_ms(1.0f, 0, 1.0f),
           sample_ms(1.0f, 40, 1.0f), sample_ms(1.0f, 0, 0.9f));
    omm_free(s_logits);
    omm_model_fini(&s_model);
    omm_compute_fini(&s_compute);
    omm_pool_close(pool);
    return 0;
}

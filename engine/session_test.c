/* session_test.c - whole models: equal bytes on every instruction set, thread count and batch; the
 * cache; what is refused; running out of memory. */
#include "kernels_battery.h"
#include "tiny_model.h"

#include "omm/mem.h"
#include "omm/session.h"
#include "omm_test.h"

#include <math.h>
#include <string.h>

enum { LENGTH = 150 };

static float s_want[LENGTH * TINY_VOCAB], s_got[LENGTH * TINY_VOCAB];
static uint32_t s_ids[LENGTH];

static omm_err load(omm_model *model, const tiny_options *options) {
    omm_buf file;
    omm_gguf gguf;
    omm_buf_init(&file, 1 << 22);
    tiny_model_write(&file, options);
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
    omm_err err = omm_model_load(model, &gguf);
    omm_gguf_close(&gguf);
    omm_buf_fini(&file);
    return err;
}

static void adapter(omm_lora *lora, const omm_model *model) {
    omm_lora_spec spec = {.rank = 5, .alpha = 10.0f, .targets = OMM_LORA_ALL_TARGETS};
    omm_seed seed = omm_seed_from_u64(1);
    omm_rng rng = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0);
    CHECK_OK(omm_lora_init_random(lora, &spec, &model->lora_shape, &rng));
    float *noise = battery_floats(5, lora->value_count);
    for (size_t i = 0; i < lora->value_count; i++) lora->values[i] += noise[i] * 0.02f;
    omm_free(noise);
}

static void logits_of(float *out, const omm_compute *c, const omm_model *model,
                      const omm_lora *lora, const omm_session_options *options) {
    omm_session *session = NULL;
    CHECK_OK(omm_session_open(&session, c, model, lora, options));
    CHECK_OK(omm_session_append(session, s_ids, LENGTH, out, true));
    omm_session_close(session);
}

/* Everything against plain C, one thread, one batch. */
static uint64_t all_equal(const tiny_options *tiny, omm_activations mode, omm_kv_type kv,
                          bool with_lora) {
    omm_model model;
    omm_lora lora;
    omm_compute c;
    CHECK_OK(load(&model, tiny));
    adapter(&lora, &model);
    omm_session_options options = {.activations = mode, .kv_type = kv, .batch_max = 256};
    CHECK_OK(omm_compute_init(&c, NULL, OMM_ISA_SCALAR));
    logits_of(s_want, &c, &model, with_lora ? &lora : NULL, &options);
    omm_compute_fini(&c);
    static const struct {
        unsigned threads, batch;
    } splits[] = {{1, 256}, {2, 1}, {3, 37}, {8, 64}};
    for (unsigned isa = 0; isa < OMM_ISA_COUNT; isa++) {
        if (!omm_isa_available((omm_isa)isa)) continue;
        for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
            const unsigned threads = splits[i].threads;
            if (isa == OMM_ISA_SCALAR && threads != 2) continue;
            omm_pool *pool = NULL;
            CHECK_OK(omm_pool_open(&pool, threads));
            CHECK_OK(omm_compute_init(&c, pool, (omm_isa)isa));
            options.batch_max = splits[i].batch;
            logits_of(s_got, &c, &model, with_lora ? &lora : NULL, &options);
            if (battery_hash(s_want, sizeof s_want) != battery_hash(s_got, sizeof s_got)) {
                fprintf(stderr, "%s, %s, %s, %u threads, batch %u, lora %d: logits differ\n",
                        omm_format_name(tiny->format), omm_activations_name(mode),
                        omm_isa_name((omm_isa)isa), threads, options.batch_max, with_lora);
                exit(1);
            }
            omm_compute_fini(&c);
            omm_pool_close(pool);
        }
    }
    omm_lora_fini(&lora);
    omm_model_fini(&model);
    return battery_hash(s_want, sizeof s_want);
}

/* The same bytes from every compiler and processor: these were made with gcc 12 on x86-64. */
static void goldens(void) {
    static const uint64_t want[TINY_FORMATS][2] = {{0x5ffeaf9b552b1c67, 0x2bf6b2c2de048e86},
                                                   {0xad790f6da25630b3, 0xe3b1d4ee6ea944e4},
                                                   {0xed8c031ca0cccc99, 0xdc90c7318cae77ee},
                                                   {0xc2d536c831b94210, 0xf75a3b5def865b38}};
    bool same = true;
    for (unsigned f = 0; f < TINY_FORMATS; f++) {
        tiny_options tiny = {.format = (omm_format)f, .untied = f % 2 == 0};
        uint64_t a = all_equal(&tiny, OMM_ACTIVATIONS_F32, OMM_KV_F32, f % 2 == 1);
        uint64_t b = all_equal(&tiny, OMM_ACTIVATIONS_Q8, OMM_KV_F16, f % 2 == 0);
        printf("%s {0x%016" PRIx64 ", 0x%016" PRIx64 "},\n", omm_format_name((omm_format)f), a, b);
        same = same && a == want[f][0] && b == want[f][1];
    }
    CHECK(same);
}

static void activation_names(void) {
    for (int a = 0; a < 2; a++) {
        omm_activations parsed = (omm_activations)(1 - a);
        CHECK_OK(omm_activations_parse(&parsed, a ? "q8" : "f32"));
        CHECK_EQ(parsed, a ? OMM_ACTIVATIONS_Q8 : OMM_ACTIVATIONS_F32);
        CHECK(strcmp(omm_activations_name(parsed), a ? "q8" : "f32") == 0);
        CHECK_ERR(omm_activations_parse(&parsed, a ? "q8_0" : ""), OMM_ERR_CONFIG);
    }
}

static void cache_and_limits(const omm_compute *c) {
    omm_model model;
    omm_session *s = NULL;
    double sum = 0.0, byhand = 0.0;
    float each[LENGTH];
    CHECK_OK(load(&model, &(tiny_options){.format = OMM_FORMAT_Q8_0}));
    CHECK_OK(omm_session_open(&s, c, &model, NULL, NULL));
    CHECK_EQ(omm_session_positions_max(s), TINY_CONTEXT);
    CHECK_ERR(omm_session_append(s, (uint32_t[]){0, TINY_VOCAB}, 2, NULL, false), OMM_ERR_FORMAT);
    CHECK_EQ(omm_session_position(s), 0);
    /* Its last id is never appended, and has to be one all the same. */
    CHECK_ERR(omm_session_nll(&sum, NULL, s, (uint32_t[]){0, 1, TINY_VOCAB}, 3), OMM_ERR_FORMAT);
    CHECK_EQ(omm_session_position(s), 0);
    CHECK_OK(omm_session_nll(&sum, each, s, s_ids, LENGTH));
    CHECK_EQ(omm_session_position(s), LENGTH - 1);
    CHECK_ERR(omm_session_nll(&sum, NULL, s, s_ids, LENGTH), OMM_ERR_STATE);
    omm_session *pieces = NULL; /* in batches of any size the same, to the bit */
    double sum_of_pieces = 0.0;
    float each_of_pieces[LENGTH];
    CHECK_OK(omm_session_open(&pieces, c, &model, NULL, &(omm_session_options){.batch_max = 37}));
    CHECK_OK(
        omm_session_nll(&sum_of_pieces, each_of_pieces, pieces, s_ids, 75)); /* 2 * 37 of them */
    omm_session_truncate(pieces, 0);
    CHECK_OK(omm_session_nll(&sum_of_pieces, each_of_pieces, pieces, s_ids, LENGTH));
    CHECK(sum_of_pieces == sum && same_bytes(each_of_pieces, each, (LENGTH - 1) * sizeof *each));
    omm_session_close(pieces);
    /* Going back and on again changes nothing, whatever was in the cache. */
    omm_session_truncate(s, 0);
    CHECK_OK(omm_session_append(s, s_ids, LENGTH, s_want, true));
    omm_session_truncate(s, 61);
    CHECK_OK(omm_session_append(s, (uint32_t[]){5, 6, 7, 8, 9}, 5, NULL, false));
    omm_session_truncate(s, 61);
    CHECK_OK(omm_session_append(s, s_ids + 61, LENGTH - 61, s_got, true));
    const size_t rest = (size_t)(LENGTH - 61) * TINY_VOCAB * sizeof *s_got;
    CHECK(battery_hash(s_want + (size_t)61 * TINY_VOCAB, rest) == battery_hash(s_got, rest));
    for (int i = 0; i + 1 < LENGTH; i++) {
        double total = 0.0;
        const float *l = s_want + (size_t)i * TINY_VOCAB;
        for (int j = 0; j < TINY_VOCAB; j++) total += exp((double)l[j]);
        byhand += log(total) - (double)l[s_ids[i + 1]];
        CHECK(fabs((double)each[i] - (log(total) - (double)l[s_ids[i + 1]])) < 1e-5);
    }
    CHECK(fabs(byhand - sum) < 1e-3);
    CHECK_ERR(omm_session_append(s, s_ids, TINY_CONTEXT - LENGTH + 1, NULL, false),
              OMM_ERR_TOO_BIG);
    CHECK_EQ(omm_session_position(s), LENGTH);
    CHECK_OK(omm_session_append(s, s_ids, TINY_CONTEXT - LENGTH, s_got, false));
    CHECK_ERR(omm_session_append(s, s_ids, 1, NULL, false), OMM_ERR_TOO_BIG);
    omm_session_close(s);
    omm_session_options o = omm_session_options_default();
    o.positions_max = TINY_CONTEXT + 1;
    CHECK_ERR(omm_session_open(&s, c, &model, NULL, &o), OMM_ERR_TOO_BIG);
    o.positions_max = 64;
    o.batch_max = 0;
    CHECK_ERR(omm_session_open(&s, c, &model, NULL, &o), OMM_ERR_CONFIG);
    omm_lora lora;
    omm_lora_shape other = model.lora_shape;
    other.d_in[OMM_LORA_DOWN] += 1;
    omm_lora_spec spec = {.rank = 2, .alpha = 1.0f, .targets = 1u << OMM_LORA_Q};
    CHECK_OK(omm_lora_init(&lora, &spec, &other));
    CHECK_ERR(omm_session_open(&s, c, &model, &lora, NULL), OMM_ERR_REFUSED_SHAPE);
    omm_lora_fini(&lora);
    CHECK_OK(omm_lora_init(&lora, &spec, &model.lora_shape));
    lora.values[3] = NAN;
    CHECK_ERR(omm_session_open(&s, c, &model, &lora, NULL), OMM_ERR_NUMERIC);
    /* Values that overflow inside are found in the logits. */
    for (size_t i = 0; i < lora.value_count; i++) lora.values[i] = 3e38f;
    CHECK_OK(omm_session_open(&s, c, &model, &lora, NULL));
    CHECK_ERR(omm_session_nll(&sum, NULL, s, s_ids, 3), OMM_ERR_NUMERIC);
    CHECK_ERR(omm_session_append(s, s_ids, 3, s_got, true), OMM_ERR_NUMERIC);
    omm_session_close(s);
    omm_lora_fini(&lora);
    omm_model_fini(&model);
}

static void refused(const tiny_options *options, omm_err want, const char *part) {
    omm_model model;
    CHECK_ERR(load(&model, options), want);
    if (strstr(omm_err_sentence(), part)) return;
    fprintf(stderr, "'%s' does not say '%s'\n", omm_err_sentence(), part);
    exit(1);
}

static void refusals(void) {
    refused(&(tiny_options){.architecture = "mamba"}, OMM_ERR_UNSUPPORTED, "'mamba'");
    refused(&(tiny_options){.skip = "general.architecture"}, OMM_ERR_NOT_FOUND, "architecture");
    refused(&(tiny_options){.skip = "llama.block_count"}, OMM_ERR_NOT_FOUND, "llama.block_count");
    refused(&(tiny_options){.skip = "blk.1.ffn_up.weight"}, OMM_ERR_NOT_FOUND, "blk.1.ffn_up");
    refused(&(tiny_options){.skip = "output_norm.weight"}, OMM_ERR_NOT_FOUND, "output_norm");
    refused(&(tiny_options){.skip = "token_embd.weight"}, OMM_ERR_NOT_FOUND, "token_embd");
    refused(&(tiny_options){.extra = "blk.0.attn_q.bias"}, OMM_ERR_UNSUPPORTED, "attn_q.bias");
    refused(&(tiny_options){.extra = "blk.0.attn_sinks.weight"}, OMM_ERR_UNSUPPORTED, "attn_sinks");
    refused(&(tiny_options){.extra = "blk.9.attn_norm.weight"}, OMM_ERR_UNSUPPORTED, "blk.9");
    refused(&(tiny_options){.narrow = "blk.0.attn_k.weight"}, OMM_ERR_MISMATCH, "blk.0.attn_k");
    refused(&(tiny_options){.architecture = "mamba"}, OMM_ERR_UNSUPPORTED, "llama, qwen2, qwen3");
    refused(&(tiny_options){.scaling = "su"}, OMM_ERR_UNSUPPORTED, "'su'");
    refused(&(tiny_options){.scaling = "longrope"}, OMM_ERR_UNSUPPORTED, "'longrope'");
    refused(&(tiny_options){.scaling = "yarn"}, OMM_ERR_NOT_FOUND, "rope.scaling.factor");
    refused(&(tiny_options){.nan = "output_norm.weight"}, OMM_ERR_NUMERIC, "output_norm");
    for (unsigned f = 0; f < TINY_FORMATS; f++) {
        tiny_options o = {.format = (omm_format)f, .nan = "blk.1.attn_v.weight"};
        refused(&o, OMM_ERR_NUMERIC, "blk.1.attn_v");
    }
    static const struct {
        const char *key;
        uint32_t value;
        omm_err want;
    } keys[] = {{"llama.block_count", 0, OMM_ERR_TOO_BIG},
                {"llama.block_count", 513, OMM_ERR_TOO_BIG},
                {"llama.block_count", 3, OMM_ERR_NOT_FOUND},
                {"llama.block_count", 1, OMM_ERR_UNSUPPORTED},
                {"llama.embedding_length", UINT32_MAX, OMM_ERR_TOO_BIG},
                {"llama.embedding_length", 64, OMM_ERR_MISMATCH},
                {"llama.attention.head_count", 3, OMM_ERR_UNSUPPORTED},
                {"llama.attention.head_count", 0, OMM_ERR_TOO_BIG},
                {"llama.attention.head_count", 1, OMM_ERR_TOO_BIG},
                {"llama.attention.head_count_kv", 5, OMM_ERR_TOO_BIG},
                {"llama.context_length", 0, OMM_ERR_TOO_BIG},
                {"llama.rope.dimension_count", 13, OMM_ERR_UNSUPPORTED},
                {"llama.rope.dimension_count", 26, OMM_ERR_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        tiny_options o = {.key = keys[i].key, .value = keys[i].value};
        omm_model model;
        CHECK_ERR(load(&model, &o), keys[i].want);
    }
}

static void out_of_memory(const omm_compute *c) {
    omm_buf file;
    omm_gguf gguf;
    omm_buf_init(&file, 1 << 22);
    tiny_model_write(&file, &(tiny_options){.format = OMM_FORMAT_F16, .untied = true});
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
    const size_t live = omm_mem_live();
    omm_model model;
    omm_err err = OMM_ERR_NOMEM;
    for (size_t n = 1; err != OMM_OK; n++) {
        omm_mem_fail_nth(n);
        err = omm_model_load(&model, &gguf);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
        if (err != OMM_OK) CHECK_EQ(omm_mem_live(), live);
    }
    omm_lora lora;
    adapter(&lora, &model);
    const size_t loaded = omm_mem_live();
    omm_session_options o = {.activations = OMM_ACTIVATIONS_Q8, .batch_max = 8};
    err = OMM_ERR_NOMEM;
    for (size_t n = 1; err != OMM_OK; n++) {
        omm_session *s = NULL;
        omm_mem_fail_nth(n);
        err = omm_session_open(&s, c, &model, &lora, &o);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
        if (err == OMM_OK) CHECK_OK(omm_session_append(s, s_ids, 9, s_got, false));
        if (err == OMM_OK) omm_session_close(s);
        CHECK_EQ(omm_mem_live(), loaded);
    }
    omm_lora_fini(&lora);
    omm_model_fini(&model);
    omm_gguf_close(&gguf);
    omm_buf_fini(&file);
}

/* A model file with one byte changed loads or is refused, and what loads can be run. */
static void damaged(const omm_compute *c) {
    omm_buf file;
    omm_buf_init(&file, 1 << 22);
    tiny_model_write(&file, &(tiny_options){.format = OMM_FORMAT_Q4_0});
    const size_t head = 3000; /* keys and tensor infos, then some data */
    for (size_t i = 0; i < head; i += 3) {
        const uint8_t old = file.data[i];
        file.data[i] = (uint8_t)(old ^ (i % 2 ? 0x80u : 1u << i % 7));
        omm_gguf gguf;
        omm_model model;
        omm_session *s = NULL;
        if (omm_gguf_open_bytes(&gguf, omm_buf_view(&file)) == OMM_OK) {
            if (omm_model_load(&model, &gguf) == OMM_OK) {
                omm_session_options o = {.positions_max = 2, .batch_max = 2};
                if (omm_session_open(&s, c, &model, NULL, &o) == OMM_OK) {
                    omm_err err = omm_session_append(s, s_ids, 2, s_got, true);
                    CHECK(err == OMM_OK || err == OMM_ERR_NUMERIC);
                    omm_session_close(s);
                }
                omm_model_fini(&model);
            }
            omm_gguf_close(&gguf);
        }
        file.data[i] = old;
    }
    omm_buf_fini(&file);
}

/* Loading by three threads gives the same strips. */
static void loaded_by_threads(void) {
    omm_model one, three;
    omm_buf file;
    omm_gguf gguf;
    omm_pool *pool = NULL;
    omm_buf_init(&file, 1 << 22);
    tiny_model_write(&file, &(tiny_options){.format = OMM_FORMAT_Q4_0});
    CHECK_OK(omm_pool_open(&pool, 3));
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
    CHECK_OK(omm_model_load(&one, &gguf));
    CHECK_OK(omm_model_load_with(&three, pool, &gguf));
    CHECK(three.pool == NULL);
    omm_gguf_close(&gguf);
    for (uint32_t i = 0; i < one.dims.layers; i++)
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
            const omm_matrix *a = &one.layers[i].weights[t], *b = &three.layers[i].weights[t];
            CHECK(memcmp(a->data, b->data, omm_matrix_bytes(a)) == 0);
        }
    omm_model_fini(&one);
    omm_model_fini(&three);
    omm_pool_close(pool);
    omm_buf_fini(&file);
}

int main(void) {
    omm_compute c;
    omm_isa isa;
    for (uint32_t i = 0; i < LENGTH; i++) s_ids[i] = i * i * 7 % TINY_VOCAB;
    CHECK_OK(omm_isa_choose(&isa, NULL));
    CHECK_OK(omm_compute_init(&c, NULL, isa));
    activation_names();
    cache_and_limits(&c);
    refusals();
    out_of_memory(&c);
    damaged(&c);
    loaded_by_threads();
    omm_compute_fini(&c);
    goldens();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

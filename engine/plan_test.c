/* plan_test.c - plans against what is really asked for, piece by piece, and what is chosen to fit. */
#include "omm/plan.h"

#include "adapter_internal.h"
#include "kernels_battery.h"
#include "omm/mem.h"
#include "omm_test.h"
#include "tiny_arch.h"
#include "tiny_model.h"

#include <stdlib.h>
#include <string.h>

/* Structs and rounding of blocks to 64 bytes, which plans leave out. */
static const uint64_t SMALL_BYTES = 8192;

static omm_buf s_file;
static omm_gguf s_gguf;

static void open_model(omm_format format, bool untied) {
    omm_buf_init(&s_file, SIZE_MAX / 2);
    const tiny_options o = {.format = format, .untied = untied};
    tiny_model_write(&s_file, &o);
    CHECK_OK(omm_gguf_open_bytes(&s_gguf, omm_buf_view(&s_file)));
}

static void close_model(void) {
    omm_gguf_close(&s_gguf);
    omm_buf_fini(&s_file);
}

static void near(uint64_t planned, uint64_t asked) {
    if (asked >= planned && asked - planned <= SMALL_BYTES) return;
    fprintf(stderr, "planned %llu, asked for %llu\n", (unsigned long long)planned,
            (unsigned long long)asked);
    CHECK(false);
}

/* A session of `o` filled to its last position, on one thread. */
static void run(const omm_model *model, const omm_session_options *o, const omm_plan *plan) {
    omm_compute c;
    omm_session *s = NULL;
    uint32_t ids[TINY_CONTEXT] = {0};
    size_t before = omm_mem_asked();
    CHECK_OK(omm_compute_init(&c, NULL, OMM_ISA_SCALAR));
    CHECK_OK(omm_session_open(&s, &c, model, NULL, o));
    CHECK_OK(omm_session_append(s, ids, plan->session.positions_max, NULL, false));
    near(plan->cache + plan->work, omm_mem_asked() - before);
    omm_session_close(s);
    omm_compute_fini(&c);
}

static void test_as_asked(void) {
    for (unsigned i = 0; i < 2 * TINY_FORMATS; i++) {
        open_model((omm_format)(i / 2), i % 2 == 1);
        omm_model model;
        CHECK_OK(omm_model_load(&model, &s_gguf));
        for (unsigned kv = 0; kv < OMM_KV_TYPE_COUNT; kv++) {
            omm_plan plan;
            omm_plan_options o = {.session = omm_session_options_default(), .threads = 1};
            o.session.kv_type = (omm_kv_type)kv;
            o.session.activations = (omm_activations)(kv % 2);
            o.session.batch_max = 7 + 30 * kv;
            o.session.positions_max = 150 * (kv % 2);
            CHECK_OK(omm_plan_make(&plan, &s_gguf, NULL, 0, &o));
            CHECK_EQ(plan.session.positions_max, kv % 2 ? 150 : TINY_CONTEXT);
            CHECK_EQ(plan.weights, model.weight_bytes + model.vector_bytes);
            run(&model, &o.session, &plan);
            const uint64_t rest = plan.cache + plan.work;
            CHECK_EQ(plan.total, plan.program + plan.weights + plan.vocabulary +
                                     (rest > plan.loading ? rest : plan.loading));
            o.lexicon = true;
            const uint64_t vocabulary = plan.vocabulary;
            CHECK_OK(omm_plan_make(&plan, &s_gguf, NULL, 0, &o));
            CHECK_EQ(plan.vocabulary - vocabulary, 2 * s_gguf.data_offset);
            o.logit_rows = 3;
            const uint64_t work = plan.work;
            CHECK_OK(omm_plan_make(&plan, &s_gguf, NULL, 0, &o));
            CHECK_EQ(plan.work - work, 3 * TINY_VOCAB * 4);
        }
        omm_model_fini(&model);
        close_model();
    }
}

/* The outline says what loading makes, and refuses what it refuses. */
static void test_outline(void) {
    for (unsigned i = 0; i < 2 * TINY_FORMATS; i++) {
        open_model((omm_format)(i / 2), i % 2 == 1);
        omm_model model, outline;
        CHECK_OK(omm_model_load(&model, &s_gguf));
        CHECK_OK(omm_model_outline(&outline, &s_gguf));
        CHECK_EQ(outline.weight_bytes, model.weight_bytes);
        CHECK_EQ(outline.vector_bytes, model.vector_bytes);
        CHECK(!outline.embed.data && !outline.output_norm && !outline.layers[1].attn_norm);
        CHECK_EQ(outline.layers[1].weights[OMM_LORA_DOWN].strip_bytes,
                 model.layers[1].weights[OMM_LORA_DOWN].strip_bytes);
        omm_model_fini(&outline);
        omm_model_fini(&model);
        close_model();
    }
    static const tiny_options bad[] = {{.skip = "blk.1.ffn_up.weight"},
                                       {.extra = "blk.0.attn_q.bias"},
                                       {.narrow = "blk.0.ffn_gate.weight"},
                                       {.architecture = "none"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        omm_buf_init(&s_file, SIZE_MAX / 2);
        tiny_model_write(&s_file, &bad[i]);
        CHECK_OK(omm_gguf_open_bytes(&s_gguf, omm_buf_view(&s_file)));
        omm_model model, outline;
        CHECK_EQ(omm_model_outline(&outline, &s_gguf), omm_model_load(&model, &s_gguf));
        CHECK(omm_model_outline(&outline, &s_gguf) != OMM_OK);
        close_model();
    }
}

static omm_plan fitted(const omm_plan_options *o, uint64_t most) {
    omm_plan plan;
    CHECK_OK(omm_plan_fit(&plan, &s_gguf, NULL, 0, o, most));
    CHECK(plan.total <= most);
    return plan;
}

/* Every limit from all down to nothing: types fall first, then positions, both never rise again. */
static void test_fit(void) {
    open_model(OMM_FORMAT_Q8_0, false);
    omm_plan_options o = {.session = omm_session_options_default(), .threads = 1};
    o.session.batch_max = 1;
    o.positions_min = 70;
    omm_plan full, last;
    CHECK_OK(omm_plan_make(&full, &s_gguf, NULL, 0, &o));
    CHECK(full.total > full.loading + full.program + full.weights + full.vocabulary);
    CHECK_EQ(full.loading, TINY_FF * TINY_WIDTH / 32 * 34); /* the largest of a layer */
    o.stream = OMM_PLAN_STREAM_FIRST;
    CHECK_OK(omm_plan_make(&last, &s_gguf, NULL, 0, &o));
    CHECK_EQ(last.loading, TINY_VOCAB * TINY_WIDTH / 32 * 34); /* the embedding */
    o.stream = OMM_PLAN_STREAM_NEVER;
    last = fitted(&o, full.total);
    CHECK(last.session.kv_type == OMM_KV_F32 && last.session.positions_max == TINY_CONTEXT);
    CHECK_EQ(last.session.rope_positions, 0); /* longrope's factors go with what is chosen */
    bool seen[OMM_KV_TYPE_COUNT] = {true};
    uint64_t most = full.total - 1;
    for (omm_plan p; omm_plan_fit(&p, &s_gguf, NULL, 0, &o, most) == OMM_OK; most -= 512) {
        CHECK(p.total <= most && p.session.kv_type >= last.session.kv_type);
        CHECK(p.session.positions_max <= last.session.positions_max);
        if (p.session.positions_max < TINY_CONTEXT) {
            CHECK(p.session.kv_type == OMM_KV_Q8_0);
            CHECK(p.session.positions_max % OMM_KV_BLOCK == 0 || p.session.positions_max == 70);
        }
        seen[p.session.kv_type] = true;
        last = p;
    }
    CHECK(seen[OMM_KV_F16] && seen[OMM_KV_Q8_0]);
    CHECK_EQ(last.session.positions_max, 70);
    CHECK(strstr(omm_err_sentence(), "70 positions, q8_0") != NULL);
    omm_plan kept = last;
    CHECK_ERR(omm_plan_fit(&kept, &s_gguf, NULL, 0, &o, 1), OMM_ERR_CONFIG);
    CHECK(same_bytes(&kept, &last, sizeof kept));
    const char *least = strstr(omm_err_sentence(), "the least is ");
    CHECK(least != NULL); /* what it says would do, does, and not a megabyte less */
    const uint64_t would_do = strtoull(least + strlen("the least is "), NULL, 10) * 1000000;
    CHECK_OK(omm_plan_fit(&kept, &s_gguf, NULL, 0, &o, would_do));
    CHECK_ERR(omm_plan_fit(&kept, &s_gguf, NULL, 0, &o, would_do - 1000000), OMM_ERR_CONFIG);
    o.beside = 5000001;
    CHECK_ERR(omm_plan_fit(&kept, &s_gguf, NULL, 0, &o, 1), OMM_ERR_CONFIG);
    least = strstr(omm_err_sentence(), "the least is ");
    CHECK(least != NULL && strstr(least, " MB with that (") != NULL);
    const uint64_t for_both = strtoull(least + strlen("the least is "), NULL, 10) * 1000000;
    CHECK_OK(omm_plan_fit(&kept, &s_gguf, NULL, 0, &o, for_both - o.beside));
    CHECK_ERR(omm_plan_fit(&kept, &s_gguf, NULL, 0, &o, for_both - 1000000 - o.beside),
              OMM_ERR_CONFIG);
    o.beside = 0;
    for (o.keeps_kv = true; o.session.kv_type < OMM_KV_TYPE_COUNT; o.session.kv_type++) {
        CHECK_OK(omm_plan_make(&kept, &s_gguf, NULL, 0, &o));
        last = fitted(&o, kept.total - 1);
        CHECK(last.session.kv_type == o.session.kv_type &&
              last.session.positions_max < TINY_CONTEXT);
    }
    o.keeps_kv = false;
    o.session.kv_type = OMM_KV_F32;
    o.session.positions_max = 60; /* less than would be kept */
    CHECK_EQ(fitted(&o, full.total).session.positions_max, 60);
    CHECK_ERR(omm_plan_fit(&kept, &s_gguf, NULL, 0, &o, 1), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "60 positions, q8_0") != NULL);
    o.session.positions_max = TINY_CONTEXT + 1;
    CHECK_ERR(omm_plan_fit(&kept, &s_gguf, NULL, 0, &o, full.total), OMM_ERR_TOO_BIG);
    close_model();
}

/* A limit does not choose a cache that is refused. */
static void test_narrow_heads(void) {
    static const uint32_t dims[] = {8, 14, 16};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        const tiny_arch arch = {.name = "llama", .head_dim = dims[i]};
        omm_plan_options o = {.session = omm_session_options_default(), .threads = 1};
        omm_plan halves;
        const bool narrow = dims[i] < OMM_KV_Q8_0_DIM_MIN;
        omm_buf_init(&s_file, SIZE_MAX / 2);
        tiny_arch_write(&s_file, &arch);
        CHECK_OK(omm_gguf_open_bytes(&s_gguf, omm_buf_view(&s_file)));
        o.session.kv_type = OMM_KV_F16;
        CHECK_OK(omm_plan_make(&halves, &s_gguf, NULL, 0, &o));
        const omm_plan less = fitted(&o, halves.total - 1);
        CHECK_EQ(less.session.kv_type, narrow ? OMM_KV_F16 : OMM_KV_Q8_0);
        CHECK(narrow == (less.session.positions_max < halves.session.positions_max));
        o.session.kv_type = OMM_KV_Q8_0;
        CHECK_EQ(omm_plan_make(&halves, &s_gguf, NULL, 0, &o), narrow ? OMM_ERR_CONFIG : OMM_OK);
        close_model();
    }
}

/* What just fits is found, and with a byte less what comes before it. */
static void test_exact_fit(void) {
    enum { CONTEXT = 2000, LEAST = 70 };
    omm_plan_options o = {.session = omm_session_options_default(), .threads = 1};
    o.session.batch_max = 1;
    o.positions_min = LEAST;
    omm_buf_init(&s_file, SIZE_MAX / 2);
    tiny_model_write(&s_file, &(tiny_options){.format = OMM_FORMAT_Q8_0,
                                              .key = "llama.context_length",
                                              .value = CONTEXT});
    CHECK_OK(omm_gguf_open_bytes(&s_gguf, omm_buf_view(&s_file)));
    for (uint32_t positions = 128, before = LEAST; positions < CONTEXT; positions += 64) {
        omm_plan_options exact = o;
        omm_plan p;
        exact.session.kv_type = OMM_KV_Q8_0;
        exact.session.positions_max = positions;
        CHECK_OK(omm_plan_make(&p, &s_gguf, NULL, 0, &exact));
        CHECK_EQ(fitted(&o, p.total).session.positions_max, positions);
        CHECK_EQ(fitted(&o, p.total - 1).session.positions_max, before);
        before = positions;
    }
    close_model();
}

/* Streaming: all layers, or what does not fit.  What is asked for is what was planned. */
static void test_streaming(void) {
    open_model(OMM_FORMAT_Q8_0, true);
    omm_plan whole, plan;
    omm_plan_options o = {.session = omm_session_options_default(), .threads = 1};
    o.session.batch_max = 7;
    CHECK_OK(omm_plan_make(&whole, &s_gguf, NULL, 0, &o));
    CHECK(whole.layers == TINY_LAYERS && whole.resident == TINY_LAYERS && whole.streaming == 0);
    o.stream = OMM_PLAN_STREAM_FIRST;
    for (uint32_t resident = 0; resident < TINY_LAYERS; resident++) {
        omm_model model;
        CHECK_OK(omm_model_load_streamed(&model, NULL, &s_gguf, resident));
        if (resident == 0)
            CHECK_OK(omm_plan_make(&plan, &s_gguf, NULL, 0, &o));
        else /* one layer and what it takes to stream it is more than the layer */
            plan = fitted(&o, whole.total - 1);
        if (plan.resident == resident)
            CHECK_EQ(plan.weights, model.weight_bytes + model.vector_bytes);
        omm_plan without = plan;
        const uint64_t largest = (uint64_t)TINY_FF * TINY_WIDTH / 32 * 34;
        CHECK(plan.streaming > largest);
        without.work += plan.streaming - largest; /* pages of the file are not asked for */
        run(&model, &o.session, &without);
        omm_model_fini(&model);
    }
    const uint64_t layer = (whole.weights - plan.weights) / TINY_LAYERS;
    CHECK(plan.resident == 0 && plan.weights < whole.weights && layer > 0);
    CHECK_EQ(plan.total, plan.program + plan.weights + plan.vocabulary + plan.cache + plan.work +
                             plan.streaming);
    close_model();
}

/* How far from what was asked: with FIRST, caches and positions are the last to be lowered; with LAST,
 * layers are streamed when these are at their least, and then they begin anew. */
static uint64_t lowered(const omm_plan *p, omm_plan_stream mode) {
    const bool streamed = mode == OMM_PLAN_STREAM_LAST && p->resident < p->layers;
    return ((uint64_t)streamed << 48) + ((uint64_t)p->session.kv_type << 40) +
           ((uint64_t)(TINY_CONTEXT - p->session.positions_max) << 8) + (p->layers - p->resident);
}

/* Every limit from all down to nothing. */
static void test_fit_streaming(void) {
    open_model(OMM_FORMAT_Q8_0, false);
    omm_plan_options o = {.session = omm_session_options_default(), .threads = 1};
    omm_plan full, least[3], p;
    o.session.batch_max = 1;
    o.positions_min = 70;
    CHECK_OK(omm_plan_make(&full, &s_gguf, NULL, 0, &o));
    for (unsigned mode = 0; mode < 3; mode++) {
        o.stream = (omm_plan_stream)mode;
        uint64_t most = full.total, last = 0;
        bool seen[TINY_LAYERS + 1] = {0};
        for (; omm_plan_fit(&p, &s_gguf, NULL, 0, &o, most) == OMM_OK; most -= 4096) {
            CHECK(p.total <= most && lowered(&p, o.stream) >= last);
            last = lowered(&p, o.stream);
            seen[p.resident] = true;
            least[mode] = p;
        }
        CHECK(seen[TINY_LAYERS] && seen[0] == (mode != OMM_PLAN_STREAM_NEVER));
        CHECK_ERR(omm_plan_fit(&p, &s_gguf, NULL, 0, &o, most), OMM_ERR_CONFIG);
        CHECK(strstr(omm_err_sentence(), mode == OMM_PLAN_STREAM_NEVER ? "MB (weights" : "0 of 2"));
        CHECK(least[mode].session.positions_max == 70 &&
              least[mode].session.kv_type == OMM_KV_Q8_0);
    }
    CHECK(least[1].resident == 0 && least[2].resident == 0);
    CHECK(least[1].total == least[2].total && least[1].total < least[0].total);
    close_model();
}

/* What rows of a batch take beside an adapter that is applied to them. */
static size_t applied_bytes(const omm_model *model, const omm_adapter *adapter,
                            uint32_t batch_max) {
    omm_session_options o = omm_session_options_default();
    omm_session *s = NULL;
    omm_compute c;
    o.batch_max = batch_max;
    CHECK_OK(omm_compute_init(&c, NULL, OMM_ISA_SCALAR));
    CHECK_OK(omm_session_open(&s, &c, model, NULL, &o));
    const size_t before = omm_mem_asked();
    CHECK_OK(omm_session_set_adapters(s, &adapter, 1));
    const size_t asked = omm_mem_asked() - before;
    omm_session_close(s);
    omm_compute_fini(&c);
    return asked;
}

static void test_adapters(void) {
    open_model(OMM_FORMAT_F32, false);
    omm_model model;
    omm_lora lora;
    omm_adapter *adapter = NULL;
    omm_buf file;
    omm_gguf gguf;
    const omm_lora_spec spec = {.rank = 5, .alpha = 8.0f, .targets = OMM_LORA_ALL_TARGETS};
    CHECK_OK(omm_model_load(&model, &s_gguf));
    CHECK_OK(omm_lora_init(&lora, &spec, &model.lora_shape));
    omm_buf_init(&file, SIZE_MAX / 2);
    CHECK_OK(omm_lora_save(&file, &lora));
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
    const omm_gguf *list[] = {&gguf, &gguf};
    omm_plan none, one, two, wide;
    omm_plan_options o = {.session = omm_session_options_default(), .threads = 1};
    CHECK_OK(omm_plan_make(&none, &s_gguf, NULL, 0, &o));
    CHECK_OK(omm_plan_make(&one, &s_gguf, list, 1, &o));
    CHECK_OK(omm_plan_make(&two, &s_gguf, list, 2, &o));
    CHECK(none.adapters == 0 && one.cache == none.cache && one.work == none.work);
    CHECK(two.adapters > one.adapters && two.adapters < 2 * one.adapters);
    CHECK_OK(omm_adapter_open(&adapter, &model, &lora, 1.0f));
    const size_t applied = applied_bytes(&model, adapter, o.session.batch_max);
    o.session.batch_max = 8192;
    CHECK_OK(omm_plan_make(&wide, &s_gguf, list, 1, &o));
    near(wide.adapters - one.adapters, applied_bytes(&model, adapter, 8192) - applied);
    omm_adapter_close(adapter);
    omm_lora_fini(&lora);
    omm_gguf_close(&gguf);
    omm_buf_fini(&file);
    omm_model_fini(&model);
    close_model();
}

static uint64_t packed_of(const omm_adapter *adapter) {
    uint64_t packed = 0;
    for (uint32_t l = 0; l < adapter->layer_count; l++) {
        for (unsigned j = 0; j < ADAPTER_INPUT_COUNT; j++)
            packed += omm_matrix_bytes(&adapter->layers[l].a[j]);
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
            packed += omm_matrix_bytes(&adapter->layers[l].b[t]);
    }
    return packed;
}

enum { NOISE_RANK = 64 };

/* A model, and an adapter whose values no type of less than 32 bits has. */
static void open_noise(omm_model *model, omm_lora *lora) {
    const omm_lora_spec spec = {.rank = NOISE_RANK, .alpha = 8.0f, .targets = OMM_LORA_ALL_TARGETS};
    const omm_seed seed = omm_seed_from_u64(3);
    const omm_rng rng = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0);
    open_model(OMM_FORMAT_Q8_0, false);
    CHECK_OK(omm_model_load(model, &s_gguf));
    CHECK_OK(omm_lora_init(lora, &spec, &model->lora_shape));
    for (size_t i = 0; i < lora->value_count; i++) lora->values[i] = omm_rng_unit(&rng, i) - 0.5f;
}

/* What is planned for an adapter is what its matrices take as they are packed, whatever type its file has;
 * its values are counted while it is read, once for several. */
static void test_adapter_types(void) {
    static const omm_ggml_type types[] = {OMM_GGML_F32, OMM_GGML_F16, OMM_GGML_BF16, OMM_GGML_Q8_0};
    omm_model model;
    omm_lora lora, read;
    open_noise(&model, &lora);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        omm_adapter *adapter = NULL;
        omm_buf file;
        omm_gguf gguf;
        double lost = 0.0;
        omm_plan one, two;
        const omm_gguf *list[] = {&gguf, &gguf};
        omm_plan_options o = {.session = omm_session_options_default(), .threads = 1};
        o.session.batch_max = 1;
        omm_buf_init(&file, SIZE_MAX / 2);
        CHECK_OK(omm_lora_save_as(&file, &lost, &lora, types[i]));
        CHECK_OK(omm_lora_load(&read, omm_buf_view(&file), &model.lora_shape));
        CHECK_OK(omm_adapter_open(&adapter, &model, &read, 1.0f));
        const uint64_t packed = packed_of(adapter);
        CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
        CHECK_OK(omm_plan_make(&one, &s_gguf, list, 1, &o));
        CHECK_OK(omm_plan_make(&two, &s_gguf, list, 2, &o));
        const uint64_t another = two.loading - one.loading;
        CHECK(another >= packed && another <= packed + packed / 16); /* ranks end in whole strips */
        CHECK(two.adapters - one.adapters ==
              another + (size_t)3 * NOISE_RANK * sizeof(float)); /* and z */
        CHECK_EQ(one.loading,
                 another + read.value_count * sizeof(float)); /* as many as the file has */
        omm_gguf_close(&gguf);
        omm_adapter_close(adapter);
        omm_lora_fini(&read);
        omm_buf_fini(&file);
    }
    omm_lora_fini(&lora);
    omm_model_fini(&model);
    close_model();
}

/* A file whose A of q has another type than those of k and v, which are packed with it: no one type of the file has
 * all three. */
static void test_adapter_of_two_types(void) {
    static const omm_ggml_type others[] = {OMM_GGML_F32, OMM_GGML_BF16};
    omm_model model;
    omm_lora lora, read;
    open_noise(&model, &lora);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        omm_adapter *adapter = NULL;
        omm_buf eight, other, file;
        omm_gguf gguf, more;
        omm_gguf_writer w;
        double lost = 0.0;
        omm_plan one, two;
        const omm_gguf *list[] = {&more, &more};
        const omm_plan_options o = {.session = omm_session_options_default(), .threads = 1};
        omm_buf_init(&eight, SIZE_MAX / 2);
        omm_buf_init(&other, SIZE_MAX / 2);
        omm_buf_init(&file, SIZE_MAX / 2);
        CHECK_OK(omm_lora_save_as(&eight, &lost, &lora, OMM_GGML_Q8_0));
        CHECK_OK(omm_lora_save_as(&other, &lost, &lora, others[i]));
        CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&eight)));
        CHECK_OK(omm_gguf_open_bytes(&more, omm_buf_view(&other)));
        omm_gguf_writer_init(&w);
        for (size_t k = 0; k < gguf.kv_count; k++) omm_gguf_put_kv(&w, &gguf.kvs[k]);
        for (size_t k = 0; k < gguf.tensor_count; k++) {
            const char *name = gguf.tensors[k].name;
            const omm_gguf_tensor *t =
                omm_gguf_find_tensor(strstr(name, "attn_q.weight.lora_a") ? &more : &gguf, name);
            omm_gguf_put_tensor(&w, name, t->type, t->n_dims, t->dims, t->data);
        }
        CHECK_OK(omm_gguf_writer_finish(&file, &w));
        omm_gguf_writer_fini(&w);
        omm_gguf_close(&more);
        CHECK_OK(omm_lora_load(&read, omm_buf_view(&file), &model.lora_shape));
        CHECK_OK(omm_adapter_open(&adapter, &model, &read, 1.0f));
        CHECK_EQ(adapter->layers[0].a[ADAPTER_INPUT_ATTENTION].format, OMM_FORMAT_F32);
        CHECK_EQ(adapter->layers[0].a[ADAPTER_INPUT_FEED].format, OMM_FORMAT_Q8_0);
        CHECK_OK(omm_gguf_open_bytes(&more, omm_buf_view(&file)));
        CHECK_OK(omm_plan_make(&one, &s_gguf, list, 1, &o));
        CHECK_OK(omm_plan_make(&two, &s_gguf, list, 2, &o));
        const uint64_t packed = packed_of(adapter), another = two.loading - one.loading;
        CHECK(another >= packed && another <= packed + packed / 16);
        omm_gguf_close(&gguf);
        omm_gguf_close(&more);
        omm_adapter_close(adapter);
        omm_lora_fini(&read);
        omm_buf_fini(&eight);
        omm_buf_fini(&other);
        omm_buf_fini(&file);
    }
    omm_lora_fini(&lora);
    omm_model_fini(&model);
    close_model();
}

/* An adapter in the stacked tensors of phi3: packed as its seven targets, which are there beside the file's while it is
 * read.  B in blocks leaves each target ranks of its own; of a dense one each target has all of A. */
static void test_stacked_adapters(void) {
    enum { RANK = 64 };
    const omm_lora_spec spec = {.rank = RANK, .alpha = 8.0f, .targets = OMM_LORA_ALL_TARGETS};
    const tiny_arch arch = {.name = "phi3", .width = 256, .ff = 512};
    omm_model model;
    omm_lora lora, read;
    omm_buf_init(&s_file, SIZE_MAX / 2);
    tiny_arch_write(&s_file, &arch);
    CHECK_OK(omm_gguf_open_bytes(&s_gguf, omm_buf_view(&s_file)));
    CHECK_OK(omm_model_load(&model, &s_gguf));
    CHECK_OK(omm_lora_init(&lora, &spec, &model.lora_shape));
    float *values = battery_floats(3, lora.value_count);
    memcpy(lora.values, values, lora.value_count * sizeof *values);
    omm_free(values);
    for (int dense = 0; dense < 2; dense++) {
        omm_adapter *adapter = NULL;
        omm_buf file;
        omm_gguf gguf;
        omm_plan one, two;
        bool rounded = false;
        uint64_t stacked = 0;
        const omm_gguf *list[] = {&gguf, &gguf};
        omm_plan_options o = {.session = omm_session_options_default(), .threads = 1};
        o.session.batch_max = 1;
        omm_buf_init(&file, SIZE_MAX / 2);
        CHECK_OK(omm_lora_save_fused(&file, &rounded, &lora, false));
        CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
        for (size_t i = 0; i < gguf.tensor_count; i++) {
            const omm_gguf_tensor *t = &gguf.tensors[i];
            uint8_t *data = file.data + (t->data.data - file.data);
            stacked += t->data.size;
            for (size_t k = 0; dense && k < t->data.size; k += 4)
                omm_put_f32(data + k, 0.1f + 1.0f / (float)(1 + k));
        }
        CHECK_OK(omm_lora_load(&read, omm_buf_view(&file), &model.lora_shape));
        CHECK_EQ(read.spec.rank, dense ? 4 * RANK : RANK);
        CHECK_OK(omm_adapter_open(&adapter, &model, &read, 1.0f));
        CHECK_OK(omm_plan_make(&one, &s_gguf, list, 1, &o));
        CHECK_OK(omm_plan_make(&two, &s_gguf, list, 2, &o));
        const uint64_t another = two.loading - one.loading, packed = packed_of(adapter);
        const uint64_t apart = read.value_count * sizeof(float);
        const uint64_t loading = 2 * stacked > packed ? 2 * stacked + apart : packed + apart;
        /* of blocks the room is a power of two, so that for three there is a fourth */
        CHECK(another >= packed && another <= packed + (dense ? 0 : packed / 8));
        CHECK(one.loading >= loading && one.loading <= loading + (dense ? 0 : packed / 8));
        omm_gguf_close(&gguf);
        omm_adapter_close(adapter);
        omm_lora_fini(&read);
        omm_buf_fini(&file);
    }
    omm_lora_fini(&lora);
    omm_model_fini(&model);
    close_model();
}

/* The embedding comes when no layer is there yet: what it takes beyond them is loading.  And the largest matrix of a layer
 * need not be its last. */
static void test_odd_shapes(void) {
    const tiny_arch arch = {.name = "llama", .vocab = 5000, .head_dim = 80, .ff = 32};
    omm_plan_options o = {.session = omm_session_options_default(), .threads = 1};
    omm_model model;
    omm_plan plan;
    uint64_t layers = 0;
    omm_buf_init(&s_file, SIZE_MAX / 2);
    tiny_arch_write(&s_file, &arch);
    CHECK_OK(omm_gguf_open_bytes(&s_gguf, omm_buf_view(&s_file)));
    CHECK_OK(omm_model_load(&model, &s_gguf));
    for (uint32_t i = 0; i < model.dims.layers; i++)
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
            layers += omm_matrix_bytes(&model.layers[i].weights[t]);
    CHECK_OK(omm_plan_make(&plan, &s_gguf, NULL, 0, &o));
    CHECK_EQ(plan.loading, (uint64_t)5000 * model.dims.d_model * sizeof(float) - layers);
    o.stream = OMM_PLAN_STREAM_FIRST; /* one of two layers, and pages of its q, the largest */
    CHECK_OK(omm_plan_make(&plan, &s_gguf, NULL, 0, &o));
    CHECK_EQ(plan.streaming, layers / 2 + (uint64_t)model.dims.d_model * 4 * 80 * sizeof(float));
    omm_model_fini(&model);
    close_model();
}

/* The sum of the sizes in a plan's text, each rounded to 0.1 MB; `*count` of them. */
static double parts_of(const char *text, int *count) {
    double sum = 0;
    *count = 0;
    for (const char *p = text; (p = strstr(p, " MB")) != NULL; p++, ++*count) {
        const char *digit = p;
        while (digit > text && strchr("0123456789.", digit[-1])) digit--;
        sum += strtod(digit, NULL) * 1e6;
    }
    CHECK(strstr(text, " GB") == NULL);
    return sum;
}

static void check_sum(const omm_plan *p) {
    char text[OMM_PLAN_TEXT_MAX];
    int count = 0;
    omm_plan_text(text, p);
    const double sum = parts_of(text, &count), off = sum - (double)p->total;
    if (off > 5e4 * count || off < -5e4 * count)
        fprintf(stderr, "%s: total %.0f\n", text, (double)p->total);
    CHECK(count >= 4 && off <= 5e4 * count && off >= -5e4 * count);
    CHECK_EQ(p->total, p->weights + p->cache + p->adapters + p->work + p->streaming +
                           p->vocabulary + p->program + omm_plan_loading_more(p));
}

/* What the line names is what is planned: with a vocabulary or without, streamed, beside another model, and where the
 * largest tensor is more than all that runs later. */
static void test_parts(void) {
    open_model(OMM_FORMAT_Q8_0, true);
    bool loads_more = false;
    for (unsigned i = 0; i < 16; i++) {
        omm_plan p;
        omm_plan_options o = {.session = omm_session_options_default(),
                              .threads = 1,
                              .tokenizer = i & 1,
                              .lodger = i & 2};
        o.stream = i & 4 ? OMM_PLAN_STREAM_FIRST : OMM_PLAN_STREAM_NEVER;
        o.logit_rows = i & 1 ? 1000 : 0;
        o.session.positions_max = i & 8 ? 1 : TINY_CONTEXT;
        CHECK_OK(omm_plan_make(&p, &s_gguf, NULL, 0, &o));
        check_sum(&p);
        p.loading = p.total; /* as of a vocabulary of 256k in a model of two layers */
        p.total += omm_plan_loading_more(&p);
        loads_more = loads_more || omm_plan_loading_more(&p) > 0;
        check_sum(&p);
    }
    CHECK(loads_more);
    close_model();
}

static void test_text(void) {
    char text[OMM_PLAN_TEXT_MAX];
    omm_plan p = {.session = {.kv_type = OMM_KV_F16, .positions_max = 4096},
                  .weights = 1320000000,
                  .cache = 134000000,
                  .work = 60000};
    omm_plan_text(text, &p);
    CHECK(strcmp(text, "weights 1.32 GB, cache 134.0 MB (4096 positions, f16), work 0.1 MB") == 0);
    p.vocabulary = 30000000;
    p.program = 6300000;
    p.loading = p.cache + p.work + 200000000;
    omm_plan_text(text, &p);
    CHECK(strcmp(text, "weights 1.32 GB, cache 134.0 MB (4096 positions, f16), work 0.1 MB, "
                       "vocabulary 30.0 MB, "
                       "program 6.3 MB, loading 200.0 MB more") == 0);
    const omm_plan parts = {.cache = 1, .adapters = 2, .work = 4, .streaming = 8, .loading = 20};
    CHECK_EQ(omm_plan_loading_more(&parts), 20 - 15);
    omm_plan_bytes_text(text, 1000000000);
    CHECK(strcmp(text, "1.00 GB") == 0);
    p.loading = p.cache; /* less than what runs later */
    omm_plan_text(text, &p);
    CHECK(strstr(text, "loading") == NULL);
    p.adapters = 2000000;
    omm_plan_text(text, &p);
    CHECK(strstr(text, "f16), adapters 2.0 MB, work") != NULL);
    p.layers = 16;
    p.resident = 4;
    p.streaming = 82000000;
    omm_plan_text(text, &p);
    CHECK(strstr(text, "1.32 GB (4 of 16 layers; the others are read in every pass: 82.0 MB), ca"));
}

int main(void) {
    test_as_asked();
    test_outline();
    test_fit();
    test_exact_fit();
    test_narrow_heads();
    test_streaming();
    test_fit_streaming();
    test_adapters();
    test_adapter_types();
    test_adapter_of_two_types();
    test_stacked_adapters();
    test_odd_shapes();
    test_parts();
    test_text();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

/* stream_test.c - models of which layers are read from the file in every pass give the bytes of models
 * in memory, whatever part of them is streamed; their errors, memory and files. */
#include "kernels_battery.h"
#include "tiny_arch.h"
#include "tiny_model.h"

#include "omm/autothreads.h"
#include "omm/mem.h"
#include "omm/session.h"
#include "omm_test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH = 90, LAYERS = 5, VOCAB_MAX = TINY_VOCAB };

static uint32_t s_ids[LENGTH];
static float s_want[LENGTH * VOCAB_MAX], s_got[LENGTH * VOCAB_MAX];

typedef struct rig {
    omm_buf file;
    omm_gguf gguf;
} rig;

static void open_bytes(rig *r) {
    CHECK_OK(omm_gguf_open_bytes(&r->gguf, omm_buf_view(&r->file)));
}

static void open_arch(rig *r, const tiny_arch *arch) {
    omm_buf_init(&r->file, 1 << 24);
    tiny_arch_write(&r->file, arch);
    open_bytes(r);
}

static void open_tiny(rig *r, const tiny_options *options) {
    omm_buf_init(&r->file, 1 << 24);
    tiny_model_write(&r->file, options);
    open_bytes(r);
}

static void close_rig(rig *r) {
    omm_gguf_close(&r->gguf);
    omm_buf_fini(&r->file);
}

static void add_noise(omm_lora *lora, const omm_model *model) {
    const omm_lora_spec spec = {.rank = 5, .alpha = 10.0f, .targets = OMM_LORA_ALL_TARGETS};
    CHECK_OK(omm_lora_init(lora, &spec, &model->lora_shape));
    float *noise = battery_floats(5, lora->value_count);
    for (size_t i = 0; i < lora->value_count; i++) lora->values[i] = noise[i] * 0.1f;
    omm_free(noise);
}

/* Logits of all positions, the prompt in two appends. */
static void logits_of(float *out, const omm_compute *c, const omm_model *model,
                      const omm_session_options *o, bool with_lora) {
    omm_session *s = NULL;
    omm_lora lora;
    add_noise(&lora, model);
    CHECK_OK(omm_session_open(&s, c, model, with_lora ? &lora : NULL, o));
    CHECK_OK(omm_session_append(s, s_ids, 50, out, true));
    out += (size_t)50 * model->dims.vocab;
    CHECK_OK(omm_session_append(s, s_ids + 50, LENGTH - 50, out, true));
    omm_session_close(s);
    omm_lora_fini(&lora);
}

static void same(const omm_model *model, const char *what) {
    const size_t bytes = (size_t)LENGTH * model->dims.vocab * sizeof(float);
    if (same_bytes(s_want, s_got, bytes)) return;
    fprintf(stderr, "%s, %u layers in memory: logits differ\n", what, model->resident);
    exit(1);
}

/* The model of `r` with 0, 1, ... layers in memory, on changing instruction sets and threads. */
static void streamed_is_resident(const rig *r, const char *what, omm_activations mode, bool lora) {
    omm_model model;
    omm_compute c;
    omm_isa isa = OMM_ISA_SCALAR;
    omm_session_options o = {.activations = mode, .batch_max = 64};
    CHECK_OK(omm_model_load(&model, &r->gguf));
    CHECK_OK(omm_compute_init(&c, NULL, isa));
    logits_of(s_want, &c, &model, &o, lora);
    omm_compute_fini(&c);
    const uint32_t layers = model.dims.layers;
    const size_t all = model.weight_bytes;
    omm_model_fini(&model);
    CHECK_OK(omm_isa_choose(&isa, NULL));
    for (uint32_t resident = 0; resident <= layers; resident++) {
        omm_pool *pool = NULL;
        CHECK_OK(omm_pool_open(&pool, 1 + resident % 3));
        CHECK_OK(omm_compute_init(&c, pool, isa));
        CHECK_OK(omm_model_load_streamed(&model, pool, &r->gguf, resident));
        CHECK_EQ(model.resident, resident);
        CHECK((model.gguf == NULL) == (resident == layers));
        CHECK((model.weight_bytes < all) == (resident < layers));
        o.batch_max = 13 + 17 * resident;
        logits_of(s_got, &c, &model, &o, lora);
        same(&model, what);
        omm_model_fini(&model);
        omm_compute_fini(&c);
        omm_pool_close(pool);
    }
}

static void test_architectures(void) {
    static const tiny_arch archs[] = {
        {.name = "llama", .format = OMM_FORMAT_Q8_0, .untied = true},
        {.name = "qwen2"},
        {.name = "qwen3", .format = OMM_FORMAT_Q8_0},
        {.name = "gemma2", .window = 30, .head_dim = 24, .format = OMM_FORMAT_Q8_0},
        {.name = "gemma3", .window = 7},
        {.name = "phi3", .format = OMM_FORMAT_Q8_0, .window = 50}, /* fused tensors */
        {.name = "smollm3", .format = OMM_FORMAT_Q8_0},
        {.name = "olmo2",
         .format = OMM_FORMAT_Q8_0,
         .untied = true,
         .plain = {"blk.0."}}, /* the largest first */
        {.name = "granite", .scales = {12.0f, 0.22f, 0.1f, 8.0f}},
        {.name = "mistral3", .format = OMM_FORMAT_Q8_0, .original = 9, .temperature = 0.4f},
        {.name = "exaone4", .window = 11},
        {.name = "hunyuan-dense", .format = OMM_FORMAT_Q8_0},
    };
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        rig r;
        tiny_arch arch = archs[i];
        arch.layers = LAYERS;
        open_arch(&r, &arch);
        streamed_is_resident(
            &r, arch.name,
            arch.format == OMM_FORMAT_Q8_0 ? OMM_ACTIVATIONS_Q8 : OMM_ACTIVATIONS_F32, i % 2 == 0);
        close_rig(&r);
    }
    for (unsigned f = 0; f < TINY_FORMATS; f++) { /* 48 and 77 rows, 160 columns */
        rig r;
        open_tiny(&r, &(tiny_options){.format = (omm_format)f});
        streamed_is_resident(&r, omm_format_name((omm_format)f), OMM_ACTIVATIONS_F32, f == 1);
        close_rig(&r);
    }
}

/* Two sessions of one streamed model in turns: a layer at hand belongs to its graph. */
static void test_two_sessions(const omm_compute *c) {
    rig r;
    omm_model whole, model;
    omm_session *s[2];
    open_tiny(&r, &(tiny_options){.format = OMM_FORMAT_Q8_0});
    CHECK_OK(omm_model_load(&whole, &r.gguf));
    logits_of(s_want, c, &whole, NULL, false);
    CHECK_OK(omm_model_load_streamed(&model, NULL, &r.gguf, 0));
    for (unsigned i = 0; i < 2; i++) CHECK_OK(omm_session_open(&s[i], c, &model, NULL, NULL));
    for (size_t at = 0; at < LENGTH; at += 5)
        for (unsigned i = 0; i < 2; i++) {
            const size_t first = at * TINY_VOCAB;
            CHECK_OK(omm_session_append(s[i], s_ids + at, 5, s_got + first, true));
            CHECK(
                same_bytes(s_got + first, s_want + first, (size_t)5 * TINY_VOCAB * sizeof *s_got));
        }
    same(&model, "two sessions");
    for (unsigned i = 0; i < 2; i++) omm_session_close(s[i]);
    omm_model_fini(&model);
    omm_model_fini(&whole);
    close_rig(&r);
}

/* A weight that is no number appears at the first use of its layer: nothing has changed, and the
 * session goes on when the file is mended. */
static void test_bad_weight(const omm_compute *c) {
    rig r, good;
    omm_model model, whole;
    omm_session *s = NULL;
    open_tiny(&good, &(tiny_options){.format = OMM_FORMAT_Q8_0});
    open_tiny(&r, &(tiny_options){.format = OMM_FORMAT_Q8_0, .nan = "blk.1.ffn_up.weight"});
    CHECK_ERR(omm_model_load_streamed(&model, NULL, &r.gguf, 2), OMM_ERR_NUMERIC);
    CHECK_OK(
        omm_model_load_streamed(&model, NULL, &r.gguf, 0)); /* the first layer was read before */
    CHECK_OK(omm_session_open(&s, c, &model, NULL, NULL));
    for (unsigned i = 0; i < 2; i++) {
        CHECK_ERR(omm_session_append(s, s_ids, 50, s_got, true), OMM_ERR_NUMERIC);
        CHECK(strstr(omm_err_sentence(), "tensor 'blk.1.ffn_up.weight': scale of row") != NULL);
        CHECK_EQ(omm_session_position(s), 0);
    }
    CHECK_EQ(r.file.size, good.file.size);
    memcpy(r.file.data, good.file.data, good.file.size);
    CHECK_OK(omm_model_load(&whole, &good.gguf));
    logits_of(s_want, c, &whole, NULL, false);
    CHECK_OK(omm_session_append(s, s_ids, LENGTH, s_got, true));
    same(&model, "mended");
    omm_session_close(s);
    omm_model_fini(&model);
    omm_model_fini(&whole);
    close_rig(&r);
    close_rig(&good);
}

/* What is asked for ahead and what is let go, in order: the linker leads these calls here
 * (CMakeLists.txt). */
static const uint8_t *s_asked[64], *s_let_go[64];
static size_t s_asked_count, s_let_go_count, s_all_let_go_count;
void __real_omm_gguf_prefetch(const omm_gguf *gguf, omm_bytes part);
void __wrap_omm_gguf_prefetch(const omm_gguf *gguf, omm_bytes part);
void __wrap_omm_gguf_prefetch(const omm_gguf *gguf, omm_bytes part) {
    if (s_asked_count < 64) s_asked[s_asked_count++] = part.data;
    __real_omm_gguf_prefetch(gguf, part);
}
void __real_omm_gguf_release(const omm_gguf *gguf, omm_bytes part);
void __wrap_omm_gguf_release(const omm_gguf *gguf, omm_bytes part);
void __wrap_omm_gguf_release(const omm_gguf *gguf, omm_bytes part) {
    if (s_let_go_count < 64) s_let_go[s_let_go_count++] = part.data;
    __real_omm_gguf_release(gguf, part);
}
void __real_omm_gguf_release_all(const omm_gguf *gguf);
void __wrap_omm_gguf_release_all(const omm_gguf *gguf);
void __wrap_omm_gguf_release_all(const omm_gguf *gguf) {
    s_all_let_go_count++;
    __real_omm_gguf_release_all(gguf);
}

/* A pass asks for every layer one before it is read: at the first streamed one for the second, at the
 * last for the first, with which the next pass begins.  The pages of a layer go when it is packed, and with
 * them those that the system has mapped around. */
static void test_read_ahead(const omm_compute *c) {
    enum { RESIDENT = 2, STREAMED = LAYERS - RESIDENT };
    rig r;
    omm_model model;
    omm_session *s = NULL;
    open_arch(&r, &(tiny_arch){.name = "llama", .layers = LAYERS});
    CHECK_OK(omm_model_load_streamed(&model, NULL, &r.gguf, RESIDENT));
    CHECK_OK(omm_session_open(&s, c, &model, NULL, NULL));
    s_asked_count = s_let_go_count = s_all_let_go_count = 0;
    CHECK_OK(omm_session_append(s, s_ids, 3, NULL, false));
    CHECK_EQ(s_asked_count, STREAMED * OMM_LORA_TARGET_COUNT);
    for (size_t i = 0; i < s_asked_count; i++) {
        const size_t layer = RESIDENT + (i / OMM_LORA_TARGET_COUNT + 1) % STREAMED;
        CHECK(s_asked[i] == model.layers[layer].rows[i % OMM_LORA_TARGET_COUNT].data);
    }
    CHECK_EQ(s_let_go_count, STREAMED * OMM_LORA_TARGET_COUNT);
    for (size_t i = 0; i < s_let_go_count; i++)
        CHECK(s_let_go[i] == model.layers[RESIDENT + i / OMM_LORA_TARGET_COUNT]
                                 .rows[i % OMM_LORA_TARGET_COUNT]
                                 .data);
    CHECK_EQ(s_all_let_go_count, STREAMED);
    omm_session_close(s);
    omm_model_fini(&model);
    close_rig(&r);
}

/* From a map, whose pages are asked for and let go. */
static void test_file(const omm_compute *c) {
    char path[] = "/tmp/omm-stream-XXXXXX";
    rig r;
    omm_gguf mapped;
    omm_model model, whole;
    const int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    open_arch(&r, &(tiny_arch){.name = "llama", .layers = LAYERS});
    CHECK_OK(omm_file_write_fast(path, omm_buf_view(&r.file), 0600));
    CHECK_OK(omm_gguf_open(&mapped, path));
    CHECK_OK(omm_file_remove(path));
    CHECK_OK(omm_model_load(&whole, &r.gguf));
    CHECK_OK(omm_model_load_streamed(&model, NULL, &mapped, 2));
    logits_of(s_want, c, &whole, NULL, true);
    logits_of(s_got, c, &model, NULL, true);
    same(&model, "mapped");
    omm_model_fini(&model);
    omm_model_fini(&whole);
    omm_gguf_close(&mapped);
    close_rig(&r);
}

/* What another program writes into the file is noticed, and is in no logits; another file in its place is none of it. */
static void test_written_to(const omm_compute *c) {
    char path[] = "/tmp/omm-stream-XXXXXX", other[] = "/tmp/omm-stream-XXXXXX";
    rig r;
    omm_gguf mapped;
    omm_model model, whole;
    omm_session *s = NULL;
    const int fds[2] = {mkstemp(path), mkstemp(other)};
    CHECK(fds[0] >= 0 && fds[1] >= 0);
    open_arch(&r, &(tiny_arch){.name = "llama", .layers = LAYERS});
    CHECK_OK(omm_file_write_fast(path, omm_buf_view(&r.file), 0600));
    CHECK_OK(omm_file_write_fast(other, omm_buf_view(&r.file), 0600));
    CHECK_OK(omm_gguf_open(&mapped, path));
    CHECK_OK(omm_model_load(&whole, &r.gguf));
    CHECK_OK(omm_model_load_streamed(&model, NULL, &mapped, 1));
    CHECK_OK(omm_file_remove(path));
    CHECK_EQ(rename(other, path), 0); /* as mv */
    logits_of(s_want, c, &whole, NULL, false);
    logits_of(s_got, c, &model, NULL, false);
    same(&model, "another file in its place");
    omm_model_fini(&model);
    omm_gguf_close(&mapped);

    CHECK_OK(omm_gguf_open(&mapped, path));
    CHECK_OK(omm_model_load_streamed(&model, NULL, &mapped, 1));
    CHECK_OK(omm_session_open(&s, c, &model, NULL, NULL));
    CHECK_OK(omm_session_append(s, s_ids, 5, s_got, true));
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const off_t middle = (off_t)r.file.size / 2;
    CHECK(fd >= 0);
    usleep(20000); /* a tick of the clock that stamps files */
    CHECK_EQ(pwrite(fd, r.file.data + middle, 1, middle), 1); /* even the same byte */
    CHECK_ERR(omm_session_append(s, s_ids + 5, 5, s_got, true), OMM_ERR_STATE);
    CHECK(strstr(omm_err_sentence(), path) != NULL);
    CHECK(strstr(omm_err_sentence(), "was written to while") != NULL);
    CHECK_EQ(omm_session_position(s), 5);
    omm_session_close(s);
    omm_model_fini(&model);
    CHECK_ERR(omm_model_load(&model, &mapped), OMM_ERR_STATE); /* nor is all of it loaded so */
    omm_gguf_close(&mapped);
    CHECK_EQ(close(fd), 0);
    CHECK_EQ(close(fds[0]), 0);
    CHECK_EQ(close(fds[1]), 0);
    CHECK_OK(omm_file_remove(path));
    omm_model_fini(&whole);
    close_rig(&r);
}

static void test_out_of_memory(const omm_compute *c) {
    rig r;
    open_tiny(&r, &(tiny_options){.format = OMM_FORMAT_Q4_0, .untied = true});
    const size_t live = omm_mem_live();
    omm_err err = OMM_ERR_NOMEM;
    for (size_t n = 1; err != OMM_OK; n++) {
        omm_session *s = NULL;
        omm_model model;
        omm_mem_fail_nth(n);
        err = omm_model_load_streamed(&model, NULL, &r.gguf, 1);
        if (err == OMM_OK) {
            err = omm_session_open(&s, c, &model, NULL, NULL);
            omm_session_close(err == OMM_OK ? s : NULL);
            omm_model_fini(&model);
        }
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
        CHECK_EQ(omm_mem_live(), live);
    }
    close_rig(&r);
}

/* Threads are measured on what is in memory. */
static void test_threads(void) {
    rig r;
    open_tiny(&r, &(tiny_options){.format = OMM_FORMAT_Q8_0});
    for (uint32_t resident = 0; resident < 2; resident++) {
        omm_model model;
        omm_autothreads a;
        CHECK_OK(omm_model_load_streamed(&model, NULL, &r.gguf, resident));
        const omm_autothreads_options o = {.n = 2, .rows = 1, .activations = OMM_ACTIVATIONS_Q8};
        CHECK_OK(omm_autothreads_measure(&a, &model, OMM_ISA_SCALAR, &o));
        CHECK(a.one > 0.0 && a.many > 0.0);
        omm_model_fini(&model);
    }
    close_rig(&r);
}

int main(void) {
    omm_compute c;
    omm_isa best;
    for (uint32_t i = 0; i < LENGTH; i++) s_ids[i] = i * i * 7 % TINY_ARCH_VOCAB;
    CHECK_OK(omm_isa_choose(&best, NULL));
    CHECK_OK(omm_compute_init(&c, NULL, best));
    test_architectures();
    test_two_sessions(&c);
    test_bad_weight(&c);
    test_read_ahead(&c);
    test_file(&c);
    test_written_to(&c);
    test_out_of_memory(&c);
    test_threads();
    omm_compute_fini(&c);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

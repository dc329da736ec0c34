/* speculate_test.c - decoding with proposals gives the ids of decoding one by one; sessions in files
 * go on to the same bytes, and damaged or foreign files are refused. */
#include "kernels_battery.h"
#include "tiny_arch.h"
#include "tiny_model.h"

#include "omm/bytes.h"
#include "omm/file.h"
#include "omm/mem.h"
#include "omm/session_file.h"
#include "omm/speculate.h"
#include "omm_test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROMPT = 40, COUNT = 100, VOCAB = TINY_VOCAB };

static uint32_t s_prompt[PROMPT];
static float s_logits[VOCAB];

static void model_open(omm_model *model, const tiny_options *options) {
    omm_buf file;
    omm_gguf gguf;
    omm_buf_init(&file, 1 << 22);
    tiny_model_write(&file, options);
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
    CHECK_OK(omm_model_load(model, &gguf));
    omm_gguf_close(&gguf);
    omm_buf_fini(&file);
}

static omm_sampler sampler(float temperature, uint64_t number) {
    static const omm_bias biases[] = {{3, 4.0f}, {17, -100.0f}, {40, 2.5f}};
    const omm_seed seed = omm_seed_from_u64(number);
    return (omm_sampler){.temperature = temperature,
                         .top_k = number % 3 ? 0 : 5,
                         .top_p = number % 2 ? 1.0f : 0.9f,
                         .min_p = number % 5 ? 0.0f : 0.05f,
                         .frequency_penalty = number % 4 < 2   ? 0.0f
                                              : number % 8 < 4 ? 0.8f
                                                               : -0.3f,
                         .presence_penalty = number % 6 < 3 ? 0.0f : 1.5f,
                         .repeat_penalty = number % 3 == 1 ? 1.4f : 1.0f,
                         .repeat_last = number % 2 ? OMM_REPEAT_LAST_ALL : 7,
                         .biases = biases,
                         .bias_count = number % 5 == 2 ? 3 : 0,
                         .rng = omm_rng_init(&seed, OMM_PURPOSE_SAMPLE, 0, 0)};
}

/* Ids from a fresh prompt to the end of the context, or COUNT of them. */
static size_t plain(uint32_t *ids, omm_session *s, const omm_sampler *how) {
    size_t count = 0;
    omm_session_truncate(s, 0);
    CHECK_OK(omm_session_append(s, s_prompt, PROMPT, s_logits, false));
    while (count < COUNT) {
        const omm_history before = {omm_session_ids(s), omm_session_position(s), PROMPT};
        CHECK_OK(omm_sample_within(&ids[count], how, NULL, &before, s_logits, VOCAB));
        if (++count == COUNT || omm_session_position(s) == omm_session_positions_max(s)) break;
        CHECK_OK(omm_session_append(s, &ids[count - 1], 1, s_logits, false));
    }
    return count;
}

static omm_speculator_stats speculated(const uint32_t *want, size_t count, omm_session *s,
                                       const omm_sampler *how,
                                       const omm_speculator_options *options) {
    omm_speculator *sp = NULL;
    CHECK_OK(omm_speculator_open(&sp, s, how, options));
    for (int turn = 0; turn < 3; turn++) { /* the second one is not finished */
        omm_session_truncate(s, 0);
        CHECK_OK(omm_session_append(s, s_prompt, PROMPT, s_logits, false));
        omm_speculator_start(sp, s_logits);
        CHECK_EQ(omm_speculator_position(sp), PROMPT);
        for (size_t i = 0; i < count; i++) {
            uint32_t id = 0;
            CHECK_OK(omm_speculator_next(sp, &id));
            CHECK_EQ(id, want[i]);
            CHECK_EQ(omm_speculator_position(sp), PROMPT + i);
        }
        if (turn == 1) continue;
        omm_speculator_finish(sp);
        CHECK_EQ(omm_session_position(s), PROMPT + count - 1);
        CHECK(memcmp(omm_session_ids(s) + PROMPT, want, (count - 1) * sizeof *want) == 0);
    }
    omm_speculator_stats stats = omm_speculator_stats_of(sp);
    omm_speculator_close(sp);
    return stats;
}

static void equal_output(const omm_compute *c, const omm_model *model, const omm_model *small,
                         uint32_t positions) {
    omm_session *s = NULL, *draft = NULL, *twin = NULL;
    omm_session_options o = {.batch_max = 16, .positions_max = positions};
    omm_session_options fewer = {.batch_max = 16, .positions_max = 100};
    CHECK_OK(omm_session_open(&s, c, model, NULL, &o));
    CHECK_OK(omm_session_open(&twin, c, model, NULL, &fewer)); /* a perfect draft, but shorter */
    CHECK_OK(omm_session_open(&draft, c, small, NULL, &o));
    omm_session *drafts[] = {NULL, draft, twin};
    static const float temperatures[] = {0.0f, 0.3f, 1.0f, 4.0f};
    uint32_t ids[COUNT];
    for (unsigned i = 0; i < 4 * 3; i++) {
        const omm_sampler how = sampler(temperatures[i % 4], i);
        size_t count = plain(ids, s, &how);
        /* the last one needs no position */
        CHECK_EQ(count, positions - PROMPT < COUNT ? positions - PROMPT + 1 : COUNT);
        for (unsigned d = 0; d < 3; d++) {
            omm_speculator_options options = {
                .draft = drafts[d], .drafts_max = 1 + (i + d) * 5 % 9, .match_max = 2 + i % 3};
            omm_speculator_stats stats = speculated(ids, count, s, &how, &options);
            CHECK(stats.accepted <= stats.drafted);
            if (d == 2) CHECK(stats.accepted > 50); /* what it proposes is right */
        }
    }
    omm_session_close(s);
    omm_session_close(draft);
    omm_session_close(twin);
}

static void look_up_finds(const omm_compute *c, const omm_model *model) {
    omm_session *s = NULL;
    uint32_t ids[COUNT];
    const omm_sampler how = omm_sampler_default();
    CHECK_OK(omm_session_open(&s, c, model, NULL, NULL));
    size_t count = plain(ids, s, &how); /* greedy text of a small model repeats itself */
    omm_speculator_stats stats = speculated(ids, count, s, &how, NULL);
    printf("look-up: %d of %d proposals in %d steps\n", (int)stats.accepted, (int)stats.drafted,
           (int)stats.steps);
    CHECK(stats.accepted > 20);
    CHECK(stats.steps <= 90); /* 126 if proposals ended where the ids do */
    const omm_speculator_options pairs = {.drafts_max = 4, .match_max = 2};
    CHECK(speculated(ids, count, s, &how, &pairs).accepted > 20); /* two ids are a match */
    omm_speculator *sp = NULL;
    omm_speculator_options bad = omm_speculator_options_default();
    bad.drafts_max = 0;
    CHECK_ERR(omm_speculator_open(&sp, s, &how, &bad), OMM_ERR_CONFIG);
    bad.drafts_max = 65;
    CHECK_ERR(omm_speculator_open(&sp, s, &how, &bad), OMM_ERR_CONFIG);
    bad = (omm_speculator_options){.drafts_max = 1, .match_max = 1};
    CHECK_ERR(omm_speculator_open(&sp, s, &how, &bad), OMM_ERR_CONFIG);
    for (size_t n = 1; n <= 4; n++) {
        omm_mem_fail_nth(n);
        CHECK_ERR(omm_speculator_open(&sp, s, &how, NULL), OMM_ERR_NOMEM);
    }
    omm_mem_fail_nth(0);
    omm_session_close(s);
}

/* As many proposals as there can be, none of them taken, leave what windows show: they keep the least there is. */
static void windows(const omm_compute *c, omm_model *model, const omm_model *small) {
    const omm_session_options o = {.batch_max = 128, .rollback_max = 1};
    const omm_sampler how = omm_sampler_default();
    omm_speculator_options options = {.drafts_max = OMM_SPECULATOR_DRAFTS_MAX, .match_max = 2};
    omm_session *s = NULL;
    uint32_t ids[COUNT];
    model->layers[0].window = 10;
    CHECK_OK(omm_session_open(&s, c, model, NULL, &o));
    CHECK_OK(omm_session_open(&options.draft, c, small, NULL, &o));
    const size_t count = plain(ids, s, &how);
    const omm_speculator_stats stats = speculated(ids, count, s, &how, &options);
    CHECK(stats.drafted - stats.accepted >= OMM_SPECULATOR_DRAFTS_MAX);
    omm_session_close(options.draft);
    options.draft = NULL;
    (void)speculated(ids, count, s, &how, &options);
    omm_session_close(s);
    model->layers[0].window = 0;
}

/* Behind a prompt that is shorter than what a look-up compares. */
static void short_prompts(const omm_compute *c, const omm_model *model) {
    enum { MOST = 6, DRAWN = 12 };
    const omm_sampler how = omm_sampler_default();
    omm_session *s = NULL;
    omm_speculator *sp = NULL;
    CHECK_OK(omm_session_open(&s, c, model, NULL, NULL));
    CHECK_OK(omm_speculator_open(&sp, s, &how, NULL));
    for (size_t prompt = 1; prompt <= MOST; prompt++) {
        uint32_t want[DRAWN];
        CHECK_OK(omm_session_become(s, s_prompt, prompt, s_logits));
        for (size_t i = 0; i < DRAWN; i++) {
            want[i] = omm_argmax(s_logits, VOCAB);
            CHECK_OK(omm_session_append(s, &want[i], 1, s_logits, false));
        }
        CHECK_OK(omm_session_become(s, s_prompt, prompt, s_logits));
        omm_speculator_start(sp, s_logits);
        for (size_t i = 0; i < DRAWN; i++) {
            uint32_t id = 0;
            CHECK_OK(omm_speculator_next(sp, &id));
            CHECK_EQ(id, want[i]);
        }
        omm_speculator_finish(sp);
    }
    omm_speculator_close(sp);
    omm_session_close(s);
}

/* A cache that is full, of the session or of the draft, is said, and what was given out before is right. */
static void full_caches(const omm_compute *c, const omm_model *model) {
    const size_t block = TINY_LAYERS * omm_kv_block_bytes(OMM_KV_F32, TINY_KV_HEADS, TINY_HEAD_DIM);
    const omm_sampler how = omm_sampler_default();
    uint32_t want[COUNT];
    for (int which = 0; which < 4; which++) { /* the session's, and beside a draft; the draft's */
        omm_session_options o = {.batch_max = 16}, small = {.batch_max = 16};
        omm_session *s = NULL, *draft = NULL;
        omm_speculator *sp = NULL;
        omm_speculator_options options = {.drafts_max = which == 3 ? 1 : 4, .match_max = 2};
        omm_err err = OMM_OK;
        size_t given = 0;
        small.cache_bytes_max = block; /* 64 positions */
        CHECK_OK(omm_session_open(&s, c, model, NULL, &o));
        CHECK_EQ(plain(want, s, &how), COUNT);
        omm_session_close(s);
        CHECK_OK(omm_session_open(&s, c, model, NULL, which < 2 ? &small : &o));
        CHECK_OK(omm_session_open(&draft, c, model, NULL, which < 2 ? &o : &small));
        if (which > 0) options.draft = draft;
        CHECK_OK(omm_speculator_open(&sp, s, &how, &options));
        CHECK_OK(omm_session_append(s, s_prompt, PROMPT, s_logits, false));
        omm_speculator_start(sp, s_logits);
        for (uint32_t id = 0; given < COUNT; given++) {
            err = omm_speculator_next(sp, &id);
            if (err != OMM_OK) break;
            CHECK_EQ(id, want[given]);
        }
        CHECK_ERR(err, OMM_ERR_TOO_BIG);
        CHECK(given >= 20 && given <= 26);
        omm_speculator_finish(sp);
        CHECK_EQ(omm_session_position(s), PROMPT + given - 1);
        omm_speculator_close(sp);
        omm_session_close(s);
        omm_session_close(draft);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

static char s_path[512];

static void write_file(const omm_buf *data, size_t size) {
    CHECK_OK(omm_file_write_fast(s_path, omm_bytes_of(data->data, size), 0600));
}

static omm_err load(omm_session *s, const omm_digest *model) {
    return omm_session_load(s, s_path, model, NULL);
}

/* A damaged file is refused and leaves the session as it is. */
static void damaged(omm_session *s, const omm_digest *model) {
    omm_buf good;
    omm_buf_init(&good, 1 << 22);
    CHECK_OK(omm_file_read(&good, s_path));
    const uint32_t position = omm_session_position(s);
    for (size_t size = 0; size < good.size; size += size < 400 ? 1 : 97) {
        write_file(&good, size);
        CHECK(load(s, model) != OMM_OK);
    }
    for (size_t i = 0; i < good.size; i += i < 400 ? 1 : 61) {
        good.data[i] ^= (uint8_t)(1u << i % 8);
        write_file(&good, good.size);
        CHECK(load(s, model) != OMM_OK);
        good.data[i] ^= (uint8_t)(1u << i % 8);
    }
    CHECK_EQ(omm_session_position(s), position);
    CHECK(memcmp(omm_session_ids(s), s_prompt, position * sizeof *s_prompt) == 0);
    good.data[8] = 3;
    write_file(&good, good.size);
    CHECK_ERR(load(s, model), OMM_ERR_VERSION);
    good.data[8] = 2;
    good.data[good.size - 1] ^= 1;
    write_file(&good, good.size);
    CHECK_ERR(load(s, model), OMM_ERR_DIGEST);
    good.data[good.size - 1] ^= 1;
    write_file(&good, 50);
    CHECK_ERR(load(s, model), OMM_ERR_SIZE);
    write_file(&good, good.size - 33);
    CHECK_ERR(load(s, model), OMM_ERR_SIZE);
    good.data[0] = 'X';
    write_file(&good, good.size);
    CHECK_ERR(load(s, model), OMM_ERR_FORMAT);
    good.data[0] = 'O';
    write_file(&good, good.size);
    omm_buf_fini(&good);
}

static omm_err load_with(const omm_compute *c, const omm_model *model, const omm_lora *lora,
                         omm_session_options o, const omm_digest *digest) {
    omm_session *s = NULL;
    CHECK_OK(omm_session_open(&s, c, model, lora, &o));
    omm_err err = load(s, digest);
    CHECK_EQ(omm_session_position(s), err == OMM_OK ? 39 : 0);
    omm_session_close(s);
    return err;
}

static void foreign(const omm_compute *c, const omm_model *model, const omm_lora *lora,
                    omm_session_options o, const omm_digest *digest) {
    omm_digest other = *digest;
    other.b[31] ^= 1;
    CHECK_OK(load_with(c, model, lora, o, digest));
    CHECK_ERR(load_with(c, model, lora, o, &other), OMM_ERR_MISMATCH);
    CHECK_ERR(load_with(c, model, NULL, o, digest), OMM_ERR_MISMATCH);
    omm_session_options changed = o;
    changed.kv_type = (o.kv_type + 1) % OMM_KV_TYPE_COUNT;
    CHECK_ERR(load_with(c, model, lora, changed, digest), OMM_ERR_MISMATCH);
    changed = o;
    changed.activations = OMM_ACTIVATIONS_F32;
    CHECK_ERR(load_with(c, model, lora, changed, digest), OMM_ERR_MISMATCH);
    changed = o;
    changed.positions_max = 38;
    CHECK_ERR(load_with(c, model, lora, changed, digest), OMM_ERR_TOO_BIG);
    changed = o;
    changed.cache_bytes_max = 1;
    CHECK_ERR(load_with(c, model, lora, changed, digest), OMM_ERR_TOO_BIG);
}

static void saved(const omm_compute *c, const omm_model *model, omm_kv_type kv) {
    omm_session_options o = {.activations = OMM_ACTIVATIONS_Q8, .kv_type = kv, .batch_max = 64};
    omm_session *s = NULL, *t = NULL;
    omm_digest digest = omm_hash(omm_bytes_str("the model"));
    omm_lora lora;
    omm_lora_spec spec = {4, 8.0f, OMM_LORA_ALL_TARGETS};
    float a[VOCAB], b[VOCAB];
    CHECK_OK(omm_lora_init(&lora, &spec, &model->lora_shape));
    for (size_t i = 0; i < lora.value_count; i++) lora.values[i] = (float)(i % 7) * 0.01f;
    CHECK_OK(omm_session_open(&s, c, model, &lora, &o));
    /* One position of a long sequence that is gone must not be in the file. */
    for (int i = 0; i < 4; i++) CHECK_OK(omm_session_append(s, s_prompt, 32, NULL, false));
    omm_session_truncate(s, 0);
    CHECK_OK(omm_session_append(s, s_prompt, 39, a, false));
    CHECK_OK(omm_session_save(s, s_path, &digest, (omm_bytes){0}));
    omm_buf first, second, third;
    omm_buf_init(&first, 1 << 22);
    omm_buf_init(&second, 1 << 22);
    omm_buf_init(&third, 1 << 22);
    CHECK_OK(omm_file_read(&first, s_path));
    CHECK_OK(omm_session_open(&t, c, model, &lora, &o)); /* blocks that held nothing before */
    CHECK_OK(omm_session_append(t, s_prompt, 39, b, false));
    CHECK_OK(omm_session_save(t, s_path, &digest, (omm_bytes){0}));
    CHECK_OK(omm_file_read(&third, s_path));
    CHECK(omm_bytes_equal(omm_buf_view(&first), omm_buf_view(&third)));
    omm_session_close(t);
    CHECK_OK(omm_session_append(s, s_prompt + 39, 1, a, false));
    CHECK_OK(omm_session_open(&t, c, model, &lora, &o));
    CHECK_OK(omm_session_append(t, s_prompt + 3, 30, b, false));
    CHECK_OK(load(t, &digest));
    CHECK_EQ(omm_session_position(t), 39);
    CHECK_OK(omm_session_save(t, s_path, &digest, (omm_bytes){0})); /* the same bytes again */
    CHECK_OK(omm_file_read(&second, s_path));
    CHECK(omm_bytes_equal(omm_buf_view(&first), omm_buf_view(&second)));
    damaged(t, &digest);
    foreign(c, model, &lora, o, &digest);
    CHECK_OK(omm_session_append(t, s_prompt + 39, 1, b, false));
    CHECK(same_bytes(a, b, sizeof a));
    CHECK_OK(omm_file_remove(s_path));
    CHECK_ERR(load(t, &digest), OMM_ERR_NOT_FOUND);
    omm_buf_fini(&first);
    omm_buf_fini(&second);
    omm_buf_fini(&third);
    omm_session_close(s);
    omm_session_close(t);
    omm_lora_fini(&lora);
}

/* Ids of another vocabulary would lie beyond the logits. */
static void other_vocabulary(const omm_compute *c, const omm_model *model) {
    omm_model other;
    omm_session *s = NULL;
    omm_speculator *sp = NULL;
    omm_speculator_options o = omm_speculator_options_default();
    const omm_sampler how = omm_sampler_default();
    tiny_arch_load(&other, &(tiny_arch){.name = "llama"});
    CHECK_OK(omm_session_open(&s, c, model, NULL, NULL));
    CHECK_OK(omm_session_open(&o.draft, c, &other, NULL, NULL));
    CHECK_ERR(omm_speculator_open(&sp, s, &how, &o), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "has 61 tokens, the model 77") != NULL && !sp);
    omm_session_close(o.draft);
    omm_session_close(s);
    omm_model_fini(&other);
}

int main(void) {
    omm_compute c;
    omm_isa isa;
    omm_model model, small;
    const char *folder = getenv("TMPDIR");
    snprintf(s_path, sizeof s_path, "%s/omm-session-%ld", folder ? folder : "/tmp", (long)getpid());
    for (uint32_t i = 0; i < PROMPT; i++) s_prompt[i] = i * i * 7 % VOCAB;
    CHECK_OK(omm_isa_choose(&isa, NULL));
    CHECK_OK(omm_compute_init(&c, NULL, isa));
    model_open(&model, &(tiny_options){.format = OMM_FORMAT_Q8_0});
    model_open(&small, &(tiny_options){.format = OMM_FORMAT_Q4_0, .untied = true});
    equal_output(&c, &model, &small, TINY_CONTEXT);
    equal_output(&c, &model, &small, 110); /* the context ends in the middle of proposals */
    look_up_finds(&c, &model);
    windows(&c, &model, &small);
    short_prompts(&c, &model);
    full_caches(&c, &model);
    other_vocabulary(&c, &model);
    for (unsigned t = 0; t < OMM_KV_TYPE_COUNT; t++) saved(&c, &model, (omm_kv_type)t);
    omm_model_fini(&model);
    omm_model_fini(&small);
    omm_compute_fini(&c);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

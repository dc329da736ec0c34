/* batcher_test.c - texts that come and go together are each what they are alone; whoever fails, fails alone. */
#include "omm/batcher.h"

#include "kernels_battery.h"
#include "tiny_model.h"

#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>

enum { TEXTS = 6, PROMPT_MAX = 150, DRAWN = 40, VOCAB = TINY_VOCAB };

typedef struct rig {
    omm_model model;
    omm_adapter *adapters[3]; /* the last one's products are no numbers */
} rig;

static uint32_t s_prompts[TEXTS][PROMPT_MAX];
static const size_t s_counts[TEXTS] = {1, 150, 70, 64, 129, 40};
static uint32_t s_want[TEXTS][DRAWN];

static void open_adapter(rig *r, unsigned i, float size) {
    omm_lora lora;
    const omm_lora_spec spec = {2 + i, 4.0f, OMM_LORA_ALL_TARGETS};
    CHECK_OK(omm_lora_init(&lora, &spec, &r->model.lora_shape));
    float *noise = battery_floats(5 + i, lora.value_count);
    for (size_t j = 0; j < lora.value_count; j++) lora.values[j] = noise[j] * size;
    omm_free(noise);
    CHECK_OK(omm_adapter_open(&r->adapters[i], &r->model, &lora, 1.0f));
    omm_lora_fini(&lora);
}

static void rig_open(rig *r) {
    omm_buf file;
    omm_gguf gguf;
    omm_buf_init(&file, 1 << 22);
    tiny_model_write(&file, &(tiny_options){.format = OMM_FORMAT_Q8_0});
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
    CHECK_OK(omm_model_load(&r->model, &gguf));
    omm_gguf_close(&gguf);
    omm_buf_fini(&file);
    for (unsigned i = 0; i < 3; i++) open_adapter(r, i, i == 2 ? 1e30f : 0.2f);
    for (size_t i = 0; i < TEXTS; i++)
        for (size_t j = 0; j < PROMPT_MAX; j++)
            s_prompts[i][j] = (uint32_t)(i < 4 ? j * j * 5 + 3 * i * i : 7 * j) % VOCAB;
}

static void rig_close(rig *r) {
    for (unsigned i = 0; i < 3; i++) omm_adapter_close(r->adapters[i]);
    omm_model_fini(&r->model);
}

/* Every second one is greedy; half of each kind repeats itself less; a third has biases. */
static omm_sampler sampler_of(size_t i) {
    static const omm_bias biases[] = {{2, 3.0f}, {5, -100.0f}};
    const omm_seed seed = omm_seed_from_u64(i);
    omm_sampler s = omm_sampler_default();
    s.temperature = i % 2 ? 0.0f : 2.0f;
    s.top_p = i % 2 ? 1.0f : 0.95f;
    s.rng = omm_rng_init(&seed, OMM_PURPOSE_SAMPLE, 0, 0);
    s.biases = biases;
    s.bias_count = i % 3 == 1 ? 2 : 0;
    if (i % 4 < 2) return s;
    s.frequency_penalty = 0.9f;
    s.presence_penalty = 0.4f;
    s.repeat_penalty = 1.2f;
    return s;
}

/* By the definition: what follows the prompt and `drawn` of the ids that are wanted. */
static uint32_t draw_of(size_t text, size_t drawn, const float *logits) {
    float own[VOCAB];
    uint32_t ids[PROMPT_MAX + DRAWN], id = VOCAB;
    const omm_sampler sampler = sampler_of(text);
    const omm_history before = {ids, s_counts[text] + drawn, s_counts[text]};
    memcpy(ids, s_prompts[text], s_counts[text] * sizeof *ids);
    memcpy(ids + s_counts[text], s_want[text], drawn * sizeof *ids);
    memcpy(own, logits, sizeof own);
    CHECK_OK(omm_sample_within(&id, &sampler, NULL, &before, own, VOCAB));
    CHECK(same_bytes(own, logits, sizeof own));
    return id;
}

/* None, the first, the second, both, none, none. */
static omm_batcher_text text_of(const rig *r, size_t i) {
    static const size_t from[TEXTS] = {0, 0, 1, 0, 0, 0}, count[TEXTS] = {0, 1, 1, 2, 0, 0};
    return (omm_batcher_text){.prompt = s_prompts[i],
                              .count = s_counts[i],
                              .adapters = (const omm_adapter *const *)r->adapters + from[i],
                              .adapter_count = count[i],
                              .sampler = sampler_of(i)};
}

static void alone(const rig *r, const omm_compute *c, const omm_session_options *o) {
    float logits[VOCAB];
    for (size_t i = 0; i < TEXTS; i++) {
        const omm_batcher_text t = text_of(r, i);
        omm_session *s = NULL;
        CHECK_OK(omm_session_open(&s, c, &r->model, NULL, o));
        CHECK_OK(omm_session_set_adapters(s, t.adapters, t.adapter_count));
        CHECK_OK(omm_session_append(s, t.prompt, t.count, logits, false));
        for (size_t n = 0; n < DRAWN; n++) {
            s_want[i][n] = draw_of(i, n, logits);
            CHECK_OK(omm_session_append(s, &s_want[i][n], 1, logits, false));
        }
        omm_session_close(s);
    }
}

/* Who has what seat, and how far. */
typedef struct guests {
    size_t text[OMM_BATCHER_SEATS_MAX], drawn[OMM_BATCHER_SEATS_MAX];
} guests;

static void take(guests *g, omm_batcher *b, const omm_batcher_token *token, size_t *done) {
    const size_t text = g->text[token->seat], drawn = g->drawn[token->seat];
    CHECK_EQ(token->err, OMM_OK);
    CHECK_EQ(token->id, s_want[text][drawn]);
    CHECK_EQ(draw_of(text, drawn, token->logits), token->id); /* its own logits are still there */
    if (++g->drawn[token->seat] < DRAWN) return;
    omm_batcher_leave(b, token->seat);
    (*done)++;
}

/* All texts, `rounds` times; a new one sits whenever a seat is free, every third step. */
static uint64_t together(const rig *r, omm_batcher *b, uint32_t seats, size_t rounds) {
    omm_batcher_token tokens[OMM_BATCHER_SEATS_MAX];
    guests g = {0};
    uint64_t reused = 0;
    size_t done = 0, next = 0, count = 0;
    for (size_t step = 0; done < TEXTS * rounds; step++) {
        CHECK(step < 10000);
        if (step % 3 == 0 && omm_batcher_taken(b) < seats && next < TEXTS * rounds) {
            const omm_batcher_text t = text_of(r, next % TEXTS);
            uint32_t seat = 0;
            CHECK_OK(omm_batcher_sit(&seat, b, &t));
            g.text[seat] = next++ % TEXTS;
            g.drawn[seat] = 0;
            reused += omm_batcher_reused(b, seat);
        }
        omm_batcher_step(tokens, &count, b);
        for (size_t i = 0; i < count; i++) take(&g, b, &tokens[i], &done);
    }
    CHECK_EQ(omm_batcher_taken(b), 0);
    omm_batcher_step(tokens, &count, b);
    CHECK_EQ(count, 0);
    return reused;
}

static void test_together(const rig *r, const omm_compute *c, omm_activations mode) {
    static const uint32_t seats[] = {1, 3, 6}, prefill[] = {1, 64, 7}, batch[] = {256, 40, 5};
    for (size_t i = 0; i < 3; i++) {
        omm_batcher_options o = omm_batcher_options_default();
        omm_batcher *b = NULL;
        o.session.activations = mode;
        alone(r, c, &o.session);
        o.session.batch_max = batch[i];
        o.seats = seats[i];
        o.prefill_max = prefill[i];
        CHECK_OK(omm_batcher_open(&b, c, &r->model, &o));
        CHECK_EQ(together(r, b, o.seats, 2), 0); /* nothing is kept */
        omm_batcher_close(b);
        o.prefix_bytes_max = (size_t)1 << 24;
        CHECK_OK(omm_batcher_open(&b, c, &r->model, &o));
        const uint64_t reused = together(r, b, o.seats, 3);
        /* Whole blocks of 64, in the second and third round: 128 of the second prompt, 64 of the third, 128 of the
         * fifth.  Of six at once the second prompt's second round begins before its first has been read. */
        CHECK_EQ(reused, 2 * (128 + 64 + 128) - (seats[i] == 6 ? 128 : 0));
        CHECK(omm_batcher_cache_bytes(b) > 0);
        omm_batcher_close(b);
    }
}

/* One of them gives no numbers: its seat says so, the others go on with the bytes they have alone. */
static void test_failure(const rig *r, const omm_compute *c) {
    omm_batcher_options o = omm_batcher_options_default();
    omm_batcher_token tokens[OMM_BATCHER_SEATS_MAX];
    omm_batcher *b = NULL;
    uint32_t seat[3];
    size_t count = 0, failed = 0;
    guests g = {0};
    o.seats = 3;
    alone(r, c, &o.session);
    CHECK_OK(omm_batcher_open(&b, c, &r->model, &o));
    for (size_t i = 0; i < 3; i++) {
        omm_batcher_text t = text_of(r, i);
        if (i == 1) t.adapters = (const omm_adapter *const *)r->adapters + 2;
        CHECK_OK(omm_batcher_sit(&seat[i], b, &t));
        g.text[seat[i]] = i;
    }
    size_t done = 0;
    while (done < 2) {
        omm_batcher_step(tokens, &count, b);
        for (size_t i = 0; i < count; i++) {
            if (tokens[i].seat != seat[1]) {
                take(&g, b, &tokens[i], &done);
                continue;
            }
            CHECK_EQ(tokens[i].err, OMM_ERR_NUMERIC);
            CHECK(strstr(tokens[i].why, "not a finite number"));
            failed++;
        }
    }
    CHECK_EQ(failed, 1); /* and in no batch after that */
    omm_batcher_leave(b, seat[1]);
    CHECK_EQ(omm_batcher_taken(b), 0);
    omm_batcher_close(b);
}

/* Logits of every position of a prompt are those of one go, each once and in order, whatever rows fit and whoever sits
 * beside; what was kept serves it not, and it is kept. */
typedef struct listener {
    const float *want; /* [count][VOCAB] */
    uint32_t seen;
} listener;

static void listen_to(void *ud, uint32_t seat, uint32_t position, const float *logits) {
    listener *l = (listener *)ud;
    (void)seat;
    CHECK_EQ(position, l->seen++);
    CHECK(same_bytes(logits, l->want + (size_t)position * VOCAB, VOCAB * sizeof *logits));
}

static void test_each(const rig *r, const omm_compute *c) {
    static const uint32_t rows[] = {1, 7, 200};
    static float want[PROMPT_MAX * VOCAB];
    for (size_t k = 0; k < 3; k++) {
        omm_batcher_options o = omm_batcher_options_default();
        omm_batcher_token tokens[OMM_BATCHER_SEATS_MAX];
        omm_batcher *b = NULL;
        omm_session *s = NULL;
        guests g = {0};
        listener l = {.want = want};
        uint32_t seat[3];
        size_t count = 0, done = 0;
        o.rows_max = rows[k];
        o.prefix_bytes_max = (size_t)1 << 24;
        alone(r, c, &o.session);
        omm_batcher_text t = text_of(r, 1);
        CHECK_OK(omm_session_open(&s, c, &r->model, NULL, &o.session));
        CHECK_OK(omm_session_set_adapters(s, t.adapters, t.adapter_count));
        CHECK_OK(omm_session_append(s, t.prompt, t.count, want, true));
        omm_session_close(s);
        CHECK_OK(omm_batcher_open(&b, c, &r->model, &o));
        for (size_t i = 0; i < 3; i++) { /* the second one twice: plain, and listened to */
            t = text_of(r, i == 0 ? 0 : 1);
            if (i == 2) {
                t.each = listen_to;
                t.each_ud = &l;
            }
            CHECK_OK(omm_batcher_sit(&seat[i], b, &t));
            CHECK_EQ(omm_batcher_reused(b, seat[i]), 0);
            g.text[seat[i]] = i == 0 ? 0 : 1;
        }
        while (done < 3) {
            omm_batcher_step(tokens, &count, b);
            for (size_t i = 0; i < count; i++) take(&g, b, &tokens[i], &done);
        }
        CHECK_EQ(l.seen, s_counts[1] - 1);
        t.each = NULL;
        CHECK_OK(omm_batcher_sit(&seat[0], b, &t));
        CHECK_EQ(omm_batcher_reused(b, seat[0]), 128);
        omm_batcher_leave(b, seat[0]);
        listener both[2] = {{.want = want}, {.want = want}}; /* share the rows of a step */
        t.each = listen_to;
        for (size_t i = 0; i < 2; i++) {
            t.each_ud = &both[i];
            CHECK_OK(omm_batcher_sit(&seat[i], b, &t));
            CHECK_EQ(omm_batcher_reused(b, seat[i]), 0);
        }
        while (both[0].seen + both[1].seen < 2 * (s_counts[1] - 1)) {
            const uint32_t before = both[0].seen + both[1].seen;
            omm_batcher_step(tokens, &count, b);
            CHECK(both[0].seen + both[1].seen - before <= o.rows_max);
        }
        omm_batcher_close(b);
    }
}

static void count_rows(void *ud, uint32_t seat, uint32_t position, const float *logits) {
    unsigned *rows = (unsigned *)ud;
    (void)seat;
    (void)position;
    (void)logits;
    ++*rows;
}

/* What is done one by one, because one of them fails, leaves the others' logits where they are: also behind a prompt
 * that wants those of each of its positions. */
static void test_failure_beside_each(const rig *r, const omm_compute *c) {
    omm_batcher_options o = omm_batcher_options_default();
    omm_batcher_token tokens[OMM_BATCHER_SEATS_MAX];
    omm_batcher *b = NULL;
    uint32_t seat[3], again = VOCAB;
    unsigned rows = 0;
    size_t count = 0;
    o.seats = 3;
    CHECK_OK(omm_batcher_open(&b, c, &r->model, &o));
    for (size_t i = 0; i < 3; i++) {
        omm_batcher_text t = {.prompt = s_prompts[i], .count = i == 0 ? 2 : 1};
        t.sampler = sampler_of(0);
        if (i == 0) t.each = count_rows;
        t.each_ud = &rows;
        t.adapters = (const omm_adapter *const *)r->adapters + 2;
        t.adapter_count = i == 2;
        CHECK_OK(omm_batcher_sit(&seat[i], b, &t));
    }
    omm_batcher_step(tokens, &count, b);
    CHECK_EQ(count, 3);
    CHECK_EQ(rows, 1);
    for (size_t i = 0; i < 3; i++) {
        const omm_sampler sampler = sampler_of(0);
        CHECK_EQ(tokens[i].seat, seat[i]);
        CHECK_EQ(tokens[i].err, i == 2 ? OMM_ERR_NUMERIC : OMM_OK);
        if (i == 2) continue;
        CHECK_OK(omm_sample(&again, &sampler, tokens[i].logits, VOCAB, i == 0 ? 2 : 1));
        CHECK_EQ(again, tokens[i].id);
    }
    CHECK(!same_bytes(tokens[0].logits, tokens[1].logits, VOCAB * sizeof(float)));
    omm_batcher_close(b);
}

/* A step that fails is done again one by one, however much it has read and however little windows have to keep. */
static void test_failure_with_windows(rig *r, const omm_compute *c) {
    r->model.layers[0].window = 10;
    for (size_t way = 0; way < 2; way++) { /* alone, and beside one that decodes */
        omm_batcher_options o = omm_batcher_options_default();
        omm_batcher_token tokens[OMM_BATCHER_SEATS_MAX];
        omm_batcher *b = NULL;
        uint32_t seat[3];
        size_t count = 0, failed = 0, done = 0;
        guests g = {0};
        o.session.rollback_max = 64;
        alone(r, c, &o.session);
        /* 70 of each prompt a step, twice; then logits of the second one */
        o.session.batch_max = way ? 40 : 140;
        o.prefill_max = way ? 140 : 1;
        CHECK_OK(omm_batcher_open(&b, c, &r->model, &o));
        for (size_t i = way ? 0 : 1; i < 3; i++) {
            omm_batcher_text t = text_of(r, i > 0);
            if (i == 2) t.adapters = (const omm_adapter *const *)r->adapters + 2;
            if (i == 2) t.count = 140;
            CHECK_OK(omm_batcher_sit(&seat[i], b, &t));
            g.text[seat[i]] = i > 0;
        }
        for (size_t step = 0; done < 1 + way; step++) {
            CHECK(step < 100);
            omm_batcher_step(tokens, &count, b);
            for (size_t i = 0; i < count; i++) {
                if (tokens[i].seat != seat[2]) take(&g, b, &tokens[i], &done);
                if (tokens[i].seat == seat[2]) CHECK_EQ(tokens[i].err, OMM_ERR_NUMERIC);
                failed += tokens[i].seat == seat[2];
            }
        }
        CHECK_EQ(failed, 1);
        omm_batcher_close(b);
    }
    r->model.layers[0].window = 0;
}

/* Steps until a seat's first token, each of `seat[2]` beside one that decodes all the time. */
static void first_tokens(uint32_t *steps, omm_batcher *b, const rig *r, const size_t *texts) {
    omm_batcher_token tokens[OMM_BATCHER_SEATS_MAX];
    uint32_t seat[2], decoding = 0;
    size_t count = 0;
    const omm_batcher_text first = text_of(r, 0);
    CHECK_OK(omm_batcher_sit(&decoding, b, &first));
    omm_batcher_step(tokens, &count, b);
    CHECK_EQ(count, 1);
    for (size_t i = 0; i < 2; i++) {
        const omm_batcher_text t = text_of(r, texts[i]);
        CHECK_OK(omm_batcher_sit(&seat[i], b, &t));
        steps[i] = 0;
    }
    for (uint32_t step = 1; !steps[0] || !steps[1]; step++) {
        bool decodes = false;
        CHECK(step < 100);
        omm_batcher_step(tokens, &count, b);
        for (size_t i = 0; i < count; i++) {
            decodes = decodes || tokens[i].seat == decoding;
            for (size_t k = 0; k < 2; k++)
                if (tokens[i].seat == seat[k] && !steps[k]) steps[k] = step;
        }
        CHECK(decodes); /* nobody waits for those that read */
    }
}

/* What was drawn is kept too when its seat is left: it serves whoever goes on with it. */
static void test_goes_on(const rig *r, const omm_compute *c) {
    enum { TEXT = 5 };
    omm_batcher_options o = omm_batcher_options_default();
    omm_batcher_token tokens[OMM_BATCHER_SEATS_MAX];
    omm_batcher *b = NULL;
    uint32_t seat = 0, ids[PROMPT_MAX];
    size_t count = 0, done = 0;
    guests g = {.text = {TEXT}};
    o.prefix_bytes_max = (size_t)1 << 24;
    CHECK_OK(omm_batcher_open(&b, c, &r->model, &o));
    omm_batcher_text t = text_of(r, TEXT);
    CHECK_OK(omm_batcher_sit(&seat, b, &t));
    while (done == 0) {
        omm_batcher_step(tokens, &count, b);
        for (size_t i = 0; i < count; i++) take(&g, b, &tokens[i], &done);
    }
    memcpy(ids, s_prompts[TEXT], s_counts[TEXT] * sizeof *ids);
    memcpy(ids + s_counts[TEXT], s_want[TEXT], DRAWN * sizeof *ids);
    t.prompt = ids;
    t.count = s_counts[TEXT] + DRAWN; /* 40 of either: one block of 64 */
    CHECK_OK(omm_batcher_sit(&seat, b, &t));
    CHECK_EQ(omm_batcher_reused(b, seat), 64);
    omm_batcher_close(b);
}

/* Beside who decodes, prompts are read prefill_max tokens a step, shared among them, and at least one of each. */
static void test_shares(const rig *r, const omm_compute *c) {
    static const struct {
        uint32_t prefill;
        size_t texts[2];
        uint32_t steps[2];
    } cases[] = {
        {8, {2, 4}, {18, 26}}, /* 70 by 4; of 129 are 72 read then, and the rest goes by 8 */
        {1, {5, 3}, {40, 64}}, /* 40 and 64 by 1 */
        {1000, {2, 4}, {1, 1}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_batcher_options o = omm_batcher_options_default();
        omm_batcher *b = NULL;
        uint32_t steps[2];
        o.seats = 3;
        o.prefill_max = cases[i].prefill;
        CHECK_OK(omm_batcher_open(&b, c, &r->model, &o));
        first_tokens(steps, b, r, cases[i].texts);
        for (size_t k = 0; k < 2; k++) CHECK_EQ(steps[k], cases[i].steps[k]);
        omm_batcher_close(b);
    }
}

/* A text may go up to the last position, and no further. */
static void test_context(const rig *r, const omm_compute *c) {
    omm_batcher_options o = omm_batcher_options_default();
    omm_batcher_token token;
    omm_batcher *b = NULL;
    uint32_t seat = 0, other = 0;
    size_t count = 0, drawn = 0;
    o.seats = 1;
    o.session.positions_max = 160;
    CHECK_OK(omm_batcher_open(&b, c, &r->model, &o));
    omm_batcher_text t = text_of(r, 1);
    CHECK_OK(omm_batcher_sit(&seat, b, &t));
    CHECK_ERR(omm_batcher_sit(&other, b, &t), OMM_ERR_STATE);
    for (; drawn < 12; drawn++) {
        omm_batcher_step(&token, &count, b);
        CHECK_EQ(count, 1);
        if (token.err != OMM_OK) break;
    }
    CHECK_EQ(drawn, 11); /* the last one needs no position */
    CHECK_EQ(token.err, OMM_ERR_TOO_BIG);
    omm_batcher_step(&token, &count, b); /* said once */
    CHECK_EQ(count, 0);
    omm_batcher_leave(b, seat);
    t.count = 0;
    CHECK_ERR(omm_batcher_sit(&seat, b, &t), OMM_ERR_TOO_BIG);
    uint32_t ids[161] = {0};
    t.prompt = ids;
    t.count = 161;
    CHECK_ERR(omm_batcher_sit(&seat, b, &t), OMM_ERR_TOO_BIG);
    t.count = 160;
    ids[159] = VOCAB;
    CHECK_ERR(omm_batcher_sit(&seat, b, &t), OMM_ERR_FORMAT);
    ids[159] = 0;
    t.sampler.temperature = -1.0f;
    CHECK_ERR(omm_batcher_sit(&seat, b, &t), OMM_ERR_CONFIG);
    t.sampler = omm_sampler_default();
    t.adapter_count = OMM_ADAPTERS_MAX + 1;
    CHECK_ERR(omm_batcher_sit(&seat, b, &t), OMM_ERR_TOO_BIG);
    t.adapter_count = 0;
    CHECK_OK(omm_batcher_sit(&seat, b, &t));
    omm_batcher_step(&token, &count, b); /* all positions are the prompt's: one token follows */
    CHECK(count == 1 && token.err == OMM_OK);
    omm_batcher_close(b); /* with somebody in it */
    o.seats = 0;
    CHECK_ERR(omm_batcher_open(&b, c, &r->model, &o), OMM_ERR_CONFIG);
    o.seats = OMM_BATCHER_SEATS_MAX + 1;
    CHECK_ERR(omm_batcher_open(&b, c, &r->model, &o), OMM_ERR_CONFIG);
    o.seats = OMM_BATCHER_SEATS_MAX;
    CHECK_OK(omm_batcher_open(&b, c, &r->model, &o));
    omm_batcher_close(b);
    o.seats = 1;
    o.prefill_max = 0;
    CHECK_ERR(omm_batcher_open(&b, c, &r->model, &o), OMM_ERR_CONFIG);
    o.prefill_max = 1;
    o.rows_max = 0;
    CHECK_ERR(omm_batcher_open(&b, c, &r->model, &o), OMM_ERR_CONFIG);
}

/* Whatever runs out: a text fails or has the ids it should. */
static void test_memory(const rig *r, const omm_compute *c) {
    omm_batcher_options o = omm_batcher_options_default();
    o.prefix_bytes_max = (size_t)1 << 22;
    alone(r, c, &o.session);
    for (size_t n = 1; n < 120; n++) {
        omm_batcher_token tokens[OMM_BATCHER_SEATS_MAX];
        omm_batcher *b = NULL;
        size_t drawn[OMM_BATCHER_SEATS_MAX] = {0}, text[OMM_BATCHER_SEATS_MAX] = {0}, count = 0;
        const size_t live = omm_mem_live();
        omm_mem_fail_nth(n);
        omm_err err = omm_batcher_open(&b, c, &r->model, &o);
        for (size_t i = 0; err == OMM_OK && i < 3; i++) {
            const omm_batcher_text t = text_of(r, i);
            uint32_t seat = 0;
            err = omm_batcher_sit(&seat, b, &t);
            if (err == OMM_OK) text[seat] = i;
        }
        for (size_t step = 0; err == OMM_OK && step < 5; step++) {
            omm_batcher_step(tokens, &count, b);
            for (size_t i = 0; i < count; i++) {
                CHECK(tokens[i].err == OMM_OK || tokens[i].err == OMM_ERR_NOMEM);
                if (tokens[i].err != OMM_OK) continue;
                CHECK_EQ(tokens[i].id, s_want[text[tokens[i].seat]][drawn[tokens[i].seat]++]);
            }
        }
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
        omm_batcher_close(b);
        CHECK_EQ(omm_mem_live(), live);
    }
}

int main(void) {
    rig r;
    omm_pool *pool = NULL;
    omm_compute c;
    rig_open(&r);
    CHECK_OK(omm_pool_open(&pool, 2));
    omm_isa isa;
    CHECK_OK(omm_isa_choose(&isa, NULL));
    CHECK_OK(omm_compute_init(&c, pool, isa));
    test_together(&r, &c, OMM_ACTIVATIONS_Q8);
    test_together(&r, &c, OMM_ACTIVATIONS_F32);
    test_failure(&r, &c);
    test_failure_beside_each(&r, &c);
    test_failure_with_windows(&r, &c);
    test_each(&r, &c);
    test_goes_on(&r, &c);
    test_shares(&r, &c);
    test_context(&r, &c);
    test_memory(&r, &c);
    omm_compute_fini(&c);
    omm_pool_close(pool);
    rig_close(&r);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

/* constrained_test.c - texts of a model that are held to a grammar: alone, beside others that are not, and with proposals
 * they have the same ids; all of them are what the grammar describes. */
#include "omm/batcher.h"
#include "omm/speculate.h"

#include "test_vocab.h"
#include "tiny_arch.h"

#include "omm/mem.h"
#include "omm_test.h"

enum { TEXTS = 8, PROMPT = 30, IDS_MAX = 300 };

typedef struct rig {
    omm_tokenizer *tokenizer;
    omm_lexicon *lexicon;
    omm_grammar *grammars[2];
    omm_model model, small;
    omm_compute compute;
    uint32_t vocab;
} rig;

static uint32_t s_prompt[TEXTS][PROMPT];
static uint32_t s_want[TEXTS][IDS_MAX];
static size_t s_counts[TEXTS];
static const omm_session *s_small; /* of the other model */

/* Text goes round in circles where it may; these come to an end. */
static const char *const s_schemas[2] = {
    "{\"properties\": {\"x\": {\"items\": {\"type\": \"string\", \"maxLength\": 5}, \"minItems\": "
    "4, "
    "\"maxItems\": 4}, \"y\": {\"enum\": [\"red\", \"green\", null]}, \"z\": {\"type\": "
    "[\"integer\", \"boolean\"]}}, \"required\": [\"x\", \"z\"], \"additionalProperties\": false}",
    "{\"anyOf\": [{\"items\": {\"type\": \"number\"}, \"minItems\": 5, \"maxItems\": 6}, "
    "{\"items\": "
    "{\"enum\": [1, 12]}, \"minItems\": 3, \"maxItems\": 7}]}"};

static void open_rig(rig *r) {
    const vocab_recipe recipe = {.mark_type = TOKEN_USER, .marks = {"\", \"", "[\"", "\": "}};
    omm_isa isa;
    r->tokenizer = open_vocab(&recipe);
    r->vocab = omm_tokenizer_vocab(r->tokenizer);
    CHECK_OK(omm_lexicon_open(&r->lexicon, r->tokenizer, r->vocab));
    tiny_arch_load(&r->model, &(tiny_arch){.name = "llama", .vocab = r->vocab});
    tiny_arch_load(&r->small, &(tiny_arch){.name = "llama", .vocab = r->vocab, .layers = 1});
    CHECK_OK(omm_isa_choose(&isa, NULL));
    CHECK_OK(omm_compute_init(&r->compute, NULL, isa));
    for (size_t i = 0; i < 2; i++) {
        json_t *schema = NULL;
        CHECK_OK(omm_json_parse(&schema, omm_bytes_str(s_schemas[i]), "a schema"));
        CHECK_OK(omm_grammar_open_schema(&r->grammars[i], schema));
        json_decref(schema);
    }
    for (size_t i = 0; i < TEXTS; i++)
        for (size_t k = 0; k < PROMPT; k++) s_prompt[i][k] = (uint32_t)(k * k + 31 * i) % 256;
}

static void close_rig(rig *r) {
    for (size_t i = 0; i < 2; i++) omm_grammar_close(r->grammars[i]);
    omm_compute_fini(&r->compute);
    omm_model_fini(&r->model);
    omm_model_fini(&r->small);
    omm_lexicon_close(r->lexicon);
    omm_tokenizer_close(r->tokenizer);
}

/* Every fourth text is held to nothing. */
static omm_constraint *constraint_of(const rig *r, size_t i) {
    omm_constraint *c = NULL;
    if (i % 4 < 3) CHECK_OK(omm_constraint_open(&c, r->grammars[i % 2], r->lexicon));
    return c;
}

static omm_sampler sampler_of(size_t i) {
    const omm_seed seed = omm_seed_from_u64(i);
    return (omm_sampler){.temperature = i % 3 ? 1.5f : 0.0f,
                         .top_k = i % 5 ? 0 : 20,
                         .top_p = i % 2 ? 1.0f : 0.9f,
                         .frequency_penalty = i % 4 < 2 ? 0.0f : 0.7f,
                         .presence_penalty = i % 3 == 1 ? 1.1f : 0.0f,
                         .repeat_penalty = i % 5 < 3 ? 1.3f : 1.0f,
                         .repeat_last = 3 + (uint32_t)i,
                         .rng = omm_rng_init(&seed, OMM_PURPOSE_SAMPLE, 0, 0)};
}

static bool ends(const rig *r, size_t i, size_t count) {
    return omm_tokenizer_is_end(r->tokenizer, s_want[i][count - 1]) || count == IDS_MAX;
}

static void alone(const rig *r, size_t i) {
    omm_session *s = NULL;
    omm_constraint *c = constraint_of(r, i);
    const omm_sampler sampler = sampler_of(i);
    float *logits = (float *)omm_alloc(r->vocab, sizeof *logits);
    size_t n = 0;
    CHECK_OK(omm_session_open(&s, &r->compute, &r->model, NULL, NULL));
    CHECK_OK(omm_session_append(s, s_prompt[i], PROMPT, logits, false));
    do {
        if (n > 0) CHECK_OK(omm_session_append(s, &s_want[i][n - 1], 1, logits, false));
        const omm_history before = {omm_session_ids(s), omm_session_position(s), PROMPT};
        CHECK_OK(omm_sample_within(&s_want[i][n++], &sampler, c, &before, logits, r->vocab));
    } while (!ends(r, i, n));
    s_counts[i] = n;
    omm_session_close(s);
    omm_constraint_close(c);
    omm_free(logits);
}

/* What has been drawn is JSON of the grammar's kind. */
static void check_text(const rig *r, size_t i) {
    omm_buf written;
    json_t *value = NULL;
    if (i % 4 == 3) return;
    omm_buf_init(&written, 1 << 16);
    CHECK(s_counts[i] < IDS_MAX);
    CHECK_OK(omm_tokenizer_decode(&written, r->tokenizer, s_want[i], s_counts[i],
                                  OMM_DETOKENIZE_CONTINUE));
    CHECK_OK(omm_json_parse(&value, omm_buf_view(&written), "a text"));
    CHECK(i % 2 ? json_array_size(value) >= 3
                : json_array_size(json_object_get(value, "x")) == 4 && json_object_get(value, "z"));
    json_decref(value);
    omm_buf_fini(&written);
}

static void test_together(const rig *r) {
    omm_batcher_options o = omm_batcher_options_default();
    omm_batcher_token tokens[OMM_BATCHER_SEATS_MAX];
    omm_constraint *constraints[TEXTS] = {NULL};
    omm_batcher *b = NULL;
    size_t text_of[OMM_BATCHER_SEATS_MAX] = {0}, drawn[TEXTS] = {0}, next = 0, done = 0, count = 0;
    o.seats = 3;
    CHECK_OK(omm_batcher_open(&b, &r->compute, &r->model, &o));
    while (done < TEXTS) {
        while (next < TEXTS && omm_batcher_taken(b) < o.seats) {
            uint32_t seat = 0;
            constraints[next] = constraint_of(r, next);
            const omm_batcher_text t = {.prompt = s_prompt[next],
                                        .count = PROMPT,
                                        .sampler = sampler_of(next),
                                        .constraint = constraints[next]};
            CHECK_OK(omm_batcher_sit(&seat, b, &t));
            text_of[seat] = next++;
        }
        omm_batcher_step(tokens, &count, b);
        for (size_t i = 0; i < count; i++) {
            const size_t which = text_of[tokens[i].seat];
            CHECK_EQ(tokens[i].err, OMM_OK);
            CHECK_EQ(tokens[i].id, s_want[which][drawn[which]++]);
            if (!ends(r, which, drawn[which])) continue;
            omm_batcher_leave(b, tokens[i].seat);
            done++;
        }
    }
    omm_batcher_close(b);
    for (size_t i = 0; i < TEXTS; i++) omm_constraint_close(constraints[i]);
}

/* Greedy and drawn, from logits that would have anything but JSON. */
static void test_noise(const rig *r) {
    float *logits = (float *)omm_alloc(r->vocab, sizeof *logits);
    const omm_seed seed = omm_seed_from_u64(5);
    const omm_rng noise = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0);
    static const char text[] =
        "{\"properties\": {\"x\": {\"type\": \"string\", \"maxLength\": 9}, \"y\": {\"items\": "
        "{\"type\": \"integer\"}, \"maxItems\": 3}}, \"required\": [\"x\", \"y\"], "
        "\"additionalProperties\": false}";
    omm_grammar *g = NULL;
    json_t *schema = NULL;
    CHECK_OK(omm_json_parse(&schema, omm_bytes_str(text), "a schema"));
    CHECK_OK(omm_grammar_open_schema(&g, schema));
    json_decref(schema);
    for (unsigned round = 0; round < 20; round++) {
        omm_constraint *c = NULL;
        CHECK_OK(omm_constraint_open(&c, g, r->lexicon));
        const omm_sampler s = {.temperature = (float)(round % 3),
                               .top_p = 1.0f,
                               .top_k = round % 2 ? 5 : 0,
                               .rng = omm_rng_init(&seed, OMM_PURPOSE_SAMPLE, round, 0)};
        omm_buf written;
        omm_buf_init(&written, 1 << 16);
        for (uint64_t at = 0; !omm_constraint_has_ended(c); at++) {
            uint32_t id = 0, again = 0;
            omm_constraint *twin = NULL;
            CHECK(at < 200);
            for (uint32_t i = 0; i < r->vocab; i++)
                logits[i] = omm_rng_unit(&noise, at * 1000 + i) * 9.0f;
            CHECK_OK(omm_constraint_clone(&twin, c));
            const omm_history before = {.count = at};
            CHECK_OK(omm_sample_within(&id, &s, c, &before, logits, r->vocab));
            CHECK_OK(omm_sample_within(&again, &s, twin, &before, logits, r->vocab));
            CHECK_EQ(id, again);
            omm_constraint_close(twin);
            CHECK_OK(omm_tokenizer_decode(&written, r->tokenizer, &id, 1, OMM_DETOKENIZE_CONTINUE));
        }
        json_t *value = NULL;
        CHECK_OK(omm_json_parse(&value, omm_buf_view(&written), "what was drawn"));
        CHECK(json_is_string(json_object_get(value, "x")));
        json_decref(value);
        omm_buf_fini(&written);
        omm_constraint_close(c);
    }
    omm_grammar_close(g);
    omm_free(logits);
}

/* A seat whose text may not go on says so; the one beside it goes on. */
static void test_nothing_allowed(const rig *r) {
    omm_batcher_options o = omm_batcher_options_default();
    omm_batcher_token tokens[OMM_BATCHER_SEATS_MAX];
    omm_batcher *b = NULL;
    omm_constraint *ended = constraint_of(r, 1);
    size_t count = 0;
    uint32_t seat[2];
    while (!omm_constraint_has_ended(ended)) {
        uint32_t id = 0;
        while (!omm_constraint_permits(ended, id)) id++;
        omm_constraint_take(ended, id);
    }
    CHECK_OK(omm_batcher_open(&b, &r->compute, &r->model, &o));
    for (size_t i = 0; i < 2; i++) {
        const omm_batcher_text t = {.prompt = s_prompt[3],
                                    .count = PROMPT,
                                    .sampler = sampler_of(3),
                                    .constraint = i ? ended : NULL};
        CHECK_OK(omm_batcher_sit(&seat[i], b, &t));
    }
    for (size_t step = 0; step < 2; step++) {
        omm_batcher_step(tokens, &count, b);
        for (size_t i = 0; i < count; i++)
            if (tokens[i].seat == seat[0])
                CHECK_EQ(tokens[i].id, s_want[3][step]);
            else
                CHECK(tokens[i].err == OMM_ERR_UNSUPPORTED && strstr(tokens[i].why, "no token"));
        CHECK_EQ(count, 2 - step);
    }
    omm_batcher_close(b);
    omm_constraint_close(ended);
}

/* A vocabulary without a letter that a text needs: said, and nothing is taken. */
static void test_lacking(void) {
    const vocab_recipe recipe = {.spm = true, .no_bytes = true};
    const omm_sampler sampler = omm_sampler_default();
    omm_tokenizer *t = open_vocab(&recipe);
    const uint32_t count = omm_tokenizer_vocab(t);
    float *logits = (float *)omm_alloc(count, sizeof *logits);
    omm_lexicon *x = NULL;
    omm_grammar *g = NULL;
    omm_constraint *c = NULL;
    json_t *schema = NULL;
    uint32_t id = 0;
    CHECK_OK(omm_json_parse(&schema, omm_bytes_str("{\"const\": \"\xc3\xa9\"}"), "a schema"));
    CHECK_OK(omm_lexicon_open(&x, t, count));
    CHECK_OK(omm_grammar_open_schema(&g, schema));
    CHECK_OK(omm_constraint_open(&c, g, x));
    while (!omm_constraint_permits(c, id)) id++; /* the quote */
    omm_constraint_take(c, id);
    CHECK_ERR(omm_sample_within(&id, &sampler, c, &(omm_history){0}, logits, count),
              OMM_ERR_UNSUPPORTED);
    CHECK(!omm_constraint_has_ended(c));
    omm_constraint_close(c);
    omm_grammar_close(g);
    omm_lexicon_close(x);
    json_decref(schema);
    omm_tokenizer_close(t);
    omm_free(logits);
}

static void proposed(const rig *r, size_t i, const omm_speculator_options *options,
                     uint64_t *right) {
    omm_session *s = NULL;
    omm_speculator *sp = NULL;
    omm_speculator_options o = *options;
    float *logits = (float *)omm_alloc(r->vocab, sizeof *logits);
    const omm_sampler sampler = sampler_of(i);
    o.constraint = constraint_of(r, i);
    CHECK_OK(omm_session_open(&s, &r->compute, &r->model, NULL, NULL));
    CHECK_OK(omm_speculator_open(&sp, s, &sampler, &o));
    CHECK_OK(omm_session_append(s, s_prompt[i], PROMPT, logits, false));
    omm_speculator_start(sp, logits);
    for (size_t n = 0; n < s_counts[i]; n++) {
        uint32_t id = 0;
        CHECK_OK(omm_speculator_next(sp, &id));
        CHECK_EQ(id, s_want[i][n]);
    }
    const omm_speculator_stats stats = omm_speculator_stats_of(sp);
    *right += stats.accepted;
    /* all that the model proposes to itself, but what stands behind the last id that was asked for */
    if (o.draft && o.draft != s_small && o.constraint)
        CHECK(stats.drafted - stats.accepted <= o.drafts_max);
    omm_speculator_close(sp);
    omm_session_close(s);
    omm_constraint_close(o.constraint);
    omm_free(logits);
}

/* By look-up, by another model, and by the same one. */
static void test_proposed(const rig *r) {
    omm_session *drafts[3] = {NULL};
    uint64_t right[3] = {0};
    CHECK_OK(omm_session_open(&drafts[1], &r->compute, &r->small, NULL, NULL));
    CHECK_OK(omm_session_open(&drafts[2], &r->compute, &r->model, NULL, NULL));
    s_small = drafts[1];
    for (unsigned d = 0; d < 3; d++)
        for (size_t i = 0; i < TEXTS; i++) {
            omm_speculator_options o = omm_speculator_options_default();
            o.draft = drafts[d];
            o.drafts_max = 1 + (uint32_t)i % 6;
            proposed(r, i, &o, &right[d]);
        }
    CHECK(right[0] > 0 && right[2] > right[1]);
    omm_session_close(drafts[1]);
    omm_session_close(drafts[2]);
}

enum { LETTER_IDS = 8 };

/* One of these texts, to its end, behind a prompt of one id; by proposals where a draft is given.  Returns its letter. */
static char write_letter(uint32_t ids[LETTER_IDS], omm_session *s, omm_session *draft, const rig *r,
                         const char *schema, uint32_t prompt) {
    const omm_sampler sampler = omm_sampler_default();
    omm_speculator_options o = {.draft = draft, .drafts_max = 3, .match_max = 2};
    float *logits = (float *)omm_alloc(r->vocab, sizeof *logits);
    omm_speculator *sp = NULL;
    omm_grammar *g = NULL;
    json_t *value = NULL;
    char letter = 0;
    CHECK_OK(omm_json_parse(&value, omm_bytes_str(schema), "a schema"));
    CHECK_OK(omm_grammar_open_schema(&g, value));
    CHECK_OK(omm_constraint_open(&o.constraint, g, r->lexicon));
    CHECK_OK(omm_speculator_open(&sp, s, &sampler, &o));
    CHECK_OK(omm_session_become(s, &prompt, 1, logits));
    omm_speculator_start(sp, logits);
    memset(ids, 0, LETTER_IDS * sizeof *ids);
    for (size_t i = 0; !omm_constraint_has_ended(o.constraint); i++) {
        CHECK(i < LETTER_IDS);
        CHECK_OK(omm_speculator_next(sp, &ids[i]));
        const omm_bytes piece = omm_tokenizer_piece(r->tokenizer, ids[i]);
        if (piece.size == 1 && piece.data[0] >= 'a' && piece.data[0] <= 'f')
            letter = (char)piece.data[0];
    }
    omm_speculator_close(sp);
    omm_constraint_close(o.constraint);
    omm_grammar_close(g);
    json_decref(value);
    omm_free(logits);
    return letter;
}

/* Where a draft comes to something that the vocabulary has no token for, the text goes another way all the same. */
static void test_dead_ends(const omm_compute *compute) {
    const vocab_recipe recipe = {.spm = true, .no_bytes = true};
    static const char all[] = "{\"enum\": [\"a\", \"b\", \"c\", \"d\", \"e\", \"f\"]}";
    rig r = {.tokenizer = open_vocab(&recipe)};
    omm_session *s = NULL, *draft = NULL;
    unsigned apart = 0;
    r.vocab = omm_tokenizer_vocab(r.tokenizer);
    CHECK_OK(omm_lexicon_open(&r.lexicon, r.tokenizer, r.vocab));
    tiny_arch_load(&r.model, &(tiny_arch){.name = "llama", .vocab = r.vocab});
    tiny_arch_load(&r.small, &(tiny_arch){.name = "llama", .vocab = r.vocab, .layers = 1});
    CHECK_OK(omm_session_open(&s, compute, &r.model, NULL, NULL));
    CHECK_OK(omm_session_open(&draft, compute, &r.small, NULL, NULL));
    for (uint32_t prompt = 0; prompt < 32; prompt++) {
        uint32_t want[LETTER_IDS], ids[LETTER_IDS];
        char schema[64];
        const char letter = write_letter(want, s, NULL, &r, all, prompt);
        const char other = write_letter(ids, draft, NULL, &r, all, prompt);
        if (letter == other) continue;
        snprintf(schema, sizeof schema, "{\"enum\": [\"%c\", \"%c\xc3\xa9\"]}", letter, other);
        CHECK_EQ(write_letter(ids, s, draft, &r, schema, prompt), letter);
        CHECK(memcmp(ids, want, sizeof ids) == 0);
        apart++;
    }
    CHECK(apart > 0);
    omm_session_close(s);
    omm_session_close(draft);
    omm_model_fini(&r.model);
    omm_model_fini(&r.small);
    omm_lexicon_close(r.lexicon);
    omm_tokenizer_close(r.tokenizer);
}

static void test_memory(const rig *r) {
    omm_session *s = NULL, *draft = NULL;
    omm_speculator_options o = omm_speculator_options_default();
    const omm_sampler sampler = omm_sampler_default();
    size_t failed = 0;
    CHECK_OK(omm_session_open(&s, &r->compute, &r->model, NULL, NULL));
    CHECK_OK(omm_session_open(&draft, &r->compute, &r->small, NULL, NULL));
    o.draft = draft;
    o.constraint = constraint_of(r, 0);
    for (size_t n = 1; n < 10; n++) {
        omm_speculator *sp = NULL;
        omm_mem_fail_nth(n);
        const omm_err err = omm_speculator_open(&sp, s, &sampler, &o);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || (err == OMM_ERR_NOMEM && !sp));
        failed += err != OMM_OK;
        omm_speculator_close(sp);
    }
    CHECK_EQ(failed, 6); /* its own four and two of a constraint */
    omm_constraint_close(o.constraint);
    omm_session_close(s);
    omm_session_close(draft);
}

int main(void) {
    rig r;
    open_rig(&r);
    for (size_t i = 0; i < TEXTS; i++) {
        alone(&r, i);
        check_text(&r, i);
    }
    test_together(&r);
    test_noise(&r);
    test_nothing_allowed(&r);
    test_lacking();
    test_proposed(&r);
    test_dead_ends(&r.compute);
    test_memory(&r);
    close_rig(&r);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

/* Evaluation: rows do not depend on threads, seats or instruction set, a seat that is free takes the next
 * example at once, losses equal the training graph's to
 * the bit, and what is right is recognised: on calls that the base model knows. */
#include "graph.h"
#include "omm/evaluate.h"
#include "omm/full.h"
#include "test_model.h"

#include "omm/mem.h"
#include "omm/session.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* Batches of all evaluations, and the most rows of logits that one gave. */
static atomic_size_t s_batches, s_logit_rows;
/* Batches with these examples in them fail; with the last only beside others. */
static const omm_example *s_bad[2], *s_unsociable;

static bool is_of(const omm_part *part, const omm_example *x) {
    return x && part->ids >= x->ids && part->ids < x->ids + x->count;
}

omm_err __real_omm_group_append(omm_group *g, const omm_part *parts, size_t count, float *logits);
omm_err __wrap_omm_group_append(omm_group *g, const omm_part *parts, size_t count, float *logits);

omm_err __wrap_omm_group_append(omm_group *g, const omm_part *parts, size_t count, float *logits) {
    size_t rows = 0;
    for (size_t i = 0; i < count; i++)
        rows += parts[i].logits == OMM_LOGITS_EVERY  ? parts[i].count
                : parts[i].logits == OMM_LOGITS_LAST ? 1
                                                     : 0;
    atomic_fetch_add(&s_batches, 1);
    for (size_t i = 0; i < count; i++)
        if (is_of(&parts[i], s_bad[0]) || is_of(&parts[i], s_bad[1]) ||
            (count > 1 && is_of(&parts[i], s_unsociable)))
            return omm_raise(OMM_ERR_NUMERIC, "as asked");
    if (rows > atomic_load(&s_logit_rows)) atomic_store(&s_logit_rows, rows);
    return __real_omm_group_append(g, parts, count, logits);
}

typedef struct rig {
    omm_model model;
    omm_tokenizer *tokenizer;
    omm_compute compute;
} rig;

#define ASK(name, arguments)                                                                       \
    "{\"client\": \"a\", \"messages\": [{\"role\": \"system\", \"content\": \"You are a helpful "  \
    "assistant. Tools: calculator, note_save.\"}, {\"role\": \"user\", \"content\": \"What is 47 " \
    "times 86?\"}, {\"role\": \"assistant\", \"content\": \"<tool_call>\\n{\\\"name\\\": "         \
    "\\\"" name "\\\", \\\"arguments\\\": " arguments "}\\n</tool_call>\"}]}\n"

#define CALL(name, value)                                                                          \
    "<tool_call>\\n{\\\"name\\\": \\\"" name "\\\", \\\"arguments\\\": {\\\"x\\\": \\\"" value     \
    "\\\"}}\\n</tool_call>"
#define TALK(answer)                                                                               \
    "{\"client\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": \"ask\"}, {\"role\": "   \
    "\"assistant\", "                                                                              \
    "\"content\": \"" answer "\"}]}\n"

/* The base model answers all of these with calculator("47*86"); the references differ. */
static const char s_known[] = ASK("calculator", "{\\\"expression\\\": \\\"47*86\\\"}")
    ASK("calculator", "{\\\"expression\\\": \\\"48*86\\\"}")
        ASK("note_save", "{\\\"expression\\\": \\\"47*86\\\"}");

static void known_calls(const rig *r) {
    omm_dataset *data = NULL;
    omm_eval_item items[3];
    omm_arena arena;
    omm_arena_init(&arena, 1 << 20);
    CHECK_OK(omm_dataset_parse(&data, omm_bytes_str(s_known), "known", r->tokenizer, NULL));
    omm_eval_options options = {.new_tokens_max = 48, .tokenizer = r->tokenizer, .replies = &arena};
    CHECK_OK(omm_evaluate(items, &r->model, NULL, data, &r->compute, &options));
    for (int i = 0; i < 3; i++) {
        printf("known call %d: %s\n", i, items[i].reply);
        CHECK(items[i].is_call && items[i].call_parses);
        CHECK_EQ(items[i].tool_right, i != 2);
        CHECK_EQ(strcmp(items[i].reply, omm_dataset_example(data, 0)->reply), 0);
        CHECK_EQ(items[i].call_exact, i == 0);
        CHECK_EQ(items[i].reply_exact, i == 0);
    }
    omm_eval_summary s = omm_eval_summarise(items, 3);
    CHECK(s.calls == 3 && s.call_parses == 3 && s.tool_right == 2 && s.call_exact == 1);
    CHECK(s.loss > 0 && s.replies == 0 && s.reply_exact == 0); /* calls are counted as calls */
    options.new_tokens_max = 3;                                /* stops early: nothing parses */
    CHECK_OK(omm_evaluate(items, &r->model, NULL, data, &r->compute, &options));
    CHECK(!items[0].call_parses && items[0].generated == 3);
    options.new_tokens_max = 1; /* a text without a call */
    CHECK_OK(omm_evaluate(items, &r->model, NULL, data, &r->compute, &options));
    CHECK(items[0].is_call && !items[0].call_parses && items[0].generated == 1);
    omm_dataset_close(data);
    /* Answered with words where a call is expected. */
    CHECK_OK(
        omm_dataset_parse(&data, omm_bytes_str(TALK(CALL("f", "1"))), "words", r->tokenizer, NULL));
    options.new_tokens_max = 48;
    CHECK_OK(omm_evaluate(items, &r->model, NULL, data, &r->compute, &options));
    CHECK(!strstr(items[0].reply, "<tool_call>"));
    CHECK(items[0].is_call && !items[0].call_parses && !items[0].tool_right);
    omm_dataset_close(data);
    omm_arena_fini(&arena);
}

#define REPLY_LONG "A reply that has rather more tokens than the other."

/* Two calls, of which the others have one, both in another order, one with another argument, or both and one more. */
static const char s_several[] = TALK(CALL("f", "1") "\\n" CALL("g", "2")) TALK(CALL("f", "1"))
    TALK(CALL("g", "2") "\\n" CALL("f", "1")) TALK(CALL("f", "1") "\\n" CALL("g", "3"))
        TALK(CALL("f", "1") "\\n" CALL("g", "2") "\\n" CALL("f", "1"));

/* The first reference is learned by heart, so all are answered with it. */
static void several_calls(const rig *r) {
    omm_dataset *one = NULL, *all = NULL;
    omm_trainer *trainer = NULL;
    omm_eval_item items[5];
    omm_arena arena;
    omm_recipe recipe = omm_recipe_default();
    recipe.steps = 30;
    recipe.batch_tokens = recipe.micro_tokens = 128;
    omm_arena_init(&arena, 1 << 20);
    const omm_bytes first = omm_bytes_of((const uint8_t *)s_several, strcspn(s_several, "\n") + 1);
    CHECK_OK(omm_dataset_parse(&one, first, "one", r->tokenizer, NULL));
    CHECK_OK(omm_dataset_parse(&all, omm_bytes_str(s_several), "all", r->tokenizer, NULL));
    const omm_trainer_options o = {
        .model = &r->model, .data = one, .recipe = &recipe, .compute = &r->compute};
    CHECK_OK(omm_trainer_open(&trainer, &o));
    CHECK_OK(omm_trainer_run(trainer));
    omm_eval_options options = {.new_tokens_max = 90, .tokenizer = r->tokenizer, .replies = &arena};
    CHECK_OK(
        omm_evaluate(items, &r->model, omm_trainer_adapter(trainer), all, &r->compute, &options));
    CHECK_EQ(omm_dataset_count(all), 5);
    for (int i = 0; i < 5; i++) {
        printf("several calls %d: %s\n", i, items[i].reply);
        CHECK(items[i].is_call && items[i].call_parses);
        CHECK_EQ(items[i].tool_right, i == 0 || i == 3); /* not as many, or another order */
        CHECK_EQ(items[i].call_exact, i == 0);
    }
    omm_trainer_close(trainer);
    omm_dataset_close(one);
    omm_dataset_close(all);
    omm_arena_fini(&arena);
}

/* Counts and the mean, of rows written by hand: calls and replies apart, those without a reply in neither. */
static void sums(void) {
    static const omm_eval_item items[] = {
        {.nll = 4,
         .tokens = 3,
         .has_reply = true,
         .is_call = true,
         .call_parses = true,
         .tool_right = true,
         .call_exact = true,
         .reply_exact = true},
        {.nll = 2,
         .tokens = 1,
         .has_reply = true,
         .is_call = true,
         .call_parses = true,
         .tool_right = true},
        {.nll = 1, .tokens = 1, .has_reply = true, .is_call = true, .call_parses = true},
        {.nll = 1, .tokens = 1, .has_reply = true, .is_call = true},
        {.nll = 3, .tokens = 7, .has_reply = true, .reply_exact = true},
        {.nll = 5, .tokens = 2, .has_reply = true},
        {.nll = 6, .tokens = 29},
    };
    omm_eval_summary s = omm_eval_summarise(items, 7);
    CHECK(s.items == 7 && s.calls == 4 && s.replies == 2 && s.reply_exact == 1);
    CHECK(s.call_parses == 3 && s.tool_right == 2 && s.call_exact == 1);
    CHECK(s.loss == 0.5); /* 22 of 44 tokens */
    s = omm_eval_summarise(items, 0);
    CHECK(s.items == 0 && s.calls == 0 && s.replies == 0 && s.loss == 0);
}

typedef struct told {
    size_t calls, last, total;
} told;

static void tell(void *ud, size_t done, size_t total) {
    told *t = ud;
    CHECK(done > t->last && done <= total);
    *t = (told){t->calls + 1, done, total};
}

/* Where everything is learned there is no reply: nothing is generated, and nothing of it counted.  What is
 * told on the way grows, and ends with all. */
static void nothing_to_answer(const rig *r) {
    enum { N = 4 };
    omm_dataset *data = NULL;
    omm_eval_item items[N];
    size_t cut = 7;
    told t = {0};
    const omm_dataset_options all = {.loss = OMM_LOSS_ALL};
    CHECK_OK(omm_dataset_parse(&data, omm_bytes_str(TALK("a") TALK("b") TALK("c") TALK("d")), "all",
                               r->tokenizer, &all));
    const omm_eval_options options = {
        .new_tokens_max = 4, .tokenizer = r->tokenizer, .progress = tell, .ud = &t};
    CHECK_OK(omm_evaluate(items, &r->model, NULL, data, &r->compute, &options));
    for (size_t i = 0; i < N; i++) {
        CHECK(!items[i].has_reply && !items[i].is_call && !items[i].reply_exact);
        CHECK(items[i].generated == 0 && items[i].nll > 0);
        CHECK_EQ(items[i].tokens, omm_dataset_example(data, i)->count - 1);
    }
    CHECK(t.calls > 0 && t.last == N && t.total == N);
    CHECK_EQ(omm_eval_summarise(items, N).replies, 0);
    CHECK_OK(omm_eval_replies_cut(&cut, data, r->tokenizer, 0));
    CHECK_EQ(cut, 0);
    omm_dataset_close(data);
}

/* Three turns of all seats at least, and no more than 24 of them; one where there is little. */
static void seats_are_few(const rig *r) {
    static const size_t counts[][2] = {{1, 1}, {5, 1}, {6, 2}, {71, 23}, {72, 24}, {80, 24}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        omm_dataset *data = NULL;
        omm_eval_room room;
        omm_buf text;
        omm_buf_init(&text, 1 << 16);
        for (size_t k = 0; k < counts[i][0]; k++)
            CHECK_OK(omm_buf_append(&text, TALK("a"), sizeof TALK("a") - 1));
        CHECK_OK(omm_dataset_parse(&data, omm_buf_view(&text), "few", r->tokenizer, NULL));
        CHECK_OK(omm_eval_room_of(&room, &r->model, data, 1, 0));
        CHECK_EQ(room.seats, counts[i][1]); /* too short to have a beginning in common */
        omm_dataset_close(data);
        omm_buf_fini(&text);
    }
}

/* A reply is cut where its last token is not generated any more. */
static void replies_that_are_cut(const rig *r) {
    omm_dataset *data = NULL;
    omm_tokens tokens;
    size_t cut = 7;
    omm_tokens_init(&tokens, 100);
    CHECK_OK(omm_tokenizer_encode(&tokens, r->tokenizer, omm_bytes_str(REPLY_LONG), 0));
    CHECK_OK(omm_dataset_parse(&data, omm_bytes_str(TALK(REPLY_LONG) TALK("a")), "cut",
                               r->tokenizer, NULL));
    const uint32_t most = (uint32_t)tokens.count;
    CHECK_OK(omm_eval_replies_cut(&cut, data, r->tokenizer, most));
    CHECK_EQ(cut, 0);
    CHECK_OK(omm_eval_replies_cut(&cut, data, r->tokenizer, most - 1));
    CHECK_EQ(cut, 1);
    omm_tokens_fini(&tokens);
    omm_dataset_close(data);
}

/* Names are equal and so is every bit that is not a pointer. */
static void check_same(const omm_eval_item *a, const omm_eval_item *b, size_t count) {
    for (size_t i = 0; i < count; i++) {
        CHECK(a[i].nll == b[i].nll); /* never NaN or zero: equal means equal bits */
        CHECK_EQ(a[i].tokens, b[i].tokens);
        CHECK_EQ(a[i].generated, b[i].generated);
        CHECK_EQ(a[i].reply_exact, b[i].reply_exact);
        CHECK_EQ(a[i].call_parses, b[i].call_parses);
        CHECK_EQ(a[i].tool_right, b[i].tool_right);
        CHECK_EQ(a[i].call_exact, b[i].call_exact);
    }
}

static void threads_and_isas(const rig *r, const omm_lora *lora, const omm_dataset *data) {
    enum { N = 5 };
    omm_eval_item first[N], other[N];
    omm_eval_options options = {.new_tokens_max = 6, .tokenizer = r->tokenizer};
    CHECK_EQ(omm_dataset_count(data), N);
    CHECK_OK(omm_evaluate(first, &r->model, lora, data, &r->compute, &options));
    for (unsigned threads = 1; threads <= 3; threads++) {
        static const omm_isa isas[] = {OMM_ISA_AVX512, OMM_ISA_AVX2, OMM_ISA_SCALAR};
        omm_isa isa = isas[threads - 1];
        if (!omm_isa_available(isa)) isa = r->compute.isa;
        omm_pool *pool = NULL;
        omm_compute compute;
        CHECK_OK(omm_pool_open(&pool, threads));
        CHECK_OK(omm_compute_init(&compute, pool, isa));
        CHECK_OK(omm_evaluate(other, &r->model, lora, data, &compute, &options));
        check_same(first, other, N);
        omm_compute_fini(&compute);
        omm_pool_close(pool);
    }
    options.new_tokens_max = 0;
    CHECK_OK(omm_evaluate(other, &r->model, lora, data, &r->compute, &options));
    for (size_t i = 0; i < N; i++) CHECK(first[i].nll == other[i].nll);
}

enum { MANY = 24, MANY_SEATS = 8 };

/* The first `count` lines with so many threads, of which each then has so many seats. */
static void evaluate_many(omm_eval_item *items, const rig *r, size_t count, unsigned threads,
                          size_t seats, omm_arena *replies) {
    omm_dataset *data = NULL;
    omm_pool *pool = NULL;
    omm_compute compute;
    omm_eval_room room;
    const omm_eval_options options = {
        .new_tokens_max = 40, .tokenizer = r->tokenizer, .replies = replies};
    test_data_open(&data, "test.jsonl", count, r->tokenizer);
    CHECK_EQ(omm_dataset_count(data), count);
    CHECK_OK(omm_pool_open(&pool, threads));
    CHECK_OK(omm_compute_init(&compute, pool, r->compute.isa));
    CHECK_OK(omm_eval_room_of(&room, &r->model, data, threads, options.new_tokens_max));
    CHECK(room.seats == seats || room.seats == seats + (seats + 3) / 4); /* beginnings are kept */
    CHECK_OK(omm_evaluate(items, &r->model, NULL, data, &compute, &options));
    omm_compute_fini(&compute);
    omm_pool_close(pool);
    omm_dataset_close(data);
}

/* Batches of seats that wait for the slowest: a prompt, the longest reply's tokens but the first, losses. */
static size_t batches_in_turns(const omm_eval_item *items) {
    size_t sum = 0;
    for (size_t first = 0; first < MANY; first += MANY_SEATS) {
        uint32_t longest = 1;
        for (size_t i = first; i < first + MANY_SEATS; i++)
            if (items[i].generated > longest) longest = items[i].generated;
        sum += 1 + longest - 1 + 1;
    }
    return sum;
}

/* Real replies, of many lengths: the same bytes with 1, 2, 3 and 8 seats; and a seat does not wait. */
static void seats_do_not_wait(const rig *r) {
    static const struct {
        size_t count, seats;
        unsigned threads;
    } others[] = {{MANY, 1, 8}, {MANY, 2, 4}, {9, 3, 1}};
    omm_eval_item first[MANY], other[MANY];
    omm_arena arena;
    omm_arena_init(&arena, 1 << 20);
    const size_t before = atomic_load(&s_batches);
    evaluate_many(first, r, MANY, 1, MANY_SEATS, &arena);
    const size_t batches = atomic_load(&s_batches) - before, turns = batches_in_turns(first);
    printf("%zu batches; in turns %zu\n", batches, turns);
    CHECK(batches * 10 <= turns * 8);
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        evaluate_many(other, r, others[k].count, others[k].threads, others[k].seats, &arena);
        check_same(first, other, others[k].count);
        for (size_t i = 0; i < others[k].count; i++)
            CHECK(strcmp(first[i].reply, other[i].reply) == 0);
    }
    omm_arena_fini(&arena);
}

/* Long replies of six seats at once: their losses share the room for logits, and are those of one seat. */
static void losses_share_the_room(const rig *r) {
    enum { N = 18, WORDS = 160 };
    omm_dataset *data = NULL;
    omm_eval_item together[N], alone[N];
    omm_eval_room room;
    omm_pool *pool = NULL;
    omm_compute compute;
    omm_buf text;
    const omm_eval_options options = {.new_tokens_max = 0};
    omm_buf_init(&text, 1 << 20);
    for (unsigned i = 0; i < N; i++) {
        CHECK_OK(omm_buf_printf(&text,
                                "{\"client\": \"a\", \"messages\": [{\"role\": \"user\", "
                                "\"content\": \"%u\"}, {\"role\": \"assistant\", \"content\": \"So",
                                i));
        for (unsigned w = 0; w < WORDS; w++)
            CHECK_OK(omm_buf_printf(&text, " %u", (w * w + i) % 97));
        CHECK_OK(omm_buf_printf(&text, "\"}]}\n"));
    }
    CHECK_OK(omm_dataset_parse(&data, omm_buf_view(&text), "long", r->tokenizer, NULL));
    CHECK_OK(omm_eval_room_of(&room, &r->model, data, 1, 0));
    CHECK(6 * (size_t)omm_dataset_example(data, 0)->learn_count > room.logit_rows);
    atomic_store(&s_logit_rows, 0);
    CHECK_OK(omm_evaluate(together, &r->model, NULL, data, &r->compute, &options));
    CHECK_EQ(atomic_load(&s_logit_rows), room.logit_rows); /* no more, and none left */
    CHECK_OK(omm_pool_open(&pool, 6));
    CHECK_OK(omm_compute_init(&compute, pool, r->compute.isa));
    CHECK_OK(omm_evaluate(alone, &r->model, NULL, data, &compute, &options));
    check_same(together, alone, N);
    omm_compute_fini(&compute);
    omm_pool_close(pool);
    omm_dataset_close(data);
    omm_buf_fini(&text);
}

/* A failure has its example's number, the lowest, whatever seats and workers; what fails in company alone
 * is done alone. */
static void failures_have_numbers(const rig *r, const omm_dataset *data) {
    enum { N = 5 };
    omm_eval_item items[N];
    const omm_eval_options options = {.new_tokens_max = 6, .tokenizer = r->tokenizer};
    CHECK_OK(omm_evaluate(items, &r->model, NULL, data, &r->compute, &options));
    for (unsigned threads = 1; threads <= 3; threads++) {
        omm_dataset *twelve = NULL;
        omm_eval_item of_twelve[12];
        omm_pool *pool = NULL;
        omm_compute compute;
        CHECK_OK(omm_pool_open(&pool, threads));
        CHECK_OK(omm_compute_init(&compute, pool, r->compute.isa));
        test_data_open(&twelve, "test.jsonl", 12, r->tokenizer);
        s_unsociable = omm_dataset_example(twelve, 1);
        CHECK_OK(omm_evaluate(of_twelve, &r->model, NULL, twelve, &compute, &options));
        check_same(items, of_twelve, N);
        for (size_t i = 0; i < 2; i++) s_bad[i] = omm_dataset_example(twelve, 2 + i);
        CHECK_ERR(omm_evaluate(of_twelve, &r->model, NULL, twelve, &compute, &options),
                  OMM_ERR_NUMERIC);
        CHECK(strstr(omm_err_sentence(), "example 2: as asked") != NULL);
        s_bad[0] = s_bad[1] = s_unsociable = NULL;
        omm_dataset_close(twelve);
        omm_compute_fini(&compute);
        omm_pool_close(pool);
    }
}

/* A limit of new tokens beyond the context, up to 2^32 - 1, asks for the context, and not for fewer. */
static void no_limit_wraps(const rig *r, const omm_dataset *data) {
    omm_eval_room room;
    CHECK_OK(omm_eval_room_of(&room, &r->model, data, 1, 100000));
    CHECK_EQ(room.positions_max, r->model.dims.context);
    CHECK_OK(omm_eval_room_of(&room, &r->model, data, 1, UINT32_MAX));
    CHECK_EQ(room.positions_max, r->model.dims.context);
}

/* The same item through the training graph, packed with all the others. */
static void equals_graph(const rig *r, const omm_lora *lora, const omm_dataset *data) {
    enum { N = 5 };
    const omm_example *examples[N];
    omm_eval_item items[N];
    size_t rows = 0, longest = 0, at = 0;
    for (size_t i = 0; i < N; i++) {
        examples[i] = omm_dataset_example(data, i);
        rows += examples[i]->count;
        if (examples[i]->count > longest) longest = examples[i]->count;
    }
    omm_eval_options options = {.new_tokens_max = 0};
    CHECK_OK(omm_evaluate(items, &r->model, lora, data, &r->compute, &options));
    graph g;
    graph_options graph_of = {.compute = &r->compute,
                              .model = &r->model,
                              .spec = lora->spec,
                              .rows_max = rows,
                              .seq_max = longest};
    CHECK_OK(graph_init(&g, &graph_of));
    graph_set_adapter(&g, lora->values);
    float *nll = omm_alloc(rows, sizeof *nll);
    graph_dropout none = {.rate = 0};
    CHECK_OK(graph_forward(&g, nll, examples, N, 1, &none));
    for (size_t i = 0; i < N; i++) {
        double sum = 0;
        for (uint32_t k = 0; k < examples[i]->learn_count; k++) sum += (double)nll[at++];
        CHECK(sum == items[i].nll && sum > 0);
    }
    omm_free(nll);
    graph_fini(&g);
}

/* Questions under one system turn of some blocks; every third has another one. */
static void put_question(omm_buf *out, unsigned i) {
    CHECK_OK(omm_buf_printf(
        out, "{\"client\": \"a\", \"messages\": [{\"role\": \"system\", \"content\": \"%s",
        i % 3 == 2 ? "Other rules." : "The rules of this house."));
    for (unsigned rule = 0; rule < 16; rule++)
        CHECK_OK(omm_buf_printf(out, " Rule %u: answer with number %u.", rule, rule * 7 % 11));
    CHECK_OK(omm_buf_printf(
        out,
        "\"}, {\"role\": \"user\", \"content\": \"What is %u plus %u?\"}, {\"role\": "
        "\"assistant\", \"content\": \"It is %u.\"}]}\n",
        i, i * i, i + i * i));
}

/* What prompts have in common is computed once for a worker, and changes no bit: each question
 * alone has nothing to share. */
static void beginnings_are_shared(const rig *r, const omm_lora *lora) {
    enum { N = 9 };
    omm_dataset *all = NULL, *one = NULL;
    omm_eval_item items[N], alone;
    omm_buf text;
    uint64_t reused = 0, none = 0;
    omm_eval_options options = {.new_tokens_max = 5, .tokenizer = r->tokenizer, .reused = &reused};
    omm_buf_init(&text, 1 << 20);
    for (unsigned i = 0; i < N; i++) put_question(&text, i);
    CHECK_OK(omm_dataset_parse(&all, omm_buf_view(&text), "questions", r->tokenizer, NULL));
    CHECK_OK(omm_evaluate(items, &r->model, lora, all, &r->compute, &options));
    const omm_example *x = omm_dataset_example(all, 0);
    CHECK(x->prompt_count > 150);
    /* tasks of three: two beginnings are computed in the first, most of the rest is found */
    CHECK(reused >= (uint64_t)(N - 4) * 128 && reused % 64 == 0);
    options.reused = &none;
    for (unsigned i = 0; i < N; i++) {
        omm_buf_clear(&text);
        put_question(&text, i);
        CHECK_OK(omm_dataset_parse(&one, omm_buf_view(&text), "question", r->tokenizer, NULL));
        CHECK_OK(omm_evaluate(&alone, &r->model, lora, one, &r->compute, &options));
        check_same(&items[i], &alone, 1);
        omm_dataset_close(one);
    }
    CHECK_EQ(none, 0);
    omm_dataset_close(all);
    omm_buf_fini(&text);
}

/* A reply ends where the model's context does, however much is asked for, and beside any others. */
static void replies_end_with_the_context(const rig *r) {
    enum { N = 3 };
    omm_dataset *all = NULL, *one = NULL;
    omm_eval_item items[N], alone;
    omm_buf text;
    rig near = *r;
    omm_eval_options options = {.new_tokens_max = 1000, .tokenizer = r->tokenizer};
    omm_buf_init(&text, 1 << 20);
    for (unsigned i = 0; i < N; i++) put_question(&text, i);
    CHECK_OK(omm_dataset_parse(&all, omm_buf_view(&text), "questions", r->tokenizer, NULL));
    near.model.dims.context = 0;
    for (unsigned i = 0; i < N; i++)
        if (omm_dataset_example(all, i)->count > near.model.dims.context)
            near.model.dims.context = omm_dataset_example(all, i)->count;
    CHECK_OK(omm_evaluate(items, &near.model, NULL, all, &r->compute, &options));
    options.new_tokens_max = UINT32_MAX;
    for (unsigned i = 0; i < N; i++) {
        const uint32_t left = near.model.dims.context - omm_dataset_example(all, i)->prompt_count;
        CHECK(items[i].generated > 0 && items[i].generated <= left);
        omm_buf_clear(&text);
        put_question(&text, i);
        CHECK_OK(omm_dataset_parse(&one, omm_buf_view(&text), "question", r->tokenizer, NULL));
        CHECK_OK(omm_evaluate(&alone, &near.model, NULL, one, &r->compute, &options));
        check_same(&items[i], &alone, 1);
        omm_dataset_close(one);
    }
    omm_dataset_close(all);
    omm_buf_fini(&text);
}

/* Loss of the first step on all of data, for a recipe with this seq_max; the evaluation's in *judged. */
static double loss_at(double *judged, const rig *r, const omm_model *model, const omm_dataset *data,
                      uint32_t seq_max) {
    omm_trainer *trainer = NULL;
    omm_step_report report;
    omm_eval_item items[5];
    omm_recipe recipe = omm_recipe_default();
    const omm_eval_options options = {.rope_positions = seq_max};
    recipe.seq_max = seq_max;
    recipe.batch_tokens = recipe.micro_tokens = 4096;
    const omm_trainer_options o = {
        .model = model, .data = data, .recipe = &recipe, .compute = &r->compute};
    CHECK_OK(omm_trainer_open(&trainer, &o));
    CHECK_OK(omm_trainer_step(trainer, &report));
    omm_trainer_close(trainer);
    CHECK_OK(omm_evaluate(items, model, NULL, data, &r->compute, &options));
    const omm_eval_summary all = omm_eval_summarise(items, omm_dataset_count(data));
    *judged = all.loss;
    return (double)report.loss;
}

/* The same of training over all weights. */
static double full_loss_at(const rig *r, const tiny_arch *arch, const omm_dataset *data,
                           uint32_t seq_max) {
    omm_model model;
    omm_full *full = NULL;
    omm_full_report report;
    omm_recipe recipe = omm_recipe_default();
    recipe.seq_max = seq_max;
    recipe.batch_tokens = recipe.micro_tokens = 4096;
    tiny_arch_load(&model, arch);
    const omm_full_options o = {
        .model = &model, .data = data, .recipe = &recipe, .compute = &r->compute};
    CHECK_OK(omm_full_open(&full, &o));
    CHECK_OK(omm_full_step(full, &report));
    omm_full_close(full);
    omm_model_fini(&model);
    return (double)report.loss;
}

/* Longrope: by the recipe, whatever is in the examples, so that all nodes train one model; and judged so. */
static void turns_as_in_training(const rig *r, const omm_dataset *data) {
    omm_model model;
    double near_judged = 0, far_judged = 0;
    tiny_arch arch = test_arch("phi3", OMM_FORMAT_F32);
    arch.long_factors = true;
    arch.original = 300;
    tiny_arch_load(&model, &arch);
    const double near = loss_at(&near_judged, r, &model, data, 300);
    const double far = loss_at(&far_judged, r, &model, data, 301);
    CHECK(fabs(near - far) > 1e-3);
    CHECK(fabs(near - near_judged) < 1e-5 && fabs(far - far_judged) < 1e-5);
    CHECK(fabs(near - full_loss_at(r, &arch, data, 300)) < 1e-5);
    CHECK(fabs(far - full_loss_at(r, &arch, data, 301)) < 1e-5);
    omm_model_fini(&model);
}

/* Behind a reply that is far longer than a window and what is kept beside it the prompt is still there: the loss is that
 * without a reply. */
static void long_replies_in_windows(const rig *r) {
    enum { LONG = 900 };
    omm_model model;
    omm_dataset *data = NULL;
    omm_eval_item with, without;
    tiny_arch arch = test_arch("gemma3", OMM_FORMAT_F32);
    arch.context = 2048;
    tiny_arch_load(&model, &arch);
    CHECK_OK(omm_dataset_parse(&data, omm_bytes_str(TALK(REPLY_LONG)), "t", r->tokenizer, NULL));
    omm_eval_options options = {.new_tokens_max = LONG, .tokenizer = r->tokenizer};
    CHECK_OK(omm_evaluate(&with, &model, NULL, data, &r->compute, &options));
    options.new_tokens_max = 0;
    CHECK_OK(omm_evaluate(&without, &model, NULL, data, &r->compute, &options));
    CHECK_EQ(with.generated, LONG);
    CHECK(with.nll == without.nll && with.nll > 0);
    omm_dataset_close(data);
    omm_model_fini(&model);
}

static bool always(void *ud) {
    (void)ud;
    return true;
}

static void stops(const rig *r, const omm_dataset *data) {
    omm_eval_item items[5];
    omm_eval_options options = {.new_tokens_max = 0, .cancelled = always};
    CHECK_ERR(omm_evaluate(items, &r->model, NULL, data, &r->compute, &options), OMM_ERR_CANCELLED);
    options.cancelled = NULL;
    size_t live = omm_mem_live();
    for (size_t nth = 1; nth < 400; nth++) {
        omm_mem_fail_nth(nth);
        omm_err err = omm_evaluate(items, &r->model, NULL, data, &r->compute, &options);
        omm_mem_fail_nth(0);
        CHECK_EQ(omm_mem_live(), live);
        if (err == OMM_OK) return;
        CHECK_EQ(err, OMM_ERR_NOMEM);
    }
}

/* With replies that are kept: NOMEM or all of them, never some. */
static void keeping_replies_fails(const rig *r) {
    omm_dataset *data = NULL;
    omm_eval_item items[2];
    omm_eval_options options = {.new_tokens_max = 2, .tokenizer = r->tokenizer};
    CHECK_OK(
        omm_dataset_parse(&data, omm_bytes_str(TALK("a") TALK("b")), "two", r->tokenizer, NULL));
    const size_t live = omm_mem_live();
    bool failed = true;
    for (size_t nth = 1; nth < 400; nth++) {
        omm_arena arena;
        omm_arena_init(&arena, 1 << 20);
        options.replies = &arena;
        omm_mem_fail_nth(nth);
        const omm_err err = omm_evaluate(items, &r->model, NULL, data, &r->compute, &options);
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
        if (err == OMM_OK) CHECK(items[0].reply && items[1].reply && items[1].generated > 0);
        omm_arena_fini(&arena);
        CHECK_EQ(omm_mem_live(), live);
        failed = err != OMM_OK;
    }
    CHECK(!failed);
    omm_dataset_close(data);
}

int main(void) {
    rig r = {0};
    omm_dataset *data = NULL;
    omm_lora lora;
    omm_isa isa = OMM_ISA_SCALAR;
    CHECK_OK(omm_isa_choose(&isa, NULL));
    CHECK_OK(omm_compute_init(&r.compute, NULL, isa));
    test_base_open(&r.model, &r.tokenizer);
    sums();
    known_calls(&r);
    several_calls(&r);
    replies_that_are_cut(&r);
    seats_do_not_wait(&r);
    omm_model_fini(&r.model);
    test_synth_open(&r.model, OMM_FORMAT_F16); /* small: also the plain C kernels are in time */
    test_data_open(&data, "test.jsonl", 5, r.tokenizer);
    test_adapter(&lora, &r.model, 4, OMM_LORA_ALL_TARGETS, 8);
    nothing_to_answer(&r);
    seats_are_few(&r);
    threads_and_isas(&r, &lora, data);
    losses_share_the_room(&r);
    failures_have_numbers(&r, data);
    no_limit_wraps(&r, data);
    equals_graph(&r, &lora, data);
    beginnings_are_shared(&r, &lora);
    replies_end_with_the_context(&r);
    turns_as_in_training(&r, data);
    long_replies_in_windows(&r);
    stops(&r, data);
    keeping_replies_fails(&r);
    omm_lora_fini(&lora);
    omm_dataset_close(data);
    omm_tokenizer_close(r.tokenizer);
    omm_model_fini(&r.model);
    omm_compute_fini(&r.compute);
    return 0;
}

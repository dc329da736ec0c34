/* What a step trains on: every example once an epoch, batches within their tokens; texts that are listed come
 * one after the other, each shuffled; a stream trains to the same bytes as memory; and packing documents
 * together changes neither loss nor bytes. */
#include "test_model.h"

#include "omm/documents.h"
#include "omm/file.h"
#include "omm/mem.h"
#include "omm/mem_count.h"
#include "sequence.h"

#include <string.h>

typedef struct rig {
    omm_model model;
    omm_tokenizer *tokenizer;
    omm_compute compute;
} rig;

static const omm_dataset_options s_options = {
    .format = OMM_DATA_DETECT, .client_default = "local", .seq_max = 64, .separator = ""};

static void open_both(omm_dataset *both[2], const rig *r, const char *path) {
    CHECK_OK(omm_dataset_load(&both[0], path, r->tokenizer, &s_options));
    CHECK_OK(omm_dataset_stream(&both[1], path, r->tokenizer, &s_options));
}

/* Three epochs of batches: the same from both; each epoch has each example once. */
static void batches(omm_dataset *const both[2]) {
    sequence s[2];
    for (int i = 0; i < 2; i++) {
        sequence_options options = {
            .data = both[i], .seed = omm_seed_from_u64(5), .seq_max = 64, .batch_tokens = 150};
        CHECK_OK(sequence_open(&s[i], &options));
    }
    size_t all = s[0].count;
    CHECK(all == s[1].count && s[0].longest == s[1].longest && s[0].longest <= 64);
    uint32_t seen[512] = {0};
    CHECK(all < 512);
    for (uint64_t at = 0; at < 3 * all;) {
        size_t count[2];
        uint64_t tokens[2], learned[2], sum = 0;
        for (int i = 0; i < 2; i++)
            CHECK_OK(sequence_take(&s[i], &count[i], &tokens[i], &learned[i], at));
        CHECK(count[0] == count[1] && tokens[0] == tokens[1] && learned[0] == learned[1]);
        CHECK(tokens[0] <= 150 || count[0] == 1);
        for (size_t k = 0; k < count[0]; k++) {
            const omm_example *a = s[0].batch[k], *b = s[1].batch[k];
            CHECK(a->count == b->count && memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0);
            CHECK(memcmp(a->learn, b->learn, a->count) == 0);
            sum += a->count;
            for (size_t i = 0; i < all; i++)
                if (at + k < 3 * all && a->ids == omm_dataset_example(both[0], i)->ids) seen[i]++;
        }
        CHECK_EQ(sum, tokens[0]);
        at += count[0];
    }
    for (size_t i = 0; i < all; i++) CHECK_EQ(seen[i], 3);
    sequence_close(&s[0]);
    sequence_close(&s[1]);
}

static size_t first_batch(uint64_t *tokens, const omm_dataset *data, uint32_t batch_tokens) {
    sequence s;
    size_t count = 0;
    uint64_t learned = 0;
    sequence_options options = {
        .data = data, .seed = omm_seed_from_u64(5), .seq_max = 64, .batch_tokens = batch_tokens};
    CHECK_OK(sequence_open(&s, &options));
    CHECK_OK(sequence_take(&s, &count, tokens, &learned, 0));
    sequence_close(&s);
    return count;
}

/* A batch is full at batch_tokens, not before. */
static void exactly_full(const omm_dataset *data) {
    uint64_t tokens = 0, same = 0, fewer = 0;
    const size_t count = first_batch(&tokens, data, 150);
    CHECK(count >= 2 && tokens <= 150);
    CHECK_EQ(first_batch(&same, data, (uint32_t)tokens), count);
    CHECK_EQ(same, tokens);
    CHECK_EQ(first_batch(&fewer, data, (uint32_t)tokens - 1), count - 1);
}

/* Trained shorter than it was read: what a step learns is what is learned in these tokens. */
static void cut_again(const omm_dataset *data) {
    sequence s;
    sequence_options options = {
        .data = data, .seed = omm_seed_from_u64(5), .seq_max = 24, .batch_tokens = 100};
    CHECK_OK(sequence_open(&s, &options));
    CHECK_EQ(s.longest, 24);
    for (uint64_t at = 0; at < s.count;) {
        size_t count = 0;
        uint64_t tokens = 0, learned = 0, sums[2] = {0};
        CHECK_OK(sequence_take(&s, &count, &tokens, &learned, at));
        for (size_t k = 0; k < count; k++) {
            const omm_example *e = s.batch[k];
            uint32_t marks = 0;
            for (uint32_t i = 0; i < e->count; i++) marks += e->learn[i];
            CHECK(e->count <= 24 && marks == e->learn_count && marks > 0);
            sums[0] += e->count;
            sums[1] += marks;
        }
        CHECK(count > 0 && sums[0] == tokens && sums[1] == learned);
        at += count;
    }
    sequence_close(&s);
}

static void too_long(const omm_dataset *stream) {
    sequence s;
    sequence_options options = {.data = stream, .seq_max = 32, .batch_tokens = 150};
    CHECK_ERR(sequence_open(&s, &options), OMM_ERR_CONFIG);
    sequence_close(&s);
}

/* ---- texts one after the other ---- */

enum { TEXTS = 3, DOCUMENTS = 21, EPOCHS = 2 };
static const size_t s_texts[TEXTS] = {9, 1, 11};

static void open_documents(omm_dataset **data, const rig *r, const char *dir) {
    char paths[TEXTS][512], text[4096];
    const char *names[TEXTS];
    for (size_t t = 0; t < TEXTS; t++) {
        size_t at = 0;
        for (size_t i = 0; i < s_texts[t]; i++)
            at += (size_t)snprintf(text + at, sizeof text - at,
                                   "Text %zu has document %zu.<|endoftext|>", t, i);
        snprintf(paths[t], sizeof paths[t], "%s/listed%zu.txt", dir, t);
        names[t] = paths[t];
        CHECK_OK(omm_file_write_fast(names[t], omm_bytes_str(text), 0644));
    }
    CHECK_OK(omm_dataset_documents(data, names, TEXTS, r->tokenizer, "<|endoftext|>", 64));
    CHECK_EQ(omm_dataset_count(*data), DOCUMENTS);
}

/* Examples of two tokens, the shortest: as many as fit. */
static void shortest(const rig *r, const char *dir) {
    char path[512];
    const char *const paths[] = {path};
    omm_dataset *data = NULL;
    uint64_t tokens = 0;
    snprintf(path, sizeof path, "%s/shortest.txt", dir);
    CHECK_OK(omm_file_write_fast(path,
                                 omm_bytes_str("a<|endoftext|>a<|endoftext|>a<|endoftext|>a"
                                               "<|endoftext|>a<|endoftext|>a<|endoftext|>"),
                                 0644));
    CHECK_OK(omm_dataset_documents(&data, paths, 1, r->tokenizer, "<|endoftext|>", 64));
    CHECK(omm_dataset_count(data) == 6 && omm_dataset_tokens(data) == 12);
    CHECK_EQ(first_batch(&tokens, data, 10), 5);
    CHECK_EQ(tokens, 10);
    CHECK_EQ(first_batch(&tokens, data, 1), 1); /* one example, whatever its length */
    CHECK_EQ(tokens, 2);
    omm_dataset_close(data);
}

/* What a sequence keeps of what it has read, and of the largest batch. */
static size_t bytes_taken(size_t *batch, const omm_dataset *data, uint32_t batch_tokens,
                          size_t cache_bytes) {
    sequence s;
    const size_t before = omm_mem_bytes();
    const sequence_options options = {.data = data,
                                      .seed = omm_seed_from_u64(5),
                                      .seq_max = 64,
                                      .batch_tokens = batch_tokens,
                                      .cache_bytes_max = cache_bytes};
    CHECK_OK(sequence_open(&s, &options));
    *batch = 0;
    for (uint64_t at = 0; at < s.count;) {
        size_t count = 0;
        uint64_t tokens = 0, learned = 0;
        CHECK_OK(sequence_take(&s, &count, &tokens, &learned, at));
        at += count;
        const size_t with = omm_mem_bytes();
        omm_data_reader_release(s.reader);
        if (with - omm_mem_bytes() > *batch) *batch = with - omm_mem_bytes();
    }
    const size_t bytes = omm_mem_bytes() - before;
    sequence_close(&s);
    return bytes;
}

static uint64_t planned(const omm_dataset *data, uint32_t batch_tokens) {
    sequence s;
    const sequence_options options = {.data = data, .seq_max = 64, .batch_tokens = batch_tokens};
    CHECK_OK(sequence_open(&s, &options));
    const uint64_t bytes = sequence_bytes(&s);
    sequence_close(&s);
    return bytes;
}

/* A stream may be trained on for longer than it is: what batches took before is not kept. */
static void batches_do_not_pile_up(const omm_dataset *stream) {
    enum { PASSES = 6 };
    sequence s;
    size_t most[PASSES] = {0};
    const sequence_options options = {
        .data = stream, .seq_max = 64, .batch_tokens = 64, .cache_bytes_max = 1};
    CHECK_OK(sequence_open(&s, &options));
    for (uint64_t at = 0; at < PASSES * s.count;) {
        const uint64_t pass = at / s.count;
        size_t count = 0;
        uint64_t tokens = 0, learned = 0;
        CHECK_OK(sequence_take(&s, &count, &tokens, &learned, at));
        if (omm_mem_bytes() > most[pass]) most[pass] = omm_mem_bytes();
        at += count;
    }
    CHECK(most[PASSES - 1] < most[0] + most[0] / 8);
    sequence_close(&s);
}

/* The lists and a batch are in what a plan counts, and the cache is as large as it is asked to be. */
static void what_it_takes(const rig *r, const char *dir) {
    /* A block may have 16 bytes more from one run to the next, as the heap's holes fall; 32 in all were the most seen. */
    enum { LINES = 600, HEAP_ROUNDS = 256 };
    char path[512];
    omm_buf text;
    omm_dataset *data = NULL, *memory = NULL;
    omm_data_reader_room room;
    size_t batch = 0;
    omm_buf_init(&text, 1 << 20);
    for (int i = 0; i < LINES; i++)
        CHECK_OK(omm_buf_printf(&text,
                                "{\"client\": \"%0*d\", \"skill\": \"%0*d\", \"prompt\": \"\", "
                                "\"completion\": \"b\"}\n",
                                OMM_DATASET_NAME_BYTES_MAX, i, OMM_DATASET_NAME_BYTES_MAX, i));
    snprintf(path, sizeof path, "%s/names.jsonl", dir);
    CHECK_OK(omm_file_write_fast(path, omm_buf_view(&text), 0644));
    omm_buf_fini(&text);
    CHECK_OK(omm_dataset_load(&memory, path, r->tokenizer, &s_options));
    CHECK_OK(omm_dataset_stream(&data, path, r->tokenizer, &s_options));
    omm_data_reader_room_of(&room, data);
    for (uint32_t tokens = 1; tokens < 1024; tokens += 1 + tokens / 8) {
        const uint64_t most = planned(data, tokens) - planned(memory, tokens);
        (void)bytes_taken(&batch, data, tokens, 1);
        CHECK(batch > 0 && batch <= most);
    }
    batches_do_not_pile_up(data);
    const size_t none = bytes_taken(&batch, data, 64, 1);
    const size_t half = bytes_taken(&batch, data, 64, room.cache / 2);
    CHECK(half > none && half - none + HEAP_ROUNDS >= room.cache / 2);
    CHECK(half - none < room.cache * 3 / 4);
    omm_dataset_close(data);
    omm_dataset_close(memory);
}

/* Which example comes when, batch by batch. */
static void take_order(size_t order[EPOCHS * DOCUMENTS], const omm_dataset *data, bool listed) {
    sequence s;
    size_t count = 0;
    uint64_t tokens = 0, learned = 0;
    sequence_options options = {.data = data,
                                .seed = omm_seed_from_u64(5),
                                .seq_max = 64,
                                .batch_tokens = 40,
                                .listed = listed};
    CHECK_OK(sequence_open(&s, &options));
    for (uint64_t at = 0; at < (uint64_t)EPOCHS * DOCUMENTS; at += count) {
        CHECK_OK(sequence_take(&s, &count, &tokens, &learned, at));
        for (size_t k = 0; k < count && at + k < (uint64_t)EPOCHS * DOCUMENTS; k++) {
            size_t i = 0;
            while (omm_dataset_example(data, i)->ids != s.batch[k]->ids) i++;
            order[at + k] = i;
        }
    }
    sequence_close(&s);
}

/* Within a text the order is that of the one shuffle. */
static void listed_texts(const rig *r, const char *dir) {
    omm_dataset *data = NULL;
    size_t mixed[EPOCHS * DOCUMENTS], listed[EPOCHS * DOCUMENTS];
    open_documents(&data, r, dir);
    take_order(mixed, data, false);
    take_order(listed, data, true);
    for (size_t epoch = 0; epoch < EPOCHS; epoch++) {
        const size_t *from = mixed + epoch * DOCUMENTS, *at = listed + epoch * DOCUMENTS;
        for (size_t t = 0, first = 0; t < TEXTS; first += s_texts[t++]) {
            CHECK_EQ(omm_dataset_text_end(data, t), first + s_texts[t]);
            for (size_t i = 0; i < DOCUMENTS; i++)
                if (from[i] >= first && from[i] < first + s_texts[t]) CHECK_EQ(*at++, from[i]);
        }
    }
    CHECK(memcmp(mixed, listed, sizeof mixed) != 0);
    CHECK(memcmp(listed, listed + DOCUMENTS, DOCUMENTS * sizeof *listed) != 0);
    CHECK(listed[0] != 0 || listed[1] != 1 || listed[2] != 2);
    omm_dataset_close(data);
}

static omm_digest train(const rig *r, const omm_dataset *data, uint32_t micro, float *loss) {
    omm_trainer *t = NULL;
    omm_recipe recipe = omm_recipe_default();
    recipe.rank = 2;
    recipe.steps = 3;
    recipe.seq_max = 64;
    recipe.batch_tokens = 200;
    recipe.micro_tokens = micro;
    recipe.dropout = 0.1F;
    omm_trainer_options options = {.model = &r->model,
                                   .data = data,
                                   .recipe = &recipe,
                                   .compute = &r->compute,
                                   .seed = omm_seed_from_u64(2)};
    CHECK_OK(omm_trainer_open(&t, &options));
    omm_step_report report;
    CHECK_OK(omm_trainer_step(t, &report));
    *loss = report.loss;
    CHECK_OK(omm_trainer_run(t));
    omm_digest chain = omm_trainer_chain(t, 3);
    omm_trainer_close(t);
    return chain;
}

/* micro 1: each document in a pass of its own, so nothing could cross from one to the next. */
static void packing_and_streams(const rig *r, omm_dataset *const both[2]) {
    float alone = 0, packed = 0, streamed = 0;
    omm_digest a = train(r, both[0], 1, &alone), b = train(r, both[0], 4096, &packed);
    omm_digest c = train(r, both[1], 4096, &streamed);
    CHECK(alone == packed && alone == streamed);
    CHECK(omm_digest_equal(&a, &b));
    CHECK(omm_digest_equal(&a, &c));
}

int main(void) {
    char dir[] = "/tmp/omm-sequence-XXXXXX", path[512], text[128];
    rig r;
    omm_isa isa = OMM_ISA_SCALAR;
    omm_dataset *both[2];
    static const char documents[] = "One short document.\n\nAnother one,\nof two lines.\n\n"
                                    "And the third is longer than the others are, by far: it goes "
                                    "on and on until it does not fit into one window of 64 tokens, "
                                    "which takes a while, since these tokens are whole words more "
                                    "often than not.  Then it ends.\n\nLast.\n";
    CHECK(mkdtemp(dir));
    CHECK_OK(omm_isa_choose(&isa, NULL));
    CHECK_OK(omm_compute_init(&r.compute, NULL, isa));
    test_tokenizer_open(&r.tokenizer);
    test_synth_open(&r.model, OMM_FORMAT_F16);
    snprintf(text, sizeof text, "%s/text.txt", dir);
    CHECK_OK(omm_file_write_fast(text, omm_bytes_str(documents), 0644));
    test_path(path, "scenarios/base/test.jsonl");
    const char *const files[] = {text, path};
    for (int i = 0; i < 2; i++) {
        open_both(both, &r, files[i]);
        batches(both);
        too_long(both[1]);
        exactly_full(both[0]);
        cut_again(both[0]);
        packing_and_streams(&r, both);
        omm_dataset_close(both[0]);
        omm_dataset_close(both[1]);
    }
    listed_texts(&r, dir);
    shortest(&r, dir);
    what_it_takes(&r, dir);
    omm_tokenizer_close(r.tokenizer);
    omm_model_fini(&r.model);
    omm_compute_fini(&r.compute);
    CHECK_OK(omm_dir_remove(dir));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

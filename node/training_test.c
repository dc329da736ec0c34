/* The real training refuses what an offer could do to its memory, and reads its files when it needs
 * them. */
#include "omm/training.h"

#include "supply.h"

#include "omm/compute.h"
#include "omm/dataset.h"
#include "omm/file.h"
#include "omm/gguf.h"
#include "omm/lora.h"
#include "omm/mem.h"
#include "omm/model.h"
#include "omm/recipe.h"
#include "omm/sync.h"
#include "omm/tokenizer.h"
#include "omm/train_plan.h"
#include "omm_test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PLAN_NOISE_BYTES ((uint64_t)1 << 20) /* of what is resident, from one plan to the next */

static omm_buf recipe_of(uint32_t rank, float alpha, uint32_t targets, uint32_t rslora) {
    omm_recipe recipe = omm_recipe_default();
    omm_buf bytes;
    omm_buf_init(&bytes, 4096);
    recipe.rank = rank;
    recipe.alpha = alpha;
    recipe.targets = targets;
    recipe.rslora = rslora;
    recipe.steps = 1;
    recipe.batch_tokens = 64;
    recipe.micro_tokens = 64;
    recipe.seq_max = 64;
    CHECK_OK(omm_recipe_encode(&bytes, &recipe));
    return bytes;
}

/* An offer of a small adapter whose recipe trains a large one: `values` would be written far beyond
 * its end. */
static void recipe_of_another_adapter(omm_training *training, const omm_compute *compute) {
    static const omm_training_adapter trained[] = {
        {.rank = 64, .targets = 1, .alpha = 2},
        {.rank = 1, .targets = 127, .alpha = 2},
    };
    omm_buf offered = recipe_of(1, 2, 1, 0);
    omm_layout layout;
    CHECK_OK(training->layout(training, &layout, omm_buf_view(&offered)));
    omm_buf_fini(&offered);
    float *start = omm_alloc(layout.value_count, sizeof *start);
    float *values = omm_alloc(layout.value_count, sizeof *values);
    CHECK(start);
    CHECK(values);
    for (size_t i = 0; i < sizeof trained / sizeof *trained; i++) {
        omm_buf recipe = recipe_of(trained[i].rank, trained[i].alpha, trained[i].targets, 0);
        omm_buf digests;
        omm_buf_init(&digests, 4096);
        omm_training_plan plan;
        CHECK_OK(training->plan(training, &plan, omm_buf_view(&recipe)));
        CHECK_EQ(plan.adapter.rank, trained[i].rank);
        CHECK_EQ(plan.pass_tokens, 64);
        omm_training_job job = {
            .recipe = omm_buf_view(&recipe), .start = start, .value_count = layout.value_count};
        omm_training_result result;
        CHECK_ERR(training->run(training, &result, values, &digests, &job, compute),
                  OMM_ERR_REFUSED_RECIPE);
        omm_buf_fini(&digests);
        omm_buf_fini(&recipe);
    }
    omm_free(start);
    omm_free(values);
}

/* With rsLoRA the offer has the alpha that gives alpha / sqrt(rank): alpha * sqrt(rank). */
static void alpha_of_rslora(omm_training *training, const omm_compute *compute) {
    omm_buf recipe = recipe_of(4, 3, 1, 1), digests;
    omm_layout layout;
    omm_training_plan plan;
    omm_training_result result;
    omm_buf_init(&digests, 4096);
    CHECK_OK(training->plan(training, &plan, omm_buf_view(&recipe)));
    CHECK(plan.adapter.rank == 4 && plan.adapter.alpha == 6 && plan.adapter.targets == 1);
    CHECK_OK(training->layout(training, &layout, omm_buf_view(&recipe)));
    float *start = omm_alloc(layout.value_count, sizeof *start);
    float *values = omm_alloc(layout.value_count, sizeof *values);
    CHECK(start && values);
    omm_training_job job = {
        .recipe = omm_buf_view(&recipe), .start = start, .value_count = layout.value_count};
    CHECK_OK(training->run(training, &result, values, &digests, &job, compute));
    job.value_count--;
    CHECK_ERR(training->run(training, &result, values, &digests, &job, compute),
              OMM_ERR_REFUSED_RECIPE);
    omm_free(start);
    omm_free(values);
    omm_buf_fini(&digests);
    omm_buf_fini(&recipe);
}

/* Few moments: a file of it would be the largest part. */
static omm_recipe recipe_of_rank(uint32_t rank) {
    omm_recipe recipe = omm_recipe_default();
    recipe.optimizer = OMM_RECIPE_ADAFACTOR;
    recipe.rank = rank;
    return recipe;
}

static uint64_t planned_bytes(omm_training *training, uint32_t rank) {
    const omm_recipe recipe = recipe_of_rank(rank);
    omm_training_plan plan;
    omm_buf bytes;
    omm_buf_init(&bytes, 4096);
    CHECK_OK(omm_recipe_encode(&bytes, &recipe));
    CHECK_OK(training->plan(training, &plan, omm_buf_view(&bytes)));
    omm_buf_fini(&bytes);
    return plan.memory_bytes;
}

/* What is not the same for every adapter: three copies of its values, a second checkpoint, and what training takes that
 * writes no file of it. */
static uint64_t expected_bytes(uint64_t *writing, const omm_model *model, const omm_dataset *data,
                               uint32_t rank) {
    const omm_recipe recipe = recipe_of_rank(rank);
    omm_train_plan_options o = {
        .model = model, .recipe = &recipe, .data = data, .has_checkpoint = true, .threads = 1};
    omm_train_plan p, writes;
    CHECK_OK(omm_train_plan_make(&p, &o));
    o.writes = true;
    CHECK_OK(omm_train_plan_make(&writes, &o));
    CHECK(p.writing == 0 && writes.total == p.total + writes.writing);
    *writing = writes.writing;
    return 3 * sizeof(float) * p.parameters + p.checkpoint + p.total;
}

/* What this base cannot do is the recipe's fault, not the machine's. */
static void plan_of_another_base(omm_training *training) {
    omm_recipe recipe = omm_recipe_default();
    omm_training_plan plan;
    omm_buf bytes;
    recipe.activations = OMM_RECIPE_Q8;
    omm_buf_init(&bytes, 4096);
    CHECK_OK(omm_recipe_encode(&bytes, &recipe));
    CHECK_ERR(training->plan(training, &plan, omm_buf_view(&bytes)), OMM_ERR_REFUSED_RECIPE);
    CHECK(strstr(omm_err_sentence(), "activations is q8") != NULL);
    omm_buf_fini(&bytes);
}

static void plan_of_large_adapter(const char *model_path, const char *data_path,
                                  const omm_model *model, const omm_dataset *data) {
    const omm_training_files files = {.model = model_path, .data = data_path, .threads = 1};
    omm_training *training = NULL;
    uint64_t writing = 0;
    CHECK_OK(omm_training_open(&training, &(omm_training_options){.files = &files}));
    /* The small ones first, and all before ours: what planning leaves would be measured.  With AddressSanitizer, which keeps
     * what was freed, each leaves about 1 MiB, which is taken off. */
    const uint64_t first = planned_bytes(training, 2), second = planned_bytes(training, 2);
    const uint64_t small = second + (second - first), large = planned_bytes(training, 128);
    const uint64_t expected = expected_bytes(&writing, model, data, 128);
    CHECK(writing > 4 * PLAN_NOISE_BYTES);
    const uint64_t least = expected - expected_bytes(&writing, model, data, 2);
    CHECK(large - small + PLAN_NOISE_BYTES > least && large - small < least + PLAN_NOISE_BYTES);
    omm_training_close(training);
}

/* Of 4 MiB at most, in lines that are cut to a few tokens; of fewer bytes than one line: what is none. */
static omm_buf shard_of(size_t bytes) {
    static const char line[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"
        "\"b\"}]}\n";
    omm_buf shard;
    omm_buf_init(&shard, bytes);
    while (shard.size + sizeof line - 1 <= bytes)
        CHECK_OK(omm_buf_append(&shard, line, sizeof line - 1));
    if (shard.size == 0) CHECK_OK(omm_buf_append(&shard, "{]", 2));
    return shard;
}

static omm_err run_shard(omm_training *training, size_t bytes, const omm_compute *compute) {
    omm_buf recipe = recipe_of(2, 4, 1, 0), shard = shard_of(bytes), digests;
    omm_layout layout;
    omm_training_result result;
    CHECK_OK(training->layout(training, &layout, omm_buf_view(&recipe)));
    float *start = omm_alloc(layout.value_count, sizeof *start);
    float *values = omm_alloc(layout.value_count, sizeof *values);
    CHECK(start && values);
    omm_buf_init(&digests, 4096);
    const omm_training_job job = {.recipe = omm_buf_view(&recipe),
                                  .shard = omm_buf_view(&shard),
                                  .start = start,
                                  .value_count = layout.value_count};
    const omm_err err = training->run(training, &result, values, &digests, &job, compute);
    omm_free(start);
    omm_free(values);
    omm_buf_fini(&digests);
    omm_buf_fini(&shard);
    omm_buf_fini(&recipe);
    return err;
}

/* A canary's data, which came after the plan for its offer, count too: with the largest an owner's limit that the offer
 * fits would be passed. */
static void plan_of_shard(const char *model_path, const char *data_path,
                          const omm_compute *compute) {
    omm_training_files files = {.model = model_path, .data = data_path, .threads = 1};
    omm_training *training = NULL;
    omm_training_plan plan;
    omm_buf recipe = recipe_of(2, 4, 1, 0);
    CHECK_OK(omm_training_open(&training, &(omm_training_options){.files = &files}));
    CHECK_OK(training->plan(training, &plan, omm_buf_view(&recipe)));
    omm_training_close(training);
    files.memory_max = plan.memory_bytes + 8 * PLAN_NOISE_BYTES;
    CHECK_OK(omm_training_open(&training, &(omm_training_options){.files = &files}));
    CHECK_OK(training->plan(training, &plan, omm_buf_view(&recipe)));
    CHECK_ERR(run_shard(training, (size_t)4 << 20, compute), OMM_ERR_REFUSED_SIZE);
    CHECK(strstr(omm_err_sentence(), "max_memory_mb") != NULL);
    CHECK_ERR(run_shard(training, 2, compute), OMM_ERR_REFUSED_RECIPE);
    CHECK(strstr(omm_err_sentence(), "canary:1:"));
    CHECK_OK(run_shard(training, 4096, compute));
    omm_buf_fini(&recipe);
    omm_training_close(training);
}

static omm_buf patterns_of(const char *targets, const char *ranks) {
    omm_recipe recipe = omm_recipe_default();
    omm_buf bytes;
    omm_buf_init(&bytes, 4096);
    recipe.rank = 2;
    CHECK_OK(omm_recipe_set_targets(&recipe, targets));
    CHECK_OK(omm_recipe_set_patterns(&recipe, ranks, NULL));
    CHECK_OK(omm_recipe_encode(&bytes, &recipe));
    return bytes;
}

/* With patterns an offer has to say the largest rank, which is what a node's limit is for, and every
 * target; what names nothing in this model is refused. */
static void patterns(omm_training *training) {
    omm_training_plan plan;
    omm_layout layout;
    omm_buf recipe = patterns_of("blk.0.attn_q,blk.1.ffn_*", "ffn_up=9,blk.0.*=1");
    CHECK_OK(training->plan(training, &plan, omm_buf_view(&recipe)));
    CHECK(plan.adapter.rank == 9 && plan.adapter.alpha == 16 && plan.adapter.targets == 0x71);
    CHECK_OK(training->layout(training, &layout, omm_buf_view(&recipe)));
    CHECK_EQ(layout.segment_count, 8);
    CHECK(layout.segments[0].rows == 1 && layout.segments[2].rows == 2);
    CHECK(layout.segments[4].rows == 9);
    omm_buf_fini(&recipe);
    static const char *const bad[][2] = {{"blk.40.attn_q", NULL}, {"blk.0.attn_q", "ffn_up=2"}};
    for (size_t i = 0; i < 2; i++) {
        recipe = patterns_of(bad[i][0], bad[i][1]);
        CHECK_ERR(training->plan(training, &plan, omm_buf_view(&recipe)), OMM_ERR_REFUSED_RECIPE);
        CHECK_ERR(training->layout(training, &layout, omm_buf_view(&recipe)),
                  OMM_ERR_REFUSED_RECIPE);
        omm_buf_fini(&recipe);
    }
}

/* A step takes one example, however much longer than its batch that may be: that is what an owner's limits are held against. */
static void plan_of_long_examples(omm_training *training) {
    omm_recipe recipe = omm_recipe_default();
    omm_training_plan plan;
    omm_buf bytes;
    omm_buf_init(&bytes, 4096);
    recipe.steps = 3;
    recipe.batch_tokens = recipe.micro_tokens = 64;
    recipe.seq_max = 200;
    CHECK_OK(omm_recipe_encode(&bytes, &recipe));
    CHECK_OK(training->plan(training, &plan, omm_buf_view(&bytes)));
    CHECK_EQ(plan.tokens, 3 * 200);
    CHECK_EQ(plan.pass_tokens, 200);
    omm_buf_fini(&bytes);
}

static void check_limit(uint64_t most, uint64_t has, uint64_t want, const char *who_wants) {
    const char *who = NULL;
    CHECK_EQ(supply_limit(&who, most, has), want);
    CHECK(strstr(who, who_wants));
}

/* Of the owner's limit and what the machine has the smaller one counts, and is named. */
static void limits(void) {
    check_limit(1000, 2000, 1000, "max_memory_mb");
    check_limit(2000, 2000, 2000, "max_memory_mb");
    check_limit(2001, 2000, 2000, "machine");
    check_limit(0, 2000, 2000, "machine");
    check_limit(1000, 0, 1000, "max_memory_mb");
    check_limit(0, 0, UINT64_MAX, "machine");
}

/* Recipes of all kinds of bytes: refused or planned, never more. */
static void damaged_recipes(omm_training *training) {
    omm_buf recipe = recipe_of(2, 4, 1, 0);
    for (size_t i = 0; i < recipe.size; i++)
        for (unsigned bit = 0; bit < 8; bit++) {
            omm_training_plan plan;
            recipe.data[i] ^= (uint8_t)(1u << bit);
            omm_err err = training->plan(training, &plan, omm_buf_view(&recipe));
            CHECK(err == OMM_OK || err == OMM_ERR_REFUSED_RECIPE);
            recipe.data[i] ^= (uint8_t)(1u << bit);
        }
    omm_buf_fini(&recipe);
}

/* ---- from files ---- */

typedef struct trained {
    float *values;
    size_t count;
    omm_buf digests;
    omm_training_result result;
} trained;

static void train(trained *out, omm_training *training, const omm_compute *compute) {
    omm_buf recipe = recipe_of(2, 4, 1, 0);
    omm_layout layout;
    CHECK_OK(training->layout(training, &layout, omm_buf_view(&recipe)));
    out->count = layout.value_count;
    float *start = omm_alloc(out->count, sizeof *start);
    out->values = omm_alloc(out->count, sizeof *out->values);
    CHECK(start && out->values);
    for (size_t i = 0; i < out->count; i++) start[i] = (float)(i % 7) * 0.01F;
    omm_buf_init(&out->digests, 4096);
    const omm_training_job job = {
        .recipe = omm_buf_view(&recipe), .start = start, .value_count = out->count};
    CHECK_OK(training->run(training, &out->result, out->values, &out->digests, &job, compute));
    omm_free(start);
    omm_buf_fini(&recipe);
}

static void trained_fini(trained *t) {
    omm_free(t->values);
    omm_buf_fini(&t->digests);
}

static bool same(const trained *a, const trained *b) {
    return a->count == b->count && same_bytes(a->values, b->values, a->count * sizeof *a->values) &&
           omm_bytes_equal(omm_buf_view(&a->digests), omm_buf_view(&b->digests)) &&
           a->result.examples == b->result.examples && a->result.tokens == b->result.tokens;
}

/* A training that is stopped after a step, and gone on with. */
typedef struct stopped {
    omm_buf checkpoint;
    uint32_t step, saved_step, saves, stop_at; /* stop_at 0: never */
    bool is_full;                              /* no checkpoint has room */
} stopped;

static bool is_stopped(void *ud) {
    const stopped *s = ud;
    return s->stop_at > 0 && s->step >= s->stop_at;
}

static omm_err keep_checkpoint(void *ud, omm_bytes checkpoint, uint32_t step) {
    stopped *s = ud;
    s->saves++;
    if (s->is_full) return omm_raise(OMM_ERR_IO, "no room");
    s->saved_step = step;
    omm_buf_clear(&s->checkpoint);
    return omm_buf_append(&s->checkpoint, checkpoint.data, checkpoint.size);
}

static void note_step(void *ud, uint32_t step) {
    ((stopped *)ud)->step = step;
}

static omm_err run_steps(float *values, size_t count, omm_training *training, stopped *s,
                         omm_bytes checkpoint, const omm_compute *compute) {
    omm_recipe recipe = omm_recipe_default();
    omm_training_result result;
    omm_buf bytes, digests;
    omm_buf_init(&bytes, 4096);
    omm_buf_init(&digests, 4096);
    recipe.rank = 2;
    recipe.alpha = 4;
    recipe.targets = 1;
    recipe.steps = 3;
    recipe.batch_tokens = recipe.micro_tokens = recipe.seq_max = 64;
    CHECK_OK(omm_recipe_encode(&bytes, &recipe));
    float *start = omm_alloc(count, sizeof *start);
    CHECK(start);
    const omm_training_job job = {.recipe = omm_buf_view(&bytes),
                                  .start = start,
                                  .value_count = count,
                                  .checkpoint = checkpoint,
                                  .cancelled = is_stopped,
                                  .save = keep_checkpoint,
                                  .progress = note_step,
                                  .ud = s};
    s->step = s->saved_step = s->saves = 0;
    const omm_err err = training->run(training, &result, values, &digests, &job, compute);
    omm_free(start);
    omm_buf_fini(&digests);
    omm_buf_fini(&bytes);
    return err;
}

/* A training of three steps, and what they come to undisturbed. */
typedef struct three_steps {
    omm_training *training;
    size_t count;
    float *want, *values;
    stopped s;
} three_steps;

static void three_steps_open(three_steps *t, const omm_training_options *options,
                             const omm_compute *compute) {
    omm_layout layout;
    omm_buf recipe = recipe_of(2, 4, 1, 0);
    *t = (three_steps){0};
    CHECK_OK(omm_training_open(&t->training, options));
    CHECK_OK(t->training->layout(t->training, &layout, omm_buf_view(&recipe)));
    t->count = layout.value_count;
    t->want = omm_alloc(t->count, sizeof *t->want);
    t->values = omm_alloc(t->count, sizeof *t->values);
    CHECK(t->want && t->values);
    omm_buf_init(&t->s.checkpoint, (size_t)64 << 20);
    CHECK_OK(run_steps(t->want, t->count, t->training, &t->s, (omm_bytes){0}, compute));
    omm_buf_fini(&recipe);
}

static void three_steps_close(three_steps *t) {
    omm_buf_fini(&t->s.checkpoint);
    omm_free(t->want);
    omm_free(t->values);
    omm_training_close(t->training);
}

/* To t->values. */
static omm_err run_again(three_steps *t, omm_bytes checkpoint, const omm_compute *compute) {
    return run_steps(t->values, t->count, t->training, &t->s, checkpoint, compute);
}

static bool came_there(const three_steps *t) {
    return same_bytes(t->values, t->want, t->count * sizeof *t->values);
}

/* A stop between two checkpoints leaves one of its own, from which it goes on to the same bytes; from one that is damaged it
 * begins again, and comes there too. */
static void stopped_between_checkpoints(const omm_model *model, const omm_dataset *data,
                                        const omm_compute *compute) {
    three_steps t;
    const omm_training_options options = {.model = model, .data = data, .checkpoint_steps = 1000};
    three_steps_open(&t, &options, compute);
    CHECK_EQ(t.s.saved_step, 0);
    t.s.stop_at = 2;
    CHECK_ERR(run_again(&t, (omm_bytes){0}, compute), OMM_ERR_CANCELLED);
    CHECK_EQ(t.s.saved_step, 2);
    t.s.stop_at = 0;
    for (int is_damaged = 0; is_damaged < 2; is_damaged++) {
        if (is_damaged) t.s.checkpoint.data[t.s.checkpoint.size / 2] ^= 1;
        memset(t.values, 0, t.count * sizeof *t.values);
        CHECK_OK(run_again(&t, omm_buf_view(&t.s.checkpoint), compute));
        CHECK(came_there(&t));
    }
    three_steps_close(&t);
}

/* It goes on where a checkpoint has no room, to the same bytes; stopped, it has tried once more.  Where an fsync has failed it
 * goes no further. */
static void no_room_for_checkpoints(const omm_model *model, const omm_dataset *data,
                                    const omm_compute *compute) {
    three_steps t;
    const omm_training_options options = {.model = model, .data = data, .checkpoint_steps = 1};
    three_steps_open(&t, &options, compute);
    t.s.is_full = true;
    CHECK_OK(run_again(&t, (omm_bytes){0}, compute));
    CHECK(t.s.saves == 2 && t.s.saved_step == 0);
    CHECK(came_there(&t));
    t.s.stop_at = 2;
    CHECK_ERR(run_again(&t, (omm_bytes){0}, compute), OMM_ERR_CANCELLED);
    CHECK_EQ(t.s.saves, 3);
    t.s.stop_at = 0;
    omm_sync_failed("some file");
    CHECK_ERR(run_again(&t, (omm_bytes){0}, compute), OMM_ERR_IO);
    CHECK_EQ(t.s.saves, 1);
    omm_sync_forget();
    three_steps_close(&t);
}

/* After so many steps each, but not after the last, whose result is there at once. */
static void checkpoints_between_steps(const omm_model *model, const omm_dataset *data,
                                      const omm_compute *compute) {
    static const struct {
        uint32_t every, saves, last;
    } cases[] = {{1, 2, 2}, {2, 1, 2}, {3, 0, 0}, {0, 2, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_training *training = NULL;
        omm_layout layout;
        stopped s = {.stop_at = 0};
        omm_buf recipe = recipe_of(2, 4, 1, 0);
        const omm_training_options options = {
            .model = model, .data = data, .checkpoint_steps = cases[i].every};
        CHECK_OK(omm_training_open(&training, &options));
        CHECK_OK(training->layout(training, &layout, omm_buf_view(&recipe)));
        float *values = omm_alloc(layout.value_count, sizeof *values);
        CHECK(values);
        omm_buf_init(&s.checkpoint, (size_t)64 << 20);
        CHECK_OK(run_steps(values, layout.value_count, training, &s, (omm_bytes){0}, compute));
        CHECK_EQ(s.saves, cases[i].saves);
        CHECK_EQ(s.saved_step, cases[i].last);
        s.stop_at = 2;
        if (cases[i].every == 1) { /* stopped when nothing is new since the last one */
            CHECK_ERR(run_steps(values, layout.value_count, training, &s, (omm_bytes){0}, compute),
                      OMM_ERR_CANCELLED);
            CHECK_EQ(s.saves, 2);
        }
        omm_buf_fini(&s.checkpoint);
        omm_free(values);
        omm_buf_fini(&recipe);
        omm_training_close(training);
    }
}

static void put_file(const char *path, omm_bytes bytes) {
    CHECK_OK(omm_file_write_fast(path, bytes, 0644));
}

/* Written again at its place, in the same size, at another time. */
static void touched_model(omm_training *training, const char *path) {
    struct stat st;
    omm_training_plan plan;
    omm_buf recipe = recipe_of(2, 4, 1, 0);
    CHECK_EQ(stat(path, &st), 0);
    const struct timespec later[2] = {st.st_atim, {st.st_mtim.tv_sec, st.st_mtim.tv_nsec ^ 1}};
    const struct timespec before[2] = {st.st_atim, st.st_mtim};
    omm_training_rest(training);
    CHECK_EQ(utimensat(AT_FDCWD, path, later, 0), 0);
    CHECK_ERR(training->plan(training, &plan, omm_buf_view(&recipe)), OMM_ERR_MISMATCH);
    CHECK_EQ(utimensat(AT_FDCWD, path, before, 0), 0);
    CHECK_OK(training->plan(training, &plan, omm_buf_view(&recipe)));
    omm_buf_fini(&recipe);
}

/* Read when needed, let go, read again: the same digests and bytes as with all of it in memory. */
static void from_files(const char *path, const omm_model *model, const omm_dataset *lines,
                       omm_training *in_memory, const char *line, const omm_compute *compute) {
    char dir[] = "/tmp/omm-training-XXXXXX", data[OMM_PATH_MAX], copy[OMM_PATH_MAX];
    CHECK(mkdtemp(dir) != NULL);
    CHECK_OK(omm_path_join(data, dir, "data.jsonl"));
    CHECK_OK(omm_path_join(copy, dir, "model.gguf"));
    omm_map map;
    CHECK_OK(omm_map_open(&map, path));
    put_file(copy, map.view);
    put_file(data, omm_bytes_str(line));
    plan_of_large_adapter(copy, data, model, lines);
    plan_of_shard(copy, data, compute);
    char newest[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(newest, dir, "newest.gguf"));
    const omm_training_files files = {.model = copy, .data = data, .threads = 1, .newest = newest};
    omm_training_files small = files;
    small.memory_max = 1000000;
    omm_training *training = NULL, *poor = NULL;
    CHECK_OK(omm_training_open(&training, &(omm_training_options){.files = &files}));
    CHECK_OK(omm_training_open(&poor, &(omm_training_options){.files = &small}));
    CHECK(omm_digest_equal(&training->data_commitment, &in_memory->data_commitment));
    const omm_digest digest = omm_hash(map.view);
    CHECK(omm_digest_equal(&training->base_digest, &digest));

    omm_buf recipe = recipe_of(2, 4, 1, 0);
    omm_training_plan plan;
    CHECK_OK(training->plan(training, &plan, omm_buf_view(&recipe)));
    CHECK(plan.memory_bytes > map.view.size);
    plan_of_another_base(training);
    plan_of_another_base(in_memory);
    CHECK_ERR(poor->plan(poor, &plan, omm_buf_view(&recipe)), OMM_ERR_REFUSED_SIZE);
    CHECK(strstr(omm_err_sentence(), "max_memory_mb of 1.0 MB: ") != NULL);

    CHECK_OK(run_shard(training, 4096, compute));
    CHECK(!omm_file_exists(newest)); /* a canary begins with no adapter for its owner to try */
    trained wanted, first, second;
    train(&wanted, in_memory, compute);
    train(&first, training, compute);
    CHECK(same(&wanted, &first));
    omm_lora global; /* what the training began with */
    CHECK_OK(omm_lora_load_file(&global, newest, &model->lora_shape));
    omm_gguf written; /* it says of which model it is */
    omm_lora_base base;
    CHECK_OK(omm_gguf_open(&written, newest));
    CHECK_OK(omm_lora_base_claim(&base, &written));
    omm_gguf_close(&written);
    CHECK(omm_lora_base_is_known(&base));
    CHECK(omm_digest_equal(&base.fingerprint, &model->lora_shape.base.fingerprint));
    CHECK_EQ(global.value_count, first.count);
    for (size_t i = 0; i < global.value_count; i++)
        CHECK(global.values[i] == (float)(i % 7) * 0.01F);
    omm_lora_fini(&global);
    omm_training_rest(training);
    omm_training_rest(training);
    char array
        [512]; /* its line as the element of one JSON array: the same example, so what was offered to */
    snprintf(array, sizeof array, "[\n%s]", line);
    put_file(data, omm_bytes_str(array));
    train(&second, training, compute);
    CHECK(same(&wanted, &second));
    touched_model(training, copy);
    /* Other data, then another model, at the same place: not what was offered to. */
    omm_training_rest(training);
    put_file(data,
             omm_bytes_str("{\"prompt\":\"a\",\"completion\":\"b\"}\n")); /* no client: its own */
    CHECK_ERR(training->plan(training, &plan, omm_buf_view(&recipe)), OMM_ERR_MISMATCH);
    CHECK_ERR(training->plan(training, &plan, omm_buf_view(&recipe)), OMM_ERR_MISMATCH);
    CHECK_OK(omm_file_remove(data)); /* gone for a while: nothing of an attempt stays */
    CHECK_ERR(training->plan(training, &plan, omm_buf_view(&recipe)), OMM_ERR_NOT_FOUND);
    const size_t live = omm_mem_live();
    for (int i = 0; i < 3; i++)
        CHECK_ERR(training->plan(training, &plan, omm_buf_view(&recipe)), OMM_ERR_NOT_FOUND);
    CHECK_EQ(omm_mem_live(), live);
    put_file(data, omm_bytes_str(line));
    CHECK_OK(training->plan(training, &plan, omm_buf_view(&recipe)));
    put_file(copy, map.view); /* between plan and training */
    CHECK_ERR(run_shard(training, 4096, compute), OMM_ERR_MISMATCH);
    omm_training_rest(training);
    CHECK_ERR(training->plan(training, &plan, omm_buf_view(&recipe)), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "has changed") != NULL);
    trained_fini(&wanted);
    trained_fini(&first);
    trained_fini(&second);
    omm_buf_fini(&recipe);
    omm_training_close(training);
    omm_training_close(poor);
    omm_map_close(&map);
    CHECK_OK(omm_dir_remove(dir));
}

int main(void) {
    char path[OMM_PATH_MAX];
    const char *root = getenv("OMM_SOURCE_DIR");
    CHECK(root != NULL);
    CHECK_OK(omm_path_join(path, root, "scenarios/base/openmeshmind-tiny-F16.gguf"));
    omm_gguf gguf;
    omm_model model;
    omm_tokenizer *tokenizer = NULL;
    omm_dataset *data = NULL;
    omm_training *training = NULL;
    omm_pool *pool = NULL;
    omm_compute compute = {0};
    omm_isa isa = OMM_ISA_SCALAR;
    CHECK_OK(omm_gguf_open(&gguf, path));
    CHECK_OK(omm_model_load(&model, &gguf));
    CHECK_OK(omm_tokenizer_open(&tokenizer, &gguf));
    omm_gguf_close(&gguf);
    static const char line[] =
        "{\"client\":\"a\",\"skill\":\"s\",\"messages\":[{\"role\":\"user\",\"content\":\"hello\"},"
        "{\"role\":\"assistant\",\"content\":\"good day\"}]}\n";
    CHECK_OK(omm_dataset_parse(&data, omm_bytes_str(line), "test", tokenizer, NULL));
    omm_training_options options = {.model = &model, .data = data};
    CHECK_OK(omm_training_open(&training, &options));
    CHECK_OK(omm_isa_choose(&isa, NULL));
    CHECK_OK(omm_pool_open(&pool, 1));
    CHECK_OK(omm_compute_init(&compute, pool, isa));
    recipe_of_another_adapter(training, &compute);
    alpha_of_rslora(training, &compute);
    patterns(training);
    plan_of_long_examples(training);
    limits();
    damaged_recipes(training);
    stopped_between_checkpoints(&model, data, &compute);
    from_files(path, &model, data, training, line,
               &compute); /* measures what is resident: few trainings before it */
    no_room_for_checkpoints(&model, data, &compute);
    checkpoints_between_steps(&model, data, &compute);
    omm_compute_fini(&compute);
    omm_pool_close(pool);
    omm_training_close(training);
    omm_dataset_close(data);
    omm_tokenizer_close(tokenizer);
    omm_model_fini(&model);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

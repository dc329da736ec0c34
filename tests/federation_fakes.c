/* federation_fakes.c - owns what a federation trains and evaluates instead of a model: plain arithmetic. */
#include "federation_fakes.h"

#include "omm/mem.h"
#include "omm/run_config.h"
#include "omm_test.h"

#include <math.h>
#include <string.h>

/* ---- a training that is arithmetic ---- */

typedef struct fake_training {
    omm_training api;
    omm_layout layout;
    uint64_t tokens;
    const fed *f;
    uint32_t node;
} fake_training;

/* Public data: every word of it is in what comes out. */
const omm_coord_shard fed_shards[FED_SHARDS] = {
    {"one.jsonl", {(const uint8_t *)"one shard", 9}},
    {"two.jsonl", {(const uint8_t *)"another shard", 13}}};

static omm_seed shard_seed(const omm_seed *seed, omm_bytes shard) {
    return omm_seed_derive(seed, OMM_PURPOSE_TEST, shard);
}

static void train_shard(omm_training_result *out, float *values, const float *start, size_t count,
                        const omm_seed *seed, omm_bytes shard) {
    const omm_seed mixed = shard_seed(seed, shard);
    fed_trained(values, start, &mixed, count);
    *out = (omm_training_result){.tokens = shard.size,
                                 .examples = shard.size,
                                 .steps = FED_STEPS,
                                 .loss_before = 2.5f,
                                 .loss_after = 1.5f};
}

enum { DRAWN = 256 };

static void draw(float units[DRAWN], const omm_rng *lane, size_t first, size_t count) {
    uint32_t words[DRAWN];
    omm_rng_fill_u32(words, lane, first, count);
    for (size_t i = 0; i < count; i++) units[i] = (float)(words[i] >> 8) * 0x1p-24f;
}

void fed_units(float *out, const omm_rng *lane, size_t count) {
    float units[DRAWN];
    for (size_t first = 0, n; first < count; first += n) {
        n = count - first < DRAWN ? count - first : DRAWN;
        draw(units, lane, first, n);
        memcpy(out + first, units, n * sizeof *out);
    }
}

void fed_trained(float *out, const float *start, const omm_seed *seed, size_t count) {
    omm_rng lane = omm_rng_init(seed, OMM_PURPOSE_TEST, 0, 0);
    float units[DRAWN];
    for (size_t first = 0, n; first < count; first += n) {
        n = count - first < DRAWN ? count - first : DRAWN;
        draw(units, &lane, first, n);
        for (size_t i = 0; i < n; i++)
            out[first + i] = start[first + i] + 0.01f * (units[i] - 0.4f);
    }
}

static omm_err fake_layout(omm_training *api, omm_layout *out, omm_bytes recipe) {
    CHECK(omm_bytes_equal(recipe, omm_bytes_str("fake recipe")));
    *out = ((fake_training *)api)->layout;
    return OMM_OK;
}

static omm_err fake_plan(omm_training *api, omm_training_plan *out, omm_bytes recipe) {
    CHECK(omm_bytes_equal(recipe, omm_bytes_str("fake recipe")));
    *out = (omm_training_plan){.steps = FED_STEPS,
                               .tokens = ((fake_training *)api)->tokens,
                               .pass_tokens = 40,
                               .adapter = {2, 1, 4}};
    return OMM_OK;
}

static omm_err fake_run(omm_training *api, omm_training_result *out, float *values,
                        omm_buf *step_digests, const omm_training_job *job,
                        const struct omm_compute *compute) {
    const fake_training *t = (const fake_training *)api;
    (void)compute;
    if (!t->f->o.is_plain) fed_trained(values, job->start, &job->seed, t->layout.value_count);
    for (size_t i = 0; t->f->o.is_plain && i < t->layout.value_count; i++)
        values[i] = job->start[i] + 0.001f * (float)((i + 7 * (size_t)t->node) % 11);
    *out = (omm_training_result){.tokens = t->tokens,
                                 .examples = 10,
                                 .steps = FED_STEPS,
                                 .loss_before = 2.0f,
                                 .loss_after = 1.0f};
    if (job->shard.size > 0)
        train_shard(out, values, job->start, t->layout.value_count, &job->seed, job->shard);
    for (uint32_t step = 1; step <= FED_STEPS; step++) {
        if (job->save) OMM_TRY(job->save(job->ud, omm_bytes_of(&step, sizeof step), step));
        OMM_TRY(omm_buf_put_u64(step_digests, step));
    }
    if (job->shard.size > 0 && t->f->o.cheat)
        t->f->o.cheat(t->f->o.ud, t->node, out, values, step_digests);
    return OMM_OK;
}

static void fake_close(omm_training *api) {
    omm_free(api);
}

omm_digest fed_data(const fed *f, uint32_t node) {
    return omm_hash(omm_bytes_str(f->names[node]));
}

static omm_digest commitment(const fed *f, uint32_t node) {
    const omm_seed seed = omm_seed_from_u64(f->run.seed);
    const omm_digest data = fed_data(f, node);
    uint8_t key[32];
    omm_run_commit_key(key, &seed, f->names[node]);
    return omm_hash_keyed(omm_bytes_of(key, sizeof key), omm_bytes_of(data.b, sizeof data.b));
}

omm_training *fed_training_open(const fed *f, uint32_t node) {
    fake_training *t = omm_alloc(1, sizeof *t);
    CHECK(t);
    t->api = (omm_training){.base_digest = f->run.base.digest,
                            .tokenizer_digest = f->run.base.tokenizer_digest,
                            .data_commitment = commitment(f, node),
                            .layout = fake_layout,
                            .plan = fake_plan,
                            .run = fake_run,
                            .close = fake_close};
    t->layout = f->run.layout;
    t->tokens = 100 + 10 * (uint64_t)node;
    t->f = f;
    t->node = node;
    return &t->api;
}

omm_err fed_train_again(void *ud, omm_canary_trained *out, float *values,
                        const omm_canary_job *job) {
    fed *f = ud;
    omm_training_result r;
    f->replays++;
    train_shard(&r, values, job->start, job->layout->value_count, &job->seed,
                job->shards[job->shard].text);
    *out = (omm_canary_trained){.tokens = r.tokens,
                                .examples = r.examples,
                                .steps = r.steps,
                                .loss_before = r.loss_before,
                                .loss_after = r.loss_after};
    const omm_bytes claimed = job->submission.step_digests;
    for (uint32_t step = 1; step <= FED_STEPS && out->different_step == 0; step++) {
        omm_put_u64(out->step_digest.b, step);
        if ((size_t)step * 8 <= claimed.size &&
            memcmp(claimed.data + (size_t)(step - 1) * 8, out->step_digest.b, 8) != 0)
            out->different_step = step;
    }
    return OMM_OK;
}

/* ---- an evaluation that is arithmetic ---- */

/* As an evaluation with a model does: into an adapter of its own. */
static omm_err read_values(float **out, const fed *f, const omm_coord_values *values) {
    *out = omm_alloc(f->run.layout.value_count, sizeof **out);
    if (!*out) return omm_raise(OMM_ERR_NOMEM, "fake adapter");
    const omm_err err = values->read(values->ud, *out);
    if (err == OMM_OK) return OMM_OK;
    omm_free(*out);
    return err;
}

static omm_err read_initial(void *ud, float *values) {
    const fed *f = ud;
    memcpy(values, f->initial, f->run.layout.value_count * sizeof *values);
    return OMM_OK;
}

omm_coord_values fed_initial(fed *f) {
    return (omm_coord_values){read_initial, f};
}

/* Of each token; values NULL: of the base, which what is sent first leaves as it is. */
static omm_err fake_loss(double *loss, fed *f, const omm_coord_values *values) {
    const omm_coord_values initial = fed_initial(f);
    double sum = 0;
    float *read = NULL;
    OMM_TRY(read_values(&read, f, values ? values : &initial));
    for (size_t i = 0; i < f->run.layout.value_count; i++) sum += (double)read[i];
    omm_free(read);
    const double falls =
        sum < 0 ? 3.0 - 0.001 * sum : 3.0 / (1.0 + 0.001 * sum); /* no loss is below 0 */
    *loss = f->o.loss_rises ? 3.0 + sum * sum : falls;
    return OMM_OK;
}

static double item_nll(double loss, uint32_t i) {
    return loss * (i + 1);
}

static uint64_t item_tokens(uint32_t i) {
    return i + 1;
}

/* The sample is all items. */
static omm_err fake_sample(void *ud, uint64_t *items, double *loss,
                           const omm_coord_values *values) {
    fed *f = ud;
    double each = 0, nll = 0;
    uint64_t tokens = 0;
    OMM_TRY(fake_loss(&each, f, values));
    for (uint32_t i = 0; i < f->run.test_items; i++) {
        nll += item_nll(each, i);
        tokens += item_tokens(i);
    }
    *items = f->run.test_items;
    *loss = nll / (double)tokens;
    if (f->o.loss_nan && f->evaluations > 0) *loss = (double)NAN;
    f->evaluations++;
    return OMM_OK;
}

static omm_err fake_full(void *ud, omm_buf *jsonl, const omm_coord_values *values) {
    fed *f = ud;
    double loss = 0;
    OMM_TRY(fake_loss(&loss, f, values));
    f->evaluations += values != NULL;
    for (uint32_t i = 0; i < f->run.test_items; i++) {
        omm_eval_record record = {.item = omm_hash(omm_bytes_of(&i, sizeof i)),
                                  .client = "client",
                                  .skill = "skill",
                                  .nll = item_nll(loss, i),
                                  .tokens = item_tokens(i),
                                  .reply = ""};
        OMM_TRY(omm_eval_record_write(jsonl, &record));
    }
    return OMM_OK;
}

omm_err fed_render(void *ud, omm_buf *gguf, const omm_coord_values *values) {
    fed *f = ud;
    float *read = NULL;
    OMM_TRY(read_values(&read, f, values));
    const omm_err err = omm_buf_append(gguf, read, 4 * f->run.layout.value_count);
    omm_free(read);
    return err;
}

omm_coord_evaluator fed_evaluator(fed *f) {
    return (omm_coord_evaluator){
        .sample = fake_sample, .full = fake_full, .render = fed_render, .ud = f};
}

/* canary_work.c - see canary_work.h. */
#include "canary_work.h"

#include "omm/compute.h"
#include "omm/dataset.h"
#include "omm/federated.h"
#include "omm/lora.h"
#include "omm/mem.h"
#include "omm/model.h"
#include "omm/priority.h"
#include "omm/recipe.h"
#include "omm/shard.h"
#include "omm/train_plan.h"
#include "omm/trainer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define STEP_DIGEST_BYTES 8u
#define DETAIL_BYTES 400u

typedef enum work_state { WORK_IDLE, WORK_RUNNING, WORK_DONE } work_state;

struct canary_work {
    canary_work_options o;
    omm_pool *pool;
    omm_compute compute;
    omm_recipe recipe;
    omm_dataset *data[OMM_COORD_SHARDS_MAX];
    pthread_t thread;
    work_state state;
    atomic_bool finished, cancelled;
    bool is_low; /* the threads' priority */
    uint64_t again_ms;
    uint64_t replay_ms; /* how long it took */
    omm_canary_job job; /* RUNNING, DONE */
    omm_canary_result result;
    omm_err err;
    char detail[DETAIL_BYTES]; /* the error's words are of the thread that raised it */
};

/* ---- one training ---- */

static bool is_cancelled(void *ud) {
    const canary_work *w = ud;
    return atomic_load(&w->cancelled);
}

/* Until all steps are done, or one is not what was claimed: pretence costs us the steps that it did. */
static omm_err run_steps(omm_canary_trained *out, omm_trainer *trainer, const omm_canary_job *job) {
    const omm_bytes claimed = job->submission.step_digests;
    while (!omm_trainer_is_done(trainer)) {
        omm_step_report report;
        OMM_TRY(omm_trainer_step(trainer, &report));
        const size_t at = (size_t)(report.step - 1) * STEP_DIGEST_BYTES;
        const bool is_claimed = at + STEP_DIGEST_BYTES <= claimed.size;
        if (is_claimed && memcmp(claimed.data + at, report.digest.b, STEP_DIGEST_BYTES) == 0)
            continue;
        if (!is_claimed) break; /* too few steps: their number says so */
        out->different_step = report.step;
        memcpy(out->step_digest.b, report.digest.b, STEP_DIGEST_BYTES);
        break;
    }
    return OMM_OK;
}

static void collect(omm_canary_trained *out, float *values, const omm_trainer *trainer,
                    const omm_dataset *data) {
    const omm_train_result result = omm_trainer_result(trainer);
    const omm_lora *adapter = omm_trainer_moved(trainer);
    out->steps = result.steps;
    out->tokens = result.tokens;
    out->examples = omm_dataset_count(data);
    out->loss_before = result.loss_first;
    out->loss_after = result.loss_last;
    memcpy(values, adapter->values, adapter->value_count * sizeof *values);
}

static omm_err train(void *ud, omm_canary_trained *out, float *values, const omm_canary_job *job) {
    canary_work *w = ud;
    const omm_model *model = omm_run_model(w->o.run);
    const omm_federated f = {.recipe = &w->recipe,
                             .shape = &model->lora_shape,
                             .base = omm_run_get_record(w->o.run)->base.digest};
    omm_trainer *trainer = NULL;
    const omm_trainer_options options = {.model = model,
                                         .data = w->data[job->shard],
                                         .compute = &w->compute,
                                         .seed = job->seed,
                                         .cancelled = is_cancelled,
                                         .ud = w};
    OMM_TRY(omm_federated_trainer(&trainer, &f, &options, job->start));
    const omm_err err = run_steps(out, trainer, job);
    if (err == OMM_OK && out->different_step == 0)
        collect(out, values, trainer, w->data[job->shard]);
    omm_trainer_close(trainer);
    return err;
}

static uint64_t clock_ms(const canary_work *w) {
    return w->o.clock.now_ms(w->o.clock.ud);
}

static void *work_main(void *ud) {
    canary_work *w = ud;
    const uint64_t begin_ms = clock_ms(w);
    (void)omm_priority_take(OMM_PRIORITY_LOW); /* as open_pool, which has said what came of it */
    w->err = omm_canary_replay(&w->result, &w->job, train, w);
    if (w->err != OMM_OK) (void)snprintf(w->detail, sizeof w->detail, "%s", omm_err_sentence());
    w->replay_ms = clock_ms(w) - begin_ms;
    atomic_store(&w->finished, true);
    return NULL;
}

/* ---- turns ---- */

static void complain(const canary_work *w, const char *what, const char *detail) {
    omm_log_event(w->o.log, OMM_LOG_ERROR, "canary_trouble", OMM_LOG_STR("what", what),
                  OMM_LOG_STR("node", w->job.name), OMM_LOG_STR("detail", detail),
                  OMM_LOG_STR("then", "tried again in a minute"));
}

static void say_replay(const canary_work *w) {
    const bool passed = w->err == OMM_OK && w->result.passed;
    omm_log_event(w->o.log, OMM_LOG_INFO, "canary_replayed", OMM_LOG_STR("node", w->job.name),
                  OMM_LOG_STR("verdict", w->err != OMM_OK ? "none"
                                         : passed         ? "passed"
                                                          : "failed"),
                  OMM_LOG_INT("ms", w->replay_ms));
    if (w->o.on_replay) w->o.on_replay(w->o.ud, w->replay_ms);
}

static void begin(canary_work *w, omm_coord *coord, uint64_t now_ms) {
    bool found = false;
    if (now_ms < w->again_ms) return;
    if (omm_coord_canary_next(&found, &w->job, coord) != OMM_OK) {
        complain(w, "next", omm_err_sentence());
        w->again_ms = now_ms + CANARY_AGAIN_MS;
    }
    if (!found) return;
    atomic_store(&w->finished, false);
    if (pthread_create(&w->thread, NULL, work_main, w) == 0) {
        w->state = WORK_RUNNING;
        return;
    }
    complain(w, "begin", "no thread");
    omm_canary_job_fini(&w->job);
    w->again_ms = now_ms + CANARY_AGAIN_MS;
}

static void finish(canary_work *w, uint64_t *next_deadline_ms, omm_coord *coord, uint64_t now_ms) {
    if (now_ms < w->again_ms) return;
    if (w->err == OMM_OK) {
        const omm_err err =
            omm_coord_canary_verdict(next_deadline_ms, coord, now_ms, &w->job, &w->result);
        if (err != OMM_OK && err != OMM_ERR_STATE) { /* the same verdict, later */
            complain(w, "verdict", omm_err_sentence());
            w->again_ms = now_ms + CANARY_AGAIN_MS;
            return;
        }
    } else {
        complain(w, "replay", w->detail);
        w->again_ms = now_ms + CANARY_AGAIN_MS;
    }
    omm_canary_job_fini(&w->job);
    w->state = WORK_IDLE;
}

void canary_work_turn(canary_work *w, uint64_t *next_deadline_ms, omm_coord *coord,
                      uint64_t now_ms) {
    if (!w) return;
    if (w->state == WORK_RUNNING && atomic_load(&w->finished)) {
        (void)pthread_join(w->thread, NULL);
        w->state = WORK_DONE;
        say_replay(w);
    }
    if (w->state == WORK_DONE) finish(w, next_deadline_ms, coord, now_ms);
    if (w->state == WORK_IDLE) begin(w, coord, now_ms);
}

/* ---- open ---- */

/* Workers have the priority of the thread that makes them. */
static void *open_pool(void *ud) {
    canary_work *w = ud;
    w->is_low = omm_priority_take(OMM_PRIORITY_LOW);
    w->err = omm_pool_open(&w->pool, w->o.threads ? w->o.threads : 1);
    if (w->err != OMM_OK) (void)snprintf(w->detail, sizeof w->detail, "%s", omm_err_sentence());
    return NULL;
}

static omm_err open_low_pool(canary_work *w) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, open_pool, w) != 0)
        return omm_raise(OMM_ERR_IO, "no thread for canaries");
    (void)pthread_join(thread, NULL);
    if (!w->is_low)
        omm_log_event(w->o.log, OMM_LOG_WARN, "no_low_priority",
                      OMM_LOG_STR("what", "canaries are trained again beside the rounds as if "
                                          "they were as urgent"),
                      OMM_LOG_STR("do", "allow setpriority and ioprio_set, as the unit does"));
    return w->err == OMM_OK ? OMM_OK : omm_raise(w->err, "%s", w->detail);
}

/* Said at the start, so that the machine can be chosen for it. */
static omm_err say_memory(const canary_work *w) {
    uint64_t most = 0;
    for (size_t i = 0; i < w->o.canaries->shard_count; i++) {
        const omm_train_plan_options o = {.model = omm_run_model(w->o.run),
                                          .recipe = &w->recipe,
                                          .data = w->data[i],
                                          .threads = omm_pool_threads(w->pool)};
        omm_train_plan plan;
        OMM_TRY(omm_train_plan_make(&plan, &o));
        if (plan.total > most) most = plan.total;
    }
    omm_log_event(w->o.log, OMM_LOG_INFO, "canaries",
                  OMM_LOG_INT("shards", w->o.canaries->shard_count),
                  OMM_LOG_INT("passes", w->o.canaries->passes),
                  OMM_LOG_INT("threads", omm_pool_threads(w->pool)),
                  OMM_LOG_INT("memory_mb", most / 1000000u));
    return OMM_OK;
}

static omm_err open_parts(canary_work *w) {
    const omm_run_record *run = omm_run_get_record(w->o.run);
    OMM_TRY(omm_recipe_decode(&w->recipe, run->recipe));
    for (size_t i = 0; i < w->o.canaries->shard_count; i++) {
        const omm_coord_shard *shard = &w->o.canaries->shards[i];
        const omm_err err = omm_shard_parse(&w->data[i], shard->text, shard->name,
                                            omm_run_tokenizer(w->o.run), &w->recipe);
        if (err == OMM_ERR_NOMEM) return err;
        if (err != OMM_OK) return omm_raise(OMM_ERR_CONFIG, "canary: %s", omm_err_sentence());
    }
    OMM_TRY(open_low_pool(w));
    OMM_TRY(omm_compute_init(&w->compute, w->pool, omm_run_compute(w->o.run)->isa));
    return say_memory(w);
}

omm_err canary_work_open(canary_work **out, const canary_work_options *options) {
    *out = NULL;
    if (!options->canaries) return OMM_OK;
    canary_work *w = omm_alloc(1, sizeof *w);
    if (!w) return omm_raise(OMM_ERR_NOMEM, "canaries");
    w->o = *options;
    atomic_init(&w->finished, false);
    atomic_init(&w->cancelled, false);
    const omm_err err = open_parts(w);
    if (err != OMM_OK) {
        canary_work_close(w);
        return err;
    }
    *out = w;
    return OMM_OK;
}

void canary_work_close(canary_work *w) {
    if (!w) return;
    atomic_store(&w->cancelled, true);
    if (w->state == WORK_RUNNING) (void)pthread_join(w->thread, NULL);
    if (w->state != WORK_IDLE) omm_canary_job_fini(&w->job);
    for (size_t i = 0; i < OMM_COORD_SHARDS_MAX; i++)
        if (w->data[i]) omm_dataset_close(w->data[i]);
    if (w->compute.k) omm_compute_fini(&w->compute);
    omm_pool_close(w->pool);
    omm_free(w);
}

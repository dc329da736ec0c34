/* training.c - the real omm_training: train's trainer on a shared model and a node's own data. */
#include "omm/training.h"

#include "supply.h"

#include "omm/clock.h"
#include "omm/compute.h"
#include "omm/federated.h"
#include "omm/file.h"
#include "omm/lora.h"
#include "omm/mem.h"
#include "omm/memory.h"
#include "omm/recipe.h"
#include "omm/shard.h"
#include "omm/sync.h"
#include "omm/trainer.h"

#include <stdio.h>
#include <string.h>

#define CHECKPOINT_NS 30000000000u /* a slow step is worth a checkpoint of its own */
#define NEWEST_BYTES_MAX ((size_t)OMM_LORA_VALUES_MAX * 4 + (16u << 20))
#define TRAINING_CHECKPOINT_BYTES_MAX ((size_t)1 << 34) /* adapter and two moments, and a bit */

typedef struct training {
    omm_training api; /* first: the interface pointer is this struct */
    supply supply;
    uint32_t checkpoint_steps;
    omm_lora lora; /* of the last layout asked for */
    bool has_lora;
    omm_segment *segments;
} training;

static void drop_layout(training *t) {
    if (t->has_lora) omm_lora_fini(&t->lora);
    t->has_lora = false;
    omm_free(t->segments);
    t->segments = NULL;
}

static void training_close(omm_training *api) {
    training *t = (training *)api;
    drop_layout(t);
    supply_close(&t->supply);
    omm_free(t);
}

static void training_rest(omm_training *api) {
    supply_rest(&((training *)api)->supply);
}

/* A failure that the offer caused, in the words of who found it. */
static omm_err refuse_recipe(omm_err err) {
    if (err == OMM_ERR_NOMEM) return err;
    char why[200];
    (void)snprintf(why, sizeof why, "%s", omm_err_sentence());
    return omm_raise(OMM_ERR_REFUSED_RECIPE, "%s", why);
}

/* *f points to *recipe. */
static omm_err read_recipe(omm_recipe *recipe, omm_federated *f, const training *t,
                           omm_bytes bytes) {
    omm_err err = omm_recipe_decode(recipe, bytes);
    if (err == OMM_OK && t->supply.model) err = omm_recipe_check_base(recipe, t->supply.model);
    if (err != OMM_OK) return refuse_recipe(err);
    *f = (omm_federated){.recipe = recipe, .shape = &t->supply.shape, .base = t->api.base_digest};
    return OMM_OK;
}

static omm_err training_layout(omm_training *api, omm_layout *out, omm_bytes bytes) {
    training *t = (training *)api;
    omm_recipe recipe;
    omm_federated f;
    omm_lora lora;
    OMM_TRY(read_recipe(&recipe, &f, t, bytes));
    const omm_err err = omm_federated_begin(&lora, &f, NULL);
    if (err != OMM_OK) return refuse_recipe(err);
    omm_segment *segments = omm_alloc(lora.tensor_count, sizeof *segments);
    if (!segments) {
        omm_lora_fini(&lora);
        return omm_raise(OMM_ERR_NOMEM, "%zu segments", lora.tensor_count);
    }
    drop_layout(t);
    t->lora = lora;
    t->has_lora = true;
    t->segments = segments;
    for (size_t i = 0; i < lora.tensor_count; i++) {
        const omm_lora_tensor *tensor = &t->lora.tensors[i];
        segments[i] = (omm_segment){tensor->name, tensor->rows, tensor->cols, tensor->offset};
    }
    *out = (omm_layout){segments, lora.tensor_count, lora.value_count};
    return OMM_OK;
}

/* Where no model is loaded yet, what its outline says of the recipe comes from here. */
static omm_err plan_memory(omm_train_plan *out, uint64_t *bytes, training *t,
                           const omm_recipe *recipe) {
    const omm_err err = supply_plan(out, bytes, &t->supply, recipe, NULL);
    return err == OMM_ERR_CONFIG ? refuse_recipe(err) : err;
}

static omm_err training_plan(omm_training *api, omm_training_plan *out, omm_bytes bytes) {
    training *t = (training *)api;
    omm_recipe recipe;
    omm_federated f;
    OMM_TRY(read_recipe(&recipe, &f, t, bytes));
    omm_lora_spec spec;
    const omm_err err = omm_federated_spec(&spec, &f);
    if (err != OMM_OK) return refuse_recipe(err);
    omm_train_plan memory;
    uint64_t memory_bytes = 0;
    OMM_TRY(supply_measure(&t->supply));
    OMM_TRY(plan_memory(&memory, &memory_bytes, t, &recipe));
    /* A step takes one example, or what fits its batch; a pass one example, or what fits its share. */
    uint32_t batch = recipe.batch_tokens > recipe.seq_max ? recipe.batch_tokens : recipe.seq_max;
    uint32_t pass = recipe.micro_tokens > recipe.seq_max ? recipe.micro_tokens : recipe.seq_max;
    *out = (omm_training_plan){.steps = recipe.steps,
                               .tokens = (uint64_t)recipe.steps * batch,
                               .pass_tokens = pass,
                               .memory_bytes = memory_bytes,
                               .adapter = {spec.rank, spec.targets, spec.alpha}};
    return OMM_OK;
}

static omm_err save_checkpoint(const omm_trainer *trainer, const omm_training_job *job,
                               uint32_t step) {
    omm_buf checkpoint;
    omm_buf_init(&checkpoint, TRAINING_CHECKPOINT_BYTES_MAX);
    omm_err err = omm_trainer_save(trainer, &checkpoint);
    if (err == OMM_OK) err = job->save(job->ud, omm_buf_view(&checkpoint), step);
    omm_buf_fini(&checkpoint);
    return err;
}

/* A disk without room costs the checkpoint, and not the work.  After an fsync that failed the process does not go on. */
static omm_err try_checkpoint(uint32_t *saved, const omm_trainer *trainer,
                              const omm_training_job *job, uint32_t step) {
    const omm_err err = save_checkpoint(trainer, job, step);
    if (err == OMM_OK) *saved = step;
    return err == OMM_ERR_IO ? omm_sync_check() : err;
}

/* A stop loses nothing: what was done since the last checkpoint is kept, too. */
static omm_err save_cancelled(const omm_trainer *trainer, const omm_training_job *job,
                              uint32_t saved) {
    const uint32_t done = omm_trainer_result(trainer).steps;
    if (job->save && done > saved) OMM_TRY(try_checkpoint(&saved, trainer, job, done));
    return omm_raise(OMM_ERR_CANCELLED, "stopped after %u steps", done);
}

static omm_err run_steps(omm_trainer *trainer, const training *t, const omm_training_job *job) {
    const uint32_t every = t->checkpoint_steps ? t->checkpoint_steps : 1;
    uint32_t saved = omm_trainer_result(trainer).steps; /* resumed from what is saved */
    uint64_t saved_ns = omm_measure_ns();
    if (job->progress) job->progress(job->ud, saved);
    while (!omm_trainer_is_done(trainer)) {
        omm_step_report report;
        const omm_err err = omm_trainer_step(trainer, &report);
        if (err == OMM_ERR_CANCELLED) return save_cancelled(trainer, job, saved);
        OMM_TRY(err);
        if (job->progress) job->progress(job->ud, report.step);
        if (!job->save || omm_trainer_is_done(trainer)) continue;
        if (report.step % every != 0 && omm_measure_ns() - saved_ns < CHECKPOINT_NS) continue;
        OMM_TRY(try_checkpoint(&saved, trainer, job, report.step));
        saved_ns = omm_measure_ns();
    }
    return OMM_OK;
}

static omm_err collect(omm_training_result *out, float *values, omm_buf *step_digests,
                       const omm_trainer *trainer, const omm_dataset *data) {
    omm_train_result result = omm_trainer_result(trainer);
    for (uint32_t step = 1; step <= result.steps; step++) {
        omm_digest chain = omm_trainer_chain(trainer, step);
        OMM_TRY(omm_buf_append(step_digests, chain.b, OMM_STEP_DIGEST_BYTES));
    }
    const omm_lora *adapter = omm_trainer_moved(trainer);
    memcpy(values, adapter->values, adapter->value_count * sizeof *values);
    *out = (omm_training_result){.tokens = result.tokens,
                                 .examples = omm_dataset_count(data),
                                 .steps = result.steps,
                                 .loss_before = result.loss_first,
                                 .loss_after = result.loss_last};
    return OMM_OK;
}

/* For the owner to try.  Not part of the work: a full disk shows where it matters. */
static void keep_newest(const char *path, const omm_federated *f, const float *values,
                        const struct omm_compute *compute) {
    omm_buf file;
    omm_buf_init(&file, NEWEST_BYTES_MAX);
    omm_err err = omm_federated_save(&file, f, values, compute);
    if (err == OMM_OK) err = omm_file_write(path, omm_buf_view(&file), 0644);
    omm_buf_fini(&file);
    (void)err;
}

/* The examples that job->shard has, or none: then *out is NULL. */
static omm_err open_shard(omm_dataset **out, training *t, const omm_training_job *job,
                          const omm_recipe *recipe) {
    *out = NULL;
    t->supply.shard = 0;
    if (job->shard.size == 0) return OMM_OK;
    if (t->supply.files.model) OMM_TRY(supply_need_data(&t->supply)); /* with the tokenizer */
    const omm_tokenizer *tokenizer = supply_tokenizer(&t->supply);
    if (!tokenizer)
        return omm_raise(OMM_ERR_REFUSED_RECIPE, "canary: this training has no tokenizer");
    const uint64_t before = omm_memory_resident();
    const omm_err err = omm_shard_parse(out, job->shard, "canary", tokenizer, recipe);
    if (err != OMM_OK) return refuse_recipe(err);
    const uint64_t after = omm_memory_resident();
    t->supply.shard = job->shard.size + (after > before ? after - before : 0);
    return OMM_OK;
}

/* On `data`, from job->start. */
static omm_err train(training *t, omm_training_result *out, float *values, omm_buf *step_digests,
                     const omm_training_job *job, const omm_federated *f, const omm_dataset *data,
                     const omm_train_plan *memory, const struct omm_compute *compute) {
    omm_trainer *trainer = NULL;
    omm_trainer_options options = {.model = t->supply.model,
                                   .data = data,
                                   .compute = compute,
                                   .seed = job->seed,
                                   .model_digest = t->api.base_digest,
                                   .cancelled = job->cancelled,
                                   .ud = job->ud,
                                   .micro_tokens = memory->micro_tokens,
                                   .checkpoint_layers = memory->checkpoint_layers};
    omm_err err = OMM_OK;
    OMM_TRY_OUT(omm_federated_trainer(&trainer, f, &options, job->start));
    /* A checkpoint of another job, or a damaged one, only costs the time to do it again. */
    if (job->checkpoint.size > 0) {
        err = omm_trainer_resume(trainer, job->checkpoint);
        if (err == OMM_ERR_NOMEM) goto out;
    }
    omm_mem_trim(); /* where the trainer began, and the newest adapter's file: as large as it is */
    OMM_TRY_OUT(run_steps(trainer, t, job));
    err = collect(out, values, step_digests, trainer, data);
out:
    omm_trainer_close(trainer);
    return err;
}

/* A recipe for more than there is room for would be read and written beyond its end. */
static omm_err check_count(const omm_federated *f, size_t value_count) {
    omm_lora lora;
    const omm_err err = omm_federated_begin(&lora, f, NULL);
    if (err != OMM_OK) return refuse_recipe(err);
    const size_t trains = lora.value_count;
    omm_lora_fini(&lora);
    if (trains == value_count) return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_RECIPE, "recipe: trains %zu values, the offer has %zu", trains,
                     value_count);
}

static omm_err training_run(omm_training *api, omm_training_result *out, float *values,
                            omm_buf *step_digests, const omm_training_job *job,
                            const struct omm_compute *compute) {
    training *t = (training *)api;
    omm_recipe recipe;
    omm_federated f;
    omm_train_plan memory;
    uint64_t memory_bytes = 0;
    omm_dataset *shard = NULL;
    omm_err err = OMM_OK;
    OMM_TRY(read_recipe(&recipe, &f, t, job->recipe));
    OMM_TRY(check_count(&f, job->value_count));
    OMM_TRY(open_shard(&shard, t, job, &recipe));
    OMM_TRY_OUT(supply_plan(&memory, &memory_bytes, &t->supply, &recipe, shard));
    OMM_TRY_OUT(supply_need_model(&t->supply, compute->pool));
    if (t->supply.files.newest && !shard)
        keep_newest(t->supply.files.newest, &f, job->start, compute);
    err = train(t, out, values, step_digests, job, &f, shard ? shard : t->supply.data, &memory,
                compute);
out:
    if (shard) omm_dataset_close(shard);
    return err;
}

omm_err omm_training_open(omm_training **out, const omm_training_options *options) {
    training *t = omm_alloc(1, sizeof *t);
    if (!t) return omm_raise(OMM_ERR_NOMEM, "training");
    const omm_err err = supply_open(&t->supply, options);
    if (err != OMM_OK) {
        training_close(&t->api);
        return err;
    }
    t->api = (omm_training){.base_digest = t->supply.base_digest,
                            .tokenizer_digest = t->supply.tokenizer_digest,
                            .data_commitment =
                                omm_dataset_commit(&t->supply.data_digest, options->commit_key),
                            .layout = training_layout,
                            .plan = training_plan,
                            .run = training_run,
                            .rest = training_rest,
                            .close = training_close};
    t->checkpoint_steps = options->checkpoint_steps;
    *out = &t->api;
    return OMM_OK;
}

/* replay.c - train a submission again from evidence, and find the first difference.
 *
 * With error feedback a payload depends on what the node's codec left out before, so the replay
 * starts at the node's last submission that began with a zero residual, and goes on from there
 * through its accepted submissions.
 */
#include "internal.h"

#include "omm/bundle.h"
#include "omm/dataset.h"
#include "omm/envelope.h"
#include "omm/federated.h"
#include "omm/lora.h"
#include "omm/mem.h"
#include "omm/messages.h"
#include "omm/model.h"
#include "omm/trainer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define REPLAY_FILE_BYTES_MAX (1ull << 31)
#define REPLAY_ARENA_BYTES_MAX (512u << 20)

/* --- evidence --------------------------------------------------------------------------------- */

static omm_err read_file(omm_buf *out, const sim_evidence *evidence, const char *path) {
    return omm_bundle_file_read(out, evidence->dir, path);
}

static omm_err parse_rounds(sim_evidence *evidence, omm_bytes text) {
    omm_bytes *lines = NULL;
    omm_err err = omm_evidence_lines(&lines, &evidence->round_count, &evidence->arena, text,
                                     OMM_EVIDENCE_ROUNDS_MAX);
    if (err != OMM_OK && err != OMM_ERR_NOMEM)
        return omm_raise(err, "rounds.jsonl: %.200s", omm_err_sentence());
    OMM_TRY(err);
    evidence->rounds =
        omm_arena_alloc(&evidence->arena, evidence->round_count + 1, sizeof *evidence->rounds);
    if (!evidence->rounds) return omm_raise(OMM_ERR_NOMEM, "rounds");
    for (size_t i = 0; i < evidence->round_count; i++) {
        err = omm_round_record_parse(&evidence->rounds[i], &evidence->arena, lines[i]);
        if (err != OMM_OK && err != OMM_ERR_NOMEM)
            return omm_raise(err, "rounds.jsonl: line %zu: %.200s", i + 1, omm_err_sentence());
        OMM_TRY(err);
        if (evidence->rounds[i].round != i)
            return omm_raise(OMM_ERR_FORMAT, "rounds.jsonl: line %zu is of round %u, not of %zu",
                             i + 1, evidence->rounds[i].round, i);
    }
    return OMM_OK;
}

omm_err sim_evidence_open(sim_evidence *evidence, const char *dir) {
    *evidence = (sim_evidence){0};
    if (strlen(dir) >= sizeof evidence->dir)
        return omm_raise(OMM_ERR_TOO_BIG, "bundle: a path of %zu bytes", strlen(dir));
    memcpy(evidence->dir, dir, strlen(dir) + 1);
    omm_arena_init(&evidence->arena, REPLAY_ARENA_BYTES_MAX);
    omm_buf run;
    omm_buf rounds;
    omm_buf_init(&run, 64u << 20);
    omm_buf_init(&rounds, 256u << 20);
    omm_err err = OMM_OK;
    OMM_TRY_OUT(read_file(&run, evidence, "run.json"));
    OMM_TRY_OUT(read_file(&rounds, evidence, "rounds.jsonl"));
    err = omm_run_record_parse(&evidence->run, &evidence->arena, omm_buf_view(&run));
    OMM_TRY_OUT(sim_evidence_about(evidence, "run.json", err));
    OMM_TRY_OUT(parse_rounds(evidence, omm_buf_view(&rounds)));
out:
    omm_buf_fini(&run);
    omm_buf_fini(&rounds);
    if (err != OMM_OK) sim_evidence_close(evidence);
    return err;
}

void sim_evidence_close(sim_evidence *evidence) {
    omm_arena_fini(&evidence->arena);
    *evidence = (sim_evidence){0};
}

static omm_err about(bool *is_bad, const char *path, omm_err err) {
    if (err == OMM_OK || err == OMM_ERR_NOMEM || err == OMM_ERR_IO) return err;
    if (is_bad) *is_bad = true;
    if (strstr(omm_err_sentence(), path)) return err; /* has been said */
    return omm_raise(err, "%s: %.300s", path, omm_err_sentence());
}

omm_err sim_evidence_about(const sim_evidence *evidence, const char *path, omm_err err) {
    return about(evidence->is_bad, path, err);
}

omm_err sim_evidence_open_for(sim_evidence *evidence, const omm_replay_options *options) {
    const omm_err err = sim_evidence_open(evidence, options->bundle);
    evidence->is_bad = options->is_bad;
    if (err != OMM_OK && err != OMM_ERR_NOT_FOUND && err != OMM_ERR_TOO_BIG) /* a folder's name */
        return sim_evidence_about(evidence, options->bundle, err);
    return err;
}

/* NULL: that round accepted nothing of the node. */
static const omm_round_accepted *accepted_of(const sim_evidence *evidence, const omm_digest *node,
                                             uint32_t round) {
    if (round >= evidence->round_count) return NULL;
    const omm_round_record *r = &evidence->rounds[round];
    for (size_t i = 0; i < r->accepted_count; i++)
        if (omm_digest_equal(&r->accepted[i].node, node)) return &r->accepted[i];
    return NULL;
}

/* By the node's key, and the one that the round accepted. */
static omm_err check_signed(const sim_evidence *evidence, const omm_digest *node, uint32_t round,
                            const omm_envelope *envelope, omm_bytes file) {
    const omm_round_accepted *accepted = accepted_of(evidence, node, round);
    const omm_digest signer = omm_key_id(&envelope->key), is = omm_hash(file);
    if (!omm_digest_equal(&signer, node))
        return omm_raise(OMM_ERR_REFUSED_KEY, "is not signed by its node");
    if (accepted && !omm_digest_equal(&accepted->submission, &is))
        return omm_raise(OMM_ERR_DIGEST, "is not the submission that round %u accepted", round);
    return OMM_OK;
}

/* The manifest of one submission; it lives in `arena`. */
static omm_err read_manifest(omm_submission *out, omm_arena *arena, const sim_evidence *evidence,
                             const omm_digest *node, uint32_t round) {
    omm_buf file;
    omm_buf_init(&file, OMM_ENVELOPE_BYTES_MAX);
    const omm_bundle_path path = omm_bundle_path_submission(round, node);
    omm_err err = read_file(&file, evidence, path.text);
    omm_envelope envelope;
    if (err == OMM_OK)
        err = omm_envelope_open_as(&envelope, OMM_CONTEXT_SUBMISSION, omm_buf_view(&file));
    if (err == OMM_OK) err = check_signed(evidence, node, round, &envelope, omm_buf_view(&file));
    if (err == OMM_OK) err = omm_submission_decode(out, envelope.payload, arena);
    omm_buf_fini(&file);
    return sim_evidence_about(evidence, path.text, err);
}

/* --- one round of the chain ------------------------------------------------------------------- */

typedef struct chain {
    const sim_replay *job;
    const struct omm_dataset *data;
    omm_recipe recipe;
    omm_layout layout;
    float *start, *trained, *residual, *other; /* (value_count) each */
    bool has_residual;                         /* false: zero */
    omm_arena arena;
} chain;

static omm_err chain_init(chain *c, const sim_replay *job) {
    *c = (chain){.job = job, .layout = job->evidence->run.layout};
    omm_arena_init(&c->arena, REPLAY_ARENA_BYTES_MAX);
    const omm_run_record *run = &job->evidence->run;
    OMM_TRY(omm_recipe_decode(&c->recipe, run->recipe));
    c->data = job->data;
    for (size_t i = 0; i < run->node_count && !c->data; i++)
        if (omm_digest_equal(&run->nodes[i].id, &job->node))
            c->data = omm_run_client_data(job->run, run->nodes[i].client);
    if (!c->data) return omm_raise(OMM_ERR_NOT_FOUND, "no data of that node here");
    float **all[] = {&c->start, &c->trained, &c->residual, &c->other};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        *all[i] = omm_alloc(c->layout.value_count, sizeof(float));
        if (!*all[i]) return omm_raise(OMM_ERR_NOMEM, "%zu values", c->layout.value_count);
    }
    return OMM_OK;
}

static void chain_fini(chain *c) {
    omm_free(c->start);
    omm_free(c->trained);
    omm_free(c->residual);
    omm_free(c->other);
    omm_arena_fini(&c->arena);
}

/* The adapter that round `round` started from: what the coordinator broadcast.  *digest: of it as it was sent. */
static omm_err load_start(omm_digest *digest, chain *c, uint32_t round) {
    omm_buf file;
    omm_buf_init(&file, REPLAY_FILE_BYTES_MAX);
    const sim_evidence *evidence = c->job->evidence;
    const uint32_t begins = omm_round_begins(&evidence->rounds[round]);
    const omm_bundle_path path = omm_bundle_path_adapter(begins);
    omm_err err = read_file(&file, evidence, path.text);
    *digest = omm_hash(omm_buf_view(&file));
    if (err == OMM_OK)
        err = omm_codec_decode(c->start, NULL, &evidence->run.codec_down, &c->layout,
                               omm_buf_view(&file));
    omm_buf_fini(&file);
    return sim_evidence_about(evidence, path.text, err);
}

/* The first step whose digest differs from the manifest's, 1-based; 0 when none does. */
static uint32_t compare_step(const omm_trainer *trainer, const omm_submission *manifest,
                             uint32_t step, omm_replay_result *result) {
    omm_digest mine = omm_trainer_chain(trainer, step);
    const uint8_t *theirs =
        manifest->step_digests.data + (size_t)(step - 1) * OMM_STEP_DIGEST_BYTES;
    result->steps_compared = step;
    result->expected = result->repeated = (omm_digest){{0}};
    memcpy(result->expected.b, theirs, OMM_STEP_DIGEST_BYTES);
    memcpy(result->repeated.b, mine.b, OMM_STEP_DIGEST_BYTES);
    return omm_digest_equal(&result->expected, &result->repeated) ? 0 : step;
}

/* ---- what a submission says of its work: its weight in the mean is one of these ---- */

/* Keeps the first one that is not so. */
__attribute__((format(printf, 5, 6))) static void claim_differs(omm_replay_result *result,
                                                                const omm_submission *manifest,
                                                                const char *claim, const char *said,
                                                                const char *fmt, ...) {
    if (!result->equal) return;
    va_list ap;
    va_start(ap, fmt);
    result->equal = false;
    result->round = manifest->round;
    snprintf(result->claim, sizeof result->claim, "%s", claim);
    snprintf(result->claim_signed, sizeof result->claim_signed, "%s", said);
    vsnprintf(result->claim_repeated, sizeof result->claim_repeated, fmt, ap);
    va_end(ap);
}

static void compare_count(omm_replay_result *result, const omm_submission *manifest,
                          const char *claim, uint64_t said, uint64_t is) {
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)said);
    if (said != is) claim_differs(result, manifest, claim, text, "%llu", (unsigned long long)is);
}

static void compare_loss(omm_replay_result *result, const omm_submission *manifest,
                         const char *claim, float said, float is) {
    char text[24];
    snprintf(text, sizeof text, "%.9g", omm_nan_plain((double)said));
    if (omm_f32_to_bits(said) != omm_f32_to_bits(is))
        claim_differs(result, manifest, claim, text, "%.9g", omm_nan_plain((double)is));
}

/* A submission with fewer digests than steps would leave nothing to compare. */
static void compare_steps(omm_replay_result *result, const omm_submission *manifest,
                          uint32_t steps) {
    compare_count(result, manifest, "steps", manifest->steps, steps);
    compare_count(result, manifest, "step_digests",
                  manifest->step_digests.size / OMM_STEP_DIGEST_BYTES, steps);
}

static void compare_work(omm_replay_result *result, const omm_submission *manifest,
                         const omm_train_result *is, uint64_t examples) {
    compare_count(result, manifest, "tokens", manifest->tokens, is->tokens);
    compare_count(result, manifest, "examples", manifest->examples, examples);
    compare_loss(result, manifest, "loss_before", manifest->loss_before, is->loss_first);
    compare_loss(result, manifest, "loss_after", manifest->loss_after, is->loss_last);
}

static void compare_digest(omm_replay_result *result, const omm_submission *manifest,
                           const char *claim, const omm_digest *said, const omm_digest *is) {
    char text[OMM_DIGEST_HEX_SIZE], hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(text, said);
    omm_digest_hex(hex, is);
    if (!omm_digest_equal(said, is)) claim_differs(result, manifest, claim, text, "%s", hex);
}

/* NULL: of zeros. */
static void compare_residual(omm_replay_result *result, const omm_submission *manifest,
                             const float *residual, size_t count) {
    const omm_digest is = omm_residual_digest(residual, count);
    compare_digest(result, manifest, "residual_after", &manifest->residual_after, &is);
}

static omm_err run_steps(chain *c, omm_trainer *trainer, const omm_submission *manifest,
                         omm_replay_result *result) {
    uint32_t known = (uint32_t)(manifest->step_digests.size / OMM_STEP_DIGEST_BYTES);
    uint32_t steps = c->recipe.steps;
    if (c->job->steps_max > steps)
        return omm_raise(
            OMM_ERR_USAGE,
            "--steps %u: round %u has %u; accepted: 1 to %u, or without --steps all of "
            "them and the payload",
            c->job->steps_max, manifest->round, steps, steps);
    if (c->job->steps_max) steps = c->job->steps_max;
    for (uint32_t step = 1; step <= steps; step++) {
        OMM_TRY(omm_trainer_step(trainer, NULL));
        if (c->job->progress) c->job->progress(c->job->ud, manifest->round, step, steps);
        if (result->step == 0 && step <= known)
            result->step = compare_step(trainer, manifest, step, result);
        if (result->step != 0 && c->job->steps_max != 0) break;
    }
    if (result->step != 0) {
        result->equal = false;
        result->round = manifest->round;
    }
    compare_steps(result, manifest, c->recipe.steps);
    return OMM_OK;
}

static omm_err train(chain *c, const omm_submission *manifest, omm_replay_result *result) {
    const omm_model *model = omm_run_model(c->job->run);
    const omm_federated f = {.recipe = &c->recipe,
                             .shape = &model->lora_shape,
                             .base = c->job->evidence->run.base.digest};
    const omm_trainer_options options = {.model = model,
                                         .data = c->data,
                                         .compute = c->job->compute,
                                         .seed =
                                             omm_training_seed(manifest->nonce.b, &c->job->node)};
    omm_trainer *trainer = NULL;
    OMM_TRY(omm_federated_trainer(&trainer, &f, &options, c->start));
    const omm_err err = run_steps(c, trainer, manifest, result);
    if (err == OMM_OK)
        memcpy(c->trained, omm_trainer_moved(trainer)->values,
               c->layout.value_count * sizeof(float));
    const omm_train_result is = omm_trainer_result(trainer);
    if (err == OMM_OK && c->job->steps_max == 0)
        compare_work(result, manifest, &is, omm_dataset_count(c->data));
    omm_trainer_close(trainer);
    return err;
}

/* Name the first element in which two decoded payloads differ. */
static void find_element(omm_replay_result *result, const omm_layout *layout, const float *theirs,
                         const float *mine) {
    for (size_t i = 0; i < layout->segment_count; i++) {
        const omm_segment *s = &layout->segments[i];
        for (size_t j = 0; j < (size_t)s->rows * s->cols; j++) {
            size_t at = s->offset + j;
            if (omm_f32_to_bits(theirs[at]) == omm_f32_to_bits(mine[at])) continue;
            snprintf(result->tensor, sizeof result->tensor, "%s", s->name);
            result->row = (uint32_t)(j / s->cols);
            result->column = (uint32_t)(j % s->cols);
            result->value_expected = theirs[at];
            result->value_repeated = mine[at];
            return;
        }
    }
}

static omm_err explain(chain *c, const omm_submission *manifest, omm_bytes mine,
                       omm_replay_result *result) {
    const omm_codec *codec = &c->job->evidence->run.codec_up;
    omm_buf file;
    omm_buf_init(&file, REPLAY_FILE_BYTES_MAX);
    const omm_bundle_path path = omm_bundle_path_payload(&manifest->payload.digest);
    omm_err err = read_file(&file, c->job->evidence, path.text);
    if (err == OMM_OK)
        err = omm_codec_decode(c->other, NULL, codec, &c->layout, omm_buf_view(&file));
    err = sim_evidence_about(c->job->evidence, path.text, err);
    if (err == OMM_OK) err = omm_codec_decode(c->trained, NULL, codec, &c->layout, mine);
    if (err == OMM_OK) find_element(result, &c->layout, c->other, c->trained);
    omm_buf_fini(&file);
    return err;
}

/* delta, residual and payload as the node made them; compares the canonical digest. */
static omm_err encode_and_compare(chain *c, const omm_submission *manifest,
                                  omm_replay_result *result) {
    const omm_codec *codec = &c->job->evidence->run.codec_up;
    for (size_t i = 0; i < c->layout.value_count; i++) c->trained[i] -= c->start[i];
    omm_buf sent;
    omm_buf_init(&sent, REPLAY_FILE_BYTES_MAX);
    omm_encoded info;
    omm_err err = codec->error_feedback
                      ? omm_feedback_encode(&sent, &info, c->residual, codec, &c->layout,
                                            c->trained, c->has_residual ? c->residual : NULL)
                      : omm_codec_encode(&sent, &info, codec, &c->layout, c->trained);
    c->has_residual = codec->error_feedback;
    if (err == OMM_OK) {
        result->expected = manifest->payload.canonical;
        result->repeated = info.payload_digest;
        if (!omm_digest_equal(&result->expected, &result->repeated)) {
            result->equal = false;
            result->round = manifest->round;
            err = explain(c, manifest, omm_buf_view(&sent), result);
        }
        compare_residual(result, manifest, c->has_residual ? c->residual : NULL,
                         c->layout.value_count);
    }
    omm_buf_fini(&sent);
    return err;
}

static omm_err replay_round(chain *c, uint32_t round, omm_replay_result *result) {
    omm_arena arena;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    omm_submission manifest = {0};
    omm_digest start;
    omm_err err = read_manifest(&manifest, &arena, c->job->evidence, &c->job->node, round);
    if (err == OMM_OK) err = load_start(&start, c, round);
    if (err == OMM_OK) err = train(c, &manifest, result);
    if (err == OMM_OK) {
        compare_digest(result, &manifest, "base_digest", &manifest.base_digest,
                       &c->job->evidence->run.base.digest);
        compare_digest(result, &manifest, "global_digest", &manifest.global_digest, &start);
    }
    if (err == OMM_OK && c->job->steps_max == 0) err = encode_and_compare(c, &manifest, result);
    omm_arena_fini(&arena);
    result->rounds_trained++;
    return err;
}

/* The round at which the chain that ends in `round` starts. */
static omm_err chain_start(uint32_t *first, const sim_replay *job) {
    *first = job->round;
    if (job->steps_max || !job->evidence->run.codec_up.error_feedback) return OMM_OK;
    float *zeros = omm_alloc(job->evidence->run.layout.value_count, sizeof(float));
    if (!zeros) return omm_raise(OMM_ERR_NOMEM, "residual");
    omm_digest zero =
        omm_hash(omm_bytes_of(zeros, job->evidence->run.layout.value_count * sizeof(float)));
    omm_free(zeros);
    for (uint32_t round = job->round + 1; round-- > 0;) {
        if (!accepted_of(job->evidence, &job->node, round)) continue;
        *first = round;
        omm_arena arena;
        omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
        omm_submission manifest;
        omm_err err = read_manifest(&manifest, &arena, job->evidence, &job->node, round);
        bool is_first = err == OMM_OK && omm_digest_equal(&manifest.residual_before, &zero);
        omm_arena_fini(&arena);
        if (err != OMM_OK || is_first) return err;
    }
    return OMM_OK;
}

omm_err sim_replay_rounds(uint32_t *rounds, const sim_replay *replay) {
    uint32_t first = 0;
    *rounds = 0;
    OMM_TRY(chain_start(&first, replay));
    for (uint32_t round = first; round <= replay->round; round++)
        *rounds += accepted_of(replay->evidence, &replay->node, round) != NULL;
    return OMM_OK;
}

omm_err sim_evidence_check_rounds(const sim_evidence *evidence) {
    if (evidence->round_count == evidence->run.rounds) return OMM_OK;
    return sim_evidence_about(evidence, "rounds.jsonl",
                              omm_raise(OMM_ERR_MISMATCH,
                                        "rounds.jsonl: has %zu lines, and run.json says %u rounds: "
                                        "lines are missing, or there are too many",
                                        evidence->round_count, evidence->run.rounds));
}

/* What can be replayed instead. */
static omm_err refuse_round(const sim_replay *replay) {
    const sim_evidence *evidence = replay->evidence;
    if (replay->round < evidence->run.rounds && replay->round >= evidence->round_count)
        return sim_evidence_check_rounds(evidence);
    char accepted[128] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < evidence->round_count && used + 16 < sizeof accepted; i++)
        if (accepted_of(evidence, &replay->node, i))
            used += (size_t)snprintf(accepted + used, sizeof accepted - used, "%s%u",
                                     used ? ", " : "", i);
    return omm_raise(OMM_ERR_NOT_FOUND,
                     "round %u has no accepted submission of that node: the run has rounds 0 to "
                     "%zu, and accepted it in %s%s",
                     replay->round, evidence->round_count ? evidence->round_count - 1 : 0,
                     used ? accepted : "none", used + 16 < sizeof accepted ? "" : " ...");
}

omm_err sim_replay_run(omm_replay_result *result, const sim_replay *replay) {
    *result = (omm_replay_result){.equal = true};
    if (!accepted_of(replay->evidence, &replay->node, replay->round)) return refuse_round(replay);
    uint32_t first = 0;
    OMM_TRY(chain_start(&first, replay));
    chain c;
    omm_err err = chain_init(&c, replay);
    for (uint32_t round = first; err == OMM_OK && result->equal && round <= replay->round; round++)
        if (accepted_of(replay->evidence, &replay->node, round))
            err = replay_round(&c, round, result);
    chain_fini(&c);
    return err;
}

/* --- a bundle on disk ------------------------------------------------------------------------- */

static bool is_called(const omm_run_node *node, const char *name) {
    char hex[OMM_DIGEST_HEX_SIZE];
    const size_t size = strlen(name);
    omm_digest_hex(hex, &node->id);
    return strcmp(node->name, name) == 0 ||
           (size >= 8 && size < sizeof hex && strncmp(hex, name, size) == 0);
}

static omm_err find_node(omm_digest *out, const omm_run_record *run, const char *name) {
    size_t found = 0;
    for (size_t i = 0; i < run->node_count; i++) {
        if (!is_called(&run->nodes[i], name)) continue;
        *out = run->nodes[i].id;
        found++;
    }
    if (found == 1) return OMM_OK;
    if (found > 1)
        return omm_raise(OMM_ERR_CONFIG,
                         "%zu nodes of the run are '%s'; accepted: digits of one's id in run.json "
                         "that no other's begins with",
                         found, name);
    return omm_raise(OMM_ERR_NOT_FOUND, "the run has no node '%s'; see \"nodes\" in run.json",
                     name);
}

omm_err sim_check_base(const omm_run_record *bundle, const omm_run_record *here) {
    char is[OMM_DIGEST_HEX_SIZE], wanted[OMM_DIGEST_HEX_SIZE];
    if (omm_digest_equal(&bundle->base.digest, &here->base.digest)) return OMM_OK;
    omm_digest_hex(is, &here->base.digest);
    omm_digest_hex(wanted, &bundle->base.digest);
    return omm_raise(
        OMM_ERR_CONFIG,
        "the base model here is not the run's: %s, BLAKE2b-256 %s; accepted: the run's "
        "%s, %llu bytes, BLAKE2b-256 %s",
        here->base.name, is, bundle->base.name, (unsigned long long)bundle->base.bytes, wanted);
}

static omm_err check_same(const omm_run_record *bundle, const omm_run_record *here) {
    OMM_TRY(sim_check_base(bundle, here));
    for (size_t i = 0; i < bundle->node_count; i++) {
        const bool same =
            !bundle->simulated ||
            (i < here->node_count && omm_digest_equal(&bundle->nodes[i].id, &here->nodes[i].id) &&
             omm_digest_equal(&bundle->nodes[i].data_digest, &here->nodes[i].data_digest));
        if (!same)
            return omm_raise(OMM_ERR_CONFIG, "the training data of node '%s' here is not the run's",
                             bundle->nodes[i].name);
    }
    return OMM_OK;
}

static omm_err open_setup(sim_setup *setup, const omm_replay_options *options,
                          const omm_scenario_run_options *own, bool judges) {
    char scenario[OMM_PATH_MAX];
    const char *const given[] = {options->base_dir, NULL};
    const char *const usual[] = {".", "scenarios", NULL};
    const sim_setup_options open = {.scenario = scenario,
                                    .base_dirs = options->base_dir ? given : usual,
                                    .has_begun = true,
                                    .skip_policy = true,
                                    .own = own,
                                    .model = options->model,
                                    .skip_test = own && !judges,
                                    .compute = options->compute};
    OMM_TRY(about(options->is_bad, "scenario.yaml",
                  omm_bundle_file_find(scenario, NULL, options->bundle, "scenario.yaml")));
    const omm_err err = sim_setup_open(setup, &open);
    if (err != OMM_ERR_NOT_FOUND) return err;
    return omm_raise(err,
                     "%s; the scenario's model and data paths start in %s: --data DIR names "
                     "another folder, the one that its file was in",
                     omm_err_sentence(),
                     options->base_dir ? options->base_dir : "this folder or scenarios/");
}

/* Of a service nobody knows the nodes' data, so all clients' items are judged; its keys are of no matter here. */
static omm_err open_served(sim_setup *setup, sim_evidence *evidence,
                           const omm_replay_options *options, bool judges) {
    const omm_run_record *run = &evidence->run;
    omm_key key;
    omm_scenario_run_options own = {.run_seed = omm_seed_from_u64(0), .key = &key};
    omm_run_enrolled *nodes = omm_arena_alloc(&evidence->arena, run->node_count + 1, sizeof *nodes);
    if (!nodes) return omm_raise(OMM_ERR_NOMEM, "%zu nodes", run->node_count);
    for (size_t i = 0; i < run->node_count; i++)
        nodes[i] = (omm_run_enrolled){
            .name = run->nodes[i].name, .client = "", .public_key = run->nodes[i].public_key};
    own.nodes = nodes;
    own.node_count = run->node_count;
    own.node_max = (uint32_t)run->node_count;
    omm_run_coordinator_key(&key, &own.run_seed);
    const omm_err err = open_setup(setup, options, &own, judges);
    omm_key_wipe(&key);
    return err;
}

omm_err sim_replay_setup(sim_setup *setup, sim_evidence *evidence,
                         const omm_replay_options *options, bool judges) {
    return evidence->run.simulated ? open_setup(setup, options, NULL, judges)
                                   : open_served(setup, evidence, options, judges);
}

/* As the node reads it (node/supply.c). */
static omm_err load_own(omm_dataset **out, const omm_replay_options *options, const omm_run *run) {
    const char *const client = options->client;
    const omm_dataset_options how = {.clients = client ? &client : NULL,
                                     .client_count = client != NULL,
                                     .format = OMM_DATA_DETECT,
                                     .client_default = "own"};
    return omm_dataset_load(out, options->own_data, omm_run_tokenizer(run), &how);
}

static omm_err check_own(const sim_evidence *evidence, const omm_replay_options *options) {
    if (evidence->run.simulated && options->own_data)
        return omm_raise(OMM_ERR_CONFIG,
                         "this bundle is of a simulation, whose nodes' data are what its scenario "
                         "names: without a file of a node's own");
    if (evidence->run.simulated || options->own_data) return OMM_OK;
    return omm_raise(OMM_ERR_UNSUPPORTED,
                     "this bundle is of a service: what a node trained on lies with that node, "
                     "whose owner can repeat its rounds (--node-data FILE)");
}

omm_err omm_replay(omm_replay_result *result, const omm_replay_options *options) {
    sim_evidence evidence;
    OMM_TRY(sim_evidence_open_for(&evidence, options));
    sim_setup setup = {0};
    sim_replay job = {.evidence = &evidence,
                      .round = options->round,
                      .steps_max = options->steps_max,
                      .compute = options->compute,
                      .progress = options->progress,
                      .ud = options->ud};
    omm_dataset *own = NULL;
    omm_err err = find_node(&job.node, &evidence.run, options->node);
    if (err == OMM_OK) err = check_own(&evidence, options);
    if (err == OMM_OK) err = sim_replay_setup(&setup, &evidence, options, false);
    if (err == OMM_OK) {
        job.run = setup.run;
        err = check_same(&evidence.run, omm_run_get_record(setup.run));
    }
    if (err == OMM_OK && options->own_data) err = load_own(&own, options, setup.run);
    job.data = own;
    if (err == OMM_OK) err = sim_replay_run(result, &job);
    if (own) omm_dataset_close(own);
    if (setup.run) sim_setup_close(&setup);
    sim_evidence_close(&evidence);
    return err;
}

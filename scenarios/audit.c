/* audit.c - after the last receipt is signed, train a sample of the submissions again: with another
 * number of threads, on the next lower instruction set, and the first steps in plain C.
 *
 * Which ones is decided by the digests of all receipts, so nobody knew it while training.
 */
#include "internal.h"

#include "omm/mem.h"

#include <stdio.h>
#include <string.h>

#define AUDIT_HEX_SIZE 65u
#define AUDIT_FILE_BYTES_MAX (64u << 20)

typedef struct audit {
    sim *s;
    sim_evidence evidence;
    omm_repro_check *checks;
    size_t count;
    double step_tokens; /* of the job that runs, for the progress bar */
} audit;

static const char *hex_text(audit *a, const omm_digest *digest) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, digest);
    char *copy = omm_arena_strdup(&a->evidence.arena, hex);
    return copy ? copy : "";
}

static void on_step(void *ud, uint32_t round, uint32_t step, uint32_t steps) {
    audit *a = ud;
    (void)round;
    (void)step;
    (void)steps;
    a->s->tokens_done += a->step_tokens;
    sim_report(a->s, "audit: train a sample again");
}

static omm_err repeat(audit *a, const omm_audit_item *item, const char *kind,
                      const omm_compute *compute, uint32_t steps) {
    const omm_round_accepted *accepted = &a->evidence.rounds[item->round].accepted[item->index];
    sim_replay job = {.evidence = &a->evidence,
                      .run = a->s->setup->run,
                      .node = accepted->node,
                      .round = item->round,
                      .steps_max = steps,
                      .compute = compute,
                      .progress = on_step,
                      .ud = a};
    omm_replay_result result;
    OMM_TRY(sim_replay_run(&result, &job));
    /* What the node said of its work beside the payload counts, too: its weight is of that. */
    if (!result.equal && omm_digest_equal(&result.expected, &result.repeated))
        result.repeated = (omm_digest){{0}};
    a->checks[a->count++] = (omm_repro_check){.round = item->round,
                                              .has_node = true,
                                              .node = accepted->node,
                                              .kind = kind,
                                              .isa = omm_isa_name(compute->isa),
                                              .threads = omm_pool_threads(compute->pool),
                                              .steps = steps,
                                              .expected = hex_text(a, &result.expected),
                                              .repeated = hex_text(a, &result.repeated)};
    return OMM_OK;
}

static double tokens_of_step(const audit *a, bool is_scalar) {
    return (double)a->s->setup->scenario.recipe.batch_tokens *
           (is_scalar ? SIM_AUDIT_SCALAR_FACTOR : SIM_AUDIT_FACTOR);
}

/* A compute context of its own for each check. */
static omm_err repeat_with(audit *a, const omm_audit_item *item, const char *kind, omm_isa isa,
                           unsigned threads, uint32_t steps) {
    omm_pool *pool = NULL;
    omm_compute compute;
    a->step_tokens = tokens_of_step(a, steps > 0);
    OMM_TRY(omm_pool_open(&pool, threads));
    omm_err err = omm_compute_init(&compute, pool, isa);
    if (err == OMM_OK) {
        err = repeat(a, item, kind, &compute, steps);
        omm_compute_fini(&compute);
    }
    omm_pool_close(pool);
    return err;
}

/* Now that it is known what is trained again, the progress bar is told. */
static omm_err plan(audit *a, const omm_audit_item *order, size_t count, bool has_lower) {
    const omm_scenario_audit *wanted = &a->s->setup->scenario.audit;
    const unsigned jobs = (wanted->other_threads ? 1u : 0u) + (wanted->lower_isa && has_lower);
    double tokens = count > 0 ? (double)wanted->scalar_steps * tokens_of_step(a, true) : 0.0;
    for (size_t i = 0; i < count && i < wanted->submissions; i++) {
        const sim_replay job = {
            .evidence = &a->evidence,
            .node = a->evidence.rounds[order[i].round].accepted[order[i].index].node,
            .round = order[i].round};
        uint32_t rounds = 0;
        OMM_TRY(sim_replay_rounds(&rounds, &job));
        tokens +=
            (double)rounds * jobs * a->s->setup->scenario.recipe.steps * tokens_of_step(a, false);
    }
    a->s->tokens_total = a->s->tokens_done + tokens;
    return OMM_OK;
}

static omm_err repeat_all(audit *a, const omm_audit_item *order, size_t count) {
    const omm_scenario_audit *wanted = &a->s->setup->scenario.audit;
    unsigned threads = a->s->options->threads;
    unsigned other_threads = threads == 2 ? 3 : 2;
    omm_isa isa = a->s->options->isa;
    omm_isa lower = isa;
    bool has_lower = omm_isa_lower(&lower, isa);
    OMM_TRY(plan(a, order, count, has_lower));
    for (size_t i = 0; i < count && i < wanted->submissions; i++) {
        if (wanted->other_threads)
            OMM_TRY(repeat_with(a, &order[i], "threads", isa, other_threads, 0));
        if (wanted->lower_isa && has_lower)
            OMM_TRY(repeat_with(a, &order[i], "isa", lower, threads, 0));
    }
    if (wanted->scalar_steps && count > 0 && isa != OMM_ISA_SCALAR)
        OMM_TRY(repeat_with(a, &order[0], "scalar", OMM_ISA_SCALAR, threads, wanted->scalar_steps));
    return OMM_OK;
}

static omm_err write_record(audit *a, omm_bundle *bundle) {
    omm_isa lower;
    omm_repro_record record = {.commit = a->s->options->commit,
                               .isa = omm_isa_name(a->s->options->isa),
                               .threads = a->s->options->threads,
                               .other_isa = omm_isa_lower(&lower, a->s->options->isa),
                               .checks = a->checks,
                               .check_count = a->count};
    memcpy(record.run_id, a->evidence.run.run_id, sizeof record.run_id);
    omm_buf text;
    omm_buf_init(&text, AUDIT_FILE_BYTES_MAX);
    omm_err err = omm_repro_record_write(&text, &record);
    if (err == OMM_OK) err = omm_bundle_replace(bundle, "measured/repro.json", omm_buf_view(&text));
    omm_buf_fini(&text);
    return err;
}

omm_err sim_audit(sim *s, omm_bundle *bundle) {
    audit a = {.s = s};
    OMM_TRY(sim_evidence_open(&a.evidence, omm_bundle_dir(bundle)));
    omm_audit_item *order = NULL;
    size_t count = 0;
    omm_err err = OMM_OK;
    size_t most = 2 * (size_t)s->setup->scenario.audit.submissions + 1;
    a.checks = omm_alloc(most, sizeof *a.checks);
    if (!a.checks) err = omm_raise(OMM_ERR_NOMEM, "%zu checks", most);
    if (err == OMM_OK)
        err = omm_audit_order(&order, &count, &a.evidence.arena, a.evidence.rounds,
                              a.evidence.round_count);
    if (err == OMM_OK) err = repeat_all(&a, order, count);
    if (err == OMM_OK) err = write_record(&a, bundle);
    omm_free(a.checks);
    sim_evidence_close(&a.evidence);
    return err;
}

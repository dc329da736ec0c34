/* sum.c - what a round's accepted submissions give: one sum, however many there are.
 *
 * In memory are the sums, which take two adapters, and one submission as it was sent; then, in its place, what comes
 * out.  A submission is added piece by piece as it is decoded, and never as a whole.
 */
#include "internal.h"

#include "omm/mem.h"

/* value_max = 2^v and weight_sum_max = 2^w, exactly. */
omm_err coord_range(omm_fedavg_range *out, const omm_run_record *run) {
    omm_fedavg_range range = {.value_max_log2 = -16};
    double value = 0x1p-16;
    while (range.value_max_log2 < 15 && value < run->value_max) {
        value *= 2;
        range.value_max_log2++;
    }
    while (range.weight_sum_max_log2 < 40 &&
           (uint64_t)1 << range.weight_sum_max_log2 < run->weight_sum_max)
        range.weight_sum_max_log2++;
    if (value != run->value_max)
        return omm_raise(OMM_ERR_CONFIG, "value_max: %.17g; accepted: powers of two, 2^-16 to 2^15",
                         run->value_max);
    if ((uint64_t)1 << range.weight_sum_max_log2 != run->weight_sum_max)
        return omm_raise(OMM_ERR_CONFIG, "weight_sum_max: %llu; accepted: powers of two up to 2^40",
                         (unsigned long long)run->weight_sum_max);
    *out = range;
    return OMM_OK;
}

typedef struct summing {
    omm_coord *c;
    omm_fedavg sum;
} summing;

static omm_err add_piece(void *ud, size_t first, const float *values, size_t count) {
    summing *s = ud;
    return omm_fedavg_piece(&s->sum, first, values, count, s->c->o.pool);
}

/* What fails half way leaves a sum that nobody uses: it was accepted, so only our own disk can be wrong. */
static omm_err add_sent(summing *s, uint64_t tokens, omm_bytes sent) {
    OMM_TRY(omm_fedavg_begin(&s->sum, tokens));
    OMM_TRY(omm_codec_walk(NULL, &s->c->o.run->codec_up, s->c->layout, sent, add_piece, s));
    return omm_fedavg_end(&s->sum);
}

static omm_err add_one(void *ud, const omm_digest *payload, uint64_t tokens) {
    summing *s = ud;
    omm_coord *c = s->c;
    omm_buf sent;
    omm_buf_init(&sent, (size_t)c->payload_bytes_max);
    omm_err err = omm_blobs_get(&sent, c->uploads, payload);
    if (err == OMM_OK) err = add_sent(s, tokens, omm_buf_view(&sent));
    omm_buf_fini(&sent);
    omm_crash_point(c->o.state_dir, c->o.crash_at, "mid_aggregation");
    return err;
}

/* candidate = the state before + the weighted mean. */
static omm_err step(omm_coord *c, const omm_fedavg *sum) {
    float *candidate = NULL;
    OMM_TRY(coord_state_load(&candidate, c));
    const omm_err err = omm_fedavg_step(candidate, sum, c->o.pool);
    if (err == OMM_OK)
        c->candidate = candidate;
    else
        omm_free(candidate);
    return err;
}

omm_err coord_round_aggregate(omm_coord *c) {
    summing s = {.c = c};
    coord_candidate_forget(c); /* of a try that failed */
    coord_state_drop(c);
    omm_err err = omm_fedavg_init(&s.sum, &c->range, c->value_count);
    /* Any order gives the same bytes. */
    if (err == OMM_OK) err = coord_store_each_accepted(c, c->round, add_one, &s);
    c->weight_sum = s.sum.weight_sum;
    c->is_void = c->accepted_count < c->o.policy.accept_min;
    if (err == OMM_OK && !c->is_void) err = step(c, &s.sum);
    omm_fedavg_fini(&s.sum);
    OMM_TRY(err);
    c->is_judged = false;
    c->state = OMM_COORD_EVALUATING; /* in memory only: a restart sums again */
    return OMM_OK;
}

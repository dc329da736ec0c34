/* full_unseen.c - rows of tokens that training never had. */
#include "full_internal.h"
#include "omm/mem.h"
#include "omm/rng.h"

#include <math.h>

enum { TERMS = 64 }; /* rows of other tokens in a direction */

static const char s_context[] = "unseen tokens";

typedef struct unseen {
    omm_full *t;
    const full_tensor *rows; /* of the output */
    float *values;           /* of `rows`, in the trainer's */
    bool *seen;              /* [rows] */
    uint32_t *others;        /* [other_count] tokens that were seen, ascending */
    size_t other_count;
    double *centre, *way; /* [cols] mean of the others; one direction */
    double size;          /* root mean square of how far the others lie from it */
} unseen;

/* Tokens of the examples that the steps took. */
static omm_err mark_seen(unseen *u) {
    omm_full *t = u->t;
    for (uint64_t at = 0; at < t->position;) {
        size_t count = 0;
        uint64_t tokens = 0, learned = 0;
        OMM_TRY(sequence_take(&t->sequence, &count, &tokens, &learned, at));
        for (size_t i = 0; i < count && at + i < t->position; i++) {
            const omm_example *x = t->sequence.batch[i];
            for (size_t k = 0; k < x->count; k++) u->seen[x->ids[k]] = true;
        }
        at += count;
    }
    for (uint32_t token = 0; token < u->rows->rows; token++)
        if (u->seen[token]) u->others[u->other_count++] = token;
    return OMM_OK;
}

static const float *row_of(const unseen *u, uint32_t token) {
    return u->values + (size_t)token * u->rows->cols;
}

static void measure_others(unseen *u) {
    const size_t cols = u->rows->cols, n = u->other_count;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < cols; c++) u->centre[c] += (double)row_of(u, u->others[i])[c];
    for (size_t c = 0; c < cols; c++) u->centre[c] /= (double)n;
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < cols; c++) {
            const double d = (double)row_of(u, u->others[i])[c] - u->centre[c];
            sum += d * d;
        }
    u->size = sqrt(sum / (double)n);
}

/* u->way: how some of the others lie about their mean, each taken or turned round, all added up. */
static void draw_way(const unseen *u, const omm_rng *lane, uint32_t token) {
    uint32_t words[TERMS];
    omm_rng_fill_u32(words, lane, (uint64_t)token * TERMS, TERMS);
    for (size_t c = 0; c < u->rows->cols; c++) u->way[c] = 0;
    for (size_t i = 0; i < TERMS; i++) {
        const float *row = row_of(u, u->others[(words[i] >> 1) % u->other_count]);
        const double sign = words[i] & 1 ? 1 : -1;
        for (size_t c = 0; c < u->rows->cols; c++)
            u->way[c] += sign * ((double)row[c] - u->centre[c]);
    }
}

static void move(const unseen *u, uint32_t token, double spread) {
    float *row = u->values + (size_t)token * u->rows->cols;
    double squares = 0;
    for (size_t c = 0; c < u->rows->cols; c++) squares += u->way[c] * u->way[c];
    if (!(squares > 0)) return; /* all others are alike */
    const double scale = spread * u->size / sqrt(squares);
    for (size_t c = 0; c < u->rows->cols; c++) row[c] = (float)((double)row[c] + scale * u->way[c]);
}

static omm_err set_apart(unseen *u, uint32_t *count, double spread) {
    const omm_seed seed =
        omm_seed_derive(&u->t->options.seed, OMM_PURPOSE_SYNTH, omm_bytes_str(s_context));
    const omm_rng lane = omm_rng_init(&seed, OMM_PURPOSE_SYNTH, 0, 0);
    OMM_TRY(mark_seen(u));
    *count = u->rows->rows - (uint32_t)u->other_count;
    if (spread == 0 || *count == 0 || u->other_count == 0) return OMM_OK;
    measure_others(u);
    for (uint32_t token = 0; token < u->rows->rows; token++) {
        if (u->seen[token]) continue;
        draw_way(u, &lane, token);
        move(u, token, spread);
    }
    full_write(u->t->options.compute, &u->t->tensors, u->t->values);
    return OMM_OK;
}

omm_err omm_full_set_apart(omm_full *t, uint32_t *count, float spread) {
    if (!omm_full_is_done(t))
        return omm_raise(OMM_ERR_STATE,
                         "step %u of %u: what training never had is known at its end", t->step,
                         t->recipe.steps);
    unseen u = {.t = t, .rows = full_tensor_at(&t->tensors, t->options.model->output)};
    u.values = t->values + u.rows->offset;
    u.seen = omm_alloc(u.rows->rows, sizeof *u.seen);
    u.others = omm_alloc(u.rows->rows, sizeof *u.others);
    u.centre = omm_alloc(u.rows->cols, sizeof *u.centre);
    u.way = omm_alloc(u.rows->cols, sizeof *u.way);
    omm_err err = u.seen && u.others && u.centre && u.way
                      ? set_apart(&u, count, (double)spread)
                      : omm_raise(OMM_ERR_NOMEM, "no memory for a list of %u tokens", u.rows->rows);
    omm_free(u.seen);
    omm_free(u.others);
    omm_free(u.centre);
    omm_free(u.way);
    return err;
}

/* course.c - a training run judged on the way, and its checkpoint:
 *
 *   "OMMC" | version u32 | eval_every u32 | patience u32 | keep_best u32 | eval data digest 32 |
 *   steps u32 | evals u32 | best u32 | since_best u32 | stopped u32 |
 *   grad_norms f32[steps] | rates f32[steps] | (step u32, loss f64)[evals] |
 *   best values f32[value_count], with keep_best and an evaluation |
 *   the checkpoint of an adapter's or of all weights' trainer | BLAKE2b-256 of all before
 */
#include "omm/course.h"

#include "checkpoint.h"
#include "course_run.h"
#include "full_internal.h"
#include "omm/hash.h"
#include "omm/mem.h"
#include "trainer_internal.h"

#include <math.h>
#include <string.h>

enum { EVAL_BYTES = 12, DIGEST_BYTES = 32 };
#define FIXED_BYTES (4u + 4u + 3u * 4u + 32u + 5u * 4u)

static const checkpoint_kind s_kind = {.magic = {'O', 'M', 'M', 'C'},
                                       .version_min = 1,
                                       .version = 1,
                                       .bytes_min = FIXED_BYTES + DIGEST_BYTES,
                                       .name = "a checkpoint of `train`"};

struct omm_course {
    omm_course_options options;
    course_run run;
    float *grad_norms, *rates; /* (recipe.steps) */
    omm_course_eval *evals;    /* (eval_max) */
    size_t eval_count, eval_max;
    size_t best;         /* index in evals */
    uint32_t since_best; /* evaluations in a row without a new best */
    bool stopped;
    float *best_values; /* (value_count) with keep_best: of best_adapter, or of all weights */
    omm_lora best_adapter;
};

/* --- open ---------------------------------------------------------------------------------- */

static omm_err take_memory(omm_course *c) {
    const uint32_t steps = course_run_steps(&c->run), every = c->options.eval_every;
    c->eval_max = every ? steps / every + 2 : 1;
    c->grad_norms = omm_alloc(steps, sizeof *c->grad_norms);
    c->rates = omm_alloc(steps, sizeof *c->rates);
    c->evals = omm_alloc(c->eval_max, sizeof *c->evals);
    if (!c->grad_norms || !c->rates || !c->evals)
        return omm_raise(OMM_ERR_NOMEM, "no memory for the log of %u steps", steps);
    if (!c->options.keep_best) return OMM_OK;
    if (!c->run.full) {
        const omm_lora *lora = &c->run.trainer->lora;
        OMM_TRY(trainer_layout(&c->best_adapter, NULL, &lora->shape, lora, NULL));
        OMM_ASSERT(c->best_adapter.value_count == lora->value_count);
        c->best_values = c->best_adapter.values;
        return OMM_OK;
    }
    c->best_values = omm_alloc_aligned(course_run_value_count(&c->run), sizeof(float));
    if (c->best_values) return OMM_OK;
    return omm_raise(OMM_ERR_NOMEM, "no memory for the best of %zu weights",
                     course_run_value_count(&c->run));
}

omm_err omm_course_open(omm_course **out, const omm_course_options *options) {
    if (!options->eval_every && (options->patience || options->keep_best))
        return omm_raise(OMM_ERR_CONFIG, "patience and the best adapter need an evaluation every "
                                         "so many steps: eval_every is 0; accepted: 1 and more");
    omm_course *c = omm_alloc(1, sizeof *c);
    if (!c) return omm_raise(OMM_ERR_NOMEM, "no memory for a training run");
    c->options = *options;
    c->run = (course_run){options->trainer, options->full};
    OMM_ASSERT(!options->trainer != !options->full);
    omm_err err = take_memory(c);
    if (err != OMM_OK) {
        omm_course_close(c);
        return err;
    }
    *out = c;
    return OMM_OK;
}

void omm_course_close(omm_course *c) {
    if (!c) return;
    if (c->run.full) omm_free(c->best_values);
    omm_lora_fini(&c->best_adapter);
    omm_free(c->grad_norms);
    omm_free(c->rates);
    omm_free(c->evals);
    omm_free(c);
}

/* --- next ---------------------------------------------------------------------------------- */

static bool is_run_done(const omm_course *c) {
    return course_run_step(&c->run) >= course_run_steps(&c->run);
}

static bool is_eval_due(const omm_course *c) {
    const uint32_t every = c->options.eval_every, step = course_run_step(&c->run);
    if (!every || (c->eval_count && c->evals[c->eval_count - 1].step == step)) return false;
    return step % every == 0 || is_run_done(c);
}

bool omm_course_is_done(const omm_course *c) {
    return c->stopped || (is_run_done(c) && !is_eval_due(c));
}

static omm_err evaluate(omm_course *c, omm_course_event *event) {
    omm_course_eval eval = {.step = course_run_step(&c->run)};
    const omm_lora *adapter = c->run.full ? NULL : &c->run.trainer->lora;
    OMM_TRY(c->options.evaluate(c->options.ud, &eval.loss, adapter));
    if (!isfinite(eval.loss))
        return omm_raise(OMM_ERR_NUMERIC, "held-out loss after step %u is %g", eval.step,
                         omm_nan_plain(eval.loss));
    const bool is_best = c->eval_count == 0 || eval.loss < c->evals[c->best].loss;
    c->since_best = is_best ? 0 : c->since_best + 1;
    if (is_best) c->best = c->eval_count;
    if (is_best && c->options.keep_best)
        memcpy(c->best_values, course_run_values(&c->run),
               course_run_value_count(&c->run) * sizeof(float));
    OMM_ASSERT(c->eval_count < c->eval_max);
    c->evals[c->eval_count++] = eval;
    /* Patience that ends with the last step has stopped nothing. */
    c->stopped = c->options.patience && c->since_best >= c->options.patience && !is_run_done(c);
    *event = (omm_course_event){.is_eval = true, .eval = eval, .is_best = is_best};
    return OMM_OK;
}

omm_err omm_course_next(omm_course *c, omm_course_event *event) {
    omm_course_event own;
    if (!event) event = &own;
    if (omm_course_is_done(c)) return omm_raise(OMM_ERR_STATE, "the training run is over");
    if (is_eval_due(c)) return evaluate(c, event);
    omm_step_report report;
    OMM_TRY(course_run_next(&c->run, &report));
    c->grad_norms[report.step - 1] = report.grad_norm;
    c->rates[report.step - 1] = report.learning_rate;
    *event = (omm_course_event){.step = report};
    return OMM_OK;
}

omm_course_log omm_course_log_of(const omm_course *c) {
    return (omm_course_log){.steps = course_run_step(&c->run),
                            .losses = course_run_losses(&c->run),
                            .grad_norms = c->grad_norms,
                            .rates = c->rates,
                            .evals = c->evals,
                            .eval_count = c->eval_count,
                            .best = c->best,
                            .stopped_early = c->stopped};
}

const omm_lora *omm_course_adapter(const omm_course *c) {
    if (c->run.full) return NULL;
    return c->options.keep_best && c->eval_count ? &c->best_adapter : &c->run.trainer->lora;
}

omm_train_result omm_course_result(const omm_course *c) {
    return course_run_result(&c->run);
}

void omm_course_settle(const omm_course *c) {
    omm_full *t = c->run.full;
    if (!t || !c->options.keep_best || !c->eval_count) return;
    memcpy(t->values, c->best_values, t->tensors.value_count * sizeof(float));
    full_write(t->options.compute, &t->tensors, t->values);
}

/* --- checkpoint ---------------------------------------------------------------------------- */

static size_t best_bytes(const omm_course *c, size_t eval_count) {
    return c->options.keep_best && eval_count ? course_run_value_count(&c->run) * sizeof(float) : 0;
}

static omm_err put_all(const omm_course *c, omm_buf *out) {
    const uint32_t step = course_run_step(&c->run);
    const uint32_t head[] = {s_kind.version, c->options.eval_every, c->options.patience,
                             c->options.keep_best};
    const uint32_t state[] = {step, (uint32_t)c->eval_count, (uint32_t)c->best, c->since_best,
                              c->stopped};
    OMM_TRY(omm_buf_append(out, s_kind.magic, sizeof s_kind.magic));
    for (size_t i = 0; i < 4; i++) OMM_TRY(omm_buf_put_u32(out, head[i]));
    OMM_TRY(omm_buf_append(out, c->options.eval_data.b, DIGEST_BYTES));
    for (size_t i = 0; i < 5; i++) OMM_TRY(omm_buf_put_u32(out, state[i]));
    OMM_TRY(omm_buf_append(out, c->grad_norms, step * sizeof(float)));
    OMM_TRY(omm_buf_append(out, c->rates, step * sizeof(float)));
    for (size_t i = 0; i < c->eval_count; i++) {
        OMM_TRY(omm_buf_put_u32(out, c->evals[i].step));
        OMM_TRY(omm_buf_put_u64(out, omm_f64_to_bits(c->evals[i].loss)));
    }
    OMM_TRY(omm_buf_append(out, c->best_values, best_bytes(c, c->eval_count)));
    return course_run_save(&c->run, out);
}

omm_err omm_course_save(const omm_course *c, omm_buf *out) {
    size_t before = out->size;
    omm_err err = put_all(c, out);
    if (err == OMM_OK) err = omm_hash_seal(out, before);
    if (err != OMM_OK) out->size = before;
    return err;
}

/* A checkpoint taken apart; the views point into it. */
typedef struct parts {
    uint32_t steps, eval_count, best, since_best, stopped;
    omm_bytes grad_norms, rates, evals, best_values, trainer;
} parts;

static omm_err take_options(omm_reader *r, const omm_course *c) {
    const omm_course_options *o = &c->options;
    const uint32_t every = omm_read_u32(r), patience = omm_read_u32(r), keep = omm_read_u32(r);
    const omm_bytes data = omm_read_bytes(r, DIGEST_BYTES);
    if (every != o->eval_every || patience != o->patience || keep != (uint32_t)o->keep_best)
        return omm_raise(OMM_ERR_MISMATCH,
                         "the checkpoint evaluates every %u steps with patience %u and keeps the "
                         "%s; this run: %u, %u, %s",
                         every, patience, keep ? "best" : "last", o->eval_every, o->patience,
                         o->keep_best ? "best" : "last");
    const omm_digest none = {{0}};
    if (r->failed) return omm_raise(OMM_ERR_SIZE, "the checkpoint ends early");
    if (memcmp(data.data, o->eval_data.b, DIGEST_BYTES) == 0) return OMM_OK;
    return omm_raise(OMM_ERR_MISMATCH, "the checkpoint was %s",
                     memcmp(data.data, none.b, DIGEST_BYTES) == 0 ? "made without held-out data"
                     : omm_digest_equal(&o->eval_data, &none)
                         ? "judged on held-out data, which this run lacks"
                         : "judged on other held-out data");
}

static omm_course_eval eval_at(const parts *p, size_t index) {
    const uint8_t *at = p->evals.data + index * EVAL_BYTES;
    return (omm_course_eval){.step = omm_get_u32(at), .loss = omm_f64_of_bits(omm_get_u64(at + 4))};
}

/* What digest and trainer do not vouch for. */
static bool is_sound(const parts *p, const omm_course *c) {
    if (p->stopped > 1 || p->since_best > p->eval_count) return false;
    if (p->stopped && (!c->options.patience || p->since_best < c->options.patience)) return false;
    if (!checkpoint_all_finite(p->grad_norms) || !checkpoint_all_finite(p->rates)) return false;
    if (p->eval_count ? p->best >= p->eval_count : p->best > 0) return false;
    for (size_t i = 0; i < p->eval_count; i++) {
        const omm_course_eval eval = eval_at(p, i);
        if (!isfinite(eval.loss) || eval.step > p->steps) return false;
        if (i && eval.step <= eval_at(p, i - 1).step) return false;
    }
    for (size_t i = 0; i < p->best_values.size; i += sizeof(float))
        if (!isfinite(omm_get_f32(p->best_values.data + i))) return false;
    return p->steps <= course_run_steps(&c->run);
}

/* All kinds of them begin so.  What is whole and has none there has best values of another size before it. */
static bool is_trainers(omm_bytes part) {
    return part.size > sizeof s_kind.magic && memcmp(part.data, s_kind.magic, 3) == 0;
}

/* rest: the best values of another size, and behind them the trainer's checkpoint, which says what it belongs to: whole it is where its
 * own digest is at its end. */
static omm_err other_size(const omm_course *c, omm_bytes rest) {
    uint32_t step = 0;
    for (size_t at = 0; at < rest.size; at += sizeof(float)) {
        const omm_bytes part = omm_bytes_of(rest.data + at, rest.size - at);
        if (!is_trainers(part)) continue;
        const omm_err err = course_run_check(&step, &c->run, part);
        if (err == OMM_ERR_MISMATCH || err == OMM_ERR_NOMEM) return err;
    }
    return omm_raise(OMM_ERR_MISMATCH,
                     "the checkpoint belongs to another recipe or model (the best "
                     "that it keeps has another size)");
}

static omm_err take_apart(parts *p, omm_bytes in, const omm_course *c) {
    omm_bytes content;
    OMM_TRY(checkpoint_envelope(&content, in, &s_kind));
    omm_reader r = omm_reader_of(content);
    omm_read_u64(&r); /* magic and version */
    OMM_TRY(take_options(&r, c));
    p->steps = omm_read_u32(&r);
    p->eval_count = omm_read_u32(&r);
    p->best = omm_read_u32(&r);
    p->since_best = omm_read_u32(&r);
    p->stopped = omm_read_u32(&r);
    if (p->steps > course_run_steps(&c->run) || p->eval_count > c->eval_max)
        return omm_raise(OMM_ERR_MISMATCH,
                         "the checkpoint has %u steps and %u evaluations; this "
                         "run has %u and %zu",
                         p->steps, p->eval_count, course_run_steps(&c->run), c->eval_max);
    p->grad_norms = omm_read_bytes(&r, p->steps * sizeof(float));
    p->rates = omm_read_bytes(&r, p->steps * sizeof(float));
    p->evals = omm_read_bytes(&r, (size_t)p->eval_count * EVAL_BYTES);
    const omm_bytes rest =
        r.failed ? (omm_bytes){0} : omm_bytes_of(r.in.data + r.at, r.in.size - r.at);
    p->best_values = omm_read_bytes(&r, best_bytes(c, p->eval_count));
    if (!r.failed) p->trainer = omm_read_bytes(&r, r.in.size - r.at);
    if (!is_trainers(p->trainer) && best_bytes(c, p->eval_count) > 0) return other_size(c, rest);
    if (r.failed) return omm_raise(OMM_ERR_SIZE, "the checkpoint ends early");
    if (!is_sound(p, c)) return omm_raise(OMM_ERR_FORMAT, "the checkpoint contradicts itself");
    return OMM_OK;
}

omm_err omm_course_resume(omm_course *c, omm_bytes checkpoint) {
    parts p = {0};
    uint32_t step = 0;
    OMM_TRY(take_apart(&p, checkpoint, c));
    OMM_TRY(course_run_check(&step, &c->run, p.trainer));
    if (step != p.steps)
        return omm_raise(OMM_ERR_FORMAT, "the checkpoint is of step %u and of step %u", p.steps,
                         step);
    OMM_TRY(course_run_resume(&c->run, p.trainer));
    if (p.steps) memcpy(c->grad_norms, p.grad_norms.data, p.grad_norms.size);
    if (p.steps) memcpy(c->rates, p.rates.data, p.rates.size);
    for (size_t i = 0; i < p.eval_count; i++) c->evals[i] = eval_at(&p, i);
    if (p.best_values.size) memcpy(c->best_values, p.best_values.data, p.best_values.size);
    c->eval_count = p.eval_count;
    c->best = p.best;
    c->since_best = p.since_best;
    c->stopped = p.stopped == 1;
    return OMM_OK;
}

/* Courses: resume between any two events gives the same log, checkpoint and adapter; the best is kept,
 * patience stops; damaged and foreign checkpoints change nothing; allocations fail. */
#include "omm/course.h"

#include "full_internal.h"
#include "test_model.h"

#include "omm/mem.h"

#include <math.h>
#include <string.h>

enum { STEPS = 5 };

typedef struct rig {
    test_rig base;
    bool by_plan;       /* losses of the plan below, else a number that depends on the adapter */
    const double *plan; /* one per evaluation */
    size_t asked;
} rig;

typedef struct run {
    omm_trainer *trainer;
    omm_course *course;
} run;

static omm_err evaluate(void *ud, double *loss, const omm_lora *adapter) {
    rig *r = ud;
    *loss = 0;
    if (r->by_plan)
        *loss = r->plan[r->asked];
    else
        for (size_t i = 0; i < adapter->value_count; i++) *loss += fabs((double)adapter->values[i]);
    r->asked++;
    return OMM_OK;
}

static omm_course_options options_of(rig *r, uint32_t every, uint32_t patience, bool best) {
    return (omm_course_options){.eval_every = every,
                                .patience = patience,
                                .keep_best = best,
                                .eval_data = omm_dataset_digest(r->base.data),
                                .evaluate = evaluate,
                                .ud = r};
}

static run open_run(rig *r, omm_course_options options) {
    run x = {0};
    const omm_trainer_options trainer = test_rig_options(&r->base);
    CHECK_OK(omm_trainer_open(&x.trainer, &trainer));
    options.trainer = x.trainer;
    CHECK_OK(omm_course_open(&x.course, &options));
    r->asked = 0;
    return x;
}

static void close_run(run *x) {
    omm_course_close(x->course);
    omm_trainer_close(x->trainer);
}

static void save(omm_buf *out, const run *x) {
    omm_buf_init(out, 64 << 20);
    CHECK_OK(omm_course_save(x->course, out));
}

static bool same_state(const run *a, const run *b) {
    omm_buf x, y;
    save(&x, a);
    save(&y, b);
    bool same = omm_bytes_equal(omm_buf_view(&x), omm_buf_view(&y));
    omm_buf_fini(&x);
    omm_buf_fini(&y);
    return same;
}

static void resume_anywhere(rig *r) {
    const omm_course_options options = options_of(r, 2, 0, true);
    run whole = open_run(r, options);
    size_t events = 0;
    for (; !omm_course_is_done(whole.course); events++)
        CHECK_OK(omm_course_next(whole.course, NULL));
    CHECK_EQ(events, STEPS + 4); /* evaluations at 0, 2, 4, 5 */
    CHECK_ERR(omm_course_next(whole.course, NULL), OMM_ERR_STATE);
    for (size_t cut = 0; cut <= events; cut++) {
        run first = open_run(r, options), second = open_run(r, options);
        omm_buf saved;
        for (size_t i = 0; i < cut; i++) CHECK_OK(omm_course_next(first.course, NULL));
        save(&saved, &first);
        CHECK_OK(omm_course_resume(second.course, omm_buf_view(&saved)));
        CHECK(same_state(&first, &second));
        while (!omm_course_is_done(second.course)) CHECK_OK(omm_course_next(second.course, NULL));
        CHECK(same_state(&whole, &second));
        const omm_lora *a = omm_course_adapter(whole.course),
                       *b = omm_course_adapter(second.course);
        CHECK(memcmp(a->values, b->values, a->value_count * sizeof(float)) == 0);
        omm_buf_fini(&saved);
        close_run(&first);
        close_run(&second);
    }
    close_run(&whole);
}

/* A run that is over, by its steps or by patience, is over when it is resumed. */
static void stays_over(rig *r, const run *x, uint32_t patience, bool keep_best) {
    run again = open_run(r, options_of(r, 1, patience, keep_best));
    omm_buf saved;
    save(&saved, x);
    CHECK(!omm_course_is_done(again.course));
    CHECK_OK(omm_course_resume(again.course, omm_buf_view(&saved)));
    CHECK(omm_course_is_done(again.course));
    CHECK_EQ(omm_course_log_of(again.course).stopped_early, patience == 2);
    CHECK_ERR(omm_course_next(again.course, NULL), OMM_ERR_STATE);
    omm_buf_fini(&saved);
    close_run(&again);
}

/* Losses of a plan: the third is the best, and after it patience runs out, or does not. */
static void best_and_patience(rig *r, uint32_t patience, bool keep_best) {
    static const double plan[] = {5, 4, 3, 3, 3.5, 9};
    omm_lora third = {0};
    r->by_plan = true;
    r->plan = plan;
    run x = open_run(r, options_of(r, 1, patience, keep_best));
    size_t evals = 0;
    while (!omm_course_is_done(x.course)) {
        omm_course_event event;
        CHECK_OK(omm_course_next(x.course, &event));
        if (!event.is_eval) continue;
        CHECK_EQ(event.eval.step, evals);
        CHECK(event.eval.loss == plan[evals]);
        CHECK_EQ(event.is_best, evals <= 2);
        if (evals++ != 2) continue;
        const omm_lora *now = omm_trainer_adapter(x.trainer);
        CHECK_OK(omm_lora_init(&third, &now->spec, &now->shape));
        memcpy(third.values, now->values, now->value_count * sizeof(float));
    }
    const omm_course_log log = omm_course_log_of(x.course);
    CHECK_EQ(log.eval_count, patience == 2 ? 5 : 6);
    CHECK_EQ(log.steps, patience == 2 ? 4 : STEPS);
    CHECK_EQ(log.stopped_early, patience == 2);
    CHECK_EQ(log.best, 2);
    CHECK(log.rates[0] > 0 && log.grad_norms[log.steps - 1] > 0);
    const omm_lora *kept = omm_course_adapter(x.course);
    CHECK(third.values != NULL && kept->value_count == third.value_count);
    CHECK_EQ(same_bytes(kept->values, third.values, third.value_count * sizeof(float)), keep_best);
    stays_over(r, &x, patience, keep_best);
    omm_lora_fini(&third);
    close_run(&x);
    r->by_plan = false;
}

/* A new best begins the count again: what was worse before it is forgotten. */
static void patience_is_in_a_row(rig *r) {
    static const double plan[] = {5, 6, 4, 5, 5, 9};
    r->by_plan = true;
    r->plan = plan;
    run x = open_run(r, options_of(r, 1, 2, false));
    while (!omm_course_is_done(x.course)) CHECK_OK(omm_course_next(x.course, NULL));
    const omm_course_log log = omm_course_log_of(x.course);
    CHECK(log.stopped_early && log.eval_count == 5 && log.best == 2);
    close_run(&x);
    r->by_plan = false;
}

enum { STOPPED_AT = 68, DIGEST = 32 }; /* in a checkpoint: course.c has its layout */

static void damaged(rig *r) {
    const omm_course_options options = options_of(r, 2, 3, true);
    run x = open_run(r, options), fresh = open_run(r, options), untouched = open_run(r, options);
    for (int i = 0; i < 3; i++) CHECK_OK(omm_course_next(x.course, NULL));
    omm_buf saved;
    save(&saved, &x);
    for (size_t size = 0; size < saved.size; size += size < 400 ? 1 : 9973)
        CHECK(omm_course_resume(fresh.course, omm_bytes_of(saved.data, size)) != OMM_OK);
    for (size_t at = 0; at < saved.size; at += at < 400 ? 1 : 9973) {
        saved.data[at] ^= 4;
        CHECK(omm_course_resume(fresh.course, omm_buf_view(&saved)) != OMM_OK);
        saved.data[at] ^= 4;
    }
    /* The same with a digest that fits: refused, or taken as a sound other state, never a crash. */
    for (size_t at = 8; at < 120; at++) {
        saved.data[at] ^= 0x81;
        omm_digest d = omm_hash(omm_bytes_of(saved.data, saved.size - 32));
        memcpy(saved.data + saved.size - 32, d.b, 32);
        run other = open_run(r, options);
        if (omm_course_resume(other.course, omm_buf_view(&saved)) != OMM_OK)
            CHECK(same_state(&other, &untouched));
        close_run(&other);
        saved.data[at] ^= 0x81;
    }
    /* Stopped, which nothing but patience does. */
    saved.data[STOPPED_AT] ^= 1;
    omm_digest d = omm_hash(omm_bytes_of(saved.data, saved.size - 32));
    memcpy(saved.data + saved.size - 32, d.b, 32);
    CHECK_ERR(omm_course_resume(fresh.course, omm_buf_view(&saved)), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "contradicts itself") != NULL);
    saved.data[STOPPED_AT] ^= 1;
    d = omm_hash(omm_bytes_of(saved.data, saved.size - 32));
    memcpy(saved.data + saved.size - 32, d.b, 32);
    CHECK(same_state(&fresh, &untouched));
    run foreign;
    for (int i = 0; i < 3; i++) { /* each alone */
        omm_course_options other = options;
        other.eval_every += i == 0;
        other.patience += i == 1;
        other.keep_best = (i == 2) != other.keep_best;
        foreign = open_run(r, other);
        CHECK_ERR(omm_course_resume(foreign.course, omm_buf_view(&saved)), OMM_ERR_MISMATCH);
        CHECK(strstr(omm_err_sentence(), "the checkpoint evaluates every ") != NULL);
        close_run(&foreign);
    }
    omm_course_options judged = options;
    judged.eval_data.b[0] ^= 1;
    foreign = open_run(r, judged);
    CHECK_ERR(omm_course_resume(foreign.course, omm_buf_view(&saved)), OMM_ERR_MISMATCH);
    close_run(&foreign);
    judged.eval_data = (omm_digest){{0}};
    foreign = open_run(r, judged);
    CHECK_ERR(omm_course_resume(foreign.course, omm_buf_view(&saved)), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "which this run lacks") != NULL);
    omm_buf without;
    save(&without, &foreign);
    CHECK_ERR(omm_course_resume(fresh.course, omm_buf_view(&without)), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "made without held-out data") != NULL);
    omm_buf_fini(&without);
    close_run(&foreign);
    const uint32_t rank = r->base.recipe.rank;
    for (unsigned i = 0; i < 2; i++) { /* the best adapter in it is smaller, or larger */
        r->base.recipe.rank = i ? rank + 3 : rank - 1;
        foreign = open_run(r, options);
        CHECK_ERR(omm_course_resume(foreign.course, omm_buf_view(&saved)), OMM_ERR_MISMATCH);
        CHECK(strstr(omm_err_sentence(), "another recipe (rank is ") != NULL);
        close_run(&foreign);
    }
    r->base.recipe.rank = rank;
    r->base.recipe.learning_rate *= 2;
    foreign = open_run(r, options);
    CHECK_ERR(omm_course_resume(foreign.course, omm_buf_view(&saved)), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "another recipe (learning_rate is ") != NULL);
    close_run(&foreign);
    r->base.recipe.learning_rate /= 2;
    CHECK_OK(omm_course_resume(fresh.course, omm_buf_view(&saved)));
    CHECK(same_state(&fresh, &x));
    omm_buf_fini(&saved);
    close_run(&x);
    close_run(&fresh);
    close_run(&untouched);
}

/* Where a checkpoint of two steps and evaluations 0 and 2 has what; course.c has its layout. */
enum {
    STEPS_AT = 52,
    EVALS_AT = 56,
    BEST_AT = 60,
    SINCE_AT = 64,
    NORMS_AT = 72,
    RATES_AT = 80,
    FIRST_AT = 88,
    SECOND_AT = 100,
    VALUES_AT = 112
};

/* Sealed anew, so that only what it says is against it. */
static void contradicts(rig *r, const omm_course_options *options, const omm_buf *sound, size_t at,
                        uint32_t bits, omm_err err) {
    run other = open_run(r, *options), untouched = open_run(r, *options);
    omm_buf bytes;
    omm_buf_init(&bytes, 64 << 20);
    CHECK_OK(omm_buf_append(&bytes, sound->data, sound->size - DIGEST));
    omm_put_u32(bytes.data + at, bits);
    CHECK_OK(omm_hash_seal(&bytes, 0));
    CHECK_ERR(omm_course_resume(other.course, omm_buf_view(&bytes)), err);
    CHECK(err != OMM_ERR_MISMATCH || strstr(omm_err_sentence(), "; this run has 5 and 4") != NULL);
    CHECK(same_state(&other, &untouched));
    omm_buf_fini(&bytes);
    close_run(&other);
    close_run(&untouched);
}

/* A trainer of another step in it. */
static void of_two_steps(rig *r, const omm_course_options *options, const omm_buf *sound) {
    run other = open_run(r, *options);
    omm_buf bytes;
    omm_buf_init(&bytes, 64 << 20);
    const size_t best = omm_trainer_adapter(other.trainer)->value_count * sizeof(float);
    CHECK_OK(omm_buf_append(&bytes, sound->data, VALUES_AT + best));
    CHECK_OK(omm_trainer_save(other.trainer, &bytes));
    CHECK_OK(omm_hash_seal(&bytes, 0));
    CHECK_ERR(omm_course_resume(other.course, omm_buf_view(&bytes)), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "is of step 2 and of step 0") != NULL);
    omm_buf_fini(&bytes);
    close_run(&other);
}

/* Sealed, and at an end before what it says that it has; with none of the best values. */
static void ends_early(rig *r) {
    const omm_course_options options = options_of(r, 2, 0, false);
    run x = open_run(r, options), other = open_run(r, options), untouched = open_run(r, options);
    omm_buf saved;
    for (int i = 0; i < 4; i++) CHECK_OK(omm_course_next(x.course, NULL));
    save(&saved, &x);
    for (size_t size = STOPPED_AT + 4; size < VALUES_AT; size++) {
        omm_buf bytes;
        omm_buf_init(&bytes, 64 << 20);
        CHECK_OK(omm_buf_append(&bytes, saved.data, size));
        CHECK_OK(omm_hash_seal(&bytes, 0));
        CHECK_ERR(omm_course_resume(other.course, omm_buf_view(&bytes)), OMM_ERR_SIZE);
        omm_buf_fini(&bytes);
    }
    CHECK(same_state(&other, &untouched));
    omm_buf_fini(&saved);
    close_run(&x);
    close_run(&other);
    close_run(&untouched);
}

/* Without memory nothing is saved, and what was there before it stays. */
static void saved_without_memory(rig *r) {
    run x = open_run(r, options_of(r, 1, 0, true));
    for (int i = 0; i < 6; i++) CHECK_OK(omm_course_next(x.course, NULL));
    omm_err err = OMM_ERR_NOMEM;
    for (size_t nth = 1; err != OMM_OK; nth++) {
        omm_buf saved;
        omm_buf_init(&saved, 64 << 20);
        omm_mem_fail_nth(nth);
        err = omm_course_save(x.course, &saved);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || (err == OMM_ERR_NOMEM && saved.size == 0));
        omm_buf_fini(&saved);
    }
    close_run(&x);
}

static void contradictions(rig *r) {
    static const double plan[] = {5, 6};
    static const uint32_t none = 0x7fc00000, endless = 0x7ff00000;
    static const struct {
        size_t at;
        uint32_t bits;
        omm_err err;
    } cases[] = {{STEPS_AT, STEPS + 1, OMM_ERR_MISMATCH},
                 {EVALS_AT, STEPS / 2 + 3, OMM_ERR_MISMATCH}, /* more than a run can have */
                 {BEST_AT, 2, OMM_ERR_FORMAT},
                 {SINCE_AT, 3, OMM_ERR_FORMAT},
                 {STOPPED_AT, 2, OMM_ERR_FORMAT},
                 {NORMS_AT + 4, none, OMM_ERR_FORMAT},
                 {RATES_AT + 4, none, OMM_ERR_FORMAT},
                 {FIRST_AT + 8, endless, OMM_ERR_FORMAT}, /* the loss */
                 {SECOND_AT + 8, endless, OMM_ERR_FORMAT},
                 {SECOND_AT, 3, OMM_ERR_FORMAT}, /* after a step that is not done */
                 {SECOND_AT, 0, OMM_ERR_FORMAT}, /* as the first */
                 {VALUES_AT, none, OMM_ERR_FORMAT}};
    const omm_course_options options = options_of(r, 2, 1, true);
    r->by_plan = true;
    r->plan = plan;
    run x = open_run(r, options);
    for (int i = 0; i < 4; i++) CHECK_OK(omm_course_next(x.course, NULL));
    CHECK(omm_course_log_of(x.course).stopped_early);
    omm_buf saved;
    save(&saved, &x);
    CHECK(omm_get_u32(saved.data + STEPS_AT) == 2 && omm_get_u32(saved.data + SECOND_AT) == 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        contradicts(r, &options, &saved, cases[i].at, cases[i].bits, cases[i].err);
    of_two_steps(r, &options, &saved);
    omm_buf_fini(&saved);
    close_run(&x);
    r->by_plan = false;
}

static bool always(void *ud) {
    (void)ud;
    return true;
}

static omm_err fails(void *ud, double *loss, const omm_lora *adapter) {
    (void)ud;
    (void)adapter;
    *loss = 1;
    return omm_raise(OMM_ERR_NOMEM, "as asked");
}

/* A step that was stopped, or an evaluation without a loss, is no event. */
static void failures(rig *r) {
    omm_course_options options = options_of(r, 2, 0, false);
    omm_trainer_options trainer = test_rig_options(&r->base);
    run x = {0};
    trainer.cancelled = always;
    CHECK_OK(omm_trainer_open(&x.trainer, &trainer));
    options.trainer = x.trainer;
    CHECK_OK(omm_course_open(&x.course, &options));
    CHECK_OK(omm_course_next(x.course, NULL)); /* judged before the first step */
    for (int i = 0; i < 2; i++) CHECK_ERR(omm_course_next(x.course, NULL), OMM_ERR_CANCELLED);
    CHECK(omm_course_log_of(x.course).steps == 0 && omm_course_log_of(x.course).eval_count == 1);
    close_run(&x);
    options = options_of(r, 2, 0, false);
    options.evaluate = fails;
    x = open_run(r, options);
    for (int i = 0; i < 2; i++) CHECK_ERR(omm_course_next(x.course, NULL), OMM_ERR_NOMEM);
    CHECK_EQ(omm_course_log_of(x.course).eval_count, 0);
    close_run(&x);
}

static void refused(rig *r) {
    run x = open_run(r, options_of(r, 0, 0, false));
    omm_course *c = NULL;
    omm_course_options options = options_of(r, 0, 1, false);
    options.trainer = x.trainer;
    CHECK_ERR(omm_course_open(&c, &options), OMM_ERR_CONFIG);
    options = options_of(r, 0, 0, true);
    CHECK_ERR(omm_course_open(&c, &options), OMM_ERR_CONFIG);
    options = options_of(r, 1, 0, true);
    options.trainer = x.trainer;
    const size_t live = omm_mem_live();
    for (size_t nth = 1;; nth++) {
        omm_mem_fail_nth(nth);
        omm_err err = omm_course_open(&c, &options);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        if (err == OMM_OK) {
            CHECK(nth > 5);
            omm_course_close(c);
            break;
        }
        CHECK_EQ(err, OMM_ERR_NOMEM);
        CHECK_EQ(omm_mem_live(), live);
    }
    while (!omm_course_is_done(x.course)) CHECK_OK(omm_course_next(x.course, NULL));
    CHECK_EQ(r->asked, 0);
    CHECK(omm_course_adapter(x.course) == omm_trainer_adapter(x.trainer));
    close_run(&x);
    static const double plan[] = {(double)NAN};
    r->by_plan = true;
    r->plan = plan;
    x = open_run(r, options_of(r, 1, 0, false));
    CHECK_ERR(omm_course_next(x.course, NULL), OMM_ERR_NUMERIC);
    CHECK_EQ(omm_course_log_of(x.course).eval_count, 0);
    close_run(&x);
    r->by_plan = false;
}

/* --- all weights ------------------------------------------------------------------------------- */

typedef struct whole {
    omm_model model;
    omm_full *full;
    omm_course *course;
} whole;

/* A number that depends on the weights. */
static omm_err weigh(void *ud, double *loss, const omm_lora *adapter) {
    const whole *x = ud;
    CHECK(!adapter);
    const omm_digest digest = omm_full_digest(x->full);
    *loss = (double)omm_get_u32(digest.b);
    return OMM_OK;
}

static void open_whole(whole *x, const rig *r, bool cancelled) {
    *x = (whole){0};
    test_synth_open(&x->model, OMM_FORMAT_F16);
    const omm_full_options options = {.model = &x->model,
                                      .data = r->base.data,
                                      .recipe = &r->base.recipe,
                                      .compute = &r->base.compute,
                                      .cancelled = cancelled ? always : NULL,
                                      .seed = omm_seed_from_u64(1)};
    CHECK_OK(omm_full_open(&x->full, &options));
    const omm_course_options course = {
        .full = x->full, .eval_every = 2, .keep_best = true, .evaluate = weigh, .ud = x};
    CHECK_OK(omm_course_open(&x->course, &course));
}

static void close_whole(whole *x) {
    omm_course_close(x->course);
    omm_full_close(x->full);
    omm_model_fini(&x->model);
}

static void finish(whole *x, omm_buf *saved) {
    while (!omm_course_is_done(x->course)) CHECK_OK(omm_course_next(x->course, NULL));
    omm_buf_init(saved, 64 << 20);
    CHECK_OK(omm_course_save(x->course, saved));
    CHECK(!omm_course_adapter(x->course));
    omm_course_settle(x->course);
}

/* The same state from any cut; what is kept are the weights of the lowest loss. */
static void all_weights(const rig *r) {
    whole a, b;
    omm_buf last, again, at;
    double kept = 0;
    open_whole(&a, r, false);
    finish(&a, &last);
    const omm_course_log log = omm_course_log_of(a.course);
    CHECK_EQ(log.eval_count, 4);
    CHECK_OK(weigh(&a, &kept, NULL));
    CHECK(kept == log.evals[log.best].loss && log.best != 3);
    const size_t values = a.full->tensors.value_count;
    float *in_model = omm_alloc(values, sizeof *in_model);
    CHECK(in_model != NULL);
    full_read(in_model, &a.full->tensors); /* what is judged and written after it */
    CHECK(same_bytes(in_model, a.full->values, values * sizeof *in_model));
    omm_free(in_model);
    const omm_train_result result = omm_course_result(a.course);
    CHECK(result.steps == STEPS && result.loss_last == log.losses[STEPS - 1]);
    for (size_t cut = 1; cut < 8; cut += 3) {
        open_whole(&b, r, false);
        omm_buf_init(&at, 64 << 20);
        for (size_t i = 0; i < cut; i++) CHECK_OK(omm_course_next(b.course, NULL));
        CHECK_OK(omm_course_save(b.course, &at));
        close_whole(&b);
        open_whole(&b, r, false);
        at.data[at.size / 2] ^= 1;
        CHECK_ERR(omm_course_resume(b.course, omm_buf_view(&at)), OMM_ERR_DIGEST);
        at.data[at.size / 2] ^= 1;
        CHECK_OK(omm_course_resume(b.course, omm_buf_view(&at)));
        finish(&b, &again);
        CHECK(omm_bytes_equal(omm_buf_view(&last), omm_buf_view(&again)));
        const omm_digest x = omm_full_digest(a.full), y = omm_full_digest(b.full);
        CHECK(omm_digest_equal(&x, &y));
        close_whole(&b);
        omm_buf_fini(&again);
        omm_buf_fini(&at);
    }
    close_whole(&a);
    omm_buf_fini(&last);
    open_whole(&a, r, true);
    CHECK_OK(omm_course_next(a.course, NULL)); /* judged before the first step */
    for (int i = 0; i < 2; i++) CHECK_ERR(omm_course_next(a.course, NULL), OMM_ERR_CANCELLED);
    CHECK_EQ(omm_course_log_of(a.course).steps, 0);
    close_whole(&a);
}

/* A course says of a step what the trainer of all weights says. */
static void reports(const rig *r) {
    whole a, b;
    omm_course_event event;
    omm_full_report f;
    open_whole(&a, r, false);
    open_whole(&b, r, false);
    CHECK_OK(omm_course_next(a.course, &event));
    CHECK(event.is_eval);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(omm_course_next(a.course, &event));
        CHECK_OK(omm_full_step(b.full, &f));
        const omm_step_report *s = &event.step;
        CHECK(!event.is_eval && s->step == f.step && s->loss == f.loss);
        CHECK(s->grad_norm == f.grad_norm && s->learning_rate == f.learning_rate);
        CHECK(s->tokens == f.tokens && s->learned == f.learned && f.learned < f.tokens);
    }
    close_whole(&a);
    close_whole(&b);
}

int main(void) {
    rig r = {0};
    test_rig_open(&r.base, 5);
    r.base.recipe.rank = 2;
    r.base.recipe.steps = STEPS;
    r.base.recipe.batch_tokens = 150;
    r.base.recipe.dropout = 0.05F;
    r.base.recipe.targets = 5;
    resume_anywhere(&r);
    best_and_patience(&r, 2, true);
    best_and_patience(&r, 2, false);
    best_and_patience(&r, 0, true);
    best_and_patience(&r, 3, true);
    patience_is_in_a_row(&r);
    damaged(&r);
    contradictions(&r);
    ends_early(&r);
    saved_without_memory(&r);
    failures(&r);
    refused(&r);
    all_weights(&r);
    reports(&r);
    test_rig_close(&r.base);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

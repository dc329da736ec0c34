/* canary_replay.c - owns the comparison of a canary's answer with the same work done again. */
#include "omm/coordinator_canary.h"

#include "omm/codec.h"

#include <stdio.h>
#include <string.h>

static void differs(omm_canary_result *out, const char *what) {
    out->passed = false;
    (void)snprintf(out->why, sizeof out->why, "canary: %s is not what the recipe gives", what);
}

static bool is_same(float a, float b) {
    return omm_f32_to_bits(a) == omm_f32_to_bits(b);
}

/* What the node says of its work, beside the payload: its weight in a round is one of these. */
static const char *difference(const omm_submission *s, const omm_canary_trained *t) {
    if (s->steps != t->steps) return "steps";
    if (s->tokens != t->tokens) return "tokens";
    if (s->examples != t->examples) return "examples";
    if (!is_same(s->loss_before, t->loss_before)) return "loss_before";
    if (!is_same(s->loss_after, t->loss_after)) return "loss_after";
    return NULL;
}

/* The payload as it came, before zstd.  A payload that none could have written fails by what it is. */
static omm_err read_claim(omm_canary_result *out, float *values, const omm_canary_job *job) {
    omm_encoded info;
    out->claimed = job->submission.payload.canonical;
    const omm_err err =
        omm_codec_decode(values, &info, job->codec, job->layout, omm_buf_view(&job->payload));
    if (err == OMM_ERR_NOMEM) return err;
    if (err != OMM_OK)
        differs(out, "the payload's form");
    else if (!omm_digest_equal(&info.payload_digest, &out->claimed))
        differs(out, "payload.canonical_digest");
    return OMM_OK;
}

static omm_err encode_again(omm_canary_result *out, float *values, const omm_canary_job *job) {
    omm_buf sent;
    omm_encoded info;
    omm_buf_init(&sent, omm_codec_sent_bytes_max(job->codec, job->layout));
    for (size_t i = 0; i < job->layout->value_count; i++) values[i] -= job->start[i];
    omm_err err = omm_codec_encode(&sent, &info, job->codec, job->layout, values);
    if (err == OMM_OK) {
        out->repeated = info.payload_digest;
        if (!omm_digest_equal(&out->claimed, &out->repeated)) differs(out, "the payload");
    } else if (err !=
               OMM_ERR_NOMEM) { /* what cannot be encoded was not encoded by the node, either */
        differs(out, "the payload");
        err = OMM_OK;
    }
    omm_buf_fini(&sent);
    return err;
}

static void step_differs(omm_canary_result *out, const omm_canary_job *job,
                         const omm_canary_trained *t) {
    char what[32];
    out->claimed = (omm_digest){{0}};
    memcpy(out->claimed.b, job->submission.step_digests.data + (size_t)(t->different_step - 1) * 8,
           8);
    out->step = t->different_step;
    out->repeated = t->step_digest;
    (void)snprintf(what, sizeof what, "step %u", t->different_step);
    differs(out, what);
}

static omm_err compare(omm_canary_result *out, float *values, const omm_canary_job *job,
                       omm_canary_train_fn train, void *ud) {
    omm_canary_trained trained = {0};
    OMM_TRY(read_claim(out, values, job));
    if (!out->passed) return OMM_OK;
    const omm_err err = train(ud, &trained, values, job);
    if (err == OMM_ERR_NUMERIC) differs(out, "anything"); /* from here nobody gets a number */
    if (err != OMM_OK) return err == OMM_ERR_NUMERIC ? OMM_OK : err;
    if (trained.different_step > 0) {
        step_differs(out, job, &trained);
        return OMM_OK;
    }
    const char *what = difference(&job->submission, &trained);
    if (what) {
        differs(out, what);
        return OMM_OK;
    }
    return encode_again(out, values, job);
}

omm_err omm_canary_replay(omm_canary_result *out, const omm_canary_job *job,
                          omm_canary_train_fn train, void *ud) {
    *out = (omm_canary_result){.passed = true};
    float *values = omm_alloc_aligned(job->layout->value_count, sizeof *values);
    if (!values) return omm_raise(OMM_ERR_NOMEM, "%zu values", job->layout->value_count);
    const omm_err err = compare(out, values, job, train, ud);
    omm_free(values);
    return err;
}

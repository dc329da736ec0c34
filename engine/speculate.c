/* speculate.c - propose, check, take: see speculate.h. */
#include "session_internal.h"

#include "omm/mem.h"
#include "omm/speculate.h"

#include <string.h>

#define DRAFTS_DEFAULT 4u
#define MATCH_DEFAULT 4u
#define MATCH_MIN 2u

struct omm_speculator {
    omm_session *session;
    omm_speculator_options options;
    omm_sampler sampler;
    uint32_t vocab;
    uint32_t *ids;       /* [positions_max + 1]: all given out or before start, then the draft's */
    size_t count;        /* of ids without the draft's; the last is not in the session */
    size_t prompt_count; /* of them, before start */
    bool pending;        /* an id was given out since start */
    uint32_t drafts[OMM_SPECULATOR_DRAFTS_MAX]; /* in the session, after the ids */
    size_t draft_count, taken;                  /* row `taken` of logits decides the next id */
    float *logits;                              /* [drafts_max + 1][vocab] */
    float *draft_logits;                        /* [vocab] */
    omm_constraint *ahead;                      /* of the draft's ids; NULL: none is needed */
    omm_speculator_stats stats;
};

omm_speculator_options omm_speculator_options_default(void) {
    return (omm_speculator_options){.drafts_max = DRAFTS_DEFAULT, .match_max = MATCH_DEFAULT};
}

static omm_err check(const omm_session *session, const omm_speculator_options *o) {
    if (o->drafts_max < 1 || o->drafts_max > OMM_SPECULATOR_DRAFTS_MAX)
        return omm_raise(OMM_ERR_CONFIG, "%u drafts at once: must be 1 to %u", o->drafts_max,
                         OMM_SPECULATOR_DRAFTS_MAX);
    if (!o->draft && o->match_max < MATCH_MIN)
        return omm_raise(OMM_ERR_CONFIG, "look-up by %u ids: must be at least %u", o->match_max,
                         MATCH_MIN);
    if (!o->draft) return OMM_OK;
    OMM_ASSERT(o->draft != session);
    const uint32_t ours = session->group->graph.model->dims.vocab;
    const uint32_t theirs = o->draft->group->graph.model->dims.vocab;
    if (ours != theirs)
        return omm_raise(OMM_ERR_MISMATCH, "the draft model has %u tokens, the model %u", theirs,
                         ours);
    return OMM_OK;
}

omm_err omm_speculator_open(omm_speculator **out, omm_session *session, const omm_sampler *sampler,
                            const omm_speculator_options *options) {
    const omm_speculator_options o = options ? *options : omm_speculator_options_default();
    OMM_TRY(omm_sampler_check(sampler));
    OMM_TRY(check(session, &o));
    omm_speculator *s = (omm_speculator *)omm_alloc(1, sizeof *s);
    if (!s) return omm_raise(OMM_ERR_NOMEM, "no memory for a speculator");
    s->session = session;
    s->options = o;
    s->sampler = *sampler;
    s->vocab = session->group->graph.model->dims.vocab;
    s->ids = (uint32_t *)omm_alloc((size_t)omm_session_positions_max(session) + 1, sizeof *s->ids);
    s->logits = (float *)omm_alloc_aligned((size_t)(o.drafts_max + 1) * s->vocab, sizeof(float));
    s->draft_logits = (float *)omm_alloc_aligned(s->vocab, sizeof(float));
    omm_err err = OMM_OK;
    if (!s->ids || !s->logits || !s->draft_logits)
        err = omm_raise(OMM_ERR_NOMEM, "no memory for %u drafts", o.drafts_max);
    if (err == OMM_OK && o.draft && o.constraint)
        err = omm_constraint_clone(&s->ahead, o.constraint);
    if (err != OMM_OK) {
        omm_speculator_close(s);
        return err;
    }
    *out = s;
    return OMM_OK;
}

void omm_speculator_close(omm_speculator *s) {
    if (!s) return;
    omm_free(s->ids);
    omm_free(s->logits);
    omm_free(s->draft_logits);
    omm_constraint_close(s->ahead);
    omm_free(s);
}

void omm_speculator_start(omm_speculator *s, const float *logits) {
    s->count = s->prompt_count = omm_session_position(s->session);
    memcpy(s->ids, omm_session_ids(s->session), s->count * sizeof *s->ids);
    memcpy(s->logits, logits, s->vocab * sizeof *logits);
    s->draft_count = s->taken = 0;
    s->pending = false;
}

uint32_t omm_speculator_position(const omm_speculator *s) {
    return (uint32_t)(s->count - s->pending);
}

void omm_speculator_finish(omm_speculator *s) {
    const uint32_t left = omm_session_truncate(s->session, omm_speculator_position(s));
    OMM_ASSERT(left == omm_speculator_position(s)); /* windows keep more than the proposals */
    s->draft_count = s->taken = 0;
}

omm_speculator_stats omm_speculator_stats_of(const omm_speculator *s) {
    return s->stats;
}

/* ---- proposals ------------------------------------------------------------------------------- */

/* What followed the latest earlier place of the last ids, the longest match first.  Text that repeats
 * itself has that place just before its end: where the ids are over, the proposals repeat themselves. */
static void look_up(omm_speculator *s, size_t most) {
    for (size_t n = s->options.match_max; n >= MATCH_MIN; n--) {
        if (s->count <= n) continue;
        const uint32_t *last = s->ids + s->count - n;
        for (size_t at = s->count - n; at-- > 0;) {
            if (memcmp(s->ids + at, last, n * sizeof *last) != 0) continue;
            const size_t follow = at + n;
            for (size_t i = 0; i < most; i++)
                s->drafts[i] =
                    follow + i < s->count ? s->ids[follow + i] : s->drafts[follow + i - s->count];
            s->draft_count = most;
            return;
        }
    }
}

/* The draft model goes on from the same ids with the same sampler, among what is allowed behind them. */
static omm_err draft(omm_speculator *s, size_t most) {
    omm_session *d = s->options.draft;
    if (s->count >= omm_session_positions_max(d)) return OMM_OK; /* its context is over */
    if (most > omm_session_positions_max(d) - s->count)
        most = omm_session_positions_max(d) - s->count;
    OMM_TRY(omm_session_become(d, s->ids, s->count, s->draft_logits));
    if (s->ahead) omm_constraint_copy(s->ahead, s->options.constraint);
    while (s->draft_count < most && !(s->ahead && omm_constraint_has_ended(s->ahead))) {
        uint32_t id = 0;
        const omm_history before = {s->ids, s->count + s->draft_count, s->prompt_count};
        const omm_err err =
            omm_sample_within(&id, &s->sampler, s->ahead, &before, s->draft_logits, s->vocab);
        if (err == OMM_ERR_UNSUPPORTED)
            break; /* nothing goes on there: the text may go elsewhere */
        OMM_TRY(err);
        s->ids[before.count] = s->drafts[s->draft_count++] = id; /* what comes next has said it */
        if (s->draft_count < most) OMM_TRY(omm_session_append(d, &id, 1, s->draft_logits, false));
    }
    return OMM_OK;
}

/* Append the last id with proposals after it, and have the logits of each. */
static omm_err advance(omm_speculator *s) {
    uint32_t batch[OMM_SPECULATOR_DRAFTS_MAX + 1];
    const size_t position = s->count - 1;
    size_t room = omm_session_positions_max(s->session) - s->count;
    if (room > s->options.drafts_max) room = s->options.drafts_max;
    OMM_ASSERT(omm_session_truncate(s->session, (uint32_t)position) == position);
    s->draft_count = s->taken = 0;
    if (room > 0 && s->options.draft) OMM_TRY(draft(s, room));
    if (room > 0 && !s->options.draft) look_up(s, room);
    batch[0] = s->ids[position];
    memcpy(batch + 1, s->drafts, s->draft_count * sizeof *batch);
    OMM_TRY(omm_session_append(s->session, batch, s->draft_count + 1, s->logits, true));
    s->stats.steps++;
    s->stats.drafted += s->draft_count;
    return OMM_OK;
}

omm_err omm_speculator_next(omm_speculator *s, uint32_t *id) {
    OMM_ASSERT(omm_speculator_position(s) < omm_session_positions_max(s->session) || !s->pending);
    bool ahead = false; /* the last id was proposed: its logits are there */
    if (s->pending && s->taken < s->draft_count)
        ahead = s->drafts[s->taken] == s->ids[s->count - 1];
    if (ahead) {
        s->taken++;
        s->stats.accepted++;
    } else if (s->pending) {
        OMM_TRY(advance(s));
    }
    const omm_history before = {s->ids, s->count, s->prompt_count};
    OMM_TRY(omm_sample_within(id, &s->sampler, s->options.constraint, &before,
                              s->logits + s->taken * s->vocab, s->vocab));
    s->ids[s->count++] = *id;
    s->pending = true;
    return OMM_OK;
}

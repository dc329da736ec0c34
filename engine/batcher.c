/* batcher.c - see batcher.h.  A seat has all ids of its text, the prompt's and those drawn; what its session does not
 * hold of them yet is what it needs next.  So a session that lost its place finds it again. */
#include "omm/batcher.h"

#include "omm/mem.h"
#include "omm/prefix.h"

#include <stdio.h>
#include <string.h>

#define SEATS_DEFAULT 4u
#define PREFILL_DEFAULT 64u
#define ROWS_DEFAULT 32u

typedef struct seat {
    omm_session *session;
    uint32_t *ids;  /* [positions_max + 1]: the last one drawn needs no position */
    uint32_t count; /* of them so far */
    uint32_t prompt_count, reused;
    omm_sampler sampler;
    omm_constraint *constraint; /* or NULL */
    omm_batcher_row each;       /* or NULL */
    void *each_ud;
    bool taken;
    bool failed; /* its token said why; it is in no batch any more */
} seat;

struct omm_batcher {
    omm_batcher_options o;
    const omm_compute *compute;
    const omm_model *model;
    omm_group *group;
    omm_prefix_store *prefixes; /* NULL: nothing is kept */
    seat seats[OMM_BATCHER_SEATS_MAX];
    float *logits; /* [seats + rows_max][vocab] */
    uint32_t taken;
    /* Of the step at hand: */
    omm_part parts[OMM_BATCHER_SEATS_MAX];
    uint32_t owners[OMM_BATCHER_SEATS_MAX], before[OMM_BATCHER_SEATS_MAX];
};

omm_batcher_options omm_batcher_options_default(void) {
    return (omm_batcher_options){.session = omm_session_options_default(),
                                 .seats = SEATS_DEFAULT,
                                 .prefill_max = PREFILL_DEFAULT,
                                 .rows_max = ROWS_DEFAULT};
}

/* ---- open and close -------------------------------------------------------------------------- */

static omm_err check_options(const omm_batcher_options *o) {
    if (o->seats < 1 || o->seats > OMM_BATCHER_SEATS_MAX)
        return omm_raise(OMM_ERR_CONFIG, "%u texts at once: must be 1 to %u", o->seats,
                         OMM_BATCHER_SEATS_MAX);
    if (o->prefill_max < 1 || o->rows_max < 1)
        return omm_raise(OMM_ERR_CONFIG, "prompts that are read no token a step never end");
    return OMM_OK;
}

static omm_err open_seat(omm_batcher *b, seat *s) {
    OMM_TRY(omm_session_open_in(&s->session, b->group));
    s->ids =
        (uint32_t *)omm_alloc((size_t)omm_session_positions_max(s->session) + 1, sizeof *s->ids);
    return s->ids ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "no memory for a seat");
}

/* A step can be taken back (run_alone), in layers with a window, too. */
static void keep_a_step(omm_batcher_options *o) {
    const uint32_t most =
        o->prefill_max > o->session.batch_max ? o->prefill_max : o->session.batch_max;
    if (o->session.rollback_max < most) o->session.rollback_max = most;
}

static omm_err open_parts(omm_batcher *b) {
    OMM_TRY(check_options(&b->o));
    keep_a_step(&b->o);
    OMM_TRY(omm_group_open(&b->group, b->compute, b->model, &b->o.session));
    if (b->o.prefix_bytes_max > 0)
        OMM_TRY(omm_prefix_open(&b->prefixes, b->group, b->o.prefix_bytes_max));
    for (uint32_t i = 0; i < b->o.seats; i++) OMM_TRY(open_seat(b, &b->seats[i]));
    b->o.session.positions_max = omm_session_positions_max(b->seats[0].session);
    b->logits = (float *)omm_alloc(((size_t)b->o.seats + b->o.rows_max) * b->model->dims.vocab,
                                   sizeof *b->logits);
    return b->logits ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "no memory for logits");
}

omm_err omm_batcher_open(omm_batcher **out, const omm_compute *compute, const omm_model *model,
                         const omm_batcher_options *options) {
    omm_batcher *b = (omm_batcher *)omm_alloc(1, sizeof *b);
    if (!b) return omm_raise(OMM_ERR_NOMEM, "no memory for a batcher");
    b->o = *options;
    b->compute = compute;
    b->model = model;
    omm_err err = open_parts(b);
    if (err != OMM_OK) {
        omm_batcher_close(b);
        return err;
    }
    *out = b;
    return OMM_OK;
}

void omm_batcher_close(omm_batcher *b) {
    if (!b) return;
    for (uint32_t i = 0; i < OMM_BATCHER_SEATS_MAX; i++) {
        omm_session_close(b->seats[i].session);
        omm_free(b->seats[i].ids);
    }
    omm_prefix_close(b->prefixes);
    omm_group_close(b->group);
    omm_free(b->logits);
    omm_free(b);
}

/* ---- seats ----------------------------------------------------------------------------------- */

static omm_err check_text(const omm_batcher *b, const omm_batcher_text *t) {
    const uint32_t most = b->o.session.positions_max, vocab = b->model->dims.vocab;
    if (t->count < 1 || t->count > most)
        return omm_raise(OMM_ERR_TOO_BIG, "a prompt of %zu tokens: must be 1 to %u", t->count,
                         most);
    for (size_t i = 0; i < t->count; i++)
        if (t->prompt[i] >= vocab)
            return omm_raise(OMM_ERR_FORMAT, "token id %u: the vocabulary has %u", t->prompt[i],
                             vocab);
    return omm_sampler_check(&t->sampler);
}

static omm_err take_seat(omm_batcher *b, seat *s, const omm_batcher_text *t) {
    OMM_TRY(omm_session_set_adapters(s->session, t->adapters, t->adapter_count));
    if (b->prefixes && !t->each)
        OMM_TRY(omm_prefix_fetch(b->prefixes, s->session, t->prompt, t->count - 1));
    memcpy(s->ids, t->prompt, t->count * sizeof *s->ids);
    s->count = s->prompt_count = (uint32_t)t->count;
    s->reused = omm_session_position(s->session);
    s->sampler = t->sampler;
    s->constraint = t->constraint;
    s->each = t->each;
    s->each_ud = t->each_ud;
    s->failed = false;
    return OMM_OK;
}

omm_err omm_batcher_sit(uint32_t *out, omm_batcher *b, const omm_batcher_text *text) {
    OMM_TRY(check_text(b, text));
    uint32_t free = 0;
    while (free < b->o.seats && b->seats[free].taken) free++;
    if (free == b->o.seats) return omm_raise(OMM_ERR_STATE, "all %u seats are taken", b->o.seats);
    omm_err err = take_seat(b, &b->seats[free], text);
    if (err != OMM_OK) {
        (void)omm_session_truncate(b->seats[free].session, 0);
        return err;
    }
    b->seats[free].taken = true;
    b->taken++;
    *out = free;
    return OMM_OK;
}

/* What cannot be kept is computed again by who needs it. */
static void keep(const omm_batcher *b, const seat *s) {
    if (b->prefixes && !s->failed) (void)!omm_prefix_keep(b->prefixes, s->session);
}

void omm_batcher_leave(omm_batcher *b, uint32_t index) {
    OMM_ASSERT(index < b->o.seats);
    seat *s = &b->seats[index];
    OMM_ASSERT(s->taken);
    keep(b, s);
    (void)omm_session_truncate(s->session, 0);
    s->taken = false;
    b->taken--;
}

uint32_t omm_batcher_taken(const omm_batcher *b) {
    return b->taken;
}

uint32_t omm_batcher_reused(const omm_batcher *b, uint32_t index) {
    OMM_ASSERT(index < b->o.seats);
    return b->seats[index].reused;
}

size_t omm_batcher_cache_bytes(const omm_batcher *b) {
    return omm_group_cache_bytes(b->group);
}

/* ---- a step ---------------------------------------------------------------------------------- */

static uint32_t left_of(const seat *s) {
    return s->count - omm_session_position(s->session);
}

static bool works(const seat *s) {
    return s->taken && !s->failed;
}

/* Tokens of a prompt that each of those that read may have. */
static uint32_t share_of(const omm_batcher *b) {
    uint32_t decode = 0, read = 0;
    for (uint32_t i = 0; i < b->o.seats; i++) {
        if (!works(&b->seats[i])) continue;
        if (left_of(&b->seats[i]) == 1)
            decode++;
        else
            read++;
    }
    const uint32_t room = decode ? b->o.prefill_max : b->o.session.batch_max;
    return read && room / read ? room / read : 1;
}

/* Logits of each position are of no use behind the prompt. */
static bool wants_each(const seat *s) {
    return s->each && omm_session_position(s->session) < s->prompt_count;
}

static size_t next_parts(omm_batcher *b) {
    const uint32_t share = share_of(b);
    uint32_t rows = b->o.rows_max;
    size_t n = 0;
    for (uint32_t i = 0; i < b->o.seats; i++) {
        seat *s = &b->seats[i];
        if (!works(s)) continue;
        const bool each = wants_each(s);
        const uint32_t at = omm_session_position(s->session), left = s->count - at;
        uint32_t take = left < share ? left : share;
        if (each && take > rows) take = rows;
        if (take == 0) continue; /* in the next step */
        if (each) rows -= take;
        b->parts[n] = (omm_part){s->session, s->ids + at, take,
                                 each           ? OMM_LOGITS_EVERY
                                 : take == left ? OMM_LOGITS_LAST
                                                : OMM_LOGITS_NONE};
        b->before[n] = at;
        b->owners[n++] = i;
    }
    return n;
}

static omm_batcher_token failure(uint32_t index, omm_err err) {
    omm_batcher_token token = {.seat = index, .err = err};
    snprintf(token.why, sizeof token.why, "%s", omm_err_sentence());
    return token;
}

/* One task for each token: draws take as long as a good part of a step, and do not depend on one another. */
typedef struct draws {
    omm_batcher *b;
    omm_batcher_token *tokens;
} draws;

static void draw(void *ud, size_t task, unsigned worker) {
    const draws *d = (const draws *)ud;
    omm_batcher_token *token = &d->tokens[task];
    const seat *s = &d->b->seats[token->seat];
    (void)worker;
    const omm_history before = {s->ids, s->count, s->prompt_count};
    float *logits = d->b->logits + (token->logits - d->b->logits); /* no other task's */
    const omm_err err = omm_sample_within(&token->id, &s->sampler, s->constraint, &before, logits,
                                          d->b->model->dims.vocab);
    if (err != OMM_OK) *token = failure(token->seat, err);
}

/* Rows of a part; those of a prompt are told, and of the last one a token may be drawn. */
static size_t tell_rows(const omm_batcher *b, size_t part, const float *logits) {
    const omm_part *p = &b->parts[part];
    const seat *s = &b->seats[b->owners[part]];
    if (p->logits != OMM_LOGITS_EVERY) return p->logits == OMM_LOGITS_LAST ? 1 : 0;
    for (size_t i = 0; i < p->count && b->before[part] + i + 1 < s->prompt_count; i++)
        s->each(s->each_ud, b->owners[part], b->before[part] + (uint32_t)i,
                logits + i * b->model->dims.vocab);
    return p->count;
}

/* What follows from the logits of parts first .. first + n - 1, whose ids have been computed. */
static void take_logits(omm_batcher_token *tokens, size_t *count, omm_batcher *b, size_t first,
                        size_t n, const float *logits) {
    const size_t had = *count, vocab = b->model->dims.vocab;
    for (size_t i = first; i < first + n; i++) {
        const seat *s = &b->seats[b->owners[i]];
        logits += tell_rows(b, i, logits) * vocab;
        if (omm_session_position(s->session) < s->count) continue;
        if (s->count == s->prompt_count) keep(b, s);
        tokens[(*count)++] = (omm_batcher_token){.seat = b->owners[i], .logits = logits - vocab};
    }
    draws d = {b, tokens + had};
    omm_pool_run(b->compute->pool, draw, &d, *count - had);
    for (size_t i = had; i < *count; i++) {
        seat *s = &b->seats[tokens[i].seat];
        s->failed = tokens[i].err != OMM_OK;
        if (!s->failed) s->ids[s->count++] = tokens[i].id;
    }
}

/* What fails together is done again one by one, so that each failure is its own text's.  A batch that gave logits that are
 * no numbers has appended its ids all the same. */
static void run_alone(omm_batcher_token *tokens, size_t *count, omm_batcher *b, size_t n) {
    float *logits = b->logits;
    for (size_t i = 0; i < n; i++) {
        seat *s = &b->seats[b->owners[i]];
        OMM_ASSERT(omm_session_truncate(s->session, b->before[i]) ==
                   b->before[i]); /* keep_a_step */
        const omm_err err = omm_group_append(b->group, &b->parts[i], 1, logits);
        s->failed = err != OMM_OK;
        if (s->failed)
            tokens[(*count)++] = failure(b->owners[i], err);
        else
            take_logits(tokens, count, b, i, 1, logits);
        logits +=
            b->model->dims.vocab * (b->parts[i].logits == OMM_LOGITS_EVERY ? b->parts[i].count : 1);
    }
}

void omm_batcher_step(omm_batcher_token *tokens, size_t *count, omm_batcher *b) {
    *count = 0;
    const size_t n = next_parts(b);
    if (n == 0) return;
    if (omm_group_append(b->group, b->parts, n, b->logits) == OMM_OK)
        take_logits(tokens, count, b, 0, n, b->logits);
    else
        run_alone(tokens, count, b, n);
}

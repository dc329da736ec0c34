/* Why a submission was refused, decided again from its bytes, as protocol.md has the checks. */
#include "audit_reason.h"
#include "omm/mem.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SETTLED_MAYBE = 1, /* refused for what is asked before DUPLICATE: the first time that settles */
    SETTLED = 2,       /* accepted, or refused for what is asked after it: once a round */
};

/* What a submission can be refused for.  Others are for who enrols, or are no refusals at all. */
static omm_err reason_of(const char *name) {
    static const omm_err known[] = {
        OMM_ERR_REFUSED_SIZE,     OMM_ERR_REFUSED_FORMAT,       OMM_ERR_REFUSED_VALUE,
        OMM_ERR_REFUSED_SHAPE,    OMM_ERR_REFUSED_SIGNATURE,    OMM_ERR_REFUSED_CONTEXT,
        OMM_ERR_REFUSED_KEY,      OMM_ERR_REFUSED_ROUND,        OMM_ERR_REFUSED_LATE,
        OMM_ERR_REFUSED_BASE,     OMM_ERR_REFUSED_NOT_SELECTED, OMM_ERR_REFUSED_DUPLICATE,
        OMM_ERR_REFUSED_RESIDUAL, OMM_ERR_REFUSED_RECIPE,       OMM_ERR_REFUSED_BUDGET,
        OMM_ERR_REFUSED_DIGEST,   OMM_ERR_REFUSED_RANGE,        OMM_ERR_REFUSED_NORM};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, omm_err_name(known[i])) == 0) return known[i];
    return OMM_OK;
}

/* --- who signed it --- */

static bool is_signed(const claim *c) {
    return c->opened == OMM_OK && (c->checked == OMM_OK || c->checked == OMM_ERR_REFUSED_CONTEXT);
}

static bool was_selected(const claim *c) {
    return audit_has(c->round->selected, c->round->selected_count,
                     &c->all->a->ev.run.nodes[c->node].id);
}

/* The first thing by which it is none of this round, or NULL. */
static const char *of_another_round(const claim *c) {
    const audit_offer *offer = &c->all->a->offers[c->r];
    if (strcmp(c->s.run_id, c->all->a->ev.run.run_id) != 0) return "run_id";
    if (c->s.round != c->r) return "round";
    if (!omm_digest_equal(&c->s.offer_digest, &c->round->offer)) return "offer_digest";
    if (offer->known && !omm_digest_equal(&c->s.nonce, &offer->nonce)) return "nonce";
    return NULL;
}

/* Who joined by enrolment was nobody before.  Those on the list from the start may be known by their data. */
static bool may_have_joined_later(const claim *c) {
    const omm_run_node *node = &c->all->a->ev.run.nodes[c->node];
    omm_submission s;
    omm_arena arena;
    if (node->client[0] || !omm_digest_is_zero(&node->data_digest)) return false;
    if (c->all->since[c->node] < c->r) return false;
    if (c->all->since[c->node] > c->r) return true;
    /* Selected in this very round: not yet, unless it had the round's offer. */
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    const omm_err err = omm_submission_decode(&s, c->env.payload, &arena);
    const bool had_offer = err == OMM_OK && omm_digest_equal(&s.offer_digest, &c->round->offer);
    omm_arena_fini(&arena);
    if (err == OMM_ERR_NOMEM) (void)audit_expect(c->all->a, err, c->path);
    return !had_offer;
}

/* Is there a node where one is proven, and a receipt where there is a node? */
static void check_name(const claim *c) {
    audit *a = c->all->a;
    const bool known = is_signed(c) && c->node != SIZE_MAX;
    if (c->line->has_node && !known)
        audit_fail(a, c->path, "has a node in rounds.jsonl, and is %s",
                   is_signed(c) ? "of no node of the run" : "not well signed");
    if (!c->line->has_node && known && !may_have_joined_later(c))
        audit_fail(a, c->path, "has no node in rounds.jsonl, and is well signed by node %s",
                   a->ev.run.nodes[c->node].name);
    if (c->line->has_node && !c->line->has_receipt)
        audit_fail(a, c->path, "is of a node, which has no receipt of it");
    if (!c->line->has_node && c->line->has_receipt)
        audit_fail(a, c->path, "has a receipt, and no node in rounds.jsonl");
}

/* --- why: each gives NULL where that is so or cannot be decided, else what is so instead --- */

const char *claim_say(claim *c, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(c->why, sizeof c->why, fmt, args);
    va_end(args);
    return c->why;
}

/* One of these decodes it; with several faults it may be any. */
static const char *form_contradicts(claim *c, omm_err err) {
    const omm_err reason = c->reason;
    if (reason == OMM_ERR_REFUSED_SIZE || reason == OMM_ERR_REFUSED_FORMAT ||
        (reason == OMM_ERR_REFUSED_VALUE && c->opened == OMM_OK))
        return NULL;
    return claim_say(c, "is no %s: %s (%s)", c->opened == OMM_OK ? "submission" : "envelope",
                     omm_err_sentence(),
                     omm_err_name(err == OMM_ERR_VERSION ? OMM_ERR_REFUSED_FORMAT : err));
}

static const char *residual_contradicts(const claim *c) {
    const audit *a = c->all->a;
    if (!a->ev.run.codec_up.error_feedback &&
        !omm_digest_equal(&c->s.residual_after, &a->residual_zero))
        return NULL;
    if (c->all->due == a->residual_count) return NULL; /* reported with the submissions */
    const audit_residual *due = &a->residuals[c->all->due];
    if (due->round != c->r || due->index != c->index) return NULL;
    if (!omm_digest_equal(&c->s.residual_before, &due->before) &&
        !omm_digest_equal(&c->s.residual_before, &a->residual_zero))
        return NULL;
    return "goes on from the node's last residual, or from zero";
}

/* Refused when its round was over, or because not all of it was there when that ended. */
static const char *late_contradicts(claim *c) {
    const audit *a = c->all->a;
    const uint32_t round = c->s.round;
    char full[OMM_PATH_MAX];
    if (strcmp(c->s.run_id, a->ev.run.run_id) != 0) return "is of another run";
    if (round > c->r) return claim_say(c, "is of round %u, which is not over", round);
    if (a->offers[round].known && !omm_digest_equal(&c->s.nonce, &a->offers[round].nonce))
        return claim_say(c, "has not the nonce of round %u", round);
    if (round < c->r) {
        omm_bundle_path path = omm_bundle_path_submission(round, &a->ev.run.nodes[c->node].id);
        if (omm_path_join(full, a->ev.dir, path.text) == OMM_OK && omm_file_exists(full))
            return claim_say(c, "is of round %u, in which its node was accepted", round);
        return NULL;
    }
    if (of_another_round(c)) return "does not name the round's offer";
    return was_selected(c) ? NULL : "is of a node that was not selected";
}

/* What settles a node: asked of a submission of this round alone. */
static const char *manifest_contradicts(claim *c) {
    const audit *a = c->all->a;
    const omm_run_record *run = &a->ev.run;
    const audit_offer *offer = &a->offers[c->r];
    uint8_t codec[OMM_CODEC_BYTES];
    omm_codec_put(codec, &run->codec_up);
    switch (c->reason) {
    case OMM_ERR_REFUSED_BASE:
        if (!omm_digest_equal(&c->s.base_digest, &run->base.digest) || !offer->known ||
            !omm_digest_equal(&c->s.global_digest, &offer->global_digest))
            return NULL;
        return "its base model and global adapter are those of the round";
    case OMM_ERR_REFUSED_SIZE:
        if (c->s.tokens < 1 || c->s.tokens > run->tokens_max) return NULL;
        break;
    case OMM_ERR_REFUSED_FORMAT:
        if (c->s.step_digests.size != (uint64_t)c->s.steps * 8) return NULL;
        break;
    case OMM_ERR_REFUSED_RESIDUAL: return residual_contradicts(c);
    case OMM_ERR_REFUSED_RECIPE:
        if (!omm_bytes_equal(c->s.codec, omm_bytes_of(codec, sizeof codec))) return NULL;
        if (a->has_facts && c->s.steps != a->facts.steps) return NULL;
        break;
    case OMM_ERR_REFUSED_BUDGET:
        if (!offer->known || c->s.payload.size > offer->payload_bytes_max) return NULL;
        return claim_say(c, "its payload has %" PRIu64 " bytes, of %" PRIu64 " that are allowed",
                         c->s.payload.size, offer->payload_bytes_max);
    default: break;
    }
    return payload_contradicts(c);
}

/* Marks the node as settled. */
static const char *settling_contradicts(claim *c) {
    uint8_t *settled = &c->all->settled[c->node];
    const char *field = of_another_round(c);
    if (field) return claim_say(c, "is of no offer of the round: its %s is another", field);
    if (!was_selected(c)) return "is of a node that was not selected";
    if (c->reason == OMM_ERR_REFUSED_DUPLICATE) return NULL; /* reasons_end_round */
    if (c->reason == OMM_ERR_REFUSED_BASE || c->reason == OMM_ERR_REFUSED_NOT_SELECTED) {
        *settled |= SETTLED_MAYBE;
        return c->reason == OMM_ERR_REFUSED_BASE ? manifest_contradicts(c) : NULL;
    }
    if (*settled & SETTLED) return "another submission of its node has its verdict in the round";
    *settled |= SETTLED;
    return c->reason == OMM_ERR_REFUSED_LATE ? NULL : manifest_contradicts(c);
}

static const char *message_contradicts(claim *c) {
    const char *late = NULL;
    switch (c->reason) {
    case OMM_ERR_REFUSED_ROUND:
        if (of_another_round(c) || !c->all->a->offers[c->r].known) return NULL;
        return "is of this round and its offer";
    case OMM_ERR_REFUSED_NOT_SELECTED:
        /* Else its node was in quarantine, which is asked behind nonce and offer. */
        return was_selected(c) ? settling_contradicts(c) : NULL;
    case OMM_ERR_REFUSED_LATE:
        late = late_contradicts(c);
        return late || c->s.round < c->r ? late : settling_contradicts(c);
    default: return settling_contradicts(c);
    }
}

static const char *decoded_contradicts(claim *c) {
    omm_arena arena;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    const omm_err err = omm_submission_decode(&c->s, c->env.payload, &arena);
    const char *clause = NULL;
    if (err == OMM_OK)
        clause = message_contradicts(c);
    else if (err == OMM_ERR_NOMEM)
        (void)audit_expect(c->all->a, err, c->path);
    else
        clause = form_contradicts(c, err);
    omm_arena_fini(&arena);
    return clause;
}

static const char *contradicts(claim *c) {
    if (c->reason == OMM_OK) return "no submission is refused for that";
    if (c->opened != OMM_OK) return form_contradicts(c, c->opened);
    if (c->checked == OMM_ERR_REFUSED_SIGNATURE)
        return c->reason == c->checked ? NULL : "is not well signed";
    if (c->reason == OMM_ERR_REFUSED_SIGNATURE) return "is well signed";
    if (c->checked == OMM_ERR_REFUSED_CONTEXT)
        return c->reason == c->checked ? NULL : "is signed for another purpose";
    if (c->reason == OMM_ERR_REFUSED_CONTEXT) return "is signed as a submission";
    if (c->node == SIZE_MAX || !c->line->has_node)
        return c->reason == OMM_ERR_REFUSED_KEY ? NULL : "is of no node of the run";
    if (c->reason == OMM_ERR_REFUSED_KEY) return "is of a node of the run";
    return decoded_contradicts(c);
}

/* --- a round of them --- */

static bool open_claim(claim *c, omm_bytes text) {
    audit *a = c->all->a;
    c->opened = omm_envelope_open(&c->env, text);
    if (c->opened == OMM_ERR_NOMEM) return audit_expect(a, c->opened, c->path);
    if (c->opened != OMM_OK) return true;
    c->checked = omm_envelope_verify(&c->env, OMM_CONTEXT_SUBMISSION);
    if (c->checked == OMM_ERR_NOMEM) return audit_expect(a, c->checked, c->path);
    const omm_digest id = omm_key_id(&c->env.key);
    if (is_signed(c)) c->node = evidence_node(&a->ev, &id);
    return true;
}

static void look_for_residual(reasons *all, size_t r, size_t index) {
    const audit *a = all->a;
    while (all->due < a->residual_count &&
           (a->residuals[all->due].round < r ||
            (a->residuals[all->due].round == r && a->residuals[all->due].index < index)))
        all->due++;
}

void reasons_check(reasons *all, size_t r, size_t index, const char *path, omm_bytes text) {
    audit *a = all->a;
    const omm_round_record *round = evidence_at_hand(&a->ev, r);
    const omm_round_refused *line = &round->refused[index];
    const size_t items = a->items; /* verdicts of runs have their number: it stays what it was */
    claim c = {.all = all,
               .round = round,
               .r = r,
               .line = line,
               .index = index,
               .path = path,
               .reason = reason_of(line->reason),
               .node = SIZE_MAX};
    look_for_residual(all, r, index);
    if (open_claim(&c, text)) {
        const char *suffix = strrchr(path, '.');
        if ((strcmp(suffix, ".env") == 0) != (c.opened == OMM_OK))
            audit_fail(a, path,
                       c.opened == OMM_OK ? "is an envelope, and its name says that it is none"
                                          : "is no envelope, and its name says that it is one");
        check_name(&c);
        const char *clause = contradicts(&c);
        if (clause) audit_fail(a, path, "was not refused for %s: %s", line->reason, clause);
    }
    a->items = items;
}

void reasons_begin_round(reasons *all, size_t r) {
    const evidence *ev = &all->a->ev;
    const omm_round_record *round = evidence_at_hand(ev, r);
    memset(all->settled, 0, ev->run.node_count * sizeof *all->settled);
    for (size_t i = 0; i < round->selected_count; i++) {
        const size_t node = evidence_node(ev, &round->selected[i]);
        if (node != SIZE_MAX && all->since[node] == UINT32_MAX) all->since[node] = (uint32_t)r;
    }
    if (round->refused_count == 0) return;
    for (size_t i = 0; i < round->accepted_count; i++) {
        const size_t node = evidence_node(ev, &round->accepted[i].node);
        if (node != SIZE_MAX) all->settled[node] |= SETTLED;
    }
}

/* Who is refused for having submitted before has submitted something else. */
static void check_duplicates(const reasons *all, const omm_round_record *round, size_t r) {
    const audit *a = all->a;
    for (size_t k = 0; k < round->refused_count; k++) {
        const omm_round_refused *line = &round->refused[k];
        if (!line->has_node || reason_of(line->reason) != OMM_ERR_REFUSED_DUPLICATE) continue;
        const size_t node = evidence_node(&a->ev, &line->node);
        if (node == SIZE_MAX || all->settled[node]) continue;
        audit_fail(all->a,
                   omm_bundle_path_refused((uint32_t)r, (uint32_t)k, line->reason, true).text,
                   "was not refused for %s: no other submission of its node has its verdict in the "
                   "round",
                   line->reason);
    }
}

static int compare_digests(const void *a, const void *b) {
    return omm_digest_compare(a, b);
}

/* The same bytes get the same answer: they are in a round once. */
static void check_once(audit *a, const omm_round_record *round, size_t r) {
    const size_t count = round->accepted_count + round->refused_count;
    omm_digest *all = omm_alloc(count, sizeof *all);
    if (!all) {
        (void)audit_expect(a, omm_raise(OMM_ERR_NOMEM, "no memory for %zu submissions", count),
                           "rounds.jsonl");
        return;
    }
    for (size_t i = 0; i < round->accepted_count; i++) all[i] = round->accepted[i].submission;
    for (size_t k = 0; k < round->refused_count; k++)
        all[round->accepted_count + k] = round->refused[k].submission;
    qsort(all, count, sizeof *all, compare_digests);
    for (size_t i = 1; i < count; i++) {
        char hex[OMM_DIGEST_HEX_SIZE];
        if (!omm_digest_equal(&all[i - 1], &all[i])) continue;
        omm_digest_hex(hex, &all[i]);
        audit_fail(a, "rounds.jsonl", "round %zu has submission %s twice", r, hex);
    }
    omm_free(all);
}

void reasons_end_round(reasons *all, size_t r) {
    const omm_round_record *round = evidence_at_hand(&all->a->ev, r);
    if (round->refused_count == 0) return;
    check_duplicates(all, round, r);
    check_once(all->a, round, r);
}

omm_err reasons_open(reasons *out, audit *a) {
    const size_t nodes = a->ev.run.node_count + 1;
    *out = (reasons){.a = a};
    out->since = omm_alloc(nodes, sizeof *out->since);
    out->settled = omm_alloc(nodes, sizeof *out->settled);
    if (!out->since || !out->settled) return omm_raise(OMM_ERR_NOMEM, "no memory for nodes");
    memset(out->since, 0xff, nodes * sizeof *out->since);
    return OMM_OK;
}

void reasons_close(reasons *all) {
    omm_free(all->since);
    omm_free(all->settled);
}

/* round.c - the life of a round: who is selected, what the sum gives, what is published. */
#include "internal.h"

#include "omm/mem.h"
#include "omm/run_config.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- evaluating ---- */

/* The loss that nodes will have with it. */
static omm_err sample_loss(uint64_t *items, double *loss, const omm_coord *c, omm_bytes sent) {
    coord_sent from = {c, sent};
    const omm_coord_values values = coord_sent_values(&from);
    return c->o.evaluator.sample(c->o.evaluator.ud, items, loss, &values);
}

omm_err coord_evaluate_initial(omm_coord *c) {
    uint64_t items = 0;
    double loss = 0;
    OMM_TRY(coord_state_hold(c));
    OMM_TRY(sample_loss(&items, &loss, c, omm_buf_view(&c->sent)));
    OMM_TRY(coord_evidence_state_line(c, 0, 0, items, loss));
    OMM_TRY(coord_store_loss(c, loss));
    c->has_loss = true;
    c->loss = loss;
    return OMM_OK;
}

/* ---- opening ---- */

/* Whose dry run the last round ended for is not waited for: it comes when it is over, or not. */
static bool may_come(const omm_coord *c, size_t i) {
    const bool is_dry = c->ended_dry && c->nodes[i].declined == OMM_DECLINED_DRY;
    return !is_dry && !coord_canary_holds(c, i);
}

static uint32_t tally(const omm_coord *c, bool counting, bool ready_only) {
    uint32_t count = 0;
    for (size_t i = 0; i < c->o.run->node_count; i++)
        if (c->nodes[i].counts == counting && !c->nodes[i].quarantined &&
            (c->nodes[i].ready || (!ready_only && may_come(c, i))))
            count++;
    return count;
}

/* A quorum that quarantine has made impossible is not waited for, unless others may still join. */
uint32_t coord_round_quorum(const omm_coord *c) {
    const uint32_t quorum = c->o.policy.quorum, all = tally(c, true, false);
    if (quorum && (quorum <= all || c->o.run->node_count < c->node_max)) return quorum;
    return all > 0 ? all : 1; /* with everybody in quarantine no round opens */
}

void coord_round_note_quorum(omm_coord *c, uint64_t now_ms) {
    if (c->state != OMM_COORD_JOINING) {
        c->has_quorum = false;
    } else if (!c->has_quorum && tally(c, true, true) >= coord_round_quorum(c)) {
        c->has_quorum = true;
        c->quorum_ms = now_ms;
    }
}

/* With a quorum, nodes that do not count get two more polls' time: they are not waited for, but
 * they do not miss the round by a message either. */
uint64_t coord_round_opens_ms(const omm_coord *c) {
    if (c->paused || c->draining || c->held) return OMM_COORD_NEVER;
    uint64_t join_ms = c->since_ms + c->o.policy.join_ms;
    if (join_ms < c->since_ms) join_ms = OMM_COORD_NEVER;
    if (c->has_quorum) {
        bool all_here = tally(c, false, true) == tally(c, false, false);
        return all_here ? c->quorum_ms : c->quorum_ms + 2 * c->o.policy.poll_ms;
    }
    return tally(c, true, true) >= c->o.policy.accept_min ? join_ms : OMM_COORD_NEVER;
}

typedef struct lot {
    omm_digest rank;
    uint32_t node;
} lot;

static int by_rank(const void *a, const void *b) {
    return omm_digest_compare(&((const lot *)a)->rank, &((const lot *)b)->rank);
}

static uint32_t at_least(double x) {
    return x < 1 ? 1 : x >= OMM_SELECTED_MAX ? OMM_SELECTED_MAX : (uint32_t)ceil(x);
}

uint32_t coord_round_done(const omm_coord *c) {
    return c->accepted_count + c->refused_count + c->shut_out_count;
}

void coord_round_count_shut_out(omm_coord *c) {
    c->shut_out_count = 0;
    for (size_t i = 0; i < c->o.run->node_count; i++) {
        const coord_node *n = &c->nodes[i];
        c->shut_out_count += n->selected && !n->settled && n->quarantined;
    }
}

bool coord_round_has_enough(const omm_coord *c) {
    const double over = c->o.policy.over_select;
    const uint32_t select = c->o.policy.select;
    if (over <= 1) return false;
    uint32_t needed = select ? select : at_least(c->selected_count / over);
    if (needed < c->o.policy.accept_min) needed = c->o.policy.accept_min;
    return c->accepted_count >= needed;
}

/* The `select` (over_select times as many) lowest H(nonce || id) of the ready nodes that count; of the others all that are
 * ready, so that they take nobody's place. */
static omm_err draw(bool *chosen, const omm_coord *c, const omm_digest *nonce) {
    size_t n = c->o.run->node_count;
    lot *lots = omm_alloc(n, sizeof *lots);
    if (!lots) return omm_raise(OMM_ERR_NOMEM, "%zu lots", n);
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!c->nodes[i].ready) continue;
        chosen[i] = !c->nodes[i].counts;
        if (chosen[i]) continue;
        omm_hasher h;
        omm_hasher_init(&h);
        omm_hasher_update(&h, omm_bytes_of(nonce->b, sizeof nonce->b));
        omm_hasher_update(&h, omm_bytes_of(c->o.run->nodes[i].id.b, sizeof nonce->b));
        lots[count++] = (lot){omm_hasher_final(&h), i};
    }
    qsort(lots, count, sizeof *lots, by_rank);
    uint32_t take = c->o.policy.select;
    if (take && c->o.policy.over_select > 1) take = at_least(take * c->o.policy.over_select);
    if (take == 0 || take > count) take = count;
    for (uint32_t i = 0; i < take; i++) chosen[lots[i].node] = true;
    omm_free(lots);
    return OMM_OK;
}

void coord_offer_fill(omm_offer *out, const omm_coord *c) {
    const omm_run_record *run = c->o.run;
    *out = (omm_offer){
        .round = c->round,
        .rounds = run->rounds,
        .base_digest = run->base.digest,
        .tokenizer_digest = run->base.tokenizer_digest,
        .adapter = {run->rank, run->alpha, run->targets, c->value_count, c->layout_digest},
        .recipe = run->recipe,
        .codec_up = omm_bytes_of(c->codec_up, sizeof c->codec_up),
        .codec_down = omm_bytes_of(c->codec_down, sizeof c->codec_down),
        .value_max = (float)run->value_max,
        .weight_sum_max = run->weight_sum_max,
        .norm_max = (float)run->norm_max,
        .global = c->global,
        .deadline_ms = c->o.policy.deadline_ms,
        .payload_bytes_max = c->payload_bytes_max,
        .tokens_max = run->tokens_max,
        .previous = c->previous,
    };
    memcpy(out->run_id, run->run_id, sizeof out->run_id);
}

omm_err coord_offer_seal(omm_buf *envelope, const omm_coord *c, const omm_offer *offer) {
    omm_buf payload;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = omm_offer_encode(&payload, offer);
    if (err == OMM_OK)
        err = omm_envelope_seal(envelope, OMM_CONTEXT_OFFER, omm_buf_view(&payload), c->o.key);
    omm_buf_fini(&payload);
    return err;
}

static omm_err seal_offer(omm_buf *envelope, const omm_coord *c, const omm_digest *nonce,
                          const omm_digest *selected, size_t selected_count) {
    omm_offer offer;
    coord_offer_fill(&offer, c);
    offer.nonce = *nonce;
    offer.selected = selected;
    offer.selected_count = selected_count;
    return coord_offer_seal(envelope, c, &offer);
}

static void begin_open(omm_coord *c, const omm_digest *nonce, const bool *chosen) {
    c->nonce = *nonce;
    c->offer_digest = omm_hash(omm_buf_view(&c->offer));
    c->selected_count = c->accepted_count = c->refused_count = 0;
    c->ended_dry = false;
    for (size_t i = 0; i < c->o.run->node_count; i++) {
        c->nodes[i].selected = chosen[i];
        c->nodes[i].ready = c->nodes[i].offered = c->nodes[i].settled = false;
        if (chosen[i]) c->selected_count++;
    }
    coord_round_count_shut_out(c);
    coord_declined_begin(c);
}

omm_err coord_round_open(omm_coord *c, uint64_t now_ms) {
    size_t n = c->o.run->node_count;
    omm_digest nonce;
    omm_run_nonce(nonce.b, &c->o.run_seed, c->round);
    omm_err err = OMM_OK;
    bool *chosen = omm_alloc(n, sizeof *chosen);
    omm_digest *selected = omm_alloc(n, sizeof *selected);
    size_t count = 0;
    if (!chosen || !selected) {
        err = omm_raise(OMM_ERR_NOMEM, "selection of %zu nodes", n);
        goto out;
    }
    OMM_TRY_OUT(draw(chosen, c, &nonce));
    OMM_TRY_OUT(coord_canary_draw(chosen, c));
    for (size_t i = 0; i < n; i++)
        if (chosen[c->by_id[i]]) selected[count++] = c->o.run->nodes[c->by_id[i]].id;
    omm_buf_clear(&c->offer);
    OMM_TRY_OUT(seal_offer(&c->offer, c, &nonce, selected, count));
    OMM_TRY_OUT(coord_store_offer(c, omm_buf_view(&c->offer)));
    begin_open(c, &nonce, chosen);
    c->state = OMM_COORD_OPEN;
    coord_deadline_begin(c, now_ms);
    omm_log_event(c->o.log, OMM_LOG_INFO, "round_open", OMM_LOG_INT("round", c->round),
                  OMM_LOG_INT("selected", count),
                  OMM_LOG_INT("deadline_ms", c->o.policy.deadline_ms));
    coord_tell(c, &(omm_coord_event){.kind = OMM_COORD_EVENT_OPENED,
                                     .round = c->round,
                                     .node = OMM_COORD_NOBODY,
                                     .sentence = "",
                                     .digest = &c->offer_digest});
    omm_crash_point(c->o.state_dir, c->o.crash_at, "after_offer");
out:
    omm_free(chosen);
    omm_free(selected);
    return err;
}

omm_err coord_round_restore(omm_coord *c) {
    omm_arena arena;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    omm_envelope envelope;
    omm_offer offer;
    omm_err err = OMM_OK;
    OMM_TRY_OUT(omm_envelope_open_as(&envelope, OMM_CONTEXT_OFFER, omm_buf_view(&c->offer)));
    OMM_TRY_OUT(omm_offer_decode(&offer, envelope.payload, &arena));
    c->nonce = offer.nonce;
    c->offer_digest = omm_hash(omm_buf_view(&c->offer));
    c->selected_count = 0;
    for (size_t i = 0; i < offer.selected_count; i++) {
        int32_t node = coord_node_find(c, &offer.selected[i]);
        if (node < 0) {
            err = omm_raise(OMM_ERR_FORMAT, "stored offer selects a node that is not enrolled");
            goto out;
        }
        c->nodes[node].selected = true;
        c->selected_count++;
    }
out:
    omm_arena_fini(&arena);
    return err;
}

/* ---- closing ---- */

#define MISSING_SHOWN 5u /* names in a line of the log; status and page have all */

/* Who was selected and gave nothing: "anna,bert and 3 more". */
static void name_missing(char *out, size_t size, const omm_coord *c) {
    uint32_t count = 0;
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < c->o.run->node_count; i++) {
        if (!c->nodes[i].selected || c->nodes[i].settled || ++count > MISSING_SHOWN) continue;
        const int n =
            snprintf(out + used, size - used, "%s%.64s", used ? "," : "", c->o.run->nodes[i].name);
        if (n > 0 && (size_t)n < size - used) used += (size_t)n;
    }
    if (count > MISSING_SHOWN)
        (void)snprintf(out + used, size - used, " and %u more", count - MISSING_SHOWN);
}

static const char *after_void(const omm_coord *c) {
    if (c->ended_dry)
        return "its adapter is the one before; it waited for dry runs alone, and others that are "
               "enough for the next round wait for that";
    if (c->ahead > c->round + 1)
        return "its adapter is the one before; nodes may be too slow for deadline_ms, or refused, "
               "or have given to this round before (state_is_older)";
    return "its adapter is the one before; nodes may be too slow for deadline_ms, or refused";
}

omm_err coord_round_collected(omm_coord *c) {
    OMM_TRY(coord_refuse_unfinished(c));
    OMM_TRY(omm_blobs_drop_partials(c->uploads));
    OMM_TRY(coord_store_state(c, OMM_COORD_AGGREGATING, c->round));
    c->state = OMM_COORD_AGGREGATING;
    char missing[(MISSING_SHOWN + 1) * 66], declined[DECLINED_LIST_SIZE];
    name_missing(missing, sizeof missing, c);
    coord_declined_list(declined, c);
    coord_log_kept(c, OMM_LOG_INFO, "round_collected", OMM_LOG_INT("round", c->round),
                   OMM_LOG_INT("selected", c->selected_count),
                   OMM_LOG_INT("accepted", c->accepted_count),
                   OMM_LOG_INT("refused", c->refused_count), OMM_LOG_STR("missing", missing),
                   OMM_LOG_INT("waited_ms", c->waited_ms));
    if (c->accepted_count < c->o.policy.accept_min)
        coord_log_kept(c, OMM_LOG_WARN, "round_void", OMM_LOG_INT("round", c->round),
                       OMM_LOG_INT("accepted", c->accepted_count),
                       OMM_LOG_INT("accept_min", c->o.policy.accept_min),
                       OMM_LOG_STR("declined", declined), OMM_LOG_STR("then", after_void(c)));
    return OMM_OK;
}

/* ---- publishing ---- */

static omm_err judge(omm_coord *c) {
    omm_err err =
        coord_broadcast_make(&c->candidate_sent, &c->candidate_canonical, c, c->candidate);
    if (err == OMM_OK)
        err = sample_loss(&c->eval_items, &c->candidate_loss, c, omm_buf_view(&c->candidate_sent));
    if (err == OMM_ERR_NUMERIC || coord_is_refusal(err) ||
        (err == OMM_OK && !isfinite(c->candidate_loss))) {
        /* What some node sent must not end the run: the worst loss there is, so it is held back. */
        omm_log_event(c->o.log, OMM_LOG_WARN, "candidate_unusable", OMM_LOG_INT("round", c->round));
        c->eval_items = 0;
        c->candidate_loss = DBL_MAX;
        return OMM_OK;
    }
    OMM_TRY(err);
    c->is_published = c->candidate_loss <= c->loss + c->o.run->loss_increase_max;
    return OMM_OK;
}

/* Once: what is held back gives its memory back before the old state takes it. */
static omm_err judge_candidate(omm_coord *c) {
    if (c->is_judged) return OMM_OK;
    c->is_published = false;
    if (!c->is_void) OMM_TRY(judge(c));
    if (!c->is_published) coord_candidate_forget(c);
    c->is_judged = true;
    return OMM_OK;
}

void coord_candidate_forget(omm_coord *c) {
    omm_free(c->candidate);
    c->candidate = NULL;
    omm_buf_fini(&c->candidate_sent);
}

/* The state after the round: the candidate, or what was there, once more. */
static omm_err put_state(omm_digest *master, omm_digest *broadcast, omm_coord *c) {
    const uint32_t number = c->round + 1;
    if (c->is_published) {
        *broadcast = omm_hash(omm_buf_view(&c->candidate_sent));
        return coord_evidence_master(c, number, c->candidate, omm_buf_view(&c->candidate_sent),
                                     master);
    }
    float *values = NULL;
    OMM_TRY(coord_state_hold(c));
    *broadcast = omm_hash(omm_buf_view(&c->sent));
    OMM_TRY(coord_state_load(&values, c));
    const omm_err err = coord_evidence_master(c, number, values, omm_buf_view(&c->sent), master);
    omm_free(values);
    return err;
}

static omm_err write_round(omm_buf *line, omm_coord *c) {
    omm_digest master, broadcast;
    OMM_TRY(put_state(&master, &broadcast, c));
    return coord_evidence_round_files(line, c, master, broadcast);
}

static omm_err commit_round(omm_coord *c, omm_coord_round *past) {
    omm_buf line;
    omm_buf_init(&line, (size_t)1 << 28);
    omm_err err = write_round(&line, c);
    if (err == OMM_OK) err = coord_history_parse(past, c->round, omm_buf_view(&line));
    if (err == OMM_OK) err = coord_store_publish(c, omm_buf_view(&line), !c->is_void);
    if (err == OMM_OK) c->previous = omm_hash(omm_buf_view(&line));
    omm_buf_fini(&line);
    return err;
}

/* What nodes get is what the candidate gives. */
static void adopt(omm_coord *c, const coord_global *global) {
    coord_global_take(c, global);
    coord_state_drop(c);
    c->sent = c->candidate_sent;
    omm_buf_init(&c->candidate_sent, c->sent.bytes_max);
    c->loss = c->candidate_loss;
}

omm_err coord_round_publish(omm_coord *c) {
    OMM_TRY(judge_candidate(c));
    omm_crash_point(c->o.state_dir, c->o.crash_at, "before_publish");
    omm_coord_round past = {0};
    coord_global global = {0};
    if (c->is_published)
        OMM_TRY(coord_global_describe(&global, omm_buf_view(&c->candidate_sent),
                                      &c->candidate_canonical));
    const omm_err err = commit_round(c, &past);
    if (err != OMM_OK) {
        omm_arena_fini(&global.arena);
        return err;
    }
    c->state = OMM_COORD_PUBLISHED;
    c->history[c->round] = past;
    c->history[c->round].ended_dry = c->ended_dry;
    c->history_count = c->round + 1;
    omm_log_event(c->o.log, OMM_LOG_INFO, "round_published", OMM_LOG_INT("round", c->round),
                  OMM_LOG_INT("accepted", c->accepted_count), OMM_LOG_INT("void", c->is_void),
                  OMM_LOG_INT("published", c->is_published));
    if (!c->is_void && !c->is_published)
        omm_log_event(c->o.log, OMM_LOG_WARN, "round_held_back", OMM_LOG_INT("round", c->round),
                      OMM_LOG_STR("reason", "the held-out loss is over loss_increase_max; the "
                                            "adapter stays the one before"));
    if (c->is_published) adopt(c, &global);
    c->begins = c->round + 1;
    coord_candidate_forget(c);
    coord_tell(c, &(omm_coord_event){.kind = OMM_COORD_EVENT_PUBLISHED,
                                     .round = c->round,
                                     .node = OMM_COORD_NOBODY,
                                     .sentence = "",
                                     .digest = &c->previous});
    return OMM_OK;
}

/* Payloads are in the bundle now; a leftover of an earlier crash goes too. */
static omm_err drop_payloads(omm_coord *c) {
    omm_arena arena;
    omm_arena_init(&arena, SIZE_MAX);
    coord_row *rows = NULL;
    size_t count = 0;
    omm_err err = coord_store_rows(&rows, &count, c, c->round, &arena);
    if (err == OMM_OK) err = omm_db_begin(c->db); /* small ones are rows: one commit for all */
    for (size_t i = 0; i < count && err == OMM_OK; i++)
        if (!omm_digest_is_zero(&rows[i].payload))
            err = omm_blobs_remove(c->uploads, &rows[i].payload);
    if (err == OMM_OK) err = omm_db_commit(c->db);
    omm_db_rollback(c->db);
    omm_arena_fini(&arena);
    return err;
}

omm_err coord_round_next(omm_coord *c) {
    OMM_TRY(drop_payloads(c));
    bool last = c->round + 1 == c->o.run->rounds;
    omm_coord_state state = last ? OMM_COORD_CLOSING : OMM_COORD_JOINING;
    uint32_t round = last ? c->round : c->round + 1;
    OMM_TRY(coord_store_state(c, state, round));
    c->state = state;
    c->round = round;
    if (last) return OMM_OK;
    omm_buf_clear(&c->offer);
    c->has_since = false;
    c->selected_count = c->accepted_count = c->refused_count = 0;
    c->refusals_logged = 0;
    for (size_t i = 0; i < c->o.run->node_count; i++) {
        coord_node *node = &c->nodes[i];
        node->ready = node->selected = node->offered = node->settled = false;
        node->replaced_count = 0;
    }
    coord_rollback_next(c);
    return OMM_OK;
}

omm_err coord_run_close(omm_coord *c) {
    omm_close close = {.rounds = c->o.run->rounds, .last_round = c->previous};
    memcpy(close.run_id, c->o.run->run_id, sizeof close.run_id);
    OMM_TRY(coord_evidence_close(c, &close.final_digest, &close.eval_digest));
    omm_buf payload;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_clear(&c->close);
    omm_err err = omm_close_encode(&payload, &close);
    if (err == OMM_OK)
        err = omm_envelope_seal(&c->close, OMM_CONTEXT_CLOSE, omm_buf_view(&payload), c->o.key);
    if (err == OMM_OK) err = omm_bundle_put(c->o.bundle, "close.env", omm_buf_view(&c->close));
    if (err == OMM_OK) err = coord_store_close(c, omm_buf_view(&c->close));
    omm_buf_fini(&payload);
    OMM_TRY(err);
    c->state = OMM_COORD_CLOSED;
    omm_log_event(c->o.log, OMM_LOG_INFO, "run_closed", OMM_LOG_STR("run_id", c->o.run->run_id),
                  OMM_LOG_INT("rounds", c->o.run->rounds));
    omm_digest digest = omm_hash(omm_buf_view(&c->close));
    coord_tell(c, &(omm_coord_event){.kind = OMM_COORD_EVENT_CLOSED,
                                     .round = c->round,
                                     .node = OMM_COORD_NOBODY,
                                     .sentence = "",
                                     .digest = &digest});
    return OMM_OK;
}

/* What a node takes for the word of its coordinator, and what it makes of it over rounds, runs and restarts: verdicts, the
 * end, work before it is let in, refusals; and silence. */
#include "victim.h"

#include "omm/enrolment.h"
#include "omm/mem.h"
#include "omm/node_history.h"
#include "omm_test.h"

#include <string.h>

/* ---- another run, and the end of one ---- */

static void change_run(omm_offer *o) {
    memset(o->run_id, 'a', sizeof o->run_id - 1);
}

/* It has seen a round, over restarts too; what was left over in that run is nothing to another, where it would be
 * refused. */
static void another_run(bool restart) {
    victim v;
    victim_open(&v);
    victim_offer_honest(&v);
    victim_give_chunks(&v);
    victim_work(&v);
    const omm_submission first = victim_submission(&v);
    CHECK(!omm_digest_equal(&first.residual_before, &first.residual_after));
    const omm_receipt yes = victim_receipt(&v, OMM_OK);
    victim_answer_receipt(&v, &yes, &v.p.f.coordinator_key);
    const omm_node_limits limits = omm_node_limits_default();
    if (restart) victim_reopen(&v, &limits);
    omm_poll poll = victim_poll(&v);
    CHECK(poll.rounds_seen == 1 && strcmp(poll.run_id, v.p.offer.run_id) == 0);
    victim_offer(&v, change_run, &v.p.f.coordinator_key);
    victim_give_chunks(&v);
    victim_work(&v);
    const omm_submission second = victim_submission(&v);
    CHECK(omm_digest_equal(&second.residual_before, &first.residual_before)); /* zeros */
    const omm_receipt no = victim_receipt(&v, OMM_ERR_REFUSED_NORM);
    victim_answer_receipt(&v, &no, &v.p.f.coordinator_key);
    if (restart) victim_reopen(&v, &limits);
    poll = victim_poll(&v);
    CHECK(poll.rounds_seen == 0 && poll.run_id[0] == 'a');
    victim_close(&v);
}

/* The owner's file names another run than the one that it was in: what it has seen of it is known after the next start, too. */
static void a_named_run(void) {
    victim v;
    victim_open(&v);
    const omm_key *own = &v.p.f.coordinator_key;
    const omm_node_limits limits = omm_node_limits_default();
    omm_node_options options = victim_options(&v, &limits);
    victim_offer(&v, change_run, own); /* the run before */
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_GET);
    options.run_id = v.p.offer.run_id;
    victim_reopen_as(&v, &options);
    victim_offer_honest(&v);
    victim_give_chunks(&v);
    victim_work(&v);
    const omm_receipt yes = victim_receipt(&v, OMM_OK);
    victim_answer_receipt(&v, &yes, own);
    for (int i = 0; i < 2; i++) {
        const omm_poll poll = victim_poll(&v);
        CHECK(poll.rounds_seen == 1 && strcmp(poll.run_id, options.run_id) == 0);
        victim_offer_honest(&v); /* it gave to that: once more it is not trained */
        CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
        victim_reopen_as(&v, &options);
    }
    victim_close(&v);
}

/* Memory runs out anywhere in what the adapter's last chunk sets off: with the same answer once more it trains. */
static void no_memory_for_a_chunk(void) {
    bool has_failed = true;
    for (size_t nth = 1; has_failed; nth++) {
        victim v;
        omm_buf reply;
        victim_open(&v);
        victim_offer_honest(&v);
        CHECK_EQ(victim_asked(&v), OMM_REQUEST_GET);
        omm_buf_init(&reply, OMM_MESSAGE_BYTES_MAX);
        fed_send(&v.p.f, &reply, v.action.request);
        const omm_node_event event = {.kind = OMM_NODE_REPLY, .reply = omm_buf_view(&reply)};
        omm_mem_fail_nth(nth);
        const omm_err err = omm_node_step(&v.action, v.node, v.now_ms, &event);
        omm_mem_fail_nth(0);
        has_failed = err != OMM_OK;
        if (has_failed) CHECK_ERR(err, OMM_ERR_NOMEM);
        if (has_failed) victim_step(&v, OMM_NODE_REPLY, omm_buf_view(&reply));
        CHECK_EQ(v.action.kind, OMM_NODE_WORK);
        CHECK(!omm_node_get_status(v.node).left[0]);
        omm_buf_fini(&reply);
        victim_work(&v);
        victim_close(&v);
        CHECK(nth < 1000);
    }
}

#define NEEDS                                                                                      \
    64u /* of a submission; without end they are not answered (hostile_coordinator_test) */

static uint32_t s_round;
static void change_round(omm_offer *o) {
    o->round = s_round;
    o->rounds = 10;
}

static omm_submission submitted_in(victim *v, uint32_t round) {
    s_round = round;
    victim_offer(v, change_round, &v->p.f.coordinator_key);
    victim_give_chunks(v);
    victim_work(v);
    return victim_submission(v);
}

/* What the node's owner reads of the only round. */
static void check_history(victim *v, const char *key, const char *want) {
    json_t *history = NULL;
    CHECK_OK(omm_node_history(&history, v->node));
    const json_t *rounds = json_object_get(history, "rounds");
    CHECK_EQ(json_array_size(rounds), 1);
    const char *text = json_string_value(json_object_get(json_array_get(rounds, 0), key));
    CHECK(text && strcmp(text, want) == 0);
    json_decref(history);
}

/* A verdict that its coordinator has not signed as one for this very submission is none: it is asked for again. */
static void false_receipts(void) {
    victim v;
    victim_open(&v);
    const omm_key *own = &v.p.f.coordinator_key;
    (void)submitted_in(&v, 0);
    for (int i = 0; i < 4; i++) {
        omm_receipt lie = victim_receipt(&v, OMM_OK);
        if (i == 2) lie.submission_digest.b[0] ^= 1;
        if (i == 3) lie.node_id.b[0] ^= 1;
        victim_answer_receipt_as(&v, &lie, i == 1 ? OMM_CONTEXT_CLOSE : OMM_CONTEXT_RECEIPT,
                                 i == 0 ? &v.p.f.keys[PEER] : own);
        CHECK_EQ(v.action.until_ms - v.now_ms, 5000);
        CHECK_EQ(victim_asked(&v), OMM_REQUEST_SUBMIT);
        CHECK_EQ(omm_node_get_status(v.node).rounds_accepted, 0);
    }
    const omm_receipt yes = victim_receipt(&v, OMM_OK);
    const omm_digest submission = yes.submission_digest;
    check_history(&v, "verdict", "");
    victim_answer_receipt(&v, &yes, own);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    CHECK_EQ(omm_node_get_status(v.node).rounds_accepted, 1);
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, &submission);
    check_history(&v, "verdict", "OK");
    check_history(&v, "submission", hex);
    victim_close(&v);
}

/* A coordinator that asks for a chunk again and again, as one that restarts does, gets it; each submission has as many
 * attempts. */
static void chunks_asked_for_again(void) {
    static const uint32_t first[1] = {0};
    const omm_reply need = {.kind = OMM_REPLY_NEED, .missing = first, .missing_count = 1};
    victim v;
    victim_open(&v);
    for (uint32_t round = 0; round < 2; round++) {
        (void)submitted_in(&v, round);
        omm_receipt yes = victim_receipt(&v, OMM_OK);
        yes.round = round;
        for (uint32_t i = 0; i < NEEDS; i++) {
            victim_answer(&v, &need);
            CHECK_EQ(v.action.kind, OMM_NODE_SEND); /* without a pause */
            CHECK_EQ(victim_asked(&v), OMM_REQUEST_PUT);
        }
        victim_answer_receipt(&v, &yes, &v.p.f.coordinator_key);
        CHECK_EQ(omm_node_get_status(v.node).rounds_accepted, round + 1);
    }
    victim_close(&v);
}

/* What was left over goes on from one accepted round to the next, stays what it was where one was refused, and is dropped
 * where the coordinator has seen another.  A round that was accepted is not answered again. */
static void residual_over_rounds(void) {
    victim v;
    victim_open(&v);
    const omm_key *own = &v.p.f.coordinator_key;
    const omm_submission first = submitted_in(&v, 0);
    omm_receipt receipt = victim_receipt(&v, OMM_OK);
    victim_answer_receipt(&v, &receipt, own);
    s_round = 0;
    victim_offer(&v, change_round, own);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    const omm_submission second = submitted_in(&v, 1);
    CHECK(omm_digest_equal(&second.residual_before, &first.residual_after));
    receipt = victim_receipt(&v, OMM_ERR_REFUSED_NORM);
    receipt.round = 1;
    victim_answer_receipt(&v, &receipt, own);
    const omm_submission third = submitted_in(&v, 2);
    CHECK(omm_digest_equal(&third.residual_before, &first.residual_after));
    receipt = victim_receipt(&v, OMM_ERR_REFUSED_RESIDUAL);
    receipt.round = 2;
    victim_answer_receipt(&v, &receipt, own);
    const omm_submission fourth = submitted_in(&v, 3);
    CHECK(omm_digest_equal(&fourth.residual_before, &first.residual_before)); /* zeros */
    victim_check_sent(&v, "rounds", 4, NULL);
    receipt = victim_receipt(&v, OMM_ERR_REFUSED_NORM);
    victim_answer_receipt(&v, &receipt, own);
    s_round = 1; /* refused then, and of another one the last is known alone */
    victim_offer(&v, change_round, own);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    victim_close(&v);
}

/* Nobody but its coordinator says that a run is over, and only of the run that it is in. */
static void false_end(void) {
    static const char other_run[] = "0123456789abcdef0123456789abcdef";
    victim v;
    victim_open(&v);
    const omm_key *own = &v.p.f.coordinator_key;
    const char *run_id = v.p.offer.run_id;
    victim_offer_honest(&v); /* it knows its run */
    victim_answer(&v, &(omm_reply){.kind = OMM_REPLY_REFUSED, .reason = OMM_ERR_REFUSED_ROUND});
    victim_answer_close(&v, run_id, OMM_CONTEXT_CLOSE, &v.p.f.keys[0]);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    victim_answer_close(&v, run_id, OMM_CONTEXT_RECEIPT, own);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    victim_answer_close(&v, other_run, OMM_CONTEXT_CLOSE, own);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    const omm_node_limits limits = omm_node_limits_default();
    victim_reopen(&v, &limits); /* and nothing of it was kept */
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    victim_answer_close(&v, run_id, OMM_CONTEXT_CLOSE, own);
    CHECK_EQ(v.action.kind, OMM_NODE_DONE);
    victim_close(&v);
}

/* ---- somebody on the way ---- */

/* Refusals without a signature: the submission is tried again, and given up after a while, for good and over a restart.
 * The next one has as many attempts. */
static void unsigned_refusals(void) {
    const omm_node_limits limits = omm_node_limits_default();
    victim v;
    victim_open(&v);
    omm_reply no = {
        .kind = OMM_REPLY_REFUSED, .reason = OMM_ERR_REFUSED_NORM, .sentence = "says nobody"};
    for (int round = 0; round < 2; round++) {
        victim_offer_honest(&v);
        victim_give_chunks(&v);
        victim_work(&v);
        check_history(&v, "verdict", "");
        uint32_t tries = 0;
        for (; victim_asked(&v) == OMM_REQUEST_SUBMIT; tries++) {
            CHECK(tries < 10);
            victim_answer(&v, &no);
            CHECK_EQ(v.action.until_ms - v.now_ms, tries == 0 ? 250 : 5000);
        }
        CHECK_EQ(tries, 3);
        check_history(&v, "verdict", "none");
    }
    victim_reopen(&v, &limits);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    victim_close(&v);
}

/* Two refusals without a signature and then a verdict: the next submission has all its attempts again, and nobody reads any
 * more why the round before was left. */
static void verdict_between_refusals(void) {
    victim v;
    victim_open(&v);
    const omm_reply no = {
        .kind = OMM_REPLY_REFUSED, .reason = OMM_ERR_REFUSED_NORM, .sentence = "says nobody"};
    victim_offer_honest(&v);
    victim_answer(&v, &no); /* its question for a chunk */
    CHECK(strcmp(omm_node_get_status(v.node).left, "says nobody") == 0);
    for (uint32_t round = 0; round < 2; round++) {
        (void)submitted_in(&v, round);
        for (int i = 0; i < 2; i++) {
            victim_answer(&v, &no);
            CHECK_EQ(victim_asked(&v), OMM_REQUEST_SUBMIT);
        }
        omm_receipt yes = victim_receipt(&v, OMM_OK);
        yes.round = round;
        victim_answer_receipt(&v, &yes, &v.p.f.coordinator_key);
        CHECK(!omm_node_get_status(v.node).left[0]);
        CHECK_EQ(omm_node_get_status(v.node).rounds_accepted, round + 1);
    }
    victim_close(&v);
}

/* ---- work, before it is let in ---- */

#define WORK_BITS 4u /* some hashes */

static void refuse_key(victim *v, const char *sentence) {
    CHECK_EQ(victim_asked(v), OMM_REQUEST_POLL);
    victim_answer(v, &(omm_reply){.kind = OMM_REPLY_REFUSED,
                                  .reason = OMM_ERR_REFUSED_KEY,
                                  .sentence = sentence});
}

/* What it gets for an answer when it asks to be let in. */
static void answer_challenge(victim *v, uint32_t bits, const char *run_id, omm_context context,
                             const omm_key *key) {
    omm_challenge challenge = {.seed = {{7}}, .bits = bits};
    omm_buf payload, envelope;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    (void)snprintf(challenge.run_id, sizeof challenge.run_id, "%s", run_id);
    CHECK_OK(omm_challenge_encode(&payload, &challenge));
    CHECK_OK(omm_envelope_seal(&envelope, context, omm_buf_view(&payload), key));
    CHECK_EQ(victim_asked(v), OMM_REQUEST_ENROL);
    victim_answer(v,
                  &(omm_reply){.kind = OMM_REPLY_CHALLENGE, .envelope = omm_buf_view(&envelope)});
    omm_buf_fini(&payload);
    omm_buf_fini(&envelope);
}

/* Not in yet, it asks to be. */
static void challenge(victim *v, uint32_t bits, const char *run_id, omm_context context,
                      const omm_key *key) {
    refuse_key(v, "not enrolled");
    answer_challenge(v, bits, run_id, context, key);
}

static void challenge_honest(victim *v, uint32_t bits) {
    challenge(v, bits, v->p.offer.run_id, OMM_CONTEXT_CHALLENGE, &v->p.f.coordinator_key);
}

/* No work is done, its owner reads why, and it is a minute until it asks again. */
static void check_no_work(victim *v, const char *why) {
    CHECK_EQ(v->action.kind, OMM_NODE_WAIT);
    CHECK_EQ(v->action.until_ms - v->now_ms, 60000);
    const omm_node_status status = omm_node_get_status(v->node);
    if (!strstr(status.refused, why))
        fprintf(stderr, "expected \"%s\": \"%s\"\n", why, status.refused);
    CHECK(strstr(status.refused, why));
}

/* Work is done for the pinned coordinator alone, in the run that the owner named, and up to the owner's limit. */
static void work_not_done(void) {
    static const char other_run[] = "0123456789abcdef0123456789abcdef";
    victim v;
    victim_open(&v);
    const omm_key *own = &v.p.f.coordinator_key;
    omm_node_limits limits = omm_node_limits_default();
    limits.work_bits_max = WORK_BITS;
    omm_node_options options = victim_options(&v, &limits);
    options.run_id = v.p.offer.run_id;
    victim_reopen_as(&v, &options);
    challenge(&v, WORK_BITS, v.p.offer.run_id, OMM_CONTEXT_CHALLENGE, &v.p.f.keys[0]);
    check_no_work(&v, "not the coordinator we pinned");
    challenge(&v, WORK_BITS, v.p.offer.run_id, OMM_CONTEXT_OFFER, own);
    check_no_work(&v, "signed for another purpose");
    challenge(&v, WORK_BITS, other_run, OMM_CONTEXT_CHALLENGE, own);
    check_no_work(&v, "is not the run we join");
    challenge_honest(&v, WORK_BITS + 1);
    check_no_work(&v, "bits: 5 are asked for, our limit is 4");
    challenge_honest(&v, WORK_BITS);
    CHECK_EQ(v.action.kind, OMM_NODE_WORK);
    const omm_seed token = {{1}}; /* an invitation is what it has instead */
    options.token = &token;
    victim_reopen_as(&v, &options); /* and is shown at once */
    answer_challenge(&v, WORK_BITS, v.p.offer.run_id, OMM_CONTEXT_CHALLENGE, own);
    check_no_work(&v, "not an answer to it");
    challenge_honest(&v, WORK_BITS);
    check_no_work(&v, "not an answer to it");
    victim_close(&v);
}

/* A coordinator that does not know its challenge any more refuses the work: it is done again, for another one. */
static void work_in_vain(void) {
    victim v;
    victim_open(&v);
    for (int i = 0; i < 3; i++) {
        challenge_honest(&v, WORK_BITS);
        CHECK_EQ(v.action.kind, OMM_NODE_WORK);
        CHECK_OK(omm_node_work(v.node, NULL));
        victim_step(&v, OMM_NODE_WORK_DONE, (omm_bytes){0});
        CHECK_EQ(victim_asked(&v), OMM_REQUEST_ENROL);
        victim_answer(&v, &(omm_reply){.kind = OMM_REPLY_REFUSED,
                                       .reason = OMM_ERR_REFUSED_WORK,
                                       .sentence = "challenge: unknown"});
        check_no_work(&v, "challenge: unknown");
        refuse_key(&v, "not enrolled"); /* to be read still while it asks again, and then hears: */
        CHECK(strcmp(omm_node_get_status(v.node).refused, "challenge: unknown") == 0);
        CHECK_EQ(victim_asked(&v), OMM_REQUEST_ENROL);
        victim_answer(&v, &(omm_reply){.kind = OMM_REPLY_WAIT, .retry_ms = 1});
    }
    victim_close(&v);
}

/* What it shows now, where it asks to be let in. */
static bool shows_work(victim *v, uint64_t *work) {
    omm_arena arena;
    omm_request request;
    omm_envelope envelope;
    omm_enrol enrol;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    CHECK_EQ(victim_asked(v), OMM_REQUEST_ENROL);
    CHECK_OK(omm_request_decode(&request, v->action.request, &arena));
    CHECK_OK(omm_envelope_open_as(&envelope, OMM_CONTEXT_ENROL, request.envelope));
    CHECK_OK(omm_enrol_decode(&enrol, envelope.payload, &arena));
    *work = enrol.work;
    omm_arena_fini(&arena);
    return enrol.has_work;
}

/* Told to wait because nobody is answered now, it shows the same work again; told that it is in, it needs it no more. */
static void work_is_kept(void) {
    uint64_t work = 0, again = 0;
    victim v;
    victim_open(&v);
    challenge_honest(&v, WORK_BITS);
    CHECK_OK(omm_node_work(v.node, NULL));
    victim_step(&v, OMM_NODE_WORK_DONE, (omm_bytes){0});
    CHECK(shows_work(&v, &work));
    for (int i = 0; i < 2; i++) {
        victim_answer(&v, &(omm_reply){.kind = OMM_REPLY_WAIT, .retry_ms = 30000});
        victim_until_active(&v);
        refuse_key(&v, "not enrolled");
        CHECK(shows_work(&v, &again) && again == work);
    }
    victim_answer(&v, &(omm_reply){.kind = OMM_REPLY_WAIT});
    victim_until_active(&v);
    refuse_key(&v, "not enrolled"); /* its state was put back to before that */
    CHECK(!shows_work(&v, &again));
    victim_close(&v);
}

/* Work for work: a challenge in answer to what was done is not taken, or it would never end. */
static void work_without_end(void) {
    victim v;
    victim_open(&v);
    challenge_honest(&v, WORK_BITS);
    CHECK_OK(omm_node_work(v.node, NULL));
    victim_step(&v, OMM_NODE_WORK_DONE, (omm_bytes){0});
    answer_challenge(&v, WORK_BITS, v.p.offer.run_id, OMM_CONTEXT_CHALLENGE,
                     &v.p.f.coordinator_key);
    check_no_work(&v, "not an answer to it");
    victim_close(&v);
}

static void cancel_now(void *ud) {
    omm_node_cancel(((const victim *)ud)->node);
}

/* Stopped in the middle of it, it asks for another challenge later. */
static void work_stopped(void) {
    victim v;
    victim_open(&v);
    const omm_node_limits limits = omm_node_limits_default();
    omm_node_options options = victim_options(&v, &limits);
    options.pace = cancel_now;
    options.pace_ud = &v;
    victim_reopen_as(&v, &options);
    challenge_honest(&v, 18); /* not done at once */
    CHECK_EQ(v.action.kind, OMM_NODE_WORK);
    CHECK_ERR(omm_node_work(v.node, NULL), OMM_ERR_CANCELLED);
    omm_node_event event = {.kind = OMM_NODE_WORK_DONE, .work = OMM_ERR_CANCELLED};
    CHECK_OK(omm_node_step(&v.action, v.node, v.now_ms, &event));
    challenge_honest(&v, 18);
    CHECK_EQ(v.action.kind, OMM_NODE_WORK);
    victim_close(&v);
}

/* Without an invitation, and where its owner allows no work, it asks nobody to be let in; and says what it was told. */
static void not_let_in(void) {
    victim v;
    victim_open(&v);
    omm_node_limits limits = omm_node_limits_default();
    limits.work_bits_max = 0;
    victim_reopen(&v, &limits);
    refuse_key(&v, "first");
    CHECK_EQ(v.action.until_ms - v.now_ms, 5000);
    CHECK(strcmp(omm_node_get_status(v.node).refused, "first") == 0);
    refuse_key(&v, "second");
    CHECK(strcmp(omm_node_get_status(v.node).refused, "second") == 0);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    victim_close(&v);
}

/* ---- answers to a poll, and none ---- */

static uint64_t counter_sent(victim *v) {
    return victim_poll(v).counter;
}

/* Killed and started again before a block is used up, any number of times: no number is sent twice. */
static void counter_over_restarts(void) {
    const omm_node_limits limits = omm_node_limits_default();
    victim v;
    victim_open(&v);
    uint64_t last = counter_sent(&v);
    for (int i = 0; i < 4; i++) {
        victim_reopen(&v, &limits);
        const uint64_t counter = counter_sent(&v);
        CHECK(counter > last && counter - last <= OMM_COUNTER_BLOCK);
        last = counter;
    }
    victim_close(&v);
}

static uint64_t wait_ms(const victim *v) {
    CHECK_EQ(v->action.kind, OMM_NODE_WAIT);
    return v->action.until_ms - v->now_ms;
}

/* In quarantine, or revoked: it says so, asks more and more rarely, shows no token, and goes on when it may.  What is not
 * its coordinator's answer to this very poll changes nothing. */
static void kept_out(void) {
    victim v;
    victim_open(&v);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    omm_receipt old = victim_receipt(&v, OMM_ERR_REFUSED_NOT_SELECTED);
    for (uint64_t want = 5000; want < 2000000; want *= 2) {
        CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
        const omm_receipt no = victim_receipt(&v, OMM_ERR_REFUSED_NOT_SELECTED);
        victim_answer_receipt(&v, &no, &v.p.f.coordinator_key);
        CHECK_EQ(wait_ms(&v), want < 600000 ? want : 600000);
        const omm_node_status status = omm_node_get_status(v.node);
        CHECK(strcmp(status.refused, "no") == 0 && strstr(status.advice, "ctl release"));
    }
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    victim_answer(&v, &(omm_reply){.kind = OMM_REPLY_WAIT, .retry_ms = 1000});
    CHECK_EQ(wait_ms(&v), 1000);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
        omm_receipt lie = victim_receipt(&v, i == 2 ? OMM_OK : OMM_ERR_REFUSED_KEY);
        if (i == 1) lie.submission_digest = old.submission_digest;
        if (i == 3) lie.node_id.b[0] ^= 1;
        victim_answer_receipt(&v, &lie, i == 0 ? &v.p.f.keys[PEER] : &v.p.f.coordinator_key);
        CHECK_EQ(wait_ms(&v), 5000);
        const omm_node_status status = omm_node_get_status(v.node);
        CHECK(!status.refused[0] && !status.advice[0]);
    }
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    const omm_receipt no = victim_receipt(&v, OMM_ERR_REFUSED_KEY);
    victim_answer_receipt(&v, &no, &v.p.f.coordinator_key);
    CHECK_EQ(wait_ms(&v), 5000);
    CHECK(strstr(omm_node_get_status(v.node).advice, "for good"));
    victim_offer_honest(&v); /* and polls, instead of asking to be let in */
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_GET);
    CHECK(!omm_node_get_status(v.node).refused[0]);
    victim_close(&v);
}

/* Nobody answers: it asks again after twice as long each time, up to half a minute; and soon again when it was answered. */
static void no_answer(void) {
    victim v;
    victim_open(&v);
    for (int i = 0; i < 2; i++) {
        for (uint64_t want = 250; want < 200000; want *= 2) {
            CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
            victim_step(&v, OMM_NODE_SEND_FAILED, (omm_bytes){0});
            CHECK_EQ(wait_ms(&v), want < 30000 ? want : 30000);
            v.now_ms = v.action.until_ms - 1;
            victim_step(&v, OMM_NODE_TICK, (omm_bytes){0});
            CHECK_EQ(wait_ms(&v), 1); /* nor a millisecond earlier */
        }
        CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
        victim_answer(&v, &(omm_reply){.kind = OMM_REPLY_WAIT, .retry_ms = 10000000});
        CHECK_EQ(wait_ms(&v), 600000); /* and a longer wait is not believed */
    }
    victim_close(&v);
}

/* A liar says that the counter is too low, for ever: it still fits, and still goes up.  Said once, it costs a block and a
 * quarter of a second. */
static void counter_pushed_up(void) {
    victim v;
    victim_open(&v);
    const omm_reply yes = {.kind = OMM_REPLY_WAIT, .retry_ms = 1};
    omm_reply no = {.kind = OMM_REPLY_REFUSED,
                    .reason = OMM_ERR_REFUSED_DUPLICATE,
                    .sentence = "counter: too low"};
    uint64_t last = counter_sent(&v);
    for (int i = 0; i < 100; i++) { /* a coordinator that is killed again and again */
        const uint64_t said_ms = v.now_ms;
        victim_answer(&v, &no);
        CHECK_EQ(counter_sent(&v), last + OMM_COUNTER_BLOCK + 1);
        CHECK(v.now_ms - said_ms <= 250);
        victim_answer(&v, &yes);
        CHECK_EQ(counter_sent(&v), last + OMM_COUNTER_BLOCK + 2);
        last += OMM_COUNTER_BLOCK + 2;
    }
    const uint64_t begin = last;
    const uint64_t said_ms = v.now_ms;
    for (int i = 0; i < 1000; i++) {
        victim_answer(&v, &no);
        const uint64_t counter = counter_sent(&v);
        CHECK(counter > last && counter - last <= ((uint64_t)1 << 32) + 1);
        /* A lost state is made up for soon. */
        if (i == 9) CHECK_EQ(counter - begin, OMM_COUNTER_BLOCK * 1023 + 10);
        last = counter;
    }
    CHECK(v.now_ms - said_ms > 4000000); /* so the numbers last for centuries */
    victim_offer_honest(&v);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_GET);
    victim_close(&v);
}

int main(void) {
    another_run(false);
    another_run(true);
    a_named_run();
    no_memory_for_a_chunk();
    residual_over_rounds();
    false_receipts();
    chunks_asked_for_again();
    false_end();
    unsigned_refusals();
    verdict_between_refusals();
    work_not_done();
    work_in_vain();
    work_is_kept();
    work_without_end();
    work_stopped();
    not_let_in();
    kept_out();
    no_answer();
    counter_over_restarts();
    counter_pushed_up();
    return 0;
}

/* A coordinator that has the pinned key and means no good, and somebody who only pretends to be it: what
 * does a node follow, how much does it give, and does it ever stop? */
#include "peer.h"

#include "omm/codec.h"
#include "omm/enrolment.h"
#include "omm/file.h"
#include "omm/mem.h"
#include "omm/node_history.h"
#include "omm_test.h"

#include <inttypes.h>
#include <string.h>

typedef struct victim {
    peer p; /* its coordinator gives one honest offer; the test says the rest */
    omm_node *node;
    omm_node_action action;
    omm_buf offer; /* the honest envelope */
    char dir[OMM_PATH_MAX];
    uint64_t now_ms;
} victim;

static void step(victim *v, omm_node_event_kind kind, omm_bytes reply) {
    omm_node_event event = {.kind = kind, .reply = reply};
    CHECK_OK(omm_node_step(&v->action, v->node, v->now_ms, &event));
}

/* Let time pass until it wants to send or work. */
static void until_active(victim *v) {
    for (int i = 0; v->action.kind == OMM_NODE_WAIT; i++) {
        CHECK(i < 100);
        v->now_ms = v->action.until_ms;
        step(v, OMM_NODE_TICK, (omm_bytes){0});
    }
}

static omm_request_kind asked(victim *v) {
    omm_request request;
    until_active(v);
    CHECK_EQ(v->action.kind, OMM_NODE_SEND);
    CHECK_OK(omm_request_decode(&request, v->action.request, &v->p.arena));
    return request.kind;
}

static void answer(victim *v, const omm_reply *reply) {
    omm_buf bytes;
    omm_buf_init(&bytes, OMM_MESSAGE_BYTES_MAX);
    CHECK_OK(omm_reply_encode(&bytes, reply));
    step(v, OMM_NODE_REPLY, omm_buf_view(&bytes));
    omm_buf_fini(&bytes);
}

static void victim_open_as(victim *v, bool whole) {
    memset(v, 0, sizeof *v);
    fed_options options = peer_options();
    options.on_disk = true;
    options.whole = whole;
    peer_open(&v->p, &options);
    peer_until_open(&v->p, 0);
    omm_buf_init(&v->offer, OMM_ENVELOPE_BYTES_MAX);
    CHECK_OK(omm_buf_append(&v->offer, v->p.last.envelope.data, v->p.last.envelope.size));
    v->node = v->p.f.nodes[PEER];
    v->now_ms = 1;
    step(v, OMM_NODE_TICK, (omm_bytes){0});
}

static void victim_open(victim *v) {
    victim_open_as(v, false);
}

static omm_node_options options_again(victim *v, const omm_node_limits *limits) {
    return (omm_node_options){.key = &v->p.f.keys[PEER],
                              .name = "again",
                              .coordinator = v->p.f.coordinator_key.public_key,
                              .limits = *limits,
                              .training = v->p.f.training[PEER],
                              .state_dir = fed_path(&v->p.f, v->dir, v->p.f.names[PEER])};
}

/* The node again, from its folder. */
static void victim_reopen_as(victim *v, const omm_node_options *options) {
    omm_node_close(v->node);
    CHECK_OK(omm_node_open(&v->node, options));
    v->p.f.nodes[PEER] = v->node;
    step(v, OMM_NODE_TICK, (omm_bytes){0});
}

static void victim_reopen(victim *v, const omm_node_limits *limits) {
    const omm_node_options options = options_again(v, limits);
    victim_reopen_as(v, &options);
}

static void victim_close(victim *v) {
    omm_buf_fini(&v->offer);
    peer_close(&v->p);
}

/* The offer, changed and signed. */
static void offer_signed(victim *v, void (*change)(omm_offer *offer), omm_context context,
                         const omm_key *key) {
    omm_offer offer = v->p.offer;
    omm_buf payload;
    omm_buf envelope;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    if (change) change(&offer);
    CHECK_OK(omm_offer_encode(&payload, &offer));
    CHECK_OK(omm_envelope_seal(&envelope, context, omm_buf_view(&payload), key));
    CHECK_EQ(asked(v), OMM_REQUEST_POLL);
    answer(v, &(omm_reply){.kind = OMM_REPLY_OFFER, .envelope = omm_buf_view(&envelope)});
    omm_buf_fini(&payload);
    omm_buf_fini(&envelope);
}

static void offer_changed(victim *v, void (*change)(omm_offer *offer), const omm_key *key) {
    offer_signed(v, change, OMM_CONTEXT_OFFER, key);
}

static void offer_honest(victim *v) {
    CHECK_EQ(asked(v), OMM_REQUEST_POLL);
    answer(v, &(omm_reply){.kind = OMM_REPLY_OFFER, .envelope = omm_buf_view(&v->offer)});
}

/* The global adapter, from the real coordinator. */
static void give_chunks(victim *v) {
    while (asked(v) == OMM_REQUEST_GET) {
        omm_buf reply;
        omm_buf_init(&reply, OMM_MESSAGE_BYTES_MAX);
        fed_send(&v->p.f, &reply, v->action.request);
        step(v, OMM_NODE_REPLY, omm_buf_view(&reply));
        omm_buf_fini(&reply);
        if (v->action.kind == OMM_NODE_WORK) return;
    }
}

static void work(victim *v) {
    CHECK_EQ(v->action.kind, OMM_NODE_WORK);
    CHECK_OK(omm_node_work(v->node, NULL));
    step(v, OMM_NODE_WORK_DONE, (omm_bytes){0});
    CHECK_EQ(asked(v), OMM_REQUEST_SUBMIT);
}

/* For what the node has just sent: the test may change it before it is signed. */
static omm_receipt receipt_for(victim *v, omm_err reason) {
    omm_request request;
    CHECK_OK(omm_request_decode(&request, v->action.request, &v->p.arena));
    omm_receipt receipt = {.round = v->p.offer.round,
                           .node_id = v->p.f.run_nodes[v->p.f.of_node[PEER]].id,
                           .submission_digest = omm_hash(request.envelope),
                           .accepted = reason == OMM_OK,
                           .reason = reason,
                           .sentence = reason == OMM_OK ? "" : "no"};
    memcpy(receipt.run_id, v->p.offer.run_id, sizeof receipt.run_id);
    return receipt;
}

static void answer_receipt_as(victim *v, const omm_receipt *receipt, omm_context context,
                              const omm_key *key) {
    omm_buf payload;
    omm_buf envelope;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    CHECK_OK(omm_receipt_encode(&payload, receipt));
    CHECK_OK(omm_envelope_seal(&envelope, context, omm_buf_view(&payload), key));
    answer(v, &(omm_reply){.kind = OMM_REPLY_RECEIPT, .envelope = omm_buf_view(&envelope)});
    omm_buf_fini(&payload);
    omm_buf_fini(&envelope);
}

static void answer_receipt(victim *v, const omm_receipt *receipt, const omm_key *key) {
    answer_receipt_as(v, receipt, OMM_CONTEXT_RECEIPT, key);
}

static void refuse(victim *v) {
    const omm_receipt receipt = receipt_for(v, OMM_ERR_REFUSED_NORM);
    answer_receipt(v, &receipt, &v->p.f.coordinator_key);
}

/* ---- offers that are not followed ---- */

static void change_base(omm_offer *o) {
    o->base_digest.b[0] ^= 1;
}
static void change_tokenizer(omm_offer *o) {
    o->tokenizer_digest.b[0] ^= 1;
}
static void change_rank(omm_offer *o) {
    o->adapter.rank = 100000;
}
static void change_adapter(omm_offer *o) {
    o->adapter.alpha = 8; /* the recipe says 4 */
}
static void change_rank_a_little(omm_offer *o) {
    o->adapter.rank--; /* within every limit, and not the recipe's */
}
static void change_targets(omm_offer *o) {
    o->adapter.targets ^= 1;
}
static void change_values_a_little(omm_offer *o) {
    o->adapter.value_count--;
}
static void change_values(omm_offer *o) {
    o->adapter.value_count = UINT32_MAX;
}
static void change_layout(omm_offer *o) {
    o->adapter.layout_digest.b[0] ^= 1;
}
static void change_selected(omm_offer *o) {
    static const omm_digest nobody[1] = {{{9}}};
    o->selected = nobody;
    o->selected_count = 1;
}
static void change_global(omm_offer *o) {
    static omm_digest chunks[5000];
    o->global.size = (uint64_t)3000 * OMM_CHUNK_BYTES;
    o->global.chunk_digests = chunks;
    o->global.chunk_count = 3000;
}
static void change_codec(omm_offer *o) {
    static const uint8_t other[OMM_CODEC_BYTES] = {0xff, 0xff};
    o->codec_up = omm_bytes_of(other, sizeof other);
}

static void offers_not_followed(void) {
    static void (*const changes[])(omm_offer *) = {
        change_base,   change_tokenizer,     change_rank,     change_adapter,
        change_values, change_layout,        change_selected, change_global,
        change_codec,  change_rank_a_little, change_targets,  change_values_a_little};
    victim v;
    victim_open(&v);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        offer_changed(&v, changes[i], &v.p.f.coordinator_key);
        if (asked(&v) != OMM_REQUEST_POLL) fprintf(stderr, "change %zu was followed\n", i);
        CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    }
    offer_changed(&v, NULL, &v.p.f.keys[0]); /* every byte right, another key */
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    offer_signed(&v, NULL, OMM_CONTEXT_CLOSE, &v.p.f.coordinator_key); /* another purpose */
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    const omm_node_limits limits = omm_node_limits_default();
    omm_node_options options = options_again(&v, &limits);
    options.run_id = "0123456789abcdef0123456789abcdef"; /* another run than its owner's */
    victim_reopen_as(&v, &options);
    offer_honest(&v);
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    options.run_id = v.p.offer.run_id;
    victim_reopen_as(&v, &options);
    offer_honest(&v);
    CHECK_EQ(asked(&v), OMM_REQUEST_GET);
    victim_close(&v);
}

/* Of the declined offers that its owner reads, the newest first: how often, and NULL or why. */
static int64_t declined_times(victim *v, size_t index, const char *why) {
    json_t *history = NULL;
    CHECK_OK(omm_node_history(&history, v->node));
    const json_t *one = json_array_get(json_object_get(history, "declined"), index);
    const char *reason = json_string_value(json_object_get(one, "reason"));
    const int64_t times = json_integer_value(json_object_get(one, "times"));
    CHECK(!why == !reason && (!why || strstr(reason, why)));
    json_decref(history);
    return times;
}

static uint32_t s_alpha;
static void change_alpha(omm_offer *o) {
    o->adapter.alpha = 100 + (float)s_alpha;
    o->adapter.rank = 1000 + s_alpha++; /* what is said of it differs */
}

/* The owner reads what was declined and why, each once with how often; that others were selected, or that a round is
 * over, is nothing to tell.  However many there are, the list has an end. */
static void declined_is_told(void) {
    enum { MANY = 25, SHOWN = 20 };
    victim v;
    victim_open(&v);
    for (int i = 0; i < 3; i++) offer_changed(&v, change_base, &v.p.f.coordinator_key);
    offer_changed(&v, change_selected, &v.p.f.coordinator_key);
    CHECK_EQ(declined_times(&v, 0, "base_digest: not our model"), 3);
    (void)declined_times(&v, 1, NULL);
    offer_changed(&v, change_tokenizer, &v.p.f.coordinator_key);
    CHECK_EQ(declined_times(&v, 0, "tokenizer_digest"), 1);
    CHECK_EQ(declined_times(&v, 1, "base_digest"), 3);
    for (int i = 0; i < MANY; i++) offer_changed(&v, change_alpha, &v.p.f.coordinator_key);
    CHECK_EQ(declined_times(&v, 0, "adapter.rank: 1024"), 1);
    CHECK_EQ(declined_times(&v, SHOWN - 1, "adapter.rank: 1005"), 1);
    (void)declined_times(&v, SHOWN, NULL);
    victim_close(&v);
}

/* ---- limits of its owner ---- */

/* What the honest offer takes, in all of them at once. */
static omm_node_limits limits_needed(victim *v) {
    const omm_offer *offer = &v->p.offer;
    omm_training *training = v->p.f.training[PEER];
    omm_training_plan plan;
    omm_codec up;
    CHECK_OK(training->plan(training, &plan, offer->recipe));
    CHECK_OK(omm_codec_get(&up, offer->codec_up));
    return (omm_node_limits){.rank_max = offer->adapter.rank,
                             .steps_max = plan.steps,
                             .tokens_max = plan.tokens,
                             .pass_tokens_max = plan.pass_tokens,
                             .adapter_values_max = offer->adapter.value_count,
                             .download_bytes_max = offer->global.size,
                             .upload_bytes_max = omm_codec_sent_bytes_max(&up, &v->p.f.run.layout)};
}

static void refused_by(victim *v, const omm_node_limits *limits, const char *field,
                       uint64_t limit) {
    char says[64];
    (void)snprintf(says, sizeof says, "over our limit of %" PRIu64, limit);
    victim_reopen(v, limits);
    offer_honest(v);
    CHECK_EQ(asked(v), OMM_REQUEST_POLL);
    const omm_node_status status = omm_node_get_status(v->node);
    const bool is_said =
        strncmp(status.left, field, strlen(field)) == 0 && strstr(status.left, says);
    if (!is_said) fprintf(stderr, "%s %s: it left for \"%s\"\n", field, says, status.left);
    CHECK(is_said);
}

/* With every limit at what the offer takes it is followed; with one of them one lower its owner reads which one it was. */
static void limits_of_its_owner(void) {
    victim v;
    victim_open(&v);
    const omm_node_limits needed = limits_needed(&v);
#define ONE_BELOW(limit, field)                                                                    \
    do {                                                                                           \
        omm_node_limits lower = needed;                                                            \
        CHECK(lower.limit > 0);                                                                    \
        lower.limit--;                                                                             \
        refused_by(&v, &lower, field, lower.limit);                                                \
    } while (0)
    ONE_BELOW(rank_max, "adapter.rank: 2 is");
    ONE_BELOW(adapter_values_max, "adapter.value_count: 34 is");
    ONE_BELOW(download_bytes_max, "global.size: ");
    ONE_BELOW(steps_max, "recipe.steps: 3 is");
    ONE_BELOW(tokens_max, "recipe: up to 120 tokens, ");
    ONE_BELOW(pass_tokens_max, "recipe: up to 40 tokens at once, ");
    ONE_BELOW(upload_bytes_max, "codec_up: up to ");
#undef ONE_BELOW
    victim_reopen(&v, &needed);
    offer_honest(&v);
    CHECK_EQ(asked(&v), OMM_REQUEST_GET);
    victim_close(&v);
}

/* ---- one round, two offers ---- */

static void change_deadline(omm_offer *o) {
    o->deadline_ms++;
}
static void change_nonce(omm_offer *o) {
    o->nonce.b[0] ^= 1;
}

/* Refused, and offered the same round again with other words: two answers of one node to one round
 * could be subtracted from each other. */
static void no_second_offer_for_a_round(bool restart) {
    victim v;
    victim_open(&v);
    offer_honest(&v);
    give_chunks(&v);
    work(&v);
    refuse(&v);
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    const omm_node_limits limits = omm_node_limits_default();
    if (restart) victim_reopen(&v, &limits);
    offer_changed(&v, change_deadline, &v.p.f.coordinator_key);
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    offer_changed(&v, change_nonce, &v.p.f.coordinator_key);
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    (void)declined_times(&v, 0, NULL); /* not for its owner to do anything about */
    offer_honest(&v);                  /* the same offer may be tried again */
    CHECK_EQ(asked(&v), OMM_REQUEST_GET);
    victim_close(&v);
}

/* ---- another run, and the end of one ---- */

static void change_run(omm_offer *o) {
    memset(o->run_id, 'a', sizeof o->run_id - 1);
}

static omm_submission submission_sent(victim *v) {
    omm_request request;
    omm_envelope envelope;
    omm_submission s;
    CHECK_EQ(asked(v), OMM_REQUEST_SUBMIT);
    CHECK_OK(omm_request_decode(&request, v->action.request, &v->p.arena));
    CHECK_OK(omm_envelope_open_as(&envelope, OMM_CONTEXT_SUBMISSION, request.envelope));
    CHECK_OK(omm_submission_decode(&s, envelope.payload, &v->p.arena));
    return s;
}

static omm_poll poll_sent(victim *v) {
    omm_request request;
    omm_envelope envelope;
    omm_poll poll;
    CHECK_EQ(asked(v), OMM_REQUEST_POLL);
    CHECK_OK(omm_request_decode(&request, v->action.request, &v->p.arena));
    CHECK_OK(omm_envelope_open_as(&envelope, OMM_CONTEXT_POLL, request.envelope));
    CHECK_OK(omm_poll_decode(&poll, envelope.payload, &v->p.arena));
    return poll;
}

/* It has seen a round, over restarts too; what was left over in that run is nothing to another, where it would be
 * refused. */
static void another_run(bool restart) {
    victim v;
    victim_open(&v);
    offer_honest(&v);
    give_chunks(&v);
    work(&v);
    const omm_submission first = submission_sent(&v);
    CHECK(!omm_digest_equal(&first.residual_before, &first.residual_after));
    const omm_receipt yes = receipt_for(&v, OMM_OK);
    answer_receipt(&v, &yes, &v.p.f.coordinator_key);
    const omm_node_limits limits = omm_node_limits_default();
    if (restart) victim_reopen(&v, &limits);
    omm_poll poll = poll_sent(&v);
    CHECK(poll.rounds_seen == 1 && strcmp(poll.run_id, v.p.offer.run_id) == 0);
    offer_changed(&v, change_run, &v.p.f.coordinator_key);
    give_chunks(&v);
    work(&v);
    const omm_submission second = submission_sent(&v);
    CHECK(omm_digest_equal(&second.residual_before, &first.residual_before)); /* zeros */
    const omm_receipt no = receipt_for(&v, OMM_ERR_REFUSED_NORM);
    answer_receipt(&v, &no, &v.p.f.coordinator_key);
    if (restart) victim_reopen(&v, &limits);
    poll = poll_sent(&v);
    CHECK(poll.rounds_seen == 0 && poll.run_id[0] == 'a');
    victim_close(&v);
}

static uint32_t s_round;
static void change_round(omm_offer *o) {
    o->round = s_round;
    o->rounds = 10;
}

static omm_submission submitted_in(victim *v, uint32_t round) {
    s_round = round;
    offer_changed(v, change_round, &v->p.f.coordinator_key);
    give_chunks(v);
    work(v);
    return submission_sent(v);
}

/* A verdict that its coordinator has not signed as one for this very submission is none: it is asked for again. */
static void false_receipts(void) {
    victim v;
    victim_open(&v);
    const omm_key *own = &v.p.f.coordinator_key;
    (void)submitted_in(&v, 0);
    for (int i = 0; i < 4; i++) {
        omm_receipt lie = receipt_for(&v, OMM_OK);
        if (i == 2) lie.submission_digest.b[0] ^= 1;
        if (i == 3) lie.node_id.b[0] ^= 1;
        answer_receipt_as(&v, &lie, i == 1 ? OMM_CONTEXT_CLOSE : OMM_CONTEXT_RECEIPT,
                          i == 0 ? &v.p.f.keys[PEER] : own);
        CHECK_EQ(v.action.until_ms - v.now_ms, 5000);
        CHECK_EQ(asked(&v), OMM_REQUEST_SUBMIT);
        CHECK_EQ(omm_node_get_status(v.node).rounds_accepted, 0);
    }
    const omm_receipt yes = receipt_for(&v, OMM_OK);
    answer_receipt(&v, &yes, own);
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    CHECK_EQ(omm_node_get_status(v.node).rounds_accepted, 1);
    victim_close(&v);
}

/* Its owner reads that it was sent, of each. */
static void check_sent(victim *v, const char *list, size_t count) {
    json_t *history = NULL, *round;
    size_t i;
    CHECK_OK(omm_node_history(&history, v->node));
    CHECK_EQ(json_array_size(json_object_get(history, list)), count);
    json_array_foreach(json_object_get(history, list), i, round)
        CHECK(json_is_true(json_object_get(round, "sent")));
    json_decref(history);
}

/* What was left over goes on from one accepted round to the next, stays what it was where one was refused, and is dropped
 * where the coordinator has seen another.  A round that was accepted is not answered again. */
static void residual_over_rounds(void) {
    victim v;
    victim_open(&v);
    const omm_key *own = &v.p.f.coordinator_key;
    const omm_submission first = submitted_in(&v, 0);
    omm_receipt receipt = receipt_for(&v, OMM_OK);
    answer_receipt(&v, &receipt, own);
    s_round = 0;
    offer_changed(&v, change_round, own);
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    const omm_submission second = submitted_in(&v, 1);
    CHECK(omm_digest_equal(&second.residual_before, &first.residual_after));
    receipt = receipt_for(&v, OMM_ERR_REFUSED_NORM);
    receipt.round = 1;
    answer_receipt(&v, &receipt, own);
    const omm_submission third = submitted_in(&v, 2);
    CHECK(omm_digest_equal(&third.residual_before, &first.residual_after));
    receipt = receipt_for(&v, OMM_ERR_REFUSED_RESIDUAL);
    receipt.round = 2;
    answer_receipt(&v, &receipt, own);
    const omm_submission fourth = submitted_in(&v, 3);
    CHECK(omm_digest_equal(&fourth.residual_before, &first.residual_before)); /* zeros */
    check_sent(&v, "rounds", 4);
    victim_close(&v);
}

static void answer_close(victim *v, const char *run_id, omm_context context, const omm_key *key) {
    omm_close close = {.rounds = 1};
    omm_buf payload, envelope;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    (void)snprintf(close.run_id, sizeof close.run_id, "%s", run_id);
    CHECK_OK(omm_close_encode(&payload, &close));
    CHECK_OK(omm_envelope_seal(&envelope, context, omm_buf_view(&payload), key));
    CHECK_EQ(asked(v), OMM_REQUEST_POLL);
    answer(v, &(omm_reply){.kind = OMM_REPLY_DONE, .envelope = omm_buf_view(&envelope)});
    omm_buf_fini(&payload);
    omm_buf_fini(&envelope);
}

/* Nobody but its coordinator says that a run is over, and only of the run that it is in. */
static void false_end(void) {
    static const char other_run[] = "0123456789abcdef0123456789abcdef";
    victim v;
    victim_open(&v);
    const omm_key *own = &v.p.f.coordinator_key;
    const char *run_id = v.p.offer.run_id;
    offer_honest(&v); /* it knows its run */
    answer(&v, &(omm_reply){.kind = OMM_REPLY_REFUSED, .reason = OMM_ERR_REFUSED_ROUND});
    answer_close(&v, run_id, OMM_CONTEXT_CLOSE, &v.p.f.keys[0]);
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    answer_close(&v, run_id, OMM_CONTEXT_RECEIPT, own);
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    answer_close(&v, other_run, OMM_CONTEXT_CLOSE, own);
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    const omm_node_limits limits = omm_node_limits_default();
    victim_reopen(&v, &limits); /* and nothing of it was kept */
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    answer_close(&v, run_id, OMM_CONTEXT_CLOSE, own);
    CHECK_EQ(v.action.kind, OMM_NODE_DONE);
    victim_close(&v);
}

/* ---- uploads without end, chunks without end ---- */

static void need_without_end(void) {
    victim v;
    victim_open(&v);
    offer_honest(&v);
    give_chunks(&v);
    work(&v);
    static const uint32_t first[1] = {0};
    uint32_t sent = 0;
    for (uint32_t i = 0; i < 2000; i++) {
        omm_request_kind kind = asked(&v);
        if (kind == OMM_REQUEST_POLL) break;
        sent += kind == OMM_REQUEST_PUT;
        answer(&v, &(omm_reply){.kind = OMM_REPLY_NEED, .missing = first, .missing_count = 1});
    }
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL); /* given up */
    CHECK(sent < 300);
    victim_close(&v);
}

static void change_global_digest(omm_offer *o) {
    o->global.digest.b[0] ^= 1;
}
static void change_canonical(omm_offer *o) {
    o->global.canonical.b[0] ^= 1;
}

static void wrong_chunk(void) {
    victim v;
    victim_open(&v);
    offer_honest(&v);
    CHECK_EQ(asked(&v), OMM_REQUEST_GET);
    omm_reply chunk = {.kind = OMM_REPLY_CHUNK,
                       .digest = v.p.offer.global.digest,
                       .index = 0,
                       .data = omm_bytes_str("not the adapter")};
    answer(&v, &chunk);
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    offer_honest(&v);
    CHECK_EQ(asked(&v), OMM_REQUEST_GET);
    chunk.index = 7;
    answer(&v, &chunk);
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    victim_close(&v);
}

/* The adapter's bytes; an offer that does not name them by all of its digests is not followed to the end. */
static void adapter_of_other_digests(void) {
    static void (*const changes[])(omm_offer *) = {change_global_digest, change_canonical, NULL};
    victim v;
    victim_open(&v);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        omm_offer offer = v.p.offer;
        if (changes[i]) changes[i](&offer);
        offer_changed(&v, changes[i], &v.p.f.coordinator_key);
        CHECK_EQ(asked(&v), OMM_REQUEST_GET);
        peer_send(&v.p, &(omm_request){.kind = OMM_REQUEST_GET, .digest = v.p.offer.global.digest});
        v.p.last.digest = offer.global.digest;
        answer(&v, &v.p.last);
        CHECK_EQ(v.action.kind, changes[i] ? OMM_NODE_WAIT : OMM_NODE_WORK);
    }
    victim_close(&v);
}

/* ---- the data of a canary ---- */

#define SHARD_BYTES (OMM_CHUNK_BYTES + 10u)

static uint8_t s_shard[SHARD_BYTES];
static omm_digest s_shard_chunks[2];
static omm_blob s_shard_blob;

static void change_canary(omm_offer *o) {
    static omm_digest only[1]; /* in the round of this test the peer is one of several */
    only[0] = s_shard_blob.canonical;
    o->selected = only;
    o->selected_count = 1;
    o->is_canary = true;
    o->canary = s_shard_blob;
    o->canary.canonical = o->canary.digest;
}

/* It has the adapter, and asks for the shard. */
static void offer_canary(victim *v, omm_bytes shard, const omm_digest *named) {
    for (size_t i = 0; i < 2; i++) s_shard_chunks[i] = omm_hash(omm_chunk_view(shard, i));
    s_shard_blob = (omm_blob){.digest = *named,
                              .canonical = v->p.f.run_nodes[v->p.f.of_node[PEER]].id,
                              .size = shard.size,
                              .chunk_digests = s_shard_chunks,
                              .chunk_count = omm_chunk_count(shard.size)};
    offer_changed(v, change_canary, &v->p.f.coordinator_key);
    CHECK_EQ(asked(v), OMM_REQUEST_GET);
    peer_send(&v->p, &(omm_request){.kind = OMM_REQUEST_GET, .digest = v->p.offer.global.digest});
    CHECK_EQ(v->p.last.kind, OMM_REPLY_CHUNK);
    answer(v, &v->p.last);
    CHECK_EQ(asked(v), OMM_REQUEST_GET);
}

static void give_shard(victim *v, const omm_digest *digest, uint32_t index, omm_bytes data) {
    answer(v,
           &(omm_reply){.kind = OMM_REPLY_CHUNK, .digest = *digest, .index = index, .data = data});
}

/* It trains on the data that the offer names and on no other: not on other bytes, not on a chunk that it has not asked for,
 * and not on chunks that are each right and together another file. */
static void wrong_shard(void) {
    victim v;
    victim_open(&v);
    for (size_t i = 0; i < sizeof s_shard; i++) s_shard[i] = (uint8_t)(i * 7);
    const omm_bytes all = omm_bytes_of(s_shard, sizeof s_shard);
    const omm_bytes first = omm_chunk_view(all, 0), second = omm_chunk_view(all, 1);
    const omm_digest digest = omm_hash(all), other = omm_hash(second);
    omm_buf changed;
    omm_buf_init(&changed, first.size);
    CHECK_OK(omm_buf_append(&changed, first.data, first.size));
    changed.data[5] ^= 1;
    const struct {
        const omm_digest *digest;
        uint32_t index;
        omm_bytes data;
    } wrong[] = {{&digest, 0, omm_buf_view(&changed)},
                 {&digest, 0, second},
                 {&digest, 1, second},
                 {&digest, 9, second},
                 {&other, 0, first}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        offer_canary(&v, all, &digest);
        give_shard(&v, wrong[i].digest, wrong[i].index, wrong[i].data);
        CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    }
    offer_canary(&v, all, &other);
    give_shard(&v, &other, 0, first);
    CHECK_EQ(asked(&v), OMM_REQUEST_GET);
    give_shard(&v, &other, 1, second);
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    offer_canary(&v, all, &digest);
    give_shard(&v, &digest, 0, first);
    CHECK_EQ(asked(&v), OMM_REQUEST_GET);
    give_shard(&v, &digest, 1, second);
    CHECK_EQ(v.action.kind, OMM_NODE_WORK);
    omm_buf_fini(&changed);
    victim_close(&v);
}

/* After a canary a submission of its own is its own, over a restart too: its verdict counts. */
static void canary_then_own(void) {
    victim v;
    victim_open(&v);
    const omm_bytes all = omm_bytes_str("some public data");
    const omm_digest digest = omm_hash(all);
    const omm_node_limits limits = omm_node_limits_default();
    offer_canary(&v, all, &digest);
    give_shard(&v, &digest, 0, all);
    work(&v);
    victim_reopen(&v, &limits);
    CHECK_EQ(asked(&v), OMM_REQUEST_SUBMIT);
    omm_receipt yes = receipt_for(&v, OMM_OK);
    answer_receipt(&v, &yes, &v.p.f.coordinator_key);
    CHECK_EQ(omm_node_get_status(v.node).rounds_accepted, 0);
    victim_reopen(&v, &limits);
    CHECK_EQ(poll_sent(&v).rounds_seen, 0);
    check_sent(&v, "canaries", 1);
    offer_honest(&v);
    give_chunks(&v);
    work(&v);
    victim_reopen(&v, &limits);
    CHECK_EQ(asked(&v), OMM_REQUEST_SUBMIT);
    yes = receipt_for(&v, OMM_OK);
    answer_receipt(&v, &yes, &v.p.f.coordinator_key);
    CHECK_EQ(poll_sent(&v).rounds_seen, 1);
    check_sent(&v, "rounds", 1);
    victim_close(&v);
}

/* ---- what is whole ---- */

static omm_request request_of(victim *v) {
    omm_request request;
    until_active(v);
    CHECK_EQ(v->action.kind, OMM_NODE_SEND);
    CHECK_OK(omm_request_decode(&request, v->action.request, &v->p.arena));
    return request;
}

/* A coordinator from before: it refuses the form, at once and once, and gets all in chunks. */
static void does_not_know_whole(void) {
    victim v;
    victim_open_as(&v, true);
    const omm_reply no = {
        .kind = OMM_REPLY_REFUSED, .reason = OMM_ERR_REFUSED_FORMAT, .sentence = "unknown fields"};
    CHECK(request_of(&v).whole);
    answer(&v, &no);
    CHECK_EQ(v.action.kind, OMM_NODE_SEND); /* without a pause */
    CHECK(!request_of(&v).whole);
    answer(&v, &no); /* whatever is wrong now, it is not that */
    CHECK_EQ(v.action.kind, OMM_NODE_WAIT);
    CHECK(!request_of(&v).whole);
    offer_honest(&v);
    give_chunks(&v);
    work(&v);
    CHECK_EQ(request_of(&v).data.size, 0);
    refuse(&v);
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    victim_close(&v);
}

/* The same, but it says so only when the submission comes: that is no refusal of the work. */
static void does_not_know_whole_submissions(void) {
    victim v;
    victim_open_as(&v, true);
    const omm_reply no = {
        .kind = OMM_REPLY_REFUSED, .reason = OMM_ERR_REFUSED_FORMAT, .sentence = "unknown fields"};
    offer_honest(&v);
    give_chunks(&v);
    work(&v);
    CHECK(request_of(&v).data.size > 0);
    answer(&v, &no);
    CHECK_EQ(v.action.kind, OMM_NODE_SEND);
    CHECK_EQ(asked(&v), OMM_REQUEST_SUBMIT);
    CHECK_EQ(request_of(&v).data.size, 0);
    const uint32_t indices[1] = {0};
    answer(&v, &(omm_reply){.kind = OMM_REPLY_NEED, .missing = indices, .missing_count = 1});
    CHECK_EQ(asked(&v), OMM_REQUEST_PUT);
    victim_close(&v);
}

/* An adapter with the offer that is not the offer's is asked for again; one that is goes straight to work. */
static void adapter_with_the_offer(void) {
    victim v;
    victim_open_as(&v, true);
    omm_reply offer = {.kind = OMM_REPLY_OFFER,
                       .envelope = omm_buf_view(&v.offer),
                       .data = omm_bytes_str("no adapter")};
    CHECK(request_of(&v).whole);
    answer(&v, &offer);
    CHECK_EQ(asked(&v), OMM_REQUEST_GET);
    give_chunks(&v);
    CHECK_EQ(v.action.kind, OMM_NODE_WORK);
    victim_close(&v);
    victim_open_as(&v, true);
    peer_send(&v.p, &(omm_request){.kind = OMM_REQUEST_GET, .digest = v.p.offer.global.digest});
    CHECK_EQ(v.p.last.kind, OMM_REPLY_CHUNK);
    offer.envelope = omm_buf_view(&v.offer);
    offer.data = v.p.last.data;
    answer(&v, &offer);
    CHECK_EQ(v.action.kind, OMM_NODE_WORK);
    victim_close(&v);
}

/* ---- somebody on the way ---- */

/* What the node's owner reads of the only round. */
static void check_verdict(victim *v, const char *want) {
    json_t *history = NULL;
    CHECK_OK(omm_node_history(&history, v->node));
    const json_t *rounds = json_object_get(history, "rounds");
    CHECK_EQ(json_array_size(rounds), 1);
    const char *verdict = json_string_value(json_object_get(json_array_get(rounds, 0), "verdict"));
    CHECK(verdict && strcmp(verdict, want) == 0);
    json_decref(history);
}

/* Refusals without a signature: the submission is tried again, and given up after a while, for good and over a restart.
 * The next one has as many attempts. */
static void unsigned_refusals(void) {
    const omm_node_limits limits = omm_node_limits_default();
    victim v;
    victim_open(&v);
    omm_reply no = {
        .kind = OMM_REPLY_REFUSED, .reason = OMM_ERR_REFUSED_NORM, .sentence = "says nobody"};
    for (int round = 0; round < 2; round++) {
        offer_honest(&v);
        give_chunks(&v);
        work(&v);
        check_verdict(&v, "");
        uint32_t tries = 0;
        for (; asked(&v) == OMM_REQUEST_SUBMIT; tries++) {
            CHECK(tries < 10);
            answer(&v, &no);
            CHECK_EQ(v.action.until_ms - v.now_ms, tries == 0 ? 250 : 5000);
        }
        CHECK_EQ(tries, 3);
        check_verdict(&v, "none");
    }
    victim_reopen(&v, &limits);
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    victim_close(&v);
}

/* ---- work, before it is let in ---- */

#define WORK_BITS 4u /* some hashes */

static void refuse_key(victim *v, const char *sentence) {
    CHECK_EQ(asked(v), OMM_REQUEST_POLL);
    answer(v, &(omm_reply){
                  .kind = OMM_REPLY_REFUSED, .reason = OMM_ERR_REFUSED_KEY, .sentence = sentence});
}

/* Not in yet, it asks to be, and gets this for an answer. */
static void challenge(victim *v, uint32_t bits, const char *run_id, omm_context context,
                      const omm_key *key) {
    omm_challenge challenge = {.seed = {{7}}, .bits = bits};
    omm_buf payload, envelope;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    (void)snprintf(challenge.run_id, sizeof challenge.run_id, "%s", run_id);
    CHECK_OK(omm_challenge_encode(&payload, &challenge));
    CHECK_OK(omm_envelope_seal(&envelope, context, omm_buf_view(&payload), key));
    refuse_key(v, "not enrolled");
    CHECK_EQ(asked(v), OMM_REQUEST_ENROL);
    answer(v, &(omm_reply){.kind = OMM_REPLY_CHALLENGE, .envelope = omm_buf_view(&envelope)});
    omm_buf_fini(&payload);
    omm_buf_fini(&envelope);
}

static void challenge_honest(victim *v, uint32_t bits) {
    challenge(v, bits, v->p.offer.run_id, OMM_CONTEXT_CHALLENGE, &v->p.f.coordinator_key);
}

/* No work is done, its owner reads why, and it is a minute until it asks again. */
static void check_no_work(victim *v, const char *why) {
    CHECK_EQ(v->action.kind, OMM_NODE_WAIT);
    CHECK_EQ(v->action.until_ms - v->now_ms, 60000);
    const char *refused = omm_node_get_status(v->node).refused;
    if (!strstr(refused, why)) fprintf(stderr, "expected \"%s\": \"%s\"\n", why, refused);
    CHECK(strstr(refused, why));
}

/* Work is done for the pinned coordinator alone, in the run that the owner named, and up to the owner's limit. */
static void work_not_done(void) {
    static const char other_run[] = "0123456789abcdef0123456789abcdef";
    victim v;
    victim_open(&v);
    const omm_key *own = &v.p.f.coordinator_key;
    omm_node_limits limits = omm_node_limits_default();
    limits.work_bits_max = WORK_BITS;
    omm_node_options options = options_again(&v, &limits);
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
    victim_reopen_as(&v, &options);
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
        step(&v, OMM_NODE_WORK_DONE, (omm_bytes){0});
        CHECK_EQ(asked(&v), OMM_REQUEST_ENROL);
        answer(&v, &(omm_reply){.kind = OMM_REPLY_REFUSED,
                                .reason = OMM_ERR_REFUSED_WORK,
                                .sentence = "challenge: unknown"});
        check_no_work(&v, "challenge: unknown");
    }
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
    omm_node_options options = options_again(&v, &limits);
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
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    victim_close(&v);
}

static uint64_t counter_sent(victim *v) {
    return poll_sent(v).counter;
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
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    omm_receipt old = receipt_for(&v, OMM_ERR_REFUSED_NOT_SELECTED);
    for (uint64_t want = 5000; want < 2000000; want *= 2) {
        CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
        const omm_receipt no = receipt_for(&v, OMM_ERR_REFUSED_NOT_SELECTED);
        answer_receipt(&v, &no, &v.p.f.coordinator_key);
        CHECK_EQ(wait_ms(&v), want < 600000 ? want : 600000);
        const omm_node_status status = omm_node_get_status(v.node);
        CHECK(strcmp(status.refused, "no") == 0 && strstr(status.advice, "ctl release"));
    }
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    answer(&v, &(omm_reply){.kind = OMM_REPLY_WAIT, .retry_ms = 1000});
    CHECK_EQ(wait_ms(&v), 1000);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
        omm_receipt lie = receipt_for(&v, i == 2 ? OMM_OK : OMM_ERR_REFUSED_KEY);
        if (i == 1) lie.submission_digest = old.submission_digest;
        if (i == 3) lie.node_id.b[0] ^= 1;
        answer_receipt(&v, &lie, i == 0 ? &v.p.f.keys[PEER] : &v.p.f.coordinator_key);
        CHECK_EQ(wait_ms(&v), 5000);
        const omm_node_status status = omm_node_get_status(v.node);
        CHECK(!status.refused[0] && !status.advice[0]);
    }
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    const omm_receipt no = receipt_for(&v, OMM_ERR_REFUSED_KEY);
    answer_receipt(&v, &no, &v.p.f.coordinator_key);
    CHECK_EQ(wait_ms(&v), 5000);
    CHECK(strstr(omm_node_get_status(v.node).advice, "for good"));
    offer_honest(&v); /* and polls, instead of asking to be let in */
    CHECK_EQ(asked(&v), OMM_REQUEST_GET);
    CHECK(!omm_node_get_status(v.node).refused[0]);
    victim_close(&v);
}

/* Nobody answers: it asks again after twice as long each time, up to half a minute; and soon again when it was answered. */
static void no_answer(void) {
    victim v;
    victim_open(&v);
    for (int i = 0; i < 2; i++) {
        for (uint64_t want = 250; want < 200000; want *= 2) {
            CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
            step(&v, OMM_NODE_SEND_FAILED, (omm_bytes){0});
            CHECK_EQ(wait_ms(&v), want < 30000 ? want : 30000);
        }
        CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
        answer(&v, &(omm_reply){.kind = OMM_REPLY_WAIT, .retry_ms = 10000000});
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
        answer(&v, &no);
        CHECK_EQ(counter_sent(&v), last + OMM_COUNTER_BLOCK + 1);
        CHECK(v.now_ms - said_ms <= 250);
        answer(&v, &yes);
        CHECK_EQ(counter_sent(&v), last + OMM_COUNTER_BLOCK + 2);
        last += OMM_COUNTER_BLOCK + 2;
    }
    const uint64_t begin = last;
    const uint64_t said_ms = v.now_ms;
    for (int i = 0; i < 1000; i++) {
        answer(&v, &no);
        const uint64_t counter = counter_sent(&v);
        CHECK(counter > last && counter - last <= ((uint64_t)1 << 32) + 1);
        /* A lost state is made up for soon. */
        if (i == 9) CHECK_EQ(counter - begin, OMM_COUNTER_BLOCK * 1023 + 10);
        last = counter;
    }
    CHECK(v.now_ms - said_ms > 4000000); /* so the numbers last for centuries */
    offer_honest(&v);
    CHECK_EQ(asked(&v), OMM_REQUEST_GET);
    victim_close(&v);
}

/* ---- the folder ---- */

static void state_dir_of_another(void) {
    victim v;
    char dir[OMM_PATH_MAX];
    omm_node *other = NULL;
    victim_open(&v);
    CHECK_OK(omm_path_join(dir, v.p.f.dir, v.p.f.names[PEER]));
    omm_node_options options = {.key = &v.p.f.keys[PEER],
                                .name = "twin",
                                .coordinator = v.p.f.coordinator_key.public_key,
                                .limits = omm_node_limits_default(),
                                .training = v.p.f.training[PEER],
                                .state_dir = dir};
    CHECK(omm_node_open(&other, &options) != OMM_OK); /* a second process on one folder */
    omm_node_close(v.p.f.nodes[PEER]);
    v.p.f.nodes[PEER] = NULL;
    options.key = &v.p.f.keys[0];
    CHECK_ERR(omm_node_open(&other, &options), OMM_ERR_MISMATCH);
    options.key = &v.p.f.keys[PEER];
    CHECK_OK(omm_node_open(&other, &options));
    omm_node_close(other);
    CHECK_OK(omm_path_join(dir, dir, "node.sqlite"));
    CHECK_OK(
        omm_file_write(dir, omm_bytes_str("no database at all, but long enough to be one"), 0600));
    CHECK(omm_node_open(&other, &options) != OMM_OK);
    victim_close(&v);
}

int main(void) {
    offers_not_followed();
    declined_is_told();
    limits_of_its_owner();
    no_second_offer_for_a_round(false);
    no_second_offer_for_a_round(true);
    another_run(false);
    another_run(true);
    residual_over_rounds();
    false_receipts();
    false_end();
    need_without_end();
    wrong_chunk();
    adapter_of_other_digests();
    wrong_shard();
    canary_then_own();
    does_not_know_whole();
    does_not_know_whole_submissions();
    adapter_with_the_offer();
    unsigned_refusals();
    work_not_done();
    work_in_vain();
    work_stopped();
    not_let_in();
    kept_out();
    no_answer();
    counter_pushed_up();
    state_dir_of_another();
    return 0;
}

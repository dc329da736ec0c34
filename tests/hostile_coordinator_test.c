/* A coordinator that has the pinned key and means no good, and somebody who only pretends to be it: what
 * does a node follow, how much does it give, and does it ever stop? */
#include "peer.h"

#include "omm/codec.h"
#include "omm/file.h"
#include "omm/mem.h"
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

/* The node again, from its folder. */
static void victim_reopen(victim *v, const omm_node_limits *limits) {
    const omm_node_options options = {.key = &v->p.f.keys[PEER],
                                      .name = "again",
                                      .coordinator = v->p.f.coordinator_key.public_key,
                                      .limits = *limits,
                                      .training = v->p.f.training[PEER],
                                      .state_dir = fed_path(&v->p.f, v->dir, v->p.f.names[PEER])};
    omm_node_close(v->node);
    CHECK_OK(omm_node_open(&v->node, &options));
    v->p.f.nodes[PEER] = v->node;
    step(v, OMM_NODE_TICK, (omm_bytes){0});
}

static void victim_close(victim *v) {
    omm_buf_fini(&v->offer);
    peer_close(&v->p);
}

/* The offer, changed and signed. */
static void offer_changed(victim *v, void (*change)(omm_offer *offer), const omm_key *key) {
    omm_offer offer = v->p.offer;
    omm_buf payload;
    omm_buf envelope;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    if (change) change(&offer);
    CHECK_OK(omm_offer_encode(&payload, &offer));
    CHECK_OK(omm_envelope_seal(&envelope, OMM_CONTEXT_OFFER, omm_buf_view(&payload), key));
    CHECK_EQ(asked(v), OMM_REQUEST_POLL);
    answer(v, &(omm_reply){.kind = OMM_REPLY_OFFER, .envelope = omm_buf_view(&envelope)});
    omm_buf_fini(&payload);
    omm_buf_fini(&envelope);
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

static void answer_receipt(victim *v, const omm_receipt *receipt, const omm_key *key) {
    omm_buf payload;
    omm_buf envelope;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    CHECK_OK(omm_receipt_encode(&payload, receipt));
    CHECK_OK(omm_envelope_seal(&envelope, OMM_CONTEXT_RECEIPT, omm_buf_view(&payload), key));
    answer(v, &(omm_reply){.kind = OMM_REPLY_RECEIPT, .envelope = omm_buf_view(&envelope)});
    omm_buf_fini(&payload);
    omm_buf_fini(&envelope);
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
    static void (*const changes[])(omm_offer *) = {change_base,     change_tokenizer, change_rank,
                                                   change_adapter,  change_values,    change_layout,
                                                   change_selected, change_global,    change_codec};
    victim v;
    victim_open(&v);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        offer_changed(&v, changes[i], &v.p.f.coordinator_key);
        if (asked(&v) != OMM_REQUEST_POLL) fprintf(stderr, "change %zu was followed\n", i);
        CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    }
    offer_changed(&v, NULL, &v.p.f.keys[0]); /* every byte right, another key */
    CHECK_EQ(asked(&v), OMM_REQUEST_POLL);
    offer_honest(&v);
    CHECK_EQ(asked(&v), OMM_REQUEST_GET);
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
    offer_honest(&v); /* the same offer may be tried again */
    CHECK_EQ(asked(&v), OMM_REQUEST_GET);
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

/* Refusals without a signature: the submission is tried again, and given up after a while. */
static void unsigned_refusals(void) {
    victim v;
    victim_open(&v);
    offer_honest(&v);
    give_chunks(&v);
    work(&v);
    omm_reply no = {
        .kind = OMM_REPLY_REFUSED, .reason = OMM_ERR_REFUSED_NORM, .sentence = "says nobody"};
    uint32_t tries = 0;
    for (; asked(&v) == OMM_REQUEST_SUBMIT; tries++) {
        CHECK(tries < 10);
        answer(&v, &no);
    }
    CHECK_EQ(tries, 3);
    victim_close(&v);
}

static uint64_t counter_sent(victim *v) {
    omm_request request;
    omm_envelope envelope;
    omm_poll poll;
    CHECK_EQ(asked(v), OMM_REQUEST_POLL);
    CHECK_OK(omm_request_decode(&request, v->action.request, &v->p.arena));
    CHECK_OK(omm_envelope_open_as(&envelope, OMM_CONTEXT_POLL, request.envelope));
    CHECK_OK(omm_poll_decode(&poll, envelope.payload, &v->p.arena));
    return poll.counter;
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
    limits_of_its_owner();
    no_second_offer_for_a_round(false);
    no_second_offer_for_a_round(true);
    need_without_end();
    wrong_chunk();
    does_not_know_whole();
    does_not_know_whole_submissions();
    adapter_with_the_offer();
    unsigned_refusals();
    kept_out();
    counter_pushed_up();
    state_dir_of_another();
    return 0;
}

/* A coordinator that has the pinned key and means no good, and somebody who only pretends to be it: what
 * does a node follow, how much does it give, and does it ever stop? */
#include "victim.h"

#include "omm/codec.h"
#include "omm/declined.h"
#include "omm/file.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <inttypes.h>
#include <string.h>

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

/* Each is said to the coordinator, too: as a number, in the next poll. */
static void offers_not_followed(void) {
    static const struct {
        void (*change)(omm_offer *o);
        omm_declined declined;
    } cases[] = {
        {change_base, OMM_DECLINED_BASE},      {change_tokenizer, OMM_DECLINED_BASE},
        {change_rank, OMM_DECLINED_ADAPTER},   {change_adapter, OMM_DECLINED_RECIPE},
        {change_values, OMM_DECLINED_ADAPTER}, {change_layout, OMM_DECLINED_RECIPE},
        {change_selected, OMM_DECLINED_ROUND}, {change_global, OMM_DECLINED_RECIPE},
        {change_codec, OMM_DECLINED_RECIPE},   {change_rank_a_little, OMM_DECLINED_RECIPE},
        {change_targets, OMM_DECLINED_RECIPE}, {change_values_a_little, OMM_DECLINED_RECIPE}};
    victim v;
    victim_open(&v);
    CHECK_EQ(victim_poll(&v).declined, OMM_DECLINED_NOTHING);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        victim_offer(&v, cases[i].change, &v.p.f.coordinator_key);
        if (victim_asked(&v) != OMM_REQUEST_POLL) fprintf(stderr, "change %zu was followed\n", i);
        CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
        CHECK_EQ(victim_poll(&v).declined, cases[i].declined);
    }
    victim_offer(&v, NULL, &v.p.f.keys[0]); /* every byte right, another key */
    CHECK_EQ(victim_poll(&v).declined, OMM_DECLINED_OFFER);
    victim_offer(&v, change_base, &v.p.f.coordinator_key);
    victim_offer_signed(&v, NULL, OMM_CONTEXT_CLOSE, &v.p.f.coordinator_key); /* another purpose */
    CHECK_EQ(victim_poll(&v).declined, OMM_DECLINED_OFFER);
    const omm_node_limits limits = omm_node_limits_default();
    omm_node_options options = victim_options(&v, &limits);
    options.run_id = "0123456789abcdef0123456789abcdef"; /* another run than its owner's */
    victim_reopen_as(&v, &options);
    CHECK_EQ(victim_poll(&v).declined, OMM_DECLINED_NOTHING); /* it does not remember */
    victim_offer_honest(&v);
    CHECK_EQ(victim_poll(&v).declined, OMM_DECLINED_ROUND);
    options.run_id = v.p.offer.run_id;
    victim_reopen_as(&v, &options);
    victim_offer_honest(&v);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_GET);
    victim_close(&v);
}

/* It took the offer, and the training ended so. */
static void ends_training(victim *v, omm_err how, omm_declined declined) {
    victim_offer_honest(v);
    victim_give_chunks(v);
    const omm_node_event event = {.kind = OMM_NODE_WORK_DONE, .work = how};
    CHECK_OK(omm_node_step(&v->action, v->node, v->now_ms, &event));
    CHECK_EQ(victim_poll(v).declined, declined);
}

static void refuse_form(victim *v) {
    CHECK_EQ(victim_asked(v), OMM_REQUEST_POLL);
    victim_answer(v, &(omm_reply){.kind = OMM_REPLY_REFUSED,
                                  .reason = OMM_ERR_REFUSED_FORMAT,
                                  .sentence = "Poll has unknown fields"});
}

static bool takes_whole(victim *v) {
    omm_request request;
    CHECK_EQ(victim_asked(v), OMM_REQUEST_POLL);
    CHECK_OK(omm_request_decode(&request, v->action.request, &v->p.arena));
    return request.whole;
}

/* What it began and did not end is said as well, until it follows an offer to its end. */
static void left_is_said(void) {
    victim v;
    victim_open(&v);
    ends_training(&v, OMM_ERR_CANCELLED, OMM_DECLINED_PAUSED);
    ends_training(&v, OMM_ERR_NOMEM, OMM_DECLINED_MEMORY);
    ends_training(&v, OMM_ERR_REFUSED_SIZE, OMM_DECLINED_MEMORY);
    ends_training(&v, OMM_ERR_MISMATCH, OMM_DECLINED_FILES);
    ends_training(&v, OMM_ERR_NUMERIC, OMM_DECLINED_TRAINING);
    victim_offer_honest(&v);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_GET);
    victim_answer(&v, &(omm_reply){.kind = OMM_REPLY_REFUSED,
                                   .reason = OMM_ERR_REFUSED_DIGEST,
                                   .sentence = "no"});
    CHECK_EQ(victim_poll(&v).declined, OMM_DECLINED_TRANSFER);
    victim_offer_honest(&v);
    victim_give_chunks(&v);
    victim_work(&v);
    victim_refuse(&v);
    CHECK_EQ(victim_poll(&v).declined, OMM_DECLINED_NOTHING);
    victim_close(&v);
}

/* A coordinator from before does not take such a poll: it is not told, and all else is as it was. */
static void does_not_know_declined(void) {
    victim v;
    victim_open_as(&v, true);
    victim_offer(&v, change_base, &v.p.f.coordinator_key);
    const uint64_t before = victim_poll(&v).counter;
    CHECK_EQ(victim_poll(&v).declined, OMM_DECLINED_BASE);
    refuse_form(&v);
    CHECK_EQ(v.action.kind, OMM_NODE_SEND); /* at once */
    const omm_poll poll = victim_poll(&v);
    CHECK(poll.declined == OMM_DECLINED_NOTHING && poll.counter == before + 1);
    CHECK(takes_whole(&v));
    victim_offer(&v, change_rank, &v.p.f.coordinator_key);
    CHECK_EQ(victim_poll(&v).declined, OMM_DECLINED_NOTHING);
    refuse_form(&v); /* it does not know that either */
    CHECK(!takes_whole(&v));
    CHECK_EQ(victim_poll(&v).declined, OMM_DECLINED_NOTHING);
    victim_close(&v);
}

/* Who says that it cannot read the plainest poll is not asked without a pause, and hears all later. */
static void refuses_every_form(void) {
    victim v;
    victim_open(&v);
    for (int i = 0; i < 3; i++) {
        refuse_form(&v);
        CHECK_EQ(v.action.kind, OMM_NODE_WAIT);
        CHECK_EQ(v.action.until_ms - v.now_ms, 5000);
    }
    victim_offer(&v, change_base, &v.p.f.coordinator_key);
    CHECK_EQ(victim_poll(&v).declined, OMM_DECLINED_BASE);
    victim_close(&v);
}

/* And who refuses a poll for another reason has read it: the next one is as it was. */
static void refuses_no_form(void) {
    const omm_reply no = {
        .kind = OMM_REPLY_REFUSED, .reason = OMM_ERR_REFUSED_ROUND, .sentence = "round: over"};
    victim v;
    victim_open_as(&v, true);
    victim_offer(&v, change_base, &v.p.f.coordinator_key);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(victim_poll(&v).declined, OMM_DECLINED_BASE);
        CHECK(takes_whole(&v));
        victim_answer(&v, &no);
        CHECK_EQ(v.action.kind, OMM_NODE_WAIT);
    }
    victim_close(&v);
}

/* The training says before it begins that it will not do it; its owner and the coordinator hear why. */
static omm_err s_plan_fails;
static omm_err fail_plan(omm_training *training, omm_training_plan *out, omm_bytes recipe) {
    (void)training;
    (void)recipe;
    *out = (omm_training_plan){0};
    return omm_raise(s_plan_fails, "plan: no");
}

static void plan_fails(void) {
    static const struct {
        omm_err err;
        omm_declined declined;
    } cases[] = {{OMM_ERR_REFUSED_SIZE, OMM_DECLINED_MEMORY}, /* more than max_memory_mb */
                 {OMM_ERR_MISMATCH, OMM_DECLINED_FILES},
                 {OMM_ERR_NOT_FOUND, OMM_DECLINED_FILES},
                 {OMM_ERR_CANCELLED, OMM_DECLINED_PAUSED},
                 {OMM_ERR_REFUSED_RECIPE, OMM_DECLINED_RECIPE}};
    victim v;
    victim_open(&v);
    omm_training *training = v.p.f.training[PEER];
    omm_err (*const plan)(omm_training *, omm_training_plan *, omm_bytes) = training->plan;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s_plan_fails = cases[i].err;
        training->plan = fail_plan;
        victim_offer_honest(&v);
        training->plan = plan;
        CHECK(strcmp(omm_node_get_status(v.node).left, "plan: no") == 0);
        CHECK_EQ(victim_poll(&v).declined, cases[i].declined);
    }
    CHECK_EQ(victim_declined(&v, 0, "plan: no"), sizeof cases / sizeof *cases);
    victim_close(&v);
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
    for (int i = 0; i < 3; i++) victim_offer(&v, change_base, &v.p.f.coordinator_key);
    victim_offer(&v, change_selected, &v.p.f.coordinator_key);
    CHECK_EQ(victim_declined(&v, 0, "base_digest: not our model"), 3);
    (void)victim_declined(&v, 1, NULL);
    victim_offer(&v, change_tokenizer, &v.p.f.coordinator_key);
    CHECK_EQ(victim_declined(&v, 0, "tokenizer_digest"), 1);
    CHECK_EQ(victim_declined(&v, 1, "base_digest"), 3);
    for (int i = 0; i < MANY; i++) victim_offer(&v, change_alpha, &v.p.f.coordinator_key);
    CHECK_EQ(victim_declined(&v, 0, "adapter.rank: 1024"), 1);
    CHECK_EQ(victim_declined(&v, SHOWN - 1, "adapter.rank: 1005"), 1);
    (void)victim_declined(&v, SHOWN, NULL);
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

static void refused_by(victim *v, const omm_node_limits *limits, const char *field, uint64_t limit,
                       omm_declined declined) {
    char says[64];
    (void)snprintf(says, sizeof says, "over our limit of %" PRIu64, limit);
    victim_reopen(v, limits);
    victim_offer_honest(v);
    CHECK_EQ(victim_asked(v), OMM_REQUEST_POLL);
    const omm_node_status status = omm_node_get_status(v->node);
    const bool is_said =
        strncmp(status.left, field, strlen(field)) == 0 && strstr(status.left, says);
    if (!is_said) fprintf(stderr, "%s %s: it left for \"%s\"\n", field, says, status.left);
    CHECK(is_said);
    CHECK_EQ(victim_poll(v).declined, declined);
}

/* With every limit at what the offer takes it is followed; with one of them one lower its owner reads which one it was. */
static void limits_of_its_owner(void) {
    victim v;
    victim_open(&v);
    const omm_node_limits needed = limits_needed(&v);
#define ONE_BELOW(limit, field, declined)                                                          \
    do {                                                                                           \
        omm_node_limits lower = needed;                                                            \
        CHECK(lower.limit > 0);                                                                    \
        lower.limit--;                                                                             \
        refused_by(&v, &lower, field, lower.limit, OMM_DECLINED_##declined);                       \
    } while (0)
    ONE_BELOW(rank_max, "adapter.rank: 2 is", ADAPTER);
    ONE_BELOW(adapter_values_max, "adapter.value_count: 34 is", ADAPTER);
    ONE_BELOW(download_bytes_max, "global.size: ", TRAFFIC);
    ONE_BELOW(steps_max, "recipe.steps: 3 is", WORK);
    ONE_BELOW(tokens_max, "recipe: up to 120 tokens, ", WORK);
    ONE_BELOW(pass_tokens_max, "recipe: up to 40 tokens at once, ", MEMORY);
    ONE_BELOW(upload_bytes_max, "codec_up: up to ", TRAFFIC);
#undef ONE_BELOW
    victim_reopen(&v, &needed);
    victim_offer_honest(&v);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_GET);
    victim_close(&v);
}

/* What its database could not hold, or no message could carry, is declined before anything is trained, whatever its owner allows. */
static void change_values_at_most(omm_offer *o) {
    o->adapter.value_count = OMM_NODE_ADAPTER_VALUES_MAX;
}
static void change_values_too_many(omm_offer *o) {
    o->adapter.value_count = OMM_NODE_ADAPTER_VALUES_MAX + 1;
}

static omm_layout s_large;

static omm_err lay_large(omm_training *api, omm_layout *out, omm_bytes recipe) {
    (void)api, (void)recipe;
    *out = s_large;
    return OMM_OK;
}

/* All values but one, each with its place: more bytes than the values. */
static void change_payload_too_large(omm_offer *o) {
    static uint8_t up[OMM_CODEC_BYTES], down[OMM_CODEC_BYTES];
    omm_codec_put(up, &(omm_codec){OMM_CODEC_NONE, OMM_NODE_ADAPTER_VALUES_MAX - 1, 0, true});
    omm_codec_put(down, &(omm_codec){OMM_CODEC_NONE, 0, 0, false});
    change_values_at_most(o);
    o->adapter.layout_digest = omm_layout_digest(&s_large);
    o->codec_up = omm_bytes_of(up, sizeof up);
    o->codec_down = omm_bytes_of(down, sizeof down);
}

static void more_than_it_can_keep(void) {
    static const omm_segment segment = {.name = "a", .rows = 240000, .cols = 1000};
    victim v;
    omm_node_limits limits = omm_node_limits_default();
    CHECK(4 * limits.adapter_values_max < 1000000000);
    limits.adapter_values_max = limits.upload_bytes_max = UINT64_MAX;
    victim_open(&v);
    victim_reopen(&v, &limits);
    victim_offer(&v, change_values_too_many, &v.p.f.coordinator_key);
    CHECK_EQ(victim_declined(&v, 0, "240000001 is more than the 240000000 that a node can keep"),
             1);
    CHECK_EQ(victim_poll(&v).declined, OMM_DECLINED_ADAPTER);
    victim_offer(&v, change_values_at_most, &v.p.f.coordinator_key);
    CHECK_EQ(victim_declined(&v, 0, "adapter.layout_digest"), 1);
    s_large = (omm_layout){&segment, 1, OMM_NODE_ADAPTER_VALUES_MAX};
    v.p.f.training[PEER]->layout = lay_large;
    victim_offer(&v, change_payload_too_large, &v.p.f.coordinator_key);
    CHECK_EQ(victim_declined(&v, 0, "bytes, and at most 805306368 travel"), 1);
    CHECK_EQ(victim_poll(&v).declined, OMM_DECLINED_TRAFFIC);
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
    victim_offer_honest(&v);
    victim_give_chunks(&v);
    victim_work(&v);
    victim_refuse(&v);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    const omm_node_limits limits = omm_node_limits_default();
    if (restart) victim_reopen(&v, &limits);
    victim_offer(&v, change_deadline, &v.p.f.coordinator_key);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    victim_offer(&v, change_nonce, &v.p.f.coordinator_key);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    (void)victim_declined(&v, 0, NULL); /* not for its owner to do anything about */
    victim_offer_honest(&v);            /* the same offer may be tried again */
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_GET);
    victim_close(&v);
}

/* ---- uploads without end, chunks without end ---- */

#define NEEDS (4u + 64u) /* for a payload of one chunk */

static void need_without_end(void) {
    victim v;
    victim_open(&v);
    victim_offer_honest(&v);
    victim_give_chunks(&v);
    victim_work(&v);
    static const uint32_t first[1] = {0};
    uint32_t sent = 0;
    for (uint32_t i = 0; i < 2000; i++) {
        omm_request_kind kind = victim_asked(&v);
        if (kind == OMM_REQUEST_POLL) break;
        sent += kind == OMM_REQUEST_PUT;
        victim_answer(&v,
                      &(omm_reply){.kind = OMM_REPLY_NEED, .missing = first, .missing_count = 1});
    }
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL); /* given up */
    CHECK_EQ(sent, 3 * NEEDS);                    /* after as many attempts as refusals have */
    victim_close(&v);
}

/* A chunk that it does not have. */
static void need_beyond_the_end(void) {
    victim v;
    victim_open(&v);
    victim_offer_honest(&v);
    victim_give_chunks(&v);
    victim_work(&v);
    static const uint32_t wrong[2] = {0, 1}; /* all of it is one chunk */
    victim_answer(&v, &(omm_reply){.kind = OMM_REPLY_NEED, .missing = wrong, .missing_count = 2});
    CHECK_EQ(v.action.kind, OMM_NODE_WAIT);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_SUBMIT);
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
    victim_offer_honest(&v);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_GET);
    omm_reply chunk = {.kind = OMM_REPLY_CHUNK,
                       .digest = v.p.offer.global.digest,
                       .index = 0,
                       .data = omm_bytes_str("not the adapter")};
    victim_answer(&v, &chunk);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    victim_offer_honest(&v);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_GET);
    chunk.index = 7;
    victim_answer(&v, &chunk);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    CHECK(strstr(omm_node_get_status(v.node).left, "not the one we asked for"));
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
        victim_offer(&v, changes[i], &v.p.f.coordinator_key);
        CHECK_EQ(victim_asked(&v), OMM_REQUEST_GET);
        peer_send(&v.p, &(omm_request){.kind = OMM_REQUEST_GET, .digest = v.p.offer.global.digest});
        v.p.last.digest = offer.global.digest;
        victim_answer(&v, &v.p.last);
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
    victim_offer(v, change_canary, &v->p.f.coordinator_key);
    CHECK_EQ(victim_asked(v), OMM_REQUEST_GET);
    peer_send(&v->p, &(omm_request){.kind = OMM_REQUEST_GET, .digest = v->p.offer.global.digest});
    CHECK_EQ(v->p.last.kind, OMM_REPLY_CHUNK);
    victim_answer(v, &v->p.last);
    CHECK_EQ(victim_asked(v), OMM_REQUEST_GET);
}

static void give_shard(victim *v, const omm_digest *digest, uint32_t index, omm_bytes data) {
    victim_answer(
        v, &(omm_reply){.kind = OMM_REPLY_CHUNK, .digest = *digest, .index = index, .data = data});
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
        CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    }
    offer_canary(&v, all, &other);
    give_shard(&v, &other, 0, first);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_GET);
    give_shard(&v, &other, 1, second);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    offer_canary(&v, all, &digest);
    give_shard(&v, &digest, 0, first);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_GET);
    give_shard(&v, &digest, 1, second);
    CHECK_EQ(v.action.kind, OMM_NODE_WORK);
    omm_buf_fini(&changed);
    victim_close(&v);
}

/* After a canary a submission of its own is its own, over a restart too: its verdict counts, and the canary was no answer to
 * the round. */
static void canary_then_own(bool restart) {
    victim v;
    victim_open(&v);
    const omm_bytes all = omm_bytes_str("some public data");
    const omm_digest digest = omm_hash(all);
    const omm_node_limits limits = omm_node_limits_default();
    offer_canary(&v, all, &digest);
    give_shard(&v, &digest, 0, all);
    victim_work(&v);
    if (restart) victim_reopen(&v, &limits);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_SUBMIT);
    omm_receipt yes = victim_receipt(&v, OMM_OK);
    victim_answer_receipt(&v, &yes, &v.p.f.coordinator_key);
    CHECK_EQ(omm_node_get_status(v.node).rounds_accepted, 0);
    if (restart) victim_reopen(&v, &limits);
    CHECK_EQ(victim_poll(&v).rounds_seen, 0);
    victim_check_sent(&v, "canaries", 1, "OK");
    victim_offer_honest(&v);
    victim_give_chunks(&v);
    victim_work(&v);
    if (restart) victim_reopen(&v, &limits);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_SUBMIT);
    yes = victim_receipt(&v, OMM_OK);
    victim_answer_receipt(&v, &yes, &v.p.f.coordinator_key);
    CHECK_EQ(victim_poll(&v).rounds_seen, 1);
    victim_check_sent(&v, "rounds", 1, "OK");
    victim_close(&v);
}

/* ---- what is whole ---- */

static omm_request request_of(victim *v) {
    omm_request request;
    victim_until_active(v);
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
    victim_answer(&v, &no);
    CHECK_EQ(v.action.kind, OMM_NODE_SEND); /* without a pause */
    CHECK(!request_of(&v).whole);
    victim_answer(&v, &no); /* whatever is wrong now, it is not that */
    CHECK_EQ(v.action.kind, OMM_NODE_WAIT);
    CHECK(!request_of(&v).whole);
    victim_offer_honest(&v);
    victim_give_chunks(&v);
    victim_work(&v);
    CHECK_EQ(request_of(&v).data.size, 0);
    victim_refuse(&v);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
    victim_close(&v);
}

/* The same, but it says so only when the submission comes: that is no refusal of the work. */
static void does_not_know_whole_submissions(void) {
    victim v;
    victim_open_as(&v, true);
    const omm_reply no = {
        .kind = OMM_REPLY_REFUSED, .reason = OMM_ERR_REFUSED_FORMAT, .sentence = "unknown fields"};
    victim_offer_honest(&v);
    victim_give_chunks(&v);
    victim_work(&v);
    CHECK(request_of(&v).data.size > 0);
    victim_answer(&v, &no);
    CHECK_EQ(v.action.kind, OMM_NODE_SEND);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_SUBMIT);
    CHECK_EQ(request_of(&v).data.size, 0);
    const uint32_t indices[1] = {0};
    victim_answer(&v, &(omm_reply){.kind = OMM_REPLY_NEED, .missing = indices, .missing_count = 1});
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_PUT);
    victim_close(&v);
}

/* Told to come again at once, without end.  Returns how often the payload went along with what it asked a hundred times. */
static uint32_t put_off(victim *v) {
    uint32_t payloads = 0;
    for (uint32_t i = 0; i < 100; i++) {
        const uint64_t begin_ms = v->now_ms;
        payloads += request_of(v).data.size > 0;
        CHECK_EQ(request_of(v).kind, OMM_REQUEST_SUBMIT);
        victim_answer(v, &(omm_reply){.kind = OMM_REPLY_WAIT});
        victim_until_active(v);
        CHECK_EQ(v->now_ms - begin_ms, i < 9 ? 10u << i : 5000u);
    }
    return payloads;
}

/* The payload goes three times; then whoever wants it asks for it.  The next submission is another one. */
static void wait_without_end(void) {
    victim v;
    victim_open_as(&v, true);
    const omm_bytes all = omm_bytes_str("some public data");
    const omm_digest digest = omm_hash(all);
    const uint32_t first[1] = {0};
    victim_answer(&v, &(omm_reply){.kind = OMM_REPLY_WAIT}); /* nor does it poll without end */
    CHECK_EQ(v.action.kind, OMM_NODE_WAIT);
    CHECK_EQ(v.action.until_ms, v.now_ms + 10);
    offer_canary(&v, all, &digest);
    give_shard(&v, &digest, 0, all);
    victim_work(&v);
    CHECK_EQ(put_off(&v), 3);
    victim_answer(&v, &(omm_reply){.kind = OMM_REPLY_NEED, .missing = first, .missing_count = 1});
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_PUT);
    victim_answer(&v, &(omm_reply){.kind = OMM_REPLY_NEED});
    CHECK_EQ(request_of(&v).data.size, 0); /* that it was wanted once makes no new start */
    victim_refuse(&v);
    victim_offer_honest(&v);
    victim_give_chunks(&v);
    victim_work(&v);
    CHECK_EQ(put_off(&v), 3);
    victim_refuse(&v);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_POLL);
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
    victim_answer(&v, &offer);
    CHECK_EQ(victim_asked(&v), OMM_REQUEST_GET);
    victim_give_chunks(&v);
    CHECK_EQ(v.action.kind, OMM_NODE_WORK);
    victim_close(&v);
    victim_open_as(&v, true);
    peer_send(&v.p, &(omm_request){.kind = OMM_REQUEST_GET, .digest = v.p.offer.global.digest});
    CHECK_EQ(v.p.last.kind, OMM_REPLY_CHUNK);
    offer.envelope = omm_buf_view(&v.offer);
    offer.data = v.p.last.data;
    victim_answer(&v, &offer);
    CHECK_EQ(v.action.kind, OMM_NODE_WORK);
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
    left_is_said();
    refuses_every_form();
    refuses_no_form();
    plan_fails();
    does_not_know_declined();
    limits_of_its_owner();
    more_than_it_can_keep();
    no_second_offer_for_a_round(false);
    no_second_offer_for_a_round(true);
    need_without_end();
    need_beyond_the_end();
    wrong_chunk();
    adapter_of_other_digests();
    wrong_shard();
    canary_then_own(false);
    canary_then_own(true);
    does_not_know_whole();
    does_not_know_whole_submissions();
    wait_without_end();
    adapter_with_the_offer();
    state_dir_of_another();
    return 0;
}

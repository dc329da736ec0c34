/* What is small travels whole: fewer messages and the same evidence, whatever is lost, repeated, flipped or killed
 * on the way; and neither a coordinator that does not know it nor somebody who lies about it does harm. */
#include "peer.h"

#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>

/* ---- the same run in fewer messages ---- */

static omm_digest s_reference;
static uint64_t s_messages; /* of a run with whole ones */

static fed_options whole_options(void) {
    fed_options options = fed_options_default();
    options.whole = true;
    return options;
}

static void same_as_reference(const fed_options *options) {
    omm_digest digest = fed_digest_of_run(options, NULL, NULL);
    CHECK(omm_digest_equal(&digest, &s_reference));
}

/* Two messages less for each node and round: its chunk down, and its chunk up. */
static void fewer_messages(void) {
    fed_options options = fed_options_default();
    uint64_t plain = 0;
    s_reference = fed_digest_of_run(&options, &plain, NULL);
    options.whole = true;
    omm_digest digest = fed_digest_of_run(&options, &s_messages, NULL);
    CHECK(omm_digest_equal(&digest, &s_reference));
    CHECK_EQ(plain - s_messages, 2u * options.nodes * options.rounds);
}

static void each_message_has_a_fault_once(void) {
    for (int fault = FED_LOSE_REQUEST; fault <= FED_TWICE; fault++)
        for (uint64_t i = fault == FED_LOSE_REPLY; i < s_messages; i += 3) {
            fed_one_fault at = {i, (fed_fault)fault};
            fed_options options = whole_options();
            options.batched = i % 4 < 2;
            options.fault = fed_fault_once;
            options.ud = &at;
            same_as_reference(&options);
        }
}

/* A flipped bit of the adapter that came with an offer costs a question for it. */
static void damaged_answers_cost_only_time(void) {
    fed_options options = whole_options();
    options.deadline_ms = options.join_ms = 100000000;
    omm_digest expected = fed_digest_of_run(&options, NULL, NULL);
    for (uint64_t i = 0; i < s_messages; i += 3) {
        fed_one_fault at = {i, FED_FLIP};
        options.fault = fed_fault_once;
        options.ud = &at;
        omm_digest digest = fed_digest_of_run(&options, NULL, NULL);
        CHECK(omm_digest_equal(&digest, &expected));
    }
}

static void restarts_and_failed_commits_do_not_matter(void) {
    fed_options all = whole_options();
    all.on_disk = all.restart_coordinator = all.restart_nodes = true;
    same_as_reference(&all);
    for (uint64_t i = 0; i < s_messages; i += 9) {
        fed_one_fault at = {i, FED_UNDO};
        fed_options options = whole_options();
        options.on_disk = options.batched = true;
        options.fault = fed_fault_once;
        options.ud = &at;
        same_as_reference(&options);
    }
}

/* What is not small goes in chunks, as without it: the payloads, and the adapter of the second round.  The first one is
 * nearly all zeros and small. */
static void large_ones_go_in_chunks(void) {
    fed_options options = fed_options_default();
    options.nodes = 2;
    options.values_cols = 140000;
    uint64_t messages[2];
    omm_digest plain = fed_digest_of_run(&options, &messages[0], NULL);
    options.whole = true;
    omm_digest whole = fed_digest_of_run(&options, &messages[1], NULL);
    CHECK(omm_digest_equal(&plain, &whole));
    CHECK_EQ(messages[0] - messages[1], options.nodes);
}

/* A coordinator that takes only shorter messages than that, as one of a smaller run may, hears the manifest alone after some attempts. */
static void too_long_goes_in_chunks(void) {
    fed_options options = whole_options();
    options.values_cols = 2000;
    fed f;
    fed_open(&f, &options);
    fed_run(&f);
    const omm_digest expected = fed_bundle_digest(&f);
    options.request_bytes_max = f.longest - 200;
    fed_close(&f);
    fed_open(&f, &options);
    fed_run(&f);
    CHECK(f.too_long > 0);
    const omm_digest digest = fed_bundle_digest(&f);
    CHECK(omm_digest_equal(&digest, &expected));
    fed_close(&f);
}

/* ---- one peer, word by word ---- */

static void submit_with(peer *p, omm_bytes payload) {
    omm_request request = {
        .kind = OMM_REQUEST_SUBMIT, .envelope = omm_buf_view(&p->envelope), .data = payload};
    peer_send(p, &request);
}

static void submit_whole(peer *p) {
    submit_with(p, omm_buf_view(&p->payload));
}

static void open_and_seal(peer *p) {
    fed_options options = peer_options();
    peer_open(p, &options);
    peer_until_open(p, 0);
    peer_fill(p, NULL);
    peer_seal(p, OMM_CONTEXT_SUBMISSION, &p->f.keys[PEER]);
}

static void end(peer *p, uint32_t accepted) {
    fed_run(&p->f);
    CHECK_EQ(peer_last_round(p).accepted_count, accepted);
    fed_seal_and_verify(&p->f);
    peer_close(p);
}

/* So many bytes of the last message and of its answer were an adapter's. */
static void adapters_passed(const peer *p, size_t up, size_t down) {
    const omm_coord_payload passed = omm_coord_last_payload(p->f.coord);
    CHECK_EQ(passed.up, up);
    CHECK_EQ(passed.down, down);
}

static omm_err verdict(peer *p, bool is_receipt) {
    bool receipt = false;
    omm_err reason = peer_reason_of(p, &receipt);
    CHECK_EQ(receipt, is_receipt);
    return reason;
}

static void one_question_one_receipt(void) {
    peer p;
    open_and_seal(&p);
    submit_whole(&p);
    CHECK_EQ(verdict(&p, true), OMM_OK);
    adapters_passed(&p, p.payload.size, 0);
    omm_buf first;
    omm_buf_init(&first, OMM_MESSAGE_BYTES_MAX);
    CHECK_OK(omm_buf_append(&first, p.reply.data, p.reply.size));
    submit_whole(&p); /* the answer was lost */
    adapters_passed(&p, p.payload.size, 0);
    CHECK(omm_bytes_equal(omm_buf_view(&first), omm_buf_view(&p.reply)));
    peer_submit(&p);
    CHECK(omm_bytes_equal(omm_buf_view(&first), omm_buf_view(&p.reply)));
    submit_with(&p, omm_bytes_str("another payload")); /* nobody looks at it any more */
    CHECK(omm_bytes_equal(omm_buf_view(&first), omm_buf_view(&p.reply)));
    omm_buf_fini(&first);
    end(&p, 3);
}

/* Announced without, then with it; its chunk is missing in between. */
static void announced_before(void) {
    peer p;
    open_and_seal(&p);
    peer_submit(&p);
    CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
    adapters_passed(&p, 0, 0);
    submit_with(&p, omm_bytes_str("not the payload"));
    CHECK_EQ(verdict(&p, false), OMM_ERR_REFUSED_DIGEST);
    adapters_passed(&p, 0, 0);
    submit_whole(&p);
    CHECK_EQ(verdict(&p, true), OMM_OK);
    end(&p, 3);
}

/* Somebody on the way changes the payload, which no signature covers: nothing is remembered of it, nobody is refused. */
static void payload_changed_on_the_way(void) {
    peer p;
    open_and_seal(&p);
    omm_buf other;
    omm_buf_init(&other, OMM_WHOLE_BYTES_MAX);
    CHECK_OK(omm_buf_append(&other, p.payload.data, p.payload.size));
    other.data[other.size - 1] ^= 1;
    submit_with(&p, omm_buf_view(&other));
    CHECK_EQ(verdict(&p, false), OMM_ERR_REFUSED_DIGEST);
    submit_with(&p, omm_bytes_of(p.payload.data, p.payload.size - 1));
    CHECK_EQ(verdict(&p, false), OMM_ERR_REFUSED_DIGEST);
    CHECK(!omm_coord_get_node(p.f.coord, p.f.of_node[PEER]).uploading);
    CHECK(!omm_coord_get_node(p.f.coord, p.f.of_node[PEER]).settled);
    submit_whole(&p);
    CHECK_EQ(verdict(&p, true), OMM_OK);
    omm_buf_fini(&other);
    end(&p, 3);
}

/* The chunk is right and the whole is not: the manifest contradicts itself, which is its node's fault. */
static void contradicting_manifest(void) {
    peer p;
    fed_options options = peer_options();
    peer_open(&p, &options);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    p.s.payload.digest.b[0] ^= 1;
    peer_seal(&p, OMM_CONTEXT_SUBMISSION, &p.f.keys[PEER]);
    submit_whole(&p);
    CHECK_EQ(verdict(&p, true), OMM_ERR_REFUSED_DIGEST);
    adapters_passed(&p, p.payload.size, 0); /* it was one all the same */
    CHECK(omm_coord_get_node(p.f.coord, p.f.of_node[PEER]).settled);
    end(&p, 2);
}

/* What the signature, the key and the limits refuse is refused before anybody looks at the payload. */
static void signature_first(void) {
    peer p;
    open_and_seal(&p);
    omm_key stranger;
    omm_seed seed = omm_seed_from_u64(99);
    omm_key_from_seed(&stranger, &seed);
    peer_seal(&p, OMM_CONTEXT_SUBMISSION, &stranger);
    submit_with(&p, omm_bytes_str("not the payload"));
    CHECK_EQ(verdict(&p, false), OMM_ERR_REFUSED_KEY);
    adapters_passed(&p, 0, 0);
    p.s.payload.size = (uint64_t)1 << 29;
    p.s.payload.chunk_count = omm_chunk_count(p.s.payload.size);
    omm_digest *chunks = omm_arena_alloc(&p.arena, p.s.payload.chunk_count, sizeof *chunks);
    CHECK(chunks);
    p.s.payload.chunk_digests = chunks;
    peer_seal(&p, OMM_CONTEXT_SUBMISSION, &p.f.keys[PEER]);
    submit_with(&p, omm_bytes_str("not the payload"));
    CHECK_EQ(verdict(&p, true), OMM_ERR_REFUSED_BUDGET);
    end(&p, 2);
}

/* Only who asks gets the adapter with the offer. */
static void offers_with_and_without(void) {
    peer p;
    fed_options options = peer_options();
    peer_open(&p, &options);
    peer_until_open(&p, 0);
    CHECK_EQ(p.last.data.size, 0);
    peer_poll_with(&p, &(omm_poll){0}, true);
    CHECK_EQ(p.last.kind, OMM_REPLY_OFFER);
    omm_digest global = omm_hash(p.last.data);
    CHECK(omm_digest_equal(&global, &p.offer.global.digest));
    adapters_passed(&p, 0, p.offer.global.size);
    peer_fill(&p, NULL);
    peer_give(&p);
    end(&p, 3);
}

int main(void) {
    fewer_messages();
    each_message_has_a_fault_once();
    damaged_answers_cost_only_time();
    restarts_and_failed_commits_do_not_matter();
    large_ones_go_in_chunks();
    too_long_goes_in_chunks();
    one_question_one_receipt();
    announced_before();
    payload_changed_on_the_way();
    contradicting_manifest();
    signature_first();
    offers_with_and_without();
    return 0;
}

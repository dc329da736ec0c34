/* Every way to be refused: its reason, who is told how, whether the node is done for the round, and
 * what the evidence keeps.  Then floods, which must leave a bounded mark. */
#include "federation.h"

#include "omm/codec.h"
#include "omm/envelope.h"
#include "omm/mem.h"
#include "omm/messages.h"
#include "omm_test.h"

#include <math.h>
#include <string.h>

#define PEER 2u /* the node whose key the test uses itself */

typedef struct peer {
    fed f;
    omm_arena arena;
    omm_buf reply;
    omm_reply last;
    omm_offer offer;
    omm_digest offer_digest;
    uint64_t counter;
    /* what is sent */
    omm_submission s;
    omm_buf payload;
    omm_buf envelope;
} peer;

static void send_request(peer *p, const omm_request *request) {
    omm_buf bytes;
    omm_buf_init(&bytes, (size_t)1 << 20);
    CHECK_OK(omm_request_encode(&bytes, request));
    fed_send(&p->f, &p->reply, omm_buf_view(&bytes));
    CHECK_OK(omm_reply_decode(&p->last, omm_buf_view(&p->reply), &p->arena));
    omm_buf_fini(&bytes);
}

static void poll(peer *p) {
    omm_buf payload;
    omm_buf envelope;
    omm_buf_init(&payload, 4096);
    omm_buf_init(&envelope, 4096);
    omm_poll poll = {.counter = ++p->counter};
    CHECK_OK(omm_poll_encode(&payload, &poll));
    CHECK_OK(
        omm_envelope_seal(&envelope, OMM_CONTEXT_POLL, omm_buf_view(&payload), &p->f.keys[PEER]));
    omm_request request = {.kind = OMM_REQUEST_POLL, .envelope = omm_buf_view(&envelope)};
    send_request(p, &request);
    omm_buf_fini(&payload);
    omm_buf_fini(&envelope);
}

static void take_offer(peer *p) {
    omm_envelope envelope;
    CHECK_EQ(p->last.kind, OMM_REPLY_OFFER);
    p->offer_digest = omm_hash(p->last.envelope);
    CHECK_OK(omm_envelope_open_as(&envelope, OMM_CONTEXT_OFFER, p->last.envelope));
    CHECK_OK(omm_offer_decode(&p->offer, envelope.payload, &p->arena));
}

/* Let the honest ones go on until the round is open, then take the offer. */
static void until_open(peer *p, uint32_t round) {
    for (int i = 0; i < 1000; i++) {
        omm_coord_status status = omm_coord_get_status(p->f.coord);
        if (status.state == OMM_COORD_OPEN && status.round == round) break;
        if (status.state == OMM_COORD_JOINING) poll(p);
        CHECK(fed_step(&p->f));
    }
    poll(p);
    take_offer(p);
}

/* Encode `values` (zeros when NULL) and describe an honest submission of them. */
static void fill(peer *p, const float *values) {
    size_t n = p->f.run.layout.value_count;
    float *zeros = omm_alloc(n, sizeof *zeros);
    CHECK(zeros);
    zeros[0] = 0.01f;
    omm_encoded info;
    omm_buf_clear(&p->payload);
    CHECK_OK(omm_codec_encode(&p->payload, &info, &p->f.run.codec_up, &p->f.run.layout,
                              values ? values : zeros));
    memset(zeros, 0, n * sizeof *zeros);
    omm_digest residual = omm_hash(omm_bytes_of(zeros, n * sizeof *zeros));
    omm_free(zeros);
    static const uint8_t steps[24];
    p->s = (omm_submission){.round = p->offer.round,
                            .nonce = p->offer.nonce,
                            .offer_digest = p->offer_digest,
                            .base_digest = p->offer.base_digest,
                            .global_digest = p->offer.global.digest,
                            .tokens = 100,
                            .examples = 3,
                            .steps = 3,
                            .loss_before = 2,
                            .loss_after = 1,
                            .codec = p->offer.codec_up,
                            .residual_before = residual,
                            .residual_after = residual,
                            .step_digests = omm_bytes_of(steps, sizeof steps)};
    memcpy(p->s.run_id, p->offer.run_id, sizeof p->s.run_id);
    CHECK_OK(omm_blob_describe(&p->s.payload, &p->arena, omm_buf_view(&p->payload),
                               &info.payload_digest));
}

static void seal(peer *p, omm_context context, const omm_key *key) {
    omm_buf payload;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    CHECK_OK(omm_submission_encode(&payload, &p->s));
    omm_buf_clear(&p->envelope);
    CHECK_OK(omm_envelope_seal(&p->envelope, context, omm_buf_view(&payload), key));
    omm_buf_fini(&payload);
}

static void submit(peer *p) {
    omm_request request = {.kind = OMM_REQUEST_SUBMIT, .envelope = omm_buf_view(&p->envelope)};
    send_request(p, &request);
}

static void upload(peer *p) {
    while (p->last.kind == OMM_REPLY_NEED && p->last.missing_count > 0) {
        uint32_t index = p->last.missing[0];
        omm_request request = {.kind = OMM_REQUEST_PUT,
                               .digest = p->s.payload.digest,
                               .index = index,
                               .data = omm_chunk_view(omm_buf_view(&p->payload), index)};
        send_request(p, &request);
    }
}

/* Replace the payload bytes and everything that names them. */
static void set_payload(peer *p, omm_bytes sent) {
    omm_digest canonical = p->s.payload.canonical;
    omm_buf_clear(&p->payload);
    CHECK_OK(omm_buf_append(&p->payload, sent.data, sent.size));
    CHECK_OK(omm_blob_describe(&p->s.payload, &p->arena, omm_buf_view(&p->payload), &canonical));
}

/* ---- the cases ---- */

typedef struct refusal {
    const char *name;
    void (*act)(peer *p); /* after fill: change it, seal and submit */
    omm_err reason;
    bool receipt; /* told by a signed receipt */
    bool settles;
    bool records; /* leaves a line in the round's refused list */
} refusal;

static void honest_seal_and_submit(peer *p) {
    seal(p, OMM_CONTEXT_SUBMISSION, &p->f.keys[PEER]);
    submit(p);
    upload(p);
}

static void act_unsigned(peer *p) {
    seal(p, OMM_CONTEXT_SUBMISSION, &p->f.keys[PEER]);
    omm_envelope envelope;
    omm_buf copy;
    omm_buf_init(&copy, OMM_ENVELOPE_BYTES_MAX);
    CHECK_OK(omm_envelope_open(&envelope, omm_buf_view(&p->envelope)));
    envelope.is_signed = false;
    CHECK_OK(omm_envelope_encode(&copy, &envelope));
    omm_buf_clear(&p->envelope);
    CHECK_OK(omm_buf_append(&p->envelope, copy.data, copy.size));
    omm_buf_fini(&copy);
    submit(p);
}

static void act_bad_signature(peer *p) {
    seal(p, OMM_CONTEXT_SUBMISSION, &p->f.keys[PEER]);
    p->envelope.data[p->envelope.size - 1] ^= 1;
    submit(p);
}

static void act_stranger(peer *p) {
    omm_key key;
    omm_seed seed = omm_seed_from_u64(99);
    omm_key_from_seed(&key, &seed);
    seal(p, OMM_CONTEXT_SUBMISSION, &key);
    submit(p);
}

static void act_context(peer *p) {
    seal(p, OMM_CONTEXT_POLL, &p->f.keys[PEER]);
    submit(p);
}

static void act_junk_inside(peer *p) {
    omm_buf_clear(&p->envelope);
    CHECK_OK(omm_envelope_seal(&p->envelope, OMM_CONTEXT_SUBMISSION, omm_bytes_str("no submission"),
                               &p->f.keys[PEER]));
    submit(p);
}

static void act_no_envelope(peer *p) {
    omm_buf_clear(&p->envelope);
    CHECK_OK(omm_buf_printf(&p->envelope, "no envelope at all"));
    submit(p);
}

static void act_run_id(peer *p) {
    p->s.run_id[0] = p->s.run_id[0] == '0' ? '1' : '0';
    honest_seal_and_submit(p);
}
static void act_round(peer *p) {
    p->s.round++;
    honest_seal_and_submit(p);
}
static void act_nonce(peer *p) {
    p->s.nonce.b[0] ^= 1;
    honest_seal_and_submit(p);
}
static void act_offer_digest(peer *p) {
    p->s.offer_digest.b[31] ^= 1;
    honest_seal_and_submit(p);
}
static void act_base(peer *p) {
    p->s.base_digest.b[0] ^= 1;
    honest_seal_and_submit(p);
}
static void act_global(peer *p) {
    p->s.global_digest.b[0] ^= 1;
    honest_seal_and_submit(p);
}
static void act_tokens(peer *p) {
    p->s.tokens = p->f.run.tokens_max + 1;
    honest_seal_and_submit(p);
}
static void act_steps(peer *p) {
    p->s.steps = 4;
    honest_seal_and_submit(p);
}
static void act_codec(peer *p) {
    static const uint8_t other[OMM_CODEC_BYTES];
    p->s.codec = omm_bytes_of(other, sizeof other);
    honest_seal_and_submit(p);
}

static void act_oversize(peer *p) {
    size_t size = p->offer.payload_bytes_max + 1;
    uint8_t *bytes = omm_alloc(size, 1);
    CHECK(bytes);
    set_payload(p, omm_bytes_of(bytes, size));
    omm_free(bytes);
    honest_seal_and_submit(p);
}

static void act_canonical(peer *p) {
    p->s.payload.canonical.b[0] ^= 1;
    honest_seal_and_submit(p);
}
static void act_payload_digest(peer *p) {
    p->s.payload.digest.b[0] ^= 1;
    honest_seal_and_submit(p);
}

static void act_range(peer *p) {
    float *values = omm_alloc(p->f.run.layout.value_count, sizeof *values);
    CHECK(values);
    values[3] = 1.5f;
    fill(p, values);
    omm_free(values);
    honest_seal_and_submit(p);
}

static void act_norm(peer *p) {
    size_t n = p->f.run.layout.value_count;
    float *values = omm_alloc(n, sizeof *values);
    CHECK(values);
    for (size_t i = 0; i < n; i++) values[i] = 0.9f;
    fill(p, values);
    omm_free(values);
    honest_seal_and_submit(p);
}

/* The payload of honest values with one scale made NaN: it starts after header and indices. */
static void act_nan(peer *p) {
    omm_buf inner;
    omm_buf sent;
    omm_buf_init(&inner, 4096);
    omm_buf_init(&sent, 4096);
    CHECK_OK(omm_codec_unpack(&inner, omm_buf_view(&p->payload), 4096));
    memset(inner.data + OMM_CODEC_HEADER_BYTES, 0xff, 3);
    CHECK_OK(omm_codec_pack(&sent, omm_buf_view(&inner), 0));
    set_payload(p, omm_buf_view(&sent));
    omm_buf_fini(&inner);
    omm_buf_fini(&sent);
    honest_seal_and_submit(p);
}

static void act_truncated(peer *p) {
    omm_buf inner;
    omm_buf sent;
    omm_buf_init(&inner, 4096);
    omm_buf_init(&sent, 4096);
    CHECK_OK(omm_codec_unpack(&inner, omm_buf_view(&p->payload), 4096));
    inner.size -= 2;
    CHECK_OK(omm_codec_pack(&sent, omm_buf_view(&inner), 0));
    set_payload(p, omm_buf_view(&sent));
    omm_buf_fini(&inner);
    omm_buf_fini(&sent);
    honest_seal_and_submit(p);
}

static void act_bomb(peer *p) {
    size_t size = (size_t)1 << 24;
    uint8_t *zeros = omm_alloc(size, 1);
    CHECK(zeros);
    omm_buf sent;
    omm_buf_init(&sent, size);
    CHECK_OK(omm_codec_pack(&sent, omm_bytes_of(zeros, size), 19));
    omm_free(zeros);
    if (sent.size > p->offer.payload_bytes_max) sent.size = p->offer.payload_bytes_max;
    set_payload(p, omm_buf_view(&sent));
    omm_buf_fini(&sent);
    honest_seal_and_submit(p);
}

static void act_duplicate(peer *p) {
    honest_seal_and_submit(p);
    CHECK_EQ(p->last.kind, OMM_REPLY_RECEIPT);
    p->s.tokens = 101;
    honest_seal_and_submit(p);
}

static const refusal s_cases[] = {
    {"unsigned", act_unsigned, OMM_ERR_REFUSED_SIGNATURE, false, false, true},
    {"bad signature", act_bad_signature, OMM_ERR_REFUSED_SIGNATURE, false, false, true},
    {"stranger", act_stranger, OMM_ERR_REFUSED_KEY, false, false, true},
    {"context", act_context, OMM_ERR_REFUSED_CONTEXT, true, false, true},
    {"junk inside", act_junk_inside, OMM_ERR_REFUSED_FORMAT, true, false, true},
    {"no envelope", act_no_envelope, OMM_ERR_REFUSED_FORMAT, false, false, true},
    {"run id", act_run_id, OMM_ERR_REFUSED_ROUND, true, false, true},
    {"round", act_round, OMM_ERR_REFUSED_ROUND, true, false, true},
    {"nonce", act_nonce, OMM_ERR_REFUSED_ROUND, true, false, true},
    {"offer digest", act_offer_digest, OMM_ERR_REFUSED_ROUND, true, false, true},
    {"base", act_base, OMM_ERR_REFUSED_BASE, true, true, true},
    {"global", act_global, OMM_ERR_REFUSED_BASE, true, true, true},
    {"tokens", act_tokens, OMM_ERR_REFUSED_SIZE, true, true, true},
    {"steps", act_steps, OMM_ERR_REFUSED_FORMAT, true, true, true},
    {"codec", act_codec, OMM_ERR_REFUSED_RECIPE, true, true, true},
    {"oversize", act_oversize, OMM_ERR_REFUSED_BUDGET, true, true, true},
    {"canonical digest", act_canonical, OMM_ERR_REFUSED_DIGEST, true, true, true},
    {"payload digest", act_payload_digest, OMM_ERR_REFUSED_DIGEST, true, true, true},
    {"range", act_range, OMM_ERR_REFUSED_RANGE, true, true, true},
    {"norm", act_norm, OMM_ERR_REFUSED_NORM, true, true, true},
    {"nan", act_nan, OMM_ERR_REFUSED_VALUE, true, true, true},
    {"truncated", act_truncated, OMM_ERR_REFUSED_FORMAT, true, true, true},
    {"zstd bomb", act_bomb, OMM_ERR_REFUSED_SIZE, true, true, true},
    {"duplicate", act_duplicate, OMM_ERR_REFUSED_DUPLICATE, true, true, true},
};

/* ---- running them ---- */

static void peer_open(peer *p, const fed_options *options) {
    memset(p, 0, sizeof *p);
    fed_open(&p->f, options);
    omm_arena_init(&p->arena, (size_t)256 << 20);
    omm_buf_init(&p->reply, (size_t)1 << 20);
    omm_buf_init(&p->payload, (size_t)1 << 25);
    omm_buf_init(&p->envelope, OMM_ENVELOPE_BYTES_MAX);
}

static void peer_close(peer *p) {
    fed_close(&p->f);
    omm_arena_fini(&p->arena);
    omm_buf_fini(&p->reply);
    omm_buf_fini(&p->payload);
    omm_buf_fini(&p->envelope);
}

static fed_options peer_options(void) {
    fed_options options = fed_options_default();
    options.silent[PEER] = true;
    options.rounds = 1;
    options.norm_max = 2;
    return options;
}

/* What the reply says: the reason, from a receipt or a refusal. */
static omm_err reason_of(peer *p, bool *receipt) {
    *receipt = p->last.kind == OMM_REPLY_RECEIPT;
    if (!*receipt) {
        CHECK_EQ(p->last.kind, OMM_REPLY_REFUSED);
        CHECK(p->last.sentence[0]);
        return p->last.reason;
    }
    omm_envelope envelope;
    omm_receipt r;
    CHECK_OK(omm_envelope_open_as(&envelope, OMM_CONTEXT_RECEIPT, p->last.envelope));
    CHECK(omm_public_key_equal(&envelope.key, &p->f.coordinator_key.public_key));
    CHECK_OK(omm_receipt_decode(&r, envelope.payload, &p->arena));
    omm_digest digest = omm_hash(omm_buf_view(&p->envelope));
    CHECK(omm_digest_equal(&r.submission_digest, &digest));
    CHECK_EQ(r.accepted, r.reason == OMM_OK);
    CHECK_EQ(r.sentence[0] == '\0', r.accepted);
    return r.reason;
}

static omm_round_record last_round(peer *p) {
    omm_buf text;
    omm_bytes *lines = NULL;
    size_t count = 0;
    omm_round_record round;
    omm_buf_init(&text, (size_t)1 << 24);
    CHECK_OK(omm_bundle_read(&text, p->f.bundle, "rounds.jsonl"));
    CHECK_OK(omm_evidence_lines(&lines, &count, &p->arena, omm_buf_view(&text), 100));
    CHECK_OK(omm_round_record_parse(&round, &p->arena, lines[count - 1]));
    omm_buf_fini(&text);
    return round;
}

static void check_case(const refusal *c) {
    peer p;
    fed_options options = peer_options();
    peer_open(&p, &options);
    until_open(&p, 0);
    fill(&p, NULL);
    c->act(&p);
    bool receipt = false;
    omm_err reason = reason_of(&p, &receipt);
    if (reason != c->reason || receipt != c->receipt)
        fprintf(stderr, "case %s: %s, %s\n", c->name, omm_err_name(reason),
                receipt ? "receipt" : "refusal");
    CHECK_EQ(reason, c->reason);
    CHECK_EQ(receipt, c->receipt);
    /* Again: the same answer, and nothing more in the evidence. */
    omm_digest first = omm_hash(omm_buf_view(&p.reply));
    submit(&p);
    omm_digest second = omm_hash(omm_buf_view(&p.reply));
    CHECK(omm_digest_equal(&first, &second));
    /* Not settled: the node may still do it right. */
    poll(&p);
    CHECK_EQ(p.last.kind == OMM_REPLY_OFFER, !c->settles);
    fed_run(&p.f);
    CHECK(omm_coord_is_done(p.f.coord));
    omm_round_record round = last_round(&p);
    CHECK_EQ(round.refused_count, c->records ? 1 : 0);
    if (strcmp(round.refused[0].reason, omm_err_name(c->reason)) != 0)
        fprintf(stderr, "case %s: evidence says %s\n", c->name, round.refused[0].reason);
    CHECK_EQ(strcmp(round.refused[0].reason, omm_err_name(c->reason)), 0);
    CHECK_EQ(round.refused[0].has_receipt, c->receipt);
    CHECK_EQ(round.refused[0].has_node, c->receipt);
    CHECK_EQ(round.missing_count, c->receipt ? 0 : 1);
    CHECK_EQ(round.accepted_count, c->reason == OMM_ERR_REFUSED_DUPLICATE ? 3 : 2);
    if ((c - s_cases) % 4 == 0) fed_seal_and_verify(&p.f); /* the bootstrap takes its time */
    peer_close(&p);
}

/* ---- what is not a case of the table ---- */

static void not_selected(void) {
    peer p;
    fed_options options = peer_options();
    options.join_ms = 10;
    peer_open(&p, &options);
    for (int i = 0; omm_coord_get_status(p.f.coord).state != OMM_COORD_OPEN; i++) {
        CHECK(i < 1000);
        CHECK(fed_step(&p.f));
    }
    poll(&p);
    CHECK_EQ(p.last.kind, OMM_REPLY_WAIT);
    /* The offer is no secret: what it says is in the stored submission of another node. */
    p.offer = (omm_offer){.round = 0};
    memcpy(p.offer.run_id, p.f.run.run_id, sizeof p.offer.run_id);
    uint8_t codec[OMM_CODEC_BYTES];
    omm_codec_put(codec, &p.f.run.codec_up);
    p.offer.codec_up = omm_bytes_of(codec, sizeof codec);
    fill(&p, NULL);
    honest_seal_and_submit(&p);
    bool receipt = false;
    CHECK_EQ(reason_of(&p, &receipt), OMM_ERR_REFUSED_NOT_SELECTED);
    CHECK(receipt);
    fed_run(&p.f);
    peer_close(&p);
}

static void replay_of_an_earlier_round(void) {
    peer p;
    fed_options options = peer_options();
    options.rounds = 2;
    peer_open(&p, &options);
    until_open(&p, 0);
    fill(&p, NULL);
    honest_seal_and_submit(&p);
    bool receipt = false;
    CHECK_EQ(reason_of(&p, &receipt), OMM_OK);
    omm_digest first = omm_hash(omm_buf_view(&p.reply));
    /* The receipt was lost, the round went on: the same bytes get the same receipt. */
    for (int i = 0; omm_coord_get_status(p.f.coord).round == 0; i++) {
        CHECK(i < 1000);
        CHECK(fed_step(&p.f));
    }
    submit(&p);
    omm_digest again = omm_hash(omm_buf_view(&p.reply));
    CHECK(omm_digest_equal(&first, &again));
    /* With the new offer in hand the same bytes are a replay. */
    until_open(&p, 1);
    submit(&p);
    CHECK_EQ(reason_of(&p, &receipt), OMM_ERR_REFUSED_ROUND);
    CHECK(receipt);
    /* ... which costs the node nothing. */
    fill(&p, NULL);
    honest_seal_and_submit(&p);
    CHECK_EQ(reason_of(&p, &receipt), OMM_OK);
    fed_run(&p.f);
    omm_round_record round = last_round(&p);
    CHECK_EQ(round.accepted_count, 3);
    CHECK_EQ(round.refused_count, 1);
    CHECK_EQ(round.missing_count, 0);
    fed_seal_and_verify(&p.f);
    peer_close(&p);
}

static void wrong_chunks(void) {
    peer p;
    fed_options options = peer_options();
    peer_open(&p, &options);
    until_open(&p, 0);
    fill(&p, NULL);
    seal(&p, OMM_CONTEXT_SUBMISSION, &p.f.keys[PEER]);
    omm_request put = {
        .kind = OMM_REQUEST_PUT, .digest = p.s.payload.digest, .data = omm_buf_view(&p.payload)};
    send_request(&p, &put); /* nobody announced it */
    CHECK_EQ(p.last.kind, OMM_REPLY_REFUSED);
    CHECK_EQ(p.last.reason, OMM_ERR_REFUSED_DIGEST);
    submit(&p);
    CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
    put.index = 1;
    send_request(&p, &put); /* no such chunk */
    CHECK_EQ(p.last.kind, OMM_REPLY_REFUSED);
    put.index = 0;
    put.data = omm_bytes_str("something else");
    send_request(&p, &put); /* not its bytes */
    CHECK_EQ(p.last.kind, OMM_REPLY_REFUSED);
    CHECK_EQ(p.last.reason, OMM_ERR_REFUSED_DIGEST);
    put.data = omm_buf_view(&p.payload);
    send_request(&p, &put);
    bool receipt = false;
    CHECK_EQ(reason_of(&p, &receipt), OMM_OK); /* none of it mattered */
    omm_request get = {.kind = OMM_REQUEST_GET, .digest = p.offer.global.digest, .index = 77};
    send_request(&p, &get);
    CHECK_EQ(p.last.reason, OMM_ERR_REFUSED_SIZE);
    get.digest.b[0] ^= 1;
    send_request(&p, &get);
    CHECK_EQ(p.last.reason, OMM_ERR_REFUSED_DIGEST);
    peer_close(&p);
}

static void not_even_messages(void) {
    peer p;
    fed_options options = peer_options();
    peer_open(&p, &options);
    size_t size = OMM_MESSAGE_BYTES_MAX + 1;
    uint8_t *bytes = omm_alloc(size, 1);
    CHECK(bytes);
    fed_send(&p.f, &p.reply, omm_bytes_of(bytes, size));
    CHECK_OK(omm_reply_decode(&p.last, omm_buf_view(&p.reply), &p.arena));
    CHECK_EQ(p.last.reason, OMM_ERR_REFUSED_SIZE);
    omm_rng lane = {{1}};
    for (uint32_t i = 0; i < 2000; i++) {
        size_t n = omm_rng_u32(&lane, i) % 300;
        for (size_t k = 0; k < n; k++)
            bytes[k] = (uint8_t)omm_rng_u32(&lane, 100000 + (uint64_t)i * 300 + k);
        static const uint8_t as_if_a_poll[3] = {0x08, 0x01, 0x12};
        if (n > 4 && i % 2) memcpy(bytes, as_if_a_poll, sizeof as_if_a_poll);
        fed_send(&p.f, &p.reply, omm_bytes_of(bytes, n));
        CHECK_OK(omm_reply_decode(&p.last, omm_buf_view(&p.reply), &p.arena));
        CHECK_EQ(p.last.kind, OMM_REPLY_REFUSED);
    }
    omm_free(bytes);
    peer_close(&p);
}

static void floods_leave_a_bounded_mark(void) {
    peer p;
    fed_options options = peer_options();
    peer_open(&p, &options);
    until_open(&p, 0);
    for (uint32_t i = 0; i < 300; i++) {
        fill(&p, NULL);
        omm_buf_clear(&p.envelope);
        CHECK_OK(omm_buf_printf(&p.envelope, "junk number %u", i));
        submit(&p);
        CHECK_EQ(p.last.kind, OMM_REPLY_REFUSED);
        p.s.nonce = omm_hash(omm_bytes_of(&i, sizeof i));
        honest_seal_and_submit(&p); /* signed, but of no round */
        CHECK_EQ(p.last.kind, OMM_REPLY_RECEIPT);
    }
    fill(&p, NULL);
    honest_seal_and_submit(&p);
    bool receipt = false;
    CHECK_EQ(reason_of(&p, &receipt), OMM_OK);
    fed_run(&p.f);
    omm_round_record round = last_round(&p);
    CHECK_EQ(round.accepted_count, 3);
    CHECK_EQ(round.refused_count, 32 + 8);
    CHECK_EQ(omm_coord_get_status(p.f.coord).refusals_total, 600);
    fed_seal_and_verify(&p.f);
    peer_close(&p);
}

int main(void) {
    for (size_t i = 0; i < sizeof s_cases / sizeof s_cases[0]; i++) check_case(&s_cases[i]);
    not_selected();
    replay_of_an_earlier_round();
    wrong_chunks();
    not_even_messages();
    floods_leave_a_bounded_mark();
    return 0;
}

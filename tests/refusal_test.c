/* Every way to be refused: its reason, who is told how, whether the node is done for the round, and
 * what the evidence keeps.  Then floods, which must leave a bounded mark. */
#include "peer.h"

#include "omm/codec.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>

/* ---- the cases ---- */

typedef struct refusal {
    const char *name;
    void (*act)(peer *p); /* after fill: change it, seal and submit */
    omm_err reason;
    bool receipt; /* told by a signed receipt */
    bool settles;
    bool records; /* leaves a line in the round's refused list */
} refusal;

static void act_unsigned(peer *p) {
    peer_seal(p, OMM_CONTEXT_SUBMISSION, &p->f.keys[PEER]);
    omm_envelope envelope;
    omm_buf copy;
    omm_buf_init(&copy, OMM_ENVELOPE_BYTES_MAX);
    CHECK_OK(omm_envelope_open(&envelope, omm_buf_view(&p->envelope)));
    envelope.is_signed = false;
    CHECK_OK(omm_envelope_encode(&copy, &envelope));
    omm_buf_clear(&p->envelope);
    CHECK_OK(omm_buf_append(&p->envelope, copy.data, copy.size));
    omm_buf_fini(&copy);
    peer_submit(p);
}

static void act_bad_signature(peer *p) {
    peer_seal(p, OMM_CONTEXT_SUBMISSION, &p->f.keys[PEER]);
    p->envelope.data[p->envelope.size - 1] ^= 1;
    peer_submit(p);
}

static void act_stranger(peer *p) {
    omm_key key;
    omm_seed seed = omm_seed_from_u64(99);
    omm_key_from_seed(&key, &seed);
    peer_seal(p, OMM_CONTEXT_SUBMISSION, &key);
    peer_submit(p);
}

static void act_context(peer *p) {
    peer_seal(p, OMM_CONTEXT_POLL, &p->f.keys[PEER]);
    peer_submit(p);
}

static void act_junk_inside(peer *p) {
    omm_buf_clear(&p->envelope);
    CHECK_OK(omm_envelope_seal(&p->envelope, OMM_CONTEXT_SUBMISSION, omm_bytes_str("no submission"),
                               &p->f.keys[PEER]));
    peer_submit(p);
}

/* Of a newer program, well signed. */
static void act_version(peer *p) {
    omm_buf payload;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_clear(&p->envelope);
    CHECK_OK(omm_submission_encode(&payload, &p->s));
    CHECK(payload.data[0] == 0x08 && payload.data[1] == OMM_WIRE_VERSION);
    payload.data[1]++;
    CHECK_OK(omm_envelope_seal(&p->envelope, OMM_CONTEXT_SUBMISSION, omm_buf_view(&payload),
                               &p->f.keys[PEER]));
    omm_buf_fini(&payload);
    peer_submit(p);
}

static void act_no_envelope(peer *p) {
    omm_buf_clear(&p->envelope);
    CHECK_OK(omm_buf_printf(&p->envelope, "no envelope at all"));
    peer_submit(p);
}

static void act_run_id(peer *p) {
    p->s.run_id[0] = p->s.run_id[0] == '0' ? '1' : '0';
    peer_give(p);
}
static void act_round(peer *p) {
    p->s.round++;
    peer_give(p);
}
static void act_nonce(peer *p) {
    p->s.nonce.b[0] ^= 1;
    peer_give(p);
}
static void act_offer_digest(peer *p) {
    p->s.offer_digest.b[31] ^= 1;
    peer_give(p);
}
static void act_base(peer *p) {
    p->s.base_digest.b[0] ^= 1;
    peer_give(p);
}
static void act_global(peer *p) {
    p->s.global_digest.b[0] ^= 1;
    peer_give(p);
}
static void act_tokens(peer *p) {
    p->s.tokens = p->f.run.tokens_max + 1;
    peer_give(p);
}
static void act_no_tokens(peer *p) {
    p->s.tokens = 0;
    peer_give(p);
}
static void act_residual(peer *p) {
    p->s.residual_before.b[0] ^= 1;
    peer_give(p);
}
static void act_fewer_steps(peer *p) {
    p->s.steps = 2;
    p->s.step_digests.size = 16;
    peer_give(p);
}

static void act_steps(peer *p) {
    p->s.steps = 4;
    peer_give(p);
}
static void act_codec(peer *p) {
    static const uint8_t other[OMM_CODEC_BYTES];
    p->s.codec = omm_bytes_of(other, sizeof other);
    peer_give(p);
}

static void act_oversize(peer *p) {
    size_t size = p->offer.payload_bytes_max + 1;
    uint8_t *bytes = omm_alloc(size, 1);
    CHECK(bytes);
    peer_set_payload(p, omm_bytes_of(bytes, size));
    omm_free(bytes);
    peer_give(p);
}

static void act_canonical(peer *p) {
    p->s.payload.canonical.b[0] ^= 1;
    peer_give(p);
}
static void act_payload_digest(peer *p) {
    p->s.payload.digest.b[0] ^= 1;
    peer_give(p);
}

static void act_range(peer *p) {
    float *values = omm_alloc(p->f.run.layout.value_count, sizeof *values);
    CHECK(values);
    values[3] = 1.5f;
    peer_fill(p, values);
    omm_free(values);
    peer_give(p);
}

static void act_norm(peer *p) {
    size_t n = p->f.run.layout.value_count;
    float *values = omm_alloc(n, sizeof *values);
    CHECK(values);
    for (size_t i = 0; i < n; i++) values[i] = 0.9f;
    peer_fill(p, values);
    omm_free(values);
    peer_give(p);
}

/* The largest value that there may be is none too many, and neither is the largest count of tokens, or the smallest. */
static void at_the_limits(float value) {
    static const omm_codec f16 = {.kind = OMM_CODEC_F16};
    peer p;
    float values[64] = {value};
    bool receipt = false;
    fed_options options = peer_options();
    options.up = &f16;
    peer_open(&p, &options);
    CHECK(p.f.run.layout.value_count <= 64 && p.f.run.value_max == 1);
    peer_until_open(&p, 0);
    peer_fill(&p, values);
    p.s.tokens = value > 0 ? p.f.run.tokens_max : 1;
    peer_give(&p);
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_OK);
    peer_close(&p);
}

/* What a node of ours sends, and the same codes in a frame that says its size in other bytes: every reader of zstd takes
 * it, and it might as well be one that only some take. */
static void another_frame(bool is_ours) {
    static const omm_codec f16 = {.kind = OMM_CODEC_F16, .zstd_level = 3};
    peer p;
    float values[64] = {0};
    bool receipt = false;
    omm_buf inner, sent;
    fed_options options = peer_options();
    options.up = &f16;
    peer_open(&p, &options);
    peer_until_open(&p, 0);
    for (uint32_t i = 0; i < 64; i++) values[i] = i * i / 3 % 2 ? 0.25f : 0;
    peer_fill(&p, values);
    omm_buf_init(&inner, 4096);
    omm_buf_init(&sent, 4096);
    const uint8_t *frame = p.payload.data + 1;
    CHECK(p.payload.data[0] == 1 && frame[4] == 0x20 &&
          (frame[6] & 6) == 4); /* one byte of size, codes */
    CHECK_OK(omm_buf_append(&sent, "\1\x28\xb5\x2f\xfd\xa0", 6));
    CHECK_OK(omm_buf_append(&sent, (const uint8_t[]){frame[5], 0, 0, 0}, 4));
    CHECK_OK(omm_buf_append(&sent, frame + 6, p.payload.size - 7));
    CHECK_OK(omm_codec_unpack(&inner, omm_buf_view(&sent), 4096));
    if (!is_ours) peer_set_payload(&p, omm_buf_view(&sent));
    peer_give(&p);
    CHECK_EQ(peer_reason_of(&p, &receipt), is_ours ? OMM_OK : OMM_ERR_REFUSED_FORMAT);
    fed_run(&p.f);
    fed_seal_and_verify(&p.f);
    omm_buf_fini(&inner);
    omm_buf_fini(&sent);
    peer_close(&p);
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
    peer_set_payload(p, omm_buf_view(&sent));
    omm_buf_fini(&inner);
    omm_buf_fini(&sent);
    peer_give(p);
}

static void act_truncated(peer *p) {
    omm_buf inner;
    omm_buf sent;
    omm_buf_init(&inner, 4096);
    omm_buf_init(&sent, 4096);
    CHECK_OK(omm_codec_unpack(&inner, omm_buf_view(&p->payload), 4096));
    inner.size -= 2;
    CHECK_OK(omm_codec_pack(&sent, omm_buf_view(&inner), 0));
    peer_set_payload(p, omm_buf_view(&sent));
    omm_buf_fini(&inner);
    omm_buf_fini(&sent);
    peer_give(p);
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
    peer_set_payload(p, omm_buf_view(&sent));
    omm_buf_fini(&sent);
    peer_give(p);
}

static void act_duplicate(peer *p) {
    peer_give(p);
    CHECK_EQ(p->last.kind, OMM_REPLY_RECEIPT);
    p->s.tokens = 101;
    peer_give(p);
}

static const refusal s_cases[] = {
    {"unsigned", act_unsigned, OMM_ERR_REFUSED_SIGNATURE, false, false, true},
    {"bad signature", act_bad_signature, OMM_ERR_REFUSED_SIGNATURE, false, false, true},
    {"stranger", act_stranger, OMM_ERR_REFUSED_KEY, false, false, true},
    {"context", act_context, OMM_ERR_REFUSED_CONTEXT, true, false, true},
    {"junk inside", act_junk_inside, OMM_ERR_REFUSED_FORMAT, true, false, true},
    {"version", act_version, OMM_ERR_REFUSED_FORMAT, true, false, true},
    {"no envelope", act_no_envelope, OMM_ERR_REFUSED_FORMAT, false, false, true},
    {"run id", act_run_id, OMM_ERR_REFUSED_ROUND, true, false, true},
    {"round", act_round, OMM_ERR_REFUSED_ROUND, true, false, true},
    {"nonce", act_nonce, OMM_ERR_REFUSED_ROUND, true, false, true},
    {"offer digest", act_offer_digest, OMM_ERR_REFUSED_ROUND, true, false, true},
    {"base", act_base, OMM_ERR_REFUSED_BASE, true, true, true},
    {"global", act_global, OMM_ERR_REFUSED_BASE, true, true, true},
    {"tokens", act_tokens, OMM_ERR_REFUSED_SIZE, true, true, true},
    {"no tokens", act_no_tokens, OMM_ERR_REFUSED_SIZE, true, true, true},
    {"residual", act_residual, OMM_ERR_REFUSED_RESIDUAL, true, true, true},
    {"steps", act_steps, OMM_ERR_REFUSED_FORMAT, true, true, true},
    {"fewer_steps", act_fewer_steps, OMM_ERR_REFUSED_RECIPE, true, true, true},
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

static void check_case(const refusal *c) {
    peer p;
    fed_options options = peer_options();
    peer_open(&p, &options);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    c->act(&p);
    bool receipt = false;
    omm_err reason = peer_reason_of(&p, &receipt);
    if (reason != c->reason || receipt != c->receipt)
        fprintf(stderr, "case %s: %s, %s\n", c->name, omm_err_name(reason),
                receipt ? "receipt" : "refusal");
    CHECK_EQ(reason, c->reason);
    CHECK_EQ(receipt, c->receipt);
    /* Again: the same answer, and nothing more in the evidence. */
    omm_digest first = omm_hash(omm_buf_view(&p.reply));
    peer_submit(&p);
    omm_digest second = omm_hash(omm_buf_view(&p.reply));
    CHECK(omm_digest_equal(&first, &second));
    /* Not settled: the node may still do it right. */
    peer_poll(&p);
    CHECK_EQ(p.last.kind == OMM_REPLY_OFFER, !c->settles);
    fed_run(&p.f);
    CHECK(omm_coord_is_done(p.f.coord));
    CHECK(!c->settles || p.f.now_ms < options.deadline_ms); /* nobody is waited for */
    omm_round_record round = peer_last_round(&p);
    CHECK_EQ(round.refused_count, c->records ? 1 : 0);
    if (strcmp(round.refused[0].reason, omm_err_name(c->reason)) != 0)
        fprintf(stderr, "case %s: evidence says %s\n", c->name, round.refused[0].reason);
    CHECK_EQ(strcmp(round.refused[0].reason, omm_err_name(c->reason)), 0);
    CHECK_EQ(round.refused[0].has_receipt, c->receipt);
    CHECK_EQ(round.refused[0].has_node, c->receipt);
    CHECK_EQ(round.missing_count, c->receipt ? 0 : 1);
    CHECK_EQ(round.accepted_count, c->reason == OMM_ERR_REFUSED_DUPLICATE ? 3 : 2);
    fed_seal_and_verify(&p.f);
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
    peer_poll(&p);
    CHECK_EQ(p.last.kind, OMM_REPLY_WAIT);
    /* The offer is no secret: what it says is in the stored submission of another node. */
    p.offer = (omm_offer){.round = 0};
    memcpy(p.offer.run_id, p.f.run.run_id, sizeof p.offer.run_id);
    uint8_t codec[OMM_CODEC_BYTES];
    omm_codec_put(codec, &p.f.run.codec_up);
    p.offer.codec_up = omm_bytes_of(codec, sizeof codec);
    peer_fill(&p, NULL);
    peer_give(&p);
    bool receipt = false;
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_ERR_REFUSED_NOT_SELECTED);
    CHECK(receipt);
    fed_run(&p.f);
    fed_seal_and_verify(&p.f);
    peer_close(&p);
}

/* From the operator's word on nothing of it counts, be it half here. */
static void in_quarantine(bool announced) {
    peer p;
    fed_options options = peer_options();
    bool receipt = false;
    peer_open(&p, &options);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    peer_seal(&p, OMM_CONTEXT_SUBMISSION, &p.f.keys[PEER]);
    if (announced) {
        peer_submit(&p);
        CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
        CHECK(omm_coord_peer_is_fresh(p.f.coord)); /* with this round's nonce */
    }
    CHECK_OK(omm_coord_quarantine(&p.f.coord_deadline_ms, p.f.coord, p.f.now_ms, p.f.of_node[PEER],
                                  true));
    peer_submit(&p);
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_ERR_REFUSED_NOT_SELECTED);
    CHECK(receipt);
    fed_run(&p.f);
    const omm_round_record round = peer_last_round(&p);
    CHECK(round.accepted_count == 2 && round.refused_count == 1 && round.missing_count == 0);
    fed_seal_and_verify(&p.f);
    peer_close(&p);
}

static void replay_of_an_earlier_round(bool restart) {
    peer p;
    fed_options options = peer_options();
    options.rounds = 2;
    options.on_disk = restart;
    peer_open(&p, &options);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    peer_give(&p);
    bool receipt = false;
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_OK);
    omm_digest first = omm_hash(omm_buf_view(&p.reply));
    peer_put(&p, 0); /* the receipt was lost: the last chunk once more */
    omm_digest again = omm_hash(omm_buf_view(&p.reply));
    CHECK(omm_digest_equal(&first, &again));
    /* The receipt was lost, the round went on: the same bytes get the same receipt. */
    for (int i = 0; omm_coord_get_status(p.f.coord).round == 0; i++) {
        CHECK(i < 1000);
        CHECK(fed_step(&p.f));
    }
    peer_submit(&p);
    again = omm_hash(omm_buf_view(&p.reply));
    CHECK(omm_digest_equal(&first, &again));
    /* With the new offer in hand the same bytes are a replay. */
    peer_until_open(&p, 1);
    if (restart) fed_restart_coordinator(&p.f);
    CHECK(omm_coord_get_node(p.f.coord, p.f.of_node[PEER]).offered);
    peer_submit(&p);
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_ERR_REFUSED_ROUND);
    CHECK(receipt);
    /* ... which costs the node nothing. */
    peer_fill(&p, NULL);
    peer_give(&p);
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_OK);
    fed_run(&p.f);
    omm_round_record round = peer_last_round(&p);
    CHECK_EQ(round.accepted_count, 3);
    CHECK_EQ(round.refused_count, 1);
    CHECK_EQ(round.missing_count, 0);
    fed_seal_and_verify(&p.f);
    peer_close(&p);
}

static void until_round(peer *p, uint32_t round) {
    for (int i = 0; omm_coord_get_status(p->f.coord).round != round; i++)
        CHECK(i < 1000 && fed_step(&p->f));
}

/* What settled nothing is no answer for ever: the same bytes are looked at anew in a later round. */
static void rejected_in_an_earlier_round(void) {
    peer p;
    listener l;
    bool receipt = false;
    fed_options options = peer_options();
    options.rounds = 2;
    listener_open(&l, "submission_refused");
    options.log = &l.log;
    peer_open(&p, &options);
    peer_until_open(&p, 0);
    for (uint32_t i = 0; i < 70; i++) {
        omm_buf_clear(&p.envelope);
        CHECK_OK(omm_buf_printf(&p.envelope, "junk number %u", i));
        peer_submit(&p);
    }
    CHECK_EQ(l.warnings, 64);
    peer_fill(&p, NULL);
    p.s.nonce.b[0] ^= 1;
    peer_give(&p);
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_ERR_REFUSED_ROUND);
    CHECK(strstr(p.sentence, "not that of round 0"));
    until_round(&p, 1);
    peer_submit(&p);
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_ERR_REFUSED_ROUND);
    CHECK(strstr(p.sentence, "0 is over, this is round 1"));
    CHECK(l.lines == 72 && l.warnings == 65); /* and an operator reads the first ones of each */
    peer_until_open(&p, 1);
    fed_run(&p.f);
    fed_seal_and_verify(&p.f);
    peer_close(&p);
}

/* Who had its verdict in a round is not late for it. */
static void settled_in_an_earlier_round(void) {
    peer p;
    bool receipt = false;
    fed_options options = peer_options();
    options.rounds = 2;
    peer_open(&p, &options);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    act_no_tokens(&p);
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_ERR_REFUSED_SIZE);
    until_round(&p, 1);
    p.s.tokens = 100;
    peer_give(&p);
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_ERR_REFUSED_ROUND);
    peer_until_open(&p, 1);
    fed_run(&p.f);
    fed_seal_and_verify(&p.f);
    peer_close(&p);
}

/* A verdict that settles is one over a restart too: in the round, of the node, and in its count. */
static void settled_over_a_restart(void) {
    peer p;
    bool receipt = false;
    fed_options options = peer_options();
    options.on_disk = true;
    peer_open(&p, &options);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    act_no_tokens(&p);
    fed_restart_coordinator(&p.f);
    CHECK_EQ(omm_coord_get_status(p.f.coord).refused, 1);
    const omm_coord_node_status is = omm_coord_get_node(p.f.coord, p.f.of_node[PEER]);
    CHECK(is.settled && is.refused == 1 && is.accepted == 0);
    p.s.tokens = 100;
    peer_give(&p);
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_ERR_REFUSED_DUPLICATE);
    fed_run(&p.f);
    CHECK(p.f.now_ms < options.deadline_ms);
    fed_seal_and_verify(&p.f);
    peer_close(&p);
}

static omm_err submit_without_room(peer *p) {
    omm_buf bytes;
    const omm_request request = {.kind = OMM_REQUEST_SUBMIT,
                                 .envelope = omm_buf_view(&p->envelope)};
    omm_buf_init(&bytes, OMM_MESSAGE_BYTES_MAX);
    CHECK_OK(omm_request_encode(&bytes, &request));
    fed_forbid_writing(true);
    const omm_err err = omm_coord_step(&p->reply, &p->f.coord_deadline_ms, p->f.coord, p->f.now_ms,
                                       omm_buf_view(&bytes), "test");
    fed_forbid_writing(false);
    omm_buf_fini(&bytes);
    return err;
}

/* Nobody is told a verdict that the disk does not have: it is none, for the node and in all counts, until it can be kept. */
static void not_kept(bool settles) {
    peer p;
    bool receipt = false;
    fed_options options = peer_options();
    options.on_disk = true;
    peer_open(&p, &options);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    if (settles) p.s.tokens = 0;
    if (!settles) p.s.nonce.b[0] ^= 1;
    peer_seal(&p, OMM_CONTEXT_SUBMISSION, &p.f.keys[PEER]);
    CHECK_ERR(submit_without_room(&p), OMM_ERR_IO);
    omm_coord_node_status is = omm_coord_get_node(p.f.coord, p.f.of_node[PEER]);
    CHECK(!is.settled && is.refused == 0);
    CHECK_EQ(omm_coord_get_status(p.f.coord).refusals_total, 0);
    peer_submit(&p);
    CHECK_EQ(peer_reason_of(&p, &receipt), settles ? OMM_ERR_REFUSED_SIZE : OMM_ERR_REFUSED_ROUND);
    CHECK(receipt);
    CHECK_EQ(omm_coord_get_status(p.f.coord).refusals_total, 1);
    fed_restart_coordinator(&p.f);
    is = omm_coord_get_node(p.f.coord, p.f.of_node[PEER]);
    CHECK(is.settled == settles && is.refused == 1);
    fed_run(&p.f);
    CHECK_EQ(peer_last_round(&p).refused_count, 1);
    fed_seal_and_verify(&p.f);
    peer_close(&p);
}

/* Wherever memory runs out in it, the same is asked again, and nothing has come of it before. */
static void step_without_memory(peer *p, const omm_request *request) {
    omm_err err = OMM_ERR_NOMEM;
    for (size_t nth = 1; err != OMM_OK; nth++) {
        omm_buf bytes;
        omm_buf_init(&bytes, OMM_MESSAGE_BYTES_MAX);
        CHECK_OK(omm_request_encode(&bytes, request));
        omm_buf_clear(&p->reply);
        omm_mem_fail_nth(nth);
        err = omm_coord_step(&p->reply, &p->f.coord_deadline_ms, p->f.coord, p->f.now_ms,
                             omm_buf_view(&bytes), "test");
        CHECK(nth < 500 && omm_mem_fail_is_due() == (err == OMM_OK));
        omm_mem_fail_nth(0);
        omm_buf_fini(&bytes);
        if (err == OMM_OK) break;
        CHECK_ERR(err, OMM_ERR_NOMEM);
        const omm_coord_node_status is = omm_coord_get_node(p->f.coord, p->f.of_node[PEER]);
        CHECK(!is.settled && is.accepted == 0 && is.refused == 0);
        CHECK_EQ(omm_coord_get_status(p->f.coord).accepted, 0);
    }
    CHECK_OK(omm_reply_decode(&p->last, omm_buf_view(&p->reply), &p->arena));
}

static void without_memory(void) {
    peer p;
    bool receipt = false;
    fed_options options = peer_options();
    options.silent[0] = options.silent[1] = true;
    options.accept_min = 1;
    options.quorum = 1;
    options.join_ms = 10;
    peer_open(&p, &options);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    peer_seal(&p, OMM_CONTEXT_SUBMISSION, &p.f.keys[PEER]);
    step_without_memory(
        &p, &(omm_request){.kind = OMM_REQUEST_SUBMIT, .envelope = omm_buf_view(&p.envelope)});
    CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
    step_without_memory(&p, &(omm_request){.kind = OMM_REQUEST_PUT,
                                           .digest = p.s.payload.digest,
                                           .data = omm_buf_view(&p.payload)});
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_OK);
    CHECK(receipt && omm_coord_get_status(p.f.coord).accepted == 1);
    const omm_coord_node_status is = omm_coord_get_node(p.f.coord, p.f.of_node[PEER]);
    CHECK(is.settled && is.accepted == 1 && is.refused == 0);
    peer_close(&p);
}

/* After the last round nothing is kept of what is refused: there is no evidence for it to be in. */
static void after_the_end(void) {
    peer p;
    listener l;
    bool receipt = false;
    fed_options options = peer_options();
    listener_open(&l, "submission_refused");
    options.log = &l.log;
    peer_open(&p, &options);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    fed_run(&p.f);
    CHECK(omm_coord_is_done(p.f.coord) && l.lines == 0);
    peer_give(&p);
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_ERR_REFUSED_LATE);
    act_no_envelope(&p);
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_ERR_REFUSED_FORMAT);
    CHECK(l.lines == 2 && strstr(l.last, "recorded=0"));
    peer_close(&p);
}

/* A poll for another run changes nothing in this one. */
static void poll_of_another_run(void) {
    peer p;
    bool receipt = false;
    fed_options options = peer_options();
    omm_poll poll = {.run_id = "0123456789abcdef0123456789abcdef"};
    peer_open(&p, &options);
    peer_poll_with(&p, &poll, false);
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_ERR_REFUSED_ROUND);
    CHECK(!receipt && !omm_coord_get_node(p.f.coord, p.f.of_node[PEER]).ready);
    memcpy(poll.run_id, p.f.run.run_id, sizeof poll.run_id);
    peer_poll_with(&p, &poll, false);
    CHECK_EQ(p.last.kind, OMM_REPLY_WAIT);
    CHECK(omm_coord_get_node(p.f.coord, p.f.of_node[PEER]).ready);
    peer_close(&p);
}

/* A node that has receipts of later rounds: the state is an older copy.  Said once; a receipt of this round is none. */
static void older_state(void) {
    peer p;
    listener l;
    fed_options options = peer_options();
    listener_open(&l, "state_is_older");
    options.log = &l.log;
    peer_open(&p, &options);
    for (uint32_t seen = 0; seen <= 3; seen++) {
        omm_poll poll = {.rounds_seen = seen};
        peer_poll_with(&p, &poll, false);
        CHECK_EQ(l.warnings, seen > 1);
    }
    CHECK(strstr(l.last, "node_has_seen=2") && strstr(l.last, "round=0"));
    peer_close(&p);
}

/* An older copy of the state was put back: a node has the offer of a round before that is opened, again.  It is refused until
 * then, and the evidence, which has a good submission of this round by that time, does not say otherwise. */
static void offer_of_an_unopened_round(void) {
    peer before, p;
    bool receipt = false;
    fed_options options = peer_options();
    peer_open(&before, &options);
    peer_until_open(&before, 0);
    peer_fill(&before, NULL);
    peer_seal(&before, OMM_CONTEXT_SUBMISSION, &before.f.keys[PEER]);
    peer_open(&p, &options);
    CHECK_OK(omm_buf_append(&p.envelope, before.envelope.data, before.envelope.size));
    peer_submit(&p);
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_ERR_REFUSED_ROUND);
    CHECK(receipt && strstr(p.sentence, "0 is not open"));
    peer_until_open(&p, 0);
    CHECK(omm_digest_equal(&p.offer_digest, &before.offer_digest));
    peer_fill(&p, NULL);
    peer_give(&p);
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_OK);
    fed_run(&p.f);
    CHECK(peer_last_round(&p).accepted_count == 3 && peer_last_round(&p).refused_count == 0);
    fed_seal_and_verify(&p.f);
    peer_close(&p);
    peer_close(&before);
}

static void wrong_chunks(void) {
    peer p;
    fed_options options = peer_options();
    peer_open(&p, &options);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    peer_seal(&p, OMM_CONTEXT_SUBMISSION, &p.f.keys[PEER]);
    omm_request put = {
        .kind = OMM_REQUEST_PUT, .digest = p.s.payload.digest, .data = omm_buf_view(&p.payload)};
    peer_send(&p, &put); /* nobody announced it */
    CHECK_EQ(p.last.kind, OMM_REPLY_REFUSED);
    CHECK_EQ(p.last.reason, OMM_ERR_REFUSED_DIGEST);
    CHECK_EQ(omm_coord_last_node(p.f.coord), OMM_COORD_NOBODY);
    peer_submit(&p);
    CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
    CHECK_EQ(omm_coord_last_node(p.f.coord), (int32_t)p.f.of_node[PEER]);
    put.index = 1;
    peer_send(&p, &put); /* no such chunk */
    CHECK_EQ(p.last.kind, OMM_REPLY_REFUSED);
    put.index = OMM_BLOB_CHUNKS_MAX - 1; /* far behind the manifest's list */
    peer_send(&p, &put);
    CHECK_EQ(p.last.reason, OMM_ERR_REFUSED_DIGEST);
    put.index = 0;
    put.data = omm_bytes_str("something else");
    peer_send(&p, &put); /* not its bytes */
    CHECK_EQ(p.last.kind, OMM_REPLY_REFUSED);
    CHECK_EQ(p.last.reason, OMM_ERR_REFUSED_DIGEST);
    CHECK_EQ(omm_coord_last_payload(p.f.coord).up, 0);
    put.data = omm_buf_view(&p.payload);
    peer_send(&p, &put);
    CHECK_EQ(omm_coord_last_node(p.f.coord), (int32_t)p.f.of_node[PEER]);
    CHECK_EQ(omm_coord_last_payload(p.f.coord).up, p.payload.size);
    bool receipt = false;
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_OK); /* none of it mattered */
    omm_request get = {.kind = OMM_REQUEST_GET, .digest = p.offer.global.digest, .index = 77};
    peer_send(&p, &get);
    CHECK_EQ(p.last.reason, OMM_ERR_REFUSED_SIZE);
    CHECK_EQ(omm_coord_last_payload(p.f.coord).down, 0);
    get.index = 0;
    peer_send(&p, &get);
    CHECK_EQ(omm_coord_last_payload(p.f.coord).up, 0);
    CHECK_EQ(omm_coord_last_payload(p.f.coord).down, p.last.data.size);
    get.index = 77;
    get.digest.b[0] ^= 1;
    peer_send(&p, &get);
    CHECK_EQ(p.last.reason, OMM_ERR_REFUSED_DIGEST);
    CHECK_EQ(omm_coord_get_status(p.f.coord).refusals_total, 6);
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
    static const uint8_t newer[] = {0x08, 0x02}; /* of version 2 */
    fed_send(&p.f, &p.reply, omm_bytes_of(newer, sizeof newer));
    CHECK_OK(omm_reply_decode(&p.last, omm_buf_view(&p.reply), &p.arena));
    CHECK_EQ(p.last.reason, OMM_ERR_REFUSED_FORMAT);
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
    listener l;
    fed_options options = peer_options();
    listener_open(&l, "submission_refused");
    options.log = &l.log;
    peer_open(&p, &options);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    peer_seal(&p, OMM_CONTEXT_SUBMISSION, &p.f.keys[PEER]);
    peer_submit(&p); /* an upload takes nobody's room */
    for (uint32_t i = 0; i < 300; i++) {
        peer_fill(&p, NULL);
        omm_buf_clear(&p.envelope);
        CHECK_OK(omm_buf_printf(&p.envelope, "junk number %u", i));
        peer_submit(&p);
        CHECK_EQ(p.last.kind, OMM_REPLY_REFUSED);
        p.s.nonce = omm_hash(omm_bytes_of(&i, sizeof i));
        peer_give(&p); /* signed, but of no round */
        CHECK_EQ(p.last.kind, OMM_REPLY_RECEIPT);
    }
    peer_fill(&p, NULL);
    peer_give(&p);
    bool receipt = false;
    CHECK_EQ(peer_reason_of(&p, &receipt), OMM_OK);
    fed_run(&p.f);
    omm_round_record round = peer_last_round(&p);
    CHECK_EQ(round.accepted_count, 3);
    CHECK_EQ(round.refused_count, 32 + 8);
    CHECK_EQ(omm_coord_get_status(p.f.coord).refusals_total, 600);
    const omm_coord_node_status is = omm_coord_get_node(p.f.coord, p.f.of_node[PEER]);
    CHECK(is.accepted == 1 && is.refused == 300);
    CHECK(l.lines == 600 && l.warnings == 64);
    fed_seal_and_verify(&p.f);
    peer_close(&p);
}

/* What has no name is kept by its size too: of the largest envelopes sixteen are 4 MiB. */
static void large_floods_leave_a_bounded_mark(void) {
    peer p;
    fed_options options = peer_options();
    peer_open(&p, &options);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    uint8_t *junk = omm_alloc(OMM_ENVELOPE_BYTES_MAX, 1);
    CHECK(junk);
    for (uint8_t i = 0; i < 20; i++) {
        omm_buf_clear(&p.envelope);
        junk[0] = i;
        CHECK_OK(omm_buf_append(&p.envelope, junk, OMM_ENVELOPE_BYTES_MAX));
        peer_submit(&p);
        CHECK_EQ(p.last.kind, OMM_REPLY_REFUSED);
    }
    act_no_envelope(&p); /* no room for a small one, either */
    omm_free(junk);
    fed_run(&p.f);
    CHECK_EQ(peer_last_round(&p).refused_count, 16);
    peer_close(&p);
}

int main(void) {
    for (size_t i = 0; i < sizeof s_cases / sizeof s_cases[0]; i++) check_case(&s_cases[i]);
    not_selected();
    in_quarantine(false);
    in_quarantine(true);
    replay_of_an_earlier_round(false);
    replay_of_an_earlier_round(true);
    at_the_limits(1);
    at_the_limits(-1);
    another_frame(true);
    another_frame(false);
    rejected_in_an_earlier_round();
    settled_in_an_earlier_round();
    settled_over_a_restart();
    not_kept(true);
    not_kept(false);
    without_memory();
    after_the_end();
    poll_of_another_run();
    older_state();
    offer_of_an_unopened_round();
    wrong_chunks();
    not_even_messages();
    floods_leave_a_bounded_mark();
    large_floods_leave_a_bounded_mark();
    return 0;
}

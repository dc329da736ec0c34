/* samples.h - one valid value of every message, shared by the tests of proto. */
#ifndef OMM_PROTO_SAMPLES_H
#define OMM_PROTO_SAMPLES_H

#include "omm/base_model.h"
#include "omm/enrolment.h"
#include "omm/messages.h"

#include <string.h>

#define SAMPLE_RUN_ID "00112233445566778899aabbccddeeff"

static inline omm_digest sample_digest(uint8_t first) {
    omm_digest d;
    for (unsigned i = 0; i < sizeof d.b; i++) d.b[i] = (uint8_t)(first + i);
    return d;
}

static inline omm_poll sample_poll(void) {
    return (omm_poll){.run_id = SAMPLE_RUN_ID, .rounds_seen = 3, .counter = 300};
}

/* Of a newer node, for a reason that is in no list here. */
static inline omm_poll sample_declining_poll(void) {
    omm_poll poll = sample_poll();
    poll.declined = 200;
    return poll;
}

/* Arrays are static: a sample lives as long as the program. */
static inline omm_offer sample_offer(void) {
    static omm_digest selected[3], chunks[2];
    for (unsigned i = 0; i < 3; i++) selected[i] = sample_digest((uint8_t)(0x20 * i + 1));
    for (unsigned i = 0; i < 2; i++) chunks[i] = sample_digest((uint8_t)(0x90 + i));
    return (omm_offer){.run_id = SAMPLE_RUN_ID,
                       .round = 1,
                       .rounds = 4,
                       .nonce = sample_digest(2),
                       .base_digest = sample_digest(3),
                       .tokenizer_digest = sample_digest(4),
                       .adapter = {.rank = 8,
                                   .alpha = 16,
                                   .targets = 0x7f,
                                   .value_count = 100000,
                                   .layout_digest = sample_digest(5)},
                       .recipe = omm_bytes_of("recipe bytes", 12),
                       .codec_up = omm_bytes_of("up", 2),
                       .codec_down = omm_bytes_of("down", 4),
                       .value_max = 1,
                       .weight_sum_max = (uint64_t)1 << 32,
                       .norm_max = 10,
                       .global = {.digest = sample_digest(6),
                                  .canonical = sample_digest(7),
                                  .size = OMM_CHUNK_BYTES + 5,
                                  .chunk_digests = chunks,
                                  .chunk_count = 2},
                       .deadline_ms = 600000,
                       .payload_bytes_max = 1 << 20,
                       .tokens_max = 1 << 20,
                       .selected = selected,
                       .selected_count = 3,
                       .previous = sample_digest(8)};
}

static inline omm_offer sample_canary(void) {
    static omm_digest chunks[2];
    omm_offer offer = sample_offer();
    for (unsigned i = 0; i < 2; i++) chunks[i] = sample_digest((uint8_t)(0xB0 + i));
    offer.selected_count = 1;
    offer.is_canary = true;
    offer.canary = (omm_blob){.digest = sample_digest(27),
                              .canonical = sample_digest(27),
                              .size = OMM_CHUNK_BYTES + 9,
                              .chunk_digests = chunks,
                              .chunk_count = 2};
    return offer;
}

static inline omm_submission sample_submission(void) {
    static omm_digest chunk;
    chunk = sample_digest(0x91);
    return (omm_submission){.run_id = SAMPLE_RUN_ID,
                            .round = 1,
                            .nonce = sample_digest(2),
                            .offer_digest = sample_digest(9),
                            .base_digest = sample_digest(3),
                            .global_digest = sample_digest(6),
                            .tokens = 40000,
                            .examples = 120,
                            .steps = 2,
                            .loss_before = 2.5f,
                            .loss_after = 1.25f,
                            .codec = omm_bytes_of("up", 2),
                            .payload = {.digest = sample_digest(10),
                                        .canonical = sample_digest(11),
                                        .size = 1000,
                                        .chunk_digests = &chunk,
                                        .chunk_count = 1},
                            .data_commitment = sample_digest(12),
                            .residual_before = sample_digest(13),
                            .residual_after = sample_digest(14),
                            .step_digests = omm_bytes_of("step one"
                                                         "step two",
                                                         16)};
}

static inline omm_receipt sample_receipt(void) {
    return (omm_receipt){.run_id = SAMPLE_RUN_ID,
                         .round = 1,
                         .node_id = sample_digest(15),
                         .submission_digest = sample_digest(16),
                         .accepted = false,
                         .reason = OMM_ERR_REFUSED_NORM,
                         .sentence = "norm is 11, at most 10 is allowed"};
}

static inline omm_close sample_close(void) {
    return (omm_close){.run_id = SAMPLE_RUN_ID,
                       .rounds = 4,
                       .last_round = sample_digest(17),
                       .final_digest = sample_digest(18),
                       .eval_digest = sample_digest(19)};
}

static inline omm_enrol sample_enrol(void) {
    omm_enrol e = {.has_invitation = true};
    const omm_digest d[4] = {sample_digest(22), sample_digest(23), sample_digest(24),
                             sample_digest(25)};
    memcpy(e.coordinator.b, d[0].b, 32);
    memcpy(e.invitation.b, d[1].b, 32);
    memcpy(e.invitation_signature.b, d[2].b, 32);
    memcpy(e.invitation_signature.b + 32, d[3].b, 32);
    return e;
}

static inline omm_challenge sample_challenge(void) {
    return (omm_challenge){.run_id = SAMPLE_RUN_ID, .seed = sample_digest(26), .bits = 22};
}

static inline omm_base_model sample_base_model(void) {
    static omm_digest pieces[3];
    static const char *const mirrors[2] = {"http://mirror.example/a.gguf",
                                           "https://[2001:db8::1]:8443/a.gguf"};
    for (unsigned i = 0; i < 3; i++) pieces[i] = sample_digest((uint8_t)(0xa0 + i));
    return (omm_base_model){.digest = sample_digest(3),
                            .size = 5 * (uint64_t)OMM_CHUNK_BYTES + 1,
                            .piece_chunks = 2,
                            .pieces = pieces,
                            .piece_count = 3,
                            .mirrors = mirrors,
                            .mirror_count = 2};
}

/* The same in two files. */
static inline omm_base_model sample_split_model(void) {
    static const uint64_t parts[2] = {OMM_CHUNK_BYTES + 5, 4 * (uint64_t)OMM_CHUNK_BYTES - 4};
    omm_base_model base = sample_base_model();
    base.parts = parts;
    base.part_count = 2;
    return base;
}

static inline omm_request sample_request(omm_request_kind kind) {
    omm_request r = {.kind = kind};
    if (kind == OMM_REQUEST_POLL || kind == OMM_REQUEST_SUBMIT || kind == OMM_REQUEST_ENROL) {
        r.envelope = omm_bytes_of("any envelope", 12);
        return r;
    }
    if (kind == OMM_REQUEST_BASE) return r;
    r.digest = sample_digest(20);
    r.index = 200;
    if (kind == OMM_REQUEST_PUT) r.data = omm_bytes_of("chunk data", 10);
    return r;
}

/* What is small travels whole. */
static inline omm_request sample_whole_request(omm_request_kind kind) {
    omm_request r = sample_request(kind);
    if (kind == OMM_REQUEST_POLL) r.whole = true;
    if (kind == OMM_REQUEST_SUBMIT) r.data = omm_bytes_of("a payload", 9);
    return r;
}

static inline omm_reply sample_reply(omm_reply_kind kind) {
    static const uint32_t missing[4] = {0, 1, 127, 300};
    omm_reply r = {.kind = kind, .sentence = ""};
    switch (kind) {
    case OMM_REPLY_WAIT: r.retry_ms = 1500; break;
    case OMM_REPLY_OFFER:
    case OMM_REPLY_RECEIPT:
    case OMM_REPLY_CHALLENGE:
    case OMM_REPLY_DONE:
    case OMM_REPLY_BASE: r.envelope = omm_bytes_of("any envelope", 12); break;
    case OMM_REPLY_CHUNK:
        r.digest = sample_digest(20);
        r.index = 200;
        r.data = omm_bytes_of("chunk data", 10);
        break;
    case OMM_REPLY_NEED:
        r.missing = missing;
        r.missing_count = 4;
        break;
    case OMM_REPLY_REFUSED:
        r.reason = OMM_ERR_REFUSED_KEY;
        r.sentence = "key is not enrolled";
        break;
    }
    return r;
}

static inline omm_reply sample_whole_offer(void) {
    omm_reply r = sample_reply(OMM_REPLY_OFFER);
    r.data = omm_bytes_of("global adapter", 14);
    return r;
}

#endif

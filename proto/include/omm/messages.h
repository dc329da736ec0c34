/* messages.h - the messages of a round as plain structs, with their limits.
 *
 *   node                                   coordinator
 *    Request{poll: Envelope(Poll)}      ->  Reply{wait | offer: Envelope(Offer) | done | refused}
 *      with `whole`: the offer's reply may have the global adapter with it
 *    Request{get: digest, index}        ->  Reply{chunk | refused}
 *    Request{submit: Envelope(Subm.)}   ->  Reply{need | receipt: Envelope(Receipt) | refused}
 *      with a small payload whole: no need
 *    Request{put: digest, index, data}  ->  Reply{need | receipt | refused}
 *    Request{enrol: Envelope(Enrol)}    ->  Reply{wait | challenge | refused}      omm/enrolment.h
 *    Request{base}                      ->  Reply{base: Envelope(Base) | refused}    base_model.h
 *
 * The wire form is proto3 (omm_messages.proto).  Decoding is strict: every message has exactly one
 * spelling, so unknown fields, fields out of order, and padded varints are refused; digests are
 * exactly 32 bytes, floats are finite, lists are sorted where the comment says so.
 *
 * Encoders append to an omm_buf and check the same limits (an encoded message always decodes).
 * Decoders put arrays, strings and byte strings in `arena`, nothing borrows from `in`.
 * Errors of all encoders: NOMEM, TOO_BIG, REFUSED_* as the decoder would say.
 * Errors of all decoders: REFUSED_SIZE (over a limit), REFUSED_FORMAT, REFUSED_VALUE (a float is
 * not finite), VERSION (not OMM_WIRE_VERSION), NOMEM.  On error `out` is untouched.
 *
 * Depends on: base, wire.h.  Threads: no shared state.
 */
#ifndef OMM_MESSAGES_H
#define OMM_MESSAGES_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/hash.h"
#include "omm/mem.h"
#include "omm/wire.h"

#include <stdbool.h>
#include <stdint.h>

#define OMM_RUN_ID_SIZE 33u           /* 32 lower-case hex digits and a NUL */
#define OMM_SELECTED_MAX 4096u        /* nodes of one offer */
#define OMM_RECIPE_FIELD_MAX 4096u    /* bytes of `recipe` */
#define OMM_CODEC_FIELD_MAX 256u      /* bytes of a codec description */
#define OMM_SENTENCE_BYTES_MAX 256u   /* of a refusal; longer ones are cut when encoded */
#define OMM_CANARY_BYTES_MAX 4194304u /* of a canary's data */
#define OMM_STEP_DIGESTS_MAX 131072u  /* bytes of `step_digests`: 16,384 steps */
#define OMM_COUNTER_BLOCK 1024u /* polls between two writes of a node's counter, on both sides */
/* An arena of this size decodes any message; more than this is REFUSED_SIZE. */
#define OMM_MESSAGE_ARENA_BYTES 4194304u

/* ---- signed payloads ---- */

typedef struct omm_poll {
    char run_id[OMM_RUN_ID_SIZE]; /* "" when the node does not know it yet */
    uint32_t rounds_seen;
    uint64_t counter;  /* rises with each poll of this node; by a block where it was too low */
    uint32_t declined; /* why it gave nothing to its last offer (omm/declined.h), or 0 */
} omm_poll;

typedef struct omm_adapter_spec {
    uint32_t rank; /* at least 1 */
    float alpha;
    uint32_t targets; /* bit set of 1u << omm_lora_target */
    uint64_t value_count;
    omm_digest layout_digest;
} omm_adapter_spec;

typedef struct omm_offer {
    char run_id[OMM_RUN_ID_SIZE];
    uint32_t round, rounds; /* round < rounds */
    omm_digest nonce;
    omm_digest base_digest, tokenizer_digest;
    omm_adapter_spec adapter;
    omm_bytes recipe;               /* train's canonical bytes; opaque here */
    omm_bytes codec_up, codec_down; /* compress' description bytes; opaque here */
    float value_max;
    uint64_t weight_sum_max;
    float norm_max; /* 0: no bound */
    omm_blob global;
    uint64_t deadline_ms; /* from the opening of the round */
    uint64_t payload_bytes_max;
    uint64_t tokens_max;        /* per submission */
    const omm_digest *selected; /* (selected_count) node ids, strictly ascending */
    size_t selected_count;
    omm_digest
        previous;    /* BLAKE2b-256 of the previous line of rounds.jsonl; of round 0: of what was
                            agreed (artifacts, omm_run_agreed) */
    bool is_canary;  /* for the one node in `selected`: train on `canary`, which is public */
    omm_blob canary; /* chat examples, JSONL; canonical is its digest */
} omm_offer;

typedef struct omm_submission {
    char run_id[OMM_RUN_ID_SIZE];
    uint32_t round;
    omm_digest nonce;
    omm_digest offer_digest; /* BLAKE2b-256 of the offer envelope */
    omm_digest base_digest, global_digest;
    uint64_t tokens, examples;
    uint32_t steps;
    float loss_before, loss_after;
    omm_bytes codec;
    omm_blob payload;
    omm_digest data_commitment;
    omm_digest residual_before, residual_after;
    omm_bytes step_digests; /* 8 bytes per step, or empty */
} omm_submission;

typedef struct omm_receipt {
    char run_id[OMM_RUN_ID_SIZE];
    uint32_t round;
    omm_digest node_id;
    omm_digest submission_digest; /* BLAKE2b-256 of the envelope as received */
    bool accepted;
    omm_err reason;       /* OMM_OK exactly when accepted; its name is on the wire */
    const char *sentence; /* "" when accepted; printable ASCII, others become '?' */
} omm_receipt;

typedef struct omm_close {
    char run_id[OMM_RUN_ID_SIZE];
    uint32_t rounds;
    omm_digest last_round;   /* BLAKE2b-256 of the last line of rounds.jsonl */
    omm_digest final_digest; /* BLAKE2b-256 of final.gguf */
    omm_digest eval_digest;
} omm_close;

OMM_CHECKED omm_err omm_poll_encode(omm_buf *out, const omm_poll *poll);
OMM_CHECKED omm_err omm_poll_decode(omm_poll *out, omm_bytes in, omm_arena *arena);
OMM_CHECKED omm_err omm_offer_encode(omm_buf *out, const omm_offer *offer);
OMM_CHECKED omm_err omm_offer_decode(omm_offer *out, omm_bytes in, omm_arena *arena);
OMM_CHECKED omm_err omm_submission_encode(omm_buf *out, const omm_submission *submission);
OMM_CHECKED omm_err omm_submission_decode(omm_submission *out, omm_bytes in, omm_arena *arena);
OMM_CHECKED omm_err omm_receipt_encode(omm_buf *out, const omm_receipt *receipt);
OMM_CHECKED omm_err omm_receipt_decode(omm_receipt *out, omm_bytes in, omm_arena *arena);
OMM_CHECKED omm_err omm_close_encode(omm_buf *out, const omm_close *close);
OMM_CHECKED omm_err omm_close_decode(omm_close *out, omm_bytes in, omm_arena *arena);

/* ---- requests and replies: the bodies that travel ---- */

typedef enum omm_request_kind {
    OMM_REQUEST_POLL,   /* envelope, whole */
    OMM_REQUEST_GET,    /* digest, index */
    OMM_REQUEST_PUT,    /* digest, index, data */
    OMM_REQUEST_SUBMIT, /* envelope, data */
    OMM_REQUEST_ENROL,  /* envelope of omm/enrolment.h */
    OMM_REQUEST_BASE,   /* nothing: which base model, and where is it? */
} omm_request_kind;

typedef struct omm_request {
    omm_request_kind kind;
    omm_bytes envelope;
    omm_digest digest; /* of the blob */
    uint32_t index;    /* of the chunk */
    omm_bytes
        data; /* 1 .. OMM_CHUNK_BYTES; of SUBMIT the payload, to OMM_WHOLE_BYTES_MAX; 0: not in it */
    bool whole; /* who polls takes a small global adapter with the offer */
} omm_request;

typedef enum omm_reply_kind {
    OMM_REPLY_WAIT,      /* retry_ms */
    OMM_REPLY_OFFER,     /* envelope; data: the global adapter, 0 bytes: not in it */
    OMM_REPLY_CHUNK,     /* digest, index, data */
    OMM_REPLY_NEED,      /* missing */
    OMM_REPLY_RECEIPT,   /* envelope */
    OMM_REPLY_REFUSED,   /* reason, sentence */
    OMM_REPLY_DONE,      /* envelope of Close */
    OMM_REPLY_CHALLENGE, /* envelope of omm/enrolment.h */
    OMM_REPLY_BASE,      /* envelope of omm/base_model.h */
} omm_reply_kind;

typedef struct omm_reply {
    omm_reply_kind kind;
    uint64_t retry_ms;
    omm_bytes envelope;
    omm_digest digest;
    uint32_t index;
    omm_bytes data;
    const uint32_t *missing; /* (missing_count) chunk indices, strictly ascending */
    size_t missing_count;
    omm_err reason; /* never OMM_OK in a refusal */
    const char *sentence;
} omm_reply;

OMM_CHECKED omm_err omm_request_encode(omm_buf *out, const omm_request *request);
OMM_CHECKED omm_err omm_request_decode(omm_request *out, omm_bytes in, omm_arena *arena);
OMM_CHECKED omm_err omm_reply_encode(omm_buf *out, const omm_reply *reply);
OMM_CHECKED omm_err omm_reply_decode(omm_reply *out, omm_bytes in, omm_arena *arena);

#endif

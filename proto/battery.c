#include "battery.h"

#include "samples.h"

#define FORM_OF(type)                                                                              \
    static omm_err type##_sample(omm_buf *out) {                                                   \
        omm_##type value = sample_##type();                                                        \
        return omm_##type##_encode(out, &value);                                                   \
    }                                                                                              \
    static omm_err type##_pass(omm_buf *again, omm_bytes in, omm_arena *arena) {                   \
        omm_##type value;                                                                          \
        OMM_TRY(omm_##type##_decode(&value, in, arena));                                           \
        return omm_##type##_encode(again, &value);                                                 \
    }

FORM_OF(poll)
FORM_OF(offer)
FORM_OF(submission)

static omm_err declining_poll_sample(omm_buf *out) {
    const omm_poll value = sample_declining_poll();
    return omm_poll_encode(out, &value);
}

static omm_err canary_sample(omm_buf *out) {
    omm_offer value = sample_canary();
    return omm_offer_encode(out, &value);
}

FORM_OF(receipt)
FORM_OF(close)
FORM_OF(enrol)
FORM_OF(challenge)
FORM_OF(base_model)

static omm_err request_pass(omm_buf *again, omm_bytes in, omm_arena *arena) {
    omm_request value;
    OMM_TRY(omm_request_decode(&value, in, arena));
    return omm_request_encode(again, &value);
}

static omm_err reply_pass(omm_buf *again, omm_bytes in, omm_arena *arena) {
    omm_reply value;
    OMM_TRY(omm_reply_decode(&value, in, arena));
    return omm_reply_encode(again, &value);
}

#define REQUEST_SAMPLE(name, kind)                                                                 \
    static omm_err name##_sample(omm_buf *out) {                                                   \
        omm_request value = sample_request(kind);                                                  \
        return omm_request_encode(out, &value);                                                    \
    }
#define REPLY_SAMPLE(name, kind)                                                                   \
    static omm_err name##_sample(omm_buf *out) {                                                   \
        omm_reply value = sample_reply(kind);                                                      \
        return omm_reply_encode(out, &value);                                                      \
    }

REQUEST_SAMPLE(request_poll, OMM_REQUEST_POLL)
REQUEST_SAMPLE(request_get, OMM_REQUEST_GET)
REQUEST_SAMPLE(request_put, OMM_REQUEST_PUT)
REQUEST_SAMPLE(request_submit, OMM_REQUEST_SUBMIT)
REQUEST_SAMPLE(request_enrol, OMM_REQUEST_ENROL)
REQUEST_SAMPLE(request_base, OMM_REQUEST_BASE)
REPLY_SAMPLE(reply_wait, OMM_REPLY_WAIT)
REPLY_SAMPLE(reply_offer, OMM_REPLY_OFFER)
REPLY_SAMPLE(reply_chunk, OMM_REPLY_CHUNK)
REPLY_SAMPLE(reply_need, OMM_REPLY_NEED)
REPLY_SAMPLE(reply_receipt, OMM_REPLY_RECEIPT)
REPLY_SAMPLE(reply_refused, OMM_REPLY_REFUSED)
REPLY_SAMPLE(reply_done, OMM_REPLY_DONE)
REPLY_SAMPLE(reply_challenge, OMM_REPLY_CHALLENGE)
REPLY_SAMPLE(reply_base, OMM_REPLY_BASE)

static omm_err request_whole_poll_sample(omm_buf *out) {
    omm_request value = sample_whole_request(OMM_REQUEST_POLL);
    return omm_request_encode(out, &value);
}

static omm_err request_whole_submit_sample(omm_buf *out) {
    omm_request value = sample_whole_request(OMM_REQUEST_SUBMIT);
    return omm_request_encode(out, &value);
}

static omm_err reply_whole_offer_sample(omm_buf *out) {
    omm_reply value = sample_whole_offer();
    return omm_reply_encode(out, &value);
}

static omm_err split_model_sample(omm_buf *out) {
    const omm_base_model value = sample_split_model();
    return omm_base_model_encode(out, &value);
}

const form forms[] = {
    {"poll", poll_sample, poll_pass},
    {"offer", offer_sample, offer_pass},
    {"submission", submission_sample, submission_pass},
    {"receipt", receipt_sample, receipt_pass},
    {"close", close_sample, close_pass},
    {"enrol", enrol_sample, enrol_pass},
    {"challenge", challenge_sample, challenge_pass},
    {"request_poll", request_poll_sample, request_pass},
    {"request_get", request_get_sample, request_pass},
    {"request_put", request_put_sample, request_pass},
    {"request_submit", request_submit_sample, request_pass},
    {"request_enrol", request_enrol_sample, request_pass},
    {"reply_wait", reply_wait_sample, reply_pass},
    {"reply_offer", reply_offer_sample, reply_pass},
    {"reply_chunk", reply_chunk_sample, reply_pass},
    {"reply_need", reply_need_sample, reply_pass},
    {"reply_receipt", reply_receipt_sample, reply_pass},
    {"reply_refused", reply_refused_sample, reply_pass},
    {"reply_done", reply_done_sample, reply_pass},
    {"reply_challenge", reply_challenge_sample, reply_pass},
    {"base_model", base_model_sample, base_model_pass},
    {"request_base", request_base_sample, request_pass},
    {"reply_base", reply_base_sample, reply_pass},
    {"request_whole_poll", request_whole_poll_sample, request_pass},
    {"request_whole_submit", request_whole_submit_sample, request_pass},
    {"reply_whole_offer", reply_whole_offer_sample, reply_pass},
    {"canary", canary_sample, offer_pass},
    {"split_model", split_model_sample, base_model_pass},
    {"declining_poll", declining_poll_sample, poll_pass},
};
const unsigned form_count = sizeof forms / sizeof forms[0];

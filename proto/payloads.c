/* payloads.c - owns the wire form of what is signed: Poll, Offer, Submission, Receipt, Close. */
#include "check.h"
#include "internal.h"

#include "omm/declined.h"

#include <stdio.h>
#include <string.h>

#define PAYLOAD_BYTES_MAX 262000u /* fits an envelope, and that a message */

/* Casts to and from protobuf-c's generated structs; unpack has made exactly this type. */
#define AS(type, message) ((const type *)(const void *)(message))

static omm_err get_run_id(char out[OMM_RUN_ID_SIZE], const char *run_id, bool may_be_empty) {
    OMM_TRY(check_run_id(run_id, may_be_empty));
    memset(out, 0, OMM_RUN_ID_SIZE);
    snprintf(out, OMM_RUN_ID_SIZE, "%s", run_id);
    return OMM_OK;
}

/* ---- Poll ---- */

#define XX(number, name, word, means)                                                              \
    _Static_assert((unsigned)OMM__DECLINED__##name == (number), "not as in omm_messages.proto");
OMM_DECLINED_MAP(XX)
#undef XX

omm_err omm_poll_encode(omm_buf *out, const omm_poll *poll) {
    Omm__Poll pb;
    omm__poll__init(&pb);
    OMM_TRY(check_run_id(poll->run_id, true));
    OMM_TRY(proto_check_size(poll->declined, 0, OMM_DECLINED_MAX, "declined"));
    pb.version = OMM_WIRE_VERSION;
    pb.run_id = proto_text(poll->run_id);
    pb.rounds_seen = poll->rounds_seen;
    pb.counter = poll->counter;
    pb.declined = (Omm__Declined)poll->declined;
    return proto_pack(out, &pb.base, PAYLOAD_BYTES_MAX);
}

omm_err omm_poll_decode(omm_poll *out, omm_bytes in, omm_arena *arena) {
    ProtobufCMessage *message;
    omm_poll poll;
    OMM_TRY(proto_unpack(&message, &omm__poll__descriptor, in, arena));
    const Omm__Poll *pb = AS(Omm__Poll, message);
    OMM_TRY(proto_check_version(pb->version, "Poll"));
    OMM_TRY(get_run_id(poll.run_id, pb->run_id, true));
    poll.rounds_seen = pb->rounds_seen;
    poll.counter = pb->counter;
    poll.declined = (uint32_t)pb->declined; /* a negative one is over any limit */
    OMM_TRY(proto_check_size(poll.declined, 0, OMM_DECLINED_MAX, "declined"));
    *out = poll;
    return OMM_OK;
}

/* ---- Blob ---- */

/* `list` is what proto_digests gave for the chunk digests. */
static void put_blob(Omm__Blob *pb, const omm_blob *blob, ProtobufCBinaryData *list) {
    pb->digest = proto_digest(&blob->digest);
    pb->canonical_digest = proto_digest(&blob->canonical);
    pb->size = blob->size;
    pb->n_chunk_digests = blob->chunk_count;
    pb->chunk_digests = list;
}

static omm_err get_blob(omm_blob *out, const Omm__Blob *pb, const char *field, omm_arena *arena) {
    if (!pb) return omm_raise(OMM_ERR_REFUSED_FORMAT, "%s is missing", field);
    OMM_TRY(proto_get_digest(&out->digest, pb->digest, field));
    OMM_TRY(proto_get_digest(&out->canonical, pb->canonical_digest, field));
    out->size = pb->size;
    out->chunk_count = pb->n_chunk_digests;
    return proto_get_digests(&out->chunk_digests, pb->n_chunk_digests, pb->chunk_digests,
                             OMM_BLOB_CHUNKS_MAX, field, arena);
}

/* ---- Offer ---- */

static void put_adapter(Omm__Adapter *pb, const omm_adapter_spec *adapter) {
    pb->rank = adapter->rank;
    pb->alpha = adapter->alpha;
    pb->targets = adapter->targets;
    pb->value_count = adapter->value_count;
    pb->layout_digest = proto_digest(&adapter->layout_digest);
}

static void put_offer(Omm__Offer *pb, const omm_offer *offer) {
    pb->version = OMM_WIRE_VERSION;
    pb->run_id = proto_text(offer->run_id);
    pb->round = offer->round;
    pb->rounds = offer->rounds;
    pb->nonce = proto_digest(&offer->nonce);
    pb->base_digest = proto_digest(&offer->base_digest);
    pb->tokenizer_digest = proto_digest(&offer->tokenizer_digest);
    pb->recipe = proto_data(offer->recipe);
    pb->codec_up = proto_data(offer->codec_up);
    pb->codec_down = proto_data(offer->codec_down);
    pb->value_max = offer->value_max;
    pb->weight_sum_max = offer->weight_sum_max;
    pb->norm_max = offer->norm_max;
    pb->deadline_ms = offer->deadline_ms;
    pb->payload_bytes_max = offer->payload_bytes_max;
    pb->tokens_max = offer->tokens_max;
    pb->previous = proto_digest(&offer->previous);
}

omm_err omm_offer_encode(omm_buf *out, const omm_offer *offer) {
    Omm__Offer pb;
    omm__offer__init(&pb);
    Omm__Adapter adapter;
    omm__adapter__init(&adapter);
    Omm__Blob blob, canary;
    omm__blob__init(&blob);
    omm__blob__init(&canary);
    OMM_TRY(check_offer(offer));
    omm_err err = OMM_ERR_NOMEM;
    ProtobufCBinaryData *chunks =
        proto_digests(offer->global.chunk_digests, offer->global.chunk_count);
    ProtobufCBinaryData *selected = proto_digests(offer->selected, offer->selected_count);
    ProtobufCBinaryData *parts = proto_digests(offer->canary.chunk_digests,
                                               offer->is_canary ? offer->canary.chunk_count : 0);
    if (chunks && selected && (parts || !offer->is_canary)) {
        put_offer(&pb, offer);
        put_adapter(&adapter, &offer->adapter);
        put_blob(&blob, &offer->global, chunks);
        pb.adapter = &adapter;
        pb.global = &blob;
        put_blob(&canary, &offer->canary, parts);
        if (offer->is_canary) pb.canary = &canary;
        pb.selected = selected;
        pb.n_selected = offer->selected_count;
        err = proto_pack(out, &pb.base, PAYLOAD_BYTES_MAX);
    } else {
        err = omm_raise(OMM_ERR_NOMEM, "no memory to encode an offer");
    }
    omm_free(parts);
    omm_free(selected);
    omm_free(chunks);
    return err;
}

static omm_err get_adapter(omm_adapter_spec *out, const Omm__Adapter *pb) {
    if (!pb) return omm_raise(OMM_ERR_REFUSED_FORMAT, "adapter is missing");
    out->rank = pb->rank;
    out->alpha = pb->alpha;
    out->targets = pb->targets;
    out->value_count = pb->value_count;
    return proto_get_digest(&out->layout_digest, pb->layout_digest, "adapter.layout_digest");
}

static omm_err get_offer_digests(omm_offer *out, const Omm__Offer *pb, omm_arena *arena) {
    OMM_TRY(proto_get_digest(&out->nonce, pb->nonce, "nonce"));
    OMM_TRY(proto_get_digest(&out->base_digest, pb->base_digest, "base_digest"));
    OMM_TRY(proto_get_digest(&out->tokenizer_digest, pb->tokenizer_digest, "tokenizer_digest"));
    OMM_TRY(proto_get_digest(&out->previous, pb->previous, "previous"));
    out->selected_count = pb->n_selected;
    return proto_get_digests(&out->selected, pb->n_selected, pb->selected, OMM_SELECTED_MAX,
                             "selected", arena);
}

omm_err omm_offer_decode(omm_offer *out, omm_bytes in, omm_arena *arena) {
    ProtobufCMessage *message;
    OMM_TRY(proto_unpack(&message, &omm__offer__descriptor, in, arena));
    const Omm__Offer *pb = AS(Omm__Offer, message);
    OMM_TRY(proto_check_version(pb->version, "Offer"));
    omm_offer offer = {.round = pb->round,
                       .rounds = pb->rounds,
                       .recipe = proto_view(pb->recipe),
                       .codec_up = proto_view(pb->codec_up),
                       .codec_down = proto_view(pb->codec_down),
                       .value_max = pb->value_max,
                       .weight_sum_max = pb->weight_sum_max,
                       .norm_max = pb->norm_max,
                       .deadline_ms = pb->deadline_ms,
                       .payload_bytes_max = pb->payload_bytes_max,
                       .tokens_max = pb->tokens_max};
    OMM_TRY(get_run_id(offer.run_id, pb->run_id, false));
    OMM_TRY(get_adapter(&offer.adapter, pb->adapter));
    OMM_TRY(get_blob(&offer.global, pb->global, "global", arena));
    offer.is_canary = pb->canary != NULL;
    if (offer.is_canary) OMM_TRY(get_blob(&offer.canary, pb->canary, "canary", arena));
    OMM_TRY(get_offer_digests(&offer, pb, arena));
    OMM_TRY(check_offer(&offer));
    *out = offer;
    return OMM_OK;
}

/* ---- Submission ---- */

static void put_submission(Omm__Submission *pb, const omm_submission *s) {
    pb->version = OMM_WIRE_VERSION;
    pb->run_id = proto_text(s->run_id);
    pb->round = s->round;
    pb->nonce = proto_digest(&s->nonce);
    pb->offer_digest = proto_digest(&s->offer_digest);
    pb->base_digest = proto_digest(&s->base_digest);
    pb->global_digest = proto_digest(&s->global_digest);
    pb->tokens = s->tokens;
    pb->examples = s->examples;
    pb->steps = s->steps;
    pb->loss_before = s->loss_before;
    pb->loss_after = s->loss_after;
    pb->codec = proto_data(s->codec);
    pb->data_commitment = proto_digest(&s->data_commitment);
    pb->residual_before = proto_digest(&s->residual_before);
    pb->residual_after = proto_digest(&s->residual_after);
    pb->step_digests = proto_data(s->step_digests);
}

omm_err omm_submission_encode(omm_buf *out, const omm_submission *submission) {
    Omm__Submission pb;
    omm__submission__init(&pb);
    Omm__Blob blob;
    omm__blob__init(&blob);
    OMM_TRY(check_submission(submission));
    const omm_blob *payload = &submission->payload;
    ProtobufCBinaryData *chunks = proto_digests(payload->chunk_digests, payload->chunk_count);
    if (!chunks) return omm_raise(OMM_ERR_NOMEM, "no memory to encode a submission");
    put_submission(&pb, submission);
    put_blob(&blob, payload, chunks);
    pb.payload = &blob;
    omm_err err = proto_pack(out, &pb.base, PAYLOAD_BYTES_MAX);
    omm_free(chunks);
    return err;
}

static omm_err get_submission_digests(omm_submission *out, const Omm__Submission *pb) {
    OMM_TRY(proto_get_digest(&out->nonce, pb->nonce, "nonce"));
    OMM_TRY(proto_get_digest(&out->offer_digest, pb->offer_digest, "offer_digest"));
    OMM_TRY(proto_get_digest(&out->base_digest, pb->base_digest, "base_digest"));
    OMM_TRY(proto_get_digest(&out->global_digest, pb->global_digest, "global_digest"));
    OMM_TRY(proto_get_digest(&out->data_commitment, pb->data_commitment, "data_commitment"));
    OMM_TRY(proto_get_digest(&out->residual_before, pb->residual_before, "residual_before"));
    return proto_get_digest(&out->residual_after, pb->residual_after, "residual_after");
}

omm_err omm_submission_decode(omm_submission *out, omm_bytes in, omm_arena *arena) {
    ProtobufCMessage *message;
    OMM_TRY(proto_unpack(&message, &omm__submission__descriptor, in, arena));
    const Omm__Submission *pb = AS(Omm__Submission, message);
    OMM_TRY(proto_check_version(pb->version, "Submission"));
    omm_submission s = {.round = pb->round,
                        .tokens = pb->tokens,
                        .examples = pb->examples,
                        .steps = pb->steps,
                        .loss_before = pb->loss_before,
                        .loss_after = pb->loss_after,
                        .codec = proto_view(pb->codec),
                        .step_digests = proto_view(pb->step_digests)};
    OMM_TRY(get_run_id(s.run_id, pb->run_id, false));
    OMM_TRY(get_submission_digests(&s, pb));
    OMM_TRY(get_blob(&s.payload, pb->payload, "payload", arena));
    OMM_TRY(check_submission(&s));
    *out = s;
    return OMM_OK;
}

/* ---- Receipt ---- */

omm_err omm_receipt_encode(omm_buf *out, const omm_receipt *receipt) {
    Omm__Receipt pb;
    omm__receipt__init(&pb);
    char sentence[OMM_SENTENCE_BYTES_MAX + 1];
    OMM_TRY(check_receipt(receipt));
    proto_clean_sentence(sentence, receipt->accepted ? "" : receipt->sentence);
    pb.version = OMM_WIRE_VERSION;
    pb.run_id = proto_text(receipt->run_id);
    pb.round = receipt->round;
    pb.node_id = proto_digest(&receipt->node_id);
    pb.submission_digest = proto_digest(&receipt->submission_digest);
    pb.accepted = receipt->accepted;
    pb.reason = proto_text(omm_err_name(receipt->reason));
    pb.sentence = sentence;
    return proto_pack(out, &pb.base, PAYLOAD_BYTES_MAX);
}

omm_err omm_receipt_decode(omm_receipt *out, omm_bytes in, omm_arena *arena) {
    ProtobufCMessage *message;
    OMM_TRY(proto_unpack(&message, &omm__receipt__descriptor, in, arena));
    const Omm__Receipt *pb = AS(Omm__Receipt, message);
    OMM_TRY(proto_check_version(pb->version, "Receipt"));
    omm_receipt receipt = {
        .round = pb->round, .accepted = pb->accepted != 0, .sentence = pb->sentence};
    OMM_TRY(get_run_id(receipt.run_id, pb->run_id, false));
    OMM_TRY(proto_get_digest(&receipt.node_id, pb->node_id, "node_id"));
    OMM_TRY(
        proto_get_digest(&receipt.submission_digest, pb->submission_digest, "submission_digest"));
    if (!proto_reason(&receipt.reason, pb->reason)) {
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "receipt has an unknown reason");
    }
    OMM_TRY(proto_check_sentence(pb->sentence));
    OMM_TRY(check_receipt(&receipt));
    if (receipt.accepted && receipt.sentence[0] != '\0') {
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "an accepting receipt has a sentence");
    }
    *out = receipt;
    return OMM_OK;
}

/* ---- Close ---- */

omm_err omm_close_encode(omm_buf *out, const omm_close *record) {
    Omm__Close pb;
    omm__close__init(&pb);
    OMM_TRY(check_run_id(record->run_id, false));
    pb.version = OMM_WIRE_VERSION;
    pb.run_id = proto_text(record->run_id);
    pb.rounds = record->rounds;
    pb.last_round = proto_digest(&record->last_round);
    pb.final_digest = proto_digest(&record->final_digest);
    pb.eval_digest = proto_digest(&record->eval_digest);
    return proto_pack(out, &pb.base, PAYLOAD_BYTES_MAX);
}

omm_err omm_close_decode(omm_close *out, omm_bytes in, omm_arena *arena) {
    ProtobufCMessage *message;
    OMM_TRY(proto_unpack(&message, &omm__close__descriptor, in, arena));
    const Omm__Close *pb = AS(Omm__Close, message);
    OMM_TRY(proto_check_version(pb->version, "Close"));
    omm_close record = {.rounds = pb->rounds};
    OMM_TRY(get_run_id(record.run_id, pb->run_id, false));
    OMM_TRY(proto_get_digest(&record.last_round, pb->last_round, "last_round"));
    OMM_TRY(proto_get_digest(&record.final_digest, pb->final_digest, "final_digest"));
    OMM_TRY(proto_get_digest(&record.eval_digest, pb->eval_digest, "eval_digest"));
    *out = record;
    return OMM_OK;
}

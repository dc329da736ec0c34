/* requests.c - owns the wire form of what travels: Request and Reply. */
#include "internal.h"

#include "omm/envelope.h"

#include <string.h>

#define AS(type, message) ((const type *)(const void *)(message))

static omm_err check_envelope(omm_bytes envelope) {
    return proto_check_size(envelope.size, 1, OMM_ENVELOPE_BYTES_MAX, "envelope");
}

static omm_err check_data(omm_bytes data) {
    return proto_check_size(data.size, 1, OMM_CHUNK_BYTES, "chunk data");
}

/* A blob that is no chunk: it may come with an envelope. */
static omm_err check_whole(omm_bytes data, bool may_be, const char *field) {
    if (may_be) return proto_check_size(data.size, 0, OMM_WHOLE_BYTES_MAX, field);
    if (data.size == 0) return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_FORMAT, "%s does not belong to this kind of message", field);
}

static omm_err check_index(uint32_t index) {
    if (index < OMM_BLOB_CHUNKS_MAX) return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_SIZE, "chunk index is %u, at most %u is allowed", index,
                     OMM_BLOB_CHUNKS_MAX - 1);
}

/* ---- Request ---- */

static omm_err check_request(const omm_request *request) {
    if (request->whole && request->kind != OMM_REQUEST_POLL)
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "whole does not belong to this kind of message");
    switch (request->kind) {
    case OMM_REQUEST_POLL:
    case OMM_REQUEST_ENROL: return check_envelope(request->envelope);
    case OMM_REQUEST_SUBMIT:
        OMM_TRY(check_envelope(request->envelope));
        return check_whole(request->data, true, "payload");
    case OMM_REQUEST_PUT: OMM_TRY(check_data(request->data)); return check_index(request->index);
    case OMM_REQUEST_GET: return check_index(request->index);
    case OMM_REQUEST_BASE: return OMM_OK;
    }
    return omm_raise(OMM_ERR_REFUSED_FORMAT, "unknown kind of request");
}

omm_err omm_request_encode(omm_buf *out, const omm_request *request) {
    Omm__Request pb;
    omm__request__init(&pb);
    Omm__GetChunk get;
    omm__get_chunk__init(&get);
    Omm__PutChunk put;
    omm__put_chunk__init(&put);
    Omm__GetBase base;
    omm__get_base__init(&base);
    OMM_TRY(check_request(request));
    pb.version = OMM_WIRE_VERSION;
    switch (request->kind) {
    case OMM_REQUEST_POLL:
        pb.body_case = OMM__REQUEST__BODY_POLL;
        pb.poll = proto_data(request->envelope);
        pb.whole = request->whole;
        break;
    case OMM_REQUEST_SUBMIT:
        pb.body_case = OMM__REQUEST__BODY_SUBMIT;
        pb.submit = proto_data(request->envelope);
        pb.payload = proto_data(request->data);
        break;
    case OMM_REQUEST_ENROL:
        pb.body_case = OMM__REQUEST__BODY_ENROL;
        pb.enrol = proto_data(request->envelope);
        break;
    case OMM_REQUEST_GET:
        get.digest = proto_digest(&request->digest);
        get.index = request->index;
        pb.body_case = OMM__REQUEST__BODY_GET;
        pb.get = &get;
        break;
    case OMM_REQUEST_PUT:
        put.digest = proto_digest(&request->digest);
        put.index = request->index;
        put.data = proto_data(request->data);
        pb.body_case = OMM__REQUEST__BODY_PUT;
        pb.put = &put;
        break;
    case OMM_REQUEST_BASE:
        pb.body_case = OMM__REQUEST__BODY_ASK_BASE;
        pb.ask_base = &base;
        break;
    }
    return proto_pack(out, &pb.base, OMM_MESSAGE_BYTES_MAX);
}

static omm_err get_request_body(omm_request *out, const Omm__Request *pb) {
    switch (pb->body_case) {
    case OMM__REQUEST__BODY_POLL:
        out->kind = OMM_REQUEST_POLL;
        out->envelope = proto_view(pb->poll);
        return OMM_OK;
    case OMM__REQUEST__BODY_SUBMIT:
        out->kind = OMM_REQUEST_SUBMIT;
        out->envelope = proto_view(pb->submit);
        out->data = proto_view(pb->payload);
        return OMM_OK;
    case OMM__REQUEST__BODY_ENROL:
        out->kind = OMM_REQUEST_ENROL;
        out->envelope = proto_view(pb->enrol);
        return OMM_OK;
    case OMM__REQUEST__BODY_GET:
        out->kind = OMM_REQUEST_GET;
        out->index = pb->get->index;
        return proto_get_digest(&out->digest, pb->get->digest, "get.digest");
    case OMM__REQUEST__BODY_PUT:
        out->kind = OMM_REQUEST_PUT;
        out->index = pb->put->index;
        out->data = proto_view(pb->put->data);
        return proto_get_digest(&out->digest, pb->put->digest, "put.digest");
    case OMM__REQUEST__BODY_ASK_BASE: out->kind = OMM_REQUEST_BASE; return OMM_OK;
    default: return omm_raise(OMM_ERR_REFUSED_FORMAT, "request has no body");
    }
}

omm_err omm_request_decode(omm_request *out, omm_bytes in, omm_arena *arena) {
    ProtobufCMessage *message;
    omm_request request = {.kind = OMM_REQUEST_POLL};
    OMM_TRY(proto_unpack(&message, &omm__request__descriptor, in, arena));
    const Omm__Request *pb = AS(Omm__Request, message);
    OMM_TRY(proto_check_version(pb->version, "Request"));
    OMM_TRY(get_request_body(&request, pb));
    request.whole = pb->whole;
    OMM_TRY(check_whole(proto_view(pb->payload), request.kind == OMM_REQUEST_SUBMIT, "payload"));
    OMM_TRY(check_request(&request));
    *out = request;
    return OMM_OK;
}

/* ---- Reply ---- */

static omm_err check_missing(const omm_reply *reply) {
    OMM_TRY(proto_check_size(reply->missing_count, 0, OMM_BLOB_CHUNKS_MAX, "need.missing"));
    for (size_t i = 0; i < reply->missing_count; i++) {
        OMM_TRY(check_index(reply->missing[i]));
        if (i == 0 || reply->missing[i - 1] < reply->missing[i]) continue;
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "need.missing[%zu] is not above the one before",
                         i);
    }
    return OMM_OK;
}

static omm_err check_reply(const omm_reply *reply) {
    switch (reply->kind) {
    case OMM_REPLY_WAIT: return OMM_OK;
    case OMM_REPLY_OFFER:
        OMM_TRY(check_envelope(reply->envelope));
        return check_whole(reply->data, true, "global");
    case OMM_REPLY_RECEIPT:
    case OMM_REPLY_CHALLENGE:
    case OMM_REPLY_DONE:
    case OMM_REPLY_BASE: return check_envelope(reply->envelope);
    case OMM_REPLY_CHUNK: OMM_TRY(check_data(reply->data)); return check_index(reply->index);
    case OMM_REPLY_NEED: return check_missing(reply);
    case OMM_REPLY_REFUSED:
        if (reply->reason != OMM_OK) return OMM_OK;
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "a refusal has a reason other than OK");
    }
    return omm_raise(OMM_ERR_REFUSED_FORMAT, "unknown kind of reply");
}

typedef struct reply_parts {
    Omm__Wait wait;
    Omm__Chunk chunk;
    Omm__Need need;
    Omm__Refused refused;
    Omm__Done done;
    char sentence[OMM_SENTENCE_BYTES_MAX + 1];
} reply_parts;

static void init_parts(reply_parts *parts) {
    omm__wait__init(&parts->wait);
    omm__chunk__init(&parts->chunk);
    omm__need__init(&parts->need);
    omm__refused__init(&parts->refused);
    omm__done__init(&parts->done);
}

static void put_chunk(Omm__Reply *pb, reply_parts *parts, const omm_reply *reply) {
    parts->chunk.digest = proto_digest(&reply->digest);
    parts->chunk.index = reply->index;
    parts->chunk.data = proto_data(reply->data);
    pb->body_case = OMM__REPLY__BODY_CHUNK;
    pb->chunk = &parts->chunk;
}

static void put_need(Omm__Reply *pb, reply_parts *parts, const omm_reply *reply) {
    union {
        const uint32_t *shown;
        uint32_t *taken;
    } missing = {.shown = reply->missing};
    parts->need.missing = missing.taken;
    parts->need.n_missing = reply->missing_count;
    pb->body_case = OMM__REPLY__BODY_NEED;
    pb->need = &parts->need;
}

static void put_refused(Omm__Reply *pb, reply_parts *parts, const omm_reply *reply) {
    proto_clean_sentence(parts->sentence, reply->sentence);
    parts->refused.reason = proto_text(omm_err_name(reply->reason));
    parts->refused.sentence = parts->sentence;
    pb->body_case = OMM__REPLY__BODY_REFUSED;
    pb->refused = &parts->refused;
}

static void put_reply_body(Omm__Reply *pb, reply_parts *parts, const omm_reply *reply) {
    switch (reply->kind) {
    case OMM_REPLY_WAIT:
        parts->wait.retry_ms = reply->retry_ms;
        pb->body_case = OMM__REPLY__BODY_WAIT;
        pb->wait = &parts->wait;
        break;
    case OMM_REPLY_OFFER:
        pb->body_case = OMM__REPLY__BODY_OFFER;
        pb->offer = proto_data(reply->envelope);
        pb->global = proto_data(reply->data);
        break;
    case OMM_REPLY_RECEIPT:
        pb->body_case = OMM__REPLY__BODY_RECEIPT;
        pb->receipt = proto_data(reply->envelope);
        break;
    case OMM_REPLY_DONE:
        parts->done.close = proto_data(reply->envelope);
        pb->body_case = OMM__REPLY__BODY_DONE;
        pb->done = &parts->done;
        break;
    case OMM_REPLY_CHALLENGE:
        pb->body_case = OMM__REPLY__BODY_CHALLENGE;
        pb->challenge = proto_data(reply->envelope);
        break;
    case OMM_REPLY_BASE:
        pb->body_case = OMM__REPLY__BODY_BASE_MODEL;
        pb->base_model = proto_data(reply->envelope);
        break;
    case OMM_REPLY_CHUNK: put_chunk(pb, parts, reply); break;
    case OMM_REPLY_NEED: put_need(pb, parts, reply); break;
    case OMM_REPLY_REFUSED: put_refused(pb, parts, reply); break;
    }
}

omm_err omm_reply_encode(omm_buf *out, const omm_reply *reply) {
    Omm__Reply pb;
    omm__reply__init(&pb);
    reply_parts parts;
    init_parts(&parts);
    OMM_TRY(check_reply(reply));
    pb.version = OMM_WIRE_VERSION;
    put_reply_body(&pb, &parts, reply);
    return proto_pack(out, &pb.base, OMM_MESSAGE_BYTES_MAX);
}

static omm_err get_refused(omm_reply *out, const Omm__Refused *pb) {
    if (!proto_reason(&out->reason, pb->reason)) {
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "refusal has an unknown reason");
    }
    out->sentence = pb->sentence;
    return proto_check_sentence(pb->sentence);
}

static omm_err get_reply_body(omm_reply *out, const Omm__Reply *pb) {
    switch (pb->body_case) {
    case OMM__REPLY__BODY_WAIT:
        out->kind = OMM_REPLY_WAIT;
        out->retry_ms = pb->wait->retry_ms;
        return OMM_OK;
    case OMM__REPLY__BODY_OFFER:
        out->kind = OMM_REPLY_OFFER;
        out->envelope = proto_view(pb->offer);
        out->data = proto_view(pb->global);
        return OMM_OK;
    case OMM__REPLY__BODY_RECEIPT:
        out->kind = OMM_REPLY_RECEIPT;
        out->envelope = proto_view(pb->receipt);
        return OMM_OK;
    case OMM__REPLY__BODY_CHALLENGE:
        out->kind = OMM_REPLY_CHALLENGE;
        out->envelope = proto_view(pb->challenge);
        return OMM_OK;
    case OMM__REPLY__BODY_DONE:
        out->kind = OMM_REPLY_DONE;
        out->envelope = proto_view(pb->done->close);
        return OMM_OK;
    case OMM__REPLY__BODY_BASE_MODEL:
        out->kind = OMM_REPLY_BASE;
        out->envelope = proto_view(pb->base_model);
        return OMM_OK;
    case OMM__REPLY__BODY_CHUNK:
        out->kind = OMM_REPLY_CHUNK;
        out->index = pb->chunk->index;
        out->data = proto_view(pb->chunk->data);
        return proto_get_digest(&out->digest, pb->chunk->digest, "chunk.digest");
    case OMM__REPLY__BODY_NEED:
        out->kind = OMM_REPLY_NEED;
        out->missing = pb->need->missing;
        out->missing_count = pb->need->n_missing;
        return OMM_OK;
    case OMM__REPLY__BODY_REFUSED:
        out->kind = OMM_REPLY_REFUSED;
        return get_refused(out, pb->refused);
    default: return omm_raise(OMM_ERR_REFUSED_FORMAT, "reply has no body");
    }
}

omm_err omm_reply_decode(omm_reply *out, omm_bytes in, omm_arena *arena) {
    ProtobufCMessage *message;
    omm_reply reply = {.kind = OMM_REPLY_WAIT, .sentence = ""};
    OMM_TRY(proto_unpack(&message, &omm__reply__descriptor, in, arena));
    const Omm__Reply *pb = AS(Omm__Reply, message);
    OMM_TRY(proto_check_version(pb->version, "Reply"));
    OMM_TRY(get_reply_body(&reply, pb));
    OMM_TRY(check_whole(proto_view(pb->global), reply.kind == OMM_REPLY_OFFER, "global"));
    OMM_TRY(check_reply(&reply));
    *out = reply;
    return OMM_OK;
}

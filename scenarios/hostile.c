/* hostile.c - peers that do one thing wrong, on purpose.
 *
 * A hostile peer is enrolled, polls like everybody else and reads the offers; then it sends one
 * submission a round that is wrong in exactly one way.  It trains nothing: its update is a small
 * constant, so everything but the one fault would be accepted.
 */
#include "internal.h"

#include "omm/envelope.h"
#include "omm/mem.h"
#include "omm/messages.h"
#include "omm/recipe.h"

#include <string.h>

#define HOSTILE_VALUE 0x1p-10f           /* the constant update: harmless in size */
#define HOSTILE_BOMB_BYTES (64u << 20)   /* of zeros, in a frame of a few kilobytes */
#define HOSTILE_PAYLOAD_MAX (128u << 20) /* what we ourselves may build */
#define HOSTILE_WAIT_MS 2000u

struct sim_hostile {
    omm_hostile kind;
    omm_key key, stranger; /* enrolled, and one that nobody enrolled */
    const omm_layout *layout;
    const omm_bytes *overheard;
    uint32_t rounds_seen; /* one more than the last round attacked */
    uint64_t polls;
    omm_arena arena; /* of the offer at hand; renewed every round */
    omm_offer offer;
    omm_digest offer_digest;
    omm_blob blob;
    omm_digest residual_zero; /* of a vector of zeros: nothing is kept from round to round */
    omm_digest canonical;     /* of the payload, where it is one */
    omm_buf payload;          /* as sent */
    omm_buf request;
};

omm_err sim_hostile_open(sim_hostile **out, const sim_hostile_options *options) {
    sim_hostile *h = omm_alloc(1, sizeof *h);
    if (!h) return omm_raise(OMM_ERR_NOMEM, "hostile peer");
    h->kind = options->kind;
    h->key = *options->key;
    omm_run_node_key(&h->stranger, options->run_seed, "a key that nobody enrolled");
    h->layout = options->layout;
    h->overheard = options->overheard;
    h->residual_zero = omm_residual_zero(h->layout->value_count);
    omm_arena_init(&h->arena, OMM_MESSAGE_ARENA_BYTES);
    omm_buf_init(&h->payload, HOSTILE_PAYLOAD_MAX);
    omm_buf_init(&h->request, OMM_MESSAGE_BYTES_MAX);
    *out = h;
    return OMM_OK;
}

void sim_hostile_close(sim_hostile *hostile) {
    if (!hostile) return;
    omm_arena_fini(&hostile->arena);
    omm_buf_fini(&hostile->payload);
    omm_buf_fini(&hostile->request);
    omm_free_secret(hostile, sizeof *hostile);
}

/* --- the payloads ----------------------------------------------------------------------------- */

static omm_err encode_constant(omm_encoded *info, sim_hostile *h, const omm_codec *codec,
                               float value) {
    float *values = omm_alloc(h->layout->value_count, sizeof *values);
    if (!values) return omm_raise(OMM_ERR_NOMEM, "hostile update");
    for (size_t i = 0; i < h->layout->value_count; i++) values[i] = value;
    omm_err err = omm_codec_encode(&h->payload, info, codec, h->layout, values);
    if (err == OMM_OK) h->canonical = info->payload_digest;
    omm_free(values);
    return err;
}

/* The constant update with its last four bytes (a value, or values of the last row) made all ones:
 * a NaN in f32 and f16.  In int8 the scales carry the floats, so the last one is taken, in front of a byte for each value. */
static omm_err encode_nan(sim_hostile *h, const omm_codec *codec) {
    omm_encoded info;
    OMM_TRY(encode_constant(&info, h, codec, HOSTILE_VALUE));
    omm_buf payload;
    omm_buf_init(&payload, HOSTILE_PAYLOAD_MAX);
    size_t payload_max = omm_codec_payload_bytes_max(codec, h->layout);
    omm_err err = omm_codec_unpack(&payload, omm_buf_view(&h->payload), payload_max);
    if (err == OMM_OK) {
        const bool scaled = codec->kind == OMM_CODEC_INT8;
        const size_t bytes = scaled ? 3 : 4, behind = scaled ? info.kept_count : 0;
        memset(payload.data + payload.size - behind - bytes, 0xff, bytes);
        omm_buf_clear(&h->payload);
        err = omm_codec_pack(&h->payload, omm_buf_view(&payload), codec->zstd_level);
    }
    omm_buf_fini(&payload);
    return err;
}

static omm_err encode_bomb(sim_hostile *h) {
    omm_buf zeros;
    omm_buf_init(&zeros, HOSTILE_BOMB_BYTES);
    uint8_t *added = NULL;
    omm_err err = omm_buf_extend(&zeros, &added, HOSTILE_BOMB_BYTES);
    if (err == OMM_OK) err = omm_codec_pack(&h->payload, omm_buf_view(&zeros), 3);
    omm_buf_fini(&zeros);
    return err;
}

static omm_err make_payload(sim_hostile *h) {
    omm_codec codec;
    omm_encoded info;
    OMM_TRY(omm_codec_get(&codec, h->offer.codec_up));
    omm_buf_clear(&h->payload);
    switch (h->kind) {
    case OMM_HOSTILE_NAN: return encode_nan(h, &codec);
    case OMM_HOSTILE_OUT_OF_RANGE: return encode_constant(&info, h, &codec, 4 * h->offer.value_max);
    case OMM_HOSTILE_ZSTD_BOMB: return encode_bomb(h);
    default: break;
    }
    OMM_TRY(encode_constant(&info, h, &codec, HOSTILE_VALUE));
    if (h->kind == OMM_HOSTILE_TRUNCATED) h->payload.size -= h->payload.size / 4 + 1;
    return OMM_OK;
}

/* --- the manifest and its envelope ------------------------------------------------------------ */

/* As many steps as the recipe has, of which nobody has heard. */
static omm_err claim_steps(omm_submission *m, sim_hostile *h) {
    omm_recipe recipe;
    OMM_TRY(omm_recipe_decode(&recipe, h->offer.recipe));
    const size_t bytes = (size_t)recipe.steps * OMM_STEP_DIGEST_BYTES;
    const uint8_t *zeros = omm_arena_alloc(&h->arena, bytes, 1);
    if (!zeros) return omm_raise(OMM_ERR_NOMEM, "step digests");
    m->steps = recipe.steps;
    m->step_digests = omm_bytes_of(zeros, bytes);
    return OMM_OK;
}

static omm_err fill_manifest(omm_submission *m, sim_hostile *h) {
    const omm_offer *offer = &h->offer;
    *m = (omm_submission){.round = offer->round,
                          .nonce = offer->nonce,
                          .offer_digest = h->offer_digest,
                          .base_digest = offer->base_digest,
                          .global_digest = offer->global.digest,
                          .tokens = offer->tokens_max / 2 + 1,
                          .examples = 1,
                          .loss_before = 1.0f,
                          .loss_after = 0.5f,
                          .codec = offer->codec_up,
                          .payload = h->blob,
                          .residual_before = h->residual_zero,
                          .residual_after = h->residual_zero};
    OMM_TRY(claim_steps(m, h));
    memcpy(m->run_id, offer->run_id, sizeof m->run_id);
    if (h->kind == OMM_HOSTILE_WRONG_BASE) m->base_digest.b[0] ^= 1;
    if (h->kind == OMM_HOSTILE_OVERSIZE) m->payload.size = offer->payload_bytes_max + 1;
    return OMM_OK;
}

static omm_err seal(omm_buf *out, const sim_hostile *h, omm_bytes manifest) {
    switch (h->kind) {
    case OMM_HOSTILE_WRONG_KEY:
        return omm_envelope_seal(out, OMM_CONTEXT_SUBMISSION, manifest, &h->stranger);
    case OMM_HOSTILE_WRONG_CONTEXT:
        return omm_envelope_seal(out, OMM_CONTEXT_POLL, manifest, &h->key);
    case OMM_HOSTILE_UNSIGNED: {
        omm_envelope envelope = {.payload = manifest, .key = h->key.public_key};
        omm_context_bytes(envelope.context, OMM_CONTEXT_SUBMISSION);
        return omm_envelope_encode(out, &envelope);
    }
    default: return omm_envelope_seal(out, OMM_CONTEXT_SUBMISSION, manifest, &h->key);
    }
}

static omm_err make_envelope(omm_buf *out, sim_hostile *h) {
    if (h->kind == OMM_HOSTILE_REPLAYED)
        return omm_buf_append(out, h->overheard->data, h->overheard->size);
    OMM_TRY(make_payload(h));
    OMM_TRY(omm_blob_describe(&h->blob, &h->arena, omm_buf_view(&h->payload), &h->canonical));
    omm_submission manifest;
    OMM_TRY(fill_manifest(&manifest, h));
    omm_digest *chunks = NULL;
    if (h->kind == OMM_HOSTILE_OVERSIZE) { /* as many chunk digests as the size asks for */
        manifest.payload.chunk_count = omm_chunk_count(manifest.payload.size);
        chunks = omm_alloc(manifest.payload.chunk_count, sizeof *chunks);
        if (!chunks) return omm_raise(OMM_ERR_NOMEM, "chunk digests");
        manifest.payload.chunk_digests = chunks;
    }
    omm_buf bytes;
    omm_buf_init(&bytes, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = omm_submission_encode(&bytes, &manifest);
    if (err == OMM_OK) err = seal(out, h, omm_buf_view(&bytes));
    omm_buf_fini(&bytes);
    omm_free(chunks);
    return err;
}

/* --- the conversation ------------------------------------------------------------------------- */

static omm_err send_request(omm_node_action *action, sim_hostile *h, const omm_request *request) {
    omm_buf_clear(&h->request);
    OMM_TRY(omm_request_encode(&h->request, request));
    *action = (omm_node_action){.kind = OMM_NODE_SEND, .request = omm_buf_view(&h->request)};
    return OMM_OK;
}

static omm_err poll(omm_node_action *action, sim_hostile *h) {
    omm_poll message = {.rounds_seen = h->rounds_seen, .counter = ++h->polls};
    omm_buf payload;
    omm_buf envelope;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = omm_poll_encode(&payload, &message);
    if (err == OMM_OK)
        err = omm_envelope_seal(&envelope, OMM_CONTEXT_POLL, omm_buf_view(&payload), &h->key);
    omm_request request = {.kind = OMM_REQUEST_POLL, .envelope = omm_buf_view(&envelope)};
    if (err == OMM_OK) err = send_request(action, h, &request);
    omm_buf_fini(&payload);
    omm_buf_fini(&envelope);
    return err;
}

static void pause(omm_node_action *action, uint64_t now_ms) {
    *action = (omm_node_action){.kind = OMM_NODE_WAIT, .until_ms = now_ms + HOSTILE_WAIT_MS};
}

static omm_err attack(omm_node_action *action, sim_hostile *h, uint64_t now_ms) {
    h->rounds_seen = h->offer.round + 1;
    if (h->kind == OMM_HOSTILE_REPLAYED && h->overheard->size == 0) {
        pause(action, now_ms); /* nothing to replay before the second round */
        return OMM_OK;
    }
    omm_buf envelope;
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = make_envelope(&envelope, h);
    omm_request request = {.kind = OMM_REQUEST_SUBMIT, .envelope = omm_buf_view(&envelope)};
    if (err == OMM_OK) err = send_request(action, h, &request);
    omm_buf_fini(&envelope);
    return err;
}

static omm_err on_offer(omm_node_action *action, sim_hostile *h, uint64_t now_ms,
                        omm_bytes envelope) {
    omm_envelope opened;
    OMM_TRY(omm_envelope_open_as(&opened, OMM_CONTEXT_OFFER, envelope));
    omm_arena_fini(&h->arena);
    omm_arena_init(&h->arena, (size_t)2 * OMM_MESSAGE_ARENA_BYTES);
    OMM_TRY(omm_offer_decode(&h->offer, opened.payload, &h->arena));
    h->offer_digest = omm_hash(envelope);
    if (h->offer.round < h->rounds_seen) { /* attacked already: wait for the next round */
        pause(action, now_ms);
        return OMM_OK;
    }
    return attack(action, h, now_ms);
}

static omm_err on_need(omm_node_action *action, sim_hostile *h, const omm_reply *reply) {
    uint32_t index = reply->missing[0];
    omm_request request = {.kind = OMM_REQUEST_PUT,
                           .digest = h->blob.digest,
                           .index = index,
                           .data = omm_chunk_view(omm_buf_view(&h->payload), index)};
    return send_request(action, h, &request);
}

static omm_err on_reply(omm_node_action *action, sim_hostile *h, uint64_t now_ms, omm_bytes body) {
    omm_arena arena;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    omm_reply reply;
    omm_err err = omm_reply_decode(&reply, body, &arena);
    if (err == OMM_OK) {
        switch (reply.kind) {
        case OMM_REPLY_OFFER: err = on_offer(action, h, now_ms, reply.envelope); break;
        case OMM_REPLY_NEED: err = on_need(action, h, &reply); break;
        case OMM_REPLY_DONE: *action = (omm_node_action){.kind = OMM_NODE_DONE}; break;
        default: pause(action, now_ms); break; /* refused, as it should be, or told to wait */
        }
    }
    omm_arena_fini(&arena);
    return err;
}

omm_err sim_hostile_step(omm_node_action *action, sim_hostile *hostile, uint64_t now_ms,
                         const omm_node_event *event) {
    if (event->kind == OMM_NODE_REPLY) return on_reply(action, hostile, now_ms, event->reply);
    return poll(action, hostile);
}

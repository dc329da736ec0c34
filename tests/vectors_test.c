/* vectors_test.c - docs/protocol.json, which another implementation has made (tests/protocol_peer.py): our
 * encoders write the same bytes, our decoders read them back, and what must be refused is, for the
 * reason that it says. */
#include "battery.h"

#include "omm/base_model.h"
#include "omm/codec.h"
#include "omm/envelope.h"
#include "omm/fedavg.h"
#include "omm/file.h"
#include "omm/mem.h"
#include "vectors.h"

enum { VALUES_MAX = 256, SEGMENTS_MAX = 8 };

static size_t values_of(float out[VALUES_MAX], const json_t *object, const char *key) {
    omm_buf data = bytes_of(object, key);
    const size_t n = data.size / 4;
    CHECK(n >= 1 && n <= VALUES_MAX);
    for (size_t i = 0; i < n; i++) out[i] = omm_get_f32(data.data + 4 * i);
    omm_buf_fini(&data);
    return n;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* It is the sample of one of forms[]; a put and a chunk are the same bytes. */
static void check_message(const json_t *vector) {
    omm_buf want = bytes_of(vector, "bytes");
    unsigned found = 0;
    for (unsigned i = 0; i < form_count; i++) {
        omm_buf sample, again;
        omm_arena arena;
        omm_buf_init(&sample, FILE_MAX);
        omm_buf_init(&again, FILE_MAX);
        omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
        CHECK_OK(forms[i].sample(&sample));
        if (omm_bytes_equal(omm_buf_view(&sample), omm_buf_view(&want))) {
            found++;
            CHECK_OK(forms[i].pass(&again, omm_buf_view(&want), &arena));
            CHECK(omm_bytes_equal(omm_buf_view(&again), omm_buf_view(&want)));
        }
        omm_arena_fini(&arena);
        omm_buf_fini(&again);
        omm_buf_fini(&sample);
    }
    if (found == 0) fprintf(stderr, "%s\n", text_of(vector, "message"));
    CHECK(found >= 1);
    omm_buf_fini(&want);
}

/* Decode as the message of this name. */
static omm_err decode(const char *name, omm_bytes in, omm_arena *arena) {
    omm_poll poll;
    omm_offer offer;
    omm_submission submission;
    omm_receipt receipt;
    omm_close record;
    omm_enrol enrol;
    omm_challenge challenge;
    omm_request request;
    omm_reply reply;
    if (strcmp(name, "Poll") == 0) return omm_poll_decode(&poll, in, arena);
    if (strcmp(name, "Offer") == 0) return omm_offer_decode(&offer, in, arena);
    if (strcmp(name, "Submission") == 0) return omm_submission_decode(&submission, in, arena);
    if (strcmp(name, "Receipt") == 0) return omm_receipt_decode(&receipt, in, arena);
    if (strcmp(name, "Close") == 0) return omm_close_decode(&record, in, arena);
    if (strcmp(name, "Enrol") == 0) return omm_enrol_decode(&enrol, in, arena);
    if (strcmp(name, "Challenge") == 0) return omm_challenge_decode(&challenge, in, arena);
    if (strcmp(name, "Request") == 0) return omm_request_decode(&request, in, arena);
    omm_base_model base;
    if (strcmp(name, "Base") == 0) return omm_base_model_decode(&base, in, arena);
    CHECK(strcmp(name, "Reply") == 0);
    return omm_reply_decode(&reply, in, arena);
}

static void check_refused_message(const json_t *vector) {
    omm_buf in = bytes_of(vector, "bytes");
    omm_arena arena;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    check_reason(vector, decode(text_of(vector, "message"), omm_buf_view(&in), &arena));
    omm_arena_fini(&arena);
    omm_buf_fini(&in);
}

/* ---- envelopes ------------------------------------------------------------------------------- */

static omm_key s_key;

static void make_key(const json_t *vector) {
    omm_seed seed;
    omm_buf bytes = bytes_of(vector, "seed");
    CHECK_EQ(bytes.size, sizeof seed.b);
    memcpy(seed.b, bytes.data, sizeof seed.b);
    omm_buf_fini(&bytes);
    omm_key_from_seed(&s_key, &seed);
    const omm_digest key = digest_of(vector, "public"), id = digest_of(vector, "id");
    CHECK(same_bytes(key.b, s_key.public_key.b, sizeof key.b));
    const omm_digest ours = omm_key_id(&s_key.public_key);
    CHECK(omm_digest_equal(&id, &ours));
}

static omm_context purpose_of(const json_t *vector) {
    static const char *const names[] = {
        [OMM_CONTEXT_POLL] = "poll",
        [OMM_CONTEXT_OFFER] = "offer",
        [OMM_CONTEXT_SUBMISSION] = "submission",
        [OMM_CONTEXT_RECEIPT] = "receipt",
        [OMM_CONTEXT_CLOSE] = "close",
        [OMM_CONTEXT_ENROL] = "enrol",
        [OMM_CONTEXT_BASE] = "base",
    };
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], text_of(vector, "purpose")) == 0) return (omm_context)i;
    check_failed("a purpose", __FILE__, __LINE__);
    return OMM_CONTEXT_POLL;
}

static void check_envelope(const json_t *vector) {
    omm_buf want = bytes_of(vector, "bytes"), payload = bytes_of(vector, "payload"), got;
    omm_envelope opened;
    omm_buf_init(&got, FILE_MAX);
    CHECK_OK(omm_envelope_seal(&got, purpose_of(vector), omm_buf_view(&payload), &s_key));
    CHECK(omm_bytes_equal(omm_buf_view(&got), omm_buf_view(&want)));
    CHECK_OK(omm_envelope_open_as(&opened, purpose_of(vector), omm_buf_view(&want)));
    CHECK(omm_bytes_equal(opened.payload, omm_buf_view(&payload)));
    const omm_digest digest = digest_of(vector, "digest"), ours = omm_hash(omm_buf_view(&want));
    CHECK(omm_digest_equal(&digest, &ours));
    omm_buf_fini(&got);
    omm_buf_fini(&payload);
    omm_buf_fini(&want);
}

static void check_refused_envelope(const json_t *vector) {
    omm_buf in = bytes_of(vector, "bytes");
    omm_envelope opened;
    check_reason(vector, omm_envelope_open_as(&opened, purpose_of(vector), omm_buf_view(&in)));
    omm_buf_fini(&in);
}

/* ---- invitations ----------------------------------------------------------------------------- */

static void check_invitation(const json_t *vector) {
    omm_seed token;
    omm_enrol enrol = {.coordinator = s_key.public_key};
    omm_public_key node;
    omm_buf bytes = bytes_of(vector, "node"), want = bytes_of(vector, "enrol"), got;
    omm_buf_init(&got, FILE_MAX);
    CHECK_EQ(bytes.size, sizeof node.b);
    memcpy(node.b, bytes.data, sizeof node.b);
    CHECK_OK(omm_invitation_parse(&token, text_of(vector, "token")));
    const omm_digest id = digest_of(vector, "id"), ours = omm_invitation_id(&token);
    CHECK(omm_digest_equal(&id, &ours));
    omm_invitation_use(&enrol, &token, &node);
    CHECK_OK(omm_enrol_encode(&got, &enrol));
    CHECK(omm_bytes_equal(omm_buf_view(&got), omm_buf_view(&want)));
    CHECK_OK(omm_invitation_check(&enrol, &node));
    omm_buf_fini(&got);
    omm_buf_fini(&want);
    omm_buf_fini(&bytes);
}

static void check_work(const json_t *vector) {
    omm_enrol enrol = {.coordinator = s_key.public_key, .has_work = true};
    omm_public_key node;
    omm_buf bytes = bytes_of(vector, "node"), want = bytes_of(vector, "enrol"), got;
    omm_buf_init(&got, FILE_MAX);
    memcpy(node.b, bytes.data, sizeof node.b);
    enrol.challenge = digest_of(vector, "challenge");
    const uint32_t bits = (uint32_t)number_of(vector, "bits");
    CHECK(omm_work_search(&enrol.work, &enrol.challenge, &node, bits, 0, 1 << 20));
    CHECK_EQ(enrol.work, number_of(vector, "work"));
    CHECK(omm_work_bits(&enrol.challenge, &node, enrol.work) >= bits);
    CHECK_OK(omm_enrol_encode(&got, &enrol));
    CHECK(omm_bytes_equal(omm_buf_view(&got), omm_buf_view(&want)));
    omm_buf_fini(&got);
    omm_buf_fini(&want);
    omm_buf_fini(&bytes);
}

/* ---- payloads and means ---------------------------------------------------------------------- */

static omm_segment s_segments[SEGMENTS_MAX];
static omm_layout s_layout = {.segments = s_segments};

static void make_layout(const json_t *vector) {
    const json_t *list = list_of(vector, "segments", 2);
    s_layout.segment_count = json_array_size(list);
    CHECK(s_layout.segment_count <= SEGMENTS_MAX);
    for (size_t i = 0; i < s_layout.segment_count; i++) {
        const json_t *one = json_array_get(list, i);
        omm_segment *s = &s_segments[i];
        s->name = text_of(one, "name");
        s->rows = (uint32_t)number_of(one, "rows");
        s->cols = (uint32_t)number_of(one, "cols");
        s->offset = (size_t)number_of(one, "offset");
        s_layout.value_count += (size_t)s->rows * s->cols;
    }
    CHECK_OK(omm_layout_check(&s_layout));
    const omm_digest want = digest_of(vector, "digest"), got = omm_layout_digest(&s_layout);
    CHECK(omm_digest_equal(&want, &got));
}

static void check_payload(const json_t *vector) {
    float values[VALUES_MAX], want[VALUES_MAX], got[VALUES_MAX];
    omm_codec codec;
    omm_encoded info;
    omm_buf sent, spec = bytes_of(vector, "codec"), payload = bytes_of(vector, "payload");
    omm_buf_init(&sent, FILE_MAX);
    CHECK_OK(omm_codec_get(&codec, omm_buf_view(&spec)));
    CHECK_EQ(codec.keep_count, number_of(vector, "keep_count"));
    CHECK_EQ(values_of(values, vector, "values"), s_layout.value_count);
    CHECK_EQ(values_of(want, vector, "decoded"), s_layout.value_count);
    CHECK_OK(omm_codec_encode(&sent, &info, &codec, &s_layout, values));
    CHECK(sent.size == payload.size + 1 && sent.data[0] == 0);
    CHECK(same_bytes(sent.data + 1, payload.data, payload.size));
    const omm_digest canonical = digest_of(vector, "canonical");
    CHECK(omm_digest_equal(&canonical, &info.payload_digest));
    CHECK_OK(omm_codec_decode(got, NULL, &codec, &s_layout, omm_buf_view(&sent)));
    CHECK(same_bytes(got, want, s_layout.value_count * sizeof *got));
    omm_buf_fini(&sent);
    omm_buf_fini(&payload);
    omm_buf_fini(&spec);
}

/* What another implementation packed. */
static void check_packed(const json_t *vector) {
    float values[VALUES_MAX];
    omm_codec codec;
    omm_encoded info;
    omm_buf spec = bytes_of(vector, "codec"), sent = bytes_of(vector, "sent");
    omm_buf payload = bytes_of(vector, "payload");
    CHECK_OK(omm_codec_get(&codec, omm_buf_view(&spec)));
    CHECK_OK(omm_codec_decode(values, &info, &codec, &s_layout, omm_buf_view(&sent)));
    const omm_digest canonical = omm_hash(omm_buf_view(&payload));
    CHECK(omm_digest_equal(&canonical, &info.payload_digest));
    omm_buf_fini(&payload);
    omm_buf_fini(&sent);
    omm_buf_fini(&spec);
}

static void check_refused_sent(const json_t *vector) {
    float values[VALUES_MAX];
    omm_codec codec;
    omm_buf spec = bytes_of(vector, "codec"), sent = bytes_of(vector, "sent");
    CHECK_OK(omm_codec_get(&codec, omm_buf_view(&spec)));
    check_reason(vector, omm_codec_decode(values, NULL, &codec, &s_layout, omm_buf_view(&sent)));
    omm_buf_fini(&sent);
    omm_buf_fini(&spec);
}

static void check_refused_codec(const json_t *vector) {
    omm_codec codec;
    omm_buf spec = bytes_of(vector, "codec");
    check_reason(vector, omm_codec_get(&codec, omm_buf_view(&spec)));
    omm_buf_fini(&spec);
}

static void check_mean(const json_t *vector) {
    const omm_fedavg_range range = {.value_max_log2 = (int32_t)number_of(vector, "value_max_log2"),
                                    .weight_sum_max_log2 =
                                        (uint32_t)number_of(vector, "weight_sum_max_log2")};
    float values[VALUES_MAX], want[VALUES_MAX], got[VALUES_MAX];
    omm_fedavg acc;
    const size_t n = values_of(want, vector, "mean");
    const json_t *list = list_of(vector, "contributions", 1);
    CHECK_OK(omm_fedavg_init(&acc, &range, n));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        CHECK_EQ(values_of(values, one, "values"), n);
        CHECK_OK(omm_fedavg_add(&acc, values, strtoull(text_of(one, "weight"), NULL, 10), NULL));
    }
    CHECK_OK(omm_fedavg_mean(got, &acc, NULL));
    CHECK(same_bytes(got, want, n * sizeof *got));
    omm_fedavg_fini(&acc);
}

int main(void) {
    json_t *vectors = NULL, *part = NULL;
    char path[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(path, getenv("OMM_SOURCE_DIR"), "docs/protocol.json"));
    CHECK_OK(omm_json_load(&vectors, path, FILE_MAX));
    each(vectors, "messages", form_count, check_message);
    each(vectors, "refused_messages", 75, check_refused_message);
    CHECK_OK(omm_json_get_object(&part, vectors, "key"));
    make_key(part);
    each(vectors, "envelopes", 6, check_envelope);
    CHECK_OK(omm_json_get_object(&part, vectors, "invitation"));
    check_invitation(part);
    CHECK_OK(omm_json_get_object(&part, vectors, "work"));
    check_work(part);
    each(vectors, "refused_envelopes", 14, check_refused_envelope);
    CHECK_OK(omm_json_get_object(&part, vectors, "layout"));
    make_layout(part);
    each(vectors, "payloads", 15, check_payload);
    each(vectors, "packed", 1, check_packed);
    each(vectors, "refused_sent", 45, check_refused_sent);
    each(vectors, "refused_codecs", 6, check_refused_codec);
    each(vectors, "means", 4, check_mean);
    check_files(vectors);
    json_decref(vectors);
    omm_key_wipe(&s_key);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

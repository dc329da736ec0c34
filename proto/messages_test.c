/* What one message says that no other does: its limits, and goldens that must be refused. */
#include "omm/messages.h"

#include "omm/declined.h"
#include "omm/mem.h"
#include "omm_test.h"
#include "samples.h"

#include <math.h>
#include <string.h>

static omm_buf s_out;
static omm_arena s_arena;

static void fresh(void) {
    omm_buf_clear(&s_out);
    omm_arena_fini(&s_arena);
    omm_arena_init(&s_arena, OMM_MESSAGE_ARENA_BYTES);
}

/* Replace the one place where `from` stands by `to`, of the same size. */
static void patch(const void *from, const void *to, size_t size) {
    size_t found = 0, at = 0;
    for (size_t i = 0; i + size <= s_out.size; i++) {
        if (memcmp(s_out.data + i, from, size) != 0) continue;
        found++;
        at = i;
    }
    CHECK_EQ(found, 1);
    memcpy(s_out.data + at, to, size);
}

static void check_offer_refused(const omm_offer *offer, omm_err want) {
    fresh();
    CHECK_ERR(omm_offer_encode(&s_out, offer), want);
    CHECK_EQ(s_out.size, 0);
}

static void test_offer_limits(void) {
    static omm_digest many[OMM_SELECTED_MAX + 1];
    static uint8_t bytes[OMM_RECIPE_FIELD_MAX + 1];
    omm_offer o;
#define REFUSED(want, ...)                                                                         \
    o = sample_offer();                                                                            \
    __VA_ARGS__;                                                                                   \
    check_offer_refused(&o, want)
    REFUSED(OMM_ERR_REFUSED_FORMAT, o.run_id[5] = 'A');
    REFUSED(OMM_ERR_REFUSED_FORMAT, o.run_id[31] = '\0');
    REFUSED(OMM_ERR_REFUSED_FORMAT, o.run_id[0] = '\0');
    REFUSED(OMM_ERR_REFUSED_SIZE, o.round = 4);
    REFUSED(OMM_ERR_REFUSED_SIZE, o.rounds = 0);
    REFUSED(OMM_ERR_REFUSED_SIZE, o.adapter.rank = 0);
    REFUSED(OMM_ERR_REFUSED_SIZE, o.adapter.value_count = 0);
    REFUSED(OMM_ERR_REFUSED_VALUE, o.adapter.alpha = NAN);
    REFUSED(OMM_ERR_REFUSED_VALUE, o.value_max = INFINITY);
    REFUSED(OMM_ERR_REFUSED_VALUE, o.norm_max = -1);
    REFUSED(OMM_ERR_REFUSED_SIZE, o.weight_sum_max = 0);
    REFUSED(OMM_ERR_REFUSED_SIZE, o.recipe.size = 0);
    REFUSED(OMM_ERR_REFUSED_SIZE, o.recipe = omm_bytes_of(bytes, sizeof bytes));
    REFUSED(OMM_ERR_REFUSED_SIZE, o.codec_up = omm_bytes_of(bytes, OMM_CODEC_FIELD_MAX + 1));
    REFUSED(OMM_ERR_REFUSED_SIZE, o.global.size = 0);
    REFUSED(OMM_ERR_REFUSED_FORMAT, o.global.size = OMM_CHUNK_BYTES);
    REFUSED(OMM_ERR_REFUSED_FORMAT, o.global.chunk_count = 1);
    REFUSED(OMM_ERR_REFUSED_SIZE,
            o.global.size = (uint64_t)OMM_CHUNK_BYTES * OMM_BLOB_CHUNKS_MAX + 1);
    REFUSED(OMM_ERR_REFUSED_SIZE, o.selected_count = 0);
    REFUSED(OMM_ERR_REFUSED_SIZE, (o.selected = many, o.selected_count = OMM_SELECTED_MAX + 1));
    REFUSED(OMM_ERR_REFUSED_FORMAT, (o.selected = many, o.selected_count = 2)); /* equal ids */
#undef REFUSED
}

static void test_canary_limits(void) {
    static omm_digest nodes[2];
    omm_offer o;
    nodes[1].b[0] = 1;
#define REFUSED(want, ...)                                                                         \
    o = sample_canary();                                                                           \
    __VA_ARGS__;                                                                                   \
    check_offer_refused(&o, want)
    REFUSED(OMM_ERR_REFUSED_SIZE, o.canary.size = 0);
    REFUSED(OMM_ERR_REFUSED_SIZE, o.canary.size = OMM_CANARY_BYTES_MAX + 1);
    REFUSED(OMM_ERR_REFUSED_FORMAT, o.canary.size = OMM_CHUNK_BYTES);
    REFUSED(OMM_ERR_REFUSED_FORMAT, o.canary.chunk_count = 1);
    REFUSED(OMM_ERR_REFUSED_FORMAT, o.canary.canonical.b[31] ^= 1);
    REFUSED(OMM_ERR_REFUSED_SIZE, (o.selected = nodes, o.selected_count = 2));
    REFUSED(OMM_ERR_REFUSED_SIZE, o.selected_count = 0);
#undef REFUSED
}

/* The largest offer that the limits allow travels and decodes. */
static void test_largest_offer(void) {
    static omm_digest ids[OMM_SELECTED_MAX], chunks[OMM_BLOB_CHUNKS_MAX];
    static uint8_t recipe[OMM_RECIPE_FIELD_MAX];
    omm_offer offer = sample_offer(), back;
    for (uint32_t i = 0; i < OMM_SELECTED_MAX; i++) {
        ids[i].b[0] = (uint8_t)(i >> 8);
        ids[i].b[1] = (uint8_t)i;
    }
    offer.selected = ids;
    offer.selected_count = OMM_SELECTED_MAX;
    offer.recipe = omm_bytes_of(recipe, sizeof recipe);
    offer.global.size = (uint64_t)OMM_CHUNK_BYTES * OMM_BLOB_CHUNKS_MAX;
    offer.global.chunk_digests = chunks;
    offer.global.chunk_count = OMM_BLOB_CHUNKS_MAX;
    fresh();
    CHECK_OK(omm_offer_encode(&s_out, &offer));
    CHECK_OK(omm_offer_decode(&back, omm_buf_view(&s_out), &s_arena));
    CHECK_EQ(back.selected_count, OMM_SELECTED_MAX);
    CHECK_EQ(back.global.chunk_count, OMM_BLOB_CHUNKS_MAX);
    CHECK(omm_digest_equal(&back.selected[OMM_SELECTED_MAX - 1], &ids[OMM_SELECTED_MAX - 1]));
}

static void test_offer_fields(void) {
    omm_offer offer = sample_offer(), back;
    fresh();
    CHECK_OK(omm_offer_encode(&s_out, &offer));
    CHECK_OK(omm_offer_decode(&back, omm_buf_view(&s_out), &s_arena));
    CHECK(strcmp(back.run_id, SAMPLE_RUN_ID) == 0);
    CHECK_EQ(back.adapter.targets, 0x7f);
    CHECK(back.norm_max == 10.0f);
    CHECK_EQ(back.weight_sum_max, (uint64_t)1 << 32);
    CHECK(omm_bytes_equal(back.codec_down, offer.codec_down));
    CHECK(omm_digest_equal(&back.global.chunk_digests[1], &offer.global.chunk_digests[1]));
    CHECK(omm_digest_equal(&back.previous, &offer.previous));
    memset(s_out.data, 0xee, s_out.size); /* nothing borrows from the input */
    CHECK(omm_bytes_equal(back.recipe, offer.recipe));
    CHECK(strcmp(back.run_id, SAMPLE_RUN_ID) == 0);
}

/* Bytes that our encoder would never write. */
static void refused_offer(const void *from, const void *to, size_t size, omm_err want) {
    omm_offer offer = sample_offer(), back;
    fresh();
    CHECK_OK(omm_offer_encode(&s_out, &offer));
    patch(from, to, size);
    CHECK_ERR(omm_offer_decode(&back, omm_buf_view(&s_out), &s_arena), want);
}

static void test_offer_goldens(void) {
    refused_offer("\x12\x20"
                  "0011",
                  "\x12\x20"
                  "00AA",
                  6, OMM_ERR_REFUSED_FORMAT);
    refused_offer("\x12\x20"
                  "0011",
                  "\x12\x20"
                  "\0"
                  "011",
                  6, OMM_ERR_REFUSED_FORMAT);
    refused_offer("\x65\0\0\x80\x3f", "\x65\0\0\xc0\x7f", 5, OMM_ERR_REFUSED_VALUE); /* NaN */
    refused_offer("\x65\0\0\x80\x3f", "\x65\0\0\x80\xff", 5, OMM_ERR_REFUSED_VALUE); /* -inf */
    refused_offer("\x65\0\0\x80\x3f", "\x65\0\0\0\x80", 5, OMM_ERR_REFUSED_FORMAT);  /* -0 */
    refused_offer("\x18\x85\x80\x10", "\x18\x85\x80\x20", 4, OMM_ERR_REFUSED_FORMAT);
    refused_offer("\x9a\x01\x20\x41\x42", "\x9a\x01\x20\x01\x00", 5, OMM_ERR_REFUSED_FORMAT);
    refused_offer("\x18\x01\x20\x04", "\x18\x04\x20\x04", 4, OMM_ERR_REFUSED_SIZE); /* round 4 */
}

static void test_offer_missing_parts(void) {
    static const uint8_t head[] = {0x08, 0x01, 0x20, 0x01}; /* version, rounds */
    omm_offer back;
    fresh();
    CHECK_ERR(omm_offer_decode(&back, omm_bytes_of(head, sizeof head), &s_arena),
              OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(omm_offer_decode(&back, omm_bytes_of(head, 2), &s_arena), OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(omm_offer_decode(&back, omm_bytes_of(head + 2, 2), &s_arena), OMM_ERR_VERSION);
}

static void test_submission(void) {
    omm_submission s = sample_submission(), back;
    static uint8_t steps[OMM_STEP_DIGESTS_MAX + 8];
    fresh();
    s.loss_after = -NAN;
    CHECK_ERR(omm_submission_encode(&s_out, &s), OMM_ERR_REFUSED_VALUE);
    CHECK(strstr(omm_err_sentence(), "loss_after is nan, it must be finite") != NULL);
    s = sample_submission();
    s.loss_before = -1;
    CHECK_ERR(omm_submission_encode(&s_out, &s), OMM_ERR_REFUSED_VALUE);
    s = sample_submission();
    s.codec.size = 0;
    CHECK_ERR(omm_submission_encode(&s_out, &s), OMM_ERR_REFUSED_SIZE);
    s.codec = omm_bytes_of(steps, OMM_CODEC_FIELD_MAX + 1);
    CHECK_ERR(omm_submission_encode(&s_out, &s), OMM_ERR_REFUSED_SIZE);
    s = sample_submission();
    s.payload.size = 0;
    CHECK_ERR(omm_submission_encode(&s_out, &s), OMM_ERR_REFUSED_SIZE);
    s.payload.size = OMM_CHUNK_BYTES + 1; /* of two chunks */
    CHECK_ERR(omm_submission_encode(&s_out, &s), OMM_ERR_REFUSED_FORMAT);
    s = sample_submission();
    s.step_digests.size = 7;
    CHECK_ERR(omm_submission_encode(&s_out, &s), OMM_ERR_REFUSED_FORMAT);
    s.step_digests = omm_bytes_of(steps, sizeof steps);
    CHECK_ERR(omm_submission_encode(&s_out, &s), OMM_ERR_REFUSED_SIZE);
    s.step_digests = omm_bytes_of(steps, OMM_STEP_DIGESTS_MAX);
    CHECK_OK(omm_submission_encode(&s_out, &s));
    CHECK_OK(omm_submission_decode(&back, omm_buf_view(&s_out), &s_arena));
    CHECK_EQ(back.step_digests.size, OMM_STEP_DIGESTS_MAX);
    s = sample_submission();
    fresh();
    CHECK_OK(omm_submission_encode(&s_out, &s));
    patch("\x5d\0\0\x20\x40", "\x5d\0\0\xc0\xff", 5); /* loss_before = -NaN */
    back = s;
    back.tokens = 77;
    CHECK_ERR(omm_submission_decode(&back, omm_buf_view(&s_out), &s_arena), OMM_ERR_REFUSED_VALUE);
    CHECK_EQ(back.tokens, 77); /* untouched on error */
}

static void refused_receipt(const void *from, const void *to, size_t size) {
    omm_receipt receipt = sample_receipt(), back;
    fresh();
    CHECK_OK(omm_receipt_encode(&s_out, &receipt));
    patch(from, to, size);
    CHECK_ERR(omm_receipt_decode(&back, omm_buf_view(&s_out), &s_arena), OMM_ERR_REFUSED_FORMAT);
}

static void test_receipt(void) {
    omm_receipt r = sample_receipt(), back;
    char longer[OMM_SENTENCE_BYTES_MAX + 50];
    refused_receipt("REFUSED_NORM", "REFUSED_XORM", 12);
    refused_receipt("norm is 11", "norm is\n11", 10);
    refused_receipt("norm is 11",
                    "norm is\x80"
                    "11",
                    10);
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    longer[3] = '\n';
    longer[4] = (char)0xc3;
    r.sentence = longer;
    fresh();
    CHECK_OK(omm_receipt_encode(&s_out, &r));
    CHECK_OK(omm_receipt_decode(&back, omm_buf_view(&s_out), &s_arena));
    CHECK_EQ(strlen(back.sentence), OMM_SENTENCE_BYTES_MAX);
    CHECK(memcmp(back.sentence, "xxx??x", 6) == 0);
    CHECK_EQ(back.reason, OMM_ERR_REFUSED_NORM);
    r.accepted = true;
    CHECK_ERR(omm_receipt_encode(&s_out, &r), OMM_ERR_REFUSED_FORMAT);
    r.reason = OMM_OK;
    fresh();
    CHECK_OK(omm_receipt_encode(&s_out, &r)); /* an acceptance has no sentence */
    CHECK_OK(omm_receipt_decode(&back, omm_buf_view(&s_out), &s_arena));
    CHECK(back.accepted);
    CHECK(strcmp(back.sentence, "") == 0);
    CHECK_OK(omm_buf_append(&s_out, "\x42\x01x", 3)); /* nor has one that others have written */
    CHECK_ERR(omm_receipt_decode(&back, omm_buf_view(&s_out), &s_arena), OMM_ERR_REFUSED_FORMAT);
    CHECK(strstr(omm_err_sentence(), "an accepting receipt has a sentence"));
    r.accepted = false;
    CHECK_ERR(omm_receipt_encode(&s_out, &r), OMM_ERR_REFUSED_FORMAT);
    r.reason = OMM_ERR_REFUSED_LATE;
    r.sentence = NULL;
    CHECK_OK(omm_receipt_encode(&s_out, &r));
}

/* --- the files of a base model are all of it --- */

static void test_base_parts(void) {
    static const struct {
        uint64_t first, second;
        const char *says; /* NULL: it is good */
    } cases[] = {{5, 95, NULL},
                 {0, 100, "part_bytes[0] is 0, allowed are 1 to 100"},
                 {100, 0, "part_bytes[1] is 0, allowed are 1 to 0"},
                 {5, 96, "part_bytes[1] is 96, allowed are 1 to 95"},
                 {101, 1, "part_bytes[0] is 101, allowed are 1 to 100"},
                 {5, 94, "part_bytes are 1 less than size"}};
    omm_base_model base = sample_split_model(), back;
    base.size = 100;
    base.piece_count = 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint64_t parts[2] = {cases[i].first, cases[i].second};
        const uint8_t good[2] = {5, 95}, other[2] = {(uint8_t)parts[0], (uint8_t)parts[1]};
        base.parts = parts;
        fresh();
        CHECK_EQ(omm_base_model_encode(&s_out, &base) == OMM_OK, !cases[i].says);
        if (cases[i].says) CHECK(strstr(omm_err_sentence(), cases[i].says));
        base.parts = (const uint64_t[2]){5, 95}; /* and as others have written it */
        fresh();
        CHECK_OK(omm_base_model_encode(&s_out, &base));
        patch(good, other, sizeof good);
        CHECK_EQ(omm_base_model_decode(&back, omm_buf_view(&s_out), &s_arena) == OMM_OK,
                 !cases[i].says);
        if (cases[i].says) CHECK(strstr(omm_err_sentence(), cases[i].says));
    }
}

/* Where a model may be fetched from, and what an address of one of its files becomes. */
static void test_mirrors(void) {
    static const char *const good[] = {"http://h", "https://h:1/a?b=c", "http://[::1]/a%20b",
                                       "http://h/a@b"};
    static const char *const bad[] = {"",
                                      "ftp://h/a",
                                      "http://",
                                      "http:///a",
                                      "http://?a",
                                      "http://h/ ",
                                      "http://h/\x7f",
                                      "http://h/a#b",
                                      "http://u@h",
                                      "http://u:p@h/a",
                                      "http://h/\xc3\xa4",
                                      "http://h/\"a",
                                      "http://h/\\a"};
    char longest[OMM_MIRROR_BYTES_MAX + 2], part[OMM_MIRROR_BYTES_MAX + 1];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) CHECK_OK(omm_mirror_check(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_ERR(omm_mirror_check(bad[i]), OMM_ERR_CONFIG);
    (void)snprintf(longest, sizeof longest, "http://%0*d", (int)sizeof longest - 8, 0);
    CHECK_ERR(omm_mirror_check(longest), OMM_ERR_CONFIG);
    longest[OMM_MIRROR_BYTES_MAX] = '\0';
    CHECK_OK(omm_mirror_check(longest));
    CHECK_OK(omm_mirror_part(part, "http://h/m-00001-of-00003.gguf?a=b", 2, 3));
    CHECK(strcmp(part, "http://h/m-00003-of-00003.gguf?a=b") == 0);
    CHECK_ERR(omm_mirror_part(part, "http://h/m-00001-of-00002.gguf", 1, 3), OMM_ERR_CONFIG);
    CHECK_ERR(omm_mirror_part(part, "http://h/m.gguf", 1, 3), OMM_ERR_CONFIG);
}

/* --- a digest has 32 bytes, wherever it stands --- */

/* The length whose last byte is before `at` is one less. */
static void shorten(size_t at) {
    CHECK(at >= 2);
    s_out.data[s_out.data[at - 2] & 0x80 ? at - 2 : at - 1]--;
}

static size_t place_of(const void *what, size_t size) {
    const uint8_t *at = memmem(s_out.data, s_out.size, what, size);
    CHECK(at != NULL);
    return at ? (size_t)(at - s_out.data) : 0;
}

/* `digest` has lost its last byte; `inside`: what the message begins with that it is a field of, NULL: it is in no other. */
static void cut(const omm_digest *digest, const void *inside, size_t inside_bytes) {
    uint8_t whole[33] = {0x20}; /* with its length: samples go on from one to the next */
    memcpy(whole + 1, digest->b, sizeof digest->b);
    const size_t at = place_of(whole, sizeof whole) + 1;
    if (inside) shorten(place_of(inside, inside_bytes));
    s_out.data[at - 1]--;
    memmove(s_out.data + at + 31, s_out.data + at + 32, s_out.size - at - 32);
    s_out.size--;
}

/* A blob begins with the digest of its bytes. */
static void cut_in_blob(const omm_digest *digest, const omm_digest *first) {
    uint8_t head[34] = {0x0a, 0x20};
    memcpy(head + 2, first->b, sizeof first->b);
    cut(digest, head, sizeof head);
}

static void test_short_digests(void) {
    const omm_offer o = sample_offer(), canary = sample_canary();
    const omm_submission s = sample_submission();
    const omm_receipt r = sample_receipt();
    const omm_close c = sample_close();
    omm_offer offer;
    omm_submission submission;
    omm_receipt receipt;
    omm_close end;
#define REFUSED(type, from, into, how)                                                             \
    fresh();                                                                                       \
    CHECK_OK(omm_##type##_encode(&s_out, &(from)));                                                \
    how;                                                                                           \
    CHECK_ERR(omm_##type##_decode(&(into), omm_buf_view(&s_out), &s_arena),                        \
              OMM_ERR_REFUSED_FORMAT);                                                             \
    CHECK(strstr(omm_err_sentence(), " has 31 bytes, not 32") != NULL)
    REFUSED(offer, o, offer, cut(&o.nonce, NULL, 0));
    REFUSED(offer, o, offer, cut(&o.base_digest, NULL, 0));
    REFUSED(offer, o, offer, cut(&o.tokenizer_digest, NULL, 0));
    REFUSED(offer, o, offer, cut(&o.previous, NULL, 0));
    REFUSED(offer, o, offer, cut(&o.selected[1], NULL, 0));
    REFUSED(offer, o, offer, cut(&o.adapter.layout_digest, "\x08\x08\x15", 3));
    REFUSED(offer, o, offer, cut_in_blob(&o.global.digest, &o.global.digest));
    REFUSED(offer, o, offer, cut_in_blob(&o.global.canonical, &o.global.digest));
    REFUSED(offer, o, offer, cut_in_blob(&o.global.chunk_digests[1], &o.global.digest));
    REFUSED(offer, canary, offer,
            cut_in_blob(&canary.canary.chunk_digests[0], &canary.canary.digest));
    REFUSED(submission, s, submission, cut(&s.nonce, NULL, 0));
    REFUSED(submission, s, submission, cut(&s.offer_digest, NULL, 0));
    REFUSED(submission, s, submission, cut(&s.base_digest, NULL, 0));
    REFUSED(submission, s, submission, cut(&s.global_digest, NULL, 0));
    REFUSED(submission, s, submission, cut(&s.data_commitment, NULL, 0));
    REFUSED(submission, s, submission, cut(&s.residual_before, NULL, 0));
    REFUSED(submission, s, submission, cut(&s.residual_after, NULL, 0));
    REFUSED(submission, s, submission, cut_in_blob(&s.payload.digest, &s.payload.digest));
    REFUSED(submission, s, submission, cut_in_blob(&s.payload.canonical, &s.payload.digest));
    REFUSED(submission, s, submission, cut_in_blob(&s.payload.chunk_digests[0], &s.payload.digest));
    REFUSED(receipt, r, receipt, cut(&r.node_id, NULL, 0));
    REFUSED(receipt, r, receipt, cut(&r.submission_digest, NULL, 0));
    REFUSED(close, c, end, cut(&c.last_round, NULL, 0));
    REFUSED(close, c, end, cut(&c.final_digest, NULL, 0));
    REFUSED(close, c, end, cut(&c.eval_digest, NULL, 0));
#undef REFUSED
}

/* What cannot be decoded is not encoded. */
static void test_run_ids(void) {
    omm_poll p = sample_poll();
    omm_submission s = sample_submission();
    omm_receipt r = sample_receipt();
    omm_close c = sample_close();
    p.run_id[31] = s.run_id[31] = r.run_id[31] = c.run_id[31] = 'g';
    fresh();
    CHECK_ERR(omm_poll_encode(&s_out, &p), OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(omm_submission_encode(&s_out, &s), OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(omm_receipt_encode(&s_out, &r), OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(omm_close_encode(&s_out, &c), OMM_ERR_REFUSED_FORMAT);
    CHECK_EQ(s_out.size, 0);
}

/* Every signed message says which version it is of. */
static void test_versions(void) {
    const omm_poll p = sample_poll();
    const omm_offer o = sample_offer();
    const omm_submission s = sample_submission();
    const omm_receipt r = sample_receipt();
    const omm_close c = sample_close();
    omm_poll poll;
    omm_offer offer;
    omm_submission submission;
    omm_receipt receipt;
    omm_close end;
#define OTHER(type, from, into)                                                                    \
    fresh();                                                                                       \
    CHECK_OK(omm_##type##_encode(&s_out, &(from)));                                                \
    CHECK_OK(omm_##type##_decode(&(into), omm_buf_view(&s_out), &s_arena));                        \
    CHECK_EQ(s_out.data[1], OMM_WIRE_VERSION);                                                     \
    s_out.data[1]++;                                                                               \
    CHECK_ERR(omm_##type##_decode(&(into), omm_buf_view(&s_out), &s_arena), OMM_ERR_VERSION)
    OTHER(poll, p, poll);
    OTHER(offer, o, offer);
    OTHER(submission, s, submission);
    OTHER(receipt, r, receipt);
    OTHER(close, c, end);
#undef OTHER
}

/* Every error has a name that comes back as itself. */
static void test_all_reasons(void) {
    static const omm_err all[] = {
#define XX(code, text) OMM_ERR_##code,
        OMM_ERR_MAP(XX)
#undef XX
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        omm_reply reply = {.kind = OMM_REPLY_REFUSED, .reason = all[i], .sentence = "no"}, back;
        fresh();
        CHECK_OK(omm_reply_encode(&s_out, &reply));
        CHECK_OK(omm_reply_decode(&back, omm_buf_view(&s_out), &s_arena));
        CHECK_EQ(back.reason, all[i]);
        CHECK(strcmp(back.sentence, "no") == 0);
    }
}

static void test_requests(void) {
    static uint8_t data[OMM_CHUNK_BYTES + 1];
    omm_request r = sample_request(OMM_REQUEST_PUT), back;
    r.data = omm_bytes_of(data, sizeof data);
    fresh();
    CHECK_ERR(omm_request_encode(&s_out, &r), OMM_ERR_REFUSED_SIZE);
    r.data.size--;
    CHECK_OK(omm_request_encode(&s_out, &r));
    CHECK(s_out.size <= OMM_MESSAGE_BYTES_MAX);
    CHECK_OK(omm_request_decode(&back, omm_buf_view(&s_out), &s_arena));
    CHECK_EQ(back.data.size, OMM_CHUNK_BYTES);
    r.index = OMM_BLOB_CHUNKS_MAX;
    CHECK_ERR(omm_request_encode(&s_out, &r), OMM_ERR_REFUSED_SIZE);
    r = sample_request(OMM_REQUEST_PUT);
    r.data.size = 0;
    CHECK_ERR(omm_request_encode(&s_out, &r), OMM_ERR_REFUSED_SIZE);
    r = sample_request(OMM_REQUEST_POLL);
    r.envelope.size = 0;
    CHECK_ERR(omm_request_encode(&s_out, &r), OMM_ERR_REFUSED_SIZE);
    CHECK_ERR(omm_request_decode(&back, omm_bytes_of("\x08\x01", 2), &s_arena),
              OMM_ERR_REFUSED_FORMAT); /* no body */
    CHECK_ERR(omm_request_decode(&back, omm_bytes_of("\x08\x01\x12\0", 4), &s_arena),
              OMM_ERR_REFUSED_SIZE); /* an empty envelope */
    CHECK_ERR(omm_request_decode(&back, omm_bytes_of("\x08\x01\x12\1a\x2a\1b", 8), &s_arena),
              OMM_ERR_REFUSED_FORMAT); /* two bodies */
    CHECK_ERR(omm_request_decode(&back, omm_bytes_of("\x08\x01\x1a\x02\x10\x01", 6), &s_arena),
              OMM_ERR_REFUSED_FORMAT); /* a get without a digest */
}

/* Small things travel whole, in the messages that have room for them and in no other. */
static void test_whole(void) {
    static uint8_t data[OMM_WHOLE_BYTES_MAX + 1], envelope[262144];
    omm_request r = sample_whole_request(OMM_REQUEST_SUBMIT), back;
    r.data = omm_bytes_of(data, sizeof data);
    fresh();
    CHECK_ERR(omm_request_encode(&s_out, &r), OMM_ERR_REFUSED_SIZE);
    r.data.size--;
    CHECK_OK(omm_request_encode(&s_out, &r));
    CHECK_OK(omm_request_decode(&back, omm_buf_view(&s_out), &s_arena));
    CHECK_EQ(back.data.size, OMM_WHOLE_BYTES_MAX);
    CHECK(!back.whole);
    r.envelope = omm_bytes_of(envelope, sizeof envelope);
    CHECK_ERR(omm_request_encode(&s_out, &r), OMM_ERR_TOO_BIG);
    CHECK(!omm_wire_is_whole(sizeof envelope, OMM_WHOLE_BYTES_MAX));
    /* The largest envelope that has room for it fills a message, but for headers that are shorter. */
    r.envelope.size = OMM_MESSAGE_BYTES_MAX - OMM_WHOLE_BYTES_MAX - 16;
    CHECK(omm_wire_is_whole(r.envelope.size, r.data.size));
    CHECK(!omm_wire_is_whole(r.envelope.size + 1, r.data.size));
    CHECK(!omm_wire_is_whole(100, 0));
    CHECK(!omm_wire_is_whole(100, OMM_WHOLE_BYTES_MAX + 1));
    fresh();
    CHECK_OK(omm_request_encode(&s_out, &r));
    CHECK(s_out.size > OMM_MESSAGE_BYTES_MAX - 16);
    for (int kind = OMM_REQUEST_POLL; kind <= OMM_REQUEST_BASE; kind++) {
        r = sample_request((omm_request_kind)kind);
        r.whole = true;
        fresh();
        omm_err err = omm_request_encode(&s_out, &r);
        CHECK_EQ(err, kind == OMM_REQUEST_POLL ? OMM_OK : OMM_ERR_REFUSED_FORMAT);
    }
    CHECK_ERR(omm_request_decode(&back, omm_bytes_of("\x08\x01\x12\x01x\x42\x01p", 8), &s_arena),
              OMM_ERR_REFUSED_FORMAT); /* a poll with a payload */
    CHECK_ERR(omm_request_decode(&back, omm_bytes_of("\x08\x01\x12\x01x\x48\x02", 7), &s_arena),
              OMM_ERR_REFUSED_FORMAT); /* true is 1 */
    omm_reply reply = sample_whole_offer(), again;
    reply.data = omm_bytes_of(data, sizeof data);
    fresh();
    CHECK_ERR(omm_reply_encode(&s_out, &reply), OMM_ERR_REFUSED_SIZE);
    CHECK_ERR(omm_reply_decode(&again, omm_bytes_of("\x08\x01\x32\x01r\x5a\x01g", 8), &s_arena),
              OMM_ERR_REFUSED_FORMAT); /* a receipt with an adapter */
}

static void test_replies(void) {
    static const uint32_t twice[2] = {5, 5}, beyond[1] = {OMM_BLOB_CHUNKS_MAX};
    static uint32_t all[OMM_BLOB_CHUNKS_MAX];
    omm_reply r = sample_reply(OMM_REPLY_NEED), back;
    for (uint32_t i = 0; i < OMM_BLOB_CHUNKS_MAX; i++) all[i] = i;
    fresh();
    r.missing = twice;
    r.missing_count = 2;
    CHECK_ERR(omm_reply_encode(&s_out, &r), OMM_ERR_REFUSED_FORMAT);
    r.missing = beyond;
    r.missing_count = 1;
    CHECK_ERR(omm_reply_encode(&s_out, &r), OMM_ERR_REFUSED_SIZE);
    r.missing = all;
    r.missing_count = OMM_BLOB_CHUNKS_MAX;
    CHECK_OK(omm_reply_encode(&s_out, &r));
    CHECK_OK(omm_reply_decode(&back, omm_buf_view(&s_out), &s_arena));
    CHECK_EQ(back.missing[OMM_BLOB_CHUNKS_MAX - 1], OMM_BLOB_CHUNKS_MAX - 1);
    fresh();
    r.missing_count = 0;
    CHECK_OK(omm_reply_encode(&s_out, &r));
    CHECK_OK(omm_reply_decode(&back, omm_buf_view(&s_out), &s_arena));
    CHECK_EQ(back.missing_count, 0);
    r = sample_reply(OMM_REPLY_REFUSED);
    r.reason = OMM_OK;
    CHECK_ERR(omm_reply_encode(&s_out, &r), OMM_ERR_REFUSED_FORMAT);
    CHECK_ERR(
        omm_reply_decode(&back, omm_bytes_of("\x08\x01\x2a\x04\x0a\x02\x05\x05", 8), &s_arena),
        OMM_ERR_REFUSED_FORMAT); /* need: 5, 5 */
    CHECK_ERR(
        omm_reply_decode(&back, omm_bytes_of("\x08\x01\x2a\x04\x08\x05\x08\x06", 8), &s_arena),
        OMM_ERR_REFUSED_FORMAT); /* need: 5, 6, but not packed */
    CHECK_ERR(omm_reply_decode(&back, omm_bytes_of("\x08\x01\x3a\x04\x0a\x02OK", 8), &s_arena),
              OMM_ERR_REFUSED_FORMAT); /* refused: OK */
}

/* Absent it says nothing; a number that is not in the list is kept as it is, and one over the limit is refused. */
static void test_declined(void) {
    omm_poll poll = sample_poll(), back;
    fresh();
    CHECK_OK(omm_poll_encode(&s_out, &poll));
    const size_t without = s_out.size;
    CHECK_OK(omm_poll_decode(&back, omm_buf_view(&s_out), &s_arena));
    CHECK_EQ(back.declined, OMM_DECLINED_NOTHING);
    for (uint32_t why = 1; why <= OMM_DECLINED_MAX; why++) {
        poll.declined = why;
        fresh();
        CHECK_OK(omm_poll_encode(&s_out, &poll));
        CHECK_EQ(s_out.size, without + (why < 128 ? 2 : 3));
        CHECK_OK(omm_poll_decode(&back, omm_buf_view(&s_out), &s_arena));
        CHECK_EQ(back.declined, why);
    }
    fresh();
    poll.declined = OMM_DECLINED_MAX + 1;
    CHECK_ERR(omm_poll_encode(&s_out, &poll), OMM_ERR_REFUSED_SIZE);
    CHECK_ERR(omm_poll_decode(&back, omm_bytes_of("\x08\x01\x28\x80\x02", 5), &s_arena),
              OMM_ERR_REFUSED_SIZE); /* 256 */
    CHECK_ERR(omm_poll_decode(
                  &back, omm_bytes_of("\x08\x01\x28\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13),
                  &s_arena),
              OMM_ERR_REFUSED_SIZE); /* -1 */
}

static void check_declined_text(uint32_t why, const char *word, const char *text) {
    char is[OMM_DECLINED_TEXT_SIZE];
    omm_declined_text(is, why);
    CHECK_EQ(strcmp(omm_declined_word(omm_declined_kind(why)), word), 0);
    CHECK_EQ(strcmp(is, text), 0);
}

static void test_declined_texts(void) {
    check_declined_text(OMM_DECLINED_NOTHING, "", "");
    check_declined_text(1, "base", "base: its model or tokenizer is another one");
    check_declined_text(12, "paused",
                        "paused: its owner's machine was needed; it goes on by itself");
    check_declined_text(
        13, "dry", "dry: a dry run: its owner looks first, and the round need not wait for it");
    check_declined_text(14, "other", "other (14)");
    check_declined_text(UINT32_MAX, "other", "other (4294967295)");
    for (uint32_t why = 1; why < OMM_DECLINED_OTHER; why++) {
        char is[OMM_DECLINED_TEXT_SIZE];
        omm_declined_text(is, why);
        CHECK(strlen(is) > 20 && strlen(is) + 1 < sizeof is); /* whole */
    }
}

static void test_small_buffer(void) {
    omm_buf tight;
    omm_poll poll = sample_poll();
    omm_buf_init(&tight, 10);
    CHECK_ERR(omm_poll_encode(&tight, &poll), OMM_ERR_TOO_BIG);
    CHECK_EQ(tight.size, 0);
    omm_buf_fini(&tight);
}

int main(void) {
    omm_buf_init(&s_out, OMM_MESSAGE_BYTES_MAX);
    omm_arena_init(&s_arena, OMM_MESSAGE_ARENA_BYTES);
    test_offer_limits();
    test_canary_limits();
    test_largest_offer();
    test_offer_fields();
    test_offer_goldens();
    test_offer_missing_parts();
    test_submission();
    test_receipt();
    test_base_parts();
    test_mirrors();
    test_short_digests();
    test_run_ids();
    test_versions();
    test_all_reasons();
    test_requests();
    test_whole();
    test_replies();
    test_declined();
    test_declined_texts();
    test_small_buffer();
    omm_arena_fini(&s_arena);
    omm_buf_fini(&s_out);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

/* signed_test.c - messages that are signed by whose they are, each with one field that is not what the rest of the bundle
 * says.  Its digest is in its line of rounds.jsonl, so that nothing but the field is wrong, and the check of that message
 * says which one it is. */
#include "omm/envelope.h"
#include "omm/verify.h"
#include "omm_test.h"
#include "testkit.h"

#include <string.h>

#define BUF_MAX (1u << 20)

enum { LAST = KIT_ROUNDS - 1, REFUSED = KIT_NODES - 1 };

static kit s_kit;
static omm_buf s_text; /* of the message at hand, as it is in the honest bundle */
static omm_arena s_arena;

/* --- one message taken, and put back --- */

/* The payload of what is at `path`, which lives until the next one. */
static omm_bytes take(const char *path) {
    omm_envelope env;
    omm_buf_clear(&s_text);
    omm_arena_fini(&s_arena);
    omm_arena_init(&s_arena, OMM_MESSAGE_ARENA_BYTES);
    kit_read(&s_text, s_kit.dir, path);
    CHECK_OK(omm_envelope_open(&env, omm_buf_view(&s_text)));
    return env.payload;
}

/* `from` becomes `to`, of as many characters, in a file that has it once or more: the first. */
static void overwrite(const char *dir, const char *path, const char *from, const char *to) {
    omm_buf text;
    omm_buf_init(&text, BUF_MAX);
    kit_read(&text, dir, path);
    uint8_t *at = memmem(text.data, text.size, from, strlen(from));
    CHECK(at != NULL && strlen(from) == strlen(to));
    for (size_t i = 0; at && to[i]; i++) at[i] = (uint8_t)to[i];
    kit_write(dir, path, omm_buf_view(&text));
    omm_buf_fini(&text);
}

static void hex_of_file(char out[OMM_DIGEST_HEX_SIZE], const char *dir, const char *path) {
    omm_buf bytes;
    omm_buf_init(&bytes, BUF_MAX);
    kit_read(&bytes, dir, path);
    const omm_digest d = omm_hash(omm_buf_view(&bytes));
    omm_digest_hex(out, &d);
    omm_buf_fini(&bytes);
}

/* rounds.jsonl names what is at `path` now. */
static void name_again(const char *dir, const char *path) {
    char from[OMM_DIGEST_HEX_SIZE], to[OMM_DIGEST_HEX_SIZE];
    hex_of_file(from, s_kit.dir, path);
    hex_of_file(to, dir, path);
    overwrite(dir, "rounds.jsonl", from, to);
}

static void put(const char *dir, const char *path, omm_context context, omm_bytes payload,
                const omm_key *key) {
    omm_buf out;
    omm_buf_init(&out, OMM_ENVELOPE_BYTES_MAX);
    CHECK_OK(omm_envelope_seal(&out, context, payload, key));
    kit_write(dir, path, omm_buf_view(&out));
    omm_buf_fini(&out);
}

/* Sealed and judged again, it fails in `check` at `path`, and `said` is said. */
static void fails(const char *dir, const char *check, const char *path, const char *said) {
    kit_reseal(dir, &s_kit.bundle, true);
    kit_fails(&s_kit, dir, check, path, said);
}

/* A copy in which the message at `path` is `payload`, under the name of its new digest. */
static void with(char dir[OMM_PATH_MAX], const char *path, omm_context context,
                 const omm_buf *payload, const omm_key *key) {
    kit_copy(dir, s_kit.dir);
    put(dir, path, context, omm_buf_view(payload), key);
    if (strcmp(path, "close.env") != 0) name_again(dir, path);
}

/* --- offers --- */

static const char *offer_path(void) {
    static omm_bundle_path path;
    path = omm_bundle_path_offer(LAST);
    return path.text;
}

static omm_offer take_offer(void) {
    omm_offer o;
    CHECK_OK(omm_offer_decode(&o, take(offer_path()), &s_arena));
    return o;
}

static void offer_fails(const omm_offer *o, omm_context context, const omm_key *key,
                        const char *said) {
    char dir[OMM_PATH_MAX];
    omm_buf payload;
    omm_buf_init(&payload, BUF_MAX);
    CHECK_OK(omm_offer_encode(&payload, o));
    with(dir, offer_path(), context, &payload, key);
    fails(dir, "offers", offer_path(), said);
    omm_buf_fini(&payload);
}

static char other_digit(char digit) {
    return digit == '0' ? '1' : '0';
}

static void test_offers(void) {
    static uint8_t other[OMM_RECIPE_FIELD_MAX];
    static omm_digest chunk, chunks[2], nodes[KIT_NODES];
    omm_offer o;
#define OFFER_SAYS(said, ...)                                                                      \
    o = take_offer();                                                                              \
    __VA_ARGS__;                                                                                   \
    offer_fails(&o, OMM_CONTEXT_OFFER, &s_kit.coordinator, said)
#define FIELD(name, ...) OFFER_SAYS(name " is not what run.json says", __VA_ARGS__)
    FIELD("run_id", o.run_id[31] = other_digit(o.run_id[31]));
    FIELD("rounds", o.rounds++);
    FIELD("base_digest", o.base_digest.b[31] ^= 1);
    FIELD("tokenizer_digest", o.tokenizer_digest.b[31] ^= 1);
    FIELD("adapter.rank", o.adapter.rank++);
    FIELD("adapter.alpha", o.adapter.alpha = 4.5f);
    FIELD("adapter.targets", o.adapter.targets = 3);
    FIELD("adapter.value_count", o.adapter.value_count++);
    FIELD("adapter.layout_digest", o.adapter.layout_digest.b[31] ^= 1);
    FIELD("recipe", o.recipe = omm_bytes_of(other, o.recipe.size));
    FIELD("codec_up", o.codec_up = o.codec_down);
    FIELD("codec_down", o.codec_down = o.codec_up);
    FIELD("value_max", o.value_max = 2);
    FIELD("weight_sum_max", o.weight_sum_max++);
    FIELD("norm_max", o.norm_max = 2);
    FIELD("norm_max", o.norm_max = 0); /* none */
    FIELD("tokens_max", o.tokens_max++);
    FIELD("payload_bytes_max", o.payload_bytes_max++);
#undef FIELD
    OFFER_SAYS("deadline_ms is 60001, and scenario.yaml says 60000", o.deadline_ms++);
    OFFER_SAYS("is of round 1", o.round--);
    OFFER_SAYS("does not follow the line of round 1 in rounds.jsonl", o.previous.b[31] ^= 1);
    OFFER_SAYS("selected nodes are not those of rounds.jsonl", o.selected_count--);
    OFFER_SAYS("selected nodes are not those of rounds.jsonl", {
        for (size_t i = 0; i < KIT_NODES; i++) nodes[i] = o.selected[i];
        nodes[KIT_NODES - 1].b[31] ^= 1;
        o.selected = nodes;
    });
    OFFER_SAYS("nonce is not the one that the seed gives", o.nonce.b[31] ^= 1);
    OFFER_SAYS("has the nonce of round 0", o.nonce = kit_nonce(0));
    OFFER_SAYS("has the nonce of round 1", o.nonce = kit_nonce(1));
    OFFER_SAYS("global adapter is not adapters/r002.bin", o.global.digest.b[31] ^= 1);
    OFFER_SAYS("global adapter is not adapters/r002.bin", o.global.size++);
    OFFER_SAYS("global adapter is not adapters/r002.bin", {
        chunk = o.global.chunk_digests[0];
        chunk.b[31] ^= 1;
        o.global.chunk_digests = &chunk;
    });
    OFFER_SAYS("global adapter is not adapters/r002.bin", {
        chunks[0] = o.global.chunk_digests[0];
        o.global.size = OMM_CHUNK_BYTES + 1;
        o.global.chunk_digests = chunks;
        o.global.chunk_count = 2;
    });
    OFFER_SAYS("is a canary's offer, which no round is opened with", {
        o.selected_count = 1;
        o.is_canary = true;
        o.canary = o.global;
        o.canary.canonical = o.canary.digest;
    });
#undef OFFER_SAYS
    o = take_offer();
    offer_fails(&o, OMM_CONTEXT_OFFER, &s_kit.nodes[0], "is not signed by the coordinator's key");
    offer_fails(&o, OMM_CONTEXT_RECEIPT, &s_kit.coordinator,
                "envelope was signed for another purpose than omm.offer.v1");
}

/* --- submissions --- */

static const char *submission_path(void) {
    static omm_bundle_path path;
    path = omm_bundle_path_submission(LAST, &s_kit.ids[0]);
    return path.text;
}

static omm_submission take_submission(void) {
    omm_submission s;
    CHECK_OK(omm_submission_decode(&s, take(submission_path()), &s_arena));
    return s;
}

static void submission_fails(const omm_submission *s, omm_context context, const omm_key *key,
                             const char *said) {
    char dir[OMM_PATH_MAX];
    omm_buf payload;
    omm_buf_init(&payload, BUF_MAX);
    CHECK_OK(omm_submission_encode(&payload, s));
    with(dir, submission_path(), context, &payload, key);
    fails(dir, "submissions", submission_path(), said);
    omm_buf_fini(&payload);
}

static void test_submissions(void) {
    omm_submission s;
#define FIELD(name, ...)                                                                           \
    s = take_submission();                                                                         \
    __VA_ARGS__;                                                                                   \
    submission_fails(&s, OMM_CONTEXT_SUBMISSION, &s_kit.nodes[0],                                  \
                     name " is not what offer and rounds.jsonl say")
    FIELD("run_id", s.run_id[31] = other_digit(s.run_id[31]));
    FIELD("round", s.round--);
    FIELD("offer_digest", s.offer_digest.b[31] ^= 1);
    FIELD("base_digest", s.base_digest.b[31] ^= 1);
    FIELD("tokens", s.tokens++);
    FIELD("codec", s.codec.size--);
    FIELD("payload.digest", s.payload.digest.b[31] ^= 1);
    FIELD("payload.canonical", s.payload.canonical.b[31] ^= 1);
    FIELD("nonce", s.nonce.b[31] ^= 1);
    FIELD("global_digest", s.global_digest.b[31] ^= 1);
    FIELD("payload.size (over payload_bytes_max)", s.payload.size = 55);
    FIELD("data_commitment (of data_digest)", s.data_commitment.b[31] ^= 1);
    FIELD("examples", s.examples++);
    FIELD("steps", s.steps++);
#undef FIELD
    s = take_submission();
    submission_fails(&s, OMM_CONTEXT_SUBMISSION, &s_kit.nodes[1],
                     "is not signed by the enrolled node that rounds.jsonl names");
    submission_fails(&s, OMM_CONTEXT_POLL, &s_kit.nodes[0],
                     "envelope was signed for another purpose than omm.submission.v1");
}

/* The first one goes on from zeros that were hashed, not from a digest of zeros. */
static void test_first_residual(void) {
    char dir[OMM_PATH_MAX];
    omm_submission s;
    omm_buf payload;
    const omm_bundle_path path = omm_bundle_path_submission(0, &s_kit.ids[0]);
    omm_buf_init(&payload, BUF_MAX);
    CHECK_OK(omm_submission_decode(&s, take(path.text), &s_arena));
    s.residual_before = (omm_digest){{0}};
    CHECK_OK(omm_submission_encode(&payload, &s));
    with(dir, path.text, OMM_CONTEXT_SUBMISSION, &payload, &s_kit.nodes[0]);
    fails(dir, "submissions", path.text, "residual_before is neither");
    omm_buf_fini(&payload);
}

/* `to` stands for the last `from` there is. */
static void replace_last(const char *dir, const char *path, const char *from, const char *to) {
    omm_buf text, out;
    size_t at = SIZE_MAX;
    omm_buf_init(&text, BUF_MAX);
    omm_buf_init(&out, BUF_MAX);
    kit_read(&text, dir, path);
    for (size_t i = 0; i + strlen(from) <= text.size; i++)
        if (memcmp(text.data + i, from, strlen(from)) == 0) at = i;
    CHECK(at != SIZE_MAX);
    const size_t behind = at + strlen(from);
    CHECK_OK(omm_buf_append(&out, text.data, at));
    CHECK_OK(omm_buf_append(&out, to, strlen(to)));
    CHECK_OK(omm_buf_append(&out, text.data + behind, text.size - behind));
    kit_write(dir, path, omm_buf_view(&out));
    omm_buf_fini(&out);
    omm_buf_fini(&text);
}

/* Who says that it has trained on more than it may, or on nothing, and is accepted all the same. */
static void test_tokens(void) {
    static const uint64_t tokens[] = {0, 1001};
    for (size_t i = 0; i < 2; i++) {
        char dir[OMM_PATH_MAX], line[32];
        omm_buf payload;
        omm_submission s = take_submission();
        CHECK_EQ(s.tokens, 500);
        s.tokens = tokens[i];
        omm_buf_init(&payload, BUF_MAX);
        CHECK_OK(omm_submission_encode(&payload, &s));
        with(dir, submission_path(), OMM_CONTEXT_SUBMISSION, &payload, &s_kit.nodes[0]);
        snprintf(line, sizeof line, "\"tokens\":%zu", (size_t)tokens[i]);
        replace_last(dir, "rounds.jsonl", "\"tokens\":500", line);
        fails(dir, "submissions", submission_path(),
              "tokens (over tokens_max) is not what offer and rounds.jsonl say");
        omm_buf_fini(&payload);
    }
}

static void from_zero(omm_submission *s) {
    s->residual_before = omm_residual_zero(KIT_VALUES);
}

/* A node that has lost its residual may go on from zero. */
static void test_from_zero(void) {
    kit k;
    omm_verify_report r;
    kit_make(&k, &(kit_options){.claim = from_zero});
    kit_verify(&r, k.dir, &k.bundle.public_key);
    CHECK(r.intact);
    omm_verify_report_fini(&r);
    kit_remove(&k);
}

/* Its payload is there, and the node has signed for another: the check of payloads has to say so, too. */
static void blob_fails(const omm_submission *s, const omm_digest *payload, const char *said) {
    char dir[OMM_PATH_MAX];
    omm_buf bytes;
    omm_buf_init(&bytes, BUF_MAX);
    CHECK_OK(omm_submission_encode(&bytes, s));
    with(dir, submission_path(), OMM_CONTEXT_SUBMISSION, &bytes, &s_kit.nodes[0]);
    fails(dir, "payloads", omm_bundle_path_payload(payload).text, said);
    omm_buf_fini(&bytes);
}

static void test_blobs(void) {
    static omm_digest chunks[2];
    omm_submission s;
    omm_digest payload;
#define BLOB_SAYS(what, ...)                                                                       \
    s = take_submission();                                                                         \
    payload = s.payload.digest;                                                                    \
    chunks[0] = s.payload.chunk_digests[0];                                                        \
    s.payload.chunk_digests = chunks;                                                              \
    __VA_ARGS__;                                                                                   \
    blob_fails(&s, &payload, "is not the payload that was submitted: another " what)
    BLOB_SAYS("digest", s.payload.digest.b[31] ^= 1);
    BLOB_SAYS("size", s.payload.size--);
    BLOB_SAYS("digest of a chunk", chunks[0].b[31] ^= 1);
#undef BLOB_SAYS
}

/* --- receipts --- */

static void receipt_fails(const omm_receipt *receipt, const char *check, const char *path,
                          const char *said) {
    char dir[OMM_PATH_MAX];
    omm_buf payload;
    omm_buf_init(&payload, BUF_MAX);
    CHECK_OK(omm_receipt_encode(&payload, receipt));
    with(dir, path, OMM_CONTEXT_RECEIPT, &payload, &s_kit.coordinator);
    fails(dir, check, path, said);
    omm_buf_fini(&payload);
}

/* Of who is accepted, and of who is refused: the same fields but for the verdict. */
static void test_receipts_of(const char *check, const char *path, bool accepted) {
    omm_receipt r;
#define FIELD(name, ...)                                                                           \
    CHECK_OK(omm_receipt_decode(&r, take(path), &s_arena));                                        \
    __VA_ARGS__;                                                                                   \
    receipt_fails(&r, check, path, name " is not what rounds.jsonl says")
    FIELD("run_id", r.run_id[31] = other_digit(r.run_id[31]));
    FIELD("round", r.round--);
    FIELD("node_id", r.node_id = s_kit.ids[1]);
    FIELD("submission_digest", r.submission_digest.b[31] ^= 1);
    FIELD("accepted", {
        r.accepted = !accepted;
        r.reason = accepted ? OMM_ERR_REFUSED_NORM : OMM_OK;
    });
    if (accepted) return;
    FIELD("reason", r.reason = OMM_ERR_REFUSED_RANGE);
#undef FIELD
}

static void test_receipts(void) {
    char dir[OMM_PATH_MAX];
    const omm_bundle_path accepted = omm_bundle_path_receipt(LAST, &s_kit.ids[0]);
    const omm_bundle_path refused = omm_bundle_path_refused_receipt(LAST, 0);
    test_receipts_of("receipts", accepted.text, true);
    test_receipts_of("refusals", refused.text, false);
    /* Another one that says the same, and is not the one that was sent. */
    omm_receipt r;
    omm_buf payload;
    omm_buf_init(&payload, BUF_MAX);
    CHECK_OK(omm_receipt_decode(&r, take(refused.text), &s_arena));
    r.sentence = "for another reason";
    CHECK_OK(omm_receipt_encode(&payload, &r));
    kit_copy(dir, s_kit.dir);
    put(dir, refused.text, OMM_CONTEXT_RECEIPT, omm_buf_view(&payload), &s_kit.coordinator);
    fails(dir, "refusals", refused.text, "is not what rounds.jsonl names: another digest");
    omm_buf_fini(&payload);
}

/* Signed well by whose they are, and not those that rounds.jsonl names: what is signed twice counts once. */
static void test_digests(void) {
    static const char said[] = "is not what rounds.jsonl names: another digest";
    char dir[OMM_PATH_MAX];
    omm_buf payload;
    omm_receipt r;
    const omm_bundle_path path = omm_bundle_path_receipt(LAST, &s_kit.ids[0]);
    omm_buf_init(&payload, BUF_MAX);
    omm_submission s = take_submission();
    s.loss_after = 1.0f; /* which nothing else knows of */
    CHECK_OK(omm_submission_encode(&payload, &s));
    kit_copy(dir, s_kit.dir);
    put(dir, submission_path(), OMM_CONTEXT_SUBMISSION, omm_buf_view(&payload), &s_kit.nodes[0]);
    fails(dir, "submissions", submission_path(), said);
    omm_offer o = take_offer();
    o.deadline_ms++;
    omm_buf_clear(&payload);
    CHECK_OK(omm_offer_encode(&payload, &o));
    kit_copy(dir, s_kit.dir);
    put(dir, offer_path(), OMM_CONTEXT_OFFER, omm_buf_view(&payload), &s_kit.coordinator);
    fails(dir, "offers", offer_path(), said);
    CHECK_OK(omm_receipt_decode(&r, take(path.text), &s_arena));
    r.round--;
    omm_buf_clear(&payload);
    CHECK_OK(omm_receipt_encode(&payload, &r));
    kit_copy(dir, s_kit.dir);
    put(dir, path.text, OMM_CONTEXT_RECEIPT, omm_buf_view(&payload), &s_kit.coordinator);
    fails(dir, "receipts", path.text, said);
    omm_buf_fini(&payload);
}

/* What was refused is another submission of the same node, refused for the same reason. */
static void test_refused(void) {
    char dir[OMM_PATH_MAX];
    omm_submission s;
    omm_buf payload;
    const omm_bundle_path path = omm_bundle_path_refused(LAST, 0, "REFUSED_NORM", true);
    omm_buf_init(&payload, BUF_MAX);
    CHECK_OK(omm_submission_decode(&s, take(path.text), &s_arena));
    s.loss_after = 1.0f;
    CHECK_OK(omm_submission_encode(&payload, &s));
    kit_copy(dir, s_kit.dir);
    put(dir, path.text, OMM_CONTEXT_SUBMISSION, omm_buf_view(&payload), &s_kit.nodes[REFUSED]);
    fails(dir, "refusals", path.text, "is not what rounds.jsonl names: another digest");
    with(dir, path.text, OMM_CONTEXT_SUBMISSION, &payload, &s_kit.nodes[0]);
    fails(dir, "refusals", path.text, "is not signed by the node that rounds.jsonl names");
    const omm_bundle_path sent = omm_bundle_path_payload(&s.payload.digest);
    kit_copy(dir, s_kit.dir);
    omm_buf_clear(&payload);
    kit_read(&payload, dir, sent.text);
    payload.data[payload.size - 1] ^= 1;
    kit_write(dir, sent.text, omm_buf_view(&payload));
    fails(dir, "refusals", sent.text, "is not what its name says");
    omm_buf_fini(&payload);
}

/* --- the end --- */

static void close_fails(const omm_close *end, omm_context context, const omm_key *key,
                        const char *path, const char *said) {
    char dir[OMM_PATH_MAX];
    omm_buf payload;
    omm_buf_init(&payload, BUF_MAX);
    CHECK_OK(omm_close_encode(&payload, end));
    with(dir, "close.env", context, &payload, key);
    fails(dir, "close", path, said);
    omm_buf_fini(&payload);
}

static void test_close(void) {
    omm_close c;
#define FIELD(path, said, ...)                                                                     \
    CHECK_OK(omm_close_decode(&c, take("close.env"), &s_arena));                                   \
    __VA_ARGS__;                                                                                   \
    close_fails(&c, OMM_CONTEXT_CLOSE, &s_kit.coordinator, path, said)
    FIELD("close.env", "run_id is not that of run.json", c.run_id[31] = other_digit(c.run_id[31]));
    FIELD("close.env", "closes 2 rounds, there are 3", c.rounds--);
    FIELD("rounds.jsonl", "the last line is not the one that close.env signs",
          c.last_round.b[31] ^= 1);
    FIELD("final.gguf", "is not the adapter that close.env signs", c.final_digest.b[31] ^= 1);
    FIELD("close.env",
          "one of eval/, ledger.jsonl, policy.yaml, run.json and scenario.yaml is not what it "
          "signs",
          c.eval_digest.b[31] ^= 1);
#undef FIELD
    CHECK_OK(omm_close_decode(&c, take("close.env"), &s_arena));
    close_fails(&c, OMM_CONTEXT_CLOSE, &s_kit.nodes[0], "close.env",
                "is not signed by the coordinator's key");
    close_fails(&c, OMM_CONTEXT_OFFER, &s_kit.coordinator, "close.env",
                "envelope was signed for another purpose than omm.close.v1");
}

int main(void) {
    kit_make(&s_kit, &(kit_options){0});
    omm_buf_init(&s_text, BUF_MAX);
    omm_arena_init(&s_arena, OMM_MESSAGE_ARENA_BYTES);
    test_offers();
    test_submissions();
    test_first_residual();
    test_tokens();
    test_from_zero();
    test_blobs();
    test_receipts();
    test_digests();
    test_refused();
    test_close();
    omm_arena_fini(&s_arena);
    omm_buf_fini(&s_text);
    kit_remove(&s_kit);
    return 0;
}

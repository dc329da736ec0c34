/* Why a submission was refused is decided again: bundles whose coordinator says so truly pass, and those whose coordinator
 * says something else fail, in the one check that is there for it.  All keys are the real ones: nothing but this is wrong. */
#include "omm/envelope.h"
#include "omm/mem.h"
#include "omm/verify.h"
#include "omm_test.h"
#include "testkit.h"

#include <string.h>

#define BUF_MAX (1u << 20)

enum { LAST = KIT_ROUNDS - 1, SOMEBODY = KIT_NODES - 1, STRANGER = KIT_NODES };

/* --- what is wrong with it --- */

static void range(float *values) {
    values[3] = 1.5f;
}
static void norm(float *values) {
    for (size_t i = 0; i < KIT_VALUES; i++) values[i] = 0.875f;
}

/* Behind the byte for the packing: "OMMD", version, kind, index, 0, value_count, kept_count, layout, scales. */
static void kind(omm_buf *sent) {
    sent->data[1 + 5] = OMM_CODEC_F16;
}
static void value_count(omm_buf *sent) {
    sent->data[1 + 8]++;
}
static void not_finite(omm_buf *sent) {
    memset(sent->data + 1 + OMM_CODEC_HEADER_BYTES, 0xff, 3);
}
static void truncated(omm_buf *sent) {
    sent->size -= 2;
}
static void lengthen(omm_buf *sent, size_t size) {
    const uint8_t zero = 0;
    while (sent->size < size) CHECK_OK(omm_buf_append(sent, &zero, 1));
}
static void too_long(omm_buf *sent) {
    lengthen(sent, 1000);
}
static void over_budget(omm_buf *sent) {
    lengthen(sent, 5000);
}

static void run_id(omm_submission *s) {
    s->run_id[0] = s->run_id[0] == '0' ? '1' : '0';
}
static void next_round(omm_submission *s) {
    s->round++;
}
static void nonce(omm_submission *s) {
    s->nonce.b[0] ^= 1;
}
static void offer(omm_submission *s) {
    s->offer_digest.b[0] ^= 1;
}
static void round_before(omm_submission *s) {
    s->round--;
    s->nonce = kit_nonce(s->round);
    s->offer_digest.b[0] ^= 1;
}
static void unknown_round_before(omm_submission *s) {
    s->round--;
}
static void first_round(omm_submission *s) {
    s->round = 0;
    s->nonce = kit_nonce(0);
}
static void base(omm_submission *s) {
    s->base_digest.b[0] ^= 1;
}
static void global(omm_submission *s) {
    s->global_digest.b[0] ^= 1;
}
static void no_tokens(omm_submission *s) {
    s->tokens = 0;
}
static void many_tokens(omm_submission *s) {
    s->tokens = 1001;
}
static void most_tokens(omm_submission *s) {
    s->tokens = 1000;
}
static void fewer_steps(omm_submission *s) {
    s->steps = 1;
    s->step_digests.size = 8;
}
static void steps(omm_submission *s) {
    s->steps = 3;
}
static void residual(omm_submission *s) {
    s->residual_before.b[0] ^= 1;
}
static void no_residual(omm_submission *s) {
    s->residual_before = omm_residual_zero(KIT_VALUES);
}
static void codec(omm_submission *s) {
    static const uint8_t other[OMM_CODEC_BYTES];
    s->codec = omm_bytes_of(other, sizeof other);
}
static void canonical(omm_submission *s) {
    s->payload.canonical.b[0] ^= 1;
}
static void payload_size(omm_submission *s) {
    s->payload.size++;
}
static void payload_digest(omm_submission *s) {
    s->payload.digest.b[0] ^= 1;
}
static void no_description(omm_submission *s) {
    static omm_digest chunk;
    chunk = s->payload.digest;
    chunk.b[0] ^= 1;
    s->payload.chunk_digests = &chunk;
}

static void signature(const kit *k, omm_buf *envelope) {
    (void)k;
    envelope->data[envelope->size - 1] ^= 1;
}
static void junk(const kit *k, omm_buf *envelope) {
    (void)k;
    omm_buf_clear(envelope);
    CHECK_OK(omm_buf_append(envelope, "junk", 4));
}
static void junk_inside(const kit *k, omm_buf *envelope) {
    omm_buf_clear(envelope);
    CHECK_OK(omm_envelope_seal(envelope, OMM_CONTEXT_SUBMISSION, omm_bytes_str("no submission"),
                               &k->nodes[SOMEBODY]));
}
/* A good one, but for a loss that no encoder of ours writes. */
static void no_number(const kit *k, omm_buf *envelope) {
    omm_envelope env;
    omm_buf payload;
    omm_buf_init(&payload, BUF_MAX);
    CHECK_OK(omm_envelope_open(&env, omm_buf_view(envelope)));
    CHECK_OK(omm_buf_append(&payload, env.payload.data, env.payload.size));
    uint8_t *loss = memmem(payload.data, payload.size, "\x5d\0\0\x40\x40", 5); /* before: 3 */
    CHECK(loss != NULL);
    if (loss) memset(loss + 3, 0xff, 2);
    omm_buf_clear(envelope);
    CHECK_OK(omm_envelope_seal(envelope, OMM_CONTEXT_SUBMISSION, omm_buf_view(&payload),
                               &k->nodes[SOMEBODY]));
    omm_buf_fini(&payload);
}
static void too_large(const kit *k, omm_buf *envelope) {
    (void)k;
    lengthen(envelope, OMM_ENVELOPE_BYTES_MAX + 1);
}
/* The one that was accepted of the first node in the last round. */
static void accepted_bytes(const kit *k, omm_buf *envelope) {
    omm_buf_clear(envelope);
    kit_read(envelope, k->dir, omm_bundle_path_submission(LAST, &k->ids[0]).text);
}

/* --- the cases --- */

typedef struct refusal_case {
    const char *name;
    kit_refusal list[2]; /* the second without a reason: there is one */
    const char *said;    /* of the failure; NULL: it is so, or cannot be known */
    bool joined;
} refusal_case;

#define NAMELESS .no_node = true, .no_receipt = true
#define OF_NODE(why, ...)                                                                          \
    { .round = LAST, .node = SOMEBODY, .reason = "REFUSED_" why, __VA_ARGS__ }
#define OF_STRANGER(why, ...)                                                                      \
    { .round = LAST, .node = STRANGER, .reason = "REFUSED_" why, __VA_ARGS__ }
#define WITH_PAYLOAD .has_payload = true

static const refusal_case s_cases[] = {
    /* As a coordinator does it. */
    {"no signature", {OF_NODE("SIGNATURE", .spoil = signature, NAMELESS)}, NULL, false},
    {"another purpose", {OF_NODE("CONTEXT", .is_poll = true)}, NULL, false},
    {"another purpose, of a stranger",
     {OF_STRANGER("CONTEXT", .is_poll = true, NAMELESS)},
     NULL,
     false},
    {"a stranger", {OF_STRANGER("KEY", NAMELESS)}, NULL, false},
    {"junk", {OF_NODE("FORMAT", .spoil = junk, NAMELESS)}, NULL, false},
    {"too large for an envelope", {OF_NODE("SIZE", .spoil = too_large, NAMELESS)}, NULL, false},
    {"junk in an envelope", {OF_NODE("FORMAT", .spoil = junk_inside)}, NULL, false},
    {"a loss that is no number", {OF_NODE("VALUE", .spoil = no_number)}, NULL, false},
    {"another run", {OF_NODE("ROUND", .write = run_id)}, NULL, false},
    {"another round", {OF_NODE("ROUND", .write = next_round)}, NULL, false},
    {"another nonce", {OF_NODE("ROUND", .write = nonce)}, NULL, false},
    {"another offer", {OF_NODE("ROUND", .write = offer)}, NULL, false},
    {"a replay", {OF_NODE("ROUND", .write = first_round)}, NULL, false},
    {"late", {OF_NODE("LATE", .write = NULL)}, NULL, false},
    {"late, for the round before", {OF_NODE("LATE", .write = round_before)}, NULL, false},
    {"in quarantine", {OF_NODE("NOT_SELECTED", .write = NULL)}, NULL, false},
    {"another base", {OF_NODE("BASE", .write = base)}, NULL, false},
    {"another global adapter", {OF_NODE("BASE", .write = global)}, NULL, false},
    {"again, after it was accepted",
     {{.round = LAST, .node = 0, .reason = "REFUSED_DUPLICATE"}},
     NULL,
     false},
    {"again, after it was refused",
     {OF_NODE("RANGE", .fill = range, WITH_PAYLOAD), OF_NODE("DUPLICATE", .write = most_tokens)},
     NULL,
     false},
    {"replaced, and then late",
     {OF_NODE("DUPLICATE", .write = most_tokens), OF_NODE("LATE", .write = NULL)},
     NULL,
     false},
    {"again, after another base",
     {OF_NODE("BASE", .write = base), OF_NODE("DUPLICATE", .write = most_tokens)},
     NULL,
     false},
    {"in two rounds, of which the first has accepted it",
     {{.round = 0, .node = SOMEBODY, .reason = "REFUSED_DUPLICATE", .write = most_tokens},
      OF_NODE("SIZE", .write = no_tokens)},
     NULL,
     false},
    {"another base, after it was accepted",
     {{.round = LAST, .node = 0, .reason = "REFUSED_BASE", .write = base}},
     NULL,
     false},
    {"no tokens", {OF_NODE("SIZE", .write = no_tokens)}, NULL, false},
    {"many tokens", {OF_NODE("SIZE", .write = many_tokens)}, NULL, false},
    {"no tokens, with a good payload",
     {OF_NODE("SIZE", .write = no_tokens, WITH_PAYLOAD)},
     NULL,
     false},
    {"many tokens, with a good payload",
     {OF_NODE("SIZE", .write = many_tokens, WITH_PAYLOAD)},
     NULL,
     false},
    {"steps", {OF_NODE("FORMAT", .write = steps)}, NULL, false},
    {"residual", {OF_NODE("RESIDUAL", .write = residual)}, NULL, false},
    {"codec", {OF_NODE("RECIPE", .write = codec)}, NULL, false},
    {"fewer steps", {OF_NODE("RECIPE", .write = fewer_steps)}, NULL, false},
    {"over the budget", {OF_NODE("BUDGET", .repack = over_budget)}, NULL, false},
    {"canonical digest", {OF_NODE("DIGEST", .write = canonical, WITH_PAYLOAD)}, NULL, false},
    {"digest", {OF_NODE("DIGEST", .write = payload_digest)}, NULL, false},
    {"digest of a chunk", {OF_NODE("DIGEST", .write = no_description, WITH_PAYLOAD)}, NULL, false},
    {"size of a chunk", {OF_NODE("SIZE", .write = payload_size)}, NULL, false},
    {"size of a chunk that is there",
     {OF_NODE("SIZE", .write = payload_size, WITH_PAYLOAD)},
     NULL,
     false},
    {"range", {OF_NODE("RANGE", .fill = range, WITH_PAYLOAD)}, NULL, false},
    {"norm", {OF_NODE("NORM", .fill = norm, WITH_PAYLOAD)}, NULL, false},
    {"not finite", {OF_NODE("VALUE", .repack = not_finite, WITH_PAYLOAD)}, NULL, false},
    {"truncated", {OF_NODE("FORMAT", .repack = truncated, WITH_PAYLOAD)}, NULL, false},
    {"another shape", {OF_NODE("SHAPE", .repack = value_count, WITH_PAYLOAD)}, NULL, false},
    {"another kind", {OF_NODE("RECIPE", .repack = kind, WITH_PAYLOAD)}, NULL, false},
    {"too long", {OF_NODE("SIZE", .repack = too_long, WITH_PAYLOAD)}, NULL, false},
    {"before it joined",
     {{.round = 0, .node = SOMEBODY, .reason = "REFUSED_KEY", .write = offer, NAMELESS}},
     NULL,
     true},

    /* A good one, with every reason that there is, and some that there are not. */
    {"good", {OF_NODE("SIGNATURE", WITH_PAYLOAD)}, "SIGNATURE: is well signed", false},
    {"good", {OF_NODE("CONTEXT", WITH_PAYLOAD)}, "CONTEXT: is signed as a submission", false},
    {"good", {OF_NODE("KEY", WITH_PAYLOAD)}, "KEY: is of a node of the run", false},
    {"good", {OF_NODE("ROUND", WITH_PAYLOAD)}, "ROUND: is of this round and its offer", false},
    {"good", {OF_NODE("BASE", WITH_PAYLOAD)}, "BASE: its base model and global adapter", false},
    {"good", {OF_NODE("DUPLICATE", WITH_PAYLOAD)}, "DUPLICATE: no other submission of its", false},
    {"good", {OF_NODE("SIZE", WITH_PAYLOAD)}, "SIZE: its payload decodes", false},
    {"good", {OF_NODE("FORMAT", WITH_PAYLOAD)}, "FORMAT: its payload decodes", false},
    {"good", {OF_NODE("RESIDUAL", WITH_PAYLOAD)}, "RESIDUAL: goes on from the node's last", false},
    {"good from zero",
     {OF_NODE("RESIDUAL", .write = no_residual, WITH_PAYLOAD)},
     "RESIDUAL: goes on from the node's last residual, or from zero",
     false},
    {"good", {OF_NODE("RECIPE", WITH_PAYLOAD)}, "RECIPE: its payload decodes", false},
    {"good", {OF_NODE("BUDGET", WITH_PAYLOAD)}, "bytes, of 54 that are allowed", false},
    {"good", {OF_NODE("DIGEST", WITH_PAYLOAD)}, "DIGEST: size and digests are those", false},
    {"good", {OF_NODE("SHAPE", WITH_PAYLOAD)}, "SHAPE: its payload decodes", false},
    {"good", {OF_NODE("VALUE", WITH_PAYLOAD)}, "VALUE: its payload decodes", false},
    {"good", {OF_NODE("RANGE", WITH_PAYLOAD)}, "RANGE: no value is over 1", false},
    {"good", {OF_NODE("NORM", WITH_PAYLOAD)}, "of 3 that is allowed", false},
    {"good", {OF_NODE("FULL", WITH_PAYLOAD)}, "FULL: no submission is refused for that", false},
    {"good", {OF_NODE("WORK", WITH_PAYLOAD)}, "WORK: no submission is refused for that", false},
    {"good", {OF_NODE("INVITATION", WITH_PAYLOAD)}, "no submission is refused for that", false},
    {"good",
     {{.round = LAST, .node = SOMEBODY, .reason = "CANCELLED", WITH_PAYLOAD}},
     "CANCELLED: no submission is refused for that",
     false},
    {"good",
     {{.round = LAST, .node = SOMEBODY, .reason = "IO", WITH_PAYLOAD}},
     "IO: no submission is refused for that",
     false},
    {"good",
     {{.round = LAST, .node = SOMEBODY, .reason = "FOO", .no_receipt = true, WITH_PAYLOAD}},
     "FOO: no submission is refused for that",
     false},
    {"most tokens",
     {OF_NODE("SIZE", .write = most_tokens, WITH_PAYLOAD)},
     "SIZE: its payload decodes",
     false},

    /* Bad ones, with another reason than theirs. */
    {"unsigned", {OF_NODE("FORMAT", .spoil = signature, NAMELESS)}, "is not well signed", false},
    {"another purpose", {OF_NODE("ROUND", .is_poll = true)}, "signed for another purpose", false},
    {"a stranger", {OF_STRANGER("SIGNATURE", NAMELESS)}, "SIGNATURE: is well signed", false},
    {"a stranger", {OF_STRANGER("ROUND", NAMELESS)}, "ROUND: is of no node of the run", false},
    {"junk", {OF_NODE("SIGNATURE", .spoil = junk, NAMELESS)}, "SIGNATURE: is no envelope", false},
    {"junk", {OF_NODE("VALUE", .spoil = junk, NAMELESS)}, "VALUE: is no envelope", false},
    {"junk in an envelope", {OF_NODE("BASE", .spoil = junk_inside)}, "is no submission: ", false},
    {"a loss that is no number",
     {OF_NODE("BASE", .spoil = no_number)},
     "is no submission: loss_before is ",
     false},
    {"a replay", {OF_NODE("BASE", .write = first_round)}, "its round is another", false},
    {"another nonce", {OF_NODE("NOT_SELECTED", .write = nonce)}, "its nonce is another", false},
    {"another offer", {OF_NODE("LATE", .write = offer)}, "does not name the round's offer", false},
    {"a round to come", {OF_NODE("LATE", .write = next_round)}, "which is not over", false},
    {"another run", {OF_NODE("LATE", .write = run_id)}, "LATE: is of another run", false},
    {"late, with this round's nonce",
     {OF_NODE("LATE", .write = unknown_round_before)},
     "has not the nonce of round 1",
     false},
    {"late, and accepted there",
     {OF_NODE("LATE", .write = first_round)},
     "is of round 0, in which its node was accepted",
     false},
    {"digest of a chunk",
     {OF_NODE("SIZE", .write = no_description, WITH_PAYLOAD)},
     "SIZE: its payload decodes",
     false},
    {"range", {OF_NODE("NORM", .fill = range, WITH_PAYLOAD)}, "NORM: its norm is 1.5", false},
    {"norm", {OF_NODE("RANGE", .fill = norm, WITH_PAYLOAD)}, "RANGE: no value is over 1", false},
    {"not finite",
     {OF_NODE("RANGE", .repack = not_finite, WITH_PAYLOAD)},
     "does not decode, which is REFUSED_VALUE",
     false},
    {"not finite",
     {OF_NODE("FORMAT", .repack = not_finite, WITH_PAYLOAD)},
     "does not decode, which is REFUSED_VALUE",
     false},
    {"too long",
     {OF_NODE("SHAPE", .repack = too_long, WITH_PAYLOAD)},
     "does not decode, which is REFUSED_SIZE",
     false},
    {"canonical digest",
     {OF_NODE("NORM", .write = canonical, WITH_PAYLOAD)},
     "of 3 that is allowed",
     false},
    {"norm, without its payload", {OF_NODE("NORM", .fill = norm)}, "its payload is missing", false},
    {"truncated, without its payload",
     {OF_NODE("FORMAT", .repack = truncated)},
     "its payload is missing",
     false},
    {"digest, without its payload",
     {OF_NODE("DIGEST", .write = canonical)},
     "its payload is missing",
     false},
    {"again, after the same again",
     {OF_NODE("DUPLICATE", .write = NULL), OF_NODE("DUPLICATE", .write = most_tokens)},
     "DUPLICATE: no other submission of its node",
     false},
    {"refused twice",
     {OF_NODE("RANGE", .fill = range, WITH_PAYLOAD), OF_NODE("SIZE", .write = no_tokens)},
     "SIZE: another submission of its node has its verdict",
     false},
    {"refused, after it was accepted",
     {{.round = LAST, .node = 0, .reason = "REFUSED_SIZE", .write = no_tokens}},
     "SIZE: another submission of its node has its verdict",
     false},
    {"accepted, and refused",
     {{.round = LAST, .node = 0, .reason = "REFUSED_DUPLICATE", .spoil = accepted_bytes}},
     " twice",
     false},

    /* Who it is of, and as what it is kept. */
    {"without its node", {OF_NODE("SIGNATURE", NAMELESS)}, "is well signed by node home-", false},
    {"without its node", {OF_NODE("KEY", NAMELESS)}, "is well signed by node home-", false},
    {"without its node", {OF_NODE("KEY", NAMELESS)}, "is well signed by node home-", true},
    {"without its node, selected before",
     {OF_NODE("KEY", .write = offer, NAMELESS)},
     "is well signed by node home-",
     true},
    {"without its node, with the offer",
     {{.round = 0, .node = SOMEBODY, .reason = "REFUSED_KEY", NAMELESS}},
     "is well signed by node home-",
     true},
    {"without its node, known from the start",
     {{.round = 0, .node = SOMEBODY, .reason = "REFUSED_KEY", .write = offer, NAMELESS}},
     "is well signed by node home-",
     false},
    {"before it joined, with another reason",
     {{.round = 0, .node = SOMEBODY, .reason = "REFUSED_ROUND", .write = offer, NAMELESS}},
     "ROUND: is of no node of the run",
     true},
    {"with a node that there is not",
     {OF_STRANGER("KEY", .names_stranger = true, .no_receipt = true)},
     "is of no node of the run",
     false},
    {"with a node that did not sign",
     {OF_NODE("SIGNATURE", .spoil = signature)},
     "has a node in rounds.jsonl, and is not well signed",
     false},
    {"without its receipt",
     {OF_NODE("BASE", .write = base, .no_receipt = true)},
     "is of a node, which has no receipt of it",
     false},
    {"with a receipt of nobody",
     {OF_NODE("FORMAT", .spoil = junk, .no_node = true)},
     "has a receipt, and no node",
     false},
    {"an envelope as none",
     {OF_NODE("BASE", .write = base, .is_renamed = true)},
     "is an envelope, and its name says",
     false},
    {"junk as an envelope",
     {OF_NODE("FORMAT", .spoil = junk, .is_renamed = true, NAMELESS)},
     "is no envelope, and its name says",
     false},
};

static bool says(const omm_verify_report *r, const char *said) {
    for (size_t i = 0; i < r->failure_count; i++)
        if (strstr(r->failures[i].reason, said)) return true;
    return false;
}

static void try_case(const refusal_case *c) {
    kit k;
    omm_verify_report r;
    bool good = true;
    kit_make(&k, &(kit_options){.refusals = c->list,
                                .refusal_count = c->list[1].reason ? 2 : 1,
                                .joined = c->joined});
    kit_verify(&r, k.dir, &k.bundle.public_key);
    for (size_t i = 0; i < r.check_count; i++) {
        const bool is_ours = strcmp(r.checks[i].name, "refusals") == 0;
        if (r.checks[i].passed == (is_ours && c->said != NULL)) good = false;
    }
    if (c->said && !says(&r, c->said)) good = false;
    if (!good) {
        fprintf(stderr, "%s, as %s:\n", c->name, c->list[0].reason);
        for (size_t i = 0; i < r.failure_count; i++)
            fprintf(stderr, "  %s: %s: %s\n", r.failures[i].check, r.failures[i].path,
                    r.failures[i].reason);
    }
    CHECK(good);
    omm_verify_report_fini(&r);
    kit_remove(&k);
}

/* Where nothing is fed back, who speaks of a residual is refused for that. */
static void test_no_feedback(void) {
    static const kit_refusal refusal = OF_NODE("RESIDUAL", WITH_PAYLOAD);
    kit k;
    omm_verify_report r;
    kit_make(&k, &(kit_options){.refusals = &refusal, .refusal_count = 1, .no_feedback = true});
    kit_verify(&r, k.dir, &k.bundle.public_key);
    for (size_t i = 0; i < r.failure_count; i++)
        CHECK(strcmp(r.failures[i].check, "refusals") != 0);
    omm_verify_report_fini(&r);
    kit_remove(&k);
}

/* Whatever allocation fails while it is decided who joined when: that is what is said, and nothing of the bundle. */
static void test_no_memory(void) {
    static const kit_refusal refusal = {
        .round = 0, .node = SOMEBODY, .reason = "REFUSED_KEY", .write = offer, NAMELESS};
    const omm_verify_options options = {.render = kit_render};
    kit k;
    bool intact = false;
    kit_make(&k, &(kit_options){.refusals = &refusal, .refusal_count = 1, .joined = true});
    for (size_t nth = 1; !intact; nth++) {
        omm_verify_report r;
        omm_mem_fail_nth(nth);
        const omm_err err = omm_bundle_verify(&r, k.dir, &options);
        intact = err == OMM_OK && r.intact;
        CHECK(intact ? omm_mem_fail_is_due() : err == OMM_ERR_NOMEM);
        omm_mem_fail_nth(0);
        if (err == OMM_OK) omm_verify_report_fini(&r);
    }
    kit_remove(&k);
}

int main(void) {
    test_no_memory();
    test_no_feedback();
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) try_case(&s_cases[i]);
    return 0;
}

/* The signed chain: offers by the coordinator, submissions by nodes, receipts by the coordinator.
 *
 *   line r-1 of rounds.jsonl <--previous-- offer r <--offer_digest-- submission <-- receipt
 *                                            ^                          ^            ^
 *   line r names all three by digest --------+--------------------------+------------+
 */
#include "internal.h"
#include "omm/envelope.h"
#include "omm/mem.h"

#include <string.h>

#define YAML_BYTES_MAX ((size_t)1 << 24)

/* Both files that every check here builds on; reported once by audit_run. */
static bool has_base(audit *a) {
    if (a->ev.run_file.err == OMM_OK && a->ev.rounds_file.err == OMM_OK) return true;
    audit_fail(a, a->ev.run_file.err != OMM_OK ? "run.json" : "rounds.jsonl",
               "cannot be checked without it");
    return false;
}

/* Read an envelope, compare its digest, check its signature.  `env` points into `text`. */
static bool open_signed(audit *a, omm_buf *text, omm_envelope *env, const char *path,
                        const omm_digest *digest, omm_context context) {
    if (!audit_read(a, text, path)) return false;
    omm_digest is = omm_hash(omm_buf_view(text));
    a->items++;
    if (!omm_digest_equal(&is, digest)) {
        audit_fail(a, path, "is not what rounds.jsonl names: another digest");
        return false;
    }
    return audit_expect(a, omm_envelope_open_as(env, context, omm_buf_view(text)), path);
}

/* --- offers --- */

static bool same_codec(omm_bytes bytes, const omm_codec *codec) {
    uint8_t want[OMM_CODEC_BYTES];
    omm_codec_put(want, codec);
    return omm_bytes_equal(bytes, omm_bytes_of(want, sizeof want));
}

/* The first field of the offer that is not what run.json says, or NULL. */
static const char *offer_differs(const omm_offer *o, const omm_run_record *run) {
    omm_digest layout = omm_layout_digest(&run->layout);
    if (strcmp(o->run_id, run->run_id) != 0) return "run_id";
    if (o->rounds != run->rounds) return "rounds";
    if (!omm_digest_equal(&o->base_digest, &run->base.digest)) return "base_digest";
    if (!omm_digest_equal(&o->tokenizer_digest, &run->base.tokenizer_digest))
        return "tokenizer_digest";
    if (o->adapter.rank != run->rank) return "adapter.rank";
    if (o->adapter.alpha != run->alpha) return "adapter.alpha";
    if (o->adapter.targets != run->targets) return "adapter.targets";
    if (o->adapter.value_count != run->layout.value_count) return "adapter.value_count";
    if (!omm_digest_equal(&o->adapter.layout_digest, &layout)) return "adapter.layout_digest";
    if (!omm_bytes_equal(o->recipe, run->recipe)) return "recipe";
    if (!same_codec(o->codec_up, &run->codec_up)) return "codec_up";
    if (!same_codec(o->codec_down, &run->codec_down)) return "codec_down";
    if ((double)o->value_max != run->value_max) return "value_max";
    if (o->weight_sum_max != run->weight_sum_max) return "weight_sum_max";
    if (o->norm_max != (float)run->norm_max) return "norm_max";
    if (o->tokens_max != run->tokens_max) return "tokens_max";
    if (o->payload_bytes_max != omm_codec_sent_bytes_max(&run->codec_up, &run->layout))
        return "payload_bytes_max";
    return NULL;
}

static bool same_selection(const omm_offer *o, const omm_round_record *round) {
    if (o->selected_count != round->selected_count) return false;
    return o->selected_count == 0 ||
           memcmp(o->selected, round->selected, o->selected_count * sizeof *o->selected) == 0;
}

static void check_nonce(audit *a, const char *path, const omm_offer *o) {
    const omm_run_record *run = &a->ev.run;
    if (!run->has_seed) return;
    uint8_t round[4];
    omm_put_u32(round, o->round);
    omm_seed seed = omm_seed_from_u64(run->seed);
    omm_seed nonce = omm_seed_derive(&seed, OMM_PURPOSE_NONCE, omm_bytes_of(round, 4));
    if (memcmp(nonce.b, o->nonce.b, 32) != 0)
        audit_fail(a, path, "nonce is not the one that the seed gives");
}

static void check_global(audit *a, const char *path, const omm_offer *o, uint32_t begins) {
    omm_bundle_path adapter = omm_bundle_path_adapter(begins);
    omm_buf bytes;
    omm_arena arena;
    omm_blob blob;
    omm_buf_init(&bytes, (size_t)o->global.size); /* more cannot be it */
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    if (audit_read(a, &bytes, adapter.text) &&
        audit_expect(a,
                     omm_blob_describe(&blob, &arena, omm_buf_view(&bytes), &o->global.canonical),
                     adapter.text)) {
        bool same = omm_digest_equal(&blob.digest, &o->global.digest) &&
                    blob.size == o->global.size && blob.chunk_count == o->global.chunk_count;
        for (size_t i = 0; same && i < blob.chunk_count; i++)
            same = omm_digest_equal(&blob.chunk_digests[i], &o->global.chunk_digests[i]);
        if (!same) audit_fail(a, path, "global adapter is not %s", adapter.text);
    }
    omm_arena_fini(&arena);
    omm_buf_fini(&bytes);
}

static void check_offer_message(audit *a, const char *path, const omm_offer *o, size_t r) {
    const omm_digest *previous = r ? &a->ev.lines[r - 1].digest : &a->agreed;
    const char *field = offer_differs(o, &a->ev.run);
    if (field) audit_fail(a, path, "%s is not what run.json says", field);
    if (a->has_facts && o->deadline_ms != a->facts.deadline_ms)
        audit_fail(a, path, "deadline_ms is %llu, and scenario.yaml says %llu",
                   (unsigned long long)o->deadline_ms, (unsigned long long)a->facts.deadline_ms);
    if (o->round != r) audit_fail(a, path, "is of round %u", o->round);
    if (r == 0 && !omm_digest_equal(&o->previous, previous))
        audit_fail(a, path,
                   "the nodes agreed to something else than what run.json, scenario.yaml and "
                   "policy.yaml say: one of them has changed since");
    if (r > 0 && !omm_digest_equal(&o->previous, previous))
        audit_fail(a, path, "does not follow the line of round %zu in rounds.jsonl", r - 1);
    if (!same_selection(o, evidence_at_hand(&a->ev, r)))
        audit_fail(a, path, "selected nodes are not those of rounds.jsonl");
    for (size_t q = 0; q < r; q++)
        if (a->offers[q].known && omm_digest_equal(&a->offers[q].nonce, &o->nonce))
            audit_fail(a, path, "has the nonce of round %zu", q);
    check_nonce(a, path, o);
    check_global(a, path, o, omm_round_begins(&a->ev.heads[r]));
}

static void check_offer(audit *a, size_t r) {
    omm_bundle_path path = omm_bundle_path_offer((uint32_t)r);
    omm_buf text;
    omm_arena arena;
    omm_envelope env;
    omm_offer offer;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    omm_buf_init(&text, OMM_ENVELOPE_BYTES_MAX);
    if (open_signed(a, &text, &env, path.text, &a->ev.heads[r].offer, OMM_CONTEXT_OFFER)) {
        if (!omm_public_key_equal(&env.key, &a->ev.run.coordinator_key)) {
            audit_fail(a, path.text, "is not signed by the coordinator's key");
        } else if (audit_expect(a, omm_offer_decode(&offer, env.payload, &arena), path.text)) {
            a->offers[r] = (audit_offer){.known = offer.round == r && !offer.is_canary,
                                         .nonce = offer.nonce,
                                         .global_digest = offer.global.digest,
                                         .global_canonical = offer.global.canonical,
                                         .global_bytes = offer.global.size,
                                         .payload_bytes_max = offer.payload_bytes_max,
                                         .envelope_bytes = text.size};
            if (offer.is_canary)
                audit_fail(a, path.text, "is a canary's offer, which no round is opened with");
            check_offer_message(a, path.text, &offer, r);
        }
    }
    omm_buf_fini(&text);
    omm_arena_fini(&arena);
}

/* Zeros, which nobody signs, where it cannot be read. */
static void read_agreed(audit *a) {
    omm_buf scenario, policy;
    omm_buf_init(&scenario, YAML_BYTES_MAX);
    omm_buf_init(&policy, YAML_BYTES_MAX);
    if (audit_read(a, &scenario, "scenario.yaml") && audit_read(a, &policy, "policy.yaml"))
        (void)audit_expect(
            a,
            omm_run_agreed(&a->agreed, &a->ev.run, omm_buf_view(&scenario), omm_buf_view(&policy)),
            "run.json");
    omm_buf_fini(&scenario);
    omm_buf_fini(&policy);
}

void audit_offers(audit *a) {
    if (!has_base(a)) return;
    read_agreed(a);
    for (size_t r = 0; r < a->ev.round_count && audit_round(a, r); r++) check_offer(a, r);
}

/* --- submissions --- */

/* In a simulation data and keys are known: what a node says of its data is of what run.json says of them. */
static const char *data_differs(const omm_submission *s, const evidence *ev,
                                const omm_digest *node) {
    const size_t at = evidence_node(ev, node);
    if (!ev->run.simulated || !ev->run.has_seed || at == SIZE_MAX) return NULL;
    const omm_run_node *n = &ev->run.nodes[at];
    if (!n->client[0]) return NULL;
    const omm_seed seed = omm_seed_from_u64(ev->run.seed);
    const omm_seed key = omm_seed_derive(&seed, OMM_PURPOSE_COMMIT_KEY, omm_bytes_str(n->name));
    const omm_digest is = omm_hash_keyed(omm_bytes_of(key.b, sizeof key.b),
                                         omm_bytes_of(n->data_digest.b, sizeof n->data_digest.b));
    if (!omm_digest_equal(&is, &s->data_commitment)) return "data_commitment (of data_digest)";
    return s->examples == n->examples ? NULL : "examples";
}

static const char *submission_differs(const omm_submission *s, const omm_round_accepted *line,
                                      const omm_round_record *round, const audit_offer *offer,
                                      const omm_run_record *run) {
    if (strcmp(s->run_id, run->run_id) != 0) return "run_id";
    if (s->round != round->round) return "round";
    if (!omm_digest_equal(&s->offer_digest, &round->offer)) return "offer_digest";
    if (!omm_digest_equal(&s->base_digest, &run->base.digest)) return "base_digest";
    if (s->tokens != line->tokens) return "tokens";
    if (s->tokens == 0 || s->tokens > run->tokens_max) return "tokens (over tokens_max)";
    if (!same_codec(s->codec, &run->codec_up)) return "codec";
    if (!omm_digest_equal(&s->payload.digest, &line->payload)) return "payload.digest";
    if (!omm_digest_equal(&s->payload.canonical, &line->canonical)) return "payload.canonical";
    if (!offer->known) return NULL; /* reported with the offer */
    if (!omm_digest_equal(&s->nonce, &offer->nonce)) return "nonce";
    if (!omm_digest_equal(&s->global_digest, &offer->global_digest)) return "global_digest";
    if (s->payload.size > offer->payload_bytes_max) return "payload.size (over payload_bytes_max)";
    return NULL;
}

/* `env` points into `text`. */
static bool open_submission(audit *a, omm_buf *text, omm_envelope *env, size_t r, size_t i) {
    const omm_round_accepted *line = &evidence_at_hand(&a->ev, r)->accepted[i];
    omm_bundle_path path = omm_bundle_path_submission((uint32_t)r, &line->node);
    if (!open_signed(a, text, env, path.text, &line->submission, OMM_CONTEXT_SUBMISSION))
        return false;
    omm_digest id = omm_key_id(&env->key);
    if (omm_digest_equal(&id, &line->node) && evidence_node(&a->ev, &line->node) != SIZE_MAX)
        return true;
    audit_fail(a, path.text, "is not signed by the enrolled node that rounds.jsonl names");
    return false;
}

static bool decode_submission(audit *a, omm_submission *out, omm_arena *arena,
                              const omm_envelope *env, size_t r, size_t i) {
    const omm_digest *node = &evidence_at_hand(&a->ev, r)->accepted[i].node;
    return audit_expect(a, omm_submission_decode(out, env->payload, arena),
                        omm_bundle_path_submission((uint32_t)r, node).text);
}

bool audit_open_submission(audit *a, omm_submission *out, omm_arena *arena, omm_buf *text, size_t r,
                           size_t i) {
    omm_envelope env;
    return open_submission(a, text, &env, r, i) && decode_submission(a, out, arena, &env, r, i);
}

/* What a node's residual goes on from: from its last accepted submission, or again from zero. */
typedef struct residuals {
    omm_digest zero;
    omm_digest *last; /* after the node's last accepted submission, by index in run.nodes */
    struct {
        size_t round, index;
    } * broken; /* accepted submissions that go on from another */
    size_t broken_count, broken_capacity;
} residuals;

static omm_err residuals_open(residuals *out, audit *a) {
    *out = (residuals){.zero = omm_residual_zero(a->ev.run.layout.value_count)};
    out->last = omm_alloc(a->ev.run.node_count + 1, sizeof *out->last);
    if (!out->last) return omm_raise(OMM_ERR_NOMEM, "no memory for residuals");
    for (size_t n = 0; n < a->ev.run.node_count; n++) out->last[n] = out->zero;
    return OMM_OK;
}

static void residuals_close(residuals *s) {
    omm_free(s->last);
    omm_free(s->broken);
}

static omm_err note_broken(residuals *s, size_t r, size_t i) {
    if (s->broken_count == s->broken_capacity) {
        size_t capacity = s->broken_capacity ? 2 * s->broken_capacity : 64;
        void *grown = omm_grow(s->broken, s->broken_capacity, capacity, sizeof *s->broken);
        if (!grown) return omm_raise(OMM_ERR_NOMEM, "no memory for residuals");
        s->broken = grown;
        s->broken_capacity = capacity;
    }
    s->broken[s->broken_count].round = r;
    s->broken[s->broken_count++].index = i;
    return OMM_OK;
}

static omm_err check_residual(audit *a, residuals *s, const omm_submission *message, size_t r,
                              size_t i) {
    omm_digest *last =
        &s->last[evidence_node(&a->ev, &evidence_at_hand(&a->ev, r)->accepted[i].node)];
    a->items++;
    if (!a->ev.run.codec_up.error_feedback && !omm_digest_equal(&message->residual_after, &s->zero))
        audit_fail(
            a,
            omm_bundle_path_submission((uint32_t)r, &evidence_at_hand(&a->ev, r)->accepted[i].node)
                .text,
            "residual_after is not that of zeros, and the codec has no error feedback");
    bool goes_on = omm_digest_equal(&message->residual_before, last) ||
                   omm_digest_equal(&message->residual_before, &s->zero);
    *last = message->residual_after;
    return goes_on ? OMM_OK : note_broken(s, r, i);
}

static omm_err note_due(audit *a, const omm_digest *before, size_t r, size_t k) {
    if (a->residual_count == a->residual_capacity) {
        const size_t capacity = a->residual_capacity ? 2 * a->residual_capacity : 64;
        void *grown = omm_grow(a->residuals, a->residual_capacity, capacity, sizeof *a->residuals);
        if (!grown) return omm_raise(OMM_ERR_NOMEM, "no memory for residuals");
        a->residuals = grown;
        a->residual_capacity = capacity;
    }
    a->residuals[a->residual_count++] = (audit_residual){r, k, *before};
    return OMM_OK;
}

/* Who was refused for its residual: what it should have gone on from, before anything of this round counts. */
static omm_err note_refused(audit *a, const residuals *s, size_t r) {
    const omm_round_record *round = evidence_at_hand(&a->ev, r);
    for (size_t k = 0; k < round->refused_count; k++) {
        const omm_round_refused *line = &round->refused[k];
        if (!line->has_node || strcmp(line->reason, omm_err_name(OMM_ERR_REFUSED_RESIDUAL)) != 0)
            continue;
        const size_t node = evidence_node(&a->ev, &line->node);
        if (node != SIZE_MAX) OMM_TRY(note_due(a, &s->last[node], r, k));
    }
    return OMM_OK;
}

static omm_err check_message(audit *a, residuals *s, const omm_submission *message,
                             size_t envelope_bytes, size_t r, size_t i) {
    const omm_round_record *round = evidence_at_hand(&a->ev, r);
    const omm_round_accepted *line = &round->accepted[i];
    const char *field = submission_differs(message, line, round, &a->offers[r], &a->ev.run);
    if (!field) field = data_differs(message, &a->ev, &line->node);
    if (!field && a->has_facts && message->steps != a->facts.steps) field = "steps";
    if (!field && message->step_digests.size != (uint64_t)message->steps * 8)
        field = "step_digests (one a step)";
    if (field)
        audit_fail(a, omm_bundle_path_submission((uint32_t)r, &line->node).text,
                   "%s is not what offer and rounds.jsonl say", field);
    if (!field && a->offers[r].known) {
        a->sent.count++;
        a->sent.up += message->payload.size;
        a->sent.down += a->offers[r].global_bytes;
    }
    if (a->submissions)
        a->submissions[r][i] = (audit_submission){.blob = audit_blob_digest(&message->payload),
                                                  .payload_bytes = message->payload.size,
                                                  .envelope_bytes = (uint32_t)envelope_bytes};
    return check_residual(a, s, message, r, i);
}

static omm_err check_submission(audit *a, residuals *s, size_t r, size_t i) {
    omm_err err = OMM_OK;
    omm_buf text;
    omm_arena arena;
    omm_envelope env;
    omm_submission message;
    omm_buf_init(&text, OMM_ENVELOPE_BYTES_MAX);
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    if (open_submission(a, &text, &env, r, i)) {
        a->signed_count++;
        if (decode_submission(a, &message, &arena, &env, r, i))
            err = check_message(a, s, &message, text.size, r, i);
    }
    omm_buf_fini(&text);
    omm_arena_fini(&arena);
    return err;
}

/* What was noted is said after all else about submissions. */
static void report_residuals(audit *a, const residuals *s) {
    for (size_t k = 0; k < s->broken_count; k++) {
        const size_t r = s->broken[k].round;
        if (!audit_round(a, r)) return;
        const omm_digest *node = &evidence_at_hand(&a->ev, r)->accepted[s->broken[k].index].node;
        audit_fail(a, omm_bundle_path_submission((uint32_t)r, node).text,
                   "residual_before is neither the node's last residual nor zero");
    }
}

void audit_submissions(audit *a) {
    residuals s;
    if (!has_base(a)) return;
    omm_err err = residuals_open(&s, a);
    a->residual_zero = s.zero;
    for (size_t r = 0; err == OMM_OK && r < a->ev.round_count && audit_round(a, r); r++) {
        err = note_refused(a, &s, r);
        for (size_t i = 0; err == OMM_OK && i < a->ev.heads[r].accepted_count; i++)
            err = check_submission(a, &s, r, i);
    }
    if (err == OMM_OK)
        report_residuals(a, &s);
    else
        (void)audit_expect(a, err, "run.json");
    residuals_close(&s);
}

/* --- receipts --- */

static const char *receipt_differs(const omm_receipt *got, const omm_round_accepted *line,
                                   uint32_t round, const char *run_id) {
    if (strcmp(got->run_id, run_id) != 0) return "run_id";
    if (got->round != round) return "round";
    if (!omm_digest_equal(&got->node_id, &line->node)) return "node_id";
    if (!omm_digest_equal(&got->submission_digest, &line->submission)) return "submission_digest";
    if (!got->accepted) return "accepted";
    return NULL;
}

static void check_receipt(audit *a, size_t r, size_t i) {
    const omm_round_accepted *line = &evidence_at_hand(&a->ev, r)->accepted[i];
    omm_bundle_path path = omm_bundle_path_receipt((uint32_t)r, &line->node);
    omm_buf text;
    omm_envelope env;
    omm_receipt receipt;
    omm_arena arena;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    omm_buf_init(&text, OMM_ENVELOPE_BYTES_MAX);
    if (open_signed(a, &text, &env, path.text, &line->receipt, OMM_CONTEXT_RECEIPT)) {
        if (a->submissions) a->submissions[r][i].receipt_bytes = (uint32_t)text.size;
        if (!omm_public_key_equal(&env.key, &a->ev.run.coordinator_key)) {
            audit_fail(a, path.text, "is not signed by the coordinator's key");
        } else if (audit_expect(a, omm_receipt_decode(&receipt, env.payload, &arena), path.text)) {
            const char *field = receipt_differs(&receipt, line, (uint32_t)r, a->ev.run.run_id);
            if (field) audit_fail(a, path.text, "%s is not what rounds.jsonl says", field);
        }
    }
    omm_buf_fini(&text);
    omm_arena_fini(&arena);
}

void audit_receipts(audit *a) {
    if (!has_base(a)) return;
    for (size_t r = 0; r < a->ev.round_count && audit_round(a, r); r++)
        for (size_t i = 0; i < a->ev.heads[r].accepted_count; i++) check_receipt(a, r, i);
}

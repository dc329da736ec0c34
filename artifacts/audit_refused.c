/* What was refused is kept too: as it came, with the receipt that says why (audit_reason.c: is it so?). */
#include "audit_reason.h"

#include <string.h>

/* The payload of a refused submission may be in the bundle; then its bytes are what they claim. */
static void check_payload(audit *a, const omm_digest *digest) {
    omm_bundle_path path = omm_bundle_path_payload(digest);
    char full[OMM_PATH_MAX];
    omm_digest is;
    /* Many refusals may name one large file: it is hashed once. */
    if (audit_is_named(a, path.text)) return;
    if (omm_path_join(full, a->ev.dir, path.text) != OMM_OK || !omm_file_exists(full)) return;
    audit_name(a, path.text);
    if (!audit_expect(a, omm_hash_file(&is, full), path.text)) return;
    if (!omm_digest_equal(&is, digest)) audit_fail(a, path.text, "is not what its name says");
}

/* Nothing here is believed: it was refused.  Only its payload's name is of use. */
static void name_payload(audit *a, const char *path, omm_bytes text) {
    omm_envelope env;
    omm_submission s;
    omm_arena arena;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    omm_err err = omm_envelope_open(&env, text);
    if (err == OMM_OK) err = omm_submission_decode(&s, env.payload, &arena);
    if (err == OMM_OK)
        check_payload(a, &s.payload.digest);
    else if (err == OMM_ERR_NOMEM) /* which says nothing of it */
        (void)audit_expect(a, err, path);
    omm_arena_fini(&arena);
}

/* Who signed it, if `refused` names a node. */
static void check_signer(audit *a, const char *path, const omm_round_refused *refused,
                         omm_bytes text) {
    omm_envelope env;
    if (!refused->has_node) return;
    if (!audit_expect(a, omm_envelope_open(&env, text), path)) return;
    omm_digest id = omm_key_id(&env.key);
    if (!omm_digest_equal(&id, &refused->node))
        audit_fail(a, path, "is not signed by the node that rounds.jsonl names");
}

static bool exists(const audit *a, const char *path) {
    char full[OMM_PATH_MAX];
    return omm_path_join(full, a->ev.dir, path) == OMM_OK && omm_file_exists(full);
}

static void check_refused(audit *a, reasons *all, size_t r, size_t k) {
    const omm_round_refused *refused = &evidence_at_hand(&a->ev, r)->refused[k];
    omm_bundle_path path = omm_bundle_path_refused((uint32_t)r, (uint32_t)k, refused->reason, true);
    if (!exists(a, path.text))
        path = omm_bundle_path_refused((uint32_t)r, (uint32_t)k, refused->reason, false);
    omm_buf text;
    omm_buf_init(&text, OMM_BUNDLE_FILE_BYTES_MAX);
    if (audit_read(a, &text, path.text)) {
        omm_digest is = omm_hash(omm_buf_view(&text));
        if (!omm_digest_equal(&is, &refused->submission))
            audit_fail(a, path.text, "is not what rounds.jsonl names: another digest");
        check_signer(a, path.text, refused, omm_buf_view(&text));
        name_payload(a, path.text, omm_buf_view(&text));
        reasons_check(all, r, k, path.text, omm_buf_view(&text));
    }
    omm_buf_fini(&text);
}

static const char *receipt_differs(const omm_receipt *got, const omm_round_refused *refused,
                                   uint32_t round, const char *run_id) {
    if (strcmp(got->run_id, run_id) != 0) return "run_id";
    if (got->round != round) return "round";
    if (refused->has_node && !omm_digest_equal(&got->node_id, &refused->node)) return "node_id";
    if (!omm_digest_equal(&got->submission_digest, &refused->submission))
        return "submission_digest";
    if (got->accepted) return "accepted";
    if (strcmp(omm_err_name(got->reason), refused->reason) != 0) return "reason";
    return NULL;
}

static void check_receipt(audit *a, size_t r, size_t k) {
    const omm_round_refused *refused = &evidence_at_hand(&a->ev, r)->refused[k];
    omm_bundle_path path = omm_bundle_path_refused_receipt((uint32_t)r, (uint32_t)k);
    omm_buf text;
    omm_envelope env;
    omm_receipt receipt;
    omm_arena arena;
    if (!refused->has_receipt) return;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    omm_buf_init(&text, OMM_ENVELOPE_BYTES_MAX);
    if (audit_read(a, &text, path.text) &&
        audit_expect(a, omm_envelope_open_as(&env, OMM_CONTEXT_RECEIPT, omm_buf_view(&text)),
                     path.text)) {
        omm_digest is = omm_hash(omm_buf_view(&text));
        if (!omm_digest_equal(&is, &refused->receipt))
            audit_fail(a, path.text, "is not what rounds.jsonl names: another digest");
        if (!omm_public_key_equal(&env.key, &a->ev.run.coordinator_key)) {
            audit_fail(a, path.text, "is not signed by the coordinator's key");
        } else if (audit_expect(a, omm_receipt_decode(&receipt, env.payload, &arena), path.text)) {
            const char *field = receipt_differs(&receipt, refused, (uint32_t)r, a->ev.run.run_id);
            if (field) audit_fail(a, path.text, "%s is not what rounds.jsonl says", field);
        }
    }
    omm_buf_fini(&text);
    omm_arena_fini(&arena);
}

/* Rounds without refusals have their turn too: they say which nodes there were. */
static void check_rounds(audit *a, reasons *all) {
    size_t end = a->ev.round_count;
    while (end > 0 && a->ev.heads[end - 1].refused_count == 0) end--;
    for (size_t r = 0; r < end && audit_round(a, r); r++) {
        reasons_begin_round(all, r);
        for (size_t k = 0; k < a->ev.heads[r].refused_count; k++) {
            check_refused(a, all, r, k);
            check_receipt(a, r, k);
        }
        reasons_end_round(all, r);
    }
}

void audit_refusals(audit *a) {
    reasons all;
    if (a->ev.run_file.err != OMM_OK || a->ev.rounds_file.err != OMM_OK) {
        audit_fail(a, "rounds.jsonl", "refusals cannot be checked without it and run.json");
        return;
    }
    const omm_err err = reasons_open(&all, a);
    if (err == OMM_OK)
        check_rounds(a, &all);
    else
        (void)audit_expect(a, err, "run.json");
    reasons_close(&all);
}

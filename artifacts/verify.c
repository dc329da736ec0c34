/* The table of checks, and the report. */
#include "omm/verify.h"
#include "omm/mem.h"
#include "omm/policy.h"
#include "record.h"
#include "verify_internal.h"

#include <stdio.h>
#include <string.h>

#define POLICY_ARENA_BYTES_MAX (16u << 20)

/* --- the checks that are not audits --- */

static void compare_file(verifier *v, const char *path, const omm_buf *want) {
    omm_buf is;
    omm_buf_init(&is, OMM_BUNDLE_FILE_BYTES_MAX);
    if (audit_read(v->a, &is, path) && !omm_bytes_equal(omm_buf_view(&is), omm_buf_view(want)))
        audit_fail(v->a, path, "is not what the evidence and the policy give");
    omm_buf_fini(&is);
}

/* Who compares two runs reads it line by line. */
static void check_policy(verifier *v) {
    omm_policy policy;
    omm_arena arena;
    omm_buf text;
    omm_arena_init(&arena, POLICY_ARENA_BYTES_MAX);
    omm_buf_init(&text, OMM_BUNDLE_FILE_BYTES_MAX);
    omm_err err = omm_bundle_file_read(&text, v->dir, "policy.yaml");
    if (err == OMM_OK)
        err = omm_config_parse(&policy, omm_policy_fields, omm_buf_view(&text), "policy.yaml",
                               &arena);
    if (err == OMM_OK)
        err = omm_config_check_written(omm_buf_view(&text), omm_policy_fields, &policy);
    if (err == OMM_ERR_NOMEM) v->a->fatal = err;
    if (err == OMM_ERR_FORMAT) audit_fail(v->a, "policy.yaml", "%s", omm_err_sentence());
    omm_buf_fini(&text);
    omm_arena_fini(&arena);
}

static void check_kind(verifier *v, const omm_repro_record *repro, const char *kind,
                       const char *how, size_t wanted) {
    size_t count = 0;
    for (size_t i = 0; i < repro->check_count; i++)
        count += strcmp(repro->checks[i].kind, kind) == 0;
    if (count != wanted)
        audit_fail(v->a, "measured/repro.json",
                   "submissions repeated %s: %zu, and scenario.yaml gives %zu", how, count, wanted);
}

static bool is_scalar(const char *isa) {
    return strcmp(isa, "scalar") == 0;
}

/* One machine has run and repeated it. */
static void check_machine(verifier *v, const omm_repro_record *repro) {
    const bool is_arm = strncmp(repro->isa, "neon", 4) == 0, is_any = is_scalar(repro->isa);
    for (size_t i = 0; i < repro->check_count; i++) {
        const char *isa = repro->checks[i].isa;
        if (!is_any && !is_scalar(isa) && (strncmp(isa, "neon", 4) == 0) != is_arm)
            audit_fail(v->a, "measured/repro.json",
                       "a run by %s was repeated by %s, which no machine has beside it", repro->isa,
                       isa);
    }
}

/* Of one the first steps, as many as were asked for: of fewer there is less to differ. */
static void check_scalar_steps(verifier *v, const omm_repro_record *repro) {
    for (size_t i = 0; i < repro->check_count; i++) {
        const omm_repro_check *c = &repro->checks[i];
        if (strcmp(c->kind, "scalar") == 0 && c->steps != v->a->facts.scalar_steps)
            audit_fail(v->a, "measured/repro.json",
                       "%u steps were repeated in plain C, and scenario.yaml gives %u", c->steps,
                       v->a->facts.scalar_steps);
    }
}

/* Of as many submissions as there are to train again; every processor has plain C beside what it has of its own. */
static void check_repeated(verifier *v, const omm_repro_record *repro) {
    const omm_scenario_facts *f = &v->a->facts;
    const bool is_plain = is_scalar(repro->isa);
    size_t accepted = 0;
    if (!v->a->has_facts) return;
    for (size_t r = 0; r < v->a->ev.round_count; r++) accepted += v->a->ev.heads[r].accepted_count;
    const size_t wanted = f->audited < accepted ? f->audited : accepted;
    if (repro->other_isa == is_plain)
        audit_fail(v->a, "measured/repro.json", "other_isa is %s of a run by %s",
                   repro->other_isa ? "true" : "false", repro->isa);
    check_kind(v, repro, "threads", "with other threads", f->audits_threads ? wanted : 0);
    check_kind(v, repro, "isa", "by another instruction set",
               f->audits_isa && !is_plain ? wanted : 0);
    check_kind(v, repro, "scalar", "in plain C",
               f->scalar_steps > 0 && !is_plain && accepted > 0 ? 1 : 0);
    check_scalar_steps(v, repro);
    check_machine(v, repro);
}

/* True: it is there, and of this run.  Malformed, it fails a gate; where a policy has that for information alone, it is no evidence
 * all the same. */
static bool check_record(verifier *v, const char *path, omm_err err, const char *run_id) {
    if (err == OMM_ERR_NOMEM) v->a->fatal = err;
    if (err != OMM_OK)
        audit_fail(v->a, path, "%s", omm_err_sentence());
    else if (v->a->ev.run_file.err != OMM_OK) /* which has been said */
        return false;
    else if (strcmp(run_id, v->a->ev.run.run_id) != 0)
        audit_fail(v->a, path, "run_id is not that of run.json");
    else
        return true;
    return false;
}

static void check_wire(verifier *v, const char *path, omm_bytes text, omm_arena *arena) {
    omm_wire_record wire = {0};
    const omm_err err = omm_wire_record_parse(&wire, arena, text);
    if (check_record(v, path, err, wire.run_id)) check_wire_rows(v, &wire);
}

static void check_repro(verifier *v, const char *path, omm_bytes text, omm_arena *arena) {
    omm_repro_record repro = {0};
    const omm_err err = omm_repro_record_parse(&repro, arena, text);
    if (!check_record(v, path, err, repro.run_id)) return;
    if (v->a->ev.run.simulated)
        check_repeated(v, &repro);
    else
        audit_fail(v->a, path,
                   "is there, and a service, which has no node's data, trains nothing again");
}

/* Where it is there: that it has to be a gate says. */
static void check_measured(verifier *v, const char *path,
                           void (*check)(verifier *v, const char *path, omm_bytes text,
                                         omm_arena *arena)) {
    omm_arena arena;
    omm_buf text;
    omm_arena_init(&arena, REPORT_ARENA_BYTES_MAX);
    omm_buf_init(&text, OMM_BUNDLE_FILE_BYTES_MAX);
    const omm_err err = omm_bundle_file_read(&text, v->dir, path);
    if (err == OMM_ERR_NOMEM) v->a->fatal = err;
    if (err == OMM_OK) check(v, path, omm_buf_view(&text), &arena);
    omm_buf_fini(&text);
    omm_arena_fini(&arena);
}

static void check_verdicts(verifier *v) {
    omm_judgement *j = &v->report->judgement;
    omm_err err = omm_bundle_judge(j, v->dir, NULL, v->m.commit, NULL);
    v->report->judged = audit_expect(v->a, err, "policy.yaml");
    if (!v->report->judged) return;
    check_policy(v);
    check_measured(v, "measured/wire.json", check_wire);
    check_measured(v, "measured/repro.json", check_repro);
    compare_file(v, "gates.json", &j->gates_json);
    compare_file(v, "measured/gates.json", &j->measured_json);
    compare_file(v, "junit.xml", &j->junit);
}

static void compare_final(verifier *v, const float *values) {
    omm_buf want;
    omm_buf is;
    omm_buf_init(&want, OMM_BUNDLE_FILE_BYTES_MAX);
    omm_buf_init(&is, 0);
    omm_err err = v->options->render(v->options->render_ud, &want, &v->a->ev.run, values);
    is.bytes_max = want.size + 1; /* longer is different */
    if (audit_expect(v->a, err, "final.gguf") && audit_read(v->a, &is, "final.gguf") &&
        !omm_bytes_equal(omm_buf_view(&is), omm_buf_view(&want)))
        audit_fail(v->a, "final.gguf", "is not the last broadcast as an adapter file");
    omm_buf_fini(&is);
    omm_buf_fini(&want);
}

/* adapters/ of the last state was checked against its master by now; its size is known. */
static void check_adapter(verifier *v) {
    const evidence *ev = &v->a->ev;
    omm_bundle_path last = omm_bundle_path_master((uint32_t)ev->round_count);
    char full[OMM_PATH_MAX];
    uint64_t bytes = 0;
    size_t n = ev->run.layout.value_count;
    if (ev->run_file.err != OMM_OK || ev->rounds_file.err != OMM_OK) {
        audit_fail(v->a, "final.gguf", "cannot be checked without run.json and rounds.jsonl");
        return;
    }
    omm_err err = omm_path_join(full, v->dir, last.text);
    if (err == OMM_OK) err = omm_file_size(&bytes, full);
    if (err == OMM_OK && bytes != 4 * (uint64_t)n)
        err = omm_raise(OMM_ERR_SIZE, "is not of %zu values", n);
    if (!audit_expect(v->a, err, last.text)) return;
    float *values = omm_alloc(n, sizeof *values);
    if (!values) {
        (void)audit_expect(v->a, omm_raise(OMM_ERR_NOMEM, "no memory for %zu values", n),
                           "final.gguf");
        return;
    }
    if (audit_broadcast_values(v->a, values, NULL, (uint32_t)ev->round_count))
        compare_final(v, values);
    omm_free(values);
}

/* --- the table --- */

typedef struct check_row {
    const char *name;
    const char *what; /* what `items` counts */
    void (*own)(verifier *v);
    void (*audit)(audit *a);
} check_row;

static void check_bundle_key(verifier *v) {
    const omm_run_record *run = &v->a->ev.run;
    omm_public_key key;
    if (v->a->ev.run_file.err != OMM_OK || !run->simulated || !run->has_seed) return;
    if (omm_minisign_public_parse(&key, v->m.bundle_key) == OMM_OK &&
        !audit_key_follows(&key, run->seed, OMM_PURPOSE_BUNDLE_KEY, "bundle"))
        audit_fail(v->a, "manifest.json",
                   "bundle_key does not follow from the seed, as a simulation's does");
}

static void check_run(verifier *v) {
    audit_run(v->a);
    check_bundle_key(v);
    if (!v->options->coordinator || v->a->ev.run_file.err != OMM_OK) return;
    v->report->coordinator_pinned =
        omm_public_key_equal(&v->a->ev.run.coordinator_key, v->options->coordinator);
    if (!v->report->coordinator_pinned)
        audit_fail(v->a, "run.json", "coordinator_key is not the trusted one");
}

static const check_row s_checks[] = {
    {"files", "files", check_files, NULL},
    {"signature", "steps", check_signature, NULL},
    {"digests", "files", check_digests, NULL},
    {"run", "facts", check_run, NULL},
    {"offers", "facts", NULL, audit_offers},
    {"submissions", "facts", NULL, audit_submissions},
    {"receipts", "facts", NULL, audit_receipts},
    {"refusals", "facts", NULL, audit_refusals},
    {"payloads", "facts", NULL, audit_payloads},
    {"aggregation", "values", NULL, audit_aggregation},
    {"broadcast", "facts", NULL, audit_broadcast},
    {"ledger", "rows", NULL, audit_ledger},
    {"eval", "rows", NULL, audit_eval},
    {"verdicts", "files", check_verdicts, NULL},
    {"adapter", "facts", check_adapter, NULL},
    {"close", "facts", NULL, audit_end},
    {"complete", "files", check_complete, NULL},
};
#define CHECK_COUNT (sizeof s_checks / sizeof *s_checks)
#define FIRST_CHECKS                                                                               \
    2u /* of names, sizes and the manifest alone: no other file is read before them */

/* Paths and sentences may quote a hostile bundle: no control characters reach a terminal. */
static char *plain_copy(omm_arena *arena, const char *text) {
    char *copy = omm_arena_strdup(arena, text);
    for (char *p = copy; p && *p; p++)
        if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f) *p = '?';
    return copy;
}

/* Keep a failure; beyond the limit only the count goes on. */
static void keep_failure(void *ud, const char *path, const char *sentence) {
    verifier *v = ud;
    omm_verify_report *report = v->report;
    if (report->failure_count == OMM_VERIFY_FAILURES_MAX) return;
    char *path_copy = plain_copy(v->arena, path);
    char *reason = plain_copy(v->arena, sentence);
    if (!path_copy || !reason) {
        v->a->fatal = omm_raise(OMM_ERR_NOMEM, "no memory for a failure");
        return;
    }
    v->failures[report->failure_count++] = (omm_verify_failure){v->check, path_copy, reason};
}

/* Why nothing but the first checks is done; NULL: all are.  What nobody has signed, or signed so large, may cost hours: a
 * file of holes takes no disk. */
static const char *why_not_done(const verifier *v) {
    if (!v->safe_to_read) return "the bundle holds what must not be opened";
    if (!v->is_signed && v->options->trusted)
        return "the manifest is not signed by the trusted key";
    if (!v->is_signed) return "the manifest is not signed";
    return v->has_more ? "the bundle holds more than its manifest lists" : NULL;
}

/* Whatever there is, some checks read no more than names, the manifest, and files as large as it says. */
static bool is_done(const verifier *v, const check_row *row) {
    if (!why_not_done(v) || row->own == check_files) return true;
    if (!v->safe_to_read) return false;
    return row->own == check_signature || (row->own == check_digests && v->is_signed);
}

static void run_check(verifier *v, omm_verify_check *out, const check_row *row) {
    const bool done = is_done(v, row);
    v->check = row->name;
    if (!done)
        v->report->not_done = why_not_done(v);
    else if (row->own)
        row->own(v);
    else
        row->audit(v->a);
    *out = (omm_verify_check){.name = row->name,
                              .passed = done && v->a->failures == 0,
                              .done = done,
                              .items = v->a->items,
                              .failures = v->a->failures};
    v->a->items = 0;
    v->a->failures = 0;
}

static omm_err index_files(verifier *v) {
    v->a->files = omm_arena_alloc(v->arena, v->found_count + 1, sizeof *v->a->files);
    if (!v->a->files) return omm_raise(OMM_ERR_NOMEM, "no memory for files");
    for (size_t i = 0; i < v->found_count; i++)
        v->a->files[i] = (audit_file){v->found[i].path, v->found[i].state.bytes, false};
    v->a->file_count = v->found_count;
    return OMM_OK;
}

/* Read what all but the first checks go through. */
static omm_err open_evidence(verifier *v) {
    audit *a = v->a;
    omm_err err = audit_open(a, v->dir);
    if (err != OMM_OK) {
        memset(a, 0, sizeof *a); /* closed already */
        return err;
    }
    OMM_TRY(audit_remember_submissions(a));
    a->fail = keep_failure;
    a->ud = v;
    a->pool = v->options->pool;
    a->read_scenario = v->options->read_scenario;
    return index_files(v);
}

static omm_err run_checks(verifier *v) {
    omm_verify_check *checks = omm_arena_alloc(v->arena, CHECK_COUNT, sizeof *checks);
    if (!checks) return omm_raise(OMM_ERR_NOMEM, "no memory for checks");
    v->report->checks = checks;
    v->report->check_count = CHECK_COUNT;
    v->report->intact = true;
    for (size_t i = 0; i < CHECK_COUNT; i++) {
        if (i == FIRST_CHECKS && !why_not_done(v)) OMM_TRY(open_evidence(v));
        run_check(v, &checks[i], &s_checks[i]);
        OMM_TRY(v->a->fatal);
        if (!checks[i].passed) v->report->intact = false;
    }
    v->report->passed = v->report->intact && v->report->judgement.passed;
    return OMM_OK;
}

/* The walk comes before anything is read, so that nothing but plain files is ever opened. */
static omm_err verify_open(verifier *v, audit *a) {
    memset(a, 0, sizeof *a);
    v->a = a;
    a->fail = keep_failure;
    a->ud = v;
    v->check = "files";
    v->failures = omm_arena_alloc(v->arena, OMM_VERIFY_FAILURES_MAX, sizeof *v->failures);
    if (!v->failures) return omm_raise(OMM_ERR_NOMEM, "no memory for failures");
    v->report->failures = v->failures;
    return verifier_walk(v);
}

omm_err omm_bundle_verify(omm_verify_report *report, const char *dir,
                          const omm_verify_options *options) {
    verifier v;
    audit a;
    OMM_ASSERT(options->render != NULL);
    memset(report, 0, sizeof *report);
    omm_arena_init(&report->arena, REPORT_ARENA_BYTES_MAX);
    memset(&v, 0, sizeof v);
    v.dir = dir;
    v.options = options;
    v.report = report;
    v.arena = &report->arena;
    omm_buf_init(&v.manifest_text, OMM_BUNDLE_FILE_BYTES_MAX);
    omm_err err = verify_open(&v, &a);
    report->state = verifier_state(&v);
    if (err == OMM_OK) err = run_checks(&v);
    if (err == OMM_OK && report->intact) err = verifier_check_unchanged(&v);
    if (err == OMM_OK && a.ev.run_file.err == OMM_OK) {
        memcpy(report->run_id, a.ev.run.run_id, sizeof report->run_id);
        report->coordinator_key = a.ev.run.coordinator_key;
        report->simulated = a.ev.run.simulated;
    }
    if (a.ev.dir) audit_close(&a);
    omm_buf_fini(&v.manifest_text);
    omm_free(v.found);
    if (err != OMM_OK) omm_verify_report_fini(report);
    return err;
}

void omm_verify_report_fini(omm_verify_report *report) {
    if (report->judged) omm_judgement_fini(&report->judgement);
    omm_arena_fini(&report->arena);
    memset(report, 0, sizeof *report);
}

/* --- the report --- */

static const char *what_of(const char *name) {
    for (size_t i = 0; i < CHECK_COUNT; i++)
        if (strcmp(s_checks[i].name, name) == 0) return s_checks[i].what;
    return "";
}

static omm_err text_failures(omm_buf *out, const omm_verify_report *r, const char *check) {
    for (size_t i = 0; i < r->failure_count; i++)
        if (strcmp(r->failures[i].check, check) == 0)
            OMM_TRY(omm_buf_printf(out, "        %s%s%s\n", r->failures[i].path,
                                   r->failures[i].path[0] ? ": " : "", r->failures[i].reason));
    return OMM_OK;
}

static omm_err text_signer(omm_buf *out, const omm_verify_report *r) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, &r->run_digest);
    OMM_TRY(omm_buf_printf(out, "run         %s\nrun digest  %s\nsigner      %s (%s)\n",
                           r->run_id[0] ? r->run_id : "unknown",
                           omm_digest_equal(&r->run_digest, &(omm_digest){{0}}) ? "unknown" : hex,
                           r->signer[0] ? r->signer : "unknown",
                           r->pinned ? "trusted" : "signer not pinned"));
    if (!r->run_id[0]) return omm_buf_printf(out, "\n");
    omm_hex(hex, omm_bytes_of(r->coordinator_key.b, sizeof r->coordinator_key.b));
    OMM_TRY(omm_buf_printf(out, "coordinator %s (%s)\n", hex,
                           r->coordinator_pinned ? "trusted" : "not pinned"));
    if (r->simulated)
        OMM_TRY(omm_buf_printf(out, "simulated   every key follows from the seed: signatures show "
                                    "that it fits together, not who made it\n"));
    return omm_buf_printf(out, "\n");
}

static size_t count_not_done(const omm_verify_report *r) {
    size_t count = 0;
    for (size_t i = 0; i < r->check_count; i++) count += !r->checks[i].done;
    return count;
}

static omm_err text_not_done(omm_buf *out, const omm_verify_report *r) {
    if (!r->not_done) return OMM_OK;
    OMM_TRY(omm_buf_printf(out, "  not done: %zu of %zu checks, as %s (", count_not_done(r),
                           r->check_count, r->not_done));
    bool is_first = true;
    for (size_t i = 0; i < r->check_count; i++) {
        if (r->checks[i].done) continue;
        OMM_TRY(omm_buf_printf(out, "%s%s", is_first ? "" : ", ", r->checks[i].name));
        is_first = false;
    }
    return omm_buf_printf(out, ")\n");
}

/* docs/files.md, What only the coordinator says: the largest of it. */
static omm_err text_as_said(omm_buf *out, const omm_verify_report *r) {
    if (!r->intact) return OMM_OK;
    return omm_buf_printf(
        out,
        "  as said: eval/ by the coordinator (`replay --eval` judges the items "
        "again), measured/ and virtual/ by the signer\n%s",
        r->maybe_network ? "  as said: that the run went over a network (no file is there that "
                           "only simulate writes), and so the bytes of each node\n"
                         : "");
}

omm_err omm_verify_report_text(omm_buf *out, const omm_verify_report *r) {
    OMM_TRY(text_signer(out, r));
    for (size_t i = 0; i < r->check_count; i++) {
        const omm_verify_check *c = &r->checks[i];
        if (!c->done) continue;
        OMM_TRY(omm_buf_printf(out, "  %s  %-12s %zu %s", c->passed ? "pass" : "FAIL", c->name,
                               c->items, what_of(c->name)));
        if (c->failures) OMM_TRY(omm_buf_printf(out, ", %zu failures", c->failures));
        OMM_TRY(omm_buf_printf(out, "\n"));
        OMM_TRY(text_failures(out, r, c->name));
    }
    OMM_TRY(text_not_done(out, r));
    OMM_TRY(text_as_said(out, r));
    OMM_TRY(omm_buf_printf(out, "\n"));
    if (r->judged) OMM_TRY(omm_judgement_text(out, &r->judgement));
    return omm_buf_printf(out, "verify: %s%s\n", r->passed ? "pass" : "FAIL",
                          r->intact && !r->passed ? " (the evidence is intact, a gate failed)"
                                                  : "");
}

static void json_lists(record_out *o, const omm_verify_report *r) {
    json_t *checks = json_array();
    json_t *failures = json_array();
    for (size_t i = 0; checks && i < r->check_count; i++) {
        record_out c = record_begin();
        record_put_str(&c, "name", r->checks[i].name);
        record_put_bool(&c, "passed", r->checks[i].passed);
        record_put_bool(&c, "done", r->checks[i].done);
        record_put_u64(&c, "items", r->checks[i].items);
        record_put_u64(&c, "failures", r->checks[i].failures);
        record_append_record(o, checks, &c);
    }
    for (size_t i = 0; failures && i < r->failure_count; i++) {
        record_out f = record_begin();
        record_put_str(&f, "check", r->failures[i].check);
        record_put_str(&f, "path", r->failures[i].path);
        record_put_str(&f, "reason", r->failures[i].reason);
        record_append_record(o, failures, &f);
    }
    if (r->not_done)
        record_put_str(o, "not_done", r->not_done);
    else
        record_put(o, "not_done", json_null());
    record_put(o, "checks", checks);
    record_put(o, "failures", failures);
}

static void put_verdicts(record_out *o, const char *key, const omm_buf *text) {
    json_t *value = NULL;
    omm_err err = omm_json_parse(&value, omm_buf_view(text), key);
    if (err == OMM_OK)
        record_put(o, key, value);
    else if (o->err == OMM_OK)
        o->err = err;
}

static void json_gates(record_out *o, const char *key, const omm_verify_report *r,
                       const omm_buf *text) {
    if (r->judged)
        put_verdicts(o, key, text);
    else
        record_put(o, key, json_null());
}

/* On whose word alone something stands in a bundle that is intact; null of another. */
static void put_as_said(record_out *o, bool intact) {
    json_t *said = intact ? json_pack("{s:[s],s:[s,s]}", "coordinator", "eval/", "signer",
                                      "measured/", "virtual/")
                          : json_null();
    record_put(o, "as_said", said);
}

/* Of which run, and whose: what `verify` and `gate` both say. */
static void json_whose(record_out *o, const omm_verify_report *r) {
    char hex[OMM_DIGEST_HEX_SIZE];
    record_put_bool(o, "intact", r->intact);
    record_put_bool(o, "pinned", r->pinned);
    record_put_str(o, "signer", r->signer);
    record_put_str(o, "run_id", r->run_id);
    omm_hex(hex, omm_bytes_of(r->coordinator_key.b, sizeof r->coordinator_key.b));
    record_put_str(o, "coordinator_key", r->run_id[0] ? hex : "");
    record_put_bool(o, "coordinator_pinned", r->coordinator_pinned);
    record_put_bool(o, "simulated", r->simulated);
    record_put_bool(o, "wire_bounded", r->wire_bounded);
    record_put_digest(o, "run_digest", &r->run_digest);
    put_as_said(o, r->intact);
}

omm_err omm_verify_report_json(omm_buf *out, const omm_verify_report *r) {
    record_out o = record_begin();
    record_put_u64(&o, "schema_version", OMM_BUNDLE_SCHEMA_VERSION);
    record_put_str(&o, "kind", "omm-verify");
    record_put_bool(&o, "passed", r->passed);
    json_whose(&o, r);
    json_lists(&o, r);
    json_gates(&o, "gates", r, &r->judgement.gates_json);
    json_gates(&o, "measured_gates", r, &r->judgement.measured_json);
    return record_finish(out, &o);
}

static record_out begin_gate(bool passed) {
    record_out o = record_begin();
    record_put_u64(&o, "schema_version", OMM_BUNDLE_SCHEMA_VERSION);
    record_put_str(&o, "kind", "omm-gate");
    record_put_bool(&o, "passed", passed);
    return o;
}

omm_err omm_verify_gate_json(omm_buf *out, const omm_verify_report *r, const omm_judgement *j,
                             const char *policy) {
    OMM_ASSERT(!r || r->intact);
    record_out o = begin_gate(j->passed);
    record_put_bool(&o, "verified", r != NULL);
    if (policy)
        record_put_str(&o, "policy", policy);
    else
        record_put(&o, "policy", json_null());
    if (r) json_whose(&o, r);
    put_verdicts(&o, "gates", &j->gates_json);
    put_verdicts(&o, "measured_gates", &j->measured_json);
    return record_finish(out, &o);
}

omm_err omm_verify_refusal_json(omm_buf *out, const omm_verify_report *r) {
    OMM_ASSERT(!r->intact);
    record_out o = begin_gate(false);
    record_put_bool(&o, "verified", true);
    json_whose(&o, r);
    record_put(&o, "gates", json_null());
    record_put(&o, "measured_gates", json_null());
    json_lists(&o, r);
    return record_finish(out, &o);
}

/* The first failure of a check, and how many there are.  A bundle is hostile, and XML takes printable
 * ASCII. */
static omm_err refusal_reason(const char **out, omm_arena *arena, const omm_verify_report *r,
                              const omm_verify_check *check) {
    enum { REASON_SIZE = 1024 };
    char *text = omm_arena_alloc(arena, REASON_SIZE, 1);
    char plain[REASON_SIZE] = "";
    if (!text) return omm_raise(OMM_ERR_NOMEM, "the reason of a refusal");
    for (size_t i = 0; i < r->failure_count && !plain[0]; i++) {
        const omm_verify_failure *f = &r->failures[i];
        if (strcmp(f->check, check->name) != 0) continue;
        (void)snprintf(plain, sizeof plain, "%s%s%s (failures: %zu)", f->path,
                       f->path[0] ? ": " : "", f->reason, check->failures);
    }
    for (char *c = plain; *c; c++)
        if (*c < 0x20 || *c > 0x7e) *c = '?';
    memcpy(text, plain, REASON_SIZE);
    *out = text;
    return OMM_OK;
}

enum { PROPERTIES_MAX = 9 };

/* Texts of the properties that a report does not have as such. */
typedef struct whose_texts {
    char run_digest[OMM_DIGEST_HEX_SIZE], coordinator[OMM_DIGEST_HEX_SIZE];
} whose_texts;

static const char *yes_or_no(bool is) {
    return is ? "true" : "false";
}

/* What a report of verdicts is of; whatever nobody knows is left out.  Returns how many there are. */
static size_t whose_properties(omm_junit_property out[PROPERTIES_MAX], whose_texts *texts,
                               const omm_verify_report *r, const char *dir, const char *policy) {
    size_t n = 0;
    out[n++] = (omm_junit_property){"bundle", dir};
    out[n++] = (omm_junit_property){"verified", yes_or_no(r != NULL)};
    if (policy) out[n++] = (omm_junit_property){"policy", policy};
    if (!r) return n;
    omm_digest_hex(texts->run_digest, &r->run_digest);
    omm_hex(texts->coordinator, omm_bytes_of(r->coordinator_key.b, sizeof r->coordinator_key.b));
    if (r->signer[0]) out[n++] = (omm_junit_property){"signer", r->signer};
    out[n++] = (omm_junit_property){"pinned", yes_or_no(r->pinned)};
    if (!omm_digest_is_zero(&r->run_digest))
        out[n++] = (omm_junit_property){"run_digest", texts->run_digest};
    if (!r->run_id[0]) return n;
    out[n++] = (omm_junit_property){"run_id", r->run_id};
    out[n++] = (omm_junit_property){"coordinator_key", texts->coordinator};
    out[n++] = (omm_junit_property){"coordinator_pinned", yes_or_no(r->coordinator_pinned)};
    return n;
}

omm_err omm_verify_gate_junit(omm_buf *out, const omm_verify_report *r, const omm_judgement *j,
                              const char *dir, const char *policy) {
    whose_texts texts;
    omm_junit_property properties[PROPERTIES_MAX];
    const omm_verdicts *const sets[] = {&j->evidence, &j->measured};
    return omm_verdicts_junit_of(out, sets, 2, properties,
                                 whose_properties(properties, &texts, r, dir, policy));
}

omm_err omm_verify_refusal_junit(omm_buf *out, const omm_verify_report *r, const char *dir) {
    whose_texts texts;
    omm_junit_property properties[PROPERTIES_MAX];
    const size_t count = whose_properties(properties, &texts, r, dir, NULL);
    OMM_ASSERT(!r->intact && r->check_count <= OMM_METRIC_COUNT);
    omm_verdicts verdicts;
    const omm_verdicts *const sets[] = {&verdicts};
    omm_verdicts_init(&verdicts);
    omm_err err = OMM_OK;
    for (size_t i = 0; err == OMM_OK && i < r->check_count; i++) {
        const omm_verify_check *check = &r->checks[i];
        verdicts.items[verdicts.count] = (omm_verdict){.family = "integrity",
                                                       .metric = check->name,
                                                       .required = check->done,
                                                       .passed = check->passed,
                                                       .reason = check->done ? "" : r->not_done};
        if (check->done && !check->passed)
            err = refusal_reason(&verdicts.items[verdicts.count].reason, &verdicts.arena, r, check);
        verdicts.count++;
    }
    if (err == OMM_OK) err = omm_verdicts_junit_of(out, sets, 1, properties, count);
    omm_verdicts_fini(&verdicts);
    return err;
}

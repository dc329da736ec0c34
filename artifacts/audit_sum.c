/* What can be recomputed from signed payloads: values, norms, the masters, and the broadcasts. */
#include "internal.h"
#include "omm/envelope.h"
#include "omm/fedavg.h"
#include "omm/mem.h"

#include <stdio.h>
#include <string.h>

/* Buffers of one check, (value_count) each. */
typedef struct scratch {
    size_t n;
    float *master, *values, *mean;
    omm_fedavg acc;
    bool has_acc;
} scratch;

static bool power_of_two(int32_t *log2, double v, int32_t min, int32_t max) {
    double p = 1;
    for (int32_t e = 0; e > min; e--) p /= 2;
    for (int32_t e = min; e <= max; e++) {
        if (p == v) {
            *log2 = e;
            return true;
        }
        p *= 2;
    }
    return false;
}

static omm_err range_of(omm_fedavg_range *range, const omm_run_record *run) {
    int32_t w = 0;
    if (!power_of_two(&range->value_max_log2, run->value_max, -16, 15) ||
        !power_of_two(&w, (double)run->weight_sum_max, 0, 40))
        return omm_raise(OMM_ERR_FORMAT, "value_max or weight_sum_max is no power of two in range");
    range->weight_sum_max_log2 = (uint32_t)w;
    return OMM_OK;
}

/* The claimed number of values must stand in a file before memory is taken for it. */
static omm_err check_size(const audit *a, size_t n) {
    char full[OMM_PATH_MAX];
    uint64_t bytes = 0;
    OMM_TRY(omm_path_join(full, a->ev.dir, omm_bundle_path_master(0).text));
    OMM_TRY(omm_file_size(&bytes, full));
    if (bytes == 4 * (uint64_t)n) return OMM_OK;
    return omm_raise(OMM_ERR_SIZE, "%llu bytes, and run.json says %zu values",
                     (unsigned long long)bytes, n);
}

static omm_err allocate(scratch *s, const audit *a) {
    omm_fedavg_range range;
    s->n = a->ev.run.layout.value_count;
    OMM_TRY(check_size(a, s->n));
    OMM_TRY(range_of(&range, &a->ev.run));
    s->master = omm_alloc(s->n, sizeof(float));
    s->values = omm_alloc(s->n, sizeof(float));
    s->mean = omm_alloc(s->n, sizeof(float));
    if (!s->master || !s->values || !s->mean)
        return omm_raise(OMM_ERR_NOMEM, "no memory for %zu values", s->n);
    OMM_TRY(omm_fedavg_init(&s->acc, &range, s->n));
    s->has_acc = true;
    return OMM_OK;
}

static void scratch_close(scratch *s) {
    if (s->has_acc) omm_fedavg_fini(&s->acc);
    omm_free(s->master);
    omm_free(s->values);
    omm_free(s->mean);
}

static bool scratch_open(scratch *s, audit *a) {
    memset(s, 0, sizeof *s);
    if (a->ev.run_file.err != OMM_OK || a->ev.rounds_file.err != OMM_OK) {
        audit_fail(a, a->ev.run_file.err != OMM_OK ? "run.json" : "rounds.jsonl",
                   "cannot be checked without it");
        return false;
    }
    if (audit_expect(a, allocate(s, a), omm_bundle_path_master(0).text)) return true;
    a->no_sums = true;
    scratch_close(s);
    return false;
}

/* --- payloads --- */

static omm_err decode_payload(float *values, omm_encoded *info, omm_buf *bytes, const audit *a,
                              const omm_digest *payload) {
    omm_bundle_path path = omm_bundle_path_payload(payload);
    const omm_run_record *run = &a->ev.run;
    bytes->bytes_max = omm_codec_sent_bytes_max(&run->codec_up, &run->layout);
    OMM_TRY(omm_bundle_file_read(bytes, a->ev.dir, path.text));
    return omm_codec_decode(values, info, &run->codec_up, &run->layout, omm_buf_view(bytes));
}

const char *audit_blob_differs(const omm_blob *is, const omm_blob *said) {
    if (!omm_digest_equal(&is->digest, &said->digest)) return "digest";
    if (is->size != said->size) return "size";
    if (is->chunk_count != said->chunk_count) return "chunk count";
    for (size_t i = 0; i < is->chunk_count; i++)
        if (!omm_digest_equal(&is->chunk_digests[i], &said->chunk_digests[i]))
            return "digest of a chunk";
    return NULL;
}

/* What it is that the submission says otherwise. */
static void report_blob(audit *a, const char *path, const omm_blob *is, size_t r, size_t i) {
    omm_arena arena;
    omm_buf text;
    omm_submission said;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    omm_buf_init(&text, OMM_ENVELOPE_BYTES_MAX);
    if (audit_open_submission(a, &said, &arena, &text, r, i)) {
        const char *what = audit_blob_differs(is, &said.payload);
        if (what) audit_fail(a, path, "is not the payload that was submitted: another %s", what);
    }
    omm_buf_fini(&text);
    omm_arena_fini(&arena);
}

/* The manifest of the submission describes the bytes. */
static void check_blob(audit *a, const char *path, size_t r, size_t i, omm_bytes sent) {
    omm_arena arena;
    omm_blob blob;
    const audit_submission *s = &a->submissions[r][i];
    if (s->envelope_bytes == 0) return; /* reported with the submission */
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    if (audit_expect(a,
                     omm_blob_describe(&blob, &arena, sent,
                                       &evidence_at_hand(&a->ev, r)->accepted[i].canonical),
                     path)) {
        omm_digest digest = audit_blob_digest(&blob);
        if (!omm_digest_equal(&digest, &s->blob)) report_blob(a, path, &blob, r, i);
    }
    omm_arena_fini(&arena);
}

static void check_payload(audit *a, scratch *s, size_t r, size_t i) {
    const omm_round_accepted *line = &evidence_at_hand(&a->ev, r)->accepted[i];
    omm_bundle_path path = omm_bundle_path_payload(&line->payload);
    omm_buf bytes;
    omm_encoded info;
    double norm = 0;
    omm_buf_init(&bytes, 0);
    audit_name(a, path.text);
    if (audit_expect(a, decode_payload(s->values, &info, &bytes, a, &line->payload), path.text)) {
        check_blob(a, path.text, r, i, omm_buf_view(&bytes));
        if (!omm_digest_equal(&info.sent_digest, &line->payload))
            audit_fail(a, path.text, "is not what its name says");
        if (!omm_digest_equal(&info.payload_digest, &line->canonical))
            audit_fail(a, path.text, "canonical digest is not what rounds.jsonl says");
        (void)audit_expect(a, omm_fedavg_check(&s->acc, s->values, a->pool), path.text);
        if (audit_expect(a, omm_norm_check(&norm, s->values, s->n, a->ev.run.norm_max),
                         path.text) &&
            norm != line->norm)
            audit_fail(a, path.text, "norm is %.9g, and rounds.jsonl says %.9g", norm, line->norm);
    }
    omm_buf_fini(&bytes);
}

void audit_payloads(audit *a) {
    scratch s;
    if (!scratch_open(&s, a)) return;
    for (size_t r = 0; r < a->ev.round_count && audit_round(a, r); r++)
        for (size_t i = 0; i < a->ev.heads[r].accepted_count; i++) check_payload(a, &s, r, i);
    scratch_close(&s);
}

/* --- aggregation --- */

/* Read state `number` of the master; its digest in `digest`. */
static bool read_master(audit *a, float *values, omm_digest *digest, size_t n, uint32_t number) {
    omm_bundle_path path = omm_bundle_path_master(number);
    omm_buf bytes;
    OMM_ASSERT(values != NULL);
    omm_buf_init(&bytes, 4 * n);
    bool ok = audit_read(a, &bytes, path.text);
    if (ok && bytes.size != 4 * n) {
        audit_fail(a, path.text, "%zu bytes, expected %zu", bytes.size, 4 * n);
        ok = false;
    }
    if (ok) {
        for (size_t i = 0; i < n; i++) values[i] = omm_get_f32(bytes.data + 4 * i);
        *digest = omm_hash(omm_buf_view(&bytes));
    }
    omm_buf_fini(&bytes);
    return ok;
}

/* s->mean = mean of the accepted payloads of round r. */
static omm_err sum_round(audit *a, scratch *s, size_t r) {
    const omm_round_record *round = evidence_at_hand(&a->ev, r);
    omm_buf bytes;
    omm_err err = OMM_OK;
    omm_fedavg_clear(&s->acc);
    for (size_t i = 0; err == OMM_OK && i < round->accepted_count; i++) {
        omm_buf_init(&bytes, 0);
        err = decode_payload(s->values, NULL, &bytes, a, &round->accepted[i].payload);
        if (err == OMM_OK)
            err = omm_fedavg_add(&s->acc, s->values, round->accepted[i].tokens, a->pool);
        omm_buf_fini(&bytes);
    }
    if (err == OMM_OK && s->acc.weight_sum != round->weight_sum)
        err =
            omm_raise(OMM_ERR_MISMATCH, "round %zu: weights sum to %llu, and the line says %llu", r,
                      (unsigned long long)s->acc.weight_sum, (unsigned long long)round->weight_sum);
    if (err == OMM_OK && !round->voided) err = omm_fedavg_mean(s->mean, &s->acc, a->pool);
    return err;
}

/* s->master becomes what the master after round r must be. */
static bool expect_master(audit *a, scratch *s, size_t r) {
    omm_digest ignored;
    if (a->ev.heads[r].has_begins &&
        !read_master(a, s->master, &ignored, s->n, a->ev.heads[r].begins))
        return false;
    if (!audit_expect(a, sum_round(a, s, r), "rounds.jsonl")) return false;
    if (!a->ev.heads[r].published) return true;
    return audit_expect(a, omm_server_step_plain(s->master, s->mean, s->n), "rounds.jsonl");
}

static void compare_master(audit *a, const scratch *s, const float *is, const omm_digest *digest,
                           size_t r) {
    omm_bundle_path path = omm_bundle_path_master((uint32_t)r + 1);
    if (!omm_digest_equal(digest, &a->ev.heads[r].master))
        audit_fail(a, path.text, "is not what rounds.jsonl names: another digest");
    for (size_t i = 0; i < s->n; i++)
        if (omm_f32_to_bits(is[i]) != omm_f32_to_bits(s->master[i])) {
            audit_fail(a, path.text,
                       "value %zu is %.9g, and the signed submissions of round %zu give %.9g", i,
                       omm_nan_plain((double)is[i]), r, omm_nan_plain((double)s->master[i]));
            return;
        }
}

static void check_master(audit *a, scratch *s, size_t r) {
    omm_digest digest;
    OMM_ASSERT(s->master && s->values);
    bool known = expect_master(a, s, r);
    a->items += s->n;
    /* s->values is free again: it takes the file. */
    if (!read_master(a, s->values, &digest, s->n, (uint32_t)r + 1)) return;
    if (known) compare_master(a, s, s->values, &digest, r);
    memcpy(s->master, s->values, s->n * sizeof *s->master); /* a fault stays in its round */
}

void audit_aggregation(audit *a) {
    scratch s;
    omm_digest first;
    if (!scratch_open(&s, a)) return;
    if (read_master(a, s.master, &first, s.n, 0))
        for (size_t r = 0; r < a->ev.round_count && audit_round(a, r); r++) check_master(a, &s, r);
    scratch_close(&s);
}

/* --- broadcast --- */

bool audit_broadcast_values(audit *a, float *values, omm_encoded *info, uint32_t number) {
    omm_bundle_path path = omm_bundle_path_adapter(number);
    const omm_run_record *run = &a->ev.run;
    omm_buf bytes;
    omm_buf_init(&bytes, omm_codec_sent_bytes_max(&run->codec_down, &run->layout));
    bool ok =
        audit_read(a, &bytes, path.text) &&
        audit_expect(
            a, omm_codec_decode(values, info, &run->codec_down, &run->layout, omm_buf_view(&bytes)),
            path.text);
    omm_buf_fini(&bytes);
    return ok;
}

/* The offer of round r names the values that `sent` holds, however they are packed. */
static void check_canonical(audit *a, size_t r, const omm_encoded *sent) {
    a->items++;
    if (a->offers[r].known &&
        !omm_digest_equal(&a->offers[r].global_canonical, &sent->payload_digest))
        audit_fail(a, omm_bundle_path_offer((uint32_t)r).text,
                   "global.canonical_digest is not that of the adapter it names");
}

/* State `number` is the encoding of its master; `previous`: digest as sent of the state
 * before it, or of the one that a rollback went back to. */
static void check_state(audit *a, scratch *s, uint32_t number, omm_digest *previous) {
    omm_bundle_path path = omm_bundle_path_adapter(number);
    const omm_run_record *run = &a->ev.run;
    omm_encoded sent;
    omm_encoded again;
    omm_digest ignored;
    omm_buf bytes;
    if (number > 0 && a->ev.heads[number - 1].has_begins) {
        if (!audit_broadcast_values(a, s->values, &sent, a->ev.heads[number - 1].begins)) return;
        *previous = sent.sent_digest;
        check_canonical(a, number - 1, &sent);
    }
    if (!audit_broadcast_values(a, s->values, &sent, number)) return;
    if (number < a->ev.round_count && !a->ev.heads[number].has_begins)
        check_canonical(a, number, &sent);
    if (number > 0) {
        const omm_round_record *round = &a->ev.heads[number - 1];
        if (!omm_digest_equal(&sent.sent_digest, &round->broadcast))
            audit_fail(a, path.text, "is not what rounds.jsonl names: another digest");
        if (!round->published && !omm_digest_equal(&sent.sent_digest, previous))
            audit_fail(a, path.text, "changed, though round %u was not published", number - 1);
    }
    *previous = sent.sent_digest;
    if (!read_master(a, s->master, &ignored, s->n, number)) return;
    omm_buf_init(&bytes, omm_codec_sent_bytes_max(&run->codec_down, &run->layout));
    /* The digest before zstd: its output may differ between versions. */
    if (audit_expect(a, omm_codec_encode(&bytes, &again, &run->codec_down, &run->layout, s->master),
                     path.text) &&
        !omm_digest_equal(&again.payload_digest, &sent.payload_digest))
        audit_fail(a, path.text, "is not the encoding of %s", omm_bundle_path_master(number).text);
    omm_buf_fini(&bytes);
}

void audit_broadcast(audit *a) {
    scratch s;
    omm_digest previous = {{0}};
    if (!scratch_open(&s, a)) return;
    for (uint32_t number = 0; number <= a->ev.round_count; number++)
        check_state(a, &s, number, &previous);
    scratch_close(&s);
}

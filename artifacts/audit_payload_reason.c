/* Refused for what a payload is: decided from the payload, which is in the bundle wherever it was there whole. */
#include "audit_reason.h"
#include "omm/fedavg.h"

#include <inttypes.h>
#include <string.h>

/* What there is to know of a payload. */
typedef struct payload {
    const char
        *differs;     /* the first of size and digests that the manifest has otherwise, or NULL */
    omm_err decoded;  /* OK, or why a coordinator does not take it */
    bool is_known;    /* all readers read it alike, so that `decoded` is what each of them finds */
    omm_encoded info; /* where it decodes, as are the following */
    omm_bounds bounds;
} payload;

static bool is_of_decoding(omm_err reason) {
    return reason == OMM_ERR_REFUSED_SIZE || reason == OMM_ERR_REFUSED_FORMAT ||
           reason == OMM_ERR_REFUSED_RECIPE || reason == OMM_ERR_REFUSED_SHAPE ||
           reason == OMM_ERR_REFUSED_VALUE;
}

/* Not packed, or in a frame of our own making, or one where there may be none.  Errors: NOMEM. */
static omm_err is_read_alike(bool *is_alike, const omm_codec *codec, const omm_layout *layout,
                             omm_bytes sent) {
    omm_buf inner, again;
    *is_alike = codec->zstd_level == 0 || sent.size == 0 || sent.data[0] != 1;
    if (*is_alike) return OMM_OK;
    omm_buf_init(&inner, omm_codec_payload_bytes_max(codec, layout));
    omm_buf_init(&again, OMM_BUNDLE_FILE_BYTES_MAX);
    omm_err err = omm_codec_unpack(&inner, sent, omm_codec_payload_bytes_max(codec, layout));
    if (err == OMM_OK) err = omm_codec_pack(&again, omm_buf_view(&inner), codec->zstd_level);
    *is_alike = err == OMM_OK && omm_bytes_equal(omm_buf_view(&again), sent);
    omm_buf_fini(&again);
    omm_buf_fini(&inner);
    return err == OMM_ERR_NOMEM ? err : OMM_OK;
}

/* As a coordinator does; what older ones took (other frames of zstd) is walked through too. */
static void decode(payload *p, const omm_run_record *run, omm_bytes sent, omm_err reason) {
    p->bounds = (omm_bounds){.value_max = run->value_max};
    p->decoded = omm_codec_walk_known(&p->info, &run->codec_up, &run->layout, sent,
                                      omm_bounds_piece, &p->bounds);
    p->is_known = p->decoded == OMM_OK;
    if (p->is_known || p->decoded == OMM_ERR_NOMEM) return;
    const omm_err err = is_read_alike(&p->is_known, &run->codec_up, &run->layout, sent);
    if (err != OMM_OK) p->decoded = err;
    if (err != OMM_OK || p->is_known || is_of_decoding(reason)) return;
    p->bounds = (omm_bounds){.value_max = run->value_max};
    p->decoded =
        omm_codec_walk(&p->info, &run->codec_up, &run->layout, sent, omm_bounds_piece, &p->bounds);
}

static void describe(payload *p, const omm_blob *said, omm_bytes sent) {
    omm_arena arena;
    omm_blob is;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    p->decoded = omm_blob_describe(&is, &arena, sent, &said->canonical);
    if (p->decoded == OMM_OK) p->differs = audit_blob_differs(&is, said);
    omm_arena_fini(&arena);
}

/* More bytes than any payload has are not read: their number is what is wrong with them. */
static omm_err read_payload(omm_buf *out, uint64_t *bytes, const audit *a, const char *path) {
    char full[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(full, a->ev.dir, path));
    OMM_TRY(omm_file_size(bytes, full));
    if (*bytes > out->bytes_max) return OMM_OK;
    return omm_bundle_file_read(out, a->ev.dir, path);
}

static omm_err look(payload *p, claim *c, const char *path) {
    const audit *a = c->all->a;
    const omm_run_record *run = &a->ev.run;
    omm_buf sent;
    uint64_t bytes = 0;
    memset(p, 0, sizeof *p);
    omm_buf_init(&sent, omm_codec_sent_bytes_max(&run->codec_up, &run->layout));
    const omm_err err = read_payload(&sent, &bytes, a, path);
    if (err == OMM_OK && bytes > sent.bytes_max) {
        p->differs = bytes == c->s.payload.size ? NULL : "size";
        p->decoded = OMM_ERR_REFUSED_SIZE;
        p->is_known = true;
    } else if (err == OMM_OK) {
        describe(p, &c->s.payload, omm_buf_view(&sent));
        if (p->decoded == OMM_OK) decode(p, run, omm_buf_view(&sent), c->reason);
    }
    omm_buf_fini(&sent);
    return err;
}

/* --- what follows --- */

static const char *undecodable_contradicts(claim *c, const payload *p) {
    if (c->reason == p->decoded || (is_of_decoding(c->reason) && !p->is_known)) return NULL;
    return claim_say(c, "its payload does not decode, which is %s", omm_err_name(p->decoded));
}

static const char *decoded_contradicts(claim *c, const payload *p) {
    const omm_run_record *run = &c->all->a->ev.run;
    double norm = 0;
    switch (c->reason) {
    case OMM_ERR_REFUSED_DIGEST:
        if (!omm_digest_equal(&p->info.payload_digest, &c->s.payload.canonical)) return NULL;
        return "size and digests are those of its payload";
    case OMM_ERR_REFUSED_RANGE:
        if (p->bounds.is_over) return NULL;
        return claim_say(c, "no value is over %.9g", run->value_max);
    case OMM_ERR_REFUSED_NORM:
        if (omm_norm_end(&norm, &p->bounds.norm, run->norm_max) != OMM_OK) return NULL;
        return claim_say(c, "its norm is %.9g, of %.9g that is allowed", norm, run->norm_max);
    default: return "its payload decodes";
    }
}

static const char *there_contradicts(claim *c, const char *path) {
    payload p;
    const omm_err err = look(&p, c, path);
    if (err != OMM_OK || p.decoded == OMM_ERR_NOMEM) {
        (void)audit_expect(c->all->a, err != OMM_OK ? err : p.decoded, path);
        return NULL;
    }
    /* The chunks are not there that made another payload, or none, of what the manifest has. */
    if (p.differs && c->reason == OMM_ERR_REFUSED_DIGEST) return NULL;
    if (p.differs && c->reason == OMM_ERR_REFUSED_SIZE && strcmp(p.differs, "size") == 0)
        return NULL;
    if (p.decoded == OMM_ERR_CONFIG) return NULL; /* reported with run.json */
    return p.decoded == OMM_OK ? decoded_contradicts(c, &p) : undecodable_contradicts(c, &p);
}

/* A payload that a verdict was given of is there; chunks that are none are nowhere. */
static const char *absent_contradicts(const claim *c) {
    const omm_blob *said = &c->s.payload;
    switch (c->reason) {
    case OMM_ERR_REFUSED_SIZE: return NULL;
    case OMM_ERR_REFUSED_DIGEST:
        if (said->chunk_count != 1 || !omm_digest_equal(&said->chunk_digests[0], &said->digest))
            return NULL;
        break;
    default: break;
    }
    return "its manifest is right, and its payload is missing";
}

const char *payload_contradicts(claim *c) {
    omm_bundle_path path = omm_bundle_path_payload(&c->s.payload.digest);
    char full[OMM_PATH_MAX];
    if (omm_path_join(full, c->all->a->ev.dir, path.text) != OMM_OK) return NULL;
    return omm_file_exists(full) ? there_contradicts(c, path.text) : absent_contradicts(c);
}

/* state.c - owns the state that a round begins from: its values are a file of the bundle, and what nodes get of them is
 * in memory while nodes may ask for it.
 *
 *   values (f32)  adapters/master-rNNN.f32; read where they are used, and freed
 *   sent          as nodes get them; given back before a sum, made again from the values when it is asked for
 *
 * So a sum has the memory of three adapters for itself: two of 64-bit sums, one of what comes out.
 */
#include "internal.h"

#include "omm/mem.h"

static omm_err take_vector(float **out, const omm_coord *c) {
    *out = omm_alloc_aligned(c->value_count, sizeof **out);
    return *out ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "%zu values", c->value_count);
}

omm_err coord_state_initial(float **values, const omm_coord *c) {
    OMM_TRY(take_vector(values, c));
    const omm_err err = c->o.initial.read(c->o.initial.ud, *values);
    if (err == OMM_OK) return OMM_OK;
    omm_free(*values);
    *values = NULL;
    return err;
}

omm_err coord_state_load(float **values, const omm_coord *c) {
    OMM_TRY(take_vector(values, c));
    const omm_err err = coord_evidence_load_master(*values, c, c->begins);
    if (err == OMM_OK) return OMM_OK;
    omm_free(*values);
    *values = NULL;
    return err;
}

omm_err coord_broadcast_make(omm_buf *sent, omm_digest *canonical, const omm_coord *c,
                             const float *values) {
    omm_encoded info;
    omm_buf_clear(sent);
    OMM_TRY(omm_codec_encode(sent, &info, &c->o.run->codec_down, c->layout, values));
    *canonical = info.payload_digest;
    return OMM_OK;
}

static omm_err read_sent(void *ud, float *values) {
    const coord_sent *s = ud;
    return omm_codec_decode(values, NULL, &s->c->o.run->codec_down, s->c->layout, s->bytes);
}

omm_coord_values coord_sent_values(coord_sent *sent) {
    return (omm_coord_values){read_sent, sent};
}

/* ---- what nodes get --------------------------------------------------------------------------- */

omm_err coord_global_describe(coord_global *out, omm_bytes sent, const omm_digest *canonical) {
    omm_arena_init(&out->arena, OMM_MESSAGE_ARENA_BYTES);
    const omm_err err = omm_blob_describe(&out->blob, &out->arena, sent, canonical);
    if (err != OMM_OK) omm_arena_fini(&out->arena);
    return err;
}

void coord_global_take(omm_coord *c, const coord_global *global) {
    omm_arena_fini(&c->sent_arena);
    c->sent_arena = global->arena;
    c->global = global->blob;
}

static omm_err make_again(omm_coord *c, const float *values) {
    omm_digest canonical;
    OMM_TRY(coord_broadcast_make(&c->sent, &canonical, c, values));
    const omm_digest digest = omm_hash(omm_buf_view(&c->sent));
    if (omm_digest_equal(&digest, &c->global.digest)) return OMM_OK;
    coord_state_drop(c);
    return omm_raise(OMM_ERR_DIGEST, "%s does not give what the nodes of round %u were offered",
                     omm_bundle_path_master(c->begins).text, c->round);
}

omm_err coord_state_hold(omm_coord *c) {
    float *values = NULL;
    if (c->sent.size > 0) return OMM_OK;
    OMM_TRY(coord_state_load(&values, c));
    const omm_err err = make_again(c, values);
    omm_free(values);
    return err;
}

void coord_state_drop(omm_coord *c) {
    omm_buf_fini(&c->sent);
}

/* ---- the state itself ------------------------------------------------------------------------- */

/* put: into the bundle, or compared with what is there. */
static omm_err begin(omm_coord *c, uint32_t number, const float *values, bool put) {
    omm_digest canonical, digest;
    omm_buf sent;
    coord_global global;
    omm_buf_init(&sent, c->sent.bytes_max);
    omm_err err = coord_broadcast_make(&sent, &canonical, c, values);
    if (err == OMM_OK && put)
        err = coord_evidence_master(c, number, values, omm_buf_view(&sent), &digest);
    if (err == OMM_OK) err = coord_global_describe(&global, omm_buf_view(&sent), &canonical);
    if (err != OMM_OK) {
        omm_buf_fini(&sent);
        return err;
    }
    coord_state_drop(c);
    c->sent = sent;
    c->begins = number;
    coord_global_take(c, &global);
    return OMM_OK;
}

/* Is the file still what it was?  A run that goes on from another one is evidence of nothing. */
static omm_err check_file(omm_coord *c, uint32_t number) {
    char path[OMM_PATH_MAX];
    omm_digest have, want;
    if (number == 0) return OMM_OK; /* it is made again, and compared */
    OMM_TRY(coord_store_master(&want, c, number));
    OMM_TRY(omm_path_join(path, omm_bundle_dir(c->o.bundle), omm_bundle_path_master(number).text));
    OMM_TRY(omm_hash_file(&have, path));
    if (omm_digest_equal(&have, &want)) return OMM_OK;
    return omm_raise(OMM_ERR_DIGEST,
                     "%s is not as round %u wrote it; put the file back from a copy, and look at "
                     "the disk",
                     path, number - 1);
}

omm_err coord_state_begin(omm_coord *c, uint32_t number) {
    float *values = NULL;
    OMM_TRY(check_file(c, number));
    OMM_TRY(take_vector(&values, c));
    omm_err err = coord_evidence_load_master(values, c, number);
    if (err == OMM_OK) err = begin(c, number, values, false);
    omm_free(values);
    return err;
}

omm_err coord_state_begin_first(omm_coord *c) {
    float *values = NULL;
    OMM_TRY(coord_state_initial(&values, c));
    const omm_err err = begin(c, 0, values, true);
    omm_free(values);
    return err;
}

/* check.c - owns the limits of the signed payloads; encoders and decoders both come through here. */
#include "check.h"

#include "internal.h"

#include <math.h>
#include <string.h>

omm_err check_float(float value, float min, const char *field) {
    if (isfinite(value) && value >= min) return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_VALUE, "%s is %g, it must be finite and at least %g", field,
                     omm_nan_plain((double)value), (double)min);
}

static omm_err check_number(uint64_t value, uint64_t min, uint64_t max, const char *field) {
    if (value >= min && value <= max) return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_SIZE, "%s is %llu, allowed are %llu to %llu", field,
                     (unsigned long long)value, (unsigned long long)min, (unsigned long long)max);
}

omm_err check_run_id(const char *run_id, bool may_be_empty) {
    size_t n = strnlen(run_id, OMM_RUN_ID_SIZE);
    if (n == 0 && may_be_empty) return OMM_OK;
    if (n == OMM_RUN_ID_SIZE - 1 && strspn(run_id, "0123456789abcdef") == n) return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_FORMAT, "run_id is not %u lower-case hex digits",
                     OMM_RUN_ID_SIZE - 1);
}

omm_err check_blob(const omm_blob *blob, const char *field) {
    OMM_TRY(check_number(blob->size, 1, (uint64_t)OMM_BLOB_CHUNKS_MAX * OMM_CHUNK_BYTES, field));
    if (blob->chunk_count == omm_chunk_count(blob->size)) return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_FORMAT, "%s of %llu bytes has %zu chunk digests, not %llu",
                     field, (unsigned long long)blob->size, blob->chunk_count,
                     (unsigned long long)omm_chunk_count(blob->size));
}

static omm_err check_adapter(const omm_adapter_spec *adapter) {
    OMM_TRY(check_number(adapter->rank, 1, UINT32_MAX, "adapter.rank"));
    OMM_TRY(check_float(adapter->alpha, 0, "adapter.alpha"));
    return check_number(adapter->value_count, 1, UINT32_MAX, "adapter.value_count");
}

static omm_err check_selected(const omm_offer *offer) {
    OMM_TRY(proto_check_size(offer->selected_count, 1, OMM_SELECTED_MAX, "selected"));
    for (size_t i = 1; i < offer->selected_count; i++) {
        if (omm_digest_compare(&offer->selected[i - 1], &offer->selected[i]) < 0) continue;
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "selected[%zu] is not above the one before", i);
    }
    return OMM_OK;
}

/* It is for one node, and has one spelling. */
static omm_err check_canary(const omm_offer *offer) {
    if (!offer->is_canary) return OMM_OK;
    OMM_TRY(check_number(offer->canary.size, 1, OMM_CANARY_BYTES_MAX, "canary"));
    OMM_TRY(check_blob(&offer->canary, "canary"));
    OMM_TRY(proto_check_size(offer->selected_count, 1, 1, "selected"));
    if (omm_digest_equal(&offer->canary.digest, &offer->canary.canonical)) return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_FORMAT, "canary.canonical_digest: not its digest");
}

omm_err check_offer(const omm_offer *offer) {
    OMM_TRY(check_run_id(offer->run_id, false));
    OMM_TRY(check_number(offer->rounds, 1, UINT32_MAX, "rounds"));
    OMM_TRY(check_number(offer->round, 0, offer->rounds - 1, "round"));
    OMM_TRY(check_adapter(&offer->adapter));
    OMM_TRY(proto_check_size(offer->recipe.size, 1, OMM_RECIPE_FIELD_MAX, "recipe"));
    OMM_TRY(proto_check_size(offer->codec_up.size, 1, OMM_CODEC_FIELD_MAX, "codec_up"));
    OMM_TRY(proto_check_size(offer->codec_down.size, 1, OMM_CODEC_FIELD_MAX, "codec_down"));
    OMM_TRY(check_float(offer->value_max, 0, "value_max"));
    OMM_TRY(check_number(offer->weight_sum_max, 1, UINT64_MAX, "weight_sum_max"));
    OMM_TRY(check_float(offer->norm_max, 0, "norm_max"));
    OMM_TRY(check_blob(&offer->global, "global"));
    OMM_TRY(check_canary(offer));
    return check_selected(offer);
}

omm_err check_submission(const omm_submission *s) {
    OMM_TRY(check_run_id(s->run_id, false));
    OMM_TRY(check_float(s->loss_before, 0, "loss_before"));
    OMM_TRY(check_float(s->loss_after, 0, "loss_after"));
    OMM_TRY(proto_check_size(s->codec.size, 1, OMM_CODEC_FIELD_MAX, "codec"));
    OMM_TRY(check_blob(&s->payload, "payload"));
    OMM_TRY(proto_check_size(s->step_digests.size, 0, OMM_STEP_DIGESTS_MAX, "step_digests"));
    if (s->step_digests.size % 8 == 0) return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_FORMAT, "step_digests has %zu bytes, not 8 per step",
                     s->step_digests.size);
}

omm_err check_receipt(const omm_receipt *receipt) {
    OMM_TRY(check_run_id(receipt->run_id, false));
    if (receipt->accepted == (receipt->reason == OMM_OK)) return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_FORMAT, "receipt says accepted=%d with reason %s",
                     receipt->accepted, omm_err_name(receipt->reason));
}

/* Bytes that travelled, counted in both directions with all overhead. */
#include "internal.h"

#include <math.h>

void omm_gate_traffic_add(omm_gate_traffic *t, const omm_gate_bytes *row) {
    t->rows++;
    if (row->up > t->up_max) t->up_max = row->up;
    if (row->down > t->down_max) t->down_max = row->down;
    t->overflowed = t->overflowed || !sum_u64(&t->wire, row->up) || !sum_u64(&t->wire, row->down) ||
                    !sum_u64(&t->fp32, row->fp32);
}

static double saving(const omm_gate_traffic *t) {
    if (t->overflowed || t->fp32 == 0) return (double)NAN;
    return 1.0 - (double)t->wire / (double)t->fp32;
}

omm_err omm_gate_communication(omm_verdicts *verdicts, const omm_gate_context *context,
                               const omm_gate_source *source, const omm_gate_traffic *t) {
    OMM_TRY(omm_gate_judge(verdicts, context, source, OMM_METRIC_UP_BYTES_MAX,
                           metric_of(OMM_METRIC_UP_BYTES_MAX, (double)t->up_max, t->rows)));
    OMM_TRY(omm_gate_judge(verdicts, context, source, OMM_METRIC_DOWN_BYTES_MAX,
                           metric_of(OMM_METRIC_DOWN_BYTES_MAX, (double)t->down_max, t->rows)));
    return omm_gate_judge(verdicts, context, source, OMM_METRIC_SAVING_VS_FP32,
                          metric_of(OMM_METRIC_SAVING_VS_FP32, saving(t), t->rows));
}

omm_err omm_gate_wire(omm_verdicts *verdicts, const omm_gate_context *context,
                      const omm_gate_source *source, const omm_gate_bytes *rows, size_t count,
                      uint64_t ledger) {
    omm_gate_traffic t = {0};
    for (size_t i = 0; i < count; i++) omm_gate_traffic_add(&t, &rows[i]);
    /* fewer bytes than the faultless exchange needs were not counted where they passed */
    const bool is_counted = !t.overflowed && t.wire >= ledger;
    const double overhead =
        is_counted && ledger > 0 ? (double)t.wire / (double)ledger - 1.0 : (double)NAN;
    OMM_TRY(omm_gate_judge(
        verdicts, context, source, OMM_METRIC_WIRE_SAVING,
        metric_of(OMM_METRIC_WIRE_SAVING, is_counted ? saving(&t) : (double)NAN, count)));
    return omm_gate_judge(verdicts, context, source, OMM_METRIC_WIRE_OVERHEAD,
                          metric_of(OMM_METRIC_WIRE_OVERHEAD, overhead, count));
}

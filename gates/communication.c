/* Bytes that travelled, counted in both directions with all overhead. */
#include "internal.h"

#include <math.h>

typedef struct totals {
    uint64_t up_max, down_max; /* of one row */
    uint64_t wire, fp32;       /* of all rows; wire = up + down */
    bool valid;                /* no sum overflowed */
} totals;

static totals add_up(const omm_gate_bytes *rows, size_t count) {
    totals t = {.valid = true};
    for (size_t i = 0; i < count; i++) {
        if (rows[i].up > t.up_max) t.up_max = rows[i].up;
        if (rows[i].down > t.down_max) t.down_max = rows[i].down;
        t.valid = t.valid && sum_u64(&t.wire, rows[i].up) && sum_u64(&t.wire, rows[i].down) &&
                  sum_u64(&t.fp32, rows[i].fp32);
    }
    return t;
}

static double saving(const totals *t) {
    if (!t->valid || t->fp32 == 0) return (double)NAN;
    return 1.0 - (double)t->wire / (double)t->fp32;
}

omm_err omm_gate_communication(omm_verdicts *verdicts, const omm_gate_context *context,
                               const omm_gate_source *source, const omm_gate_bytes *rows,
                               size_t count) {
    totals t = add_up(rows, count);
    OMM_TRY(omm_gate_judge(verdicts, context, source, OMM_METRIC_UP_BYTES_MAX,
                           metric_of(OMM_METRIC_UP_BYTES_MAX, (double)t.up_max, count)));
    OMM_TRY(omm_gate_judge(verdicts, context, source, OMM_METRIC_DOWN_BYTES_MAX,
                           metric_of(OMM_METRIC_DOWN_BYTES_MAX, (double)t.down_max, count)));
    return omm_gate_judge(verdicts, context, source, OMM_METRIC_SAVING_VS_FP32,
                          metric_of(OMM_METRIC_SAVING_VS_FP32, saving(&t), count));
}

omm_err omm_gate_wire(omm_verdicts *verdicts, const omm_gate_context *context,
                      const omm_gate_source *source, const omm_gate_bytes *rows, size_t count,
                      uint64_t ledger) {
    totals t = add_up(rows, count);
    double overhead = (double)NAN;
    /* fewer bytes than the faultless exchange needs were not counted where they passed */
    if (t.valid && ledger > 0 && t.wire >= ledger) overhead = (double)t.wire / (double)ledger - 1.0;
    OMM_TRY(omm_gate_judge(verdicts, context, source, OMM_METRIC_WIRE_SAVING,
                           metric_of(OMM_METRIC_WIRE_SAVING, saving(&t), count)));
    return omm_gate_judge(verdicts, context, source, OMM_METRIC_WIRE_OVERHEAD,
                          metric_of(OMM_METRIC_WIRE_OVERHEAD, overhead, count));
}

/* Does training again give the same bytes?  No repetition proves nothing, and fails. */
#include "internal.h"

static omm_metric mismatches(omm_metric_id id, const omm_gate_repeat *rows, size_t count,
                             omm_gate_repeat_kind kind) {
    uint64_t repetitions = 0;
    uint64_t different = 0;
    for (size_t i = 0; i < count; i++) {
        if (rows[i].kind != kind) continue;
        repetitions++;
        different += !rows[i].equal;
    }
    return metric_of(id, (double)different, repetitions);
}

omm_err omm_gate_reproducibility(omm_verdicts *verdicts, const omm_gate_context *context,
                                 const omm_gate_source *source, const omm_gate_repeat *rows,
                                 size_t count) {
    static const struct {
        omm_metric_id id;
        omm_gate_repeat_kind kind;
    } kinds[] = {
        {OMM_METRIC_REPEAT_THREADS, OMM_GATE_REPEAT_THREADS},
        {OMM_METRIC_REPEAT_ISA, OMM_GATE_REPEAT_ISA},
        {OMM_METRIC_REPEAT_SCALAR, OMM_GATE_REPEAT_SCALAR},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        OMM_TRY(omm_gate_judge(verdicts, context, source, kinds[i].id,
                               mismatches(kinds[i].id, rows, count, kinds[i].kind)));
    return OMM_OK;
}

/* Nothing unsigned was accepted, and the chain of evidence holds. */
#include "internal.h"

omm_err omm_gate_integrity(omm_verdicts *verdicts, const omm_gate_context *context,
                           const omm_gate_source *source, const omm_gate_integrity_counts *counts) {
    OMM_TRY(omm_gate_judge(verdicts, context, source, OMM_METRIC_UNSIGNED_ACCEPTED,
                           metric_of(OMM_METRIC_UNSIGNED_ACCEPTED,
                                     (double)counts->unsigned_accepted, counts->accepted)));
    return omm_gate_judge(
        verdicts, context, source, OMM_METRIC_EVIDENCE_FAULTS,
        metric_of(OMM_METRIC_EVIDENCE_FAULTS, (double)counts->faults, counts->checks));
}

/* check.h - the limits of the signed payloads, shared by their encoders and decoders.
 *
 * All return REFUSED_SIZE (a number or length out of range), REFUSED_FORMAT, or REFUSED_VALUE (a
 * float that is not finite, or below its minimum), and name the field, the value and the limit.
 *
 * Depends on: messages.h.  Threads: no shared state.
 */
#ifndef OMM_PROTO_CHECK_H
#define OMM_PROTO_CHECK_H

#include "omm/messages.h"

OMM_CHECKED omm_err check_float(float value, float min, const char *field);
OMM_CHECKED omm_err check_run_id(const char *run_id, bool may_be_empty);
OMM_CHECKED omm_err check_blob(const omm_blob *blob, const char *field);
OMM_CHECKED omm_err check_offer(const omm_offer *offer);
OMM_CHECKED omm_err check_submission(const omm_submission *submission);
OMM_CHECKED omm_err check_receipt(const omm_receipt *receipt);

#endif

/* enrolment.h - how a node that is on no list asks to be let in.
 *
 *   operator   meshmind coordinator ctl invite     -> a token, shown once; kept is its id alone
 *   node       Request{enrol: Envelope(Enrol)}     signed by the node's key; in it the token's proof
 *   coordinator                                    -> Reply{wait}: poll now; Reply{refused}: why not
 *
 * A token is the seed of an Ed25519 key, its id the digest of the public half.  What travels is the
 * public half and its signature over (coordinator's key, node's key): whoever listens can let in the node
 * that asked, and no other; and whoever reads the coordinator's disk can let in nobody.
 *
 *   signature = Ed25519(token; "omm.invitation.v1", padded to 32 || coordinator's key || node's key)
 *
 * Depends on: base, envelope.h, messages.h.  Threads: no shared state.
 */
#ifndef OMM_ENROLMENT_H
#define OMM_ENROLMENT_H

#include "omm/messages.h"
#include "omm/sign.h"

typedef struct omm_enrol {
    omm_public_key coordinator; /* whom it is for */
    bool has_invitation;
    omm_public_key invitation;
    omm_signature invitation_signature;
} omm_enrol;

/* As the encoders and decoders of omm/messages.h. */
OMM_CHECKED omm_err omm_enrol_encode(omm_buf *out, const omm_enrol *enrol);
OMM_CHECKED omm_err omm_enrol_decode(omm_enrol *out, omm_bytes in, omm_arena *arena);

/* ---- invitations ---- */

#define OMM_INVITATION_TEXT_SIZE 72u /* "invite-", 64 lower-case hex digits, NUL */

/* A token as people pass it on.  Secret: wipe both. */
void omm_invitation_text(char out[OMM_INVITATION_TEXT_SIZE], const omm_seed *token);
/* Blanks and line ends around it are skipped.  Errors: FORMAT (says what is accepted, never what it got). */
OMM_CHECKED omm_err omm_invitation_parse(omm_seed *out, const char *text);
/* Name of the invitation in lists and in the coordinator's database. */
omm_digest omm_invitation_id(const omm_seed *token);

/* Put the token's proof for this node into `enrol`, whose coordinator is set. */
void omm_invitation_use(omm_enrol *enrol, const omm_seed *token, const omm_public_key *node);
/* Errors: REFUSED_SIGNATURE (not the invitation's, or for another node or coordinator). */
OMM_CHECKED omm_err omm_invitation_check(const omm_enrol *enrol, const omm_public_key *node);

#endif

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
 * Without a token, where the coordinator's door is open, the node works:
 *
 *   node   Request{enrol: Enrol without proof}  ->  Reply{challenge: Envelope(Challenge)}
 *          finds a number `work` with which H("omm.work.v1", padded to 32 || H(Challenge) || node's key ||
 *          work u64) begins with `bits` zero bits, highest bit of each byte first
 *          Request{enrol: Enrol with both}      ->  Reply{wait | refused}
 *
 * One challenge serves everybody for some minutes and no node is in it: asking costs the coordinator neither
 * memory nor a signature, checking a claim one hash.  The work is bound to the node by its key.
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
    bool has_work;
    omm_digest challenge; /* BLAKE2b-256 of the Challenge, its payload alone */
    uint64_t work;        /* 0 without has_work */
} omm_enrol;

#define OMM_WORK_BITS_MAX 26u /* a node does no more: minutes of one processor */

typedef struct omm_challenge {
    char run_id[OMM_RUN_ID_SIZE];
    omm_digest seed; /* random */
    uint32_t bits;   /* 1 .. OMM_WORK_BITS_MAX */
} omm_challenge;

/* As the encoders and decoders of omm/messages.h. */
OMM_CHECKED omm_err omm_enrol_encode(omm_buf *out, const omm_enrol *enrol);
OMM_CHECKED omm_err omm_enrol_decode(omm_enrol *out, omm_bytes in, omm_arena *arena);

OMM_CHECKED omm_err omm_challenge_encode(omm_buf *out, const omm_challenge *challenge);
OMM_CHECKED omm_err omm_challenge_decode(omm_challenge *out, omm_bytes in, omm_arena *arena);

/* ---- work ---- */

/* Leading zero bits of what `work` gives for this challenge and node. */
uint32_t omm_work_bits(const omm_digest *challenge, const omm_public_key *node, uint64_t work);
/* Try from .. from + count - 1; *found with the first that has `bits`.  2^bits tries on average. */
bool omm_work_search(uint64_t *found, const omm_digest *challenge, const omm_public_key *node,
                     uint32_t bits, uint64_t from, uint64_t count);

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

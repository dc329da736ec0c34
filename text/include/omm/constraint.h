/* constraint.h - drawing only tokens with which a text is, or can still become, what a grammar describes.
 *
 *   grammar (grammar.h) + lexicon (of a tokenizer) --> constraint of one text
 *   constraint --> allowed: bits [vocab] --sample--> id --take--> constraint
 *
 * Which tokens are allowed depends on the grammar, the tokenizer and the text so far, and on nothing else: a text that is
 * proposed and checked, or drawn beside others, is the same one.  Tokens that end a text are allowed exactly where it is
 * whole; control tokens never.  A token may end inside a character; the next one has to go on with it.
 *
 * Cost.  A lexicon has the tokens as a tree of their bytes, and once and for all those that a string takes wherever it
 * stands (whole characters, no quote, no backslash), with how many characters each has.  Inside a string these are taken at
 * once, as many as its length has room for, and the few others are walked; elsewhere few bytes may follow, so a walk of the whole tree ends soon.  Nothing is kept for each state.
 *
 * Depends on: grammar, tokenizer.  Threads: a lexicon is read-only after open and may be shared; a
 * constraint belongs to one thread at a time.
 */
#ifndef OMM_CONSTRAINT_H
#define OMM_CONSTRAINT_H

#include "omm/grammar.h"
#include "omm/tokenizer.h"

typedef struct omm_lexicon omm_lexicon;

/* Tokens of up to 128 bytes, longer ones inside strings alone.  vocab: of the model; ids that the tokenizer has not are never allowed.
 * Copies what it needs.  Errors: NOMEM, UNSUPPORTED (no token ends a text). */
OMM_CHECKED omm_err omm_lexicon_open(omm_lexicon **out, const omm_tokenizer *tokenizer,
                                     uint32_t vocab);
void omm_lexicon_close(omm_lexicon *lexicon); /* NULL is fine */

typedef struct omm_constraint omm_constraint;

/* A text that has not begun; both borrowed until close.  Errors: NOMEM. */
OMM_CHECKED omm_err omm_constraint_open(omm_constraint **out, const omm_grammar *grammar,
                                        const omm_lexicon *lexicon);
void omm_constraint_close(omm_constraint *constraint);           /* NULL is fine */
uint32_t omm_constraint_vocab(const omm_constraint *constraint); /* of the lexicon */
void omm_constraint_restart(omm_constraint *constraint);         /* the text has not begun again */
/* Stand where another of the same grammar and lexicon stands: to go on from there and back again. */
void omm_constraint_copy(omm_constraint *to, const omm_constraint *from);
/* Another one that stands there.  Errors: NOMEM. */
OMM_CHECKED omm_err omm_constraint_clone(omm_constraint **out, const omm_constraint *from);

/* Bit id % 32 of word id / 32: whether the id may come next; borrowed until the next take, copy or restart. */
const uint32_t *omm_constraint_allowed(omm_constraint *constraint);
/* The same for one id, by its bytes alone: the definition of the above. */
bool omm_constraint_permits(omm_constraint *constraint, uint32_t id);
/* `id`, which has to be allowed, has come. */
void omm_constraint_take(omm_constraint *constraint, uint32_t id);
/* A token that ends a text has come: none is allowed any more. */
bool omm_constraint_has_ended(const omm_constraint *constraint);

#endif

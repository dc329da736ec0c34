/* declined.h - why a node gives nothing to a round that it was offered, as a number in its Poll.
 *
 * The owner of a node reads why in words; the operator of the coordinator, who waits for it, reads it here.  A number
 * of a short list and never words: what a node tells of its machine is bounded, and known beforehand.  Numbers that are
 * not in the list, from newer nodes, are OTHER.
 *
 * Depends on: nothing.  Threads: no shared state.
 */
#ifndef OMM_DECLINED_H
#define OMM_DECLINED_H

#include <stdint.h>

/* Number on the wire (omm_messages.proto), name, word for lists and scripts, what it means. */
#define OMM_DECLINED_MAP(XX)                                                                       \
    XX(1, BASE, "base", "its model or tokenizer is another one")                                   \
    XX(2, RECIPE, "recipe", "its program does not train so; it may be an older one")               \
    XX(3, ADAPTER, "adapter", "the adapter is larger than its owner allows")                       \
    XX(4, WORK, "work", "more steps or tokens than its owner allows")                              \
    XX(5, MEMORY, "memory", "more memory than it has, or than its owner allows")                   \
    XX(6, TRAFFIC, "traffic", "more to be sent or fetched than its owner allows")                  \
    XX(7, ROUND, "round", "it gave to this round before, or is for another run")                   \
    XX(8, OFFER, "offer", "it cannot read the offer, or has pinned another key")                   \
    XX(9, FILES, "files", "its model or data are not what they were; it must be started again")    \
    XX(10, TRANSFER, "transfer", "the adapter did not reach it, or its work got no verdict")       \
    XX(11, TRAINING, "training", "its training failed; it tries again")                            \
    XX(12, PAUSED, "paused", "its owner's machine was needed; it goes on by itself")               \
    XX(13, DRY, "dry", "a dry run: its owner looks first, and the round need not wait for it")

typedef enum omm_declined {
    OMM_DECLINED_NOTHING = 0, /* it says nothing */
#define XX(number, name, word, means) OMM_DECLINED_##name = (number),
    OMM_DECLINED_MAP(XX)
#undef XX
        OMM_DECLINED_OTHER, /* of what was read: none of these; never sent by us */
} omm_declined;

#define OMM_DECLINED_MAX 255u      /* on the wire */
#define OMM_DECLINED_TEXT_SIZE 96u /* of the longest text, and more */

/* What was read, by the list. */
omm_declined omm_declined_kind(uint32_t declined);
/* "base", "other"; "" for NOTHING. */
const char *omm_declined_word(omm_declined kind);
/* "base: its model or tokenizer is another one", "other (77)"; "" for NOTHING. */
void omm_declined_text(char out[OMM_DECLINED_TEXT_SIZE], uint32_t declined);

#endif

/* assistant_internal.h - private to node: what the files of the assistant share.
 *
 * Depends on: assistant, tools, transcript.  Threads: none of its own.
 */
#ifndef OMM_NODE_ASSISTANT_INTERNAL_H
#define OMM_NODE_ASSISTANT_INTERNAL_H

#include "omm/assistant.h"
#include "tools.h"
#include "transcript.h"

#include "omm/thinking.h"

enum { NOTICE_BYTES_MAX = 4096 };

enum {
    HEAD_MAX = 2
}; /* turns in front of a conversation: the system's, and one that announces tools */

struct omm_assistant {
    omm_assistant_options options;
    tool_set tools;
    transcript turns;
    size_t head; /* of them, those in front */
    /* of the exchange in progress */
    omm_buf answer;       /* the speaker's turn, as written */
    omm_thought thought;  /* in front of what it says */
    size_t thought_shown; /* bytes of the answer: `each` has got the thought up to here */
    size_t shown;         /* bytes of the answer that `each` has got of what is said */
    bool in_call;         /* a call has begun: nothing after it is shown */
    bool has_saved;       /* a note was saved */
    bool has_result;      /* a tool has said something that an answer can rest on */
    uint32_t calls;
    tool_result result;
    tool_source sources[TOOL_SOURCES_MAX]; /* of the last search that found something */
    size_t source_count;
};

/* ---- assistant.c ---- */
OMM_CHECKED omm_err assistant_tell(omm_assistant *a, omm_assistant_event event);
omm_calls_form assistant_calls(const omm_assistant *a); /* as its model writes them */
/* The program itself says something. */
OMM_CHECKED __attribute__((format(printf, 2, 3))) omm_err assistant_notice(omm_assistant *a,
                                                                           const char *fmt, ...);
/* When the context is full, drop old exchanges until much of it is free: then this happens seldom.
 * *fit is false when the last exchange alone is too long. */
OMM_CHECKED omm_err assistant_make_room(bool *fit, omm_assistant *a);

/* ---- assistant_calls.c ---- */
/* The calls of one turn, as many as calls_max leaves; *done when the exchange is over. */
OMM_CHECKED omm_err assistant_do_calls(bool *done, omm_assistant *a, const omm_chat_reply *reply);
/* A call that cannot be read, or asks for what there is not, is answered with what is wrong; of a note that the user dictated
 * the user's own words are saved. */
OMM_CHECKED omm_err assistant_do_bad_call(bool *done, omm_assistant *a, const char *name);
/* The user's last words and their value, if they are nothing but an expression; else *sum is empty. */
OMM_CHECKED omm_err assistant_find_sum(omm_bytes *sum, omm_buf *value, const omm_assistant *a);

#endif

/* chat_view.h - what `meshmind chat` shows: events as text for people, or as JSON Lines.
 *
 *   text    the answer as it is written, a thought in front of it between [thinks] and [answers]; everything from the
 *           program itself in [brackets], a line each
 *   JSON    {"event": "text", "text": "..."} and so on, one object a line
 *
 * Text from the model, notes and documents is cleaned of control characters before a terminal sees it.
 */
#ifndef CLI_CHAT_VIEW_H
#define CLI_CHAT_VIEW_H

#include "omm/assistant.h"
#include "omm/speaker.h"

#include <stdbool.h>

typedef struct chat_view {
    bool json;
    bool stats;       /* say at the end of an answer what was computed for it */
    bool lookup;      /* and how much of it had been proposed */
    bool mid_line;    /* the last character shown was no line feed */
    bool thinking;    /* the last text shown was of a thought */
    omm_buf argument; /* of the call whose result comes next */
    omm_buf line;     /* scratch */
} chat_view;

void chat_view_init(chat_view *view, bool json);
void chat_view_fini(chat_view *view);

/* An omm_assistant_each; `ud` is the view. */
omm_err chat_view_event(void *ud, const omm_assistant_event *event);
/* The user's line, as read from a file or pipe; a terminal shows it already. */
OMM_CHECKED omm_err chat_view_user(chat_view *view, omm_bytes text);
/* The answer is complete, and took the tokens counted between two looks at the speaker. */
OMM_CHECKED omm_err chat_view_end(chat_view *view, const omm_model_speaker_usage *before,
                                  const omm_model_speaker_usage *after);
/* The program says something: printf. */
OMM_CHECKED omm_err chat_view_say(chat_view *view, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif

/* chat_ernie.c - the template of ERNIE 4.5's text models: roles are plain text, and one mark stands in front of all.
 *
 *   <|begin_of_sentence|>SYSTEM\nUser: CONTENT\nAssistant: ANSWER<|end_of_sentence|>User: ...
 *
 * It knows no tools and no thoughts.  Compared part by part: few templates are this short, and what is left out or added
 * makes another one. */
#include "chat_internal.h"
#include "jinja_shape.h"

static const char *const s_asked[] = {"Bif not add_generation_prompt is defined",
                                      "Bset add_generation_prompt=true", "Bendif"};
static const char *const s_turns[] = {"Bif not cls_token is defined",
                                      "Bset cls_token='<|begin_of_sentence|>'",
                                      "Bendif",
                                      "Bif not sep_token is defined",
                                      "Bset sep_token='<|end_of_sentence|>'",
                                      "Bendif",
                                      "Ocls_token",
                                      "Bfor message in messages",
                                      "Bif message.role=='user'",
                                      "TUser: ",
                                      "Omessage.content",
                                      "T\n",
                                      "Belif message.role=='assistant'",
                                      "TAssistant: ",
                                      "Omessage.content",
                                      "Osep_token",
                                      "Belif message.role=='system'",
                                      "Omessage.content",
                                      "T\n",
                                      "Bendif",
                                      "Bendfor",
                                      "Bif add_generation_prompt",
                                      "TAssistant: ",
                                      "Bendif"};

bool ernie_is(const jinja_parts *parts) {
    const size_t at = JINJA_RUN(parts, 0, s_asked, JINJA_NO_NAME);
    const size_t turns = JINJA_RUN(parts, at, s_turns, JINJA_NO_NAME);
    return turns > 0 && at + turns == parts->count;
}

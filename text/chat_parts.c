/* chat_parts.c - several texts of one message, as the template joins them: Granite 4's by lines, Gemma 3's each without the white
 * space around it.  All others' stand one behind the other. */
#include "chat_internal.h"
#include "jinja_shape.h"
#include "tokenizer_internal.h"

typedef enum joined { JOINED_AS_THEY_ARE, JOINED_BY_LINES, JOINED_TRIMMED } joined;

static const char *const s_lines[] = {"Bfor $ in message.content",
                                      "Bif $.type=='text'",
                                      "Bif content.val!=''",
                                      "Bset content.val=content.val+'\\n'",
                                      "Bendif",
                                      "Bset content.val=content.val+$.text",
                                      "Bendif",
                                      "Bendfor"};
static const char *const s_text[][4] = {
    {"Bif $.type=='text'", "O$.text|trim", "Bendif", "Bendfor"},
    {"Belif $.type=='text'", "O$.text|trim", "Bendif", "Bendfor"}};

/* What the parts of a message are called, where a loop over them begins. */
static omm_bytes part_name(const jinja_parts *p, size_t at) {
    return jinja_is(p, at, JINJA_BLOCK)
               ? jinja_name_between(jinja_text(p, at), "for ", " in message.content")
               : JINJA_NO_NAME;
}

static bool trims_each(const jinja_parts *p, size_t at, omm_bytes name) {
    const size_t end = jinja_end_of(p, at);
    for (size_t i = at + 1; i < end; i++)
        if (JINJA_RUN(p, i, s_text[0], name) || JINJA_RUN(p, i, s_text[1], name)) return true;
    return false;
}

omm_err parts_recognise(omm_tokenizer *t, omm_bytes jinja) {
    jinja_parts p;
    omm_err err = jinja_parts_read(&p, jinja);
    for (size_t at = 0; err == OMM_OK && at < p.count; at++) {
        const omm_bytes name = part_name(&p, at);
        if (name.size == 0) continue;
        t->chat_joined = JINJA_RUN(&p, at, s_lines, name) ? JOINED_BY_LINES
                         : trims_each(&p, at, name)       ? JOINED_TRIMMED
                                                          : JOINED_AS_THEY_ARE;
        break;
    }
    jinja_parts_fini(&p);
    return err;
}

omm_err omm_chat_join(omm_buf *out, size_t from, const omm_tokenizer *tokenizer, omm_role role,
                      omm_bytes part) {
    const joined how = tokenizer ? (joined)tokenizer->chat_joined : JOINED_AS_THEY_ARE;
    if (how == JOINED_BY_LINES && out->size > from) OMM_TRY(omm_buf_append(out, "\n", 1));
    /* of the system's Gemma takes the first alone: it is not followed in that */
    if (how == JOINED_TRIMMED && role != OMM_ROLE_SYSTEM) part = chat_strip(part);
    return omm_buf_append(out, part.data, part.size);
}

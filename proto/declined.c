/* declined.c - see declined.h. */
#include "omm/declined.h"

#include <stdio.h>

static const struct {
    const char *word, *means;
} s_list[] = {{"", ""},
#define XX(number, name, word, means) [number] = {word, means},
              OMM_DECLINED_MAP(XX)
#undef XX
                  [OMM_DECLINED_OTHER] = {"other", ""}};

omm_declined omm_declined_kind(uint32_t declined) {
    return declined < OMM_DECLINED_OTHER ? (omm_declined)declined : OMM_DECLINED_OTHER;
}

const char *omm_declined_word(omm_declined kind) {
    return s_list[kind].word;
}

void omm_declined_text(char out[OMM_DECLINED_TEXT_SIZE], uint32_t declined) {
    const omm_declined kind = omm_declined_kind(declined);
    if (kind == OMM_DECLINED_OTHER)
        (void)snprintf(out, OMM_DECLINED_TEXT_SIZE, "other (%u)", declined);
    else
        (void)snprintf(out, OMM_DECLINED_TEXT_SIZE, "%s%s%s", s_list[kind].word, kind ? ": " : "",
                       s_list[kind].means);
}

/* patience.c - see patience.h. */
#include "patience.h"

#include <inttypes.h>
#include <stdio.h>

void patience_init(patience *p, const char *guest_root) {
    if (p->rules) omm_guest_init(&p->guest, p->rules, guest_root);
    p->said = OMM_GUEST_GO;
    patience_renew(p);
}

uint64_t patience_now_ms(const patience *p) {
    return p->clock.now_ms(p->clock.ud);
}

bool patience_is_stopped(const patience *p) {
    return p->stop && atomic_load(p->stop);
}

bool patience_would_pause(patience *p) {
    if (!p->rules) return false;
    const uint32_t minute = omm_guest_minute(p->clock.wall_ms(p->clock.ud));
    return omm_guest_look(&p->guest, patience_now_ms(p), minute)->pause != OMM_GUEST_GO;
}

bool patience_must_pause(patience *p) {
    const bool pauses = patience_would_pause(p);
    const omm_guest_view *view = &p->guest.view;
    if (view->pause != p->said)
        omm_log_event(p->log, OMM_LOG_INFO, view->pause ? "paused" : "resumed",
                      OMM_LOG_STR("node", p->name),
                      OMM_LOG_STR("reason", omm_guest_pause_name(view->pause)),
                      OMM_LOG_STR("detail", view->text));
    p->said = view->pause;
    return pauses;
}

void patience_renew(patience *p) {
    p->told_after_ms = PATIENCE_SILENT_MS;
}

void patience_silence(char text[BOARD_DETAIL_SIZE], uint64_t silent_ms, omm_client *client) {
    text[0] = '\0';
    if (silent_ms >= PATIENCE_SILENT_MS)
        (void)snprintf(text, BOARD_DETAIL_SIZE, "no answer for %" PRIu64 " s: %s", silent_ms / 1000,
                       omm_client_trouble(client));
}

void patience_tell_silence(patience *p, uint64_t silent_ms, board *b, const char *state,
                           omm_node *node, omm_client *client) {
    char text[BOARD_DETAIL_SIZE];
    patience_silence(text, silent_ms, client);
    if (!text[0]) return;
    board_show(b, state, text, node, client, false);
    if (silent_ms < p->told_after_ms) return;
    p->told_after_ms *= 2;
    omm_log_event(p->log, OMM_LOG_WARN, "no_answer", OMM_LOG_STR("node", p->name),
                  OMM_LOG_STR("coordinator", p->url), OMM_LOG_INT("seconds", silent_ms / 1000),
                  OMM_LOG_STR("detail", omm_client_trouble(client)),
                  OMM_LOG_STR("then", "asking on"));
}

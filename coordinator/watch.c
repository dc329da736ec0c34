/* watch.c - see watch.h. */
#include "watch.h"

#include "omm/mem.h"

#include <stdio.h>
#include <string.h>

struct watch {
    watch_options o;
    pthread_mutex_t mutex; /* guards all below */
    watch_facts facts;
    watch_node *nodes;        /* (watch_node_max) */
    omm_coord_round *history; /* (run->rounds); the first facts.history_count are for good */
    uint64_t taken_ms;
    bool has_taken;
};

static uint64_t now_ms(const watch *w) {
    return w->o.clock.now_ms(w->o.clock.ud);
}

static uint64_t wall_ms(const watch *w) {
    return w->o.clock.wall_ms(w->o.clock.ud);
}

omm_err watch_open(watch **out, const watch_options *options) {
    watch *w = omm_alloc(1, sizeof *w);
    if (!w) return omm_raise(OMM_ERR_NOMEM, "what others see");
    w->o = *options;
    OMM_ASSERT(pthread_mutex_init(&w->mutex, NULL) == 0);
    w->facts.node_count = options->run->node_count;
    w->nodes = omm_alloc(watch_node_max(w), sizeof *w->nodes);
    w->history = omm_alloc(options->run->rounds, sizeof *w->history);
    if (!w->nodes || !w->history) {
        watch_close(w);
        return omm_raise(OMM_ERR_NOMEM, "what others see of %zu nodes", options->run->node_count);
    }
    w->facts.started_ms = w->facts.beat_ms = now_ms(w);
    w->facts.started_wall_ms = wall_ms(w);
    *out = w;
    return OMM_OK;
}

void watch_close(watch *w) {
    if (!w) return;
    pthread_mutex_destroy(&w->mutex);
    omm_free(w->nodes);
    omm_free(w->history);
    omm_free(w);
}

/* ---- the service's side ---- */

static void add_verdict(watch *w, const omm_coord_event *event) {
    watch_verdict *v = &w->facts.verdicts[w->facts.verdict_count++ % WATCH_VERDICTS_MAX];
    *v = (watch_verdict){.wall_ms = wall_ms(w),
                         .round = event->round,
                         .node = event->node,
                         .reason = event->reason,
                         .has_peer = event->peer != NULL};
    (void)snprintf(v->peer, sizeof v->peer, "%s", event->peer ? event->peer : "");
    (void)snprintf(v->sentence, sizeof v->sentence, "%s", event->sentence);
}

void watch_event(void *ud, const omm_coord_event *event) {
    watch *w = ud;
    pthread_mutex_lock(&w->mutex);
    switch (event->kind) {
    case OMM_COORD_EVENT_SUBMISSION:
        w->facts.submissions[event->reason]++;
        add_verdict(w, event);
        break;
    case OMM_COORD_EVENT_REQUEST:
        w->facts.requests[event->reason]++;
        add_verdict(w, event);
        break;
    case OMM_COORD_EVENT_CANARY:
        if (event->reason == OMM_OK)
            w->facts.canaries_passed++;
        else
            w->facts.canaries_failed++;
        if (event->reason != OMM_OK) add_verdict(w, event);
        break;
    case OMM_COORD_EVENT_OPENED: w->facts.opened_wall_ms = wall_ms(w); break;
    case OMM_COORD_EVENT_PUBLISHED: w->facts.over_wall_ms = wall_ms(w); break;
    case OMM_COORD_EVENT_CLOSED:
    case OMM_COORD_EVENT_JOINED: break;
    }
    pthread_mutex_unlock(&w->mutex);
}

void watch_replay(watch *w, uint64_t ms) {
    pthread_mutex_lock(&w->mutex);
    w->facts.replays++;
    w->facts.replay_ms += ms;
    pthread_mutex_unlock(&w->mutex);
}

void watch_beat(watch *w, bool ticking) {
    uint64_t now = now_ms(w);
    pthread_mutex_lock(&w->mutex);
    watch_facts *f = &w->facts;
    if (ticking && !f->ticking) f->tick_since_ms = now;
    if (!ticking && f->ticking) {
        f->ticks++;
        f->tick_ms += now - f->tick_since_ms;
    }
    f->ticking = ticking;
    f->beat_ms = now;
    pthread_mutex_unlock(&w->mutex);
}

void watch_stage(watch *w, uint64_t stage_ms, uint64_t left_ms) {
    const uint64_t now = now_ms(w);
    pthread_mutex_lock(&w->mutex);
    w->facts.stage_since_ms = now - (stage_ms < now ? stage_ms : now);
    w->facts.acts_at_ms = left_ms < UINT64_MAX - now ? now + left_ms : UINT64_MAX;
    pthread_mutex_unlock(&w->mutex);
}

static void take_history(watch *w, const omm_coord *coord) {
    uint32_t count = 0;
    const omm_coord_round *history = omm_coord_history(&count, coord);
    for (uint32_t i = w->facts.history_count; i < count; i++) {
        w->history[i] = history[i];
        w->facts.rounds_void += history[i].voided;
        w->facts.rounds_published += history[i].published;
        w->facts.rounds_held += !history[i].voided && !history[i].published;
    }
    w->facts.history_count = count;
}

void watch_take(watch *w, const omm_coord *coord, bool now, watch_wire (*wire)(void *ud, size_t i),
                void *ud) {
    uint64_t at = now_ms(w);
    if (!now && w->has_taken && at - w->taken_ms < WATCH_TAKE_MS) return;
    pthread_mutex_lock(&w->mutex);
    w->facts.status = omm_coord_get_status(coord);
    w->facts.node_count = w->o.run->node_count;
    for (size_t i = 0; i < w->facts.node_count; i++) {
        watch_wire passed = wire(ud, i);
        w->nodes[i] = (watch_node){omm_coord_get_node(coord, i), passed.up, passed.down};
    }
    take_history(w, coord);
    w->taken_ms = at;
    w->has_taken = true;
    pthread_mutex_unlock(&w->mutex);
}

/* With the lock held. */
static void note_trouble(watch *w, const char *sentence) {
    if (!w->facts.has_trouble && !w->facts.has_stopped) w->facts.trouble_since_wall_ms = wall_ms(w);
    w->facts.trouble_ms = now_ms(w);
    w->facts.trouble_wall_ms = wall_ms(w);
    (void)snprintf(w->facts.trouble, sizeof w->facts.trouble, "%s", sentence);
}

void watch_trouble(watch *w, const char *sentence) {
    pthread_mutex_lock(&w->mutex);
    if (sentence) {
        note_trouble(w, sentence);
        w->facts.has_trouble = true;
    } else if (now_ms(w) - w->facts.trouble_ms >= WATCH_TROUBLE_MS) {
        w->facts.has_trouble = false;
    }
    pthread_mutex_unlock(&w->mutex);
}

void watch_round_trouble(watch *w, const char *sentence) {
    pthread_mutex_lock(&w->mutex);
    if (sentence) {
        note_trouble(w, sentence);
        (void)snprintf(w->facts.stopped, sizeof w->facts.stopped, "%s", sentence);
    }
    w->facts.has_stopped = sentence != NULL;
    pthread_mutex_unlock(&w->mutex);
}

void watch_damaged(watch *w, const char *file) {
    pthread_mutex_lock(&w->mutex);
    (void)snprintf(w->facts.damaged_file, sizeof w->facts.damaged_file, "%s", file);
    pthread_mutex_unlock(&w->mutex);
}

void watch_base(watch *w, const watch_base_facts *base) {
    pthread_mutex_lock(&w->mutex);
    w->facts.base = *base;
    pthread_mutex_unlock(&w->mutex);
}

void watch_audit(watch *w, uint64_t entries, const omm_digest *head) {
    pthread_mutex_lock(&w->mutex);
    w->facts.audit_entries = entries;
    w->facts.audit_head = *head;
    w->facts.has_audit_trouble = false;
    pthread_mutex_unlock(&w->mutex);
}

void watch_audit_failed(watch *w, const char *sentence) {
    pthread_mutex_lock(&w->mutex);
    w->facts.has_audit_trouble = true;
    (void)snprintf(w->facts.audit_trouble, sizeof w->facts.audit_trouble, "%s", sentence);
    pthread_mutex_unlock(&w->mutex);
}

/* ---- the reader's side ---- */

size_t watch_node_max(const watch *w) {
    return w->o.node_max ? w->o.node_max : w->facts.node_count;
}

const watch_options *watch_get_options(const watch *w) {
    return &w->o;
}

void watch_read(watch_facts *out, watch_node *nodes, const omm_coord_round **history, watch *w) {
    pthread_mutex_lock(&w->mutex);
    *out = w->facts;
    if (nodes) memcpy(nodes, w->nodes, w->facts.node_count * sizeof *nodes);
    *history = w->history;
    pthread_mutex_unlock(&w->mutex);
    out->now_ms = now_ms(w);
    out->wall_ms = wall_ms(w);
}

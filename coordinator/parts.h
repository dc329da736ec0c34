/* parts.h - the service's parts, shared by its two files: parts.c opens, shows and closes them, service.c
 * is the loop around the state machine.
 *
 * Depends on: everything of this folder.  Threads: the loop's; what a tick may not touch is said there.
 */
#ifndef OMM_COORDINATOR_PARTS_H
#define OMM_COORDINATOR_PARTS_H

#include "omm/coordinator_service.h"
#include "omm/transport.h"

#include "base_serve.h"
#include "canary_work.h"
#include "ctl.h"
#include "diary.h"
#include "footing.h"
#include "held.h"
#include "meter.h"
#include "patrol.h"
#include "timetable.h"
#include "watch.h"
#include "web.h"
#include "wires.h"

#define SERVICE_BUSY_MS 1000u    /* a tick that makes others wait is worth a second */
#define SERVICE_TROUBLE_MS 5000u /* between attempts when our own disk fails */
#define SERVICE_DETAIL_BYTES 2048u

typedef struct service {
    const omm_coord_service_options *o;
    omm_bundle *bundle;
    omm_coord *coord;
    omm_server *server;
    watch *watch;
    diary *diary;
    web *web;
    ctl *ctl;
    base_serve *base; /* NULL: none is served */
    canary_work *canaries;
    timetable times;
    footing footing;
    patrol patrol;
    bool has_lost_ground;     /* a file that the run stands on is gone: no round goes on */
    uint64_t looked_ms;       /* at these files */
    uint64_t again_ms;        /* a round that stands still is tried again then */
    bool is_held, has_opened; /* a round, since it was looked at last */
    bool node_asked;          /* since it was cleared: a node, not a stranger */
    bool told_failed;         /* who has heard of the end could not be kept */
    bool wires_failed;        /* counts of bytes could not */
    omm_buf reply;
    held held;
    meter *meter;
    uint64_t join_ms;  /* of the run's policy */
    uint32_t few_told; /* the last round, from 1, of which it was said that too few nodes come */
    uint64_t deadline_ms;
    uint64_t busy_ms; /* when to ask again while a tick runs */
    wires *wires;
    uint32_t node_max;
    omm_coord_enrolment enrolment;
} service;

/* From far above zero: a stage may have begun before this machine did. */
uint64_t service_now_ms(const service *s);
/* Asked to, or nothing that is written is sure to last any more. */
bool service_is_stopped(const service *s);
/* `s` has only .o; after an error, too, service_close is due. */
OMM_CHECKED omm_err service_open(service *s);
void service_close(service *s);
/* What others see.  Not while a tick runs: it owns the state machine. */
void service_show(service *s, bool now);
/* Of the state machine, and what the loop itself refuses; `ud` is the service. */
void service_on_event(void *ud, const omm_coord_event *event);
/* The operator's words; without `is_free`, while a tick runs, only questions are answered. */
void service_listen(service *s, bool is_free);
/* Are the files of the run where they were?  has_lost_ground says it. */
void service_look_at_ground(service *s, bool at_once);
/* Operator, timetable and canaries have a look, between two requests, when nobody else has the state machine. */
void service_look_around(service *s);

#endif

/* parts.c - owns what stands around the loop: clock, watch, page, diary, operator, timetable, base model, canaries. */
#include "parts.h"

#include "omm/coordinator_canary.h"
#include "omm/file.h"
#include "omm/gguf.h"
#include "omm/mem.h"
#include "omm/recipe.h"
#include "omm/sync.h"
#include "omm/wire.h"

#include "actions.h"
#include "watch_brief.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define SERVICE_FEW_MS 5000u   /* nodes may be on their way */
#define SERVICE_LOOK_MS 1000u  /* between two looks at the files of the run */
#define SERVICE_OWN_FILES 128u /* 64 of the page's, databases, logs, the model */
#define SERVICE_EPOCH_MS ((uint64_t)1 << 40)

uint64_t service_now_ms(const service *s) {
    return SERVICE_EPOCH_MS + s->o->clock.now_ms(s->o->clock.ud);
}

bool service_is_stopped(const service *s) {
    return (s->o->stop && atomic_load(s->o->stop)) || omm_sync_check() != OMM_OK;
}

/* key: of the service file. */
static omm_err write_port(const char *key, const char *path, unsigned port) {
    if (!path) return OMM_OK;
    char text[16];
    (void)snprintf(text, sizeof text, "%u\n", port);
    return omm_err_about(omm_file_write(path, omm_bytes_str(text), 0644), key);
}

/* ---- seen from outside ---- */

void service_show(service *s, bool now) {
    const uint64_t now_at_ms = service_now_ms(s);
    watch_beat(s->watch, false);
    watch_stage(s->watch, omm_coord_stage_ms(s->coord, now_at_ms),
                s->deadline_ms == OMM_COORD_NEVER ? OMM_COORD_NEVER
                : s->deadline_ms > now_at_ms      ? s->deadline_ms - now_at_ms
                                                  : 0);
    watch_take(s->watch, s->coord, now, wires_of, s->wires);
}

void service_on_event(void *ud, const omm_coord_event *event) {
    service *s = ud;
    if (event->kind == OMM_COORD_EVENT_OPENED) s->has_opened = true;
    watch_event(s->watch, event);
    diary_event(s->diary, event, s->coord);
}

/* After the state machine, which holds the state's lock: one process writes this file. */
static omm_err open_diary(service *s) {
    char path[OMM_PATH_MAX];
    omm_coord_options run;
    omm_run_coord_options(&run, s->o->run);
    OMM_TRY(omm_path_join(path, s->o->state_dir, "audit.jsonl"));
    diary_options options = {.path = path,
                             .run = run.run,
                             .scenario_yaml = run.scenario_yaml,
                             .policy_yaml = run.policy_yaml,
                             .bundle_key = &s->o->bundle_key->public_key,
                             .commit = s->o->commit,
                             .build = s->o->build,
                             .clock = s->o->clock,
                             .watch = s->watch,
                             .log = s->o->log};
    OMM_TRY(diary_open(&s->diary, &options));
    omm_coord_status status = omm_coord_get_status(s->coord);
    return diary_start(s->diary, &status, s->coord);
}

/* Where strangers may come: is any work of theirs ever looked at again?  NULL: it is. */
static const char *untested(const service *s) {
    const omm_coord_canaries *c = s->o->canaries;
    if (s->o->work_bits > 0 && !c)
        return "enrolment is open without canary: whoever works is in at once, and nobody is ever "
               "tested; set canary: {shards: [...], share: 0.05}";
    if (s->o->work_bits > 0 && c->passes == 0)
        return "enrolment is open with canary.passes 0: whoever works is in at once, untested";
    if (c && c->share <= 0)
        return "canary.share is 0: whoever is in is never tested again; 0.05 is every twentieth "
               "turn";
    return NULL;
}

static omm_err open_watch(service *s) {
    const char *note = untested(s);
    if (note)
        omm_log_event(s->o->log, OMM_LOG_WARN, "nobody_is_tested", OMM_LOG_STR("detail", note));
    watch_options options = {.run = omm_run_get_record(s->o->run),
                             .node_max = s->node_max,
                             .clock = s->o->clock,
                             .state_dir = s->o->state_dir,
                             .commit = s->o->commit,
                             .build = s->o->build,
                             .note = note};
    return watch_open(&s->watch, &options);
}

static omm_err open_web(service *s) {
    if (!s->o->http) return OMM_OK;
    const http_place place = {s->o->http, s->o->http_hosts, s->o->http_host_count};
    OMM_TRY(web_open(&s->web, &place, s->watch, s->server, s->o->log));
    OMM_TRY(write_port("http_port_file", s->o->http_port_file, web_port(s->web)));
    omm_log_event(s->o->log, OMM_LOG_INFO, "http_listening", OMM_LOG_STR("address", s->o->http),
                  OMM_LOG_INT("port", web_port(s->web)));
    return OMM_OK;
}

/* ---- the operator ---- */

static omm_err say_status(service *s, omm_buf *answer, const char *form) {
    const bool json = strcmp(form, "json") == 0;
    if (form[0] && !json)
        return omm_raise(OMM_ERR_USAGE, "status: %.40s; accepted: json, or nothing", form);
    watch_facts *facts = omm_alloc(1, sizeof *facts); /* too large for a stack */
    watch_node *nodes = omm_alloc(watch_node_max(s->watch), sizeof *nodes);
    omm_err err = facts && nodes ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "status");
    watch_seen seen;
    if (err == OMM_OK) {
        watch_see(&seen, facts, nodes, s->watch, s->server);
        err = json ? watch_brief_json(answer, &seen) : watch_brief_text(answer, &seen);
    }
    omm_free(facts);
    omm_free(nodes);
    return err;
}

/* A node that may not take part any more is not listened to, either. */
static omm_err do_action(service *s, omm_buf *answer, const ctl_request *r) {
    actions a = {.coord = s->coord,
                 .run = omm_run_get_record(s->o->run),
                 .diary = s->diary,
                 .now_ms = service_now_ms(s),
                 .deadline_ms = &s->deadline_ms};
    OMM_TRY(actions_do(&a, answer, r));
    if (a.revoked >= 0)
        omm_server_hang_up(s->server, wires_connection(s->wires, (size_t)a.revoked));
    return OMM_OK;
}

static omm_err on_ctl(void *ud, omm_buf *answer, const ctl_request *r) {
    service *s = ud;
    char why[SERVICE_DETAIL_BYTES] = "done";
    if (r->action == OMM_COORD_CTL_status) return say_status(s, answer, r->argument);
    omm_err err = do_action(s, answer, r);
    if (err != OMM_OK) (void)snprintf(why, sizeof why, "%s", omm_err_sentence());
    omm_log_event(s->o->log, OMM_LOG_INFO, "ctl",
                  OMM_LOG_STR("action", omm_coord_ctl_name(r->action)),
                  OMM_LOG_STR("argument", r->argument), OMM_LOG_INT("uid", r->uid),
                  OMM_LOG_STR("result", why));
    if (err == OMM_OK) {
        watch_take(s->watch, s->coord, true, wires_of, s->wires);
        return OMM_OK;
    }
    diary_ctl_failed(s->diary, omm_coord_ctl_name(r->action), r->uid, why);
    return omm_raise(err, "%s", why);
}

void service_listen(service *s, bool is_free) {
    ctl_poll(s->ctl, is_free, on_ctl, s);
}

/* ---- the timetable ---- */

/* After the state machine and before its first step: the stage goes on where it was. */
static omm_err open_times(service *s) {
    const omm_coord_status status = omm_coord_get_status(s->coord);
    uint64_t passed_ms = 0;
    OMM_TRY(timetable_open(&s->times, s->o->state_dir, s->o->clock, s->o->every_ms, s->o->has_at,
                           s->o->at_ms, NULL));
    if (status.state >= OMM_COORD_OPEN && status.state <= OMM_COORD_PUBLISHED)
        timetable_begun(&s->times, status.round, OMM_COORD_OPEN);
    if (timetable_stage_ms(&passed_ms, &s->times, status.round, status.state))
        omm_coord_resume_stage(s->coord, service_now_ms(s), passed_ms);
    omm_log_event(s->o->log, OMM_LOG_INFO, "stage_goes_on",
                  OMM_LOG_STR("state", omm_coord_state_name(status.state)),
                  OMM_LOG_INT("passed_ms", passed_ms));
    s->is_held = !timetable_is_due(&s->times);
    if (s->is_held) omm_coord_hold(&s->deadline_ms, s->coord, service_now_ms(s), true);
    return OMM_OK;
}

/* Once for a round that nobody's time-out opens. */
static void tell_few(service *s, const omm_coord_status *is, uint64_t stage_ms) {
    if (is->state != OMM_COORD_JOINING || is->paused || is->draining || is->held ||
        is->ready >= is->accept_min || stage_ms < s->join_ms || stage_ms < SERVICE_FEW_MS ||
        s->few_told == is->round + 1)
        return;
    s->few_told = is->round + 1;
    omm_log_event(s->o->log, OMM_LOG_WARN, "too_few_nodes", OMM_LOG_INT("round", is->round),
                  OMM_LOG_INT("ready", is->ready), OMM_LOG_INT("accept_min", is->accept_min),
                  OMM_LOG_INT("seconds", stage_ms / 1000),
                  OMM_LOG_STR("then", "waits on; `ctl status` says who has not come"));
}

/* A timetable that cannot be written costs a restart its durations, and nothing else. */
static void look_at_times(service *s) {
    const omm_coord_status status = omm_coord_get_status(s->coord);
    const bool has_opened = s->has_opened;
    const uint64_t stage_ms = omm_coord_stage_ms(s->coord, service_now_ms(s));
    s->has_opened = false;
    if (has_opened) timetable_opened(&s->times);
    tell_few(s, &status, stage_ms);
    if (timetable_note(&s->times, status.round, status.state, stage_ms) != OMM_OK)
        omm_log_event(s->o->log, OMM_LOG_WARN, "timetable_failed",
                      OMM_LOG_STR("detail", omm_err_sentence()));
    const bool hold = status.state == OMM_COORD_JOINING && !timetable_is_due(&s->times);
    if (hold == s->is_held) return;
    s->is_held = hold;
    omm_coord_hold(&s->deadline_ms, s->coord, service_now_ms(s), hold);
    omm_log_event(s->o->log, OMM_LOG_INFO, hold ? "round_held" : "round_due",
                  OMM_LOG_INT("round", status.round));
}

/* Says so once, and once more when it is well again. */
void service_look_at_ground(service *s, bool at_once) {
    const uint64_t now = service_now_ms(s);
    if (!at_once && now - s->looked_ms < SERVICE_LOOK_MS) return;
    s->looked_ms = now;
    const bool lost = footing_check(&s->footing) != OMM_OK;
    if (lost) watch_round_trouble(s->watch, omm_err_sentence());
    if (lost == s->has_lost_ground) return;
    s->has_lost_ground = lost;
    if (!lost) watch_round_trouble(s->watch, NULL);
    omm_log_event(s->o->log, lost ? OMM_LOG_ERROR : OMM_LOG_INFO,
                  lost ? "round_stands_still" : "round_goes_on",
                  OMM_LOG_STR("detail", lost ? omm_err_sentence() : "what was gone is back"));
}

/* ---- files of earlier rounds ---- */

static void on_patrol(void *ud, uint32_t round, const char *path, const char *why) {
    const service *s = ud;
    omm_log_event(s->o->log, why ? OMM_LOG_ERROR : OMM_LOG_INFO,
                  why ? "evidence_damaged" : "evidence_mended", OMM_LOG_INT("round", round),
                  OMM_LOG_STR("file", path), OMM_LOG_STR("detail", why ? why : "as it was again"));
    diary_evidence(s->diary, round, path, why);
    watch_damaged(s->watch, patrol_damaged(&s->patrol));
}

/* ---- the base model's file ---- */

static void look_at_base(service *s) {
    const base_serve_count before = base_serve_counts(s->base);
    base_serve_step(s->base);
    const base_serve_count now = base_serve_counts(s->base);
    if (now.has_changed && !before.has_changed)
        omm_log_event(s->o->log, OMM_LOG_WARN, "base_changed",
                      OMM_LOG_STR("path", omm_run_model_path(s->o->run)),
                      OMM_LOG_STR("detail", "its bytes are not the run's any more, or it is gone"),
                      OMM_LOG_STR("then", "nodes get none of it until it is put back as it was"));
    if (now.read_again > before.read_again)
        omm_log_event(s->o->log, OMM_LOG_INFO, "base_read_again",
                      OMM_LOG_STR("path", omm_run_model_path(s->o->run)),
                      OMM_LOG_STR("detail", "it was written or touched, and is the run's"));
    watch_base(s->watch, &(watch_base_facts){.bytes = now.bytes,
                                             .refused = now.refused,
                                             .has_changed = now.has_changed});
}

void service_look_around(service *s) {
    service_listen(s, true);
    look_at_base(s);
    service_look_at_ground(s, false);
    /* Where a folder is gone all files are, and that is said by itself. */
    if (!s->has_lost_ground && footing_check(&s->footing) == OMM_OK)
        patrol_step(&s->patrol, service_now_ms(s));
    look_at_times(s);
    canary_work_turn(s->canaries, &s->deadline_ms, s->coord, service_now_ms(s));
    service_show(s, false);
}

/* ---- the base model ---- */

/* Files of the run's model: its header says it. */
static omm_err count_files(uint32_t *out, const char *path) {
    omm_gguf gguf;
    OMM_TRY(omm_gguf_open(&gguf, path));
    *out = gguf.part_count;
    omm_gguf_close(&gguf);
    return OMM_OK;
}

/* A run does not fail because its model cannot be served: nodes may have it. */
static omm_err open_base(service *s, const omm_key *key) {
    uint32_t part_count = 0;
    OMM_TRY(count_files(&part_count, omm_run_model_path(s->o->run)));
    const base_serve_options options = {.path = omm_run_model_path(s->o->run),
                                        .part_count = part_count,
                                        .digest = omm_run_get_record(s->o->run)->base.digest,
                                        .transfers = s->o->base_transfers,
                                        .bytes_per_second = s->o->base_bytes_per_second,
                                        .mirrors = s->o->base_mirrors,
                                        .mirror_count = s->o->base_mirror_count,
                                        .key = key,
                                        .clock = s->o->clock};
    const omm_err err = base_serve_open(&s->base, &options);
    if (err != OMM_ERR_MISMATCH && err != OMM_ERR_TOO_BIG) return err;
    omm_log_event(s->o->log, OMM_LOG_WARN, "base_not_served",
                  OMM_LOG_STR("reason", omm_err_sentence()));
    return OMM_OK;
}

/* ---- descriptors ---- */

/* One for each connection, and for what a coordinator has open itself, which connections do not get.  As many as the
 * system gives, and a word where these may be too few. */
static omm_err take_descriptors(unsigned *for_connections, const service *s) {
    struct rlimit limit;
    const uint64_t wanted =
        s->enrolment.node_max + (uint64_t)s->o->limits.strangers + SERVICE_OWN_FILES;
    *for_connections = 0;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return OMM_OK;
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    if (before < limit.rlim_max && setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
    if (limit.rlim_cur <= SERVICE_OWN_FILES)
        return omm_raise(
            OMM_ERR_CONFIG,
            "%llu open files are allowed to this process, and it needs more than %u; raise "
            "`ulimit -n`, or LimitNOFILE of the unit",
            (unsigned long long)limit.rlim_cur, SERVICE_OWN_FILES);
    *for_connections = limit.rlim_cur - SERVICE_OWN_FILES < INT32_MAX
                           ? (unsigned)(limit.rlim_cur - SERVICE_OWN_FILES)
                           : INT32_MAX;
    if (limit.rlim_cur < wanted)
        omm_log_event(s->o->log, OMM_LOG_WARN, "few_open_files",
                      OMM_LOG_INT("allowed", (int64_t)limit.rlim_cur),
                      OMM_LOG_INT("wanted", wanted),
                      OMM_LOG_STR("then", "more connections are refused; raise `ulimit -n` "
                                          "or LimitNOFILE, or lower node_max and strangers"));
    return OMM_OK;
}

/* ---- a policy that these nodes cannot keep ---- */

static omm_err check_counts(const service *s, const omm_coord_policy *policy) {
    if (policy->accept_min > s->enrolment.node_max)
        return omm_raise(OMM_ERR_CONFIG,
                         "round.accept_min: %u, and no more than %u nodes can ever be in: no round "
                         "would begin; accepted: 1 to %u, or more nodes (nodes, node_max)",
                         policy->accept_min, s->enrolment.node_max, s->enrolment.node_max);
    if (policy->quorum > s->enrolment.node_max)
        omm_log_event(s->o->log, OMM_LOG_WARN, "quorum_lowered",
                      OMM_LOG_INT("quorum", policy->quorum),
                      OMM_LOG_INT("nodes", s->enrolment.node_max),
                      OMM_LOG_STR("then", "a round begins with as many as are in"));
    return OMM_OK;
}

/* ---- sizes that these nodes cannot keep ---- */

static omm_err check_sizes(const service *s) {
    const omm_coord_limits *limits = &s->o->limits;
    const omm_run_record *run = omm_run_get_record(s->o->run);
    const size_t payload = omm_codec_sent_bytes_max(&run->codec_up, &run->layout);
    omm_recipe recipe;
    OMM_TRY(omm_recipe_decode(&recipe, run->recipe));
    const size_t message = omm_wire_upload_bytes_max(payload, recipe.steps);
    if (limits->submission_bytes > 0 && limits->submission_bytes < payload)
        return omm_raise(
            OMM_ERR_CONFIG,
            "submission_bytes: %llu, and a payload of this scenario may have %zu; accepted: "
            "0, %zu or more, or a smaller codec.up.byte_budget in the scenario",
            (unsigned long long)limits->submission_bytes, payload, payload);
    if (limits->message_bytes < message)
        return omm_raise(OMM_ERR_CONFIG,
                         "message_bytes: %zu, and a node of this scenario may send %zu at once; "
                         "accepted: %zu to %u",
                         limits->message_bytes, message, message, OMM_MESSAGE_BYTES_MAX);
    return OMM_OK;
}

/* ---- all of them ---- */

static void note_replay(void *ud, uint64_t ms) {
    const service *s = ud;
    watch_replay(s->watch, ms);
}

omm_err service_open(service *s) {
    omm_server_options server = omm_server_options_default();
    server.exchanges_max = HELD_MAX;
    server.untrusted_max = s->o->limits.strangers;
    server.untrusted_per_peer = s->o->limits.strangers_per_address;
    server.idle_ms = s->o->limits.strangers_idle_ms;
    meter_limits limits = {s->o->limits.messages_per_minute, s->o->limits.bytes_per_minute};
    server.message_bytes_max = s->o->limits.message_bytes;
    server.tls_certificate = s->o->tls_certificate;
    server.tls_key = s->o->tls_key;
    omm_coord_options options;
    omm_run_coord_options(&options, s->o->run);
    omm_run_enrolment(&s->enrolment, s->o->run, s->o->clock);
    s->enrolment.work_bits = s->o->work_bits;
    s->node_max = s->enrolment.node_max;
    OMM_TRY(take_descriptors(&server.descriptors_max, s));
    OMM_TRY(check_counts(s, &options.policy));
    OMM_TRY(check_sizes(s));
    options.enrolment = &s->enrolment;
    options.canaries = s->o->canaries;
    options.state_dir = s->o->state_dir;
    options.crash_at = s->o->crash_at;
    options.pool = s->o->pool;
    options.log = s->o->log;
    if (s->o->poll_ms) options.policy.poll_ms = s->o->poll_ms;
    OMM_TRY(omm_err_about(omm_bundle_open(&s->bundle, s->o->bundle_dir, true), "bundle"));
    s->busy_ms = options.policy.poll_ms;
    if (s->busy_ms < SERVICE_BUSY_MS) s->busy_ms = SERVICE_BUSY_MS;
    s->join_ms = options.policy.join_ms;
    options.bundle = s->bundle;
    OMM_TRY(open_watch(s));
    options.on_event = service_on_event;
    options.on_event_ud = s;
    if (s->o->over_select > 0) options.policy.over_select = s->o->over_select;
    options.policy.is_timed = s->o->every_ms > 0 || s->o->has_at;
    OMM_TRY(omm_coord_open(&s->coord, &options));
    OMM_TRY(open_times(s));
    OMM_TRY(open_diary(s));
    OMM_TRY(footing_open(&s->footing, s->o->state_dir, s->o->bundle_dir));
    OMM_TRY(patrol_open(&s->patrol, s->coord, s->o->bundle_dir, on_patrol, s));
    OMM_TRY(wires_open(&s->wires, omm_run_get_record(s->o->run), s->node_max, s->o->state_dir));
    OMM_TRY(open_base(s, options.key));
    OMM_TRY(canary_work_open(&s->canaries, &(canary_work_options){.run = s->o->run,
                                                                  .canaries = s->o->canaries,
                                                                  .threads = s->o->canary_threads,
                                                                  .clock = s->o->clock,
                                                                  .on_replay = note_replay,
                                                                  .ud = s,
                                                                  .log = s->o->log}));
    OMM_TRY(meter_open(&s->meter, s->node_max, &limits));
    OMM_TRY(omm_server_open(&s->server, &server));
    OMM_TRY(omm_server_listen(s->server, s->o->url));
    OMM_TRY(write_port("port_file", s->o->port_file, omm_server_port(s->server)));
    service_show(s, true);
    OMM_TRY(ctl_open(&s->ctl, s->o->state_dir, s->o->clock));
    OMM_TRY(open_web(s));
    omm_log_event(s->o->log, OMM_LOG_INFO, "listening", OMM_LOG_STR("url", s->o->url),
                  OMM_LOG_INT("port", omm_server_port(s->server)));
    return OMM_OK;
}

void service_close(service *s) {
    web_close(s->web); /* first: it reads what is below */
    ctl_close(s->ctl);
    if (s->server) omm_server_close(s->server);
    meter_close(s->meter);
    canary_work_close(s->canaries);
    patrol_close(&s->patrol);
    omm_coord_close(s->coord);
    omm_bundle_close(s->bundle);
    base_serve_close(s->base);
    diary_close(s->diary);
    watch_close(s->watch);
    wires_close(s->wires);
    omm_buf_fini(&s->reply);
}

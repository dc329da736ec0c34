/* node_config.c - see node_config.h. */
#include "node_config.h"

#include "omm/base_model.h"
#include "omm/enrolment.h"
#include "omm/json.h"

#include <stdlib.h>

static const omm_config_field s_limits[] = {
    OMM_CONFIG_U32(node_limits_file, rank_max, .fallback = "256", .min = 1, .max = 1024,
                   .help = "largest adapter rank we train"),
    OMM_CONFIG_U32(node_limits_file, steps_max, .fallback = "100000", .min = 1, .max = 1e6,
                   .help = "most optimiser steps per round"),
    OMM_CONFIG_U64(node_limits_file, tokens_max, .fallback = "100000000", .min = 1, .max = 1e15,
                   .help = "tokens we train in one round: time"),
    OMM_CONFIG_U64(node_limits_file, pass_tokens_max, .fallback = "8192", .min = 1, .max = 1e6,
                   .help = "tokens of one training pass: memory"),
    OMM_CONFIG_U64(node_limits_file, adapter_values_max, .fallback = "240000000", .min = 1,
                   .max = 1e9, .help = "values of an adapter, 4 bytes each"),
    OMM_CONFIG_U64(node_limits_file, download_bytes_max, .fallback = "1073741824", .min = 1,
                   .max = 1e12, .help = "of one global adapter"),
    OMM_CONFIG_U64(node_limits_file, upload_bytes_max, .fallback = "1073741824", .min = 1,
                   .max = 1e12, .help = "of one submission"),
    OMM_CONFIG_U32(node_limits_file, work_bits_max, .fallback = "26", .max = OMM_WORK_BITS_MAX,
                   .help = "of a proof of work to be let in, 2^bits hashes; 0: none is done"),
    {0}};

static const omm_config_field s_mirror = {
    .key = "url", .kind = OMM_CONFIG_KIND_STRING, .min = 1, .max = OMM_MIRROR_BYTES_MAX};

static const char *const s_priorities[] = {"normal", "low", "idle", NULL};

const omm_config_field node_fields[] = {
    OMM_CONFIG_STRING(node_file, coordinator, .min = 1, .max = 255,
                      .help = "tls+tcp://host:port or tcp://host:port to connect to"),
    OMM_CONFIG_STRING(node_file, tls_certificate, .fallback = "", .max = 4000,
                      .help = "the coordinator's certificate, PEM; required with tls+tcp://"),
    OMM_CONFIG_STRING(node_file, name, .min = 1, .max = 64, .help = "of this node, for logs"),
    OMM_CONFIG_STRING(node_file, state_dir, .min = 1, .max = 4000, .help = "kept across restarts"),
    OMM_CONFIG_STRING(node_file, scenario, .fallback = "", .max = 4000,
                      .help = "rehearse: key, model and data of the scenario's client `name`"),
    OMM_CONFIG_STRING(node_file, key, .fallback = "", .max = 4000,
                      .help = "secret key file (keygen); required without scenario"),
    OMM_CONFIG_STRING(node_file, passphrase_file, .fallback = "", .max = 4000,
                      .help = "has the passphrase of a locked key; default: ask on the terminal"),
    OMM_CONFIG_STRING(node_file, coordinator_key, .fallback = "", .max = 64,
                      .help = "the coordinator's public key, pinned; required without scenario"),
    OMM_CONFIG_STRING(node_file, token, .fallback = "", .max = 100,
                      .help = "invitation to the coordinator; this file is its owner's alone then"),
    OMM_CONFIG_STRING(node_file, token_file, .fallback = "", .max = 4000,
                      .help = "has the invitation, instead of token"),
    OMM_CONFIG_STRING(node_file, model, .fallback = "", .max = 4000,
                      .help = "base model, GGUF; none: it is fetched, and kept in state_dir"),
    OMM_CONFIG_U32(node_file, max_model_gb, .fallback = "16", .min = 1, .max = 256,
                   .help = "a base model larger than this is not fetched"),
    {.key = "mirrors",
     .kind = OMM_CONFIG_KIND_LIST,
     .offset = offsetof(node_file, mirrors),
     .optional = true,
     .max = OMM_BASE_MIRRORS_MAX,
     .item = &s_mirror,
     .item_size = sizeof(const char *),
     .help = "http:// and https:// to fetch it from, before those that the coordinator names"},
    OMM_CONFIG_BOOL(node_file, private_mirrors, .fallback = "false",
                    .help = "also fetch from mirrors in private networks and on this machine"),
    OMM_CONFIG_U32(node_file, mirror_stall_s, .fallback = "30", .min = 1, .max = 3600,
                   .help = "a mirror that gives under 1 kB/s for so long is left"),
    OMM_CONFIG_STRING(node_file, data, .fallback = "", .max = 4000,
                      .help = "chat examples, JSONL or one JSON array; required without scenario"),
    OMM_CONFIG_STRING(node_file, client, .fallback = "", .max = 128,
                      .help = "use only this client's lines of the data"),
    OMM_CONFIG_STRING(node_file, run_id, .fallback = "", .max = 32,
                      .help = "join only this run; default: any of the pinned coordinator"),
    OMM_CONFIG_U32(node_file, threads, .fallback = "0", .max = 256,
                   .help = "for training; 0: one per core"),
    OMM_CONFIG_ENUM(node_file, priority, s_priorities, .fallback = "low",
                    .help = "low: nice 19, disk last; idle: only time that nobody else wants"),
    OMM_CONFIG_U32(node_file, max_cpu_percent, .fallback = "100", .min = 1, .max = 100,
                   .help = "of all processors' time, on average while it trains"),
    OMM_CONFIG_U32(node_file, max_memory_mb, .fallback = "0", .max = 16e6,
                   .help = "of the whole process; 0: what the machine has left.  Rounds that do "
                           "not fit are declined; not with scenario"),
    OMM_CONFIG_STRING(node_file, hours, .fallback = "", .max = 60,
                      .help = "local time, as 22:00-07:00,12:00-13:00, or always; \"\": the same"),
    OMM_CONFIG_BOOL(node_file, pause_on_battery, .fallback = "true",
                    .help = "pause while the machine runs on a battery"),
    OMM_CONFIG_BOOL(node_file, pause_on_metered, .fallback = "true",
                    .help = "pause on a modem's or a telephone's network"),
    OMM_CONFIG_STRING(node_file, metered_interfaces, .fallback = "", .max = 200,
                      .help = "these are metered, too, as wlan1,eth2"),
    OMM_CONFIG_U32(node_file, max_load_percent, .fallback = "50", .min = 1, .max = 100,
                   .help = "pause while others take more of the processors; 100: never"),
    OMM_CONFIG_U32(node_file, max_heat_c, .fallback = "85", .max = 120,
                   .help = "pause from this heat of the processor on; 0: never"),
    OMM_CONFIG_U32(node_file, pause_hold_s, .fallback = "60", .max = 86400,
                   .help = "a training keeps its memory so long in a pause, then lets go"),
    OMM_CONFIG_U32(node_file, checkpoint_steps, .fallback = "5", .min = 1, .max = 1e6,
                   .help = "training steps between checkpoints"),
    OMM_CONFIG_U64(node_file, answer_ms, .fallback = "60000", .min = 100, .max = 3600000,
                   .help = "without an answer for so long, a request is sent again"),
    OMM_CONFIG_MAP(node_file, limits, s_limits, .help = "offers beyond these are declined"),
    OMM_CONFIG_STRING(node_file, log_level, .fallback = "info", .max = 8,
                      .help = "debug, info, warn, error"),
    {0}};

omm_err node_file_put(omm_buf *out, const char *key, const char *text) {
    json_t *value = json_string(text);
    char *quoted = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    const omm_err err = quoted ? omm_buf_printf(out, "%s: %s\n", key, quoted)
                               : omm_raise(OMM_ERR_CONFIG, "%s: not UTF-8 text", key);
    free(quoted);
    json_decref(value);
    return err;
}

omm_err node_file_rules(omm_guest_rules *out, const node_file *file) {
    *out = (omm_guest_rules){.hours_text = file->hours,
                             .max_cpu_percent = file->max_cpu_percent,
                             .max_load_percent = file->max_load_percent,
                             .max_heat_c = file->max_heat_c,
                             .pause_on_battery = file->pause_on_battery,
                             .pause_on_metered = file->pause_on_metered,
                             .metered = file->metered_interfaces};
    return omm_hours_parse(&out->hours, file->hours);
}

omm_node_limits node_file_limits(const node_file *file) {
    const node_limits_file *limits = &file->limits;
    return (omm_node_limits){.rank_max = limits->rank_max,
                             .steps_max = limits->steps_max,
                             .tokens_max = limits->tokens_max,
                             .pass_tokens_max = limits->pass_tokens_max,
                             .adapter_values_max = limits->adapter_values_max,
                             .download_bytes_max = limits->download_bytes_max,
                             .upload_bytes_max = limits->upload_bytes_max,
                             .work_bits_max = limits->work_bits_max};
}

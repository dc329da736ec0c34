/* node_config.h - node.yaml: what a volunteer's node may be told, and the rules of a guest in it. */
#ifndef CLI_NODE_CONFIG_H
#define CLI_NODE_CONFIG_H

#include "omm/bytes.h"
#include "omm/config.h"
#include "omm/guest.h"
#include "omm/node.h"

typedef struct node_limits_file {
    uint32_t rank_max, steps_max, work_bits_max;
    uint64_t tokens_max, pass_tokens_max;
    uint64_t adapter_values_max, download_bytes_max, upload_bytes_max;
} node_limits_file;

typedef struct node_file {
    const char *coordinator, *name, *state_dir, *scenario, *key, *coordinator_key, *model, *data,
        *client, *run_id, *log_level, *tls_certificate, *passphrase_file, *token, *token_file;
    uint32_t threads, checkpoint_steps;
    uint64_t answer_ms;
    int priority; /* omm_priority */
    uint32_t max_cpu_percent, max_memory_mb, max_load_percent, max_heat_c, pause_hold_s;
    const char *hours, *metered_interfaces;
    bool pause_on_battery, pause_on_metered;
    uint32_t max_model_gb, mirror_stall_s;
    omm_config_list mirrors; /* const char * */
    bool private_mirrors;
    node_limits_file limits;
} node_file;

extern const omm_config_field node_fields[];

/* Append the line "key: text", the text as JSON writes it, which YAML reads.  Errors: CONFIG (not UTF-8), TOO_BIG, NOMEM. */
OMM_CHECKED omm_err node_file_put(omm_buf *out, const char *key, const char *text);
/* Errors: CONFIG (hours). */
OMM_CHECKED omm_err node_file_rules(omm_guest_rules *out, const node_file *file);
omm_node_limits node_file_limits(const node_file *file);

#endif

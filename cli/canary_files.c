/* canary_files.c - see canary_files.h. */
#include "canary_files.h"

#include "omm/shard.h"

#include <string.h>

static const omm_config_field s_shard = {
    .key = "file", .kind = OMM_CONFIG_KIND_STRING, .min = 1, .max = 4000};

const omm_config_field canary_fields[] = {
    {.key = "shards",
     .kind = OMM_CONFIG_KIND_LIST,
     .offset = offsetof(canary_file, shards),
     .optional = true,
     .max = OMM_COORD_SHARDS_MAX,
     .item = &s_shard,
     .item_size = sizeof(const char *),
     .help = "chat JSONL, or one JSON array, that anybody may see, 4 MiB each; none: there are no "
             "canaries"},
    OMM_CONFIG_U32(canary_file, passes, .fallback = "2", .max = OMM_COORD_CANARY_PASSES_MAX,
                   .help = "of a node that came by work, before it counts"),
    OMM_CONFIG_REAL(canary_file, share, .fallback = "0", .min = 0, .max = 1,
                    .help = "of every node's turns that are a canary instead"),
    OMM_CONFIG_U32(canary_file, threads, .fallback = "1", .min = 1, .max = 64,
                   .help = "that train canaries again, one at a time, beside the rounds"),
    {0}};

static omm_err load_one(omm_coord_shard *out, service_env *env, const char *name) {
    const char *path = NULL;
    omm_buf text, lines;
    OMM_TRY(service_path(&path, env, name));
    omm_buf_init(&text, OMM_CANARY_BYTES_MAX);
    omm_buf_init(&lines, OMM_CANARY_BYTES_MAX);
    omm_err err = omm_file_read(&text, path);
    if (err == OMM_ERR_TOO_BIG || (err == OMM_OK && text.size == 0))
        err = omm_raise(OMM_ERR_CONFIG, "canary.shards: %s; accepted: 1 to %u bytes", name,
                        OMM_CANARY_BYTES_MAX);
    else
        err = omm_err_about(err, "canary.shards");
    if (err == OMM_OK) {
        err = omm_shard_lines(&lines, omm_buf_view(&text), path);
        if (err == OMM_ERR_FORMAT)
            err = omm_raise(OMM_ERR_CONFIG, "canary.shards: %s", omm_err_sentence());
    }
    if (err == OMM_OK && lines.size == 0)
        err = omm_raise(OMM_ERR_CONFIG,
                        "canary.shards: %s: blank lines alone; accepted: %u "
                        "examples or more, in at most %u bytes",
                        name, OMM_SHARD_EXAMPLES_MIN, OMM_CANARY_BYTES_MAX);
    uint8_t *copy = err == OMM_OK ? omm_arena_alloc(&env->arena, lines.size, 1) : NULL;
    if (err == OMM_OK && !copy) err = omm_raise(OMM_ERR_NOMEM, "%s", name);
    if (err == OMM_OK) {
        memcpy(copy, lines.data, lines.size);
        *out = (omm_coord_shard){.name = name, .text = omm_bytes_of(copy, lines.size)};
    }
    omm_buf_fini(&lines);
    omm_buf_fini(&text);
    return err;
}

omm_err canary_files_load(const omm_coord_canaries **out, service_env *env,
                          const canary_file *file) {
    const size_t count = file->shards.count;
    const char *const *names = file->shards.items;
    *out = NULL;
    if (count == 0 && file->share > 0)
        return omm_raise(OMM_ERR_CONFIG, "canary.share: %g needs canary.shards", file->share);
    if (count == 0) return OMM_OK;
    omm_coord_shard *shards = omm_arena_alloc(&env->arena, count, sizeof *shards);
    omm_coord_canaries *all = omm_arena_alloc(&env->arena, 1, sizeof *all);
    if (!shards || !all) return omm_raise(OMM_ERR_NOMEM, "canaries");
    for (size_t i = 0; i < count; i++) OMM_TRY(load_one(&shards[i], env, names[i]));
    *all = (omm_coord_canaries){
        .shards = shards, .shard_count = count, .passes = file->passes, .share = file->share};
    *out = all;
    return OMM_OK;
}

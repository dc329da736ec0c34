/* train_full.c - see train_full.h. */
#include "train_full.h"

#include "full_run.h"

#include "omm/file.h"
#include "omm/full.h"
#include "omm/quantise.h"

#include <string.h>

/* Rank, alpha and targets have been refused by train_parse. */
omm_err train_full_check(const train_args *a) {
    const struct {
        bool given;
        const char *option;
    } options[] = {{a->start.count > 0, "--start"},
                   {a->rank_pattern != NULL, "--rank-pattern"},
                   {a->alpha_pattern != NULL, "--alpha-pattern"},
                   {strcmp(a->parts, "ab") != 0, "--parts"},
                   {a->dropout != 0, "--dropout"},
                   {a->prox != 0, "--prox"},
                   {a->lora_plus != 0, "--lora-plus"},
                   {a->rslora, "--rslora"}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].given)
            return omm_raise(OMM_ERR_USAGE, "%s does not go with --full", options[i].option);
    return full_run_check_type(a->type);
}

omm_err train_full_open(train_run *r) {
    const train_args *a = &r->args;
    const omm_full_options options = {
        .model = &r->model,
        .data = r->data,
        .recipe = &r->recipe,
        .compute = &r->compute,
        .like = &r->like,
        .seed = omm_seed_from_u64(a->seed),
        .galore = {a->galore ? a->galore_rank : 0, a->galore_every, a->galore_scale},
        .cancelled = kept_run_is_stopped,
        .micro_tokens = r->plan.micro_tokens,
        .cache_bytes_max = r->plan.cache,
        .checkpoint_layers = r->plan.checkpoint_layers};
    const omm_err err = omm_full_open(&r->full, &options);
    omm_gguf_release_all(&r->like); /* its keys have been read */
    return err;
}

omm_err train_full_save(const train_run *r, omm_digest *digest) {
    omm_buf file;
    omm_course_settle(r->course);
    OMM_TRY(omm_gguf_check_unchanged(&r->like));
    omm_buf_init(&file, FULL_RUN_BYTES_MAX);
    omm_model model = r->model; /* the same weights: settled, and all F32 */
    omm_err err = omm_full_save(&file, &model, &r->like);
    if (err == OMM_OK)
        err = full_run_write(r->args.out, r->args.type, r->pool, omm_buf_view(&file));
    omm_buf_fini(&file);
    OMM_TRY(err);
    return omm_hash_file(digest, r->args.out);
}

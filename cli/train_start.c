/* train_start.c - the adapter that training starts from: one file, or several joined, times their weights. */
#include "loaded.h"
#include "train_run.h"

#include "omm/lora.h"

typedef struct starts {
    omm_lora parts[CLI_LIST_MAX];
    const omm_lora *pointers[CLI_LIST_MAX];
    float weights[CLI_LIST_MAX];
    uint32_t count;
} starts;

static omm_err load_all(starts *s, train_run *r) {
    omm_lora_shape shape = r->model.lora_shape;
    shape.base.any = r->args.any_base;
    for (uint32_t i = 0; i < r->args.start.count; i++) {
        char path[OMM_PATH_MAX];
        OMM_TRY(loaded_split_scale(path, &s->weights[i], r->args.start.items[i], "--start"));
        if (s->weights[i] == 0.0f)
            return omm_raise(OMM_ERR_USAGE, "--start %s: with a weight of 0 it changes nothing",
                             r->args.start.items[i]);
        OMM_TRY(omm_lora_load_file(&s->parts[i], path, &shape));
        s->pointers[i] = &s->parts[i];
        s->count++;
        if (r->args.report) OMM_TRY(omm_hash_file(&r->start_files[i], path));
    }
    return OMM_OK;
}

/* One as it is keeps its bytes; else B takes what scales and weights differ by. */
static omm_err join(train_run *r, starts *s) {
    if (s->count == 1 && s->weights[0] == 1) {
        r->start = s->parts[0];
        s->count = 0;
        return OMM_OK;
    }
    return omm_lora_join(&r->start, &r->start_rounded, s->pointers, s->weights, s->count, true);
}

omm_err train_start_open(train_run *r) {
    starts s = {.count = 0};
    if (r->args.start.count == 0) return OMM_OK;
    omm_err err = load_all(&s, r);
    if (err == OMM_OK) err = join(r, &s);
    r->has_start = err == OMM_OK;
    if (err == OMM_OK) /* alphas that differ are trained as they were */
        err = cli_of_file(omm_lora_unfold(&r->start), "--start", r->args.start.items[0]);
    for (uint32_t i = 0; i < s.count; i++) omm_lora_fini(&s.parts[i]);
    return err;
}

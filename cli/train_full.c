/* train_full.c - what `train --full` opens; full_run.c does the rest. */
#include "train_full.h"

#include "full_run.h"
#include "loaded.h"
#include "threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREAD_ROWS = 64 };

/* What is about adapters, or not there yet for all weights. */
static omm_err check(const train_args *a) {
    const struct {
        bool given;
        const char *option;
    } options[] = {{a->start.count > 0, "--start"},
                   {a->rank_pattern != NULL, "--rank-pattern"},
                   {a->alpha_pattern != NULL, "--alpha-pattern"},
                   {strcmp(a->parts, "ab") != 0, "--parts"},
                   {a->clients != NULL, "--clients"},
                   {a->dropout != 0, "--dropout"},
                   {a->prox != 0, "--prox"},
                   {a->lora_plus != 0, "--lora-plus"},
                   {a->rslora, "--rslora"},
                   {a->patience != 0, "--patience"},
                   {strcmp(a->keep, "last") != 0, "--keep best"},
                   {a->report != NULL, "--report"},
                   {a->dry_run, "--dry-run"},
                   {a->max_memory_mb != 0, "--max-memory-mb"},
                   {a->checkpoint_layers != 0, "--checkpoint-layers"}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].given)
            return omm_raise(OMM_ERR_USAGE, "%s does not go with --full", options[i].option);
    if (a->eval_every && !a->eval && a->split == 0)
        return omm_raise(OMM_ERR_USAGE, "--eval-every needs --eval FILE or --split X");
    return OMM_OK;
}

static omm_err open_model(full_run *r, const train_args *a, omm_isa isa) {
    unsigned threads = 0;
    OMM_TRY(cli_threads_parse(&threads, a->threads));
    OMM_TRY(omm_gguf_open(&r->gguf, a->model));
    r->is_open = true;
    OMM_TRY(omm_tokenizer_open(&r->tokenizer, &r->gguf));
    OMM_TRY(omm_model_load(&r->model, &r->gguf));
    cli_warn_template(r->tokenizer);
    OMM_TRY(cli_threads_measure(&threads, &r->model, isa, THREAD_ROWS));
    OMM_TRY(omm_pool_open(&r->pool, threads));
    return omm_compute_init(&r->compute, r->pool, isa);
}

static omm_err open_eval(full_run *r, const train_args *a) {
    omm_dataset_options options;
    OMM_TRY(data_options_resolve(&options, &a->data_options, r->model.dims.context));
    options.loss = OMM_LOSS_DEFAULT; /* what is judged are replies, whatever is learned */
    if (omm_dataset_totals(r->data)->format == OMM_DATA_TEXT) options.seq_max = a->seq;
    return omm_dataset_load(&r->valid, a->eval, r->tokenizer, &options);
}

static omm_err open_split(full_run *r, const train_args *a) {
    const char *by = a->split_by ? a->split_by : "item";
    const bool by_client = strcmp(by, "client") == 0;
    if (!by_client && strcmp(by, "item") != 0)
        return omm_raise(OMM_ERR_USAGE, "--split-by '%.40s'; accepted: item, client", by);
    omm_dataset *all = r->data, *kept = NULL;
    OMM_TRY(omm_dataset_split(&kept, &r->valid, all, (double)a->split, by_client));
    r->data = kept;
    omm_dataset_close(all);
    return OMM_OK;
}

static omm_err open_data(full_run *r, const train_args *a) {
    omm_dataset_options options;
    if (a->split != 0 && a->eval)
        return omm_raise(OMM_ERR_USAGE, "--split holds out examples where --eval names none: one "
                                        "of them is enough");
    OMM_TRY(data_options_resolve(&options, &a->data_options, a->seq));
    OMM_TRY(data_open(&r->data, a->data, r->tokenizer, &options, a->stream));
    if (a->split != 0) return open_split(r, a);
    return a->eval ? open_eval(r, a) : OMM_OK;
}

static omm_err run_all(full_run *r, const train_args *a) {
    omm_recipe recipe;
    omm_isa isa = OMM_ISA_SCALAR;
    const omm_full_galore galore = {a->galore ? a->galore_rank : 0, a->galore_every,
                                    a->galore_scale};
    OMM_TRY(check(a));
    OMM_TRY(full_run_check(&r->options));
    OMM_TRY(train_recipe(&recipe, a));
    OMM_TRY(omm_isa_choose(&isa, getenv("OMM_ISA")));
    OMM_TRY(open_model(r, a, isa));
    OMM_TRY(open_data(r, a));
    OMM_TRY(full_run_open(r, &recipe, a->seed, &galore));
    OMM_TRY(full_run_steps(r));
    OMM_TRY(full_run_save(r));
    return full_run_report(r);
}

omm_err train_full(const train_args *args) {
    full_run r = {.options = {.out = args->out,
                              .checkpoint = args->checkpoint,
                              .type = args->type,
                              .checkpoint_every = args->checkpoint_every,
                              .judge_every = args->eval_every,
                              .judge_start = true,
                              .resume = args->resume,
                              .json = args->json}};
    omm_err err = run_all(&r, args);
    full_run_close(&r);
    return err;
}

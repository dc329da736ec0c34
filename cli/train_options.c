/* train_options.c - the option table of `train`, and its recipe. */
#include "train_options.h"

#include "kept_run.h"
#include "loaded.h"
#include "options.h"
#include "threads.h"

#include "omm/lora.h"

#include <stdio.h>
#include <string.h>

#define CHECKPOINT_EVERY 50

/* What was not given: nobody types these. */
static const float s_unset = -0x1p-100F;
static const uint32_t s_count_unset = UINT32_MAX;
static const float s_rate_full = 0.0005F;

/* What the options begin with, given a recipe. */
static void begin_with(train_args *a, const omm_recipe *r) {
    a->base = *r;
    a->optimizer = omm_recipe_optimizers[r->optimizer];
    a->schedule = omm_recipe_schedules[r->schedule];
    a->parts = omm_recipe_parts_names[r->parts];
    a->activations = omm_recipe_activations_names[r->activations];
    a->rank = s_count_unset;
    a->alpha = s_unset;
    a->rslora = false;
    a->steps = r->steps;
    a->batch = r->batch_tokens;
    a->micro = r->micro_tokens;
    a->seq = r->seq_max;
    a->warmup = r->warmup_steps;
    a->rate = r->learning_rate;
    a->rate_min = r->lr_min_ratio;
    a->dropout = r->dropout;
    a->decay = r->weight_decay;
    a->clip = r->clip_norm;
    a->beta2 = r->beta2;
    a->prox = r->prox_mu;
    a->momentum = r->momentum;
    a->nesterov = r->nesterov;
    a->relative_step = r->relative_step;
    a->lora_plus = r->b_rate_ratio;
}

train_args train_args_default(void) {
    const omm_recipe r = omm_recipe_default();
    train_args a = {.keep = "last",
                    .checkpoint_every = CHECKPOINT_EVERY,
                    .new_tokens = s_count_unset,
                    .galore_rank = s_count_unset,
                    .galore_every = s_count_unset,
                    .galore_scale = s_unset,
                    .split = s_unset,
                    .seed = 1};
    begin_with(&a, &r);
    a.steps = 100;
    a.warmup = 5;
    a.rate = s_unset;
    return a;
}

static omm_err load_recipe(omm_recipe *out, bool *says_shape, const char *path) {
    omm_arena arena;
    omm_recipe_yaml yaml = {0};
    omm_arena_init(&arena, 1 << 20);
    omm_err err = omm_config_load(&yaml, omm_recipe_fields, path, &arena);
    if (err == OMM_OK) err = omm_recipe_from_yaml(out, &yaml);
    *says_shape = omm_recipe_says_shape(&yaml);
    omm_arena_fini(&arena);
    return err;
}

static int parse(train_args *a, int argc, char **argv) {
    const omm_config_field *keys = omm_recipe_fields;
    const cli_option options[] = {
        {"model", 'm', CLI_STR, &a->model, "FILE", "base model, GGUF"},
        {"data", 'd', CLI_STR, &a->data, "FILE",
         "what to learn: chats, prompts with completions, Alpaca, ShareGPT or {\"text\"} lines "
         "(JSONL or one JSON array), or text"},
        {"eval", 'e', CLI_STR, &a->eval, "FILE", "held-out examples: judged before and after"},
        {"split", 0, CLI_F32, &a->split, "X", "without --eval: hold out this share of the data"},
        {"split-by", 0, CLI_STR, &a->split_by, "item|client",
         "which are held out: examples (item) or clients, those of the lowest digests"},
        DATA_OPTIONS(a->data_options),
        {"stream", 0, CLI_FLAG, &a->stream, NULL,
         "read examples when needed, as for files over 64 MiB; never changes the result"},
        {"out", 'o', CLI_STR, &a->out, "FILE", "adapter to write, GGUF; with --full a model"},
        {"full", 0, CLI_FLAG, &a->full, NULL,
         "train all weights, for a model small enough: --out is then a model"},
        {"type", 0, CLI_STR, &a->type, "TYPE", "of that model's matrices, as in quantize (F16)"},
        {"clients", 0, CLI_STR, &a->clients, "A,B", "train on the examples of these clients only"},
        {"recipe", 0, CLI_STR, &a->recipe, "FILE",
         "YAML with the recipe of a scenario; what the options below say goes before it"},
        {"keys", 0, CLI_KEYS, &keys, NULL,
         "print what a recipe may say: each key, range and meaning"},
        {"rank", 'r', CLI_U32, &a->rank, "N", "rank (8)"},
        {"alpha", 0, CLI_F32, &a->alpha, "X", "scale is alpha / rank (16)"},
        {"rslora", 0, CLI_FLAG, &a->rslora, NULL, "scale is alpha / sqrt(rank)"},
        {"targets", 0, CLI_STR, &a->targets, "LIST",
         "what is adapted: all, names as q,v or attn_q,attn_v, patterns as ffn_*, with layers "
         "blk.4-7.* (all)"},
        {"rank-pattern", 0, CLI_STR, &a->rank_pattern, "LIST",
         "other ranks for some of it: ffn_*=4,blk.0.*=2; the last that names a layer counts"},
        {"alpha-pattern", 0, CLI_STR, &a->alpha_pattern, "LIST", "other alphas: ffn_*=32"},
        {"parts", 0, CLI_STR, &a->parts, "ab|a|b|core",
         "what moves: both halves; A; B alone (LoRA-FA); a core of rank x rank between frozen "
         "halves "
         "(ab)"},
        {"activations", 0, CLI_STR, &a->activations, "f32|q8",
         "what a quantised base takes in forward; q8: rounded to int8 as when it chats, another "
         "result, and faster with int8 dot products (f32)"},
        {"start", 0, CLI_LIST, &a->start, "FILE[=X]",
         "adapter to start from, times X; several are joined.  Ranks, alphas and targets are its "
         "own: others are refused"},
        ANY_BASE_OPTION(a->any_base),
        {"steps", 's', CLI_U32, &a->steps, "N", "optimiser steps (100)"},
        {"batch", 'b', CLI_U32, &a->batch, "N", "tokens per step (2048)"},
        {"micro", 0, CLI_U32, &a->micro, "N", "tokens per pass; changes memory, never the result"},
        {"seq", 0, CLI_U32, &a->seq, "N",
         "longest example in tokens (512); one beyond the model's context is trained on, with a "
         "warning"},
        {"lr", 0, CLI_F32, &a->rate, "X", "peak learning rate (0.01; with --full 0.0005)"},
        {"lr-min", 0, CLI_F32, &a->rate_min, "X", "share of the peak at the end (0.1)"},
        {"warmup", 0, CLI_U32, &a->warmup, "N", "steps of linear warmup (5)"},
        {"schedule", 0, CLI_STR, &a->schedule, "NAME",
         "after the warmup: cosine, linear, constant (cosine)"},
        {"optimizer", 0, CLI_STR, &a->optimizer, "NAME",
         "adamw, sgd, adafactor; with --full also galore (adamw)"},
        {"galore-rank", 0, CLI_U32, &a->galore_rank, "N",
         "directions of a matrix (32); one with no more than that moves whole"},
        {"galore-every", 0, CLI_U32, &a->galore_every, "N", "steps until new directions (200)"},
        {"galore-scale", 0, CLI_F32, &a->galore_scale, "X",
         "of the rate in these directions (0.25)"},
        {"momentum", 0, CLI_F32, &a->momentum, "X", "of sgd (0)"},
        {"nesterov", 0, CLI_FLAG, &a->nesterov, NULL, "sgd looks ahead by the momentum"},
        {"relative-step", 0, CLI_FLAG, &a->relative_step, NULL,
         "adafactor: --lr is a share of each tensor's own size"},
        {"lora-plus", 0, CLI_F32, &a->lora_plus, "X",
         "LoRA+: B's rate is X times A's; 0: one rate for both (0)"},
        {"dropout", 0, CLI_F32, &a->dropout, "X", "on the adapter's input (0)"},
        {"weight-decay", 0, CLI_F32, &a->decay, "X", "decoupled (0)"},
        {"clip", 0, CLI_F32, &a->clip, "X", "gradient norm at most this; 0 is off (1)"},
        {"beta2", 0, CLI_F32, &a->beta2, "X", "second moment of adamw and adafactor (0.99)"},
        {"prox", 0, CLI_F32, &a->prox, "X", "pull towards the start adapter; 0 is off"},
        {"seed", 0, CLI_U64, &a->seed, "N", "order, dropout, initial A (1)"},
        {"threads", 't', CLI_STR, &a->threads, "N|auto", CLI_THREADS_HELP},
        {"new-tokens", 0, CLI_U32, &a->new_tokens, "N",
         "longest generated reply in the evaluation; 0: losses only (64)"},
        {"eval-every", 0, CLI_U32, &a->eval_every, "N",
         "held-out loss every N steps too; 0: before and after (0)"},
        {"keep", 0, CLI_STR, &a->keep, "best|last",
         "which adapter is written: of the lowest held-out loss, or the last (last)"},
        {"patience", 0, CLI_U32, &a->patience, "N",
         "stop after N evaluations in a row without a new best; 0: never (0)"},
        {"checkpoint", 0, CLI_STR, &a->checkpoint, "FILE",
         "where the run is kept, so that it can go on; also at SIGINT, SIGTERM and SIGHUP"},
        {"checkpoint-every", 0, CLI_U32, &a->checkpoint_every, "N", "steps (50)"},
        {"resume", 0, CLI_FLAG, &a->resume, NULL,
         "go on from --checkpoint if it is there: ends with the same bytes"},
        {"max-memory-mb", 0, CLI_U32, &a->max_memory_mb, "N",
         "smaller micro-batches, then layers computed again, until the memory plan is at most N "
         "million bytes"},
        {"checkpoint-layers", 0, CLI_U32, &a->checkpoint_layers, "N",
         "layers computed again in backward, at least N: memory for time, never the result (0)"},
        {"dry-run", 0, CLI_FLAG, &a->dry_run, NULL,
         "what memory and time it takes, from the plan and two steps; writes nothing"},
        {"report", 0, CLI_STR, &a->report, "DIR",
         "write DIR/report.json and DIR/report.html: curves, before and after, cost"},
        {"json", 0, CLI_FLAG, &a->json, NULL,
         "JSON on stdout, one object a line: events, then the result"},
        {0}};
    int count = 0;
    char **rest = NULL;
    const char *usage = "train -m BASE --data FILE --out ADAPTER [options]";
    int code = cli_parse(
        &count, &rest, argc, argv, options, usage,
        "Train a LoRA adapter on chats, completions or text.  The same arguments give the same\n"
        "bytes on any machine and with any number of threads.  SIGINT, SIGTERM and SIGHUP\n"
        "end it with exit code 3: with --checkpoint it can go on, without it nothing is kept.\n"
        "A file that --out names is replaced, once there is an adapter to put there.",
        0, 0);
    if (code >= 0) return code;
    if (a->model && a->data && (a->out || a->dry_run)) return -1;
    fprintf(stderr,
            "meshmind train: --model, --data and --out (or --dry-run) are needed\n"
            "usage: meshmind %s\n",
            usage);
    return CLI_EXIT_USAGE;
}

static bool leaves_b_alone(const train_args *a) {
    return strcmp(a->parts, "a") == 0 || strcmp(a->parts, "core") == 0;
}

/* An option that does nothing with the others is a mistake of whoever typed it. */
static omm_err check_idle(const train_args *a) {
    const struct {
        bool is_idle;
        const char *sentence;
    } all[] = {
        {!a->full && strcmp(a->optimizer, "galore") == 0, "--optimizer galore needs --full"},
        {strcmp(a->optimizer, "muon") == 0, "--optimizer muon is of pretrain"},
        {!a->full && a->type, "--type needs --full"},
        {a->any_base && a->start.count == 0, "--any-base needs --start FILE"},
        {!a->galore && a->galore_rank != s_count_unset, "--galore-rank needs --optimizer galore"},
        {!a->galore && a->galore_every != s_count_unset, "--galore-every needs --optimizer galore"},
        {!a->galore && a->galore_scale != s_unset, "--galore-scale needs --optimizer galore"},
        {strcmp(a->optimizer, "sgd") == 0 && a->beta2 != a->base.beta2,
         "--beta2 is of adamw and adafactor"},
        {strcmp(a->schedule, "constant") == 0 && a->rate_min != a->base.lr_min_ratio,
         "--lr-min does not go with --schedule constant"},
        {leaves_b_alone(a) && a->lora_plus != a->base.b_rate_ratio,
         "--lora-plus is the rate of B, which --parts a and core leave alone"},
        {!a->full && a->start.count == 0 && strcmp(a->parts, "a") == 0,
         "--parts a needs --start: B begins at 0, where A has no gradient"},
        {!a->checkpoint && a->checkpoint_every != CHECKPOINT_EVERY,
         "--checkpoint-every needs --checkpoint"},
        {a->galore && a->galore_rank == 0, "--galore-rank 0; accepted: 1 and more"},
        {a->full && a->recipe,
         "--recipe does not go with --full: it says how adapters are trained"},
        {a->full && a->rank != s_count_unset, "--rank does not go with --full"},
        {a->full && a->alpha != s_unset, "--alpha does not go with --full"},
        {a->full && a->targets, "--targets does not go with --full"},
        {a->full && strcmp(a->activations, "f32") != 0, "--activations does not go with --full"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].is_idle) return omm_raise(OMM_ERR_USAGE, "%s", all[i].sentence);
    return OMM_OK;
}

/* How a run is judged and kept. */
static omm_err check_judging(const train_args *a) {
    const bool is_split = a->split != s_unset, is_best = strcmp(a->keep, "best") == 0;
    const char *by = a->split_by ? a->split_by : "item";
    if (is_split && !(a->split > 0 && a->split < 1))
        return omm_raise(OMM_ERR_USAGE, "--split %g; accepted: over 0 and under 1",
                         (double)a->split);
    if (is_split && a->eval)
        return omm_raise(OMM_ERR_USAGE, "--split holds out examples where --eval names none: one "
                                        "of them is enough");
    if (a->split_by && !is_split)
        return omm_raise(OMM_ERR_USAGE, "--split-by says what --split X holds out: X is missing");
    if (strcmp(by, "client") != 0 && strcmp(by, "item") != 0)
        return omm_raise(OMM_ERR_USAGE, "--split-by '%.40s'; accepted: item, client", by);
    if (!is_best && strcmp(a->keep, "last") != 0)
        return omm_raise(OMM_ERR_USAGE, "--keep '%.40s'; accepted: best, last", a->keep);
    if ((a->patience || is_best) && !a->eval_every)
        return omm_raise(OMM_ERR_USAGE, "--keep best and --patience need --eval-every N");
    if (a->eval_every && !a->eval && !is_split)
        return omm_raise(OMM_ERR_USAGE, "--eval-every needs --eval FILE or --split X");
    return kept_run_check(a->checkpoint, a->checkpoint_every, a->resume);
}

static void settle(train_args *a) {
    if (a->rate == s_unset) a->rate = a->full ? s_rate_full : omm_recipe_default().learning_rate;
    if (!a->type) a->type = "F16";
    if (a->galore_rank == s_count_unset) a->galore_rank = 32;
    if (a->galore_every == s_count_unset) a->galore_every = 200;
    if (a->galore_scale == s_unset) a->galore_scale = 0.25F;
    if (a->split == s_unset) a->split = 0;
    a->answers_nothing =
        a->new_tokens != s_count_unset && a->new_tokens > 0 && !a->eval && a->split == 0;
    if (a->new_tokens == s_count_unset) a->new_tokens = 64;
}

int train_parse(train_args *a, int argc, char **argv) {
    int code = parse(a, argc, argv);
    if (code >= 0) return code;
    if (a->recipe) { /* once more, over the recipe */
        omm_recipe recipe;
        bool says_shape = false;
        omm_err err = load_recipe(&recipe, &says_shape, a->recipe);
        if (err != OMM_OK) return cli_fail("train", err);
        *a = train_args_default();
        begin_with(a, &recipe);
        (void)parse(a, argc, argv);
        a->recipe_says_shape = says_shape;
    }
    a->galore = a->full && strcmp(a->optimizer, "galore") == 0;
    omm_err err = check_idle(a);
    if (err == OMM_OK) err = check_judging(a);
    if (err != OMM_OK) return cli_fail("train", err);
    settle(a);
    return -1;
}

bool train_is_like_start(const train_args *a) {
    return a->start.count > 0 && !a->recipe_says_shape && a->rank == s_count_unset &&
           a->alpha == s_unset && !a->rslora && !a->targets && !a->rank_pattern &&
           !a->alpha_pattern;
}

/* `more`: what else is accepted, taken by who asks. */
static omm_err choose(uint32_t *out, const char *option, const char *name,
                      const char *const *choices, const char *more) {
    char accepted[64] = "";
    for (uint32_t i = 0; choices[i]; i++) {
        if (strcmp(choices[i], name) == 0) {
            *out = i;
            return OMM_OK;
        }
        size_t used = strlen(accepted);
        snprintf(accepted + used, sizeof accepted - used, "%s%s", i ? ", " : "", choices[i]);
    }
    return omm_raise(OMM_ERR_USAGE, "--%s '%.40s'; accepted: %s%s", option, name, accepted, more);
}

omm_err train_say_option(omm_err err, const char *file) {
    static const struct {
        const char *field, *option;
    } all[] = {{"rank", "rank"},
               {"alpha", "alpha"},
               {"steps", "steps"},
               {"batch_tokens", "batch"},
               {"micro_tokens", "micro"},
               {"seq_max", "seq"},
               {"learning_rate", "lr"},
               {"lr_min_ratio", "lr-min"},
               {"warmup_steps", "warmup"},
               {"dropout", "dropout"},
               {"weight_decay", "weight-decay"},
               {"clip_norm", "clip"},
               {"beta2", "beta2"},
               {"prox_mu", "prox"},
               {"momentum", "momentum"},
               {"nesterov", "nesterov"},
               {"relative_step", "relative-step"},
               {"b_rate_ratio", "lora-plus"},
               {"activations", "activations"},
               {"rank_pattern", "rank-pattern"},
               {"alpha_pattern", "alpha-pattern"}};
    static const char prefix[] = "recipe: ";
    if (err != OMM_ERR_CONFIG) return err;
    const char *said = omm_err_sentence();
    if (strncmp(said, prefix, sizeof prefix - 1) != 0) return err;
    said += sizeof prefix - 1;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const size_t length = strlen(all[i].field);
        if (strncmp(said, all[i].field, length) != 0) continue;
        if (said[length] == ':')
            said += length + 2; /* what follows is no sentence about the field */
        else if (said[length] != ' ')
            continue;
        return file ? omm_raise(err, "--%s, or %s: %s", all[i].option, file, said)
                    : omm_raise(err, "--%s: %s", all[i].option, said);
    }
    return err;
}

/* "attn_q, ffn_*": spaces round a comma are no part of a name, and no recipe has them. */
static omm_err without_spaces(char text[OMM_RECIPE_TEXT], const char *option, const char *list) {
    size_t used = 0;
    for (const char *at = list; *at; at++) {
        const size_t spaces = strspn(at, " ");
        const bool at_comma = at == list || at[-1] == ',' || at[spaces] == ',' || !at[spaces];
        if (spaces > 0 && at_comma) at += spaces;
        if (!*at) break;
        if (used == OMM_RECIPE_TEXT - 1)
            return omm_raise(OMM_ERR_USAGE, "--%s: over %u bytes", option, OMM_RECIPE_TEXT - 1);
        text[used++] = *at;
    }
    text[used] = 0;
    return OMM_OK;
}

static omm_err set_patterns(omm_recipe *r, const train_args *a) {
    char targets[OMM_RECIPE_TEXT], ranks[OMM_RECIPE_TEXT], alphas[OMM_RECIPE_TEXT];
    if (a->targets) {
        OMM_TRY(without_spaces(targets, "targets", a->targets));
        OMM_TRY(omm_recipe_set_targets(r, targets));
    }
    if (a->rank_pattern) OMM_TRY(without_spaces(ranks, "rank-pattern", a->rank_pattern));
    if (a->alpha_pattern) OMM_TRY(without_spaces(alphas, "alpha-pattern", a->alpha_pattern));
    return omm_recipe_set_patterns(r, a->rank_pattern ? ranks : a->base.rank_pattern,
                                   a->alpha_pattern ? alphas : a->base.alpha_pattern);
}

omm_err train_recipe(omm_recipe *out, const train_args *a) {
    omm_recipe r = a->base;
    OMM_TRY(set_patterns(&r, a));
    OMM_TRY(choose(&r.parts, "parts", a->parts, omm_recipe_parts_names, ""));
    if (!a->galore)
        OMM_TRY(choose(&r.optimizer, "optimizer", a->optimizer, omm_recipe_optimizers,
                       a->full ? ", galore" : ""));
    OMM_TRY(choose(&r.schedule, "schedule", a->schedule, omm_recipe_schedules, ""));
    OMM_TRY(
        choose(&r.activations, "activations", a->activations, omm_recipe_activations_names, ""));
    if (a->rank != s_count_unset) r.rank = a->rank;
    if (a->alpha != s_unset) r.alpha = a->alpha;
    r.steps = a->steps;
    r.batch_tokens = a->batch;
    r.micro_tokens = a->micro;
    r.seq_max = a->seq;
    r.learning_rate = a->rate;
    r.lr_min_ratio = a->rate_min;
    r.warmup_steps = a->warmup;
    r.dropout = a->dropout;
    r.weight_decay = a->decay;
    r.clip_norm = a->clip;
    r.beta2 = a->beta2;
    r.prox_mu = a->prox;
    r.momentum = a->momentum;
    r.nesterov = a->nesterov;
    r.relative_step = a->relative_step;
    r.rslora = r.rslora || a->rslora;
    r.b_rate_ratio = a->lora_plus;
    OMM_TRY(train_say_option(omm_recipe_validate(&r), a->recipe));
    *out = r;
    return OMM_OK;
}

void train_warn_of_rate(const omm_recipe *r, const char *warmup, const char *steps,
                        const char *rate) {
    if (r->learning_rate == 0 && !r->relative_step) {
        fprintf(stderr, "%s 0: nothing is learned: what comes out is what the run starts from\n",
                rate);
        return;
    }
    if (r->warmup_steps <= r->steps) return;
    fprintf(stderr,
            "%s %u is longer than %s %u: the rate ends at %.3g, and does not come to %s %.3g\n",
            warmup, r->warmup_steps, steps, r->steps,
            (double)r->learning_rate * (double)r->steps / (double)r->warmup_steps, rate,
            (double)r->learning_rate);
}

/* agreement.c - see omm/agreement.h: scenario.yaml against run.json, member by member. */
#include "omm/agreement.h"

#include "omm/lora.h"
#include "omm/scenario.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define AGREEMENT_ARENA_BYTES_MAX (64u << 20) /* a YAML of 1 MiB in lists of one letter each */

typedef struct agreement {
    omm_arena *arena;
    const omm_scenario *s;
    const omm_run_record *run;
    const char **about;
} agreement;

static omm_err check_text(const char *key, const char *says, const char *run) {
    if (strcmp(says, run) == 0) return OMM_OK;
    return omm_raise(OMM_ERR_MISMATCH, "%s: %.64s, and run.json says %.64s", key, says, run);
}

/* Whole numbers of either file are below 2^53. */
static omm_err check_number(const char *key, double says, double run) {
    if (says == run) return OMM_OK;
    return omm_raise(OMM_ERR_MISMATCH, "%s: %.15g, and run.json says %.15g", key, says, run);
}

static const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static omm_err check_numbers(const agreement *a) {
    const omm_scenario *s = a->s;
    const omm_run_record *run = a->run;
    OMM_TRY(check_text("name", s->name, run->name));
    OMM_TRY(check_text("model", file_name(s->model), run->base.name));
    OMM_TRY(check_number("rounds", s->rounds, run->rounds));
    OMM_TRY(check_number("round.loss_increase_max", s->round.loss_increase_max,
                         run->loss_increase_max));
    OMM_TRY(check_number("aggregation.value_max", s->aggregation.value_max, run->value_max));
    OMM_TRY(check_number("aggregation.weight_sum_max", (double)s->aggregation.weight_sum_max,
                         (double)run->weight_sum_max));
    OMM_TRY(check_number("aggregation.norm_max", s->aggregation.norm_max, run->norm_max));
    return run->has_seed ? check_number("seed", (double)s->seed, (double)run->seed) : OMM_OK;
}

/* --- recipe ----------------------------------------------------------------------------------- */

/* Where patterns give layers their own ranks, the file of the adapter is compared with them (final.gguf). */
static omm_err check_adapter(const omm_run_record *run, const omm_recipe *recipe) {
    omm_lora_spec spec;
    if (!omm_recipe_is_uniform(recipe)) return OMM_OK;
    omm_recipe_lora_spec(&spec, recipe);
    if (spec.rank == run->rank && spec.alpha == run->alpha && spec.targets == run->targets)
        return OMM_OK;
    return omm_raise(OMM_ERR_MISMATCH, "adapter: rank, alpha or targets are not the recipe's");
}

/* A simulation's nodes are all there from the start; in a service there may be room for more. */
static omm_err check_tokens(const omm_run_record *run, const omm_recipe *r) {
    const uint64_t step = r->seq_max > r->batch_tokens ? r->seq_max : r->batch_tokens;
    const uint64_t trained = r->steps * step;
    const uint64_t share = run->weight_sum_max / (run->node_count ? run->node_count : 1);
    const uint64_t most = share < trained ? share : trained;
    if (run->tokens_max == most) return OMM_OK;
    if (!run->simulated && run->tokens_max > 0 && run->tokens_max < most) return OMM_OK;
    return omm_raise(OMM_ERR_MISMATCH,
                     "tokens_max: %" PRIu64 ", and recipe, weight_sum_max and nodes give %" PRIu64,
                     run->tokens_max, most);
}

static omm_err check_recipe(const agreement *a) {
    omm_recipe says, is;
    char which[OMM_RECIPE_DIFFERENCE_BYTES];
    OMM_TRY(omm_recipe_from_yaml(&says, &a->s->recipe));
    *a->about = "run.json";
    OMM_TRY(omm_recipe_decode(&is, a->run->recipe));
    if (omm_recipe_difference(which, &is, &says)) {
        *a->about = "scenario.yaml";
        return omm_raise(OMM_ERR_MISMATCH, "recipe: run.json has another (%s)", which);
    }
    OMM_TRY(check_adapter(a->run, &is));
    OMM_TRY(check_tokens(a->run, &is));
    *a->about = "scenario.yaml";
    return OMM_OK;
}

/* --- codecs ----------------------------------------------------------------------------------- */

/* An early run says its zstd level also where nothing is packed. */
static omm_err check_codec(const char *key, const agreement *a, const omm_codec_config *config,
                           const omm_codec *run) {
    omm_codec says;
    OMM_TRY(omm_codec_resolve(&says, config, &a->run->layout));
    if (says.kind == OMM_CODEC_NONE && run->zstd_level == config->zstd_level)
        says.zstd_level = config->zstd_level;
    if (says.kind == run->kind && says.keep_count == run->keep_count &&
        says.zstd_level == run->zstd_level && says.error_feedback == run->error_feedback)
        return OMM_OK;
    return omm_raise(OMM_ERR_MISMATCH, "%s: run.json has another", key);
}

/* --- nodes of a simulation -------------------------------------------------------------------- */

typedef struct agreement_node {
    const char *name, *client;
} agreement_node;

static int by_name(const void *a, const void *b) {
    return strcmp(((const agreement_node *)a)->name, ((const agreement_node *)b)->name);
}

static omm_err check_nodes(const agreement *a) {
    const size_t n = a->run->node_count;
    size_t count = omm_scenario_node_count(a->s);
    omm_scenario_node *nodes = NULL;
    if (!a->run->simulated) return OMM_OK;
    OMM_TRY(check_number("population: nodes", (double)count, (double)n));
    OMM_TRY(omm_scenario_nodes(&nodes, &count, a->s, a->arena));
    agreement_node *says = omm_arena_alloc(a->arena, n + 1, sizeof *says);
    agreement_node *are = omm_arena_alloc(a->arena, n + 1, sizeof *are);
    if (!says || !are) return omm_raise(OMM_ERR_NOMEM, "%zu nodes", n);
    for (size_t i = 0; i < n; i++) {
        says[i] = (agreement_node){nodes[i].name, nodes[i].client ? nodes[i].client : ""};
        are[i] = (agreement_node){a->run->nodes[i].name, a->run->nodes[i].client};
    }
    qsort(says, n, sizeof *says, by_name);
    qsort(are, n, sizeof *are, by_name);
    for (size_t i = 0; i < n; i++) {
        OMM_TRY(check_text("population: a node", says[i].name, are[i].name));
        OMM_TRY(check_text("population: a node's client", says[i].client, are[i].client));
    }
    return OMM_OK;
}

/* --- all -------------------------------------------------------------------------------------- */

static omm_err check_all(const agreement *a) {
    OMM_TRY(check_numbers(a));
    OMM_TRY(check_recipe(a));
    OMM_TRY(check_codec("codec.up", a, &a->s->codec.up, &a->run->codec_up));
    OMM_TRY(check_codec("codec.down", a, &a->s->codec.down, &a->run->codec_down));
    return check_nodes(a);
}

omm_err omm_scenario_agrees(omm_scenario_facts *out, const char **about, omm_bytes text,
                            const omm_run_record *run) {
    omm_arena arena;
    omm_scenario s = {0}; /* a codec's way down has no keys for some of it */
    const agreement a = {.arena = &arena, .s = &s, .run = run, .about = about};
    *about = "scenario.yaml";
    omm_arena_init(&arena, AGREEMENT_ARENA_BYTES_MAX);
    omm_err err = omm_config_parse(&s, omm_scenario_fields, text, "scenario.yaml", &arena);
    if (err == OMM_OK) err = omm_config_check_written(text, omm_scenario_fields, &s);
    if (err == OMM_OK) err = check_all(&a);
    if (err == OMM_OK)
        *out = (omm_scenario_facts){.seed = s.seed,
                                    .steps = s.recipe.steps,
                                    .audited = s.audit.submissions,
                                    .audits_threads = s.audit.other_threads,
                                    .audits_isa = s.audit.lower_isa,
                                    .scalar_steps = s.audit.scalar_steps,
                                    .select = s.round.select,
                                    .accept_min = s.round.accept_min,
                                    .deadline_ms = s.round.deadline_ms,
                                    .round_items = s.evaluation.round_items,
                                    .seq_max = s.recipe.seq_max,
                                    .own_clients = s.evaluation.clients == 0,
                                    .generate = s.evaluation.generate,
                                    .control = s.control_uncompressed};
    omm_arena_fini(&arena);
    return err;
}

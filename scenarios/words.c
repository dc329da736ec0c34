/* words.c - what a run takes and cannot mean: data that its recipe cuts, held-out items that are there twice, a rate that is never
 * reached, a pattern that changes nothing.  Nothing of it is refused, since it may be wanted; a simulation and a service's coordinator say the same of it. */
#include "internal.h"

#include "omm/dataset.h"
#include "omm/model.h"
#include "omm/overlap.h"
#include "omm/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct listener {
    sim_warn_fn warn;
    void *ud;
} listener;

/* An item that is cut, or left out, is judged on less than its file says. */
static void of_cut(const listener *l, const char *key, const omm_dataset *data, uint32_t seq_max) {
    char sentence[256];
    const omm_data_totals *totals = data ? omm_dataset_totals(data) : NULL;
    if (!totals || (totals->truncated == 0 && totals->dropped == 0)) return;
    (void)snprintf(sentence, sizeof sentence,
                   "%s: recipe.seq_max %u cuts %" PRIu64 " of %" PRIu64
                   " examples and leaves out %" PRIu64 ", in which nothing is learned before it",
                   key, seq_max, totals->truncated, totals->examples + totals->dropped,
                   totals->dropped);
    l->warn(l->ud, sentence);
}

/* Whoever is there twice counts twice. */
static omm_err of_doubles(const listener *l, const omm_dataset *test) {
    char sentence[384];
    omm_overlap doubles;
    OMM_TRY(omm_dataset_doubles(&doubles, test));
    if (doubles.count == 0) return OMM_OK;
    int at = snprintf(sentence, sizeof sentence,
                      "test: %" PRIu64 " of %zu held-out items are there before, and count again: ",
                      doubles.count, omm_dataset_count(test));
    for (size_t i = 0; i < doubles.shown && at > 0 && (size_t)at < sizeof sentence; i++)
        at += snprintf(sentence + at, sizeof sentence - (size_t)at, "%s%s %u = %u", i ? ", " : "",
                       omm_dataset_totals(test)->is_array ? "element" : "line",
                       doubles.first[i].place, doubles.first[i].met);
    if (doubles.count > doubles.shown && at > 0 && (size_t)at < sizeof sentence)
        (void)snprintf(sentence + at, sizeof sentence - (size_t)at, ", ...");
    l->warn(l->ud, sentence);
    return OMM_OK;
}

/* A rule that changes nothing was meant to. */
static omm_err of_patterns(const listener *l, const sim_setup *setup) {
    char sentence[sizeof "recipe." + OMM_RECIPE_DOUBT_MAX] = "recipe.";
    char *const doubt = sentence + strlen(sentence);
    omm_recipe recipe;
    OMM_TRY(omm_recipe_from_yaml(&recipe, &setup->scenario.recipe));
    OMM_TRY(omm_recipe_doubt(doubt, &recipe, &omm_run_model(setup->run)->lora_shape));
    if (doubt[0]) l->warn(l->ud, sentence);
    return OMM_OK;
}

static void of_recipe(const listener *l, const omm_recipe_yaml *recipe) {
    char sentence[256];
    if (recipe->learning_rate <= 0 || recipe->warmup_steps <= recipe->steps) return;
    (void)snprintf(sentence, sizeof sentence,
                   "recipe.warmup_steps %u is longer than recipe.steps %u, and each round warms up "
                   "anew: the rate does not come to recipe.learning_rate %.3g",
                   recipe->warmup_steps, recipe->steps, (double)recipe->learning_rate);
    l->warn(l->ud, sentence);
}

/* Of a service, where others may join, nobody knows how many there will be. */
static void of_select(const listener *l, const sim_setup *setup) {
    char sentence[128];
    if (!setup->config.simulated || setup->scenario.round.select <= setup->node_count) return;
    (void)snprintf(sentence, sizeof sentence,
                   "round.select is %u, of %zu in all: every node is selected",
                   setup->scenario.round.select, setup->node_count);
    l->warn(l->ud, sentence);
}

omm_err sim_warn_words(const sim_setup *setup, sim_warn_fn warn, void *ud) {
    const listener l = {warn, ud};
    const uint32_t seq_max = setup->scenario.recipe.seq_max;
    of_cut(&l, "train", omm_run_train_data(setup->run), seq_max);
    of_cut(&l, "test", omm_run_test_data(setup->run), seq_max);
    OMM_TRY(of_doubles(&l, omm_run_test_data(setup->run)));
    of_recipe(&l, &setup->scenario.recipe);
    OMM_TRY(of_patterns(&l, setup));
    of_select(&l, setup);
    return OMM_OK;
}

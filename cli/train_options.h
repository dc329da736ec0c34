/* train_options.h - what `train` was asked for: its options, and the recipe that they make. */
#ifndef CLI_TRAIN_OPTIONS_H
#define CLI_TRAIN_OPTIONS_H

#include "data_options.h"
#include "options.h"

#include "omm/recipe.h"

typedef struct train_args {
    const char *model, *data, *eval, *out, *clients, *split_by, *threads;
    const char *recipe; /* a file; its recipe is `base`, and what the options begin with */
    omm_recipe base;
    bool recipe_says_shape; /* omm_recipe_says_shape */
    bool answers_nothing;   /* --new-tokens was given, and nothing is held out */
    cli_list start;
    const char *targets, *rank_pattern, *alpha_pattern; /* NULL: of `base` */
    const char *parts, *activations;
    data_options data_options;
    float split;
    bool stream;
    uint32_t rank, steps, batch, micro, seq, warmup, new_tokens;
    float alpha, rate, rate_min, dropout, decay, clip, beta2, prox;
    const char *optimizer, *schedule;
    float momentum, lora_plus;
    bool nesterov, relative_step, rslora;
    uint32_t eval_every, patience, checkpoint_every;
    const char *keep, *checkpoint, *report;
    uint32_t max_memory_mb, checkpoint_layers;
    bool any_base; /* of --start */
    bool resume, dry_run;
    uint64_t seed;
    bool json;
    bool full;        /* all weights instead of an adapter */
    const char *type; /* full: of the matrices in the file */
    bool galore;      /* full: --optimizer galore; the recipe has adamw */
    uint32_t galore_rank, galore_every;
    float galore_scale;
} train_args;

train_args train_args_default(void);
/* Fill from the command line; the texts are those of argv.  Returns as cli_parse does. */
int train_parse(train_args *args, int argc, char **argv);
/* No option says what is adapted: with --start it is what the start adapter has. */
bool train_is_like_start(const train_args *args);
/* Errors: CONFIG, USAGE (an optimiser or schedule that does not exist). */
OMM_CHECKED omm_err train_recipe(omm_recipe *out, const train_args *args);
/* What is wrong with a recipe is said of its field: who typed an option is told which, and of which file the field may be
 * (NULL: none).  Any other error comes back as it is. */
OMM_CHECKED omm_err train_say_option(omm_err err, const char *file);
/* On stderr, where the rate is 0, or the warmup longer than the run: allowed, as short tries have it, but few people want it.  The names
 * are those of the three numbers where the user wrote them. */
void train_warn_of_rate(const omm_recipe *r, const char *warmup, const char *steps,
                        const char *rate);

#endif

/* recipe_internal.h - what recipe.c and recipe_plan.c share. */
#ifndef TRAIN_RECIPE_INTERNAL_H
#define TRAIN_RECIPE_INTERNAL_H

#include "omm/recipe.h"

/* What can be said of the three texts without a model.  Errors: CONFIG, naming field and rule. */
OMM_CHECKED omm_err recipe_check_patterns(const omm_recipe *recipe);

#endif

/* recipe_internal.h - what recipe.c and recipe_plan.c share. */
#ifndef TRAIN_RECIPE_INTERNAL_H
#define TRAIN_RECIPE_INTERNAL_H

#include "omm/recipe.h"

enum { RECIPE_DIFFERENCE_BYTES = 96 };

/* What can be said of the three texts without a model.  Errors: CONFIG, naming field and rule. */
OMM_CHECKED omm_err recipe_check_patterns(const omm_recipe *recipe);

/* The first of all members that differs, as "steps is 3 there, 5 here", for messages; of names and texts only which.
 * False: none does. */
bool recipe_difference(char out[RECIPE_DIFFERENCE_BYTES], const omm_recipe *there,
                       const omm_recipe *here);

#endif

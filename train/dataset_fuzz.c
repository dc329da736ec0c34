/* dataset_fuzz.c - any bytes as a JSONL file: refused with a reason, or a data set that keeps its
 * promises.  The same bytes go to the recipe's decoder. */
#include "omm/dataset.h"
#include "omm/gguf.h"
#include "omm/recipe.h"
#include "omm/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void dataset_fuzz_end(void);

static omm_tokenizer *s_tokenizer; /* the vocabulary of the base model, opened once */

static const omm_tokenizer *vocabulary(void) {
    if (s_tokenizer) return s_tokenizer;
    char path[512];
    omm_gguf gguf;
    const char *root = getenv("OMM_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/scenarios/base/openmeshmind-tiny-F16.gguf", root ? root : ".");
    OMM_ASSERT(omm_gguf_open(&gguf, path) == OMM_OK);
    OMM_ASSERT(omm_tokenizer_open(&s_tokenizer, &gguf) == OMM_OK);
    omm_gguf_close(&gguf);
    return s_tokenizer;
}

/* For dataset_test, which replays the corpus and counts what is left on the heap. */
void dataset_fuzz_end(void) {
    omm_tokenizer_close(s_tokenizer);
    s_tokenizer = NULL;
}

static void check_example(const omm_example *e, uint32_t vocab) {
    uint32_t learned = 0;
    OMM_ASSERT(e->count >= 2);
    OMM_ASSERT(!e->learn[0]);
    for (uint32_t i = 0; i < e->count; i++) {
        OMM_ASSERT(e->ids[i] < vocab);
        learned += e->learn[i];
        OMM_ASSERT(i >= e->prompt_count || !e->learn[i]);
    }
    OMM_ASSERT(learned == e->learn_count);
    OMM_ASSERT(learned > 0);
    OMM_ASSERT(strlen(e->client) <= OMM_DATASET_NAME_BYTES_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const omm_tokenizer *tokenizer = vocabulary();
    omm_dataset *set = NULL;
    omm_recipe recipe;
    if (omm_recipe_decode(&recipe, omm_bytes_of(data, size)) == OMM_OK)
        OMM_ASSERT(omm_recipe_validate(&recipe) == OMM_OK);
    omm_dataset_options options = {.seq_max = 64};
    if (omm_dataset_parse(&set, omm_bytes_of(data, size), "fuzz", tokenizer, &options) != OMM_OK)
        return 0;
    for (size_t i = 0; i < omm_dataset_count(set); i++)
        check_example(omm_dataset_example(set, i), omm_tokenizer_vocab(tokenizer));
    omm_dataset_close(set);
    return 0;
}

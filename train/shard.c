/* shard.c - see shard.h. */
#include "omm/shard.h"

omm_err omm_shard_parse(omm_dataset **out, omm_bytes text, const char *name,
                        const struct omm_tokenizer *tokenizer, const omm_recipe *recipe) {
    const omm_dataset_options options = {
        .seq_max = recipe->seq_max, .format = OMM_DATA_CHAT, .client_default = "canary"};
    omm_dataset *data = NULL;
    OMM_TRY(omm_dataset_parse(&data, text, name, tokenizer, &options));
    const size_t count = omm_dataset_count(data);
    if (count >= OMM_SHARD_EXAMPLES_MIN) {
        *out = data;
        return OMM_OK;
    }
    omm_dataset_close(data);
    return omm_raise(OMM_ERR_CONFIG, "%s: %zu examples; accepted: %u or more", name, count,
                     OMM_SHARD_EXAMPLES_MIN);
}

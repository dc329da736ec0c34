/* model_fuzz.c - fuzz target: a model file is refused, or loads and gives logits for a few tokens,
 * the same one by one and together.  Between them the models
 * of the corpus have every part that an architecture can have. */
#include "fuzz_compute.h"

#include "omm/mem.h"
#include "omm/session.h"

enum { TOKENS = 3, VOCAB_MAX = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Logits of the last token, or how it failed. */
static omm_err run(float *logits, const omm_compute *c, const omm_model *model, uint32_t batch) {
    static const uint32_t ids[TOKENS] = {0};
    omm_session *s = NULL;
    omm_session_options o = {.positions_max = TOKENS, .batch_max = batch};
    OMM_TRY(omm_session_open(&s, c, model, NULL, &o));
    omm_err err = omm_session_append(s, ids, TOKENS, logits, false);
    OMM_ASSERT(err == OMM_OK || err == OMM_ERR_NUMERIC);
    omm_session_close(s);
    return err;
}

static void use(const omm_model *model) {
    float together[VOCAB_MAX] = {0}, apart[VOCAB_MAX] = {0};
    if (model->dims.vocab > VOCAB_MAX || model->dims.context < TOKENS) return;
    omm_err err = run(together, fuzz_compute(), model, TOKENS);
    OMM_ASSERT(run(apart, fuzz_compute(), model, 1) == err);
    for (size_t i = 0; i < model->dims.vocab && err == OMM_OK; i++)
        OMM_ASSERT(together[i] == apart[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    omm_gguf g = {0};
    omm_model model;
    if (omm_gguf_open_bytes(&g, omm_bytes_of(data, size)) != OMM_OK) return 0;
    if (omm_model_load(&model, &g) == OMM_OK) {
        use(&model);
        omm_model_fini(&model);
    }
    omm_gguf_close(&g);
    return 0;
}

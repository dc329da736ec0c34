/* model_fuzz.c - fuzz target: a model file is refused, or planned for, loads and gives logits for a few
 * tokens, the same one by one and together.  Between them the models
 * of the corpus have every part that an architecture can have. */
#include "fuzz_compute.h"

#include "omm/mem.h"
#include "omm/plan.h"
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

/* As commands do before they load: of all positions, of one, with the file as its own adapter. */
static omm_err plan(const omm_gguf *g) {
    char text[OMM_PLAN_TEXT_MAX];
    omm_plan all, one;
    omm_model outline;
    omm_plan_options o = {.session = omm_session_options_default(), .threads = 1};
    OMM_TRY(omm_model_outline(&outline, g));
    o.session.positions_max = outline.dims.context;
    omm_model_fini(&outline);
    OMM_ASSERT(omm_plan_make(&all, g, &g, 1, &o) == OMM_OK);
    o.session.positions_max = 1;
    o.stream = OMM_PLAN_STREAM_LAST;
    OMM_ASSERT(omm_plan_make(&one, g, NULL, 0, &o) == OMM_OK);
    OMM_ASSERT(one.total <= all.total);
    OMM_ASSERT(omm_plan_fit(&one, g, NULL, 0, &o, 1) == OMM_ERR_CONFIG);
    omm_plan_text(text, &all);
    return OMM_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    omm_gguf g = {0};
    omm_model model;
    if (omm_gguf_open_bytes(&g, omm_bytes_of(data, size)) != OMM_OK) return 0;
    const omm_err planned = plan(&g), loaded = omm_model_load(&model, &g);
    /* Only loading sees values; one of an early tensor comes before the shape of a later one. */
    OMM_ASSERT(planned == loaded || loaded == OMM_ERR_NUMERIC);
    if (loaded == OMM_OK) {
        use(&model);
        omm_model_fini(&model);
    }
    omm_gguf_close(&g);
    return 0;
}

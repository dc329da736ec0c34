/* loaded.c - see loaded.h. */
#include "loaded.h"

#include "omm/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static omm_err open_model(loaded *l, const loaded_options *o, bool with_tokenizer) {
    omm_gguf gguf;
    OMM_TRY(omm_gguf_open(&gguf, o->model));
    omm_err err = omm_model_load_with(&l->model, l->pool, &gguf);
    if (err == OMM_OK && with_tokenizer) err = omm_tokenizer_open(&l->tokenizer, &gguf);
    omm_gguf_close(&gguf);
    if (err == OMM_OK && l->tokenizer && omm_tokenizer_vocab(l->tokenizer) != l->model.dims.vocab)
        return omm_raise(OMM_ERR_MISMATCH, "the vocabulary has %u tokens, the embedding %u",
                         omm_tokenizer_vocab(l->tokenizer), l->model.dims.vocab);
    return err;
}

static omm_err open_compute(loaded *l, const loaded_options *o) {
    omm_isa isa;
    OMM_TRY(omm_isa_choose(&isa, getenv("OMM_ISA")));
    const unsigned threads = o->threads ? o->threads : omm_threads_default();
    if (threads > OMM_POOL_THREADS_MAX)
        return omm_raise(OMM_ERR_USAGE, "--threads %u: at most %u", threads, OMM_POOL_THREADS_MAX);
    OMM_TRY(omm_pool_open(&l->pool, threads));
    return omm_compute_init(&l->compute, l->pool, isa);
}

static omm_err open_all(loaded *l, const loaded_options *o, bool with_tokenizer) {
    if (!o->model) return omm_raise(OMM_ERR_USAGE, "which model? give -m FILE");
    omm_session_options options = omm_session_options_default();
    options.positions_max = o->positions;
    OMM_TRY(omm_kv_type_parse(&options.kv_type, o->kv ? o->kv : "f32"));
    OMM_TRY(omm_activations_parse(&l->activations, o->activations));
    options.activations = l->activations;
    OMM_TRY(open_compute(l, o));
    OMM_TRY(open_model(l, o, with_tokenizer));
    if (o->lora) {
        OMM_TRY(omm_lora_load_file(&l->lora, o->lora, &l->model.lora_shape));
        l->has_lora = true;
    }
    return omm_session_open(&l->session, &l->compute, &l->model, l->has_lora ? &l->lora : NULL,
                            &options);
}

omm_err loaded_open(loaded *l, const loaded_options *o, bool with_tokenizer) {
    *l = (loaded){0};
    return open_all(l, o, with_tokenizer);
}

void loaded_close(loaded *l) {
    omm_session_close(l->session);
    if (l->compute.work) omm_compute_fini(&l->compute);
    omm_pool_close(l->pool);
    if (l->has_lora) omm_lora_fini(&l->lora);
    omm_tokenizer_close(l->tokenizer);
    omm_model_fini(&l->model);
}

void cli_warn_template(const omm_tokenizer *tokenizer) {
    char doubt[OMM_CHAT_DOUBT_MAX];
    if (omm_chat_doubt(doubt, tokenizer)) fprintf(stderr, "meshmind: warning: %s\n", doubt);
}

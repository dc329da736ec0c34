/* One arithmetic: the same adapter bytes for 1, 2, 3 and 7 threads, any micro-batch, any number of
 * layers computed again in backward, every instruction set that is here, and for whatever compiler built this test (the golden digests). */
#include "test_model.h"

#include "omm/hash.h"

#include <string.h>

/* BLAKE2b-256 of the GGUF file of the run below, the same from gcc and clang, on every machine. */
static const char s_golden_first[] =
    "1a9de6c19021d30ccbd6a1b20f1f7d08646d0023e82f41f31ca3ad2ef251c9a1";

typedef struct setup {
    omm_model model;
    omm_tokenizer *tokenizer;
    omm_dataset *data;
} setup;

/* What differs from the first run, and the digest of its adapter. */
typedef struct variant {
    const char *name, *golden;
    uint32_t optimizer, schedule, nesterov, relative_step, rslora;
    float momentum, b_rate_ratio;
} variant;

static const variant s_variants[] = {
    {.name = "adamw, LoRA+, rsLoRA, linear",
     .golden = "76eb65647dd7c4653a44910f835830dc7f159590f6f43a30d0bcac8bfd0d53f5",
     .schedule = OMM_RECIPE_LINEAR,
     .rslora = 1,
     .b_rate_ratio = 4},
    {.name = "sgd, nesterov, constant",
     .golden = "69d5b837fd0cce6dea3abe8f30b6848bd7dc4b4821d9529690970db3b8a0579b",
     .optimizer = OMM_RECIPE_SGD,
     .schedule = OMM_RECIPE_CONSTANT,
     .nesterov = 1,
     .momentum = 0.9F},
    {.name = "adafactor",
     .golden = "d67e78ad0a4950d293c360a06bc3ba012b8a225647ce10a9c26800293609a1c5",
     .optimizer = OMM_RECIPE_ADAFACTOR},
    {.name = "adafactor, relative",
     .golden = "1aa1426e51119b41100e1ad2e7563719d6d9099286557d733d04b7790bd6a3d8",
     .optimizer = OMM_RECIPE_ADAFACTOR,
     .relative_step = 1},
};

static const variant s_first = {.golden = s_golden_first};

static omm_recipe recipe_of(const variant *v, uint32_t micro) {
    omm_recipe r = omm_recipe_default();
    r.rank = 3;
    r.steps = 2;
    r.batch_tokens = 330;
    r.micro_tokens = micro;
    r.dropout = 0.1F;
    r.weight_decay = 0.01F;
    r.prox_mu = 0.01F;
    r.learning_rate = 0.01F;
    r.optimizer = v->optimizer;
    r.schedule = v->schedule;
    r.nesterov = v->nesterov;
    r.relative_step = v->relative_step;
    r.rslora = v->rslora;
    r.momentum = v->momentum;
    r.b_rate_ratio = v->b_rate_ratio;
    return r;
}

static omm_digest train_with(const setup *s, const variant *v, omm_isa isa, unsigned threads,
                             uint32_t micro, uint32_t checkpoint_layers) {
    omm_pool *pool = NULL;
    omm_compute compute;
    omm_trainer *trainer = NULL;
    omm_recipe recipe = recipe_of(v, micro);
    CHECK_OK(omm_pool_open(&pool, threads));
    CHECK_OK(omm_compute_init(&compute, pool, isa));
    omm_trainer_options options = {.model = &s->model,
                                   .data = s->data,
                                   .recipe = &recipe,
                                   .compute = &compute,
                                   .seed = omm_seed_from_u64(3),
                                   .checkpoint_layers = checkpoint_layers};
    CHECK_OK(omm_trainer_open(&trainer, &options));
    CHECK_OK(omm_trainer_run(trainer));
    omm_buf file;
    omm_buf_init(&file, 64 << 20);
    CHECK_OK(omm_lora_save(&file, omm_trainer_adapter(trainer)));
    omm_digest digest = omm_hash(omm_buf_view(&file));
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, &digest);
    omm_train_result r = omm_trainer_result(trainer);
    printf("%-7s %u threads, micro-batch %4u, %u layers again: %.16s, loss %.6f\n",
           omm_isa_name(isa), threads, micro, checkpoint_layers, hex, (double)r.loss_last);
    omm_buf_fini(&file);
    omm_trainer_close(trainer);
    omm_compute_fini(&compute);
    omm_pool_close(pool);
    return digest;
}

static omm_digest train(const setup *s, const variant *v, omm_isa isa, unsigned threads,
                        uint32_t micro) {
    return train_with(s, v, isa, threads, micro, 0);
}

static void check_golden(const variant *v, const omm_digest *digest) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, digest);
    if (v->golden && strcmp(hex, v->golden) != 0) fprintf(stderr, "got %s\n", hex);
    CHECK(!v->golden || strcmp(hex, v->golden) == 0);
}

static void check_all(const setup *s, const variant *v) {
    static const omm_isa isas[] = {OMM_ISA_AVX512, OMM_ISA_AVX2, OMM_ISA_NEON, OMM_ISA_SCALAR};
    omm_isa best = OMM_ISA_SCALAR;
    CHECK_OK(omm_isa_choose(&best, NULL));
    omm_digest first = train(s, v, best, 1, 4096);
    omm_digest others[] = {train(s, v, best, 2, 4096),
                           train(s, v, best, 7, 4096),
                           train(s, v, best, 1, 1),
                           train(s, v, best, 3, 150),
                           train_with(s, v, best, 2, 4096, 1),
                           train_with(s, v, OMM_ISA_SCALAR, 3, 200, 99)};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        CHECK(omm_digest_equal(&first, &others[i]));
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        if (!omm_isa_available(isas[i])) {
            printf("%-7s is not available here: not compared\n", omm_isa_name(isas[i]));
            continue;
        }
        omm_digest other = train(s, v, isas[i], 1 + (unsigned)i % 2, 200);
        CHECK(omm_digest_equal(&first, &other));
    }
    check_golden(v, &first);
}

/* The optimisers are plain C: what is around them has been compared by check_all. */
static void check_some(const setup *s, const variant *v) {
    omm_isa best = OMM_ISA_SCALAR;
    CHECK_OK(omm_isa_choose(&best, NULL));
    omm_digest first = train(s, v, best, 1, 4096);
    omm_digest others[] = {train(s, v, best, 7, 1), train(s, v, OMM_ISA_SCALAR, 2, 150)};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        CHECK(omm_digest_equal(&first, &others[i]));
    check_golden(v, &first);
}

int main(void) {
    setup s = {0};
    test_tokenizer_open(&s.tokenizer);
    test_data_open(&s.data, "train.jsonl", 12, s.tokenizer);
    test_synth_open(&s.model, OMM_FORMAT_F16);
    check_all(&s, &s_first);
    for (size_t i = 0; i < sizeof s_variants / sizeof *s_variants; i++) {
        printf("%s\n", s_variants[i].name);
        check_some(&s, &s_variants[i]);
    }
    static const variant ungolden = {0};
    static const char *const others[] = {"qwen2", "gemma2", "gemma3"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        omm_model_fini(&s.model);
        test_architecture_open(&s.model, OMM_FORMAT_F32, others[i]);
        check_all(&s, &ungolden);
    }
    omm_dataset_close(s.data);
    omm_tokenizer_close(s.tokenizer);
    omm_model_fini(&s.model);
    return 0;
}

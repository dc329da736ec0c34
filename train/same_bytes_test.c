/* One arithmetic: the same adapter bytes for 1, 2 and 3 threads, any micro-batch, every instruction
 * set that is here, and for whatever compiler built this test (the golden digest). */
#include "test_model.h"

#include "omm/hash.h"

#include <string.h>

/* BLAKE2b-256 of the GGUF file of the run below, the same from gcc and clang, on every machine. */
static const char *const s_golden =
    "1a9de6c19021d30ccbd6a1b20f1f7d08646d0023e82f41f31ca3ad2ef251c9a1";

typedef struct setup {
    omm_model model;
    omm_tokenizer *tokenizer;
    omm_dataset *data;
} setup;

static omm_recipe recipe_of(uint32_t micro) {
    omm_recipe r = omm_recipe_default();
    r.rank = 3;
    r.steps = 2;
    r.batch_tokens = 330;
    r.micro_tokens = micro;
    r.dropout = 0.1F;
    r.weight_decay = 0.01F;
    r.prox_mu = 0.01F;
    r.learning_rate = 0.01F;
    return r;
}

static omm_digest train(const setup *s, omm_isa isa, unsigned threads, uint32_t micro) {
    omm_pool *pool = NULL;
    omm_compute compute;
    omm_trainer *trainer = NULL;
    omm_recipe recipe = recipe_of(micro);
    CHECK_OK(omm_pool_open(&pool, threads));
    CHECK_OK(omm_compute_init(&compute, pool, isa));
    omm_trainer_options options = {.model = &s->model,
                                   .data = s->data,
                                   .recipe = &recipe,
                                   .compute = &compute,
                                   .seed = omm_seed_from_u64(3)};
    CHECK_OK(omm_trainer_open(&trainer, &options));
    CHECK_OK(omm_trainer_run(trainer));
    omm_buf file;
    omm_buf_init(&file, 64 << 20);
    CHECK_OK(omm_lora_save(&file, omm_trainer_adapter(trainer)));
    omm_digest digest = omm_hash(omm_buf_view(&file));
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, &digest);
    omm_train_result r = omm_trainer_result(trainer);
    printf("%-7s %u threads, micro-batch %4u: %.16s, loss %.6f\n", omm_isa_name(isa), threads,
           micro, hex, (double)r.loss_last);
    omm_buf_fini(&file);
    omm_trainer_close(trainer);
    omm_compute_fini(&compute);
    omm_pool_close(pool);
    return digest;
}

static void check_all(const setup *s, const char *golden) {
    static const omm_isa isas[] = {OMM_ISA_AVX512, OMM_ISA_AVX2, OMM_ISA_NEON, OMM_ISA_SCALAR};
    omm_isa best = OMM_ISA_SCALAR;
    CHECK_OK(omm_isa_choose(&best, NULL));
    omm_digest first = train(s, best, 1, 4096);
    omm_digest others[] = {train(s, best, 2, 4096), train(s, best, 3, 4096), train(s, best, 1, 1),
                           train(s, best, 2, 150)};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        CHECK(omm_digest_equal(&first, &others[i]));
    for (size_t i = 0; i < sizeof isas / sizeof isas[0]; i++) {
        if (!omm_isa_available(isas[i])) {
            printf("%-7s is not available here: not compared\n", omm_isa_name(isas[i]));
            continue;
        }
        omm_digest other = train(s, isas[i], 1 + (unsigned)i % 2, 200);
        CHECK(omm_digest_equal(&first, &other));
    }
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, &first);
    if (golden && strcmp(hex, golden) != 0) fprintf(stderr, "got %s\n", hex);
    CHECK(!golden || strcmp(hex, golden) == 0);
}

int main(void) {
    setup s = {0};
    test_tokenizer_open(&s.tokenizer);
    test_data_open(&s.data, "train.jsonl", 12, s.tokenizer);
    test_synth_open(&s.model, OMM_FORMAT_F16);
    check_all(&s, s_golden);
    static const char *const others[] = {"qwen2", "gemma2", "gemma3"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        omm_model_fini(&s.model);
        test_architecture_open(&s.model, OMM_FORMAT_F32, others[i]);
        check_all(&s, NULL);
    }
    omm_dataset_close(s.data);
    omm_tokenizer_close(s.tokenizer);
    omm_model_fini(&s.model);
    return 0;
}

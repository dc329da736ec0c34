/* One arithmetic: the same adapter bytes for 1, 2, 3 and 7 threads, any micro-batch, any number of
 * layers computed again in backward, every instruction set that is here, and for whatever compiler,
 * options and processor this test was built for: tests/golden/train.digests has what all must meet.
 *
 *   same_bytes_test                  everything
 *   same_bytes_test ISA [NAME ...]   these runs (all) once, by one instruction set: for emulators, and
 *                                    so that one that a processor has not is counted as skipped (77)
 *   same_bytes_test ISA except NAME ...   all but these
 *
 * After a change of the arithmetic, which every recorded run forbids, or for a new run, that file is
 *   build/release/train/same_bytes_test | sed -n 's/^golden //p' > tests/golden/train.digests
 */
#include "test_model.h"

#include "omm/file.h"
#include "omm/hash.h"

#include <string.h>

typedef struct setup {
    omm_model model;
    omm_tokenizer *tokenizer;
    omm_dataset *data;
    omm_buf goldens; /* lines "NAME DIGEST" */
    unsigned wrong;  /* runs whose digest is another, or not there */
} setup;

/* What is trained and how; NAME in the goldens. */
typedef struct variant {
    const char *name, *architecture;
    const char *targets, *ranks, *alphas; /* patterns; NULL: none */
    uint32_t parts;
    uint32_t tokens; /* of a step; 0: 330 */
    bool from_start; /* of an adapter of another shape, whose ranks and targets it has */
    uint32_t optimizer, schedule, nesterov, relative_step, rslora, activations;
    float momentum, b_rate_ratio;
    omm_format format;
    const test_kind *kind; /* instead of architecture and format */
    bool wide;             /* compared over every instruction set, threads and micro-batches */
} variant;

static const variant s_variants[] = {
    {.name = "llama-f16-adamw", .architecture = "llama", .format = OMM_FORMAT_F16, .wide = true},
    /* AdamW with LoRA+ and rsLoRA. */
    {.name = "llama-f16-adamw-lora-plus",
     .architecture = "llama",
     .format = OMM_FORMAT_F16,
     .schedule = OMM_RECIPE_LINEAR,
     .rslora = 1,
     .b_rate_ratio = 4},
    {.name = "llama-f16-sgd-nesterov",
     .architecture = "llama",
     .format = OMM_FORMAT_F16,
     .optimizer = OMM_RECIPE_SGD,
     .schedule = OMM_RECIPE_CONSTANT,
     .nesterov = 1,
     .momentum = 0.9F},
    {.name = "llama-f16-adafactor",
     .architecture = "llama",
     .format = OMM_FORMAT_F16,
     .optimizer = OMM_RECIPE_ADAFACTOR},
    {.name = "llama-f16-adafactor-relative",
     .architecture = "llama",
     .format = OMM_FORMAT_F16,
     .optimizer = OMM_RECIPE_ADAFACTOR,
     .relative_step = 1},
    {.name = "qwen2-f32-adamw", .architecture = "qwen2", .format = OMM_FORMAT_F32, .wide = true},
    {.name = "qwen3-f32-adamw", .architecture = "qwen3", .format = OMM_FORMAT_F32},
    {.name = "gemma2-f32-adamw", .architecture = "gemma2", .format = OMM_FORMAT_F32, .wide = true},
    /* For plain C whose fma is software. */
    {.name = "gemma2-f32-short", .architecture = "gemma2", .format = OMM_FORMAT_F32, .tokens = 60},
    {.name = "gemma3-f32-adamw", .architecture = "gemma3", .format = OMM_FORMAT_F32, .wide = true},
    {.name = "phi3-f32-adamw", .architecture = "phi3", .format = OMM_FORMAT_F32},
    {.name = "smollm3-f32-adamw",
     .architecture = "smollm3",
     .format = OMM_FORMAT_F32,
     .tokens = 110},
    {.name = "granite-f32-adamw",
     .architecture = "granite",
     .format = OMM_FORMAT_F32,
     .tokens = 110},
    {.name = "olmo2-f32-adamw", .architecture = "olmo2", .format = OMM_FORMAT_F32, .tokens = 110},
    {.name = "mistral3-f32-adamw",
     .architecture = "mistral3",
     .format = OMM_FORMAT_F32,
     .tokens = 110},
    {.name = "exaone4-f32-adamw",
     .architecture = "exaone4",
     .format = OMM_FORMAT_F32,
     .tokens = 110},
    {.name = "hunyuan-dense-f32-adamw",
     .architecture = "hunyuan-dense",
     .format = OMM_FORMAT_F32,
     .tokens = 110},
    /* Packed bases; their models are wider, and plain C is slow under emulators. */
    {.name = "llama-q8_0-adamw", .architecture = "llama", .format = OMM_FORMAT_Q8_0, .tokens = 110},
    {.name = "llama-q4_k-adamw", .architecture = "llama", .format = OMM_FORMAT_Q4_K, .tokens = 60},
    {.name = "llama-q8_0-int8",
     .architecture = "llama",
     .format = OMM_FORMAT_Q8_0,
     .activations = OMM_RECIPE_Q8,
     .tokens = 110,
     .wide = true},
    {.name = "llama-q4_k-int8",
     .architecture = "llama",
     .format = OMM_FORMAT_Q4_K,
     .activations = OMM_RECIPE_Q8,
     .tokens = 60},
    {.name = "llama-f16-patterns",
     .architecture = "llama",
     .format = OMM_FORMAT_F16,
     .targets = "blk.1.*,blk.0.attn_*",
     .ranks = "ffn_*=4,v=1",
     .alphas = "q=3",
     .tokens = 110},
    {.name = "llama-f16-b-alone",
     .architecture = "llama",
     .format = OMM_FORMAT_F16,
     .parts = OMM_RECIPE_PARTS_B,
     .tokens = 110},
    {.name = "llama-f16-core",
     .architecture = "llama",
     .format = OMM_FORMAT_F16,
     .parts = OMM_RECIPE_PARTS_CORE,
     .ranks = "ffn_*=4",
     .tokens = 110},
    {.name = "llama-f32-rope-freqs", .kind = &test_kinds[TEST_KIND_ROPE_FREQS], .tokens = 110},
    {.name = "qwen2-f32-yarn-untied", .kind = &test_kinds[TEST_KIND_YARN_NARROW], .tokens = 110},
    {.name = "phi3-f32-short-partial", .kind = &test_kinds[TEST_KIND_SHORT], .tokens = 110},
    {.name = "phi3-f32-long-untied", .kind = &test_kinds[TEST_KIND_LONG], .tokens = 110},
    {.name = "gemma3-f32-two-ropes", .kind = &test_kinds[TEST_KIND_TWO_ROPES], .tokens = 110},
    {.name = "llama-f32-linear", .kind = &test_kinds[TEST_KIND_LINEAR], .tokens = 110},
    {.name = "olmo2-f32-unscaled", .kind = &test_kinds[TEST_KIND_UNSCALED], .tokens = 110},
    {.name = "llama-f16-start",
     .architecture = "llama",
     .format = OMM_FORMAT_F16,
     .from_start = true,
     .tokens = 110},
};

static omm_recipe recipe_of(const variant *v, uint32_t micro) {
    omm_recipe r = omm_recipe_default();
    r.rank = 3;
    r.steps = 2;
    r.batch_tokens = v->tokens ? v->tokens : 330;
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
    r.activations = v->activations;
    r.momentum = v->momentum;
    r.b_rate_ratio = v->b_rate_ratio;
    r.parts = v->parts;
    if (v->targets) CHECK_OK(omm_recipe_set_targets(&r, v->targets));
    CHECK_OK(omm_recipe_set_patterns(&r, v->ranks, v->alphas));
    return r;
}

/* Of a shape that no recipe here has. */
static void make_start(omm_lora *out, const setup *s, const omm_recipe *recipe) {
    omm_recipe shape = *recipe;
    CHECK_OK(omm_recipe_set_targets(&shape, "blk.0.ffn_*,blk.1.attn_*"));
    CHECK_OK(omm_recipe_set_patterns(&shape, "o=5", NULL));
    test_adapter_of(out, &s->model, &shape, 9);
}

/* The file has one alpha for all: what a pattern says beside it goes into B. */
static omm_digest digest_of(const omm_lora *adapter) {
    const float one = 1;
    bool rounded = false;
    omm_lora folded = {0};
    omm_buf file;
    omm_buf_init(&file, 64 << 20);
    if (!omm_lora_is_uniform(adapter)) {
        CHECK_OK(omm_lora_join(&folded, &rounded, &adapter, &one, 1, true));
        adapter = &folded;
    }
    /* The digests are older than the key for them (decision 142). */
    for (size_t i = 0; i < folded.tensor_count; i++) folded.tensors[i].own_scale = 0.0f;
    omm_lora bare = *adapter; /* what was trained, whatever the model is called */
    bare.shape.base = (omm_lora_base){0};
    CHECK_OK(omm_lora_save(&file, &bare));
    const omm_digest digest = omm_hash(omm_buf_view(&file));
    omm_buf_fini(&file);
    omm_lora_fini(&folded);
    return digest;
}

static omm_digest train_with(const setup *s, const variant *v, omm_isa isa, unsigned threads,
                             uint32_t micro, uint32_t checkpoint_layers) {
    omm_pool *pool = NULL;
    omm_compute compute;
    omm_trainer *trainer = NULL;
    omm_lora start = {0};
    omm_recipe recipe = recipe_of(v, micro);
    if (v->from_start) make_start(&start, s, &recipe);
    CHECK_OK(omm_pool_open(&pool, threads));
    CHECK_OK(omm_compute_init(&compute, pool, isa));
    omm_trainer_options options = {.model = &s->model,
                                   .data = s->data,
                                   .recipe = &recipe,
                                   .compute = &compute,
                                   .seed = omm_seed_from_u64(3),
                                   .start = v->from_start ? &start : NULL,
                                   .like_start = v->from_start,
                                   .checkpoint_layers = checkpoint_layers};
    CHECK_OK(omm_trainer_open(&trainer, &options));
    CHECK_OK(omm_trainer_run(trainer));
    const omm_digest digest = digest_of(omm_trainer_adapter(trainer));
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, &digest);
    omm_train_result r = omm_trainer_result(trainer);
    printf("%-7s %u threads, micro-batch %4u, %u layers again: %.16s, loss %.6f\n",
           omm_isa_name(isa), threads, micro, checkpoint_layers, hex, (double)r.loss_last);
    omm_trainer_close(trainer);
    omm_lora_fini(&start);
    omm_compute_fini(&compute);
    omm_pool_close(pool);
    return digest;
}

static omm_digest train(const setup *s, const variant *v, omm_isa isa, unsigned threads,
                        uint32_t micro) {
    return train_with(s, v, isa, threads, micro, 0);
}

/* Every digest is printed, so that one run says all that has changed. */
static void check_golden(setup *s, const variant *v, const omm_digest *digest) {
    char hex[OMM_DIGEST_HEX_SIZE], line[128];
    omm_digest_hex(hex, digest);
    const int size = snprintf(line, sizeof line, "%s %s\n", v->name, hex);
    CHECK(size > 0 && (size_t)size < sizeof line);
    printf("golden %s", line);
    for (size_t at = 0; at + (size_t)size <= s->goldens.size; at++)
        if ((at == 0 || s->goldens.data[at - 1] == '\n') &&
            same_bytes(s->goldens.data + at, line, (size_t)size))
            return;
    fprintf(stderr, "%s: not the digest of tests/golden/train.digests\n", v->name);
    s->wrong++;
}

static omm_digest check_all(const setup *s, const variant *v) {
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
    return first;
}

/* What is special about these is plain C: what is around it has been compared by check_all. */
static omm_digest check_some(const setup *s, const variant *v) {
    omm_isa best = OMM_ISA_SCALAR;
    CHECK_OK(omm_isa_choose(&best, NULL));
    omm_digest first = train(s, v, best, 1, 4096);
    omm_digest others[] = {train(s, v, best, 7, 1), train(s, v, OMM_ISA_SCALAR, 2, 150)};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        CHECK(omm_digest_equal(&first, &others[i]));
    return first;
}

static void check(setup *s, const variant *v, const omm_isa *only) {
    printf("%s\n", v->name);
    if (v->kind)
        tiny_arch_load(&s->model, &v->kind->arch);
    else
        test_architecture_open(&s->model, v->format, v->architecture);
    omm_digest digest = only      ? train(s, v, *only, 2, 150)
                        : v->wide ? check_all(s, v)
                                  : check_some(s, v);
    check_golden(s, v, &digest);
    omm_model_fini(&s->model);
}

static bool is_named(const variant *v, char **names, int count) {
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], v->name) == 0) return true;
    return false;
}

/* An instruction set that others have. */
static bool is_absent(const char *isa) {
    for (unsigned i = 0; i < OMM_ISA_COUNT; i++)
        if (strcmp(isa, omm_isa_name((omm_isa)i)) == 0 && !omm_isa_available((omm_isa)i))
            return true;
    return false;
}

int main(int argc, char **argv) {
    setup s = {0};
    char path[512];
    omm_isa only = OMM_ISA_SCALAR;
    if (argc > 1 && is_absent(argv[1])) {
        printf("skipped: this processor has no %s\n", argv[1]);
        return 77;
    }
    if (argc > 1) CHECK_OK(omm_isa_choose(&only, argv[1]));
    test_say_fma();
    test_path(path, "tests/golden/train.digests");
    omm_buf_init(&s.goldens, 1 << 16);
    if (omm_file_read(&s.goldens, path) != OMM_OK) printf("no goldens at %s\n", path);
    test_tokenizer_open(&s.tokenizer);
    test_data_open(&s.data, "train.jsonl", 12, s.tokenizer);
    const bool but_these = argc > 2 && strcmp(argv[2], "except") == 0;
    char **names = argv + 2 + but_these;
    const int count = argc > 2 ? argc - 2 - but_these : 0;
    int named = 0, done = 0;
    for (size_t i = 0; i < sizeof s_variants / sizeof *s_variants; i++) {
        const bool is_one = is_named(&s_variants[i], names, count);
        named += is_one;
        if (count > 0 && is_one == but_these) continue;
        check(&s, &s_variants[i], argc > 1 ? &only : NULL);
        done++;
    }
    CHECK_EQ(named, count); /* none is misspelled */
    CHECK(done > 0);
    omm_dataset_close(s.data);
    omm_tokenizer_close(s.tokenizer);
    omm_buf_fini(&s.goldens);
    CHECK_EQ(s.wrong, 0);
    return 0;
}

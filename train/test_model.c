#include "test_model.h"

#include "checkpoint.h"

#include "omm/file.h"
#include "omm/gguf.h"
#include "omm/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void test_path(char out[512], const char *relative) {
    const char *root = getenv("OMM_SOURCE_DIR");
    snprintf(out, 512, "%s/%s", root ? root : ".", relative);
}

void test_say_fma(void) {
    printf("plain C: fma of the %s\n", omm_isa_scalar_fuses() ? "processor" : "C library");
}

void test_tokenizer_open(omm_tokenizer **out) {
    char path[512];
    omm_gguf gguf;
    test_path(path, "scenarios/base/openmeshmind-tiny-F16.gguf");
    CHECK_OK(omm_gguf_open(&gguf, path));
    CHECK_OK(omm_tokenizer_open(out, &gguf));
    omm_gguf_close(&gguf);
}

omm_tokenizer *test_spm_open(void) {
    const char *dir = getenv("OMM_TESTDATA");
    char path[512];
    omm_gguf gguf;
    omm_tokenizer *spm = NULL;
    snprintf(path, sizeof path, "%s/vocab/llama-spm.gguf", dir ? dir : "../shared/testdata");
    if (!omm_file_exists(path)) {
        printf("what SentencePiece does left out: no vocabulary at %s\n", path);
        return NULL;
    }
    CHECK_OK(omm_gguf_open(&gguf, path));
    CHECK_OK(omm_tokenizer_open(&spm, &gguf));
    omm_gguf_close(&gguf);
    return spm;
}

void test_base_open(omm_model *model, omm_tokenizer **tokenizer) {
    char path[512];
    omm_gguf gguf;
    test_path(path, "scenarios/base/openmeshmind-tiny-F16.gguf");
    CHECK_OK(omm_gguf_open(&gguf, path));
    CHECK_OK(omm_model_load(model, &gguf));
    CHECK_OK(omm_tokenizer_open(tokenizer, &gguf));
    omm_gguf_close(&gguf);
}

tiny_arch test_arch(const char *architecture, omm_format format) {
    const uint32_t block = omm_format_block(format);
    const bool gemma2 = strcmp(architecture, "gemma2") == 0;
    const bool windows = gemma2 || strcmp(architecture, "gemma3") == 0;
    tiny_arch a = {
        .name = architecture, .format = format, .vocab = 2048, .context = 512, .embed = 0.25F};
    /* Rows are whole blocks; where that makes them long, one layer is enough. */
    a.layers = block > 32 ? 1 : 2;
    a.width = block > 32 ? 256 : block > 1 ? 96 : 72;
    a.ff = block > 32 ? 256 : block > 1 ? 160 : 88;
    if (windows || strcmp(architecture, "phi3") == 0) {
        a.window = 21;
        a.period = 2;
    }
    if (strcmp(architecture, "smollm3") == 0 && block == 1) a.layers = 5; /* the fourth is unlike */
    if (strcmp(architecture, "exaone4") == 0 && block == 1) {
        a.layers = 5;
        a.window = 21;
        a.period = 4;
    }
    if (strcmp(architecture, "hunyuan-dense") == 0) a.alpha = 50;
    if (strcmp(architecture, "mistral3") == 0) {
        a.scaling = "yarn";
        a.factor = 8;
        a.original = 19;
        a.log_multiplier = 1;
        a.temperature = 0.3F;
    }
    if (strcmp(architecture, "granite") == 0) {
        static const float scales[] = {3, 0.4F, 0.4F, 1.7F};
        memcpy(a.scales, scales, sizeof scales);
    }
    if (gemma2) {
        a.caps[0] = 2;
        a.caps[1] = 3;
    }
    return a;
}

#define TWO_LAYERS .layers = 2, .width = 72, .ff = 88, .vocab = 2048, .context = 512, .embed = 0.25F

const test_kind test_kinds[TEST_KINDS] = {
    [TEST_KIND_UNTIED] = {"output of its own, wide heads",
                          {.name = "llama", TWO_LAYERS, .untied = true, .head_dim = 24}},
    [TEST_KIND_LINEAR] = {"linear",
                          {.name = "llama", TWO_LAYERS, .scaling = "linear", .factor = 4}},
    [TEST_KIND_ROPE_FREQS] = {"rope_freqs",
                              {.name = "llama", TWO_LAYERS, .freqs = true, .base = 5e5F}},
    [TEST_KIND_YARN] =
        {"yarn", {.name = "llama", TWO_LAYERS, .scaling = "yarn", .factor = 4, .original = 64}},
    [TEST_KIND_PARTIAL] = {"a third of each head turns",
                           {.name = "llama", TWO_LAYERS, .rotated = 6}},
    [TEST_KIND_YARN_NARROW] = {"yarn, narrow heads, output of its own",
                               {.name = "qwen2",
                                TWO_LAYERS,
                                .scaling = "yarn",
                                .factor = 4,
                                .original = 100,
                                .attn_factor = 0.9F,
                                .head_dim = 14,
                                .untied = true}},
    [TEST_KIND_WIDE] =
        {"wide heads, output of its own",
         {.name = "qwen3", TWO_LAYERS, .head_dim = 32, .base = 1e6F, .untied = true}},
    [TEST_KIND_TWO_ROPES] = {"linear where there is no window",
                             {.name = "gemma3",
                              TWO_LAYERS,
                              .window = 21,
                              .period = 2,
                              .head_dim = 24,
                              .scaling = "linear",
                              .factor = 8,
                              .base = 1e6F}},
    [TEST_KIND_SHORT] = {"short factors, half of each head turns",
                         {.name = "phi3",
                          TWO_LAYERS,
                          .window = 40,
                          .period = 2,
                          .head_dim = 16,
                          .rotated = 8,
                          .long_factors = true,
                          .original = 400}},
    [TEST_KIND_LONG] = {"long factors, output of its own",
                        {.name = "phi3",
                         TWO_LAYERS,
                         .long_factors = true,
                         .original = 40,
                         .attn_factor = 1.19F,
                         .untied = true}},
    [TEST_KIND_UNSCALED] = {"yarn where there is no window",
                            {.name = "olmo2",
                             TWO_LAYERS,
                             .window = 21,
                             .period = 2,
                             .scaling = "yarn",
                             .factor = 8,
                             .original = 19,
                             .untied = true}},
};

void test_architecture_open(omm_model *model, omm_format format, const char *architecture) {
    const tiny_arch arch = test_arch(architecture, format);
    tiny_arch_load(model, &arch);
}

void test_synth_open(omm_model *model, omm_format format) {
    test_architecture_open(model, format, "llama");
}

void test_data_open(omm_dataset **out, const char *file, size_t count,
                    const omm_tokenizer *tokenizer) {
    char path[256], full[512];
    omm_buf text;
    omm_buf_init(&text, 16 << 20);
    snprintf(path, sizeof path, "scenarios/base/%s", file);
    test_path(full, path);
    CHECK_OK(omm_file_read(&text, full));
    size_t size = 0;
    while (count && size < text.size)
        if (text.data[size++] == '\n') count--;
    CHECK_OK(omm_dataset_parse(out, omm_bytes_of(text.data, size), file, tokenizer, NULL));
    omm_buf_fini(&text);
}

void test_adapter(omm_lora *out, const omm_model *model, uint32_t rank, uint32_t targets,
                  uint64_t seed) {
    omm_recipe recipe = omm_recipe_default();
    recipe.rank = rank;
    recipe.alpha = 2.0F * (float)rank;
    recipe.targets = targets;
    test_adapter_of(out, model, &recipe, seed);
}

void test_adapter_of(omm_lora *out, const omm_model *model, const omm_recipe *recipe,
                     uint64_t seed_value) {
    const omm_seed seed = omm_seed_from_u64(seed_value);
    const omm_rng lane = omm_rng_init(&seed, OMM_PURPOSE_TEST, 1, 0);
    CHECK_OK(omm_recipe_adapter(out, recipe, &model->lora_shape, &lane));
    for (size_t i = 0; i < out->tensor_count; i++) {
        const omm_lora_tensor *t = &out->tensors[i];
        if (!t->is_b) continue;
        for (size_t k = 0; k < (size_t)t->rows * t->cols; k++)
            out->values[t->offset + k] =
                (2 * omm_rng_unit(&lane, t->offset + k) - 1) / (float)t->cols;
    }
}

void test_rig_open(test_rig *r, size_t lines) {
    omm_isa isa = OMM_ISA_SCALAR;
    *r = (test_rig){.recipe = omm_recipe_default()};
    CHECK_OK(omm_isa_choose(&isa, NULL));
    CHECK_OK(omm_compute_init(&r->compute, NULL, isa));
    test_tokenizer_open(&r->tokenizer);
    test_data_open(&r->data, "train.jsonl", lines, r->tokenizer);
    test_synth_open(&r->model, OMM_FORMAT_F16);
}

void test_rig_close(test_rig *r) {
    omm_dataset_close(r->data);
    omm_tokenizer_close(r->tokenizer);
    omm_model_fini(&r->model);
    omm_compute_fini(&r->compute);
}

omm_trainer_options test_rig_options(const test_rig *r) {
    return (omm_trainer_options){.model = &r->model,
                                 .data = r->data,
                                 .recipe = &r->recipe,
                                 .compute = &r->compute,
                                 .seed = omm_seed_from_u64(1)};
}

void test_before_marks(omm_buf *out, const omm_buf *saved) {
    const size_t recipe = omm_recipe_bytes_in(omm_bytes_of(saved->data + 8, saved->size - 8));
    const size_t at = 8 + recipe + CHECKPOINT_IDENTITY_BYTES, behind = at + CHECKPOINT_MARKS_BYTES;
    CHECK(recipe > 0 && omm_get_u32(saved->data + 4) >= 4);
    omm_buf_init(out, 64 << 20);
    CHECK_OK(omm_buf_append(out, saved->data, at));
    CHECK_OK(omm_buf_append(out, saved->data + behind, saved->size - behind - sizeof(omm_digest)));
    omm_put_u32(out->data + 4, 3);
    CHECK_OK(omm_hash_seal(out, 0));
}

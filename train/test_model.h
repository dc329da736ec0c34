/* test_model.h - what train's tests share: a small synthetic model, the base model, a few examples.
 *
 * The synthetic model has awkward widths (72, 88; of Q8_0 96 and 160, of Q4_K 256 and one layer), grouped
 * heads, the base model's vocabulary, and weights from a seeded lane; the tokenizer and the data come
 * from scenarios/base.
 */
#ifndef TRAIN_TEST_MODEL_H
#define TRAIN_TEST_MODEL_H

#include "omm/dataset.h"
#include "omm/model.h"
#include "omm/tokenizer.h"
#include "omm/trainer.h"
#include "omm_test.h"
#include "tiny_arch.h"

#include <stdio.h>

/* $OMM_SOURCE_DIR/relative, or the folder itself when the variable is missing. */
void test_path(char out[512], const char *relative);

void test_tokenizer_open(omm_tokenizer **out);
/* One of SentencePiece, which begins a text with BOS and a space; NULL, and said, where the test data lack it. */
omm_tokenizer *test_spm_open(void);
void test_base_open(omm_model *model, omm_tokenizer **tokenizer);
/* Weights of `format` (OMM_FORMAT_F32, F16, Q8_0, Q4_K). */
void test_synth_open(omm_model *model, omm_format format);
/* The same of another architecture, with windows, caps and scalings of its own. */
void test_architecture_open(omm_model *model, omm_format format, const char *architecture);
/* What these open, to be changed, written or loaded by tiny_arch.h. */
tiny_arch test_arch(const char *architecture, omm_format format);

/* Rotations and heads that no architecture has by itself: every scaling, parts of heads, heads whose
 * widths do not add up to the model's, an output of its own. */
typedef struct test_kind {
    const char *what;
    tiny_arch arch;
} test_kind;
enum {
    TEST_KIND_UNTIED,
    TEST_KIND_LINEAR,
    TEST_KIND_ROPE_FREQS,
    TEST_KIND_YARN,
    TEST_KIND_PARTIAL,
    TEST_KIND_YARN_NARROW,
    TEST_KIND_WIDE,
    TEST_KIND_TWO_ROPES,
    TEST_KIND_SHORT,
    TEST_KIND_LONG,
    TEST_KIND_UNSCALED,
    TEST_KINDS
};
extern const test_kind test_kinds[TEST_KINDS];

/* Whose fma plain C has, on stdout: same_bytes_elsewhere.sh looks for it. */
void test_say_fma(void);

/* The first `count` lines of a JSONL file of scenarios/base. */
void test_data_open(omm_dataset **out, const char *file, size_t count,
                    const omm_tokenizer *tokenizer);

/* A trainer's checkpoint as version 3 has it, without marks; the caller frees it. */
void test_before_marks(omm_buf *out, const omm_buf *saved);

/* Random A and B, so that every gradient is alive; scale of B is 1 / rank. */
void test_adapter(omm_lora *out, const omm_model *model, uint32_t rank, uint32_t targets,
                  uint64_t seed);
/* The same with the ranks and scales of a recipe. */
void test_adapter_of(omm_lora *out, const omm_model *model, const omm_recipe *recipe,
                     uint64_t seed);

/* What a training run needs, its compute without threads on the best instruction set: the synthetic
 * model, F16, the first `lines` lines of the base's data, the default recipe. */
typedef struct test_rig {
    omm_model model;
    omm_tokenizer *tokenizer;
    omm_dataset *data;
    omm_compute compute;
    omm_recipe recipe;
} test_rig;
void test_rig_open(test_rig *rig, size_t lines);
void test_rig_close(test_rig *rig);
/* Its options, seed 1; they point into the rig. */
omm_trainer_options test_rig_options(const test_rig *rig);

#endif

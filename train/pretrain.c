/* pretrain.c - the schema of a pretraining file, and what a table cannot check. */
#include "omm/pretrain.h"

#include "induction.h"

#include <stddef.h>
#include <string.h>

static const omm_config_field s_path = {
    .key = "path", .kind = OMM_CONFIG_KIND_STRING, .min = 1, .max = 1024, .help = "a text"};
static const omm_config_field s_token = {.key = "token",
                                         .kind = OMM_CONFIG_KIND_STRING,
                                         .min = 2,
                                         .max = 256,
                                         .help = "text of a special token"};

#define LIST(type, member, field, most, ...)                                                       \
    {                                                                                              \
        .key = #member, .kind = OMM_CONFIG_KIND_LIST, .offset = offsetof(type, member),            \
        .item = &(field), .item_size = sizeof(const char *), .max = (most), __VA_ARGS__            \
    }

static const omm_config_field s_vocabulary[] = {
    OMM_CONFIG_STRING(omm_pretrain_vocabulary, from, .optional = true, .min = 1, .max = 1024,
                      .help = "GGUF whose vocabulary is taken, instead of training one"),
    LIST(omm_pretrain_vocabulary, texts, s_path, OMM_PRETRAIN_TEXTS_MAX, .optional = true,
         .help = "texts that it is trained on"),
    OMM_CONFIG_U32(omm_pretrain_vocabulary, size, .fallback = "2048", .min = 257, .max = 65536,
                   .help = "ids in all: bytes, merges, special tokens"),
    OMM_CONFIG_STRING(omm_pretrain_vocabulary, words, .fallback = "gpt-2", .min = 1, .max = 64,
                      .help = "pre-tokenizer"),
    OMM_CONFIG_BOOL(omm_pretrain_vocabulary, digits_apart, .fallback = "true",
                    .help = "numbers are read digit by digit"),
    LIST(omm_pretrain_vocabulary, control, s_token, 256, .optional = true,
         .help = "control tokens, which stand for no text"),
    LIST(omm_pretrain_vocabulary, user, s_token, 256, .optional = true,
         .help = "tokens that are recognised in any text"),
    OMM_CONFIG_STRING(omm_pretrain_vocabulary, bos, .optional = true, .min = 2, .max = 256,
                      .help = "the token that begins a text"),
    OMM_CONFIG_STRING(omm_pretrain_vocabulary, eos, .optional = true, .min = 2, .max = 256,
                      .help = "the token that ends a reply"),
    OMM_CONFIG_STRING(omm_pretrain_vocabulary, padding, .optional = true, .min = 2, .max = 256,
                      .help = "the token that fills"),
    {0}};

static const char *const s_starts[] = {"random", "induction", NULL};

static const omm_config_field s_model[] = {
    OMM_CONFIG_U32(omm_pretrain_model, layers, .min = 1, .max = 512, .help = "layers"),
    OMM_CONFIG_U32(omm_pretrain_model, width, .min = 2, .max = 16384, .help = "of a token"),
    OMM_CONFIG_U32(omm_pretrain_model, feed_forward, .min = 1, .max = 65536,
                   .help = "of the layer in between"),
    OMM_CONFIG_U32(omm_pretrain_model, heads, .min = 1, .max = 1024, .help = "of queries"),
    OMM_CONFIG_U32(omm_pretrain_model, kv_heads, .min = 1, .max = 1024,
                   .help = "of keys and values; divides heads"),
    OMM_CONFIG_U32(omm_pretrain_model, context, .min = 8, .max = 32768,
                   .help = "tokens of a sequence, in training and in the file"),
    OMM_CONFIG_REAL(omm_pretrain_model, rope_base, .fallback = "10000", .min = 1, .max = 1e9,
                    .help = "of the rotary positions"),
    OMM_CONFIG_REAL(omm_pretrain_model, rms_epsilon, .fallback = "0.00001", .min = 1e-12, .max = 1,
                    .help = "of the norms"),
    OMM_CONFIG_REAL(omm_pretrain_model, deviation, .fallback = "0.02", .min = 1e-6, .max = 1,
                    .help = "of the weights at the start"),
    OMM_CONFIG_ENUM(omm_pretrain_model, start, s_starts, .fallback = "random",
                    .help = "weights as drawn, or with a circuit that copies (induction heads)"),
    {0}};

/* Those of recipes, and one that is for all weights at once alone. */
static const char *const s_optimizers[] = {"adamw", "sgd", "adafactor", "muon", NULL};

static const char *const s_orders[] = {"mixed", "listed", NULL};

static const omm_config_field s_training[] = {
    LIST(omm_pretrain_training, texts, s_path, OMM_PRETRAIN_TEXTS_MAX, .min = 1,
         .help = "what is learned"),
    OMM_CONFIG_STRING(omm_pretrain_training, separator, .fallback = "<|endoftext|>", .min = 2,
                      .max = 256, .help = "the token that ends a document"),
    OMM_CONFIG_ENUM(omm_pretrain_training, order, s_orders, .fallback = "mixed",
                    .help = "documents of all texts in one shuffle, or one text after the other"),
    OMM_CONFIG_U32(omm_pretrain_training, steps, .min = 1, .max = 1000000,
                   .help = "of the optimiser"),
    OMM_CONFIG_U32(omm_pretrain_training, batch_tokens, .fallback = "2048", .min = 8,
                   .max = 1048576, .help = "a step takes documents while their tokens fit"),
    OMM_CONFIG_U32(omm_pretrain_training, micro_tokens, .fallback = "2048", .min = 8,
                   .max = 1048576, .help = "of one pass: memory, never the result"),
    OMM_CONFIG_ENUM(omm_pretrain_training, optimizer, s_optimizers, .fallback = "adamw",
                    .help = "how weights move"),
    OMM_CONFIG_ENUM(omm_pretrain_training, schedule, omm_recipe_schedules, .fallback = "cosine",
                    .help = "of the learning rate after the warmup"),
    OMM_CONFIG_REAL(omm_pretrain_training, learning_rate, .fallback = "0.002", .min = 1e-9,
                    .max = 10, .help = "peak"),
    OMM_CONFIG_U32(omm_pretrain_training, warmup_steps, .fallback = "0", .max = 1000000,
                   .help = "linear from 0"),
    OMM_CONFIG_REAL(omm_pretrain_training, lr_min_ratio, .fallback = "0.01", .max = 1,
                    .help = "the schedule ends at this share of the peak"),
    OMM_CONFIG_REAL(omm_pretrain_training, beta1, .fallback = "0.9", .max = 0.9999,
                    .help = "of the first moment"),
    OMM_CONFIG_REAL(omm_pretrain_training, beta2, .fallback = "0.95", .max = 0.99999,
                    .help = "of the second moment"),
    OMM_CONFIG_REAL(omm_pretrain_training, epsilon, .fallback = "0.00000001", .min = 1e-12,
                    .max = 1, .help = "beside the root of the second moment"),
    OMM_CONFIG_REAL(omm_pretrain_training, weight_decay, .fallback = "0.1", .max = 10,
                    .help = "of matrices, per unit of learning rate"),
    OMM_CONFIG_REAL(omm_pretrain_training, clip_norm, .fallback = "1", .max = 1e6,
                    .help = "of the whole gradient; 0: off"),
    OMM_CONFIG_REAL(omm_pretrain_training, momentum, .fallback = "0", .max = 0.9999,
                    .help = "of sgd and muon"),
    OMM_CONFIG_REAL(
        omm_pretrain_training, unseen_spread, .fallback = "0.5", .max = 10,
        .help = "how far rows of tokens in no text are set apart, of how far others lie from their "
                "mean; 0: they stay as one"),
    OMM_CONFIG_REAL(omm_pretrain_training, matrix_rate, .fallback = "1", .min = 1e-3, .max = 1000,
                    .help = "of the matrices of layers, as a multiple of the rate; 1 without muon"),
    {0}};

const omm_config_field omm_pretrain_fields[] = {
    OMM_CONFIG_STRING(omm_pretrain_config, name, .min = 1, .max = 128, .help = "of the model"),
    OMM_CONFIG_STRING(omm_pretrain_config, basename, .optional = true, .min = 1, .max = 128,
                      .help = "general.basename of the file"),
    OMM_CONFIG_STRING(omm_pretrain_config, size_label, .optional = true, .min = 1, .max = 32,
                      .help = "general.size_label of the file"),
    OMM_CONFIG_STRING(omm_pretrain_config, license, .optional = true, .min = 1, .max = 128,
                      .help = "general.license of the file"),
    OMM_CONFIG_STRING(omm_pretrain_config, description, .optional = true, .min = 1, .max = 1024,
                      .help = "general.description of the file"),
    OMM_CONFIG_STRING(omm_pretrain_config, chat_template, .optional = true, .min = 1, .max = 1024,
                      .help = "file with the template of chats"),
    OMM_CONFIG_STRING(omm_pretrain_config, type, .fallback = "F16", .min = 1, .max = 32,
                      .help = "of the matrices in the file, as quantize has them"),
    OMM_CONFIG_U64(omm_pretrain_config, seed, .fallback = "1",
                   .help = "of the weights and of the order of documents"),
    OMM_CONFIG_MAP(omm_pretrain_config, vocabulary, s_vocabulary),
    OMM_CONFIG_MAP(omm_pretrain_config, model, s_model),
    OMM_CONFIG_MAP(omm_pretrain_config, training, s_training),
    OMM_CONFIG_STRING(omm_pretrain_config, valid_text, .optional = true, .min = 1, .max = 1024,
                      .help = "held-out text, judged on the way"),
    OMM_CONFIG_U32(omm_pretrain_config, valid_every, .fallback = "500", .min = 1, .max = 1000000,
                   .help = "steps from one judgement to the next"),
    {0}};

/* In the words of the file: its key is `training`. */
static omm_err check_recipe(const omm_pretrain_config *c) {
    static const char prefix[] = "recipe: ";
    const omm_recipe recipe = omm_pretrain_recipe(c);
    const omm_err err = omm_recipe_validate(&recipe);
    const char *said = omm_err_sentence();
    if (err != OMM_ERR_CONFIG || strncmp(said, prefix, sizeof prefix - 1) != 0) return err;
    return omm_raise(err, "training.%s", said + sizeof prefix - 1);
}

static omm_err check(const omm_pretrain_config *c) {
    const omm_pretrain_model *m = &c->model;
    const omm_pretrain_vocabulary *v = &c->vocabulary;
    if (m->width % m->heads != 0 || m->width / m->heads % 2 != 0)
        return omm_raise(OMM_ERR_CONFIG,
                         "model.width: %u in %u heads; accepted: a multiple of twice the heads",
                         m->width, m->heads);
    if (m->heads % m->kv_heads != 0)
        return omm_raise(
            OMM_ERR_CONFIG,
            "model.kv_heads: %u kv_heads do not divide %u heads; accepted: a divisor of them",
            m->kv_heads, m->heads);
    if (m->start == OMM_PRETRAIN_INDUCTION) OMM_TRY(induction_check(m));
    if ((v->from != NULL) == (v->texts.count > 0))
        return omm_raise(OMM_ERR_CONFIG, "vocabulary: from a file, or trained on texts: one of the "
                                         "two is needed; accepted: `from` or `texts`");
    if (c->training.matrix_rate != 1 && c->training.optimizer != OMM_PRETRAIN_MUON)
        return omm_raise(OMM_ERR_CONFIG,
                         "training.matrix_rate is %g without muon; accepted: 1, or optimizer: muon",
                         c->training.matrix_rate);
    return check_recipe(c);
}

omm_err omm_pretrain_load(omm_pretrain_config *out, const char *path, omm_arena *arena) {
    OMM_TRY(omm_config_load(out, omm_pretrain_fields, path, arena));
    return omm_config_place(check(out), path);
}

omm_recipe omm_pretrain_recipe(const omm_pretrain_config *config) {
    const omm_pretrain_training *t = &config->training;
    omm_recipe r = omm_recipe_default();
    r.dropout = 0;
    r.steps = t->steps;
    r.batch_tokens = t->batch_tokens;
    r.micro_tokens = t->micro_tokens;
    r.seq_max = config->model.context;
    const bool muon = t->optimizer == OMM_PRETRAIN_MUON;
    r.optimizer = muon ? OMM_RECIPE_ADAMW : (uint32_t)t->optimizer;
    r.schedule = (uint32_t)t->schedule;
    r.learning_rate = (float)t->learning_rate;
    r.warmup_steps = t->warmup_steps;
    r.lr_min_ratio = (float)t->lr_min_ratio;
    r.beta1 = (float)t->beta1;
    r.beta2 = (float)t->beta2;
    r.epsilon = (float)t->epsilon;
    r.weight_decay = (float)t->weight_decay;
    r.clip_norm = (float)t->clip_norm;
    r.momentum = muon ? 0 : (float)t->momentum;
    return r;
}

omm_full_muon omm_pretrain_muon_of(const omm_pretrain_config *config) {
    const omm_pretrain_training *t = &config->training;
    if (t->optimizer != OMM_PRETRAIN_MUON) return (omm_full_muon){0};
    return (omm_full_muon){.rate = (float)t->matrix_rate, .momentum = (float)t->momentum};
}

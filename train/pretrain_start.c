/* pretrain_start.c - the model that pretraining begins with: keys, vocabulary, weights as drawn. */
#include "induction.h"

#include "omm/file.h"
#include "omm/mem.h"
#include "omm/pretrain.h"
#include "omm/rng.h"
#include "omm/vocab_train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES_MAX = 1 << 28, TEMPLATE_BYTES_MAX = 1 << 20, DRAWN = 256 };
static const float s_bytes_deviation =
    147.8F;                          /* sqrt(4 * (256^2 - 1) / 12): of four random bytes */
static const int s_bytes_mean = 510; /* 4 * 127.5 */

typedef struct start {
    const omm_pretrain_config *config;
    const omm_pretrain_folders *folders;
    omm_gguf_writer w;
    omm_arena arena; /* the weights, until they are written */
    omm_seed seed;
    uint32_t vocab;
    induction_layer first[INDUCTION_LAYERS];
} start;

/* A file that is not there, by the key that names it. */
static omm_err of_key(omm_err err, const char *key) {
    return err == OMM_ERR_NOT_FOUND ? omm_raise(err, "%s: %s", key, omm_err_sentence()) : err;
}

/* --- vocabulary ------------------------------------------------------------------------------ */

static omm_err copy_vocabulary(start *s) {
    char path[OMM_PATH_MAX];
    omm_gguf gguf;
    const omm_gguf_kv *tokens = NULL;
    OMM_TRY(omm_path_join(path, s->folders->config, s->config->vocabulary.from));
    OMM_TRY(of_key(omm_gguf_open(&gguf, path), "vocabulary.from"));
    omm_err err = omm_gguf_get_array(&tokens, &gguf, "tokenizer.ggml.tokens", OMM_GGUF_STRING);
    if (err == OMM_OK) s->vocab = (uint32_t)tokens->count;
    for (size_t i = 0; err == OMM_OK && i < gguf.kv_count; i++) {
        const omm_bytes key = gguf.kvs[i].key;
        if (key.size > 15 && memcmp(key.data, "tokenizer.ggml.", 15) == 0)
            omm_gguf_put_kv(&s->w, &gguf.kvs[i]);
    }
    omm_gguf_close(&gguf);
    return err;
}

static omm_err add_text(omm_vocab_trainer *trainer, const char *folder, const char *name) {
    char path[OMM_PATH_MAX];
    omm_buf text;
    OMM_TRY(omm_path_join(path, folder, name));
    omm_buf_init(&text, TEXT_BYTES_MAX);
    omm_err err = omm_file_read(&text, path);
    if (err == OMM_OK) err = omm_vocab_add(trainer, omm_buf_view(&text));
    omm_buf_fini(&text);
    if (err == OMM_ERR_FORMAT) err = omm_raise(err, "%s: %s", path, omm_err_sentence());
    return of_key(err, "vocabulary.texts");
}

static omm_err train_vocabulary(start *s) {
    const omm_pretrain_vocabulary *v = &s->config->vocabulary;
    const omm_vocab_options options = {.size = v->size,
                                       .words = v->words,
                                       .digits_apart = v->digits_apart,
                                       .control = v->control.items,
                                       .control_count = v->control.count,
                                       .user = v->user.items,
                                       .user_count = v->user.count,
                                       .bos = v->bos,
                                       .eos = v->eos,
                                       .padding = v->padding};
    const char *const *texts = v->texts.items;
    omm_vocab_trainer *trainer = NULL;
    omm_err err = omm_vocab_trainer_open(&trainer, &options);
    if (err == OMM_ERR_UNSUPPORTED)
        return omm_raise(OMM_ERR_CONFIG, "vocabulary.words: %s", omm_err_sentence());
    OMM_TRY(err);
    for (size_t i = 0; i < v->texts.count && err == OMM_OK; i++)
        err = add_text(trainer, s->folders->data, texts[i]);
    if (err == OMM_OK) err = omm_vocab_make(trainer);
    if (err == OMM_OK) err = omm_vocab_put(&s->w, trainer);
    omm_vocab_trainer_close(trainer);
    s->vocab = v->size;
    return err;
}

/* --- keys ------------------------------------------------------------------------------------ */

static void put_text(start *s, const char *key, const char *text) {
    if (text) omm_gguf_put_text(&s->w, key, text);
}

static void put_shape(start *s) {
    const omm_pretrain_model *m = &s->config->model;
    omm_gguf_put_u32(&s->w, "llama.vocab_size", s->vocab);
    omm_gguf_put_u32(&s->w, "llama.context_length", m->context);
    omm_gguf_put_u32(&s->w, "llama.embedding_length", m->width);
    omm_gguf_put_u32(&s->w, "llama.block_count", m->layers);
    omm_gguf_put_u32(&s->w, "llama.feed_forward_length", m->feed_forward);
    omm_gguf_put_u32(&s->w, "llama.attention.head_count", m->heads);
    omm_gguf_put_u32(&s->w, "llama.attention.head_count_kv", m->kv_heads);
    omm_gguf_put_u32(&s->w, "llama.rope.dimension_count", m->width / m->heads);
    omm_gguf_put_f32(&s->w, "llama.rope.freq_base", (float)m->rope_base);
    omm_gguf_put_f32(&s->w, "llama.attention.layer_norm_rms_epsilon", (float)m->rms_epsilon);
}

static omm_err put_template(start *s) {
    char path[OMM_PATH_MAX];
    omm_buf text;
    if (!s->config->chat_template) return OMM_OK;
    OMM_TRY(omm_path_join(path, s->folders->config, s->config->chat_template));
    omm_buf_init(&text, TEMPLATE_BYTES_MAX);
    omm_err err = omm_file_read(&text, path);
    if (err == OMM_OK) omm_gguf_put_str(&s->w, "tokenizer.chat_template", omm_buf_view(&text));
    omm_buf_fini(&text);
    return of_key(err, "chat_template");
}

static omm_err put_keys(start *s) {
    const omm_pretrain_config *c = s->config;
    omm_gguf_put_text(&s->w, "general.architecture", "llama");
    omm_gguf_put_text(&s->w, "general.type", "model");
    put_text(s, "general.name", c->name);
    put_text(s, "general.basename", c->basename);
    put_text(s, "general.size_label", c->size_label);
    put_text(s, "general.license", c->license);
    put_text(s, "general.description", c->description);
    omm_gguf_put_u32(&s->w, "general.file_type", 0);
    OMM_TRY(c->vocabulary.from ? copy_vocabulary(s) : train_vocabulary(s));
    put_shape(s);
    return put_template(s);
}

/* --- weights --------------------------------------------------------------------------------- */

static void draw(float *out, size_t count, const omm_rng *lane, float scale) {
    uint32_t words[DRAWN];
    for (size_t at = 0; at < count;) {
        const size_t n = count - at < DRAWN ? count - at : DRAWN;
        omm_rng_fill_u32(words, lane, at, n);
        for (size_t i = 0; i < n; i++) {
            const uint32_t x = words[i];
            const int sum = (int)((x & 255) + (x >> 8 & 255) + (x >> 16 & 255) + (x >> 24));
            out[at + i] = scale * (float)(sum - s_bytes_mean);
        }
        at += n;
    }
}

/* deviation 0: a vector of ones.  *kept (may be NULL): its values, which go into the file when that is
 * finished. */
static omm_err put_tensor(float **kept, start *s, const char *name, uint32_t rows, uint32_t cols,
                          double deviation) {
    const size_t count = (size_t)rows * cols;
    const uint64_t dims[2] = {cols, rows};
    float *values = omm_arena_alloc(&s->arena, count, sizeof *values);
    if (!values)
        return omm_raise(OMM_ERR_NOMEM, "no memory for tensor '%s' of %zu values", name, count);
    const omm_seed seed = omm_seed_derive(&s->seed, OMM_PURPOSE_SYNTH, omm_bytes_str(name));
    const omm_rng lane = omm_rng_init(&seed, OMM_PURPOSE_SYNTH, 0, 0);
    if (deviation > 0)
        draw(values, count, &lane, (float)deviation / s_bytes_deviation);
    else
        for (size_t i = 0; i < count; i++) values[i] = 1;
    if (kept) *kept = values;
    omm_gguf_put_tensor(&s->w, name, OMM_GGML_F32, deviation > 0 ? 2 : 1, dims,
                        omm_bytes_of(values, count * sizeof *values));
    return OMM_OK;
}

static omm_err put_layer(start *s, uint32_t layer) {
    const omm_pretrain_model *m = &s->config->model;
    const uint32_t kv = m->width / m->heads * m->kv_heads;
    const double usual = m->deviation, last = m->deviation / sqrt(2.0 * m->layers);
    induction_layer other, *const l = layer < INDUCTION_LAYERS ? &s->first[layer] : &other;
    const struct {
        const char *stem;
        uint32_t rows, cols;
        double deviation;
        float **kept;
    } tensors[] = {{"attn_norm", 1, m->width, 0, NULL},
                   {"attn_q", m->width, m->width, usual, &l->q},
                   {"attn_k", kv, m->width, usual, &l->k},
                   {"attn_v", kv, m->width, usual, &l->v},
                   {"attn_output", m->width, m->width, last, &l->out},
                   {"ffn_norm", 1, m->width, 0, NULL},
                   {"ffn_gate", m->feed_forward, m->width, usual, NULL},
                   {"ffn_up", m->feed_forward, m->width, usual, NULL},
                   {"ffn_down", m->width, m->feed_forward, last, NULL}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        char name[OMM_GGUF_NAME_MAX];
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, tensors[i].stem);
        OMM_TRY(put_tensor(tensors[i].kept, s, name, tensors[i].rows, tensors[i].cols,
                           tensors[i].deviation));
    }
    return OMM_OK;
}

static omm_err put_all(start *s) {
    const omm_pretrain_model *m = &s->config->model;
    OMM_TRY(put_keys(s));
    float *embeddings = NULL;
    OMM_TRY(put_tensor(&embeddings, s, "token_embd.weight", s->vocab, m->width, m->deviation));
    for (uint32_t i = 0; i < m->layers; i++) OMM_TRY(put_layer(s, i));
    if (m->start == OMM_PRETRAIN_INDUCTION) {
        induction_embeddings(embeddings, (size_t)s->vocab * m->width, m);
        induction_layers(s->first, m);
    }
    return put_tensor(NULL, s, "output_norm.weight", 1, m->width, 0);
}

omm_err omm_pretrain_start(omm_buf *out, const omm_pretrain_config *config,
                           const omm_pretrain_folders *folders) {
    start s = {.config = config, .folders = folders, .seed = omm_seed_from_u64(config->seed)};
    omm_arena_init(&s.arena, (size_t)1 << 33);
    omm_gguf_writer_init(&s.w);
    omm_err err = put_all(&s);
    if (err == OMM_OK) err = omm_gguf_writer_finish(out, &s.w);
    omm_gguf_writer_fini(&s.w);
    omm_arena_fini(&s.arena);
    return err;
}

/* full_checkpoint.c - a run over all weights as bytes, and its model as a file.
 *
 *   "OMMF" | version u32 | recipe (omm_recipe_bytes) | identity 64 | marks u64[8] | step u32 |
 *   position u64 | tokens u64 | learned u64 | value_count u64 | losses f32[step] |
 *   values f32[value_count] | m, v, p f32[their counts] | BLAKE2b-256 of all before
 *
 * identity (checkpoint.h): its weights are those that the run began with, its start is what the finished
 * file will have beside them (full_like_digest; where nothing was said of it, and in versions 3 and 4, the
 * weights once more), and what more decides: galore's rank, every, scale where it is on, muon's rate and
 * momentum where that is, a byte 1 where the texts are listed.
 */
#include "checkpoint.h"
#include "full_internal.h"
#include "omm/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Values are saved as they lie in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little endian only");

#define DIGEST_BYTES 32u

static const checkpoint_kind s_kind = {
    .magic = {'O', 'M', 'M', 'F'},
    .version_min = 3, /* without marks */
    .version = 5,     /* 4: whatever the file has beside the weights */
    .bytes_min = CHECKPOINT_FIXED_BYTES + OMM_RECIPE_BYTES + DIGEST_BYTES,
    .name = "a checkpoint of training over all weights (--full)",
    .start = "another vocabulary, another chat template or other keys of the model's file",
    .more = "other settings of GaLore or Muon, or another order of the texts",
    /* A vocabulary decides what of the texts are tokens. */
    .behind = {[CHECKPOINT_DATA] = 1u << CHECKPOINT_START,
               [CHECKPOINT_LEARNED] = 1u << CHECKPOINT_DATA | 1u << CHECKPOINT_START}};

/* --- checkpoint ------------------------------------------------------------------------------ */

static size_t checkpoint_bytes(const omm_full *t, uint32_t step) {
    return checkpoint_head_bytes(&t->recipe, step) + DIGEST_BYTES +
           sizeof(float) * (t->tensors.value_count + t->m_count + t->v_count + t->p_count);
}

static checkpoint_run run_of(const omm_full *t) {
    return (checkpoint_run){&s_kind, &t->recipe, &t->identity, &t->before, t->tensors.value_count};
}

static omm_err put_all(const omm_full *t, omm_buf *out) {
    const checkpoint_run run = run_of(t);
    const checkpoint_head head = {.step = t->step,
                                  .position = t->position,
                                  .tokens = t->tokens,
                                  .learned = t->learned,
                                  .losses = omm_bytes_of(t->losses, t->step * sizeof(float))};
    OMM_TRY(checkpoint_put_head(out, &run, &head));
    OMM_TRY(omm_buf_append(out, t->values, t->tensors.value_count * sizeof(float)));
    OMM_TRY(omm_buf_append(out, t->m, t->m_count * sizeof(float)));
    OMM_TRY(omm_buf_append(out, t->v, t->v_count * sizeof(float)));
    return omm_buf_append(out, t->p, t->p_count * sizeof(float));
}

omm_err omm_full_checkpoint(const omm_full *t, omm_buf *out) {
    const size_t before = out->size;
    /* And for the seal of a course: growing for it would double what is there. */
    OMM_TRY(omm_buf_reserve(out, checkpoint_bytes(t, t->step) + DIGEST_BYTES));
    omm_err err = put_all(t, out);
    if (err == OMM_OK) err = omm_hash_seal(out, before);
    if (err != OMM_OK) out->size = before;
    return err;
}

/* A checkpoint taken apart; the views point into it. */
typedef struct parts {
    checkpoint_head head;
    omm_bytes values, m, v, p;
} parts;

static omm_err take_apart(parts *p, omm_bytes in, const omm_full *t) {
    omm_reader r;
    const checkpoint_run run = run_of(t);
    OMM_TRY(checkpoint_take_head(&p->head, &r, in, &run));
    OMM_TRY(checkpoint_check_size(in, &p->head, checkpoint_bytes(t, p->head.step)));
    p->values = omm_read_bytes(&r, t->tensors.value_count * sizeof(float));
    p->m = omm_read_bytes(&r, t->m_count * sizeof(float));
    p->v = omm_read_bytes(&r, t->v_count * sizeof(float));
    p->p = omm_read_bytes(&r, t->p_count * sizeof(float));
    OMM_ASSERT(!r.failed);
    return OMM_OK;
}

static omm_err check(parts *p, omm_bytes checkpoint, const omm_full *t) {
    OMM_TRY(take_apart(p, checkpoint, t));
    if (!checkpoint_all_finite(p->head.losses) || !checkpoint_all_finite(p->values) ||
        !checkpoint_all_finite(p->m) || !checkpoint_all_finite(p->v) ||
        !checkpoint_all_finite(p->p))
        return omm_raise(OMM_ERR_FORMAT, "the checkpoint holds a value that is not finite");
    return OMM_OK;
}

omm_err full_checkpoint_step(uint32_t *step, const omm_full *t, omm_bytes checkpoint) {
    parts p = {0};
    OMM_TRY(check(&p, checkpoint, t));
    *step = p.head.step;
    return OMM_OK;
}

omm_err omm_full_resume(omm_full *t, omm_bytes checkpoint) {
    parts p = {0};
    OMM_TRY(check(&p, checkpoint, t));
    t->step = p.head.step;
    t->position = p.head.position;
    t->tokens = p.head.tokens;
    t->learned = p.head.learned;
    if (p.head.losses.size) memcpy(t->losses, p.head.losses.data, p.head.losses.size);
    memcpy(t->values, p.values.data, p.values.size);
    if (p.m.size) memcpy(t->m, p.m.data, p.m.size);
    if (p.v.size) memcpy(t->v, p.v.data, p.v.size);
    if (p.p.size) memcpy(t->p, p.p.data, p.p.size);
    full_write(t->options.compute, &t->tensors, t->values);
    return OMM_OK;
}

/* --- the model as a file ----------------------------------------------------------------------- */

static bool starts(omm_bytes key, const char *with) {
    const size_t size = strlen(with);
    return key.size >= size && memcmp(key.data, with, size) == 0;
}

/* Not of its element types and parts. */
static bool is_copied(omm_bytes key) {
    return !starts(key, "general.file_type") && !omm_gguf_is_split_key(key) &&
           !starts(key, "general.quantization_version");
}

/* Beside the weights: rope factors. */
static bool is_copied_tensor(const omm_gguf_tensor *x) {
    return starts(omm_bytes_str(x->name), "rope_f");
}

static void put_keys(omm_gguf_writer *w, const omm_gguf *like) {
    for (size_t i = 0; i < like->kv_count; i++)
        if (is_copied(like->kvs[i].key)) omm_gguf_put_kv(w, &like->kvs[i]);
    omm_gguf_put_u32(w, "general.file_type", 0);
}

static void add_key(omm_hasher *h, const omm_gguf_kv *kv) {
    omm_hasher_sized(h, kv->key);
    omm_hasher_u64(h, kv->kind);
    omm_hasher_u64(h, kv->element);
    omm_hasher_u64(h, kv->count);
    omm_hasher_sized(h, kv->data);
}

static void add_tensor(omm_hasher *h, const omm_gguf_tensor *x) {
    omm_hasher_sized(h, omm_bytes_str(x->name));
    omm_hasher_u64(h, x->n_dims);
    for (uint32_t d = 0; d < x->n_dims; d++) omm_hasher_u64(h, x->dims[d]);
    if (!is_copied_tensor(x)) return;
    omm_hasher_u64(h, x->type);
    omm_hasher_sized(h, x->data);
}

omm_digest full_like_digest(const omm_gguf *like) {
    omm_hasher h;
    omm_hasher_init(&h);
    omm_hasher_update(&h, omm_bytes_str("omm.full.like"));
    for (size_t i = 0; i < like->kv_count; i++)
        if (is_copied(like->kvs[i].key)) add_key(&h, &like->kvs[i]);
    for (size_t i = 0; i < like->tensor_count; i++) add_tensor(&h, &like->tensors[i]);
    return omm_hasher_final(&h);
}

/* Where a tensor of a file begins in the vector: fused ones are their parts one after the other. */
static const full_tensor *place_of(const full_tensors *t, const omm_gguf_tensor *x) {
    static const char *const fused[][2] = {{"attn_qkv.weight", "attn_q.weight"},
                                           {"ffn_up.weight", "ffn_gate.weight"}};
    const uint64_t size = x->dims[0] * x->dims[1];
    const full_tensor *plain = full_tensor_named(t, x->name);
    if (plain && size == (uint64_t)plain->rows * plain->cols) return plain;
    const char *dot = strncmp(x->name, "blk.", 4) == 0 ? strchr(x->name + 4, '.') : NULL;
    for (size_t i = 0; dot && i < sizeof fused / sizeof *fused; i++) {
        char name[2 * OMM_GGUF_NAME_MAX];
        if (strcmp(dot + 1, fused[i][0]) != 0) continue;
        snprintf(name, sizeof name, "%.*s.%s", (int)(dot - x->name), x->name, fused[i][1]);
        const full_tensor *first = full_tensor_named(t, name);
        if (first && first->cols == x->dims[0] && first->offset + size <= t->value_count)
            return first;
    }
    return NULL;
}

static omm_err put_tensors(omm_gguf_writer *w, const full_tensors *t, const float *values,
                           const omm_gguf *like) {
    for (size_t i = 0; i < like->tensor_count; i++) {
        const omm_gguf_tensor *x = &like->tensors[i];
        const full_tensor *from = place_of(t, x);
        if (!from && !is_copied_tensor(x))
            return omm_raise(OMM_ERR_MISMATCH,
                             "tensor '%s' has no counterpart of its size in the "
                             "trained model",
                             x->name);
        omm_bytes data = x->data;
        if (from) data = omm_bytes_of(values + from->offset, 4 * x->dims[0] * x->dims[1]);
        omm_gguf_put_tensor(w, x->name, from ? OMM_GGML_F32 : (uint32_t)x->type, x->n_dims, x->dims,
                            data);
    }
    return OMM_OK;
}

omm_err omm_full_save(omm_buf *out, omm_model *model, const omm_gguf *like) {
    omm_gguf_writer w;
    full_tensors t = {0};
    float *values = NULL;
    OMM_TRY(full_thaw(model));
    omm_gguf_writer_init(&w);
    omm_err err = full_tensors_init(&t, model);
    if (err == OMM_OK) values = omm_alloc(t.value_count, sizeof *values);
    if (err == OMM_OK && !values)
        err = omm_raise(OMM_ERR_NOMEM, "no memory for a copy of %zu weights", t.value_count);
    if (err == OMM_OK) {
        full_read(values, &t);
        put_keys(&w, like);
        err = put_tensors(&w, &t, values, like);
    }
    if (err == OMM_OK) err = omm_gguf_writer_finish(out, &w);
    omm_gguf_writer_fini(&w);
    full_tensors_fini(&t);
    omm_free(values);
    return err;
}

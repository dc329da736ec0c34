/* checkpoint.c - a training run as bytes.
 *
 *   "OMMT" | version u32 | recipe (omm_recipe_bytes) | identity 64 | marks u64[8] | step u32 |
 *   position u64 | tokens u64 | learned u64 | value_count u64 | losses f32[step] |
 *   chain 32 * (step + 1) | values f32[value_count] | core f32[core.c.value_count], with
 *   parts = core | m, v f32[optimizer_sizes_of] | BLAKE2b-256 of all before
 *
 * identity (checkpoint.h): its start is chain(0), and what more decides are the shapes and scales of
 * the adapter.  With a core the B's of values are not read: they are computed from it.
 */
#include "checkpoint.h"
#include "omm/mem.h"
#include "recipe_internal.h"
#include "trainer_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DIGEST_BYTES 32u

static const checkpoint_kind s_kind = {.magic = {'O', 'M', 'M', 'T'},
                                       .version_min = 3, /* without marks */
                                       .version = 4,
                                       .bytes_min = CHECKPOINT_FIXED_BYTES + OMM_RECIPE_BYTES +
                                                    2 * DIGEST_BYTES,
                                       .name = "a checkpoint of LoRA training (without --full)",
                                       .start = "another start",
                                       .more = "other ranks or scales of the start adapter",
                                       /* Without a start adapter that follows from the seed. */
                                       .behind = {[CHECKPOINT_LEARNED] = 1u << CHECKPOINT_DATA,
                                                  [CHECKPOINT_START] = 1u << CHECKPOINT_SEED,
                                                  [CHECKPOINT_MORE] = 1u << CHECKPOINT_START}};

static size_t checkpoint_bytes(const omm_trainer *t, uint32_t step) {
    return checkpoint_head_bytes(&t->recipe, step) + DIGEST_BYTES * ((size_t)step + 1) +
           sizeof(float) * (t->lora.value_count + t->core.c.value_count + t->state.m + t->state.v) +
           DIGEST_BYTES;
}

static checkpoint_run run_of(const omm_trainer *t) {
    return (checkpoint_run){&s_kind, &t->recipe, &t->identity, &t->identity, t->lora.value_count};
}

static omm_err put_all(const omm_trainer *t, omm_buf *out) {
    const checkpoint_run run = run_of(t);
    const checkpoint_head head = {.step = t->step,
                                  .position = t->position,
                                  .tokens = t->tokens,
                                  .learned = t->learned,
                                  .losses = omm_bytes_of(t->losses, t->step * sizeof(float))};
    OMM_TRY(checkpoint_put_head(out, &run, &head));
    OMM_TRY(omm_buf_append(out, t->chain, ((size_t)t->step + 1) * sizeof *t->chain));
    OMM_TRY(omm_buf_append(out, t->lora.values, t->lora.value_count * sizeof(float)));
    OMM_TRY(omm_buf_append(out, t->core.c.values, t->core.c.value_count * sizeof(float)));
    OMM_TRY(omm_buf_append(out, t->m, t->state.m * sizeof(float)));
    return omm_buf_append(out, t->v, t->state.v * sizeof(float));
}

omm_err omm_trainer_save(const omm_trainer *t, omm_buf *out) {
    size_t before = out->size;
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
    omm_bytes chain, values, core, m, v;
} parts;

omm_err checkpoint_envelope(omm_bytes *content, omm_bytes in, const checkpoint_kind *kind) {
    if (in.size < kind->bytes_min)
        return omm_raise(OMM_ERR_SIZE, "checkpoint of %zu bytes is too short", in.size);
    if (memcmp(in.data, kind->magic, sizeof kind->magic) != 0)
        return omm_raise(OMM_ERR_FORMAT, "not %s", kind->name);
    const uint32_t version = omm_get_u32(in.data + 4);
    if (version < kind->version_min || version > kind->version)
        return omm_raise(OMM_ERR_VERSION, "checkpoint version %u; this program knows %u to %u",
                         version, kind->version_min, kind->version);
    if (!omm_hash_sealed(content, in))
        return omm_raise(OMM_ERR_DIGEST, "the checkpoint is damaged");
    return OMM_OK;
}

/* --- whose it is ------------------------------------------------------------------------------- */

/* What is hashed for a part, in a mark of its own and in one of the two digests with others. */
typedef struct parted {
    checkpoint_identity *identity;
    omm_hasher whole;
} parted;

static void add_part(parted *p, checkpoint_part part, omm_bytes bytes) {
    uint8_t number[4];
    omm_hasher h;
    omm_hasher_init(&h);
    omm_put_u32(number, (uint32_t)part);
    omm_hasher_update(&h, omm_bytes_str("omm.checkpoint"));
    omm_hasher_update(&h, omm_bytes_of(number, sizeof number));
    omm_hasher_update(&h, bytes);
    const omm_digest mark = omm_hasher_final(&h);
    p->identity->marks[part] = omm_get_u64(mark.b);
    omm_hasher_update(&p->whole, bytes);
}

static parted parted_begin(checkpoint_identity *identity) {
    parted p = {.identity = identity};
    omm_hasher_init(&p.whole);
    return p;
}

static void set_model(checkpoint_identity *identity, const omm_model *model,
                      const omm_digest *weights) {
    const omm_model_dims *d = &model->dims;
    uint8_t dims[28];
    const uint32_t all[7] = {d->layers,   d->d_model,  d->d_ff, d->heads,
                             d->kv_heads, d->head_dim, d->vocab};
    for (size_t i = 0; i < 7; i++) omm_put_u32(dims + 4 * i, all[i]);
    const char *name = model->lora_shape.architecture;
    parted p = parted_begin(identity);
    add_part(&p, CHECKPOINT_ARCHITECTURE,
             omm_bytes_of(name, sizeof model->lora_shape.architecture));
    add_part(&p, CHECKPOINT_SIZES, omm_bytes_of(dims, sizeof dims));
    add_part(&p, CHECKPOINT_WEIGHTS, omm_bytes_of(weights->b, sizeof weights->b));
    identity->model = omm_hasher_final(&p.whole);
}

checkpoint_identity checkpoint_identity_of(const omm_model *model, const omm_digest *weights,
                                           const omm_seed *seed, const omm_dataset *data,
                                           const omm_digest *start, omm_bytes more) {
    const omm_digest examples = omm_dataset_digest(data); /* of the lines, whatever they teach */
    uint8_t learned[8];
    checkpoint_identity identity = {0};
    set_model(&identity, model, weights);
    omm_put_u64(learned, omm_dataset_learned(data));
    parted p = parted_begin(&identity);
    add_part(&p, CHECKPOINT_SEED, omm_bytes_of(seed->b, sizeof seed->b));
    add_part(&p, CHECKPOINT_DATA, omm_bytes_of(examples.b, sizeof examples.b));
    add_part(&p, CHECKPOINT_LEARNED, omm_bytes_of(learned, sizeof learned));
    add_part(&p, CHECKPOINT_START, omm_bytes_of(start->b, sizeof start->b));
    add_part(&p, CHECKPOINT_MORE, more);
    identity.run = omm_hasher_final(&p.whole);
    return identity;
}

static omm_err put_identity(omm_buf *out, const checkpoint_identity *identity) {
    OMM_TRY(omm_buf_append(out, identity->model.b, DIGEST_BYTES));
    OMM_TRY(omm_buf_append(out, identity->run.b, DIGEST_BYTES));
    for (size_t i = 0; i < CHECKPOINT_PARTS; i++) OMM_TRY(omm_buf_put_u64(out, identity->marks[i]));
    return OMM_OK;
}

/* But for the micro-batches, which change no byte of the result. */
static omm_err check_recipe(omm_bytes bytes, const omm_recipe *ours) {
    char which[OMM_RECIPE_DIFFERENCE_BYTES] = "one that this program does not know";
    omm_recipe theirs, wanted = *ours;
    const bool is_known = omm_recipe_decode(&theirs, bytes) == OMM_OK;
    if (is_known) wanted.micro_tokens = theirs.micro_tokens;
    if (is_known && !omm_recipe_difference(which, &theirs, &wanted)) return OMM_OK;
    return omm_raise(OMM_ERR_MISMATCH,
                     "the checkpoint belongs to another recipe (%s): go on with the options that "
                     "it was made with",
                     which);
}

/* Of what is drawn or counted from another part only that part is named. */
static bool differs(omm_bytes marks, const checkpoint_identity *ours, checkpoint_part part,
                    const checkpoint_kind *kind) {
    for (size_t i = 0; i < CHECKPOINT_PARTS; i++)
        if ((kind->behind[part] & 1u << i) && differs(marks, ours, (checkpoint_part)i, kind))
            return false;
    return omm_get_u64(marks.data + 8 * (size_t)part) != ours->marks[part];
}

/* marks: of the checkpoint; empty in one of before. */
static omm_err other_model(omm_bytes marks, const checkpoint_identity *ours,
                           const checkpoint_kind *kind) {
    const char *why = marks.size == 0 ? "of another architecture, other sizes or other weights"
                      : differs(marks, ours, CHECKPOINT_ARCHITECTURE, kind)
                          ? "of another architecture"
                      : differs(marks, ours, CHECKPOINT_SIZES, kind) ? "of other sizes"
                                                                     : "with other weights";
    return omm_raise(OMM_ERR_MISMATCH, "the checkpoint belongs to another model: %s", why);
}

static omm_err other_run(omm_bytes marks, const checkpoint_identity *ours,
                         const checkpoint_kind *kind) {
    const char *const said[CHECKPOINT_PARTS] = {
        [CHECKPOINT_SEED] = "another seed",
        [CHECKPOINT_DATA] = "another data set",
        [CHECKPOINT_LEARNED] = "another choice of what is learned of the same data",
        [CHECKPOINT_START] = kind->start,
        [CHECKPOINT_MORE] = kind->more};
    char list[256] = "";
    for (size_t i = CHECKPOINT_SEED; i < CHECKPOINT_PARTS && marks.size > 0; i++) {
        const size_t at = strlen(list);
        if (differs(marks, ours, (checkpoint_part)i, kind))
            snprintf(list + at, sizeof list - at, "%s%s", at ? " and " : "", said[i]);
    }
    return omm_raise(OMM_ERR_MISMATCH, "the checkpoint belongs to %s",
                     list[0] ? list : "another seed, data set, start or choice of what is learned");
}

static omm_err check_run(omm_bytes recipe, omm_bytes identity, omm_bytes marks,
                         const checkpoint_run *run, const checkpoint_identity *ours) {
    OMM_TRY(check_recipe(recipe, run->recipe));
    if (memcmp(identity.data, ours->model.b, DIGEST_BYTES) != 0)
        return other_model(marks, ours, run->kind);
    if (memcmp(identity.data + DIGEST_BYTES, ours->run.b, DIGEST_BYTES) != 0)
        return other_run(marks, ours, run->kind);
    return OMM_OK;
}

/* --- the head ---------------------------------------------------------------------------------- */

size_t checkpoint_head_bytes(const omm_recipe *recipe, uint32_t step) {
    return CHECKPOINT_FIXED_BYTES + CHECKPOINT_MARKS_BYTES + omm_recipe_bytes(recipe) +
           sizeof(float) * (size_t)step;
}

omm_err checkpoint_put_head(omm_buf *out, const checkpoint_run *run, const checkpoint_head *head) {
    OMM_TRY(omm_buf_append(out, run->kind->magic, sizeof run->kind->magic));
    OMM_TRY(omm_buf_put_u32(out, run->kind->version));
    OMM_TRY(omm_recipe_encode(out, run->recipe));
    OMM_TRY(put_identity(out, run->identity));
    OMM_TRY(omm_buf_put_u32(out, head->step));
    OMM_TRY(omm_buf_put_u64(out, head->position));
    OMM_TRY(omm_buf_put_u64(out, head->tokens));
    OMM_TRY(omm_buf_put_u64(out, head->learned));
    OMM_TRY(omm_buf_put_u64(out, run->value_count));
    return omm_buf_append(out, head->losses.data, head->losses.size);
}

omm_err checkpoint_take_head(checkpoint_head *head, omm_reader *rest, omm_bytes in,
                             const checkpoint_run *run) {
    omm_reader *r = rest;
    omm_bytes content = {0};
    OMM_TRY(checkpoint_envelope(&content, in, run->kind));
    *r = omm_reader_of(content);
    omm_read_u32(r); /* magic */
    const uint32_t version = omm_read_u32(r);
    head->has_marks = version > 3;
    const size_t theirs = omm_recipe_bytes_in(omm_bytes_of(content.data + 8, content.size - 8));
    const omm_bytes recipe = omm_read_bytes(r, theirs > 0 ? theirs : omm_recipe_bytes(run->recipe));
    const omm_bytes identity = omm_read_bytes(r, CHECKPOINT_IDENTITY_BYTES);
    const omm_bytes marks = omm_read_bytes(r, head->has_marks ? CHECKPOINT_MARKS_BYTES : 0);
    head->step = omm_read_u32(r);
    head->position = omm_read_u64(r);
    head->tokens = omm_read_u64(r);
    head->learned = omm_read_u64(r);
    const uint64_t value_count = omm_read_u64(r);
    if (r->failed) return omm_raise(OMM_ERR_SIZE, "the checkpoint ends early");
    OMM_TRY(check_run(recipe, identity, marks, run,
                      version < run->kind->version ? run->before : run->identity));
    if (value_count != run->value_count || head->step > run->recipe->steps)
        return omm_raise(OMM_ERR_FORMAT, "the checkpoint contradicts itself");
    head->losses = omm_read_bytes(r, head->step * sizeof(float));
    return OMM_OK;
}

omm_err checkpoint_check_size(omm_bytes in, const checkpoint_head *head, size_t bytes) {
    if (!head->has_marks) bytes -= CHECKPOINT_MARKS_BYTES;
    if (in.size == bytes) return OMM_OK;
    return omm_raise(OMM_ERR_SIZE, "checkpoint of %zu bytes instead of %zu", in.size, bytes);
}

bool checkpoint_all_finite(omm_bytes floats) {
    for (size_t i = 0; i < floats.size; i += 4)
        if (!isfinite(omm_get_f32(floats.data + i))) return false;
    return true;
}

static omm_err take_apart(parts *p, omm_bytes in, const omm_trainer *t) {
    omm_reader r;
    const checkpoint_run run = run_of(t);
    OMM_TRY(checkpoint_take_head(&p->head, &r, in, &run));
    OMM_TRY(checkpoint_check_size(in, &p->head, checkpoint_bytes(t, p->head.step)));
    p->chain = omm_read_bytes(&r, DIGEST_BYTES * ((size_t)p->head.step + 1));
    p->values = omm_read_bytes(&r, t->lora.value_count * sizeof(float));
    p->core = omm_read_bytes(&r, t->core.c.value_count * sizeof(float));
    p->m = omm_read_bytes(&r, t->state.m * sizeof(float));
    p->v = omm_read_bytes(&r, t->state.v * sizeof(float));
    OMM_ASSERT(!r.failed);
    return OMM_OK;
}

static omm_err check(parts *p, omm_bytes checkpoint, const omm_trainer *t) {
    OMM_TRY(take_apart(p, checkpoint, t));
    if (!checkpoint_all_finite(p->head.losses) || !checkpoint_all_finite(p->values) ||
        !checkpoint_all_finite(p->core) || !checkpoint_all_finite(p->m) ||
        !checkpoint_all_finite(p->v))
        return omm_raise(OMM_ERR_FORMAT, "the checkpoint holds a value that is not finite");
    return OMM_OK;
}

omm_err checkpoint_step(uint32_t *step, const omm_trainer *t, omm_bytes checkpoint) {
    parts p = {0};
    OMM_TRY(check(&p, checkpoint, t));
    *step = p.head.step;
    return OMM_OK;
}

omm_err omm_trainer_resume(omm_trainer *t, omm_bytes checkpoint) {
    parts p = {0};
    OMM_TRY(check(&p, checkpoint, t));
    t->step = p.head.step;
    t->position = p.head.position;
    t->tokens = p.head.tokens;
    t->learned = p.head.learned;
    if (p.head.losses.size) memcpy(t->losses, p.head.losses.data, p.head.losses.size);
    memcpy(t->chain, p.chain.data, p.chain.size);
    memcpy(t->lora.values, p.values.data, p.values.size);
    if (p.core.size) memcpy(t->core.c.values, p.core.data, p.core.size);
    core_apply(&t->core, &t->lora, t->options.compute);
    if (p.m.size) memcpy(t->m, p.m.data, p.m.size);
    if (p.v.size) memcpy(t->v, p.v.data, p.v.size);
    return OMM_OK;
}

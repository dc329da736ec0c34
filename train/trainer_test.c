/* The trainer's promises: exact resume, damaged checkpoints refused, cancel and NaN change nothing,
 * frozen halves stay, the chain, allocation failures. */
#include "batch.h"
#include "test_model.h"
#include "trainer_internal.h"

#include "omm/file.h"
#include "omm/mem.h"

#include <math.h>
#include <string.h>

typedef struct rig {
    test_rig base;
    bool stop;
} rig;

static bool is_stopped(void *ud) {
    return ((rig *)ud)->stop;
}

static omm_trainer_options options_of(rig *r) {
    omm_trainer_options options = test_rig_options(&r->base);
    options.cancelled = is_stopped;
    options.ud = r;
    return options;
}

static omm_trainer *open_trainer(rig *r) {
    omm_trainer *t = NULL;
    omm_trainer_options options = options_of(r);
    CHECK_OK(omm_trainer_open(&t, &options));
    return t;
}

static bool same_values(const omm_trainer *a, const omm_trainer *b) {
    const omm_lora *x = omm_trainer_adapter(a), *y = omm_trainer_adapter(b);
    return x->value_count == y->value_count &&
           memcmp(x->values, y->values, x->value_count * sizeof(float)) == 0;
}

static void resume_is_exact(rig *r) {
    omm_trainer *whole = open_trainer(r), *first = open_trainer(r), *second = open_trainer(r);
    omm_step_report a, b;
    omm_buf saved, again;
    omm_buf_init(&saved, 64 << 20);
    omm_buf_init(&again, 64 << 20);
    for (int i = 0; i < 2; i++) CHECK_OK(omm_trainer_step(first, NULL));
    CHECK_OK(omm_trainer_save(first, &saved));
    CHECK_OK(omm_trainer_resume(second, omm_buf_view(&saved)));
    CHECK_OK(omm_trainer_save(second, &again));
    CHECK(omm_bytes_equal(omm_buf_view(&saved), omm_buf_view(&again)));
    while (!omm_trainer_is_done(whole)) CHECK_OK(omm_trainer_step(whole, &a));
    while (!omm_trainer_is_done(second)) CHECK_OK(omm_trainer_step(second, &b));
    CHECK(same_values(whole, second));
    CHECK(omm_digest_equal(&a.digest, &b.digest));
    omm_train_result x = omm_trainer_result(whole), y = omm_trainer_result(second);
    CHECK(x.steps == y.steps && x.tokens == y.tokens && x.learned == y.learned);
    CHECK(x.loss_first == y.loss_first && x.loss_last == y.loss_last);
    CHECK(x.steps == r->base.recipe.steps && x.loss_last < x.loss_first && x.tokens > x.learned);
    CHECK_ERR(omm_trainer_step(whole, NULL), OMM_ERR_STATE);
    omm_buf_fini(&saved);
    omm_buf_fini(&again);
    omm_trainer_close(whole);
    omm_trainer_close(first);
    omm_trainer_close(second);
}

static void damaged_checkpoints(rig *r) {
    omm_trainer *t = open_trainer(r), *fresh = open_trainer(r);
    omm_buf saved, before, after;
    omm_buf_init(&saved, 64 << 20);
    omm_buf_init(&before, 64 << 20);
    omm_buf_init(&after, 64 << 20);
    omm_step_report report;
    CHECK_OK(omm_trainer_step(t, &report));
    CHECK_OK(omm_trainer_save(t, &saved));
    CHECK_OK(omm_trainer_save(fresh, &before));
    for (size_t size = 0; size < saved.size; size += size < 600 ? 1 : 9973)
        CHECK(omm_trainer_resume(fresh, omm_bytes_of(saved.data, size)) != OMM_OK);
    for (size_t at = 0; at < saved.size; at += at < 600 ? 1 : 9973) {
        saved.data[at] ^= 4;
        CHECK(omm_trainer_resume(fresh, omm_buf_view(&saved)) != OMM_OK);
        saved.data[at] ^= 4;
    }
    /* Whole, but the last number of the optimiser's state is none. */
    saved.size -= sizeof(omm_digest);
    const float last = omm_get_f32(saved.data + saved.size - 4);
    omm_put_f32(saved.data + saved.size - 4, nanf(""));
    CHECK_OK(omm_hash_seal(&saved, 0));
    CHECK_ERR(omm_trainer_resume(fresh, omm_buf_view(&saved)), OMM_ERR_FORMAT);
    saved.size -= sizeof(omm_digest);
    omm_put_f32(saved.data + saved.size - 4, last);
    /* Or a loss. */
    uint8_t bits[4];
    omm_put_f32(bits, report.loss);
    uint8_t *loss = memmem(saved.data, saved.size, bits, sizeof bits);
    CHECK(loss != NULL);
    omm_put_f32(loss, nanf(""));
    CHECK_OK(omm_hash_seal(&saved, 0));
    CHECK_ERR(omm_trainer_resume(fresh, omm_buf_view(&saved)), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "not finite") != NULL);
    saved.size -= sizeof(omm_digest);
    omm_put_f32(loss, report.loss);
    CHECK_OK(omm_hash_seal(&saved, 0));
    CHECK_OK(omm_trainer_save(fresh, &after));
    CHECK(omm_bytes_equal(omm_buf_view(&before), omm_buf_view(&after)));
    rig other = *r;
    other.base.recipe.learning_rate *= 2;
    omm_trainer *foreign = open_trainer(&other);
    CHECK_ERR(omm_trainer_resume(foreign, omm_buf_view(&saved)), OMM_ERR_MISMATCH);
    CHECK_OK(omm_trainer_resume(fresh, omm_buf_view(&saved)));
    CHECK(same_values(t, fresh));
    omm_trainer_close(foreign);
    omm_trainer_close(t);
    omm_trainer_close(fresh);
    omm_buf_fini(&saved);
    omm_buf_fini(&before);
    omm_buf_fini(&after);
}

/* Sealed anew with this u32 there: whole, but not what it says it is. */
static void contradicts(omm_trainer *t, const omm_buf *sound, size_t at, uint32_t bits,
                        const char *says) {
    omm_buf bytes;
    omm_buf_init(&bytes, 64 << 20);
    CHECK_OK(omm_buf_append(&bytes, sound->data, sound->size - sizeof(omm_digest)));
    omm_put_u32(bytes.data + at, bits);
    CHECK_OK(omm_hash_seal(&bytes, 0));
    CHECK_ERR(omm_trainer_resume(t, omm_buf_view(&bytes)), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), says) != NULL);
    omm_buf_fini(&bytes);
}

/* One step more than the recipe has, with its loss and its digest. */
static void one_step_more(omm_trainer *t, const omm_buf *sound, size_t step_at) {
    const size_t losses_at = step_at + 4 + 4 * sizeof(uint64_t),
                 chain_at = losses_at + 4 * (size_t)t->step;
    const uint8_t more[sizeof(omm_digest)] = {0};
    omm_buf bytes;
    omm_buf_init(&bytes, 64 << 20);
    CHECK_OK(omm_buf_append(&bytes, sound->data, chain_at));
    CHECK_OK(omm_buf_append(&bytes, more, 4));
    CHECK_OK(omm_buf_append(&bytes, more, sizeof more));
    CHECK_OK(omm_buf_append(&bytes, sound->data + chain_at,
                            sound->size - chain_at - sizeof(omm_digest)));
    omm_put_u32(bytes.data + step_at, t->step + 1);
    CHECK_OK(omm_hash_seal(&bytes, 0));
    CHECK_ERR(omm_trainer_resume(t, omm_buf_view(&bytes)), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "contradicts itself") != NULL);
    omm_buf_fini(&bytes);
}

/* Whole, and a number longer or shorter than what it says it holds. */
static void other_size(omm_trainer *t, const omm_buf *sound) {
    for (size_t i = 0; i < 2; i++) {
        omm_buf bytes;
        omm_buf_init(&bytes, 64 << 20);
        CHECK_OK(omm_buf_append(&bytes, sound->data, sound->size - sizeof(omm_digest)));
        if (i == 0)
            CHECK_OK(omm_buf_put_u32(&bytes, 0));
        else
            bytes.size -= 4;
        CHECK_OK(omm_hash_seal(&bytes, 0));
        CHECK_ERR(omm_trainer_resume(t, omm_buf_view(&bytes)), OMM_ERR_SIZE);
        omm_buf_fini(&bytes);
    }
}

/* checkpoint.c has the layout: the counts of its head, and a number in every part of its floats. */
static void contradictions(rig *r) {
    omm_trainer *t = open_trainer(r);
    omm_buf saved;
    omm_buf_init(&saved, 64 << 20);
    CHECK_OK(omm_trainer_run(t));
    CHECK_OK(omm_trainer_save(t, &saved));
    const size_t step_at =
        8 + omm_recipe_bytes(&t->recipe) + CHECKPOINT_IDENTITY_BYTES + CHECKPOINT_MARKS_BYTES;
    const size_t floats = t->lora.value_count + t->core.c.value_count + t->state.m + t->state.v;
    const size_t values_at = saved.size - sizeof(omm_digest) - floats * sizeof(float);
    const size_t parts[] = {t->lora.value_count, t->core.c.value_count, t->state.m, t->state.v};
    CHECK_EQ(omm_get_u32(saved.data + step_at), t->step);
    one_step_more(t, &saved, step_at);
    other_size(t, &saved);
    contradicts(t, &saved, step_at + 4 + 3 * sizeof(uint64_t), (uint32_t)t->lora.value_count + 1,
                "contradicts itself");
    for (size_t i = 0, at = values_at; i < 4; at += parts[i++] * sizeof(float)) {
        if (!parts[i]) continue;
        CHECK(parts[i] >= 4);
        contradicts(t, &saved, at, 0x7fc00000, "not finite");
        contradicts(t, &saved, at + (parts[i] - 1) * sizeof(float), 0xff800000, "not finite");
    }
    omm_buf_fini(&saved);
    omm_trainer_close(t);
}

/* The mark of this part is another one, and no other is. */
static bool other_mark(const checkpoint_identity *x, const checkpoint_identity *is,
                       checkpoint_part part) {
    for (size_t i = 0; i < CHECKPOINT_PARTS; i++)
        if ((x->marks[i] != is->marks[i]) != (i == (size_t)part)) return false;
    return true;
}

/* Each size of a model and its architecture tell it from others, and so do seed, data, start and the rest. */
static void identities(const rig *r) {
    const omm_seed seed = omm_seed_from_u64(1), other = omm_seed_from_u64(2);
    const omm_digest zero = {{0}}, one = {{1}};
    const omm_bytes more = omm_bytes_str("more");
    const checkpoint_identity is =
        checkpoint_identity_of(&r->base.model, &zero, &seed, r->base.data, &zero, more);
    for (size_t i = 0; i < 9; i++) {
        omm_model model = r->base.model;
        omm_model_dims *const d = &model.dims;
        uint32_t *const sizes[] = {&d->layers,   &d->d_model,  &d->d_ff, &d->heads,
                                   &d->kv_heads, &d->head_dim, &d->vocab};
        if (i < 7) ++*sizes[i];
        if (i == 7) model.lora_shape.architecture[0]++;
        const checkpoint_identity x =
            checkpoint_identity_of(&model, i == 8 ? &one : &zero, &seed, r->base.data, &zero, more);
        CHECK(!omm_digest_equal(&x.model, &is.model) && omm_digest_equal(&x.run, &is.run));
        CHECK(other_mark(&x, &is,
                         i < 7    ? CHECKPOINT_SIZES
                         : i == 7 ? CHECKPOINT_ARCHITECTURE
                                  : CHECKPOINT_WEIGHTS));
    }
    for (size_t i = 0; i < 3; i++) {
        const checkpoint_identity x =
            checkpoint_identity_of(&r->base.model, &zero, i == 0 ? &other : &seed, r->base.data,
                                   i == 1 ? &one : &zero, i == 2 ? omm_bytes_str("less") : more);
        CHECK(omm_digest_equal(&x.model, &is.model) && !omm_digest_equal(&x.run, &is.run));
        CHECK(other_mark(&x, &is,
                         i == 0   ? CHECKPOINT_SEED
                         : i == 1 ? CHECKPOINT_START
                                  : CHECKPOINT_MORE));
    }
}

/* Examples of a larger vocabulary than the model's: refused before anything is read behind its rows, and nothing changes. */
static void other_vocabulary(rig *r) {
    omm_trainer *t = open_trainer(r);
    omm_buf before, after;
    omm_model_dims *const dims = &r->base.model.dims;
    const uint32_t vocab = dims->vocab;
    omm_buf_init(&before, 64 << 20);
    omm_buf_init(&after, 64 << 20);
    CHECK_OK(omm_trainer_step(t, NULL));
    CHECK_OK(omm_trainer_save(t, &before));
    dims->vocab = 1;
    CHECK_ERR(omm_trainer_step(t, NULL), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "the model has 1") != NULL);
    dims->vocab = vocab;
    CHECK_OK(omm_trainer_save(t, &after));
    CHECK(omm_bytes_equal(omm_buf_view(&before), omm_buf_view(&after)));
    CHECK_OK(omm_trainer_step(t, NULL));
    omm_buf_fini(&before);
    omm_buf_fini(&after);
    omm_trainer_close(t);
}

/* Other micro-batches go on, and end with the same bytes. */
static void goes_on_with_other_micro_batches(rig *r) {
    rig other = *r;
    other.base.recipe.micro_tokens = 1;
    omm_trainer *whole = open_trainer(r), *first = open_trainer(r), *second = open_trainer(&other);
    omm_buf saved;
    omm_buf_init(&saved, 64 << 20);
    CHECK_OK(omm_trainer_step(first, NULL));
    CHECK_OK(omm_trainer_save(first, &saved));
    CHECK_OK(omm_trainer_resume(second, omm_buf_view(&saved)));
    CHECK_OK(omm_trainer_run(second));
    CHECK_OK(omm_trainer_run(whole));
    CHECK(same_values(whole, second));
    omm_buf_fini(&saved);
    omm_trainer_close(whole);
    omm_trainer_close(first);
    omm_trainer_close(second);
}

/* The same lines, but everything in them is learned. */
static void learn_all(omm_dataset **out, const rig *r) {
    const omm_dataset_options options = {.loss = OMM_LOSS_ALL};
    const omm_digest lines = omm_dataset_digest(r->base.data);
    size_t size = 0;
    char path[512];
    omm_buf text;
    omm_buf_init(&text, 16 << 20);
    test_path(path, "scenarios/base/train.jsonl");
    CHECK_OK(omm_file_read(&text, path));
    for (size_t n = omm_dataset_count(r->base.data); n > 0;) n -= text.data[size++] == '\n';
    CHECK_OK(
        omm_dataset_parse(out, omm_bytes_of(text.data, size), "all", r->base.tokenizer, &options));
    const omm_digest same = omm_dataset_digest(*out);
    CHECK(omm_digest_equal(&lines, &same));
    CHECK(omm_dataset_learned(*out) > omm_dataset_learned(r->base.data));
    omm_buf_fini(&text);
}

/* Refused, and all that is said of why is `belongs`. */
static void belongs_to(omm_trainer *t, const omm_buf *saved, const char *belongs) {
    const char *begins = "the checkpoint belongs to ";
    CHECK_ERR(omm_trainer_resume(t, omm_buf_view(saved)), OMM_ERR_MISMATCH);
    const char *said = omm_err_sentence();
    const bool is_it =
        strncmp(said, begins, strlen(begins)) == 0 && strcmp(said + strlen(begins), belongs) == 0;
    if (!is_it) fprintf(stderr, "not %s: %s\n", belongs, said);
    CHECK(is_it);
}

/* A checkpoint of before is gone on with to the same bytes, and one version further is not known. */
static void older_and_newer(rig *r) {
    omm_trainer *t = open_trainer(r), *fresh = open_trainer(r);
    omm_buf saved, old, again;
    omm_buf_init(&saved, 64 << 20);
    omm_buf_init(&again, 64 << 20);
    CHECK_OK(omm_trainer_step(t, NULL));
    CHECK_OK(omm_trainer_save(t, &saved));
    test_before_marks(&old, &saved);
    CHECK_OK(omm_trainer_resume(fresh, omm_buf_view(&old)));
    CHECK_OK(omm_trainer_save(fresh, &again));
    CHECK(omm_bytes_equal(omm_buf_view(&again), omm_buf_view(&saved)));
    for (uint32_t version = 2; version <= 5; version += 3) {
        omm_put_u32(saved.data + 4, version);
        saved.size -= sizeof(omm_digest);
        CHECK_OK(omm_hash_seal(&saved, 0));
        CHECK_ERR(omm_trainer_resume(fresh, omm_buf_view(&saved)), OMM_ERR_VERSION);
        CHECK(strstr(omm_err_sentence(), "this program knows 3 to 4") != NULL);
    }
    omm_trainer_close(t);
    omm_trainer_close(fresh);
    omm_buf_fini(&saved);
    omm_buf_fini(&old);
    omm_buf_fini(&again);
}

/* What was made with another model, seed, data, or choice of what is learned of it, is not gone on with. */
static void foreign_checkpoints(rig *r) {
    static const char *const said[] = {
        "another model: with other weights", "another seed", "another data set",
        "another choice of what is learned of the same data", "another seed and another data set"};
    static const char before[] = "another seed, data set, start or choice of what is learned";
    omm_trainer *t = open_trainer(r);
    omm_dataset *data = NULL, *all = NULL;
    omm_buf saved, old;
    omm_buf_init(&saved, 64 << 20);
    learn_all(&all, r);
    CHECK_OK(omm_trainer_step(t, NULL));
    CHECK_OK(omm_trainer_save(t, &saved));
    test_before_marks(&old, &saved);
    test_data_open(&data, "train.jsonl", omm_dataset_count(r->base.data) - 1, r->base.tokenizer);
    for (int i = 0; i < 5; i++) {
        omm_trainer_options options = options_of(r);
        omm_trainer *foreign = NULL;
        if (i == 0) options.model_digest.b[31] = 1;
        if (i == 1 || i == 4) options.seed = omm_seed_from_u64(2);
        if (i == 2 || i == 4) options.data = data;
        if (i == 3) options.data = all;
        CHECK_OK(omm_trainer_open(&foreign, &options));
        belongs_to(foreign, &saved, said[i]);
        belongs_to(foreign, &old,
                   i > 0 ? before
                         : "another model: of another architecture, other sizes or other weights");
        omm_trainer_close(foreign);
    }
    omm_buf_fini(&old);
    omm_dataset_close(data);
    omm_dataset_close(all);
    omm_trainer_close(t);
    omm_buf_fini(&saved);
}

/* Nor what began with the same values at another scale, or with others, where the start says the layout. */
static void foreign_starts(rig *r) {
    omm_lora starts[3];
    omm_trainer *t[3] = {0};
    omm_buf saved;
    omm_buf_init(&saved, 64 << 20);
    for (size_t i = 0; i < 3; i++) {
        omm_trainer_options options = options_of(r);
        test_adapter(&starts[i], &r->base.model, 3, r->base.recipe.targets, 3);
        if (i == 1) starts[i].tensors[0].scale = starts[i].tensors[1].scale *= 2;
        if (i == 2) starts[i].values[0] += 1;
        options.start = &starts[i];
        options.like_start = true;
        CHECK_OK(omm_trainer_open(&t[i], &options));
        const omm_lora_spec *is = &omm_trainer_adapter(t[i])->spec, *was = &starts[i].spec;
        CHECK(is->rank == was->rank && is->alpha == was->alpha && is->targets == was->targets);
    }
    CHECK_OK(omm_trainer_save(t[0], &saved));
    for (size_t i = 1; i < 3; i++) {
        belongs_to(t[i], &saved,
                   i == 1 ? "other ranks or scales of the start adapter" : "another start");
    }
    CHECK_OK(omm_trainer_resume(t[0], omm_buf_view(&saved)));
    for (size_t i = 0; i < 3; i++) {
        omm_trainer_close(t[i]);
        omm_lora_fini(&starts[i]);
    }
    omm_buf_fini(&saved);
}

static void cancel_changes_nothing(rig *r) {
    omm_trainer *t = open_trainer(r), *other = open_trainer(r);
    CHECK_OK(omm_trainer_step(t, NULL));
    CHECK_OK(omm_trainer_step(other, NULL));
    r->stop = true;
    CHECK_ERR(omm_trainer_step(t, NULL), OMM_ERR_CANCELLED);
    CHECK(strstr(omm_err_sentence(), "stopped in step 2") != NULL);
    CHECK_ERR(omm_trainer_run(t), OMM_ERR_CANCELLED);
    r->stop = false;
    CHECK(same_values(t, other));
    CHECK_OK(omm_trainer_run(t));
    CHECK_OK(omm_trainer_run(other));
    CHECK(same_values(t, other));
    omm_trainer_close(t);
    omm_trainer_close(other);
}

static void set_alpha(omm_lora *lora, float alpha) {
    lora->spec.alpha = alpha;
    for (size_t i = 0; i < lora->tensor_count; i++)
        lora->tensors[i].scale = alpha / (float)lora->spec.rank;
}

/* A start adapter so large that the forward pass overflows. */
static void overflow_names_the_step(rig *r) {
    omm_lora start;
    omm_trainer *t = NULL;
    test_adapter(&start, &r->base.model, r->base.recipe.rank, r->base.recipe.targets, 3);
    set_alpha(&start, r->base.recipe.alpha);
    for (size_t i = 0; i < start.value_count; i++) start.values[i] *= 1e30F;
    omm_trainer_options options = options_of(r);
    options.start = &start;
    CHECK_OK(omm_trainer_open(&t, &options));
    CHECK_ERR(omm_trainer_step(t, NULL), OMM_ERR_NUMERIC);
    CHECK(strstr(omm_err_sentence(), "step 1"));
    CHECK(memcmp(omm_trainer_adapter(t)->values, start.values, start.value_count * sizeof(float)) ==
          0);
    omm_trainer_close(t);
    t = NULL;
    start.values[5] = NAN;
    CHECK_ERR(omm_trainer_open(&t, &options), OMM_ERR_NUMERIC);
    start.values[5] = 0;
    start.tensors[0].scale *= 2;
    CHECK_ERR(omm_trainer_open(&t, &options), OMM_ERR_REFUSED_SHAPE);
    set_alpha(&start, 17);
    omm_recipe asked = r->base.recipe;
    asked.rank = 3;
    asked.targets = 1U << OMM_LORA_V;
    options.recipe = &asked;
    CHECK_ERR(omm_trainer_open(&t, &options), OMM_ERR_REFUSED_SHAPE);
    CHECK(strstr(omm_err_sentence(), "blk.0.attn_q: the start adapter has rank "));
    CHECK(strstr(omm_err_sentence(), ", the recipe says nothing there; accepted: the same"));
    asked = r->base.recipe; /* one pair in the middle is another: it is named, with both numbers */
    set_alpha(&start, asked.alpha);
    start.tensors[6].scale = start.tensors[7].scale = 4 * start.tensors[6].scale;
    asked.rslora = true;
    CHECK_ERR(omm_trainer_open(&t, &options), OMM_ERR_REFUSED_SHAPE);
    CHECK(strstr(omm_err_sentence(), "alpha 16 with rsLoRA (scale "));
    asked.rslora = false;
    CHECK_ERR(omm_trainer_open(&t, &options), OMM_ERR_REFUSED_SHAPE);
    CHECK(strstr(omm_err_sentence(), "blk.0.attn_output: the start adapter has rank "));
    CHECK(strstr(omm_err_sentence(), ", alpha 64 (scale "));
    CHECK(strstr(omm_err_sentence(), ", alpha 16 (scale "));
    omm_lora_fini(&start);
    omm_model other = r->base.model; /* as many layers, and wider: no pair is to blame */
    other.lora_shape.d_in[OMM_LORA_DOWN] += 32;
    test_adapter(&start, &other, asked.rank, asked.targets, 3);
    set_alpha(&start, asked.alpha);
    CHECK_ERR(omm_trainer_open(&t, &options), OMM_ERR_REFUSED_SHAPE);
    CHECK(strstr(omm_err_sentence(), "the start adapter is of a model of another shape"));
    CHECK(!t);
    omm_lora_fini(&start);
}

/* Before a B of zeros a large A changes no loss, but the gradient of B is as large. */
static void large_gradient_names_its_tensor(rig *r) {
    omm_lora start;
    omm_trainer *t = NULL;
    test_adapter(&start, &r->base.model, r->base.recipe.rank, r->base.recipe.targets, 3);
    set_alpha(&start, r->base.recipe.alpha);
    for (size_t i = 0; i < start.tensor_count; i++) {
        const omm_lora_tensor *x = &start.tensors[i];
        for (size_t k = 0; k < (size_t)x->rows * x->cols; k++)
            start.values[x->offset + k] *= x->is_b ? 0 : 1e25F;
    }
    omm_trainer_options options = options_of(r);
    options.start = &start;
    CHECK_OK(omm_trainer_open(&t, &options));
    CHECK_ERR(omm_trainer_step(t, NULL), OMM_ERR_NUMERIC);
    CHECK(strstr(omm_err_sentence(), "step 1: loss") && strstr(omm_err_sentence(), ".lora_b"));
    CHECK(memcmp(omm_trainer_adapter(t)->values, start.values, start.value_count * sizeof(float)) ==
          0);
    omm_trainer_close(t);
    omm_lora_fini(&start);
}

static void frozen_half_stays(const rig *r, uint32_t parts) {
    rig half = *r;
    half.base.recipe.parts = parts;
    half.base.recipe.weight_decay = 0.1F;
    omm_lora start;
    test_adapter(&start, &r->base.model, r->base.recipe.rank, r->base.recipe.targets, 4);
    set_alpha(&start, r->base.recipe.alpha);
    omm_trainer_options options = options_of(&half);
    options.start = &start;
    omm_trainer *t = NULL;
    CHECK_OK(omm_trainer_open(&t, &options));
    CHECK_OK(omm_trainer_step(t, NULL));
    const omm_lora *now = omm_trainer_adapter(t);
    for (size_t i = 0; i < now->tensor_count; i++) {
        const omm_lora_tensor *x = &now->tensors[i];
        bool same = memcmp(now->values + x->offset, start.values + x->offset,
                           (size_t)x->rows * x->cols * sizeof(float)) == 0;
        CHECK_EQ(same, x->is_b == (parts == OMM_RECIPE_PARTS_A));
    }
    omm_trainer_close(t);
    omm_lora_fini(&start);
}

static void chain(rig *r) {
    omm_trainer *t = open_trainer(r);
    const omm_lora *lora = omm_trainer_adapter(t);
    omm_digest d[2];
    d[0] = omm_hash(omm_bytes_of(lora->values, lora->value_count * sizeof(float)));
    omm_digest at = omm_trainer_chain(t, 0);
    CHECK(omm_digest_equal(&d[0], &at));
    CHECK_OK(omm_trainer_step(t, NULL));
    omm_hasher h;
    omm_hasher_init(&h);
    omm_hasher_update(&h, omm_bytes_of(d[0].b, 32));
    omm_hasher_update(&h, omm_bytes_of(lora->values, lora->value_count * sizeof(float)));
    d[1] = omm_hasher_final(&h);
    at = omm_trainer_chain(t, 1);
    CHECK(omm_digest_equal(&d[1], &at));
    omm_trainer_close(t);
}

static void allocations_fail(rig *r) {
    omm_trainer_options options = options_of(r);
    size_t live = omm_mem_live();
    for (size_t nth = 1;; nth++) {
        omm_trainer *t = NULL;
        omm_mem_fail_nth(nth);
        omm_err err = omm_trainer_open(&t, &options);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        if (err == OMM_OK) {
            CHECK(nth > 10);
            omm_trainer_close(t);
            break;
        }
        CHECK_EQ(err, OMM_ERR_NOMEM);
        CHECK(!t);
        CHECK_EQ(omm_mem_live(), live);
    }
    CHECK_EQ(omm_mem_live(), live);
}

/* Another seed leads elsewhere; a shorter seq_max processes fewer tokens of each example. */
static void seeds_matter(rig *r) {
    omm_trainer *a = open_trainer(r), *b = NULL, *c = NULL;
    omm_trainer_options options = options_of(r);
    options.seed = omm_seed_from_u64(2);
    CHECK_OK(omm_trainer_open(&b, &options));
    rig cut = *r;
    cut.base.recipe.seq_max = 40;
    options = options_of(&cut);
    CHECK_OK(omm_trainer_open(&c, &options));
    omm_step_report ra, rb, rc;
    CHECK_OK(omm_trainer_step(a, &ra));
    CHECK_OK(omm_trainer_step(b, &rb));
    CHECK_OK(omm_trainer_step(c, &rc));
    CHECK(!same_values(a, b) && !omm_digest_equal(&ra.digest, &rb.digest));
    CHECK(ra.tokens <= r->base.recipe.batch_tokens &&
          rc.tokens <= 40 * omm_dataset_count(r->base.data));
    omm_trainer_close(a);
    omm_trainer_close(b);
    omm_trainer_close(c);
}

/* The digest after a step with this lane, of the start if there is one, all or only the first example. */
static omm_digest digest_of_lane(const rig *r, const omm_lora *start, uint32_t lane, float dropout,
                                 bool one) {
    rig other = *r;
    bool keep[64] = {true};
    omm_dataset *first = NULL;
    omm_trainer *t = NULL;
    other.base.recipe.seed_lane = lane;
    other.base.recipe.dropout = dropout;
    omm_trainer_options options = options_of(&other);
    options.start = start;
    if (one) CHECK_OK(omm_dataset_pick(&first, r->base.data, keep));
    if (one) options.data = first;
    CHECK_OK(omm_trainer_open(&t, &options));
    if (start) CHECK_OK(omm_trainer_step(t, NULL));
    const omm_digest digest = omm_trainer_chain(t, start ? 1 : 0);
    omm_trainer_close(t);
    omm_dataset_close(first);
    return digest;
}

/* Every random number comes of it: those of a start, of the order of examples, and of dropout. */
static void lanes_matter(const rig *r) {
    static const struct {
        bool starts, one;
        float dropout;
        bool differs;
    } cases[] = {{false, true, 0, true},   /* the first A */
                 {true, false, 0, true},   /* which examples come first */
                 {true, true, 0.5F, true}, /* what is dropped */
                 {true, true, 0, false}};
    omm_lora start;
    test_adapter(&start, &r->base.model, r->base.recipe.rank, r->base.recipe.targets, 4);
    set_alpha(&start, r->base.recipe.alpha);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_digest d[2];
        for (uint32_t lane = 0; lane < 2; lane++)
            d[lane] = digest_of_lane(r, cases[i].starts ? &start : NULL, lane, cases[i].dropout,
                                     cases[i].one);
        CHECK_EQ(!omm_digest_equal(&d[0], &d[1]), cases[i].differs);
    }
    omm_lora_fini(&start);
}

/* Of each step its own tokens, of the run their sums. */
static void reports_add_up(rig *r) {
    omm_trainer *t = open_trainer(r);
    uint64_t tokens = 0, learned = 0;
    for (uint32_t step = 1; !omm_trainer_is_done(t); step++) {
        omm_step_report report;
        CHECK_OK(omm_trainer_step(t, &report));
        tokens += report.tokens;
        learned += report.learned;
        const omm_train_result sums = omm_trainer_result(t);
        CHECK(sums.tokens == tokens && sums.learned == learned && sums.steps == step);
        CHECK(report.step == step && report.tokens <= r->base.recipe.batch_tokens);
        CHECK(report.learning_rate > 0 && report.grad_norm > 0 && report.loss > 0);
    }
    omm_trainer_close(t);
}

/* Rows of a pass: what is asked for, or the recipe's; no more than a batch or the data have; the longest at least. */
static void rows_of_a_pass(const rig *r) {
    const size_t all = omm_dataset_tokens(r->base.data);
    omm_recipe recipe = r->base.recipe;
    recipe.micro_tokens = 40;
    recipe.batch_tokens = 50;
    CHECK_EQ(batch_rows_max(&recipe, r->base.data, 10, 0), 40);
    CHECK_EQ(batch_rows_max(&recipe, r->base.data, 10, 45), 45);
    CHECK_EQ(batch_rows_max(&recipe, r->base.data, 10, 60), 50);
    CHECK_EQ(batch_rows_max(&recipe, r->base.data, 70, 60), 70);
    recipe.batch_tokens = (uint32_t)all + 9;
    CHECK_EQ(batch_rows_max(&recipe, r->base.data, 10, (uint32_t)all + 5), all);
}

/* Means of the first and the last eighth of the steps, rounded up. */
static void first_and_last(void) {
    static const float losses[17] = {[0] = 8, [1] = 4, [2] = 3, [14] = 1.5F, [15] = 0.5F, [16] = 1};
    static const struct {
        uint32_t steps;
        float first, last;
    } cases[] = {{0, 0, 0}, {1, 8, 8}, {3, 8, 3}, {8, 8, 0}, {9, 6, 0}, {16, 6, 1}, {17, 5, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const omm_train_result x = trainer_result_of(losses, cases[i].steps, 9, 7);
        CHECK(x.loss_first == cases[i].first && x.loss_last == cases[i].last);
        CHECK(x.steps == cases[i].steps && x.tokens == 9 && x.learned == 7);
    }
}

int main(void) {
    rig r = {0};
    test_rig_open(&r.base, 7);
    r.base.recipe.rank = 2;
    r.base.recipe.steps = 5;
    r.base.recipe.batch_tokens = 300;
    r.base.recipe.dropout = 0.05F;
    r.base.recipe.learning_rate = 0.02F;
    resume_is_exact(&r);
    rig other = r;
    other.base.recipe.optimizer = OMM_RECIPE_SGD;
    other.base.recipe.momentum = 0.9F;
    other.base.recipe.learning_rate = 0.05F;
    resume_is_exact(&other);
    damaged_checkpoints(&other);
    contradictions(&other);
    other.base.recipe = r.base.recipe;
    other.base.recipe.optimizer = OMM_RECIPE_ADAFACTOR;
    resume_is_exact(&other);
    damaged_checkpoints(&other);
    damaged_checkpoints(&r);
    older_and_newer(&r);
    foreign_checkpoints(&r);
    foreign_starts(&r);
    contradictions(&r);
    identities(&r);
    other_vocabulary(&r);
    goes_on_with_other_micro_batches(&r);
    cancel_changes_nothing(&r);
    overflow_names_the_step(&r);
    large_gradient_names_its_tensor(&r);
    frozen_half_stays(&r, OMM_RECIPE_PARTS_A);
    frozen_half_stays(&r, OMM_RECIPE_PARTS_B);
    chain(&r);
    seeds_matter(&r);
    lanes_matter(&r);
    first_and_last();
    rows_of_a_pass(&r);
    reports_add_up(&r);
    allocations_fail(&r);
    test_rig_close(&r.base);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

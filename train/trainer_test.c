/* The trainer's promises: exact resume, damaged checkpoints refused, cancel and NaN change nothing,
 * frozen halves stay, the chain, allocation failures. */
#include "test_model.h"

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

/* What was made with another model, seed or data is not gone on with. */
static void foreign_checkpoints(rig *r) {
    static const char *const said[] = {"other weights", "another seed", "data set"};
    omm_trainer *t = open_trainer(r);
    omm_dataset *data = NULL;
    omm_buf saved;
    omm_buf_init(&saved, 64 << 20);
    CHECK_OK(omm_trainer_step(t, NULL));
    CHECK_OK(omm_trainer_save(t, &saved));
    test_data_open(&data, "train.jsonl", omm_dataset_count(r->base.data) - 1, r->base.tokenizer);
    for (int i = 0; i < 3; i++) {
        omm_trainer_options options = options_of(r);
        omm_trainer *foreign = NULL;
        if (i == 0) options.model_digest.b[31] = 1;
        if (i == 1) options.seed = omm_seed_from_u64(2);
        if (i == 2) options.data = data;
        CHECK_OK(omm_trainer_open(&foreign, &options));
        CHECK_ERR(omm_trainer_resume(foreign, omm_buf_view(&saved)), OMM_ERR_MISMATCH);
        CHECK(strstr(omm_err_sentence(), said[i]) != NULL);
        omm_trainer_close(foreign);
    }
    omm_dataset_close(data);
    omm_trainer_close(t);
    omm_buf_fini(&saved);
}

static void cancel_changes_nothing(rig *r) {
    omm_trainer *t = open_trainer(r), *other = open_trainer(r);
    CHECK_OK(omm_trainer_step(t, NULL));
    CHECK_OK(omm_trainer_step(other, NULL));
    r->stop = true;
    CHECK_ERR(omm_trainer_step(t, NULL), OMM_ERR_CANCELLED);
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
    CHECK(strstr(omm_err_sentence(), ", alpha 17, q, k, v, o, gate, up, down; the recipe says rank "
                                     "3, alpha 16, v; accepted: the same, or nothing said"));
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
    other.base.recipe = r.base.recipe;
    other.base.recipe.optimizer = OMM_RECIPE_ADAFACTOR;
    resume_is_exact(&other);
    damaged_checkpoints(&other);
    damaged_checkpoints(&r);
    foreign_checkpoints(&r);
    cancel_changes_nothing(&r);
    overflow_names_the_step(&r);
    large_gradient_names_its_tensor(&r);
    frozen_half_stays(&r, OMM_RECIPE_PARTS_A);
    frozen_half_stays(&r, OMM_RECIPE_PARTS_B);
    chain(&r);
    seeds_matter(&r);
    allocations_fail(&r);
    test_rig_close(&r.base);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

/* What travels and what it makes: the adapter of the values that a training ends with is the one that was
 * trained, to the bit, on any instruction set; the mean of cores does the mean of what their adapters do;
 * halves belong to a base model; every allocation may fail. */
#include "omm/federated.h"
#include "test_model.h"

#include "omm/data_reader.h"
#include "omm/mem.h"
#include "omm/shard.h"

#include <math.h>
#include <string.h>

/* B times a mean against the mean of two products, both rounded; of values to 0.1.  Measured maximum 3e-9. */
static const double s_mean_tolerance = 1e-8;

typedef struct variant {
    const char *name, *targets, *ranks, *alphas;
    uint32_t parts, rank_says, targets_say;
} variant;

static const variant s_variants[] = {
    {"one rank", "q,v", NULL, NULL, OMM_RECIPE_PARTS_AB, 2, 5},
    {"patterns", "blk.0.attn_q,blk.1.*", "ffn_*=5", NULL, OMM_RECIPE_PARTS_AB, 5, 127},
    {"cores", "all", NULL, NULL, OMM_RECIPE_PARTS_CORE, 2, 127},
    {"cores by pattern", "blk.1.ffn_*,blk.0.attn_q", "q=3", NULL, OMM_RECIPE_PARTS_CORE, 3, 0x71},
    {"scales", "q,blk.1.attn_v", NULL, "v=5", OMM_RECIPE_PARTS_AB, 2, 5},
};
enum { AB = 0, CORES = 3 };

static omm_federated open_variant(test_rig *r, const variant *v) {
    r->recipe = omm_recipe_default();
    r->recipe.rank = 2;
    r->recipe.steps = 3;
    r->recipe.batch_tokens = r->recipe.micro_tokens = 256;
    r->recipe.seq_max = 72;
    r->recipe.parts = v->parts;
    r->recipe.learning_rate = 0.05F;
    r->recipe.prox_mu = 0.01F;
    CHECK_OK(omm_recipe_set_targets(&r->recipe, v->targets));
    CHECK_OK(omm_recipe_set_patterns(&r->recipe, v->ranks, v->alphas));
    return (omm_federated){.recipe = &r->recipe,
                           .shape = &r->model.lora_shape,
                           .base = omm_hash(omm_bytes_str("base"))};
}

/* Where rounds begin, a little away from zero. */
static void begin(omm_lora *out, const omm_federated *f) {
    const omm_seed seed = omm_seed_from_u64(3);
    const omm_rng lane = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0);
    CHECK_OK(omm_federated_begin(out, f, &lane));
    for (size_t i = 0; i < out->value_count; i++) out->values[i] += (float)(i % 7) * 0.001F;
}

static omm_trainer *open_trainer(const test_rig *r, const omm_federated *f, const float *values,
                                 uint64_t seed) {
    omm_trainer *t = NULL;
    omm_trainer_options options = test_rig_options(r);
    options.recipe = NULL; /* f's */
    options.seed = omm_seed_from_u64(seed);
    CHECK_OK(omm_federated_trainer(&t, f, &options, values));
    return t;
}

static void same_values(const omm_lora *a, const omm_lora *b) {
    CHECK_EQ(a->value_count, b->value_count);
    CHECK(memcmp(a->values, b->values, a->value_count * sizeof(float)) == 0);
}

/* Values that are read where they are needed, or cannot be. */
typedef struct reading {
    const omm_lora *from;
    omm_err fails;
} reading;

static omm_err read_moved(void *ud, float *values) {
    const reading *r = ud;
    if (r->fails != OMM_OK) return omm_raise(r->fails, "cannot be read");
    memcpy(values, r->from->values, r->from->value_count * sizeof *values);
    return OMM_OK;
}

/* The same file either way, and nothing where nothing can be read. */
static void check_saved(const omm_federated *f, reading *given, const omm_compute *compute) {
    omm_buf one, two;
    omm_buf_init(&one, 64 << 20);
    omm_buf_init(&two, 64 << 20);
    CHECK_OK(omm_federated_save(&one, f, given->from->values, compute));
    CHECK_OK(omm_federated_save_read(&two, f, read_moved, given, compute));
    CHECK(omm_bytes_equal(omm_buf_view(&one), omm_buf_view(&two)));
    static const char own[] = "openmeshmind.lora.scales"; /* in the recipe, and not in the file */
    CHECK(!memmem(one.data, one.size, own, strlen(own)));
    omm_buf_clear(&two);
    const size_t live = omm_mem_live();
    given->fails = OMM_ERR_DIGEST;
    CHECK_ERR(omm_federated_save_read(&two, f, read_moved, given, compute), OMM_ERR_DIGEST);
    CHECK(two.size == 0 && omm_mem_live() == live);
    omm_buf_fini(&one);
    omm_buf_fini(&two);
}

/* By plain C with three threads: what anybody makes of the values that were sent. */
static void check_adapter(const omm_federated *f, const omm_trainer *t) {
    omm_pool *pool = NULL;
    omm_compute plain;
    omm_lora adapter;
    CHECK_OK(omm_pool_open(&pool, 3));
    CHECK_OK(omm_compute_init(&plain, pool, OMM_ISA_SCALAR));
    CHECK_OK(omm_federated_adapter(&adapter, f, omm_trainer_moved(t)->values, &plain));
    same_values(&adapter, omm_trainer_adapter(t));
    omm_lora_fini(&adapter);
    reading given = {omm_trainer_moved(t), OMM_OK};
    CHECK_OK(omm_federated_adapter_read(&adapter, f, read_moved, &given, &plain));
    same_values(&adapter, omm_trainer_adapter(t));
    omm_lora_fini(&adapter);
    check_saved(f, &given, &plain);
    omm_compute_fini(&plain);
    omm_pool_close(pool);
}

/* A node that was killed after a step. */
static void check_resume(const test_rig *r, const omm_federated *f, const float *values,
                         const omm_trainer *whole) {
    omm_trainer *first = open_trainer(r, f, values, 1), *second = open_trainer(r, f, values, 1);
    omm_buf saved;
    omm_buf_init(&saved, 64 << 20);
    CHECK_OK(omm_trainer_step(first, NULL));
    CHECK_OK(omm_trainer_save(first, &saved));
    CHECK_OK(omm_trainer_resume(second, omm_buf_view(&saved)));
    CHECK_OK(omm_trainer_run(second));
    same_values(omm_trainer_moved(second), omm_trainer_moved(whole));
    omm_buf_fini(&saved);
    omm_trainer_close(first);
    omm_trainer_close(second);
}

static void check_variant(test_rig *r, const variant *v) {
    const omm_federated f = open_variant(r, v);
    omm_lora values;
    omm_lora_spec spec;
    CHECK_OK(omm_federated_spec(&spec, &f));
    CHECK(spec.rank == v->rank_says && spec.targets == v->targets_say && spec.alpha == 16);
    begin(&values, &f);
    omm_trainer *t = open_trainer(r, &f, values.values, 1);
    CHECK_EQ(omm_trainer_moved(t)->tensor_count, values.tensor_count);
    for (size_t i = 0; i < values.tensor_count; i++)
        CHECK(strcmp(values.tensors[i].name, omm_trainer_moved(t)->tensors[i].name) == 0);
    same_values(&values, omm_trainer_moved(t)); /* it begins with what it was given */
    check_adapter(&f, t);
    CHECK_OK(omm_trainer_run(t));
    const omm_train_result result = omm_trainer_result(t);
    CHECK(result.loss_last < result.loss_first);
    check_adapter(&f, t);
    check_resume(r, &f, values.values, t);
    printf("%-17s %zu values travel, %zu in the adapter, loss %.4f -> %.4f\n", v->name,
           values.value_count, omm_trainer_adapter(t)->value_count, (double)result.loss_first,
           (double)result.loss_last);
    omm_trainer_close(t);
    omm_lora_fini(&values);
}

/* ---- cores ------------------------------------------------------------------------------------ */

static void mean_is_exact(test_rig *r) {
    const omm_federated f = open_variant(r, &s_variants[CORES]);
    omm_lora values, one, two, both;
    double worst = 0;
    begin(&values, &f);
    const size_t n = values.value_count;
    omm_trainer *a = open_trainer(r, &f, values.values, 1);
    omm_trainer *b = open_trainer(r, &f, values.values, 2);
    CHECK_OK(omm_trainer_run(a));
    CHECK_OK(omm_trainer_step(b, NULL));
    const float *x = omm_trainer_moved(a)->values, *y = omm_trainer_moved(b)->values;
    for (size_t i = 0; i < n; i++) values.values[i] = (x[i] + y[i]) / 2;
    CHECK(memcmp(x, y, n * sizeof *x) != 0);
    CHECK_OK(omm_federated_adapter(&one, &f, x, &r->compute));
    CHECK_OK(omm_federated_adapter(&two, &f, y, &r->compute));
    CHECK_OK(omm_federated_adapter(&both, &f, values.values, &r->compute));
    for (size_t i = 0; i < both.value_count; i++) {
        const double mean = ((double)one.values[i] + (double)two.values[i]) / 2;
        worst = worse_of(worst, fabs(mean - (double)both.values[i]));
    }
    printf("mean of cores: at most %.1e from the mean of the adapters\n", worst);
    CHECK(worst < s_mean_tolerance);
    omm_lora_fini(&one);
    omm_lora_fini(&two);
    omm_lora_fini(&both);
    omm_trainer_close(a);
    omm_trainer_close(b);
    omm_lora_fini(&values);
}

static size_t different(const omm_lora *a, const omm_lora *b) {
    size_t count = 0;
    for (size_t i = 0; i < a->value_count; i++) count += a->values[i] != b->values[i];
    return count;
}

/* Another base model, or another lane, and all of A and B are others. */
static void halves_belong(test_rig *r) {
    omm_federated f = open_variant(r, &s_variants[CORES]);
    omm_lora values, here, there;
    begin(&values, &f);
    CHECK_OK(omm_federated_adapter(&here, &f, values.values, &r->compute));
    f.base.b[31] ^= 1;
    CHECK_OK(omm_federated_adapter(&there, &f, values.values, &r->compute));
    CHECK(different(&here, &there) > here.value_count * 9 / 10);
    omm_lora_fini(&there);
    f.base.b[31] ^= 1;
    r->recipe.seed_lane = 1;
    CHECK_OK(omm_federated_adapter(&there, &f, values.values, &r->compute));
    CHECK(different(&here, &there) > here.value_count * 9 / 10);
    omm_lora_fini(&there);
    values.values[1] = NAN;
    omm_trainer *t = NULL;
    const omm_trainer_options options = test_rig_options(r);
    CHECK_ERR(omm_federated_trainer(&t, &f, &options, values.values), OMM_ERR_NUMERIC);
    omm_lora_fini(&here);
    omm_lora_fini(&values);
}

/* The recipe's rank is none that is sent where patterns give every layer another. */
static void patterns_say_the_rank(test_rig *r) {
    const omm_federated f = open_variant(r, &s_variants[AB]);
    omm_lora_spec spec;
    r->recipe.rank = 9;
    CHECK_OK(omm_recipe_set_patterns(&r->recipe, "q=3,v=4", NULL));
    CHECK_OK(omm_federated_spec(&spec, &f));
    CHECK(spec.rank == 4 && spec.targets == 5);
}

/* What is no number ends no run: neither a file nor a trainer is made of it. */
static void not_a_number(test_rig *r) {
    const omm_federated f = open_variant(r, &s_variants[AB]);
    const omm_trainer_options options = test_rig_options(r);
    omm_lora values;
    omm_buf file;
    omm_trainer *t = NULL;
    omm_buf_init(&file, 64 << 20);
    begin(&values, &f);
    values.values[1] = NAN;
    reading given = {&values, OMM_OK};
    CHECK_ERR(omm_federated_save(&file, &f, values.values, &r->compute), OMM_ERR_NUMERIC);
    CHECK_ERR(omm_federated_save_read(&file, &f, read_moved, &given, &r->compute), OMM_ERR_NUMERIC);
    CHECK_ERR(omm_federated_trainer(&t, &f, &options, values.values), OMM_ERR_NUMERIC);
    CHECK(file.size == 0 && !t);
    omm_buf_fini(&file);
    omm_lora_fini(&values);
}

/* ---- memory ------------------------------------------------------------------------------------ */

static omm_err all_calls(const test_rig *r, const omm_federated *f, const omm_lora *from) {
    omm_lora begun, adapter;
    const float *values = from->values;
    reading given = {from, OMM_OK};
    omm_trainer *t = NULL;
    omm_buf file;
    const omm_trainer_options options = test_rig_options(r);
    OMM_TRY(omm_federated_begin(&begun, f, NULL));
    omm_lora_fini(&begun);
    OMM_TRY(omm_federated_adapter(&adapter, f, values, &r->compute));
    omm_lora_fini(&adapter);
    OMM_TRY(omm_federated_adapter_read(&adapter, f, read_moved, &given, &r->compute));
    omm_lora_fini(&adapter);
    OMM_TRY(omm_federated_trainer(&t, f, &options, values));
    omm_trainer_close(t);
    omm_buf_init(&file, 64 << 20);
    omm_err err = omm_federated_save(&file, f, values, &r->compute);
    if (err == OMM_OK) err = omm_federated_save_read(&file, f, read_moved, &given, &r->compute);
    omm_buf_fini(&file);
    return err;
}

static void allocations_fail(test_rig *r, const variant *v) {
    const omm_federated f = open_variant(r, v);
    omm_lora values;
    begin(&values, &f);
    const size_t live = omm_mem_live();
    omm_err err = OMM_ERR_NOMEM;
    for (size_t nth = 1; err != OMM_OK; nth++) {
        omm_mem_fail_nth(nth);
        err = all_calls(r, &f, &values);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
        CHECK_EQ(omm_mem_live(), live);
    }
    omm_lora_fini(&values);
}

/* A shard that judges has sixteen examples at least; they are chats, cut as the recipe says. */
static void shards(const test_rig *r) {
    omm_buf text;
    omm_buf_init(&text, 1 << 16);
    omm_recipe recipe = omm_recipe_default();
    omm_dataset *none = NULL;
    recipe.seq_max = 48;
    CHECK_ERR(omm_shard_parse(&none, omm_bytes_str("{\"messages\": 1}\n"), "shard", r->tokenizer,
                              &recipe),
              OMM_ERR_FORMAT);
    CHECK(!none);
    for (unsigned i = 0; i < OMM_SHARD_EXAMPLES_MIN; i++) {
        omm_dataset *data = NULL;
        CHECK_OK(omm_buf_printf(&text,
                                "{\"messages\": [{\"role\": \"user\", \"content\": \"%u\"}, "
                                "{\"role\": \"assistant\", \"content\": \"b\"}]}\n",
                                i));
        const omm_err err =
            omm_shard_parse(&data, omm_buf_view(&text), "shard", r->tokenizer, &recipe);
        CHECK_EQ(err, i + 1 < OMM_SHARD_EXAMPLES_MIN ? OMM_ERR_CONFIG : OMM_OK);
        if (err != OMM_OK) CHECK(!data && strstr(omm_err_sentence(), "accepted: 16 or more"));
        if (err == OMM_OK) CHECK_EQ(omm_dataset_seq_max(data), 48);
        omm_dataset_close(data);
    }
    omm_buf_fini(&text);
}

int main(void) {
    test_rig r;
    test_rig_open(&r, 3);
    for (size_t i = 0; i < sizeof s_variants / sizeof *s_variants; i++) {
        check_variant(&r, &s_variants[i]);
        allocations_fail(&r, &s_variants[i]);
    }
    mean_is_exact(&r);
    halves_belong(&r);
    patterns_say_the_rank(&r);
    not_a_number(&r);
    shards(&r);
    test_rig_close(&r);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

/* Training over all weights: gradients against central differences for every tensor of every
 * architecture, the same bytes for threads, micro-batches and instruction sets (goldens), exact resume,
 * models as files, and refusals.
 *
 *   full_test              everything
 *   full_test ISA NAME ... the digests of these runs by one instruction set: for emulators
 */
#include "full.h"

#include "omm/full.h"
#include "omm/hash.h"
#include "omm/mem.h"
#include "test_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Slope along a part of the gradient against the norm of that part, relative to the latter or to a
 * thousandth of the whole gradient's.  Measured maximum 8.1e-4. */
static const double s_slope_tolerance = 1.5e-3;

/* --- central differences -------------------------------------------------------------------- */

typedef struct rig {
    omm_compute compute;
    omm_model model;
    full_tensors tensors;
    graph g;
    full sums;
    float *values, *moved;
    const omm_example *examples[3];
} rig;

static double loss_at(rig *r, const float *values) {
    static const graph_dropout none;
    static float nll[2048];
    size_t learned = 0;
    double sum = 0;
    for (size_t i = 0; i < 3; i++) learned += r->examples[i]->learn_count;
    full_write(&r->compute, &r->tensors, values);
    full_begin(&r->sums, &r->compute);
    CHECK_OK(graph_forward(&r->g, nll, r->examples, 3, 1.0F / (float)learned, &none));
    CHECK_EQ(r->g.learned, learned);
    for (size_t i = 0; i < learned; i++) sum += (double)nll[i];
    return sum / (double)learned;
}

static void open_rig(rig *r, const omm_dataset *data, const tiny_arch *arch) {
    size_t rows = 0, longest = 0;
    omm_isa isa = OMM_ISA_SCALAR;
    *r = (rig){0};
    tiny_arch_load(&r->model, arch);
    for (size_t i = 0; i < 3; i++) {
        r->examples[i] = omm_dataset_example(data, i);
        rows += r->examples[i]->count;
        if (r->examples[i]->count > longest) longest = r->examples[i]->count;
    }
    CHECK_OK(omm_isa_choose(&isa, getenv("OMM_ISA")));
    CHECK_OK(omm_compute_init(&r->compute, NULL, isa));
    CHECK_OK(full_thaw(&r->model));
    CHECK_OK(full_tensors_init(&r->tensors, &r->model));
    graph_options options = {.compute = &r->compute,
                             .model = &r->model,
                             .spec = {.rank = 1, .alpha = 1, .targets = 0},
                             .rows_max = rows,
                             .seq_max = longest,
                             .rope_positions = (uint32_t)longest};
    CHECK_OK(graph_init(&r->g, &options));
    CHECK_OK(full_init(&r->sums, &r->tensors, &r->g));
    r->g.full = &r->sums;
    r->values = omm_alloc_aligned(r->tensors.value_count, sizeof(float));
    r->moved = omm_alloc_aligned(r->tensors.value_count, sizeof(float));
    CHECK(r->values && r->moved);
    full_read(r->values, &r->tensors);
}

static void close_rig(rig *r) {
    full_fini(&r->sums);
    graph_fini(&r->g);
    full_tensors_fini(&r->tensors);
    omm_free(r->values);
    omm_free(r->moved);
    omm_model_fini(&r->model);
    omm_compute_fini(&r->compute);
}

/* One of `parts` parts of a tensor's entries, chosen by hash. */
static bool is_in(size_t entry, unsigned part, unsigned parts) {
    return (unsigned)((entry * 0x9e3779b97f4a7c15U) >> 60) % parts == part;
}

static double norm_of(const float *gradient, size_t size, unsigned part, unsigned parts) {
    double square = 0;
    for (size_t i = 0; i < size; i++)
        if (is_in(i, part, parts)) square += (double)gradient[i] * (double)gradient[i];
    return sqrt(square);
}

/* Along some entries of the gradient of a tensor the loss must change by their norm. */
static double check_part(rig *r, const float *gradient, const full_tensor *x, unsigned part,
                         unsigned parts) {
    const size_t size = (size_t)x->rows * x->cols;
    const float *g = gradient + x->offset;
    const double norm = norm_of(g, size, part, parts), whole = norm_of(g, size, 0, 1);
    CHECK(whole > 0);
    if (!(norm > 0.05 * whole)) return 0;
    const double step = 4e-3 / norm;
    double at[2];
    for (int side = 0; side < 2; side++) {
        memcpy(r->moved, r->values, r->tensors.value_count * sizeof(float));
        for (size_t i = 0; i < size; i++)
            if (is_in(i, part, parts))
                r->moved[x->offset + i] = (float)((double)r->values[x->offset + i] +
                                                  (side ? -step : step) * (double)g[i]);
        at[side] = loss_at(r, r->moved);
    }
    const double slope = (at[0] - at[1]) / (2 * step * norm);
    const double error = fabs(slope - norm) / (norm + 1e-3);
    if (error > s_slope_tolerance)
        fprintf(stderr, "%s, part %u of %u: slope %.6g, norm of the gradient %.6g\n", x->name, part,
                parts, slope, norm);
    CHECK(error <= s_slope_tolerance);
    return error;
}

static void central_differences(const omm_dataset *data, const char *what, const tiny_arch *arch,
                                unsigned parts) {
    rig r;
    double worst = 0;
    open_rig(&r, data, arch);
    float *gradient = omm_alloc(r.tensors.value_count, sizeof *gradient);
    CHECK(gradient);
    loss_at(&r, r.values);
    graph_backward(&r.g, NULL, false, false);
    full_end(&r.sums, &r.compute, &r.model);
    memcpy(gradient, r.sums.gradient, r.tensors.value_count * sizeof *gradient);
    for (size_t i = 0; i < r.tensors.count; i++)
        for (unsigned part = 0; part < parts; part++)
            worst = worse_of(worst, check_part(&r, gradient, &r.tensors.items[i], part, parts));
    printf("central differences, %s, %s: %zu tensors, largest relative error %.2e\n", arch->name,
           what, r.tensors.count, worst);
    omm_free(gradient);
    close_rig(&r);
}

/* --- the same bytes ------------------------------------------------------------------------- */

typedef struct variant {
    const char *name, *golden; /* BLAKE2b-256 of the weights after the run */
    uint32_t optimizer;
    float momentum;
    uint32_t galore_rank;
    omm_full_muon muon;
    uint32_t steps, tokens; /* in all and of a step; 0: 3 and 330 */
} variant;

static const variant s_variants[] = {
    {"adamw",
     "f74843f596d0e71a6706385f2997194ce656b885a76da04aaeba8a8770889024",
     OMM_RECIPE_ADAMW,
     0,
     0,
     {0, 0},
     0,
     0},
    {"sgd",
     "74d10291438786a221162351caabf415b698e50aa9a1f0c96d1349e8fc7b68d5",
     OMM_RECIPE_SGD,
     0.9F,
     0,
     {0, 0},
     0,
     0},
    {"adafactor",
     "538b4501831c6fa73beb886df8e781c4e75c84f33892ff84c56e0e7c9e66f2f8",
     OMM_RECIPE_ADAFACTOR,
     0,
     0,
     {0, 0},
     0,
     0},
    {"galore",
     "413ffcbd7746b40223f0ffbff5c9f7fc1d789731df8f8497f3f003ec77419178",
     OMM_RECIPE_ADAMW,
     0,
     20,
     {0, 0},
     0,
     0},
    {"muon",
     "4e731d86c36397266c95c6b9b0b25b13ebeba89d39d029369bd0ec079edfd3a7",
     OMM_RECIPE_ADAMW,
     0,
     0,
     {2, 0.9F},
     0,
     0},
    /* For plain C whose fma is software. */
    {"adamw-short",
     "15f3a54a660f40dcf3d98c06fa466fe2ce4e932a03b8fcb636f4423f76430db4",
     OMM_RECIPE_ADAMW,
     0,
     0,
     {0, 0},
     2,
     60},
};

enum { VARIANTS = sizeof s_variants / sizeof *s_variants };

static omm_recipe recipe_of(const variant *v, uint32_t micro) {
    omm_recipe r = omm_recipe_default();
    r.steps = v->steps ? v->steps : 3;
    r.batch_tokens = v->tokens ? v->tokens : 330;
    r.micro_tokens = micro;
    r.weight_decay = 0.1F;
    r.warmup_steps = 1;
    r.learning_rate = v->optimizer == OMM_RECIPE_SGD ? 0.1F : 0.003F;
    r.optimizer = v->optimizer;
    r.momentum = v->momentum;
    return r;
}

typedef struct run {
    omm_pool *pool;
    omm_compute compute;
    omm_model model;
    omm_full *full;
} run;

static void open_like(run *r, const omm_dataset *data, const variant *v, const omm_recipe *recipe,
                      omm_isa isa, unsigned threads, const omm_gguf *like) {
    *r = (run){0};
    test_synth_open(&r->model, OMM_FORMAT_F16);
    CHECK_OK(omm_pool_open(&r->pool, threads));
    CHECK_OK(omm_compute_init(&r->compute, r->pool, isa));
    omm_full_options options = {.model = &r->model,
                                .data = data,
                                .recipe = recipe,
                                .compute = &r->compute,
                                .like = like,
                                .seed = omm_seed_from_u64(3),
                                .galore = {v->galore_rank, 2, 0.25F},
                                .muon = v->muon,
                                .checkpoint_layers = threads - 1};
    CHECK_OK(omm_full_open(&r->full, &options));
}

static void open_run(run *r, const omm_dataset *data, const variant *v, const omm_recipe *recipe,
                     omm_isa isa, unsigned threads) {
    open_like(r, data, v, recipe, isa, threads, NULL);
}

static void close_run(run *r) {
    omm_full_close(r->full);
    omm_model_fini(&r->model);
    omm_compute_fini(&r->compute);
    omm_pool_close(r->pool);
}

static omm_digest train(const omm_dataset *data, const variant *v, omm_isa isa, unsigned threads,
                        uint32_t micro) {
    run r;
    omm_full_report report = {0};
    char hex[OMM_DIGEST_HEX_SIZE];
    const omm_recipe recipe = recipe_of(v, micro);
    open_run(&r, data, v, &recipe, isa, threads);
    while (!omm_full_is_done(r.full)) CHECK_OK(omm_full_step(r.full, &report));
    CHECK_EQ(omm_full_step(r.full, NULL), OMM_ERR_STATE);
    const omm_digest digest = omm_full_digest(r.full);
    omm_digest_hex(hex, &digest);
    printf("%-9s %-7s %u threads, micro-batch %4u: %.16s, loss %.6f\n", v->name, omm_isa_name(isa),
           threads, micro, hex, (double)report.loss);
    if (strcmp(hex, v->golden) != 0) fprintf(stderr, "got %s\n", hex);
    CHECK(strcmp(hex, v->golden) == 0);
    close_run(&r);
    return digest;
}

/* For emulators: the runs of these names once. */
static void by_one_isa(const omm_dataset *data, omm_isa isa, char **names, int count) {
    for (int i = 0; i < count; i++) {
        size_t v = 0;
        while (v < VARIANTS && strcmp(s_variants[v].name, names[i]) != 0) v++;
        CHECK(v < VARIANTS);
        train(data, &s_variants[v], isa, 2, 200);
    }
    CHECK(count > 0);
}

static void all_the_same(const omm_dataset *data) {
    omm_isa best = OMM_ISA_SCALAR;
    CHECK_OK(omm_isa_choose(&best, getenv("OMM_ISA")));
    for (size_t i = 0; i < VARIANTS; i++) train(data, &s_variants[i], best, 1 + (unsigned)i, 4096);
    train(data, &s_variants[3], best, 2, 200);
    train(data, &s_variants[3], OMM_ISA_SCALAR, 3, 4096);
    train(data, &s_variants[4], best, 2, 200);
    train(data, &s_variants[4], OMM_ISA_SCALAR, 3, 4096);
    train(data, &s_variants[0], best, 2, 64);
    train(data, &s_variants[0], best, 7, 200);
    for (unsigned isa = 0; isa < OMM_ISA_COUNT; isa++)
        if (omm_isa_available((omm_isa)isa)) train(data, &s_variants[0], (omm_isa)isa, 2, 4096);
}

/* --- resume ---------------------------------------------------------------------------------- */

static void resume_is_exact(const omm_dataset *data, const variant *v) {
    run a, b;
    omm_buf at;
    omm_isa best = OMM_ISA_SCALAR;
    CHECK_OK(omm_isa_choose(&best, getenv("OMM_ISA")));
    const omm_recipe recipe = recipe_of(v, 200);
    omm_buf_init(&at, 64 << 20);
    open_run(&a, data, v, &recipe, best, 1);
    CHECK_OK(omm_full_step(a.full, NULL));
    CHECK_OK(omm_full_checkpoint(a.full, &at));
    open_run(&b, data, v, &recipe, best, 1);
    CHECK_OK(omm_full_resume(b.full, omm_buf_view(&at)));
    CHECK_EQ(omm_full_steps(b.full), 1);
    CHECK_EQ(omm_full_tokens(b.full), omm_full_tokens(a.full));
    while (!omm_full_is_done(b.full)) CHECK_OK(omm_full_step(b.full, NULL));
    const omm_digest digest = omm_full_digest(b.full);
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, &digest);
    CHECK(strcmp(hex, v->golden) == 0);
    omm_buf old; /* a checkpoint of before: the state is the same */
    test_before_marks(&old, &at);
    close_run(&b);
    open_run(&b, data, v, &recipe, best, 1);
    CHECK_OK(omm_full_resume(b.full, omm_buf_view(&old)));
    omm_buf_clear(&old);
    CHECK_OK(omm_full_checkpoint(b.full, &old));
    CHECK(omm_bytes_equal(omm_buf_view(&old), omm_buf_view(&at)));
    omm_buf_fini(&old);
    at.data[at.size / 2] ^= 1;
    CHECK_EQ(omm_full_resume(a.full, omm_buf_view(&at)), OMM_ERR_DIGEST);
    at.data[at.size / 2] ^= 1;
    CHECK_EQ(omm_full_resume(a.full, omm_bytes_of(at.data, 40)), OMM_ERR_SIZE);
    close_run(&b);
    omm_recipe other = recipe;
    other.learning_rate *= 2;
    open_run(&b, data, v, &other, best, 1);
    const omm_digest before = omm_full_digest(b.full);
    CHECK_EQ(omm_full_resume(b.full, omm_buf_view(&at)), OMM_ERR_MISMATCH);
    const omm_digest after = omm_full_digest(b.full);
    CHECK(omm_digest_equal(&before, &after));
    CHECK_EQ(omm_full_steps(b.full), 0);
    close_run(&b);
    other = recipe; /* what is about adapters makes no other run */
    other.rank = 3;
    other.dropout = 0.5F;
    other.activations = OMM_RECIPE_Q8;
    open_run(&b, data, v, &other, best, 1);
    CHECK_OK(omm_full_resume(b.full, omm_buf_view(&at)));
    close_run(&b);
    variant more = *v;
    more.muon.momentum = 0.8F; /* counts where there is Muon alone */
    open_run(&b, data, &more, &recipe, best, 1);
    CHECK_EQ(omm_full_resume(b.full, omm_buf_view(&at)),
             v->muon.rate > 0 ? OMM_ERR_MISMATCH : OMM_OK);
    CHECK(v->muon.rate <= 0 ||
          strcmp(omm_err_sentence(), "the checkpoint belongs to other settings of GaLore or Muon, "
                                     "or another order of the texts") == 0);
    close_run(&b);
    at.size -= sizeof(omm_digest); /* whole, but the last number of the state is none */
    omm_put_f32(at.data + at.size - 4, nanf(""));
    CHECK_OK(omm_hash_seal(&at, 0));
    CHECK_EQ(omm_full_resume(a.full, omm_buf_view(&at)), OMM_ERR_FORMAT);
    close_run(&a);
    omm_buf_fini(&at);
}

/* What a model's file has beside its weights; `other`: 0, or which of it is another. */
typedef enum other_like {
    LIKE_SAME,
    LIKE_TYPE, /* of what is not copied */
    LIKE_PART,
    LIKE_TEMPLATE,
    LIKE_MORE,
    LIKE_ORDER,
    LIKE_FACTOR,
    LIKE_SHAPE,
    LIKE_COUNT
} other_like;

static void write_like(omm_buf *out, other_like other) {
    const bool turned = other == LIKE_ORDER;
    const uint64_t dims[2] = {4, other == LIKE_SHAPE ? 2 : 1};
    const float factors[8] = {1, 2, 3, other == LIKE_FACTOR ? 5.0F : 4.0F};
    omm_gguf_writer w;
    omm_gguf_writer_init(&w);
    if (turned) omm_gguf_put_text(&w, "general.name", "a name");
    omm_gguf_put_text(&w, "tokenizer.chat_template", other == LIKE_TEMPLATE ? "b" : "a");
    if (!turned) omm_gguf_put_text(&w, "general.name", "a name");
    omm_gguf_put_u32(&w, "general.file_type", other == LIKE_TYPE ? 7 : 1);
    if (other == LIKE_PART) omm_gguf_put_u32(&w, "split.more", 1);
    if (other == LIKE_MORE) omm_gguf_put_u32(&w, "general.more", 1);
    omm_gguf_put_tensor(&w, "rope_freqs.weight", OMM_GGML_F32, 1, dims,
                        omm_bytes_of(factors, 4 * sizeof *factors));
    omm_gguf_put_tensor(&w, "output_norm.weight", OMM_GGML_F32, 2, dims,
                        omm_bytes_of(factors, 4 * dims[1] * sizeof *factors));
    CHECK_OK(omm_gguf_writer_finish(out, &w));
    omm_gguf_writer_fini(&w);
}

/* What the finished file will have beside the weights is part of whose a checkpoint is; of one from before, nothing is known of that. */
static void keys_are_its_own(const omm_dataset *data) {
    run a, before, b;
    omm_gguf likes[LIKE_COUNT];
    omm_buf files[LIKE_COUNT], at, old, again;
    const variant *v = &s_variants[0];
    const omm_recipe recipe = recipe_of(v, 200);
    omm_buf_init(&at, 64 << 20);
    omm_buf_init(&old, 64 << 20);
    omm_buf_init(&again, 64 << 20);
    for (unsigned i = 0; i < LIKE_COUNT; i++) {
        omm_buf_init(&files[i], 1 << 16);
        write_like(&files[i], (other_like)i);
        CHECK_OK(omm_gguf_open_bytes(&likes[i], omm_buf_view(&files[i])));
    }
    open_like(&a, data, v, &recipe, OMM_ISA_SCALAR, 1, &likes[LIKE_SAME]);
    CHECK_OK(omm_full_step(a.full, NULL));
    CHECK_OK(omm_full_checkpoint(a.full, &at));
    open_run(&before, data, v, &recipe, OMM_ISA_SCALAR, 1);
    CHECK_OK(omm_full_step(before.full, NULL));
    CHECK_OK(omm_full_checkpoint(before.full, &old));
    CHECK_EQ(omm_full_resume(a.full, omm_buf_view(&old)), OMM_ERR_MISMATCH);
    old.size -= sizeof(omm_digest);
    CHECK_EQ(omm_get_u32(old.data + 4), 5);
    omm_put_u32(old.data + 4, 4);
    CHECK_OK(omm_hash_seal(&old, 0));
    for (unsigned i = 0; i < LIKE_COUNT; i++) {
        open_like(&b, data, v, &recipe, OMM_ISA_SCALAR, 1, &likes[i]);
        const omm_err err = omm_full_resume(b.full, omm_buf_view(&at));
        CHECK_EQ(err, i < LIKE_TEMPLATE ? OMM_OK : OMM_ERR_MISMATCH);
        CHECK(err == OMM_OK || strcmp(omm_err_sentence(),
                                      "the checkpoint belongs to another vocabulary, another chat "
                                      "template or other keys of the model's file") == 0);
        CHECK_EQ(omm_full_steps(b.full), err == OMM_OK);
        CHECK_OK(omm_full_resume(b.full, omm_buf_view(&old)));
        omm_buf_clear(&again);
        CHECK_OK(omm_full_checkpoint(b.full, &again));
        CHECK_EQ(omm_bytes_equal(omm_buf_view(&again), omm_buf_view(&at)), err == OMM_OK);
        close_run(&b);
        omm_gguf_close(&likes[i]);
        omm_buf_fini(&files[i]);
    }
    close_run(&a);
    close_run(&before);
    omm_buf_fini(&at);
    omm_buf_fini(&old);
    omm_buf_fini(&again);
}

/* --- files ----------------------------------------------------------------------------------- */

/* The same model as the only part of a split one, with keys about its types. */
static void as_one_part(omm_buf *file) {
    omm_buf part;
    omm_gguf gguf;
    omm_gguf_writer w;
    omm_buf_init(&part, 64 << 20);
    omm_gguf_writer_init(&w);
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(file)));
    for (size_t i = 0; i < gguf.kv_count; i++) omm_gguf_put_kv(&w, &gguf.kvs[i]);
    omm_gguf_put_u32(&w, "split.no", 0);
    omm_gguf_put_u32(&w, "split.count", 1);
    omm_gguf_put_u32(&w, "split.tensors.count", (uint32_t)gguf.tensor_count);
    omm_gguf_put_u32(&w, "general.file_type", 1);
    omm_gguf_put_u32(&w, "general.quantization_version", 2);
    for (size_t i = 0; i < gguf.tensor_count; i++) {
        const omm_gguf_tensor *t = &gguf.tensors[i];
        omm_gguf_put_tensor(&w, t->name, (uint32_t)t->type, t->n_dims, t->dims, t->data);
    }
    CHECK_OK(omm_gguf_writer_finish(&part, &w));
    omm_gguf_close(&gguf);
    omm_gguf_writer_fini(&w);
    omm_buf_fini(file);
    *file = part;
}

/* What is written is one file of F32, and says so. */
static void check_keys(const omm_gguf *written, const omm_gguf *like) {
    uint32_t type = 1;
    CHECK(omm_gguf_find(like, "split.count") && !omm_gguf_find(written, "split.no"));
    CHECK(!omm_gguf_find(written, "split.count") && !omm_gguf_find(written, "split.tensors.count"));
    CHECK(!omm_gguf_find(written, "general.quantization_version"));
    CHECK_OK(omm_gguf_get_u32(&type, written, "general.file_type"));
    CHECK_EQ(type, 0);
    CHECK_EQ(written->kv_count, like->kv_count - 4);
}

/* What is written and loaded again has the same weights, also where tensors are fused. */
static void saved_as(const char *architecture) {
    omm_model model, again;
    omm_buf like, file;
    omm_gguf gguf, written;
    full_tensors a, b;
    omm_buf_init(&like, 64 << 20);
    omm_buf_init(&file, 64 << 20);
    const tiny_arch arch = test_arch(architecture, OMM_FORMAT_F16);
    tiny_arch_write(&like, &arch);
    as_one_part(&like);
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&like)));
    CHECK_OK(omm_model_load(&model, &gguf));
    CHECK_OK(full_thaw(&model));
    CHECK_OK(full_tensors_init(&a, &model));
    float *values = omm_alloc(2 * a.value_count, sizeof *values);
    omm_compute compute;
    CHECK(values);
    CHECK_OK(omm_compute_init(&compute, NULL, OMM_ISA_SCALAR));
    full_read(values, &a);
    for (size_t i = 0; i < a.value_count; i++) values[i] += (float)(i % 1000) / 4096;
    full_write(&compute, &a, values);
    CHECK_OK(omm_full_save(&file, &model, &gguf));
    CHECK_OK(omm_gguf_open_bytes(&written, omm_buf_view(&file)));
    CHECK_EQ(written.tensor_count, gguf.tensor_count);
    check_keys(&written, &gguf);
    CHECK_OK(omm_model_load(&again, &written));
    CHECK_OK(full_tensors_init(&b, &again));
    CHECK_EQ(a.value_count, b.value_count);
    full_read(values + a.value_count, &b);
    CHECK(memcmp(values, values + a.value_count, a.value_count * sizeof *values) == 0);
    omm_compute_fini(&compute);
    omm_free(values);
    full_tensors_fini(&a);
    full_tensors_fini(&b);
    omm_model_fini(&model);
    omm_model_fini(&again);
    omm_gguf_close(&written);
    omm_gguf_close(&gguf);
    omm_buf_fini(&like);
    omm_buf_fini(&file);
}

/* GaLore keeps less: rank 20 of matrices of 72 x 72 and 88; and so does Muon: one number of each weight there. */
static void keeps_less(const omm_dataset *data) {
    static const int kinds[] = {0, 3, 4};
    size_t kept[3];
    for (int i = 0; i < 3; i++) {
        run r;
        const variant *v = &s_variants[kinds[i]];
        const omm_recipe recipe = recipe_of(v, 200);
        open_run(&r, data, v, &recipe, OMM_ISA_SCALAR, 1);
        kept[i] = omm_full_moments(r.full);
        if (i == 0) CHECK_EQ(kept[0], 2 * omm_full_values(r.full));
        close_run(&r);
    }
    printf("numbers that AdamW keeps: %zu, in subspaces %zu, Muon: %zu\n", kept[0], kept[1],
           kept[2]);
    CHECK(kept[1] < kept[0] && kept[2] < kept[0]);
    run r;
    omm_recipe recipe = recipe_of(&s_variants[1], 200);
    omm_full_options options = {.recipe = &recipe, .data = data, .galore = {4, 1, 1}};
    CHECK_EQ(omm_full_open(&r.full, &options), OMM_ERR_CONFIG);
    recipe = recipe_of(&s_variants[0], 200);
    options.galore.every = 0;
    CHECK_EQ(omm_full_open(&r.full, &options), OMM_ERR_CONFIG);
    options.galore.every = 1;
    options.muon = (omm_full_muon){1, 0.9F};
    CHECK_EQ(omm_full_open(&r.full, &options), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "without galore"));
    options.galore.rank = 0;
    options.muon.momentum = 1;
    CHECK_EQ(omm_full_open(&r.full, &options), OMM_ERR_CONFIG);
}

/* --- it learns, and stops where it must ------------------------------------------------------- */

static void learns(const omm_dataset *data) {
    run r;
    omm_full_report first = {0}, last = {0};
    omm_isa best = OMM_ISA_SCALAR;
    CHECK_OK(omm_isa_choose(&best, getenv("OMM_ISA")));
    omm_recipe recipe = recipe_of(&s_variants[0], 4096);
    recipe.steps = 12;
    recipe.batch_tokens = 4096;
    recipe.learning_rate = 0.01F;
    open_run(&r, data, &s_variants[0], &recipe, best, 2);
    CHECK_OK(omm_full_step(r.full, &first));
    while (!omm_full_is_done(r.full)) CHECK_OK(omm_full_step(r.full, &last));
    printf("loss of step 1: %.3f, of step 12: %.3f\n", (double)first.loss, (double)last.loss);
    CHECK(last.loss < 0.6F * first.loss);
    close_run(&r);
}

static void not_finite(const omm_dataset *data) {
    run r;
    omm_isa best = OMM_ISA_SCALAR;
    CHECK_OK(omm_isa_choose(&best, getenv("OMM_ISA")));
    const omm_recipe recipe = recipe_of(&s_variants[0], 4096);
    open_run(&r, data, &s_variants[0], &recipe, best, 1);
    float *strip = (float *)(void *)r.model.layers[1].weights[OMM_LORA_DOWN].data;
    strip[0] = NAN;
    const omm_digest before = omm_full_digest(r.full);
    CHECK_EQ(omm_full_step(r.full, NULL), OMM_ERR_NUMERIC);
    CHECK(strstr(omm_err_sentence(), "step 1: loss nan, gradient norm nan: "));
    CHECK(strstr(omm_err_sentence(), "first seen in token_embd.weight"));
    const omm_digest after = omm_full_digest(r.full);
    CHECK(omm_digest_equal(&before, &after));
    omm_full *other = NULL; /* what is no number before the first step is refused then */
    const omm_full_options options = {.model = &r.model,
                                      .data = data,
                                      .recipe = &recipe,
                                      .compute = &r.compute,
                                      .seed = omm_seed_from_u64(3)};
    CHECK_EQ(omm_full_open(&other, &options), OMM_ERR_NUMERIC);
    CHECK(strstr(omm_err_sentence(), "the model has a weight that is not finite") && !other);
    close_run(&r);
}

static void every_model(const omm_dataset *data) {
    static const char *const all[] = {"llama",   "qwen2",    "qwen3",         "gemma2", "gemma3",
                                      "phi3",    "smollm3",  "granite",       "olmo2",  "mistral3",
                                      "exaone4", "ernie4_5", "hunyuan-dense", "gemma"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const tiny_arch arch = test_arch(all[i], OMM_FORMAT_F16);
        central_differences(data, "plain", &arch, i == 0 ? 2 : 1);
    }
    for (size_t i = 0; i < TEST_KINDS; i++) /* rotations are gradient_test's */
        if (test_kinds[i].arch.untied)
            central_differences(data, test_kinds[i].what, &test_kinds[i].arch, 1);
}

int main(int argc, char **argv) {
    omm_tokenizer *tokenizer = NULL;
    omm_dataset *data = NULL;
    test_tokenizer_open(&tokenizer);
    test_data_open(&data, "train.jsonl", 3, tokenizer);
    if (argc > 1) {
        omm_isa isa = OMM_ISA_SCALAR;
        CHECK_OK(omm_isa_choose(&isa, argv[1]));
        test_say_fma();
        by_one_isa(data, isa, argv + 2, argc - 2);
        omm_dataset_close(data);
        omm_tokenizer_close(tokenizer);
        return 0;
    }
    every_model(data);
    all_the_same(data);
    for (size_t i = 0; i < VARIANTS; i++) resume_is_exact(data, &s_variants[i]);
    keys_are_its_own(data);
    saved_as("llama");
    saved_as("qwen2");
    saved_as("gemma3");
    saved_as("phi3");
    keeps_less(data);
    learns(data);
    not_finite(data);
    omm_dataset_close(data);
    omm_tokenizer_close(tokenizer);
    return 0;
}

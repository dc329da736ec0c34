/* Gradients against the reference numbers (float64, central differences) and against our own central
 * differences along directions, with several sequences, dropout, and subsets of targets. */
#include "graph.h"
#include "test_model.h"

#include "omm/json.h"
#include "omm/mem.h"
#include "omm/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SKIPPED = 77 };

/* Reference entries: |ours - theirs| <= s_grad_relative |theirs| where that is more than s_grad_absolute
 * (F32: from 2e-4 on), else s_grad_absolute.  A small entry is what is left of f32 chains over tokens and
 * widths whose terms cancel; these terms, and so their roundings, have the size that large entries of
 * the same tensors have (1e-2 .. 5e-2, of which 2e-8 are 6 to 27 units of 2^-24).
 * Measured maxima: 3.9e-5 of an entry; below, F32 1.86e-8, packed 2.10e-8, the same bits on every machine;
 * losses 3.0e-7. */
static const double s_grad_relative = 1e-4, s_grad_absolute = 2e-8, s_grad_absolute_packed = 2.5e-8;
static const double s_loss_tolerance = 2e-6;
/* Directional derivative against the norm of the gradient, relative.  Measured maximum 5.7e-4. */
static const double s_direction_tolerance = 1e-3;

typedef struct rig {
    omm_compute compute;
    omm_model model;
    graph g;
} rig;

static const graph_dropout s_no_dropout;

static float s_nll[2048]; /* of the last forward */

static double forward(graph *g, const float *values, const omm_example *const *examples,
                      size_t count, const graph_dropout *dropout) {
    float *nll = s_nll;
    CHECK(g->rows_max <= sizeof s_nll / sizeof *s_nll);
    double sum = 0;
    size_t learned = 0;
    for (size_t i = 0; i < count; i++) learned += examples[i]->learn_count;
    graph_set_adapter(g, values);
    CHECK_OK(graph_forward(g, nll, examples, count, 1.0F / (float)learned, dropout));
    CHECK_EQ(g->learned, learned);
    for (size_t i = 0; i < learned; i++) sum += (double)nll[i];
    return sum / (double)learned;
}

/* The gradient with B as the adapter has it. */
static void gradient_of(float *out, graph *g, const omm_lora *lora) {
    float *raw = omm_alloc(lora->value_count, sizeof *raw);
    graph_backward(g, raw, true, true);
    memcpy(out, raw, lora->value_count * sizeof *raw);
    for (size_t i = 0; i < lora->tensor_count; i++) {
        const omm_lora_tensor *t = &lora->tensors[i];
        for (size_t r = 0; t->is_b && r < t->rows; r++)
            for (size_t c = 0; c < t->cols; c++)
                out[t->offset + r * t->cols + c] = raw[t->offset + c * t->rows + r];
    }
    omm_free(raw);
}

/* --- reference numbers ----------------------------------------------------------------------- */

static size_t read_ints(uint32_t *out, size_t max, const json_t *root, const char *key) {
    json_t *list = NULL;
    CHECK_OK(omm_json_get_array(&list, root, key));
    CHECK(json_array_size(list) <= max);
    for (size_t i = 0; i < json_array_size(list); i++)
        out[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    return json_array_size(list);
}

static const omm_lora_tensor *find_tensor(const omm_lora *lora, const char *name) {
    for (size_t i = 0; i < lora->tensor_count; i++)
        if (strcmp(lora->tensors[i].name, name) == 0) return &lora->tensors[i];
    return NULL;
}

static void compare_entries(const omm_lora *lora, const float *gradient, json_t *grads,
                            double absolute) {
    const char *name = NULL;
    json_t *entries = NULL;
    double worst = 0, worst_small = 0;
    size_t compared = 0;
    json_object_foreach(grads, name, entries) {
        const omm_lora_tensor *t = find_tensor(lora, name);
        CHECK(t);
        for (size_t i = 0; i < json_array_size(entries); i++, compared++) {
            const json_t *entry = json_array_get(entries, i);
            const json_t *index = json_object_get(entry, "index");
            size_t row = (size_t)json_integer_value(json_array_get(index, 0));
            size_t col = (size_t)json_integer_value(json_array_get(index, 1));
            double want = json_number_value(json_object_get(entry, "grad"));
            double got = (double)gradient[t->offset + row * t->cols + col];
            const double error = fabs(got - want), size = fabs(want);
            const bool is_small = size * s_grad_relative < absolute;
            const double allowed = is_small ? absolute : size * s_grad_relative;
            if (error > allowed)
                fprintf(stderr, "%s [%zu][%zu]: %.9g, reference %.9g\n", name, row, col, got, want);
            CHECK(error <= allowed);
            if (is_small)
                worst_small = worse_of(worst_small, error);
            else
                worst = worse_of(worst, error / size);
        }
    }
    CHECK(compared > 50);
    printf("  %zu entries, largest error %.2e of |g|, of those below %g %.2e\n", compared, worst,
           absolute / s_grad_relative, worst_small);
}

static void open_reference(rig *r, omm_lora *lora, json_t **root, const char *dir,
                           const char *name) {
    char path[512];
    omm_gguf gguf;
    snprintf(path, sizeof path, "%s/reference/models/%s.gguf", dir, name);
    CHECK_OK(omm_gguf_open(&gguf, path));
    CHECK_OK(omm_model_load(&r->model, &gguf));
    omm_gguf_close(&gguf);
    snprintf(path, sizeof path, "%s/reference/lora/%s.gguf", dir, name);
    CHECK_OK(omm_lora_load_file(lora, path, &r->model.lora_shape));
    snprintf(path, sizeof path, "%s/reference/lora/%s.json", dir, name);
    CHECK_OK(omm_json_load(root, path, 1 << 20));
}

static void against_reference(const char *dir, const char *name, omm_isa isa) {
    rig r = {0};
    omm_lora lora;
    json_t *root = NULL, *grads = NULL;
    uint32_t ids[64] = {0}, mask[64] = {0};
    uint8_t learn[64] = {0}, masked[64] = {0};
    CHECK_OK(omm_compute_init(&r.compute, NULL, isa));
    open_reference(&r, &lora, &root, dir, name);
    size_t n = read_ints(ids, 64, root, "ids");
    CHECK_EQ(read_ints(mask, 64, root, "mask"), n);
    omm_example all = {.ids = ids, .learn = learn, .count = (uint32_t)n};
    omm_example some = {.ids = ids, .learn = masked, .count = (uint32_t)n};
    for (size_t i = 0; i < n; i++) {
        learn[i] = i > 0;
        masked[i] = i > 0 && mask[i];
        all.learn_count += learn[i];
        some.learn_count += masked[i];
    }
    graph_options options = {
        .compute = &r.compute, .model = &r.model, .spec = lora.spec, .rows_max = n, .seq_max = n};
    CHECK_OK(graph_init(&r.g, &options));
    double loss = 0, loss_masked = 0;
    CHECK_OK(omm_json_get_real(&loss, root, "loss"));
    CHECK_OK(omm_json_get_real(&loss_masked, root, "loss_masked"));
    const omm_example *one = &some;
    double error = fabs(forward(&r.g, lora.values, &one, 1, &s_no_dropout) - loss_masked);
    one = &all;
    double error_all = fabs(forward(&r.g, lora.values, &one, 1, &s_no_dropout) - loss);
    printf("%s (%s): loss error %.2e, masked %.2e\n", name, omm_isa_name(isa), error_all, error);
    CHECK(error < s_loss_tolerance && error_all < s_loss_tolerance);
    float *gradient = omm_alloc(lora.value_count, sizeof *gradient);
    gradient_of(gradient, &r.g, &lora);
    CHECK_OK(omm_json_get_object(&grads, root, "grads"));
    compare_entries(&lora, gradient, grads,
                    strstr(name, "-F32") ? s_grad_absolute : s_grad_absolute_packed);
    omm_free(gradient);
    json_decref(root);
    graph_fini(&r.g);
    omm_lora_fini(&lora);
    omm_model_fini(&r.model);
    omm_compute_fini(&r.compute);
}

/* --- central differences --------------------------------------------------------------------- */

static double probe(graph *g, const omm_lora *lora, float *values, const float *direction,
                    double step, const omm_lora_tensor *t, const omm_example *const *examples,
                    size_t count, const graph_dropout *dropout) {
    memcpy(values, lora->values, lora->value_count * sizeof *values);
    size_t size = (size_t)t->rows * t->cols;
    for (size_t i = t->offset; i < t->offset + size; i++)
        values[i] = (float)((double)values[i] + step * (double)direction[i]);
    return forward(g, values, examples, count, dropout);
}

/* Along the gradient of one tensor the loss must change by its squared norm. */
static double check_tensor(graph *g, const omm_lora *lora, const float *gradient, float *values,
                           const omm_lora_tensor *t, const omm_example *const *examples,
                           size_t count, const graph_dropout *dropout) {
    size_t size = (size_t)t->rows * t->cols;
    double square = 0;
    for (size_t i = t->offset; i < t->offset + size; i++)
        square += (double)gradient[i] * (double)gradient[i];
    CHECK(square > 0);
    double norm = sqrt(square), step = 4e-3 / norm;
    double up = probe(g, lora, values, gradient, step, t, examples, count, dropout);
    double down = probe(g, lora, values, gradient, -step, t, examples, count, dropout);
    double got = (up - down) / (2 * step * norm);
    double error = fabs(got - norm) / (norm + 1e-3);
    if (error > s_direction_tolerance)
        fprintf(stderr, "%s: slope %.6g, gradient norm %.6g\n", t->name, got, norm);
    CHECK(error <= s_direction_tolerance);
    return error;
}

/* A session with the same adapter gives the losses of the last forward, to the bit. */
static void same_as_session(const rig *r, const omm_lora *lora, const float *nll,
                            const omm_example *const *examples, size_t count) {
    omm_session *session = NULL;
    omm_session_options options = omm_session_options_default();
    options.rope_positions = (uint32_t)r->g.seq_max;
    if (r->g.q8.q) options.activations = OMM_ACTIVATIONS_Q8;
    float each[512];
    double sum = 0;
    size_t at = 0;
    for (size_t e = 0; e < count; e++) {
        const omm_example *x = examples[e];
        CHECK(x->count <= 512);
        CHECK_OK(omm_session_open(&session, &r->compute, &r->model, lora, &options));
        CHECK_OK(omm_session_nll(&sum, each, session, x->ids, x->count));
        for (uint32_t i = 1; i < x->count; i++)
            if (x->learn[i]) CHECK(each[i - 1] == nll[at++]);
        omm_session_close(session);
    }
}

/* Three examples of the base's data in one micro-batch of their own tokens. */
typedef struct packed {
    omm_tokenizer *tokenizer;
    omm_dataset *data;
    const omm_example *examples[3];
    size_t rows, longest;
} packed;

static void open_packed(packed *p) {
    *p = (packed){0};
    test_tokenizer_open(&p->tokenizer);
    test_data_open(&p->data, "train.jsonl", 3, p->tokenizer);
    for (size_t i = 0; i < 3; i++) {
        p->examples[i] = omm_dataset_example(p->data, i);
        p->rows += p->examples[i]->count;
        if (p->examples[i]->count > p->longest) p->longest = p->examples[i]->count;
    }
}

static void close_packed(packed *p) {
    omm_dataset_close(p->data);
    omm_tokenizer_close(p->tokenizer);
}

static void open_rig(rig *r, omm_lora *lora, const tiny_arch *arch, const omm_recipe *recipe,
                     const graph_options *more, const packed *p) {
    omm_isa isa = OMM_ISA_SCALAR;
    *r = (rig){0};
    tiny_arch_load(&r->model, arch);
    CHECK_OK(omm_isa_choose(&isa, NULL));
    CHECK_OK(omm_compute_init(&r->compute, NULL, isa));
    test_adapter_of(lora, &r->model, recipe, 11);
    graph_options options = *more;
    options.compute = &r->compute;
    options.model = &r->model;
    options.lora = lora;
    options.rows_max = p->rows;
    options.seq_max = p->longest;
    options.rope_positions = (uint32_t)p->longest;
    CHECK_OK(graph_init(&r->g, &options));
}

static void close_rig(rig *r, omm_lora *lora) {
    graph_fini(&r->g);
    omm_lora_fini(lora);
    omm_model_fini(&r->model);
    omm_compute_fini(&r->compute);
}

static void differences_of(const tiny_arch *arch, const omm_recipe *recipe, float rate,
                           size_t checkpoint_layers) {
    rig r;
    packed p;
    omm_lora lora;
    const graph_options options = {.checkpoint_layers = checkpoint_layers, .drops = rate > 0};
    open_packed(&p);
    open_rig(&r, &lora, arch, recipe, &options, &p);
    omm_seed seed = omm_seed_from_u64(5);
    graph_dropout dropout = {.lane = omm_rng_init(&seed, OMM_PURPOSE_DROPOUT, 0, 0), .rate = rate};
    forward(&r.g, lora.values, p.examples, 3, &dropout);
    if (rate <= 0) same_as_session(&r, &lora, s_nll, p.examples, 3);
    float *gradient = omm_alloc(lora.value_count, sizeof *gradient);
    float *values = omm_alloc(lora.value_count, sizeof *values);
    gradient_of(gradient, &r.g, &lora);
    double worst = 0;
    for (size_t i = 0; i < lora.tensor_count; i++) {
        double error =
            check_tensor(&r.g, &lora, gradient, values, &lora.tensors[i], p.examples, 3, &dropout);
        worst = worse_of(worst, error);
    }
    printf("central differences, %s, targets %#x %s, ranks %s, dropout %g: largest relative error "
           "%.2e\n",
           arch->name, recipe->targets, recipe->target_pattern, recipe->rank_pattern, (double)rate,
           worst);
    omm_free(gradient);
    omm_free(values);
    close_rig(&r, &lora);
    close_packed(&p);
}

/* ---- activations in int8 ---------------------------------------------------------------------- */

/* Losses are those of a session that chats, to the bit, and not those of f32. */
static void as_when_it_chats(const tiny_arch *arch, uint32_t targets, const packed *p) {
    omm_recipe recipe = omm_recipe_default();
    float f32[sizeof s_nll / sizeof *s_nll];
    recipe.targets = targets;
    for (int q8 = 0; q8 < 2; q8++) {
        rig r;
        omm_lora lora;
        const graph_options options = {.q8 = q8 == 1, .checkpoint_layers = 1};
        open_rig(&r, &lora, arch, &recipe, &options, p);
        forward(&r.g, lora.values, p->examples, 3, &s_no_dropout);
        same_as_session(&r, &lora, s_nll, p->examples, 3);
        if (q8) CHECK(!same_bytes(f32, s_nll, r.g.learned * sizeof *f32));
        memcpy(f32, s_nll, sizeof f32);
        close_rig(&r, &lora);
    }
    printf("int8 activations, %s %s, targets %#x%s%s: the losses of a session\n", arch->name,
           omm_format_name(arch->format), targets, arch->plain[0] ? ", F32: " : "",
           arch->plain[0] ? arch->plain[0] : "");
}

/* Each input is of several matrices, of which some are quantised. */
static void some_in_int8(const packed *p) {
    static const char *const plain[] = {"attn_q",   "attn_k", "attn_v",   "attn_output",
                                        "ffn_gate", "ffn_up", "ffn_down", "token_embd"};
    tiny_arch mixed = test_arch("llama", OMM_FORMAT_Q8_0);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        mixed.plain[0] = plain[i];
        as_when_it_chats(&mixed, OMM_LORA_ALL_TARGETS, p);
    }
    mixed.plain[0] = "attn_q";
    mixed.plain[1] = "attn_k";
    as_when_it_chats(&mixed, OMM_LORA_ALL_TARGETS, p);
    mixed.plain[0] = "ffn_down";
    mixed.plain[1] = NULL;
    mixed.ff = 150; /* no rows of whole blocks: it can only be F32 */
    as_when_it_chats(&mixed, OMM_LORA_ALL_TARGETS, p);
}

static void int8_activations(void) {
    static const char *const names[] = {
        "llama",   "qwen2", "qwen3",    "gemma2",  "gemma3",   "phi3",          "smollm3",
        "granite", "olmo2", "mistral3", "exaone4", "ernie4_5", "hunyuan-dense", "gemma"};
    packed p;
    open_packed(&p);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const tiny_arch arch = test_arch(names[i], OMM_FORMAT_Q8_0);
        as_when_it_chats(&arch, i == 0 ? 1U << OMM_LORA_Q | 1U << OMM_LORA_V : OMM_LORA_ALL_TARGETS,
                         &p);
    }
    const tiny_arch q4_k = test_arch("llama", OMM_FORMAT_Q4_K);
    as_when_it_chats(&q4_k, OMM_LORA_ALL_TARGETS, &p);
    some_in_int8(&p);
    close_packed(&p);
}

static void central_differences(const tiny_arch *arch, uint32_t targets, float rate,
                                size_t checkpoint_layers) {
    omm_recipe recipe = omm_recipe_default();
    recipe.rank = 3;
    recipe.alpha = 6;
    recipe.targets = targets;
    differences_of(arch, &recipe, rate, checkpoint_layers);
}

/* Layers left out above and below, other ranks and scales for some. */
static void patterns(const char *architecture, const char *targets, float rate,
                     size_t checkpoint_layers) {
    omm_recipe recipe = omm_recipe_default();
    recipe.rank = 3;
    recipe.alpha = 2;
    recipe.rslora = 1;
    CHECK_OK(omm_recipe_set_targets(&recipe, targets));
    CHECK_OK(omm_recipe_set_patterns(&recipe, "blk.*.attn_v=5,*_gate=1", "attn_v=2.5"));
    const tiny_arch arch = test_arch(architecture, OMM_FORMAT_F32);
    differences_of(&arch, &recipe, rate, checkpoint_layers);
}

static void every_model(void) {
    const tiny_arch llama = test_arch("llama", OMM_FORMAT_F32);
    central_differences(&llama, OMM_LORA_ALL_TARGETS, 0, 0);
    central_differences(&llama, OMM_LORA_ALL_TARGETS, 0.3F, 1);
    for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++)
        central_differences(&llama, 1U << t, 0, t % 2);
    static const char *const others[] = {
        "qwen2", "qwen3",    "gemma2",  "gemma3",   "phi3",          "smollm3", "granite",
        "olmo2", "mistral3", "exaone4", "ernie4_5", "hunyuan-dense", "gemma"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const tiny_arch arch = test_arch(others[i], OMM_FORMAT_F32);
        central_differences(&arch, OMM_LORA_ALL_TARGETS, 0, i % 2);
    }
    for (size_t i = 0; i < TEST_KINDS; i++) {
        printf("%s: ", test_kinds[i].what);
        central_differences(&test_kinds[i].arch, OMM_LORA_ALL_TARGETS, 0, i % 2);
    }
}

int main(void) {
    patterns("llama", "blk.*.*", 0.2F, 1);
    patterns("llama", "blk.1.*", 0, 0);
    patterns("llama", "blk.0.attn_v,blk.0.ffn_gate,blk.1.ffn_*", 0, 0);
    patterns("gemma2", "blk.0-0.*", 0, 1);
    every_model();
    int8_activations();
    const char *dir = getenv("OMM_TESTDATA");
    char path[512];
    snprintf(path, sizeof path, "%s/reference/lora/llama-F32.json", dir ? dir : "");
    FILE *there = fopen(path, "rb");
    if (!there) {
        printf("skipped: no reference numbers at '%s'\n", path);
        return SKIPPED;
    }
    fclose(there);
    omm_isa best = OMM_ISA_SCALAR;
    CHECK_OK(omm_isa_choose(&best, NULL));
    against_reference(dir, "llama-F32", best);
    against_reference(dir, "llama-Q8_0", best);
    against_reference(dir, "llama-Q4_K", best);
    against_reference(dir, "llama-F32", OMM_ISA_SCALAR);
    against_reference(dir, "qwen2-F32", best);
    against_reference(dir, "qwen2-F32", OMM_ISA_SCALAR);
    against_reference(dir, "qwen3-F32", best);
    against_reference(dir, "qwen3-F32", OMM_ISA_SCALAR);
    return 0;
}

#include "render.h"

#include "omm/compute.h"
#include "omm/federated.h"
#include "omm/file.h"
#include "omm/gguf.h"
#include "omm/lora.h"
#include "omm/recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool take(const char **text, const char *part) {
    size_t n = strlen(part);
    if (strncmp(*text, part, n) != 0) return false;
    *text += n;
    return true;
}

/* "blk.12.attn_q.weight.lora_a" -> 12, OMM_LORA_Q, false. */
static bool parse_name(uint32_t *layer, omm_lora_target *target, bool *is_b, const char *name) {
    if (!take(&name, "blk.") || name[0] < '0' || name[0] > '9') return false;
    char *end = NULL;
    unsigned long number = strtoul(name, &end, 10); /* too large: ULONG_MAX, over the limit */
    name = end;
    if (number >= OMM_LORA_LAYERS_MAX || !take(&name, ".")) return false;
    *layer = (uint32_t)number;
    for (int t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
        const char *rest = name;
        if (!take(&rest, omm_lora_target_tensor((omm_lora_target)t)) || rest[0] != '.') continue;
        *target = (omm_lora_target)t;
        *is_b = strcmp(rest, ".weight.lora_b") == 0;
        return *is_b || strcmp(rest, ".weight.lora_a") == 0;
    }
    return false;
}

/* What its adapters name: nothing, where the run is one of before. */
static omm_lora_base base_of(const omm_run_record *run) {
    omm_lora_base base = {.fingerprint = run->base.fingerprint};
    if (run->base.title) omm_lora_base_set_name(&base, omm_bytes_str(run->base.title));
    return base;
}

static omm_err shape_of(omm_lora_shape *shape, const omm_run_record *run) {
    memset(shape, 0, sizeof *shape);
    if (strlen(run->base.architecture) >= sizeof shape->architecture)
        return omm_raise(OMM_ERR_MISMATCH, "architecture name is too long");
    snprintf(shape->architecture, sizeof shape->architecture, "%s", run->base.architecture);
    shape->base = base_of(run);
    for (size_t i = 0; i < run->layout.segment_count; i++) {
        const omm_segment *s = &run->layout.segments[i];
        uint32_t layer = 0;
        omm_lora_target target = OMM_LORA_Q;
        bool is_b = false;
        if (!parse_name(&layer, &target, &is_b, s->name))
            return omm_raise(OMM_ERR_MISMATCH, "%s is no tensor of an adapter", s->name);
        if (layer >= shape->layer_count) shape->layer_count = layer + 1;
        if (is_b)
            shape->d_out[target] = s->rows;
        else
            shape->d_in[target] = s->cols;
    }
    return OMM_OK;
}

/* Before memory is taken for them: as many values as the layout says, which is limited. */
static omm_err check_count(const omm_lora_shape *shape, const omm_run_record *run) {
    uint64_t per_layer = 0;
    for (int t = 0; t < OMM_LORA_TARGET_COUNT; t++)
        if (run->targets & 1u << t)
            per_layer += ((uint64_t)shape->d_in[t] + shape->d_out[t]) * run->rank;
    bool same = per_layer <= OMM_LORA_VALUES_MAX &&
                per_layer * shape->layer_count == run->layout.value_count;
    if (same && run->rank <= OMM_LORA_RANK_MAX) return OMM_OK;
    return omm_raise(OMM_ERR_MISMATCH, "the layout is not that of rank, targets and layers");
}

static omm_err check_layout(const omm_lora *lora, const omm_layout *layout) {
    if (lora->tensor_count != layout->segment_count || lora->value_count != layout->value_count)
        return omm_raise(OMM_ERR_MISMATCH,
                         "the layout has %zu tensors, an adapter of its rank and "
                         "targets %zu",
                         layout->segment_count, lora->tensor_count);
    for (size_t i = 0; i < layout->segment_count; i++) {
        const omm_segment *s = &layout->segments[i];
        const omm_lora_tensor *t = &lora->tensors[i];
        if (strcmp(s->name, t->name) != 0 || s->rows != t->rows || s->cols != t->cols ||
            s->offset != t->offset)
            return omm_raise(OMM_ERR_MISMATCH, "%s does not stand where it must in the layout",
                             s->name);
    }
    return OMM_OK;
}

/* Values of the whole adapter, and of those that travel with a core, before memory is taken for them. */
static omm_err count_values(uint64_t *whole, uint64_t *cores, const omm_federated *f) {
    omm_lora_plan plan;
    *whole = *cores = 0;
    OMM_TRY(omm_recipe_plan(&plan, f->recipe, f->shape));
    for (size_t i = 0; i < (size_t)f->shape->layer_count * OMM_LORA_TARGET_COUNT; i++) {
        const size_t t = i % OMM_LORA_TARGET_COUNT;
        const uint64_t rank = plan.pairs[i].rank;
        *whole += rank * ((uint64_t)f->shape->d_in[t] + f->shape->d_out[t]);
        *cores += rank * rank;
    }
    omm_lora_plan_fini(&plan);
    return OMM_OK;
}

static omm_err check_recipe(const omm_federated *f, const omm_run_record *run, uint64_t values) {
    omm_lora_spec spec;
    OMM_TRY(omm_federated_spec(&spec, f));
    if (values == run->layout.value_count && spec.rank == run->rank && spec.alpha == run->alpha &&
        spec.targets == run->targets)
        return OMM_OK;
    return omm_raise(OMM_ERR_MISMATCH, "the layout is not that of the recipe");
}

/* What only the recipe says. */
static omm_err render_recipe(omm_buf *out, const omm_run_record *run, const omm_federated *f,
                             const float *values) {
    omm_lora lora;
    omm_compute compute; /* one multiply-add in 500 of a training step's: no pool */
    OMM_TRY(omm_federated_begin(&lora, f, NULL));
    omm_err err = check_layout(&lora, &run->layout);
    omm_lora_fini(&lora);
    OMM_TRY(err);
    OMM_TRY(omm_compute_init(&compute, NULL, OMM_ISA_SCALAR));
    err = omm_federated_save(out, f, values, &compute);
    omm_compute_fini(&compute);
    return err;
}

static omm_err render_patterns(omm_buf *out, const omm_run_record *run, const omm_recipe *recipe,
                               const float *values) {
    uint64_t whole = 0, cores = 0;
    omm_lora_shape shape;
    OMM_TRY(shape_of(&shape, run));
    const omm_federated f = {.recipe = recipe, .shape = &shape};
    OMM_TRY(count_values(&whole, &cores, &f));
    OMM_TRY(check_recipe(&f, run, whole));
    return render_recipe(out, run, &f, values);
}

/* Cores do not say how wide the layers are; the file that shall hold their adapter does. */
static omm_err claim_shape(omm_lora_shape *shape, uint64_t *bytes, const char *bundle) {
    char path[OMM_PATH_MAX];
    omm_gguf gguf;
    memset(shape, 0, sizeof *shape);
    if (!bundle) return omm_raise(OMM_ERR_MISMATCH, "cores make an adapter only with its bundle");
    OMM_TRY(omm_path_join(path, bundle, "final.gguf"));
    OMM_TRY(omm_gguf_open(&gguf, path));
    const omm_err err = omm_lora_claim_shape(shape, &gguf);
    *bytes = omm_gguf_bytes(&gguf);
    omm_gguf_close(&gguf);
    return err;
}

static omm_err render_cores(omm_buf *out, const omm_run_record *run, const omm_recipe *recipe,
                            const float *values, const char *bundle) {
    uint64_t whole = 0, cores = 0, bytes = 0;
    omm_lora_shape shape;
    OMM_TRY(claim_shape(&shape, &bytes, bundle));
    shape.base = base_of(run);
    const omm_federated f = {.recipe = recipe, .shape = &shape, .base = run->base.digest};
    if (strcmp(shape.architecture, run->base.architecture) != 0)
        return omm_raise(OMM_ERR_MISMATCH, "it is an adapter of %s, the run's model is %s",
                         shape.architecture, run->base.architecture);
    OMM_TRY(count_values(&whole, &cores, &f));
    OMM_TRY(check_recipe(&f, run, cores));
    if (whole * sizeof(float) > bytes)
        return omm_raise(OMM_ERR_MISMATCH, "it is shorter than the adapter that it says it is");
    return render_recipe(out, run, &f, values);
}

/* One rank, one alpha: the record says all. */
static omm_err render_uniform(omm_buf *out, const omm_run_record *run, const float *values) {
    omm_lora lora;
    omm_lora_shape shape;
    omm_lora_spec spec = {run->rank, run->alpha, run->targets};
    OMM_TRY(shape_of(&shape, run));
    OMM_TRY(check_count(&shape, run));
    OMM_TRY(omm_lora_init(&lora, &spec, &shape));
    omm_err err = check_layout(&lora, &run->layout);
    if (err == OMM_OK) {
        memcpy(lora.values, values, lora.value_count * sizeof *values);
        err = omm_lora_save(out, &lora);
    }
    omm_lora_fini(&lora);
    return err;
}

omm_err cli_render_adapter(void *ud, omm_buf *out, const omm_run_record *run, const float *values) {
    const cli_render *bundle = ud;
    omm_recipe recipe;
    if (omm_recipe_decode(&recipe, run->recipe) != OMM_OK)
        return render_uniform(out, run, values); /* opaque to a bundle */
    if (recipe.parts == OMM_RECIPE_PARTS_CORE)
        return render_cores(out, run, &recipe, values, bundle ? bundle->dir : NULL);
    if (!omm_recipe_is_uniform(&recipe)) return render_patterns(out, run, &recipe, values);
    return render_uniform(out, run, values);
}

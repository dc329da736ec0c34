/* train_memory.c - see train_memory.h. */
#include "train_memory.h"

#include "memory.h"

#include "omm/clock.h"
#include "omm/mem.h"
#include "omm/plan.h"

#include <stdio.h>
#include <string.h>

#define DRY_STEPS 2u
/* Stacks of threads, logs, texts, and code that comes to memory when it runs.  Measured: up to 1.5 MB */
#define HEAP_BYTES ((uint64_t)2 << 20)
/* What is resident at the same place of two runs differs: where a library lies decides which of its
 * pages come with one that is touched.  Measured: up to 0.9 MB */
#define SLACK_BYTES ((uint64_t)3 << 19)
#define MEGABYTE 1000000u

/* ---- the plan -------------------------------------------------------------------------------- */

/* One evaluation on all threads: sessions, logits, scratch. */
static omm_err held_out_bytes(uint64_t *out, const train_run *r, const omm_gguf *gguf,
                              unsigned threads, uint32_t new_tokens) {
    *out = 0;
    if (!r->eval) return OMM_OK;
    omm_eval_room room;
    OMM_TRY(omm_eval_room_of(&room, &r->model, r->eval, threads, new_tokens));
    omm_plan plan;
    omm_plan_options o = {.session = omm_session_options_default(),
                          .threads = 1,
                          .logit_rows = room.logit_rows,
                          .lodger = true};
    o.session.positions_max = room.positions_max;
    OMM_TRY(omm_plan_make(&plan, gguf, NULL, 0, &o));
    const uint64_t cache = room.workers * room.seats * plan.cache;
    const uint64_t items = 2 * omm_dataset_count(r->eval) * sizeof *r->items;
    *out = room.workers * (plan.work + r->plan.judging) + omm_huge_taken(cache + r->plan.judged) +
           items;
    return OMM_OK;
}

static omm_err base_plan(omm_plan *out, const omm_gguf *gguf) {
    omm_plan_options o = {.session = omm_session_options_default(), .lodger = true};
    omm_model model;
    OMM_TRY(omm_model_outline(&model, gguf));
    o.session.positions_max = model.dims.context < OMM_KV_BLOCK ? model.dims.context : OMM_KV_BLOCK;
    omm_model_fini(&model);
    return omm_plan_make(out, gguf, NULL, 0, &o);
}

static const char *adapter_name(const train_run *r) {
    return r->args.full ? "copy and gradient" : "adapter";
}

/* What loading the model takes beyond what training does: 0 unless that is more. */
static uint64_t more_bytes(const train_run *r) {
    const train_memory *m = &r->memory;
    return m->total - m->before - m->weights - m->held_out - r->plan.total;
}

static void print_line(const train_run *r) {
    const train_memory *m = &r->memory;
    const omm_train_plan *p = &r->plan;
    const uint64_t beyond = more_bytes(r);
    char total[32], available[32], held_out[48] = "", more[64] = "", files[96] = "",
                                   reader[32] = "";
    omm_plan_bytes_text(total, m->total);
    omm_plan_bytes_text(available, m->available);
    if (m->held_out > 0)
        snprintf(held_out, sizeof held_out, ", held-out %.1f MB", (double)m->held_out * 1e-6);
    if (p->checkpoint > 0 || p->writing > 0)
        snprintf(files, sizeof files, ", checkpoint %.1f MB, writing %.1f MB",
                 (double)p->checkpoint * 1e-6, (double)p->writing * 1e-6);
    if (omm_dataset_is_stream(r->data))
        snprintf(reader, sizeof reader, ", reader %.1f MB", (double)p->reader * 1e-6);
    if (beyond > 0) snprintf(more, sizeof more, ", loading %.1f MB more", (double)beyond * 1e-6);
    fprintf(stderr,
            "memory: weights %.1f MB, %s %.1f MB, optimizer %.1f MB, activations %.1f MB (%u "
            "tokens at once, %u of %u layers computed again), logits %.1f MB, work %.1f MB%s%s%s, "
            "program, vocabulary and data %.1f MB%s; %s of %s available%s\n",
            (double)m->weights * 1e-6, adapter_name(r), (double)p->adapter * 1e-6,
            (double)p->optimizer * 1e-6, (double)p->activations * 1e-6, p->micro_tokens,
            p->checkpoint_layers, r->model.dims.layers, (double)p->logits * 1e-6,
            (double)p->work * 1e-6, reader, files, held_out, (double)m->before * 1e-6, more, total,
            available, m->available > 0 && m->total > m->available ? " (more than there is)" : "");
}

static void print_rope(const train_run *r) {
    const omm_model *model = &r->model;
    const uint32_t seq_max = r->recipe.seq_max;
    if (model->dims.rope_scaling != OMM_ROPE_SCALING_LONG) return;
    const bool far = omm_model_rope_far(model, seq_max);
    fprintf(stderr,
            "longrope: the %s factors, as --seq %u is %s the original context of %u; to use "
            "what is trained as it was trained, give generate, chat and perplexity -c %s%u\n",
            far ? "long" : "short", seq_max, far ? "above" : "within", model->dims.rope_context,
            far ? "above " : "up to ", model->dims.rope_context);
}

/* ---- a limit --------------------------------------------------------------------------------- */

/* Ways out of a refusal, as options. */
typedef struct ways {
    char text[256];
    const train_run *run;
    const omm_gguf *gguf;
    uint64_t base, loading; /* beside training; with `loading` before it */
    uint64_t most;
} ways;

static void add_way(ways *w, const char *way) {
    const size_t used = strlen(w->text);
    snprintf(w->text + used, sizeof w->text - used, "%s%s", used ? " or " : "", way);
}

static void add_number(ways *w, const char *option, uint64_t number) {
    char way[64];
    snprintf(way, sizeof way, "%s %llu", option, (unsigned long long)number);
    add_way(w, way);
}

static bool fits(const ways *w, uint64_t held_out, const omm_train_plan *least) {
    return w->base + held_out + least->total + SLACK_BYTES <= w->most;
}

/* The most threads, fewer than these, with which it fits. */
static omm_err fewer_threads(ways *w, const omm_train_plan_options *options) {
    omm_train_plan_options o = *options;
    for (o.threads = options->threads - 1; o.threads > 0; o.threads--) {
        omm_train_plan least;
        uint64_t held_out = 0;
        uint32_t longest = 0;
        OMM_TRY(held_out_bytes(&held_out, w->run, w->gguf, o.threads, w->run->args.new_tokens));
        OMM_TRY(omm_train_plan_least(&least, &longest, &o, 0));
        if (!fits(w, held_out, &least)) continue;
        add_number(w, "-t", o.threads);
        return OMM_OK;
    }
    return OMM_OK;
}

/* Evaluation that takes less, or none where nothing else asks for it. */
static omm_err less_held_out(ways *w, const omm_train_plan *least, unsigned threads) {
    const train_run *r = w->run;
    uint64_t losses_only = 0;
    if (!r->eval) return OMM_OK;
    OMM_TRY(held_out_bytes(&losses_only, r, w->gguf, threads, 0));
    if (r->args.new_tokens > 0 && fits(w, losses_only, least)) add_number(w, "--new-tokens", 0);
    if (!r->args.eval_every && fits(w, 0, least))
        add_way(w, r->args.eval ? "no --eval" : "no --split");
    return OMM_OK;
}

/* Is anything to be learned in examples of so many tokens?  A stream is not asked. */
static bool learns_within(const omm_dataset *data, uint32_t tokens) {
    if (!data || omm_dataset_is_stream(data)) return true;
    for (size_t i = 0; i < omm_dataset_count(data); i++)
        if (omm_dataset_example(data, i)->prompt_count < tokens) return true;
    return false;
}

/* What of the command line could change so that it fits; the limit itself always can. */
static omm_err find_ways(ways *w, const omm_train_plan_options *o) {
    const train_run *r = w->run;
    const uint64_t beside = w->base + r->memory.held_out + SLACK_BYTES;
    omm_train_plan least;
    uint32_t longest = 0;
    OMM_TRY(omm_train_plan_least(&least, &longest, o, w->most > beside ? w->most - beside : 0));
    const uint64_t training = beside + least.total;
    if (w->loading <= w->most) {
        OMM_TRY(fewer_threads(w, o));
        OMM_TRY(less_held_out(w, &least, o->threads));
        if (longest >= 8 && learns_within(r->data, longest) && learns_within(r->eval, longest))
            add_number(w, "--seq", longest);
    }
    const uint64_t needed = w->loading > training ? w->loading : training;
    add_number(w, "--max-memory-mb", (needed + MEGABYTE - 1) / MEGABYTE);
    return OMM_OK;
}

static omm_err refuse(ways *w, const omm_train_plan_options *o, const char *why) {
    const train_run *r = w->run;
    char taken[32];
    omm_plan_bytes_text(taken, w->base + r->memory.held_out);
    OMM_TRY(find_ways(w, o));
    return omm_raise(OMM_ERR_CONFIG,
                     "--max-memory-mb %u: program, data, weights%s take %s; %s; with %s it "
                     "would fit",
                     r->args.max_memory_mb, r->memory.held_out > 0 ? " and evaluation" : "", taken,
                     why, w->text);
}

static omm_err fit(train_run *r, const omm_gguf *gguf, const omm_train_plan_options *o,
                   uint64_t loading) {
    const uint64_t most = (uint64_t)r->args.max_memory_mb * MEGABYTE;
    const uint64_t base = r->memory.before + r->memory.weights;
    const uint64_t beside = base + r->memory.held_out;
    ways w = {.run = r, .gguf = gguf, .base = base, .loading = base + loading, .most = most};
    char why[512];
    if (r->args.max_memory_mb == 0) return OMM_OK;
    if (base + loading > most) {
        snprintf(why, sizeof why, "loading the model takes %.1f MB", (double)w.loading * 1e-6);
        return refuse(&w, o, why);
    }
    omm_err err = omm_train_plan_fit(&r->plan, o, most > beside ? most - beside : 0);
    if (err != OMM_ERR_CONFIG) return err;
    snprintf(why, sizeof why, "%s", omm_err_sentence());
    return refuse(&w, o, why);
}

static void take_plan(train_run *r, const omm_plan *base) {
    omm_memory machine;
    train_memory *m = &r->memory;
    m->before = omm_memory_resident() + HEAP_BYTES;
    cli_memory_machine(&machine);
    m->available = machine.available + m->before;
    /* With `full` they are thawed. */
    m->weights = r->args.full ? r->plan.parameters * sizeof(float) : base->weights;
    m->weights = omm_huge_taken(m->weights);
}

omm_err train_memory_plan(train_run *r, const omm_gguf *gguf) {
    omm_plan base;
    train_memory *m = &r->memory;
    *m = (train_memory){0};
    const unsigned threads = r->threads > 0 ? r->threads : omm_threads_default();
    const omm_train_plan_options o = {.model = &r->model,
                                      .recipe = &r->recipe,
                                      .data = r->data,
                                      .full = r->args.full,
                                      .keeps_best = strcmp(r->args.keep, "best") == 0,
                                      .has_checkpoint = r->args.checkpoint != NULL,
                                      .writes = true,
                                      .galore = {r->args.galore ? r->args.galore_rank : 0,
                                                 r->args.galore_every, r->args.galore_scale},
                                      .like = train_is_like_start(&r->args) ? &r->start : NULL,
                                      .threads = threads,
                                      .checkpoint_layers = r->args.checkpoint_layers};
    OMM_TRY(omm_train_plan_make(&r->plan, &o));
    OMM_TRY(base_plan(&base, gguf));
    OMM_TRY(held_out_bytes(&m->held_out, r, gguf, threads, r->args.new_tokens));
    take_plan(r, &base); /* what planning leaves in the heap is in it */
    /* Packed weights go as their F32 come. */
    const uint64_t loading = r->args.full ? base.weights + base.loading : base.loading;
    OMM_TRY(fit(r, gguf, &o, loading));
    const uint64_t running = r->plan.total + m->held_out;
    m->total = m->before + m->weights + (loading > running ? loading : running);
    print_line(r);
    print_rope(r);
    return OMM_OK;
}

/* ---- reports --------------------------------------------------------------------------------- */

json_t *train_memory_json(const train_run *r) {
    const train_memory *m = &r->memory;
    const omm_train_plan *p = &r->plan;
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
        "before_bytes", (json_int_t)m->before, "weights_bytes", (json_int_t)m->weights,
        "adapter_bytes", (json_int_t)p->adapter, "optimizer_bytes", (json_int_t)p->optimizer,
        "activations_bytes", (json_int_t)p->activations, "logits_bytes", (json_int_t)p->logits,
        "work_bytes", (json_int_t)p->work, "checkpoint_bytes", (json_int_t)p->checkpoint,
        "writing_bytes", (json_int_t)p->writing, "reader_bytes", (json_int_t)p->reader,
        "held_out_bytes", (json_int_t)m->held_out, "loading_more_bytes", (json_int_t)more_bytes(r),
        "planned_bytes", (json_int_t)m->total, "peak_bytes", (json_int_t)omm_memory_peak(),
        "available_bytes", (json_int_t)m->available, "micro_tokens", (json_int_t)p->micro_tokens,
        "checkpoint_layers", (json_int_t)p->checkpoint_layers);
}

static void print_part(const char *name, uint64_t bytes, const char *what) {
    printf("  %-26s %9.1f MB  %s\n", name, (double)bytes * 1e-6, what);
}

static const char *reader_text(const train_run *r) {
    return omm_dataset_is_stream(r->data) ? "window over the file, a line, examples that are kept"
                                          : "order of the examples";
}

static void print_plan(const train_run *r) {
    const train_memory *m = &r->memory;
    const omm_train_plan *p = &r->plan;
    char adapter[96], activations[96];
    char rank[32] = "ranks differ";
    if (train_is_like_start(&r->args)) snprintf(rank, sizeof rank, "as --start");
    if (!train_is_like_start(&r->args) && !r->recipe.rank_pattern[0])
        snprintf(rank, sizeof rank, "rank %u", r->recipe.rank);
    snprintf(adapter, sizeof adapter, "%.4g M parameters, %s: values and gradient",
             (double)p->parameters * 1e-6, rank);
    snprintf(activations, sizeof activations, "%u tokens at once, %u of %u layers computed again",
             p->micro_tokens, p->checkpoint_layers, r->model.dims.layers);
    print_part("program, vocabulary, data", m->before, "");
    print_part("weights", m->weights, "");
    if (r->args.full)
        snprintf(adapter, sizeof adapter, "%.4g M weights", (double)p->parameters * 1e-6);
    print_part(adapter_name(r), p->adapter, adapter);
    print_part("optimizer", p->optimizer,
               r->args.galore ? "galore" : omm_recipe_optimizers[r->recipe.optimizer]);
    print_part("activations", p->activations, activations);
    print_part("logits", p->logits, "of the rows that the loss takes at once");
    print_part("work", p->work, "scratch of threads, rotary tables");
    print_part("reader", p->reader, reader_text(r));
    if (p->checkpoint > 0) print_part("checkpoint", p->checkpoint, "the file while it is written");
    if (p->writing > 0) print_part("writing", p->writing, "the file, when the steps are done");
    if (r->eval) print_part("held-out", m->held_out, "sessions and logits of an evaluation");
    if (more_bytes(r) > 0) print_part("loading", more_bytes(r), "beyond what training takes");
    print_part("total", m->total, "");
    printf("  %-26s %9.1f MB\n", "available", (double)m->available * 1e-6);
}

static void print_time(const train_run *r, uint32_t steps, double seconds, uint64_t tokens) {
    char all[32];
    cli_duration(all, sizeof all, seconds / steps * r->recipe.steps);
    printf("measured over %u step%s: %.2f s and %.0f tokens a step, %.0f tokens/s; peak memory "
           "%.1f MB\n%u steps: about %s%s\n",
           steps, steps > 1 ? "s" : "", seconds / steps, (double)tokens / steps,
           (double)tokens / seconds, (double)omm_memory_peak() * 1e-6, r->recipe.steps, all,
           r->eval ? ", evaluations apart" : "");
}

static omm_err print_json(const train_run *r, uint32_t steps, double seconds, uint64_t tokens) {
    json_t *result =
        json_pack("{s:i, s:b, s:o, s:i, s:f, s:f, s:i, s:f}", "schema_version", 1, "dry_run", 1,
                  "memory", train_memory_json(r), "measured_steps", (int)steps, "step_s",
                  seconds / steps, "tokens_per_s", (double)tokens / seconds, "steps",
                  (int)r->recipe.steps, "estimated_s", seconds / steps * r->recipe.steps);
    omm_err err = train_print_json(result);
    json_decref(result);
    return err;
}

static omm_err train_one_step(train_run *r, omm_step_report *report) {
    omm_full_report full;
    if (!r->full) return omm_trainer_step(r->trainer, report);
    omm_err err = omm_full_step(r->full, &full);
    report->tokens = full.tokens;
    return err;
}

omm_err train_dry_run(train_run *r) {
    uint64_t tokens = 0;
    const uint32_t steps = r->recipe.steps < DRY_STEPS ? r->recipe.steps : DRY_STEPS;
    if (!r->args.json) print_plan(r);
    const uint64_t begin = omm_measure_ns();
    for (uint32_t i = 0; i < steps; i++) {
        omm_step_report report;
        OMM_TRY(train_one_step(r, &report));
        tokens += report.tokens;
    }
    const double seconds = (double)(omm_measure_ns() - begin + 1) * 1e-9;
    if (r->args.json) return print_json(r, steps, seconds, tokens);
    print_time(r, steps, seconds, tokens);
    return OMM_OK;
}

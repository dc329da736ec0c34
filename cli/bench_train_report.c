/* bench_train_report.c - what `meshmind bench --train` prints. */
#include "bench_train.h"

#include <stdio.h>

static double step_flops(const bench_train_result *r, const bench_train_run *run) {
    return run->speed.median * r->token_flops;
}

static double other_seconds(const bench_train_run *run) {
    double sum = run->seconds;
    for (unsigned i = 0; i < OMM_TRAIN_PART_COUNT; i++) sum -= (double)run->watch.ns[i] * 1e-9;
    return sum > 0.0 ? sum : 0.0;
}

/* Share of all threads' time in a part that had no work: waiting for others, or for one thread alone. */
static double idle_share(const bench_train_run *run, unsigned part) {
    const double all = (double)run->watch.ns[part] * run->threads;
    const double idle = all - (double)run->watch.work_ns[part];
    return idle > 0.0 ? bench_share(idle, all) : 0.0;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* With what the machine gave so many threads beside the steps: neighbours leave two processors less than twice one. */
static void print_over_first(const bench_train_result *r, const bench_train_run *run) {
    const bench_train_run *first = &r->runs[0];
    printf("\n  %.2f x the speed of %u thread%s, in turns (%.2f .. %.2f)", run->over_first.median,
           first->threads, first->threads > 1 ? "s" : "", run->over_first.min, run->over_first.max);
    if (run->fma_beside > 0.0)
        printf("; the multiply-adds beside them %.2f x",
               bench_share(run->fma_beside, first->fma_beside));
}

static void print_products(const bench_train_run *run) {
    const double rates[] = {run->forward, run->backward, run->adapter};
    const double peaks[] = {run->fma_beside, run->fma_flops};
    printf("\n  products of the layers: forward %.0f GFLOP/s, backward %.0f; z, dz %.0f",
           run->forward * 1e-9, run->backward * 1e-9, run->adapter * 1e-9);
    for (unsigned i = 0; i < 2 && run->fma_flops > 0.0; i++)
        printf("%s%.2f, %.2f, %.2f of the %s", i ? "; " : " (", bench_share(rates[0], peaks[i]),
               bench_share(rates[1], peaks[i]), bench_share(rates[2], peaks[i]),
               i ? "peak)" : "multiply-adds beside the steps");
}

static void print_run(const bench_train_result *r, const bench_train_run *run,
                      const bench_train_options *o) {
    const bench_spread *s = &run->speed;
    printf("%u thread%s", run->threads, run->threads > 1 ? "s" : "");
    if (run->fma_flops > 0.0) printf("; peak in this run: fma %.0f GFLOP/s", run->fma_flops * 1e-9);
    printf("\n  step  %6.2f s  %7.1f tokens/s  (%.1f .. %.1f)", o->seq / s->median, s->median,
           s->min, s->max);
    if (run->fma_flops > 0.0)
        printf("  %.0f GFLOP/s: %.2f (%.2f .. %.2f) of the multiply-adds beside it, %.2f of the "
               "fma peak",
               step_flops(r, run) * 1e-9, run->in_turns.median, run->in_turns.min,
               run->in_turns.max, bench_share(step_flops(r, run), run->fma_flops));
    if (run != r->runs) print_over_first(r, run);
    print_products(run);
    printf("\n  time:");
    for (unsigned i = 0; i < OMM_TRAIN_PART_COUNT; i++)
        printf(" %s %.1f %%,", omm_train_part_name((omm_train_part)i),
               bench_share((double)run->watch.ns[i] * 1e-7, run->seconds));
    printf(" other %.1f %%\n", bench_share(other_seconds(run) * 100.0, run->seconds));
    if (run->threads == 1) return;
    printf("  of it threads without work:");
    for (unsigned i = 0; i < OMM_TRAIN_PART_COUNT; i++)
        printf("%s %s %.1f %%", i ? "," : "", omm_train_part_name((omm_train_part)i),
               idle_share(run, i) * 100.0);
    printf("\n");
}

void bench_train_print(const bench_train_result *r, const bench_train_options *o) {
    printf("%s: %s, %.3f G parameters, adapter of rank %u: %.2f M\n", o->bench->model,
           r->architecture, (double)r->parameters * 1e-9, o->rank,
           (double)r->adapter_parameters * 1e-6);
    const bool q8 = o->bench->activations == OMM_ACTIVATIONS_Q8;
    printf("%s, activations %s%s, %u tokens a step, %u of %u layers computed again: %.2f GFLOP a "
           "token, median of "
           "%u (min .. max), peak memory %.0f MB\n",
           omm_isa_name(r->isa), omm_activations_name(o->bench->activations),
           q8 ? " in forward (products in int8 count as those of f32)" : "", o->seq,
           r->checkpoint_layers, r->layers, r->token_flops * 1e-9, o->bench->repeats,
           (double)r->memory_peak_bytes * 1e-6);
    for (unsigned i = 0; i < r->run_count; i++) print_run(r, &r->runs[i], o);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *json_run(const bench_train_result *r, const bench_train_run *run,
                        const bench_train_options *o) {
    json_t *parts = json_object(), *idle = json_object();
    for (unsigned i = 0; i < OMM_TRAIN_PART_COUNT; i++) {
        const char *part = omm_train_part_name((omm_train_part)i);
        json_object_set_new(parts, part,
                            json_real((double)run->watch.ns[i] * 1e-9 / o->bench->repeats));
        json_object_set_new(idle, part, json_real(idle_share(run, i)));
    }
    json_object_set_new(parts, "other", json_real(other_seconds(run) / o->bench->repeats));
    json_t *j =
        json_pack("{s:i, s:o, s:o, s:f, s:f, s:f, s:f, s:o, s:o}", "threads", (int)run->threads,
                  "speed_over_first", bench_spread_json(&run->over_first), "tokens_per_second",
                  bench_spread_json(&run->speed), "flops", step_flops(r, run), "forward_flops",
                  run->forward, "backward_flops", run->backward, "adapter_flops", run->adapter,
                  "seconds_by_part", parts, "idle_share_by_part", idle);
    if (run->fma_flops <= 0.0) return j;
    json_object_set_new(j, "fma_flops", json_real(run->fma_flops));
    json_object_set_new(j, "fma_beside_flops", json_real(run->fma_beside));
    json_object_set_new(j, "share_of_fma_in_turns", bench_spread_json(&run->in_turns));
    json_object_set_new(j, "share_of_fma",
                        json_real(bench_share(step_flops(r, run), run->fma_flops)));
    return j;
}

omm_err bench_train_print_json(const bench_train_result *r, const bench_train_options *o) {
    json_t *runs = json_array();
    for (unsigned i = 0; i < r->run_count; i++)
        json_array_append_new(runs, json_run(r, &r->runs[i], o));
    json_t *report = json_pack(
        "{s:i, s:o, s:s, s:I, s:I, s:i, s:i, s:i, s:i, s:f, s:I, s:s, s:s, s:i, s:o}",
        "schema_version", 2, "model", omm_json_text(o->bench->model), "architecture",
        r->architecture, "parameters", (json_int_t)r->parameters, "adapter_parameters",
        (json_int_t)r->adapter_parameters, "seq", (int)o->seq, "rank", (int)o->rank, "layers",
        (int)r->layers, "checkpoint_layers", (int)r->checkpoint_layers, "flop_per_token",
        r->token_flops, "memory_peak_bytes", (json_int_t)r->memory_peak_bytes, "isa",
        omm_isa_name(r->isa), "activations", omm_activations_name(o->bench->activations), "repeats",
        (int)o->bench->repeats, "train", runs);
    return bench_json_print(report);
}

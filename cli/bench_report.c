/* bench_report.c - what `meshmind bench` prints. */
#include "bench.h"

#include <stdio.h>

/* ---- shares ---------------------------------------------------------------------------------- */

static double decode_bytes(const bench_result *r, const bench_run *run) {
    return run->decode.median * (double)r->token_bytes;
}

/* Of the file, by tokens that come one by one. */
static double file_bytes(const bench_result *r, const bench_run *run) {
    return run->decode.median * (double)r->streamed_bytes;
}

static double prefill_ops(const bench_result *r, const bench_run *run) {
    return run->prefill.median * 2.0 * (double)r->parameters;
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_prefill(const bench_result *r, const bench_run *run, const bench_options *o) {
    const bench_spread *s = &run->prefill;
    printf("  prefill %5u  %8.1f tokens/s  (%.1f .. %.1f)", o->prompt, s->median, s->min, s->max);
    if (run->fma_flops > 0.0)
        printf("  %6.0f GOPS: %.2f (%.2f .. %.2f) of the multiply-adds beside it, %.2f of the fma "
               "peak, %.2f of the int8 peak",
               prefill_ops(r, run) * 1e-9, run->prefill_in_turns.median, run->prefill_in_turns.min,
               run->prefill_in_turns.max, bench_share(prefill_ops(r, run), run->fma_flops),
               bench_share(prefill_ops(r, run), run->dot_ops));
    printf("\n");
}

static void print_decode(const bench_result *r, const bench_run *run, const bench_options *o) {
    const bench_spread *s = &run->decode;
    printf("  decode  %5u  %8.1f tokens/s  (%.1f .. %.1f)", o->generate, s->median, s->min, s->max);
    if (run->read_bytes > 0.0)
        printf(
            "  %6.1f GB/s: %.2f (%.2f .. %.2f) of the reads beside it, %.2f of all reads, %.2f of "
            "the best 64 MiB",
            decode_bytes(r, run) * 1e-9, run->in_turns.median, run->in_turns.min, run->in_turns.max,
            bench_share(decode_bytes(r, run), run->read_sustained),
            bench_share(decode_bytes(r, run), run->read_bytes));
    printf("\n");
    if (r->streamed_bytes > 0)
        printf("                 %.2f GB/s of the %s\n", file_bytes(r, run) * 1e-9,
               r->packed ? "copy read" : "file read and packed");
    if (run->threads > 1)
        printf("                 %.1f %% of the threads' time waiting, %.1f %% of the time one "
               "thread alone\n",
               run->waiting * 100.0, run->alone * 100.0);
}

static void print_parts(const bench_result *r, const bench_run *run) {
    double all = 0.0;
    for (unsigned i = 0; i < OMM_PROFILE_PARTS; i++) all += run->part_seconds[i];
    for (unsigned i = 0; i < OMM_PROFILE_PARTS && all > 0.0; i++) {
        const double s = run->part_seconds[i], bytes = (double)r->part_bytes[i];
        if (s == 0.0) continue;
        printf("    %-12s %9.1f us  %5.1f %%", omm_profile_part_name((omm_profile_part)i), s * 1e6,
               s / all * 100.0);
        if (bytes > 0.0) printf("  %8.1f MB  %6.1f GB/s", bytes * 1e-6, bytes / s * 1e-9);
        if (bytes > 0.0 && run->read_bytes > 0.0)
            printf(": %.2f of the sustained read", bench_share(bytes / s, run->read_sustained));
        printf("\n");
    }
}

void bench_print(const bench_result *r, const bench_options *o) {
    printf("%s: %s, %.3f G parameters, %.1f MB of weights per token, loaded%s in %.2f s\n",
           o->model, r->architecture, (double)r->parameters * 1e-9, (double)r->token_bytes * 1e-6,
           r->packed ? " from a packed copy" : "", r->load_seconds);
    printf("%s, activations %s, cache %s, median of %u (min .. max), peak memory %.0f MB\n",
           omm_isa_name(r->isa), omm_activations_name(o->activations),
           omm_kv_type_name(r->memory.plan.session.kv_type), o->repeats,
           (double)r->memory_peak_bytes * 1e-6);
    if (r->streamed_bytes > 0)
        printf("%u of %u layers streamed: %.1f MB of the %s in every pass\n",
               r->memory.plan.layers - r->memory.plan.resident, r->memory.plan.layers,
               (double)r->streamed_bytes * 1e-6, r->packed ? "copy" : "file");
    for (unsigned i = 0; i < r->run_count; i++) {
        const bench_run *run = &r->runs[i];
        printf("%u thread%s", run->threads, run->threads > 1 ? "s" : "");
        if (r->run_count > 1 && run->memory_peak_bytes > 0)
            printf("; peak memory %.0f MB", (double)run->memory_peak_bytes * 1e-6);
        if (run->read_bytes > 0.0)
            printf(
                "; peaks in this run: read %.1f GB/s (sustained %.1f), fma %.0f GFLOP/s, int8 dot "
                "%.0f GOPS",
                run->read_bytes * 1e-9, run->read_sustained * 1e-9, run->fma_flops * 1e-9,
                run->dot_ops * 1e-9);
        printf("\n");
        if (o->prompt) print_prefill(r, run, o);
        if (o->generate) print_decode(r, run, o);
        if (o->profile) print_parts(r, run);
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void add_prefill(json_t *to, const bench_result *r, const bench_run *run,
                        const bench_options *o) {
    json_t *p = json_pack("{s:i, s:o}", "tokens", (int)o->prompt, "tokens_per_second",
                          bench_spread_json(&run->prefill));
    if (run->fma_flops > 0.0) {
        json_object_set_new(p, "share_of_fma_in_turns", bench_spread_json(&run->prefill_in_turns));
        json_object_set_new(p, "share_of_fma",
                            json_real(bench_share(prefill_ops(r, run), run->fma_flops)));
        json_object_set_new(p, "share_of_dot",
                            json_real(bench_share(prefill_ops(r, run), run->dot_ops)));
    }
    json_object_set_new(to, "prefill", p);
}

static json_t *json_parts(const bench_result *r, const bench_run *run) {
    json_t *parts = json_object();
    for (unsigned i = 0; i < OMM_PROFILE_PARTS; i++)
        json_object_set_new(parts, omm_profile_part_name((omm_profile_part)i),
                            json_pack("{s:f, s:I}", "seconds_per_token", run->part_seconds[i],
                                      "weight_bytes", (json_int_t)r->part_bytes[i]));
    return parts;
}

static void add_decode(json_t *to, const bench_result *r, const bench_run *run,
                       const bench_options *o) {
    json_t *d = json_pack("{s:i, s:i, s:o, s:f, s:f, s:o}", "tokens", (int)o->generate,
                          "first_position", (int)o->prompt, "tokens_per_second",
                          bench_spread_json(&run->decode), "waiting_share", run->waiting,
                          "alone_share", run->alone, "parts", json_parts(r, run));
    if (r->streamed_bytes > 0)
        json_object_set_new(d, "file_bytes_per_second", json_real(file_bytes(r, run)));
    if (run->read_bytes > 0.0) {
        json_object_set_new(d, "share_of_read_in_turns", bench_spread_json(&run->in_turns));
        json_object_set_new(d, "share_of_read",
                            json_real(bench_share(decode_bytes(r, run), run->read_bytes)));
        json_object_set_new(d, "share_of_sustained_read",
                            json_real(bench_share(decode_bytes(r, run), run->read_sustained)));
    }
    json_object_set_new(to, "decode", d);
}

static json_t *json_run(const bench_result *r, const bench_run *run, const bench_options *o) {
    json_t *j = json_pack("{s:i, s:I}", "threads", (int)run->threads, "memory_peak_bytes",
                          (json_int_t)run->memory_peak_bytes);
    if (run->read_bytes > 0.0)
        json_object_set_new(j, "peaks",
                            json_pack("{s:f, s:f, s:f, s:f}", "read_bytes_per_second",
                                      run->read_bytes, "read_sustained_bytes_per_second",
                                      run->read_sustained, "fma_flops", run->fma_flops, "dot_ops",
                                      run->dot_ops));
    if (o->prompt) add_prefill(j, r, run, o);
    if (o->generate) add_decode(j, r, run, o);
    return j;
}

omm_err bench_print_json(const bench_result *r, const bench_options *o) {
    json_t *runs = json_array();
    for (unsigned i = 0; i < r->run_count; i++)
        json_array_append_new(runs, json_run(r, &r->runs[i], o));
    json_t *memory = cli_memory_json(&r->memory);
    json_object_set_new(memory, "peak_bytes", json_integer((json_int_t)r->memory_peak_bytes));
    json_t *report = json_pack(
        "{s:i, s:o, s:s, s:I, s:I, s:I, s:I, s:f, s:b, s:s, s:s, s:s, s:i, s:o, s:o}",
        "schema_version", 1, "model", omm_json_text(o->model), "architecture", r->architecture,
        "parameters", (json_int_t)r->parameters, "bytes_per_token", (json_int_t)r->token_bytes,
        "streamed_bytes_per_pass", (json_int_t)r->streamed_bytes, "memory_peak_bytes",
        (json_int_t)r->memory_peak_bytes, "load_seconds", r->load_seconds, "packed", r->packed,
        "isa", omm_isa_name(r->isa), "activations", omm_activations_name(o->activations), "kv",
        omm_kv_type_name(r->memory.plan.session.kv_type), "repeats", (int)o->repeats, "runs", runs,
        "memory", memory);
    return bench_json_print(report);
}

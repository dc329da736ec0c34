/* bench.c - see bench.h. */
#include "bench.h"

#include "loaded.h"
#include "options.h"
#include "threads.h"

#include "omm/clock.h"
#include "omm/gguf.h"
#include "omm/mem.h"
#include "omm/memory.h"
#include "omm/peaks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WATCHED_TOKENS 16u /* with the pool's clock running */
#define ID_STEP 7919u      /* ids i * ID_STEP: all over the vocabulary */
#define BATCH 512u
#define TURN_BYTES 1e9 /* of weights in a turn of decoding: 20 to 50 ms */

typedef struct bench {
    const bench_options *o;
    omm_gguf gguf; /* open while the model is streamed */
    omm_packed packed;
    omm_model model;
    bench_processors processors; /* of one run */
    omm_session *session;
    uint32_t *ids; /* [prompt + generate]: the session's positions */
    float *logits;
    double *prefill, *prefill_in_turns, *decode, *waiting, *alone; /* [repeats] each, one block */
    double *in_turns; /* [turn_count], room for repeats * generate */
    uint32_t turn_count;
    uint64_t token_bytes, parameters;
    uint64_t part_ns[OMM_PROFILE_PARTS], watched; /* of all repeats; tokens */
} bench;

/* ---- the model ------------------------------------------------------------------------------- */

static omm_session_options session_options(const bench_options *o) {
    omm_session_options options = omm_session_options_default();
    options.activations = o->activations;
    options.kv_type = o->kv_type;
    options.batch_max = BATCH;
    options.positions_max = o->prompt + o->generate;
    return options;
}

static void count_matrix(bench_result *r, const omm_matrix *m, omm_profile_part part) {
    r->parameters += (uint64_t)m->rows * m->cols;
    r->token_bytes += omm_matrix_bytes(m);
    r->part_bytes[part] += omm_matrix_bytes(m);
}

static omm_profile_part part_of(omm_lora_target target) {
    switch (target) {
    case OMM_LORA_O: return OMM_PROFILE_OUT;
    case OMM_LORA_GATE:
    case OMM_LORA_UP: return OMM_PROFILE_GATE_UP;
    case OMM_LORA_DOWN: return OMM_PROFILE_DOWN;
    default: return OMM_PROFILE_QKV;
    }
}

/* The longest context is what is measured, so only the cache's type can be lowered. */
static omm_err plan_memory(bench_result *r, const bench *b) {
    omm_plan_options o = {.session = session_options(b->o),
                          .threads = 1,
                          .logit_rows = 1,
                          .stream = b->o->stream ? OMM_PLAN_STREAM_FIRST : OMM_PLAN_STREAM_LAST};
    for (unsigned i = 0; i < b->o->thread_counts; i++)
        if (b->o->threads[i] > o.threads) o.threads = b->o->threads[i];
    if (b->o->thread_counts == 0) o.threads = omm_threads_default();
    o.positions_min = o.session.positions_max;
    const cli_memory_limit limit = {.megabytes = b->o->max_memory_mb};
    return cli_memory_plan(&r->memory, &b->gguf, NULL, 0, &o, limit);
}

/* What a token passes through; of streamed layers also what of the file that takes. */
static void count_model(bench_result *r, const omm_model *model) {
    count_matrix(r, model->output, OMM_PROFILE_HEAD);
    for (uint32_t i = 0; i < model->dims.layers; i++)
        for (unsigned t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
            count_matrix(r, &model->layers[i].weights[t], part_of((omm_lora_target)t));
            if (i >= model->resident) r->streamed_bytes += model->layers[i].rows[t].size;
        }
}

/* All threads make it; returns how long that and looking for it took. */
static uint64_t open_packed(bench *b) {
    const uint64_t start = omm_measure_ns();
    omm_pool *pool = NULL;
    if (b->o->packed && omm_pool_open(&pool, omm_threads_default()) != OMM_OK) pool = NULL;
    cli_packed_open(&b->packed, b->o->packed, &b->gguf, b->o->model, pool);
    omm_pool_close(pool);
    return omm_measure_ns() - start;
}

static omm_err load(bench_result *r, bench *b) {
    uint64_t start = omm_measure_ns();
    OMM_TRY(cli_of_file(omm_gguf_open(&b->gguf, b->o->model), "-m", b->o->model));
    omm_err err =
        loaded_check_positions(&b->gguf, b->o->prompt + b->o->generate, "-p and -n, together");
    if (err == OMM_OK) err = plan_memory(r, b);
    if (err == OMM_OK) {
        start += open_packed(b);
        r->packed = b->packed.map.view.size > 0;
        err = bench_load(&b->model, r->architecture, &b->gguf, &b->packed, r->memory.plan.resident);
    }
    OMM_TRY(cli_of_file(err, "-m", b->o->model));
    if (!b->model.gguf) omm_gguf_close(&b->gguf);
    r->load_seconds = (double)(omm_measure_ns() - start) * 1e-9;
    count_model(r, &b->model);
    return OMM_OK;
}

static omm_err allocate(bench *b) {
    const size_t ids = (size_t)b->o->prompt + b->o->generate;
    b->ids = (uint32_t *)omm_alloc(ids, sizeof *b->ids);
    b->logits = (float *)omm_alloc(b->model.dims.vocab, sizeof *b->logits);
    b->prefill =
        (double *)omm_alloc((5 + (size_t)b->o->generate) * b->o->repeats, sizeof *b->prefill);
    if (!b->ids || !b->logits || !b->prefill)
        return omm_raise(OMM_ERR_NOMEM, "no memory to measure %u repeats", b->o->repeats);
    b->prefill_in_turns = b->prefill + b->o->repeats;
    b->decode = b->prefill_in_turns + b->o->repeats;
    b->waiting = b->decode + b->o->repeats;
    b->alone = b->waiting + b->o->repeats;
    b->in_turns = b->alone + b->o->repeats;
    for (size_t i = 0; i < ids; i++) b->ids[i] = (uint32_t)(i * ID_STEP % b->model.dims.vocab);
    return OMM_OK;
}

/* ---- one repeat ------------------------------------------------------------------------------ */

static omm_err prefill(double *rate, bench *b, uint32_t count) {
    omm_session_truncate(b->session, 0);
    if (count == 0) return OMM_OK;
    const uint64_t start = omm_measure_ns();
    OMM_TRY(omm_session_append(b->session, b->ids, count, b->logits, false));
    *rate = count * 1e9 / (double)(omm_measure_ns() - start);
    return OMM_OK;
}

/* With multiply-adds before and after it, as decode has reads. */
static omm_err prefill_in_turn(bench *b, uint32_t repeat) {
    const bool turns = b->o->peak_seconds > 0.0 && b->o->prompt > 0;
    const double seconds = b->o->peak_seconds / b->o->repeats;
    const double before = turns ? omm_peaks_fma(&b->processors.peaks, seconds) : 0.0;
    OMM_TRY(prefill(&b->prefill[repeat], b, b->o->prompt));
    if (!turns) return OMM_OK;
    const double ops = b->prefill[repeat] * 2.0 * (double)b->parameters;
    const double after = omm_peaks_fma(&b->processors.peaks, seconds);
    b->prefill_in_turns[repeat] = ops * 2.0 / (before + after);
    return OMM_OK;
}

/* One by one, behind what the session holds.  Returns nanoseconds. */
static omm_err decode(uint64_t *ns, bench *b, uint32_t count) {
    const uint64_t start = omm_measure_ns();
    for (uint32_t i = 0; i < count; i++)
        OMM_TRY(omm_session_append(b->session, b->ids + omm_session_position(b->session), 1,
                                   b->logits, false));
    *ns = omm_measure_ns() - start;
    return OMM_OK;
}

static double read_turn(bench *b, uint32_t tokens) {
    if (b->o->peak_seconds <= 0.0) return 0.0;
    return omm_peaks_read(&b->processors.peaks, (double)tokens * (double)b->token_bytes);
}

/* Turns of decoding with as much reading between them: each turn's speed is compared with the
 * reads before and after it, because the bandwidth of a shared machine changes from second to second. */
static omm_err decode_in_turns(double *rate, bench *b) {
    const uint32_t all = b->o->generate;
    const double wanted = ceil(TURN_BYTES / (double)b->token_bytes);
    const uint32_t step = b->o->peak_seconds > 0.0 && wanted < all ? (uint32_t)wanted : all;
    uint64_t total = 0, ns = 0;
    double before = read_turn(b, step);
    for (uint32_t done = 0, count = 0; done < all; done += count) {
        count = all - done < step ? all - done : step;
        OMM_TRY(decode(&ns, b, count));
        const double after = read_turn(b, step);
        const double speed = (double)count * (double)b->token_bytes * 1e9 / (double)ns;
        if (after > 0.0) b->in_turns[b->turn_count++] = speed * 2.0 / (before + after);
        before = after;
        total += ns;
    }
    *rate = all * 1e9 / (double)total;
    return OMM_OK;
}

/* The last tokens once more: behind them the model may have no position left. */
static omm_err watch(bench *b, uint32_t repeat) {
    uint64_t ns = 0;
    const uint32_t tokens = b->o->generate < WATCHED_TOKENS ? b->o->generate : WATCHED_TOKENS;
    const uint32_t from = omm_session_position(b->session) - tokens;
    OMM_ASSERT(omm_session_truncate(b->session, from) == from); /* windows keep more than that */
    const double threads = omm_pool_threads(b->processors.pool);
    omm_group *group = omm_session_group(b->session);
    omm_profile profile;
    omm_pool_measure(b->processors.pool, true);
    omm_profile_start(&profile);
    omm_group_set_profile(group, &profile);
    omm_err err = decode(&ns, b, tokens);
    omm_group_set_profile(group, NULL);
    const omm_pool_times times = omm_pool_measured(b->processors.pool);
    omm_pool_measure(b->processors.pool, false);
    OMM_TRY(err);
    for (unsigned i = 0; i < OMM_PROFILE_PARTS; i++) b->part_ns[i] += profile.ns[i];
    b->watched += tokens;
    b->waiting[repeat] =
        ((double)times.run_ns * threads - (double)times.busy_ns) / ((double)ns * threads);
    b->alone[repeat] = threads > 1 ? 1.0 - (double)times.run_ns / (double)ns : 0.0;
    return OMM_OK;
}

static omm_err repeat(bench *b, uint32_t i) {
    OMM_TRY(prefill_in_turn(b, i));
    if (b->o->generate > 0) {
        OMM_TRY(decode_in_turns(&b->decode[i], b));
        OMM_TRY(watch(b, i));
    }
    if (b->o->peak_seconds > 0.0)
        omm_peaks_update(&b->processors.peaks, b->o->peak_seconds / b->o->repeats);
    return OMM_OK;
}

/* ---- one number of threads ------------------------------------------------------------------- */

static omm_err open_run(bench *b, unsigned threads, const bench_result *r) {
    OMM_TRY(bench_processors_open(&b->processors, threads, r->isa));
    return omm_session_open(&b->session, &b->processors.c, &b->model, NULL,
                            &r->memory.plan.session);
}

static void close_run(bench *b) {
    omm_session_close(b->session);
    bench_processors_close(&b->processors);
    b->session = NULL;
}

/* Everything once, up to the last position, so that the run takes no more memory later. */
static omm_err warm_up(bench *b) {
    double unused = 0.0;
    uint64_t ns = 0;
    OMM_TRY(prefill(&unused, b, b->o->prompt));
    OMM_TRY(decode(&ns, b, b->o->generate ? 1 : 0));
    const uint32_t from = omm_session_position(b->session), all = b->o->prompt + b->o->generate;
    if (from < all)
        OMM_TRY(omm_session_append(b->session, b->ids + from, all - from, b->logits, false));
    return OMM_OK;
}

/* The buffer comes beside the model: a machine that has no room for it would end the program. */
static omm_err open_peaks(bench *b) {
    const size_t bytes = omm_peaks_buffer_bytes();
    omm_memory machine;
    if (b->o->peak_seconds <= 0.0) return OMM_OK;
    cli_memory_machine(&machine);
    if (machine.available > 0 && machine.available < bytes)
        return omm_raise(OMM_ERR_TOO_BIG,
                         "the peak of reading takes a buffer of %zu MB, and %.0f MB are available: "
                         "--peak-seconds 0 measures without peaks",
                         bytes / 1000000, (double)machine.available * 1e-6);
    return omm_peaks_open(&b->processors.peaks, &b->processors.c, bytes);
}

static omm_err measure_run(bench_result *r, bench_run *run, bench *b) {
    const uint32_t n = b->o->repeats;
    memset(b->part_ns, 0, sizeof b->part_ns);
    b->watched = 0;
    b->turn_count = 0;
    b->token_bytes = r->token_bytes;
    b->parameters = r->parameters;
    const uint64_t before = run == r->runs ? 0 : omm_memory_peak(); /* the first loaded the model */
    OMM_TRY(open_run(b, run->threads, r));
    OMM_TRY(warm_up(b));
    run->memory_peak_bytes = bench_memory_peak(before);
    if (run->memory_peak_bytes > r->memory_peak_bytes)
        r->memory_peak_bytes = run->memory_peak_bytes;
    OMM_TRY(open_peaks(b));
    for (uint32_t i = 0; i < n; i++) OMM_TRY(repeat(b, i));
    run->prefill = bench_spread_of(b->prefill, n);
    run->prefill_in_turns = bench_spread_of(b->prefill_in_turns, n);
    run->decode = bench_spread_of(b->decode, n);
    for (unsigned i = 0; i < OMM_PROFILE_PARTS && b->watched; i++)
        run->part_seconds[i] = (double)b->part_ns[i] * 1e-9 / (double)b->watched;
    run->waiting = bench_spread_of(b->waiting, n).median;
    run->alone = bench_spread_of(b->alone, n).median;
    if (b->turn_count > 0) run->in_turns = bench_spread_of(b->in_turns, b->turn_count);
    run->read_bytes = b->processors.peaks.read_bytes;
    run->read_sustained = omm_peaks_read_sustained(&b->processors.peaks);
    run->fma_flops = b->processors.peaks.fma_flops;
    run->dot_ops = b->processors.peaks.dot_ops;
    return OMM_OK;
}

static omm_err choose_threads(bench_result *r, const bench *b) {
    r->run_count = b->o->thread_counts;
    for (unsigned i = 0; i < r->run_count; i++) r->runs[i].threads = b->o->threads[i];
    if (r->run_count > 0) return OMM_OK;
    r->run_count = 1;
    return cli_threads_measure(&r->runs[0].threads, &b->model, r->isa, 1, b->o->activations);
}

static omm_err measure_all(bench_result *r, bench *b) {
    OMM_TRY(omm_isa_choose(&r->isa, getenv("OMM_ISA")));
    OMM_TRY(load(r, b));
    OMM_TRY(allocate(b));
    OMM_TRY(choose_threads(r, b));
    for (unsigned i = 0; i < r->run_count; i++) {
        omm_err err = measure_run(r, &r->runs[i], b);
        close_run(b);
        OMM_TRY(err);
    }
    return OMM_OK;
}

omm_err bench_measure(bench_result *out, const bench_options *options) {
    bench b = {.o = options};
    *out = (bench_result){0};
    omm_err err = measure_all(out, &b);
    omm_free(b.ids);
    omm_free(b.logits);
    omm_free(b.prefill);
    omm_model_fini(&b.model);
    omm_packed_close(&b.packed);
    omm_gguf_close(&b.gguf);
    return err;
}

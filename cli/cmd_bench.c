/* cmd_bench.c - `meshmind bench`: speed of a model, and its share of what the machine allows. */
#include "bench.h"
#include "bench_train.h"
#include "commands.h"
#include "options.h"

#include "omm/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT_DEFAULT 256u
#define GENERATE_DEFAULT 64u
#define SEQ_DEFAULT 512u
#define RANK_DEFAULT 16u

typedef struct bench_cli {
    bench_options bench;
    const char *activations, *kv, *threads; /* NULL: not given */
    float peak_seconds;
    bench_train_options train;
    bool is_train, json;
} bench_cli;

static omm_err parse_threads(bench_options *o, const char *list) {
    const char *p = list;
    if (!list) {
        o->threads[0] = omm_threads_default();
        o->thread_counts = 1;
        return OMM_OK;
    }
    if (strcmp(list, "auto") == 0) return OMM_OK;
    for (;;) {
        char *end = NULL;
        errno = 0;
        unsigned long n = *p >= '0' && *p <= '9' ? strtoul(p, &end, 10) : 0;
        bool ok = !errno && n >= 1 && n <= OMM_POOL_THREADS_MAX && (*end == ',' || *end == 0);
        if (!ok || o->thread_counts == BENCH_THREAD_COUNTS_MAX)
            return omm_raise(
                OMM_ERR_USAGE,
                "--threads '%s': expected auto, or at most %u numbers of 1 to %u with commas "
                "between",
                list, BENCH_THREAD_COUNTS_MAX, OMM_POOL_THREADS_MAX);
        o->threads[o->thread_counts++] = (unsigned)n;
        if (*end == 0) return OMM_OK;
        p = end + 1;
    }
}

static omm_err check(bench_cli *o) {
    bench_options *b = &o->bench;
    if (!b->model) return omm_raise(OMM_ERR_USAGE, "which model? give -m FILE");
    OMM_TRY(omm_activations_parse(&b->activations,
                                  o->activations ? o->activations : (o->is_train ? "f32" : "q8")));
    OMM_TRY(omm_kv_type_parse(&b->kv_type, o->kv ? o->kv : "f16"));
    OMM_TRY(parse_threads(b, o->threads));
    if (b->repeats < 1 || b->repeats > BENCH_REPEATS_MAX)
        return omm_raise(OMM_ERR_USAGE, "--repeat %u: accepted are 1 to %u", b->repeats,
                         BENCH_REPEATS_MAX);
    if (b->prompt == 0 && b->generate == 0)
        return omm_raise(OMM_ERR_USAGE, "-p 0 and -n 0: nothing to measure");
    if (b->prompt > OMM_MODEL_CONTEXT_MAX || b->generate > OMM_MODEL_CONTEXT_MAX)
        return omm_raise(OMM_ERR_USAGE, "-p %u, -n %u: at most %u", b->prompt, b->generate,
                         OMM_MODEL_CONTEXT_MAX);
    if (!(o->peak_seconds >= 0.0f && o->peak_seconds <= 60.0f))
        return omm_raise(OMM_ERR_USAGE, "--peak-seconds: accepted are 0 to 60");
    b->peak_seconds = (double)o->peak_seconds;
    return OMM_OK;
}

/* An option that would do nothing is a mistake of whoever typed it. */
static omm_err check_learning(const bench_cli *o) {
    const bench_options *b = &o->bench;
    const char *option = b->prompt != PROMPT_DEFAULT       ? "--prompt"
                         : b->generate != GENERATE_DEFAULT ? "--generate"
                         : o->kv                           ? "--kv"
                         : b->max_memory_mb                ? "--max-memory-mb"
                         : b->profile                      ? "--profile"
                                                           : NULL;
    if (option) return omm_raise(OMM_ERR_USAGE, "%s is not of bench --train", option);
    if (b->stream)
        return omm_raise(OMM_ERR_USAGE, "--train --stream: learning needs the model in memory");
    if (b->packed)
        return omm_raise(OMM_ERR_USAGE, "--train --packed: a step is measured as `train` takes it");
    return OMM_OK;
}

static omm_err check_train(bench_cli *o) {
    const bench_train_options *t = &o->train;
    o->train.bench = &o->bench;
    OMM_TRY(check_learning(o));
    if (o->bench.thread_counts == 0)
        return omm_raise(OMM_ERR_USAGE, "--train --threads auto: give numbers instead");
    if (t->seq < 8 || t->seq > BENCH_SEQ_MAX)
        return omm_raise(OMM_ERR_USAGE, "--seq %u: accepted are 8 to %u", t->seq, BENCH_SEQ_MAX);
    if (t->rank < 1 || t->rank > 256)
        return omm_raise(OMM_ERR_USAGE, "--rank %u: accepted are 1 to 256", t->rank);
    return OMM_OK;
}

static omm_err check_decoding(const bench_cli *o) {
    const bench_train_options *t = &o->train;
    const char *option = t->seq != SEQ_DEFAULT     ? "--seq"
                         : t->rank != RANK_DEFAULT ? "--rank"
                         : t->checkpoint_layers    ? "--checkpoint-layers"
                                                   : NULL;
    if (option) return omm_raise(OMM_ERR_USAGE, "%s is of bench --train", option);
    return OMM_OK;
}

static omm_err run_train(bench_cli *o) {
    bench_train_result result;
    OMM_TRY(check_train(o));
    OMM_TRY(bench_train_measure(&result, &o->train));
    if (o->json) return bench_train_print_json(&result, &o->train);
    bench_train_print(&result, &o->train);
    return OMM_OK;
}

static omm_err run(bench_cli *o) {
    bench_result result;
    OMM_TRY(check(o));
    if (o->is_train) return run_train(o);
    OMM_TRY(check_decoding(o));
    OMM_TRY(bench_measure(&result, &o->bench));
    if (o->json) return bench_print_json(&result, &o->bench);
    bench_print(&result, &o->bench);
    return OMM_OK;
}

int cmd_bench(int argc, char **argv) {
    bench_cli o = {.bench = {.prompt = PROMPT_DEFAULT, .generate = GENERATE_DEFAULT, .repeats = 5},
                   .train = {.seq = SEQ_DEFAULT, .rank = RANK_DEFAULT},
                   .peak_seconds = 0.6f};
    const cli_option options[] = {
        {"model", 'm', CLI_STR, &o.bench.model, "FILE", "GGUF model"},
        {"prompt", 'p', CLI_U32, &o.bench.prompt, "N", "tokens of a prefill (256); 0: none"},
        {"generate", 'n', CLI_U32, &o.bench.generate, "N", "tokens decoded after it (64); 0: none"},
        {"threads", 't', CLI_STR, &o.threads, "N,N|auto", "numbers of threads (one per core)"},
        {"activations", 0, CLI_STR, &o.activations, "f32|q8",
         "arithmetic (q8; with --train f32, and q8 is of forward alone)"},
        {"kv", 0, CLI_STR, &o.kv, "f32|f16|q8_0", "format of the key/value cache (f16)"},
        CLI_MEMORY_OPTION(&o.bench.max_memory_mb),
        CLI_STREAM_OPTION(&o.bench.stream),
        CLI_PACKED_OPTION(&o.bench.packed),
        {"repeat", 'r', CLI_U32, &o.bench.repeats, "N", "measurements (5)"},
        {"peak-seconds", 0, CLI_F32, &o.peak_seconds, "X",
         "for each peak (0.6); 0: no peaks, nor their buffer of 0.5 to 2 GiB, which no limit "
         "counts"},
        {"train", 0, CLI_FLAG, &o.is_train, NULL, "measure LoRA steps instead"},
        {"seq", 0, CLI_U32, &o.train.seq, "N", "--train: tokens of a step, one sequence (512)"},
        {"rank", 0, CLI_U32, &o.train.rank, "N", "--train: rank, on all seven targets (16)"},
        {"checkpoint-layers", 0, CLI_U32, &o.train.checkpoint_layers, "N",
         "--train: layers that are computed again in backward (0): 6 FLOP a parameter of these, "
         "not 4"},
        {"profile", 0, CLI_FLAG, &o.bench.profile, NULL, "decode time by part"},
        {"json", 0, CLI_FLAG, &o.json, NULL, "one JSON object"},
        {0}};
    int count = 0;
    char **args = NULL;
    int code = cli_parse(&count, &args, argc, argv, options, "bench -m MODEL [options]",
                         "Measure prefill and decode, and the machine's peaks between them: read\n"
                         "bandwidth, f32 multiply-adds and int8 dots with as many threads.\n"
                         "With --train: LoRA steps, and the f32 peak.",
                         0, 0);
    if (code >= 0) return code;
    omm_err err = run(&o);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail(argv[0], err);
}

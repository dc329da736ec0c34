/* cmd_synth.c - `meshmind synth`: a model of random weights in the shape of a published one. */
#include "commands.h"
#include "options.h"
#include "places.h"

#include "omm/synth.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct synth_cli {
    omm_synth_options synth;
    const char *path;
    uint32_t threads;
    bool json;
} synth_cli;

static void report(const synth_cli *o, const omm_synth_report *r) {
    const char *type = o->synth.type ? o->synth.type : "Q8_0";
    if (o->json)
        printf("{\"bytes\":%" PRIu64 ",\"fallbacks\":%u,\"parameters\":%" PRIu64
               ",\"schema_version\":1,\"seed\":%" PRIu64
               ",\"shape\":\"%s\",\"tensors\":%u,\"type\":\"%s\"}\n",
               r->bytes, r->fallbacks, r->parameters, o->synth.seed, o->synth.shape, r->tensors,
               type);
    else
        printf("%s: %" PRIu64 " parameters in %u tensors, %" PRIu64 " bytes, %s, seed %" PRIu64
               "\n",
               o->path, r->parameters, r->tensors, r->bytes, type, o->synth.seed);
    if (r->fallbacks && !o->json)
        printf("%u matrices have columns that do not divide into blocks of that type: Q8_0 or F16 "
               "there\n",
               r->fallbacks);
}

static omm_err run(const synth_cli *o) {
    place_made made;
    omm_pool *pool = NULL;
    omm_synth_report r;
    const unsigned threads = o->threads ? o->threads : omm_threads_default();
    if (threads > OMM_POOL_THREADS_MAX)
        return omm_raise(OMM_ERR_USAGE, "--threads %u: at most %u", threads, OMM_POOL_THREADS_MAX);
    omm_err err = place_make_output(&made, o->path, "OUT");
    if (err == OMM_OK) err = omm_pool_open(&pool, threads);
    if (err == OMM_OK) err = omm_synth_write(o->path, &o->synth, pool, &r);
    omm_pool_close(pool);
    if (err != OMM_OK) place_unmake(&made);
    if (err == OMM_OK) report(o, &r);
    return err;
}

int cmd_synth(int argc, char **argv) {
    synth_cli o = {.synth = {.seed = 1}};
    char shapes[512], types[512], summary[1280];
    const cli_option options[] = {
        {"type", 0, CLI_STR, &o.synth.type, "TYPE", "of the matrices (Q8_0)"},
        {"output", 0, CLI_STR, &o.synth.output, "TYPE", "of output and embedding, if another"},
        {"seed", 0, CLI_U64, &o.synth.seed, "N", "seed of the weights (1)"},
        {"layers", 0, CLI_COUNT, &o.synth.layers, "N", "layers, if not as many as the shape has"},
        {"threads", 't', CLI_COUNT, &o.threads, "N", "threads; one per core by default"},
        {"json", 0, CLI_FLAG, &o.json, NULL, "one JSON object at the end"},
        {0}};
    int count = 0;
    char **args = NULL;
    omm_synth_shapes(shapes, sizeof shapes);
    omm_synth_types(types, sizeof types);
    snprintf(summary, sizeof summary,
             "Write a model of random weights, for benchmarks: equal seeds give equal bytes.\n"
             "Shapes: %s.\nTypes: %s.",
             shapes, types);
    int code =
        cli_parse(&count, &args, argc, argv, options, "synth SHAPE OUT [options]", summary, 2, 2);
    if (code >= 0) return code;
    o.synth.shape = args[0];
    o.path = args[1];
    omm_err err = run(&o);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail(argv[0], err);
}

/* cmd_replay.c - `meshmind replay`: train one submission of a bundle again, compare bytes. */
#include "commands.h"
#include "options.h"
#include "pins.h"
#include "progress.h"

#include "omm/clock.h"
#include "omm/json.h"
#include "omm/replay.h"
#include "omm/training.h"
#include "omm/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void on_progress(void *ud, uint32_t round, uint32_t step, uint32_t steps) {
    char text[64];
    snprintf(text, sizeof text, "training round %u again", round);
    cli_progress_show(ud, omm_measure_ns() / 1000000u, (double)step / (double)steps, text);
}

/* What was compared: of a step its digest is shorter. */
static void hex_of(char out[OMM_DIGEST_HEX_SIZE], const omm_digest *digest,
                   const omm_replay_options *o) {
    omm_digest_hex(out, digest);
    if (o->steps_max) out[(size_t)2 * OMM_STEP_DIGEST_BYTES] = '\0';
}

/* A bundle that somebody has changed can be repeated as well as another. */
static void print_unverified(void) {
    printf("  not verified: whether the bundle is what was signed; `meshmind verify` says\n");
}

static void print_people(const omm_replay_result *r, const omm_replay_options *o) {
    char expected[OMM_DIGEST_HEX_SIZE];
    char repeated[OMM_DIGEST_HEX_SIZE];
    hex_of(expected, &r->expected, o);
    hex_of(repeated, &r->repeated, o);
    printf("%s: node %s, round %u", r->equal ? "identical" : "DIFFERENT", o->node, o->round);
    const unsigned threads = omm_pool_threads(o->compute->pool);
    if (o->steps_max)
        printf(", its first %u step%s and no more", r->steps_compared,
               r->steps_compared == 1 ? "" : "s");
    printf(" (%u round%s trained on %s, %u thread%s)\n", r->rounds_trained,
           r->rounds_trained == 1 ? "" : "s", omm_isa_name(o->compute->isa), threads,
           threads == 1 ? "" : "s");
    printf("  signed    %s\n  repeated  %s\n", expected, repeated);
    print_unverified();
    if (r->equal) return;
    printf("  first difference: round %u", r->round);
    if (r->step) printf(", step %u", r->step);
    if (r->tensor[0])
        printf(", tensor %s [%u][%u]: signed %.9g, repeated %.9g", r->tensor, r->row, r->column,
               (double)r->value_expected, (double)r->value_repeated);
    if (r->claim[0])
        printf(", %s: signed %s, repeated %s", r->claim, r->claim_signed, r->claim_repeated);
    printf("\n");
}

/* Takes it; NULL: there was no memory for it. */
static omm_err print_root(json_t *root) {
    omm_buf text;
    omm_buf_init(&text, 1u << 16);
    omm_err err = root ? omm_json_write(&text, root) : omm_raise(OMM_ERR_NOMEM, "report");
    if (err == OMM_OK) printf("%.*s", (int)text.size, (const char *)text.data);
    omm_buf_fini(&text);
    json_decref(root);
    return err;
}

static omm_err print_json(const omm_replay_result *r, const omm_replay_options *o) {
    char expected[OMM_DIGEST_HEX_SIZE];
    char repeated[OMM_DIGEST_HEX_SIZE];
    hex_of(expected, &r->expected, o);
    hex_of(repeated, &r->repeated, o);
    json_t *root = json_pack(
        "{s:i,s:b,s:b,s:s,s:i,s:i,s:i,s:s,s:s,s:i,s:i,s:s,s:i,s:i,s:f,s:f,s:s,s:s,s:s}",
        "schema_version", 1, "verified", 0, "equal", (int)r->equal, "node", o->node, "round",
        (int)o->round, "rounds_trained", (int)r->rounds_trained, "steps_compared",
        (int)r->steps_compared, "expected", expected, "repeated", repeated, "difference_round",
        (int)r->round, "difference_step", (int)r->step, "tensor", r->tensor, "row", (int)r->row,
        "column", (int)r->column, "value_expected", (double)r->value_expected, "value_repeated",
        (double)r->value_repeated, "claim", r->claim, "claim_signed", r->claim_signed,
        "claim_repeated", r->claim_repeated);
    return print_root(root);
}

static void on_judging(void *ud, const char *path) {
    (void)ud;
    fprintf(stderr, "replay: judging %s again\n", path);
}

static void print_evaluation(const omm_reevaluate_result *r) {
    char plain[sizeof r->said];
    printf("%s: %zu rows of eval/before.jsonl and eval/after.jsonl, %zu lines of "
           "eval/rounds.jsonl\n",
           r->equal ? "identical" : "DIFFERENT", r->rows, r->states);
    if (r->states_left)
        printf("  not repeated: %zu candidates that were held back, of which no adapter is kept\n",
               r->states_left);
    if (r->has_control)
        printf("  not repeated: eval/control.jsonl, which simulating the scenario again gives\n");
    print_unverified();
    if (r->equal) return;
    printf("  first difference: %s", r->path);
    if (r->line) printf(", line %zu", r->line);
    omm_utf8_clean(plain, sizeof plain, r->said);
    printf(", %s: in the bundle %s", r->what, plain);
    omm_utf8_clean(plain, sizeof plain, r->repeated);
    printf(", repeated %s\n", plain);
}

static omm_err print_evaluation_json(const omm_reevaluate_result *r) {
    char said[sizeof r->said], repeated[sizeof r->repeated]; /* cut inside a character, perhaps */
    snprintf(said, sizeof said, "%s", r->said);
    snprintf(repeated, sizeof repeated, "%s", r->repeated);
    omm_utf8_mend(said);
    omm_utf8_mend(repeated);
    json_t *root =
        json_pack("{s:i,s:b,s:b,s:I,s:I,s:I,s:b,s:s,s:I,s:s,s:s,s:s}", "schema_version", 1,
                  "verified", 0, "equal", (int)r->equal, "rows", (json_int_t)r->rows, "states",
                  (json_int_t)r->states, "states_not_repeated", (json_int_t)r->states_left,
                  "control_not_repeated", (int)r->has_control, "path", r->path, "line",
                  (json_int_t)r->line, "what", r->what, "signed", said, "repeated", repeated);
    return print_root(root);
}

static omm_err evaluate(bool *equal, const omm_replay_options *options, bool json) {
    omm_reevaluate_result result;
    OMM_TRY(omm_reevaluate(&result, options));
    *equal = result.equal;
    if (json) return print_evaluation_json(&result);
    print_evaluation(&result);
    return OMM_OK;
}

static omm_err replay(bool *equal, const omm_replay_options *options, bool json) {
    omm_replay_result result;
    const omm_err err = omm_replay(&result, options);
    if (options->ud) cli_progress_end(options->ud);
    OMM_TRY(err);
    *equal = result.equal;
    if (json) return print_json(&result, options);
    print_people(&result, options);
    return OMM_OK;
}

static int run(omm_replay_options options, unsigned threads, const char *isa_name, bool eval,
               bool json) {
    omm_isa isa = OMM_ISA_SCALAR;
    omm_pool *pool = NULL;
    omm_compute compute = {0};
    bool equal = false, is_bad = false;
    options.is_bad = &is_bad;
    omm_err err = cli_pins_check_bundle(options.bundle);
    if (err == OMM_OK) err = omm_isa_choose(&isa, isa_name ? isa_name : getenv("OMM_ISA"));
    if (err == OMM_OK) err = omm_pool_open(&pool, threads);
    if (err == OMM_OK) err = omm_compute_init(&compute, pool, isa);
    options.compute = &compute;
    if (err == OMM_OK)
        err = eval ? evaluate(&equal, &options, json) : replay(&equal, &options, json);
    if (compute.k) omm_compute_fini(&compute);
    omm_pool_close(pool);
    if (err != OMM_OK) {
        const int code = cli_fail("replay", err);
        return is_bad ? CLI_EXIT_FAILED : code;
    }
    return equal ? CLI_EXIT_PASS : CLI_EXIT_FAILED;
}

int cmd_replay(int argc, char **argv) {
    omm_replay_options options = {0};
    uint64_t round = UINT64_MAX; /* not given */
    uint32_t threads = omm_threads_default();
    const char *isa = NULL;
    bool json = false, eval = false;
    const cli_option table[] = {
        {"node", 'n', CLI_STR, &options.node, "NODE", "name of the node, or 8 digits of its id"},
        {"round", 'r', CLI_U64, &round, "R", "round, counted from 0"},
        {"data", 'd', CLI_STR, &options.base_dir, "DIR",
         "where the scenario's model and data paths start: the folder that its file is in (this "
         "one, or scenarios/)"},
        {"node-data", 0, CLI_STR, &options.own_data, "FILE",
         "of a service's bundle: what the node trained on, as its node.yaml says; its owner has "
         "it"},
        {"client", 0, CLI_STR, &options.client, "NAME",
         "with --node-data: this client's lines alone, as node.yaml says"},
        {"model", 'm', CLI_STR, &options.model, "FILE",
         "the base model, where it is not at the scenario's path"},
        {"eval", 0, CLI_FLAG, &eval, NULL,
         "judge the held-out items again instead, with the first adapter and the last"},
        {"steps", 0, CLI_COUNT, &options.steps_max, "N",
         "compare only the first N steps, by their digests, and no payload (all, and the payload)"},
        {"threads", 't', CLI_U32, &threads, "N", "threads (one per core)"},
        {"isa", 0, CLI_STR, &isa, "ISA",
         "scalar, avx2, avx2_vnni, avx512, neon or neon_dotprod (OMM_ISA, else the best)"},
        {"json", 0, CLI_FLAG, &json, NULL, "one JSON object on stdout"},
        {0}};
    int count = 0;
    char **args = NULL;
    int code = cli_parse(
        &count, &args, argc, argv, table,
        "replay BUNDLE --node NODE --round R [options], replay BUNDLE --eval [options]",
        "Train one submission of a bundle again, or judge its held-out items again, and compare\n"
        "the bytes.  Exit 1 when they differ, or a file of the bundle is not what it must be.  "
        "That\n"
        "the bundle is what was signed is not asked here: verify it first.",
        1, 1);
    if (code >= 0) return code;
    if (eval && (options.node || round != UINT64_MAX || options.steps_max)) {
        fprintf(stderr, "meshmind replay: --eval is without --node, --round and --steps\n");
        return CLI_EXIT_USAGE;
    }
    if (options.client && !options.own_data) {
        fprintf(stderr, "meshmind replay: --client: together with --node-data\n");
        return CLI_EXIT_USAGE;
    }
    if (eval && options.own_data) {
        fprintf(stderr, "meshmind replay: --node-data is not of --eval\n");
        return CLI_EXIT_USAGE;
    }
    if (!eval && (!options.node || round == UINT64_MAX)) {
        fprintf(stderr, "meshmind replay: --node and --round are needed, or --eval (see --help)\n");
        return CLI_EXIT_USAGE;
    }
    if (eval) round = 0;
    if (round > UINT32_MAX) {
        fprintf(stderr,
                "meshmind replay: --round %" PRIu64 "; accepted: a round of the run, from 0\n",
                round);
        return CLI_EXIT_USAGE;
    }
    options.round = (uint32_t)round;
    if (threads < 1 || threads > OMM_POOL_THREADS_MAX) {
        fprintf(stderr, "meshmind replay: --threads %u; accepted: 1 to %u\n", threads,
                OMM_POOL_THREADS_MAX);
        return CLI_EXIT_USAGE;
    }
    options.bundle = args[0];
    cli_progress bar;
    cli_progress_init(&bar);
    options.progress = on_progress;
    options.judging = on_judging;
    options.ud = eval ? NULL : &bar;
    return run(options, threads, isa, eval, json);
}

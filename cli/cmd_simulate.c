/* cmd_simulate.c - `meshmind simulate`: run a scenario, show how it goes, print what came out. */
#include "build_info.h"
#include "commands.h"
#include "options.h"
#include "places.h"
#include "print.h"
#include "progress.h"
#include "signals.h"
#include "threads.h"

#include "omm/file.h"
#include "omm/json.h"
#include "omm/mem.h"
#include "omm/scenario.h"
#include "omm/simulate.h"
#include "omm/utf8.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SCENARIO_BYTES_MAX = 1 << 22, TRAIN_ROWS = 64 };

typedef struct simulate_ui {
    cli_progress bar;
    omm_clock clock;
    bool quiet;
} simulate_ui;

/* What a signal says: its handler may only write what is there already. */
static char s_interrupted[OMM_PATH_MAX + 128];
static volatile sig_atomic_t s_interrupted_size;

static void on_signal(int number) {
    const ssize_t ignored = write(STDERR_FILENO, s_interrupted, (size_t)s_interrupted_size);
    (void)ignored;
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

static void say_when_interrupted(const char *dir) {
    if (s_interrupted_size > 0) return;
    const int size = snprintf(s_interrupted, sizeof s_interrupted,
                              "\nmeshmind simulate: interrupted: %s is of a run that did not end, "
                              "and nothing goes on from it: remove it\n",
                              dir);
    s_interrupted_size = size < (int)sizeof s_interrupted ? size : (int)sizeof s_interrupted - 1;
    if (cli_take_signals(on_signal, (int)SA_RESETHAND) != OMM_OK) s_interrupted_size = 0;
}

static void on_progress(void *ud, const omm_simulate_progress *p) {
    simulate_ui *ui = ud;
    char text[96];
    say_when_interrupted(p->dir);
    if (ui->quiet) return;
    if (p->round > 0)
        snprintf(text, sizeof text, "round %u/%u: %s", p->round, p->rounds, p->phase);
    else
        snprintf(text, sizeof text, "%s", p->phase);
    cli_progress_show(&ui->bar, ui->clock.now_ms(ui->clock.ud),
                      p->total > 0 ? p->done / p->total : 0, text);
}

static void on_warning(void *ud, const char *sentence) {
    (void)ud;
    fprintf(stderr, "meshmind simulate: warning: %s\n", sentence);
}

static double share(uint64_t part, uint64_t whole) {
    return whole ? (double)part / (double)whole : 0;
}

/* Of none there is no share. */
static void print_counts(const char *what, uint64_t before, uint64_t after, uint64_t of) {
    if (of == 0) return;
    printf("  %-26s %6.1f %%  %6.1f %%   (%llu and %llu of %llu)\n", what, 100 * share(before, of),
           100 * share(after, of), (unsigned long long)before, (unsigned long long)after,
           (unsigned long long)of);
}

static void print_eval(const omm_simulate_result *r) {
    printf("\nHeld-out items (%llu)          before     after\n",
           (unsigned long long)r->after.items);
    printf("  %-26s %8.4f  %8.4f   nats per token\n", "loss", r->before.loss, r->after.loss);
    printf("  %-26s %8.4f  %8.4f   what gates and `compare` take\n", "loss, mean of clients",
           r->client_loss_before, r->client_loss_after);
    if (r->after.generated == 0) {
        printf(
            "  no replies were generated: nothing is said of tool calls (evaluation.generate)\n");
        return;
    }
    print_counts("tool call parses", r->before.parsed, r->after.parsed, r->after.calls);
    print_counts("right tool named", r->before.tool_ok, r->after.tool_ok, r->after.calls);
    print_counts("call exact", r->before.call_exact, r->after.call_exact, r->after.calls);
    print_counts("other reply exact", r->before.reply_exact, r->after.reply_exact,
                 r->after.replies);
}

enum { NAME_SHOWN = 64 }; /* bytes of a client's name, which the data says */

static void print_clients(const omm_simulate_result *r) {
    const bool has_calls = r->after.generated > 0 && r->after.calls > 0;
    printf("\n  %-14s %5s  %-19s%s\n", "client", "items", "loss before, after",
           has_calls ? "  right tool before, after  call exact" : "");
    for (size_t i = 0; i < r->client_count; i++) {
        const omm_simulate_client *c = &r->clients[i];
        char name[NAME_SHOWN];
        omm_utf8_clean(name, sizeof name, c->name);
        printf("  %-14s %5llu  %8.4f  %8.4f ", name, (unsigned long long)c->after.items,
               c->before.item_loss, c->after.item_loss);
        if (has_calls)
            printf("  %5llu  %5llu of %-5llu      %llu", (unsigned long long)c->before.tool_ok,
                   (unsigned long long)c->after.tool_ok, (unsigned long long)c->after.calls,
                   (unsigned long long)c->after.call_exact);
        printf("\n");
    }
    printf("  a client's loss is the mean of its items' nats per token: each item counts once\n");
}

/* Which line of the scenario a refusal comes from, where one of its own does. */
static void explain_refusals(const char *refusals) {
    static const struct {
        const char *reason, *why;
    } bounds[] = {
        {"REFUSED_RANGE", "a value larger than aggregation.value_max; of honest nodes a smaller "
                          "recipe.learning_rate or a larger bound would pass"},
        {"REFUSED_NORM", "an update longer than aggregation.norm_max; of honest nodes a smaller "
                         "recipe.learning_rate or a larger bound would pass"},
        {"REFUSED_SIZE", "over a limit of size; for tokens it is aggregation.weight_sum_max, "
                         "shared by the nodes"},
        {"REFUSED_LATE", "round.deadline_ms was over before all of it was there"},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++)
        if (strstr(refusals, bounds[i].reason))
            printf("  %s: %s\n", bounds[i].reason, bounds[i].why);
}

static void print_bytes(const omm_simulate_result *r) {
    char up[32];
    char down[32];
    char full[32];
    cli_size(up, sizeof up, (double)r->bytes_up);
    cli_size(down, sizeof down, (double)r->bytes_down);
    cli_size(full, sizeof full, (double)r->bytes_fp32);
    char held[96] = "";
    double total = (double)r->bytes_up + (double)r->bytes_down;
    if (r->rounds_held > 0)
        snprintf(held, sizeof held, ", %u held back (worse by more than loss_increase_max)",
                 r->rounds_held);
    printf("\nBytes on the wire: %s up, %s down ", up, down);
    if (r->bytes_fp32)
        printf("(with adapters in fp32 both ways: %s; saved %.1f %%)\n", full,
               100 * (1 - total / (double)r->bytes_fp32));
    else
        printf("(nothing was accepted)\n");
    if (r->bytes_fp32 && r->values_kept < r->values)
        printf("Of a delta the largest %llu of %llu values are sent (%.2g %%: codec.up)\n",
               (unsigned long long)r->values_kept, (unsigned long long)r->values,
               100 * (double)r->values_kept / (double)r->values);
    printf("Submissions: %llu accepted, %llu refused%s%s%s; %u round%s, %u void%s; %u node%s\n",
           (unsigned long long)r->accepted, (unsigned long long)r->refused,
           r->refusals[0] ? " (" : "", r->refusals, r->refusals[0] ? ")" : "", r->rounds,
           r->rounds == 1 ? "" : "s", r->rounds_void, held, r->nodes, r->nodes == 1 ? "" : "s");
    explain_refusals(r->refusals);
    if (r->missing > 0)
        printf("  %llu more were asked for and did not come before round.deadline_ms: the node "
               "vanished (dropout), or its training and link take longer\n",
               (unsigned long long)r->missing);
}

static omm_err print_verdicts(const omm_judgement *judgement) {
    omm_buf text;
    omm_buf_init(&text, 1u << 20);
    omm_err err = omm_judgement_text(&text, judgement);
    if (err == OMM_OK) printf("\n%.*s", (int)text.size, (const char *)text.data);
    omm_buf_fini(&text);
    return err;
}

static omm_err print_people(const omm_simulate_result *r) {
    char hex[OMM_DIGEST_HEX_SIZE];
    char total[32];
    char train[32];
    char evaluate[32];
    char audit[32];
    print_eval(r);
    print_clients(r);
    print_bytes(r);
    OMM_TRY(print_verdicts(&r->judgement));
    omm_digest_hex(hex, &r->run_digest);
    cli_duration(total, sizeof total, r->total_s);
    cli_duration(train, sizeof train, r->train_s);
    cli_duration(evaluate, sizeof evaluate, r->evaluate_s);
    cli_duration(audit, sizeof audit, r->audit_s);
    printf("\ntook %s (training %s, evaluation %s, audit %s)\n", total, train, evaluate, audit);
    printf("run digest  %s\n", hex);
    printf("bundle      %s\n", r->dir);
    char program[4 * OMM_PATH_MAX];
    char dir[4 * OMM_PATH_MAX];
    cli_shell_word(program, sizeof program, program_invocation_name);
    cli_shell_word(dir, sizeof dir, r->dir);
    printf("\nnext:  %s verify %s\n", program, dir);
    return OMM_OK;
}

static json_t *eval_json(const omm_simulate_eval *e, double client_loss) {
    return json_pack("{s:I,s:I,s:I,s:f,s:f,s:I,s:I,s:I,s:I,s:I,s:I}", "items", (json_int_t)e->items,
                     "generated", (json_int_t)e->generated, "tokens", (json_int_t)e->tokens, "loss",
                     e->loss, "client_loss", client_loss, "calls", (json_int_t)e->calls, "replies",
                     (json_int_t)e->replies, "call_parses", (json_int_t)e->parsed, "tool_right",
                     (json_int_t)e->tool_ok, "call_exact", (json_int_t)e->call_exact, "reply_exact",
                     (json_int_t)e->reply_exact);
}

static omm_err print_json(const omm_simulate_result *r) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, &r->run_digest);
    json_t *root = json_pack(
        "{s:i,s:b,s:s,s:o,s:o,s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:s,s:i,s:i,s:i,s:i,s:I,s:f}",
        "schema_version", 1, "passed", (int)r->judgement.passed, "run_digest", hex, "bundle",
        omm_json_text(r->dir), "before", eval_json(&r->before, r->client_loss_before), "after",
        eval_json(&r->after, r->client_loss_after), "bytes_up", (json_int_t)r->bytes_up,
        "bytes_down", (json_int_t)r->bytes_down, "bytes_fp32", (json_int_t)r->bytes_fp32,
        "accepted", (json_int_t)r->accepted, "refused", (json_int_t)r->refused, "missing",
        (json_int_t)r->missing, "refusals", r->refusals, "rounds", (int)r->rounds, "rounds_void",
        (int)r->rounds_void, "rounds_held_back", (int)r->rounds_held, "nodes", (int)r->nodes,
        "virtual_ms", (json_int_t)r->virtual_ms, "seconds", r->total_s);
    omm_buf text;
    omm_buf_init(&text, 1u << 20);
    omm_err err = root ? omm_json_write(&text, root) : omm_raise(OMM_ERR_NOMEM, "report");
    if (err == OMM_OK) printf("%.*s", (int)text.size, (const char *)text.data);
    omm_buf_fini(&text);
    json_decref(root);
    return err;
}

/* On the scenario's model, with as many tokens at once as training has. */
static omm_err measure_threads(unsigned *threads, const char *path, omm_isa isa) {
    omm_arena arena;
    omm_scenario scenario;
    char folder[OMM_PATH_MAX], model[OMM_PATH_MAX];
    omm_arena_init(&arena, SCENARIO_BYTES_MAX);
    omm_err err = omm_scenario_load(&scenario, path, NULL, &arena);
    if (err == OMM_OK) err = omm_path_dir(folder, path);
    if (err == OMM_OK) err = omm_path_join(model, folder, scenario.model);
    if (err == OMM_OK) err = cli_threads_measure_file(threads, model, isa, TRAIN_ROWS);
    omm_arena_fini(&arena);
    return err;
}

/* What a run that failed leaves is in the way of the next one. */
static void say_when_failed(const omm_simulate_result *result) {
    char sealed[OMM_PATH_MAX];
    if (!result->is_begun || omm_path_join(sealed, result->dir, "manifest.json") != OMM_OK ||
        omm_file_exists(sealed))
        return;
    fprintf(stderr,
            "meshmind simulate: %s is of a run that did not end, and nothing goes on from it: "
            "remove it\n",
            result->dir);
}

static int run(const omm_simulate_options *options, simulate_ui *ui, bool json) {
    omm_simulate_result result;
    omm_err err = omm_simulate(&result, options);
    cli_progress_end(&ui->bar);
    if (err != OMM_OK) {
        const int code = cli_fail("simulate", err);
        say_when_failed(&result);
        return code;
    }
    err = json ? print_json(&result) : print_people(&result);
    bool passed = result.judgement.passed;
    omm_simulate_result_fini(&result);
    if (err != OMM_OK) return cli_fail("simulate", err);
    return passed ? CLI_EXIT_PASS : CLI_EXIT_FAILED;
}

int cmd_simulate(int argc, char **argv) {
    const char *out = NULL;
    const char *threads_text = NULL;
    unsigned threads = 0;
    uint64_t seed = UINT64_MAX;
    bool json = false;
    bool quiet = false;
    const omm_config_field *keys = omm_scenario_fields;
    const cli_option table[] = {
        {"out", 'o', CLI_STR, &out, "DIR", "folder of the bundle (artifacts/runs/<time>-<name>)"},
        {"threads", 't', CLI_STR, &threads_text, "N|auto", CLI_THREADS_HELP},
        {"seed", 's', CLI_U64, &seed, "N", "run seed, instead of the scenario's"},
        {"keys", 0, CLI_KEYS, &keys, NULL,
         "print what SCENARIO.yaml may say: each key, range and meaning"},
        {"json", 0, CLI_FLAG, &json, NULL, "one JSON object on stdout"},
        {"quiet", 'q', CLI_FLAG, &quiet, NULL, "no progress"},
        {0}};
    int count = 0;
    char **args = NULL;
    int code =
        cli_parse(&count, &args, argc, argv, table, "simulate SCENARIO.yaml [options] | --keys",
                  "Run a federated scenario in one process; write a signed bundle, print the "
                  "verdicts.",
                  1, 1);
    if (code >= 0) return code;
    omm_isa isa = OMM_ISA_SCALAR;
    omm_err err = omm_isa_choose(&isa, getenv("OMM_ISA"));
    if (err == OMM_OK) err = cli_threads_parse(&threads, threads_text);
    if (err == OMM_OK && seed != UINT64_MAX && seed > OMM_SCENARIO_SEED_MAX)
        err = omm_raise(OMM_ERR_USAGE, "--seed %llu; accepted: 0 to %llu", (unsigned long long)seed,
                        (unsigned long long)OMM_SCENARIO_SEED_MAX);
    if (err == OMM_OK && !(out && omm_file_exists(out))) /* what is there is refused by itself */
        err = place_check_unsealed("--out", out ? out : "artifacts");
    if (err == OMM_OK && threads == 0) err = measure_threads(&threads, args[0], isa);
    if (err != OMM_OK) return cli_fail("simulate", err);
    simulate_ui ui = {.clock = omm_clock_system(), .quiet = quiet};
    cli_progress_init(&ui.bar);
    omm_simulate_options options = {.scenario = args[0],
                                    .seed = seed == UINT64_MAX ? NULL : &seed,
                                    .out = out,
                                    .threads = threads,
                                    .isa = isa,
                                    .clock = ui.clock,
                                    .commit = OMM_BUILD_COMMIT,
                                    .build = OMM_BUILD_TEXT,
                                    .progress = on_progress,
                                    .warn = on_warning,
                                    .ud = &ui};
    return run(&options, &ui, json);
}

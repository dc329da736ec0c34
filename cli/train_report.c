/* train_report.c - what came of a training run: in words, as JSON, as a folder with a page. */
#include "build_info.h"
#include "train_html.h"
#include "train_run.h"

#include "omm/clock.h"
#include "omm/data_reader.h"
#include "omm/file.h"
#include "omm/mem.h"
#include "omm/memory.h"

#include <stdio.h>
#include <string.h>

/* Curves of the longest recipe, 1,000,000 steps. */
#define RESULT_BYTES_MAX ((size_t)256 << 20)

/* By this process: of a run that was resumed at its end, none. */
static uint64_t tokens_trained(const train_run *r) {
    return omm_course_result(r->course).tokens - r->train_tokens;
}

double train_tokens_per_s(const train_run *r) {
    const double seconds = train_clock_seconds(&r->clock, TRAIN_WORK_STEP);
    return seconds > 0 ? (double)tokens_trained(r) / seconds : 0;
}

uint64_t train_memory_bytes(void) {
    return omm_memory_peak(); /* getrusage would tell the size of who began us, where that was larger */
}

static void print_share(const char *what, size_t before, size_t after, size_t of) {
    if (of) printf("  %-22s %8zu  %8zu   of %zu\n", what, before, after, of);
}

/* What was read, and what of it is not used: with `limit`, the longest that an example may be. */
static void print_totals(const char *what, const omm_data_totals *t, const char *how,
                         const char *limit) {
    printf("%s: %llu examples (%s%s), %llu tokens, %llu learned", what,
           (unsigned long long)t->examples, omm_data_format_name(t->format), how,
           (unsigned long long)t->tokens, (unsigned long long)t->learned);
    if (t->truncated) printf(", %llu cut to %s", (unsigned long long)t->truncated, limit);
    if (t->dropped)
        printf(", %llu left out: nothing to learn within %s", (unsigned long long)t->dropped,
               limit);
    printf("\n");
    data_print_bad(stdout, t);
}

static void print_data(const train_run *r) {
    print_totals("data", &r->data_totals, omm_dataset_is_stream(r->data) ? ", streamed" : "",
                 "--seq");
    if (r->args.eval) {
        const omm_data_totals *t = omm_dataset_totals(r->eval);
        print_totals("held-out data", t, "",
                     omm_data_format_is_text(t->format) ? "--seq" : "the model's context");
    }
    if (r->args.split != 0)
        printf("  held out by --split %g: %zu examples of %zu clients; trained on %zu of %zu\n",
               (double)r->args.split, omm_dataset_count(r->eval), omm_dataset_client_count(r->eval),
               omm_dataset_count(r->data), omm_dataset_client_count(r->data));
}

static void print_course(const train_run *r) {
    const omm_course_log log = omm_course_log_of(r->course);
    if (r->resumed_from) printf("resumed after step %u\n", r->resumed_from);
    if (!log.eval_count) return;
    printf("held-out loss on the way: %zu times, lowest %.4f after step %u%s\n", log.eval_count,
           log.evals[log.best].loss, log.evals[log.best].step,
           log.stopped_early ? "; stopped early" : "");
}

void train_print_report(const train_run *r) {
    omm_train_result t = omm_course_result(r->course);
    print_data(r);
    char speed[48] = "all of it before";
    if (tokens_trained(r) > 0)
        snprintf(speed, sizeof speed, "%.0f tokens/s", train_tokens_per_s(r));
    const unsigned threads = omm_pool_threads(r->pool);
    printf("trained %u step%s, %llu tokens (%s, %u thread%s, %s): loss %.4f -> %.4f\n", t.steps,
           t.steps == 1 ? "" : "s", (unsigned long long)t.tokens, speed, threads,
           threads == 1 ? "" : "s", omm_isa_name(r->compute.isa), (double)t.loss_first,
           (double)t.loss_last);
    print_course(r);
    if (r->eval) {
        const omm_eval_summary *b = &r->before, *a = &r->after;
        printf("held-out (%zu examples)   before     after\n", a->items);
        printf("  %-22s %8.4f  %8.4f   nats per token (%+.4f)\n", "loss", b->loss, a->loss,
               a->loss - b->loss);
        if (r->args.new_tokens) {
            print_share("call parses", b->call_parses, a->call_parses, a->calls);
            print_share("right tool", b->tool_right, a->tool_right, a->calls);
            print_share("call exact", b->call_exact, a->call_exact, a->calls);
            print_share("other reply exact", b->reply_exact, a->reply_exact, a->replies);
        }
    }
    char memory[24], wall[32];
    cli_size(memory, sizeof memory, (double)train_memory_bytes());
    cli_duration(wall, sizeof wall, (double)(omm_measure_ns() - r->begin_ns) / 1e9);
    printf("in %s, memory at most %s", wall, memory);
    if (r->energy.known) printf(", %.0f J", r->energy.joules);
    printf("\n%s: %s\n", r->full ? "model" : "adapter", r->args.out);
    if (r->args.report) printf("report: %s/report.html\n", r->args.report);
}

/* Without generation nobody knows what replies would have been. */
static json_t *summary_json(const train_run *r, const omm_eval_summary *s) {
    if (r->args.new_tokens == 0)
        return json_pack("{s:I,s:f}", "items", (json_int_t)s->items, "loss", s->loss);
    return json_pack("{s:I,s:f,s:I,s:I,s:I,s:I,s:I,s:I}", "items", (json_int_t)s->items, "loss",
                     s->loss, "calls", (json_int_t)s->calls, "replies", (json_int_t)s->replies,
                     "call_parses", (json_int_t)s->call_parses, "tool_right",
                     (json_int_t)s->tool_right, "call_exact", (json_int_t)s->call_exact,
                     "reply_exact", (json_int_t)s->reply_exact);
}

/* Held-out losses on the way. */
static json_t *evals_json(const omm_course_log *log) {
    json_t *list = json_array();
    for (size_t i = 0; i < log->eval_count; i++)
        json_array_append_new(list, json_pack("{s:I,s:f}", "step", (json_int_t)log->evals[i].step,
                                              "loss", log->evals[i].loss));
    return list;
}

static void add_course(json_t *root, const train_run *r) {
    const omm_course_log log = omm_course_log_of(r->course);
    json_object_set_new(root, "peak_memory_bytes", json_integer((json_int_t)train_memory_bytes()));
    json_object_set_new(root, "wall_s", json_real((double)(omm_measure_ns() - r->begin_ns) / 1e9));
    if (r->energy.known) json_object_set_new(root, "energy_j", json_real(r->energy.joules));
    json_object_set_new(root, "resumed_from", json_integer((json_int_t)r->resumed_from));
    json_object_set_new(root, "stopped_early", json_boolean(log.stopped_early));
    if (!log.eval_count) return;
    json_object_set_new(root, "evaluations", evals_json(&log));
    json_object_set_new(root, "best_step", json_integer((json_int_t)log.evals[log.best].step));
    json_object_set_new(root, "kept", json_string(r->args.keep));
}

static json_t *data_json(const train_run *r) {
    json_t *data = data_totals_json(&r->data_totals);
    json_object_set_new(data, "clients",
                        json_integer((json_int_t)omm_dataset_client_count(r->data)));
    json_object_set_new(data, "streamed", json_boolean(omm_dataset_is_stream(r->data)));
    if (r->args.split != 0)
        json_object_set_new(data, "split",
                            json_pack("{s:f,s:s,s:I,s:I}", "share", (double)r->args.split, "by",
                                      r->args.split_by ? r->args.split_by : "item", "held_out",
                                      (json_int_t)omm_dataset_count(r->eval), "held_out_clients",
                                      (json_int_t)omm_dataset_client_count(r->eval)));
    return data;
}

/* The chain of an adapter's steps; how many weights moved. */
static void add_trained(json_t *root, const train_run *r, uint32_t steps) {
    char hex[OMM_DIGEST_HEX_SIZE];
    if (r->full) {
        json_object_set_new(root, "weights", json_integer((json_int_t)omm_full_values(r->full)));
        json_object_set_new(root, "moments", json_integer((json_int_t)omm_full_moments(r->full)));
        return;
    }
    const omm_digest chain = omm_trainer_chain(r->trainer, steps);
    omm_digest_hex(hex, &chain);
    json_object_set_new(root, "chain", json_string(hex));
}

/* What `train --recipe` takes to do the same again: without what a start adapter says, and of --full without what
 * is about adapters. */
static omm_err add_recipe(json_t *root, const train_run *r) {
    static const char *const of_shape[] = {"rank",   "alpha",        "targets",
                                           "rslora", "rank_pattern", "alpha_pattern"};
    static const char *const of_adapters[] = {"parts", "dropout", "prox_mu", "b_rate_ratio",
                                              "activations"};
    json_t *recipe = NULL;
    OMM_TRY(omm_recipe_to_json(&recipe, &r->recipe));
    for (size_t i = 0; i < sizeof of_shape / sizeof *of_shape; i++)
        if (r->full || train_is_like_start(&r->args)) (void)json_object_del(recipe, of_shape[i]);
    for (size_t i = 0; i < sizeof of_adapters / sizeof *of_adapters; i++)
        if (r->full) (void)json_object_del(recipe, of_adapters[i]);
    OMM_TRY(omm_json_set(root, "recipe", recipe)); /* which has it from here on */
    if (!r->args.galore) return OMM_OK;
    OMM_TRY(omm_json_set_str(recipe, "optimizer", "galore"));
    OMM_TRY(omm_json_set_int(recipe, "galore_rank", r->args.galore_rank));
    OMM_TRY(omm_json_set_int(recipe, "galore_every", r->args.galore_every));
    return omm_json_set_real(recipe, "galore_scale", (double)r->args.galore_scale);
}

static omm_err put_file(json_t *list, const char *file, const omm_digest *digest) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, digest);
    json_t *one = json_pack("{s:o,s:s}", "file", omm_json_text(file), "digest", hex);
    if (one && json_array_append_new(list, one) == 0) return OMM_OK;
    return omm_raise(OMM_ERR_NOMEM, "no memory for a report");
}

static omm_err put_arguments(json_t *list, const train_run *r) {
    for (int i = 1; i < r->argc; i++)
        if (json_array_append_new(list, omm_json_text(r->argv[i])) != 0)
            return omm_raise(OMM_ERR_NOMEM, "no memory for a report");
    return OMM_OK;
}

/* What of a file is used: its digest is that of these examples' lines. */
static omm_err add_data(json_t *root, const char *key, const char *file, const omm_dataset *data) {
    const omm_digest digest = omm_dataset_digest(data);
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, &digest);
    return omm_json_set(root, key,
                        json_pack("{s:o,s:s,s:I,s:I}", "file", omm_json_text(file), "digest", hex,
                                  "examples", (json_int_t)omm_dataset_count(data), "tokens",
                                  (json_int_t)omm_dataset_tokens(data)));
}

static omm_err add_all_data(json_t *root, const train_run *r) {
    const char *held_out = r->args.eval ? r->args.eval : r->args.data;
    OMM_TRY(add_data(root, "trained_on", r->args.data, r->data));
    return r->eval ? add_data(root, "judged_on", held_out, r->eval) : OMM_OK;
}

/* What the result follows from: the command line says how the data were read, held out and judged. */
static omm_err add_origin(json_t *root, const train_run *r) {
    json_t *base = json_array(), *start = json_array(), *arguments = json_array();
    omm_err err = put_file(base, r->args.model, &r->base);
    for (size_t i = 0; err == OMM_OK && i < r->args.start.count; i++)
        err = put_file(start, r->args.start.items[i], &r->start_files[i]);
    if (err == OMM_OK) err = put_arguments(arguments, r);
    if (err == OMM_OK) err = omm_json_set(root, "base", json_incref(json_array_get(base, 0)));
    if (err == OMM_OK) err = omm_json_set(root, "start", json_incref(start));
    if (err == OMM_OK) err = omm_json_set(root, "arguments", json_incref(arguments));
    json_decref(base);
    json_decref(start);
    json_decref(arguments);
    OMM_TRY(err);
    OMM_TRY(add_all_data(root, r));
    OMM_TRY(omm_json_set(
        root, "program",
        json_pack("{s:s,s:s}", "version", OMM_BUILD_VERSION, "commit", OMM_BUILD_COMMIT)));
    OMM_TRY(omm_json_set_int(root, "seed", (int64_t)r->args.seed)); /* its option ends there */
    return add_recipe(root, r);
}

/* What is judged of the examples that are held out: of a simulation the recipe's seq_max cuts them, here the model's context, or
 * --seq where they come from what is trained on. */
static void add_held_out(json_t *evaluation, const train_run *r) {
    const omm_data_totals *t = omm_dataset_totals(r->eval);
    json_object_set_new(evaluation, "seq_max",
                        json_integer((json_int_t)omm_dataset_seq_max(r->eval)));
    const bool is_own =
        r->args.eval != NULL; /* a part does not know what was cut of it: `data` has both */
    json_object_set_new(evaluation, "cut",
                        is_own ? json_integer((json_int_t)t->truncated) : json_null());
    json_object_set_new(evaluation, "left_out",
                        is_own ? json_integer((json_int_t)t->dropped) : json_null());
    json_object_set_new(evaluation, "doubles", json_integer((json_int_t)r->doubles.count));
    json_object_set_new(evaluation, "double_lines", data_overlap_json(&r->doubles));
}

omm_err train_result_json(json_t **out, const train_run *r, const omm_digest *file) {
    omm_train_result t = omm_course_result(r->course);
    omm_digest data = omm_dataset_digest(r->data);
    char file_hex[OMM_DIGEST_HEX_SIZE], data_hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(file_hex, file);
    omm_digest_hex(data_hex, &data);
    json_t *root =
        json_pack("{s:i,s:s,s:o,s:s,s:s,s:I,s:I,s:I,s:I,s:f,s:f,s:o,s:I,s:s}", "schema_version", 1,
                  "kind", "omm-train", r->full ? "model" : "adapter", omm_json_text(r->args.out),
                  r->full ? "model_digest" : "adapter_digest", file_hex, "data_digest", data_hex,
                  "examples", (json_int_t)omm_dataset_count(r->data), "steps", (json_int_t)t.steps,
                  "tokens", (json_int_t)t.tokens, "learned", (json_int_t)t.learned, "loss_first",
                  (double)t.loss_first, "loss_last", (double)t.loss_last, "tokens_per_s",
                  tokens_trained(r) > 0 ? json_real(train_tokens_per_s(r)) : json_null(), "threads",
                  (json_int_t)omm_pool_threads(r->pool), "isa", omm_isa_name(r->compute.isa));
    if (root) add_trained(root, r, t.steps);
    if (root) json_object_set_new(root, "data", data_json(r));
    if (root) add_course(root, r);
    if (root && r->args.eval)
        json_object_set_new(root, "eval_data", data_totals_json(omm_dataset_totals(r->eval)));
    if (root && r->eval)
        json_object_set_new(
            root, "evaluation",
            json_pack("{s:o,s:o,s:I,s:I,s:o}", "before", summary_json(r, &r->before), "after",
                      summary_json(r, &r->after), "replies_cut", (json_int_t)r->replies_cut,
                      "shared", (json_int_t)r->shared.count, "shared_lines",
                      data_overlap_json(&r->shared)));
    if (root && r->eval) add_held_out(json_object_get(root, "evaluation"), r);
    *out = root;
    return root ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "no memory for a result");
}

omm_err train_print_json(const json_t *result) {
    omm_buf text;
    omm_buf_init(&text, RESULT_BYTES_MAX);
    omm_err err = omm_json_write(&text, result);
    if (err == OMM_OK) fwrite(text.data, 1, text.size, stdout);
    omm_buf_fini(&text);
    return err;
}

/* --- report.json and report.html ------------------------------------------------------------- */

static json_t *numbers(const float *x, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(list, json_real((double)x[i]));
    return list;
}

static omm_err write_page(const char *folder, const json_t *result) {
    char path[OMM_PATH_MAX];
    omm_buf page;
    OMM_TRY(omm_path_join(path, folder, "report.html"));
    omm_buf_init(&page, RESULT_BYTES_MAX);
    omm_err err = train_html(&page, result);
    if (err == OMM_OK) err = omm_file_write(path, omm_buf_view(&page), 0644);
    omm_buf_fini(&page);
    return err;
}

omm_err train_report_write(const train_run *r, json_t *result, const char *folder) {
    const omm_course_log log = omm_course_log_of(r->course);
    char path[OMM_PATH_MAX];
    json_object_set_new(result, "curves",
                        json_pack("{s:o,s:o,s:o}", "loss", numbers(log.losses, log.steps),
                                  "grad_norm", numbers(log.grad_norms, log.steps), "learning_rate",
                                  numbers(log.rates, log.steps)));
    if (r->eval) {
        json_t *groups = NULL;
        OMM_TRY(train_groups(&groups, r));
        json_object_set_new(result, "held_out", groups);
    }
    OMM_TRY(add_origin(result, r));
    OMM_TRY(omm_dir_make(folder));
    OMM_TRY(omm_path_join(path, folder, "report.json"));
    OMM_TRY(omm_json_save(path, result));
    return write_page(folder, result);
}

/* cmd_train.c - `meshmind train`: a LoRA adapter from examples, with its loss and its uplift. */
#include "commands.h"
#include "data_options.h"
#include "loaded.h"
#include "options.h"
#include "progress.h"
#include "threads.h"
#include "train_options.h"

#include "omm/clock.h"
#include "omm/evaluate.h"
#include "omm/file.h"
#include "omm/json.h"
#include "omm/mem.h"
#include "omm/model.h"
#include "omm/tokenizer.h"
#include "omm/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLIENTS_MAX = 256, TRAIN_ROWS = 64 };

/* Everything that must be released, in one place. */
typedef struct train_run {
    train_args args;
    omm_model model;
    omm_tokenizer *tokenizer;
    omm_dataset *data, *eval;
    omm_data_totals data_totals; /* of the whole file, before a split */
    omm_pool *pool;
    omm_compute compute;
    omm_recipe recipe;
    omm_trainer *trainer;
    omm_lora start;
    bool has_start;
    omm_eval_item *items;
    omm_eval_summary before, after;
    cli_progress bar;
    uint64_t train_ns;
    char *client_text;
    const char *client_names[CLIENTS_MAX];
    size_t client_count;
} train_run;

static omm_err split_clients(train_run *r) {
    if (!r->args.clients) return OMM_OK;
    r->client_text = omm_strdup(r->args.clients);
    if (!r->client_text) return omm_raise(OMM_ERR_NOMEM, "out of memory");
    char *rest = NULL;
    for (char *name = strtok_r(r->client_text, ",", &rest); name;
         name = strtok_r(NULL, ",", &rest)) {
        if (r->client_count == CLIENTS_MAX)
            return omm_raise(OMM_ERR_USAGE, "--clients: at most %d names", CLIENTS_MAX);
        r->client_names[r->client_count++] = name;
    }
    if (!r->client_count) return omm_raise(OMM_ERR_USAGE, "--clients: no name");
    return OMM_OK;
}

static omm_err load_model(train_run *r) {
    omm_gguf gguf;
    OMM_TRY(omm_gguf_open(&gguf, r->args.model));
    omm_err err = omm_tokenizer_open(&r->tokenizer, &gguf);
    if (err == OMM_OK) err = omm_model_load(&r->model, &gguf);
    omm_gguf_close(&gguf);
    if (err == OMM_OK) cli_warn_template(r->tokenizer);
    return err;
}

/* Takes r->data apart; the loss of the held-out part is over what --loss says too. */
static omm_err split_data(train_run *r) {
    const char *by = r->args.split_by ? r->args.split_by : "item";
    bool by_client = strcmp(by, "client") == 0;
    if (!by_client && strcmp(by, "item") != 0)
        return omm_raise(OMM_ERR_USAGE, "--split-by '%.40s'; accepted: item, client", by);
    omm_dataset *all = r->data, *kept = NULL;
    OMM_TRY(omm_dataset_split(&kept, &r->eval, all, (double)r->args.split, by_client));
    r->data_totals = *omm_dataset_totals(all);
    r->data = kept;
    omm_dataset_close(all);
    return OMM_OK;
}

static omm_err load_eval(train_run *r) {
    omm_dataset_options options;
    OMM_TRY(data_options_resolve(&options, &r->args.data_options, r->model.dims.context));
    options.loss = OMM_LOSS_DEFAULT; /* what is judged are replies, whatever is learned */
    if (omm_dataset_totals(r->data)->format == OMM_DATA_TEXT) options.seq_max = r->args.seq;
    return omm_dataset_load(&r->eval, r->args.eval, r->tokenizer, &options);
}

static omm_err load_data(train_run *r) {
    omm_dataset_options options;
    OMM_TRY(data_options_resolve(&options, &r->args.data_options, r->args.seq));
    options.clients = r->client_count ? r->client_names : NULL;
    options.client_count = r->client_count;
    OMM_TRY(data_open(&r->data, r->args.data, r->tokenizer, &options, r->args.stream));
    r->data_totals = *omm_dataset_totals(r->data);
    if (r->args.split != 0 && r->args.eval)
        return omm_raise(OMM_ERR_USAGE, "--split holds out examples where --eval names none: one "
                                        "of them is enough");
    if (r->args.split_by && r->args.split == 0)
        return omm_raise(OMM_ERR_USAGE, "--split-by says what --split X holds out: X is missing");
    if (r->args.split != 0) OMM_TRY(split_data(r));
    if (r->args.eval) OMM_TRY(load_eval(r));
    if (!r->eval) return OMM_OK;
    r->items = omm_alloc(omm_dataset_count(r->eval), sizeof *r->items);
    return r->items ? OMM_OK : omm_raise(OMM_ERR_NOMEM, "out of memory");
}

static omm_err open_run(train_run *r) {
    omm_isa isa = OMM_ISA_SCALAR;
    unsigned threads = 0;
    OMM_TRY(train_recipe(&r->recipe, &r->args));
    OMM_TRY(split_clients(r));
    OMM_TRY(omm_isa_choose(&isa, getenv("OMM_ISA")));
    OMM_TRY(cli_threads_parse(&threads, r->args.threads));
    OMM_TRY(load_model(r));
    OMM_TRY(cli_threads_measure(&threads, &r->model, isa, TRAIN_ROWS));
    OMM_TRY(omm_pool_open(&r->pool, threads));
    OMM_TRY(omm_compute_init(&r->compute, r->pool, isa));
    OMM_TRY(load_data(r));
    if (r->args.start) {
        OMM_TRY(omm_lora_load_file(&r->start, r->args.start, &r->model.lora_shape));
        r->has_start = true;
    }
    omm_trainer_options options = {.model = &r->model,
                                   .data = r->data,
                                   .recipe = &r->recipe,
                                   .compute = &r->compute,
                                   .seed = omm_seed_from_u64(r->args.seed),
                                   .start = r->has_start ? &r->start : NULL};
    return omm_trainer_open(&r->trainer, &options);
}

static void close_run(train_run *r) {
    omm_trainer_close(r->trainer);
    if (r->has_start) omm_lora_fini(&r->start);
    omm_dataset_close(r->data);
    omm_dataset_close(r->eval);
    omm_tokenizer_close(r->tokenizer);
    omm_model_fini(&r->model);
    omm_compute_fini(&r->compute);
    omm_pool_close(r->pool);
    omm_free(r->items);
    omm_free(r->client_text);
}

static uint64_t now_ms(void) {
    return omm_measure_ns() / 1000000;
}

static void on_judged(void *ud, size_t done, size_t total) {
    train_run *r = ud;
    cli_progress_show(&r->bar, now_ms(), (double)done / (double)total, "evaluating");
}

static omm_err judge(train_run *r, omm_eval_summary *out, const omm_lora *adapter) {
    if (!r->eval) return OMM_OK;
    omm_eval_options options = {.new_tokens_max = r->args.new_tokens,
                                .tokenizer = r->tokenizer,
                                .progress = on_judged,
                                .ud = r};
    cli_progress_init(&r->bar);
    omm_err err = omm_evaluate(r->items, &r->model, adapter, r->eval, &r->compute, &options);
    cli_progress_end(&r->bar);
    if (err == OMM_OK) *out = omm_eval_summarise(r->items, omm_dataset_count(r->eval));
    return err;
}

static omm_err train(train_run *r) {
    cli_progress_init(&r->bar);
    uint64_t begin = omm_measure_ns();
    omm_err err = OMM_OK;
    while (err == OMM_OK && !omm_trainer_is_done(r->trainer)) {
        omm_step_report step;
        err = omm_trainer_step(r->trainer, &step);
        if (err != OMM_OK) break;
        char text[96] = "training";
        if (r->bar.is_terminal)
            snprintf(text, sizeof text, "step %u/%u  loss %.4f", step.step, r->recipe.steps,
                     (double)step.loss);
        cli_progress_show(&r->bar, now_ms(), (double)step.step / r->recipe.steps, text);
    }
    r->train_ns = omm_measure_ns() - begin;
    cli_progress_end(&r->bar);
    return err;
}

/* --- report ---------------------------------------------------------------------------------- */

static double tokens_per_s(const train_run *r) {
    return (double)omm_trainer_result(r->trainer).tokens * 1e9 / (double)(r->train_ns + 1);
}

static void print_share(const char *what, size_t before, size_t after, size_t of) {
    if (of) printf("  %-22s %8zu  %8zu   of %zu\n", what, before, after, of);
}

static void print_data(const train_run *r) {
    const omm_data_totals *t = &r->data_totals;
    printf("data: %llu examples (%s%s), %llu tokens, %llu learned", (unsigned long long)t->examples,
           omm_data_format_name(t->format), omm_dataset_is_stream(r->data) ? ", streamed" : "",
           (unsigned long long)t->tokens, (unsigned long long)t->learned);
    if (t->truncated) printf(", %llu cut to --seq", (unsigned long long)t->truncated);
    if (t->dropped)
        printf(", %llu left out: nothing to learn within --seq", (unsigned long long)t->dropped);
    printf("\n");
    data_print_bad(stdout, t);
    if (r->args.eval && omm_dataset_totals(r->eval)->bad) {
        printf("held-out data:\n");
        data_print_bad(stdout, omm_dataset_totals(r->eval));
    }
    if (r->args.split != 0)
        printf("  held out by --split %g: %zu examples of %zu clients; trained on %zu of %zu\n",
               (double)r->args.split, omm_dataset_count(r->eval), omm_dataset_client_count(r->eval),
               omm_dataset_count(r->data), omm_dataset_client_count(r->data));
}

static void print_report(const train_run *r) {
    omm_train_result t = omm_trainer_result(r->trainer);
    print_data(r);
    printf("trained %u steps, %llu tokens (%.0f tokens/s, %u threads, %s): loss %.4f -> %.4f\n",
           t.steps, (unsigned long long)t.tokens, tokens_per_s(r), omm_pool_threads(r->pool),
           omm_isa_name(r->compute.isa), (double)t.loss_first, (double)t.loss_last);
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
    printf("adapter: %s\n", r->args.out);
}

static json_t *summary_json(const omm_eval_summary *s) {
    return json_pack("{s:I,s:f,s:I,s:I,s:I,s:I,s:I,s:I}", "items", (json_int_t)s->items, "loss",
                     s->loss, "calls", (json_int_t)s->calls, "replies", (json_int_t)s->replies,
                     "call_parses", (json_int_t)s->call_parses, "tool_right",
                     (json_int_t)s->tool_right, "call_exact", (json_int_t)s->call_exact,
                     "reply_exact", (json_int_t)s->reply_exact);
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

static omm_err print_json(const train_run *r, const omm_digest *file) {
    omm_train_result t = omm_trainer_result(r->trainer);
    omm_digest chain = omm_trainer_chain(r->trainer, t.steps);
    omm_digest data = omm_dataset_digest(r->data);
    char file_hex[OMM_DIGEST_HEX_SIZE], chain_hex[OMM_DIGEST_HEX_SIZE];
    char data_hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(file_hex, file);
    omm_digest_hex(chain_hex, &chain);
    omm_digest_hex(data_hex, &data);
    json_t *root = json_pack(
        "{s:i,s:s,s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:f,s:f,s:f,s:I,s:s}", "schema_version", 1,
        "kind", "omm-train", "adapter", r->args.out, "adapter_digest", file_hex, "chain", chain_hex,
        "data_digest", data_hex, "examples", (json_int_t)omm_dataset_count(r->data), "steps",
        (json_int_t)t.steps, "tokens", (json_int_t)t.tokens, "learned", (json_int_t)t.learned,
        "loss_first", (double)t.loss_first, "loss_last", (double)t.loss_last, "tokens_per_s",
        tokens_per_s(r), "threads", (json_int_t)omm_pool_threads(r->pool), "isa",
        omm_isa_name(r->compute.isa));
    if (root) json_object_set_new(root, "data", data_json(r));
    if (root && r->args.eval)
        json_object_set_new(root, "eval_data", data_totals_json(omm_dataset_totals(r->eval)));
    if (root && r->eval)
        json_object_set_new(root, "evaluation",
                            json_pack("{s:o,s:o}", "before", summary_json(&r->before), "after",
                                      summary_json(&r->after)));
    omm_buf text;
    omm_buf_init(&text, 1 << 20);
    omm_err err = root ? omm_json_write(&text, root) : omm_raise(OMM_ERR_NOMEM, "out of memory");
    if (err == OMM_OK) fwrite(text.data, 1, text.size, stdout);
    omm_buf_fini(&text);
    json_decref(root);
    return err;
}

static omm_err save(const train_run *r, omm_digest *digest) {
    omm_buf file;
    omm_buf_init(&file, (size_t)OMM_LORA_VALUES_MAX * 4);
    omm_err err = omm_lora_save(&file, omm_trainer_adapter(r->trainer));
    if (err == OMM_OK) err = omm_file_write(r->args.out, omm_buf_view(&file), 0644);
    *digest = omm_hash(omm_buf_view(&file));
    omm_buf_fini(&file);
    return err;
}

static omm_err run_all(train_run *r) {
    omm_digest digest;
    OMM_TRY(open_run(r));
    OMM_TRY(judge(r, &r->before, r->has_start ? &r->start : NULL));
    OMM_TRY(train(r));
    OMM_TRY(save(r, &digest));
    OMM_TRY(judge(r, &r->after, omm_trainer_adapter(r->trainer)));
    if (r->args.json) return print_json(r, &digest);
    print_report(r);
    return OMM_OK;
}

int cmd_train(int argc, char **argv) {
    train_run r = {.args = train_args_default()};
    int code = train_parse(&r.args, argc, argv);
    if (code >= 0) return code;
    omm_err err = run_all(&r);
    close_run(&r);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail("train", err);
}

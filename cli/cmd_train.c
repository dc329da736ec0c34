/* cmd_train.c - `meshmind train`: a LoRA adapter from examples, with its loss and its uplift. */
#include "commands.h"
#include "loaded.h"
#include "options.h"
#include "places.h"
#include "threads.h"
#include "train_full.h"
#include "train_memory.h"
#include "train_run.h"

#include "omm/clock.h"
#include "omm/evaluate.h"
#include "omm/file.h"
#include "omm/mem.h"
#include "omm/model.h"
#include "omm/quantise.h"
#include "omm/tokenizer.h"
#include "omm/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TRAIN_ROWS = 64,
    TENSOR_BYTES = 256,    /* at most, of an adapter's file: name, shape, padding */
    META_BYTES = 64 << 10, /* what else stands before them */
};

static omm_err split_clients(train_run *r) {
    if (!r->args.clients) return OMM_OK;
    r->client_text = omm_strdup(r->args.clients);
    if (!r->client_text) return omm_raise(OMM_ERR_NOMEM, "out of memory");
    char *rest = NULL;
    for (char *name = strtok_r(r->client_text, ",", &rest); name;
         name = strtok_r(NULL, ",", &rest)) {
        if (r->client_count == TRAIN_CLIENTS_MAX)
            return omm_raise(OMM_ERR_USAGE, "--clients: at most %d names", TRAIN_CLIENTS_MAX);
        r->client_names[r->client_count++] = name;
    }
    if (!r->client_count) return omm_raise(OMM_ERR_USAGE, "--clients: no name");
    return OMM_OK;
}

/* What the data are read with: the vocabulary, and an outline of the model. */
static omm_err open_model(train_run *r) {
    omm_gguf gguf;
    OMM_TRY(omm_gguf_open(&gguf, r->args.model));
    omm_err err = omm_model_outline(&r->model, &gguf);
    if (err == OMM_OK) omm_lora_base_read(&r->model.lora_shape.base, &gguf); /* for --start */
    if (err == OMM_OK) err = omm_tokenizer_open(&r->tokenizer, &gguf);
    omm_gguf_close(&gguf);
    return cli_of_file(err, "-m", r->args.model);
}

/* The outline becomes the model, when it is known to fit. */
static omm_err load_model(train_run *r) {
    omm_gguf gguf;
    OMM_TRY(omm_gguf_open(&gguf, r->args.model));
    const bool is_named = (r->args.checkpoint && !r->args.full) || r->args.report;
    omm_err err = train_memory_plan(r, &gguf);
    if (is_named) r->base = omm_gguf_digest(&gguf); /* of all its parts */
    if (err == OMM_OK) {
        omm_model_fini(&r->model);
        err = cli_of_file(omm_model_load(&r->model, &gguf), "-m", r->args.model);
    }
    if (err != OMM_OK || !r->args.full) {
        omm_gguf_close(&gguf);
        return err;
    }
    /* Its keys are wanted again, and its name may be another file's by then. */
    omm_gguf_release_all(&gguf);
    r->like = gguf;
    return OMM_OK;
}

/* Longer examples train, as anywhere else; but the model has no use of what is beyond. */
static void warn_of_length(const train_run *r) {
    const uint32_t longest = r->data_totals.longest, context = r->model.dims.context;
    if (context == 0 || longest <= context) return;
    fprintf(stderr,
            "--seq %u: the longest example has %u tokens, and the model was trained for %u: it "
            "knows no "
            "positions beyond them\n",
            r->args.seq, longest, context);
}

/* Takes r->data apart; the loss of the held-out part is over what --loss says too. */
static omm_err split_data(train_run *r) {
    const bool by_client = r->args.split_by && strcmp(r->args.split_by, "client") == 0;
    omm_dataset *all = r->data, *kept = NULL;
    OMM_TRY(omm_dataset_split(&kept, &r->eval, all, (double)r->args.split, by_client));
    r->data = kept;
    omm_dataset_close(all);
    return OMM_OK;
}

static omm_err load_eval_of(train_run *r, omm_bytes text, uint32_t seq_max, uint32_t stride) {
    omm_dataset_options options;
    OMM_TRY(data_options_resolve(&options, &r->args.data_options, seq_max));
    options.stride = stride;
    options.loss = OMM_LOSS_DEFAULT; /* what is judged are replies, whatever is learned */
    return omm_dataset_parse(&r->eval, text, r->args.eval, r->tokenizer, &options);
}

/* Replies are judged as far as the model can see; texts in windows as long as those that are learned. */
static omm_err take_eval(train_run *r, omm_bytes text) {
    const bool texts = omm_data_format_is_text(omm_dataset_totals(r->data)->format);
    const uint32_t stride = r->args.data_options.stride;
    OMM_TRY(load_eval_of(r, text, r->model.dims.context, texts ? 0 : stride));
    if (!texts || !omm_data_format_is_text(omm_dataset_totals(r->eval)->format)) return OMM_OK;
    omm_dataset_close(r->eval);
    r->eval = NULL;
    return load_eval_of(r, text, r->args.seq, stride);
}

/* Read once: a pipe says nothing twice. */
static omm_err load_eval(train_run *r) {
    omm_buf text;
    omm_buf_init(&text, OMM_DATASET_FILE_BYTES_MAX);
    omm_err err = omm_file_read(&text, r->args.eval);
    if (err == OMM_OK) err = take_eval(r, omm_buf_view(&text));
    omm_buf_fini(&text);
    return err;
}

/* Judging keeps to the positions that the model knows, though training does not. */
static omm_err check_held_out(const train_run *r) {
    const uint32_t longest = omm_dataset_totals(r->eval)->longest;
    const uint32_t context = r->model.dims.context;
    if (longest <= context) return OMM_OK;
    return omm_raise(OMM_ERR_USAGE,
                     "--seq %u: the longest held-out example has %u tokens, and the model was "
                     "trained for %u; accepted with held-out data: at most %u",
                     r->args.seq, longest, context, context);
}

/* Ends a sentence: where the first held-out examples of `o` are, and what each is equal to, in a file of `data`. */
static void say_places(const train_run *r, const omm_overlap *o, const char *path,
                       const omm_dataset *data) {
    const char *held_out = r->args.eval ? r->args.eval : r->args.data;
    for (size_t i = 0; i < o->shown; i++) {
        fprintf(stderr, "%s", i ? ", " : ": ");
        data_print_place(stderr, held_out, o->first[i].place, omm_dataset_totals(r->eval), false);
        fprintf(stderr, " = ");
        data_print_place(stderr, path, o->first[i].met, omm_dataset_totals(data),
                         omm_dataset_is_stream(data));
    }
    fprintf(stderr, "%s\n", o->shown > 0 && o->count > o->shown ? ", ..." : "");
}

/* What was trained on is no measure of what was learned: said, and not refused, since it may be wanted. */
static void warn_of_shared(const train_run *r) {
    if (r->shared.count == 0) return;
    fprintf(stderr,
            "%llu of %zu held-out examples are also trained on: the loss after says little of "
            "them",
            (unsigned long long)r->shared.count, omm_dataset_count(r->eval));
    if (r->data_totals.truncated) fprintf(stderr, " (equal in their first %u tokens)", r->args.seq);
    say_places(r, &r->shared, r->args.data, r->data);
}

/* Who is there twice counts twice. */
static void warn_of_doubles(const train_run *r) {
    if (r->doubles.count == 0) return;
    fprintf(stderr, "%llu of %zu held-out examples are there before, and count again",
            (unsigned long long)r->doubles.count, omm_dataset_count(r->eval));
    say_places(r, &r->doubles, r->args.eval ? r->args.eval : r->args.data, r->eval);
}

static omm_err load_data(train_run *r) {
    omm_dataset_options options;
    OMM_TRY(data_options_resolve(&options, &r->args.data_options, r->args.seq));
    options.clients = r->client_count ? r->client_names : NULL;
    options.client_count = r->client_count;
    OMM_TRY(data_open(&r->data, r->args.data, r->tokenizer, &options, r->args.stream));
    r->data_totals = *omm_dataset_totals(r->data);
    if (r->args.split != 0) OMM_TRY(split_data(r));
    if (r->args.eval) OMM_TRY(load_eval(r));
    OMM_TRY(train_check_options(r));
    if (!r->eval) return OMM_OK;
    OMM_TRY(check_held_out(r));
    OMM_TRY(omm_dataset_overlap(&r->shared, r->eval, r->data));
    OMM_TRY(omm_dataset_doubles(&r->doubles, r->eval));
    r->items = omm_alloc(omm_dataset_count(r->eval), sizeof *r->items);
    r->items_before = omm_alloc(omm_dataset_count(r->eval), sizeof *r->items);
    if (!r->items || !r->items_before) return omm_raise(OMM_ERR_NOMEM, "out of memory");
    return OMM_OK;
}

/* What is worth a thought of model and data. */
static void warn_of_data(const train_run *r) {
    const data_options *o = &r->args.data_options;
    cli_warn_words(r->tokenizer);
    cli_warn_template(r->tokenizer);
    data_warn_of_separator(o, r->args.data, &r->data_totals);
    warn_of_length(r);
    if (!r->eval) return;
    if (r->args.eval) data_warn_of_separator(o, r->args.eval, omm_dataset_totals(r->eval));
    warn_of_shared(r);
    warn_of_doubles(r);
}

/* What is there is read as a checkpoint, and written over: no other input is it. */
static omm_err check_checkpoint(const train_args *a) {
    const cli_input inputs[] = {{"--model", a->model},
                                {"--data", a->data},
                                {"--eval", a->eval},
                                {"--recipe", a->recipe},
                                {0}};
    OMM_TRY(cli_check_written("--checkpoint", a->checkpoint, inputs));
    for (uint32_t i = 0; a->checkpoint && i < a->start.count; i++) {
        char path[OMM_PATH_MAX];
        float weight = 0;
        OMM_TRY(loaded_split_scale(path, &weight, a->start.items[i], "--start"));
        OMM_TRY(cli_check_written("--checkpoint", a->checkpoint,
                                  (const cli_input[]){{"--start", path}, {0}}));
    }
    return OMM_OK;
}

/* No file of the run takes the place of another. */
static omm_err check_out(const train_args *a) {
    static const char *const names[] = {"report.json", "report.html"};
    const cli_input inputs[] = {{"--model", a->model},
                                {"--data", a->data},
                                {"--eval", a->eval},
                                {"--recipe", a->recipe},
                                {"--checkpoint", a->checkpoint},
                                {0}};
    OMM_TRY(cli_check_out(a->out, inputs));
    OMM_TRY(loaded_check_out(a->out, &a->start, "--start"));
    OMM_TRY(check_checkpoint(a));
    for (size_t i = 0; a->report && i < sizeof names / sizeof *names; i++) {
        char file[OMM_PATH_MAX];
        OMM_TRY(omm_path_join(file, a->report, names[i]));
        OMM_TRY(cli_check_written("--report", file, inputs));
        OMM_TRY(cli_check_written("--report", file, (const cli_input[]){{"--out", a->out}, {0}}));
        if (!a->dry_run) OMM_TRY(place_check_output(file, "--report"));
    }
    if (a->dry_run) return OMM_OK;
    OMM_TRY(place_check_output(a->out, "--out"));
    return a->checkpoint ? place_check_output(a->checkpoint, "--checkpoint") : OMM_OK;
}

/* A start has ranks and targets of its own, and refuses others. */
static omm_err check_patterns(train_run *r) {
    if (r->args.full) return OMM_OK;
    const omm_err err = omm_recipe_doubt(r->patterns_doubt, &r->recipe, &r->model.lora_shape);
    return r->has_start ? OMM_OK : err;
}

static void warn_of_patterns(const train_run *r) {
    const char *doubt = r->patterns_doubt;
    if (doubt[0])
        fprintf(stderr, "--%s-pattern%s\n", doubt[0] == 'r' ? "rank" : "alpha", strchr(doubt, ':'));
}

static omm_err open_parts(train_run *r) {
    omm_isa isa = OMM_ISA_SCALAR;
    OMM_TRY(check_out(&r->args));
    const char *kept = r->args.checkpoint;
    if (kept && !r->args.dry_run && !place_is_folder(kept)) /* a folder is refused as one */
        OMM_TRY(kept_run_check_there(kept, r->args.resume));
    if (r->args.full) OMM_TRY(train_full_check(&r->args));
    OMM_TRY(train_recipe(&r->recipe, &r->args));
    OMM_TRY(split_clients(r));
    OMM_TRY(omm_isa_choose(&isa, getenv("OMM_ISA")));
    OMM_TRY(cli_threads_parse(&r->threads, r->args.threads));
    OMM_TRY(open_model(r));
    OMM_TRY(train_start_open(r));
    OMM_TRY(load_data(r));
    OMM_TRY(check_patterns(r));
    OMM_TRY(load_model(r));
    OMM_TRY(cli_threads_measure(&r->threads, &r->model, isa, TRAIN_ROWS, OMM_ACTIVATIONS_F32));
    OMM_TRY(omm_pool_open(&r->pool, r->threads));
    OMM_TRY(omm_compute_init(&r->compute, r->pool, isa));
    if (r->args.full) return train_full_open(r);
    omm_trainer_options options = {.model = &r->model,
                                   .data = r->data,
                                   .recipe = &r->recipe,
                                   .compute = &r->compute,
                                   .seed = omm_seed_from_u64(r->args.seed),
                                   .start = r->has_start ? &r->start : NULL,
                                   .like_start = train_is_like_start(&r->args),
                                   .model_digest = r->base,
                                   .cancelled = kept_run_is_stopped,
                                   .micro_tokens = r->plan.micro_tokens,
                                   .checkpoint_layers = r->plan.checkpoint_layers,
                                   .cache_bytes_max = r->plan.cache};
    const omm_err err = omm_trainer_open(&r->trainer, &options);
    if (err != OMM_ERR_REFUSED_SHAPE) return err;
    return omm_raise(OMM_ERR_USAGE, "--start: %s", omm_err_sentence());
}

/* What is worth a thought is said once nothing is refused any more. */
static omm_err open_run(train_run *r) {
    OMM_TRY(train_say_option(open_parts(r), r->args.recipe));
    if (r->start_rounded)
        fprintf(stderr,
                "--start: scales times weights differ by no power of two: B was rounded once\n");
    warn_of_data(r);
    train_warn_of_rate(&r->recipe, "--warmup", "--steps", "--lr");
    if (r->args.answers_nothing)
        fprintf(stderr,
                "--new-tokens %u: nothing is held out (--eval FILE, --split X), so nothing is "
                "answered\n",
                r->args.new_tokens);
    warn_of_patterns(r);
    return OMM_OK;
}

static void close_run(train_run *r) {
    omm_file_out_close(&r->room);
    omm_course_close(r->course);
    omm_trainer_close(r->trainer);
    omm_full_close(r->full);
    omm_gguf_close(&r->like);
    if (r->has_start) omm_lora_fini(&r->start);
    omm_dataset_close(r->data);
    omm_dataset_close(r->eval);
    omm_tokenizer_close(r->tokenizer);
    omm_model_fini(&r->model);
    omm_compute_fini(&r->compute);
    omm_pool_close(r->pool);
    omm_free(r->items);
    omm_free(r->items_before);
    omm_free(r->client_text);
}

/* In the tensors of the model's own file.  Ranks that are too large for that keep q, k, v and gate, up
 * apart: the file runs here alone, and nothing trained is lost. */
static omm_err encode_adapter(omm_buf *file, const train_run *r, const omm_lora *adapter) {
    bool rounded = false;
    omm_err err = omm_lora_save_fused(file, &rounded, adapter, true);
    if (err == OMM_OK && rounded)
        fprintf(stderr,
                "%s: the model's file has q, k, v and gate, up in one tensor each, and these ranks "
                "differ by no power of two: B was multiplied and rounded once\n",
                r->args.out);
    if (err != OMM_ERR_TOO_BIG || !adapter->shape.fused) return err;
    fprintf(stderr, "%s: %s; written with q, k, v and gate, up apart, which runs here alone\n",
            r->args.out, omm_err_sentence());
    file->size = 0;
    return omm_lora_save(file, adapter);
}

static omm_err write_adapter(train_run *r, omm_digest *digest, const omm_lora *adapter) {
    omm_buf file;
    omm_buf_init(&file, (size_t)OMM_LORA_VALUES_MAX * 4);
    omm_err err = encode_adapter(&file, r, adapter);
    omm_file_out_close(&r->room);
    if (err == OMM_OK) err = omm_file_write(r->args.out, omm_buf_view(&file), 0644);
    *digest = omm_hash(omm_buf_view(&file));
    omm_buf_fini(&file);
    return err;
}

/* The file has one alpha: what pairs have more goes into B. */
static omm_err save(train_run *r, omm_digest *digest) {
    omm_mem_trim(); /* what the steps left free in the heap: the file takes as much */
    if (r->full) {
        omm_file_out_close(&r->room);
        return train_full_save(r, digest);
    }
    const omm_lora *adapter = omm_course_adapter(r->course);
    const float one = 1;
    bool rounded = false;
    omm_lora folded;
    if (omm_lora_is_uniform(adapter)) return write_adapter(r, digest, adapter);
    OMM_TRY(omm_lora_join(&folded, &rounded, &adapter, &one, 1, true));
    omm_err err = write_adapter(r, digest, &folded);
    omm_lora_fini(&folded);
    if (err == OMM_OK && rounded)
        fprintf(stderr,
                "%s: the file has one alpha, and these scales differ by no power of two: B was "
                "multiplied and rounded once\n",
                r->args.out);
    return err;
}

/* The folder is made now, so that what stands in its way is known before the work is done. */
static omm_err make_place(train_run *r, const char *file, const char *option) {
    OMM_ASSERT(r->place_count < TRAIN_PLACES_MAX);
    return place_make_output(&r->places[r->place_count++], file, option);
}

static omm_err make_report(train_run *r, const char *dir) {
    char file[OMM_PATH_MAX];
    if (!dir) return OMM_OK;
    OMM_TRY(omm_path_join(file, dir, "report.json"));
    OMM_TRY(make_place(r, file, "--report"));
    OMM_TRY(omm_path_join(file, dir, "report.html"));
    return place_make_output(NULL, file, "--report");
}

/* What the run will write can be written. */
static omm_err make_places(train_run *r) {
    const train_args *a = &r->args;
    OMM_TRY(make_report(r, a->report));
    OMM_TRY(make_place(r, a->out, "--out"));
    return a->checkpoint ? make_place(r, a->checkpoint, "--checkpoint") : OMM_OK;
}

/* Of a run that ended before its end no folder stays that it made and put nothing into. */
static void unmake_places(train_run *r) {
    while (r->place_count > 0) place_unmake(&r->places[--r->place_count]);
}

/* For the adapter, and what stands with it in its file; q, k, v in one tensor make B three times as large. */
static uint64_t adapter_bytes(const train_run *r) {
    const omm_lora *adapter = omm_course_adapter(r->course);
    const uint64_t values = adapter->value_count * (adapter->shape.fused ? 3 : 1);
    return values * sizeof(float) + adapter->tensor_count * TENSOR_BYTES + META_BYTES;
}

/* What is written at the end, and beside it what is written on the way, without which the run would end there. */
static omm_err hold_room(train_run *r) {
    const uint64_t bytes =
        r->full ? omm_quantise_bytes_least(r->args.type, r->plan.parameters) : adapter_bytes(r);
    OMM_TRY(place_hold_room(&r->room, r->args.out, "--out", bytes));
    if (r->recipe.steps < r->args.checkpoint_every) return OMM_OK; /* the last one may fail */
    return place_check_room(r->args.checkpoint, "--checkpoint", r->plan.checkpoint);
}

/* Known before hours are spent on it. */
static omm_err tell_cut_replies(train_run *r) {
    const uint32_t most = r->args.new_tokens;
    if (!r->eval || most == 0) return OMM_OK;
    OMM_TRY(omm_eval_replies_cut(&r->replies_cut, r->eval, r->tokenizer, most));
    if (r->replies_cut > 0)
        fprintf(stderr,
                "%zu of %zu held-out examples have a reply of more than %u tokens, which can never "
                "be exact: --new-tokens generates longer ones\n",
                r->replies_cut, omm_dataset_count(r->eval), most);
    return OMM_OK;
}

static omm_err judge_before(train_run *r) {
    OMM_TRY(tell_cut_replies(r));
    const omm_lora *start = r->has_start ? &r->start : NULL;
    const omm_err err = train_judge(r, &r->before, r->items_before, start);
    if (err == OMM_ERR_NUMERIC)
        return omm_raise(err, "%s before step 1, on %s: %s",
                         start ? r->args.start.items[0] : r->args.model,
                         r->args.eval ? r->args.eval : r->args.data, omm_err_sentence());
    if (err != OMM_ERR_CANCELLED) return err;
    const kept_run telling = {.json = r->args.json}; /* r->kept is not open yet */
    kept_run_tell_interrupted(&telling, 0, r->recipe.steps, NULL);
    return omm_raise(err, "stopped while judging what training begins with: nothing is written, "
                          "the same command begins again");
}

/* All weights as the file has them: its type rounds. */
static omm_err judge_file(train_run *r) {
    omm_gguf gguf;
    omm_model written;
    if (!r->eval) return OMM_OK;
    OMM_TRY(omm_gguf_open(&gguf, r->args.out));
    omm_err err = omm_model_load_with(&written, r->pool, &gguf);
    omm_gguf_close(&gguf);
    OMM_TRY(err);
    const omm_model trained = r->model;
    r->model = written;
    err = train_judge(r, &r->after, r->items, NULL);
    r->model = trained;
    omm_model_fini(&written);
    return err;
}

static omm_err judge_after(train_run *r) {
    const omm_err err = r->full
                            ? judge_file(r)
                            : train_judge(r, &r->after, r->items, omm_course_adapter(r->course));
    if (err != OMM_ERR_CANCELLED) return err;
    kept_run_tell_interrupted(&r->kept, r->recipe.steps, r->recipe.steps, r->args.out);
    return omm_raise(err, "stopped while judging what was trained: %s is written%s", r->args.out,
                     r->args.checkpoint ? "; the same command with --resume judges it again" : "");
}

static omm_err run_all(train_run *r) {
    omm_digest digest;
    OMM_TRY(open_run(r));
    if (r->args.dry_run) return train_dry_run(r);
    /* From here on the first signal ends the run in order, at its next micro-batch or held-out example. */
    OMM_TRY(kept_run_take_signals());
    OMM_TRY(make_places(r));
    /* All weights are those of the checkpoint once the course is open. */
    if (!r->full) OMM_TRY(train_course_open(r));
    OMM_TRY(hold_room(r));
    if (omm_file_exists(r->args.out)) fprintf(stderr, "--out replaces %s\n", r->args.out);
    OMM_TRY(judge_before(r));
    if (r->full) OMM_TRY(train_course_open(r));
    OMM_TRY(train_all(r));
    OMM_TRY(save(r, &digest));
    OMM_TRY(judge_after(r));
    energy_sample(&r->energy);
    json_t *result = NULL;
    OMM_TRY(train_result_json(&result, r, &digest));
    omm_err err = OMM_OK;
    if (r->args.json)
        err = train_print_json(result);
    else
        train_print_report(r);
    if (err == OMM_OK && r->args.report) err = train_report_write(r, result, r->args.report);
    json_decref(result);
    return err;
}

int cmd_train(int argc, char **argv) {
    train_run r = {.args = train_args_default(), .room.fd = -1};
    int code = train_parse(&r.args, argc, argv);
    if (code >= 0) return code;
    r.argc = argc;
    r.argv = argv;
    r.begin_ns = omm_measure_ns();
    const char *counters = getenv("OMM_ENERGY_FROM");
    energy_begin(&r.energy, counters ? counters : ENERGY_FOLDER);
    omm_err err = run_all(&r);
    if (err != OMM_OK) unmake_places(&r);
    close_run(&r);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail("train", err);
}

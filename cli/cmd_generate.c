/* cmd_generate.c - `meshmind generate`: continue a prompt, or answer it as a chat turn. */
#include "commands.h"
#include "decoding.h"
#include "places.h"

#include "omm/chat.h"
#include "omm/clock.h"
#include "omm/file.h"
#include "omm/json.h"
#include "omm/plain_text.h"
#include "omm/session_file.h"
#include "omm/stops.h"
#include "omm/utf8.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TOKENS_MAX (1u << 22)
#define PROMPT_BYTES_MAX (1u << 24) /* four for each of these tokens */

typedef struct generate_options {
    loaded_options common;
    decoding_options decoding;
    form_options form;
    const char *prompt; /* "-": standard input; NULL: `file` has it */
    const char *file, *system;
    cli_list stops;
    bool chat, no_think, special, json, stats;
    uint32_t count_max;
    omm_sampler sampler; /* without its lane */
    uint64_t seed;
} generate_options;

typedef struct generation {
    omm_buf asked; /* the prompt's text */
    omm_prompt prompt;
    omm_tokens ids; /* generated */
    omm_buf text;
    omm_buf fresh; /* characters that are not yet in `text`: they may begin a stop text */
    omm_stops stops;
    const char *stop;
    omm_grammar *grammar; /* NULL: any text */
    uint32_t restored;    /* tokens that a session file brought */
    uint32_t reused;      /* tokens that were not computed again */
    bool speculated;
    omm_speculator_stats drafts;
    uint64_t prefill_ns, decode_ns;
} generation;

static omm_sampler sampler_of(const generate_options *o) {
    const omm_seed seed = omm_seed_from_u64(o->seed);
    omm_sampler sampler = o->sampler;
    sampler.rng = omm_rng_init(&seed, OMM_PURPOSE_SAMPLE, 0, 0);
    return sampler;
}

/* What is wrong whatever the model is, before anybody waits for it. */
static omm_err check_options(const generate_options *o) {
    const omm_sampler sampler = sampler_of(o);
    const bool goes_on = o->common.session && !o->chat && omm_file_exists(o->common.session);
    if (o->prompt ? o->file != NULL : !o->file && !goes_on)
        return omm_raise(OMM_ERR_USAGE, "%s: PROMPT, - for standard input, or -f FILE%s",
                         o->file ? "two prompts, give one" : "which prompt?",
                         o->common.session && !o->file
                             ? "; a text goes on without one where --session's file is there"
                             : "");
    if (o->system && !o->chat)
        return omm_raise(OMM_ERR_USAGE, "--system: together with --chat, a text has no turns");
    if (o->no_think && !o->chat)
        return omm_raise(OMM_ERR_USAGE, "--no-think: together with --chat, a text has no thoughts");
    OMM_TRY(decoding_check_sampling(&sampler));
    if (o->common.session && o->chat)
        return omm_raise(OMM_ERR_USAGE, "--session continues a text; --chat begins a conversation");
    return decoding_check(&o->decoding);
}

static omm_err read_input(omm_buf *out) {
    char piece[4096];
    size_t size = 0;
    while ((size = fread(piece, 1, sizeof piece, stdin)) > 0) {
        if (out->size + size > PROMPT_BYTES_MAX)
            return omm_raise(OMM_ERR_TOO_BIG, "a prompt on standard input of more than %u bytes",
                             PROMPT_BYTES_MAX);
        OMM_TRY(omm_buf_append(out, piece, size));
    }
    return ferror(stdin) ? omm_raise(OMM_ERR_IO, "cannot read standard input: %s", strerror(errno))
                         : OMM_OK;
}

/* All of it, to the last line end; a byte order mark is no part of the text, here as in training.  Without a prompt a
 * session's text goes on as it stands. */
static omm_err read_prompt(generation *g, const generate_options *o) {
    if (!o->file && !o->prompt) return OMM_OK;
    if (!o->file && strcmp(o->prompt, "-") != 0)
        return omm_buf_append(&g->asked, o->prompt, strlen(o->prompt));
    OMM_TRY(o->file ? omm_file_read(&g->asked, o->file) : read_input(&g->asked));
    const omm_bytes text = omm_utf8_without_mark(omm_buf_view(&g->asked));
    if (text.size > 0) memmove(g->asked.data, text.data, text.size);
    g->asked.size = text.size;
    return OMM_OK;
}

static omm_err make_prompt(generation *g, const loaded *l, const generate_options *o) {
    if (!o->chat) {
        unsigned flags = o->special ? OMM_TOKENIZE_SPECIAL : 0u;
        if (g->restored == 0) flags |= OMM_TOKENIZE_BOS;
        OMM_TRY(
            omm_tokenizer_encode(&g->prompt.tokens, l->tokenizer, omm_buf_view(&g->asked), flags));
    } else {
        omm_message messages[2];
        size_t n = 0;
        if (o->system)
            messages[n++] =
                (omm_message){.role = OMM_ROLE_SYSTEM, .content = omm_bytes_str(o->system)};
        messages[n++] = (omm_message){.role = OMM_ROLE_USER, .content = omm_buf_view(&g->asked)};
        OMM_TRY(omm_chat_render(&g->prompt, l->tokenizer, messages, n,
                                o->no_think || g->grammar ? OMM_CHAT_AT_ONCE : OMM_CHAT_ANSWER));
    }
    if (g->prompt.tokens.count == 0 && g->restored == 0)
        return omm_raise(
            OMM_ERR_USAGE,
            "the prompt is empty, and the model's file asks for no begin token (add_bos_token)");
    const uint32_t most = omm_session_positions_max(l->session);
    if (g->prompt.tokens.count <= most - g->restored) return OMM_OK;
    char after[48] = "", more[CLI_MEMORY_MORE_MAX];
    if (g->restored > 0) snprintf(after, sizeof after, " after %u of a session", g->restored);
    cli_memory_more(more, &l->memory, l->model.dims.context);
    return omm_raise(OMM_ERR_TOO_BIG, "a prompt of %zu tokens%s: the context holds %u; %s",
                     g->prompt.tokens.count, after, most, more);
}

static double per_second(size_t tokens, uint64_t ns) {
    return ns ? (double)tokens * 1e9 / (double)ns : 0.0;
}

/* After the point: a streamed model gives a token in seconds. */
static int digits(double rate) {
    return rate < 10.0 ? 2 : 0;
}

/* A model that nobody trusts may write what moves a terminal's cursor or sets its title; a file gets its bytes. */
static omm_err put_plain(omm_bytes text) {
    omm_buf clean;
    omm_buf_init(&clean, SIZE_MAX / 2);
    const omm_err err = omm_text_clean(&clean, text);
    if (err == OMM_OK) fwrite(clean.data, 1, clean.size, stdout);
    omm_buf_fini(&clean);
    return err;
}

/* What has become whole characters since the last call. */
static omm_err emit(generation *g, const generate_options *o, size_t from) {
    if (o->json || g->text.size == from) return OMM_OK;
    const omm_bytes text = omm_bytes_of(g->text.data + from, g->text.size - from);
    if (isatty(STDOUT_FILENO))
        OMM_TRY(put_plain(text));
    else
        fwrite(text.data, 1, text.size, stdout);
    if (fflush(stdout) == 0) return OMM_OK;
    return omm_raise(OMM_ERR_IO, "cannot write the output: %s", strerror(errno));
}

static omm_err take(generation *g, loaded *l, const generate_options *o, omm_detok *detok,
                    uint32_t id) {
    const size_t before = g->text.size;
    OMM_TRY(omm_tokens_push(&g->ids, id));
    omm_buf_clear(&g->fresh);
    OMM_TRY(omm_detok_push(&g->fresh, detok, l->tokenizer, id,
                           o->special ? OMM_DETOKENIZE_SPECIAL : 0u));
    OMM_TRY(omm_stops_push(&g->text, &g->stops, omm_buf_view(&g->fresh)));
    return emit(g, o, before);
}

/* The end of the text: what was held back as part of a character or of a stop text. */
static omm_err finish(generation *g, const generate_options *o, omm_detok *detok) {
    const size_t before = g->text.size;
    omm_buf_clear(&g->fresh);
    OMM_TRY(omm_detok_flush(&g->fresh, detok));
    OMM_TRY(omm_stops_push(&g->text, &g->stops, omm_buf_view(&g->fresh)));
    OMM_TRY(omm_stops_flush(&g->text, &g->stops));
    return emit(g, o, before);
}

/* The chat's own stand beside the user's; what has to be JSON ends where it is whole, and may have them in its strings. */
static omm_err add_chat_stops(generation *g, const loaded *l) {
    size_t count = 0;
    if (g->grammar) return OMM_OK;
    const char *const *texts = omm_chat_stops(&count, l->tokenizer);
    for (size_t i = 0; i < count; i++) OMM_TRY(omm_stops_add(&g->stops, omm_bytes_str(texts[i])));
    return OMM_OK;
}

/* The first Ctrl-C ends the text, so that it is written and kept whole; the next ends the program. */
static volatile sig_atomic_t s_interrupt;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    s_interrupt = 1;
}

/* What is said is kept in the session's file: where that has no room for one more, none is said. */
static bool file_is_full(const decoding *d, const generate_options *o) {
    return o->common.session &&
           decoding_position(d) + d->pending >= omm_session_positions_max(d->l->session);
}

static omm_err decode(generation *g, decoding *d, const generate_options *o, omm_detok *detok) {
    loaded *l = d->l;
    g->stop = "length";
    for (uint32_t i = 0; i < o->count_max; i++) {
        uint32_t id = 0;
        if (s_interrupt) {
            g->stop = "interrupt";
            break;
        }
        if (file_is_full(d, o)) {
            g->stop = "context";
            break;
        }
        OMM_TRY(decoding_next(d, &id));
        if (omm_tokenizer_is_end(l->tokenizer, id)) {
            g->stop = "end";
            break;
        }
        OMM_TRY(take(g, l, o, detok, id));
        if (g->stops.stopped) {
            g->stop = "text";
            break;
        }
        if (decoding_position(d) == omm_session_positions_max(l->session)) {
            g->stop = "context";
            break;
        }
    }
    if (d->sp) g->drafts = omm_speculator_stats_of(d->sp);
    g->speculated = d->sp != NULL;
    return finish(g, o, detok);
}

/* A session may have ended inside a character: what is said next completes it. */
static omm_err hold_character(generation *g, omm_detok *detok, const loaded *l,
                              const omm_tokens *before) {
    const size_t most = sizeof detok->pending;
    for (size_t i = before->count > most ? before->count - most : 0; i < before->count; i++) {
        omm_buf_clear(&g->fresh);
        OMM_TRY(omm_detok_push(&g->fresh, detok, l->tokenizer, before->ids[i], 0));
    }
    return OMM_OK;
}

/* What the session file has, then the prompt. */
static omm_err start(generation *g, decoding *d, omm_detok *detok) {
    omm_tokens ids;
    omm_tokens_init(&ids, TOKENS_MAX);
    omm_err err = OMM_OK;
    for (uint32_t i = 0; i < g->restored && err == OMM_OK; i++)
        err = omm_tokens_push(&ids, omm_session_ids(d->l->session)[i]);
    for (size_t i = 0; i < g->prompt.tokens.count && err == OMM_OK; i++)
        err = omm_tokens_push(&ids, g->prompt.tokens.ids[i]);
    if (err == OMM_OK && g->restored > 0) err = hold_character(g, detok, d->l, &ids);
    if (err == OMM_OK) err = decoding_start(d, ids.ids, ids.count);
    g->reused = omm_session_reused(d->l->session);
    omm_tokens_fini(&ids);
    return err;
}

static omm_err run_decoding(generation *g, decoding *d, const generate_options *o) {
    const uint64_t begin = omm_measure_ns();
    const struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    omm_detok detok = {.first = o->chat};
    if (o->common.session) sigaction(SIGINT, &action, NULL); /* the prompt is kept, too */
    OMM_TRY(start(g, d, &detok));
    sigaction(SIGINT, &action, NULL);
    const uint64_t middle = omm_measure_ns();
    g->prefill_ns = middle - begin;
    OMM_TRY(decode(g, d, o, &detok));
    g->decode_ns = omm_measure_ns() - middle;
    return o->common.session ? decoding_settle(d) : OMM_OK;
}

static omm_err generate(generation *g, loaded *l, const generate_options *o) {
    const omm_sampler sampler = sampler_of(o);
    decoding_options how = o->decoding;
    decoding d;
    how.grammar = g->grammar;
    if (o->chat) cli_warn_template(l->tokenizer);
    if (o->no_think) cli_warn_thinking(l->tokenizer);
    if (o->chat) OMM_TRY(add_chat_stops(g, l));
    OMM_TRY(make_prompt(g, l, o));
    omm_err err = decoding_open(&d, l, &o->common, &how, &sampler);
    if (err == OMM_OK) err = run_decoding(g, &d, o);
    decoding_close(&d);
    return err;
}

/* With a file: go on from it if it is there, and leave the longer session in it.  A new one is begun
 * before the text, so that a place where it cannot be is known at once. */
static omm_err generate_in_session(generation *g, loaded *l, const generate_options *o) {
    omm_digest model;
    if (!o->common.session) return generate(g, l, o);
    OMM_TRY(loaded_digest(&model, &o->common));
    const bool is_there = omm_file_exists(o->common.session);
    if (!is_there) {
        OMM_TRY(place_make_output(NULL, o->common.session, "--session"));
        OMM_TRY(omm_session_save(l->session, o->common.session, &model, (omm_bytes){0}));
    }
    OMM_TRY(session_lock_take(&l->lock, o->common.session));
    if (is_there) OMM_TRY(omm_session_load(l->session, o->common.session, &model, NULL));
    g->restored = omm_session_position(l->session);
    OMM_TRY(generate(g, l, o));
    return omm_session_save(l->session, o->common.session, &model, (omm_bytes){0});
}

static json_t *drafts_json(const generation *g) {
    if (!g->speculated) return NULL;
    return json_pack("{s:I, s:I, s:I}", "steps", (json_int_t)g->drafts.steps, "proposed",
                     (json_int_t)g->drafts.drafted, "accepted", (json_int_t)g->drafts.accepted);
}

static omm_err report_json(const generation *g, const loaded *l, const generate_options *o) {
    json_t *ids = json_array();
    for (size_t i = 0; i < g->ids.count; i++)
        json_array_append_new(ids, json_integer(g->ids.ids[i]));
    json_t *report = json_pack(
        "{s:i, s:s%, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:o, s:o*, s:{s:f, s:f}}",
        "schema_version", 1, "text", g->text.size ? (const char *)g->text.data : "", g->text.size,
        "ids", ids, "stop", g->stop, "restored_tokens", (json_int_t)g->restored, "reused_tokens",
        (json_int_t)g->reused, "prompt_tokens", (json_int_t)g->prompt.tokens.count,
        "generated_tokens", (json_int_t)g->ids.count, "seed", (json_int_t)o->seed, "activations",
        omm_activations_name(l->activations), "isa", omm_isa_name(l->compute.isa), "memory",
        cli_memory_json(&l->memory), "drafts", drafts_json(g), "measured",
        "prefill_tokens_per_second", per_second(g->prompt.tokens.count, g->prefill_ns),
        "decode_tokens_per_second", per_second(g->ids.count, g->decode_ns));
    omm_buf out;
    omm_buf_init(&out, SIZE_MAX / 2);
    omm_err err = report ? omm_json_write(&out, report)
                         : omm_raise(OMM_ERR_FORMAT, "the generated text is not UTF-8");
    if (err == OMM_OK) fwrite(out.data, 1, out.size, stdout);
    omm_buf_fini(&out);
    json_decref(report);
    return err;
}

static void tell_speeds(const generation *g, const loaded *l) {
    const double prefill = per_second(g->prompt.tokens.count, g->prefill_ns);
    const double decode = per_second(g->ids.count, g->decode_ns);
    fprintf(stderr,
            "prompt %zu tokens at %.*f tokens/s, %u of a session, generated %zu at %.*f "
            "tokens/s, stop: %s, %s, activations %s\n",
            g->prompt.tokens.count, digits(prefill), prefill, g->reused, g->ids.count,
            digits(decode), decode, g->stop, omm_isa_name(l->compute.isa),
            omm_activations_name(l->activations));
    if (g->speculated)
        fprintf(stderr, "proposals: %llu of %llu right, in %llu batches\n",
                (unsigned long long)g->drafts.accepted, (unsigned long long)g->drafts.drafted,
                (unsigned long long)g->drafts.steps);
}

static omm_err report(const generation *g, const loaded *l, const generate_options *o) {
    if (!o->json) printf("\n");
    (void)fflush(stdout); /* where both streams are one file, speeds come after the text */
    if (o->stats) tell_speeds(g, l);
    return o->json ? report_json(g, l, o) : OMM_OK;
}

static omm_err load_and_generate(generation *g, loaded *l, const generate_options *o) {
    for (uint32_t i = 0; i < o->stops.count; i++)
        OMM_TRY(omm_stops_add(&g->stops, omm_bytes_str(o->stops.items[i])));
    OMM_TRY(decoding_read_form(&g->grammar, &o->form));
    OMM_TRY(read_prompt(g, o));
    OMM_TRY(loaded_open(l, &o->common, true));
    OMM_TRY(generate_in_session(g, l, o));
    return report(g, l, o);
}

/* Fewer tokens than were asked for, and the text does not show why. */
static void tell_full(const generation *g, const loaded *l, const generate_options *o) {
    char more[CLI_MEMORY_MORE_MAX];
    if (strcmp(g->stop, "context") != 0 || g->ids.count == o->count_max) return;
    cli_memory_more(more, &l->memory, l->model.dims.context);
    fprintf(stderr, "ends after %zu of %u tokens: the context of %u positions is full; %s\n",
            g->ids.count, o->count_max, omm_session_positions_max(l->session), more);
}

static omm_err run(const generate_options *o) {
    loaded l = {0};
    generation g = {.stop = "length"};
    omm_buf_init(&g.asked, PROMPT_BYTES_MAX);
    omm_prompt_init(&g.prompt, TOKENS_MAX);
    omm_tokens_init(&g.ids, TOKENS_MAX);
    omm_buf_init(&g.text, SIZE_MAX / 2);
    omm_buf_init(&g.fresh, OMM_TOKENIZER_TEXT_MAX);
    omm_stops_init(&g.stops);
    omm_err err = check_options(o);
    if (err == OMM_OK) err = load_and_generate(&g, &l, o);
    if (err == OMM_OK) tell_full(&g, &l, o);
    if (err == OMM_OK && s_interrupt)
        err = omm_raise(OMM_ERR_CANCELLED, "stopped after %zu tokens%s%s", g.ids.count,
                        o->common.session ? "; kept in " : "",
                        o->common.session ? o->common.session : "");
    loaded_close(&l);
    omm_buf_fini(&g.asked);
    omm_prompt_fini(&g.prompt);
    omm_tokens_fini(&g.ids);
    omm_buf_fini(&g.text);
    omm_buf_fini(&g.fresh);
    omm_stops_fini(&g.stops);
    omm_grammar_close(g.grammar);
    return err;
}

int cmd_generate(int argc, char **argv) {
    generate_options o = {.common = {.activations = "q8", .kv_default = "f16"},
                          .count_max = 128,
                          .sampler = omm_sampler_default(),
                          .seed = 1};
    const cli_option options[] = {
        LOADED_OPTIONS(o.common, "", "q8", "f16"),
        {"file", 'f', CLI_STR, &o.file, "FILE",
         "the prompt is what FILE has, to its last line end"},
        {"chat", 0, CLI_FLAG, &o.chat, NULL,
         "PROMPT is a user's turn, written as the model's chat template has it"},
        {"system", 0, CLI_STR, &o.system, "TEXT", "system turn in front; with --chat"},
        NO_THINK_OPTION(o.no_think),
        {"count", 'n', CLI_U32, &o.count_max, "N", "tokens to generate at most (128)"},
        SAMPLING_OPTIONS(o.sampler),
        {"seed", 0, CLI_U64, &o.seed, "N", "seed of the draws (1)"},
        {"stop", 0, CLI_LIST, &o.stops, "TEXT", "end where TEXT would begin; up to 32 of them"},
        FORM_OPTIONS(o.form),
        DECODING_OPTIONS(o.decoding),
        {"session", 0, CLI_STR, &o.common.session, "FILE",
         "go on from FILE if it is there, then without PROMPT, too; save tokens and cache to it at "
         "the end"},
        {"special", 0, CLI_FLAG, &o.special, NULL, "read and write control tokens by name"},
        {"stats", 0, CLI_FLAG, &o.stats, NULL, "speeds on stderr at the end"},
        {"json", 0, CLI_FLAG, &o.json, NULL, "one JSON object at the end"},
        {0}};
    int count = 0;
    char **args = NULL;
    int code =
        cli_parse(&count, &args, argc, argv, options, "generate -m MODEL [options] [PROMPT|-]",
                  "Continue PROMPT; -: standard input, all of it.  Equal seeds give equal text, on "
                  "every machine and for\n"
                  "any number of threads.",
                  0, 1);
    if (code >= 0) return code;
    o.prompt = count > 0 ? args[0] : NULL;
    o.common.draft = o.decoding.draft;
    o.common.logit_rows = decoding_logit_rows(&o.decoding);
    o.common.lexicon = decoding_has_form(&o.form);
    omm_err err = run(&o);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail(argv[0], err);
}

/* cmd_perplexity.c - `meshmind perplexity`: how well a model predicts a text. */
#include "commands.h"
#include "loaded.h"

#include "omm/file.h"
#include "omm/json.h"
#include "omm/mathd.h"
#include "omm/mem.h"
#include "omm/utf8.h"

#include <stdio.h>
#include <string.h>

typedef struct perplexity_options {
    loaded_options common;
    const char *file;
    const char *separator;
    uint32_t window;
    bool special, json;
} perplexity_options;

typedef struct score {
    double sum;       /* negative log likelihood, nats */
    uint64_t count;   /* predicted tokens */
    uint64_t tokens;  /* of the text */
    uint32_t window;  /* most tokens that share a context */
    uint64_t windows; /* sequences that began with an empty context */
    bool has_bos;     /* each window begins with the begin token, as the file asks for it */
    uint32_t *ids;    /* (window) of one */
    float *each;      /* (window) loss of each but the first */
} score;

/* `given`: ids at its beginning that are context alone, 1 or 2. */
static omm_err score_window(score *s, loaded *l, size_t count, size_t given) {
    double sum = 0.0;
    if (count <= given) return OMM_OK;
    omm_session_truncate(l->session, 0);
    OMM_TRY(omm_session_nll(&sum, s->each, l->session, s->ids, count));
    s->sum += given == 1 ? sum : sum - (double)s->each[0];
    s->count += count - given;
    s->windows++;
    return OMM_OK;
}

/* Tokens first .. end, a document or all, in windows that do not overlap.  A model that has learned to read behind BOS is far
 * from itself without it (attention's sink), so BOS is in front of each window, not of the first alone; but only what begins
 * the document is predicted from it, as nothing else has ever stood there. */
static omm_err score_ids(score *s, loaded *l, const omm_tokens *ids, size_t first, size_t end,
                         uint32_t window) {
    const size_t bos = s->has_bos ? 1 : 0, step = window - bos;
    for (size_t i = first; i < end; i += step) {
        const size_t count = end - i < step ? end - i : step;
        if (bos) s->ids[0] = omm_tokenizer_bos(l->tokenizer);
        memcpy(s->ids + bos, ids->ids + i, count * sizeof *s->ids);
        OMM_TRY(score_window(s, l, bos + count, bos && i > first ? 2 : 1));
    }
    return OMM_OK;
}

/* A document ends with its separator token, which is predicted too. */
static omm_err score_documents(score *out, loaded *l, const omm_tokens *ids, uint32_t separator,
                               uint32_t window) {
    size_t first = 0;
    for (size_t i = 0; i < ids->count; i++) {
        if (ids->ids[i] != separator) continue;
        OMM_TRY(score_ids(out, l, ids, first, i + 1, window));
        first = i + 1;
    }
    return score_ids(out, l, ids, first, ids->count, window);
}

/* Empties `text`, which may be as large as a small model. */
static omm_err read_ids(omm_tokens *ids, const loaded *l, const perplexity_options *o,
                        omm_buf *text) {
    unsigned flags = 0;
    if (o->special || o->separator) flags |= OMM_TOKENIZE_SPECIAL;
    omm_err err =
        omm_tokenizer_encode(ids, l->tokenizer, omm_utf8_without_mark(omm_buf_view(text)), flags);
    omm_buf_fini(text);
    return err;
}

static omm_err score_text(score *out, loaded *l, const perplexity_options *o, omm_buf *text,
                          omm_tokens *ids) {
    const uint32_t most = omm_session_positions_max(l->session);
    const uint32_t window = o->window ? o->window : most;
    if (window < 2 || window > most) {
        char more[CLI_MEMORY_MORE_MAX];
        cli_memory_more(more, &l->memory, l->model.dims.context);
        return omm_raise(OMM_ERR_USAGE, "--window %u: the context holds %u; %s", window, most,
                         more);
    }
    out->window = window;
    OMM_TRY(read_ids(ids, l, o, text));
    out->tokens = ids->count;
    out->has_bos = omm_tokenizer_adds_bos(l->tokenizer);
    if (out->has_bos && window < 3)
        return omm_raise(OMM_ERR_USAGE,
                         "--window %u: must be at least 3, as the file asks for a begin token "
                         "(add_bos_token)",
                         window);
    out->ids = omm_alloc(window, sizeof *out->ids);
    out->each = omm_alloc(window, sizeof *out->each);
    if (!out->ids || !out->each)
        return omm_raise(OMM_ERR_NOMEM, "no memory for a window of %u tokens", window);
    if (!o->separator) return score_ids(out, l, ids, 0, ids->count, window);
    uint32_t separator = omm_tokenizer_special(l->tokenizer, o->separator);
    if (separator == OMM_TOKEN_NONE)
        return omm_raise(
            OMM_ERR_USAGE,
            "--separator '%s': the vocabulary has no such token; accepted: one that is "
            "no text, as <|endoftext|> or <|im_end|> where the model has them",
            o->separator);
    return score_documents(out, l, ids, separator, window);
}

static uint32_t asked_window(const loaded *l, const perplexity_options *o) {
    return o->window ? o->window : l->memory.asked;
}

/* Memory may have made it another judge: a figure of a shorter window or a smaller cache is no measure of the model. */
static bool is_as_asked(const loaded *l, const perplexity_options *o, const score *s) {
    return s->window == asked_window(l, o) && l->memory.plan.session.kv_type == l->memory.asked_kv;
}

static void print_text(const loaded *l, const perplexity_options *o, const score *s, double loss) {
    const char *kv = omm_kv_type_name(l->memory.plan.session.kv_type);
    printf("loss %.6f nats per token, perplexity %.4f, %llu of %llu tokens predicted, %llu windows "
           "of up to %u tokens, cache %s, activations %s\n",
           loss, omm_exp_d(loss), (unsigned long long)s->count, (unsigned long long)s->tokens,
           (unsigned long long)s->windows, s->window, kv, omm_activations_name(l->activations));
    if (is_as_asked(l, o, s)) return;
    printf("not as asked (windows of up to %u tokens, cache %s), for which memory is too little: "
           "compare it only with figures of --window %u --kv %s\n",
           asked_window(l, o), omm_kv_type_name(l->memory.asked_kv), s->window, kv);
}

static omm_err print_json(const loaded *l, const perplexity_options *o, const score *s,
                          double loss) {
    json_t *asked = json_pack("{s:I, s:s}", "window", (json_int_t)asked_window(l, o), "kv",
                              omm_kv_type_name(l->memory.asked_kv));
    json_t *report = json_pack(
        "{s:i, s:f, s:f, s:I, s:I, s:I, s:I, s:s, s:o, s:b, s:s, s:s, s:o}", "schema_version", 1,
        "loss", loss, "perplexity", omm_exp_d(loss), "predicted", (json_int_t)s->count, "tokens",
        (json_int_t)s->tokens, "windows", (json_int_t)s->windows, "window", (json_int_t)s->window,
        "kv", omm_kv_type_name(l->memory.plan.session.kv_type), "asked", asked, "as_asked",
        is_as_asked(l, o, s), "activations", omm_activations_name(l->activations), "isa",
        omm_isa_name(l->compute.isa), "memory", cli_memory_json(&l->memory));
    omm_buf out;
    omm_buf_init(&out, 1 << 16);
    omm_err err = omm_json_write(&out, report);
    if (err == OMM_OK) fwrite(out.data, 1, out.size, stdout);
    omm_buf_fini(&out);
    json_decref(report);
    return err;
}

static omm_err print_score(const loaded *l, const perplexity_options *o, const score *s) {
    if (s->count == 0) return omm_raise(OMM_ERR_SIZE, "the text has no token to predict");
    const double loss = s->sum / (double)s->count;
    if (o->json) return print_json(l, o, s, loss);
    print_text(l, o, s, loss);
    return OMM_OK;
}

static omm_err load_and_score(score *s, loaded *l, const perplexity_options *o, omm_buf *text) {
    omm_tokens ids;
    omm_tokens_init(&ids, (size_t)OMM_TOKENIZER_TEXT_MAX + 1);
    loaded_options common = o->common;
    common.positions_min = o->window;
    common.logit_rows = omm_session_options_default().batch_max;
    omm_err err = loaded_open(l, &common, true);
    if (err == OMM_OK) err = score_text(s, l, o, text, &ids);
    if (err == OMM_OK) err = print_score(l, o, s);
    omm_tokens_fini(&ids);
    return err;
}

/* A vocabulary of bytes takes anything, and a figure of UTF-16 or a picture looks like one of a text. */
static void warn_of_bytes(const char *file, omm_bytes text) {
    size_t line = 1, begin = 0;
    for (size_t i = 0; i < text.size;) {
        const unsigned size = omm_utf8_size(text.data + i, text.size - i);
        if (size == 0 || text.data[i] == 0) {
            fprintf(stderr, "%s:%zu:%zu: byte 0x%02x is not UTF-8 text; is this a text file?\n",
                    file, line, i - begin + 1, text.data[i]);
            return;
        }
        if (text.data[i] == '\n') {
            line++;
            begin = i + 1;
        }
        i += size;
    }
}

/* The text comes first: nobody waits for a model to hear that there is none. */
static omm_err run(const perplexity_options *o) {
    if (!o->file) return omm_raise(OMM_ERR_USAGE, "which text? give -f FILE");
    if (o->window == 1) return omm_raise(OMM_ERR_USAGE, "--window 1: must be at least 2");
    if (o->common.positions == 1) return omm_raise(OMM_ERR_USAGE, "-c 1: must be at least 2");
    if (o->common.positions > 0 && o->window > o->common.positions)
        return omm_raise(OMM_ERR_USAGE, "--window %u: -c %u holds less", o->window,
                         o->common.positions);
    loaded l = {0};
    score s = {0};
    omm_buf text;
    omm_buf_init(&text, OMM_TOKENIZER_TEXT_MAX);
    omm_err err = omm_file_read(&text, o->file);
    if (err == OMM_OK) warn_of_bytes(o->file, omm_buf_view(&text));
    if (err == OMM_OK) err = load_and_score(&s, &l, o, &text);
    omm_free(s.each);
    omm_free(s.ids);
    loaded_close(&l);
    omm_buf_fini(&text);
    return err;
}

int cmd_perplexity(int argc, char **argv) {
    perplexity_options o = {.common = {.activations = "f32", .kv_default = "f32"}};
    const cli_option options[] = {
        LOADED_OPTIONS(o.common, "", "f32", "f32"),
        {"file", 'f', CLI_STR, &o.file, "FILE", "text to predict"},
        {"separator", 0, CLI_STR, &o.separator, "TOKEN",
         "a token that ends a document: no context across it"},
        {"window", 0, CLI_COUNT, &o.window, "N", "tokens that share a context (as many as -c)"},
        {"special", 0, CLI_FLAG, &o.special, NULL, "read <|im_end|> and the like as their tokens"},
        {"json", 0, CLI_FLAG, &o.json, NULL, "one JSON object"},
        {0}};
    int count = 0;
    char **args = NULL;
    int code =
        cli_parse(&count, &args, argc, argv, options, "perplexity -m MODEL -f TEXT",
                  "Mean negative log likelihood of a text, in windows that start from an\n"
                  "empty context and do not overlap; the first token of a window is not\n"
                  "predicted, every other one is.  Where the file says add_bos_token, BOS\n"
                  "stands in front of each window, and what begins the text (or a document,\n"
                  "with --separator) is predicted, too.  llama-perplexity gives another\n"
                  "figure: it predicts the second half of each window alone, with the first\n"
                  "as context, puts BOS in place of each window's first token where\n"
                  "the file says so, and drops a last, shorter window.",
                  0, 0);
    if (code >= 0) return code;
    omm_err err = run(&o);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail(argv[0], err);
}

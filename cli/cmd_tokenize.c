/* cmd_tokenize.c - `meshmind tokenize`: the token ids of a text. */
#include "commands.h"
#include "loaded.h"
#include "options.h"

#include "omm/clock.h"
#include "omm/file.h"
#include "omm/json.h"
#include "omm/tokenizer.h"
#include "omm/utf8.h"

#include <stdio.h>
#include <string.h>

typedef struct tokenize_options {
    const char *model;
    const char *file;
    const char *text;
    bool bos, special, plain, json;
} tokenize_options;

/* A byte order mark is no part of a file's text, here as in training. */
static omm_err read_input(omm_buf *out, const tokenize_options *o) {
    if (o->text) return omm_buf_printf(out, "%s", o->text);
    OMM_TRY(omm_file_read(out, o->file));
    const omm_bytes text = omm_utf8_without_mark(omm_buf_view(out));
    if (text.size > 0) memmove(out->data, text.data, text.size);
    out->size = text.size;
    return OMM_OK;
}

static void print_line(const omm_tokens *ids) {
    for (size_t i = 0; i < ids->count; i++) printf("%s%u", i > 0 ? " " : "", ids->ids[i]);
    printf("\n");
}

static omm_err print_json(const omm_tokens *ids, const omm_tokenizer *tokenizer, size_t bytes,
                          uint64_t ns) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest digest = omm_tokenizer_digest(tokenizer);
    omm_digest_hex(hex, &digest);
    json_t *list = json_array();
    for (size_t i = 0; i < ids->count; i++) json_array_append_new(list, json_integer(ids->ids[i]));
    json_t *report = json_pack(
        "{s:i, s:I, s:I, s:I, s:s, s:o, s:{s:f}}", "schema_version", 1, "bytes", (json_int_t)bytes,
        "count", (json_int_t)ids->count, "vocabulary", (json_int_t)omm_tokenizer_vocab(tokenizer),
        "tokenizer_digest", hex, "ids", list, "measured", "encode_seconds", (double)ns / 1e9);
    omm_buf out;
    omm_buf_init(&out, SIZE_MAX / 2);
    omm_err err = omm_json_write(&out, report);
    if (err == OMM_OK) fwrite(out.data, 1, out.size, stdout);
    omm_buf_fini(&out);
    json_decref(report);
    return err;
}

static omm_err encode(const tokenize_options *o, const omm_tokenizer *tokenizer) {
    omm_buf text;
    omm_tokens ids;
    omm_buf_init(&text, OMM_TOKENIZER_TEXT_MAX);
    omm_tokens_init(&ids, (size_t)OMM_TOKENIZER_TEXT_MAX + 1);
    unsigned flags = (o->bos ? OMM_TOKENIZE_BOS : 0u) | (o->special ? OMM_TOKENIZE_SPECIAL : 0u) |
                     (o->plain ? OMM_TOKENIZE_PLAIN : 0u);
    omm_err err = o->special && o->plain
                      ? omm_raise(OMM_ERR_USAGE, "--special and --plain: one of them")
                      : read_input(&text, o);
    uint64_t start = omm_measure_ns();
    if (err == OMM_OK) err = omm_tokenizer_encode(&ids, tokenizer, omm_buf_view(&text), flags);
    uint64_t ns = omm_measure_ns() - start;
    if (err == OMM_OK && o->json)
        err = print_json(&ids, tokenizer, text.size, ns);
    else if (err == OMM_OK)
        print_line(&ids);
    omm_buf_fini(&text);
    omm_tokens_fini(&ids);
    return err;
}

static omm_err run(const tokenize_options *o) {
    if (!o->model) return omm_raise(OMM_ERR_USAGE, "which model? give -m FILE");
    if (!o->file == !o->text)
        return omm_raise(OMM_ERR_USAGE, "give the text with --file or with --text, one of the two");
    omm_gguf gguf;
    omm_tokenizer *tokenizer = NULL;
    OMM_TRY(omm_gguf_open(&gguf, o->model));
    omm_err err = cli_of_file(omm_tokenizer_open(&tokenizer, &gguf), "-m", o->model);
    if (err == OMM_OK) cli_warn_words(tokenizer);
    if (err == OMM_OK) err = encode(o, tokenizer);
    omm_tokenizer_close(tokenizer);
    omm_gguf_close(&gguf);
    return err;
}

int cmd_tokenize(int argc, char **argv) {
    tokenize_options o = {0};
    const cli_option options[] = {
        {"model", 'm', CLI_STR, &o.model, "FILE", "GGUF file with the vocabulary"},
        {"file", 'f', CLI_STR, &o.file, "FILE",
         "text to encode, without a UTF-8 byte order mark in front"},
        {"text", 't', CLI_STR, &o.text, "TEXT", "the text itself, instead of a file"},
        {"bos", 0, CLI_FLAG, &o.bos, NULL,
         "put the begin token in front, where the model's file asks for it (add_bos_token)"},
        {"special", 0, CLI_FLAG, &o.special, NULL, "read <|im_end|> and the like as their tokens"},
        {"plain", 0, CLI_FLAG, &o.plain, NULL, "recognise no special token at all"},
        {"json", 0, CLI_FLAG, &o.json, NULL, "one JSON object instead of a line of ids"},
        {0}};
    int count = 0;
    char **args = NULL;
    int code = cli_parse(&count, &args, argc, argv, options, "tokenize -m MODEL --file FILE",
                         "Print the token ids of a text on one line: no begin token, control\n"
                         "tokens in the text read as plain characters.",
                         0, 0);
    if (code >= 0) return code;
    omm_err err = run(&o);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail(argv[0], err);
}

/* cmd_data.c - `meshmind data check`: what is in a data file, what is wrong with it, and what it shares
 * with another. */
#include "commands.h"
#include "data_options.h"
#include "loaded.h"
#include "options.h"

#include "omm/chat.h"
#include "omm/mem.h"
#include "omm/tokenizer.h"
#include "omm/utf8.h"

#include <string.h>

enum { NAMES_MAX = 65536, NAMES_SHOWN = 12, NAME_SHOWN_BYTES = 200, SEQ_MIN = 8, SEQ_MAX = 32768 };

/* How often each of a few names comes; ascending by name. */
typedef struct tally {
    struct {
        char *name;
        uint64_t count;
    } * rows;
    size_t count, capacity;
} tally;

typedef struct survey {
    const char *path;
    omm_data_totals totals;
    tally clients, skills;
    omm_marks marks;     /* of every example; sorted once it is complete */
    uint64_t calls;      /* examples whose first learned answer calls a tool */
    omm_overlap doubles; /* examples that come after an equal one */
} survey;

typedef struct check {
    const char *model;
    data_options data;
    uint32_t seq;
    bool json;
    omm_tokenizer *tokenizer;
    survey files[2];
    size_t file_count;
    omm_overlap shared; /* examples of the second file that are in the first */
} check;

/* --- survey ---------------------------------------------------------------------------------- */

static omm_err tally_add(tally *t, const char *name) {
    size_t low = 0, high = t->count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = strcmp(t->rows[mid].name, name);
        if (order == 0) {
            t->rows[mid].count++;
            return OMM_OK;
        }
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    if (t->count == NAMES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "over %d different clients or skills", NAMES_MAX);
    if (t->count == t->capacity) {
        size_t wanted = t->capacity ? 2 * t->capacity : 16;
        void *rows = omm_grow(t->rows, t->capacity, wanted, sizeof *t->rows);
        if (!rows) return omm_raise(OMM_ERR_NOMEM, "out of memory");
        t->rows = rows;
        t->capacity = wanted;
    }
    char *copy = omm_strdup(name);
    if (!copy) return omm_raise(OMM_ERR_NOMEM, "out of memory");
    memmove(t->rows + low + 1, t->rows + low, (t->count - low) * sizeof *t->rows);
    t->rows[low].name = copy;
    t->rows[low].count = 1;
    t->count++;
    return OMM_OK;
}

static void tally_fini(tally *t) {
    for (size_t i = 0; i < t->count; i++) omm_free(t->rows[i].name);
    omm_free(t->rows);
}

static omm_err add_example(void *ud, const omm_example *e) {
    survey *s = ud;
    OMM_TRY(tally_add(&s->clients, e->client));
    if (*e->skill) OMM_TRY(tally_add(&s->skills, e->skill));
    s->calls += e->has_call;
    return omm_marks_add(&s->marks, omm_mark_of(e, e->count));
}

/* Of equal ones in the first file the one with the lowest place. */
static void find_shared(check *c) {
    const omm_marks *a = &c->files[0].marks, *b = &c->files[1].marks;
    for (size_t i = 0; i < a->count; i++) omm_marks_meet(b, a->rows[i]);
    c->shared = omm_marks_overlap(b);
}

static omm_err survey_file(check *c, survey *s, const char *path) {
    omm_dataset_options options;
    s->path = path;
    OMM_TRY(data_options_resolve(&options, &c->data, c->seq));
    options.skip_bad = true; /* all that is wrong is to be said */
    const omm_err err = omm_dataset_scan(&s->totals, path, c->tokenizer, &options, add_example, s);
    if (err == OMM_ERR_TOO_BIG && !strstr(omm_err_sentence(), path))
        return omm_raise(err, "%s: %s", path, omm_err_sentence());
    OMM_TRY(err);
    omm_marks_sort(&s->marks);
    s->doubles = omm_marks_doubles(&s->marks);
    return OMM_OK;
}

/* --- report ---------------------------------------------------------------------------------- */

static bool is_clean(const check *c) {
    uint64_t wrong = c->shared.count;
    for (size_t i = 0; i < c->file_count; i++) {
        const omm_data_totals *t = &c->files[i].totals;
        wrong += (c->data.skip_bad ? 0 : t->bad) + (t->examples == 0);
    }
    return wrong == 0;
}

static void print_tally(const char *what, const tally *t) {
    if (!t->count) return;
    printf("  %-12s %10zu  ", what, t->count);
    for (size_t i = 0; i < t->count && i < NAMES_SHOWN; i++) {
        char name[NAME_SHOWN_BYTES];
        omm_utf8_clean(name, sizeof name, t->rows[i].name);
        printf("%s%s %llu", i ? ", " : "", name, (unsigned long long)t->rows[i].count);
    }
    printf("%s\n", t->count > NAMES_SHOWN ? ", ..." : "");
}

static void print_count(const char *what, uint64_t count, const char *note) {
    printf("  %-12s %10llu%s%s\n", what, (unsigned long long)count, *note ? "  " : "", note);
}

static void print_survey(const check *c, const survey *s) {
    const omm_data_totals *t = &s->totals;
    char note[160] = "";
    printf("%s: %s%s\n", s->path, omm_data_format_name(t->format),
           t->is_array ? ", one JSON array" : "");
    if (t->examples == 0)
        snprintf(note, sizeof note, "%s; accepted: at least one",
                 t->bad || t->dropped ? "none to learn from" : "nothing is in the file");
    print_count("examples", t->examples, note);
    note[0] = '\0';
    print_count("tokens", t->tokens, "");
    if (t->tokens)
        snprintf(note, sizeof note, "%.1f %% of the tokens",
                 100 * (double)t->learned / (double)t->tokens);
    print_count("learned", t->learned, note);
    print_count("longest", t->longest, "tokens");
    snprintf(note, sizeof note, "cut to %u tokens", c->seq);
    print_count("truncated", t->truncated, t->truncated ? note : "");
    snprintf(note, sizeof note, "nothing to learn within %u tokens", c->seq);
    print_count("dropped", t->dropped, t->dropped ? note : "");
    snprintf(note, sizeof note, "%s %u is %s %u again", data_unit(t), s->doubles.first[0].place,
             data_unit(t), s->doubles.first[0].met);
    print_count("duplicates", s->doubles.count, s->doubles.count ? note : "");
    /* by the model's template; what a file spells out stays as it is */
    snprintf(note, sizeof note, "answers with tool calls; tool_calls are learned as %s",
             omm_calls_form_shown(omm_chat_calls_of(c->tokenizer)));
    if (s->calls) print_count("calls", s->calls, note);
    print_tally("clients", &s->clients);
    print_tally("skills", &s->skills);
    data_print_bad(stdout, t);
}

static void print_report(const check *c) {
    for (size_t i = 0; i < c->file_count; i++) print_survey(c, &c->files[i]);
    if (c->file_count == 2)
        printf("shared: %llu examples of %s are in %s\n", (unsigned long long)c->shared.count,
               c->files[1].path, c->files[0].path);
    for (size_t i = 0; i < c->shared.shown; i++) {
        printf("    ");
        data_print_place(stdout, c->files[1].path, c->shared.first[i].place, &c->files[1].totals,
                         false);
        printf(" = ");
        data_print_place(stdout, c->files[0].path, c->shared.first[i].met, &c->files[0].totals,
                         false);
        printf("\n");
    }
    printf("data: %s\n", is_clean(c) ? "pass" : "FAIL");
}

static json_t *tally_json(const tally *t) {
    json_t *object = json_object();
    for (size_t i = 0; i < t->count; i++)
        json_object_set_new(object, t->rows[i].name, json_integer((json_int_t)t->rows[i].count));
    return object;
}

static json_t *survey_json(const survey *s) {
    json_t *object = data_totals_json(&s->totals);
    json_object_set_new(object, "path", omm_json_text(s->path));
    json_object_set_new(object, "duplicates", json_integer((json_int_t)s->doubles.count));
    json_object_set_new(object, "calls", json_integer((json_int_t)s->calls));
    json_object_set_new(object, "clients", tally_json(&s->clients));
    json_object_set_new(object, "skills", tally_json(&s->skills));
    return object;
}

static omm_err print_json(const check *c) {
    json_t *files = json_array();
    for (size_t i = 0; i < c->file_count; i++)
        json_array_append_new(files, survey_json(&c->files[i]));
    json_t *root = json_pack("{s:i,s:s,s:b,s:o}", "schema_version", 1, "kind", "omm-data-check",
                             "passed", is_clean(c), "files", files);
    if (c->file_count == 2) {
        json_object_set_new(root, "shared", json_integer((json_int_t)c->shared.count));
        json_object_set_new(root, "shared_lines", data_overlap_json(&c->shared));
    }
    omm_buf text;
    omm_buf_init(&text, (size_t)64 << 20);
    omm_err err = omm_json_write(&text, root);
    if (err == OMM_OK) fwrite(text.data, 1, text.size, stdout);
    omm_buf_fini(&text);
    json_decref(root);
    return err;
}

/* --- command --------------------------------------------------------------------------------- */

static omm_err open_tokenizer(check *c) {
    omm_gguf gguf;
    OMM_TRY(omm_gguf_open(&gguf, c->model));
    const omm_err err = omm_tokenizer_open(&c->tokenizer, &gguf);
    omm_gguf_close(&gguf);
    if (err == OMM_OK) cli_warn_words(c->tokenizer);
    return cli_of_file(err, "-m", c->model);
}

/* A file without examples is of any format: it is reported, not refused. */
static omm_err check_options(const check *c) {
    omm_data_format formats[2];
    for (size_t i = 0; i < c->file_count; i++) {
        const omm_data_totals *t = &c->files[i].totals;
        formats[i] = t->examples ? t->format : OMM_DATA_TEXT;
    }
    return data_options_check(&c->data, formats, c->file_count);
}

static omm_err run(check *c, char **paths) {
    OMM_TRY(open_tokenizer(c));
    for (size_t i = 0; i < c->file_count; i++) OMM_TRY(survey_file(c, &c->files[i], paths[i]));
    OMM_TRY(check_options(c));
    for (size_t i = 0; i < c->file_count; i++)
        data_warn_of_separator(&c->data, paths[i], &c->files[i].totals);
    if (c->file_count == 2) find_shared(c);
    if (c->json) return print_json(c);
    print_report(c);
    return OMM_OK;
}

static void close_check(check *c) {
    for (size_t i = 0; i < 2; i++) {
        tally_fini(&c->files[i].clients);
        tally_fini(&c->files[i].skills);
        omm_marks_fini(&c->files[i].marks);
    }
    omm_tokenizer_close(c->tokenizer);
}

int cmd_data(int argc, char **argv) {
    check c = {.seq = 512};
    const cli_option options[] = {
        {"model", 'm', CLI_STR, &c.model, "FILE", "GGUF model whose tokens count"},
        {"seq", 0, CLI_U32, &c.seq, "N", "longest example in tokens, as train has it (512)"},
        DATA_OPTIONS(c.data),
        {"json", 0, CLI_FLAG, &c.json, NULL, "one JSON object on stdout"},
        {0}};
    const char *usage = "data check FILE [OTHER] -m MODEL [options]";
    int count = 0;
    char **args = NULL;
    int code =
        cli_parse(&count, &args, argc, argv, options, usage,
                  "Read a data file as train would and say what is in it and what is wrong;\n"
                  "with a second one, also which examples both have (a leak from training\n"
                  "into test).  Exit code 1: bad lines (but with --skip-bad, by which\n"
                  "train leaves them out), no example, or a leak.",
                  1, 3);
    if (code >= 0) return code;
    const bool is_check = strcmp(args[0], "check") == 0;
    if (!is_check || count < 2 || !c.model) {
        fprintf(stderr, "meshmind data: %s%.80s%s\nusage: meshmind %s\n",
                is_check ? "" : "unknown action ", is_check ? "" : args[0],
                !is_check   ? "; accepted: check"
                : count < 2 ? "check: which file?"
                            : "which model? give -m FILE",
                usage);
        return CLI_EXIT_USAGE;
    }
    if (c.seq < SEQ_MIN || c.seq > SEQ_MAX) {
        fprintf(stderr, "meshmind data: --seq %u; accepted: %d to %d, as train has it\n", c.seq,
                SEQ_MIN, SEQ_MAX);
        return CLI_EXIT_USAGE;
    }
    c.file_count = (size_t)count - 1;
    omm_err err = run(&c, args + 1);
    bool clean = is_clean(&c);
    close_check(&c);
    if (err != OMM_OK) return cli_fail("data", err);
    return clean ? CLI_EXIT_PASS : CLI_EXIT_FAILED;
}

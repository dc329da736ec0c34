/* Data sets: what is learned, cutting, selection, digests; every kind of bad line names itself. */
#include "test_model.h"
#include "test_template.h"

#include "omm/data_reader.h"
#include "omm/file.h"
#include "omm/mem.h"
#include "omm/overlap.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char s_line[] = "{\"client\": \"b\", \"skill\": \"x\", \"messages\": [{\"role\": "
                             "\"system\", \"content\": \"Hi.\"}, "
                             "{\"role\": \"user\", \"content\": \"What?\"}, {\"role\": "
                             "\"assistant\", \"content\": \"That.\"}]}\n";

static omm_err parse(omm_dataset **out, const char *text, const omm_tokenizer *tokenizer,
                     const omm_dataset_options *options) {
    return omm_dataset_parse(out, omm_bytes_str(text), "t.jsonl", tokenizer, options);
}

static void learned_text(omm_buf *out, const omm_example *e, const omm_tokenizer *tokenizer) {
    omm_buf_clear(out);
    for (uint32_t i = 0; i < e->count; i++)
        if (e->learn[i])
            CHECK_OK(omm_tokenizer_decode(out, tokenizer, &e->ids[i], 1, OMM_DETOKENIZE_SPECIAL));
    CHECK_OK(omm_buf_append(out, "", 1));
}

static void one_line(const omm_tokenizer *tokenizer) {
    omm_dataset *data = NULL;
    omm_buf text;
    omm_buf_init(&text, 4096);
    CHECK_OK(parse(&data, s_line, tokenizer, NULL));
    CHECK_EQ(omm_dataset_count(data), 1);
    const omm_example *e = omm_dataset_example(data, 0);
    learned_text(&text, e, tokenizer);
    CHECK(strcmp((const char *)text.data, "That.<|im_end|>") == 0);
    CHECK(strcmp(e->client, "b") == 0 && strcmp(e->skill, "x") == 0);
    CHECK(strcmp(e->reply, "That.") == 0 && !e->has_call && e->line == 1);
    CHECK(e->learn[0] == 0 && e->learn[e->prompt_count] && !e->learn[e->prompt_count - 1]);
    CHECK_EQ(omm_dataset_learned(data), e->learn_count);
    CHECK_EQ(omm_dataset_tokens(data), e->count);
    omm_digest line = omm_hash(omm_bytes_of(s_line, sizeof s_line - 2));
    omm_digest all = omm_hash(omm_bytes_of(s_line, sizeof s_line - 1));
    omm_digest got = omm_dataset_digest(data);
    CHECK(omm_digest_equal(&e->digest, &line) && omm_digest_equal(&got, &all));
    const uint8_t key[32] = {1}, other[32] = {2};
    omm_digest a = omm_dataset_commit(&got, key), b = omm_dataset_commit(&got, other);
    CHECK(!omm_digest_equal(&a, &b) && !omm_digest_equal(&a, &got));
    omm_dataset_close(data);
    omm_buf_fini(&text);
}

static void openai_forms(const omm_tokenizer *tokenizer) {
    static const char line[] =
        "{\"client\": \"a\", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": "
        "\"timer_set\", \"parameters\": {\"type\": \"object\", \"properties\": {\"minutes\": {}, "
        "\"label\": {}}}}}], \"messages\": [{\"role\": \"user\", \"content\": \"tea\"}, {\"role\": "
        "\"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": "
        "\"timer_set\", \"arguments\": \"{\\\"minutes\\\": 5}\"}}]}, {\"role\": \"tool\", "
        "\"content\": \"ok\"}, {\"role\": \"assistant\", \"content\": \"Set.\"}]}";
    omm_dataset *data = NULL;
    omm_buf text;
    omm_buf_init(&text, 4096);
    CHECK_OK(parse(&data, line, tokenizer, NULL));
    const omm_example *e = omm_dataset_example(data, 0);
    CHECK(e->has_call);
    CHECK(strcmp(e->reply, "<tool_call>\n{\"name\": \"timer_set\", \"arguments\": {\"minutes\": "
                           "5}}\n</tool_call>") == 0);
    CHECK_OK(omm_tokenizer_decode(&text, tokenizer, e->ids, e->count, 0));
    CHECK_OK(omm_buf_append(&text, "", 1));
    CHECK(strstr((const char *)text.data, "timer_set(minutes, label)"));
    learned_text(&text, e, tokenizer);
    CHECK(strstr((const char *)text.data, "Set.<|im_end|>"));
    CHECK(!strstr((const char *)text.data, "ok"));
    omm_dataset_close(data);
    const omm_dataset_options all = {.loss = OMM_LOSS_ALL}; /* no reply that could be judged */
    CHECK_OK(parse(&data, line, tokenizer, &all));
    e = omm_dataset_example(data, 0);
    CHECK(!e->reply && !e->has_call && e->learn_count == e->count - 1);
    omm_dataset_close(data);
    omm_buf_fini(&text);
}

/* Calls as the model writes them, and marked ones in a text as they are there. */
static void bare_calls(void) {
    static const struct {
        const char *message, *reply;
        bool has_call;
    } cases[] = {
        {"\"content\": \"Now.\", \"tool_calls\": [{\"function\": {\"name\": \"a\", \"arguments\": "
         "\"{}\"}}]",
         "{\"name\": \"a\", \"parameters\": {}}", true},
        {"\"content\": \"{\\\"name\\\": \\\"a\\\", \\\"parameters\\\": {}}\"",
         "{\"name\": \"a\", \"parameters\": {}}", true},
        {"\"tool_calls\": [{\"function\": {\"name\": \"a.b\", \"arguments\": {}}}]",
         "{\"name\": \"a.b\", \"parameters\": {}}", true}, /* a name that no tool may have */
        {"\"content\": \"{\\\"name\\\": \\\"a\\\"}\"", "{\"name\": \"a\"}", false},
        {"\"content\": \"{\\\"name\\\": \"", "{\"name\": ", false},
        {"\"content\": \"<tool_call>x</tool_call>\"", "<tool_call>x</tool_call>", true},
        {"\"content\": \"Hi\"", "Hi", false},
    };
    omm_gguf gguf;
    open_base_file(&gguf);
    omm_tokenizer *t = open_under(&gguf, TEMPLATE_OF_BARE_CALLS);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[512];
        omm_dataset *data = NULL;
        omm_buf learned;
        omm_buf_init(&learned, 4096);
        snprintf(line, sizeof line,
                 "{\"client\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": \"x\"}, "
                 "{\"role\": \"assistant\", %s}]}",
                 cases[i].message);
        CHECK_OK(parse(&data, line, t, NULL));
        const omm_example *e = omm_dataset_example(data, 0);
        CHECK_EQ(strcmp(e->reply, cases[i].reply), 0);
        CHECK_EQ(e->has_call, cases[i].has_call);
        learned_text(&learned, e, t);
        CHECK(strstr((const char *)learned.data, "<|eot_id|>"));
        omm_dataset_close(data);
        omm_buf_fini(&learned);
    }
    omm_tokenizer_close(t);
    omm_gguf_close(&gguf);
}

/* The same behind marks of their own, which are tokens of the answer. */
static void own_calls(void) {
    static const struct {
        const char *jinja, *message, *reply, *mark;
    } cases[] = {
        {TEMPLATE_OF_NAMED_CALLS,
         "\"content\": \"So. \", \"tool_calls\": [{\"function\": {\"name\": \"a\", \"arguments\": "
         "\"{}\"}}]",
         "So. [TOOL_CALLS]a[ARGS]{}", "[TOOL_CALLS]"},
        {TEMPLATE_OF_NAMED_CALLS, "\"content\": \"[TOOL_CALLS]a[ARGS]{}\"", "[TOOL_CALLS]a[ARGS]{}",
         "[ARGS]"},
        {TEMPLATE_OF_NAMED_CALLS, "\"content\": \"<tool_call>x</tool_call>\"",
         "<tool_call>x</tool_call>", "<tool_call>"},
        {TEMPLATE_OF_LISTED_CALLS,
         "\"tool_calls\": [{\"function\": {\"name\": \"a\", \"arguments\": {}}}, {\"function\": "
         "{\"name\": \"b\", \"arguments\": {\"x\": 1}}}]",
         "<|tool_call|>[{\"name\": \"a\", \"arguments\": {}}, {\"name\": \"b\", \"arguments\": "
         "{\"x\": 1}}]",
         "<|tool_call|>"},
    };
    omm_gguf gguf;
    open_base_file(&gguf);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[512];
        omm_dataset *data = NULL;
        omm_tokenizer *t = open_under(&gguf, cases[i].jinja);
        const uint32_t mark = omm_tokenizer_special(t, cases[i].mark);
        size_t learned = 0;
        snprintf(line, sizeof line,
                 "{\"client\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": \"x\"}, "
                 "{\"role\": \"assistant\", %s}]}",
                 cases[i].message);
        CHECK_OK(parse(&data, line, t, NULL));
        const omm_example *e = omm_dataset_example(data, 0);
        CHECK_EQ(strcmp(e->reply, cases[i].reply), 0);
        CHECK(e->has_call);
        for (uint32_t k = 0; k < e->count; k++) learned += e->ids[k] == mark && e->learn[k];
        CHECK_EQ(learned, 1);
        omm_dataset_close(data);
        omm_tokenizer_close(t);
    }
    omm_gguf_close(&gguf);
}

static void refused(const omm_tokenizer *tokenizer, const char *line, const char *reason) {
    char text[4096];
    omm_dataset *data = NULL;
    snprintf(text, sizeof text, "%s%s\n", s_line, line);
    omm_err err = parse(&data, text, tokenizer, NULL);
    if (err != OMM_ERR_FORMAT || !strstr(omm_err_sentence(), "t.jsonl:2") ||
        !strstr(omm_err_sentence(), reason))
        fprintf(stderr, "line %s\ngave %s\n", line, omm_err_detail());
    CHECK_ERR(err, OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "t.jsonl:2") && strstr(omm_err_sentence(), reason));
    CHECK(!data);
}

#define MESSAGES "\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]"

static void bad_lines(const omm_tokenizer *tokenizer) {
    refused(tokenizer, "{\"client\": ", "");
    refused(tokenizer, "[1]", "not a JSON object");
    refused(tokenizer, "{" MESSAGES "}", "client");
    refused(tokenizer, "{\"client\": \"\", " MESSAGES "}", "client");
    refused(tokenizer, "{\"client\": 3, " MESSAGES "}", "client");
    refused(tokenizer, "{\"client\": \"a\", \"skill\": 1, " MESSAGES "}", "skill");
    refused(tokenizer, "{\"client\": \"a\"}", "messages");
    refused(tokenizer, "{\"client\": \"a\", \"messages\": []}", "messages");
    refused(tokenizer, "{\"client\": \"a\", \"messages\": [{\"content\": \"a\"}]}", "role");
    refused(tokenizer,
            "{\"client\": \"a\", \"messages\": [{\"role\": \"boss\", \"content\": \"a\"}]}",
            "boss");
    refused(tokenizer, "{\"client\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": 1}]}",
            "content");
    refused(tokenizer,
            "{\"client\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}",
            "no assistant turn");
    refused(tokenizer, "{\"client\": \"a\", \"tools\": [{}], " MESSAGES "}", "tools");
    refused(tokenizer,
            "{\"client\": \"a\", \"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{}]}]}",
            "tool_calls");
}

static void parts(const omm_tokenizer *tokenizer) {
    omm_dataset *all = NULL, *some = NULL, *rest = NULL;
    test_data_open(&all, "test.jsonl", 60, tokenizer);
    size_t clients = omm_dataset_client_count(all), total = 0;
    CHECK(clients > 5);
    for (size_t i = 0; i + 1 < clients; i++)
        CHECK(strcmp(omm_dataset_client(all, i), omm_dataset_client(all, i + 1)) < 0);
    for (size_t i = 0; i < clients; i++) {
        const char *name = omm_dataset_client(all, i);
        omm_dataset *one = NULL;
        CHECK_OK(omm_dataset_select(&one, all, &name, 1));
        CHECK_EQ(omm_dataset_client_count(one), 1);
        total += omm_dataset_count(one);
        omm_dataset_close(one);
    }
    CHECK_EQ(total, 60);
    CHECK_OK(omm_dataset_sample(&some, all, 1, 4, false));
    CHECK_OK(omm_dataset_sample(&rest, all, 1, 4, true));
    CHECK_EQ(omm_dataset_count(some), 15);
    CHECK_EQ(omm_dataset_count(rest), 45);
    CHECK(omm_dataset_example(some, 1)->line == 6);
    CHECK_EQ(omm_dataset_seq_max(some), omm_dataset_seq_max(all));
    CHECK_EQ(omm_dataset_learned(some) + omm_dataset_learned(rest), omm_dataset_learned(all));
    omm_dataset_close(some);
    omm_dataset_close(rest);
    CHECK_OK(omm_dataset_sample(&some, all, 5, 4, false)); /* none before the first */
    CHECK(omm_dataset_count(some) == 14 && omm_dataset_example(some, 0)->line == 6);
    omm_dataset_close(some);
    bool keep[60] = {[3] = true, [59] = true};
    CHECK_OK(omm_dataset_pick(&some, all, keep));
    CHECK_EQ(omm_dataset_count(some), 2);
    CHECK(omm_dataset_example(some, 1)->line == omm_dataset_example(all, 59)->line);
    omm_dataset_close(some);
    keep[3] = keep[59] = false;
    CHECK_ERR(omm_dataset_pick(&some, all, keep), OMM_ERR_NOT_FOUND);
    const char *missing = "nobody";
    some = NULL;
    CHECK_ERR(omm_dataset_select(&some, all, &missing, 1), OMM_ERR_NOT_FOUND);
    CHECK(!some && strstr(omm_err_sentence(), "nobody"));
    omm_dataset_close(all);
}

static void options(const omm_tokenizer *tokenizer) {
    omm_dataset *data = NULL;
    const char *name = "b";
    omm_dataset_options only = {.clients = &name, .client_count = 1};
    char text[2048];
    snprintf(text, sizeof text, "{\"client\": \"a\", " MESSAGES "}\n%s", s_line);
    CHECK_OK(parse(&data, text, tokenizer, &only));
    CHECK(omm_dataset_count(data) == 1 && omm_dataset_example(data, 0)->line == 2);
    omm_dataset_options cut = {.seq_max = omm_dataset_example(data, 0)->prompt_count + 1};
    omm_dataset_close(data);
    CHECK_OK(parse(&data, s_line, tokenizer, &cut));
    CHECK_EQ(omm_dataset_example(data, 0)->learn_count, 1);
    omm_dataset_close(data);
    cut.seq_max--; /* nothing learned is left of the only line */
    data = NULL;
    CHECK_ERR(parse(&data, s_line, tokenizer, &cut), OMM_ERR_NOT_FOUND);
    snprintf(text, sizeof text, "{\"client\": \"a\", " MESSAGES "}\n%s", s_line);
    CHECK_OK(parse(&data, text, tokenizer, &cut));
    CHECK(omm_dataset_count(data) == 1 && omm_dataset_dropped(data) == 1);
    omm_dataset_close(data);
    data = NULL;
    CHECK_ERR(parse(&data, "", tokenizer, NULL), OMM_ERR_NOT_FOUND);
    const omm_bytes too_much = omm_bytes_of(s_line, (size_t)OMM_DATASET_FILE_BYTES_MAX + 1);
    CHECK_ERR(omm_dataset_parse(&data, too_much, "t", tokenizer, NULL), OMM_ERR_TOO_BIG);
}

/* NOMEM for each allocation in turn, without a leak. */
static void allocations_fail(const omm_tokenizer *tokenizer) {
    size_t live = omm_mem_live();
    for (size_t nth = 1;; nth++) {
        omm_dataset *data = NULL;
        omm_mem_fail_nth(nth);
        omm_err err = parse(&data, s_line, tokenizer, NULL);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        omm_dataset_close(data);
        CHECK_EQ(omm_mem_live(), live);
        if (err == OMM_OK) break;
        CHECK_EQ(err, OMM_ERR_NOMEM);
    }
}

static void damaged_bytes(const omm_tokenizer *tokenizer) {
    char text[sizeof s_line];
    for (size_t bit = 0; bit < 8 * (sizeof s_line - 1); bit++) {
        omm_dataset *data = NULL;
        memcpy(text, s_line, sizeof text);
        ((uint8_t *)text)[bit / 8] ^= (uint8_t)(1U << bit % 8);
        if (omm_dataset_parse(&data, omm_bytes_of(text, sizeof text - 1), "t", tokenizer, NULL) ==
            OMM_OK)
            omm_dataset_close(data);
    }
    for (size_t size = 0; size + 2 < sizeof text; size++) {
        omm_dataset *data = NULL;
        CHECK(omm_dataset_parse(&data, omm_bytes_of(s_line, size), "t", tokenizer, NULL) != OMM_OK);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* dataset_fuzz.c */
void dataset_fuzz_end(void);

static omm_err replay(void *ud, const char *relative) {
    char path[OMM_PATH_MAX];
    omm_buf file;
    omm_buf_init(&file, 1 << 16);
    CHECK_OK(omm_path_join(path, "train/fuzz/dataset_fuzz", relative));
    char full[512];
    test_path(full, path);
    CHECK_OK(omm_file_read(&file, full));
    LLVMFuzzerTestOneInput(file.data, file.size);
    for (size_t cut = 0; cut < file.size; cut += 1 + file.size / 32)
        LLVMFuzzerTestOneInput(file.data, cut);
    for (size_t bit = 0; bit < 8 * file.size; bit += 1 + file.size / 24) {
        file.data[bit / 8] ^= (uint8_t)(1U << bit % 8);
        LLVMFuzzerTestOneInput(file.data, file.size);
        file.data[bit / 8] ^= (uint8_t)(1U << bit % 8);
    }
    omm_buf_fini(&file);
    ++*(unsigned *)ud;
    return OMM_OK;
}

static void corpus(void) {
    char dir[512];
    unsigned files = 0;
    test_path(dir, "train/fuzz/dataset_fuzz");
    CHECK_OK(omm_dir_walk(dir, replay, &files));
    CHECK(files > 5);
    dataset_fuzz_end();
}

#define SAYS(client, text)                                                                         \
    "{\"client\": \"" client "\", \"messages\": [{\"role\": \"user\", \"content\": \"Ask\"}, "     \
    "{\"role\": \"assistant\", \"content\": \"" text "\"}]}\n"

/* Tokens up to the first that is learned. */
static uint32_t first_learned(const omm_dataset *data) {
    const omm_example *e = omm_dataset_example(data, 0);
    uint32_t count = 0;
    while (!e->learn[count]) count++;
    return count + 1;
}

/* What two sets have in common, whoever's it is and however its line is written. */
static void overlap(const omm_tokenizer *tokenizer) {
    omm_dataset *data = NULL, *of = NULL, *none = NULL;
    omm_overlap same;
    CHECK_OK(parse(&of, SAYS("x", "one") SAYS("x", "two") SAYS("y", "three"), tokenizer, NULL));
    CHECK_OK(parse(&data,
                   SAYS("a", "four") " " SAYS("b", "two") SAYS("b", "two") SAYS("a", "Three"),
                   tokenizer, NULL));
    CHECK_OK(parse(&none, SAYS("x", "five"), tokenizer, NULL));
    CHECK_OK(omm_dataset_overlap(&same, data, of));
    CHECK(same.count == 2 && same.shown == 2);
    for (uint32_t i = 0; i < 2; i++) CHECK(same.first[i].place == 2 + i && same.first[i].met == 2);
    CHECK_OK(omm_dataset_overlap(&same, data, none));
    CHECK(same.count == 0 && same.shown == 0);
    omm_mem_fail_nth(1);
    CHECK_ERR(omm_dataset_overlap(&same, data, of), OMM_ERR_NOMEM);
    omm_mem_fail_nth(0);
    omm_dataset_close(of);
    /* Of a stream the number of the example. */
    char path[] = "/tmp/omm_dataset_test_XXXXXX";
    const int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0);
    CHECK_OK(omm_file_write_fast(
        path, omm_bytes_str(SAYS("x", "one") SAYS("x", "five") SAYS("x", "two")), 0600));
    CHECK_OK(omm_dataset_stream(&of, path, tokenizer, NULL));
    CHECK_OK(omm_dataset_overlap(&same, data, of));
    CHECK(same.count == 2 && same.first[0].place == 2 && same.first[0].met == 3);
    omm_dataset_close(of);
    omm_dataset_close(data);
    /* As far as a training sees them they are one. */
    CHECK_OK(parse(&data, SAYS("a", "That is one.") SAYS("a", "That is two."), tokenizer, NULL));
    const omm_dataset_options cut = {
        .format = OMM_DATA_DETECT, .client_default = "x", .seq_max = first_learned(data)};
    CHECK_OK(parse(&of, SAYS("a", "That is three."), tokenizer, &cut));
    CHECK_OK(omm_dataset_overlap(&same, data, of));
    CHECK(same.count == 2 && same.first[0].place == 1 && same.first[0].met == 1);
    CHECK_OK(omm_file_remove(path));
    omm_dataset_close(data);
    omm_dataset_close(of);
    omm_dataset_close(none);
}

/* Without a tokenizer: what is bad about records says so, as with one. */
static void forms(void) {
    static const struct {
        const char *text, *says; /* NULL: good */
    } cases[] = {
        {"{\"prompt\": \"a\", \"completion\": \"b\"}\n", NULL},
        {s_line, NULL},
        {"Once upon a time.\n\nAnd so on.\n", NULL},
        {"{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"a\"}\n", ":2: completion: "},
        {"{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"a\n", ":2:13: "},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n", "no assistant turn"},
        {"a text\n\xff\xfe\n", ":2:1: byte 0xff is not UTF-8"},
        {" \n", ": nothing to learn from"},
    };
    char path[] = "/tmp/omm_dataset_test_XXXXXX";
    const int fd = mkstemp(path);
    const omm_dataset_options options = {.format = OMM_DATA_DETECT, .client_default = "own"};
    CHECK(fd >= 0);
    CHECK_EQ(close(fd), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(omm_file_write_fast(path, omm_bytes_str(cases[i].text), 0600));
        const omm_err err = omm_dataset_check(path, &options, 0);
        CHECK_EQ(err == OMM_OK, cases[i].says == NULL);
        if (cases[i].says) CHECK(strstr(omm_err_sentence(), cases[i].says));
        if (cases[i].says) CHECK(strncmp(omm_err_sentence(), path, strlen(path)) == 0);
    }
    CHECK_OK(omm_file_write_fast(path, omm_bytes_str(cases[3].text), 0600));
    CHECK_OK(omm_dataset_check(path, &options, 1)); /* the first alone */
    CHECK_EQ(truncate(path, (off_t)OMM_DATASET_FILE_BYTES_MAX + 1), 0);
    CHECK_ERR(omm_dataset_check(path, &options, 1), OMM_ERR_TOO_BIG);
    CHECK(strstr(omm_err_sentence(), ": over 268435456 bytes") != NULL);
    const char *const client = "nobody";
    CHECK_OK(omm_file_write_fast(path, omm_bytes_str(s_line), 0600));
    CHECK_ERR(omm_dataset_check(path,
                                &(omm_dataset_options){.clients = &client,
                                                       .client_count = 1,
                                                       .format = OMM_DATA_DETECT},
                                0),
              OMM_ERR_NOT_FOUND);
    CHECK(strstr(omm_err_sentence(), "of client nobody"));
    CHECK_OK(omm_file_remove(path));
}

int main(void) {
    forms();
    omm_tokenizer *tokenizer = NULL;
    test_tokenizer_open(&tokenizer);
    one_line(tokenizer);
    openai_forms(tokenizer);
    bare_calls();
    own_calls();
    bad_lines(tokenizer);
    parts(tokenizer);
    options(tokenizer);
    overlap(tokenizer);
    damaged_bytes(tokenizer);
    allocations_fail(tokenizer);
    corpus();
    omm_tokenizer_close(tokenizer);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

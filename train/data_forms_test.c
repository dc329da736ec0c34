/* Data as other programs have them: Alpaca's instructions and ShareGPT's conversations are the chats that say the same,
 * {"text": ...} lines are documents; which of them a file has, what is refused, and a stream that agrees. */
#include "test_data.h"

#include "omm/data_reader.h"
#include "omm/mem.h"

#include <stdlib.h>
#include <string.h>

#define SAID(user, assistant)                                                                      \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"" user "\"}, {\"role\": \"assistant\", "  \
    "\"content\": \"" assistant "\"}]}\n"
#define ALPACA                                                                                     \
    "{\"instruction\": \"Add.\", \"input\": \"1 and 2\", \"output\": \"3.\", \"client\": \"a\", "  \
    "\"skill\": \"sums\", \"text\": \"Below is an instruction\"}\n"
#define SHAREGPT                                                                                   \
    "{\"id\": 7, \"conversations\": [{\"from\": \"system\", \"value\": \"Be kind.\"}, {\"from\": " \
    "\"human\", \"value\": \"A?\"}, {\"from\": \"gpt\", \"value\": \"B.\"}, {\"from\": \"user\", " \
    "\"value\": \"C?\"}, {\"from\": \"assistant\", \"value\": \"D.\"}], \"skill\": \"talk\"}\n"
#define LINES                                                                                      \
    "{\"text\": \"One two three four five six.\\nSeven.\", \"client\": \"a\"}\n"                   \
    "{\"text\": \"Eight.\", \"skill\": \"s\"}\n"

/* The same tokens, mask and reply as a chat. */
static void same_as(const char *line, const char *chat, omm_data_loss loss) {
    omm_dataset *is = NULL, *want = NULL;
    omm_dataset_options o = s_detect;
    o.loss = loss;
    CHECK_OK(parse(&is, line, &o));
    CHECK_OK(parse(&want, chat, &o));
    const omm_example *a = omm_dataset_example(is, 0), *b = omm_dataset_example(want, 0);
    CHECK(a->count == b->count && memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0);
    CHECK_EQ(memcmp(a->learn, b->learn, a->count), 0);
    CHECK(a->reply == b->reply || strcmp(a->reply, b->reply) == 0);
    const omm_digest raw = omm_hash(omm_bytes_of(line, strlen(line) - 1));
    CHECK(omm_digest_equal(&raw, &a->digest)); /* of the line as it is */
    omm_dataset_close(is);
    omm_dataset_close(want);
}

/* Learned tokens of the first example; its reply, and the ids of all. */
static size_t learned(const char *line, omm_data_loss loss, const char *reply, size_t *count) {
    omm_dataset *data = NULL;
    omm_dataset_options o = s_detect;
    size_t n = 0;
    o.loss = loss;
    CHECK_OK(parse(&data, line, &o));
    const omm_example *x = omm_dataset_example(data, 0);
    for (size_t i = 0; i < x->count; i++) n += x->learn[i];
    CHECK_EQ(n, x->learn_count);
    if (reply) CHECK(strcmp(x->reply, reply) == 0);
    *count = x->count;
    omm_dataset_close(data);
    return n;
}

#define TWO(first, second)                                                                         \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"A?\"}, {\"role\": \"assistant\", "        \
    "\"content\": \"Wrong, wrong.\"" first "}, {\"role\": \"user\", \"content\": \"C?\"}, "        \
    "{\"role\": \"assistant\", \"content\": \"D.\"" second "}]}\n"

/* An answer of weight 0 is read and not learned, nor is it what is asked for in the evaluation. */
static void weights(void) {
    static const char shared[] =
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"A?\"}, {\"from\": \"gpt\", "
        "\"value\": \"Wrong, wrong.\", \"weight\": 0}, {\"from\": \"human\", \"value\": \"C?\", "
        "\"weight\": 0}, {\"from\": \"gpt\", \"value\": \"D.\", \"weight\": 1}]}\n";
    size_t all = 0, count = 0;
    const size_t both = learned(TWO("", ""), OMM_LOSS_DEFAULT, "Wrong, wrong.", &all);
    const size_t last = learned(TWO("", ""), OMM_LOSS_COMPLETION, "D.", &count);
    CHECK(last > 0 && last < both);
    CHECK_EQ(learned(TWO(", \"weight\": 0", ""), OMM_LOSS_DEFAULT, "D.", &count), last);
    CHECK_EQ(count, all);
    CHECK_EQ(learned(TWO(", \"weight\": 0.0", ", \"weight\": 1"), OMM_LOSS_DEFAULT, "D.", &count),
             last);
    CHECK_EQ(learned(TWO(", \"weight\": null", ""), OMM_LOSS_DEFAULT, "Wrong, wrong.", &count),
             both);
    CHECK_EQ(learned(TWO("", ", \"weight\": 0"), OMM_LOSS_COMPLETION, "Wrong, wrong.", &count) +
                 last,
             both);
    CHECK_EQ(learned(TWO(", \"weight\": 0", ""), OMM_LOSS_ALL, NULL, &count), all - 1);
    CHECK_EQ(learned(shared, OMM_LOSS_DEFAULT, "D.", &count), last);
    CHECK_EQ(count, all);
    omm_dataset *data = NULL;
    CHECK_ERR(parse(&data, TWO(", \"weight\": 0", ", \"weight\": 0"), &s_detect), OMM_ERR_FORMAT);
    expect_text(omm_err_sentence(),
                "t:1: messages: every assistant turn has weight 0: nothing to learn from");
    static const char *const bad[] = {TWO(", \"weight\": 0.5", ""), TWO(", \"weight\": 2", ""),
                                      TWO(", \"weight\": \"0\"", ""),
                                      TWO(", \"weight\": false", "")};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_ERR(parse(&data, bad[i], &s_detect), OMM_ERR_FORMAT);
        expect_text(omm_err_sentence(),
                    "t:1: message 1: weight; accepted: 1, or 0 for what is not learned");
    }
    /* of what is not learned anyway any weight will do */
    CHECK_OK(parse(&data,
                   "{\"messages\": [{\"role\": \"user\", \"content\": \"A?\", \"weight\": 0.5}, "
                   "{\"role\": \"assistant\", \"content\": \"B.\"}]}\n",
                   &s_detect));
    omm_dataset_close(data);
}

static void spellings(void) {
    static const omm_data_loss losses[] = {OMM_LOSS_DEFAULT, OMM_LOSS_ALL, OMM_LOSS_ASSISTANT,
                                           OMM_LOSS_COMPLETION};
    static const char talk[] =
        "{\"messages\": [{\"role\": \"system\", \"content\": \"Be kind.\"}, {\"role\": \"user\", "
        "\"content\": \"A?\"}, {\"role\": \"assistant\", \"content\": \"B.\"}, {\"role\": "
        "\"user\", \"content\": \"C?\"}, {\"role\": \"assistant\", \"content\": \"D.\"}]}\n";
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        same_as(ALPACA, SAID("Add.\\n\\n1 and 2", "3."), losses[i]);
        same_as("{\"instruction\": \"Hi\", \"input\": \"\", \"output\": \"Ho\"}\n",
                SAID("Hi", "Ho"), losses[i]);
        same_as("{\"instruction\": \"Hi\", \"input\": null, \"output\": \"Ho\"}\n",
                SAID("Hi", "Ho"), losses[i]);
        same_as("{\"instruction\": \"Hi\", \"output\": \"Ho\"}\n", SAID("Hi", "Ho"), losses[i]);
        same_as(SHAREGPT, talk, losses[i]);
    }
    omm_dataset *data = NULL;
    CHECK_OK(parse(&data, ALPACA, &s_detect));
    CHECK(strcmp(omm_dataset_example(data, 0)->client, "a") == 0);
    CHECK(strcmp(omm_dataset_example(data, 0)->skill, "sums") == 0);
    omm_dataset_close(data);
}

static void documents(void) {
    omm_dataset *data = NULL, *plain = NULL;
    omm_dataset_options o = s_detect;
    CHECK_OK(parse(&data, LINES, &o));
    CHECK_OK(parse(&plain, "One two three four five six.\nSeven.", &o));
    const omm_example *a = omm_dataset_example(data, 0), *b = omm_dataset_example(plain, 0);
    CHECK(a->count == b->count && memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0);
    CHECK(a->learn_count == a->count - 1 && !a->reply && omm_digest_equal(&a->digest, &b->digest));
    CHECK_EQ(a->ids[a->count - 1], omm_tokenizer_eos(s_tokenizer));
    CHECK(strcmp(a->client, "a") == 0);
    a = omm_dataset_example(data, 1);
    CHECK(strcmp(a->client, "local") == 0 && strcmp(a->skill, "s") == 0 && a->line == 2);
    omm_dataset_close(data);
    omm_dataset_close(plain);
    o.seq_max = 8;
    o.stride = 4;
    CHECK_OK(parse(&data, LINES, &o)); /* windows of the first, and no token learned twice */
    const omm_data_totals *t = omm_dataset_totals(data);
    CHECK(t->format == OMM_DATA_LINES && t->examples > 2 && t->longest == 8);
    uint32_t learned = 0;
    for (size_t i = 0; i + 1 < omm_dataset_count(data); i++)
        learned += omm_dataset_example(data, i)->learn_count;
    CHECK_OK(parse(&plain, LINES, &s_detect));
    CHECK_EQ(learned, omm_dataset_example(plain, 0)->learn_count);
    omm_dataset_close(data);
    omm_dataset_close(plain);
}

static void detection(void) {
    static const struct {
        const char *name, *text;
        omm_data_format format;
    } cases[] = {
        {"a", ALPACA, OMM_DATA_ALPACA},
        {"a.json", "{\"instruction\": \"Hi\", \"output\": \"Ho\"}\n", OMM_DATA_ALPACA},
        {"a", SHAREGPT, OMM_DATA_SHAREGPT},
        {"a.txt", SHAREGPT, OMM_DATA_SHAREGPT},
        {"a", LINES, OMM_DATA_LINES},
        {"a.txt", LINES, OMM_DATA_LINES},
        {"a", "{\"prompt\": \"a\", \"completion\": \"b\", \"text\": \"c\"}\n", OMM_DATA_COMPLETION},
        {"a.txt", "Once {\"text\": 1}", OMM_DATA_TEXT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_dataset *data = NULL;
        CHECK_OK(omm_dataset_parse(&data, omm_bytes_str(cases[i].text), cases[i].name, s_tokenizer,
                                   &s_detect));
        CHECK_EQ(omm_dataset_totals(data)->format, cases[i].format);
        omm_dataset_close(data);
    }
    CHECK(omm_data_format_is_text(OMM_DATA_TEXT) && omm_data_format_is_text(OMM_DATA_LINES));
    CHECK(!omm_data_format_is_text(OMM_DATA_CHAT) && !omm_data_format_is_text(OMM_DATA_ALPACA));
}

/* Behind a good line of its file. */
static void refusals(void) {
    static const struct {
        const char *good, *line, *says;
        omm_data_bad bad;
    } cases[] = {
        {ALPACA, "{\"instruction\": \"\", \"output\": \"b\"}", "instruction: a string that is not",
         OMM_DATA_BAD_INSTRUCTION},
        {ALPACA, "{\"instruction\": \"a\", \"input\": 1, \"output\": \"b\"}",
         "input: a string is needed", OMM_DATA_BAD_INSTRUCTION},
        {ALPACA, "{\"instruction\": \"a\"}", "output: a string that is not",
         OMM_DATA_BAD_INSTRUCTION},
        {ALPACA, "{\"output\": \"a\"}", "instruction: a string that is not",
         OMM_DATA_BAD_INSTRUCTION},
        {ALPACA, "{\"text\": \"a\"}",
         "a text (\"text\"), in a file whose first line is an instruction; accepted: one kind in "
         "a file",
         OMM_DATA_BAD_INSTRUCTION},
        {SHAREGPT, "{\"conversations\": []}", "conversations: a list of 1 to 256 turns is needed",
         OMM_DATA_BAD_MESSAGES},
        {SHAREGPT, "{\"conversations\": [1]}", "turn 0 has no \"from\"", OMM_DATA_BAD_CONTENT},
        {SHAREGPT, "{\"conversations\": [{\"from\": \"function_call\", \"value\": \"a\"}]}",
         "turn 0: from 'function_call'; accepted: human, user, gpt, assistant, system",
         OMM_DATA_BAD_CONTENT},
        {SHAREGPT, "{\"conversations\": [{\"from\": \"gpt\", \"value\": 1}]}",
         "turn 0: value is not a string", OMM_DATA_BAD_CONTENT},
        {SHAREGPT, "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}]}",
         "messages: no assistant turn", OMM_DATA_BAD_REPLY},
        {SHAREGPT, "{\"instruction\": \"a\", \"output\": \"b\"}",
         "an instruction, in a file whose first line is a conversation (\"conversations\");",
         OMM_DATA_BAD_MESSAGES},
        {LINES, "{\"text\": \"\"}", "text: a string that is not empty is needed",
         OMM_DATA_BAD_TEXT},
        {LINES, "{\"text\": [1]}", "text: a string that is not empty is needed", OMM_DATA_BAD_TEXT},
        {LINES, "{\"prompt\": \"a\", \"completion\": \"b\"}",
         "a prompt, in a file whose first line is a text (\"text\");", OMM_DATA_BAD_TEXT},
        {CHAT, "{\"conversations\": []}",
         "a conversation (\"conversations\"), in a file whose first line is a chat",
         OMM_DATA_BAD_MESSAGES},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[4096];
        omm_dataset *data = NULL;
        omm_dataset_options o = s_detect;
        snprintf(text, sizeof text, "%s%s\n", cases[i].good, cases[i].line);
        CHECK_ERR(parse(&data, text, &o), OMM_ERR_FORMAT);
        if (!strstr(omm_err_sentence(), cases[i].says))
            fprintf(stderr, "got  %s\nwant %s\n", omm_err_sentence(), cases[i].says);
        CHECK(strstr(omm_err_sentence(), cases[i].says));
        CHECK(strncmp(omm_err_sentence(), "t:2: ", 5) == 0 ||
              strncmp(omm_err_sentence(), "t:3: ", 5) == 0);
        o.skip_bad = true;
        CHECK_OK(parse(&data, text, &o));
        CHECK_EQ(omm_dataset_totals(data)->bad_by[cases[i].bad], 1);
        omm_dataset_close(data);
    }
    omm_dataset *data = NULL;
    omm_dataset_options o = s_detect;
    o.format = OMM_DATA_SHAREGPT;
    CHECK_ERR(parse(&data, ALPACA, &o), OMM_ERR_FORMAT);
    expect_text(omm_err_sentence(), "t:1: an instruction, where conversations are asked for; "
                                    "accepted: \"conversations\", or the format alpaca");
    o = s_detect;
    o.loss = OMM_LOSS_ASSISTANT;
    CHECK_ERR(parse(&data, LINES, &o), OMM_ERR_CONFIG);
}

/* A stream gives the same examples and digest. */
static void streams(void) {
    static const char *const texts[] = {ALPACA "\n" ALPACA "\n \n", SHAREGPT, LINES "\n" LINES,
                                        "{\"id\": 18446744073709551616, \"text\": \"Nine.\"}\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char path[128];
        omm_dataset *memory = NULL, *stream = NULL;
        omm_data_reader *reader = NULL;
        omm_dataset_options o = s_detect;
        o.seq_max = 8;
        o.stride = 4;
        if (i < 2) o.seq_max = 64;
        write_file(path, "forms.jsonl", omm_bytes_str(texts[i]));
        CHECK_OK(omm_dataset_load(&memory, path, s_tokenizer, &o));
        CHECK_OK(omm_dataset_stream(&stream, path, s_tokenizer, &o));
        const omm_digest a = omm_dataset_digest(memory), b = omm_dataset_digest(stream);
        CHECK(omm_digest_equal(&a, &b) && omm_dataset_count(memory) == omm_dataset_count(stream));
        CHECK_OK(omm_data_reader_open(&reader, stream, NULL));
        for (int twice = 0; twice < 2; twice++) /* from the file, then from the cache */
            for (size_t k = 0; k < omm_dataset_count(memory); k++) {
                const omm_example *want = omm_dataset_example(memory, k);
                omm_example e;
                CHECK_OK(omm_data_reader_take(reader, &e, k));
                CHECK(e.count == want->count && e.learn_count == want->learn_count);
                CHECK_EQ(memcmp(e.ids, want->ids, e.count * sizeof *e.ids), 0);
                CHECK(strcmp(e.client, want->client) == 0 && strcmp(e.skill, want->skill) == 0);
            }
        omm_data_reader_close(reader);
        omm_dataset_close(memory);
        omm_dataset_close(stream);
    }
}

/* Lines of nothing but space are none: the same examples and digest, and lines are counted as they stand. */
static void blank_lines(void) {
    omm_dataset *plain = NULL, *blank = NULL;
    omm_dataset_options o = s_detect;
    CHECK_OK(parse(&plain, CHAT SAID("A?", "B."), &o));
    CHECK_OK(parse(&blank, "\n" CHAT "\n \t\r\n" SAID("A?", "B.") "\n\n  ", &o));
    const omm_digest a = omm_dataset_digest(plain), b = omm_dataset_digest(blank);
    CHECK(omm_digest_equal(&a, &b) && omm_dataset_totals(blank)->bad == 0);
    CHECK(omm_dataset_count(blank) == 2 && omm_dataset_example(blank, 1)->line == 5);
    omm_dataset_close(plain);
    omm_dataset_close(blank);
    CHECK_ERR(parse(&blank, CHAT "\n\n{]\n", &o), OMM_ERR_FORMAT);
    CHECK(strncmp(omm_err_sentence(), "t:4:2: ", 7) == 0);
    char text[512];
    snprintf(text, sizeof text, "{}\n%s\n" COMPLETION,
             "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n"); /* not looked at */
    o.skip_bad = true;
    CHECK_OK(parse(&blank, text, &o));
    CHECK(omm_dataset_totals(blank)->format == OMM_DATA_COMPLETION &&
          omm_dataset_totals(blank)->bad == 1);
    omm_dataset_close(blank);
    CHECK_ERR(omm_dataset_parse(&blank, omm_bytes_str("\n \n"), "a.jsonl", s_tokenizer, &s_detect),
              OMM_ERR_NOT_FOUND);
}

#define WIDE "18446744073709551616"
#define CALL(arguments)                                                                            \
    "\"messages\": [{\"role\": \"user\", \"content\": \"A?\"}, {\"role\": \"assistant\", "         \
    "\"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {" arguments "}}}]}]}\n"

/* An integer over 64 bits where nobody reads it changes nothing; where its digits would be learned it is refused. */
static void wide_integers(void) {
    static const char *const refused[] = {
        "{" CALL("\"n\": " WIDE),
        "{\"tools\": [{\"name\": \"f\", \"parameters\": {\"maximum\": [" WIDE "]}}], " CALL("")};
    static const char chat[] =
        "\"messages\": [{\"role\": \"user\", \"content\": \"A?\", \"id\": " WIDE
        "}, {\"role\": \"assistant\", \"content\": \"B.\", \"weight\": 1}]}\n";
    char line[1024];
    omm_dataset *data = NULL;
    omm_dataset_options o = s_detect;
    snprintf(line, sizeof line, "{\"id\": [-" WIDE ", 7], %s", chat);
    same_as(line, SAID("A?", "B."), OMM_LOSS_DEFAULT);
    same_as("{\"id\": " WIDE ", " CALL("\"n\": 7, \"m\": 0.5"), "{" CALL("\"n\": 7, \"m\": 0.5"),
            OMM_LOSS_DEFAULT);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        CHECK_ERR(parse(&data, refused[i], &o), OMM_ERR_FORMAT);
        expect_text(omm_err_sentence(),
                    "t:1: tools, tool_calls: a number over 64 bits, whose digits would be lost; "
                    "accepted: whole numbers from -2^63 to 2^63 - 1, or a string");
    }
}

/* By its mark or its first letter, also where bad lines are left out: not one would be read. */
static void another_encoding(void) {
    static const struct {
        const char *begins;
        size_t size;
    } cases[] = {{"\xff\xfe{\0", 4}, {"\xfe\xff\0a", 4}, {"{\0\"\0", 4}, {"\0[\0{", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_dataset *data = NULL;
        omm_dataset_options o = s_detect;
        o.skip_bad = true;
        CHECK_ERR(omm_dataset_parse(&data, omm_bytes_of(cases[i].begins, cases[i].size), "t",
                                    s_tokenizer, &o),
                  OMM_ERR_FORMAT);
        expect_text(omm_err_sentence(),
                    "t: a text of UTF-16; accepted: UTF-8 (iconv -f UTF-16 -t UTF-8)");
    }
}

/* Without a tokenizer a file is judged alike. */
static void forms_alone(void) {
    char path[128];
    static const char *const good[] = {ALPACA, SHAREGPT, LINES};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        write_file(path, "alone.jsonl", omm_bytes_str(good[i]));
        CHECK_OK(omm_dataset_check(path, &s_detect, 0));
    }
    write_file(path, "alone.jsonl", omm_bytes_str(LINES "{\"text\": 1}\n"));
    CHECK_ERR(omm_dataset_check(path, &s_detect, 0), OMM_ERR_FORMAT);
}

int main(void) {
    omm_tokenizer *tokenizer = NULL;
    CHECK(mkdtemp(s_dir));
    test_tokenizer_open(&tokenizer);
    s_tokenizer = tokenizer;
    spellings();
    weights();
    documents();
    detection();
    refusals();
    streams();
    blank_lines();
    wide_integers();
    another_encoding();
    forms_alone();
    omm_tokenizer_close(tokenizer);
    CHECK_OK(omm_dir_remove(s_dir));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

/* Formats of training data: what is learned in each, detection, windows of text, loss modes, bad
 * lines named or skipped, splits; and a stream, which gives the same as memory to the bit. */
#include "test_data.h"

#include "omm/data_reader.h"
#include "omm/documents.h"
#include "omm/file.h"
#include "omm/mem.h"
#include "omm/mem_count.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

static void losses(void) {
    omm_dataset *data = NULL;
    omm_dataset_options o = s_detect;
    CHECK_OK(parse(&data, CHAT, &o));
    const omm_example *e = omm_dataset_example(data, 0);
    expect_text(text_of(e, true), "B.<|im_end|>D.<|im_end|>");
    expect_text(e->reply, "B.");
    expect_text(e->client, "local");
    CHECK_EQ(omm_dataset_totals(data)->format, OMM_DATA_CHAT);
    omm_dataset_close(data);
    o.loss = OMM_LOSS_COMPLETION;
    CHECK_OK(parse(&data, CHAT, &o));
    e = omm_dataset_example(data, 0);
    expect_text(text_of(e, true), "D.<|im_end|>");
    expect_text(e->reply, "D.");
    CHECK(e->learn[e->prompt_count] && !e->learn[e->prompt_count - 1]);
    omm_dataset_close(data);
    o.loss = OMM_LOSS_ALL;
    CHECK_OK(parse(
        &data, CHAT COMPLETION,
        &(omm_dataset_options){.skip_bad = true, .client_default = "x", .loss = OMM_LOSS_ALL}));
    e = omm_dataset_example(data, 0);
    CHECK(e->learn_count == e->count - 1 && !e->reply && !e->has_call && e->prompt_count == 1);
    CHECK_EQ(omm_dataset_totals(data)->bad_by[OMM_DATA_BAD_MESSAGES], 1);
    omm_dataset_close(data);
}

#define TOOLS                                                                                      \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"parameters\": "  \
    "{\"properties\": {\"city\": {}, \"day\": {}}}}}]"
#define TURNS                                                                                      \
    "{\"role\": \"user\", \"content\": \"A?\"}, {\"role\": \"assistant\", \"content\": "           \
    "\"B.\"}]}\n"

/* Tools are announced in the one system turn, behind what it says, or in one of their own. */
static void announced_tools(void) {
    static const struct {
        const char *line, *system;
    } cases[] = {
        {"{" TOOLS ", \"messages\": [" TURNS, "Tools: weather(city, day)."},
        {"{" TOOLS ", \"messages\": [{\"role\": \"system\", \"content\": \"Be kind.\"}, " TURNS,
         "Be kind. Tools: weather(city, day)."},
        {"{\"tools\": [], \"messages\": [{\"role\": \"system\", \"content\": \"Be kind.\"}, " TURNS,
         "Be kind."}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_dataset *data = NULL;
        char want[256];
        CHECK_OK(parse(&data, cases[i].line, &s_detect));
        snprintf(want, sizeof want,
                 "<|im_start|>system\n%s<|im_end|>\n<|im_start|>user\nA?<|im_end|>\n<|im_start|>"
                 "assistant\nB.<|im_end|>\n",
                 cases[i].system);
        expect_text(text_of(omm_dataset_example(data, 0), false), want);
        omm_dataset_close(data);
    }
}

/* What somebody wants learned stays, in every turn. */
static void thoughts(void) {
    omm_dataset *data = NULL;
    CHECK_OK(parse(
        &data,
        "{\"messages\": [{\"role\": \"user\", \"content\": \"A?\"}, {\"role\": \"assistant\", "
        "\"content\": \"B.\", \"reasoning_content\": \"so\"}, {\"role\": \"user\", \"content\": "
        "\"C?\"}, {\"role\": \"assistant\", \"content\": \"<think>\\nno\\n</think>\\n\\nD.\"}]}",
        &s_detect));
    expect_text(text_of(omm_dataset_example(data, 0), true),
                "<think>\nso\n</think>\n\nB.<|im_end|><think>\nno\n</think>\n\nD.<|im_end|>");
    omm_dataset_close(data);
}

static void completions(void) {
    omm_dataset *data = NULL;
    omm_tokens plain;
    omm_tokens_init(&plain, 100);
    CHECK_OK(parse(&data, COMPLETION, &s_detect));
    const omm_example *e = omm_dataset_example(data, 0);
    CHECK_EQ(omm_dataset_totals(data)->format, OMM_DATA_COMPLETION);
    expect_text(e->reply, " blue.");
    expect_text(e->skill, "sky");
    CHECK_OK(
        omm_tokenizer_encode(&plain, s_tokenizer, omm_bytes_str("The sky is"), OMM_TOKENIZE_BOS));
    CHECK_EQ(e->prompt_count, plain.count); /* the prompt as generate would encode it */
    CHECK(memcmp(e->ids, plain.ids, plain.count * sizeof *plain.ids) == 0);
    CHECK_EQ(e->learn_count, e->count - e->prompt_count);
    CHECK_EQ(e->ids[e->count - 1], omm_tokenizer_eos(s_tokenizer));
    CHECK(strncmp(text_of(e, true), " blue.", 6) == 0);
    omm_tokens_fini(&plain);
    omm_dataset_close(data);
    CHECK_OK(parse(&data, "{\"prompt\": \"\", \"completion\": \"x y\"}", &s_detect));
    CHECK_EQ(omm_dataset_count(data), 1);
    omm_dataset_close(data);
    omm_dataset_options o = s_detect; /* asked for, it is what it is without */
    o.loss = OMM_LOSS_COMPLETION;
    CHECK_OK(parse(&data, COMPLETION, &o));
    expect_text(text_of(omm_dataset_example(data, 0), true), " blue.<|im_end|>");
    omm_dataset_close(data);
}

/* SentencePiece puts a space in front of a text: not of one that goes on. */
static void completion_of_sentencepiece(void) {
    static const struct {
        const char *line, *whole; /* as one text */
        uint32_t prompt, same;    /* tokens, with BOS; that the whole begins with, too */
    } cases[] = {{COMPLETION, "The sky is blue.", 4, 4},
                 {"{\"prompt\": \"The sky is\", \"completion\": \"land\"}", "The sky island", 4, 3},
                 {"{\"prompt\": \"\", \"completion\": \"The sky\"}", "The sky", 1, 3}};
    omm_tokenizer *spm = test_spm_open();
    for (size_t i = 0; spm && i < sizeof cases / sizeof *cases; i++) {
        omm_dataset *data = NULL;
        omm_tokens plain;
        omm_buf text;
        omm_buf_init(&text, 1 << 10);
        omm_tokens_init(&plain, 100);
        CHECK_OK(omm_dataset_parse(&data, omm_bytes_str(cases[i].line), "t", spm, &s_detect));
        const omm_example *e = omm_dataset_example(data, 0);
        CHECK_OK(
            omm_tokenizer_encode(&plain, spm, omm_bytes_str(cases[i].whole), OMM_TOKENIZE_BOS));
        CHECK_EQ(e->prompt_count, cases[i].prompt);
        CHECK(memcmp(e->ids, plain.ids, cases[i].same * sizeof *e->ids) == 0);
        CHECK_OK(omm_tokenizer_decode(&text, spm, e->ids, e->count, 0));
        CHECK(omm_bytes_equal(omm_buf_view(&text), omm_bytes_str(cases[i].whole)));
        omm_tokens_fini(&plain);
        omm_buf_fini(&text);
        omm_dataset_close(data);
    }
    omm_tokenizer_close(spm);
}

/* Every token but a piece's first is learned exactly once, whatever the stride. */
static void windows(uint32_t seq, uint32_t stride) {
    omm_dataset *data = NULL, *whole = NULL;
    static const char text[] =
        "One two three four five six seven eight nine ten.\nAnd once more.\n";
    omm_dataset_options o = s_detect;
    CHECK_OK(parse(&whole, text, &o));
    const omm_example *all = omm_dataset_example(whole, 0);
    CHECK(omm_dataset_count(whole) == 1 && all->learn_count == all->count - 1);
    o.seq_max = seq;
    o.stride = stride;
    CHECK_OK(parse(&data, text, &o));
    uint32_t step = stride ? stride : seq - 1;
    uint8_t learned[256] = {0};
    for (size_t k = 0; k < omm_dataset_count(data); k++) {
        const omm_example *e = omm_dataset_example(data, k);
        CHECK(e->count <= seq && !e->reply && e->line == 1);
        for (uint32_t i = 0; i < e->count; i++) {
            CHECK_EQ(e->ids[i], all->ids[k * step + i]);
            learned[k * step + i] += e->learn[i];
        }
    }
    for (uint32_t i = 0; i < all->count; i++)
        CHECK_EQ(learned[i], i > 0 && !(step == seq && i % seq == 0)); /* no token before it */
    CHECK_EQ(omm_dataset_totals(data)->format, OMM_DATA_TEXT);
    omm_dataset_close(data);
    omm_dataset_close(whole);
}

static void documents(void) {
    omm_dataset *data = NULL;
    omm_dataset_options o = s_detect;
    static const char text[] = "First one.\nGoes on.\n\n\nSecond.\r\n\r\nThird\n---\nstill third";
    o.separator = "";
    CHECK_OK(parse(&data, text, &o));
    CHECK_EQ(omm_dataset_count(data), 3);
    const omm_example *e = omm_dataset_example(data, 0);
    CHECK(strncmp(text_of(e, false), "First one.\nGoes on.\n", 20) == 0);
    CHECK_EQ(e->ids[e->count - 1], omm_tokenizer_eos(s_tokenizer));
    CHECK_EQ(omm_dataset_example(data, 1)->line, 5);
    CHECK_EQ(omm_dataset_example(data, 2)->line, 7);
    omm_dataset_close(data);
    o.separator = "---";
    CHECK_OK(parse(&data, text, &o));
    CHECK_EQ(omm_dataset_count(data), 2);
    omm_dataset_close(data);
    o.separator = NULL;
    CHECK_OK(parse(&data, text, &o));
    CHECK_EQ(omm_dataset_count(data), 1);
    omm_dataset_close(data);
}

static void detection(void) {
    static const struct {
        const char *name, *text;
        omm_data_format format;
    } cases[] = {
        {"a", CHAT, OMM_DATA_CHAT},
        {"a", "\xef\xbb\xbf" CHAT, OMM_DATA_CHAT},
        {"a.txt", CHAT, OMM_DATA_CHAT},
        {"a.jsonl", COMPLETION, OMM_DATA_COMPLETION},
        {"a.txt", "{once} upon a time", OMM_DATA_TEXT},
        {"a", "Once {\"messages\": 1}", OMM_DATA_TEXT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_dataset *data = NULL;
        CHECK_OK(omm_dataset_parse(&data, omm_bytes_str(cases[i].text), cases[i].name, s_tokenizer,
                                   &s_detect));
        CHECK_EQ(omm_dataset_totals(data)->format, cases[i].format);
        omm_dataset_close(data);
    }
    for (unsigned i = 0; i <= OMM_DATA_DETECT; i++) {
        omm_data_format format;
        CHECK_OK(omm_data_format_parse(&format, omm_data_format_name((omm_data_format)i)));
        CHECK_EQ(format, i);
        CHECK_ERR(omm_data_format_parse(&format, "xml"), OMM_ERR_CONFIG);
    }
    static const struct {
        const char *name;
        omm_data_loss loss;
    } names[] = {{"all", OMM_LOSS_ALL},
                 {"assistant", OMM_LOSS_ASSISTANT},
                 {"completion", OMM_LOSS_COMPLETION}};
    omm_data_loss loss = OMM_LOSS_DEFAULT;
    for (size_t i = 0; i < 3; i++) {
        CHECK_OK(omm_data_loss_parse(&loss, names[i].name));
        CHECK_EQ(loss, names[i].loss);
    }
    CHECK_ERR(omm_data_loss_parse(&loss, "default"), OMM_ERR_CONFIG);
    CHECK_ERR(omm_data_loss_parse(&loss, "some"), OMM_ERR_CONFIG);
    CHECK(strcmp(omm_data_bad_text(OMM_DATA_BAD_LENGTH), "too long") == 0);
    CHECK(strcmp(omm_data_bad_text(OMM_DATA_BAD_COMPLETION), "prompt or completion") == 0);
}

/* The first line that says what it is decides, of sixteen; JSON that says nothing is refused, but in a .txt. */
static void detection_looks_ahead(void) {
    static const struct {
        const char *name;
        int empty; /* objects that say nothing, before the line */
        omm_data_format format;
    } cases[] = {{"a", 1, OMM_DATA_COMPLETION},      {"a", 15, OMM_DATA_COMPLETION},
                 {"a", 16, OMM_DATA_CHAT},           {"a.jsonl", 15, OMM_DATA_COMPLETION},
                 {"a.txt", 15, OMM_DATA_COMPLETION}, {"a.txt", 16, OMM_DATA_TEXT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_dataset *data = NULL;
        omm_dataset_options o = s_detect;
        omm_buf text;
        o.skip_bad = true;
        omm_buf_init(&text, 1 << 12);
        for (int k = 0; k < cases[i].empty; k++) CHECK_OK(omm_buf_append(&text, "{}\n", 3));
        CHECK_OK(omm_buf_append(&text, COMPLETION CHAT, sizeof COMPLETION CHAT - 1));
        CHECK_OK(omm_dataset_parse(&data, omm_buf_view(&text), cases[i].name, s_tokenizer, &o));
        CHECK_EQ(omm_dataset_totals(data)->format, cases[i].format);
        omm_dataset_close(data);
        omm_buf_fini(&text);
    }
    static const char *const refused[][2] = {{"a.json", "not JSON\n"},
                                             {"a", "{\"completion\": \"b\"}\n"}};
    for (size_t i = 0; i < 2; i++) {
        omm_dataset *data = NULL;
        CHECK_ERR(omm_dataset_parse(&data, omm_bytes_str(refused[i][1]), refused[i][0], s_tokenizer,
                                    &s_detect),
                  OMM_ERR_FORMAT);
        CHECK(i < 1 || strstr(omm_err_sentence(), "prompt: a string is needed") != NULL);
    }
}

/* --- limits of options and lines --- */

/* --- refusals -------------------------------------------------------------------------------- */

typedef struct refusal {
    const char *line;
    omm_data_bad bad;
    const char *says;
} refusal;

#define ONE(inside) "{\"client\": \"a\", \"messages\": [" inside "]}"

#define USER_ALONE "\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}"

static const refusal s_chat[] = {
    {"{\"client\": nope}", OMM_DATA_BAD_JSON,
     "t:2:15: invalid token near 'nope'; accepted: one JSON object a line, or all in one"},
    {"{} {}", OMM_DATA_BAD_JSON, "t:2:4: end of file expected near '{'"},
    {"{\"client\": \"a\\u0000\"}", OMM_DATA_BAD_JSON,
     "t:2:20: \\u0000 is not allowed, every other character is; accepted: one JSON"},
    {"[1]", OMM_DATA_BAD_JSON, "t:2: not a JSON object; accepted: "},
    {"{\"prompt\": \"a\", \"completion\": \"b\", \"client\": \"a\"}", OMM_DATA_BAD_MESSAGES,
     "t:2: a prompt, in a file whose first line is a chat (\"messages\"); accepted: one kind in"},
    {"{\"client\": \"a\", \"client\": \"a\"}", OMM_DATA_BAD_JSON, "t:2:24: duplicate object key"},
    {"{\"client\": \"\xff\"}", OMM_DATA_BAD_JSON, "t:2:12: unable to decode byte 0xff"},
    {"{\"client\": \"\"}", OMM_DATA_BAD_NAME, "t:2: client: a string is needed"},
    {"{\"client\": null}", OMM_DATA_BAD_NAME, "t:2: client: a string is needed"},
    {"{\"skill\": 1}", OMM_DATA_BAD_NAME, "t:2: skill: a string is needed"},
    {"{\"question\": 1}", OMM_DATA_BAD_MESSAGES,
     "t:2: messages: missing; accepted: one JSON object a line, or all in one array, "},
    {"{\"messages\": 1}", OMM_DATA_BAD_MESSAGES, "t:2: messages: a list of 1 to 256 messages"},
    {ONE(""), OMM_DATA_BAD_MESSAGES, "t:2: messages: a list of 1 to 256 messages"},
    {ONE("1"), OMM_DATA_BAD_CONTENT, "t:2: message 0 has no role"},
    {ONE("{\"role\": \"boss\"}"), OMM_DATA_BAD_CONTENT, "t:2: message 0: role 'boss'; accepted: "},
    {ONE("{\"role\": \"user\"}"), OMM_DATA_BAD_CONTENT, "t:2: message 0: content is not a string"},
    {ONE("{\"role\": \"user\", \"content\": \"a\"}"), OMM_DATA_BAD_REPLY,
     "t:2: messages: no assistant turn to learn from"},
    {ONE("{\"role\": \"assistant\", \"tool_calls\": [{}]}"), OMM_DATA_BAD_TOOLS,
     "t:2: tool_calls: call 0 has no name or arguments"},
    {ONE("{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": \"x\", "
         "\"arguments\": \"{\"}}]}"),
     OMM_DATA_BAD_TOOLS, "t:2: tool_calls: the arguments of call 0 are no JSON"},
    {"{\"tools\": [{}], " USER_ALONE, OMM_DATA_BAD_TOOLS,
     "t:2: tools: entry 0 has no function name"},
    {"{\"tools\": {\"name\": \"f\"}, " USER_ALONE, OMM_DATA_BAD_TOOLS,
     "t:2: tools: a list of tools is needed"},
    {"{\"tools\": \"[]\", " USER_ALONE, OMM_DATA_BAD_TOOLS,
     "t:2: tools: a list of tools is needed"},
    {ONE("{\"role\": \"assistant\", \"content\": \"a\", \"tool_calls\": {\"name\": \"f\"}}"),
     OMM_DATA_BAD_TOOLS, "t:2: message 0: tool_calls: a list of calls is needed"},
};

static const refusal s_completion[] = {
    {"{\"prompt\": [], \"completion\": \"a\"}", OMM_DATA_BAD_COMPLETION,
     "t:2: prompt: a string is needed"},
    {"{\"prompt\": \"a\"}", OMM_DATA_BAD_COMPLETION,
     "t:2: completion: a string that is not empty is needed"},
    {"{\"prompt\": \"a\", \"completion\": \"\"}", OMM_DATA_BAD_COMPLETION,
     "t:2: completion: a string that is not empty is needed"},
    {ONE(""), OMM_DATA_BAD_COMPLETION,
     "t:2: a chat (\"messages\"), in a file whose first line is a prompt; accepted: one kind"},
};

/* Between two good lines: refused by name, or left out and counted. */
static void refuse(const char *good, const refusal *r) {
    char text[4096];
    omm_dataset *data = NULL;
    omm_dataset_options o = s_detect;
    snprintf(text, sizeof text, "%s%s\n%s", good, r->line, good);
    CHECK_ERR(parse(&data, text, &o), OMM_ERR_FORMAT);
    CHECK(!data);
    if (strncmp(omm_err_sentence(), r->says, strlen(r->says)) != 0)
        fprintf(stderr, "got  %s\nwant %s\n", omm_err_sentence(), r->says);
    CHECK(strncmp(omm_err_sentence(), r->says, strlen(r->says)) == 0);
    o.skip_bad = true;
    CHECK_OK(parse(&data, text, &o));
    const omm_data_totals *t = omm_dataset_totals(data);
    CHECK(omm_dataset_count(data) == 2 && t->bad == 1 && t->bad_by[r->bad] == 1);
    CHECK_EQ(omm_dataset_example(data, 1)->line, 3);
    CHECK(strncmp(t->bad_first[0], r->says, strlen(r->says)) == 0);
    omm_dataset_close(data);
}

/* Of a whole file that is not what was asked for. */
static void asked_for(omm_data_format format, const char *text, const char *says) {
    omm_dataset *data = NULL;
    omm_dataset_options o = s_detect;
    o.format = format;
    CHECK_ERR(parse(&data, text, &o), OMM_ERR_FORMAT);
    CHECK(strcmp(omm_err_sentence(), says) == 0);
}

static void asked_formats(void) {
    asked_for(
        OMM_DATA_COMPLETION, "{\"messages\": []}\n",
        "t:1: a chat (\"messages\"), where completions are asked for; accepted: \"prompt\" and "
        "\"completion\", or the format chat");
    asked_for(OMM_DATA_CHAT, "{\"prompt\": \"a\", \"completion\": \"b\"}\n",
              "t:1: a prompt, where chats are asked for; accepted: \"messages\", or the format "
              "completion");
}

#define OF_CLIENT(name)                                                                            \
    "{\"client\": \"" name "\", \"messages\": [{\"role\": \"assistant\", \"content\": \"B.\"}]}\n"

/* Who has no example is named, with those that there are. */
static void unknown_clients(void) {
    static const struct {
        const char *text, *says;
        uint32_t seq_max;
    } cases[] = {
        {CHAT, "t: no example of client 'b'; it has local", 0},
        {"text", "t: no example of client 'b'; it has no clients", 0},
        {OF_CLIENT("ab") OF_CLIENT("a") OF_CLIENT("ab"),
         "t: no example of client 'b'; it has ab, a", 0},
        {OF_CLIENT("b"),
         "t: no example of client 'b' can be learned from: all are bad, or begin after the longest "
         "that an example may be",
         1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_dataset *data = NULL;
        omm_dataset_options o = s_detect;
        o.seq_max = cases[i].seq_max;
        o.clients = (const char *const[]){"b"};
        o.client_count = 1;
        CHECK_ERR(parse(&data, cases[i].text, &o), OMM_ERR_NOT_FOUND);
        expect_text(omm_err_sentence(), cases[i].says);
    }
}

/* More names than a message has room for: whole ones, and dots. */
static void many_clients(void) {
    omm_dataset *data = NULL;
    omm_dataset_options o = s_detect;
    omm_buf text;
    omm_buf_init(&text, 1 << 16);
    for (unsigned i = 0; i < 60; i++) {
        char line[160];
        const int size = snprintf(line, sizeof line, OF_CLIENT("client-%02u"), i);
        CHECK_OK(omm_buf_append(&text, line, (size_t)size));
    }
    CHECK_OK(omm_buf_append(&text, "", 1));
    o.clients = (const char *const[]){"b"};
    o.client_count = 1;
    CHECK_ERR(parse(&data, (const char *)text.data, &o), OMM_ERR_NOT_FOUND);
    CHECK(strstr(omm_err_sentence(), "; it has client-00, client-01, client-02, "));
    CHECK(strstr(omm_err_sentence(), ", client-15, client-16, ..."));
    CHECK(strstr(omm_err_sentence(), "...") + 3 == strchr(omm_err_sentence(), 0));
    omm_buf_fini(&text);
}

static void refusals(void) {
    omm_dataset *data = NULL;
    omm_dataset_options o = s_detect;
    for (size_t i = 0; i < sizeof s_chat / sizeof *s_chat; i++) refuse(CHAT, &s_chat[i]);
    for (size_t i = 0; i < sizeof s_completion / sizeof *s_completion; i++)
        refuse(COMPLETION, &s_completion[i]);
    asked_formats();
    unknown_clients();
    many_clients();
    o.client_default = NULL; /* a run of many clients: a line that names none is nobody's */
    CHECK_ERR(parse(&data, "{\"clent\": \"a\", \"messages\": []}", &o), OMM_ERR_FORMAT);
    expect_text(omm_err_sentence(), "t:1: client: missing; a string is needed");
    o.client_default = s_detect.client_default;
    CHECK_ERR(parse(&data, "Good line.\nBad \xc3( line", &o), OMM_ERR_FORMAT);
    expect_text(omm_err_sentence(), "t:2:5: byte 0xc3 is not UTF-8 text; is this a text file?");
    static const char *const bytes[] = {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"};
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        CHECK_ERR(parse(&data, bytes[i], &o), OMM_ERR_FORMAT);
    CHECK_ERR(omm_dataset_parse(&data, omm_bytes_of("a\0b", 3), "t", s_tokenizer, &o),
              OMM_ERR_FORMAT);
    CHECK_OK(parse(&data, "\xe2\x82\xac \xf0\x9f\x98\x80 \xc3\xa9 fine", &o));
    omm_dataset_close(data);
    o.loss = OMM_LOSS_ASSISTANT;
    CHECK_ERR(parse(&data, "text", &o), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "text data has no assistant turns to learn from; accepted: "));
    CHECK_ERR(parse(&data, COMPLETION, &o), OMM_ERR_CONFIG);
    o = s_detect;
    o.seq_max = 8;
    o.stride = 9;
    CHECK_ERR(parse(&data, "text", &o), OMM_ERR_CONFIG);
    o.stride = 1;
    o.separator = "a\nb";
    CHECK_ERR(parse(&data, "text", &o), OMM_ERR_CONFIG);
    o = s_detect;
    o.skip_bad = true;
    CHECK_ERR(parse(&data, "{\"messages\": 1}\n", &o), OMM_ERR_NOT_FOUND);
    CHECK(strstr(omm_err_sentence(),
                 "t: no example to learn from; bad lines: 1, first t:1: messages: "));
    o.skip_bad = false;
    CHECK_ERR(parse(&data, "", &o), OMM_ERR_NOT_FOUND);
    expect_text(omm_err_sentence(), "t: no example to learn from: nothing is in it");
    o = s_detect;
    o.seq_max = 2;
    CHECK_ERR(parse(&data, CHAT, &o), OMM_ERR_NOT_FOUND);
    CHECK(
        strstr(omm_err_sentence(), "begins after the longest that an example may be, in all 1 of"));
}

/* --- streams --------------------------------------------------------------------------------- */

static void same_example(const omm_example *a, const omm_example *b) {
    CHECK_EQ(a->count, b->count);
    CHECK_EQ(a->learn_count, b->learn_count);
    CHECK_EQ(a->prompt_count, b->prompt_count);
    CHECK(memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0);
    CHECK(memcmp(a->learn, b->learn, a->count) == 0);
    CHECK(strcmp(a->client, b->client) == 0 && strcmp(a->skill, b->skill) == 0);
    CHECK(!a->reply == !b->reply);
    CHECK(!a->reply || !b->reply || strcmp(a->reply, b->reply) == 0);
    CHECK(a->has_call == b->has_call && omm_digest_equal(&a->digest, &b->digest));
}

/* `apart`: every so many examples are read. */
static void same_data(const omm_dataset *memory, const omm_dataset *stream, size_t apart) {
    omm_data_reader *reader = NULL;
    omm_digest a = omm_dataset_digest(memory), b = omm_dataset_digest(stream);
    size_t count = omm_dataset_count(memory), clients = omm_dataset_client_count(memory);
    const omm_data_totals *x = omm_dataset_totals(memory), *y = omm_dataset_totals(stream);
    CHECK_EQ(count, omm_dataset_count(stream));
    CHECK_EQ(clients, omm_dataset_client_count(stream));
    CHECK(omm_digest_equal(&a, &b) && x->format == y->format && x->longest == y->longest);
    CHECK(x->examples == y->examples && x->tokens == y->tokens && x->learned == y->learned);
    CHECK(x->dropped == y->dropped && x->truncated == y->truncated && x->bad == y->bad);
    CHECK_OK(omm_data_reader_open(&reader, stream, NULL));
    for (size_t i = 0; i < count; i += apart) {
        size_t at = i * 7919 % count; /* any order */
        omm_example e;
        uint32_t tokens = 0, learned = 0;
        CHECK_OK(omm_data_reader_take(reader, &e, at));
        same_example(omm_dataset_example(memory, at), &e);
        omm_dataset_size(&tokens, &learned, stream, at, omm_dataset_seq_max(stream));
        CHECK(tokens == e.count && learned == e.learn_count);
        if (i / apart % 5 == 0) omm_data_reader_release(reader);
    }
    for (size_t i = 0; i < clients; i++)
        CHECK(strcmp(omm_dataset_client(memory, i), omm_dataset_client(stream, i)) == 0);
    omm_data_reader_close(reader);
}

static void same_parts(const omm_dataset *memory, const omm_dataset *stream, bool by_client) {
    omm_dataset *a[2] = {0}, *b[2] = {0};
    omm_err err = omm_dataset_split(&a[0], &a[1], memory, 0.25, by_client);
    CHECK_EQ(err, omm_dataset_split(&b[0], &b[1], stream, 0.25, by_client));
    if (err != OMM_OK) return;
    CHECK(omm_dataset_is_stream(b[0]) && !omm_dataset_is_stream(b[1]));
    same_data(a[0], b[0], 7);
    same_data(a[1], b[1], 7); /* both in memory */
    CHECK_EQ(omm_dataset_count(a[0]) + omm_dataset_count(a[1]), omm_dataset_count(memory));
    for (int i = 0; i < 2; i++) {
        omm_dataset_close(a[i]);
        omm_dataset_close(b[i]);
    }
}

/* Whatever is kept, the same is read; without replies all but these. */
static void same_caches(const omm_dataset *memory, const omm_dataset *stream) {
    omm_data_reader_room room;
    omm_data_reader_room_of(&room, memory);
    CHECK(room.reading == 0 && room.cache == 0);
    omm_data_reader_room_of(&room, stream);
    CHECK(room.cache > 0 && room.cache <= (64 << 20));
    const size_t sizes[] = {1, 700, 3001, (size_t)room.cache, 0};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const omm_data_reader_options options = {.cache_bytes_max = sizes[k], .no_replies = k != 2};
        omm_data_reader *reader = NULL;
        CHECK_OK(omm_data_reader_open(&reader, stream, &options));
        const size_t before = omm_mem_bytes();
        const bool is_long = room.reading > 4 << 20; /* lines that take long to make */
        const size_t takes = is_long ? 4 : 120;
        for (size_t i = 0; i < takes; i++) { /* each is read twice in succession */
            const size_t at = i / 2 * 7 % omm_dataset_count(stream);
            omm_example e, want = *omm_dataset_example(memory, at);
            CHECK_OK(omm_data_reader_take(reader, &e, at));
            if (options.no_replies) want.reply = NULL;
            same_example(&want, &e);
            omm_data_reader_release(reader);
        }
        if (k == 0) CHECK(omm_mem_bytes() - before <= room.reading);
        omm_data_reader_close(reader);
    }
}

/* The windows of a text that lie in one piece of it: the first makes it, however little is kept. */
static void piece_is_made_once(const omm_dataset *stream) {
    const omm_data_reader_options options = {.cache_bytes_max = 1};
    omm_data_reader *reader = NULL;
    size_t asked[2];
    if (!omm_data_format_is_text(omm_dataset_totals(stream)->format)) return;
    CHECK_OK(omm_data_reader_open(&reader, stream, &options));
    for (size_t i = 0; i < 2; i++) {
        omm_example e;
        asked[i] = omm_mem_asked();
        CHECK_OK(omm_data_reader_take(reader, &e, i));
        asked[i] = omm_mem_asked() - asked[i];
        omm_data_reader_release(reader);
    }
    CHECK(asked[0] > OMM_DATASET_PIECE_BYTES_MAX && asked[1] < OMM_DATASET_PIECE_BYTES_MAX / 4);
    omm_data_reader_close(reader);
    /* so it is for the digest of a part: the lists of examples are what else it asks for */
    omm_dataset *parts[2] = {0};
    asked[1] = omm_mem_asked();
    CHECK_OK(omm_dataset_split(&parts[0], &parts[1], stream, 0.1, false));
    CHECK(omm_dataset_count(stream) > 200 && omm_mem_asked() - asked[1] < 40 * asked[0]);
    for (size_t i = 0; i < 2; i++) omm_dataset_close(parts[i]);
}

static void same_file(const char *path, omm_dataset_options o) {
    omm_dataset *memory = NULL, *stream = NULL;
    CHECK_OK(omm_dataset_load(&memory, path, s_tokenizer, &o));
    for (int i = 0; i < 2; i++) {
        o.cache_bytes_max = i ? 5000 : 0;
        CHECK_OK(omm_dataset_stream(&stream, path, s_tokenizer, &o));
        same_data(memory, stream, i ? 101 : 1);
        if (i == 0) same_caches(memory, stream);
        piece_is_made_once(stream);
        if (i == 0) same_parts(memory, stream, false);
        if (i == 0) same_parts(memory, stream, true);
        omm_dataset_close(stream);
    }
    omm_dataset_close(memory);
}

/* Lines that the window of the source cuts in every way; a text of many pieces. */
static void streams(void) {
    char path[512];
    omm_dataset_options o = s_detect;
    o.seq_max = 96;
    test_path(path, "scenarios/base/test.jsonl");
    same_file(path, o);
    omm_buf text;
    omm_buf_init(&text, 16 << 20);
    for (unsigned i = 0; i < 40; i++) {
        CHECK_OK(omm_buf_printf(&text,
                                "{\"client\": \"c%u\", \"prompt\": \"p%u\", \"completion\": "
                                "\"x%u\", \"pad\": \"%*s\"}\n",
                                i % 7, i, i, (int)(i * i * 400), ""));
    }
    write_file(path, "long.jsonl", omm_buf_view(&text));
    same_file(path, o);
    omm_buf_clear(&text);
    for (unsigned i = 0; text.size < 150000; i++)
        CHECK_OK(omm_buf_printf(&text, "Line %u of the text, \xe2\x82\xac%s", i,
                                i % 1000 == 999 ? "\n\n"
                                : i % 9         ? " "
                                                : "\n"));
    write_file(path, "long.txt", omm_buf_view(&text));
    o.separator = "";
    same_file(path, o);
    o.separator = NULL;
    o.stride = 40;
    same_file(path, o);
    omm_buf_clear(&text);
    for (unsigned i = 0; i < 50000; i++) CHECK_OK(omm_buf_append(&text, "\xe2\x82\xac", 3));
    write_file(path, "one_line.txt", omm_buf_view(&text));
    o.stride = 0;
    same_file(path, o);
    omm_buf_fini(&text);
}

/* As long as before, in its place, written a nanosecond or a second later. */
static void changed_in_place(void) {
    char path[128];
    write_file(path, "in_place.jsonl", omm_bytes_str(COMPLETION COMPLETION));
    for (int i = 0; i < 3; i++) {
        const struct timespec then = {1000000000, 500};
        struct timespec times[2] = {then, then};
        omm_dataset *data = NULL;
        omm_data_reader *reader = NULL;
        CHECK_EQ(utimensat(AT_FDCWD, path, times, 0), 0);
        CHECK_OK(omm_dataset_stream(&data, path, s_tokenizer, &s_detect));
        times[1].tv_nsec += i == 1;
        times[1].tv_sec += i == 2;
        CHECK_EQ(utimensat(AT_FDCWD, path, times, 0), 0);
        CHECK_EQ(omm_data_reader_open(&reader, data, NULL), i == 0 ? OMM_OK : OMM_ERR_MISMATCH);
        omm_data_reader_close(reader);
        omm_dataset_close(data);
    }
}

/* Another file in its place, of the same bytes and time. */
static void put_in_its_place(void) {
    static const struct timespec then = {1000000000, 500};
    const struct timespec times[2] = {then, then};
    char path[128], other[128];
    omm_dataset *data = NULL;
    omm_data_reader *reader = NULL;
    write_file(path, "place.jsonl", omm_bytes_str(COMPLETION));
    write_file(other, "other.jsonl", omm_bytes_str(COMPLETION));
    CHECK_EQ(utimensat(AT_FDCWD, path, times, 0), 0);
    CHECK_EQ(utimensat(AT_FDCWD, other, times, 0), 0);
    CHECK_OK(omm_dataset_stream(&data, path, s_tokenizer, &s_detect));
    CHECK_EQ(rename(other, path), 0);
    CHECK_ERR(omm_data_reader_open(&reader, data, NULL), OMM_ERR_MISMATCH);
    omm_dataset_close(data);
}

static int s_written;

/* Each time another time of change. */
static void touch(int signal) {
    static time_t seconds = 1000000000;
    (void)signal;
    seconds++;
    const struct timespec times[2] = {{seconds, 0}, {seconds, 0}};
    if (futimens(s_written, times) != 0) abort();
}

/* Written to while it is indexed: what was read of it is no one file's. */
static void changed_while_indexed(void) {
    enum { LINES = 20000 };
    static const struct itimerval often = {{0, 1000}, {0, 1000}}, never;
    const struct sigaction on = {.sa_handler = touch, .sa_flags = SA_RESTART};
    struct sigaction before;
    char path[128];
    omm_buf text;
    omm_dataset *data = NULL;
    omm_buf_init(&text, 16 << 20);
    for (int i = 0; i < LINES; i++)
        CHECK_OK(omm_buf_append(&text, COMPLETION, sizeof COMPLETION - 1));
    write_file(path, "meanwhile.jsonl", omm_buf_view(&text));
    omm_buf_fini(&text);
    s_written = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(s_written >= 0 && sigaction(SIGALRM, &on, &before) == 0);
    CHECK_EQ(setitimer(ITIMER_REAL, &often, NULL), 0);
    const omm_err err = omm_dataset_stream(&data, path, s_tokenizer, &s_detect);
    CHECK_EQ(setitimer(ITIMER_REAL, &never, NULL), 0);
    CHECK_EQ(sigaction(SIGALRM, &before, NULL), 0);
    close(s_written);
    CHECK_ERR(err, OMM_ERR_MISMATCH);
    CHECK(!data && strstr(omm_err_sentence(), "the file has changed since it was indexed"));
}

/* Cut off while a reader has it open: the bytes behind are not there. */
static void shorter_while_read(void) {
    char path[128];
    omm_dataset *data = NULL;
    omm_data_reader *reader = NULL;
    omm_example e;
    write_file(path, "shorter.jsonl", omm_bytes_str(COMPLETION COMPLETION));
    CHECK_OK(omm_dataset_stream(&data, path, s_tokenizer, &s_detect));
    CHECK_OK(omm_data_reader_open(&reader, data, NULL));
    CHECK_EQ(truncate(path, (off_t)sizeof COMPLETION - 1), 0);
    CHECK_ERR(omm_data_reader_take(reader, &e, 1), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "the file became shorter while it was read"));
    omm_data_reader_close(reader);
    omm_dataset_close(data);
}

static void changed_files(void) {
    char path[128];
    omm_dataset *data = NULL;
    omm_data_reader *reader = NULL, *late = NULL;
    omm_example e;
    write_file(path, "changes.jsonl", omm_bytes_str(COMPLETION COMPLETION COMPLETION));
    CHECK_OK(omm_dataset_stream(&data, path, s_tokenizer, &s_detect));
    CHECK_OK(omm_data_reader_open(&reader, data, NULL));
    CHECK_OK(omm_data_reader_take(reader, &e, 0));
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0 && pwrite(fd, "cloud", 5, (off_t)sizeof COMPLETION - 1 + 12) == 5);
    CHECK(ftruncate(fd, (off_t)(2 * (sizeof COMPLETION - 1))) == 0);
    omm_data_reader_close(reader);
    CHECK_ERR(omm_data_reader_open(&late, data, NULL), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "the file has changed since it was indexed"));
    close(fd);
    omm_dataset_close(data);
    /* While a reader has it open the line itself says so: a letter that changes no token count, then
     * one that makes it no example at all. */
    write_file(path, "changes.jsonl", omm_bytes_str(COMPLETION COMPLETION COMPLETION));
    CHECK_OK(omm_dataset_stream(&data, path, s_tokenizer, &s_detect));
    CHECK_OK(omm_data_reader_open(&reader, data, NULL));
    fd = open(path, O_WRONLY | O_CLOEXEC);
    off_t second = (off_t)sizeof COMPLETION - 1;
    CHECK(fd >= 0 && pwrite(fd, "x", 1, 2 * second - 4) == 1); /* the skill: "skx" */
    CHECK_ERR(omm_data_reader_take(reader, &e, 1), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "the file has changed"));
    omm_data_reader_close(reader);
    omm_dataset_close(data);
    CHECK_OK(omm_dataset_stream(&data, path, s_tokenizer, &s_detect));
    CHECK_OK(omm_data_reader_open(&reader, data, NULL));
    CHECK(pwrite(fd, "}", 1, second) == 1);
    CHECK_ERR(omm_data_reader_take(reader, &e, 1), OMM_ERR_MISMATCH);
    close(fd);
    omm_data_reader_close(reader);
    omm_dataset_close(data);
    data = NULL;
    CHECK_ERR(omm_dataset_stream(&data, s_dir, s_tokenizer, &s_detect), OMM_ERR_IO);
    CHECK_ERR(omm_dataset_stream(&data, "/nowhere", s_tokenizer, &s_detect), OMM_ERR_NOT_FOUND);
}

/* Texts whose documents a control token ends: windows of each, what is dropped and bad named by text. */
static void documents_of_texts(void) {
    static const char *const names[] = {"one.txt", "two.txt"};
    char paths[2][128];
    const char *const texts[] = {paths[0], paths[1]};
    omm_dataset *data = NULL;
    omm_hasher hasher;
    omm_hasher_init(&hasher);
    write_file(paths[0], names[0], omm_bytes_str("A b.<|endoftext|><|endoftext|>\nC d."));
    write_file(paths[1], names[1], omm_bytes_str("Once upon a time there was a text."));
    CHECK_ERR(omm_dataset_documents(&data, texts, 2, s_tokenizer, "<|nothing|>", 8),
              OMM_ERR_CONFIG);
    CHECK_OK(omm_dataset_documents(&data, texts, 2, s_tokenizer, "<|endoftext|>", 6));
    const omm_data_totals *t = omm_dataset_totals(data);
    CHECK(t->format == OMM_DATA_TEXT && t->dropped == 1 && omm_dataset_seq_max(data) == 6);
    CHECK(t->examples == omm_dataset_count(data) && t->longest == 6);
    CHECK_EQ(omm_dataset_text_end(data, 0), 2);
    for (size_t text = 1; text < 3; text++) /* behind the last: the end of all */
        CHECK_EQ(omm_dataset_text_end(data, text), omm_dataset_count(data));
    const size_t all = omm_dataset_count(data);
    expect_text(text_of(omm_dataset_example(data, 0), false), "A b.<|endoftext|>");
    expect_text(text_of(omm_dataset_example(data, 1), false), "\nC d.");
    for (size_t i = 0; i < omm_dataset_count(data); i++) {
        const omm_example *e = omm_dataset_example(data, i);
        omm_hasher_update(&hasher, omm_bytes_of(e->ids, e->count * sizeof *e->ids));
        omm_hasher_update(&hasher, omm_bytes_of("\n", 1));
    }
    const omm_digest want = omm_hasher_final(&hasher), got = omm_dataset_digest(data);
    CHECK(omm_digest_equal(&want, &got));
    omm_dataset_close(data);
    omm_err err = OMM_ERR_NOMEM; /* all of them, or none */
    for (size_t nth = 1; err != OMM_OK; nth++) {
        data = NULL;
        omm_mem_fail_nth(nth);
        err = omm_dataset_documents(&data, texts, 2, s_tokenizer, "<|endoftext|>", 6);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK ? omm_dataset_count(data) == all : err == OMM_ERR_NOMEM && !data);
    }
    omm_dataset_close(data);
    CHECK_OK(parse(&data, CHAT, &s_detect));
    CHECK_EQ(omm_dataset_text_end(data, 0), 1);
    omm_dataset_close(data);
    data = NULL;
    write_file(paths[0], names[0], omm_bytes_str("A\nb\n"));
    write_file(paths[1], names[1], omm_bytes_str("A\nb\xff\n"));
    CHECK_ERR(omm_dataset_documents(&data, texts, 2, s_tokenizer, "<|endoftext|>", 6),
              OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "two.txt:2:2: byte 0xff is not UTF-8") != NULL && !data);
    write_file(paths[0], names[0], omm_bytes_str("<|endoftext|>"));
    CHECK_ERR(omm_dataset_documents(&data, texts, 1, s_tokenizer, "<|endoftext|>", 6),
              OMM_ERR_NOT_FOUND);
    CHECK(strstr(omm_err_sentence(), "one.txt: no example to learn from: what is") && !data);
}

/* Of some clients a stream has the same as memory; what is wrong in a line of another client is not looked for. */
static void streams_of_clients(void) {
    char path[128];
    const char *const wanted[] = {"a", "c"};
    omm_dataset_options o = s_detect;
    o.clients = wanted;
    o.client_count = 2;
    write_file(path, "clients.jsonl",
               omm_bytes_str(OF_CLIENT("c") OF_CLIENT(
                   "b") "{\"client\": \"b\", \"prompt\": 7}\n" OF_CLIENT("a") OF_CLIENT("c")));
    omm_dataset *memory = NULL, *stream = NULL;
    CHECK_OK(omm_dataset_load(&memory, path, s_tokenizer, &o));
    CHECK_OK(omm_dataset_stream(&stream, path, s_tokenizer, &o));
    CHECK(omm_dataset_count(memory) == 3 && omm_dataset_client_count(memory) == 2);
    same_data(memory, stream, 1);
    omm_dataset_close(memory);
    omm_dataset_close(stream);
}

static void splits(void) {
    omm_dataset *data = NULL, *kept = NULL, *held = NULL;
    CHECK_OK(parse(&data, COMPLETION COMPLETION, &s_detect)); /* equal lines stay together */
    CHECK_ERR(omm_dataset_split(&kept, &held, data, 0.5, false), OMM_ERR_NOT_FOUND);
    CHECK(strstr(omm_err_sentence(), "a share of 0.5 of 2 examples leaves none to train on"));
    CHECK_ERR(omm_dataset_split(&kept, &held, data, 0.5, true), OMM_ERR_NOT_FOUND);
    CHECK(strstr(omm_err_sentence(), "a share of 0.5 of 1 clients leaves none to train on"));
    static const double shares[] = {1, 0, -0.5, 1.5, (double)NAN};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        CHECK_ERR(omm_dataset_split(&kept, &held, data, shares[i], false), OMM_ERR_CONFIG);
    CHECK(!kept && !held);
    omm_dataset_close(data);
    test_data_open(&data, "test.jsonl", 60, s_tokenizer);
    CHECK_OK(omm_dataset_split(&kept, &held, data, 0.1, false));
    CHECK(omm_dataset_count(held) == 6 && omm_dataset_count(kept) == 54);
    omm_dataset_close(kept);
    omm_dataset_close(held);
    static const struct {
        double share;
        size_t held;
    } rounded[] = {{0.125, 8}, {0.124, 7}, {1e-9, 1}};
    for (size_t i = 0; i < sizeof rounded / sizeof *rounded; i++) {
        CHECK_OK(omm_dataset_split(&kept, &held, data, rounded[i].share, false));
        CHECK_EQ(omm_dataset_count(held), rounded[i].held);
        CHECK_EQ(omm_dataset_count(kept), 60 - rounded[i].held);
        omm_dataset_close(kept);
        omm_dataset_close(held);
    }
    CHECK_OK(omm_dataset_split(&kept, &held, data, 0.2, true));
    CHECK_EQ(omm_dataset_client_count(kept) + omm_dataset_client_count(held),
             omm_dataset_client_count(data));
    omm_dataset_close(kept);
    omm_dataset_close(held);
    omm_dataset_close(data);
}

static omm_err sum_up(void *ud, const omm_example *e) {
    *(uint64_t *)ud += e->count;
    return OMM_OK;
}

static void scans(void) {
    char path[512];
    uint64_t tokens = 0;
    omm_data_totals t;
    test_path(path, "scenarios/base/test.jsonl");
    CHECK_OK(omm_dataset_scan(&t, path, s_tokenizer, NULL, sum_up, &tokens));
    CHECK(tokens == t.tokens && t.examples > 100 && t.longest > 10 && t.format == OMM_DATA_CHAT);
}

/* NOMEM, or all well, for each allocation in turn; never a leak. */
static void allocations_fail(void) {
    char path[128];
    write_file(path, "small.jsonl", omm_bytes_str(COMPLETION COMPLETION CHAT));
    omm_dataset_options o = s_detect;
    o.skip_bad = true;
    size_t live = omm_mem_live();
    for (size_t nth = 1;; nth++) {
        omm_dataset *data = NULL;
        omm_data_reader *reader = NULL;
        omm_example e;
        omm_mem_fail_nth(nth);
        omm_err err = omm_dataset_stream(&data, path, s_tokenizer, &o);
        if (err == OMM_OK) err = omm_data_reader_open(&reader, data, NULL);
        if (err == OMM_OK) err = omm_data_reader_take(reader, &e, 1);
        omm_mem_fail_nth(0);
        omm_data_reader_close(reader);
        omm_dataset_close(data);
        CHECK_EQ(omm_mem_live(), live);
        if (err == OMM_OK && nth > 60) break; /* some only make the cache less full */
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
    }
}

/* A part of a stream that memory fails is none, not a smaller one. */
static void splitting_fails(void) {
    enum { LINES = 9 };
    char path[128];
    omm_buf text;
    omm_dataset *all = NULL;
    omm_buf_init(&text, 1 << 16);
    for (unsigned i = 0; i < LINES; i++)
        CHECK_OK(omm_buf_printf(&text, "{\"prompt\": \"%u\", \"completion\": \"x\"}\n", i));
    write_file(path, "split.jsonl", omm_buf_view(&text));
    omm_buf_fini(&text);
    CHECK_OK(omm_dataset_stream(&all, path, s_tokenizer, &s_detect));
    const size_t live = omm_mem_live();
    bool failed = true;
    for (size_t nth = 1; nth < 200; nth++) {
        omm_dataset *kept = NULL, *held = NULL;
        omm_mem_fail_nth(nth);
        const omm_err err = omm_dataset_split(&kept, &held, all, 0.34, false);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        failed = err != OMM_OK;
        CHECK(!failed || err == OMM_ERR_NOMEM);
        if (!failed) CHECK(omm_dataset_count(kept) == 6 && omm_dataset_count(held) == 3);
        if (!failed) omm_dataset_close(kept);
        if (!failed) omm_dataset_close(held);
        CHECK_EQ(omm_mem_live(), live);
    }
    CHECK(!failed);
    omm_dataset_close(all);
}

/* The lowest descriptor that is free. */
static int next_descriptor(void) {
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK_EQ(close(fd), 0);
    return fd;
}

int main(void) {
    omm_tokenizer *tokenizer = NULL;
    CHECK(mkdtemp(s_dir));
    test_tokenizer_open(&tokenizer);
    s_tokenizer = tokenizer;
    const int descriptor = next_descriptor();
    losses();
    announced_tools();
    thoughts();
    completions();
    completion_of_sentencepiece();
    for (uint32_t stride = 0; stride <= 8; stride++) windows(8, stride);
    windows(2, 1);
    windows(3, 0);
    documents();
    detection();
    detection_looks_ahead();
    refusals();
    documents_of_texts();
    streams_of_clients();
    splits();
    streams();
    changed_files();
    changed_in_place();
    put_in_its_place();
    changed_while_indexed();
    shorter_while_read();
    scans();
    allocations_fail();
    splitting_fails();
    CHECK_EQ(next_descriptor(), descriptor); /* no file is left open */
    omm_tokenizer_close(tokenizer);
    CHECK_OK(omm_dir_remove(s_dir));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

/* data_array_test.c - a file that is one JSON array: the same examples as of lines, where they stand, what is refused. */
#include "test_data.h"

#include "omm/data_reader.h"
#include "omm/mem.h"
#include "omm/shard.h"

#include <stdlib.h>

#define ONE "{\"prompt\": \"One [\", \"completion\": \" \\\"}{,\\\\\", \"skill\": \"\xc3\xa9\"}"
#define TWO                                                                                        \
    "{\"prompt\": \"Two\", \"completion\": \" 2\", \"client\": \"b\", \"more\": [{}, [1.5e3, "     \
    "null]]}"
#define THREE "{\"prompt\": \"Three\", \"completion\": \" 3\"}"

static void same_example(const omm_example *a, const omm_example *b) {
    CHECK(a->count == b->count && a->learn_count == b->learn_count);
    CHECK_EQ(memcmp(a->ids, b->ids, a->count * sizeof *a->ids), 0);
    CHECK_EQ(memcmp(a->learn, b->learn, a->count), 0);
    CHECK(strcmp(a->client, b->client) == 0 && strcmp(a->skill, b->skill) == 0);
    CHECK(omm_digest_equal(&a->digest, &b->digest));
}

static void same_sets(const omm_dataset *a, const omm_dataset *b) {
    const omm_digest x = omm_dataset_digest(a), y = omm_dataset_digest(b);
    CHECK_EQ(omm_dataset_count(a), omm_dataset_count(b));
    for (size_t i = 0; i < omm_dataset_count(a); i++)
        same_example(omm_dataset_example(a, i), omm_dataset_example(b, i));
    CHECK(omm_digest_equal(&x, &y));
}

/* A stream of the file is the set in memory, forwards and backwards. */
static void same_stream(const omm_dataset *memory, const char *path, const omm_dataset_options *o) {
    omm_dataset *stream = NULL;
    omm_data_reader *reader = NULL;
    CHECK_OK(omm_dataset_stream(&stream, path, s_tokenizer, o));
    const omm_digest x = omm_dataset_digest(memory), y = omm_dataset_digest(stream);
    const size_t n = omm_dataset_count(memory);
    CHECK(omm_digest_equal(&x, &y) && omm_dataset_count(stream) == n);
    CHECK(omm_dataset_totals(stream)->is_array);
    CHECK_OK(omm_data_reader_open(&reader, stream, NULL));
    for (size_t i = 0; i < 2 * n; i++) {
        omm_example e;
        const size_t at = i < n ? i : 2 * n - 1 - i;
        CHECK_OK(omm_data_reader_take(reader, &e, at));
        same_example(&e, omm_dataset_example(memory, at));
        CHECK(e.line == 0 && e.element == 0);
    }
    omm_data_reader_close(reader);
    if (n > 1) {
        omm_dataset *parts[2] = {0};
        CHECK_OK(omm_dataset_split(&parts[0], &parts[1], stream, 0.5, false));
        for (int i = 0; i < 2; i++) CHECK(omm_dataset_totals(parts[i])->is_array);
        CHECK(omm_dataset_is_stream(parts[0]) && !omm_dataset_is_stream(parts[1]));
        omm_dataset_close(parts[0]);
        omm_dataset_close(parts[1]);
    }
    omm_dataset_close(stream);
}

/* However they are spaced, elements are the lines of the same bytes. */
static void as_lines(void) {
    static const struct {
        const char *text;
        uint32_t lines[3];
    } arrays[] = {{"[" ONE "," TWO "," THREE "]", {1, 1, 1}},
                  {"[\n" ONE ",\n" TWO ",\n" THREE "\n]\n", {2, 3, 4}},
                  {" \r\n [\t" ONE "\r\n,\r\n\n" TWO " , " THREE "\n\n] \r\n\t", {2, 5, 5}},
                  {"\xef\xbb\xbf[" ONE ", " TWO ",\n" THREE "]", {1, 1, 2}}};
    omm_dataset *lines = NULL;
    CHECK_OK(parse(&lines, ONE "\n" TWO "\n" THREE "\n", &s_detect));
    CHECK(!omm_dataset_totals(lines)->is_array && omm_dataset_example(lines, 2)->element == 0);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        char path[128];
        omm_dataset *data = NULL, *part = NULL;
        omm_dataset_options asked = s_detect;
        CHECK_OK(parse(&data, arrays[i].text, &s_detect));
        same_sets(lines, data);
        CHECK(omm_dataset_totals(data)->is_array);
        for (uint32_t k = 0; k < 3; k++) {
            CHECK_EQ(omm_dataset_example(data, k)->line, arrays[i].lines[k]);
            CHECK_EQ(omm_dataset_example(data, k)->element, k + 1);
        }
        write_file(path, "array", omm_bytes_str(arrays[i].text));
        same_stream(data, path, &s_detect);
        CHECK_OK(omm_dataset_check(path, &s_detect, 0));
        CHECK_OK(omm_dataset_sample(&part, data, 1, 2, false));
        CHECK(omm_dataset_totals(part)->is_array && omm_dataset_example(part, 0)->element == 2);
        omm_dataset_close(part);
        omm_dataset_close(data);
        asked.format = OMM_DATA_COMPLETION;
        CHECK_OK(parse(&data, arrays[i].text, &asked));
        same_sets(lines, data);
        omm_dataset_close(data);
    }
    omm_dataset_close(lines);
}

/* Spread over lines an element has the same tokens, and the digest of its own bytes. */
static void spread(void) {
    static const char pretty[] = "{\n    \"prompt\": \"Three\",\n    \"completion\": \" 3\"\n  }";
    char text[200];
    omm_dataset *lines = NULL, *data = NULL;
    snprintf(text, sizeof text, "[\n  %s\n]\n", pretty);
    CHECK_OK(parse(&lines, THREE, &s_detect));
    CHECK_OK(parse(&data, text, &s_detect));
    const omm_example *a = omm_dataset_example(lines, 0), *b = omm_dataset_example(data, 0);
    const omm_digest own = omm_hash(omm_bytes_str(pretty));
    CHECK(a->count == b->count && memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0);
    CHECK(omm_digest_equal(&b->digest, &own) && !omm_digest_equal(&a->digest, &own));
    CHECK_EQ(b->line, 2);
    omm_dataset_close(lines);
    omm_dataset_close(data);
}

/* By content; where a text may begin so, what stands behind the '[' decides, or a name. */
static void detection(void) {
    static const struct {
        const char *name, *text;
        omm_data_format format;
        bool is_array;
    } cases[] = {
        {"a.json", "[{\"instruction\": \"a\", \"output\": \"b\"}]", OMM_DATA_ALPACA, true},
        {"a", "[{\"instruction\": \"a\", \"output\": \"b\"}]", OMM_DATA_ALPACA, true},
        {"a.txt", "[{\"text\": \"a b c\"}]", OMM_DATA_LINES, true},
        {"a.jsonl",
         " [ {\"id\": 1,\n\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, "
         "{\"from\": \"gpt\", \"value\": \"b\"}]}]",
         OMM_DATA_SHAREGPT, true},
        {"a", "[Chorus]\nLa la la\n", OMM_DATA_TEXT, false},
        {"a.txt", "[{here}] it begins\n", OMM_DATA_TEXT, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_dataset *data = NULL;
        CHECK_OK(omm_dataset_parse(&data, omm_bytes_str(cases[i].text), cases[i].name, s_tokenizer,
                                   &s_detect));
        CHECK_EQ(omm_dataset_totals(data)->format, cases[i].format);
        CHECK_EQ(omm_dataset_totals(data)->is_array, cases[i].is_array);
        omm_dataset_close(data);
    }
    omm_dataset *data = NULL;
    omm_dataset_options o = s_detect;
    o.format = OMM_DATA_TEXT;
    CHECK_OK(parse(&data, "[" THREE "]", &o)); /* as it is asked for */
    CHECK(!omm_dataset_totals(data)->is_array);
    omm_dataset_close(data);
    /* The sixteenth element may say it as well as the first; behind that nobody looks. */
    for (int before = 15; before < 17; before++) {
        char text[400] = "[";
        size_t at = 1;
        for (int i = 0; i < before; i++)
            at += (size_t)snprintf(text + at, sizeof text - at, "{\"id\": 1},");
        snprintf(text + at, sizeof text - at, "{\"text\": \"a b c\"}]");
        o = s_detect;
        o.skip_bad = true;
        CHECK_EQ(parse(&data, text, &o), before < 16 ? OMM_OK : OMM_ERR_NOT_FOUND);
        if (before >= 16) continue;
        CHECK(omm_dataset_totals(data)->format == OMM_DATA_LINES && omm_dataset_count(data) == 1);
        omm_dataset_close(data);
        data = NULL;
    }
    o = s_detect;
    o.format = OMM_DATA_COMPLETION;
    CHECK_ERR(parse(&data, "[]", &o), OMM_ERR_NOT_FOUND);
    CHECK(strstr(omm_err_sentence(), "nothing is in it"));
    CHECK_ERR(parse(&data, "[Chorus]\n", &o), OMM_ERR_FORMAT);
}

/* Each ends the reading, bad ones left out or not; said is where. */
static void refusals(void) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"[" ONE "",
         "t:1:61: after element 1 of the JSON array: the file ends; accepted: ',' or ']'"},
        {"[" ONE ",",
         "t:1:62: after element 1 of the JSON array: the file ends; accepted: the next element"},
        {"[\n" THREE "\n" THREE "]",
         "t:3:1: after element 1 of the JSON array: '{'; accepted: ',' or ']'"},
        {"[" THREE ",]",
         "t:1:42: after element 1 of the JSON array: ']'; accepted: the next element"},
        {"[" THREE ",\n , " THREE "]",
         "t:2:2: after element 1 of the JSON array: ','; accepted: the next element"},
        {"[," THREE "]", "t:1:2: in the JSON array: ','; accepted: its first element, or ']'"},
        {"[", "t:1:2: in the JSON array: the file ends; accepted: its first element, or ']'"},
        {"[:1]", "t:1:2: in the JSON array: ':'; accepted: its first element, or ']'"},
        {"[" THREE "]\n]",
         "t:2:1: after element 1 of the JSON array: ']'; accepted: nothing behind the ']'"},
        {"[" THREE "]\n" THREE "\n",
         "t:2:1: after element 1 of the JSON array: '{'; accepted: nothing behind the ']'"},
        {"[] x", "t:1:4: in the JSON array: 'x'; accepted: nothing behind the ']'"},
        {"[" THREE "}", "t:1:41: after element 1 of the JSON array: '}'; accepted: ',' or ']'"},
        {"[" THREE "\xef\xbb\xbf]",
         "t:1:41: after element 1 of the JSON array: byte 0xef; accepted: ',' or ']'"},
        {"[" THREE ", {\"prompt\": [1}]}, " THREE "]",
         "t:1:56: in element 2 of the JSON array: '}' closes a '['"},
        {"[" THREE ", {\"prompt\": 1]", "t:1:55: in element 2 of the JSON array: ']' closes a '{'"},
        {"[\n" THREE ",\n{\"prompt\": \"a\n\"}]",
         "t:3:14: in element 2 of the JSON array: a line break inside of a string, which nothing "
         "closes before it"},
        {"[\n" THREE ",\n{\"prompt\": \"a",
         "t:3:14: in element 2 of the JSON array: the file ends before it does"},
        {"[" THREE ", 12", "t:1:45: in element 2 of the JSON array: the file ends before it does"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int skips = 0; skips < 2; skips++) {
            omm_dataset *data = NULL;
            omm_dataset_options o = s_detect;
            o.format = OMM_DATA_COMPLETION;
            o.skip_bad = skips;
            o.bad_hint = "leave it out";
            CHECK_ERR(parse(&data, cases[i].text, &o), OMM_ERR_FORMAT);
            expect_text(omm_err_sentence(), cases[i].says);
            CHECK(!data);
        }
}

/* What is wrong with an element alone: by line, column where there is one, and number; left out where that is asked for. */
static void bad_elements(void) {
    static const struct {
        const char *element, *says;
        omm_data_bad bad;
    } cases[] = {
        {"{\"prompt\": \"a\"}", "t:2: element 2: completion: a string that is not empty is needed",
         OMM_DATA_BAD_COMPLETION},
        {"{\"prompt\": \"\xc3\xa9\", \"completion\": nope}",
         "t:2:35: element 2: invalid token near 'nope'; accepted: one", OMM_DATA_BAD_JSON},
        {"{\"prompt\": \"a\",\n \"completion\" \"b\"}",
         "t:3:17: element 2: ':' expected near '\"b\"'", OMM_DATA_BAD_JSON},
        {"{\"prompt\": \"a\", \"prompt\": \"a\"}", "t:2:25: element 2: duplicate object key",
         OMM_DATA_BAD_JSON},
        {"7.5",
         "t:2: element 2: not a JSON object; accepted: one JSON object a line, or all in one array",
         OMM_DATA_BAD_JSON},
        {"\"it's, [\"", "t:2: element 2: not a JSON object", OMM_DATA_BAD_JSON},
        {"[" THREE "]", "t:2: element 2: not a JSON object", OMM_DATA_BAD_JSON},
        {"null", "t:2: element 2: not a JSON object", OMM_DATA_BAD_JSON},
        {"nope", "t:2:5: element 2: invalid token near 'nope'", OMM_DATA_BAD_JSON},
        {"{\"text\": \"a\"}",
         "t:2: element 2: a text (\"text\"), in a file whose first element is a prompt;",
         OMM_DATA_BAD_COMPLETION},
        {"{\"messages\": [{\"role\": \"user\", \"content\": 1}]}", "t:2: element 2: a chat",
         OMM_DATA_BAD_COMPLETION},
        {"{\"client\": 1}", "t:2: element 2: client: a string is needed", OMM_DATA_BAD_NAME},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        omm_dataset *data = NULL;
        omm_dataset_options o = s_detect;
        snprintf(text, sizeof text, "[" THREE ",\n %s%s, " THREE "]", cases[i].element,
                 i % 8 == 7 ? " " : "");
        o.bad_hint = "so";
        CHECK_ERR(parse(&data, text, &o), OMM_ERR_FORMAT);
        if (strncmp(omm_err_sentence(), cases[i].says, strlen(cases[i].says)) != 0)
            expect_text(omm_err_sentence(), cases[i].says);
        CHECK_EQ(strcmp(omm_err_sentence() + strlen(omm_err_sentence()) - 5, " (so)"), 0);
        o.skip_bad = true;
        CHECK_OK(parse(&data, text, &o));
        const omm_data_totals *t = omm_dataset_totals(data);
        CHECK(t->examples == 2 && t->bad == 1 && t->bad_by[cases[i].bad] == 1);
        CHECK_EQ(strncmp(t->bad_first[0], cases[i].says, strlen(cases[i].says)), 0);
        CHECK_EQ(omm_dataset_example(data, 1)->element, 3);
        omm_dataset_close(data);
    }
    omm_dataset *data = NULL;
    omm_dataset_options o = s_detect;
    o.skip_bad = true;
    CHECK_ERR(parse(&data, "[{\"prompt\": 1}, 2]", &o), OMM_ERR_NOT_FOUND);
    CHECK(strstr(omm_err_sentence(), "bad elements: 2, first t:1: element 1: "));
    CHECK_ERR(parse(&data, "[{\"prompt\": 1}, 7 8]", &o), OMM_ERR_FORMAT); /* two, not one */
    CHECK(strstr(omm_err_sentence(), "t:1:19: after element 2 of the JSON array: '8'"));
    static const char *const behind[] = {"\"x\"", "{}", "[]"};
    for (size_t i = 0; i < 3; i++) {
        char text[80], says[80];
        snprintf(text, sizeof text, "[{\"prompt\": 1}, 7%s, 8]", behind[i]);
        snprintf(says, sizeof says, "t:1:18: after element 2 of the JSON array: '%c'",
                 behind[i][0]);
        CHECK_ERR(parse(&data, text, &o), OMM_ERR_FORMAT);
        CHECK(strstr(omm_err_sentence(), says));
    }
}

/* Cut off anywhere it is refused, and nothing is learned of it. */
static void truncations(void) {
    static const char text[] = "[" ONE ",\n" TWO ", 7, \"x\"]";
    for (size_t size = 1; size < sizeof text - 1; size++)
        for (int skips = 0; skips < 2; skips++) {
            omm_dataset *data = NULL;
            omm_dataset_options o = s_detect;
            o.format = OMM_DATA_COMPLETION;
            o.skip_bad = skips;
            CHECK_ERR(omm_dataset_parse(&data, omm_bytes_of(text, size), "t", s_tokenizer, &o),
                      OMM_ERR_FORMAT);
        }
}

static void put(omm_buf *text, const char *what, size_t times) {
    for (size_t i = 0; i < times; i++) CHECK_OK(omm_buf_append(text, what, strlen(what)));
}

/* As deep as JSON is read, and deeper: a bad element like another, whatever it closes down there. */
static void depths(void) {
    enum { DEEP = 2047 }; /* and the object itself */
    for (size_t beyond = 0; beyond < 4; beyond++) {
        const size_t deep = DEEP + (beyond >= 2 ? 5000 : beyond);
        omm_buf text;
        omm_dataset *data = NULL;
        omm_dataset_options o = s_detect;
        omm_buf_init(&text, 1 << 20);
        put(&text, "[{\"prompt\": \"a\", \"completion\": \"b\", \"x\": ", 1);
        put(&text, beyond == 3 ? "{\"x\":" : "[", deep);
        put(&text, beyond == 3 ? "}" : "]", deep);
        put(&text, "}, " THREE "]", 1);
        CHECK_OK(omm_buf_append(&text, "", 1));
        o.format = OMM_DATA_COMPLETION;
        CHECK_EQ(parse(&data, (const char *)text.data, &o), beyond ? OMM_ERR_FORMAT : OMM_OK);
        CHECK(!beyond || strstr(omm_err_sentence(), " element 1: maximum parsing depth reached"));
        omm_dataset_close(data);
        o.skip_bad = true;
        CHECK_OK(parse(&data, (const char *)text.data, &o));
        CHECK_EQ(omm_dataset_count(data), beyond ? 1 : 2);
        omm_dataset_close(data);
        omm_buf_fini(&text);
    }
}

/* An object of so many bytes in all. */
static void put_long(omm_buf *text, size_t size) {
    static const char frame[] = "{\"prompt\": \"long\", \"completion\": \"x\", \"more\": \"";
    uint8_t *more = NULL;
    put(text, frame, 1);
    CHECK_OK(omm_buf_extend(text, &more, size - (sizeof frame - 1) - 2));
    memset(more, 'y', size - (sizeof frame - 1) - 2);
    put(text, "\"}", 1);
}

/* At the longest that a line may be, one more, and more than a window; after a megabyte of space.  Windows end anywhere. */
static void lengths(void) {
    enum { MOST = OMM_DATASET_LINE_BYTES_MAX };
    static const size_t sizes[] = {MOST,   MOST + 1, 2 * MOST + 4321, MOST - 1,
                                   700000, 700000,   700000,          MOST};
    char path[128];
    omm_buf text;
    omm_dataset *data = NULL;
    omm_dataset_options o = s_detect;
    omm_buf_init(&text, 16 << 20);
    put(&text, "[\n" ONE, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        put(&text, ",\n", 1);
        if (i == 4)
            put(&text, "                                                                \n", 20000);
        put_long(&text, sizes[i]);
    }
    put(&text, ", " TWO "]\n", 1);
    write_file(path, "long.json", omm_buf_view(&text));
    CHECK_ERR(omm_dataset_load(&data, path, s_tokenizer, &o), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), ":4: element 3: 1048577 bytes; at most 1048576"));
    CHECK_ERR(omm_dataset_stream(&data, path, s_tokenizer, &o), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), ":4: element 3: 1048577 bytes; at most 1048576"));
    o.skip_bad = true;
    CHECK_OK(omm_dataset_load(&data, path, s_tokenizer, &o));
    const omm_data_totals *t = omm_dataset_totals(data);
    CHECK(t->examples == 8 && t->bad == 2 && t->bad_by[OMM_DATA_BAD_LENGTH] == 2);
    CHECK(strstr(t->bad_first[1], ":5: element 4: 2101473 bytes; at most 1048576"));
    CHECK_EQ(omm_dataset_example(data, 3)->line, 20007);
    CHECK_EQ(omm_dataset_example(data, 7)->element, 10);
    same_stream(data, path, &o);
    omm_dataset_close(data);
    /* The end of one that is too long is looked for like that of another. */
    omm_buf_clear(&text);
    put(&text, "[" ONE ",\n", 1);
    put_long(&text, (size_t)3 * MOST);
    text.size -= 2;
    write_file(path, "cut.json", omm_buf_view(&text));
    CHECK_ERR(omm_dataset_stream(&data, path, s_tokenizer, &o), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(),
                 ":2:3145727: in element 2 of the JSON array: the file ends before it does"));
    put(&text, "\n\"}]", 1);
    write_file(path, "cut.json", omm_buf_view(&text));
    CHECK_ERR(omm_dataset_stream(&data, path, s_tokenizer, &o), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), ":2:3145727: in element 2 of the JSON array: a line break"));
    omm_buf_fini(&text);
}

/* An element that changes while it is read is noticed. */
static void changes(void) {
    char path[128];
    omm_dataset *data = NULL;
    omm_data_reader *reader = NULL;
    omm_example e;
    write_file(path, "changes.json", omm_bytes_str("[" THREE ", " THREE "]"));
    CHECK_OK(omm_dataset_stream(&data, path, s_tokenizer, &s_detect));
    CHECK_OK(omm_data_reader_open(&reader, data, NULL));
    FILE *f = fopen(path, "r+");
    CHECK(f && fseek(f, (long)strlen("[" THREE ", {\"prompt\": \"Thre"), SEEK_SET) == 0);
    CHECK(fputc('f', f) == 'f' && fclose(f) == 0);
    CHECK_OK(omm_data_reader_take(reader, &e, 0));
    CHECK_ERR(omm_data_reader_take(reader, &e, 1), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "the example at byte 42 is not what was indexed"));
    omm_data_reader_release(reader);
    omm_data_reader_close(reader);
    reader = NULL;
    CHECK_ERR(omm_data_reader_open(&reader, data, NULL), OMM_ERR_MISMATCH);
    omm_dataset_close(data);
}

#define BARE "{\"messages\": [{\"role\": \"assistant\", \"content\": \"A\"}]}"

/* A canary's shard goes to nodes as lines, whatever its file is. */
static void shards(void) {
    static const struct {
        const char *text, *lines;
    } cases[] = {
        {"[" CHAT ", " CHAT "]", CHAT CHAT},
        {"\xef\xbb\xbf[ {\n\"messages\":\r\n[{\"role\": \"assistant\", \"content\": \"A\"}]}\n]",
         "{ \"messages\":  [{\"role\": \"assistant\", \"content\": \"A\"}]}\n"},
        {CHAT CHAT, CHAT CHAT},
        {CHAT "\n", CHAT},
        {"\xef\xbb\xbf\r\n" CHAT " \t\r\n\n" CHAT BARE "\r\n ", CHAT CHAT BARE "\r\n"},
        {"\n \r\n", ""},
        {BARE, BARE}};
    omm_buf out;
    omm_buf_init(&out, 4096);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_buf_clear(&out);
        CHECK_OK(omm_shard_lines(&out, omm_bytes_str(cases[i].text), "s"));
        CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str(cases[i].lines)));
    }
    omm_buf_clear(&out);
    CHECK_ERR(omm_shard_lines(&out, omm_bytes_str("[{\"messages\": []}]"), "s"), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "s:1: element 1: messages: a list of 1 to 256"));
    CHECK_ERR(omm_shard_lines(&out, omm_bytes_str("[" CHAT), "s"), OMM_ERR_FORMAT);
    CHECK_ERR(omm_shard_lines(&out, omm_bytes_str(CHAT "\n\n{}\n"), "s"), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "s:4: messages: "));
    omm_buf_fini(&out);
}

int main(void) {
    omm_tokenizer *tokenizer = NULL;
    CHECK(mkdtemp(s_dir));
    test_tokenizer_open(&tokenizer);
    s_tokenizer = tokenizer;
    as_lines();
    spread();
    detection();
    refusals();
    bad_elements();
    truncations();
    depths();
    lengths();
    changes();
    shards();
    omm_tokenizer_close(tokenizer);
    CHECK_OK(omm_dir_remove(s_dir));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

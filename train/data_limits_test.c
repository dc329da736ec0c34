/* data_limits_test.c - limits of data sets: options, lines, pieces of texts, what is cut, dropped, named and kept. */
#include "test_data.h"

#include "omm/data_reader.h"
#include "omm/mem.h"
#include "omm/mem_count.h"

#include <stdlib.h>

static char *letters(char *out, size_t count) {
    memset(out, 'n', count);
    out[count] = 0;
    return out;
}

static void option_limits(void) {
    char long_text[OMM_DATASET_SEPARATOR_BYTES_MAX + 2];
    for (int beyond = 0; beyond < 2; beyond++) {
        omm_dataset *data = NULL;
        omm_dataset_options o[3] = {s_detect, s_detect, s_detect};
        o[0].seq_max = (1U << 20) + (uint32_t)beyond;
        for (size_t i = 0; i < 3; i++) {
            if (i == 1)
                o[i].separator =
                    letters(long_text, OMM_DATASET_SEPARATOR_BYTES_MAX + (size_t)beyond);
            if (i == 2)
                o[i].client_default =
                    letters(long_text, OMM_DATASET_NAME_BYTES_MAX + (size_t)beyond);
            CHECK_EQ(parse(&data, "a text", &o[i]), beyond ? OMM_ERR_CONFIG : OMM_OK);
            omm_dataset_close(data);
        }
    }
}

/* Names of 128 bytes, chats of 256 messages, and not one more. */
static void line_limits(void) {
    static const char *const keys[] = {"client", "skill"};
    char name[OMM_DATASET_NAME_BYTES_MAX + 2];
    omm_dataset *data = NULL;
    omm_buf text;
    omm_buf_init(&text, 1 << 20);
    for (size_t i = 0; i < 4; i++) {
        omm_buf_clear(&text);
        letters(name, OMM_DATASET_NAME_BYTES_MAX + i % 2);
        CHECK_OK(omm_buf_printf(&text, "{\"prompt\": \"a\", \"completion\": \"b\", \"%s\": \"%s\"}",
                                keys[i / 2], name));
        CHECK_OK(omm_buf_append(&text, "", 1));
        CHECK_EQ(parse(&data, (const char *)text.data, &s_detect), i % 2 ? OMM_ERR_FORMAT : OMM_OK);
        CHECK(i % 2 == 0 || strstr(omm_err_sentence(), ": over 128 bytes") != NULL);
        omm_dataset_close(data);
    }
    for (size_t beyond = 0; beyond < 2; beyond++) {
        omm_buf_clear(&text);
        CHECK_OK(omm_buf_printf(&text, "{\"messages\": ["));
        for (size_t i = 0; i < 256 + beyond; i++)
            CHECK_OK(omm_buf_printf(&text, "%s{\"role\": \"%s\", \"content\": \"a\"}",
                                    i ? ", " : "", i % 2 ? "assistant" : "user"));
        CHECK_OK(omm_buf_append(&text, "]}", 3));
        CHECK_EQ(parse(&data, (const char *)text.data, &s_detect),
                 beyond ? OMM_ERR_FORMAT : OMM_OK);
        CHECK(!beyond || strstr(omm_err_sentence(), "a list of 1 to 256 messages") != NULL);
        omm_dataset_close(data);
    }
    omm_buf_fini(&text);
}

/* What was cut is counted, and so is what has nothing left; without a limit examples end at 32,768 tokens. */
static void cut_and_dropped(void) {
    omm_dataset *data = NULL;
    omm_dataset_options o = s_detect;
    CHECK_OK(parse(&data, CHAT COMPLETION,
                   &(omm_dataset_options){.client_default = "x", .skip_bad = true}));
    CHECK_EQ(omm_dataset_seq_max(data), 32768);
    CHECK(omm_dataset_totals(data)->truncated == 0 && omm_dataset_dropped(data) == 0);
    o.seq_max = omm_dataset_example(data, 0)->count;
    omm_dataset_close(data);
    CHECK_OK(parse(&data, CHAT, &o));
    CHECK_EQ(omm_dataset_totals(data)->truncated, 0); /* just as long */
    omm_dataset_close(data);
    o.seq_max--;
    CHECK_OK(parse(&data, CHAT CHAT, &o));
    CHECK(omm_dataset_totals(data)->truncated == 2 && omm_dataset_dropped(data) == 0);
    CHECK_EQ(omm_dataset_totals(data)->longest, o.seq_max);
    omm_dataset_close(data);
}

static void long_line(void) {
    static char text[OMM_DATASET_LINE_BYTES_MAX + 4096];
    static const char frame[] = "{\"prompt\": \"\", \"completion\": \"x\", \"more\": \"";
    omm_dataset *data = NULL;
    omm_dataset_options o = s_detect;
    memset(text, 'y', sizeof text);
    memcpy(text, frame, sizeof frame - 1);
    memcpy(text + OMM_DATASET_LINE_BYTES_MAX - 2, "\"}\n", 4);
    CHECK_OK(parse(&data, text, &o)); /* exactly at the limit */
    omm_dataset_close(data);
    memcpy(text + OMM_DATASET_LINE_BYTES_MAX - 2, "y\"}\n" COMPLETION, sizeof COMPLETION + 4);
    CHECK_ERR(parse(&data, text, &o), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "t:1: line of 1048577 bytes; at most 1048576"));
    o.skip_bad = true;
    CHECK_OK(parse(&data, text, &o));
    CHECK_EQ(omm_dataset_totals(data)->bad_by[OMM_DATA_BAD_LENGTH], 1);
    CHECK_EQ(omm_dataset_example(data, 0)->line, 2);
    omm_dataset_close(data);
    o.skip_bad = false;
    text[OMM_DATASET_LINE_BYTES_MAX + 1] = 0; /* without a line end, too */
    CHECK_ERR(parse(&data, text, &o), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "t:1: line of 1048577 bytes; at most 1048576"));
}

/* Far longer than it may be: left out as one line, from memory and from a file. */
static void very_long_line(void) {
    enum { LINE = 2 * OMM_DATASET_LINE_BYTES_MAX + 4321 };
    char path[128];
    omm_buf text;
    omm_dataset *data[2] = {0};
    omm_dataset_options o = s_detect;
    omm_buf_init(&text, 1 << 22);
    CHECK_OK(omm_buf_append(&text, COMPLETION, sizeof COMPLETION - 1));
    uint8_t *line = NULL;
    CHECK_OK(omm_buf_extend(&text, &line, LINE));
    memset(line, 'y', LINE);
    CHECK_OK(omm_buf_append(&text, "\n" COMPLETION, sizeof COMPLETION));
    write_file(path, "very_long.jsonl", omm_buf_view(&text));
    CHECK_ERR(omm_dataset_load(&data[0], path, s_tokenizer, &o), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), ":2: line of 2101473 bytes; at most 1048576") != NULL);
    o.skip_bad = true;
    CHECK_OK(omm_dataset_load(&data[0], path, s_tokenizer, &o));
    CHECK_OK(omm_dataset_stream(&data[1], path, s_tokenizer, &o));
    for (int i = 0; i < 2; i++) {
        const omm_data_totals *t = omm_dataset_totals(data[i]);
        CHECK(t->examples == 2 && t->bad == 1 && t->bad_by[OMM_DATA_BAD_LENGTH] == 1);
    }
    CHECK_EQ(omm_dataset_example(data[0], 1)->line, 3);
    omm_dataset_close(data[0]);
    omm_dataset_close(data[1]);
    omm_buf_fini(&text);
}

/* A text in pieces of 64 KiB: cut after a line, else before the last character of several bytes, though it be whole. */
static void pieces(void) {
    enum { PIECE = OMM_DATASET_PIECE_BYTES_MAX };
    static const struct {
        const char *begins, *goes_on;
        size_t newline_at, first; /* 0: no newline; bytes of the first piece */
    } cases[] = {{"", "ab", 0, PIECE},
                 {"", "ab", 60000, 60001},
                 {"a", "\xe2\x82\xac", 0, PIECE - 3},
                 {"ab", "\xe2\x82\xac", 0, PIECE - 2},
                 {"", "\xe2\x82\xac", 0, PIECE - 1},
                 {"", "\xc3\xa9", 0, PIECE - 2},
                 {"a", "\xc3\xa9", 0, PIECE - 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_dataset *data = NULL;
        omm_dataset_options o = s_detect;
        omm_buf text, first;
        omm_buf_init(&text, 1 << 18);
        omm_buf_init(&first, 1 << 18);
        o.seq_max = 1 << 20; /* a piece is an example */
        CHECK_OK(omm_buf_append(&text, cases[i].begins, strlen(cases[i].begins)));
        while (text.size < 2 * PIECE - 4)
            CHECK_OK(omm_buf_append(&text, cases[i].goes_on, strlen(cases[i].goes_on)));
        if (cases[i].newline_at) text.data[cases[i].newline_at] = '\n';
        CHECK_OK(omm_dataset_parse(&data, omm_buf_view(&text), "t", s_tokenizer, &o));
        CHECK_EQ(omm_dataset_count(data), cases[i].newline_at ? 3 : 2);
        const omm_example *e = omm_dataset_example(data, 0);
        CHECK_OK(omm_tokenizer_decode(&first, s_tokenizer, e->ids, e->count, 0));
        CHECK_EQ(first.size, cases[i].first);
        CHECK(same_bytes(first.data, text.data, first.size));
        CHECK_EQ(omm_dataset_example(data, 1)->line, cases[i].newline_at ? 2 : 1);
        omm_dataset_close(data);
        omm_buf_fini(&text);
        omm_buf_fini(&first);
    }
}

/* Where a document of several pieces ends in blank lines, or at a cut, its last piece that says something has the end. */
static void ends_of_pieces(void) {
    enum { PIECE = OMM_DATASET_PIECE_BYTES_MAX, TAIL = 200000 };
    static const struct {
        const char *separator, *rest; /* behind the first piece */
        bool is_line;                 /* the piece's last line is whole */
        size_t count, ended;          /* examples; the first that has an end */
        size_t separators;
        char longer; /* TAIL of these behind the rest, and an x */
    } cases[] = {{"%%", "%%\nnext\n", true, 2, 0, 1, 0},
                 {"%%", "  \n\n%%\r\nnext\n", true, 2, 0, 1, 0},
                 {"%%", "\n%%\nnext\n", false, 2, 0, 1, 0},
                 {"%%", "%%\nmore\n%%\nnext\n", false, 3, 1, 1, 0},
                 {"%%", " \nmore\n%%\nnext\n", true, 3, 1, 1, 0},
                 {"%%", " \n%%%\n%%\nnext\n", true, 3, 1, 1, 0},
                 {"", "\nnext\n", true, 2, 0, 1, 0},
                 {"", "  \nnext\n", true, 2, 1, 0, 0},
                 {NULL, "\n \n\t", true, 1, 0, 0, 0},
                 {NULL, " ", false, 1, 0, 0, 0},
                 {NULL, " \n%%\n", true, 2, 1, 0, 0},
                 {"%%", "\n%%\nnext", false, 5, 0, 1, 'a'},
                 {"%%", " \nmore", true, 5, 4, 0, 'a'},
                 {"%%", " \n", true, 2, 1, 0, ' '}};
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        const size_t c = i / 2;
        char path[128];
        omm_dataset *data = NULL;
        omm_dataset_options o = s_detect;
        omm_buf text;
        uint8_t *piece = NULL;
        omm_buf_init(&text, 1 << 19);
        o.seq_max = 1 << 20;
        o.format = OMM_DATA_TEXT;
        o.separator = cases[c].separator;
        CHECK_OK(omm_buf_extend(&text, &piece, PIECE));
        for (size_t j = 0; j < PIECE; j++) piece[j] = j % 64 == 63 ? '\n' : 'a';
        if (!cases[c].is_line) memset(piece, 'a', PIECE);
        CHECK_OK(omm_buf_append(&text, cases[c].rest, strlen(cases[c].rest)));
        if (cases[c].longer) {
            CHECK_OK(omm_buf_extend(&text, &piece, TAIL + 1));
            memset(piece, cases[c].longer, TAIL);
            piece[TAIL] = 'x';
        }
        write_file(path, "ends.txt", omm_buf_view(&text));
        CHECK_OK(i % 2 ? omm_dataset_stream(&data, path, s_tokenizer, &o)
                       : omm_dataset_load(&data, path, s_tokenizer, &o));
        CHECK_EQ(omm_dataset_count(data), cases[c].count);
        CHECK_EQ(omm_dataset_totals(data)->separators, cases[c].separators);
        omm_data_reader *reader = NULL;
        CHECK_OK(omm_data_reader_open(&reader, data, NULL));
        for (size_t e = 0; e <= cases[c].ended; e++) {
            omm_example x;
            CHECK_OK(omm_data_reader_take(reader, &x, e));
            CHECK_EQ(x.ids[x.count - 1] == omm_tokenizer_eos(s_tokenizer), e == cases[c].ended);
        }
        omm_data_reader_close(reader);
        omm_dataset_close(data);
        omm_buf_fini(&text);
    }
}

/* BOS, and what else begins a text, once a document: before its first piece that says something, not in front of others. */
static void documents_begin(void) {
    enum { PIECE = OMM_DATASET_PIECE_BYTES_MAX };
    static const struct {
        char first; /* PIECE of these before the text */
        const char *text, *says[3];
        bool begins[3];
    } cases[] = {{'\n', "one\n%%\ntwo", {"one\n", "two"}, {true, true}},
                 {'a', "one\n%%\ntwo", {NULL, "one\n", "two"}, {true, false, true}},
                 {'a', "%%\ntwo", {NULL, "%%\ntwo"}, {true, false}}};
    omm_tokenizer *spm = test_spm_open();
    for (size_t i = 0; spm && i < 2 * (sizeof cases / sizeof *cases); i++) {
        char path[128];
        uint8_t *piece = NULL;
        omm_dataset *data = NULL;
        omm_data_reader *reader = NULL;
        omm_dataset_options o = s_detect;
        omm_buf text;
        omm_buf_init(&text, 1 << 17);
        o.seq_max = 1 << 20;
        o.separator = "%%";
        CHECK_OK(omm_buf_extend(&text, &piece, PIECE));
        memset(piece, cases[i / 2].first, PIECE);
        CHECK_OK(omm_buf_append(&text, cases[i / 2].text, strlen(cases[i / 2].text)));
        write_file(path, "begins.txt", omm_buf_view(&text));
        CHECK_OK(i % 2 ? omm_dataset_stream(&data, path, spm, &o)
                       : omm_dataset_load(&data, path, spm, &o));
        CHECK_OK(omm_data_reader_open(&reader, data, NULL));
        for (size_t k = 0; k < omm_dataset_count(data); k++) {
            omm_example e;
            const char *says = cases[i / 2].says[k];
            CHECK_OK(omm_data_reader_take(reader, &e, k));
            CHECK_EQ(e.ids[0] == omm_tokenizer_bos(spm), cases[i / 2].begins[k]);
            CHECK(e.ids[1] != omm_tokenizer_bos(spm));
            omm_buf_clear(&text);
            CHECK_OK(omm_tokenizer_decode(&text, spm, e.ids, e.count, 0));
            CHECK(!says || omm_bytes_equal(omm_buf_view(&text), omm_bytes_str(says)));
        }
        CHECK_EQ(omm_dataset_count(data), cases[i / 2].says[2] ? 3 : 2);
        omm_data_reader_close(reader);
        omm_dataset_close(data);
        omm_buf_fini(&text);
    }
    omm_tokenizer_close(spm);
}

/* Bytes that a reader keeps after each of 200 equal lines has been read. */
static size_t bytes_kept(const char *path, size_t cache_bytes) {
    omm_dataset *data = NULL;
    omm_data_reader *reader = NULL;
    omm_dataset_options o = s_detect;
    o.cache_bytes_max = cache_bytes;
    CHECK_OK(omm_dataset_stream(&data, path, s_tokenizer, &o));
    CHECK_OK(omm_data_reader_open(&reader, data, NULL));
    omm_data_reader_release(reader);
    const size_t before = omm_mem_bytes();
    for (size_t i = 0; i < omm_dataset_count(data); i++) {
        omm_example e;
        CHECK_OK(omm_data_reader_take(reader, &e, i));
        omm_data_reader_release(reader);
    }
    const size_t live = omm_mem_bytes();
    omm_data_reader_close(reader);
    omm_dataset_close(data);
    return live - before;
}

/* A reader keeps as much as it may, in one array, and nothing where not even one example fits. */
static void a_cache_has_its_limit(void) {
    char path[128];
    omm_buf text;
    omm_dataset *data = NULL;
    omm_buf_init(&text, 1 << 16);
    for (int i = 0; i < 200; i++)
        CHECK_OK(omm_buf_append(&text, COMPLETION, sizeof COMPLETION - 1));
    write_file(path, "cache.jsonl", omm_buf_view(&text));
    omm_buf_fini(&text);
    CHECK_OK(parse(&data, COMPLETION, &s_detect));
    const omm_example *e = omm_dataset_example(data, 0);
    const size_t bytes = e->count * (sizeof *e->ids + 1) + strlen(e->client) + strlen(e->skill) +
                         strlen(e->reply) + 3;
    omm_dataset_close(data);
    const size_t heap = 24; /* what it rounds up is not the same each time */
    CHECK(bytes > heap);
    const size_t none = bytes_kept(path, 1);    /* buffers of the maker and the window */
    const size_t one = bytes_kept(path, bytes); /* with its header it is larger */
    CHECK(one < none + heap && none < one + heap);
    for (size_t k = 2; k < 128; k *= 4) {
        const size_t kept = bytes_kept(path, k * bytes);
        CHECK(kept + heap > none + k * bytes && kept < none + k * bytes + 64 + heap);
    }
}

/* Names as long as they may be have their room. */
static void names_have_room(void) {
    char path[128];
    omm_buf text;
    omm_dataset *data = NULL;
    omm_data_reader_room room;
    size_t least = 0;
    omm_buf_init(&text, 1 << 16);
    for (int i = 0; i < 50; i++)
        CHECK_OK(omm_buf_printf(&text,
                                "{\"client\": \"%0*d\", \"skill\": \"%0*d\", \"prompt\": \"a\", "
                                "\"completion\": \"b\"}\n",
                                OMM_DATASET_NAME_BYTES_MAX, i, OMM_DATASET_NAME_BYTES_MAX, i));
    write_file(path, "names.jsonl", omm_buf_view(&text));
    omm_buf_fini(&text);
    CHECK_OK(omm_dataset_stream(&data, path, s_tokenizer, &s_detect));
    omm_data_reader_room_of(&room, data);
    for (size_t i = 0; i < omm_dataset_count(data); i++) {
        uint32_t tokens = 0, learned = 0;
        omm_dataset_size(&tokens, &learned, data, i, omm_dataset_seq_max(data));
        least += tokens * (sizeof(uint32_t) + 1) + (size_t)2 * (OMM_DATASET_NAME_BYTES_MAX + 1);
    }
    CHECK(omm_dataset_count(data) == 50 && room.cache >= least && room.cache < 2 * least);
    omm_dataset_close(data);
}

/* In memory an example may be asked for shorter than it is: so many tokens, and what is learned in them. */
static void shorter_than_it_is(void) {
    omm_dataset *data = NULL;
    CHECK_OK(parse(&data, CHAT, &s_detect));
    const omm_example *e = omm_dataset_example(data, 0);
    for (uint32_t seq = 1; seq <= e->count + 1; seq++) {
        uint32_t tokens = 0, learned = 0, sum = 0;
        for (uint32_t i = 0; i < seq && i < e->count; i++) sum += e->learn[i];
        omm_dataset_size(&tokens, &learned, data, 0, seq);
        CHECK(tokens == (seq < e->count ? seq : e->count) && learned == sum);
    }
    omm_dataset_close(data);
}

/* The first five bad lines are named, all are counted. */
static void bad_lines_shown(void) {
    omm_dataset *data = NULL;
    omm_dataset_options o = s_detect;
    o.skip_bad = true;
    CHECK_OK(parse(&data, CHAT "1\n\n2\n{}\n3\n4\n\n" CHAT, &o));
    const omm_data_totals *t = omm_dataset_totals(data);
    CHECK(t->bad == 5 && t->examples == 2 && omm_dataset_example(data, 1)->line == 9);
    CHECK_EQ(t->bad_by[OMM_DATA_BAD_JSON], 4);
    CHECK_EQ(t->bad_by[OMM_DATA_BAD_MESSAGES], 1);
    for (unsigned i = 0; i < OMM_DATA_BAD_SHOWN; i++) {
        char begins[16];
        const int size = snprintf(begins, sizeof begins, "t:%u:", i ? i + 3 : 2); /* 3 is blank */
        CHECK(strncmp(t->bad_first[i], begins, (size_t)size) == 0);
    }
    omm_dataset_close(data);
}

int main(void) {
    omm_tokenizer *tokenizer = NULL;
    CHECK(mkdtemp(s_dir));
    test_tokenizer_open(&tokenizer);
    s_tokenizer = tokenizer;
    option_limits();
    line_limits();
    cut_and_dropped();
    long_line();
    very_long_line();
    pieces();
    ends_of_pieces();
    documents_begin();
    bad_lines_shown();
    shorter_than_it_is();
    a_cache_has_its_limit();
    names_have_room();
    omm_tokenizer_close(tokenizer);
    CHECK_OK(omm_dir_remove(s_dir));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

/* Goal: a file of lines gives each of them once and whole, holds one of them, and is refused where it changes meanwhile. */
#include "lines.h"
#include "omm/mem.h"
#include "omm/mem_count.h"
#include "omm_test.h"
#include "testkit.h"

#include <unistd.h>

#define PATH "ledger.jsonl"

static char s_dir[OMM_PATH_MAX];

static void write_text(omm_bytes text) {
    kit_write(s_dir, PATH, text);
}

static omm_err open_text(line_reader *r, const char *text, size_t count_max) {
    write_text(omm_bytes_str(text));
    return line_reader_open(r, s_dir, PATH, count_max);
}

/* Lines of these sizes, newline included, each of one letter. */
static void fill(omm_buf *out, const size_t *sizes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint8_t *line = NULL;
        CHECK_OK(omm_buf_extend(out, &line, sizes[i]));
        memset(line, 'a' + (int)(i % 26), sizes[i] - 1);
        line[sizes[i] - 1] = '\n';
    }
}

static void every_line_once(void) {
    static const size_t sizes[] = {2, 16382, 16384, 3, 16385, 50000, 2, 9, 16383, 32768, 2};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    omm_buf text;
    line_reader r;
    omm_bytes line;
    size_t at = 0;
    omm_buf_init(&text, (size_t)1 << 20);
    fill(&text, sizes, COUNT);
    write_text(omm_buf_view(&text));
    CHECK_OK(line_reader_open(&r, s_dir, PATH, COUNT));
    CHECK_EQ(r.count, COUNT);
    const omm_digest digest = omm_hash(omm_buf_view(&text));
    CHECK(omm_digest_equal(&digest, &r.digest));
    for (size_t i = 0; i < COUNT; i++) {
        CHECK_EQ(r.offset, at);
        CHECK_OK(line_reader_next(&line, &r));
        CHECK(omm_bytes_equal(line, omm_bytes_of(text.data + at, sizes[i])));
        at += sizes[i];
    }
    CHECK_OK(line_reader_next(&line, &r));
    CHECK_EQ(line.size, 0);
    line_reader_close(&r);
    omm_buf_fini(&text);
}

static void refuses(void) {
    line_reader r;
    static const struct {
        const char *text, *why;
        omm_err err;
    } cases[] = {
        {"a\nb", "the last line has no newline", OMM_ERR_FORMAT},
        {"a\n\nb", "the last line has no newline", OMM_ERR_FORMAT},
        {"a\nb\nc\nd\n\n", "5 lines, at most 4", OMM_ERR_TOO_BIG},
        {"a\n\n\nd\n", "line 2 is empty", OMM_ERR_FORMAT},
        {"\na\n", "line 1 is empty", OMM_ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_ERR(open_text(&r, cases[i].text, 4), cases[i].err);
        CHECK(strcmp(omm_err_sentence(), cases[i].why) == 0);
        line_reader_close(&r);
    }
    kit_delete(s_dir, PATH);
    CHECK_ERR(line_reader_open(&r, s_dir, PATH, 4), OMM_ERR_NOT_FOUND);
    line_reader_close(&r);
    CHECK_ERR(line_reader_open(&r, s_dir, "other", 4), OMM_ERR_CONFIG);
    line_reader_close(&r);
    char path[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(path, s_dir, PATH));
    CHECK_EQ(symlink("/dev/zero", path), 0);
    CHECK_ERR(line_reader_open(&r, s_dir, PATH, 4), OMM_ERR_FORMAT);
    line_reader_close(&r);
    kit_delete(s_dir, PATH);
}

static void an_empty_file_has_no_lines(void) {
    line_reader r;
    omm_bytes line;
    CHECK_OK(open_text(&r, "", 0));
    CHECK_OK(line_reader_next(&line, &r));
    CHECK_EQ(line.size, 0);
    line_reader_close(&r);
}

static omm_err read_all(line_reader *r) {
    omm_bytes line = {NULL, 1};
    omm_err err = OMM_OK;
    while (err == OMM_OK && line.size > 0) err = line_reader_next(&line, r);
    return err;
}

/* In its place, as kit_write would not. */
static void overwrite(const char *text, off_t size) {
    char path[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(path, s_dir, PATH));
    FILE *file = fopen(path, "r+");
    CHECK(file != NULL);
    CHECK(fputs(text, file) >= 0);
    CHECK_EQ(fclose(file), 0);
    CHECK_EQ(truncate(path, size), 0);
}

static void a_change_between_is_seen(void) {
    line_reader r;
    CHECK_OK(open_text(&r, "aa\nbb\n", 4));
    CHECK_OK(read_all(&r));
    line_reader_close(&r);
    static const struct {
        const char *text;
        off_t size;
    } cases[] = {{"aa\nbc\n", 6}, {"aa\nbb ", 6}, {"aa\nbb\n", 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(open_text(&r, "aa\nbb\n", 4));
        overwrite(cases[i].text, cases[i].size);
        CHECK_ERR(read_all(&r), OMM_ERR_IO);
        CHECK(strstr(omm_err_sentence(), "ledger.jsonl changed while it was read") != NULL);
        line_reader_close(&r);
    }
}

static void a_long_file_takes_no_more(void) {
    size_t peaks[2];
    for (size_t i = 0; i < 2; i++) {
        omm_buf text;
        line_reader r;
        omm_buf_init(&text, (size_t)8 << 20);
        for (size_t k = 0; k < (i ? 4000u : 400u); k++) fill(&text, (size_t[]){1000}, 1);
        write_text(omm_buf_view(&text));
        omm_buf_fini(&text);
        omm_mem_peak_restart();
        const size_t before = omm_mem_bytes();
        CHECK_OK(line_reader_open(&r, s_dir, PATH, 4000));
        CHECK_OK(read_all(&r));
        line_reader_close(&r);
        peaks[i] = omm_mem_peak() - before;
    }
    CHECK_EQ(peaks[0], peaks[1]);
}

static void without_memory(void) {
    line_reader r;
    for (size_t nth = 1;; nth++) {
        write_text(omm_bytes_str("a\nb\n"));
        omm_mem_fail_nth(nth);
        omm_err err = line_reader_open(&r, s_dir, PATH, 4);
        if (err == OMM_OK) err = read_all(&r);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        line_reader_close(&r);
        if (err == OMM_OK) break;
        CHECK_ERR(err, OMM_ERR_NOMEM);
    }
}

int main(void) {
    kit_temp_dir(s_dir);
    every_line_once();
    refuses();
    an_empty_file_has_no_lines();
    a_change_between_is_seen();
    a_long_file_takes_no_more();
    without_memory();
    CHECK_OK(omm_dir_remove(s_dir));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

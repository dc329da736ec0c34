/* dataset_fuzz.c - any bytes as a data file: refused with a reason, or a data set that keeps its
 * promises; in every format, with bad lines refused or skipped, in memory and as a stream, which must
 * agree; lines that are all good are so as one JSON array, too.  The same bytes go to the recipe's decoder. */
#include "omm/data_reader.h"
#include "omm/dataset.h"
#include "omm/gguf.h"
#include "omm/recipe.h"
#include "omm/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void dataset_fuzz_end(void);

static omm_tokenizer *s_tokenizer; /* the vocabulary of the base model, opened once */

static const omm_tokenizer *vocabulary(void) {
    if (s_tokenizer) return s_tokenizer;
    char path[512];
    omm_gguf gguf;
    const char *root = getenv("OMM_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/scenarios/base/openmeshmind-tiny-F16.gguf", root ? root : ".");
    OMM_ASSERT(omm_gguf_open(&gguf, path) == OMM_OK);
    OMM_ASSERT(omm_tokenizer_open(&s_tokenizer, &gguf) == OMM_OK);
    omm_gguf_close(&gguf);
    return s_tokenizer;
}

/* For dataset_test, which replays the corpus and counts what is left on the heap. */
void dataset_fuzz_end(void) {
    omm_tokenizer_close(s_tokenizer);
    s_tokenizer = NULL;
}

static void check_example(const omm_example *e, uint32_t vocab) {
    uint32_t learned = 0;
    OMM_ASSERT(e->count >= 2);
    OMM_ASSERT(!e->learn[0]);
    for (uint32_t i = 0; i < e->count; i++) {
        OMM_ASSERT(e->ids[i] < vocab);
        learned += e->learn[i];
        OMM_ASSERT(i >= e->prompt_count || !e->learn[i]);
    }
    OMM_ASSERT(learned == e->learn_count);
    OMM_ASSERT(learned > 0);
    OMM_ASSERT(strlen(e->client) <= OMM_DATASET_NAME_BYTES_MAX);
}

static void check_set(const omm_dataset *set, const omm_tokenizer *tokenizer) {
    uint64_t tokens = 0;
    for (size_t i = 0; i < omm_dataset_count(set); i++) {
        check_example(omm_dataset_example(set, i), omm_tokenizer_vocab(tokenizer));
        tokens += omm_dataset_example(set, i)->count;
    }
    OMM_ASSERT(tokens == omm_dataset_tokens(set));
}

/* The same file as a stream has the same lines and makes the same tokens of them. */
static void check_stream(const omm_dataset *set, const char *path, const omm_tokenizer *tokenizer,
                         const omm_dataset_options *options) {
    omm_dataset *stream = NULL;
    omm_data_reader *reader = NULL;
    OMM_ASSERT(omm_dataset_stream(&stream, path, tokenizer, options) == OMM_OK);
    omm_digest a = omm_dataset_digest(set), b = omm_dataset_digest(stream);
    OMM_ASSERT(omm_digest_equal(&a, &b));
    OMM_ASSERT(omm_data_reader_open(&reader, stream, NULL) == OMM_OK);
    for (size_t i = omm_dataset_count(set); i-- > 0;) {
        omm_example e;
        const omm_example *same = omm_dataset_example(set, i);
        OMM_ASSERT(omm_data_reader_take(reader, &e, i) == OMM_OK);
        OMM_ASSERT(e.count == same->count);
        OMM_ASSERT(memcmp(e.ids, same->ids, e.count * sizeof *e.ids) == 0);
        OMM_ASSERT(memcmp(e.learn, same->learn, e.count) == 0);
    }
    omm_data_reader_close(reader);
    omm_dataset_close(stream);
}

static bool is_blank(uint8_t c) {
    return c == ' ' || c == '\t' || c == '\r';
}

/* The lines as the elements of one array: the same tokens. */
static void check_array(const omm_dataset *set, omm_bytes lines,
                        const omm_dataset_options *options) {
    omm_buf text;
    omm_dataset *array = NULL;
    if (omm_dataset_totals(set)->is_array || omm_dataset_totals(set)->format == OMM_DATA_TEXT)
        return;
    const bool is_marked = lines.size >= 3 && memcmp(lines.data, "\xef\xbb\xbf", 3) == 0;
    omm_buf_init(&text, lines.size + 2);
    OMM_ASSERT(omm_buf_append(&text, "[", 1) == OMM_OK);
    bool is_first = true; /* lines of nothing but space are none */
    for (size_t i = is_marked ? 3 : 0, end = 0; i < lines.size; i = end + 1) {
        size_t begin = i;
        for (end = i; end < lines.size && lines.data[end] != '\n';) end++;
        while (begin < end && is_blank(lines.data[begin])) begin++;
        if (begin == end) continue;
        if (!is_first) OMM_ASSERT(omm_buf_append(&text, ",", 1) == OMM_OK);
        OMM_ASSERT(omm_buf_append(&text, lines.data + i, end - i) == OMM_OK);
        is_first = false;
    }
    OMM_ASSERT(omm_buf_append(&text, "]", 1) == OMM_OK);
    OMM_ASSERT(omm_dataset_parse(&array, omm_buf_view(&text), "array", vocabulary(), options) ==
               OMM_OK);
    OMM_ASSERT(omm_dataset_totals(array)->is_array);
    OMM_ASSERT(omm_dataset_count(array) == omm_dataset_count(set));
    for (size_t i = 0; i < omm_dataset_count(set); i++) {
        const omm_example *a = omm_dataset_example(set, i), *b = omm_dataset_example(array, i);
        OMM_ASSERT(a->count == b->count && b->element > 0);
        OMM_ASSERT(memcmp(a->ids, b->ids, a->count * sizeof *a->ids) == 0);
        OMM_ASSERT(memcmp(a->learn, b->learn, a->count) == 0);
    }
    omm_dataset_close(array);
    omm_buf_fini(&text);
}

/* A file without a name on any disk. */
static int file_of(char path[64], const uint8_t *data, size_t size) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    OMM_ASSERT(fd >= 0);
    OMM_ASSERT(write(fd, data, size) == (ssize_t)size);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

static void check_format(const uint8_t *data, size_t size, const omm_dataset_options *options) {
    const omm_tokenizer *tokenizer = vocabulary();
    omm_dataset *set = NULL;
    char path[64];
    int fd = file_of(path, data, size);
    omm_err err = omm_dataset_parse(&set, omm_bytes_of(data, size), path, tokenizer, options);
    if (err == OMM_OK) {
        check_set(set, tokenizer);
        if (options->skip_bad)
            check_stream(set, path, tokenizer, options);
        else
            check_array(set, omm_bytes_of(data, size), options);
    } else if (options->skip_bad) {
        OMM_ASSERT(omm_dataset_stream(&set, path, tokenizer, options) == err);
    }
    omm_dataset_close(set);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    omm_recipe recipe;
    if (omm_recipe_decode(&recipe, omm_bytes_of(data, size)) == OMM_OK)
        OMM_ASSERT(omm_recipe_validate(&recipe) == OMM_OK);
    for (unsigned format = OMM_DATA_CHAT; format <= OMM_DATA_DETECT; format++) {
        omm_dataset_options options = {.seq_max = 64, .format = (omm_data_format)format};
        check_format(data, size, &options);
        options.skip_bad = true;
        options.client_default = "c";
        options.separator = "--";
        options.stride = 16;
        check_format(data, size, &options);
    }
    return 0;
}

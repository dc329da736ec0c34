/* test_data.h - what the tests of data formats share: a tokenizer, a folder, a text as a data set and back. */
#ifndef TRAIN_TEST_DATA_H
#define TRAIN_TEST_DATA_H

#include "test_model.h"

#include "omm/file.h"

#include <string.h>

static const omm_tokenizer *s_tokenizer;
static char s_dir[64] = "/tmp/omm-data-XXXXXX";

static const omm_dataset_options s_detect = {.format = OMM_DATA_DETECT, .client_default = "local"};

static inline omm_err parse(omm_dataset **out, const char *text,
                            const omm_dataset_options *options) {
    *out = NULL;
    return omm_dataset_parse(out, omm_bytes_str(text), "t", s_tokenizer, options);
}

static inline const char *text_of(const omm_example *e, bool learned_only) {
    static omm_buf text;
    omm_buf_fini(&text);
    omm_buf_init(&text, 1 << 20);
    for (uint32_t i = 0; i < e->count; i++)
        if (e->learn[i] || !learned_only)
            CHECK_OK(
                omm_tokenizer_decode(&text, s_tokenizer, &e->ids[i], 1, OMM_DETOKENIZE_SPECIAL));
    CHECK_OK(omm_buf_append(&text, "", 1));
    static char copy[1 << 16];
    snprintf(copy, sizeof copy, "%s", (const char *)text.data);
    omm_buf_fini(&text);
    return copy;
}

static inline void expect_text(const char *got, const char *want) {
    if (strcmp(got, want) != 0) fprintf(stderr, "got  '%s'\nwant '%s'\n", got, want);
    CHECK(strcmp(got, want) == 0);
}

#define CHAT                                                                                       \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"A?\"}, {\"role\": \"assistant\", "        \
    "\"content\": \"B.\"}, {\"role\": \"user\", \"content\": \"C?\"}, {\"role\": \"assistant\", "  \
    "\"content\": \"D.\"}]}\n"
#define COMPLETION "{\"prompt\": \"The sky is\", \"completion\": \" blue.\", \"skill\": \"sky\"}\n"

static inline void write_file(char path[128], const char *name, omm_bytes bytes) {
    snprintf(path, 128, "%s/%s", s_dir, name);
    CHECK_OK(omm_file_write_fast(path, bytes, 0644));
}

#endif

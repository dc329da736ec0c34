/* Every message through the same battery, then the refusals that belong to one message. */
#include "battery.h"

#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>

static omm_buf s_sample, s_again;
static omm_arena s_arena;

static omm_err pass(const form *f, omm_bytes in) {
    omm_arena_fini(&s_arena);
    omm_arena_init(&s_arena, OMM_MESSAGE_ARENA_BYTES);
    omm_buf_clear(&s_again);
    return f->pass(&s_again, in, &s_arena);
}

static void sample(const form *f) {
    omm_buf_clear(&s_sample);
    CHECK_OK(f->sample(&s_sample));
}

static bool is_refusal(omm_err err) {
    return err == OMM_ERR_REFUSED_FORMAT || err == OMM_ERR_REFUSED_SIZE ||
           err == OMM_ERR_REFUSED_VALUE || err == OMM_ERR_VERSION;
}

static void test_round_trip(const form *f) {
    sample(f);
    omm_bytes one = omm_buf_view(&s_sample);
    CHECK_OK(pass(f, one));
    CHECK(omm_bytes_equal(omm_buf_view(&s_again), one));
    omm_buf twice;
    omm_buf_init(&twice, OMM_MESSAGE_BYTES_MAX);
    CHECK_OK(f->sample(&twice));
    CHECK(omm_bytes_equal(omm_buf_view(&twice), one));
    omm_buf_fini(&twice);
}

/* Each prefix goes into memory of exactly its size, so that a read past the end is seen.  One that
 * ends between fields may be another message, with zeros: then it is that one, in its spelling. */
static void test_truncations(const form *f) {
    sample(f);
    for (size_t n = 0; n < s_sample.size; n++) {
        uint8_t *cut = malloc(n > 0 ? n : 1);
        CHECK(cut != NULL);
        memcpy(cut, s_sample.data, n);
        omm_err err = pass(f, omm_bytes_of(cut, n));
        bool same = omm_bytes_equal(omm_buf_view(&s_again), omm_bytes_of(cut, n));
        free(cut);
        CHECK(is_refusal(err) || (err == OMM_OK && same));
    }
}

/* What is still accepted after a flipped bit is another valid message, in its one spelling. */
static void test_bit_flips(const form *f) {
    sample(f);
    for (size_t bit = 0; bit < 8 * s_sample.size; bit++) {
        s_sample.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        omm_err err = pass(f, omm_buf_view(&s_sample));
        if (err == OMM_OK) CHECK(omm_bytes_equal(omm_buf_view(&s_again), omm_buf_view(&s_sample)));
        CHECK(err == OMM_OK || is_refusal(err));
        s_sample.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void check_appended(const form *f, const char *tail, size_t size) {
    sample(f);
    CHECK_OK(omm_buf_append(&s_sample, tail, size));
    CHECK(is_refusal(pass(f, omm_buf_view(&s_sample))));
}

static void test_one_spelling(const form *f) {
    check_appended(f, "\0", 1);
    check_appended(f, "\x08\x01", 2);       /* version once more */
    check_appended(f, "\x98\x06\x01", 3);   /* unknown field 99 */
    check_appended(f, "\x9a\x06\x02hi", 5); /* unknown field 99, bytes */
    sample(f);                              /* version 1 as a padded varint */
    CHECK_EQ(s_sample.data[0], 0x08);
    uint8_t padded[3] = {0x08, 0x81, 0x00};
    omm_buf other;
    omm_buf_init(&other, OMM_MESSAGE_BYTES_MAX);
    CHECK_OK(omm_buf_append(&other, padded, 3));
    CHECK_OK(omm_buf_append(&other, s_sample.data + 2, s_sample.size - 2));
    CHECK_ERR(pass(f, omm_buf_view(&other)), OMM_ERR_REFUSED_FORMAT);
    omm_buf_fini(&other);
    s_sample.data[1] = 2;
    CHECK_ERR(pass(f, omm_buf_view(&s_sample)), OMM_ERR_VERSION);
}

static void test_no_memory(const form *f) {
    sample(f);
    omm_buf again;
    for (size_t nth = 1;; nth++) {
        size_t live = omm_mem_live();
        omm_arena arena;
        omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
        omm_buf_init(&again, OMM_MESSAGE_BYTES_MAX);
        omm_mem_fail_nth(nth);
        omm_err err = f->pass(&again, omm_buf_view(&s_sample), &arena);
        omm_mem_fail_nth(0);
        bool untouched = again.size == 0;
        omm_buf_fini(&again);
        omm_arena_fini(&arena);
        CHECK_EQ(omm_mem_live(), live);
        if (err == OMM_OK) break;
        CHECK_ERR(err, OMM_ERR_NOMEM);
        CHECK(untouched);
        CHECK(nth < 50);
    }
}

/* Many tiny or large fields must hit a limit, not the machine's memory. */
static void test_oversize(const form *f) {
    static uint8_t big[OMM_MESSAGE_BYTES_MAX + 1];
    memset(big, 0, sizeof big);
    CHECK_ERR(pass(f, omm_bytes_of(big, sizeof big)), OMM_ERR_REFUSED_SIZE);
    CHECK_ERR(pass(f, omm_bytes_of(big, 0)), OMM_ERR_REFUSED_SIZE);
    for (unsigned field = 1; field < 21; field++) {
        uint8_t tag[3];
        size_t tag_size = field < 16 ? 1 : 2;
        tag[0] = (uint8_t)(field < 16 ? field << 3 | 2 : (field << 3 | 2 | 0x80) & 0xff);
        tag[1] = (uint8_t)(field >> 4);
        size_t n = 0;
        while (n + tag_size + 2 <= OMM_MESSAGE_BYTES_MAX) {
            memcpy(big + n, tag, tag_size);
            big[n + tag_size] = 1;
            big[n + tag_size + 1] = 'x';
            n += tag_size + 2;
        }
        CHECK(is_refusal(pass(f, omm_bytes_of(big, n))));
        CHECK(s_arena.total <= OMM_MESSAGE_ARENA_BYTES);
    }
}

/* Corpus of the fuzz target: set OMM_WRITE_CORPUS to a folder to write the samples there. */
static void write_corpus(unsigned index) {
    const char *dir = getenv("OMM_WRITE_CORPUS");
    char path[600];
    if (!dir) return;
    sample(&forms[index]);
    snprintf(path, sizeof path, "%s/%s.bin", dir, forms[index].name);
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    fputc((int)index, file);
    CHECK_EQ(fwrite(s_sample.data, 1, s_sample.size, file), s_sample.size);
    fclose(file);
}

int main(void) {
    omm_buf_init(&s_sample, OMM_MESSAGE_BYTES_MAX);
    omm_buf_init(&s_again, OMM_MESSAGE_BYTES_MAX);
    omm_arena_init(&s_arena, OMM_MESSAGE_ARENA_BYTES);
    for (unsigned i = 0; i < form_count; i++) {
        test_round_trip(&forms[i]);
        test_truncations(&forms[i]);
        test_bit_flips(&forms[i]);
        test_one_spelling(&forms[i]);
        test_no_memory(&forms[i]);
        test_oversize(&forms[i]);
        write_corpus(i);
    }
    omm_arena_fini(&s_arena);
    omm_buf_fini(&s_again);
    omm_buf_fini(&s_sample);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

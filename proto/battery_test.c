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

/* Size and BLAKE2b-256 of each sample as an independent encoder of proto3 writes it. */
typedef struct golden {
    const char *name;
    size_t size;
    const char *digest;
} golden;
static const golden s_goldens[] = {
    {"poll", 41, "a19f2a91ca03b4e59ccb6f12dd0cac790ce3d789a946f7b959cd2b3023e2bb7d"},
    {"offer", 529, "562e5c5283b4ee958c9b51ccd3c8278d8dfe1b8bd31446ec03b59c3b28c6143c"},
    {"submission", 426, "5ab234445b2b45a65cff40a005a3f67bde5c2937371edaa54f06417e4389626e"},
    {"receipt", 155, "f85efc4f602ff489ff2313704055f9791dd74496d54e705d29724394bfd37263"},
    {"close", 140, "f946c87f5a743db1b863531866b0e3d9797644c157952c45815feed0b463648f"},
    {"enrol", 136, "8a9fd2d2792abec55447f3479cb9c00f04b8d3b85da364e8f1ffcdda0d3e64d8"},
    {"challenge", 72, "ae1748d4c0ffcc1154e36fe4eac8d8b43629c5de6bc27c5a7e1185de0b7016e8"},
    {"request_poll", 16, "c4b6c5f70108e85a665c4d1687bb01de49a2070fbbb2004c03e9e41976dd2e16"},
    {"request_get", 41, "5f56b7e3f57b07d3162704e9e56711e4c1923436a21bcda449d5c27c0d8dbd48"},
    {"request_put", 53, "389566a032273d76f8a3af68bbe8987d956f4e724cb74e063958f3260e61afe3"},
    {"request_submit", 16, "2d364e90a5c169d653b25460b5b608f44c30835454acfb82440c6f2355f2fd34"},
    {"request_enrol", 16, "faa40a8418de38a3bf21d68d444dc6920a4317cff027afc89a1347c589bae5a7"},
    {"reply_wait", 7, "c60d08574fe0a201d30e768ebea9ff8a85d5ee671d54b1ca6266cdef87b04de1"},
    {"reply_offer", 16, "2ad3b414b958f1e7857f37fab0353b1077480eaec7c97b46ce84e38c8b5868cf"},
    {"reply_chunk", 53, "389566a032273d76f8a3af68bbe8987d956f4e724cb74e063958f3260e61afe3"},
    {"reply_need", 11, "19aa51de873534211827cb97d33df44d30c06b3433d133566cade15ab42c0d07"},
    {"reply_receipt", 16, "faa40a8418de38a3bf21d68d444dc6920a4317cff027afc89a1347c589bae5a7"},
    {"reply_refused", 38, "615ec19e7ebbd643a9a9b4034f9d03a5b7386080b09604748823b2afd102a0bb"},
    {"reply_done", 18, "c61ba1308bbc31327075550b7718a601d847fb6c7acb5398f4e8899149438bb2"},
    {"reply_challenge", 16, "f48b3c038cb087c6de15bf9923f295e80459fff8af1bd6b5aadb543e63679448"},
    {"base_model", 209, "158a857c8872cf30bb84de39c051b0e23aee69d33f1b13d11d206739459cca9d"},
    {"request_base", 4, "7506a48bfebcea0dc2b7474d0ead613e79b003414153b9c3a6726f18f4c90b97"},
    {"reply_base", 16, "49a3ee237ac157cf512d404ee46e92e6e53dabafc0f7df15445248df418617f4"},
    {"request_whole_poll", 18, "9b951044c3fb62e179c857a6d4f8ede14727d77c1ff91b03abe5fd544726293d"},
    {"request_whole_submit", 27,
     "671b0d33f32a54c3a1737aeda82630e2579014f2413f67919110d5e56fe9b956"},
    {"reply_whole_offer", 32, "b251eecf12182a496df72428d174b26ef27c8b92573979b21eaf962ff8872b68"},
    {"canary", 603, "2782363cebb1f71042245a8d343aee31a67e141262baaf73f579d405acf02ed8"},
    {"split_model", 217, "ce804b49368ee3e86fcaa1b46a3e6bbce99a12534b681b4bd412bbba3434888d"},
    {"declining_poll", 44, "5288fe027ca374691ed8fb0068be7545742a1cd422f222387c30bacb45b6b6d2"},
};

static void test_golden(unsigned index) {
    char hex[OMM_DIGEST_HEX_SIZE];
    CHECK_EQ(sizeof s_goldens / sizeof s_goldens[0], form_count);
    CHECK(strcmp(s_goldens[index].name, forms[index].name) == 0);
    sample(&forms[index]);
    CHECK_EQ(s_sample.size, s_goldens[index].size);
    omm_digest digest = omm_hash(omm_buf_view(&s_sample));
    omm_digest_hex(hex, &digest);
    if (strcmp(hex, s_goldens[index].digest) != 0)
        fprintf(stderr, "%s: %s\n", s_goldens[index].name, hex);
    CHECK(strcmp(hex, s_goldens[index].digest) == 0);
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
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
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
        test_golden(i);
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

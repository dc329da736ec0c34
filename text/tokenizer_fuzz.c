/* tokenizer_fuzz.c - any text through any pre-tokenizer: the first byte selects family and flags.
 * Well-formed text comes back byte for byte, and a stream gives what decoding at once gives. */
#include "omm/mem.h"
#include "omm/utf8.h"
#include "test_vocab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TOKENS_MAX = 1 << 16, BACK_MAX = 1 << 18 };

/* `family` past the last is SentencePiece. */
static omm_tokenizer *open_family(size_t family) {
    vocab_recipe r = {.spm = true, .marks = {"<|im_end|>", "[INST]"}};
    char name[64];
    if (family < pretoken_family_count) {
        const char *names = pretoken_families[family].names + 1;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(names, " "), names);
        r.pre = name;
        r.spm = false;
        r.characters = pretoken_families[family].family.characters;
    }
    return open_vocab(&r);
}

static bool is_well_formed(omm_bytes text) {
    for (size_t at = 0; at < text.size;) {
        unsigned n = omm_utf8_size(text.data + at, text.size - at);
        if (n == 0) return false;
        at += n;
    }
    return true;
}

/* U+2581 comes back as the space that it stands for. */
static bool has_mark(omm_bytes text) {
    return memmem(text.data, text.size, SPACE_MARK, sizeof SPACE_MARK - 1) != NULL;
}

/* What a stream is to give: each bad byte as U+FFFD. */
static void repair(omm_buf *out, omm_bytes text) {
    for (size_t at = 0; at < text.size;) {
        unsigned n = omm_utf8_size(text.data + at, text.size - at);
        OMM_ASSERT(omm_buf_append(out, n ? (const void *)(text.data + at) : "\xef\xbf\xbd",
                                  n ? n : 3) == OMM_OK);
        at += n ? n : 1;
    }
}

static void check_stream(const omm_tokenizer *t, const omm_tokens *ids, omm_bytes whole) {
    omm_buf want, have;
    omm_detok d = {.first = true};
    omm_buf_init(&want, BACK_MAX);
    omm_buf_init(&have, BACK_MAX);
    repair(&want, whole);
    for (size_t i = 0; i < ids->count; i++) {
        OMM_ASSERT(omm_detok_push(&have, &d, t, ids->ids[i], OMM_DETOKENIZE_SPECIAL) == OMM_OK);
        OMM_ASSERT(d.pending_count <= 3);
        OMM_ASSERT(is_well_formed(omm_buf_view(&have)));
    }
    OMM_ASSERT(omm_detok_flush(&have, &d) == OMM_OK);
    OMM_ASSERT(omm_bytes_equal(omm_buf_view(&want), omm_buf_view(&have)));
    omm_buf_fini(&want);
    omm_buf_fini(&have);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    omm_tokenizer *t = open_family(data[0] % (pretoken_family_count + 1));
    unsigned flags = data[1] % 16;
    omm_bytes text = omm_bytes_of(data + 2, size - 2);
    omm_tokens ids;
    omm_buf back;
    omm_tokens_init(&ids, TOKENS_MAX);
    omm_buf_init(&back, BACK_MAX);
    omm_err err = omm_tokenizer_encode(&ids, t, text, flags & ~(unsigned)OMM_TOKENIZE_BOS);
    OMM_ASSERT(err == OMM_OK || err == OMM_ERR_TOO_BIG);
    if (err == OMM_OK) {
        OMM_ASSERT(omm_tokenizer_decode(&back, t, ids.ids, ids.count, OMM_DETOKENIZE_SPECIAL) ==
                   OMM_OK);
        bool same = omm_bytes_equal(omm_buf_view(&back), text);
        OMM_ASSERT(same || t->spm || !is_well_formed(text) || (t->marks && has_mark(text)));
        check_stream(t, &ids, omm_buf_view(&back));
    }
    omm_tokens_fini(&ids);
    omm_buf_fini(&back);
    omm_tokenizer_close(t);
    return 0;
}

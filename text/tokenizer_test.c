/* tokenizer_test.c - small vocabularies made here: merges by hand, malformed UTF-8, control tokens
 * that stay out of plain text, streams, hostile vocabularies, long texts. */
#include "omm/tokenizer.h"

#include "omm/mem.h"
#include "omm/rng.h"
#include "omm/utf8.h"
#include "tokenizer_internal.h"

#include "omm_test.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum { FILE_MAX = 1 << 26, TOKENS_MAX = 1 << 26 };

typedef struct recipe {
    const char *model;
    const char *pre;
    const char *texts[64]; /* after the letters or bytes */
    int types[64];
    float scores[64];
    const char *merges[32];
    bool characters; /* texts as llama, merges as gpt2 */
    bool no_bytes;   /* llama: without byte tokens */
    bool is_silent;  /* llama: no ids of bos, eos, unknown */
    bool is_plain;   /* byte tokens are of the ordinary type */
    bool is_false;   /* so is key */
    uint32_t types_missing;
    int first_type;
    const char *key;  /* of a bool, which is true */
    const char *name; /* general.name; NULL: none */
} recipe;

/* gpt2: ids 0 .. 255 are the bytes.  llama, characters: 0 <unk>, 1 <s>, 2 </s>, 3 .. 258 the bytes. */
static void write_vocab(omm_buf *file, const recipe *r) {
    static omm_bytes texts[400];
    static char names[256][8];
    static uint8_t types[4 * 400];
    static uint8_t scores[4 * 400];
    omm_bytes merges[32];
    bool spm = strcmp(r->model, "llama") == 0 || r->characters;
    uint32_t n = 0;
    memset(scores, 0, sizeof scores);
    for (uint32_t i = 0; i < 400; i++) omm_put_u32(types + (size_t)i * 4, TOKEN_NORMAL);
    if (spm) {
        static const char *const first[3] = {"<unk>", "<s>", "</s>"};
        for (; n < 3; n++) {
            texts[n] = omm_bytes_str(first[n]);
            omm_put_u32(types + (size_t)n * 4, n == 0 ? TOKEN_UNKNOWN : TOKEN_CONTROL);
        }
    }
    for (unsigned b = 0; b < 256 && !r->no_bytes; b++, n++) {
        snprintf(names[b], sizeof names[b], "<0x%02X>", b);
        texts[n] = omm_bytes_str(names[b]);
        if (spm && !r->is_plain) omm_put_u32(types + (size_t)n * 4, TOKEN_BYTE);
        if (!spm) texts[n] = omm_bytes_of(names[b], bpe_letter((uint8_t *)names[b], (uint8_t)b));
    }
    for (int i = 0; r->texts[i]; i++, n++) {
        texts[n] = omm_bytes_str(r->texts[i]);
        omm_put_f32(scores + (size_t)n * 4, r->scores[i]);
        if (r->types[i]) omm_put_u32(types + (size_t)n * 4, (uint32_t)r->types[i]);
    }
    omm_gguf_writer w;
    omm_gguf_writer_init(&w);
    omm_gguf_put_text(&w, "tokenizer.ggml.model", r->model);
    if (r->pre) omm_gguf_put_text(&w, "tokenizer.ggml.pre", r->pre);
    omm_gguf_put_strings(&w, "tokenizer.ggml.tokens", texts, n);
    omm_gguf_put_array(&w, "tokenizer.ggml.token_type", OMM_GGUF_I32, types, n - r->types_missing);
    if (r->key) omm_gguf_put_bool(&w, r->key, !r->is_false);
    if (r->name) omm_gguf_put_text(&w, "general.name", r->name);
    size_t count = 0;
    for (; r->merges[count]; count++) merges[count] = omm_bytes_str(r->merges[count]);
    if (count > 0) omm_gguf_put_strings(&w, "tokenizer.ggml.merges", merges, count);
    if (spm) {
        omm_gguf_put_array(&w, "tokenizer.ggml.scores", OMM_GGUF_F32, scores, n);
    }
    if (spm && !r->is_silent) {
        omm_gguf_put_u32(&w, "tokenizer.ggml.bos_token_id", 1);
        omm_gguf_put_u32(&w, "tokenizer.ggml.eos_token_id", 2);
        omm_gguf_put_u32(&w, "tokenizer.ggml.unknown_token_id", 0);
    }
    CHECK_OK(omm_gguf_writer_finish(file, &w));
    omm_gguf_writer_fini(&w);
}

static omm_err open_file(omm_tokenizer **out, omm_bytes file) {
    omm_gguf g;
    OMM_TRY(omm_gguf_open_bytes(&g, file));
    omm_err err = omm_tokenizer_open(out, &g);
    omm_gguf_close(&g);
    return err;
}

static omm_tokenizer *open_recipe(const recipe *r) {
    omm_buf file;
    omm_tokenizer *t = NULL;
    omm_buf_init(&file, FILE_MAX);
    write_vocab(&file, r);
    CHECK_OK(open_file(&t, omm_buf_view(&file)));
    omm_buf_fini(&file);
    return t;
}

static const recipe s_gpt2 = {
    .model = "gpt2",
    .pre = "gpt-2",
    .texts = {"ab", "abc", "\304\240a", "aa", "aaaa", "<|im_end|>", "<tool>", "<|i"},
    .types = {0, 0, 0, 0, 0, TOKEN_CONTROL, TOKEN_USER, 0},
    .merges = {"a b", "ab c", "\xc4\xa0 a", "a a", "aa aa", "< |", "<| i"},
};
enum { G_AB = 256, G_ABC, G_SPACE_A, G_AA, G_AAAA, G_END, G_TOOL, G_MARK };

static const recipe s_llama = {
    .model = "llama",
    .texts = {"\xe2\x96\x81", "a", "b", "ab", "\342\226\201a", "\342\226\201ab", "/", "s", "</s",
              "<", ">", "</"},
    .scores = {0, -1, -2, -3, -4, -5, 0, 0, -6, 0, 0, -7},
};
enum { L_BYTE = 3, L_SPACE = 259, L_A, L_B, L_AB, L_SPACE_A, L_SPACE_AB, L_CLOSE = L_SPACE + 8 };

static const recipe s_gemma = {
    .model = "gemma4",
    .characters = true,
    .texts = {"\342\226\201", "a", "b", "\n", "\n\n", "\n\n\n\n\n", "ab", "\342\226\201ab",
              "ab\342\226\201ab", "\303\244", "\303\244b", "\342\226\201\342\226\201", "</",
              "<tool>", "<turn|>", "<|tool_response>"},
    .types = {[13] = TOKEN_USER, TOKEN_CONTROL, TOKEN_USER},
    .merges = {"a b", "\342\226\201 ab", "ab \342\226\201ab", "\303\244 b",
               "\342\226\201 \342\226\201", "\n \n", "b b", "< /", "</ s", "</s >"},
};
enum {
    C_BYTE = 3,
    C_SPACE = 259,
    C_A,
    C_B,
    C_LINE,
    C_LINE2,
    C_LINE5,
    C_AB,
    C_SPACE_AB,
    C_AB_AB,
    C_AE,
    C_AEB,
    C_SPACE2,
    C_CLOSE,
    C_TOOL,
    C_TURN,
    C_RESPONSE
};

static void check(const omm_tokenizer *t, const char *text, size_t size, unsigned flags,
                  const uint32_t *want, size_t count) {
    omm_tokens ids;
    omm_tokens_init(&ids, TOKENS_MAX);
    CHECK_OK(omm_tokenizer_encode(&ids, t, omm_bytes_of(text, size), flags));
    bool same = ids.count == count && (count == 0 || memcmp(ids.ids, want, count * 4) == 0);
    if (!same) {
        fprintf(stderr, "'%s' gives", text);
        for (size_t i = 0; i < ids.count; i++) fprintf(stderr, " %u", ids.ids[i]);
        fprintf(stderr, "\n");
    }
    CHECK(same);
    omm_tokens_fini(&ids);
}

#define IDS(...) (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4
#define TEXT(literal) (literal), sizeof(literal) - 1

/* Tokens of other models that end an answer, where they are no text; a SentencePiece file that names no token. */
static void test_ends(void) {
    recipe r = s_gpt2;
    r.texts[G_TOOL - G_AB] = "</s>";
    r.texts[G_MARK - G_AB] = "<eos>";
    for (int control = 0; control < 2; control++) {
        r.types[G_TOOL - G_AB] = r.types[G_MARK - G_AB] = control ? TOKEN_CONTROL : 0;
        omm_tokenizer *t = open_recipe(&r);
        CHECK_EQ(omm_tokenizer_is_end(t, G_TOOL), control);
        CHECK_EQ(omm_tokenizer_is_end(t, G_MARK), control);
        omm_tokenizer_close(t);
    }
    r = s_llama;
    r.is_silent = true;
    omm_tokenizer *t = open_recipe(&r);
    CHECK_EQ(omm_tokenizer_bos(t), 1);
    CHECK(omm_tokenizer_is_end(t, 2) && !omm_tokenizer_is_end(t, 1));
    check(t, TEXT("a"), OMM_TOKENIZE_BOS, IDS(1, L_SPACE_A));
    omm_tokenizer_close(t);
}

static void test_gpt2(void) {
    omm_tokenizer *t = open_recipe(&s_gpt2);
    check(t, TEXT(""), 0, NULL, 0);
    check(t, TEXT("abc"), 0, IDS(G_ABC));
    check(t, TEXT("abab"), 0, IDS(G_AB, G_AB));
    check(t, TEXT("b a"), 0, IDS('b', G_SPACE_A));
    check(t, TEXT("aaa"), 0, IDS(G_AA, 'a'));
    check(t, TEXT("aaaaa"), 0, IDS(G_AAAA, 'a'));
    check(t, TEXT("\n  a"), 0, IDS('\n', ' ', G_SPACE_A));
    check(t, TEXT("\0\x7f"), 0, IDS(0, 0x7f));
    check(t, TEXT("a<|im_end|>b"), OMM_TOKENIZE_SPECIAL, IDS('a', G_END, 'b'));
    /* plain text: "<|" and "<|i" are merges; the second is no word of the pre-tokenizer */
    omm_tokens ids;
    omm_tokens_init(&ids, 100);
    CHECK_OK(omm_tokenizer_encode(&ids, t, omm_bytes_str("<|im_end|>"), 0));
    for (size_t i = 0; i < ids.count; i++) CHECK(ids.ids[i] != G_END);
    omm_tokens_fini(&ids);
    check(t, TEXT("a<tool>b"), 0, IDS('a', G_TOOL, 'b'));
    check(t, TEXT("<tool>"), OMM_TOKENIZE_PLAIN | OMM_TOKENIZE_SPECIAL,
          IDS('<', 't', 'o', 'o', 'l', '>'));
    check(t, TEXT("<tool><tool><|im_end|>"), OMM_TOKENIZE_SPECIAL, IDS(G_TOOL, G_TOOL, G_END));
    CHECK(omm_tokenizer_is_end(t, G_END));
    CHECK(!omm_tokenizer_is_end(t, 99999));
    CHECK_EQ(omm_tokenizer_special(t, "ab"), OMM_TOKEN_NONE);
    CHECK_EQ(omm_tokenizer_special(t, "<tool>"), G_TOOL);
    CHECK_EQ(omm_tokenizer_bos(t), OMM_TOKEN_NONE);
    omm_tokenizer_close(t);
}

/* gpt2: each bad byte becomes U+FFFD; so do overlong forms and surrogates. */
static void test_malformed_gpt2(void) {
    omm_tokenizer *t = open_recipe(&s_gpt2);
#define BAD 0xef, 0xbf, 0xbd
    check(t, TEXT("a\xff"), 0, IDS('a', BAD));
    check(t, TEXT("\xc3("), 0, IDS(BAD, '('));
    check(t, TEXT("\xe2\x82"), 0, IDS(BAD, BAD));
    check(t, TEXT("\xc0\x80"), 0, IDS(BAD, BAD));
    check(t, TEXT("\xed\xa0\x80"), 0, IDS(BAD, BAD, BAD));
    check(t, TEXT("\xf4\x90\x80\x80"), 0, IDS(BAD, BAD, BAD, BAD));
    check(t, TEXT("\xf0\x9f\x98\x80"), 0, IDS(0xf0, 0x9f, 0x98, 0x80));
    check(t,
          TEXT("\x80"
               "abc"),
          0, IDS(BAD, G_ABC));
    omm_tokenizer_close(t);
}

static void test_llama(void) {
    omm_tokenizer *t = open_recipe(&s_llama);
    check(t, TEXT(""), 0, NULL, 0);
    check(t, TEXT(""), OMM_TOKENIZE_BOS, IDS(1));
    check(t, TEXT("ab"), 0, IDS(L_SPACE_AB));
    check(t, TEXT("ab"), OMM_TOKENIZE_CONTINUE, IDS(L_AB));
    check(t, TEXT("ab ab"), OMM_TOKENIZE_BOS, IDS(1, L_SPACE_AB, L_SPACE_AB));
    check(t, TEXT("ba"), OMM_TOKENIZE_CONTINUE, IDS(L_B, L_A));
    check(t, TEXT("\xc3\xa4"), OMM_TOKENIZE_CONTINUE, IDS(L_BYTE + 0xc3, L_BYTE + 0xa4));
    check(t,
          TEXT("\xff"
               "a\xe2"),
          OMM_TOKENIZE_CONTINUE, IDS(L_BYTE + 0xff, L_BYTE + 'a', L_BYTE + 0xe2));
    check(t, TEXT("a</s>b"), OMM_TOKENIZE_SPECIAL, IDS(L_SPACE_A, 2, L_SPACE, L_B));
    check(t, TEXT("a</s>ab"), OMM_TOKENIZE_SPECIAL | OMM_TOKENIZE_CONTINUE,
          IDS(L_A, 2, L_SPACE_AB));
    /* the merges could spell the control token; plain text must not become it */
    check(t, TEXT("</s>"), OMM_TOKENIZE_CONTINUE, IDS(L_CLOSE, L_CLOSE + 2));
    omm_tokenizer_close(t);
}

/* A byte's token gives that byte, whatever it is; one that names none gives its text. */
static void test_llama_bytes(void) {
    static const char *const odd[] = {"<0x", "<0x4>", "<0x4G>", "<0x41]", "0x41>>", "<0x041>"};
    recipe r = s_llama;
    for (size_t i = 0; i < 6; i++) {
        r.texts[12 + i] = odd[i];
        r.types[12 + i] = TOKEN_BYTE;
    }
    omm_tokenizer *t = open_recipe(&r);
    for (unsigned b = 0; b < 256; b++) {
        const uint8_t byte = (uint8_t)b;
        CHECK(omm_bytes_equal(omm_tokenizer_piece(t, L_BYTE + b), omm_bytes_of(&byte, 1)));
    }
    for (uint32_t i = 0; i < 6; i++)
        CHECK(omm_bytes_equal(omm_tokenizer_piece(t, L_SPACE + 12 + i), omm_bytes_str(odd[i])));
    omm_tokenizer_close(t);
}

static void test_llama_without_bytes(void) {
    recipe r = s_llama;
    r.no_bytes = true;
    omm_tokenizer *t = open_recipe(&r);
    check(t,
          TEXT("a\xc3\xa4"
               "b"),
          OMM_TOKENIZE_CONTINUE, IDS(4, 0, 5)); /* one <unk> a character */
    omm_tokenizer_close(t);
}

/* ---- Merges of characters ------------------------------------------------------------------ */

/* The ids are llama.cpp's for this vocabulary. */
static void test_characters(void) {
    omm_tokenizer *t = open_recipe(&s_gemma);
    check(t, TEXT(""), OMM_TOKENIZE_BOS, IDS(1));
    check(t, TEXT("ab"), OMM_TOKENIZE_BOS, IDS(1, C_AB));
    check(t, TEXT(" ab ab"), 0, IDS(C_SPACE_AB, C_SPACE_AB));
    check(t, TEXT("ab ab ab"), 0, IDS(C_AB_AB, C_SPACE_AB));
    check(t, TEXT(" "), 0, IDS(C_SPACE));
    check(t, TEXT("   a"), 0, IDS(C_SPACE2, C_SPACE, C_A));
    check(t, TEXT("bab"), 0, IDS(C_B, C_AB));
    check(t, TEXT("bb"), 0, IDS(C_BYTE + 'b', C_BYTE + 'b'));
    check(t, TEXT("bbb"), 0, IDS(C_BYTE + 'b', C_BYTE + 'b', C_B));
    check(t, TEXT("\303\244b \303\244"), 0, IDS(C_AEB, C_SPACE, C_AE));
    check(t, TEXT("\342\202\254\360\237\231\202"), 0,
          IDS(C_BYTE + 0xe2, C_BYTE + 0x82, C_BYTE + 0xac, C_BYTE + 0xf0, C_BYTE + 0x9f,
              C_BYTE + 0x99, C_BYTE + 0x82));
    check(t, TEXT("a\n\nb"), 0, IDS(C_A, C_LINE2, C_B));
    check(t, TEXT("\n\n\n\n\n"), 0, IDS(C_LINE5));
    check(t, TEXT("\n\n\n\n\n\n"), 0, IDS(C_LINE2, C_LINE2, C_LINE2));
    check(t, TEXT("\n\n\n"), 0, IDS(C_LINE2, C_LINE));
    check(t, TEXT("\n \n"), 0, IDS(C_LINE, C_SPACE, C_LINE));
    check(t, TEXT("\342\226\201ab"), 0, IDS(C_SPACE_AB));
    check(t, TEXT("a<tool> ab"), 0, IDS(C_A, C_TOOL, C_SPACE_AB));
    check(t, TEXT("a<turn|>b"), OMM_TOKENIZE_SPECIAL, IDS(C_A, C_TURN, C_B));
    check(t, TEXT("<s>"), OMM_TOKENIZE_SPECIAL, IDS(1));
    check(t, TEXT("</s>"), OMM_TOKENIZE_SPECIAL, IDS(2));
    check(t, TEXT("a\377b"), 0, IDS(C_A, C_BYTE + 0xef, C_BYTE + 0xbf, C_BYTE + 0xbd, C_B));
    check(t, TEXT("a\342\202"), 0,
          IDS(C_A, C_BYTE + 0xef, C_BYTE + 0xbf, C_BYTE + 0xbd, C_BYTE + 0xef, C_BYTE + 0xbf,
              C_BYTE + 0xbd));
    check(t, TEXT("a\000b"), 0, IDS(C_A, C_BYTE + 0x00, C_B));
    check(t, TEXT("a\011b"), 0, IDS(C_A, C_BYTE + 0x09, C_B));
    /* not llama.cpp's: the merges spell a control token, which plain text must not become */
    check(t, TEXT("</s>"), 0, IDS(C_BYTE + '<', C_BYTE + '/', C_BYTE + 's', C_BYTE + '>'));
    check(t, TEXT("<tool>"), OMM_TOKENIZE_PLAIN,
          IDS(C_BYTE + '<', C_BYTE + 't', C_BYTE + 'o', C_BYTE + 'o', C_BYTE + 'l', C_BYTE + '>'));
    CHECK(omm_tokenizer_is_end(t, C_TURN) && omm_tokenizer_is_end(t, C_RESPONSE));
    omm_tokenizer_close(t);
}

/* Text without spaces for words: what stands between white space, which is kept (gpt2) or left out, in small letters
 * where the file says so. */
static void test_white_space(void) {
    recipe r = s_gemma;
    r.model = "gpt2";
    r.pre = "whitespace";
    r.texts[0] = "\303\244ab"; /* no U+2581 here */
    r.merges[1] = "\303\244 ab";
    omm_tokenizer *t = open_recipe(&r);
    check(t, TEXT("ab b\303\204"), 0, IDS(C_AB, C_BYTE + ' ', C_B, C_BYTE + 0xc3, C_BYTE + 0x84));
    check(t, TEXT("ab\n\n\xe2\x80\xa8 a"), 0,
          IDS(C_AB, C_LINE2, C_BYTE + 0xe2, C_BYTE + 0x80, C_BYTE + 0xa8, C_BYTE + ' ', C_A));
    CHECK(omm_bytes_equal(omm_tokenizer_piece(t, C_SPACE_AB), omm_bytes_str("\342\226\201ab")));
    omm_tokenizer_close(t);
    r.model = "whitespace";
    r.key = "tokenizer.ggml.normalizer.lowercase";
    for (int lowers = 0; lowers < 2; lowers++) {
        r.is_false = !lowers;
        t = open_recipe(&r);
        check(t, TEXT(" ab\n\n\xe2\x80\xa8 a\t"), 0, IDS(C_AB, C_A));
        if (lowers)
            check(t, TEXT("AB<tool>\303\204b\303\204AB"), 0, IDS(C_AB, C_TOOL, C_AEB, C_SPACE));
        else
            check(t, TEXT("A\303\204"), 0, IDS(C_BYTE + 'A', C_BYTE + 0xc3, C_BYTE + 0x84));
        if (lowers) /* a number that has case, letters in circles, one whose small letter is longer */
            check(t, TEXT("\xe2\x85\xa1\xe2\x92\xb6\xe2\x93\x80\xc8\xba"), 0,
                  IDS(C_BYTE + 0xe2, C_BYTE + 0x85, C_BYTE + 0xb1, C_BYTE + 0xe2, C_BYTE + 0x93,
                      C_BYTE + 0x90, C_BYTE + 0xe2, C_BYTE + 0x93, C_BYTE + 0x9a, C_BYTE + 0xe2,
                      C_BYTE + 0xb1, C_BYTE + 0xa5));
        check(t, TEXT("\n \n"), 0, NULL, 0);
        omm_tokenizer_close(t);
    }
}

/* BOS whatever the file says, or as it says; a run of line ends whole, or merged; byte tokens of either type. */
static void test_character_families(void) {
    static const char *const names[] = {"gemma4", "granite-embed-multi-311m", "sarvam-moe"};
    recipe r = s_gemma;
    r.model = "gpt2";
    r.key = "tokenizer.ggml.add_bos_token";
    r.is_false = r.is_plain = true;
    for (int i = 0; i < 3; i++) {
        r.pre = names[i];
        omm_tokenizer *t = open_recipe(&r);
        CHECK_EQ(omm_tokenizer_adds_bos(t), i < 2);
        if (i < 2)
            check(t, TEXT("\n\n\n\n\n"), OMM_TOKENIZE_BOS, IDS(1, C_LINE5));
        else
            check(t, TEXT("\n\n\n\n\n"), OMM_TOKENIZE_BOS, IDS(C_LINE2, C_LINE2, C_LINE));
        CHECK_EQ(omm_tokenizer_piece(t, C_BYTE + 0xe2).size, 1);
        omm_tokenizer_close(t);
    }
    omm_digest digests[2];
    r = s_gemma;
    omm_tokenizer *t = open_recipe(&r);
    digests[0] = omm_tokenizer_digest(t);
    omm_tokenizer_close(t);
    r.model = "gpt2";
    r.pre = names[1];
    t = open_recipe(&r);
    digests[1] = omm_tokenizer_digest(t);
    omm_tokenizer_close(t);
    CHECK(omm_digest_equal(&digests[0], &digests[1])); /* another name for the same ids */
}

static void test_characters_without_bytes(void) {
    recipe r = s_gemma;
    r.no_bytes = true;
    omm_tokenizer *t = open_recipe(&r);
    check(t, TEXT("ax\xe2\x82\xac"), 0, IDS(C_A - 256, 0, 0)); /* one <unk> a character */
    check(t, TEXT("bb"), 0,
          IDS(C_B - 256, C_B - 256)); /* of a merge without a token: its letters */
    omm_tokenizer_close(t);
}

static void test_character_stream(void) {
    omm_tokenizer *t = open_recipe(&s_gemma);
    static const uint32_t ids[] = {C_SPACE_AB,    C_BYTE + 0xf0, C_BYTE + 0x9f,
                                   C_BYTE + 0x99, C_BYTE + 0x82, C_TURN,
                                   C_SPACE2,      C_BYTE + 0xe2, C_AE};
    static const size_t sizes[] = {3, 3, 3, 3, 7, 7, 9, 9, 14};
    omm_buf out, whole;
    omm_detok d = {.first = true};
    omm_buf_init(&out, FILE_MAX);
    omm_buf_init(&whole, FILE_MAX);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        CHECK_OK(omm_detok_push(&out, &d, t, ids[i], 0));
        CHECK_EQ(out.size, sizes[i]);
    }
    CHECK(omm_bytes_equal(omm_buf_view(&out),
                          omm_bytes_str(" ab\xf0\x9f\x99\x82  \xef\xbf\xbd\303\244")));
    CHECK_OK(omm_tokenizer_decode(&whole, t, ids, 7, OMM_DETOKENIZE_SPECIAL));
    CHECK(omm_bytes_equal(omm_buf_view(&whole), omm_bytes_str(" ab\xf0\x9f\x99\x82<turn|>  ")));
    omm_buf_fini(&out);
    omm_buf_fini(&whole);
    omm_tokenizer_close(t);
}

/* ---- Against the plain definition ---------------------------------------------------------- */

/* Merge the best pair, the leftmost of equals, until there is none: by looking at every pair. */
static size_t merge_slowly(uint32_t *symbols, size_t n, const omm_tokenizer *t) {
    for (;;) {
        size_t best_at = n;
        double best = 0;
        uint32_t result = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            omm_bytes l = vocab_text(&t->texts, symbols[i]);
            omm_bytes r = vocab_text(&t->texts, symbols[i + 1]);
            uint8_t joined[256];
            CHECK(l.size + r.size <= sizeof joined);
            memcpy(joined, l.data, l.size);
            memcpy(joined + l.size, r.data, r.size);
            const bpe_merge *m = t->spm ? NULL : bpe_find(t, symbols[i], symbols[i + 1]);
            uint32_t id = vocab_find(&t->texts, omm_bytes_of(joined, l.size + r.size));
            if (t->spm ? id == OMM_TOKEN_NONE : !m) continue;
            double rank = t->spm ? -(double)t->scores[id] : (double)m->rank;
            if (best_at < n && rank >= best) continue;
            best_at = i;
            best = rank;
            result = id;
        }
        if (best_at == n) return n;
        symbols[best_at] = result;
        memmove(symbols + best_at + 1, symbols + best_at + 2, (n - best_at - 2) * sizeof *symbols);
        n--;
    }
}

typedef enum vocab_kind { GPT2, LLAMA, CHARACTERS } vocab_kind;

/* A vocabulary of random concatenations of a, b and c; `texts` keeps the strings alive. */
static void random_recipe(recipe *r, char texts[32][16], char merges[32][32], const omm_rng *rng,
                          uint64_t at, vocab_kind kind) {
    const bool spm = kind == LLAMA;
    *r = (recipe){.model = spm ? "llama" : "gpt2",
                  .pre = kind == CHARACTERS ? "sarvam-moe" : "gpt-2",
                  .characters = kind == CHARACTERS};
    int n = 0;
    for (; n < 3; n++) snprintf(texts[n], 16, "%c", 'a' + n);
    for (int tries = 0; tries < 200 && n < 28; tries++) {
        char left[16];
        char right[16];
        memcpy(left, texts[omm_rng_below(rng, at++, (uint64_t)n)], sizeof left);
        memcpy(right, texts[omm_rng_below(rng, at++, (uint64_t)n)], sizeof right);
        bool known = strlen(left) + strlen(right) > 8;
        snprintf(texts[n], 16, "%.7s%.7s", left, right);
        for (int i = 0; i < n; i++) known = known || strcmp(texts[i], texts[n]) == 0;
        snprintf(merges[n - 3], 32, "%.15s %.15s", left, right);
        if (!known) n++;
    }
    int first = kind == GPT2 ? 3 : 0; /* gpt2 has the letters among its bytes */
    for (int i = first; i < n; i++) r->texts[i - first] = texts[i];
    for (int i = 3; i < n; i++) r->merges[i - 3] = merges[i - 3];
    for (int i = 0; i < n; i++) r->scores[i] = -(float)omm_rng_below(rng, at++, 6); /* with ties */
}

static void check_slowly(const omm_tokenizer *t, const omm_rng *rng, uint64_t at) {
    char text[49];
    uint32_t symbols[48];
    size_t n = (size_t)omm_rng_below(rng, at++, 48) + 1;
    for (size_t i = 0; i < n; i++) {
        text[i] = (char)('a' + (int)omm_rng_below(rng, at++, 3));
        symbols[i] = vocab_find(&t->texts, omm_bytes_of(text + i, 1));
    }
    text[n] = 0;
    size_t count = merge_slowly(symbols, n, t);
    check(t, text, n, OMM_TOKENIZE_CONTINUE, symbols, count);
}

static void test_random_merges(vocab_kind kind) {
    omm_seed seed = omm_seed_from_u64(5);
    omm_rng rng = omm_rng_init(&seed, OMM_PURPOSE_TEST, kind, 0);
    for (uint64_t round = 0; round < 60; round++) {
        recipe r;
        char texts[32][16];
        char merges[32][32];
        random_recipe(&r, texts, merges, &rng, round << 20, kind);
        omm_tokenizer *t = open_recipe(&r);
        for (uint64_t i = 1; i <= 60; i++) check_slowly(t, &rng, (round << 20) + (i << 12));
        omm_tokenizer_close(t);
    }
}

static void push(omm_buf *out, omm_detok *d, const omm_tokenizer *t, uint32_t id, size_t want) {
    CHECK_OK(omm_detok_push(out, d, t, id, 0));
    CHECK_EQ(out->size, want);
}

static void test_stream(void) {
    omm_tokenizer *t = open_recipe(&s_gpt2);
    omm_buf out;
    omm_detok d = {0};
    omm_buf_init(&out, FILE_MAX);
    push(&out, &d, t, 0xf0, 0);
    push(&out, &d, t, 0x9f, 0);
    push(&out, &d, t, 0x98, 0);
    push(&out, &d, t, 0x80, 4); /* whole or not at all */
    push(&out, &d, t, G_END, 4);
    push(&out, &d, t, 0xe2, 4);
    push(&out, &d, t, 'x', 8); /* U+FFFD, x */
    push(&out, &d, t, 0xed, 8);
    push(&out, &d, t, 0xa0, 14); /* a surrogate never becomes whole: two bad bytes */
    push(&out, &d, t, 0xc3, 14);
    CHECK_OK(omm_detok_flush(&out, &d));
    CHECK_OK(omm_detok_flush(&out, &d));
    CHECK(omm_bytes_equal(
        omm_buf_view(&out),
        omm_bytes_str("\xf0\x9f\x98\x80\xef\xbf\xbdx\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd")));
    CHECK_ERR(omm_detok_push(&out, &d, t, 99999, 0), OMM_ERR_FORMAT);
    const uint32_t ids[] = {'a', G_END, 99999};
    omm_buf_clear(&out);
    CHECK_ERR(omm_tokenizer_decode(&out, t, ids, 3, 0), OMM_ERR_FORMAT);
    CHECK_EQ(out.size, 0);
    CHECK_OK(omm_tokenizer_decode(&out, t, ids, 2, 0));
    CHECK_EQ(out.size, 1);
    CHECK_OK(omm_tokenizer_decode(&out, t, ids, 2, OMM_DETOKENIZE_SPECIAL));
    CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str("aa<|im_end|>")));
    omm_buf_fini(&out);
    omm_tokenizer_close(t);
}

/* Of tokens that are cut out of a text the longest is, wherever the list has it; of two merges of one score, 0 and -0 are
 * one, the left one is made. */
static void test_precedence(void) {
    recipe r = s_gemma;
    r.types[C_LINE - C_SPACE] = r.types[C_LINE2 - C_SPACE] = TOKEN_USER;
    omm_tokenizer *t = open_recipe(&r);
    check(t, TEXT("a\n\n\nb"), 0, IDS(C_A, C_LINE2, C_LINE, C_B));
    omm_tokenizer_close(t);
    r = s_gpt2; /* one of no bytes is nowhere */
    r.texts[G_MARK + 1 - G_AB] = "";
    r.types[G_MARK + 1 - G_AB] = TOKEN_CONTROL;
    t = open_recipe(&r);
    check(t, TEXT("abc<tool>"), OMM_TOKENIZE_SPECIAL, IDS(G_ABC, G_TOOL));
    omm_tokenizer_close(t);
    r = s_llama;
    r.texts[12] = "ba";
    r.scores[L_AB - L_SPACE] = -0.0f;
    t = open_recipe(&r);
    check(t, TEXT("aba"), OMM_TOKENIZE_CONTINUE, IDS(L_AB, L_A));
    omm_tokenizer_close(t);
}

/* The first and the last character of each kind of first byte: nothing until its last byte, whatever the second may be. */
static void test_stream_ranges(void) {
    static const char *const all[] = {"\xc2\x80",         "\xdf\xbf",         "\xe0\xa0\x80",
                                      "\xe0\xbf\xbf",     "\xe1\x80\x80",     "\xed\x80\x80",
                                      "\xed\x9f\xbf",     "\xee\x80\x80",     "\xef\xbf\xbf",
                                      "\xf0\x90\x80\x80", "\xf0\xbf\xbf\xbf", "\xf1\x80\x80\x80",
                                      "\xf4\x80\x80\x80", "\xf4\x8f\xbf\xbf"};
    omm_tokenizer *t = open_recipe(&s_gpt2);
    omm_buf out;
    omm_buf_init(&out, FILE_MAX);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const size_t size = strlen(all[i]);
        omm_detok d = {0};
        omm_buf_clear(&out);
        for (size_t k = 0; k < size; k++)
            push(&out, &d, t, (uint8_t)all[i][k], k + 1 < size ? 0 : size);
        CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str(all[i])));
    }
    omm_buf_fini(&out);
    omm_tokenizer_close(t);
}

/* What is held back breaks where the next id does not go on with it. */
static void test_breaks(void) {
    static const struct {
        uint32_t held[3], id;
        size_t breaks;
    } cases[] = {
        {{0xf0, 0x9f, 0x98}, 0x80, 0},
        {{0xf0, 0x9f, 0x98}, 'x', 3},
        {{0xf0, 0x9f}, 0x98, 0},
        {{0xf0, 0x9f}, 0xf0, 2},
        {{0xed}, 0xa0, 1},
        {{0xe2}, G_END, 0},
        {{'x'}, 'x', 0},
    };
    omm_tokenizer *t = open_recipe(&s_gpt2);
    omm_buf out;
    omm_buf_init(&out, FILE_MAX);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_detok d = {0};
        for (size_t k = 0; k < 3 && cases[i].held[k]; k++)
            CHECK_OK(omm_detok_push(&out, &d, t, cases[i].held[k], 0));
        CHECK_EQ(omm_detok_breaks(&d, t, cases[i].id), cases[i].breaks);
    }
    omm_buf_fini(&out);
    omm_tokenizer_close(t);
}

/* Where text has no room a stream stays as it was, and nothing is lost in silence. */
static void test_no_room(void) {
    static const uint32_t ids[] = {L_AB, L_BYTE + 0xff, L_AB};
    omm_tokenizer *t = open_recipe(&s_llama);
    omm_detok d = {0};
    omm_buf out;
    omm_buf_init(&out, 3);
    CHECK_OK(omm_buf_append(&out, "c", 1));
    CHECK_ERR(omm_tokenizer_decode(&out, t, ids, 2, OMM_DETOKENIZE_CONTINUE), OMM_ERR_TOO_BIG);
    CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str("c")));
    omm_buf_clear(&out);
    CHECK_OK(omm_detok_push(&out, &d, t, L_AB, 0));
    CHECK_ERR(omm_detok_push(&out, &d, t, L_BYTE + 0xff, 0), OMM_ERR_TOO_BIG); /* U+FFFD */
    CHECK(out.size == 2 && d.pending_count == 0);
    CHECK_OK(omm_detok_push(&out, &d, t, L_BYTE + 0xc3, 0)); /* may go on */
    CHECK_ERR(omm_detok_flush(&out, &d), OMM_ERR_TOO_BIG);
    CHECK(out.size == 2 && d.pending_count == 1);
    omm_buf_fini(&out);
    omm_tokenizer_close(t);
}

static bool is_well_formed(const uint8_t *text, size_t size) {
    for (size_t at = 0; at < size;) {
        unsigned n = omm_utf8_size(text + at, size - at);
        if (n == 0) return false;
        at += n;
    }
    return true;
}

static void check_back(const omm_tokenizer *t, const uint8_t *text, size_t size) {
    omm_tokens ids;
    omm_buf back;
    omm_tokens_init(&ids, TOKENS_MAX);
    omm_buf_init(&back, FILE_MAX);
    CHECK_OK(omm_tokenizer_encode(&ids, t, omm_bytes_of(text, size), 0));
    CHECK_OK(omm_tokenizer_decode(&back, t, ids.ids, ids.count, OMM_DETOKENIZE_SPECIAL));
    bool same = omm_bytes_equal(omm_buf_view(&back), omm_bytes_of(text, size));
    CHECK(same || !is_well_formed(text, size));
    omm_tokens_fini(&ids);
    omm_buf_fini(&back);
}

/* Well-formed text decodes to itself; anything else stays in bounds. */
static void test_random_bytes(void) {
    omm_tokenizer *llama = open_recipe(&s_llama);
    omm_tokenizer *gpt2 = open_recipe(&s_gpt2);
    omm_tokenizer *gemma = open_recipe(&s_gemma);
    omm_seed seed = omm_seed_from_u64(11);
    omm_rng rng = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0);
    static const char alphabet[] = "ab </s>\n1\xc3\xa4<tool>\xff";
    for (uint64_t round = 0; round < 2000; round++) {
        uint8_t text[40];
        size_t size = (size_t)omm_rng_below(&rng, round * 64, sizeof text);
        for (size_t i = 0; i < size; i++)
            text[i] =
                (uint8_t)alphabet[omm_rng_below(&rng, round * 64 + 1 + i, sizeof alphabet - 1)];
        check_back(llama, text, size);
        check_back(gpt2, text, size);
        check_back(gemma, text, size);
    }
    omm_tokenizer_close(llama);
    omm_tokenizer_close(gpt2);
    omm_tokenizer_close(gemma);
}

static double encode_seconds(const omm_tokenizer *t, const char *unit, size_t bytes) {
    size_t size = strlen(unit);
    char *text = omm_alloc(bytes + size, 1);
    for (size_t at = 0; at < bytes; at++) text[at] = unit[at % size];
    omm_tokens ids;
    omm_tokens_init(&ids, TOKENS_MAX);
    clock_t begin = clock();
    CHECK_OK(omm_tokenizer_encode(&ids, t, omm_bytes_of(text, bytes), OMM_TOKENIZE_SPECIAL));
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    omm_tokens_fini(&ids);
    omm_free(text);
    return seconds;
}

/* One word, one run of spaces, one wall of special tokens: eight times the text takes far less
 * than the 64 times of a quadratic loop (about 9 were measured; 24 leaves room for a busy machine). */
static void test_long_texts(void) {
    static const char *const units[] = {"a",          "ab", " ",    "\n", "<tool>",
                                        "<|im_end|>", "1",  "\xff", "'s"};
    enum { MODELS = 4 };
    recipe lower = s_gemma;
    lower.model = "whitespace";
    lower.key = "tokenizer.ggml.normalizer.lowercase";
    omm_tokenizer *all[MODELS] = {open_recipe(&s_gpt2), open_recipe(&s_llama),
                                  open_recipe(&s_gemma), open_recipe(&lower)};
    for (int m = 0; m < MODELS; m++)
        for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
            bool is_linear = false;
            for (int turn = 0; turn < 3 && !is_linear; turn++) { /* a neighbour may disturb one */
                double small = encode_seconds(all[m], units[i], 1u << 14);
                double large = encode_seconds(all[m], units[i], 1u << 17);
                is_linear = large <= 24 * small + 0.05;
                if (!is_linear) fprintf(stderr, "'%s': %f, %f s\n", units[i], small, large);
            }
            CHECK(is_linear);
        }
    /* one word of a megabyte: a second or two with sanitizers, hours if merging were quadratic */
    for (int m = 0; m < MODELS; m++) CHECK(encode_seconds(all[m], "ab", 1u << 20) < 60);
    for (int m = 0; m < MODELS; m++) omm_tokenizer_close(all[m]);
}

static void test_refuse(const recipe *r, omm_err want) {
    omm_buf file;
    omm_tokenizer *t = NULL;
    omm_buf_init(&file, FILE_MAX);
    write_vocab(&file, r);
    CHECK_ERR(open_file(&t, omm_buf_view(&file)), want);
    CHECK(t == NULL);
    omm_buf_fini(&file);
}

/* Phi-3's marks take the white space behind them, but for three; other models' do not. */
static void test_swallowed_space(void) {
    recipe r = s_gpt2;
    r.texts[G_MARK + 1 - G_AB] = "<|endoftext|>";
    for (int swallows = 0; swallows < 2; swallows++) {
        r.name = swallows ? "Phi-3 mini" : "Phi 3";
        omm_tokenizer *t = open_recipe(&r);
        if (swallows)
            check(t, TEXT("a<tool> \n b"), 0, IDS('a', G_TOOL, 'b'));
        else
            check(t, TEXT("a<tool>\nb"), 0, IDS('a', G_TOOL, '\n', 'b'));
        check(t, TEXT("a<|endoftext|> b"), OMM_TOKENIZE_SPECIAL, IDS('a', G_MARK + 1, ' ', 'b'));
        omm_tokenizer_close(t);
    }
}

/* What the pre-tokenizer says of <s> counts where the file says nothing. */
static void test_silent_bos(void) {
    recipe r = s_gpt2;
    for (int adds = 0; adds < 2; adds++) {
        if (adds) r.pre = "llama-bpe";
        omm_tokenizer *t = open_recipe(&r);
        CHECK_EQ(omm_tokenizer_adds_bos(t), adds);
        check(t, TEXT("a"), OMM_TOKENIZE_BOS, IDS('a')); /* there is none that could be added */
        omm_tokenizer_close(t);
    }
}

static void test_refusals(void) {
    recipe r = s_gpt2;
    r.pre = "nobody-knows";
    test_refuse(&r, OMM_ERR_UNSUPPORTED);
    CHECK(strstr(omm_err_sentence(), "nobody-knows") != NULL);
    CHECK(strstr(omm_err_sentence(), "qwen2") != NULL);
    r.pre = "gpt-2 phi-2"; /* not a name, though the table has it as a stretch of text */
    test_refuse(&r, OMM_ERR_UNSUPPORTED);
    r = s_gpt2;
    r.model = "bert";
    test_refuse(&r, OMM_ERR_UNSUPPORTED);
    r = s_gpt2;
    r.merges[0] = "ab";
    test_refuse(&r, OMM_ERR_FORMAT);
    r.merges[0] = "ab ";
    test_refuse(&r, OMM_ERR_FORMAT);
    r.merges[0] = NULL;
    test_refuse(&r, OMM_ERR_NOT_FOUND);
    r = s_gpt2;
    r.types[0] = 7;
    test_refuse(&r, OMM_ERR_FORMAT);
    r = s_gpt2;
    r.types_missing = 1;
    test_refuse(&r, OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "263 elements for 264 tokens") != NULL);
    r = s_llama;
    r.scores[0] = NAN;
    test_refuse(&r, OMM_ERR_FORMAT);
    r = s_gemma;
    r.is_silent = true; /* no <s>, with which its texts begin */
    test_refuse(&r, OMM_ERR_NOT_FOUND);
    CHECK(strstr(omm_err_sentence(), "bos_token_id is missing: 'gemma4' begins every text") !=
          NULL);
    r.model = "gpt2";
    r.pre = "sarvam-moe";
    r.no_bytes = true;
    test_refuse(&r, OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "neither byte tokens nor an unknown token") != NULL);
    r = s_gemma;
    r.merges[0] = "ab";
    test_refuse(&r, OMM_ERR_FORMAT);
    memset(r.merges, 0, sizeof r.merges);
    test_refuse(&r, OMM_ERR_NOT_FOUND);
    CHECK(strstr(omm_err_sentence(), "tokenizer.ggml.merges") != NULL);
}

/* A merge whose result is no token: the reference writes the letters that are tokens. */
static void test_merge_without_token(void) {
    recipe r = s_gpt2;
    r.merges[7] = "x y";
    r.merges[8] = "xy z";
    omm_tokenizer *t = open_recipe(&r);
    check(t, TEXT("xyz"), 0, IDS('x', 'y', 'z'));
    omm_tokenizer_close(t);
}

static void test_allocations(const recipe *r, const char *text) {
    omm_buf file;
    omm_buf_init(&file, FILE_MAX);
    write_vocab(&file, r);
    omm_gguf g;
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    size_t live = omm_mem_live();
    omm_err err = OMM_ERR_NOMEM;
    omm_tokenizer *t = NULL;
    for (size_t nth = 1; err != OMM_OK; nth++) {
        CHECK_EQ(omm_mem_live(), live);
        omm_mem_fail_nth(nth);
        err = omm_tokenizer_open(&t, &g);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
    }
    live = omm_mem_live();
    err = OMM_ERR_NOMEM;
    for (size_t nth = 1; err != OMM_OK; nth++) {
        omm_tokens ids;
        omm_tokens_init(&ids, TOKENS_MAX);
        omm_mem_fail_nth(nth);
        err = omm_tokenizer_encode(&ids, t, omm_bytes_str(text), OMM_TOKENIZE_SPECIAL);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || (err == OMM_ERR_NOMEM && ids.count == 0));
        omm_tokens_fini(&ids);
        CHECK_EQ(omm_mem_live(), live);
    }
    omm_tokenizer_close(t);
    omm_gguf_close(&g);
    omm_buf_fini(&file);
}

/* A vocabulary with any bit flipped opens or is refused, and then encodes within its bounds. */
static void test_bit_flips(const recipe *r) {
    omm_buf file;
    omm_buf_init(&file, FILE_MAX);
    write_vocab(&file, r);
    static const char text[] = "ab abc</s> <tool><|im_end|>\xff \xe2\x96\x81";
    for (size_t bit = 0; bit < file.size * 8; bit += 3) {
        omm_tokenizer *t = NULL;
        file.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (open_file(&t, omm_buf_view(&file)) == OMM_OK) {
            omm_tokens ids;
            omm_buf back;
            omm_tokens_init(&ids, 1000);
            omm_buf_init(&back, FILE_MAX);
            if (omm_tokenizer_encode(&ids, t, omm_bytes_str(text), OMM_TOKENIZE_SPECIAL) == OMM_OK)
                CHECK_OK(omm_tokenizer_decode(&back, t, ids.ids, ids.count, 0));
            omm_tokens_fini(&ids);
            omm_buf_fini(&back);
            omm_tokenizer_close(t);
        }
        file.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    omm_buf_fini(&file);
}

static omm_digest digest_of(const recipe *r) {
    omm_tokenizer *t = open_recipe(r);
    const omm_digest digest = omm_tokenizer_digest(t);
    omm_tokenizer_close(t);
    return digest;
}

/* Of the same vocabulary the same, in every version: runs and their bundles name it.  Of any other another. */
static void test_digest(void) {
    enum { FIRST_LLAMA = 6, FIRST_GEMMA = 9, COUNT = 13 };
    static const char *const known[] = {
        "a835e1f7596fe1acd56bd3d42ded45aa2d1a79018bf49ffbf8b8adc441aeb540",
        "6b4ac8d8c327adc1c2993bb869e8f63deae79b5ddfcb0b449a20c13a013fc332",
        "3c668ab63bae1192f755537fc86123235c460b61a8c7eb4a4a415915e2ad14f5"};
    recipe r[COUNT];
    omm_digest digests[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        r[i] = i < FIRST_LLAMA ? s_gpt2 : i < FIRST_GEMMA ? s_llama : s_gemma;
    r[1].merges[0] = "a c";
    r[2].types[6] = TOKEN_CONTROL;
    r[3].key = "tokenizer.ggml.add_bos_token"; /* the same ids, and one more in front of them */
    r[4].pre = "qwen2";                        /* other words */
    r[5].texts[G_TOOL - G_AB] = "<tools>";
    r[FIRST_LLAMA + 1].scores[2] = -2.5f;
    r[FIRST_LLAMA + 2].texts[8] = "</t";
    r[FIRST_GEMMA + 1].model = "whitespace";
    r[FIRST_GEMMA + 2].model = "gpt2";
    r[FIRST_GEMMA + 2].pre = "whitespace";
    r[FIRST_GEMMA + 3].model = "whitespace";
    r[FIRST_GEMMA + 3].key = "tokenizer.ggml.normalizer.lowercase";
    for (size_t i = 0; i < COUNT; i++) {
        const omm_digest again = digest_of(&r[i]);
        digests[i] = digest_of(&r[i]);
        CHECK(omm_digest_equal(&digests[i], &again));
        for (size_t k = 0; k < i; k++) CHECK(!omm_digest_equal(&digests[k], &digests[i]));
    }
    for (size_t i = 0; i < 3; i++) {
        static const size_t firsts[] = {0, FIRST_LLAMA, FIRST_GEMMA};
        char hex[OMM_DIGEST_HEX_SIZE];
        omm_digest_hex(hex, &digests[firsts[i]]);
        if (strcmp(hex, known[i]) != 0) fprintf(stderr, "digest %s\n", hex);
        CHECK(strcmp(hex, known[i]) == 0);
    }
}

/* A pair that is named twice keeps its first rank. */
static void test_merge_named_twice(void) {
    recipe r = s_gpt2;
    const char *const merges[] = {"a b", "b c", "a b"};
    memset(r.merges, 0, sizeof r.merges);
    memcpy(r.merges, merges, sizeof merges);
    omm_tokenizer *t = open_recipe(&r);
    check(t, TEXT("abc"), 0, IDS(G_AB, 'c'));
    omm_tokenizer_close(t);
}

int main(void) {
    test_ends();
    test_gpt2();
    test_malformed_gpt2();
    test_llama();
    test_llama_bytes();
    test_llama_without_bytes();
    test_characters();
    test_white_space();
    test_character_families();
    test_characters_without_bytes();
    test_character_stream();
    test_random_merges(GPT2);
    test_random_merges(LLAMA);
    test_random_merges(CHARACTERS);
    test_stream();
    test_stream_ranges();
    test_precedence();
    test_breaks();
    test_no_room();
    test_random_bytes();
    test_long_texts();
    test_swallowed_space();
    test_silent_bos();
    test_refusals();
    test_merge_without_token();
    test_merge_named_twice();
    test_allocations(&s_gpt2, "abc a<tool> <|im_end|>\xff");
    test_allocations(&s_llama, "ab</s> ab");
    test_allocations(&s_gemma, "ab</s> ab\n\xff");
    recipe lower = s_gemma;
    lower.model = "whitespace";
    lower.key = "tokenizer.ggml.normalizer.lowercase";
    test_allocations(&lower, "Ab</s> AB\n\xff");
    test_bit_flips(&s_gpt2);
    test_bit_flips(&s_llama);
    test_bit_flips(&s_gemma);
    test_digest();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

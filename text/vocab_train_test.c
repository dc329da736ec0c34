/* Training a vocabulary: the merges of a plain twin, ties, digits, special tokens, equal files from equal
 * texts, a tokenizer that reads as the trainer counted, and refusals. */
#include "omm/vocab_train.h"

#include "omm/mem.h"
#include "omm/rng.h"
#include "omm/tokenizer.h"
#include "omm_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const s_control[] = {"<|endoftext|>", "<|im_end|>"};
static const char *const s_user[] = {"<tool_call>"};

static omm_vocab_options options_of(uint32_t size) {
    return (omm_vocab_options){.size = size,
                               .words = "gpt-2",
                               .digits_apart = true,
                               .control = s_control,
                               .control_count = 2,
                               .user = s_user,
                               .user_count = 1,
                               .bos = "<|endoftext|>",
                               .eos = "<|im_end|>"};
}

static omm_err make(omm_buf *file, omm_vocab_report *report, const omm_vocab_options *options,
                    omm_bytes text) {
    omm_vocab_trainer *trainer = NULL;
    omm_gguf_writer w;
    OMM_TRY(omm_vocab_trainer_open(&trainer, options));
    omm_gguf_writer_init(&w);
    omm_err err = omm_vocab_add(trainer, text);
    if (err == OMM_OK) err = omm_vocab_make(trainer);
    if (err == OMM_OK) err = omm_vocab_put(&w, trainer);
    if (err == OMM_OK) err = omm_gguf_writer_finish(file, &w);
    if (report) *report = omm_vocab_reported(trainer);
    omm_gguf_writer_fini(&w);
    omm_vocab_trainer_close(trainer);
    return err;
}

/* Words that a few letters make, with numbers, special tokens and two-byte characters between. */
static omm_buf random_text(uint64_t seed_value, size_t words) {
    static const char *const parts[] = {"a",  "b",  "ab",  "ba", "abc", "\xc3\xa9", "7",
                                        "42", "aa", "the", "x",  "'s",  "cab",      "!"};
    const omm_seed seed = omm_seed_from_u64(seed_value);
    const omm_rng lane = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0);
    omm_buf text;
    uint64_t next = 0;
    omm_buf_init(&text, 1 << 20);
    for (size_t i = 0; i < words; i++) {
        for (uint64_t n = 1 + omm_rng_below(&lane, next++, 4); n > 0; n--) {
            const char *part = parts[omm_rng_below(&lane, next++, sizeof parts / sizeof *parts)];
            CHECK_OK(omm_buf_append(&text, part, strlen(part)));
        }
        const uint64_t end = omm_rng_below(&lane, next++, 40);
        const char *mark = end == 0 ? s_control[0] : end == 1 ? s_user[0] : end < 6 ? "\n" : " ";
        CHECK_OK(omm_buf_append(&text, mark, strlen(mark)));
    }
    return text;
}

/* --- the twin -------------------------------------------------------------------------------- */

enum { TWIN_TEXT = 1 << 13, TWIN_IDS = 400, BREAK = 0xffff };

/* The whole text as symbols, BREAK between words, counted anew for each merge.  Words as the text above
 * has them: a space belongs to what follows, letters, digits and the rest are apart. */
typedef struct twin {
    uint16_t symbols[TWIN_TEXT];
    size_t count;
    char names[TWIN_IDS][64]; /* in the letters of the file */
} twin;

static int class_of(uint8_t c) {
    if (c == ' ' || c == '\n') return 0;
    if (c >= '0' && c <= '9') return 1;
    return (c >= 'a' && c <= 'z') || c >= 0x80 ? 2 : 3;
}

/* Bytes of the word at p. */
static size_t word_size(const uint8_t *p, size_t left) {
    if (left >= 2 && p[0] == '\'' && p[1] == 's') return 2;
    size_t i = p[0] == ' ' && left > 1 && class_of(p[1]) != 0;
    if (class_of(p[i]) != 0) {
        const int kind = class_of(p[i]);
        while (i < left && class_of(p[i]) == kind) i++;
        return i;
    }
    while (i < left && class_of(p[i]) == 0) i++;
    return i < left && i > 1 ? i - 1 : i;
}

static size_t special_size(const uint8_t *p, size_t left) {
    const char *const all[] = {s_control[0], s_control[1], s_user[0]};
    for (size_t i = 0; i < 3; i++)
        if (strlen(all[i]) <= left && memcmp(p, all[i], strlen(all[i])) == 0) return strlen(all[i]);
    return 0;
}

static void twin_read(twin *t, omm_bytes text) {
    t->count = 0;
    for (size_t i = 0; i < text.size;) {
        const size_t special = special_size(text.data + i, text.size - i);
        size_t end = i + 1;
        while (!special && end < text.size && !special_size(text.data + end, text.size - end))
            end++;
        for (size_t size = 0; !special && i < end; i += size) {
            size = word_size(text.data + i, end - i);
            CHECK(t->count + size + 1 < TWIN_TEXT);
            for (size_t k = 0; k < size; k++) t->symbols[t->count++] = text.data[i + k];
            t->symbols[t->count++] = BREAK;
        }
        i += special;
    }
}

static bool is_digit(unsigned symbol) {
    return symbol >= '0' && symbol <= '9';
}

static bool twin_has(const twin *t, unsigned ids, const char *name) {
    for (unsigned i = 0; i < ids; i++)
        if (strcmp(t->names[i], name) == 0) return true;
    return false;
}

static bool twin_may(const twin *t, unsigned ids, unsigned left, unsigned right) {
    char name[128];
    if (left == BREAK || right == BREAK || is_digit(left) || is_digit(right)) return false;
    snprintf(name, sizeof name, "%s%s", t->names[left], t->names[right]);
    return !twin_has(t, ids, name);
}

/* The next merge becomes id `ids`. */
static void twin_merge(twin *t, unsigned ids, unsigned *best_left, unsigned *best_right) {
    static uint32_t counts[TWIN_IDS][TWIN_IDS];
    uint32_t best = 0;
    memset(counts, 0, sizeof counts);
    for (size_t i = 0; i + 1 < t->count; i++)
        if (t->symbols[i] != BREAK && t->symbols[i + 1] != BREAK)
            counts[t->symbols[i]][t->symbols[i + 1]]++;
    for (unsigned a = 0; a < ids; a++)
        for (unsigned b = 0; b < ids; b++)
            if (counts[a][b] > best && twin_may(t, ids, a, b)) {
                best = counts[a][b];
                *best_left = a;
                *best_right = b;
            }
    CHECK(best > 0 && ids < TWIN_IDS);
    char name[sizeof t->names[0]];
    snprintf(name, sizeof name, "%.31s%.31s", t->names[*best_left], t->names[*best_right]);
    memcpy(t->names[ids], name, sizeof name);
    size_t kept = 0;
    for (size_t i = 0; i < t->count; i++) {
        const bool pair =
            i + 1 < t->count && t->symbols[i] == *best_left && t->symbols[i + 1] == *best_right;
        t->symbols[kept++] = pair ? (uint16_t)ids : t->symbols[i];
        i += pair;
    }
    t->count = kept;
}

static void strings_of(omm_bytes *out, size_t count, const omm_gguf *gguf, const char *key) {
    const omm_gguf_kv *kv = NULL;
    CHECK_OK(omm_gguf_get_array(&kv, gguf, key, OMM_GGUF_STRING));
    CHECK_EQ(kv->count, count);
    omm_gguf_strings(out, kv);
}

static void as_the_twin(omm_bytes text, uint32_t size) {
    static twin t;
    static omm_bytes tokens[TWIN_IDS], merges[TWIN_IDS];
    omm_buf file;
    omm_gguf gguf;
    omm_vocab_report report;
    const omm_vocab_options options = options_of(size);
    omm_buf_init(&file, 1 << 22);
    CHECK_OK(make(&file, &report, &options, text));
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
    strings_of(tokens, size, &gguf, "tokenizer.ggml.tokens");
    strings_of(merges, size - 256 - 3, &gguf, "tokenizer.ggml.merges");
    twin_read(&t, text);
    for (unsigned i = 0; i < 256; i++)
        snprintf(t.names[i], sizeof t.names[i], "%.*s", (int)tokens[i].size,
                 (const char *)tokens[i].data);
    for (unsigned id = 256; id < size - 3; id++) {
        unsigned left = 0, right = 0;
        char line[160];
        twin_merge(&t, id, &left, &right);
        snprintf(line, sizeof line, "%s %s", t.names[left], t.names[right]);
        CHECK(omm_bytes_equal(merges[id - 256], omm_bytes_str(line)));
        CHECK(omm_bytes_equal(tokens[id], omm_bytes_str(t.names[id])));
    }
    uint64_t left = 0;
    for (size_t i = 0; i < t.count; i++) left += t.symbols[i] != BREAK;
    CHECK_EQ(report.tokens, left);
    omm_gguf_close(&gguf);
    omm_buf_fini(&file);
}

static void twins(void) {
    static const uint32_t sizes[] = {300, 290, 330};
    for (uint64_t i = 0; i < 3; i++) {
        omm_buf text = random_text(i + 1, 400);
        as_the_twin(omm_buf_view(&text), sizes[i]);
        omm_buf_fini(&text);
    }
}

/* Runs of one letter are made of shorter ones in several ways: a text that is a token is no other one. */
static void one_text_once(void) {
    omm_buf text;
    omm_buf_init(&text, TWIN_TEXT);
    for (unsigned i = 0; i < 240; i++) {
        CHECK_OK(omm_buf_append(&text, " ", 1));
        for (unsigned k = 0; k < 1 + i * 7 % 30; k++) CHECK_OK(omm_buf_append(&text, "a", 1));
    }
    as_the_twin(omm_buf_view(&text), 285);
    omm_buf_fini(&text);
}

/* --- counts ---------------------------------------------------------------------------------- */

static omm_bytes token_at(const omm_gguf *gguf, uint32_t id) {
    static omm_bytes tokens[512];
    const omm_gguf_kv *kv = NULL;
    CHECK_OK(omm_gguf_get_array(&kv, gguf, "tokenizer.ggml.tokens", OMM_GGUF_STRING));
    CHECK(kv->count <= 512 && id < kv->count);
    omm_gguf_strings(tokens, kv);
    return tokens[id];
}

/* Bytes and words of the text between special tokens, of which the longest is the one that is there; and as many different
 * words as there are. */
static void counts(void) {
    static const char *const control[] = {"<|x|>", "<|x|>y"};
    omm_vocab_options o = options_of(261);
    omm_vocab_report report;
    omm_buf file, text;
    omm_gguf gguf;
    o.control = control;
    o.bos = o.eos = NULL;
    omm_buf_init(&file, 1 << 20);
    omm_buf_init(&text, 1 << 20);
    CHECK_OK(make(&file, &report, &o, omm_bytes_str("<|x|>yab<tool_call>ab ab<|x|>ab")));
    CHECK_EQ(report.bytes, 2 + 5 + 2);
    CHECK_EQ(report.words, 4);
    CHECK_EQ(report.distinct, 2); /* "ab" and " ab" */
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
    CHECK(omm_bytes_equal(token_at(&gguf, 256), omm_bytes_str("ab")));
    omm_gguf_close(&gguf);
    for (unsigned i = 0; i < 6000; i++) CHECK_OK(omm_buf_printf(&text, " %u", i % 3000 + 1000));
    omm_buf_clear(&file);
    o.digits_apart = false;
    CHECK_OK(make(&file, &report, &o, omm_buf_view(&text)));
    CHECK_EQ(report.words, 6000);
    CHECK_EQ(report.distinct, 3000);
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
    CHECK(omm_bytes_equal(token_at(&gguf, 256), omm_bytes_str("\xc4\xa0"
                                                              "1"))); /* digits, too */
    omm_gguf_close(&gguf);
    omm_buf_fini(&file);
    omm_buf_fini(&text);
}

/* What the file says beside its texts. */
static void keys(void) {
    static const char *const control[] = {"<|x|>"};
    omm_buf text = random_text(5, 60), file;
    omm_vocab_options o = options_of(270);
    omm_gguf gguf;
    const omm_gguf_kv *types = NULL;
    omm_bytes pre;
    bool adds = true;
    o.control = control;
    o.control_count = 1;
    o.bos = o.eos = NULL;
    o.words = "llama-bpe"; /* which adds a BOS where the file says nothing */
    omm_buf_init(&file, 1 << 20);
    CHECK_OK(make(&file, NULL, &o, omm_buf_view(&text)));
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
    CHECK_OK(omm_gguf_get_str(&pre, &gguf, "tokenizer.ggml.pre"));
    CHECK(omm_bytes_equal(pre, omm_bytes_str("llama-bpe")));
    CHECK_OK(omm_gguf_get_bool(&adds, &gguf, "tokenizer.ggml.add_bos_token"));
    CHECK(!adds);
    CHECK_OK(omm_gguf_get_array(&types, &gguf, "tokenizer.ggml.token_type", OMM_GGUF_I32));
    CHECK_EQ(types->count, 270);
    for (uint32_t i = 0; i < 270;
         i++) /* as the format numbers them: normal, control, user-defined */
        CHECK_EQ(omm_get_u32(types->data.data + 4 * (size_t)i), i < 268 ? 1 : i == 268 ? 3 : 4);
    omm_gguf_close(&gguf);
    omm_buf_fini(&file);
    omm_buf_fini(&text);
}

/* --- what it is for -------------------------------------------------------------------------- */

/* The tokenizer of the file makes as many ids as the trainer counted, and gives the text back. */
static void read_back(void) {
    omm_buf text = random_text(11, 900), file, again, back;
    omm_vocab_report report;
    omm_gguf gguf;
    omm_tokenizer *tokenizer = NULL;
    omm_tokens ids;
    const omm_vocab_options options = options_of(330);
    omm_buf_init(&file, 1 << 22);
    omm_buf_init(&again, 1 << 22);
    omm_buf_init(&back, 1 << 22);
    omm_tokens_init(&ids, 1 << 20);
    CHECK_OK(make(&file, &report, &options, omm_buf_view(&text)));
    CHECK_OK(make(&again, NULL, &options, omm_buf_view(&text)));
    CHECK(omm_bytes_equal(omm_buf_view(&file), omm_buf_view(&again)));
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
    CHECK_OK(omm_tokenizer_open(&tokenizer, &gguf));
    CHECK_OK(omm_tokenizer_encode(&ids, tokenizer, omm_buf_view(&text), OMM_TOKENIZE_SPECIAL));
    CHECK_EQ(omm_tokenizer_special(tokenizer, "<|endoftext|>"), 327);
    CHECK_EQ(omm_tokenizer_special(tokenizer, "<tool_call>"), 329);
    CHECK_EQ(omm_tokenizer_bos(tokenizer), 327);
    CHECK_EQ(omm_tokenizer_eos(tokenizer), 328);
    CHECK(omm_tokenizer_is_control(tokenizer, 328) && !omm_tokenizer_is_control(tokenizer, 329));
    uint64_t plain = 0;
    for (size_t i = 0; i < ids.count; i++) plain += ids.ids[i] < 327;
    CHECK_EQ(plain, report.tokens);
    CHECK_OK(omm_tokenizer_decode(&back, tokenizer, ids.ids, ids.count, OMM_DETOKENIZE_SPECIAL));
    CHECK(omm_bytes_equal(omm_buf_view(&back), omm_buf_view(&text)));
    omm_tokens_fini(&ids);
    omm_tokenizer_close(tokenizer);
    omm_gguf_close(&gguf);
    omm_buf_fini(&file);
    omm_buf_fini(&again);
    omm_buf_fini(&back);
    omm_buf_fini(&text);
}

static void too_many_specials(void) {
    static char names[OMM_VOCAB_SPECIALS_MAX + 1][8];
    static const char *list[OMM_VOCAB_SPECIALS_MAX + 1];
    omm_vocab_trainer *trainer = NULL;
    omm_vocab_options o = {.size = 1000, .words = "gpt-2", .user = list};
    for (unsigned i = 0; i <= OMM_VOCAB_SPECIALS_MAX; i++) {
        snprintf(names[i], sizeof names[i], "<%u>", i);
        list[i] = names[i];
    }
    o.user_count = OMM_VOCAB_SPECIALS_MAX;
    CHECK_OK(omm_vocab_trainer_open(&trainer, &o));
    omm_vocab_trainer_close(trainer);
    o.user_count++;
    CHECK_EQ(omm_vocab_trainer_open(&trainer, &o), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "257 special tokens; accepted: 0 to 256"));
}

static void special_sizes(void) {
    for (size_t size = 1; size <= OMM_VOCAB_SPECIAL_BYTES_MAX + 1; size++) {
        char special[OMM_VOCAB_SPECIAL_BYTES_MAX + 2] = "";
        const char *const list[] = {special};
        const bool fits = size > 1 && size <= OMM_VOCAB_SPECIAL_BYTES_MAX;
        omm_vocab_trainer *trainer = NULL;
        const omm_vocab_options o = {
            .size = 300, .words = "gpt-2", .control = list, .control_count = 1};
        memset(special, 'a', size);
        CHECK_EQ(omm_vocab_trainer_open(&trainer, &o), fits ? OMM_OK : OMM_ERR_CONFIG);
        if (!fits) CHECK(strstr(omm_err_sentence(), "accepted: 2 to 256 bytes"));
        omm_vocab_trainer_close(trainer);
    }
}

static void refusals(void) {
    omm_buf file;
    omm_vocab_trainer *trainer = NULL;
    static const char *const twice[] = {"<a>", "<a>"};
    omm_buf_init(&file, 1 << 22);
    omm_vocab_options o = options_of(1000);
    CHECK_EQ(make(&file, NULL, &o, omm_bytes_str("too little text")), OMM_ERR_NOT_FOUND);
    CHECK(strstr(omm_err_sentence(), "741"));
    static const char accepted[] = "a size of at most ";
    const char *most = strstr(omm_err_sentence(), accepted);
    CHECK(most != NULL);
    const uint32_t size = most ? (uint32_t)strtoul(most + sizeof accepted - 1, NULL, 10) : 0;
    o = options_of(size + 1);
    CHECK_EQ(make(&file, NULL, &o, omm_bytes_str("too little text")), OMM_ERR_NOT_FOUND);
    o = options_of(size);
    CHECK_OK(make(&file, NULL, &o, omm_bytes_str("too little text")));
    omm_buf_clear(&file);
    o = options_of(270);
    CHECK_EQ(make(&file, NULL, &o, omm_bytes_str("ab \xff cd")), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "byte 3, 0xff"));
    CHECK_EQ(make(&file, NULL, &o, omm_bytes_str("cut \xc3")), OMM_ERR_FORMAT);
    CHECK_EQ(file.size, 0);
    o.size = 259;
    CHECK_EQ(omm_vocab_trainer_open(&trainer, &o), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "accepted: 260 to"));
    o.size = OMM_VOCAB_SIZE_MAX + 1;
    CHECK_EQ(omm_vocab_trainer_open(&trainer, &o), OMM_ERR_CONFIG);
    o = options_of(300);
    o.words = "no-such";
    CHECK_EQ(omm_vocab_trainer_open(&trainer, &o), OMM_ERR_UNSUPPORTED);
    o.words = "sarvam-moe";
    CHECK_EQ(omm_vocab_trainer_open(&trainer, &o), OMM_ERR_UNSUPPORTED);
    CHECK(strstr(omm_err_sentence(), "'sarvam-moe' merges characters"));
    o = options_of(300);
    o.eos = "</s>";
    CHECK_EQ(omm_vocab_trainer_open(&trainer, &o), OMM_ERR_CONFIG);
    o = options_of(300);
    o.padding = "</s>";
    CHECK_EQ(omm_vocab_trainer_open(&trainer, &o), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "vocabulary.padding: '</s>' is no special token"));
    o = options_of(300);
    o.control = twice;
    CHECK_EQ(omm_vocab_trainer_open(&trainer, &o), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "is named twice"));
    special_sizes();
    too_many_specials();
    /* pairs that merges have used up are none: ab, abc and " abc" is all that there is */
    o = options_of(263);
    CHECK_EQ(make(&file, NULL, &o, omm_bytes_str("abc abc")), OMM_ERR_NOT_FOUND);
    CHECK(strstr(omm_err_sentence(), "gives 3 merges"));
    CHECK(strstr(omm_err_sentence(), "a size of at most 262"));
    omm_buf_fini(&file);
}

/* The file names the special tokens that it is asked to name, and no other. */
static void named_ids(void) {
    static const char *const keys[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.padding_token_id"};
    omm_buf text = random_text(5, 60), file;
    omm_vocab_options o = options_of(270);
    omm_buf_init(&file, 1 << 20);
    for (int named = 0; named < 2; named++) {
        omm_gguf g;
        const omm_gguf_kv *tokens = NULL;
        omm_bytes texts[270];
        const char *const want[] = {o.bos, named ? o.eos : NULL, named ? "<|im_end|>" : NULL};
        o.eos = want[1];
        o.padding = want[2];
        omm_buf_clear(&file);
        CHECK_OK(make(&file, NULL, &o, omm_buf_view(&text)));
        CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
        CHECK_OK(omm_gguf_get_array(&tokens, &g, "tokenizer.ggml.tokens", OMM_GGUF_STRING));
        CHECK_EQ(tokens->count, 270);
        omm_gguf_strings(texts, tokens);
        for (size_t i = 0; i < 3; i++) {
            uint32_t id = 0;
            CHECK_EQ(omm_gguf_get_u32(&id, &g, keys[i]), want[i] ? OMM_OK : OMM_ERR_NOT_FOUND);
            if (want[i]) CHECK(id < 270 && omm_bytes_equal(texts[id], omm_bytes_str(want[i])));
        }
        omm_gguf_close(&g);
        o = options_of(270);
    }
    omm_buf_fini(&file);
    omm_buf_fini(&text);
}

/* Whichever allocation fails, the error is NOMEM and nothing stays behind. */
static void without_memory(void) {
    omm_buf text = random_text(5, 60);
    const omm_vocab_options o = options_of(270);
    const size_t live = omm_mem_live();
    omm_err err = OMM_ERR_NOMEM;
    size_t nth = 1;
    for (; err != OMM_OK; nth++) {
        omm_buf file;
        omm_buf_init(&file, 1 << 22);
        omm_mem_fail_nth(nth);
        err = make(&file, NULL, &o, omm_buf_view(&text));
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        omm_buf_fini(&file);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
        CHECK_EQ(omm_mem_live(), live);
    }
    CHECK(nth > 10);
    omm_buf_fini(&text);
}

int main(void) {
    twins();
    one_text_once();
    counts();
    keys();
    read_back();
    refusals();
    named_ids();
    without_memory();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

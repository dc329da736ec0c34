/* strangers_test.c - GGUF files from strangers, systematically: every length, count, kind, dimension,
 * offset and number of a small model and of two vocabularies at 0, at its limits and at overflow; every
 * truncation.  Each is refused with a sentence, or used within bounds: planned for, loaded, quantised;
 * never more memory is asked for than a stated multiple of the file. */
#include "omm/file.h"
#include "omm/gguf.h"
#include "omm/mem.h"
#include "omm/model.h"
#include "omm/plan.h"
#include "omm/quantise.h"
#include "omm/tokenizer.h"
#include "tiny_model.h"
#include "tokenizer_internal.h"

#include "omm_test.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 1 << 26, FIELDS_MAX = 4096, ALIGNMENT = 32 };

/* What opening may ask for, beyond fixed tables: expressions, merge tables, the rotary table. */
#define BYTES_PER_BYTE 64u
#define BYTES_FIXED (16u << 20)

typedef struct field {
    size_t at;
    unsigned size; /* 4 or 8 */
} field;

/* An index of every number in the file's header, made by walking it without the reader. */
typedef struct walker {
    const uint8_t *data;
    size_t at;
    field fields[FIELDS_MAX];
    size_t count;
} walker;

static uint64_t number(walker *w, unsigned size) {
    CHECK(w->count < FIELDS_MAX);
    w->fields[w->count++] = (field){w->at, size};
    uint64_t v = size == 4 ? omm_get_u32(w->data + w->at) : omm_get_u64(w->data + w->at);
    w->at += size;
    return v;
}

static void walk_string(walker *w) {
    uint64_t size = number(w, 8);
    w->at += (size_t)size;
}

static const unsigned s_sizes[OMM_GGUF_KIND_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static void walk_value(walker *w, uint64_t kind) {
    if (kind == OMM_GGUF_STRING) {
        walk_string(w);
    } else if (kind == OMM_GGUF_ARRAY) {
        uint64_t element = number(w, 4);
        uint64_t count = number(w, 8);
        for (uint64_t i = 0; i < count; i++) {
            if (element == OMM_GGUF_STRING && i < 8)
                walk_string(w);
            else if (element == OMM_GGUF_STRING)
                w->at += 8 + (size_t)omm_get_u64(w->data + w->at);
            else if (i < 4 && s_sizes[element] >= 4)
                number(w, s_sizes[element]);
            else
                w->at += s_sizes[element];
        }
    } else if (s_sizes[kind] >= 4) {
        number(w, s_sizes[kind]);
    } else {
        w->at += s_sizes[kind];
    }
}

static void walk(walker *w, const omm_buf *file) {
    memset(w, 0, sizeof *w);
    w->data = file->data;
    number(w, 4); /* magic */
    number(w, 4);
    uint64_t tensors = number(w, 8);
    uint64_t kvs = number(w, 8);
    for (uint64_t i = 0; i < kvs; i++) {
        walk_string(w);
        walk_value(w, number(w, 4));
    }
    for (uint64_t i = 0; i < tensors; i++) {
        walk_string(w);
        uint64_t dims = number(w, 4);
        for (uint64_t d = 0; d < dims; d++) number(w, 8);
        number(w, 4); /* type */
        number(w, 8); /* offset */
    }
}

static char s_dir[] = "/tmp/omm-strangers-XXXXXX";
static char s_quantised[64];
static size_t s_quantised_count;

/* ---- Using what opens ----------------------------------------------------------------------- */

static void use_tokenizer(const omm_gguf *g) {
    static const char text[] = "ab abc</s> <tool><|im_end|>'s 123\xff \xe2\x96\x81 z\n";
    omm_tokenizer *t = NULL;
    if (omm_tokenizer_open(&t, g) != OMM_OK) {
        CHECK(omm_err_sentence()[0] != 0);
        return;
    }
    omm_tokens ids;
    omm_buf back;
    omm_tokens_init(&ids, 4096);
    omm_buf_init(&back, FILE_MAX);
    omm_err err = omm_tokenizer_encode(&ids, t, omm_bytes_str(text), OMM_TOKENIZE_SPECIAL);
    CHECK(err == OMM_OK || err == OMM_ERR_TOO_BIG);
    for (size_t i = 0; i < ids.count; i++) CHECK(ids.ids[i] < omm_tokenizer_vocab(t));
    CHECK_OK(omm_tokenizer_decode(&back, t, ids.ids, ids.count, OMM_DETOKENIZE_SPECIAL));
    omm_tokens_fini(&ids);
    omm_buf_fini(&back);
    omm_tokenizer_close(t);
}

/* Plans of all positions that the model names, of a few, and of one that cannot fit; the file is its own
 * adapter, too. */
static void use_plans(const omm_gguf *g, const omm_model *outline) {
    static const omm_plan_stream streams[] = {OMM_PLAN_STREAM_NEVER, OMM_PLAN_STREAM_LAST,
                                              OMM_PLAN_STREAM_FIRST};
    char text[OMM_PLAN_TEXT_MAX];
    omm_plan all, few, fitted;
    omm_plan_options o = {
        .session = omm_session_options_default(), .threads = 2, .logit_rows = 1, .tokenizer = true};
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        o.stream = streams[i];
        o.session.positions_max = outline->dims.context;
        CHECK_OK(omm_plan_make(&all, g, &g, 1, &o));
        o.session.positions_max = 1;
        CHECK_OK(omm_plan_make(&few, g, NULL, 0, &o));
        CHECK(few.total > 0 && few.total <= all.total);
        omm_plan_text(text, &all);
        CHECK(omm_plan_fit(&fitted, g, NULL, 0, &o, 1) != OMM_OK);
        o.session.positions_max = outline->dims.context;
        if (omm_plan_fit(&fitted, g, NULL, 0, &o, few.total + (few.total >> 4)) == OMM_OK)
            CHECK(fitted.total <= few.total + (few.total >> 4));
    }
}

/* What loads can be planned for; what cannot be planned for does not load, and says the same. */
static void use_model(const omm_gguf *g) {
    omm_model model, outline;
    omm_plan plan;
    const omm_plan_options o = {.session = omm_session_options_default(), .threads = 1};
    const omm_err loaded = omm_model_load(&model, g);
    if (loaded == OMM_OK)
        omm_model_fini(&model);
    else
        CHECK(omm_err_sentence()[0] != 0);
    const omm_err outlined = omm_model_outline(&outline, g);
    /* Only loading sees values; one of an early tensor comes before the shape of a later one. */
    CHECK(outlined == loaded || loaded == OMM_ERR_NUMERIC);
    CHECK_EQ(omm_plan_make(&plan, g, NULL, 0, &o), outlined);
    if (outlined != OMM_OK) return;
    use_plans(g, &outline);
    omm_model_fini(&outline);
}

/* To types of 32 and of 256 columns a block; the file is there when that went well, and only then. */
static void use_quantise(const omm_gguf *g) {
    static const char *const types[] = {"Q8_0", "Q4_K"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        omm_quantise_report report;
        const omm_quantise_options o = {.type = types[i]};
        const omm_err err = omm_quantise_file(s_quantised, g, &o, NULL, &report, NULL, NULL);
        CHECK_EQ(omm_file_exists(s_quantised), err == OMM_OK);
        if (err != OMM_OK) {
            CHECK(omm_err_sentence()[0] != 0);
            continue;
        }
        CHECK_EQ(report.count, g->tensor_count);
        omm_quantise_report_fini(&report);
        CHECK_OK(omm_file_remove(s_quantised));
        s_quantised_count++;
    }
}

/* Files are read at the end of this heap block, behind which nothing may be read. */
static struct {
    uint8_t *data;
    size_t size;
} s_room;

static uint8_t *at_the_end(const uint8_t *data, size_t size) {
    if (size > s_room.size || !s_room.data) {
        omm_free(s_room.data);
        s_room.size = 2 * size;
        s_room.data = omm_alloc(s_room.size, 1);
    }
    return (uint8_t *)memcpy(s_room.data + s_room.size - size, data, size);
}

/* True when the reader took them. */
static bool open_hostile(const uint8_t *data, size_t size) {
    const uint8_t *copy = at_the_end(data, size);
    size_t live = omm_mem_live();
    size_t asked = omm_mem_asked();
    omm_gguf g;
    bool opened = omm_gguf_open_bytes(&g, omm_bytes_of(copy, size)) == OMM_OK;
    if (opened) {
        use_tokenizer(&g);
        use_model(&g);
        use_quantise(&g);
        omm_gguf_close(&g);
    } else {
        CHECK(omm_err_sentence()[0] != 0);
    }
    size_t used = omm_mem_asked() - asked;
    if (used > BYTES_PER_BYTE * size + BYTES_FIXED)
        fprintf(stderr, "%zu bytes asked for a file of %zu\n", used, size);
    CHECK(used <= BYTES_PER_BYTE * size + BYTES_FIXED);
    CHECK_EQ(omm_mem_live(), live);
    return opened;
}

static void put(uint8_t *at, unsigned size, uint64_t v) {
    if (size == 4)
        omm_put_u32(at, (uint32_t)v);
    else
        omm_put_u64(at, v);
}

static void test_numbers(omm_buf *file, const char *name) {
    static walker w;
    walk(&w, file);
    size_t refused = 0;
    size_t tried = 0;
    for (size_t f = 0; f < w.count; f++) {
        uint8_t *at = file->data + w.fields[f].at;
        unsigned size = w.fields[f].size;
        uint64_t old = size == 4 ? omm_get_u32(at) : omm_get_u64(at);
        const uint64_t values[] = {0,
                                   1,
                                   old - 1,
                                   old + 1,
                                   old * 2,
                                   file->size,
                                   0x7fffffff,
                                   0x80000000,
                                   0xffffffff,
                                   0x100000000,
                                   0x7fffffffffffffff,
                                   0x8000000000000000,
                                   0xfffffffffffffff8,
                                   0xffffffffffffffff};
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            if (size == 4 && values[v] > UINT32_MAX) continue;
            put(at, size, values[v]);
            refused += !open_hostile(file->data, file->size);
            tried++;
        }
        put(at, size, old);
    }
    CHECK(open_hostile(file->data, file->size));
    printf("%s: %zu numbers, %zu of %zu files refused by the reader\n", name, w.count, refused,
           tried);
    CHECK(w.count > 30);
    CHECK(refused * 2 > tried); /* most are lengths */
}

/* Every byte of the header, then some of the data, which holds no lengths.  A file without tensors
 * may lack the padding behind its header. */
static void test_truncations(const omm_buf *file) {
    static walker w;
    walk(&w, file);
    for (size_t size = 0; size < file->size; size += size < w.at ? 1 : 97) {
        bool opened = open_hostile(file->data, size);
        CHECK(!opened || (size >= w.at && file->size - w.at < ALIGNMENT));
    }
}

/* ---- Vocabularies --------------------------------------------------------------------------- */

typedef struct bad_vocab {
    const char *merges[6];
    const char *texts[6]; /* in place of the last tokens */
    uint32_t type;        /* of the last token, unless 0 */
    float score;          /* of the last token */
    uint32_t bos;
    omm_err want;
} bad_vocab;

enum { VOCAB = 262 };

/* A vocabulary of the bytes and six more texts. */
static void write_vocab(omm_buf *file, bool spm, const bad_vocab *b) {
    static char names[VOCAB][8];
    static uint8_t types[4 * VOCAB];
    static uint8_t scores[4 * VOCAB];
    omm_bytes texts[VOCAB];
    omm_bytes merges[6];
    size_t merge_count = 0;
    for (unsigned i = 0; i < VOCAB; i++) {
        snprintf(names[i], sizeof names[i], i < 256 ? "<0x%02X>" : "t%u", i);
        texts[i] = omm_bytes_str(names[i]);
        if (!spm && i < 256)
            texts[i] = omm_bytes_of(names[i], bpe_letter((uint8_t *)names[i], (uint8_t)i));
        if (i >= 256 && b->texts[i - 256]) texts[i] = omm_bytes_str(b->texts[i - 256]);
        omm_put_u32(types + (size_t)i * 4, spm && i < 256 ? TOKEN_BYTE : TOKEN_NORMAL);
        omm_put_f32(scores + (size_t)i * 4, -(float)i);
    }
    if (b->type) omm_put_u32(types + 4 * (size_t)(VOCAB - 1), b->type);
    omm_put_f32(scores + 4 * (size_t)(VOCAB - 1), b->score);
    for (; merge_count < 6 && b->merges[merge_count]; merge_count++)
        merges[merge_count] = omm_bytes_str(b->merges[merge_count]);
    omm_gguf_writer w;
    omm_gguf_writer_init(&w);
    omm_gguf_put_text(&w, "tokenizer.ggml.model", spm ? "llama" : "gpt2");
    omm_gguf_put_text(&w, "tokenizer.ggml.pre", "gpt-2");
    omm_gguf_put_text(&w, "tokenizer.chat_template", "<|im_start|>user\n{{ content }}");
    omm_gguf_put_strings(&w, "tokenizer.ggml.tokens", texts, VOCAB);
    omm_gguf_put_array(&w, "tokenizer.ggml.token_type", OMM_GGUF_I32, types, VOCAB);
    if (spm) omm_gguf_put_array(&w, "tokenizer.ggml.scores", OMM_GGUF_F32, scores, VOCAB);
    if (merge_count > 0) omm_gguf_put_strings(&w, "tokenizer.ggml.merges", merges, merge_count);
    omm_gguf_put_u32(&w, "tokenizer.ggml.bos_token_id", b->bos);
    CHECK_OK(omm_gguf_writer_finish(file, &w));
    omm_gguf_writer_fini(&w);
}

static void check_vocab(bool spm, const bad_vocab *b) {
    omm_buf file;
    omm_gguf g;
    omm_tokenizer *t = NULL;
    omm_buf_init(&file, FILE_MAX);
    write_vocab(&file, spm, b);
    CHECK(open_hostile(file.data, file.size));
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    CHECK_EQ(omm_tokenizer_open(&t, &g), b->want);
    omm_tokenizer_close(t);
    omm_gguf_close(&g);
    omm_buf_fini(&file);
}

static void test_vocabularies(void) {
    static const bad_vocab gpt2[] = {
        {.merges = {"a b"}},
        {.merges = {"a b", "a b", "b a", "b a"}},             /* twice */
        {.merges = {"ab a", "a ba", "ba b", "aba b", "a a"}}, /* of texts that nothing makes */
        {.merges = {"x y", "y x", "xy xy", "yx yx"}},         /* round in a circle */
        {.merges = {"a  b"}},                           /* the right side begins with a space */
        {.merges = {"a b"}, .texts = {"", "", "", ""}}, /* tokens without text */
        {.merges = {"a b"}, .texts = {"ab", "ab", "ab", "a", "a", "a"}}, /* and with the same */
        {.merges = {"a b"}, .texts = {"ab"}, .type = 2},
        {.merges = {"ab"}, .want = OMM_ERR_FORMAT},
        {.merges = {""}, .want = OMM_ERR_FORMAT},
        {.merges = {" "}, .want = OMM_ERR_FORMAT},
        {.merges = {"a "}, .want = OMM_ERR_FORMAT},
        {.merges = {" a"}, .want = OMM_ERR_FORMAT},
        {.merges = {"a b"}, .type = 7, .want = OMM_ERR_FORMAT},
        {.merges = {"a b"}, .type = UINT32_MAX, .want = OMM_ERR_FORMAT},
        {.merges = {"a b"}, .bos = VOCAB, .want = OMM_ERR_FORMAT},
        {.merges = {"a b"}, .bos = UINT32_MAX - 1, .want = OMM_ERR_FORMAT},
        {.want = OMM_ERR_NOT_FOUND}, /* no merges */
    };
    for (size_t i = 0; i < sizeof gpt2 / sizeof gpt2[0]; i++) check_vocab(false, &gpt2[i]);
    const bad_vocab llama[] = {
        {.score = INFINITY, .texts = {"a", "b", "ab", "abab", "z", "ab "}},
        {.score = -INFINITY, .texts = {"a", "b", "ab", "abab", "", "ba"}},
        {.texts = {"a", "a", "aa", "aa", "aaaa", "a"}},
        {.type = TOKEN_BYTE, .texts = {"<0x4", "<0xGG>", "<0x41>>", "<0x>", "", "<0x7a>"}},
        {.score = NAN, .want = OMM_ERR_FORMAT},
        {.type = 99, .want = OMM_ERR_FORMAT},
        {.bos = VOCAB, .want = OMM_ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof llama / sizeof llama[0]; i++) check_vocab(true, &llama[i]);
}

/* One token, and one merge, of the longest text that a file may hold. */
static void test_long_token(void) {
    char *text = omm_alloc(OMM_GGUF_STRING_MAX + 1, 1);
    memset(text, 'a', OMM_GGUF_STRING_MAX);
    text[OMM_GGUF_STRING_MAX - 1] = 0;
    bad_vocab b = {.merges = {"a b"}, .texts = {text}};
    check_vocab(false, &b);
    check_vocab(true, &(bad_vocab){.texts = {text}});
    text[1] = ' ';
    b = (bad_vocab){.merges = {text, "a a", text}};
    check_vocab(false, &b);
    omm_free(text);
}

/* ---- Texts and merges that lie in each other's way -------------------------------------------- */

enum { CROWD = 4096, CROWD_TEXTS = 256 + CROWD, NEAR = 16 };

/* Texts that FNV-1a, and merges that Fibonacci hashing, would put into a few slots of 16,384: with those each
 * look-up would go through all the others. */
static void crowd_texts(omm_bytes *texts, char (*names)[12]) {
    uint64_t k = 0;
    for (unsigned i = 0; i < 256; i++)
        texts[i] = omm_bytes_of(names[i], bpe_letter((uint8_t *)names[i], (uint8_t)i));
    for (unsigned i = 256; i < CROWD_TEXTS; k++) {
        const int size = snprintf(names[i], sizeof names[i], "%" PRIx64, k);
        uint64_t h = 14695981039346656037ull;
        for (int b = 0; b < size; b++) h = (h ^ (uint8_t)names[i][b]) * 1099511628211ull;
        texts[i] = omm_bytes_of(names[i], (size_t)size);
        if (k > 255 && ((h ^ h >> 32) & 16383) < NEAR) i++;
    }
}

static void crowd_merges(omm_bytes *merges, char (*lines)[28], const omm_bytes *texts) {
    unsigned count = 0;
    for (uint64_t left = 256; left < CROWD_TEXTS && count < CROWD; left++)
        for (uint64_t right = 256; right < CROWD_TEXTS && count < CROWD; right++) {
            const uint64_t h = (left << 32 | right) * 0x9e3779b97f4a7c15ull;
            if ((h >> 32 & 16383) >= NEAR) continue;
            const int size = snprintf(lines[count], sizeof lines[0], "%.*s %.*s",
                                      (int)texts[left].size, (const char *)texts[left].data,
                                      (int)texts[right].size, (const char *)texts[right].data);
            merges[count] = omm_bytes_of(lines[count], (size_t)size);
            count++;
        }
    CHECK_EQ(count, CROWD);
}

/* The most slots in a row that are taken. */
static size_t longest_run(const omm_tokenizer *t, bool of_merges) {
    const size_t slots = of_merges ? t->merge_slots : t->texts.slot_count;
    size_t run = 0, longest = 0;
    for (size_t i = 0; i < 2 * slots; i++) {
        const size_t at = i % slots;
        const bool taken = of_merges ? t->merges[at].left != MERGE_END : t->texts.slots[at] != 0;
        run = taken ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    return longest;
}

static void test_crowds(void) {
    static char names[CROWD_TEXTS][12], lines[CROWD][28];
    static omm_bytes texts[CROWD_TEXTS], merges[CROWD];
    omm_gguf_writer w;
    omm_buf file;
    omm_gguf g;
    omm_tokenizer *t = NULL;
    crowd_texts(texts, names);
    crowd_merges(merges, lines, texts);
    omm_buf_init(&file, FILE_MAX);
    omm_gguf_writer_init(&w);
    omm_gguf_put_text(&w, "tokenizer.ggml.model", "gpt2");
    omm_gguf_put_text(&w, "tokenizer.ggml.pre", "gpt-2");
    omm_gguf_put_strings(&w, "tokenizer.ggml.tokens", texts, CROWD_TEXTS);
    omm_gguf_put_strings(&w, "tokenizer.ggml.merges", merges, CROWD);
    CHECK_OK(omm_gguf_writer_finish(&file, &w));
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    CHECK_OK(omm_tokenizer_open(&t, &g));
    CHECK_EQ(t->merge_slots, 16384);
    printf("longest runs: %zu texts, %zu merges\n", longest_run(t, false), longest_run(t, true));
    CHECK(longest_run(t, false) < 128);
    CHECK(longest_run(t, true) < 128);
    omm_tokenizer_close(t);
    omm_gguf_close(&g);
    omm_gguf_writer_fini(&w);
    omm_buf_fini(&file);
}

/* Rows of one column: what quantising keeps for each row is no more than the file has rows. */
static void test_narrow(void) {
    static const uint8_t values[4 * 5];
    static const uint64_t dims[2] = {1, 5};
    omm_gguf_writer w;
    omm_buf file;
    omm_gguf_writer_init(&w);
    omm_buf_init(&file, FILE_MAX);
    omm_gguf_put_text(&w, "general.architecture", "llama");
    omm_gguf_put_tensor(&w, "blk.0.attn_q.weight", OMM_GGML_F32, 2, dims,
                        omm_bytes_of(values, sizeof values));
    CHECK_OK(omm_gguf_writer_finish(&file, &w));
    const size_t count = s_quantised_count;
    CHECK(open_hostile(file.data, file.size));
    CHECK_EQ(s_quantised_count, count + 2);
    omm_gguf_writer_fini(&w);
    omm_buf_fini(&file);
}

int main(void) {
    omm_buf file;
    CHECK(mkdtemp(s_dir) != NULL);
    snprintf(s_quantised, sizeof s_quantised, "%s/q.gguf", s_dir);
    omm_buf_init(&file, FILE_MAX);
    tiny_model_write(&file, &(tiny_options){.format = OMM_FORMAT_F32});
    test_truncations(&file);
    test_numbers(&file, "model");
    omm_buf_clear(&file);
    write_vocab(&file, false, &(bad_vocab){.merges = {"a b", "ab a"}, .texts = {"ab"}});
    test_truncations(&file);
    test_numbers(&file, "gpt2 vocabulary");
    omm_buf_clear(&file);
    write_vocab(&file, true, &(bad_vocab){.texts = {"a", "b", "ab", "</s>"}});
    test_truncations(&file);
    test_numbers(&file, "llama vocabulary");
    omm_buf_fini(&file);
    test_vocabularies();
    test_long_token();
    test_crowds();
    test_narrow();
    printf("%zu files quantised\n", s_quantised_count);
    CHECK(s_quantised_count > 100);
    CHECK_OK(omm_dir_remove(s_dir));
    omm_free(s_room.data);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

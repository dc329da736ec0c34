/* gguf_test.c - GGUF: round trip, equal bytes, and every way in which a file can lie. */
#include "omm/gguf.h"
#include "omm/mem.h"

#include "omm_test.h"

#include <math.h>
#include <string.h>

enum { FILE_MAX = 1 << 20 };

static const float s_weights[6] = {1.0f, -2.5f, 0.0f, 3.25f, 1e-20f, -7.0f};
static const uint8_t s_blocks[2 * 34] = {0x00, 0x3c, 1, 2, 3};
static const uint8_t s_halves[10] = {0x00, 0x3c, 0x00, 0xc0};

static void put_arrays(omm_gguf_writer *w) {
    const omm_bytes words[3] = {omm_bytes_str("a"), omm_bytes_str(""), omm_bytes_str("longer one")};
    const uint8_t numbers[12] = {1, 0, 0, 0, 255, 255, 255, 255, 7, 0, 0, 0};
    const uint8_t bools[2] = {1, 0};
    omm_gguf_put_strings(w, "test.words", words, 3);
    omm_gguf_put_array(w, "test.numbers", OMM_GGUF_I32, numbers, 3);
    omm_gguf_put_array(w, "test.bools", OMM_GGUF_BOOL, bools, 2);
    omm_gguf_put_array(w, "test.empty", OMM_GGUF_F64, NULL, 0);
}

static void put_tensors(omm_gguf_writer *w) {
    const uint64_t dims[2] = {3, 2};
    const uint64_t dims_q[2] = {32, 2};
    const uint64_t dims_h[1] = {5};
    omm_gguf_put_tensor(w, "a.weight", OMM_GGML_F32, 2, dims,
                        omm_bytes_of(s_weights, sizeof s_weights));
    omm_gguf_put_tensor(w, "b.weight", OMM_GGML_Q8_0, 2, dims_q,
                        omm_bytes_of(s_blocks, sizeof s_blocks));
    omm_gguf_put_tensor(w, "c.bias", OMM_GGML_F16, 1, dims_h,
                        omm_bytes_of(s_halves, sizeof s_halves));
}

static omm_err write_sample(omm_buf *out, uint32_t alignment) {
    omm_gguf_writer w;
    omm_gguf_writer_init(&w);
    omm_gguf_put_text(&w, "general.architecture", "llama");
    omm_gguf_put_alignment(&w, alignment);
    omm_gguf_put_u32(&w, "test.u32", 4000000000u);
    omm_gguf_put_f32(&w, "test.f32", 0.5f);
    omm_gguf_put_bool(&w, "test.bool", true);
    omm_gguf_put_bool(&w, "test.no", false);
    put_arrays(&w);
    put_tensors(&w);
    omm_err err = omm_gguf_writer_finish(out, &w);
    omm_gguf_writer_fini(&w);
    return err;
}

static void check_values(const omm_gguf *g) {
    char text[8];
    uint32_t u = 0;
    float f = 0;
    bool b = false;
    CHECK_OK(omm_gguf_get_text(text, sizeof text, g, "general.architecture"));
    CHECK(strcmp(text, "llama") == 0);
    CHECK_ERR(omm_gguf_get_text(text, 5, g, "general.architecture"), OMM_ERR_TOO_BIG);
    CHECK_OK(omm_gguf_get_u32(&u, g, "test.u32"));
    CHECK_EQ(u, 4000000000u);
    CHECK_OK(omm_gguf_get_f32(&f, g, "test.f32"));
    CHECK(f == 0.5f);
    CHECK_OK(omm_gguf_get_bool(&b, g, "test.bool"));
    CHECK(b);
    CHECK_OK(omm_gguf_get_bool(&b, g, "test.no"));
    CHECK(!b);
    CHECK_ERR(omm_gguf_get_u32(&u, g, "test.none"), OMM_ERR_NOT_FOUND);
    CHECK_ERR(omm_gguf_get_f32(&f, g, "test.none"), OMM_ERR_NOT_FOUND);
    CHECK_ERR(omm_gguf_get_bool(&b, g, "test.none"), OMM_ERR_NOT_FOUND);
    CHECK_ERR(omm_gguf_get_text(text, sizeof text, g, "test.none"), OMM_ERR_NOT_FOUND);
    CHECK_ERR(omm_gguf_get_u32(&u, g, "test.f32"), OMM_ERR_FORMAT);
    CHECK_ERR(omm_gguf_get_f32(&f, g, "test.u32"), OMM_ERR_FORMAT);
    CHECK_ERR(omm_gguf_get_bool(&b, g, "test.words"), OMM_ERR_FORMAT);
    CHECK_ERR(omm_gguf_get_text(text, sizeof text, g, "test.bool"), OMM_ERR_FORMAT);
    CHECK_OK(omm_gguf_get_bool_or(&b, g, "test.bool", false));
    CHECK(b);
    CHECK_OK(omm_gguf_get_bool_or(&b, g, "test.none", false));
    CHECK(!b);
    CHECK_ERR(omm_gguf_get_bool_or(&b, g, "test.u32", true), OMM_ERR_FORMAT);
    CHECK_EQ(u, 4000000000u);
    CHECK_OK(omm_gguf_get_u32_or(&u, g, "test.none", 9));
    CHECK_EQ(u, 9);
    CHECK_ERR(omm_gguf_get_u32_or(&u, g, "test.bool", 9), OMM_ERR_FORMAT);
}

static void check_arrays(const omm_gguf *g) {
    const omm_gguf_kv *kv = NULL;
    omm_bytes words[3];
    CHECK_ERR(omm_gguf_get_array(&kv, g, "test.none", OMM_GGUF_I32), OMM_ERR_NOT_FOUND);
    CHECK_OK(omm_gguf_get_array(&kv, g, "test.words", OMM_GGUF_STRING));
    CHECK_EQ(kv->count, 3);
    omm_gguf_strings(words, kv);
    CHECK(omm_bytes_equal(words[2], omm_bytes_str("longer one")));
    CHECK_EQ(words[1].size, 0);
    CHECK_OK(omm_gguf_get_array(&kv, g, "test.numbers", OMM_GGUF_I32));
    CHECK_EQ(omm_get_u32(kv->data.data + 8), 7);
    CHECK_OK(omm_gguf_get_array(&kv, g, "test.empty", OMM_GGUF_F64));
    CHECK_EQ(kv->count, 0);
    CHECK_ERR(omm_gguf_get_array(&kv, g, "test.numbers", OMM_GGUF_U32), OMM_ERR_FORMAT);
    CHECK_ERR(omm_gguf_get_array(&kv, g, "test.u32", OMM_GGUF_U32), OMM_ERR_FORMAT);
}

static void check_tensors(const omm_gguf *g, uint32_t alignment) {
    const omm_gguf_tensor *t = omm_gguf_find_tensor(g, "b.weight");
    CHECK(t != NULL);
    CHECK_EQ(t->type, OMM_GGML_Q8_0);
    CHECK_EQ(t->dims[0], 32);
    CHECK_EQ(t->dims[1], 2);
    CHECK_EQ(t->dims[2], 1);
    CHECK_EQ(t->offset % alignment, 0);
    CHECK(omm_bytes_equal(t->data, omm_bytes_of(s_blocks, sizeof s_blocks)));
    t = omm_gguf_find_tensor(g, "c.bias");
    CHECK(t != NULL);
    CHECK_EQ((size_t)(t->data.data - g->view.data) % alignment, 0);
    CHECK(omm_gguf_find_tensor(g, "c.bia") == NULL);
    CHECK(omm_gguf_find_tensor(g, "") == NULL);
}

static void test_round_trip(uint32_t alignment) {
    omm_buf one, two, three;
    omm_buf_init(&one, FILE_MAX);
    omm_buf_init(&two, FILE_MAX);
    omm_buf_init(&three, FILE_MAX);
    CHECK_OK(write_sample(&one, alignment));
    CHECK_OK(write_sample(&two, alignment));
    CHECK(omm_bytes_equal(omm_buf_view(&one), omm_buf_view(&two)));

    omm_gguf g;
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&one)));
    CHECK_EQ(g.alignment, alignment);
    check_values(&g);
    check_arrays(&g);
    check_tensors(&g, alignment);

    omm_gguf_writer w;
    omm_gguf_writer_init(&w);
    for (size_t i = 0; i < g.kv_count; i++) omm_gguf_put_kv(&w, &g.kvs[i]);
    for (size_t i = 0; i < g.tensor_count; i++) {
        const omm_gguf_tensor *t = &g.tensors[i];
        omm_gguf_put_tensor(&w, t->name, t->type, t->n_dims, t->dims, t->data);
    }
    CHECK_OK(omm_gguf_writer_finish(&three, &w));
    CHECK(omm_bytes_equal(omm_buf_view(&one), omm_buf_view(&three)));
    omm_gguf_writer_fini(&w);
    omm_gguf_close(&g);
    omm_buf_fini(&one);
    omm_buf_fini(&two);
    omm_buf_fini(&three);
}

/* Version 2 is the same file with another number; what is written is version 3. */
static void test_version_2(void) {
    omm_buf file;
    omm_gguf g;
    omm_buf_init(&file, FILE_MAX);
    CHECK_OK(write_sample(&file, 64));
    CHECK_EQ(omm_get_u32(file.data + 4), 3);
    omm_put_u32(file.data + 4, 2);
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&file)));
    check_values(&g);
    check_arrays(&g);
    check_tensors(&g, 64);
    omm_gguf_close(&g);
    omm_buf_fini(&file);
}

/* Header first, then the data piece by piece, gives the file that the writer makes at once. */
static void test_streaming(uint32_t alignment) {
    omm_buf one, two;
    omm_gguf g;
    omm_gguf_writer w;
    omm_buf_init(&one, FILE_MAX);
    omm_buf_init(&two, FILE_MAX);
    CHECK_OK(write_sample(&one, alignment));
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&one)));
    omm_gguf_writer_init(&w);
    for (size_t i = 0; i < g.kv_count; i++) omm_gguf_put_kv(&w, &g.kvs[i]);
    for (size_t i = 0; i < g.tensor_count; i++)
        omm_gguf_put_tensor_info(&w, g.tensors[i].name, g.tensors[i].type, g.tensors[i].n_dims,
                                 g.tensors[i].dims);
    CHECK_OK(omm_gguf_writer_header(&two, &w));
    CHECK_EQ(two.size, g.data_offset);
    for (size_t i = 0; i < g.tensor_count; i++) {
        uint8_t *zeros = NULL;
        omm_bytes data = g.tensors[i].data;
        CHECK_OK(omm_buf_append(&two, data.data, data.size));
        CHECK_OK(omm_buf_extend(&two, &zeros, omm_gguf_padding(&w, data.size)));
    }
    CHECK(omm_bytes_equal(omm_buf_view(&one), omm_buf_view(&two)));
    size_t size = two.size;
    omm_gguf_put_tensor_info(&w, "odd", 77, 1, g.tensors[0].dims);
    CHECK_ERR(omm_gguf_writer_header(&two, &w), OMM_ERR_UNSUPPORTED);
    CHECK_EQ(two.size, size);
    omm_gguf_writer_fini(&w);
    omm_gguf_close(&g);
    omm_buf_fini(&one);
    omm_buf_fini(&two);
}

/* Read everything the index points to, so that ASan sees a pointer outside of the file. */
static uint64_t touch(const omm_gguf *g) {
    uint64_t sum = 0;
    for (size_t i = 0; i < g->kv_count; i++) {
        const omm_gguf_kv *kv = &g->kvs[i];
        for (size_t b = 0; b < kv->data.size; b++) sum += kv->data.data[b];
        for (size_t b = 0; b < kv->key.size; b++) sum += kv->key.data[b];
        if (kv->kind == OMM_GGUF_ARRAY && kv->element == OMM_GGUF_STRING) {
            omm_bytes *items = omm_alloc((size_t)kv->count + 1, sizeof *items);
            omm_gguf_strings(items, kv);
            for (size_t n = 0; n < kv->count; n++) sum += items[n].size ? items[n].data[0] : 0;
            omm_free(items);
        }
    }
    for (size_t i = 0; i < g->tensor_count; i++)
        for (size_t b = 0; b < g->tensors[i].data.size; b++) sum += g->tensors[i].data.data[b];
    return sum;
}

/* Open bytes in a heap block of exactly their size. */
static omm_err open_exact(const uint8_t *data, size_t size) {
    uint8_t *copy = omm_alloc(size + 1, 1);
    uint8_t *at = copy + 1; /* the block ends where the file ends */
    memcpy(at, data, size);
    omm_gguf g;
    omm_err err = omm_gguf_open_bytes(&g, omm_bytes_of(at, size));
    if (err == OMM_OK) {
        volatile uint64_t sum = touch(&g);
        (void)sum;
        omm_gguf_close(&g);
    }
    omm_free(copy);
    return err;
}

static void test_truncations(const omm_buf *file) {
    for (size_t size = 0; size < file->size; size++) CHECK(open_exact(file->data, size) != OMM_OK);
    CHECK_OK(open_exact(file->data, file->size));
    uint8_t *longer = omm_alloc(file->size + 1, 1);
    memcpy(longer, file->data, file->size);
    CHECK_ERR(open_exact(longer, file->size + 1), OMM_ERR_SIZE);
    omm_free(longer);
}

static void test_bit_flips(const omm_buf *file) {
    size_t refused = 0;
    for (size_t bit = 0; bit < file->size * 8; bit++) {
        file->data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        refused += open_exact(file->data, file->size) != OMM_OK;
        file->data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    CHECK(refused > file->size); /* most of the header's bits matter */
    CHECK_OK(open_exact(file->data, file->size));
}

/* Every place where a count or length may stand gets the values that break arithmetic. */
static void test_wild_lengths(const omm_buf *file) {
    static const uint64_t wild[] = {0,
                                    1,
                                    63,
                                    64,
                                    UINT32_MAX,
                                    1u << 24,
                                    1ull << 32,
                                    1ull << 62,
                                    INT64_MAX,
                                    1ull << 63,
                                    UINT64_MAX,
                                    UINT64_MAX - 7,
                                    UINT64_MAX / 4 + 1};
    omm_gguf g;
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(file)));
    size_t head = (size_t)g.data_offset;
    omm_gguf_close(&g);
    for (size_t at = 4; at + 8 <= head; at++) {
        uint8_t saved[8];
        memcpy(saved, file->data + at, 8);
        for (size_t i = 0; i < sizeof wild / sizeof wild[0]; i++) {
            omm_put_u64(file->data + at, wild[i]);
            (void)open_exact(file->data, file->size);
        }
        memcpy(file->data + at, saved, 8);
    }
    CHECK_OK(open_exact(file->data, file->size));
}

static void test_allocations(void) {
    omm_buf file;
    omm_buf_init(&file, FILE_MAX);
    CHECK_OK(write_sample(&file, 32));
    size_t live = omm_mem_live();
    for (size_t nth = 1;; nth++) {
        omm_gguf g;
        omm_mem_fail_nth(nth);
        omm_err err = omm_gguf_open_bytes(&g, omm_buf_view(&file));
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        if (err == OMM_OK) {
            omm_gguf_close(&g);
            CHECK(nth > 4);
            break;
        }
        CHECK_ERR(err, OMM_ERR_NOMEM);
        CHECK_EQ(omm_mem_live(), live);
    }
    for (size_t nth = 1;; nth++) {
        omm_buf again;
        omm_buf_init(&again, FILE_MAX);
        omm_mem_fail_nth(nth);
        omm_err err = write_sample(&again, 32);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || again.size == 0);
        omm_buf_fini(&again);
        if (err == OMM_OK) break;
        CHECK_ERR(err, OMM_ERR_NOMEM);
        CHECK_EQ(omm_mem_live(), live);
    }
    omm_buf_fini(&file);
}

/* ---- Must refuse --------------------------------------------------------------------------- */

typedef struct maker {
    omm_buf b;
} maker;

static void u32(maker *m, uint32_t v) {
    CHECK_OK(omm_buf_put_u32(&m->b, v));
}
static void u64(maker *m, uint64_t v) {
    CHECK_OK(omm_buf_put_u64(&m->b, v));
}
static void str(maker *m, const char *text) {
    u64(m, strlen(text));
    CHECK_OK(omm_buf_append(&m->b, text, strlen(text)));
}
static void begin(maker *m, uint32_t version, uint64_t tensors, uint64_t kvs) {
    omm_buf_init(&m->b, FILE_MAX);
    CHECK_OK(omm_buf_append(&m->b, "GGUF", 4));
    u32(m, version);
    u64(m, tensors);
    u64(m, kvs);
}
static void kv_u32(maker *m, const char *key, uint32_t v) {
    str(m, key);
    u32(m, OMM_GGUF_U32);
    u32(m, v);
}
static void info(maker *m, const char *name, uint64_t columns, uint64_t rows, uint32_t type,
                 uint64_t offset) {
    str(m, name);
    u32(m, 2);
    u64(m, columns);
    u64(m, rows);
    u32(m, type);
    u64(m, offset);
}
static void end(maker *m, size_t data_bytes, omm_err wanted, const char *what) {
    uint8_t *tail = NULL;
    CHECK_OK(omm_buf_extend(&m->b, &tail, (32 - m->b.size % 32) % 32 + data_bytes));
    omm_err err = open_exact(m->b.data, m->b.size);
    if (err != wanted) fprintf(stderr, "case: %s\n", what);
    CHECK_ERR(err, wanted);
    omm_buf_fini(&m->b);
}

static void says(const char *wanted) {
    if (!strstr(omm_err_sentence(), wanted))
        fprintf(stderr, "'%s' lacks '%s'\n", omm_err_sentence(), wanted);
    CHECK(strstr(omm_err_sentence(), wanted) != NULL);
}

static void test_refuse_header(void) {
    maker m;
    for (uint32_t version = 0; version < 6; version++) {
        begin(&m, version, 0, 0);
        end(&m, 0, version == 2 || version == 3 ? OMM_OK : OMM_ERR_VERSION, "version");
        if (version == 1)
            says("GGUF version 1, which has lengths of 32 bits: only 2 and 3 are read");
        if (version == 4) says("GGUF version 4: only 2 and 3 are read");
        begin(&m, version << 24, 0, 0);
        end(&m, 0, OMM_ERR_VERSION, "big-endian");
        if (version == 3)
            says("GGUF version 3 in big-endian byte order: only little-endian files are read");
    }
    begin(&m, 3, 0, 0);
    m.b.data[0] = 'g';
    end(&m, 0, OMM_ERR_FORMAT, "magic");
    begin(&m, 7, 0, 0);
    m.b.data[0] = 'g';
    end(&m, 0, OMM_ERR_FORMAT, "magic before the version");
    begin(&m, 3, 0, OMM_GGUF_KV_MAX + 1);
    end(&m, 0, OMM_ERR_TOO_BIG, "too many keys");
    begin(&m, 3, OMM_GGUF_TENSORS_MAX + 1, 0);
    end(&m, 0, OMM_ERR_TOO_BIG, "too many tensors");
    /* Before memory is taken for a table of so many. */
    static const uint64_t counts[][2] = {
        {0, 100}, {0, OMM_GGUF_KV_MAX}, {100, 0}, {OMM_GGUF_TENSORS_MAX, 0}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        begin(&m, 3, counts[i][0], counts[i][1]);
        end(&m, 0, OMM_ERR_SIZE, "more keys or tensors than bytes");
        says("table of contents needs");
    }
}

static void test_refuse_keys(void) {
    maker m;
    begin(&m, 3, 0, 2);
    kv_u32(&m, "twice", 1);
    kv_u32(&m, "twice", 2);
    end(&m, 0, OMM_ERR_FORMAT, "key twice");
    begin(&m, 3, 0, 1);
    kv_u32(&m, "", 1);
    end(&m, 0, OMM_ERR_FORMAT, "empty key");
    begin(&m, 3, 0, 1);
    kv_u32(&m, "a key", 1);
    end(&m, 0, OMM_ERR_FORMAT, "space in key");
    for (size_t more = 0; more < 2; more++) {
        static char key[OMM_GGUF_KEY_MAX + 2];
        memset(key, 'k', OMM_GGUF_KEY_MAX + more);
        begin(&m, 3, 0, 1);
        kv_u32(&m, key, 1);
        end(&m, 0, more ? OMM_ERR_TOO_BIG : OMM_OK, "long key");
    }
    begin(&m, 3, 0, 1);
    kv_u32(&m, "k", 1);
    end(&m, 1, OMM_ERR_SIZE, "bytes behind the last key");
    static const uint32_t alignments[] = {0,         1, 4, 7, 24, 33, OMM_GGUF_ALIGNMENT_MAX * 2,
                                          UINT32_MAX};
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++) {
        begin(&m, 3, 0, 1);
        kv_u32(&m, "general.alignment", alignments[i]);
        end(&m, 0, OMM_ERR_FORMAT, "alignment");
    }
    begin(&m, 3, 0, 1);
    str(&m, "general.alignment");
    u32(&m, OMM_GGUF_U64);
    u64(&m, 32);
    end(&m, 0, OMM_ERR_FORMAT, "alignment of another kind");
}

static void test_refuse_values(void) {
    maker m;
    begin(&m, 3, 0, 1);
    str(&m, "k");
    u32(&m, OMM_GGUF_KIND_COUNT);
    u64(&m, 0);
    end(&m, 0, OMM_ERR_FORMAT, "unknown kind");
    begin(&m, 3, 0, 1);
    str(&m, "k");
    u32(&m, OMM_GGUF_BOOL);
    CHECK_OK(omm_buf_append(&m.b, "\2", 1));
    end(&m, 0, OMM_ERR_FORMAT, "bool of 2");
    begin(&m, 3, 0, 1);
    str(&m, "k");
    u32(&m, OMM_GGUF_ARRAY);
    u32(&m, OMM_GGUF_BOOL);
    u64(&m, 3);
    CHECK_OK(omm_buf_append(&m.b, "\1\0\2", 3));
    end(&m, 0, OMM_ERR_FORMAT, "bool of 2 in an array");
    begin(&m, 3, 0, 1);
    str(&m, "k");
    u32(&m, OMM_GGUF_ARRAY);
    u32(&m, OMM_GGUF_ARRAY);
    u64(&m, 0);
    end(&m, 0, OMM_ERR_FORMAT, "array of arrays");
    begin(&m, 3, 0, 1);
    str(&m, "k");
    u32(&m, OMM_GGUF_ARRAY);
    u32(&m, OMM_GGUF_KIND_COUNT);
    u64(&m, 0);
    end(&m, 0, OMM_ERR_FORMAT, "array of an unknown kind");
    begin(&m, 3, 0, 1);
    str(&m, "k");
    u32(&m, OMM_GGUF_ARRAY);
    u32(&m, OMM_GGUF_U8);
    u64(&m, OMM_GGUF_ARRAY_MAX + 1);
    end(&m, 0, OMM_ERR_TOO_BIG, "long array");
    begin(&m, 3, 0, 1);
    str(&m, "k");
    u32(&m, OMM_GGUF_ARRAY);
    u32(&m, OMM_GGUF_U8);
    u64(&m, OMM_GGUF_ARRAY_MAX);
    end(&m, 0, OMM_ERR_SIZE, "longest array, cut off");
    for (uint64_t more = 0; more < 2; more++) {
        begin(&m, 3, 0, 1);
        str(&m, "k");
        u32(&m, OMM_GGUF_ARRAY);
        u32(&m, OMM_GGUF_STRING);
        u64(&m, 1);
        u64(&m, OMM_GGUF_STRING_MAX + more);
        end(&m, 0, more ? OMM_ERR_TOO_BIG : OMM_ERR_SIZE, "long string in an array");
    }
    begin(&m, 3, 0, 1);
    str(&m, "k");
    u32(&m, OMM_GGUF_STRING);
    u64(&m, OMM_GGUF_STRING_MAX + 1);
    end(&m, 0, OMM_ERR_TOO_BIG, "long string");
    begin(&m, 3, 0, 1);
    str(&m, "k");
    u32(&m, OMM_GGUF_STRING);
    u64(&m, 32); /* the padding has fewer */
    end(&m, 0, OMM_ERR_SIZE, "string behind the end");
}

static void one_tensor(const char *name, uint64_t columns, uint64_t rows, uint32_t type,
                       uint64_t offset, size_t data_bytes, omm_err wanted) {
    maker m;
    begin(&m, 3, 1, 0);
    info(&m, name, columns, rows, type, offset);
    end(&m, data_bytes, wanted, name);
}

/* One of `rows` rows and one of two, where they say that they lie in so many bytes. */
static void two_tensors(uint64_t rows, uint64_t one, uint64_t two, size_t bytes, const char *what) {
    maker m;
    begin(&m, 3, 2, 0);
    info(&m, "one", 4, rows, OMM_GGML_F32, one);
    info(&m, "two", 4, 2, OMM_GGML_F32, two);
    end(&m, bytes, OMM_ERR_FORMAT, what);
}

static void test_refuse_tensors(void) {
    char name64[65];
    memset(name64, 'n', 64);
    name64[64] = 0;
    one_tensor("good", 4, 2, OMM_GGML_F32, 0, 32, OMM_OK);
    one_tensor(name64, 4, 2, OMM_GGML_F32, 0, 32, OMM_ERR_TOO_BIG);
    one_tensor(name64 + 1, 4, 2, OMM_GGML_F32, 0, 32, OMM_OK);
    one_tensor("", 4, 2, OMM_GGML_F32, 0, 32, OMM_ERR_FORMAT);
    one_tensor("new\nline", 4, 2, OMM_GGML_F32, 0, 32, OMM_ERR_FORMAT);
    one_tensor("!ends~", 4, 2, OMM_GGML_F32, 0, 32, OMM_OK);
    one_tensor("a space", 4, 2, OMM_GGML_F32, 0, 32, OMM_ERR_FORMAT);
    one_tensor("delete\x7f", 4, 2, OMM_GGML_F32, 0, 32, OMM_ERR_FORMAT);
    one_tensor("no-rows", 4, 0, OMM_GGML_F32, 0, 32, OMM_ERR_FORMAT);
    one_tensor("block", 31, 2, OMM_GGML_Q8_0, 0, 96, OMM_ERR_FORMAT);
    one_tensor("type", 4, 2, 4, 0, 32, OMM_ERR_UNSUPPORTED);
    one_tensor("type", 4, 2, UINT32_MAX, 0, 32, OMM_ERR_UNSUPPORTED);
    one_tensor("gap", 4, 2, OMM_GGML_F32, 32, 64, OMM_ERR_FORMAT);
    one_tensor("behind", 4, 4, OMM_GGML_F32, 0, 32, OMM_ERR_SIZE);
    one_tensor("no-padding", 4, 3, OMM_GGML_F32, 0, 48, OMM_ERR_SIZE);
    one_tensor("more", 4, 2, OMM_GGML_F32, 0, 64, OMM_ERR_SIZE);
    one_tensor("elements", 1ull << 32, 1ull << 32, OMM_GGML_F32, 0, 32, OMM_ERR_TOO_BIG);
    one_tensor("elements", 1ull << 63, 1, OMM_GGML_F32, 0, 32, OMM_ERR_TOO_BIG);
    one_tensor("elements", 1ull << 63, 1, OMM_GGML_Q2_K, 0, 32, OMM_ERR_TOO_BIG);
    one_tensor("wrap", 3, 0x5555555555555558ull, OMM_GGML_F32, 0, 32, OMM_ERR_TOO_BIG); /* to 8 */
    one_tensor("bytes", 1ull << 62, 1, OMM_GGML_F32, 0, 32, OMM_ERR_TOO_BIG);
    one_tensor("bytes", 1ull << 61, 1, OMM_GGML_F32, 0, 32, OMM_ERR_TOO_BIG);
    one_tensor("most-bytes", 1ull << 60, 1, OMM_GGML_F32, 0, 32, OMM_ERR_SIZE);
    maker m;
    begin(&m, 3, 2, 0);
    info(&m, "twice", 4, 2, OMM_GGML_F32, 0);
    info(&m, "twice", 4, 2, OMM_GGML_F32, 32);
    end(&m, 64, OMM_ERR_FORMAT, "tensor twice");
    two_tensors(2, 32, 0, 64, "tensors out of order");
    two_tensors(2, 0, 0, 64, "two tensors at one offset");
    two_tensors(4, 0, 32, 96, "the second begins within the first");
    begin(&m, 3, 3, 0);
    info(&m, "one", 4, 2, OMM_GGML_F32, 0);
    info(&m, "two", 4, 2, OMM_GGML_F32, 32);
    info(&m, "three", 4, 2, OMM_GGML_F32, 0);
    end(&m, 96, OMM_ERR_FORMAT, "the third lies where the first does");
    for (uint32_t n_dims = 0; n_dims < 6; n_dims++) {
        begin(&m, 3, 1, 0);
        str(&m, "dims");
        u32(&m, n_dims);
        for (uint32_t d = 0; d < n_dims; d++) u64(&m, 1);
        u32(&m, OMM_GGML_F32);
        u64(&m, 0);
        end(&m, 32, n_dims < 1 || n_dims > 4 ? OMM_ERR_FORMAT : OMM_OK, "dimension count");
    }
}

/* A type that is not read is called by its name, beside those that are; a shape is no type. */
static void test_refusal_sentences(void) {
    static const struct {
        uint32_t type;
        const char *says;
    } cases[] = {
        {4, "tensor t: type Q4_2 is not read"},
        {9, "type Q8_1 is"},
        {16, "type IQ2_XXS is"},
        {17, "type IQ2_XS is"},
        {18, "type IQ3_XXS is"},
        {19, "type IQ1_S is"},
        {21, "type IQ3_S is"},
        {22, "type IQ2_S is"},
        {26, "type I32 is"},
        {28, "type F64 is"},
        {29, "type IQ1_M is"},
        {31, "type Q4_0_4_4 is"},
        {38, "type IQ4_NL_8_8 is"},
        {39, "type MXFP4 is"},
        {40, "type NVFP4 is"},
        {41, "type Q1_0 is"},
        {42, "type Q2_0 is"},
        {43, "type 43 is none of ggml's"},
        {200, "tensor t: type 200 is none of ggml's"},
        {UINT32_MAX, "type 4294967295 is none of ggml's"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        one_tensor("t", 256, 2, cases[i].type, 0, 2048, OMM_ERR_UNSUPPORTED);
        says(cases[i].says);
        says(": F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, "
             "IQ4_XS, "
             "BF16, TQ1_0, TQ2_0");
    }
    /* Each number up to the last has one name or the other: a type that is added here leaves no hole. */
    for (uint32_t type = 0; type <= 42; type++) {
        if (omm_ggml_find(type)) continue;
        one_tensor("t", 256, 2, type, 0, 2048, OMM_ERR_UNSUPPORTED);
        says("is not read; these are: F32, F16, Q4_0");
    }
    one_tensor("t", 31, 2, OMM_GGML_Q8_0, 0, 96, OMM_ERR_FORMAT);
    says("tensor t: Q8_0 rows have a multiple of 32 elements, not 31");
    one_tensor("t", 4, 0, OMM_GGML_F32, 0, 32, OMM_ERR_FORMAT);
    says("tensor t: dimension 1 is zero");
}

/* Other versions have other blocks under the same types: that matters where there are blocks. */
static void test_block_versions(void) {
    static const uint32_t versions[] = {0, 1, 2, 3, 7, UINT32_MAX};
    maker m;
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        begin(&m, 3, 2, 1);
        kv_u32(&m, "general.quantization_version", versions[i]);
        info(&m, "plain", 4, 2, OMM_GGML_F32, 0);
        info(&m, "blocks", 32, 1, OMM_GGML_Q8_0, 32);
        end(&m, 96, versions[i] == 2 ? OMM_OK : OMM_ERR_VERSION, "quantised, of a version");
        begin(&m, 3, 1, 1);
        kv_u32(&m, "general.quantization_version", versions[i]);
        info(&m, "plain", 4, 2, OMM_GGML_F32, 0);
        end(&m, 32, OMM_OK, "not quantised, of a version");
    }
    begin(&m, 3, 1, 1);
    kv_u32(&m, "general.quantization_version", 1);
    info(&m, "blocks", 32, 1, OMM_GGML_Q8_0, 0);
    end(&m, 64, OMM_ERR_VERSION, "version 1");
    says(
        "general.quantization_version is 1, with a tensor of type Q8_0 (blocks): quantised tensors "
        "are read as of version 2, or where the key is absent");
    one_tensor("blocks", 32, 1, OMM_GGML_Q8_0, 0, 64, OMM_OK);
    begin(&m, 3, 0, 1);
    str(&m, "general.quantization_version");
    u32(&m, OMM_GGUF_STRING);
    str(&m, "2");
    end(&m, 0, OMM_ERR_FORMAT, "a version that is no number");
    says("general.quantization_version is a string");
}

/* An adapter where a model is wanted, and what says of itself that it is something else. */
static void test_adapters(void) {
    static const struct {
        uint32_t kind;
        const char *type; /* NULL: no such key */
        omm_err err;
    } cases[] = {{OMM_GGUF_STRING, NULL, OMM_OK},
                 {OMM_GGUF_STRING, "model", OMM_OK},
                 {OMM_GGUF_STRING, "adapters", OMM_OK},
                 {OMM_GGUF_STRING, "adapter", OMM_ERR_UNSUPPORTED},
                 {OMM_GGUF_U32, "", OMM_ERR_FORMAT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        maker m;
        omm_gguf g;
        begin(&m, 3, 0, cases[i].type ? 1 : 0);
        if (cases[i].kind == OMM_GGUF_U32) {
            kv_u32(&m, "general.type", 0);
        } else if (cases[i].type) {
            str(&m, "general.type");
            u32(&m, OMM_GGUF_STRING);
            str(&m, cases[i].type);
        }
        CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&m.b)));
        CHECK_ERR(omm_gguf_refuse_adapter(&g), cases[i].err);
        if (cases[i].err == OMM_ERR_UNSUPPORTED) says("an adapter, not a model");
        omm_gguf_close(&g);
        omm_buf_fini(&m.b);
    }
}

/* A text that is one no longer where it ends at its NUL. */
static void test_text_with_nul(void) {
    maker m;
    omm_gguf g;
    char text[8] = "";
    begin(&m, 3, 0, 1);
    str(&m, "k");
    u32(&m, OMM_GGUF_STRING);
    u64(&m, 3);
    CHECK_OK(omm_buf_append(&m.b, "a\0b", 3));
    CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&m.b)));
    CHECK_ERR(omm_gguf_get_text(text, sizeof text, &g, "k"), OMM_ERR_FORMAT);
    says("k has a NUL inside");
    CHECK_EQ(text[0], 0);
    omm_gguf_close(&g);
    omm_buf_fini(&m.b);
}

static void test_writer_refuses(void) {
    const uint64_t dims[1] = {4};
    const omm_bytes data = omm_bytes_of(s_weights, 16);
    for (int what = 0; what < 5; what++) {
        omm_buf out;
        omm_gguf_writer w;
        omm_buf_init(&out, FILE_MAX);
        omm_gguf_writer_init(&w);
        omm_gguf_put_tensor(&w, "t", OMM_GGML_F32, 1, dims, data);
        omm_gguf_put_u32(&w, "k", 1);
        if (what == 0) omm_gguf_put_tensor(&w, "t", OMM_GGML_F32, 1, dims, data);
        if (what == 1) omm_gguf_put_u32(&w, "k", 2);
        if (what == 2)
            omm_gguf_put_tensor(&w, "u", OMM_GGML_F32, 1, dims, omm_bytes_of(s_weights, 12));
        if (what == 3) omm_gguf_put_tensor(&w, "u", 77, 1, dims, data);
        if (what == 4) omm_gguf_put_alignment(&w, 64); /* after a tensor */
        CHECK(omm_gguf_writer_finish(&out, &w) != OMM_OK);
        CHECK_EQ(out.size, 0);
        omm_gguf_writer_fini(&w);
        omm_buf_fini(&out);
    }
}

/* What comes first counts, and stands for all that follows. */
static void test_writer_keeps_the_first_error(void) {
    static const uint32_t alignments[] = {0, 4, 24, OMM_GGUF_ALIGNMENT_MAX * 2};
    const uint64_t dims[1] = {4};
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
        omm_buf out;
        omm_gguf_writer w;
        omm_buf_init(&out, FILE_MAX);
        omm_gguf_writer_init(&w);
        omm_gguf_put_alignment(&w, alignments[i]);
        omm_gguf_put_tensor(&w, "t", 77, 1, dims, omm_bytes_of(s_weights, 16));
        omm_gguf_put_array(&w, "a", OMM_GGUF_U8, s_weights, (size_t)OMM_GGUF_ARRAY_MAX + 1);
        CHECK_ERR(omm_gguf_writer_header(&out, &w), OMM_ERR_FORMAT);
        CHECK_ERR(omm_gguf_writer_finish(&out, &w), OMM_ERR_FORMAT);
        CHECK_EQ(out.size, 0);
        omm_gguf_writer_fini(&w);
        omm_buf_fini(&out);
    }
}

/* Behind what a buffer has already; where it has no room for all, that alone stays. */
static void test_writer_appends(void) {
    const uint64_t dims[1] = {4};
    omm_gguf g;
    for (size_t room = 3; room < 400; room += 17) {
        omm_buf out, alone;
        omm_gguf_writer w;
        omm_buf_init(&out, room);
        omm_buf_init(&alone, FILE_MAX);
        CHECK_OK(omm_buf_append(&out, "abc", 3));
        omm_gguf_writer_init(&w);
        omm_gguf_put_alignment(&w, 32);
        omm_gguf_put_u32(&w, "k", 1);
        omm_gguf_put_tensor(&w, "t", OMM_GGML_F32, 1, dims, omm_bytes_of(s_weights, 16));
        CHECK_OK(omm_gguf_writer_finish(&alone, &w));
        CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&alone)));
        CHECK(omm_gguf_find(&g, "general.alignment") == NULL);
        const size_t head = (size_t)g.data_offset;
        omm_gguf_close(&g);
        CHECK_ERR(omm_gguf_writer_header(&out, &w), room < 3 + head ? OMM_ERR_TOO_BIG : OMM_OK);
        CHECK_EQ(out.size, room < 3 + head ? 3 : 3 + head);
        out.size = 3;
        const bool fits = room >= 3 + alone.size;
        CHECK_ERR(omm_gguf_writer_finish(&out, &w), fits ? OMM_OK : OMM_ERR_TOO_BIG);
        CHECK_EQ(out.size, fits ? 3 + alone.size : 3);
        CHECK(memcmp(out.data, "abc", 3) == 0);
        if (fits) CHECK(memcmp(out.data + 3, alone.data, alone.size) == 0);
        omm_gguf_writer_fini(&w);
        omm_buf_fini(&alone);
        omm_buf_fini(&out);
    }
}

/* Whole numbers of every width and sign. */
static void test_integers(void) {
    static const struct {
        uint64_t value;
        size_t size;
        uint32_t kind;
        bool fits;
    } cases[] = {
        {200, 1, OMM_GGUF_U8, true},          {0x80, 1, OMM_GGUF_I8, false},
        {0x7f, 1, OMM_GGUF_I8, true},         {65535, 2, OMM_GGUF_U16, true},
        {0xffff, 2, OMM_GGUF_I16, false},     {0x80000000, 4, OMM_GGUF_I32, false},
        {0x7fffffff, 4, OMM_GGUF_I32, true},  {UINT32_MAX, 8, OMM_GGUF_U64, true},
        {1ull << 32, 8, OMM_GGUF_U64, false}, {UINT64_MAX, 8, OMM_GGUF_I64, false},
        {12, 8, OMM_GGUF_I64, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        maker m;
        uint8_t bytes[8];
        begin(&m, 3, 0, 1);
        str(&m, "n");
        u32(&m, cases[i].kind);
        omm_put_u64(bytes, cases[i].value);
        CHECK_OK(omm_buf_append(&m.b, bytes, cases[i].size));
        omm_gguf g;
        uint32_t v = 0;
        CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&m.b)));
        CHECK_ERR(omm_gguf_get_u32(&v, &g, "n"), cases[i].fits ? OMM_OK : OMM_ERR_FORMAT);
        CHECK_EQ(v, cases[i].fits ? cases[i].value : 0);
        CHECK_EQ(g.data_offset, m.b.size); /* keys alone */
        omm_gguf_close(&g);
        omm_buf_fini(&m.b);
    }
}

/* Wide floats, where they are numbers of the narrow kind. */
static void test_floats(void) {
    static const struct {
        double value;
        bool fits;
    } cases[] = {{0.5, true},
                 {-1e-3, true},
                 {1e30, true},
                 {-3.3e38, true},
                 {1e39, false},
                 {-1e39, false},
                 {(double)INFINITY, false},
                 {(double)NAN, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        maker m;
        omm_gguf g;
        float v = 7.0f;
        begin(&m, 3, 0, 1);
        str(&m, "x");
        u32(&m, OMM_GGUF_F64);
        u64(&m, omm_f64_to_bits(cases[i].value));
        CHECK_OK(omm_gguf_open_bytes(&g, omm_buf_view(&m.b)));
        CHECK_ERR(omm_gguf_get_f32(&v, &g, "x"), cases[i].fits ? OMM_OK : OMM_ERR_FORMAT);
        CHECK(v == (cases[i].fits ? (float)cases[i].value : 7.0f));
        omm_gguf_close(&g);
        omm_buf_fini(&m.b);
    }
}

static void test_types(void) {
    size_t count = 0;
    const omm_ggml_info *all = omm_ggml_all(&count);
    for (size_t i = 0; i < count; i++) {
        CHECK(omm_ggml_find(all[i].type) == &all[i]);
        CHECK(omm_ggml_find_name(all[i].name) == &all[i]);
        CHECK(i == 0 || all[i - 1].type < all[i].type);
    }
    CHECK(omm_ggml_find_name("q8_0") == omm_ggml_find(OMM_GGML_Q8_0));
    CHECK(omm_ggml_find_name("Q8") == NULL);
    CHECK(strcmp(omm_gguf_kind_name(OMM_GGUF_F64), "f64") == 0);
}

int main(void) {
    omm_buf file;
    omm_buf_init(&file, FILE_MAX);
    CHECK_OK(write_sample(&file, 32));
    test_types();
    test_round_trip(32);
    test_round_trip(8);
    test_round_trip(256);
    test_version_2();
    test_streaming(32);
    test_streaming(256);
    test_truncations(&file);
    test_bit_flips(&file);
    test_wild_lengths(&file);
    test_allocations();
    test_refuse_header();
    test_refuse_keys();
    test_refuse_values();
    test_refuse_tensors();
    test_refusal_sentences();
    test_block_versions();
    test_adapters();
    test_text_with_nul();
    test_writer_refuses();
    test_writer_keeps_the_first_error();
    test_writer_appends();
    test_integers();
    test_floats();
    omm_buf_fini(&file);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

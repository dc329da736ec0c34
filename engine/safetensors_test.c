/* safetensors_test.c - the tensor file: one spelling, every truncation, each refusal by its reason. */
#include "omm/mem.h"
#include "omm/safetensors.h"

#include "omm_test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MAX = 1 << 20 };

static const uint8_t s_data[16] = {0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 1, 0, 0, 0, 0, 0, 0x80, 0x7f};

static void put(omm_buf *out, const char *header, size_t data_bytes) {
    uint8_t *data = NULL;
    omm_buf_clear(out);
    CHECK_OK(omm_buf_put_u64(out, strlen(header)));
    CHECK_OK(omm_buf_append(out, header, strlen(header)));
    CHECK_OK(omm_buf_extend(out, &data, data_bytes));
}

/* What the format's own writer makes of these tensors. */
static void test_write(void) {
    static const uint8_t halves[6] = {0, 0x3c, 0, 0xc0, 1, 0};
    static const uint8_t brain[2] = {0x80, 0x3f};
    const omm_safetensor tensors[] = {
        {.name = "z", .type = OMM_SAFETENSORS_BF16, .data = {brain, 2}},
        {.name = "b\"\xc3\xa9",
         .type = OMM_SAFETENSORS_F16,
         .n_dims = 1,
         .dims = {3},
         .data = {halves, 6}},
        {.name = "c",
         .type = OMM_SAFETENSORS_F32,
         .n_dims = 2,
         .dims = {2, 2},
         .data = {s_data, 16}},
        {.name = "a",
         .type = OMM_SAFETENSORS_F32,
         .n_dims = 2,
         .dims = {0, 5},
         .data = {s_data, 0}},
    };
    static const char want[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[0,0]},"
        "\"c\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
        "\"b\\\"\xc3\xa9\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[16,22]},"
        "\"z\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[22,24]}}";
    omm_buf out, again;
    omm_safetensors f;
    omm_buf_init(&out, FILE_MAX);
    omm_buf_init(&again, FILE_MAX);
    CHECK_OK(omm_safetensors_write(&out, tensors, 4));
    const omm_safetensor turned[] = {tensors[3], tensors[1], tensors[0], tensors[2]};
    CHECK_OK(omm_safetensors_write(&again, turned, 4));
    CHECK(omm_bytes_equal(omm_buf_view(&out), omm_buf_view(&again)));
    const size_t header = (sizeof want - 1 + 7) / 8 * 8;
    CHECK_EQ(omm_get_u64(out.data), header);
    CHECK(memcmp(out.data + 8, want, sizeof want - 1) == 0);
    CHECK_EQ(out.size, 8 + header + 24);
    CHECK_OK(omm_safetensors_open_bytes(&f, omm_buf_view(&out)));
    CHECK_EQ(f.count, 4);
    CHECK(omm_safetensors_find(&f, "y") == NULL);
    const omm_safetensor *c = omm_safetensors_find(&f, "c"), *z = omm_safetensors_find(&f, "z");
    const omm_safetensor *b = omm_safetensors_find(&f, "b\"\xc3\xa9");
    CHECK_EQ(omm_safetensor_count(c), 4);
    CHECK(omm_safetensor_get(c, 0) == 1.0f && omm_safetensor_get(c, 1) == -2.0f);
    CHECK(omm_safetensor_get(c, 2) == 0x1p-149f && isinf(omm_safetensor_get(c, 3)));
    CHECK(omm_safetensor_get(b, 1) == -2.0f && omm_safetensor_get(b, 2) == 0x1p-24f);
    CHECK(omm_safetensor_get(z, 0) == 1.0f && omm_safetensor_count(z) == 1);
    for (size_t size = 0; size < out.size; size++) {
        omm_safetensors cut;
        CHECK(omm_safetensors_open_bytes(&cut, omm_bytes_of(out.data, size)) != OMM_OK);
    }
    omm_safetensors_close(&f);
    omm_buf_fini(&out);
    omm_buf_fini(&again);
}

/* One entry more, which any reader of the format has; "format" is there already. */
static void test_metadata(void) {
    static const char want[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"a \\\"key\\\"\":\"text\"},\"a\":";
    const omm_safetensor one = {.name = "a", .n_dims = 1, .dims = {4}, .data = {s_data, 16}};
    const char *const bad[][2] = {
        {"format", "np"}, {"", "text"}, {"key", ""}, {"\xff", "text"}, {"key", "\xff"}};
    omm_buf out;
    omm_safetensors f;
    omm_buf_init(&out, FILE_MAX);
    CHECK_OK(omm_safetensors_write_with(&out, &one, 1, "a \"key\"", "text"));
    CHECK(memcmp(out.data + 8, want, sizeof want - 1) == 0);
    CHECK_OK(omm_safetensors_open_bytes(&f, omm_buf_view(&out)));
    CHECK(strcmp(omm_safetensors_metadata(&f, "a \"key\""), "text") == 0);
    CHECK(strcmp(omm_safetensors_metadata(&f, "format"), "pt") == 0);
    CHECK(omm_safetensors_metadata(&f, "a") == NULL);
    omm_safetensors_close(&f);
    const size_t size = out.size;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_ERR(omm_safetensors_write_with(&out, &one, 1, bad[i][0], bad[i][1]), OMM_ERR_FORMAT);
        CHECK_EQ(out.size, size);
    }
    omm_buf_fini(&out);
}

static void test_write_refusals(void) {
    omm_safetensor two[2] = {
        {.name = "a", .n_dims = 1, .dims = {4}, .data = {s_data, 16}},
        {.name = "a", .n_dims = 1, .dims = {4}, .data = {s_data, 16}},
    };
    omm_buf out;
    omm_buf_init(&out, FILE_MAX);
    CHECK_ERR(omm_safetensors_write(&out, two, 2), OMM_ERR_FORMAT);
    two[1].name = "";
    CHECK_ERR(omm_safetensors_write(&out, two, 2), OMM_ERR_FORMAT);
    two[1].name = "\xff";
    CHECK_ERR(omm_safetensors_write(&out, two, 2), OMM_ERR_FORMAT);
    two[1].name = "b";
    two[1].dims[0] = 3;
    CHECK_ERR(omm_safetensors_write(&out, two, 2), OMM_ERR_SIZE);
    CHECK(strstr(omm_err_sentence(), "tensor 'b' of 16 bytes, its shape wants 12"));
    CHECK_ERR(omm_safetensors_write(&out, two, OMM_SAFETENSORS_TENSORS_MAX + 1), OMM_ERR_TOO_BIG);
    CHECK_EQ(out.size, 0);
    CHECK_OK(omm_safetensors_write(&out, two, 0));
    omm_buf_fini(&out);
}

#define T(type, shape, from, to)                                                                   \
    "{\"dtype\":\"" type "\",\"shape\":[" shape "],\"data_offsets\":[" from "," to "]}"

static void test_refusals(void) {
    static const struct {
        const char *header;
        size_t data;
        omm_err err;
    } cases[] = {
        {"{\"a\":" T("F32", "2,2", "0", "16") "}   ", 16, OMM_OK},
        {"{\"a\":" T("F32", "2,2", "0", "16") "}", 15, OMM_ERR_SIZE},
        {"{\"a\":" T("F32", "2,2", "0", "16") "}", 17, OMM_ERR_SIZE},
        {"{\"a\":" T("F32", "2,2", "0", "15") "}", 15, OMM_ERR_FORMAT},
        {"{\"a\":" T("F32", "1", "4", "8") "}", 8, OMM_ERR_FORMAT}, /* hole before */
        {"{\"a\":" T("F32", "1", "0", "4") ",\"b\":" T("F32", "1", "8", "12") "}", 12,
         OMM_ERR_FORMAT},
        {"{\"a\":" T("F32", "2", "0", "8") ",\"b\":" T("F32", "1", "4", "8") "}", 8,
         OMM_ERR_FORMAT},
        {"{\"a\":" T("F32", "1", "0", "4") ",\"b\":" T("F32", "1", "0", "4") "}", 4,
         OMM_ERR_FORMAT},
        {"{\"a\":" T("I64", "1", "0", "8") "}", 8, OMM_ERR_UNSUPPORTED},
        {"{\"a\":" T("F64", "1", "0", "8") "}", 8, OMM_ERR_UNSUPPORTED},
        {"{\"a\":" T("f32", "1", "0", "4") "}", 4, OMM_ERR_UNSUPPORTED},
        {"{\"a\":" T("F32", "-1", "0", "4") "}", 4, OMM_ERR_FORMAT},
        {"{\"a\":" T("F32", "1.0", "0", "4") "}", 4, OMM_ERR_FORMAT},
        {"{\"a\":" T("F32", "4294967296,4294967296", "0", "0") "}", 0, OMM_ERR_TOO_BIG},
        {"{\"a\":" T("F32", "1,1,1,1,1,1,1,1,1", "0", "4") "}", 4, OMM_ERR_TOO_BIG},
        {"{\"a\":" T("F32", "1", "4", "0") "}", 4, OMM_ERR_FORMAT},
        {"{\"a\":" T("F32", "1", "-4", "0") "}", 4, OMM_ERR_FORMAT},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, OMM_ERR_FORMAT},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", 4, OMM_ERR_FORMAT},
        {"{\"b\":" T("F32", "1", "0", "4") ",\"a\":" T("F32", "0", "0", "0") "}", 4, OMM_OK},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"offsets\":[0,4]}}", 4, OMM_ERR_NOT_FOUND},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, OMM_ERR_FORMAT},
        {"{\"a\":[]}", 0, OMM_ERR_FORMAT},
        {"{\"\":" T("F32", "1", "0", "4") "}", 4, OMM_ERR_TOO_BIG},
        {"{\"a\":" T("F32", "1", "0", "4") ",\"a\":" T("F32", "1", "0", "4") "}", 4,
         OMM_ERR_FORMAT},
        {"{\"__metadata__\":{\"a\":1}}", 0, OMM_ERR_FORMAT},
        {"{\"__metadata__\":[]}", 0, OMM_ERR_FORMAT},
        {"{\"__metadata__\":{\"a\":\"b\"}}", 0, OMM_OK},
        {" {}", 0, OMM_ERR_FORMAT},
        {"[]", 0, OMM_ERR_FORMAT},
        {"", 0, OMM_ERR_FORMAT},
        {"{}x", 0, OMM_ERR_FORMAT},
    };
    omm_buf out;
    omm_buf_init(&out, FILE_MAX);
    const size_t live = omm_mem_live();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_safetensors f = {0};
        put(&out, cases[i].header, cases[i].data);
        omm_err err = omm_safetensors_open_bytes(&f, omm_buf_view(&out));
        if (err != cases[i].err) fprintf(stderr, "header: %s\n", cases[i].header);
        CHECK_ERR(err, cases[i].err);
        if (err == OMM_ERR_UNSUPPORTED) CHECK(strstr(omm_err_sentence(), "'a'") != NULL);
        omm_safetensors_close(&f);
    }
    put(&out, "{}", 0);
    static const uint64_t sizes[] = {3, 1u << 25, UINT64_MAX};
    for (int i = 0; i < 3; i++) {
        omm_safetensors f;
        omm_put_u64(out.data, sizes[i]);
        CHECK_ERR(omm_safetensors_open_bytes(&f, omm_buf_view(&out)),
                  i == 0 ? OMM_ERR_SIZE : OMM_ERR_TOO_BIG);
    }
    omm_buf_fini(&out);
    CHECK(omm_mem_live() <= live);
}

/* Names and tensors, as many as there may be and one more. */
static void test_limits(void) {
    char name[OMM_SAFETENSORS_NAME_MAX + 1];
    omm_buf header, out;
    omm_safetensors f;
    omm_buf_init(&out, 1 << 24);
    for (size_t size = OMM_SAFETENSORS_NAME_MAX - 1; size <= OMM_SAFETENSORS_NAME_MAX; size++) {
        memset(name, 'n', size);
        name[size] = 0;
        omm_buf_init(&header, FILE_MAX);
        CHECK_OK(omm_buf_printf(&header, "{\"%s\":" T("F32", "1", "0", "4") "}", name));
        CHECK_OK(omm_buf_append(&header, "", 1));
        put(&out, (const char *)header.data, 4);
        omm_buf_fini(&header);
        const bool fits = size < OMM_SAFETENSORS_NAME_MAX;
        CHECK_ERR(omm_safetensors_open_bytes(&f, omm_buf_view(&out)),
                  fits ? OMM_OK : OMM_ERR_TOO_BIG);
        if (fits) omm_safetensors_close(&f);
    }
    omm_buf_init(&header, 1 << 24);
    CHECK_OK(omm_buf_printf(&header, "{\"__metadata__\":{}"));
    for (unsigned i = 0; i <= OMM_SAFETENSORS_TENSORS_MAX; i++)
        CHECK_OK(omm_buf_printf(&header, ",\"%u\":" T("F32", "0", "0", "0"), i));
    CHECK_OK(omm_buf_append(&header, "}", 2));
    put(&out, (const char *)header.data, 0);
    CHECK_ERR(omm_safetensors_open_bytes(&f, omm_buf_view(&out)), OMM_ERR_TOO_BIG);
    CHECK(strstr(omm_err_sentence(), "at most 65536") != NULL);
    omm_buf_fini(&header);
    omm_buf_fini(&out);
}

static void test_file_and_memory(void) {
    char path[] = "/tmp/omm-safetensors-XXXXXX";
    const omm_safetensor one = {.name = "a", .n_dims = 1, .dims = {4}, .data = {s_data, 16}};
    omm_safetensors f;
    omm_buf out;
    omm_buf_init(&out, FILE_MAX);
    close(mkstemp(path));
    CHECK_OK(omm_safetensors_write(&out, &one, 1));
    CHECK_OK(omm_file_write_fast(path, omm_buf_view(&out), 0644));
    CHECK_OK(omm_safetensors_open(&f, path));
    CHECK(omm_bytes_equal(f.tensors[0].data, one.data));
    omm_safetensors_close(&f);
    const size_t live = omm_mem_live();
    omm_err err = OMM_ERR_NOMEM;
    for (size_t nth = 1; err != OMM_OK; nth++) {
        omm_mem_fail_nth(nth);
        err = omm_safetensors_open(&f, path);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
        if (err == OMM_OK) omm_safetensors_close(&f);
        CHECK_EQ(omm_mem_live(), live);
    }
    err = OMM_ERR_NOMEM;
    for (size_t nth = 1; err != OMM_OK; nth++) {
        omm_buf again;
        omm_buf_init(&again, FILE_MAX);
        omm_mem_fail_nth(nth);
        err = omm_safetensors_write(&again, &one, 1);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || (err == OMM_ERR_NOMEM && again.size == 0));
        omm_buf_fini(&again);
    }
    CHECK_OK(omm_file_remove(path));
    CHECK_ERR(omm_safetensors_open(&f, path), OMM_ERR_NOT_FOUND);
    omm_buf_fini(&out);
}

int main(void) {
    test_write();
    test_metadata();
    test_write_refusals();
    test_refusals();
    test_limits();
    test_file_and_memory();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

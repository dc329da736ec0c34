/* gguf.c - look-up and typed access in a GGUF file that has been checked. */
#include "gguf_internal.h"

#include <math.h>
#include <string.h>

#define DIGEST_PIECE_BYTES ((size_t)1 << 20)

static const struct {
    const char *name;
    uint32_t bytes;
} s_kinds[OMM_GGUF_KIND_COUNT] = {
    [OMM_GGUF_U8] = {"u8", 1},         [OMM_GGUF_I8] = {"i8", 1},
    [OMM_GGUF_U16] = {"u16", 2},       [OMM_GGUF_I16] = {"i16", 2},
    [OMM_GGUF_U32] = {"u32", 4},       [OMM_GGUF_I32] = {"i32", 4},
    [OMM_GGUF_F32] = {"f32", 4},       [OMM_GGUF_BOOL] = {"bool", 1},
    [OMM_GGUF_STRING] = {"string", 0}, [OMM_GGUF_ARRAY] = {"array", 0},
    [OMM_GGUF_U64] = {"u64", 8},       [OMM_GGUF_I64] = {"i64", 8},
    [OMM_GGUF_F64] = {"f64", 8},
};

const char *omm_gguf_kind_name(omm_gguf_kind kind) {
    return (unsigned)kind < OMM_GGUF_KIND_COUNT ? s_kinds[kind].name : "?";
}

uint32_t gguf_kind_bytes(omm_gguf_kind kind) {
    return s_kinds[kind].bytes;
}

int gguf_compare(omm_bytes a, omm_bytes b) {
    size_t n = a.size < b.size ? a.size : b.size;
    int c = n ? memcmp(a.data, b.data, n) : 0;
    if (c != 0) return c;
    return (a.size > b.size) - (a.size < b.size);
}

omm_err omm_gguf_tensor_bytes(uint64_t *out, uint32_t type, uint32_t n_dims, const uint64_t *dims) {
    const omm_ggml_info *info = omm_ggml_find(type);
    if (!info) return ggml_refuse(type);
    OMM_ASSERT(n_dims >= 1);
    OMM_ASSERT(n_dims <= OMM_GGUF_DIMS_MAX);
    uint64_t elements = 1;
    for (uint32_t d = 0; d < n_dims; d++) {
        if (dims[d] == 0) return omm_raise(OMM_ERR_FORMAT, "dimension %u is zero", d);
        if (__builtin_mul_overflow(elements, dims[d], &elements) || elements > INT64_MAX)
            return omm_raise(OMM_ERR_TOO_BIG, "2^63 elements or more");
    }
    if (dims[0] % info->block != 0)
        return omm_raise(OMM_ERR_FORMAT, "%s rows have a multiple of %u elements, not %llu",
                         info->name, info->block, (unsigned long long)dims[0]);
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(elements / info->block, (uint64_t)info->bytes, &bytes) ||
        bytes > INT64_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "2^63 bytes or more");
    *out = bytes;
    return OMM_OK;
}

omm_err gguf_named_bytes(uint64_t *out, const char *name, uint32_t type, uint32_t n_dims,
                         const uint64_t *dims) {
    omm_err err = omm_gguf_tensor_bytes(out, type, n_dims, dims);
    return err == OMM_OK ? OMM_OK : omm_raise(err, "GGUF: tensor %s: %s", name, omm_err_sentence());
}

const omm_gguf_tensor *omm_gguf_tensor_at(const omm_gguf *gguf, omm_bytes rows) {
    const omm_gguf_tensor *t = gguf->tensors;
    while (rows.data < t->data.data || rows.data >= t->data.data + t->data.size) {
        t++;
        OMM_ASSERT(t < gguf->tensors + gguf->tensor_count);
    }
    return t;
}

omm_err omm_gguf_of_tensor(omm_err err, const char *name) {
    return err == OMM_OK ? OMM_OK : omm_raise(err, "tensor '%s': %s", name, omm_err_sentence());
}

const omm_gguf_kv *omm_gguf_find(const omm_gguf *gguf, const char *key) {
    return gguf_find_kv(gguf, omm_bytes_of(key, strlen(key)));
}

const omm_gguf_kv *gguf_find_kv(const omm_gguf *gguf, omm_bytes wanted) {
    size_t lo = 0;
    size_t hi = gguf->kv_count;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const omm_gguf_kv *kv = &gguf->kvs[gguf->kv_order[mid]];
        int c = gguf_compare(kv->key, wanted);
        if (c == 0) return kv;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

uint64_t omm_gguf_bytes(const omm_gguf *gguf) {
    uint64_t bytes = gguf->view.size;
    for (uint32_t i = 1; i < gguf->part_count; i++) bytes += gguf->more[i - 1].view.size;
    return bytes;
}

/* Its pages go back as they were read: all of a model beside what is packed of it would pass limits of memory. */
static void hash_view(omm_hasher *h, const omm_map *map, omm_bytes view) {
    for (size_t at = 0; at < view.size; at += DIGEST_PIECE_BYTES) {
        const size_t left = view.size - at;
        const omm_bytes piece =
            omm_bytes_of(view.data + at, left < DIGEST_PIECE_BYTES ? left : DIGEST_PIECE_BYTES);
        omm_hasher_update(h, piece);
        omm_map_release(map, piece);
    }
}

omm_digest omm_gguf_digest(const omm_gguf *gguf) {
    omm_hasher h;
    omm_hasher_init(&h);
    hash_view(&h, &gguf->map, gguf->view);
    for (uint32_t i = 1; i < gguf->part_count; i++)
        hash_view(&h, &gguf->more[i - 1], gguf->more[i - 1].view);
    return omm_hasher_final(&h);
}

void omm_gguf_release(const omm_gguf *gguf, omm_bytes part) {
    omm_map_release(&gguf->map, part);
    for (uint32_t i = 1; i < gguf->part_count; i++) omm_map_release(&gguf->more[i - 1], part);
}

void omm_gguf_release_all(const omm_gguf *gguf) {
    omm_map_release(&gguf->map, gguf->map.view);
    for (uint32_t i = 1; i < gguf->part_count; i++)
        omm_map_release(&gguf->more[i - 1], gguf->more[i - 1].view);
}

void omm_gguf_prefetch(const omm_gguf *gguf, omm_bytes part) {
    omm_map_prefetch(&gguf->map, part);
    for (uint32_t i = 1; i < gguf->part_count; i++) omm_map_prefetch(&gguf->more[i - 1], part);
}

omm_err omm_gguf_check_unchanged(const omm_gguf *gguf) {
    OMM_TRY(omm_map_check_unchanged(&gguf->map));
    for (uint32_t i = 1; i < gguf->part_count; i++)
        OMM_TRY(omm_map_check_unchanged(&gguf->more[i - 1]));
    return OMM_OK;
}

const omm_gguf_tensor *omm_gguf_find_tensor(const omm_gguf *gguf, const char *name) {
    size_t lo = 0;
    size_t hi = gguf->tensor_count;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const omm_gguf_tensor *t = &gguf->tensors[gguf->tensor_order[mid]];
        int c = strcmp(t->name, name);
        if (c == 0) return t;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

static omm_err find(const omm_gguf_kv **out, const omm_gguf *gguf, const char *key) {
    *out = omm_gguf_find(gguf, key);
    return *out ? OMM_OK : omm_raise(OMM_ERR_NOT_FOUND, "GGUF: key %s is missing", key);
}

static omm_err wrong(const omm_gguf_kv *kv, const char *key, const char *wanted) {
    return omm_raise(OMM_ERR_FORMAT, "GGUF: %s is %s %s, wanted %s", key,
                     kv->kind == OMM_GGUF_ARRAY ? "an array of" : "a",
                     omm_gguf_kind_name(kv->element), wanted);
}

/* A whole number of any width, if it is not negative. */
static bool as_unsigned(uint64_t *out, const omm_gguf_kv *kv) {
    const uint8_t *p = kv->data.data;
    uint64_t v = 0;
    bool negative = false;
    switch (kv->kind) {
    case OMM_GGUF_U8: v = p[0]; break;
    case OMM_GGUF_U16: v = omm_get_u16(p); break;
    case OMM_GGUF_U32: v = omm_get_u32(p); break;
    case OMM_GGUF_U64: v = omm_get_u64(p); break;
    case OMM_GGUF_I8: v = p[0], negative = v >> 7; break;
    case OMM_GGUF_I16: v = omm_get_u16(p), negative = v >> 15; break;
    case OMM_GGUF_I32: v = omm_get_u32(p), negative = v >> 31; break;
    case OMM_GGUF_I64: v = omm_get_u64(p), negative = v >> 63; break;
    default: return false;
    }
    if (negative) return false;
    *out = v;
    return true;
}

omm_err omm_gguf_get_u64(uint64_t *out, const omm_gguf *gguf, const char *key) {
    const omm_gguf_kv *kv = NULL;
    OMM_TRY(find(&kv, gguf, key));
    return as_unsigned(out, kv) ? OMM_OK : wrong(kv, key, "a whole number, zero or more");
}

omm_err omm_gguf_get_u32(uint32_t *out, const omm_gguf *gguf, const char *key) {
    uint64_t v = 0;
    OMM_TRY(omm_gguf_get_u64(&v, gguf, key));
    if (v > UINT32_MAX)
        return omm_raise(OMM_ERR_FORMAT, "GGUF: %s is %llu, at most %u fits", key,
                         (unsigned long long)v, UINT32_MAX);
    *out = (uint32_t)v;
    return OMM_OK;
}

omm_err omm_gguf_get_f32(float *out, const omm_gguf *gguf, const char *key) {
    const omm_gguf_kv *kv = NULL;
    OMM_TRY(find(&kv, gguf, key));
    float v = NAN;
    if (kv->kind == OMM_GGUF_F32) {
        v = omm_get_f32(kv->data.data);
    } else if (kv->kind == OMM_GGUF_F64) {
        double wide = omm_f64_of_bits(omm_get_u64(kv->data.data));
        if (wide >= -3.4e38 && wide <= 3.4e38) v = (float)wide; /* FLT_MAX is 3.40282e38 */
    }
    if (!isfinite(v)) return wrong(kv, key, "a finite f32");
    *out = v;
    return OMM_OK;
}

omm_err omm_gguf_get_bool(bool *out, const omm_gguf *gguf, const char *key) {
    const omm_gguf_kv *kv = NULL;
    OMM_TRY(find(&kv, gguf, key));
    if (kv->kind != OMM_GGUF_BOOL) return wrong(kv, key, "a bool");
    *out = kv->data.data[0] == 1;
    return OMM_OK;
}

omm_err omm_gguf_get_str(omm_bytes *out, const omm_gguf *gguf, const char *key) {
    const omm_gguf_kv *kv = NULL;
    OMM_TRY(find(&kv, gguf, key));
    if (kv->kind != OMM_GGUF_STRING) return wrong(kv, key, "a string");
    *out = kv->data;
    return OMM_OK;
}

omm_err omm_gguf_refuse_adapter(const omm_gguf *gguf) {
    omm_bytes type = {0};
    if (!omm_gguf_find(gguf, "general.type")) return OMM_OK;
    OMM_TRY(omm_gguf_get_str(&type, gguf, "general.type"));
    if (!omm_bytes_equal(type, omm_bytes_str("adapter"))) return OMM_OK;
    return omm_raise(OMM_ERR_UNSUPPORTED,
                     "an adapter, not a model: give the model that it was trained for, and this "
                     "file beside it, as --lora or, for train, as --start");
}

omm_err omm_gguf_get_text(char *out, size_t size, const omm_gguf *gguf, const char *key) {
    omm_bytes text = {0};
    OMM_TRY(omm_gguf_get_str(&text, gguf, key));
    if (text.size >= size)
        return omm_raise(OMM_ERR_TOO_BIG, "GGUF: %s has %zu bytes, at most %zu", key, text.size,
                         size - 1);
    if (text.size && memchr(text.data, 0, text.size))
        return omm_raise(OMM_ERR_FORMAT, "GGUF: %s has a NUL inside", key);
    if (text.size) memcpy(out, text.data, text.size);
    out[text.size] = 0;
    return OMM_OK;
}

omm_err omm_gguf_get_u32_or(uint32_t *out, const omm_gguf *gguf, const char *key,
                            uint32_t missing) {
    if (omm_gguf_find(gguf, key)) return omm_gguf_get_u32(out, gguf, key);
    *out = missing;
    return OMM_OK;
}

omm_err omm_gguf_get_f32_or(float *out, const omm_gguf *gguf, const char *key, float missing) {
    if (omm_gguf_find(gguf, key)) return omm_gguf_get_f32(out, gguf, key);
    *out = missing;
    return OMM_OK;
}

omm_err omm_gguf_get_bool_or(bool *out, const omm_gguf *gguf, const char *key, bool missing) {
    if (omm_gguf_find(gguf, key)) return omm_gguf_get_bool(out, gguf, key);
    *out = missing;
    return OMM_OK;
}

omm_err omm_gguf_get_array(const omm_gguf_kv **out, const omm_gguf *gguf, const char *key,
                           omm_gguf_kind element) {
    const omm_gguf_kv *kv = NULL;
    OMM_TRY(find(&kv, gguf, key));
    if (kv->kind != OMM_GGUF_ARRAY || kv->element != element) {
        char wanted[32] = "an array of ";
        strncat(wanted, omm_gguf_kind_name(element), sizeof wanted - strlen(wanted) - 1);
        return wrong(kv, key, wanted);
    }
    *out = kv;
    return OMM_OK;
}

void omm_gguf_strings(omm_bytes *out, const omm_gguf_kv *kv) {
    OMM_ASSERT(kv->kind == OMM_GGUF_ARRAY);
    OMM_ASSERT(kv->element == OMM_GGUF_STRING);
    omm_reader r = omm_reader_of(kv->data);
    for (uint64_t i = 0; i < kv->count; i++) {
        uint64_t size = omm_read_u64(&r);
        out[i] = omm_read_bytes(&r, (size_t)size);
    }
    OMM_ASSERT(!r.failed); /* the reader has checked every length */
}

/* gguf_read.c - checks a GGUF file from its first byte to its last and indexes it.
 *
 * Invariant: `at` of the reader never passes the end; a count is believed only after it was
 * compared with the limit in gguf.h and with the bytes that are left (each item has a least size).
 */
#include "gguf_internal.h"

#include "omm/mem.h"

#include <stdlib.h>
#include <string.h>

/* The least a key or tensor can take in the file: bounds the counts before anything is allocated.
 * kv: u64 length, 1 byte of key, u32 kind, 1 byte of value.  tensor: u64 length, 1 byte of name,
 * u32 n_dims, one u64 dimension, u32 type, u64 offset. */
enum { QUANTISATION_VERSION = 2 }; /* general.quantization_version */
enum { KV_BYTES_MIN = 8 + 1 + 4 + 1, TENSOR_BYTES_MIN = 8 + 1 + 4 + 8 + 4 + 8 };

static size_t left(const omm_reader *r) {
    return r->in.size - r->at;
}

static omm_err need(const omm_reader *r, uint64_t bytes, const char *what) {
    if (bytes <= left(r)) return OMM_OK;
    return omm_raise(OMM_ERR_SIZE, "GGUF: %s needs %llu bytes at offset %zu, %zu are left", what,
                     (unsigned long long)bytes, r->at, left(r));
}

/* A length-prefixed string of at most `max` bytes. */
static omm_err read_string(omm_bytes *out, omm_reader *r, uint64_t max, const char *what) {
    OMM_TRY(need(r, 8, what));
    uint64_t size = omm_read_u64(r);
    if (size > max)
        return omm_raise(OMM_ERR_TOO_BIG, "GGUF: %s of %llu bytes, at most %llu", what,
                         (unsigned long long)size, (unsigned long long)max);
    OMM_TRY(need(r, size, what));
    *out = omm_read_bytes(r, (size_t)size);
    return OMM_OK;
}

/* Names are printed and compared: visible ASCII only. */
static omm_err check_name(omm_bytes name, const char *what) {
    if (name.size == 0) return omm_raise(OMM_ERR_FORMAT, "GGUF: empty %s", what);
    for (size_t i = 0; i < name.size; i++)
        if (name.data[i] < 0x21 || name.data[i] > 0x7e)
            return omm_raise(OMM_ERR_FORMAT, "GGUF: %s with byte 0x%02x at position %zu", what,
                             name.data[i], i);
    return OMM_OK;
}

static omm_err check_bools(omm_bytes data, omm_bytes key) {
    for (size_t i = 0; i < data.size; i++)
        if (data.data[i] > 1)
            return omm_raise(OMM_ERR_FORMAT, "GGUF: %.*s: bool of value %u", gguf_shown(key),
                             (const char *)key.data, data.data[i]);
    return OMM_OK;
}

static omm_err read_elements(omm_gguf_kv *kv, omm_reader *r) {
    size_t begin = r->at;
    if (kv->element == OMM_GGUF_STRING) {
        for (uint64_t i = 0; i < kv->count; i++) {
            omm_bytes text = {0};
            OMM_TRY(read_string(&text, r, OMM_GGUF_STRING_MAX, "string in an array"));
        }
    } else {
        uint64_t bytes = kv->count * gguf_kind_bytes(kv->element); /* count <= 2^24, size <= 8 */
        OMM_TRY(need(r, bytes, "array"));
        (void)omm_read_bytes(r, (size_t)bytes);
    }
    kv->data = omm_bytes_of(r->in.data + begin, r->at - begin);
    return OMM_OK;
}

static omm_err read_array(omm_gguf_kv *kv, omm_reader *r) {
    OMM_TRY(need(r, 12, "array header"));
    uint32_t element = omm_read_u32(r);
    kv->count = omm_read_u64(r);
    if (element >= OMM_GGUF_KIND_COUNT || element == OMM_GGUF_ARRAY)
        return omm_raise(OMM_ERR_FORMAT, "GGUF: %.*s: array of kind %u", gguf_shown(kv->key),
                         (const char *)kv->key.data, element);
    if (kv->count > OMM_GGUF_ARRAY_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "GGUF: %.*s: %llu elements, at most %u",
                         gguf_shown(kv->key), (const char *)kv->key.data,
                         (unsigned long long)kv->count, OMM_GGUF_ARRAY_MAX);
    kv->element = (omm_gguf_kind)element;
    return read_elements(kv, r);
}

static omm_err read_kv(omm_gguf_kv *kv, omm_reader *r) {
    OMM_TRY(read_string(&kv->key, r, OMM_GGUF_KEY_MAX, "key"));
    OMM_TRY(check_name(kv->key, "key"));
    OMM_TRY(need(r, 4, "kind of a value"));
    uint32_t kind = omm_read_u32(r);
    if (kind >= OMM_GGUF_KIND_COUNT)
        return omm_raise(OMM_ERR_FORMAT, "GGUF: %.*s: kind %u", gguf_shown(kv->key),
                         (const char *)kv->key.data, kind);
    kv->kind = kv->element = (omm_gguf_kind)kind;
    kv->count = 1;
    if (kind == OMM_GGUF_STRING)
        return read_string(&kv->data, r, OMM_GGUF_STRING_MAX, "string value");
    if (kind == OMM_GGUF_ARRAY) {
        OMM_TRY(read_array(kv, r));
    } else {
        OMM_TRY(need(r, gguf_kind_bytes(kv->kind), "value"));
        kv->data = omm_read_bytes(r, gguf_kind_bytes(kv->kind));
    }
    return kv->element == OMM_GGUF_BOOL ? check_bools(kv->data, kv->key) : OMM_OK;
}

static omm_err read_dims(omm_gguf_tensor *t, omm_reader *r) {
    OMM_TRY(need(r, 4, "dimension count"));
    t->n_dims = omm_read_u32(r);
    if (t->n_dims < 1 || t->n_dims > OMM_GGUF_DIMS_MAX)
        return omm_raise(OMM_ERR_FORMAT, "GGUF: tensor %s has %u dimensions, 1 to %u are possible",
                         t->name, t->n_dims, OMM_GGUF_DIMS_MAX);
    OMM_TRY(need(r, 8ull * t->n_dims + 4 + 8, "tensor info"));
    for (uint32_t d = 0; d < OMM_GGUF_DIMS_MAX; d++)
        t->dims[d] = d < t->n_dims ? omm_read_u64(r) : 1;
    return OMM_OK;
}

static omm_err read_tensor(omm_gguf_tensor *t, uint64_t *bytes, omm_reader *r) {
    omm_bytes name = {0};
    OMM_TRY(read_string(&name, r, OMM_GGUF_NAME_MAX - 1, "tensor name"));
    OMM_TRY(check_name(name, "tensor name"));
    for (size_t i = 0; i < name.size; i++) t->name[i] = (char)name.data[i];
    OMM_TRY(read_dims(t, r));
    uint32_t type = omm_read_u32(r);
    t->offset = omm_read_u64(r);
    OMM_TRY(gguf_named_bytes(bytes, t->name, type, t->n_dims, t->dims));
    t->type = (omm_ggml_type)type;
    return OMM_OK;
}

static omm_err check_version(uint32_t version) {
    if (version >= GGUF_VERSION_MIN && version <= GGUF_VERSION) return OMM_OK;
    if (version == 1)
        return omm_raise(OMM_ERR_VERSION,
                         "GGUF version 1, which has lengths of 32 bits: only %u and %u are read",
                         GGUF_VERSION_MIN, GGUF_VERSION);
    if (version != 0 && (version & 0xffff) == 0) /* the number's bytes the other way round */
        return omm_raise(
            OMM_ERR_VERSION,
            "GGUF version %u in big-endian byte order: only little-endian files are read",
            __builtin_bswap32(version));
    return omm_raise(OMM_ERR_VERSION, "GGUF version %u: only %u and %u are read", version,
                     GGUF_VERSION_MIN, GGUF_VERSION);
}

static omm_err read_header(omm_gguf *g, omm_reader *r) {
    OMM_TRY(need(r, 24, "header"));
    uint32_t magic = omm_read_u32(r);
    uint32_t version = omm_read_u32(r);
    uint64_t tensor_count = omm_read_u64(r);
    uint64_t kv_count = omm_read_u64(r);
    if (magic != GGUF_MAGIC) return omm_raise(OMM_ERR_FORMAT, "not a GGUF file");
    OMM_TRY(check_version(version));
    if (kv_count > OMM_GGUF_KV_MAX || tensor_count > OMM_GGUF_TENSORS_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "GGUF: %llu keys and %llu tensors, at most %u of each",
                         (unsigned long long)kv_count, (unsigned long long)tensor_count,
                         OMM_GGUF_KV_MAX);
    OMM_TRY(
        need(r, kv_count * KV_BYTES_MIN + tensor_count * TENSOR_BYTES_MIN, "table of contents"));
    g->kv_count = (size_t)kv_count;
    g->tensor_count = (size_t)tensor_count;
    return OMM_OK;
}

static omm_err allocate(omm_gguf *g) {
    g->kvs = omm_alloc(g->kv_count + 1, sizeof *g->kvs);
    g->kv_order = omm_alloc(g->kv_count + 1, sizeof *g->kv_order);
    g->tensors = omm_alloc(g->tensor_count + 1, sizeof *g->tensors);
    g->tensor_order = omm_alloc(g->tensor_count + 1, sizeof *g->tensor_order);
    if (!g->kvs || !g->kv_order || !g->tensors || !g->tensor_order)
        return omm_raise(OMM_ERR_NOMEM, "GGUF: index of %zu keys and %zu tensors", g->kv_count,
                         g->tensor_count);
    return OMM_OK;
}

static int by_key(const void *a, const void *b, void *ud) {
    const omm_gguf *g = ud;
    return gguf_compare(g->kvs[*(const uint32_t *)a].key, g->kvs[*(const uint32_t *)b].key);
}

static int by_name(const void *a, const void *b, void *ud) {
    const omm_gguf *g = ud;
    return strcmp(g->tensors[*(const uint32_t *)a].name, g->tensors[*(const uint32_t *)b].name);
}

static omm_err index_keys(omm_gguf *g) {
    for (uint32_t i = 0; i < g->kv_count; i++) g->kv_order[i] = i;
    qsort_r(g->kv_order, g->kv_count, sizeof *g->kv_order, by_key, g);
    for (size_t i = 1; i < g->kv_count; i++)
        if (by_key(&g->kv_order[i - 1], &g->kv_order[i], g) == 0) {
            omm_bytes key = g->kvs[g->kv_order[i]].key;
            return omm_raise(OMM_ERR_FORMAT, "GGUF: key %.*s occurs twice", gguf_shown(key),
                             (const char *)key.data);
        }
    return OMM_OK;
}

omm_err gguf_index_tensors(omm_gguf *g) {
    for (uint32_t i = 0; i < g->tensor_count; i++) g->tensor_order[i] = i;
    qsort_r(g->tensor_order, g->tensor_count, sizeof *g->tensor_order, by_name, g);
    for (size_t i = 1; i < g->tensor_count; i++)
        if (by_name(&g->tensor_order[i - 1], &g->tensor_order[i], g) == 0)
            return omm_raise(OMM_ERR_FORMAT, "GGUF: tensor %s occurs twice",
                             g->tensors[g->tensor_order[i]].name);
    return OMM_OK;
}

static omm_err read_alignment(omm_gguf *g) {
    g->alignment = GGUF_ALIGNMENT;
    const omm_gguf_kv *kv = omm_gguf_find(g, "general.alignment");
    if (!kv) return OMM_OK;
    uint32_t a = kv->kind == OMM_GGUF_U32 ? omm_get_u32(kv->data.data) : 0;
    if (a < 8 || a > OMM_GGUF_ALIGNMENT_MAX || (a & (a - 1)) != 0)
        return omm_raise(OMM_ERR_FORMAT,
                         "GGUF: general.alignment must be a u32 power of two from 8 to %u",
                         OMM_GGUF_ALIGNMENT_MAX);
    g->alignment = a;
    return OMM_OK;
}

/* Each tensor begins where the one before ends, padded; the last is padded too. */
static omm_err place_tensor(omm_gguf *g, omm_gguf_tensor *t, uint64_t *offset, uint64_t bytes) {
    uint64_t room = g->view.size - g->data_offset;
    if (t->offset != *offset)
        return omm_raise(OMM_ERR_FORMAT, "GGUF: tensor %s at offset %llu, expected %llu", t->name,
                         (unsigned long long)t->offset, (unsigned long long)*offset);
    if (bytes > room - *offset)
        return omm_raise(OMM_ERR_SIZE, "GGUF: tensor %s of %llu bytes ends behind the file",
                         t->name, (unsigned long long)bytes);
    t->data = omm_bytes_of(g->view.data + g->data_offset + *offset, (size_t)bytes);
    uint64_t padded = gguf_pad(*offset + bytes, g->alignment);
    if (padded > room)
        return omm_raise(OMM_ERR_SIZE, "GGUF: padding after tensor %s is cut off", t->name);
    *offset = padded;
    return OMM_OK;
}

static omm_err place_tensors(omm_gguf *g, size_t head_bytes) {
    if (g->tensor_count == 0) { /* such files end with the last key, padded or not */
        g->data_offset = g->view.size;
        uint64_t end = gguf_pad(head_bytes, g->alignment);
        if (g->view.size > end) return omm_raise(OMM_ERR_SIZE, "GGUF: bytes after the last key");
        return OMM_OK;
    }
    g->data_offset = gguf_pad(head_bytes, g->alignment);
    if (g->data_offset > g->view.size)
        return omm_raise(OMM_ERR_SIZE, "GGUF: the file ends before the tensor data");
    uint64_t offset = 0;
    for (size_t i = 0; i < g->tensor_count; i++) {
        uint64_t bytes = 0;
        omm_gguf_tensor *t = &g->tensors[i];
        OMM_TRY(omm_gguf_tensor_bytes(&bytes, t->type, t->n_dims, t->dims));
        OMM_TRY(place_tensor(g, t, &offset, bytes));
    }
    if (offset != g->view.size - g->data_offset)
        return omm_raise(OMM_ERR_SIZE, "GGUF: %llu bytes after the last tensor",
                         (unsigned long long)(g->view.size - g->data_offset - offset));
    return OMM_OK;
}

/* Version 1 and those before it had other blocks under the same types. */
omm_err gguf_check_blocks(const omm_gguf *g) {
    uint32_t version = QUANTISATION_VERSION;
    OMM_TRY(omm_gguf_get_u32_or(&version, g, "general.quantization_version", version));
    for (size_t i = 0; i < g->tensor_count && version != QUANTISATION_VERSION; i++)
        if (omm_ggml_find(g->tensors[i].type)->block > 1)
            return omm_raise(OMM_ERR_VERSION,
                             "GGUF: general.quantization_version is %u, with a tensor of type %s "
                             "(%s): quantised tensors are read as of version %u, or where the key "
                             "is absent",
                             version, omm_ggml_find(g->tensors[i].type)->name, g->tensors[i].name,
                             (unsigned)QUANTISATION_VERSION);
    return OMM_OK;
}

static omm_err parse(omm_gguf *g) {
    omm_reader r = omm_reader_of(g->view);
    OMM_TRY(read_header(g, &r));
    OMM_TRY(allocate(g));
    for (size_t i = 0; i < g->kv_count; i++) OMM_TRY(read_kv(&g->kvs[i], &r));
    OMM_TRY(index_keys(g));
    OMM_TRY(read_alignment(g));
    for (size_t i = 0; i < g->tensor_count; i++) {
        uint64_t bytes = 0;
        OMM_TRY(read_tensor(&g->tensors[i], &bytes, &r));
    }
    OMM_TRY(gguf_index_tensors(g));
    OMM_TRY(place_tensors(g, r.at));
    return gguf_check_blocks(g);
}

omm_err omm_gguf_open_bytes(omm_gguf *gguf, omm_bytes file) {
    omm_gguf g = {.view = file, .part_count = 1};
    omm_err err = parse(&g);
    if (err != OMM_OK) {
        omm_gguf_close(&g);
        return err;
    }
    *gguf = g;
    return OMM_OK;
}

/* What is wrong with which file; a text is no damaged model. */
static omm_err refuse(omm_err err, const char *path, omm_bytes file) {
    static const uint8_t magic[4] = {'G', 'G', 'U', 'F'};
    const size_t size = file.size < 4 ? file.size : 4;
    if (file.size == 0) return omm_raise(err, "%s is empty, and no GGUF file", path);
    if (memcmp(file.data, magic, size) != 0)
        return omm_raise(err, "%s is not a GGUF file: it does not begin with GGUF", path);
    return omm_err_about(err, path);
}

omm_err gguf_open_file(omm_gguf *gguf, const char *path) {
    omm_map map = {0};
    OMM_TRY(omm_map_open(&map, path));
    omm_err err = omm_gguf_open_bytes(gguf, map.view);
    if (err != OMM_OK) {
        err = refuse(err, path, map.view);
        omm_map_close(&map);
        return err;
    }
    gguf->map = map;
    return OMM_OK;
}

omm_err omm_gguf_open(omm_gguf *gguf, const char *path) {
    omm_gguf one = {0}, all = {0};
    uint32_t count = 0;
    OMM_TRY(gguf_open_file(&one, path));
    omm_err err = omm_err_about(omm_gguf_get_u32_or(&count, &one, "split.count", 1), path);
    if (err == OMM_OK && count == 1) {
        *gguf = one;
        return OMM_OK;
    }
    if (err == OMM_OK) err = gguf_open_split(&all, path, &one);
    omm_gguf_close(&one);
    if (err == OMM_OK) *gguf = all;
    return err;
}

void omm_gguf_close(omm_gguf *gguf) {
    for (uint32_t i = 1; i < gguf->part_count; i++) omm_map_close(&gguf->more[i - 1]);
    omm_free(gguf->more);
    omm_free(gguf->kvs);
    omm_free(gguf->kv_order);
    omm_free(gguf->tensors);
    omm_free(gguf->tensor_order);
    if (gguf->map.view.data) omm_map_close(&gguf->map);
    memset(gguf, 0, sizeof *gguf);
}

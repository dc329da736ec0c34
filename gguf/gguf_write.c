/* gguf_write.c - GGUF files with keys and tensors in the order of the calls, checked by reading
 * them back. */
#include "gguf_internal.h"

#include <string.h>

enum {
    KVS_BYTES_MAX = 1 << 28,   /* vocabularies of 2^21 tokens fit */
    INFOS_BYTES_MAX = 1 << 24, /* 65,536 tensors of about 130 bytes */
};

void omm_gguf_writer_init(omm_gguf_writer *w) {
    memset(w, 0, sizeof *w);
    w->alignment = GGUF_ALIGNMENT;
    omm_buf_init(&w->kvs, KVS_BYTES_MAX);
    omm_buf_init(&w->infos, INFOS_BYTES_MAX);
    omm_buf_init(&w->payloads, OMM_GGUF_TENSORS_MAX * sizeof(omm_bytes));
}

void omm_gguf_writer_fini(omm_gguf_writer *w) {
    omm_buf_fini(&w->kvs);
    omm_buf_fini(&w->infos);
    omm_buf_fini(&w->payloads);
    memset(w, 0, sizeof *w);
}

/* Remember the first error; true while there is none. */
static bool keep(omm_gguf_writer *w, omm_err err) {
    if (w->err == OMM_OK) w->err = err;
    return w->err == OMM_OK;
}

static bool put_string(omm_gguf_writer *w, omm_buf *to, omm_bytes text) {
    return keep(w, omm_buf_put_u64(to, text.size)) &&
           keep(w, omm_buf_append(to, text.data, text.size));
}

static bool begin_kv(omm_gguf_writer *w, omm_bytes key, omm_gguf_kind kind) {
    if (w->err != OMM_OK) return false;
    w->kv_count++;
    return put_string(w, &w->kvs, key) && keep(w, omm_buf_put_u32(&w->kvs, (uint32_t)kind));
}

static void put_scalar(omm_gguf_writer *w, const char *key, omm_gguf_kind kind, const void *bytes,
                       size_t size) {
    if (begin_kv(w, omm_bytes_str(key), kind)) keep(w, omm_buf_append(&w->kvs, bytes, size));
}

void omm_gguf_put_alignment(omm_gguf_writer *w, uint32_t alignment) {
    bool fits = alignment >= 8 && alignment <= OMM_GGUF_ALIGNMENT_MAX &&
                (alignment & (alignment - 1)) == 0 && w->tensor_count == 0;
    if (!fits) {
        keep(w, omm_raise(OMM_ERR_FORMAT, "GGUF: alignment %u cannot be written here", alignment));
        return;
    }
    if (alignment != GGUF_ALIGNMENT) omm_gguf_put_u32(w, "general.alignment", alignment);
    w->alignment = alignment;
}

void omm_gguf_put_u32(omm_gguf_writer *w, const char *key, uint32_t v) {
    uint8_t bytes[4];
    omm_put_u32(bytes, v);
    put_scalar(w, key, OMM_GGUF_U32, bytes, sizeof bytes);
}

void omm_gguf_put_f32(omm_gguf_writer *w, const char *key, float v) {
    uint8_t bytes[4];
    omm_put_f32(bytes, v);
    put_scalar(w, key, OMM_GGUF_F32, bytes, sizeof bytes);
}

void omm_gguf_put_bool(omm_gguf_writer *w, const char *key, bool v) {
    uint8_t byte = v ? 1 : 0;
    put_scalar(w, key, OMM_GGUF_BOOL, &byte, 1);
}

void omm_gguf_put_str(omm_gguf_writer *w, const char *key, omm_bytes text) {
    if (begin_kv(w, omm_bytes_str(key), OMM_GGUF_STRING)) put_string(w, &w->kvs, text);
}

void omm_gguf_put_text(omm_gguf_writer *w, const char *key, const char *text) {
    omm_gguf_put_str(w, key, omm_bytes_str(text));
}

static bool begin_array(omm_gguf_writer *w, omm_bytes key, omm_gguf_kind element, uint64_t count) {
    return begin_kv(w, key, OMM_GGUF_ARRAY) &&
           keep(w, omm_buf_put_u32(&w->kvs, (uint32_t)element)) &&
           keep(w, omm_buf_put_u64(&w->kvs, count));
}

void omm_gguf_put_strings(omm_gguf_writer *w, const char *key, const omm_bytes *items,
                          size_t count) {
    if (!begin_array(w, omm_bytes_str(key), OMM_GGUF_STRING, count)) return;
    for (size_t i = 0; i < count; i++)
        if (!put_string(w, &w->kvs, items[i])) return;
}

void omm_gguf_put_array(omm_gguf_writer *w, const char *key, omm_gguf_kind element,
                        const void *items, size_t count) {
    OMM_ASSERT(gguf_kind_bytes(element) > 0);
    if (count > OMM_GGUF_ARRAY_MAX) {
        keep(w, omm_raise(OMM_ERR_TOO_BIG, "GGUF: %s: %zu elements, at most %u", key, count,
                          OMM_GGUF_ARRAY_MAX));
        return;
    }
    if (begin_array(w, omm_bytes_str(key), element, count))
        keep(w, omm_buf_append(&w->kvs, items, count * gguf_kind_bytes(element)));
}

void omm_gguf_put_kv(omm_gguf_writer *w, const omm_gguf_kv *kv) {
    if (gguf_compare(kv->key, omm_bytes_str("general.alignment")) == 0) {
        omm_gguf_put_alignment(w, kv->kind == OMM_GGUF_U32 ? omm_get_u32(kv->data.data) : 0);
        return;
    }
    if (kv->kind == OMM_GGUF_ARRAY) {
        if (!begin_array(w, kv->key, kv->element, kv->count)) return;
    } else if (!begin_kv(w, kv->key, kv->kind)) {
        return;
    }
    if (kv->kind == OMM_GGUF_STRING && !keep(w, omm_buf_put_u64(&w->kvs, kv->data.size))) return;
    keep(w, omm_buf_append(&w->kvs, kv->data.data, kv->data.size));
}

static bool put_info(omm_gguf_writer *w, const char *name, uint32_t type, uint32_t n_dims,
                     const uint64_t *dims, uint64_t bytes) {
    bool ok = put_string(w, &w->infos, omm_bytes_str(name)) &&
              keep(w, omm_buf_put_u32(&w->infos, n_dims));
    for (uint32_t d = 0; ok && d < n_dims; d++) ok = keep(w, omm_buf_put_u64(&w->infos, dims[d]));
    ok = ok && keep(w, omm_buf_put_u32(&w->infos, type)) &&
         keep(w, omm_buf_put_u64(&w->infos, w->data_bytes));
    if (!ok) return false;
    w->tensor_count++;
    w->data_bytes = gguf_pad(w->data_bytes + bytes, w->alignment);
    return true;
}

void omm_gguf_put_tensor_info(omm_gguf_writer *w, const char *name, uint32_t type, uint32_t n_dims,
                              const uint64_t *dims) {
    uint64_t bytes = 0;
    if (w->err != OMM_OK || !keep(w, gguf_named_bytes(&bytes, name, type, n_dims, dims))) return;
    put_info(w, name, type, n_dims, dims, bytes);
}

void omm_gguf_put_tensor(omm_gguf_writer *w, const char *name, uint32_t type, uint32_t n_dims,
                         const uint64_t *dims, omm_bytes data) {
    uint64_t bytes = 0;
    if (w->err != OMM_OK || !keep(w, gguf_named_bytes(&bytes, name, type, n_dims, dims))) return;
    if (bytes != data.size) {
        keep(w, omm_raise(OMM_ERR_SIZE, "GGUF: tensor %s has %zu bytes, its shape wants %llu", name,
                          data.size, (unsigned long long)bytes));
        return;
    }
    if (put_info(w, name, type, n_dims, dims, bytes))
        keep(w, omm_buf_append(&w->payloads, &data, sizeof data));
}

uint32_t omm_gguf_padding(const omm_gguf_writer *w, uint64_t bytes) {
    return (uint32_t)(gguf_pad(bytes, w->alignment) - bytes);
}

static omm_err append_padding(omm_buf *out, size_t begin, const omm_gguf_writer *w) {
    uint8_t *added = NULL;
    return omm_buf_extend(out, &added, omm_gguf_padding(w, out->size - begin));
}

static omm_err append_header(omm_buf *out, const omm_gguf_writer *w) {
    size_t begin = out->size;
    OMM_TRY(omm_buf_put_u32(out, GGUF_MAGIC));
    OMM_TRY(omm_buf_put_u32(out, GGUF_VERSION));
    OMM_TRY(omm_buf_put_u64(out, w->tensor_count));
    OMM_TRY(omm_buf_put_u64(out, w->kv_count));
    OMM_TRY(omm_buf_append(out, w->kvs.data, w->kvs.size));
    OMM_TRY(omm_buf_append(out, w->infos.data, w->infos.size));
    return append_padding(out, begin, w);
}

omm_err omm_gguf_writer_header(omm_buf *out, const omm_gguf_writer *w) {
    if (w->err != OMM_OK) return w->err;
    size_t size = out->size;
    omm_err err = append_header(out, w);
    if (err != OMM_OK) out->size = size;
    return err;
}

static omm_bytes payload_at(const omm_gguf_writer *w, size_t i) {
    omm_bytes data;
    memcpy(&data, w->payloads.data + i * sizeof data, sizeof data);
    return data;
}

/* All at once: growing on the way would take twice as much. */
static omm_err reserve_payloads(omm_buf *out, const omm_gguf_writer *w) {
    size_t bytes = 0;
    for (size_t i = 0; i < w->tensor_count; i++) bytes += payload_at(w, i).size + w->alignment;
    return omm_buf_reserve(out, bytes < out->bytes_max - out->size ? bytes : 0);
}

static omm_err append_file(omm_buf *out, const omm_gguf_writer *w) {
    size_t begin = out->size;
    OMM_ASSERT(w->payloads.size == w->tensor_count * sizeof(omm_bytes));
    OMM_TRY(append_header(out, w));
    OMM_TRY(reserve_payloads(out, w));
    for (size_t i = 0; i < w->tensor_count; i++) {
        const omm_bytes data = payload_at(w, i);
        OMM_TRY(omm_buf_append(out, data.data, data.size));
        OMM_TRY(append_padding(out, begin, w));
    }
    omm_gguf check = {0};
    OMM_TRY(omm_gguf_open_bytes(&check, omm_bytes_of(out->data + begin, out->size - begin)));
    omm_gguf_close(&check);
    return OMM_OK;
}

omm_err omm_gguf_writer_finish(omm_buf *out, omm_gguf_writer *w) {
    if (w->err != OMM_OK) return w->err;
    size_t size = out->size;
    omm_err err = append_file(out, w);
    if (err != OMM_OK) out->size = size;
    return err;
}

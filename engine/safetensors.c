/* safetensors.c - the reader: header, ranges, then nothing left to doubt. */
#include "omm/safetensors.h"

#include "omm/json.h"
#include "omm/mem.h"

#include <stdlib.h>
#include <string.h>

#define METADATA "__metadata__"

static const struct {
    const char *name;
    uint32_t bytes;
} s_types[OMM_SAFETENSORS_TYPE_COUNT] = {{"F32", 4}, {"F16", 2}, {"BF16", 2}};

/* ---- one entry of the header ------------------------------------------------------------------ */

static int shown(const char *name) {
    size_t size = strlen(name);
    return size < 200 ? (int)size : 200;
}

static omm_err take_type(omm_safetensor *t, const json_t *entry) {
    const char *name = NULL;
    OMM_TRY(omm_json_get_str(&name, entry, "dtype"));
    for (unsigned i = 0; i < OMM_SAFETENSORS_TYPE_COUNT; i++)
        if (strcmp(name, s_types[i].name) == 0) {
            t->type = (omm_safetensors_type)i;
            return OMM_OK;
        }
    return omm_raise(OMM_ERR_UNSUPPORTED,
                     "safetensors: tensor '%.*s' is of type '%.*s'; accepted are F32, F16, BF16",
                     shown(t->name), t->name, shown(name), name);
}

/* Dimensions, and the bytes that they ask for: below 2^63. */
static omm_err take_shape(omm_safetensor *t, uint64_t *bytes, const json_t *entry) {
    json_t *shape = NULL;
    OMM_TRY(omm_json_get_array(&shape, entry, "shape"));
    if (json_array_size(shape) > OMM_SAFETENSORS_DIMS_MAX)
        return omm_raise(OMM_ERR_TOO_BIG,
                         "safetensors: tensor '%.*s' has %zu dimensions, at most %u",
                         shown(t->name), t->name, json_array_size(shape), OMM_SAFETENSORS_DIMS_MAX);
    t->n_dims = (uint32_t)json_array_size(shape);
    *bytes = s_types[t->type].bytes;
    for (uint32_t d = 0; d < t->n_dims; d++) {
        const json_t *dim = json_array_get(shape, d);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return omm_raise(OMM_ERR_FORMAT, "safetensors: tensor '%.*s': a dimension is no count",
                             shown(t->name), t->name);
        t->dims[d] = (uint64_t)json_integer_value(dim);
        if (t->dims[d] != 0 && *bytes > (uint64_t)INT64_MAX / t->dims[d])
            return omm_raise(OMM_ERR_TOO_BIG, "safetensors: tensor '%.*s' has over 2^63 bytes",
                             shown(t->name), t->name);
        *bytes *= t->dims[d];
    }
    return OMM_OK;
}

static omm_err take_range(omm_safetensor *t, uint64_t bytes, const json_t *entry, omm_bytes data) {
    json_t *range = NULL;
    OMM_TRY(omm_json_get_array(&range, entry, "data_offsets"));
    const json_t *from = json_array_get(range, 0), *to = json_array_get(range, 1);
    if (json_array_size(range) != 2 || !json_is_integer(from) || !json_is_integer(to))
        return omm_raise(OMM_ERR_FORMAT, "safetensors: tensor '%.*s': data_offsets are no range",
                         shown(t->name), t->name);
    const json_int_t begin = json_integer_value(from), end = json_integer_value(to);
    if (begin < 0 || end < begin || (uint64_t)(end - begin) != bytes)
        return omm_raise(
            OMM_ERR_FORMAT, "safetensors: tensor '%.*s': bytes %lld to %lld, its shape wants %llu",
            shown(t->name), t->name, (long long)begin, (long long)end, (unsigned long long)bytes);
    if ((uint64_t)end > data.size)
        return omm_raise(OMM_ERR_SIZE, "safetensors: tensor '%.*s' ends at %lld, the data at %zu",
                         shown(t->name), t->name, (long long)end, data.size);
    t->data = omm_bytes_of(data.data + begin, (size_t)bytes);
    return OMM_OK;
}

static omm_err take_entry(omm_safetensor *t, const char *name, const json_t *entry,
                          omm_bytes data) {
    uint64_t bytes = 0;
    t->name = name;
    if (name[0] == 0 || strlen(name) >= OMM_SAFETENSORS_NAME_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "safetensors: a name of %zu bytes, accepted are 1 to %u",
                         strlen(name), OMM_SAFETENSORS_NAME_MAX - 1);
    if (!json_is_object(entry) || json_object_size(entry) != 3)
        return omm_raise(OMM_ERR_FORMAT,
                         "safetensors: tensor '%.*s': expected dtype, shape and data_offsets",
                         shown(name), name);
    OMM_TRY(take_type(t, entry));
    OMM_TRY(take_shape(t, &bytes, entry));
    return take_range(t, bytes, entry, data);
}

static omm_err check_metadata(json_t *metadata) {
    const char *key = NULL;
    json_t *value = NULL;
    if (!json_is_object(metadata))
        return omm_raise(OMM_ERR_FORMAT, "safetensors: " METADATA " is no object");
    json_object_foreach(metadata, key, value) if (!json_is_string(value)) return omm_raise(
        OMM_ERR_FORMAT, "safetensors: " METADATA ": '%.*s' is no text", shown(key), key);
    return OMM_OK;
}

/* ---- the whole -------------------------------------------------------------------------------- */

/* By place; where an empty tensor sits at a border it comes first. */
static int by_place(const void *a, const void *b) {
    const omm_safetensor *x = a, *y = b;
    if (x->data.data != y->data.data) return x->data.data < y->data.data ? -1 : 1;
    return x->data.size < y->data.size ? -1 : x->data.size > y->data.size;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const omm_safetensor *)a)->name, ((const omm_safetensor *)b)->name);
}

static omm_err check_tiling(omm_safetensors *f, omm_bytes data) {
    qsort(f->tensors, f->count, sizeof *f->tensors, by_place);
    const uint8_t *at = data.data;
    for (size_t i = 0; i < f->count; i++) {
        const omm_safetensor *t = &f->tensors[i];
        if (t->data.data != at)
            return omm_raise(OMM_ERR_FORMAT, "safetensors: tensor '%.*s' begins at %zu, %s %zu",
                             shown(t->name), t->name, (size_t)(t->data.data - data.data),
                             t->data.data < at ? "within what ends at" : "behind a hole from",
                             (size_t)(at - data.data));
        at += t->data.size;
    }
    if (at != data.data + data.size)
        return omm_raise(OMM_ERR_SIZE, "safetensors: %zu bytes of data, its tensors have %zu",
                         data.size, (size_t)(at - data.data));
    qsort(f->tensors, f->count, sizeof *f->tensors, by_name);
    return OMM_OK;
}

static omm_err take_entries(omm_safetensors *f, json_t *header, omm_bytes data) {
    const size_t entries = json_object_size(header);
    if (entries > OMM_SAFETENSORS_TENSORS_MAX + 1)
        return omm_raise(OMM_ERR_TOO_BIG, "safetensors: %zu tensors, at most %u", entries,
                         OMM_SAFETENSORS_TENSORS_MAX);
    f->tensors = omm_alloc(entries + 1, sizeof *f->tensors); /* one more: never of size zero */
    if (!f->tensors) return omm_raise(OMM_ERR_NOMEM, "safetensors: %zu tensors", entries);
    const char *name = NULL;
    json_t *entry = NULL;
    json_object_foreach(header, name, entry) {
        if (strcmp(name, METADATA) == 0)
            OMM_TRY(check_metadata(entry));
        else
            OMM_TRY(take_entry(&f->tensors[f->count++], name, entry, data));
    }
    return check_tiling(f, data);
}

static omm_err parse(omm_safetensors *f, omm_bytes bytes) {
    if (bytes.size < 8)
        return omm_raise(OMM_ERR_SIZE, "safetensors: file of %zu bytes", bytes.size);
    const uint64_t size = omm_get_u64(bytes.data);
    if (size > OMM_SAFETENSORS_HEADER_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "safetensors: header of %llu bytes, at most %u",
                         (unsigned long long)size, OMM_SAFETENSORS_HEADER_MAX);
    if (size > bytes.size - 8)
        return omm_raise(OMM_ERR_SIZE, "safetensors: header of %llu bytes in a file of %zu",
                         (unsigned long long)size, bytes.size);
    if (size == 0 || bytes.data[8] != '{')
        return omm_raise(OMM_ERR_FORMAT, "safetensors: the header is no JSON object");
    json_t *header = NULL;
    OMM_TRY(
        omm_json_parse(&header, omm_bytes_of(bytes.data + 8, (size_t)size), "safetensors header"));
    f->header = header;
    const size_t begin = 8 + (size_t)size;
    return take_entries(f, header, omm_bytes_of(bytes.data + begin, bytes.size - begin));
}

omm_err omm_safetensors_open_bytes(omm_safetensors *file, omm_bytes bytes) {
    omm_safetensors f = {0};
    omm_err err = parse(&f, bytes);
    if (err != OMM_OK) {
        omm_safetensors_close(&f);
        return err;
    }
    *file = f;
    return OMM_OK;
}

omm_err omm_safetensors_open(omm_safetensors *file, const char *path) {
    omm_map map = {0};
    OMM_TRY(omm_map_open(&map, path));
    omm_err err = omm_safetensors_open_bytes(file, map.view);
    if (err == OMM_OK)
        file->map = map;
    else
        omm_map_close(&map);
    return err;
}

void omm_safetensors_close(omm_safetensors *file) {
    omm_free(file->tensors);
    json_decref(file->header);
    if (file->map.view.data) omm_map_close(&file->map);
    *file = (omm_safetensors){0};
}

const omm_safetensor *omm_safetensors_find(const omm_safetensors *file, const char *name) {
    const omm_safetensor key = {.name = name};
    if (file->count == 0) return NULL;
    return bsearch(&key, file->tensors, file->count, sizeof key, by_name);
}

const char *omm_safetensors_metadata(const omm_safetensors *file, const char *key) {
    return json_string_value(json_object_get(json_object_get(file->header, METADATA), key));
}

uint64_t omm_safetensor_count(const omm_safetensor *tensor) {
    return tensor->data.size / s_types[tensor->type].bytes;
}

float omm_safetensor_get(const omm_safetensor *tensor, uint64_t i) {
    const uint8_t *p = tensor->data.data + i * s_types[tensor->type].bytes;
    uint8_t wide[4] = {0};
    if (tensor->type == OMM_SAFETENSORS_F32) return omm_get_f32(p);
    if (tensor->type == OMM_SAFETENSORS_F16) return omm_f16_to_f32(omm_get_u16(p));
    memcpy(wide + 2, p, 2);
    return omm_get_f32(wide);
}

/* ---- writing ---------------------------------------------------------------------------------- */

static int by_type_and_name(const void *a, const void *b) {
    const omm_safetensor *x = a, *y = b;
    if (x->type != y->type) return x->type < y->type ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* A JSON string of the name; FORMAT when it is not UTF-8. */
static omm_err put_name(omm_buf *out, const char *name) {
    json_t *text = name[0] ? json_string(name) : NULL;
    if (!text) return omm_raise(OMM_ERR_FORMAT, "safetensors: a name that is empty or not UTF-8");
    omm_err err = omm_json_write(out, text);
    json_decref(text);
    if (err == OMM_OK) out->size--; /* the final newline */
    return err;
}

static omm_err put_entry(omm_buf *out, const omm_safetensor *t, uint64_t begin) {
    uint64_t bytes = s_types[t->type].bytes;
    OMM_TRY(put_name(out, t->name));
    OMM_TRY(omm_buf_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", s_types[t->type].name));
    for (uint32_t d = 0; d < t->n_dims; d++) {
        bytes *= t->dims[d];
        OMM_TRY(omm_buf_printf(out, "%s%llu", d ? "," : "", (unsigned long long)t->dims[d]));
    }
    if (bytes != t->data.size)
        return omm_raise(OMM_ERR_SIZE,
                         "safetensors: tensor '%.*s' of %zu bytes, its shape wants %llu",
                         shown(t->name), t->name, t->data.size, (unsigned long long)bytes);
    const uint64_t end = begin + bytes;
    return omm_buf_printf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin,
                          (unsigned long long)end);
}

/* What a file says of itself beside its tensors. */
typedef struct note {
    const char *key, *text; /* NULL: nothing */
} note;

static omm_err put_metadata(omm_buf *out, note more) {
    OMM_TRY(omm_buf_printf(out, "{\"" METADATA "\":{\"format\":\"pt\""));
    if (more.key) {
        OMM_TRY(omm_buf_printf(out, ","));
        OMM_TRY(put_name(out, more.key));
        OMM_TRY(omm_buf_printf(out, ":"));
        OMM_TRY(put_name(out, more.text));
    }
    return omm_buf_printf(out, "}");
}

static omm_err put_file(omm_buf *out, const omm_safetensor *order, size_t count, note more) {
    const size_t start = out->size;
    uint64_t at = 0;
    OMM_TRY(omm_buf_put_u64(out, 0));
    OMM_TRY(put_metadata(out, more));
    for (size_t i = 0; i < count; i++) {
        OMM_TRY(omm_buf_printf(out, ","));
        OMM_TRY(put_entry(out, &order[i], at));
        at += order[i].data.size;
    }
    OMM_TRY(omm_buf_printf(out, "}"));
    while ((out->size - start) % 8 != 0) OMM_TRY(omm_buf_printf(out, " ")); /* aligned data */
    omm_put_u64(out->data + start, out->size - start - 8);
    for (size_t i = 0; i < count; i++)
        OMM_TRY(omm_buf_append(out, order[i].data.data, order[i].data.size));
    omm_safetensors check = {0};
    OMM_TRY(omm_safetensors_open_bytes(&check, omm_bytes_of(out->data + start, out->size - start)));
    omm_safetensors_close(&check);
    return OMM_OK;
}

omm_err omm_safetensors_write(omm_buf *out, const omm_safetensor *tensors, size_t count) {
    return omm_safetensors_write_with(out, tensors, count, NULL, NULL);
}

omm_err omm_safetensors_write_with(omm_buf *out, const omm_safetensor *tensors, size_t count,
                                   const char *key, const char *text) {
    const size_t size = out->size;
    if (count > OMM_SAFETENSORS_TENSORS_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "safetensors: %zu tensors, at most %u", count,
                         OMM_SAFETENSORS_TENSORS_MAX);
    omm_safetensor *order = omm_alloc(count + 1, sizeof *order);
    if (!order) return omm_raise(OMM_ERR_NOMEM, "safetensors: %zu tensors", count);
    if (count > 0) memcpy(order, tensors, count * sizeof *order);
    qsort(order, count, sizeof *order, by_type_and_name);
    omm_err err = put_file(out, order, count, (note){key, text});
    if (err != OMM_OK) out->size = size;
    omm_free(order);
    return err;
}

#include "record.h"
#include "omm/utf8.h"

#include <math.h>
#include <string.h>

record_out record_begin(void) {
    record_out r = {json_object(), OMM_OK};
    if (!r.object) r.err = omm_raise(OMM_ERR_NOMEM, "no memory for a record");
    return r;
}

void record_put(record_out *r, const char *key, json_t *take_value) {
    if (r->err == OMM_OK && !take_value)
        r->err = omm_raise(OMM_ERR_NOMEM, "no memory for member %s", key);
    if (r->err != OMM_OK) {
        json_decref(take_value);
        return;
    }
    if (json_object_set_new(r->object, key, take_value) != 0)
        r->err = omm_raise(OMM_ERR_NOMEM, "no memory for member %s", key);
}

/* A generated reply may hold any bytes; JSON may not.  Three bytes for each bad one at most. */
static json_t *utf8_string(const char *text) {
    json_t *plain = json_string(text);
    if (plain) return plain;
    size_t size = strlen(text);
    char *clean = omm_alloc(3 * size + 1, 1);
    if (!clean) return NULL;
    size_t at = 0;
    for (size_t i = 0; i < size;) {
        const size_t n = omm_utf8_size((const uint8_t *)text + i, size - i);
        memcpy(clean + at, n ? text + i : "\xef\xbf\xbd", n ? n : 3);
        at += n ? n : 3;
        i += n ? n : 1;
    }
    json_t *out = json_string(clean);
    omm_free(clean);
    return out;
}

void record_put_str(record_out *r, const char *key, const char *text) {
    OMM_ASSERT(text != NULL);
    record_put(r, key, utf8_string(text));
}

void record_put_u64(record_out *r, const char *key, uint64_t v) {
    if (v > INT64_MAX) {
        if (r->err == OMM_OK)
            r->err =
                omm_raise(OMM_ERR_TOO_BIG, "%s: %llu is over 2^63 - 1", key, (unsigned long long)v);
        return;
    }
    record_put(r, key, json_integer((json_int_t)v));
}

void record_put_real(record_out *r, const char *key, double v) {
    if (!isfinite(v)) {
        if (r->err == OMM_OK) r->err = omm_raise(OMM_ERR_NUMERIC, "%s is not finite", key);
        return;
    }
    record_put(r, key, json_real(v == 0 ? 0.0 : v)); /* -0 has no spelling of its own */
}

void record_put_bool(record_out *r, const char *key, bool v) {
    record_put(r, key, json_boolean(v));
}

void record_put_digest(record_out *r, const char *key, const omm_digest *d) {
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, d);
    record_put(r, key, json_string(hex));
}

void record_put_digest_if(record_out *r, const char *key, const omm_digest *d, bool present) {
    if (present)
        record_put_digest(r, key, d);
    else
        record_put(r, key, json_null());
}

void record_put_hex(record_out *r, const char *key, omm_bytes bytes) {
    char *hex = omm_alloc(2 * bytes.size + 1, 1);
    if (hex) omm_hex(hex, bytes);
    record_put(r, key, hex ? json_string(hex) : NULL);
    omm_free(hex);
}

void record_put_digests(record_out *r, const char *key, const omm_digest *d, size_t count) {
    json_t *array = json_array();
    for (size_t i = 0; array && i < count; i++) {
        char hex[OMM_DIGEST_HEX_SIZE];
        omm_digest_hex(hex, &d[i]);
        if (json_array_append_new(array, json_string(hex)) == 0) continue;
        json_decref(array);
        array = NULL;
    }
    record_put(r, key, array);
}

void record_put_record(record_out *parent, const char *key, record_out *take) {
    if (parent->err == OMM_OK) parent->err = take->err;
    if (take->err != OMM_OK) record_drop(take);
    if (take->object) record_put(parent, key, take->object);
    take->object = NULL;
}

void record_append_record(record_out *parent, json_t *array, record_out *take) {
    if (parent->err == OMM_OK) parent->err = take->err;
    if (take->err != OMM_OK) record_drop(take);
    if (take->object && json_array_append_new(array, take->object) != 0 && parent->err == OMM_OK)
        parent->err = omm_raise(OMM_ERR_NOMEM, "no memory for a list");
    take->object = NULL;
}

omm_err record_finish(omm_buf *out, record_out *take) {
    omm_err err = take->err;
    if (err == OMM_OK) err = omm_json_write(out, take->object);
    record_drop(take);
    return err;
}

void record_drop(record_out *r) {
    json_decref(r->object);
    r->object = NULL;
}

record_in record_open(omm_bytes text, const char *name, omm_arena *arena) {
    record_in r = {NULL, arena, OMM_OK};
    r.err = omm_json_parse(&r.object, text, name);
    if (r.err == OMM_OK && !json_is_object(r.object))
        r.err = omm_raise(OMM_ERR_FORMAT, "%s is not a JSON object", name);
    return r;
}

void record_fail(record_in *r, omm_err err) {
    if (r->err == OMM_OK) r->err = err;
}

record_in record_sub(record_in *r, const char *key) {
    record_in sub = {NULL, r->arena, r->err};
    if (r->err == OMM_OK) record_fail(r, omm_json_get_object(&sub.object, r->object, key));
    sub.err = r->err;
    return sub;
}

record_in record_item(record_in *parent, json_t *array, size_t index) {
    record_in item = {json_array_get(array, index), parent->arena, parent->err};
    if (item.err == OMM_OK && !json_is_object(item.object))
        item.err = omm_raise(OMM_ERR_FORMAT, "element %zu is not a JSON object", index);
    return item;
}

const char *record_get_str(record_in *r, const char *key, size_t bytes_max) {
    const char *text = NULL;
    if (r->err == OMM_OK) r->err = omm_json_get_str(&text, r->object, key);
    if (r->err == OMM_OK && strlen(text) > bytes_max)
        r->err =
            omm_raise(OMM_ERR_FORMAT, "%s: %zu bytes, at most %zu", key, strlen(text), bytes_max);
    if (r->err != OMM_OK) return "";
    char *copy = omm_arena_strdup(r->arena, text);
    if (!copy) r->err = omm_raise(OMM_ERR_NOMEM, "no memory for %s", key);
    return copy ? copy : "";
}

uint64_t record_get_u64(record_in *r, const char *key, uint64_t max) {
    int64_t v = 0;
    OMM_ASSERT(max <= INT64_MAX);
    if (r->err == OMM_OK) r->err = omm_json_get_int(&v, r->object, key, 0, (int64_t)max);
    return r->err == OMM_OK ? (uint64_t)v : 0;
}

double record_get_real(record_in *r, const char *key) {
    double v = 0;
    if (r->err == OMM_OK) r->err = omm_json_get_real(&v, r->object, key);
    return r->err == OMM_OK ? v : 0;
}

bool record_get_bool(record_in *r, const char *key) {
    bool v = false;
    if (r->err == OMM_OK) r->err = omm_json_get_bool(&v, r->object, key);
    return r->err == OMM_OK && v;
}

omm_digest record_get_digest(record_in *r, const char *key) {
    omm_digest d = {{0}};
    if (r->err == OMM_OK) r->err = omm_json_get_digest(d.b, r->object, key);
    return d;
}

bool record_get_digest_if(omm_digest *out, record_in *r, const char *key) {
    *out = (omm_digest){{0}};
    if (r->err == OMM_OK && json_is_null(json_object_get(r->object, key))) return false;
    *out = record_get_digest(r, key);
    return r->err == OMM_OK;
}

void record_get_hex(record_in *r, const char *key, uint8_t *out, size_t size) {
    const char *text = NULL;
    memset(out, 0, size);
    if (r->err == OMM_OK) r->err = omm_json_get_str(&text, r->object, key);
    if (r->err == OMM_OK) r->err = omm_unhex(out, size, text);
}

omm_bytes record_get_blob(record_in *r, const char *key, size_t bytes_max) {
    const char *text = NULL;
    if (r->err == OMM_OK) r->err = omm_json_get_str(&text, r->object, key);
    if (r->err != OMM_OK) return (omm_bytes){NULL, 0};
    size_t size = strlen(text) / 2;
    if (size > bytes_max) {
        r->err = omm_raise(OMM_ERR_FORMAT, "%s: %zu bytes, at most %zu", key, size, bytes_max);
        return (omm_bytes){NULL, 0};
    }
    uint8_t *out = record_alloc(r, size + 1, 1);
    if (out) r->err = omm_unhex(out, size, text);
    return omm_bytes_of(out, out ? size : 0);
}

json_t *record_get_array(size_t *count, record_in *r, const char *key, size_t count_max) {
    json_t *array = NULL;
    *count = 0;
    if (r->err == OMM_OK) r->err = omm_json_get_array(&array, r->object, key);
    if (r->err != OMM_OK) return NULL;
    if (json_array_size(array) > count_max) {
        r->err = omm_raise(OMM_ERR_TOO_BIG, "%s: %zu elements, at most %zu", key,
                           json_array_size(array), count_max);
        return NULL;
    }
    *count = json_array_size(array);
    return array;
}

omm_digest *record_get_digests(size_t *count, record_in *r, const char *key, size_t count_max) {
    json_t *array = record_get_array(count, r, key, count_max);
    omm_digest *out = array ? record_alloc(r, *count + 1, sizeof *out) : NULL;
    for (size_t i = 0; out && i < *count; i++) {
        const char *hex = json_string_value(json_array_get(array, i));
        if (r->err != OMM_OK) break;
        r->err = hex ? omm_digest_unhex(&out[i], hex)
                     : omm_raise(OMM_ERR_FORMAT, "%s: element %zu is not a string", key, i);
    }
    if (r->err != OMM_OK) *count = 0;
    return out;
}

void *record_alloc(record_in *r, size_t count, size_t size) {
    if (r->err != OMM_OK) return NULL;
    void *out = omm_arena_alloc(r->arena, count, size);
    if (!out) r->err = omm_raise(OMM_ERR_NOMEM, "no memory for %zu elements", count);
    return out;
}

omm_err record_end(record_in *root) {
    json_decref(root->object);
    root->object = NULL;
    if (root->err != OMM_ERR_NOT_FOUND) return root->err;
    return omm_raise(OMM_ERR_FORMAT, "%.240s",
                     omm_err_sentence()); /* a member, and no file, is missing */
}

omm_err record_same(omm_bytes text, const omm_buf *again, const char *name) {
    if (omm_bytes_equal(text, omm_buf_view(again))) return OMM_OK;
    return omm_raise(OMM_ERR_FORMAT, "%s is not in canonical spelling, or has unknown members",
                     name);
}

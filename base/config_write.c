/* config_write.c - a struct back to YAML, and its table in words. */
#include "config_internal.h"

#include "omm/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define WRITTEN_BYTES_MAX (16u << 20) /* of a file of 1 MiB, each of its keys with all defaults */

/* --- text --- */

/* Decode one character; 0 when the bytes are not UTF-8 (or end the text). */
static size_t decode(uint32_t *code, const char *text) {
    const uint8_t *p = (const uint8_t *)text;
    const size_t size = omm_utf8_size(p, strnlen(text, 4));
    *code = size < 2 ? p[0] : p[0] & (0xffu >> (size + 1));
    for (size_t i = 1; i < size; i++) *code = *code << 6 | (p[i] & 0x3f);
    return size;
}

/* What YAML refuses or folds when it stands unescaped. */
static bool needs_escape(uint32_t code) {
    return code < 0x20 || code == '"' || code == '\\' || (code >= 0x7f && code <= 0xa0) ||
           code == 0x2028 || code == 0x2029 || code == 0xfeff || code == 0xfffe || code == 0xffff;
}

static omm_err write_text(omm_buf *out, const char *text) {
    OMM_TRY(omm_buf_append(out, "\"", 1));
    while (*text) {
        uint32_t code = 0;
        size_t size = decode(&code, text);
        if (size == 0) return omm_raise(OMM_ERR_CONFIG, "text is not UTF-8: %.40s", text);
        if (!needs_escape(code))
            OMM_TRY(omm_buf_append(out, text, size));
        else if (code == '\n')
            OMM_TRY(omm_buf_append(out, "\\n", 2));
        else if (code == '"' || code == '\\')
            OMM_TRY(omm_buf_printf(out, "\\%c", (int)code));
        else
            OMM_TRY(omm_buf_printf(out, "\\u%04" PRIx32, code));
        text += size;
    }
    return omm_buf_append(out, "\"", 1);
}

/* --- values --- */

static omm_err write_real(omm_buf *out, const char *key, double value) {
    char text[32];
    if (!isfinite(value)) return omm_raise(OMM_ERR_CONFIG, "%s: not a finite number", key);
    config_real_text(text, value);
    return omm_buf_printf(out, "%s", text);
}

static omm_err write_enum(omm_buf *out, const omm_config_field *f, int value) {
    int count = 0;
    while (f->choices[count]) count++;
    if (value < 0 || value >= count)
        return omm_raise(OMM_ERR_CONFIG, "%s: %d is not a choice", f->key, value);
    return write_text(out, f->choices[value]);
}

static omm_err write_scalar(omm_buf *out, const omm_config_field *f, const void *at) {
    const char *text = NULL;
    switch ((int)f->kind) {
    case OMM_CONFIG_KIND_BOOL: return omm_buf_printf(out, *(const bool *)at ? "true" : "false");
    case OMM_CONFIG_KIND_U32: return omm_buf_printf(out, "%" PRIu32, *(const uint32_t *)at);
    case OMM_CONFIG_KIND_U64: return omm_buf_printf(out, "%" PRIu64, *(const uint64_t *)at);
    case OMM_CONFIG_KIND_REAL: return write_real(out, f->key, *(const double *)at);
    case OMM_CONFIG_KIND_ENUM: return write_enum(out, f, *(const int *)at);
    default: break;
    }
    memcpy(&text, at, sizeof text);
    return write_text(out, text ? text : "");
}

/* Is there nothing to write: an optional key without a value? */
static bool is_absent(const omm_config_field *f, const void *base) {
    if (!f->optional || f->fallback) return false;
    if (f->present > 0) return !*(const bool *)((const char *)base + f->present);
    const char *at = (const char *)base + f->offset;
    switch ((int)f->kind) {
    case OMM_CONFIG_KIND_BOOL: return !*(const bool *)at;
    case OMM_CONFIG_KIND_U32: return *(const uint32_t *)(const void *)at == 0;
    case OMM_CONFIG_KIND_U64: return *(const uint64_t *)(const void *)at == 0;
    case OMM_CONFIG_KIND_REAL: return *(const double *)(const void *)at == 0;
    case OMM_CONFIG_KIND_ENUM: return *(const int *)(const void *)at == 0;
    case OMM_CONFIG_KIND_LIST: return ((const omm_config_list *)(const void *)at)->count == 0;
    case OMM_CONFIG_KIND_STRING: return *(const char *const *)(const void *)at == NULL;
    default: return false;
    }
}

static omm_err write_fields(omm_buf *out, const omm_config_field *fields, const void *base,
                            int indent, bool inline_first);

/* "- key: value" per item, its other keys below the first. */
static omm_err write_mappings(omm_buf *out, const omm_config_field *f, const omm_config_list *list,
                              int indent) {
    OMM_TRY(omm_buf_append(out, "\n", 1));
    for (size_t i = 0; i < list->count; i++) {
        const char *item = (const char *)list->items + i * f->item_size + f->item->offset;
        OMM_TRY(omm_buf_printf(out, "%*s- ", indent, ""));
        size_t before = out->size;
        OMM_TRY(write_fields(out, f->item->sub, item, indent + 2, true));
        if (out->size == before) OMM_TRY(omm_buf_append(out, "{}\n", 3));
    }
    return OMM_OK;
}

static omm_err write_list(omm_buf *out, const omm_config_field *f, const omm_config_list *list,
                          int indent) {
    if (list->count > 0 && f->item->kind == OMM_CONFIG_KIND_MAP)
        return write_mappings(out, f, list, indent);
    OMM_TRY(omm_buf_append(out, " [", 2));
    for (size_t i = 0; i < list->count; i++) {
        const char *item = (const char *)list->items + i * f->item_size + f->item->offset;
        if (i > 0) OMM_TRY(omm_buf_append(out, ", ", 2));
        OMM_TRY(write_scalar(out, f->item, item));
    }
    return omm_buf_append(out, "]\n", 2);
}

static omm_err write_value(omm_buf *out, const omm_config_field *f, const void *at, int indent) {
    if (f->kind == OMM_CONFIG_KIND_LIST) return write_list(out, f, at, indent + 2);
    if (f->kind != OMM_CONFIG_KIND_MAP) {
        OMM_TRY(omm_buf_append(out, " ", 1));
        OMM_TRY(write_scalar(out, f, at));
        return omm_buf_append(out, "\n", 1);
    }
    OMM_TRY(omm_buf_append(out, "\n", 1));
    size_t before = out->size;
    OMM_TRY(write_fields(out, f->sub, at, indent + 2, false));
    if (out->size > before) return OMM_OK;
    out->size--; /* the newline: nothing came below */
    return omm_buf_append(out, " {}\n", 4);
}

static omm_err write_fields(omm_buf *out, const omm_config_field *fields, const void *base,
                            int indent, bool inline_first) {
    size_t count = config_table_count(fields);
    for (size_t i = 0; i < count; i++) {
        if (is_absent(&fields[i], base)) continue;
        OMM_TRY(omm_buf_printf(out, "%*s%s:", inline_first ? 0 : indent, "", fields[i].key));
        OMM_TRY(write_value(out, &fields[i], (const char *)base + fields[i].offset, indent));
        inline_first = false;
    }
    return OMM_OK;
}

omm_err omm_config_write(omm_buf *out, const omm_config_field *fields, const void *from) {
    size_t size_before = out->size;
    omm_err err = write_fields(out, fields, from, 0, false);
    if (err != OMM_OK) out->size = size_before;
    return err;
}

omm_err omm_config_check_written(omm_bytes text, const omm_config_field *fields, const void *from) {
    omm_buf want;
    size_t at = 0, line = 1;
    omm_buf_init(&want, WRITTEN_BYTES_MAX);
    omm_err err = omm_config_write(&want, fields, from);
    for (; at < text.size && at < want.size && text.data[at] == want.data[at]; at++)
        line += text.data[at] == '\n';
    if (err == OMM_OK && (at < text.size || at < want.size))
        err = omm_raise(OMM_ERR_FORMAT, "line %zu is not as the effective form has it", line);
    omm_buf_fini(&want);
    return err;
}

/* --- the table in words --- */

static omm_err describe_fields(omm_buf *out, const omm_config_field *fields, const char *prefix,
                               int depth);

static omm_err describe_field(omm_buf *out, const omm_config_field *f, const char *path,
                              int depth) {
    char accepted[CONFIG_ACCEPTED_SIZE] = "mapping";
    if (f->kind != OMM_CONFIG_KIND_MAP) config_accepted(accepted, f);
    OMM_TRY(omm_buf_printf(out, "%s: %s", path, accepted));
    if (f->fallback)
        OMM_TRY(omm_buf_printf(out, "; default %s", f->fallback[0] ? f->fallback : "\"\""));
    else if (f->optional)
        OMM_TRY(omm_buf_printf(out, "; optional"));
    else if (f->kind != OMM_CONFIG_KIND_MAP)
        OMM_TRY(omm_buf_printf(out, "; required"));
    OMM_TRY(omm_buf_printf(out, "%s%s\n", f->help ? " - " : "", f->help ? f->help : ""));
    if (f->kind == OMM_CONFIG_KIND_MAP) return describe_fields(out, f->sub, path, depth + 1);
    if (f->kind == OMM_CONFIG_KIND_LIST && f->item->kind == OMM_CONFIG_KIND_MAP) {
        char item[CONFIG_PATH_SIZE] = "";
        config_text t = {item, sizeof item, 0};
        config_text_add(&t, "%s[]", path);
        return describe_fields(out, f->item->sub, item, depth + 1);
    }
    if (f->kind == OMM_CONFIG_KIND_LIST) {
        config_accepted(accepted, f->item);
        return omm_buf_printf(out, "%s[]: %s\n", path, accepted);
    }
    return OMM_OK;
}

/* Tables may contain themselves through a list: the depth that a file may have ends it. */
static omm_err describe_fields(omm_buf *out, const omm_config_field *fields, const char *prefix,
                               int depth) {
    if (depth > CONFIG_DEPTH_MAX) return OMM_OK;
    size_t count = config_table_count(fields);
    for (size_t i = 0; i < count; i++) {
        char path[CONFIG_PATH_SIZE] = "";
        config_text t = {path, sizeof path, 0};
        config_text_add(&t, "%s%s%s", prefix, *prefix ? "." : "", fields[i].key);
        OMM_TRY(describe_field(out, &fields[i], path, depth));
    }
    return OMM_OK;
}

omm_err omm_config_describe(omm_buf *out, const omm_config_field *fields) {
    size_t size_before = out->size;
    omm_err err = describe_fields(out, fields, "", 1);
    if (err != OMM_OK) out->size = size_before;
    return err;
}

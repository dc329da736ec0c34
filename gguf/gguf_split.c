/* gguf_split.c - a model in several files: opening one opens all of them as one.
 *
 * Invariant: nothing of a part is believed that the first part does not say too: its number, the
 * counts, and every key besides split.* and
 * general.alignment.
 */
#include "gguf_internal.h"

#include "omm/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUFFIX_BYTES = 20, COUNT_BYTES = 10 }; /* "-00001-of-00003.gguf", "00003.gguf" */

/* What the keys of one part say. */
typedef struct split_keys {
    uint32_t no, count, tensors; /* no counts from 0 */
} split_keys;

static omm_err read_keys(split_keys *out, const omm_gguf *g) {
    OMM_TRY(omm_gguf_get_u32(&out->no, g, "split.no"));
    OMM_TRY(omm_gguf_get_u32(&out->count, g, "split.count"));
    OMM_TRY(omm_gguf_get_u32(&out->tensors, g, "split.tensors.count"));
    if (out->count > OMM_GGUF_PARTS_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "GGUF: split.count is %u, at most %u", out->count,
                         OMM_GGUF_PARTS_MAX);
    if (out->count == 0) return omm_raise(OMM_ERR_FORMAT, "GGUF: split.count is 0");
    if (out->no >= out->count)
        return omm_raise(OMM_ERR_FORMAT, "GGUF: split.no is %u of split.count %u: must be 0 to %u",
                         out->no, out->count, out->count - 1);
    return OMM_OK;
}

omm_err omm_gguf_part_path(char out[OMM_PATH_MAX], const char *path, uint32_t no, uint32_t count) {
    const size_t size = strlen(path);
    char suffix[64];
    snprintf(suffix, sizeof suffix, "-%05u-of-%05u.gguf", no + 1, count);
    if (size >= OMM_PATH_MAX || size <= SUFFIX_BYTES || strlen(suffix) != SUFFIX_BYTES)
        return omm_raise(OMM_ERR_FORMAT, "GGUF: a part must be named as in model%s", suffix);
    memcpy(out, path, size - SUFFIX_BYTES);
    memcpy(out + size - SUFFIX_BYTES, suffix, SUFFIX_BYTES + 1);
    return OMM_OK;
}

/* The number at the end of a name as in -00001-of-00003.gguf; 0: none, or too large. */
static uint32_t count_in_name(const char *path) {
    const size_t size = strlen(path);
    if (size <= SUFFIX_BYTES) return 0;
    const unsigned long count = strtoul(path + size - COUNT_BYTES, NULL, 10);
    return count <= OMM_GGUF_PARTS_MAX ? (uint32_t)count : 0;
}

bool omm_gguf_has_file(const char *model, const char *path) {
    char part[OMM_PATH_MAX];
    const uint32_t count = count_in_name(model);
    bool is = omm_file_same(path, model);
    for (uint32_t i = 0; !is && i < count; i++)
        is = omm_gguf_part_path(part, model, i, count) == OMM_OK && omm_file_same(path, part);
    return is;
}

static omm_err check_name(const char *path, const split_keys *keys) {
    char want[OMM_PATH_MAX];
    OMM_TRY(omm_gguf_part_path(want, path, keys->no, keys->count));
    if (strcmp(want, path) == 0) return OMM_OK;
    return omm_raise(OMM_ERR_MISMATCH,
                     "GGUF: by its keys this is part %u of %u, so its name must end in %s",
                     keys->no + 1, keys->count, want + strlen(want) - SUFFIX_BYTES);
}

static bool same_kv(const omm_gguf_kv *a, const omm_gguf_kv *b) {
    return a->kind == b->kind && a->element == b->element && a->count == b->count &&
           omm_bytes_equal(a->data, b->data);
}

bool omm_gguf_is_split_key(omm_bytes key) {
    static const char split[] = "split.";
    return key.size >= sizeof split - 1 && memcmp(key.data, split, sizeof split - 1) == 0;
}

/* Each file has its own part of these. */
static bool is_own(omm_bytes key) {
    return omm_gguf_is_split_key(key) || omm_bytes_equal(key, omm_bytes_str("general.alignment"));
}

/* Later parts repeat keys of the first, or have none. */
static omm_err check_metadata(const omm_gguf *first, const omm_gguf *part, uint32_t number) {
    for (size_t i = 0; i < part->kv_count; i++) {
        const omm_gguf_kv *kv = &part->kvs[i];
        if (is_own(kv->key)) continue;
        const omm_gguf_kv *same = gguf_find_kv(first, kv->key);
        if (!same || !same_kv(same, kv))
            return omm_raise(OMM_ERR_MISMATCH, "GGUF: key %.*s of part %u is %s the first part",
                             gguf_shown(kv->key), (const char *)kv->key.data, number,
                             same ? "not as in" : "not in");
    }
    return OMM_OK;
}

static omm_err check_part(const omm_gguf *first, const omm_gguf *part, const split_keys *want) {
    split_keys is = {0};
    OMM_TRY(read_keys(&is, part));
    if (is.no != want->no || is.count != want->count || is.tensors != want->tensors)
        return omm_raise(OMM_ERR_MISMATCH,
                         "GGUF: split.no, .count, .tensors.count are %u, %u, %u: expected %u, %u, "
                         "%u",
                         is.no, is.count, is.tensors, want->no, want->count, want->tensors);
    return check_metadata(first, part, want->no + 1);
}

static omm_err in_part(omm_err err, uint32_t no, uint32_t count, const char *path) {
    return omm_raise(err, "part %u of %u, %s: %s", no + 1, count, path, omm_err_sentence());
}

static omm_err open_parts(omm_gguf *parts, const char *path, const split_keys *keys) {
    for (uint32_t i = 0; i < keys->count; i++) {
        char name[OMM_PATH_MAX];
        const split_keys want = {i, keys->count, keys->tensors};
        OMM_TRY(omm_gguf_part_path(name, path, i, keys->count));
        omm_err err = gguf_open_file(&parts[i], name); /* says which file */
        if (err != OMM_OK)
            return omm_raise(err, "part %u of %u: %s", i + 1, keys->count, omm_err_sentence());
        err = check_part(&parts[0], &parts[i], &want);
        if (err != OMM_OK) return in_part(err, i, keys->count, name);
    }
    return OMM_OK;
}

/* All tensors in the order of the parts, indexed anew.  `all` then owns its arrays, and borrows the
 * rest from the parts. */
static omm_err join(omm_gguf *all, const omm_gguf *parts, const split_keys *keys) {
    size_t count = 0;
    for (uint32_t i = 0; i < keys->count; i++) count += parts[i].tensor_count;
    if (count != keys->tensors)
        return omm_raise(OMM_ERR_MISMATCH,
                         "GGUF: the %u parts have %zu tensors, split.tensors.count is %u",
                         keys->count, count, keys->tensors);
    if (count > OMM_GGUF_TENSORS_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "GGUF: %zu tensors, at most %u", count,
                         OMM_GGUF_TENSORS_MAX);
    *all = parts[0];
    all->tensor_count = count;
    all->part_count = keys->count;
    all->tensors = (omm_gguf_tensor *)omm_alloc(count, sizeof *all->tensors);
    all->tensor_order = (uint32_t *)omm_alloc(count, sizeof *all->tensor_order);
    all->more = (omm_map *)omm_alloc(keys->count - 1, sizeof *all->more);
    if (!all->tensors || !all->tensor_order || !all->more)
        return omm_raise(OMM_ERR_NOMEM, "GGUF: no memory for %zu tensors", count);
    omm_gguf_tensor *to = all->tensors;
    for (uint32_t i = 0; i < keys->count; i++) {
        for (size_t k = 0; k < parts[i].tensor_count; k++) {
            *to = parts[i].tensors[k];
            (to++)->part = i;
        }
        if (i > 0) all->more[i - 1] = parts[i].map;
    }
    OMM_TRY(gguf_index_tensors(all));
    return gguf_check_blocks(all);
}

/* What the whole owns now. */
static void forget_moved(omm_gguf *parts, uint32_t count) {
    parts[0].kvs = NULL;
    parts[0].kv_order = NULL;
    for (uint32_t i = 0; i < count; i++) parts[i].map = (omm_map){0};
}

omm_err gguf_open_split(omm_gguf *out, const char *path, const omm_gguf *opened) {
    split_keys keys = {0};
    omm_gguf all = {0};
    OMM_TRY(omm_err_about(read_keys(&keys, opened), path));
    OMM_TRY(omm_err_about(check_name(path, &keys), path));
    omm_gguf *parts = (omm_gguf *)omm_alloc(keys.count, sizeof *parts);
    if (!parts) return omm_raise(OMM_ERR_NOMEM, "GGUF: no memory for %u parts", keys.count);
    omm_err err = open_parts(parts, path, &keys);
    if (err == OMM_OK) err = omm_err_about(join(&all, parts, &keys), path);
    if (err == OMM_OK) {
        forget_moved(parts, keys.count);
        *out = all;
    } else {
        omm_free(all.tensors);
        omm_free(all.tensor_order);
        omm_free(all.more);
    }
    for (uint32_t i = 0; i < keys.count; i++) omm_gguf_close(&parts[i]);
    omm_free(parts);
    return err;
}

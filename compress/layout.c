#include "omm/layout.h"

#include "omm/bytes.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool name_is_plain(const char *name) {
    size_t size = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return size >= 1 && size <= OMM_LAYOUT_NAME_MAX && name[size] == '\0';
}

static omm_err segment_check(const omm_layout *layout, size_t index, size_t offset) {
    const omm_segment *s = &layout->segments[index];
    if (!s->name || !name_is_plain(s->name))
        return omm_raise(OMM_ERR_CONFIG,
                         "layout segment %zu: name must be 1 to %u of A-Z a-z 0-9 . _ -", index,
                         OMM_LAYOUT_NAME_MAX);
    if (s->rows < 1 || s->cols < 1)
        return omm_raise(OMM_ERR_CONFIG, "layout segment %s: %u x %u is empty", s->name,
                         (unsigned)s->rows, (unsigned)s->cols);
    if (s->offset != offset)
        return omm_raise(OMM_ERR_CONFIG, "layout segment %s: offset %zu, must be %zu", s->name,
                         s->offset, offset);
    if ((uint64_t)s->rows * s->cols > OMM_LAYOUT_VALUES_MAX - offset)
        return omm_raise(OMM_ERR_CONFIG, "layout segment %s: over %u values in all", s->name,
                         OMM_LAYOUT_VALUES_MAX);
    return OMM_OK;
}

omm_err omm_layout_check(const omm_layout *layout) {
    if (!layout->segments || layout->segment_count < 1 ||
        layout->segment_count > OMM_LAYOUT_SEGMENTS_MAX)
        return omm_raise(OMM_ERR_CONFIG, "layout: %zu segments, must be 1 to %u",
                         layout->segment_count, OMM_LAYOUT_SEGMENTS_MAX);
    size_t offset = 0;
    for (size_t i = 0; i < layout->segment_count; i++) {
        OMM_TRY(segment_check(layout, i, offset));
        offset += (size_t)layout->segments[i].rows * layout->segments[i].cols;
    }
    if (offset != layout->value_count)
        return omm_raise(OMM_ERR_CONFIG, "layout: segments hold %zu values, not %zu", offset,
                         layout->value_count);
    return OMM_OK;
}

omm_digest omm_layout_digest(const omm_layout *layout) {
    omm_hasher h;
    omm_hasher_init(&h);
    for (size_t i = 0; i < layout->segment_count; i++) {
        const omm_segment *s = &layout->segments[i];
        char text[OMM_LAYOUT_NAME_MAX + 128];
        int size = snprintf(text, sizeof text,
                            "%s{\"cols\":%" PRIu32 ",\"name\":\"%s\",\"offset\":%zu,"
                            "\"rows\":%" PRIu32 "}",
                            i == 0 ? "[" : ",", s->cols, s->name, s->offset, s->rows);
        OMM_ASSERT(size > 0 && (size_t)size < sizeof text);
        omm_hasher_update(&h, omm_bytes_of(text, (size_t)size));
    }
    omm_hasher_update(&h, omm_bytes_str("]\n"));
    return omm_hasher_final(&h);
}

size_t omm_layout_rows(const omm_layout *layout) {
    size_t rows = 0;
    for (size_t i = 0; i < layout->segment_count; i++) rows += layout->segments[i].rows;
    return rows;
}

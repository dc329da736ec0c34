#include "omm/layout.h"

#include "omm/bytes.h"

#include <string.h>

static omm_err segment_check(const omm_layout *layout, size_t index, size_t offset) {
    const omm_segment *s = &layout->segments[index];
    if (!s->name || s->name[0] == '\0' || strlen(s->name) > OMM_LAYOUT_NAME_MAX)
        return omm_raise(OMM_ERR_CONFIG, "layout segment %zu: name is missing, empty or over %u",
                         index, OMM_LAYOUT_NAME_MAX);
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

static void hash_u32(omm_hasher *h, size_t v) {
    uint8_t b[4];
    omm_put_u32(b, (uint32_t)v);
    omm_hasher_update(h, omm_bytes_of(b, sizeof b));
}

omm_digest omm_layout_digest(const omm_layout *layout) {
    omm_hasher h;
    omm_hasher_init(&h);
    hash_u32(&h, layout->segment_count);
    for (size_t i = 0; i < layout->segment_count; i++) {
        const omm_segment *s = &layout->segments[i];
        hash_u32(&h, strlen(s->name));
        omm_hasher_update(&h, omm_bytes_str(s->name));
        hash_u32(&h, s->rows);
        hash_u32(&h, s->cols);
    }
    return omm_hasher_final(&h);
}

size_t omm_layout_rows(const omm_layout *layout) {
    size_t rows = 0;
    for (size_t i = 0; i < layout->segment_count; i++) rows += layout->segments[i].rows;
    return rows;
}

/* layout.h - how a flat f32 vector is divided into named matrices.
 *
 *   value_count = sum of rows * cols; segment i holds [rows][cols], row major, at `offset`
 *
 * Nodes, coordinator and codecs see an adapter only as such a vector and its layout.
 *
 * Depends on: base.  Threads: no shared state.
 */
#ifndef OMM_LAYOUT_H
#define OMM_LAYOUT_H

#include "omm/err.h"
#include "omm/hash.h"

#include <stddef.h>
#include <stdint.h>

#define OMM_LAYOUT_VALUES_MAX (1u << 28) /* 1 GiB of f32: larger than any adapter we ship */
#define OMM_LAYOUT_SEGMENTS_MAX 65536u
#define OMM_LAYOUT_NAME_MAX 128u /* bytes, without the NUL */

typedef struct omm_segment {
    const char *name; /* "blk.0.attn_q.weight.lora_a"; letters, digits, ".", "_", "-" */
    uint32_t rows, cols;
    size_t offset; /* in values */
} omm_segment;

/* Borrows `segments`; the caller keeps them alive. */
typedef struct omm_layout {
    const omm_segment *segments;
    size_t segment_count;
    size_t value_count;
} omm_layout;

/* Segments must be non-empty, named, and tile the vector in order without holes; limits as above.
 * Errors: CONFIG. */
OMM_CHECKED omm_err omm_layout_check(const omm_layout *layout);

/* BLAKE2b-256 of the canonical JSON (omm/json.h) of the list of segments:
 *   [{"cols":8,"name":"...","offset":0,"rows":4},...] and a newline.  The layout must be valid. */
omm_digest omm_layout_digest(const omm_layout *layout);

/* Rows of all segments together.  The layout must be valid. */
size_t omm_layout_rows(const omm_layout *layout);

#endif

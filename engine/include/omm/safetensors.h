/* safetensors.h - the tensor file of the Python world: a JSON table of contents, then the data.
 *
 *   u64 header_bytes | header: JSON object, may end in spaces | data
 *   header = {"__metadata__": {"key": "text", ...}, "name": {"dtype": "F32", "shape": [rows, cols],
 *             "data_offsets": [begin, end]}, ...}      offsets from the beginning of the data
 *
 * Little-endian, row major.  The ranges tile the data: no hole, no overlap, nothing behind the last.
 * A file from a stranger costs no more memory than the limits below say, and names in it are only
 * compared, never used as paths.  Element types: F32, F16, BF16; a tensor of another type is refused
 * by name, because nothing here could use it.
 *
 * Source: the format's README (huggingface/safetensors).
 * Depends on: err, bytes, file, json.  Threads: an open file is read-only and may be shared.
 */
#ifndef OMM_SAFETENSORS_H
#define OMM_SAFETENSORS_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/file.h"

#include <stddef.h>
#include <stdint.h>

#define OMM_SAFETENSORS_HEADER_MAX (16u << 20) /* bytes; the format allows 100 MB */
#define OMM_SAFETENSORS_TENSORS_MAX 65536u
#define OMM_SAFETENSORS_NAME_MAX 512u /* bytes of a name with its NUL */
#define OMM_SAFETENSORS_DIMS_MAX 8u

typedef enum omm_safetensors_type {
    OMM_SAFETENSORS_F32,
    OMM_SAFETENSORS_F16,
    OMM_SAFETENSORS_BF16,
    OMM_SAFETENSORS_TYPE_COUNT
} omm_safetensors_type;

typedef struct omm_safetensor {
    const char *name; /* UTF-8 without NUL inside; owned by the file, or the writer's caller */
    omm_safetensors_type type;
    uint32_t n_dims;                         /* 0 (one value) .. 8 */
    uint64_t dims[OMM_SAFETENSORS_DIMS_MAX]; /* slowest first */
    omm_bytes data;                          /* borrowed, unaligned */
} omm_safetensor;

typedef struct omm_safetensors {
    omm_map map;             /* empty when the bytes are the caller's */
    omm_safetensor *tensors; /* ascending by name */
    size_t count;
    void *header; /* the parsed JSON, which holds the names */
} omm_safetensors;

/* Map and check a file.  Release with omm_safetensors_close.
 * Errors: NOT_FOUND, IO, NOMEM, SIZE (shorter or longer than its header says), FORMAT (header, a
 * range, a hole, an overlap), TOO_BIG (a limit above), UNSUPPORTED (element type, tensor named). */
OMM_CHECKED omm_err omm_safetensors_open(omm_safetensors *file, const char *path);
/* The same over bytes that outlive `file`. */
OMM_CHECKED omm_err omm_safetensors_open_bytes(omm_safetensors *file, omm_bytes bytes);
void omm_safetensors_close(omm_safetensors *file);

/* NULL when there is none. */
const omm_safetensor *omm_safetensors_find(const omm_safetensors *file, const char *name);

/* The text of a key of __metadata__, owned by the file; NULL when there is none. */
const char *omm_safetensors_metadata(const omm_safetensors *file, const char *key);

/* Elements of a tensor: the product of its dimensions. */
uint64_t omm_safetensor_count(const omm_safetensor *tensor);
/* Element i, widened exactly; i < omm_safetensor_count. */
float omm_safetensor_get(const omm_safetensor *tensor, uint64_t i);

/* Append a file of these tensors, in any order given: they are written ascending by type (F32 first)
 * and name, with {"format": "pt"} as metadata and one spelling of the header, so equal tensors give
 * equal bytes, those of the reference writer.
 * Errors: FORMAT (a name twice, empty, or not UTF-8), SIZE (data that do not fit the shape), TOO_BIG,
 * NOMEM; then `out` is unchanged.  The result has been read back. */
OMM_CHECKED omm_err omm_safetensors_write(omm_buf *out, const omm_safetensor *tensors,
                                          size_t count);
/* The same with one more entry of metadata, behind "format"; a key of NULL: without it.  Errors: those, FORMAT (the
 * key is "format", or one of both is empty or not UTF-8). */
OMM_CHECKED omm_err omm_safetensors_write_with(omm_buf *out, const omm_safetensor *tensors,
                                               size_t count, const char *key, const char *text);

#endif

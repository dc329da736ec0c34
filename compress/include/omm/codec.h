/* codec.h - a flat f32 vector (an adapter delta) as few bytes, and back, strictly.
 *
 *   values --top-k--> kept entries --f32 | f16 | int8 per row--> payload --zstd--> sent
 *
 *   payload  [magic "OMMD"][version u8][kind u8][index u8][0 u8][value_count u32][kept_count u32]
 *            [layout id: first 8 bytes of omm_layout_digest]
 *            [indices: none | gap varints | bitmap][int8: u24 scale per row][value x kept_count]
 *   sent     [packing u8: 0 payload follows | 1 one zstd frame follows][...]
 *
 * All integers are little endian.  One vector has one payload per codec, on every machine:
 *   - the k entries of largest magnitude are kept, ties keep the lower index, and an entry that
 *     would be stored as zero is left out; -0 is stored as +0;
 *   - indices are gaps (index - previous - 1, the first as it is) in minimal LEB128, or a bitmap
 *     (low bit first, unused bits zero) where the bitmap is strictly smaller;
 *   - f16 rounds to nearest even.  int8: per row (of the layout, over kept entries)
 *     scale = max|v| / 127 rounded up to 16 significant bits, stored as the upper 24 bits of its
 *     f32; q = rne(v / scale), so max|q| = 127 and q * scale is exact.  A row below
 *     OMM_CODEC_ROW_MIN is stored as zeros with scale 0; a row that keeps nothing has no scale.
 * What is sent is the same on every machine too: the frame is of our own making (frame_write.c), because libzstd's
 * differ between its versions.  A decoder takes any frame of zstd's, so what must agree is still the payload.
 *
 * Depends on: base; zstd.  Threads: no shared state.
 */
#ifndef OMM_CODEC_H
#define OMM_CODEC_H

#include "omm/bytes.h"
#include "omm/config.h"
#include "omm/err.h"
#include "omm/hash.h"
#include "omm/layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OMM_CODEC_VALUE_MAX                                                                        \
    32512.0f /* 127 * 256: exact in f16, and as an int8 row; more is refused */
#define OMM_CODEC_ROW_MIN 0x1p-100f /* int8 rows with max|v| below are zero */
#define OMM_CODEC_ZSTD_LEVEL_MAX 19u
#define OMM_CODEC_HEADER_BYTES 24u

typedef enum omm_codec_kind {                     /* the numbers are on the wire */
                              OMM_CODEC_NONE = 0, /* f32 as it is */
                              OMM_CODEC_F16 = 1,
                              OMM_CODEC_INT8 = 2,
} omm_codec_kind;

/* What an offer states.  keep_count 0 keeps every value; else top-k of 1 <= k <= value_count.
 * zstd_level 0 sends the payload as it is; all others pack it, alike.  error_feedback tells the node to call
 * omm_feedback_encode; it does not change the coding. */
typedef struct omm_codec {
    omm_codec_kind kind;
    uint32_t keep_count;
    uint32_t zstd_level;
    bool error_feedback;
} omm_codec;

/* Errors: CONFIG (unknown kind, level over the maximum, more kept than there are). */
OMM_CHECKED omm_err omm_codec_check(const omm_codec *codec, const omm_layout *layout);

/* For offers: [kind u8][zstd_level u8][error_feedback u8: 0 or 1][0 u8][keep_count u32].
 * Errors of get: REFUSED_FORMAT (another size, unknown kind, level over the maximum, bad flag). */
#define OMM_CODEC_BYTES 8u
void omm_codec_put(uint8_t out[OMM_CODEC_BYTES], const omm_codec *codec);
OMM_CHECKED omm_err omm_codec_get(omm_codec *out, omm_bytes in);

/* "int8 top-4096 zstd-3 feedback", for people. */
#define OMM_CODEC_TEXT_SIZE 64u
void omm_codec_text(char out[OMM_CODEC_TEXT_SIZE], const omm_codec *codec);

/* The exact maxima over all vectors of this layout, in bytes: nothing larger is ever decoded.
 * sent = payload + 1, because a zstd frame is used only where it is smaller. */
size_t omm_codec_payload_bytes_max(const omm_codec *codec, const omm_layout *layout);
size_t omm_codec_sent_bytes_max(const omm_codec *codec, const omm_layout *layout);

/* The codec of this kind with the largest keep_count (0 where all values fit) whose sent bytes are
 * within `byte_budget` for any vector and any zstd version.
 * Errors: CONFIG (not even one value fits). */
OMM_CHECKED omm_err omm_codec_choose(omm_codec *out, omm_codec_kind kind, uint32_t zstd_level,
                                     const omm_layout *layout, uint64_t byte_budget);

typedef struct omm_encoded {
    omm_digest payload_digest; /* canonical: BLAKE2b-256 of the payload, before zstd */
    omm_digest sent_digest;    /* BLAKE2b-256 of the bytes as sent */
    size_t payload_bytes;
    size_t sent_bytes;
    uint32_t kept_count;
} omm_encoded;

/* Append the sent form of `values` to `sent`.
 *
 *   values   (layout->value_count) f32, finite, |v| <= OMM_CODEC_VALUE_MAX; borrowed
 *   info     may be NULL
 *
 * Errors: CONFIG, REFUSED_VALUE, NOMEM, TOO_BIG (sent->bytes_max).  On error nothing changed. */
OMM_CHECKED omm_err omm_codec_encode(omm_buf *sent, omm_encoded *info, const omm_codec *codec,
                                     const omm_layout *layout, const float *values);

/* Write the vector that `sent` (from a remote node: trust nothing) describes, zeros where nothing
 * was kept.  A payload that omm_codec_encode would not have written is refused.
 *
 *   values   (layout->value_count) f32, written by us
 *   info     may be NULL
 *
 * Errors: REFUSED_SIZE (over the maximum, or a frame that declares more: before any allocation),
 * REFUSED_FORMAT (truncated, trailing bytes, bad magic, not canonical), REFUSED_RECIPE (another
 * codec, or more entries than it keeps), REFUSED_SHAPE (another layout, an index outside it),
 * REFUSED_VALUE (not finite, out of range), CONFIG, NOMEM.  On error nothing changed. */
OMM_CHECKED omm_err omm_codec_decode(float *values, omm_encoded *info, const omm_codec *codec,
                                     const omm_layout *layout, omm_bytes sent);

/* The same values piece by piece, for who adds them up: ascending, all of them, at most
 * OMM_CODEC_PIECE_VALUES at a time.  No piece is given before all of `sent` was checked, so that what is
 * refused has reached nobody.  Takes the memory of one piece, and of the payload where it is packed.
 *
 *   each     `values` are those from index `first` on, borrowed for the call; an error ends the walk
 *   info     may be NULL; filled before the first piece
 *
 * Errors: as decode, and those of `each`. */
#define OMM_CODEC_PIECE_VALUES ((size_t)1 << 16) /* 256 KiB: stays in a cache */
typedef omm_err (*omm_codec_each)(void *ud, size_t first, const float *values, size_t count);
OMM_CHECKED omm_err omm_codec_walk(omm_encoded *info, const omm_codec *codec,
                                   const omm_layout *layout, omm_bytes sent, omm_codec_each each,
                                   void *ud);
/* The same for who takes `sent` and will show it to others.  It must be read everywhere as it is here: not packed, or in
 * the frame that omm_codec_pack makes, or in one of one segment, plain blocks and runs alone.  Of other frames readers may
 * differ, by their version and by the processor, where somebody has made them so.
 * Errors: as omm_codec_walk; REFUSED_FORMAT for such frames, before the first piece. */
OMM_CHECKED omm_err omm_codec_walk_known(omm_encoded *info, const omm_codec *codec,
                                         const omm_layout *layout, omm_bytes sent,
                                         omm_codec_each each, void *ud);

/* The two outer steps alone: payload bytes to their sent form, and back with the content limited
 * to `payload_bytes_max`.  Neither looks inside the payload.  Both append.
 * Errors: NOMEM, TOO_BIG; unpack also REFUSED_SIZE, REFUSED_FORMAT. */
OMM_CHECKED omm_err omm_codec_pack(omm_buf *sent, omm_bytes payload, uint32_t zstd_level);
OMM_CHECKED omm_err omm_codec_unpack(omm_buf *payload, omm_bytes sent, size_t payload_bytes_max);

/* Error feedback.  For each i, in f32 and this order:
 *     x[i] = delta[i] + residual_in[i];  sent = encode(x);  residual_out[i] = x[i] - decode(sent)[i]
 *
 *   residual_in    (n) or NULL for zeros;  residual_out (n), may be residual_in
 *
 * Errors: as encode.  On error nothing changed. */
OMM_CHECKED omm_err omm_feedback_encode(omm_buf *sent, omm_encoded *info, float *residual_out,
                                        const omm_codec *codec, const omm_layout *layout,
                                        const float *delta, const float *residual_in);

/* BLAKE2b-256 of the f32 bytes, little endian, of values[value_count]; NULL: of zeros. */
omm_digest omm_residual_digest(const float *values, size_t value_count);
/* Of zeros: a residual before anything was sent, and wherever there is no error feedback. */
omm_digest omm_residual_zero(size_t value_count);

/* What a scenario's `codec: {up: ..., down: ...}` mappings say.  The table for down has only kind
 * (default f16) and zstd_level: a broadcast keeps every value. */
typedef struct omm_codec_config {
    int kind;             /* omm_codec_kind */
    double topk_fraction; /* 1 keeps every value; down: always 1 */
    uint32_t zstd_level;
    uint64_t byte_budget; /* bytes of one payload as sent; 0: none */
    bool error_feedback;
} omm_codec_config;
extern const omm_config_field omm_codec_up_fields[];
extern const omm_config_field omm_codec_down_fields[];

/* keep_count = floor(topk_fraction * n), at least 1; 0 where the fraction is 1 (or 0, as in a
 * struct the down table filled); lowered to what the budget allows.  f32 is sent without zstd, whatever
 * zstd_level says.  Errors: CONFIG. */
OMM_CHECKED omm_err omm_codec_resolve(omm_codec *out, const omm_codec_config *config,
                                      const omm_layout *layout);

#endif

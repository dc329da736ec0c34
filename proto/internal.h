/* internal.h - shared inside proto only: strict protobuf decoding into an arena, and encoding.
 *
 * Depends on: base, messages.h; protobuf-c.  Threads: no shared state.
 */
#ifndef OMM_PROTO_INTERNAL_H
#define OMM_PROTO_INTERNAL_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/hash.h"
#include "omm/mem.h"
#include "omm/messages.h"

#include "omm_messages.pb-c.h"

/* Parse `in` as `descriptor` says; *out lives in `arena`.  Refuses unknown fields and any spelling
 * that encoding the result would not give again.
 * Errors: REFUSED_SIZE, REFUSED_FORMAT, NOMEM. */
OMM_CHECKED omm_err proto_unpack(ProtobufCMessage **out,
                                 const ProtobufCMessageDescriptor *descriptor, omm_bytes in,
                                 omm_arena *arena);

/* Append the encoding of `message`.  Errors: TOO_BIG (over bytes_max, or out's limit), NOMEM. */
OMM_CHECKED omm_err proto_pack(omm_buf *out, const ProtobufCMessage *message, size_t bytes_max);

/* protobuf-c's structs take writable pointers; encoding only reads through these. */
ProtobufCBinaryData proto_data(omm_bytes view);
ProtobufCBinaryData proto_digest(const omm_digest *digest);
char *proto_text(const char *text);
static inline omm_bytes proto_view(ProtobufCBinaryData data) {
    return omm_bytes_of(data.data, data.len);
}

/* Exactly 32 bytes.  Errors: REFUSED_FORMAT, naming the field. */
OMM_CHECKED omm_err proto_get_digest(omm_digest *out, ProtobufCBinaryData data, const char *field);
/* A list of digests into `arena`; at most count_max.  Errors: REFUSED_SIZE, REFUSED_FORMAT, NOMEM. */
OMM_CHECKED omm_err proto_get_digests(const omm_digest **out, size_t count,
                                      const ProtobufCBinaryData *data, size_t count_max,
                                      const char *field, omm_arena *arena);
/* Views of a list for encoding; omm_free it.  NULL for NOMEM, and for an empty list. */
ProtobufCBinaryData *proto_digests(const omm_digest *digests, size_t count);

OMM_CHECKED omm_err proto_check_version(uint32_t version, const char *message);
/* Errors: REFUSED_SIZE unless bytes_min <= size <= bytes_max. */
OMM_CHECKED omm_err proto_check_size(size_t size, size_t bytes_min, size_t bytes_max,
                                     const char *field);

/* The reason of a refusal by its wire name; false for an unknown one. */
bool proto_reason(omm_err *out, const char *name);
/* Printable ASCII, at most OMM_SENTENCE_BYTES_MAX bytes and a NUL; NULL gives "". */
void proto_clean_sentence(char out[OMM_SENTENCE_BYTES_MAX + 1], const char *sentence);
OMM_CHECKED omm_err proto_check_sentence(const char *sentence);

#endif

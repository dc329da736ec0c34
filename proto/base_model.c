/* base_model.c - owns the wire form of Base, and what a mirror's address may be. */
#include "omm/base_model.h"

#include "internal.h"

#include <stdio.h>
#include <string.h>

#define PAYLOAD_BYTES_MAX 262000u

/* ---- pieces ---- */

uint64_t omm_base_piece_bytes(uint32_t piece_chunks) {
    return (uint64_t)piece_chunks * OMM_CHUNK_BYTES;
}

static uint64_t piece_count(uint64_t size, uint32_t piece_chunks) {
    const uint64_t bytes = omm_base_piece_bytes(piece_chunks);
    return size / bytes + (size % bytes != 0);
}

uint32_t omm_base_piece_chunks_for(uint64_t size) {
    for (uint32_t chunks = 1; chunks <= OMM_BASE_PIECE_CHUNKS_MAX; chunks *= 2)
        if (piece_count(size, chunks) <= OMM_BASE_PIECES_MAX) return chunks;
    return 0;
}

uint64_t omm_base_piece_size(const omm_base_model *base, size_t index) {
    const uint64_t bytes = omm_base_piece_bytes(base->piece_chunks);
    if (index >= base->piece_count) return 0;
    const uint64_t left = base->size - index * bytes;
    return left < bytes ? left : bytes;
}

/* ---- mirrors ---- */

static bool is_host_end(char c) {
    return c == '/' || c == '?' || c == '\0';
}

omm_err omm_mirror_check(const char *url) {
    const size_t size = strnlen(url, OMM_MIRROR_BYTES_MAX + 1);
    const char *host = url;
    if (strncmp(url, "http://", 7) == 0) host = url + 7;
    if (strncmp(url, "https://", 8) == 0) host = url + 8;
    bool ok = size <= OMM_MIRROR_BYTES_MAX && host != url && !is_host_end(host[0]);
    for (size_t i = 0; i < size && ok; i++)
        ok = url[i] > ' ' && url[i] < 0x7f && !strchr("#\\\"'<>^`{|}", url[i]);
    for (const char *c = host; ok && !is_host_end(*c); c++) ok = *c != '@';
    if (ok) return OMM_OK;
    return omm_raise(OMM_ERR_CONFIG,
                     "mirror %.80s; accepted: http://host/path or https://host/path, at most %u "
                     "printable characters, no user and no fragment",
                     url, OMM_MIRROR_BYTES_MAX);
}

omm_err omm_mirror_part(char out[OMM_MIRROR_BYTES_MAX + 1], const char *url, size_t part,
                        size_t count) {
    char first[32], wanted[32];
    OMM_TRY(omm_mirror_check(url));
    (void)snprintf(first, sizeof first, "-00001-of-%05zu.gguf", count);
    (void)snprintf(wanted, sizeof wanted, "-%05zu-of-%05zu.gguf", part + 1, count);
    const size_t path = strcspn(url, "?"), end = strlen(first);
    if (path <= end || memcmp(url + path - end, first, end) != 0 || strlen(wanted) != end)
        return omm_raise(OMM_ERR_CONFIG,
                         "mirror %.80s; the base model has %zu files: accepted is the url of the "
                         "first, which ends in %s",
                         url, count, first);
    (void)snprintf(out, OMM_MIRROR_BYTES_MAX + 1, "%.*s%s%s", (int)(path - end), url, wanted,
                   url + path);
    return OMM_OK;
}

/* ---- the wire ---- */

static omm_err check_parts(const omm_base_model *b) {
    uint64_t left = b->size;
    if (b->part_count == 0) return OMM_OK;
    OMM_TRY(proto_check_size(b->part_count, 2, OMM_BASE_PARTS_MAX, "part_bytes"));
    for (size_t i = 0; i < b->part_count; i++) {
        if (b->parts[i] < 1 || b->parts[i] > left)
            return omm_raise(OMM_ERR_REFUSED_SIZE, "part_bytes[%zu] is %llu, allowed are 1 to %llu",
                             i, (unsigned long long)b->parts[i], (unsigned long long)left);
        left -= b->parts[i];
    }
    if (left == 0) return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_SIZE, "part_bytes are %llu less than size",
                     (unsigned long long)left);
}

static omm_err check_base(const omm_base_model *b) {
    if (b->piece_chunks < 1 || b->piece_chunks > OMM_BASE_PIECE_CHUNKS_MAX)
        return omm_raise(OMM_ERR_REFUSED_SIZE, "piece_chunks is %u, allowed are 1 to %u",
                         b->piece_chunks, OMM_BASE_PIECE_CHUNKS_MAX);
    if (b->size < 1 || b->size > OMM_BASE_PIECES_MAX * omm_base_piece_bytes(b->piece_chunks))
        return omm_raise(OMM_ERR_REFUSED_SIZE, "size is %llu, allowed are 1 to %u pieces",
                         (unsigned long long)b->size, OMM_BASE_PIECES_MAX);
    if (b->piece_count != piece_count(b->size, b->piece_chunks))
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "%zu piece_digests, %llu bytes have %llu",
                         b->piece_count, (unsigned long long)b->size,
                         (unsigned long long)piece_count(b->size, b->piece_chunks));
    OMM_TRY(check_parts(b));
    OMM_TRY(proto_check_size(b->mirror_count, 0, OMM_BASE_MIRRORS_MAX, "mirrors"));
    for (size_t i = 0; i < b->mirror_count; i++)
        if (omm_mirror_check(b->mirrors[i]) != OMM_OK)
            return omm_raise(OMM_ERR_REFUSED_FORMAT, "mirrors[%zu] is not http:// or https://", i);
    return OMM_OK;
}

omm_err omm_base_model_encode(omm_buf *out, const omm_base_model *base) {
    Omm__Base pb;
    omm__base__init(&pb);
    char *mirrors[OMM_BASE_MIRRORS_MAX];
    uint64_t parts[OMM_BASE_PARTS_MAX];
    OMM_TRY(check_base(base));
    ProtobufCBinaryData *pieces = proto_digests(base->pieces, base->piece_count);
    if (!pieces) return omm_raise(OMM_ERR_NOMEM, "no memory to encode a base model");
    for (size_t i = 0; i < base->mirror_count; i++) mirrors[i] = proto_text(base->mirrors[i]);
    pb.version = OMM_WIRE_VERSION;
    pb.digest = proto_digest(&base->digest);
    pb.size = base->size;
    pb.piece_chunks = base->piece_chunks;
    pb.piece_digests = pieces;
    pb.n_piece_digests = base->piece_count;
    pb.mirrors = mirrors;
    pb.n_mirrors = base->mirror_count;
    for (size_t i = 0; i < base->part_count; i++) parts[i] = base->parts[i];
    pb.part_bytes = parts;
    pb.n_part_bytes = base->part_count;
    const omm_err err = proto_pack(out, &pb.base, PAYLOAD_BYTES_MAX);
    omm_free(pieces);
    return err;
}

static omm_err get_mirrors(omm_base_model *out, const Omm__Base *pb, omm_arena *arena) {
    OMM_TRY(proto_check_size(pb->n_mirrors, 0, OMM_BASE_MIRRORS_MAX, "mirrors"));
    const char **mirrors = omm_arena_alloc(arena, OMM_BASE_MIRRORS_MAX, sizeof *mirrors);
    if (!mirrors) return omm_raise(OMM_ERR_NOMEM, "no memory for mirrors");
    for (size_t i = 0; i < pb->n_mirrors; i++) mirrors[i] = pb->mirrors[i];
    out->mirrors = mirrors;
    out->mirror_count = pb->n_mirrors;
    return OMM_OK;
}

static omm_err get_parts(omm_base_model *out, const Omm__Base *pb, omm_arena *arena) {
    OMM_TRY(proto_check_size(pb->n_part_bytes, 0, OMM_BASE_PARTS_MAX, "part_bytes"));
    uint64_t *parts = omm_arena_alloc(arena, OMM_BASE_PARTS_MAX, sizeof *parts);
    if (!parts) return omm_raise(OMM_ERR_NOMEM, "no memory for parts");
    for (size_t i = 0; i < pb->n_part_bytes; i++) parts[i] = pb->part_bytes[i];
    out->parts = parts;
    out->part_count = pb->n_part_bytes;
    return OMM_OK;
}

omm_err omm_base_model_decode(omm_base_model *out, omm_bytes in, omm_arena *arena) {
    ProtobufCMessage *message;
    OMM_TRY(proto_unpack(&message, &omm__base__descriptor, in, arena));
    const Omm__Base *pb = (const Omm__Base *)(const void *)message;
    OMM_TRY(proto_check_version(pb->version, "Base"));
    omm_base_model base = {
        .size = pb->size, .piece_chunks = pb->piece_chunks, .piece_count = pb->n_piece_digests};
    OMM_TRY(proto_get_digest(&base.digest, pb->digest, "digest"));
    OMM_TRY(proto_get_digests(&base.pieces, pb->n_piece_digests, pb->piece_digests,
                              OMM_BASE_PIECES_MAX, "piece_digests", arena));
    OMM_TRY(get_mirrors(&base, pb, arena));
    OMM_TRY(get_parts(&base, pb, arena));
    OMM_TRY(check_base(&base));
    *out = base;
    return OMM_OK;
}

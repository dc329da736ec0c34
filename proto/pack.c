/* pack.c - owns the step between protobuf bytes and protobuf-c's structs, and its strictness. */
#include "internal.h"

#include <string.h>

/* The largest offer takes about 800 KiB while it is parsed; the arena's doubling takes the rest. */
#define DECODE_BYTES_MAX (OMM_MESSAGE_ARENA_BYTES / 4)

typedef struct decode_space {
    ProtobufCAllocator allocator;
    omm_arena *arena;
    size_t used;
    bool is_over;      /* the message wants more than DECODE_BYTES_MAX */
    bool is_exhausted; /* the arena had no more */
} decode_space;

static void *space_alloc(void *data, size_t size) {
    decode_space *space = data;
    size =
        (size + 15) & ~(size_t)15; /* as the arena does: many tiny fields count as what they take */
    if (size > DECODE_BYTES_MAX - space->used) {
        space->is_over = true;
        return NULL;
    }
    void *ptr = omm_arena_alloc(space->arena, size, 1);
    if (!ptr) space->is_exhausted = true;
    if (ptr) space->used += size;
    return ptr;
}

static void space_free(void *data, void *ptr) { /* the arena frees everything at once */
    (void)data;
    (void)ptr;
}

/* A sink that compares what is written with what was received. */
typedef struct compare_sink {
    ProtobufCBuffer base;
    omm_bytes want;
    size_t at;
    bool differs;
} compare_sink;

static void compare_append(ProtobufCBuffer *buffer, size_t size, const uint8_t *data) {
    compare_sink *sink = (compare_sink *)(void *)buffer;
    if (sink->differs || size == 0) return;
    if (size > sink->want.size - sink->at || memcmp(sink->want.data + sink->at, data, size) != 0) {
        sink->differs = true;
        return;
    }
    sink->at += size;
}

static bool is_canonical(const ProtobufCMessage *message, omm_bytes in) {
    compare_sink sink = {.base.append = compare_append, .want = in};
    protobuf_c_message_pack_to_buffer(message, &sink.base);
    return !sink.differs && sink.at == in.size;
}

/* The sub-message of `field` that is set, or NULL.  Our messages repeat bytes and numbers only. */
static const ProtobufCMessage *sub_message(const ProtobufCMessage *message,
                                           const ProtobufCFieldDescriptor *field) {
    const char *at = (const char *)message;
    if (field->type != PROTOBUF_C_TYPE_MESSAGE) return NULL;
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
        uint32_t which;
        memcpy(&which, at + field->quantifier_offset, sizeof which);
        if (which != field->id) return NULL;
    }
    const ProtobufCMessage *sub;
    memcpy(&sub, at + field->offset, sizeof(ProtobufCMessage *));
    return sub;
}

/* Messages nest two deep at most: Request or Reply, and one below; Offer with Adapter and Blob. */
static bool has_unknown_fields(const ProtobufCMessage *message) {
    if (message->n_unknown_fields > 0) return true;
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCMessage *sub = sub_message(message, &message->descriptor->fields[i]);
        if (sub && sub->n_unknown_fields > 0) return true;
    }
    return false;
}

omm_err proto_unpack(ProtobufCMessage **out, const ProtobufCMessageDescriptor *descriptor,
                     omm_bytes in, omm_arena *arena) {
    const char *name = descriptor->short_name;
    OMM_TRY(proto_check_size(in.size, 1, OMM_MESSAGE_BYTES_MAX, name));
    decode_space space = {.arena = arena};
    space.allocator = (ProtobufCAllocator){space_alloc, space_free, &space};
    ProtobufCMessage *message =
        protobuf_c_message_unpack(descriptor, &space.allocator, in.size, in.data);
    if (space.is_over) {
        return omm_raise(OMM_ERR_REFUSED_SIZE, "%s needs over %u bytes to decode", name,
                         DECODE_BYTES_MAX);
    }
    if (space.is_exhausted) return omm_raise(OMM_ERR_NOMEM, "no memory to decode %s", name);
    if (!message) return omm_raise(OMM_ERR_REFUSED_FORMAT, "%s is malformed", name);
    if (has_unknown_fields(message)) {
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "%s has unknown fields", name);
    }
    if (!is_canonical(message, in)) {
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "%s is not in its canonical spelling", name);
    }
    *out = message;
    return OMM_OK;
}

omm_err proto_pack(omm_buf *out, const ProtobufCMessage *message, size_t bytes_max) {
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *to;
    if (size > bytes_max) {
        return omm_raise(OMM_ERR_TOO_BIG, "%s has %zu bytes, at most %zu are allowed",
                         message->descriptor->short_name, size, bytes_max);
    }
    OMM_TRY(omm_buf_extend(out, &to, size));
    OMM_ASSERT(protobuf_c_message_pack(message, to) == size);
    return OMM_OK;
}

ProtobufCBinaryData proto_data(omm_bytes view) {
    union {
        const uint8_t *shown;
        uint8_t *taken;
    } data = {.shown = view.data};
    return (ProtobufCBinaryData){view.size, data.taken};
}

ProtobufCBinaryData proto_digest(const omm_digest *digest) {
    return proto_data(omm_bytes_of(digest->b, sizeof digest->b));
}

char *proto_text(const char *text) {
    union {
        const char *shown;
        char *taken;
    } data = {.shown = text};
    return data.taken;
}

omm_err proto_get_digest(omm_digest *out, ProtobufCBinaryData data, const char *field) {
    if (data.len != sizeof out->b) {
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "%s has %zu bytes, not %zu", field, data.len,
                         sizeof out->b);
    }
    memcpy(out->b, data.data, sizeof out->b);
    return OMM_OK;
}

omm_err proto_get_digests(const omm_digest **out, size_t count, const ProtobufCBinaryData *data,
                          size_t count_max, const char *field, omm_arena *arena) {
    *out = NULL;
    OMM_TRY(proto_check_size(count, 0, count_max, field));
    if (count == 0) return OMM_OK;
    omm_digest *digests = omm_arena_alloc(arena, count, sizeof *digests);
    if (!digests) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu of %s", count, field);
    for (size_t i = 0; i < count; i++) OMM_TRY(proto_get_digest(&digests[i], data[i], field));
    *out = digests;
    return OMM_OK;
}

ProtobufCBinaryData *proto_digests(const omm_digest *digests, size_t count) {
    if (count == 0) return NULL;
    ProtobufCBinaryData *data = omm_alloc(count, sizeof *data);
    for (size_t i = 0; data && i < count; i++) data[i] = proto_digest(&digests[i]);
    return data;
}

omm_err proto_check_version(uint32_t version, const char *message) {
    if (version == OMM_WIRE_VERSION) return OMM_OK;
    return omm_raise(OMM_ERR_VERSION, "%s has version %u, this program speaks %u", message, version,
                     OMM_WIRE_VERSION);
}

omm_err proto_check_size(size_t size, size_t bytes_min, size_t bytes_max, const char *field) {
    if (size >= bytes_min && size <= bytes_max) return OMM_OK;
    return omm_raise(OMM_ERR_REFUSED_SIZE, "%s has size %zu, allowed are %zu to %zu", field, size,
                     bytes_min, bytes_max);
}

bool proto_reason(omm_err *out, const char *name) {
    static const omm_err all[] = {OMM_OK,
#define XX(code, text) OMM_ERR_##code,
                                  OMM_ERR_MAP(XX)
#undef XX
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(omm_err_name(all[i]), name) != 0) continue;
        *out = all[i];
        return true;
    }
    return false;
}

static bool is_printable(char c) {
    return c >= 0x20 && c < 0x7f;
}

void proto_clean_sentence(char out[OMM_SENTENCE_BYTES_MAX + 1], const char *sentence) {
    size_t n = 0;
    for (; sentence && sentence[n] && n < OMM_SENTENCE_BYTES_MAX; n++) {
        out[n] = sentence[n];
        if (!is_printable(out[n])) out[n] = '?';
    }
    out[n] = '\0';
}

omm_err proto_check_sentence(const char *sentence) {
    OMM_TRY(proto_check_size(strlen(sentence), 0, OMM_SENTENCE_BYTES_MAX, "sentence"));
    for (const char *p = sentence; *p; p++) {
        if (!is_printable(*p)) {
            return omm_raise(OMM_ERR_REFUSED_FORMAT, "sentence has a byte that is not printable");
        }
    }
    return OMM_OK;
}

/* The lists of one line of rounds.jsonl, without a tree of it: of a line that omm_round_record_parse has taken, and which
 * therefore has one spelling.  A round is read once for every check of an audit. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct cursor {
    const char *at, *end; /* the last byte is a newline, where every number ends */
    bool failed;          /* it is another spelling */
    omm_arena *arena;
    omm_err err; /* NOMEM */
} cursor;

static bool take(cursor *c, const char *text) {
    const size_t size = strlen(text);
    if (c->failed || (size_t)(c->end - c->at) < size || memcmp(c->at, text, size) != 0)
        return false;
    c->at += size;
    return true;
}

static void expect(cursor *c, const char *text) {
    if (!take(c, text)) c->failed = true;
}

/* Behind the next occurrence. */
static void find(cursor *c, const char *text) {
    const char *found =
        c->failed ? NULL : memmem(c->at, (size_t)(c->end - c->at), text, strlen(text));
    if (found)
        c->at = found + strlen(text);
    else
        c->failed = true;
}

static omm_digest take_digest(cursor *c) {
    char hex[OMM_DIGEST_HEX_SIZE] = "";
    omm_digest out = {{0}};
    expect(c, "\"");
    if (!c->failed && (size_t)(c->end - c->at) > sizeof hex) memcpy(hex, c->at, sizeof hex - 1);
    if (!c->failed && omm_digest_unhex(&out, hex) != OMM_OK) c->failed = true;
    if (!c->failed) c->at += sizeof hex - 1;
    expect(c, "\"");
    return out;
}

/* False: null. */
static bool take_digest_if(omm_digest *out, cursor *c) {
    *out = (omm_digest){{0}};
    if (take(c, "null")) return false;
    *out = take_digest(c);
    return true;
}

/* What begins so ends before the newline. */
static bool is_digit(char ch) {
    return ch >= '0' && ch <= '9';
}

static double take_real(cursor *c) {
    char *end = NULL;
    if (c->failed || (*c->at != '-' && !is_digit(*c->at))) return c->failed = true, 0;
    const double v = strtod(c->at, &end);
    c->at = end;
    return v;
}

static uint64_t take_u64(cursor *c) {
    char *end = NULL;
    if (c->failed || !is_digit(*c->at)) return c->failed = true, 0;
    const uint64_t v = strtoull(c->at, &end, 10);
    c->at = end;
    return v;
}

static const char *take_name(cursor *c) {
    const char *begin = c->at;
    find(c, "\"");
    if (c->failed) return "";
    const size_t size = (size_t)(c->at - begin) - 1;
    char *copy = omm_arena_alloc(c->arena, size + 1, 1);
    if (!copy) c->err = omm_raise(OMM_ERR_NOMEM, "no memory for a name");
    if (copy) memcpy(copy, begin, size);
    return copy ? copy : "";
}

/* Room for a list; NULL: nothing is taken from here on. */
static void *room(cursor *c, size_t count, size_t size) {
    void *out = c->failed || c->err != OMM_OK ? NULL : omm_arena_alloc(c->arena, count + 1, size);
    if (!out && !c->failed && c->err == OMM_OK)
        c->err = omm_raise(OMM_ERR_NOMEM, "no memory for %zu elements", count);
    return out;
}

static const omm_digest *take_digests(cursor *c, size_t count) {
    omm_digest *out = room(c, count, sizeof *out);
    for (size_t i = 0; out && i < count && !c->failed; i++) {
        if (i) expect(c, ",");
        out[i] = take_digest(c);
    }
    expect(c, "]");
    return out;
}

static const omm_round_accepted *take_accepted(cursor *c, size_t count) {
    omm_round_accepted *out = room(c, count, sizeof *out);
    for (size_t i = 0; out && i < count && !c->failed; i++) {
        expect(c, i ? ",{\"canonical\":" : "{\"canonical\":");
        out[i].canonical = take_digest(c);
        expect(c, ",\"node\":");
        out[i].node = take_digest(c);
        expect(c, ",\"norm\":");
        out[i].norm = take_real(c);
        expect(c, ",\"payload\":");
        out[i].payload = take_digest(c);
        expect(c, ",\"receipt\":");
        out[i].receipt = take_digest(c);
        expect(c, ",\"submission\":");
        out[i].submission = take_digest(c);
        expect(c, ",\"tokens\":");
        out[i].tokens = take_u64(c);
        expect(c, "}");
    }
    expect(c, "]");
    return out;
}

static const omm_round_refused *take_refused(cursor *c, size_t count) {
    omm_round_refused *out = room(c, count, sizeof *out);
    for (size_t i = 0; out && i < count && !c->failed; i++) {
        expect(c, i ? ",{\"node\":" : "{\"node\":");
        out[i].has_node = take_digest_if(&out[i].node, c);
        expect(c, ",\"reason\":\"");
        out[i].reason = take_name(c);
        expect(c, ",\"receipt\":");
        out[i].has_receipt = take_digest_if(&out[i].receipt, c);
        expect(c, ",\"submission\":");
        out[i].submission = take_digest(c);
        expect(c, "}");
    }
    expect(c, "]");
    return out;
}

/* Members are in the order of their names; between the lists there are numbers and digests. */
omm_err round_lists_read(omm_round_record *out, omm_arena *arena, omm_bytes line) {
    const char *text = (const char *)line.data;
    cursor c = {.at = text, .end = text + line.size, .arena = arena, .err = OMM_OK};
    c.failed = line.size == 0 || line.data[line.size - 1] != '\n';
    expect(&c, "{\"accepted\":[");
    out->accepted = take_accepted(&c, out->accepted_count);
    find(&c, "\"missing\":[");
    out->missing = take_digests(&c, out->missing_count);
    find(&c, "\"refused\":[");
    out->refused = take_refused(&c, out->refused_count);
    find(&c, "\"selected\":[");
    out->selected = take_digests(&c, out->selected_count);
    if (c.err == OMM_OK && c.failed)
        c.err = omm_raise(OMM_ERR_FORMAT, "not the line of rounds.jsonl that it was");
    return c.err;
}

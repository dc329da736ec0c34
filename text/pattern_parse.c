/* pattern_parse.c - see pattern.h: a regular expression to parts that stand inside one another, and these to nodes. */
#include "pattern_nodes.h"

#include "omm/mem.h"
#include "omm/utf8.h"

#include <stdlib.h>
#include <string.h>

#define PARTS_MAX (2 * PATTERN_BYTES_MAX)
#define DEPTH_MAX 64u /* groups inside groups */
#define STEPS_MAX                                                                                  \
    (4 * PATTERN_NODES_MAX) /* parts that are turned into nodes, each time they are repeated */
#define TIMES_MAX 100000u   /* more are as many; none fits */

typedef enum part_kind {
    PART_SET,
    PART_BEGIN,
    PART_END,
    PART_SEQUENCE, /* one after the other; none: an empty text */
    PART_EITHER,
    PART_REPEAT, /* its one child, from `least` to `most` times; PATTERN_NONE: any number */
} part_kind;

typedef struct part {
    part_kind kind;
    uint32_t first, count; /* children, in `children` */
    uint32_t set;
    uint32_t least, most;
} part;

typedef struct reader {
    nodes *out;
    const char *text;
    size_t size, at;
    unsigned depth, steps;
    part parts[PARTS_MAX];
    uint32_t part_count;
    uint32_t children[2 * PARTS_MAX], child_count;
    uint32_t waiting[PARTS_MAX], waiting_count; /* parts whose parent is not known so far */
    range ranges[PATTERN_RANGES_MAX];           /* of the set that is read */
    uint32_t range_count;
} reader;

/* ---- errors and bytes -------------------------------------------------------------------------- */

static omm_err malformed(const reader *r, const char *what) {
    return omm_raise(OMM_ERR_FORMAT, "byte %zu of the pattern: %s", r->at, what);
}

static omm_err not_read(const reader *r, const char *what) {
    return omm_raise(OMM_ERR_UNSUPPORTED, "byte %zu of the pattern: %s", r->at, what);
}

static omm_err too_much(const reader *r) {
    return not_read(r, "it is too long, or repeats too much");
}

/* 0 at the end. */
static uint8_t peek(const reader *r) {
    return (uint8_t)r->text[r->at];
}

static bool take(reader *r, char c) {
    if (r->text[r->at] != c) return false;
    r->at++;
    return true;
}

static bool take_word(reader *r, const char *word) {
    const size_t size = strlen(word);
    if (strncmp(r->text + r->at, word, size) != 0) return false;
    r->at += size;
    return true;
}

static bool is_digit(uint8_t c) {
    return c >= '0' && c <= '9';
}

static bool is_letter(uint8_t c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static omm_err take_character(uint32_t *out, reader *r) {
    const uint8_t *p = (const uint8_t *)r->text + r->at;
    const unsigned size = omm_utf8_size(p, r->size - r->at);
    static const uint8_t masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    if (size == 0) return malformed(r, "a character is missing");
    *out = p[0] & masks[size];
    for (unsigned i = 1; i < size; i++) *out = *out << 6 | (p[i] & 0x3fu);
    r->at += size;
    return OMM_OK;
}

/* ---- sets -------------------------------------------------------------------------------------- */

static const range s_digits[] = {{'0', '9'}};
static const range s_word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const range s_space[] = {
    {'\t', '\r'},     {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
    {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
static const range s_line_ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
static const range s_characters[] = {{1, 0xd7ff}, {0xe000, PATTERN_CHARACTER_MAX}};

static omm_err add_range(reader *r, uint32_t low, uint32_t high) {
    if (r->range_count == PATTERN_RANGES_MAX) return too_much(r);
    r->ranges[r->range_count++] = (range){low, high};
    return OMM_OK;
}

static omm_err add_ranges(reader *r, const range *list, size_t count, bool others) {
    uint32_t from = 0;
    for (size_t i = 0; i < count; i++) {
        if (!others) OMM_TRY(add_range(r, list[i].low, list[i].high));
        if (others && list[i].low > from) OMM_TRY(add_range(r, from, list[i].low - 1));
        from = list[i].high + 1;
    }
    return others && from <= PATTERN_CHARACTER_MAX ? add_range(r, from, PATTERN_CHARACTER_MAX)
                                                   : OMM_OK;
}

#define ADD_RANGES(r, list, others) add_ranges(r, list, sizeof(list) / sizeof(list)[0], others)

static int by_low(const void *a, const void *b) {
    const range *x = (const range *)a, *y = (const range *)b;
    return x->low < y->low ? -1 : x->low > y->low;
}

/* Ascending, none touching the next. */
static void join_ranges(reader *r) {
    uint32_t kept = 0;
    if (r->range_count > 0) qsort(r->ranges, r->range_count, sizeof *r->ranges, by_low);
    for (uint32_t i = 0; i < r->range_count; i++) {
        range *last = kept ? &r->ranges[kept - 1] : NULL;
        if (last && r->ranges[i].low <= last->high + 1) {
            if (r->ranges[i].high > last->high) last->high = r->ranges[i].high;
        } else {
            r->ranges[kept++] = r->ranges[i];
        }
    }
    r->range_count = kept;
}

/* Only what is a character, of one range. */
static omm_err put_characters(nodes *out, const reader *r, range one) {
    for (size_t i = 0; i < 2; i++) {
        const uint32_t low = one.low > s_characters[i].low ? one.low : s_characters[i].low;
        const uint32_t high = one.high < s_characters[i].high ? one.high : s_characters[i].high;
        if (low > high) continue;
        if (out->range_count == PATTERN_RANGES_MAX) return too_much(r);
        out->ranges[out->range_count++] = (range){low, high};
    }
    return OMM_OK;
}

static bool same_set(const nodes *out, const set *a, const set *b) {
    return a->count == b->count && memcmp(out->ranges + a->first, out->ranges + b->first,
                                          a->count * sizeof *out->ranges) == 0;
}

/* What has been added, as a part. */
static omm_err end_set(part *made, reader *r, bool others) {
    nodes *out = r->out;
    set one = {.first = out->range_count};
    join_ranges(r);
    const uint32_t count = r->range_count;
    if (others) {
        range list[PATTERN_RANGES_MAX];
        memcpy(list, r->ranges, count * sizeof *list);
        r->range_count = 0;
        OMM_TRY(add_ranges(r, list, count, true));
    }
    for (uint32_t i = 0; i < r->range_count; i++) OMM_TRY(put_characters(out, r, r->ranges[i]));
    one.count = out->range_count - one.first;
    r->range_count = 0;
    uint32_t at = 0;
    while (at < out->set_count && !same_set(out, &out->sets[at], &one)) at++;
    out->work += at;
    if (at < out->set_count) out->range_count = one.first; /* it is there */
    if (at == PATTERN_SETS_MAX) return too_much(r);
    if (at == out->set_count) out->sets[out->set_count++] = one;
    *made = (part){.kind = PART_SET, .set = at};
    return OMM_OK;
}

/* ---- escapes ----------------------------------------------------------------------------------- */

int pattern_hex_value(uint8_t digit) {
    const uint8_t lower = digit | 0x20;
    if (is_digit(digit)) return digit - '0';
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

static omm_err take_hex(uint32_t *out, reader *r, unsigned least, unsigned most) {
    unsigned digits = 0;
    *out = 0;
    for (; digits < most && pattern_hex_value(peek(r)) >= 0; digits++, r->at++)
        *out = *out * 16 + (uint32_t)pattern_hex_value(peek(r));
    return digits >= least ? OMM_OK : malformed(r, "a hex digit is missing");
}

static bool is_surrogate(uint32_t c, bool high) {
    return c >> 10 == (high ? 0xd800u : 0xdc00u) >> 10;
}

/* Behind \u. */
static omm_err take_unicode(uint32_t *out, reader *r) {
    uint32_t low = 0;
    if (take(r, '{')) {
        while (peek(r) == '0' && pattern_hex_value((uint8_t)r->text[r->at + 1]) >= 0) r->at++;
        OMM_TRY(take_hex(out, r, 1, 6));
        if (!take(r, '}')) return malformed(r, "\\u{ is not closed");
    } else {
        OMM_TRY(take_hex(out, r, 4, 4));
        if (is_surrogate(*out, true) && take_word(r, "\\u")) {
            OMM_TRY(take_hex(&low, r, 4, 4));
            if (!is_surrogate(low, false)) return malformed(r, "half a pair of surrogates");
            *out = 0x10000 + ((*out & 0x3ff) << 10 | (low & 0x3ff));
        }
    }
    if (*out > PATTERN_CHARACTER_MAX || is_surrogate(*out, true) || is_surrogate(*out, false))
        return malformed(r, "that is no character");
    return OMM_OK;
}

static omm_err take_control(uint32_t *out, reader *r) {
    if (!is_letter(peek(r))) return malformed(r, "\\c has a letter behind it");
    *out = peek(r) & 0x1fu;
    r->at++;
    return OMM_OK;
}

/* Behind a backslash: one character. */
static omm_err take_escaped(uint32_t *out, reader *r) {
    static const char names[] = "tnvfr", values[] = "\t\n\v\f\r";
    const char *named = peek(r) ? strchr(names, peek(r)) : NULL;
    if (named) {
        *out = (uint8_t)values[named - names];
        r->at++;
        return OMM_OK;
    }
    if (take(r, 'x')) return take_hex(out, r, 2, 2);
    if (take(r, 'u')) return take_unicode(out, r);
    if (take(r, 'c')) return take_control(out, r);
    if (peek(r) == '0' && !is_digit((uint8_t)r->text[r->at + 1])) {
        r->at++;
        *out = 0;
        return OMM_OK;
    }
    if (is_digit(peek(r)) || is_letter(peek(r)))
        return not_read(r, "\\ before this letter or digit is not supported");
    return take_character(out, r);
}

/* *is_class: \d and its like, which are added; else *out is a character. */
static omm_err take_escape(bool *is_class, uint32_t *out, reader *r) {
    const uint8_t c = peek(r);
    *is_class = c != 0 && strchr("dDwWsS", c) != NULL;
    if (!*is_class) return take_escaped(out, r);
    r->at++;
    const bool others = c < 'a';
    if ((c | 0x20) == 'd') return ADD_RANGES(r, s_digits, others);
    return (c | 0x20) == 'w' ? ADD_RANGES(r, s_word, others) : ADD_RANGES(r, s_space, others);
}

/* ---- [ ] --------------------------------------------------------------------------------------- */

static omm_err take_member(bool *is_class, uint32_t *out, reader *r) {
    *is_class = false;
    if (!take(r, '\\')) return take_character(out, r);
    if (!take(r, 'b')) return take_escape(is_class, out, r);
    *out = '\b';
    return OMM_OK;
}

/* One character, \d and its like, or a range; a - beside one of those is itself. */
static omm_err take_members(reader *r) {
    bool is_class = false, is_class_too = false;
    uint32_t low = 0, high = 0;
    OMM_TRY(take_member(&is_class, &low, r));
    if (!is_class) high = low; /* and stays so before \d and its like */
    if (peek(r) == '-' && r->text[r->at + 1] != ']' && r->text[r->at + 1] != '\0') {
        r->at++;
        OMM_TRY(take_member(&is_class_too, &high, r));
        if (is_class || is_class_too) {
            OMM_TRY(add_range(r, '-', '-'));
            if (is_class && !is_class_too) low = high;
            is_class = is_class && is_class_too;
        }
    }
    if (is_class) return OMM_OK;
    if (low > high) return malformed(r, "a range goes down");
    return add_range(r, low, high);
}

static omm_err take_brackets(part *made, reader *r) {
    const bool others = take(r, '^');
    while (peek(r) != ']') {
        if (peek(r) == '\0') return malformed(r, "[ is not closed");
        OMM_TRY(take_members(r));
    }
    r->at++;
    return end_set(made, r, others);
}

/* ---- parts ------------------------------------------------------------------------------------- */

static omm_err add_part(uint32_t *out, reader *r, const part *made) {
    if (r->part_count == PARTS_MAX) return too_much(r);
    *out = r->part_count++;
    r->parts[*out] = *made;
    return OMM_OK;
}

static omm_err wait_for(reader *r, uint32_t one) {
    if (r->waiting_count == PARTS_MAX) return too_much(r);
    r->waiting[r->waiting_count++] = one;
    return OMM_OK;
}

/* Those that wait, from `from` on, are its children; one alone is itself. */
static omm_err gather(uint32_t *out, reader *r, part_kind kind, uint32_t from) {
    const uint32_t count = r->waiting_count - from;
    const part made = {.kind = kind, .first = r->child_count, .count = count};
    r->waiting_count = from;
    if (count == 1) {
        *out = r->waiting[from];
        return OMM_OK;
    }
    if (count > 2 * PARTS_MAX - r->child_count) return too_much(r);
    if (count > 0)
        memcpy(r->children + r->child_count, r->waiting + from, count * sizeof *r->waiting);
    r->child_count += count;
    return add_part(out, r, &made);
}

static omm_err take_either(uint32_t *out, reader *r);

static bool is_of_name(uint8_t c) {
    return is_letter(c) || is_digit(c) || c == '_' || c == '$';
}

/* Of a group, to its end. */
static omm_err take_name(reader *r) {
    if (peek(r) >= 0x80) return not_read(r, "names of groups are read in ASCII alone");
    if (!is_of_name(peek(r)) || is_digit(peek(r)))
        return malformed(r, "the name of a group begins with a letter, _ or $");
    while (is_of_name(peek(r))) r->at++;
    return take(r, '>') ? OMM_OK : malformed(r, "the name of a group is not closed");
}

/* Behind (. */
static omm_err take_group(uint32_t *out, reader *r) {
    if (take(r, '?') && !take(r, ':')) {
        const uint8_t behind = peek(r) == '<' ? (uint8_t)r->text[r->at + 1] : 0;
        if (behind == '=' || behind == '!' || !(take_word(r, "P<") || take(r, '<')))
            return not_read(r, "(? with this behind it is not supported");
        OMM_TRY(take_name(r));
    }
    if (r->depth == DEPTH_MAX) return not_read(r, "more groups inside one another than are read");
    r->depth++;
    OMM_TRY(take_either(out, r));
    r->depth--;
    return take(r, ')') ? OMM_OK : malformed(r, "( is not closed");
}

static omm_err take_one(part *made, reader *r) {
    bool is_class = false;
    uint32_t c = 0;
    if (take(r, '.')) {
        OMM_TRY(ADD_RANGES(r, s_line_ends, true));
        return end_set(made, r, false);
    }
    if (take(r, '[')) return take_brackets(made, r);
    if (peek(r) == '{') return malformed(r, "{ without a repetition; the character is \\{");
    if (!take(r, '\\'))
        OMM_TRY(take_character(&c, r));
    else
        OMM_TRY(take_escape(&is_class, &c, r));
    if (!is_class) OMM_TRY(add_range(r, c, c));
    return end_set(made, r, false);
}

static bool take_count(uint32_t *out, reader *r) {
    const size_t from = r->at;
    *out = 0;
    for (; is_digit(peek(r)); r->at++)
        if (*out < TIMES_MAX) *out = *out * 10 + (uint32_t)(peek(r) - '0');
    return r->at > from;
}

/* {n}, {n,}, {n,m}; anything else stays where it is. */
static bool take_braces(part *made, reader *r) {
    const size_t from = r->at;
    if (take(r, '{') && take_count(&made->least, r)) {
        made->most = made->least;
        if (take(r, ',') && !take_count(&made->most, r)) made->most = PATTERN_NONE;
        if (take(r, '}')) return true;
    }
    r->at = from;
    return false;
}

static bool take_times(part *made, reader *r) {
    made->least = peek(r) == '+';
    made->most = peek(r) == '?' ? 1 : PATTERN_NONE;
    if (!take(r, '*') && !take(r, '+') && !take(r, '?') && !take_braces(made, r)) return false;
    take(r, '?'); /* how much of a text it finds first makes no difference here */
    return true;
}

/* *one, as often as what stands behind it says. */
static omm_err take_repeat(uint32_t *one, reader *r) {
    part made = {.kind = PART_REPEAT, .count = 1};
    if (!take_times(&made, r)) return OMM_OK;
    if (made.least > made.most) return malformed(r, "a repetition goes down");
    if (r->child_count == 2 * PARTS_MAX) return too_much(r);
    made.first = r->child_count;
    r->children[r->child_count++] = *one;
    return add_part(one, r, &made);
}

static omm_err take_term(uint32_t *out, reader *r) {
    part made = {.kind = peek(r) == '^' ? PART_BEGIN : PART_END};
    if (strchr("*+?", peek(r)) || take_braces(&made, r))
        return malformed(r, "there is nothing to repeat");
    if (take(r, '^') || take(r, '$')) return add_part(out, r, &made);
    if (take(r, '(')) {
        OMM_TRY(take_group(out, r));
    } else {
        OMM_TRY(take_one(&made, r));
        OMM_TRY(add_part(out, r, &made));
    }
    return take_repeat(out, r);
}

static omm_err take_sequence(uint32_t *out, reader *r) {
    const uint32_t from = r->waiting_count;
    while (peek(r) != '\0' && peek(r) != '|' && peek(r) != ')') {
        uint32_t one = 0;
        OMM_TRY(take_term(&one, r));
        OMM_TRY(wait_for(r, one));
    }
    return gather(out, r, PART_SEQUENCE, from);
}

static omm_err take_either(uint32_t *out, reader *r) {
    const uint32_t from = r->waiting_count;
    do {
        uint32_t one = 0;
        OMM_TRY(take_sequence(&one, r));
        OMM_TRY(wait_for(r, one));
    } while (take(r, '|'));
    return gather(out, r, PART_EITHER, from);
}

/* ---- nodes ------------------------------------------------------------------------------------- */

static omm_err add_node(uint32_t *out, reader *r, node made) {
    if (r->out->count == PATTERN_NODES_MAX) return too_much(r);
    *out = r->out->count++;
    r->out->list[*out] = made;
    return OMM_OK;
}

/* From the end to the beginning: *at is what follows the part, then the part itself. */
static omm_err put_part(uint32_t *at, reader *r, uint32_t index);

static omm_err put_either(uint32_t *at, reader *r, const part *p) {
    const uint32_t next = *at;
    for (uint32_t i = p->count; i-- > 0;) {
        uint32_t one = next;
        OMM_TRY(put_part(&one, r, r->children[p->first + i]));
        if (i + 1 == p->count)
            *at = one;
        else
            OMM_TRY(add_node(at, r, (node){.kind = NODE_SPLIT, .next = one, .other = *at}));
    }
    return OMM_OK;
}

static omm_err put_repeat(uint32_t *at, reader *r, const part *p) {
    const uint32_t next = *at, child = r->children[p->first];
    if (p->most == PATTERN_NONE) {
        OMM_TRY(add_node(at, r, (node){.kind = NODE_SPLIT, .other = next}));
        uint32_t inside = *at;
        OMM_TRY(put_part(&inside, r, child));
        r->out->list[*at].next = inside;
    }
    for (uint32_t i = p->least; p->most != PATTERN_NONE && i < p->most; i++) {
        OMM_TRY(put_part(at, r, child));
        OMM_TRY(add_node(at, r, (node){.kind = NODE_SPLIT, .next = *at, .other = next}));
    }
    for (uint32_t i = 0; i < p->least; i++) OMM_TRY(put_part(at, r, child));
    return OMM_OK;
}

static omm_err put_part(uint32_t *at, reader *r, uint32_t index) {
    const part *p = &r->parts[index];
    if (r->steps++ == STEPS_MAX) return too_much(r);
    r->out->work++;
    switch (p->kind) {
    case PART_SET: return add_node(at, r, (node){.kind = NODE_SET, .next = *at, .set = p->set});
    case PART_BEGIN: return add_node(at, r, (node){.kind = NODE_BEGIN, .next = *at});
    case PART_END: return add_node(at, r, (node){.kind = NODE_END, .next = *at});
    case PART_EITHER: return put_either(at, r, p);
    case PART_REPEAT: return put_repeat(at, r, p);
    case PART_SEQUENCE: break;
    }
    for (uint32_t i = p->count; i-- > 0;) OMM_TRY(put_part(at, r, r->children[p->first + i]));
    return OMM_OK;
}

/* A match, before which any characters may stand. */
static omm_err put_all(reader *r, uint32_t root) {
    part any = {0};
    uint32_t at = 0, skip = 0;
    OMM_TRY(add_node(&at, r, (node){.kind = NODE_MATCH}));
    OMM_TRY(put_part(&at, r, root));
    OMM_TRY(ADD_RANGES(r, s_characters, false));
    OMM_TRY(end_set(&any, r, false));
    OMM_TRY(add_node(&skip, r, (node){.kind = NODE_SET, .set = any.set}));
    OMM_TRY(add_node(&r->out->start, r, (node){.kind = NODE_SPLIT, .next = at, .other = skip}));
    r->out->list[skip].next = r->out->start;
    return OMM_OK;
}

static omm_err parse(reader *r) {
    uint32_t root = 0;
    if (r->size > PATTERN_BYTES_MAX)
        return omm_raise(OMM_ERR_UNSUPPORTED, "a pattern of more than %u bytes", PATTERN_BYTES_MAX);
    OMM_TRY(take_either(&root, r));
    if (peek(r) != '\0') return malformed(r, ") closes nothing");
    return put_all(r, root);
}

omm_err pattern_parse(nodes *out, const char *expression) {
    reader *r = (reader *)omm_alloc(1, sizeof *r);
    if (!r) return omm_raise(OMM_ERR_NOMEM, "no memory for a pattern");
    out->count = out->range_count = out->set_count = out->work = 0;
    r->out = out;
    r->text = expression;
    r->size = strlen(expression);
    const omm_err err = parse(r);
    omm_free(r);
    return err;
}

/* tokenizer_bpe.c - BPE by rank inside each word: of bytes as printable letters, or of characters, of which those that
 * are no token become byte tokens. */
#include "tokenizer_internal.h"

#include "omm/mem.h"
#include "omm/utf8.h"

#include <string.h>

/* GPT-2 shows printable Latin-1 as itself and the other 68 bytes as U+0100 ... in byte order. */
enum { SHIFTED_FIRST = 0x100, SHIFTED_COUNT = 68 };

static bool is_shown(unsigned byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

static unsigned code_of(uint8_t byte) {
    if (is_shown(byte)) return byte;
    unsigned shifted = 0;
    for (unsigned b = 0; b < byte; b++) shifted += !is_shown(b);
    return SHIFTED_FIRST + shifted;
}

unsigned bpe_letter(uint8_t out[2], uint8_t byte) {
    unsigned code = code_of(byte);
    if (code < 0x80) {
        out[0] = (uint8_t)code;
        return 1;
    }
    out[0] = (uint8_t)(0xc0 | code >> 6);
    out[1] = (uint8_t)(0x80 | (code & 0x3f));
    return 2;
}

/* Byte that a code stands for, or -1. */
static int byte_of(unsigned code) {
    if (code < SHIFTED_FIRST) return is_shown(code) ? (int)code : -1;
    if (code >= SHIFTED_FIRST + SHIFTED_COUNT) return -1;
    unsigned shifted = code - SHIFTED_FIRST;
    for (unsigned b = 0; b < 256; b++)
        if (!is_shown(b) && shifted-- == 0) return (int)b;
    return -1;
}

omm_err bpe_spell(bool *spelled, omm_buf *out, omm_bytes text) {
    size_t before = out->size;
    *spelled = false;
    for (size_t i = 0; i < text.size;) {
        unsigned size = omm_utf8_size(text.data + i, text.size - i);
        unsigned code = text.data[i];
        if (size == 2) code = (code & 0x1f) << 6 | (text.data[i + 1] & 0x3fu);
        int byte = size == 1 || size == 2 ? byte_of(code) : -1;
        if (byte < 0) {
            out->size = before;
            return OMM_OK;
        }
        uint8_t b = (uint8_t)byte;
        OMM_TRY(omm_buf_append(out, &b, 1));
        i += size;
    }
    *spelled = true;
    return OMM_OK;
}

/* ---- The merge table ----------------------------------------------------------------------- */

static bpe_merge *slot_of(const omm_tokenizer *t, uint32_t left, uint32_t right) {
    const uint64_t h = (((uint64_t)left << 32 | right) ^ t->texts.salt) * t->texts.factor;
    for (uint32_t s = (uint32_t)(h >> 32);; s++) {
        bpe_merge *m = &t->merges[s & (t->merge_slots - 1)];
        if (m->left == MERGE_END || (m->left == left && m->right == right)) return m;
    }
}

const bpe_merge *bpe_find(const omm_tokenizer *t, uint32_t left, uint32_t right) {
    const bpe_merge *m = slot_of(t, left, right);
    return m->left == MERGE_END ? NULL : m;
}

/* Number of a text, adding it to those beyond the ids when no token spells it. */
static omm_err symbol_of(uint32_t *out, omm_tokenizer *t, omm_bytes text) {
    *out = vocab_find(&t->texts, text);
    if (*out != OMM_TOKEN_NONE) return OMM_OK;
    *out = t->texts.count;
    return vocab_push(&t->texts, text);
}

static omm_err add_merge(omm_tokenizer *t, uint32_t rank, omm_bytes line, omm_buf *joined) {
    const uint8_t *space = line.size > 1 ? memchr(line.data + 1, ' ', line.size - 1) : NULL;
    if (!space) return omm_raise(OMM_ERR_FORMAT, "tokenizer: merge %u has no space", rank);
    omm_bytes left = omm_bytes_of(line.data, (size_t)(space - line.data));
    omm_bytes right = omm_bytes_of(space + 1, line.size - left.size - 1);
    if (right.size == 0) return omm_raise(OMM_ERR_FORMAT, "tokenizer: merge %u has one side", rank);
    omm_buf_clear(joined);
    OMM_TRY(omm_buf_append(joined, left.data, left.size));
    OMM_TRY(omm_buf_append(joined, right.data, right.size));
    bpe_merge merge = {.rank = rank};
    OMM_TRY(symbol_of(&merge.left, t, left));
    OMM_TRY(symbol_of(&merge.right, t, right));
    OMM_TRY(symbol_of(&merge.result, t, omm_buf_view(joined)));
    bpe_merge *slot = slot_of(t, merge.left, merge.right);
    if (slot->left == MERGE_END) *slot = merge; /* a pair named twice keeps its first rank */
    return OMM_OK;
}

omm_err bpe_open(omm_tokenizer *t, const omm_bytes *merges, uint32_t count) {
    t->merge_slots = 16;
    while (t->merge_slots / 2 <= count) t->merge_slots *= 2;
    t->merges = omm_alloc(t->merge_slots, sizeof *t->merges);
    if (!t->merges) return omm_raise(OMM_ERR_NOMEM, "tokenizer: table of %u merges", count);
    for (uint32_t i = 0; i < t->merge_slots; i++) t->merges[i].left = MERGE_END;
    for (unsigned b = 0; b < 256 && !t->characters; b++) {
        uint8_t letter[2];
        unsigned size = bpe_letter(letter, (uint8_t)b);
        OMM_TRY(symbol_of(&t->byte_symbols[b], t, omm_bytes_of(letter, size)));
    }
    omm_hasher h;
    omm_hasher_init(&h);
    omm_buf joined;
    omm_buf_init(&joined, 2 * (size_t)OMM_GGUF_STRING_MAX);
    omm_err err = OMM_OK;
    for (uint32_t i = 0; i < count && err == OMM_OK; i++) {
        omm_hasher_update(&h, merges[i]);
        omm_hasher_update(&h, omm_bytes_of("\n", 1));
        err = add_merge(t, i, merges[i], &joined);
    }
    omm_buf_fini(&joined);
    t->merges_digest = omm_hasher_final(&h);
    return err;
}

/* ---- Encoding ------------------------------------------------------------------------------ */

typedef struct encoder {
    omm_tokens *out;
    const omm_tokenizer *t;
    merge_work *work;
} encoder;

static omm_err propose(const encoder *e, uint32_t left, uint32_t right) {
    if (left == MERGE_END || right == MERGE_END) return OMM_OK;
    const merge_node *nodes = e->work->nodes;
    const bpe_merge *m = bpe_find(e->t, nodes[left].symbol, nodes[right].symbol);
    if (!m) return OMM_OK;
    merge_item item = {.key = (uint64_t)m->rank << 32 | left,
                       .right = right,
                       .left_symbol = m->left,
                       .right_symbol = m->right,
                       .result = m->result};
    return merge_push(e->work, &item);
}

/* A symbol that is no token: its ASCII letters, where those are tokens, as the reference does. */
static omm_err emit_letters(const encoder *e, omm_bytes text) {
    for (size_t i = 0; i < text.size; i++) {
        uint32_t id = vocab_find(&e->t->texts, omm_bytes_of(text.data + i, 1));
        if (token_is_text(e->t, id)) OMM_TRY(omm_tokens_push(e->out, id));
    }
    return OMM_OK;
}

static omm_err emit(const encoder *e, omm_bytes word) {
    const merge_node *nodes = e->work->nodes;
    for (uint32_t i = 0; i != MERGE_END; i = nodes[i].next) {
        uint32_t symbol = nodes[i].symbol;
        if (token_is_text(e->t, symbol))
            OMM_TRY(omm_tokens_push(e->out, symbol));
        else if (e->t->characters)
            OMM_TRY(
                spm_put_bytes(e->out, e->t, omm_bytes_of(word.data + nodes[i].at, nodes[i].size)));
        else
            OMM_TRY(emit_letters(e, vocab_text(&e->t->texts, symbol)));
    }
    return OMM_OK;
}

static uint32_t find_text(const omm_tokenizer *t, omm_bytes text) {
    uint32_t id = vocab_find(&t->texts, text);
    return token_is_text(t, id) ? id : OMM_TOKEN_NONE;
}

/* For vocabularies that take a known word, or run of line ends, whole: its id, or OMM_TOKEN_NONE. */
static uint32_t whole_word(const encoder *e, omm_bytes word) {
    uint8_t letters[256];
    size_t size = 0;
    if (e->t->pre.whole_lines && word.data[0] == '\n') return find_text(e->t, word);
    if (!e->t->pre.whole_words || 2 * word.size > sizeof letters) return OMM_TOKEN_NONE;
    for (size_t i = 0; i < word.size; i++) size += bpe_letter(letters + size, word.data[i]);
    return find_text(e->t, omm_bytes_of(letters, size));
}

/* The bytes or characters of a word as nodes; returns how many. */
static uint32_t put_nodes(const encoder *e, omm_bytes word) {
    const omm_tokenizer *t = e->t;
    merge_node *nodes = e->work->nodes;
    uint32_t count = 0;
    for (uint32_t at = 0, size = 1; at < word.size; at += size, count++) {
        const uint8_t *p = word.data + at;
        if (t->characters) size = omm_utf8_size(p, word.size - at);
        nodes[count] =
            (merge_node){.prev = count > 0 ? count - 1 : MERGE_END,
                         .next = at + size < word.size ? count + 1 : MERGE_END,
                         .symbol = t->characters ? vocab_find(&t->texts, omm_bytes_of(p, size))
                                                 : t->byte_symbols[*p],
                         .at = at,
                         .size = size};
    }
    return count;
}

static omm_err encode_word(void *ud, omm_bytes word) {
    const encoder *e = ud;
    uint32_t whole = whole_word(e, word);
    if (whole != OMM_TOKEN_NONE) return omm_tokens_push(e->out, whole);
    OMM_TRY(merge_reserve(e->work, word.size));
    merge_node *nodes = e->work->nodes;
    const uint32_t n = put_nodes(e, word);
    for (uint32_t i = 1; i < n; i++) OMM_TRY(propose(e, i - 1, i));
    merge_item item;
    while (merge_pop(&item, e->work)) {
        uint32_t left = (uint32_t)item.key;
        if (nodes[left].symbol != item.left_symbol || nodes[item.right].symbol != item.right_symbol)
            continue; /* one side has been merged since */
        nodes[left].size += nodes[item.right].size;
        nodes[left].symbol = item.result;
        merge_unlink(e->work, left, item.right);
        OMM_TRY(propose(e, nodes[left].prev, left));
        OMM_TRY(propose(e, left, nodes[left].next));
    }
    return emit(e, word);
}

/* A copy of `text` with U+FFFD for each byte that is not part of a well-formed character. */
static omm_err repair(omm_buf *out, omm_bytes text) {
    for (size_t i = 0; i < text.size;) {
        unsigned size = omm_utf8_size(text.data + i, text.size - i);
        if (size > 0)
            OMM_TRY(omm_buf_append(out, text.data + i, size));
        else
            OMM_TRY(omm_buf_append(out, "\xef\xbf\xbd", 3));
        i += size > 0 ? size : 1;
    }
    return OMM_OK;
}

static bool is_well_formed(omm_bytes text) {
    for (size_t i = 0; i < text.size;) {
        unsigned size = omm_utf8_size(text.data + i, text.size - i);
        if (size == 0) return false;
        i += size;
    }
    return true;
}

omm_err bpe_encode(omm_tokens *out, const omm_tokenizer *t, merge_work *work, omm_bytes text) {
    encoder e = {out, t, work};
    omm_buf repaired, normal;
    omm_err err = OMM_OK;
    omm_buf_init(&repaired, 3 * (size_t)OMM_TOKENIZER_TEXT_MAX);
    omm_buf_init(&normal, 5 * (size_t)OMM_TOKENIZER_TEXT_MAX); /* three, half as much more small */
    if (!is_well_formed(text)) {
        err = repair(&repaired, text);
        text = omm_buf_view(&repaired);
    }
    if (err == OMM_OK && t->marks) {
        err = spm_escape(&normal, text, false);
        text = omm_buf_view(&normal);
    }
    if (err == OMM_OK && t->pre.lowers) {
        err = pretoken_lower(&normal, &t->pre, text);
        text = omm_buf_view(&normal);
    }
    if (err == OMM_OK) err = pretoken_split(&t->pre, text, encode_word, &e);
    omm_buf_fini(&repaired);
    omm_buf_fini(&normal);
    return err;
}

/* lexicon.c - the tokens of a vocabulary as trees of their bytes; see constraint.h. */
#include "grammar_internal.h"

#include "omm/mem.h"
#include "omm/utf8.h"

#include <stdlib.h>

#define NODES_LEAST 1024u

/* ---- pieces ------------------------------------------------------------------------------------ */

/* What a token adds to a text; nothing for those that are never allowed inside one. */
static omm_bytes piece_of(const omm_tokenizer *t, uint32_t id) {
    if (id >= omm_tokenizer_vocab(t) || omm_tokenizer_is_control(t, id) ||
        omm_tokenizer_is_end(t, id))
        return (omm_bytes){0};
    return omm_tokenizer_piece(t, id);
}

static omm_err copy_pieces(omm_lexicon *x, const omm_tokenizer *t) {
    size_t size = 0;
    for (uint32_t id = 0; id < x->vocab; id++) size += piece_of(t, id).size;
    if (size > UINT32_MAX) return omm_raise(OMM_ERR_TOO_BIG, "a vocabulary of %zu bytes", size);
    x->at = (uint32_t *)omm_alloc((size_t)x->vocab + 1, sizeof *x->at);
    x->bytes = (uint8_t *)omm_alloc(size + 1, 1);
    if (!x->at || !x->bytes) return omm_raise(OMM_ERR_NOMEM, "no memory for a lexicon");
    for (uint32_t id = 0; id < x->vocab; id++) {
        const omm_bytes piece = piece_of(t, id);
        if (piece.size > 0) memcpy(x->bytes + x->at[id], piece.data, piece.size);
        x->at[id + 1] = x->at[id] + (uint32_t)piece.size;
    }
    return OMM_OK;
}

/* ---- sets -------------------------------------------------------------------------------------- */

/* U+2028 and U+2029 end lines, which `.` of a pattern does not take. */
static bool ends_line(const uint8_t *character, unsigned size) {
    return size == 3 && character[0] == 0xe2 && character[1] == 0x80 &&
           (character[2] & 0xfe) == 0xa8;
}

static bool is_plain(omm_bytes piece) {
    if (piece.size >= UINT16_MAX) return false; /* its characters would not be counted */
    for (size_t at = 0; at < piece.size;) {
        const unsigned size = omm_utf8_size(piece.data + at, piece.size - at);
        if (size == 0 || piece.data[at] < ' ' || piece.data[at] == '"' || piece.data[at] == '\\')
            return false;
        if (ends_line(piece.data + at, size)) return false;
        at += size;
    }
    return piece.size > 0;
}

static void set(uint32_t *bits, uint32_t id) {
    bits[id / 32] |= 1u << id % 32;
}

static omm_err make_sets(omm_lexicon *x, const omm_tokenizer *t) {
    bool any = false;
    x->plain = (uint32_t *)omm_alloc(x->words, sizeof *x->plain);
    x->ends = (uint32_t *)omm_alloc(x->words, sizeof *x->ends);
    x->characters = (uint16_t *)omm_alloc((size_t)x->words * 32, sizeof *x->characters);
    if (!x->plain || !x->ends || !x->characters)
        return omm_raise(OMM_ERR_NOMEM, "no memory for a lexicon");
    for (uint32_t id = 0; id < x->vocab; id++) {
        const omm_bytes piece = lexicon_bytes(x, id);
        if (omm_tokenizer_is_end(t, id)) {
            set(x->ends, id);
            any = true;
        }
        if (!is_plain(piece)) continue;
        set(x->plain, id);
        x->characters[id] = (uint16_t)omm_utf8_count(piece);
    }
    return any ? OMM_OK
               : omm_raise(OMM_ERR_UNSUPPORTED, "the vocabulary has no token that ends a text");
}

/* Few: a walk of all for each token of a free text would be long. */
static omm_err find_openers(omm_lexicon *x, calls_opener opener) {
    uint32_t *list = NULL;
    for (unsigned pass = 0; pass < 2; pass++) {
        uint32_t count = 0;
        for (uint32_t id = 0; id < x->vocab; id++) {
            if (!text_may_open(opener, lexicon_bytes(x, id))) continue;
            if (list) list[count] = id;
            count++;
        }
        x->opener_counts[opener] = count;
        if (list) break;
        list = x->openers[opener] = (uint32_t *)omm_alloc((size_t)count + 1, sizeof *list);
        if (!list) return omm_raise(OMM_ERR_NOMEM, "no memory for a lexicon");
    }
    return OMM_OK;
}

/* ---- trees ------------------------------------------------------------------------------------- */

/* By bytes, equal ones by id. */
static int by_bytes(const void *a, const void *b, void *ud) {
    const omm_lexicon *x = (const omm_lexicon *)ud;
    const uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    const omm_bytes p = lexicon_bytes(x, i), q = lexicon_bytes(x, k);
    const int order = memcmp(p.data, q.data, p.size < q.size ? p.size : q.size);
    if (order != 0) return order;
    if (p.size != q.size) return p.size < q.size ? -1 : 1;
    return i < k ? -1 : i > k;
}

static omm_err collect(lexicon_tree *tree, omm_lexicon *x, bool with_plain) {
    tree->ids = (uint32_t *)omm_alloc(x->vocab, sizeof *tree->ids);
    if (!tree->ids) return omm_raise(OMM_ERR_NOMEM, "no memory for a lexicon");
    for (uint32_t id = 0; id < x->vocab; id++) {
        const size_t size = lexicon_bytes(x, id).size;
        if (size > 0 && size <= MATCH_TOKEN_BYTES_MAX && (with_plain || !lexicon_has(x->plain, id)))
            tree->ids[tree->id_count++] = id;
    }
    qsort_r(tree->ids, tree->id_count, sizeof *tree->ids, by_bytes, x);
    return OMM_OK;
}

static omm_err add_node(lexicon_tree *tree, uint8_t byte, size_t depth) {
    if (tree->node_count == tree->node_capacity) {
        const uint32_t room = tree->node_capacity ? tree->node_capacity * 2 : NODES_LEAST;
        lexicon_node *grown =
            (lexicon_node *)omm_grow(tree->nodes, tree->node_capacity, room, sizeof *grown);
        if (!grown) return omm_raise(OMM_ERR_NOMEM, "no memory for a lexicon");
        tree->nodes = grown;
        tree->node_capacity = room;
    }
    tree->nodes[tree->node_count++] = (lexicon_node){.byte = byte, .depth = (uint8_t)depth};
    return OMM_OK;
}

static size_t in_common(omm_bytes a, omm_bytes b) {
    size_t n = 0;
    while (n < a.size && n < b.size && a.data[n] == b.data[n]) n++;
    return n;
}

/* Nodes in the order of a walk: those of a token behind the ones that it has in common with the token before. */
static omm_err grow_tree(lexicon_tree *tree, const omm_lexicon *x) {
    uint32_t open[MATCH_TOKEN_BYTES_MAX] = {
        0}; /* the node of each depth on the way to the last one */
    size_t depth = 0;
    omm_bytes last = {0};
    for (uint32_t i = 0; i < tree->id_count; i++) {
        const omm_bytes piece = lexicon_bytes(x, tree->ids[i]);
        const size_t common = in_common(last, piece);
        while (depth > common) tree->nodes[open[--depth]].next = tree->node_count;
        for (; depth < piece.size; depth++) {
            open[depth] = tree->node_count;
            OMM_TRY(add_node(tree, piece.data[depth], depth));
        }
        lexicon_node *node = &tree->nodes[open[depth - 1]];
        if (node->count++ == 0) node->first = i;
        last = piece;
    }
    while (depth > 0) tree->nodes[open[--depth]].next = tree->node_count;
    return OMM_OK;
}

static omm_err make_tree(lexicon_tree *tree, omm_lexicon *x, bool with_plain) {
    OMM_TRY(collect(tree, x, with_plain));
    return grow_tree(tree, x);
}

/* ---- open and close ---------------------------------------------------------------------------- */

static omm_err make_parts(omm_lexicon *x, const omm_tokenizer *tokenizer) {
    OMM_TRY(copy_pieces(x, tokenizer));
    OMM_TRY(make_sets(x, tokenizer));
    for (int i = 0; i < OPENER_COUNT; i++) OMM_TRY(find_openers(x, (calls_opener)i));
    OMM_TRY(make_tree(&x->all, x, true));
    return make_tree(&x->odd, x, false);
}

omm_err omm_lexicon_open(omm_lexicon **out, const omm_tokenizer *tokenizer, uint32_t vocab) {
    omm_lexicon *x = (omm_lexicon *)omm_alloc(1, sizeof *x);
    if (!x) return omm_raise(OMM_ERR_NOMEM, "no memory for a lexicon");
    x->vocab = vocab;
    x->words = (vocab + 31) / 32;
    x->leads = omm_tokenizer_leads(tokenizer);
    const omm_err err = make_parts(x, tokenizer);
    if (err != OMM_OK) {
        omm_lexicon_close(x);
        return err;
    }
    *out = x;
    return OMM_OK;
}

static void free_tree(lexicon_tree *tree) {
    omm_free(tree->nodes);
    omm_free(tree->ids);
}

void omm_lexicon_close(omm_lexicon *lexicon) {
    if (!lexicon) return;
    free_tree(&lexicon->all);
    free_tree(&lexicon->odd);
    omm_free(lexicon->plain);
    omm_free(lexicon->characters);
    omm_free(lexicon->ends);
    for (unsigned i = 0; i < OPENER_COUNT; i++) omm_free(lexicon->openers[i]);
    omm_free(lexicon->bytes);
    omm_free(lexicon->at);
    omm_free(lexicon);
}

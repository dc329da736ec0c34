/* vocab_train.c - counting words, and merging their most frequent pairs.
 *
 * A word is its symbols in one flat array, as many as it has bytes at first.  A merge rewrites the words
 * that hold the pair: the pairs of the old spelling are taken from the counts, those of the new added.
 */
#include "vocab_train_internal.h"

#include "omm/mem.h"
#include "omm/utf8.h"

#include <stdio.h>
#include <string.h>

/* --- options --------------------------------------------------------------------------------- */

static bool is_special(const omm_vocab_options *o, const char *text) {
    for (size_t i = 0; i < vocab_special_count(o); i++)
        if (strcmp(vocab_special(o, i), text) == 0) return true;
    return false;
}

static omm_err check_specials(const omm_vocab_options *o) {
    const size_t count = vocab_special_count(o);
    for (size_t i = 0; i < count; i++) {
        const char *text = vocab_special(o, i);
        if (strlen(text) < 2 || strlen(text) > OMM_VOCAB_SPECIAL_BYTES_MAX)
            return omm_raise(OMM_ERR_CONFIG,
                             "vocabulary: special token '%.40s'; accepted: 2 to %u bytes", text,
                             OMM_VOCAB_SPECIAL_BYTES_MAX);
        for (size_t k = 0; k < i; k++)
            if (strcmp(vocab_special(o, k), text) == 0)
                return omm_raise(OMM_ERR_CONFIG, "vocabulary: special token '%.40s' is named twice",
                                 text);
    }
    const char *const named[] = {o->bos, o->eos, o->padding};
    static const char *const keys[] = {"bos", "eos", "padding"};
    for (size_t i = 0; i < 3; i++)
        if (named[i] && !is_special(o, named[i]))
            return omm_raise(OMM_ERR_CONFIG,
                             "vocabulary.%s: '%.40s' is no special token; accepted: one of control "
                             "or user",
                             keys[i], named[i]);
    return OMM_OK;
}

static omm_err check_options(const omm_vocab_options *o) {
    const size_t count = vocab_special_count(o);
    if (count > OMM_VOCAB_SPECIALS_MAX)
        return omm_raise(OMM_ERR_CONFIG, "vocabulary: %zu special tokens; accepted: 0 to %u", count,
                         OMM_VOCAB_SPECIALS_MAX);
    if (o->size <= 256 + count || o->size > OMM_VOCAB_SIZE_MAX)
        return omm_raise(OMM_ERR_CONFIG,
                         "vocabulary.size: %u with %zu special tokens; accepted: %zu to %u",
                         o->size, count, 257 + count, OMM_VOCAB_SIZE_MAX);
    return check_specials(o);
}

omm_err omm_vocab_trainer_open(omm_vocab_trainer **out, const omm_vocab_options *options) {
    OMM_TRY(check_options(options));
    omm_vocab_trainer *t = omm_alloc(1, sizeof *t);
    if (!t) return omm_raise(OMM_ERR_NOMEM, "no memory to count words");
    t->options = *options;
    omm_buf_init(&t->texts, OMM_VOCAB_WORD_BYTES_MAX);
    omm_err err = pretoken_open(&t->pre, omm_bytes_str(options->words));
    if (err == OMM_OK && t->pre.characters)
        err = omm_raise(
            OMM_ERR_UNSUPPORTED,
            "tokenizer.ggml.pre '%s' merges characters; a vocabulary that is trained here "
            "merges bytes: accepted are the others, as gpt-2",
            options->words);
    if (err != OMM_OK) {
        omm_vocab_trainer_close(t);
        return err;
    }
    *out = t;
    return OMM_OK;
}

void omm_vocab_trainer_close(omm_vocab_trainer *t) {
    if (!t) return;
    pretoken_close(&t->pre);
    omm_buf_fini(&t->texts);
    omm_free(t->words);
    omm_free(t->slots);
    omm_free(t->symbols);
    omm_free(t->pairs);
    omm_free(t->merges);
    omm_free(t);
}

omm_vocab_report omm_vocab_reported(const omm_vocab_trainer *t) {
    return t->report;
}

/* --- words ----------------------------------------------------------------------------------- */

static uint64_t hash_of(omm_bytes text) { /* FNV-1a */
    uint64_t h = 14695981039346656037ULL;
    for (size_t i = 0; i < text.size; i++) h = (h ^ text.data[i]) * 1099511628211ULL;
    return h ^ h >> 32;
}

static omm_bytes text_of(const omm_vocab_trainer *t, const vocab_word *w) {
    return omm_bytes_of(t->texts.data + w->at, w->bytes);
}

/* Slot of this word, or the empty one where it belongs. */
static uint32_t *word_slot(const omm_vocab_trainer *t, omm_bytes text) {
    for (uint64_t h = hash_of(text);; h++) {
        uint32_t *slot = &t->slots[h & (t->slot_count - 1)];
        if (*slot == 0 || omm_bytes_equal(text_of(t, &t->words[*slot - 1]), text)) return slot;
    }
}

/* Room for one more word: twice as many slots as words. */
static omm_err grow_words(omm_vocab_trainer *t) {
    if (t->word_count < t->word_capacity) return OMM_OK;
    if (t->word_count >= OMM_VOCAB_WORDS_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "over %u distinct words", OMM_VOCAB_WORDS_MAX);
    const size_t wanted = t->word_capacity ? 2 * t->word_capacity : 1024;
    vocab_word *words = omm_grow(t->words, t->word_capacity, wanted, sizeof *words);
    if (words) t->words = words;
    uint32_t *slots = omm_alloc(2 * wanted, sizeof *slots);
    if (!words || !slots) {
        omm_free(slots);
        return omm_raise(OMM_ERR_NOMEM, "no memory for %zu distinct words", wanted);
    }
    omm_free(t->slots);
    t->slots = slots;
    t->slot_count = 2 * wanted;
    t->word_capacity = wanted;
    for (uint32_t i = 0; i < t->word_count; i++) *word_slot(t, text_of(t, &t->words[i])) = i + 1;
    return OMM_OK;
}

static omm_err add_word(void *ud, omm_bytes text) {
    omm_vocab_trainer *t = ud;
    OMM_TRY(grow_words(t));
    uint32_t *slot = word_slot(t, text);
    if (*slot == 0) {
        t->words[t->word_count] = (vocab_word){.at = t->texts.size, .bytes = (uint32_t)text.size};
        OMM_TRY(omm_buf_append(&t->texts, text.data, text.size));
        *slot = (uint32_t)++t->word_count;
        t->report.distinct++;
    }
    t->words[*slot - 1].count++;
    t->report.words++;
    return OMM_OK;
}

/* --- texts ----------------------------------------------------------------------------------- */

/* Bytes of the special token at p: the longest; 0 if there is none. */
static size_t special_at(const omm_vocab_options *o, const uint8_t *p, size_t left) {
    size_t longest = 0;
    for (size_t i = 0; i < vocab_special_count(o); i++) {
        const char *text = vocab_special(o, i);
        const size_t size = strlen(text);
        if (size > longest && size <= left && memcmp(p, text, size) == 0) longest = size;
    }
    return longest;
}

/* The bytes with which a special token may begin. */
static void mark_first(bool first[256], const omm_vocab_options *o) {
    for (size_t i = 0; i < vocab_special_count(o); i++)
        first[(uint8_t)vocab_special(o, i)[0]] = true;
}

static omm_err check_text(omm_bytes text) {
    for (size_t i = 0; i < text.size;) {
        const unsigned size = omm_utf8_size(text.data + i, text.size - i);
        if (size == 0)
            return omm_raise(OMM_ERR_FORMAT, "byte %zu, 0x%02x, is not UTF-8 text", i,
                             text.data[i]);
        i += size;
    }
    return OMM_OK;
}

omm_err omm_vocab_add(omm_vocab_trainer *t, omm_bytes text) {
    bool first[256] = {false};
    OMM_ASSERT(!t->merges);
    OMM_TRY(check_text(text));
    mark_first(first, &t->options);
    for (size_t begin = 0, at = 0; begin < text.size; begin = at) {
        size_t special = 0;
        while (at < text.size) {
            if (first[text.data[at]])
                special = special_at(&t->options, text.data + at, text.size - at);
            if (special) break;
            at++;
        }
        t->report.bytes += at - begin;
        if (at > begin)
            OMM_TRY(
                pretoken_split(&t->pre, omm_bytes_of(text.data + begin, at - begin), add_word, t));
        at += special;
    }
    return OMM_OK;
}

/* --- pairs ----------------------------------------------------------------------------------- */

static vocab_pair *pair_slot(const omm_vocab_trainer *t, uint32_t left, uint32_t right) {
    const uint64_t h =
        ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15ULL; /* Fibonacci hashing */
    for (uint64_t s = h >> 20;; s++) {
        vocab_pair *p = &t->pairs[s & (t->pair_slots - 1)];
        if (!p->used || (p->left == left && p->right == right)) return p;
    }
}

static omm_err grow_pairs(omm_vocab_trainer *t) {
    if (2 * t->pair_count < t->pair_slots) return OMM_OK;
    vocab_pair *old = t->pairs;
    const size_t old_slots = t->pair_slots, wanted = old_slots ? 2 * old_slots : 1 << 14;
    vocab_pair *pairs = omm_alloc(wanted, sizeof *pairs);
    if (!pairs) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu pairs", wanted);
    t->pairs = pairs;
    t->pair_slots = wanted;
    for (size_t i = 0; i < old_slots; i++)
        if (old[i].used) *pair_slot(t, old[i].left, old[i].right) = old[i];
    omm_free(old);
    return OMM_OK;
}

static bool is_digit(uint32_t symbol) {
    return symbol >= '0' && symbol <= '9';
}

/* Add to, or take from, the counts of all pairs of a word. */
static omm_err count_pairs(omm_vocab_trainer *t, const vocab_word *w, bool take) {
    const uint32_t *s = t->symbols + w->at;
    for (uint32_t i = 0; i + 1 < w->symbols; i++) {
        if (t->options.digits_apart && (is_digit(s[i]) || is_digit(s[i + 1]))) continue;
        OMM_TRY(grow_pairs(t));
        vocab_pair *p = pair_slot(t, s[i], s[i + 1]);
        if (!p->used) {
            *p = (vocab_pair){.left = s[i], .right = s[i + 1], .used = true};
            t->pair_count++;
        }
        p->count = take ? p->count - w->count : p->count + w->count;
    }
    return OMM_OK;
}

static omm_err begin_words(omm_vocab_trainer *t) {
    t->symbols = omm_alloc(t->texts.size ? t->texts.size : 1, sizeof *t->symbols);
    t->merges = omm_alloc(vocab_merge_count(&t->options), sizeof *t->merges);
    if (!t->symbols || !t->merges)
        return omm_raise(OMM_ERR_NOMEM, "no memory for the symbols of %zu words", t->word_count);
    for (size_t i = 0; i < t->texts.size; i++) t->symbols[i] = t->texts.data[i];
    for (size_t i = 0; i < t->word_count; i++) {
        t->words[i].symbols = t->words[i].bytes;
        OMM_TRY(count_pairs(t, &t->words[i], false));
    }
    return OMM_OK;
}

/* --- merges ---------------------------------------------------------------------------------- */

/* a before b: more frequent, then the lower ids. */
static bool is_before(const vocab_pair *a, const vocab_pair *b) {
    if (a->count != b->count) return a->count > b->count;
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static vocab_pair *best_pair(const omm_vocab_trainer *t) {
    vocab_pair *best = NULL;
    for (size_t i = 0; i < t->pair_slots; i++) {
        vocab_pair *p = &t->pairs[i];
        if (p->used && !p->barred && p->count > 0 && (!best || is_before(p, best))) best = p;
    }
    return best;
}

static bool holds(const omm_vocab_trainer *t, const vocab_word *w, vocab_merge m) {
    const uint32_t *s = t->symbols + w->at;
    for (uint32_t i = 0; i + 1 < w->symbols; i++)
        if (s[i] == m.left && s[i + 1] == m.right) return true;
    return false;
}

static void rewrite(omm_vocab_trainer *t, vocab_word *w, vocab_merge m, uint32_t id) {
    uint32_t *s = t->symbols + w->at, kept = 0;
    for (uint32_t i = 0; i < w->symbols; i++) {
        const bool is_pair = i + 1 < w->symbols && s[i] == m.left && s[i + 1] == m.right;
        s[kept++] = is_pair ? id : s[i];
        i += is_pair;
    }
    w->symbols = kept;
}

static omm_err merge(omm_vocab_trainer *t, vocab_merge m, uint32_t id) {
    for (size_t i = 0; i < t->word_count; i++) {
        vocab_word *w = &t->words[i];
        if (!holds(t, w, m)) continue;
        OMM_TRY(count_pairs(t, w, true));
        rewrite(t, w, m, id);
        OMM_TRY(count_pairs(t, w, false));
    }
    return OMM_OK;
}

/* The bytes of a pair, as a text that no other token may have. */
static omm_err push_text(bool *is_new, omm_vocab_trainer *t, vocab *texts, vocab_merge m) {
    omm_buf joined;
    omm_buf_init(&joined, 2 * (size_t)OMM_VOCAB_WORD_BYTES_MAX);
    omm_bytes left = vocab_text(texts, m.left), right = vocab_text(texts, m.right);
    omm_err err = omm_buf_append(&joined, left.data, left.size);
    if (err == OMM_OK) err = omm_buf_append(&joined, right.data, right.size);
    *is_new = err == OMM_OK && vocab_find(texts, omm_buf_view(&joined)) == OMM_TOKEN_NONE &&
              !vocab_is_special(&t->options, omm_buf_view(&joined));
    if (*is_new) err = vocab_push(texts, omm_buf_view(&joined));
    omm_buf_fini(&joined);
    return err;
}

static omm_err make_merges(omm_vocab_trainer *t, vocab *texts) {
    const uint32_t wanted = vocab_merge_count(&t->options);
    for (unsigned b = 0; b < 256; b++) {
        const uint8_t byte = (uint8_t)b;
        OMM_TRY(vocab_push(texts, omm_bytes_of(&byte, 1)));
    }
    while (t->merge_count < wanted) {
        vocab_pair *best = best_pair(t);
        bool is_new = false;
        if (!best)
            return omm_raise(
                OMM_ERR_NOT_FOUND,
                "vocabulary.size: the text gives %u merges; a vocabulary of %u needs %u; accepted: "
                "more text, or a size of at most %u",
                t->merge_count, t->options.size, wanted,
                t->options.size - (wanted - t->merge_count));
        const vocab_merge m = {best->left, best->right};
        OMM_TRY(push_text(&is_new, t, texts, m));
        best->barred = !is_new;
        if (!is_new) continue;
        OMM_TRY(merge(t, m, 256 + t->merge_count));
        t->merges[t->merge_count++] = m;
    }
    return OMM_OK;
}

omm_err omm_vocab_make(omm_vocab_trainer *t) {
    vocab texts;
    OMM_ASSERT(!t->merges);
    OMM_TRY(begin_words(t));
    const omm_digest key = omm_hash(omm_bytes_str("vocabulary")); /* the texts are the user's own */
    OMM_TRY(vocab_init(&texts, 256 + vocab_merge_count(&t->options), &key));
    omm_err err = make_merges(t, &texts);
    vocab_fini(&texts);
    for (size_t i = 0; i < t->word_count; i++)
        t->report.tokens += t->words[i].symbols * t->words[i].count;
    return err;
}

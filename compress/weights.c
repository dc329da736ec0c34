/* weights.c - weights of a prefix code in finite state entropy: a table of 64 states, and two states that
 * take turns. */
#include "weights.h"

#include "bits.h"

#include "omm/err.h"

#include <stdbool.h>
#include <string.h>

enum { STATES_LOG = 6, STATES = 1 << STATES_LOG, WEIGHTS = 13, LOG_MIN = 5 };

/* What a reader does in a state: gives `symbol`, and goes to `base` plus the next `bits` bits. */
typedef struct fse_state {
    uint8_t symbol, bits, base;
} fse_state;

typedef struct fse {
    uint8_t share[WEIGHTS]; /* states that give each symbol */
    fse_state states[STATES];
    uint8_t before[WEIGHTS][STATES]; /* the state that gives a symbol and leads to a state */
} fse;

static unsigned log2_floor(unsigned x) {
    unsigned log = 0;
    while (x >>= 1) log++;
    return log;
}

/* Shares of STATES by how often each weight occurs, at least one each; what rounding leaves goes to the
 * weight with most.  False: all are one weight. */
static bool set_shares(fse *f, const uint8_t *weights, size_t n) {
    size_t count[WEIGHTS] = {0};
    unsigned sum = 0, top = 0;
    for (size_t i = 0; i < n; i++) count[weights[i]]++;
    for (unsigned s = 0; s < WEIGHTS; s++) {
        f->share[s] = (uint8_t)(count[s] * STATES / n);
        if (f->share[s] == 0 && count[s] > 0) f->share[s] = 1;
        sum += f->share[s];
        if (count[s] > count[top]) top = s;
    }
    if (count[top] == n) return false;
    for (; sum > STATES; sum--) { /* at most WEIGHTS times; there are more states than twice that */
        unsigned most = 0;
        for (unsigned s = 1; s < WEIGHTS; s++)
            if (f->share[s] > f->share[most]) most = s;
        f->share[most]--;
    }
    f->share[top] = (uint8_t)(f->share[top] + STATES - sum);
    return true;
}

static void set_states(fse *f) {
    enum { STEP = STATES / 2 + STATES / 8 + 3 };
    unsigned at = 0, next[WEIGHTS];
    for (unsigned s = 0; s < WEIGHTS; s++) {
        next[s] = f->share[s];
        for (unsigned i = 0; i < f->share[s]; i++, at = (at + STEP) % STATES)
            f->states[at].symbol = (uint8_t)s;
    }
    for (unsigned i = 0; i < STATES; i++) {
        fse_state *state = &f->states[i];
        const unsigned x = next[state->symbol]++, bits = STATES_LOG - log2_floor(x);
        state->bits = (uint8_t)bits;
        state->base = (uint8_t)((x << bits) - STATES);
        memset(&f->before[state->symbol][state->base], (int)i, (size_t)1 << bits);
    }
}

/* Shares plus one, each in as few bits as what is left of the states needs; after a share of zero, how many
 * more of them follow, in twos of bits. */
static void put_shares(bit_writer *w, const fse *f) {
    unsigned left = STATES;
    bits_put(w, STATES_LOG - LOG_MIN, 4);
    for (unsigned s = 0; left > 0; s++) {
        const unsigned values = left + 2, bits = log2_floor(values - 1) + 1;
        const unsigned shorter = (1u << bits) - values; /* so many values take a bit less */
        const unsigned value = f->share[s] + 1u;
        if (value < shorter)
            bits_put(w, value, bits - 1);
        else if (value < 1u << (bits - 1))
            bits_put(w, value, bits);
        else
            bits_put(w, value + shorter, bits);
        left -= f->share[s];
        if (f->share[s] > 0) continue;
        unsigned zeros = 0;
        while (f->share[s + 1 + zeros] == 0) zeros++;
        s += zeros;
        for (; zeros >= 3; zeros -= 3) bits_put(w, 3, 2);
        bits_put(w, zeros, 2);
    }
}

/* The state that gives `symbol` and wants most bits: where there are none, a reader knows that it is the last. */
static unsigned last_state(const fse *f, unsigned symbol) {
    unsigned best = STATES;
    for (unsigned i = 0; i < STATES; i++)
        if (f->states[i].symbol == symbol &&
            (best == STATES || f->states[i].bits > f->states[best].bits))
            best = i;
    return best;
}

size_t weights_write(uint8_t out[WEIGHTS_BYTES_MAX], const uint8_t *weights, size_t n) {
    fse f;
    uint8_t room[4 + 32 + 256]; /* 255 weights of at most 6 bits, and what is before them */
    unsigned state[2] = {0};
    if (n < 2 || !set_shares(&f, weights, n)) return 0;
    set_states(&f);
    bit_writer w = {.out = room};
    put_shares(&w, &f);
    bits_end(&w);
    for (size_t i = n; i-- > 0;) {
        unsigned *s = &state[i % 2];
        if (i + 2 >= n) {
            *s = last_state(&f, weights[i]);
            continue;
        }
        const unsigned before = f.before[weights[i]][*s];
        bits_put(&w, *s - f.states[before].base, f.states[before].bits);
        *s = before;
    }
    bits_put(&w, state[1], STATES_LOG);
    bits_put(&w, state[0], STATES_LOG);
    bits_put(&w, 1, 1);
    bits_end(&w);
    if (w.size > WEIGHTS_BYTES_MAX) return 0;
    memcpy(out, room, w.size);
    return w.size;
}

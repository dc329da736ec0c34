/* Goal: a coordinator holds three adapters at most, whatever the codec, however many nodes send, and whether what
 * they made is published or held back.
 * Method: a federation on disk, whose coordinator's calls alone are counted (base/mem.c); what an evaluation
 * reads into is part of the calls, as it is with a model.
 */
#include "federation.h"

#include "omm/mem.h"
#include "omm/mem_count.h"
#include "omm_test.h"

#include <stdio.h>

enum { COLS = 5 << 14, VALUES = 10 + 4 * COLS, ADAPTER = 4 * VALUES };
/* The fixed part: the piece of a payload that is decoded; messages, lists, what the database is asked. */
enum { PIECE = 4 * (1 << 16), FIXED = 128 << 10, PER_NODE = 6 << 10 };

typedef struct held_case {
    const char *name;
    uint32_t nodes;
    omm_codec up, down;
    bool rises; /* every candidate is held back */
    bool
        is_real; /* a training whose values do not compress, instead of eleven that are quickly made */
} held_case;

static const held_case s_cases[] = {
    {"int8, f16", 3, {OMM_CODEC_INT8, 0, 3, true}, {OMM_CODEC_F16, 0, 3, false}, false, false},
    {"24 nodes", 24, {OMM_CODEC_INT8, 0, 3, true}, {OMM_CODEC_F16, 0, 3, false}, false, false},
    {"f16, int8", 2, {OMM_CODEC_F16, 0, 3, false}, {OMM_CODEC_INT8, 0, 0, false}, false, false},
    {"f32, f32", 2, {OMM_CODEC_NONE, 0, 0, false}, {OMM_CODEC_NONE, 0, 0, false}, false, false},
    {"sparse f32",
     2,
     {OMM_CODEC_NONE, VALUES / 2, 0, false},
     {OMM_CODEC_NONE, 0, 0, false},
     false,
     false},
    {"held back", 2, {OMM_CODEC_INT8, 0, 3, true}, {OMM_CODEC_NONE, 0, 0, false}, true, false},
    /* As a scenario's words become them (resolved below): with every default. */
    {"real int8", 2, {OMM_CODEC_INT8, 0, 3, true}, {OMM_CODEC_F16, 0, 3, false}, false, true},
    {"real f16", 2, {OMM_CODEC_F16, 0, 3, false}, {OMM_CODEC_F16, 0, 3, false}, false, true},
    {"real f32", 2, {OMM_CODEC_NONE, 0, 3, false}, {OMM_CODEC_NONE, 0, 3, false}, false, true},
};

static double adapters(size_t bytes) {
    return (double)bytes / ADAPTER;
}

/* What a scenario with this kind and level gets. */
static omm_codec resolved(const omm_codec *codec) {
    const omm_segment segments[] = {{"a", 2, 5, 0}, {"b", 4, COLS, 10}};
    const omm_layout layout = {segments, 2, VALUES};
    const omm_codec_config config = {.kind = (int)codec->kind,
                                     .topk_fraction = 1,
                                     .zstd_level = codec->zstd_level,
                                     .error_feedback = codec->error_feedback};
    omm_codec out;
    CHECK_OK(omm_codec_resolve(&out, &config, &layout));
    return out;
}

/* The most that it held. */
static size_t run_case(const held_case *h) {
    const omm_codec up = h->is_real ? resolved(&h->up) : h->up;
    const omm_codec down = h->is_real ? resolved(&h->down) : h->down;
    fed f;
    fed_options o = fed_options_default();
    o.nodes = h->nodes;
    o.rounds = 2;
    o.values_cols = COLS;
    o.counts_bytes = o.on_disk = true;
    o.is_plain = !h->is_real;
    o.up = &up;
    o.down = &down;
    o.error_feedback = false;
    o.norm_max = 1e6;
    o.loss_rises = h->rises;
    fed_open(&f, &o);
    fed_run(&f);
    fed_restart_coordinator(&f);
    uint32_t rounds = 0;
    const omm_coord_round *history = omm_coord_history(&rounds, f.coord);
    CHECK_EQ(rounds, 2);
    CHECK_EQ(history[1].accepted, h->nodes);
    CHECK(history[1].published == !h->rises);
    printf("%-11s", h->name);
    size_t peak = 0;
    for (int state = OMM_COORD_JOINING; state < OMM_COORD_CLOSED; state++) {
        const size_t most = f.coord_peaks[state];
        printf(" %s %.2f", omm_coord_state_name((omm_coord_state)state), adapters(most));
        CHECK(most <= 3 * (size_t)ADAPTER + FIXED + PIECE);
        if (most > peak) peak = most;
    }
    printf("; at rest %.2f\n", adapters(f.coord_bytes));
    CHECK(f.coord_bytes <= ADAPTER + FIXED);
    fed_close(&f);
    return peak;
}

int main(void) {
    size_t peaks[sizeof s_cases / sizeof *s_cases];
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) peaks[i] = run_case(&s_cases[i]);
    CHECK(peaks[0] > 3 * (size_t)ADAPTER); /* the sums, and what comes out of them */
    CHECK(peaks[1] <= peaks[0] + (size_t)(s_cases[1].nodes - s_cases[0].nodes) * PER_NODE);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

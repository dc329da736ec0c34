/* prefix_test.c - what a store keeps and what goes first, what layers with a window are served, many chains; the ids of
 * sessions are set here, as nothing looks at what was computed of them (group_test.c does). */
#include "session_internal.h"
#include "tiny_model.h"

#include "omm/adapter.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>

enum { BLOCK = OMM_KV_BLOCK };

typedef struct rig {
    omm_model model;
    omm_compute c;
    omm_group *g;
    omm_prefix_store *store;
    omm_session *a, *b; /* who keeps, who fetches */
    size_t node;        /* bytes of a block of all layers */
} rig;

static void load(omm_model *model) {
    omm_buf file;
    omm_gguf gguf;
    omm_buf_init(&file, 1 << 22);
    tiny_model_write(&file, &(tiny_options){.format = OMM_FORMAT_F32});
    CHECK_OK(omm_gguf_open_bytes(&gguf, omm_buf_view(&file)));
    CHECK_OK(omm_model_load(model, &gguf));
    omm_gguf_close(&gguf);
    omm_buf_fini(&file);
}

static void open_rig(rig *r, size_t nodes_max) {
    omm_isa isa;
    load(&r->model);
    CHECK_OK(omm_isa_choose(&isa, NULL));
    CHECK_OK(omm_compute_init(&r->c, NULL, isa));
    CHECK_OK(omm_group_open(&r->g, &r->c, &r->model, &(omm_session_options){.batch_max = 1}));
    r->node = TINY_LAYERS * omm_kv_block_bytes(OMM_KV_F32, TINY_KV_HEADS, TINY_HEAD_DIM);
    CHECK_OK(omm_prefix_open(&r->store, r->g, nodes_max * r->node));
    CHECK_OK(omm_session_open_in(&r->a, r->g));
    CHECK_OK(omm_session_open_in(&r->b, r->g));
}

static void close_rig(rig *r) {
    omm_session_close(r->a);
    omm_session_close(r->b);
    omm_prefix_close(r->store);
    omm_group_close(r->g);
    omm_compute_fini(&r->c);
    omm_model_fini(&r->model);
}

static uint32_t id_of(uint32_t text, size_t position) {
    return (uint32_t)((position < BLOCK ? text : text % 7) + position) % TINY_VOCAB;
}

static void hold(omm_session *s, uint32_t text, uint32_t count) {
    (void)omm_session_truncate(s, 0);
    CHECK_OK(session_reserve(s, count, false));
    CHECK_OK(session_reserve(s, count, true));
    for (uint32_t i = 0; i < count; i++) s->ids[i] = id_of(text, i);
    s->position = count;
}

static void keep(rig *r, uint32_t text, uint32_t count) {
    hold(r->a, text, count);
    CHECK_OK(omm_prefix_keep(r->store, r->a));
}

/* How far the store takes a session that holds `had` positions of the text. */
static uint32_t fetch(rig *r, uint32_t text, uint32_t had, uint32_t count) {
    uint32_t ids[TINY_CONTEXT];
    for (uint32_t i = 0; i < count; i++) ids[i] = id_of(text, i);
    if (had > 0) hold(r->b, text, had);
    if (had == 0) (void)omm_session_truncate(r->b, 0);
    CHECK_OK(omm_prefix_fetch(r->store, r->b, ids, count));
    CHECK(memcmp(r->b->ids, ids, r->b->position * sizeof *ids) == 0);
    return r->b->position;
}

static void holds(const rig *r, size_t blocks) {
    CHECK_EQ(omm_prefix_stats_of(r->store).blocks, blocks);
    CHECK_EQ(omm_prefix_stats_of(r->store).bytes, blocks * r->node);
}

static void whole_blocks(void) {
    rig r;
    open_rig(&r, 100);
    keep(&r, 1, BLOCK - 1);
    holds(&r, 0);
    keep(&r, 1, BLOCK);
    holds(&r, 1);
    keep(&r, 1, 2 * BLOCK - 1);
    holds(&r, 1);
    keep(&r, 1, 2 * BLOCK);
    holds(&r, 2);
    CHECK_EQ(fetch(&r, 1, 0, BLOCK - 1), 0);
    CHECK_EQ(fetch(&r, 1, 0, BLOCK), BLOCK);
    CHECK_EQ(fetch(&r, 1, 0, 2 * BLOCK), 2 * BLOCK);
    CHECK_EQ(omm_prefix_stats_of(r.store).positions_reused, 3 * BLOCK);
    CHECK_EQ(fetch(&r, 1, BLOCK + 5, 2 * BLOCK), 2 * BLOCK); /* the rest of a block is saved */
    CHECK_EQ(omm_prefix_stats_of(r.store).positions_reused, 4 * BLOCK - 5);
    close_rig(&r);
}

/* Of two texts the one that was used last stays, whichever it is and whether it was kept again or fetched. */
static void least_recently_used(void) {
    for (uint32_t way = 0; way < 4; way++) {
        const uint32_t first = way % 2, second = 1 - first;
        rig r;
        open_rig(&r, 2);
        keep(&r, first, BLOCK);
        keep(&r, second, BLOCK);
        if (way < 2)
            CHECK_EQ(fetch(&r, first, 0, BLOCK), BLOCK);
        else
            keep(&r, first, BLOCK);
        keep(&r, 2, BLOCK);
        holds(&r, 2);
        CHECK_EQ(omm_prefix_stats_of(r.store).blocks_evicted, 1);
        CHECK_EQ(fetch(&r, second, 0, BLOCK), 0);
        CHECK_EQ(fetch(&r, first, 0, BLOCK), BLOCK);
        CHECK_EQ(fetch(&r, 2, 0, BLOCK), BLOCK);
        close_rig(&r);
    }
}

/* A chain loses its end first, never its beginning, and none that is longer than the store pushes itself out. */
static void ends_go_first(void) {
    rig r;
    open_rig(&r, 4);
    keep(&r, 1, 3 * BLOCK);
    keep(&r, 2, 2 * BLOCK);
    holds(&r, 4);
    CHECK_EQ(fetch(&r, 1, 0, 3 * BLOCK), 2 * BLOCK);
    CHECK_EQ(fetch(&r, 2, 0, 3 * BLOCK), 2 * BLOCK);
    close_rig(&r);
    open_rig(&r, 2);
    keep(&r, 1, BLOCK);
    keep(&r, 2, 3 * BLOCK);
    holds(&r, 2);
    CHECK_EQ(fetch(&r, 2, 0, 3 * BLOCK), 2 * BLOCK);
    close_rig(&r);
    open_rig(&r, 0);
    keep(&r, 1, BLOCK);
    holds(&r, 0);
    close_rig(&r);
}

/* So many that some share a bucket of the table. */
static void many(void) {
    enum { KEPT = 150, TEXTS = 3000 };
    rig r;
    open_rig(&r, KEPT);
    for (uint32_t text = 0; text < TEXTS; text++) {
        hold(r.a, 0, BLOCK);
        r.a->ids[0] = text % TINY_VOCAB;
        r.a->ids[1] = text / TINY_VOCAB;
        CHECK_OK(omm_prefix_keep(r.store, r.a));
    }
    holds(&r, KEPT);
    for (uint32_t text = 0; text < TEXTS; text++) {
        hold(r.a, 0, BLOCK);
        r.a->ids[0] = text % TINY_VOCAB;
        r.a->ids[1] = text / TINY_VOCAB;
        (void)omm_session_truncate(r.b, 0);
        CHECK_OK(omm_prefix_fetch(r.store, r.b, r.a->ids, BLOCK));
        CHECK_EQ(r.b->position, text < TEXTS - KEPT ? 0 : BLOCK);
    }
    close_rig(&r);
}

/* The first layer has a window, and whoever kept the chain had passed its first block. */
static void passed_windows(void) {
    static const struct {
        uint32_t window, count, served;
    } cases[] = {{100, 3 * BLOCK, 3 * BLOCK}, /* after 192 positions those from 93 on are seen */
                 {100, 3 * BLOCK - 1, 0},
                 {129, 3 * BLOCK, 3 * BLOCK}, /* from 64 on */
                 {130, 3 * BLOCK, 0},         /* from 63 on */
                 {65, 2 * BLOCK, 2 * BLOCK},
                 {66, 2 * BLOCK, 0},
                 {1, BLOCK, BLOCK}, /* nothing before itself */
                 {2, BLOCK, 0},
                 {1000, 3 * BLOCK, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig r;
        open_rig(&r, 100);
        r.model.layers[0].window = cases[i].window;
        hold(r.a, 1, 3 * BLOCK);
        omm_kv_forget(&r.a->kv[0], BLOCK);
        CHECK_OK(omm_prefix_keep(r.store, r.a));
        CHECK_EQ(fetch(&r, 1, 0, cases[i].count), cases[i].served);
        close_rig(&r);
    }
}

/* What the session has itself counts, stays its own, and fills what the store lacks. */
static void own_blocks(void) {
    rig r;
    open_rig(&r, 100);
    r.model.layers[0].window = 100;
    hold(r.a, 1, 2 * BLOCK);
    omm_kv_forget(&r.a->kv[0], BLOCK);
    CHECK_OK(omm_prefix_keep(r.store, r.a));
    CHECK_EQ(fetch(&r, 1, 0, 2 * BLOCK), 0);
    CHECK_EQ(fetch(&r, 1, BLOCK - 1, 2 * BLOCK), BLOCK - 1); /* not whole */
    CHECK_EQ(fetch(&r, 1, BLOCK, 2 * BLOCK), 2 * BLOCK);
    CHECK(r.b->kv[0].blocks[0] != NULL && r.b->kv[0].blocks[1] == r.a->kv[0].blocks[1]);
    CHECK_OK(omm_prefix_keep(r.store, r.b));
    CHECK_EQ(fetch(&r, 1, 0, 2 * BLOCK), 2 * BLOCK);
    hold(r.b, 1, BLOCK); /* and what it has lost is missing, whatever the store has */
    omm_kv_forget(&r.b->kv[0], BLOCK);
    CHECK_OK(omm_prefix_fetch(r.store, r.b, r.a->ids, (size_t)2 * BLOCK));
    CHECK_EQ(r.b->position, BLOCK);
    close_rig(&r);
}

/* What was computed with other adapters is another text's: none, one, the same at another scale, two, those in another
 * order. */
static void other_adapters(void) {
    enum { WAYS = 5 };
    const omm_lora_spec spec = {.rank = 2, .alpha = 4.0f, .targets = 1u << OMM_LORA_Q};
    omm_adapter *of[2] = {NULL};
    omm_lora lora;
    rig r;
    open_rig(&r, 100);
    CHECK_OK(omm_lora_init(&lora, &spec, &r.model.lora_shape));
    for (size_t i = 0; i < 2; i++) /* alike, but for their scales */
        CHECK_OK(omm_adapter_open(&of[i], &r.model, &lora, i ? 0.5f : 1.0f));
    const struct {
        const omm_adapter *list[2];
        size_t count;
    } ways[WAYS] = {
        {{NULL}, 0}, {{of[0]}, 1}, {{of[1]}, 1}, {{of[0], of[1]}, 2}, {{of[1], of[0]}, 2}};
    for (size_t i = 0; i < WAYS; i++) {
        CHECK_OK(omm_session_set_adapters(r.a, ways[i].list, ways[i].count));
        keep(&r, 1, BLOCK);
        holds(&r, i + 1);
        for (size_t k = 0; k < WAYS; k++) {
            CHECK_OK(omm_session_set_adapters(r.b, ways[k].list, ways[k].count));
            CHECK_EQ(fetch(&r, 1, 0, BLOCK), k <= i ? BLOCK : 0);
            CHECK(k > i || (r.b->kv[0].blocks[0] == r.a->kv[0].blocks[0]) == (k == i));
        }
    }
    close_rig(&r);
    for (size_t i = 0; i < 2; i++) omm_adapter_close(of[i]);
    omm_lora_fini(&lora);
}

int main(void) {
    whole_blocks();
    least_recently_used();
    ends_go_first();
    many();
    passed_windows();
    own_blocks();
    other_adapters();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

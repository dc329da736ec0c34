/* session_walk_test.c - sessions that share a group, a prefix store, windows, a limit of memory and
 * adapters, used in random order: cut, gone on with, saved and loaded, guessed ahead, run out of
 * memory. Whatever came before, the logits are those of a fresh session that is given the same ids. */
#include "kernels_battery.h"
#include "tiny_arch.h"

#include "omm/mem.h"
#include "omm/prefix.h"
#include "omm/session_file.h"
#include "omm/speculate.h"
#include "omm_test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SEATS = 3,
    LISTS = 5,
    STEPS = 400,
    WALKS = 14,
    POSITIONS = 300,
    PIECE = 90,
    VOCAB = TINY_ARCH_VOCAB
};

static const omm_digest s_digest = {{3, 1, 4}};
static char s_path[] = "/tmp/omm-walk-XXXXXX";
static float s_want[POSITIONS * VOCAB], s_got[SEATS * PIECE * VOCAB];
static uint32_t s_piece[SEATS][PIECE], s_target[POSITIONS];

/* Of all walks: logits that were compared, runs out of memory, positions that a store had. */
static uint64_t s_compared, s_refused, s_reused;

typedef struct seat {
    omm_session *session;
    uint32_t ids[POSITIONS]; /* what it should hold */
    uint32_t count;
    size_t list; /* of adapters */
} seat;

typedef struct rig {
    const char *what;
    uint64_t step, draws;
    omm_rng rng;
    omm_model model;
    omm_lora lora[2];
    omm_adapter *adapter[2];
    const omm_compute *compute, *plain;
    omm_session_options options;
    omm_group *group;
    omm_prefix_store *store;
    omm_session *draft;
    seat seats[SEATS];
} rig;

static uint32_t draw(rig *r, uint32_t below) {
    return (uint32_t)omm_rng_below(&r->rng, r->draws++, below);
}

/* Few ids, so that look-up finds something and sequences have beginnings in common. */
static void draw_ids(rig *r, uint32_t *ids, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) ids[i] = draw(r, 8) ? i % 5 : draw(r, VOCAB);
}

static seat *draw_seat(rig *r) {
    return &r->seats[draw(r, SEATS)];
}

static void adapt(const rig *r, omm_session *s, size_t list) {
    const omm_adapter *lists[LISTS][2] = {{NULL, NULL},
                                          {r->adapter[0], NULL},
                                          {r->adapter[1], NULL},
                                          {r->adapter[0], r->adapter[1]},
                                          {r->adapter[1], r->adapter[0]}};
    static const size_t counts[LISTS] = {0, 1, 1, 2, 2};
    CHECK_OK(omm_session_set_adapters(s, lists[list], counts[list]));
}

/* `rows` are the logits of the seat's last `count` positions. */
static void compare(rig *r, const seat *at, const float *rows, uint32_t count) {
    const omm_session_options o = {.activations = r->options.activations,
                                   .kv_type = r->options.kv_type,
                                   .positions_max = POSITIONS,
                                   .batch_max = 256,
                                   .rollback_max = POSITIONS};
    omm_session *s = NULL;
    CHECK_OK(omm_session_open(&s, r->plain, &r->model, NULL, &o));
    adapt(r, s, at->list);
    CHECK_OK(omm_session_append(s, at->ids, at->count, s_want, true));
    omm_session_close(s);
    const float *want = s_want + (size_t)(at->count - count) * VOCAB;
    s_compared += count;
    if (memcmp(want, rows, (size_t)count * VOCAB * sizeof *rows) == 0) return;
    fprintf(stderr, "%s, step %llu: the last %u of %u positions differ\n", r->what,
            (unsigned long long)r->step, count, at->count);
    exit(1);
}

static void holds(const rig *r, const seat *at) {
    CHECK_EQ(omm_session_position(at->session), at->count);
    if (memcmp(omm_session_ids(at->session), at->ids, at->count * sizeof at->ids[0]) == 0) return;
    fprintf(stderr, "%s, step %llu: other ids\n", r->what, (unsigned long long)r->step);
    exit(1);
}

/* After an error a beginning of what it should hold remains, of `least` ids or more, or nothing. */
static void remains(rig *r, seat *at, omm_err err, uint32_t least) {
    CHECK(err == OMM_ERR_NOMEM || err == OMM_ERR_TOO_BIG);
    const uint32_t left = omm_session_position(at->session);
    CHECK(left <= at->count && (left >= least || left == 0));
    at->count = left;
    s_refused++;
    holds(r, at);
}

/* ---- what a walk is made of -------------------------------------------------------------------- */

/* Several sessions in one batch, with all their logits or the last. */
static void step_append(rig *r) {
    omm_part parts[SEATS];
    seat *at[SEATS];
    size_t n = 0;
    for (size_t i = 0; i < SEATS; i++) {
        const uint32_t count = 1 + draw(r, draw(r, 2) ? PIECE : 3);
        if (draw(r, 2) || r->seats[i].count + count > POSITIONS) continue;
        draw_ids(r, s_piece[i], count);
        at[n] = &r->seats[i];
        parts[n++] = (omm_part){r->seats[i].session, s_piece[i], count, (omm_logits)draw(r, 3)};
    }
    if (n == 0) return;
    if (draw(r, 5) == 0) omm_mem_fail_nth(1 + draw(r, 12));
    const omm_err err = omm_group_append(r->group, parts, n, s_got);
    omm_mem_fail_nth(0);
    const float *row = s_got;
    for (size_t i = 0; i < n; i++) {
        if (err != OMM_OK) {
            remains(r, at[i], err, at[i]->count);
            continue;
        }
        memcpy(at[i]->ids + at[i]->count, parts[i].ids, parts[i].count * sizeof at[i]->ids[0]);
        at[i]->count += (uint32_t)parts[i].count;
        holds(r, at[i]);
        const uint32_t rows =
            parts[i].logits == OMM_LOGITS_EVERY ? (uint32_t)parts[i].count : parts[i].logits;
        if (rows) compare(r, at[i], row, rows);
        row += (size_t)rows * VOCAB;
    }
}

static void step_truncate(rig *r) {
    seat *at = draw_seat(r);
    const uint32_t to = draw(r, at->count + 1);
    const uint32_t left = omm_session_truncate(at->session, to);
    CHECK(left == to || left == 0);
    at->count = left;
    holds(r, at);
}

/* What another session begins with, then something new. */
static uint32_t draw_target(rig *r) {
    const seat *from = draw_seat(r);
    uint32_t count = draw(r, from->count + 1);
    memcpy(s_target, from->ids, count * sizeof s_target[0]);
    uint32_t more = draw(r, 40);
    if (count + more > POSITIONS) more = POSITIONS - count;
    if (count + more == 0) more = 1;
    draw_ids(r, s_target + count, more);
    return count + more;
}

static bool become(rig *r, seat *at, uint32_t count) {
    if (draw(r, 5) == 0) omm_mem_fail_nth(1 + draw(r, 12));
    const omm_err err = omm_session_become(at->session, s_target, count, s_got);
    omm_mem_fail_nth(0);
    memcpy(at->ids, s_target, count * sizeof s_target[0]);
    at->count = count;
    if (err != OMM_OK)
        remains(r, at, err, 0);
    else
        holds(r, at);
    return err == OMM_OK;
}

static void step_become(rig *r) {
    seat *at = draw_seat(r);
    if (become(r, at, draw_target(r))) compare(r, at, s_got, 1);
}

static void step_adapters(rig *r) {
    seat *at = draw_seat(r);
    const size_t list = draw(r, LISTS);
    adapt(r, at->session, list);
    if (list != at->list) at->count = 0;
    at->list = list;
    holds(r, at);
}

/* From one session into another of the same adapters, or refused. */
static void step_save(rig *r) {
    const seat *from = draw_seat(r);
    seat *to = draw_seat(r);
    CHECK_OK(omm_session_save(from->session, s_path, &s_digest, (omm_bytes){0}));
    const omm_err err = omm_session_load(to->session, s_path, &s_digest, NULL);
    if (to->list != from->list) {
        CHECK_EQ(err, OMM_ERR_MISMATCH);
    } else if (err == OMM_OK) {
        memmove(to->ids, from->ids, from->count * sizeof to->ids[0]);
        to->count = from->count;
    } else {
        CHECK(err == OMM_ERR_TOO_BIG);
        to->count = 0;
        s_refused++;
    }
    holds(r, to);
}

static void step_keep(rig *r) {
    CHECK_OK(omm_prefix_keep(r->store, draw_seat(r)->session));
}

/* Guessed ahead: each id is what the logits of a fresh session give. */
static void step_speculate(rig *r) {
    seat *at = draw_seat(r);
    const omm_seed seed = omm_seed_from_u64(r->step);
    const omm_sampler how = {.temperature = draw(r, 2) ? 0.0f : 2.0f,
                             .top_p = 1.0f,
                             .frequency_penalty = draw(r, 2) ? 0.0f : 0.6f,
                             .repeat_penalty = draw(r, 2) ? 1.0f : 1.2f,
                             .repeat_last = 1 + draw(r, 80),
                             .rng = omm_rng_init(&seed, OMM_PURPOSE_SAMPLE, 0, 0)};
    const omm_speculator_options o = {.draft = draw(r, 2) ? r->draft : NULL,
                                      .drafts_max = draw(r, 4) ? 1 + draw(r, 9) : 64,
                                      .match_max = 2 + draw(r, 3)};
    omm_speculator *sp = NULL;
    if (!become(r, at, draw_target(r))) return;
    CHECK_OK(omm_speculator_open(&sp, at->session, &how, &o));
    omm_speculator_start(sp, s_got);
    uint32_t ids[30];
    size_t given = 0;
    omm_err err = OMM_OK;
    while (given < 30 && at->count + given < POSITIONS && err == OMM_OK) {
        err = omm_speculator_next(sp, &ids[given]);
        given += err == OMM_OK;
    }
    omm_speculator_finish(sp);
    omm_speculator_close(sp);
    const uint32_t begin = at->count;
    for (size_t i = 0; i < given; i++) at->ids[at->count++] = ids[i];
    compare(r, at, s_want, 0); /* all logits of a fresh session, in s_want */
    for (size_t i = 0; i < given; i++) {
        uint32_t id = 0;
        const omm_history before = {at->ids, begin + i, begin};
        CHECK_OK(
            omm_sample_within(&id, &how, NULL, &before, s_want + (begin + i - 1) * VOCAB, VOCAB));
        CHECK_EQ(ids[i], id);
    }
    s_compared += given;
    if (err != OMM_OK) {
        remains(r, at, err, begin);
    } else {
        at->count -= given > 0; /* the last one given is not in the session */
        holds(r, at);
    }
}

static void walk(rig *r, uint32_t steps) {
    static void (*const step[])(rig *) = {step_append, step_append, step_append,   step_truncate,
                                          step_become, step_become, step_become,   step_adapters,
                                          step_save,   step_keep,   step_speculate};
    for (r->step = 0; r->step < steps; r->step++) step[draw(r, sizeof step / sizeof *step)](r);
}

/* ---- where ------------------------------------------------------------------------------------- */

static void open_adapters(rig *r) {
    for (unsigned i = 0; i < 2; i++) {
        const omm_lora_spec spec = {2 + 3 * i, 4.0f, OMM_LORA_ALL_TARGETS};
        CHECK_OK(omm_lora_init(&r->lora[i], &spec, &r->model.lora_shape));
        float *noise = battery_floats(9 + i, r->lora[i].value_count);
        for (size_t j = 0; j < r->lora[i].value_count; j++) r->lora[i].values[j] = noise[j] * 0.1f;
        omm_free(noise);
        CHECK_OK(omm_adapter_open(&r->adapter[i], &r->model, &r->lora[i], i ? 0.5f : 1.0f));
    }
}

static void open_sessions(rig *r, size_t block_bytes) {
    r->options.positions_max = POSITIONS;
    r->options.rollback_max = 64;
    r->options.cache_bytes_max = 8 * block_bytes; /* three full sessions are 15 */
    CHECK_OK(omm_group_open(&r->group, r->compute, &r->model, &r->options));
    CHECK_OK(omm_prefix_open(&r->store, r->group, 5 * block_bytes));
    for (size_t i = 0; i < SEATS; i++)
        CHECK_OK(omm_session_open_in(&r->seats[i].session, r->group));
    CHECK_OK(omm_session_open(&r->draft, r->plain, &r->model, NULL,
                              &(omm_session_options){.kv_type = OMM_KV_Q8_0,
                                                     .positions_max = POSITIONS - 50,
                                                     .batch_max = 16,
                                                     .rollback_max = 64}));
}

static void close_rig(rig *r) {
    for (size_t i = 0; i < SEATS; i++) omm_session_close(r->seats[i].session);
    omm_session_close(r->draft);
    omm_prefix_close(r->store);
    omm_group_close(r->group);
    for (unsigned i = 0; i < 2; i++) {
        omm_adapter_close(r->adapter[i]);
        omm_lora_fini(&r->lora[i]);
    }
    omm_model_fini(&r->model);
}

static void walk_on(const omm_compute *compute, const omm_compute *plain, const tiny_arch *arch,
                    const char *what, unsigned number) {
    static const uint32_t batches[] = {256, 1, 16, 37};
    const omm_seed seed = omm_seed_from_u64(number);
    rig r = {.what = what,
             .compute = compute,
             .plain = plain,
             .rng = omm_rng_init(&seed, OMM_PURPOSE_SAMPLE, 0, 0),
             .options = {.activations = (omm_activations)(number % 2),
                         .kv_type = (omm_kv_type)(number % 3),
                         .batch_max = batches[number % 4]}};
    tiny_arch_load(&r.model, arch);
    open_adapters(&r);
    const omm_model_dims *d = &r.model.dims;
    open_sessions(&r, d->layers * omm_kv_block_bytes(r.options.kv_type, d->kv_heads, d->head_dim));
    walk(&r, STEPS);
    s_reused += omm_prefix_stats_of(r.store).positions_reused;
    close_rig(&r);
}

int main(void) {
    static const tiny_arch archs[] = {
        {.name = "llama", .format = OMM_FORMAT_Q8_0},
        {.name = "gemma2", .format = OMM_FORMAT_Q8_0, .window = 17, .caps = {1.5f, 4.0f}},
        {.name = "phi3", .window = 40, .untied = true},
        {.name = "gemma3", .window = 70, .layers = 7, .format = OMM_FORMAT_Q8_0, .head_dim = 16},
        {.name = "qwen3", .head_dim = 20},
        {.name = "smollm3", .layers = 5, .head_dim = 20},
        {.name = "olmo2", .format = OMM_FORMAT_Q8_0, .untied = true},
        {.name = "olmo2",
         .layers = 4,
         .window = 19,
         .scaling = "yarn",
         .factor = 8.0f,
         .original = 24},
        {.name = "mistral3",
         .scaling = "yarn",
         .factor = 8.0f,
         .original = 24,
         .temperature = 0.4f},
        {.name = "exaone4", .layers = 4, .window = 19, .format = OMM_FORMAT_Q8_0},
        {.name = "hunyuan-dense", .format = OMM_FORMAT_Q8_0, .alpha = 30.0f}};
    enum { ARCHS = sizeof archs / sizeof *archs };
    omm_compute compute, plain;
    omm_pool *pool = NULL;
    omm_isa isa;
    const int fd = mkstemp(s_path);
    CHECK(fd >= 0 && close(fd) == 0);
    CHECK_OK(omm_isa_choose(&isa, NULL));
    CHECK_OK(omm_pool_open(&pool, 2));
    CHECK_OK(omm_compute_init(&compute, pool, isa));
    CHECK_OK(omm_compute_init(&plain, NULL, isa));
    for (unsigned i = 0; i < WALKS; i++)
        walk_on(&compute, &plain, &archs[i % ARCHS], archs[i % ARCHS].name, i);
    CHECK(s_compared > (uint64_t)WALKS * STEPS && s_reused > 0);
    CHECK(s_refused > WALKS && s_refused < (uint64_t)WALKS * STEPS / 10); /* most of it works */
    omm_compute_fini(&compute);
    omm_compute_fini(&plain);
    omm_pool_close(pool);
    CHECK_EQ(unlink(s_path), 0);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

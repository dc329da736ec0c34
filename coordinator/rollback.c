/* rollback.c - a round that begins from an earlier adapter, because an operator says so.
 *
 * State n is what was there after round n - 1; state 0 is the run's first adapter.  Every state is in the bundle.
 * state_dir/rollback.json says which round begins from which state; of rounds that are over their lines in
 * rounds.jsonl say it (`begins`), so the file matters for the next one alone.
 */
#include "internal.h"

#include "omm/json.h"

#include <stdio.h>
#include <string.h>

#define FILE_NAME "rollback.json"
#define FILE_BYTES_MAX 4096u
#define STATES_BYTES_MAX ((size_t)1 << 28)

bool coord_rollback_is_now(const omm_coord *c) {
    const coord_rollback *now = &c->rollbacks[0];
    return now->known && now->round == c->round && now->to < c->round;
}

void coord_rollback_next(omm_coord *c) {
    c->rollbacks[0] = c->rollbacks[1];
    c->rollbacks[1] = (coord_rollback){0};
    c->must_roll_back = coord_rollback_is_now(c);
}

/* ---- the file ---- */

/* [[round, begins], ...] of the rounds that are not over. */
static json_t *list_of(const coord_rollback rollbacks[2]) {
    json_t *list = json_array();
    for (size_t i = 0; i < 2; i++)
        if (rollbacks[i].known)
            (void)json_array_append_new(list, json_pack("[I,I]", (json_int_t)rollbacks[i].round,
                                                        (json_int_t)rollbacks[i].to));
    return list;
}

static omm_err write_file(const omm_coord *c, const coord_rollback rollbacks[2]) {
    char path[OMM_PATH_MAX];
    omm_buf text;
    if (!c->o.state_dir) return OMM_OK;
    OMM_TRY(omm_path_join(path, c->o.state_dir, FILE_NAME));
    omm_buf_init(&text, FILE_BYTES_MAX);
    json_t *root = json_pack("{s:i,s:s,s:o}", "schema_version", 1, "run_id", c->o.run->run_id,
                             "rounds", list_of(rollbacks));
    omm_err err = root ? omm_json_write(&text, root) : omm_raise(OMM_ERR_NOMEM, "rollback");
    json_decref(root);
    if (err == OMM_OK) err = omm_file_write(path, omm_buf_view(&text), 0600);
    omm_buf_fini(&text);
    return err;
}

/* An entry of a round that is over says nothing any more. */
static bool take_entry(omm_coord *c, json_t *entry) {
    json_int_t round = -1, to = -1;
    if (json_unpack(entry, "[I,I!]", &round, &to) != 0 || round < 0 || round >= c->o.run->rounds ||
        to < 0 || to > round)
        return false;
    for (uint32_t i = 0; i < 2; i++)
        if ((uint32_t)round == c->round + i)
            c->rollbacks[i] = (coord_rollback){true, (uint32_t)round, (uint32_t)to};
    return true;
}

/* A file that cannot be read stops the start: a rollback that was confirmed is not forgotten. */
static omm_err take_file(omm_coord *c, const char *path, omm_bytes text) {
    json_int_t version = 0;
    const char *run_id = "";
    json_t *list = NULL;
    json_t *root = json_loadb((const char *)text.data, text.size, JSON_REJECT_DUPLICATES, NULL);
    bool ok = root &&
              json_unpack(root, "{s:I,s:s,s:o!}", "schema_version", &version, "run_id", &run_id,
                          "rounds", &list) == 0 &&
              version == 1 && strcmp(run_id, c->o.run->run_id) == 0 && json_is_array(list);
    for (size_t i = 0; ok && i < json_array_size(list); i++)
        ok = take_entry(c, json_array_get(list, i));
    json_decref(root);
    if (ok) return OMM_OK;
    return omm_raise(OMM_ERR_FORMAT,
                     "%s: damaged, or of another run; remove it to begin the next round from the "
                     "newest adapter",
                     path);
}

omm_err coord_rollback_load(omm_coord *c) {
    char path[OMM_PATH_MAX];
    omm_buf text;
    if (!c->o.state_dir) return OMM_OK;
    OMM_TRY(omm_path_join(path, c->o.state_dir, FILE_NAME));
    if (!omm_file_exists(path)) return OMM_OK;
    omm_buf_init(&text, FILE_BYTES_MAX);
    omm_err err = omm_file_read(&text, path);
    if (err == OMM_OK) err = take_file(c, path, omm_buf_view(&text));
    omm_buf_fini(&text);
    return err;
}

/* ---- the state ---- */

/* Loss of state 0: the first line of eval/rounds.jsonl. */
static omm_err first_loss(double *out, const omm_coord *c) {
    omm_buf text;
    omm_state_record state;
    omm_buf_init(&text, STATES_BYTES_MAX);
    omm_err err = omm_bundle_read(&text, c->o.bundle, "eval/rounds.jsonl");
    if (err == OMM_OK) {
        const uint8_t *end = memchr(text.data, '\n', text.size);
        const size_t size = end ? (size_t)(end - text.data) + 1 : text.size;
        err = omm_state_record_parse(&state, omm_bytes_of(text.data, size));
    }
    if (err == OMM_OK) *out = state.loss;
    omm_buf_fini(&text);
    return err;
}

/* A state has the loss of the round that was published last on the way to it. */
static omm_err loss_of(double *out, const omm_coord *c, uint32_t number) {
    while (number > 0 && !c->history[number - 1].published) number = c->history[number - 1].begins;
    if (number == 0) return first_loss(out, c);
    *out = c->history[number - 1].loss;
    return OMM_OK;
}

omm_err coord_rollback_apply(omm_coord *c) {
    const uint32_t number = coord_rollback_is_now(c) ? c->rollbacks[0].to : c->round;
    double loss = 0;
    OMM_ASSERT(number <= c->history_count);
    OMM_TRY(loss_of(&loss, c, number));
    OMM_TRY(coord_store_loss(c, loss)); /* nothing but this round reads it */
    OMM_TRY(coord_state_begin(c, number));
    c->has_loss = true;
    c->loss = loss;
    c->must_roll_back = false;
    omm_log_event(c->o.log, OMM_LOG_WARN, "rolled_back", OMM_LOG_INT("round", c->round),
                  OMM_LOG_INT("state", number));
    return OMM_OK;
}

omm_err omm_coord_rollback(uint32_t *next, uint64_t *next_deadline_ms, omm_coord *c,
                           uint64_t now_ms, int64_t round) {
    const bool gathers = c->state == OMM_COORD_JOINING;
    *next = gathers ? c->round : c->round + 1;
    if (c->state >= OMM_COORD_CLOSING || *next >= c->o.run->rounds)
        return omm_raise(OMM_ERR_STATE, "no round is left that could begin from another adapter");
    if (round >= (int64_t)c->history_count) {
        char more[32] = "";
        if (c->history_count > 0)
            (void)snprintf(more, sizeof more, ", or 0 to %u", c->history_count - 1);
        return omm_raise(OMM_ERR_STATE, "round %lld is not over; accepted: start%s",
                         (long long)round, more);
    }
    const uint32_t to = round < 0 ? 0 : (uint32_t)round + 1;
    coord_rollback rollbacks[2] = {c->rollbacks[0], c->rollbacks[1]};
    rollbacks[gathers ? 0 : 1] = (coord_rollback){true, *next, to};
    OMM_TRY(write_file(c, rollbacks));
    memcpy(c->rollbacks, rollbacks, sizeof rollbacks);
    c->must_roll_back = gathers; /* with the next tick */
    *next_deadline_ms = coord_next_deadline(c, now_ms);
    return OMM_OK;
}

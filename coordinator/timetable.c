/* timetable.c - see timetable.h. */
#include "timetable.h"

#include "omm/json.h"

#include <stdio.h>
#include <string.h>

#define TIMETABLE_NEAR_MS 1000u
#define FILE_NAME "timetable.json"
#define FILE_BYTES_MAX 4096u
#define BOOT_FILE "/proc/sys/kernel/random/boot_id"

static uint64_t now_ms(const timetable *t) {
    return t->clock.now_ms(t->clock.ud);
}

static uint64_t wall_ms(const timetable *t) {
    return t->clock.wall_ms(t->clock.ud);
}

static void read_boot(timetable *t) {
    omm_buf text;
    omm_buf_init(&text, sizeof t->boot);
    if (omm_file_read(&text, BOOT_FILE) == OMM_OK)
        (void)snprintf(t->boot, sizeof t->boot, "%.*s", (int)strcspn((const char *)text.data, "\n"),
                       (const char *)text.data);
    omm_buf_fini(&text);
}

/* ---- the file ---- */

/* Time since the file was written. */
static uint64_t gap_ms(const timetable *t, const char *boot, uint64_t then_ms, uint64_t then_wall) {
    const uint64_t now = now_ms(t), wall = wall_ms(t);
    if (t->boot[0] && strcmp(boot, t->boot) == 0 && now >= then_ms) return now - then_ms;
    return wall >= then_wall && wall - then_wall <= TIMETABLE_GAP_MS ? wall - then_wall : 0;
}

typedef struct kept {
    json_int_t now, wall, round, stage, stage_ms, opened_ms, slot;
    const char *boot;
} kept;

static bool unpack(kept *k, json_t *root) {
    json_int_t version = 0;
    return json_unpack(root, "{s:I,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I!}", "schema_version", &version,
                       "boot", &k->boot, "now_ms", &k->now, "wall_ms", &k->wall, "round", &k->round,
                       "stage", &k->stage, "stage_ms", &k->stage_ms, "opened_ms", &k->opened_ms,
                       "slot", &k->slot) == 0 &&
           version == 1 && k->now >= 0 && k->wall >= 0 && k->round >= 0 && k->round < UINT32_MAX &&
           k->stage >= 0 && k->stage < UINT32_MAX && k->stage_ms >= 0 && k->opened_ms >= -1;
}

static void take(timetable *t, const kept *k) {
    const uint64_t now = now_ms(t);
    const uint64_t gap = gap_ms(t, k->boot, (uint64_t)k->now, (uint64_t)k->wall);
    t->round = (uint32_t)k->round;
    t->stage = (uint32_t)k->stage;
    t->stage_since_ms = now - gap - (uint64_t)k->stage_ms;
    t->has_stage = true;
    t->has_opened = k->opened_ms >= 0;
    if (t->has_opened) t->opened_at_ms = now - gap - (uint64_t)k->opened_ms;
    t->slot = k->slot;
}

static void read_file(timetable *t) {
    omm_buf text;
    kept k;
    omm_buf_init(&text, FILE_BYTES_MAX);
    json_t *root = NULL;
    if (omm_file_exists(t->path) && omm_file_read(&text, t->path) == OMM_OK)
        root = json_loadb((const char *)text.data, text.size, JSON_REJECT_DUPLICATES, NULL);
    if (root && unpack(&k, root)) take(t, &k);
    json_decref(root);
    omm_buf_fini(&text);
}

static omm_err write_file(timetable *t) {
    const uint64_t now = now_ms(t);
    json_t *root = json_pack("{s:i,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "schema_version", 1, "boot",
                             t->boot, "now_ms", (json_int_t)now, "wall_ms", (json_int_t)wall_ms(t),
                             "round", (json_int_t)t->round, "stage", (json_int_t)t->stage,
                             "stage_ms", (json_int_t)(now - t->stage_since_ms), "opened_ms",
                             t->has_opened ? (json_int_t)(now - t->opened_at_ms) : (json_int_t)-1,
                             "slot", (json_int_t)t->slot);
    omm_buf text;
    omm_buf_init(&text, FILE_BYTES_MAX);
    omm_err err = root ? omm_json_write(&text, root) : omm_raise(OMM_ERR_NOMEM, "timetable");
    json_decref(root);
    if (err == OMM_OK) err = omm_file_write(t->path, omm_buf_view(&text), 0600);
    omm_buf_fini(&text);
    t->kept_ms = now;
    return err;
}

/* ---- what it is for ---- */

/* Parts of the UTC day that begin at at_ms, every_ms long. */
static int64_t slot_of(const timetable *t) {
    return (int64_t)((wall_ms(t) + TIMETABLE_DAY_MS - t->at_ms) / t->every_ms);
}

omm_err timetable_open(timetable *t, const char *state_dir, omm_clock clock, uint64_t every_ms,
                       bool has_at, uint64_t at_ms, const char *boot) {
    *t = (timetable){
        .clock = clock, .every_ms = every_ms, .has_at = has_at, .at_ms = at_ms, .slot = -1};
    if (has_at && every_ms == 0) t->every_ms = TIMETABLE_DAY_MS;
    OMM_TRY(omm_path_join(t->path, state_dir, FILE_NAME));
    if (boot)
        (void)snprintf(t->boot, sizeof t->boot, "%s", boot);
    else
        read_boot(t);
    read_file(t);
    if (t->has_at && t->slot < 0)
        t->slot = slot_of(t); /* the first round waits for its time, too */
    return OMM_OK;
}

bool timetable_stage_ms(uint64_t *out, const timetable *t, uint32_t round, uint32_t stage) {
    if (!t->has_stage || t->round != round || t->stage != stage) return false;
    *out = now_ms(t) - t->stage_since_ms;
    return true;
}

omm_err timetable_note(timetable *t, uint32_t round, uint32_t stage, uint64_t stage_ms) {
    const uint64_t now = now_ms(t);
    const uint64_t was_ms = now - t->stage_since_ms; /* the two clock readings are not one */
    const bool is_near = was_ms - stage_ms + TIMETABLE_NEAR_MS <= 2 * (uint64_t)TIMETABLE_NEAR_MS;
    const bool is_new = !t->has_stage || t->round != round || t->stage != stage || !is_near;
    t->has_stage = true;
    t->round = round;
    t->stage = stage;
    if (is_new) t->stage_since_ms = now - stage_ms;
    return is_new || now - t->kept_ms >= TIMETABLE_KEEP_MS ? write_file(t) : OMM_OK;
}

void timetable_opened(timetable *t) {
    t->has_opened = true;
    t->opened_at_ms = now_ms(t);
    if (t->has_at) t->slot = slot_of(t);
}

void timetable_begun(timetable *t, uint32_t round, uint32_t opened) {
    const bool is_kept = t->has_stage && t->round == round && t->stage >= opened;
    if (!is_kept) timetable_opened(t);
}

bool timetable_is_due(timetable *t) {
    if (t->every_ms == 0) return true;
    const uint64_t passed = now_ms(t) - t->opened_at_ms;
    if (!t->has_at) return !t->has_opened || passed >= t->every_ms;
    return slot_of(t) != t->slot && (!t->has_opened || passed >= t->every_ms / 2);
}

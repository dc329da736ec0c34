/* Goal: after a power cut at any moment the audit log opens, its chain holds, and every entry that was said to be on disk is in it.
 * Method: a log is written on a disk that writes down every operation, with durable entries among others; for a cut after every
 * one of these, whatever may be left is made, opened, checked with the last head that was promised, and gone on with.
 */
#include "disk.h"

#include "omm/audit_log.h"
#include "omm/file.h"
#include "omm_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 24, SEEDS = 4 };

typedef struct promise {
    uint64_t after, entries;
    omm_digest head;
} promise;
static promise s_promises[ENTRIES];
static uint32_t s_promise_count;
static char s_at[64];

static void say_at(void) {
    if (s_at[0]) fprintf(stderr, "failed: %s\n", s_at);
}

static omm_audit_log *open_log(char path[OMM_PATH_MAX], const char *dir) {
    char state[OMM_PATH_MAX];
    omm_audit_log *log = NULL;
    CHECK_OK(omm_path_join(state, dir, "state"));
    CHECK_OK(omm_dir_make(state));
    CHECK_OK(omm_path_join(path, state, "audit.jsonl"));
    CHECK_OK(omm_audit_log_open(&log, path, omm_clock_system(), NULL, NULL));
    return log;
}

/* Longer ones too: over a piece of the disk's. */
static void put(omm_audit_log *log, uint32_t i, bool durable) {
    char text[1500];
    memset(text, 'a' + (int)(i % 26), sizeof text);
    text[i % 4 == 1 ? sizeof text - 1 : 20 + i] = '\0';
    json_t *fields = json_object();
    CHECK_OK(omm_json_set_str(fields, "text", text));
    CHECK_OK(omm_audit_log_put(log, "said", fields, durable));
}

static void record(void) {
    char dir[64], path[OMM_PATH_MAX];
    disk_folder(dir);
    disk_watch(dir);
    omm_audit_log *log = open_log(path, dir);
    for (uint32_t i = 0; i < ENTRIES; i++) {
        put(log, i, i % 3 != 1);
        if (i % 3 == 1) continue;
        promise *p = &s_promises[s_promise_count++];
        p->entries = omm_audit_log_head(&p->head, log);
        p->after = disk_count();
    }
    omm_audit_log_close(log);
    disk_rest();
    CHECK_OK(omm_dir_remove(dir));
}

static bool loses(void *ud, const char *name) {
    (void)ud;
    return strcmp(name, "state") == 0;
}

static void check_log(const char *path, const promise *p) {
    omm_audit_check is;
    CHECK_OK(omm_audit_log_verify(&is, path, p ? &p->head : NULL));
    CHECK(is.has_known);
    CHECK(!p || is.entries >= p->entries);
}

static void cut(uint64_t count, disk_loss loss, uint64_t seed) {
    char dir[64], path[OMM_PATH_MAX];
    const promise *last = NULL;
    (void)snprintf(s_at, sizeof s_at, "cut after %u, loss %d, seed %u", (unsigned)count, (int)loss,
                   (unsigned)seed);
    for (uint32_t i = 0; i < s_promise_count; i++)
        if (s_promises[i].after <= count) last = &s_promises[i];
    disk_folder(dir);
    disk_rebuild(dir, count, loss, seed, loses, NULL);
    omm_audit_log *log = open_log(path, dir);
    check_log(path, last);
    put(log, 1, true);
    omm_audit_log_close(log);
    check_log(path, last);
    CHECK_OK(omm_dir_remove(dir));
}

int main(void) {
    (void)atexit(say_at);
    record();
    const uint64_t count = disk_count();
    CHECK(count > ENTRIES && s_promise_count == ENTRIES - ENTRIES / 3);
    uint64_t cuts = 0;
    for (uint64_t i = 0; i <= count; i++)
        for (int loss = DISK_LOSE_NOTHING; loss <= DISK_LOSE_SOME; loss++)
            for (uint64_t seed = 0; seed < (loss == DISK_LOSE_SOME ? SEEDS : 1); seed++, cuts++)
                cut(i, (disk_loss)loss, seed);
    printf("%u operations, %u cuts, %u promises\n", (unsigned)count, (unsigned)cuts,
           (unsigned)s_promise_count);
    s_at[0] = '\0';
    return 0;
}

/* Goal: what judging, sealing and asking for a seal hold in memory does not grow with the submissions of a run.
 * Method: two runs of the same nodes, the longer one of many rounds more; of each bundle the most that is held, over
 * what was held before, counted (base/mem.c, and jansson's memory beside it).
 */
#include "federation.h"

#include "omm/judge.h"
#include "omm/mem.h"
#include "omm/mem_count.h"
#include "omm_test.h"

#include <jansson.h>
#include <malloc.h>
#include <stdlib.h>

enum { NODES = 24, FEW = 6, MANY = 30 };
/* What is kept of a round (its line without lists, its place, its offer: 400 bytes), and the name of a payload while a
 * folder is walked, of which some thousands are; in arenas that double. */
enum { ROUND_BYTES = 1 << 10, NAME_BYTES = 2 * 88, FIXED = 16 << 10 };

static size_t s_json, s_json_peak;

static void *json_take(size_t size) {
    void *ptr = malloc(size);
    CHECK(ptr != NULL);
    s_json += malloc_usable_size(ptr);
    if (s_json > s_json_peak) s_json_peak = s_json;
    return ptr;
}

static void json_give(void *ptr) {
    if (ptr) s_json -= malloc_usable_size(ptr);
    free(ptr);
}

typedef struct peaks {
    size_t judge, seal, sealed;
} peaks;

static size_t s_before;

static void begin(void) {
    omm_mem_peak_restart();
    s_json_peak = s_json;
    s_before = omm_mem_bytes() + s_json;
}

/* At most: the two may not have been there at once. */
static size_t most(void) {
    return omm_mem_peak() + s_json_peak - s_before;
}

/* An empty folder, in memory where there is such a place. */
static void make_folder(char dir[64]) {
    (void)snprintf(dir, 64, "/dev/shm/omm_sealing_XXXXXX");
    if (mkdtemp(dir)) return;
    (void)snprintf(dir, 64, "/tmp/omm_sealing_XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
}

static peaks peaks_of(uint32_t rounds) {
    fed f;
    char folder[64];
    peaks out;
    char dir[OMM_PATH_MAX];
    bool sealed = false;
    omm_judgement judgement;
    omm_digest digest;
    fed_options o = fed_options_default();
    o.nodes = NODES;
    o.rounds = rounds;
    o.on_disk = true;
    o.dir = folder;
    make_folder(folder);
    fed_open(&f, &o);
    fed_run(&f);
    (void)fed_path(&f, dir, "bundle");
    begin();
    CHECK_OK(omm_bundle_judge(&judgement, dir, NULL, "0000000", NULL));
    out.judge = most();
    omm_judgement_fini(&judgement);
    begin();
    const omm_digest run_digest = fed_seal(f.bundle, 0);
    out.seal = most();
    begin();
    CHECK_OK(omm_bundle_sealed(&sealed, &digest, dir, f.run.run_id));
    out.sealed = most();
    CHECK(sealed && omm_digest_equal(&digest, &run_digest));
    fed_verify(&f, dir);
    fed_close(&f);
    return out;
}

static void check_growth(const char *what, size_t few, size_t many, size_t bytes_each) {
    const size_t submissions = (size_t)NODES * (MANY - FEW);
    printf("%s: %zu bytes after %d rounds, %zu after %d: %.1f for each submission more\n", what,
           few, FEW, many, MANY, ((double)many - (double)few) / (double)submissions);
    CHECK(many <= few + (size_t)(MANY - FEW) * ROUND_BYTES + submissions * bytes_each + FIXED);
}

int main(void) {
    json_set_alloc_funcs(json_take, json_give); /* no value is there yet */
    const peaks few = peaks_of(FEW);
    const peaks many = peaks_of(MANY);
    check_growth("judge", few.judge, many.judge, 0);
    check_growth("seal", few.seal, many.seal, NAME_BYTES);
    check_growth("sealed", few.sealed, many.sealed, 0);
    CHECK(many.sealed <= few.sealed + FIXED / 16);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

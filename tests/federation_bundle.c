/* federation_bundle.c - what a whole run has left: the digest of its evidence, sealed and verified. */
#include "federation.h"
#include "federation_fakes.h"

#include "omm/run_config.h"
#include "omm/verify.h"
#include "omm_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct walk {
    const fed *f;
    omm_hasher hasher;
} walk;

static omm_err hash_file(void *ud, const char *relative) {
    walk *w = ud;
    char dir[OMM_PATH_MAX];
    char path[OMM_PATH_MAX];
    omm_digest digest;
    OMM_TRY(omm_path_join(path, fed_path(w->f, dir, "bundle"), relative));
    OMM_TRY(omm_hash_file(&digest, path));
    if (getenv("FED_VERBOSE")) {
        char hex[OMM_DIGEST_HEX_SIZE];
        omm_digest_hex(hex, &digest);
        fprintf(stderr, "%.16s %s\n", hex, relative);
    }
    omm_hasher_update(&w->hasher, omm_bytes_of(relative, strlen(relative) + 1));
    omm_hasher_update(&w->hasher, omm_bytes_of(digest.b, sizeof digest.b));
    return OMM_OK;
}

omm_digest fed_bundle_digest(const fed *f) {
    walk w = {.f = f};
    char path[OMM_PATH_MAX];
    omm_hasher_init(&w.hasher);
    CHECK_OK(omm_dir_walk(fed_path(f, path, "bundle"), hash_file, &w));
    return omm_hasher_final(&w.hasher);
}

bool fed_bundle_has(const fed *f, const char *path) {
    return omm_bundle_has(f->bundle, path);
}

typedef struct given {
    const fed *f;
    const float *values;
} given;

static omm_err copy_given(void *ud, float *values) {
    const given *g = ud;
    memcpy(values, g->values, g->f->run.layout.value_count * sizeof *values);
    return OMM_OK;
}

static omm_err render_verified(void *ud, omm_buf *out, const omm_run_record *run,
                               const float *values) {
    (void)run;
    given from = {ud, values};
    const omm_coord_values read = {copy_given, &from};
    return fed_render(ud, out, &read);
}

static omm_key bundle_key(void) {
    omm_key key;
    omm_seed seed = omm_seed_from_u64(7);
    omm_run_bundle_key(&key, &seed);
    return key;
}

omm_err fed_try_to_seal(omm_digest *run_digest, omm_bundle *bundle, uint64_t wall_ms) {
    omm_key key = bundle_key();
    omm_bundle_seal_options seal = {
        .key = &key, .commit = "0000000", .build = "test", .machine = "test", .wall_ms = wall_ms};
    return omm_bundle_seal(run_digest, NULL, bundle, &seal);
}

omm_digest fed_seal(omm_bundle *bundle, uint64_t wall_ms) {
    omm_digest digest;
    CHECK_OK(fed_try_to_seal(&digest, bundle, wall_ms));
    return digest;
}

static const fed *s_verified; /* a reader of scenarios is told nothing else */

/* Its scenario.yaml says nothing; this is what a true one would say. */
static omm_err read_scenario(omm_scenario_facts *out, const char **about, omm_bytes text,
                             const omm_run_record *run) {
    (void)about;
    (void)text;
    *out = (omm_scenario_facts){.seed = run->seed,
                                .steps = FED_STEPS,
                                .accept_min = s_verified->o.accept_min,
                                .deadline_ms = s_verified->o.deadline_ms};
    return OMM_OK;
}

void fed_verify(fed *f, const char *bundle_dir) {
    omm_key key = bundle_key();
    omm_verify_options options = {.trusted = &key.public_key,
                                  .render = render_verified,
                                  .render_ud = f,
                                  .read_scenario = read_scenario};
    s_verified = f;
    omm_verify_report report;
    CHECK_OK(omm_bundle_verify(&report, bundle_dir, &options));
    for (size_t i = 0; i < report.failure_count; i++)
        fprintf(stderr, "%s: %s: %s\n", report.failures[i].check, report.failures[i].path,
                report.failures[i].reason);
    CHECK(report.intact);
    CHECK(report.pinned);
    omm_verify_report_fini(&report);
}

void fed_seal_and_verify(fed *f) {
    char path[OMM_PATH_MAX];
    (void)fed_seal(f->bundle, 0);
    fed_verify(f, fed_path(f, path, "bundle"));
}

omm_digest fed_digest_of_run(const fed_options *options, uint64_t *messages, uint32_t *undone) {
    fed f;
    fed_open(&f, options);
    fed_run(&f);
    CHECK(omm_coord_is_done(f.coord));
    if (!options->restart_coordinator && !options->batched) CHECK(omm_coord_all_told(f.coord));
    omm_digest digest = fed_bundle_digest(&f);
    if (messages) *messages = f.messages;
    if (undone) *undone += f.undone;
    fed_close(&f);
    return digest;
}

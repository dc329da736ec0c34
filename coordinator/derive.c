/* derive.c - the run seed, and the keys, ids and nonces that follow from it. */
#include "omm/run_config.h"

#include "omm/file.h"

#include <string.h>

static omm_err read_seed(omm_seed *out, const char *path) {
    omm_buf bytes;
    omm_buf_init(&bytes, sizeof out->b);
    omm_err err = omm_file_read(&bytes, path);
    if (err == OMM_OK && bytes.size != sizeof out->b)
        err = omm_raise(OMM_ERR_FORMAT, "%s: %zu bytes, expected %zu", path, bytes.size,
                        sizeof out->b);
    if (err == OMM_OK) memcpy(out->b, bytes.data, sizeof out->b);
    omm_buf_fini(&bytes);
    return err;
}

omm_err omm_run_seed_keep(omm_seed *out, const char *state_dir) {
    char path[OMM_PATH_MAX];
    OMM_TRY(omm_dir_make_private(state_dir));
    OMM_TRY(omm_path_join(path, state_dir, "run_seed"));
    if (omm_file_exists(path)) return read_seed(out, path);
    *out = omm_seed_random();
    return omm_file_write(path, omm_bytes_of(out->b, sizeof out->b), 0600);
}

static void derived_key(omm_key *out, const omm_seed *run_seed, omm_purpose purpose,
                        const char *name) {
    omm_seed seed = omm_seed_derive(run_seed, purpose, omm_bytes_str(name));
    omm_key_from_seed(out, &seed);
}

void omm_run_node_key(omm_key *out, const omm_seed *run_seed, const char *name) {
    derived_key(out, run_seed, OMM_PURPOSE_NODE_KEY, name);
}

void omm_run_coordinator_key(omm_key *out, const omm_seed *run_seed) {
    derived_key(out, run_seed, OMM_PURPOSE_COORD_KEY, "coordinator");
}

void omm_run_bundle_key(omm_key *out, const omm_seed *run_seed) {
    derived_key(out, run_seed, OMM_PURPOSE_BUNDLE_KEY, "bundle");
}

void omm_run_commit_key(uint8_t out[32], const omm_seed *run_seed, const char *name) {
    omm_seed key = omm_seed_derive(run_seed, OMM_PURPOSE_COMMIT_KEY, omm_bytes_str(name));
    memcpy(out, key.b, sizeof key.b);
}

void omm_run_id(char out[OMM_RUN_ID_SIZE], const omm_seed *run_seed, omm_bytes scenario_yaml) {
    omm_digest scenario = omm_hash(scenario_yaml);
    omm_hasher h;
    omm_hasher_init(&h);
    omm_hasher_update(&h, omm_bytes_str("omm.run"));
    omm_hasher_update(&h, omm_bytes_of(run_seed->b, sizeof run_seed->b));
    omm_hasher_update(&h, omm_bytes_of(scenario.b, sizeof scenario.b));
    omm_digest digest = omm_hasher_final(&h);
    omm_hex(out, omm_bytes_of(digest.b, (OMM_RUN_ID_SIZE - 1) / 2));
}

void omm_run_nonce(uint8_t out[32], const omm_seed *run_seed, uint32_t round) {
    uint8_t context[4];
    omm_put_u32(context, round);
    omm_seed nonce =
        omm_seed_derive(run_seed, OMM_PURPOSE_NONCE, omm_bytes_of(context, sizeof context));
    memcpy(out, nonce.b, sizeof nonce.b);
}

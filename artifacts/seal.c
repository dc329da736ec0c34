/* Sealing: judge, write the verdicts, list and hash every file, sign the list. */
#include "internal.h"
#include "omm/bundle.h"
#include "omm/clock.h"
#include "omm/crash.h"
#include "omm/judge.h"
#include "omm/mem.h"

#include <stdio.h>
#include <string.h>

typedef struct listing {
    const char *dir;
    omm_arena *arena;
    manifest_file *files;
    size_t count, capacity;
} listing;

static omm_err grow_listing(listing *l) {
    size_t capacity = l->capacity ? 2 * l->capacity : 64;
    manifest_file *files = omm_grow(l->files, l->capacity, capacity, sizeof *files);
    if (!files) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu files", capacity);
    l->files = files;
    l->capacity = capacity;
    return OMM_OK;
}

static omm_err list_file(void *ud, const char *path) {
    listing *l = ud;
    char full[OMM_PATH_MAX];
    manifest_file f = {.path = NULL};
    uint64_t bytes_max = 0;
    f.class = omm_bundle_classify(&bytes_max, path);
    if (f.class == OMM_BUNDLE_MANIFEST) return OMM_OK;
    if (f.class == OMM_BUNDLE_UNKNOWN)
        return omm_raise(OMM_ERR_CONFIG, "%s does not belong into a bundle", path);
    if (l->count == OMM_BUNDLE_FILES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "more than %u files", OMM_BUNDLE_FILES_MAX);
    if (l->count == l->capacity) OMM_TRY(grow_listing(l));
    OMM_TRY(omm_path_join(full, l->dir, path));
    OMM_TRY(omm_file_size(&f.bytes, full));
    if (f.bytes > bytes_max) return omm_raise(OMM_ERR_TOO_BIG, "%s is over its limit", path);
    OMM_TRY(omm_sha256_file(&f.sha256, full));
    f.path = omm_arena_strdup(l->arena, path);
    if (!f.path) return omm_raise(OMM_ERR_NOMEM, "no memory for a path");
    l->files[l->count++] = f;
    return OMM_OK;
}

static omm_err put_verdicts(omm_bundle *bundle, const omm_judgement *j) {
    OMM_TRY(omm_bundle_replace(bundle, "gates.json", omm_buf_view(&j->gates_json)));
    OMM_TRY(omm_bundle_replace(bundle, "measured/gates.json", omm_buf_view(&j->measured_json)));
    return omm_bundle_replace(bundle, "junit.xml", omm_buf_view(&j->junit));
}

static void may_crash(const omm_bundle_seal_options *o, const char *stage) {
    omm_crash_point(o->state_dir, o->crash_at, stage);
}

/* The signature goes first: a bundle with a manifest is complete, whatever happens in between. */
static omm_err write_manifest(const char *dir, const manifest *m,
                              const omm_bundle_seal_options *options) {
    char path[OMM_PATH_MAX];
    char comment[128];
    omm_buf text;
    omm_buf sig;
    omm_buf_init(&text, BUNDLE_MANIFEST_BYTES_MAX);
    omm_buf_init(&sig, 4096);
    snprintf(comment, sizeof comment, "openmeshmind bundle of run %s", m->run_id);
    omm_err err = manifest_write(&text, m);
    if (err == OMM_OK) err = omm_minisign_sign(&sig, options->key, omm_buf_view(&text), comment);
    if (err == OMM_OK) err = omm_path_join(path, dir, "manifest.json.minisig");
    if (err == OMM_OK) err = omm_file_write(path, omm_buf_view(&sig), 0644);
    if (err == OMM_OK) may_crash(options, "seal_signed");
    if (err == OMM_OK) err = omm_path_join(path, dir, "manifest.json");
    if (err == OMM_OK) err = omm_file_write(path, omm_buf_view(&text), 0644);
    if (err == OMM_OK) may_crash(options, "after_seal");
    omm_buf_fini(&sig);
    omm_buf_fini(&text);
    return err;
}

/* Run id from run.json, scenario digest from the file. */
static omm_err identify(manifest *m, const char *dir, omm_arena *arena) {
    omm_buf text;
    omm_run_record run;
    char path[OMM_PATH_MAX];
    omm_buf_init(&text, 64u << 20);
    omm_err err = bundle_read(&text, dir, "run.json");
    if (err == OMM_OK) err = omm_run_record_parse(&run, arena, omm_buf_view(&text));
    if (err == OMM_OK) memcpy(m->run_id, run.run_id, sizeof m->run_id);
    if (err == OMM_OK) err = omm_path_join(path, dir, "scenario.yaml");
    if (err == OMM_OK) err = omm_hash_file(&m->scenario_digest, path);
    omm_buf_fini(&text);
    return err;
}

omm_err bundle_list_and_sign(omm_digest *run_digest, const char *dir,
                             const omm_bundle_seal_options *options) {
    omm_arena arena;
    manifest m;
    char created[25];
    char key_text[OMM_MINISIGN_PUBLIC_SIZE];
    omm_arena_init(&arena, BUNDLE_ARENA_BYTES_MAX);
    listing l = {dir, &arena, NULL, 0, 0};
    memset(&m, 0, sizeof m);
    omm_time_iso(created, options->wall_ms);
    omm_minisign_public(key_text, &options->key->public_key);
    m.commit = options->commit;
    m.build = options->build;
    m.machine = options->machine;
    m.created = created;
    m.bundle_key = key_text;
    omm_err err = identify(&m, dir, &arena);
    if (err == OMM_OK) err = omm_dir_walk(dir, list_file, &l);
    if (err == OMM_OK) {
        m.files = l.files;
        m.file_count = l.count;
        m.run_digest = manifest_run_digest(l.files, l.count);
        err = write_manifest(dir, &m, options);
    }
    if (err == OMM_OK) *run_digest = m.run_digest;
    omm_free(l.files);
    omm_arena_fini(&arena);
    return err;
}

omm_err omm_bundle_unseal(omm_bundle *bundle) {
    char path[OMM_PATH_MAX];
    OMM_TRY(omm_path_join(path, omm_bundle_dir(bundle), "manifest.json"));
    if (!omm_file_exists(path)) return OMM_OK;
    OMM_TRY(omm_file_remove(path));
    return omm_dir_sync_of(path);
}

omm_err omm_bundle_seal(omm_digest *run_digest, omm_judgement *judgement, omm_bundle *bundle,
                        const omm_bundle_seal_options *options) {
    omm_judgement j;
    const char *dir = omm_bundle_dir(bundle);
    OMM_TRY(omm_bundle_unseal(bundle));
    OMM_TRY(omm_bundle_judge(&j, dir, NULL, options->commit));
    omm_err err = put_verdicts(bundle, &j);
    if (err == OMM_OK) may_crash(options, "mid_seal");
    if (err == OMM_OK) err = bundle_list_and_sign(run_digest, dir, options);
    if (err == OMM_OK && judgement)
        *judgement = j;
    else
        omm_judgement_fini(&j);
    return err;
}

omm_err omm_bundle_sealed(bool *sealed, omm_digest *run_digest, const char *dir,
                          const char *run_id) {
    char path[OMM_PATH_MAX];
    omm_arena arena;
    omm_buf text;
    manifest m;
    OMM_TRY(omm_path_join(path, dir, "manifest.json"));
    *sealed = omm_file_exists(path);
    if (!*sealed) return OMM_OK;
    omm_arena_init(&arena, BUNDLE_ARENA_BYTES_MAX);
    omm_buf_init(&text, OMM_BUNDLE_FILE_BYTES_MAX);
    omm_err err = bundle_read(&text, dir, "manifest.json");
    if (err == OMM_OK) err = manifest_parse(&m, &arena, omm_buf_view(&text));
    if (err == OMM_OK && strcmp(m.run_id, run_id) != 0)
        err = omm_raise(OMM_ERR_MISMATCH, "%s is sealed, and of run %s; this one is %s", dir,
                        m.run_id, run_id);
    if (err == OMM_OK) *run_digest = m.run_digest;
    omm_buf_fini(&text);
    omm_arena_fini(&arena);
    return err;
}

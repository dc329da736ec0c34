/* Sealing: judge, write the verdicts, list and hash every file, sign the list. */
#include "internal.h"
#include "omm/bundle.h"
#include "omm/clock.h"
#include "omm/crash.h"
#include "omm/judge.h"
#include "omm/mem.h"

#include <stdio.h>
#include <string.h>

#define PIECE_BYTES 16384u

/* The manifest, which goes to its file while the folder is walked. */
typedef struct listing {
    const char *dir;
    omm_file_out file; /* has no name of its own before the end */
    omm_buf piece;     /* of its text, not yet written */
    omm_hasher text;   /* of all pieces that were, for the signature */
    omm_hasher run_digest;
    uint64_t bytes; /* of the text */
    size_t count;   /* of files */
} listing;

static omm_err write_piece(listing *l) {
    const omm_bytes piece = omm_buf_view(&l->piece);
    l->bytes += piece.size;
    if (l->bytes > BUNDLE_MANIFEST_BYTES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "manifest.json would have over %u bytes",
                         BUNDLE_MANIFEST_BYTES_MAX);
    OMM_TRY(omm_file_out_write(&l->file, piece));
    omm_hasher_update(&l->text, piece);
    omm_buf_clear(&l->piece);
    return OMM_OK;
}

/* Where no file can be without a name, its temporary one lies in the folder that is walked. */
static bool is_its_own(const listing *l, const char *full) {
    return !l->file.nameless && strcmp(full, l->file.temporary) == 0;
}

static omm_err list_file(void *ud, const char *path) {
    listing *l = ud;
    char full[OMM_PATH_MAX];
    manifest_file f = {.path = path};
    uint64_t bytes_max = 0;
    f.class = omm_bundle_classify(&bytes_max, path);
    if (f.class == OMM_BUNDLE_MANIFEST) return OMM_OK;
    OMM_TRY(omm_path_join(full, l->dir, path));
    if (is_its_own(l, full)) return OMM_OK;
    if (f.class == OMM_BUNDLE_UNKNOWN)
        return omm_raise(OMM_ERR_CONFIG, "%s does not belong into a bundle", path);
    if (l->count == OMM_BUNDLE_FILES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "more than %u files", OMM_BUNDLE_FILES_MAX);
    OMM_TRY(omm_file_size(&f.bytes, full));
    if (f.bytes > bytes_max) return omm_raise(OMM_ERR_TOO_BIG, "%s is over its limit", path);
    OMM_TRY(omm_sha256_file(&f.sha256, full));
    manifest_add_to_run_digest(&l->run_digest, &f);
    OMM_TRY(manifest_put_file(&l->piece, &f, l->count++));
    return l->piece.size < PIECE_BYTES ? OMM_OK : write_piece(l);
}

/* All of it, written and not yet in place; m->run_digest is what came out. */
static omm_err write_list(listing *l, manifest *m) {
    OMM_TRY(manifest_put_begin(&l->piece, m));
    OMM_TRY(omm_dir_walk(l->dir, list_file, l));
    m->run_digest = omm_sha256er_final(&l->run_digest);
    OMM_TRY(manifest_put_end(&l->piece, m, l->count));
    return write_piece(l);
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
static omm_err sign_list(listing *l, const manifest *m, const omm_bundle_seal_options *options) {
    char path[OMM_PATH_MAX];
    char comment[128];
    omm_buf sig;
    omm_buf_init(&sig, 4096);
    snprintf(comment, sizeof comment, "openmeshmind bundle of run %s", m->run_id);
    omm_err err = omm_minisign_finish(&sig, options->key, &l->text, comment);
    if (err == OMM_OK) err = omm_path_join(path, l->dir, "manifest.json.minisig");
    if (err == OMM_OK) err = omm_file_write(path, omm_buf_view(&sig), 0644);
    if (err == OMM_OK) may_crash(options, "seal_signed");
    if (err == OMM_OK) err = omm_file_out_finish(&l->file, true);
    if (err == OMM_OK) may_crash(options, "after_seal");
    omm_buf_fini(&sig);
    return err;
}

static omm_err write_manifest(manifest *m, const char *dir,
                              const omm_bundle_seal_options *options) {
    char path[OMM_PATH_MAX];
    listing l = {.dir = dir};
    OMM_TRY(omm_path_join(path, dir, "manifest.json"));
    omm_buf_init(&l.piece, BUNDLE_MANIFEST_BYTES_MAX);
    omm_minisign_begin(&l.text);
    omm_sha256er_init(&l.run_digest);
    omm_err err = omm_file_out_open(&l.file, path, 0644);
    if (err == OMM_OK) err = write_list(&l, m);
    if (err == OMM_OK) err = sign_list(&l, m, options);
    omm_file_out_close(&l.file);
    omm_buf_fini(&l.piece);
    return err;
}

/* Run id from run.json, scenario digest from the file. */
static omm_err identify(manifest *m, const char *dir, omm_arena *arena) {
    omm_buf text;
    omm_run_record run;
    char path[OMM_PATH_MAX];
    omm_buf_init(&text, 64u << 20);
    omm_err err = omm_bundle_file_read(&text, dir, "run.json");
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
    memset(&m, 0, sizeof m);
    omm_time_iso(created, options->wall_ms);
    omm_minisign_public(key_text, &options->key->public_key);
    m.commit = options->commit;
    m.build = options->build;
    m.machine = options->machine;
    m.created = created;
    m.bundle_key = key_text;
    omm_err err = identify(&m, dir, &arena);
    if (err == OMM_OK) err = write_manifest(&m, dir, options);
    if (err == OMM_OK) *run_digest = m.run_digest;
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
    OMM_TRY(omm_bundle_judge(&j, dir, NULL, options->commit, NULL));
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
    manifest m;
    OMM_TRY(omm_path_join(path, dir, "manifest.json"));
    *sealed = omm_file_exists(path);
    if (!*sealed) return OMM_OK;
    omm_arena_init(&arena, BUNDLE_ARENA_BYTES_MAX);
    omm_err err = manifest_read_head(&m, &arena, dir);
    if (err == OMM_OK && strcmp(m.run_id, run_id) != 0)
        err = omm_raise(OMM_ERR_MISMATCH, "%s is sealed, and of run %s; this one is %s", dir,
                        m.run_id, run_id);
    if (err == OMM_OK) *run_digest = m.run_digest;
    omm_arena_fini(&arena);
    return err;
}

/* internal.h - what the files of artifacts/ share. */
#ifndef ARTIFACTS_INTERNAL_H
#define ARTIFACTS_INTERNAL_H

#include "omm/bundle.h"
#include "omm/evidence.h"
#include "omm/file.h"
#include "omm/judge.h"

#define BUNDLE_ARENA_BYTES_MAX (1u << 30) /* records of one bundle in memory */

/* "D", "V", "M". */
const char *bundle_class_letter(omm_bundle_class class);

/* Append a file of the bundle, limited by its kind.  Errors: CONFIG (not a path of the table),
 * NOT_FOUND, IO, TOO_BIG, NOMEM. */
OMM_CHECKED omm_err bundle_read(omm_buf *out, const char *dir, const char *path);

/* --- manifest.json --- */

typedef struct manifest_file {
    const char *path;
    omm_bundle_class class;
    uint64_t bytes;
    omm_digest sha256;
} manifest_file;

typedef struct manifest {
    char run_id[OMM_RUN_ID_SIZE];
    omm_digest run_digest, scenario_digest;
    const char *commit, *build, *machine, *created;
    const char *bundle_key; /* minisign text */
    manifest_file *files;   /* ascending by path */
    size_t file_count;
} manifest;

OMM_CHECKED omm_err manifest_write(omm_buf *out, const manifest *m);
/* Strict, but trusts nothing: classes must be those of the paths, paths of the table, ascending. */
OMM_CHECKED omm_err manifest_parse(manifest *out, omm_arena *arena, omm_bytes text);
/* SHA-256 over the D files. */
omm_digest manifest_run_digest(const manifest_file *files, size_t count);

/* --- evidence in memory --- */

typedef struct evidence_rows {
    omm_err err; /* OK: `rows` is filled */
    char why[200];
    omm_eval_record *rows;
    size_t count;
} evidence_rows;

typedef struct evidence {
    const char *dir; /* borrowed */
    omm_arena arena;
    omm_err run_err; /* OK: `run` is filled */
    char run_why[200];
    omm_run_record run;
    omm_err rounds_err;
    char rounds_why[200];
    omm_round_record *rounds;
    omm_digest *line_digests; /* (round_count) BLAKE2b of the line with its newline */
    size_t round_count;
    omm_err ledger_err;
    char ledger_why[200];
    omm_ledger_record *ledger;
    size_t ledger_count;
    evidence_rows before, after, control;
} evidence;

/* Read what can be read; what cannot says why.  Errors: NOMEM. */
OMM_CHECKED omm_err evidence_load(evidence *out, const char *dir);
void evidence_fini(evidence *ev);

#endif

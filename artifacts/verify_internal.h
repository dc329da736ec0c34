/* verify_internal.h - what verify.c and verify_files.c share. */
#ifndef ARTIFACTS_VERIFY_INTERNAL_H
#define ARTIFACTS_VERIFY_INTERNAL_H

#include "internal.h"
#include "omm/file.h"
#include "omm/verify.h"

#define FOUND_FILES_MAX OMM_BUNDLE_FILES_MAX
#define REPORT_ARENA_BYTES_MAX (1u << 30)

/* One file as it lies in the folder. */
typedef struct found_file {
    const char *path;
    omm_file_state state;
} found_file;

typedef struct verifier {
    const char *dir;
    const omm_verify_options *options;
    omm_verify_report *report;
    omm_verify_failure *failures; /* report's list, growing */
    size_t failure_capacity;
    const char *check; /* name of the running check */
    audit *a;          /* counts items and failures of the running check */
    omm_arena *arena;  /* the report's */
    found_file *found; /* ascending by path */
    size_t found_count, found_capacity;
    bool safe_to_read; /* every entry is a plain file within its limit, or a folder */
    bool has_more;     /* a file that the manifest does not list, or a larger one than it lists */
    bool is_signed;    /* the manifest, and by the trusted key where there is one */
    bool has_manifest;
    manifest m;
    omm_buf manifest_text;
} verifier;

/* verify_files.c */
void check_files(verifier *v);
void check_signature(verifier *v);
void check_digests(verifier *v);
/* Every file of the chain has been named by a record. */
void check_complete(verifier *v);
/* verify_wire.c: the rows of a measured/wire.json of this run; submissions and offers have been audited. */
void check_wire_rows(verifier *v, const omm_wire_record *wire);
/* Walk the folder.  Errors: NOT_FOUND, IO, NOMEM. */
OMM_CHECKED omm_err verifier_walk(verifier *v);
/* All that was found: names, sizes and times. */
omm_digest verifier_state(const verifier *v);
/* IO where the folder is not what the walk has found: a file that was read twice may have been two. */
OMM_CHECKED omm_err verifier_check_unchanged(const verifier *v);

#endif

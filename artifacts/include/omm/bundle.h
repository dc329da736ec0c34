/* bundle.h - the folder of evidence that a run leaves behind: put files in, seal it, name it.
 *
 *   manifest.json(.minisig)     every file with class, size and SHA-256; outside every digest
 *   D scenario.yaml policy.yaml run.json rounds.jsonl ledger.jsonl gates.json final.gguf close.env
 *   D offers/rNNN.env  submissions/rNNN-NODE.env  receipts/rNNN-NODE.env  payloads/DIGEST.bin
 *   D refused/rNNN-K-REASON.(env|bin)  refused/rNNN-K.receipt.env
 *   D adapters/rNNN.bin  adapters/master-rNNN.f32        NNN = 0 .. rounds: the state before round NNN
 *   D eval/(before|after|control|rounds).jsonl
 *   V virtual/...     M measured/...  junit.xml
 *
 * The class follows from the path, and a path outside this table is refused.  NODE is the first 16
 * hex digits of the node id, DIGEST all 64, K the index in `refused` of the line of rounds.jsonl.
 * run digest = SHA-256 of the lines "path\0sha256hex\n" of the D files, ascending by path.
 *
 * Depends on: base, proto, judge.h.  Threads: one bundle belongs to one thread at a time.
 */
#ifndef OMM_BUNDLE_H
#define OMM_BUNDLE_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/file.h" /* OMM_PATH_MAX */
#include "omm/hash.h"
#include "omm/sign.h"

#include <stdbool.h>
#include <stdint.h>

#define OMM_BUNDLE_SCHEMA_VERSION 1u
#define OMM_BUNDLE_FILES_MAX 1000000u
#define OMM_BUNDLE_FILE_BYTES_MAX (1ull << 31) /* one file; most kinds have a lower limit */
#define OMM_BUNDLE_PATH_MAX 160u               /* relative path with its NUL */

typedef enum omm_bundle_class {
    OMM_BUNDLE_UNKNOWN,       /* not a path of the table */
    OMM_BUNDLE_MANIFEST,      /* manifest.json and its signature */
    OMM_BUNDLE_DETERMINISTIC, /* D: in the run digest */
    OMM_BUNDLE_VIRTUAL,       /* V: virtual time */
    OMM_BUNDLE_MEASURED,      /* M: times, machine, bytes as they passed */
} omm_bundle_class;

/* Class and size limit of a relative path; `bytes_max` may be NULL. */
omm_bundle_class omm_bundle_classify(uint64_t *bytes_max, const char *path);

/* Append a file of the bundle in `dir`, limited by its kind.  Nobody needs to have looked at the folder before: a pipe or a
 * device in place of a file is refused, and holds no reader for ever.  Errors: CONFIG (not a path of the table), FORMAT (no
 * plain file), NOT_FOUND, IO, TOO_BIG, NOMEM. */
OMM_CHECKED omm_err omm_bundle_file_read(omm_buf *out, const char *dir, const char *path);
/* Where it is, to be read by other means, and how many bytes it may have (`bytes_max` may be NULL).  Errors: CONFIG, FORMAT,
 * TOO_BIG (path). */
OMM_CHECKED omm_err omm_bundle_file_find(char full[OMM_PATH_MAX], uint64_t *bytes_max,
                                         const char *dir, const char *path);

/* The paths of the table, so that nobody spells them twice. */
typedef struct omm_bundle_path {
    char text[OMM_BUNDLE_PATH_MAX];
} omm_bundle_path;
omm_bundle_path omm_bundle_path_offer(uint32_t round);
omm_bundle_path omm_bundle_path_submission(uint32_t round, const omm_digest *node);
omm_bundle_path omm_bundle_path_receipt(uint32_t round, const omm_digest *node);
/* Both nodes' files would have these names: eight bytes of an id are not all of it, and two keys whose ids begin alike
 * can be looked for. */
bool omm_bundle_is_same_node(const omm_digest *a, const omm_digest *b);
omm_bundle_path omm_bundle_path_payload(const omm_digest *sent_digest);
/* `reason`: omm_err_name of the refusal.  `is_envelope` false: bytes that are no envelope (.bin). */
omm_bundle_path omm_bundle_path_refused(uint32_t round, uint32_t index, const char *reason,
                                        bool is_envelope);
omm_bundle_path omm_bundle_path_refused_receipt(uint32_t round, uint32_t index);
/* State `number` 0 .. rounds: broadcast payload as sent, and the f32 little-endian master. */
omm_bundle_path omm_bundle_path_adapter(uint32_t number);
omm_bundle_path omm_bundle_path_master(uint32_t number);

typedef struct omm_bundle omm_bundle;

/* Open the folder `dir` for writing; it is made if missing, and taken up where it was left if not.
 * `durable`: fsync every file (services).  Errors: IO, NOMEM, STATE (sealed already). */
OMM_CHECKED omm_err omm_bundle_open(omm_bundle **out, const char *dir, bool durable);
void omm_bundle_close(omm_bundle *bundle); /* NULL is fine; does not seal */
const char *omm_bundle_dir(const omm_bundle *bundle);

/* Write once: the same bytes again are fine, other bytes are MISMATCH.
 * Errors: CONFIG (path not of the table), TOO_BIG, IO (also: the bundle's folder was moved away), NOMEM, MISMATCH, STATE (sealed). */
OMM_CHECKED omm_err omm_bundle_put(omm_bundle *bundle, const char *path, omm_bytes bytes);
/* The same, but what was there is replaced: for summaries written at the end (V and M files). */
OMM_CHECKED omm_err omm_bundle_replace(omm_bundle *bundle, const char *path, omm_bytes bytes);
/* Between hold and settle many files are put, whose folders are synced once, by settle, and not after each: a power
 * cut before it may take any of them, and after it none.  Files put before a kill count as put now.  Where settle fails
 * nothing is held any more, and all of it must be put again.  Errors of settle: IO. */
void omm_bundle_hold(omm_bundle *bundle);
OMM_CHECKED omm_err omm_bundle_settle(omm_bundle *bundle);
/* Line number `index` (from 0) of a .jsonl file; `line` ends with its newline.  A line that is
 * there already must be the same (MISMATCH); a gap is STATE.  Other errors as put. */
OMM_CHECKED omm_err omm_bundle_put_line(omm_bundle *bundle, const char *path, uint32_t index,
                                        omm_bytes line);
/* The same for all lines of `lines`, the first of which has number `index`; written and synced at once. */
OMM_CHECKED omm_err omm_bundle_put_lines(omm_bundle *bundle, const char *path, uint32_t index,
                                         omm_bytes lines);
bool omm_bundle_has(const omm_bundle *bundle, const char *path);
/* Append the file to `out`.  Errors: CONFIG, NOT_FOUND, IO, TOO_BIG, NOMEM. */
OMM_CHECKED omm_err omm_bundle_read(omm_buf *out, const omm_bundle *bundle, const char *path);

/* What the coordinator's Close signs besides the last round and the final adapter (field
 * eval_digest): BLAKE2b-256 of the lines "path\0blake2b hex\n" of eval/after.jsonl,
 * eval/before.jsonl, eval/control.jsonl, eval/rounds.jsonl, ledger.jsonl, policy.yaml, run.json and
 * scenario.yaml, in this order; the control, eval/rounds.jsonl and the ledger only where they exist.  All of them
 * must be in the bundle before the run is closed, the control's rows too.
 * Errors: NOT_FOUND (one that must exist), IO. */
OMM_CHECKED omm_err omm_bundle_evidence_digest(omm_digest *out, const char *dir);

typedef struct omm_bundle_seal_options {
    const omm_key *key;               /* the bundle's own key */
    const char *commit;               /* of the program; measured files must carry the same */
    const char *build;                /* compiler and preset, one line */
    const char *machine;              /* one line */
    uint64_t wall_ms;                 /* now */
    const char *state_dir, *crash_at; /* mid_seal, seal_signed, after_seal (crash.h); NULL: none */
} omm_bundle_seal_options;

struct omm_judgement;

/* Judge the evidence by the bundle's policy.yaml (judge.h), write gates.json, measured/gates.json
 * and junit.xml, then the manifest's signature, then manifest.json, each durable before the next one is
 * begun.  The bundle is closed for writing after it; after an error, or a kill before the manifest is there, it
 * is as good as it was, and is sealed by another call.
 *
 *   run_digest  receives the run digest;  judgement  may be NULL; fini with omm_judgement_fini
 *
 * Memory is that of judging, and some thousands of file names.
 * A failed gate is no error: see judgement->passed.  Errors: as judge, IO, NOMEM, CONFIG. */
OMM_CHECKED omm_err omm_bundle_seal(omm_digest *run_digest, struct omm_judgement *judgement,
                                    omm_bundle *bundle, const omm_bundle_seal_options *options);

/* After an attempt at sealing that failed: its manifest goes, durably, if its name was given and its folder could not be
 * synced.  omm_bundle_seal does so by itself; who replaces files before it does it first.  Errors: IO. */
OMM_CHECKED omm_err omm_bundle_unseal(omm_bundle *bundle);

/* Was the folder sealed, as the bundle of this run?  *sealed false: there is no manifest.  The digest is the
 * manifest's own word, whose list of files is passed over; omm_bundle_verify checks both.
 * Errors: MISMATCH (of another run), FORMAT, VERSION, TOO_BIG, IO, NOMEM. */
OMM_CHECKED omm_err omm_bundle_sealed(bool *sealed, omm_digest *run_digest, const char *dir,
                                      const char *run_id);

#endif

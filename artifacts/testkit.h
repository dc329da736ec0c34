/* testkit.h - a small bundle made by hand in a test: 3 nodes, 3 rounds (the second void), 14 values.
 *
 * Every message is really signed, encoded, summed and rendered; only the training is made up.
 */
#ifndef ARTIFACTS_TESTKIT_H
#define ARTIFACTS_TESTKIT_H

#include "omm/file.h"
#include "omm/messages.h"
#include "omm/verify.h"

#define KIT_VALUES 14u
#define KIT_NODES 3u
#define KIT_ROUNDS 3u
#define KIT_ITEMS 6u
#define KIT_SAMPLE 4u /* of them, those of lowest digest: judged after each round */
#define KIT_SEQ_MAX 500u
#define KIT_ACCEPT_MIN 2u
#define KIT_DEADLINE_MS 60000u
#define KIT_COMMIT "0123456789abcdef0123456789abcdef01234567"

typedef struct kit kit;

/* A submission of a round that is refused, or is said to be: a good one of node `node`, but for what is changed here. */
typedef struct kit_refusal {
    uint32_t round;
    size_t node; /* who signs it; KIT_NODES: a stranger */
    const char *reason;
    void (*fill)(float *values);   /* (KIT_VALUES); NULL: small ones */
    void (*repack)(omm_buf *sent); /* what was sent instead of the payload */
    void (*write)(omm_submission *s);
    void (*spoil)(const kit *k, omm_buf *envelope);
    bool is_poll; /* it is signed as one */
    bool has_payload;
    /* What the line, the receipt and the file's name say otherwise. */
    bool no_node, no_receipt, is_renamed;
    bool names_stranger;
} kit_refusal;

typedef struct kit_options {
    bool drop_last;  /* leave the first accepted submission out of the last round */
    bool no_control; /* no eval/control.jsonl */
    /* All keys are the liar's: in scenario.yaml `from` is `to`, run.json and offers are of what change_run makes. */
    const char *from, *to;
    void (*change_run)(omm_run_record *run);
    bool void_last;                   /* the last round is void though it has accepted enough */
    bool hold_back;                   /* the last candidate is too bad to be published */
    bool bad_residual;                /* the first node goes on from a residual it never had */
    bool other_canonical;             /* the last offer says so of the adapter it names */
    bool small_payloads;              /* the last offer has room for smaller ones than were taken */
    bool other_start;                 /* state 0 has a loss that its rows do not give */
    bool other_end;                   /* and so has the last one */
    void (*claim)(omm_submission *s); /* what nodes say otherwise in the last round */
    bool no_feedback; /* the codec keeps no residual, and nodes speak of one all the same */
    omm_render_adapter render; /* of final.gguf; NULL: kit_render */
    const kit_refusal
        *refusals; /* instead of ours; of nodes that are not accepted there, or once more */
    size_t refusal_count;
    bool same_payloads; /* whatever the round, all nodes send the same bytes */
    bool plain_wire;    /* wire.json does not say what of it was adapters */
    bool twins;         /* the third held-out item is the first one again, of another client */
    bool joined;        /* nobody knows whose data the nodes have, as of those who joined */
} kit_options;

struct kit {
    char dir[OMM_PATH_MAX];
    omm_key coordinator, bundle, stranger;
    omm_key nodes[KIT_NODES]; /* ascending by id */
    omm_digest ids[KIT_NODES];
    const char *names[KIT_NODES]; /* of nodes and their clients */
    omm_digest run_digest;
    omm_judgement judgement; /* of sealing */
};

/* A new temporary folder; the caller removes it with omm_dir_remove. */
void kit_temp_dir(char out[OMM_PATH_MAX]);
/* Write and seal a bundle in a new folder. */
void kit_make(kit *k, const kit_options *options);
/* The same up to close.env, unsealed. */
void kit_make_open(kit *k, const kit_options *options);
void kit_remove(kit *k);
/* A change_run: a service, whose seed nobody knows. */
void kit_as_service(omm_run_record *run);
/* The nonce of a round. */
omm_digest kit_nonce(uint32_t round);

/* The "GGUF" of this bundle: a magic and the values. */
omm_err kit_render(void *ud, omm_buf *out, const omm_run_record *run, const float *values);

/* An omm_scenario_reader, of this bundle's scenario.yaml alone: another says CONFIG. */
omm_err kit_read_scenario(omm_scenario_facts *out, const char **about, omm_bytes text,
                          const omm_run_record *run);

/* Copy a bundle into a new folder. */
void kit_copy(char out[OMM_PATH_MAX], const char *dir);
void kit_read(omm_buf *out, const char *dir, const char *path);
void kit_write(const char *dir, const char *path, omm_bytes bytes);
void kit_delete(const char *dir, const char *path);
/* Replace the first `from` after the first `after` (NULL: from the start). */
void kit_edit(const char *dir, const char *path, const char *after, const char *from,
              const char *to);
/* Seal again with `key`, judging again or with the verdict files as they are. */
void kit_reseal(const char *dir, const omm_key *key, bool judge);

/* Verify with `trusted` (may be NULL); the report is the caller's. */
void kit_verify(omm_verify_report *report, const char *dir, const omm_public_key *trusted);
/* A failure of `check` (NULL: any) that names `path`. */
bool kit_names(const omm_verify_report *report, const char *check, const char *path);
/* A failure of `check` at a path that begins with `path` has `says` in it, or the test fails. */
void kit_said(const omm_verify_report *report, const char *check, const char *path,
              const char *says);
/* To stderr. */
void kit_print(const omm_verify_report *report);
/* Verify the copy at `dir` with the bundle's key: `check` fails at `path`, in words that begin with `said`.  The folder is
 * removed. */
void kit_fails(const kit *k, const char *dir, const char *check, const char *path,
               const char *said);

/* A file of a bundle line by line, to be written anew: `out` begins empty. */
typedef struct kit_lines {
    omm_buf text, out;
    omm_arena arena;  /* for what lines are parsed into, too */
    omm_bytes *lines; /* (count) */
    size_t count;
} kit_lines;
void kit_lines_open(kit_lines *l, const char *dir, const char *path);
/* `out` becomes the file. */
void kit_lines_put(kit_lines *l, const char *dir, const char *path);

#endif

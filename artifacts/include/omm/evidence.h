/* evidence.h - the JSON files of a bundle as C structs: one spelling for writers and verifier.
 *
 *   run.json              what was agreed before round 0            omm_run_record
 *   rounds.jsonl          one line per round, chained by offers      omm_round_record
 *   ledger.jsonl          wire bytes of each completed exchange      omm_ledger_record
 *   eval/NAME.jsonl       one line per held-out item                 omm_eval_record
 *   eval/rounds.jsonl     loss of each state of the adapter          omm_state_record
 *   measured/wire.json    bytes as they passed                       omm_wire_record
 *   measured/repro.json   what was repeated, and what came out       omm_repro_record
 *
 * Writers append canonical JSON (one line with its newline); parsers take nothing that the writer
 * would not have written, so every record has one spelling.  Parsed strings and arrays live in the
 * arena given.
 *
 * Depends on: base, compress, proto.  Threads: no shared state.
 */
#ifndef OMM_EVIDENCE_H
#define OMM_EVIDENCE_H

#include "omm/bytes.h"
#include "omm/codec.h"
#include "omm/err.h"
#include "omm/hash.h"
#include "omm/layout.h"
#include "omm/mem.h"
#include "omm/messages.h" /* OMM_RUN_ID_SIZE */
#include "omm/sign.h"

#include <stdbool.h>
#include <stdint.h>

#define OMM_EVIDENCE_SCHEMA_VERSION 1u
#define OMM_EVIDENCE_NODES_MAX 65536u
#define OMM_EVIDENCE_ROUNDS_MAX 100000u

typedef struct omm_run_node {
    const char *name;
    omm_digest id; /* omm_key_id(&public_key) */
    omm_public_key public_key;
    const char *client;     /* whose data it trains on; "" when unknown (service) */
    omm_digest data_digest; /* zero when unknown (service) */
    uint64_t examples;      /* 0 when unknown */
} omm_run_node;

typedef struct omm_run_record {
    char run_id[OMM_RUN_ID_SIZE];
    const char *name; /* of the scenario */
    bool has_seed;    /* a scenario's; the service keeps its seed to itself */
    uint64_t seed;
    bool simulated;
    uint32_t rounds;
    struct {
        const char *name; /* file name without folder */
        uint64_t bytes;
        omm_digest digest, tokenizer_digest;
        const char *architecture;
        /* What adapters of it name it by (engine's lora_base.h); zeros and "": a run of before, whose
         * adapters name none. */
        omm_digest fingerprint;
        const char *title;
    } base;
    uint32_t rank, targets;
    float alpha;
    omm_layout layout;
    omm_bytes recipe; /* train's canonical bytes; opaque here */
    omm_codec codec_up, codec_down;
    double value_max;        /* power of two */
    uint64_t weight_sum_max; /* power of two */
    double norm_max;         /* 0: no bound */
    uint64_t tokens_max;     /* per submission, as the offers say */
    double loss_increase_max;
    omm_public_key coordinator_key;
    const omm_run_node *nodes; /* ascending by id */
    size_t node_count;
    omm_digest test_digest; /* of the held-out file */
    uint64_t test_items;
    uint64_t test_cut, test_left_out; /* by the recipe's seq_max; left out: not among test_items */
} omm_run_record;

/* Errors of all writers: NOMEM, TOO_BIG, NUMERIC.  Errors of all parsers: FORMAT (what and where),
 * VERSION, TOO_BIG, NOMEM. */
OMM_CHECKED omm_err omm_run_record_write(omm_buf *out, const omm_run_record *record);
OMM_CHECKED omm_err omm_run_record_parse(omm_run_record *out, omm_arena *arena, omm_bytes text);
/* What round 0 follows: its offer's `previous`, so that every node signs for all of it.
 *   BLAKE2b-256("omm.agreed" || BLAKE2b-256 each of run.json as it is with an empty list of nodes (who may
 *   still join), of scenario.yaml and of policy.yaml)
 * Errors: those of writers. */
OMM_CHECKED omm_err omm_run_agreed(omm_digest *out, const omm_run_record *record,
                                   omm_bytes scenario_yaml, omm_bytes policy_yaml);

typedef struct omm_round_accepted {
    omm_digest node;
    omm_digest submission, receipt; /* BLAKE2b-256 of the envelopes as stored */
    uint64_t tokens;                /* its weight */
    omm_digest payload, canonical;
    double norm; /* L2, omm_norm_check */
} omm_round_accepted;

/* Whatever arrived for the round and was not accepted, in order of arrival. */
typedef struct omm_round_refused {
    bool has_node; /* false: not even a signature of a known key */
    omm_digest node;
    omm_digest submission; /* BLAKE2b-256 of the stored bytes */
    bool has_receipt;
    omm_digest receipt;
    const char *reason; /* omm_err_name, "REFUSED_..." */
} omm_round_refused;

typedef struct omm_round_record {
    uint32_t round;
    omm_digest offer;           /* BLAKE2b-256 of offers/rNNN.env */
    const omm_digest *selected; /* ascending */
    size_t selected_count;
    const omm_round_accepted *accepted; /* ascending by node; one per node */
    size_t accepted_count;
    const omm_round_refused *refused;
    size_t refused_count;
    const omm_digest *missing; /* selected, neither accepted nor refused; ascending */
    size_t missing_count;
    uint64_t weight_sum;  /* of the accepted tokens */
    omm_digest master;    /* BLAKE2b-256 of adapters/master-r(NNN+1).f32: after the round */
    omm_digest broadcast; /* BLAKE2b-256 of adapters/r(NNN+1).bin */
    bool evaluated;       /* false for a void round */
    uint64_t eval_items;
    double eval_loss; /* of the candidate, published or not */
    bool published;   /* false: master and broadcast are those that it began from */
    bool voided;      /* too few accepted */
    bool has_begins;  /* the operator rolled back before this round: */
    uint32_t begins;  /* it began from state `begins`, below `round`: adapters/r(begins).bin */
} omm_round_record;
/* The number of the state that the round began from: adapters/r(NNN).bin, adapters/master-r(NNN).f32. */
static inline uint32_t omm_round_begins(const omm_round_record *round) {
    return round->has_begins ? round->begins : round->round;
}

OMM_CHECKED omm_err omm_round_record_write(omm_buf *out, const omm_round_record *record);
OMM_CHECKED omm_err omm_round_record_parse(omm_round_record *out, omm_arena *arena, omm_bytes line);

/* One line per accepted submission, ascending by (round, node): the bytes of its faultless
 * exchange, from sizes alone (omm_wire_round_bytes), and fp32 = 2 * 4 * value_count. */
typedef struct omm_ledger_record {
    uint32_t round;
    omm_digest node;
    uint64_t up, down, fp32;
} omm_ledger_record;
OMM_CHECKED omm_err omm_ledger_record_write(omm_buf *out, const omm_ledger_record *record);
OMM_CHECKED omm_err omm_ledger_record_parse(omm_ledger_record *out, omm_bytes line);

/* In the order of the held-out file. */
typedef struct omm_eval_record {
    omm_digest
        item; /* BLAKE2b-256 of the item's line in the held-out file; of a text, of token ids */
    const char *client;
    const char *skill;
    double nll;      /* sum over learned tokens, nats */
    uint64_t tokens; /* learned tokens, at least 1 */
    bool is_tool;    /* kind: "tool" or "text" */
    bool generated;  /* false: losses only; the rest is then false and "" */
    bool parsed, tool_ok, exact;
    const char *reply;
} omm_eval_record;
OMM_CHECKED omm_err omm_eval_record_write(omm_buf *out, const omm_eval_record *record);
OMM_CHECKED omm_err omm_eval_record_parse(omm_eval_record *out, omm_arena *arena, omm_bytes line);
/* Which held-out items are judged after each round: those `take` of items[count] that have the lowest digests, of equal ones
 * the first.  judged[count]: set for these.  Errors: NOMEM. */
OMM_CHECKED omm_err omm_eval_sample(bool *judged, const omm_digest *items, size_t count,
                                    size_t take);

/* Line 0: the initial adapter; line r + 1: the candidate of round r (none for a void round). */
typedef struct omm_state_record {
    uint32_t state;
    uint64_t items;
    double loss;
} omm_state_record;
OMM_CHECKED omm_err omm_state_record_write(omm_buf *out, const omm_state_record *record);
OMM_CHECKED omm_err omm_state_record_parse(omm_state_record *out, omm_bytes line);

typedef struct omm_wire_node {
    omm_digest node;
    uint64_t up, down; /* as they passed, retries and overhead of every message included */
    uint64_t retries;
    uint64_t up_payload, down_payload; /* what of up and down was an adapter as codecs send it */
} omm_wire_node;
typedef struct omm_wire_record {
    char run_id[OMM_RUN_ID_SIZE];
    const char *commit;
    const omm_wire_node *nodes; /* ascending by node; hostile peers are left out */
    size_t node_count;
    bool has_payloads; /* all rows have theirs; of before, none has */
} omm_wire_record;
OMM_CHECKED omm_err omm_wire_record_write(omm_buf *out, const omm_wire_record *record);
OMM_CHECKED omm_err omm_wire_record_parse(omm_wire_record *out, omm_arena *arena, omm_bytes text);

/* The instruction set whose float products the one called `isa` has (training is all floats): itself, or the one that it
 * adds products of bytes to.  NULL: none is called that.  Static text. */
const char *omm_repro_floats(const char *isa);

/* One repetition of one accepted submission, or (has_node false) of a whole round.  A gate takes it
 * only if the submission is among the first of omm_audit_order (the first k for k repetitions of a
 * kind), if `expected` is what the bundle says, and if it ran with other `threads` (kind threads), with other float
 * products (kind isa), or on "scalar", which the run did not (kind scalar). */
typedef struct omm_repro_check {
    uint32_t round;
    bool has_node;
    omm_digest node;
    const char *kind; /* "threads", "isa" or "scalar" */
    const char *isa;  /* that it was repeated on: a name that omm_repro_floats knows */
    uint32_t threads; /* that it was repeated with */
    uint32_t steps;   /* 0: all */
    /* 64 hex digits: canonical payload digest; with `steps`, the 8-byte step digest of the last of
     * them and zeros; of a whole round, the digest of its master */
    const char *expected;
    const char *repeated; /* the same of the repetition; "" when it failed to run */
} omm_repro_check;
typedef struct omm_repro_record {
    char run_id[OMM_RUN_ID_SIZE];
    const char *commit;
    const char *isa; /* that the run used; known as well */
    uint32_t threads;
    bool
        other_isa; /* this machine has one with other float products below it: all but "scalar" have */
    const omm_repro_check *checks;
    size_t check_count;
} omm_repro_record;
OMM_CHECKED omm_err omm_repro_record_write(omm_buf *out, const omm_repro_record *record);
OMM_CHECKED omm_err omm_repro_record_parse(omm_repro_record *out, omm_arena *arena, omm_bytes text);

/* Which submissions the reproducibility gate repeats: ascending by BLAKE2b(seed || submission
 * digest) with seed = BLAKE2b of all accepted submissions' digests in order of rounds.jsonl: fixed only
 * after the last is signed, and by nodes alone (of a receipt the coordinator can make many).
 *
 *   order  (total accepted) pairs of round and index in `accepted`, best first; in `arena`
 *
 * Errors: NOMEM. */
typedef struct omm_audit_item {
    omm_digest rank;
    uint32_t round, index;
} omm_audit_item;
OMM_CHECKED omm_err omm_audit_order(omm_audit_item **order, size_t *count, omm_arena *arena,
                                    const omm_round_record *rounds, size_t round_count);

/* Split `text` into lines; each must end with a newline.  (*lines) (count) views with newline.
 * Errors: FORMAT (an empty line, or no newline at the end), TOO_BIG (over count_max), NOMEM. */
OMM_CHECKED omm_err omm_evidence_lines(omm_bytes **lines, size_t *count, omm_arena *arena,
                                       omm_bytes text, size_t count_max);

#endif

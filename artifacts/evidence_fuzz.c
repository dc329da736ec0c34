/* evidence_fuzz.c - whatever a bundle's JSON says, no parser leaves its bounds.  The first byte chooses
 * the parser; each takes only what its writer would have written. */
#include "internal.h"
#include "omm/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The quick reader of lists gives what the parser gave. */
static omm_err parse_round(omm_arena *arena, omm_bytes text) {
    omm_round_record round;
    omm_buf again;
    OMM_TRY(omm_round_record_parse(&round, arena, text));
    round.selected = round.missing = NULL;
    round.accepted = NULL;
    round.refused = NULL;
    OMM_ASSERT(round_lists_read(&round, arena, text) == OMM_OK);
    omm_buf_init(&again, text.size);
    OMM_ASSERT(omm_round_record_write(&again, &round) == OMM_OK);
    OMM_ASSERT(omm_bytes_equal(text, omm_buf_view(&again)));
    omm_buf_fini(&again);
    return OMM_OK;
}

static omm_err parse(omm_arena *arena, uint8_t kind, omm_bytes text) {
    omm_run_record run;
    omm_ledger_record ledger;
    omm_eval_record eval;
    omm_state_record state;
    omm_wire_record wire;
    omm_repro_record repro;
    manifest m;
    switch (kind) {
    case 'a': return omm_run_record_parse(&run, arena, text);
    case 'b': return parse_round(arena, text);
    case 'c': return omm_ledger_record_parse(&ledger, text);
    case 'd': return omm_eval_record_parse(&eval, arena, text);
    case 'e': return omm_state_record_parse(&state, text);
    case 'f': return omm_wire_record_parse(&wire, arena, text);
    case 'g': return omm_repro_record_parse(&repro, arena, text);
    default: return manifest_parse(&m, arena, text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    omm_arena arena;
    omm_bytes *lines = NULL;
    size_t count = 0;
    if (size == 0) return 0;
    omm_bytes text = omm_bytes_of(data + 1, size - 1);
    omm_arena_init(&arena, (size_t)1 << 24);
    (void)parse(&arena, data[0], text);
    if (omm_evidence_lines(&lines, &count, &arena, text, 1000) == OMM_OK) OMM_ASSERT(count <= 1000);
    omm_arena_fini(&arena);
    return 0;
}

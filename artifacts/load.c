/* Reading the evidence of a bundle into memory: what is missing or malformed says why. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

#define LINES_MAX 10000000u
#define ITEMS_MAX 200000u /* held-out items: judging them is quadratic in their clients */

/* Parses line number `index` into its place. */
typedef omm_err (*parse_line)(evidence *ev, void *rows, size_t index, omm_bytes line);

/* A sentence about the file system names the folder, which must not reach deterministic files. */
static omm_err note(file_state *file, omm_err err) {
    file->err = err;
    if (err == OMM_ERR_NOT_FOUND)
        snprintf(file->why, sizeof file->why, "the file is missing");
    else if (err == OMM_ERR_IO)
        snprintf(file->why, sizeof file->why, "the file cannot be read");
    else if (err != OMM_OK)
        snprintf(file->why, sizeof file->why, "%s", omm_err_sentence());
    return err == OMM_ERR_NOMEM ? err : OMM_OK;
}

static omm_err parse_round(evidence *ev, void *rows, size_t i, omm_bytes line) {
    ev->line_digests[i] = omm_hash(line);
    return omm_round_record_parse((omm_round_record *)rows + i, &ev->arena, line);
}

static omm_err parse_ledger(evidence *ev, void *rows, size_t i, omm_bytes line) {
    (void)ev;
    return omm_ledger_record_parse((omm_ledger_record *)rows + i, line);
}

static omm_err parse_eval(evidence *ev, void *rows, size_t i, omm_bytes line) {
    return omm_eval_record_parse((omm_eval_record *)rows + i, &ev->arena, line);
}

static omm_err parse_state(evidence *ev, void *rows, size_t i, omm_bytes line) {
    (void)ev;
    return omm_state_record_parse((omm_state_record *)rows + i, line);
}

/* Errors: those of reading and of `parse`. */
static omm_err read_lines(void **rows, size_t *count, evidence *ev, const char *path,
                          size_t row_bytes, parse_line parse, file_state *file) {
    omm_buf text;
    omm_bytes *lines = NULL;
    size_t lines_max = parse == parse_round  ? OMM_EVIDENCE_ROUNDS_MAX
                       : parse == parse_eval ? ITEMS_MAX
                                             : LINES_MAX;
    omm_buf_init(&text, OMM_BUNDLE_FILE_BYTES_MAX);
    omm_err err = bundle_read(&text, ev->dir, path);
    if (err == OMM_OK) {
        file->digest = omm_hash(omm_buf_view(&text));
        err = omm_evidence_lines(&lines, count, &ev->arena, omm_buf_view(&text), lines_max);
    }
    if (err == OMM_OK) {
        *rows = omm_arena_alloc(&ev->arena, *count + 1, row_bytes);
        if (!*rows) err = omm_raise(OMM_ERR_NOMEM, "no memory for %s", path);
    }
    for (size_t i = 0; err == OMM_OK && i < *count; i++) {
        err = parse(ev, *rows, i, lines[i]);
        if (err != OMM_OK && err != OMM_ERR_NOMEM)
            err = omm_raise(err == OMM_ERR_NOT_FOUND ? OMM_ERR_FORMAT : err, "line %zu: %.180s",
                            i + 1, omm_err_sentence());
    }
    if (err != OMM_OK) *count = 0;
    omm_buf_fini(&text);
    return err;
}

static omm_err load_run(evidence *ev) {
    omm_buf text;
    omm_buf_init(&text, OMM_BUNDLE_FILE_BYTES_MAX);
    omm_err err = bundle_read(&text, ev->dir, "run.json");
    if (err == OMM_OK) {
        ev->run_file.digest = omm_hash(omm_buf_view(&text));
        err = omm_run_record_parse(&ev->run, &ev->arena, omm_buf_view(&text));
    }
    omm_buf_fini(&text);
    return note(&ev->run_file, err);
}

static omm_err load_rows(evidence *ev, evidence_rows *rows, const char *path) {
    void *list = NULL;
    omm_err err =
        read_lines(&list, &rows->count, ev, path, sizeof(omm_eval_record), parse_eval, &rows->file);
    rows->rows = list;
    return note(&rows->file, err);
}

static omm_err load_rounds(evidence *ev) {
    void *list = NULL;
    /* A line per round, and no more rounds than run.json may have. */
    ev->line_digests =
        omm_arena_alloc(&ev->arena, OMM_EVIDENCE_ROUNDS_MAX + 1, sizeof *ev->line_digests);
    if (!ev->line_digests) return omm_raise(OMM_ERR_NOMEM, "no memory for rounds");
    omm_err err = read_lines(&list, &ev->round_count, ev, "rounds.jsonl", sizeof(omm_round_record),
                             parse_round, &ev->rounds_file);
    ev->rounds = list;
    return note(&ev->rounds_file, err);
}

static omm_err load_all(evidence *ev) {
    void *list = NULL;
    OMM_TRY(load_run(ev));
    OMM_TRY(load_rounds(ev));
    omm_err err = read_lines(&list, &ev->ledger_count, ev, "ledger.jsonl",
                             sizeof(omm_ledger_record), parse_ledger, &ev->ledger_file);
    ev->ledger = list;
    OMM_TRY(note(&ev->ledger_file, err));
    list = NULL;
    err = read_lines(&list, &ev->state_count, ev, "eval/rounds.jsonl", sizeof(omm_state_record),
                     parse_state, &ev->states_file);
    ev->states = list;
    OMM_TRY(note(&ev->states_file, err));
    OMM_TRY(load_rows(ev, &ev->before, "eval/before.jsonl"));
    OMM_TRY(load_rows(ev, &ev->after, "eval/after.jsonl"));
    return load_rows(ev, &ev->control, "eval/control.jsonl");
}

omm_err evidence_load(evidence *out, const char *dir) {
    memset(out, 0, sizeof *out);
    out->dir = dir;
    omm_arena_init(&out->arena, BUNDLE_ARENA_BYTES_MAX);
    omm_err err = load_all(out);
    if (err != OMM_OK) evidence_fini(out);
    return err;
}

void evidence_fini(evidence *ev) {
    omm_arena_fini(&ev->arena);
}

size_t evidence_node(const evidence *ev, const omm_digest *id) {
    size_t low = 0;
    size_t high = ev->run.node_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = omm_digest_compare(&ev->run.nodes[mid].id, id);
        if (order == 0) return mid;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return SIZE_MAX;
}

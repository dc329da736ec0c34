/* Reading the evidence of a bundle into memory: what is missing or malformed says why. */
#include "internal.h"
#include "lines.h"

#include <stdio.h>
#include <string.h>

#define LINES_MAX 10000000u
#define ITEMS_MAX 200000u /* held-out items: judging them is quadratic in their clients */

/* Parses line number `index` of `lines` into its place. */
typedef omm_err (*parse_line)(evidence *ev, void *rows, size_t index, omm_bytes line);

void file_state_why(file_state *file, const char *path, const char *why) {
    snprintf(file->why, sizeof file->why, "%s", why);
    file->named = strncmp(why, path, strlen(path)) == 0 ? NULL : path;
}

/* A sentence about the file system names the folder, which must not reach deterministic files. */
static omm_err note(file_state *file, const char *path, omm_err err) {
    file->err = err;
    if (err == OMM_ERR_NOT_FOUND)
        file_state_why(file, path, "the file is missing");
    else if (err == OMM_ERR_IO)
        file_state_why(file, path, "the file cannot be read");
    else if (err != OMM_OK)
        file_state_why(file, path, omm_err_sentence());
    return err == OMM_ERR_NOMEM ? err : OMM_OK;
}

/* A round without its lists. */
static omm_err parse_round(evidence *ev, void *rows, size_t i, omm_bytes line) {
    omm_round_record *head = (omm_round_record *)rows + i;
    omm_arena arena;
    omm_arena_init(&arena, BUNDLE_ARENA_BYTES_MAX);
    omm_err err = omm_round_record_parse(head, &arena, line);
    omm_arena_fini(&arena);
    head->selected = head->missing = NULL;
    head->accepted = NULL;
    head->refused = NULL;
    const uint64_t before = i ? ev->lines[i - 1].offset + ev->lines[i - 1].bytes : 0;
    ev->lines[i] = (line_place){before, line.size, omm_hash(line)};
    return err;
}

static omm_err parse_eval(evidence *ev, void *rows, size_t i, omm_bytes line) {
    return omm_eval_record_parse((omm_eval_record *)rows + i, &ev->arena, line);
}

static omm_err parse_state(evidence *ev, void *rows, size_t i, omm_bytes line) {
    (void)ev;
    return omm_state_record_parse((omm_state_record *)rows + i, line);
}

static omm_err name_line(omm_err err, size_t i) {
    if (err == OMM_OK || err == OMM_ERR_NOMEM) return err;
    return omm_raise(err, "line %zu: %.180s", i + 1, omm_err_sentence());
}

/* Errors: those of reading and of `parse`. */
static omm_err read_lines(void **rows, size_t *count, evidence *ev, line_reader *lines,
                          size_t row_bytes, parse_line parse) {
    omm_bytes line;
    *rows = omm_arena_alloc(&ev->arena, lines->count + 1, row_bytes);
    if (!*rows) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu lines", lines->count);
    for (size_t i = 0; i < lines->count; i++) {
        OMM_TRY(line_reader_next(&line, lines));
        OMM_TRY(name_line(parse(ev, *rows, i, line), i));
    }
    OMM_TRY(line_reader_next(&line, lines)); /* the end: nothing has changed */
    *count = lines->count;
    return OMM_OK;
}

/* All its lines, parsed. */
static omm_err load_lines(void **rows, size_t *count, evidence *ev, const char *path,
                          size_t lines_max, size_t row_bytes, parse_line parse, file_state *file) {
    line_reader lines;
    omm_err err = line_reader_open(&lines, ev->dir, path, lines_max);
    file->digest = lines.digest;
    if (err == OMM_OK) err = read_lines(rows, count, ev, &lines, row_bytes, parse);
    line_reader_close(&lines);
    return note(file, path, err);
}

static omm_err load_run(evidence *ev) {
    omm_buf text;
    omm_buf_init(&text, OMM_BUNDLE_FILE_BYTES_MAX);
    omm_err err = omm_bundle_file_read(&text, ev->dir, "run.json");
    if (err == OMM_OK) {
        ev->run_file.digest = omm_hash(omm_buf_view(&text));
        err = omm_run_record_parse(&ev->run, &ev->arena, omm_buf_view(&text));
    }
    omm_buf_fini(&text);
    return note(&ev->run_file, "run.json", err);
}

static omm_err load_rows(evidence *ev, evidence_rows *rows, const char *path) {
    void *list = NULL;
    OMM_TRY(load_lines(&list, &rows->count, ev, path, ITEMS_MAX, sizeof(omm_eval_record),
                       parse_eval, &rows->file));
    rows->rows = list;
    return OMM_OK;
}

/* A line per round, and no more rounds than run.json may have.  The file stays open for evidence_round. */
static omm_err load_rounds(evidence *ev) {
    void *list = NULL;
    line_reader lines;
    omm_err err = line_reader_open(&lines, ev->dir, "rounds.jsonl", OMM_EVIDENCE_ROUNDS_MAX);
    ev->rounds_file.digest = lines.digest;
    if (err == OMM_OK) {
        ev->lines = omm_arena_alloc(&ev->arena, lines.count + 1, sizeof *ev->lines);
        if (!ev->lines) err = omm_raise(OMM_ERR_NOMEM, "no memory for rounds");
    }
    if (err == OMM_OK)
        err = read_lines(&list, &ev->round_count, ev, &lines, sizeof *ev->heads, parse_round);
    ev->heads = list;
    if (err == OMM_OK) {
        ev->rounds_in = lines.in;
        lines.in.fd = -1;
    }
    line_reader_close(&lines);
    return note(&ev->rounds_file, "rounds.jsonl", err);
}

static omm_err load_all(evidence *ev) {
    void *list = NULL;
    OMM_TRY(load_run(ev));
    OMM_TRY(load_rounds(ev));
    OMM_TRY(load_lines(&list, &ev->state_count, ev, "eval/rounds.jsonl", LINES_MAX,
                       sizeof(omm_state_record), parse_state, &ev->states_file));
    ev->states = list;
    OMM_TRY(load_rows(ev, &ev->before, "eval/before.jsonl"));
    OMM_TRY(load_rows(ev, &ev->after, "eval/after.jsonl"));
    return load_rows(ev, &ev->control, "eval/control.jsonl");
}

omm_err evidence_load(evidence *out, const char *dir) {
    memset(out, 0, sizeof *out);
    out->dir = dir;
    out->rounds_in.fd = -1;
    out->current.index = SIZE_MAX;
    omm_arena_init(&out->arena, BUNDLE_ARENA_BYTES_MAX);
    omm_arena_init(&out->current.arena, BUNDLE_ARENA_BYTES_MAX);
    omm_buf_init(&out->current.text, OMM_BUNDLE_FILE_BYTES_MAX);
    omm_err err = load_all(out);
    if (err != OMM_OK) evidence_fini(out);
    return err;
}

void evidence_fini(evidence *ev) {
    if (ev->rounds_in.fd >= 0) omm_file_in_close(&ev->rounds_in);
    omm_arena_fini(&ev->arena);
    omm_arena_fini(&ev->current.arena);
    omm_buf_fini(&ev->current.text);
}

static omm_err rounds_changed(void) {
    return omm_raise(OMM_ERR_IO, "rounds.jsonl changed while it was read");
}

/* The line as it was when it was loaded. */
static omm_err read_again(omm_buf *out, omm_file_in *in, const line_place *line) {
    uint8_t *to = NULL;
    omm_buf_clear(out);
    OMM_TRY(omm_buf_extend(out, &to, line->bytes));
    OMM_TRY(omm_file_in_seek(in, line->offset));
    omm_err err = omm_file_in_read(in, to, line->bytes);
    if (err != OMM_OK) return err == OMM_ERR_SIZE ? rounds_changed() : err;
    const omm_digest is = omm_hash(omm_buf_view(out));
    return omm_digest_equal(&is, &line->digest) ? OMM_OK : rounds_changed();
}

omm_err evidence_round(const omm_round_record **out, evidence *ev, size_t r) {
    OMM_ASSERT(r < ev->round_count);
    *out = &ev->current.record;
    if (ev->current.index == r) return OMM_OK;
    ev->current.index = SIZE_MAX;
    omm_arena_fini(&ev->current.arena);
    OMM_TRY(read_again(&ev->current.text, &ev->rounds_in, &ev->lines[r]));
    ev->current.record = ev->heads[r];
    OMM_TRY(
        round_lists_read(&ev->current.record, &ev->current.arena, omm_buf_view(&ev->current.text)));
    ev->current.index = r;
    return OMM_OK;
}

const omm_round_record *evidence_at_hand(const evidence *ev, size_t r) {
    OMM_ASSERT(ev->current.index == r);
    return &ev->current.record;
}

static omm_err read_ledger(line_reader *lines, evidence_ledger_each each, void *ud,
                           omm_err *of_each) {
    omm_bytes line;
    omm_ledger_record row;
    for (size_t i = 0; i < lines->count; i++) {
        OMM_TRY(line_reader_next(&line, lines));
        OMM_TRY(name_line(omm_ledger_record_parse(&row, line), i));
        if (each) *of_each = each(ud, &row);
        OMM_TRY(*of_each);
    }
    return line_reader_next(&line, lines); /* the end: nothing has changed */
}

omm_err evidence_ledger(evidence *ev, evidence_ledger_each each, void *ud) {
    line_reader lines;
    omm_err of_each = OMM_OK;
    omm_err err = line_reader_open(&lines, ev->dir, "ledger.jsonl", LINES_MAX);
    ev->ledger_file = (file_state){.digest = lines.digest};
    if (err == OMM_OK) err = read_ledger(&lines, each, ud, &of_each);
    ev->ledger_count = err == OMM_OK ? lines.count : 0;
    line_reader_close(&lines);
    return of_each == OMM_OK ? note(&ev->ledger_file, "ledger.jsonl", err) : of_each;
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

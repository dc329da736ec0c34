/* board.c - see board.h. */
#include "board.h"

#include "omm/memory.h"
#include "omm/node_history.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BOARD_BYTES_MAX ((size_t)1 << 20)
#define STAT_BLOCK_BYTES 512u /* of st_blocks */
#define WRITE_MS 1000u
#define HISTORY_MS 5000u /* or when the state is a new one */

void board_open(board *b, const omm_node_options *node, omm_clock clock) {
    *b = (board){.name = node->name, .clock = clock, .opened_ms = clock.wall_ms(clock.ud)};
    if (node->state_dir && omm_path_join(b->path, node->state_dir, OMM_NODE_STATUS_FILE) != OMM_OK)
        b->path[0] = '\0';
}

void board_close(board *b) {
    json_decref(b->history);
    b->history = NULL;
}

static omm_err put_node(json_t *root, const omm_node *node) {
    const omm_node_status status = omm_node_get_status(node);
    OMM_TRY(omm_json_set_str(root, "phase", status.phase));
    OMM_TRY(omm_json_set_str(root, "run_id", status.run_id));
    if (status.has_round) OMM_TRY(omm_json_set_int(root, "round", status.round));
    OMM_TRY(omm_json_set_int(root, "steps", status.steps));
    return omm_json_set_int(root, "steps_done", status.steps_done);
}

/* What was fetched before, the base model, went over another connection. */
static omm_err put_wire(json_t *root, const board *b, omm_client *client) {
    omm_wire_count count = {0};
    if (client) omm_client_count(&count, client);
    json_t *wire = json_object();
    omm_err err = omm_json_set_int(wire, "bytes_out", (int64_t)count.bytes_out);
    if (err == OMM_OK) err = omm_json_set_int(wire, "bytes_in", (int64_t)count.bytes_in);
    if (err == OMM_OK) err = omm_json_set_int(wire, "since_s", (int64_t)(b->opened_ms / 1000));
    if (err == OMM_OK) return omm_json_set(root, "wire", wire);
    json_decref(wire);
    return err;
}

static omm_err fill(json_t *root, const board *b, const omm_node *node, omm_client *client) {
    OMM_TRY(omm_json_set_int(root, "schema_version", 1));
    OMM_TRY(omm_json_set_int(root, "pid", getpid()));
    OMM_TRY(omm_json_set_str(root, "name", b->name ? b->name : ""));
    OMM_TRY(omm_json_set_str(root, "state", b->state));
    OMM_TRY(omm_json_set_str(root, "detail", b->detail));
    OMM_TRY(omm_json_set_int(root, "since_s", (int64_t)(b->since_ms / 1000)));
    OMM_TRY(omm_json_set_int(root, "updated_s", (int64_t)(b->clock.wall_ms(b->clock.ud) / 1000)));
    OMM_TRY(omm_json_set_int(root, "resident_bytes", (int64_t)omm_memory_resident()));
    if (node) OMM_TRY(put_node(root, node));
    OMM_TRY(put_wire(root, b, client));
    return b->history ? omm_json_set(root, "history", json_incref(b->history)) : OMM_OK;
}

/* On a full disk no new file has room, and who looks would read what was so before: what is there is overwritten, with what has
 * room in its blocks. */
static void write_over(const char *path, const omm_buf *text) {
    struct stat st;
    omm_buf whole;
    const int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return;
    omm_buf_init(&whole, BOARD_BYTES_MAX);
    omm_err err = OMM_ERR_IO;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
        text->size <= (uint64_t)st.st_blocks * STAT_BLOCK_BYTES)
        err = omm_buf_append(&whole, text->data, text->size);
    while (err == OMM_OK && whole.size < (uint64_t)st.st_size)
        err = omm_buf_append(&whole, "\n", 1);
    if (err == OMM_OK) (void)!pwrite(fd, whole.data, whole.size, 0);
    omm_buf_fini(&whole);
    (void)close(fd);
}

static void write_board(const board *b, const omm_node *node, omm_client *client) {
    json_t *root = json_object();
    omm_buf text;
    omm_buf_init(&text, BOARD_BYTES_MAX);
    omm_err err = fill(root, b, node, client);
    if (err == OMM_OK) err = omm_json_write_pretty(&text, root);
    if (err == OMM_OK) err = omm_file_write_fast(b->path, omm_buf_view(&text), 0600);
    if (err == OMM_ERR_IO) {
        (void)json_object_del(root, "history"); /* which is long */
        omm_buf_clear(&text);
        if (omm_json_write_pretty(&text, root) == OMM_OK) write_over(b->path, &text);
    }
    omm_buf_fini(&text);
    json_decref(root);
}

static void ask_history(board *b, omm_node *node) {
    json_t *history = NULL;
    if (omm_node_history(&history, node) != OMM_OK) return;
    json_decref(b->history);
    b->history = history;
}

/* Waiting for another run is not what it has done since the last one. */
static bool take_run(board *b, const omm_node *node) {
    if (!node) return false;
    const omm_node_status status = omm_node_get_status(node);
    if (strcmp(status.run_id, b->run_id) == 0) return false;
    const bool had_run = b->run_id[0] != '\0';
    memcpy(b->run_id, status.run_id, sizeof b->run_id);
    return had_run;
}

void board_show(board *b, const char *state, const char *detail, omm_node *node, omm_client *client,
                bool may_ask) {
    if (!b->path[0]) return;
    const uint64_t now_ms = b->clock.now_ms(b->clock.ud);
    const bool is_new = take_run(b, node) || strcmp(state, b->state) != 0;
    const bool has_word = (detail[0] != '\0') != (b->detail[0] != '\0'); /* or has none any more */
    if (!is_new && !has_word && now_ms - b->written_ms < WRITE_MS) return;
    if (is_new) b->since_ms = b->clock.wall_ms(b->clock.ud);
    (void)snprintf(b->state, sizeof b->state, "%s", state);
    (void)snprintf(b->detail, sizeof b->detail, "%s", detail);
    if (node && may_ask && (is_new || now_ms - b->history_ms >= HISTORY_MS)) {
        ask_history(b, node);
        b->history_ms = now_ms;
    }
    b->written_ms = now_ms;
    write_board(b, node, client);
}

/* keep_test.c - values in pieces: whole, alone, and as they were where a transaction failed; and no more declined offers
 * than there is room for. */
#include "internal.h"

#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>

#define PIECE_BYTES ((size_t)1 << 20)
#define LARGEST_BYTES (3 * PIECE_BYTES + 7)
#define NAME KEEP_CHECKPOINT

static uint8_t *s_bytes;

static omm_bytes value_of(size_t size) {
    return omm_bytes_of(s_bytes + LARGEST_BYTES - size, size); /* of another size, other bytes */
}

static void check_value(omm_node *node, size_t size) {
    omm_buf out;
    bool found = false;
    omm_buf_init(&out, SIZE_MAX);
    CHECK_OK(node_keep_get_large(&found, &out, node, NAME));
    CHECK(found && omm_bytes_equal(omm_buf_view(&out), value_of(size)));
    omm_buf_fini(&out);
}

static void check_none(omm_node *node) {
    omm_buf out;
    bool found = true;
    omm_buf_init(&out, SIZE_MAX);
    CHECK_OK(node_keep_get_large(&found, &out, node, NAME));
    CHECK(!found && out.size == 0);
    omm_buf_fini(&out);
}

static int64_t number_of(omm_node *node, const char *sql) {
    omm_rows *rows = NULL;
    bool more = false;
    CHECK_OK(omm_db_query(&rows, node->db, sql));
    CHECK_OK(omm_rows_next(&more, rows));
    const int64_t number = omm_rows_int(rows, 0);
    omm_rows_close(rows);
    return number;
}

/* Rows of the table, beside the key's id. */
static int64_t rows_of(omm_node *node) {
    return number_of(node, "SELECT count(*) - 1 FROM keep");
}

/* Longer, shorter: nothing of what was there before stays. */
static void sizes(omm_node *node) {
    static const struct {
        size_t bytes;
        int64_t pieces;
    } all[] = {{0, 1},
               {LARGEST_BYTES, 4},
               {1, 1},
               {PIECE_BYTES + 1, 2},
               {PIECE_BYTES, 1},
               {2 * PIECE_BYTES, 2},
               {PIECE_BYTES - 1, 1}};
    check_none(node);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        CHECK_OK(node_keep_put_large(node, NAME, value_of(all[i].bytes)));
        CHECK_EQ(rows_of(node), all[i].pieces);
        check_value(node, all[i].bytes);
    }
    CHECK_OK(node_keep_drop_large(node, NAME));
    CHECK_EQ(rows_of(node), 0);
}

/* What a program from before pieces wrote is one value, of any size, whatever it left behind it. */
static void from_before(omm_node *node) {
    static const size_t all[] = {0, 1, PIECE_BYTES + 1, LARGEST_BYTES};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        CHECK_OK(node_keep_put(node, NAME, value_of(all[i])));
        check_value(node, all[i]);
        CHECK_OK(node_keep_put_large(node, NAME, value_of(LARGEST_BYTES)));
        CHECK_OK(node_keep_put(node, NAME, value_of(all[i])));
        check_value(node, all[i]);
        CHECK_OK(node_keep_put_large(node, NAME, value_of(LARGEST_BYTES)));
        CHECK_OK(node_keep_drop(node, NAME));
        check_none(node);
        CHECK_OK(node_keep_drop_large(node, NAME));
        CHECK_EQ(rows_of(node), 0);
    }
}

/* Names that begin alike are not its pieces. */
static void neighbours(omm_node *node) {
    static const char *const others[] = {KEEP_CHECKPOINT_OFFER, KEEP_CANARY_CHECKPOINT,
                                         KEEP_CANARY_CHECKPOINT "/1", KEEP_GLOBAL_CHUNK "1"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        CHECK_OK(node_keep_put(node, others[i], omm_bytes_str("other")));
    CHECK_OK(node_keep_put_large(node, NAME, value_of(2 * PIECE_BYTES)));
    CHECK_OK(node_keep_put_large(node, NAME, value_of(PIECE_BYTES)));
    check_value(node, PIECE_BYTES);
    CHECK_OK(node_keep_drop_large(node, NAME));
    CHECK_EQ(rows_of(node), sizeof others / sizeof *others);
}

static omm_err put_and_fail(omm_node *node, const void *ud) {
    OMM_TRY(node_keep_put_large(node, NAME, value_of(*(const size_t *)ud)));
    return omm_raise(OMM_ERR_IO, "no room for what comes next");
}

static void half_written(omm_node *node) {
    const size_t shorter = PIECE_BYTES + 5;
    CHECK_OK(node_keep_put_large(node, NAME, value_of(LARGEST_BYTES)));
    CHECK_ERR(node_keep_all(node, put_and_fail, &shorter), OMM_ERR_IO);
    check_value(node, LARGEST_BYTES);
}

/* A coordinator that makes offers for weeks which are declined: the newest hundred are kept. */
static void declined_offers(omm_node *node) {
    enum { MANY = 250, KEPT = 100 };
    for (uint32_t round = 0; round < MANY; round++) {
        const omm_offer offer = {.run_id = "0123456789abcdef0123456789abcdef", .round = round};
        CHECK_OK(node_history_declined(node, &offer, "why"));
        CHECK_OK(node_history_declined(node, &offer, "why")); /* once more is no other one */
    }
    CHECK_EQ(number_of(node, "SELECT count(*) FROM declined"), KEPT);
    CHECK_EQ(number_of(node, "SELECT min(round) FROM declined"), MANY - KEPT);
    CHECK_EQ(number_of(node, "SELECT min(times) FROM declined"), 2);
}

int main(void) {
    omm_node node = {0};
    s_bytes = omm_alloc(LARGEST_BYTES, 1);
    CHECK(s_bytes != NULL);
    for (size_t i = 0; i < LARGEST_BYTES; i++) s_bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    CHECK_OK(node_keep_open(&node));
    sizes(&node);
    from_before(&node);
    neighbours(&node);
    half_written(&node);
    declined_offers(&node);
    omm_db_close(node.db);
    omm_free(s_bytes);
    return 0;
}

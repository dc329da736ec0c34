/* wires_test.c - whose bytes are counted: a node's own, on any connection that it names, and of others at its address no
 * more than one adapter a round. */
#include "omm_test.h"

#include "wires.h"

#include "omm/evidence.h"
#include "omm/file.h"
#include "omm/mem.h"
#include "omm/messages.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_MS = 60000, VALUES = 100000, SMALL = 100, CHUNK = 200000, ADAPTER_UP = 7 };

static omm_run_node s_nodes[3]; /* the third one joins */
static omm_run_record s_run = {.run_id = "00112233445566778899aabbccddeeff",
                               .rounds = 3,
                               .nodes = s_nodes,
                               .node_count = 2,
                               .codec_down = {.kind = OMM_CODEC_NONE},
                               .layout = {.value_count = VALUES}};
static omm_server *s_server;
static char s_url[64];
static wires *s_wires;

static omm_client *connect_to_it(void) {
    omm_client *client;
    const omm_client_options options = omm_client_options_default();
    CHECK_OK(omm_client_open(&client, s_url, &options));
    return client;
}

/* One exchange of this client: `down` bytes for a small request, said by that node. */
static void pass(omm_client *client, int32_t said_by, size_t down) {
    static uint8_t bytes[CHUNK];
    omm_exchange *exchange;
    omm_bytes got;
    CHECK_OK(omm_client_send(client, omm_bytes_of(bytes, SMALL)));
    CHECK_OK(omm_server_receive(&exchange, &got, s_server, WAIT_MS));
    wires_book(s_wires, said_by, exchange,
               &(wires_passed){.request_bytes = got.size,
                               .reply_bytes = down,
                               .payload = {ADAPTER_UP, down / 2}});
    CHECK_OK(omm_exchange_reply(exchange, omm_bytes_of(bytes, down)));
    CHECK_OK(omm_client_receive(&got, client, WAIT_MS));
}

static uint64_t down_of(size_t node) {
    return wires_of(s_wires, node).down;
}

/* What a node says nothing of is its own where the connection is; whatever is about the base model is nobody's. */
static void test_base(void) {
    omm_client *node = connect_to_it();
    pass(node, 0, SMALL);
    pass(node, OMM_COORD_NOBODY, CHUNK);
    const uint64_t own = omm_wire_bytes(SMALL) + omm_wire_bytes(CHUNK);
    CHECK_EQ(down_of(0), own);
    CHECK_EQ(wires_of(s_wires, 0).up, 2 * omm_wire_bytes(SMALL));
    omm_client *other = connect_to_it();
    for (int i = 0; i < 20; i++) pass(other, WIRES_BASE, CHUNK);
    pass(node, WIRES_BASE, CHUNK);
    CHECK_EQ(down_of(0), own);
    CHECK_EQ(wires_of(s_wires, 0).up, 2 * omm_wire_bytes(SMALL));
    pass(other, 1, SMALL); /* and now it is known: what it fetched before stays nobody's */
    CHECK_EQ(down_of(1), omm_wire_bytes(SMALL));
    omm_client_close(other);
    omm_client_close(node);
}

/* A node whose connection broke fetches the rest of an adapter on another one; somebody else at its address may make it
 * seem to have moved one more in a round, and no more, and more only in another round. */
static void test_nameless(void) {
    const uint64_t adapter = sizeof(float) * VALUES;
    const uint64_t before = down_of(1);
    wires_round(s_wires, 1);
    omm_client *other = connect_to_it();
    pass(other, OMM_COORD_NOBODY, CHUNK);
    CHECK_EQ(down_of(1) - before, omm_wire_bytes(CHUNK));
    for (int i = 0; i < 20; i++) pass(other, OMM_COORD_NOBODY, CHUNK);
    CHECK(down_of(1) - before >= 2 * omm_wire_bytes(CHUNK)); /* the whole adapter */
    CHECK(down_of(1) - before < adapter + CHUNK / 4);
    const uint64_t first = down_of(1);
    wires_round(s_wires, 2);
    for (int i = 0; i < 20; i++) pass(other, OMM_COORD_NOBODY, CHUNK);
    CHECK(down_of(1) - first >= 2 * omm_wire_bytes(CHUNK)); /* another one */
    CHECK(down_of(1) - before < 2 * (adapter + CHUNK / 4));
    const uint64_t all = down_of(1);
    pass(other, 1, SMALL); /* it was the node: from here on all is its own */
    for (int i = 0; i < 5; i++) pass(other, OMM_COORD_NOBODY, CHUNK);
    CHECK_EQ(down_of(1) - all, omm_wire_bytes(SMALL) + 5 * omm_wire_bytes(CHUNK));
    const uint64_t own = down_of(1); /* and makes no room for others: this round's is used up */
    omm_client *third = connect_to_it();
    for (int i = 0; i < 5; i++) pass(third, OMM_COORD_NOBODY, CHUNK);
    CHECK_EQ(down_of(1), own);
    omm_client *first_node =
        connect_to_it(); /* who was heard last at this address it is likely of */
    const uint64_t its = down_of(0);
    pass(first_node, 0, SMALL);
    pass(third, OMM_COORD_NOBODY, CHUNK);
    CHECK_EQ(down_of(0) - its, omm_wire_bytes(SMALL) + omm_wire_bytes(CHUNK));
    CHECK_EQ(down_of(1), own);
    omm_client_close(first_node);
    omm_client_close(third);
    omm_client_close(other);
}

/* Whoever is at another address than all nodes were makes none of them seem to have moved anything. */
static void test_address(const char *url) {
    const uint64_t before[] = {down_of(0), down_of(1)};
    omm_client *client;
    const omm_client_options options = omm_client_options_default();
    wires_round(s_wires, 3);
    CHECK_OK(omm_client_open(&client, url, &options));
    for (int i = 0; i < 3; i++) pass(client, OMM_COORD_NOBODY, CHUNK);
    CHECK(down_of(0) == before[0] && down_of(1) == before[1]);
    omm_client_close(client);
}

/* What was counted is there again after a restart, of each node its own; who joined since begins with nothing. */
static void test_kept(const char *folder) {
    watch_wire before[2];
    for (size_t i = 0; i < 2; i++) before[i] = wires_of(s_wires, i);
    CHECK(before[0].up != before[0].down && before[0].down != before[1].down);
    CHECK_OK(wires_keep(s_wires));
    wires_close(s_wires);
    s_run.node_count = 3;
    CHECK_OK(wires_open(&s_wires, &s_run, 3, folder));
    for (size_t i = 0; i < 2; i++)
        CHECK(wires_of(s_wires, i).up == before[i].up &&
              wires_of(s_wires, i).down == before[i].down);
    CHECK(wires_of(s_wires, 2).up == 0 && wires_of(s_wires, 2).down == 0);
    CHECK_EQ(wires_connection(s_wires, 1), 0); /* of this process */
}

/* Counts of a run that began before adapters were counted go on as they were, beside which no others are begun. */
static void test_kept_before(void) {
    char folder[] = "/tmp/omm-wires-XXXXXX", path[OMM_PATH_MAX], other[OMM_PATH_MAX];
    uint8_t counts[2 * 16];
    omm_buf text;
    omm_arena arena;
    omm_bundle *bundle;
    omm_wire_record record;
    wires *w;
    CHECK(mkdtemp(folder));
    CHECK_OK(omm_path_join(path, folder, "wire"));
    CHECK_OK(omm_path_join(other, folder, "traffic"));
    for (uint64_t i = 0; i < 4; i++) omm_put_u64(counts + 8 * i, 1000 + i);
    CHECK_OK(omm_file_write(path, omm_bytes_of(counts, sizeof counts), 0644));
    CHECK_OK(wires_open(&w, &s_run, 3, folder));
    CHECK(wires_of(w, 1).up == 1002 && wires_of(w, 1).down == 1003);
    CHECK_OK(wires_keep(w));
    CHECK(!omm_file_exists(other));
    omm_buf_init(&text, 1 << 16);
    omm_arena_init(&arena, 1 << 16);
    CHECK_OK(omm_file_read(&text, path));
    CHECK_EQ(text.size, 3 * 16);
    CHECK(memcmp(text.data, counts, sizeof counts) == 0);
    CHECK_OK(omm_path_join(path, folder, "bundle"));
    CHECK_OK(omm_bundle_open(&bundle, path, false));
    CHECK_OK(wires_write(w, bundle, "abc"));
    omm_bundle_close(bundle);
    CHECK_OK(omm_path_join(other, path, "measured/wire.json"));
    omm_buf_clear(&text);
    CHECK_OK(omm_file_read(&text, other));
    CHECK_OK(omm_wire_record_parse(&record, &arena, omm_buf_view(&text)));
    CHECK(!record.has_payloads && record.nodes[0].up_payload == 0);
    wires_close(w);
    omm_arena_fini(&arena);
    omm_buf_fini(&text);
    CHECK_OK(omm_dir_remove(folder));
}

/* In the bundle they are in the order of the nodes' ids, which that of the run need not be. */
static void test_written(const char *folder) {
    char dir[OMM_PATH_MAX], path[OMM_PATH_MAX];
    omm_bundle *bundle;
    omm_wire_record record;
    omm_buf text;
    omm_arena arena;
    CHECK_OK(omm_path_join(dir, folder, "bundle"));
    CHECK_OK(omm_path_join(path, dir, "measured/wire.json"));
    CHECK_OK(omm_bundle_open(&bundle, dir, false));
    for (uint8_t i = 0; i < 3; i++) s_nodes[i].id.b[0] = (uint8_t)(3 - i);
    CHECK_OK(wires_write(s_wires, bundle, "abc"));
    omm_bundle_close(bundle);
    omm_buf_init(&text, 1 << 16);
    omm_arena_init(&arena, 1 << 16);
    CHECK_OK(omm_file_read(&text, path));
    CHECK_OK(omm_wire_record_parse(&record, &arena, omm_buf_view(&text)));
    CHECK_EQ(strcmp(record.run_id, s_run.run_id), 0);
    CHECK_EQ(strcmp(record.commit, "abc"), 0);
    CHECK_EQ(record.node_count, 3);
    CHECK(record.has_payloads);
    for (size_t i = 0; i < 3; i++) {
        const watch_wire is = wires_of(s_wires, 2 - i);
        CHECK_EQ(record.nodes[i].node.b[0], i + 1);
        CHECK(record.nodes[i].up == is.up && record.nodes[i].down == is.down);
        const uint64_t exchanges = is.up / omm_wire_bytes(SMALL);
        CHECK_EQ(record.nodes[i].up_payload, ADAPTER_UP * exchanges);
        CHECK_EQ(record.nodes[i].down_payload, (is.down - omm_wire_bytes(0) * exchanges) / 2);
    }
    omm_arena_fini(&arena);
    omm_buf_fini(&text);
}

/* Where nothing can be kept, or what was kept cannot be read, that is said. */
static void test_no_folder(const char *folder) {
    char path[OMM_PATH_MAX];
    wires *other = NULL;
    CHECK_OK(omm_dir_remove(folder));
    CHECK_ERR(wires_keep(s_wires), OMM_ERR_IO);
    CHECK_OK(omm_path_join(path, folder, "traffic"));
    CHECK_OK(omm_dir_make(path)); /* no file at all */
    CHECK(wires_open(&other, &s_run, 3, folder) != OMM_OK);
    CHECK(!other);
    CHECK_OK(omm_dir_remove(folder));
}

int main(void) {
    char folder[] = "/tmp/omm-wires-XXXXXX", local[64];
    CHECK(mkdtemp(folder));
    (void)snprintf(local, sizeof local, "ipc://%s/socket", folder);
    const omm_server_options options = omm_server_options_default();
    CHECK_OK(omm_server_open(&s_server, &options));
    CHECK_OK(omm_server_listen(s_server, "tcp://127.0.0.1:0"));
    (void)snprintf(s_url, sizeof s_url, "tcp://127.0.0.1:%u", omm_server_port(s_server));
    CHECK_OK(wires_open(&s_wires, &s_run, 2, folder));
    test_base();
    test_nameless();
    CHECK_OK(omm_server_listen(s_server, local));
    test_address(local);
    omm_server_close(s_server);
    test_kept(folder);
    test_written(folder);
    test_kept_before();
    test_no_folder(folder);
    wires_close(s_wires);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

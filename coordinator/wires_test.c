/* wires_test.c - whose bytes are counted: a node's own, on any connection that it names, and of others at its address no
 * more than one adapter a round. */
#include "omm_test.h"

#include "wires.h"

#include "omm/messages.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_MS = 60000, VALUES = 100000, SMALL = 100, CHUNK = 200000 };

static omm_run_node s_nodes[2];
static omm_run_record s_run = {.rounds = 3,
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
    wires_book(s_wires, said_by, exchange, got.size, down);
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
    wires_round(s_wires, 2);
    for (int i = 0; i < 20; i++) pass(other, OMM_COORD_NOBODY, CHUNK);
    CHECK(down_of(1) - before < 2 * (adapter + CHUNK / 4));
    const uint64_t all = down_of(1);
    pass(other, 1, SMALL); /* it was the node: from here on all is its own */
    for (int i = 0; i < 5; i++) pass(other, OMM_COORD_NOBODY, CHUNK);
    CHECK_EQ(down_of(1) - all, omm_wire_bytes(SMALL) + 5 * omm_wire_bytes(CHUNK));
    omm_client_close(other);
}

int main(void) {
    char folder[] = "/tmp/omm-wires-XXXXXX";
    CHECK(mkdtemp(folder));
    const omm_server_options options = omm_server_options_default();
    CHECK_OK(omm_server_open(&s_server, &options));
    CHECK_OK(omm_server_listen(s_server, "tcp://127.0.0.1:0"));
    (void)snprintf(s_url, sizeof s_url, "tcp://127.0.0.1:%u", omm_server_port(s_server));
    CHECK_OK(wires_open(&s_wires, &s_run, 2, folder));
    test_base();
    test_nameless();
    wires_close(s_wires);
    omm_server_close(s_server);
    CHECK_EQ(rmdir(folder), 0);
    return 0;
}

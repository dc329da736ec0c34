/* peers.c - owns the table of a server's connections. */
#include "peers.h"

#include "omm/mem.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

void peers_fini(peers *table) {
    omm_free(table->items);
    *table = (peers){0};
}

bool peers_address(char out[OMM_PEER_SIZE], nng_pipe pipe) {
    nng_sockaddr address;
    char text[INET6_ADDRSTRLEN];
    snprintf(out, OMM_PEER_SIZE, "local");
    if (nng_pipe_get_addr(pipe, NNG_OPT_REMADDR, &address) != 0) return false;
    if (address.s_family == NNG_AF_INET) {
        inet_ntop(AF_INET, &address.s_in.sa_addr, out, OMM_PEER_SIZE);
        return true;
    }
    if (address.s_family == NNG_AF_INET6) {
        inet_ntop(AF_INET6, address.s_in6.sa_addr, text, sizeof text);
        snprintf(out, OMM_PEER_SIZE, "[%s]", text);
        return true;
    }
    return false;
}

static bool has_room(const peers *table, const peer *new_peer, const omm_server_options *options) {
    unsigned untrusted = 0, same_address = 0;
    if (new_peer->is_local) return true;
    for (size_t i = 0; i < table->count; i++) {
        const peer *p = &table->items[i];
        if (p->is_trusted || p->is_local) continue;
        untrusted++;
        same_address += strcmp(p->address, new_peer->address) == 0;
    }
    return untrusted < options->untrusted_max && same_address < options->untrusted_per_peer;
}

bool peers_add(peers *table, nng_pipe pipe, const omm_server_options *options, uint64_t now_ms) {
    peer added = {.pipe = nng_pipe_id(pipe), .owner = OMM_OWNER_NONE, .heard_ms = now_ms};
    added.is_local = !peers_address(added.address, pipe);
    if (!has_room(table, &added, options)) return false;
    if (table->count == table->capacity) {
        size_t capacity = table->capacity > 0 ? 2 * table->capacity : 16;
        peer *items = omm_grow(table->items, table->capacity, capacity, sizeof *items);
        if (!items) return false;
        table->items = items;
        table->capacity = capacity;
    }
    table->items[table->count++] = added;
    return true;
}

peer *peers_find(peers *table, nng_pipe pipe) {
    for (size_t i = 0; i < table->count; i++) {
        if (table->items[i].pipe == nng_pipe_id(pipe)) return &table->items[i];
    }
    return NULL;
}

void peers_remove(peers *table, nng_pipe pipe) {
    peer *gone = peers_find(table, pipe);
    if (gone) *gone = table->items[--table->count];
}

size_t peers_idle(int *pipes, size_t max, const peers *table, uint64_t idle_ms, uint64_t now_ms) {
    size_t found = 0;
    for (size_t i = 0; i < table->count && found < max; i++) {
        const peer *p = &table->items[i];
        if (p->is_trusted || p->is_local || now_ms - p->heard_ms < idle_ms) continue;
        pipes[found++] = p->pipe;
    }
    return found;
}

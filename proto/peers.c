/* peers.c - owns the table of a server's connections. */
#include "peers.h"

#include "omm/mem.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

void peers_fini(peers *table) {
    omm_free(table->items);
    omm_free(table->pipes);
    *table = (peers){0};
}

/* ---- who is at the other end ---- */

static void name_ipv4(peer *out, const void *address, uint16_t port) {
    uint32_t number;
    memcpy(&number, address, sizeof number);
    inet_ntop(AF_INET, address, out->address, sizeof out->address);
    out->network = ntohl(number);
    out->port = port;
}

static void name_ipv6(peer *out, const uint8_t address[16], uint16_t port) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    char text[INET6_ADDRSTRLEN];
    if (memcmp(address, mapped, sizeof mapped) == 0) { /* to a socket for both */
        name_ipv4(out, address + sizeof mapped, port);
        return;
    }
    inet_ntop(AF_INET6, address, text, sizeof text);
    (void)snprintf(out->address, sizeof out->address, "[%s]", text);
    out->network = 0;
    for (unsigned i = 0; i < 8; i++) out->network = out->network << 8 | address[i];
    out->port = port;
}

void peers_name(peer *out, const struct sockaddr_storage *address) {
    const struct sockaddr_in *four = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
    out->is_local = address->ss_family != AF_INET && address->ss_family != AF_INET6;
    (void)snprintf(out->address, sizeof out->address, "local");
    if (address->ss_family == AF_INET) name_ipv4(out, &four->sin_addr, four->sin_port);
    if (address->ss_family == AF_INET6) name_ipv6(out, six->sin6_addr.s6_addr, six->sin6_port);
}

void peers_name_pipe(peer *out, nng_pipe pipe) {
    nng_sockaddr a = {0};
    (void)snprintf(out->address, sizeof out->address, "local");
    out->is_local = nng_pipe_get_addr(pipe, NNG_OPT_REMADDR, &a) != 0 ||
                    (a.s_family != NNG_AF_INET && a.s_family != NNG_AF_INET6);
    if (out->is_local) return;
    if (a.s_family == NNG_AF_INET) name_ipv4(out, &a.s_in.sa_addr, a.s_in.sa_port);
    if (a.s_family == NNG_AF_INET6)
        name_ipv6(out, (const uint8_t *)a.s_in6.sa_addr, a.s_in6.sa_port);
}

void peers_network(char out[OMM_PEER_SIZE], const peer *p) {
    char text[INET6_ADDRSTRLEN];
    uint8_t bytes[16] = {0};
    (void)snprintf(out, OMM_PEER_SIZE, "%s", p->address);
    if (p->address[0] != '[') return;
    for (unsigned i = 0; i < 8; i++) bytes[i] = (uint8_t)(p->network >> (56 - 8 * i));
    inet_ntop(AF_INET6, bytes, text, sizeof text);
    (void)snprintf(out, OMM_PEER_SIZE, "[%s]/64", text);
}

static bool is_same(const peer *a, const peer *b) {
    return a->port == b->port && strcmp(a->address, b->address) == 0;
}

/* Its descriptor is still its own. */
static bool is_there(const peer *p) {
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    peer now = {0};
    if (p->fd < 0 || getpeername(p->fd, (struct sockaddr *)&address, &size) != 0) return false;
    peers_name(&now, &address);
    return !now.is_local && is_same(&now, p);
}

/* ---- turned away ---- */

const char *omm_turned_name(omm_turned reason) {
#define XX(name, text) #text,
    static const char *const names[] = {OMM_TURNED_MAP(XX)};
#undef XX
    return reason < OMM_TURNED_REASONS ? names[reason] : "?";
}

uint64_t omm_wire_turned_away(const omm_wire_count *count) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < OMM_TURNED_REASONS; i++) sum += count->turned_away[i];
    return sum;
}

static void turn(peers *table, omm_turned reason, uint64_t now_ms) {
    table->turned[reason]++;
    table->turned_ms[reason] = now_ms;
}

static void take_out(peers *table, peer *gone) {
    const size_t last = --table->count;
    table->pipes[gone - table->items] = table->pipes[last];
    *gone = table->items[last];
}

/* Ended where nng will find it. */
static void shut(peer *p) {
    if (is_there(p)) (void)shutdown(p->fd, p->pipe ? SHUT_RD : SHUT_RDWR);
    p->is_shut = true;
}

static bool is_quiet(const peer *p, uint64_t now_ms) {
    return !p->has_spoken || now_ms - p->heard_ms >= PEERS_QUIET_MS;
}

bool peers_end(peers *table, peer *p, omm_turned reason, uint64_t now_ms) {
    const bool is_known = p->fd >= 0;
    if (p->is_leaving) return true;
    if (reason < OMM_TURNED_REASONS) turn(table, reason, now_ms);
    p->is_leaving = true;
    p->since_ms = now_ms;
    if (is_quiet(p, now_ms)) shut(p);
    if (p->pipe == 0) take_out(table, p);
    return is_known;
}

static bool is_stranger(const peer *p) {
    return !p->is_trusted && !p->is_local && !p->is_leaving;
}

size_t peers_strangers(const peers *table) {
    size_t count = 0;
    for (size_t i = 0; i < table->count; i++) count += is_stranger(&table->items[i]);
    return count;
}

size_t peers_stuck(const peers *table, uint64_t now_ms) {
    size_t count = 0;
    for (size_t i = 0; i < table->count; i++)
        count += table->items[i].is_leaving && now_ms - table->items[i].since_ms >= PEERS_STUCK_MS;
    return count;
}

size_t peers_pipes(const peers *table) {
    size_t count = 0;
    for (size_t i = 0; i < table->count; i++) count += table->items[i].pipe != 0;
    return count;
}

static unsigned count_network(const peers *table, uint64_t network) {
    unsigned count = 0;
    for (size_t i = 0; i < table->count; i++)
        count += is_stranger(&table->items[i]) && table->items[i].network == network;
    return count;
}

/* Sockets that are gone without a hello, of all networks or of one. */
static void forget_gone(peers *table, const uint64_t *network, uint64_t now_ms) {
    for (size_t i = table->count; i-- > 0;) {
        peer *p = &table->items[i];
        if (p->pipe != 0 || (network && p->network != *network) || is_there(p)) continue;
        turn(table, OMM_TURNED_NO_HELLO, now_ms);
        take_out(table, p);
    }
}

/* The oldest of those that came with, or after, the most others of their network; NULL: all came with fewer. */
static peer *of_a_crowd(peers *table, unsigned rank) {
    peer *found = NULL;
    for (size_t i = 0; i < table->count; i++) {
        peer *p = &table->items[i];
        if (!is_stranger(p) || p->fd < 0 || p->rank < rank) continue;
        if (!found || p->rank > found->rank ||
            (p->rank == found->rank && p->since_ms < found->since_ms))
            found = p;
    }
    return found;
}

static bool make_room(peers *table, peer *added, const omm_server_options *options) {
    const uint64_t now_ms = added->since_ms;
    unsigned same = count_network(table, added->network);
    if (same >= options->untrusted_per_peer) {
        forget_gone(table, &added->network, now_ms);
        same = count_network(table, added->network);
    }
    if (same >= options->untrusted_per_peer) {
        turn(table, OMM_TURNED_ADDRESS, now_ms);
        return false;
    }
    added->rank = same + 1;
    if (peers_strangers(table) < options->untrusted_max) return true;
    peer *leaves = of_a_crowd(table, added->rank);
    if (!leaves) {
        turn(table, OMM_TURNED_STRANGERS, now_ms);
        return false;
    }
    (void)peers_end(table, leaves, OMM_TURNED_STRANGERS, now_ms);
    return true;
}

/* ---- come and go ---- */

static bool append(peers *table, const peer *added) {
    if (table->count == table->capacity) {
        size_t capacity = table->capacity > 0 ? 2 * table->capacity : 16;
        peer *items = omm_grow(table->items, table->capacity, capacity, sizeof *items);
        if (!items) return false;
        table->items = items;
        int *pipes = omm_grow(table->pipes, table->capacity, capacity, sizeof *pipes);
        if (!pipes) return false;
        table->pipes = pipes;
        table->capacity = capacity;
    }
    table->pipes[table->count] = added->pipe;
    table->items[table->count++] = *added;
    return true;
}

/* That of a socket, before its hello. */
static peer *find_arrived(peers *table, const peer *like) {
    for (size_t i = 0; i < table->count; i++)
        if (table->items[i].pipe == 0 && is_same(&table->items[i], like)) return &table->items[i];
    return NULL;
}

bool peers_arrive(peers *table, int fd, const struct sockaddr_storage *address,
                  const omm_server_options *options, uint64_t now_ms) {
    peer added = {.fd = fd, .owner = OMM_OWNER_NONE, .since_ms = now_ms};
    peers_name(&added, address);
    peer *before = find_arrived(table, &added);
    if (before) take_out(table, before); /* the same port again: that one is over */
    if (options->descriptors_max > 0 && (unsigned)fd >= options->descriptors_max) {
        peer *leaves = of_a_crowd(table, 0);
        if (leaves) (void)peers_end(table, leaves, OMM_TURNED_DESCRIPTORS, now_ms);
        turn(table, OMM_TURNED_DESCRIPTORS, now_ms);
        return false;
    }
    return make_room(table, &added, options) && append(table, &added);
}

bool peers_add(peers *table, nng_pipe pipe, const omm_server_options *options, uint64_t now_ms) {
    peer added = {.fd = -1, .owner = OMM_OWNER_NONE, .since_ms = now_ms};
    peers_name_pipe(&added, pipe);
    added.pipe = nng_pipe_id(pipe);
    peer *arrived = added.is_local ? NULL : find_arrived(table, &added);
    if (arrived) {
        arrived->pipe = table->pipes[arrived - table->items] = added.pipe;
        return true;
    }
    return (added.is_local || make_room(table, &added, options)) && append(table, &added);
}

peer *peers_find(peers *table, nng_pipe pipe) {
    const int wanted = nng_pipe_id(pipe);
    for (size_t i = 0; i < table->count; i++)
        if (table->pipes[i] == wanted) return &table->items[i];
    return NULL;
}

/* nng has ended it, and not the peer: a frame that is too long, or none.  The socket is still there. */
static bool is_ended_here(const peer *p) {
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    if (p->fd < 0 || getsockopt(p->fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
    return info.tcpi_state == TCP_FIN_WAIT1 || info.tcpi_state == TCP_FIN_WAIT2;
}

void peers_remove(peers *table, nng_pipe pipe, uint64_t now_ms) {
    peer *gone = peers_find(table, pipe);
    if (!gone) return;
    if (!gone->is_local && !gone->is_leaving) {
        if (is_ended_here(gone))
            turn(table, OMM_TURNED_FRAME, now_ms);
        else if (!gone->has_spoken)
            turn(table, OMM_TURNED_NO_MESSAGE, now_ms);
    }
    take_out(table, gone);
}

void peers_sweep(peers *table, uint64_t idle_ms, uint64_t now_ms) {
    forget_gone(table, NULL, now_ms);
    for (size_t i = table->count; i-- > 0;) {
        peer *p = &table->items[i];
        if (idle_ms > 0 && is_stranger(p) && p->fd >= 0 && now_ms - p->since_ms >= idle_ms)
            (void)peers_end(table, p, OMM_TURNED_IDLE, now_ms);
        else if (p->is_leaving && !p->is_shut &&
                 (is_quiet(p, now_ms) || now_ms - p->since_ms >= PEERS_LOUD_MS))
            shut(p);
    }
}

/* ---- vouched for ---- */

static peer *of_owner(peers *table, int32_t owner, unsigned *count) {
    peer *oldest = NULL;
    *count = 0;
    for (size_t i = 0; i < table->count; i++) {
        peer *p = &table->items[i];
        if (!p->is_trusted || p->is_local || p->is_leaving || p->owner != owner) continue;
        if (!oldest || p->since_ms < oldest->since_ms) oldest = p;
        ++*count;
    }
    return oldest;
}

void peers_trust(peers *table, nng_pipe pipe, int32_t owner, uint64_t now_ms) {
    peer *from = peers_find(table, pipe);
    unsigned count;
    if (!from) return;
    from->since_ms = now_ms;
    if (from->is_trusted && from->owner == owner) return; /* it was counted */
    from->is_trusted = true;
    from->owner = owner;
    peer *oldest = of_owner(table, owner, &count);
    if (count > PEERS_PER_OWNER) (void)peers_end(table, oldest, OMM_TURNED_NODE, now_ms);
}

/* Attacks on the coordinator by enrolled nodes and by listeners, each as it was first tried: what one
 * peer does must not end the service, spoil the bundle, block another node, or fill the disk. */
#include "peer.h"

#include "omm/file.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define ALLY 1u /* a second node whose key the attacker has */

static fed_options attack_options(void) {
    fed_options options = peer_options();
    options.silent[ALLY] = true;
    options.accept_min = 1;
    options.join_ms = 10;
    return options;
}

static void open_with_ally(peer *p, const fed_options *options) {
    peer_open(p, options);
    peer_poll_as(p, ALLY);
    peer_poll(p);
    peer_until_open(p, 0);
}

static void give_as(peer *p, uint32_t node) {
    p->s.data_commitment = p->f.training[node]->data_commitment;
    peer_seal(p, OMM_CONTEXT_SUBMISSION, &p->f.keys[node]);
    peer_submit(p);
}

static omm_err verdict(peer *p) {
    bool receipt = false;
    return peer_reason_of(p, &receipt);
}

/* A payload that no compression makes small: several chunks. */
static void fill_large(peer *p, uint64_t lane_number) {
    size_t n = p->f.run.layout.value_count;
    float *values = omm_alloc(n, sizeof *values);
    CHECK(values);
    omm_seed seed = omm_seed_from_u64(3);
    omm_rng lane = omm_rng_init(&seed, OMM_PURPOSE_TEST, lane_number, 0);
    fed_units(values, &lane, n);
    for (size_t i = 0; i < n; i++) values[i] = (values[i] - 0.5f) * 1e-3f;
    peer_fill(p, values);
    omm_free(values);
    CHECK(p->s.payload.chunk_count > 2);
}

static fed_options large_options(void) {
    fed_options options = attack_options();
    options.values_cols = 200000;
    options.norm_max = 1000;
    return options;
}

/* verify demands a chain of residuals, so a residual out of nowhere would spoil the bundle. */
static void residual_out_of_nowhere(void) {
    peer p;
    fed_options options = peer_options();
    options.rounds = 2;
    peer_open(&p, &options);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    p.s.residual_after.b[0] ^= 1; /* free to claim */
    omm_digest claimed = p.s.residual_after;
    peer_give(&p);
    CHECK_EQ(verdict(&p), OMM_OK);
    peer_until_open(&p, 1);
    peer_fill(&p, NULL);
    p.s.residual_before = claimed;
    p.s.residual_before.b[5] ^= 1;
    peer_give(&p);
    CHECK_EQ(verdict(&p), OMM_ERR_REFUSED_RESIDUAL);
    fed_run(&p.f);
    CHECK(omm_coord_is_done(p.f.coord));
    fed_seal_and_verify(&p.f);
    peer_close(&p);
}

/* A codec that keeps no residual has none to claim; the bundle says why this one was refused, and is believed. */
static void residual_without_feedback(void) {
    peer p;
    fed_options options = peer_options();
    options.error_feedback = false;
    peer_open(&p, &options);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    p.s.residual_after.b[0] ^= 1;
    peer_give(&p);
    CHECK_EQ(verdict(&p), OMM_ERR_REFUSED_RESIDUAL);
    fed_run(&p.f);
    fed_seal_and_verify(&p.f);
    peer_close(&p);
}

/* The chain goes on from what was claimed, over a restart too. */
static void residual_goes_on(void) {
    peer p;
    fed_options options = peer_options();
    options.rounds = 2;
    options.on_disk = true;
    peer_open(&p, &options);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    p.s.residual_after.b[0] ^= 1;
    omm_digest claimed = p.s.residual_after;
    peer_give(&p);
    fed_restart_coordinator(&p.f);
    peer_until_open(&p, 1);
    peer_fill(&p, NULL);
    p.s.residual_before = claimed;
    peer_give(&p);
    CHECK_EQ(verdict(&p), OMM_OK);
    fed_run(&p.f);
    fed_seal_and_verify(&p.f);
    peer_close(&p);
}

/* Two keys announce one payload in two sizes: nobody's upload may meet the other's. */
static void contradicting_announcements(void) {
    peer p;
    fed_options options = large_options();
    open_with_ally(&p, &options);
    fill_large(&p, 1);
    omm_submission honest = p.s;
    p.s.payload.size = 100;
    p.s.payload.chunk_count = 1;
    give_as(&p, ALLY);
    CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
    p.s = honest;
    peer_give(&p);
    CHECK_EQ(verdict(&p), OMM_OK);
    /* The liar was refused as soon as a chunk came that its manifest names and cannot hold. */
    p.s.payload.size = 100;
    p.s.payload.chunk_count = 1;
    give_as(&p, ALLY);
    CHECK_EQ(verdict(&p), OMM_ERR_REFUSED_SIZE);
    fed_run(&p.f);
    CHECK_EQ(peer_last_round(&p).accepted_count, 2);
    fed_seal_and_verify(&p.f);
    peer_close(&p);
}

/* A manifest over somebody else's payload, with chunk digests that no payload has, or as if its first chunks were all. */
static void borrowed_payload(bool is_shortened) {
    peer p;
    fed_options options = large_options();
    open_with_ally(&p, &options);
    fill_large(&p, 1);
    peer_give(&p);
    CHECK_EQ(verdict(&p), OMM_OK);
    omm_digest chunks[64];
    CHECK(p.s.payload.chunk_count <= 64);
    memcpy(chunks, p.s.payload.chunk_digests, p.s.payload.chunk_count * sizeof *chunks);
    if (is_shortened)
        p.s.payload.size = (uint64_t)--p.s.payload.chunk_count * OMM_CHUNK_BYTES;
    else
        chunks[1].b[3] ^= 1;
    p.s.payload.chunk_digests = chunks;
    give_as(&p, ALLY);
    CHECK_EQ(verdict(&p), OMM_ERR_REFUSED_DIGEST);
    fed_run(&p.f);
    fed_seal_and_verify(&p.f);
    peer_close(&p);
}

/* A true copy is taken: no check can tell it from work.  The evidence shows one payload twice. */
static void copied_payload(void) {
    peer p;
    listener l;
    fed_options options = attack_options();
    listener_open(&l, "payload_copied");
    options.log = &l.log;
    open_with_ally(&p, &options);
    peer_fill(&p, NULL);
    peer_give(&p);
    CHECK_EQ(verdict(&p), OMM_OK);
    CHECK_EQ(l.lines, 0);
    give_as(&p, ALLY);
    CHECK_EQ(verdict(&p), OMM_OK);
    CHECK_EQ(l.lines, 1);
    peer_put(&p, 0); /* whose receipt would it be? */
    CHECK_EQ(p.last.kind, OMM_REPLY_REFUSED);
    fed_run(&p.f);
    omm_round_record round = peer_last_round(&p);
    CHECK_EQ(round.accepted_count, 3);
    uint32_t same = 0;
    for (size_t i = 0; i < round.accepted_count; i++)
        same += omm_digest_equal(&round.accepted[i].payload, &p.s.payload.digest);
    CHECK_EQ(same, 2);
    fed_seal_and_verify(&p.f);
    peer_close(&p);
}

/* One chunk for two who announced the same: the answer is the first one's, and the other asks for its own. */
static void shared_chunk(void) {
    peer p;
    fed_options options = attack_options();
    open_with_ally(&p, &options);
    const uint32_t first = p.f.of_node[PEER] < p.f.of_node[ALLY] ? PEER : ALLY;
    peer_fill(&p, NULL);
    give_as(&p, first == PEER ? ALLY : PEER);
    CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
    give_as(&p, first);
    CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
    peer_put(&p, 0);
    CHECK_EQ(verdict(&p), OMM_OK);
    CHECK_EQ(omm_coord_last_node(p.f.coord), (int32_t)p.f.of_node[first]);
    give_as(&p, first == PEER ? ALLY : PEER);
    CHECK_EQ(verdict(&p), OMM_OK);
    fed_run(&p.f);
    CHECK_EQ(peer_last_round(&p).accepted_count, 3);
    peer_close(&p);
}

/* One chunk for three, the second of whom lies about its size and is refused for it: the answer is the first one's all the same. */
static void shared_chunk_of_three(void) {
    peer p;
    fed_options options = large_options();
    uint32_t by_index[3];
    options.silent[0] = true;
    peer_open(&p, &options);
    for (uint32_t i = 0; i < 2; i++) peer_poll_as(&p, i);
    peer_until_open(&p, 0);
    CHECK_EQ(omm_coord_get_status(p.f.coord).selected, 3);
    for (uint32_t i = 0; i < 3; i++) by_index[p.f.of_node[i]] = i;
    fill_large(&p, 1);
    const omm_submission honest = p.s;
    for (uint32_t i = 0; i < 3; i++) {
        p.s = honest;
        if (i == 1) p.s.payload.size = 100;
        if (i == 1) p.s.payload.chunk_count = 1;
        give_as(&p, by_index[i]);
        CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
    }
    peer_put(&p, 0);
    CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
    CHECK_EQ(omm_coord_last_node(p.f.coord), 0);
    CHECK_EQ(omm_coord_get_status(p.f.coord).refused, 1);
    CHECK(!omm_coord_get_node(p.f.coord, 0).settled && omm_coord_get_node(p.f.coord, 1).settled);
    peer_close(&p);
}

/* Of what was refused nobody is told that it was copied. */
static void copied_from_a_refused_one(void) {
    peer p;
    listener l;
    fed_options options = attack_options();
    listener_open(&l, "payload_copied");
    options.log = &l.log;
    open_with_ally(&p, &options);
    peer_fill(&p, NULL);
    p.s.payload.canonical.b[0] ^= 1;
    give_as(&p, ALLY);
    peer_put(&p, 0);
    CHECK_EQ(verdict(&p), OMM_ERR_REFUSED_DIGEST);
    p.s.payload.canonical.b[0] ^= 1;
    peer_give(&p);
    CHECK_EQ(verdict(&p), OMM_OK);
    CHECK_EQ(l.lines, 0);
    peer_close(&p);
}

/* A listener sends a manifest again that its node has replaced: the newer one goes on. */
static void replay_of_a_replaced_manifest(void) {
    peer p;
    fed_options options = large_options();
    open_with_ally(&p, &options);
    fill_large(&p, 1);
    peer_seal(&p, OMM_CONTEXT_SUBMISSION, &p.f.keys[PEER]);
    peer_submit(&p);
    CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
    omm_buf captured;
    omm_buf_init(&captured, OMM_ENVELOPE_BYTES_MAX);
    CHECK_OK(omm_buf_append(&captured, p.envelope.data, p.envelope.size));
    fill_large(&p, 2);
    peer_seal(&p, OMM_CONTEXT_SUBMISSION, &p.f.keys[PEER]);
    peer_submit(&p);
    size_t missing = p.last.missing_count;
    omm_request put = {.kind = OMM_REQUEST_PUT,
                       .digest = p.s.payload.digest,
                       .data = omm_chunk_view(omm_buf_view(&p.payload), 0)};
    peer_send(&p, &put);
    CHECK_EQ(p.last.missing_count, missing - 1);
    omm_request replay = {.kind = OMM_REQUEST_SUBMIT, .envelope = omm_buf_view(&captured)};
    for (int i = 0; i < 20; i++) {
        peer_send(&p, &replay);
        CHECK_EQ(p.last.kind, OMM_REPLY_RECEIPT);
    }
    peer_submit(&p);
    CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
    CHECK_EQ(p.last.missing_count, missing - 1); /* nothing of it was lost */
    peer_upload(&p);
    CHECK_EQ(verdict(&p), OMM_OK);
    omm_buf_fini(&captured);
    fed_run(&p.f);
    fed_seal_and_verify(&p.f);
    peer_close(&p);
}

static uint64_t folder_bytes(const char *dir);

/* Half uploads, started over and over: the folder holds one at most, and nothing after the round. */
static void start_over_and_over(peer *p, const char *uploads) {
    uint32_t taken = 0;
    for (uint32_t i = 0; i < 12; i++) {
        fill_large(p, i);
        peer_seal(p, OMM_CONTEXT_SUBMISSION, &p->f.keys[PEER]);
        peer_submit(p);
        if (p->last.kind != OMM_REPLY_NEED) {
            CHECK_EQ(verdict(p), OMM_ERR_REFUSED_DUPLICATE);
            continue;
        }
        taken++;
        omm_request put = {.kind = OMM_REQUEST_PUT,
                           .digest = p->s.payload.digest,
                           .data = omm_chunk_view(omm_buf_view(&p->payload), 0)};
        peer_send(p, &put);
        CHECK_EQ(p->last.kind, OMM_REPLY_NEED);
        CHECK(folder_bytes(uploads) <=
              2 * (uint64_t)OMM_CHUNK_BYTES + 4096); /* and an honest one */
    }
    CHECK_EQ(taken, 5); /* in each round: the times of another one do not count */
}

static void half_uploads(void) {
    peer p;
    char uploads[OMM_PATH_MAX];
    fed_options options = large_options();
    options.on_disk = true;
    options.deadline_ms = 60000;
    options.rounds = 2;
    open_with_ally(&p, &options);
    CHECK_OK(omm_path_join(uploads, p.f.dir, "coordinator/uploads"));
    start_over_and_over(&p, uploads);
    while (omm_coord_get_status(p.f.coord).round == 0) CHECK(fed_step(&p.f));
    peer_until_open(&p, 1);
    start_over_and_over(&p, uploads);
    fed_run(&p.f);
    CHECK_EQ(folder_bytes(uploads), 0);
    fed_seal_and_verify(&p.f);
    peer_close(&p);
}

static omm_err add_size(void *ud, const char *path) {
    void **both = ud;
    char full[OMM_PATH_MAX];
    uint64_t bytes = 0;
    OMM_TRY(omm_path_join(full, both[0], path));
    OMM_TRY(omm_file_size(&bytes, full));
    *(uint64_t *)both[1] += bytes;
    return OMM_OK;
}

static uint64_t folder_bytes(const char *dir) {
    uint64_t sum = 0;
    char copy[OMM_PATH_MAX];
    (void)snprintf(copy, sizeof copy, "%s", dir);
    void *both[2] = {copy, &sum};
    CHECK_OK(omm_dir_walk(dir, add_size, both));
    return sum;
}

/* A sum that no evaluation can judge is held back, and the run goes on. */
static void candidate_without_a_loss(void) {
    fed f;
    fed_options options = fed_options_default();
    options.loss_nan = true;
    fed_open(&f, &options);
    fed_run(&f);
    CHECK(omm_coord_is_done(f.coord));
    peer p = {.f = f};
    omm_arena_init(&p.arena, (size_t)1 << 24);
    omm_round_record round = peer_last_round(&p);
    CHECK(!round.published);
    CHECK(!round.voided);
    CHECK_EQ(round.accepted_count, 3);
    omm_arena_fini(&p.arena);
    fed_seal_and_verify(&f);
    fed_close(&f);
}

/* No file can be opened where a node starts over: what it announced before is there as it was, and its chunks that somebody
 * sends again end nothing but its upload. */
static void starts_over_without_descriptors(void) {
    peer p;
    omm_buf bytes;
    struct rlimit limit;
    fed_options options = large_options();
    options.on_disk = true;
    open_with_ally(&p, &options);
    fill_large(&p, 1);
    peer_seal(&p, OMM_CONTEXT_SUBMISSION, &p.f.keys[PEER]);
    peer_submit(&p);
    peer_put(&p, 0);
    CHECK_EQ(p.last.kind, OMM_REPLY_NEED);
    p.s.loss_after = 0.5f;
    peer_seal(&p, OMM_CONTEXT_SUBMISSION, &p.f.keys[PEER]);
    const omm_request request = {.kind = OMM_REQUEST_SUBMIT, .envelope = omm_buf_view(&p.envelope)};
    omm_buf_init(&bytes, OMM_MESSAGE_BYTES_MAX);
    CHECK_OK(omm_request_encode(&bytes, &request));
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_max = limit.rlim_max}), 0);
    CHECK_ERR(omm_coord_step(&p.reply, &p.f.coord_deadline_ms, p.f.coord, p.f.now_ms,
                             omm_buf_view(&bytes), "test"),
              OMM_ERR_IO);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    omm_buf_fini(&bytes);
    for (uint32_t i = 0; i < p.s.payload.chunk_count; i++) peer_put(&p, i);
    CHECK_EQ(omm_coord_get_status(p.f.coord).accepted, 1);
    CHECK(omm_coord_get_node(p.f.coord, p.f.of_node[PEER]).settled);
    peer_close(&p);
}

/* Whoever has given sends what would be refused: it has its verdict, and a round that waits for others does not end by that. */
static void refused_after_accepted(void) {
    peer p;
    bool receipt = false;
    fed_options o = peer_options();
    for (uint32_t i = 0; i < o.nodes; i++) o.silent[i] = true;
    peer_open(&p, &o);
    for (uint32_t i = 0; i < o.nodes; i++) peer_poll_as(&p, i);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    peer_give(&p);
    CHECK_OK(peer_reason_of(&p, &receipt));
    for (uint64_t i = 1; i < o.nodes; i++) {
        p.s.base_digest.b[0] ^= 1;
        p.s.tokens++; /* another one each time */
        peer_seal(&p, OMM_CONTEXT_SUBMISSION, &p.f.keys[PEER]);
        peer_submit(&p);
        CHECK_EQ(peer_reason_of(&p, &receipt),
                 i % 2 ? OMM_ERR_REFUSED_BASE : OMM_ERR_REFUSED_DUPLICATE);
        CHECK(receipt);
    }
    const omm_coord_status status = omm_coord_get_status(p.f.coord);
    CHECK(status.accepted == 1 && status.refused == 0 && status.selected == o.nodes);
    CHECK_EQ(status.state, OMM_COORD_OPEN);
    CHECK(p.f.coord_deadline_ms > p.f.now_ms);
    peer_close(&p);
}

int main(void) {
    refused_after_accepted();
    residual_out_of_nowhere();
    residual_without_feedback();
    residual_goes_on();
    contradicting_announcements();
    borrowed_payload(false);
    borrowed_payload(true);
    copied_payload();
    copied_from_a_refused_one();
    shared_chunk();
    shared_chunk_of_three();
    replay_of_a_replaced_manifest();
    starts_over_without_descriptors();
    half_uploads();
    candidate_without_a_loss();
    return 0;
}

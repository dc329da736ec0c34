/* load.c - many nodes at once against a coordinator that is running: the real protocol, with small random
 * deltas instead of training.  Each node has a connection of its own; a few threads take turns through theirs, so
 * that as many requests are in flight as there are threads.
 *
 * usage: load keys NODES                                       their public keys, a line each
 *        load run URL CERTIFICATE|- MODEL TARGETS NODES THREADS [chunks]
 *                                                              rounds until the run is closed, a JSON line for each;
 *                                                              chunks: nothing small travels whole
 *        load parts MODEL TARGETS [RANK PERCENT_KEPT]          what one submission costs, part by part (16 100)
 *
 * The keys are hashes of numbers: for tests, and worth nothing.
 */
#include "omm/codec.h"
#include "omm/envelope.h"
#include "omm/fedavg.h"
#include "omm/file.h"
#include "omm/gguf.h"
#include "omm/lora.h"
#include "omm/mem.h"
#include "omm/messages.h"
#include "omm/model.h"
#include "omm/tls.h"
#include "omm/transport.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MS 60000u
#define PAUSE_US 20000u /* after a turn in which no node had anything to do */
#define THREADS_MAX 64
#define ARENA_BYTES ((size_t)64 << 20)
#define PARTS_REPEATS 200

#define MUST(expr)                                                                                 \
    do {                                                                                           \
        omm_err must_err = (expr);                                                                 \
        if (must_err != OMM_OK) {                                                                  \
            fprintf(stderr, "load: %s\n", omm_err_detail());                                       \
            exit(3);                                                                               \
        }                                                                                          \
    } while (0)

/* ---- what all nodes share ---- */

typedef struct shape {
    omm_model model;
    omm_lora lora;
    omm_segment *segments;
    omm_layout layout;
} shape;

static void open_shape(shape *s, const char *path, uint32_t rank, float alpha, uint32_t targets) {
    omm_gguf gguf;
    MUST(omm_gguf_open(&gguf, path));
    MUST(omm_model_load(&s->model, &gguf));
    omm_gguf_close(&gguf);
    omm_lora_spec spec = {.rank = rank, .alpha = alpha, .targets = targets};
    MUST(omm_lora_init(&s->lora, &spec, &s->model.lora_shape));
    s->segments = omm_alloc(s->lora.tensor_count, sizeof *s->segments);
    OMM_ASSERT(s->segments);
    for (size_t i = 0; i < s->lora.tensor_count; i++) {
        const omm_lora_tensor *t = &s->lora.tensors[i];
        s->segments[i] = (omm_segment){t->name, t->rows, t->cols, t->offset};
    }
    s->layout = (omm_layout){s->segments, s->lora.tensor_count, s->lora.value_count};
}

static double now_s(void) {
    struct timespec t;
    OMM_ASSERT(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void key_of(omm_key *out, uint32_t node) {
    uint8_t number[4];
    omm_seed seed;
    omm_put_u32(number, node);
    omm_digest digest = omm_hash_keyed(omm_bytes_str("openmeshmind load test"),
                                       omm_bytes_of(number, sizeof number));
    memcpy(seed.b, digest.b, sizeof seed.b);
    omm_key_from_seed(out, &seed);
}

/* Small, of both signs, another vector for each node and round. */
static void fill(float *values, size_t n, uint32_t node, uint32_t round) {
    uint64_t state = ((uint64_t)node << 32 | round) * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        values[i] = (float)((double)(state >> 40) / (1 << 24) - 0.5) * 1e-4f;
    }
}

/* ---- one node ---- */

typedef struct node {
    uint32_t number;
    omm_key key;
    omm_client *client;
    uint64_t counter;
    uint32_t rounds_done; /* rounds we have a verdict of */
    bool is_closed;
} node;

typedef struct crew {
    pthread_t thread;
    node *nodes;
    uint32_t count;
    const shape *shape;
    const char *url;
    const omm_client_options *options;
    bool whole;
    omm_codec codec;
    omm_arena arena;
    omm_buf request, reply_bytes, payload, envelope, body;
    float *values;
    omm_reply reply;
} crew;

typedef struct tally {
    atomic_uint_fast64_t accepted, refused, requests, bytes;
    atomic_uint round, open; /* the highest round heard of; nodes that are not closed */
} tally;
static tally s_tally;

/* False when the connection was closed: as a stranger's among too many, say. */
static bool ask(crew *c, node *n, const omm_request *request) {
    omm_bytes got;
    omm_buf_clear(&c->request);
    MUST(omm_request_encode(&c->request, request));
    MUST(omm_client_send(n->client, omm_buf_view(&c->request)));
    omm_err err = omm_client_receive(&got, n->client, ANSWER_MS);
    if (err == OMM_ERR_CLOSED) return false;
    MUST(err);
    omm_buf_clear(&c->reply_bytes);
    MUST(omm_buf_append(&c->reply_bytes, got.data, got.size));
    omm_arena_fini(&c->arena);
    omm_arena_init(&c->arena, ARENA_BYTES);
    MUST(omm_reply_decode(&c->reply, omm_buf_view(&c->reply_bytes), &c->arena));
    atomic_fetch_add(&s_tally.requests, 1);
    atomic_fetch_add(&s_tally.bytes, omm_wire_bytes(c->request.size));
    return true;
}

/* By a node that was heard before: it is let in again; asked to wait, it asks again. */
static void ask_until_answered(crew *c, node *n, const omm_request *request) {
    while (!ask(c, n, request) || c->reply.kind == OMM_REPLY_WAIT) usleep(PAUSE_US);
}

static bool poll(crew *c, node *n) {
    omm_poll message = {.counter = ++n->counter};
    omm_buf_clear(&c->body);
    omm_buf_clear(&c->envelope);
    MUST(omm_poll_encode(&c->body, &message));
    MUST(omm_envelope_seal(&c->envelope, OMM_CONTEXT_POLL, omm_buf_view(&c->body), &n->key));
    omm_request request = {
        .kind = OMM_REQUEST_POLL, .envelope = omm_buf_view(&c->envelope), .whole = c->whole};
    if (!ask(c, n, &request)) return false;
    if (c->reply.kind == OMM_REPLY_REFUSED && c->reply.reason == OMM_ERR_REFUSED_DUPLICATE)
        n->counter += OMM_COUNTER_BLOCK; /* the coordinator began again */
    return true;
}

/* The manifest of `values`, signed, into c->envelope; its payload in c->payload. */
static omm_digest seal(crew *c, const node *n, const omm_offer *offer,
                       const omm_digest *offer_digest, omm_arena *arena) {
    omm_encoded info;
    const omm_layout *layout = &c->shape->layout;
    fill(c->values, layout->value_count, n->number, offer->round);
    omm_buf_clear(&c->payload);
    MUST(omm_codec_encode(&c->payload, &info, &c->codec, layout, c->values));
    memset(c->values, 0, layout->value_count * sizeof *c->values);
    omm_digest residual =
        omm_hash(omm_bytes_of(c->values, layout->value_count * sizeof *c->values));
    static const uint8_t step[8];
    omm_submission s = {.round = offer->round,
                        .nonce = offer->nonce,
                        .offer_digest = *offer_digest,
                        .base_digest = offer->base_digest,
                        .global_digest = offer->global.digest,
                        .tokens = 1,
                        .examples = 1,
                        .steps = 1, /* of the recipe that load_test.py writes */
                        .step_digests = omm_bytes_of(step, sizeof step),
                        .loss_before = 2,
                        .loss_after = 1,
                        .codec = offer->codec_up,
                        .residual_before = residual,
                        .residual_after = residual};
    memcpy(s.run_id, offer->run_id, sizeof s.run_id);
    MUST(omm_blob_describe(&s.payload, arena, omm_buf_view(&c->payload), &info.payload_digest));
    omm_buf_clear(&c->body);
    omm_buf_clear(&c->envelope);
    MUST(omm_submission_encode(&c->body, &s));
    MUST(omm_envelope_seal(&c->envelope, OMM_CONTEXT_SUBMISSION, omm_buf_view(&c->body), &n->key));
    return s.payload.digest;
}

/* With an offer in c->reply: download the global adapter, upload a delta. */
static void take_part(crew *c, node *n) {
    omm_arena arena; /* c->arena is for replies */
    omm_envelope envelope;
    omm_offer offer;
    omm_buf kept;
    omm_arena_init(&arena, ARENA_BYTES);
    omm_buf_init(&kept, ARENA_BYTES);
    MUST(omm_buf_append(&kept, c->reply.envelope.data, c->reply.envelope.size));
    omm_digest offer_digest = omm_hash(omm_buf_view(&kept));
    MUST(omm_envelope_open_as(&envelope, OMM_CONTEXT_OFFER, omm_buf_view(&kept)));
    MUST(omm_offer_decode(&offer, envelope.payload, &arena));
    if (offer.round >= n->rounds_done) {
        if (offer.round > atomic_load(&s_tally.round)) atomic_store(&s_tally.round, offer.round);
        for (uint32_t i = c->reply.data.size > 0; i < offer.global.chunk_count; i++) {
            omm_request get = {.kind = OMM_REQUEST_GET, .digest = offer.global.digest, .index = i};
            ask_until_answered(c, n, &get);
        }
        MUST(omm_codec_get(&c->codec, offer.codec_up));
        omm_digest payload = seal(c, n, &offer, &offer_digest, &arena);
        omm_request submit = {.kind = OMM_REQUEST_SUBMIT, .envelope = omm_buf_view(&c->envelope)};
        if (c->whole && omm_wire_is_whole(c->envelope.size, c->payload.size))
            submit.data = omm_buf_view(&c->payload);
        ask_until_answered(c, n, &submit);
        while (c->reply.kind == OMM_REPLY_NEED && c->reply.missing_count > 0) {
            uint32_t index = c->reply.missing[0];
            omm_request put = {.kind = OMM_REQUEST_PUT,
                               .digest = payload,
                               .index = index,
                               .data = omm_chunk_view(omm_buf_view(&c->payload), index)};
            ask_until_answered(c, n, &put);
        }
        n->rounds_done = offer.round + 1;
        omm_receipt receipt = {0};
        if (c->reply.kind == OMM_REPLY_RECEIPT) {
            MUST(omm_envelope_open_as(&envelope, OMM_CONTEXT_RECEIPT, c->reply.envelope));
            MUST(omm_receipt_decode(&receipt, envelope.payload, &arena));
        }
        atomic_fetch_add(receipt.accepted ? &s_tally.accepted : &s_tally.refused, 1);
        if (!receipt.accepted)
            fprintf(stderr, "load: node %u round %u: reply %d, %s %s\n", n->number, offer.round,
                    (int)c->reply.kind, c->reply.sentence ? c->reply.sentence : "",
                    receipt.sentence ? receipt.sentence : "");
    }
    omm_arena_fini(&arena);
    omm_buf_fini(&kept);
}

static void *crew_main(void *ud) {
    crew *c = ud;
    uint32_t open = c->count;
    while (open > 0) {
        bool busy = false;
        for (uint32_t i = 0; i < c->count; i++) {
            node *n = &c->nodes[i];
            if (n->is_closed) continue;
            uint32_t before = n->rounds_done;
            if (!n->client) MUST(omm_client_open(&n->client, c->url, c->options));
            if (!poll(c, n)) continue; /* again when its turn comes */
            if (c->reply.kind == OMM_REPLY_OFFER) take_part(c, n);
            if (c->reply.kind == OMM_REPLY_DONE) {
                n->is_closed = true;
                open--;
                atomic_fetch_sub(&s_tally.open, 1);
            }
            busy = busy || n->rounds_done != before;
        }
        if (!busy) usleep(PAUSE_US);
    }
    return NULL;
}

static void crew_open(crew *c, const shape *s) {
    c->shape = s;
    omm_arena_init(&c->arena, ARENA_BYTES);
    omm_buf_init(&c->request, OMM_MESSAGE_BYTES_MAX);
    omm_buf_init(&c->reply_bytes, OMM_MESSAGE_BYTES_MAX);
    omm_buf_init(&c->payload, ARENA_BYTES);
    omm_buf_init(&c->envelope, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&c->body, OMM_ENVELOPE_BYTES_MAX);
    c->values = omm_alloc(s->layout.value_count, sizeof *c->values);
    OMM_ASSERT(c->values);
}

static void crew_close(crew *c) {
    omm_arena_fini(&c->arena);
    omm_buf_fini(&c->request);
    omm_buf_fini(&c->reply_bytes);
    omm_buf_fini(&c->payload);
    omm_buf_fini(&c->envelope);
    omm_buf_fini(&c->body);
    omm_free(c->values);
}

/* ---- the three uses ---- */

static uint64_t since(const atomic_uint_fast64_t *before, const atomic_uint_fast64_t *now) {
    return atomic_load(now) - atomic_load(before);
}

static void report(uint32_t round, double seconds, const tally *before, const tally *now) {
    printf("{\"round\":%u,\"seconds\":%.3f,\"accepted\":%llu,\"refused\":%llu,\"requests\":%llu,"
           "\"bytes_up\":%llu}\n",
           round, seconds, (unsigned long long)since(&before->accepted, &now->accepted),
           (unsigned long long)since(&before->refused, &now->refused),
           (unsigned long long)since(&before->requests, &now->requests),
           (unsigned long long)since(&before->bytes, &now->bytes));
    fflush(stdout);
}

static void report_opened(uint32_t round) {
    printf("{\"opened\":%u}\n", round);
    fflush(stdout);
}

static void copy_tally(tally *out) {
    atomic_store(&out->accepted, atomic_load(&s_tally.accepted));
    atomic_store(&out->refused, atomic_load(&s_tally.refused));
    atomic_store(&out->requests, atomic_load(&s_tally.requests));
    atomic_store(&out->bytes, atomic_load(&s_tally.bytes));
}

/* Two lines for each round: when its offer is heard first (but of round 0: when nodes begin to connect), and when
 * all its verdicts are in or the next one has begun.  A verdict that a node reads after that counts in the next one. */
static void watch(uint32_t nodes) {
    tally before, now;
    copy_tally(&before);
    uint32_t round = 0;
    double begin = now_s();
    report_opened(round);
    while (atomic_load(&s_tally.open) > 0) {
        usleep(1000);
        copy_tally(&now);
        uint64_t settled = atomic_load(&now.accepted) + atomic_load(&now.refused);
        if (settled < (uint64_t)nodes * (round + 1) && atomic_load(&s_tally.round) <= round)
            continue;
        if (settled == atomic_load(&before.accepted) + atomic_load(&before.refused)) continue;
        report(round, now_s() - begin, &before, &now);
        while (atomic_load(&s_tally.round) <= round && atomic_load(&s_tally.open) > 0) usleep(1000);
        if (atomic_load(&s_tally.open) == 0) break;
        round++;
        copy_tally(&before); /* what was asked meanwhile is of no round */
        atomic_store(&before.accepted, atomic_load(&now.accepted));
        atomic_store(&before.refused, atomic_load(&now.refused));
        begin = now_s();
        report_opened(round);
    }
}

static void run(const char *url, const char *certificate, const char *model, uint32_t targets,
                uint32_t count, uint32_t threads, bool whole, uint32_t rank) {
    shape s;
    omm_client_options options = omm_client_options_default();
    omm_buf pem;
    omm_buf_init(&pem, OMM_TLS_PEM_BYTES_MAX);
    if (strcmp(certificate, "-") != 0) MUST(omm_file_read(&pem, certificate));
    options.tls_certificate = omm_buf_view(&pem);
    options.reconnect_min_ms = 10;
    options.reconnect_max_ms = 100; /* the coordinator may be killed and come back */
    open_shape(&s, model, rank, 2 * (float)rank, targets);
    node *nodes = omm_alloc(count, sizeof *nodes);
    static crew crews[THREADS_MAX];
    OMM_ASSERT(nodes);
    for (uint32_t i = 0; i < count; i++) {
        nodes[i].number = i;
        key_of(&nodes[i].key, i);
    }
    atomic_store(&s_tally.open, count);
    uint32_t at = 0;
    for (uint32_t t = 0; t < threads; t++) {
        crew_open(&crews[t], &s);
        crews[t].url = url;
        crews[t].whole = whole;
        crews[t].options = &options;
        crews[t].nodes = nodes + at;
        crews[t].count = count / threads + (t < count % threads);
        at += crews[t].count;
        OMM_ASSERT(pthread_create(&crews[t].thread, NULL, crew_main, &crews[t]) == 0);
    }
    watch(count);
    for (uint32_t t = 0; t < threads; t++) {
        (void)pthread_join(crews[t].thread, NULL);
        crew_close(&crews[t]);
    }
    for (uint32_t i = 0; i < count; i++) omm_client_close(nodes[i].client);
    omm_buf_fini(&pem);
}

typedef void (*part_fn)(void *ud);

typedef struct parts {
    shape s;
    omm_codec codec;
    omm_buf payload, envelope;
    float *values;
    omm_fedavg sum;
    omm_key key;
} parts;

static void part_hash(void *ud) {
    parts *p = ud;
    omm_digest digest = omm_hash(omm_buf_view(&p->payload));
    OMM_ASSERT(!omm_digest_is_zero(&digest));
}

static void part_signature(void *ud) {
    parts *p = ud;
    omm_envelope envelope;
    MUST(omm_envelope_open_as(&envelope, OMM_CONTEXT_SUBMISSION, omm_buf_view(&p->envelope)));
}

static omm_err judge_piece(void *ud, size_t first, const float *values, size_t count) {
    (void)first;
    return omm_norm_piece(ud, values, count);
}

/* As coordinator/upload.c does it: decoded piece by piece, its length taken. */
static void part_judge(void *ud) {
    parts *p = ud;
    omm_encoded info;
    omm_norm norm = {0};
    double length = 0;
    MUST(omm_codec_walk(&info, &p->codec, &p->s.layout, omm_buf_view(&p->payload), judge_piece,
                        &norm));
    MUST(omm_norm_end(&length, &norm, 0));
    OMM_ASSERT(length > 0);
}

static omm_err add_piece(void *ud, size_t first, const float *values, size_t count) {
    return omm_fedavg_piece(ud, first, values, count, NULL);
}

/* As coordinator/sum.c does it: decoded once more, added. */
static void part_add(void *ud) {
    parts *p = ud;
    MUST(omm_fedavg_begin(&p->sum, 1));
    MUST(omm_codec_walk(NULL, &p->codec, &p->s.layout, omm_buf_view(&p->payload), add_piece,
                        &p->sum));
    MUST(omm_fedavg_end(&p->sum));
}

static double time_part(part_fn fn, parts *p) {
    double best = 1e9;
    for (int i = 0; i < PARTS_REPEATS; i++) {
        double begin = now_s();
        fn(p);
        double took = now_s() - begin;
        if (took < best) best = took;
    }
    return best;
}

/* Int8 deltas, `percent` of whose values are kept: what one core does with them, one part after the other. */
static void measure_parts(const char *model, uint32_t targets, uint32_t rank, uint32_t percent) {
    static const struct {
        const char *name;
        part_fn fn;
    } todo[] = {{"hash", part_hash},
                {"signature", part_signature},
                {"judge", part_judge},
                {"add", part_add}};
    parts p = {.codec = {.kind = OMM_CODEC_INT8}};
    omm_fedavg_range range = omm_fedavg_range_default();
    open_shape(&p.s, model, rank, 2 * (float)rank, targets);
    size_t n = p.s.layout.value_count;
    if (percent < 100) p.codec.keep_count = (uint32_t)(n * percent / 100);
    omm_buf_init(&p.payload, omm_codec_sent_bytes_max(&p.codec, &p.s.layout));
    omm_buf_init(&p.envelope, OMM_ENVELOPE_BYTES_MAX);
    p.values = omm_alloc_aligned(n, sizeof *p.values);
    OMM_ASSERT(p.values);
    fill(p.values, n, 1, 1);
    key_of(&p.key, 1);
    MUST(omm_codec_encode(&p.payload, NULL, &p.codec, &p.s.layout, p.values));
    MUST(omm_envelope_seal(
        &p.envelope, OMM_CONTEXT_SUBMISSION,
        omm_bytes_of(p.payload.data, p.payload.size < 2000 ? p.payload.size : 2000), &p.key));
    MUST(omm_fedavg_init(&p.sum, &range, n));
    double took[4], all = 0, megabytes = 4e-6 * (double)n;
    for (size_t i = 0; i < 4; i++) all += took[i] = time_part(todo[i].fn, &p);
    printf("%zu values, %.2f MB as f32, %.3f MB sent (int8, %u %% kept), one thread:\n", n,
           megabytes, 1e-6 * (double)p.payload.size, percent);
    for (size_t i = 0; i < 4; i++)
        printf("  %-10s %8.1f us  %8.0f MB/s of f32  %4.0f %%\n", todo[i].name, 1e6 * took[i],
               megabytes / took[i], 100 * took[i] / all);
    printf("  %-10s %8.1f us  %8.0f MB/s of f32\n", "all", 1e6 * all, megabytes / all);
}

static uint32_t number(const char *text, uint32_t max) {
    char *end = NULL;
    unsigned long value = strtoul(text, &end, 10);
    if (*end || value < 1 || value > max) {
        fprintf(stderr, "load: '%s' is no number of 1 to %u\n", text, max);
        exit(2);
    }
    return (uint32_t)value;
}

static uint32_t targets_of(const char *text) {
    uint32_t targets = 0;
    MUST(omm_lora_targets_parse(&targets, text));
    return targets;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "keys") == 0) {
        uint32_t count = number(argv[2], OMM_SELECTED_MAX);
        for (uint32_t i = 0; i < count; i++) {
            omm_key key;
            char hex[OMM_DIGEST_HEX_SIZE];
            key_of(&key, i);
            omm_hex(hex, omm_bytes_of(key.public_key.b, sizeof key.public_key.b));
            puts(hex);
        }
        return 0;
    }
    const bool in_chunks = (argc == 9 || argc == 10) && strcmp(argv[8], "chunks") == 0;
    if ((argc == 8 || in_chunks) && strcmp(argv[1], "run") == 0) {
        run(argv[2], argv[3], argv[4], targets_of(argv[5]), number(argv[6], OMM_SELECTED_MAX),
            number(argv[7], THREADS_MAX), !in_chunks, argc == 10 ? number(argv[9], 256) : 2);
        return 0;
    }
    if ((argc == 4 || argc == 6) && strcmp(argv[1], "parts") == 0) {
        measure_parts(argv[2], targets_of(argv[3]), argc == 6 ? number(argv[4], 256) : 16,
                      argc == 6 ? number(argv[5], 100) : 100);
        return 0;
    }
    fprintf(stderr, "usage: load keys NODES | load run URL CERTIFICATE|- MODEL TARGETS NODES "
                    "THREADS [chunks [RANK]] | "
                    "load parts MODEL TARGETS [RANK PERCENT_KEPT]\n");
    return 2;
}

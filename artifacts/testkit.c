#include "testkit.h"
#include "internal.h"
#include "omm/envelope.h"
#include "omm/fedavg.h"
#include "omm/policy.h"
#include "omm/wire.h"
#include "omm_test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUF_MAX (1u << 20)
#define KIT_RECIPE_BYTES 84u

static const omm_segment s_segments[] = {
    {"blk.0.attn_q.weight.lora_a", 2, 4, 0},
    {"blk.0.attn_q.weight.lora_b", 3, 2, 8},
};

/* What one call of kit_make works on. */
typedef struct maker {
    kit *k;
    const kit_options *options;
    omm_bundle *bundle;
    omm_arena arena;
    omm_buf scenario;
    uint8_t recipe[KIT_RECIPE_BYTES];
    omm_run_record run;
    omm_run_node run_nodes[KIT_NODES];
    omm_seed seed;
    float master[KIT_VALUES];
    float broadcast[KIT_VALUES]; /* decoded */
    omm_encoded sent;            /* of the broadcast */
    omm_buf sent_bytes;
    omm_digest previous, offer_digest;
    omm_digest residual[KIT_NODES];
    omm_offer offer;
    size_t offer_bytes;
    uint32_t ledger_lines, state_lines;
    omm_digest repro_canonical[KIT_ROUNDS * KIT_NODES];
    omm_round_record rounds[KIT_ROUNDS];
    double loss;
} maker;

void kit_temp_dir(char out[OMM_PATH_MAX]) {
    const char *tmp = getenv("TMPDIR");
    snprintf(out, OMM_PATH_MAX, "%s/omm_bundle_XXXXXX", tmp ? tmp : "/tmp");
    CHECK(mkdtemp(out) != NULL);
}

static void key_of(omm_key *out, omm_purpose purpose, const char *name, const omm_seed *seed) {
    omm_seed s = omm_seed_derive(seed, purpose, omm_bytes_str(name));
    omm_key_from_seed(out, &s);
}

static void make_keys(kit *k, const omm_seed *seed) {
    static const char *const names[KIT_NODES] = {"home-01", "home-02", "home-03"};
    key_of(&k->coordinator, OMM_PURPOSE_COORD_KEY, "coordinator", seed);
    key_of(&k->bundle, OMM_PURPOSE_BUNDLE_KEY, "bundle", seed);
    key_of(&k->stranger, OMM_PURPOSE_TEST, "stranger", seed);
    for (size_t i = 0; i < KIT_NODES; i++) {
        key_of(&k->nodes[i], OMM_PURPOSE_NODE_KEY, names[i], seed);
        k->ids[i] = omm_key_id(&k->nodes[i].public_key);
        k->names[i] = names[i];
    }
    for (size_t i = 1; i < KIT_NODES; i++) /* insertion sort by id */
        for (size_t j = i; j > 0 && omm_digest_compare(&k->ids[j - 1], &k->ids[j]) > 0; j--) {
            omm_key key = k->nodes[j];
            omm_digest id = k->ids[j];
            const char *name = k->names[j];
            k->nodes[j] = k->nodes[j - 1];
            k->ids[j] = k->ids[j - 1];
            k->nodes[j - 1] = key;
            k->ids[j - 1] = id;
            k->names[j] = k->names[j - 1];
            k->names[j - 1] = name;
        }
}

static void put(maker *m, const char *path, const omm_buf *bytes) {
    CHECK_OK(omm_bundle_put(m->bundle, path, omm_buf_view(bytes)));
}

static void put_text(maker *m, const char *path, const char *text) {
    CHECK_OK(omm_bundle_put(m->bundle, path, omm_bytes_str(text)));
}

/* In the effective form: what run.json has follows from it. */
static const char s_scenario[] = "schema_version: 1\n"
                                 "name: \"kit\"\n"
                                 "seed: 1\n"
                                 "model: \"base.gguf\"\n"
                                 "train: \"train.jsonl\"\n"
                                 "test: \"test.jsonl\"\n"
                                 "rounds: 3\n"
                                 "population:\n"
                                 "  - group: \"homes\"\n"
                                 "    clients: [\"home-01\", \"home-02\", \"home-03\"]\n"
                                 "    count: 0\n"
                                 "    hostile: \"none\"\n"
                                 "    tokens_per_s: 2000\n"
                                 "    slowdown: 1\n"
                                 "    uplink_kbit_s: 5000\n"
                                 "    downlink_kbit_s: 20000\n"
                                 "    latency_ms: 30\n"
                                 "    jitter_ms: 0\n"
                                 "    dropout: 0\n"
                                 "round:\n"
                                 "  quorum: 0\n"
                                 "  select: 0\n"
                                 "  deadline_ms: 60000\n"
                                 "  accept_min: 2\n"
                                 "  join_ms: 60000\n"
                                 "  loss_increase_max: 0.5\n"
                                 "recipe:\n"
                                 "  rank: 2\n"
                                 "  alpha: 4\n"
                                 "  targets: \"q\"\n"
                                 "  parts: \"ab\"\n"
                                 "  dropout: 0\n"
                                 "  steps: 2\n"
                                 "  batch_tokens: 500\n"
                                 "  micro_tokens: 512\n"
                                 "  seq_max: 500\n"
                                 "  learning_rate: 0.5\n"
                                 "  warmup_steps: 0\n"
                                 "  lr_min_ratio: 1\n"
                                 "  beta1: 0.5\n"
                                 "  beta2: 0.5\n"
                                 "  epsilon: 0.5\n"
                                 "  weight_decay: 0\n"
                                 "  clip_norm: 1\n"
                                 "  prox_mu: 0\n"
                                 "  seed_lane: 0\n"
                                 "codec:\n"
                                 "  up:\n"
                                 "    kind: \"int8\"\n"
                                 "    topk_fraction: 1\n"
                                 "    zstd_level: 0\n"
                                 "    byte_budget: 0\n"
                                 "    error_feedback: true\n"
                                 "  down:\n"
                                 "    kind: \"f16\"\n"
                                 "    zstd_level: 3\n"
                                 "aggregation:\n"
                                 "  value_max: 1\n"
                                 "  weight_sum_max: 4294967296\n"
                                 "  norm_max: 3\n"
                                 "evaluation:\n"
                                 "  round_items: 4\n"
                                 "  generate: true\n"
                                 "  new_tokens_max: 64\n"
                                 "  clients: \"federated\"\n";
static const char s_scenario_end[] = "audit:\n"
                                     "  submissions: 1\n"
                                     "  other_threads: true\n"
                                     "  lower_isa: true\n"
                                     "  scalar_steps: 2\n"
                                     "policy: \"\"\n";
/* The recipe in there, as train/ writes it; numbers that f32 has exactly. */
static void fill_recipe(uint8_t out[KIT_RECIPE_BYTES]) {
    static const float halves[] = {0.5f, 0.5f, 0.5f}, one = 1.0f, four = 4.0f, rate = 0.5f;
    const uint32_t whole[] = {2, 0, 1, 0, 0, 2, 500, 512, 500};
    memset(out, 0, KIT_RECIPE_BYTES);
    memcpy(out, (const uint8_t[]){'O', 'M', 'M', 'R'}, 4);
    omm_put_u32(out + 4, 1);
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        omm_put_u32(out + 8 + 4 * i, whole[i]);
    omm_put_f32(out + 12, four);
    omm_put_f32(out + 44, rate);
    omm_put_f32(out + 52, one); /* lr_min_ratio */
    for (size_t i = 0; i < 3; i++) omm_put_f32(out + 56 + 4 * i, halves[i]);
    omm_put_f32(out + 72, one); /* clip_norm */
}

/* Thresholds that this made-up run passes. */
static const char s_policy[] =
    "communication:\n"
    "  saving_vs_fp32: {level: informational, direction: at_least, threshold: 0.5, samples_min: "
    "1}\n"
    "  wire_saving_vs_fp32: {level: informational, direction: at_least, threshold: 0.4, "
    "samples_min: 1}\n"
    "fairness:\n"
    "  jain_index: {level: required, direction: at_least, threshold: 0.3, samples_min: 1}\n"
    "bootstrap: {seed: 1, resamples: 1000}\n";

static const char *control_line(bool control) {
    return control ? "control_uncompressed: true\n" : "control_uncompressed: false\n";
}

/* Its first occurrence. */
static void replace(omm_buf *text, const char *from, const char *to) {
    omm_buf out;
    CHECK_OK(omm_buf_append(text, "", 1));
    const char *start = (const char *)text->data, *at = strstr(start, from);
    CHECK(at != NULL);
    omm_buf_init(&out, BUF_MAX);
    if (at)
        CHECK_OK(omm_buf_printf(&out, "%.*s%s%s", (int)(at - start), start, to, at + strlen(from)));
    omm_buf_fini(text);
    *text = out;
}

static void write_scenario(maker *m) {
    omm_buf_init(&m->scenario, BUF_MAX);
    CHECK_OK(omm_buf_printf(&m->scenario, "%s%s%s", s_scenario,
                            control_line(!m->options->no_control), s_scenario_end));
    if (m->options->no_feedback)
        replace(&m->scenario, "error_feedback: true", "error_feedback: false");
    if (m->options->from) replace(&m->scenario, m->options->from, m->options->to);
}

/* Up to the codecs it is always the same. */
omm_err kit_read_scenario(omm_scenario_facts *out, const char **about, omm_bytes text,
                          const omm_run_record *run) {
    const size_t size = (size_t)(strstr(s_scenario, "codec:") - s_scenario);
    const char *control = control_line(true), *own = "clients: \"federated\"";
    (void)run;
    *about = "scenario.yaml";
    if (text.size < size || memcmp(text.data, s_scenario, size) != 0)
        return omm_raise(OMM_ERR_CONFIG, "is not the kit's");
    *out = (omm_scenario_facts){.seed = 1,
                                .steps = 2,
                                .audited = 1,
                                .audits_threads = true,
                                .audits_isa = true,
                                .scalar_steps = 2,
                                .accept_min = KIT_ACCEPT_MIN,
                                .deadline_ms = KIT_DEADLINE_MS,
                                .round_items = KIT_SAMPLE,
                                .seq_max = KIT_SEQ_MAX,
                                .own_clients = memmem(text.data, text.size, own, strlen(own)),
                                .generate = true,
                                .control = memmem(text.data, text.size, control, strlen(control))};
    return OMM_OK;
}

/* With all defaults written out. */
static void put_policy(maker *m) {
    omm_policy policy;
    omm_buf out;
    omm_buf_init(&out, BUF_MAX);
    CHECK_OK(
        omm_config_parse(&policy, omm_policy_fields, omm_bytes_str(s_policy), "policy", &m->arena));
    CHECK_OK(omm_config_write(&out, omm_policy_fields, &policy));
    put(m, "policy.yaml", &out);
    omm_buf_fini(&out);
}

static void fill_run_id(maker *m) {
    omm_hasher h;
    omm_digest scenario = omm_hash(omm_buf_view(&m->scenario));
    omm_hasher_init(&h);
    omm_hasher_update(&h, omm_bytes_str("omm.run"));
    omm_hasher_update(&h, omm_bytes_of(m->seed.b, 32));
    omm_hasher_update(&h, omm_bytes_of(scenario.b, 32));
    omm_digest id = omm_hasher_final(&h);
    omm_hex(m->run.run_id, omm_bytes_of(id.b, 16));
}

static void make_run(maker *m) {
    omm_run_record *run = &m->run;
    fill_run_id(m);
    run->name = "kit";
    run->has_seed = true;
    run->seed = 1;
    run->simulated = true;
    run->rounds = KIT_ROUNDS;
    run->base.name = "base.gguf";
    run->base.bytes = 12345;
    run->base.digest = omm_hash(omm_bytes_str("base"));
    run->base.tokenizer_digest = omm_hash(omm_bytes_str("tokenizer"));
    run->base.architecture = "llama";
    run->base.fingerprint = omm_hash(omm_bytes_str("fingerprint"));
    run->base.title = "Base";
    run->rank = 2;
    run->alpha = 4.0f;
    run->targets = 1;
    run->layout = (omm_layout){s_segments, 2, KIT_VALUES};
    fill_recipe(m->recipe);
    run->recipe = omm_bytes_of(m->recipe, sizeof m->recipe);
    run->codec_up = (omm_codec){.kind = OMM_CODEC_INT8, .error_feedback = !m->options->no_feedback};
    run->codec_down = (omm_codec){.kind = OMM_CODEC_F16, .zstd_level = 3};
    run->value_max = 1;
    run->weight_sum_max = 1ull << 32;
    run->norm_max = 3;
    run->tokens_max = 1000;
    run->loss_increase_max = 0.5;
    run->coordinator_key = m->k->coordinator.public_key;
    for (size_t i = 0; i < KIT_NODES; i++)
        m->run_nodes[i] = (omm_run_node){.name = m->k->names[i],
                                         .id = m->k->ids[i],
                                         .public_key = m->k->nodes[i].public_key,
                                         .client = m->options->joined ? "" : m->k->names[i],
                                         .data_digest = omm_hash(omm_bytes_of(&i, 1)),
                                         .examples = 10 + i};
    for (size_t i = 0; m->options->joined && i < KIT_NODES; i++) {
        m->run_nodes[i].data_digest = (omm_digest){{0}};
        m->run_nodes[i].examples = 0;
    }
    run->nodes = m->run_nodes;
    run->node_count = KIT_NODES;
    run->test_digest = omm_hash(omm_bytes_str("test"));
    run->test_items = KIT_ITEMS;
    if (m->options->change_run) m->options->change_run(run);
    omm_buf out;
    omm_buf_init(&out, BUF_MAX);
    CHECK_OK(omm_run_record_write(&out, run));
    put(m, "run.json", &out);
    omm_buf_fini(&out);
}

/* Small values that differ by round and node, exact in binary. */
static float made_up(uint32_t round, size_t node, size_t i) {
    uint32_t x = round * 7919u + (uint32_t)node * 104729u + (uint32_t)i * 1299709u;
    return (float)((int32_t)(x % 255) - 127) * 0x1p-12f;
}

static void put_state(maker *m, uint32_t number) {
    uint8_t raw[4 * KIT_VALUES];
    for (size_t i = 0; i < KIT_VALUES; i++) omm_put_f32(raw + 4 * i, m->master[i]);
    CHECK_OK(omm_bundle_put(m->bundle, omm_bundle_path_master(number).text,
                            omm_bytes_of(raw, sizeof raw)));
    omm_buf_clear(&m->sent_bytes);
    CHECK_OK(
        omm_codec_encode(&m->sent_bytes, &m->sent, &m->run.codec_down, &m->run.layout, m->master));
    CHECK_OK(omm_codec_decode(m->broadcast, NULL, &m->run.codec_down, &m->run.layout,
                              omm_buf_view(&m->sent_bytes)));
    put(m, omm_bundle_path_adapter(number).text, &m->sent_bytes);
}

static omm_bytes codec_bytes(maker *m, const omm_codec *codec) {
    uint8_t *out = omm_arena_alloc(&m->arena, OMM_CODEC_BYTES, 1);
    CHECK(out != NULL);
    omm_codec_put(out, codec);
    return omm_bytes_of(out, OMM_CODEC_BYTES);
}

/* Seal `payload`, put it at `path`, give its digest and size. */
static omm_digest put_envelope(maker *m, const char *path, omm_context context,
                               const omm_buf *payload, const omm_key *key, size_t *size) {
    omm_buf env;
    omm_buf_init(&env, BUF_MAX);
    CHECK_OK(omm_envelope_seal(&env, context, omm_buf_view(payload), key));
    put(m, path, &env);
    omm_digest digest = omm_hash(omm_buf_view(&env));
    if (size) *size = env.size;
    omm_buf_fini(&env);
    return digest;
}

omm_digest kit_nonce(uint32_t round) {
    uint8_t number[4];
    omm_digest out;
    const omm_seed seed = omm_seed_from_u64(1);
    omm_put_u32(number, round);
    const omm_seed nonce = omm_seed_derive(&seed, OMM_PURPOSE_NONCE, omm_bytes_of(number, 4));
    memcpy(out.b, nonce.b, sizeof out.b);
    return out;
}

static void make_offer(maker *m, uint32_t round) {
    omm_offer *o = &m->offer;
    *o =
        (omm_offer){.round = round,
                    .rounds = KIT_ROUNDS,
                    .base_digest = m->run.base.digest,
                    .tokenizer_digest = m->run.base.tokenizer_digest,
                    .adapter = {m->run.rank, m->run.alpha, m->run.targets, KIT_VALUES,
                                omm_layout_digest(&m->run.layout)},
                    .recipe = m->run.recipe,
                    .codec_up = codec_bytes(m, &m->run.codec_up),
                    .codec_down = codec_bytes(m, &m->run.codec_down),
                    .value_max = 1,
                    .weight_sum_max = m->run.weight_sum_max,
                    .norm_max = (float)m->run.norm_max,
                    .deadline_ms = KIT_DEADLINE_MS,
                    .payload_bytes_max = omm_codec_sent_bytes_max(&m->run.codec_up, &m->run.layout),
                    .tokens_max = m->run.tokens_max,
                    .selected = m->k->ids,
                    .selected_count = KIT_NODES,
                    .previous = m->previous};
    memcpy(o->run_id, m->run.run_id, sizeof o->run_id);
    o->nonce = kit_nonce(round);
    CHECK_OK(omm_blob_describe(&o->global, &m->arena, omm_buf_view(&m->sent_bytes),
                               &m->sent.payload_digest));
    if (m->options->other_canonical && round == KIT_ROUNDS - 1) o->global.canonical.b[0] ^= 1;
    if (m->options->small_payloads && round == KIT_ROUNDS - 1) o->payload_bytes_max = 8;
    omm_buf payload;
    omm_buf_init(&payload, BUF_MAX);
    CHECK_OK(omm_offer_encode(&payload, o));
    m->offer_digest = put_envelope(m, omm_bundle_path_offer(round).text, OMM_CONTEXT_OFFER,
                                   &payload, &m->k->coordinator, &m->offer_bytes);
    omm_buf_fini(&payload);
}

static omm_digest zero_vector(void) {
    static const uint8_t zeros[4 * KIT_VALUES];
    return omm_hash(omm_bytes_of(zeros, sizeof zeros));
}

/* As a simulated node has it. */
static omm_digest commitment(const maker *m, size_t node) {
    const omm_run_node *n = &m->run_nodes[node];
    const omm_seed seed = omm_seed_from_u64(m->run.seed);
    const omm_seed key = omm_seed_derive(&seed, OMM_PURPOSE_COMMIT_KEY, omm_bytes_str(n->name));
    return omm_hash_keyed(omm_bytes_of(key.b, sizeof key.b),
                          omm_bytes_of(n->data_digest.b, sizeof n->data_digest.b));
}

static void describe(maker *m, omm_submission *s, uint32_t round, size_t node,
                     const omm_buf *payload, const omm_encoded *info) {
    static const uint8_t steps[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    *s = (omm_submission){.round = round,
                          .nonce = m->offer.nonce,
                          .offer_digest = m->offer_digest,
                          .base_digest = m->run.base.digest,
                          .global_digest = m->offer.global.digest,
                          .tokens = 500 + 100 * node,
                          .examples = m->options->joined ? 10 : m->run_nodes[node].examples,
                          .steps = 2,
                          .loss_before = 3.0f,
                          .loss_after = 2.0f,
                          .codec = codec_bytes(m, &m->run.codec_up),
                          .data_commitment = commitment(m, node),
                          .residual_before = m->residual[node],
                          .residual_after = omm_hash(omm_bytes_of(&round, sizeof round)),
                          .step_digests = omm_bytes_of(steps, sizeof steps)};
    if (m->options->bad_residual && node == 0 && round > 0)
        s->residual_before = omm_hash(omm_bytes_str("never had"));
    memcpy(s->run_id, m->run.run_id, sizeof s->run_id);
    CHECK_OK(
        omm_blob_describe(&s->payload, &m->arena, omm_buf_view(payload), &info->payload_digest));
}

static void put_receipt(maker *m, const char *path, const omm_digest *node,
                        const omm_digest *submission, omm_err reason, omm_digest *digest,
                        size_t *size) {
    omm_receipt r = {.round = m->offer.round,
                     .node_id = *node,
                     .submission_digest = *submission,
                     .accepted = reason == OMM_OK,
                     .reason = reason,
                     .sentence = reason == OMM_OK ? "" : "over the bound"};
    memcpy(r.run_id, m->run.run_id, sizeof r.run_id);
    omm_buf payload;
    omm_buf_init(&payload, BUF_MAX);
    CHECK_OK(omm_receipt_encode(&payload, &r));
    *digest = put_envelope(m, path, OMM_CONTEXT_RECEIPT, &payload, &m->k->coordinator, size);
    omm_buf_fini(&payload);
}

static void put_ledger(maker *m, size_t node, size_t submission_bytes, uint64_t payload_bytes,
                       size_t receipt_bytes) {
    omm_ledger_record row = {
        .round = m->offer.round, .node = m->k->ids[node], .fp32 = 8 * (uint64_t)KIT_VALUES};
    omm_wire_round sizes = {omm_wire_poll_bytes(m->offer.round),
                            m->offer_bytes,
                            m->offer.global.size,
                            submission_bytes,
                            payload_bytes,
                            receipt_bytes};
    omm_wire_round_bytes(&row.up, &row.down, &sizes);
    omm_buf line;
    omm_buf_init(&line, BUF_MAX);
    CHECK_OK(omm_ledger_record_write(&line, &row));
    CHECK_OK(
        omm_bundle_put_line(m->bundle, "ledger.jsonl", m->ledger_lines++, omm_buf_view(&line)));
    omm_buf_fini(&line);
}

/* One accepted submission, from values to receipt. */
static omm_round_accepted accept_one(maker *m, omm_fedavg *acc, size_t node) {
    uint32_t round = m->offer.round;
    float values[KIT_VALUES];
    omm_buf sent;
    omm_buf payload;
    omm_encoded info;
    omm_submission s;
    size_t envelope_bytes = 0;
    size_t receipt_bytes = 0;
    omm_round_accepted line = {.node = m->k->ids[node]};
    const bool is_same = m->options->same_payloads;
    for (size_t i = 0; i < KIT_VALUES; i++)
        values[i] = is_same ? made_up(0, 0, i) : made_up(round, node, i);
    omm_buf_init(&sent, BUF_MAX);
    omm_buf_init(&payload, BUF_MAX);
    CHECK_OK(omm_codec_encode(&sent, &info, &m->run.codec_up, &m->run.layout, values));
    CHECK_OK(omm_codec_decode(values, NULL, &m->run.codec_up, &m->run.layout, omm_buf_view(&sent)));
    describe(m, &s, round, node, &sent, &info);
    if (m->options->claim && round == KIT_ROUNDS - 1) m->options->claim(&s);
    m->residual[node] = s.residual_after;
    put(m, omm_bundle_path_payload(&info.sent_digest).text, &sent);
    CHECK_OK(omm_submission_encode(&payload, &s));
    line.submission =
        put_envelope(m, omm_bundle_path_submission(round, &line.node).text, OMM_CONTEXT_SUBMISSION,
                     &payload, &m->k->nodes[node], &envelope_bytes);
    put_receipt(m, omm_bundle_path_receipt(round, &line.node).text, &line.node, &line.submission,
                OMM_OK, &line.receipt, &receipt_bytes);
    line.tokens = s.tokens;
    line.payload = info.sent_digest;
    line.canonical = info.payload_digest;
    CHECK_OK(omm_norm_check(&line.norm, values, KIT_VALUES, m->run.norm_max));
    CHECK_OK(omm_fedavg_add(acc, values, s.tokens, NULL));
    put_ledger(m, node, envelope_bytes, sent.size, receipt_bytes);
    omm_buf_fini(&payload);
    omm_buf_fini(&sent);
    return line;
}

static void encode(maker *m, omm_buf *sent, omm_encoded *info, const kit_refusal *f) {
    float values[KIT_VALUES];
    const size_t node = f->node < KIT_NODES ? f->node : 0;
    for (size_t i = 0; i < KIT_VALUES; i++) values[i] = made_up(f->round + 100, node, i);
    if (f->fill) f->fill(values);
    CHECK_OK(omm_codec_encode(sent, info, &m->run.codec_up, &m->run.layout, values));
    if (f->repack) f->repack(sent);
}

/* The bytes that were refused. */
static void write_refused(maker *m, omm_buf *out, const kit_refusal *f) {
    omm_submission s;
    omm_encoded info;
    omm_buf bytes;
    const omm_key *key = f->node < KIT_NODES ? &m->k->nodes[f->node] : &m->k->stranger;
    omm_buf_init(&bytes, BUF_MAX);
    encode(m, &bytes, &info, f);
    describe(m, &s, f->round, f->node < KIT_NODES ? f->node : 0, &bytes, &info);
    if (f->write) f->write(&s);
    if (f->has_payload) {
        const omm_digest digest = omm_hash(omm_buf_view(&bytes));
        put(m, omm_bundle_path_payload(&digest).text, &bytes);
    }
    omm_buf_clear(&bytes);
    CHECK_OK(omm_submission_encode(&bytes, &s));
    CHECK_OK(omm_envelope_seal(out, f->is_poll ? OMM_CONTEXT_POLL : OMM_CONTEXT_SUBMISSION,
                               omm_buf_view(&bytes), key));
    if (f->spoil) f->spoil(m->k, out);
    omm_buf_fini(&bytes);
}

static omm_err reason_named(const char *name) {
#define XX(code, text)                                                                             \
    if (strcmp(name, #code) == 0) return OMM_ERR_##code;
    OMM_ERR_MAP(XX)
#undef XX
    return OMM_ERR_REFUSED_LATE; /* a name that there is not, and a receipt that differs */
}

static omm_round_refused refuse_one(maker *m, const kit_refusal *f, uint32_t place) {
    omm_envelope env;
    omm_buf bytes;
    omm_buf_init(&bytes, BUF_MAX);
    write_refused(m, &bytes, f);
    const bool is_envelope = omm_envelope_open(&env, omm_buf_view(&bytes)) == OMM_OK;
    put(m, omm_bundle_path_refused(f->round, place, f->reason, is_envelope != f->is_renamed).text,
        &bytes);
    omm_round_refused line = {.reason = f->reason, .submission = omm_hash(omm_buf_view(&bytes))};
    const omm_digest node =
        f->names_stranger ? omm_key_id(&m->k->stranger.public_key) : m->k->ids[f->node % KIT_NODES];
    line.has_node = !f->no_node;
    if (line.has_node) line.node = node;
    line.has_receipt = !f->no_receipt;
    if (line.has_receipt)
        put_receipt(m, omm_bundle_path_refused_receipt(f->round, place).text, &node,
                    &line.submission, reason_named(f->reason), &line.receipt, NULL);
    omm_buf_fini(&bytes);
    return line;
}

static void too_large(float *values) {
    for (size_t i = 0; i < KIT_VALUES; i++) values[i] = 0.875f;
}

static void junk(const kit *k, omm_buf *envelope) {
    (void)k;
    omm_buf_clear(envelope);
    CHECK_OK(omm_buf_append(envelope, "junk", 4));
}

/* Round 0 gets junk without signature; the last round refuses its last node with a receipt. */
static const kit_refusal s_refusals[] = {
    {.round = 0, .reason = "REFUSED_FORMAT", .spoil = junk, .no_node = true, .no_receipt = true},
    {.round = KIT_ROUNDS - 1,
     .node = KIT_NODES - 1,
     .reason = "REFUSED_NORM",
     .fill = too_large,
     .has_payload = true},
};

static size_t refuse_some(maker *m, omm_round_refused *list) {
    const bool is_ours = m->options->refusals == NULL;
    const kit_refusal *from = is_ours ? s_refusals : m->options->refusals;
    const size_t count =
        is_ours ? sizeof s_refusals / sizeof *s_refusals : m->options->refusal_count;
    size_t taken = 0;
    for (size_t i = 0; i < count; i++) {
        if (from[i].round != m->offer.round) continue;
        list[taken] = refuse_one(m, &from[i], (uint32_t)taken);
        taken++;
    }
    return taken;
}

#define NLL_BEFORE 30
#define NLL_AFTER 10

static bool s_has_twins;

static size_t first_of(size_t i) {
    return s_has_twins && i == 2 ? 0 : i;
}

static omm_digest item_digest(size_t i) {
    i = first_of(i);
    return omm_hash(omm_bytes_of(&i, sizeof i));
}

static double item_nll(double nll, size_t i) {
    return nll + 0.5 * (double)first_of(i);
}

static uint64_t item_tokens(size_t i) {
    return 10 + first_of(i);
}

/* Of the items of lowest digest, in the order of the file. */
static double sample_loss(double nll) {
    double sum = 0, tokens = 0;
    for (size_t i = 0; i < KIT_ITEMS; i++) {
        const omm_digest own = item_digest(i);
        size_t lower = 0;
        for (size_t k = 0; k < KIT_ITEMS; k++) {
            const omm_digest other = item_digest(k);
            const int order = omm_digest_compare(&other, &own);
            lower += order < 0 || (order == 0 && k < i);
        }
        if (lower >= KIT_SAMPLE) continue;
        sum += item_nll(nll, i);
        tokens += (double)item_tokens(i);
    }
    return sum / tokens;
}

static void put_loss(maker *m, uint32_t state, double loss) {
    omm_state_record s = {state, KIT_SAMPLE, loss};
    omm_buf line;
    omm_buf_init(&line, BUF_MAX);
    CHECK_OK(omm_state_record_write(&line, &s));
    CHECK_OK(
        omm_bundle_put_line(m->bundle, "eval/rounds.jsonl", m->state_lines++, omm_buf_view(&line)));
    omm_buf_fini(&line);
}

static void finish_round(maker *m, omm_round_record *line, omm_fedavg *acc) {
    uint32_t round = m->offer.round;
    line->round = round;
    line->offer = m->offer_digest;
    line->selected = m->k->ids;
    line->selected_count = KIT_NODES;
    line->weight_sum = acc->weight_sum;
    if (!line->voided) {
        float mean[KIT_VALUES];
        bool bad = m->options->hold_back && round == KIT_ROUNDS - 1;
        CHECK_OK(omm_fedavg_mean(mean, acc, NULL));
        line->published = !bad;
        line->evaluated = true;
        line->eval_items = KIT_SAMPLE;
        line->eval_loss = bad ? 9.0
                          : m->options->other_end || (round == 0 && !m->options->hold_back)
                              ? 2.75
                              : sample_loss(NLL_AFTER);
        if (!bad) CHECK_OK(omm_server_step_plain(m->master, mean, KIT_VALUES));
        put_loss(m, round + 1, line->eval_loss);
    }
    put_state(m, round + 1);
    uint8_t raw[4 * KIT_VALUES];
    for (size_t i = 0; i < KIT_VALUES; i++) omm_put_f32(raw + 4 * i, m->master[i]);
    line->master = omm_hash(omm_bytes_of(raw, sizeof raw));
    line->broadcast = m->sent.sent_digest;
    omm_buf text;
    omm_buf_init(&text, BUF_MAX);
    CHECK_OK(omm_round_record_write(&text, line));
    CHECK_OK(omm_bundle_put_line(m->bundle, "rounds.jsonl", round, omm_buf_view(&text)));
    m->previous = omm_hash(omm_buf_view(&text));
    m->rounds[round] = *line;
    omm_buf_fini(&text);
}

/* Who is neither accepted nor refused by name. */
static void fill_missing(maker *m, omm_round_record *line, omm_digest *missing) {
    line->missing = missing;
    for (size_t n = 0; n < KIT_NODES; n++) {
        bool spoke = false;
        for (size_t i = 0; i < line->accepted_count; i++)
            spoke |= omm_digest_equal(&line->accepted[i].node, &m->k->ids[n]);
        for (size_t i = 0; i < line->refused_count; i++)
            spoke |= line->refused[i].has_node &&
                     omm_digest_equal(&line->refused[i].node, &m->k->ids[n]);
        if (!spoke) missing[line->missing_count++] = m->k->ids[n];
    }
}

/* Round 0: all three.  Round 1: void, the first alone.  Round 2: two, and one refused. */
static void make_round(maker *m, uint32_t round) {
    bool dropped = round == KIT_ROUNDS - 1 && m->options->drop_last;
    size_t from = dropped ? 1 : 0;
    size_t to = round == 0 ? KIT_NODES : round == 1 ? 1 : KIT_NODES - 1;
    const size_t most = m->options->refusal_count + KIT_NODES;
    omm_round_accepted *accepted = omm_arena_alloc(&m->arena, KIT_NODES, sizeof *accepted);
    omm_round_refused *refused = omm_arena_alloc(&m->arena, most, sizeof *refused);
    omm_digest *missing = omm_arena_alloc(&m->arena, KIT_NODES, sizeof *missing);
    CHECK(accepted && refused && missing);
    omm_round_record line = {.accepted = accepted,
                             .refused = refused,
                             .voided =
                                 round == 1 || (round == KIT_ROUNDS - 1 && m->options->void_last)};
    omm_fedavg acc;
    omm_fedavg_range range = omm_fedavg_range_default();
    CHECK_OK(omm_fedavg_init(&acc, &range, KIT_VALUES));
    make_offer(m, round);
    for (size_t n = from; n < to; n++) accepted[line.accepted_count++] = accept_one(m, &acc, n);
    line.refused_count = refuse_some(m, refused);
    fill_missing(m, &line, missing);
    finish_round(m, &line, &acc);
    omm_fedavg_fini(&acc);
}

static void put_eval(maker *m, const char *path, double nll, bool generated) {
    static const char *const clients[] = {"home-01", "home-02", "home-03"};
    omm_buf out;
    omm_buf_init(&out, BUF_MAX);
    for (size_t i = 0; i < KIT_ITEMS; i++) {
        omm_eval_record row = {.item = item_digest(i),
                               .client = clients[i % 3],
                               .skill = i % 2 ? "calculator" : "talk",
                               .nll = item_nll(nll, i),
                               .tokens = item_tokens(i),
                               .is_tool = i % 2 == 1,
                               .generated = generated,
                               .parsed = generated && i % 2 == 1 && nll < 20,
                               .tool_ok = generated && i % 2 == 1 && nll < 20,
                               .exact = false,
                               .reply = !generated         ? ""
                                        : first_of(i) == 0 ? "caf\xc3\xa9 \"quoted\"\n"
                                                           : "ok"};
        CHECK_OK(omm_eval_record_write(&out, &row));
    }
    put(m, path, &out);
    omm_buf_fini(&out);
}

static void put_wire(maker *m) {
    omm_wire_node nodes[KIT_NODES];
    for (size_t i = 0; i < KIT_NODES; i++)
        nodes[i] = (omm_wire_node){m->k->ids[i], 2000 + 10 * i, 3000, i, 162, 159 - i};
    omm_wire_record wire = {.commit = KIT_COMMIT,
                            .nodes = nodes,
                            .node_count = KIT_NODES,
                            .has_payloads = !m->options->plain_wire};
    memcpy(wire.run_id, m->run.run_id, sizeof wire.run_id);
    omm_buf out;
    omm_buf_init(&out, BUF_MAX);
    CHECK_OK(omm_wire_record_write(&out, &wire));
    put(m, "measured/wire.json", &out);
    omm_buf_fini(&out);
}

static void put_repro(maker *m) {
    omm_audit_item *order = NULL;
    size_t count = 0;
    char hex[OMM_DIGEST_HEX_SIZE];
    CHECK_OK(omm_audit_order(&order, &count, &m->arena, m->rounds, KIT_ROUNDS));
    CHECK(count >= 5);
    const omm_round_accepted *first = &m->rounds[order[0].round].accepted[order[0].index];
    omm_digest_hex(hex, &first->canonical);
    omm_repro_check checks[] = {
        {order[0].round, true, first->node, "threads", "avx2", 2, 0, hex, hex},
        {order[0].round, true, first->node, "isa", "scalar", 1, 0, hex, hex},
        {order[0].round, true, first->node, "scalar", "scalar", 1, 2,
         "090a0b0c0d0e0f10000000000000000000000000000000000000000000000000",
         "090a0b0c0d0e0f10000000000000000000000000000000000000000000000000"},
    };
    omm_repro_record repro = {.commit = KIT_COMMIT,
                              .isa = "avx2",
                              .threads = 1,
                              .other_isa = true,
                              .checks = checks,
                              .check_count = 3};
    memcpy(repro.run_id, m->run.run_id, sizeof repro.run_id);
    omm_buf out;
    omm_buf_init(&out, BUF_MAX);
    CHECK_OK(omm_repro_record_write(&out, &repro));
    put(m, "measured/repro.json", &out);
    omm_buf_fini(&out);
}

omm_err kit_render(void *ud, omm_buf *out, const omm_run_record *run, const float *values) {
    (void)ud;
    OMM_TRY(omm_buf_append(out, "GGUF", 4));
    for (size_t i = 0; i < run->layout.value_count; i++) {
        uint8_t raw[4];
        omm_put_f32(raw, values[i]);
        OMM_TRY(omm_buf_append(out, raw, 4));
    }
    return OMM_OK;
}

static void make_end(maker *m) {
    omm_buf out;
    omm_buf_init(&out, BUF_MAX);
    omm_render_adapter render = m->options->render ? m->options->render : kit_render;
    CHECK_OK(render(NULL, &out, &m->run, m->broadcast));
    put(m, "final.gguf", &out);
    omm_close c = {.rounds = KIT_ROUNDS,
                   .last_round = m->previous,
                   .final_digest = omm_hash(omm_buf_view(&out))};
    memcpy(c.run_id, m->run.run_id, sizeof c.run_id);
    CHECK_OK(omm_bundle_evidence_digest(&c.eval_digest, m->k->dir));
    omm_buf_clear(&out);
    CHECK_OK(omm_close_encode(&out, &c));
    put_envelope(m, "close.env", OMM_CONTEXT_CLOSE, &out, &m->k->coordinator, NULL);
    omm_buf_fini(&out);
}

/* What round 0 follows. */
static void take_agreed(maker *m) {
    omm_buf policy;
    omm_buf_init(&policy, BUF_MAX);
    CHECK_OK(omm_bundle_file_read(&policy, m->k->dir, "policy.yaml"));
    CHECK_OK(
        omm_run_agreed(&m->previous, &m->run, omm_buf_view(&m->scenario), omm_buf_view(&policy)));
    omm_buf_fini(&policy);
}

void kit_make_open(kit *k, const kit_options *options) {
    maker m;
    memset(&m, 0, sizeof m);
    memset(k, 0, sizeof *k);
    kit_temp_dir(k->dir);
    m.k = k;
    m.options = options;
    s_has_twins = options->twins;
    m.seed = omm_seed_from_u64(1);
    omm_arena_init(&m.arena, BUF_MAX);
    omm_buf_init(&m.sent_bytes, BUF_MAX);
    make_keys(k, &m.seed);
    CHECK_OK(omm_bundle_open(&m.bundle, k->dir, false));
    write_scenario(&m);
    put(&m, "scenario.yaml", &m.scenario);
    put_policy(&m);
    make_run(&m);
    take_agreed(&m);
    for (size_t i = 0; i < KIT_NODES; i++) m.residual[i] = zero_vector();
    for (size_t i = 0; i < KIT_VALUES; i++) m.master[i] = made_up(99, 0, i);
    put_state(&m, 0);
    put_loss(&m, 0, options->other_start ? 3.0 : sample_loss(NLL_BEFORE));
    for (uint32_t r = 0; r < KIT_ROUNDS; r++) make_round(&m, r);
    put_eval(&m, "eval/before.jsonl", NLL_BEFORE, true);
    put_eval(&m, "eval/after.jsonl", NLL_AFTER, true);
    if (!options->no_control) put_eval(&m, "eval/control.jsonl", 9.5, false);
    make_end(&m);
    put_text(&m, "virtual/timeline.jsonl", "{\"ms\":0}\n");
    put_text(&m, "measured/machine.json", "{\"cores\":2}\n");
    put_wire(&m);
    put_repro(&m);
    omm_bundle_close(m.bundle);
    omm_buf_fini(&m.sent_bytes);
    omm_buf_fini(&m.scenario);
    omm_arena_fini(&m.arena);
}

static omm_bundle_seal_options seal_options(const omm_key *key) {
    return (omm_bundle_seal_options){
        .key = key, .commit = KIT_COMMIT, .build = "test", .machine = "test", .wall_ms = 1000};
}

void kit_make(kit *k, const kit_options *options) {
    omm_bundle *bundle = NULL;
    kit_make_open(k, options);
    omm_bundle_seal_options seal = seal_options(&k->bundle);
    CHECK_OK(omm_bundle_open(&bundle, k->dir, false));
    CHECK_OK(omm_bundle_seal(&k->run_digest, &k->judgement, bundle, &seal));
    omm_bundle_close(bundle);
}

void kit_as_service(omm_run_record *run) {
    run->simulated = run->has_seed = false;
}

void kit_remove(kit *k) {
    omm_judgement_fini(&k->judgement);
    CHECK_OK(omm_dir_remove(k->dir));
}

/* --- tampering --- */

typedef struct copy_job {
    const char *from, *to;
} copy_job;

static omm_err copy_file(void *ud, const char *path) {
    const copy_job *job = ud;
    omm_buf bytes;
    omm_buf_init(&bytes, BUF_MAX);
    kit_read(&bytes, job->from, path);
    kit_write(job->to, path, omm_buf_view(&bytes));
    omm_buf_fini(&bytes);
    return OMM_OK;
}

void kit_copy(char out[OMM_PATH_MAX], const char *dir) {
    kit_temp_dir(out);
    copy_job job = {dir, out};
    CHECK_OK(omm_dir_walk(dir, copy_file, &job));
}

void kit_read(omm_buf *out, const char *dir, const char *path) {
    char full[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(full, dir, path));
    CHECK_OK(omm_file_read(out, full));
}

void kit_write(const char *dir, const char *path, omm_bytes bytes) {
    char full[OMM_PATH_MAX];
    char folder[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(full, dir, path));
    CHECK_OK(omm_path_dir(folder, full));
    CHECK_OK(omm_dir_make(folder));
    CHECK_OK(omm_file_write_fast(full, bytes, 0644));
}

void kit_delete(const char *dir, const char *path) {
    char full[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(full, dir, path));
    CHECK(omm_file_exists(full));
    CHECK_OK(omm_file_remove(full));
}

void kit_reseal(const char *dir, const omm_key *key, bool judge) {
    omm_bundle *bundle = NULL;
    omm_digest run_digest;
    omm_bundle_seal_options options = seal_options(key);
    kit_delete(dir, "manifest.json");
    if (judge) {
        CHECK_OK(omm_bundle_open(&bundle, dir, false));
        CHECK_OK(omm_bundle_seal(&run_digest, NULL, bundle, &options));
        omm_bundle_close(bundle);
    } else {
        CHECK_OK(bundle_list_and_sign(&run_digest, dir, &options));
    }
}

void kit_verify(omm_verify_report *report, const char *dir, const omm_public_key *trusted) {
    omm_verify_options options = {
        .trusted = trusted, .render = kit_render, .read_scenario = kit_read_scenario};
    CHECK_OK(omm_bundle_verify(report, dir, &options));
}

bool kit_names(const omm_verify_report *report, const char *check, const char *path) {
    for (size_t i = 0; i < report->failure_count; i++)
        if ((!check || strcmp(report->failures[i].check, check) == 0) &&
            strcmp(report->failures[i].path, path) == 0)
            return true;
    return false;
}

void kit_fails(const kit *k, const char *dir, const char *check, const char *path,
               const char *said) {
    omm_verify_report r;
    bool found = false;
    kit_verify(&r, dir, &k->bundle.public_key);
    for (size_t i = 0; i < r.failure_count; i++)
        found = found ||
                (strcmp(r.failures[i].check, check) == 0 && strcmp(r.failures[i].path, path) == 0 &&
                 strncmp(r.failures[i].reason, said, strlen(said)) == 0);
    for (size_t i = 0; !found && i < r.failure_count; i++)
        fprintf(stderr, "%s: %s: %s\n", r.failures[i].check, r.failures[i].path,
                r.failures[i].reason);
    if (!found) fprintf(stderr, "not said: %s: %s: %s\n", check, path, said);
    CHECK(found && !r.intact && !r.passed);
    omm_verify_report_fini(&r);
    CHECK_OK(omm_dir_remove(dir));
}

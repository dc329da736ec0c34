/* run.json: what was agreed before round 0. */
#include "omm/evidence.h"
#include "record.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define NAME_BYTES_MAX 256u
#define RECIPE_BYTES_MAX 65536u
#define TEXT_BYTES_MAX ((size_t)1 << 28)

static void put_base(record_out *r, const omm_run_record *run) {
    record_out base = record_begin();
    record_put_str(&base, "name", run->base.name);
    record_put_u64(&base, "bytes", run->base.bytes);
    record_put_digest(&base, "digest", &run->base.digest);
    record_put_digest(&base, "tokenizer_digest", &run->base.tokenizer_digest);
    record_put_str(&base, "architecture", run->base.architecture);
    if (!omm_digest_is_zero(&run->base.fingerprint)) {
        record_put_digest(&base, "fingerprint", &run->base.fingerprint);
        record_put_str(&base, "title", run->base.title ? run->base.title : "");
    }
    record_put_record(r, "base", &base);
}

static void put_adapter(record_out *r, const omm_run_record *run) {
    record_out adapter = record_begin();
    json_t *layout = json_array();
    for (size_t i = 0; layout && i < run->layout.segment_count; i++) {
        const omm_segment *s = &run->layout.segments[i];
        record_out segment = record_begin();
        record_put_str(&segment, "name", s->name);
        record_put_u64(&segment, "rows", s->rows);
        record_put_u64(&segment, "cols", s->cols);
        record_put_u64(&segment, "offset", s->offset);
        record_append_record(&adapter, layout, &segment);
    }
    record_put(&adapter, "layout", layout);
    record_put_u64(&adapter, "rank", run->rank);
    record_put_real(&adapter, "alpha", (double)run->alpha);
    record_put_u64(&adapter, "targets", run->targets);
    record_put_record(r, "adapter", &adapter);
}

static void put_nodes(record_out *r, const omm_run_record *run) {
    json_t *nodes = json_array();
    for (size_t i = 0; nodes && i < run->node_count; i++) {
        const omm_run_node *n = &run->nodes[i];
        record_out node = record_begin();
        record_put_str(&node, "name", n->name);
        record_put_digest(&node, "id", &n->id);
        record_put_hex(&node, "public_key", omm_bytes_of(n->public_key.b, 32));
        record_put_str(&node, "client", n->client);
        record_put_digest_if(&node, "data_digest", &n->data_digest,
                             !omm_digest_is_zero(&n->data_digest));
        record_put_u64(&node, "examples", n->examples);
        record_append_record(r, nodes, &node);
    }
    record_put(r, "nodes", nodes);
}

static void put_codec(record_out *r, const char *key, const omm_codec *codec) {
    uint8_t bytes[OMM_CODEC_BYTES];
    omm_codec_put(bytes, codec);
    record_put_hex(r, key, omm_bytes_of(bytes, sizeof bytes));
}

omm_err omm_run_record_write(omm_buf *out, const omm_run_record *run) {
    record_out r = record_begin();
    record_put_u64(&r, "schema_version", OMM_EVIDENCE_SCHEMA_VERSION);
    record_put_str(&r, "run_id", run->run_id);
    record_put_str(&r, "name", run->name);
    if (run->has_seed)
        record_put_u64(&r, "seed", run->seed);
    else
        record_put(&r, "seed", json_null());
    record_put_bool(&r, "simulated", run->simulated);
    record_put_u64(&r, "rounds", run->rounds);
    put_base(&r, run);
    put_adapter(&r, run);
    record_put_hex(&r, "recipe", run->recipe);
    put_codec(&r, "codec_up", &run->codec_up);
    put_codec(&r, "codec_down", &run->codec_down);
    record_put_real(&r, "value_max", run->value_max);
    record_put_u64(&r, "weight_sum_max", run->weight_sum_max);
    record_put_real(&r, "norm_max", run->norm_max);
    record_put_u64(&r, "tokens_max", run->tokens_max);
    record_put_real(&r, "loss_increase_max", run->loss_increase_max);
    record_put_hex(&r, "coordinator_key", omm_bytes_of(run->coordinator_key.b, 32));
    put_nodes(&r, run);
    record_out test = record_begin();
    record_put_digest(&test, "digest", &run->test_digest);
    record_put_u64(&test, "items", run->test_items);
    if (run->test_cut) record_put_u64(&test, "cut", run->test_cut);
    if (run->test_left_out) record_put_u64(&test, "left_out", run->test_left_out);
    record_put_record(&r, "test", &test);
    return record_finish(out, &r);
}

omm_err omm_run_agreed(omm_digest *out, const omm_run_record *record, omm_bytes scenario_yaml,
                       omm_bytes policy_yaml) {
    static const char purpose[] = "omm.agreed";
    omm_run_record nobody = *record;
    omm_buf text;
    omm_hasher h;
    nobody.node_count = 0;
    omm_buf_init(&text, TEXT_BYTES_MAX);
    const omm_err err = omm_run_record_write(&text, &nobody);
    const omm_digest parts[] = {omm_hash(omm_buf_view(&text)), omm_hash(scenario_yaml),
                                omm_hash(policy_yaml)};
    omm_hasher_init(&h);
    omm_hasher_update(&h, omm_bytes_of(purpose, sizeof purpose - 1));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        omm_hasher_update(&h, omm_bytes_of(parts[i].b, sizeof parts[i].b));
    if (err == OMM_OK) *out = omm_hasher_final(&h);
    omm_buf_fini(&text);
    return err;
}

static void get_run_id(record_in *r, char out[OMM_RUN_ID_SIZE]) {
    uint8_t bytes[16];
    record_get_hex(r, "run_id", bytes, sizeof bytes);
    omm_hex(out, omm_bytes_of(bytes, sizeof bytes));
}

static void get_base(record_in *root, omm_run_record *run) {
    record_in base = record_sub(root, "base");
    run->base.name = record_get_str(&base, "name", NAME_BYTES_MAX);
    run->base.bytes = record_get_u64(&base, "bytes", INT64_MAX);
    run->base.digest = record_get_digest(&base, "digest");
    run->base.tokenizer_digest = record_get_digest(&base, "tokenizer_digest");
    run->base.architecture = record_get_str(&base, "architecture", NAME_BYTES_MAX);
    run->base.title = "";
    if (base.err == OMM_OK && json_object_get(base.object, "fingerprint")) {
        run->base.fingerprint = record_get_digest(&base, "fingerprint");
        run->base.title = record_get_str(&base, "title", NAME_BYTES_MAX);
    }
    record_fail(root, base.err);
}

static void get_layout(record_in *root, record_in *adapter, omm_run_record *run) {
    size_t count = 0;
    json_t *array = record_get_array(&count, adapter, "layout", OMM_LAYOUT_SEGMENTS_MAX);
    omm_segment *segments = record_alloc(adapter, count + 1, sizeof *segments);
    for (size_t i = 0; segments && i < count; i++) {
        record_in item = record_item(adapter, array, i);
        segments[i].name = record_get_str(&item, "name", OMM_LAYOUT_NAME_MAX);
        segments[i].rows = (uint32_t)record_get_u64(&item, "rows", UINT32_MAX);
        segments[i].cols = (uint32_t)record_get_u64(&item, "cols", UINT32_MAX);
        segments[i].offset = record_get_u64(&item, "offset", OMM_LAYOUT_VALUES_MAX);
        record_fail(adapter, item.err);
    }
    if (adapter->err != OMM_OK) return record_fail(root, adapter->err);
    size_t end = 0; /* omm_layout_check finds what does not tile */
    if (count && segments)
        end = segments[count - 1].offset +
              (size_t)segments[count - 1].rows * segments[count - 1].cols;
    run->layout = (omm_layout){segments, count, end};
    if (omm_layout_check(&run->layout) != OMM_OK)
        record_fail(root, omm_raise(OMM_ERR_FORMAT, "run.json: adapter layout is not valid"));
}

static void get_adapter(record_in *root, omm_run_record *run) {
    record_in adapter = record_sub(root, "adapter");
    run->rank = (uint32_t)record_get_u64(&adapter, "rank", UINT32_MAX);
    double alpha = record_get_real(&adapter, "alpha");
    if (fabs(alpha) > (double)FLT_MAX)
        record_fail(&adapter, omm_raise(OMM_ERR_FORMAT, "alpha is out of range"));
    run->alpha = adapter.err == OMM_OK ? (float)alpha : 0.0f;
    run->targets = (uint32_t)record_get_u64(&adapter, "targets", UINT32_MAX);
    get_layout(root, &adapter, run);
}

static void get_codec(record_in *r, const char *key, omm_codec *codec) {
    uint8_t bytes[OMM_CODEC_BYTES];
    record_get_hex(r, key, bytes, sizeof bytes);
    if (r->err == OMM_OK) r->err = omm_codec_get(codec, omm_bytes_of(bytes, sizeof bytes));
}

static void get_nodes(record_in *root, omm_run_record *run) {
    json_t *array = record_get_array(&run->node_count, root, "nodes", OMM_EVIDENCE_NODES_MAX);
    omm_run_node *nodes = record_alloc(root, run->node_count + 1, sizeof *nodes);
    run->nodes = nodes;
    for (size_t i = 0; nodes && i < run->node_count; i++) {
        record_in item = record_item(root, array, i);
        nodes[i].name = record_get_str(&item, "name", NAME_BYTES_MAX);
        nodes[i].id = record_get_digest(&item, "id");
        record_get_hex(&item, "public_key", nodes[i].public_key.b, 32);
        nodes[i].client = record_get_str(&item, "client", NAME_BYTES_MAX);
        (void)record_get_digest_if(&nodes[i].data_digest, &item, "data_digest");
        nodes[i].examples = record_get_u64(&item, "examples", INT64_MAX);
        record_fail(root, item.err);
        if (i && root->err == OMM_OK && omm_digest_compare(&nodes[i - 1].id, &nodes[i].id) >= 0)
            record_fail(root, omm_raise(OMM_ERR_FORMAT, "run.json: nodes are not ascending"));
    }
}

/* Offers carry these as f32. */
static void check_reals(record_in *r, const omm_run_record *run) {
    const double max = (double)FLT_MAX;
    if (r->err != OMM_OK) return;
    if (run->value_max < 0 || run->value_max > max || run->norm_max < 0 || run->norm_max > max)
        r->err = omm_raise(OMM_ERR_FORMAT, "run.json: value_max or norm_max is out of range");
}

static void get_version(record_in *r) {
    uint64_t version = record_get_u64(r, "schema_version", INT64_MAX);
    if (r->err == OMM_OK && version != OMM_EVIDENCE_SCHEMA_VERSION)
        r->err = omm_raise(OMM_ERR_VERSION, "run.json: schema_version %llu, this reads %u",
                           (unsigned long long)version, OMM_EVIDENCE_SCHEMA_VERSION);
}

static void get_scalars(record_in *r, omm_run_record *run) {
    get_version(r);
    get_run_id(r, run->run_id);
    run->name = record_get_str(r, "name", NAME_BYTES_MAX);
    run->has_seed = r->err == OMM_OK && !json_is_null(json_object_get(r->object, "seed"));
    if (run->has_seed) run->seed = record_get_u64(r, "seed", INT64_MAX);
    run->simulated = record_get_bool(r, "simulated");
    run->rounds = (uint32_t)record_get_u64(r, "rounds", OMM_EVIDENCE_ROUNDS_MAX);
    run->recipe = record_get_blob(r, "recipe", RECIPE_BYTES_MAX);
    get_codec(r, "codec_up", &run->codec_up);
    get_codec(r, "codec_down", &run->codec_down);
    run->value_max = record_get_real(r, "value_max");
    run->weight_sum_max = record_get_u64(r, "weight_sum_max", INT64_MAX);
    run->norm_max = record_get_real(r, "norm_max");
    run->tokens_max = record_get_u64(r, "tokens_max", INT64_MAX);
    run->loss_increase_max = record_get_real(r, "loss_increase_max");
    check_reals(r, run);
    record_get_hex(r, "coordinator_key", run->coordinator_key.b, 32);
}

/* Written where there are any. */
static uint64_t get_count(record_in *r, const char *key) {
    const bool is_there = r->err == OMM_OK && json_object_get(r->object, key);
    return is_there ? record_get_u64(r, key, INT64_MAX) : 0;
}

omm_err omm_run_record_parse(omm_run_record *out, omm_arena *arena, omm_bytes text) {
    omm_run_record run;
    memset(&run, 0, sizeof run);
    record_in r = record_open(text, "run.json", arena);
    get_scalars(&r, &run);
    get_base(&r, &run);
    get_adapter(&r, &run);
    get_nodes(&r, &run);
    record_in test = record_sub(&r, "test");
    run.test_digest = record_get_digest(&test, "digest");
    run.test_items = record_get_u64(&test, "items", INT64_MAX);
    run.test_cut = get_count(&test, "cut");
    run.test_left_out = get_count(&test, "left_out");
    record_fail(&r, test.err);
    OMM_TRY(record_end(&r));
    omm_buf again;
    omm_buf_init(&again, text.size + 1);
    omm_err err = omm_run_record_write(&again, &run);
    if (err == OMM_OK || err == OMM_ERR_TOO_BIG) err = record_same(text, &again, "run.json");
    omm_buf_fini(&again);
    if (err == OMM_OK) *out = run;
    return err;
}

/* compare.c - see compare.h: read, tell the sides apart, pair, judge. */
#include "omm/compare.h"

#include "internal.h"
#include "settings.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define ARENA_BYTES_MAX (256u << 20)
#define SETTINGS_MAX 8192u /* of one bundle */
#define BOOTSTRAP_SEED 1u
#define RESAMPLES 10000u
#define SEEDS_SHOWN 8u
#define SEEDS_TEXT_SIZE 192u /* so many of 20 digits, with commas */
#define CHANCE 0.05

/* One item of the held-out file, the same in every bundle. */
typedef struct item_key {
    omm_digest item;
    uint64_t tokens;
    bool is_tool, generated;
    size_t client;
} item_key;

typedef struct node_data {
    const char *client;
    omm_digest digest;
} node_data;

typedef struct bundle_data {
    settings settings;
    char run_id[OMM_RUN_ID_SIZE];
    const node_data *nodes;
    size_t node_count;
    bool simulated; /* digests of data are then those of the lines, the same in every run */
    double *means[OMM_COMPARE_QUANTITIES]; /* (clients) of the client's items; NaN without any */
    double mean[OMM_COMPARE_QUANTITIES];   /* over those clients that have some */
} bundle_data;

typedef struct comparer {
    omm_comparison *out;
    omm_compare_bundle *bundles;
    bundle_data *data; /* (bundle_count) */
    omm_compare_client *clients;
    item_key *items;
    const bundle_data *first_a, *first_b;
} comparer;

static void *room(comparer *c, size_t count, size_t size) {
    return omm_arena_alloc(&c->out->arena, count + 1, size);
}

static omm_err no_memory(void) {
    return omm_raise(OMM_ERR_NOMEM, "no memory for the comparison");
}

/* ---- settings -------------------------------------------------------------------------------- */

/* What a setting is not: the seed, names, and where files lay. */
static bool is_a_name(const char *path) {
    static const char *const names[] = {"schema_version", "name", "seed",  "model",
                                        "train",          "test", "policy"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(path, names[i]) == 0) return true;
    return false;
}

static omm_err add_setting(comparer *c, settings *s, const char *prefix, const char *path,
                           const char *value) {
    char text[512];
    if (s->count == SETTINGS_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "over %u settings", SETTINGS_MAX);
    snprintf(text, sizeof text, "%s%s", prefix, path);
    setting *to = &s->items[s->count++];
    *to =
        (setting){omm_arena_strdup(&c->out->arena, text), omm_arena_strdup(&c->out->arena, value)};
    return to->path && to->value ? OMM_OK : no_memory();
}

static omm_err add_file(comparer *c, settings *s, const char *dir, const char *file,
                        const char *prefix) {
    settings parsed = {NULL, 0};
    omm_buf text;
    omm_buf_init(&text, OMM_BUNDLE_FILE_BYTES_MAX);
    omm_err err = omm_bundle_file_read(&text, dir, file);
    if (err == OMM_OK)
        err = omm_err_about(settings_parse(&parsed, &c->out->arena, omm_buf_view(&text)), file);
    for (size_t i = 0; err == OMM_OK && i < parsed.count; i++)
        if (*prefix || !is_a_name(parsed.items[i].path))
            err = add_setting(c, s, prefix, parsed.items[i].path, parsed.items[i].value);
    omm_buf_fini(&text);
    return err;
}

static omm_err read_settings(comparer *c, bundle_data *d, const evidence *ev) {
    settings *s = &d->settings;
    char text[sizeof ev->run.base.digest * 2 + 1];
    s->items = room(c, SETTINGS_MAX, sizeof *s->items);
    node_data *nodes = room(c, ev->run.node_count, sizeof *nodes);
    if (!s->items || !nodes) return no_memory();
    OMM_TRY(add_file(c, s, ev->dir, "scenario.yaml", ""));
    omm_hex(text, omm_bytes_of(&ev->run.base.digest, sizeof ev->run.base.digest));
    OMM_TRY(add_setting(c, s, "", "(base model)", text));
    for (size_t i = 0; i < ev->run.node_count; i++) {
        const omm_run_node *node = &ev->run.nodes[i];
        nodes[i] = (node_data){omm_arena_strdup(&c->out->arena, node->client), node->data_digest};
        if (!nodes[i].client) return no_memory();
    }
    d->nodes = nodes;
    d->node_count = ev->run.node_count;
    d->simulated = ev->run.simulated;
    memcpy(d->run_id, ev->run.run_id, sizeof d->run_id);
    return add_file(c, s, ev->dir, "policy.yaml", "policy.");
}

static bool same_settings(const settings *a, const settings *b) {
    if (a->count != b->count) return false;
    for (size_t i = 0; i < a->count; i++)
        if (strcmp(a->items[i].path, b->items[i].path) != 0 ||
            strcmp(a->items[i].value, b->items[i].value) != 0)
            return false;
    return true;
}

/* Whether a client's data that one node of `a` has are also with one of `b`, if any has the client's. */
static bool has_bytes(const bundle_data *b, const node_data *node) {
    bool client = false;
    for (size_t i = 0; i < b->node_count; i++) {
        if (strcmp(b->nodes[i].client, node->client) != 0) continue;
        if (omm_digest_equal(&b->nodes[i].digest, &node->digest)) return true;
        client = true;
    }
    return !client;
}

static bool same_bytes(const bundle_data *a, const bundle_data *b) {
    for (size_t i = 0; i < a->node_count; i++)
        if (*a->nodes[i].client && !has_bytes(b, &a->nodes[i])) return false;
    return true;
}

/* Data are a setting where they are known to be others: in the simulator, whose file of data has no name in a bundle. */
static bool other_data(const bundle_data *a, const bundle_data *b) {
    return a->simulated && b->simulated && !same_bytes(a, b);
}

/* All clients' data in a few digits, whatever order the nodes have. */
static const char *data_text(comparer *c, const bundle_data *d) {
    uint8_t all[8] = {0};
    char hex[2 * sizeof all + 1];
    for (size_t i = 0; i < d->node_count; i++) {
        omm_hasher h;
        omm_hasher_init(&h);
        omm_hasher_update(&h, omm_bytes_str(d->nodes[i].client));
        omm_hasher_update(&h, omm_bytes_of(d->nodes[i].digest.b, sizeof d->nodes[i].digest.b));
        const omm_digest one = omm_hasher_final(&h);
        for (size_t k = 0; k < sizeof all; k++) all[k] ^= one.b[k];
    }
    omm_hex(hex, omm_bytes_of(all, sizeof all));
    return omm_arena_strdup(&c->out->arena, hex);
}

static bool same_side(const bundle_data *a, const bundle_data *b) {
    return same_settings(&a->settings, &b->settings) && !other_data(a, b);
}

/* ---- seeds ----------------------------------------------------------------------------------- */

/* The other side's bundle of the same seed, or SIZE_MAX. */
static size_t partner(const comparer *c, size_t index) {
    const omm_compare_bundle *bundle = &c->bundles[index];
    for (size_t i = 0; i < c->out->bundle_count && bundle->has_seed; i++)
        if (c->bundles[i].is_b != bundle->is_b && c->bundles[i].has_seed &&
            c->bundles[i].seed == bundle->seed)
            return i;
    return SIZE_MAX;
}

static bool has_pairs(const comparer *c) {
    for (size_t i = 0; i < c->out->bundle_count; i++)
        if (partner(c, i) != SIZE_MAX) return true;
    return false;
}

/* Which runs are compared. */
static void choose(comparer *c) {
    omm_comparison *out = c->out;
    const bool pairs = has_pairs(c);
    out->a_count = out->b_count = 0;
    for (size_t i = 0; i < out->bundle_count; i++) {
        c->bundles[i].counts = !pairs || partner(c, i) != SIZE_MAX;
        if (c->bundles[i].counts) ++*(c->bundles[i].is_b ? &out->b_count : &out->a_count);
    }
}

/* Those that a service draws for itself are nobody's setting. */
static bool seeds_differ(const comparer *c) {
    for (size_t i = 0; i < c->out->bundle_count; i++)
        if (c->bundles[i].has_seed) return !has_pairs(c);
    return false;
}

/* "1, 2, 3" of a side; NULL without memory. */
static const char *seeds_text(comparer *c, bool is_b) {
    char text[SEEDS_TEXT_SIZE] = "";
    size_t shown = 0, size = 0;
    for (size_t i = 0; i < c->out->bundle_count; i++) {
        const omm_compare_bundle *bundle = &c->bundles[i];
        if (bundle->is_b != is_b || !bundle->has_seed) continue;
        if (shown == SEEDS_SHOWN) {
            snprintf(text + size, sizeof text - size, ", ...");
            break;
        }
        size += (size_t)snprintf(text + size, sizeof text - size, "%s%" PRIu64,
                                 shown++ > 0 ? ", " : "", bundle->seed);
    }
    return omm_arena_strdup(&c->out->arena, shown > 0 ? text : "(drawn by the run)");
}

static omm_err add_seeds(comparer *c, omm_compare_setting *found, size_t *count) {
    if (!seeds_differ(c)) return OMM_OK;
    omm_compare_setting *to = &found[(*count)++];
    *to = (omm_compare_setting){"seed", seeds_text(c, false), seeds_text(c, true)};
    return to->a && to->b ? OMM_OK : no_memory();
}

/* ---- what differs ---------------------------------------------------------------------------- */

static omm_err find_differences(comparer *c) {
    OMM_ASSERT(c->first_a && c->first_b);
    const settings *a = &c->first_a->settings, *b = &c->first_b->settings;
    omm_compare_setting *found = room(c, a->count + b->count + 2, sizeof *found);
    size_t count = 0;
    if (!found) return no_memory();
    for (size_t i = 0; i < a->count; i++) {
        const char *other = settings_value(b, a->items[i].path);
        if (!other || strcmp(other, a->items[i].value) != 0)
            found[count++] = (omm_compare_setting){a->items[i].path, a->items[i].value, other};
    }
    for (size_t i = 0; i < b->count; i++)
        if (!settings_value(a, b->items[i].path))
            found[count++] = (omm_compare_setting){b->items[i].path, NULL, b->items[i].value};
    if (other_data(c->first_a, c->first_b)) {
        found[count] = (omm_compare_setting){"(training data)", data_text(c, c->first_a),
                                             data_text(c, c->first_b)};
        if (!found[count].a || !found[count].b) return no_memory();
        count++;
    }
    OMM_TRY(add_seeds(c, found, &count));
    c->out->settings = found;
    c->out->setting_count = count;
    return OMM_OK;
}

/* ---- items ----------------------------------------------------------------------------------- */

static omm_err client_of(size_t *out, comparer *c, const char *name) {
    for (*out = 0; *out < c->out->client_count; ++*out)
        if (strcmp(c->clients[*out].name, name) == 0) return OMM_OK;
    omm_compare_client *client = &c->clients[c->out->client_count++];
    client->name = omm_arena_strdup(&c->out->arena, name);
    return client->name ? OMM_OK : no_memory();
}

/* The first bundle says what the items are. */
static omm_err take_items(comparer *c, const evidence_rows *rows) {
    c->items = room(c, rows->count, sizeof *c->items);
    c->clients = room(c, rows->count, sizeof *c->clients);
    c->out->clients = c->clients;
    c->out->item_count = rows->count;
    if (!c->items || !c->clients) return no_memory();
    for (size_t i = 0; i < rows->count; i++) {
        const omm_eval_record *row = &rows->rows[i];
        item_key *key = &c->items[i];
        *key = (item_key){row->item, row->tokens, row->is_tool, row->generated, 0};
        OMM_TRY(client_of(&key->client, c, row->client));
        c->clients[key->client].items++;
    }
    return OMM_OK;
}

static omm_err same_items(const comparer *c, const evidence_rows *rows) {
    if (rows->count != c->out->item_count)
        return omm_raise(OMM_ERR_MISMATCH,
                         "judged on %zu held-out items, %s on %zu: other data, another "
                         "evaluation.clients, or a recipe.seq_max that leaves some out",
                         rows->count, c->bundles[0].dir, c->out->item_count);
    for (size_t i = 0; i < rows->count; i++) {
        const omm_eval_record *row = &rows->rows[i];
        const item_key *key = &c->items[i];
        if (!omm_digest_equal(&row->item, &key->item) ||
            strcmp(row->client, c->clients[key->client].name) != 0)
            return omm_raise(OMM_ERR_MISMATCH, "held-out item %zu is another one than in %s", i + 1,
                             c->bundles[0].dir);
        if (row->tokens != key->tokens)
            return omm_raise(
                OMM_ERR_MISMATCH,
                "held-out item %zu has %" PRIu64 " tokens here and %" PRIu64
                " in %s: another vocabulary, or a recipe.seq_max that cuts it; such losses "
                "cannot be compared",
                i + 1, row->tokens, key->tokens, c->bundles[0].dir);
        if (row->is_tool != key->is_tool || row->generated != key->generated)
            return omm_raise(OMM_ERR_MISMATCH,
                             "held-out item %zu was judged in another way than in %s", i + 1,
                             c->bundles[0].dir);
    }
    return OMM_OK;
}

/* Of one item; NaN where it has none. */
static double value_of(const omm_eval_record *row, omm_compare_quantity quantity) {
    switch (quantity) {
    case OMM_COMPARE_LOSS: return row->nll / (double)row->tokens;
    case OMM_COMPARE_EXACT: return row->generated ? (double)row->exact : (double)NAN;
    case OMM_COMPARE_PARSED:
        return row->generated && row->is_tool ? (double)row->parsed : (double)NAN;
    case OMM_COMPARE_TOOL:
        return row->generated && row->is_tool ? (double)row->tool_ok : (double)NAN;
    case OMM_COMPARE_QUANTITIES: break;
    }
    return (double)NAN;
}

static omm_err client_means(comparer *c, bundle_data *d, const evidence_rows *rows,
                            omm_compare_quantity quantity) {
    const size_t clients = c->out->client_count;
    double *means = room(c, clients, sizeof *means);
    size_t *counts = room(c, clients, sizeof *counts), with = 0;
    if (!means || !counts) return no_memory();
    for (size_t i = 0; i < rows->count; i++) {
        const double value = value_of(&rows->rows[i], quantity);
        if (isnan(value)) continue;
        means[c->items[i].client] += value;
        counts[c->items[i].client]++;
    }
    for (size_t i = 0; i < clients; i++) {
        means[i] = counts[i] ? means[i] / (double)counts[i] : (double)NAN;
        if (!counts[i]) continue;
        d->mean[quantity] += means[i];
        with++;
    }
    d->mean[quantity] = with ? d->mean[quantity] / (double)with : (double)NAN;
    d->means[quantity] = means;
    return OMM_OK;
}

/* ---- one bundle ------------------------------------------------------------------------------ */

static omm_err need(const file_state *file, const char *path) {
    return file->err == OMM_OK ? OMM_OK : omm_raise(file->err, "%s: %s", path, file->why);
}

static omm_err add_bytes(void *ud, const omm_ledger_record *row) {
    omm_compare_bundle *bundle = ud;
    bundle->up += row->up;
    bundle->down += row->down;
    return OMM_OK;
}

/* What went wrong: bytes and losses do not show it. */
static omm_err take_rounds(omm_compare_bundle *bundle, const evidence *ev) {
    OMM_TRY(need(&ev->rounds_file, "rounds.jsonl"));
    for (size_t r = 0; r < ev->round_count; r++) {
        const omm_round_record *round = &ev->heads[r];
        bundle->refused += round->refused_count;
        bundle->missing += round->missing_count;
        bundle->rounds_void += round->voided;
        bundle->rounds_held += !round->voided && !round->published;
    }
    bundle->rounds = (uint32_t)ev->round_count;
    return OMM_OK;
}

static omm_err take_bundle(comparer *c, size_t index, evidence *ev) {
    omm_compare_bundle *bundle = &c->bundles[index];
    bundle_data *d = &c->data[index];
    OMM_TRY(need(&ev->run_file, "run.json"));
    OMM_TRY(need(&ev->after.file, "eval/after.jsonl"));
    OMM_TRY(evidence_ledger(ev, add_bytes, bundle));
    OMM_TRY(need(&ev->ledger_file, "ledger.jsonl"));
    OMM_TRY(take_rounds(bundle, ev));
    if (ev->after.count == 0) return omm_raise(OMM_ERR_MISMATCH, "no held-out items");
    bundle->has_seed = ev->run.has_seed;
    bundle->seed = ev->run.seed;
    OMM_TRY(read_settings(c, d, ev));
    OMM_TRY(index == 0 ? take_items(c, &ev->after) : same_items(c, &ev->after));
    for (int q = 0; q < OMM_COMPARE_QUANTITIES; q++)
        OMM_TRY(client_means(c, d, &ev->after, (omm_compare_quantity)q));
    bundle->loss = d->mean[OMM_COMPARE_LOSS];
    return OMM_OK;
}

static omm_err take_program(comparer *c, omm_compare_bundle *bundle) {
    manifest m;
    omm_buf text;
    omm_buf_init(&text, OMM_BUNDLE_FILE_BYTES_MAX);
    omm_err err = omm_bundle_file_read(&text, bundle->dir, "manifest.json");
    if (err == OMM_OK) err = manifest_parse(&m, &c->out->arena, omm_buf_view(&text));
    if (err == OMM_OK) bundle->program = m.commit;
    omm_buf_fini(&text);
    return err;
}

static omm_err read_bundle(comparer *c, size_t index) {
    evidence ev;
    OMM_TRY(evidence_load(&ev, c->bundles[index].dir));
    omm_err err = take_bundle(c, index, &ev);
    evidence_fini(&ev);
    return err == OMM_OK ? take_program(c, &c->bundles[index]) : err;
}

/* ---- sides ----------------------------------------------------------------------------------- */

/* A simulation's run is known by its seed, a service's by its id: whatever copies of it are given, it is one run. */
static bool is_same_run(const comparer *c, size_t a, size_t b) {
    const omm_compare_bundle *x = &c->bundles[a], *y = &c->bundles[b];
    if (x->is_b != y->is_b || x->has_seed != y->has_seed) return false;
    return x->has_seed ? x->seed == y->seed : strcmp(c->data[a].run_id, c->data[b].run_id) == 0;
}

static omm_err check_once(const comparer *c, size_t index) {
    const omm_compare_bundle *bundle = &c->bundles[index];
    for (size_t i = 0; i < index; i++) {
        const char *dir = c->bundles[i].dir;
        if (!is_same_run(c, i, index)) continue;
        if (!bundle->has_seed)
            return omm_raise(OMM_ERR_CONFIG,
                             "the same settings and the same run_id %s as %s: one run twice",
                             c->data[index].run_id, dir);
        return omm_raise(OMM_ERR_CONFIG,
                         "the same settings and the same seed %" PRIu64 " as %s: one run twice",
                         bundle->seed, dir);
    }
    return OMM_OK;
}

static omm_err take_side(comparer *c, size_t index) {
    omm_compare_bundle *bundle = &c->bundles[index];
    const bundle_data *d = &c->data[index];
    if (!c->first_a) c->first_a = d;
    bundle->is_b = !same_side(d, c->first_a);
    if (bundle->is_b && !c->first_b) c->first_b = d;
    if (bundle->is_b && !same_side(d, c->first_b))
        return omm_raise(OMM_ERR_CONFIG,
                         "a third setting: %s and another bundle before it differ already; compare "
                         "two at a time",
                         c->bundles[0].dir);
    c->out->a_count += !bundle->is_b;
    c->out->b_count += bundle->is_b;
    return check_once(c, index);
}

static void check_circumstances(comparer *c) {
    omm_comparison *out = c->out;
    out->one_program = out->same_data = true;
    for (size_t i = 0; i < out->bundle_count; i++) {
        const size_t other = partner(c, i);
        if (strcmp(c->bundles[i].program, c->bundles[0].program) != 0) out->one_program = false;
        if (other != SIZE_MAX && !same_bytes(&c->data[i], &c->data[other])) out->same_data = false;
    }
}

/* ---- judging --------------------------------------------------------------------------------- */

/* Mean over the runs of one side that count of what client `client` has, and of all clients (SIZE_MAX). */
static double side_mean(const comparer *c, bool is_b, omm_compare_quantity q, size_t client) {
    double sum = 0.0;
    for (size_t i = 0; i < c->out->bundle_count; i++)
        if (c->bundles[i].counts && c->bundles[i].is_b == is_b)
            sum += client == SIZE_MAX ? c->data[i].mean[q] : c->data[i].means[q][client];
    return sum / (double)(is_b ? c->out->b_count : c->out->a_count);
}

static omm_interval side_range(const comparer *c, bool is_b, omm_compare_quantity q) {
    omm_interval range = {0.0, 0.0};
    bool any = false;
    for (size_t i = 0; i < c->out->bundle_count; i++) {
        const double value = c->data[i].mean[q];
        if (!c->bundles[i].counts || c->bundles[i].is_b != is_b) continue;
        if (!any || value < range.low) range.low = value;
        if (!any || value > range.high) range.high = value;
        any = true;
    }
    return range;
}

static bool is_better(omm_compare_quantity q, double difference) {
    return q == OMM_COMPARE_LOSS ? difference < 0.0 : difference > 0.0;
}

static void count_seeds(omm_compare_metric *m, const comparer *c, omm_compare_quantity q) {
    for (size_t i = 0; i < c->out->bundle_count; i++) {
        const size_t other = c->bundles[i].is_b ? SIZE_MAX : partner(c, i);
        if (other == SIZE_MAX) continue;
        m->seeds++;
        m->seeds_better += is_better(q, c->data[other].mean[q] - c->data[i].mean[q]);
    }
}

/* All of one side below all of the other: of how many ways to share the runs out is that one of two? */
static bool is_beyond_seeds(const omm_compare_metric *m, const omm_comparison *c) {
    double chance = 2.0;
    for (size_t i = 1; i <= c->b_count; i++) chance *= (double)i / (double)(c->a_count + i);
    return (m->a_range.high < m->b_range.low || m->b_range.high < m->a_range.low) &&
           chance < CHANCE;
}

/* All seeds that both sides have lean one way: as many as it takes of clients. */
static bool seeds_agree(const omm_compare_metric *m) {
    return m->seeds >= OMM_COMPARE_CLIENTS_MIN &&
           (m->seeds_better == 0 || m->seeds_better == m->seeds);
}

static omm_compare_word word_of(const omm_compare_metric *m, const omm_comparison *c,
                                omm_compare_quantity q) {
    if (m->interval.low <= 0.0 && m->interval.high >= 0.0) return OMM_COMPARE_SAME;
    if (m->seeds == 0 && !is_beyond_seeds(m, c)) return OMM_COMPARE_SEED;
    if (m->seeds > 0 && m->clients < OMM_COMPARE_CLIENTS_MIN && !seeds_agree(m))
        return OMM_COMPARE_FEW;
    return is_better(q, m->difference) ? OMM_COMPARE_BETTER : OMM_COMPARE_WORSE;
}

static omm_err judge(comparer *c, omm_compare_quantity q) {
    omm_compare_metric *m = &c->out->metrics[q];
    const omm_seed seed = omm_seed_from_u64(BOOTSTRAP_SEED);
    double *differences = room(c, c->out->client_count, sizeof *differences);
    if (!differences) return no_memory();
    for (size_t i = 0; i < c->out->client_count; i++) {
        const double difference = side_mean(c, true, q, i) - side_mean(c, false, q, i);
        if (!isnan(difference)) differences[m->clients++] = difference;
    }
    m->known = m->clients > 0;
    if (!m->known) return OMM_OK;
    m->a = side_mean(c, false, q, SIZE_MAX);
    m->b = side_mean(c, true, q, SIZE_MAX);
    m->difference = omm_mean(differences, m->clients);
    m->a_range = side_range(c, false, q);
    m->b_range = side_range(c, true, q);
    count_seeds(m, c, q);
    m->has_interval = m->clients > 1; /* one client drawn again and again is no sample */
    if (!m->has_interval) return OMM_OK;
    OMM_TRY(omm_bootstrap(&m->interval, differences, m->clients, &seed, RESAMPLES));
    m->word = word_of(m, c->out, q);
    return OMM_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const omm_compare_client *)a)->name, ((const omm_compare_client *)b)->name);
}

static omm_err compare(comparer *c) {
    omm_comparison *out = c->out;
    for (size_t i = 0; i < out->bundle_count; i++) {
        OMM_TRY(omm_err_about(read_bundle(c, i), c->bundles[i].dir));
        OMM_TRY(omm_err_about(take_side(c, i), c->bundles[i].dir));
    }
    if (out->b_count == 0)
        return omm_raise(OMM_ERR_CONFIG,
                         "all %zu bundles have the same settings: nothing to compare",
                         out->bundle_count);
    choose(c);
    OMM_TRY(find_differences(c));
    check_circumstances(c);
    for (size_t i = 0; i < out->client_count; i++) {
        c->clients[i].a = side_mean(c, false, OMM_COMPARE_LOSS, i);
        c->clients[i].b = side_mean(c, true, OMM_COMPARE_LOSS, i);
    }
    for (int q = 0; q < OMM_COMPARE_QUANTITIES; q++) OMM_TRY(judge(c, (omm_compare_quantity)q));
    /* as simulate lists them; last, since items, means and draws go by their first items */
    qsort(c->clients, out->client_count, sizeof *c->clients, by_name);
    return OMM_OK;
}

omm_err omm_compare(omm_comparison *out, const char *const *dirs, size_t count) {
    *out = (omm_comparison){.bundle_count = count};
    if (count < 2 || count > OMM_COMPARE_BUNDLES_MAX)
        return omm_raise(OMM_ERR_CONFIG, "%zu bundles; 2 to %u can be compared", count,
                         OMM_COMPARE_BUNDLES_MAX);
    omm_arena_init(&out->arena, ARENA_BYTES_MAX);
    comparer c = {.out = out};
    c.bundles = room(&c, count, sizeof *c.bundles);
    c.data = room(&c, count, sizeof *c.data);
    omm_err err = c.bundles && c.data ? OMM_OK : no_memory();
    out->bundles = c.bundles;
    for (size_t i = 0; err == OMM_OK && i < count; i++) c.bundles[i].dir = dirs[i];
    if (err == OMM_OK) err = compare(&c);
    if (err != OMM_OK) omm_comparison_fini(out);
    return err;
}

void omm_comparison_fini(omm_comparison *comparison) {
    omm_arena_fini(&comparison->arena);
    *comparison = (omm_comparison){0};
}

/* compare_report.c - a comparison in words and as JSON. */
#include "omm/compare.h"

#include "omm/json.h"
#include "omm/utf8.h"

#include <inttypes.h>
#include <string.h>

#define VALUE_SHOWN 40 /* bytes of a setting's value in the text; all of it in the JSON */
#define NAME_SHOWN 128 /* of a setting's path, a client's name: they come from strangers */

static const struct {
    const char *name, *label;
} QUANTITIES[] = {[OMM_COMPARE_LOSS] = {"loss", "loss, nats/token"},
                  [OMM_COMPARE_EXACT] = {"exact", "exact replies"},
                  [OMM_COMPARE_PARSED] = {"tool_parsed", "tool calls parse"},
                  [OMM_COMPARE_TOOL] = {"tool_named", "right tool"}};
static const char *const WORDS[] = {[OMM_COMPARE_SAME] = "not told apart",
                                    [OMM_COMPARE_BETTER] = "B better",
                                    [OMM_COMPARE_WORSE] = "B worse",
                                    [OMM_COMPARE_SEED] = "not told apart from the seed",
                                    [OMM_COMPARE_FEW] = "not told apart: too few clients"};
static const char *const WORD_NAMES[] = {[OMM_COMPARE_SAME] = "not_told_apart",
                                         [OMM_COMPARE_BETTER] = "b_better",
                                         [OMM_COMPARE_WORSE] = "b_worse",
                                         [OMM_COMPARE_SEED] = "not_told_apart_from_seed",
                                         [OMM_COMPARE_FEW] = "too_few_clients"};

/* ---- text ------------------------------------------------------------------------------------ */

static omm_err text_bytes(omm_buf *out, const char *label, uint64_t bytes) {
    return bytes < 1000000 ? omm_buf_printf(out, "%s %.1f kB  ", label, (double)bytes / 1e3)
                           : omm_buf_printf(out, "%s %.2f MB  ", label, (double)bytes / 1e6);
}

static omm_err text_bundles(omm_buf *out, const omm_comparison *c) {
    for (size_t i = 0; i < c->bundle_count; i++) {
        const omm_compare_bundle *b = &c->bundles[i];
        OMM_TRY(omm_buf_printf(out, "%c  ", b->is_b ? 'B' : 'A'));
        if (b->has_seed) OMM_TRY(omm_buf_printf(out, "seed %-4" PRIu64 "  ", b->seed));
        OMM_TRY(omm_buf_printf(out, "loss %.4f  ", b->loss));
        OMM_TRY(text_bytes(out, "up", b->up));
        OMM_TRY(text_bytes(out, "down", b->down));
        OMM_TRY(omm_buf_printf(out, "%s\n", b->dir));
        if (b->refused > 0 || b->missing > 0 || b->rounds_void > 0 || b->rounds_held > 0)
            OMM_TRY(omm_buf_printf(
                out,
                "     of %u rounds %u void, %u held back; %" PRIu64 " submissions refused, %" PRIu64
                " never came; bytes are of accepted ones\n",
                b->rounds, b->rounds_void, b->rounds_held, b->refused, b->missing));
        if (!b->counts)
            OMM_TRY(
                omm_buf_printf(out, "     not counted: no run of the other side has its seed\n"));
    }
    return OMM_OK;
}

static omm_err text_settings(omm_buf *out, const omm_comparison *c) {
    OMM_TRY(omm_buf_printf(out, "\nwhat differs\n"));
    for (size_t i = 0; i < c->setting_count; i++) {
        const omm_compare_setting *s = &c->settings[i];
        char path[NAME_SHOWN], a[VALUE_SHOWN + 1], b[VALUE_SHOWN + 1];
        omm_utf8_clean(path, sizeof path, s->path);
        omm_utf8_clean(a, sizeof a, s->a ? s->a : "(not said)");
        omm_utf8_clean(b, sizeof b, s->b ? s->b : "(not said)");
        OMM_TRY(omm_buf_printf(out, "  %-32s %s -> %s\n", path, a, b));
    }
    return OMM_OK;
}

static omm_err text_metrics(omm_buf *out, const omm_comparison *c) {
    OMM_TRY(
        omm_buf_printf(out,
                       "\n%zu held-out items of %zu clients, means of clients; 95 %% interval of "
                       "B - A by bootstrap over clients\n"
                       "  %-18s %8s %8s %9s   %-21s\n",
                       c->item_count, c->client_count, "", "A", "B", "B - A", "interval"));
    for (int q = 0; q < OMM_COMPARE_QUANTITIES; q++) {
        const omm_compare_metric *m = &c->metrics[q];
        if (!m->known) continue;
        OMM_TRY(omm_buf_printf(out, "  %-18s %8.4f %8.4f %+9.4f   ", QUANTITIES[q].label, m->a,
                               m->b, m->difference));
        OMM_TRY(m->has_interval ? omm_buf_printf(out, "%+.4f .. %+.4f   %s", m->interval.low,
                                                 m->interval.high, WORDS[m->word])
                                : omm_buf_printf(out, "none: one client      %s", WORDS[m->word]));
        if (m->seeds > 1)
            OMM_TRY(omm_buf_printf(out, "; better in %zu of %zu seeds", m->seeds_better, m->seeds));
        OMM_TRY(omm_buf_printf(out, "\n"));
    }
    return OMM_OK;
}

static omm_err text_clients(omm_buf *out, const omm_comparison *c) {
    OMM_TRY(omm_buf_printf(out, "\nloss by client\n"));
    for (size_t i = 0; i < c->client_count; i++) {
        const omm_compare_client *client = &c->clients[i];
        char name[NAME_SHOWN];
        omm_utf8_clean(name, sizeof name, client->name);
        OMM_TRY(omm_buf_printf(out, "  %-18s %8.4f %8.4f %+9.4f   %zu items\n", name, client->a,
                               client->b, client->b - client->a, client->items));
    }
    return OMM_OK;
}

/* Where a word above says that: the loss has all clients, another quantity those with items of its kind. */
static omm_err text_few(omm_buf *out, const omm_comparison *c) {
    size_t clients = SIZE_MAX;
    for (int q = 0; q < OMM_COMPARE_QUANTITIES; q++) {
        const omm_compare_metric *m = &c->metrics[q];
        if (m->word == OMM_COMPARE_FEW && m->clients < clients) clients = m->clients;
    }
    if (clients == SIZE_MAX) return OMM_OK;
    return omm_buf_printf(
        out,
        "%zu clients all lean one way by chance in 1 of %u comparisons, and their interval is too "
        "narrow: with %u clients,\nor with %u seeds on both sides that agree, the word would "
        "stand.\n",
        clients, 1u << (clients - 1), OMM_COMPARE_CLIENTS_MIN, OMM_COMPARE_CLIENTS_MIN);
}

/* What the numbers above cannot say. */
static omm_err text_notes(omm_buf *out, const omm_comparison *c) {
    const omm_compare_metric *loss = &c->metrics[OMM_COMPARE_LOSS];
    OMM_TRY(omm_buf_printf(out, "\n"));
    if (loss->seeds == 0)
        OMM_TRY(omm_buf_printf(out, "No seed is on both sides: a difference may be the seeds'.\n"));
    if (c->a_count == 1 || c->b_count == 1)
        OMM_TRY(omm_buf_printf(
            out, "One run on a side: the interval is over clients, and another seed may say "
                 "otherwise.  Run both with others\n(`simulate --seed N`) and give all "
                 "bundles at once.\n"));
    else
        OMM_TRY(omm_buf_printf(out, "Loss from seed to seed: A %.4f .. %.4f, B %.4f .. %.4f.\n",
                               loss->a_range.low, loss->a_range.high, loss->b_range.low,
                               loss->b_range.high));
    OMM_TRY(text_few(out, c));
    if (c->setting_count > 1)
        OMM_TRY(omm_buf_printf(out, "%zu settings differ: which of them did it, this cannot say.\n",
                               c->setting_count));
    if (!c->same_data)
        OMM_TRY(omm_buf_printf(out, "The clients' training data differ between the sides.\n"));
    if (!c->one_program)
        OMM_TRY(omm_buf_printf(out, "The bundles are of different versions of the program.\n"));
    return omm_buf_printf(out, "Losses and replies are as the coordinators say: `replay BUNDLE "
                               "--eval` judges the items again.\n");
}

omm_err omm_comparison_text(omm_buf *out, const omm_comparison *c) {
    OMM_TRY(text_bundles(out, c));
    OMM_TRY(text_settings(out, c));
    OMM_TRY(text_metrics(out, c));
    OMM_TRY(text_clients(out, c));
    return text_notes(out, c);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Appends `taken` to a new array under `key`. */
static omm_err append(json_t *array, json_t *taken) {
    if (json_array_append_new(array, taken) == 0) return OMM_OK;
    return omm_raise(OMM_ERR_NOMEM, "no memory for the comparison");
}

static omm_err put_seed(json_t *o, const omm_compare_bundle *b) {
    return b->has_seed ? omm_json_set_int(o, "seed", (int64_t)b->seed)
                       : omm_json_set(o, "seed", json_null());
}

static omm_err json_bundles(json_t *array, const omm_comparison *c) {
    for (size_t i = 0; i < c->bundle_count; i++) {
        const omm_compare_bundle *b = &c->bundles[i];
        json_t *o = json_object();
        OMM_TRY(append(array, o));
        OMM_TRY(omm_json_set(o, "bundle", omm_json_text(b->dir)));
        OMM_TRY(omm_json_set_str(o, "side", b->is_b ? "b" : "a"));
        OMM_TRY(put_seed(o, b));
        OMM_TRY(omm_json_set_bool(o, "counts", b->counts));
        OMM_TRY(omm_json_set_real(o, "loss", b->loss));
        OMM_TRY(omm_json_set_int(o, "up_bytes", (int64_t)b->up));
        OMM_TRY(omm_json_set_int(o, "down_bytes", (int64_t)b->down));
        OMM_TRY(omm_json_set_int(o, "rounds", (int64_t)b->rounds));
        OMM_TRY(omm_json_set_int(o, "rounds_void", (int64_t)b->rounds_void));
        OMM_TRY(omm_json_set_int(o, "rounds_held_back", (int64_t)b->rounds_held));
        OMM_TRY(omm_json_set_int(o, "refused", (int64_t)b->refused));
        OMM_TRY(omm_json_set_int(o, "missing", (int64_t)b->missing));
        OMM_TRY(omm_json_set_str(o, "program", b->program));
    }
    return OMM_OK;
}

static omm_err put_text(json_t *o, const char *key, const char *text) {
    return text ? omm_json_set_str(o, key, text) : omm_json_set(o, key, json_null());
}

static omm_err json_settings(json_t *array, const omm_comparison *c) {
    for (size_t i = 0; i < c->setting_count; i++) {
        json_t *o = json_object();
        OMM_TRY(append(array, o));
        OMM_TRY(omm_json_set_str(o, "setting", c->settings[i].path));
        OMM_TRY(put_text(o, "a", c->settings[i].a));
        OMM_TRY(put_text(o, "b", c->settings[i].b));
    }
    return OMM_OK;
}

static omm_err put_range(json_t *o, const char *key, const omm_interval *range) {
    json_t *pair = json_array();
    OMM_TRY(omm_json_set(o, key, pair));
    OMM_TRY(append(pair, json_real(range->low)));
    return append(pair, json_real(range->high));
}

static omm_err json_metrics(json_t *object, const omm_comparison *c) {
    for (int q = 0; q < OMM_COMPARE_QUANTITIES; q++) {
        const omm_compare_metric *m = &c->metrics[q];
        if (!m->known) continue;
        json_t *o = json_object();
        OMM_TRY(omm_json_set(object, QUANTITIES[q].name, o));
        OMM_TRY(omm_json_set_real(o, "a", m->a));
        OMM_TRY(omm_json_set_real(o, "b", m->b));
        OMM_TRY(omm_json_set_real(o, "difference", m->difference));
        OMM_TRY(m->has_interval ? put_range(o, "interval", &m->interval)
                                : omm_json_set(o, "interval", json_null()));
        OMM_TRY(put_range(o, "a_range", &m->a_range));
        OMM_TRY(put_range(o, "b_range", &m->b_range));
        OMM_TRY(omm_json_set_int(o, "clients", (int64_t)m->clients));
        OMM_TRY(omm_json_set_int(o, "seeds", (int64_t)m->seeds));
        OMM_TRY(omm_json_set_int(o, "seeds_better", (int64_t)m->seeds_better));
        OMM_TRY(omm_json_set_str(o, "word", WORD_NAMES[m->word]));
    }
    return OMM_OK;
}

static omm_err json_clients(json_t *array, const omm_comparison *c) {
    for (size_t i = 0; i < c->client_count; i++) {
        json_t *o = json_object();
        OMM_TRY(append(array, o));
        OMM_TRY(omm_json_set_str(o, "client", c->clients[i].name));
        OMM_TRY(omm_json_set_int(o, "items", (int64_t)c->clients[i].items));
        OMM_TRY(omm_json_set_real(o, "loss_a", c->clients[i].a));
        OMM_TRY(omm_json_set_real(o, "loss_b", c->clients[i].b));
    }
    return OMM_OK;
}

/* A new array (or object) under a key of `root`, which owns it. */
static omm_err fill(json_t *root, const char *key, json_t *taken,
                    omm_err (*write)(json_t *to, const omm_comparison *c),
                    const omm_comparison *c) {
    OMM_TRY(omm_json_set(root, key, taken));
    return write(taken, c);
}

static omm_err build(json_t *root, const omm_comparison *c) {
    OMM_TRY(omm_json_set_str(root, "kind", "omm-comparison"));
    OMM_TRY(omm_json_set_int(root, "schema_version", 1));
    OMM_TRY(fill(root, "bundles", json_array(), json_bundles, c));
    OMM_TRY(fill(root, "settings", json_array(), json_settings, c));
    OMM_TRY(fill(root, "metrics", json_object(), json_metrics, c));
    OMM_TRY(fill(root, "clients", json_array(), json_clients, c));
    OMM_TRY(omm_json_set_int(root, "items", (int64_t)c->item_count));
    OMM_TRY(omm_json_set_bool(root, "one_program", c->one_program));
    return omm_json_set_bool(root, "same_data", c->same_data);
}

omm_err omm_comparison_json(omm_buf *out, const omm_comparison *comparison) {
    json_t *root = json_object();
    omm_err err = build(root, comparison);
    if (err == OMM_OK) err = omm_json_write(out, root);
    json_decref(root);
    return err;
}

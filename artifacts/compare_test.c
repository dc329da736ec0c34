/* compare_test.c - comparisons of bundles that differ in what the test changes: the settings found, means
 * and differences by hand, seeds paired, everything that cannot be compared refused by name. */
#include "settings.h"
#include "testkit.h"

#include "omm/compare.h"
#include "omm/evidence.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <math.h>
#include <string.h>

#define BYTES_MAX (1u << 20)

/* Of the bundle that testkit.c makes. */
#define SETTING_PATH "rounds"
#define SETTING_FROM "rounds: 3\n"
#define SETTING_TO "rounds: 4\n"
#define DATA_FROM "03170a2e7597b7b7" /* of the first node */
#define DATA_TO "13170a2e7597b7b7"
#define SEED_FROM "\"seed\":1"
#define SEED_TO "\"seed\":2"
#define POLICY_FROM "threshold: 0.3"
#define POLICY_TO "threshold: 0.2"

/* ---- settings -------------------------------------------------------------------------------- */

static void test_settings(void) {
    static const char text[] = "name: \"x: y\"\n"
                               "population:\n"
                               "  - group: \"homes\"\n"
                               "    clients: [\"a\", \"b\"]\n"
                               "  - group: \"shops\"\n"
                               "    deep:\n"
                               "      count: 3\n"
                               "  - \"plain: item\"\n"
                               "codec:\n"
                               "  up:\n"
                               "    kind: \"int8\"\n"
                               "last: 1\n";
    static const setting want[] = {{"name", "\"x: y\""},
                                   {"population[0].group", "\"homes\""},
                                   {"population[0].clients", "[\"a\", \"b\"]"},
                                   {"population[1].group", "\"shops\""},
                                   {"population[1].deep.count", "3"},
                                   {"population[2]", "\"plain: item\""},
                                   {"codec.up.kind", "\"int8\""},
                                   {"last", "1"}};
    settings s;
    omm_arena arena;
    omm_arena_init(&arena, BYTES_MAX);
    CHECK_OK(settings_parse(&s, &arena, omm_bytes_str(text)));
    CHECK_EQ(s.count, sizeof want / sizeof *want);
    for (size_t i = 0; i < s.count; i++) {
        CHECK(strcmp(s.items[i].path, want[i].path) == 0);
        CHECK(strcmp(s.items[i].value, want[i].value) == 0);
    }
    CHECK(strcmp(settings_value(&s, "last"), "1") == 0);
    CHECK(!settings_value(&s, "population"));
    CHECK_ERR(settings_parse(&s, &arena, omm_bytes_str("no key\n")), OMM_ERR_FORMAT);
    CHECK_ERR(settings_parse(&s, &arena, omm_bytes_str(": 1\n")), OMM_ERR_FORMAT);
    CHECK_ERR(settings_parse(&s, &arena, omm_bytes_of("a: 1\0b\n", 7)), OMM_ERR_FORMAT);
    char deep[1024] = "";
    for (int i = 0; i < 20; i++) {
        const size_t at = strlen(deep);
        snprintf(deep + at, sizeof deep - at, "%*sk:\n", 2 * i, "");
    }
    CHECK_ERR(settings_parse(&s, &arena, omm_bytes_str(deep)), OMM_ERR_FORMAT);
    char wide[400];
    memset(wide, 'k', sizeof wide);
    memcpy(wide + sizeof wide - 5, ": 1\n", 5);
    CHECK_ERR(settings_parse(&s, &arena, omm_bytes_str(wide)), OMM_ERR_FORMAT);
    omm_arena_fini(&arena);
}

/* ---- bundles --------------------------------------------------------------------------------- */

/* The first `from` in a file becomes `to`. */
static void change(const char *dir, const char *path, const char *from, const char *to) {
    omm_buf text, changed;
    omm_buf_init(&text, BYTES_MAX);
    omm_buf_init(&changed, BYTES_MAX);
    kit_read(&text, dir, path);
    CHECK_OK(omm_buf_append(&text, "", 1));
    const char *at = strstr((const char *)text.data, from);
    CHECK(at != NULL);
    CHECK_OK(omm_buf_append(&changed, text.data, (size_t)(at - (const char *)text.data)));
    CHECK_OK(omm_buf_append(&changed, to, strlen(to)));
    CHECK_OK(omm_buf_append(&changed, at + strlen(from), strlen(at + strlen(from))));
    kit_write(dir, path, omm_buf_view(&changed));
    omm_buf_fini(&changed);
    omm_buf_fini(&text);
}

/* Every item of the final adapter: loss a token `by` more, tools as said, tokens `more_tokens` more. */
static void judge_again(const char *dir, double by, bool tools, uint64_t more_tokens) {
    kit_lines l;
    kit_lines_open(&l, dir, "eval/after.jsonl");
    CHECK_EQ(l.count, KIT_ITEMS);
    for (size_t i = 0; i < l.count; i++) {
        omm_eval_record row;
        CHECK_OK(omm_eval_record_parse(&row, &l.arena, l.lines[i]));
        row.tokens += more_tokens;
        row.nll += by * (double)row.tokens;
        row.parsed = row.tool_ok = tools && row.is_tool;
        CHECK_OK(omm_eval_record_write(&l.out, &row));
    }
    kit_lines_put(&l, dir, "eval/after.jsonl");
}

static bool near(double a, double b) {
    return fabs(a - b) < 1e-12;
}

static void test_one_pair(const kit *k) {
    char other[OMM_PATH_MAX];
    omm_comparison c;
    kit_copy(other, k->dir);
    change(other, "scenario.yaml", SETTING_FROM, SETTING_TO);
    judge_again(other, -0.25, false, 0);
    const char *dirs[] = {k->dir, other};
    CHECK_OK(omm_compare(&c, dirs, 2));
    CHECK_EQ(c.setting_count, 1);
    CHECK(strcmp(c.settings[0].path, SETTING_PATH) == 0);
    CHECK_EQ(c.item_count, KIT_ITEMS);
    CHECK_EQ(c.client_count, 3);
    CHECK_EQ(c.clients[1].items, 2);
    CHECK_EQ(c.a_count, 1);
    CHECK_EQ(c.b_count, 1);
    CHECK(c.one_program && c.same_data);
    CHECK_EQ(c.bundles[1].rounds,
             3); /* testkit.c: the second is void, each other one refuses somebody */
    CHECK_EQ(c.bundles[1].rounds_void, 1);
    CHECK_EQ(c.bundles[1].rounds_held, 0);
    CHECK_EQ(c.bundles[1].refused, 2);
    CHECK_EQ(c.bundles[1].missing, 2);
    const omm_compare_metric *loss = &c.metrics[OMM_COMPARE_LOSS];
    CHECK(near(loss->difference, -0.25) && near(loss->interval.low, -0.25));
    CHECK(near(loss->interval.high, -0.25) && loss->word == OMM_COMPARE_FEW);
    /* testkit.c: item i of client i % 3 has nll + i / 2 over 10 + i tokens */
    CHECK(near(c.clients[0].a - c.clients[0].b, 0.25));
    CHECK(loss->seeds == 1 && loss->seeds_better == 1);
    const omm_compare_metric *tool = &c.metrics[OMM_COMPARE_TOOL];
    CHECK(tool->known && near(tool->a, 1.0) && near(tool->b, 0.0));
    CHECK(tool->word == OMM_COMPARE_FEW);
    CHECK(c.metrics[OMM_COMPARE_EXACT].word == OMM_COMPARE_SAME);
    omm_buf text;
    omm_buf_init(&text, BYTES_MAX);
    CHECK_OK(omm_comparison_text(&text, &c));
    CHECK_OK(omm_buf_append(&text, "", 1));
    CHECK(strstr((const char *)text.data, SETTING_PATH) != NULL);
    CHECK(strstr((const char *)text.data, "One run on a side") != NULL);
    CHECK(strstr((const char *)text.data, "as the coordinators say: `replay BUNDLE --eval`") !=
          NULL);
    CHECK(strstr((const char *)text.data, "of 3 rounds 1 void, 0 held back; 2 submissions refused, "
                                          "2 never came; bytes are of accepted ones\n") != NULL);
    CHECK(strstr((const char *)text.data, " kB  down ") != NULL);
    omm_buf_clear(&text);
    CHECK_OK(omm_comparison_json(&text, &c));
    CHECK_OK(omm_buf_append(&text, "", 1));
    CHECK(strstr((const char *)text.data, "\"word\":\"too_few_clients\"") != NULL);
    omm_buf_fini(&text);
    omm_comparison_fini(&c);
    CHECK_OK(omm_dir_remove(other));
}

/* In its text or its JSON. */
static bool says(const omm_comparison *c, const char *what) {
    omm_buf text;
    omm_buf_init(&text, BYTES_MAX);
    CHECK_OK(omm_comparison_text(&text, c));
    CHECK_OK(omm_comparison_json(&text, c));
    CHECK_OK(omm_buf_append(&text, "", 1));
    const bool is = strstr((const char *)text.data, what) != NULL;
    omm_buf_fini(&text);
    return is;
}

/* Two seeds on each side, given in any order; B is lower with one seed and higher with the other. */
static void test_seeds(const kit *k) {
    char a2[OMM_PATH_MAX], b1[OMM_PATH_MAX], b2[OMM_PATH_MAX];
    omm_comparison c;
    kit_copy(a2, k->dir);
    change(a2, "run.json", SEED_FROM, SEED_TO);
    change(a2, "scenario.yaml", "name: ", "name: x");
    kit_copy(b1, k->dir);
    kit_copy(b2, a2);
    change(b1, "scenario.yaml", SETTING_FROM, SETTING_TO);
    change(b2, "scenario.yaml", SETTING_FROM, SETTING_TO);
    judge_again(b1, -0.5, true, 0);
    judge_again(b2, 0.1, true, 0);
    const char *dirs[] = {k->dir, b2, a2, b1};
    CHECK_OK(omm_compare(&c, dirs, 4));
    const omm_compare_metric *loss = &c.metrics[OMM_COMPARE_LOSS];
    CHECK_EQ(c.a_count, 2);
    CHECK_EQ(c.b_count, 2);
    CHECK(c.bundles[1].is_b && !c.bundles[2].is_b && c.bundles[3].is_b);
    CHECK_EQ(loss->seeds, 2);
    CHECK_EQ(loss->seeds_better, 1);
    CHECK(near(loss->difference, -0.2));
    CHECK(near(loss->b_range.high - loss->b_range.low, 0.6));
    CHECK(near(loss->a_range.high - loss->a_range.low, 0.0));
    omm_comparison_fini(&c);
    /* The second seed is on one side alone: its luck is not laid to the setting. */
    const char *unpaired[] = {k->dir, b1, b2};
    CHECK_OK(omm_compare(&c, unpaired, 3));
    CHECK(c.a_count == 1 && c.b_count == 1 && c.setting_count == 1);
    CHECK(c.bundles[0].counts && c.bundles[1].counts && !c.bundles[2].counts);
    CHECK(loss->seeds == 1 && near(loss->difference, -0.5));
    CHECK(near(loss->b_range.high - loss->b_range.low, 0.0));
    CHECK(near(c.clients[0].b - c.clients[0].a, -0.5));
    CHECK(says(&c, "not counted: no run of the other side has its seed\n"));
    CHECK(says(&c, "One run on a side") && says(&c, "\"counts\":false"));
    omm_comparison_fini(&c);
    const char *twice[] = {k->dir, b1, b2, b1};
    CHECK_ERR(omm_compare(&c, twice, 4), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "one run twice") != NULL);
    CHECK_OK(omm_dir_remove(a2));
    CHECK_OK(omm_dir_remove(b1));
    CHECK_OK(omm_dir_remove(b2));
}

/* A run of a service, which says no seed: its bundle and copies of it, however many, are one run. */
static void test_service_twice(const kit *k) {
    char a[OMM_PATH_MAX], b[OMM_PATH_MAX], copy[OMM_PATH_MAX];
    omm_comparison c;
    kit_copy(a, k->dir);
    change(a, "run.json", SEED_FROM, "\"seed\":null");
    kit_copy(b, a);
    change(b, "scenario.yaml", SETTING_FROM, SETTING_TO);
    kit_copy(copy, b);
    const char *dirs[] = {a, b, copy};
    CHECK_OK(omm_compare(&c, dirs, 2));
    omm_comparison_fini(&c);
    CHECK_ERR(omm_compare(&c, dirs, 3), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "the same run_id ") &&
          strstr(omm_err_sentence(), "one run twice"));
    omm_buf text;
    char id[8 + 4 + 1] = "", other[sizeof id];
    omm_buf_init(&text, BYTES_MAX);
    kit_read(&text, copy, "run.json");
    CHECK_OK(omm_buf_append(&text, "", 1));
    const char *at = strstr((const char *)text.data, "\"run_id\":\"");
    CHECK(at != NULL);
    if (at) memcpy(id, at + 2, sizeof id - 1); /* un_id":"0123 */
    memcpy(other, id, sizeof id);
    other[8] = id[8] == '0' ? '1' : '0';
    change(copy, "run.json", id, other); /* another run */
    CHECK_OK(omm_compare(&c, dirs, 3));
    CHECK_EQ(c.b_count, 2);
    omm_comparison_fini(&c);
    omm_buf_fini(&text);
    CHECK_OK(omm_dir_remove(a));
    CHECK_OK(omm_dir_remove(b));
    CHECK_OK(omm_dir_remove(copy));
}

/* A copy with another seed, its settings changed (is_b) and its losses lower by `by`. */
static void run_of_seed(char dir[OMM_PATH_MAX], const kit *k, unsigned seed, bool is_b, double by) {
    char text[32];
    snprintf(text, sizeof text, "\"seed\":%u", seed);
    kit_copy(dir, k->dir);
    change(dir, "run.json", SEED_FROM, text);
    if (is_b) change(dir, "scenario.yaml", SETTING_FROM, SETTING_TO);
    judge_again(dir, -by, true, 0);
}

static void check_words(const char *const *dirs, size_t count, omm_compare_word want,
                        const char *a_seeds, const char *b_seeds) {
    omm_comparison c;
    omm_buf text;
    CHECK_OK(omm_compare(&c, dirs, count));
    CHECK_EQ(c.metrics[OMM_COMPARE_LOSS].word, want);
    CHECK_EQ(c.setting_count, 2);
    CHECK(strcmp(c.settings[1].path, "seed") == 0);
    CHECK(strcmp(c.settings[1].a, a_seeds) == 0 && strcmp(c.settings[1].b, b_seeds) == 0);
    omm_buf_init(&text, BYTES_MAX);
    CHECK_OK(omm_comparison_text(&text, &c));
    CHECK_OK(omm_comparison_json(&text, &c));
    CHECK_OK(omm_buf_append(&text, "", 1));
    const char *all = (const char *)text.data;
    CHECK(strstr(all, "No seed is on both sides") && strstr(all, "2 settings differ"));
    CHECK((strstr(all, "not told apart from the seed\n") != NULL) == (want == OMM_COMPARE_SEED));
    CHECK((strstr(all, "\"not_told_apart_from_seed\"") != NULL) == (want == OMM_COMPARE_SEED));
    omm_buf_fini(&text);
    omm_comparison_fini(&c);
}

/* What a seed alone could have done is not laid to the setting: with no seed on both sides it takes four runs and four that
 * do not overlap, of whose 70 ways to lie two are these. */
static void test_other_seeds(const kit *k) {
    enum { SIDE = 4 };
    char a[SIDE][OMM_PATH_MAX], b[SIDE][OMM_PATH_MAX];
    const char *dirs[2 * SIDE];
    for (size_t i = 0; i < SIDE; i++) {
        run_of_seed(a[i], k, 11 + (unsigned)i, false, 0.0);
        run_of_seed(b[i], k, 21 + (unsigned)i, true, 0.25 + 0.125 * (double)i);
        dirs[2 * i] = a[i];
        dirs[2 * i + 1] = b[i];
    }
    check_words(dirs, 2, OMM_COMPARE_SEED, "11", "21");
    check_words(dirs, 6, OMM_COMPARE_SEED, "11, 12, 13", "21, 22, 23");
    check_words(dirs, 7, OMM_COMPARE_SEED, "11, 12, 13, 14", "21, 22, 23"); /* two of 35 ways */
    check_words(dirs, 8, OMM_COMPARE_BETTER, "11, 12, 13, 14", "21, 22, 23, 24");
    judge_again(a[3], -0.5, true, 0); /* now among B's */
    check_words(dirs, 8, OMM_COMPARE_SEED, "11, 12, 13, 14", "21, 22, 23, 24");
    for (size_t i = 0; i < SIDE; i++) {
        CHECK_OK(omm_dir_remove(a[i]));
        CHECK_OK(omm_dir_remove(b[i]));
    }
}

static void one_client(const char *dir) {
    for (unsigned i = 0; i < KIT_ITEMS / 3; i++) {
        change(dir, "eval/after.jsonl", "home-02", "home-01");
        change(dir, "eval/after.jsonl", "home-03", "home-01");
    }
}

/* An interval over one client would have no width, whatever the difference. */
static void test_no_interval(const kit *k) {
    char a[OMM_PATH_MAX], b[OMM_PATH_MAX];
    omm_comparison c;
    omm_buf text;
    kit_copy(a, k->dir);
    one_client(a);
    kit_copy(b, a);
    change(b, "scenario.yaml", SETTING_FROM, SETTING_TO);
    judge_again(b, -0.25, true, 0);
    const char *dirs[] = {a, b};
    CHECK_OK(omm_compare(&c, dirs, 2));
    const omm_compare_metric *loss = &c.metrics[OMM_COMPARE_LOSS];
    CHECK(c.client_count == 1 && near(loss->difference, -0.25));
    CHECK(!loss->has_interval && loss->word == OMM_COMPARE_SAME);
    omm_buf_init(&text, BYTES_MAX);
    CHECK_OK(omm_comparison_text(&text, &c));
    CHECK_OK(omm_comparison_json(&text, &c));
    CHECK_OK(omm_buf_append(&text, "", 1));
    CHECK(strstr((const char *)text.data, "none: one client      not told apart") != NULL);
    CHECK(strstr((const char *)text.data, "\"interval\":null") != NULL);
    omm_buf_fini(&text);
    omm_comparison_fini(&c);
    CHECK_OK(omm_dir_remove(a));
    CHECK_OK(omm_dir_remove(b));
}

static void check_loss(const char *const *dirs, size_t count, size_t clients, omm_compare_word want,
                       const char *note) {
    omm_comparison c;
    omm_buf text;
    CHECK_OK(omm_compare(&c, dirs, count));
    const omm_compare_metric *loss = &c.metrics[OMM_COMPARE_LOSS];
    CHECK_EQ(loss->clients, clients);
    CHECK_EQ(loss->word, want);
    CHECK(loss->has_interval);
    for (size_t i = 1; i < c.client_count; i++) /* the file's order is another one */
        CHECK(strcmp(c.clients[i - 1].name, c.clients[i].name) < 0);
    if (c.client_count == 5) CHECK(c.clients[2].items == 2 && c.clients[3].items == 1);
    CHECK(want == OMM_COMPARE_WORSE ? loss->interval.low > 0.0 : loss->interval.high < 0.0);
    omm_buf_init(&text, BYTES_MAX);
    CHECK_OK(omm_comparison_text(&text, &c));
    CHECK_OK(omm_buf_append(&text, "", 1));
    CHECK((strstr((const char *)text.data, "all lean one way by chance") != NULL) ==
          (want == OMM_COMPARE_FEW));
    if (note) CHECK(strstr((const char *)text.data, note) != NULL);
    omm_buf_fini(&text);
    omm_comparison_fini(&c);
}

/* Five clients that agree do so by chance once in 16 times, six once in 32: from there on they speak for others. */
static void test_few_clients(const kit *k) {
    char a[OMM_PATH_MAX], b[OMM_PATH_MAX];
    const char *dirs[] = {a, b};
    kit_copy(a, k->dir);
    change(a, "eval/after.jsonl", "home-01", "home-04");
    change(a, "eval/after.jsonl", "home-02", "home-05");
    kit_copy(b, a);
    change(b, "scenario.yaml", SETTING_FROM, SETTING_TO);
    judge_again(b, -0.25, true, 0);
    check_loss(dirs, 2, 5, OMM_COMPARE_FEW, "5 clients all lean one way by chance in 1 of 16 ");
    change(a, "eval/after.jsonl", "home-03", "home-06");
    change(b, "eval/after.jsonl", "home-03", "home-06");
    check_loss(dirs, 2, 6, OMM_COMPARE_BETTER, NULL);
    CHECK_OK(omm_dir_remove(a));
    CHECK_OK(omm_dir_remove(b));
}

/* Three clients, and six seeds on both sides that agree: what is told apart is these clients' runs. */
static void test_few_clients_of_many_seeds(const kit *k) {
    enum { SEEDS = 6, RUNS = 2 * SEEDS };
    char a[SEEDS][OMM_PATH_MAX], b[SEEDS][OMM_PATH_MAX];
    const char *dirs[RUNS];
    for (size_t i = 0; i < SEEDS; i++) {
        run_of_seed(a[i], k, 11 + (unsigned)i, false, 0.0);
        run_of_seed(b[i], k, 11 + (unsigned)i, true, 0.25);
        dirs[2 * i] = a[i];
        dirs[2 * i + 1] = b[i];
    }
    check_loss(dirs, RUNS - 2, 3, OMM_COMPARE_FEW, "in 1 of 4 ");
    check_loss(dirs, RUNS, 3, OMM_COMPARE_BETTER, NULL);
    const char *swapped[RUNS];
    for (size_t i = 0; i < RUNS; i++) swapped[i] = dirs[i ^ 1];
    check_loss(swapped, RUNS, 3, OMM_COMPARE_WORSE, NULL);
    judge_again(b[3], 0.375, true, 0); /* one seed of six the other way */
    check_loss(dirs, RUNS, 3, OMM_COMPARE_FEW, NULL);
    for (size_t i = 0; i < SEEDS; i++) {
        CHECK_OK(omm_dir_remove(a[i]));
        CHECK_OK(omm_dir_remove(b[i]));
    }
}

/* Runs of the simulator on other data are another side, whatever their seed; named, and a third one refused. */
static void test_data(const kit *k) {
    char other[OMM_PATH_MAX], third[OMM_PATH_MAX], seed[OMM_PATH_MAX];
    omm_comparison c;
    kit_copy(other, k->dir);
    change(other, "run.json", DATA_FROM, DATA_TO);
    const char *pair[] = {k->dir, other};
    CHECK_OK(omm_compare(&c, pair, 2));
    CHECK(c.b_count == 1 && c.setting_count == 1 && !c.same_data);
    CHECK(strcmp(c.settings[0].path, "(training data)") == 0);
    CHECK(strlen(c.settings[0].a) == 16 && strcmp(c.settings[0].a, c.settings[0].b) != 0);
    omm_comparison_fini(&c);
    kit_copy(seed, other); /* with the other seed it is on the same side as `other` */
    change(seed, "run.json", SEED_FROM, SEED_TO);
    const char *three[] = {k->dir, other, seed};
    CHECK_OK(omm_compare(&c, three, 3));
    CHECK(c.a_count == 1 && c.b_count == 1 && c.setting_count == 1);
    CHECK(c.bundles[2].is_b && !c.bundles[2].counts); /* its seed is on one side alone */
    omm_comparison_fini(&c);
    kit_copy(third, k->dir);
    change(third, "scenario.yaml", SETTING_FROM, SETTING_TO);
    three[2] = third;
    CHECK_ERR(omm_compare(&c, three, 3), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "a third setting") != NULL);
    CHECK_OK(omm_dir_remove(other));
    CHECK_OK(omm_dir_remove(third));
    CHECK_OK(omm_dir_remove(seed));
}

static void refused(const char *a, const char *b, omm_err want, const char *sentence) {
    omm_comparison c;
    const char *dirs[] = {a, b};
    CHECK_ERR(omm_compare(&c, dirs, 2), want);
    if (!strstr(omm_err_sentence(), sentence)) fprintf(stderr, "%s\n", omm_err_sentence());
    CHECK(strstr(omm_err_sentence(), sentence) != NULL);
    CHECK_EQ(omm_mem_live(), 0);
}

static void test_refusals(const kit *k) {
    char other[OMM_PATH_MAX], third[OMM_PATH_MAX];
    omm_comparison c;
    refused(k->dir, k->dir, OMM_ERR_CONFIG, "one run twice");
    kit_copy(other, k->dir);
    change(other, "run.json", SEED_FROM, SEED_TO);
    refused(k->dir, other, OMM_ERR_CONFIG, "nothing to compare");
    change(other, "scenario.yaml", SETTING_FROM, SETTING_TO);
    kit_copy(third, k->dir);
    change(third, "policy.yaml", POLICY_FROM, POLICY_TO);
    const char *three[] = {k->dir, other, third};
    CHECK_ERR(omm_compare(&c, three, 3), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "a third setting") != NULL);
    CHECK(strstr(omm_err_sentence(), third) != NULL); /* which one it is about */
    CHECK_ERR(omm_compare(&c, three, 1), OMM_ERR_CONFIG);
    judge_again(third, 0.0, true, 1);
    refused(k->dir, third, OMM_ERR_MISMATCH,
            "another vocabulary, or a recipe.seq_max that cuts it");
    change(other, "eval/after.jsonl", "home-01", "home-09");
    refused(k->dir, other, OMM_ERR_MISMATCH, "another one");
    kit_write(other, "scenario.yaml", omm_bytes_str("not a mapping\n"));
    refused(k->dir, other, OMM_ERR_FORMAT, "scenario.yaml");
    kit_write(other, "eval/after.jsonl", omm_bytes_str("{}\n"));
    refused(k->dir, other, OMM_ERR_FORMAT, "eval/after.jsonl");
    kit_delete(other, "ledger.jsonl");
    kit_delete(other, "eval/after.jsonl");
    refused(k->dir, other, OMM_ERR_NOT_FOUND, "eval/after.jsonl");
    refused(k->dir, "/nowhere", OMM_ERR_NOT_FOUND, "/nowhere");
    CHECK_OK(omm_dir_remove(other));
    CHECK_OK(omm_dir_remove(third));
}

/* Each row of the final adapter changed; then `more` times the last one again. */
static void rows_again(const char *dir, void (*change_row)(omm_eval_record *row, size_t i),
                       size_t more) {
    kit_lines l;
    kit_lines_open(&l, dir, "eval/after.jsonl");
    for (size_t i = 0; i < l.count + more; i++) {
        omm_eval_record row;
        CHECK_OK(omm_eval_record_parse(&row, &l.arena, l.lines[i < l.count ? i : l.count - 1]));
        change_row(&row, i);
        CHECK_OK(omm_eval_record_write(&l.out, &row));
    }
    kit_lines_put(&l, dir, "eval/after.jsonl");
}

static void as_it_is(omm_eval_record *row, size_t i) {
    (void)row;
    (void)i;
}
static void other_item(omm_eval_record *row, size_t i) {
    if (i == 1) row->item.b[31] ^= 1;
}
static void no_reply(omm_eval_record *row) {
    row->generated = row->parsed = row->tool_ok = row->exact = false;
    row->reply = "";
}
static void one_unread(omm_eval_record *row, size_t i) {
    if (i == 0) no_reply(row);
}
static void a_text(omm_eval_record *row, size_t i) {
    if (i == 1) row->is_tool = row->parsed = row->tool_ok = false;
}
/* Of the first client no reply is there; all others' texts are right. */
static void right_texts(omm_eval_record *row, size_t i) {
    if (i % 3 == 0)
        no_reply(row);
    else
        row->exact = !row->is_tool;
}
static void wrong_texts(omm_eval_record *row, size_t i) {
    right_texts(row, i);
    row->exact = false;
}

/* Losses and replies are compared item by item, or not at all. */
static void test_items(const kit *k) {
    static const struct {
        void (*change_row)(omm_eval_record *row, size_t i);
        size_t more;
        const char *says;
    } cases[] = {{other_item, 0, "held-out item 2 is another one than in"},
                 {one_unread, 0, "held-out item 1 was judged in another way than in"},
                 {a_text, 0, "held-out item 2 was judged in another way than in"},
                 {as_it_is, 1, "judged on 7 held-out items"}};
    char other[OMM_PATH_MAX];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kit_copy(other, k->dir);
        change(other, "scenario.yaml", SETTING_FROM, SETTING_TO);
        rows_again(other, cases[i].change_row, cases[i].more);
        refused(k->dir, other, OMM_ERR_MISMATCH, cases[i].says);
        CHECK_OK(omm_dir_remove(other));
    }
    kit_copy(other, k->dir);
    kit_write(other, "eval/after.jsonl", omm_bytes_of("", 0));
    refused(other, k->dir, OMM_ERR_MISMATCH, "no held-out items");
    CHECK_OK(omm_dir_remove(other));
}

/* More right replies are better, of the clients that have some; and another program is said. */
static void test_exact(const kit *k) {
    static const char program[] = "1123456789abcdef0123456789abcdef01234567";
    char a[OMM_PATH_MAX], b[OMM_PATH_MAX];
    omm_comparison c;
    omm_buf text;
    kit_copy(a, k->dir);
    kit_copy(b, k->dir);
    change(b, "scenario.yaml", SETTING_FROM, SETTING_TO);
    change(b, "manifest.json", KIT_COMMIT, program);
    rows_again(a, wrong_texts, 0);
    rows_again(b, right_texts, 0);
    const char *dirs[] = {a, b};
    CHECK_OK(omm_compare(&c, dirs, 2));
    const omm_compare_metric *exact = &c.metrics[OMM_COMPARE_EXACT];
    CHECK(exact->known && near(exact->a, 0.0) && near(exact->b, 0.5));
    CHECK_EQ(exact->clients, 2);
    CHECK(exact->seeds == 1 && exact->seeds_better == 1);
    CHECK(!c.one_program && strcmp(c.bundles[1].program, program) == 0);
    omm_buf_init(&text, BYTES_MAX);
    CHECK_OK(omm_comparison_text(&text, &c));
    CHECK_OK(omm_buf_append(&text, "", 1));
    CHECK(strstr((const char *)text.data, "of different versions of the program") != NULL);
    omm_buf_fini(&text);
    omm_comparison_fini(&c);
    CHECK_OK(omm_dir_remove(a));
    CHECK_OK(omm_dir_remove(b));
}

/* Every allocation may fail; nothing is held then. */
static void test_no_memory(const kit *k) {
    char other[OMM_PATH_MAX];
    omm_comparison c;
    kit_copy(other, k->dir);
    change(other, "scenario.yaml", SETTING_FROM, SETTING_TO);
    const char *dirs[] = {k->dir, other};
    omm_err err = OMM_ERR_NOMEM;
    for (size_t n = 1; err == OMM_ERR_NOMEM; n++) {
        CHECK_EQ(omm_mem_live(), 0);
        omm_mem_fail_nth(n);
        err = omm_compare(&c, dirs, 2);
        CHECK(err == OMM_ERR_NOMEM || omm_mem_fail_is_due());
    }
    omm_mem_fail_nth(0);
    CHECK_OK(err);
    omm_comparison_fini(&c);
    CHECK_OK(omm_dir_remove(other));
}

int main(void) {
    kit k;
    test_settings();
    kit_make(&k, &(kit_options){0});
    omm_judgement_fini(&k.judgement); /* so that the tests can count what is held */
    memset(&k.judgement, 0, sizeof k.judgement);
    test_one_pair(&k);
    test_seeds(&k);
    test_service_twice(&k);
    test_other_seeds(&k);
    test_no_interval(&k);
    test_few_clients(&k);
    test_few_clients_of_many_seeds(&k);
    test_data(&k);
    test_refusals(&k);
    test_items(&k);
    test_exact(&k);
    test_no_memory(&k);
    kit_remove(&k);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

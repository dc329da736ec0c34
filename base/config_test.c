#include "omm/config.h"
#include "omm/file.h"
#include "omm_test.h"

#include <locale.h>
#include <string.h>
#include <unistd.h>

/* --- a table with every kind --- */

static const char *const codec_names[] = {"none", "f16", "int8", NULL};

typedef struct recipe {
    uint32_t rank;
    double lr;
    int codec;
    bool shuffle;
    omm_config_list targets;
} recipe;

static const omm_config_field s_target = {
    .key = "target", .kind = OMM_CONFIG_KIND_STRING, .min = 1, .max = 8};

static const omm_config_field s_recipe_fields[] = {
    OMM_CONFIG_U32(recipe, rank, .fallback = "8", .min = 1, .max = 256, .help = "LoRA rank"),
    OMM_CONFIG_REAL(recipe, lr, .fallback = "1e-3", .min = 0, .max = 0.5),
    OMM_CONFIG_ENUM(recipe, codec, codec_names, .fallback = "int8"),
    OMM_CONFIG_BOOL(recipe, shuffle, .fallback = "true"),
    {.key = "targets",
     .kind = OMM_CONFIG_KIND_LIST,
     .offset = offsetof(recipe, targets),
     .fallback = "[q, v]",
     .min = 1,
     .max = 3,
     .item = &s_target,
     .item_size = sizeof(const char *)},
    {0}};

typedef struct group {
    const char *name;
    uint64_t seed;
    uint32_t count;
    bool count_present;
} group;

static const omm_config_field s_group_fields[] = {
    OMM_CONFIG_STRING(group, name, .min = 1, .max = 16),
    OMM_CONFIG_U64(group, seed, .fallback = "0"),
    OMM_CONFIG_U32(group, count, .optional = true, .present = offsetof(group, count_present)),
    {0}};

static const omm_config_field s_group_item = {
    .key = "group", .kind = OMM_CONFIG_KIND_MAP, .sub = s_group_fields};

typedef struct limits {
    double low;
} limits;

static const omm_config_field s_limits_fields[] = {
    OMM_CONFIG_REAL(limits, low, .min = 0.25, .max = -1), {0}};

typedef struct scenario {
    const char *name;
    const char *note;
    const char *policy;
    uint32_t rounds;
    recipe recipe;
    omm_config_list groups;
    limits limits;
    bool limits_present;
} scenario;

static const omm_config_field s_fields[] = {
    OMM_CONFIG_STRING(scenario, name, .min = 1, .max = 64, .help = "names the bundle"),
    OMM_CONFIG_STRING(scenario, note, .optional = true),
    OMM_CONFIG_STRING(scenario, policy, .fallback = ""),
    OMM_CONFIG_U32(scenario, rounds, .min = 1),
    OMM_CONFIG_MAP(scenario, recipe, s_recipe_fields, .help = "what a node trains"),
    {.key = "groups",
     .kind = OMM_CONFIG_KIND_LIST,
     .offset = offsetof(scenario, groups),
     .optional = true,
     .item = &s_group_item,
     .item_size = sizeof(group)},
    OMM_CONFIG_MAP(scenario, limits, s_limits_fields, .optional = true,
                   .present = offsetof(scenario, limits_present)),
    {0}};

static const char s_full[] =
    "# a comment\n"
    "name: full\n"
    "note: \"two\\nlines \\u00e4 \\x07 \\u2028 \\\\ \\\" \xf0\x9f\x98\x80\"\n"
    "rounds: 4294967295\n"
    "recipe:\n"
    "  rank: 16\n"
    "  lr: 2.5e-4\n"
    "  codec: f16\n"
    "  shuffle: false\n"
    "  targets: [q, \"k\", 'v']\n"
    "groups:\n"
    "  - name: a b\n"
    "    seed: 9223372036854775807\n"
    "    count: 0\n"
    "  - {name: two}\n"
    "limits: {low: 1e300}\n";

static omm_arena s_arena;

static omm_err parse(scenario *s, const char *text) {
    memset(s, 0xa5, sizeof *s); /* the loader sets every field */
    return omm_config_parse(s, s_fields, omm_bytes_str(text), "x.yaml", &s_arena);
}

static bool real_is(double a, double b) {
    uint64_t bits[2];
    memcpy(&bits[0], &a, sizeof a);
    memcpy(&bits[1], &b, sizeof b);
    return bits[0] == bits[1];
}

static const char *target(const scenario *s, size_t i) {
    CHECK(i < s->recipe.targets.count);
    return ((const char *const *)s->recipe.targets.items)[i];
}

/* --- what is accepted --- */

static void every_kind_is_loaded(void) {
    scenario s;
    CHECK_OK(parse(&s, s_full));
    CHECK(strcmp(s.name, "full") == 0);
    CHECK(strcmp(s.note, "two\nlines \xc3\xa4 \x07 \xe2\x80\xa8 \\ \" \xf0\x9f\x98\x80") == 0);
    CHECK(strcmp(s.policy, "") == 0);
    CHECK_EQ(s.rounds, UINT32_MAX);
    CHECK_EQ(s.recipe.rank, 16);
    CHECK(real_is(s.recipe.lr, 2.5e-4));
    CHECK_EQ(s.recipe.codec, 1);
    CHECK(!s.recipe.shuffle);
    CHECK_EQ(s.recipe.targets.count, 3);
    CHECK(strcmp(target(&s, 1), "k") == 0 && strcmp(target(&s, 2), "v") == 0);
    CHECK_EQ(s.groups.count, 2);
    const group *g = s.groups.items;
    CHECK(strcmp(g[0].name, "a b") == 0 && strcmp(g[1].name, "two") == 0);
    CHECK_EQ(g[0].seed, INT64_MAX);
    CHECK(g[0].count_present && g[0].count == 0);
    CHECK(!g[1].count_present && g[1].count == 0 && g[1].seed == 0);
    CHECK(s.limits_present && real_is(s.limits.low, 1e300));
}

static void defaults_are_written(void) {
    scenario s;
    static const char *const spellings[] = {
        "name: n\nrounds: 1\n", "{name: n, rounds: 1}", "---\nrounds: 1\n'name': \"n\"\n...\n",
        "{\"name\": \"n\", \"rounds\": 1}\n", "\xef\xbb\xbfname: n\r\nrounds: 1\r\n"};
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++) {
        CHECK_OK(parse(&s, spellings[i]));
        CHECK(strcmp(s.name, "n") == 0 && s.note == NULL && s.rounds == 1);
        CHECK_EQ(s.recipe.rank, 8);
        CHECK(real_is(s.recipe.lr, 1e-3));
        CHECK_EQ(s.recipe.codec, 2);
        CHECK(s.recipe.shuffle);
        CHECK_EQ(s.recipe.targets.count, 2);
        CHECK(strcmp(target(&s, 0), "q") == 0 && strcmp(target(&s, 1), "v") == 0);
        CHECK(s.groups.count == 0 && s.groups.items == NULL);
        CHECK(!s.limits_present && real_is(s.limits.low, 0));
    }
    recipe r;
    static const char *const empty[] = {"", "# nothing\n", "---\n", "{}", "--- {}\n...\n"};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        memset(&r, 0xa5, sizeof r);
        CHECK_OK(omm_config_parse(&r, s_recipe_fields, omm_bytes_str(empty[i]), "r", &s_arena));
        CHECK_EQ(r.rank, 8);
    }
    CHECK_OK(omm_config_parse(&r, s_recipe_fields, omm_bytes_of(NULL, 0), "r", &s_arena));
}

static void numbers_have_one_spelling(void) {
    static const struct {
        const char *text;
        double value;
    } table[] = {{"0", 0},     {"-0", -0.0},   {"0.5", 0.5},     {"5e-1", 0.5},
                 {"0.1", 0.1}, {"1E-3", 1e-3}, {"0.05e+1", 0.5}, {"1e-320", 1e-320}};
    static const char *const refused[] = {
        ".5",    "5.",   "+0.1",  "0x1p-3", "1e",  ".nan", "nan",   "inf",    ".inf",
        "00.1",  "0,1",  "1e-3f", "--0",    "0_1", "1 0",  "1e999", "-1e999", "0.500001",
        "-1e-9", "1:30", "0.",    "0e",     "0e+", "-.1",  "0.1.1", "0e0.1"};
    char text[100];
    recipe r;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        snprintf(text, sizeof text, "lr: %s", table[i].text);
        CHECK_OK(omm_config_parse(&r, s_recipe_fields, omm_bytes_str(text), "r", &s_arena));
        CHECK(real_is(r.lr, table[i].value));
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        snprintf(text, sizeof text, "lr: %s", refused[i]);
        CHECK_ERR(omm_config_parse(&r, s_recipe_fields, omm_bytes_str(text), "r", &s_arena),
                  OMM_ERR_CONFIG);
        CHECK(strstr(omm_err_sentence(), "; accepted: number from 0 to 0.5") != NULL);
    }
}

/* The ends of a range belong to it. */
static void limits_are_allowed(void) {
    static const uint32_t ranks[] = {1, 256};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        char text[40];
        recipe r;
        (void)snprintf(text, sizeof text, "{rank: %u, lr: %s}", ranks[i], i ? "0.5" : "0");
        CHECK_OK(omm_config_parse(&r, s_recipe_fields, omm_bytes_str(text), "r", &s_arena));
        CHECK_EQ(r.rank, ranks[i]);
        CHECK(real_is(r.lr, i ? 0.5 : 0));
    }
}

/* --- what is refused, and in which words --- */

static const struct {
    const char *text;
    const char *message;
} s_refused[] = {
    {"name: n\nrounds: 1\nrecipe:\n  rank: 3x\n",
     "x.yaml:4:9: recipe.rank: \"3x\" is no integer; accepted: integer from 1 to 256"},
    {"name: n\nrounds: 1\nrecipe:\n  rank: \"3\"\n",
     "x.yaml:4:9: recipe.rank: quoted \"3\" is text; accepted: integer from 1 to 256"},
    {"name: n\nrounds: 1\nrecipe: {rank: 257}\n",
     "x.yaml:3:16: recipe.rank: \"257\" is out of range; accepted: integer from 1 to 256"},
    {"name: n\nrounds: 1\nrecipe: {rank: 0}\n",
     "x.yaml:3:16: recipe.rank: \"0\" is out of range; accepted: integer from 1 to 256"},
    {"name: n\nrounds: -1\n",
     "x.yaml:2:9: rounds: \"-1\" is out of range; accepted: integer from 1 to 4294967295"},
    {"name: n\nrounds: 4294967296\n",
     "x.yaml:2:9: rounds: \"4294967296\" is out of range; accepted: integer from 1 to 4294967295"},
    {"name: n\nrounds: 99999999999999999999999\n",
     "x.yaml:2:9: rounds: \"99999999999999999999999\" is out of range; accepted: integer from 1 to "
     "4294967295"},
    {"name: n\nrounds: 010\n",
     "x.yaml:2:9: rounds: \"010\" is no integer; accepted: integer from 1 to 4294967295"},
    {"name: n\nrounds: 0x10\n",
     "x.yaml:2:9: rounds: \"0x10\" is no integer; accepted: integer from 1 to 4294967295"},
    {"name: n\nrounds: 1_0\n",
     "x.yaml:2:9: rounds: \"1_0\" is no integer; accepted: integer from 1 to 4294967295"},
    {"name: n\nrounds: 1.0\n",
     "x.yaml:2:9: rounds: \"1.0\" is no integer; accepted: integer from 1 to 4294967295"},
    {"name: n\nrounds: 1\ngroups: [{name: a, seed: 9223372036854775808}]\n",
     "x.yaml:3:26: groups[0].seed: \"9223372036854775808\" is out of range; accepted: integer"},
    {"name: n\nrounds: 1\nrecipe: {lr: fast}\n",
     "x.yaml:3:14: recipe.lr: \"fast\" is no number; accepted: number from 0 to 0.5"},
    {"name: n\nrounds: 1\nlimits: {low: 0.2}\n",
     "x.yaml:3:15: limits.low: \"0.2\" is out of range; accepted: number of at least 0.25"},
    {"name: n\nrounds: 1\nrecipe: {shuffle: yes}\n",
     "x.yaml:3:19: recipe.shuffle: \"yes\" is neither true nor false; accepted: true, false"},
    {"name: n\nrounds: 1\nrecipe: {shuffle: True}\n",
     "x.yaml:3:19: recipe.shuffle: \"True\" is neither true nor false; accepted: true, false"},
    {"name: n\nrounds: 1\nrecipe: {codec: int9}\n",
     "x.yaml:3:17: recipe.codec: \"int9\" is not a choice; accepted: none, f16, int8"},
    {"name: n\nrounds: 1\nrecipe: {codec: [f16]}\n",
     "x.yaml:3:17: recipe.codec: found a list; accepted: none, f16, int8"},
    {"name: n\nrounds: 1\nrecipe: fast\n",
     "x.yaml:3:9: recipe: \"fast\" is no mapping; accepted: mapping with keys rank, lr, codec, "
     "shuffle, targets"},
    {"name: n\nrounds: 1\nrecipe:\n",
     "x.yaml:3:8: recipe: the key has no value; accepted: mapping with keys rank, lr, codec, "
     "shuffle, targets"},
    {"name: n\nrounds: 1\ngroups: a\n", "x.yaml:3:9: groups: \"a\" is no list; accepted: list"},
    {"name: n\nrounds: 1\ngroups: {a: b}\n", "x.yaml:3:9: groups: found a mapping; accepted: list"},
    {"name: n\nrounds: 1\nrecipe: {targets: []}\n",
     "x.yaml:3:19: recipe.targets: the list is empty; accepted: list of 1 to 3 items"},
    {"name: n\nrounds: 1\nrecipe:\n  targets:\n    - a\n    - b\n    - c\n    - d\n",
     "x.yaml:8:7: recipe.targets: too many items; accepted: list of 1 to 3 items"},
    {"name: n\nrounds: 1\nrecipe: {targets: [a, ninechars]}\n",
     "x.yaml:3:23: recipe.targets[1]: \"ninechars\" is too long; accepted: text of 1 to 8 bytes"},
    {"name: n\nrounds: 1\nrecipe: {targets: [a, '']}\n",
     "x.yaml:3:23: recipe.targets[1]: quoted \"\" is too short; accepted: text of 1 to 8 bytes"},
    {"name: n\nrounds: 1\ngroups: [{name: a}, {name: b, size: 4}]\n",
     "x.yaml:3:31: groups[1].size: unknown key; accepted: name, seed, count"},
    {"name: n\nrounds: 1\ngroups: [{seed: 4}]\n",
     "x.yaml:3:10: groups[0].name: required key is missing; accepted: text of 1 to 16 bytes"},
    {"name: n\nrounds: 1\nrecipe:\n  rnak: 4\n",
     "x.yaml:4:3: recipe.rnak: unknown key, did you mean \"rank\"?; accepted: rank, lr, codec, "
     "shuffle, targets"},
    {"nmae: n\n", "x.yaml:1:1: nmae: unknown key, did you mean \"name\"?; accepted: name, note, "
                  "policy, rounds, recipe, groups, limits"},
    {"name: n\nrounds: 1\nlimit: {}\n",
     "x.yaml:3:1: limit: unknown key, did you mean \"limits\"?; accepted: name, note, policy, "
     "rounds, recipe, groups, limits"},
    {"name: n\n<<: {rounds: 1}\n", "x.yaml:2:1: <<: unknown key; accepted: name, note, policy, "
                                   "rounds, recipe, groups, limits"},
    {"name: n\nrounds: 1\nname: m\n",
     "x.yaml:3:1: name: key appears twice, first on line 1; accepted: each key once"},
    {"name: n\nrounds: 1\nrecipe:\n  rank: 1\n  lr: 0\n  rank: 2\n",
     "x.yaml:6:3: recipe.rank: key appears twice, first on line 4; accepted: each key once"},
    {"", "x.yaml:1:1: name: required key is missing; accepted: text of 1 to 64 bytes"},
    {"# comment\n\nname: n\n",
     "x.yaml:3:1: rounds: required key is missing; accepted: integer from 1 to 4294967295"},
    {"rounds: 1\nname:\n",
     "x.yaml:2:6: name: the key has no value; accepted: text of 1 to 64 bytes"},
    {"rounds: 1\nname: ~\n",
     "x.yaml:2:7: name: the key has no value; accepted: text of 1 to 64 bytes"},
    {"rounds: 1\nname: null\n",
     "x.yaml:2:7: name: the key has no value; accepted: text of 1 to 64 bytes"},
    {"rounds: 1\nname: \"a\\0b\"\n",
     "x.yaml:2:7: name: a NUL character in the text; accepted: text of 1 to 64 bytes"},
    {"rounds: 1\nname: 123456789012345678901234567890123456789012345678901234567890123456789\n",
     "x.yaml:2:7: name: \"123456789012345678901234567890123456789012345678901234567890...\" is too "
     "long; accepted: text of 1 to 64 bytes"},
    {"rounds: 1\nname: &a n\n", "x.yaml:2:7: name: an anchor; accepted: the value without `&`"},
    {"rounds: 1\nname: n\nnote: *a\n",
     "x.yaml:3:7: note: an alias; accepted: the value written out"},
    {"&a name: n\n", "x.yaml:1:1: an anchor; accepted: the value without `&`"},
    {"recipe: &a {rank: 1}\n", "x.yaml:1:9: recipe: an anchor; accepted: the value without `&`"},
    {"rounds: !!int 1\n", "x.yaml:1:9: rounds: a tag; accepted: the value without `!`"},
    {"groups: !x []\n", "x.yaml:1:9: groups: a tag; accepted: the value without `!`"},
    {"--- !!map\n", "x.yaml:1:5: a tag; accepted: the value without `!`"},
    {"name: n\nrounds: 1\n---\nname: m\n", "x.yaml:3:1: a second document; accepted: one document"},
    {"- name: n\n", "x.yaml:1:1: found a list; accepted: mapping with keys name, note, policy, "
                    "rounds, recipe, groups, limits"},
    {"name", "x.yaml:1:1: \"name\" is no mapping; accepted: mapping with keys name, note, policy, "
             "rounds, recipe, groups, limits"},
    {"? [a]\n: b\n", "x.yaml:1:3: a key that is no word; accepted: name, note, policy, rounds, "
                     "recipe, groups, limits"},
    {"\"na\\0\": n\n", "x.yaml:1:1: na: unknown key; accepted: name, note, policy, rounds, recipe, "
                       "groups, limits"},
    {"\"na\\nme\": n\n", "x.yaml:1:1: na?me: unknown key, did you mean \"name\"?; accepted: name, "
                         "note, policy, rounds, recipe, groups, limits"},
    {"name: n\n\trounds: 1\n",
     "x.yaml:2:1: not valid YAML: while scanning a plain scalar: found a tab character that "
     "violates indentation; this is a tab: accepted are spaces"},
    {"recipe:\n\trounds: 1\n",
     "x.yaml:2:1: not valid YAML: while scanning for the next token: found character that cannot "
     "start any token; this is a tab: accepted are spaces"},
    {"name: n\nrecipe: {targets: [a\nrounds: 1\n",
     "x.yaml:3:7: not valid YAML: while parsing a flow sequence: did not find expected ',' or ']'"},
    {"name: n\n  rounds: 1\n",
     "x.yaml:2:9: not valid YAML: mapping values are not allowed in this context"},
    {"name: \"n\n", "x.yaml:2:1: not valid YAML: while scanning a quoted scalar: found unexpected "
                    "end of stream"},
    {"name: n\nnote: \xc3\xa4 \xff\n", "x.yaml:2:9: not valid YAML: invalid leading UTF-8 octet"},
    {"name: n\nnote: \x07\n", "x.yaml:2:7: not valid YAML: control characters are not allowed"},
};

static void mistakes_are_named(void) {
    scenario s;
    for (size_t i = 0; i < sizeof s_refused / sizeof *s_refused; i++) {
        omm_err err = parse(&s, s_refused[i].text);
        if (err != OMM_ERR_CONFIG || strcmp(omm_err_sentence(), s_refused[i].message) != 0)
            fprintf(stderr, "case %zu\nwant: %s\nsaid: %s\n", i, s_refused[i].message,
                    omm_err_sentence());
        CHECK_ERR(err, OMM_ERR_CONFIG);
        CHECK(strcmp(omm_err_sentence(), s_refused[i].message) == 0);
    }
}

static void limits_come_first(void) {
    scenario s;
    char *text = omm_alloc((1u << 20) + 2, 1);
    memset(text, '#', (1u << 20) + 1);
    CHECK_ERR(parse(&s, text), OMM_ERR_TOO_BIG);
    text[1u << 20] = '\0';
    CHECK_ERR(parse(&s, text), OMM_ERR_CONFIG); /* a comment; `name` is missing */
    omm_free(text);

    omm_arena small;
    omm_arena_init(&small, 64);
    CHECK_ERR(omm_config_parse(&s, s_fields, omm_bytes_str(s_full), "x", &small), OMM_ERR_NOMEM);
    omm_arena_fini(&small);

    omm_buf many; /* 65,537 groups: the table has no bound, the loader has */
    omm_buf_init(&many, 1u << 20);
    CHECK_OK(omm_buf_printf(&many, "name: n\nrounds: 1\ngroups:\n"));
    for (unsigned i = 0; i < 65537; i++) CHECK_OK(omm_buf_printf(&many, "- {name: n}\n"));
    omm_arena large;
    omm_arena_init(&large, (size_t)64 << 20);
    CHECK_ERR(omm_config_parse(&s, s_fields, omm_buf_view(&many), "x", &large), OMM_ERR_CONFIG);
    CHECK(strcmp(omm_err_sentence(), "x:65540:3: groups: too many items; accepted: list") == 0);
    omm_arena_fini(&large);
    omm_buf_fini(&many);
}

/* A table that contains itself is the only way to nest deep. */
typedef struct tree {
    omm_config_list sub;
} tree;
static const omm_config_field s_tree_item;
static const omm_config_field s_tree_fields[2] = {{.key = "sub",
                                                   .kind = OMM_CONFIG_KIND_LIST,
                                                   .optional = true,
                                                   .item = &s_tree_item,
                                                   .item_size = sizeof(tree)},
                                                  {0}};
static const omm_config_field s_tree_item = {
    .key = "tree", .kind = OMM_CONFIG_KIND_MAP, .sub = s_tree_fields};

static omm_err parse_tree(size_t levels) {
    char text[1000] = "{";
    for (size_t i = 0; i < levels; i++) memcpy(text + 1 + i * 7, "sub: [{", 8);
    for (size_t i = 0; i < levels; i++) memcpy(text + 1 + levels * 7 + i * 2, "}]", 3);
    memcpy(text + 1 + levels * 9, "}", 2);
    tree t;
    return omm_config_parse(&t, s_tree_fields, omm_bytes_str(text), "t", &s_arena);
}

static void nesting_is_limited(void) {
    CHECK_OK(parse_tree(7)); /* 15 levels */
    CHECK_ERR(parse_tree(8), OMM_ERR_CONFIG);
    CHECK(
        strcmp(omm_err_sentence(),
               "t:1:57: sub[0].sub[0].sub[0].sub[0].sub[0].sub[0].sub[0].sub[0]: nested too deep; "
               "accepted: 16 levels") == 0);
    CHECK_ERR(parse_tree(100), OMM_ERR_CONFIG);
    omm_buf words;
    omm_buf_init(&words, 10000);
    CHECK_OK(omm_config_describe(&words, s_tree_fields)); /* ends */
    omm_buf_fini(&words);
}

/* Every truncation and every flipped bit: loaded or refused, in bounds. */
static void damaged_text_stays_in_bounds(void) {
    scenario s;
    size_t size = sizeof s_full - 1;
    for (size_t cut = 0; cut <= size; cut++) {
        uint8_t *exact = omm_alloc(cut, 1);
        memcpy(exact, s_full, cut);
        omm_arena arena;
        omm_arena_init(&arena, 100000);
        omm_err err = omm_config_parse(&s, s_fields, omm_bytes_of(exact, cut), "x", &arena);
        CHECK(err == OMM_OK || err == OMM_ERR_CONFIG);
        CHECK(cut > 50 || err == OMM_ERR_CONFIG); /* `rounds` is not there yet */
        omm_arena_fini(&arena);
        omm_free(exact);
    }
    uint8_t *flipped = omm_alloc(size, 1);
    for (size_t bit = 0; bit < size * 8; bit++) {
        memcpy(flipped, s_full, size);
        flipped[bit / 8] ^= (uint8_t)(1u << bit % 8);
        omm_arena arena;
        omm_arena_init(&arena, 100000);
        omm_err err = omm_config_parse(&s, s_fields, omm_bytes_of(flipped, size), "x", &arena);
        CHECK(err == OMM_OK || err == OMM_ERR_CONFIG);
        omm_arena_fini(&arena);
    }
    omm_free(flipped);
}

/* --- writing --- */

static const char s_full_written[] = "name: \"full\"\n"
                                     "note: \"two\\nlines \xc3\xa4 \\u0007 \\u2028 \\\\ \\\" "
                                     "\xf0\x9f\x98\x80\"\n"
                                     "policy: \"\"\n"
                                     "rounds: 4294967295\n"
                                     "recipe:\n"
                                     "  rank: 16\n"
                                     "  lr: 0.00025\n"
                                     "  codec: \"f16\"\n"
                                     "  shuffle: false\n"
                                     "  targets: [\"q\", \"k\", \"v\"]\n"
                                     "groups:\n"
                                     "  - name: \"a b\"\n"
                                     "    seed: 9223372036854775807\n"
                                     "    count: 0\n"
                                     "  - name: \"two\"\n"
                                     "    seed: 0\n"
                                     "limits:\n"
                                     "  low: 1e+300\n";

static void check_written(const scenario *s, const char *want) {
    omm_buf out;
    omm_buf_init(&out, 10000);
    CHECK_OK(omm_config_write(&out, s_fields, s));
    if (!omm_bytes_equal(omm_buf_view(&out), omm_bytes_str(want)))
        fprintf(stderr, "written:\n%.*s", (int)out.size, (const char *)out.data);
    CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str(want)));
    CHECK_OK(omm_config_check_written(omm_bytes_str(want), s_fields, s));
    omm_buf_fini(&out);
}

/* No byte of it is free, and it ends where it ends. */
static void another_spelling_is_found(void) {
    static const struct {
        const char *text, *where;
    } all[] = {{"# why\nname: \"n\"\n", "line 1"},
               {"name: n\npolicy: \"\"\n", "line 1"},
               {"name: \"n\"\nrounds: 1\n", "line 2"},
               {"name: \"n\"\npolicy: \"\"\nrounds: 1\nrecipe:\n  rank: 8\n  lr: 0.001\n"
                "  codec: \"int8\"\n  shuffle: true\n  targets: [\"q\", \"v\"]\n\n",
                "line 10"},
               {"name: \"n\"\npolicy: \"\"\nrounds: 1\nrecipe:\n  rank: 8\n  lr: 0.001\n"
                "  codec: \"int8\"\n  shuffle: true\n  targets: [\"q\", \"v\"]",
                "line 9"},
               {"", "line 1"}};
    scenario s;
    CHECK_OK(parse(&s, "name: n\nrounds: 1\n"));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        CHECK_ERR(omm_config_check_written(omm_bytes_str(all[i].text), s_fields, &s),
                  OMM_ERR_FORMAT);
        CHECK(strncmp(omm_err_sentence(), all[i].where, strlen(all[i].where)) == 0);
    }
}

static void written_text_reads_back(void) {
    scenario s;
    CHECK_OK(parse(&s, s_full));
    check_written(&s, s_full_written);
    CHECK_OK(parse(&s, s_full_written));
    check_written(&s, s_full_written);
    CHECK(strcmp(s.note, "two\nlines \xc3\xa4 \x07 \xe2\x80\xa8 \\ \" \xf0\x9f\x98\x80") == 0);

    static const char defaults[] = "name: \"n\"\npolicy: \"\"\nrounds: 1\nrecipe:\n  rank: 8\n"
                                   "  lr: 0.001\n  codec: \"int8\"\n  shuffle: true\n"
                                   "  targets: [\"q\", \"v\"]\n";
    CHECK_OK(parse(&s, "name: n\nrounds: 1\n"));
    check_written(&s, defaults);
    CHECK_OK(parse(&s, defaults));
    check_written(&s, defaults);
}

/* Every character that YAML has, through text and back. */
static void every_character_survives(void) {
    char *note = omm_alloc(5, 1);
    for (uint32_t code = 1; code < 0x110000; code += code < 0x3000 || code > 0xfff0 ? 1 : 61) {
        if (code > 0x10010) code += 4001;
        if (code >= 0xd800 && code < 0xe000) continue;
        size_t n = 0;
        memset(note, 0, 5);
        if (code < 0x80) {
            note[n++] = (char)code;
        } else if (code < 0x800) {
            note[n++] = (char)(0xc0 | code >> 6);
            note[n++] = (char)(0x80 | (code & 63));
        } else if (code < 0x10000) {
            note[n++] = (char)(0xe0 | code >> 12);
            note[n++] = (char)(0x80 | (code >> 6 & 63));
            note[n++] = (char)(0x80 | (code & 63));
        } else if (code < 0x110000) {
            note[n++] = (char)(0xf0 | code >> 18);
            note[n++] = (char)(0x80 | (code >> 12 & 63));
            note[n++] = (char)(0x80 | (code >> 6 & 63));
            note[n++] = (char)(0x80 | (code & 63));
        }
        scenario s;
        omm_arena arena;
        omm_buf out;
        omm_arena_init(&arena, 100000);
        omm_buf_init(&out, 10000);
        CHECK_OK(
            omm_config_parse(&s, s_fields, omm_bytes_str("name: n\nrounds: 1\n"), "x", &arena));
        s.note = note;
        CHECK_OK(omm_config_write(&out, s_fields, &s));
        CHECK_OK(omm_config_parse(&s, s_fields, omm_buf_view(&out), "x", &arena));
        CHECK(strcmp(s.note, note) == 0);
        omm_buf_fini(&out);
        omm_arena_fini(&arena);
    }
    omm_free(note);
}

static void unwritable_values_are_refused(void) {
    static const char *const texts[] = {
        "\xff", "a\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe0\x80\x80", "\x80"};
    scenario s;
    omm_buf out;
    omm_buf_init(&out, 10000);
    CHECK_OK(omm_buf_append(&out, "kept", 4));
    CHECK_OK(parse(&s, s_full));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        s.note = texts[i];
        CHECK_ERR(omm_config_write(&out, s_fields, &s), OMM_ERR_CONFIG);
    }
    s.note = "";
    s.recipe.codec = 3;
    CHECK_ERR(omm_config_write(&out, s_fields, &s), OMM_ERR_CONFIG);
    s.recipe.codec = -1;
    CHECK_ERR(omm_config_write(&out, s_fields, &s), OMM_ERR_CONFIG);
    s.recipe.codec = 0;
    s.recipe.lr = strtod("nan", NULL);
    CHECK_ERR(omm_config_write(&out, s_fields, &s), OMM_ERR_CONFIG);
    CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str("kept")));
    omm_buf_fini(&out);
}

static void empty_mappings_are_written(void) {
    static const omm_config_field inner[] = {OMM_CONFIG_STRING(scenario, note, .optional = true),
                                             {0}};
    static const omm_config_field item = {.key = "item", .kind = OMM_CONFIG_KIND_MAP, .sub = inner};
    static const omm_config_field outer[] = {
        {.key = "one", .kind = OMM_CONFIG_KIND_MAP, .sub = inner},
        {.key = "list",
         .kind = OMM_CONFIG_KIND_LIST,
         .offset = sizeof(scenario),
         .item = &item,
         .item_size = sizeof(scenario)},
        {0}};
    struct {
        scenario one;
        omm_config_list list;
    } v;
    static const char want[] = "one: {}\nlist:\n  - {}\n  - note: \"x\"\n";
    omm_buf out;
    omm_buf_init(&out, 1000);
    CHECK_OK(omm_config_parse(&v, outer, omm_bytes_str(want), "x", &s_arena));
    CHECK_OK(omm_config_write(&out, outer, &v));
    CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str(want)));
    omm_buf_clear(&out);
    CHECK_OK(omm_config_parse(&v, outer, omm_bytes_str("list: []"), "x", &s_arena));
    CHECK_OK(omm_config_write(&out, outer, &v));
    CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str("one: {}\nlist: []\n")));
    omm_buf_fini(&out);
}

static void table_is_described(void) {
    static const char want[] = "name: text of 1 to 64 bytes; required - names the bundle\n"
                               "note: text; optional\n"
                               "policy: text; default \"\"\n"
                               "rounds: integer from 1 to 4294967295; required\n"
                               "recipe: mapping - what a node trains\n"
                               "recipe.rank: integer from 1 to 256; default 8 - LoRA rank\n"
                               "recipe.lr: number from 0 to 0.5; default 1e-3\n"
                               "recipe.codec: none, f16, int8; default int8\n"
                               "recipe.shuffle: true, false; default true\n"
                               "recipe.targets: list of 1 to 3 items; default [q, v]\n"
                               "recipe.targets[]: text of 1 to 8 bytes\n"
                               "groups: list; optional\n"
                               "groups[].name: text of 1 to 16 bytes; required\n"
                               "groups[].seed: integer; default 0\n"
                               "groups[].count: integer from 0 to 4294967295; optional\n"
                               "limits: mapping; optional\n"
                               "limits.low: number of at least 0.25; required\n";
    omm_buf out;
    omm_buf_init(&out, 10000);
    CHECK_OK(omm_config_describe(&out, s_fields));
    if (!omm_bytes_equal(omm_buf_view(&out), omm_bytes_str(want)))
        fprintf(stderr, "described:\n%.*s", (int)out.size, (const char *)out.data);
    CHECK(omm_bytes_equal(omm_buf_view(&out), omm_bytes_str(want)));
    omm_buf_fini(&out);
}

/* --- memory, files, locale --- */

static omm_err load_and_write(omm_buf *out, const char *path, omm_arena *arena) {
    scenario s;
    OMM_TRY(omm_config_load(&s, s_fields, path, arena));
    OMM_TRY(omm_config_write(out, s_fields, &s));
    return omm_config_describe(out, s_fields);
}

static void failing_memory_is_survived(const char *path) {
    size_t live = omm_mem_live();
    size_t n = 1;
    for (;; n++) {
        omm_arena arena;
        omm_buf out;
        omm_arena_init(&arena, 1u << 20);
        omm_buf_init(&out, 1u << 20);
        omm_mem_fail_nth(n);
        omm_err err = load_and_write(&out, path, &arena);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        omm_buf_fini(&out);
        omm_arena_fini(&arena);
        CHECK_EQ(omm_mem_live(), live);
        if (err == OMM_OK) break;
        CHECK_EQ(err, OMM_ERR_NOMEM);
    }
    CHECK(n > 4);
}

static void files_are_loaded(void) {
    char dir[] = "/tmp/omm_config_test_XXXXXX";
    char path[OMM_PATH_MAX];
    scenario s;
    CHECK(mkdtemp(dir) != NULL);
    CHECK_OK(omm_path_join(path, dir, "s.yaml"));
    CHECK_ERR(omm_config_load(&s, s_fields, path, &s_arena), OMM_ERR_NOT_FOUND);
    CHECK_OK(omm_file_write_fast(path, omm_bytes_str("rounds: x"), 0644));
    CHECK_ERR(omm_config_load(&s, s_fields, path, &s_arena), OMM_ERR_CONFIG);
    CHECK(strncmp(omm_err_sentence(), path, strlen(path)) == 0);
    CHECK(strncmp(omm_err_sentence() + strlen(path), ":1:9: rounds: ", 14) == 0);
    CHECK_OK(omm_file_write_fast(path, omm_bytes_str(s_full), 0644));
    failing_memory_is_survived(path);
    CHECK_OK(omm_dir_remove(dir));
}

/* Where the machine has a locale that writes 0,5, nothing changes. */
static void locale_changes_nothing(void) {
    if (!setlocale(LC_ALL, "de_DE.UTF-8") && !setlocale(LC_ALL, "fr_FR.UTF-8"))
        fprintf(stderr, "no locale with a decimal comma here; the C locale is tested alone\n");
    scenario s;
    CHECK_OK(parse(&s, s_full));
    check_written(&s, s_full_written);
    setlocale(LC_ALL, "C");
}

/* ---- what a table cannot check ---- */

static void placed(const char *file, omm_err err, const char *sentence, const char *want) {
    char text[OMM_PATH_MAX + 256];
    snprintf(text, sizeof text, "%s%s", file, want);
    CHECK_ERR(omm_config_place(omm_raise(err, "%s", sentence), file), err);
    if (strcmp(omm_err_sentence(), text) != 0)
        fprintf(stderr, "wanted '%s', got '%s'\n", text, omm_err_sentence());
    CHECK(strcmp(omm_err_sentence(), text) == 0);
}

/* A sentence that begins with a key gets the place of its value; without one, that of what is around it. */
static void places_are_found(void) {
    static const char text[] = "# a comment\n"
                               "name: x\n"
                               "model: {width: 31,\n"
                               "        heads: 4}\n"
                               "groups:\n"
                               "  - who: [a, b]\n"
                               "  - {who: [c], named: 2}\n"
                               "widths: 1\n";
    char dir[] = "/tmp/omm_config_test_XXXXXX";
    char path[OMM_PATH_MAX], with_file[OMM_PATH_MAX + 64];
    CHECK(mkdtemp(dir) != NULL);
    CHECK_OK(omm_path_join(path, dir, "c.yaml"));
    CHECK_OK(omm_file_write_fast(path, omm_bytes_str(text), 0600));
    placed(path, OMM_ERR_CONFIG, "name: no", ":2:7: name: no");
    placed(path, OMM_ERR_CONFIG, "model.width: no", ":3:16: model.width: no");
    placed(path, OMM_ERR_CONFIG, "model: heads is 4", ":4:16: model: heads is 4");
    placed(path, OMM_ERR_CONFIG, "model.depth: no", ":3:8: model.depth: no");
    placed(path, OMM_ERR_CONFIG, "model: wide", ":3:8: model: wide");
    placed(path, OMM_ERR_NOT_FOUND, "groups[1].who[0] is away", ":7:12: groups[1].who[0] is away");
    placed(path, OMM_ERR_CONFIG, "groups[0].named is not there",
           ":6:5: groups[0].named is not there");
    placed(path, OMM_ERR_CONFIG, "groups: two", ":6:3: groups: two");
    placed(path, OMM_ERR_CONFIG, "groups[2]: who is it", ":6:3: groups[2]: who is it");
    placed(path, OMM_ERR_CONFIG, "names: no", ": names: no"); /* a longer word is no key */
    placed(path, OMM_ERR_CONFIG, "width is no key of the file's own",
           ": width is no key of the file's own");
    snprintf(with_file, sizeof with_file, "%s: widths: no", path);
    placed(path, OMM_ERR_CONFIG, with_file, ":8:9: widths: no");
    snprintf(with_file, sizeof with_file, "%s:8:9: widths: no", path);
    placed(path, OMM_ERR_CONFIG, with_file, ":8:9: widths: no"); /* as the loader said it */
    CHECK_ERR(omm_config_place(omm_raise(OMM_ERR_IO, "name: no"), path), OMM_ERR_IO);
    CHECK(strcmp(omm_err_sentence(), "name: no") == 0);
    CHECK_OK(omm_config_place(OMM_OK, path));
    /* What the loader never takes has no places, from there on. */
    static const struct {
        const char *text, *sentence, *want;
    } refused[] = {
        {"a: 1\n? {widths: 5}\n: 2\n", "widths: no", ": widths: no"},
        {"a: &x 1\nname: *x\nwidths: 3\n", "name: no", ": name: no"},
        {"a: 1\nname: "
         "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[2]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n"
         "widths: 3\n",
         "widths: no", ": widths: no"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        CHECK_OK(omm_file_write_fast(path, omm_bytes_str(refused[i].text), 0600));
        placed(path, OMM_ERR_CONFIG, "a: no", ":1:4: a: no");
        placed(path, OMM_ERR_CONFIG, refused[i].sentence, refused[i].want);
    }
    CHECK_OK(omm_dir_remove(dir));
    placed(path, OMM_ERR_CONFIG, "name: no", ": name: no"); /* gone */
}

int main(void) {
    omm_arena_init(&s_arena, (size_t)64 << 20);
    every_kind_is_loaded();
    defaults_are_written();
    numbers_have_one_spelling();
    limits_are_allowed();
    mistakes_are_named();
    limits_come_first();
    nesting_is_limited();
    damaged_text_stays_in_bounds();
    written_text_reads_back();
    another_spelling_is_found();
    every_character_survives();
    unwritable_values_are_refused();
    empty_mappings_are_written();
    table_is_described();
    locale_changes_nothing();
    files_are_loaded();
    places_are_found();
    omm_arena_fini(&s_arena);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

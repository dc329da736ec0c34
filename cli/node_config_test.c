/* From node.yaml to the rules of a guest and to the limits of an offer: every key gets where it belongs,
 * and a file that says nothing means what guest.h and node.h say. */
#include "node_config.h"

#include "omm_test.h"

#include <string.h>

#define REQUIRED "coordinator: tcp://127.0.0.1:9\nname: cafe\nstate_dir: state\n"

typedef struct loaded {
    omm_arena arena; /* the texts of the rules are in it */
    omm_guest_rules rules;
    omm_node_limits limits;
} loaded;

static void load(loaded *out, const char *yaml) {
    node_file file;
    omm_arena_init(&out->arena, (size_t)1 << 20);
    CHECK_OK(omm_config_parse(&file, node_fields, omm_bytes_str(yaml), "node.yaml", &out->arena));
    CHECK_OK(node_file_rules(&out->rules, &file));
    out->limits = node_file_limits(&file);
}

static void rules_that_are_said(void) {
    loaded n;
    load(&n, REQUIRED "hours: \"22:00-07:00,12:00-13:30\"\nmax_cpu_percent: 31\n"
                      "max_load_percent: 42\nmax_heat_c: 73\nmetered_interfaces: wlan1,eth2\n");
    const omm_guest_rules *r = &n.rules;
    CHECK_EQ(r->hours.count, 2);
    CHECK_EQ(r->hours.parts[0].begin, 22 * 60);
    CHECK_EQ(r->hours.parts[0].end, 7 * 60);
    CHECK_EQ(r->hours.parts[1].begin, 12 * 60);
    CHECK_EQ(r->hours.parts[1].end, 13 * 60 + 30);
    CHECK(strcmp(r->hours_text, "22:00-07:00,12:00-13:30") == 0);
    CHECK_EQ(r->max_cpu_percent, 31);
    CHECK_EQ(r->max_load_percent, 42);
    CHECK_EQ(r->max_heat_c, 73);
    CHECK(strcmp(r->metered, "wlan1,eth2") == 0);
    omm_arena_fini(&n.arena);
}

/* One at a time: two that are the same would hide that they were swapped. */
static void pauses_that_are_said(void) {
    loaded n;
    load(&n, REQUIRED "pause_on_battery: false\n");
    CHECK(!n.rules.pause_on_battery && n.rules.pause_on_metered);
    omm_arena_fini(&n.arena);
    load(&n, REQUIRED "pause_on_metered: false\n");
    CHECK(n.rules.pause_on_battery && !n.rules.pause_on_metered);
    omm_arena_fini(&n.arena);
}

static void rules_of_an_empty_file(void) {
    loaded n;
    const omm_guest_rules want = omm_guest_rules_default();
    load(&n, REQUIRED);
    const omm_guest_rules *r = &n.rules;
    CHECK_EQ(r->hours.count, want.hours.count);
    CHECK_EQ(r->max_cpu_percent, want.max_cpu_percent);
    CHECK_EQ(r->max_load_percent, want.max_load_percent);
    CHECK_EQ(r->max_heat_c, want.max_heat_c);
    CHECK_EQ(r->pause_on_battery, want.pause_on_battery);
    CHECK_EQ(r->pause_on_metered, want.pause_on_metered);
    CHECK(r->hours_text[0] == '\0' && r->metered[0] == '\0');
    omm_arena_fini(&n.arena);
}

static void check_limits(const omm_node_limits *got, const omm_node_limits *want) {
    CHECK_EQ(got->rank_max, want->rank_max);
    CHECK_EQ(got->steps_max, want->steps_max);
    CHECK_EQ(got->tokens_max, want->tokens_max);
    CHECK_EQ(got->pass_tokens_max, want->pass_tokens_max);
    CHECK_EQ(got->adapter_values_max, want->adapter_values_max);
    CHECK_EQ(got->download_bytes_max, want->download_bytes_max);
    CHECK_EQ(got->upload_bytes_max, want->upload_bytes_max);
    CHECK_EQ(got->work_bits_max, want->work_bits_max);
}

static void limits(void) {
    loaded n;
    const omm_node_limits few = {1, 2, 3, 4, 5, 6, 7, 8};
    const omm_node_limits all = omm_node_limits_default();
    load(&n, REQUIRED);
    check_limits(&n.limits, &all);
    omm_arena_fini(&n.arena);
    load(&n, REQUIRED "limits: {rank_max: 1, steps_max: 2, tokens_max: 3, pass_tokens_max: 4, "
                      "adapter_values_max: 5, download_bytes_max: 6, upload_bytes_max: 7, "
                      "work_bits_max: 8}\n");
    check_limits(&n.limits, &few);
    omm_arena_fini(&n.arena);
}

static void hours_that_are_all(void) {
    loaded n;
    load(&n, REQUIRED "hours: \"always\"\n");
    CHECK_EQ(n.rules.hours.count, 0);
    CHECK(omm_hours_contain(&n.rules.hours, 0) && omm_hours_contain(&n.rules.hours, 1439));
    omm_arena_fini(&n.arena);
}

static void hours_that_are_none(void) {
    node_file file;
    omm_arena arena;
    omm_guest_rules rules;
    omm_arena_init(&arena, (size_t)1 << 20);
    CHECK_OK(omm_config_parse(&file, node_fields, omm_bytes_str(REQUIRED "hours: late\n"),
                              "node.yaml", &arena));
    CHECK_ERR(node_file_rules(&rules, &file), OMM_ERR_CONFIG);
    omm_arena_fini(&arena);
}

int main(void) {
    rules_that_are_said();
    pauses_that_are_said();
    rules_of_an_empty_file();
    limits();
    hours_that_are_all();
    hours_that_are_none();
    return 0;
}

/* config_fuzz.c - what loads is written, loaded back and written again: the same bytes. */
#include "omm/config.h"
#include "omm/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct group {
    const char *name;
    uint64_t seed;
    uint32_t count;
    bool count_present;
    omm_config_list shares; /* double */
} group;

typedef struct root {
    const char *name;
    int codec;
    bool shuffle;
    double rate;
    omm_config_list groups; /* group */
    group extra;
    bool extra_present;
} root;

static const char *const codec_names[] = {"none", "int8", NULL};

static const omm_config_field s_share = {.key = "share", .kind = OMM_CONFIG_KIND_REAL};

static const omm_config_field s_group_fields[] = {
    OMM_CONFIG_STRING(group, name, .optional = true),
    OMM_CONFIG_U64(group, seed, .fallback = "0"),
    OMM_CONFIG_U32(group, count, .optional = true, .present = offsetof(group, count_present)),
    {.key = "shares",
     .kind = OMM_CONFIG_KIND_LIST,
     .offset = offsetof(group, shares),
     .optional = true,
     .item = &s_share,
     .item_size = sizeof(double)},
    {0}};

static const omm_config_field s_group = {
    .key = "group", .kind = OMM_CONFIG_KIND_MAP, .sub = s_group_fields};

static const omm_config_field s_fields[] = {
    OMM_CONFIG_STRING(root, name, .fallback = "x"),
    OMM_CONFIG_ENUM(root, codec, codec_names, .fallback = "int8"),
    OMM_CONFIG_BOOL(root, shuffle, .optional = true),
    OMM_CONFIG_REAL(root, rate, .fallback = "0.1"),
    {.key = "groups",
     .kind = OMM_CONFIG_KIND_LIST,
     .offset = offsetof(root, groups),
     .fallback = "[{name: q, shares: [1, 2.5]}]",
     .item = &s_group,
     .item_size = sizeof(group)},
    OMM_CONFIG_MAP(root, extra, s_group_fields, .optional = true,
                   .present = offsetof(root, extra_present)),
    {0}};

static omm_buf write_root(const root *value) {
    omm_buf text;
    omm_buf_init(&text, (size_t)1 << 24);
    OMM_ASSERT(omm_config_write(&text, s_fields, value) == OMM_OK);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    root first;
    root second;
    omm_arena arena;
    omm_arena_init(&arena, (size_t)1 << 24);
    omm_err err = omm_config_parse(&first, s_fields, omm_bytes_of(data, size), "fuzz", &arena);
    OMM_ASSERT(err == OMM_OK || err == OMM_ERR_CONFIG || size > 1000);
    if (err == OMM_OK) {
        omm_buf once = write_root(&first);
        err = omm_config_parse(&second, s_fields, omm_buf_view(&once), "again", &arena);
        OMM_ASSERT(err == OMM_OK);
        omm_buf twice = write_root(&second);
        OMM_ASSERT(omm_bytes_equal(omm_buf_view(&once), omm_buf_view(&twice)));
        omm_buf_fini(&once);
        omm_buf_fini(&twice);
    }
    omm_arena_fini(&arena);
    return 0;
}

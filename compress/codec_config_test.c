/* Goal: codecs come out of YAML as written, and the layout digest is that of the layout's JSON. */
#include "omm/codec.h"
#include "omm/json.h"
#include "omm_test.h"

static const omm_segment SEGMENTS[] = {
    {"blk.0.attn_q.weight.lora_a", 3, 17, 0},
    {"blk.0.attn_q.weight.lora_b", 11, 3, 51},
    {"one", 1, 1, 84},
    {"blk.1.ffn_up.weight.lora_a", 2, 23, 85},
};
static const omm_layout LAYOUT = {SEGMENTS, 4, 131};

static void test_layout_json(void) {
    json_t *list = json_array();
    for (size_t i = 0; i < LAYOUT.segment_count; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:i, s:i, s:i}", "name", SEGMENTS[i].name, "rows",
                                        (int)SEGMENTS[i].rows, "cols", (int)SEGMENTS[i].cols,
                                        "offset", (int)SEGMENTS[i].offset));
    omm_buf text;
    omm_buf_init(&text, 1 << 16);
    CHECK_OK(omm_json_write(&text, list));
    omm_digest want = omm_hash(omm_buf_view(&text));
    omm_digest have = omm_layout_digest(&LAYOUT);
    CHECK(omm_digest_equal(&want, &have));
    omm_buf_fini(&text);
    json_decref(list);
}

static omm_err parse(omm_codec_config *out, const omm_config_field *fields, const char *text) {
    omm_arena arena;
    omm_arena_init(&arena, 1 << 20);
    *out = (omm_codec_config){0};
    omm_err err = omm_config_parse(out, fields, omm_bytes_str(text), "codec", &arena);
    omm_arena_fini(&arena);
    return err;
}

static void test_config(void) {
    omm_codec_config config;
    omm_codec codec;
    CHECK_OK(parse(&config, omm_codec_up_fields, "kind: f16\ntopk_fraction: 0.1\n"));
    CHECK_OK(omm_codec_resolve(&codec, &config, &LAYOUT));
    CHECK_EQ(codec.kind, OMM_CODEC_F16);
    CHECK_EQ(codec.keep_count, 13);
    CHECK_EQ(codec.zstd_level, 3);
    CHECK(codec.error_feedback);
    CHECK_OK(parse(&config, omm_codec_up_fields, "topk_fraction: 0.000001\n"));
    CHECK_OK(omm_codec_resolve(&codec, &config, &LAYOUT));
    CHECK_EQ(codec.keep_count, 1); /* of none 0 would be all of them */
    CHECK_OK(parse(&config, omm_codec_up_fields, "topk_fraction: 1\nbyte_budget: 100\n"));
    CHECK_OK(omm_codec_resolve(&codec, &config, &LAYOUT));
    CHECK(codec.keep_count > 0);
    CHECK(omm_codec_sent_bytes_max(&codec, &LAYOUT) <= 100);
    CHECK_OK(parse(&config, omm_codec_down_fields, "zstd_level: 0\n"));
    CHECK_OK(omm_codec_resolve(&codec, &config, &LAYOUT));
    CHECK(codec.kind == OMM_CODEC_F16 && codec.keep_count == 0 && !codec.error_feedback);
    CHECK_OK(parse(&config, omm_codec_up_fields, "kind: none\nzstd_level: 19\n"));
    CHECK_OK(omm_codec_resolve(&codec, &config, &LAYOUT));
    CHECK(codec.kind == OMM_CODEC_NONE && codec.zstd_level == 0);
    CHECK_OK(parse(&config, omm_codec_down_fields, "kind: none\n"));
    CHECK_OK(omm_codec_resolve(&codec, &config, &LAYOUT));
    CHECK_EQ(codec.zstd_level, 0);
    CHECK_ERR(parse(&config, omm_codec_up_fields, "kind: int4\n"), OMM_ERR_CONFIG);
    CHECK_ERR(parse(&config, omm_codec_up_fields, "zstd_level: 20\n"), OMM_ERR_CONFIG);
    CHECK_ERR(parse(&config, omm_codec_up_fields, "topk_fraction: 0\n"), OMM_ERR_CONFIG);
    CHECK_ERR(parse(&config, omm_codec_down_fields, "topk_fraction: 1\n"), OMM_ERR_CONFIG);
}

int main(void) {
    test_layout_json();
    test_config();
    return 0;
}

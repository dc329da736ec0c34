/* What a codec is: its checks, its wire description, its sizes, and how one is chosen. */
#include "internal.h"

#include <stdio.h>

static const char *const s_kind_names[] = {"none", "f16", "int8", NULL};

const omm_config_field omm_codec_up_fields[] = {
    OMM_CONFIG_ENUM(omm_codec_config, kind, s_kind_names, .fallback = "int8",
                    .help = "how kept values are written"),
    OMM_CONFIG_REAL(omm_codec_config, topk_fraction, .fallback = "0.25", .min = 1e-6, .max = 1,
                    .help = "share of values kept, by magnitude; 1 keeps all"),
    OMM_CONFIG_U32(
        omm_codec_config, zstd_level, .fallback = "3", .min = 0, .max = OMM_CODEC_ZSTD_LEVEL_MAX,
        .help = "0 sends the payload as it is, and so does kind: none; others pack it, alike"),
    OMM_CONFIG_U64(omm_codec_config, byte_budget, .fallback = "0", .min = 0, .max = 0x1p40,
                   .help = "bytes of one payload as sent; lowers the share kept; 0: no budget"),
    OMM_CONFIG_BOOL(omm_codec_config, error_feedback, .fallback = "true",
                    .help = "what was not sent is added to the next round's delta"),
    {0}};

const omm_config_field omm_codec_down_fields[] = {
    OMM_CONFIG_ENUM(omm_codec_config, kind, s_kind_names, .fallback = "f16",
                    .help = "how the global adapter's values are written"),
    OMM_CONFIG_U32(
        omm_codec_config, zstd_level, .fallback = "3", .min = 0, .max = OMM_CODEC_ZSTD_LEVEL_MAX,
        .help = "0 sends the payload as it is, and so does kind: none; others pack it, alike"),
    {0}};

static bool kind_is_known(omm_codec_kind kind) {
    return kind == OMM_CODEC_NONE || kind == OMM_CODEC_F16 || kind == OMM_CODEC_INT8;
}

omm_err omm_codec_check(const omm_codec *codec, const omm_layout *layout) {
    OMM_TRY(omm_layout_check(layout));
    if (!kind_is_known(codec->kind))
        return omm_raise(OMM_ERR_CONFIG, "codec kind %d is unknown", (int)codec->kind);
    if (codec->zstd_level > OMM_CODEC_ZSTD_LEVEL_MAX)
        return omm_raise(OMM_ERR_CONFIG, "zstd level %u, limit %u", (unsigned)codec->zstd_level,
                         OMM_CODEC_ZSTD_LEVEL_MAX);
    if (codec->keep_count > layout->value_count)
        return omm_raise(OMM_ERR_CONFIG, "codec keeps %u of %zu values",
                         (unsigned)codec->keep_count, layout->value_count);
    return OMM_OK;
}

void omm_codec_put(uint8_t out[OMM_CODEC_BYTES], const omm_codec *codec) {
    out[0] = (uint8_t)codec->kind;
    out[1] = (uint8_t)codec->zstd_level;
    out[2] = codec->error_feedback;
    out[3] = 0;
    omm_put_u32(out + 4, codec->keep_count);
}

omm_err omm_codec_get(omm_codec *out, omm_bytes in) {
    if (in.size != OMM_CODEC_BYTES)
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "codec description of %zu bytes, must be %u",
                         in.size, OMM_CODEC_BYTES);
    const uint8_t *p = in.data;
    if (p[0] > OMM_CODEC_INT8 || p[1] > OMM_CODEC_ZSTD_LEVEL_MAX || p[2] > 1 || p[3] != 0)
        return omm_raise(OMM_ERR_REFUSED_FORMAT, "codec description %02x %02x %02x %02x is unknown",
                         (unsigned)p[0], (unsigned)p[1], (unsigned)p[2], (unsigned)p[3]);
    *out = (omm_codec){.kind = (omm_codec_kind)p[0],
                       .zstd_level = p[1],
                       .error_feedback = p[2] == 1,
                       .keep_count = omm_get_u32(p + 4)};
    return OMM_OK;
}

void omm_codec_text(char out[OMM_CODEC_TEXT_SIZE], const omm_codec *codec) {
    OMM_ASSERT(kind_is_known(codec->kind));
    char keep[24] = "all";
    if (codec->keep_count > 0) snprintf(keep, sizeof keep, "top-%u", (unsigned)codec->keep_count);
    snprintf(out, OMM_CODEC_TEXT_SIZE, "%s %s zstd-%u%s", s_kind_names[codec->kind], keep,
             (unsigned)codec->zstd_level, codec->error_feedback ? " feedback" : "");
}

size_t omm_codec_payload_bytes_max(const omm_codec *codec, const omm_layout *layout) {
    size_t n = layout->value_count;
    size_t k = codec->keep_count ? codec->keep_count : n;
    size_t bytes = OMM_CODEC_HEADER_BYTES + k * code_width(codec->kind);
    if (codec->keep_count) bytes += index_bytes_max(n, k);
    if (codec->kind == OMM_CODEC_INT8) {
        size_t rows = omm_layout_rows(layout);
        bytes += CODE_SCALE_BYTES * (k < rows ? k : rows);
    }
    return bytes;
}

size_t omm_codec_sent_bytes_max(const omm_codec *codec, const omm_layout *layout) {
    return omm_codec_payload_bytes_max(codec, layout) + 1;
}

omm_err omm_codec_choose(omm_codec *out, omm_codec_kind kind, uint32_t zstd_level,
                         const omm_layout *layout, uint64_t byte_budget) {
    omm_codec codec = {.kind = kind, .zstd_level = zstd_level};
    OMM_TRY(omm_codec_check(&codec, layout));
    if (omm_codec_sent_bytes_max(&codec, layout) <= byte_budget) {
        *out = codec;
        return OMM_OK;
    }
    uint32_t fits = 0; /* the maximum grows with k, so bisect: `fits` fits, `over` does not */
    uint32_t over = (uint32_t)layout->value_count + 1;
    while (over - fits > 1) {
        codec.keep_count = fits + (over - fits) / 2;
        if (omm_codec_sent_bytes_max(&codec, layout) <= byte_budget)
            fits = codec.keep_count;
        else
            over = codec.keep_count;
    }
    if (fits == 0) {
        codec.keep_count = 1;
        return omm_raise(
            OMM_ERR_CONFIG,
            "byte_budget: %llu, and one value alone takes %zu bytes; accepted: these or "
            "more, 0 for no budget",
            (unsigned long long)byte_budget, omm_codec_sent_bytes_max(&codec, layout));
    }
    codec.keep_count = fits;
    *out = codec;
    return OMM_OK;
}

static uint32_t keep_of_fraction(double fraction, size_t n) {
    if (fraction == 0.0 || fraction >= 1.0) return 0;
    uint32_t keep = (uint32_t)(fraction * (double)n);
    return keep > 0 ? keep : 1;
}

omm_err omm_codec_resolve(omm_codec *out, const omm_codec_config *config,
                          const omm_layout *layout) {
    /* f32 hardly compresses, and a frame beside what it holds would be a coordinator's fourth adapter. */
    const bool is_f32 = config->kind == OMM_CODEC_NONE;
    omm_codec codec = {.kind = (omm_codec_kind)config->kind,
                       .zstd_level = is_f32 ? 0 : config->zstd_level,
                       .error_feedback = config->error_feedback};
    OMM_TRY(omm_codec_check(&codec, layout));
    if (!(config->topk_fraction >= 0.0 && config->topk_fraction <= 1.0))
        return omm_raise(OMM_ERR_CONFIG, "topk_fraction must be within 0 and 1");
    codec.keep_count = keep_of_fraction(config->topk_fraction, layout->value_count);
    if (config->byte_budget && omm_codec_sent_bytes_max(&codec, layout) > config->byte_budget) {
        omm_codec chosen;
        OMM_TRY(
            omm_codec_choose(&chosen, codec.kind, codec.zstd_level, layout, config->byte_budget));
        codec.keep_count = chosen.keep_count;
    }
    *out = codec;
    return OMM_OK;
}

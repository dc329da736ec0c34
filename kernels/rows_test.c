/* rows_test.c - blocks of every type: layouts both ways, hand-made values, what is not finite, and
 * goldens. */
#include "rows_internal.h"

#include "omm/hash.h"
#include "omm/mem.h"
#include "omm/quant.h"
#include "omm/rng.h"
#include "omm_test.h"

#include <math.h>
#include <string.h>

enum { BLOCKS = 64, ROW_BYTES_MAX = BLOCKS * 256 * 4 };

static omm_rng lane(uint32_t round) {
    omm_seed seed = omm_seed_from_u64(3);
    return omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, round);
}

static void fill(uint8_t *bytes, size_t count, const omm_rng *rng) {
    for (size_t i = 0; i < count; i++) bytes[i] = (uint8_t)omm_rng_u32(rng, i);
}

/* Random bytes whose values are finite. */
static void random_row(uint8_t *row, const omm_ggml_info *info) {
    omm_rng rng = lane(info->type);
    fill(row, (size_t)BLOCKS * info->bytes, &rng);
    const rows_layout *layout = rows_layout_of(info->type);
    const unsigned at[2] = {layout ? layout->d_at : info->bytes - 1,
                            layout ? layout->min_at : ROWS_NONE};
    for (size_t b = 0; b < BLOCKS; b++)
        for (size_t k = 0; k < 2; k++) /* clear an exponent bit: never all ones */
            if (layout && at[k] != ROWS_NONE)
                row[b * info->bytes + at[k] + 1] &= 0xbfu;
            else if (at[k] != ROWS_NONE)
                row[b * info->bytes + at[k]] &= 0xbfu;
}

/* Taking blocks apart and putting them together gives the same bytes, except in TQ1_0, where 243 of
 * 256 bytes are ever written; there the codes stay. */
static void round_trip(const omm_ggml_info *info, const uint8_t *row) {
    const rows_layout *layout = rows_layout_of(info->type);
    if (!layout) return;
    CHECK_EQ(layout->block, info->block);
    CHECK_EQ(layout->bytes, info->bytes);
    for (size_t b = 0; b < BLOCKS; b++) {
        rows_block block, again;
        uint8_t bytes[256];
        rows_unpack(&block, layout, row + b * info->bytes);
        const unsigned levels = layout->levels ? layout->levels : 256; /* TQ2_0 has room for a 3 */
        for (size_t i = 0; info->type != OMM_GGML_TQ2_0 && i < info->block; i++)
            CHECK(block.codes[i] < levels);
        rows_pack(bytes, layout, &block);
        rows_unpack(&again, layout, bytes);
        CHECK(memcmp(block.codes, again.codes, info->block) == 0);
        bool exact = info->type != OMM_GGML_TQ1_0;
        CHECK(!exact || memcmp(bytes, row + b * info->bytes, info->bytes) == 0);
    }
}

static uint64_t digest(const void *data, size_t size) {
    omm_digest d = omm_hash(omm_bytes_of(data, size));
    return omm_get_u64(d.b);
}

/* Values of seeded bytes; the same from every compiler and processor. */
static const struct {
    omm_ggml_type type;
    uint64_t values;
} s_goldens[] = {
    {OMM_GGML_F32, 0xa591e8bc80451435},    {OMM_GGML_F16, 0xa669138cb004fa95},
    {OMM_GGML_Q4_0, 0x0686359854999243},   {OMM_GGML_Q4_1, 0x9b2302378bd2a003},
    {OMM_GGML_Q5_0, 0x40d7ce6c28f0ae0f},   {OMM_GGML_Q5_1, 0xfbaf72e8d2127aca},
    {OMM_GGML_Q8_0, 0xde7722b17386b405},   {OMM_GGML_Q2_K, 0x24f175fa0fba5e24},
    {OMM_GGML_Q3_K, 0xf987a38d853c7fa4},   {OMM_GGML_Q4_K, 0x1557f26debfb3420},
    {OMM_GGML_Q5_K, 0xdb26c10be09dd6f1},   {OMM_GGML_Q6_K, 0xf02138e455da4c25},
    {OMM_GGML_IQ4_NL, 0x51250a736e6641bd}, {OMM_GGML_IQ4_XS, 0x946ca7272c88f678},
    {OMM_GGML_BF16, 0xaa1bb1bc3d8e4ab7},   {OMM_GGML_TQ1_0, 0x9d977615166f1396},
    {OMM_GGML_TQ2_0, 0x842a07cc7abe66a2},
};

static bool s_same = true;

static void each_type(const omm_ggml_info *info) {
    static uint8_t row[ROW_BYTES_MAX];
    static float values[BLOCKS * 256];
    const size_t cols = (size_t)BLOCKS * info->block;
    random_row(row, info);
    CHECK_EQ(omm_rows_stride(info->type, cols), (size_t)BLOCKS * info->bytes);
    CHECK_EQ(omm_rows_check(info->type, row, cols), cols);
    round_trip(info, row);
    omm_rows_dequantise(values, info->type, row, cols);
    for (size_t i = 0; i < cols; i++) CHECK(isfinite(values[i]));
    uint64_t got = digest(values, cols * sizeof *values);
    for (size_t i = 0; i < sizeof s_goldens / sizeof *s_goldens; i++)
        if (s_goldens[i].type == info->type && s_goldens[i].values == got) return;
    printf("{OMM_GGML_%s, 0x%016" PRIx64 "}, is no golden\n", info->name, got);
    s_same = false;
}

/* Every half of every block in turn becomes infinite or NaN; the check and the values agree. */
static void not_finite(const omm_ggml_info *info) {
    static uint8_t row[ROW_BYTES_MAX];
    static float values[BLOCKS * 256];
    const size_t cols = (size_t)BLOCKS * info->block;
    for (size_t at = 0; at < info->bytes; at++) {
        size_t bad = (at * 7) % BLOCKS;
        random_row(row, info);
        row[bad * info->bytes + at] |= 0x7fu;
        if (at > 0) row[bad * info->bytes + at - 1] |= 0x80u;
        omm_rows_dequantise(values, info->type, row, cols);
        size_t first = 0;
        while (first < cols && isfinite(values[first])) first++;
        CHECK_EQ(omm_rows_check(info->type, row, cols), first);
    }
}

/* A block whose codes, scales and minima count upwards, against values written down by hand. */
static void by_hand(void) {
    static const struct {
        omm_ggml_type type;
        size_t column;
        float value;
    } want[] = {
        /* d = 0.5, dmin (m) = 0.25; scale of sub-block j = 2 j + 1, min = j; code i % levels */
        {OMM_GGML_Q4_0, 0, -4.0f},      {OMM_GGML_Q4_0, 31, 3.5f},
        {OMM_GGML_Q4_1, 17, 0.75f},     {OMM_GGML_Q5_0, 20, 2.0f},
        {OMM_GGML_Q5_1, 30, 15.25f},    {OMM_GGML_Q8_0, 5, -61.5f},
        {OMM_GGML_Q2_K, 19, 4.25f},     {OMM_GGML_Q2_K, 114, 14.0f - 7 * 0.25f + 1.0f},
        {OMM_GGML_Q3_K, 17, -4.5f},     {OMM_GGML_Q3_K, 255, 46.5f},
        {OMM_GGML_Q4_K, 37, 7.25f},     {OMM_GGML_Q5_K, 255, 15 * 0.5f * 31 - 1.75f},
        {OMM_GGML_Q6_K, 100, 6.5f * 4}, {OMM_GGML_IQ4_NL, 15, 56.5f},
        {OMM_GGML_IQ4_XS, 64, -317.5f}, {OMM_GGML_TQ1_0, 5, 0.5f},
        {OMM_GGML_TQ2_0, 252, -0.5f},
    };
    for (size_t k = 0; k < sizeof want / sizeof *want; k++) {
        const rows_layout *layout = rows_layout_of(want[k].type);
        rows_block b = {.d = 0x3800, .dmin = 0x3400};
        unsigned levels = layout->levels ? layout->levels : 256;
        for (size_t i = 0; i < layout->block; i++) b.codes[i] = (uint8_t)(i % levels);
        for (size_t j = 0; layout->sub && j < (size_t)layout->block / layout->sub; j++) {
            b.scales[j] = (int16_t)(want[k].type == OMM_GGML_Q2_K ? (2 * j + 1) % 16 : 2 * j + 1);
            b.mins[j] = (uint8_t)j;
        }
        uint8_t bytes[256];
        float values[ROWS_BLOCK_MAX];
        rows_pack(bytes, layout, &b);
        omm_rows_dequantise(values, want[k].type, bytes, layout->block);
        if (values[want[k].column] != want[k].value)
            fprintf(stderr, "type %d, column %zu: %g, expected %g\n", (int)want[k].type,
                    want[k].column, (double)values[want[k].column], (double)want[k].value);
        CHECK(values[want[k].column] == want[k].value);
    }
}

/* What the reader of files lets pass, the matrices take. */
static void has_format(const omm_ggml_info *info) {
    omm_format format = OMM_FORMAT_COUNT;
    CHECK(omm_format_find(&format, info->name) && format != OMM_FORMAT_COUNT);
}

int main(void) {
    size_t count = 0;
    const omm_ggml_info *all = omm_ggml_all(&count);
    by_hand();
    for (size_t i = 0; i < count; i++) has_format(&all[i]);
    for (size_t i = 0; i < count; i++) not_finite(&all[i]);
    for (size_t i = 0; i < count; i++) each_type(&all[i]);
    CHECK(s_same);
    return 0;
}

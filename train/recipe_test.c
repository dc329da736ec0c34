/* Recipe: bytes round trip, every refusal names its field, YAML defaults equal the C defaults. */
#include "omm/recipe.h"

#include "omm/json.h"
#include "omm/lora.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <stddef.h>
#include <string.h>

static void encode(omm_buf *out, const omm_recipe *recipe) {
    omm_buf_init(out, 4096);
    CHECK_OK(omm_recipe_encode(out, recipe));
    CHECK_EQ(out->size, omm_recipe_bytes(recipe));
}

static bool is_same(const omm_recipe *a, const omm_recipe *b) {
    omm_buf x, y;
    encode(&x, a);
    encode(&y, b);
    bool same = omm_bytes_equal(omm_buf_view(&x), omm_buf_view(&y));
    omm_buf_fini(&x);
    omm_buf_fini(&y);
    return same;
}

static void round_trip(void) {
    omm_recipe a = omm_recipe_default(), b = {0};
    a.targets = 5;
    a.dropout = 0.25F;
    a.prox_mu = 0.125F;
    CHECK_OK(omm_recipe_validate(&a));
    omm_buf first, second;
    encode(&first, &a);
    CHECK_OK(omm_recipe_decode(&b, omm_buf_view(&first)));
    CHECK(b.rank == 8 && b.targets == 5 && b.dropout == 0.25F && b.prox_mu == 0.125F);
    CHECK(is_same(&a, &b));
    encode(&second, &b);
    CHECK(omm_bytes_equal(omm_buf_view(&first), omm_buf_view(&second)));
    omm_lora_spec spec;
    omm_recipe_lora_spec(&spec, &a);
    CHECK(spec.rank == 8 && spec.targets == 5 && spec.alpha == 16);
    omm_buf_fini(&first);
    omm_buf_fini(&second);
}

/* Old fields alone: the bytes that every offer has had.  A new one: version 2, and back. */
static void versions(void) {
    static const char v1[] =
        "4f4d4d520100000008000000000080417f0000000000000000000000140000000008000000020000000200000a"
        "d723"
        "3c02000000cdcccc3d6666663fa4707d3f77cc2b32000000000000803f0000000000000000";
    omm_recipe a = omm_recipe_default(), b = {0};
    omm_buf buf;
    encode(&buf, &a);
    CHECK_EQ(buf.size, OMM_RECIPE_BYTES);
    char hex[2 * OMM_RECIPE_BYTES_MAX + 1];
    for (size_t i = 0; i < buf.size; i++) snprintf(hex + 2 * i, 3, "%02x", buf.data[i]);
    if (strcmp(hex, v1) != 0) fprintf(stderr, "got %s\n", hex);
    CHECK(strcmp(hex, v1) == 0);
    omm_buf_fini(&buf);
    a.optimizer = OMM_RECIPE_SGD;
    a.momentum = 0.5F;
    a.nesterov = 1;
    a.rslora = 1;
    a.b_rate_ratio = 16;
    a.schedule = OMM_RECIPE_CONSTANT;
    encode(&buf, &a);
    CHECK_EQ(buf.size, OMM_RECIPE_BYTES_2);
    CHECK_OK(omm_recipe_decode(&b, omm_buf_view(&buf)));
    CHECK(is_same(&a, &b) && b.momentum == 0.5F && b.b_rate_ratio == 16 && b.rslora == 1);
    omm_lora_spec spec;
    a.rank = 16;
    omm_recipe_lora_spec(&spec, &a); /* 16 / sqrt(16) = 64 / 16 */
    CHECK(spec.alpha == 64 && spec.rank == 16);
    memset(buf.data + OMM_RECIPE_BYTES, 0, OMM_RECIPE_BYTES_2 - OMM_RECIPE_BYTES);
    CHECK_ERR(omm_recipe_decode(&b, omm_buf_view(&buf)), OMM_ERR_FORMAT); /* is version 1 */
    omm_buf_fini(&buf);
}

/* Zero has one spelling: two would be two digests of one recipe. */
static void minus_zero(void) {
    const omm_recipe a = omm_recipe_default();
    omm_recipe b = a;
    omm_buf buf;
    encode(&buf, &a);
    uint8_t *const dropout = buf.data + 24; /* the fifth number behind eight bytes */
    CHECK_EQ(omm_get_u32(dropout), 0);
    omm_put_u32(dropout, 0x80000000U);
    CHECK_ERR(omm_recipe_decode(&b, omm_buf_view(&buf)), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "dropout is minus zero") != NULL);
    CHECK(is_same(&a, &b));
    omm_buf_fini(&buf);
}

/* Patterns and cores: version 3, and back; not without need, no text after its end. */
static void third_version(void) {
    omm_recipe a = omm_recipe_default(), b = {0};
    omm_buf buf;
    a.parts = OMM_RECIPE_PARTS_CORE;
    CHECK_EQ(omm_recipe_bytes(&a), OMM_RECIPE_BYTES_3);
    a.parts = OMM_RECIPE_PARTS_B;
    CHECK_EQ(omm_recipe_bytes(&a), OMM_RECIPE_BYTES);
    CHECK_OK(omm_recipe_set_patterns(&a, "ffn_*=4,blk.0.*=2", "q=32"));
    CHECK(!omm_recipe_is_uniform(&a));
    encode(&buf, &a);
    CHECK_EQ(buf.size, OMM_RECIPE_BYTES_3);
    CHECK_OK(omm_recipe_decode(&b, omm_buf_view(&buf)));
    CHECK(is_same(&a, &b) && strcmp(b.rank_pattern, "ffn_*=4,blk.0.*=2") == 0);
    CHECK(strcmp(b.alpha_pattern, "q=32") == 0 && b.target_pattern[0] == 0);
    buf.data[buf.size - 1] = 'x';
    CHECK_ERR(omm_recipe_decode(&b, omm_buf_view(&buf)), OMM_ERR_FORMAT);
    memset(buf.data + OMM_RECIPE_BYTES_2, 0, buf.size - OMM_RECIPE_BYTES_2);
    CHECK_ERR(omm_recipe_decode(&b, omm_buf_view(&buf)), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), "that is version 1"));
    omm_buf_fini(&buf);
}

/* Activations: version 5, with patterns and without, and back; not where they are f32. */
static void fifth_version(void) {
    omm_recipe a = omm_recipe_default(), b = {0};
    for (int patterns = 0; patterns < 2; patterns++) {
        omm_buf buf;
        a.activations = OMM_RECIPE_Q8;
        if (patterns) CHECK_OK(omm_recipe_set_patterns(&a, "ffn_*=4", "q=32"));
        encode(&buf, &a);
        CHECK_EQ(buf.size, OMM_RECIPE_BYTES_MAX);
        CHECK_EQ(omm_get_u32(buf.data + 4), 5);
        CHECK_EQ(omm_get_u32(buf.data + OMM_RECIPE_BYTES_3), 1);
        CHECK_OK(omm_recipe_decode(&b, omm_buf_view(&buf)));
        CHECK(is_same(&a, &b) && b.activations == OMM_RECIPE_Q8);
        omm_put_u32(buf.data + OMM_RECIPE_BYTES_3, 2);
        CHECK_ERR(omm_recipe_decode(&b, omm_buf_view(&buf)), OMM_ERR_CONFIG);
        CHECK(strstr(omm_err_sentence(), "activations is 2"));
        omm_put_u32(buf.data + OMM_RECIPE_BYTES_3, 1);
        omm_put_u32(buf.data + 4, 4);
        CHECK_ERR(omm_recipe_decode(&b, omm_buf_view(&buf)), OMM_ERR_VERSION);
        CHECK(strstr(omm_err_sentence(), "rounded in another order (decision 205)"));
        omm_put_u32(buf.data + 4, 5);
        omm_put_u32(buf.data + OMM_RECIPE_BYTES_3, 0);
        CHECK_ERR(omm_recipe_decode(&b, omm_buf_view(&buf)), OMM_ERR_FORMAT);
        CHECK(strstr(omm_err_sentence(), patterns ? "that is version 3" : "that is version 1"));
        omm_buf_fini(&buf);
    }
    char said[OMM_RECIPE_DIFFERENCE_BYTES];
    b = a;
    b.activations = OMM_RECIPE_F32;
    CHECK(omm_recipe_difference(said, &a, &b) && strcmp(said, "another activations") == 0);
}

static void damaged_bytes(uint32_t version) {
    omm_recipe a = omm_recipe_default(), untouched = {.rank = 77};
    if (version > 1) a.optimizer = OMM_RECIPE_ADAFACTOR;
    if (version > 2) CHECK_OK(omm_recipe_set_patterns(&a, "q=2", NULL));
    if (version > 3) a.activations = OMM_RECIPE_Q8;
    omm_buf buf;
    encode(&buf, &a);
    for (size_t size = 0; size < buf.size; size++)
        CHECK_ERR(omm_recipe_decode(&untouched, omm_bytes_of(buf.data, size)), OMM_ERR_SIZE);
    CHECK_EQ(untouched.rank, 77);
    CHECK_EQ(omm_recipe_bytes_in(omm_bytes_of(buf.data, 8)), buf.size);
    CHECK_EQ(omm_recipe_bytes_in(omm_bytes_of(buf.data, 7)), 0);
    for (size_t bit = 0; bit < 8 * buf.size; bit++) { /* refused, or a valid other recipe */
        omm_recipe read = {0};
        buf.data[bit / 8] ^= (uint8_t)(1U << bit % 8);
        if (omm_recipe_decode(&read, omm_buf_view(&buf)) == OMM_OK) {
            CHECK_OK(omm_recipe_validate(&read));
            omm_buf again;
            encode(&again, &read);
            CHECK(omm_bytes_equal(omm_buf_view(&buf), omm_buf_view(&again)));
            omm_buf_fini(&again);
        }
        buf.data[bit / 8] ^= (uint8_t)(1U << bit % 8);
    }
    for (uint32_t other = 1; other <= 6; other++) {
        buf.data[4] = (uint8_t)other;
        if (other != version)
            CHECK_ERR(omm_recipe_decode(&untouched, omm_buf_view(&buf)),
                      other == 4 || other == 6 ? OMM_ERR_VERSION : OMM_ERR_SIZE);
    }
    CHECK_EQ(omm_recipe_bytes_in(omm_buf_view(&buf)), 0);
    buf.data[0] = 'X';
    CHECK_ERR(omm_recipe_decode(&untouched, omm_buf_view(&buf)), OMM_ERR_FORMAT);
    omm_buf_fini(&buf);
}

#define REFUSED(member, value)                                                                     \
    do {                                                                                           \
        omm_recipe r = omm_recipe_default();                                                       \
        r.member = (value);                                                                        \
        CHECK_ERR(omm_recipe_validate(&r), OMM_ERR_CONFIG);                                        \
        CHECK(strstr(omm_err_sentence(), #member));                                                \
    } while (0)

static void out_of_range(void) {
    REFUSED(rank, 0);
    REFUSED(rank, 257);
    REFUSED(alpha, 0);
    REFUSED(alpha, __builtin_nanf(""));
    REFUSED(targets, 0);
    REFUSED(targets, 128);
    REFUSED(parts, 4);
    REFUSED(dropout, 1);
    REFUSED(steps, 0);
    REFUSED(batch_tokens, 0);
    REFUSED(micro_tokens, 0);
    REFUSED(seq_max, 7);
    REFUSED(learning_rate, -1);
    REFUSED(learning_rate, __builtin_inff());
    REFUSED(lr_min_ratio, 1.5F);
    REFUSED(beta1, 1);
    REFUSED(beta2, 1);
    REFUSED(epsilon, 0);
    REFUSED(weight_decay, -1);
    REFUSED(clip_norm, -1);
    REFUSED(prox_mu, __builtin_nanf(""));
    REFUSED(optimizer, 3);
    REFUSED(schedule, 3);
    REFUSED(rslora, 2);
    REFUSED(activations, 2);
    REFUSED(b_rate_ratio, -1);
    REFUSED(momentum, 0.5F);   /* with adamw */
    REFUSED(nesterov, 1);      /* without momentum */
    REFUSED(relative_step, 1); /* without adafactor */
}

/* What a field may be, both ends included: the next number outside is refused, there and in YAML. */
typedef struct limit {
    const char *name;
    size_t offset;
    bool real;
    double min, max;
} limit;
#define LIMIT(member, real, min, max)                                                              \
    { #member, offsetof(omm_recipe, member), real, min, max }

static const limit s_limits[] = {
    LIMIT(rank, false, 1, 256),
    LIMIT(alpha, true, 1e-3, 4096),
    LIMIT(dropout, true, 0, 0.9),
    LIMIT(steps, false, 1, 1000000),
    LIMIT(batch_tokens, false, 1, 1 << 24),
    LIMIT(micro_tokens, false, 1, 1 << 16),
    LIMIT(seq_max, false, 8, 32768),
    LIMIT(learning_rate, true, 0, 10),
    LIMIT(warmup_steps, false, 0, 1000000),
    LIMIT(lr_min_ratio, true, 0, 1),
    LIMIT(beta1, true, 0, 0.99999),
    LIMIT(beta2, true, 0, 0.999999),
    LIMIT(epsilon, true, 1e-12, 1),
    LIMIT(weight_decay, true, 0, 10),
    LIMIT(clip_norm, true, 0, 1e6),
    LIMIT(prox_mu, true, 0, 1e3),
    LIMIT(seed_lane, false, 0, UINT32_MAX),
    LIMIT(momentum, true, 0, 0.99999),
    LIMIT(b_rate_ratio, true, 0, 1024),
};

static uint32_t bits_of(const limit *l, double value) {
    return l->real ? omm_f32_to_bits((float)value) : (uint32_t)value;
}

static omm_err with_bits(const limit *l, uint32_t bits) {
    omm_recipe r = omm_recipe_default();
    r.optimizer = OMM_RECIPE_SGD; /* momentum is of it */
    memcpy((char *)&r + l->offset, &bits, sizeof bits);
    return omm_recipe_validate(&r);
}

static void refused_beside(const limit *l, uint32_t bits) {
    CHECK_ERR(with_bits(l, bits), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), l->name) != NULL);
}

static omm_err in_yaml(const limit *l, double value) {
    char text[128];
    omm_arena arena;
    omm_recipe_yaml read = {0};
    omm_recipe r;
    omm_arena_init(&arena, 1 << 20);
    (void)snprintf(text, sizeof text, "{optimizer: sgd, %s: %.*g}\n", l->name, 12, value);
    omm_err err = omm_config_parse(&read, omm_recipe_fields, omm_bytes_str(text), "t.yaml", &arena);
    if (err == OMM_OK) err = omm_recipe_from_yaml(&r, &read);
    omm_arena_fini(&arena);
    return err;
}

static void limits(void) {
    for (size_t i = 0; i < sizeof s_limits / sizeof *s_limits; i++) {
        const limit *l = &s_limits[i];
        const uint32_t low = bits_of(l, l->min), high = bits_of(l, l->max);
        CHECK_OK(with_bits(l, low));
        CHECK_OK(with_bits(l, high));
        if (high != UINT32_MAX) refused_beside(l, high + 1); /* of floats too the next one */
        if (l->min > 0) refused_beside(l, low - 1);
        if (l->real && l->min == 0) refused_beside(l, 0x80000001U);
        CHECK_OK(in_yaml(l, l->min));
        CHECK_OK(in_yaml(l, l->max));
        CHECK_ERR(in_yaml(l, l->real ? l->max * 1.001 : l->max + 1), OMM_ERR_CONFIG);
        CHECK_ERR(in_yaml(l, l->min > 0 ? l->min * 0.5 : -1e-3), OMM_ERR_CONFIG);
    }
}

/* The first that differs, with both numbers; of names and texts only which. */
static void differences(void) {
    const omm_recipe a = omm_recipe_default();
    omm_recipe others[5];
    static const char *const says[] = {
        "steps is 20 there, 21 here", "learning_rate is 0.01 there, 0.03125 here",
        "another schedule", "another targets", "another alpha_pattern"};
    char said[OMM_RECIPE_DIFFERENCE_BYTES];
    for (size_t i = 0; i < 5; i++) others[i] = a;
    others[0].steps = 21;
    others[0].epsilon = 0.5F; /* comes later */
    others[1].learning_rate = 0.03125F;
    others[2].schedule = OMM_RECIPE_LINEAR;
    CHECK_OK(omm_recipe_set_targets(&others[3], "blk.0.q"));
    CHECK_OK(omm_recipe_set_patterns(&others[4], NULL, "q=4"));
    for (size_t i = 0; i < 5; i++) {
        CHECK(omm_recipe_difference(said, &a, &others[i]));
        CHECK_EQ(strcmp(said, says[i]), 0);
    }
    CHECK(!omm_recipe_difference(said, &a, &a));
}

static void bad_pattern(const char *ranks, const char *alphas) {
    omm_recipe r = omm_recipe_default();
    CHECK_OK(omm_recipe_set_patterns(&r, ranks, alphas));
    CHECK_ERR(omm_recipe_validate(&r), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), ranks ? "rank_pattern" : "alpha_pattern"));
    CHECK(strstr(omm_err_sentence(), "accepted"));
}

static void bad_patterns(void) {
    static const char *const both[] = {"q",        "q=",   "=4",          "q=4,",   ",q=4",
                                       "q=4,,v=4", "q=x",  "q=4x",        "q=-1",   "q=0",
                                       "q=1e1",    "q=4.", "q=123456789", "q=99999"};
    for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
        bad_pattern(both[i], NULL);
        bad_pattern(NULL, both[i]);
    }
    bad_pattern("q=1.5", NULL);
    bad_pattern("q=257", NULL);
    bad_pattern(NULL, "q=0.0009");
    bad_pattern(NULL, "q=4096.001");
    bad_pattern("q=00000004", NULL);   /* eight digits */
    bad_pattern(NULL, "q=0.12345678"); /* behind the point as well */
    omm_recipe r = omm_recipe_default();
    CHECK_OK(omm_recipe_set_patterns(&r, NULL, "q=0.5,v=4096"));
    CHECK_OK(omm_recipe_validate(&r));
    CHECK_OK(omm_recipe_set_patterns(&r, "q=256,v=0000001", "q=0.001,v=0000001.1234567"));
    CHECK_OK(omm_recipe_validate(&r));
    char longest[OMM_RECIPE_TEXT + 1];
    memset(longest, 'q', OMM_RECIPE_TEXT);
    longest[OMM_RECIPE_TEXT] = 0;
    CHECK_ERR(omm_recipe_set_patterns(&r, longest, NULL), OMM_ERR_CONFIG);
    CHECK_ERR(omm_recipe_set_patterns(&r, NULL, longest), OMM_ERR_CONFIG);
    memcpy(longest, "blk.", 4);
    CHECK_ERR(omm_recipe_set_targets(&r, longest), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "targets of 128 characters, at most 127") != NULL);
    longest[OMM_RECIPE_TEXT - 1] = 0;
    CHECK_OK(omm_recipe_set_targets(&r, longest));
    CHECK_OK(omm_recipe_set_targets(&r, "blk.0.q"));
    CHECK_OK(omm_recipe_validate(&r));
    r.targets = 1;
    CHECK_ERR(omm_recipe_validate(&r), OMM_ERR_CONFIG);
}

typedef struct planned {
    uint32_t layer;
    omm_lora_target target;
    omm_lora_pair pair;
} planned;

/* A model of four layers; phi-like without gate. */
static const omm_lora_shape s_shape = {.layer_count = 4,
                                       .d_in = {8, 8, 8, 8, 0, 8, 16},
                                       .d_out = {8, 4, 4, 8, 0, 16, 8},
                                       .architecture = "test"};

static void plans(void) {
    static const planned expected[] = {{1, OMM_LORA_Q, {4, 3}},
                                       {1, OMM_LORA_V, {2, 4}},
                                       {2, OMM_LORA_Q, {4, 3}},
                                       {2, OMM_LORA_V, {2, 4}},
                                       {3, OMM_LORA_DOWN, {8, 2}}};
    omm_recipe r = omm_recipe_default();
    omm_lora_plan plan;
    CHECK_OK(omm_recipe_set_targets(&r, "blk.1-2.attn_q,blk.1-2.v,blk.3.ffn_down"));
    CHECK_OK(omm_recipe_set_patterns(&r, "attn_*=4,v=2", "q=12,blk.?.attn_v=8"));
    CHECK_OK(omm_recipe_plan(&plan, &r, &s_shape));
    size_t next = 0;
    for (size_t i = 0; i < (size_t)4 * OMM_LORA_TARGET_COUNT; i++) {
        const planned *e = &expected[next];
        if (!plan.pairs[i].rank) continue;
        CHECK(next < sizeof expected / sizeof *expected);
        CHECK_EQ(i, (size_t)e->layer * OMM_LORA_TARGET_COUNT + e->target);
        CHECK(plan.pairs[i].rank == e->pair.rank && plan.pairs[i].scale == e->pair.scale);
        next++;
    }
    CHECK_EQ(next, sizeof expected / sizeof *expected);
    omm_lora_plan_fini(&plan);
    r.rslora = 1; /* of each pair's own rank */
    CHECK_OK(omm_recipe_set_patterns(&r, "attn_*=4,v=16", "q=12,blk.?.attn_v=8"));
    CHECK_OK(omm_recipe_plan(&plan, &r, &s_shape));
    CHECK(plan.pairs[OMM_LORA_TARGET_COUNT + OMM_LORA_Q].scale == 6);
    CHECK(plan.pairs[OMM_LORA_TARGET_COUNT + OMM_LORA_V].scale == 2);
    omm_lora_plan_fini(&plan);
}

/* A rule that later ones take everything from is said, and changes nothing. */
static void doubt(const char *ranks, const char *alphas, const char *expected) {
    char sentence[OMM_RECIPE_DOUBT_MAX];
    omm_recipe r = omm_recipe_default();
    CHECK_OK(omm_recipe_set_targets(&r, "q,v,down"));
    CHECK_OK(omm_recipe_set_patterns(&r, ranks, alphas));
    CHECK_OK(omm_recipe_doubt(sentence, &r, &s_shape));
    if (strncmp(sentence, expected, strlen(expected)) != 0) fprintf(stderr, "'%s'\n", sentence);
    CHECK(strncmp(sentence, expected, strlen(expected)) == 0 && !sentence[0] == !expected[0]);
}

static void doubts(void) {
    char sentence[OMM_RECIPE_DOUBT_MAX];
    omm_recipe r = omm_recipe_default();
    doubt(NULL, NULL, "");
    doubt("*=8,ffn_*=4,blk.0.*=2", "q=4", "");
    doubt("ffn_*=4,*=8", NULL, "rank_pattern: 'ffn_*' changes nothing: ");
    doubt("q=4,v=2,q=4", NULL, "rank_pattern: 'q' changes nothing: ");
    doubt("blk.0-1.q=4,blk.?.attn_q=4", "q=2", "rank_pattern: 'blk.0-1.q' changes nothing: ");
    doubt("v=4,blk.0-1.q=2,blk.2-3.q=3,q=4,v=5", NULL, "rank_pattern: 'v' ");
    doubt("*=8", "attn_*=4,q=2,v=2", "alpha_pattern: 'attn_*' changes nothing: ");
    for (size_t n = 1; n < 20; n++) {
        CHECK_OK(omm_recipe_set_patterns(&r, "q=4,v=2", "v=3"));
        CHECK_OK(omm_recipe_set_targets(&r, "q,v"));
        omm_mem_fail_nth(n);
        const omm_err err = omm_recipe_doubt(sentence, &r, &s_shape);
        CHECK(err == (omm_mem_fail_is_due() ? OMM_OK : OMM_ERR_NOMEM));
        omm_mem_fail_nth(0);
    }
}

/* What matches nothing is refused, and says what would match. */
static void no_match(const char *targets, const char *ranks, const char *expected) {
    omm_recipe r = omm_recipe_default();
    omm_lora_plan plan;
    CHECK_OK(omm_recipe_set_targets(&r, targets));
    CHECK_OK(omm_recipe_set_patterns(&r, ranks, NULL));
    CHECK_ERR(omm_recipe_plan(&plan, &r, &s_shape), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), expected));
}

static void no_matches(void) {
    no_match("blk.4.*", NULL, "blk.0.attn_q");
    no_match("blk.0-3.ffn_gate", NULL, "names no layer of this model");
    no_match("blk.9-12.*", NULL, "names no layer of this model, which has blk.0 to blk.");
    no_match("blk.2-1.*", NULL, "names no layer of this model");
    no_match("q,v", "ffn_*=4", "names no layer that `targets` adapts");
    no_match("q,v", "attn_x=4", "accepted are all, all-linear");
    no_match("gate", "q=4", "no layer of this model");
    omm_recipe r = omm_recipe_default();
    CHECK_ERR(omm_recipe_set_targets(&r, "attn_x"), OMM_ERR_CONFIG);
    CHECK(strstr(omm_err_sentence(), "ffn_*"));
}

typedef struct holder {
    omm_recipe_yaml recipe;
} holder;

static const omm_config_field s_holder[] = {OMM_CONFIG_MAP(holder, recipe, omm_recipe_fields), {0}};

static void yaml(void) {
    omm_arena arena;
    omm_arena_init(&arena, 1 << 20);
    holder h = {0};
    omm_recipe r = {0}, d = omm_recipe_default();
    CHECK_OK(omm_config_parse(&h, s_holder, omm_bytes_str("recipe: {}\n"), "t.yaml", &arena));
    CHECK_OK(omm_recipe_from_yaml(&r, &h.recipe));
    CHECK(is_same(&r, &d));
    CHECK_OK(omm_config_parse(&h, s_holder,
                              omm_bytes_str("recipe: {targets: \"q,v\", rank: 4, parts: b}\n"),
                              "t.yaml", &arena));
    CHECK_OK(omm_recipe_from_yaml(&r, &h.recipe));
    CHECK(r.targets == 5 && r.rank == 4 && r.parts == OMM_RECIPE_PARTS_B);
    static const char patterns[] =
        "recipe: {targets: \"ffn_*,blk.0.q\", parts: core, rank_pattern: "
        "\"q=4\", alpha_pattern: \"q=0.5\"}\n";
    CHECK_OK(omm_config_parse(&h, s_holder, omm_bytes_str(patterns), "t.yaml", &arena));
    CHECK_OK(omm_recipe_from_yaml(&r, &h.recipe));
    CHECK(strcmp(r.target_pattern, "ffn_*,blk.0.q") == 0 && r.parts == OMM_RECIPE_PARTS_CORE);
    CHECK(strcmp(r.rank_pattern, "q=4") == 0 && strcmp(r.alpha_pattern, "q=0.5") == 0);
    static const char minus[] = "recipe: {dropout: -0, prox_mu: -0.0, clip_norm: -0e3}\n";
    omm_buf bytes;
    omm_buf_init(&bytes, 1 << 16);
    CHECK_OK(omm_config_parse(&h, s_holder, omm_bytes_str(minus), "t.yaml", &arena));
    CHECK_OK(omm_recipe_from_yaml(&r, &h.recipe));
    CHECK_OK(omm_recipe_encode(&bytes, &r)); /* what a node reads has one spelling of 0 */
    CHECK_OK(omm_recipe_decode(&r, omm_buf_view(&bytes)));
    omm_buf_fini(&bytes);
    static const char text[] = "recipe: {optimizer: sgd, momentum: 0.5, nesterov: true, schedule: "
                               "linear, b_rate_ratio: 2, rslora: true, activations: q8}\n";
    CHECK_OK(omm_config_parse(&h, s_holder, omm_bytes_str(text), "t.yaml", &arena));
    CHECK_OK(omm_recipe_from_yaml(&r, &h.recipe));
    CHECK(r.optimizer == OMM_RECIPE_SGD && r.momentum == 0.5F && r.nesterov == 1);
    CHECK(r.schedule == OMM_RECIPE_LINEAR && r.b_rate_ratio == 2 && r.rslora == 1);
    CHECK_EQ(r.activations, OMM_RECIPE_Q8);
    CHECK_OK(omm_config_parse(&h, s_holder, omm_bytes_str("recipe: {relative_step: true}\n"),
                              "t.yaml", &arena));
    CHECK_ERR(omm_recipe_from_yaml(&r, &h.recipe), OMM_ERR_CONFIG);
    CHECK_ERR(
        omm_config_parse(&h, s_holder, omm_bytes_str("recipe: {rank: 0}\n"), "t.yaml", &arena),
        OMM_ERR_CONFIG);
    CHECK_OK(omm_config_parse(&h, s_holder, omm_bytes_str("recipe: {targets: \"q,x\"}\n"), "t.yaml",
                              &arena));
    CHECK_ERR(omm_recipe_from_yaml(&r, &h.recipe), OMM_ERR_CONFIG);
    omm_arena_fini(&arena);
}

/* What is said of layers, ranks and scales is said by any of six; what `--start` has stands otherwise. */
static void says_shape(void) {
    static const struct {
        const char *text;
        bool says;
    } cases[] = {{"{}\n", false},
                 {"{steps: 3, parts: b, learning_rate: 1, dropout: 0.5}\n", false},
                 {"{rslora: false}\n", false},
                 {"{rank: 8}\n", true}, /* as the default, but said */
                 {"{alpha: 16}\n", true},
                 {"{targets: all}\n", true},
                 {"{rslora: true}\n", true},
                 {"{rank_pattern: \"q=4\"}\n", true},
                 {"{alpha_pattern: \"q=4\"}\n", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        omm_arena arena;
        omm_recipe_yaml read = {0};
        omm_arena_init(&arena, 1 << 20);
        CHECK_OK(omm_config_parse(&read, omm_recipe_fields, omm_bytes_str(cases[i].text), "t.yaml",
                                  &arena));
        CHECK_EQ(omm_recipe_says_shape(&read), cases[i].says);
        omm_arena_fini(&arena);
    }
}

/* Every number other than it is by default. */
static omm_recipe all_others(void) {
    omm_recipe r = omm_recipe_default();
    r.rank = 5;
    r.alpha = 3;
    r.dropout = 0.25F;
    r.steps = 7;
    r.batch_tokens = 9;
    r.micro_tokens = 11;
    r.seq_max = 13;
    r.learning_rate = 0.5F;
    r.warmup_steps = 3;
    r.lr_min_ratio = 0.75F;
    r.beta1 = 0.625F;
    r.beta2 = 0.875F;
    r.epsilon = 0.125F;
    r.weight_decay = 0.0625F;
    r.clip_norm = 2;
    r.prox_mu = 4;
    r.seed_lane = 17;
    r.b_rate_ratio = 6;
    return r;
}

/* Read as YAML, what is written as JSON is the same recipe; numbers are as people write them. */
static void json(void) {
    omm_recipe recipes[6];
    for (size_t i = 0; i < 5; i++) recipes[i] = omm_recipe_default();
    recipes[1].targets = 5;
    recipes[1].optimizer = OMM_RECIPE_SGD;
    recipes[1].momentum = 0.9F;
    recipes[1].nesterov = recipes[1].rslora = 1;
    recipes[1].schedule = OMM_RECIPE_CONSTANT;
    recipes[1].learning_rate = 1.0F / 3;
    recipes[1].seed_lane = UINT32_MAX;
    recipes[2].optimizer = OMM_RECIPE_ADAFACTOR;
    recipes[2].relative_step = 1;
    recipes[2].activations = OMM_RECIPE_Q8;
    recipes[2].alpha = 4095.9998F;
    recipes[3].parts = OMM_RECIPE_PARTS_CORE;
    CHECK_OK(omm_recipe_set_targets(&recipes[4], "blk.0-1.*,ffn_*"));
    CHECK_OK(omm_recipe_set_patterns(&recipes[4], "q=4", "v=0.5"));
    recipes[5] = all_others();
    for (size_t i = 0; i < 6; i++) {
        json_t *written = NULL;
        omm_arena arena;
        omm_recipe_yaml yaml_of = {0};
        omm_recipe read = {0};
        omm_buf text;
        omm_arena_init(&arena, 1 << 20);
        omm_buf_init(&text, 1 << 16);
        CHECK_OK(omm_recipe_to_json(&written, &recipes[i]));
        CHECK_OK(omm_json_write(&text, written));
        if (i == 0) CHECK(strstr((const char *)text.data, "\"learning_rate\":0.01,") != NULL);
        CHECK_OK(omm_config_parse(&yaml_of, omm_recipe_fields, omm_buf_view(&text), "recipe.json",
                                  &arena));
        CHECK_OK(omm_recipe_from_yaml(&read, &yaml_of));
        CHECK(is_same(&read, &recipes[i]));
        json_decref(written);
        omm_buf_fini(&text);
        omm_arena_fini(&arena);
    }
}

int main(void) {
    round_trip();
    versions();
    minus_zero();
    third_version();
    fifth_version();
    for (uint32_t version = 1; version <= 5; version++)
        if (version != 4) damaged_bytes(version);
    out_of_range();
    limits();
    differences();
    bad_patterns();
    plans();
    doubts();
    no_matches();
    yaml();
    says_shape();
    json();
    return 0;
}

/* lora_fuse.c - adapters in the tensors of a model whose files stack q, k, v and gate, up by rows.
 *
 *   A = | A_q |    B = | B_q  0   0   0 |     rank: the parts' sum, filled up with zeros to what all
 *       | A_k |        |  0  B_k  0   0 |     parts' ranks reach by doubling; then the file's alpha
 *       | A_v |        |  0   0  B_v  0 |     serves all and B grows by powers of two: exact
 *       |  0  |
 *
 * Parts that have one and the same A keep it once, with B dense: what training on the stacked tensor
 * makes.  Taking apart finds the blocks by the zeros of B, or else gives every part the whole A. */
#include "lora_internal.h"

#include "omm/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PARTS_MAX = 3 };

/* Targets first .. last are one tensor, which the stacked shape has in the slot `at`. */
typedef struct group {
    omm_lora_target at, first, last;
} group;

static const group s_groups[] = {{OMM_LORA_Q, OMM_LORA_Q, OMM_LORA_V},
                                 {OMM_LORA_UP, OMM_LORA_GATE, OMM_LORA_UP}};
enum { GROUPS = sizeof s_groups / sizeof *s_groups };

static const group *group_of(omm_lora_target target) {
    for (size_t g = 0; g < GROUPS; g++)
        if (target >= s_groups[g].first && target <= s_groups[g].last) return &s_groups[g];
    return NULL;
}

/* ---- shapes ----------------------------------------------------------------------------------- */

const char *lora_tensor_stem(const omm_lora_shape *shape, omm_lora_target target) {
    return shape->stacked && target == OMM_LORA_Q ? "attn_qkv" : omm_lora_target_tensor(target);
}

omm_lora_shape lora_stacked_shape(const omm_lora_shape *shape) {
    omm_lora_shape s = *shape;
    s.stacked = true;
    for (size_t g = 0; g < GROUPS; g++) {
        const uint32_t cols = shape->d_in[s_groups[g].first];
        uint32_t rows = 0;
        for (unsigned t = s_groups[g].first; t <= (unsigned)s_groups[g].last; t++) {
            rows += shape->d_out[t];
            s.d_in[t] = s.d_out[t] = 0;
        }
        s.d_in[s_groups[g].at] = cols;
        s.d_out[s_groups[g].at] = rows;
    }
    return s;
}

void lora_base_tensor(char name[OMM_GGUF_NAME_MAX], uint32_t *first, uint32_t *rows,
                      const omm_lora *lora, const omm_lora_tensor *a) {
    const omm_lora_shape *shape = &lora->shape;
    const group *g = shape->fused && !shape->stacked ? group_of(a->target) : NULL;
    *first = 0;
    *rows = a[1].rows;
    snprintf(name, OMM_GGUF_NAME_MAX, "%.*s", (int)(strlen(a->name) - strlen(".lora_a")), a->name);
    if (!g) return;
    const omm_lora_shape stacked = lora_stacked_shape(shape);
    for (unsigned t = g->first; t < (unsigned)a->target; t++) *first += shape->d_out[t];
    *rows = stacked.d_out[g->at];
    snprintf(name, OMM_GGUF_NAME_MAX, "blk.%u.%s.weight", a->layer,
             lora_tensor_stem(&stacked, g->at));
}

/* ---- fusing ----------------------------------------------------------------------------------- */

/* What of one layer goes into one tensor. */
typedef struct bundle {
    const omm_lora_tensor *a[PARTS_MAX]; /* those there are; B follows each */
    uint32_t row[PARTS_MAX];             /* where its rows of B begin */
    uint32_t count;
    bool shared; /* one A for all */
    omm_lora_pair pair;
} bundle;

static bool is_shared(const omm_lora *in, const bundle *b) {
    const omm_lora_tensor *one = b->a[0];
    for (uint32_t i = 1; i < b->count; i++) {
        const omm_lora_tensor *a = b->a[i];
        if (a->rows != one->rows || a->scale != one->scale ||
            memcmp(in->values + a->offset, in->values + one->offset,
                   (size_t)a->rows * a->cols * sizeof(float)) != 0)
            return false;
    }
    return true;
}

static bool doubles_to(uint32_t from, uint32_t to) {
    while (from < to) from *= 2;
    return from == to;
}

/* The smallest rank from the sum on that each part's rank reaches by doubling; none: the sum. */
static uint32_t rank_of(const bundle *b, bool one_scale) {
    uint32_t sum = 0, rank = b->a[0]->rows;
    for (uint32_t i = 0; i < b->count; i++) sum += b->a[i]->rows;
    if (one_scale) return sum; /* alpha 0: no rank is in the scale */
    while (rank < sum) rank *= 2;
    for (uint32_t i = 0; i < b->count; i++)
        if (!doubles_to(b->a[i]->rows, rank)) return sum;
    return rank;
}

static bundle bundle_of(const omm_lora *in, uint32_t layer, const group *g) {
    bundle b = {.count = 0};
    uint32_t row = 0;
    for (unsigned t = g->first; t <= (unsigned)g->last; t++) {
        const ptrdiff_t i = omm_lora_find_index(in, layer, (omm_lora_target)t);
        if (i >= 0) {
            b.a[b.count] = &in->tensors[i];
            b.row[b.count++] = row;
        }
        row += in->shape.d_out[t];
    }
    if (b.count == 0) return b;
    b.shared = is_shared(in, &b);
    b.pair.rank = b.shared ? b.a[0]->rows : rank_of(&b, in->spec.alpha == 0.0f);
    b.pair.scale = lora_file_scale(in->spec.alpha, b.pair.rank);
    return b;
}

/* Columns of B, times what the part's scale has more than the bundle's. */
static omm_err put_b(omm_lora *out, bool *rounded, const omm_lora_tensor *to, const omm_lora *in,
                     const bundle *b, uint32_t part, uint32_t column) {
    const omm_lora_tensor *from = b->a[part] + 1;
    const double factor = (double)from->scale / (double)b->pair.scale;
    for (uint32_t row = 0; row < from->rows; row++)
        for (uint32_t col = 0; col < from->cols; col++) {
            const size_t at = from->offset + (size_t)row * from->cols + col;
            const double wanted = (double)in->values[at] * factor;
            const float v = (float)wanted;
            if (!isfinite(v))
                return omm_raise(OMM_ERR_NUMERIC, "%s[%u][%u] leaves the range of f32", from->name,
                                 row, col);
            if ((double)v != wanted) *rounded = true;
            out->values[to->offset + ((size_t)b->row[part] + row) * to->cols + column + col] = v;
        }
    return OMM_OK;
}

static omm_err put_bundle(omm_lora *out, bool *rounded, const omm_lora_tensor *to,
                          const omm_lora *in, const bundle *b) {
    uint32_t column = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        const omm_lora_tensor *a = b->a[i];
        memcpy(out->values + to->offset + (size_t)column * a->cols, in->values + a->offset,
               (size_t)a->rows * a->cols * sizeof(float));
        OMM_TRY(put_b(out, rounded, to + 1, in, b, i, column));
        if (!b->shared) column += a->rows;
    }
    return OMM_OK;
}

static bundle bundle_at(const omm_lora *in, uint32_t layer, omm_lora_target target) {
    const group alone = {target, target, target}, *g = group_of(target);
    if (g && g->at != target) return (bundle){.count = 0};
    return bundle_of(in, layer, g ? g : &alone);
}

static omm_err fuse(omm_lora *made, bool *rounded, omm_lora_plan *plan, const omm_lora *in) {
    for (size_t i = 0; i < (size_t)in->shape.layer_count * OMM_LORA_TARGET_COUNT; i++) {
        plan->pairs[i] = bundle_at(in, (uint32_t)(i / OMM_LORA_TARGET_COUNT),
                                   (omm_lora_target)(i % OMM_LORA_TARGET_COUNT))
                             .pair;
        if (plan->pairs[i].rank > OMM_LORA_RANK_MAX)
            return omm_raise(OMM_ERR_TOO_BIG,
                             "layer %zu: the ranks of what the model's file has in one tensor take "
                             "rank %u, at most %u",
                             i / OMM_LORA_TARGET_COUNT, plan->pairs[i].rank, OMM_LORA_RANK_MAX);
    }
    OMM_TRY(omm_lora_init_plan(made, plan));
    made->spec.alpha = in->spec.alpha;
    for (size_t i = 0; i < made->tensor_count; i += 2) {
        const bundle b = bundle_at(in, made->tensors[i].layer, made->tensors[i].target);
        OMM_TRY(put_bundle(made, rounded, &made->tensors[i], in, &b));
    }
    return OMM_OK;
}

/* ---- taking apart ------------------------------------------------------------------------------ */

/* One part of a stacked pair: these columns of its rows of B, and rows of A. */
typedef struct piece {
    uint32_t row, rows;
    uint32_t low, high; /* columns low .. high-1 have what is not zero; none: both 0 */
    uint32_t column;
    omm_lora_pair pair; /* rank 0: left out */
    double factor;      /* of B */
} piece;

typedef struct stack {
    const omm_lora *in;
    const omm_lora_tensor *a;
    piece pieces[PARTS_MAX];
    uint32_t count, used; /* used: have what is not zero */
} stack;

static void look(stack *s, piece *p) {
    const omm_lora_tensor *b = s->a + 1;
    p->low = b->cols;
    for (uint32_t row = p->row; row < p->row + p->rows; row++)
        for (uint32_t col = 0; col < b->cols; col++) {
            if (s->in->values[b->offset + (size_t)row * b->cols + col] == 0.0f) continue;
            if (col < p->low) p->low = col;
            if (col >= p->high) p->high = col + 1;
        }
    if (p->high == 0) p->low = 0;
    s->used += p->high > 0;
}

/* The file's alpha serves a part of this rank without a rounding of B. */
static bool is_served(const stack *s, piece *p) {
    const omm_lora_tensor *b = s->a + 1;
    p->pair.scale = lora_file_scale(s->in->spec.alpha, p->pair.rank);
    p->factor = (double)b->scale / (double)p->pair.scale;
    for (uint32_t row = p->row; row < p->row + p->rows; row++)
        for (uint32_t col = p->low; col < p->high; col++) {
            const double wanted =
                (double)s->in->values[b->offset + (size_t)row * b->cols + col] * p->factor;
            if ((double)(float)wanted != wanted) return false;
        }
    return true;
}

/* Blocks one after the other; `each` is their rank, or 0: each ends with what is not zero. */
static bool as_blocks(stack *s, uint32_t each) {
    uint32_t column = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        piece *p = &s->pieces[i];
        p->pair.rank = 0;
        if (p->high == 0) continue;
        if (p->low < column || (each && p->high > column + each)) return false;
        p->column = column;
        p->pair.rank = each ? each : p->high - column;
        if (!is_served(s, p)) return false;
        column += p->pair.rank;
    }
    return true;
}

static void as_whole(stack *s) {
    for (uint32_t i = 0; i < s->count; i++) {
        piece *p = &s->pieces[i];
        p->column = 0;
        p->factor = 1;
        p->pair = (omm_lora_pair){.scale = s->a->scale};
        if (p->high > 0 || s->used == 0) p->pair.rank = s->a->rows;
    }
}

static stack stack_of(const omm_lora *in, const omm_lora_tensor *a, const group *g,
                      const omm_lora_shape *shape) {
    stack s = {.in = in, .a = a};
    uint32_t row = 0;
    for (unsigned t = g->first; t <= (unsigned)g->last; t++) {
        piece *p = &s.pieces[s.count++];
        *p = (piece){.row = row, .rows = shape->d_out[t]};
        row += p->rows;
        look(&s, p);
    }
    /* As omm_lora_fuse stacks equal ranks: three take the room of four where alpha is a number. */
    const uint32_t room = s.used == 3 && in->spec.alpha != 0.0f ? 4 : s.used;
    if (room > 0 && a->rows % room == 0 && as_blocks(&s, a->rows / room)) return s;
    if (room == 0 || !as_blocks(&s, 0)) as_whole(&s);
    return s;
}

/* The piece that becomes this pair. */
static bool piece_at(stack *s, piece *p, const omm_lora *in, const omm_lora_shape *shape,
                     uint32_t layer, omm_lora_target target) {
    const group alone = {target, target, target}, *g = group_of(target);
    if (!g) g = &alone;
    const ptrdiff_t i = omm_lora_find_index(in, layer, g->at);
    if (i < 0) return false;
    *s = stack_of(in, &in->tensors[i], g, shape);
    *p = s->pieces[target - g->first];
    return p->pair.rank > 0;
}

static void put_piece(omm_lora *out, const omm_lora_tensor *to, const stack *s, const piece *p) {
    const omm_lora_tensor *a = s->a, *b = s->a + 1;
    memcpy(out->values + to->offset, s->in->values + a->offset + (size_t)p->column * a->cols,
           (size_t)to->rows * a->cols * sizeof(float));
    for (uint32_t row = 0; row < p->rows; row++)
        for (uint32_t col = 0; col < to->rows; col++) {
            const float v =
                s->in->values[b->offset + ((size_t)p->row + row) * b->cols + p->column + col];
            out->values[to[1].offset + (size_t)row * to->rows + col] =
                (float)((double)v * p->factor);
        }
}

static omm_err split(omm_lora *made, omm_lora_plan *plan, const omm_lora *in) {
    const omm_lora_shape *shape = &plan->shape;
    stack s;
    piece p;
    for (size_t i = 0; i < (size_t)shape->layer_count * OMM_LORA_TARGET_COUNT; i++)
        if (piece_at(&s, &p, in, shape, (uint32_t)(i / OMM_LORA_TARGET_COUNT),
                     (omm_lora_target)(i % OMM_LORA_TARGET_COUNT)))
            plan->pairs[i] = p.pair;
    OMM_TRY(omm_lora_init_plan(made, plan));
    made->spec.alpha = in->spec.alpha;
    for (size_t i = 0; i < made->tensor_count; i += 2) {
        const omm_lora_tensor *to = &made->tensors[i];
        OMM_ASSERT(piece_at(&s, &p, in, shape, to->layer, to->target));
        put_piece(made, to, &s, &p);
    }
    return OMM_OK;
}

/* ---- both -------------------------------------------------------------------------------------- */

static omm_err convert(omm_lora *out, const omm_lora_shape *shape, const omm_lora *in,
                       bool *rounded) {
    omm_lora_plan plan;
    omm_lora made = {0};
    OMM_TRY(omm_lora_plan_init(&plan, shape));
    omm_err err = shape->stacked ? fuse(&made, rounded, &plan, in) : split(&made, &plan, in);
    omm_lora_plan_fini(&plan);
    if (err != OMM_OK) {
        omm_lora_fini(&made);
        return err;
    }
    *out = made;
    return OMM_OK;
}

omm_err omm_lora_fuse(omm_lora *out, bool *rounded, const omm_lora *in, bool rounding) {
    const omm_lora_shape shape = lora_stacked_shape(&in->shape);
    OMM_ASSERT(in->shape.fused && !in->shape.stacked);
    *rounded = false;
    OMM_TRY(convert(out, &shape, in, rounded));
    if (!*rounded || rounding) return OMM_OK;
    omm_lora_fini(out);
    return omm_raise(OMM_ERR_UNSUPPORTED,
                     "ranks or scales of q, k, v or of gate, up differ by no power of two, and the "
                     "model's file has them in one tensor: they fit only with rounding of B");
}

omm_err lora_unfuse(omm_lora *out, const omm_lora *in, const omm_lora_shape *shape) {
    bool rounded = false;
    OMM_ASSERT(in->shape.stacked && shape->fused && !shape->stacked);
    return convert(out, shape, in, &rounded);
}

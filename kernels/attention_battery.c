/* attention_battery.c - see attention_battery.h. */
#include "attention_battery.h"

#include "omm/mem.h"

#include <stdio.h>

typedef struct shape {
    uint32_t m, heads, kv_heads, d, window;
    float softcap;
} shape;

static void record(battery *out, const char *what, omm_kv_type type, const shape *s,
                   const float *data, size_t count) {
    OMM_ASSERT(out->count < BATTERY_ROWS_MAX);
    battery_row *row = &out->rows[out->count++];
    snprintf(row->name, sizeof row->name, "%s %s %ux%ux%ux%u w%u", what, omm_kv_type_name(type),
             s->m, s->heads, s->kv_heads, s->d, s->window);
    row->hash = battery_hash(data, count * sizeof *data);
}

static void run(battery *out, const omm_compute *c, size_t split, omm_kv_type type,
                const shape *s) {
    const size_t width = (size_t)s->heads * s->d, kv_width = (size_t)s->kv_heads * s->d;
    float *q = battery_floats(1, s->m * width), *k = battery_floats(2, s->m * kv_width);
    float *v = battery_floats(3, s->m * kv_width), *o = battery_floats(4, s->m * width);
    float *top = battery_floats(5, (size_t)s->m * s->heads);
    float *lse = battery_floats(6, (size_t)s->m * s->heads);
    omm_kv kv = {0};
    OMM_ASSERT(omm_kv_init(&kv, type, s->kv_heads, s->d, s->m) == OMM_OK);
    const size_t step = split && split < s->m ? split : s->m;
    for (size_t i = 0; i < s->m; i += step) {
        const size_t count = s->m - i < step ? s->m - i : step;
        omm_kv_store(c, &kv, k + i * kv_width, v + i * kv_width, count, i);
        omm_attention a = {.out = o + i * width,
                           .max = top + i * s->heads,
                           .lse = lse + i * s->heads,
                           .q = q + i * width,
                           .kv = &kv,
                           .m = count,
                           .pos0 = i,
                           .heads = s->heads,
                           .scale = 3.0f,
                           .softcap = s->softcap,
                           .window = s->window};
        omm_attention_forward(c, &a);
    }
    record(out, "attention", type, s, o, s->m * width);
    record(out, "max", type, s, top, (size_t)s->m * s->heads);
    record(out, "lse", type, s, lse, (size_t)s->m * s->heads);
    omm_kv_fini(&kv);
    omm_free(q);
    omm_free(k);
    omm_free(v);
    omm_free(o);
    omm_free(top);
    omm_free(lse);
}

void attention_battery_run(battery *out, const omm_compute *c, size_t split) {
    static const shape shapes[] = {
        {1, 1, 1, 2, 0, 0.0f},        {70, 8, 4, 8, 0, 0.0f},    {131, 6, 2, 32, 0, 0.0f},
        {65, 14, 1, 24, 0, 0.0f},     {20, 3, 3, 40, 0, 0.0f},   {200, 4, 2, 36, 1, 0.0f},
        {200, 4, 1, 16, 70, 0.0f},    {300, 2, 2, 8, 128, 0.0f}, {66, 2, 1, 256, 65, 0.0f},
        {70, 3, 1, 24, 0, 5.0f},      {150, 6, 2, 16, 20, 2.0f}, {1100, 4, 1, 16, 0, 0.0f},
        {1090, 3, 1, 16, 1040, 0.0f}, {1090, 3, 1, 16, 60, 0.0f}};
    out->count = 0;
    for (unsigned t = 0; t < OMM_KV_TYPE_COUNT; t++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            run(out, c, split, (omm_kv_type)t, &shapes[i]);
}

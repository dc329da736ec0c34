/* memory.c - see memory.h. */
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>

void cli_memory_machine(omm_memory *out) {
    const char *folder = getenv("OMM_MEMORY_FROM");
    const omm_memory_source source = {.proc = folder, .group = folder};
    omm_memory_read(out, folder ? &source : NULL);
}

/* Says what was lowered: nothing where all is as asked. */
static void lowered(char *out, size_t size, const omm_plan *plan, const omm_plan *asked,
                    cli_memory_limit limit) {
    const omm_session_options *got = &plan->session, *want = &asked->session;
    size_t used = 0;
    out[0] = 0;
    if (got->kv_type != want->kv_type)
        used = (size_t)snprintf(out, size, "; cache %s instead of %s",
                                omm_kv_type_name(got->kv_type), omm_kv_type_name(want->kv_type));
    if (got->positions_max != want->positions_max)
        used += (size_t)snprintf(out + used, size - used, "%s %u instead of %u positions",
                                 used ? "," : ";", got->positions_max, want->positions_max);
    if (plan->resident < asked->resident)
        used += (size_t)snprintf(out + used, size - used, "%s %u layers streamed", used ? "," : ";",
                                 plan->layers - plan->resident);
    if (used > 0 && limit.megabytes > 0)
        snprintf(out + used, size - used, " for %u MB", limit.megabytes);
    else if (used > 0)
        used += (size_t)snprintf(out + used, size - used, " for what is available");
    if (used > 0 && limit.megabytes == 0 && limit.taken > 0) {
        char taken[32];
        omm_plan_bytes_text(taken, limit.taken);
        snprintf(out + used, size - used, " beside %s of %s", limit.by, taken);
    }
}

/* Is it more than the machine has beside what is taken?  What a machine has may not be known. */
static bool is_too_much(const cli_memory *m, cli_memory_limit limit) {
    return m->available > 0 && m->plan.total + limit.taken > m->available;
}

/* A model that is larger than memory runs all the same, if it may be streamed; one that may not has a smaller
 * cache.  Where even that is too much, the plan stays as asked, and its line says that it is more than there is. */
static void fit_available(cli_memory *m, const omm_gguf *gguf, const omm_gguf *const *adapters,
                          size_t count, const omm_plan_options *options, cli_memory_limit limit) {
    omm_plan plan;
    omm_plan_options o = *options;
    const uint64_t left = m->available > limit.taken ? m->available - limit.taken : 0;
    if (o.stream == OMM_PLAN_STREAM_LAST) o.stream = OMM_PLAN_STREAM_FIRST;
    if (omm_plan_fit(&plan, gguf, adapters, count, &o, left) == OMM_OK) m->plan = plan;
}

static void print_plan(const cli_memory *m, const omm_plan *asked, const omm_plan_options *options,
                       cli_memory_limit limit) {
    char text[OMM_PLAN_TEXT_MAX], total[32], available[32], changes[192];
    omm_plan_text(text, &m->plan);
    omm_plan_bytes_text(total, m->plan.total);
    omm_plan_bytes_text(available, m->available);
    lowered(changes, sizeof changes, &m->plan, asked, limit);
    fprintf(stderr, "memory%s: %s; %s of %s available%s%s\n",
            options->lodger ? " of the draft" : "", text, total, available,
            is_too_much(m, limit) ? " (more than there is)" : "", changes);
}

static omm_err explain(omm_err err, cli_memory_limit limit) {
    if (err != OMM_ERR_CONFIG) return err;
    char why[512], taken[32], beside[64] = "";
    omm_plan_bytes_text(taken, limit.taken);
    snprintf(why, sizeof why, "%s", omm_err_sentence());
    if (limit.taken > 0) snprintf(beside, sizeof beside, " (beside %s of %s)", limit.by, taken);
    return omm_raise(err, "--max-memory-mb %u%s: %s", limit.megabytes, beside, why);
}

omm_err cli_memory_plan(cli_memory *out, const omm_gguf *gguf, const omm_gguf *const *adapters,
                        size_t count, const omm_plan_options *options, cli_memory_limit limit) {
    cli_memory m;
    omm_plan asked;
    omm_memory machine;
    cli_memory_machine(&machine);
    m.available = limit.available > 0 ? limit.available : machine.available;
    OMM_TRY(omm_plan_make(&asked, gguf, adapters, count, options));
    m.plan = asked;
    m.asked = asked.session.positions_max;
    m.asked_kv = asked.session.kv_type;
    if (limit.megabytes > 0) {
        const uint64_t most = (uint64_t)limit.megabytes * 1000000;
        const uint64_t left = most > limit.taken ? most - limit.taken : 0;
        omm_plan_options within = *options;
        within.beside = limit.taken;
        OMM_TRY(explain(omm_plan_fit(&m.plan, gguf, adapters, count, &within, left), limit));
    } else if (options->stream != OMM_PLAN_STREAM_FIRST && is_too_much(&m, limit)) {
        fit_available(&m, gguf, adapters, count, options, limit);
    }
    print_plan(&m, &asked, options, limit);
    *out = m;
    return OMM_OK;
}

void cli_memory_more(char out[CLI_MEMORY_MORE_MAX], const cli_memory *m, uint32_t trained) {
    const uint32_t most = m->plan.session.positions_max;
    if (most < m->asked)
        snprintf(out, CLI_MEMORY_MORE_MAX, "with more memory it would be %u", m->asked);
    else if (most < trained)
        snprintf(out, CLI_MEMORY_MORE_MAX, "-c takes up to the %u that the model was trained for",
                 trained);
    else
        snprintf(out, CLI_MEMORY_MORE_MAX, "the model was trained for no more");
}

json_t *cli_memory_json(const cli_memory *m) {
    const omm_plan *p = &m->plan;
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s}",
        "weights_bytes", (json_int_t)p->weights, "cache_bytes", (json_int_t)p->cache,
        "adapter_bytes", (json_int_t)p->adapters, "work_bytes", (json_int_t)p->work,
        "streaming_bytes", (json_int_t)p->streaming, "vocabulary_bytes", (json_int_t)p->vocabulary,
        "program_bytes", (json_int_t)p->program, "loading_more_bytes",
        (json_int_t)omm_plan_loading_more(p), "planned_bytes", (json_int_t)p->total, "peak_bytes",
        (json_int_t)omm_memory_peak(), "available_bytes", (json_int_t)m->available, "layers",
        (json_int_t)p->layers, "layers_in_memory", (json_int_t)p->resident, "positions",
        (json_int_t)p->session.positions_max, "kv", omm_kv_type_name(p->session.kv_type));
}

/* cmd_quantize.c - `meshmind quantize IN OUT TYPE`: a model in other element types, and what it lost. */
#include "commands.h"
#include "options.h"
#include "places.h"
#include "progress.h"

#include "omm/clock.h"
#include "omm/json.h"
#include "omm/model.h"
#include "omm/quantise.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct quantize {
    const char *in, *out;
    omm_quantise_options options;
    uint32_t threads;
    bool json;
    cli_progress progress;
} quantize;

/* Sums over the tensors that went from one type to another. */
typedef struct group {
    omm_ggml_type from, to;
    unsigned tensors;
    uint64_t elements, bytes;
    double squares, error_squares, error_max;
} group;

_Static_assert(CLI_LIST_MAX == OMM_QUANTISE_KEEP_MAX, "--keep as often as the engine takes");

enum { GROUPS_MAX = 24 * 24 };

static const char *name_of(omm_ggml_type type) {
    return omm_ggml_find((uint32_t)type)->name;
}

static double rms(double squares, uint64_t elements) {
    return sqrt(squares / (double)elements);
}

static size_t group_all(group *groups, const omm_quantise_report *report) {
    size_t count = 0;
    for (size_t i = 0; i < report->count; i++) {
        const omm_quantise_tensor *t = &report->tensors[i];
        size_t k = 0;
        while (k < count && (groups[k].from != t->from || groups[k].to != t->to)) k++;
        OMM_ASSERT(k < GROUPS_MAX);
        if (k == count) groups[count++] = (group){.from = t->from, .to = t->to};
        groups[k].tensors++;
        groups[k].elements += t->elements;
        groups[k].bytes += t->bytes_to;
        groups[k].squares += t->squares;
        groups[k].error_squares += t->error_squares;
        groups[k].error_max = fmax(groups[k].error_max, t->error_max);
    }
    return count;
}

static void print_text(const quantize *q, const omm_quantise_report *report) {
    static group groups[GROUPS_MAX];
    const size_t count = group_all(groups, report);
    uint64_t elements = 0;
    printf("%-7s %-7s %8s %14s %14s %11s %11s %11s\n", "from", "to", "tensors", "values", "bytes",
           "rms error", "of rms", "max error");
    for (size_t k = 0; k < count; k++) {
        const group *g = &groups[k];
        const double error = rms(g->error_squares, g->elements);
        const double size = rms(g->squares, g->elements);
        printf("%-7s %-7s %8u %14" PRIu64 " %14" PRIu64 " %11.4g %9.4f %% %11.4g\n",
               name_of(g->from), name_of(g->to), g->tensors, g->elements, g->bytes, error,
               size > 0.0 ? 100.0 * error / size : 0.0, g->error_max);
        elements += g->elements;
    }
    for (size_t i = 0; i < report->count; i++) {
        const omm_quantise_tensor *t = &report->tensors[i];
        if (t->to != t->wanted)
            printf("%s is %s: its columns do not divide into blocks of %s\n", t->name,
                   name_of(t->to), name_of(t->wanted));
    }
    if (elements == 0)
        printf("%s: no tensors, the vocabulary alone\n", q->out);
    else
        printf("%s: %" PRIu64 " bytes, %.3f bits a value\n", q->out, report->bytes,
               8.0 * (double)report->bytes / (double)elements);
}

static json_t *tensor_json(const omm_quantise_tensor *t) {
    return json_pack("{s:s, s:s, s:s, s:b, s:I, s:I, s:f, s:f, s:f}", "name", t->name, "from",
                     name_of(t->from), "to", name_of(t->to), "fallback", t->to != t->wanted,
                     "values", (json_int_t)t->elements, "bytes", (json_int_t)t->bytes_to, "rms",
                     rms(t->squares, t->elements), "rms_error", rms(t->error_squares, t->elements),
                     "max_error", t->error_max);
}

static omm_err print_json(const quantize *q, const omm_quantise_report *report) {
    json_t *tensors = json_array();
    for (size_t i = 0; i < report->count; i++)
        json_array_append_new(tensors, tensor_json(&report->tensors[i]));
    json_t *root =
        json_pack("{s:i, s:o, s:s, s:I, s:o}", "schema_version", 1, "out", omm_json_text(q->out),
                  "type", q->options.type, "bytes", (json_int_t)report->bytes, "tensors", tensors);
    omm_buf out;
    omm_buf_init(&out, SIZE_MAX / 2);
    omm_err err = omm_json_write(&out, root);
    if (err == OMM_OK) fwrite(out.data, 1, out.size, stdout);
    omm_buf_fini(&out);
    json_decref(root);
    return err;
}

static void show(void *ud, uint64_t done, uint64_t all) {
    quantize *q = (quantize *)ud;
    cli_progress_show(&q->progress, omm_measure_ns() / 1000000, (double)done / (double)all,
                      "quantizing");
}

/* A file is written all the same: other programs may run it. */
static void note_unsupported(const omm_gguf *in) {
    omm_model outline;
    const omm_err err = in->tensor_count > 0 ? omm_model_outline(&outline, in) : OMM_ERR_NOT_FOUND;
    if (err == OMM_OK) omm_model_fini(&outline);
    if (err == OMM_ERR_UNSUPPORTED)
        fprintf(stderr, "meshmind: note: this program does not run the model: %s\n",
                omm_err_sentence());
}

static omm_err run(quantize *q) {
    place_made made;
    omm_gguf in;
    omm_pool *pool = NULL;
    omm_quantise_report report = {0};
    const unsigned threads = q->threads ? q->threads : omm_cpu_count();
    if (threads > OMM_POOL_THREADS_MAX)
        return omm_raise(OMM_ERR_USAGE, "--threads %u: at most %u", threads, OMM_POOL_THREADS_MAX);
    if (omm_gguf_has_file(q->in, q->out)) /* what quantising loses does not come back */
        return omm_raise(OMM_ERR_USAGE, "OUT is %sIN, %s: give another name",
                         omm_file_same(q->in, q->out) ? "" : "a part of ", q->in);
    OMM_TRY(omm_gguf_open(&in, q->in));
    omm_err err = place_make_output(&made, q->out, "OUT");
    cli_progress_init(&q->progress);
    if (err == OMM_OK) err = omm_pool_open(&pool, threads);
    if (err == OMM_OK) err = omm_quantise_file(q->out, &in, &q->options, pool, &report, show, q);
    cli_progress_end(&q->progress);
    if (err != OMM_OK) place_unmake(&made);
    if (err == OMM_OK) note_unsupported(&in);
    if (err == OMM_OK && q->json) err = print_json(q, &report);
    if (err == OMM_OK && !q->json) print_text(q, &report);
    omm_quantise_report_fini(&report);
    omm_pool_close(pool);
    omm_gguf_close(&in);
    return err;
}

int cmd_quantize(int argc, char **argv) {
    quantize q = {0};
    cli_list keep = {0};
    char types[256], summary[1024];
    const cli_option options[] = {
        {"keep", 0, CLI_LIST, &keep, "PATTERN=TYPE",
         "tensors so named get TYPE; may be repeated, and the first that names one counts"},
        {"pure", 0, CLI_FLAG, &q.options.pure, NULL,
         "all matrices of TYPE, the output too; not of a mix"},
        {"threads", 't', CLI_COUNT, &q.threads, "N", "threads; all processors by default"},
        {"json", 0, CLI_FLAG, &q.json, NULL, "one JSON object at the end"},
        {0}};
    int count = 0;
    char **args = NULL;
    omm_quantise_types(types, sizeof types);
    snprintf(
        summary, sizeof summary,
        "Write a model in another element type.  Norms and vectors are F32; with few bits the\n"
        "output matrix is Q6_K; columns that blocks of TYPE do not divide fall back to Q8_0 or\n"
        "F16.  The names that end in _S, _M or _L are llama.cpp's mixes, with more bits where "
        "they\n"
        "matter most; Q3_K, Q4_K and Q5_K are one type, where llama-quantize means the mix in _M.\n"
        "Types: %s.",
        types);
    int code = cli_parse(&count, &args, argc, argv, options, "quantize IN OUT TYPE [options]",
                         summary, 3, 3);
    if (code >= 0) return code;
    q.in = args[0];
    q.out = args[1];
    q.options.type = args[2];
    memcpy(q.options.keep, keep.items, sizeof q.options.keep);
    q.options.keep_count = keep.count;
    omm_err err = run(&q);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail(argv[0], err);
}

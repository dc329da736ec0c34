/* data_options.c - see data_options.h. */
#include "data_options.h"

#include "omm/file.h"

#include <stdio.h>
#include <string.h>

#define MEMORY_BYTES_MAX (64u << 20) /* of a file; its examples take some five times as much */

static const char *separator_of(const char *name) {
    if (!name || strcmp(name, "file") == 0) return NULL;
    return strcmp(name, "blank") == 0 ? "" : name;
}

omm_err data_options_resolve(omm_dataset_options *out, const data_options *o, uint32_t seq_max) {
    *out = (omm_dataset_options){.seq_max = seq_max,
                                 .format = OMM_DATA_DETECT,
                                 .skip_bad = o->skip_bad,
                                 .bad_hint = "--skip-bad leaves bad ones out, and counts them",
                                 .client_default = DATA_CLIENT_DEFAULT,
                                 .separator = separator_of(o->separator),
                                 .stride = o->stride};
    if (o->format) OMM_TRY(omm_data_format_parse(&out->format, o->format));
    return o->loss ? omm_data_loss_parse(&out->loss, o->loss) : OMM_OK;
}

omm_err data_options_check(const data_options *o, const omm_data_format *formats, size_t count) {
    bool has_text = false, has_windows = false;
    for (size_t i = 0; i < count; i++) {
        has_text = has_text || formats[i] == OMM_DATA_TEXT;
        has_windows = has_windows || omm_data_format_is_text(formats[i]);
    }
    if (o->separator && !has_text)
        return omm_raise(OMM_ERR_USAGE, "--text-separator is about plain text, and the data are "
                                        "JSON");
    if (o->stride && !has_windows)
        return omm_raise(OMM_ERR_USAGE, "--stride is about plain text, and the data are JSON "
                                        "with turns");
    return OMM_OK;
}

void data_warn_of_separator(const data_options *o, const char *file, const omm_data_totals *t) {
    if (!separator_of(o->separator) || t->format != OMM_DATA_TEXT || t->separators > 0) return;
    fprintf(stderr,
            "--text-separator '%.80s': no line of %s is that, so all of it is one document\n",
            o->separator, file);
}

omm_err data_open(omm_dataset **out, const char *path, const struct omm_tokenizer *tokenizer,
                  const omm_dataset_options *options, bool stream) {
    uint64_t size = 0;
    /* What has no size (a pipe) is read whole. */
    if (!stream && omm_file_size(&size, path) != OMM_OK) size = 0;
    if (stream || size > MEMORY_BYTES_MAX) return omm_dataset_stream(out, path, tokenizer, options);
    return omm_dataset_load(out, path, tokenizer, options);
}

const char *data_unit(const omm_data_totals *t) {
    return t->is_array ? "element" : "line";
}

void data_print_place(FILE *out, const char *file, uint32_t place, const omm_data_totals *t,
                      bool is_stream) {
    if (is_stream || t->is_array)
        fprintf(out, "%s %u of %s", is_stream ? "example" : "element", place, file);
    else
        fprintf(out, "%s:%u", file, place);
}

json_t *data_overlap_json(const omm_overlap *o) {
    json_t *pairs = json_array();
    for (size_t i = 0; i < o->shown; i++)
        json_array_append_new(
            pairs, json_pack("[I,I]", (json_int_t)o->first[i].met, (json_int_t)o->first[i].place));
    return pairs;
}

static json_t *bad_json(const omm_data_totals *t) {
    json_t *by = json_object();
    for (unsigned i = 1; i < OMM_DATA_BAD_COUNT; i++)
        if (t->bad_by[i])
            json_object_set_new(by, omm_data_bad_text((omm_data_bad)i),
                                json_integer((json_int_t)t->bad_by[i]));
    return by;
}

/* A sentence that was cut may end inside a character, which JSON does not take. */
static json_t *sentence_json(const char *text) {
    size_t size = strlen(text);
    json_t *value = json_stringn(text, size);
    for (unsigned cut = 1; !value && cut < 4 && cut <= size; cut++)
        value = json_stringn(text, size - cut);
    return value ? value : json_string("(not UTF-8)");
}

json_t *data_totals_json(const omm_data_totals *t) {
    json_t *first = json_array();
    for (uint64_t i = 0; i < t->bad && i < OMM_DATA_BAD_SHOWN; i++)
        json_array_append_new(first, sentence_json(t->bad_first[i]));
    return json_pack("{s:s,s:b,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:o}", "format",
                     omm_data_format_name(t->format), "array", t->is_array, "examples",
                     (json_int_t)t->examples, "tokens", (json_int_t)t->tokens, "learned",
                     (json_int_t)t->learned, "longest", (json_int_t)t->longest, "dropped",
                     (json_int_t)t->dropped, "truncated", (json_int_t)t->truncated, "bad",
                     (json_int_t)t->bad, "bad_by", bad_json(t), "bad_first", first);
}

void data_print_bad(FILE *out, const omm_data_totals *t) {
    if (!t->bad) return;
    fprintf(out, "  %llu bad %s%s left out:", (unsigned long long)t->bad, data_unit(t),
            t->bad == 1 ? "" : "s");
    const char *comma = "";
    for (unsigned i = 1; i < OMM_DATA_BAD_COUNT; i++) {
        if (!t->bad_by[i]) continue;
        fprintf(out, "%s %s (%llu)", comma, omm_data_bad_text((omm_data_bad)i),
                (unsigned long long)t->bad_by[i]);
        comma = ",";
    }
    fprintf(out, "\n");
    for (uint64_t i = 0; i < t->bad && i < OMM_DATA_BAD_SHOWN; i++)
        fprintf(out, "    %s\n", t->bad_first[i]);
    if (t->bad > OMM_DATA_BAD_SHOWN) fprintf(out, "    ...\n");
}

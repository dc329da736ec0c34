/* cmd_inspect.c - `meshmind inspect FILE`: keys and tensors of a GGUF model or adapter. */
#include "commands.h"
#include "options.h"

#include "omm/chat.h"
#include "omm/file.h"
#include "omm/gguf.h"
#include "omm/json.h"
#include "omm/mem.h"
#include "omm/thinking.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum {
    SHOWN_ELEMENTS = 8, /* of an array, unless --all */
    SHOWN_COLUMNS = 100,
};

/* Text of a file nobody trusts: what is no UTF-8 becomes an escape, never a terminal command. */
static json_t *text_value(omm_bytes text) {
    json_t *value = json_stringn((const char *)text.data, text.size);
    if (value) return value;
    char *hex = omm_alloc(2 * text.size + 1, 1);
    if (!hex) return json_null();
    omm_hex(hex, text);
    value = json_sprintf("hex:%s", hex);
    omm_free(hex);
    return value;
}

static json_t *real_value(double v) {
    return isfinite(v) ? json_real(v) : json_null();
}

static json_t *scalar_value(omm_gguf_kind kind, const uint8_t *p) {
    uint64_t bits = 0;
    switch (kind) {
    case OMM_GGUF_U8: return json_integer(p[0]);
    case OMM_GGUF_I8: return json_integer((int8_t)p[0]);
    case OMM_GGUF_U16: return json_integer(omm_get_u16(p));
    case OMM_GGUF_I16: return json_integer((int16_t)omm_get_u16(p));
    case OMM_GGUF_U32: return json_integer(omm_get_u32(p));
    case OMM_GGUF_I32: return json_integer((int32_t)omm_get_u32(p));
    case OMM_GGUF_F32: return real_value((double)omm_get_f32(p));
    case OMM_GGUF_BOOL: return json_boolean(p[0]);
    case OMM_GGUF_I64: return json_integer((json_int_t)omm_get_u64(p));
    case OMM_GGUF_U64:
        bits = omm_get_u64(p);
        if (bits > INT64_MAX) return json_sprintf("%" PRIu64, bits);
        return json_integer((json_int_t)bits);
    case OMM_GGUF_F64: return real_value(omm_f64_of_bits(omm_get_u64(p)));
    default: return json_null();
    }
}

static size_t element_bytes(const omm_gguf_kv *kv) {
    return kv->count > 0 ? kv->data.size / (size_t)kv->count : 0;
}

static json_t *array_value(const omm_gguf_kv *kv, size_t shown) {
    json_t *list = json_array();
    if (shown > kv->count) shown = (size_t)kv->count;
    if (kv->element != OMM_GGUF_STRING) {
        for (size_t i = 0; i < shown; i++)
            json_array_append_new(list,
                                  scalar_value(kv->element, kv->data.data + i * element_bytes(kv)));
        return list;
    }
    omm_reader r = omm_reader_of(kv->data);
    for (size_t i = 0; i < shown; i++) {
        uint64_t size = omm_read_u64(&r);
        json_array_append_new(list, text_value(omm_read_bytes(&r, (size_t)size)));
    }
    return list;
}

static json_t *value_of(const omm_gguf_kv *kv, size_t shown) {
    if (kv->kind == OMM_GGUF_STRING) return text_value(kv->data);
    if (kv->kind == OMM_GGUF_ARRAY) return array_value(kv, shown);
    return scalar_value(kv->kind, kv->data.data);
}

static uint64_t elements(const omm_gguf_tensor *t) {
    return t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3]; /* below 2^63, the reader says */
}

static uint64_t parameters(const omm_gguf *g) {
    uint64_t n = 0;
    for (size_t i = 0; i < g->tensor_count; i++) n += elements(&g->tensors[i]);
    return n;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static json_t *kv_json(const omm_gguf_kv *kv, size_t shown) {
    json_t *object = json_pack("{s:o, s:s, s:o}", "key", text_value(kv->key), "kind",
                               omm_gguf_kind_name(kv->kind), "value", value_of(kv, shown));
    if (kv->kind == OMM_GGUF_ARRAY) {
        json_object_set_new(object, "element", json_string(omm_gguf_kind_name(kv->element)));
        json_object_set_new(object, "count", json_integer((json_int_t)kv->count));
    }
    return object;
}

static json_t *tensor_json(const omm_gguf_tensor *t) {
    json_t *dims = json_array();
    for (uint32_t d = 0; d < t->n_dims; d++)
        json_array_append_new(dims, json_integer((json_int_t)t->dims[d]));
    return json_pack("{s:s, s:s, s:o, s:I, s:I, s:i}", "name", t->name, "type",
                     omm_ggml_find(t->type)->name, "dims", dims, "bytes", (json_int_t)t->data.size,
                     "offset", (json_int_t)t->offset, "part", (int)t->part);
}

/* What is followed of the file's chat template, and what its tokenizer assumes. */
typedef struct chat_facts {
    bool has_vocabulary; /* one that we can use; else nothing below is said */
    bool has_template;   /* one that is not empty */
    bool is_text;        /* the marks of ChatML, which stands in, are plain text */
    bool assumes_words;  /* the file does not say how texts are cut into words */
    const char *name;    /* "?" for one that is not known; NULL: there is none */
    bool announces;
    omm_calls_form calls;
    omm_thinking thinking;
} chat_facts;

static bool has_template(const omm_gguf *g) {
    omm_bytes jinja = {0};
    return omm_gguf_find(g, "tokenizer.chat_template") &&
           omm_gguf_get_str(&jinja, g, "tokenizer.chat_template") == OMM_OK && jinja.size > 0;
}

static chat_facts chat_of(const omm_gguf *g) {
    char doubt[OMM_CHAT_DOUBT_MAX], words[OMM_TOKENIZER_DOUBT_MAX];
    omm_tokenizer *t = NULL;
    if (!omm_gguf_find(g, "tokenizer.ggml.model") || omm_tokenizer_open(&t, g) != OMM_OK)
        return (chat_facts){.name = NULL};
    const omm_chat_format format = omm_chat_format_of(t);
    chat_facts facts = {.has_vocabulary = true,
                        .has_template = has_template(g),
                        .is_text = format == OMM_CHAT_CHATML_TEXT,
                        .assumes_words = omm_tokenizer_doubt(words, t),
                        .announces = omm_chat_announces(t),
                        .calls = omm_chat_calls_of(t),
                        .thinking = omm_thinking_of(t)};
    if (facts.has_template)
        facts.name = omm_chat_doubt(doubt, t) ? "?" : omm_chat_format_name(format);
    omm_tokenizer_close(t);
    return facts;
}

static json_t *chat_json(const chat_facts *facts) {
    static const char *const thoughts[] = {"none", "own", "opened"};
    if (!facts->name) return json_null();
    return json_pack("{s:b, s:s, s:s}", "announces_tools", facts->announces, "calls",
                     omm_calls_form_name(facts->calls), "thinking", thoughts[facts->thinking]);
}

static void print_chat(const chat_facts *facts) {
    static const char *const thoughts[] = {"none", "its own", "opened by the prompt"};
    if (!facts->has_vocabulary) return;
    if (facts->assumes_words)
        printf("words: the file has no tokenizer.ggml.pre, 'default' is assumed\n");
    if (facts->name && *facts->name != '?')
        printf("chat template: %s\n", facts->name);
    else
        printf("chat template: %s, ChatML is used%s\n", facts->name ? "not known" : "none",
               facts->is_text ? ", its marks as plain text" : "");
    if (!facts->name) return;
    printf("  tools announced %s, calls %s, thoughts: %s\n",
           facts->announces ? "as it has them" : "briefly", omm_calls_form_shown(facts->calls),
           thoughts[facts->thinking]);
}

static omm_err print_json(const omm_gguf *g, size_t shown) {
    json_t *kvs = json_array();
    json_t *tensors = json_array();
    for (size_t i = 0; i < g->kv_count; i++) json_array_append_new(kvs, kv_json(&g->kvs[i], shown));
    for (size_t i = 0; i < g->tensor_count; i++)
        json_array_append_new(tensors, tensor_json(&g->tensors[i]));
    const chat_facts chat = chat_of(g);
    json_t *report = json_pack(
        "{s:i, s:I, s:i, s:I, s:I, s:I, s:s?, s:o, s:s?, s:o, s:o}", "schema_version", 1, "bytes",
        (json_int_t)omm_gguf_bytes(g), "parts", (int)g->part_count, "alignment",
        (json_int_t)g->alignment, "data_offset", (json_int_t)g->data_offset, "parameters",
        (json_int_t)parameters(g), "chat_template", chat.name, "chat", chat_json(&chat),
        "words_assumed", chat.assumes_words ? "default" : NULL, "keys", kvs, "tensors", tensors);
    omm_buf out;
    omm_buf_init(&out, SIZE_MAX / 2);
    omm_err err = omm_json_write(&out, report);
    if (err == OMM_OK) fwrite(out.data, 1, out.size, stdout);
    omm_buf_fini(&out);
    json_decref(report);
    return err;
}

/* ---- Text ---------------------------------------------------------------------------------- */

static int append_json(const char *text, size_t size, void *ud) {
    return omm_buf_append(ud, text, size) == OMM_OK ? 0 : -1;
}

static void print_kv(const omm_gguf_kv *kv, size_t shown) {
    char kind[48];
    omm_buf text;
    omm_buf_init(&text, SIZE_MAX / 2);
    json_t *value = value_of(kv, shown);
    (void)json_dump_callback(value, append_json, &text,
                             JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
    if (kv->kind == OMM_GGUF_ARRAY)
        snprintf(kind, sizeof kind, "%s[%" PRIu64 "]", omm_gguf_kind_name(kv->element), kv->count);
    else
        snprintf(kind, sizeof kind, "%s", omm_gguf_kind_name(kv->kind));
    bool cut = text.size > SHOWN_COLUMNS && shown == SHOWN_ELEMENTS;
    printf("  %-40.*s %-14s ", kv->key.size < 200 ? (int)kv->key.size : 200,
           (const char *)kv->key.data, kind);
    fwrite(text.data, 1, cut ? SHOWN_COLUMNS : text.size, stdout);
    printf("%s\n", cut ? "..." : "");
    omm_buf_fini(&text);
    json_decref(value);
}

static void print_tensor(const omm_gguf_tensor *t, uint32_t parts) {
    char dims[96];
    int used = 0;
    for (uint32_t d = 0; d < t->n_dims; d++)
        used += snprintf(dims + used, sizeof dims - (size_t)used, "%s%" PRIu64, d > 0 ? " x " : "",
                         t->dims[d]);
    printf("  %-44s %-7s %-24s %12zu bytes at %" PRIu64, t->name, omm_ggml_find(t->type)->name,
           dims, t->data.size, t->offset);
    if (parts > 1) printf(" of file %u", t->part + 1);
    printf("\n");
}

static void print_text(const omm_gguf *g, size_t shown) {
    printf("%" PRIu64 " bytes, alignment %u, data at %" PRIu64 ", %" PRIu64 " parameters\n",
           omm_gguf_bytes(g), g->alignment, g->data_offset, parameters(g));
    if (g->part_count > 1) printf("%u files\n", g->part_count);
    const chat_facts chat = chat_of(g);
    print_chat(&chat);
    printf("%zu keys\n", g->kv_count);
    for (size_t i = 0; i < g->kv_count; i++) print_kv(&g->kvs[i], shown);
    printf("%zu tensors (innermost dimension first)\n", g->tensor_count);
    for (size_t i = 0; i < g->tensor_count; i++) print_tensor(&g->tensors[i], g->part_count);
}

int cmd_inspect(int argc, char **argv) {
    bool json = false;
    bool all = false;
    const cli_option options[] = {
        {"all", 0, CLI_FLAG, &all, NULL, "whole arrays and texts, not their beginnings"},
        {"json", 0, CLI_FLAG, &json, NULL, "one JSON object"},
        {0}};
    int count = 0;
    char **args = NULL;
    int code = cli_parse(&count, &args, argc, argv, options, "inspect FILE [--all] [--json]",
                         "Check a GGUF model or adapter and list its keys and tensors.", 1, 1);
    if (code >= 0) return code;
    omm_gguf gguf;
    omm_err err = omm_gguf_open(&gguf, args[0]);
    if (err != OMM_OK) return cli_fail(argv[0], err);
    size_t shown = all ? SIZE_MAX : SHOWN_ELEMENTS;
    if (json)
        err = print_json(&gguf, shown);
    else
        print_text(&gguf, shown);
    omm_gguf_close(&gguf);
    return err == OMM_OK ? CLI_EXIT_PASS : cli_fail(argv[0], err);
}

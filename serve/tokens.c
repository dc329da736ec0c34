/* tokens.c - see tokens.h. */
#include "tokens.h"

#include "omm/json.h"
#include "omm/mem.h"

#include <string.h>

#define COUNT_MAX ((size_t)1 << 22) /* of tokens: as many as a body has bytes */
#define TRIM_BYTES ((size_t)64 << 10)

/* All members have to be known: two that are named, and one that may only be false. */
static bool read_body(json_t **out, fault *why, omm_bytes body, const char *const names[3],
                      const char *list) {
    const char *key = NULL;
    json_t *value = NULL;
    static const char *const texts[] = {"content", NULL};
    const omm_err err = omm_json_parse_asked(out, body, texts, "the body");
    if (err != OMM_OK) return fault_refuse_err(why, NULL, err);
    if (!json_is_object(*out)) return fault_refuse(why, NULL, "the body is no JSON object");
    json_object_foreach(*out, key, value) {
        bool known = strcmp(key, "with_pieces") == 0;
        if (known && !json_is_false(value) && !json_is_null(value))
            return fault_refuse(why, "with_pieces", "with_pieces: not supported; accepted: false");
        for (size_t i = 0; i < 3 && !known; i++) known = names[i] && strcmp(key, names[i]) == 0;
        if (!known)
            return fault_refuse(why, NULL, "%.60s: not known here; accepted: %s", key, list);
    }
    return true;
}

/* Sets `flag` in *flags where the member says so. */
static bool read_flag(unsigned *flags, fault *why, const json_t *root, const char *name,
                      unsigned flag, bool is_default) {
    const json_t *value = json_object_get(root, name);
    const bool given = value && !json_is_null(value);
    if (given && !json_is_boolean(value))
        return fault_refuse(why, name, "%s: accepted are true and false", name);
    if (given ? json_is_true(value) : is_default) *flags |= flag;
    return true;
}

static omm_err put_ids(omm_buf *out, const omm_tokens *ids) {
    OMM_TRY(omm_buf_printf(out, "{\"tokens\":["));
    for (size_t i = 0; i < ids->count; i++)
        OMM_TRY(omm_buf_printf(out, "%s%u", i ? "," : "", ids->ids[i]));
    return omm_buf_printf(out, "]}\n");
}

static bool put_tokens(omm_buf *out, fault *why, const omm_serve_options *o, const json_t *root) {
    const json_t *content = json_object_get(root, "content");
    unsigned flags = 0;
    omm_tokens ids;
    if (!json_is_string(content)) return fault_refuse(why, "content", "content: a text is needed");
    if (!read_flag(&flags, why, root, "add_special", OMM_TOKENIZE_BOS, false) ||
        !read_flag(&flags, why, root, "parse_special", OMM_TOKENIZE_SPECIAL, true))
        return false;
    omm_tokens_init(&ids, COUNT_MAX);
    const omm_bytes text = omm_bytes_of(json_string_value(content), json_string_length(content));
    omm_err err = omm_tokenizer_encode(&ids, o->tokenizer, text, flags);
    if (err == OMM_OK) err = put_ids(out, &ids);
    omm_tokens_fini(&ids);
    return err == OMM_OK ? true : fault_refuse_err(why, "content", err);
}

bool tokens_of_text(omm_buf *out, fault *why, const omm_serve_options *o, omm_bytes body) {
    static const char *const names[3] = {"content", "add_special", "parse_special"};
    json_t *root = NULL;
    const bool ok =
        read_body(&root, why, body, names, "content, add_special, parse_special, with_pieces") &&
        put_tokens(out, why, o, root);
    json_decref(root);
    if (body.size > TRIM_BYTES) omm_mem_trim();
    return ok;
}

static bool read_text(omm_buf *text, fault *why, const omm_serve_options *o, const json_t *list) {
    const uint32_t vocab = omm_tokenizer_vocab(o->tokenizer);
    omm_detok detok = {.first = true};
    omm_err err = OMM_OK;
    if (!json_is_array(list)) return fault_refuse(why, "tokens", "tokens: a list is needed");
    for (size_t i = 0; i < json_array_size(list) && err == OMM_OK; i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t v = json_integer_value(id);
        if (!json_is_integer(id) || v < 0 || v >= (json_int_t)vocab)
            return fault_refuse(why, "tokens", "tokens: accepted are whole numbers from 0 to %u",
                                vocab - 1);
        err = omm_detok_push(text, &detok, o->tokenizer, (uint32_t)v, OMM_DETOKENIZE_SPECIAL);
    }
    if (err == OMM_OK) err = omm_detok_flush(text, &detok);
    return err == OMM_OK ? true : fault_refuse_err(why, "tokens", err);
}

static bool put_text(omm_buf *out, fault *why, const omm_bytes text) {
    json_t *answer =
        json_pack("{s:s%}", "content", text.size ? (const char *)text.data : "", text.size);
    const omm_err err = omm_json_write(out, answer);
    json_decref(answer);
    return err == OMM_OK ? true : fault_refuse_err(why, "tokens", err);
}

bool tokens_to_text(omm_buf *out, fault *why, const omm_serve_options *o, omm_bytes body) {
    static const char *const names[3] = {"tokens"};
    json_t *root = NULL;
    omm_buf text;
    omm_buf_init(&text, TOKENS_TEXT_MAX);
    const bool ok = read_body(&root, why, body, names, "tokens") &&
                    read_text(&text, why, o, json_object_get(root, "tokens")) &&
                    put_text(out, why, omm_buf_view(&text));
    json_decref(root);
    omm_buf_fini(&text);
    if (body.size > TRIM_BYTES) omm_mem_trim();
    return ok;
}

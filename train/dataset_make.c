/* dataset_make.c - one record as token ids with their mask: what the formats share. */
#include "dataset_internal.h"

#include "omm/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const s_formats[] = {"chat",     "completion", "text",  "alpaca",
                                        "sharegpt", "lines",      "detect"};
static const char *const s_losses[] = {"default", "all", "assistant", "completion"};
static const char *const s_bad[OMM_DATA_BAD_COUNT] = {"none",
#define XX(name, text) text,
                                                      OMM_DATA_BAD_MAP(XX)
#undef XX
};

omm_err omm_data_format_parse(omm_data_format *out, const char *name) {
    for (unsigned i = 0; i < sizeof s_formats / sizeof *s_formats; i++)
        if (strcmp(s_formats[i], name) == 0) {
            *out = (omm_data_format)i;
            return OMM_OK;
        }
    return omm_raise(
        OMM_ERR_CONFIG,
        "format '%.40s'; accepted: chat, completion, text, alpaca, sharegpt, lines, detect", name);
}

omm_err omm_data_loss_parse(omm_data_loss *out, const char *name) {
    for (unsigned i = 1; i < sizeof s_losses / sizeof *s_losses; i++)
        if (strcmp(s_losses[i], name) == 0) {
            *out = (omm_data_loss)i;
            return OMM_OK;
        }
    return omm_raise(OMM_ERR_CONFIG, "loss '%.40s'; accepted: all, assistant, completion", name);
}

const char *omm_data_format_name(omm_data_format format) {
    OMM_ASSERT(format <= OMM_DATA_DETECT);
    return s_formats[format];
}

const char *omm_data_bad_text(omm_data_bad bad) {
    OMM_ASSERT(bad < OMM_DATA_BAD_COUNT);
    return s_bad[bad];
}

/* --- open and close -------------------------------------------------------------------------- */

static omm_err check_options(const omm_dataset_options *o) {
    if (o->seq_max > SEQ_LIMIT)
        return omm_raise(OMM_ERR_CONFIG, "examples of %u tokens; at most %d", o->seq_max,
                         (int)SEQ_LIMIT);
    if (o->stride > o->seq_max)
        return omm_raise(
            OMM_ERR_CONFIG,
            "stride %u would leave tokens out between windows of %u; accepted: 1 to %u", o->stride,
            o->seq_max, o->seq_max);
    if (o->separator &&
        (strlen(o->separator) > OMM_DATASET_SEPARATOR_BYTES_MAX || strchr(o->separator, '\n')))
        return omm_raise(OMM_ERR_CONFIG,
                         "the separator of documents is one line of at most %u bytes",
                         OMM_DATASET_SEPARATOR_BYTES_MAX);
    if (o->client_default && strlen(o->client_default) > OMM_DATASET_NAME_BYTES_MAX)
        return omm_raise(OMM_ERR_CONFIG, "the default client has over %u bytes",
                         OMM_DATASET_NAME_BYTES_MAX);
    return OMM_OK;
}

omm_err maker_init(maker *m, const char *name, const omm_tokenizer *tokenizer,
                   const omm_dataset_options *options) {
    *m = (maker){.name = name, .tokenizer = tokenizer};
    if (options) m->options = *options;
    if (m->options.seq_max == 0) m->options.seq_max = SEQ_DEFAULT;
    omm_prompt_init(&m->prompt, LINE_TOKENS_MAX);
    omm_chat_turns_init(&m->turns, CONTENT_BYTES_MAX);
    m->turns.with_thoughts = m->turns.with_weights = true;
    m->turns.tokenizer = tokenizer;
    omm_buf_init(&m->reply, CONTENT_BYTES_MAX);
    omm_buf_init(&m->mask, SEQ_LIMIT);
    omm_buf_init(&m->names, (size_t)2 * (OMM_DATASET_NAME_BYTES_MAX + 1));
    OMM_TRY(check_options(&m->options));
    if (m->options.stride == 0) m->options.stride = m->options.seq_max - (m->options.seq_max > 1);
    return OMM_OK;
}

omm_err maker_find_call(const maker *m, made *out) {
    const omm_calls_form form = omm_chat_calls_of(m->tokenizer);
    omm_chat_reply reply;
    omm_chat_before_calls(&out->has_call, omm_bytes_str(out->reply), form);
    if (out->has_call || form != OMM_CALLS_BARE) return OMM_OK;
    const omm_err err = omm_chat_parse(&reply, omm_bytes_str(out->reply), form, NULL, NULL);
    if (err != OMM_OK) return err == OMM_ERR_NOMEM ? err : OMM_OK;
    out->has_call = reply.call_count > 0;
    omm_chat_reply_fini(&reply);
    return OMM_OK;
}

void maker_fini(maker *m) {
    omm_buf_fini(&m->names);
    omm_buf_fini(&m->mask);
    omm_buf_fini(&m->reply);
    omm_chat_turns_fini(&m->turns);
    omm_prompt_fini(&m->prompt);
}

/* --- UTF-8 ----------------------------------------------------------------------------------- */

/* The first byte that is no text, NUL among them, is named by line and column (bytes, from 1). */
omm_err maker_check_text(maker *m, omm_bytes text) {
    size_t line_begin = 0;
    for (size_t i = 0; i < text.size;) {
        unsigned size = omm_utf8_size(text.data + i, text.size - i);
        if (size == 0 || text.data[i] == 0)
            return make_bad(m, OMM_DATA_BAD_ENCODING,
                            omm_raise(OMM_ERR_FORMAT,
                                      "%s:%u:%zu: byte 0x%02x is not UTF-8 text; is this a text "
                                      "file?",
                                      m->name, m->line, i - line_begin + 1, text.data[i]));
        i += size;
        if (text.data[i - 1] != '\n') continue;
        m->line++;
        line_begin = i;
    }
    return OMM_OK;
}

/* --- the formats ----------------------------------------------------------------------------- */

static omm_err read_name(maker *m, const char **out, const json_t *root, const char *key,
                         const char *missing) {
    const json_t *value = json_object_get(root, key);
    const char *text = missing;
    if (!value && !missing) return BAD(m, NAME, "%s: missing; a string is needed", key);
    if (value) {
        text = json_string_value(value);
        if (!text || (strcmp(key, "client") == 0 && !*text))
            return BAD(m, NAME, "%s: a string is needed", key);
        if (json_string_length(value) > OMM_DATASET_NAME_BYTES_MAX)
            return BAD(m, NAME, "%s: over %u bytes", key, OMM_DATASET_NAME_BYTES_MAX);
    }
    *out = text;
    return OMM_OK;
}

/* Both names live as long as the JSON tree: keep copies. */
static omm_err keep_names(maker *m, made *out) {
    size_t client_bytes = strlen(out->client) + 1;
    omm_buf_clear(&m->names);
    OMM_TRY(omm_buf_append(&m->names, out->client, client_bytes));
    OMM_TRY(omm_buf_append(&m->names, out->skill, strlen(out->skill) + 1));
    out->client = (const char *)m->names.data;
    out->skill = (const char *)m->names.data + client_bytes;
    return OMM_OK;
}

/* Give every token since the last call this mask. */
static omm_err mark(maker *m, uint8_t learned) {
    uint8_t *added = NULL;
    size_t count = m->prompt.tokens.count - m->prompt.mask.size;
    OMM_TRY(omm_buf_extend(&m->prompt.mask, &added, count));
    if (count) memset(added, learned, count);
    return OMM_OK;
}

static omm_err push_end(maker *m) {
    uint32_t eos = omm_tokenizer_eos(m->tokenizer);
    return eos == OMM_TOKEN_NONE ? OMM_OK : omm_tokens_push(&m->prompt.tokens, eos);
}

static omm_err read_text(maker *m, omm_bytes *out, const json_t *root, const char *key,
                         bool may_be_empty) {
    const json_t *value = json_object_get(root, key);
    if (!json_is_string(value) || (!may_be_empty && json_string_length(value) == 0))
        return BAD(m, COMPLETION, "%s: a string%s is needed", key,
                   may_be_empty ? "" : " that is not empty");
    *out = omm_bytes_of(json_string_value(value), json_string_length(value));
    return OMM_OK;
}

/* Prompt and completion as `generate` would see them: the boundary between them is one of tokens. */
static omm_err make_completion(maker *m, made *out, const json_t *root) {
    omm_bytes prompt = {0}, completion = {0};
    OMM_TRY(read_text(m, &prompt, root, "prompt", true));
    OMM_TRY(read_text(m, &completion, root, "completion", false));
    if (!m->tokenizer) return OMM_OK;
    omm_tokens *tokens = &m->prompt.tokens;
    OMM_TRY(omm_tokenizer_encode(tokens, m->tokenizer, prompt, OMM_TOKENIZE_BOS));
    OMM_TRY(mark(m, 0));
    OMM_TRY(omm_tokenizer_encode(tokens, m->tokenizer, completion,
                                 prompt.size ? OMM_TOKENIZE_CONTINUE : 0));
    OMM_TRY(push_end(m));
    OMM_TRY(mark(m, 1));
    OMM_TRY(omm_buf_append(&m->reply, completion.data, completion.size));
    OMM_TRY(omm_buf_append(&m->reply, "", 1));
    out->reply = (const char *)m->reply.data;
    return maker_find_call(m, out);
}

static omm_err make_text(maker *m, made *out, bool *wanted, const record *r) {
    const omm_dataset_options *o = &m->options;
    *out = (made){.client = o->client_default ? o->client_default : "", .skill = ""};
    *wanted = !o->clients || name_is_among(out->client, o->clients, o->client_count);
    if (!*wanted) return OMM_OK;
    OMM_TRY(maker_check_text(m, r->bytes));
    if (!m->tokenizer) return OMM_OK;
    OMM_TRY(omm_tokenizer_encode(&m->prompt.tokens, m->tokenizer, r->bytes,
                                 r->begins ? OMM_TOKENIZE_BOS : OMM_TOKENIZE_CONTINUE));
    if (r->ends) OMM_TRY(push_end(m));
    out->ids = m->prompt.tokens.ids;
    out->count = m->prompt.tokens.count;
    return OMM_OK;
}

/* Only the last run of learned tokens stays: the last assistant turn. */
static void keep_last_turn(omm_prompt *prompt) {
    uint8_t *mask = prompt->mask.data;
    size_t end = prompt->mask.size;
    while (end > 0 && !mask[end - 1]) end--;
    while (end > 0 && mask[end - 1]) end--;
    if (end > 0) memset(mask, 0, end);
}

static omm_err take_mask(maker *m, made *out) {
    omm_prompt *p = &m->prompt;
    if (m->options.loss == OMM_LOSS_COMPLETION && form_is_chat(m->options.format))
        keep_last_turn(p);
    if (m->options.loss == OMM_LOSS_ALL) {
        if (p->mask.size) memset(p->mask.data, 1, p->mask.size);
        out->reply = NULL;
        out->has_call = false;
    }
    if (p->mask.size) p->mask.data[0] = 0; /* nothing stands before the first token */
    out->ids = p->tokens.ids;
    out->learn = p->mask.data;
    out->count = p->tokens.count;
    return OMM_OK;
}

/* A document of one line; its windows decide what is learned. */
static omm_err make_document(maker *m, made *out, const json_t *root) {
    const json_t *text = json_object_get(root, "text");
    const omm_bytes bytes = json_is_string(text)
                                ? omm_bytes_of(json_string_value(text), json_string_length(text))
                                : omm_bytes_of(NULL, 0);
    if (bytes.size == 0) return BAD(m, TEXT, "%s", "text: a string that is not empty is needed");
    if (!m->tokenizer) return OMM_OK;
    OMM_TRY(omm_tokenizer_encode(&m->prompt.tokens, m->tokenizer, bytes, OMM_TOKENIZE_BOS));
    OMM_TRY(push_end(m));
    out->ids = m->prompt.tokens.ids;
    out->count = m->prompt.tokens.count;
    return OMM_OK;
}

static omm_err make_of_format(maker *m, made *out, json_t *root) {
    const omm_data_format format = m->options.format;
    if (format == OMM_DATA_LINES) return make_document(m, out, root);
    if (format == OMM_DATA_COMPLETION) return make_completion(m, out, root);
    OMM_TRY(form_make_messages(m, root));
    return maker_chat(m, out, root);
}

static omm_err make_object(maker *m, made *out, bool *wanted, json_t *root) {
    const omm_dataset_options *o = &m->options;
    if (!json_is_object(root))
        return BAD(m, JSON, "%s", "not a JSON object; accepted: " MAKER_LINE);
    OMM_TRY(read_name(m, &out->client, root, "client", o->client_default));
    OMM_TRY(read_name(m, &out->skill, root, "skill", ""));
    if (o->clients) dataset_list_client(m->met, out->client);
    *wanted = !o->clients || name_is_among(out->client, o->clients, o->client_count);
    if (!*wanted) return OMM_OK;
    OMM_TRY(form_check(m, root));
    OMM_TRY(make_of_format(m, out, root));
    OMM_TRY(keep_names(m, out));
    return o->format == OMM_DATA_LINES ? OMM_OK : take_mask(m, out);
}

/* jansson counts lines and columns (of characters) in its own text, which is a line, or begins within one. */
static omm_err parse_line(maker *m, json_t **root, omm_bytes line) {
    omm_err err = omm_json_parse_wide(root, &m->is_wide, line, "-");
    if (err == OMM_ERR_TOO_BIG) return BAD(m, LENGTH, "%s", omm_err_sentence());
    if (err != OMM_ERR_FORMAT) return err;
    const char *said = omm_err_sentence(); /* "-:LINE:COLUMN: reason" */
    char *at = NULL;
    OMM_ASSERT(strncmp(said, "-:", 2) == 0);
    const uint32_t down = (uint32_t)strtoul(said + 2, &at, 10) - 1;
    OMM_ASSERT(*at == ':');
    const uint64_t column = strtoul(at + 1, &at, 10) + (down ? 0 : m->column);
    OMM_ASSERT(*at == ':');
    return make_bad(m, OMM_DATA_BAD_JSON,
                    omm_raise(err, "%s:%u:%llu:%s%s; accepted: " MAKER_LINE, m->name,
                              m->line + down, (unsigned long long)column, m->element, at + 1));
}

static omm_err make_line(maker *m, made *out, bool *wanted, const record *r) {
    json_t *root = NULL;
    OMM_TRY(parse_line(m, &root, r->bytes));
    omm_err err = make_object(m, out, wanted, root);
    json_decref(root);
    if (err == OMM_OK && *wanted) out->digest = omm_hash(r->bytes);
    return err;
}

void maker_set_place(maker *m, const record *r) {
    m->line = r->line;
    m->column = r->column;
    m->element[0] = 0;
    if (r->element) snprintf(m->element, sizeof m->element, " element %u:", r->element);
}

omm_err maker_make(maker *m, made *out, bool *wanted, const record *r) {
    maker_set_place(m, r);
    m->bad = OMM_DATA_BAD_NONE;
    *out = (made){0};
    *wanted = true;
    omm_prompt_clear(&m->prompt);
    omm_buf_clear(&m->reply);
    omm_err err = m->options.format == OMM_DATA_TEXT ? make_text(m, out, wanted, r)
                                                     : make_line(m, out, wanted, r);
    if (err == OMM_ERR_TOO_BIG) /* of a buffer above */
        return BAD(m, LENGTH, "over %d tokens or %d bytes", LINE_TOKENS_MAX, CONTENT_BYTES_MAX);
    return err;
}

/* --- windows --------------------------------------------------------------------------------- */

static omm_err text_window(maker *m, omm_example *e, bool *there, const made *from, uint32_t k) {
    size_t seq = m->options.seq_max, start = (size_t)k * m->options.stride, learn_from = start + 1;
    if (k > 0 && start - m->options.stride + seq > learn_from)
        learn_from = start - m->options.stride + seq; /* the window before has learned these */
    *there = learn_from < from->count || k == 0;
    if (!*there) return OMM_OK;
    size_t count = from->count - start < seq ? from->count - start : seq;
    uint8_t *mask = NULL;
    omm_buf_clear(&m->mask);
    OMM_TRY(omm_buf_extend(&m->mask, &mask, count));
    for (size_t i = learn_from; i < start + count; i++) mask[i - start] = 1;
    e->ids = from->ids + start;
    e->learn = mask;
    e->count = (uint32_t)count;
    e->digest = omm_hash(omm_bytes_of(e->ids, count * sizeof *e->ids));
    return OMM_OK;
}

omm_err made_window(maker *m, omm_example *e, bool *there, bool *cut, const made *from,
                    uint32_t k) {
    *e = (omm_example){.client = from->client,
                       .skill = from->skill,
                       .reply = from->reply,
                       .has_call = from->has_call,
                       .digest = from->digest};
    *cut = false;
    if (from->learn) {
        *there = k == 0;
        *cut = from->count > m->options.seq_max;
        e->ids = from->ids;
        e->learn = from->learn;
        e->count = *cut ? m->options.seq_max : (uint32_t)from->count;
    } else {
        OMM_TRY(text_window(m, e, there, from, k));
    }
    for (uint32_t i = 0; *there && i < e->count; i++)
        if (e->learn[i] && e->learn_count++ == 0) e->prompt_count = i;
    return OMM_OK;
}

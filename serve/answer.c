/* answer.c - see answer.h. */
#include "answer.h"

#include "omm/kernels.h"
#include "omm/utf8.h"

#include <stdio.h>
#include <string.h>

static omm_err not_text(void) {
    return omm_raise(OMM_ERR_FORMAT, "the answer cannot be written as JSON");
}

/* value is taken; NULL: it could not be made. */
static omm_err put(omm_buf *out, json_t *value) {
    if (!value) return not_text();
    const omm_err err = omm_json_write(out, value);
    json_decref(value);
    return err;
}

/* One event.  JSON's own line end is the first of the two that end it. */
static omm_err put_event(omm_buf *out, json_t *value) {
    const size_t before = out->size;
    omm_err err = omm_buf_printf(out, "data: ");
    if (err != OMM_OK) {
        json_decref(value);
        return err;
    }
    err = put(out, value);
    if (err == OMM_OK) err = omm_buf_printf(out, "\n");
    if (err != OMM_OK) out->size = before;
    return err;
}

static json_t *text_json(omm_bytes text) {
    return json_stringn(text.size ? (const char *)text.data : "", text.size);
}

static size_t count_characters(omm_bytes text) {
    size_t count = 0;
    for (size_t at = 0, n = 0; at < text.size; at += n ? n : 1, count++)
        n = omm_utf8_size(text.data + at, text.size - at);
    return count;
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* A client's words may have been cut inside a character. */
static json_t *fault_json(const fault *why) {
    char message[sizeof why->message];
    memcpy(message, why->message, sizeof message);
    omm_utf8_mend(message);
    return json_pack("{s:{s:s, s:s, s:s?, s:s?}}", "error", "message", message, "type", why->type,
                     "param", why->param, "code", why->code);
}

omm_err answer_fault(omm_buf *out, const fault *why) {
    return put(out, fault_json(why));
}

omm_err answer_broken(omm_buf *out, const fault *why) {
    return put_event(out, fault_json(why));
}

/* ---- log probabilities ----------------------------------------------------------------------- */

/* A token's bytes need not be characters. */
static json_t *token_json(const omm_serve_options *o, uint32_t id, double logprob) {
    const omm_bytes piece = omm_tokenizer_piece(o->tokenizer, id);
    json_t *bytes = json_array();
    omm_buf text;
    omm_buf_init(&text, piece.size * 3 + 16);
    omm_detok detok = {0};
    if (omm_detok_push(&text, &detok, o->tokenizer, id, OMM_DETOKENIZE_SPECIAL) != OMM_OK ||
        omm_detok_flush(&text, &detok) != OMM_OK)
        omm_buf_clear(&text);
    for (size_t i = 0; i < piece.size; i++)
        json_array_append_new(bytes, json_integer(piece.data[i]));
    json_t *made = json_pack("{s:o, s:f, s:o}", "token", text_json(omm_buf_view(&text)), "logprob",
                             logprob, "bytes", bytes);
    omm_buf_fini(&text);
    return made;
}

/* The likeliest in order, ties by lower id. */
static size_t likeliest(uint32_t *ids, size_t most, const float *logits, uint32_t vocab) {
    size_t count = 0;
    for (uint32_t i = 0; most > 0 && i < vocab; i++) {
        if (count == most && !(logits[i] > logits[ids[count - 1]])) continue;
        size_t at = count < most ? count++ : count - 1;
        for (; at > 0 && logits[i] > logits[ids[at - 1]]; at--) ids[at] = ids[at - 1];
        ids[at] = i;
    }
    return count;
}

omm_err answer_logprob(json_t **out, const request *r, const omm_serve_options *o, uint32_t id,
                       const float *logits) {
    uint32_t ids[REQUEST_TOP_LOGPROBS_MAX];
    float lse = 0.0f;
    const uint32_t vocab = o->model->dims.vocab;
    omm_row_lse(o->compute, NULL, &lse, logits, 1, vocab);
    const size_t count = likeliest(ids, r->top_logprobs, logits, vocab);
    json_t *made = token_json(o, id, (double)logits[id] - (double)lse), *top = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(top, token_json(o, ids[i], (double)logits[ids[i]] - (double)lse));
    if (!made || json_object_set_new(made, "top_logprobs", top) != 0) {
        json_decref(made);
        return not_text();
    }
    *out = made;
    return OMM_OK;
}

/* Bytes of an entry's token. */
static size_t entry_bytes(const json_t *entry) {
    return json_array_size(json_object_get(entry, "bytes"));
}

/* A text's first space may have been left out (omm_detok). */
static size_t left_out(const job *j, const choice *c) {
    const size_t at = j->request.begun.size;
    const json_t *first =
        json_array_get(json_object_get(json_array_get(c->logprobs, 0), "bytes"), 0);
    const bool begins = c->output.whole.size > at && c->output.whole.data[at] == ' ';
    return c->logprob_bytes == 0 && j->request.is_chat && json_integer_value(first) == ' ' &&
           !begins;
}

/* How many of the tokens at hand are of the text that is there: none of a stop text, which may have begun. */
static size_t ready_logprobs(const job *j, const choice *c) {
    const size_t all = json_array_size(c->logprobs);
    const size_t limit = c->output.whole.size - j->request.begun.size + left_out(j, c);
    size_t count = 0, bytes = c->logprob_bytes;
    if (c->output.finish != FINISH_NONE && !c->output.stops.stopped) return all;
    for (; count < all; count++) {
        bytes += entry_bytes(json_array_get(c->logprobs, count));
        if (bytes > limit) break;
    }
    return count;
}

/* The first of them have been sent. */
static void drop_logprobs(choice *c, size_t count) {
    for (; count > 0; count--) {
        const json_t *entry = json_array_get(c->logprobs, 0),
                     *token = json_object_get(entry, "token");
        c->logprob_bytes += entry_bytes(entry);
        c->logprob_characters +=
            count_characters(omm_bytes_of(json_string_value(token), json_string_length(token)));
        json_array_remove(c->logprobs, 0);
    }
}

/* The first of them as a chat has them. */
static json_t *chat_logprobs(const choice *c, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) json_array_append(list, json_array_get(c->logprobs, i));
    return json_pack("{s:o}", "content", list);
}

/* The likeliest of one token: text --> log probability. */
static json_t *top_of(const json_t *entry) {
    json_t *top = json_object();
    const json_t *list = json_object_get(entry, "top_logprobs");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        json_object_set(top, json_string_value(json_object_get(one, "token")),
                        json_object_get(one, "logprob"));
    }
    return top;
}

/* The same as a text completion has them. */
static json_t *text_logprobs(const choice *c, size_t count) {
    json_t *tokens = json_array(), *values = json_array(), *tops = json_array();
    json_t *offsets = json_array();
    size_t at = c->logprob_characters;
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(c->logprobs, i);
        json_t *token = json_object_get(entry, "token");
        json_array_append(tokens, token);
        json_array_append(values, json_object_get(entry, "logprob"));
        json_array_append_new(tops, top_of(entry));
        json_array_append_new(offsets, json_integer((json_int_t)at));
        at += count_characters(omm_bytes_of(json_string_value(token), json_string_length(token)));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", values,
                     "top_logprobs", tops, "text_offset", offsets);
}

static json_t *logprobs_json(const job *j, const choice *c, size_t count) {
    if (!c->logprobs) return json_null();
    return j->request.is_chat ? chat_logprobs(c, count) : text_logprobs(c, count);
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* What all answers of a job begin with; choices is taken. */
static json_t *head(const job *j, const omm_serve_options *o, const char *object, json_t *choices) {
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:I, s:o}", "id", j->id, "object", object,
                     "created", (json_int_t)j->created, "model", j->request.model,
                     "system_fingerprint", o->fingerprint, "seed", (json_int_t)j->request.seed,
                     "choices", choices);
}

/* Prompts count once each, whatever n is. */
static json_t *usage_json(const job *j) {
    json_int_t prompt = 0, completion = 0, reused = 0;
    for (uint32_t i = 0; i < j->count; i++) {
        const choice *c = &j->choices[i];
        if (i % j->request.n == 0) prompt += c->prompt_count;
        if (i % j->request.n == 0) reused += c->reused;
        completion += c->output.tokens;
    }
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", prompt, "completion_tokens",
                     completion, "total_tokens", prompt + completion, "prompt_tokens_details",
                     "cached_tokens", reused);
}

/* Calls in OpenAI's form; in a stream each has its number. */
static json_t *calls_json(const job *j, const choice *c, bool streamed) {
    json_t *calls = json_array();
    for (size_t i = 0; i < c->output.reply.call_count; i++) {
        const omm_tool_call *call = &c->output.reply.calls[i];
        char id[96];
        char *arguments = json_dumps(call->arguments, JSON_REAL_PRECISION(17));
        snprintf(id, sizeof id, "call_%s_%u_%zu", j->id, c->index, i);
        json_t *made = json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function",
                                 "function", "name", call->name, "arguments", arguments);
        free(arguments);
        if (streamed && made) json_object_set_new(made, "index", json_integer((json_int_t)i));
        if (!made || json_array_append_new(calls, made) != 0) {
            json_decref(calls);
            return NULL;
        }
    }
    return calls;
}

static json_t *finish_json(const choice *c) {
    return c->output.finish == FINISH_NONE ? json_null()
                                           : json_string(finish_name(c->output.finish));
}

/* ---- whole ----------------------------------------------------------------------------------- */

static json_t *message_json(const job *j, const choice *c) {
    const omm_bytes content = output_content(&c->output);
    const bool calls = c->output.finish == FINISH_CALLS;
    return json_pack("{s:s, s:o, s:n, s:o*}", "role", "assistant", "content",
                     calls && content.size == 0 ? json_null() : text_json(content), "refusal",
                     "tool_calls", calls ? calls_json(j, c, false) : NULL);
}

/* The prompt in front, where it is wanted. */
static json_t *echoed(const job *j, const choice *c) {
    omm_buf both;
    const omm_buf *echo = &j->request.echoes[c->index / j->request.n];
    omm_buf_init(&both, SIZE_MAX / 2);
    omm_err err = omm_buf_append(&both, echo->data, echo->size);
    const omm_bytes content = output_content(&c->output);
    if (err == OMM_OK) err = omm_buf_append(&both, content.data, content.size);
    json_t *made = err == OMM_OK ? text_json(omm_buf_view(&both)) : NULL;
    omm_buf_fini(&both);
    return made;
}

static json_t *choice_json(const job *j, const choice *c) {
    const char *key = j->request.is_chat ? "message" : "text";
    return json_pack("{s:I, s:o, s:o, s:o}", "index", (json_int_t)c->index, key,
                     j->request.is_chat ? message_json(j, c) : echoed(j, c), "logprobs",
                     logprobs_json(j, c, ready_logprobs(j, c)), "finish_reason", finish_json(c));
}

omm_err answer_whole(omm_buf *out, const job *j, const omm_serve_options *o) {
    json_t *choices = json_array();
    for (uint32_t i = 0; i < j->count; i++)
        if (json_array_append_new(choices, choice_json(j, &j->choices[i])) != 0) {
            json_decref(choices);
            return not_text();
        }
    json_t *made = head(j, o, j->request.is_chat ? "chat.completion" : "text_completion", choices);
    if (!made || json_object_set_new(made, "usage", usage_json(j)) != 0) {
        json_decref(made);
        return not_text();
    }
    return put(out, made);
}

/* ---- streams --------------------------------------------------------------------------------- */

static const char *chunk_name(const job *j) {
    return j->request.is_chat ? "chat.completion.chunk" : "text_completion";
}

/* choices is taken.  Where usage is asked for, all events before the last say null. */
static omm_err put_chunk(omm_buf *out, const job *j, const omm_serve_options *o, json_t *choices,
                         json_t *usage) {
    json_t *made = head(j, o, chunk_name(j), choices);
    if (!made) {
        json_decref(usage);
        return not_text();
    }
    if (j->request.include_usage) json_object_set_new(made, "usage", usage ? usage : json_null());
    return put_event(out, made);
}

/* body (a delta, or text) is taken. */
static omm_err put_choice(omm_buf *out, const job *j, const choice *c, const omm_serve_options *o,
                          json_t *body, json_t *logprobs, bool last) {
    json_t *choices = json_pack("[{s:I, s:o, s:o, s:o}]", "index", (json_int_t)c->index,
                                j->request.is_chat ? "delta" : "text", body, "logprobs", logprobs,
                                "finish_reason", last ? finish_json(c) : json_null());
    if (!choices) return not_text();
    return put_chunk(out, j, o, choices, NULL);
}

omm_err answer_begin(omm_buf *out, const job *j, const choice *c, const omm_serve_options *o) {
    if (j->request.is_chat)
        return put_choice(out, j, c, o, json_pack("{s:s, s:s}", "role", "assistant", "content", ""),
                          json_null(), false);
    const omm_buf *echo = &j->request.echoes[c->index / j->request.n];
    if (echo->size == 0) return OMM_OK;
    return put_choice(out, j, c, o, text_json(omm_buf_view(echo)), json_null(), false);
}

static json_t *delta_json(const job *j, const choice *c, omm_bytes fresh, bool last) {
    if (!j->request.is_chat) return text_json(fresh);
    return json_pack("{s:o*, s:o*}", "content", fresh.size ? text_json(fresh) : NULL, "tool_calls",
                     last && c->output.finish == FINISH_CALLS ? calls_json(j, c, true) : NULL);
}

omm_err answer_more(omm_buf *out, const job *j, choice *c, const omm_serve_options *o) {
    const bool last = c->output.finish != FINISH_NONE;
    const omm_bytes fresh = output_next(&c->output);
    const size_t ready = ready_logprobs(j, c);
    if (fresh.size == 0 && ready == 0 && !last) return OMM_OK;
    const omm_err err =
        put_choice(out, j, c, o, delta_json(j, c, fresh, last), logprobs_json(j, c, ready), last);
    drop_logprobs(c, ready);
    return err;
}

omm_err answer_end(omm_buf *out, const job *j, const omm_serve_options *o) {
    if (j->request.include_usage) OMM_TRY(put_chunk(out, j, o, json_array(), usage_json(j)));
    return omm_buf_printf(out, "data: [DONE]\n\n");
}

/* ---- models ---------------------------------------------------------------------------------- */

static json_t *model_json(const char *name, const char *parent, uint64_t created) {
    return json_pack("{s:s, s:s, s:I, s:s, s:s*}", "id", name, "object", "model", "created",
                     (json_int_t)created, "owned_by", "openmeshmind", "parent", parent);
}

omm_err answer_models(omm_buf *out, const omm_serve_options *o, const char *name,
                      uint64_t created) {
    json_t *list = json_array();
    for (size_t i = 0; i <= o->adapter_count; i++) {
        const char *id = i ? o->adapters[i - 1].name : o->name;
        json_t *one = model_json(id, i ? o->name : NULL, created);
        if (name && strcmp(name, id) == 0) {
            json_decref(list);
            return put(out, one);
        }
        json_array_append_new(list, one);
    }
    if (!name) return put(out, json_pack("{s:s, s:o}", "object", "list", "data", list));
    json_decref(list);
    return omm_raise(OMM_ERR_NOT_FOUND, "there is no model %.100s", name);
}

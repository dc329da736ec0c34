/* answer.c - see answer.h. */
#include "answer.h"

#include "omm/kernels.h"
#include "omm/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_BYTES_MAX ((size_t)1 << 20)

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

/* Its text, as it stands alone; bytes that are no characters by their numbers, as OpenAI writes them ("bytes:\xe2\x82"). */
static omm_err put_token(omm_buf *out, const omm_serve_options *o, uint32_t id) {
    OMM_TRY(omm_tokenizer_decode(out, o->tokenizer, &id, 1,
                                 OMM_DETOKENIZE_SPECIAL | OMM_DETOKENIZE_CONTINUE));
    size_t at = 0;
    for (unsigned n = 1; at < out->size && n > 0; at += n)
        n = omm_utf8_size(out->data + at, out->size - at);
    if (at == out->size) return OMM_OK;
    char hex[5];
    omm_buf bytes = *out; /* taken apart into `out` */
    omm_buf_init(out, bytes.bytes_max * 5);
    omm_err err = omm_buf_printf(out, "bytes:");
    for (size_t i = 0; i < bytes.size && err == OMM_OK; i++) {
        snprintf(hex, sizeof hex, "\\x%02x", bytes.data[i]);
        err = omm_buf_append(out, hex, 4);
    }
    omm_buf_fini(&bytes);
    return err;
}

/* logprob is taken. */
static omm_err token_json(json_t **out, const omm_serve_options *o, uint32_t id, json_t *logprob) {
    const omm_bytes piece = omm_tokenizer_piece(o->tokenizer, id);
    omm_buf token;
    omm_buf_init(&token, TOKEN_BYTES_MAX);
    omm_err err = put_token(&token, o, id);
    json_t *bytes = json_array();
    for (size_t i = 0; i < piece.size; i++)
        json_array_append_new(bytes, json_integer(piece.data[i]));
    *out = json_pack("{s:o, s:o, s:o}", "token", text_json(omm_buf_view(&token)), "logprob",
                     logprob, "bytes", bytes);
    omm_buf_fini(&token);
    if (err == OMM_OK && !*out) err = not_text();
    return err;
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

static omm_err add_likeliest(json_t *top, const request *r, const omm_serve_options *o,
                             const float *logits, float lse) {
    uint32_t ids[REQUEST_TOP_LOGPROBS_MAX];
    const size_t count = likeliest(ids, r->top_logprobs, logits, o->model->dims.vocab);
    for (size_t i = 0; i < count; i++) {
        json_t *one = NULL;
        const omm_err err =
            token_json(&one, o, ids[i], json_real((double)logits[ids[i]] - (double)lse));
        if (one) json_array_append_new(top, one);
        OMM_TRY(err);
    }
    return OMM_OK;
}

static omm_err unforetold(json_t **out, const omm_serve_options *o, uint32_t id) {
    OMM_TRY(token_json(out, o, id, json_null()));
    (void)json_object_set_new(*out, "top_logprobs", json_null());
    return OMM_OK;
}

omm_err answer_logprob(json_t **out, const request *r, const omm_serve_options *o, uint32_t id,
                       const float *logits) {
    float lse = 0.0f;
    if (!logits) return unforetold(out, o, id);
    json_t *made = NULL, *top = json_array();
    omm_row_lse(o->compute, NULL, &lse, logits, 1, o->model->dims.vocab);
    omm_err err = token_json(&made, o, id, json_real((double)logits[id] - (double)lse));
    if (err == OMM_OK) err = add_likeliest(top, r, o, logits, lse);
    if (err == OMM_OK && json_object_set(made, "top_logprobs", top) != 0) err = not_text();
    json_decref(top);
    if (err != OMM_OK) {
        json_decref(made);
        return err;
    }
    *out = made;
    return OMM_OK;
}

static const json_t *entry_at(const choice *c, size_t i) {
    return json_object_get(json_array_get(c->logprobs, i), "entry");
}

/* How many of the tokens at hand are of the text that is there: none of a stop text, which may have begun. */
static size_t ready_logprobs(const choice *c) {
    const size_t all = json_array_size(c->logprobs), settled = output_settled(&c->output);
    size_t count = 0;
    while (count < all && (size_t)json_integer_value(json_object_get(
                              json_array_get(c->logprobs, count), "end")) <= settled)
        count++;
    return count;
}

/* The first of them have been sent. */
static void drop_logprobs(choice *c, size_t count) {
    for (; count > 0; count--) json_array_remove(c->logprobs, 0);
}

static size_t place_of(const json_t *one, const char *name) {
    return (size_t)json_integer_value(json_object_get(one, name));
}

/* The first of them as a chat has them: those of the content alone, a thought has none. */
static json_t *chat_logprobs(const choice *c, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_array_get(c->logprobs, i);
        if (output_is_content(&c->output, place_of(one, "begin"), place_of(one, "end")))
            json_array_append(list, json_object_get(one, "entry"));
    }
    return json_pack("{s:o}", "content", list);
}

/* The likeliest of one token: text --> log probability. */
static json_t *top_of(const json_t *entry) {
    const json_t *list = json_object_get(entry, "top_logprobs");
    if (!json_is_array(list)) return json_null();
    json_t *top = json_object();
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *token = json_string_value(json_object_get(one, "token"));
        if (!json_object_get(top, token)) /* of two that read alike the likelier one */
            json_object_set(top, token, json_object_get(one, "logprob"));
    }
    return top;
}

/* The same as a text completion has them. */
static json_t *text_logprobs(const choice *c, size_t count) {
    json_t *tokens = json_array(), *values = json_array(), *tops = json_array();
    json_t *offsets = json_array();
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = entry_at(c, i);
        json_array_append(tokens, json_object_get(entry, "token"));
        json_array_append(values, json_object_get(entry, "logprob"));
        json_array_append_new(tops, top_of(entry));
        json_array_append(offsets, json_object_get(json_array_get(c->logprobs, i), "offset"));
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
    json_int_t prompt = 0, completion = 0, reused = 0, thought = 0;
    for (uint32_t i = 0; i < j->count; i++) {
        const choice *c = &j->choices[i];
        if (i % j->request.n == 0) prompt += c->prompt_count;
        if (i % j->request.n == 0) reused += c->reused;
        completion += c->output.tokens;
        thought += c->output.thought_tokens;
    }
    json_t *details = j->request.thinks ? json_pack("{s:I}", "reasoning_tokens", thought) : NULL;
    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:o*}", "prompt_tokens", prompt, "completion_tokens",
                     completion, "total_tokens", prompt + completion, "prompt_tokens_details",
                     "cached_tokens", reused, "completion_tokens_details", details);
}

/* In OpenAI's form, or in a stream what comes behind its name. */
static json_t *call_json(const job *j, const choice *c, size_t i, omm_bytes name,
                         omm_bytes arguments) {
    char id[96];
    snprintf(id, sizeof id, "call_%s_%u_%zu", j->id, c->index, i);
    if (name.size == 0)
        return json_pack("{s:{s:o}}", "function", "arguments", text_json(arguments));
    return json_pack("{s:s, s:s, s:{s:o, s:o}}", "id", id, "type", "function", "function", "name",
                     text_json(name), "arguments", text_json(arguments));
}

/* made is taken. */
static bool add_call(json_t *calls, json_t *made) {
    return made && json_array_append_new(calls, made) == 0;
}

/* All of them, a cut one as far as it came; NULL: none, or no memory. */
static json_t *calls_json(const job *j, const choice *c) {
    const output *t = &c->output;
    json_t *calls = output_calls(t) > 0 ? json_array() : NULL;
    for (size_t i = 0; i < output_calls(t); i++)
        if (!add_call(calls,
                      call_json(j, c, i, output_call_name(t, i), output_call_arguments(t, i)))) {
            json_decref(calls);
            return NULL;
        }
    return calls;
}

/* What a stream has not had of them; NULL: nothing, or no memory.  Each has its number. */
static json_t *fresh_calls(const job *j, choice *c) {
    json_t *calls = NULL;
    omm_bytes name, arguments;
    size_t i = 0;
    while (output_next_call(&c->output, &i, &name, &arguments)) {
        json_t *made = call_json(j, c, i, name, arguments);
        if (made) json_object_set_new(made, "index", json_integer((json_int_t)i));
        if (!calls) calls = json_array();
        if (!add_call(calls, made)) {
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
    const omm_bytes thought = output_thought(&c->output);
    json_t *calls = calls_json(j, c);
    return json_pack("{s:s, s:o, s:n, s:o*, s:o*}", "role", "assistant", "content",
                     calls && content.size == 0 ? json_null() : text_json(content), "refusal",
                     "reasoning_content", thought.size ? text_json(thought) : NULL, "tool_calls",
                     calls);
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
                     logprobs_json(j, c, ready_logprobs(c)), "finish_reason", finish_json(c));
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

/* calls are taken. */
static json_t *delta_json(const job *j, omm_bytes thought, omm_bytes fresh, json_t *calls) {
    if (!j->request.is_chat) return text_json(fresh);
    return json_pack("{s:o*, s:o*, s:o*}", "reasoning_content",
                     thought.size ? text_json(thought) : NULL, "content",
                     fresh.size ? text_json(fresh) : NULL, "tool_calls", calls);
}

omm_err answer_more(omm_buf *out, const job *j, choice *c, const omm_serve_options *o) {
    const bool last = c->output.finish != FINISH_NONE;
    const omm_bytes thought = output_next_thought(&c->output), fresh = output_next(&c->output);
    const size_t ready = ready_logprobs(c);
    json_t *calls = j->request.is_chat ? fresh_calls(j, c) : NULL;
    if (thought.size == 0 && fresh.size == 0 && ready == 0 && !calls && !last) return OMM_OK;
    const omm_err err = put_choice(out, j, c, o, delta_json(j, thought, fresh, calls),
                                   logprobs_json(j, c, ready), last);
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
    char names[256] = "";
    size_t at = 0;
    for (size_t i = 0; i < o->adapter_count && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, ", %s", o->adapters[i].name);
    return omm_raise(OMM_ERR_NOT_FOUND, "there is no model %.100s; accepted: %s%s", name, o->name,
                     names);
}

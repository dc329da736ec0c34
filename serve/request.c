/* request.c - see request.h.  One table has all members of both kinds of request that say something here; neutral.h those
 * that do not. */
#include "request.h"

#include "neutral.h"

#include "omm/json.h"
#include "omm/mem.h"
#include "omm/thinking.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TURNS_BYTES_MAX ((size_t)8 << 20) /* tool calls of a body, written out */
#define PROMPT_TOKENS_MAX ((size_t)1 << 22)
#define NUMBER_BYTES_MAX 32u
#define TRIM_BYTES ((size_t)64 << 10)
#define BODY_BYTES_LEAST ((size_t)256 << 10)
#define BODY_BYTES_A_TOKEN 64u
#define COMPLETION_TOKENS 16u /* of /v1/completions that says nothing, as OpenAI's API has it */

typedef struct reader {
    request *out;
    fault *why;
    const omm_serve_options *o;
    json_t *root;
} reader;

/* Always false, for `return refuse(...)`. */
static bool refuse(const reader *r, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static bool refuse(const reader *r, const char *param, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    (void)fault_refuse_list(r->why, param, fmt, args);
    va_end(args);
    return false;
}

static bool refuse_err(const reader *r, const char *param, omm_err err) {
    return fault_refuse_err(r->why, param, err);
}

/* ---- plain members --------------------------------------------------------------------------- */

static bool read_bool(const reader *r, const char *name, bool *out, const json_t *value) {
    if (!json_is_boolean(value)) return refuse(r, name, "%s: accepted are true and false", name);
    *out = json_is_true(value);
    return true;
}

/* A whole number, as clients of other languages spell it, too: 5.0. */
static bool is_whole(json_int_t *out, const json_t *value) {
    const double real = json_real_value(value);
    *out = json_integer_value(value);
    if (!json_is_real(value)) return json_is_integer(value);
    if (floor(real) < real || fabs(real) > (double)REQUEST_SEED_MAX) return false;
    *out = (json_int_t)real;
    return true;
}

static bool read_u32(const reader *r, const char *name, uint32_t *out, const json_t *value,
                     uint32_t min, uint32_t max) {
    json_int_t v = 0;
    if (!is_whole(&v, value) || v < (json_int_t)min || v > (json_int_t)max)
        return refuse(r, name, "%s: accepted are whole numbers from %u to %u", name, min, max);
    *out = (uint32_t)v;
    return true;
}

/* As other servers spell it: all, any, as many as there is room for. */
static bool is_minus_one(const json_t *value) {
    return json_is_number(value) && json_number_value(value) == -1.0;
}

/* The same, or -1, which leaves *out. */
static bool read_u32_or_all(const reader *r, const char *name, uint32_t *out, const json_t *value,
                            uint32_t min) {
    json_int_t v = 0;
    if (is_minus_one(value)) return true;
    if (!is_whole(&v, value) || v < (json_int_t)min || v > (json_int_t)UINT32_MAX)
        return refuse(r, name, "%s: accepted are whole numbers from %u to %u, and -1", name, min,
                      UINT32_MAX);
    *out = (uint32_t)v;
    return true;
}

static bool take_stream(reader *r, const char *name, const json_t *value) {
    return read_bool(r, name, &r->out->stream, value);
}

static bool take_stream_options(reader *r, const char *name, const json_t *value) {
    const json_t *usage = json_object_get(value, "include_usage");
    size_t known = usage ? 1 : 0;
    if (json_object_get(value, "include_obfuscation")) known++;
    if (!json_is_object(value) || json_object_size(value) != known)
        return refuse(r, name, "%s: accepted is {\"include_usage\": true}, or false", name);
    if (!usage || json_is_null(usage)) return true;
    return read_bool(r, "stream_options.include_usage", &r->out->include_usage, usage);
}

static bool take_top_k(reader *r, const char *name, const json_t *value) {
    r->out->sampler.top_k = 0;
    return read_u32_or_all(r, name, &r->out->sampler.top_k, value, 0);
}

static bool read_within(const reader *r, const char *name, float *out, const json_t *value,
                        float min, float max) {
    const double v = json_number_value(value);
    if (!json_is_number(value) || v < (double)min || v > (double)max)
        return refuse(r, name, "%s: accepted are numbers from %g to %g", name, (double)min,
                      (double)max);
    *out = (float)v;
    return true;
}

static bool take_temperature(reader *r, const char *name, const json_t *value) {
    return read_within(r, name, &r->out->sampler.temperature, value, 0.0f, 100.0f);
}

/* 0, which OpenAI's range begins with: the likeliest alone makes up that much. */
static bool take_top_p(reader *r, const char *name, const json_t *value) {
    float *out = &r->out->sampler.top_p;
    if (!read_within(r, name, out, value, 0.0f, 1.0f)) return false;
    *out = fmaxf(*out, FLT_MIN);
    return true;
}

static bool take_min_p(reader *r, const char *name, const json_t *value) {
    return read_within(r, name, &r->out->sampler.min_p, value, 0.0f, 1.0f);
}

static bool take_frequency(reader *r, const char *name, const json_t *value) {
    return read_within(r, name, &r->out->sampler.frequency_penalty, value, -OMM_PENALTY_MAX,
                       OMM_PENALTY_MAX);
}

static bool take_presence(reader *r, const char *name, const json_t *value) {
    return read_within(r, name, &r->out->sampler.presence_penalty, value, -OMM_PENALTY_MAX,
                       OMM_PENALTY_MAX);
}

static bool take_repeat(reader *r, const char *name, const json_t *value) {
    return read_within(r, name, &r->out->sampler.repeat_penalty, value, OMM_REPEAT_PENALTY_MIN,
                       OMM_REPEAT_PENALTY_MAX);
}

/* llama.cpp's: -1 are all. */
static bool take_repeat_last(reader *r, const char *name, const json_t *value) {
    r->out->sampler.repeat_last = OMM_REPEAT_LAST_ALL;
    return read_u32_or_all(r, name, &r->out->sampler.repeat_last, value, 0);
}

/* vLLM's and transformers': over all of the text.  Clients of many servers send 1 beside the others. */
static bool take_repetition(reader *r, const char *name, const json_t *value) {
    static const char *const others[] = {"repeat_penalty", "repeat_last_n"};
    const bool is_off = json_is_number(value) && json_number_value(value) == 1.0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (!json_is_number(json_object_get(r->root, others[i]))) continue;
        if (!is_off) return refuse(r, name, "%s: %s says it already", name, others[i]);
        return i == 0 || take_repeat(r, name, value);
    }
    r->out->sampler.repeat_last = OMM_REPEAT_LAST_ALL;
    return take_repeat(r, name, value);
}

/* A token's id as a member's name; false: it is none, or written otherwise. */
static bool read_id(uint32_t *out, const char *text, uint32_t vocab) {
    uint64_t id = 0;
    if (text[0] == '0' && text[1] != '\0') return false;
    for (const char *c = text; *c; c++) {
        if (*c < '0' || *c > '9' || id >= vocab) return false;
        id = 10 * id + (uint64_t)(*c - '0');
    }
    *out = (uint32_t)id;
    return text[0] != '\0' && id < vocab;
}

static int by_id(const void *a, const void *b) {
    const omm_bias *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static bool take_bias(reader *r, const char *name, const json_t *value) {
    omm_sampler *s = &r->out->sampler;
    const size_t count = json_object_size(value);
    const uint32_t vocab = r->o->model->dims.vocab;
    const char *key = NULL;
    json_t *bias = NULL;
    if (json_is_array(value) && json_array_size(value) == 0) return true;
    if (!json_is_object(value) || count > OMM_BIASES_MAX)
        return refuse(r, name, "%s: accepted is {\"TOKEN ID\": BIAS, ...} of at most %u tokens",
                      name, OMM_BIASES_MAX);
    if (count == 0) return true;
    r->out->biases = omm_alloc(count, sizeof *r->out->biases);
    if (!r->out->biases) return refuse_err(r, name, omm_raise(OMM_ERR_NOMEM, "%zu biases", count));
    json_object_foreach(json_object_get(r->root, name), key, bias) {
        omm_bias *to = &r->out->biases[s->bias_count];
        if (!read_id(&to->id, key, vocab))
            return refuse(r, name, "%s: %.20s is no token; accepted are ids from 0 to %u", name,
                          key, vocab - 1);
        if (!read_within(r, name, &to->bias, bias, -OMM_BIAS_MAX, OMM_BIAS_MAX)) return false;
        s->bias_count++;
    }
    qsort(r->out->biases, count, sizeof *r->out->biases, by_id);
    s->biases = r->out->biases;
    return true;
}

static bool take_seed(reader *r, const char *name, const json_t *value) {
    json_int_t v = 0;
    if (is_minus_one(value)) return true; /* one that is drawn */
    if (!is_whole(&v, value) || v < 0 || v > (json_int_t)REQUEST_SEED_MAX)
        return refuse(r, name, "%s: accepted are whole numbers from 0 to 2^53, and -1", name);
    r->out->seed = (uint64_t)v;
    return true;
}

static bool take_n(reader *r, const char *name, const json_t *value) {
    return read_u32(r, name, &r->out->n, value, 1, REQUEST_TEXTS_MAX);
}

static bool take_tokens_max(reader *r, const char *name, const json_t *value) {
    r->out->tokens_max = 0;
    r->out->draws_none = json_is_number(value) && json_number_value(value) == 0.0;
    if (r->out->draws_none) { /* check_members: may it? */
        r->out->tokens_max = 1;
        return true;
    }
    return read_u32_or_all(r, name, &r->out->tokens_max, value, 1);
}

static bool take_echo(reader *r, const char *name, const json_t *value) {
    return read_bool(r, name, &r->out->echo, value);
}

static bool take_chat_logprobs(reader *r, const char *name, const json_t *value) {
    return read_bool(r, name, &r->out->logprobs, value);
}

static bool take_top_logprobs(reader *r, const char *name, const json_t *value) {
    return read_u32(r, name, &r->out->top_logprobs, value, 0, REQUEST_TOP_LOGPROBS_MAX);
}

static bool take_logprobs(reader *r, const char *name, const json_t *value) {
    if (json_is_false(value)) return true; /* as a chat says it */
    r->out->logprobs = true;
    return read_u32(r, name, &r->out->top_logprobs, value, 0, REQUEST_TOP_LOGPROBS_MAX);
}

/* ---- response_format ------------------------------------------------------------------------- */

static bool open_schema(reader *r, const char *name, json_t *schema) {
    const omm_err err = omm_grammar_open_schema(&r->out->grammar, schema);
    if (err == OMM_OK) return true;
    if (err == OMM_ERR_NOMEM) return refuse_err(r, name, err);
    return refuse(r, name, "%s: %s", name, omm_err_sentence());
}

static bool take_schema(reader *r, const char *name, json_t *value) {
    json_t *schema = json_object_get(value, "schema"), *one = NULL;
    const char *key = NULL;
    json_object_foreach(value, key, one) {
        const bool known = strcmp(key, "name") == 0 || strcmp(key, "schema") == 0 ||
                           strcmp(key, "strict") == 0 || strcmp(key, "description") == 0;
        if (!known)
            return refuse(r, name,
                          "%s: json_schema has no %.60s; accepted: name, schema, strict, "
                          "description",
                          name, key);
    }
    if (!json_is_string(json_object_get(value, "name")) || !schema)
        return refuse(r, name,
                      "%s: accepted is {\"type\": \"json_schema\", \"json_schema\": {\"name\": "
                      "NAME, \"schema\": SCHEMA}}",
                      name);
    return open_schema(r, name, schema);
}

/* {"type": "json_object", "schema": SCHEMA} is llama.cpp's way to say a schema. */
static bool take_format(reader *r, const char *name, const json_t *value) {
    const char *type = json_string_value(json_object_get(value, "type"));
    json_t *named = json_object_get(value, "json_schema"),
           *schema = json_object_get(value, "schema");
    const bool is_schema = type && strcmp(type, "json_schema") == 0;
    const bool is_object = type && strcmp(type, "json_object") == 0;
    const bool is_text = type && strcmp(type, "text") == 0;
    const bool has_more = json_object_size(value) > 1u + (named != NULL) + (schema != NULL) ||
                          (!is_schema && named && !json_is_null(named)) || (!is_object && schema);
    if (has_more || !(is_schema || is_object || is_text))
        return refuse(r, name,
                      "%s: accepted are {\"type\": \"text\"}, {\"type\": \"json_object\"}, "
                      "{\"type\": \"json_object\", \"schema\": {...}} and "
                      "{\"type\": \"json_schema\", \"json_schema\": {...}}",
                      name);
    if (is_text) return true;
    if (is_schema) return take_schema(r, name, named);
    if (schema) return open_schema(r, name, schema);
    const omm_err err = omm_grammar_open_object(&r->out->grammar);
    return err == OMM_OK ? true : refuse_err(r, name, err);
}

/* ---- thinking -------------------------------------------------------------------------------- */

/* The word by which other servers are told not to let a model think; it is no program's business here what else templates take. */
static bool take_template_kwargs(reader *r, const char *name, const json_t *value) {
    const json_t *thinks = json_object_get(value, "enable_thinking");
    if (!json_is_object(value) || json_object_size(value) != (size_t)json_is_boolean(thinks))
        return refuse(r, name, "%s: accepted is {\"enable_thinking\": true or false}", name);
    if (thinks) r->out->at_once = json_is_false(thinks);
    return true;
}

static bool take_effort(reader *r, const char *name, const json_t *value) {
    static const char *const names[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max"};
    for (size_t i = 0; json_is_string(value) && i < sizeof names / sizeof *names; i++) {
        if (strcmp(json_string_value(value), names[i]) != 0) continue;
        r->out->at_once = i == 0;
        return true;
    }
    return refuse(
        r, name,
        "%s: accepted are none (no thought), minimal, low, medium, high, xhigh and max (no "
        "difference here)",
        name);
}

/* ---- stops ----------------------------------------------------------------------------------- */

static bool add_stop(reader *r, const char *name, const json_t *value) {
    request *out = r->out;
    const size_t size = json_string_length(value);
    if (!json_is_string(value) || size < 1 || size > OMM_STOP_BYTES_MAX)
        return refuse(r, name, "%s: accepted are texts of 1 to %u bytes", name, OMM_STOP_BYTES_MAX);
    if (out->stop_count == REQUEST_STOPS_MAX)
        return refuse(r, name, "%s: at most %u of them", name, REQUEST_STOPS_MAX);
    OMM_ASSERT(omm_buf_append(&out->stop_bytes, json_string_value(value), size) == OMM_OK);
    out->stops[out->stop_count++].size = size;
    return true;
}

static bool take_stop(reader *r, const char *name, const json_t *value) {
    request *out = r->out;
    if (omm_buf_reserve(&out->stop_bytes, (size_t)REQUEST_STOPS_MAX * OMM_STOP_BYTES_MAX) != OMM_OK)
        return refuse_err(r, name, OMM_ERR_NOMEM);
    if (!json_is_array(value)) {
        if (!add_stop(r, name, value)) return false;
    }
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!add_stop(r, name, json_array_get(value, i))) return false;
    const uint8_t *at = out->stop_bytes.data;
    for (size_t i = 0; i < out->stop_count; at += out->stops[i++].size) out->stops[i].data = at;
    return true;
}

/* ---- model ----------------------------------------------------------------------------------- */

static const omm_adapter *find_adapter(const omm_serve_options *o, const char *name, size_t size) {
    for (size_t i = 0; i < o->adapter_count; i++)
        if (strlen(o->adapters[i].name) == size && memcmp(o->adapters[i].name, name, size) == 0)
            return o->adapters[i].adapter;
    return NULL;
}

static bool no_such_model(const reader *r, const char *name) {
    char list[256] = "";
    size_t at = 0;
    for (size_t i = 0; i < r->o->adapter_count && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, ", %s", r->o->adapters[i].name);
    (void)refuse(r, "model", "there is no model %.100s; accepted: %s%s%s", name, r->o->name, list,
                 r->o->adapter_count > 1 ? ", or adapters joined by +" : "");
    r->why->status = 404;
    r->why->code = "model_not_found";
    return false;
}

static bool take_model(reader *r, const char *name, const json_t *value) {
    const char *text = json_string_value(value);
    if (!text) return refuse(r, name, "%s: a name is needed", name);
    if (strlen(text) >= sizeof r->out->model) return no_such_model(r, text);
    memcpy(r->out->model, text, strlen(text) + 1);
    if (strcmp(text, r->o->name) == 0) return true;
    for (const char *at = text;;) {
        const size_t size = strcspn(at, "+");
        const omm_adapter *adapter = find_adapter(r->o, at, size);
        if (!adapter) return no_such_model(r, text);
        if (r->out->adapter_count == OMM_ADAPTERS_MAX)
            return refuse(r, name, "%s: at most %u adapters", name, OMM_ADAPTERS_MAX);
        r->out->adapters[r->out->adapter_count++] = adapter;
        if (!at[size]) return true;
        at += size + 1;
    }
}

/* ---- tools ----------------------------------------------------------------------------------- */

/* The first of that name; as many as there are: none is. */
static size_t find_tool(const json_t *tools, const char *name) {
    size_t at = 0;
    for (; at < json_array_size(tools); at++) {
        const char *has =
            json_string_value(json_object_get(omm_chat_function_at(tools, at), "name"));
        if (has && strcmp(has, name) == 0) break;
    }
    return at;
}

static bool is_announced(const json_t *tools, const char *name) {
    return find_tool(tools, name) < json_array_size(tools);
}

/* Before names are compared with one another. */
static bool check_count(const reader *r, const char *name, const json_t *tools) {
    if (json_array_size(tools) <= OMM_CHAT_TOOLS_MAX) return true;
    return refuse(r, name, "%s: %zu tools; at most %u", name, json_array_size(tools),
                  OMM_CHAT_TOOLS_MAX);
}

/* Those that a call can name (chat.h). */
static bool check_names(const reader *r, const json_t *tools) {
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const char *name =
            json_string_value(json_object_get(omm_chat_function_at(tools, i), "name"));
        const size_t size = name ? strlen(name) : 0;
        if (!name) continue; /* that there is none is said elsewhere */
        if (size < 1 || size > OMM_CHAT_NAME_MAX || strspn(name, letters) != size)
            return refuse(r, "tools", "tools: a name has 1 to %u letters, digits, _ and -",
                          OMM_CHAT_NAME_MAX);
        if (find_tool(tools, name) < i) return refuse(r, "tools", "tools: two are named %s", name);
    }
    return true;
}

static bool take_parallel(reader *r, const char *name, const json_t *value) {
    bool parallel = true;
    if (!read_bool(r, name, &parallel, value)) return false;
    if (!parallel) r->out->calls_max = 1;
    return true;
}

/* Of the tool that has to be called; NULL: none by name. */
static const char *chosen_name(const reader *r) {
    const json_t *choice = json_object_get(r->root, "tool_choice");
    return json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
}

/* Of those that are announced, the tools that may be called; NULL: all. */
static const json_t *allowed_tools(const reader *r) {
    const json_t *choice = json_object_get(r->root, "tool_choice");
    return json_object_get(json_object_get(choice, "allowed_tools"), "tools");
}

static bool may_be_called(const reader *r, const char *name) {
    const char *chosen = chosen_name(r);
    const json_t *allowed = allowed_tools(r);
    return (!chosen || strcmp(chosen, name) == 0) && (!allowed || is_announced(allowed, name));
}

_Static_assert(OMM_CHAT_TOOLS_MAX <= OMM_GRAMMAR_TOOLS_MAX, "what is announced can be held to");

/* none: the schema of arguments of a function that takes none, as one is that says nothing of its parameters. */
static bool read_tool(reader *r, omm_grammar_tool *tool, const json_t *function, json_t *none) {
    const json_t *strict = json_object_get(function, "strict");
    json_t *parameters = json_object_get(function, "parameters");
    const bool takes_none = !parameters || json_is_null(parameters);
    *tool = (omm_grammar_tool){.name = json_string_value(json_object_get(function, "name")),
                               .parameters = takes_none ? none : parameters,
                               .strict = json_is_true(strict)};
    if (!strict || json_is_boolean(strict) || json_is_null(strict)) return true;
    return refuse(r, "tools", "tools: %s: strict is true or false", tool->name);
}

static bool open_calls(reader *r, const omm_grammar_calls *calls) {
    omm_grammar_close(r->out->grammar); /* of the content alone */
    r->out->grammar = NULL;
    const omm_err err = omm_grammar_open_calls(&r->out->grammar, calls);
    if (err == OMM_OK) return true;
    if (err == OMM_ERR_NOMEM) return refuse_err(r, "tools", err);
    return refuse(r, "tools", "tools: %s", omm_err_sentence());
}

/* A new reference: the schema of what is no call; NULL: any text is. */
static json_t *schema_of_content(const reader *r) {
    const json_t *format = json_object_get(r->root, "response_format");
    json_t *schema = json_object_get(json_object_get(format, "json_schema"), "schema");
    if (!schema) schema = json_object_get(format, "schema");
    if (!r->out->has_format) return NULL;
    return schema ? json_incref(schema) : json_pack("{s:s}", "type", "object");
}

static bool read_tools(reader *r, omm_grammar_calls *calls, omm_grammar_tool *list,
                       const json_t *tools, json_t *none) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        omm_grammar_tool *tool = &list[calls->tool_count];
        if (!read_tool(r, tool, omm_chat_function_at(tools, i), none)) return false;
        calls->tool_count += may_be_called(r, tool->name);
    }
    return true;
}

/* A call that is begun is one of these, to its end. */
static bool hold_to_calls(reader *r, const json_t *tools) {
    omm_grammar_tool list[OMM_CHAT_TOOLS_MAX];
    omm_grammar_calls calls = {.tools = list,
                               .calls_max = r->out->calls_max,
                               .form = omm_chat_calls_of(r->o->tokenizer),
                               .begun = omm_buf_view(&r->out->begun)};
    if (r->out->thinks) calls.thinking = omm_thinking_of(r->o->tokenizer);
    calls.stops = omm_chat_stops(&calls.stop_count, r->o->tokenizer);
    json_t *none = json_pack("{s:s, s:{}}", "type", "object", "properties");
    if (!none) return refuse_err(r, "tools", omm_raise(OMM_ERR_NOMEM, "no memory for tools"));
    calls.content = schema_of_content(r);
    const bool ok = read_tools(r, &calls, list, tools, none) && open_calls(r, &calls);
    json_decref(calls.content);
    json_decref(none);
    return ok;
}

/* A call that is asked for is begun: the model can only go on with it. */
static bool begin_call(reader *r, const json_t *tools, const char *name) {
    if (json_array_size(tools) == 0)
        return refuse(r, "tool_choice", "tool_choice: there are no tools");
    if (name && !is_announced(tools, name))
        return refuse(r, "tool_choice", "tool_choice: there is no tool %.64s", name);
    const omm_err err =
        omm_chat_begin_call(&r->out->begun, omm_chat_calls_of(r->o->tokenizer), name);
    return err == OMM_OK ? true : refuse_err(r, "tool_choice", err);
}

/* {"mode": "auto" or "required", "tools": [{"type": "function", "function": {"name": NAME}}, ...]} */
static bool read_allowed(reader *r, const json_t *tools) {
    const json_t *choice = json_object_get(r->root, "tool_choice"), *list = allowed_tools(r);
    const char *mode =
        json_string_value(json_object_get(json_object_get(choice, "allowed_tools"), "mode"));
    const bool required = mode && strcmp(mode, "required") == 0;
    if (!mode || (!required && strcmp(mode, "auto") != 0))
        return refuse(r, "tool_choice", "tool_choice: allowed_tools: mode is auto or required");
    if (json_array_size(list) == 0)
        return refuse(r, "tool_choice", "tool_choice: allowed_tools: tools is a list of functions");
    if (!check_count(r, "tool_choice", list)) return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name =
            json_string_value(json_object_get(omm_chat_function_at(list, i), "name"));
        if (!name || !is_announced(tools, name))
            return refuse(r, "tool_choice", "tool_choice: there is no tool %.64s",
                          name ? name : "without a name");
    }
    return !required || begin_call(r, tools, NULL);
}

/* *tools: those to announce. */
static bool read_choice(reader *r, const json_t **tools) {
    const json_t *choice = json_object_get(r->root, "tool_choice");
    const char *word = json_string_value(choice), *name = chosen_name(r);
    *tools = json_object_get(r->root, "tools");
    if (!choice || json_is_null(choice) || (word && strcmp(word, "auto") == 0)) return true;
    const json_t *allowed = json_object_get(choice, "allowed_tools");
    const bool is_allowed = allowed && !json_is_null(allowed);
    if (name && is_allowed)
        return refuse(r, "tool_choice", "tool_choice: a function, or allowed_tools, and not both");
    if (name) {
        r->out->calls_max = 1;
        return begin_call(r, *tools, name);
    }
    if (is_allowed) return read_allowed(r, *tools);
    if (word && strcmp(word, "required") == 0) return begin_call(r, *tools, NULL);
    if (!word || strcmp(word, "none") != 0)
        return refuse(r, "tool_choice",
                      "tool_choice: accepted are none, auto, required, {\"type\": \"function\", "
                      "\"function\": {\"name\": NAME}}, and {\"type\": \"allowed_tools\", ...}");
    *tools = NULL;
    return true;
}

/* ---- prompts --------------------------------------------------------------------------------- */

static bool check_prompt(const reader *r, const char *name) {
    const size_t count = r->out->prompts[r->out->prompt_count].count;
    const uint32_t most = r->o->batcher.session.positions_max;
    r->out->prompt_count++;
    if (count == 0) return refuse(r, name, "%s: it is empty", name);
    if (count <= most) return true;
    (void)refuse(r, name, "%s: %zu tokens, where the context has %u positions", name, count, most);
    r->why->code = "context_length_exceeded";
    return false;
}

static bool encode(const reader *r, const char *name, omm_bytes text, unsigned flags) {
    omm_tokens *tokens = &r->out->prompts[r->out->prompt_count];
    const omm_err err = omm_tokenizer_encode(tokens, r->o->tokenizer, text, flags);
    return err == OMM_OK ? true : refuse_err(r, name, err);
}

static bool render(reader *r, const omm_chat_turns *turns) {
    omm_prompt prompt;
    omm_tokens *ids = &r->out->prompts[0];
    omm_prompt_init(&prompt, PROMPT_TOKENS_MAX);
    const omm_err err = omm_chat_render(&prompt, r->o->tokenizer, turns->messages, turns->count,
                                        r->out->at_once ? OMM_CHAT_AT_ONCE : OMM_CHAT_ANSWER);
    const omm_tokens made = prompt.tokens;
    if (err == OMM_OK) {
        prompt.tokens = *ids;
        *ids = made;
    }
    omm_prompt_fini(&prompt);
    if (err != OMM_OK) return refuse_err(r, "messages", err);
    const omm_err begun = r->out->begun.size > 0
                              ? omm_chat_go_on(ids, r->o->tokenizer, omm_buf_view(&r->out->begun))
                              : OMM_OK;
    if (begun != OMM_OK) return refuse_err(r, "tool_choice", begun);
    return check_prompt(r, "messages");
}

/* What has to be JSON, or goes on with a call, has no room for a thought. */
static void set_thinking(reader *r) {
    request *out = r->out;
    if (out->grammar || out->begun.size > 0) out->at_once = true;
    out->thinks = !out->at_once && omm_thinking_of(r->o->tokenizer) != OMM_THINKING_NONE;
    out->wraps = !out->grammar && out->begun.size == 0 && omm_thinking_wraps(r->o->tokenizer);
    out->opened = out->thinks ? omm_thinking_opening(r->o->tokenizer) : omm_bytes_str("");
}

static bool read_messages(reader *r) {
    omm_chat_turns turns;
    const json_t *list = json_object_get(r->root, "messages"), *tools = NULL;
    const json_t *all = json_object_get(r->root, "tools");
    if (!check_count(r, "tools", all) || !check_names(r, all) || !read_choice(r, &tools))
        return false;
    r->out->has_tools = json_array_size(tools) > 0;
    r->out->has_format = r->out->grammar && r->out->has_tools && r->out->begun.size == 0;
    set_thinking(r);
    omm_chat_turns_init(&turns, TURNS_BYTES_MAX);
    turns.tokenizer = r->o->tokenizer;
    turns.given_back = true;
    turns.with_thoughts = omm_thinking_of(r->o->tokenizer) != OMM_THINKING_NONE;
    const omm_err err = omm_chat_turns_read(&turns, list, tools);
    const bool ok =
        err == OMM_OK ? render(r, &turns)
                      : refuse_err(r, turns.bad == OMM_CHAT_BAD_TOOLS ? "tools" : "messages", err);
    omm_chat_turns_fini(&turns);
    return ok && (!r->out->has_tools || hold_to_calls(r, tools));
}

static bool add_text(reader *r, const json_t *value) {
    if (json_string_length(value) == 0 && !omm_tokenizer_adds_bos(r->o->tokenizer))
        return refuse(r, "prompt", "prompt: it is empty, and the model has no begin token");
    const omm_bytes text = omm_bytes_of(json_string_value(value), json_string_length(value));
    const omm_err err =
        r->out->echo ? omm_buf_append(&r->out->echoes[r->out->prompt_count], text.data, text.size)
                     : OMM_OK;
    if (err != OMM_OK) return refuse_err(r, "prompt", err);
    return encode(r, "prompt", text, OMM_TOKENIZE_BOS) && check_prompt(r, "prompt");
}

/* Bytes that are no character as U+FFFD, as in what is drawn behind them. */
static omm_err echo_ids(omm_buf *out, const reader *r, const omm_tokens *tokens) {
    omm_detok detok = {.first = true};
    for (size_t i = 0; i < tokens->count; i++)
        OMM_TRY(omm_detok_push(out, &detok, r->o->tokenizer, tokens->ids[i], 0));
    return omm_detok_flush(out, &detok);
}

static bool add_ids(reader *r, const json_t *list) {
    const uint32_t vocab = r->o->model->dims.vocab;
    omm_tokens *tokens = &r->out->prompts[r->out->prompt_count];
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t v = json_integer_value(id);
        if (!json_is_integer(id) || v < 0 || v >= (json_int_t)vocab)
            return refuse(r, "prompt", "prompt: token ids are whole numbers from 0 to %u",
                          vocab - 1);
        const omm_err err = omm_tokens_push(tokens, (uint32_t)v);
        if (err != OMM_OK) return refuse_err(r, "prompt", err);
    }
    if (r->out->echo) {
        const omm_err err = echo_ids(&r->out->echoes[r->out->prompt_count], r, tokens);
        if (err != OMM_OK) return refuse_err(r, "prompt", err);
    }
    return check_prompt(r, "prompt");
}

/* A text, texts, ids, or lists of ids. */
static bool read_prompts(reader *r) {
    const json_t *prompt = json_object_get(r->root, "prompt");
    if (json_is_string(prompt)) return add_text(r, prompt);
    const size_t count = json_array_size(prompt);
    if (count > 0 && json_is_number(json_array_get(prompt, 0))) return add_ids(r, prompt);
    if (count < 1 || count > REQUEST_TEXTS_MAX)
        return refuse(r, "prompt",
                      "prompt: a text is needed, or a list of token ids, or 1 to %u of either",
                      REQUEST_TEXTS_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_array_get(prompt, i);
        if (!json_is_string(one) && !json_is_array(one))
            return refuse(r, "prompt", "prompt: entry %zu is no text and no list of token ids", i);
        if (!(json_is_string(one) ? add_text(r, one) : add_ids(r, one))) return false;
    }
    return true;
}

/* ---- all ------------------------------------------------------------------------------------- */

enum { CHAT = 1, TEXT = 2, BOTH = 3 };

/* take NULL: read with the prompt. */
static const struct member {
    const char *name;
    unsigned kinds;
    bool (*take)(reader *r, const char *name, const json_t *value);
} s_members[] = {
    {"model", BOTH, take_model},
    {"messages", CHAT, NULL},
    {"tools", CHAT, NULL},
    {"tool_choice", CHAT, NULL},
    {"parallel_tool_calls", CHAT, take_parallel},
    {"prompt", TEXT, NULL},
    {"echo", TEXT, take_echo},
    {"stream", BOTH, take_stream},
    {"stream_options", BOTH, take_stream_options},
    {"temperature", BOTH, take_temperature},
    {"top_p", BOTH, take_top_p},
    {"min_p", BOTH, take_min_p},
    {"top_k", BOTH, take_top_k},
    {"seed", BOTH, take_seed},
    {"n", BOTH, take_n},
    {"best_of", BOTH, NULL}, /* check_members */
    {"stop", BOTH, take_stop},
    {"max_tokens", BOTH, take_tokens_max},
    {"max_completion_tokens", CHAT, take_tokens_max},
    {"logprobs", CHAT, take_chat_logprobs},
    {"top_logprobs", CHAT, take_top_logprobs},
    {"logprobs", TEXT, take_logprobs},
    {"presence_penalty", BOTH, take_presence},
    {"frequency_penalty", BOTH, take_frequency},
    {"repeat_penalty", BOTH, take_repeat},
    {"repeat_last_n", BOTH, take_repeat_last},
    {"repetition_penalty", BOTH, take_repetition},
    {"logit_bias", BOTH, take_bias},
    {"response_format", CHAT, take_format},
    {"reasoning_effort", CHAT, take_effort},
    {"chat_template_kwargs", CHAT, take_template_kwargs},
};

static const struct member *find_member(const char *name, bool is_chat) {
    for (size_t i = 0; i < sizeof s_members / sizeof s_members[0]; i++)
        if (strcmp(s_members[i].name, name) == 0 && (s_members[i].kinds & (is_chat ? CHAT : TEXT)))
            return &s_members[i];
    return NULL;
}

static bool unknown(const reader *r, const char *name) {
    char list[400] = "";
    size_t at = 0;
    for (size_t i = 0; i < sizeof s_members / sizeof s_members[0] && at < sizeof list; i++)
        if (s_members[i].kinds & (r->out->is_chat ? CHAT : TEXT))
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "",
                                   s_members[i].name);
    return refuse(r, NULL, "%.60s: not known here; accepted: %s", name, list);
}

/* That it is one that changes nothing. */
static bool check_neutral(const reader *r, const char *name, const json_t *value) {
    const neutral *n = neutral_find(name, r->out->is_chat);
    if (!n) return unknown(r, name);
    if (neutral_has(n, value)) return true;
    return refuse(r, n->name, "%s: not supported; accepted: %s", n->name,
                  n->values[0] ? n->values : "null");
}

/* Where texts are no names and patterns: what a model has drawn, or a tool has read from a file, or somebody has cut. */
static const char *const s_texts[] = {"messages", "prompt", "stop", NULL};

static bool may_have_nul(const char *name) {
    size_t i = 0;
    while (s_texts[i] && strcmp(s_texts[i], name) != 0) i++;
    return s_texts[i] != NULL;
}

static bool read_member(reader *r, const char *name, json_t *value) {
    const struct member *m = find_member(name, r->out->is_chat);
    if (!m) return check_neutral(r, name, value);
    if (!may_have_nul(name) && omm_json_has_nul(value))
        return refuse(r, m->name, "%s: \\u0000 is allowed in messages, prompt and stop alone",
                      name);
    return !m->take || json_is_null(value) || m->take(r, m->name, value);
}

/* Behind a refusal: the number that came, as it was read.  Always false. */
static bool add_number(const reader *r, json_t *value) {
    char *message = r->why->message;
    const size_t at = strlen(message), left = sizeof r->why->message - at;
    omm_buf text;
    omm_buf_init(&text, NUMBER_BYTES_MAX);
    if (json_is_number(value) && omm_json_write_spaced(&text, value) == OMM_OK)
        snprintf(message + at, left, "; got %.*s", (int)text.size, (const char *)text.data);
    omm_buf_fini(&text);
    return false;
}

static bool read_members(reader *r) {
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach(r->root, name, value) {
        if (!read_member(r, name, value)) return add_number(r, value);
    }
    return true;
}

/* The best of one is that one, and of as many as are asked for all are sent. */
static bool check_best_of(const reader *r) {
    const json_t *value = json_object_get(r->root, "best_of");
    const double v = json_number_value(value);
    if (!value || json_is_null(value)) return true;
    if (json_is_number(value) && (v == 1.0 || v == (double)r->out->n)) return true;
    return refuse(r, "best_of", "best_of: not supported; accepted: 1, and n (here %u)", r->out->n);
}

/* What members say together. */
static bool check_members(reader *r) {
    request *out = r->out;
    if (out->top_logprobs > 0 && !out->logprobs)
        return refuse(r, "top_logprobs", "top_logprobs: together with logprobs");
    if (json_is_number(json_object_get(r->root, "max_tokens")) &&
        json_is_number(json_object_get(r->root, "max_completion_tokens")))
        return refuse(r, "max_tokens", "max_tokens: max_completion_tokens says it already");
    const char *most = json_is_number(json_object_get(r->root, "max_tokens"))
                           ? "max_tokens"
                           : "max_completion_tokens";
    if (out->draws_none && !out->echo)
        return refuse(r, most, "%s: accepted are whole numbers from 1 to %u, and -1%s", most,
                      UINT32_MAX, out->is_chat ? "" : "; 0 together with echo");
    if (!check_best_of(r)) return false;
    const json_t *kwargs = json_object_get(r->root, "chat_template_kwargs");
    if (json_object_get(kwargs, "enable_thinking") &&
        json_is_string(json_object_get(r->root, "reasoning_effort")))
        return refuse(r, "reasoning_effort", "reasoning_effort: enable_thinking says it already");
    if (out->include_usage && !out->stream)
        return refuse(r, "stream_options", "stream_options: together with stream");
    return true;
}

/* What is held in memory until it is sent, a whole answer or the echo of a prompt, may have many of these for each token. */
static bool check_logprobs(const reader *r) {
    const request *out = r->out;
    uint64_t entries = 0;
    if (!out->logprobs) return true;
    for (size_t i = 0; i < out->prompt_count; i++) {
        uint64_t tokens = out->echo ? out->prompts[i].count : 0;
        if (!out->stream) tokens += request_room(out, r->o, i);
        entries += out->n * tokens * (1 + out->top_logprobs);
    }
    if (entries <= REQUEST_LOGPROBS_MAX) return true;
    return refuse(r, "logprobs",
                  "logprobs: %llu of them in one answer; at most %u: ask for fewer texts or tokens "
                  "(max_tokens), or for a stream",
                  (unsigned long long)entries, REQUEST_LOGPROBS_MAX);
}

static bool read_root(reader *r) {
    request *out = r->out;
    if (!json_is_object(r->root)) return refuse(r, NULL, "the body is no JSON object");
    if (!read_members(r) || !check_members(r)) return false;
    if (!(out->is_chat ? read_messages(r) : read_prompts(r))) return false;
    if (out->n * out->prompt_count > REQUEST_TEXTS_MAX)
        return refuse(r, "n", "n: %u of %zu prompts; at most %u texts in one request", out->n,
                      out->prompt_count, REQUEST_TEXTS_MAX);
    if (!check_logprobs(r)) return false;
    const omm_seed seed = omm_seed_from_u64(out->seed);
    out->sampler.rng = omm_rng_init(&seed, OMM_PURPOSE_SAMPLE, 0, 0);
    return true;
}

static void request_init(request *out, const omm_serve_options *o, bool is_chat, uint64_t draw) {
    *out = (request){.is_chat = is_chat,
                     .sampler = o->sampler,
                     .n = 1,
                     .seed = draw,
                     .at_once = o->at_once,
                     .calls_max = OMM_CHAT_CALLS_MAX};
    if (!is_chat) out->tokens_max = COMPLETION_TOKENS;
    snprintf(out->model, sizeof out->model, "%s", o->name);
    for (size_t i = 0; i < REQUEST_TEXTS_MAX; i++) {
        omm_tokens_init(&out->prompts[i], PROMPT_TOKENS_MAX);
        omm_buf_init(&out->echoes[i], OMM_TOKENIZER_TEXT_MAX);
    }
    omm_buf_init(&out->stop_bytes, (size_t)REQUEST_STOPS_MAX * OMM_STOP_BYTES_MAX);
    omm_buf_init(&out->begun, REQUEST_BYTES_MAX);
}

size_t request_bytes_max(const omm_serve_options *o) {
    const size_t wanted =
        BODY_BYTES_LEAST + BODY_BYTES_A_TOKEN * (size_t)o->batcher.session.positions_max;
    return wanted < REQUEST_BYTES_MAX ? wanted : REQUEST_BYTES_MAX;
}

uint32_t request_room(const request *r, const omm_serve_options *o, size_t prompt) {
    const uint32_t positions = o->batcher.session.positions_max;
    const uint32_t room = positions - (uint32_t)r->prompts[prompt].count + 1;
    return r->tokens_max && r->tokens_max < room ? r->tokens_max : room;
}

bool request_read(request *out, fault *why, const omm_serve_options *o, bool is_chat,
                  omm_bytes body, uint64_t draw) {
    json_t *root = NULL;
    request_init(out, o, is_chat, draw);
    reader r = {out, why, o, NULL};
    /* a wide number that matters is refused by its name, others are about as large */
    const omm_err err = omm_json_parse_asked(&root, body, s_texts, "the body");
    if (err != OMM_OK) return refuse_err(&r, NULL, err);
    r.root = root;
    const bool ok = read_root(&r);
    json_decref(root);
    if (body.size > TRIM_BYTES) omm_mem_trim(); /* what it took while it was read goes back */
    return ok;
}

void request_fini(request *r) {
    for (size_t i = 0; i < REQUEST_TEXTS_MAX; i++) {
        omm_tokens_fini(&r->prompts[i]);
        omm_buf_fini(&r->echoes[i]);
    }
    omm_free(r->biases);
    omm_grammar_close(r->grammar);
    omm_buf_fini(&r->stop_bytes);
    omm_buf_fini(&r->begun);
}

/* request_test.c - what a request may say, and by which name it is refused. */
#include "request.h"

#include "omm/json.h"
#include "omm/mem.h"
#include "omm_test.h"
#include "test_served.h"
#include "test_template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRAWN = 77 };

static request *s_request; /* large */

static bool reads(const served *s, fault *why, bool is_chat, const char *body) {
    *why = (fault){0};
    return request_read(s_request, why, &s->options, is_chat, omm_bytes_str(body), DRAWN);
}

#define TURN "\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]"
#define TOOLS                                                                                      \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"calculator\", "               \
    "\"parameters\": {\"properties\": {\"expression\": {}}}}}]"

#define ALLOWED(mode, name)                                                                        \
    ", \"tool_choice\": {\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\": \"" mode       \
    "\", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"" name "\"}}]}}"

/* The same schema as llama.cpp has it. */
#define OBJECT                                                                                     \
    "\"response_format\": {\"type\": \"json_object\", \"schema\": {\"type\": \"object\", "         \
    "\"properties\": "                                                                             \
    "{\"a\": {\"type\": \"integer\"}}, \"required\": [\"a\"]}}"
#define SCHEMA(more)                                                                               \
    "\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"n\", " more    \
    "\"schema\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}}}}"

typedef struct refusal {
    bool is_chat;
    const char *body;
    unsigned status;
    const char *param, *words;
} refusal;

static const refusal s_refusals[] = {
    {true, "{", 400, NULL, "the body"},
    {true, "[]", 400, NULL, "the body is no JSON object"},
    {true, "{}", 400, "messages", "a list of 1 to 1024 messages"},
    {false, "{}", 400, "prompt", "a text is needed, or a list of token ids"},
    {true, "{" TURN ", \"temprature\": 0.1}", 400, NULL,
     "temprature: not known here; accepted: model, "},
    {true, "{" TURN ", \"temprature\": null}", 400, NULL, "temprature: not known here"},
    {true, "{" TURN ", \"min_p\": 1.5}", 400, "min_p", "min_p: accepted are numbers from 0 to 1"},
    {true, "{" TURN ", \"prompt\": \"x\"}", 400, NULL, "prompt: not known here"},
    {false, "{\"prompt\": \"x\", \"messages\": []}", 400, NULL, "messages: not known here"},
    {true, "{" TURN ", \"model\": \"three\"}", 404, "model",
     "there is no model three; accepted: base, one, two, or adapters joined by +"},
    {true, "{" TURN ", \"model\": \"one+\"}", 404, "model", "there is no model one+"},
    {true, "{" TURN ", \"model\": \"base+one\"}", 404, "model", "there is no model base+one"},
    {true, "{" TURN ", \"model\": 1}", 400, "model", "a name is needed"},
    {true, "{" TURN ", \"temperature\": -1}", 400, "temperature", "numbers from 0 to 100"},
    {true, "{" TURN ", \"temperature\": \"1\"}", 400, "temperature", "numbers from 0 to 100"},
    {true, "{" TURN ", \"top_p\": -0.1}", 400, "top_p", "numbers from 0 to 1"},
    {true, "{" TURN ", \"top_k\": -2}", 400, "top_k", "whole numbers from 0"},
    {true, "{" TURN ", \"seed\": -2}", 400, "seed", "from 0 to 2^53"},
    {true, "{" TURN ", \"seed\": 9007199254740993}", 400, "seed", "from 0 to 2^53"},
    {true, "{" TURN ", \"seed\": 1.5}", 400, "seed", "from 0 to 2^53"},
    {true, "{" TURN ", \"n\": 0}", 400, "n", "from 1 to 64"},
    {false, "{\"prompt\": [\"a\", \"b\", \"c\", \"d\", \"e\"], \"n\": 13}", 400, "n",
     "at most 64 texts"},
    {true, "{" TURN ", \"stream\": 1}", 400, "stream", "true and false"},
    {true, "{" TURN ", \"stream_options\": {\"include_usage\": true}}", 400, "stream_options",
     "together with stream"},
    {true, "{" TURN ", \"stream\": true, \"stream_options\": {\"x\": 1}}", 400, "stream_options",
     "include_usage"},
    {true, "{" TURN ", \"stop\": \"\"}", 400, "stop", "texts of 1 to 256 bytes"},
    {true, "{" TURN ", \"stop\": [1]}", 400, "stop", "texts of 1 to 256 bytes"},
    {true, "{" TURN ", \"max_tokens\": -3}", 400, "max_tokens",
     "max_tokens: accepted are whole numbers from 1 to 4294967295, and -1"},
    {true, "{" TURN ", \"top_k\": -2}", 400, "top_k", "from 0 to 4294967295, and -1"},
    {true, "{" TURN ", \"seed\": -2}", 400, "seed", "from 0 to 2^53, and -1"},
    {true, "{" TURN ", \"repeat_last_n\": -2}", 400, "repeat_last_n", ", and -1"},
    {true, "{" TURN ", \"max_tokens\": 0}", 400, "max_tokens", "whole numbers from 1"},
    {true, "{" TURN ", \"max_completion_tokens\": 0, \"max_tokens\": null}", 400,
     "max_completion_tokens", "max_completion_tokens: accepted are whole numbers from 1"},
    {true, "{" TURN ", \"max_completion_tokens\": null, \"max_tokens\": 0}", 400, "max_tokens",
     "max_tokens: accepted are whole numbers from 1"},
    {false, "{\"prompt\": \"x\", \"max_tokens\": 0}", 400, "max_tokens", "; 0 together with echo"},
    {true, "{" TURN ", \"top_logprobs\": 2}", 400, "top_logprobs", "together with logprobs"},
    {true, "{" TURN ", \"logprobs\": 2}", 400, "logprobs", "true and false"},
    {true, "{" TURN ", \"logprobs\": true, \"top_logprobs\": 21}", 400, "top_logprobs", "to 20"},
    {false, "{\"prompt\": \"x\", \"echo\": true, \"logprobs\": 20, \"n\": 64, \"max_tokens\": 48}",
     400, "logprobs", "logprobs: 65856 of them in one answer"},
    {true, "{" TURN ", \"presence_penalty\": 2.5}", 400, "presence_penalty",
     "presence_penalty: accepted are numbers from -2 to 2"},
    {false, "{\"prompt\": \"x\", \"frequency_penalty\": -2.01}", 400, "frequency_penalty",
     "frequency_penalty: accepted are numbers from -2 to 2"},
    {true, "{" TURN ", \"frequency_penalty\": \"1\"}", 400, "frequency_penalty", "numbers from"},
    {true, "{" TURN ", \"frequency_penalty\": 1e300}", 400, "frequency_penalty", "numbers from"},
    {true, "{" TURN ", \"repeat_penalty\": 0}", 400, "repeat_penalty", "from 0.01 to 100"},
    {true, "{" TURN ", \"repeat_penalty\": 0, \"repeat_last_n\": 0}", 400, "repeat_penalty",
     "from 0.01 to 100"},
    {true, "{" TURN ", \"repetition_penalty\": -1}", 400, "repetition_penalty", "from 0.01 to 100"},
    {true, "{" TURN ", \"repeat_last_n\": -2}", 400, "repeat_last_n", "whole numbers from 0"},
    {true, "{" TURN ", \"repeat_last_n\": 1.5}", 400, "repeat_last_n", "whole numbers from 0"},
    {true, "{" TURN ", \"repetition_penalty\": 1.1, \"repeat_penalty\": 1.1}", 400,
     "repetition_penalty", "repetition_penalty: repeat_penalty says it already"},
    {true, "{" TURN ", \"repeat_last_n\": 9, \"repetition_penalty\": 1.1}", 400,
     "repetition_penalty", "repetition_penalty: repeat_last_n says it already"},
    {true, "{" TURN ", \"logit_bias\": {\"1\": 100.5}}", 400, "logit_bias",
     "logit_bias: accepted are numbers from -100 to 100"},
    {true, "{" TURN ", \"logit_bias\": {\"1\": false}}", 400, "logit_bias", "numbers from -100"},
    {true, "{" TURN ", \"logit_bias\": {\"01\": 1}}", 400, "logit_bias",
     "logit_bias: 01 is no token; accepted are ids from 0 to "},
    {true, "{" TURN ", \"logit_bias\": {\"Hello\": 1}}", 400, "logit_bias", "Hello is no token"},
    {true, "{" TURN ", \"logit_bias\": {\"\": 1}}", 400, "logit_bias", ":  is no token"},
    {true, "{" TURN ", \"logit_bias\": {\"-1\": 1}}", 400, "logit_bias", "-1 is no token"},
    {true, "{" TURN ", \"logit_bias\": {\"18446744073709551617\": 1}}", 400, "logit_bias",
     "is no token"},
    {true, "{" TURN ", \"logit_bias\": [[1, 1]]}", 400, "logit_bias",
     "accepted is {\"TOKEN ID\": BIAS, ...} of at most 1024 tokens"},
    {true, "{" TURN ", \"response_format\": {\"type\": \"yaml\"}}", 400, "response_format",
     "{\"type\": \"text\"}, {\"type\": \"json_object\"}, {\"type\": \"json_object\", "},
    {true, "{" TURN ", \"response_format\": \"json_object\"}", 400, "response_format",
     "accepted are"},
    {true, "{" TURN ", \"response_format\": {\"type\": \"json_object\", \"schema\": 5}}", 400,
     "response_format", "response_format: #: a schema is an object"},
    {true, "{" TURN ", \"response_format\": {\"type\": \"text\", \"schema\": {}}}", 400,
     "response_format", "accepted are"},
    {true,
     "{" TURN ", \"response_format\": {\"type\": \"json_schema\", \"schema\": {}, "
     "\"json_schema\": {\"name\": \"n\", \"schema\": {}}}}",
     400, "response_format", "accepted are"},
    {true, "{" TURN ", \"response_format\": {\"type\": \"text\", \"json_schema\": {}}}", 400,
     "response_format", "accepted are"},
    {true, "{" TURN ", \"response_format\": {\"type\": \"json_schema\"}}", 400, "response_format",
     "\"json_schema\": {\"name\": NAME, \"schema\": SCHEMA}}"},
    {true, "{" TURN ", " SCHEMA("\"grammar\": 1, ") "}", 400, "response_format",
     "json_schema has no grammar; accepted: name, schema, strict, description"},
    {true,
     "{" TURN
     ", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"n\", "
     "\"schema\": {\"properties\": {\"a\": {\"pattern\": \"(?=x)\"}}}}}}",
     400, "response_format",
     "response_format: #/properties/a/pattern: byte 2 of the pattern: (? with this behind it"},
    {false, "{\"prompt\": \"x\", " SCHEMA("") "}", 400, NULL, "response_format: not known here"},
    {true, "{" TURN ", \"reasoning_effort\": \"most\"}", 400, "reasoning_effort",
     "none (no thought), minimal, low"},
    {true, "{" TURN ", \"chat_template_kwargs\": {\"thinking\": true}}", 400,
     "chat_template_kwargs", "{\"enable_thinking\": true or false}"},
    {true, "{" TURN ", \"chat_template_kwargs\": {\"enable_thinking\": 1}}", 400,
     "chat_template_kwargs", "true or false"},
    {true, "{" TURN ", \"chat_template_kwargs\": {\"enable_thinking\": true, \"x\": 1}}", 400,
     "chat_template_kwargs", "true or false"},
    {true, "{" TURN ", \"chat_template_kwargs\": []}", 400, "chat_template_kwargs", "accepted is"},
    {true,
     "{" TURN ", \"chat_template_kwargs\": {\"enable_thinking\": true}, \"reasoning_effort\": "
     "\"low\"}",
     400, "reasoning_effort", "says it already"},
    {false, "{\"prompt\": \"x\", \"reasoning_effort\": \"none\"}", 400, NULL, "not known here"},
    {true, "{" TURN ", \"modalities\": [\"audio\"]}", 400, "modalities", "[\"text\"]"},
    {false, "{\"prompt\": \"x\", \"best_of\": 2}", 400, "best_of",
     "best_of: not supported; accepted: 1, and n (here 1)"},
    {false, "{\"best_of\": 3, \"prompt\": \"x\", \"n\": 2}", 400, "best_of",
     "accepted: 1, and n (here 2)"},
    {true, "{" TURN ", \"n\": 2, \"best_of\": \"2\"}", 400, "best_of", "not supported"},
    {false, "{\"prompt\": \"x\", \"suffix\": \"y\"}", 400, "suffix", "not supported"},
    {true, "{" TURN ", \"tool_choice\": \"required\"}", 400, "tool_choice", "there are no tools"},
    {true, "{" TURN ", " TOOLS ", \"tool_choice\": {\"function\": {\"name\": \"x\"}}}", 400,
     "tool_choice", "there is no tool x"},
    {true, "{" TURN ", " TOOLS ALLOWED("always", "calculator") "}", 400, "tool_choice",
     "allowed_tools: mode is auto or required"},
    {true, "{" TURN ", " TOOLS ALLOWED("required", "x") "}", 400, "tool_choice",
     "there is no tool x"},
    {true,
     "{" TURN ", " TOOLS
     ", \"tool_choice\": {\"allowed_tools\": {\"mode\": \"auto\", \"tools\": []}}}",
     400, "tool_choice", "allowed_tools: tools is a list"},
    {true,
     "{" TURN ", " TOOLS
     ", \"tool_choice\": {\"function\": {\"name\": \"calculator\"}, \"allowed_tools\": {\"mode\": "
     "\"auto\", \"tools\": []}}}",
     400, "tool_choice", "a function, or allowed_tools, and not both"},
    {true, "{" TURN ", " TOOLS ", \"tool_choice\": {\"allowed_tools\": 1}}", 400, "tool_choice",
     "allowed_tools: mode is auto or required"},
    {true, "{" TURN ", " TOOLS ", \"tool_choice\": \"any\"}", 400, "tool_choice",
     "none, auto, required"},
    {true, "{" TURN ", \"tools\": [{}]}", 400, "tools", "entry 0 has no function name"},
    {true, "{" TURN ", \"tools\": [{\"name\": \"a\", \"strict\": 1}]}", 400, "tools",
     "tools: a: strict is true or false"},
    {true,
     "{" TURN ", \"tools\": [{\"function\": {\"name\": \"a\", \"strict\": true, \"parameters\": "
     "{\"type\": \"object\", \"properties\": {\"d\": {\"pattern\": \"(?=x)\"}}}}}]}",
     400, "tools", "tools: a.parameters/properties/d/pattern: byte 2 of the pattern: (? with"},
    {true, "{" TURN ", " TOOLS ", \"parallel_tool_calls\": 1}", 400, "parallel_tool_calls",
     "accepted are true and false"},
    {true, "{\"messages\": [{\"role\": \"user\"}]}", 400, "messages", "content is not a string"},
    {false, "{\"prompt\": [1, 999999]}", 400, "prompt", "token ids are whole numbers from 0 to "},
    {false, "{\"prompt\": [[1], 2]}", 400, "prompt", "entry 1 is no text"},
    {false, "{\"prompt\": []}", 400, "prompt", "a text is needed"},
    {false, "{\"prompt\": [[]]}", 400, "prompt", "it is empty"},
    {true, "{" TURN ", \"max_tokens\": 2, \"max_completion_tokens\": 2}", 400, "max_tokens",
     "max_completion_tokens says it already"},
    {true, "{" TURN ", \"tools\": [{\"name\": \"a\"}, {\"name\": \"b\"}, {\"name\": \"a\"}]}", 400,
     "tools", "tools: two are named a"},
    {true, "{" TURN ", \"tools\": [{\"name\": \"\"}]}", 400, "tools", "1 to 64 letters, digits"},
    {true, "{" TURN ", \"tools\": [{\"name\": \"a\\\"b\"}]}", 400, "tools",
     "1 to 64 letters, digits"},
    {true, "{" TURN ", \"seed\": 18446744073709551616}", 400, "seed",
     "seed: accepted are whole numbers from 0 to 2^53, and -1; got 1.8446744073709552e+19"},
    {true, "{" TURN ", \"max_tokens\": 9223372036854775808}", 400, "max_tokens",
     "from 1 to 4294967295, and -1; got 9.223372036854776e+18"},
    {true, "{" TURN ", \"top_k\": -18446744073709551616}", 400, "top_k", "; got -1.84467440737"},
    {true, "{" TURN ", \"n\": 65}", 400, "n", "n: accepted are whole numbers from 1 to 64; got 65"},
    {true, "{" TURN ", \"seed\": 1e16}", 400, "seed", "from 0 to 2^53, and -1; got 1e+16"},
    {true, "{" TURN ", \"max_tokens\": 0.0}", 400, "max_tokens", "whole numbers from 1"},
    {true, "{" TURN ", \"top_p\": -0.1}", 400, "top_p", "numbers from 0 to 1; got -0.1"},
    {true, "{" TURN ", \"max_tokens\": 2.0, \"max_completion_tokens\": 2}", 400, "max_tokens",
     "max_completion_tokens says it already"},
    {true, "{" TURN ", \"temperature\": 18446744073709551616}", 400, "temperature",
     "numbers from 0 to 100; got 1.8446744073709552e+19"},
    {false, "{\"prompt\": \"x\", \"min_tokens\": 18446744073709551616}", 400, "min_tokens",
     "accepted: 0; got 1.8446744073709552e+19"},
    {false, "{\"prompt\": [18446744073709551616]}", 400, "prompt", "token ids are whole numbers"},
    {true, "{" TURN ", \"model\": \"base\\u0000x\"}", 400, "model", "model: \\u0000 is allowed in"},
    {true, "{" TURN ", \"tools\": [{\"name\": \"a\\u0000\"}]}", 400, "tools", "tools: \\u0000"},
    {true, "{" TURN ", \"user\\u0000\": 1}", 400, NULL, "the body:1"},
    {true, "{" TURN ", \"tools\": [{\"name\": \"\\ud83d\"}]}", 400, NULL, "invalid Unicode"},
    {true, "{" TURN ", \"model\": \"\\ud83d\"}", 400, NULL, "invalid Unicode"},
    {true, "{" TURN ", \"temperature\": 1e400}", 400, NULL, "real number overflow"},
    {true, "{" TURN ", \"n\": 20, \"logprobs\": true, \"top_logprobs\": 20}", 400, "logprobs",
     "logprobs: 210840 of them in one answer; at most 65536"},
};

static void refuses(const served *s, const refusal *r) {
    fault why;
    const bool ok = reads(s, &why, r->is_chat, r->body);
    request_fini(s_request);
    const bool same =
        (!r->param && !why.param) || (r->param && why.param && strcmp(r->param, why.param) == 0);
    if (!ok && why.status == r->status && same && strstr(why.message, r->words)) return;
    fprintf(stderr, "%s\ngot %u %s: %s\n", r->body, why.status, why.param, why.message);
    exit(1);
}

static void test_refused(const served *s) {
    for (size_t i = 0; i < sizeof s_refusals / sizeof s_refusals[0]; i++)
        refuses(s, &s_refusals[i]);
}

static void accepts(const served *s, bool is_chat, const char *body) {
    fault why;
    if (reads(s, &why, is_chat, body)) return;
    fprintf(stderr, "%s\nrefused: %s\n", body, why.message);
    exit(1);
}

/* So many tools as no list of them may be long: said before names are compared with one another. */
static void test_many_tools(const served *s) {
    static const char *const before[] = {
        "{" TURN ", \"tools\": [", "{" TURN ", \"tools\": [{\"name\": \"a\"}], \"tool_choice\": "
                                   "{\"allowed_tools\": {\"mode\": \"auto\", \"tools\": ["};
    static const char *const words[] = {"tools: 129 tools; at most 128",
                                        "tool_choice: 129 tools; at most 128"};
    for (size_t i = 0; i < 2; i++) {
        omm_buf body;
        fault why;
        omm_buf_init(&body, 1 << 16);
        CHECK_OK(omm_buf_printf(&body, "%s", before[i]));
        for (unsigned k = 0; k < 129; k++)
            CHECK_OK(omm_buf_printf(&body, "%s{\"name\": \"a\"}", k ? ", " : ""));
        CHECK_OK(omm_buf_append(&body, i ? "]}}}" : "]}", i ? 5 : 3));
        CHECK(!reads(s, &why, true, (const char *)body.data));
        omm_buf_fini(&body);
        CHECK_EQ(why.status, 400);
        CHECK(strstr(why.message, words[i]) != NULL);
    }
}

/* A text may have any character, as answers may. */
static void test_nul(const served *s) {
    const uint8_t a0b[] = {'a', 0, 'b'};
    omm_tokens ids;
    accepts(s, false, "{\"prompt\": \"a\\u0000b\", \"stop\": \"c\\u0000\", \"user\": \"\\u0000\"}");
    CHECK(omm_bytes_equal(s_request->stops[0], omm_bytes_of("c", 2)));
    omm_tokens_init(&ids, 64);
    CHECK_OK(omm_tokenizer_encode(&ids, s->tokenizer, omm_bytes_of(a0b, 3), OMM_TOKENIZE_BOS));
    CHECK(ids.count == s_request->prompts[0].count && ids.count >= 3);
    CHECK_EQ(memcmp(ids.ids, s_request->prompts[0].ids, ids.count * sizeof *ids.ids), 0);
    omm_tokens_fini(&ids);
    request_fini(s_request);
    accepts(s, true,
            "{\"messages\": [{\"role\": \"user\", \"content\": \"a\\u0000b\"}, {\"role\": "
            "\"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"a\", "
            "\"arguments\": \"{\\\"x\\\": \\\"\\\\u0000\\\"}\"}}]}, {\"role\": \"tool\", "
            "\"content\": \"ELF\\u0000\"}]}");
    request_fini(s_request);
}

/* Half of a pair is as U+FFFD, where a text was cut. */
static void test_halves(const served *s) {
    const char *const bodies[] = {
        "{\"prompt\": \"x \\ud83d\", \"stop\": [\"\\udc00\"]}",
        "{\"prompt\": \"x \\ufffd\", \"stop\": [\"\\ufffd\"]}",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"x \\ud83d\"}]}",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"x \\ufffd\"}]}"};
    for (size_t chat = 0; chat < 2; chat++) {
        omm_tokens ids;
        omm_tokens_init(&ids, 1 << 12);
        accepts(s, chat == 1, bodies[2 * chat]);
        for (size_t i = 0; i < s_request->prompts[0].count; i++)
            CHECK_OK(omm_tokens_push(&ids, s_request->prompts[0].ids[i]));
        if (chat == 0) CHECK(omm_bytes_equal(s_request->stops[0], omm_bytes_str("\xef\xbf\xbd")));
        request_fini(s_request);
        accepts(s, chat == 1, bodies[2 * chat + 1]);
        CHECK_EQ(ids.count, s_request->prompts[0].count);
        CHECK_EQ(memcmp(ids.ids, s_request->prompts[0].ids, ids.count * sizeof *ids.ids), 0);
        request_fini(s_request);
        omm_tokens_fini(&ids);
    }
}

/* A number that 64 bits do not hold, where it is nothing's measure or a limit that no text reaches. */
static void test_wide(const served *s) {
    static const char *const bodies[] = {
        "{" TURN ", \"metadata\": {\"id\": 123456789012345678901234567890}}",
        "{" TURN ", \"user\": -18446744073709551616}",
        "{" TURN ", \"tools\": [{\"name\": \"a\", \"parameters\": {\"type\": \"object\", "
        "\"properties\": {\"x\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": "
        "18446744073709551615}, \"y\": {\"type\": \"string\", \"maxLength\": "
        "18446744073709551615}}}}]}",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
        "\"tool_calls\": [{\"function\": {\"name\": \"a\", \"arguments\": {\"x\": "
        "18446744073709551616}}}]}]}",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        accepts(s, true, bodies[i]);
        request_fini(s_request);
    }
}

static void test_members(const served *s) {
    const request *r = s_request;
    accepts(s, true, "{" TURN "}");
    CHECK_EQ(r->seed, DRAWN);
    CHECK_EQ(r->n, 1);
    CHECK_EQ(r->tokens_max, 0);
    CHECK_EQ(r->adapter_count, 0);
    CHECK_EQ(strcmp(r->model, "base"), 0);
    CHECK(r->prompt_count == 1 && r->prompts[0].count == 11);
    request_fini(s_request);
    accepts(
        s, true,
        "{" TURN ", \"model\": \"two+one\", \"temperature\": 0.5, \"min_p\": 0.25, \"top_p\": 0.9, "
        "\"top_k\": "
        "3, \"seed\": 9007199254740992, \"n\": 3, \"max_completion_tokens\": 9, \"stop\": "
        "[\"ab\", \"c\"], \"stream\": true, \"stream_options\": {\"include_usage\": true}, "
        "\"logprobs\": true, \"top_logprobs\": 20, \"user\": \"x\", \"metadata\": {}, \"store\": "
        "false, \"presence_penalty\": 0, \"logit_bias\": {}, \"response_format\": {\"type\": "
        "\"text\"}, \"tools\": null, \"tool_choice\": null}");
    CHECK(r->adapter_count == 2 && r->adapters[0] == s->adapters[1]);
    CHECK(r->adapters[1] == s->adapters[0]);
    CHECK(r->sampler.temperature == 0.5f && r->sampler.top_p == 0.9f && r->sampler.top_k == 3);
    CHECK(r->sampler.min_p == 0.25f);
    CHECK(r->seed == REQUEST_SEED_MAX && r->n == 3 && r->tokens_max == 9);
    CHECK(r->stop_count == 2 && omm_bytes_equal(r->stops[0], omm_bytes_str("ab")));
    CHECK(omm_bytes_equal(r->stops[1], omm_bytes_str("c")));
    CHECK(r->stream && r->include_usage && r->logprobs && r->top_logprobs == 20 && !r->has_tools);
    request_fini(s_request);
    accepts(s, true, "{" TURN ", \"max_tokens\": 5.0, \"seed\": 7.0, \"top_k\": -1.0, \"n\": 2.0}");
    CHECK(r->tokens_max == 5 && r->seed == 7 && r->sampler.top_k == 0 && r->n == 2);
    request_fini(s_request);
    accepts(s, false, "{\"prompt\": \"x\", \"echo\": true, \"max_tokens\": 0.0}");
    CHECK(r->draws_none && r->tokens_max == 1);
    request_fini(s_request);
    accepts(s, true, "{" TURN ", \"temperature\": 100, \"top_p\": 0, \"min_p\": 0}");
    CHECK_OK(omm_sampler_check(&r->sampler)); /* what the batcher asks of it */
    uint32_t drawn = 0;                       /* at that temperature all four are about as likely */
    const float logits[4] = {0.1f, 0.2f, 0.4f, 0.3f};
    for (uint64_t i = 0; i < 16; i++) {
        CHECK_OK(omm_sample(&drawn, &r->sampler, logits, 4, i));
        CHECK_EQ(drawn, 2u);
    }
    request_fini(s_request);
    accepts(s, false, "{\"prompt\": [[5, 6, 7], \"the\"], \"echo\": true}");
    CHECK(r->prompt_count == 2 && r->prompts[0].count == 3 && r->prompts[0].ids[2] == 7);
    CHECK(r->tokens_max == 16 && r->echoes[1].size == 3);
    request_fini(s_request);
    accepts(s, false, "{\"prompt\": \"x\", \"max_tokens\": 0, \"echo\": true}");
    CHECK(r->draws_none && r->tokens_max == 1);
    request_fini(s_request);
    accepts(s, false, "{\"prompt\": [5, 6], \"stop\": null, \"logprobs\": 0}");
    CHECK(r->prompt_count == 1 && r->prompts[0].count == 2 && r->logprobs);
    request_fini(s_request);
}

/* As many as are sent, in either order, and one. */
static void test_best_of(const served *s) {
    static const char *const more[] = {"\"n\": 3, \"best_of\": 3", "\"best_of\": 3.0, \"n\": 3",
                                       "\"n\": 3, \"best_of\": 1", "\"n\": 3, \"best_of\": null"};
    for (size_t i = 0; i < 2 * sizeof more / sizeof *more; i++) {
        char body[256];
        snprintf(body, sizeof body, i % 2 ? "{" TURN ", %s}" : "{\"prompt\": \"x\", %s}",
                 more[i / 2]);
        accepts(s, i % 2 == 1, body);
        CHECK_EQ(s_request->n, 3);
        request_fini(s_request);
    }
}

/* Those of a request are its own; what it does not say is the server's. */
static void test_biases(const served *s) {
    const omm_sampler *got = &s_request->sampler;
    const uint32_t last = s->options.model->dims.vocab - 1;
    char body[256];
    for (int i = 0; i < 3; i++) {
        static const char *const none[] = {"null", "{}", "[]"};
        snprintf(body, sizeof body, "{" TURN ", \"logit_bias\": %s}", none[i]);
        accepts(s, true, body);
        CHECK(got->bias_count == 0 && !omm_sampler_penalises(got));
        request_fini(s_request);
    }
    snprintf(body, sizeof body,
             "{" TURN ", \"logit_bias\": {\"%u\": -100, \"0\": 100, \"7\": 0.5}}", last);
    accepts(s, true, body);
    CHECK_EQ(got->bias_count, 3);
    CHECK(got->biases[0].id == 0 && got->biases[1].id == 7 && got->biases[2].id == last);
    CHECK(got->biases[0].bias == 100.0f && got->biases[1].bias == 0.5f);
    CHECK(got->biases[2].bias == -100.0f);
    CHECK_OK(omm_sampler_check(got));
    request_fini(s_request);
    snprintf(body, sizeof body, "{" TURN ", \"logit_bias\": {\"%u\": 1}}", last + 1);
    refuses(s,
            &(refusal){true, body, 400, "logit_bias", "is no token; accepted are ids from 0 to"});
}

static void test_penalties(const served *s) {
    const omm_sampler *got = &s_request->sampler;
    served of = *s;
    accepts(s, true, "{" TURN "}");
    CHECK(!omm_sampler_penalises(got) && got->repeat_last == 64);
    request_fini(s_request);
    accepts(s, true,
            "{" TURN ", \"presence_penalty\": -2, \"frequency_penalty\": 0.5, \"repeat_penalty\": "
            "1.25, \"repeat_last_n\": 9}");
    CHECK(got->presence_penalty == -2.0f && got->frequency_penalty == 0.5f);
    CHECK(got->repeat_penalty == 1.25f && got->repeat_last == 9);
    request_fini(s_request);
    accepts(s, false, "{\"prompt\": \"x\", \"repeat_penalty\": 1.25, \"repeat_last_n\": -1}");
    CHECK(got->repeat_penalty == 1.25f && got->repeat_last == OMM_REPEAT_LAST_ALL);
    request_fini(s_request);
    accepts(s, false, "{\"prompt\": \"x\", \"repetition_penalty\": 1.5}");
    CHECK(got->repeat_penalty == 1.5f && got->repeat_last == OMM_REPEAT_LAST_ALL);
    request_fini(s_request);
    of.options.sampler.frequency_penalty = 1.0f;
    of.options.sampler.repeat_penalty = 1.5f;
    of.options.sampler.repeat_last = 5;
    accepts(&of, true, "{" TURN ", \"repeat_penalty\": null}");
    CHECK(got->frequency_penalty == 1.0f && got->repeat_penalty == 1.5f && got->repeat_last == 5);
    request_fini(s_request);
    accepts(&of, true, "{" TURN ", \"frequency_penalty\": 0, \"repeat_penalty\": 1}");
    CHECK(!omm_sampler_penalises(got));
    request_fini(s_request);
    of.options.sampler.frequency_penalty = 0.0f;
    accepts(&of, true, "{" TURN ", \"repetition_penalty\": 1, \"repeat_penalty\": 1.25}");
    CHECK(got->repeat_penalty == 1.25f && got->repeat_last == 5);
    request_fini(s_request);
    accepts(&of, true, "{" TURN ", \"repeat_last_n\": 7, \"repetition_penalty\": 1.0}");
    CHECK(!omm_sampler_penalises(got) && got->repeat_last == 7);
    request_fini(s_request);
}

/* What clients say of themselves; `other`: what would change a text, of the same member. */
static const struct {
    bool is_chat;
    const char *name, *neutral, *other; /* NULL: nothing would */
} s_neutral[] = {
    {true, "user", "\"x\"", NULL},
    {true, "metadata", "{\"a\": \"b\"}", NULL},
    {true, "store", "true", NULL},
    {false, "service_tier", "\"auto\"", NULL},
    {true, "prediction", "{\"type\": \"content\", \"content\": \"x\"}", NULL},
    {true, "prompt_cache_options", "{\"ttl\": \"30m\"}", NULL},
    {true, "moderation", "null", "{\"model\": \"x\"}"},
    {true, "cache_prompt", "false", NULL},
    {true, "verbosity", "\"medium\"", "\"low\""},
    {true, "best_of", "1", "2"},
    {true, "modalities", "[\"text\"]", "[\"text\", \"audio\"]"},
    {true, "functions", "[]", "[{\"name\": \"a\"}]"},
    {true, "audio", "null", "{\"voice\": \"x\"}"},
    {false, "suffix", "\"\"", "\"x\""},
    {false, "suffix", "null", "0"},
    {true, "typical_p", "1", "0.9"},
    {true, "typical_p", "1.0", "true"},
    {true, "typ_p", "1", "1.01"},
    {true, "mirostat", "0", "2"},
    {true, "mirostat_tau", "5.0", NULL},
    {true, "tfs_z", "1", "0"},
    {true, "n_keep", "-1", "5"},
    {true, "top_n_sigma", "-1.0", "1"},
    {true, "dry_multiplier", "0", "0.8"},
    {true, "dry_sequence_breakers", "[\"\\n\"]", NULL},
    {true, "xtc_probability", "0.0", "0.5"},
    {true, "dynatemp_range", "0", "0.5"},
    {true, "samplers", "[]", "[\"top_k\"]"},
    {true, "grammar", "\"\"", "\"root ::= x\""},
    {true, "reasoning_format", "\"auto\"", "\"none\""},
    {true, "ignore_eos", "false", "true"},
    {true, "min_tokens", "0", "4"},
    {false, "length_penalty", "1.0", "2"},
    {false, "skip_special_tokens", "true", "false"},
    {true, "add_special_tokens", "false", "true"},
    {false, "add_special_tokens", "true", "false"},
    {true, "guided_json", "null", "{}"},
    {true, "echo", "false", "true"},
};

/* A request of this member alone. */
static void put_member(char out[256], size_t i, const char *value) {
    snprintf(out, 256, "{%s, \"%s\": %s}", s_neutral[i].is_chat ? TURN : "\"prompt\": \"x\"",
             s_neutral[i].name, value);
}

static void test_neutral(const served *s) {
    char body[256], words[64];
    fault why;
    for (size_t i = 0; i < sizeof s_neutral / sizeof *s_neutral; i++) {
        const bool is_chat = s_neutral[i].is_chat;
        put_member(body, i, s_neutral[i].neutral);
        accepts(s, is_chat, body);
        CHECK(!omm_sampler_penalises(&s_request->sampler) && s_request->seed == DRAWN);
        request_fini(s_request);
        if (!s_neutral[i].other) continue;
        put_member(body, i, s_neutral[i].other);
        snprintf(words, sizeof words, "%s: not supported; accepted: ", s_neutral[i].name);
        if (reads(s, &why, is_chat, body) || why.status != 400 || !why.param ||
            strcmp(why.param, s_neutral[i].name) != 0 ||
            strstr(why.message, words) != why.message) {
            fprintf(stderr, "%s: %s\n", body, why.message);
            exit(1);
        }
        request_fini(s_request);
    }
    /* -1, as others say all, any, no limit */
    accepts(s, false,
            "{\"prompt\": \"x\", \"top_k\": -1, \"seed\": -1, \"max_tokens\": -1, \"logprobs\": "
            "false}");
    CHECK(s_request->sampler.top_k == 0 && s_request->seed == DRAWN && !s_request->logprobs);
    CHECK_EQ(s_request->tokens_max, 0);
    request_fini(s_request);
}

/* Who asks for no thought, and who for one of a server that has none. */
static void test_thinking(const served *s) {
    static const struct {
        const char *member;
        bool at_once, of_server;
    } cases[] = {
        {"", false, false},
        {"", true, true},
        {", \"chat_template_kwargs\": {}", false, false},
        {", \"chat_template_kwargs\": {}", true, true},
        {", \"chat_template_kwargs\": {\"enable_thinking\": false}", true, false},
        {", \"chat_template_kwargs\": {\"enable_thinking\": true}", false, true},
        {", \"reasoning_effort\": \"none\"", true, false},
        {", \"reasoning_effort\": \"high\"", false, true},
        {", \"reasoning_effort\": \"max\"", false, true},
        {", \"response_format\": {\"type\": \"json_object\"}", true, false},
        {", " TOOLS ", \"tool_choice\": \"required\"", true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[1024];
        served of = *s;
        of.options.at_once = cases[i].of_server;
        snprintf(body, sizeof body, "{" TURN "%s}", cases[i].member);
        accepts(&of, true, body);
        CHECK_EQ(s_request->at_once, cases[i].at_once);
        CHECK(!s_request->thinks && s_request->opened.size == 0); /* the model does not */
        request_fini(s_request);
    }
}

static void test_formats(const served *s) {
    static const char *const bodies[] = {
        "{" TURN ", " SCHEMA("\"strict\": true, \"description\": \"d\", ") "}",
        "{" TURN ", \"response_format\": {\"type\": \"json_object\"}, \"stream\": true}",
        "{" TURN ", " TOOLS ", \"tool_choice\": \"none\", " SCHEMA("\"strict\": null, ") "}",
        "{" TURN ", " TOOLS ", " SCHEMA("") "}",
        "{" TURN ", " TOOLS ", \"tool_choice\": \"required\", " SCHEMA("") "}",
        "{" TURN ", \"response_format\": {\"type\": \"text\"}}",
        "{" TURN ", \"response_format\": null}"};
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        accepts(s, true, bodies[i]);
        CHECK_EQ(s_request->grammar != NULL, i < 5);
        CHECK_EQ(s_request->has_tools, i == 3 || i == 4);
        CHECK_EQ(s_request->has_format, i == 3);
        CHECK(i >= 5 || s_request->at_once);
        request_fini(s_request);
    }
}

/* A call that has to come is begun in the prompt; tools that are not to be called are not announced. */
static void test_tools(const served *s) {
    const request *r = s_request;
    accepts(s, true, "{" TURN ", " TOOLS "}");
    const size_t plain = r->prompts[0].count;
    CHECK(r->has_tools && r->begun.size == 0);
    CHECK(r->grammar && r->calls_max == OMM_CHAT_CALLS_MAX && !r->at_once);
    request_fini(s_request);
    accepts(s, true, "{" TURN ", " TOOLS ", \"parallel_tool_calls\": false}");
    CHECK(r->grammar && r->calls_max == 1);
    request_fini(s_request);
    accepts(s, true, "{" TURN ", " TOOLS ", \"tool_choice\": \"required\"}");
    CHECK(r->prompts[0].count > plain);
    CHECK(omm_bytes_equal(omm_buf_view(&r->begun), omm_bytes_str("<tool_call>\n{\"name\":")));
    request_fini(s_request);
    accepts(s, true,
            "{" TURN ", " TOOLS ", \"tool_choice\": {\"type\": \"function\", \"function\": "
            "{\"name\": \"calculator\"}}}");
    CHECK(omm_bytes_equal(omm_buf_view(&r->begun),
                          omm_bytes_str("<tool_call>\n{\"name\": \"calculator\", \"arguments\":")));
    CHECK(r->grammar && r->calls_max == 1 && r->at_once);
    request_fini(s_request);
    accepts(s, true,
            "{" TURN ", " TOOLS ", \"tool_choice\": {\"function\": {\"name\": \"calculator\"}, "
            "\"allowed_tools\": null}}");
    CHECK(r->grammar && r->calls_max == 1);
    request_fini(s_request);
    accepts(s, true, "{" TURN ", " TOOLS ", \"tool_choice\": \"none\"}");
    CHECK(!r->has_tools && !r->grammar && r->prompts[0].count == 11);
    request_fini(s_request);
}

/* ---- what calls are held to ------------------------------------------------------------------------- */

#define THINKS                                                                                     \
    "{{ '<|im_start|>' ~ turn.role ~ '\\n' ~ turn.content.split('</think>')[-1] ~ "                \
    "'<|im_end|>' }}"                                                                              \
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}"

/* May a text go on so, under the grammar of the request?  *ends: and end there. */
static bool goes_on(bool *ends, const omm_tokenizer *t, const char *text) {
    omm_lexicon *lexicon = NULL;
    omm_constraint *c = NULL;
    omm_tokens ids;
    size_t at = 0;
    omm_tokens_init(&ids, 1 << 12);
    CHECK_OK(omm_tokenizer_encode(&ids, t, omm_bytes_str(text), OMM_TOKENIZE_CONTINUE));
    CHECK_OK(omm_lexicon_open(&lexicon, t, omm_tokenizer_vocab(t)));
    CHECK_OK(omm_constraint_open(&c, s_request->grammar, lexicon));
    while (at < ids.count && omm_constraint_permits(c, ids.ids[at]))
        omm_constraint_take(c, ids.ids[at++]);
    *ends = at == ids.count && omm_constraint_permits(c, omm_tokenizer_eos(t));
    const bool all = at == ids.count;
    omm_constraint_close(c);
    omm_lexicon_close(lexicon);
    omm_tokens_fini(&ids);
    return all;
}

typedef struct held {
    const char *jinja; /* NULL: the model's own */
    const char *more, *text;
    bool goes_on, ends;
} held;

#define NAMED                                                                                      \
    ", \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"calculator\"}}"
#define TWO(second)                                                                                \
    ", \"tools\": [{\"name\": \"calculator\", \"parameters\": {\"type\": \"object\", "             \
    "\"properties\": "                                                                             \
    "{\"expression\": {\"type\": \"string\"}}}}, {\"name\": \"b\", " second "}]"
#define ONE "<tool_call>{\"name\":\"calculator\",\"arguments\":{}}</tool_call>"
static const held s_held[] = {
    {NULL, ", " TOOLS, ONE, true, true},
    {NULL, ", " TOOLS, "Well <tool_call> no", false, false},
    {NULL, ", " TOOLS, ONE "[INST]", false, false},
    /* a mark that is only thought of begins none */
    {THINKS, ", " TOOLS, "Well <tool_call> no </think>" ONE, true, true},
    {THINKS, ", " TOOLS, "Well </think><tool_call> no", false, false},
    {THINKS, ", \"reasoning_effort\": \"none\", " TOOLS, "Well <tool_call> no", false, false},
    /* texts that end an answer may stand behind a call */
    {SERVED_MARKED, ", " TOOLS, ONE "[INST]", true, true},
    {SERVED_MARKED, ", " TOOLS, ONE "[INST]x", false, false},
    /* a function that says nothing of its parameters takes none */
    {NULL, TWO("\"parameters\": null, \"strict\": true"),
     "<tool_call>{\"name\":\"b\",\"arguments\":{}}</tool_call>", true, true},
    {NULL, TWO("\"parameters\": null"), "<tool_call>{\"name\":\"b\",\"arguments\":{\"", false,
     false},
    {NULL, TWO("\"description\": \"\""), "<tool_call>{\"name\":\"b\",\"arguments\":{}}</tool_call>",
     true, true},
    {NULL, TWO("\"description\": \"\""), "<tool_call>{\"name\":\"b\",\"arguments\":{\"", false,
     false},
    {NULL, TWO("\"parameters\": {}"),
     "<tool_call>{\"name\":\"b\",\"arguments\":{\"x\":[1]}}</tool_call>", true, true},
    {NULL, TWO("\"strict\": null"), "<tool_call>{\"name\":\"b\",\"arguments\":1", false, false},
    /* of a tool that is named all others are of no matter */
    {NULL, NAMED TWO("\"strict\": true, \"parameters\": {\"type\": \"string\"}"),
     "{\"expression\":\"1\"}}</tool_call>", true, true},
    {NULL,
     ALLOWED("auto", "calculator") TWO("\"strict\": true, \"parameters\": {\"type\": \"string\"}"),
     ONE, true, true},
    {NULL, ALLOWED("auto", "calculator") TWO("\"parameters\": {}"), "<tool_call>{\"name\":\"b\"",
     false, false},
    {NULL, ALLOWED("auto", "calculator") TWO("\"parameters\": {}"), "Well.", true, true},
    {NULL, ALLOWED("required", "b") TWO("\"parameters\": {}"),
     "\"b\",\"arguments\":{}}</tool_call>", true, true},
    {NULL, ALLOWED("required", "b") TWO("\"parameters\": {}"), "\"calculator\"", false, false},
    {NULL, NAMED TWO("\"parameters\": {}"), "{\"expression\":1", false, false},
    /* a model that writes calls bare */
    {TEMPLATE_OF_BARE_CALLS, ", " TOOLS, "{\"name\":\"calculator\",\"parameters\":{}}", true, true},
    {TEMPLATE_OF_BARE_CALLS, ", " TOOLS, "{\"name\":\"calculator\",\"arguments\"", false, false},
    {TEMPLATE_OF_BARE_CALLS, ", " TOOLS, "{\"name\":\"calculus\",\"arguments\"", true, true},
    {TEMPLATE_OF_BARE_CALLS, ", " TOOLS, ONE, true, true},
    {TEMPLATE_OF_BARE_CALLS, NAMED TWO("\"parameters\": {}"), " {\"expression\":\"1\"}}", true,
     true},
    {TEMPLATE_OF_BARE_CALLS, NAMED TWO("\"parameters\": {}"), " {\"expression\":1", false, false},
    {TEMPLATE_OF_BARE_CALLS, ALLOWED("required", "b") TWO("\"parameters\": {}"),
     " \"b\",\"parameters\":{}}", true, true},
    {TEMPLATE_OF_BARE_CALLS, ALLOWED("required", "b") TWO("\"parameters\": {}"), " \"calculator\"",
     false, false},
    {TEMPLATE_OF_BARE_CALLS, ALLOWED("auto", "b") TWO("\"parameters\": {}"),
     "{\"name\":\"calculator\",1", true, true},
    {TEMPLATE_OF_BARE_CALLS, ", " TOOLS,
     "{\"type\":\"function\",\"name\":\"calculator\",\"parameters\":{}}", true, true},
    /* models that have marks of their own; marked calls are held to as well */
    {TEMPLATE_OF_NAMED_CALLS, ", " TOOLS, "Well. [TOOL_CALLS]calculator[ARGS]{}", true, true},
    {TEMPLATE_OF_NAMED_CALLS, ", " TOOLS, "[TOOL_CALLS]calculus", false, false},
    {TEMPLATE_OF_NAMED_CALLS, ", " TOOLS, ONE, true, true},
    {TEMPLATE_OF_NAMED_CALLS, NAMED TWO("\"parameters\": {}"), "{\"expression\":\"1\"}", true,
     true},
    {TEMPLATE_OF_NAMED_CALLS, NAMED TWO("\"parameters\": {}"), "{\"expression\":1", false, false},
    {TEMPLATE_OF_NAMED_CALLS, ALLOWED("required", "b") TWO("\"parameters\": {}"), "b[ARGS]{}", true,
     true},
    {TEMPLATE_OF_NAMED_CALLS, ALLOWED("required", "b") TWO("\"parameters\": {}"), "calculator",
     false, false},
    {TEMPLATE_OF_LISTED_CALLS, ", " TOOLS,
     "Well. <|tool_call|>[{\"name\":\"calculator\",\"arguments\":{}}]", true, true},
    {TEMPLATE_OF_LISTED_CALLS, ", " TOOLS, "<|tool_call|>{", false, false},
    {TEMPLATE_OF_LISTED_CALLS, NAMED TWO("\"parameters\": {}"), "{\"expression\":\"1\"}}]", true,
     true},
    {TEMPLATE_OF_LISTED_CALLS, NAMED TWO("\"parameters\": {}"), "{\"expression\":\"1\"}},", false,
     false},
    {TEMPLATE_OF_LISTED_CALLS, ALLOWED("required", "b") TWO("\"parameters\": {}"),
     " \"b\",\"arguments\":{}}]", true, true},
    /* beside a format: calls, or what it describes, or (asked for) one of them alone */
    {NULL, ", " TOOLS ", " SCHEMA(""), ONE, true, true},
    {NULL, ", " TOOLS ", " SCHEMA(""), "{\"a\": 5}", true, true},
    {NULL, ", " TOOLS ", " SCHEMA(""), "{\"a\": \"x", false, false},
    {NULL, ", " TOOLS ", " SCHEMA(""), "Well", false, false},
    {NULL, ", " TOOLS ", " SCHEMA(""), "<tool_call>{\"name\":\"calculus", false, false},
    {NULL, ", " TOOLS ", \"response_format\": {\"type\": \"json_object\"}", "{\"b\": [1]}", true,
     true},
    {NULL, ", " TOOLS ", \"response_format\": {\"type\": \"json_object\"}", "[", false, false},
    {NULL, ", " TOOLS ", " OBJECT, "{\"a\": 5}", true, true},
    {NULL, ", " TOOLS ", " OBJECT, "{\"b\"", false, false},
    {NULL, ", " OBJECT, "{\"a\": 5}", true, true},
    {NULL, ", " OBJECT, "{\"a\": \"x", false, false},
    {NULL, ", " TOOLS ", \"response_format\": {\"type\": \"text\"}", "Well", true, true},
    {NULL, ", " TOOLS ", \"tool_choice\": \"none\", " SCHEMA(""), ONE, false, false},
    {NULL, ", " TOOLS ", \"tool_choice\": \"none\", " SCHEMA(""), "{\"a\": 5}", true, true},
    {NULL, ", " TOOLS ", \"tool_choice\": \"required\", " SCHEMA(""),
     "\"calculator\",\"arguments\":{}}</tool_call>", true, true},
    {NULL, ", " TOOLS ", \"tool_choice\": \"required\", " SCHEMA(""), "{\"a\"", false, false},
    {TEMPLATE_OF_BARE_CALLS, ", " TOOLS ", " SCHEMA(""),
     "{\"name\":\"calculator\",\"parameters\":{}}", true, true},
    {TEMPLATE_OF_BARE_CALLS, ", " TOOLS ", " SCHEMA(""), "{\"a\":5}", true, true},
    {TEMPLATE_OF_BARE_CALLS, ", " TOOLS ", " SCHEMA(""), "{\"name\":\"calculus", true, false},
    {TEMPLATE_OF_NAMED_CALLS, ", " TOOLS ", " SCHEMA(""), "[TOOL_CALLS]calculator[ARGS]{}", true,
     true},
    {THINKS, ", " TOOLS ", " SCHEMA(""), "hm", false, false}, /* as with a format alone */
};

static void test_held(const served *s) {
    for (size_t i = 0; i < sizeof s_held / sizeof s_held[0]; i++) {
        const held *h = &s_held[i];
        char body[2048];
        bool ends = false;
        served other = *s;
        omm_tokenizer *made = h->jinja ? served_other_tokenizer(h->jinja) : NULL;
        if (made) other.options.tokenizer = made;
        snprintf(body, sizeof body, "{" TURN "%s}", h->more);
        accepts(&other, true, body);
        if (goes_on(&ends, other.options.tokenizer, h->text) != h->goes_on || ends != h->ends) {
            fprintf(stderr, "%s: %s: %s\n", body, h->text, h->goes_on ? "refused" : "allowed");
            exit(1);
        }
        request_fini(s_request);
        omm_tokenizer_close(made);
    }
}

/* Marks are looked for in texts that may be any, and in no other model's. */
static void test_wraps(const served *s) {
    static const struct {
        const char *more;
        bool wraps, thinks;
    } asked[] = {{"", true, true},
                 {", \"reasoning_effort\": \"none\"", true, false},
                 {", " TOOLS, true, true},
                 {", " TOOLS ", \"tool_choice\": \"required\"", false, false},
                 {", " SCHEMA(""), false, false},
                 {", " TOOLS ", " SCHEMA(""), false, false}};
    served other = *s;
    omm_tokenizer *made = served_other_tokenizer(TEMPLATE_OF_WRAPPED_ANSWERS);
    other.options.tokenizer = made;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        char body[2048];
        snprintf(body, sizeof body, "{" TURN "%s}", asked[i].more);
        accepts(&other, true, body);
        CHECK_EQ(s_request->wraps, asked[i].wraps);
        CHECK_EQ(s_request->thinks, asked[i].thinks);
        request_fini(s_request);
        accepts(s, true, body);
        CHECK(!s_request->wraps);
        request_fini(s_request);
    }
    accepts(&other, false, "{\"prompt\": \"a\"}");
    CHECK(!s_request->wraps);
    request_fini(s_request);
    omm_tokenizer_close(made);
}

/* A prompt that fills the context leaves one token, which needs no position. */
static void test_context(const served *s) {
    omm_buf body;
    fault why = {0};
    const size_t most = s->options.batcher.session.positions_max;
    omm_buf_init(&body, 1 << 20);
    for (size_t count = most; count <= most + 1; count++) {
        omm_buf_clear(&body);
        CHECK_OK(omm_buf_printf(&body, "{\"prompt\": [5"));
        for (size_t i = 1; i < count; i++) CHECK_OK(omm_buf_printf(&body, ", 6"));
        CHECK_OK(omm_buf_append(&body, "]}", 3));
        CHECK_EQ(reads(s, &why, false, (const char *)body.data), count == most);
        if (count == most) CHECK_EQ(request_room(s_request, &s->options, 0), 1);
        request_fini(s_request);
    }
    CHECK(why.code && strcmp(why.code, "context_length_exceeded") == 0);
    CHECK(strstr(why.message, "513 tokens, where the context has 512 positions"));
    omm_buf_fini(&body);
}

/* `count` times `one` with `between`, in front of and behind what is there. */
static const char *times(unsigned count, const char *before, const char *one, const char *between,
                         const char *behind) {
    static char text[1 << 14];
    size_t at = (size_t)snprintf(text, sizeof text, "%s", before);
    for (unsigned i = 0; i < count; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? between : "", one);
    snprintf(text + at, sizeof text - at, "%s", behind);
    return text;
}

/* As many as there is room for are taken, and one more is refused by its name. */
static void test_bounds(const served *s) {
    static const struct {
        unsigned most, status;
        const char *before, *one, *between, *behind, *param, *words;
    } cases[] = {
        {REQUEST_STOPS_MAX, 400, "{\"prompt\": \"x\", \"stop\": [", "\"s\"", ", ", "]}", "stop",
         "stop: at most 16 of them"},
        {OMM_STOP_BYTES_MAX, 400, "{\"prompt\": \"x\", \"stop\": \"", "s", "", "\"}", "stop",
         "texts of 1 to 256 bytes"},
        {OMM_ADAPTERS_MAX, 400, "{\"prompt\": \"x\", \"model\": \"", "one", "+", "\"}", "model",
         "model: at most 8 adapters"},
        {REQUEST_TEXTS_MAX, 400, "{\"prompt\": [", "\"x\"", ", ", "]}", "prompt",
         "or 1 to 64 of either"},
        {REQUEST_TEXTS_MAX, 400, "{\"prompt\": [", "[5, 6]", ", ", "]}", "prompt",
         "or 1 to 64 of either"},
        {0, 404, "{\"prompt\": \"x\", \"model\": \"base", "", "", "x\"}", "model",
         "there is no model basex"},
        {0, 404, "{\"prompt\": \"x\", \"model\": \"one+", "", "", "x\"}", "model",
         "there is no model one+x"},
    };
    fault why;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (unsigned more = 0; more < 2; more++) {
            if (cases[i].most == 0 && more == 0) continue;
            const bool ok = reads(s, &why, false,
                                  times(cases[i].most + more, cases[i].before, cases[i].one,
                                        cases[i].between, cases[i].behind));
            request_fini(s_request);
            CHECK_EQ(ok, more == 0);
            if (ok) continue;
            CHECK_EQ(why.status, cases[i].status);
            CHECK_EQ(strcmp(why.param, cases[i].param), 0);
            CHECK(strstr(why.message, cases[i].words) != NULL);
        }
    for (unsigned size = 519; size < 4096; size = 2 * size + 1) { /* longer than any name here */
        CHECK(!reads(s, &why, false, times(size, "{\"model\": \"", "x", "", "\", \"prompt\": 1}")));
        CHECK(why.status == 404 && strstr(why.message, "there is no model xxx"));
        request_fini(s_request);
    }
    char ids[64];
    for (uint32_t more = 0; more < 2; more++) {
        snprintf(ids, sizeof ids, "{\"prompt\": [%u]}", s->model.dims.vocab - 1 + more);
        CHECK_EQ(reads(s, &why, false, ids), more == 0);
        request_fini(s_request);
    }
}

/* What a body may have grows with the context, up to a limit. */
static void test_bytes(const served *s) {
    omm_serve_options o = s->options;
    o.batcher.session.positions_max = 512;
    CHECK_EQ(request_bytes_max(&o), 294912);
    o.batcher.session.positions_max = 131072;
    CHECK_EQ(request_bytes_max(&o), REQUEST_BYTES_MAX);
}

/* What is said together with others, or beside what the server says. */
static void test_beside(const served *s) {
    served of = *s;
    of.options.sampler.top_k = 40;
    accepts(&of, false, "{\"prompt\": \"x\", \"top_k\": -1}");
    CHECK_EQ(s_request->sampler.top_k, 0);
    request_fini(s_request);
    accepts(&of, false, "{\"prompt\": \"x\", \"top_k\": null}");
    CHECK_EQ(s_request->sampler.top_k, 40);
    request_fini(s_request);
    static const struct {
        const char *options;
        bool usage;
    } cases[] = {{"{}", false},
                 {"{\"include_usage\": null}", false},
                 {"{\"include_usage\": true, \"include_obfuscation\": false}", true},
                 {"{\"include_obfuscation\": true}", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[256];
        snprintf(body, sizeof body, "{" TURN ", \"stream\": true, \"stream_options\": %s}",
                 cases[i].options);
        accepts(s, true, body);
        CHECK_EQ(s_request->include_usage, cases[i].usage);
        request_fini(s_request);
    }
    /* refused where it is no stream (s_refusals) */
    accepts(s, true,
            "{" TURN ", \"n\": 20, \"logprobs\": true, \"top_logprobs\": 20, \"stream\": true}");
    request_fini(s_request);
}

static void test_memory(const served *s) {
    fault why;
    static const char *const bodies[3] = {
        "{" TURN ", " TOOLS ", \"stop\": \"x\", \"logit_bias\": {\"1\": 1}}",
        "{" TURN ", " SCHEMA("") ", \"stop\": \"x\"}", "{" TURN ", " TOOLS ", " SCHEMA("") "}"};
    for (size_t n = 3; n < 240; n++) { /* each of all bodies */
        omm_mem_fail_nth(n / 3);
        const bool ok = reads(s, &why, true, bodies[n % 3]);
        CHECK(!ok || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        request_fini(s_request);
        if (!ok) CHECK(why.status == 503 && why.param == NULL);
    }
}

int main(void) {
    served s;
    served_open(&s);
    s_request = (request *)omm_alloc(1, sizeof *s_request);
    CHECK(s_request != NULL);
    test_refused(&s);
    test_many_tools(&s);
    test_members(&s);
    test_wide(&s);
    test_nul(&s);
    test_halves(&s);
    test_best_of(&s);
    test_penalties(&s);
    test_biases(&s);
    test_neutral(&s);
    test_thinking(&s);
    test_formats(&s);
    test_tools(&s);
    test_held(&s);
    test_wraps(&s);
    test_context(&s);
    test_bounds(&s);
    test_bytes(&s);
    test_beside(&s);
    test_memory(&s);
    omm_free(s_request);
    served_close(&s);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

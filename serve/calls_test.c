/* calls_test.c - names and arguments of calls, at each byte of their text. */
#include "calls.h"

#include "omm_test.h"

#include <string.h>

#define OPENS OMM_CHAT_CALL_OPENS
#define CLOSES OMM_CHAT_CALL_CLOSES

/* Name and arguments of each call, as far as they have come, behind its mark: "f {"a": 1}|g |". */
static void tell(char *out, const drawn_calls *c, const char *text, size_t size) {
    out[0] = 0;
    for (size_t i = 0; i < calls_named(c); i++) {
        const drawn_call *call = &c->list[i];
        const size_t end = call->arguments_end ? call->arguments_end : size;
        sprintf(out + strlen(out), "%.*s %.*s|", (int)(call->name_end - call->name),
                text + call->name, call->arguments ? (int)(end - call->arguments) : 0,
                text + call->arguments);
    }
}

/* Behind `begun` bytes, which are a mark. */
static void takes_so(omm_calls_form form, size_t begun, const char *text, const char *wanted,
                     bool cut) {
    drawn_calls c = {0};
    char got[512];
    const size_t size = strlen(text);
    CHECK(!calls_is_cut(&c) && calls_named(&c) == 0);
    calls_begin(&c, form);
    for (size_t i = begun; i < size; i++) {
        CHECK(calls_named(&c) <= c.count && (c.depth > 0) <= calls_is_cut(&c));
        calls_take(&c, (uint8_t)text[i], i);
    }
    tell(got, &c, text, size);
    if (strcmp(got, wanted) == 0 && calls_is_cut(&c) == cut) return;
    fprintf(stderr, "%s: %s, not %s\n", text, got, wanted);
    exit(1);
}

static void takes(const char *text, const char *wanted, bool cut) {
    takes_so(OMM_CALLS_MARKED, strlen(OPENS), text, wanted, cut);
}

static void takes_own(omm_calls_form form, const char *text, const char *wanted, bool cut) {
    takes_so(form, omm_call_mark_bytes(form, true), text, wanted, cut);
}

#define F(arguments) "{\"name\": \"f\", \"arguments\": " arguments "}"

#define M "[TOOL_CALLS]"
#define T "<|tool_call|>"

static void test_lists(void) {
    const omm_calls_form mistral = OMM_CALLS_MISTRAL, phi = OMM_CALLS_PHI4;
    takes_own(mistral, M " [" F("{\"a\": 1}") "]", "f {\"a\": 1}|", false);
    takes_own(mistral, M "[" F("{}") ", " F("{\"a\": [\"]\", {}]}") "]",
              "f {}|f {\"a\": [\"]\", {}]}|", false);
    takes_own(mistral, M "[" F("{}"), "f {}|", true);
    takes_own(mistral, M "[" F("{}") ", ", "f {}|", true);
    takes_own(mistral, M "[" F("{}") ", {\"name\": \"g", "f {}|", true);
    takes_own(mistral, M "[" F("{}") ", {\"name\": \"g\", \"arguments\": {\"x", "f {}|g {\"x|",
              true);
    takes_own(mistral, M " ", "", true);
    takes_own(mistral, M " [{\"name\": \"f\"", "f |", true);
    takes_own(OMM_CALLS_GRANITE, T "[" F("{\"q\": \"" M T "\"}") "]", "f {\"q\": \"" M T "\"}|",
              false);
    takes_own(mistral, M "[" F("{}") "]" M, "f {}|", false); /* no second list */
    takes_own(phi, T "[" F("{}") "]<|/tool_call|>", "f {}|", false);
    takes_own(phi, T "[" F("{}") "]<|/tool", "f {}|", false);
}

static void test_named(void) {
    const omm_calls_form args = OMM_CALLS_MISTRAL_ARGS, ids = OMM_CALLS_MISTRAL_IDS;
    takes_own(args, M "f[ARGS]{\"a\": {\"b\": \"}" M "\"}}", "f {\"a\": {\"b\": \"}" M "\"}}|",
              false);
    takes_own(args, M "f[ARGS]{}" M "a-b_c[ARGS]{\"x\": [{}]}", "f {}|a-b_c {\"x\": [{}]}|", false);
    takes_own(args, M, "", true);
    takes_own(args, M "fo", "", true);
    takes_own(args, M "fo[", "fo |", true);
    takes_own(args, M "fo[ARGS]", "fo |", true);
    takes_own(args, M "fo[ARGS]{\"a\": {}", "fo {\"a\": {}|", true);
    takes_own(args, M "f[ARGS]{}" M, "f {}|", true);
    takes_own(ids, M "f[CALL_ID]abcDEF123[ARGS]{\"name\": \"x\"}" M "g[ARGS]{}",
              "f {\"name\": \"x\"}|g {}|", false);
}

/* A name that no quotes of a type stand for. */
static void test_typed(void) {
    const omm_calls_form bare = OMM_CALLS_BARE;
    takes_so(bare, 0, " {\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"t\": 1}}",
             "f {\"t\": 1}|", false);
    takes_so(bare, 0, " {\"type\": \"function\", \"name\": \"f", "", true);
    takes(OPENS "{\"type\": \"function\", \"name\": \"f\", \"arguments\": {}}" CLOSES
                "\n" OPENS F("{}") CLOSES,
          "f {}|f {}|", false);
    takes_so(bare, 0, " {\"name\": \"tt\", \"parameters\": {\"t\": 1}}", "tt {\"t\": 1}|", false);
}

int main(void) {
    test_lists();
    test_named();
    test_typed();
    takes(OPENS "\n" F("{\"a\": 1}") "\n" CLOSES, "f {\"a\": 1}|", false);
    takes(OPENS "{\"name\":\"a-long_name\",\"arguments\":{}}", "a-long_name {}|", false);
    takes(OPENS F("{\"name\": {\"arguments\": [{}, [\"x\"]]}, \"b\": \"}]\"}") CLOSES,
          "f {\"name\": {\"arguments\": [{}, [\"x\"]]}, \"b\": \"}]\"}|", false);
    takes(OPENS F("{\"a\": \"\\\\\\\"}:{" CLOSES OPENS "\\\\\"}") CLOSES "\n" OPENS F("{}") CLOSES,
          "f {\"a\": \"\\\\\\\"}:{" CLOSES OPENS "\\\\\"}|f {}|", false);
    takes_so(OMM_CALLS_EXAONE, strlen(OPENS), OPENS F("{}") CLOSES "\n" OPENS F("{}"), "f {}|f {}|",
             false);
    takes(OPENS, "", true);
    takes(OPENS "\n", "", true);
    takes(OPENS "{\"name\": \"f", "", true);
    takes(OPENS "{\"name\": \"f\"", "f |", true);
    takes(OPENS "{\"name\": \"f\", \"arguments\": ", "f |", true);
    takes(OPENS "{\"name\": \"f\", \"arguments\": {\"a\": [1, {", "f {\"a\": [1, {|", true);
    takes(OPENS "{\"name\": \"f\", \"arguments\": {\"a\": {}}", "f {\"a\": {}}|", true);
    takes(OPENS F("{\"a\": {}}"), "f {\"a\": {}}|", false);
    takes(OPENS F("{}") CLOSES "\n<tool_cal", "f {}|", false);
    takes(OPENS F("{}") CLOSES OPENS, "f {}|", true);
    takes(OPENS F("{}") CLOSES "<<tool_call>{\"name\": \"g\"", "f {}|g |", true);
    return 0;
}

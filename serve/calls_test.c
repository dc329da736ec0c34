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

static void takes(const char *text, const char *wanted, bool cut) {
    drawn_calls c = {0};
    char got[512];
    const size_t size = strlen(text);
    CHECK(!calls_is_cut(&c) && calls_named(&c) == 0);
    calls_begin(&c);
    for (size_t i = strlen(OPENS); i < size; i++) {
        CHECK(calls_named(&c) <= c.count && (c.depth > 0) <= calls_is_cut(&c));
        calls_take(&c, (uint8_t)text[i], i);
    }
    tell(got, &c, text, size);
    if (strcmp(got, wanted) == 0 && calls_is_cut(&c) == cut) return;
    fprintf(stderr, "%s: %s, not %s\n", text, got, wanted);
    exit(1);
}

#define F(arguments) "{\"name\": \"f\", \"arguments\": " arguments "}"

int main(void) {
    takes(OPENS "\n" F("{\"a\": 1}") "\n" CLOSES, "f {\"a\": 1}|", false);
    takes(OPENS "{\"name\":\"a-long_name\",\"arguments\":{}}", "a-long_name {}|", false);
    takes(OPENS F("{\"name\": {\"arguments\": [{}, [\"x\"]]}, \"b\": \"}]\"}") CLOSES,
          "f {\"name\": {\"arguments\": [{}, [\"x\"]]}, \"b\": \"}]\"}|", false);
    takes(OPENS F("{\"a\": \"\\\\\\\"}:{" CLOSES OPENS "\\\\\"}") CLOSES "\n" OPENS F("{}") CLOSES,
          "f {\"a\": \"\\\\\\\"}:{" CLOSES OPENS "\\\\\"}|f {}|", false);
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

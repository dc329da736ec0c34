/* chat_calls_test.c - calls behind a mark of their own: written, read, begun; and the marks as a text goes on. */
#include "omm/chat.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>

#define M "[TOOL_CALLS]"
#define T "<|tool_call|>"
#define A "{\"name\": \"a\", \"arguments\": {\"x\": \"}]" M T "\"}}"
#define B "{\"name\": \"b\", \"arguments\": {}}"
#define MARKED "<tool_call>\n" B "\n</tool_call>"

static const omm_calls_form s_own[] = {OMM_CALLS_MISTRAL,      OMM_CALLS_MISTRAL_TEKKEN,
                                       OMM_CALLS_MISTRAL_ARGS, OMM_CALLS_MISTRAL_IDS,
                                       OMM_CALLS_GRANITE,      OMM_CALLS_PHI4};
#define OWN_COUNT (sizeof s_own / sizeof *s_own)

/* ---- reading --------------------------------------------------------------------------------- */

/* The names of its calls, one letter each. */
static void reads(omm_calls_form form, const char *text, const char *content, const char *names) {
    omm_chat_reply reply;
    const omm_err err = omm_chat_parse(&reply, omm_bytes_str(text), form, NULL, NULL);
    if (err != OMM_OK) fprintf(stderr, "%s: %s\n", text, omm_err_sentence());
    CHECK_OK(err);
    CHECK(omm_bytes_equal(reply.content, omm_bytes_str(content)));
    CHECK_EQ(reply.call_count, strlen(names));
    for (size_t i = 0; i < reply.call_count; i++) {
        CHECK_EQ(reply.calls[i].name[0], names[i]);
        const char *x = json_string_value(json_object_get(reply.calls[i].arguments, "x"));
        CHECK(!x || strcmp(x, "}]" M T) == 0);
        CHECK_EQ(x != NULL, names[i] == 'a');
    }
    omm_chat_reply_fini(&reply);
}

static void test_lists(void) {
    for (unsigned i = 0; i < 2; i++) {
        reads(s_own[i], M " [" A "]", "", "a");
        reads(s_own[i], M "[" A ", " B "]", "", "ab");
        reads(s_own[i], "Let me see. " M "\n[ " B " ] \n", "Let me see.", "b");
        reads(s_own[i], M "[{\"name\": \"b\", \"arguments\": {}, \"id\": \"abcDEF123\"}]", "", "b");
    }
    reads(OMM_CALLS_GRANITE, T "[" A ", " B "]", "", "ab");
    reads(OMM_CALLS_GRANITE, T "[{\"name\": \"b-2_Z\", \"arguments\": {}}]", "", "b");
    reads(OMM_CALLS_GRANITE, "Hm." T " [" B "]", "Hm.", "b");
    reads(OMM_CALLS_PHI4, T "[" A "]<|/tool_call|>", "", "a");
    reads(OMM_CALLS_PHI4, T "[" B "]", "", "b"); /* cut behind the list */
    reads(OMM_CALLS_PHI4, " " T "[" B "] <|/tool_call|> ", "", "b");
}

static void test_named(void) {
    for (unsigned i = 2; i < 4; i++) {
        reads(s_own[i], M "a[ARGS]{\"x\": \"}]" M T "\"}", "", "a");
        reads(s_own[i], "So. " M "b[ARGS]{}" M "a[ARGS]{\"x\": \"}]" M T "\"}\n", "So.", "ba");
        reads(s_own[i], M "b[CALL_ID]abcDEF123[ARGS]{}", "", "b");
        reads(s_own[i], M "b{}", "", "b"); /* as one of them writes it */
        reads(s_own[i], M "b-2_Z[ARGS]{}", "", "b");
        reads(s_own[i], M " b [ARGS] {} ", "", "b");
    }
}

/* In all of them: what is no call, and calls that were learned marked. */
static void test_any_form(void) {
    for (unsigned i = 0; i < OWN_COUNT; i++) {
        reads(s_own[i], "", "", "");
        reads(s_own[i], " Plain [text]. ", "Plain [text].", "");
        reads(s_own[i], "[TOOL_CALL] <|tool_call <tool", "[TOOL_CALL] <|tool_call <tool", "");
        reads(s_own[i], "Hm. " MARKED "\n" MARKED, "Hm.", "bb");
    }
    /* another family's mark is text */
    reads(OMM_CALLS_GRANITE, M "[" B "]", M "[" B "]", "");
    reads(OMM_CALLS_MISTRAL, T "[" B "]", T "[" B "]", "");
    reads(OMM_CALLS_MARKED, T "[" B "]", T "[" B "]", "");
    reads(OMM_CALLS_EXAONE, "So.\n<tool_call>" A "</tool_call>\n" MARKED, "So.", "ab");
    reads(OMM_CALLS_EXAONE, T "[" B "]", T "[" B "]", "");
}

static void refuses(omm_calls_form form, const char *text, omm_err wanted) {
    omm_chat_reply reply;
    const omm_err err = omm_chat_parse(&reply, omm_bytes_str(text), form, NULL, NULL);
    if (err != wanted) fprintf(stderr, "%s: %d\n", text, (int)err);
    CHECK_EQ(err, wanted);
}

static void test_refused(void) {
    static const char *const lists[] = {
        "",
        " ",
        "[",
        "[]",
        "{}",
        "[1]",
        "" B,
        "[" B,
        "[" B "}",
        "[" B "] and more",
        "[" B "][" B "]",
        "[{\"name\": \"b\"}]",
        "[{\"name\": \"b\", \"arguments\": []}]",
        "[{\"name\": \"b\", \"arguments\": {}, \"id\": 1}]",
        "[{\"name\": \"b\", \"arguments\": {}, \"type\": \"function\"}]",
        "[{\"name\": \"b c\", \"arguments\": {}}]",
        "[{\"name\": \"\", \"arguments\": {}}]",
        "[{\"name\": \"b\", \"parameters\": {}}]",
        "[[" B "]]",
    };
    static const char *const named[] = {
        M,
        M "b",
        M "b[ARGS]",
        M "[ARGS]{}",
        M "b[ARGS]{",
        M "b c{}",
        M "b[ARGS]{} x",
        M "b[ARG]{}",
        M "b[ARGS][CALL_ID]{}",
        M "b[ARGS]x{}",
        M "{}",
        M "b[ARGS]{}" M,
        M "b[ARGS]{}" A,
        M "b[CALL_ID]a b[ARGS]{}",
        M "b[ARGS][]",
    };
    char text[512];
    for (unsigned i = 0; i < OWN_COUNT; i++) {
        const bool is_named = i == 2 || i == 3;
        for (size_t k = 0; !is_named && k < sizeof lists / sizeof *lists; k++) {
            snprintf(text, sizeof text, "%s%s", i < 2 ? M : T, lists[k]);
            refuses(s_own[i], text, OMM_ERR_FORMAT);
        }
        for (size_t k = 0; is_named && k < sizeof named / sizeof *named; k++)
            refuses(s_own[i], named[k], OMM_ERR_FORMAT);
        if (!is_named) { /* one list has all */
            snprintf(text, sizeof text, "%s[" B "]%s[" B "]", i < 2 ? M : T, i < 2 ? M : T);
            refuses(s_own[i], text, OMM_ERR_FORMAT);
        }
        refuses(s_own[i], "</tool_call>", OMM_ERR_FORMAT);
    }
}

static void test_limits(void) {
    omm_buf text;
    omm_chat_reply reply;
    omm_buf_init(&text, 1 << 20);
    for (unsigned form = 0; form < 2; form++) {
        const bool named = form == 1;
        for (unsigned calls = OMM_CHAT_CALLS_MAX; calls <= OMM_CHAT_CALLS_MAX + 1; calls++) {
            omm_buf_clear(&text);
            CHECK_OK(omm_buf_printf(&text, "%s", named ? "" : M "["));
            for (unsigned i = 0; i < calls; i++)
                CHECK_OK(omm_buf_printf(&text, "%s%s", !named && i ? "," : "",
                                        named ? M "b[ARGS]{}" : B));
            CHECK_OK(omm_buf_printf(&text, "%s", named ? "" : "]"));
            const omm_err err =
                omm_chat_parse(&reply, omm_buf_view(&text),
                               named ? OMM_CALLS_MISTRAL_ARGS : OMM_CALLS_MISTRAL, NULL, NULL);
            CHECK_EQ(err, calls > OMM_CHAT_CALLS_MAX ? OMM_ERR_TOO_BIG : OMM_OK);
            if (err == OMM_OK) omm_chat_reply_fini(&reply);
        }
        omm_buf_clear(&text);
        CHECK_OK(omm_buf_printf(&text, "%s{\"x\": \"%*s\"}%s", named ? M "b[ARGS]" : M "[",
                                (int)(8 * OMM_CHAT_CALL_BYTES_MAX), "", named ? "" : "]"));
        CHECK_ERR(omm_chat_parse(&reply, omm_buf_view(&text),
                                 named ? OMM_CALLS_MISTRAL_ARGS : OMM_CALLS_MISTRAL, NULL, NULL),
                  OMM_ERR_TOO_BIG);
    }
    omm_buf_fini(&text);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void writes(omm_calls_form form, bool says, const char *id, const char *wanted) {
    json_t *arguments = json_pack("{s:i, s:[]}", "x", 1, "y");
    omm_buf text;
    omm_buf_init(&text, 512);
    for (size_t i = 0; i < 2; i++) {
        const omm_written_call call = {.name = i ? "b" : "a",
                                       .arguments = arguments,
                                       .id = omm_bytes_str(i ? id : ""),
                                       .index = i,
                                       .count = 2,
                                       .says = says};
        CHECK_OK(omm_chat_write_nth(&text, form, &call));
    }
    if (!omm_bytes_equal(omm_buf_view(&text), omm_bytes_str(wanted)))
        fprintf(stderr, "%.*s\nnot\n%s\n", (int)text.size, text.data, wanted);
    CHECK(omm_bytes_equal(omm_buf_view(&text), omm_bytes_str(wanted)));
    omm_buf_fini(&text);
    json_decref(arguments);
}

#define X "{\"x\": 1, \"y\": []}"
#define OBJECT(name) "{\"name\": \"" name "\", \"arguments\": " X

static void test_written(void) {
    writes(
        OMM_CALLS_MARKED, false, "i",
        "<tool_call>\n" OBJECT("a") "}\n</tool_call>\n<tool_call>\n" OBJECT("b") "}\n</tool_call>");
    writes(OMM_CALLS_MARKED, true, "",
           "\n<tool_call>\n" OBJECT("a") "}\n</tool_call>\n<tool_call>\n" OBJECT(
               "b") "}\n</tool_call>");
    writes(OMM_CALLS_BARE, false, "i",
           "{\"name\": \"a\", \"parameters\": " X "}; {\"name\": \"b\", \"parameters\": " X "}");
    writes(OMM_CALLS_MISTRAL, false, "abcDEF123",
           M " [" OBJECT("a") "}, " OBJECT("b") ", \"id\": \"abcDEF123\"}]");
    writes(OMM_CALLS_MISTRAL_TEKKEN, true, "call_1",
           M "[" OBJECT("a") "}, " OBJECT("b") ", \"id\": \"0000call1\"}]");
    writes(OMM_CALLS_MISTRAL_ARGS, true, "abcDEF123", M "a[ARGS]" X M "b[ARGS]" X);
    writes(OMM_CALLS_MISTRAL_IDS, false, "chatcmpl-0_12",
           M "a[ARGS]" X M "b[CALL_ID]atcmpl012[ARGS]" X);
    writes(OMM_CALLS_MISTRAL_IDS, false, "\"[ARGS]", M "a[ARGS]" X M "b[CALL_ID]00000ARGS[ARGS]" X);
    writes(OMM_CALLS_GRANITE, true, "i", T "[" OBJECT("a") "}, " OBJECT("b") "}]");
    writes(OMM_CALLS_PHI4, false, "i", T "[" OBJECT("a") "}, " OBJECT("b") "}]<|/tool_call|>");
    writes(OMM_CALLS_EXAONE, true, "i",
           "\n<tool_call>" OBJECT("a") "}</tool_call>\n<tool_call>" OBJECT("b") "}</tool_call>");
}

/* Arguments that are no JSON are written as they are, by a call that is whole around them. */
static void test_written_as_spelled(void) {
    static const char *const wanted[OMM_CALLS_FORM_COUNT] = {
        [OMM_CALLS_MARKED] =
            "<tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": \"s}\n</tool_call>",
        [OMM_CALLS_BARE] = "{\"name\": \"a\", \"parameters\": {\"x\": \"s}",
        [OMM_CALLS_MISTRAL] =
            M " [{\"name\": \"a\", \"arguments\": {\"x\": \"s, \"id\": \"abcDEF123\"}]",
        [OMM_CALLS_MISTRAL_TEKKEN] =
            M "[{\"name\": \"a\", \"arguments\": {\"x\": \"s, \"id\": \"abcDEF123\"}]",
        [OMM_CALLS_MISTRAL_ARGS] = M "a[ARGS]{\"x\": \"s",
        [OMM_CALLS_MISTRAL_IDS] = M "a[CALL_ID]abcDEF123[ARGS]{\"x\": \"s",
        [OMM_CALLS_GRANITE] = T "[{\"name\": \"a\", \"arguments\": {\"x\": \"s}]",
        [OMM_CALLS_PHI4] = T "[{\"name\": \"a\", \"arguments\": {\"x\": \"s}]<|/tool_call|>",
        [OMM_CALLS_EXAONE] = "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": \"s}</tool_call>",
    };
    omm_buf text;
    omm_buf_init(&text, 512);
    for (unsigned form = 0; form < OMM_CALLS_FORM_COUNT; form++) {
        const omm_written_call call = {.name = "a",
                                       .spelled = omm_bytes_str("{\"x\": \"s"),
                                       .id = omm_bytes_str("abcDEF123"),
                                       .count = 1};
        omm_buf_clear(&text);
        CHECK_OK(omm_chat_write_nth(&text, (omm_calls_form)form, &call));
        CHECK(omm_bytes_equal(omm_buf_view(&text), omm_bytes_str(wanted[form])));
    }
    omm_buf_fini(&text);
}

/* Nothing of a call that cannot be written. */
static void test_not_written(void) {
    json_t *arguments = json_pack("{s:s}", "x", "0123456789");
    omm_buf text;
    for (unsigned form = 0; form < OMM_CALLS_FORM_COUNT; form++) {
        omm_buf_init(&text, 20);
        CHECK_ERR(omm_chat_write_call(&text, (omm_calls_form)form, "a", arguments),
                  OMM_ERR_TOO_BIG);
        CHECK_EQ(text.size, 0);
        CHECK_ERR(omm_chat_write_call(&text, (omm_calls_form)form, "\xff", arguments),
                  OMM_ERR_FORMAT);
        CHECK_EQ(text.size, 0);
        omm_buf_fini(&text);
    }
    json_decref(arguments);
}

static void begins(omm_calls_form form, const char *any, const char *one) {
    omm_buf text;
    omm_buf_init(&text, 100);
    CHECK_OK(omm_chat_begin_call(&text, form, NULL));
    CHECK(omm_bytes_equal(omm_buf_view(&text), omm_bytes_str(any)));
    omm_buf_clear(&text);
    CHECK_OK(omm_chat_begin_call(&text, form, "f"));
    CHECK(omm_bytes_equal(omm_buf_view(&text), omm_bytes_str(one)));
    omm_buf_fini(&text);
}

static void test_begun(void) {
    begins(OMM_CALLS_MISTRAL, M " [{\"name\":", M " [{\"name\": \"f\", \"arguments\":");
    begins(OMM_CALLS_MISTRAL_TEKKEN, M "[{\"name\":", M "[{\"name\": \"f\", \"arguments\":");
    begins(OMM_CALLS_MISTRAL_ARGS, M, M "f[ARGS]");
    begins(OMM_CALLS_MISTRAL_IDS, M, M "f[ARGS]");
    begins(OMM_CALLS_GRANITE, T "[{\"name\":", T "[{\"name\": \"f\", \"arguments\":");
    begins(OMM_CALLS_PHI4, T "[{\"name\":", T "[{\"name\": \"f\", \"arguments\":");
    begins(OMM_CALLS_EXAONE,
           "<tool_call>{\"name\":", "<tool_call>{\"name\": \"f\", \"arguments\":");
}

/* ---- marks ------------------------------------------------------------------------------------- */

/* Bytes before the first mark, whole (sure) or begun at the end; as they are found at once, from the end and byte by byte. */
static void marks(omm_calls_form form, const char *text, size_t before, bool sure, bool own) {
    bool found = false, whole = false;
    omm_call_mark mark = {0, 0};
    const omm_bytes bytes = omm_bytes_str(text);
    CHECK_EQ(omm_chat_before_calls(&found, bytes, form), before);
    CHECK_EQ(found, sure);
    if (!sure) CHECK_EQ(omm_chat_mark_tail(bytes, form), bytes.size - before);
    for (size_t i = 0; i < bytes.size && !whole; i++)
        whole = omm_call_mark_follow(&mark, form, bytes.data[i]);
    CHECK_EQ(whole, sure);
    if (!sure) return;
    CHECK_EQ(mark.own, own);
    CHECK_EQ(mark.at, omm_call_mark_bytes(form, own));
}

static void test_marks(void) {
    marks(OMM_CALLS_MARKED, "a <tool_call>", 2, true, false);
    marks(OMM_CALLS_MARKED, "a " T, 2 + strlen(T), false, false);
    marks(OMM_CALLS_MISTRAL, "a " M "[", 2, true, true);
    marks(OMM_CALLS_MISTRAL, "[[TOOL[" M, 7, true, true);
    marks(OMM_CALLS_MISTRAL, "[TOOL<tool_call>", 5, true, false);
    marks(OMM_CALLS_MISTRAL, "<tool[TOOL_CAL", 5, false, true);
    marks(OMM_CALLS_MISTRAL, "[TOOL_CALLS", 0, false, true);
    marks(OMM_CALLS_GRANITE, "<", 0, false, false);
    marks(OMM_CALLS_GRANITE, "<<|tool_call|", 1, false, true);
    marks(OMM_CALLS_GRANITE, "<|tool_call<tool_call>", 11, true, false);
    marks(OMM_CALLS_GRANITE, "<tool_cal<|tool_call|>", 9, true, true);
    marks(OMM_CALLS_PHI4, "x<|/tool_call|>", 15, false, false);
    marks(OMM_CALLS_EXAONE, "a <tool_call>{", 2, true, false);
    CHECK_EQ(omm_call_mark_bytes(OMM_CALLS_MARKED, true), 0);
    CHECK_EQ(omm_call_mark_bytes(OMM_CALLS_BARE, true), 0);
    for (unsigned form = 0; form < OMM_CALLS_FORM_COUNT; form++)
        for (unsigned other = 0; other < form; other++)
            CHECK(strcmp(omm_calls_form_name((omm_calls_form)form),
                         omm_calls_form_name((omm_calls_form)other)) != 0);
}

int main(void) {
    test_lists();
    test_named();
    test_any_form();
    test_refused();
    test_limits();
    test_written();
    test_written_as_spelled();
    test_not_written();
    test_begun();
    test_marks();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

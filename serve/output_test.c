/* output_test.c - what of a text is sent when: up to what may end it, and calls not at all. */
#include "output.h"

#include "omm/mem.h"
#include "omm_test.h"
#include "test_served.h"

#include <string.h>

/* The pieces that are sent while the ids of `text` come, with | after each; an end id follows. */
static void pieces(char *out, output *o, const served *s, const char *text, bool ends) {
    omm_tokens ids;
    size_t at = 0;
    omm_tokens_init(&ids, 1 << 12);
    CHECK_OK(omm_tokenizer_encode(&ids, s->tokenizer, omm_bytes_str(text), OMM_TOKENIZE_CONTINUE));
    if (ends) CHECK_OK(omm_tokens_push(&ids, omm_tokenizer_eos(s->tokenizer)));
    for (size_t i = 0; i < ids.count && o->finish == FINISH_NONE; i++) {
        CHECK_OK(output_push(o, ids.ids[i]));
        const omm_bytes fresh = output_next(o);
        if (fresh.size > 0)
            at += (size_t)sprintf(out + at, "%.*s|", (int)fresh.size, (const char *)fresh.data);
    }
    out[at] = 0;
    omm_tokens_fini(&ids);
}

typedef struct example {
    const char *text;
    bool has_tools;
    const char *stop, *begun;
    uint32_t tokens_max;
    finish finish;
    const char *sent; /* all of it, without the | */
    size_t calls;
    const char *content;
} example;

#define CALL                                                                                       \
    "<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": "                     \
    "\"1+1\"}}\n</tool_call>"
static const example s_examples[] = {
    {"Hello there.", false, NULL, "", 100, FINISH_STOP, "Hello there.", 0, "Hello there."},
    {"Hello there.", false, "the", "", 100, FINISH_STOP, "Hello ", 0, "Hello "},
    {"Hello there.", false, "xyz", "", 100, FINISH_STOP, "Hello there.", 0, "Hello there."},
    {"Hello there.", false, ". A", "", 100, FINISH_STOP, "Hello there.", 0, "Hello there."},
    {"Hello there.", false, NULL, "", 2, FINISH_LENGTH, NULL, 0, NULL},
    {"Gr\xc3\xbc\xc3\x9f"
     "e",
     true, NULL, "", 100, FINISH_STOP,
     "Gr\xc3\xbc\xc3\x9f"
     "e",
     0,
     "Gr\xc3\xbc\xc3\x9f"
     "e"},
    {CALL, true, NULL, "", 100, FINISH_CALLS, "", 1, ""},
    {CALL, false, NULL, "", 100, FINISH_STOP, CALL, 0, CALL},
    {"I add: " CALL "\n" CALL, true, NULL, "", 200, FINISH_CALLS, "I add:", 2, "I add:"},
    {"1 <tool_box> 2 <", true, NULL, "", 100, FINISH_STOP, "1 <tool_box> 2 <", 0,
     "1 <tool_box> 2 <"},
    {"<tool_call>\n{\"name\": 1}", true, NULL, "", 100, FINISH_STOP, "<tool_call>\n{\"name\": 1}",
     0, "<tool_call>\n{\"name\": 1}"},
    {" \"calculator\", \"arguments\": {}}\n</tool_call>", true, NULL,
     "<tool_call>\n{\"name\":", 100, FINISH_CALLS, "", 1, ""},
};

static void test_examples(const served *s) {
    request *r = (request *)omm_alloc(1, sizeof *r);
    CHECK(r != NULL);
    for (size_t i = 0; i < sizeof s_examples / sizeof s_examples[0]; i++) {
        const example *x = &s_examples[i];
        char sent[2048], joined[2048];
        size_t at = 0;
        output o;
        r->is_chat = true;
        r->has_tools = x->has_tools;
        r->stop_count = x->stop ? 1 : 0;
        if (x->stop) r->stops[0] = omm_bytes_str(x->stop);
        omm_buf_init(&r->begun, 1 << 10);
        CHECK_OK(omm_buf_append(&r->begun, x->begun, strlen(x->begun)));
        CHECK_OK(output_init(&o, r, s->tokenizer, x->tokens_max));
        pieces(sent, &o, s, x->text, true);
        for (const char *p = sent; *p; p++)
            if (*p != '|') joined[at++] = *p;
        joined[at] = 0;
        const omm_bytes content = output_content(&o);
        if (x->sent && strcmp(joined, x->sent) != 0) {
            fprintf(stderr, "example %zu: sent %s\nnot %s\n", i, joined, x->sent);
            exit(1);
        }
        CHECK_EQ(o.finish, x->finish);
        CHECK_EQ(o.reply.call_count, x->calls);
        if (x->content) CHECK(omm_bytes_equal(content, omm_bytes_str(x->content)));
        CHECK(o.tokens <= x->tokens_max);
        output_fini(&o);
        omm_buf_fini(&r->begun);
    }
    omm_free(r);
}

/* Every token is sent as it comes, but what may become a stop or a call, and parts of characters. */
static void test_pieces(const served *s) {
    request *r = (request *)omm_alloc(1, sizeof *r);
    char sent[2048];
    output o;
    CHECK(r != NULL);
    r->is_chat = r->has_tools = true;
    CHECK_OK(output_init(&o, r, s->tokenizer, 100));
    pieces(sent, &o, s, "The cat sat", false);
    size_t bars = 0;
    for (const char *p = sent; *p; p++) bars += *p == '|';
    CHECK(bars >= 3);
    pieces(sent, &o, s, " <tool_cat", false); /* held until it cannot be a call any more */
    CHECK(strstr(sent, "<tool_c"));
    for (const char *p = strchr(sent, '<'); p && p < strstr(sent, "<tool_c") + 7; p++)
        CHECK(*p != '|');
    output_fini(&o);
    omm_free(r);
}

int main(void) {
    served s;
    served_open(&s);
    test_examples(&s);
    test_pieces(&s);
    served_close(&s);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

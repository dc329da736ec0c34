/* thinking_test.c - which models think, what their prompts have of thoughts, and where an answer begins while it is written.
 * The templates were written for this test; each has the features of its family. */
#include "omm/thinking.h"

#include "chat_internal.h"
#include "omm/mem.h"
#include "test_prompt.h"

#include "omm/chat.h"

#define TURNS                                                                                      \
    "{% for turn in messages %}{{ '<|im_start|>' ~ turn.role ~ '\\n' ~ turn.content ~ "            \
    "'<|im_end|>\\n' }}{% endfor %}"
#define HISTORY                                                                                    \
    "{% if '</think>' in text %}{{ '<think>\\n' ~ before ~ '\\n</think>\\n\\n' ~ text }}{% endif " \
    "%}"
#define BEGIN "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
#define NO_THOUGHT "{% if not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"

/* ---- Templates ------------------------------------------------------------------------------ */

typedef struct family {
    const char *like;
    const char *jinja;
    omm_thinking thinking;
    const char *answer, *at_once; /* how prompts end */
} family;

static const family s_families[] = {
    {"no thoughts", TURNS BEGIN "{% endif %}", OMM_THINKING_NONE, "assistant\n", "assistant\n"},
    {"a switch: Qwen3", TURNS HISTORY BEGIN NO_THOUGHT "{% endif %}", OMM_THINKING_OWN,
     "assistant\n", "assistant\n<think>\n\n</think>\n\n"},
    {"a switch, one line end behind the thought: SmolLM3",
     TURNS HISTORY "{% if add_generation_prompt %}{{ \"<|im_start|>assistant\\n\" if thinks else "
                   "\"<|im_start|>assistant\\n<think>\\n\\n</think>\\n\" }}{% endif %}",
     OMM_THINKING_OWN, "assistant\n", "assistant\n<think>\n\n</think>\n"},
    {"opened: QwQ, Qwen3 Thinking",
     TURNS HISTORY "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}",
     OMM_THINKING_OPENED, "assistant\n<think>\n", "assistant\n<think>\n\n</think>\n\n"},
    {"opened, the line end a character", TURNS HISTORY BEGIN "{{ '<think>\n' }}{% endif %}",
     OMM_THINKING_OPENED, "assistant\n<think>\n", "assistant\n<think>\n\n</think>\n\n"},
    {"opened, with a switch",
     TURNS HISTORY BEGIN
     "{% if off %}{{ '<think>\\n\\n</think>\\n\\n' }}{% else %}{{ \"<think>\\n\" }}{% endif %}",
     OMM_THINKING_OPENED, "assistant\n<think>\n", "assistant\n<think>\n\n</think>\n\n"},
    {"opened if it is asked for, else nothing: Bielik 3",
     TURNS HISTORY BEGIN "{%- if enable_thinking %}{{- '<think>\\n' }}{%- endif %}{% endif %}",
     OMM_THINKING_OPENED, "assistant\n<think>\n", "assistant\n"},
    {"the same, in other words",
     TURNS HISTORY BEGIN
     "{% if enable_thinking is true %}{{- '<think>\\n' }}{%- endif %}{% endif %}",
     OMM_THINKING_OPENED, "assistant\n<think>\n", "assistant\n"},
    {"the same, which may be undefined",
     TURNS HISTORY BEGIN "{%- if enable_thinking is defined and enable_thinking -%}"
                         "{{- '<think>\\n' }}{%- endif %}{% endif %}",
     OMM_THINKING_OPENED, "assistant\n<think>\n", "assistant\n"},
    {"the same, and an empty thought else: MiniCPM 5",
     TURNS HISTORY BEGIN "{%- if enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}"
                         "{%- elif enable_thinking is true %}{{ '<think>\\n' }}{% endif %}",
     OMM_THINKING_OPENED, "assistant\n<think>\n", "assistant\n<think>\n\n</think>\n\n"},
    {"opened if it is asked for, else an empty thought",
     TURNS HISTORY BEGIN "{% if enable_thinking %}{{ '<think>\\n' }}{% else %}"
                         "{{ '<think></think>' }}{% endif %}{% endif %}",
     OMM_THINKING_OPENED, "assistant\n<think>\n", "assistant\n<think>\n\n</think>\n\n"},
    {"opened on a condition that does not say",
     TURNS HISTORY BEGIN "{% if not enable_thinking %}{{ '<think>\\n' }}{% endif %}{% endif %}",
     OMM_THINKING_OPENED, "assistant\n<think>\n", "assistant\n<think>\n\n</think>\n\n"},
    {"an empty thought in one line",
     TURNS BEGIN "{% if off %}{{ '<think></think>' }}{% endif %}{% endif %}", OMM_THINKING_OWN,
     "assistant\n", "assistant\n<think>\n\n</think>\n\n"},
    {"left out of the history alone",
     "{% set text = turn.content.split('</think>')[-1] %}" TURNS BEGIN, OMM_THINKING_OWN,
     "assistant\n", "assistant\n<think>\n\n</think>\n\n"},
    {"words of a family that is not known", "{{ '<|start_of_role|>' ~ '<think></think>' }}",
     OMM_THINKING_NONE, "assistant\n", "assistant\n"},
};

static void test_families(void) {
    for (size_t i = 0; i < sizeof s_families / sizeof *s_families; i++) {
        const family *f = &s_families[i];
        char want[256];
        const omm_message in = turn(OMM_ROLE_USER, "in");
        omm_tokenizer *t = open_family(f->jinja);
        if (omm_thinking_of(t) != f->thinking) fprintf(stderr, "%s\n", f->like);
        CHECK_EQ(omm_thinking_of(t), f->thinking);
        const bool opened = f->thinking == OMM_THINKING_OPENED;
        CHECK(omm_bytes_equal(omm_thinking_opening(t), omm_bytes_str(opened ? "<think>\n" : "")));
        snprintf(want, sizeof want, "<|im_start|>user\nin<|im_end|>\n<|im_start|>%s", f->answer);
        check_prompt(t, &in, 1, OMM_CHAT_ANSWER, want);
        snprintf(want, sizeof want, "<|im_start|>user\nin<|im_end|>\n<|im_start|>%s", f->at_once);
        check_prompt(t, &in, 1, OMM_CHAT_AT_ONCE, want);
        check_prompt(t, &in, 1, OMM_CHAT_WHOLE, "<|im_start|>user\nin<|im_end|>\n");
        omm_tokenizer_close(t);
    }
}

/* ---- Thoughts of earlier answers -------------------------------------------------------------- */

#define U(text) "<|im_start|>user\n" text "<|im_end|>\n"
#define A(text) "<|im_start|>assistant\n" text "<|im_end|>\n"
#define T(text) "<|im_start|>tool\n" text "<|im_end|>\n"
#define THOUGHT "<think>\ner\n</think>\n\n"

static void test_history(void) {
    const omm_message turns[] = {
        turn(OMM_ROLE_USER, "in"),          turn(OMM_ROLE_ASSISTANT, THOUGHT "one"),
        turn(OMM_ROLE_USER, "more"),        turn(OMM_ROLE_ASSISTANT, THOUGHT "call"),
        turn(OMM_ROLE_TOOL, "</think>two"), turn(OMM_ROLE_ASSISTANT, THOUGHT "three")};
    omm_tokenizer *t = open_family(s_families[1].jinja);
    /* Whole, as for training: as they are. */
    check_prompt(t, turns, 4, OMM_CHAT_WHOLE, U("in") A(THOUGHT "one") U("more") A(THOUGHT "call"));
    /* In front of an answer: what came before the last question has none. */
    check_prompt(t, turns, 3, OMM_CHAT_ANSWER,
                 U("in") A("one") U("more") "<|im_start|>assistant\n");
    omm_tokenizer_close(t);

    /* A tool's turn asks nothing: thoughts around calls stay.  Its own text is never a mark. */
    t = open_family(s_families[1].jinja);
    omm_prompt p, q;
    omm_prompt_init(&p, TOKENS_MAX);
    omm_prompt_init(&q, TOKENS_MAX);
    CHECK_OK(omm_chat_render(&p, t, turns, 6, OMM_CHAT_ANSWER));
    CHECK_OK(omm_chat_render(&q, t, turns + 2, 4, OMM_CHAT_WHOLE));
    check_prompt(t, turns, 2, OMM_CHAT_WHOLE, U("in") A(THOUGHT "one"));
    omm_prompt head;
    omm_prompt_init(&head, TOKENS_MAX);
    const omm_message bare[] = {turns[0], turn(OMM_ROLE_ASSISTANT, "one")};
    CHECK_OK(omm_chat_render(&head, t, bare, 2, OMM_CHAT_WHOLE));
    CHECK(p.tokens.count > head.tokens.count + q.tokens.count);
    CHECK_EQ(memcmp(p.tokens.ids, head.tokens.ids, head.tokens.count * sizeof *head.tokens.ids), 0);
    CHECK_EQ(memcmp(p.tokens.ids + head.tokens.count, q.tokens.ids,
                    q.tokens.count * sizeof *q.tokens.ids),
             0);
    uint32_t closes = 0;
    const uint32_t mark = omm_tokenizer_special(t, "</think>");
    for (size_t i = 0; i < p.tokens.count; i++) closes += p.tokens.ids[i] == mark;
    CHECK_EQ(closes, 2);
    omm_prompt_fini(&head);
    omm_prompt_fini(&q);
    omm_prompt_fini(&p);
    omm_tokenizer_close(t);

    /* A model that does not think has its answers as they are. */
    t = open_family(s_families[0].jinja);
    check_prompt(t, turns, 3, OMM_CHAT_ANSWER,
                 U("in") A(THOUGHT "one") U("more") "<|im_start|>assistant\n");
    omm_tokenizer_close(t);
    CHECK(omm_bytes_equal(omm_thought_leave_out(omm_bytes_str("a</think>b</think>\n\n c")),
                          omm_bytes_str(" c")));
    CHECK(omm_bytes_equal(omm_thought_leave_out(omm_bytes_str("a</think>")), omm_bytes_str("")));
    CHECK(omm_bytes_equal(omm_thought_leave_out(omm_bytes_str("")), omm_bytes_str("")));
    CHECK(omm_bytes_equal(omm_thought_leave_out(omm_bytes_str(" <think>a")), omm_bytes_str("")));
    CHECK(omm_bytes_equal(omm_thought_leave_out(omm_bytes_str("a<think>")),
                          omm_bytes_str("a<think>")));
    CHECK_EQ(omm_thought_leave_out(omm_bytes_of("a</think>\n\n\n", 10)).size, 0);
}

/* For the templates that clean what is left, and the tags Hunyuan puts around its answers. */
static void test_cut(void) {
    static const char *const cut[][2] = {
        {"", ""},
        {" yes\n", " yes\n"},
        {"<think>a</think>\n yes \n", "yes"},
        {"a</think>b</think>\x1c yes", "yes"},
        {"<think>for ever ", "<think>for ever "},
        {"a</think>", ""},
    };
    static const char *const answers[][2] = {
        {"", ""},
        {" yes ", " yes "},
        {"<answer>\nyes\n</answer>", "yes"},
        {"hm <answer>a</answer>\n<answer> yes </answer>\n", "yes"},
        {"<answer>never closed, ever", "never closed, ever"},
        {"<answer>yes</answer> no", "yes</answer> no"},
        {"yes</answer>", "yes</answer>"},
        {"<answer></answer>", ""},
        {"<answer>", ""},
    };
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++)
        CHECK(omm_bytes_equal(thinking_cut_clean(omm_bytes_str(cut[i][0])),
                              omm_bytes_str(cut[i][1])));
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        CHECK(omm_bytes_equal(thinking_answer(omm_bytes_str(answers[i][0])),
                              omm_bytes_str(answers[i][1])));
    CHECK(thinking_is_open(omm_bytes_str(" \n<think>a")));
    CHECK(!thinking_is_open(omm_bytes_str("a<think>")));
    CHECK(!thinking_is_open(omm_bytes_str("<think")));
    CHECK(!thinking_is_open(omm_bytes_str("")));
}

/* As history has it, or not at all. */
static void test_write(void) {
    const omm_bytes want = omm_bytes_str(THOUGHT);
    for (size_t most = 0; most <= want.size; most++) {
        omm_buf out;
        omm_buf_init(&out, most);
        CHECK_ERR(omm_thought_write(&out, omm_bytes_str(" er\n")),
                  most < want.size ? OMM_ERR_TOO_BIG : OMM_OK);
        if (most == want.size) CHECK(omm_bytes_equal(omm_buf_view(&out), want));
        omm_buf_fini(&out);
    }
}

/* ---- A text while it is written ---------------------------------------------------------------- */

typedef struct written {
    const char *text, *thought, *answer; /* answer NULL: none */
} written;

static const written s_written[] = {
    {"", "", NULL},
    {"yes", "", "yes"},
    {" \n yes", "", " \n yes"},
    {"<think>\nhm\n</think>\n\nyes\n", "hm", "yes\n"},
    {"\n<think>hm</think>yes", "hm", "yes"},
    {"<think>\n\n</think>\n\nyes", "", "yes"},
    {"<think></think>", "", ""},
    {"<think>\n a b \n\n c \n</think> yes", "a b \n\n c", "yes"},
    {"<think>a <b> </thin </think>yes", "a <b> </thin", "yes"},
    {"<think>a</think>b</think>c", "a", "b</think>c"},
    {"<think>a</think>\n<think>b", "a", "<think>b"},
    {"<think>for ever </thi", "for ever </thi", NULL},
    {"<think> \n", "", NULL},
    {"<thinking>yes", "", "<thinking>yes"},
    {"<thin", "", "<thin"},
    {"a<think>b</think>", "", "a<think>b</think>"},
};

/* Of who writes its answers between marks; the first ones with a thought or without one, the others without. */
static const written s_wrapped[] = {
    {"", "", NULL},
    {" \n", "", " \n"},
    {" yes \n", "", " yes \n"},
    {"<answer>\nyes\n</answer>", "", "yes"},
    {"\n <answer> yes </answer>\n ", "", "yes"},
    {"<answer></answer>", "", ""},
    {"<answer>\n \n</answer>\n", "", ""},
    {"<answer>\n", "", ""},
    {"<answer>yes </ans", "", "yes </ans"},
    {"<answer>yes \n", "", "yes \n"},
    {"<answer>a</answer> b", "", "a</answer> b"},
    {"<answer>a </answer> </answer>", "", "a </answer>"},
    {"<answer>a</answer></answ\n", "", "a</answer></answ\n"},
    {"<answer> a <b> </answer", "", "a <b> </answer"},
    {"<answer><answer>a</answer>", "", "<answer>a"},
    {"<ans", "", "<ans"},
    {"<answers>a</answer>", "", "<answers>a</answer>"},
    {"a<answer>b</answer>", "", "a<answer>b</answer>"},
    {"a</answer>", "", "a</answer>"},
};
static const written s_wrapped_thoughts[] = {
    {"<think>\nhm\n</think>\n<answer>\nyes, <b>\n</answer>", "hm", "yes, <b>"},
    {"<think>hm</think><answer>yes</answer>", "hm", "yes"},
    {"<think>hm <answer>no</answer></think>\nyes</answer>", "hm <answer>no</answer>",
     "yes</answer>"},
    {"<think>hm</think>\n\n<answ", "hm", "<answ"},
    {"<think>hm</think>\n<answer>", "hm", ""},
    {"<think>hm</think>", "hm", ""},
    {"<think>hm <answer>yes</answer>", "hm <answer>yes</answer>", NULL},
    {"<answer><think>a</think></answer>", "", "<think>a</think>"},
};

static void check_written(const written *w, bool is_thinking, bool wraps, size_t step) {
    const size_t size = strlen(w->text);
    omm_thought t = omm_thought_init(is_thinking, wraps), before;
    for (size_t n = 0;; n += step) {
        before = t;
        const bool is_over = n >= size;
        const size_t so_far = is_over ? size : n;
        char *part = omm_alloc(so_far + 1, 1); /* nothing of what comes is behind it */
        CHECK(part != NULL);
        memcpy(part, w->text, so_far);
        omm_thought_look(&t, omm_bytes_of(part, so_far), is_over);
        omm_free(part);
        /* what was said of the text stays true */
        if (before.from < before.to) CHECK_EQ(t.from, before.from);
        CHECK(t.to >= before.to && t.from <= t.to && t.to <= size);
        if (before.answer != SIZE_MAX) CHECK_EQ(t.answer, before.answer);
        if (before.answer != SIZE_MAX) CHECK(t.end >= before.end);
        if (t.answer != SIZE_MAX) CHECK(t.answer <= t.end && t.end <= so_far);
        if (is_over) break;
    }
    const omm_bytes thought = omm_bytes_of(w->text + t.from, t.to - t.from);
    CHECK(omm_bytes_equal(thought, omm_bytes_str(w->thought)));
    CHECK_EQ(t.answer == SIZE_MAX, w->answer == NULL);
    if (!w->answer) return;
    CHECK(omm_bytes_equal(omm_bytes_of(w->text + t.answer, t.end - t.answer),
                          omm_bytes_str(w->answer)));
}

static void test_written(void) {
    for (size_t i = 0; i < sizeof s_written / sizeof *s_written; i++)
        for (size_t step = 1; step <= 20; step++) {
            check_written(&s_written[i], true, false, step);
            check_written(&s_written[i], true, true, step); /* none has the marks */
        }
    for (size_t i = 0; i < sizeof s_wrapped / sizeof *s_wrapped; i++)
        for (size_t step = 1; step <= 30; step++) {
            check_written(&s_wrapped[i], true, true, step);
            check_written(&s_wrapped[i], false, true, step);
        }
    for (size_t i = 0; i < sizeof s_wrapped_thoughts / sizeof *s_wrapped_thoughts; i++)
        for (size_t step = 1; step <= 30; step++)
            check_written(&s_wrapped_thoughts[i], true, true, step);
    static const char all[] = "<think>a</think><answer>b</answer>";
    omm_thought t = omm_thought_init(false, false);
    omm_thought_look(&t, omm_bytes_str(all), true);
    CHECK_EQ(t.answer, 0);
    CHECK_EQ(t.end, strlen(all));
    CHECK_EQ(t.from, t.to);
}

int main(void) {
    test_families();
    test_history();
    test_cut();
    test_write();
    test_written();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

/* chat_hunyuan_test.c - turns as templates in the ways of Hunyuan's dense models have them (0.5B to 4B; 7B).  They were written
 * for this test; its prompts were compared with what jinja2 makes of them. */
#include "chat_internal.h"
#include "omm/mem.h"
#include "test_prompt.h"

#include "omm/chat_turns.h"
#include "omm/json.h"

/* ---- templates ---------------------------------------------------------------------------------- */

#define BEGIN                                                                                      \
    "{%- if not add_generation_prompt is defined %}\n    {%- set add_generation_prompt = false "   \
    "%}\n{%- endif %}\n{%- set ns = namespace(is_first=false, is_tool=false, "                     \
    "is_output_first=true, system_prompt='', is_first_sp=true, is_first_user=true, "               \
    "is_last_user=false) %}\n"
#define SYSTEM(lines)                                                                              \
    "{%- for message in messages %}{%- if message['role'] == 'system' %}"                          \
    "{%- if ns.is_first_sp %}"                                                                     \
    "{%- set ns.system_prompt = ns.system_prompt + message['content'] %}"                          \
    "{%- set ns.is_first_sp = false %}\n        {%- else %}\n            "                         \
    "{% set ns.system_prompt = ns.system_prompt + '" lines "' + message['content'] %}\n"           \
    "        {%- endif %}{%- endif %}{%- endfor %}{{- bos_token }}{{- ns.system_prompt }}\n"
#define TOOLS "{%- if tools %}{{- '# Tools\n' }}{{- tools | tojson }}{%- endif %}\n"
#define PLACED(mark) "{%- if ns.system_prompt != '' or tools %}{{- '" mark "' }}{%- endif %}\n"
#define ASKS(turn)                                                                                 \
    "{%- for message in messages %}{%- if message['role'] == 'user' %}"                            \
    "{%- set ns.is_tool = false %}{%- set ns.is_first = false %}"                                  \
    "{%- set ns.is_last_user = true %}" turn "{%- endif %}\n"
#define SMALL_TURN(user, assistant) "{{- '" user "' + message['content'] + '" assistant "' }}"
#define LARGE_TURN                                                                                 \
    "{%- if ns.is_first_user %}{{- message['content'] + '<|extra_0|>' }}"                          \
    "{%- set ns.is_first_user = false %}{%- else %}"                                               \
    "{{- bos_token + message['content'] + '<|extra_0|>' }}{%- endif %}"
#define CALLS                                                                                      \
    "{%- if message['role'] == 'assistant' and message['tool_calls'] is defined and "              \
    "message['tool_calls'] is not none %}{{- '<tool_calls>' }}{%- endif %}\n"
#define ANSWERS(mark, taken)                                                                       \
    "{%- if message['role'] == 'assistant' and (message['tool_calls'] is not defined or "          \
    "message['tool_calls'] is none) %}{%- set content = message['content'] %}"                     \
    "{%- if '<answer>' in content and not loop.last %}{%- set content = " taken " %}{%- endif %}"  \
    "{%- set ns.is_last_user = false %}{%- if ns.is_tool %}"                                       \
    "{{- '</tool_responses>' + '" mark "' + content + eos_token }}"                                \
    "{%- set ns.is_tool = false %}{%- else %}{{- content + eos_token }}{%- endif %}{%- endif %}\n"
#define TAKEN "content.split('<answer>')[-1].strip('</answer>').strip()"
#define RESULTS                                                                                    \
    "{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true %}{%- endif %}{%- endfor %}\n"
#define PROMPT(mark, lines)                                                                        \
    "{%- if add_generation_prompt and not ns.is_last_user and not ns.is_tool %}"                   \
    "{{- '" mark "' }}{%- endif %}"                                                                \
    "{%- if enable_thinking is defined and not enable_thinking %}"                                 \
    "{{- '<think>" lines lines "</think>" lines "' }}{%- endif %}"

#define OF(lines, placed, turn, mark, taken)                                                       \
    BEGIN SYSTEM(lines lines) TOOLS PLACED(placed) ASKS(turn) CALLS ANSWERS(mark, taken)           \
    RESULTS PROMPT(mark, lines)
#define SMALL_OF(lines, user, assistant, taken)                                                    \
    OF(lines, HUNYUAN_SYSTEM, SMALL_TURN(user, assistant), HUNYUAN_ASSISTANT, taken)
#define SMALL SMALL_OF("\n", HUNYUAN_USER, HUNYUAN_ASSISTANT, TAKEN)
#define LARGE_OF(lines, turn, taken) OF(lines, HUNYUAN_7B_SYSTEM, turn, HUNYUAN_7B_ASKED, taken)
#define LARGE LARGE_OF("\n", LARGE_TURN, TAKEN)

/* Something more that is written. */
#define SAID "{{ 'more' }}"
#define MORE(behind_system, behind_asks, behind_calls)                                             \
    BEGIN SYSTEM("\n\n") behind_system TOOLS PLACED(HUNYUAN_SYSTEM)                                \
        ASKS(SMALL_TURN(HUNYUAN_USER, HUNYUAN_ASSISTANT)) behind_asks CALLS behind_calls           \
        ANSWERS(HUNYUAN_ASSISTANT, TAKEN)                                                          \
    RESULTS PROMPT(HUNYUAN_ASSISTANT, "\n")

static omm_tokenizer *open_marks(const char *jinja) {
    return open_vocab(&(vocab_recipe){.marks = {HUNYUAN_USER, HUNYUAN_ASSISTANT, HUNYUAN_SYSTEM,
                                                HUNYUAN_7B_SYSTEM, HUNYUAN_7B_ASKED},
                                      .jinja = jinja});
}

/* ---- conversations ------------------------------------------------------------------------------ */

#define EMPTY "<think>\n\n</think>\n"
#define THOUGHT "<think>\nhm\n</think>\n"

/* The same conversation as both have it. */
static void check_both(const omm_message *turns, size_t count, omm_chat_ending ending,
                       const char *small, const char *large) {
    static const char *const jinjas[] = {SMALL,
                                         SMALL_OF("\\n", HUNYUAN_USER, HUNYUAN_ASSISTANT, TAKEN),
                                         LARGE, LARGE_OF("\\n", LARGE_TURN, TAKEN)};
    for (size_t i = 0; i < 4; i++) {
        omm_tokenizer *t = open_marks(jinjas[i]);
        char doubt[OMM_CHAT_DOUBT_MAX];
        CHECK(!omm_chat_doubt(doubt, t));
        CHECK_EQ(omm_chat_format_of(t), i < 2 ? OMM_CHAT_HUNYUAN : OMM_CHAT_HUNYUAN_7B);
        CHECK_EQ(omm_thinking_of(t), OMM_THINKING_OWN);
        CHECK(omm_thinking_wraps(t));
        CHECK(omm_chat_calls_of(t) == OMM_CALLS_MARKED && !omm_chat_announces(t));
        check_prompt(t, turns, count, ending, i < 2 ? small : large);
        omm_tokenizer_close(t);
    }
}

#define U(text) HUNYUAN_USER text HUNYUAN_ASSISTANT
#define S(text) "<s>" text HUNYUAN_SYSTEM
#define U7(text) text HUNYUAN_7B_ASKED
#define S7(text) "<s>" text HUNYUAN_7B_SYSTEM

static void test_turns(void) {
    const omm_message turns[] = {turn(OMM_ROLE_SYSTEM, " be \n"), turn(OMM_ROLE_USER, " in\n"),
                                 turn(OMM_ROLE_ASSISTANT, " er "), turn(OMM_ROLE_SYSTEM, "later"),
                                 turn(OMM_ROLE_USER, "on")};
    check_both(turns + 1, 1, OMM_CHAT_ANSWER, "<s>" U(" in\n"), "<s>" U7(" in\n"));
    check_both(turns + 1, 1, OMM_CHAT_WHOLE, "<s>" U(" in\n"), "<s>" U7(" in\n"));
    check_both(turns + 1, 1, OMM_CHAT_AT_ONCE, "<s>" U(" in\n") EMPTY, "<s>" U7(" in\n") EMPTY);
    check_both(turns, 3, OMM_CHAT_WHOLE, S(" be \n") U(" in\n") " er </s>",
               S7(" be \n") U7(" in\n") " er </s>");
    check_both(turns, 5, OMM_CHAT_ANSWER, S(" be \n\n\nlater") U(" in\n") " er </s>" U("on"),
               S7(" be \n\n\nlater") U7(" in\n") " er </s><s>" U7("on"));
    /* where no user's turn begins the answer, its mark does */
    check_both(turns, 3, OMM_CHAT_ANSWER, S(" be \n") U(" in\n") " er </s>" HUNYUAN_ASSISTANT,
               S7(" be \n") U7(" in\n") " er </s>" HUNYUAN_7B_ASKED);
    check_both(turns, 1, OMM_CHAT_ANSWER, S(" be \n") HUNYUAN_ASSISTANT,
               S7(" be \n") HUNYUAN_7B_ASKED);
    check_both(turns, 0, OMM_CHAT_ANSWER, "<s>" HUNYUAN_ASSISTANT, "<s>" HUNYUAN_7B_ASKED);
    const omm_message twice[] = {turn(OMM_ROLE_SYSTEM, ""), turn(OMM_ROLE_USER, "a"),
                                 turn(OMM_ROLE_USER, "b"), turn(OMM_ROLE_TOOL, "c")};
    check_both(twice, 4, OMM_CHAT_ANSWER, "<s>" U("a") U("b") U("c"),
               "<s>" U7("a") "<s>" U7("b") "<s>" U7("c"));
}

/* Of answers what they call so, but of the last message; as they are where they are learned. */
static void test_answers(void) {
    const omm_message turns[] = {
        turn(OMM_ROLE_USER, "a"),
        turn(OMM_ROLE_ASSISTANT, THOUGHT "<answer>\n so \n</answer>"),
        turn(OMM_ROLE_USER, "b"),
        turn(OMM_ROLE_ASSISTANT, THOUGHT "plain"),
        turn(OMM_ROLE_USER, "c"),
        turn(OMM_ROLE_ASSISTANT, "<answer>1</answer> <answer>\nnews</answer>\n"),
        turn(OMM_ROLE_ASSISTANT, THOUGHT "<answer>\nlast\n</answer>")};
    check_both(
        turns, 7, OMM_CHAT_ANSWER,
        "<s>" U("a") "so</s>" U("b") THOUGHT
        "plain</s>" U("c") "news</s>" THOUGHT "<answer>\nlast\n</answer></s>" HUNYUAN_ASSISTANT,
        "<s>" U7("a") "so</s><s>" U7("b") THOUGHT
        "plain</s><s>" U7("c") "news</s>" THOUGHT "<answer>\nlast\n</answer></s>" HUNYUAN_7B_ASKED);
    check_both(turns, 2, OMM_CHAT_WHOLE, "<s>" U("a") THOUGHT "<answer>\n so \n</answer></s>",
               "<s>" U7("a") THOUGHT "<answer>\n so \n</answer></s>");
}

/* A client gives back what a thought and its answer were, without marks: of the history the answer is left, and what the last
 * message says is as the model wrote it. */
static void test_given_back(void) {
    json_t *list = NULL;
    omm_chat_turns turns;
    CHECK_OK(omm_json_parse(
        &list,
        omm_bytes_str("[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
                      "\"content\": \"so\", \"reasoning_content\": \"hm\"}, {\"role\": \"user\", "
                      "\"content\": \"b\"}, {\"role\": \"assistant\", \"content\": "
                      "[{\"type\": \"text\", \"text\": \"last\"}], \"reasoning_content\": "
                      "\"hm\"}]"),
        "test"));
    omm_tokenizer *t = open_marks(SMALL);
    omm_chat_turns_init(&turns, 1 << 16);
    turns.tokenizer = t;
    turns.with_thoughts = true;
    CHECK_OK(omm_chat_turns_read(&turns, list, NULL));
    check_prompt(t, turns.messages, 3, OMM_CHAT_ANSWER, "<s>" U("a") "so</s>" U("b"));
    check_prompt(t, turns.messages, 4, OMM_CHAT_ANSWER,
                 "<s>" U("a") "so</s>" U("b") "<think>\nhm\n</think>\n\n<answer>\nlast\n</answer>"
                                              "</s>" HUNYUAN_ASSISTANT);
    omm_chat_turns_fini(&turns);
    omm_tokenizer_close(t);
    json_decref(list);
}

/* A prompt that goes on knows that the user has asked before; what is learned is the answer and its end. */
static void test_going_on(void) {
    const omm_message turns[] = {turn(OMM_ROLE_USER, "a"), turn(OMM_ROLE_ASSISTANT, "b"),
                                 turn(OMM_ROLE_USER, "c")};
    static const char *const jinjas[] = {SMALL, LARGE};
    for (size_t i = 0; i < 2; i++) {
        omm_tokenizer *t = open_marks(jinjas[i]);
        omm_prompt whole, parts;
        omm_prompt_init(&whole, TOKENS_MAX);
        omm_prompt_init(&parts, TOKENS_MAX);
        CHECK_OK(omm_chat_render(&whole, t, turns, 3, OMM_CHAT_ANSWER));
        for (size_t k = 0; k < 3; k++)
            CHECK_OK(
                omm_chat_render(&parts, t, turns + k, 1, k < 2 ? OMM_CHAT_WHOLE : OMM_CHAT_ANSWER));
        CHECK_EQ(whole.tokens.count, parts.tokens.count);
        CHECK_EQ(memcmp(whole.tokens.ids, parts.tokens.ids,
                        whole.tokens.count * sizeof *whole.tokens.ids),
                 0);
        size_t learned = 0;
        for (size_t k = 0; k < whole.mask.size; k++) learned += whole.mask.data[k];
        CHECK_EQ(learned, 2); /* b, and the end token */
        omm_prompt_fini(&parts);
        omm_prompt_fini(&whole);
        omm_tokenizer_close(t);
    }
}

/* ---- left alone --------------------------------------------------------------------------------- */

#define ANSWER_TAKEN "content.split('<answer>')[-1]"
static void test_others(void) {
    static const char *const others[] = {
        SMALL SAID, LARGE SAID, SAID SMALL, SAID LARGE, MORE(SAID, "", ""), MORE("", SAID, ""),
        MORE("", "{%- if message['x'] %}" SAID "{%- endif %}", ""), MORE("", "", SAID),
        SMALL_OF("\n", "", HUNYUAN_USER HUNYUAN_ASSISTANT, TAKEN),
        SMALL_OF("\n", HUNYUAN_USER, "\n" HUNYUAN_ASSISTANT, TAKEN),
        SMALL_OF("\n", HUNYUAN_USER, HUNYUAN_ASSISTANT, ANSWER_TAKEN),
        SMALL_OF(" ", HUNYUAN_USER, HUNYUAN_ASSISTANT, TAKEN),
        OF("\n", "\n" HUNYUAN_SYSTEM, SMALL_TURN(HUNYUAN_USER, HUNYUAN_ASSISTANT),
           HUNYUAN_ASSISTANT, TAKEN),
        LARGE_OF("\n", "{{- bos_token + message['content'] + '<|extra_0|>' }}", TAKEN),
        LARGE_OF("\n", LARGE_TURN, ANSWER_TAKEN), "{# " SMALL LARGE " #}",
        /* marks behind what is said, as where pictures stand in front */
        "{{ bos_token }}{% for message in messages %}{% if message.role == 'system' %}"
        "{{ message.content + '" HUNYUAN_SYSTEM "' }}{% elif message.role == 'user' %}"
        "{{ message.content + '" HUNYUAN_USER "' }}{% else %}"
        "{{ message.content + '" HUNYUAN_ASSISTANT "' }}{% endif %}{% endfor %}"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        omm_tokenizer *t = open_marks(others[i]);
        char doubt[OMM_CHAT_DOUBT_MAX];
        if (!omm_chat_doubt(doubt, t)) fprintf(stderr, "number %zu is known\n", i);
        CHECK(omm_chat_doubt(doubt, t) && strstr(doubt, "is not known") != NULL);
        CHECK_EQ(omm_chat_format_of(t), OMM_CHAT_CHATML_TEXT);
        omm_tokenizer_close(t);
    }
}

static void test_cut(void) {
    static const char small[] = SMALL, large[] = LARGE;
    char cut[sizeof small + sizeof large];
    for (size_t i = 0; i < 2; i++)
        for (size_t at = 0; at + 1 < (i ? sizeof large : sizeof small); at += 13) {
            memcpy(cut, i ? large : small, at);
            cut[at] = 0;
            omm_tokenizer *t = open_marks(cut);
            CHECK_EQ(omm_chat_format_of(t), OMM_CHAT_CHATML_TEXT);
            omm_tokenizer_close(t);
        }
}

int main(void) {
    test_turns();
    test_answers();
    test_given_back();
    test_going_on();
    test_others();
    test_cut();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

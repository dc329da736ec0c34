/* chat_parts_test.c - several texts of one message, as templates join them that were written for this test in the ways of Granite
 * 4's and Gemma 3's. */
#include "omm/chat_turns.h"
#include "omm/mem.h"
#include "test_prompt.h"

#include "omm/chat.h"

#define GRANITE(when, between)                                                                     \
    "{%- for message in messages %}{%- set content = namespace(val='') %}"                         \
    "{%- if message.content is string %}{%- set content.val = message.content %}{%- else %}"       \
    "{%- for entry in message.content %}\n  {%- if entry.type== 'text' %}\n    {%- if " when       \
    " %}{%- set content.val = content.val + '" between "' %}{%- endif %}\n"                        \
    "    {%- set content.val = content.val + entry.text %}{%- endif %}{%- endfor %}{%- endif %}\n" \
    "{{- '<|start_of_role|>' + message.role + '<|end_of_role|>' + content.val + "                  \
    "'<|end_of_text|>\\n' }}{%- endfor %}"                                                         \
    "{%- if add_generation_prompt %}{{- '<|start_of_role|>assistant<|end_of_role|>' }}{%- endif "  \
    "%}"
#define GRANITE4 GRANITE("content.val != ''", "\\n")
#define GEMMA(parts)                                                                               \
    "{{ bos_token }}{%- for message in messages -%}{{ '<start_of_turn>' + message['role'] + "      \
    "'\\n' }}{%- if message['content'] is string -%}{{ message['content'] | trim }}"               \
    "{%- elif message['content'] is iterable -%}{%- for item in message['content'] -%}\n" parts    \
    "{%- endfor -%}{%- endif -%}{{ '<end_of_turn>\\n' }}{%- endfor -%}"
#define IMAGE "{%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}"
#define TEXT "item['type'] == 'text' -%}\n{{ item['text'] | trim }}\n{%- endif -%}"
#define CHATML                                                                                     \
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "                  \
    "message['content'] + '<|im_end|>\\n' }}{% endfor %}"

#define PART(text) "{\"type\": \"text\", \"text\": \"" text "\"}"
#define MESSAGE(role, parts) "{\"role\": \"" role "\", \"content\": [" parts "]}"
#define ASKS PART(" c \\n") ", " PART("") ", " PART("d\\n") ", " PART(" \\u00a0e")
#define ALL                                                                                        \
    "[" MESSAGE("system", PART("a ") ", " PART(" b")) ", " MESSAGE("user", ASKS) ", " MESSAGE(     \
        "assistant", PART("") ", " PART("f ")) ", " MESSAGE("user", "") "]"

static const struct {
    vocab_recipe vocab;
    const char *want[4];
} s_cases[] = {
    {{.marks = {"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"}, .jinja = GRANITE4},
     {"a \n b",
      " c \n\n\nd\n\n \xc2\xa0"
      "e",
      "f ", ""}},
    /* a condition or a text that differs: none of it */
    {{.marks = {"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"},
      .jinja = GRANITE("content.val", "\\n")},
     {"a  b",
      " c \nd\n \xc2\xa0"
      "e",
      "f ", ""}},
    {{.marks = {"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"},
      .jinja = GRANITE("content.val != ''", " ")},
     {"a  b",
      " c \nd\n \xc2\xa0"
      "e",
      "f ", ""}},
    {{.spm = true,
      .marks = {"<start_of_turn>", "<end_of_turn>"},
      .jinja = GEMMA(IMAGE "{%- elif " TEXT)},
     {"a  b", "cde", "f", ""}},
    {{.spm = true, .marks = {"<start_of_turn>", "<end_of_turn>"}, .jinja = GEMMA("{%- if " TEXT)},
     {"a  b", "cde", "f", ""}},
    {{.spm = true,
      .marks = {"<start_of_turn>", "<end_of_turn>"},
      .jinja = GEMMA("{%- if " TEXT "{{ ' ' }}")},
     {"a  b",
      " c \nd\n \xc2\xa0"
      "e",
      "f ", ""}},
    {{.marks = {"<|im_start|>", "<|im_end|>"}, .jinja = CHATML},
     {"a  b",
      " c \nd\n \xc2\xa0"
      "e",
      "f ", ""}},
    /* the first loop over them says how */
    {{.marks = {"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"},
      .jinja = GRANITE4 "{%- for part in message.content %}{{ part }}{%- endfor %}"},
     {"a \n b",
      " c \n\n\nd\n\n \xc2\xa0"
      "e",
      "f ", ""}},
    /* of a family that is not known nothing is */
    {{.jinja = "{% for item in message.content %}{%- if " TEXT "{% endfor %}"},
     {"a  b",
      " c \nd\n \xc2\xa0"
      "e",
      "f ", ""}},
};

static void check_turns(const omm_tokenizer *t, const char *const want[4]) {
    omm_chat_turns turns;
    json_t *list = NULL;
    CHECK_OK(omm_json_parse(&list, omm_bytes_str(ALL), "test"));
    omm_chat_turns_init(&turns, 1 << 16);
    turns.tokenizer = t;
    CHECK_OK(omm_chat_turns_read(&turns, list, NULL));
    CHECK_EQ(turns.count, 4);
    for (size_t i = 0; i < 4; i++)
        if (!omm_bytes_equal(turns.messages[i].content, omm_bytes_str(want[i]))) {
            fprintf(stderr, "turn %zu: '%.*s', not '%s'\n", i, (int)turns.messages[i].content.size,
                    (const char *)turns.messages[i].content.data, want[i]);
            exit(1);
        }
    omm_chat_turns_fini(&turns);
    json_decref(list);
}

int main(void) {
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        omm_tokenizer *t = open_vocab(&s_cases[i].vocab);
        check_turns(t, s_cases[i].want);
        omm_tokenizer_close(t);
    }
    check_turns(NULL, s_cases[6].want);
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

/* chat_recognise_test.c - which template a Jinja text is, on texts like those that models publish: their length, checks of
 * roles, tools and default system prompts, line ends as characters or as \n, the end token near its turn or
 * far from it.  The texts were written for this test; each has the features of its family, and what only looks like
 * a family is held against it too. */
#include "chat_internal.h"
#include "omm/mem.h"
#include "test_vocab.h"

#include "omm/chat.h"

#define ALTERNATE                                                                                  \
    "{% if loop.index0 % 2 == 0 and turn.role == 'assistant' %}"                                   \
    "{{ raise_exception('an answer to nothing') }}{% endif %}"
#define SPLIT_SYSTEM                                                                               \
    "{% set first = messages[0].content if messages[0].role == 'system' else '' %}"                \
    "{% set rest = messages[1:] if first else messages %}"
#define TOOL_LINES                                                                                 \
    "{%- if tools %}\n    {{- 'These can be called:\\n\\n<tools>' }}\n"                            \
    "    {%- for tool in tools %}\n        {{- '\\n' ~ tool | tojson }}\n    {%- endfor %}\n"      \
    "    {{- '\\n</tools>\\n\\nAnswer each with <tool_call>{\"name\": NAME}</tool_call>' }}\n"     \
    "{%- endif %}\n"
#define CHATML_MARKS "<|im_start|>", "<|im_end|>"
#define USER "<\xef\xbd\x9cUser\xef\xbd\x9c>" /* with wide bars */
#define ANSWER                                                                                     \
    "<\xef\xbd\x9c"                                                                                \
    "Assistant\xef\xbd\x9c>"
#define ASKS "{{ '<|user|>\\n' + turn.content + '\\n' }}"
#define ANSWERS "{{ '<|assistant|>\\n' + turn.content + eos_token }}"
#define IN_TURN(asks, answers)                                                                     \
    "{% for turn in messages %}{% if turn.role == 'user' %}" asks "{% else %}" answers             \
    "{% endif %}{% endfor %}"
#define PHI_MARKS "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"

typedef struct published {
    const char *like; /* of which models */
    omm_chat_format format;
    vocab_recipe vocab;
    bool unknown;
} published;

static const published s_texts[] = {
    {"ChatML of a line",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{% for turn in messages %}{% set head = '<|im_start|>' ~ turn.role ~ '\\n' %}{{ "
               "head ~ turn.content ~ "
               "'<|im_end|>\\n' }}{% endfor %}{{ '<|im_start|>assistant\\n' if "
               "add_generation_prompt else '' }}"},
     false},
    {"Qwen: tools, lines, a default system prompt",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{%- if messages[0].role != 'system' %}\n    {{- '<|im_start|>system\\nYou are of "
               "help.<|im_end|>\\n' }}\n"
               "{%- endif %}\n" TOOL_LINES
               "{%- for turn in messages %}\n    {%- if turn.role == 'tool' %}\n"
               "        {{- '<|im_start|>user\\n<tool_response>\\n' ~ turn.content }}\n"
               "        {{- '\\n</tool_response><|im_end|>\\n' }}\n    {%- else %}\n"
               "        {{- '<|im_start|>' ~ turn.role ~ '\\n' ~ turn.content ~ '<|im_end|>\\n' "
               "}}\n    {%- endif %}\n"
               "{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' "
               "}}\n{%- endif %}\n"},
     false},
    {"Phi-4",
     OMM_CHAT_PHI4,
     {.marks = {CHATML_MARKS, "<|im_sep|>"},
      .jinja = "{% for turn in messages %}{{ '<|im_start|>' ~ turn.role ~ '<|im_sep|>' ~ "
               "turn.content ~ '<|im_end|>' }}"
               "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' "
               "}}{% endif %}"},
     false},
    {"Llama 3",
     OMM_CHAT_LLAMA3,
     {.marks = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
      .jinja = "{{ bos_token }}{% for turn in messages %}{{ '<|start_header_id|>' ~ turn.role ~ "
               "'<|end_header_id|>\n\n' }}"
               "{{ turn.content | trim }}{{ '<|eot_id|>' }}{% endfor %}"
               "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"},
     false},
    {"Llama 3.1: tools, a date",
     OMM_CHAT_LLAMA3,
     {.marks = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
      .jinja = "{{- bos_token }}\n{%- set date = today or '1 Jan 2024' %}\n"
               "{{- '<|start_header_id|>system<|end_header_id|>\\n\\nIt is ' ~ date ~ '\\n\\n' "
               "}}\n" TOOL_LINES "{{- '<|eot_id|>' }}\n{%- for turn in messages %}\n    {%- set "
               "head = '<|start_header_id|>' ~ turn.role %}\n"
               "    {{- head ~ '<|end_header_id|>\\n\\n' ~ turn.content | trim ~ '<|eot_id|>' "
               "}}\n{%- endfor %}\n"},
     false},
    {"Gemma",
     OMM_CHAT_GEMMA,
     {.spm = true,
      .no_prefix = true,
      .marks = {"<start_of_turn>", "<end_of_turn>"},
      .jinja = "{{ bos_token }}" SPLIT_SYSTEM "{% for turn in rest %}" ALTERNATE
               "{% set who = {'assistant': 'model'}.get(turn.role, turn.role) %}"
               "{{ '<start_of_turn>' ~ who ~ '\n' ~ turn.content | trim ~ '<end_of_turn>\n' }}{% "
               "endfor %}"
               "{{ '<start_of_turn>model\n' if add_generation_prompt else '' }}"},
     false},
    {"Phi-3 mini: the line end is a string of its own",
     OMM_CHAT_PHI3,
     {.spm = true,
      .marks = {PHI_MARKS},
      .jinja = "{{ bos_token }}{% for turn in messages %}{% if turn.role == 'assistant' %}{{ "
               "turn.content + '<|end|>' + '\n' }}"
               "{% else %}{{ '<|user|>' + '\n' + turn.content }}{{ '<|end|>' + '\n' + "
               "'<|assistant|>' + '\n' }}{% endif %}"
               "{% endfor %}"},
     false},
    {"Phi-3 small: all roles by one expression",
     OMM_CHAT_PHI3,
     {.marks = {PHI_MARKS},
      .jinja = "{% for turn in messages %}{% set head = '<|' + turn.role + '|>' + '\\n' %}{{ head "
               "+ turn.content }}"
               "{{ '<|end|>\\n' }}{% endfor %}{{ '<|assistant|>\\n' if add_generation_prompt else "
               "eos_token }}"},
     false},
    {"Phi-3 small in double quotes",
     OMM_CHAT_PHI3,
     {.marks = {PHI_MARKS},
      .jinja =
          "{% for turn in messages %}{{ \"<|\" + turn.role + \"|>\" ~ \"\\n\" + turn.content + "
          "\"<|end|>\" }}{% endfor %}{{ \"<|assistant|>\" }}"},
     false},
    {"Phi-3.5: a system turn if there is any",
     OMM_CHAT_PHI3,
     {.spm = true,
      .marks = {PHI_MARKS},
      .jinja = SPLIT_SYSTEM
      "{% if first %}{{ '<|system|>\n' ~ first ~ '<|end|>\n' }}{% endif %}{% for turn in rest %}"
      "{% set mark = '<|user|>\n' if loop.index0 % 2 == 0 else '<|assistant|>\n' %}"
      "{{ mark ~ turn.content ~ '<|end|>\n' }}{% endfor %}{{ '<|assistant|>\n' }}"},
     false},
    {"Phi-4 mini: no line end anywhere",
     OMM_CHAT_PHI4_MINI,
     {.marks = {PHI_MARKS},
      .jinja = "{% for turn in messages %}{% set head = '<|' + turn.role + '|>' %}{{ head + "
               "turn.content }}{% if turn.tools %}"
               "{{ '<|tool|>' + turn.tools + '<|/tool|>' }}{% endif %}{{ '<|end|>' }}{% endfor %}"
               "{{ '<|assistant|>' if add_generation_prompt else eos_token }}"},
     false},
    {"Phi-4 mini, set in lines, with a line end in what it says of tools",
     OMM_CHAT_PHI4_MINI,
     {.marks = {PHI_MARKS},
      .jinja =
          SPLIT_SYSTEM "\n{%- if first %}\n    {{- '<|system|>' ~ first }}\n    {%- if tools %}\n"
                       "        {{- '<|tool|>' ~ tools | tojson ~ '<|/tool|>' }}\n"
                       "        {{- 'Those are yours.\\nCall them by name.' }}\n    {%- endif %}\n "
                       "   {{- '<|end|>' }}\n"
                       "{%- endif %}\n{%- for turn in rest %}\n    {{- '<|' + turn.role + '|>' }}\n"
                       "    {{- turn.content -}}\n    {{- '<|end|>' }}\n{%- endfor %}\n{%- if "
                       "add_generation_prompt %}\n"
                       "    {{- '<|assistant|>' -}}\n{%- endif %}\n"},
     false},
    {"Zephyr, TinyLlama: lines between turns, the longest name that is usual",
     OMM_CHAT_ZEPHYR,
     {.spm = true,
      .jinja = "{% for section in messages %}\n{% set role = section['role'] %}\n{% if role == "
               "'system' %}\n"
               "{{ '<|system|>\n' + section['content'] + eos_token }}\n{% endif %}\n{% if role == "
               "'user' %}\n"
               "{{ '<|user|>\n' + section['content'] + eos_token }}\n{% endif %}\n{% if role == "
               "'assistant' %}\n"
               "{{ '<|assistant|>\n' + section['content'] + eos_token }}\n{% endif %}\n{% endfor "
               "%}\n{{ '<|assistant|>' }}"},
     false},
    {"StableLM Zephyr: the end token by name, white space trimmed",
     OMM_CHAT_ZEPHYR,
     {.marks = {"<|system|>", "<|user|>", "<|assistant|>"},
      .jinja = "{% for section in messages %}{% if loop.index0 % 2 == 0 %}{{ '<|user|>\\n' + "
               "section['content'] | trim + "
               "'<|endoftext|>\\n' }}{% else %}{{ '<|assistant|>\\n' + section['content'] + "
               "'<|endoftext|>\\n' }}{% endif %}"
               "{% endfor %}{{ '<|assistant|>\\n' if add_generation_prompt else '' }}"},
     false},
    {"Zephyr with one expression for all roles",
     OMM_CHAT_ZEPHYR,
     {.spm = true,
      .jinja = "{% for section in messages %}{{ '<|' + section['role'] + '|>\\n' + "
               "section['content'] + eos_token }}"
               "{{ '\\n' }}{% endfor %}{{ '<|assistant|>\\n' if add_generation_prompt else '' }}"},
     false},
    {"Zephyr: the end token as its text",
     OMM_CHAT_ZEPHYR,
     {.spm = true,
      .jinja = "{% for section in messages %}{{ '<|' + section.role + '|>\\n' + section.content + "
               "'</s>\\n' }}{% endfor %}{{ '<|assistant|>\\n' }}"},
     false},
    {"Llama 2",
     OMM_CHAT_LLAMA2,
     {.spm = true,
      .jinja = SPLIT_SYSTEM "{% for turn in rest %}" ALTERNATE
                            "{% set text = turn.content.strip() %}{% if loop.first and first %}"
                            "{% set text = '<<SYS>>\\n' ~ first ~ '\\n<</SYS>>\\n\\n' ~ text %}{% "
                            "endif %}{% if turn.role == 'assistant' %}"
                            "{{ ' ' ~ text ~ ' ' ~ eos_token }}{% else %}{{ bos_token ~ '[INST] ' "
                            "~ text ~ ' [/INST]' }}{% endif %}{% endfor %}"},
     false},
    {"Mistral 7B v0.1, v0.2: marks are text",
     OMM_CHAT_MISTRAL_V1,
     {.spm = true,
      .jinja =
          "{{ bos_token }}{% for turn in messages %}" ALTERNATE "{% if turn.role == 'assistant' %}"
          "{{ turn.content ~ eos_token }}{% else %}{{ '[INST] ' ~ turn.content ~ ' [/INST]' }}{% "
          "endif %}{% endfor %}"},
     false},
    {"Mistral 7B v0.3: tools, marks are tokens",
     OMM_CHAT_MISTRAL_V3,
     {.spm = true,
      .marks = {"[INST]", "[/INST]"},
      .jinja = SPLIT_SYSTEM
      "{{- bos_token }}\n{%- for turn in rest %}\n    {%- if turn.role == 'assistant' %}\n"
      "        {{- ' ' ~ turn.content | trim ~ eos_token }}\n    {%- else %}\n        {%- if tools "
      "and loop.last %}\n"
      "            {{- '[AVAILABLE_TOOLS] ' ~ tools | tojson ~ '[/AVAILABLE_TOOLS]' }}\n        "
      "{%- endif %}\n"
      "        {{- '[INST] ' ~ turn.content ~ '[/INST]' }}\n    {%- endif %}\n{%- endfor %}\n"},
     false},
    {"Mistral Nemo: byte-level vocabulary",
     OMM_CHAT_MISTRAL_V3_TEKKEN,
     {.marks = {"[INST]", "[/INST]"},
      .jinja = SPLIT_SYSTEM
      "{{- bos_token }}\n{%- for turn in rest %}\n    {{- '[INST]' ~ turn.content ~ '[/INST]' }}\n"
      "{%- endfor %}\n"},
     false},
    {"Mistral Large 2411",
     OMM_CHAT_MISTRAL_V7,
     {.spm = true,
      .marks = {"[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"},
      .jinja = "{{ bos_token }}{% for turn in messages %}{% if turn.role == 'system' %}"
               "{{ '[SYSTEM_PROMPT] ' ~ turn.content ~ '[/SYSTEM_PROMPT]' }}{% elif turn.role == "
               "'assistant' %}"
               "{{ ' ' ~ turn.content ~ eos_token }}{% else %}{{ '[INST] ' ~ turn.content ~ "
               "'[/INST]' }}{% endif %}{% endfor %}"},
     false},
    {"Mistral Small 2501: a default system prompt",
     OMM_CHAT_MISTRAL_V7_TEKKEN,
     {.marks = {"[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"},
      .jinja =
          "{%- set first = 'You are of help.\\n\\nSay when you do not know.' %}\n{{- bos_token }}\n"
          "{{- '[SYSTEM_PROMPT]' ~ first ~ '[/SYSTEM_PROMPT]' }}\n{%- for turn in messages %}\n"
          "    {{- '[INST]' ~ turn.content ~ '[/INST]' }}\n{%- endfor %}\n"},
     false},
    /* ---- what only looks like one of these -------------------------------------------------- */
    {"OLMo 2, Tulu: the end token after answers alone",
     OMM_CHAT_TULU,
     {.marks = {CHATML_MARKS},
      .jinja =
          "{{ bos_token }}{% for section in messages %}{% if section['role'] == 'user' %}"
          "{{ '<|user|>\n' + section['content'] + '\n' }}{% elif section['role'] == 'assistant' %}"
          "{{ '<|assistant|>\n' + section['content'] + eos_token + '\n' }}{% endif %}{% endfor "
          "%}{{ '<|assistant|>\n' }}"},
     false},
    {"Falcon 3: the same, in lines",
     OMM_CHAT_TULU,
     {.marks = {CHATML_MARKS},
      .jinja = "{%- for section in messages %}\n{%- if section['role'] != 'assistant' %}\n"
               "{{- '<|user|>\\n' + section['content'] + '\\n' }}\n{%- else %}\n"
               "{{- '<|assistant|>\\n' + section['content'] + eos_token + '\\n' }}\n{%- endif "
               "%}\n{%- endfor %}\n"},
     false},
    {"GLM-4",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "[gMASK]<sop>{% for turn in messages %}{{ '<|user|>' if turn.role == 'user' else "
               "'<|assistant|>' }}\n"
               "{{ turn.content }}{% endfor %}<|assistant|>{{ eos_token if done }}"},
     true},
    {"GLM-4's begin in front of Zephyr's turns",
     OMM_CHAT_CHATML_TEXT,
     {.jinja = "[gMASK]<sop>" IN_TURN("{{ '<|user|>\\n' + turn.content + eos_token }}", ANSWERS)},
     true},
    {"the same in front of Tulu's",
     OMM_CHAT_CHATML_TEXT,
     {.jinja = "[gMASK]<sop>" IN_TURN(ASKS, ANSWERS)},
     true},
    {"Zephyr's turns that may have an image",
     OMM_CHAT_CHATML_TEXT,
     {.jinja = IN_TURN("{{ '<|user|>\\n' + turn.content + eos_token }}<|begin_of_image|>",
                       "{{ '<|assistant|>\\n' + turn.content + '\\n' }}")},
     true},
    {"Tulu's turns beside a mark of Phi's",
     OMM_CHAT_CHATML_TEXT,
     {.jinja = IN_TURN(ASKS, ANSWERS) "{{ '\\n<|end|>' if done }}"},
     true},
    {"SmolVLM: ChatML's first mark, another end",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "<|im_start|>{% for turn in messages %}{{ turn.role.title() }}: {{ turn.content "
               "}}<end_of_utterance>\n"
               "{% endfor %}{{ 'Assistant:' }}"},
     true},
    {"Vicuna",
     OMM_CHAT_CHATML_TEXT,
     {.spm = true,
      .jinja = "{% for turn in messages %}{% if loop.index0 % 2 %}{{ 'ASSISTANT: ' ~ turn.content "
               "~ '</s>\n' }}{% else %}"
               "{{ 'USER: ' ~ turn.content ~ '\n' }}{% endif %}{% endfor %}{{ 'ASSISTANT:' }}"},
     true},
    {"ShieldGemma: Gemma's marks around what is judged, no role behind them",
     OMM_CHAT_CHATML_TEXT,
     {.spm = true,
      .no_prefix = true,
      .marks = {"<start_of_turn>", "<end_of_turn>"},
      .jinja = "{{ bos_token }}You judge questions by a rule.\n\n<start_of_turn>\nQuestion: {{ "
               "messages[-1].content }}\n<end_of_turn>\n\nThe rule: {{ rule }}\n"},
     true},
    {"the same, its line ends as escapes",
     OMM_CHAT_CHATML_TEXT,
     {.spm = true,
      .no_prefix = true,
      .marks = {"<start_of_turn>", "<end_of_turn>"},
      .jinja = "{{ bos_token + '<start_of_turn>\\nQuestion: ' + messages[-1].content + "
               "'\\n<end_of_turn>\\n' }}"},
     true},
    {"Apriel: Phi's marks, the closing one on a line of its own",
     OMM_CHAT_CHATML_TEXT,
     {.marks = {PHI_MARKS},
      .jinja = "{% for turn in messages %}{{ '<|' ~ turn.role ~ '|>\\n' ~ turn.content ~ "
               "'\\n<|end|>\\n' }}{% endfor %}{{ '<|assistant|>\\n' }}"},
     true},
    {"the same as characters",
     OMM_CHAT_CHATML_TEXT,
     {.marks = {PHI_MARKS},
      .jinja = "{% for turn in messages %}<|{{ turn.role }}|>\n{{ turn.content }}\n<|end|>\n{% "
               "endfor %}<|assistant|>\n"},
     true},
    {"rnj-1: Llama 3's marks, one line end behind a role",
     OMM_CHAT_CHATML_TEXT,
     {.marks = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
      .jinja = "{{ bos_token }}{% for turn in messages %}{{ '<|start_header_id|>' ~ turn.role ~ "
               "'<|end_header_id|>\\n' }}{{ turn.content ~ '<|eot_id|>' }}{% endfor %}"
               "{{ '<|start_header_id|>assistant<|end_header_id|>\n' }}"},
     true},
    {"DeepSeek",
     OMM_CHAT_CHATML_TEXT,
     {.jinja = "{% for turn in messages %}{{ '<\xef\xbd\x9cUser\xef\xbd\x9c>' ~ turn.content }}{% "
               "endfor %}"},
     true},
    {"DeepSeek R1, distilled: answers without their thoughts, one opened",
     OMM_CHAT_DEEPSEEK,
     {.marks = {USER, ANSWER},
      .jinja = "{{ bos_token }}{% for turn in messages %}{% if turn.role == 'user' %}{{ '" USER
               "' + turn.content }}{% else %}{{ '" ANSWER
               "' + turn.content.split('</think>')[-1] + eos_token }}{% endif %}{% endfor %}"
               "{% if add_generation_prompt %}{{ '" ANSWER "<think>\\n' }}{% endif %}"},
     false},
    {"a mark of Mistral's that another one closes",
     OMM_CHAT_CHATML_TEXT,
     {.marks = {"[INST]", "[RESP]"},
      .jinja = "{% for turn in messages %}{{ '[INST] ' ~ turn.content ~ ' [RESP] ' }}{% endfor %}"},
     true},
    {"the same beside Llama 2's",
     OMM_CHAT_CHATML_TEXT,
     {.spm = true,
      .jinja = "{{ '[INST] <<SYS>>' ~ first ~ '<</SYS>>' }}{% for turn in messages %}{{ "
               "turn.content ~ '[RESP]' }}{% endfor %}"},
     true},
    {"the same beside a system prompt's",
     OMM_CHAT_CHATML_TEXT,
     {.marks = {"[INST]", "[RESP]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"},
      .jinja = "{{ '[SYSTEM_PROMPT]' ~ first ~ '[/SYSTEM_PROMPT]' }}{% for turn in messages %}{{ "
               "'[INST]' ~ turn.content ~ '[RESP]' }}{% endfor %}"},
     true},
    {"Command R",
     OMM_CHAT_CHATML_TEXT,
     {.jinja = "{% for turn in messages %}{{ '<|START_OF_TURN_TOKEN|><|USER_TOKEN|>' ~ "
               "turn.content }}{% endfor %}"},
     true},
    {"Granite 3",
     OMM_CHAT_GRANITE,
     {.marks = {"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"},
      .jinja = "{% for turn in messages %}{{ '<|start_of_role|>' ~ turn.role ~ '<|end_of_role|>' ~ "
               "turn.content ~ '<|end_of_text|>\n' }}{% endfor %}"},
     false},
    {"OLMo 2: the answer's end token, and a line end where more follows",
     OMM_CHAT_TULU,
     {.jinja = "{{ bos_token }}{% for turn in messages %}{% if turn['role'] == 'user' %}{{ "
               "'<|user|>\\n' + turn['content'] + '\\n' }}{% elif turn['role'] == 'assistant' %}"
               "{% if not loop.last %}{{ '<|assistant|>\\n' + turn['content'] + eos_token + '\\n' "
               "}}{% else %}{{ '<|assistant|>\\n' + turn['content'] + eos_token }}{% endif %}"
               "{% endif %}{% endfor %}"},
     false},
    {"Merlinite: line ends outside of the strings",
     OMM_CHAT_TULU,
     {.jinja = "{% for turn in messages %}\n{% if turn.role == 'user' %}\n{{ '<|user|>\\n' + "
               "turn.content }}\n{% else %}\n{{ '<|assistant|>\\n' + turn.content + eos_token }}\n"
               "{% endif %}\n{% endfor %}"},
     false},
    {"Granite 4: contents of parts, put together before",
     OMM_CHAT_GRANITE,
     {.marks = {"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"},
      .jinja = "{{- '<|start_of_role|>system<|end_of_role|>' + s + '<|end_of_text|>\\n' }}"
               "{% for turn in messages %}{{- '<|start_of_role|>' + turn['role'] + "
               "'<|end_of_role|>' + content.val + '<|end_of_text|>\\n' }}{% endfor %}</think>"},
     false},
    {"Granite 3.0: each role by itself",
     OMM_CHAT_GRANITE,
     {.marks = {"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"},
      .jinja = "{% for turn in messages %}{% if turn.role == 'user' %}{{- "
               "'<|start_of_role|>user<|end_of_role|>' + turn.content + '<|end_of_text|>\\n' }}"
               "{% else %}{{- '<|start_of_role|>assistant<|end_of_role|>' + turn.content + "
               "'<|end_of_text|>\\n' }}{% endif %}{% endfor %}"},
     false},
    {"Granite's marks around what is no role",
     OMM_CHAT_CHATML_TEXT,
     {.marks = {"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"},
      .jinja = "{% for turn in messages %}{{ '<|start_of_role|>' ~ turn.kind ~ '<|end_of_role|>' ~ "
               "turn.content ~ '<|end_of_text|>\n' }}{% endfor %}"},
     true},
    {"Granite's turn of the user alone",
     OMM_CHAT_CHATML_TEXT,
     {.marks = {"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"},
      .jinja = "{{ '<|start_of_role|>user<|end_of_role|>' ~ turn.content ~ '<|end_of_text|>\n' }}"},
     true},
    {"Granite's marks, and no line end behind a turn",
     OMM_CHAT_CHATML_TEXT,
     {.marks = {"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"},
      .jinja = "{% for turn in messages %}{{ '<|start_of_role|>' ~ turn.role ~ '<|end_of_role|>' ~ "
               "turn.content ~ '<|end_of_text|>' }}{% endfor %}"},
     true},
    {"Granite Guardian: the user's text in another",
     OMM_CHAT_CHATML_TEXT,
     {.marks = {"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"},
      .jinja = "{{ '<|start_of_role|>user<|end_of_role|>Is this bad? ' ~ turn.content ~ "
               "'<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>' }}"},
     true},
    {"Granite Vision: the marks for tools alone",
     OMM_CHAT_CHATML_TEXT,
     {.marks = {"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"},
      .jinja = "{{ '<|start_of_role|>available_tools<|end_of_role|>' }}{% for turn in messages %}"
               "{{ '<|user|>\n' + turn.content + '\n' }}{{ '<|assistant|>\n' + turn.content + "
               "'<|end_of_text|>' }}{% endfor %}"},
     true},
    {"a line end behind what is asked, the end token behind what is answered",
     OMM_CHAT_TULU,
     {.jinja = IN_TURN(ASKS, ANSWERS)},
     false},
    {"and the same of the system",
     OMM_CHAT_TULU,
     {.jinja = IN_TURN("{{ '<|system|>\\n' + turn.content + '\\n' }}{% elif x %}" ASKS, ANSWERS)},
     false},
    {"a system's turn that ends otherwise",
     OMM_CHAT_CHATML_TEXT,
     {.jinja =
          IN_TURN("{{ '<|system|>\\n' + turn.content + '\\n\\n' }}{% elif x %}" ASKS, ANSWERS)},
     true},
    {"more behind a user's line end",
     OMM_CHAT_CHATML_TEXT,
     {.jinja = IN_TURN("{{ '<|user|>\\n' + turn.content + '\\n<|over|>\\n' }}", ANSWERS)},
     true},
    {"a user's turn that nothing ends",
     OMM_CHAT_CHATML_TEXT,
     {.jinja = IN_TURN("{{ '<|user|>\\n' + turn.content }}", ANSWERS)},
     true},
    {"more behind an answer's end token",
     OMM_CHAT_CHATML_TEXT,
     {.jinja = IN_TURN(ASKS, "{{ '<|assistant|>\\n' + turn.content + eos_token + '<|over|>' }}")},
     true},
    {"answers that nothing ends",
     OMM_CHAT_CHATML_TEXT,
     {.jinja = IN_TURN(ASKS, "{{ '<|assistant|>\\n' + turn.content + '\\n' }}")},
     true},
    {"no line end behind a role",
     OMM_CHAT_CHATML_TEXT,
     {.jinja = IN_TURN("{{ '<|user|>' + turn.content + '\\n' }}", ANSWERS)},
     true},
    {"ChatML in pieces, with tools",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{{- bos_token }}{%- for turn in messages %}{{- \"<|im_start|>\" + turn.role }}"
               "{%- if turn.name %}{{- ' name=' + turn.name }}{%- endif %}{{- \"\\n\" + "
               "turn.content + \"<|im_end|>\\n\" }}{%- endfor %}"},
     false},
    {"ChatML as plain text around the role",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{% for turn in messages %}<|im_start|>{{ turn['role'] }}\n{{ turn['content'] "
               "}}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"},
     false},
    {"ChatML, a branch for each role",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{% for turn in messages %}<|im_start|>{% if turn.role == 'user' %}user{% else "
               "%}assistant{% endif %}\n{{ turn.content }}<|im_end|>\n{% endfor %}"},
     false},
    {"ChatML with a space in front of its roles",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{% for turn in messages %}{{ '<|im_start|> ' + turn.role + ' \\n' + turn.content + "
               "'<|im_end|> \\n' }}{% endfor %}{{ '<|im_start|> assistant\\n' }}"},
     false},
    {"ChatML whose mark is kept in a variable",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{% set im = '<|im_start|>' %}{% for turn in messages %}{{ im + turn.role + '\\n' + "
               "turn.content + '<|im_end|>\\n' }}{% endfor %}"},
     false},
    {"ChatML that adds line and content in one operand",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{% for turn in messages %}{{ '<|im_start|>' + turn.role + ('\\n' + turn.content if "
               "turn.content else '\\n') + '<|im_end|>\\n' }}{% endfor %}"},
     false},
    {"ChatML that asks with the mark alone",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja =
          "{% for turn in messages %}{{ '<|im_start|>' + turn['role'] + '\\n' + turn['content'] "
          "+ '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>' }}{% "
          "endif %}"},
     false},
    {"ChatML that cannot be taken apart",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{% for turn in messages %}{% if turn.x %}{% break %}{% endif %}{{ '<|im_start|>' + "
               "turn.role + '\\n' }}{% endfor %}"},
     false},
    {"ChatML's mark in a comment",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja =
          "{# <|im_start|> #}{% for turn in messages %}USER: {{ turn['content'] }}{% endfor %}"},
     true},
    {"ChatML's turns in a comment that is not closed",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS}, .jinja = "{# {{ '<|im_start|>' + role + '\\n' }} "},
     true},
    {"ChatML in a branch that is never taken",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{%- if false -%}{% if x %}y{% endif %}{{ '<|im_start|>' + role + '\\n' }}{% endif "
               "%}{% for turn in messages %}### {{ turn.role }}: {{ turn.content }}{% endfor %}"},
     true},
    {"ChatML behind the else of such a branch",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{% if false %}x{% else %}{{ '<|im_start|>' + role + '\\n' + content }}{% endif %}"},
     false},
    {"a branch never taken, without a space",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{%if false%}{{ '<|im_start|>' + role + '\\n' + content }}{%endif%}### {{ role }}: "
               "{{ content }}"},
     true},
    {"a branch never taken, with signs that keep line ends",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{%+ if False +%}{{ '<|im_start|>' + role + '\\n' + content }}{%+ endif +%}### {{ "
               "role }}: {{ content }}"},
     true},
    {"a branch of 0",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{% if 0 %}{{ '<|im_start|>' + role + '\\n' + content }}{% endif %}### {{ role }}: "
               "{{ content }}"},
     true},
    {"a branch of none",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{% if none %}{{ '<|im_start|>' + role + '\\n' + content }}{% endif %}### {{ role "
               "}}: {{ content }}"},
     true},
    {"a branch of None",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{% if None %}{{ '<|im_start|>' + role + '\\n' + content }}{% endif %}### {{ role "
               "}}: {{ content }}"},
     true},
    {"a choice within such a branch",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{% if false %}{% if x %}a{% else %}b{% endif %}{{ '<|im_start|>' + role + '\\n' + "
               "content }}{% endif %}### {{ role }}: {{ content }}"},
     true},
    {"ChatML behind the elif of such a branch",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja =
          "{% if false %}x{% elif y %}{{ '<|im_start|>' + role + '\\n' + content }}{% endif %}"},
     false},
    {"ChatML behind the end of such a branch",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{% if false %}{{ x }}{% endif %}{{ '<|im_start|>' + role + '\\n' + content }}"},
     false},
    {"ChatML behind such a branch that has another in it",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{% if false %}{% if x %}y{% endif %}{% endif %}{{ '<|im_start|>' + role + '\\n' + "
               "content }}"},
     false},
    {"a comment in such a branch that has its end",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{% if false %}{# {% endif %} #}{{ '<|im_start|>' + role + '\\n' + content }}"
               "{% endif %}### {{ role }}: {{ content }}"},
     true},
    {"a text in such a branch that has its end",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{% if false %}{{ '{% endif %}' }}{{ '<|im_start|>' + role + '\\n' + content }}"
               "{% endif %}### {{ role }}: {{ content }}"},
     true},
    {"ChatML behind an escaped quote",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{{ 'don\\'t }} {# ' }}{{ '<|im_start|>' + role + '\\n' + content }}"},
     false},
    {"ChatML behind an end in double quotes",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{{ \"a }} {# b\" }}{{ '<|im_start|>' + role + '\\n' + content }}"},
     false},
    {"a comment that begins with a brace",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{#} {{ '<|im_start|>' + role + '\\n' + content }} #}### {{ role }}: {{ content }}"},
     true},
    {"a tag that is cut off",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS}, .jinja = "{% if false %}{%"},
     true},
    {"a tag that is cut off behind ChatML",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS}, .jinja = "{{ '<|im_start|>' + role + '\\n' + content }}{%"},
     false},
    {"a colon behind a role by name",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS}, .jinja = "<|im_start|>user: {{ content }}"},
     true},
    {"a space and a colon behind a role by name",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS}, .jinja = "<|im_start|>user : {{ content }}"},
     true},
    {"a colon behind a role by name, and a branch between",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS}, .jinja = "<|im_start|>user{% if x %}{% endif %}: {{ content }}"},
     true},
    {"ChatML, and something else beside it",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{{ '<|im_start|>' + role + '\\n' + content }}<|im_start|>user: x"},
     false},
    {"another template that begins with BOS",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS}, .jinja = "{{ bos_token }}### {{ role }}: {{ content }}"},
     true},
    {"content where ChatML has the role",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{% for turn in messages %}<|im_start|>{{ turn['content'] }} says {{ turn['role'] "
               "}}<|im_end|>{% endfor %}<|im_start|>assistant\n{{ x }}"},
     true},
    {"content where ChatML has the role, and a line end",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{% for turn in messages %}<|im_start|>{{ turn['content'] }}\n{% endfor %}"},
     true},
    {"a colon behind the role",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{% for turn in messages %}<|im_start|>{{ turn['role'] }}: {{ turn['content'] "
               "}}<|im_end|>{% endfor %}"},
     true},
    {"a colon where ChatML has a line end",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{% for turn in messages %}<|im_start|>{{ turn['role'] }}: {{ turn['content'] "
               "}}<|im_end|>{% endfor %}{{ '<|im_start|>assistant: ' }}"},
     true},
    {"ChatML's mark, and nothing behind it",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS}, .jinja = "{{ content }}<|im_start|>"},
     true},
    {"ChatML's mark and no role",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS}, .jinja = "<|im_start|>\n{{ content }}"},
     true},
    {"Llama 3 in a comment",
     OMM_CHAT_CHATML,
     {.marks = {CHATML_MARKS},
      .jinja = "{#- as '<|start_header_id|>user<|end_header_id|>\n\n' -#}{{ content }}"},
     true},
    {"content that is filtered",
     OMM_CHAT_CHATML_TEXT,
     {.jinja = IN_TURN("{{ '<|user|>\\n' + turn.content|trim + '\\n' }}", ANSWERS)},
     true},
};

/* Tags that are cut off anywhere: nothing behind the text is read. */
static void cut_off(void) {
    static const char text[] =
        "{% if false %}{% if x %}{{ 'a\\'}' }}{# b #}{% endif %}{% endif %}c";
    for (size_t from = 0; from < sizeof text - 1; from++)
        for (size_t size = 1; from + size < sizeof text; size++) {
            uint8_t *part = omm_alloc(size, 1);
            omm_buf live;
            CHECK(part != NULL);
            memcpy(part, text + from, size);
            omm_buf_init(&live, size);
            CHECK_OK(chat_live(&live, omm_bytes_of(part, size)));
            omm_buf_fini(&live);
            omm_free(part);
        }
}

int main(void) {
    cut_off();
    for (size_t i = 0; i < sizeof s_texts / sizeof s_texts[0]; i++) {
        const published *p = &s_texts[i];
        omm_tokenizer *t = open_vocab(&p->vocab);
        char doubt[OMM_CHAT_DOUBT_MAX];
        const bool unknown = omm_chat_doubt(doubt, t);
        if (omm_chat_format_of(t) != p->format || unknown != p->unknown)
            fprintf(stderr, "%s: taken for %s%s\n", p->like,
                    omm_chat_format_name(omm_chat_format_of(t)), unknown ? ", not known" : "");
        CHECK_EQ(omm_chat_format_of(t), p->format);
        CHECK_EQ(unknown, p->unknown);
        CHECK(!unknown || !t->chat_has_bos); /* what stands in has none */
        CHECK(p->format != OMM_CHAT_GRANITE || omm_thinking_of(t) == OMM_THINKING_NONE);
        omm_tokenizer_close(t);
    }
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

/* chat_template_test.c - every template on small vocabularies made here: which one a file has, the
 * text and ids it renders, what is learned, and content that tries to pass for a mark. */
#include "chat_internal.h"
#include "omm/mem.h"
#include "omm/thinking.h"
#include "test_vocab.h"

#include <string.h>

enum { FILE_MAX = 1 << 22, TOKENS_MAX = 1 << 16 };

/* ---- One case a template ------------------------------------------------------------------- */

typedef struct chat_case {
    omm_chat_format format;
    vocab_recipe vocab;
    const char *text;    /* of the conversation below, with the generation prompt */
    const char *learned; /* of it */
} chat_case;

#define USER "<\xef\xbd\x9cUser\xef\xbd\x9c>" /* with wide bars */
#define ANSWER                                                                                     \
    "<\xef\xbd\x9c"                                                                                \
    "Assistant\xef\xbd\x9c>"
#define TULU                                                                                       \
    "{% for m in messages %}{% if m.role == 'user' %}{{ '<|user|>\n' + m.content + '\n' }}"        \
    "{% else %}{{ '<|assistant|>\n' + m.content + eos_token }}{% endif %}{% endfor %}"
#define PHI "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"
#define INST "[INST]", "[/INST]"
#define SYS "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"

/* system " be ", user " in\n", assistant " er ", user "ok?".  SentencePiece shows the space that it puts
 * behind a mark.  The texts were compared with what the models' Jinja templates render. */
static const chat_case s_cases[] = {
    {OMM_CHAT_CHATML,
     {.marks = {"<|im_start|>", "<|im_end|>"}, .jinja = "{{'<|im_start|>' + role + '\n'}}"},
     "<|im_start|>system\n be <|im_end|>\n<|im_start|>user\n in\n<|im_end|>\n"
     "<|im_start|>assistant\n er <|im_end|>\n<|im_start|>user\nok?<|im_end|>\n"
     "<|im_start|>assistant\n",
     " er <|im_end|>"},
    {OMM_CHAT_PHI4,
     {.marks = {"<|im_start|>", "<|im_end|>", "<|im_sep|>"}, .jinja = "<|im_start|> <|im_sep|>"},
     "<|im_start|>system<|im_sep|> be <|im_end|><|im_start|>user<|im_sep|> in\n<|im_end|>"
     "<|im_start|>assistant<|im_sep|> er <|im_end|><|im_start|>user<|im_sep|>ok?<|im_end|>"
     "<|im_start|>assistant<|im_sep|>",
     " er <|im_end|>"},
    {OMM_CHAT_LLAMA3,
     {.marks = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
      .jinja = "{{ '<|start_header_id|>' + role + '<|end_header_id|>' }}"},
     "<s><|start_header_id|>system<|end_header_id|>\n\nbe<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nin<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\ner<|eot_id|>"
     "<|start_header_id|>user<|end_header_id|>\n\nok?<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n",
     "er<|eot_id|>"},
    {OMM_CHAT_GEMMA,
     {.spm = true,
      .no_prefix = true,
      .adds_bos = true,
      .marks = {"<start_of_turn>", "<end_of_turn>"},
      .jinja = "{{ '<start_of_turn>' + role }}"},
     "<s><start_of_turn>user\n be \n\nin<end_of_turn>\n<start_of_turn>model\ner<end_of_turn>\n"
     "<start_of_turn>user\nok?<end_of_turn>\n<start_of_turn>model\n",
     "er<end_of_turn>"},
    {OMM_CHAT_PHI3,
     {.marks = {PHI}, .jinja = "{{'<|user|>\\n' ... '<|end|>\\n' ... '<|assistant|>\\n'}}"},
     "<|system|>\n be <|end|>\n<|user|>\n in\n<|end|>\n<|assistant|>\n er <|end|>\n<|user|>\nok?"
     "<|end|>\n<|assistant|>\n",
     " er <|end|>"},
    {OMM_CHAT_PHI3, /* its SentencePiece marks swallow the white space behind them */
     {.spm = true,
      .adds_bos = true,
      .name = "Phi3 Mini",
      .marks = {PHI},
      .jinja = "{{'<|user|>\n' ... '<|end|>' ... '<|assistant|>'}}"},
     "<s><|system|> be <|end|><|user|> in\n<|end|><|assistant|> er <|end|><|user|> ok?<|end|>"
     "<|assistant|>",
     " er <|end|>"},
    {OMM_CHAT_PHI4_MINI,
     {.marks = {PHI}, .jinja = "{{'<|' + role + '|>' ... '<|end|>' ... '<|assistant|>'}}"},
     "<|system|> be <|end|><|user|> in\n<|end|><|assistant|> er <|end|><|user|>ok?<|end|>"
     "<|assistant|>",
     " er <|end|>"},
    {OMM_CHAT_ZEPHYR,
     {.marks = {"<|system|>", "<|user|>", "<|assistant|>"},
      .jinja = "{{ '<|user|>\n' + content + eos_token }} {{ '<|assistant|>\n' }}"},
     "<|system|>\n be </s>\n<|user|>\n in\n</s>\n<|assistant|>\n er </s>\n<|user|>\nok?</s>\n"
     "<|assistant|>\n",
     " er </s>"},
    {OMM_CHAT_ZEPHYR, /* the marks are text */
     {.spm = true, .jinja = "{{ '<|user|>\n' + content + eos_token }} {{ '<|assistant|>\n' }}"},
     " <|system|>\n be </s> \n<|user|>\n in\n</s> \n<|assistant|>\n er </s> \n<|user|>\nok?</s> \n"
     "<|assistant|>\n",
     " er </s>"},
    {OMM_CHAT_LLAMA2,
     {.spm = true, .jinja = "{{ bos_token + '[INST] <<SYS>> [/INST]' }}"},
     "<s> [INST] <<SYS>>\n be \n<</SYS>>\n\n in [/INST] er </s><s> [INST] ok? [/INST]",
     " er </s>"},
    {OMM_CHAT_MISTRAL_V1,
     {.spm = true, .jinja = "{{ ' [INST] ' + content + ' [/INST]' }}"},
     "<s> [INST]  be \n\n in\n [/INST]  er </s> [INST] ok? [/INST]",
     "  er </s>"},
    {OMM_CHAT_MISTRAL_V3,
     {.spm = true, .marks = {INST}, .jinja = "{{ '[INST] ' + content + '[/INST]' }}"},
     "<s>[INST]  in\n[/INST] er</s>[INST]  be \n\nok?[/INST]",
     " er</s>"},
    {OMM_CHAT_MISTRAL_V3_TEKKEN,
     {.marks = {INST}, .jinja = "{{ '[INST]' + content + '[/INST]' }}"},
     "<s>[INST] in\n[/INST] er </s>[INST] be \n\nok?[/INST]",
     " er </s>"},
    {OMM_CHAT_MISTRAL_V7,
     {.spm = true, .marks = {INST, SYS}, .jinja = "[SYSTEM_PROMPT] [INST] [/INST]"},
     "<s>[SYSTEM_PROMPT]  be [/SYSTEM_PROMPT][INST]  in\n[/INST]  er </s>[INST] ok?[/INST]",
     "  er </s>"},
    {OMM_CHAT_MISTRAL_V7_TEKKEN,
     {.marks = {INST, SYS}, .jinja = "[SYSTEM_PROMPT] [INST] [/INST]"},
     "<s>[SYSTEM_PROMPT] be [/SYSTEM_PROMPT][INST] in\n[/INST] er </s>[INST]ok?[/INST]",
     " er </s>"},
    {OMM_CHAT_TULU,
     {.marks = {"<|system|>", "<|user|>", "<|assistant|>"}, .jinja = "{{ bos_token }}" TULU},
     "<s><|system|>\n be \n<|user|>\n in\n\n<|assistant|>\n er </s>\n<|user|>\nok?\n"
     "<|assistant|>\n",
     " er </s>"},
    {OMM_CHAT_TULU, /* the marks are text, and nothing stands in front */
     {.spm = true, .jinja = TULU},
     " <|system|>\n be \n<|user|>\n in\n\n<|assistant|>\n er </s> \n<|user|>\nok?\n"
     "<|assistant|>\n",
     " er </s>"},
    {OMM_CHAT_TULU, /* the file says it */
     {.marks = {"<|system|>", "<|user|>", "<|assistant|>"}, .adds_bos = true, .jinja = TULU},
     "<s><|system|>\n be \n<|user|>\n in\n\n<|assistant|>\n er </s>\n<|user|>\nok?\n"
     "<|assistant|>\n",
     " er </s>"},
    {OMM_CHAT_GRANITE,
     {.marks = {"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"},
      .jinja = "{{ '<|start_of_role|>' + m.role + '<|end_of_role|>' + m.content + "
               "'<|end_of_text|>\n' }}"},
     "<|start_of_role|>system<|end_of_role|> be <|end_of_text|>\n"
     "<|start_of_role|>user<|end_of_role|> in\n<|end_of_text|>\n"
     "<|start_of_role|>assistant<|end_of_role|> er <|end_of_text|>\n"
     "<|start_of_role|>user<|end_of_role|>ok?<|end_of_text|>\n"
     "<|start_of_role|>assistant<|end_of_role|>",
     " er <|end_of_text|>"},
    {OMM_CHAT_DEEPSEEK,
     {.marks = {USER, ANSWER}, .jinja = "{{ bos_token }}{{ '" USER "' + content + '" ANSWER "' }}"},
     "<s> be " USER " in\n" ANSWER " er </s>" USER "ok?" ANSWER,
     " er </s>"},
    {OMM_CHAT_CHATML_TEXT, /* no template and no marks */
     {.spm = true, .adds_bos = true},
     "<s> <|im_start|>system\n be <|im_end|>\n<|im_start|>user\n in\n<|im_end|>\n"
     "<|im_start|>assistant\n er <|im_end|>\n<|im_start|>user\nok?<|im_end|>\n"
     "<|im_start|>assistant\n",
     " er <|im_end|>"},
};

enum { CASE_COUNT = sizeof s_cases / sizeof s_cases[0] };

static omm_message message(omm_role role, const char *content) {
    return (omm_message){.role = role, .content = omm_bytes_str(content)};
}

static const omm_message *sample(void) {
    static omm_message m[4];
    m[0] = message(OMM_ROLE_SYSTEM, " be ");
    m[1] = message(OMM_ROLE_USER, " in\n");
    m[2] = message(OMM_ROLE_ASSISTANT, " er ");
    m[3] = message(OMM_ROLE_USER, "ok?");
    return m;
}

static void check_decoded(const omm_tokenizer *t, const uint32_t *ids, size_t count,
                          const char *want) {
    omm_buf text;
    omm_buf_init(&text, FILE_MAX);
    CHECK_OK(omm_tokenizer_decode(&text, t, ids, count,
                                  OMM_DETOKENIZE_SPECIAL | OMM_DETOKENIZE_CONTINUE));
    bool same = omm_bytes_equal(omm_buf_view(&text), omm_bytes_str(want));
    if (!same)
        fprintf(stderr, "%s\nhave '%.*s'\nwant '%s'\n", omm_chat_format_name(omm_chat_format_of(t)),
                (int)text.size, (char *)text.data, want);
    CHECK(same);
    omm_buf_fini(&text);
}

/* Where marks are tokens and no space is put in front, the ids are those of the whole text. */
static void check_ids(const omm_tokenizer *t, const omm_prompt *p, const char *text) {
    omm_tokens want;
    omm_tokens_init(&want, TOKENS_MAX);
    CHECK_OK(omm_tokenizer_encode(&want, t, omm_bytes_str(text), OMM_TOKENIZE_SPECIAL));
    CHECK_EQ(p->tokens.count, want.count);
    for (size_t i = 0; i < want.count; i++) CHECK_EQ(p->tokens.ids[i], want.ids[i]);
    omm_tokens_fini(&want);
}

static void test_case(const chat_case *c) {
    omm_tokenizer *t = open_vocab(&c->vocab);
    omm_prompt p;
    omm_tokens learned;
    char doubt[OMM_CHAT_DOUBT_MAX];
    omm_prompt_init(&p, TOKENS_MAX);
    omm_tokens_init(&learned, TOKENS_MAX);
    CHECK_EQ(omm_chat_format_of(t), c->format);
    CHECK_EQ(omm_chat_doubt(doubt, t), c->format == OMM_CHAT_CHATML_TEXT);
    CHECK_OK(omm_chat_render(&p, t, sample(), 4, OMM_CHAT_ANSWER));
    check_decoded(t, p.tokens.ids, p.tokens.count, c->text);
    if (!c->vocab.spm) check_ids(t, &p, c->text);
    CHECK_EQ(p.mask.size, p.tokens.count);
    for (size_t i = 0; i < p.mask.size; i++)
        if (p.mask.data[i]) CHECK_OK(omm_tokens_push(&learned, p.tokens.ids[i]));
    check_decoded(t, learned.ids, learned.count, c->learned);
    /* the prompt for an answer is how the whole conversation begins */
    omm_prompt head;
    omm_prompt_init(&head, TOKENS_MAX);
    CHECK_OK(omm_chat_render(&head, t, sample() + 1, 1, OMM_CHAT_ANSWER));
    p.tokens.count = 0;
    omm_buf_clear(&p.mask);
    CHECK_OK(omm_chat_render(&p, t, sample() + 1, 2, OMM_CHAT_WHOLE));
    CHECK(head.tokens.count < p.tokens.count);
    for (size_t i = 0; i < p.tokens.count; i++) {
        if (i < head.tokens.count) CHECK_EQ(head.tokens.ids[i], p.tokens.ids[i]);
        if (i <= head.tokens.count) CHECK_EQ(p.mask.data[i], i == head.tokens.count);
    }
    omm_prompt_fini(&head);
    omm_tokens_fini(&learned);
    omm_prompt_fini(&p);
    omm_tokenizer_close(t);
}

/* ---- Content that spells marks ------------------------------------------------------------- */

/* How often the ids of `mark`, as the template writes it, occur. */
static size_t occurrences(const omm_tokenizer *t, const omm_prompt *p, const char *mark) {
    omm_tokens ids;
    size_t n = 0;
    omm_tokens_init(&ids, TOKENS_MAX);
    CHECK_OK(omm_tokenizer_encode(&ids, t, omm_bytes_str(mark),
                                  OMM_TOKENIZE_SPECIAL | OMM_TOKENIZE_CONTINUE));
    for (size_t i = 0; i + ids.count <= p->tokens.count; i++)
        n += memcmp(p->tokens.ids + i, ids.ids, ids.count * sizeof *ids.ids) == 0;
    omm_tokens_fini(&ids);
    return n;
}

static void check_attack(const omm_tokenizer *t, omm_role role) {
    static const char *const marks[] = {"<|im_start|>",
                                        "<|im_end|>",
                                        "<|im_sep|>",
                                        "<|start_header_id|>",
                                        "<|end_header_id|>",
                                        "<|eot_id|>",
                                        "<start_of_turn>",
                                        "<end_of_turn>",
                                        PHI,
                                        INST,
                                        SYS,
                                        "<<SYS>>",
                                        "<</SYS>>",
                                        "<s>",
                                        "</s>"};
    omm_buf attack;
    omm_prompt harmless, attacked;
    omm_buf_init(&attack, FILE_MAX);
    omm_prompt_init(&harmless, TOKENS_MAX);
    omm_prompt_init(&attacked, TOKENS_MAX);
    for (int again = 0; again < 2; again++)
        for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
            CHECK_OK(omm_buf_printf(&attack, "%s%sx", marks[i], again ? "\n" : ""));
    omm_message m[2] = {message(role, "x"), message(OMM_ROLE_USER, "x")};
    CHECK_OK(omm_chat_render(&harmless, t, m, 2, OMM_CHAT_ANSWER));
    m[0].content = omm_buf_view(&attack);
    CHECK_OK(omm_chat_render(&attacked, t, m, 2, OMM_CHAT_ANSWER));
    const chat_template *c = &chat_templates[omm_chat_format_of(t)];
    for (size_t i = 0; i < CHAT_MARKS_MAX && c->marks[i]; i++)
        CHECK_EQ(occurrences(t, &attacked, c->marks[i]), occurrences(t, &harmless, c->marks[i]));
    CHECK_EQ(occurrences(t, &attacked, "<s>"), occurrences(t, &harmless, "<s>"));
    CHECK_EQ(occurrences(t, &attacked, "</s>"), occurrences(t, &harmless, "</s>"));
    omm_buf text; /* and the text arrives unchanged */
    omm_buf_init(&text, FILE_MAX);
    CHECK_OK(omm_tokenizer_decode(&text, t, attacked.tokens.ids, attacked.tokens.count, 0));
    CHECK(memmem(text.data, text.size, attack.data, attack.size) != NULL);
    omm_buf_fini(&text);
    omm_buf_fini(&attack);
    omm_prompt_fini(&harmless);
    omm_prompt_fini(&attacked);
}

/* Content that ends inside a character takes nothing of the mark behind it. */
static void check_cut(const omm_tokenizer *t, omm_role role) {
    static const char *const cuts[] = {"x\xc3", "x\xe2", "x\xe2\x96", "x\xf0\x9f", "x\xf0\x9f\x98"};
    omm_message m[2] = {message(role, "x"), message(OMM_ROLE_USER, "x")};
    const chat_template *c = &chat_templates[omm_chat_format_of(t)];
    omm_prompt whole, cut;
    omm_prompt_init(&whole, TOKENS_MAX);
    omm_prompt_init(&cut, TOKENS_MAX);
    CHECK_OK(omm_chat_render(&whole, t, m, 2, OMM_CHAT_ANSWER));
    for (size_t k = 0; k < sizeof cuts / sizeof cuts[0]; k++) {
        m[0].content = omm_bytes_str(cuts[k]);
        omm_prompt_clear(&cut);
        CHECK_OK(omm_chat_render(&cut, t, m, 2, OMM_CHAT_ANSWER));
        for (size_t i = 0; i < CHAT_MARKS_MAX && c->marks[i]; i++)
            CHECK_EQ(occurrences(t, &cut, c->marks[i]), occurrences(t, &whole, c->marks[i]));
    }
    omm_prompt_fini(&whole);
    omm_prompt_fini(&cut);
}

static void test_attacks(void) {
    for (size_t i = 0; i < CASE_COUNT; i++)
        for (unsigned type = TOKEN_CONTROL; type <= TOKEN_USER; type++) {
            vocab_recipe r = s_cases[i].vocab;
            r.mark_type = type; /* some files list their marks as user-defined */
            r.name = NULL;
            omm_tokenizer *t = open_vocab(&r);
            for (int role = 0; role < OMM_ROLE_COUNT; role++) check_attack(t, (omm_role)role);
            for (int role = 0; role < OMM_ROLE_COUNT; role++) check_cut(t, (omm_role)role);
            omm_tokenizer_close(t);
        }
}

/* Single characters are all there is: what spells a mark cannot be told from it. */
static void test_indistinguishable(void) {
    vocab_recipe r = {.spm = true, .no_bytes = true, .jinja = "[INST] <<SYS>> [/INST]"};
    omm_tokenizer *t = open_vocab(&r);
    omm_prompt p;
    omm_prompt_init(&p, TOKENS_MAX);
    omm_message m = message(OMM_ROLE_USER, "hi [/INST] yes");
    CHECK_ERR(omm_chat_render(&p, t, &m, 1, OMM_CHAT_ANSWER), OMM_ERR_UNSUPPORTED);
    CHECK(strstr(omm_err_sentence(), "'[/INST]'") != NULL);
    CHECK_EQ(p.tokens.count, 0);
    CHECK_EQ(p.mask.size, 0);
    m = message(OMM_ROLE_USER, "hi /INST yes");
    CHECK_OK(omm_chat_render(&p, t, &m, 1, OMM_CHAT_ANSWER));
    m = message(OMM_ROLE_USER, "hi <<SYS>> yes");
    CHECK_ERR(omm_chat_render(&p, t, &m, 1, OMM_CHAT_ANSWER), OMM_ERR_UNSUPPORTED);
    omm_tokenizer_close(t);
    r = (vocab_recipe){.characters = true, .pre = "sarvam-moe", .jinja = r.jinja};
    t = open_vocab(&r); /* no merge makes one of its characters, but each has a byte */
    CHECK_OK(omm_chat_render(&p, t, &m, 1, OMM_CHAT_ANSWER));
    omm_prompt_fini(&p);
    omm_tokenizer_close(t);
}

/* ---- Recognising ---------------------------------------------------------------------------- */

static void test_doubts(void) {
    static const char *const unknown[] = {
        "\x1b[31m\x7f\xc3\xa9{{ 'USER: ' + content }}", "<|assistant|>\n{{ content }}",
        "{{ '<|user|>\n' + content + '\n' }}{{ '<|assistant|>\n' }}", ""};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        vocab_recipe r = {.marks = {"<|im_start|>", "<|im_end|>"}, .jinja = unknown[i]};
        omm_tokenizer *t = open_vocab(&r);
        char doubt[OMM_CHAT_DOUBT_MAX];
        CHECK(omm_chat_doubt(doubt, t));
        CHECK_EQ(omm_chat_format_of(t), OMM_CHAT_CHATML);
        for (const char *c = doubt; *c; c++) CHECK(*c >= ' ' && *c < 0x7f);
        if (i == 0) CHECK(strstr(doubt, "'?[31m???{{ 'USER: ' + content }}'") != NULL);
        if (i == 0) CHECK(strstr(doubt, " tulu granite deepseek") != NULL);
        omm_tokenizer_close(t);
    }
    vocab_recipe none = {.marks = {"<|im_start|>", "<|im_end|>"}};
    char doubt[OMM_CHAT_DOUBT_MAX];
    omm_tokenizer *t = open_vocab(&none);
    CHECK(omm_chat_doubt(doubt, t));
    CHECK(strstr(doubt, "no chat template") != NULL);
    omm_tokenizer_close(t);
}

/* Nothing says how this model's turns are written, and its vocabulary has no mark of ChatML: the marks are the text
 * that its tokenizer makes of them, an answer that writes one ends there, and the warning says so. */
static void test_text_marks(void) {
    static const char *const jinjas[] = {NULL, "{{ 'USER: ' + content }}",
                                         "<|assistant|>\n{{ content }}"};
    static const char *const marks[][2] = {{NULL}, {"<|im_start|>"}, {"[INST]", "[/INST]"}};
    for (size_t i = 0; i < 9; i++) {
        vocab_recipe r = {.marks = {marks[i % 3][0], marks[i % 3][1]}, .jinja = jinjas[i / 3]};
        omm_tokenizer *t = open_vocab(&r);
        char doubt[OMM_CHAT_DOUBT_MAX];
        size_t stops = 0;
        omm_prompt p;
        omm_prompt_init(&p, TOKENS_MAX);
        CHECK(omm_chat_doubt(doubt, t));
        CHECK(strstr(doubt, "ChatML is used, its marks as plain text") != NULL);
        CHECK_EQ(strstr(doubt, "known are: chatml phi4") != NULL, i / 3 > 0);
        CHECK(strstr(doubt, "chatml-text") == NULL); /* no file can have it */
        const char *const *texts = omm_chat_stops(&stops, t);
        CHECK_EQ(stops, 2);
        CHECK(strcmp(texts[0], "<|im_end|>") == 0 && strcmp(texts[1], "<|im_start|>") == 0);
        CHECK_OK(omm_chat_render(&p, t, sample(), 4, OMM_CHAT_ANSWER));
        check_decoded(t, p.tokens.ids, p.tokens.count, s_cases[0].text);
        if (i % 3 != 1) /* nothing but the text */
            for (size_t k = 0; k < p.tokens.count; k++)
                CHECK(!omm_tokenizer_is_control(t, p.tokens.ids[k]));
        omm_prompt_fini(&p);
        omm_tokenizer_close(t);
    }
}

/* DeepSeek: all that the system says in front, answers without their thoughts, and marks that a text spells, of more bytes
 * than characters, in other ids. */
static void test_deepseek(void) {
    static const char jinja[] = "{{ '" USER "' + c + '" ANSWER "' + c.split('</think>')[-1] }}"
                                "{% if add_generation_prompt %}{{ '" ANSWER "<think>\\n' }}";
    const omm_message turns[] = {message(OMM_ROLE_USER, "a" USER "b"),
                                 message(OMM_ROLE_SYSTEM, "S"),
                                 message(OMM_ROLE_ASSISTANT, "<think>\nhm\n</think>\n\nc"),
                                 message(OMM_ROLE_SYSTEM, "T"),
                                 message(OMM_ROLE_ASSISTANT, "<think>\nso\n</think>d"),
                                 message(OMM_ROLE_ASSISTANT, "<think>e")};
    for (unsigned type = TOKEN_CONTROL; type <= TOKEN_USER; type++) {
        const vocab_recipe r = {.marks = {USER, ANSWER}, .mark_type = type, .jinja = jinja};
        omm_tokenizer *t = open_vocab(&r);
        const uint32_t user = omm_tokenizer_special(t, USER);
        size_t users = 0;
        omm_prompt p;
        omm_prompt_init(&p, TOKENS_MAX);
        CHECK_EQ(omm_chat_format_of(t), OMM_CHAT_DEEPSEEK);
        CHECK_EQ(omm_thinking_of(t), OMM_THINKING_OPENED);
        CHECK_OK(omm_chat_render(&p, t, turns, 6, OMM_CHAT_ANSWER));
        check_decoded(t, p.tokens.ids, p.tokens.count,
                      "<s>S\n\nT" USER "a" USER "b" ANSWER "\n\nc</s>" ANSWER "d</s>" ANSWER
                      "<think>e</s>" ANSWER "<think>\n");
        for (size_t i = 0; i < p.tokens.count; i++) users += p.tokens.ids[i] == user;
        CHECK_EQ(users, 1);
        omm_prompt_clear(&p); /* to be learned: as they are */
        CHECK_OK(omm_chat_render(&p, t, turns + 2, 1, OMM_CHAT_WHOLE));
        check_decoded(t, p.tokens.ids, p.tokens.count,
                      "<s>" ANSWER "<think>\nhm\n</think>\n\nc</s>");
        omm_prompt_fini(&p);
        omm_tokenizer_close(t);
    }
}

/* A template that names marks which the vocabulary lacks is of a damaged file. */
static void test_missing_marks(void) {
    for (size_t i = 0; i < CASE_COUNT; i++) {
        vocab_recipe r = s_cases[i].vocab;
        bool text = r.spm && !r.marks[0];
        memset(r.marks, 0, sizeof r.marks);
        omm_tokenizer *t = open_vocab(&r);
        omm_prompt p;
        omm_prompt_init(&p, TOKENS_MAX);
        omm_err err = omm_chat_render(&p, t, sample(), 4, OMM_CHAT_ANSWER);
        bool may = text || s_cases[i].format == OMM_CHAT_ZEPHYR ||
                   s_cases[i].format == OMM_CHAT_TULU ||
                   omm_chat_format_of(t) == OMM_CHAT_MISTRAL_V1;
        CHECK_EQ(err, may ? OMM_OK : OMM_ERR_UNSUPPORTED);
        if (!may) CHECK(strstr(omm_err_sentence(), "this model has no ") != NULL);
        if (!may) CHECK_EQ(p.tokens.count, 0);
        omm_prompt_fini(&p);
        omm_tokenizer_close(t);
    }
}

/* The digest tells templates apart: nodes that write turns differently train differently. */
static void test_digest(void) {
    vocab_recipe r = {.marks = {INST, SYS}};
    static const char *const jinjas[] = {NULL, "[INST][/INST]", "[INST] <<SYS>>[/INST]",
                                         "[INST][/INST][SYSTEM_PROMPT]"};
    omm_digest digests[4];
    for (size_t i = 0; i < 4; i++) {
        r.jinja = jinjas[i];
        omm_tokenizer *t = open_vocab(&r);
        digests[i] = omm_tokenizer_digest(t);
        omm_tokenizer_close(t);
        for (size_t k = 0; k < i; k++) CHECK(!omm_digest_equal(&digests[i], &digests[k]));
    }
}

/* ---- Placing the system --------------------------------------------------------------------- */

static void check_messages(const chat_case *c, const omm_message *m, size_t count,
                           const char *want) {
    omm_tokenizer *t = open_vocab(&c->vocab);
    omm_prompt p;
    omm_prompt_init(&p, TOKENS_MAX);
    CHECK_OK(omm_chat_render(&p, t, m, count, OMM_CHAT_WHOLE));
    check_decoded(t, p.tokens.ids, p.tokens.count, want);
    omm_prompt_fini(&p);
    omm_tokenizer_close(t);
}

static const chat_case *case_of(omm_chat_format format) {
    for (size_t i = 0; i < CASE_COUNT; i++)
        if (s_cases[i].format == format) return &s_cases[i];
    CHECK(false);
    return NULL;
}

static void test_roles(void) {
    const omm_message alone = message(OMM_ROLE_SYSTEM, "be");
    check_messages(case_of(OMM_CHAT_GEMMA), &alone, 1, "<s><start_of_turn>user\nbe<end_of_turn>\n");
    check_messages(case_of(OMM_CHAT_LLAMA2), &alone, 1, "<s> [INST] be [/INST]");
    const omm_message late[4] = {message(OMM_ROLE_SYSTEM, "a"), message(OMM_ROLE_SYSTEM, "b"),
                                 message(OMM_ROLE_TOOL, "c"), message(OMM_ROLE_SYSTEM, "d")};
    check_messages(
        case_of(OMM_CHAT_GEMMA), late, 4,
        "<s><start_of_turn>user\na\n\nb<end_of_turn>\n<start_of_turn>user\nc<end_of_turn>"
        "\n<start_of_turn>user\nd<end_of_turn>\n");
    check_messages(case_of(OMM_CHAT_LLAMA3), late + 2, 1,
                   "<s><|start_header_id|>ipython<|end_header_id|>\n\nc<|eot_id|>");
    check_messages(case_of(OMM_CHAT_PHI3), late + 2, 1, "<|user|>\nc<|end|>\n");
    size_t stops = 0;
    omm_tokenizer *t = open_vocab(&case_of(OMM_CHAT_LLAMA2)->vocab);
    CHECK(strcmp(omm_chat_stops(&stops, t)[0], "[INST]") == 0);
    CHECK_EQ(stops, 1);
    omm_tokenizer_close(t);
}

static void test_allocations(const chat_case *c) {
    omm_tokenizer *t = open_vocab(&c->vocab);
    size_t live = omm_mem_live();
    omm_err err = OMM_ERR_NOMEM;
    const omm_message m[2] = {message(OMM_ROLE_SYSTEM, "a [INST] b"),
                              message(OMM_ROLE_USER, "c <|user|>")};
    for (size_t nth = 1; err != OMM_OK; nth++) {
        omm_prompt p;
        omm_prompt_init(&p, TOKENS_MAX);
        omm_mem_fail_nth(nth);
        err = omm_chat_render(&p, t, m, 2, OMM_CHAT_ANSWER);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || (err == OMM_ERR_NOMEM && p.tokens.count == 0 && p.mask.size == 0));
        omm_prompt_fini(&p);
        CHECK_EQ(omm_mem_live(), live);
    }
    omm_tokenizer_close(t);
}

int main(void) {
    for (size_t i = 0; i < CASE_COUNT; i++) test_case(&s_cases[i]);
    test_attacks();
    test_indistinguishable();
    test_doubts();
    test_text_marks();
    test_missing_marks();
    test_deepseek();
    test_digest();
    test_roles();
    test_allocations(case_of(OMM_CHAT_LLAMA2));
    test_allocations(case_of(OMM_CHAT_CHATML));
    test_allocations(case_of(OMM_CHAT_CHATML_TEXT));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

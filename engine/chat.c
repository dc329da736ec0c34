/* chat.c - turns of a conversation as token ids, with what is to be learned. */
#include "omm/chat.h"

#include <string.h>

static const char *const s_roles[OMM_ROLE_COUNT] = {"system", "user", "assistant", "tool"};

const char *omm_role_name(omm_role role) {
    OMM_ASSERT((unsigned)role < OMM_ROLE_COUNT);
    return s_roles[role];
}

omm_err omm_role_parse(omm_role *out, const char *name) {
    for (unsigned i = 0; i < OMM_ROLE_COUNT; i++)
        if (strcmp(s_roles[i], name) == 0) {
            *out = (omm_role)i;
            return OMM_OK;
        }
    return omm_raise(OMM_ERR_FORMAT, "role '%.40s': accepted are system, user, assistant, tool",
                     name);
}

void omm_prompt_init(omm_prompt *prompt, size_t tokens_max) {
    omm_tokens_init(&prompt->tokens, tokens_max);
    omm_buf_init(&prompt->mask, tokens_max);
}

void omm_prompt_fini(omm_prompt *prompt) {
    omm_tokens_fini(&prompt->tokens);
    omm_buf_fini(&prompt->mask);
}

void omm_prompt_clear(omm_prompt *prompt) {
    prompt->tokens.count = 0;
    omm_buf_clear(&prompt->mask);
}

static omm_err find_mark(uint32_t *id, const omm_tokenizer *t, const char *text) {
    *id = omm_tokenizer_special(t, text);
    if (*id != OMM_TOKEN_NONE) return OMM_OK;
    return omm_raise(OMM_ERR_UNSUPPORTED,
                     "this model has no %s token, so it was not made for ChatML conversations",
                     text);
}

/* Give every token since the last call this mask. */
static omm_err mark(omm_prompt *p, uint8_t learned) {
    uint8_t *added = NULL;
    size_t count = p->tokens.count - p->mask.size;
    OMM_TRY(omm_buf_extend(&p->mask, &added, count));
    if (count > 0) memset(added, learned, count);
    return OMM_OK;
}

static omm_err put_text(omm_prompt *p, const omm_tokenizer *t, const char *text) {
    return omm_tokenizer_encode(&p->tokens, t, omm_bytes_str(text), OMM_TOKENIZE_PLAIN);
}

/* "role\ncontent" in one piece, as the text of the training data was encoded. */
static omm_err put_read(omm_prompt *p, const omm_tokenizer *t, const omm_message *m) {
    /* What people and tools wrote never yields a token other than plain text. */
    unsigned flags = m->role == OMM_ROLE_SYSTEM ? 0 : OMM_TOKENIZE_PLAIN;
    omm_buf text;
    omm_buf_init(&text, OMM_TOKENIZER_TEXT_MAX);
    omm_err err = omm_buf_printf(&text, "%s\n", s_roles[m->role]);
    if (err == OMM_OK) err = omm_buf_append(&text, m->content.data, m->content.size);
    if (err == OMM_OK) err = omm_tokenizer_encode(&p->tokens, t, omm_buf_view(&text), flags);
    omm_buf_fini(&text);
    return err;
}

/* The header alone, as it stands in front of a generation, then what the model writes itself. */
static omm_err put_written(omm_prompt *p, const omm_tokenizer *t, const omm_message *m) {
    OMM_TRY(put_text(p, t, "assistant\n"));
    OMM_TRY(mark(p, 0));
    return omm_tokenizer_encode(&p->tokens, t, m->content, OMM_TOKENIZE_CONTINUE);
}

static omm_err put_turn(omm_prompt *p, const omm_tokenizer *t, const omm_message *m) {
    uint32_t start = 0;
    uint32_t end = 0;
    bool learned = m->role == OMM_ROLE_ASSISTANT;
    OMM_TRY(find_mark(&start, t, "<|im_start|>"));
    OMM_TRY(find_mark(&end, t, "<|im_end|>"));
    OMM_TRY(omm_tokens_push(&p->tokens, start));
    OMM_TRY(learned ? put_written(p, t, m) : put_read(p, t, m));
    OMM_TRY(omm_tokens_push(&p->tokens, end));
    OMM_TRY(mark(p, learned));
    OMM_TRY(put_text(p, t, "\n"));
    return mark(p, 0);
}

static omm_err put_generate(omm_prompt *p, const omm_tokenizer *t) {
    uint32_t start = 0;
    OMM_TRY(find_mark(&start, t, "<|im_start|>"));
    OMM_TRY(omm_tokens_push(&p->tokens, start));
    OMM_TRY(put_text(p, t, "assistant\n"));
    return mark(p, 0);
}

static omm_err undo(omm_prompt *p, size_t count, omm_err err) {
    if (err == OMM_OK) return OMM_OK;
    p->tokens.count = count;
    p->mask.size = count;
    return err;
}

omm_err omm_chat_turn(omm_prompt *prompt, const omm_tokenizer *tokenizer,
                      const omm_message *message) {
    OMM_ASSERT((unsigned)message->role < OMM_ROLE_COUNT);
    size_t before = prompt->tokens.count;
    return undo(prompt, before, put_turn(prompt, tokenizer, message));
}

omm_err omm_chat_generate(omm_prompt *prompt, const omm_tokenizer *tokenizer) {
    size_t before = prompt->tokens.count;
    return undo(prompt, before, put_generate(prompt, tokenizer));
}

omm_err omm_chat_render(omm_prompt *prompt, const omm_tokenizer *tokenizer,
                        const omm_message *messages, size_t count, bool generate) {
    if (count > OMM_CHAT_MESSAGES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "conversation of %zu messages, at most %u", count,
                         OMM_CHAT_MESSAGES_MAX);
    size_t before = prompt->tokens.count;
    omm_err err = OMM_OK;
    for (size_t i = 0; i < count && err == OMM_OK; i++)
        err = omm_chat_turn(prompt, tokenizer, &messages[i]);
    if (err == OMM_OK && generate) err = omm_chat_generate(prompt, tokenizer);
    return undo(prompt, before, err);
}

/* test_prompt.h - conversations as a template writes them, for tests. */
#ifndef TEXT_TEST_PROMPT_H
#define TEXT_TEST_PROMPT_H

#include "omm/chat.h"
#include "omm/mem.h"
#include "test_vocab.h"

enum { TOKENS_MAX = 8192 };

/* ChatML's marks, and those of thoughts. */
static inline omm_tokenizer *open_family(const char *jinja) {
    return open_vocab(&(vocab_recipe){
        .marks = {"<|im_start|>", "<|im_end|>"}, .words = {"<think>", "</think>"}, .jinja = jinja});
}

/* The prompt as text, and as the ids that the text has where its marks are meant. */
static inline void check_prompt(const omm_tokenizer *t, const omm_message *turns, size_t count,
                                omm_chat_ending ending, const char *want) {
    omm_prompt p;
    omm_tokens ids;
    omm_prompt_init(&p, TOKENS_MAX);
    omm_tokens_init(&ids, TOKENS_MAX);
    CHECK_OK(omm_chat_render(&p, t, turns, count, ending));
    CHECK_OK(omm_tokenizer_encode(&ids, t, omm_bytes_str(want), OMM_TOKENIZE_SPECIAL));
    omm_buf text;
    omm_buf_init(&text, VOCAB_FILE_MAX);
    CHECK_OK(omm_tokenizer_decode(&text, t, p.tokens.ids, p.tokens.count,
                                  OMM_DETOKENIZE_SPECIAL | OMM_DETOKENIZE_CONTINUE));
    const bool same = omm_bytes_equal(omm_buf_view(&text), omm_bytes_str(want));
    if (!same) fprintf(stderr, "have '%.*s'\nwant '%s'\n", (int)text.size, (char *)text.data, want);
    CHECK(same);
    CHECK_EQ(p.tokens.count, ids.count);
    CHECK_EQ(memcmp(p.tokens.ids, ids.ids, ids.count * sizeof *ids.ids), 0);
    CHECK_EQ(p.mask.size, p.tokens.count);
    omm_buf_fini(&text);
    omm_tokens_fini(&ids);
    omm_prompt_fini(&p);
}

/* Each allocation of a prompt fails once: nothing is left of it.  Returns how many there are. */
static inline size_t check_allocations(const omm_tokenizer *t, const omm_message *turns,
                                       size_t count) {
    const size_t live = omm_mem_live();
    for (size_t nth = 1;; nth++) {
        omm_prompt p;
        omm_prompt_init(&p, TOKENS_MAX);
        omm_mem_fail_nth(nth);
        const omm_err err = omm_chat_render(&p, t, turns, count, OMM_CHAT_ANSWER);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        CHECK(err == OMM_OK || (err == OMM_ERR_NOMEM && p.tokens.count == 0 && p.mask.size == 0));
        omm_prompt_fini(&p);
        CHECK_EQ(omm_mem_live(), live);
        if (err == OMM_OK) return nth - 1;
    }
}

static inline omm_message turn(omm_role role, const char *content) {
    return (omm_message){.role = role, .content = omm_bytes_str(content)};
}

#endif

/* output.c - see output.h. */
#include "output.h"

#include "omm/utf8.h"

#include <string.h>

#define TEXT_BYTES_MAX ((size_t)64 << 20)

static const char s_call[] = "<tool_call>";

const char *finish_name(finish f) {
    static const char *const names[] = {"", "stop", "length", "tool_calls"};
    return names[f];
}

static omm_err add_stops(output *t, const request *r) {
    size_t count = 0;
    const char *const *own = r->is_chat ? omm_chat_stops(&count, t->tokenizer) : NULL;
    for (size_t i = 0; i < count; i++) OMM_TRY(omm_stops_add(&t->stops, omm_bytes_str(own[i])));
    for (size_t i = 0; i < r->stop_count; i++) OMM_TRY(omm_stops_add(&t->stops, r->stops[i]));
    return OMM_OK;
}

omm_err output_init(output *t, const request *r, const omm_tokenizer *tokenizer,
                    uint32_t tokens_max) {
    *t = (output){.tokenizer = tokenizer,
                  .detok = {.first = r->is_chat && r->begun.size == 0},
                  .begun = r->begun.size,
                  .holds_calls = r->has_tools,
                  .tokens_max = tokens_max};
    omm_stops_init(&t->stops);
    omm_buf_init(&t->fresh, TEXT_BYTES_MAX);
    omm_buf_init(&t->whole, TEXT_BYTES_MAX);
    OMM_TRY(add_stops(t, r));
    return omm_buf_append(&t->whole, r->begun.data, r->begun.size);
}

void output_fini(output *t) {
    omm_chat_reply_fini(&t->reply);
    omm_stops_fini(&t->stops);
    omm_buf_fini(&t->fresh);
    omm_buf_fini(&t->whole);
}

/* What was held back as part of a character or of a stop text comes out. */
static omm_err end(output *t, finish how) {
    t->finish = how;
    omm_buf_clear(&t->fresh);
    OMM_TRY(omm_detok_flush(&t->fresh, &t->detok));
    OMM_TRY(omm_stops_push(&t->whole, &t->stops, omm_buf_view(&t->fresh)));
    OMM_TRY(omm_stops_flush(&t->whole, &t->stops));
    if (!t->holds_calls) return OMM_OK;
    /* A call that cannot be read is what the model said. */
    omm_chat_reply reply = {0};
    if (omm_chat_parse(&reply, omm_buf_view(&t->whole)) != OMM_OK) return OMM_OK;
    t->reply = reply;
    if (reply.call_count > 0) t->finish = FINISH_CALLS;
    return OMM_OK;
}

omm_err output_push(output *t, uint32_t id) {
    t->tokens++;
    if (omm_tokenizer_is_end(t->tokenizer, id)) return end(t, FINISH_STOP);
    omm_buf_clear(&t->fresh);
    OMM_TRY(omm_detok_push(&t->fresh, &t->detok, t->tokenizer, id, 0));
    t->bytes += t->fresh.size;
    t->characters += omm_utf8_count(omm_buf_view(&t->fresh));
    OMM_TRY(omm_stops_push(&t->whole, &t->stops, omm_buf_view(&t->fresh)));
    if (t->stops.stopped) return end(t, FINISH_STOP);
    return t->tokens == t->tokens_max ? end(t, FINISH_LENGTH) : OMM_OK;
}

static bool is_space(uint8_t c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Bytes of the whole that are content for sure: no call, nor what may become one, nor white space in front of it. */
static size_t content_size(const output *t) {
    const size_t mark = sizeof s_call - 1;
    size_t size = t->whole.size;
    if (!t->holds_calls || t->finish == FINISH_STOP || t->finish == FINISH_LENGTH) return size;
    const uint8_t *data = t->whole.data;
    const uint8_t *at = size ? memmem(data, size, s_call, mark) : NULL;
    if (at) size = (size_t)(at - data);
    for (size_t n = mark - 1 < size ? mark - 1 : size; !at && n > 0; n--)
        if (memcmp(data + size - n, s_call, n) == 0) {
            size -= n;
            break;
        }
    while (size > 0 && is_space(data[size - 1])) size--;
    return size;
}

omm_bytes output_next(output *t) {
    const size_t from = t->sent, to = content_size(t);
    if (to <= from) return omm_bytes_str("");
    t->sent = to;
    return omm_bytes_of(t->whole.data + from, to - from);
}

size_t output_settled(const output *t) {
    if (t->finish != FINISH_NONE && !t->stops.stopped) return t->bytes;
    return t->whole.size - t->begun;
}

omm_bytes output_content(const output *t) {
    return omm_bytes_of(t->whole.data, content_size(t));
}

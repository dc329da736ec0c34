/* chat_fuzz.c - any bytes as the answer of a model: taken apart, refused, or plain text; a call
 * that was accepted is written and accepted again. */
#include "omm/chat.h"
#include "omm/mem.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void take_apart(omm_bytes answer, omm_calls_form form) {
    omm_chat_reply reply;
    if (omm_chat_parse(&reply, answer, form, NULL, NULL) != OMM_OK) return;
    for (size_t i = 0; i < reply.call_count; i++) {
        const omm_tool_call *call = &reply.calls[i];
        omm_buf text;
        omm_chat_reply again;
        omm_buf_init(&text, 1 << 20);
        OMM_ASSERT(omm_chat_write_call(&text, form, call->name, call->arguments) == OMM_OK);
        omm_err err = omm_chat_parse(&again, omm_buf_view(&text), form, NULL, NULL);
        if (err == OMM_OK) {
            OMM_ASSERT(again.call_count == 1);
            OMM_ASSERT(json_equal(again.calls[0].arguments, call->arguments));
            omm_chat_reply_fini(&again);
        }
        /* only growth over the limit by another spelling of numbers and escapes may refuse it */
        OMM_ASSERT(err == OMM_OK || err == OMM_ERR_TOO_BIG);
        omm_buf_fini(&text);
    }
    omm_chat_reply_fini(&reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (unsigned form = 0; form < OMM_CALLS_FORM_COUNT; form++)
        take_apart(omm_bytes_of(data, size), (omm_calls_form)form);
    return 0;
}

/* request_fuzz.c - any bytes as the body of a request: refused by name, or all of it is within its limits. */
#include "omm/mem.h"
#include "request.h"
#include "test_served.h"
#include "tokens.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void fuzz_end(void);

/* From the first input to the last. */
static served s_served;
static request *s_request;

void fuzz_end(void) {
    if (s_request) served_close(&s_served);
    omm_free(s_request);
}

static void check_texts(const request *r, const served *s) {
    const uint32_t most = s->options.batcher.session.positions_max;
    OMM_ASSERT(r->prompt_count >= 1);
    OMM_ASSERT(r->prompt_count * r->n <= REQUEST_TEXTS_MAX);
    for (size_t i = 0; i < r->prompt_count; i++) {
        const omm_tokens *ids = &r->prompts[i];
        OMM_ASSERT(ids->count >= 1);
        OMM_ASSERT(ids->count <= most);
        for (size_t k = 0; k < ids->count; k++) OMM_ASSERT(ids->ids[k] < s->model.dims.vocab);
        const uint32_t room = request_room(r, &s->options, i);
        OMM_ASSERT(room >= 1);
        OMM_ASSERT(ids->count + room <= most + 1);
    }
}

static void check_tokens(bool is_text, omm_bytes body) {
    fault why = {0};
    omm_buf out;
    omm_buf_init(&out, 2 * TOKENS_TEXT_MAX);
    const bool ok = is_text ? tokens_of_text(&out, &why, &s_served.options, body)
                            : tokens_to_text(&out, &why, &s_served.options, body);
    OMM_ASSERT(ok ? out.size > 0 : why.status >= 400 && why.message[0] != 0);
    omm_buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fault why = {0};
    if (!s_request) {
        served_open(&s_served);
        s_request = (request *)omm_alloc(1, sizeof *s_request);
        OMM_ASSERT(s_request != NULL);
    }
    if (size < 1) return 0;
    if (data[0] == 't' || data[0] == 'd') {
        check_tokens(data[0] == 't', omm_bytes_of(data + 1, size - 1));
        return 0;
    }
    const bool is_chat = data[0] & 1;
    if (request_read(s_request, &why, &s_served.options, is_chat, omm_bytes_of(data + 1, size - 1),
                     7)) {
        check_texts(s_request, &s_served);
        for (size_t i = 0; i < s_request->stop_count; i++) {
            OMM_ASSERT(s_request->stops[i].size >= 1);
            OMM_ASSERT(s_request->stops[i].size <= OMM_STOP_BYTES_MAX);
        }
    } else {
        OMM_ASSERT(why.status >= 400);
        OMM_ASSERT(why.message[0] != 0);
        OMM_ASSERT(why.type != NULL);
    }
    request_fini(s_request);
    return 0;
}

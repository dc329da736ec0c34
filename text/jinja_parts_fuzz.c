/* jinja_parts_fuzz.c - any bytes as a chat template: its parts lie one behind the other, texts are
 * whole, and what is respelled stays as it is when it is read again. */
#include "jinja_parts.h"

#include "omm/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Of a statement or an output that is put into a template again: the spelling stays. */
static void respell(jinja_kind kind, omm_bytes text) {
    jinja_parts p;
    omm_buf again;
    omm_buf_init(&again, JINJA_BYTES_MAX);
    OMM_ASSERT(omm_buf_printf(&again, kind == JINJA_BLOCK ? "{%% " : "{{ ") == OMM_OK);
    OMM_ASSERT(omm_buf_append(&again, text.data, text.size) == OMM_OK);
    OMM_ASSERT(omm_buf_printf(&again, kind == JINJA_BLOCK ? " %%}" : " }}") == OMM_OK);
    OMM_ASSERT(jinja_parts_read(&p, omm_buf_view(&again)) == OMM_OK);
    OMM_ASSERT(p.count <= 1);
    if (p.count == 1) OMM_ASSERT(omm_bytes_equal(jinja_text(&p, 0), text));
    jinja_parts_fini(&p);
    omm_buf_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    jinja_parts p;
    size_t at = 0;
    OMM_ASSERT(jinja_parts_read(&p, omm_bytes_of(data, size)) == OMM_OK);
    OMM_ASSERT(p.text.size <= size);
    for (size_t i = 0; i < p.count; i++) {
        const jinja_kind kind = p.list[i].kind;
        OMM_ASSERT(p.list[i].at == at);
        at += p.list[i].size;
        if (kind == JINJA_TEXT) OMM_ASSERT(p.list[i].size > 0 && !jinja_is(&p, i + 1, JINJA_TEXT));
        if (kind != JINJA_TEXT) respell(kind, jinja_text(&p, i));
    }
    OMM_ASSERT(at == p.text.size || p.count == 0);
    jinja_parts_fini(&p);
    return 0;
}

/* session_fuzz.c - fuzz target: the bytes, with a right digest behind them, as a session file of a tiny
 * model: refused, or a session that goes on and is saved again.  The first byte says how it is loaded:
 * bit 0 of a model with windows, bit 1 as a file with a note. */
#include "fuzz_compute.h"
#include "tiny_arch.h"

#include "omm/mem.h"
#include "omm/session_file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { POSITIONS = 130, INPUT_MAX = 1 << 20 };

static void load_model(omm_model *model, bool windows) {
    const tiny_arch arch = {.name = windows ? "gemma3" : "llama", .window = windows ? 5 : 0};
    tiny_arch_load(model, &arch);
}

static void use(omm_session *s) {
    static const uint32_t ids[2] = {1, 2};
    float logits[TINY_ARCH_VOCAB];
    if (omm_session_position(s) + 2 > omm_session_positions_max(s)) return;
    omm_err err = omm_session_append(s, ids, 2, logits, false);
    OMM_ASSERT(err == OMM_OK || err == OMM_ERR_NUMERIC);
}

static void load(const omm_model *model, omm_bytes file, bool noted) {
    static const omm_digest digest;
    const omm_session_options o = {
        .kv_type = OMM_KV_Q8_0, .positions_max = POSITIONS, .batch_max = 8};
    omm_buf note;
    omm_session *s = NULL;
    OMM_ASSERT(omm_session_open(&s, fuzz_compute(), model, NULL, &o) == OMM_OK);
    omm_buf_init(&note, INPUT_MAX);
    omm_err err = omm_session_load_bytes(s, file, "input", &digest, noted ? &note : NULL);
    OMM_ASSERT(err == OMM_OK || (note.size == 0 && omm_session_position(s) == 0));
    if (err == OMM_OK) use(s);
    omm_buf_fini(&note);
    omm_session_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    omm_model model;
    if (size < 1 || size > INPUT_MAX) return 0;
    uint8_t *file = (uint8_t *)omm_alloc(size - 1 + sizeof(omm_digest), 1);
    OMM_ASSERT(file != NULL);
    memcpy(file, data + 1, size - 1);
    const omm_digest digest = omm_hash(omm_bytes_of(file, size - 1));
    memcpy(file + size - 1, digest.b, sizeof digest.b);
    load_model(&model, data[0] & 1u);
    load(&model, omm_bytes_of(file, size - 1 + sizeof digest.b), data[0] & 2u);
    omm_model_fini(&model);
    omm_free(file);
    return 0;
}

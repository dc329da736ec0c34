/* fuzz_replay.c - runs a fuzz target over its corpus without a fuzzer: every file whole, each of
 * its truncations, and each of its bits flipped; of longer files one bit of each byte, another from byte
 * to byte, of long ones at every fourth byte.  With -DOMM_FUZZ=ON (clang) libFuzzer's main takes its place. */
#include "omm/bytes.h"
#include "omm/file.h"
#include "omm/mem.h"
#include "omm_test.h"

#include <string.h>

#define INPUT_BYTES_MAX 65536u
#define DAMAGE_BYTES_MAX 4096u /* larger inputs are replayed whole only: keeps the test short */
#define EVERY_BIT_BYTES_MAX 128u
#define EVERY_BYTE_BYTES_MAX 1024u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* A target that keeps something from input to input gives it back here. */
__attribute__((weak)) void fuzz_end(void);

/* In memory of exactly this size, so that ASan sees a read past it. */
static void run(const uint8_t *data, size_t size) {
    uint8_t *exact = omm_alloc(size, 1);
    CHECK(exact != NULL);
    if (size > 0) memcpy(exact, data, size);
    CHECK_EQ(LLVMFuzzerTestOneInput(exact, size), 0);
    omm_free(exact);
}

static void run_damaged(uint8_t *data, size_t size) {
    const size_t each = size > EVERY_BYTE_BYTES_MAX ? 4 : 1;
    for (size_t cut = 0; cut < size; cut += each) run(data, cut);
    for (size_t bit = 0; bit < size * 8; bit++) {
        if (size > EVERY_BIT_BYTES_MAX && bit % 8 != bit / 8 / each % 8) continue;
        if (bit / 8 % each != 0) continue;
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        run(data, size);
        data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

typedef struct corpus {
    const char *dir;
    unsigned files;
} corpus;

static omm_err run_file(void *ud, const char *relative) {
    corpus *c = ud;
    char path[OMM_PATH_MAX];
    omm_buf input;
    omm_buf_init(&input, INPUT_BYTES_MAX);
    OMM_TRY(omm_path_join(path, c->dir, relative));
    omm_err err = omm_file_read(&input, path);
    if (err == OMM_OK) run(input.data, input.size);
    if (err == OMM_OK && input.size <= DAMAGE_BYTES_MAX) run_damaged(input.data, input.size);
    omm_buf_fini(&input);
    c->files++;
    return err;
}

int main(int argc, char **argv) {
    CHECK_EQ(argc, 2);
    corpus c = {.dir = argv[1]};
    CHECK_OK(omm_dir_walk(c.dir, run_file, &c));
    CHECK(c.files > 0);
    if (fuzz_end) fuzz_end();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

/* session_file_test.c - session files from strangers: whoever writes one can give it a right digest, so
 * every number is tried at its limits behind one; notes; models with windows. */
#include "kernels_battery.h"
#include "tiny_arch.h"
#include "tiny_model.h"

#include "omm/adapter.h"
#include "omm/file.h"
#include "omm/mem.h"
#include "omm/session_file.h"
#include "omm_test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { HEADER = 8 + 8 * 4 + 2 * 32, DIGEST = 32, LENGTH = 70, POSITION_AT = 32, NOTE_AT = 36 };

static const omm_digest s_digest = {{1, 2, 3}};
static const char s_note[] = "who said what";
static char s_path[] = "/tmp/omm-session-XXXXXX";
static uint32_t s_ids[400];
static omm_compute s_compute;

/* In the place of libc's: what is to outlast a power cut has been asked for. */
static unsigned s_syncs;
int fsync(int fd) {
    s_syncs++;
    return (int)syscall(SYS_fsync, fd);
}

/* The same of a disk that fails: at which write from now on; 0: it does not. */
static unsigned s_write_fails;
ssize_t write(int fd, const void *buf, size_t n) {
    if (s_write_fails > 0 && --s_write_fails == 0) {
        errno = EIO;
        return -1;
    }
    return (ssize_t)syscall(SYS_write, fd, buf, n);
}

typedef struct rig {
    omm_model model;
    omm_session *session; /* holds LENGTH ids */
    omm_buf file;         /* of it, with the note */
} rig;

static omm_session *open_session_of(const omm_model *model, omm_kv_type type) {
    omm_session *s = NULL;
    const omm_session_options o = {
        .kv_type = type, .positions_max = 380, .batch_max = 64, .rollback_max = 64};
    CHECK_OK(omm_session_open(&s, &s_compute, model, NULL, &o));
    return s;
}

static omm_session *open_session(const omm_model *model) {
    return open_session_of(model, OMM_KV_Q8_0);
}

static void save(omm_buf *out, const omm_session *s, omm_bytes note) {
    const unsigned before = s_syncs;
    CHECK_OK(omm_session_save(s, s_path, &s_digest, note));
    CHECK_OK(omm_file_check_private(s_path)); /* what was said is nobody else's */
    CHECK_EQ(s_syncs - before, 2); /* the file before it takes the other's place, and its name */
    omm_buf_clear(out);
    CHECK_OK(omm_file_read(out, s_path));
}

static void open_rig(rig *r, const tiny_arch *arch, size_t length) {
    tiny_arch_load(&r->model, arch);
    r->session = open_session(&r->model);
    CHECK_OK(omm_session_append(r->session, s_ids, length, NULL, false));
    omm_buf_init(&r->file, 1 << 24);
    save(&r->file, r->session, omm_bytes_of(s_note, sizeof s_note));
}

static void close_rig(rig *r) {
    omm_session_close(r->session);
    omm_model_fini(&r->model);
    omm_buf_fini(&r->file);
}

/* The digest of the first `size` bytes behind them, as a stranger would write it. */
static omm_err load_signed(omm_session *s, const omm_buf *file, size_t size, bool noted) {
    uint8_t *data = (uint8_t *)omm_alloc(size + DIGEST, 1);
    omm_buf note;
    omm_buf_init(&note, 1 << 20);
    CHECK(data != NULL);
    if (size) memcpy(data, file->data, size);
    const omm_digest digest = omm_hash(omm_bytes_of(data, size));
    memcpy(data + size, digest.b, DIGEST);
    const size_t asked = omm_mem_asked();
    omm_err err = omm_session_load_bytes(s, omm_bytes_of(data, size + DIGEST), "it", &s_digest,
                                         noted ? &note : NULL);
    CHECK(omm_mem_asked() - asked <= 8 * file->size); /* a length says nothing about memory */
    if (err == OMM_OK && noted)
        CHECK(omm_bytes_equal(omm_buf_view(&note), omm_bytes_of(s_note, sizeof s_note)));
    if (err != OMM_OK) CHECK_EQ(note.size, 0);
    omm_buf_fini(&note);
    omm_free(data);
    return err;
}

/* What loads can be gone on with. */
static void use(omm_session *s) {
    const uint32_t position = omm_session_position(s);
    float logits[TINY_ARCH_VOCAB];
    if (position == omm_session_positions_max(s)) return;
    omm_err err = omm_session_append(s, s_ids, 1, logits, false);
    CHECK(err == OMM_OK || err == OMM_ERR_NUMERIC);
    omm_session_truncate(s, position);
}

static void test_truncations(rig *r) {
    omm_session *s = open_session(&r->model);
    const size_t whole = r->file.size - DIGEST;
    for (size_t size = 0; size < whole; size += size < 500 || size + 40 > whole ? 1 : 37)
        CHECK(load_signed(s, &r->file, size, true) != OMM_OK);
    CHECK_EQ(omm_session_position(s), 0);
    CHECK_OK(load_signed(s, &r->file, whole, true));
    CHECK_EQ(omm_session_position(s), LENGTH);
    omm_session_close(s);
}

/* Every number of header, ids and marks at its limits, with a right digest. */
static void test_numbers(rig *r) {
    static const uint32_t values[] = {0,
                                      1,
                                      2,
                                      63,
                                      64,
                                      0xffffu,
                                      0x7fffffffu,
                                      0x80000000u,
                                      0xfffffffeu,
                                      UINT32_MAX,
                                      TINY_ARCH_VOCAB - 1,
                                      TINY_ARCH_VOCAB};
    const size_t whole = r->file.size - DIGEST;
    unsigned loaded = 0, refused = 0;
    for (size_t at = 8; at < HEADER + 4 * LENGTH + 4; at += 4)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            uint8_t old[4];
            memcpy(old, r->file.data + at, 4);
            if (omm_get_u32(old) == values[v]) continue;
            omm_put_u32(r->file.data + at, values[v]);
            omm_session *s = open_session(&r->model);
            if (load_signed(s, &r->file, whole, true) == OMM_OK) {
                CHECK(at >= HEADER && values[v] < TINY_ARCH_VOCAB); /* another id is as good */
                loaded++;
                use(s);
            } else {
                CHECK_EQ(omm_session_position(s), 0);
                refused++;
            }
            omm_session_close(s);
            memcpy(r->file.data + at, old, 4);
        }
    CHECK(loaded > 0 && refused > 200);
}

/* Where marks of presence lie: each layer's blocks one after the other. */
static size_t mark_at(const rig *r, uint32_t layer, size_t blocks, size_t block) {
    const size_t ids = omm_get_u32(r->file.data + POSITION_AT);
    const size_t note = omm_get_u32(r->file.data + NOTE_AT);
    const size_t all = r->file.size - HEADER - 4 * ids - note - DIGEST;
    const size_t each = all / (r->model.dims.layers * blocks);
    return HEADER + 4 * ids + (layer * blocks + block) * each;
}

/* A block that is said to be absent, or a mark that is no mark: an attention would look at nothing. */
static void test_absent_blocks(rig *r) {
    omm_session *s = open_session(&r->model);
    for (uint32_t layer = 0; layer < r->model.dims.layers; layer++)
        for (size_t block = 0; block < 2; block++) {
            const size_t at = mark_at(r, layer, 2, block),
                         next = block ? at : mark_at(r, layer, 2, 1);
            CHECK_EQ(omm_get_u32(r->file.data + at), 1);
            omm_put_u32(r->file.data + at, 7);
            CHECK_ERR(load_signed(s, &r->file, r->file.size - DIGEST, true), OMM_ERR_FORMAT);
            omm_put_u32(r->file.data + at, 1);
            if (block) continue;
            omm_buf cut; /* the block itself left out */
            omm_buf_init(&cut, 1 << 24);
            CHECK_OK(omm_buf_append(&cut, r->file.data, at));
            CHECK_OK(omm_buf_put_u32(&cut, 0));
            CHECK_OK(omm_buf_append(&cut, r->file.data + next, r->file.size - next - DIGEST));
            CHECK_ERR(load_signed(s, &cut, cut.size, true), OMM_ERR_FORMAT);
            CHECK(strstr(omm_err_sentence(), "lacks a part of the cache") != NULL);
            omm_buf_fini(&cut);
        }
    omm_session_close(s);
}

static void test_notes(rig *r) {
    omm_session *s = open_session(&r->model);
    omm_buf text;
    omm_buf_init(&text, 1 << 24);
    CHECK_ERR(load_signed(s, &r->file, r->file.size - DIGEST, false), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "it holds a conversation, not a text") != NULL);
    save(&text, r->session, (omm_bytes){0});
    CHECK_EQ(text.size, r->file.size - sizeof s_note);
    CHECK_ERR(load_signed(s, &text, text.size - DIGEST, true), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "it holds a text, not a conversation") != NULL);
    CHECK_OK(load_signed(s, &text, text.size - DIGEST, false));
    omm_buf small;
    omm_buf_init(&small, sizeof s_note - 1); /* no room for the note: nothing has changed */
    omm_session_truncate(s, 0);
    CHECK_ERR(omm_session_load_bytes(s, omm_buf_view(&r->file), "it", &s_digest, &small),
              OMM_ERR_TOO_BIG);
    CHECK_EQ(omm_session_position(s), 0);
    omm_put_u32(r->file.data + NOTE_AT, OMM_SESSION_NOTE_MAX + 1);
    CHECK_ERR(omm_session_load_bytes(s, omm_buf_view(&r->file), "it", &s_digest, &text),
              OMM_ERR_TOO_BIG);
    CHECK(strstr(omm_err_sentence(), "it has 16777217 bytes beside its tokens") != NULL);
    omm_put_u32(r->file.data + NOTE_AT, sizeof s_note);
    const omm_bytes huge = omm_bytes_of(s_note, (size_t)OMM_SESSION_NOTE_MAX + 1);
    CHECK_ERR(omm_session_save(s, s_path, &s_digest, huge), OMM_ERR_TOO_BIG);
    omm_session_close(s);
    omm_buf_fini(&text);
}

/* A window has passed the first blocks: they are absent, and the rest goes on to the same bytes. */
static void test_windows(void) {
    rig r;
    float want[TINY_ARCH_VOCAB], got[TINY_ARCH_VOCAB];
    open_rig(&r, &(tiny_arch){.name = "gemma3", .layers = 6, .window = 20}, 300);
    omm_session *s = open_session(&r.model);
    CHECK_EQ(omm_get_u32(r.file.data + HEADER + 4 * (size_t)300), 0);
    CHECK_OK(load_signed(s, &r.file, r.file.size - DIGEST, true));
    CHECK_OK(omm_session_append(r.session, s_ids + 300, 70, want, false));
    CHECK_OK(omm_session_append(s, s_ids + 300, 70, got, false));
    CHECK(battery_hash(want, sizeof want) == battery_hash(got, sizeof got));
    /* Of a sequence that is shorter than the window goes back, they would be seen. */
    omm_session_truncate(r.session, 250);
    save(&r.file, r.session, omm_bytes_of(s_note, sizeof s_note));
    CHECK_OK(load_signed(s, &r.file, r.file.size - DIGEST, true));
    omm_session_close(s);
    close_rig(&r);
}

/* The first block may be absent as soon as no token will see it, and no token earlier. */
static void test_first_blocks(void) {
    static const size_t lengths[] = {5, 19, 20, 64, 82, 83};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        rig r;
        omm_buf cut;
        open_rig(&r, &(tiny_arch){.name = "gemma3", .layers = 6, .window = 20}, lengths[i]);
        omm_session *s = open_session(&r.model);
        const size_t blocks = (lengths[i] + 63) / 64, at = mark_at(&r, 0, blocks, 0);
        const size_t next = mark_at(&r, blocks == 1, blocks, blocks - 1);
        omm_buf_init(&cut, 1 << 24);
        CHECK_OK(omm_buf_append(&cut, r.file.data, at));
        CHECK_OK(omm_buf_put_u32(&cut, 0));
        CHECK_OK(omm_buf_append(&cut, r.file.data + next, r.file.size - next - DIGEST));
        CHECK_ERR(load_signed(s, &cut, cut.size, true), lengths[i] == 83 ? OMM_OK : OMM_ERR_FORMAT);
        omm_buf_fini(&cut);
        omm_session_close(s);
        close_rig(&r);
    }
}

/* With longrope the keys are turned by other factors where the session has room for more positions than
 * the original context: what one has computed is not the beginning of the other. */
static void test_longrope(void) {
    enum { ORIGINAL = 100 };
    static const uint32_t rooms[] = {ORIGINAL - 20, ORIGINAL, ORIGINAL + 1, 380};
    omm_model model;
    omm_buf file;
    omm_buf_init(&file, 1 << 24);
    tiny_arch_load(&model, &(tiny_arch){.name = "phi3",
                                        .scaling = "longrope",
                                        .original = ORIGINAL,
                                        .long_factors = true});
    for (int i = 0; i < 4; i++) {
        omm_session *from = NULL;
        omm_session_options o = {.positions_max = rooms[i], .batch_max = 64};
        CHECK_OK(omm_session_open(&from, &s_compute, &model, NULL, &o));
        CHECK_OK(omm_session_append(from, s_ids, LENGTH, NULL, false));
        save(&file, from, (omm_bytes){0});
        omm_session_close(from);
        for (int j = 0; j < 4; j++) {
            omm_session *to = NULL;
            o.positions_max = rooms[j];
            CHECK_OK(omm_session_open(&to, &s_compute, &model, NULL, &o));
            const bool same = (rooms[i] > ORIGINAL) == (rooms[j] > ORIGINAL);
            CHECK_ERR(omm_session_load_bytes(to, omm_buf_view(&file), "it", &s_digest, NULL),
                      same ? OMM_OK : OMM_ERR_MISMATCH);
            CHECK_EQ(omm_session_position(to), same ? LENGTH : 0);
            if (!same)
                CHECK(strstr(omm_err_sentence(), rooms[i] > ORIGINAL
                                                     ? "room for more than 100 positions"
                                                     : "room for at most 100 positions"));
            omm_session_close(to);
        }
    }
    /* What counts is what the factors were chosen for. */
    static const uint32_t chosen[] = {ORIGINAL, ORIGINAL + 1};
    for (int i = 0; i < 2; i++) {
        omm_session *to = NULL;
        const omm_session_options o = {
            .positions_max = 380, .rope_positions = chosen[i], .batch_max = 64};
        CHECK_OK(omm_session_open(&to, &s_compute, &model, NULL, &o));
        CHECK_ERR(omm_session_load_bytes(to, omm_buf_view(&file), "it", &s_digest, NULL),
                  i ? OMM_OK : OMM_ERR_MISMATCH);
        omm_session_close(to);
    }
    omm_model_fini(&model);
    omm_buf_fini(&file);
}

/* Whichever write fails, saving says so, and the file that was there stays. */
static void test_failing_disk(const rig *r) {
    omm_buf text;
    omm_err err = OMM_ERR_IO;
    unsigned n = 0;
    const int free_fd = dup(STDERR_FILENO);
    CHECK_EQ(close(free_fd), 0);
    omm_buf_init(&text, 1 << 24);
    CHECK_OK(omm_file_write_fast(s_path, omm_bytes_str("earlier"), 0600));
    while (err != OMM_OK) {
        s_write_fails = ++n;
        err = omm_session_save(r->session, s_path, &s_digest, omm_bytes_of(s_note, 5));
        const bool failed = s_write_fails == 0;
        s_write_fails = 0;
        CHECK_ERR(err, failed ? OMM_ERR_IO : OMM_OK);
        omm_buf_clear(&text);
        CHECK_OK(omm_file_read(&text, s_path));
        CHECK(omm_bytes_equal(omm_buf_view(&text), omm_bytes_str("earlier")) == failed);
    }
    CHECK(n > LENGTH);
    CHECK_EQ(dup(STDERR_FILENO), free_fd); /* none of them is left open */
    CHECK_EQ(close(free_fd), 0);
    omm_buf_fini(&text);
}

/* Nothing at all is a session too, and so is one that is full. */
static void test_ends(const rig *r) {
    omm_buf file;
    omm_session *empty = open_session(&r->model), *full = NULL;
    omm_session_options o = {.kv_type = OMM_KV_Q8_0, .positions_max = LENGTH, .batch_max = 64};
    omm_buf_init(&file, 1 << 24);
    save(&file, empty, (omm_bytes){0});
    CHECK_EQ(file.size, HEADER + DIGEST);
    CHECK_OK(omm_session_append(empty, s_ids, 3, NULL, false));
    CHECK_OK(load_signed(empty, &file, HEADER, false));
    CHECK_EQ(omm_session_position(empty), 0);
    save(&file, r->session, (omm_bytes){0});
    CHECK_OK(omm_session_open(&full, &s_compute, &r->model, NULL, &o));
    CHECK_OK(load_signed(full, &file, file.size - DIGEST, false));
    CHECK_EQ(omm_session_position(full), LENGTH);
    omm_session_close(full);
    o.positions_max = LENGTH - 1;
    CHECK_OK(omm_session_open(&full, &s_compute, &r->model, NULL, &o));
    CHECK_ERR(load_signed(full, &file, file.size - DIGEST, false), OMM_ERR_TOO_BIG);
    omm_session_close(full);
    omm_session_close(empty);
    omm_buf_fini(&file);
}

/* Each goes on in its own activations only; 1 are those whose products were rounded in another order. */
static void test_activations(rig *r) {
    enum { ACTIVATIONS_AT = 16 };
    omm_session_options o = {.kv_type = OMM_KV_Q8_0,
                             .activations = OMM_ACTIVATIONS_Q8,
                             .positions_max = LENGTH,
                             .batch_max = 64};
    omm_session *q8 = NULL, *f32 = open_session(&r->model);
    omm_buf file;
    omm_buf_init(&file, 1 << 24);
    CHECK_OK(omm_session_open(&q8, &s_compute, &r->model, NULL, &o));
    CHECK_OK(omm_session_append(q8, s_ids, 3, NULL, false));
    save(&file, q8, (omm_bytes){0});
    const size_t whole = file.size - DIGEST;
    CHECK_EQ(omm_get_u32(r->file.data + ACTIVATIONS_AT), 0);
    CHECK_EQ(omm_get_u32(file.data + ACTIVATIONS_AT), 2);
    CHECK_OK(load_signed(q8, &file, whole, false));
    CHECK_ERR(load_signed(f32, &file, whole, false), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "other activations than f32") != NULL);
    omm_put_u32(file.data + ACTIVATIONS_AT, 0);
    CHECK_ERR(load_signed(q8, &file, whole, false), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "other activations than q8") != NULL);
    omm_put_u32(file.data + ACTIVATIONS_AT, 1);
    CHECK_ERR(load_signed(q8, &file, whole, false), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "rounded in another order") != NULL);
    CHECK_EQ(omm_session_position(q8), 3);
    omm_session_close(q8);
    omm_session_close(f32);
    omm_buf_fini(&file);
}

/* The type alone, whatever comes after the header. */
static void test_type(const rig *r) {
    static const size_t sizes[] = {HEADER, HEADER - 1, 7, 0};
    static const omm_err wants[] = {OMM_OK, OMM_ERR_SIZE, OMM_ERR_FORMAT, OMM_ERR_FORMAT};
    omm_kv_type type = OMM_KV_F32;
    for (size_t i = 0; i < 4; i++) {
        CHECK_OK(omm_file_write_fast(s_path, omm_bytes_of(r->file.data, sizes[i]), 0600));
        CHECK_ERR(omm_session_file_kv(&type, s_path), wants[i]);
        CHECK_EQ(type, OMM_KV_Q8_0);
    }
    uint8_t header[HEADER];
    memcpy(header, r->file.data, HEADER);
    omm_put_u32(header + 12, OMM_KV_TYPE_COUNT);
    CHECK_OK(omm_file_write_fast(s_path, omm_bytes_of(header, HEADER), 0600));
    CHECK_ERR(omm_session_file_kv(&type, s_path), OMM_ERR_FORMAT);
    omm_put_u32(header + 8, 3);
    CHECK_OK(omm_file_write_fast(s_path, omm_bytes_of(header, HEADER), 0600));
    CHECK_ERR(omm_session_file_kv(&type, s_path), OMM_ERR_VERSION);
    CHECK_OK(omm_file_remove(s_path));
    CHECK_ERR(omm_session_file_kv(&type, s_path), OMM_ERR_NOT_FOUND);
    CHECK_EQ(type, OMM_KV_Q8_0);
}

/* What a session held before, or held behind the place it was cut at, is not in the file. */
static void test_nothing_else(omm_kv_type type) {
    omm_model model;
    omm_buf want, got;
    omm_buf_init(&want, 1 << 24);
    omm_buf_init(&got, 1 << 24);
    tiny_arch_load(&model, &(tiny_arch){.name = "qwen2", .head_dim = 20});
    omm_session *fresh = open_session_of(&model, type), *used = open_session_of(&model, type);
    CHECK_OK(omm_session_append(fresh, s_ids, LENGTH, NULL, false));
    save(&want, fresh, (omm_bytes){0});
    CHECK_OK(omm_session_append(used, s_ids + 100, 200, NULL, false));
    omm_session_truncate(used, 0);
    CHECK_OK(omm_session_append(used, s_ids, LENGTH, NULL, false));
    save(&got, used, (omm_bytes){0});
    CHECK(omm_bytes_equal(omm_buf_view(&want), omm_buf_view(&got)));
    CHECK_OK(omm_session_append(used, s_ids + 200, 150, NULL, false));
    CHECK_EQ(omm_session_truncate(used, LENGTH), LENGTH);
    save(&got, used, (omm_bytes){0});
    CHECK(omm_bytes_equal(omm_buf_view(&want), omm_buf_view(&got)));
    /* And what is counted: a whole block, and the heads' 20 of 32 values. */
    float here[TINY_ARCH_VOCAB], there[TINY_ARCH_VOCAB];
    CHECK_OK(load_signed(used, &want, want.size - DIGEST, false));
    CHECK_OK(omm_session_append(fresh, s_ids + LENGTH, 1, here, false));
    CHECK_OK(omm_session_append(used, s_ids + LENGTH, 1, there, false));
    CHECK(same_bytes(here, there, sizeof here));
    omm_session_close(fresh);
    omm_session_close(used);
    omm_model_fini(&model);
    omm_buf_fini(&want);
    omm_buf_fini(&got);
}

/* A cache is that of the adapters that it was made with. */
static void test_adapters(const rig *r) {
    const omm_lora_spec spec = {.rank = 2, .alpha = 4.0f, .targets = 1u << OMM_LORA_Q};
    const float scales[] = {1.0f, 0.5f};
    omm_adapter *adapters[2];
    omm_lora lora;
    omm_buf file;
    CHECK_OK(omm_lora_init(&lora, &spec, &r->model.lora_shape));
    for (int i = 0; i < 2; i++)
        CHECK_OK(omm_adapter_open(&adapters[i], &r->model, &lora, scales[i]));
    omm_session *s = open_session(&r->model);
    CHECK_OK(omm_session_set_adapters(s, (const omm_adapter *[]){adapters[0]}, 1));
    CHECK_OK(omm_session_append(s, s_ids, LENGTH, NULL, false));
    omm_buf_init(&file, 1 << 24);
    save(&file, s, (omm_bytes){0});
    CHECK_OK(load_signed(s, &file, file.size - DIGEST, false));
    for (size_t count = 0; count < 2; count++) {
        CHECK_OK(omm_session_set_adapters(s, (const omm_adapter *[]){adapters[1]}, count));
        CHECK_ERR(load_signed(s, &file, file.size - DIGEST, false), OMM_ERR_MISMATCH);
        CHECK(strstr(omm_err_sentence(), "other adapters") != NULL);
    }
    omm_session_close(s);
    omm_adapter_close(adapters[0]);
    omm_adapter_close(adapters[1]);
    omm_adapter_close(NULL);
    omm_lora_fini(&lora);
    omm_buf_fini(&file);
}

int main(void) {
    rig r;
    omm_isa isa;
    const int fd = mkstemp(s_path);
    CHECK(fd >= 0);
    close(fd);
    for (uint32_t i = 0; i < 400; i++) s_ids[i] = i * i * 7 % TINY_ARCH_VOCAB;
    CHECK_OK(omm_isa_choose(&isa, NULL));
    CHECK_OK(omm_compute_init(&s_compute, NULL, isa));
    open_rig(&r, &(tiny_arch){.name = "qwen2", .format = OMM_FORMAT_Q8_0}, LENGTH);
    test_truncations(&r);
    test_numbers(&r);
    test_absent_blocks(&r);
    test_notes(&r);
    test_failing_disk(&r);
    test_ends(&r);
    test_activations(&r);
    test_type(&r);
    test_adapters(&r);
    close_rig(&r);
    test_windows();
    test_first_blocks();
    test_longrope();
    for (int t = 0; t < OMM_KV_TYPE_COUNT; t++) test_nothing_else((omm_kv_type)t);
    omm_compute_fini(&s_compute);
    CHECK_OK(omm_file_remove(s_path));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

/* packed_test.c - packed copies: the same matrices and logits as without; which copy is used, and which is not; what a
 * failure leaves behind; what is asked for ahead and let go. */
#include "kernels_battery.h"
#include "tiny_arch.h"
#include "tiny_model.h"

#include "omm/clock.h"
#include "omm/file_in.h"
#include "omm/hash.h"
#include "omm/mem.h"
#include "omm/packed.h"
#include "omm/session.h"
#include "omm_test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LENGTH = 24, LAYERS = 4, PAGE = 4096 };

static char s_dir[] = "/tmp/omm-packed-XXXXXX";
static char s_path[OMM_PATH_MAX]; /* of the model */
static float s_want[LENGTH * TINY_VOCAB], s_got[LENGTH * TINY_VOCAB];

/* ---- files ----------------------------------------------------------------------------------- */

static void in_dir(char out[OMM_PATH_MAX], const char *name) {
    CHECK_OK(omm_path_join(out, s_dir, name));
}

static omm_err count_name(void *ud, const char *name) {
    *(size_t *)ud += strstr(name, ".packed") != NULL;
    return OMM_OK;
}

static size_t copies(void) {
    size_t n = 0;
    CHECK_OK(omm_dir_names(s_dir, count_name, &n));
    return n;
}

static omm_err count_any(void *ud, const char *name) {
    (void)name;
    ++*(size_t *)ud;
    return OMM_OK;
}

static omm_err remove_name(void *ud, const char *name) {
    char path[OMM_PATH_MAX];
    (void)ud;
    in_dir(path, name);
    return omm_file_remove(path);
}

static omm_err remove_copy(void *ud, const char *name) {
    return strstr(name, ".packed") ? remove_name(ud, name) : OMM_OK;
}

static void write_model(const omm_buf *file) {
    in_dir(s_path, "m.gguf");
    CHECK_OK(omm_file_write_fast(s_path, omm_buf_view(file), 0644));
}

static void write_arch(const tiny_arch *arch) {
    omm_buf file;
    omm_buf_init(&file, 1 << 24);
    tiny_arch_write(&file, arch);
    write_model(&file);
    omm_buf_fini(&file);
}

static void write_tiny(const tiny_options *options) {
    omm_buf file;
    omm_buf_init(&file, 1 << 24);
    tiny_model_write(&file, options);
    write_model(&file);
    omm_buf_fini(&file);
}

/* The copy of the model at s_path, made. */
static void open_made(omm_packed *p, omm_gguf *g, const char *model) {
    CHECK_OK(omm_gguf_open(g, model));
    CHECK_OK(omm_packed_make(p, g, model, NULL));
}

/* ---- the same model -------------------------------------------------------------------------- */

static const omm_matrix *matrix_of(const omm_model *m, size_t i) {
    if (i == 0) return &m->embed;
    if (i == 1) return m->output;
    i -= 2;
    if (i >= (size_t)m->dims.layers * OMM_LORA_TARGET_COUNT) return NULL;
    return &m->layers[i / OMM_LORA_TARGET_COUNT].weights[i % OMM_LORA_TARGET_COUNT];
}

/* All matrices lie in the map, as packing makes them; `strips` hashes them. */
static void same_matrices(const omm_model *whole, const omm_model *model, const omm_packed *p,
                          omm_hasher *strips) {
    for (size_t i = 0;; i++) {
        const omm_matrix *a = matrix_of(whole, i), *b = matrix_of(model, i);
        if (!a) break;
        const size_t bytes = omm_matrix_bytes(a);
        CHECK(b->borrowed && !a->borrowed);
        CHECK(b->format == a->format && b->rows == a->rows && b->cols == a->cols);
        CHECK(b->strip_bytes == a->strip_bytes && b->strips == a->strips);
        CHECK(b->data >= p->map.view.data + PAGE);
        CHECK(b->data + bytes <= p->map.view.data + p->map.view.size);
        CHECK_EQ((size_t)(b->data - p->map.view.data) % PAGE, 0);
        CHECK(same_bytes(a->data, b->data, bytes));
    }
    omm_hasher_update(strips, omm_bytes_of(p->map.view.data + PAGE, p->map.view.size - PAGE));
}

/* What is let go and asked for is of streamed layers alone. */
static void check_rows(const omm_model *model) {
    for (uint32_t i = 0; i < model->dims.layers; i++)
        for (size_t t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
            const omm_matrix *m = &model->layers[i].weights[t];
            const omm_bytes rows = model->layers[i].rows[t];
            CHECK(i < model->resident ? !rows.data : rows.data == m->data);
            CHECK_EQ(rows.size, i < model->resident ? 0 : omm_matrix_bytes(m));
        }
}

static void logits_of(float *out, const omm_compute *c, const omm_model *model,
                      omm_activations mode) {
    uint32_t ids[LENGTH];
    omm_session *s = NULL;
    const omm_session_options o = {.activations = mode, .batch_max = 16};
    for (uint32_t i = 0; i < LENGTH; i++) ids[i] = i * 7 % TINY_ARCH_VOCAB;
    CHECK_OK(omm_session_open(&s, c, model, NULL, &o));
    CHECK_OK(omm_session_append(s, ids, LENGTH - 2, out, true));
    for (uint32_t i = LENGTH - 2; i < LENGTH; i++)
        CHECK_OK(omm_session_append(s, ids + i, 1, out + (size_t)i * model->dims.vocab, true));
    omm_session_close(s);
}

/* With all, some and no layers that stay; the model's file is closed, and gone. */
static void same_model(const omm_compute *c, omm_activations mode, omm_hasher *strips) {
    omm_gguf g;
    omm_packed p;
    omm_model whole, model;
    open_made(&p, &g, s_path);
    CHECK_OK(omm_model_load(&whole, &g));
    logits_of(s_want, c, &whole, mode);
    for (uint32_t resident = 0; resident <= whole.dims.layers; resident++) {
        omm_gguf again;
        CHECK_OK(omm_gguf_open(&again, s_path));
        CHECK_OK(omm_model_load_packed(&model, &again, &p, resident));
        omm_gguf_close(&again);
        CHECK_EQ(model.resident, resident);
        CHECK(model.gguf == NULL);
        CHECK_EQ(model.vector_bytes, whole.vector_bytes);
        CHECK((model.weight_bytes == whole.weight_bytes) == (resident == whole.dims.layers));
        if (resident == 0) same_matrices(&whole, &model, &p, strips);
        check_rows(&model);
        memset(s_got, 0, sizeof s_got);
        logits_of(s_got, c, &model, mode);
        CHECK(same_bytes(s_got, s_want, (size_t)LENGTH * whole.dims.vocab * sizeof *s_got));
        omm_model_fini(&model);
    }
    omm_model_fini(&whole);
    omm_packed_close(&p);
    omm_gguf_close(&g);
}

/* Another digest means that strips are laid out anew, or in another order: then VERSION in packed.c counts on. */
#define STRIPS "ab2b937abe5a7bcf98febb90232c3a9d8d80c69a63e052c3b3f3d9c74d2ef2eb"
static void test_same(const omm_compute *c) {
    static const tiny_arch archs[] = {
        {.name = "llama", .format = OMM_FORMAT_Q8_0, .untied = true},
        {.name = "gemma2", .window = 30, .head_dim = 24, .format = OMM_FORMAT_Q8_0},
        {.name = "phi3", .format = OMM_FORMAT_Q8_0, .window = 50}, /* fused tensors */
        {.name = "qwen2", .plain = {"attn_q.", "ffn_down"}, .format = OMM_FORMAT_Q4_0},
    };
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_hasher strips;
    omm_hasher_init(&strips);
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        tiny_arch arch = archs[i];
        arch.layers = LAYERS;
        write_arch(&arch);
        same_model(c, OMM_ACTIVATIONS_Q8, &strips);
    }
    for (unsigned f = 0; f < OMM_FORMAT_COUNT; f++) {
        if (f < TINY_FORMATS) /* 48 and 77 rows, 160 columns */
            write_tiny(&(tiny_options){.format = (omm_format)f, .untied = f % 2 == 0});
        else
            write_arch(&(tiny_arch){.name = "llama",
                                    .format = (omm_format)f,
                                    .layers = 1,
                                    .width = 256,
                                    .ff = 256,
                                    .untied = f % 2 == 0});
        same_model(c, OMM_ACTIVATIONS_F32, &strips);
    }
    CHECK_EQ(copies(), 1); /* each took the place of the one before */
    const omm_digest digest = omm_hasher_final(&strips);
    omm_digest_hex(hex, &digest);
    if (strcmp(hex, STRIPS) == 0) return;
    fprintf(stderr, "the strips of all formats hash to %s, not " STRIPS "\n", hex);
    exit(1);
}

/* ---- which copy ------------------------------------------------------------------------------ */

static void says(const char *why) {
    if (strstr(omm_err_sentence(), why)) return;
    fprintf(stderr, "'%s' does not say '%s'\n", omm_err_sentence(), why);
    exit(1);
}

static void refused(omm_err err, const char *why) {
    omm_gguf g;
    omm_packed p;
    CHECK_OK(omm_gguf_open(&g, s_path));
    CHECK_ERR(omm_packed_open(&p, &g, s_path), err);
    says(why);
    CHECK(p.map.view.size == 0);
    omm_gguf_close(&g);
}

static void accepted(void) {
    omm_gguf g;
    omm_packed p;
    CHECK_OK(omm_gguf_open(&g, s_path));
    CHECK_OK(omm_packed_open(&p, &g, s_path));
    omm_packed_close(&p);
    omm_gguf_close(&g);
}

static void make_again(void) {
    omm_gguf g;
    omm_packed p;
    open_made(&p, &g, s_path);
    omm_packed_close(&p);
    omm_gguf_close(&g);
}

static void copy_path(char out[OMM_PATH_MAX]) {
    omm_gguf g;
    omm_packed p;
    CHECK_OK(omm_gguf_open(&g, s_path));
    CHECK_OK(omm_packed_open(&p, &g, s_path));
    memcpy(out, p.path, OMM_PATH_MAX);
    omm_packed_close(&p);
    omm_gguf_close(&g);
}

static uint64_t nanoseconds(struct timespec t) {
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* By stat(2) alone, as docs/files.md has it. */
static omm_digest state_of(const char *const *files, size_t count) {
    omm_hasher h;
    omm_hasher_init(&h);
    for (size_t i = 0; i < count; i++) {
        struct stat st;
        uint8_t bytes[32];
        CHECK_EQ(stat(files[i], &st), 0);
        omm_put_u64(bytes, st.st_ino);
        omm_put_u64(bytes + 8, (uint64_t)st.st_size);
        omm_put_u64(bytes + 16, nanoseconds(st.st_mtim));
        omm_put_u64(bytes + 24, nanoseconds(st.st_ctim));
        omm_hasher_update(&h, omm_bytes_of(bytes, sizeof bytes));
    }
    return omm_hasher_final(&h);
}

static void check_name_and_header(const omm_packed *p, const char *const *files, size_t count) {
    char want[OMM_PATH_MAX + 32], hex[OMM_DIGEST_HEX_SIZE];
    uint8_t header[PAGE] = "OMMPACK1";
    const omm_digest state = state_of(files, count);
    omm_digest_hex(hex, &state);
    snprintf(want, sizeof want, "%s.%.16s.packed", files[0], hex);
    CHECK(strcmp(p->path, want) == 0);
    omm_put_u32(header + 8, 1);
    omm_put_u32(header + 12, (uint32_t)count);
    omm_put_u64(header + 16, p->map.view.size);
    memcpy(header + 24, state.b, sizeof state.b);
    CHECK(same_bytes(p->map.view.data, header, sizeof header));
}

static void test_name(void) {
    omm_gguf g;
    omm_packed p;
    CHECK_OK(omm_dir_names(s_dir, remove_name, NULL));
    write_tiny(&(tiny_options){.format = OMM_FORMAT_Q8_0});
    const struct timespec past[2] = {{.tv_sec = 12345}, {.tv_sec = 67890}};
    CHECK_EQ(utimensat(AT_FDCWD, s_path, past, 0), 0); /* other than that of the change */
    refused(OMM_ERR_NOT_FOUND, "m.gguf has no packed copy");
    open_made(&p, &g, s_path);
    check_name_and_header(&p, (const char *const[]){s_path}, 1);
    omm_packed_close(&p);
    omm_gguf_close(&g);
}

/* The same bytes by any number of threads. */
static void test_threads(void) {
    char path[OMM_PATH_MAX];
    omm_digest one, many;
    omm_pool *pool = NULL;
    omm_gguf g;
    omm_packed p;
    write_arch(&(tiny_arch){.name = "llama", .format = OMM_FORMAT_Q8_0, .vocab = 777});
    make_again();
    copy_path(path);
    CHECK_OK(omm_hash_file(&one, path));
    CHECK_OK(omm_file_remove(path));
    CHECK_OK(omm_pool_open(&pool, 3));
    CHECK_OK(omm_gguf_open(&g, s_path));
    CHECK_OK(omm_packed_make(&p, &g, s_path, pool));
    omm_packed_close(&p);
    omm_gguf_close(&g);
    omm_pool_close(pool);
    CHECK_OK(omm_hash_file(&many, path));
    CHECK(omm_digest_equal(&one, &many));
}

static void rename_away_and_back(void) {
    char away[OMM_PATH_MAX];
    in_dir(away, "away");
    CHECK_EQ(rename(s_path, away), 0);
    CHECK_EQ(rename(away, s_path), 0);
}

static void write_anew(void) {
    omm_buf file;
    omm_buf_init(&file, 1 << 24);
    CHECK_OK(omm_file_read(&file, s_path));
    CHECK_OK(omm_file_write_fast(s_path, omm_buf_view(&file), 0644));
    omm_buf_fini(&file);
}

/* One weight's byte, and the times of before. */
static void change_and_hide(void) {
    struct stat st;
    CHECK_EQ(stat(s_path, &st), 0);
    FILE *f = fopen(s_path, "r+b");
    CHECK(f && fseek(f, -1, SEEK_END) == 0 && fputc(1, f) == 1 && fclose(f) == 0);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    CHECK_EQ(utimensat(AT_FDCWD, s_path, times, 0), 0);
}

static void chmod_model(void) {
    CHECK_EQ(chmod(s_path, 0640), 0);
}

/* Whatever is done to the model, its copy is of a state that has passed, and the next takes its place. */
static void test_states(void) {
    void (*const changes[])(void) = {chmod_model, rename_away_and_back, write_anew,
                                     change_and_hide};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        accepted();
        const omm_clock clock = omm_clock_system();
        clock.sleep_ms(clock.ud, 20); /* more than a tick */
        changes[i]();
        refused(OMM_ERR_NOT_FOUND, "m.gguf has no packed copy");
        make_again();
        accepted();
        CHECK_EQ(copies(), 1);
    }
}

/* A model of the moment may be changed again at the same time, by the system's clock: so making waits, and what is
 * changed before it has ended is not packed. */
static void test_changed_meanwhile(void) {
    omm_gguf g;
    omm_packed p;
    write_anew();
    open_made(&p, &g, s_path);
    const omm_clock clock = omm_clock_system();
    CHECK(clock.wall_ms(clock.ud) - g.map.state.changed_ns / 1000000 > 50);
    CHECK_OK(omm_file_remove(p.path));
    omm_packed_close(&p);
    CHECK_EQ(chmod(s_path, 0604), 0);
    CHECK_ERR(omm_packed_make(&p, &g, s_path, NULL), OMM_ERR_STATE);
    says("m.gguf was changed while it was packed");
    omm_gguf_close(&g);
    refused(OMM_ERR_NOT_FOUND, "m.gguf has no packed copy");
    make_again();
}

static void put_file(const char *name, omm_bytes data) {
    char path[OMM_PATH_MAX];
    in_dir(path, name);
    CHECK_OK(omm_file_write_fast(path, data, 0644));
}

static bool is_there(const char *name) {
    char path[OMM_PATH_MAX];
    in_dir(path, name);
    return omm_file_exists(path);
}

static void remove_copy_of_model(void) {
    char path[OMM_PATH_MAX];
    copy_path(path);
    CHECK_OK(omm_file_remove(path));
}

/* Old copies of this model go; what only looks like one does not, nor what somebody may be writing. */
static void test_old_ones(void) {
    static const char *const kept[] = {
        "m.gguf.0123456789abcde.packed",          "m.gguf.0123456789abcdef",
        "m.gguf.0123456789abcdef.packed2",        "m.gguf.0123456789ABCDEF.packed",
        "n.gguf.0123456789abcdef.packed",         "m.gguf..packed",
        "m.gguf.0123456789abcdef.packed.tmp.77.0"};
    char path[OMM_PATH_MAX], same_end[OMM_PATH_MAX], link[OMM_PATH_MAX];
    omm_buf copy;
    omm_buf_init(&copy, 1 << 24);
    copy_path(path);
    CHECK_OK(omm_file_read(&copy, path));
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) put_file(kept[i], omm_buf_view(&copy));
    put_file("m.gguf.0000000000000000.packed", omm_bytes_str("not a copy"));
    put_file("m.gguf.1111111111111111.packed", omm_buf_view(&copy));
    in_dir(same_end, "m.gguf.2222222222222222.packed");
    in_dir(link, "m.gguf.3333333333333333.packed");
    CHECK_EQ(mkdir(same_end, 0755), 0);
    CHECK_EQ(symlink("m.gguf.1111111111111111.packed", link), 0);
    accepted();
    make_again(); /* it is there: nothing is made, or removed */
    CHECK(is_there("m.gguf.1111111111111111.packed"));
    remove_copy_of_model();
    make_again();
    accepted();
    CHECK(!is_there("m.gguf.1111111111111111.packed"));
    CHECK(is_there("m.gguf.0000000000000000.packed"));
    CHECK(is_there("m.gguf.2222222222222222.packed"));
    struct stat st;
    CHECK_EQ(lstat(link, &st), 0);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) CHECK(is_there(kept[i]));
    CHECK_EQ(rmdir(same_end), 0);
    CHECK_OK(omm_dir_names(s_dir, remove_name, NULL));
    omm_buf_fini(&copy);
}

/* Two at once: one makes it, and the other says so. */
static void test_held(void) {
    omm_file_in other;
    omm_gguf g;
    omm_packed p;
    write_tiny(&(tiny_options){.format = OMM_FORMAT_Q8_0});
    CHECK_OK(omm_file_in_open(&other, s_path));
    CHECK(omm_file_hold(other.fd));
    CHECK_OK(omm_gguf_open(&g, s_path));
    CHECK_ERR(omm_packed_make(&p, &g, s_path, NULL), OMM_ERR_STATE);
    says("another program makes it now");
    CHECK(p.map.view.size == 0);
    omm_file_in_close(&other);
    CHECK_OK(omm_packed_make(&p, &g, s_path, NULL));
    omm_packed_close(&p);
    omm_gguf_close(&g);
    CHECK_EQ(copies(), 1);
}

static void put_copy(const char *path, const omm_buf *copy) {
    CHECK_OK(omm_file_write_fast(path, omm_buf_view(copy), 0644));
}

/* Every byte of the header counts, and the size. */
static void test_header(void) {
    char path[OMM_PATH_MAX];
    omm_buf copy;
    omm_gguf g;
    omm_packed p;
    omm_model model;
    write_tiny(&(tiny_options){.format = OMM_FORMAT_Q4_0});
    make_again();
    copy_path(path);
    omm_buf_init(&copy, 1 << 24);
    CHECK_OK(omm_file_read(&copy, path));
    CHECK_OK(omm_gguf_open(&g, s_path));
    for (size_t at = 0; at < PAGE; at += at < 96 ? 1 : 500) {
        copy.data[at] ^= 1;
        put_copy(path, &copy);
        CHECK(omm_packed_open(&p, &g, s_path) != OMM_OK);
        copy.data[at] ^= 1;
    }
    copy.data[8]++;
    put_copy(path, &copy);
    refused(OMM_ERR_VERSION, "version 2 of packed copies: this program has 1");
    copy.data[8]--;
    static const size_t sizes[] = {0, 1, 8, 24, PAGE - 1, PAGE, PAGE + 1};
    const size_t whole = copy.size;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        copy.size = sizes[i];
        put_copy(path, &copy);
        refused(sizes[i] < PAGE ? OMM_ERR_FORMAT : OMM_ERR_SIZE,
                sizes[i] < PAGE ? "is no packed copy" : "and says");
    }
    copy.size = whole - PAGE;
    omm_put_u64(copy.data + 16, copy.size); /* agrees with itself, not with the model */
    put_copy(path, &copy);
    CHECK_OK(omm_packed_open(&p, &g, s_path));
    CHECK_ERR(omm_model_load_packed(&model, &g, &p, 0), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "bytes: expected ") != NULL);
    omm_packed_close(&p);
    uint8_t *more = NULL;
    copy.size = whole;
    CHECK_OK(omm_buf_extend(&copy, &more, PAGE)); /* one page too many */
    omm_put_u64(copy.data + 16, copy.size);
    put_copy(path, &copy);
    CHECK_OK(omm_packed_open(&p, &g, s_path));
    CHECK_ERR(omm_model_load_packed(&model, &g, &p, 0), OMM_ERR_MISMATCH);
    omm_packed_close(&p);
    copy.size = whole;
    omm_put_u64(copy.data + 16, whole);
    put_copy(path, &copy);
    accepted();
    omm_gguf_close(&g);
    omm_buf_fini(&copy);
}

static uint32_t mode_of(const char *path) {
    struct stat st;
    CHECK_EQ(stat(path, &st), 0);
    return st.st_mode & 07777;
}

/* It gives nobody a right that the model does not give, and a group of ours is not the model's. */
static void test_rights(void) {
    static const struct {
        mode_t mask, model, copy;
    } cases[] = {{0, 0600, 0600}, {0, 0640, 0600}, {0, 0644, 0644},    {0, 0666, 0644},
                 {0, 0604, 0604}, {0, 0444, 0644}, {0077, 0644, 0600}, {022, 0664, 0644}};
    char path[OMM_PATH_MAX];
    const mode_t before = umask(0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_EQ(chmod(s_path, cases[i].model), 0);
        (void)umask(cases[i].mask);
        make_again();
        copy_path(path);
        CHECK_EQ(mode_of(path), cases[i].copy);
    }
    (void)umask(before);
    CHECK_EQ(chmod(s_path, 0644), 0);
    make_again();
    copy_path(path);
    CHECK_EQ(chmod(path, 0664), 0);
    refused(OMM_ERR_MISMATCH, "has rights 664, and the model 644");
    CHECK_EQ(chmod(path, 0646), 0);
    refused(OMM_ERR_MISMATCH, "has rights 646");
    make_again(); /* in its place */
    CHECK_EQ(mode_of(path), 0644);
    CHECK_EQ(chmod(path, 0600), 0);
    accepted();
    CHECK_EQ(chmod(s_path, 0600), 0);
    make_again();
    copy_path(path);
    CHECK_EQ(chmod(path, 0604), 0);
    refused(OMM_ERR_MISMATCH, "has rights 604, and the model 600");
}

/* Behind a link lies what somebody else has put there, whoever owns that. */
static void test_link(void) {
    char path[OMM_PATH_MAX], away[OMM_PATH_MAX];
    make_again();
    copy_path(path);
    in_dir(away, "away");
    CHECK_EQ(rename(path, away), 0);
    CHECK_EQ(symlink("away", path), 0);
    refused(OMM_ERR_IO, "Too many levels of symbolic links");
    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(rename(away, path), 0);
    accepted();
}

/* False, and said: nobody but root can, and not in every container. */
static bool gives_away(const char *path, uid_t to) {
    if (geteuid() == 0 && chown(path, to, (gid_t)-1) == 0) return true;
    fprintf(stderr, "skipped, %s: this user cannot give files away\n", path);
    return false;
}

/* Of this user, of root, of the model's owner; of nobody else, even if that is who made a part of the model. */
static void test_owners(void) {
    enum { ME = 12345, OWNER = 54321, OTHER = 777 };
    char path[OMM_PATH_MAX];
    if (!gives_away(s_path, OWNER)) return;
    CHECK_EQ(chmod(s_dir, 0755), 0);
    CHECK_EQ(chmod(s_path, 0644), 0);
    make_again();
    copy_path(path);
    CHECK_EQ(seteuid(ME), 0);
    accepted(); /* root's */
    static const uid_t owners[] = {ME, OWNER, OTHER};
    for (size_t i = 0; i < 3; i++) {
        CHECK_EQ(seteuid(0), 0);
        CHECK_EQ(chown(path, owners[i], (gid_t)-1), 0);
        CHECK_EQ(seteuid(ME), 0);
        if (owners[i] == OTHER)
            refused(OMM_ERR_STATE, "belongs to user 777: neither the model's owner");
        else
            accepted();
    }
    CHECK_EQ(seteuid(0), 0);
    omm_gguf g;
    omm_packed p;
    struct stat st;
    CHECK_OK(omm_gguf_open(&g, s_path));
    CHECK_ERR(omm_packed_make(&p, &g, s_path, NULL), OMM_ERR_STATE); /* and is left alone */
    CHECK_EQ(stat(path, &st), 0);
    CHECK_EQ(st.st_uid, OTHER);
    omm_gguf_close(&g);
    CHECK_OK(omm_file_remove(path));
}

/* A file system that gives all files rights of its own: the linker leads this call here (CMakeLists.txt). */
static uint32_t s_own_rights; /* 0: none */
omm_err __real_omm_file_out_state(omm_file_state *out, const omm_file_out *file);
omm_err __wrap_omm_file_out_state(omm_file_state *out, const omm_file_out *file);
omm_err __wrap_omm_file_out_state(omm_file_state *out, const omm_file_out *file) {
    OMM_TRY(__real_omm_file_out_state(out, file));
    if (s_own_rights) out->mode = s_own_rights;
    return OMM_OK;
}

/* A copy that would be refused at every start is not made at every start; nor one in memory. */
static void test_not_begun(void) {
    char path[OMM_PATH_MAX];
    struct stat st;
    omm_gguf g;
    omm_packed p;
    write_tiny(&(tiny_options){.format = OMM_FORMAT_Q8_0});
    CHECK_OK(omm_gguf_open(&g, s_path));
    s_own_rights = 0777;
    CHECK_ERR(omm_packed_make(&p, &g, s_path, NULL), OMM_ERR_MISMATCH);
    says("has rights 777, and the model 644");
    s_own_rights = 0;
    omm_gguf_close(&g);
    refused(OMM_ERR_NOT_FOUND, "has no packed copy");
    if (stat("/dev/shm", &st) != 0 || access("/dev/shm", W_OK) != 0) return;
    snprintf(path, sizeof path, "/dev/shm/omm-packed-%ld.gguf", (long)getpid());
    omm_buf file;
    omm_buf_init(&file, 1 << 24);
    CHECK_OK(omm_file_read(&file, s_path));
    CHECK_OK(omm_file_write_fast(path, omm_buf_view(&file), 0600));
    CHECK_OK(omm_gguf_open(&g, path));
    CHECK_ERR(omm_packed_make(&p, &g, path, NULL), OMM_ERR_IO);
    says("/dev/shm keeps no files");
    omm_gguf_close(&g);
    CHECK_OK(omm_file_remove(path));
    omm_buf_fini(&file);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void nothing_made(omm_err err, const char *why) {
    omm_gguf g;
    omm_packed p;
    const size_t before = copies(), live = omm_mem_live();
    CHECK_OK(omm_gguf_open(&g, s_path));
    CHECK_ERR(omm_packed_make(&p, &g, s_path, NULL), err);
    says(why);
    CHECK(p.map.view.size == 0);
    omm_gguf_close(&g);
    CHECK_EQ(copies(), before);
    CHECK_EQ(omm_mem_live(), live);
}

static size_t files_in_dir(void) {
    size_t n = 0;
    CHECK_OK(omm_dir_names(s_dir, count_any, &n));
    return n;
}

static void test_failures(void) {
    char longest[240], keep[OMM_PATH_MAX];
    CHECK_OK(omm_dir_names(s_dir, remove_name, NULL));
    write_tiny(&(tiny_options){.format = OMM_FORMAT_Q8_0, .nan = "blk.1.ffn_up.weight"});
    nothing_made(OMM_ERR_NUMERIC, "tensor 'blk.1.ffn_up.weight': scale of row");
    CHECK_EQ(files_in_dir(), 1);
    write_tiny(&(tiny_options){.format = OMM_FORMAT_Q8_0});
    struct rlimit small, old; /* of files: as little room as a full disk */
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 20000;
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    nothing_made(OMM_ERR_IO, "no room for ");
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
    CHECK_EQ(files_in_dir(), 1);
    memset(longest, 'n', sizeof longest - 1); /* a name, and with digits none any more */
    longest[sizeof longest - 1] = 0;
    memcpy(keep, s_path, sizeof keep);
    in_dir(s_path, longest);
    CHECK_EQ(rename(keep, s_path), 0);
    refused(OMM_ERR_IO, "File name too long");
    nothing_made(OMM_ERR_IO, "File name too long");
    CHECK_OK(omm_dir_names(s_dir, remove_name, NULL));
}

static void test_out_of_memory(void) {
    omm_gguf g;
    write_tiny(&(tiny_options){.format = OMM_FORMAT_Q4_0, .untied = true});
    CHECK_OK(omm_gguf_open(&g, s_path));
    const size_t live = omm_mem_live();
    omm_err err = OMM_ERR_NOMEM;
    for (size_t n = 1; err != OMM_OK; n++) {
        omm_packed p = {0};
        omm_model model;
        omm_mem_fail_nth(n);
        err = omm_packed_make(&p, &g, s_path, NULL);
        if (err == OMM_OK) err = omm_model_load_packed(&model, &g, &p, 1);
        if (err == OMM_OK) omm_model_fini(&model);
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        omm_packed_close(&p);
        CHECK(err == OMM_OK || err == OMM_ERR_NOMEM);
        CHECK_EQ(omm_mem_live(), live);
    }
    omm_gguf_close(&g);
}

/* ---- several files --------------------------------------------------------------------------- */

static const char *part_name(unsigned no) {
    static char path[OMM_PATH_MAX];
    char name[64];
    snprintf(name, sizeof name, "m-%05u-of-00002.gguf", no + 1);
    in_dir(path, name);
    return path;
}

/* Half of the tensors of the model at s_path, and with the first its keys. */
static void write_part(const omm_gguf *g, unsigned no) {
    omm_gguf_writer w;
    omm_buf out;
    omm_buf_init(&out, 1 << 24);
    omm_gguf_writer_init(&w);
    for (size_t i = 0; no == 0 && i < g->kv_count; i++) omm_gguf_put_kv(&w, &g->kvs[i]);
    omm_gguf_put_u32(&w, "split.no", no);
    omm_gguf_put_u32(&w, "split.count", 2);
    omm_gguf_put_u32(&w, "split.tensors.count", (uint32_t)g->tensor_count);
    const size_t half = g->tensor_count / 2;
    for (size_t i = no ? half : 0; i < (no ? g->tensor_count : half); i++) {
        const omm_gguf_tensor *t = &g->tensors[i];
        omm_gguf_put_tensor(&w, t->name, t->type, t->n_dims, t->dims, t->data);
    }
    CHECK_OK(omm_gguf_writer_finish(&out, &w));
    CHECK_OK(omm_file_write_fast(part_name(no), omm_buf_view(&out), 0644));
    omm_gguf_writer_fini(&w);
    omm_buf_fini(&out);
}

/* By the path of any file there is one copy, beside the first, and it is of all files' states and owners. */
static void test_split(void) {
    char parts[2][OMM_PATH_MAX];
    omm_gguf g, one;
    omm_packed p;
    omm_model model;
    CHECK_OK(omm_gguf_open(&one, s_path));
    for (unsigned no = 0; no < 2; no++) {
        write_part(&one, no);
        memcpy(parts[no], part_name(no), OMM_PATH_MAX);
    }
    omm_gguf_close(&one);
    CHECK_OK(omm_dir_names(s_dir, remove_copy, NULL));
    open_made(&p, &g, parts[1]);
    check_name_and_header(&p, (const char *const[]){parts[0], parts[1]}, 2);
    CHECK_OK(omm_model_load_packed(&model, &g, &p, UINT32_MAX));
    omm_model_fini(&model);
    omm_packed_close(&p);
    omm_gguf_close(&g);
    for (unsigned i = 0; i < 2; i++) {
        const unsigned no = 1 - i; /* the second first: its rights count as well */
        CHECK_EQ(copies(), 1);
        CHECK_OK(omm_gguf_open(&g, parts[no]));
        CHECK_OK(omm_packed_open(&p, &g, parts[no]));
        CHECK_OK(omm_file_remove(p.path));
        omm_packed_close(&p);
        const omm_clock clock = omm_clock_system();
        clock.sleep_ms(clock.ud, 20);
        CHECK_EQ(chmod(parts[no], 0640), 0);
        CHECK_ERR(omm_packed_make(&p, &g, parts[0], NULL), OMM_ERR_STATE);
        says("was changed while it was packed");
        omm_gguf_close(&g);
        CHECK_OK(omm_gguf_open(&g, parts[0]));
        CHECK_ERR(omm_packed_open(&p, &g, parts[0]), OMM_ERR_NOT_FOUND);
        CHECK_OK(omm_packed_make(&p, &g, parts[0], NULL));
        CHECK_EQ(mode_of(p.path), 0600); /* not all are for everybody */
        omm_packed_close(&p);
        omm_gguf_close(&g);
    }
    CHECK_EQ(chmod(parts[1], 0644), 0); /* nor are they now, when the last one is */
    open_made(&p, &g, parts[0]);
    CHECK_EQ(mode_of(p.path), 0600);
    omm_packed_close(&p);
    omm_gguf_close(&g);
}

/* Who owns one part of a model alone could not change the others. */
static void test_split_owners(void) {
    char path[OMM_PATH_MAX];
    omm_gguf g;
    omm_packed p;
    for (unsigned no = 0; no < 2; no++) {
        if (!gives_away(part_name(no), 54321)) return;
        if (no > 0) CHECK_EQ(chown(part_name(0), geteuid(), (gid_t)-1), 0);
        open_made(&p, &g, part_name(0));
        memcpy(path, p.path, sizeof path);
        omm_packed_close(&p);
        CHECK_EQ(chown(path, 54321, (gid_t)-1), 0);
        CHECK_ERR(omm_packed_open(&p, &g, part_name(0)), OMM_ERR_STATE);
        omm_gguf_close(&g);
        CHECK_OK(omm_file_remove(path));
    }
}

/* ---- streams --------------------------------------------------------------------------------- */

/* What is asked for ahead and what is let go of a map, in order: the linker leads these calls here (CMakeLists.txt). */
static const uint8_t *s_asked[64], *s_let_go[64];
static size_t s_asked_count, s_let_go_count;
void __real_omm_map_prefetch(const omm_map *map, omm_bytes part);
void __wrap_omm_map_prefetch(const omm_map *map, omm_bytes part);
void __wrap_omm_map_prefetch(const omm_map *map, omm_bytes part) {
    if (s_asked_count < 64) s_asked[s_asked_count++] = part.data;
    __real_omm_map_prefetch(map, part);
}
void __real_omm_map_release(const omm_map *map, omm_bytes part);
void __wrap_omm_map_release(const omm_map *map, omm_bytes part);
void __wrap_omm_map_release(const omm_map *map, omm_bytes part) {
    if (s_let_go_count < 64) s_let_go[s_let_go_count++] = part.data;
    __real_omm_map_release(map, part);
}

static bool is_layer(const omm_model *m, const uint8_t *const *at, size_t layer) {
    for (size_t t = 0; t < OMM_LORA_TARGET_COUNT; t++)
        if (at[t] != m->layers[layer].weights[t].data) return false;
    return true;
}

/* Each streamed layer is asked for one before its turn and let go when the next one has it, the last in the next
 * pass; those that stay are neither. */
static void test_read_ahead(const omm_compute *c) {
    enum { RESIDENT = 1, N = OMM_LORA_TARGET_COUNT };
    const uint32_t ids[2] = {1, 2};
    omm_gguf g;
    omm_packed p;
    omm_model model;
    omm_session *s = NULL;
    write_arch(&(tiny_arch){.name = "llama", .layers = LAYERS, .format = OMM_FORMAT_Q8_0});
    open_made(&p, &g, s_path);
    CHECK_OK(omm_model_load_packed(&model, &g, &p, RESIDENT));
    CHECK_OK(omm_session_open(&s, c, &model, NULL, NULL));
    for (unsigned pass = 0; pass < 2; pass++) {
        s_asked_count = s_let_go_count = 0;
        CHECK_OK(omm_session_append(s, ids + pass, 1, NULL, false));
        CHECK_EQ(s_asked_count, (LAYERS - RESIDENT) * N);
        for (size_t i = 0; i < LAYERS - RESIDENT; i++)
            CHECK(is_layer(&model, s_asked + i * N, RESIDENT + (i + 1) % (LAYERS - RESIDENT)));
        CHECK_EQ(s_let_go_count, (LAYERS - RESIDENT - (pass == 0)) * N);
        for (size_t i = 0; i < s_let_go_count / N; i++)
            CHECK(is_layer(&model, s_let_go + i * N,
                           pass == 0
                               ? RESIDENT + i
                               : RESIDENT + (i + LAYERS - RESIDENT - 1) % (LAYERS - RESIDENT)));
    }
    omm_session_close(s);
    omm_model_fini(&model);
    omm_packed_close(&p);
    omm_gguf_close(&g);
}

/* Copies that were closed are not in this process any more, or a machine would keep the memory of each. */
static void test_nothing_mapped(void) {
    omm_buf maps;
    omm_buf_init(&maps, 16 << 20);
    CHECK_OK(omm_file_read(&maps, "/proc/self/maps"));
    CHECK_OK(omm_buf_append(&maps, "", 1));
    CHECK(strstr((const char *)maps.data, s_dir) == NULL);
    omm_buf_fini(&maps);
}

int main(void) {
    omm_compute c;
    omm_isa best;
    CHECK(mkdtemp(s_dir) != NULL);
    CHECK_OK(omm_isa_choose(&best, NULL));
    CHECK_OK(omm_compute_init(&c, NULL, best));
    test_same(&c);
    test_name();
    test_threads();
    test_states();
    test_changed_meanwhile();
    test_old_ones();
    test_held();
    test_header();
    test_rights();
    test_link();
    test_owners();
    test_not_begun();
    test_failures();
    test_out_of_memory();
    test_split();
    test_split_owners();
    test_read_ahead(&c);
    test_nothing_mapped();
    omm_compute_fini(&c);
    CHECK_OK(omm_dir_remove(s_dir));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

/* gguf_split_test.c - models in several files: any part opens all, and every way in which parts do not
 * fit together is refused by name. */
#include "omm/file.h"
#include "omm/gguf.h"
#include "omm/hash.h"
#include "omm/mem.h"
#include "omm/memory.h"

#include "omm_test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PARTS = 3, TENSORS = 5 };

static char s_dir[] = "/tmp/omm-split-XXXXXX";

static const char *part_name(unsigned number, unsigned count) {
    static char path[OMM_PATH_MAX];
    snprintf(path, sizeof path, "%s/model-%05u-of-%05u.gguf", s_dir, number, count);
    return path;
}

/* What to do wrong, in part `part` (from 0). */
typedef struct fault {
    unsigned part;
    const char *skip, *key; /* a key to leave out, or to give `value` */
    uint32_t value;
    const char *extra; /* a key that the first part does not have */
    const char *twin;  /* name for the part's tensor */
    bool other_kind;   /* general.architecture differs */
    bool as_array;     /* llama.block_count is an array of the one number */
    bool quantised;    /* t4 has blocks of Q8_0 */
    unsigned truncate; /* bytes */
} fault;

static void put_u32(omm_gguf_writer *w, const fault *f, bool here, const char *key, uint32_t v) {
    if (here && f->skip && strcmp(f->skip, key) == 0) return;
    omm_gguf_put_u32(w, key, here && f->key && strcmp(f->key, key) == 0 ? f->value : v);
}

static void put_tensor(omm_gguf_writer *w, const char *name, const float *values) {
    const uint64_t dims[2] = {2, 3};
    omm_gguf_put_tensor(w, name, OMM_GGML_F32, 2, dims, omm_bytes_of(values, 6 * sizeof *values));
}

/* Part 0 has tensors t0 and t1, part 1 t2 and t3, part 2 t4. */
static void write_part(unsigned part, const fault *f) {
    static float values[TENSORS][6];
    static const uint8_t block[34];
    omm_gguf_writer w;
    omm_buf out;
    const bool here = f->part == part;
    omm_gguf_writer_init(&w);
    omm_buf_init(&out, 1 << 16);
    put_u32(&w, f, here, "split.no", part);
    put_u32(&w, f, here, "split.count", PARTS);
    put_u32(&w, f, here, "split.tensors.count", TENSORS);
    if (part == 0 || here)
        omm_gguf_put_text(&w, "general.architecture", here && f->other_kind ? "other" : "llama");
    if (part == 0) omm_gguf_put_u32(&w, "llama.block_count", 7);
    if (here && f->as_array) omm_gguf_put_array(&w, "llama.block_count", OMM_GGUF_U32, "\7\0\0", 1);
    if (part == 1) omm_gguf_put_alignment(&w, 64);
    if (here && f->extra) omm_gguf_put_u32(&w, f->extra, 1);
    for (unsigned t = 2 * part; t < 2 * part + 2 && t < TENSORS; t++) {
        char name[8];
        snprintf(name, sizeof name, "t%u", t);
        for (unsigned i = 0; i < 6; i++) values[t][i] = (float)(10 * t + i);
        if (t == 4 && f->quantised)
            omm_gguf_put_tensor(&w, name, OMM_GGML_Q8_0, 1, (const uint64_t[]){32},
                                omm_bytes_of(block, sizeof block));
        else
            put_tensor(&w, here && f->twin ? f->twin : name, values[t]);
    }
    CHECK_OK(omm_gguf_writer_finish(&out, &w));
    out.size -= here ? f->truncate : 0;
    CHECK_OK(omm_file_write_fast(part_name(part + 1, PARTS), omm_buf_view(&out), 0644));
    omm_gguf_writer_fini(&w);
    omm_buf_fini(&out);
}

static void write_all(const fault *f) {
    for (unsigned part = 0; part < PARTS; part++) write_part(part, f);
}

static void any_part_opens_all(void) {
    omm_buf whole;
    omm_buf_init(&whole, 1 << 16);
    write_all(&(fault){.part = PARTS});
    for (unsigned k = 1; k <= PARTS; k++) CHECK_OK(omm_file_read(&whole, part_name(k, PARTS)));
    const omm_digest want = omm_hash(omm_buf_view(&whole));
    for (unsigned k = 1; k <= PARTS; k++) {
        omm_gguf g;
        uint32_t layers = 0;
        CHECK_OK(omm_gguf_open(&g, part_name(k, PARTS)));
        CHECK_EQ(g.part_count, PARTS);
        CHECK_EQ(g.tensor_count, TENSORS);
        CHECK_OK(omm_gguf_get_u32(&layers, &g, "llama.block_count"));
        CHECK_EQ(layers, 7);
        CHECK_EQ(omm_gguf_bytes(&g), whole.size);
        const omm_digest digest = omm_gguf_digest(&g);
        CHECK(omm_digest_equal(&digest, &want));
        for (unsigned t = 0; t < TENSORS; t++) {
            char name[8];
            snprintf(name, sizeof name, "t%u", t);
            const omm_gguf_tensor *tensor = omm_gguf_find_tensor(&g, name);
            CHECK(tensor != NULL);
            CHECK_EQ(tensor->part, t / 2);
            CHECK(omm_get_f32(tensor->data.data + 20) == (float)(10 * t + 5));
        }
        omm_gguf_close(&g);
    }
    omm_buf_fini(&whole);
}

/* Whichever part another program writes to. */
static void each_part_is_watched(void) {
    static const struct timespec then = {1000000000, 0}, later = {1000000001, 0};
    write_all(&(fault){.part = PARTS});
    for (unsigned k = 1; k <= PARTS; k++)
        CHECK_EQ(utimensat(AT_FDCWD, part_name(k, PARTS), (struct timespec[2]){then, then}, 0), 0);
    for (unsigned k = 1; k <= PARTS; k++) {
        omm_gguf g;
        CHECK_OK(omm_gguf_open(&g, part_name(1, PARTS)));
        CHECK_OK(omm_gguf_check_unchanged(&g));
        CHECK_EQ(utimensat(AT_FDCWD, part_name(k, PARTS), (struct timespec[2]){then, later}, 0), 0);
        CHECK_ERR(omm_gguf_check_unchanged(&g), OMM_ERR_STATE);
        CHECK(strstr(omm_err_sentence(), part_name(k, PARTS)) != NULL);
        omm_gguf_close(&g);
    }
}

static void refused(const fault *f, omm_err err, const char *says) {
    omm_gguf g;
    write_all(f);
    for (unsigned k = 1; k <= PARTS; k++) {
        const omm_err got = omm_gguf_open(&g, part_name(k, PARTS));
        bool said = strstr(omm_err_sentence(), says) != NULL;
        if (got == err && said) continue;
        /* The file that was named speaks first, of itself. */
        if (k == f->part + 1 && got != OMM_OK) continue;
        fprintf(stderr, "opened by part %u: %s, wanted %s and '%s'\n", k, omm_err_detail(),
                omm_err_name(err), says);
        exit(1);
    }
}

static void refusals(void) {
    refused(&(fault){.extra = "general.quantization_version", .quantised = true}, OMM_ERR_VERSION,
            "general.quantization_version is 1, with a tensor of type Q8_0 (t4)");
    refused(&(fault){.part = 1, .key = "split.no", .value = 2}, OMM_ERR_MISMATCH, "part 2 of 3");
    refused(&(fault){.part = 2, .key = "split.count", .value = 4}, OMM_ERR_MISMATCH, "part 3 of 3");
    refused(&(fault){.part = 1, .key = "split.tensors.count", .value = 6}, OMM_ERR_MISMATCH,
            "3, 6: expected 1, 3, 5");
    refused(&(fault){.part = 2, .skip = "split.no"}, OMM_ERR_NOT_FOUND, "split.no is missing");
    refused(&(fault){.part = 1, .skip = "split.tensors.count"}, OMM_ERR_NOT_FOUND,
            "split.tensors.count is missing");
    refused(&(fault){.part = 2, .extra = "llama.vocab_size"}, OMM_ERR_MISMATCH,
            "llama.vocab_size of part 3 is not in");
    refused(&(fault){.part = 1, .other_kind = true}, OMM_ERR_MISMATCH,
            "general.architecture of part 2 is not as in");
    refused(&(fault){.part = 2, .as_array = true}, OMM_ERR_MISMATCH,
            "llama.block_count of part 3 is not as in");
    refused(&(fault){.part = 2, .twin = "t1"}, OMM_ERR_FORMAT, "tensor t1 occurs twice");
    refused(&(fault){.part = 1, .truncate = 1}, OMM_ERR_SIZE, "part 2 of 3");
    refused(&(fault){.part = 2, .key = "split.no", .value = 3}, OMM_ERR_FORMAT, "0 to 2");
    write_all(&(fault){.part = PARTS});
    CHECK_OK(omm_file_remove(part_name(2, PARTS)));
    omm_gguf g;
    CHECK_ERR(omm_gguf_open(&g, part_name(1, PARTS)), OMM_ERR_NOT_FOUND);
    CHECK(strstr(omm_err_sentence(), "part 2 of 3") != NULL);
    CHECK(strstr(omm_err_sentence(), "model-00002-of-00003.gguf") != NULL);
}

/* All parts agree, and all are wrong. */
static void all_wrong(const char *key, uint32_t value, omm_err err, const char *says) {
    omm_gguf g;
    for (unsigned part = 0; part < PARTS; part++)
        write_part(part, &(fault){.part = part, .key = key, .value = value});
    CHECK_ERR(omm_gguf_open(&g, part_name(1, PARTS)), err);
    if (!strstr(omm_err_sentence(), says)) fprintf(stderr, "%s\n", omm_err_sentence());
    CHECK(strstr(omm_err_sentence(), says) != NULL);
    CHECK(strstr(omm_err_sentence(), part_name(1, PARTS)) != NULL);
}

/* A file whose number of parts is a text. */
static void write_text_count(const char *path) {
    omm_gguf_writer w;
    omm_buf out;
    omm_gguf_writer_init(&w);
    omm_buf_init(&out, 1 << 16);
    omm_gguf_put_text(&w, "split.count", "3");
    CHECK_OK(omm_gguf_writer_finish(&out, &w));
    CHECK_OK(omm_file_write_fast(path, omm_buf_view(&out), 0644));
    omm_gguf_writer_fini(&w);
    omm_buf_fini(&out);
}

static void names(void) {
    char other[OMM_PATH_MAX];
    omm_gguf g;
    write_all(&(fault){.part = PARTS});
    snprintf(other, sizeof other, "%s/x.gguf", s_dir);
    CHECK_EQ(rename(part_name(1, PARTS), other), 0);
    CHECK_ERR(omm_gguf_open(&g, other), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "-00001-of-00003.gguf") != NULL);
    CHECK(strstr(omm_err_sentence(), other) != NULL);
    CHECK_EQ(chdir(s_dir), 0);
    CHECK_ERR(omm_gguf_open(&g, "x.gguf"), OMM_ERR_FORMAT); /* too short for a number */
    CHECK_ERR(omm_gguf_open(&g, part_name(2, PARTS)), OMM_ERR_NOT_FOUND);
    all_wrong("split.count", 0, OMM_ERR_FORMAT, "split.count is 0");
    all_wrong("split.count", OMM_GGUF_PARTS_MAX + 1, OMM_ERR_TOO_BIG, "at most 1024");
    all_wrong("split.count", 4000000000u, OMM_ERR_TOO_BIG, "at most 1024");
    all_wrong("split.count", OMM_GGUF_PARTS_MAX, OMM_ERR_MISMATCH, "-00001-of-01024.gguf");
    all_wrong("split.tensors.count", 4, OMM_ERR_MISMATCH, "5 tensors");
    write_text_count(other);
    CHECK_ERR(omm_gguf_open(&g, other), OMM_ERR_FORMAT);
    CHECK(strstr(omm_err_sentence(), other) != NULL && strstr(omm_err_sentence(), "split.count"));
    for (unsigned part = 0; part < PARTS; part++)
        write_part(part, &(fault){.part = part, .key = "split.count", .value = 1});
    CHECK_OK(omm_gguf_open(&g, part_name(1, PARTS))); /* a file of its own */
    CHECK_EQ(g.part_count, 1);
    CHECK_EQ(g.tensor_count, 2);
    omm_gguf_close(&g);
}

/* Of a path, the part before the numbers stays; what has no room for them is refused. */
static void paths(void) {
    char long_path[OMM_PATH_MAX + 1], out[OMM_PATH_MAX];
    CHECK_OK(omm_gguf_part_path(out, "m-00001-of-00003.gguf", 1, 3));
    CHECK(strcmp(out, "m-00002-of-00003.gguf") == 0);
    CHECK_ERR(omm_gguf_part_path(out, "-00001-of-00003.gguf", 1, 3), OMM_ERR_FORMAT);
    CHECK_ERR(omm_gguf_part_path(out, "m.gguf", 1, 3), OMM_ERR_FORMAT);
    CHECK_ERR(omm_gguf_part_path(out, "m-00001-of-00003.gguf", 1, 100000), OMM_ERR_FORMAT);
    memset(long_path, 'm', OMM_PATH_MAX);
    long_path[OMM_PATH_MAX] = 0;
    CHECK_ERR(omm_gguf_part_path(out, long_path, 1, 3), OMM_ERR_FORMAT);
    CHECK_OK(omm_gguf_part_path(out, long_path + 1, 1, 3));
    CHECK_EQ(strlen(out), OMM_PATH_MAX - 1);
}

/* What a command writes must not be one of them, whatever part it reads. */
static void files(void) {
    char other[OMM_PATH_MAX];
    write_all(&(fault){.part = PARTS});
    CHECK_OK(omm_file_write_fast(part_name(PARTS + 1, PARTS), omm_bytes_str("x"), 0600));
    for (unsigned i = 1; i <= PARTS; i++) {
        char model[OMM_PATH_MAX];
        snprintf(model, sizeof model, "%s", part_name(i, PARTS));
        for (unsigned j = 1; j <= PARTS; j++) CHECK(omm_gguf_has_file(model, part_name(j, PARTS)));
        CHECK(!omm_gguf_has_file(model, part_name(PARTS + 1, PARTS)));
        CHECK(!omm_gguf_has_file(model, s_dir));
    }
    snprintf(other, sizeof other, "%s/other.gguf", s_dir);
    CHECK_OK(omm_file_write(other, omm_bytes_str("x"), 0600));
    CHECK(omm_gguf_has_file(other, other));
    CHECK(!omm_gguf_has_file(other, part_name(1, PARTS)));
    CHECK(!omm_gguf_has_file(part_name(1, PARTS), other));
    CHECK(!omm_gguf_has_file("-00001-of-00003.gguf", other)); /* no more than a suffix */
    CHECK(!omm_gguf_has_file(part_name(1, 99999), other));
    CHECK_OK(omm_file_remove(other));
}

static void out_of_memory(void) {
    write_all(&(fault){.part = PARTS});
    const size_t live = omm_mem_live();
    for (size_t n = 1;; n++) {
        omm_gguf g;
        omm_mem_fail_nth(n);
        omm_err err = omm_gguf_open(&g, part_name(2, PARTS));
        CHECK(err != OMM_OK || omm_mem_fail_is_due());
        omm_mem_fail_nth(0);
        if (err == OMM_OK) {
            omm_gguf_close(&g);
            CHECK(n > 10);
            break;
        }
        CHECK_EQ(err, OMM_ERR_NOMEM);
    }
    CHECK_EQ(omm_mem_live(), live);
}

/* A large file is not in memory when its digest is known. */
static void digest_keeps_nothing(void) {
    enum { VALUES = 8 << 20, SPARE_BYTES = 4 << 20 };
    char path[OMM_PATH_MAX];
    const uint64_t dims[1] = {VALUES};
    const size_t bytes = sizeof(float) * (size_t)VALUES;
    uint8_t *zeros = omm_alloc(bytes, 1);
    omm_gguf_writer w;
    omm_buf out;
    omm_gguf g;
    CHECK(zeros != NULL);
    omm_gguf_writer_init(&w);
    omm_buf_init(&out, 2 * bytes);
    omm_gguf_put_text(&w, "general.architecture", "llama");
    omm_gguf_put_tensor(&w, "t", OMM_GGML_F32, 1, dims, omm_bytes_of(zeros, bytes));
    CHECK_OK(omm_gguf_writer_finish(&out, &w));
    CHECK_OK(omm_path_join(path, s_dir, "large.gguf"));
    CHECK_OK(omm_file_write_fast(path, omm_buf_view(&out), 0644));
    const omm_digest want = omm_hash(omm_buf_view(&out));
    CHECK_OK(omm_gguf_open(&g, path));
    const uint64_t before = omm_memory_resident();
    const omm_digest got = omm_gguf_digest(&g);
    const uint64_t after = omm_memory_resident();
    CHECK(omm_digest_equal(&got, &want));
    CHECK(before > 0 && after < before + SPARE_BYTES);
    omm_gguf_close(&g);
    omm_gguf_writer_fini(&w);
    omm_buf_fini(&out);
    omm_free(zeros);
}

enum { HALF_BYTES = 16 << 20 };

/* Of two parts the one numbered `part`, from 0: so many tensors, or one of HALF_BYTES. */
static void write_half(uint32_t part, uint32_t tensors, uint32_t all, const uint8_t *zeros) {
    omm_gguf_writer w;
    omm_buf out;
    omm_gguf_writer_init(&w);
    omm_buf_init(&out, (size_t)2 * HALF_BYTES);
    omm_gguf_put_u32(&w, "split.no", part);
    omm_gguf_put_u32(&w, "split.count", 2);
    omm_gguf_put_u32(&w, "split.tensors.count", all);
    const uint64_t values = tensors > 1 ? 1 : HALF_BYTES / sizeof(float);
    for (uint32_t i = 0; i < tensors; i++) {
        char name[16];
        snprintf(name, sizeof name, "%u.%u", part, i);
        omm_gguf_put_tensor(&w, name, OMM_GGML_F32, 1, &values,
                            omm_bytes_of(zeros, values * sizeof(float)));
    }
    CHECK_OK(omm_gguf_writer_finish(&out, &w));
    CHECK_OK(omm_file_write_fast(part_name(part + 1, 2), omm_buf_view(&out), 0644));
    omm_gguf_writer_fini(&w);
    omm_buf_fini(&out);
}

/* Each part has as many as one file may have, and both together one too many. */
static void too_many_tensors(void) {
    static const uint8_t zero[sizeof(float)];
    omm_gguf g;
    const uint32_t half = OMM_GGUF_TENSORS_MAX / 2;
    write_half(0, half, 2 * half, zero);
    write_half(1, half, 2 * half, zero);
    CHECK_OK(omm_gguf_open(&g, part_name(1, 2)));
    CHECK_EQ(g.tensor_count, OMM_GGUF_TENSORS_MAX);
    omm_gguf_close(&g);
    write_half(0, half, 2 * half + 1, zero);
    write_half(1, half + 1, 2 * half + 1, zero);
    CHECK_ERR(omm_gguf_open(&g, part_name(1, 2)), OMM_ERR_TOO_BIG);
    CHECK(strstr(omm_err_sentence(), "65537 tensors, at most 65536") != NULL);
}

static void read_all(const omm_gguf *g) {
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < g->tensor_count; i++)
        for (size_t at = 0; at < g->tensors[i].data.size; at += 4096)
            sum = (uint8_t)(sum + g->tensors[i].data.data[at]);
    (void)sum;
}

/* Pages of whichever file: of one tensor, and of all. */
static void lets_go_of_every_part(void) {
    enum { SPARE_BYTES = 8 << 20 }; /* the kernel may map 2 MiB of each at the first touch */
    omm_gguf g;
    uint8_t *zeros = omm_alloc(HALF_BYTES, 1);
    CHECK(zeros != NULL);
    for (uint32_t part = 0; part < 2; part++) write_half(part, 1, 2, zeros);
    omm_free(zeros);
    CHECK_OK(omm_gguf_open(&g, part_name(1, 2)));
    const uint64_t before = omm_memory_resident();
    CHECK(before > 0);
    for (uint32_t part = 0; part < 2; part++) {
        read_all(&g);
        const uint64_t both = omm_memory_resident();
        CHECK(both + SPARE_BYTES > before + (uint64_t)2 * HALF_BYTES);
        omm_gguf_release(&g, g.tensors[part].data);
        const uint64_t one = omm_memory_resident();
        CHECK(one < both - HALF_BYTES + SPARE_BYTES && one + SPARE_BYTES > both - HALF_BYTES);
    }
    read_all(&g);
    omm_gguf_release_all(&g);
    CHECK(omm_memory_resident() < before + SPARE_BYTES);
    omm_gguf_close(&g);
}

int main(void) {
    CHECK(mkdtemp(s_dir) != NULL);
    any_part_opens_all();
    each_part_is_watched();
    refusals();
    names();
    paths();
    files();
    out_of_memory();
    digest_keeps_nothing();
    too_many_tensors();
    lets_go_of_every_part();
    CHECK_OK(omm_dir_remove(s_dir));
    return 0;
}

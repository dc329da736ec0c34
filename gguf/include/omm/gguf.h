/* gguf.h - GGUF version 3: a model or adapter file as typed keys and tensors, read from a memory
 * map that nobody trusts, and written the same way every time.  Version 2, which older models have, is the
 * same layout and is read too; version 1 and big-endian files are refused by name.
 *
 *   "GGUF" | u32 version = 3 (read: 2 and 3) | u64 tensor_count | u64 kv_count
 *   | kv:     key string, u32 kind, value                          x kv_count
 *   | tensor: name string, u32 n_dims, u64 dims[], u32 type, u64 offset    x tensor_count
 *   | zero padding to `alignment` | tensor data, each padded to `alignment`
 *   string = u64 length, bytes.  array = u32 kind of element, u64 count, elements.  Little-endian.
 *
 * dims[0] is the contiguous dimension (columns, in_features).  Every length and offset is checked
 * against the file and against the limits below before memory is taken or a byte is read; tensors
 * must follow each other in file order without gaps, as the reference loader demands.
 *
 * A model may lie in several files, model-00001-of-00003.gguf and so on: opening the path of any part
 * opens all of them as one.  Each part has split.no (from 0), split.count and split.tensors.count; the
 * first has the keys of the model, the others none that it does not have.
 *
 * Source: ggml/docs/gguf.md and the behaviour of llama.cpp's loader.
 * Depends on: err, mem, bytes, file, hash.  Threads: a loaded file is read-only and may be shared.
 */
#ifndef OMM_GGUF_H
#define OMM_GGUF_H

#include "omm/bytes.h"
#include "omm/err.h"
#include "omm/file.h"
#include "omm/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OMM_GGUF_KV_MAX 65536u         /* keys in one file */
#define OMM_GGUF_TENSORS_MAX 65536u    /* tensors in one file */
#define OMM_GGUF_KEY_MAX 65535u        /* bytes of a key */
#define OMM_GGUF_STRING_MAX (1u << 24) /* bytes of one string value (chat templates, tokens) */
#define OMM_GGUF_ARRAY_MAX (1u << 24)  /* elements of one array (vocabularies have 10^5) */
#define OMM_GGUF_ALIGNMENT_MAX (1u << 20)
#define OMM_GGUF_DIMS_MAX 4u
#define OMM_GGUF_PARTS_MAX 1024u /* files of one model */
#define OMM_GGUF_NAME_MAX 64u    /* a tensor name with its NUL */

/* ---- Element types: the numbers are the format's ------------------------------------------- */

typedef enum omm_ggml_type {
    OMM_GGML_F32 = 0,
    OMM_GGML_F16 = 1,
    OMM_GGML_Q4_0 = 2,
    OMM_GGML_Q4_1 = 3,
    OMM_GGML_Q5_0 = 6,
    OMM_GGML_Q5_1 = 7,
    OMM_GGML_Q8_0 = 8,
    OMM_GGML_Q2_K = 10,
    OMM_GGML_Q3_K = 11,
    OMM_GGML_Q4_K = 12,
    OMM_GGML_Q5_K = 13,
    OMM_GGML_Q6_K = 14,
    OMM_GGML_IQ4_NL = 20,
    OMM_GGML_IQ4_XS = 23,
    OMM_GGML_BF16 = 30,
    OMM_GGML_TQ1_0 = 34,
    OMM_GGML_TQ2_0 = 35,
} omm_ggml_type;

typedef struct omm_ggml_info {
    omm_ggml_type type;
    const char *name; /* "Q8_0" */
    uint32_t block;   /* elements in one block; dims[0] is a multiple of it */
    uint32_t bytes;   /* bytes of one block */
} omm_ggml_info;

/* Row of a type number, or NULL when the number is none that we know.  Never freed. */
const omm_ggml_info *omm_ggml_find(uint32_t type);
/* Row of a name ("Q8_0", upper or lower case), or NULL. */
const omm_ggml_info *omm_ggml_find_name(const char *name);
/* All rows, `*count` of them, in ascending type number. */
const omm_ggml_info *omm_ggml_all(size_t *count);

/* ---- Reading ------------------------------------------------------------------------------- */

typedef enum omm_gguf_kind {
    OMM_GGUF_U8 = 0,
    OMM_GGUF_I8,
    OMM_GGUF_U16,
    OMM_GGUF_I16,
    OMM_GGUF_U32,
    OMM_GGUF_I32,
    OMM_GGUF_F32,
    OMM_GGUF_BOOL,
    OMM_GGUF_STRING,
    OMM_GGUF_ARRAY,
    OMM_GGUF_U64,
    OMM_GGUF_I64,
    OMM_GGUF_F64,
    OMM_GGUF_KIND_COUNT
} omm_gguf_kind;

const char *omm_gguf_kind_name(omm_gguf_kind kind); /* "u32"; "?" for a number out of range */

typedef struct omm_gguf_kv {
    omm_bytes key; /* borrowed from the file; not NUL-terminated */
    omm_gguf_kind kind;
    omm_gguf_kind element; /* kind of the elements when kind is ARRAY, else equal to kind */
    uint64_t count;        /* elements; 1 unless kind is ARRAY */
    omm_bytes data;        /* STRING: the text.  Else the encoded value or elements, unaligned */
} omm_gguf_kv;

typedef struct omm_gguf_tensor {
    char name[OMM_GGUF_NAME_MAX];
    uint32_t n_dims;                  /* 1 .. 4 */
    uint64_t dims[OMM_GGUF_DIMS_MAX]; /* each >= 1; 1 beyond n_dims; dims[0] contiguous */
    omm_ggml_type type;
    uint32_t part;   /* file that holds it, from 0 */
    uint64_t offset; /* from the start of the tensor data of its file */
    omm_bytes data;  /* borrowed; aligned to `alignment` within the file */
} omm_gguf_tensor;

typedef struct omm_gguf {
    omm_map map;    /* empty when the bytes are the caller's */
    omm_bytes view; /* the whole file, of several the first */
    uint32_t alignment;
    uint64_t data_offset; /* where the tensor data begin */
    omm_gguf_kv *kvs;     /* file order */
    size_t kv_count;
    omm_gguf_tensor *tensors; /* file order */
    size_t tensor_count;
    uint32_t *kv_order;     /* indices sorted by key, for look-up */
    uint32_t *tensor_order; /* the same by name */
    omm_map *more;          /* the files after the first; owned */
    uint32_t part_count;    /* files: 1 unless the model is split */
} omm_gguf;

/* Map and check a file, or all files of a split model by the path of any.  Release with
 * omm_gguf_close.
 * Errors: NOT_FOUND (also: a part), IO, NOMEM, VERSION, FORMAT, SIZE (shorter than it says), TOO_BIG (a
 * limit above), UNSUPPORTED (an element type we do not know), MISMATCH (parts that do not fit
 * together; says which and how). */
OMM_CHECKED omm_err omm_gguf_open(omm_gguf *gguf, const char *path);
/* The same over the bytes of one file, which outlive `gguf`; of a split model, that part alone. */
OMM_CHECKED omm_err omm_gguf_open_bytes(omm_gguf *gguf, omm_bytes file);
void omm_gguf_close(omm_gguf *gguf);
/* The path of file `no` (from 0) of a split model's `count`, by the path of any.
 * Errors: FORMAT (`path` has no name of a part). */
OMM_CHECKED omm_err omm_gguf_part_path(char out[OMM_PATH_MAX], const char *path, uint32_t no,
                                       uint32_t count);
/* Whether `path` is there and is the file of `model`, or, by the name of `model`, another part of it. */
bool omm_gguf_has_file(const char *model, const char *path);
/* Does the key say which part of a model a file is (split.*)?  Who writes a model anew, as one file, leaves it out. */
bool omm_gguf_is_split_key(omm_bytes key);

/* Bytes of all files, and the BLAKE2b-256 of all of them one after the other: what names a base model.
 * For a model in one file, that of omm_hash_file. */
uint64_t omm_gguf_bytes(const omm_gguf *gguf);
omm_digest omm_gguf_digest(const omm_gguf *gguf);

/* omm_map_release and omm_map_prefetch of a part of any of the files. */
void omm_gguf_release(const omm_gguf *gguf, omm_bytes part);
void omm_gguf_prefetch(const omm_gguf *gguf, omm_bytes part);
/* omm_map_release of all files. */
void omm_gguf_release_all(const omm_gguf *gguf);
/* omm_map_check_unchanged of each file.  Errors: STATE, IO. */
OMM_CHECKED omm_err omm_gguf_check_unchanged(const omm_gguf *gguf);

const omm_gguf_kv *omm_gguf_find(const omm_gguf *gguf, const char *key);             /* or NULL */
const omm_gguf_tensor *omm_gguf_find_tensor(const omm_gguf *gguf, const char *name); /* or NULL */

/* Typed access.  Integers of any width and sign are accepted when the value fits.
 * Errors: NOT_FOUND (naming the key), FORMAT (another kind, or out of range).  On error *out keeps
 * its value, so a caller sets a default and ignores NOT_FOUND through the _or forms. */
OMM_CHECKED omm_err omm_gguf_get_u32(uint32_t *out, const omm_gguf *gguf, const char *key);
OMM_CHECKED omm_err omm_gguf_get_u64(uint64_t *out, const omm_gguf *gguf, const char *key);
OMM_CHECKED omm_err omm_gguf_get_f32(float *out, const omm_gguf *gguf, const char *key);
OMM_CHECKED omm_err omm_gguf_get_bool(bool *out, const omm_gguf *gguf, const char *key);
OMM_CHECKED omm_err omm_gguf_get_str(omm_bytes *out, const omm_gguf *gguf, const char *key);
/* Copy a string value with its NUL.  Errors: as above, TOO_BIG, FORMAT (a NUL inside). */
OMM_CHECKED omm_err omm_gguf_get_text(char *out, size_t size, const omm_gguf *gguf,
                                      const char *key);
/* The same, with a default for a missing key.  Errors: FORMAT. */
OMM_CHECKED omm_err omm_gguf_get_u32_or(uint32_t *out, const omm_gguf *gguf, const char *key,
                                        uint32_t missing);
OMM_CHECKED omm_err omm_gguf_get_f32_or(float *out, const omm_gguf *gguf, const char *key,
                                        float missing);
OMM_CHECKED omm_err omm_gguf_get_bool_or(bool *out, const omm_gguf *gguf, const char *key,
                                         bool missing);
/* An array of `element` kind.  Errors: NOT_FOUND, FORMAT. */
OMM_CHECKED omm_err omm_gguf_get_array(const omm_gguf_kv **out, const omm_gguf *gguf,
                                       const char *key, omm_gguf_kind element);
/* Split a string array into `kv->count` borrowed views.  `out` holds that many. */
void omm_gguf_strings(omm_bytes *out, const omm_gguf_kv *kv);

/* Bytes of a tensor.  n_dims 1 .. 4.  Errors: UNSUPPORTED (type), FORMAT (a dimension is zero or
 * dims[0] is no multiple of the block), TOO_BIG (over 2^63 bytes or elements). */
OMM_CHECKED omm_err omm_gguf_tensor_bytes(uint64_t *out, uint32_t type, uint32_t n_dims,
                                          const uint64_t *dims);

/* The tensor in which these rows lie; one that is fused has those of several matrices. */
const omm_gguf_tensor *omm_gguf_tensor_at(const omm_gguf *gguf, omm_bytes rows);
/* What is wrong with a tensor's values; OK stays OK. */
OMM_CHECKED omm_err omm_gguf_of_tensor(omm_err err, const char *name);
/* Where a model is wanted.  The easiest slip of all: both are GGUF files.  Errors: UNSUPPORTED. */
OMM_CHECKED omm_err omm_gguf_refuse_adapter(const omm_gguf *gguf);

/* ---- Writing ------------------------------------------------------------------------------- */

/* Keys and tensors appear in the order of the calls; equal calls give equal bytes.  An error
 * sticks: every later call and omm_gguf_writer_finish return it, so check once at the end. */
typedef struct omm_gguf_writer {
    omm_err err;
    omm_buf kvs;      /* encoded */
    omm_buf infos;    /* encoded */
    omm_buf payloads; /* omm_bytes per tensor */
    uint64_t kv_count;
    uint64_t tensor_count;
    uint64_t data_bytes;
    uint32_t alignment;
} omm_gguf_writer;

void omm_gguf_writer_init(omm_gguf_writer *w); /* alignment 32 */
void omm_gguf_writer_fini(omm_gguf_writer *w);
/* Before the first tensor; a power of two, 8 or more; also writes general.alignment unless 32. */
void omm_gguf_put_alignment(omm_gguf_writer *w, uint32_t alignment);
void omm_gguf_put_u32(omm_gguf_writer *w, const char *key, uint32_t v);
void omm_gguf_put_f32(omm_gguf_writer *w, const char *key, float v);
void omm_gguf_put_bool(omm_gguf_writer *w, const char *key, bool v);
void omm_gguf_put_str(omm_gguf_writer *w, const char *key, omm_bytes text);
void omm_gguf_put_text(omm_gguf_writer *w, const char *key, const char *text);
void omm_gguf_put_strings(omm_gguf_writer *w, const char *key, const omm_bytes *items,
                          size_t count);
/* Elements of a fixed-size kind, already little-endian. */
void omm_gguf_put_array(omm_gguf_writer *w, const char *key, omm_gguf_kind element,
                        const void *items, size_t count);
/* Copy a key with its value from a file that was read (quantize, merge). */
void omm_gguf_put_kv(omm_gguf_writer *w, const omm_gguf_kv *kv);
/* `data` is borrowed until finish and has exactly the size that type and dims say. */
void omm_gguf_put_tensor(omm_gguf_writer *w, const char *name, uint32_t type, uint32_t n_dims,
                         const uint64_t *dims, omm_bytes data);
/* The same for a tensor that the caller writes behind the header itself (quantize, synth). */
void omm_gguf_put_tensor_info(omm_gguf_writer *w, const char *name, uint32_t type, uint32_t n_dims,
                              const uint64_t *dims);
/* Append everything in front of the tensor data to `out`, padding included: for files that are
 * larger than memory.  The data of each tensor follow in order, each padded with zeros to a multiple
 * of w->alignment (omm_gguf_padding); the caller opens the file to check it.
 * Errors: those that stuck, NOMEM, TOO_BIG; then `out` is unchanged. */
OMM_CHECKED omm_err omm_gguf_writer_header(omm_buf *out, const omm_gguf_writer *w);
/* Zero bytes that follow `bytes` bytes of tensor data. */
uint32_t omm_gguf_padding(const omm_gguf_writer *w, uint64_t bytes);
/* Append the file to `out`, once.
 * Errors: FORMAT (a key or name twice, or what the reader would refuse), SIZE, TOO_BIG, UNSUPPORTED,
 * NOMEM; then `out` is unchanged.  The result has been read back by omm_gguf_open_bytes. */
OMM_CHECKED omm_err omm_gguf_writer_finish(omm_buf *out, omm_gguf_writer *w);

#endif

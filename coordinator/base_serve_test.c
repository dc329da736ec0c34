/* base_serve_test.c - slots, bytes per second, and chunks of a base model's file, on a clock of the test's own. */
#include "omm_test.h"

#include "base_serve.h"

#include "omm/envelope.h"
#include "omm/file.h"
#include "omm/mem.h"
#include "omm/messages.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNKS = 5, BYTES = CHUNKS * (int)OMM_CHUNK_BYTES - 1000 };

static omm_fake_clock s_fake;
static omm_key s_key;
static uint8_t *s_file;
static char s_path[] = "/tmp/omm-base-serve-XXXXXX";
static omm_buf s_reply, s_request;
static omm_arena s_arena;
static omm_reply s_answer;

static base_serve *open_serve(uint32_t transfers, uint64_t rate) {
    base_serve *b = NULL;
    const base_serve_options o = {.path = s_path,
                                  .part_count = 1,
                                  .digest = omm_hash(omm_bytes_of(s_file, BYTES)),
                                  .transfers = transfers,
                                  .bytes_per_second = rate,
                                  .key = &s_key,
                                  .clock = omm_clock_fake(&s_fake)};
    CHECK_OK(base_serve_open(&b, &o));
    return b;
}

static bool ask(base_serve *b, const omm_request *request, const char *peer) {
    base_serve_asked asked = BASE_SERVE_CHUNK;
    omm_buf_clear(&s_request);
    CHECK_OK(omm_request_encode(&s_request, request));
    CHECK_OK(base_serve_answer(&asked, &s_reply, b, omm_buf_view(&s_request), peer));
    omm_arena_fini(&s_arena);
    omm_arena_init(&s_arena, OMM_MESSAGE_ARENA_BYTES);
    if (asked == BASE_SERVE_NOTHING) return false;
    CHECK_EQ(asked == BASE_SERVE_MANIFEST, request->kind == OMM_REQUEST_BASE);
    CHECK_OK(omm_reply_decode(&s_answer, omm_buf_view(&s_reply), &s_arena));
    return true;
}

static omm_digest piece(int index) {
    const int size =
        index == CHUNKS - 1 ? BYTES - index * (int)OMM_CHUNK_BYTES : (int)OMM_CHUNK_BYTES;
    return omm_hash(omm_bytes_of(s_file + (size_t)index * OMM_CHUNK_BYTES, (size_t)size));
}

static omm_reply_kind get(base_serve *b, int index, const char *peer) {
    CHECK(ask(b, &(omm_request){.kind = OMM_REQUEST_GET, .digest = piece(index)}, peer));
    return s_answer.kind;
}

static void test_chunks(void) {
    base_serve *b = open_serve(1, 0);
    omm_envelope envelope;
    omm_base_model base;
    CHECK(ask(b, &(omm_request){.kind = OMM_REQUEST_BASE}, "a"));
    CHECK_EQ(s_answer.kind, OMM_REPLY_BASE);
    CHECK_OK(omm_envelope_open_as(&envelope, OMM_CONTEXT_BASE, s_answer.envelope));
    CHECK(omm_public_key_equal(&envelope.key, &s_key.public_key));
    CHECK_OK(omm_base_model_decode(&base, envelope.payload, &s_arena));
    CHECK_EQ(base.size, BYTES);
    CHECK_EQ(base.piece_count, CHUNKS);
    for (int i = 0; i < CHUNKS; i++) {
        const omm_digest digest = piece(i);
        CHECK(omm_digest_equal(&base.pieces[i], &digest));
    }
    for (int i = 0; i < CHUNKS; i++) {
        CHECK_EQ(get(b, i, "a"), OMM_REPLY_CHUNK);
        CHECK(same_bytes(s_answer.data.data, s_file + (size_t)i * OMM_CHUNK_BYTES,
                         s_answer.data.size));
        CHECK_EQ(s_answer.data.size, i == CHUNKS - 1 ? OMM_CHUNK_BYTES - 1000 : OMM_CHUNK_BYTES);
    }
    CHECK_EQ(base_serve_counts(b).bytes, BYTES);
    /* Past the piece, and what is no piece: the first is refused, the second is for others to answer. */
    const omm_digest first = piece(0);
    CHECK(ask(b, &(omm_request){.kind = OMM_REQUEST_GET, .digest = first, .index = 1}, "a"));
    CHECK_EQ(s_answer.kind, OMM_REPLY_REFUSED);
    CHECK(!ask(b, &(omm_request){.kind = OMM_REQUEST_GET, .digest = omm_hash(omm_bytes_of("x", 1))},
               "a"));
    CHECK(!ask(NULL, &(omm_request){.kind = OMM_REQUEST_BASE}, "a"));
    base_serve_asked asked = BASE_SERVE_CHUNK;
    CHECK_OK(base_serve_answer(&asked, &s_reply, b, omm_bytes_of("rubbish", 7), "a"));
    CHECK_EQ(asked, BASE_SERVE_NOTHING);
    base_serve_close(b);
}

/* A piece of several chunks, as a model of over a GiB has: each is served, and behind the last one there is nothing. */
static void test_large_pieces(const char *path, size_t whole, uint32_t chunks) {
    base_serve *b = NULL;
    const size_t bytes = (size_t)chunks * OMM_CHUNK_BYTES;
    const base_serve_options o = {.path = path,
                                  .part_count = 1,
                                  .digest = omm_hash(omm_bytes_of(s_file, whole)),
                                  .piece_chunks = chunks,
                                  .transfers = 1,
                                  .key = &s_key,
                                  .clock = omm_clock_fake(&s_fake)};
    CHECK_OK(base_serve_open(&b, &o));
    for (size_t begin = 0; begin < whole; begin += bytes) {
        const size_t size = whole - begin < bytes ? whole - begin : bytes;
        omm_request get = {.kind = OMM_REQUEST_GET,
                           .digest = omm_hash(omm_bytes_of(s_file + begin, size))};
        for (size_t at = 0; at < size; at += OMM_CHUNK_BYTES, get.index++) {
            CHECK(ask(b, &get, "a"));
            CHECK_EQ(s_answer.kind, OMM_REPLY_CHUNK);
            const omm_bytes got = s_answer.data;
            CHECK_EQ(got.size, size - at < OMM_CHUNK_BYTES ? size - at : OMM_CHUNK_BYTES);
            CHECK(same_bytes(got.data, s_file + begin + at, got.size));
        }
        for (; get.index <= chunks + 1; get.index++) {
            CHECK(ask(b, &get, "a"));
            CHECK_EQ(s_answer.kind, OMM_REPLY_REFUSED);
        }
    }
    CHECK_EQ(base_serve_counts(b).bytes, whole);
    base_serve_close(b);
}

/* The last piece ends in a chunk, and with one. */
static void test_large(void) {
    char path[sizeof s_path + 4];
    const size_t even = 3 * (size_t)OMM_CHUNK_BYTES;
    (void)snprintf(path, sizeof path, "%s.3", s_path);
    CHECK_OK(omm_file_write(path, omm_bytes_of(s_file, even), 0600));
    for (uint32_t chunks = 2; chunks <= 8; chunks *= 2) {
        test_large_pieces(s_path, BYTES, chunks);
        test_large_pieces(path, even, chunks);
    }
    CHECK_EQ(unlink(path), 0);
}

static void test_slots(void) {
    base_serve *b = open_serve(2, 0);
    CHECK_EQ(get(b, 0, "a"), OMM_REPLY_CHUNK);
    CHECK_EQ(get(b, 0, "b"), OMM_REPLY_CHUNK);
    CHECK_EQ(get(b, 0, "c"), OMM_REPLY_WAIT);
    CHECK_EQ(s_answer.retry_ms, BASE_FULL_MS);
    s_fake.now_ms += BASE_SLOT_MS - 1;
    CHECK_EQ(get(b, 1, "a"), OMM_REPLY_CHUNK); /* a goes on, b does not come again */
    CHECK_EQ(get(b, 0, "c"), OMM_REPLY_WAIT);
    CHECK_EQ(base_serve_counts(b).slots, 2);
    s_fake.now_ms += 1;
    CHECK_EQ(get(b, 0, "c"), OMM_REPLY_CHUNK);
    CHECK_EQ(get(b, 0, "b"), OMM_REPLY_WAIT);
    CHECK_EQ(get(b, 1, "a"), OMM_REPLY_CHUNK);
    CHECK_EQ(base_serve_counts(b).waits, 3);
    base_serve_close(b);
}

/* Whatever is asked when, no more than rate x time and one second's worth goes out. */
static void test_rate(void) {
    const uint64_t rate = 1000000;
    base_serve *b = open_serve(8, rate);
    const uint64_t begin = s_fake.now_ms;
    for (int i = 0; i < 400; i++) {
        static const char *const peers[] = {"a", "b", "c"};
        if (get(b, i % (CHUNKS - 1), peers[i % 3]) == OMM_REPLY_WAIT)
            s_fake.now_ms += i % 2 ? s_answer.retry_ms : s_answer.retry_ms / 2;
        const uint64_t passed = s_fake.now_ms - begin;
        CHECK(base_serve_counts(b).bytes <= rate + rate * passed / 1000);
    }
    const uint64_t passed = s_fake.now_ms - begin;
    CHECK(base_serve_counts(b).bytes + rate >= rate * passed / 1000); /* and it is used */
    s_fake.now_ms += 1000000; /* a long rest saves up one second */
    const uint64_t before = base_serve_counts(b).bytes;
    while (get(b, 0, "a") == OMM_REPLY_CHUNK) continue;
    CHECK(base_serve_counts(b).bytes - before <= rate);
    for (int i = 0; i < 10; i++) { /* nor do short ones with a chunk each */
        s_fake.now_ms += 900;
        CHECK_EQ(get(b, 0, "a"), OMM_REPLY_CHUNK);
    }
    const uint64_t used = base_serve_counts(b).bytes;
    while (get(b, 0, "a") == OMM_REPLY_CHUNK) continue;
    CHECK(base_serve_counts(b).bytes - used <= rate);
    base_serve_close(b);
    b = open_serve(1, 100); /* less than a chunk a second: it comes all the same */
    CHECK_EQ(get(b, 0, "a"), OMM_REPLY_WAIT);
    s_fake.now_ms += s_answer.retry_ms;
    CHECK_EQ(get(b, 0, "a"), OMM_REPLY_CHUNK);
    base_serve_close(b);
}

/* Time passes, with a step in each BASE_STEP_MS of it. */
static void look(base_serve *b, uint64_t ms) {
    for (uint64_t i = 0; i <= ms; i += BASE_STEP_MS) {
        base_serve_step(b);
        s_fake.now_ms += BASE_STEP_MS;
    }
}

/* Is it answered so, within two looks? */
static bool looks_until(base_serve *b, omm_reply_kind want) {
    for (uint64_t i = 0; i < (uint64_t)2 * BASE_LOOK_MS; i += BASE_STEP_MS) {
        if (get(b, 0, "a") == want) return true;
        look(b, 0);
    }
    return false;
}

static void test_files(void) {
    base_serve *b = open_serve(0, 0);
    CHECK(!b); /* nothing to serve, nothing named */
    base_serve_options o = {.path = s_path,
                            .part_count = 1,
                            .transfers = 1,
                            .key = &s_key,
                            .clock = omm_clock_fake(&s_fake)};
    CHECK_ERR(base_serve_open(&b, &o), OMM_ERR_MISMATCH);
    const char *mirror = "file:///etc/passwd";
    o.mirrors = &mirror;
    o.mirror_count = 1;
    CHECK_ERR(base_serve_open(&b, &o), OMM_ERR_CONFIG);
    o = (base_serve_options){.path = "/nonexistent/model",
                             .part_count = 1,
                             .transfers = 1,
                             .key = &s_key,
                             .clock = omm_clock_fake(&s_fake)};
    CHECK_ERR(base_serve_open(&b, &o), OMM_ERR_NOT_FOUND);
    /* Only mirrors: the manifest is given, chunks are not. */
    mirror = "http://mirror.example/m";
    o = (base_serve_options){.path = s_path,
                             .part_count = 1,
                             .digest = omm_hash(omm_bytes_of(s_file, BYTES)),
                             .mirrors = &mirror,
                             .mirror_count = 1,
                             .key = &s_key,
                             .clock = omm_clock_fake(&s_fake)};
    CHECK_OK(base_serve_open(&b, &o));
    CHECK(ask(b, &(omm_request){.kind = OMM_REQUEST_BASE}, "a"));
    CHECK_EQ(get(b, 0, "a"), OMM_REPLY_REFUSED);
    base_serve_close(b);
    /* A file that is written to while it is served is not served any more. */
    b = open_serve(1, 0);
    CHECK_EQ(get(b, 0, "a"), OMM_REPLY_CHUNK);
    FILE *f = fopen(s_path, "ab");
    CHECK(f && fputc('x', f) == 'x' && fclose(f) == 0);
    CHECK_EQ(get(b, 0, "a"), OMM_REPLY_WAIT);
    CHECK_EQ(s_answer.retry_ms, BASE_FULL_MS);
    CHECK(looks_until(b, OMM_REPLY_REFUSED));
    base_serve_close(b);
    CHECK_OK(omm_file_write(s_path, omm_bytes_of(s_file, BYTES), 0600));
}

/* ---- a file that changes ---- */

static void write_in_place(const uint8_t *bytes, size_t size) {
    FILE *f = fopen(s_path, "r+b");
    CHECK(f && fwrite(bytes, 1, size, f) == size && fclose(f) == 0);
}

/* The time of a write is another one, whatever the clock's grain. */
static void touch(void) {
    static time_t when = 1000000;
    const struct timespec times[2] = {{.tv_sec = when}, {.tv_sec = when}};
    when++;
    CHECK_EQ(utimensat(AT_FDCWD, s_path, times, 0), 0);
}

/* One that is as it was is served again by itself, and nobody hears that it is not. */
static void test_touched(void) {
    base_serve *b = open_serve(1, 0);
    CHECK_EQ(get(b, 0, "a"), OMM_REPLY_CHUNK);
    for (uint64_t i = 1; i < 4; i++) {
        if (i == 2) write_in_place(s_file, BYTES);
        touch();
        CHECK_EQ(get(b, 0, "a"), OMM_REPLY_WAIT);
        CHECK(!base_serve_counts(b).has_changed);
        CHECK(looks_until(b, OMM_REPLY_CHUNK));
        CHECK(same_bytes(s_answer.data.data, s_file, s_answer.data.size));
        CHECK_EQ(base_serve_counts(b).read_again, i);
        CHECK_EQ(base_serve_counts(b).refused, 0);
    }
    touch(); /* nobody asks, and it is seen all the same */
    look(b, BASE_LOOK_MS);
    CHECK_EQ(base_serve_counts(b).read_again, 4);
    base_serve_close(b);
}

/* Other bytes of the same length are not served, are not read again and again, and whoever puts the file back, in place or
 * as a new one, needs no restart. */
static void test_changed(void) {
    base_serve *b = open_serve(1, 0);
    uint8_t other = (uint8_t)~s_file[0];
    for (int i = 0; i < 2; i++) {
        write_in_place(&other, 1);
        touch();
        CHECK_EQ(get(b, 0, "a"), OMM_REPLY_WAIT);
        CHECK(looks_until(b, OMM_REPLY_REFUSED));
        CHECK(base_serve_counts(b).has_changed);
        CHECK(base_serve_counts(b).refused > 0);
        look(b, (uint64_t)10 * BASE_LOOK_MS);
        CHECK_EQ(get(b, 0, "a"), OMM_REPLY_REFUSED);
        if (i == 0) write_in_place(s_file, 1);
        if (i == 1) CHECK_OK(omm_file_write(s_path, omm_bytes_of(s_file, BYTES), 0600));
        touch();
        CHECK(looks_until(b, OMM_REPLY_CHUNK));
        CHECK(!base_serve_counts(b).has_changed);
    }
    CHECK_EQ(truncate(s_path, 100), 0);
    CHECK(looks_until(b, OMM_REPLY_REFUSED));
    CHECK_OK(omm_file_remove(s_path));
    look(b, (uint64_t)10 * BASE_LOOK_MS);
    CHECK_EQ(get(b, 0, "a"), OMM_REPLY_REFUSED);
    CHECK_OK(omm_file_write(s_path, omm_bytes_of(s_file, BYTES), 0600));
    CHECK(looks_until(b, OMM_REPLY_CHUNK));
    CHECK_EQ(base_serve_counts(b).read_again, 3);
    base_serve_close(b);
}

/* ---- several files ---- */

enum { PARTS = 3 };

/* Cut in the middle of chunks, one file smaller than a chunk. */
static size_t part_begin(int part) {
    static const size_t begins[PARTS + 1] = {0, 2 * (size_t)OMM_CHUNK_BYTES + 9,
                                             2 * (size_t)OMM_CHUNK_BYTES + 109, BYTES};
    return begins[part];
}

static char *part_name(int part) {
    static char path[96];
    (void)snprintf(path, sizeof path, "%s-%05d-of-%05d.gguf", s_path, part + 1, PARTS);
    return path;
}

static void write_parts(void) {
    for (int i = 0; i < PARTS; i++)
        CHECK_OK(omm_file_write(
            part_name(i), omm_bytes_of(s_file + part_begin(i), part_begin(i + 1) - part_begin(i)),
            0600));
}

static base_serve_options split_options(void) {
    return (base_serve_options){.path = part_name(1), /* any of them */
                                .part_count = PARTS,
                                .digest = omm_hash(omm_bytes_of(s_file, BYTES)),
                                .transfers = 1,
                                .key = &s_key,
                                .clock = omm_clock_fake(&s_fake)};
}

static void test_split(void) {
    base_serve *b = NULL;
    omm_envelope envelope;
    omm_base_model base;
    write_parts();
    base_serve_options o = split_options();
    CHECK_OK(base_serve_open(&b, &o));
    CHECK(ask(b, &(omm_request){.kind = OMM_REQUEST_BASE}, "a"));
    CHECK_OK(omm_envelope_open_as(&envelope, OMM_CONTEXT_BASE, s_answer.envelope));
    CHECK_OK(omm_base_model_decode(&base, envelope.payload, &s_arena));
    CHECK_EQ(base.size, BYTES);
    CHECK_EQ(base.part_count, PARTS);
    for (int i = 0; i < PARTS; i++) CHECK_EQ(base.parts[i], part_begin(i + 1) - part_begin(i));
    for (int i = 0; i < CHUNKS; i++) {
        CHECK_EQ(get(b, i, "a"), OMM_REPLY_CHUNK);
        CHECK(same_bytes(s_answer.data.data, s_file + (size_t)i * OMM_CHUNK_BYTES,
                         s_answer.data.size));
    }
    CHECK_EQ(base_serve_counts(b).bytes, BYTES);
    FILE *f = fopen(part_name(2), "ab"); /* one that is written to is enough */
    CHECK(f && fputc('x', f) == 'x' && fclose(f) == 0);
    CHECK(looks_until(b, OMM_REPLY_REFUSED));
    write_parts();
    CHECK(looks_until(b, OMM_REPLY_CHUNK));
    for (int i = 0; i < CHUNKS; i++) CHECK_EQ(get(b, i, "a"), OMM_REPLY_CHUNK);
    base_serve_close(b);
}

static void test_split_refused(void) {
    base_serve *b = NULL;
    base_serve_options o = split_options();
    write_parts();
    for (uint32_t count = 1; count < 5; count++) { /* not all of it, or more than there is */
        o.part_count = count;
        o.path = count == 3 ? s_path : part_name(0); /* and a name that is no part's */
        const omm_err err = base_serve_open(&b, &o);
        CHECK(err == OMM_ERR_MISMATCH || err == OMM_ERR_NOT_FOUND || err == OMM_ERR_FORMAT);
        CHECK(!b);
    }
    o = split_options();
    o.part_count = OMM_BASE_PARTS_MAX + 1;
    CHECK_ERR(base_serve_open(&b, &o), OMM_ERR_TOO_BIG);
    o = split_options();
    o.mirror_count = 1;
    static const char *const mirrors[] = {
        "http://m.example/a-00001-of-00003.gguf?v=1", "http://m.example/a-00002-of-00003.gguf",
        "http://m.example/a-00001-of-00004.gguf", "http://m.example/a.gguf"};
    for (size_t i = 0; i < 4; i++) {
        o.mirrors = &mirrors[i];
        CHECK_EQ(base_serve_open(&b, &o), i == 0 ? OMM_OK : OMM_ERR_CONFIG);
        base_serve_close(b);
        b = NULL;
    }
    for (int i = 0; i < PARTS; i++) CHECK_OK(omm_file_remove(part_name(i)));
}

/* The number that the next descriptor gets: the same again where none was left open. */
static int next_fd(void) {
    const int fd = dup(STDERR_FILENO);
    CHECK(fd >= 0);
    close(fd);
    return fd;
}

int main(void) {
    const int fd = mkstemp(s_path);
    CHECK(fd >= 0);
    const int before = next_fd();
    s_file = omm_alloc(BYTES, 1);
    CHECK(s_file);
    for (int i = 0; i < BYTES; i++) s_file[i] = (uint8_t)((uint32_t)i * 2654435761u >> 24);
    CHECK_OK(omm_file_write(s_path, omm_bytes_of(s_file, BYTES), 0600));
    omm_key_generate(&s_key);
    s_fake.now_ms = 77;
    omm_buf_init(&s_reply, OMM_MESSAGE_BYTES_MAX);
    omm_buf_init(&s_request, OMM_MESSAGE_BYTES_MAX);
    omm_arena_init(&s_arena, OMM_MESSAGE_ARENA_BYTES);
    test_chunks();
    test_large();
    test_slots();
    test_rate();
    test_files();
    test_touched();
    test_changed();
    test_split();
    test_split_refused();
    CHECK_EQ(next_fd(), before);
    omm_arena_fini(&s_arena);
    omm_buf_fini(&s_reply);
    omm_buf_fini(&s_request);
    omm_free(s_file);
    CHECK_OK(omm_file_remove(s_path));
    return 0;
}

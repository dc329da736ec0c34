/* base_fetch_test.c - a base model on the disk piece by piece, addresses of mirrors, and coordinators that lie. */
#include "omm_test.h"

#include "base_store.h"
#include "mirror.h"

#include "omm/base_fetch.h"
#include "omm/enrolment.h"
#include "omm/envelope.h"
#include "omm/mem.h"
#include "omm/messages.h"
#include "omm/transport.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECES = 4, BYTES = 7 * (int)OMM_CHUNK_BYTES + 77 }; /* pieces of two chunks */

static uint8_t *s_file;
static omm_digest s_pieces[PIECES];
static char s_folder[] = "/tmp/omm-base-fetch-XXXXXX";

static omm_base_model model(void) {
    for (int i = 0; i < PIECES; i++) {
        const int at = i * 2 * (int)OMM_CHUNK_BYTES;
        const int left = BYTES - at,
                  size = left < 2 * (int)OMM_CHUNK_BYTES ? left : 2 * (int)OMM_CHUNK_BYTES;
        s_pieces[i] = omm_hash(omm_bytes_of(s_file + at, (size_t)size));
    }
    return (omm_base_model){.digest = omm_hash(omm_bytes_of(s_file, BYTES)),
                            .size = BYTES,
                            .piece_chunks = 2,
                            .pieces = s_pieces,
                            .piece_count = PIECES};
}

/* ---- the store ---- */

static void put(base_store *s, int to, int step) {
    while (s->at < (uint64_t)to) {
        const int left = to - (int)s->at;
        CHECK_OK(
            base_store_put(s, omm_bytes_of(s_file + s->at, (size_t)(left < step ? left : step))));
    }
}

static void test_store(void) {
    const omm_base_model base = model();
    const int piece = 2 * (int)OMM_CHUNK_BYTES;
    char other[OMM_PATH_MAX], mine[OMM_PATH_MAX];
    base_store s, again;
    CHECK_OK(omm_path_join(mine, s_folder, "notes.gguf"));
    CHECK_OK(omm_file_write(mine, omm_bytes_of("mine", 4), 0600));
    CHECK_OK(base_store_path(other, s_folder, &(omm_base_model){.digest = s_pieces[0]},
                             0)); /* a model of before */
    CHECK_OK(omm_file_write(other, omm_bytes_of("old", 3), 0600));
    CHECK_OK(base_store_open(&s, s_folder, &base));
    CHECK_EQ(s.at, 0);
    CHECK_ERR(base_store_open(&again, s_folder, &base), OMM_ERR_STATE);
    put(&s, piece + 1000, 999);
    CHECK_EQ(s.piece, 1);
    uint8_t wrong[1000];
    memset(wrong, 0x5a, sizeof wrong);
    CHECK_OK(base_store_put(&s, omm_bytes_of(wrong, sizeof wrong)));
    omm_err err = OMM_OK;
    while (err == OMM_OK) err = base_store_put(&s, omm_bytes_of(s_file + s.at, 50000));
    CHECK_ERR(err, OMM_ERR_REFUSED_DIGEST);
    CHECK_EQ(s.at, piece); /* all of that piece is gone, nothing else */
    put(&s, 2 * piece + 5, 262144);
    base_store_close(&s);
    /* Again: whole pieces that are right count, the rest does not; and what was damaged since is noticed. */
    CHECK_OK(base_store_open(&s, s_folder, &base));
    CHECK_EQ(s.at, 2 * piece);
    CHECK(pwrite(s.fds[0], "?", 1, piece + 3) == 1);
    base_store_close(&s);
    CHECK_OK(base_store_open(&s, s_folder, &base));
    CHECK_EQ(s.at, piece);
    put(&s, BYTES, 1 << 20);
    CHECK_ERR(base_store_put(&s, omm_bytes_of("x", 1)), OMM_ERR_REFUSED_SIZE);
    base_store_close(&s);
    CHECK(!omm_file_exists(s.path));
    CHECK_OK(base_store_open(&s, s_folder, &base)); /* whole, killed before the end */
    CHECK(base_store_is_whole(&s));
    CHECK_OK(base_store_finish(&s));
    base_store_close(&s);
    omm_digest digest;
    CHECK_OK(omm_hash_file(&digest, s.path));
    CHECK(omm_digest_equal(&digest, &base.digest));
    CHECK(!omm_file_exists(s.part) && !omm_file_exists(other) && omm_file_exists(mine));
    CHECK_OK(omm_file_remove(s.path));
}

static unsigned rights_of(const char *path) {
    struct stat st;
    CHECK_EQ(stat(path, &st), 0);
    return st.st_mode & 0777;
}

/* For its owner alone; and what lies there in place of a file is neither written through nor read. */
static void test_rights(void) {
    const omm_base_model base = model();
    char folder[OMM_PATH_MAX], manifest[OMM_PATH_MAX], mine[OMM_PATH_MAX];
    base_store s;
    CHECK_OK(omm_path_join(folder, s_folder, "rights"));
    CHECK_OK(omm_path_join(manifest, folder, "manifest.env"));
    CHECK_OK(omm_path_join(mine, s_folder, "mine"));
    CHECK_OK(omm_file_write(mine, omm_bytes_str("mine"), 0600));
    CHECK_OK(base_store_open(&s, folder, &base));
    CHECK_OK(base_store_put_manifest(folder, omm_bytes_str("signed")));
    CHECK(rights_of(folder) == 0700 && rights_of(s.part) == 0600 && rights_of(manifest) == 0600);
    base_store_close(&s);
    CHECK_EQ(unlink(s.part), 0);
    CHECK_EQ(symlink(mine, s.part), 0);
    CHECK(base_store_open(&s, folder, &base) != OMM_OK);
    uint64_t size = 0;
    CHECK_OK(omm_file_size(&size, mine));
    CHECK_EQ(size, 4);
    CHECK_EQ(unlink(s.part), 0);
    CHECK_EQ(mkfifo(s.part, 0600), 0);
    CHECK(base_store_open(&s, folder, &base) != OMM_OK);
    CHECK_OK(omm_dir_remove(folder));
    CHECK_OK(omm_file_remove(mine));
}

/* Its owner's files keep their names, however near these are to a model's. */
static void test_names_of_others(void) {
    static const char *const ends[] = {
        "",           ".gguf.sha256",    "-notes.gguf",          "-notes.part",
        "a.gguf",     "-00001.gguf",     "-00001-of-00002.gg",   "-00001-of-00002.gguf.part",
        ".part.gguf", "-00001-of-.gguf", "-00001_of_00002.gguf", "-0001-of-000002.part"};
    enum { NAMES = sizeof ends / sizeof *ends, ALL = NAMES + 2 };
    const omm_base_model base = model();
    char hex[OMM_DIGEST_HEX_SIZE], name[128], path[ALL][OMM_PATH_MAX];
    base_store s;
    omm_digest_hex(hex, &s_pieces[0]);
    for (size_t i = 0; i < ALL; i++) {
        (void)snprintf(name, sizeof name, "%s%s", hex, i < NAMES ? ends[i] : ".gguf");
        if (i == NAMES) (void)snprintf(name, sizeof name, "%.63s.gguf", hex);
        if (i == NAMES + 1) name[0] = 'A'; /* as no digest is written */
        CHECK_OK(omm_path_join(path[i], s_folder, name));
        CHECK_OK(omm_file_write_fast(path[i], omm_bytes_str("mine"), 0600));
    }
    CHECK_OK(base_store_open(&s, s_folder, &base));
    put(&s, BYTES, 1 << 20);
    CHECK_OK(base_store_finish(&s));
    base_store_close(&s);
    for (size_t i = 0; i < ALL; i++) {
        if (!omm_file_exists(path[i])) fprintf(stderr, "removed %s\n", path[i]);
        CHECK(omm_file_exists(path[i]));
        CHECK_OK(omm_file_remove(path[i]));
    }
    CHECK_OK(omm_file_remove(s.path));
}

/* The pieces are right and the whole is not what the manifest says: nothing gets the name. */
static void test_wrong_whole(void) {
    omm_base_model base = model();
    base_store s;
    base.digest.b[0] ^= 1;
    CHECK_OK(base_store_open(&s, s_folder, &base));
    put(&s, BYTES, 100000);
    CHECK_ERR(base_store_finish(&s), OMM_ERR_REFUSED_DIGEST);
    base_store_close(&s);
    CHECK(!omm_file_exists(s.part) && !omm_file_exists(s.path));
    base.piece_chunks = OMM_BASE_PIECE_CHUNKS_MAX; /* no disk has this much: nothing is begun */
    base.size = (uint64_t)1 << 60;
    CHECK_ERR(base_store_open(&s, s_folder, &base), OMM_ERR_REFUSED_SIZE);
    CHECK(strstr(omm_err_sentence(), "takes 1152921504.61 GB, and 67.1 MB have to stay") != NULL);
}

/* ---- a model in several files ---- */

/* The third is smaller than what comes at once, the ends are in the middle of pieces. */
static const uint64_t s_parts[] = {OMM_CHUNK_BYTES + 5, 3 * (uint64_t)OMM_CHUNK_BYTES, 100,
                                   BYTES - 4 * (int)OMM_CHUNK_BYTES - 105};
enum { PARTS = 4 };

static omm_base_model split_model(void) {
    omm_base_model base = model();
    base.parts = s_parts;
    base.part_count = PARTS;
    return base;
}

static void check_files(const omm_base_model *base, bool there) {
    uint64_t begin = 0;
    for (size_t i = 0; i < PARTS; i++) {
        char path[OMM_PATH_MAX];
        omm_buf file;
        omm_buf_init(&file, BYTES);
        CHECK_OK(base_store_path(path, s_folder, base, i));
        CHECK_EQ(omm_file_exists(path), there);
        if (there) CHECK_OK(omm_file_read(&file, path));
        if (there) CHECK_EQ(file.size, s_parts[i]);
        if (there) CHECK(same_bytes(file.data, s_file + begin, file.size));
        begin += s_parts[i];
        omm_buf_fini(&file);
    }
}

static void remove_files(const omm_base_model *base, size_t from) {
    for (size_t i = from; i < PARTS; i++) {
        char path[OMM_PATH_MAX];
        CHECK_OK(base_store_path(path, s_folder, base, i));
        CHECK_OK(omm_file_remove(path));
    }
}

/* Of another model nothing is kept, unless another node is at it. */
static void test_two_nodes(void) {
    const omm_base_model base = split_model();
    omm_base_model other = base;
    other.digest = s_pieces[0];
    base_store s, o;
    char last[OMM_PATH_MAX];
    CHECK_OK(base_store_open(&s, s_folder, &base));
    CHECK_OK(base_store_path(last, s_folder, &base, PARTS - 1));
    memcpy(strstr(last, ".gguf"), ".part", 6);
    CHECK_OK(base_store_open(&o, s_folder, &other));
    CHECK(omm_file_exists(s.part) && omm_file_exists(last) && omm_file_exists(o.part));
    base_store_close(&s);
    base_store_close(&o);
    CHECK_OK(base_store_open(&o, s_folder, &other));
    CHECK(!omm_file_exists(s.part) && !omm_file_exists(last) && omm_file_exists(o.part));
    base_store_close(&o);
    CHECK_OK(base_store_open(&s, s_folder, &base)); /* and the other way */
    CHECK(!omm_file_exists(o.part));
    base_store_close(&s);
    CHECK_OK(omm_file_remove(s.part));
}

static void test_split(void) {
    const omm_base_model base = split_model();
    const int piece = 2 * (int)OMM_CHUNK_BYTES;
    base_store s, again;
    char old[OMM_PATH_MAX], part[OMM_PATH_MAX], whole[OMM_PATH_MAX];
    const omm_base_model before = {.digest = s_pieces[0], .parts = s_parts, .part_count = 2};
    CHECK_OK(base_store_path(old, s_folder, &before, 1)); /* of another model in several files */
    CHECK_OK(omm_file_write(old, omm_bytes_of("old", 3), 0600));
    CHECK_OK(base_store_open(&s, s_folder, &base));
    CHECK_ERR(base_store_open(&again, s_folder, &base), OMM_ERR_STATE);
    put(&s, 2 * piece + 1000, 9999);
    base_store_close(&s);
    CHECK_OK(base_store_open(&s, s_folder, &base));
    CHECK_EQ(s.at, 2 * piece);
    put(&s, 3 * piece, 9999);
    CHECK(pwrite(s.fds[1], "?", 1, 100) == 1); /* in piece 0, which is in two files */
    base_store_close(&s);
    CHECK_OK(base_store_open(&s, s_folder, &base));
    CHECK_EQ(s.at, 0);
    put(&s, BYTES, 1 << 20);
    check_files(&base, false);
    CHECK_OK(base_store_finish(&s));
    base_store_close(&s);
    check_files(&base, true);
    CHECK(!omm_file_exists(s.part) && !omm_file_exists(old));
    /* Killed while files were given their names: some have theirs, the first has not. */
    (void)snprintf(part, sizeof part, "%s", s.part);
    (void)snprintf(whole, sizeof whole, "%s", s.path);
    CHECK(rename(whole, part) == 0);
    CHECK_OK(base_store_open(&s, s_folder, &base));
    CHECK(base_store_is_whole(&s));
    CHECK_OK(base_store_finish(&s));
    base_store_close(&s);
    check_files(&base, true);
    remove_files(&base, 0);
}

/* Every file may be the one that is missing. */
static void test_split_missing(void) {
    const omm_base_model base = split_model();
    for (size_t gone = 0; gone < PARTS; gone++) {
        base_store s;
        CHECK_OK(base_store_open(&s, s_folder, &base));
        put(&s, BYTES, 1 << 20);
        CHECK_OK(base_store_finish(&s));
        base_store_close(&s);
        remove_files(&base, gone);
        CHECK_OK(base_store_open(&s, s_folder, &base));
        CHECK(s.at < BYTES);
        put(&s, BYTES, 77777);
        CHECK_OK(base_store_finish(&s));
        base_store_close(&s);
        check_files(&base, true);
        remove_files(&base, 0);
    }
    omm_base_model wrong = split_model();
    base_store s;
    wrong.digest.b[3] ^= 1;
    CHECK_OK(base_store_open(&s, s_folder, &wrong));
    put(&s, BYTES, 100000);
    CHECK_ERR(base_store_finish(&s), OMM_ERR_REFUSED_DIGEST);
    base_store_close(&s);
    check_files(&wrong, false);
    CHECK(!omm_file_exists(s.part));
}

/* Nothing may be written at `bytes` of a file and behind it, as on a full disk; -1: everything may. */
static void limit_files(int64_t bytes) {
    struct rlimit limit;
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR); /* EFBIG instead */
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes < 0 ? limit.rlim_max : (rlim_t)bytes;
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* The second file has no room at some byte: that file is named, what is there counts, and it goes on from there. */
static void test_split_full(void) {
    const omm_base_model base = split_model();
    base_store s;
    char path[OMM_PATH_MAX];
    CHECK_OK(base_store_path(path, s_folder, &base, 1));
    memcpy(strstr(path, ".gguf"), ".part", 6);
    CHECK_OK(base_store_open(&s, s_folder, &base));
    put(&s, (int)s_parts[0], 9999);
    limit_files((int64_t)s_parts[1] / 2 + 7);
    omm_err err = OMM_OK;
    uint64_t at = 0;
    while (err == OMM_OK) {
        at = s.at;
        err = base_store_put(&s, omm_bytes_of(s_file + s.at, 9999));
    }
    CHECK_EQ(s.at, at);
    for (int again = 0; again < 3; again++) {
        CHECK_ERR(base_store_put(&s, omm_bytes_of(s_file + s.at, 9999)), OMM_ERR_IO);
        CHECK(strncmp(omm_err_sentence(), path, strlen(path)) == 0);
        CHECK_EQ(s.at, at);
    }
    CHECK_ERR(err, OMM_ERR_IO);
    CHECK(at > s_parts[0] && at < s_parts[0] + s_parts[1]);
    limit_files(-1);
    put(&s, BYTES, 9999);
    CHECK_OK(base_store_finish(&s));
    base_store_close(&s);
    check_files(&base, true);
    remove_files(&base, 0);
}

/* ---- addresses ---- */

static bool is_private(const char *text) {
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return mirror_is_private((const struct sockaddr *)(const void *)&v4);
    CHECK_EQ(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    return mirror_is_private((const struct sockaddr *)(const void *)&v6);
}

static void test_addresses(void) {
    static const char *const closed[] = {"0.0.0.0",
                                         "0.1.2.3",
                                         "10.0.0.1",
                                         "10.255.255.255",
                                         "100.64.0.1",
                                         "100.127.255.255",
                                         "127.0.0.1",
                                         "127.255.0.1",
                                         "169.254.169.254",
                                         "172.16.0.1",
                                         "172.31.255.255",
                                         "192.0.0.1",
                                         "192.168.1.1",
                                         "198.18.0.1",
                                         "198.19.255.255",
                                         "224.0.0.1",
                                         "255.255.255.255",
                                         "::",
                                         "::1",
                                         "fe80::1",
                                         "fc00::1",
                                         "fd12::1",
                                         "ff02::1",
                                         "::ffff:127.0.0.1",
                                         "::ffff:10.1.1.1",
                                         "64:ff9b::a00:1",
                                         "2002:7f00:1::",
                                         "2002:c0a8:101::1"};
    static const char *const open[] = {
        "1.1.1.1",         "9.255.255.255", "11.0.0.0",     "100.63.255.255", "100.128.0.0",
        "128.0.0.1",       "172.15.0.1",    "172.32.0.1",   "192.167.0.1",    "198.20.0.1",
        "223.255.255.255", "2a00:1450::1",  "2606:4700::1", "::ffff:1.1.1.1", "64:ff9b::101:101"};
    CHECK(
        mirror_is_private(&(struct sockaddr){.sa_family = AF_UNIX})); /* of no kind that is known */
    for (size_t i = 0; i < sizeof closed / sizeof *closed; i++)
        if (!is_private(closed[i])) check_failed(closed[i], __FILE__, __LINE__);
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        if (is_private(open[i])) check_failed(open[i], __FILE__, __LINE__);
}

/* ---- coordinators that lie ---- */

typedef enum lie {
    LIE_NONE,
    LIE_KEY,     /* another key signs the manifest */
    LIE_CONTEXT, /* an offer's signature */
    LIE_CHUNK,   /* wrong bytes, three times, then right ones */
    LIE_INDEX,   /* another chunk than the one that was asked for, three times */
    LIE_SHORT,   /* half a chunk, three times */
    LIE_HUGE,    /* a model of 100 GB */
    LIE_FORM,    /* signed, and no manifest that can be read: of a later version, say */
    LIE_SPLIT,   /* honest, a model in several files */
    LIE_WAIT,    /* "come again in a hundred years" */
    LIE_DOOR,    /* honest, but who is not let in is answered by s_door */
} lie;

/* What who asks to be let in is answered, one after the other; the last one again and again. */
typedef struct door_answer {
    omm_reply_kind kind;
    omm_err reason;
    uint32_t bits;     /* of a challenge */
    bool is_anothers;  /* another key signed it */
    uint64_t retry_ms; /* 0: it is in */
} door_answer;
static const door_answer *s_door;
static size_t s_door_count;
static const omm_seed *s_token;

typedef struct liar {
    lie lie;
    omm_server *server;
    omm_key key, other;
    int lies;
    atomic_bool stop;
    atomic_int chunks, asked; /* to be let in */
    int chunks_before;        /* chunks when that was asked last */
    omm_digest node;          /* whose key it was */
    bool invited;
} liar;

static omm_err put_manifest(omm_buf *reply, liar *l) {
    omm_base_model base = l->lie == LIE_SPLIT ? split_model() : model();
    omm_digest *many = NULL;
    omm_buf payload, envelope;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    if (l->lie == LIE_HUGE) {
        base.size = 100000000000u;
        base.piece_chunks = omm_base_piece_chunks_for(base.size);
        const uint64_t piece = omm_base_piece_bytes(base.piece_chunks);
        base.piece_count = (size_t)((base.size + piece - 1) / piece);
        many = omm_alloc(base.piece_count, sizeof *many);
        base.pieces = many;
    }
    if (l->lie == LIE_FORM)
        CHECK_OK(omm_buf_append(&payload, "?", 1));
    else
        CHECK_OK(omm_base_model_encode(&payload, &base));
    CHECK_OK(omm_envelope_seal(&envelope,
                               l->lie == LIE_CONTEXT ? OMM_CONTEXT_OFFER : OMM_CONTEXT_BASE,
                               omm_buf_view(&payload), l->lie == LIE_KEY ? &l->other : &l->key));
    const omm_err err = omm_reply_encode(
        reply, &(omm_reply){.kind = OMM_REPLY_BASE, .envelope = omm_buf_view(&envelope)});
    omm_free(many);
    omm_buf_fini(&payload);
    omm_buf_fini(&envelope);
    return err;
}

static omm_err put_chunk(omm_buf *reply, liar *l, const omm_request *ask) {
    size_t piece = 0;
    while (!omm_digest_equal(&s_pieces[piece], &ask->digest)) CHECK(++piece < PIECES);
    const size_t at = (2 * piece + ask->index) * OMM_CHUNK_BYTES;
    uint8_t *copy = omm_alloc(OMM_CHUNK_BYTES, 1);
    omm_reply r = {.kind = OMM_REPLY_CHUNK, .digest = ask->digest, .index = ask->index};
    size_t size = BYTES - at < OMM_CHUNK_BYTES ? BYTES - at : OMM_CHUNK_BYTES;
    CHECK(copy);
    memcpy(copy, s_file + at, size);
    atomic_fetch_add(&l->chunks, 1);
    if (l->lie == LIE_WAIT && l->lies++ < 1) {
        r.kind = OMM_REPLY_WAIT;
        r.retry_ms = UINT64_MAX / 2;
    }
    if (l->lie >= LIE_CHUNK && l->lie <= LIE_SHORT && l->lies++ < 2) {
        if (l->lie == LIE_CHUNK) copy[size - 1] ^= 1;
        if (l->lie == LIE_INDEX) r.index ^= 1;
        if (l->lie == LIE_SHORT) size /= 2;
    }
    r.data = omm_bytes_of(copy, size);
    const omm_err err = omm_reply_encode(reply, &r);
    omm_free(copy);
    return err;
}

static omm_err put_challenge(omm_buf *reply, const liar *l, const door_answer *a) {
    omm_challenge challenge = {.bits = a->bits};
    omm_buf payload, envelope;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    memset(challenge.run_id, 'a', sizeof challenge.run_id - 1);
    CHECK_OK(omm_challenge_encode(&payload, &challenge));
    CHECK_OK(omm_envelope_seal(&envelope, OMM_CONTEXT_CHALLENGE, omm_buf_view(&payload),
                               a->is_anothers ? &l->other : &l->key));
    const omm_err err = omm_reply_encode(
        reply, &(omm_reply){.kind = OMM_REPLY_CHALLENGE, .envelope = omm_buf_view(&envelope)});
    omm_buf_fini(&payload);
    omm_buf_fini(&envelope);
    return err;
}

static omm_err put_door(omm_buf *reply, liar *l, const omm_request *ask, omm_arena *arena) {
    omm_envelope envelope;
    omm_enrol enrol;
    CHECK_OK(omm_envelope_open_as(&envelope, OMM_CONTEXT_ENROL, ask->envelope));
    CHECK_OK(omm_enrol_decode(&enrol, envelope.payload, arena));
    CHECK(omm_public_key_equal(&enrol.coordinator, &l->key.public_key) && !enrol.has_work);
    l->node = omm_key_id(&envelope.key);
    l->invited = enrol.has_invitation;
    l->chunks_before = atomic_load(&l->chunks);
    const size_t at = (size_t)atomic_fetch_add(&l->asked, 1);
    const door_answer *a = &s_door[at < s_door_count ? at : s_door_count - 1];
    if (a->kind == OMM_REPLY_CHALLENGE) return put_challenge(reply, l, a);
    const bool is_no = a->kind == OMM_REPLY_REFUSED;
    return omm_reply_encode(reply, &(omm_reply){.kind = a->kind,
                                                .reason = a->reason,
                                                .sentence = is_no ? "no" : NULL,
                                                .retry_ms = a->retry_ms});
}

static void *serve(void *ud) {
    liar *l = ud;
    omm_buf reply;
    omm_buf_init(&reply, OMM_MESSAGE_BYTES_MAX);
    while (!atomic_load(&l->stop)) {
        omm_exchange *exchange;
        omm_bytes bytes;
        omm_request ask;
        omm_arena arena;
        if (omm_server_receive(&exchange, &bytes, l->server, 20) != OMM_OK) continue;
        omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
        CHECK_OK(omm_request_decode(&ask, bytes, &arena));
        omm_buf_clear(&reply);
        if (ask.kind == OMM_REQUEST_ENROL)
            CHECK_OK(put_door(&reply, l, &ask, &arena));
        else
            CHECK_OK(ask.kind == OMM_REQUEST_BASE ? put_manifest(&reply, l)
                                                  : put_chunk(&reply, l, &ask));
        omm_arena_fini(&arena);
        CHECK_OK(omm_exchange_reply(exchange, omm_buf_view(&reply)));
    }
    omm_buf_fini(&reply);
    return NULL;
}

/* Sleeping costs the fetch nothing; s_end_ms of it ends it. */
static _Atomic uint64_t s_now, s_wall_ms;
static atomic_bool s_stop;
static uint64_t test_now(void *ud) {
    (void)ud;
    return atomic_load(&s_now);
}
static uint64_t test_wall(void *ud) {
    (void)ud;
    return atomic_load(&s_wall_ms);
}
enum { PAUSES = 20, PAUSE_MS = 13 * 3600 * 1000 };
static unsigned
    s_pauses; /* sleeps at a time when it must pause; after PAUSES of them it may go on */
static uint64_t s_end_ms = 100000; /* it is stopped then */

/* How much room files have from some time on, in chunks; -1: all that they want. */
typedef struct room {
    uint64_t at_ms;
    int chunks;
} room;
static const room *s_room; /* what comes next; NULL: nothing */

static void test_sleep(void *ud, uint64_t ms) {
    (void)ud;
    if (s_room && atomic_load(&s_now) + ms >= s_room->at_ms) {
        limit_files(s_room->chunks < 0 ? -1 : s_room->chunks * (int64_t)OMM_CHUNK_BYTES);
        s_room = s_room->chunks < 0 ? NULL : s_room + 1;
    }
    if (atomic_load(&s_wall_ms) > 0 && ++s_pauses == PAUSES) atomic_store(&s_wall_ms, 0);
    if (atomic_fetch_add(&s_now, ms) + ms > s_end_ms) atomic_store(&s_stop, true);
}

static const char *s_mirror;           /* NULL: none */
static const omm_guest_rules *s_guest; /* the same */

static const omm_log *s_log; /* the same */

static int s_asked;           /* to be let in, in the last fetch */
static omm_key s_coordinator; /* of all of them */

/* Into a folder of this name. */
static omm_err fetch_into(const char *name, omm_base_fetch_result *result, lie which, int *chunks) {
    static int number;
    liar l = {.lie = which};
    pthread_t thread;
    omm_key node;
    char url[64];
    (void)snprintf(url, sizeof url, "inproc://base-fetch-%d", ++number);
    l.key = s_coordinator;
    omm_key_generate(&l.other);
    omm_key_generate(&node);
    omm_server_options server = omm_server_options_default();
    CHECK_OK(omm_server_open(&l.server, &server));
    CHECK_OK(omm_server_listen(l.server, url));
    CHECK_EQ(pthread_create(&thread, NULL, serve, &l), 0);
    char state[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(state, s_folder, name));
    omm_clock clock = omm_clock_system();
    clock.now_ms = test_now;
    clock.wall_ms = test_wall;
    clock.sleep_ms = test_sleep;
    atomic_store(&s_now, 0);
    atomic_store(&s_stop, false);
    const omm_base_fetch_options o = {.name = "n",
                                      .state_dir = state,
                                      .url = url,
                                      .coordinator = l.key.public_key,
                                      .key = which == LIE_DOOR ? &node : NULL,
                                      .token = s_token,
                                      .work_bits_max = 20,
                                      .bytes_max = which == LIE_HUGE ? 16000000000u : BYTES,
                                      .answer_ms = 1000,
                                      .stall_s = s_mirror ? 600 : 1,
                                      .mirrors = &s_mirror,
                                      .mirror_count = s_mirror != NULL,
                                      .private_mirrors = true,
                                      .guest = s_guest,
                                      .guest_root = "/nonexistent",
                                      .log = s_log,
                                      .clock = clock,
                                      .stop = &s_stop};
    const omm_err err = omm_base_fetch(result, &o);
    atomic_store(&l.stop, true);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    omm_server_close(l.server);
    *chunks = atomic_load(&l.chunks);
    s_asked = atomic_load(&l.asked);
    const omm_digest id = omm_key_id(&node.public_key);
    if (s_asked > 0)
        CHECK(omm_digest_equal(&id, &l.node) && l.invited == (s_token != NULL) &&
              l.chunks_before == 0);
    return err;
}

static omm_err fetch(omm_base_fetch_result *result, lie which, int *chunks) {
    static int number;
    char name[16];
    (void)snprintf(name, sizeof name, "s%d", ++number);
    return fetch_into(name, result, which, chunks);
}

static void check_model(const omm_base_fetch_result *result) {
    omm_digest digest;
    const omm_base_model base = model();
    CHECK(result->path[0]);
    CHECK_OK(omm_hash_file(&digest, result->path));
    CHECK(omm_digest_equal(&digest, &base.digest));
}

/* What has a model's name is the model where it is as long; a shorter one is fetched again. */
static void test_cut_model(void) {
    omm_base_fetch_result result;
    int chunks = 0;
    CHECK_OK(fetch_into("cut", &result, LIE_NONE, &chunks));
    check_model(&result);
    CHECK_OK(fetch_into("cut", &result, LIE_NONE, &chunks));
    check_model(&result);
    CHECK_EQ(chunks, 0);
    CHECK_EQ(truncate(result.path, BYTES - 1), 0);
    CHECK_OK(fetch_into("cut", &result, LIE_NONE, &chunks));
    check_model(&result);
    CHECK(chunks > 0);
}

/* A model that is here stays, in one file or in several, whatever a coordinator or somebody on the way says then. */
static void test_kept_model(void) {
    static const lie whole[] = {LIE_NONE, LIE_SPLIT};
    static const lie lies[] = {LIE_FORM, LIE_KEY, LIE_CONTEXT};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        const char *name = i ? "kept-split" : "kept";
        omm_base_fetch_result result;
        char path[OMM_PATH_MAX];
        int chunks = 0;
        CHECK_OK(fetch_into(name, &result, whole[i], &chunks));
        CHECK(result.path[0] && chunks > 0);
        memcpy(path, result.path, sizeof path);
        for (size_t k = 0; k < sizeof lies / sizeof *lies; k++) {
            CHECK_OK(fetch_into(name, &result, lies[k], &chunks));
            CHECK(strcmp(result.path, path) == 0 && omm_file_exists(path));
            CHECK_EQ(chunks, 0);
        }
        limit_files(0);
        CHECK_OK(fetch_into(name, &result, whole[i], &chunks)); /* nor was the manifest replaced */
        limit_files(-1);
        CHECK(strcmp(result.path, path) == 0);
        CHECK_EQ(chunks, 0);
    }
}

typedef struct waits {
    size_t count;
    long long ms[16];
} waits;

/* How long it says that it waits for room. */
static void hear_waits(void *ud, omm_log_level level, const char *line) {
    static const char key[] = " again_ms=";
    waits *w = ud;
    if (level != OMM_LOG_ERROR || !strstr(line, " base_stands_still ")) return;
    CHECK(strstr(line, key) != NULL && w->count < sizeof w->ms / sizeof *w->ms);
    w->ms[w->count++] = strtoll(strstr(line, key) + strlen(key), NULL, 10);
}

/* A disk without room for a while, twice: it stands still, asks less and less often, and goes on when there is some. */
static void test_full_for_a_while(void) {
    static const room later[] = {{61000, 6}, {64000, -1}};
    static const long long want[] = {1000, 2000, 4000, 8000, 16000, 30000, 1000, 2000};
    omm_base_fetch_result result;
    waits w = {0};
    const omm_log log = {
        .level = OMM_LOG_ERROR, .clock = omm_clock_system(), .sink = hear_waits, .ud = &w};
    int chunks = 0;
    limit_files(3 * (int64_t)OMM_CHUNK_BYTES);
    s_room = later;
    s_log = &log;
    CHECK_OK(fetch_into("full", &result, LIE_NONE, &chunks));
    s_log = NULL;
    CHECK(!s_room);
    check_model(&result);
    CHECK_EQ(w.count, sizeof want / sizeof *want);
    for (size_t i = 0; i < w.count; i++) CHECK_EQ(w.ms[i], want[i]);
}

/* Without room for the manifest there is nothing to go on from: that is an error. */
static void test_full_at_once(void) {
    omm_base_fetch_result result;
    int chunks = 0;
    limit_files(0);
    const omm_err err = fetch_into("at-once", &result, LIE_NONE, &chunks);
    limit_files(-1);
    CHECK_ERR(err, OMM_ERR_IO);
    CHECK(chunks == 0 && !result.path[0]);
}

/* A mirror that gives half of the model, and then its owner needs the machine: the connection is given up at once, though the
 * mirror has not stalled.  Then all of it. */
static void *lend(void *ud) {
    for (int turn = 0; turn < 2; turn++) {
        char text[4096];
        const struct timeval limit = {.tv_sec = 30};
        const int fd = accept(*(const int *)ud, NULL, NULL);
        CHECK(fd >= 0);
        CHECK(recv(fd, text, sizeof text, 0) > 0);
        const int size =
            snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", BYTES);
        CHECK_EQ(send(fd, text, (size_t)size, MSG_NOSIGNAL), size);
        for (int at = 0, end = turn ? BYTES : BYTES / 2; at < end;) {
            const ssize_t sent = send(fd, s_file + at, (size_t)(end - at), MSG_NOSIGNAL);
            if (sent <= 0) break;
            at += (int)sent;
        }
        if (turn == 0) {
            atomic_store(&s_wall_ms, PAUSE_MS);
            atomic_fetch_add(&s_now, 2000); /* a look is due */
            CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
            const ssize_t got = recv(fd, text, sizeof text, 0);
            CHECK(got == 0 || (got < 0 && errno == ECONNRESET));
        }
        close(fd);
    }
    return NULL;
}

static void test_pause(void) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    omm_guest_rules rules = omm_guest_rules_default();
    omm_base_fetch_result result;
    pthread_t thread;
    char url[64];
    int chunks = 0, door = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(door >= 0 && bind(door, (struct sockaddr *)&here, sizeof here) == 0);
    CHECK(listen(door, 1) == 0 && getsockname(door, (struct sockaddr *)&here, &size) == 0);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u/m", ntohs(here.sin_port));
    CHECK_OK(omm_hours_parse(&rules.hours, "00:00-12:00"));
    CHECK_EQ(pthread_create(&thread, NULL, lend, &door), 0);
    s_mirror = url;
    s_guest = &rules;
    CHECK_OK(fetch_into("pause", &result, LIE_NONE, &chunks));
    s_mirror = NULL;
    s_guest = NULL;
    CHECK_EQ(pthread_join(thread, NULL), 0);
    check_model(&result);
    CHECK_EQ(s_pauses, PAUSES);
    CHECK_EQ(chunks, 0); /* nobody else was asked */
    close(door);
}

static bool may_not_go_on(void *ud) {
    (void)ud;
    return false;
}

/* False: there is no library for mirrors here. */
static bool has_mirrors(void) {
    const mirror_get get = {.url = "http://127.0.0.1:1/m",
                            .size = 1,
                            .connect_s = 1,
                            .stall_s = 1,
                            .may_go_on = may_not_go_on};
    return mirror_fetch(&get) != OMM_ERR_UNSUPPORTED;
}

static void expect_model(lie which, int extra) {
    omm_base_fetch_result result;
    int chunks = 0;
    CHECK_OK(fetch(&result, which, &chunks));
    check_model(&result);
    CHECK_EQ(chunks, 8 + extra);
}

static void test_coordinators(void) {
    omm_base_fetch_result result;
    int chunks = 0;
    expect_model(LIE_NONE, 0);
    expect_model(LIE_CHUNK, 2); /* the whole piece of two chunks again */
    expect_model(LIE_INDEX, 2);
    expect_model(LIE_SHORT, 2);
    expect_model(LIE_WAIT, 1);
    CHECK_OK(fetch(&result, LIE_KEY, &chunks));
    CHECK(!result.path[0] && chunks == 0);
    CHECK_OK(fetch(&result, LIE_CONTEXT, &chunks));
    CHECK(!result.path[0] && chunks == 0);
    CHECK_ERR(fetch(&result, LIE_HUGE, &chunks), OMM_ERR_REFUSED_SIZE);
    CHECK(strstr(omm_err_sentence(), "100.00 GB, over max_model_gb of 16.00") && chunks == 0);
}

/* ---- who is let in ---- */

static const door_answer s_yes = {.kind = OMM_REPLY_WAIT};
static const door_answer s_busy = {.kind = OMM_REPLY_WAIT, .retry_ms = 30000};

static door_answer no(omm_err reason) {
    return (door_answer){.kind = OMM_REPLY_REFUSED, .reason = reason};
}

static door_answer work(uint32_t bits, bool is_anothers) {
    return (door_answer){.kind = OMM_REPLY_CHALLENGE, .bits = bits, .is_anothers = is_anothers};
}

/* Nothing is fetched before the coordinator says that it is let in, or may work for that.  A hundred seconds, after which the
 * fetch is stopped, are two attempts: the second is a minute after the first. */
static void lets_in(door_answer first, door_answer then, bool lets, int asked) {
    const door_answer answers[] = {first, then};
    omm_base_fetch_result result;
    int chunks = 0;
    s_door = answers;
    s_door_count = 2;
    CHECK_OK(fetch(&result, LIE_DOOR, &chunks));
    CHECK_EQ(s_asked, asked);
    CHECK_EQ(chunks, lets ? 8 : 0);
    CHECK_EQ(result.path[0] != '\0', lets);
    if (lets) check_model(&result);
}

static void test_door(void) {
    const omm_seed token = omm_seed_from_u64(7);
    const door_answer unknown = no(OMM_ERR_REFUSED_KEY), used = no(OMM_ERR_REFUSED_INVITATION);
    lets_in(s_yes, unknown, true, 1);
    s_token = &token;
    lets_in(s_yes, used, true, 1);
    lets_in(used, used, false, 2);
    s_token = NULL;
    lets_in(unknown, s_yes, true, 2);
    lets_in(no(OMM_ERR_REFUSED_FULL), no(OMM_ERR_REFUSED_LATE), false, 2);
    lets_in(no(OMM_ERR_REFUSED_FORMAT), unknown, true, 1); /* does not know the question */
    lets_in(work(20, false), unknown, true, 1);            /* it works when it has the model */
    lets_in(work(21, false), work(21, false), false, 2);   /* more than its owner allows */
    lets_in(work(1, true), s_yes, true, 2);                /* that was not the coordinator */
    lets_in(s_busy, s_yes, true, 2);
    lets_in(s_busy, unknown, false, 3);
    s_end_ms = 1000000;
    lets_in(s_busy, s_busy, true, 22); /* ten minutes: one from before says nothing else */
    s_end_ms = 700000;                 /* eleven minutes of refusals are none of these */
    door_answer late[12];
    for (int i = 0; i < 12; i++) late[i] = i < 11 ? unknown : s_busy;
    omm_base_fetch_result result;
    int chunks = 0;
    s_door = late;
    s_door_count = 12;
    CHECK_OK(fetch(&result, LIE_DOOR, &chunks));
    CHECK(s_asked > 11 && chunks == 0 && !result.path[0]);
    s_end_ms = 100000;
}

/* What is here already needs nobody's leave. */
static void test_door_of_a_model(void) {
    omm_base_fetch_result result;
    const door_answer unknown = no(OMM_ERR_REFUSED_KEY);
    int chunks = 0;
    s_door = &unknown;
    s_door_count = 1;
    CHECK_OK(fetch_into("cut", &result, LIE_DOOR, &chunks));
    check_model(&result);
    CHECK(s_asked == 0 && chunks == 0);
}

int main(void) {
    CHECK(mkdtemp(s_folder));
    CHECK_EQ(setenv("TZ", "UTC", 1), 0);
    s_file = omm_alloc(BYTES, 1);
    CHECK(s_file);
    for (int i = 0; i < BYTES; i++) s_file[i] = (uint8_t)((uint32_t)i * 2654435761u >> 24);
    (void)model();
    omm_key_generate(&s_coordinator);
    test_store();
    test_rights();
    test_names_of_others();
    test_wrong_whole();
    test_two_nodes();
    test_split();
    test_split_missing();
    test_split_full();
    test_addresses();
    test_coordinators();
    test_door();
    test_cut_model();
    test_kept_model();
    test_door_of_a_model();
    test_full_for_a_while();
    test_full_at_once();
    if (has_mirrors())
        test_pause();
    else
        printf("no mirrors here: %s\n", omm_err_sentence());
    omm_free(s_file);
    CHECK_OK(omm_dir_remove(s_folder));
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

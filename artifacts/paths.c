/* The table of paths a bundle may hold, each with its class and size limit. */
#include "internal.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define KIB 1024ull
#define MIB (1024ull * KIB)

/* In patterns:  #  round number, at least three digits
 *               %  decimal number     @  16 hex digits     $  64 hex digits
 *               ^  capital letters, digits and underscores (a reason)
 *               *  a file name of small letters, digits, dot, dash and underscore: no two that some file systems take for one */
typedef struct path_rule {
    const char *pattern;
    omm_bundle_class class;
    uint64_t bytes_max;
} path_rule;

/* Envelopes fit one wire message (260 KiB); refused bytes may be over it. */
static const path_rule s_rules[] = {
    {"manifest.json", OMM_BUNDLE_MANIFEST, BUNDLE_MANIFEST_BYTES_MAX},
    {"manifest.json.minisig", OMM_BUNDLE_MANIFEST, 4 * KIB},
    {"scenario.yaml", OMM_BUNDLE_DETERMINISTIC, MIB},
    {"policy.yaml", OMM_BUNDLE_DETERMINISTIC, MIB},
    {"run.json", OMM_BUNDLE_DETERMINISTIC, 60 * MIB},
    {"rounds.jsonl", OMM_BUNDLE_DETERMINISTIC, 1024 * MIB},
    {"ledger.jsonl", OMM_BUNDLE_DETERMINISTIC, 1024 * MIB},
    {"gates.json", OMM_BUNDLE_DETERMINISTIC, 16 * MIB},
    {"final.gguf", OMM_BUNDLE_DETERMINISTIC, OMM_BUNDLE_FILE_BYTES_MAX},
    {"close.env", OMM_BUNDLE_DETERMINISTIC, 260 * KIB},
    {"offers/r#.env", OMM_BUNDLE_DETERMINISTIC, 4 * MIB},
    {"submissions/r#-@.env", OMM_BUNDLE_DETERMINISTIC, 260 * KIB},
    {"receipts/r#-@.env", OMM_BUNDLE_DETERMINISTIC, 260 * KIB},
    {"payloads/$.bin", OMM_BUNDLE_DETERMINISTIC, OMM_BUNDLE_FILE_BYTES_MAX},
    {"refused/r#-%-^.env", OMM_BUNDLE_DETERMINISTIC, 4 * MIB},
    {"refused/r#-%-^.bin", OMM_BUNDLE_DETERMINISTIC, 4 * MIB},
    {"refused/r#-%.receipt.env", OMM_BUNDLE_DETERMINISTIC, 260 * KIB},
    {"adapters/r#.bin", OMM_BUNDLE_DETERMINISTIC, OMM_BUNDLE_FILE_BYTES_MAX},
    {"adapters/master-r#.f32", OMM_BUNDLE_DETERMINISTIC, OMM_BUNDLE_FILE_BYTES_MAX},
    {"eval/before.jsonl", OMM_BUNDLE_DETERMINISTIC, 256 * MIB},
    {"eval/after.jsonl", OMM_BUNDLE_DETERMINISTIC, 256 * MIB},
    {"eval/control.jsonl", OMM_BUNDLE_DETERMINISTIC, 256 * MIB},
    {"eval/rounds.jsonl", OMM_BUNDLE_DETERMINISTIC, 16 * MIB},
    {"virtual/*", OMM_BUNDLE_VIRTUAL, 1024 * MIB},
    {"measured/*", OMM_BUNDLE_MEASURED, 60 * MIB},
    {"junit.xml", OMM_BUNDLE_MEASURED, 16 * MIB},
};

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* A number spelled in one way only: at least `width` digits, more only without leading zero. */
static size_t match_number(const char *path, size_t width) {
    size_t n = 0;
    while (is_digit(path[n])) n++;
    if (n < width || n > 7) return 0;
    return n > width && path[0] == '0' ? 0 : n;
}

static size_t match_set(const char *path, const char *set) {
    return strspn(path, set);
}

/* How much of `path` the wildcard takes; 0: it does not match. */
static size_t match_wildcard(char wildcard, const char *path) {
    static const char hex[] = "0123456789abcdef";
    size_t n;
    switch (wildcard) {
    case '#': return match_number(path, 3);
    case '%': return match_number(path, 1);
    case '@': n = match_set(path, hex); return n == 16 ? n : 0;
    case '$': n = match_set(path, hex); return n == 64 ? n : 0;
    case '^': return match_set(path, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    default:
        n = match_set(path, "abcdefghijklmnopqrstuvwxyz0123456789_.-");
        /* No hidden files; and a dot at the end some file systems leave out. */
        return n > 0 && path[0] != '.' && path[n - 1] != '.' ? n : 0;
    }
}

static bool match(const char *pattern, const char *path) {
    for (; *pattern; pattern++) {
        if (!strchr("#%@$^*", *pattern)) {
            if (*path++ != *pattern) return false;
            continue;
        }
        size_t n = match_wildcard(*pattern, path);
        if (n == 0) return false;
        path += n;
    }
    return *path == '\0';
}

omm_bundle_class omm_bundle_classify(uint64_t *bytes_max, const char *path) {
    if (bytes_max) *bytes_max = 0;
    if (strlen(path) >= OMM_BUNDLE_PATH_MAX || !omm_path_is_inside(path)) return OMM_BUNDLE_UNKNOWN;
    for (size_t i = 0; i < sizeof s_rules / sizeof *s_rules; i++) {
        if (!match(s_rules[i].pattern, path)) continue;
        if (bytes_max) *bytes_max = s_rules[i].bytes_max;
        return s_rules[i].class;
    }
    return OMM_BUNDLE_UNKNOWN;
}

enum { NODE_BYTES = 8 }; /* of an id, in the names of its files */

static omm_bundle_path path_of_node(const char *folder, uint32_t round, const omm_digest *node) {
    omm_bundle_path p;
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, node);
    snprintf(p.text, sizeof p.text, "%s/r%03u-%.*s.env", folder, round, 2 * NODE_BYTES, hex);
    return p;
}

bool omm_bundle_is_same_node(const omm_digest *a, const omm_digest *b) {
    return memcmp(a->b, b->b, NODE_BYTES) == 0;
}

static omm_bundle_path path_of_number(const char *format_folder, uint32_t number,
                                      const char *suffix) {
    omm_bundle_path p;
    snprintf(p.text, sizeof p.text, "%sr%03u%s", format_folder, number, suffix);
    return p;
}

omm_bundle_path omm_bundle_path_offer(uint32_t round) {
    return path_of_number("offers/", round, ".env");
}

omm_bundle_path omm_bundle_path_adapter(uint32_t number) {
    return path_of_number("adapters/", number, ".bin");
}

omm_bundle_path omm_bundle_path_master(uint32_t number) {
    return path_of_number("adapters/master-", number, ".f32");
}

omm_bundle_path omm_bundle_path_submission(uint32_t round, const omm_digest *node) {
    return path_of_node("submissions", round, node);
}

omm_bundle_path omm_bundle_path_receipt(uint32_t round, const omm_digest *node) {
    return path_of_node("receipts", round, node);
}

omm_bundle_path omm_bundle_path_payload(const omm_digest *sent_digest) {
    omm_bundle_path p;
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, sent_digest);
    snprintf(p.text, sizeof p.text, "payloads/%s.bin", hex);
    return p;
}

omm_bundle_path omm_bundle_path_refused(uint32_t round, uint32_t index, const char *reason,
                                        bool is_envelope) {
    omm_bundle_path p;
    snprintf(p.text, sizeof p.text, "refused/r%03u-%u-%.64s.%s", round, index, reason,
             is_envelope ? "env" : "bin");
    return p;
}

omm_bundle_path omm_bundle_path_refused_receipt(uint32_t round, uint32_t index) {
    omm_bundle_path p;
    snprintf(p.text, sizeof p.text, "refused/r%03u-%u.receipt.env", round, index);
    return p;
}

const char *bundle_class_letter(omm_bundle_class class) {
    switch (class) {
    case OMM_BUNDLE_DETERMINISTIC: return "D";
    case OMM_BUNDLE_VIRTUAL: return "V";
    case OMM_BUNDLE_MEASURED: return "M";
    default: return "";
    }
}

omm_err omm_bundle_file_find(char full[OMM_PATH_MAX], uint64_t *bytes_max, const char *dir,
                             const char *path) {
    if (omm_bundle_classify(bytes_max, path) == OMM_BUNDLE_UNKNOWN)
        return omm_raise(OMM_ERR_CONFIG, "%s is not a path of a bundle", path);
    OMM_TRY(omm_path_join(full, dir, path));
    struct stat st; /* `gate` reads bundles that nobody walked: a pipe would hold it for ever */
    if (lstat(full, &st) == 0 && !S_ISREG(st.st_mode))
        return omm_raise(OMM_ERR_FORMAT, "%s is no plain file", path);
    return OMM_OK;
}

omm_err omm_bundle_file_read(omm_buf *out, const char *dir, const char *path) {
    uint64_t bytes_max = 0;
    char full[OMM_PATH_MAX];
    OMM_TRY(omm_bundle_file_find(full, &bytes_max, dir, path));
    size_t limit = out->size + (size_t)bytes_max;
    size_t before = out->bytes_max;
    if (limit < before) out->bytes_max = limit;
    omm_err err = omm_file_read_plain(out, full);
    out->bytes_max = before;
    return err;
}

/* vectors_files.c - the vectors of docs/files.md in docs/protocol.json: JSON in both spellings, recipes, locked keys, the
 * audit log as the service's diary writes it, manifests. */
#include "diary.h"
#include "internal.h"
#include "vectors.h"

#include "omm/key_lock.h"
#include "omm/mem.h"
#include "omm/recipe.h"

#include <stddef.h>
#include <unistd.h>

enum { ARENA_BYTES = 1 << 20 };

static char s_dir[] = "/tmp/omm-vectors-XXXXXX";

/* A file of the test's folder, with this text, readable by its owner alone. */
static const char *file_with(const char *text) {
    static char path[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(path, s_dir, "file"));
    CHECK_OK(omm_file_write_fast(path, omm_bytes_str(text), 0600));
    return path;
}

static bool is_text(const omm_buf *buf, const char *text) {
    return omm_bytes_equal(omm_buf_view(buf), omm_bytes_str(text));
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void check_json(const json_t *vector) {
    const json_t *value = json_object_get(vector, "value");
    omm_buf text, indented;
    omm_buf_init(&text, FILE_MAX);
    omm_buf_init(&indented, FILE_MAX);
    CHECK_OK(omm_json_write(&text, value));
    CHECK_OK(omm_json_write_pretty(&indented, value));
    text.size--; /* the line break */
    indented.size--;
    if (!is_text(&text, text_of(vector, "text")))
        fprintf(stderr, "%.*s\n", (int)text.size, (const char *)text.data);
    CHECK(is_text(&text, text_of(vector, "text")));
    CHECK(is_text(&indented, text_of(vector, "indented")));
    omm_buf_fini(&indented);
    omm_buf_fini(&text);
}

/* ---- recipes --------------------------------------------------------------------------------- */

typedef struct member {
    const char *name;
    size_t offset;
    enum { WHOLE, REAL, TEXT } kind;
} member;

#define M(name, kind)                                                                              \
    { #name, offsetof(omm_recipe, name), kind }

static const member s_members[] = {
    M(rank, WHOLE),         M(alpha, REAL),         M(targets, WHOLE),
    M(parts, WHOLE),        M(dropout, REAL),       M(steps, WHOLE),
    M(batch_tokens, WHOLE), M(micro_tokens, WHOLE), M(seq_max, WHOLE),
    M(learning_rate, REAL), M(warmup_steps, WHOLE), M(lr_min_ratio, REAL),
    M(beta1, REAL),         M(beta2, REAL),         M(epsilon, REAL),
    M(weight_decay, REAL),  M(clip_norm, REAL),     M(prox_mu, REAL),
    M(seed_lane, WHOLE),    M(optimizer, WHOLE),    M(schedule, WHOLE),
    M(momentum, REAL),      M(nesterov, WHOLE),     M(relative_step, WHOLE),
    M(rslora, WHOLE),       M(b_rate_ratio, REAL),  M(target_pattern, TEXT),
    M(rank_pattern, TEXT),  M(alpha_pattern, TEXT), M(activations, WHOLE),
};
enum { MEMBERS = sizeof s_members / sizeof *s_members };

static void set_member(omm_recipe *out, const member *m, const json_t *fields) {
    char *const at = (char *)out + m->offset;
    if (m->kind == TEXT) {
        (void)snprintf(at, OMM_RECIPE_TEXT, "%s", text_of(fields, m->name));
    } else if (m->kind == REAL) {
        double value = 0;
        CHECK_OK(omm_json_get_real(&value, fields, m->name));
        const float rounded = (float)value;
        memcpy(at, &rounded, sizeof rounded);
    } else {
        const uint32_t value = (uint32_t)number_of(fields, m->name);
        memcpy(at, &value, sizeof value);
    }
}

static void check_recipe(const json_t *vector) {
    const json_t *fields = object_of(vector, "fields");
    omm_buf want = bytes_of(vector, "bytes"), got;
    omm_recipe recipe = {0}, back = {0};
    omm_buf_init(&got, FILE_MAX);
    CHECK_EQ(json_object_size(fields), MEMBERS);
    for (size_t i = 0; i < MEMBERS; i++) set_member(&recipe, &s_members[i], fields);
    CHECK_OK(omm_recipe_encode(&got, &recipe));
    CHECK(omm_bytes_equal(omm_buf_view(&got), omm_buf_view(&want)));
    CHECK_OK(omm_recipe_decode(&back, omm_buf_view(&want)));
    CHECK(same_bytes(&back, &recipe, sizeof back));
    omm_buf_fini(&got);
    omm_buf_fini(&want);
}

static void check_refused_recipe(const json_t *vector) {
    omm_buf in = bytes_of(vector, "bytes");
    omm_recipe recipe;
    check_reason(vector, omm_recipe_decode(&recipe, omm_buf_view(&in)));
    omm_buf_fini(&in);
}

/* ---- locked keys ----------------------------------------------------------------------------- */

static omm_err unlock(omm_key *out, const json_t *vector) {
    return omm_key_load_locked(out, file_with(text_of(vector, "file")),
                               omm_bytes_str(text_of(vector, "passphrase")));
}

static void check_locked_key(const json_t *vector) {
    omm_buf seed = bytes_of(vector, "seed");
    omm_key key;
    CHECK_OK(unlock(&key, vector));
    CHECK_EQ(seed.size, 32);
    CHECK(same_bytes(key.secret, seed.data, seed.size)); /* the public key follows from it */
    omm_key_wipe(&key);
    omm_buf_fini(&seed);
}

static void check_refused_locked_key(const json_t *vector) {
    omm_key key;
    check_reason(vector, unlock(&key, vector));
}

/* ---- the audit log --------------------------------------------------------------------------- */

static const json_t *s_entries;
static size_t s_at; /* the entry that is written next */

static const json_t *next_fields(const char *event) {
    const json_t *entry = json_array_get(s_entries, s_at++);
    CHECK(entry != NULL);
    CHECK(strcmp(text_of(entry, "event"), event) == 0);
    return object_of(entry, "fields");
}

static omm_run_node s_anna;
static omm_run_record s_run = {.nodes = &s_anna, .node_count = 1};

static void take_run(const json_t *start, const json_t *enrolled) {
    (void)snprintf(s_run.run_id, sizeof s_run.run_id, "%s", text_of(start, "run_id"));
    s_run.name = text_of(start, "run");
    const omm_digest key = digest_of(start, "coordinator_key");
    memcpy(s_run.coordinator_key.b, key.b, sizeof key.b);
    s_anna.name = text_of(enrolled, "node");
    s_anna.id = digest_of(enrolled, "id");
}

/* An event of the state machine, from the entry that it shall become. */
static void tell(diary *d, omm_coord_event_kind kind, const char *name) {
    const json_t *fields = next_fields(name);
    const bool is_canary = kind == OMM_COORD_EVENT_CANARY;
    const char *const why = is_canary ? "why" : "by";
    omm_digest digest = {{0}};
    omm_coord_event event = {.kind = kind, .settles = true, .sentence = "", .digest = &digest};
    if (kind != OMM_COORD_EVENT_JOINED)
        digest = digest_of(fields, is_canary ? "submission" : "digest");
    if (json_object_get(fields, "round")) event.round = (uint32_t)number_of(fields, "round");
    if (json_object_get(fields, why)) event.sentence = text_of(fields, why);
    if (is_canary) event.peer = text_of(fields, "node");
    if (json_is_true(json_object_get(fields, "candidate"))) event.node = OMM_COORD_NOBODY;
    const char *verdict = json_string_value(json_object_get(fields, "verdict"));
    for (int i = 1; verdict && i < (int)WATCH_REASONS; i++)
        if (strcmp(verdict, omm_err_name((omm_err)i)) == 0) event.reason = (omm_err)i;
    diary_event(d, &event, NULL);
}

/* Refused requests leave no entry of their own; stop counts them, with the late receipt. */
static void refuse_twice(diary *d) {
    const omm_coord_event event = {
        .kind = OMM_COORD_EVENT_REQUEST, .reason = OMM_ERR_REFUSED_KEY, .sentence = ""};
    diary_event(d, &event, NULL);
    diary_event(d, &event, NULL);
}

static void write_evidence(diary *d, const char *event) {
    const json_t *fields = next_fields(event);
    const char *why = json_string_value(json_object_get(fields, "why"));
    diary_evidence(d, (uint32_t)number_of(fields, "round"), text_of(fields, "file"), why);
}

static void write_events(diary *d) {
    tell(d, OMM_COORD_EVENT_JOINED, "joined");
    tell(d, OMM_COORD_EVENT_OPENED, "round_open");
    tell(d, OMM_COORD_EVENT_SUBMISSION, "receipt");
    tell(d, OMM_COORD_EVENT_SUBMISSION, "receipt");
    tell(d, OMM_COORD_EVENT_CANARY, "canary");
    tell(d, OMM_COORD_EVENT_CANARY, "canary");
    const json_t *fields = next_fields("ctl");
    CHECK_OK(diary_ctl(d, text_of(fields, "action"), text_of(fields, "argument"),
                       (uint32_t)number_of(fields, "uid")));
    fields = next_fields("ctl_failed");
    diary_ctl_failed(d, text_of(fields, "action"), (uint32_t)number_of(fields, "uid"),
                     text_of(fields, "why"));
    write_evidence(d, "evidence_damaged");
    write_evidence(d, "evidence_mended");
    tell(d, OMM_COORD_EVENT_CLOSED, "closed");
    refuse_twice(d);
    CHECK_OK(diary_stop(d, text_of(next_fields("stop"), "why")));
}

static void write_diary(const char *path, omm_clock clock) {
    const json_t *start = next_fields("start");
    watch *seen = NULL;
    diary *d = NULL;
    omm_public_key bundle_key;
    take_run(start, next_fields("enrolled"));
    CHECK_OK(omm_minisign_public_parse(&bundle_key, text_of(start, "bundle_key")));
    CHECK_OK(watch_open(&seen, &(watch_options){.run = &s_run, .clock = clock}));
    const diary_options options = {.path = path,
                                   .run = &s_run,
                                   .scenario_yaml = omm_bytes_str("scenario"),
                                   .policy_yaml = omm_bytes_str("policy"),
                                   .bundle_key = &bundle_key,
                                   .commit = text_of(start, "commit"),
                                   .build = text_of(start, "build"),
                                   .clock = clock,
                                   .watch = seen};
    const omm_coord_status status = {.state = OMM_COORD_JOINING,
                                     .round = (uint32_t)number_of(start, "round")};
    CHECK_OK(diary_open(&d, &options));
    CHECK_OK(diary_start(d, &status, NULL));
    write_events(d);
    diary_close(d);
    watch_close(seen);
}

/* Half a line stands at its end, as a crash leaves it; rounds that are over follow. */
static void write_rest(const char *path, omm_clock clock) {
    static const char torn[] = "{\"at\":\"2026-11-";
    omm_audit_log *log = NULL;
    FILE *file = fopen(path, "abe");
    CHECK(file != NULL);
    CHECK_EQ(fwrite(torn, 1, sizeof torn - 1, file), sizeof torn - 1);
    CHECK_EQ(fclose(file), 0);
    CHECK_EQ(number_of(next_fields("recovered"), "dropped_bytes"), sizeof torn - 1);
    CHECK_OK(omm_audit_log_open(&log, path, clock, NULL, NULL));
    while (s_at < json_array_size(s_entries))
        CHECK_OK(
            omm_audit_log_put(log, "round_over", json_deep_copy(next_fields("round_over")), false));
    omm_audit_log_close(log);
}

static void check_audit_log(const json_t *vector) {
    char path[OMM_PATH_MAX];
    omm_fake_clock fake;
    const omm_clock clock = omm_clock_fake(&fake);
    omm_buf want, got;
    omm_audit_check check;
    omm_buf_init(&want, FILE_MAX);
    omm_buf_init(&got, FILE_MAX);
    s_entries = list_of(vector, "entries", 17);
    for (size_t i = 0; i < json_array_size(s_entries); i++)
        CHECK_OK(omm_buf_printf(&want, "%s", text_of(json_array_get(s_entries, i), "line")));
    CHECK_OK(omm_path_join(path, s_dir, "audit.jsonl"));
    fake.wall_ms = 1795408556487; /* `at` of the first entries */
    write_diary(path, clock);
    fake.wall_ms = 1835481599999; /* a leap day's last millisecond */
    write_rest(path, clock);
    CHECK_OK(omm_file_read(&got, path));
    if (!omm_bytes_equal(omm_buf_view(&got), omm_buf_view(&want)))
        fprintf(stderr, "%.*s\n", (int)got.size, (const char *)got.data);
    CHECK(omm_bytes_equal(omm_buf_view(&got), omm_buf_view(&want)));
    const omm_digest head = digest_of(vector, "head");
    CHECK_OK(omm_audit_log_verify(&check, path, &head));
    CHECK(check.has_known && omm_digest_equal(&check.head, &head));
    CHECK_EQ(check.entries, json_array_size(s_entries));
    omm_buf_fini(&got);
    omm_buf_fini(&want);
}

static void check_refused_audit_log(const json_t *vector) {
    omm_audit_check check;
    check_reason(vector, omm_audit_log_verify(&check, file_with(text_of(vector, "text")), NULL));
}

/* ---- the manifest ---------------------------------------------------------------------------- */

static void check_manifest(const json_t *vector) {
    const omm_bytes text = omm_bytes_str(text_of(vector, "text"));
    const omm_digest want = digest_of(vector, "run_digest");
    omm_arena arena;
    omm_buf again;
    omm_public_key key;
    manifest m;
    omm_arena_init(&arena, ARENA_BYTES);
    omm_buf_init(&again, FILE_MAX);
    CHECK_OK(manifest_parse(&m, &arena, text));
    const omm_digest got = manifest_run_digest(m.files, m.file_count);
    CHECK(omm_digest_equal(&got, &want) && omm_digest_equal(&m.run_digest, &want));
    CHECK_OK(manifest_write(&again, &m));
    CHECK(omm_bytes_equal(omm_buf_view(&again), text));
    CHECK_OK(omm_minisign_public_parse(&key, m.bundle_key));
    CHECK_OK(omm_minisign_verify(&key, omm_bytes_str(text_of(vector, "minisig")), text));
    omm_buf_fini(&again);
    omm_arena_fini(&arena);
}

static void check_refused_manifest(const json_t *vector) {
    omm_arena arena;
    manifest m;
    omm_arena_init(&arena, ARENA_BYTES);
    check_reason(vector, manifest_parse(&m, &arena, omm_bytes_str(text_of(vector, "text"))));
    omm_arena_fini(&arena);
}

/* The signature over it, by the key whose seed is given. */
static void check_minisig(const json_t *vector, const json_t *key_vector) {
    omm_buf seed_bytes = bytes_of(key_vector, "seed"), got;
    omm_seed seed;
    omm_key key;
    omm_buf_init(&got, FILE_MAX);
    CHECK_EQ(seed_bytes.size, sizeof seed.b);
    memcpy(seed.b, seed_bytes.data, sizeof seed.b);
    omm_key_from_seed(&key, &seed);
    CHECK_OK(omm_minisign_sign(&got, &key, omm_bytes_str(text_of(vector, "text")),
                               text_of(vector, "trusted_comment")));
    CHECK(is_text(&got, text_of(vector, "minisig")));
    omm_key_wipe(&key);
    omm_buf_fini(&got);
    omm_buf_fini(&seed_bytes);
}

void check_files(const json_t *vectors) {
    CHECK(mkdtemp(s_dir) != NULL);
    each(vectors, "json", 34, check_json);
    each(vectors, "recipes", 7, check_recipe);
    each(vectors, "refused_recipes", 87, check_refused_recipe);
    each(vectors, "locked_keys", 3, check_locked_key);
    each(vectors, "refused_locked_keys", 22, check_refused_locked_key);
    check_audit_log(object_of(vectors, "audit_log"));
    each(vectors, "refused_audit_logs", 15, check_refused_audit_log);
    check_manifest(object_of(vectors, "manifest"));
    check_minisig(object_of(vectors, "manifest"), object_of(vectors, "key"));
    each(vectors, "refused_manifests", 21, check_refused_manifest);
    CHECK_OK(omm_dir_remove(s_dir));
}

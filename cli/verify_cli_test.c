/* verify, gate and compare as commands, on a small bundle whose adapter the engine renders. */
#include "commands.h"
#include "options.h"
#include "render.h"
#include "testkit.h"

#include "omm/compute.h"
#include "omm/federated.h"
#include "omm/file.h"
#include "omm/lora.h"
#include "omm_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int run(int (*command)(int, char **), char *a, char *b, char *c, char *d) {
    char name[] = "test";
    char *argv[] = {name, a, b, c, d, NULL};
    int argc = 1;
    while (argv[argc]) argc++;
    return command(argc, argv);
}

static void test_render(void) {
    omm_lora_shape shape = {.layer_count = 2, .architecture = "llama"};
    for (int t = 0; t < OMM_LORA_TARGET_COUNT; t++) {
        shape.d_in[t] = 8 + (uint32_t)t;
        shape.d_out[t] = 16 - (uint32_t)t;
    }
    omm_lora_spec spec = {3, 6.0f, 1u << OMM_LORA_Q | 1u << OMM_LORA_DOWN};
    omm_lora lora;
    omm_seed seed = omm_seed_from_u64(5);
    omm_rng rng = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0);
    CHECK_OK(omm_lora_init_random(&lora, &spec, &shape, &rng));
    omm_segment segments[8];
    CHECK_EQ(lora.tensor_count, 8);
    for (size_t i = 0; i < 8; i++)
        segments[i] = (omm_segment){lora.tensors[i].name, lora.tensors[i].rows,
                                    lora.tensors[i].cols, lora.tensors[i].offset};
    omm_run_record record;
    memset(&record, 0, sizeof record);
    record.base.architecture = "llama";
    record.rank = 3;
    record.alpha = 6.0f;
    record.targets = spec.targets;
    record.layout = (omm_layout){segments, 8, lora.value_count};
    omm_buf want;
    omm_buf got;
    omm_buf_init(&want, 1u << 20);
    omm_buf_init(&got, 1u << 20);
    CHECK_OK(omm_lora_save(&want, &lora));
    CHECK_OK(cli_render_adapter(NULL, &got, &record, lora.values));
    CHECK(omm_bytes_equal(omm_buf_view(&want), omm_buf_view(&got)));
    /* The base that run.json names is in the file. */
    lora.shape.base.fingerprint = record.base.fingerprint = omm_hash(omm_bytes_str("base"));
    omm_lora_base_set_name(&lora.shape.base, omm_bytes_str("A base"));
    record.base.title = "A base";
    omm_buf_clear(&want);
    omm_buf_clear(&got);
    CHECK_OK(omm_lora_save(&want, &lora));
    CHECK_OK(cli_render_adapter(NULL, &got, &record, lora.values));
    CHECK(omm_bytes_equal(omm_buf_view(&want), omm_buf_view(&got)));
    record.base.title = "Another";
    omm_buf_clear(&got);
    CHECK_OK(cli_render_adapter(NULL, &got, &record, lora.values));
    CHECK(!omm_bytes_equal(omm_buf_view(&want), omm_buf_view(&got)));
    record.rank = 4;
    CHECK_ERR(cli_render_adapter(NULL, &got, &record, lora.values), OMM_ERR_MISMATCH);
    record.rank = 3;
    segments[1].name = "blk.0.attn_q.weight.lora_c";
    CHECK_ERR(cli_render_adapter(NULL, &got, &record, lora.values), OMM_ERR_MISMATCH);
    segments[1].name = "blk.4000000000.attn_q.weight.lora_b";
    CHECK_ERR(cli_render_adapter(NULL, &got, &record, lora.values), OMM_ERR_MISMATCH);
    omm_buf_fini(&got);
    omm_buf_fini(&want);
    omm_lora_fini(&lora);
}

static void put_file(const char *dir, const omm_buf *bytes, size_t size) {
    char path[OMM_PATH_MAX];
    CHECK_OK(omm_path_join(path, dir, "final.gguf"));
    CHECK_OK(omm_file_write_fast(path, omm_bytes_of(bytes->data, size), 0644));
}

/* Only cores travel: with the bundle's own file, which must be of the run's architecture, and whole. */
static void test_render_cores(void) {
    char dir[] = "/tmp/omm-render-XXXXXX";
    CHECK(mkdtemp(dir) != NULL);
    omm_lora_shape shape = {.layer_count = 2, .architecture = "llama"};
    shape.d_in[OMM_LORA_Q] = 24;
    shape.d_out[OMM_LORA_Q] = 16;
    omm_recipe recipe = omm_recipe_default();
    recipe.targets = 1u << OMM_LORA_Q;
    recipe.parts = OMM_RECIPE_PARTS_CORE;
    const omm_federated f = {.recipe = &recipe, .shape = &shape};
    omm_lora lora;
    omm_buf bytes, want, got;
    omm_segment segments[2];
    omm_compute compute;
    cli_render bundle = {.dir = dir};
    CHECK_OK(omm_federated_begin(&lora, &f, NULL));
    CHECK_EQ(lora.tensor_count, 2);
    for (size_t i = 0; i < 2; i++)
        segments[i] = (omm_segment){lora.tensors[i].name, 8, 8, lora.tensors[i].offset};
    for (size_t i = 0; i < lora.value_count; i++) lora.values[i] = (float)i / 64;
    omm_buf_init(&bytes, 4096);
    omm_buf_init(&want, 1u << 20);
    omm_buf_init(&got, 1u << 20);
    CHECK_OK(omm_recipe_encode(&bytes, &recipe));
    CHECK_OK(omm_compute_init(&compute, NULL, OMM_ISA_SCALAR));
    CHECK_OK(omm_federated_save(&want, &f, lora.values, &compute));
    omm_run_record record = {.base.architecture = "llama",
                             .rank = 8,
                             .alpha = recipe.alpha,
                             .targets = recipe.targets,
                             .recipe = omm_buf_view(&bytes),
                             .layout = {segments, 2, lora.value_count}};
    CHECK_ERR(cli_render_adapter(NULL, &got, &record, lora.values), OMM_ERR_MISMATCH);
    CHECK(cli_render_adapter(&bundle, &got, &record, lora.values) != OMM_OK); /* no file */
    put_file(dir, &want, want.size);
    CHECK_OK(cli_render_adapter(&bundle, &got, &record, lora.values));
    CHECK(omm_bytes_equal(omm_buf_view(&want), omm_buf_view(&got)));
    record.base.digest.b[0] = 1; /* another base, other halves */
    omm_buf_clear(&got);
    CHECK_OK(cli_render_adapter(&bundle, &got, &record, lora.values));
    CHECK(!omm_bytes_equal(omm_buf_view(&want), omm_buf_view(&got)));
    /* What the file says of its base is not believed: the run says it. */
    shape.base.fingerprint = omm_hash(omm_bytes_str("base"));
    record.base.digest = f.base;
    omm_buf named;
    omm_buf_init(&named, 1u << 20);
    CHECK_OK(omm_federated_save(&named, &f, lora.values, &compute));
    put_file(dir, &named, named.size);
    omm_buf_clear(&got);
    CHECK_OK(cli_render_adapter(&bundle, &got, &record, lora.values));
    CHECK(omm_bytes_equal(omm_buf_view(&want), omm_buf_view(&got)));
    record.base.fingerprint = shape.base.fingerprint;
    omm_buf_clear(&got);
    CHECK_OK(cli_render_adapter(&bundle, &got, &record, lora.values));
    CHECK(omm_bytes_equal(omm_buf_view(&named), omm_buf_view(&got)));
    omm_buf_fini(&named);
    record.base.architecture = "qwen2";
    CHECK_ERR(cli_render_adapter(&bundle, &got, &record, lora.values), OMM_ERR_MISMATCH);
    record.base.architecture = "llama";
    segments[1].rows = 4;
    CHECK_ERR(cli_render_adapter(&bundle, &got, &record, lora.values), OMM_ERR_MISMATCH);
    segments[1].rows = 8;
    put_file(dir, &want, want.size - 64);
    CHECK(cli_render_adapter(&bundle, &got, &record, lora.values) != OMM_OK);
    omm_compute_fini(&compute);
    omm_buf_fini(&bytes);
    omm_buf_fini(&got);
    omm_buf_fini(&want);
    omm_lora_fini(&lora);
    CHECK_OK(omm_dir_remove(dir));
}

/* Ranks that only the recipe says; a record or a layout that says otherwise makes no adapter. */
static void test_render_patterns(void) {
    omm_lora_shape shape = {.layer_count = 2, .architecture = "llama"};
    shape.d_in[OMM_LORA_Q] = shape.d_out[OMM_LORA_Q] = 8;
    omm_recipe recipe = omm_recipe_default();
    recipe.targets = 1u << OMM_LORA_Q;
    CHECK_OK(omm_recipe_set_patterns(&recipe, "blk.1.*=3", NULL));
    const omm_federated f = {.recipe = &recipe, .shape = &shape};
    const omm_seed seed = omm_seed_from_u64(1);
    const omm_rng lane = omm_rng_init(&seed, OMM_PURPOSE_TEST, 0, 0);
    omm_lora lora;
    omm_buf bytes, want, got;
    omm_segment segments[4];
    CHECK_OK(omm_federated_begin(&lora, &f, &lane));
    CHECK_EQ(lora.tensor_count, 4);
    for (size_t i = 0; i < 4; i++)
        segments[i] = (omm_segment){lora.tensors[i].name, lora.tensors[i].rows,
                                    lora.tensors[i].cols, lora.tensors[i].offset};
    omm_buf_init(&bytes, 4096);
    omm_buf_init(&want, 1u << 20);
    omm_buf_init(&got, 1u << 20);
    CHECK_OK(omm_recipe_encode(&bytes, &recipe));
    omm_run_record record = {.base.architecture = "llama",
                             .rank = 8,
                             .alpha = recipe.alpha,
                             .targets = recipe.targets,
                             .recipe = omm_buf_view(&bytes),
                             .layout = {segments, 4, lora.value_count}};
    CHECK_OK(omm_federated_save(&want, &f, lora.values, NULL));
    CHECK_OK(cli_render_adapter(NULL, &got, &record, lora.values));
    CHECK(omm_bytes_equal(omm_buf_view(&want), omm_buf_view(&got)));
    record.rank = 3;
    CHECK_ERR(cli_render_adapter(NULL, &got, &record, lora.values), OMM_ERR_MISMATCH);
    record.rank = 8;
    record.targets = 3;
    CHECK_ERR(cli_render_adapter(NULL, &got, &record, lora.values), OMM_ERR_MISMATCH);
    record.targets = recipe.targets;
    segments[2].rows = segments[3].cols = 4; /* and the recipe says 3 */
    CHECK_ERR(cli_render_adapter(NULL, &got, &record, lora.values), OMM_ERR_MISMATCH);
    omm_buf_fini(&bytes);
    omm_buf_fini(&got);
    omm_buf_fini(&want);
    omm_lora_fini(&lora);
}

/* Whoever sealed it: it is of the coordinator that is named, or refused. */
static void test_coordinator(void) {
    kit k;
    char pin[] = "--coordinator", own[2 * sizeof k.coordinator.public_key.b + 1], other[sizeof own];
    kit_make(&k, &(kit_options){.render = cli_render_adapter});
    omm_hex(own, omm_bytes_of(k.coordinator.public_key.b, sizeof k.coordinator.public_key.b));
    omm_hex(other, omm_bytes_of(k.stranger.public_key.b, sizeof k.stranger.public_key.b));
    CHECK_EQ(run(cmd_verify, k.dir, pin, own, NULL), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_verify, k.dir, pin, other, NULL), CLI_EXIT_FAILED);
    CHECK_EQ(run(cmd_gate, k.dir, pin, own, NULL), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_gate, k.dir, pin, other, NULL), CLI_EXIT_FAILED);
    CHECK_EQ(run(cmd_compare, k.dir, k.dir, pin, other), CLI_EXIT_FAILED);
    other[sizeof other - 2] = '\0';
    CHECK_EQ(run(cmd_verify, k.dir, pin, other, NULL), CLI_EXIT_USAGE);
    kit_remove(&k);
}

static void test_commands(void) {
    kit k;
    char trust[] = "--trust";
    char unverified[] = "--unverified";
    char json[] = "--json";
    char junit[] = "--junit";
    char policy[] = "--policy";
    char key[OMM_MINISIGN_PUBLIC_SIZE];
    char other[OMM_MINISIGN_PUBLIC_SIZE];
    char path[OMM_PATH_MAX];
    char nowhere[] = "/nonexistent";
    kit_make(&k, &(kit_options){.render = cli_render_adapter});
    omm_minisign_public(key, &k.bundle.public_key);
    omm_minisign_public(other, &k.stranger.public_key);
    CHECK_EQ(run(cmd_verify, k.dir, NULL, NULL, NULL), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_verify, k.dir, trust, key, json), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_verify, k.dir, trust, other, NULL), CLI_EXIT_FAILED);
    CHECK_EQ(run(cmd_verify, k.dir, trust, nowhere, NULL), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_verify, nowhere, NULL, NULL, NULL), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_verify, NULL, NULL, NULL, NULL), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_gate, k.dir, NULL, NULL, NULL), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_gate, k.dir, json, NULL, NULL), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_gate, k.dir, policy, nowhere, NULL), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_gate, nowhere, NULL, NULL, NULL), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_gate, k.dir, trust, key, NULL), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_gate, k.dir, trust, other, NULL), CLI_EXIT_FAILED);
    CHECK_EQ(run(cmd_compare, k.dir, k.dir, trust, other), CLI_EXIT_FAILED);
    CHECK_EQ(run(cmd_gate, k.dir, trust, key, unverified), CLI_EXIT_USAGE);
    /* A key file as minisign writes it, and a policy that this run cannot meet. */
    char text[256];
    char keyfile[OMM_PATH_MAX];
    kit_temp_dir(path);
    snprintf(text, sizeof text, "untrusted comment: minisign public key\n%s\n", key);
    kit_write(path, "key.pub", omm_bytes_str(text));
    kit_write(path, "strict.yaml",
              omm_bytes_str("quality:\n  heldout_uplift: {level: required, direction: at_least, "
                            "threshold: 100, samples_min: 1}\n"));
    CHECK_OK(omm_path_join(keyfile, path, "key.pub"));
    CHECK_EQ(run(cmd_verify, k.dir, trust, keyfile, NULL), CLI_EXIT_PASS);
    CHECK_OK(omm_path_join(keyfile, path, "strict.yaml"));
    CHECK_EQ(run(cmd_gate, k.dir, policy, keyfile, json), CLI_EXIT_FAILED);
    CHECK_OK(omm_path_join(keyfile, path, "junit.xml"));
    CHECK_EQ(run(cmd_gate, k.dir, junit, keyfile, NULL), CLI_EXIT_PASS);
    CHECK(omm_file_exists(keyfile));
    CHECK_OK(omm_dir_remove(path));
    CHECK_EQ(run(cmd_compare, k.dir, k.dir, NULL, NULL), CLI_EXIT_USAGE); /* one run twice */
    CHECK_EQ(run(cmd_compare, k.dir, NULL, NULL, NULL), CLI_EXIT_USAGE);
    kit_delete(k.dir, "final.gguf");
    CHECK_EQ(run(cmd_compare, k.dir, k.dir, NULL, NULL), CLI_EXIT_FAILED);
    CHECK_EQ(run(cmd_verify, k.dir, NULL, NULL, NULL), CLI_EXIT_FAILED);
    /* what is not what was signed is judged for whom that is enough */
    CHECK_EQ(run(cmd_gate, k.dir, NULL, NULL, NULL), CLI_EXIT_FAILED);
    CHECK_EQ(run(cmd_gate, k.dir, unverified, NULL, NULL), CLI_EXIT_PASS);
    kit_remove(&k);
}

/* ---- who writes there meanwhile ---- */

/* A pipe, from which a command reads `text` as often as it asks; from the second time on, or from the first, it has to wait
 * until a bundle has changed. */
typedef struct held_file {
    char path[OMM_PATH_MAX];
    const char *text, *dir;
    int before; /* readings that change nothing */
    pthread_t thread;
} held_file;

static void *hand_over(void *ud) {
    const held_file *h = ud;
    for (int i = 0; i <= h->before; i++) {
        const int fd = open(h->path, O_WRONLY); /* there is a reader now */
        CHECK(fd >= 0);
        if (i == h->before) kit_write(h->dir, "measured/machine.json", omm_bytes_str("{ }"));
        CHECK_EQ(write(fd, h->text, strlen(h->text)), (ssize_t)strlen(h->text));
        CHECK_EQ(close(fd), 0);
        const struct timespec while_it_reads = {.tv_nsec = 20000000};
        nanosleep(&while_it_reads, NULL);
    }
    return NULL;
}

static void hold(held_file *h, const char *folder, const char *text, const char *dir, int before) {
    *h = (held_file){.text = text, .dir = dir, .before = before};
    CHECK_OK(omm_path_join(h->path, folder, "held"));
    CHECK_EQ(mkfifo(h->path, 0600), 0);
    CHECK_EQ(pthread_create(&h->thread, NULL, hand_over, h), 0);
}

static void let_go(held_file *h) {
    CHECK_EQ(pthread_join(h->thread, NULL), 0);
    CHECK_EQ(unlink(h->path), 0);
}

/* What was verified is judged and compared, or nothing is. */
static void test_meanwhile(void) {
    kit a, b;
    held_file h;
    char folder[OMM_PATH_MAX], key[OMM_MINISIGN_PUBLIC_SIZE];
    char policy[] = "--policy", trust[] = "--trust";
    kit_temp_dir(folder);
    kit_make(&a, &(kit_options){.render = cli_render_adapter});
    kit_make(&b, &(kit_options){.render = cli_render_adapter,
                                .from = "latency_ms: 30",
                                .to = "latency_ms: 31"});
    omm_minisign_public(key, &a.bundle.public_key);
    for (int i = 0; i < 2; i++) {
        kit_write(i ? b.dir : a.dir, "measured/machine.json", omm_bytes_str("{}"));
        kit_reseal(i ? b.dir : a.dir, &a.bundle, true);
    }
    CHECK_EQ(run(cmd_compare, a.dir, b.dir, trust, key), CLI_EXIT_PASS);
    hold(&h, folder, key, a.dir, 1);
    CHECK_EQ(run(cmd_compare, a.dir, b.dir, trust, h.path), CLI_EXIT_RUNTIME);
    let_go(&h);
    kit_reseal(a.dir, &a.bundle, true);
    hold(&h, folder, "{}\n", a.dir, 0);
    CHECK_EQ(run(cmd_gate, a.dir, policy, h.path, NULL), CLI_EXIT_RUNTIME);
    let_go(&h);
    CHECK_OK(omm_dir_remove(folder));
    kit_remove(&a);
    kit_remove(&b);
}

int main(void) {
    test_meanwhile();
    test_render();
    test_render_patterns();
    test_render_cores();
    test_commands();
    test_coordinator();
    return 0;
}

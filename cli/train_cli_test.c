/* train and adapter as commands: two runs give equal files, generate takes the adapter, mistakes
 * exit with 2 or 3 and leave no file. */
#include "commands.h"
#include "options.h"

#include "omm/file.h"
#include "omm/gguf.h"
#include "omm/json.h"
#include "omm/lora.h"
#include "omm/peft.h"
#include "wrap_evaluate.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { ARGS_MAX = 40 };

static char s_model[512], s_data[128], s_out[128], s_again[128], s_bad[128], s_text[128];

/* Words of `line` separated by spaces; M, D, O, P, B and T stand for the paths above. */
static int run(int (*command)(int, char **), const char *line) {
    char text[512];
    char *argv[ARGS_MAX] = {0}, *rest = NULL;
    int argc = 0;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        CHECK(argc < ARGS_MAX - 1);
        if (strcmp(word, "M") == 0) word = s_model;
        if (strcmp(word, "D") == 0) word = s_data;
        if (strcmp(word, "O") == 0) word = s_out;
        if (strcmp(word, "P") == 0) word = s_again;
        if (strcmp(word, "B") == 0) word = s_bad;
        if (strcmp(word, "T") == 0) word = s_text;
        argv[argc++] = word;
    }
    return command(argc, argv);
}

static bool same_files(const char *a, const char *b) {
    omm_buf x, y;
    omm_buf_init(&x, 16 << 20);
    omm_buf_init(&y, 16 << 20);
    CHECK_OK(omm_file_read(&x, a));
    CHECK_OK(omm_file_read(&y, b));
    bool same = omm_bytes_equal(omm_buf_view(&x), omm_buf_view(&y));
    omm_buf_fini(&x);
    omm_buf_fini(&y);
    return same;
}

static void write_data(const char *dir) {
    static const char line[] =
        "{\"client\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": \"Who?\"}, "
        "{\"role\": "
        "\"assistant\", \"content\": \"Me.\"}]}\n"
        "{\"client\": \"b\", \"messages\": [{\"role\": \"user\", \"content\": \"What?\"}, "
        "{\"role\": \"assistant\", \"content\": \"That is it.\"}]}\n";
    const char *root = getenv("OMM_SOURCE_DIR");
    snprintf(s_model, sizeof s_model, "%s/scenarios/base/openmeshmind-tiny-F16.gguf",
             root ? root : ".");
    snprintf(s_data, sizeof s_data, "%s/data.jsonl", dir);
    snprintf(s_out, sizeof s_out, "%s/a.gguf", dir);
    snprintf(s_again, sizeof s_again, "%s/b.gguf", dir);
    snprintf(s_bad, sizeof s_bad, "%s/bad.jsonl", dir);
    CHECK_OK(omm_file_write_fast(s_data, omm_bytes_of(line, sizeof line - 1), 0644));
    CHECK_OK(omm_file_write_fast(s_bad, omm_bytes_of("{}\n", 3), 0644));
    static const char text[] = "One document.\n\nAnother one, longer.\n\nA third.\n";
    snprintf(s_text, sizeof s_text, "%s/text.txt", dir);
    CHECK_OK(omm_file_write_fast(s_text, omm_bytes_of(text, sizeof text - 1), 0644));
}

#define TRAIN "train -m M -d D --steps 2 --rank 2 --new-tokens 4 --dropout 0.1 "

#define SHORT "train -m M -d D --steps 2 "

#define TEXT "train -m M -d T --steps 2 --rank 2 --seq 16 "

/* A stream trains to the same file; what is held out is not trained on; options that contradict. */
static void data_options(void) {
    CHECK_EQ(run(cmd_train, TEXT "-o O --text-separator blank"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_train, TEXT "-o P --text-separator blank --stream --json"), CLI_EXIT_PASS);
    CHECK(same_files(s_out, s_again));
    wrap_seq_max = 16;
    CHECK_EQ(run(cmd_train, TEXT "-o P --text-separator blank --split 0.3"), CLI_EXIT_PASS);
    CHECK(!same_files(s_out, s_again));
    CHECK_EQ(run(cmd_train, TEXT "-o O --text-separator blank --split 0.3 --stream --json"),
             CLI_EXIT_PASS);
    CHECK(same_files(s_out, s_again));
    const unsigned two_runs = wrap_evaluations;
    CHECK(two_runs > 0);
    CHECK_EQ(run(cmd_train, TEXT "-o P --text-separator blank --split 0.3 --eval-every 1"),
             CLI_EXIT_PASS);
    CHECK(wrap_evaluations > two_runs + two_runs / 2); /* on the way, too */
    wrap_seq_max = 512;
    CHECK_EQ(run(cmd_train, TEXT "-o P"), CLI_EXIT_PASS); /* one document, other windows */
    CHECK(!same_files(s_out, s_again));
    CHECK_EQ(run(cmd_train, TRAIN "-o O --loss all"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --loss completion"), CLI_EXIT_PASS);
    CHECK(!same_files(s_out, s_again));
    CHECK_EQ(run(cmd_train, TRAIN "-o P --split 0.5 --split-by client"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --split 0.5 --split-by clock"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --split-by client"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --split 0.5 --eval D"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --split 1"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --format xml"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --loss none"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, TEXT "-o P --loss assistant"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, TEXT "-o P --stride 17"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --stride 1"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --text-separator blank"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --text-separator blank --eval T"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_train, TEXT "-o P --format chat"), CLI_EXIT_RUNTIME);
    CHECK_EQ(run(cmd_train, TEXT "-o P --format chat --skip-bad"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_data, "data check D -m M"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_data, "data check T D -m M --json"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_data, "data check D D -m M"), CLI_EXIT_FAILED); /* a leak */
    CHECK_EQ(run(cmd_data, "data check B -m M"), CLI_EXIT_FAILED);
    CHECK_EQ(run(cmd_data, "data check D"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_data, "data check D -m M --seq 0"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_data, "data check D -m M --seq 7"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_data, "data check D -m M --seq 32768"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_data, "data check D -m M --seq 32769"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_data, "data check D -m M --stride 1"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_data, "data check D T -m M --stride 1"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_data, "data peel D -m M"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_data, "data check M -m M"), CLI_EXIT_FAILED); /* no text */
}

/* An option changes what comes out, beside those that it needs. */
static void changes(const char *beside, const char *option) {
    char line[256];
    snprintf(line, sizeof line, "train -m M -d D --steps 3 --warmup 0 -o O %s", beside);
    CHECK_EQ(run(cmd_train, line), CLI_EXIT_PASS);
    snprintf(line, sizeof line, "train -m M -d D --steps 3 --warmup 0 -o P %s %s", beside, option);
    CHECK_EQ(run(cmd_train, line), CLI_EXIT_PASS);
    if (same_files(s_out, s_again)) check_failed(option, __FILE__, __LINE__); /* nothing */
    CHECK_OK(omm_file_remove(s_again));
}

/* Each optimiser and each of its options goes its own way; what does not exist or does not fit is refused. */
static void optimizers(void) {
    static const char *const pairs[][2] = {{"", "--optimizer sgd"},
                                           {"", "--optimizer adafactor"},
                                           {"", "--schedule constant"},
                                           {"", "--schedule linear"},
                                           {"", "--lr 0.002"},
                                           {"", "--beta2 0.5"},
                                           {"", "--clip 0.001"},
                                           {"", "--weight-decay 0.5"},
                                           {"", "--prox 10"},
                                           {"", "--rslora"},
                                           {"", "--lora-plus 16"},
                                           {"", "--dropout 0.1"},
                                           {"--optimizer sgd", "--momentum 0.9"},
                                           {"--optimizer sgd --momentum 0.9", "--nesterov"},
                                           {"--optimizer adafactor", "--relative-step"},
                                           {"--schedule linear", "--lr-min 0.5"},
                                           {"--full", "--optimizer galore"},
                                           {"--full --optimizer galore", "--galore-scale 0.5"},
                                           {"--full --optimizer galore", "--galore-rank 1"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) changes(pairs[i][0], pairs[i][1]);
    CHECK_EQ(run(cmd_train, TRAIN "-o O"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --optimizer lion"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --schedule steps"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --momentum 0.9"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --optimizer sgd --nesterov"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --relative-step"), CLI_EXIT_USAGE);
}

/* Rounded inputs in forward: of a quantised base alone, and a checkpoint knows. */
static void activations(const char *dir) {
    char line[512], base[160], saved[160];
    snprintf(base, sizeof base, "%s/q8_0.gguf", dir);
    snprintf(saved, sizeof saved, "%s/saved", dir);
    snprintf(line, sizeof line, "quantize M %s Q8_0", base);
    CHECK_EQ(run(cmd_quantize, line), CLI_EXIT_PASS);
    char was[sizeof s_model];
    memcpy(was, s_model, sizeof was);
    snprintf(s_model, sizeof s_model, "%s", base);
    changes("", "--activations q8");
    snprintf(line, sizeof line, TRAIN "-o P --activations q8 --checkpoint %s --dry-run", saved);
    CHECK_EQ(run(cmd_train, line), CLI_EXIT_PASS);
    snprintf(line, sizeof line, TRAIN "-o P --activations q8 --checkpoint %s", saved);
    CHECK_EQ(run(cmd_train, line), CLI_EXIT_PASS);
    snprintf(line, sizeof line, TRAIN "-o P --checkpoint %s --resume", saved);
    CHECK_EQ(run(cmd_train, line), CLI_EXIT_RUNTIME);
    CHECK(strstr(omm_err_sentence(), "another recipe (another activations)") != NULL);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --activations q4"), CLI_EXIT_USAGE);
    /* As a recipe says, but for what is said beside it. */
    static const char recipe[] =
        "{rank: 2, dropout: 0.1, steps: 2, warmup_steps: 5, activations: q8}\n";
    char file[160];
    snprintf(file, sizeof file, "%s/q8.yaml", dir);
    CHECK_OK(omm_file_write_fast(file, omm_bytes_of(recipe, sizeof recipe - 1), 0644));
    for (int q8 = 0; q8 < 2; q8++) {
        snprintf(line, sizeof line, TRAIN "-o O --activations %s", q8 ? "q8" : "f32");
        CHECK_EQ(run(cmd_train, line), CLI_EXIT_PASS);
        snprintf(line, sizeof line, "train -m M -d D --new-tokens 4 -o P --recipe %s%s", file,
                 q8 ? "" : " --activations f32");
        CHECK_EQ(run(cmd_train, line), CLI_EXIT_PASS);
        CHECK(same_files(s_out, s_again));
    }
    CHECK_OK(omm_file_remove(s_again));
    CHECK_OK(omm_file_remove(file));
    CHECK_EQ(run(cmd_train, "train -m M -d D --steps 2 -o P --full --activations q8"),
             CLI_EXIT_USAGE);
    memcpy(s_model, was, sizeof was);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --activations q8"), CLI_EXIT_USAGE); /* of F16 */
    CHECK(strstr(omm_err_sentence(), "activations is q8") != NULL);
    CHECK_OK(omm_file_remove(base));
}

static void refused(const char *options) {
    char line[256];
    snprintf(line, sizeof line, TRAIN "-o P %s", options);
    CHECK_EQ(run(cmd_train, line), CLI_EXIT_USAGE);
}

/* Patterns, frozen halves, cores; starts keep their shape; a recipe file says what options would. */
static void adapters(const char *dir) {
    static const char recipe[] =
        "targets: \"blk.1.*,q\"\nrank: 4\nalpha: 8\nrank_pattern: \"ffn_*=2\"\n"
        "parts: b\nsteps: 2\nwarmup_steps: 5\nlearning_rate: 0.01\n";
    char file[160], line[512];
    snprintf(file, sizeof file, "%s/recipe.yaml", dir);
    CHECK_OK(omm_file_write_fast(file, omm_bytes_of(recipe, sizeof recipe - 1), 0644));
    CHECK_EQ(run(cmd_train,
                 SHORT "-o O --targets blk.1.*,q --rank 4 --alpha 8 --rank-pattern ffn_*=2 "
                       "--parts b"),
             CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_adapter, "adapter show O --json"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_generate, "generate -m M --lora O -n 2 Hi"), CLI_EXIT_PASS);
    snprintf(line, sizeof line, SHORT "-o P --recipe %s", file);
    CHECK_EQ(run(cmd_train, line), CLI_EXIT_PASS);
    CHECK(same_files(s_out, s_again));
    snprintf(line, sizeof line, SHORT "-o P --recipe %s --parts ab", file);
    CHECK_EQ(run(cmd_train, line), CLI_EXIT_PASS);
    CHECK(!same_files(s_out, s_again));
    CHECK_EQ(run(cmd_train, SHORT "-o P --start O --parts core --lr 0"), CLI_EXIT_PASS);
    CHECK(same_files(s_out, s_again)); /* the identity between its halves */
    CHECK_EQ(run(cmd_train, SHORT "-o P --start O --start O --lr 0"), CLI_EXIT_PASS);
    CHECK_EQ(rename(s_again, file), 0);
    snprintf(line, sizeof line, SHORT "-o P --start %s=0.5 --start %s=0.3 --lr 0 --json", s_out,
             s_out);
    CHECK_EQ(run(cmd_train, line), CLI_EXIT_PASS);
    CHECK(!same_files(file, s_again)); /* the weights count */
    CHECK_EQ(run(cmd_train, SHORT "-o P --start O --start O --dry-run"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_train, SHORT "-o P --alpha-pattern v=3 --rslora"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_generate, "generate -m M --lora P -n 2 Hi"), CLI_EXIT_PASS);
    CHECK_OK(omm_file_remove(s_again));
    refused("--targets blk.99.*");
    refused("--targets attn_x");
    refused("--rank-pattern ffn_*");
    refused("--targets q --rank-pattern v=2");
    refused("--alpha-pattern q=0");
    refused("--parts c");
    refused("--recipe nowhere.yaml");
    refused("--full --parts core");
    CHECK_EQ(run(cmd_train, SHORT "-o P --start O --rank 3"), CLI_EXIT_USAGE);
    CHECK_OK(omm_file_remove(file));
    CHECK_EQ(run(cmd_train, TRAIN "-o O --threads 1 --eval D"), CLI_EXIT_PASS); /* as it was */
}

static bool has_tensor(const char *path, const char *name) {
    omm_gguf g;
    CHECK_OK(omm_gguf_open(&g, path));
    const bool has = omm_gguf_find_tensor(&g, name) != NULL;
    omm_gguf_close(&g);
    return has;
}

static omm_ggml_type type_of(const char *path, const char *name) {
    omm_gguf g;
    CHECK_OK(omm_gguf_open(&g, path));
    const omm_gguf_tensor *t = omm_gguf_find_tensor(&g, name);
    CHECK(t != NULL);
    const omm_ggml_type type = t->type;
    omm_gguf_close(&g);
    return type;
}

/* The adapter at O with q, k, v and gate, up apart, as a federation writes it, to P. */
static void write_apart(void) {
    omm_gguf g;
    omm_peft_base base;
    omm_lora lora;
    CHECK_OK(omm_gguf_open(&g, s_model));
    CHECK_OK(omm_peft_base_read(&base, &g));
    omm_gguf_close(&g);
    CHECK_OK(omm_lora_load_file(&lora, s_out, &base.shape));
    CHECK_OK(omm_lora_save_file(s_again, &lora));
    omm_lora_fini(&lora);
}

/* phi3: the adapter has the tensors of the model's file, starts, merges, and goes to PEFT and back. */
static void fused_model(const char *dir) {
    char ours[sizeof s_model], made[160], folder[160], line[512];
    snprintf(ours, sizeof ours, "%s", s_model);
    snprintf(s_model, sizeof s_model, "%s/phi3.gguf", dir);
    snprintf(made, sizeof made, "%s/made.gguf", dir);
    snprintf(folder, sizeof folder, "%s/peft", dir);
    CHECK_EQ(run(cmd_synth, "synth tiny-phi3 M --seed 3"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_train, SHORT "-o O --rank 3 --alpha 5 --lr 0.01"), CLI_EXIT_PASS);
    CHECK(has_tensor(s_out, "blk.1.attn_qkv.weight.lora_b"));
    CHECK(!has_tensor(s_out, "blk.1.attn_q.weight.lora_b"));
    CHECK(!has_tensor(s_out, "blk.1.ffn_gate.weight.lora_b"));
    CHECK_EQ(run(cmd_train, SHORT "-o P --start O --parts core --lr 0"), CLI_EXIT_PASS);
    CHECK(same_files(s_out, s_again));
    CHECK_EQ(run(cmd_adapter, "adapter show O --tensors"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_adapter, "adapter show O --json"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_generate, "generate -m M --lora O -n 2 Hi"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_adapter, "adapter merge --lora O -o P"), CLI_EXIT_PASS);
    CHECK(same_files(s_out, s_again));
    CHECK_EQ(run(cmd_adapter, "adapter merge -m M --lora O -o P"), CLI_EXIT_PASS);
    CHECK(has_tensor(s_again, "blk.0.attn_qkv.weight") && !same_files(s_model, s_again));
    snprintf(line, sizeof line, "adapter export O -m M -o %s", folder);
    CHECK_EQ(run(cmd_adapter, line), CLI_EXIT_PASS);
    snprintf(line, sizeof line, "adapter show %s", folder);
    CHECK_EQ(run(cmd_adapter, line), CLI_EXIT_PASS);
    snprintf(line, sizeof line, "adapter import %s -m M -o P", folder);
    CHECK_EQ(run(cmd_adapter, line), CLI_EXIT_PASS);
    CHECK(same_files(s_out, s_again));
    write_apart();
    CHECK(!same_files(s_out, s_again));
    CHECK_EQ(run(cmd_generate, "generate -m M --lora P -n 2 Hi"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_adapter, "adapter merge --lora O --lora P -o D"), CLI_EXIT_RUNTIME);
    snprintf(line, sizeof line, "adapter import P -m M -o %s", made);
    CHECK_EQ(run(cmd_adapter, line), CLI_EXIT_PASS);
    CHECK(same_files(s_out, made));
    /* Ranks that do not go together exactly, and those that are too large to go together. */
    CHECK_EQ(run(cmd_train, SHORT "-o P --rank 3 --rank-pattern k=4"), CLI_EXIT_PASS);
    CHECK(has_tensor(s_again, "blk.1.attn_qkv.weight.lora_b"));
    CHECK_EQ(run(cmd_train, SHORT "-o O --rank 256 --targets blk.0.attn_?"), CLI_EXIT_PASS);
    CHECK(has_tensor(s_out, "blk.0.attn_qkv.weight.lora_b"));
    CHECK_EQ(run(cmd_train, SHORT "-o P --start O --start O"), CLI_EXIT_PASS);
    CHECK(has_tensor(s_again, "blk.0.attn_q.weight.lora_b"));
    CHECK_EQ(run(cmd_generate, "generate -m M --lora P -n 2 Hi"), CLI_EXIT_PASS);
    CHECK_OK(omm_file_remove(s_again));
    CHECK_OK(omm_file_remove(made));
    CHECK_OK(omm_file_remove(s_model));
    CHECK_OK(omm_dir_remove(folder));
    snprintf(s_model, sizeof s_model, "%s", ours);
    CHECK_EQ(run(cmd_train, TRAIN "-o O --threads 1 --eval D"), CLI_EXIT_PASS); /* as it was */
}

/* Gives the file at M factors for up to 32 positions and for more. */
static void add_longrope(void) {
    static const char *const names[] = {"rope_factors_short.weight", "rope_factors_long.weight"};
    float factors[2][32];
    const uint64_t dims[1] = {32};
    omm_gguf g;
    omm_gguf_writer w;
    omm_buf file;
    omm_buf_init(&file, 16 << 20);
    omm_gguf_writer_init(&w);
    CHECK_OK(omm_gguf_open(&g, s_model));
    for (size_t i = 0; i < g.kv_count; i++) omm_gguf_put_kv(&w, &g.kvs[i]);
    omm_gguf_put_u32(&w, "phi3.rope.scaling.original_context_length", 32);
    for (size_t i = 0; i < g.tensor_count; i++) {
        const omm_gguf_tensor *t = &g.tensors[i];
        omm_gguf_put_tensor(&w, t->name, (uint32_t)t->type, t->n_dims, t->dims, t->data);
    }
    for (size_t side = 0; side < 2; side++) {
        for (size_t i = 0; i < 32; i++) factors[side][i] = 1.0f + (float)(side * i);
        omm_gguf_put_tensor(&w, names[side], OMM_GGML_F32, 1, dims,
                            omm_bytes_of(factors[side], sizeof factors[side]));
    }
    CHECK_OK(omm_gguf_writer_finish(&file, &w));
    omm_gguf_writer_fini(&w);
    omm_gguf_close(&g);
    CHECK_OK(omm_file_write_fast(s_model, omm_buf_view(&file), 0644));
    omm_buf_fini(&file);
}

/* Does a run of one step, of examples of up to `seq` tokens, say `want` and nothing else of longrope? */
static void check_says(const char *dir, unsigned seq, const char *want) {
    char line[256], path[160];
    const int kept = dup(STDERR_FILENO);
    omm_buf said;
    omm_buf_init(&said, 1 << 20);
    snprintf(path, sizeof path, "%s/said", dir);
    CHECK(kept >= 0 && freopen(path, "w", stderr));
    snprintf(line, sizeof line, "train -m M -d T -o P --rank 1 --steps 1 --seq %u", seq);
    const int rc = run(cmd_train, line);
    (void)fflush(stderr);
    CHECK(dup2(kept, STDERR_FILENO) >= 0);
    (void)close(kept);
    CHECK_EQ(rc, CLI_EXIT_PASS);
    CHECK_OK(omm_file_read(&said, path));
    CHECK_OK(omm_buf_append(&said, "", 1));
    const char *at = strstr((const char *)said.data, "longrope");
    if (!want) CHECK(!at);
    if (want) CHECK(at && strncmp(at, want, strlen(want)) == 0 && !strstr(at + 1, "longrope"));
    omm_buf_fini(&said);
    CHECK_OK(omm_file_remove(path));
    CHECK_OK(omm_file_remove(s_again));
}

/* Which factors a model of two trains with follows from --seq, and is said. */
static void longrope(const char *dir) {
    char ours[sizeof s_model];
    snprintf(ours, sizeof ours, "%s", s_model);
    snprintf(s_model, sizeof s_model, "%s/long.gguf", dir);
    CHECK_EQ(run(cmd_synth, "synth tiny-phi3 M"), CLI_EXIT_PASS);
    check_says(dir, 33, NULL);
    add_longrope();
    check_says(dir, 32,
               "longrope: the short factors, as --seq 32 is within the original context of 32; to "
               "use what is trained as it was trained, give generate, chat and perplexity -c up "
               "to 32\n");
    check_says(dir, 33,
               "longrope: the long factors, as --seq 33 is above the original context of 32; to "
               "use what is trained as it was trained, give generate, chat and perplexity -c above "
               "32\n");
    CHECK_OK(omm_file_remove(s_model));
    snprintf(s_model, sizeof s_model, "%s", ours);
}

/* What is read is never written over: the model and the data are as they were. */
static void outputs(void) {
    omm_map model;
    CHECK_OK(omm_map_open(&model, s_model));
    CHECK_OK(omm_file_write_fast(s_again, model.view, 0644));
    CHECK_EQ(run(cmd_train, "train -m P -d D -o P"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, "train --full -m P -d D -o P"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, "train -m M -d D --eval P -o P"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, "train -m M -d P -o P"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_adapter, "adapter merge -m P --lora O -o P"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_adapter, "adapter import D -m P -o P"), CLI_EXIT_USAGE);
    omm_map after;
    CHECK_OK(omm_map_open(&after, s_again));
    CHECK(omm_bytes_equal(model.view, after.view));
    omm_map_close(&after);
    omm_map_close(&model);
    CHECK_OK(omm_file_remove(s_again));
    CHECK_EQ(run(cmd_train, "train -m M -d D -o P --checkpoint P"),
             CLI_EXIT_USAGE); /* not there yet */
}

/* Room for the adapter is taken before the first step, and given back at the end. */
static void room(void) {
    struct rlimit before;
    (void)signal(SIGXFSZ, SIG_IGN);
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit limit = {32 << 10, before.rlim_max};
    CHECK_EQ(run(cmd_train, SHORT "-o P --rank 1 --targets q"), CLI_EXIT_PASS);
    uint64_t size = 0;
    CHECK_OK(omm_file_size(&size, s_again));
    CHECK(size < limit.rlim_cur); /* so that not to write it is what would be refused */
    CHECK_OK(omm_file_remove(s_again));
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK_EQ(run(cmd_train, SHORT "-o P --rank 1 --targets q"), CLI_EXIT_RUNTIME);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    CHECK(!omm_file_exists(s_again));
}

/* The norm of what two adapters differ by, over that of the first. */
static double difference(const char *one, const char *other) {
    omm_gguf g;
    omm_lora_shape shape = {0};
    omm_lora a, b;
    double change = 0.0, all = 0.0;
    CHECK_OK(omm_gguf_open(&g, one));
    CHECK_OK(omm_lora_claim_shape(&shape, &g));
    omm_gguf_close(&g);
    CHECK_OK(omm_lora_load_file(&a, one, &shape));
    CHECK_OK(omm_lora_load_file(&b, other, &shape));
    CHECK_EQ(a.value_count, b.value_count);
    for (size_t i = 0; i < a.value_count; i++) {
        const double d = (double)b.values[i] - (double)a.values[i];
        change += d * d;
        all += (double)a.values[i] * (double)a.values[i];
    }
    omm_lora_fini(&a);
    omm_lora_fini(&b);
    return sqrt(change / all);
}

/* --- energy ---------------------------------------------------------------------------------- */

enum { COUNTER_RANGE_UJ = 1000000, COUNTER_STEP_UJ = 600000 };
static char s_counters[160];
static unsigned s_counter_uj;

static void write_counter(const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/intel-rapl:0/%s", s_counters, name);
    CHECK_OK(omm_file_write_fast(path, omm_bytes_str(text), 0644));
}

static void set_counter(void) {
    char text[32];
    snprintf(text, sizeof text, "%u\n", s_counter_uj);
    write_counter("energy_uj", text);
}

/* Twice 0.6 J of a counter that begins again after 1 J: looked at once in all of it, one of them is lost. */
static void use_energy(const omm_eval_options *options) {
    CHECK(options->progress);
    for (int i = 0; i < 2; i++) {
        s_counter_uj = (s_counter_uj + COUNTER_STEP_UJ) % COUNTER_RANGE_UJ;
        set_counter();
        options->progress(options->ud, 0, 1);
    }
}

/* An evaluation, on the way too, may take longer than a counter goes without beginning again. */
static void energy_while_judged(const char *dir) {
    char path[256], line[256];
    json_t *report = NULL;
    omm_buf text;
    omm_buf_init(&text, 1 << 20);
    snprintf(s_counters, sizeof s_counters, "%s/rapl", dir);
    snprintf(path, sizeof path, "%s/intel-rapl:0", s_counters);
    CHECK_OK(omm_dir_make(path));
    write_counter("name", "package-0\n");
    write_counter("max_energy_range_uj", "1000000\n");
    set_counter();
    CHECK_EQ(setenv("OMM_ENERGY_FROM", s_counters, 1), 0);
    wrap_during = use_energy;
    snprintf(line, sizeof line, TRAIN "-o O --eval D --eval-every 1 --report %s/energy", dir);
    CHECK_EQ(run(cmd_train, line), CLI_EXIT_PASS);
    wrap_during = NULL;
    CHECK_EQ(unsetenv("OMM_ENERGY_FROM"), 0);
    snprintf(path, sizeof path, "%s/energy/report.json", dir);
    CHECK_OK(omm_file_read(&text, path));
    CHECK_OK(omm_json_parse(&report, omm_buf_view(&text), path));
    const double joules = json_real_value(json_object_get(report, "energy_j"));
    CHECK(fabs(joules - 5 * 1.2) < 1e-9); /* before, of the course at steps 0, 1, 2, and after */
    json_decref(report);
    omm_buf_fini(&text);
}

/* An adapter in 16 bits or 8 is half as large at most and close to it, has the values of one in 32 that is made of
 * it, and is one of itself. */
static void narrow_adapter(const char *dir, const char *type, omm_ggml_type stored) {
    char line[512], wide[160], first[160];
    uint64_t size = 0, narrow = 0;
    snprintf(wide, sizeof wide, "%s/wide.gguf", dir);
    snprintf(first, sizeof first, "%s/narrow.gguf", dir);
    snprintf(line, sizeof line, "adapter merge --lora O -o P --type %s --json", type);
    CHECK_EQ(run(cmd_adapter, line), CLI_EXIT_PASS);
    CHECK_OK(omm_file_size(&size, s_out));
    CHECK_OK(omm_file_size(&narrow, s_again));
    CHECK(narrow < size * (stored == OMM_GGML_Q8_0 ? 45 : 60) / 100);
    CHECK_EQ(type_of(s_again, "blk.0.attn_q.weight.lora_a"), stored);
    CHECK(difference(s_out, s_again) > 0.0 && difference(s_out, s_again) < 0.01);
    CHECK_EQ(run(cmd_generate, "generate -m M --lora P -n 2 Hi"), CLI_EXIT_PASS);
    snprintf(line, sizeof line, "adapter merge --lora P -o %s", wide);
    CHECK_EQ(run(cmd_adapter, line), CLI_EXIT_PASS);
    CHECK(!same_files(s_out, wide));
    CHECK(difference(s_again, wide) == 0.0);
    snprintf(line, sizeof line, "adapter merge --lora %s -o %s --type %s", wide, first, type);
    CHECK_EQ(run(cmd_adapter, line), CLI_EXIT_PASS);
    CHECK(same_files(first, s_again));
    CHECK_OK(omm_file_remove(s_again));
}

int main(void) {
    char dir[] = "/tmp/omm-train-cli-XXXXXX";
    CHECK(mkdtemp(dir));
    write_data(dir);
    CHECK_EQ(run(cmd_train, TRAIN "-o O --threads 1 --eval D"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --threads 3 --micro 1 --json --eval D"), CLI_EXIT_PASS);
    CHECK(same_files(s_out, s_again));
    CHECK_EQ(run(cmd_train, TRAIN "-o P --seed 2"), CLI_EXIT_PASS);
    CHECK(!same_files(s_out, s_again));
    CHECK_EQ(run(cmd_train, TRAIN "-o P --clients b --start O"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_adapter, "adapter show O"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_adapter, "adapter show O --json"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_generate, "generate -m M --lora O -n 2 Hi"), CLI_EXIT_PASS);
    data_options();
    optimizers();
    activations(dir);
    adapters(dir);
    fused_model(dir);
    longrope(dir);
    outputs();
    room();
    energy_while_judged(dir);
    CHECK_EQ(run(cmd_adapter, "adapter show O --tensors"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_adapter, "adapter merge --lora O -o P"), CLI_EXIT_PASS); /* of one: itself */
    CHECK(same_files(s_out, s_again));
    CHECK_EQ(run(cmd_adapter, "adapter merge --lora O --lora O -o P --json"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_adapter, "adapter show P"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_adapter, "adapter merge -m M --lora O -o P"), CLI_EXIT_PASS);
    CHECK_EQ(type_of(s_again, "blk.1.attn_q.weight"), OMM_GGML_F16);
    CHECK_EQ(run(cmd_generate, "generate -m P -n 2 Hi"), CLI_EXIT_PASS);
    CHECK_EQ(run(cmd_adapter, "adapter merge -m M --lora O -o P --type Q8_0 --json"),
             CLI_EXIT_PASS);
    CHECK_EQ(type_of(s_again, "blk.1.attn_q.weight"), OMM_GGML_Q8_0);
    CHECK_EQ(type_of(s_again, "token_embd.weight"), OMM_GGML_F16);
    CHECK_EQ(run(cmd_generate, "generate -m P -n 2 Hi"), CLI_EXIT_PASS);
    CHECK_OK(omm_file_remove(s_again));
    CHECK_EQ(run(cmd_adapter, "adapter merge -m M --lora O -o P --type Q9"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_adapter, "adapter merge --lora O -o P --type Q4_0"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_adapter, "adapter merge --lora O -o P --type F17"), CLI_EXIT_USAGE);
    CHECK(!omm_file_exists(s_again));
    narrow_adapter(dir, "F16", OMM_GGML_F16);
    narrow_adapter(dir, "BF16", OMM_GGML_BF16);
    narrow_adapter(dir, "Q8_0", OMM_GGML_Q8_0);
    CHECK_EQ(run(cmd_adapter, "adapter merge -m M --lora M -o P"), CLI_EXIT_RUNTIME);
    CHECK_EQ(run(cmd_adapter, "adapter merge -o P"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_adapter, "adapter merge --lora O"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_adapter, "adapter merge -o P --lora"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_adapter, "adapter merge -o P --lora=O=x"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_adapter, "adapter merge -m M --lora O=0 -o P"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_adapter, "adapter merge -m M --lora O=inf -o P"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_generate, "generate -m M --lora O=nan -n 2 Hi"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_adapter, "adapter import D -m M"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_adapter, "adapter import D -m M -o P"), CLI_EXIT_RUNTIME); /* no folder */
    CHECK_EQ(run(cmd_adapter, "adapter import nowhere -m M -o P"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_adapter, "adapter export O -o P"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_adapter, "adapter export D -m M -o P"), CLI_EXIT_RUNTIME);
    CHECK_EQ(run(cmd_adapter, "adapter"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, "train -m M -d D"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --threads 0"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --targets q,x"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --alpha 0"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --clients nobody"), CLI_EXIT_USAGE);
    CHECK_EQ(run(cmd_train, TRAIN "-o P --start D"), CLI_EXIT_RUNTIME);
    CHECK_EQ(run(cmd_train, "train -m M -d B -o P"), CLI_EXIT_RUNTIME);
    CHECK_EQ(run(cmd_train, "train -m D -d D -o P"), CLI_EXIT_RUNTIME);
    CHECK_EQ(run(cmd_adapter, "adapter show M"), CLI_EXIT_RUNTIME);
    CHECK_EQ(run(cmd_adapter, "adapter hide O"), CLI_EXIT_USAGE);
    CHECK(!omm_file_exists(s_again));
    CHECK_OK(omm_dir_remove(dir));
    return 0;
}

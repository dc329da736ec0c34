/* generate_cli_test.c - generate, logits and perplexity, called as functions: exit codes for good
 * and bad use, and one number each that is known. */
#include "commands.h"
#include "options.h"

#include "omm/file.h"
#include "omm_test.h"

#include <string.h>

static char s_base[OMM_PATH_MAX], s_text[OMM_PATH_MAX];

/* Commands get writable arguments, as from main. */
static int run(int (*command)(int, char **), size_t count, const char *const *words) {
    static char copies[24][OMM_PATH_MAX];
    char *argv[25] = {0};
    CHECK(count <= 24);
    for (size_t i = 0; i < count; i++) {
        CHECK(snprintf(copies[i], sizeof copies[i], "%s", words[i]) < (int)sizeof copies[i]);
        argv[i] = copies[i];
    }
    return command((int)count, argv);
}

#define RUN(command, ...)                                                                          \
    run(command, sizeof((const char *[]){__VA_ARGS__}) / sizeof(const char *),                     \
        (const char *[]){__VA_ARGS__})

static void logits(void) {
    char out[] = "logits_test.f32";
    CHECK_EQ(RUN(cmd_logits, "logits", "-m", s_base, "--ids", "258,9,11", "-o", out, "-t", "1"), 0);
    uint64_t size = 0;
    CHECK_OK(omm_file_size(&size, out));
    CHECK_EQ(size, 3 * 2048 * 4);
    CHECK_OK(omm_file_remove(out));
    CHECK_EQ(RUN(cmd_logits, "logits", "-m", s_base), CLI_EXIT_USAGE);
    CHECK_EQ(RUN(cmd_logits, "logits", "-m", s_base, "--ids", "1,,2"), CLI_EXIT_USAGE);
    CHECK_EQ(RUN(cmd_logits, "logits", "-m", s_base, "--ids", "-1"), CLI_EXIT_USAGE);
    CHECK_EQ(RUN(cmd_logits, "logits", "-m", s_base, "--ids", "4294967296"), CLI_EXIT_USAGE);
    CHECK_EQ(RUN(cmd_logits, "logits", "-m", s_base, "--ids", "2048"), CLI_EXIT_USAGE);
    CHECK_EQ(RUN(cmd_logits, "logits", "-m", "no such file", "--ids", "1"), CLI_EXIT_USAGE);
    CHECK_EQ(RUN(cmd_logits, "logits", "-m", s_text, "--ids", "1"), CLI_EXIT_RUNTIME);
    CHECK_EQ(RUN(cmd_logits, "logits", "-m", s_base, "--ids", "1", "--kv", "q4"), CLI_EXIT_USAGE);
    CHECK_EQ(RUN(cmd_logits, "logits", "-m", s_base, "--ids", "1", "-c", "513"), CLI_EXIT_USAGE);
    CHECK_EQ(RUN(cmd_logits, "logits", "-m", s_base, "--ids", "1", "-t", "257"), CLI_EXIT_USAGE);
}

static void generate(void) {
    CHECK_EQ(RUN(cmd_generate, "generate", "-m", s_base, "-n", "8", "-t", "1", "--json", "Once"),
             0);
    CHECK_EQ(RUN(cmd_generate, "generate", "-m", s_base, "-n", "8", "--chat", "--temp", "0.7",
                 "--top-p", "0.9", "--top-k", "40", "--seed", "2", "--system", "Be brief.", "Hi"),
             0);
    CHECK_EQ(RUN(cmd_generate, "generate", "-m", s_base), CLI_EXIT_USAGE);
    CHECK_EQ(RUN(cmd_generate, "generate", "-m", s_base, ""), CLI_EXIT_USAGE);
    CHECK_EQ(RUN(cmd_generate, "generate", "-m", s_base, "--temp", "-1", "x"), CLI_EXIT_USAGE);
    CHECK_EQ(RUN(cmd_generate, "generate", "-m", s_base, "--top-p", "0", "x"), CLI_EXIT_USAGE);
    CHECK_EQ(RUN(cmd_generate, "generate", "-m", s_base, "--activations", "f16", "x"),
             CLI_EXIT_USAGE);
    CHECK_EQ(RUN(cmd_generate, "generate", "-m", s_base, "--lora", s_base, "x"), CLI_EXIT_RUNTIME);
}

static void forms(void) {
    char schema[] = "generate_test.json";
    const char *cat = "{\"properties\": {\"cat\": {\"enum\": [\"tom\", \"felix\"]}}, \"required\": "
                      "[\"cat\"], \"additionalProperties\": false}";
    CHECK_OK(omm_file_write_fast(schema, omm_bytes_str(cat), 0644));
    CHECK_EQ(RUN(cmd_generate, "generate", "-m", s_base, "--json-schema", schema, "--lookup", "A"),
             0);
    CHECK_EQ(RUN(cmd_generate, "generate", "-m", s_base, "--chat", "--json-schema", schema,
                 "--draft", s_base, "A"),
             0);
    CHECK_EQ(RUN(cmd_generate, "generate", "-m", s_base, "--json-object", "-n", "9", "A"), 0);
    CHECK_EQ(
        RUN(cmd_generate, "generate", "-m", s_base, "--json-object", "--json-schema", schema, "A"),
        CLI_EXIT_USAGE);
    CHECK_OK(omm_file_write_fast(schema, omm_bytes_str("{\"not\": {}}"), 0644));
    CHECK_EQ(RUN(cmd_generate, "generate", "-m", "no such file", "--json-schema", schema, "A"),
             CLI_EXIT_RUNTIME); /* said before a model is looked for */
    CHECK_OK(omm_file_write_fast(schema, omm_bytes_str("{\"a\""), 0644));
    CHECK_EQ(RUN(cmd_generate, "generate", "-m", s_base, "--json-schema", schema, "A"),
             CLI_EXIT_RUNTIME);
    CHECK_OK(omm_file_remove(schema));
    CHECK_EQ(RUN(cmd_generate, "generate", "-m", s_base, "--json-schema", schema, "A"),
             CLI_EXIT_USAGE);
}

static void perplexity(void) {
    char small[] = "perplexity_test.txt";
    const char *text = "The crow said, \"I was wrong about you.\"<|endoftext|>A dog ran.";
    CHECK_OK(omm_file_write_fast(small, omm_bytes_str(text), 0644));
    CHECK_EQ(RUN(cmd_perplexity, "perplexity", "-m", s_base, "-f", small, "-t", "1"), 0);
    CHECK_EQ(RUN(cmd_perplexity, "perplexity", "-m", s_base, "-f", small, "--separator",
                 "<|endoftext|>", "--window", "8", "--json"),
             0);
    CHECK_EQ(RUN(cmd_perplexity, "perplexity", "-m", s_base, "-f", small, "--separator", "<none>"),
             CLI_EXIT_USAGE);
    CHECK_EQ(RUN(cmd_perplexity, "perplexity", "-m", s_base, "-f", small, "--window", "1"),
             CLI_EXIT_USAGE);
    CHECK_EQ(RUN(cmd_perplexity, "perplexity", "-m", s_base), CLI_EXIT_USAGE);
    CHECK_OK(omm_file_write_fast(small, omm_bytes_str(""), 0644));
    CHECK_EQ(RUN(cmd_perplexity, "perplexity", "-m", s_base, "-f", small), CLI_EXIT_RUNTIME);
    CHECK_OK(omm_file_remove(small));
}

int main(void) {
    const char *root = getenv("OMM_SOURCE_DIR");
    CHECK(root != NULL);
    CHECK_OK(omm_path_join(s_base, root, "scenarios/base/openmeshmind-tiny-F16.gguf"));
    CHECK_OK(omm_path_join(s_text, root, "scenarios/base/valid.txt"));
    logits();
    generate();
    forms();
    perplexity();
    return 0;
}

#include "options.h"

#include "omm/config.h"
#include "omm/file.h"
#include "omm/gguf.h"
#include "omm/nearest.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const cli_option *find(const cli_option *options, const char *name, size_t size) {
    for (const cli_option *o = options; o->name; o++)
        if (strlen(o->name) == size && memcmp(o->name, name, size) == 0) return o;
    return NULL;
}

static const cli_option *find_letter(const cli_option *options, char letter) {
    for (const cli_option *o = options; o->name; o++)
        if (o->letter && o->letter == letter) return o;
    return NULL;
}

static bool parse_u64(uint64_t *out, const char *text, uint64_t max) {
    if (text[0] < '0' || text[0] > '9') return false;
    char *end = NULL;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno || *end || v > max) return false;
    *out = v;
    return true;
}

static bool parse_f32(float *out, const char *text) {
    char *end = NULL;
    errno = 0;
    float v = strtof(text, &end);
    if (end == text || *end || !isfinite(v)) return false;
    *out = v;
    return true;
}

static bool append(cli_list *list, const char *text) {
    if (list->count == CLI_LIST_MAX) return false;
    list->items[list->count++] = text;
    return true;
}

static bool is_of_path(const cli_option *o) {
    const char *value = o->value ? o->value : "";
    return o->kind == CLI_STR && (strcmp(value, "FILE") == 0 || strcmp(value, "DIR") == 0 ||
                                  strcmp(value, "FOLDER") == 0);
}

static bool store(const cli_option *o, const char *text) {
    uint64_t v = 0;
    switch (o->kind) {
    case CLI_FLAG:
    case CLI_KEYS: return false;
    case CLI_STR: *(const char **)o->out = text; return text[0] || !is_of_path(o);
    case CLI_U32:
        if (!parse_u64(&v, text, UINT32_MAX)) return false;
        *(uint32_t *)o->out = (uint32_t)v;
        return true;
    case CLI_COUNT:
        if (!parse_u64(&v, text, UINT32_MAX) || v == 0) return false;
        *(uint32_t *)o->out = (uint32_t)v;
        return true;
    case CLI_U64:
        if (!parse_u64(&v, text, INT64_MAX)) return false;
        *(uint64_t *)o->out = v;
        return true;
    case CLI_F32: return parse_f32(o->out, text);
    case CLI_LIST: return append(o->out, text);
    }
    return false;
}

/* ---- help ---- */

#define HELP_COLUMNS 80 /* of a terminal that nobody has widened */
#define HELP_COLUMN 31  /* where what an option does begins */

/* Where the second column of a table's row begins: after its first gap of two spaces.  0: it is no row. */
static int hang_of(const char *line) {
    const size_t lead = strspn(line, " ");
    const size_t size = strcspn(line, "\n");
    for (size_t i = lead; lead > 0 && i + 1 < size; i++)
        if (line[i] == ' ' && line[i + 1] == ' ') return (int)(i + strspn(line + i, " "));
    return (int)lead;
}

/* `text` from column `at`; further lines begin at `indent`.  A line end in it is kept before another one and before spaces,
 * which are a row of a table; else it is a space. */
static void print_wrapped(const char *text, int at, int indent) {
    int hang = 0;
    while (*text) {
        const bool is_joined =
            hang == 0 && at > indent && *text == '\n' && text[1] && !strchr("\n ", text[1]);
        if (*text == '\n' && !is_joined) {
            printf("\n%*s", text[1] == '\n' ? 0 : indent, "");
            hang = hang_of(++text);
            at = indent;
            continue;
        }
        const int spaces = is_joined ? 1 : (int)strspn(text, " ");
        const int word = (int)strcspn(text + spaces, " \n");
        const bool is_full = at > indent + hang && at + spaces + word > HELP_COLUMNS;
        if (is_full) printf("\n%*s", indent + hang, "");
        printf("%*s%.*s", is_full ? 0 : spaces, "", word, text + spaces);
        at = (is_full ? indent + hang : at + spaces) + word;
        text += spaces + word;
    }
    putchar('\n');
}

/* "-m, --model FILE" or "--model FILE". */
static void name_option(char out[64], const cli_option *o) {
    char letter[8] = "";
    if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(out, 64, "%s--%s%s%s", letter, o->name, o->value ? " " : "", o->value ? o->value : "");
}

static void print_help(const cli_option *options, const char *usage, const char *summary) {
    printf("usage: ");
    print_wrapped(usage, printf("meshmind ") + 7, 16);
    putchar('\n');
    print_wrapped(summary, 0, 0);
    putchar('\n');
    for (const cli_option *o = options; o->name; o++) {
        char left[64];
        name_option(left, o);
        print_wrapped(o->help, printf("  %-28s ", left), HELP_COLUMN);
    }
    printf("  %-28s %s\n", "-h, --help", "this text");
}

/* How many characters of `usage` are the command's own words: those before what is to be filled in. */
static int command_size(const char *usage) {
    static const char own[] = "abcdefghijklmnopqrstuvwxyz";
    int size = 0;
    for (size_t at = 0; usage[at];) {
        const size_t word = strspn(usage + at, own);
        if (word == 0 || (usage[at + word] != ' ' && usage[at + word] != '\0')) break;
        size = (int)(at + word);
        at += word + (usage[at + word] == ' ');
    }
    return size;
}

static int complain(const char *usage, const char *what, const char *arg) {
    fprintf(stderr, "meshmind %.*s: %s%s%s%s\nusage: meshmind %s (see --help)\n",
            command_size(usage), usage, what, arg ? " '" : "", arg ? arg : "", arg ? "'" : "",
            usage);
    return CLI_EXIT_USAGE;
}

static const char *accepts(cli_kind kind) {
    if (kind == CLI_F32) return "accepted: a finite number";
    if (kind == CLI_LIST) return "accepted: at most 32 of them";
    if (kind == CLI_STR)
        return "accepted: a path"; /* a variable of the shell that nobody has set */
    if (kind == CLI_COUNT) return "accepted: a whole number from 1 to 4294967295";
    return kind == CLI_U32 ? "accepted: a whole number from 0 to 4294967295"
                           : "accepted: a whole number from 0 to 9223372036854775807";
}

/* `arg` as it was typed: "--name" or "--name=value". */
static int complain_unknown(const char *usage, const cli_option *options, const char *arg) {
    char name[64], what[160] = "unknown option";
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(arg, "="), arg);
    if (strncmp(name, "--", 2) == 0 && strlen(name) < sizeof name - 1) {
        omm_nearest near = omm_nearest_begin(name + 2);
        for (const cli_option *o = options; o->name; o++) omm_nearest_offer(&near, o->name);
        if (near.name)
            (void)snprintf(what, sizeof what, "did you mean --%s? unknown option", near.name);
    }
    return complain(usage, what, arg);
}

static int complain_value(const char *usage, const cli_option *o, const char *value) {
    char name[64];
    name_option(name, o);
    fprintf(stderr, "meshmind %.*s: %s: '%s'; %s\nusage: meshmind %s (see --help)\n",
            command_size(usage), usage, name, value, accepts(o->kind), usage);
    return CLI_EXIT_USAGE;
}

/* ---- parse ---- */

static bool is_help(const char *arg, const cli_option *options) {
    return strcmp(arg, "--help") == 0 || (strcmp(arg, "-h") == 0 && !find_letter(options, 'h'));
}

enum { OPTIONS_MAX = 128 };

/* What a command is about (a file, a key, a text, a list in one argument), not how it is done. */
static bool is_subject(const cli_option *o) {
    static const char *const values[] = {"KEY", "HEX",  "TEXT", "NODE",
                                         "URL", "LIST", "A,B",  "1,2,3"};
    for (size_t i = 0; o->kind == CLI_STR && o->value && i < sizeof values / sizeof values[0]; i++)
        if (strcmp(o->value, values[i]) == 0) return true;
    return is_of_path(o);
}

/* Of two subjects one would be left out in silence; a setting that is said again is changed, as scripts that add to a
 * command line do. */
static bool is_given(const cli_option *o, bool *taken) {
    const bool before = *taken && is_subject(o);
    *taken = true;
    return before;
}

/* Every key of a file with its range, its default and what it means. */
static int print_keys(const omm_config_field *fields) {
    omm_buf text;
    omm_buf_init(&text, 1 << 20);
    const omm_err err = omm_config_describe(&text, fields);
    if (err == OMM_OK)
        fwrite(text.data, 1, text.size, stdout);
    else
        fprintf(stderr, "meshmind: %s\n", omm_err_sentence());
    omm_buf_fini(&text);
    return err == OMM_OK ? CLI_EXIT_PASS : CLI_EXIT_RUNTIME;
}

/* One option at argv[*i]; moves *i past its value.  Returns -1 or an exit code. */
static int take(int *i, bool taken[OPTIONS_MAX], int argc, char **argv, const cli_option *options,
                const char *usage) {
    const char *arg = argv[*i];
    const cli_option *o = NULL;
    const char *value = NULL;
    if (arg[1] == '-') {
        const char *eq = strchr(arg, '=');
        o = find(options, arg + 2, eq ? (size_t)(eq - arg - 2) : strlen(arg + 2));
        value = eq ? eq + 1 : NULL;
    } else {
        o = find_letter(options, arg[1]);
        value = arg[2] ? arg + 2 : NULL;
    }
    if (!o) return complain_unknown(usage, options, arg);
    OMM_ASSERT(o - options < OPTIONS_MAX);
    if (o->kind == CLI_FLAG) {
        if (value) return complain(usage, "this option takes no value:", arg);
        *(bool *)o->out = true;
        return -1;
    }
    if (o->kind == CLI_KEYS) {
        if (value) return complain(usage, "this option takes no value:", arg);
        return print_keys(*(const omm_config_field **)o->out);
    }
    if (!value) {
        if (*i + 1 >= argc) return complain(usage, "missing value after", arg);
        value = argv[++*i];
    }
    if (is_given(o, &taken[o - options]))
        return complain(usage, "given twice, and one is taken:", arg);
    return store(o, value) ? -1 : complain_value(usage, o, value);
}

int cli_parse(int *count, char ***args, int argc, char **argv, const cli_option *options,
              const char *usage, const char *summary, int min, int max) {
    int n = 0;
    bool options_end = false, taken[OPTIONS_MAX] = {false};
    for (int i = 1; i < argc; i++) {
        if (!options_end && strcmp(argv[i], "--") == 0) {
            options_end = true;
        } else if (!options_end && is_help(argv[i], options)) {
            print_help(options, usage, summary);
            return CLI_EXIT_PASS;
        } else if (!options_end && argv[i][0] == '-' && argv[i][1]) {
            int code = take(&i, taken, argc, argv, options, usage);
            if (code >= 0) return code;
        } else {
            argv[1 + n++] = argv[i];
        }
    }
    if (n < min) return complain(usage, "missing argument", NULL);
    if (n > max) return complain(usage, "unexpected argument", argv[1 + max]);
    *count = n;
    *args = argv + 1;
    return -1;
}

static const char *name_in_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* One name of one folder, however the two spell it; nothing need be there yet. */
static bool is_same_place(const char *a, const char *b) {
    char folder_a[OMM_PATH_MAX], folder_b[OMM_PATH_MAX];
    if (strcmp(a, b) == 0) return true;
    return strcmp(name_in_folder(a), name_in_folder(b)) == 0 &&
           omm_path_dir(folder_a, a) == OMM_OK && omm_path_dir(folder_b, b) == OMM_OK &&
           omm_file_same(folder_a, folder_b);
}

omm_err cli_check_written(const char *option, const char *path, const cli_input *inputs) {
    for (; path && inputs->option; inputs++)
        if (inputs->path &&
            (is_same_place(path, inputs->path) || omm_gguf_has_file(inputs->path, path)))
            return omm_raise(OMM_ERR_USAGE, "%s is %s, %s: give another name", option,
                             inputs->option, inputs->path);
    return OMM_OK;
}

omm_err cli_check_out(const char *out, const cli_input *inputs) {
    return cli_check_written("--out", out, inputs);
}

omm_err cli_of_file(omm_err err, const char *option, const char *path) {
    if (err == OMM_OK || err == OMM_ERR_USAGE || err == OMM_ERR_CONFIG || err == OMM_ERR_NOMEM)
        return err;
    /* What is not found in a file that is there is missing from it. */
    if (err == OMM_ERR_NOT_FOUND && omm_file_exists(path)) err = OMM_ERR_FORMAT;
    return omm_raise(err, "%s %s: %s", option, path, omm_err_sentence());
}

int cli_fail(const char *command, omm_err err) {
    fprintf(stderr, "meshmind %s: %s\n", command, omm_err_sentence());
    bool usage = err == OMM_ERR_USAGE || err == OMM_ERR_CONFIG || err == OMM_ERR_NOT_FOUND ||
                 err == OMM_ERR_EXISTS; /* another name is needed */
    return usage ? CLI_EXIT_USAGE : CLI_EXIT_RUNTIME;
}

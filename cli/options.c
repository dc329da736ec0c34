#include "options.h"

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

static bool store(const cli_option *o, const char *text) {
    uint64_t v = 0;
    switch (o->kind) {
    case CLI_FLAG: return false;
    case CLI_STR: *(const char **)o->out = text; return true;
    case CLI_U32:
        if (!parse_u64(&v, text, UINT32_MAX)) return false;
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

static void print_help(const cli_option *options, const char *usage, const char *summary) {
    printf("usage: meshmind %s\n\n%s\n\n", usage, summary);
    for (const cli_option *o = options; o->name; o++) {
        char left[64];
        char letter[8] = "";
        if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        printf("  %-28s %s\n", left, o->help);
    }
    printf("  %-28s %s\n", "--help", "this text");
}

static int complain(const char *command, const char *usage, const char *what, const char *arg) {
    fprintf(stderr, "meshmind %s: %s '%s'\nusage: meshmind %s (see --help)\n", command, what, arg,
            usage);
    return CLI_EXIT_USAGE;
}

static const char *expects(cli_kind kind) {
    if (kind == CLI_F32) return "expected a finite number, got";
    if (kind == CLI_LIST) return "this option may be given at most 32 times, so not with";
    return kind == CLI_STR ? "unusable value" : "expected a whole number in range, got";
}

/* One option at argv[*i]; moves *i past its value.  Returns -1 or an exit code. */
static int take(int *i, int argc, char **argv, const cli_option *options, const char *usage) {
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
    if (!o) return complain(argv[0], usage, "unknown option", arg);
    if (o->kind == CLI_FLAG) {
        if (value) return complain(argv[0], usage, "this option takes no value:", arg);
        *(bool *)o->out = true;
        return -1;
    }
    if (!value) {
        if (*i + 1 >= argc) return complain(argv[0], usage, "missing value after", arg);
        value = argv[++*i];
    }
    return store(o, value) ? -1 : complain(argv[0], usage, expects(o->kind), value);
}

int cli_parse(int *count, char ***args, int argc, char **argv, const cli_option *options,
              const char *usage, const char *summary, int min, int max) {
    int n = 0;
    bool options_end = false;
    for (int i = 1; i < argc; i++) {
        if (!options_end && strcmp(argv[i], "--") == 0) {
            options_end = true;
        } else if (!options_end && strcmp(argv[i], "--help") == 0) {
            print_help(options, usage, summary);
            return CLI_EXIT_PASS;
        } else if (!options_end && argv[i][0] == '-' && argv[i][1]) {
            int code = take(&i, argc, argv, options, usage);
            if (code >= 0) return code;
        } else {
            argv[1 + n++] = argv[i];
        }
    }
    if (n < min) return complain(argv[0], usage, "missing argument; usage is", usage);
    if (n > max) return complain(argv[0], usage, "unexpected argument", argv[1 + max]);
    *count = n;
    *args = argv + 1;
    return -1;
}

int cli_fail(const char *command, omm_err err) {
    fprintf(stderr, "meshmind %s: %s\n", command, omm_err_sentence());
    bool usage = err == OMM_ERR_USAGE || err == OMM_ERR_CONFIG || err == OMM_ERR_NOT_FOUND;
    return usage ? CLI_EXIT_USAGE : CLI_EXIT_RUNTIME;
}

/* test_grammar.h - arguments of one tool: which texts its schema takes.  Schemas and texts are written with ' for ". */
#ifndef TEXT_TEST_GRAMMAR_H
#define TEXT_TEST_GRAMMAR_H

#include "grammar_internal.h"
#include "omm_test.h"

#define TEXT_MAX 4096

static inline const char *quoted(char *out, const char *text) {
    CHECK(strlen(text) < TEXT_MAX);
    snprintf(out, TEXT_MAX, "%s", text);
    for (char *p = out; *p; p++)
        if (*p == '\'') *p = '"';
    return out;
}

static inline json_t *parse(const char *schema) {
    char text[TEXT_MAX];
    json_t *root = NULL;
    CHECK_OK(omm_json_parse(&root, omm_bytes_str(quoted(text, schema)), "a schema"));
    return root;
}

/* Of a tool. */
static inline omm_grammar *open_arguments(json_t *schema, bool strict) {
    omm_grammar *g = NULL;
    CHECK_OK(grammar_open(&g));
    CHECK_OK(grammar_add_arguments(&g->root, g, "f", schema, strict));
    CHECK_OK(grammar_finish_root(g));
    return g;
}

static inline bool takes(const omm_grammar *g, const char *text) {
    static frames s_frames;
    crowd now, next;
    s_frames.count = 0;
    match_begin(&now, g, g->root, false);
    for (const char *p = text; *p; p++) {
        match_step(&next, &s_frames, g, &now, (uint8_t)*p);
        match_compact(&next, &s_frames);
        now = next;
    }
    return match_is_whole(g, &now);
}

static inline void check(const omm_grammar *g, const char *schema, const char *arguments,
                         bool wanted) {
    char text[TEXT_MAX];
    if (takes(g, quoted(text, arguments)) == wanted) return;
    fprintf(stderr, "%s: %s %s\n", schema, wanted ? "not taken" : "taken", arguments);
    exit(1);
}

#endif

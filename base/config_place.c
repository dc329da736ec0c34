/* config_place.c - in which line of a YAML file a key stands, for what a table cannot check: the file is walked once more,
 * without one. */
#include "config_internal.h"
#include "omm/file.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

#define FILE_BYTES_MAX (1u << 20)
#define SENTENCE_SIZE 2048 /* err.c's own */

typedef struct level {
    size_t used, index; /* length of its path; of a list the next item */
    bool is_list, has_key;
} level;

typedef struct walk {
    yaml_parser_t parser;
    const char *sentence;
    char path[CONFIG_PATH_SIZE];
    level levels[CONFIG_DEPTH_MAX + 2];
    size_t depth, line, column, longest; /* of the deepest key that the sentence names; 0: none */
} walk;

/* Does the sentence begin with that key?  "model.width: ...", "recipe: rank is ...". */
static bool begins_with(const char *sentence, const char *path) {
    for (; *path; path++, sentence++) {
        if (*path == '.' && strncmp(sentence, ": ", 2) == 0)
            sentence++;
        else if (*path != *sentence)
            return false;
    }
    return *sentence == '\0' || strchr(":. [", *sentence) != NULL;
}

static void note(walk *w, yaml_mark_t at) {
    const size_t length = strlen(w->path);
    if (length <= w->longest || !begins_with(w->sentence, w->path)) return;
    w->longest = length;
    w->line = at.line + 1;
    w->column = at.column + 1;
}

static void add_key(walk *w, const char *key) {
    const size_t used = strlen(w->path);
    snprintf(w->path + used, sizeof w->path - used, "%s%.64s", used > 0 ? "." : "", key);
}

static void add_index(walk *w, size_t index) {
    const size_t used = strlen(w->path);
    snprintf(w->path + used, sizeof w->path - used, "[%zu]", index);
}

/* A value begins; of a list's item the path is made here, of a mapping's by its key. */
static void begin_value(walk *w, yaml_mark_t at) {
    const level *l = &w->levels[w->depth];
    if (w->depth > 0 && l->is_list) add_index(w, l->index);
    note(w, at);
}

static void end_value(walk *w) {
    level *l = &w->levels[w->depth];
    if (w->depth == 0) return;
    w->path[l->used] = '\0';
    l->has_key = false;
    l->index++;
}

/* False: this nests too deep, or is no file that the loader takes. */
static bool take(walk *w, const yaml_event_t *e) {
    level *l = &w->levels[w->depth];
    switch ((int)e->type) {
    case YAML_SCALAR_EVENT:
        if (w->depth > 0 && !l->is_list && !l->has_key) {
            add_key(w, (const char *)e->data.scalar.value);
            l->has_key = true;
            return true;
        }
        begin_value(w, e->start_mark);
        end_value(w);
        return true;
    case YAML_MAPPING_START_EVENT:
    case YAML_SEQUENCE_START_EVENT:
        if (w->depth == CONFIG_DEPTH_MAX + 1 || (w->depth > 0 && !l->is_list && !l->has_key))
            return false;
        begin_value(w, e->start_mark);
        w->levels[++w->depth] =
            (level){.used = strlen(w->path), .is_list = e->type == YAML_SEQUENCE_START_EVENT};
        return true;
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        w->depth--;
        end_value(w);
        return true;
    case YAML_ALIAS_EVENT:
    case YAML_NO_EVENT:
    case YAML_STREAM_END_EVENT: return false;
    default: return true;
    }
}

static void find(walk *w, omm_bytes text) {
    if (!yaml_parser_initialize(&w->parser)) return;
    yaml_parser_set_encoding(&w->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&w->parser, text.data, text.size);
    for (bool more = true; more;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&w->parser, &event)) break;
        more = take(w, &event);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&w->parser);
}

omm_err omm_config_place(omm_err err, const char *file) {
    char said[SENTENCE_SIZE];
    const size_t length = strlen(file);
    if (err != OMM_ERR_CONFIG && err != OMM_ERR_NOT_FOUND) return err;
    snprintf(said, sizeof said, "%s", omm_err_sentence());
    walk w = {.sentence = said};
    if (strncmp(said, file, length) == 0 && said[length] == ':') {
        if (said[length + 1] != ' ') return err; /* the loader has said where */
        w.sentence += length + 2;
    }
    omm_buf text;
    omm_buf_init(&text, FILE_BYTES_MAX);
    if (omm_file_read(&text, file) == OMM_OK) find(&w, omm_buf_view(&text));
    omm_buf_fini(&text);
    if (w.longest == 0) return omm_raise(err, "%s: %s", file, w.sentence);
    return omm_raise(err, "%s:%zu:%zu: %s", file, w.line, w.column, w.sentence);
}

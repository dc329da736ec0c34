/* config.c - walks libyaml's events along the tables.  Nothing is kept but the struct, so a file
 * of a megabyte costs no more than its values, and every error still has its place. */
#include "config_internal.h"
#include "omm/file.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

#define FILE_BYTES_MAX (1u << 20)

typedef struct place {
    size_t line, column; /* from 1 */
} place;

typedef struct loader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one */
    bool has_event;
    const char *name;
    omm_arena *arena;
    char path[CONFIG_PATH_SIZE];
    int depth;
} loader;

size_t config_table_count(const omm_config_field *fields) {
    size_t count = 0;
    for (const omm_config_field *f = fields; f->kind != OMM_CONFIG_KIND_END; f++, count++) {
        OMM_ASSERT(f->key != NULL);
        OMM_ASSERT(f->kind != OMM_CONFIG_KIND_ENUM || f->choices);
        OMM_ASSERT(f->kind != OMM_CONFIG_KIND_MAP || f->sub);
        OMM_ASSERT(f->kind != OMM_CONFIG_KIND_MAP || !f->optional || f->present > 0);
        OMM_ASSERT(f->kind != OMM_CONFIG_KIND_LIST || (f->item && f->item_size > 0));
        OMM_ASSERT(f->kind != OMM_CONFIG_KIND_LIST || f->item->kind != OMM_CONFIG_KIND_LIST);
    }
    OMM_ASSERT(count <= CONFIG_KEYS_MAX);
    return count;
}

/* --- where we are --- */

static place place_of(yaml_mark_t mark) {
    return (place){mark.line + 1, mark.column + 1};
}

static place event_place(const loader *l) {
    return place_of(l->event.start_mark);
}

/* Returns the old length, for path_pop. */
static size_t path_push(loader *l, const char *key) {
    size_t used = strlen(l->path);
    config_text t = {l->path, sizeof l->path, used};
    config_text_add(&t, "%s%.64s", used > 0 ? "." : "", key);
    return used;
}

static size_t path_push_index(loader *l, size_t index) {
    size_t used = strlen(l->path);
    config_text t = {l->path, sizeof l->path, used};
    config_text_add(&t, "[%zu]", index);
    return used;
}

static void path_pop(loader *l, size_t used) {
    l->path[used] = '\0';
}

/* "FILE:LINE:COLUMN: path: " and the rest. */
static omm_err wrong_at(const loader *l, place at, const char *what, const char *accepted) {
    return omm_raise(OMM_ERR_CONFIG, "%s:%zu:%zu: %s%s%s; accepted: %s", l->name, at.line,
                     at.column, l->path, l->path[0] ? ": " : "", what, accepted);
}

static omm_err wrong_value(const loader *l, place at, const omm_config_field *f, const char *what) {
    char accepted[CONFIG_ACCEPTED_SIZE];
    config_accepted(accepted, f);
    return wrong_at(l, at, what, accepted);
}

/* --- events --- */

/* libyaml gives a byte offset alone for bytes that are no text. */
static place place_of_offset(const loader *l) {
    place at = {1, 1};
    const unsigned char *text = l->parser.input.string.start;
    size_t size = (size_t)(l->parser.input.string.end - text);
    for (size_t i = 0; i < l->parser.problem_offset && i < size; i++) {
        bool newline = text[i] == '\n';
        at.line += newline;
        at.column = newline ? 1 : at.column + ((text[i] & 0xc0) != 0x80);
    }
    return at;
}

/* Where a line is indented by one, which an editor shows as spaces. */
static bool is_tab(const loader *l, place at) {
    const unsigned char *text = l->parser.input.string.start, *end = l->parser.input.string.end;
    for (size_t line = 1; text < end && line < at.line; text++) line += *text == '\n';
    size_t column = 1;
    for (; text < end && column < at.column && (*text == ' ' || *text == '\t'); text++) column++;
    return text < end && column == at.column && *text == '\t';
}

static omm_err raise_yaml(const loader *l) {
    const yaml_parser_t *p = &l->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return omm_raise(OMM_ERR_NOMEM, "%s: out of memory in the YAML parser", l->name);
    place at = p->error == YAML_READER_ERROR ? place_of_offset(l) : place_of(p->problem_mark);
    const char *context = p->context ? p->context : "";
    return omm_raise(OMM_ERR_CONFIG, "%s:%zu:%zu: not valid YAML: %s%s%s%s", l->name, at.line,
                     at.column, context, *context ? ": " : "", p->problem ? p->problem : "",
                     is_tab(l, at) ? "; this is a tab: accepted are spaces" : "");
}

static omm_err next_event(loader *l) {
    if (l->has_event) yaml_event_delete(&l->event);
    l->has_event = false;
    if (!yaml_parser_parse(&l->parser, &l->event)) return raise_yaml(l);
    l->has_event = true;
    return OMM_OK;
}

/* Anchors and tags change what a value means far from where it stands. */
static omm_err check_node(const loader *l) {
    const yaml_char_t *anchor = NULL;
    const yaml_char_t *tag = NULL;
    switch ((int)l->event.type) {
    case YAML_ALIAS_EVENT: return wrong_at(l, event_place(l), "an alias", "the value written out");
    case YAML_SCALAR_EVENT:
        anchor = l->event.data.scalar.anchor;
        tag = l->event.data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = l->event.data.sequence_start.anchor;
        tag = l->event.data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = l->event.data.mapping_start.anchor;
        tag = l->event.data.mapping_start.tag;
        break;
    default: break;
    }
    if (anchor) return wrong_at(l, event_place(l), "an anchor", "the value without `&`");
    if (tag) return wrong_at(l, event_place(l), "a tag", "the value without `!`");
    return OMM_OK;
}

static const char *scalar_text(const loader *l) {
    return (const char *)l->event.data.scalar.value;
}

static bool scalar_is_plain(const loader *l) {
    return l->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

/* --- defaults --- */

static void set_present(const omm_config_field *f, void *base, bool value) {
    if (f->present > 0) memcpy((char *)base + f->present, &value, sizeof value);
}

static void zero_fields(const omm_config_field *fields, void *base);

static void zero_field(const omm_config_field *f, void *base) {
    void *at = (char *)base + f->offset;
    set_present(f, base, false);
    switch (f->kind) {
    case OMM_CONFIG_KIND_END: break;
    case OMM_CONFIG_KIND_BOOL: memset(at, 0, sizeof(bool)); break;
    case OMM_CONFIG_KIND_U32: memset(at, 0, sizeof(uint32_t)); break;
    case OMM_CONFIG_KIND_U64: memset(at, 0, sizeof(uint64_t)); break;
    case OMM_CONFIG_KIND_REAL: *(double *)at = 0; break;
    case OMM_CONFIG_KIND_STRING: *(const char **)at = NULL; break;
    case OMM_CONFIG_KIND_ENUM: memset(at, 0, sizeof(int)); break;
    case OMM_CONFIG_KIND_MAP: zero_fields(f->sub, at); break;
    case OMM_CONFIG_KIND_LIST: *(omm_config_list *)at = (omm_config_list){NULL, 0}; break;
    }
}

static void zero_fields(const omm_config_field *fields, void *base) {
    for (; fields->kind != OMM_CONFIG_KIND_END; fields++) zero_field(fields, base);
}

static omm_err load_text(const omm_config_field *root, void *base, omm_bytes text, const char *name,
                         omm_arena *arena);
static omm_err use_defaults(loader *l, const omm_config_field *fields, void *base, place at);

/* A default that its own table refuses is a bug in the table. */
static omm_err use_fallback(loader *l, const omm_config_field *f, void *base) {
    omm_err err = OMM_OK;
    if (f->kind == OMM_CONFIG_KIND_LIST || f->kind == OMM_CONFIG_KIND_MAP) {
        err = load_text(f, base, omm_bytes_str(f->fallback), f->key, l->arena);
        OMM_ASSERT(err == OMM_OK || err == OMM_ERR_NOMEM);
        set_present(f, base, false);
        return err;
    }
    bool no_memory = false;
    const char *wrong =
        config_scalar_set((char *)base + f->offset, f, f->fallback, l->arena, &no_memory);
    if (no_memory) return omm_raise(OMM_ERR_NOMEM, "%s: %s: default", l->name, l->path);
    OMM_ASSERT(wrong == NULL);
    return OMM_OK;
}

/* `at`: where the mapping begins that lacks the key. */
static omm_err use_default(loader *l, const omm_config_field *f, void *base, place at) {
    zero_field(f, base);
    size_t used = path_push(l, f->key);
    omm_err err = OMM_OK;
    if (f->fallback)
        err = use_fallback(l, f, base);
    else if (f->kind == OMM_CONFIG_KIND_MAP && !f->optional)
        err = use_defaults(l, f->sub, (char *)base + f->offset, at);
    else if (!f->optional)
        err = wrong_value(l, at, f, "required key is missing");
    path_pop(l, used);
    return err;
}

static omm_err use_defaults(loader *l, const omm_config_field *fields, void *base, place at) {
    size_t count = config_table_count(fields);
    for (size_t i = 0; i < count; i++) OMM_TRY(use_default(l, &fields[i], base, at));
    return OMM_OK;
}

/* --- values --- */

static omm_err load_value(loader *l, const omm_config_field *f, void *base);

static omm_err wrong_key(loader *l, const omm_config_field *fields, const char *key) {
    char what[160] = "unknown key";
    char keys[CONFIG_ACCEPTED_SIZE];
    const char *nearest = config_nearest(fields, key);
    if (nearest) snprintf(what, sizeof what, "unknown key, did you mean \"%s\"?", nearest);
    config_keys(keys, fields);
    path_push(l, key);
    return wrong_at(l, event_place(l), what, keys);
}

/* The current event is a key.  Finds its field, or says what is wrong with it. */
static omm_err find_key(size_t *index, loader *l, const omm_config_field *fields,
                        size_t lines[CONFIG_KEYS_MAX]) {
    OMM_TRY(check_node(l));
    char keys[CONFIG_ACCEPTED_SIZE];
    config_keys(keys, fields);
    if (l->event.type != YAML_SCALAR_EVENT)
        return wrong_at(l, event_place(l), "a key that is no word", keys);
    const char *key = scalar_text(l);
    bool whole = strlen(key) == l->event.data.scalar.length; /* no NUL inside */
    size_t i = 0;
    while (fields[i].kind != OMM_CONFIG_KIND_END && !(whole && strcmp(fields[i].key, key) == 0))
        i++;
    if (fields[i].kind == OMM_CONFIG_KIND_END) return wrong_key(l, fields, key);
    if (lines[i] > 0) {
        char what[80];
        snprintf(what, sizeof what, "key appears twice, first on line %zu", lines[i]);
        path_push(l, key);
        return wrong_at(l, event_place(l), what, "each key once");
    }
    lines[i] = event_place(l).line;
    *index = i;
    return OMM_OK;
}

static omm_err load_mapping(loader *l, const omm_config_field *fields, void *base) {
    size_t lines[CONFIG_KEYS_MAX] = {0}; /* where each key stands; 0: not yet */
    size_t count = config_table_count(fields);
    place start = event_place(l);
    for (;;) {
        OMM_TRY(next_event(l));
        if (l->event.type == YAML_MAPPING_END_EVENT) break;
        size_t i = 0;
        OMM_TRY(find_key(&i, l, fields, lines));
        size_t used = path_push(l, fields[i].key);
        OMM_TRY(next_event(l));
        OMM_TRY(load_value(l, &fields[i], base));
        path_pop(l, used);
    }
    for (size_t i = 0; i < count; i++) {
        if (lines[i] == 0) OMM_TRY(use_default(l, &fields[i], base, start));
    }
    return OMM_OK;
}

/* Room for one more item.  The arena keeps the outgrown arrays: less than the last one. */
static omm_err grow_list(const loader *l, omm_config_list *list, size_t *capacity,
                         size_t item_size) {
    if (list->count < *capacity) return OMM_OK;
    size_t more = *capacity ? *capacity * 2 : 4;
    void *items = omm_arena_alloc(l->arena, more, item_size);
    if (!items) return omm_raise(OMM_ERR_NOMEM, "%s: %s: %zu items", l->name, l->path, more);
    if (list->count > 0) memcpy(items, list->items, list->count * item_size);
    list->items = items;
    *capacity = more;
    return OMM_OK;
}

static omm_err load_list(loader *l, const omm_config_field *f, void *at) {
    omm_config_list list = {NULL, 0};
    size_t capacity = 0;
    place start = event_place(l);
    bool bounded = f->max >= f->min && f->max > 0 && f->max < CONFIG_ITEMS_MAX;
    size_t count_max = bounded ? (size_t)f->max : CONFIG_ITEMS_MAX;
    for (;;) {
        OMM_TRY(next_event(l));
        if (l->event.type == YAML_SEQUENCE_END_EVENT) break;
        if (list.count == count_max) return wrong_value(l, event_place(l), f, "too many items");
        OMM_TRY(grow_list(l, &list, &capacity, f->item_size));
        size_t used = path_push_index(l, list.count);
        OMM_TRY(load_value(l, f->item, (char *)list.items + list.count * f->item_size));
        path_pop(l, used);
        list.count++;
    }
    if (!config_in_bounds(f, (double)list.count))
        return wrong_value(l, start, f, list.count == 0 ? "the list is empty" : "too few items");
    memcpy(at, &list, sizeof list);
    return OMM_OK;
}

/* The value as the file has it, cut to what a message can bear. */
static omm_err wrong_scalar(const loader *l, const omm_config_field *f, const char *wrong) {
    char what[160];
    const char *text = scalar_text(l);
    bool quoted = !scalar_is_plain(l);
    snprintf(what, sizeof what, "%s\"%.60s%s\" %s", quoted ? "quoted " : "", text,
             strlen(text) > 60 ? "..." : "", wrong);
    return wrong_value(l, event_place(l), f, what);
}

static omm_err load_scalar(loader *l, const omm_config_field *f, void *at) {
    const char *text = scalar_text(l);
    bool is_text = f->kind == OMM_CONFIG_KIND_STRING;
    if (strlen(text) != l->event.data.scalar.length)
        return wrong_value(l, event_place(l), f, "a NUL character in the text");
    if (scalar_is_plain(l)) {
        if (text[0] == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0)
            return wrong_value(l, event_place(l), f, "the key has no value");
    } else if (!is_text && f->kind != OMM_CONFIG_KIND_ENUM) {
        return wrong_scalar(l, f, "is text");
    }
    bool no_memory = false;
    const char *wrong = config_scalar_set(at, f, text, l->arena, &no_memory);
    if (no_memory) return omm_raise(OMM_ERR_NOMEM, "%s: %s: text", l->name, l->path);
    return wrong ? wrong_scalar(l, f, wrong) : OMM_OK;
}

/* The current event begins the value of `f`. */
static omm_err load_value(loader *l, const omm_config_field *f, void *base) {
    void *at = (char *)base + f->offset;
    OMM_TRY(check_node(l));
    set_present(f, base, true);
    if (l->event.type == YAML_SCALAR_EVENT) return load_scalar(l, f, at);
    bool is_map = l->event.type == YAML_MAPPING_START_EVENT;
    if (is_map ? f->kind != OMM_CONFIG_KIND_MAP : f->kind != OMM_CONFIG_KIND_LIST)
        return wrong_value(l, event_place(l), f, is_map ? "found a mapping" : "found a list");
    if (++l->depth > CONFIG_DEPTH_MAX)
        return wrong_at(l, event_place(l), "nested too deep", "16 levels");
    OMM_TRY(is_map ? load_mapping(l, f->sub, at) : load_list(l, f, at));
    l->depth--;
    return OMM_OK;
}

/* --- documents --- */

/* A file without a value (empty, or comments alone) is an empty mapping. */
static omm_err load_document(loader *l, const omm_config_field *root, void *base) {
    OMM_TRY(next_event(l)); /* the stream begins */
    OMM_TRY(next_event(l));
    bool has_document = l->event.type == YAML_DOCUMENT_START_EVENT;
    if (has_document) {
        OMM_TRY(next_event(l));
        OMM_TRY(check_node(l));
    }
    bool is_empty = !has_document || (l->event.type == YAML_SCALAR_EVENT && scalar_is_plain(l) &&
                                      l->event.data.scalar.length == 0);
    place first = {1, 1};
    if (!is_empty)
        OMM_TRY(load_value(l, root, base));
    else if (root->kind == OMM_CONFIG_KIND_MAP)
        OMM_TRY(use_defaults(l, root->sub, (char *)base + root->offset, first));
    else
        return wrong_value(l, first, root, "nothing there");
    if (!has_document) return OMM_OK;
    OMM_TRY(next_event(l)); /* the document ends */
    OMM_TRY(next_event(l));
    if (l->event.type == YAML_STREAM_END_EVENT) return OMM_OK;
    return wrong_at(l, event_place(l), "a second document", "one document");
}

static omm_err load_text(const omm_config_field *root, void *base, omm_bytes text, const char *name,
                         omm_arena *arena) {
    loader l = {.name = name, .arena = arena};
    if (!yaml_parser_initialize(&l.parser))
        return omm_raise(OMM_ERR_NOMEM, "%s: out of memory in the YAML parser", name);
    const uint8_t *data = text.data ? text.data : (const uint8_t *)"";
    size_t mark = text.size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* indents */
    yaml_parser_set_input_string(&l.parser, data + mark, text.size - mark);
    yaml_parser_set_encoding(&l.parser, YAML_UTF8_ENCODING); /* else a mark may choose UTF-16 */
    omm_err err = load_document(&l, root, base);
    if (l.has_event) yaml_event_delete(&l.event);
    yaml_parser_delete(&l.parser);
    return err;
}

omm_err omm_config_parse(void *out, const omm_config_field *fields, omm_bytes text,
                         const char *name, omm_arena *arena) {
    if (text.size > FILE_BYTES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "%s: configuration over %u bytes", name, FILE_BYTES_MAX);
    omm_config_field root = {.key = "", .kind = OMM_CONFIG_KIND_MAP, .sub = fields};
    return load_text(&root, out, text, name, arena);
}

omm_err omm_config_load(void *out, const omm_config_field *fields, const char *path,
                        omm_arena *arena) {
    omm_buf text;
    omm_buf_init(&text, FILE_BYTES_MAX);
    omm_err err = omm_file_read(&text, path);
    if (err == OMM_OK) err = omm_config_parse(out, fields, omm_buf_view(&text), path, arena);
    omm_buf_fini(&text);
    return err;
}

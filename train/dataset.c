/* dataset.c - owns the examples: JSONL lines in, token ids and masks out. */
#include "omm/dataset.h"

#include "omm/chat.h"
#include "omm/file.h"
#include "omm/json.h"
#include "omm/mem.h"
#include "omm/tokenizer.h"

#include <stdio.h>
#include <string.h>

enum {
    SEQ_DEFAULT = 32768,
    LINE_TOKENS_MAX = 1 << 20,   /* before cutting to seq_max */
    TOOLS_MAX = 64,              /* announced in one example */
    ARENA_BYTES_MAX = 1 << 30,   /* ids, masks, texts of one dataset */
    CONTENT_BYTES_MAX = 4 << 20, /* of one message, tool calls rendered */
    MESSAGES_MAX = 256,          /* of one example */
};

struct omm_dataset {
    omm_arena arena; /* everything an example points to */
    omm_example *examples;
    omm_bytes *lines; /* raw line of each example */
    size_t count, capacity;
    size_t dropped;
    uint64_t tokens, learned;
    const char **clients; /* distinct, ascending */
    size_t client_count;
};

/* What stays the same while the lines of one file are read. */
typedef struct loader {
    omm_dataset *data;
    const char *name; /* of the file */
    uint32_t line;
    const omm_tokenizer *tokenizer;
    omm_dataset_options options;
    omm_prompt prompt; /* of the current line */
    omm_buf texts;     /* contents made by us: tool calls, announced tools */
    omm_buf reply;     /* first assistant text, NUL-terminated */
} loader;

/* "FILE:LINE: " in front of a reason; `fmt` is a literal and at least one argument follows. */
#define BAD(l, fmt, ...) omm_raise(OMM_ERR_FORMAT, "%s:%u: " fmt, (l)->name, (l)->line, __VA_ARGS__)

/* --- one dataset: add, finish, close --------------------------------------------------------- */

static omm_err no_memory(void) {
    return omm_raise(OMM_ERR_NOMEM, "no memory for the data set");
}

static omm_err data_new(omm_dataset **out) {
    omm_dataset *data = omm_alloc(1, sizeof *data);
    if (!data) return no_memory();
    omm_arena_init(&data->arena, ARENA_BYTES_MAX);
    *out = data;
    return OMM_OK;
}

static void *arena_copy(omm_arena *arena, const void *from, size_t bytes) {
    void *to = omm_arena_alloc(arena, bytes ? bytes : 1, 1);
    if (to && bytes) memcpy(to, from, bytes);
    return to;
}

static omm_err data_reserve(omm_dataset *data) {
    if (data->count < data->capacity) return OMM_OK;
    size_t wanted = data->capacity ? 2 * data->capacity : 64;
    omm_example *examples = omm_grow(data->examples, data->capacity, wanted, sizeof *examples);
    if (!examples) return no_memory();
    data->examples = examples;
    omm_bytes *lines = omm_grow(data->lines, data->capacity, wanted, sizeof *lines);
    if (!lines) return no_memory();
    data->lines = lines;
    data->capacity = wanted;
    return OMM_OK;
}

/* Append a deep copy of `e`; its pointers may be borrowed from anywhere. */
static omm_err data_add(omm_dataset *data, const omm_example *e, omm_bytes line) {
    OMM_TRY(data_reserve(data));
    omm_example copy = *e;
    omm_arena *arena = &data->arena;
    copy.ids = arena_copy(arena, e->ids, e->count * sizeof *e->ids);
    copy.learn = arena_copy(arena, e->learn, e->count);
    copy.client = omm_arena_strdup(arena, e->client);
    copy.skill = omm_arena_strdup(arena, e->skill);
    copy.reply = omm_arena_strdup(arena, e->reply);
    uint8_t *raw = arena_copy(arena, line.data, line.size);
    if (!copy.ids || !copy.learn || !copy.client || !copy.skill || !copy.reply || !raw)
        return no_memory();
    data->lines[data->count] = omm_bytes_of(raw, line.size);
    data->examples[data->count++] = copy;
    data->tokens += e->count;
    data->learned += e->learn_count;
    return OMM_OK;
}

/* Position of `name` in the sorted list, or where it belongs. */
static size_t client_position(const omm_dataset *data, const char *name, bool *found) {
    size_t low = 0, high = data->client_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = strcmp(data->clients[mid], name);
        if (order == 0) {
            *found = true;
            return mid;
        }
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    *found = false;
    return low;
}

static omm_err list_clients(omm_dataset *data) {
    size_t capacity = 0;
    for (size_t i = 0; i < data->count; i++) {
        bool found = false;
        size_t at = client_position(data, data->examples[i].client, &found);
        if (found) continue;
        if (data->client_count == capacity) {
            size_t wanted = capacity ? 2 * capacity : 16;
            const char **grown = omm_grow(data->clients, capacity, wanted, sizeof *grown);
            if (!grown) return no_memory();
            data->clients = grown;
            capacity = wanted;
        }
        memmove(data->clients + at + 1, data->clients + at,
                (data->client_count - at) * sizeof *data->clients);
        data->clients[at] = data->examples[i].client;
        data->client_count++;
    }
    return OMM_OK;
}

static bool is_among(const char *name, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

/* Lists the clients, and every wanted one must be there. */
static omm_err data_finish(omm_dataset *data, const char *const *wanted, size_t count) {
    OMM_TRY(list_clients(data));
    for (size_t i = 0; i < count; i++) {
        bool found = false;
        client_position(data, wanted[i], &found);
        if (!found)
            return omm_raise(OMM_ERR_NOT_FOUND, "data set: no example of client '%.128s'",
                             wanted[i]);
    }
    if (data->count == 0) return omm_raise(OMM_ERR_NOT_FOUND, "data set: no usable example");
    return OMM_OK;
}

void omm_dataset_close(omm_dataset *data) {
    if (!data) return;
    omm_arena_fini(&data->arena);
    omm_free(data->examples);
    omm_free(data->lines);
    omm_free(data->clients);
    omm_free(data);
}

/* --- one line ------------------------------------------------------------------------------ */

/* Text between two offsets of l->texts becomes message content once the buffer is complete. */
typedef struct span {
    bool made; /* in l->texts, else `view` */
    size_t from, to;
    omm_bytes view;
} span;

static omm_err tool_arguments(const loader *l, char *out, size_t size, const json_t *function) {
    json_t *properties = json_object_get(json_object_get(function, "parameters"), "properties");
    size_t used = 0;
    out[0] = 0;
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(properties, key, value) {
        size_t need = strlen(key) + 2;
        if (used + need + 1 > size)
            return BAD(l, "%s", "tools: the arguments of a tool are too long");
        used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", key);
    }
    return OMM_OK;
}

/* system text + announced tools, as the base model was taught. */
static omm_err announce(loader *l, span *out, omm_bytes system, const json_t *tools) {
    omm_chat_tool list[TOOLS_MAX] = {0};
    char arguments[TOOLS_MAX][256];
    size_t count = json_array_size(tools);
    if (count > TOOLS_MAX) return BAD(l, "tools: %zu; at most %d", count, TOOLS_MAX);
    for (size_t i = 0; i < count; i++) {
        const json_t *tool = json_array_get(tools, i);
        const json_t *function = json_object_get(tool, "function");
        if (!function) function = tool;
        const char *name = json_string_value(json_object_get(function, "name"));
        if (!name) return BAD(l, "tools: entry %zu has no function name", i);
        OMM_TRY(tool_arguments(l, arguments[i], sizeof arguments[i], function));
        list[i] = (omm_chat_tool){name, arguments[i]};
    }
    *out = (span){.made = true, .from = l->texts.size};
    OMM_TRY(omm_chat_system(&l->texts, system, list, count, OMM_CHAT_SIGNATURES));
    out->to = l->texts.size;
    return OMM_OK;
}

/* An assistant turn in OpenAI's form: content (may be null) and tool_calls. */
static omm_err render_calls(loader *l, span *out, omm_bytes content, const json_t *calls) {
    *out = (span){.made = true, .from = l->texts.size};
    OMM_TRY(omm_buf_append(&l->texts, content.data, content.size));
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *function = json_object_get(json_array_get(calls, i), "function");
        const char *name = json_string_value(json_object_get(function, "name"));
        const char *text = json_string_value(json_object_get(function, "arguments"));
        if (!name || !text) return BAD(l, "tool_calls: call %zu has no name or arguments", i);
        json_t *arguments = NULL;
        if (omm_json_parse(&arguments, omm_bytes_str(text), "arguments") != OMM_OK)
            return BAD(l, "tool_calls: the arguments of call %zu are no JSON", i);
        omm_err err = OMM_OK;
        if (l->texts.size > out->from) err = omm_buf_append(&l->texts, "\n", 1);
        if (err == OMM_OK) err = omm_chat_write_call(&l->texts, name, arguments);
        json_decref(arguments);
        if (err != OMM_OK) return err;
    }
    out->to = l->texts.size;
    return OMM_OK;
}

static omm_err read_message(loader *l, omm_role *role, span *content, const json_t *message,
                            size_t index) {
    const char *name = json_string_value(json_object_get(message, "role"));
    if (!name) return BAD(l, "message %zu has no role", index);
    if (omm_role_parse(role, name) != OMM_OK)
        return BAD(l, "message %zu: role '%.32s'; accepted: system, user, assistant, tool", index,
                   name);
    const json_t *text = json_object_get(message, "content");
    const json_t *calls = json_object_get(message, "tool_calls");
    bool has_calls = json_array_size(calls) > 0 && *role == OMM_ROLE_ASSISTANT;
    if (!json_is_string(text) && !has_calls)
        return BAD(l, "message %zu: content is not a string", index);
    *content = (span){0};
    if (json_is_string(text))
        content->view = omm_bytes_of(json_string_value(text), json_string_length(text));
    return has_calls ? render_calls(l, content, content->view, calls) : OMM_OK;
}

/* Fill messages[count + 1]; one more may be put in front for announced tools. */
static omm_err read_messages(loader *l, omm_message *messages, size_t *count, const json_t *root) {
    span spans[MESSAGES_MAX + 1] = {0};
    const json_t *list = json_object_get(root, "messages");
    const json_t *tools = json_object_get(root, "tools");
    size_t n = json_array_size(list), at = 0;
    if (!json_is_array(list) || n == 0 || n > MESSAGES_MAX)
        return BAD(l, "messages: a list of 1 to %d messages is needed", MESSAGES_MAX);
    for (size_t i = 0; i < n; i++, at++) {
        omm_role role = OMM_ROLE_USER;
        OMM_TRY(read_message(l, &role, &spans[at], json_array_get(list, i), i));
        if (i == 0 && json_array_size(tools) > 0) {
            bool system = role == OMM_ROLE_SYSTEM;
            omm_bytes text = system ? spans[at].view : omm_bytes_str("");
            if (!system) spans[at + 1] = spans[at];
            OMM_TRY(announce(l, &spans[at], text, tools));
            messages[at].role = OMM_ROLE_SYSTEM;
            if (system) continue;
            at++;
        }
        messages[at].role = role;
    }
    for (size_t i = 0; i < at; i++)
        messages[i].content =
            spans[i].made ? omm_bytes_of(l->texts.data + spans[i].from, spans[i].to - spans[i].from)
                          : spans[i].view;
    *count = at;
    return OMM_OK;
}

static omm_err read_name(const loader *l, const char **out, const json_t *root, const char *key,
                         bool required) {
    const json_t *value = json_object_get(root, key);
    *out = "";
    if (!value && !required) return OMM_OK;
    if (!json_is_string(value) || (required && json_string_length(value) == 0))
        return BAD(l, "%s: a string is needed", key);
    if (json_string_length(value) > OMM_DATASET_NAME_BYTES_MAX)
        return BAD(l, "%s: over %u bytes", key, OMM_DATASET_NAME_BYTES_MAX);
    *out = json_string_value(value);
    return OMM_OK;
}

/* Ids and mask of the conversation, cut to seq_max; e->learn_count 0 means nothing is left. */
static omm_err tokenise(loader *l, omm_example *e, const omm_message *messages, size_t count) {
    omm_prompt_clear(&l->prompt);
    omm_err err = omm_chat_render(&l->prompt, l->tokenizer, messages, count, false);
    if (err == OMM_ERR_TOO_BIG)
        return BAD(l, "the conversation has over %d tokens", LINE_TOKENS_MAX);
    OMM_TRY(err);
    size_t n = l->prompt.tokens.count;
    if (n > l->options.seq_max) n = l->options.seq_max;
    e->ids = l->prompt.tokens.ids;
    e->learn = l->prompt.mask.data;
    e->count = (uint32_t)n;
    if (n) l->prompt.mask.data[0] = 0; /* nothing stands before the first token */
    for (uint32_t i = 0; i < e->count; i++) {
        if (e->learn[i] && e->learn_count++ == 0) e->prompt_count = i;
    }
    return OMM_OK;
}

static omm_err first_reply(loader *l, omm_example *e, const omm_message *messages, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (messages[i].role != OMM_ROLE_ASSISTANT) continue;
        omm_buf_clear(&l->reply);
        OMM_TRY(omm_buf_append(&l->reply, messages[i].content.data, messages[i].content.size));
        OMM_TRY(omm_buf_append(&l->reply, "", 1));
        e->reply = (const char *)l->reply.data;
        e->has_call = strstr(e->reply, "<tool_call>") != NULL;
        return OMM_OK;
    }
    return BAD(l, "%s", "messages: no assistant turn to learn from");
}

static omm_err add_parsed(loader *l, const json_t *root, omm_bytes line) {
    omm_message messages[MESSAGES_MAX + 1] = {0};
    size_t count = 0;
    omm_example e = {.line = l->line, .digest = omm_hash(line)};
    if (!json_is_object(root)) return BAD(l, "%s", "not a JSON object");
    OMM_TRY(read_name(l, &e.client, root, "client", true));
    OMM_TRY(read_name(l, &e.skill, root, "skill", false));
    if (l->options.clients && !is_among(e.client, l->options.clients, l->options.client_count))
        return OMM_OK;
    omm_buf_clear(&l->texts);
    OMM_TRY(read_messages(l, messages, &count, root));
    OMM_TRY(tokenise(l, &e, messages, count));
    OMM_TRY(first_reply(l, &e, messages, count));
    if (e.learn_count == 0) {
        l->data->dropped++;
        return OMM_OK;
    }
    return data_add(l->data, &e, line);
}

static omm_err add_line(loader *l, omm_bytes line) {
    if (line.size > OMM_DATASET_LINE_BYTES_MAX)
        return BAD(l, "line of %zu bytes; at most %u", line.size, OMM_DATASET_LINE_BYTES_MAX);
    if (l->data->count >= OMM_DATASET_EXAMPLES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "%s: over %u examples", l->name,
                         OMM_DATASET_EXAMPLES_MAX);
    char where[300];
    snprintf(where, sizeof where, "%.250s:%u", l->name, l->line);
    json_t *root = NULL;
    OMM_TRY(omm_json_parse(&root, line, where));
    omm_err err = add_parsed(l, root, line);
    json_decref(root);
    return err;
}

/* --- files --------------------------------------------------------------------------------- */

static omm_err add_lines(loader *l, omm_bytes text) {
    size_t at = 0;
    while (at < text.size) {
        const uint8_t *newline = memchr(text.data + at, '\n', text.size - at);
        size_t end = newline ? (size_t)(newline - text.data) : text.size;
        omm_bytes line = omm_bytes_of(text.data + at, end - at);
        l->line++;
        if (line.size == 0) return BAD(l, "%s", "empty line");
        OMM_TRY(add_line(l, line));
        at = end + 1;
    }
    return OMM_OK;
}

omm_err omm_dataset_parse(omm_dataset **out, omm_bytes text, const char *name,
                          const omm_tokenizer *tokenizer, const omm_dataset_options *options) {
    loader l = {.name = name, .tokenizer = tokenizer};
    if (options) l.options = *options;
    if (l.options.seq_max == 0) l.options.seq_max = SEQ_DEFAULT;
    if (text.size > OMM_DATASET_FILE_BYTES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, "%s: over %u bytes", name, OMM_DATASET_FILE_BYTES_MAX);
    omm_prompt_init(&l.prompt, LINE_TOKENS_MAX);
    omm_buf_init(&l.texts, CONTENT_BYTES_MAX);
    omm_buf_init(&l.reply, CONTENT_BYTES_MAX);
    omm_err err = data_new(&l.data);
    if (err == OMM_OK) err = add_lines(&l, text);
    if (err == OMM_OK)
        err =
            data_finish(l.data, l.options.clients, l.options.clients ? l.options.client_count : 0);
    omm_buf_fini(&l.reply);
    omm_buf_fini(&l.texts);
    omm_prompt_fini(&l.prompt);
    if (err != OMM_OK) {
        omm_dataset_close(l.data);
        return err;
    }
    *out = l.data;
    return OMM_OK;
}

omm_err omm_dataset_load(omm_dataset **out, const char *path, const omm_tokenizer *tokenizer,
                         const omm_dataset_options *options) {
    omm_buf text;
    omm_buf_init(&text, OMM_DATASET_FILE_BYTES_MAX);
    omm_err err = omm_file_read(&text, path);
    if (err == OMM_OK) err = omm_dataset_parse(out, omm_buf_view(&text), path, tokenizer, options);
    omm_buf_fini(&text);
    return err;
}

/* --- parts of a dataset ---------------------------------------------------------------------- */

typedef bool (*keep_fn)(const void *ud, const omm_example *e, size_t index);

static omm_err copy_kept(omm_dataset **out, const omm_dataset *from, keep_fn keep, const void *ud,
                         const char *const *wanted, size_t wanted_count) {
    omm_dataset *data = NULL;
    OMM_TRY(data_new(&data));
    omm_err err = OMM_OK;
    for (size_t i = 0; i < from->count && err == OMM_OK; i++)
        if (keep(ud, &from->examples[i], i))
            err = data_add(data, &from->examples[i], from->lines[i]);
    if (err == OMM_OK) err = data_finish(data, wanted, wanted_count);
    if (err != OMM_OK) {
        omm_dataset_close(data);
        return err;
    }
    *out = data;
    return OMM_OK;
}

typedef struct name_list {
    const char *const *names;
    size_t count;
} name_list;

static bool keep_client(const void *ud, const omm_example *e, size_t index) {
    const name_list *list = ud;
    (void)index;
    return is_among(e->client, list->names, list->count);
}

omm_err omm_dataset_select(omm_dataset **out, const omm_dataset *from, const char *const *clients,
                           size_t client_count) {
    name_list list = {clients, client_count};
    return copy_kept(out, from, keep_client, &list, clients, client_count);
}

static bool keep_marked(const void *ud, const omm_example *e, size_t index) {
    (void)e;
    return ((const bool *)ud)[index];
}

omm_err omm_dataset_pick(omm_dataset **out, const omm_dataset *from, const bool *keep) {
    return copy_kept(out, from, keep_marked, keep, NULL, 0);
}

typedef struct every {
    size_t first, stride;
    bool complement;
} every;

static bool keep_every(const void *ud, const omm_example *e, size_t index) {
    const every *s = ud;
    (void)e;
    bool in = index >= s->first && (index - s->first) % s->stride == 0;
    return in != s->complement;
}

omm_err omm_dataset_sample(omm_dataset **out, const omm_dataset *from, size_t first, size_t stride,
                           bool complement) {
    OMM_ASSERT(stride > 0);
    every s = {first, stride, complement};
    return copy_kept(out, from, keep_every, &s, NULL, 0);
}

/* --- reading ------------------------------------------------------------------------------- */

size_t omm_dataset_count(const omm_dataset *data) {
    return data->count;
}

const omm_example *omm_dataset_example(const omm_dataset *data, size_t index) {
    OMM_ASSERT(index < data->count);
    return &data->examples[index];
}

size_t omm_dataset_dropped(const omm_dataset *data) {
    return data->dropped;
}

uint64_t omm_dataset_tokens(const omm_dataset *data) {
    return data->tokens;
}

uint64_t omm_dataset_learned(const omm_dataset *data) {
    return data->learned;
}

size_t omm_dataset_client_count(const omm_dataset *data) {
    return data->client_count;
}

const char *omm_dataset_client(const omm_dataset *data, size_t index) {
    OMM_ASSERT(index < data->client_count);
    return data->clients[index];
}

omm_digest omm_dataset_digest(const omm_dataset *data) {
    omm_hasher hasher;
    omm_hasher_init(&hasher);
    for (size_t i = 0; i < data->count; i++) {
        omm_hasher_update(&hasher, data->lines[i]);
        omm_hasher_update(&hasher, omm_bytes_of("\n", 1));
    }
    return omm_hasher_final(&hasher);
}

omm_digest omm_dataset_commit(const omm_digest *data_digest, const uint8_t key[32]) {
    return omm_hash_keyed(omm_bytes_of(key, 32), omm_bytes_of(data_digest->b, 32));
}

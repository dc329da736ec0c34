/* changed.c - what is not as it was when the run began, for who starts a coordinator with a changed file: the bundle has
 * what was agreed then. */
#include "internal.h"

#include "omm/json.h"

#include <stdio.h>
#include <string.h>

#define LINE_SHOWN 80u

/* The first line that is another one, without its end; `line` from 1. */
static omm_bytes line_of(omm_bytes text, unsigned line) {
    size_t from = 0;
    for (size_t i = 0; line > 1 && i < text.size; i++)
        if (text.data[i] == '\n' && --line == 1) from = i + 1;
    if (line > 1) return omm_bytes_of(NULL, 0);
    while (from < text.size && text.data[from] == ' ') from++; /* how deep it stands says nothing */
    const uint8_t *end = from < text.size ? memchr(text.data + from, '\n', text.size - from) : NULL;
    const size_t size = end ? (size_t)(end - text.data) - from : text.size - from;
    return omm_bytes_of(text.data + from, size < LINE_SHOWN ? size : LINE_SHOWN);
}

static bool say_line(char *out, size_t out_size, const char *what, omm_bytes was, omm_bytes is) {
    size_t at = 0;
    unsigned line = 1;
    while (at < was.size && at < is.size && was.data[at] == is.data[at])
        line += was.data[at++] == '\n';
    if (at == was.size && at == is.size) return false;
    const omm_bytes old = line_of(was, line), now = line_of(is, line);
    (void)snprintf(out, out_size, "%s is another one: where it had \"%.*s\" it has \"%.*s\"", what,
                   (int)old.size, old.data ? (const char *)old.data : "", (int)now.size,
                   now.data ? (const char *)now.data : "");
    return true;
}

/* A text that went into the bundle as it is.  False: it is the same, or not there. */
static bool is_other(char *out, size_t size, const omm_coord *c, const char *path, const char *what,
                     omm_bytes is) {
    omm_buf was;
    omm_buf_init(&was, (size_t)1 << 24);
    const bool found = omm_bundle_read(&was, c->o.bundle, path) == OMM_OK &&
                       say_line(out, size, what, omm_buf_view(&was), is);
    omm_buf_fini(&was);
    return found;
}

/* Keys of run.json, and what they come from. */
static const struct {
    const char *key, *what;
} s_parts[] = {{"base", "the base model is another file (model)"},
               {"test", "the held-out data are others (test)"},
               {"coordinator_key", "the coordinator's key is another one (key)"},
               {"nodes", "who is enrolled (nodes, node_max)"},
               {"run_id", "run_seed in the state folder is another one"}};

/* A run of a program of before, which did not write what adapters name the base by. */
static bool is_of_before(const json_t *was, const json_t *is) {
    const json_t *base = json_object_get(was, "base");
    json_t *now = json_copy(json_object_get(is, "base"));
    if (now) (void)json_object_del(now, "fingerprint");
    if (now) (void)json_object_del(now, "title");
    const bool same = now && json_object_get(json_object_get(is, "base"), "fingerprint") &&
                      json_equal(base, now); /* it has neither, then */
    json_decref(now);
    return same;
}

static bool say_part(char *out, size_t size, const json_t *was, const json_t *is) {
    if (is_of_before(was, is)) {
        (void)snprintf(out, size,
                       "a program of before, which did not write the base's fingerprint into "
                       "run.json and can end the run");
        return true;
    }
    for (size_t i = 0; i < sizeof s_parts / sizeof *s_parts; i++) {
        if (json_equal(json_object_get(was, s_parts[i].key), json_object_get(is, s_parts[i].key)))
            continue;
        (void)snprintf(out, size, "%s", s_parts[i].what);
        return true;
    }
    return false;
}

void coord_name_change(char *out, size_t size, const omm_coord *c, omm_bytes record) {
    json_t *was = NULL, *is = NULL;
    omm_buf old;
    if (is_other(out, size, c, "scenario.yaml", "the scenario", c->o.scenario_yaml) ||
        is_other(out, size, c, "policy.yaml", "the policy", c->o.policy_yaml))
        return;
    omm_buf_init(&old, (size_t)1 << 28);
    const bool found = omm_bundle_read(&old, c->o.bundle, "run.json") == OMM_OK &&
                       omm_json_parse(&was, omm_buf_view(&old), "run.json") == OMM_OK &&
                       omm_json_parse(&is, record, "run.json") == OMM_OK &&
                       say_part(out, size, was, is);
    if (!found)
        (void)snprintf(out, size,
                       "what, cannot be told: the bundle does not have what it began with");
    json_decref(was);
    json_decref(is);
    omm_buf_fini(&old);
}

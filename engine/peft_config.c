/* peft_config.c - adapter_config.json: what it asks for, and what of that cannot be had here. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "peft_internal.h"

#include "omm/mem.h"

#include <ctype.h>
#include <math.h>
#include <pcre2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum {
    MATCH_LIMIT = 20000,     /* steps of one match; patterns over module paths take a few hundred */
    MATCH_LIMIT_MANY = 1000, /* the same where there are many */
    MANY = 256,
    LIST_MAX = 65536,
};

/* One entry of a table: a key as regular expression, and its number. */
typedef struct peft_pattern {
    pcre2_code *code;
    double value;
} peft_pattern;

/* ---- keys that must not be set ----------------------------------------------------------------- */

typedef enum rule { IGNORED, EMPTY } rule;

/* EMPTY: null, false, 0, "", [] and {} are accepted. */
static const struct {
    const char *key;
    rule rule;
    const char *reason;
} s_keys[] = {
    {"use_dora", EMPTY, "DoRA rescales the sum of weight and adapter"},
    {"modules_to_save", EMPTY, "whole modules were trained besides the adapter"},
    {"fan_in_fan_out", EMPTY, "weights that lie transposed"},
    {"lora_bias", EMPTY, "biases were trained"},
    {"layer_replication", EMPTY, "the model was given more layers"},
    {"trainable_token_indices", EMPTY, "embeddings were trained"},
    {"target_parameters", EMPTY, "parameters that are no linear layers"},
    {"alora_invocation_tokens", EMPTY, "an adapter that begins in mid-text"},
    {"use_qalora", EMPTY, "inputs are pooled before A"},
    {"use_bdlora", EMPTY, "block-diagonal factors"},
    {"arrow_config", EMPTY, "a router over several adapters"},
    {"kasa_config", EMPTY, "a diagonal between the factors"},
    {"monteclora_config", EMPTY, "sampled factors"},
    {"megatron_config", EMPTY, "layers split over machines"},
    {"auto_mapping", IGNORED, NULL},
    {"base_model_name_or_path", IGNORED, NULL},
    {"bias", IGNORED, NULL},         /* looked at below, as are the other texts and numbers */
    {"corda_config", IGNORED, NULL}, /* how training began: what matters is init_lora_weights */
    {"ensure_weight_tying", IGNORED, NULL},
    {"eva_config", IGNORED, NULL},
    {"exclude_modules", IGNORED, NULL},
    {"inference_mode", IGNORED, NULL},
    {"init_lora_weights", IGNORED, NULL},
    {"layers_pattern", IGNORED, NULL},
    {"layers_to_transform", IGNORED, NULL},
    {"loftq_config", IGNORED, NULL},
    {"lora_alpha", IGNORED, NULL},
    {"lora_dropout", IGNORED, NULL},
    {"lora_ga_config", IGNORED, NULL},
    {"megatron_core", IGNORED, NULL},
    {"peft_type", IGNORED, NULL},
    {"peft_version", IGNORED, NULL},
    {"qalora_group_size", IGNORED, NULL},
    {"r", IGNORED, NULL},
    {"rank_pattern", IGNORED, NULL},
    {"alpha_pattern", IGNORED, NULL},
    {"revision", IGNORED, NULL},
    {"runtime_config", IGNORED, NULL},
    {"target_modules", IGNORED, NULL},
    {"task_type", IGNORED, NULL},
    {"use_rslora", IGNORED, NULL},
    {"velora_config", IGNORED, NULL}, /* how gradients were kept in training */
};

static bool is_empty(const json_t *v) {
    switch (json_typeof(v)) {
    case JSON_NULL:
    case JSON_FALSE: return true;
    case JSON_OBJECT: return json_object_size(v) == 0;
    case JSON_ARRAY: return json_array_size(v) == 0;
    case JSON_STRING: return json_string_length(v) == 0;
    case JSON_INTEGER: return json_integer_value(v) == 0;
    default: return false;
    }
}

static omm_err check_keys(json_t *root) {
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(root, key, value) {
        const char *reason = "not known here";
        bool ignored = false;
        for (size_t i = 0; i < sizeof s_keys / sizeof *s_keys; i++) {
            if (strcmp(key, s_keys[i].key) != 0) continue;
            ignored = s_keys[i].rule == IGNORED;
            reason = s_keys[i].reason;
        }
        if (!ignored && !is_empty(value))
            return omm_raise(OMM_ERR_UNSUPPORTED,
                             OMM_PEFT_CONFIG_FILE ": %.60s is set, which has no counterpart: %s",
                             key, reason);
    }
    return OMM_OK;
}

/* Ways to begin that leave the base as it was.  The others subtract from it what A and B begin with. */
static omm_err check_init(const json_t *root) {
    static const char *const fine[] = {"gaussian", "eva", "orthogonal"};
    const json_t *init = json_object_get(root, "init_lora_weights");
    if (!init || json_is_boolean(init) || json_is_null(init)) return OMM_OK;
    const char *name = json_is_string(init) ? json_string_value(init) : "no text";
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        if (strcmp(name, fine[i]) == 0) return OMM_OK;
    return omm_raise(OMM_ERR_UNSUPPORTED,
                     OMM_PEFT_CONFIG_FILE
                     ": init_lora_weights '%.40s' alters the base model; save the "
                     "adapter in PEFT with "
                     "path_initial_model_for_weight_conversion first",
                     name);
}

static omm_err check_texts(const json_t *root) {
    const json_t *type = json_object_get(root, "peft_type"), *bias = json_object_get(root, "bias");
    if (!json_is_string(type) || strcmp(json_string_value(type), "LORA") != 0)
        return omm_raise(OMM_ERR_UNSUPPORTED,
                         OMM_PEFT_CONFIG_FILE ": peft_type is '%.40s', not 'LORA'",
                         json_is_string(type) ? json_string_value(type) : "");
    if (bias && !(json_is_string(bias) && strcmp(json_string_value(bias), "none") == 0))
        return omm_raise(OMM_ERR_UNSUPPORTED, OMM_PEFT_CONFIG_FILE
                         ": bias is set, which has no counterpart: biases were "
                         "trained");
    return check_init(root);
}

/* ---- patterns --------------------------------------------------------------------------------- */

static omm_err compile(pcre2_code **out, const char *before, const char *pattern, const char *after,
                       uint32_t options) {
    char text[OMM_PEFT_PATTERN_BYTES_MAX + 32];
    int error = 0;
    PCRE2_SIZE at = 0;
    if (strlen(pattern) > OMM_PEFT_PATTERN_BYTES_MAX)
        return omm_raise(OMM_ERR_TOO_BIG,
                         OMM_PEFT_CONFIG_FILE ": a pattern of %zu bytes, at most %u",
                         strlen(pattern), OMM_PEFT_PATTERN_BYTES_MAX);
    snprintf(text, sizeof text, "%s%s%s", before, pattern, after);
    *out = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                         options | PCRE2_ANCHORED | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C,
                         &error, &at, NULL);
    if (*out) return OMM_OK;
    return omm_raise(OMM_ERR_UNSUPPORTED,
                     OMM_PEFT_CONFIG_FILE ": '%.100s' is no regular expression", pattern);
}

static omm_err matches(bool *yes, const pcre2_code *code, const char *path, uint32_t limit) {
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(code, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    int rc = PCRE2_ERROR_NOMEMORY;
    if (data && context) {
        pcre2_set_match_limit(context, limit);
        pcre2_set_depth_limit(context, limit);
        rc = pcre2_match(code, (PCRE2_SPTR)path, PCRE2_ZERO_TERMINATED, 0, 0, data, context);
    }
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    *yes = rc >= 0;
    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH) return OMM_OK;
    if (rc == PCRE2_ERROR_NOMEMORY)
        return omm_raise(OMM_ERR_NOMEM, "no memory to match '%s'", path);
    return omm_raise(OMM_ERR_UNSUPPORTED,
                     OMM_PEFT_CONFIG_FILE ": a pattern takes over %u steps on '%s'", limit, path);
}

/* The whole path is what the pattern says, as Python's re.fullmatch. */
static omm_err matches_whole(bool *yes, const char *pattern, const char *path) {
    pcre2_code *code = NULL;
    OMM_TRY(compile(&code, "(?:", pattern, ")", PCRE2_ENDANCHORED));
    omm_err err = matches(yes, code, path, MATCH_LIMIT);
    pcre2_code_free(code);
    return err;
}

/* The entries of one table, in the file's order: the first that matches counts. */
static omm_err take_table(peft_config *c, size_t *count, const char *name) {
    json_t *table = json_object_get(c->root, name);
    *count = 0;
    if (!table || json_is_null(table)) return OMM_OK;
    if (!json_is_object(table))
        return omm_raise(OMM_ERR_FORMAT, OMM_PEFT_CONFIG_FILE ": %s is no object", name);
    const size_t more = json_object_size(table);
    if (more > OMM_PEFT_PATTERNS_MAX)
        return omm_raise(OMM_ERR_TOO_BIG, OMM_PEFT_CONFIG_FILE ": %s has %zu entries, at most %u",
                         name, more, OMM_PEFT_PATTERNS_MAX);
    peft_pattern *grown =
        omm_grow(c->patterns, c->pattern_count, c->pattern_count + more + 1, sizeof *grown);
    if (!grown) return omm_raise(OMM_ERR_NOMEM, "no memory for %zu patterns", more);
    c->patterns = grown;
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(table, key, value) {
        peft_pattern *p = &c->patterns[c->pattern_count];
        if (!json_is_number(value))
            return omm_raise(OMM_ERR_FORMAT, OMM_PEFT_CONFIG_FILE ": %s of '%.100s' is no number",
                             name, key);
        p->value = json_number_value(value);
        OMM_TRY(compile(&p->code, "(.*\\.)?(", key, ")$", 0));
        c->pattern_count++;
        ++*count;
    }
    return OMM_OK;
}

/* ---- numbers ---------------------------------------------------------------------------------- */

static omm_err number_or(double *out, const json_t *root, const char *key, double missing) {
    const json_t *v = json_object_get(root, key);
    *out = missing;
    if (!v) return OMM_OK;
    if (!json_is_number(v))
        return omm_raise(OMM_ERR_FORMAT, OMM_PEFT_CONFIG_FILE ": %s is no number", key);
    *out = json_number_value(v);
    return OMM_OK;
}

static omm_err check_rank(uint32_t *out, double rank) {
    if (!(rank >= 1 && rank <= OMM_LORA_RANK_MAX) || rank != floor(rank))
        return omm_raise(OMM_ERR_CONFIG, OMM_PEFT_CONFIG_FILE ": rank %g, accepted are 1 to %u",
                         rank, OMM_LORA_RANK_MAX);
    *out = (uint32_t)rank;
    return OMM_OK;
}

static omm_err take_numbers(peft_config *c) {
    double rank = 0;
    OMM_TRY(number_or(&rank, c->root, "r", 8)); /* PEFT's defaults */
    OMM_TRY(number_or(&c->alpha, c->root, "lora_alpha", 8));
    OMM_TRY(check_rank(&c->rank, rank));
    const json_t *rslora = json_object_get(c->root, "use_rslora");
    if (rslora && !json_is_boolean(rslora) && !json_is_null(rslora))
        return omm_raise(OMM_ERR_FORMAT,
                         OMM_PEFT_CONFIG_FILE ": use_rslora is neither true nor false");
    c->rslora = json_is_true(rslora);
    return OMM_OK;
}

/* ---- the whole -------------------------------------------------------------------------------- */

static omm_err parse(peft_config *c, const char *path) {
    struct stat at; /* the folder may be a stranger's: a pipe there would hold a reader for ever */
    if (stat(path, &at) == 0 && !S_ISREG(at.st_mode))
        return omm_raise(OMM_ERR_FORMAT, "%s is not a regular file", path);
    OMM_TRY(omm_json_load(&c->root, path, OMM_PEFT_CONFIG_BYTES_MAX));
    if (!json_is_object(c->root))
        return omm_raise(OMM_ERR_FORMAT, OMM_PEFT_CONFIG_FILE " is no JSON object");
    OMM_TRY(check_texts(c->root));
    OMM_TRY(check_keys(c->root));
    OMM_TRY(take_numbers(c));
    OMM_TRY(take_table(c, &c->ranks, "rank_pattern"));
    return take_table(c, &c->alphas, "alpha_pattern");
}

void peft_config_close(peft_config *config) {
    for (size_t i = 0; i < config->pattern_count; i++) pcre2_code_free(config->patterns[i].code);
    omm_free(config->patterns);
    json_decref(config->root);
    *config = (peft_config){0};
}

/* ---- what it says about a module --------------------------------------------------------------- */

/* A name of a list means the module itself, or the end of its path. */
static bool names(const char *name, const char *path) {
    const size_t size = strlen(name), whole = strlen(path);
    if (size > whole || strcmp(path + whole - size, name) != 0) return false;
    return size == whole || path[whole - size - 1] == '.';
}

/* A text is a pattern for the whole path, a list holds names. */
static omm_err selects(bool *yes, json_t *what, const char *key, const char *path) {
    *yes = false;
    if (!what || json_is_null(what)) return OMM_OK;
    if (json_is_string(what)) return matches_whole(yes, json_string_value(what), path);
    if (!json_is_array(what) || json_array_size(what) > LIST_MAX)
        return omm_raise(OMM_ERR_FORMAT, OMM_PEFT_CONFIG_FILE ": %s is neither a text nor a list",
                         key);
    size_t i = 0;
    json_t *name = NULL;
    json_array_foreach(what, i, name) {
        if (!json_is_string(name))
            return omm_raise(OMM_ERR_FORMAT, OMM_PEFT_CONFIG_FILE ": %s holds what is no text",
                             key);
        if (names(json_string_value(name), path)) *yes = true;
    }
    return OMM_OK;
}

static bool is_all_linear(const json_t *targets) {
    static const char all[] = "all-linear";
    const char *text = json_string_value(targets);
    if (!text || strlen(text) != sizeof all - 1) return false;
    for (size_t i = 0; all[i]; i++)
        if (tolower((unsigned char)text[i]) != all[i]) return false;
    return true;
}

/* layers_pattern only says where the number stands; the layers here always are "layers". */
static omm_err check_layers_pattern(const json_t *root) {
    const json_t *p = json_object_get(root, "layers_pattern");
    if (!p || is_empty(p)) return OMM_OK;
    if (json_is_array(p) && json_array_size(p) == 1) p = json_array_get(p, 0);
    if (json_is_string(p) && strcmp(json_string_value(p), "layers") == 0) return OMM_OK;
    return omm_raise(OMM_ERR_UNSUPPORTED,
                     OMM_PEFT_CONFIG_FILE ": layers_pattern other than 'layers'");
}

static omm_err layer_is_listed(bool *yes, const json_t *root, uint32_t layer) {
    json_t *list = json_object_get(root, "layers_to_transform");
    *yes = true;
    if (!list || json_is_null(list) || (json_is_array(list) && json_array_size(list) == 0))
        return OMM_OK;
    OMM_TRY(check_layers_pattern(root));
    if (json_is_integer(list)) {
        *yes = json_integer_value(list) == (json_int_t)layer;
        return OMM_OK;
    }
    *yes = false;
    if (!json_is_array(list) || json_array_size(list) > LIST_MAX)
        return omm_raise(OMM_ERR_FORMAT, OMM_PEFT_CONFIG_FILE ": layers_to_transform is no list");
    size_t i = 0;
    json_t *item = NULL;
    json_array_foreach(list, i, item) {
        if (!json_is_integer(item))
            return omm_raise(OMM_ERR_FORMAT,
                             OMM_PEFT_CONFIG_FILE ": layers_to_transform: no number");
        if (json_integer_value(item) == (json_int_t)layer) *yes = true;
    }
    return OMM_OK;
}

omm_err peft_config_targets(bool *yes, const peft_config *config, const char *path,
                            uint32_t layer) {
    json_t *targets = json_object_get(config->root, "target_modules");
    if (!targets || is_empty(targets))
        return omm_raise(OMM_ERR_NOT_FOUND, OMM_PEFT_CONFIG_FILE ": target_modules is missing");
    bool excluded = false, listed = true;
    OMM_TRY(selects(&excluded, json_object_get(config->root, "exclude_modules"), "exclude_modules",
                    path));
    if (is_all_linear(targets))
        *yes = true;
    else
        OMM_TRY(selects(yes, targets, "target_modules", path));
    if (json_is_array(targets)) OMM_TRY(layer_is_listed(&listed, config->root, layer));
    *yes = *yes && !excluded && listed;
    return OMM_OK;
}

/* All-linear leaves the output layer out, as it does embeddings; who lists one of them has adapted it. */
static omm_err check_ends(const peft_config *config) {
    static const struct {
        const char *path, *why;
    } ends[] = {{"lm_head", "LoRA on the output layer is not applied here"},
                {"model.embed_tokens", "LoRA on embeddings has no counterpart"}};
    json_t *targets = json_object_get(config->root, "target_modules");
    if (is_all_linear(targets)) return OMM_OK;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        bool listed = false, excluded = false;
        OMM_TRY(selects(&listed, targets, "target_modules", ends[i].path));
        OMM_TRY(selects(&excluded, json_object_get(config->root, "exclude_modules"),
                        "exclude_modules", ends[i].path));
        if (listed && !excluded)
            return omm_raise(OMM_ERR_UNSUPPORTED,
                             OMM_PEFT_CONFIG_FILE ": target_modules has %s: %s", ends[i].path,
                             ends[i].why);
    }
    return OMM_OK;
}

omm_err peft_config_open(peft_config *config, const char *path) {
    peft_config c = {0};
    omm_err err = parse(&c, path);
    if (err == OMM_OK) err = check_ends(&c);
    if (err != OMM_OK) {
        peft_config_close(&c);
        return err;
    }
    *config = c;
    return OMM_OK;
}

/* The value of the first pattern that matches, else `*value` stays. */
static omm_err look_up(double *value, const peft_pattern *patterns, size_t count,
                       const char *path) {
    for (size_t i = 0; i < count; i++) {
        bool yes = false;
        OMM_TRY(
            matches(&yes, patterns[i].code, path, count > MANY ? MATCH_LIMIT_MANY : MATCH_LIMIT));
        if (!yes) continue;
        *value = patterns[i].value;
        return OMM_OK;
    }
    return OMM_OK;
}

omm_err peft_config_pair(omm_lora_pair *pair, const peft_config *config, const char *path) {
    double rank = (double)config->rank, alpha = config->alpha;
    if (config->patterns) {
        OMM_TRY(look_up(&rank, config->patterns, config->ranks, path));
        OMM_TRY(look_up(&alpha, config->patterns + config->ranks, config->alphas, path));
    }
    OMM_TRY(check_rank(&pair->rank, rank));
    pair->scale = omm_lora_scale_of(alpha, pair->rank, config->rslora);
    if (!isfinite(pair->scale) || pair->scale == 0.0f)
        return omm_raise(OMM_ERR_CONFIG,
                         OMM_PEFT_CONFIG_FILE ": alpha %g of %s gives no usable scale", alpha,
                         path);
    return OMM_OK;
}

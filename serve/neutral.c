/* neutral.c - see neutral.h: the table. */
#include "neutral.h"

#include <stdio.h>
#include <string.h>

enum { CHAT = NEUTRAL_CHAT, TEXT = NEUTRAL_TEXT, BOTH = CHAT | TEXT };

#define VALUES_BYTES_MAX 256u

static const neutral s_neutrals[] = {
    /* OpenAI's API */
    {"user", BOTH, NULL},
    {"metadata", BOTH, NULL},
    {"store", CHAT, NULL},
    {"service_tier", BOTH, NULL},
    {"safety_identifier", CHAT, NULL},
    {"prompt_cache_key", CHAT, NULL},
    {"prompt_cache_retention", CHAT, NULL},
    {"prompt_cache_options", CHAT, NULL},
    {"moderation", CHAT, ""},
    {"prediction", CHAT, NULL}, /* a guess at the text, for speed */
    {"suffix", TEXT, "\"\""},
    {"modalities", CHAT, "[\"text\"]"},
    {"verbosity", CHAT, "\"medium\""},
    {"functions", CHAT, "[]"},
    {"function_call", CHAT, "\"none\", \"auto\""}, /* of those functions */
    {"audio", CHAT, ""},
    {"web_search_options", CHAT, ""},
    {"echo", CHAT, "false"},
    /* vLLM */
    {"use_beam_search", BOTH, "false"},
    {"length_penalty", BOTH, "1"},
    {"early_stopping", BOTH, "false"},
    {"ignore_eos", BOTH, "false"},
    {"min_tokens", BOTH, "0"},
    {"stop_token_ids", BOTH, "[]"},
    {"bad_words", BOTH, "[]"},
    {"allowed_token_ids", BOTH, ""},
    {"include_stop_str_in_output", BOTH, "false"},
    {"skip_special_tokens", BOTH, "true"},
    {"spaces_between_special_tokens", BOTH, NULL}, /* of tokens that are skipped */
    {"add_special_tokens", CHAT, "false"},         /* the template has them */
    {"add_special_tokens", TEXT, "true"},
    {"add_generation_prompt", CHAT, "true"},
    {"continue_final_message", CHAT, "false"},
    {"include_reasoning", CHAT, "true"},
    {"documents", CHAT, "[]"},
    {"chat_template", CHAT, ""},
    {"mm_processor_kwargs", BOTH, "{}"},
    {"prompt_logprobs", BOTH, ""},
    {"truncate_prompt_tokens", BOTH, ""},
    {"return_token_ids", BOTH, "false"},
    {"return_tokens_as_token_ids", BOTH, "false"},
    {"guided_json", BOTH, ""},
    {"guided_regex", BOTH, ""},
    {"guided_choice", BOTH, ""},
    {"guided_grammar", BOTH, ""},
    {"guided_decoding_backend", BOTH, ""},
    {"structured_outputs", BOTH, ""},
    {"logits_processors", BOTH, "[]"},
    {"vllm_xargs", BOTH, "{}"},
    {"priority", BOTH, NULL}, /* whose turn it is; here that of who came first */
    {"request_id", BOTH, NULL},
    {"cache_salt", BOTH, NULL},
    /* llama.cpp, and what is built on it: samplers that are off, and what is said of them beside that */
    {"cache_prompt", BOTH, NULL}, /* what is kept changes no text */
    {"n_cache_reuse", BOTH, NULL},
    {"id_slot", BOTH, "-1"},
    {"slot_id", BOTH, "-1"},
    {"n_predict", BOTH, "-1"},
    {"n_keep", BOTH, "0, -1"}, /* of a text that is cut to go on; here it ends */
    {"n_discard", BOTH, "0"},
    {"n_indent", BOTH, "0"},
    {"n_probs", BOTH, "0"},
    {"min_keep", BOTH, "0, 1"},
    {"t_max_predict_ms", BOTH, "0, -1"},
    {"typical_p", BOTH, "1"},
    {"typ_p", BOTH, "1"},
    {"typical", BOTH, "1"},
    {"tfs_z", BOTH, "1"},
    {"tfs", BOTH, "1"},
    {"top_a", BOTH, "0"},
    {"top_n_sigma", BOTH, "0, -1"},
    {"epsilon_cutoff", BOTH, "0"},
    {"eta_cutoff", BOTH, "0"},
    {"smoothing_factor", BOTH, "0"},
    {"smoothing_curve", BOTH, NULL},
    {"penalty_alpha", BOTH, "0"},
    {"penalize_nl", BOTH, "true"},
    {"dynatemp_range", BOTH, "0"},
    {"dynatemp_exponent", BOTH, NULL},
    {"xtc_probability", BOTH, "0"},
    {"xtc_threshold", BOTH, NULL},
    {"dry_multiplier", BOTH, "0"},
    {"dry_base", BOTH, NULL},
    {"dry_allowed_length", BOTH, NULL},
    {"dry_penalty_last_n", BOTH, NULL},
    {"dry_sequence_breakers", BOTH, NULL},
    {"mirostat", BOTH, "0"},
    {"mirostat_mode", BOTH, "0"},
    {"mirostat_tau", BOTH, NULL},
    {"mirostat_eta", BOTH, NULL},
    {"samplers", BOTH, "[], \"\""},
    {"grammar", BOTH, "\"\""},
    {"json_schema", BOTH, ""},
    {"lora", BOTH, "[]"},
    {"image_data", BOTH, "[]"},
    {"response_fields", BOTH, "[]"},
    {"return_tokens", BOTH, "false"},
    {"post_sampling_probs", BOTH, "false"},
    {"timings_per_token", BOTH, "false"},
    {"return_progress", BOTH, "false"},
    {"backend_sampling", BOTH, "false"},
    {"reasoning_format", CHAT, "\"auto\", \"deepseek\""}, /* apart from the answer */
    {"thinking_forced_open", CHAT, "false"},
    {"parse_tool_calls", CHAT, "true"},
};

const neutral *neutral_find(const char *name, bool is_chat) {
    for (size_t i = 0; i < sizeof s_neutrals / sizeof *s_neutrals; i++)
        if (strcmp(s_neutrals[i].name, name) == 0 &&
            (s_neutrals[i].kinds & (is_chat ? CHAT : TEXT)))
            return &s_neutrals[i];
    return NULL;
}

static bool same(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

bool neutral_has(const neutral *n, const json_t *value) {
    char text[VALUES_BYTES_MAX];
    json_t *values = NULL;
    bool has = false;
    if (!n->values || json_is_null(value)) return true;
    snprintf(text, sizeof text, "[%s]", n->values);
    OMM_ASSERT(omm_json_parse(&values, omm_bytes_str(text), n->name) == OMM_OK);
    for (size_t i = 0; i < json_array_size(values); i++)
        has = has || same(json_array_get(values, i), value);
    json_decref(values);
    return has;
}

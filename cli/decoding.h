/* decoding.h - id after id of one session, one by one or with proposals: the same ids either way; of any text, or of one that
 * a grammar describes. */
#ifndef CLI_DECODING_H
#define CLI_DECODING_H

#include "loaded.h"

#include "omm/speculate.h"

typedef struct decoding_options {
    const char *draft;          /* --draft: a model that proposes; NULL: none */
    bool lookup;                /* --lookup: proposals from the text so far */
    uint32_t drafts;            /* --drafts: at once; 0: not given */
    const omm_grammar *grammar; /* that the text is held to, of decoding_read_form; NULL: none */
} decoding_options;

/* What form a text has to have. */
typedef struct form_options {
    const char *schema; /* --json-schema: a file; NULL: none */
    bool object;        /* --json-object */
} form_options;

#define FORM_OPTIONS(o)                                                                            \
    {"json-object", 0, CLI_FLAG, &(o).object, NULL, "the text is a JSON object"}, {                \
        "json-schema", 0, CLI_STR, &(o).schema, "FILE",                                            \
            "the text is JSON that the JSON Schema in FILE describes"                              \
    }

#define DECODING_OPTIONS(o)                                                                        \
    {"draft", 0,                                                                                   \
     CLI_STR, &(o).draft,                                                                          \
     "FILE",  "small model of the same vocabulary that proposes tokens; the text stays the same"}, \
        LOOKUP_OPTIONS(o)
#define LOOKUP_OPTIONS(o)                                                                          \
    {"lookup", 0, CLI_FLAG, &(o).lookup, NULL, "propose what followed the same tokens before"}, {  \
        "drafts", 0, CLI_COUNT, &(o).drafts, "N", "proposals at once (4)"                          \
    }

#define TOP_P_ALL 1.0f
/* Of an omm_sampler. */
#define SAMPLING_OPTIONS(s)                                                                         \
    {"temp", 0, CLI_F32, &(s).temperature, "X", "temperature; 0 takes the likeliest (default)"},    \
        {"top-k", 0, CLI_U32, &(s).top_k, "N", "draw from the N likeliest only; 0: all (default)"}, \
        {"top-p",    0,   CLI_F32,                                                                  \
         &(s).top_p, "X", "draw from the likeliest that make up X; 1: all (default)"},              \
        {"min-p", 0,                                                                                \
         CLI_F32, &(s).min_p,                                                                       \
         "X",     "draw from those at least X times as likely as the likeliest; 0: all (default)"}, \
        {"frequency-penalty",                                                                       \
         0,                                                                                         \
         CLI_F32,                                                                                   \
         &(s).frequency_penalty,                                                                    \
         "X",                                                                                       \
         "off a token's logit each time that this answer has it; -2 to 2 (0)"},                     \
        {"presence-penalty",    0,   CLI_F32,                                                       \
         &(s).presence_penalty, "X", "off its logit once, where this answer has it; -2 to 2 (0)"},  \
        {"repeat-penalty",                                                                          \
         0,                                                                                         \
         CLI_F32,                                                                                   \
         &(s).repeat_penalty,                                                                       \
         "X",                                                                                       \
         "divides the logit, if over 0, or multiplies it, of tokens before, prompt included (1)"},  \
    {                                                                                               \
        "repeat-last-n", 0, CLI_U32, &(s).repeat_last, "N",                                         \
            "tokens that --repeat-penalty looks back at (64)"                                       \
    }

typedef struct decoding {
    loaded *l;
    omm_sampler sampler;
    size_t prompt_count; /* ids that were there at the start */
    float *logits;       /* [vocab] of the session's last position */
    uint32_t last;       /* given out, not yet in the session */
    bool pending;        /* there is such a one */
    omm_lexicon *lexicon;
    omm_constraint *constraint; /* NULL: any text */
    omm_speculator *sp;         /* NULL: one by one */
    loaded draft;
} decoding;

/* What is wrong with them whatever the model is, to be said before it is loaded.  Errors: USAGE. */
OMM_CHECKED omm_err decoding_check(const decoding_options *options);
/* The same of how ids are drawn; top-k or top-p where nothing is drawn is a mistake, too, and so is repeat-last-n where
 * there is no repeat-penalty.
 * Errors: USAGE, CONFIG. */
OMM_CHECKED omm_err decoding_check_sampling(const omm_sampler *sampler);
/* The grammar, for the caller to close; NULL where none is asked for.  Errors: USAGE (both), those of omm_json_load and
 * omm_grammar_open_schema, which name the file. */
OMM_CHECKED omm_err decoding_read_form(omm_grammar **out, const form_options *options);
bool decoding_has_form(const form_options *options); /* is one asked for? */
/* Proposals at once; 0: none. */
uint32_t decoding_drafts(const decoding_options *options);
/* Rows of logits that it keeps; for the plan of memory. */
uint64_t decoding_logit_rows(const decoding_options *options);
/* Options and sampler have been checked.  Errors: MISMATCH (a draft with another vocabulary), UNSUPPORTED (no token ends a
 * text, where one has to have a form), those of the loaders.  Release with decoding_close, also after an error. */
OMM_CHECKED omm_err decoding_open(decoding *d, loaded *l, const loaded_options *common,
                                  const decoding_options *options, const omm_sampler *sampler);
void decoding_close(decoding *d);
/* Bring the session to ids[0..count); what follows has the form. */
OMM_CHECKED omm_err decoding_start(decoding *d, const uint32_t *ids, size_t count);
OMM_CHECKED omm_err decoding_next(decoding *d, uint32_t *id);
/* Ids before the last one given out. */
uint32_t decoding_position(const decoding *d);
/* Put all that was given out into the session, as far as it has room. */
OMM_CHECKED omm_err decoding_settle(decoding *d);

#endif

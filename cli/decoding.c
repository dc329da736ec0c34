/* decoding.c - see decoding.h. */
#include "decoding.h"

#include "omm/mem.h"

#define SCHEMA_BYTES_MAX ((size_t)4 << 20)

omm_err decoding_check(const decoding_options *o) {
    if (o->draft && o->lookup) return omm_raise(OMM_ERR_USAGE, "--draft or --lookup: one of them");
    if (o->drafts && !o->draft && !o->lookup)
        return omm_raise(OMM_ERR_USAGE, "--drafts: together with --draft or --lookup");
    if (o->drafts > OMM_SPECULATOR_DRAFTS_MAX)
        return omm_raise(OMM_ERR_USAGE, "--drafts %u: accepted are 1 to %u", o->drafts,
                         OMM_SPECULATOR_DRAFTS_MAX);
    return OMM_OK;
}

omm_err decoding_check_sampling(const omm_sampler *sampler) {
    OMM_TRY(omm_sampler_check(sampler));
    const char *given = sampler->top_k != 0           ? "top-k"
                        : sampler->top_p != TOP_P_ALL ? "top-p"
                        : sampler->min_p != 0.0f      ? "min-p"
                                                      : NULL;
    if (sampler->temperature == 0.0f && given)
        return omm_raise(OMM_ERR_USAGE,
                         "--%s: nothing is drawn at temperature 0, give --temp with more", given);
    const bool looks_back = sampler->repeat_last != OMM_REPEAT_LAST_DEFAULT;
    if (looks_back && (sampler->repeat_penalty == 1.0f) != (sampler->repeat_last == 0))
        return omm_raise(
            OMM_ERR_USAGE,
            "--repeat-last-n %u with --repeat-penalty %g: together they change nothing",
            sampler->repeat_last, (double)sampler->repeat_penalty);
    return OMM_OK;
}

static omm_err read_schema(omm_grammar **out, const char *path) {
    json_t *schema = NULL;
    OMM_TRY(omm_json_load(&schema, path, SCHEMA_BYTES_MAX));
    const omm_err err = omm_grammar_open_schema(out, schema);
    json_decref(schema);
    return err;
}

omm_err decoding_read_form(omm_grammar **out, const form_options *o) {
    *out = NULL;
    if (o->schema && o->object)
        return omm_raise(OMM_ERR_USAGE, "--json-schema or --json-object: one of them");
    if (o->object) return omm_grammar_open_object(out);
    return o->schema ? cli_of_file(read_schema(out, o->schema), "--json-schema", o->schema)
                     : OMM_OK;
}

bool decoding_has_form(const form_options *o) {
    return o->object || o->schema;
}

uint32_t decoding_drafts(const decoding_options *o) {
    if (!o->draft && !o->lookup) return 0;
    return o->drafts ? o->drafts : omm_speculator_options_default().drafts_max;
}

uint64_t decoding_logit_rows(const decoding_options *o) {
    const uint64_t drafts = decoding_drafts(o);
    if (drafts == 0) return 1;
    return 1 + (drafts + 1) + 1; /* the session's last, a batch's, the draft's */
}

static omm_err open_speculator(decoding *d, const loaded_options *common,
                               const decoding_options *o) {
    omm_speculator_options options = omm_speculator_options_default();
    options.drafts_max = decoding_drafts(o);
    options.constraint = d->constraint;
    if (o->draft) {
        OMM_TRY(loaded_open_draft(&d->draft, d->l, common, o->draft));
        options.draft = d->draft.session;
    }
    return omm_speculator_open(&d->sp, d->l->session, &d->sampler, &options);
}

static omm_err open_constraint(decoding *d, const omm_grammar *grammar) {
    OMM_TRY(omm_lexicon_open(&d->lexicon, d->l->tokenizer, d->l->model.dims.vocab));
    return omm_constraint_open(&d->constraint, grammar, d->lexicon);
}

omm_err decoding_open(decoding *d, loaded *l, const loaded_options *common,
                      const decoding_options *options, const omm_sampler *sampler) {
    *d = (decoding){.l = l, .sampler = *sampler};
    d->logits = (float *)omm_alloc(l->model.dims.vocab, sizeof *d->logits);
    if (!d->logits) return omm_raise(OMM_ERR_NOMEM, "no memory for the logits");
    if (options->grammar) OMM_TRY(open_constraint(d, options->grammar));
    return options->draft || options->lookup ? open_speculator(d, common, options) : OMM_OK;
}

void decoding_close(decoding *d) {
    omm_speculator_close(d->sp);
    omm_constraint_close(d->constraint);
    omm_lexicon_close(d->lexicon);
    loaded_close(&d->draft);
    omm_free(d->logits);
}

omm_err decoding_start(decoding *d, const uint32_t *ids, size_t count) {
    OMM_TRY(omm_session_become(d->l->session, ids, count, d->logits));
    d->prompt_count = count;
    if (d->constraint) omm_constraint_restart(d->constraint);
    if (d->sp) omm_speculator_start(d->sp, d->logits);
    d->pending = false;
    return OMM_OK;
}

omm_err decoding_next(decoding *d, uint32_t *id) {
    omm_session *s = d->l->session;
    if (d->sp) {
        OMM_TRY(omm_speculator_next(d->sp, id));
    } else {
        if (d->pending) OMM_TRY(omm_session_append(s, &d->last, 1, d->logits, false));
        const omm_history before = {omm_session_ids(s), omm_session_position(s), d->prompt_count};
        OMM_TRY(omm_sample_within(id, &d->sampler, d->constraint, &before, d->logits,
                                  d->l->model.dims.vocab));
    }
    d->last = *id;
    d->pending = true;
    return OMM_OK;
}

uint32_t decoding_position(const decoding *d) {
    return d->sp ? omm_speculator_position(d->sp) : omm_session_position(d->l->session);
}

omm_err decoding_settle(decoding *d) {
    omm_session *s = d->l->session;
    if (d->sp) omm_speculator_finish(d->sp);
    if (!d->pending || omm_session_position(s) == omm_session_positions_max(s)) return OMM_OK;
    d->pending = false;
    return omm_session_append(s, &d->last, 1, NULL, false);
}

/* speaker.c - a language model as the speaker: prompt, cache, sampling, text. */
#include "omm/speaker.h"

#include "omm/mem.h"
#include "omm/speculate.h"
#include "omm/stops.h"
#include "omm/thinking.h"

#include <string.h>

#define REPLY_TOKENS 160u
#define ROOM_TOKENS 96u

struct omm_model_speaker {
    omm_session *session;
    const omm_tokenizer *tokenizer;
    omm_model_speaker_options options;
    uint32_t vocab;
    omm_seed seed;
    uint32_t replies; /* so far: every answer draws from a lane of its own */
    omm_model_speaker_usage usage;
    omm_prompt prompt;
    float *logits; /* [vocab] */
    omm_lexicon *lexicon;
    omm_constraint *constraint; /* NULL: any text */
};

omm_model_speaker_options omm_model_speaker_options_default(void) {
    return (omm_model_speaker_options){.reply_tokens_max = REPLY_TOKENS,
                                       .room_tokens = ROOM_TOKENS,
                                       .seed = 1,
                                       .sampler = omm_sampler_default()};
}

omm_err omm_model_speaker_check(const omm_model_speaker_options *options) {
    OMM_TRY(omm_sampler_check(&options->sampler));
    if (options->lookup > OMM_SPECULATOR_DRAFTS_MAX)
        return omm_raise(OMM_ERR_CONFIG, "%u proposals at once: at most %u", options->lookup,
                         OMM_SPECULATOR_DRAFTS_MAX);
    if (options->reply_tokens_max < 1)
        return omm_raise(OMM_ERR_CONFIG, "an answer of 0 tokens: must be at least 1");
    if (options->room_tokens < 1)
        return omm_raise(OMM_ERR_CONFIG, "room for an answer of 0 tokens: must be at least 1");
    return OMM_OK;
}

static omm_err open_parts(omm_model_speaker *s) {
    s->logits = omm_alloc(s->vocab, sizeof *s->logits);
    if (!s->logits) return omm_raise(OMM_ERR_NOMEM, "no memory for %u logits", s->vocab);
    if (!s->options.grammar) return OMM_OK;
    s->options.at_once = true;
    OMM_TRY(omm_lexicon_open(&s->lexicon, s->tokenizer, s->vocab));
    return omm_constraint_open(&s->constraint, s->options.grammar, s->lexicon);
}

omm_err omm_model_speaker_open(omm_model_speaker **out, omm_session *session,
                               const omm_tokenizer *tokenizer, uint32_t vocab,
                               const omm_model_speaker_options *options) {
    const uint32_t positions = omm_session_positions_max(session);
    OMM_TRY(omm_model_speaker_check(options));
    if (options->room_tokens >= positions)
        return omm_raise(OMM_ERR_CONFIG, "a context of %u positions: room for an answer takes %u",
                         positions, options->room_tokens);
    omm_model_speaker *s = omm_alloc(1, sizeof *s);
    if (!s) return omm_raise(OMM_ERR_NOMEM, "no memory for the speaker");
    *s = (omm_model_speaker){.session = session,
                             .tokenizer = tokenizer,
                             .options = *options,
                             .vocab = vocab,
                             .seed = omm_seed_from_u64(options->seed)};
    /* over a context, so that "too long" is found out by counting, not by an error */
    omm_prompt_init(&s->prompt, OMM_TOKENIZER_TEXT_MAX);
    const omm_err err = open_parts(s);
    if (err != OMM_OK) {
        omm_model_speaker_close(s);
        return err;
    }
    *out = s;
    return OMM_OK;
}

void omm_model_speaker_close(omm_model_speaker *s) {
    if (!s) return;
    omm_prompt_fini(&s->prompt);
    omm_constraint_close(s->constraint);
    omm_lexicon_close(s->lexicon);
    omm_free(s->logits);
    omm_free(s);
}

static omm_err render(omm_model_speaker *s, const omm_message *messages, size_t count) {
    omm_prompt_clear(&s->prompt);
    return omm_chat_render(&s->prompt, s->tokenizer, messages, count,
                           s->options.at_once ? OMM_CHAT_AT_ONCE : OMM_CHAT_ANSWER);
}

static omm_err fits(void *ud, bool *out, const omm_message *messages, size_t count, bool ample) {
    omm_model_speaker *s = ud;
    size_t positions = omm_session_positions_max(s->session);
    size_t room = s->options.room_tokens;
    if (ample && room < positions / 2) room = positions / 2;
    OMM_TRY(render(s, messages, count));
    *out = s->prompt.tokens.count + room <= positions;
    return OMM_OK;
}

typedef struct writing {
    omm_buf *out;
    size_t begin; /* of `out`, where this answer begins */
    omm_thought thought;
    omm_buf fresh; /* characters that are not yet in `out`: they may begin a stop text */
    omm_detok detok;
    omm_stops stops;
    omm_speaker_piece piece;
    void *ud;
} writing;

static bool thinks(const omm_model_speaker *s) {
    return !s->options.at_once && omm_thinking_of(s->tokenizer) != OMM_THINKING_NONE;
}

static bool wraps(const omm_model_speaker *s) {
    return !s->options.grammar && omm_thinking_wraps(s->tokenizer);
}

static omm_err writing_init(writing *w, const omm_model_speaker *s) {
    size_t count = 0;
    const char *const *texts = omm_chat_stops(&count, s->tokenizer);
    w->begin = w->out->size;
    w->thought = omm_thought_init(thinks(s), wraps(s));
    omm_buf_init(&w->fresh, OMM_TOKENIZER_TEXT_MAX);
    omm_stops_init(&w->stops);
    w->detok.first = true;
    if (s->options.grammar)
        count = 0; /* an answer that has to be JSON may have them in its strings */
    for (size_t i = 0; i < count; i++) OMM_TRY(omm_stops_add(&w->stops, omm_bytes_str(texts[i])));
    return OMM_OK;
}

static void writing_fini(writing *w) {
    omm_buf_fini(&w->fresh);
    omm_stops_fini(&w->stops);
}

static omm_err give(writing *w, size_t from) {
    size_t size = w->out->size - from;
    return size > 0 ? w->piece(w->ud, omm_bytes_of(w->out->data + from, size)) : OMM_OK;
}

static omm_err take(omm_model_speaker *s, writing *w, uint32_t id) {
    size_t before = w->out->size;
    omm_buf_clear(&w->fresh);
    OMM_TRY(omm_detok_push(&w->fresh, &w->detok, s->tokenizer, id, 0));
    OMM_TRY(omm_stops_push(w->out, &w->stops, omm_buf_view(&w->fresh)));
    omm_thought_look(&w->thought, omm_bytes_of(w->out->data + w->begin, w->out->size - w->begin),
                     false);
    return give(w, before);
}

/* Where the prompt has opened the thought, the text has it opened, too. */
static omm_err open_thought(omm_model_speaker *s, writing *w) {
    const omm_bytes opening = omm_thinking_opening(s->tokenizer);
    if (s->options.at_once) return OMM_OK;
    OMM_TRY(omm_buf_append(w->out, opening.data, opening.size));
    return give(w, w->begin);
}

static omm_err finish(writing *w) {
    size_t before = w->out->size;
    omm_buf_clear(&w->fresh);
    OMM_TRY(omm_detok_flush(&w->fresh, &w->detok));
    OMM_TRY(omm_stops_push(w->out, &w->stops, omm_buf_view(&w->fresh)));
    OMM_TRY(omm_stops_flush(w->out, &w->stops));
    return give(w, before);
}

static bool is_interrupted(void *ud) {
    const omm_model_speaker *s = ud;
    return s->options.interrupt && *s->options.interrupt;
}

/* Bring the session to the prompt, or to its beginning where the user does not wait for more. */
static omm_err read_prompt(bool *interrupted, omm_model_speaker *s) {
    const omm_tokens *ids = &s->prompt.tokens;
    const omm_session_stop stop = {.ask = is_interrupted, .ud = s};
    omm_err err = omm_session_become_unless(s->session, ids->ids, ids->count, s->logits, &stop);
    *interrupted = err == OMM_ERR_CANCELLED;
    if (!*interrupted) OMM_TRY(err);
    s->usage.prompt_tokens += omm_session_position(s->session);
    s->usage.reused_tokens += omm_session_reused(s->session);
    return OMM_OK;
}

/* One answer's ids: each from the logits of the one before, or of several that were proposed. */
typedef struct drawing {
    omm_sampler sampler;
    size_t prompt_count;
    omm_speculator *sp; /* NULL: one by one */
} drawing;

static omm_err drawing_open(drawing *d, omm_model_speaker *s) {
    *d = (drawing){.sampler = s->options.sampler, .prompt_count = omm_session_position(s->session)};
    d->sampler.rng = omm_rng_init(&s->seed, OMM_PURPOSE_SAMPLE, 0, s->replies++);
    if (s->constraint) omm_constraint_restart(s->constraint);
    if (s->options.lookup == 0) return OMM_OK;
    omm_speculator_options o = omm_speculator_options_default();
    o.drafts_max = s->options.lookup;
    o.constraint = s->constraint;
    OMM_TRY(omm_speculator_open(&d->sp, s->session, &d->sampler, &o));
    omm_speculator_start(d->sp, s->logits);
    return OMM_OK;
}

/* Proposals that nobody took are cut off. */
static void drawing_close(drawing *d, omm_model_speaker *s) {
    if (!d->sp) return;
    omm_speculator_finish(d->sp);
    s->usage.accepted_tokens += omm_speculator_stats_of(d->sp).accepted;
    omm_speculator_close(d->sp);
}

/* `i`: of the answer.  The one before, if any, is in the session then. */
static omm_err draw(uint32_t *id, drawing *d, omm_model_speaker *s, uint32_t i, uint32_t last) {
    if (d->sp) return omm_speculator_next(d->sp, id);
    if (i > 0) OMM_TRY(omm_session_append(s->session, &last, 1, s->logits, false));
    const omm_history before = {omm_session_ids(s->session), omm_session_position(s->session),
                                d->prompt_count};
    return omm_sample_within(id, &d->sampler, s->constraint, &before, s->logits, s->vocab);
}

static omm_err decode(omm_model_speaker *s, writing *w, drawing *d, omm_speaker_stop *stop) {
    const uint32_t begin = omm_session_position(s->session);
    uint32_t id = 0, said = 0;
    for (uint32_t i = 0; said < s->options.reply_tokens_max; i++) {
        if (is_interrupted(s)) {
            *stop = OMM_SPEAKER_INTERRUPT;
            return OMM_OK;
        }
        OMM_TRY(draw(&id, d, s, i, id));
        /* any control token ends a turn: a model that opens the next one itself is not let through */
        if (omm_tokenizer_is_end(s->tokenizer, id) || omm_tokenizer_is_control(s->tokenizer, id)) {
            *stop = OMM_SPEAKER_END;
            return OMM_OK;
        }
        s->usage.answer_tokens++;
        OMM_TRY(take(s, w, id));
        said += w->thought.answer != SIZE_MAX;
        if (w->stops.stopped) {
            *stop = OMM_SPEAKER_END;
            return OMM_OK;
        }
        if (begin + i == omm_session_positions_max(s->session)) {
            *stop = OMM_SPEAKER_CONTEXT;
            return OMM_OK;
        }
    }
    *stop = OMM_SPEAKER_LENGTH;
    return OMM_OK;
}

static omm_err answer(omm_model_speaker *s, writing *w, omm_speaker_stop *stop) {
    drawing d;
    omm_err err = drawing_open(&d, s);
    if (err == OMM_OK) err = open_thought(s, w);
    if (err == OMM_OK) err = decode(s, w, &d, stop);
    drawing_close(&d, s);
    return err;
}

static omm_err reply(void *ud, omm_buf *out, omm_speaker_stop *stop, const omm_message *messages,
                     size_t count, omm_speaker_piece piece, void *piece_ud) {
    omm_model_speaker *s = ud;
    writing w = {.out = out, .piece = piece, .ud = piece_ud};
    omm_err err = writing_init(&w, s);
    if (err == OMM_OK) err = render(s, messages, count);
    bool interrupted = false;
    if (err == OMM_OK) err = read_prompt(&interrupted, s);
    if (interrupted) *stop = OMM_SPEAKER_INTERRUPT;
    if (err == OMM_OK && !interrupted) err = answer(s, &w, stop);
    if (err == OMM_OK) err = finish(&w);
    writing_fini(&w);
    return err;
}

omm_speaker omm_model_speaker_get(omm_model_speaker *speaker) {
    return (omm_speaker){.fits = fits,
                         .reply = reply,
                         .no_calls = speaker->constraint != NULL,
                         .thinks = thinks(speaker),
                         .wraps = wraps(speaker),
                         .tokenizer = speaker->tokenizer,
                         .ud = speaker};
}

omm_model_speaker_usage omm_model_speaker_get_usage(const omm_model_speaker *speaker) {
    return speaker->usage;
}

uint32_t omm_model_speaker_replies(const omm_model_speaker *speaker) {
    return speaker->replies;
}

void omm_model_speaker_set_replies(omm_model_speaker *speaker, uint32_t replies) {
    speaker->replies = replies;
}

/* work.c - see work.h. */
#include "work.h"

#include "answer.h"

#include "omm/mem.h"
#include "omm/mhd.h"
#include "omm/utf8.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OUT_BYTES_MAX ((size_t)256 << 20)
#define STATUS_MAX 600u

typedef struct counts {
    uint64_t status[STATUS_MAX]; /* answers by code of HTTP */
    uint64_t prompt_tokens, reused_tokens, drawn_tokens, texts, steps, left, step_ns;
} counts;

struct work {
    const omm_serve_options *o;
    omm_batcher *batcher;
    omm_lexicon *lexicon;      /* made for the first who is held to a grammar; NULL: nobody was */
    omm_batcher_token *tokens; /* (seats) */
    choice *seats[OMM_BATCHER_SEATS_MAX];
    job *owners[OMM_BATCHER_SEATS_MAX]; /* of those choices */
    uint64_t ids;
    int event;    /* written to when a reader has been woken; -1: none */
    char run[17]; /* tells this server's ids from another's */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* what follows */
    pthread_cond_t wake;
    job *jobs;                 /* at work, in the order of coming */
    uint32_t waiting, sitting; /* texts */
    bool stopped, ended;
    counts counts;
};

/* ---- jobs ------------------------------------------------------------------------------------ */

static void free_job(job *j) {
    for (uint32_t i = 0; j->choices && i < j->count; i++) {
        output_fini(&j->choices[i].output);
        omm_constraint_close(j->choices[i].constraint);
        json_decref(j->choices[i].logprobs);
    }
    omm_free(j->choices);
    request_fini(&j->request);
    omm_buf_fini(&j->out);
    omm_free(j);
}

omm_err work_make(job **out) {
    job *j = (job *)omm_alloc(1, sizeof *j);
    if (!j) return omm_raise(OMM_ERR_NOMEM, "no memory for a request");
    omm_buf_init(&j->out, OUT_BYTES_MAX);
    j->owners = 1;
    *out = j;
    return OMM_OK;
}

/* One owner less, under the lock. */
static void let_go(job *j) {
    if (--j->owners == 0) free_job(j);
}

/* Under the lock: whoever waits for more looks again. */
static void wake_reader(const work *w, job *j) {
    struct MHD_Connection *reader = j->reader;
    const uint64_t one = 1;
    j->reader = NULL;
    if (!reader) return;
    omm_mhd()->resume_connection(reader);
    if (w->event >= 0) (void)!write(w->event, &one, sizeof one); /* full: it is awake */
}

static omm_err make_choices(job *j, const omm_serve_options *o) {
    j->count = j->request.n * (uint32_t)j->request.prompt_count;
    j->choices = (choice *)omm_alloc(j->count, sizeof *j->choices);
    if (!j->choices) return omm_raise(OMM_ERR_NOMEM, "no memory for %u texts", j->count);
    for (uint32_t i = 0; i < j->count; i++) {
        choice *c = &j->choices[i];
        c->index = i;
        c->prompt_count = (uint32_t)j->request.prompts[i / j->request.n].count;
        c->echo_detok.first = true; /* of its text, as omm_tokenizer_decode has it */
        if (j->request.logprobs) c->logprobs = json_array();
        OMM_TRY(output_init(&c->output, &j->request, o->tokenizer,
                            request_room(&j->request, o, i / j->request.n)));
    }
    return OMM_OK;
}

static bool refused(fault *why, unsigned status, const char *message) {
    *why = (fault){.status = status,
                   .type = status == 429 ? "rate_limit_error" : "server_error",
                   .code = status == 429 ? "queue_full" : NULL};
    snprintf(why->message, sizeof why->message, "%s", message);
    return false;
}

/* More than there ever is room for. */
static bool never(fault *why, uint32_t count, uint32_t most) {
    *why = (fault){.status = 400, .type = "invalid_request_error", .param = "n"};
    snprintf(why->message, sizeof why->message, "n: %u texts; this server takes at most %u", count,
             most);
    return false;
}

bool work_submit(work *w, job *j, fault *why) {
    const uint32_t most = w->o->waiting_max + w->o->batcher.seats;
    if (j->request.n * j->request.prompt_count > most)
        return never(why, j->request.n * (uint32_t)j->request.prompt_count, most);
    if (make_choices(j, w->o) != OMM_OK) return refused(why, 503, omm_err_sentence());
    j->created = w->o->clock.wall_ms(w->o->clock.ud) / 1000;
    j->begun_ms = w->o->clock.now_ms(w->o->clock.ud);
    pthread_mutex_lock(&w->lock);
    const bool stopped = w->stopped, full = w->waiting + w->sitting + j->count > most;
    if (!stopped && !full) {
        job **last = &w->jobs;
        while (*last) last = &(*last)->after;
        *last = j;
        j->owners++;
        w->waiting += j->count;
        snprintf(j->id, sizeof j->id, "%s-%s-%llu", j->request.is_chat ? "chatcmpl" : "cmpl",
                 w->run, (unsigned long long)++w->ids);
        pthread_cond_signal(&w->wake);
    }
    pthread_mutex_unlock(&w->lock);
    if (stopped) return refused(why, 503, "the server is being stopped");
    return full ? refused(why, 429, "too many requests wait already; try again later") : true;
}

uint32_t work_stop(work *w) {
    pthread_mutex_lock(&w->lock);
    w->stopped = true;
    const uint32_t left = w->waiting + w->sitting;
    pthread_mutex_unlock(&w->lock);
    return left;
}

bool work_is_stopped(work *w) {
    pthread_mutex_lock(&w->lock);
    const bool stopped = w->stopped;
    pthread_mutex_unlock(&w->lock);
    return stopped;
}

/* Under the lock. */
static void forget(work *w, job *j) {
    if (!j->done && !j->left && j->id[0]) w->counts.left++;
    j->left = true;
    pthread_cond_signal(&w->wake);
}

void work_forget(work *w, job *j) {
    pthread_mutex_lock(&w->lock);
    forget(w, j);
    pthread_mutex_unlock(&w->lock);
}

void work_leave(work *w, job *j) {
    pthread_mutex_lock(&w->lock);
    forget(w, j);
    let_go(j);
    pthread_mutex_unlock(&w->lock);
}

/* ---- readers --------------------------------------------------------------------------------- */

/* Under the lock. */
static void suspend(job *j, struct MHD_Connection *reader) {
    j->reader = reader;
    omm_mhd()->suspend_connection(reader);
}

size_t work_read(work *w, job *j, char *out, size_t size, bool *end,
                 struct MHD_Connection *reader) {
    pthread_mutex_lock(&w->lock);
    size_t n = j->out.size - j->taken;
    if (n > size) n = size;
    if (n > 0) memcpy(out, j->out.data + j->taken, n);
    j->taken += n;
    if (j->taken == j->out.size) { /* what has been sent is not kept */
        omm_buf_clear(&j->out);
        j->taken = 0;
    }
    *end = n == 0 && j->done;
    if (n == 0 && !j->done) suspend(j, reader);
    pthread_mutex_unlock(&w->lock);
    return n;
}

bool work_is_done(work *w, job *j, struct MHD_Connection *reader) {
    pthread_mutex_lock(&w->lock);
    const bool done = j->done;
    if (!done) suspend(j, reader);
    pthread_mutex_unlock(&w->lock);
    return done;
}

/* ---- the thread: what a job has come to ------------------------------------------------------ */

static void log_job(const work *w, const job *j, const char *how) {
    uint64_t prompt = 0, reused = 0, drawn = 0;
    for (uint32_t i = 0; i < j->count; i++) {
        prompt += j->choices[i].prompt_count;
        reused += j->choices[i].reused;
        drawn += j->choices[i].output.tokens;
    }
    const uint64_t now = w->o->clock.now_ms(w->o->clock.ud);
    omm_log_event(
        w->o->log, OMM_LOG_INFO, "answered", OMM_LOG_STR("id", j->id), OMM_LOG_STR("how", how),
        OMM_LOG_STR("model", j->request.model), OMM_LOG_INT("texts", (int64_t)j->count),
        OMM_LOG_INT("prompt_tokens", (int64_t)prompt), OMM_LOG_INT("reused", (int64_t)reused),
        OMM_LOG_INT("tokens", (int64_t)drawn), OMM_LOG_INT("ms", (int64_t)(now - j->begun_ms)));
}

/* Under the lock.  The thread has done all it will for this one. */
static void close_job(work *w, job *j, const char *how) {
    log_job(w, j, how);
    j->done = true;
    job **at = &w->jobs;
    while (*at != j) at = &(*at)->after;
    *at = j->after;
    wake_reader(w, j);
    let_go(j);
}

static void unseat(work *w, choice *c) {
    if (!c->sits) return;
    omm_batcher_leave(w->batcher, c->seat);
    omm_constraint_close(c->constraint);
    c->constraint = NULL;
    w->seats[c->seat] = NULL;
    c->sits = false;
}

/* Under the lock. */
static void end_choice(work *w, job *j, choice *c) {
    const bool sat = c->sits;
    unseat(w, c);
    if (c->ended) return;
    c->ended = true;
    j->ended++;
    if (sat)
        w->sitting--;
    else
        w->waiting--;
}

static void end_all(work *w, job *j) {
    for (uint32_t i = 0; i < j->count; i++) end_choice(w, j, &j->choices[i]);
}

/* Under the lock: the answer of this job is an error, or its stream ends with one. */
static void fail_job(work *w, job *j, unsigned status, const char *message) {
    fault why = {.status = status, .type = "server_error"};
    snprintf(why.message, sizeof why.message, "%s", message);
    end_all(w, j);
    const omm_err err =
        j->request.stream ? answer_broken(&j->out, &why) : answer_fault(&j->out, &why);
    (void)err; /* without memory for that either, the connection ends without a word */
    j->status = status;
    w->counts.status[status] += !j->request.stream;
    omm_log_event(w->o->log, OMM_LOG_WARN, "answer_failed", OMM_LOG_STR("id", j->id),
                  OMM_LOG_STR("why", message));
    close_job(w, j, "failed");
}

/* All texts have ended. */
static omm_err finish_job(work *w, job *j) {
    if (j->request.stream) return answer_end(&j->out, j, w->o);
    OMM_TRY(answer_whole(&j->out, j, w->o));
    j->status = 200;
    w->counts.status[200]++;
    return OMM_OK;
}

/* ---- the thread: seats ----------------------------------------------------------------------- */

static job *next_waiting(const work *w) {
    job *j = w->jobs;
    while (j && j->next == j->count) j = j->after;
    return j;
}

/* Where a token stands in the text: behind `offset` characters, and of what was drawn these bytes. */
typedef struct place {
    size_t begin, end, offset;
} place;

/* What is known of a token's likelihood, and its place, which is there for good once its end is. */
static omm_err keep_logprob(const work *w, const job *j, choice *c, uint32_t id,
                            const float *logits, place at) {
    json_t *entry = NULL;
    OMM_TRY(answer_logprob(&entry, &j->request, w->o, id, logits));
    json_t *kept = json_pack("{s:o, s:I, s:I, s:I}", "entry", entry, "begin", (json_int_t)at.begin,
                             "end", (json_int_t)at.end, "offset", (json_int_t)at.offset);
    if (kept && json_array_append_new(c->logprobs, kept) == 0) return OMM_OK;
    return omm_raise(OMM_ERR_NOMEM, "no memory for log probabilities");
}

/* The prompt's token number `index`. */
static omm_err keep_echo(const work *w, const job *j, choice *c, uint32_t index,
                         const float *logits) {
    const uint32_t id = j->request.prompts[c->index / j->request.n].ids[index];
    omm_buf fresh;
    const place at = {.offset = c->echo_characters +
                                omm_detok_breaks(&c->echo_detok, w->o->tokenizer, id)};
    OMM_TRY(keep_logprob(w, j, c, id, logits, at));
    omm_buf_init(&fresh, OMM_TOKENIZER_TEXT_MAX);
    const omm_err err = omm_detok_push(&fresh, &c->echo_detok, w->o->tokenizer, id, 0);
    c->echo_characters += omm_utf8_count(omm_buf_view(&fresh));
    omm_buf_fini(&fresh);
    return err;
}

/* Called by the batcher, on the thread. */
static void hear_row(void *ud, uint32_t seat, uint32_t position, const float *logits) {
    const work *w = (const work *)ud;
    choice *c = w->seats[seat];
    if (keep_echo(w, w->owners[seat], c, position + 1, logits) != OMM_OK) c->echo_failed = true;
}

static omm_err hold_to_grammar(work *w, const request *r, choice *c) {
    if (!r->grammar) return OMM_OK;
    if (!w->lexicon)
        OMM_TRY(omm_lexicon_open(&w->lexicon, w->o->tokenizer, w->o->model->dims.vocab));
    return omm_constraint_open(&c->constraint, r->grammar, w->lexicon);
}

static omm_err sit(work *w, job *j, choice *c) {
    const request *r = &j->request;
    const omm_tokens *prompt = &r->prompts[c->index / r->n];
    const omm_seed seed = omm_seed_from_u64(r->seed);
    OMM_TRY(hold_to_grammar(w, r, c));
    omm_batcher_text t = {.prompt = prompt->ids,
                          .count = prompt->count,
                          .adapters = r->adapters,
                          .adapter_count = r->adapter_count,
                          .sampler = r->sampler,
                          .constraint = c->constraint};
    t.sampler.rng = omm_rng_init(&seed, OMM_PURPOSE_SAMPLE, c->index % r->n, 0);
    if (r->echo && r->logprobs) {
        t.each = hear_row;
        t.each_ud = w;
        OMM_TRY(keep_echo(w, j, c, 0, NULL));
    }
    OMM_TRY(omm_batcher_sit(&c->seat, w->batcher, &t));
    c->sits = true;
    c->reused = omm_batcher_reused(w->batcher, c->seat);
    w->seats[c->seat] = c;
    w->owners[c->seat] = j;
    return OMM_OK;
}

/* Under the lock. */
static void fill_seats(work *w) {
    job *j = NULL;
    while (omm_batcher_taken(w->batcher) < w->o->batcher.seats && (j = next_waiting(w)) != NULL) {
        choice *c = &j->choices[j->next];
        omm_err err = sit(w, j, c);
        if (err == OMM_OK) {
            j->next++;
            w->waiting--;
            w->sitting++;
            w->counts.texts++;
            w->counts.prompt_tokens += c->prompt_count;
            w->counts.reused_tokens += c->reused;
            if (j->request.stream) err = answer_begin(&j->out, j, c, w->o);
        }
        if (err != OMM_OK) fail_job(w, j, 500, omm_err_sentence());
    }
}

/* Under the lock: seats of those that have left. */
static void free_seats(work *w) {
    for (job *j = w->jobs, *after = NULL; j; j = after) {
        after = j->after;
        if (!j->left) continue;
        end_all(w, j);
        close_job(w, j, "left");
    }
}

static omm_err take_token(work *w, job *j, choice *c, const omm_batcher_token *token) {
    place at = {.begin = c->output.bytes + c->output.detok.pending_count,
                .offset = c->echo_characters + c->echo_detok.pending_count + c->output.characters +
                          omm_detok_breaks(&c->output.detok, w->o->tokenizer, token->id)};
    if (c->echo_failed) return omm_raise(OMM_ERR_NOMEM, "no memory for log probabilities");
    if (j->request.draws_none) { /* it was computed for the prompt's sake */
        c->output.finish = FINISH_LENGTH;
        return j->request.stream ? answer_more(&j->out, j, c, w->o) : OMM_OK;
    }
    OMM_TRY(output_push(&c->output, token->id));
    at.end = c->output.bytes + c->output.detok.pending_count;
    if (c->logprobs && !omm_tokenizer_is_end(w->o->tokenizer, token->id))
        OMM_TRY(keep_logprob(w, j, c, token->id, token->logits, at));
    return j->request.stream ? answer_more(&j->out, j, c, w->o) : OMM_OK;
}

/* Under the lock: one token, and what it ends. */
static void deliver(work *w, const omm_batcher_token *token) {
    choice *c = w->seats[token->seat];
    job *j = w->owners[token->seat];
    if (!c) return; /* its job has failed in this step */
    if (token->err != OMM_OK) {
        fail_job(w, j, 500, token->why);
        return;
    }
    omm_err err = take_token(w, j, c, token);
    w->counts.drawn_tokens += !j->request.draws_none;
    if (err == OMM_OK && c->output.finish != FINISH_NONE) end_choice(w, j, c);
    if (err == OMM_OK && j->ended == j->count) {
        err = finish_job(w, j);
        if (err == OMM_OK) {
            close_job(w, j, "done");
            return;
        }
    }
    if (err != OMM_OK)
        fail_job(w, j, 500, omm_err_sentence());
    else if (j->request.stream && j->out.size - j->taken > w->o->unread_bytes_max)
        fail_job(w, j, 500, "the client does not read its stream");
    else if (j->request.stream)
        wake_reader(w, j);
}

static void *run(void *ud) {
    work *w = (work *)ud;
    pthread_mutex_lock(&w->lock);
    while (!w->ended) {
        free_seats(w);
        fill_seats(w);
        if (omm_batcher_taken(w->batcher) == 0) {
            if (!w->ended) pthread_cond_wait(&w->wake, &w->lock);
            continue;
        }
        pthread_mutex_unlock(&w->lock);
        size_t count = 0;
        const uint64_t begin = omm_measure_ns();
        omm_batcher_step(w->tokens, &count, w->batcher);
        pthread_mutex_lock(&w->lock);
        w->counts.steps++;
        w->counts.step_ns += omm_measure_ns() - begin;
        for (size_t i = 0; i < count; i++) deliver(w, &w->tokens[i]);
    }
    while (w->jobs) fail_job(w, w->jobs, 503, "the server was stopped");
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- open and close -------------------------------------------------------------------------- */

static omm_err open_parts(work *w) {
    const omm_serve_options *o = w->o;
    OMM_TRY(omm_batcher_open(&w->batcher, o->compute, o->model, &o->batcher));
    w->tokens = (omm_batcher_token *)omm_alloc(o->batcher.seats, sizeof *w->tokens);
    if (!w->tokens) return omm_raise(OMM_ERR_NOMEM, "no memory for tokens");
    const omm_seed seed = omm_seed_random();
    omm_hex(w->run, omm_bytes_of(seed.b, 8));
    const int why = pthread_create(&w->thread, NULL, run, w);
    if (why != 0) return omm_raise(OMM_ERR_IO, "no thread: %s", strerror(why));
    w->has_thread = true;
    return OMM_OK;
}

omm_err work_open(work **out, const omm_serve_options *o) {
    work *w = (work *)omm_alloc(1, sizeof *w);
    if (!w) return omm_raise(OMM_ERR_NOMEM, "no memory for the server");
    w->o = o;
    w->event = -1;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    const omm_err err = open_parts(w);
    if (err != OMM_OK) {
        work_close(w);
        return err;
    }
    *out = w;
    return OMM_OK;
}

void work_tell(work *w, int event) {
    w->event = event;
}

void work_end(work *w) {
    pthread_mutex_lock(&w->lock);
    w->stopped = w->ended = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    if (w->has_thread) (void)pthread_join(w->thread, NULL);
    w->has_thread = false;
}

void work_close(work *w) {
    if (!w) return;
    work_end(w);
    omm_batcher_close(w->batcher);
    omm_lexicon_close(w->lexicon);
    omm_free(w->tokens);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->wake);
    omm_free(w);
}

/* ---- counts ---------------------------------------------------------------------------------- */

void work_count_status(work *w, unsigned status) {
    pthread_mutex_lock(&w->lock);
    if (status < STATUS_MAX) w->counts.status[status]++;
    pthread_mutex_unlock(&w->lock);
}

static omm_err put_metric(omm_buf *out, const char *name, const char *type, const char *help,
                          double value) {
    return omm_buf_printf(out,
                          "# HELP meshmind_serve_%s %s\n# TYPE meshmind_serve_%s %s\n"
                          "meshmind_serve_%s %.17g\n",
                          name, help, name, type, name, value);
}

static omm_err put_answers(omm_buf *out, const counts *c) {
    OMM_TRY(omm_buf_printf(out, "# HELP meshmind_serve_answers_total answers by status of HTTP; "
                                "streams count as 200 when they begin\n"
                                "# TYPE meshmind_serve_answers_total counter\n"));
    for (unsigned i = 0; i < STATUS_MAX; i++)
        if (c->status[i] > 0)
            OMM_TRY(omm_buf_printf(out, "meshmind_serve_answers_total{code=\"%u\"} %llu\n", i,
                                   (unsigned long long)c->status[i]));
    return OMM_OK;
}

omm_err work_metrics(omm_buf *out, work *w) {
    pthread_mutex_lock(&w->lock);
    const counts c = w->counts;
    const uint32_t waiting = w->waiting, sitting = w->sitting;
    pthread_mutex_unlock(&w->lock);
    OMM_TRY(put_answers(out, &c));
    OMM_TRY(put_metric(out, "texts_total", "counter", "texts begun", (double)c.texts));
    OMM_TRY(put_metric(out, "left_total", "counter", "requests whose client went away",
                       (double)c.left));
    OMM_TRY(put_metric(out, "prompt_tokens_total", "counter", "tokens of prompts",
                       (double)c.prompt_tokens));
    OMM_TRY(put_metric(out, "reused_tokens_total", "counter",
                       "tokens of prompts that had been computed before", (double)c.reused_tokens));
    OMM_TRY(put_metric(out, "tokens_total", "counter", "tokens drawn", (double)c.drawn_tokens));
    OMM_TRY(put_metric(out, "steps_total", "counter", "passes through the model", (double)c.steps));
    OMM_TRY(
        put_metric(out, "step_seconds_total", "counter", "time in them", (double)c.step_ns / 1e9));
    OMM_TRY(put_metric(out, "seats", "gauge", "texts at once", w->o->batcher.seats));
    OMM_TRY(put_metric(out, "seats_taken", "gauge", "texts that are being written", sitting));
    return put_metric(out, "waiting", "gauge", "texts that wait for a seat", waiting);
}

/* evaluate.c - one row per held-out example: its loss, and what greedy generation got right.
 *
 * A worker has several seats, an example in each: its prompt, then its reply token by token, then its
 * losses.  What all seats need next runs as one batch, and a seat whose example is done takes the next
 * one at once.  Each row of a batch has the bytes it would have alone, so neither the grouping nor the
 * workers can be seen in the result. */
#include "omm/evaluate.h"

#include "omm/chat.h"
#include "omm/kernels.h"
#include "omm/kv.h"
#include "omm/model.h"
#include "omm/prefix.h"
#include "omm/sample.h"
#include "omm/session.h"
#include "omm/tokenizer.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOGIT_FLOATS = 1 << 22,
    REPLY_BYTES_MAX = 1 << 20,
    SENTENCE_BYTES = 256,
    SEATS_MAX = 24, /* examples at a time: beyond, a batch of one token each gains little */
    SEATS_KEPT = 4  /* one session's worth of beginnings is kept for so many seats */
};

/* What an example needs next. */
typedef enum seat_stage { SEAT_FREE, SEAT_PROMPT, SEAT_REPLY, SEAT_LOSSES } seat_stage;

/* One example at work. */
typedef struct seat {
    omm_session *session;
    seat_stage stage;
    size_t index; /* of the example */
    const omm_example *x;
    omm_eval_item *item;
    omm_buf reply;
    uint32_t next; /* id that generation has come to */
    double nll;
    size_t at; /* the id of x that the next loss is about */
} seat;

/* One per worker. */
typedef struct judge {
    omm_compute compute;
    omm_group *group;
    omm_prefix_store *prefixes; /* NULL: no two examples begin alike */
    seat seats[SEATS_MAX];
    float *logits; /* (piece_max * vocab) */
    float *lse;    /* (piece_max) */
    omm_err err;
    size_t err_item;
    char sentence[SENTENCE_BYTES];
} judge;

typedef struct evaluation {
    omm_eval_item *items;
    const omm_model *model;
    const omm_dataset *data;
    const omm_eval_options *options;
    judge *judges;
    omm_adapter *adapter; /* or NULL */
    char **replies;       /* (items), owned until they are handed over; NULL: not wanted */
    atomic_size_t taken;  /* examples that seats have taken, in order; or more than there are */
    atomic_size_t done;
    unsigned workers;
    size_t seats;     /* of one worker */
    size_t piece_max; /* positions whose logits are held at once; at least seats */
    size_t kept;      /* sessions' worth of beginnings that a judge keeps; 0: none are shared */
    uint32_t positions_max;
} evaluation;

/* --- loss ---------------------------------------------------------------------------------- */

/* Losses of the learned ones among ids[at .. at + n), given logits of the positions before each. */
static void add_losses(const evaluation *e, judge *j, seat *s, const float *logits, size_t n) {
    size_t vocab = e->model->dims.vocab;
    omm_row_lse(&j->compute, NULL, j->lse, logits, n, vocab);
    for (size_t i = 0; i < n; i++)
        if (s->x->learn[s->at + i])
            s->nll += (double)(j->lse[i] - logits[i * vocab + s->x->ids[s->at + i]]);
    s->at += n;
}

/* --- generation ---------------------------------------------------------------------------- */

/* Tokens of a reply: those that are asked for, as far as the model can see. */
static uint32_t reply_max(const evaluation *e, const omm_example *x) {
    const uint32_t context = e->model->dims.context, asked = e->options->new_tokens_max;
    const uint32_t left = context > x->prompt_count ? context - x->prompt_count : 0;
    return asked < left ? asked : left;
}

/* Take the id that generation has come to; true when the next one is wanted. */
static omm_err take_next(const evaluation *e, seat *s, bool *more) {
    const omm_tokenizer *tokenizer = e->options->tokenizer;
    const uint32_t limit = reply_max(e, s->x);
    *more = false;
    if (s->item->generated >= limit) return OMM_OK;
    s->item->generated++;
    if (omm_tokenizer_is_end(tokenizer, s->next)) return OMM_OK;
    OMM_TRY(omm_tokenizer_decode(&s->reply, tokenizer, &s->next, 1, 0));
    *more = s->item->generated < limit;
    return OMM_OK;
}

static bool has_calls(omm_chat_reply *reply, omm_bytes text, omm_calls_form form) {
    if (omm_chat_parse(reply, text, form, NULL, NULL) != OMM_OK) return false;
    if (reply->call_count > 0) return true;
    omm_chat_reply_fini(reply);
    return false;
}

/* As many calls of the same tools in the same order, and whether their arguments are equal, too. */
static bool same_tools(bool *same_arguments, const omm_chat_reply *got,
                       const omm_chat_reply *want) {
    if (got->call_count != want->call_count) return false;
    *same_arguments = true;
    for (size_t i = 0; i < got->call_count; i++) {
        if (strcmp(got->calls[i].name, want->calls[i].name) != 0) return false;
        if (!json_equal(got->calls[i].arguments, want->calls[i].arguments)) *same_arguments = false;
    }
    return true;
}

static void judge_call(omm_eval_item *item, omm_bytes text, omm_bytes reference,
                       omm_calls_form form) {
    omm_chat_reply got, want;
    bool same_arguments = false;
    if (!has_calls(&got, text, form)) return;
    item->call_parses = true;
    if (has_calls(&want, reference, form)) {
        item->tool_right = same_tools(&same_arguments, &got, &want);
        item->call_exact = item->tool_right && same_arguments;
        omm_chat_reply_fini(&want);
    }
    omm_chat_reply_fini(&got);
}

static void judge_reply(const evaluation *e, const seat *s) {
    omm_bytes text = omm_buf_view(&s->reply), reference = omm_bytes_str(s->x->reply);
    s->item->reply_exact = omm_bytes_equal(text, reference);
    if (s->x->has_call)
        judge_call(s->item, text, reference, omm_chat_calls_of(e->options->tokenizer));
}

/* --- a seat -------------------------------------------------------------------------------- */

static omm_err sit(const evaluation *e, judge *j, seat *s, size_t index) {
    s->stage = SEAT_PROMPT;
    s->index = index;
    s->x = omm_dataset_example(e->data, index);
    s->item = &e->items[index];
    s->at = s->x->prompt_count;
    s->nll = 0;
    *s->item = (omm_eval_item){.is_call = s->x->has_call, .has_reply = s->x->reply != NULL};
    omm_buf_clear(&s->reply);
    omm_session_truncate(s->session, 0);
    if (!j->prefixes) return OMM_OK;
    return omm_prefix_fetch(j->prefixes, s->session, s->x->ids, s->x->prompt_count - 1);
}

/* One more token of the reply, or its end: back to the prompt, for the losses. */
static omm_err go_on(const evaluation *e, seat *s, const float *logits) {
    const uint32_t prompt = s->x->prompt_count;
    bool more = false;
    s->next = omm_argmax(logits, e->model->dims.vocab);
    OMM_TRY(take_next(e, s, &more));
    s->stage = more ? SEAT_REPLY : SEAT_LOSSES;
    if (more) return OMM_OK;
    judge_reply(e, s);
    OMM_ASSERT(omm_session_truncate(s->session, prompt) == prompt);
    return OMM_OK;
}

static omm_err keep_reply(char **kept, const omm_buf *reply) {
    char *text = omm_alloc(reply->size + 1, 1);
    if (!text) return omm_raise(OMM_ERR_NOMEM, "no memory for a reply");
    if (reply->size) memcpy(text, reply->data, reply->size);
    *kept = text;
    return OMM_OK;
}

static omm_err stand_up(evaluation *e, seat *s) {
    if (e->replies) OMM_TRY(keep_reply(&e->replies[s->index], &s->reply));
    s->item->nll = s->nll;
    s->item->tokens = s->x->learn_count;
    s->stage = SEAT_FREE;
    atomic_fetch_add(&e->done, 1);
    return OMM_OK;
}

/* What follows from logits[rows][vocab] of the seat's part of a batch. */
static omm_err take_logits(evaluation *e, judge *j, seat *s, const float *logits, size_t rows) {
    if (s->stage == SEAT_REPLY) {
        OMM_TRY(go_on(e, s, logits));
    } else if (s->stage == SEAT_LOSSES) {
        add_losses(e, j, s, logits, rows);
    } else {
        if (j->prefixes) OMM_TRY(omm_prefix_keep(j->prefixes, s->session));
        add_losses(e, j, s, logits, 1);
        s->stage = SEAT_LOSSES;
        if (s->x->reply && e->options->new_tokens_max > 0) OMM_TRY(go_on(e, s, logits));
    }
    return s->stage == SEAT_LOSSES && s->at >= s->x->count ? stand_up(e, s) : OMM_OK;
}

/* --- a batch ------------------------------------------------------------------------------- */

/* What a seat needs next, with logits of at most `room` positions; those of losses are about the ids
 * after each. */
static omm_part part_of(const seat *s, size_t room) {
    const uint32_t position = omm_session_position(s->session);
    const size_t left = s->x->count - s->at;
    switch (s->stage) {
    case SEAT_PROMPT:
        return (omm_part){s->session, s->x->ids + position, s->x->prompt_count - position,
                          OMM_LOGITS_LAST};
    case SEAT_REPLY: return (omm_part){s->session, &s->next, 1, OMM_LOGITS_LAST};
    default:
        return (omm_part){s->session, s->x->ids + s->at - 1, left < room ? left : room,
                          OMM_LOGITS_EVERY};
    }
}

/* Of all seats but those whose losses find no room among piece_max logits. */
static size_t next_parts(const evaluation *e, judge *j, omm_part *parts, seat **owners) {
    size_t n = 0, room = e->piece_max;
    for (unsigned losses = 0; losses < 2; losses++)
        for (size_t i = 0; i < e->seats && room > 0; i++) {
            seat *s = &j->seats[i];
            if (s->stage == SEAT_FREE || (s->stage == SEAT_LOSSES) != (losses == 1)) continue;
            owners[n] = s;
            parts[n] = part_of(s, room);
            room -= losses ? parts[n].count : 1;
            n++;
        }
    return n;
}

static omm_err run_batch(evaluation *e, judge *j, bool *any) {
    omm_part parts[SEATS_MAX];
    seat *owners[SEATS_MAX];
    const size_t vocab = e->model->dims.vocab, n = next_parts(e, j, parts, owners);
    const float *logits = j->logits;
    *any = n > 0;
    if (n == 0) return OMM_OK;
    if (e->options->cancelled && e->options->cancelled(e->options->ud))
        return omm_raise(OMM_ERR_CANCELLED, "evaluation stopped");
    OMM_TRY(omm_group_append(j->group, parts, n, j->logits));
    for (size_t i = 0; i < n; i++) {
        const size_t rows = parts[i].logits == OMM_LOGITS_EVERY ? parts[i].count : 1;
        OMM_TRY(take_logits(e, j, owners[i], logits, rows));
        logits += rows * vocab;
    }
    return OMM_OK;
}

/* --- a worker ------------------------------------------------------------------------------ */

/* Free seats take the next examples. */
static omm_err fill_seats(evaluation *e, judge *j) {
    const size_t all = omm_dataset_count(e->data);
    for (size_t i = 0; i < e->seats; i++) {
        seat *s = &j->seats[i];
        if (s->stage != SEAT_FREE) continue;
        const size_t index = atomic_fetch_add(&e->taken, 1);
        if (index >= all) return OMM_OK;
        j->err_item = index;
        OMM_TRY(sit(e, j, s, index));
    }
    return OMM_OK;
}

static omm_err run_seats(evaluation *e, judge *j) {
    for (bool any = true; any;) {
        const size_t done = atomic_load(&e->done);
        OMM_TRY(fill_seats(e, j));
        OMM_TRY(run_batch(e, j, &any));
        /* the calling thread tells */
        if (j == e->judges && e->options->progress && atomic_load(&e->done) > done)
            e->options->progress(e->options->ud, atomic_load(&e->done), omm_dataset_count(e->data));
    }
    return OMM_OK;
}

static int by_index(const void *a, const void *b) {
    const size_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* What fails together is done again one by one, in order, so that the failure has its example's number
 * whatever the grouping. */
static omm_err run_alone(evaluation *e, judge *j) {
    size_t again[SEATS_MAX], count = 0;
    for (size_t i = 0; i < e->seats; i++) {
        if (j->seats[i].stage != SEAT_FREE) again[count++] = j->seats[i].index;
        j->seats[i].stage = SEAT_FREE;
    }
    qsort(again, count, sizeof *again, by_index);
    for (size_t i = 0; i < count; i++) {
        j->err_item = again[i];
        OMM_TRY(sit(e, j, &j->seats[0], again[i]));
        for (bool any = true; any;) OMM_TRY(run_batch(e, j, &any));
    }
    return OMM_OK;
}

/* After a failure no worker takes another example; those before it have all been taken. */
static void judge_task(void *ud, size_t task, unsigned worker) {
    evaluation *e = ud;
    judge *j = &e->judges[worker];
    (void)task;
    if (j->err != OMM_OK) return;
    omm_err err = run_seats(e, j);
    while (err != OMM_OK && err != OMM_ERR_CANCELLED) {
        err = run_alone(e, j);
        if (err != OMM_OK) break;
        err = run_seats(e, j);
    }
    if (err == OMM_OK) return;
    atomic_store(&e->taken, omm_dataset_count(e->data));
    j->err = err;
    snprintf(j->sentence, sizeof j->sentence, "%s", omm_err_sentence());
}

/* --- all ----------------------------------------------------------------------------------- */

/* Whole first blocks, which are what a store can share. */
static int by_beginning(const void *a, const void *b) {
    const uint32_t *const *x = a, *const *y = b;
    return memcmp(*x, *y, OMM_KV_BLOCK * sizeof **x);
}

/* Do two prompts begin with the same block, as those of one long system turn do? */
static omm_err find_shared(bool *out, const omm_dataset *data) {
    const size_t all = omm_dataset_count(data);
    size_t n = 0;
    const uint32_t **begins = omm_alloc(all + 1, sizeof(*begins));
    if (!begins) return omm_raise(OMM_ERR_NOMEM, "no memory for the beginnings of examples");
    for (size_t i = 0; i < all; i++) {
        const omm_example *x = omm_dataset_example(data, i);
        if (x->prompt_count > OMM_KV_BLOCK) begins[n++] = x->ids;
    }
    qsort(begins, n, sizeof *begins, by_beginning);
    *out = false;
    for (size_t i = 1; i < n; i++) *out = *out || by_beginning(&begins[i - 1], &begins[i]) == 0;
    omm_free(begins);
    return OMM_OK;
}

static omm_err measure_sizes(evaluation *e) {
    bool shared = false;
    size_t vocab = e->model->dims.vocab, count = omm_dataset_count(e->data);
    e->seats = count / ((size_t)e->workers * 3); /* turns enough that the seats end together */
    if (e->seats < 1) e->seats = 1;
    if (e->seats > SEATS_MAX) e->seats = SEATS_MAX;
    e->piece_max = LOGIT_FLOATS / vocab;
    if (e->piece_max < e->seats) e->piece_max = e->seats;
    uint32_t longest = 1;
    for (size_t i = 0; i < count; i++) {
        const omm_example *x = omm_dataset_example(e->data, i);
        const uint32_t reply = reply_max(e, x);
        if (x->count > longest) longest = x->count;
        if (x->prompt_count + reply > longest) longest = x->prompt_count + reply;
    }
    e->positions_max = longest;
    OMM_TRY(find_shared(&shared, e->data));
    e->kept = shared ? (e->seats + SEATS_KEPT - 1) / SEATS_KEPT : 0;
    return OMM_OK;
}

omm_err omm_eval_room_of(omm_eval_room *out, const omm_model *model, const omm_dataset *data,
                         unsigned workers, uint32_t new_tokens_max) {
    const omm_eval_options options = {.new_tokens_max = new_tokens_max};
    evaluation e = {.model = model, .data = data, .options = &options, .workers = workers};
    OMM_TRY(measure_sizes(&e));
    *out = (omm_eval_room){workers, e.seats + e.kept, e.positions_max, e.piece_max};
    return OMM_OK;
}

static omm_err open_prefixes(const evaluation *e, judge *j, const omm_session_options *options) {
    const omm_model_dims *d = &e->model->dims;
    const size_t block = omm_kv_block_bytes(options->kv_type, d->kv_heads, d->head_dim);
    const size_t blocks = ((size_t)e->positions_max + OMM_KV_BLOCK - 1) / OMM_KV_BLOCK;
    if (e->kept == 0) return OMM_OK;
    return omm_prefix_open(&j->prefixes, j->group, e->kept * blocks * d->layers * block);
}

static omm_err open_judge(const evaluation *e, judge *j, const omm_adapter *adapter, omm_isa isa) {
    size_t vocab = e->model->dims.vocab;
    omm_session_options options = omm_session_options_default();
    options.positions_max = e->positions_max;
    options.rope_positions = e->options->rope_positions;
    options.rollback_max = e->options->new_tokens_max; /* from a generated text to its prompt */
    if (options.rollback_max > e->positions_max) options.rollback_max = e->positions_max;
    OMM_TRY(omm_compute_init(&j->compute, NULL, isa));
    OMM_TRY(omm_group_open(&j->group, &j->compute, e->model, &options));
    OMM_TRY(open_prefixes(e, j, &options));
    for (size_t i = 0; i < e->seats; i++) {
        omm_buf_init(&j->seats[i].reply, REPLY_BYTES_MAX);
        OMM_TRY(omm_session_open_in(&j->seats[i].session, j->group));
        if (adapter) OMM_TRY(omm_session_set_adapters(j->seats[i].session, &adapter, 1));
    }
    j->logits = omm_alloc_aligned(e->piece_max * vocab, sizeof(float));
    j->lse = omm_alloc(e->piece_max, sizeof(float));
    if (!j->logits || !j->lse) return omm_raise(OMM_ERR_NOMEM, "no memory for logits");
    return OMM_OK;
}

static omm_err open_judges(evaluation *e, const omm_lora *lora, omm_isa isa) {
    e->judges = omm_alloc(e->workers, sizeof *e->judges);
    if (!e->judges) return omm_raise(OMM_ERR_NOMEM, "no memory for %u judges", e->workers);
    if (lora) OMM_TRY(omm_adapter_open(&e->adapter, e->model, lora, 1.0F));
    for (unsigned i = 0; i < e->workers; i++)
        OMM_TRY(open_judge(e, &e->judges[i], e->adapter, isa));
    return OMM_OK;
}

static void close_judges(evaluation *e) {
    for (unsigned i = 0; e->judges && i < e->workers; i++) {
        judge *j = &e->judges[i];
        for (size_t k = 0; k < SEATS_MAX; k++) {
            omm_session_close(j->seats[k].session);
            omm_buf_fini(&j->seats[k].reply);
        }
        if (j->prefixes && e->options->reused)
            *e->options->reused += omm_prefix_stats_of(j->prefixes).positions_reused;
        omm_prefix_close(j->prefixes);
        omm_group_close(j->group);
        omm_compute_fini(&j->compute);
        omm_free(j->logits);
        omm_free(j->lse);
    }
    omm_adapter_close(e->adapter);
    omm_free(e->judges);
}

/* The failure of the lowest item, whoever met it. */
static omm_err first_failure(const evaluation *e) {
    const judge *worst = NULL;
    for (unsigned i = 0; i < e->workers; i++) {
        const judge *j = &e->judges[i];
        if (j->err != OMM_OK && (!worst || j->err_item < worst->err_item)) worst = j;
    }
    if (!worst) return OMM_OK;
    return omm_raise(worst->err, "example %zu: %s", worst->err_item, worst->sentence);
}

/* Move the kept replies into the caller's arena; on any error only free them. */
static omm_err hand_over_replies(const evaluation *e, omm_err err) {
    size_t count = omm_dataset_count(e->data);
    for (size_t i = 0; e->replies && i < count; i++) {
        if (err == OMM_OK && e->replies[i]) {
            e->items[i].reply = omm_arena_strdup(e->options->replies, e->replies[i]);
            if (!e->items[i].reply) err = omm_raise(OMM_ERR_NOMEM, "no memory for the replies");
        }
        omm_free(e->replies[i]);
    }
    omm_free(e->replies);
    return err;
}

omm_err omm_evaluate(omm_eval_item *items, const omm_model *model, const omm_lora *adapter,
                     const omm_dataset *data, const omm_compute *compute,
                     const omm_eval_options *options) {
    OMM_ASSERT(options->tokenizer || options->new_tokens_max == 0);
    evaluation e = {.items = items,
                    .model = model,
                    .data = data,
                    .options = options,
                    .workers = omm_pool_threads(compute->pool)};
    size_t count = omm_dataset_count(data);
    memset(items, 0, count * sizeof *items);
    omm_err err = measure_sizes(&e);
    if (err == OMM_OK) err = open_judges(&e, adapter, compute->isa);
    if (err == OMM_OK && options->replies) {
        e.replies = omm_alloc(count, sizeof *e.replies);
        if (!e.replies) err = omm_raise(OMM_ERR_NOMEM, "no memory for the replies");
    }
    if (err == OMM_OK) {
        omm_pool_run(compute->pool, judge_task, &e, e.workers);
        err = first_failure(&e);
    }
    err = hand_over_replies(&e, err);
    close_judges(&e);
    return err;
}

omm_err omm_eval_replies_cut(size_t *count, const omm_dataset *data, const omm_tokenizer *tokenizer,
                             uint32_t new_tokens_max) {
    omm_tokens tokens;
    omm_err err = OMM_OK;
    omm_tokens_init(&tokens, REPLY_BYTES_MAX);
    *count = 0;
    for (size_t i = 0; i < omm_dataset_count(data) && err == OMM_OK; i++) {
        const omm_example *x = omm_dataset_example(data, i);
        if (!x->reply) continue;
        tokens.count = 0;
        err =
            omm_tokenizer_encode(&tokens, tokenizer, omm_bytes_str(x->reply), OMM_TOKENIZE_SPECIAL);
        *count += tokens.count > new_tokens_max;
    }
    omm_tokens_fini(&tokens);
    return err;
}

omm_eval_summary omm_eval_summarise(const omm_eval_item *items, size_t count) {
    omm_eval_summary s = {.items = count};
    double tokens = 0;
    for (size_t i = 0; i < count; i++) {
        const omm_eval_item *x = &items[i];
        s.loss += x->nll;
        tokens += (double)x->tokens;
        s.calls += x->is_call;
        s.replies += x->has_reply && !x->is_call;
        s.reply_exact += !x->is_call && x->reply_exact;
        s.call_parses += x->call_parses;
        s.tool_right += x->tool_right;
        s.call_exact += x->call_exact;
    }
    s.loss = tokens > 0 ? s.loss / tokens : 0;
    return s;
}

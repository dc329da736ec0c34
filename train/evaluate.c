/* evaluate.c - one row per held-out example: its loss, and what greedy generation got right.
 *
 * A worker takes several examples at a time, which run as one batch; each row of the batch has the
 * bytes it would have alone, so neither the grouping nor the workers can be seen in the result. */
#include "omm/evaluate.h"

#include "omm/chat.h"
#include "omm/kernels.h"
#include "omm/kv.h"
#include "omm/model.h"
#include "omm/prefix.h"
#include "omm/session.h"
#include "omm/tokenizer.h"

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

/* One example at work. */
typedef struct seat {
    omm_session *session;
    const omm_example *x;
    omm_eval_item *item;
    omm_buf reply;
    uint32_t next;  /* id that generation has come to */
    bool generates; /* it goes on */
    double nll;
    size_t at; /* ids in the session, while losses are measured */
} seat;

/* One per worker; nothing in it outlives a task. */
typedef struct judge {
    omm_compute compute;
    omm_group *group;
    omm_prefix_store *prefixes; /* NULL: no two examples begin alike */
    seat seats[SEATS_MAX];
    float *prompts; /* (seats * vocab): what follows each prompt */
    float *logits;  /* (piece_max * vocab) */
    float *lse;     /* (piece_max) */
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
    unsigned workers;
    size_t seats;     /* examples of one task */
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
}

/* Pieces of several examples, together at most piece_max positions. */
static size_t next_pieces(const evaluation *e, judge *j, size_t count, omm_part *parts,
                          seat **owners) {
    size_t rows = 0, n = 0;
    for (size_t i = 0; i < count && rows < e->piece_max; i++) {
        seat *s = &j->seats[i];
        if (s->at + 1 >= s->x->count) continue;
        size_t m = s->x->count - 1 - s->at;
        if (m > e->piece_max - rows) m = e->piece_max - rows;
        owners[n] = s;
        parts[n++] = (omm_part){s->session, s->x->ids + s->at, m, OMM_LOGITS_EVERY};
        rows += m;
    }
    return n;
}

/* The sessions hold the prompts, j->prompts what follows each.  Leaves the sessions longer. */
static omm_err measure_losses(const evaluation *e, judge *j, size_t count) {
    omm_part parts[SEATS_MAX];
    seat *owners[SEATS_MAX];
    size_t vocab = e->model->dims.vocab, n = 0;
    for (size_t i = 0; i < count; i++) {
        seat *s = &j->seats[i];
        s->at = s->x->prompt_count;
        s->nll = 0;
        add_losses(e, j, s, j->prompts + i * vocab, 1);
    }
    while ((n = next_pieces(e, j, count, parts, owners)) > 0) {
        OMM_TRY(omm_group_append(j->group, parts, n, j->logits));
        const float *logits = j->logits;
        for (size_t i = 0; i < n; i++) {
            owners[i]->at++; /* logits of a position are about the next */
            add_losses(e, j, owners[i], logits, parts[i].count);
            owners[i]->at += parts[i].count - 1;
            logits += parts[i].count * vocab;
        }
    }
    for (size_t i = 0; i < count; i++) {
        j->seats[i].item->nll = j->seats[i].nll;
        j->seats[i].item->tokens = j->seats[i].x->learn_count;
    }
    return OMM_OK;
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

static omm_err generate(const evaluation *e, judge *j, size_t count) {
    size_t vocab = e->model->dims.vocab;
    for (size_t i = 0; i < count; i++) {
        j->seats[i].next = omm_argmax(j->prompts + i * vocab, (uint32_t)vocab);
        j->seats[i].generates = j->seats[i].x->reply != NULL;
        omm_buf_clear(&j->seats[i].reply);
    }
    for (;;) {
        omm_part parts[SEATS_MAX];
        seat *owners[SEATS_MAX];
        size_t n = 0;
        for (size_t i = 0; i < count; i++) {
            seat *s = &j->seats[i];
            if (s->generates) OMM_TRY(take_next(e, s, &s->generates));
            if (!s->generates) continue;
            owners[n] = s;
            parts[n++] = (omm_part){s->session, &s->next, 1, OMM_LOGITS_LAST};
        }
        if (n == 0) return OMM_OK;
        OMM_TRY(omm_group_append(j->group, parts, n, j->logits));
        for (size_t i = 0; i < n; i++)
            owners[i]->next = omm_argmax(j->logits + i * vocab, (uint32_t)vocab);
    }
}

static bool is_one_call(omm_chat_reply *reply, omm_bytes text) {
    if (omm_chat_parse(reply, text) != OMM_OK) return false;
    if (reply->call_count == 1) return true;
    omm_chat_reply_fini(reply);
    return false;
}

static void judge_call(omm_eval_item *item, omm_bytes text, omm_bytes reference) {
    omm_chat_reply got, want;
    if (!is_one_call(&got, text)) return;
    item->call_parses = true;
    if (is_one_call(&want, reference)) {
        item->tool_right = strcmp(got.calls[0].name, want.calls[0].name) == 0;
        item->call_exact =
            item->tool_right && json_equal(got.calls[0].arguments, want.calls[0].arguments);
        omm_chat_reply_fini(&want);
    }
    omm_chat_reply_fini(&got);
}

static void judge_reply(const seat *s) {
    omm_bytes text = omm_buf_view(&s->reply), reference = omm_bytes_str(s->x->reply);
    s->item->reply_exact = omm_bytes_equal(text, reference);
    if (s->x->has_call) judge_call(s->item, text, reference);
}

/* --- a task -------------------------------------------------------------------------------- */

static omm_err run_prompts(const evaluation *e, judge *j, size_t first, size_t count) {
    omm_part parts[SEATS_MAX] = {{0}};
    for (size_t i = 0; i < count; i++) {
        seat *s = &j->seats[i];
        s->x = omm_dataset_example(e->data, first + i);
        s->item = &e->items[first + i];
        *s->item = (omm_eval_item){.is_call = s->x->has_call, .has_reply = s->x->reply != NULL};
        const uint32_t prompt = s->x->prompt_count;
        omm_session_truncate(s->session, 0);
        if (j->prefixes) OMM_TRY(omm_prefix_fetch(j->prefixes, s->session, s->x->ids, prompt - 1));
        const uint32_t had = omm_session_position(s->session);
        parts[i] = (omm_part){s->session, s->x->ids + had, prompt - had, OMM_LOGITS_LAST};
    }
    OMM_TRY(omm_group_append(j->group, parts, count, j->prompts));
    for (size_t i = 0; j->prefixes && i < count; i++)
        OMM_TRY(omm_prefix_keep(j->prefixes, j->seats[i].session));
    return OMM_OK;
}

static omm_err run_items(const evaluation *e, judge *j, size_t first, size_t count) {
    OMM_TRY(run_prompts(e, j, first, count));
    if (e->options->new_tokens_max > 0) {
        OMM_TRY(generate(e, j, count));
        for (size_t i = 0; i < count; i++) {
            if (j->seats[i].x->reply) judge_reply(&j->seats[i]);
            uint32_t prompt = j->seats[i].x->prompt_count;
            OMM_ASSERT(omm_session_truncate(j->seats[i].session, prompt) == prompt);
        }
    }
    return measure_losses(e, j, count);
}

static omm_err keep_reply(char **kept, const omm_buf *reply) {
    char *text = omm_alloc(reply->size + 1, 1);
    if (!text) return omm_raise(OMM_ERR_NOMEM, "no memory for a reply");
    if (reply->size) memcpy(text, reply->data, reply->size);
    *kept = text;
    return OMM_OK;
}

static omm_err run_and_keep(evaluation *e, judge *j, size_t first, size_t count) {
    OMM_TRY(run_items(e, j, first, count));
    for (size_t i = 0; e->replies && i < count; i++)
        OMM_TRY(keep_reply(&e->replies[first + i], &j->seats[i].reply));
    return OMM_OK;
}

/* What fails together is done again one by one, so that the failure has its example's number
 * whatever the grouping. */
static omm_err run_task(evaluation *e, judge *j, size_t first, size_t count) {
    omm_err err = run_and_keep(e, j, first, count);
    for (size_t i = 0; err != OMM_OK && i < count; i++) {
        j->err_item = first + i;
        if (e->replies) omm_free(e->replies[first + i]);
        if (e->replies) e->replies[first + i] = NULL;
        omm_err own = run_and_keep(e, j, first + i, 1);
        if (own != OMM_OK) return own;
        if (i + 1 == count) err = OMM_OK;
    }
    return err;
}

static void items_task(void *ud, size_t task, unsigned worker) {
    evaluation *e = ud;
    judge *j = &e->judges[worker];
    if (j->err != OMM_OK) return;
    const size_t all = omm_dataset_count(e->data), first = task * e->seats;
    const size_t count = all - first < e->seats ? all - first : e->seats;
    omm_err err = OMM_OK;
    j->err_item = first;
    if (e->options->cancelled && e->options->cancelled(e->options->ud))
        err = omm_raise(OMM_ERR_CANCELLED, "evaluation stopped");
    if (err == OMM_OK) err = run_task(e, j, first, count);
    if (err != OMM_OK) {
        j->err = err;
        snprintf(j->sentence, sizeof j->sentence, "%s", omm_err_sentence());
    }
    if (worker == 0 && e->options->progress) /* workers keep pace: an estimate of the whole */
        e->options->progress(e->options->ud, first + count, all);
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
    e->seats = count / ((size_t)e->workers * 3); /* tasks enough that the workers end together */
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
    *out = (omm_eval_room){workers, e.seats + e.kept, e.positions_max, e.piece_max + e.seats};
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
    j->prompts = omm_alloc_aligned(e->seats * vocab, sizeof(float));
    j->logits = omm_alloc_aligned(e->piece_max * vocab, sizeof(float));
    j->lse = omm_alloc(e->piece_max, sizeof(float));
    if (!j->prompts || !j->logits || !j->lse)
        return omm_raise(OMM_ERR_NOMEM, "no memory for logits");
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
        omm_free(j->prompts);
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
        omm_pool_run(compute->pool, items_task, &e, (count + e.seats - 1) / e.seats);
        err = first_failure(&e);
    }
    err = hand_over_replies(&e, err);
    close_judges(&e);
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

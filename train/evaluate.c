/* evaluate.c - one row per held-out example: its loss, and what greedy generation got right. */
#include "omm/evaluate.h"

#include "omm/chat.h"
#include "omm/kernels.h"
#include "omm/model.h"
#include "omm/session.h"
#include "omm/tokenizer.h"

#include <stdio.h>
#include <string.h>

enum { LOGIT_FLOATS = 1 << 19, REPLY_BYTES_MAX = 1 << 20, SENTENCE_BYTES = 256 };

/* One per worker; nothing in it outlives an item. */
typedef struct judge {
    omm_compute compute;
    omm_session *session;
    float *logits; /* (piece_max * vocab) */
    float *row;    /* (vocab) of the last generated position */
    float *lse;    /* (piece_max) */
    omm_buf reply;
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
    char **replies; /* (items), owned until they are handed over; NULL: not wanted */
    unsigned workers;
    size_t piece_max; /* positions whose logits are held at once */
    uint32_t positions_max;
} evaluation;

/* --- loss ---------------------------------------------------------------------------------- */

/* Loss of the learned ones among ids[at .. at + n), given logits of the positions before each. */
static void add_losses(const evaluation *e, judge *j, double *sum, const omm_example *x, size_t at,
                       size_t n) {
    size_t vocab = e->model->dims.vocab;
    omm_row_lse(&j->compute, NULL, j->lse, j->logits, n, vocab);
    for (size_t i = 0; i < n; i++)
        if (x->learn[at + i]) *sum += (double)(j->lse[i] - j->logits[i * vocab + x->ids[at + i]]);
}

/* The session holds the prompt, j->logits its last row.  Leaves the session longer. */
static omm_err measure_loss(const evaluation *e, judge *j, omm_eval_item *item,
                            const omm_example *x) {
    double sum = 0;
    size_t at = x->prompt_count;
    add_losses(e, j, &sum, x, at, 1);
    while (at + 1 < x->count) {
        size_t n = x->count - 1 - at;
        if (n > e->piece_max) n = e->piece_max;
        OMM_TRY(omm_session_append(j->session, x->ids + at, n, j->logits, true));
        add_losses(e, j, &sum, x, at + 1, n);
        at += n;
    }
    item->nll = sum;
    item->tokens = x->learn_count;
    return OMM_OK;
}

/* --- generation ---------------------------------------------------------------------------- */

static omm_err generate(const evaluation *e, judge *j, omm_eval_item *item) {
    const omm_tokenizer *tokenizer = e->options->tokenizer;
    uint32_t left = omm_session_positions_max(j->session) - omm_session_position(j->session);
    uint32_t limit = e->options->new_tokens_max < left ? e->options->new_tokens_max : left;
    omm_buf_clear(&j->reply);
    while (item->generated < limit) {
        uint32_t id = omm_argmax(j->row, e->model->dims.vocab);
        item->generated++;
        if (omm_tokenizer_is_end(tokenizer, id)) break;
        unsigned flags = item->generated > 1 ? OMM_DETOKENIZE_CONTINUE : 0;
        OMM_TRY(omm_tokenizer_decode(&j->reply, tokenizer, &id, 1, flags));
        if (item->generated < limit) OMM_TRY(omm_session_append(j->session, &id, 1, j->row, false));
    }
    return OMM_OK;
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

static void judge_reply(const judge *j, omm_eval_item *item, const omm_example *x) {
    omm_bytes text = omm_buf_view(&j->reply), reference = omm_bytes_str(x->reply);
    item->reply_exact = omm_bytes_equal(text, reference);
    if (x->has_call) judge_call(item, text, reference);
}

/* --- one item ------------------------------------------------------------------------------ */

static omm_err run_item(const evaluation *e, judge *j, omm_eval_item *item, const omm_example *x) {
    *item = (omm_eval_item){.is_call = x->has_call, .has_reply = x->reply != NULL};
    omm_session_truncate(j->session, 0);
    OMM_TRY(omm_session_append(j->session, x->ids, x->prompt_count, j->logits, false));
    if (e->options->new_tokens_max > 0 && x->reply) {
        memcpy(j->row, j->logits, e->model->dims.vocab * sizeof(float));
        OMM_TRY(generate(e, j, item));
        judge_reply(j, item, x);
        omm_session_truncate(j->session, x->prompt_count);
    }
    return measure_loss(e, j, item, x);
}

static omm_err keep_reply(char **kept, const judge *j) {
    char *text = omm_alloc(j->reply.size + 1, 1);
    if (!text) return omm_raise(OMM_ERR_NOMEM, "no memory for a reply");
    if (j->reply.size) memcpy(text, j->reply.data, j->reply.size);
    *kept = text;
    return OMM_OK;
}

static void item_task(void *ud, size_t task, unsigned worker) {
    evaluation *e = ud;
    judge *j = &e->judges[worker];
    if (j->err != OMM_OK) return;
    omm_err err = OMM_OK;
    if (e->options->cancelled && e->options->cancelled(e->options->ud))
        err = omm_raise(OMM_ERR_CANCELLED, "evaluation stopped");
    if (err == OMM_OK) err = run_item(e, j, &e->items[task], omm_dataset_example(e->data, task));
    if (err == OMM_OK && e->replies) err = keep_reply(&e->replies[task], j);
    if (err != OMM_OK) {
        j->err = err;
        j->err_item = task;
        snprintf(j->sentence, sizeof j->sentence, "%s", omm_err_sentence());
    }
    if (worker == 0 && e->options->progress) /* workers keep pace: an estimate of the whole */
        e->options->progress(e->options->ud, task + 1, omm_dataset_count(e->data));
}

/* --- all ----------------------------------------------------------------------------------- */

static void measure_sizes(evaluation *e) {
    size_t vocab = e->model->dims.vocab;
    e->piece_max = LOGIT_FLOATS / vocab ? LOGIT_FLOATS / vocab : 1;
    uint32_t longest = 1;
    for (size_t i = 0; i < omm_dataset_count(e->data); i++) {
        const omm_example *x = omm_dataset_example(e->data, i);
        uint32_t prompt = x->prompt_count + e->options->new_tokens_max;
        if (x->count > longest) longest = x->count;
        if (prompt > longest) longest = prompt;
    }
    e->positions_max = longest;
}

static omm_err open_judges(evaluation *e, const omm_lora *adapter, omm_isa isa) {
    omm_session_options options = omm_session_options_default();
    options.positions_max = e->positions_max;
    e->judges = omm_alloc(e->workers, sizeof *e->judges);
    if (!e->judges) return omm_raise(OMM_ERR_NOMEM, "no memory for %u judges", e->workers);
    for (unsigned i = 0; i < e->workers; i++) {
        judge *j = &e->judges[i];
        omm_buf_init(&j->reply, REPLY_BYTES_MAX);
        OMM_TRY(omm_compute_init(&j->compute, NULL, isa));
        OMM_TRY(omm_session_open(&j->session, &j->compute, e->model, adapter, &options));
        j->logits = omm_alloc_aligned(e->piece_max * e->model->dims.vocab, sizeof(float));
        j->lse = omm_alloc(e->piece_max, sizeof(float));
        j->row = omm_alloc_aligned(e->model->dims.vocab, sizeof(float));
        if (!j->logits || !j->lse || !j->row)
            return omm_raise(OMM_ERR_NOMEM, "no memory for logits");
    }
    return OMM_OK;
}

static void close_judges(evaluation *e) {
    for (unsigned i = 0; e->judges && i < e->workers; i++) {
        judge *j = &e->judges[i];
        omm_session_close(j->session);
        omm_compute_fini(&j->compute);
        omm_buf_fini(&j->reply);
        omm_free(j->logits);
        omm_free(j->lse);
        omm_free(j->row);
    }
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
    measure_sizes(&e);
    omm_err err = open_judges(&e, adapter, compute->isa);
    if (err == OMM_OK && options->replies) {
        e.replies = omm_alloc(count, sizeof *e.replies);
        if (!e.replies) err = omm_raise(OMM_ERR_NOMEM, "no memory for the replies");
    }
    if (err == OMM_OK) {
        omm_pool_run(compute->pool, item_task, &e, count);
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

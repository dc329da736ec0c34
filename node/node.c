/* node.c - events in, actions out.  What was asked for decides how an answer is read. */
#include "internal.h"

#include "omm/enrolment.h"

#include "omm/mem.h"

#include <stdio.h>
#include <string.h>

#define COUNTER_DOUBLINGS_MAX 22u /* 2^32 a step: a liar's refusals must not use it up */

static const char *const s_phase_names[] = {"polling",   "fetching", "training",  "submitting",
                                            "uploading", "done",     "enrolling", "proving",
                                            "telling",   "showing"};

omm_node_limits omm_node_limits_default(void) {
    return (omm_node_limits){.rank_max = 256,
                             .steps_max = 100000,
                             .tokens_max = 100000000,
                             .pass_tokens_max = 8192,
                             .adapter_values_max = OMM_NODE_ADAPTER_VALUES_MAX,
                             .download_bytes_max = (uint64_t)1 << 30,
                             .upload_bytes_max = (uint64_t)1 << 30,
                             .work_bits_max = OMM_WORK_BITS_MAX};
}

/* ---- open ---- */

/* An invitation is shown once without being asked for: who came by work is polled as a candidate, and nobody refuses it. */
static omm_err first_question(node_phase *asks, omm_node *node) {
    omm_buf shown;
    bool found = false;
    *asks = NODE_POLLING;
    if (!node->o.token) return OMM_OK;
    const omm_digest id = omm_invitation_id(node->o.token);
    omm_buf_init(&shown, sizeof id);
    omm_err err = node_keep_get(&found, &shown, node, KEEP_INVITED);
    if (!omm_bytes_equal(omm_buf_view(&shown), omm_bytes_of(&id, sizeof id)))
        *asks = NODE_ENROLLING;
    omm_buf_fini(&shown);
    return err;
}

static omm_err note_invited(omm_node *node) {
    if (!node->o.token) return OMM_OK;
    const omm_digest id = omm_invitation_id(node->o.token);
    return node_keep_put(node, KEEP_INVITED, omm_bytes_of(&id, sizeof id));
}

static omm_err load(omm_node *node) {
    omm_buf run_id;
    omm_buf_init(&run_id, OMM_RUN_ID_SIZE);
    bool found = false;
    omm_err err = node_keep_get(&found, &run_id, node, KEEP_RUN_ID);
    if (err == OMM_OK && run_id.size == OMM_RUN_ID_SIZE - 1)
        memcpy(node->run_id, run_id.data, run_id.size);
    omm_buf_fini(&run_id);
    OMM_TRY(err);
    uint64_t seen = 0;
    OMM_TRY(node_keep_get_u64(&node->counter, node, KEEP_COUNTER));
    OMM_TRY(node_keep_get_u64(&seen, node, KEEP_ROUNDS_SEEN));
    node->counter_kept = node->counter;
    node->rounds_seen = (uint32_t)seen;
    if (node->o.run_id && strcmp(node->run_id, node->o.run_id) != 0) {
        if (strlen(node->o.run_id) != OMM_RUN_ID_SIZE - 1)
            return omm_raise(OMM_ERR_CONFIG, "run_id: %s is not 32 hex digits", node->o.run_id);
        memcpy(node->run_id, node->o.run_id, OMM_RUN_ID_SIZE);
        node->rounds_seen = 0;
        node->is_new_run = true;
    }
    OMM_TRY(node_given_restore(node));
    OMM_TRY(node_submission_restore(node));
    bool ends = false;
    OMM_TRY(node_close_restore(&ends, node));
    const node_phase gives = node->o.is_dry ? NODE_SHOWING : NODE_SUBMITTING;
    node_phase asks;
    OMM_TRY(first_question(&asks, node));
    node->phase = ends ? NODE_DONE : node->submission.size > 0 ? gives : asks;
    return OMM_OK;
}

omm_err omm_node_open(omm_node **out, const omm_node_options *options) {
    omm_node *node = omm_alloc(1, sizeof *node);
    if (!node) return omm_raise(OMM_ERR_NOMEM, "node");
    node->o = *options;
    node->id = omm_key_id(&options->key->public_key);
    atomic_init(&node->cancelled, false);
    omm_buf_init(&node->request, OMM_MESSAGE_BYTES_MAX);
    omm_buf_init(&node->submission, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&node->payload, SIZE_MAX);
    omm_err err = node_keep_open(node);
    if (err == OMM_OK) err = load(node);
    if (err != OMM_OK) {
        omm_node_close(node);
        return err;
    }
    *out = node;
    return OMM_OK;
}

void omm_node_close(omm_node *node) {
    if (!node) return;
    node_job_end(&node->job);
    omm_buf_fini(&node->request);
    omm_buf_fini(&node->submission);
    omm_buf_fini(&node->payload);
    omm_free(node->missing);
    if (node->db) omm_db_close(node->db);
    omm_free(node);
}

/* ---- requests ---- */

static omm_declined declines_for(const omm_node *node) {
    if (node->is_terse) return OMM_DECLINED_NOTHING;
    return node->phase == NODE_TELLING ? OMM_DECLINED_DRY : node->declined;
}

static omm_err build_poll(omm_node *node) {
    if (node->counter + 1 > node->counter_kept) {
        OMM_TRY(node_keep_put_u64(node, KEEP_COUNTER, node->counter + OMM_COUNTER_BLOCK));
        node->counter_kept = node->counter + OMM_COUNTER_BLOCK;
    }
    omm_poll poll = {.rounds_seen = node->rounds_seen,
                     .counter = node->counter + 1,
                     .declined = declines_for(node)};
    memcpy(poll.run_id, node->run_id, sizeof poll.run_id);
    omm_buf payload;
    omm_buf envelope;
    omm_buf_init(&payload, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    omm_err err = omm_poll_encode(&payload, &poll);
    if (err == OMM_OK)
        err = omm_envelope_seal(&envelope, OMM_CONTEXT_POLL, omm_buf_view(&payload), node->o.key);
    if (err == OMM_OK) {
        omm_request request = {.kind = OMM_REQUEST_POLL,
                               .envelope = omm_buf_view(&envelope),
                               .whole = node->o.whole && !node->is_plain &&
                                        node->phase != NODE_TELLING}; /* it has the adapter */
        err = omm_request_encode(&node->request, &request);
    }
    if (err == OMM_OK) node->counter++;
    if (err == OMM_OK) node->said_declined = poll.declined != OMM_DECLINED_NOTHING;
    if (err == OMM_OK) node->poll = omm_hash(omm_buf_view(&envelope));
    omm_buf_fini(&payload);
    omm_buf_fini(&envelope);
    return err;
}

static omm_err build_request(omm_node *node) {
    omm_request request = {0};
    switch (node->phase) {
    case NODE_POLLING:
    case NODE_TELLING: return build_poll(node);
    case NODE_ENROLLING: return node_enrol_request(&node->request, node);
    case NODE_FETCHING:
        request.kind = OMM_REQUEST_GET;
        node_next_chunk(&request.digest, &request.index, &node->job);
        break;
    case NODE_SUBMITTING: return node_give_request(&node->request, node);
    case NODE_UPLOADING:
        request =
            (omm_request){.kind = OMM_REQUEST_PUT,
                          .digest = node->payload_digest,
                          .index = node->missing[0],
                          .data = omm_chunk_view(omm_buf_view(&node->payload), node->missing[0])};
        break;
    case NODE_TRAINING:
    case NODE_PROVING:
    case NODE_SHOWING:
    case NODE_DONE: OMM_ASSERT(false); /* no request in this phase */
    }
    return omm_request_encode(&node->request, &request);
}

/* The next request is a new one. */
static void enter(omm_node *node, node_phase phase) {
    node->phase = phase;
    omm_buf_clear(&node->request);
    node->sent_before = false;
}

static void wait(omm_node *node, uint64_t now_ms, uint64_t ms) {
    node->is_waiting = true;
    node->until_ms = now_ms + (ms < NODE_WAIT_MAX_MS ? ms : NODE_WAIT_MAX_MS);
}

/* `ms`, twice as long after each of `times` but the first, up to `most_ms`. */
static uint64_t doubled(uint64_t ms, uint32_t times, uint64_t most_ms) {
    for (uint32_t i = 1; i < times && ms < most_ms; i++) ms *= 2;
    return ms < most_ms ? ms : most_ms;
}

static void wait_backoff(omm_node *node, uint64_t now_ms) {
    wait(node, now_ms, doubled(NODE_BACKOFF_MIN_MS, node->failures, NODE_BACKOFF_MAX_MS));
}

/* As the answer says.  Anybody on the way can say it, and "at once" without end: we would send without end. */
static void wait_as_told(omm_node *node, uint64_t now_ms, const omm_reply *reply, uint64_t min_ms) {
    wait(node, now_ms, reply->retry_ms > min_ms ? reply->retry_ms : min_ms);
}

/* A dry run has told the coordinator, or cannot. */
static void end_telling(omm_node *node) {
    node->failures = 0;
    enter(node, NODE_TRAINING);
}

/* No answer, or none that can be read: the same request again, later. */
static void failed(omm_node *node, uint64_t now_ms) {
    node->failures++;
    if (node->phase == NODE_TELLING && node->failures >= NODE_TELLING_FAILURES) {
        end_telling(node);
        return;
    }
    if (node->phase == NODE_SUBMITTING && node->failures == NODE_WHOLE_FAILURES)
        omm_buf_clear(&node->request); /* but without its payload */
    wait_backoff(node, now_ms);
}

static void complain(const omm_node *node, const char *event, const char *sentence) {
    omm_log_event(node->o.log, OMM_LOG_WARN, event, OMM_LOG_STR("node", node->o.name),
                  OMM_LOG_STR("phase", s_phase_names[node->phase]),
                  OMM_LOG_STR("reason", sentence ? sentence : ""));
}

/* For its owner; a hint, as anybody on the way can write such a sentence. */
static void note_refusal(omm_node *node, const char *sentence) {
    node->advice = "";
    (void)snprintf(node->refused, sizeof node->refused, "%s", sentence ? sentence : "");
}

/* Own trouble is returned; everything else is about what the peer sent. */
static bool is_own_trouble(omm_err err) {
    return err == OMM_ERR_NOMEM || err == OMM_ERR_IO;
}

/* Leave the round: ask again later, and say `declined` then. */
static void give_up_round(omm_node *node, uint64_t now_ms, omm_declined declined, const char *why) {
    complain(node, "round_left", why);
    node->declined = declined;
    (void)snprintf(node->left, sizeof node->left, "%s", why ? why : "");
    node_job_end(&node->job);
    enter(node, NODE_POLLING);
    wait(node, now_ms, NODE_DECLINED_MS);
}

/* ---- answers ---- */

/* Our counter is not above what the coordinator may have seen: it began again, and knows that by blocks alone; or our state
 * was lost, or another has our key.  A block further is enough where we have our state, and then it is soon said;
 * with each refusal in a row the step is twice the one before. */
static uint64_t jump(omm_node *node) {
    const uint32_t before = node->duplicates;
    node->counter += (uint64_t)OMM_COUNTER_BLOCK << before;
    if (before < COUNTER_DOUBLINGS_MAX) node->duplicates++;
    return before == 0 ? NODE_BACKOFF_MIN_MS : NODE_DECLINED_MS;
}

/* What every node is told that comes by an invitation or by work, so no warning: whether it is let in, the next answer
 * shows.  Anybody on the way can say so; what we show then is for this coordinator and of no use to others. */
static void ask_to_join(omm_node *node, const char *sentence) {
    omm_log_event(node->o.log, OMM_LOG_INFO, "asks_to_join", OMM_LOG_STR("node", node->o.name),
                  OMM_LOG_STR("by", node->o.token ? "invitation" : "work, where that is accepted"),
                  OMM_LOG_STR("because", sentence ? sentence : ""));
    if (!node->refused[0]) note_refusal(node, sentence);
    enter(node, NODE_ENROLLING);
}

static void poll_refused(omm_node *node, uint64_t now_ms, const omm_reply *reply) {
    if (reply->reason == OMM_ERR_REFUSED_KEY &&
        (node->o.token || node->o.limits.work_bits_max > 0)) {
        ask_to_join(node, reply->sentence);
        return;
    }
    complain(node, "poll_refused", reply->sentence);
    note_refusal(node, reply->sentence);
    if (reply->reason == OMM_ERR_REFUSED_ROUND && !node->o.run_id) {
        node->run_id[0] = '\0';
        node->is_over = node->has_round = false;
    }
    wait(node, now_ms,
         reply->reason == OMM_ERR_REFUSED_DUPLICATE ? jump(node) : (uint64_t)NODE_DECLINED_MS);
}

/* A coordinator that does not know `whole` refuses the form of what has it.  Anybody on the way can say so: then
 * we say the same in more messages. */
static bool has_become_plain(omm_node *node, const omm_reply *reply) {
    if (!node->o.whole || node->is_plain || reply->kind != OMM_REPLY_REFUSED ||
        reply->reason != OMM_ERR_REFUSED_FORMAT)
        return false;
    node->is_plain = true;
    omm_log_event(node->o.log, OMM_LOG_INFO, "plain_messages", OMM_LOG_STR("node", node->o.name),
                  OMM_LOG_STR("reason", "the coordinator takes adapters in chunks alone"));
    return true;
}

/* The same of one that does not know `declined`: then it is not told why we gave nothing. */
static bool has_become_terse(omm_node *node, const omm_reply *reply) {
    if (!node->said_declined || reply->kind != OMM_REPLY_REFUSED ||
        reply->reason != OMM_ERR_REFUSED_FORMAT)
        return false;
    node->is_terse = true;
    omm_log_event(node->o.log, OMM_LOG_INFO, "plain_polls", OMM_LOG_STR("node", node->o.name),
                  OMM_LOG_STR("reason", "the coordinator does not take why a node gave nothing"));
    return true;
}

static omm_err on_global(omm_node *node, bool complete) {
    const node_phase next = node->o.is_dry && !node->is_terse ? NODE_TELLING : NODE_TRAINING;
    if (complete) OMM_TRY(node_load_checkpoint(node));
    enter(node, complete ? next : NODE_FETCHING);
    return OMM_OK;
}

static omm_err on_offer(omm_node *node, uint64_t now_ms, const omm_reply *reply) {
    bool complete = false;
    omm_declined declined = OMM_DECLINED_TRANSFER;
    omm_err err = node_take_offer(&declined, node, reply->envelope);
    if (err == OMM_OK) err = node_take_whole(&complete, node, reply->data);
    if (is_own_trouble(err)) return err;
    if (err == OMM_OK) node->declined = OMM_DECLINED_NOTHING;
    if (err == OMM_OK) return on_global(node, complete);
    give_up_round(node, now_ms, declined, omm_err_sentence());
    return OMM_OK;
}

/* In quarantine or revoked.  What is no such answer of our coordinator's changes nothing. */
static omm_err on_kept_out(omm_node *node, uint64_t now_ms, const omm_reply *reply) {
    uint64_t wait_ms = NODE_DECLINED_MS;
    omm_err err = node_take_kept_out(&wait_ms, node, reply->envelope);
    if (is_own_trouble(err)) return err;
    if (err != OMM_OK) complain(node, "reply_ignored", omm_err_sentence());
    wait(node, now_ms, wait_ms);
    return OMM_OK;
}

static void forget_refusal(omm_node *node) {
    note_refusal(node, "");
    node->kept_out = 0;
}

static omm_err on_poll_reply(omm_node *node, uint64_t now_ms, const omm_reply *reply) {
    bool is_over = false;
    if (reply->kind == OMM_REPLY_DONE) OMM_TRY(node_take_close(&is_over, node, reply->envelope));
    enter(node, is_over ? NODE_DONE : NODE_POLLING);
    if (is_over) {
        forget_refusal(node);
        return OMM_OK;
    }
    if (reply->kind == OMM_REPLY_RECEIPT) return on_kept_out(node, now_ms, reply);
    if (reply->kind != OMM_REPLY_REFUSED) {
        forget_refusal(node);
        node->duplicates = 0;
        node->is_over = false;
    }
    if (reply->kind == OMM_REPLY_WAIT) {
        wait_as_told(node, now_ms, reply, NODE_WAIT_MIN_MS);
    } else if (reply->kind == OMM_REPLY_OFFER) {
        return on_offer(node, now_ms, reply);
    } else if (has_become_terse(node, reply) || has_become_plain(node, reply)) {
        return OMM_OK; /* the same in another form, at once */
    } else if (reply->kind == OMM_REPLY_REFUSED) {
        poll_refused(node, now_ms, reply);
    } else {
        complain(node, "reply_ignored", "not an answer to a poll");
        wait(node, now_ms, NODE_DECLINED_MS);
    }
    return OMM_OK;
}

/* A dry run asks for nothing new: the offer that it follows, once more, says that it was heard.  What else is said, another
 * offer too, counts as ever. */
static omm_err on_telling_reply(omm_node *node, uint64_t now_ms, const omm_reply *reply) {
    const omm_digest offer = omm_hash(reply->envelope);
    if (reply->kind != OMM_REPLY_OFFER || !omm_digest_equal(&offer, &node->job.offer_digest))
        return on_poll_reply(node, now_ms, reply);
    node->told_dry = true;
    end_telling(node);
    return OMM_OK;
}

static void enrol_refused(omm_node *node, omm_err reason, const char *why) {
    note_refusal(node, why);
    node->advice = node_advice(reason);
    omm_log_event(node->o.log, OMM_LOG_WARN, "enrol_refused", OMM_LOG_STR("node", node->o.name),
                  OMM_LOG_STR("phase", s_phase_names[node->phase]), OMM_LOG_STR("reason", why),
                  OMM_LOG_STR("advice", node->advice));
}

/* Wait is all a coordinator says to who is in; whether it is true, the next poll shows. */
static omm_err on_enrol_reply(omm_node *node, uint64_t now_ms, const omm_reply *reply) {
    if (reply->kind == OMM_REPLY_CHALLENGE && !node->o.token && !node->has_challenge) {
        omm_err err = node_take_challenge(node, reply->envelope);
        if (err == OMM_OK || is_own_trouble(err)) {
            if (err == OMM_OK) enter(node, NODE_PROVING);
            return err;
        }
        complain(node, "enrol_refused", omm_err_sentence());
        note_refusal(node, omm_err_sentence());
    } else if (reply->kind == OMM_REPLY_WAIT && reply->retry_ms > 0) {
        /* It answers nobody now, or is from before and lets it in: a poll tells, and what was worked for is kept. */
        enter(node, NODE_POLLING);
        wait(node, now_ms, NODE_BACKOFF_MIN_MS);
        return OMM_OK;
    } else if (reply->kind == OMM_REPLY_WAIT) {
        OMM_TRY(note_invited(node));
        omm_log_event(node->o.log, OMM_LOG_INFO, "enrolled", OMM_LOG_STR("node", node->o.name));
    } else {
        const bool is_refused = reply->kind == OMM_REPLY_REFUSED;
        enrol_refused(node, is_refused ? reply->reason : OMM_OK,
                      is_refused ? reply->sentence : "not an answer to it");
    }
    node->has_challenge = node->has_proof = false;
    enter(node, NODE_POLLING);
    wait(node, now_ms,
         reply->kind == OMM_REPLY_WAIT ? NODE_BACKOFF_MIN_MS : (uint64_t)NODE_STRANGER_MS);
    return OMM_OK;
}

static omm_err on_get_reply(omm_node *node, uint64_t now_ms, const omm_reply *reply) {
    if (reply->kind != OMM_REPLY_CHUNK) {
        give_up_round(node, now_ms, OMM_DECLINED_TRANSFER,
                      reply->sentence ? reply->sentence : "no chunk in the answer");
        return OMM_OK;
    }
    bool complete =
        node_has_all(&node->job); /* it was taken, and what follows from it was not done */
    omm_err err = complete ? OMM_OK : node_take_chunk(&complete, node, reply);
    if (is_own_trouble(err)) return err;
    if (err != OMM_OK) {
        give_up_round(node, now_ms, OMM_DECLINED_TRANSFER, omm_err_sentence());
        return OMM_OK;
    }
    return on_global(node, complete);
}

/* A verdict, or something instead of one. */
static omm_err on_receipt(omm_node *node, uint64_t now_ms, const omm_reply *reply) {
    omm_err err = node_take_receipt(node, reply->envelope);
    if (is_own_trouble(err)) return err;
    if (err == OMM_OK) {
        node->unsigned_refusals = 0;
        node->left[0] = '\0';
        node_job_end(&node->job);
        enter(node, NODE_POLLING);
        return OMM_OK;
    }
    complain(node, "receipt_ignored", omm_err_sentence());
    enter(node, NODE_SUBMITTING);
    wait(node, now_ms, NODE_DECLINED_MS);
    return OMM_OK;
}

/* Anybody on the way can write a refusal without a signature, so one alone changes nothing. */
static omm_err on_unsigned_refusal(omm_node *node, uint64_t now_ms, const omm_reply *reply) {
    complain(node, "submission_not_taken", reply->sentence ? reply->sentence : "no verdict");
    enter(node, NODE_SUBMITTING);
    wait(node, now_ms, node->unsigned_refusals ? NODE_DECLINED_MS : NODE_BACKOFF_MIN_MS);
    if (++node->unsigned_refusals < NODE_UNSIGNED_REFUSALS_MAX) return OMM_OK;
    OMM_TRY(node_submission_drop(node));
    node->unsigned_refusals = 0;
    give_up_round(node, now_ms, OMM_DECLINED_TRANSFER, "no signed verdict for our submission");
    return OMM_OK;
}

static omm_err on_need(omm_node *node, uint64_t now_ms, const omm_reply *reply) {
    uint64_t chunks = omm_chunk_count(node->payload.size);
    if (reply->missing_count == 0) { /* all is there: ask for the verdict */
        enter(node, NODE_SUBMITTING);
        return OMM_OK;
    }
    if (++node->needs > 4 * chunks + NODE_NEEDS_SPARE) {
        node->needs = 0;
        return on_unsigned_refusal(node, now_ms, reply);
    }
    if (reply->missing[reply->missing_count - 1] >= chunks)
        return on_unsigned_refusal(node, now_ms, reply);
    uint32_t *missing = omm_alloc(reply->missing_count, sizeof *missing);
    if (!missing) return omm_raise(OMM_ERR_NOMEM, "%zu chunk indices", reply->missing_count);
    memcpy(missing, reply->missing, reply->missing_count * sizeof *missing);
    omm_free(node->missing);
    node->missing = missing;
    node->missing_count = reply->missing_count;
    enter(node, NODE_UPLOADING);
    omm_crash_point(node->o.state_dir, node->o.crash_at, "mid_upload");
    return OMM_OK;
}

static omm_err on_submit_reply(omm_node *node, uint64_t now_ms, const omm_reply *reply) {
    if (has_become_plain(node, reply)) {
        enter(node, NODE_SUBMITTING);
        return OMM_OK;
    }
    if (node->o.whole) omm_crash_point(node->o.state_dir, node->o.crash_at, "mid_upload");
    if (reply->kind == OMM_REPLY_RECEIPT) return on_receipt(node, now_ms, reply);
    if (reply->kind == OMM_REPLY_NEED) return on_need(node, now_ms, reply);
    if (reply->kind == OMM_REPLY_WAIT) {
        if (node->put_off < UINT32_MAX) node->put_off++;
        enter(node, NODE_SUBMITTING);
        wait_as_told(node, now_ms, reply,
                     doubled(NODE_WAIT_MIN_MS, node->put_off, NODE_DECLINED_MS));
        return OMM_OK;
    }
    return on_unsigned_refusal(node, now_ms, reply);
}

static omm_err on_reply(omm_node *node, uint64_t now_ms, omm_bytes bytes) {
    omm_arena arena;
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    omm_reply reply;
    omm_err err = omm_reply_decode(&reply, bytes, &arena);
    if (err == OMM_OK) {
        node->failures = 0;
        switch (node->phase) {
        case NODE_POLLING: err = on_poll_reply(node, now_ms, &reply); break;
        case NODE_TELLING: err = on_telling_reply(node, now_ms, &reply); break;
        case NODE_ENROLLING: err = on_enrol_reply(node, now_ms, &reply); break;
        case NODE_FETCHING: err = on_get_reply(node, now_ms, &reply); break;
        case NODE_SUBMITTING:
        case NODE_UPLOADING: err = on_submit_reply(node, now_ms, &reply); break;
        case NODE_TRAINING:
        case NODE_PROVING:
        case NODE_SHOWING:
        case NODE_DONE: break; /* an answer that nobody waits for */
        }
    } else if (err != OMM_ERR_NOMEM) {
        complain(node, "reply_ignored", omm_err_sentence());
        failed(node, now_ms);
        err = OMM_OK;
    }
    omm_arena_fini(&arena);
    return err;
}

/* It was stopped: a later one asks for a fresh challenge. */
static void give_up_proof(omm_node *node, uint64_t now_ms) {
    node->has_challenge = node->has_proof = false;
    enter(node, NODE_POLLING);
    wait(node, now_ms, NODE_DECLINED_MS);
}

static omm_err on_work_done(omm_node *node, uint64_t now_ms, omm_err work) {
    if (node->phase == NODE_PROVING && work == OMM_OK) enter(node, NODE_ENROLLING);
    if (node->phase == NODE_PROVING) give_up_proof(node, now_ms);
    if (node->phase != NODE_TRAINING) return OMM_OK;
    omm_err err = work == OMM_OK && !node->job.trained
                      ? omm_raise(OMM_ERR_STATE, "training did not run")
                      : work;
    if (err == OMM_OK) {
        err = node_give(node);
        if (is_own_trouble(err)) return err;
    }
    if (err == OMM_OK)
        enter(node, node->o.is_dry ? NODE_SHOWING : NODE_SUBMITTING);
    else
        give_up_round(node, now_ms, node_declined_by(err, OMM_DECLINED_TRAINING),
                      work != OMM_OK ? omm_err_text(work) : omm_err_sentence());
    return OMM_OK;
}

/* ---- one step ---- */

static omm_err act(omm_node_action *action, omm_node *node) {
    *action = (omm_node_action){0};
    if (node->is_waiting) {
        action->kind = OMM_NODE_WAIT;
        action->until_ms = node->until_ms;
        return OMM_OK;
    }
    if (node->phase == NODE_DONE || node->phase == NODE_SHOWING) {
        action->kind = node->phase == NODE_DONE ? OMM_NODE_DONE : OMM_NODE_SHOW;
        return OMM_OK;
    }
    if (node->phase == NODE_TRAINING) {
        action->kind = OMM_NODE_WORK;
        action->work_tokens = node->job.plan.tokens;
        return OMM_OK;
    }
    if (node->phase == NODE_PROVING) {
        action->kind = OMM_NODE_WORK;
        return OMM_OK;
    }
    if (node->request.size == 0) OMM_TRY(build_request(node));
    if (node->phase == NODE_SUBMITTING) OMM_TRY(node_history_sends(node));
    action->kind = OMM_NODE_SEND;
    action->request = omm_buf_view(&node->request);
    action->is_retry = node->sent_before;
    node->sent_before = true;
    node->in_flight = true;
    return OMM_OK;
}

static omm_err take_event(omm_node *node, uint64_t now_ms, const omm_node_event *event) {
    switch (event->kind) {
    case OMM_NODE_TICK:
        if (node->is_waiting && now_ms >= node->until_ms) node->is_waiting = false;
        return OMM_OK;
    case OMM_NODE_REPLY:
        if (!node->in_flight) return OMM_OK; /* late, after we gave it up */
        OMM_TRY(on_reply(node, now_ms, event->reply));
        node->in_flight = false;
        return OMM_OK;
    case OMM_NODE_SEND_FAILED:
        if (!node->in_flight) return OMM_OK;
        node->in_flight = false;
        failed(node, now_ms);
        return OMM_OK;
    case OMM_NODE_WORK_DONE: return on_work_done(node, now_ms, event->work);
    }
    return OMM_OK;
}

omm_err omm_node_step(omm_node_action *action, omm_node *node, uint64_t now_ms,
                      const omm_node_event *event) {
    OMM_TRY(take_event(node, now_ms, event));
    return act(action, node);
}

/* ---- what others see ---- */

omm_node_status omm_node_get_status(const omm_node *node) {
    omm_node_status status = {.phase = s_phase_names[node->phase],
                              .has_round = node->has_round && !node->is_over,
                              .is_over = node->is_over || node->phase == NODE_DONE,
                              .round = node->round,
                              .rounds_accepted = node->rounds_accepted,
                              .rounds_refused = node->rounds_refused};
    if (node->phase == NODE_TRAINING) {
        status.steps = node->job.plan.steps;
        status.steps_done = atomic_load(&node->steps_done);
    }
    memcpy(status.run_id, node->run_id, sizeof status.run_id);
    memcpy(status.last_reason, node->last_reason, sizeof status.last_reason);
    memcpy(status.refused, node->refused, sizeof status.refused);
    status.told_dry = node->told_dry;
    status.advice = node->advice ? node->advice : "";
    memcpy(status.left, node->left, sizeof status.left);
    return status;
}

void omm_node_get_submission(omm_bytes *envelope, omm_bytes *payload, const omm_node *node) {
    *envelope = omm_buf_view(&node->submission);
    *payload = omm_buf_view(&node->payload);
}

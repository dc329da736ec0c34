/* client.c - owns the asking end: one request in flight over a connection that comes back by itself.
 *
 *   idle --send--> sending --accepted--> receiving --reply--> done
 *                     \---------------------\--failure--> failed      send from anywhere: again
 *
 * Two nng operations, so that giving up a request is: forbid the second, stop the first, stop the
 * second.  The lock guards state, result and counts.
 */
#include "omm/transport.h"

#include "dial.h"
#include "omm/mem.h"

#include <nng/protocol/reqrep0/req.h>
#include <string.h>

typedef enum client_state {
    CLIENT_IDLE,
    CLIENT_SENDING,
    CLIENT_RECEIVING,
    CLIENT_DONE,
    CLIENT_FAILED,
} client_state;

struct omm_client {
    omm_client_options options;
    nng_socket socket;
    dial dial;
    bool is_open, has_dial;
    nng_aio *send_aio, *receive_aio;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    client_state state;
    int result;     /* nng's, when failed */
    nng_msg *reply; /* when done */
    size_t request_size;
    omm_wire_count count;
};

omm_client_options omm_client_options_default(void) {
    return (omm_client_options){.message_bytes_max = OMM_MESSAGE_BYTES_MAX,
                                .reconnect_min_ms = 100,
                                .reconnect_max_ms = 10000,
                                .attempt_ms = 20000};
}

/* With the lock held. */
static void fail(omm_client *client, int result) {
    client->state = CLIENT_FAILED;
    client->result = result;
    pthread_cond_signal(&client->changed);
}

static void on_sent(void *arg) {
    omm_client *client = arg;
    int result = nng_aio_result(client->send_aio);
    if (result != 0) {
        nng_msg_free(nng_aio_get_msg(client->send_aio)); /* it is still ours */
        nng_aio_set_msg(client->send_aio, NULL);
    }
    pthread_mutex_lock(&client->mutex);
    bool is_wanted = client->state == CLIENT_SENDING;
    if (result == 0) {
        client->count.messages_out++;
        client->count.bytes_out += omm_wire_bytes(client->request_size);
    }
    if (is_wanted && result != 0) fail(client, result);
    if (is_wanted && result == 0) client->state = CLIENT_RECEIVING;
    pthread_mutex_unlock(&client->mutex);
    if (is_wanted && result == 0) nng_recv_aio(client->socket, client->receive_aio);
}

static void on_reply(void *arg) {
    omm_client *client = arg;
    int result = nng_aio_result(client->receive_aio);
    nng_msg *message = result == 0 ? nng_aio_get_msg(client->receive_aio) : NULL;
    nng_aio_set_msg(client->receive_aio, NULL);
    const bool is_answer = message != NULL;
    pthread_mutex_lock(&client->mutex);
    if (message) {
        client->count.messages_in++;
        client->count.bytes_in += omm_wire_bytes(nng_msg_len(message));
    }
    if (client->state == CLIENT_RECEIVING && message) {
        client->state = CLIENT_DONE;
        client->reply = message;
        message = NULL;
        pthread_cond_signal(&client->changed);
    } else if (client->state == CLIENT_RECEIVING) {
        fail(client, result);
    }
    pthread_mutex_unlock(&client->mutex);
    if (is_answer) dial_heard(&client->dial);
    if (message) nng_msg_free(message);
}

/* After this nothing of an earlier request runs any more. */
static void give_up(omm_client *client) {
    pthread_mutex_lock(&client->mutex);
    client->state = CLIENT_IDLE;
    nng_msg *reply = client->reply;
    client->reply = NULL;
    pthread_mutex_unlock(&client->mutex);
    if (reply) nng_msg_free(reply);
    nng_aio_cancel(client->send_aio);
    nng_aio_wait(client->send_aio);
    nng_aio_cancel(client->receive_aio);
    nng_aio_wait(client->receive_aio);
}

static int set_options(omm_client *client) {
    const omm_client_options *o = &client->options;
    int result = nng_socket_set_size(client->socket, NNG_OPT_RECVMAXSZ,
                                     o->message_bytes_max + NNG_REQUEST_ID_BYTES);
    if (result == 0) {
        result = nng_socket_set_ms(client->socket, NNG_OPT_REQ_RESENDTIME, NNG_DURATION_INFINITE);
    }
    return result;
}

static omm_err begin_dialling(omm_client *client, const char *url) {
    nng_tls_config *tls = NULL;
    if (glue_is_tls(url) && client->options.tls_certificate.size == 0)
        return omm_raise(OMM_ERR_CONFIG, "%s needs the coordinator's certificate", url);
    if (glue_is_tls(url))
        OMM_TRY(glue_tls_config(&tls, client->options.tls_certificate, omm_bytes_of(NULL, 0)));
    client->has_dial = true;
    return dial_init(&client->dial, client->socket, url, tls, &client->options);
}

static omm_err open_client(omm_client *client, const char *url) {
    int result = nng_req0_open(&client->socket);
    if (result != 0) return glue_error(result, "cannot open", "a client socket");
    client->is_open = true;
    result = set_options(client);
    if (result == 0) result = nng_aio_alloc(&client->send_aio, on_sent, client);
    if (result == 0) result = nng_aio_alloc(&client->receive_aio, on_reply, client);
    if (result != 0) return glue_error(result, "cannot set up", "a client socket");
    return begin_dialling(client, url);
}

omm_err omm_client_open(omm_client **out, const char *url, const omm_client_options *options) {
    OMM_TRY(omm_url_check(url));
    omm_client *client = omm_alloc(1, sizeof *client);
    if (!client) return omm_raise(OMM_ERR_NOMEM, "no memory for a client");
    client->options = *options;
    OMM_ASSERT(pthread_mutex_init(&client->mutex, NULL) == 0);
    glue_cond_init(&client->changed);
    omm_err err = open_client(client, url);
    if (err != OMM_OK) {
        omm_client_close(client);
        return err;
    }
    *out = client;
    return OMM_OK;
}

void omm_client_close(omm_client *client) {
    if (!client) return;
    if (client->send_aio && client->receive_aio) give_up(client);
    if (client->has_dial) dial_stop(&client->dial);
    if (client->is_open) nng_close(client->socket);
    if (client->has_dial) dial_fini(&client->dial);
    if (client->send_aio) nng_aio_free(client->send_aio);
    if (client->receive_aio) nng_aio_free(client->receive_aio);
    pthread_cond_destroy(&client->changed);
    pthread_mutex_destroy(&client->mutex);
    omm_free(client);
}

omm_err omm_client_send(omm_client *client, omm_bytes request) {
    nng_msg *message;
    if (request.size > client->options.message_bytes_max) {
        return omm_raise(OMM_ERR_TOO_BIG, "request has %zu bytes, at most %zu are allowed",
                         request.size, client->options.message_bytes_max);
    }
    if (nng_msg_alloc(&message, request.size) != 0) {
        return omm_raise(OMM_ERR_NOMEM, "no memory for a request of %zu bytes", request.size);
    }
    if (request.size > 0) memcpy(nng_msg_body(message), request.data, request.size);
    give_up(client);
    pthread_mutex_lock(&client->mutex);
    client->state = CLIENT_SENDING;
    client->request_size = request.size;
    pthread_mutex_unlock(&client->mutex);
    nng_aio_set_msg(client->send_aio, message);
    nng_send_aio(client->socket, client->send_aio);
    return OMM_OK;
}

omm_err omm_client_receive(omm_bytes *reply, omm_client *client, uint64_t timeout_ms) {
    glue_deadline deadline = glue_deadline_in(timeout_ms);
    pthread_mutex_lock(&client->mutex);
    bool in_time = true;
    while ((client->state == CLIENT_SENDING || client->state == CLIENT_RECEIVING) && in_time) {
        in_time = glue_wait(&client->changed, &client->mutex, &deadline);
    }
    client_state state = client->state;
    int result = client->result;
    pthread_mutex_unlock(&client->mutex);
    if (state == CLIENT_IDLE) return omm_raise(OMM_ERR_STATE, "no request was sent");
    if (state == CLIENT_FAILED) return glue_error(result, "lost", "the request");
    if (state != CLIENT_DONE) {
        return omm_raise(OMM_ERR_TIMEOUT, "no reply within %llu ms",
                         (unsigned long long)timeout_ms);
    }
    size_t size = nng_msg_len(client->reply);
    if (size > client->options.message_bytes_max) {
        pthread_mutex_lock(&client->mutex);
        client->count.oversize++;
        pthread_mutex_unlock(&client->mutex);
        return omm_raise(OMM_ERR_REFUSED_SIZE, "reply has %zu bytes, at most %zu are allowed", size,
                         client->options.message_bytes_max);
    }
    *reply = omm_bytes_of(nng_msg_body(client->reply), size);
    return OMM_OK;
}

void omm_client_renew(omm_client *client) {
    dial_renew(&client->dial);
}

const char *omm_client_trouble(omm_client *client) {
    bool is_up = false;
    const int why = dial_why(&is_up, &client->dial);
    return is_up ? "connected, and the coordinator says nothing: it is busy, stands still, or "
                   "another "
                   "program listens there"
                 : glue_why(why);
}

bool omm_client_is_waiting(omm_client *client) {
    pthread_mutex_lock(&client->mutex);
    bool is_waiting = client->state == CLIENT_SENDING || client->state == CLIENT_RECEIVING;
    pthread_mutex_unlock(&client->mutex);
    return is_waiting;
}

void omm_client_count(omm_wire_count *out, omm_client *client) {
    pthread_mutex_lock(&client->mutex);
    *out = client->count;
    pthread_mutex_unlock(&client->mutex);
}

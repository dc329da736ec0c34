/* Nodes that come by invitation: whole runs with kills and lost messages between any two messages, and
 * everything a thief, a double and a late guest may try. */
#include "enrol.h"
#include "federation.h"

#include "omm/envelope.h"
#include "omm/file.h"
#include "omm/mem.h"
#include "omm/messages.h"
#include "omm_test.h"

#include <stdio.h>
#include <string.h>

/* A label that looks like columns of its own, and like a page's. */
#define LABEL "a\"\\  by list; revoked: <img src=x>"
#define LABEL_QUOTED "a\\\"\\\\  by list; revoked: <img src=x>"

static fed s_fed;
static char s_says[257]; /* the last signed refusal */

/* ---- whole runs ---- */

static fed_options guests(void) {
    fed_options o = fed_options_default();
    o.nodes = 5;
    o.listed = 2;
    o.rounds = 2;
    o.on_disk = true;
    return o;
}

/* And the disk says no: who came is in all the same. */
static fed_fault fault_often_or_undo(void *ud, uint64_t index) {
    const fed_fault fault = fed_fault_often(ud, index);
    return fault == FED_DELIVER && index % 12 == 3 ? FED_UNDO : fault;
}

static void run_and_verify(const fed_options *o, const char *what) {
    fed_open(&s_fed, o);
    fed_run(&s_fed);
    if (s_fed.run.node_count != o->nodes) fprintf(stderr, "%s\n", what);
    CHECK_EQ(s_fed.run.node_count, o->nodes);
    uint32_t count = 0;
    const omm_coord_round *rounds = omm_coord_history(&count, s_fed.coord);
    CHECK_EQ(count, o->rounds);
    CHECK_EQ(rounds[count - 1].accepted, o->nodes); /* guests are heard as all others */
    fed_seal_and_verify(&s_fed);
    fed_close(&s_fed);
}

static void test_runs(void) {
    omm_seed seed = omm_seed_from_u64(1);
    fed_options o = guests();
    run_and_verify(&o, "plain");
    o.restart_coordinator = true;
    run_and_verify(&o, "coordinator killed between any two messages");
    o.restart_nodes = true;
    o.fault = fault_often_or_undo;
    o.ud = &seed;
    run_and_verify(&o, "all killed, messages lost and doubled");
    o = guests();
    o.listed = 1;
    o.on_disk = false;
    o.order_seed = 5;
    run_and_verify(&o, "another order");
}

/* Where memory runs out in a step, nothing has changed, and the run ends as without it. */
static void test_no_memory(void) {
    for (uint64_t call = 1; call < 13; call += 2)
        for (uint32_t nth = 1; nth < 40; nth += 4) {
            fed_options o = guests();
            o.nodes = 3;
            o.rounds = 1;
            o.on_disk = false;
            o.alloc_kind = FED_ALLOC_STEP;
            o.alloc_call = call;
            o.alloc_nth = nth;
            fed_open(&s_fed, &o);
            fed_run(&s_fed);
            CHECK_EQ(s_fed.run.node_count, 3);
            fed_close(&s_fed);
        }
}

/* ---- one request at a time ---- */

static omm_key key_of(uint64_t number) {
    omm_key key;
    omm_seed seed = omm_seed_from_u64(number);
    omm_key_from_seed(&key, &seed);
    return key;
}

/* Who is kept out is told so by a receipt of this coordinator, for this very request. */
static omm_err reason_signed(const omm_reply *said, omm_bytes asked, const omm_key *key,
                             omm_arena *arena) {
    omm_envelope opened;
    omm_receipt receipt;
    const omm_digest id = omm_key_id(&key->public_key), digest = omm_hash(asked);
    CHECK_OK(omm_envelope_open_as(&opened, OMM_CONTEXT_RECEIPT, said->envelope));
    CHECK(omm_public_key_equal(&opened.key, &s_fed.coordinator_key.public_key));
    CHECK_OK(omm_receipt_decode(&receipt, opened.payload, arena));
    CHECK(!receipt.accepted && omm_digest_equal(&receipt.node_id, &id));
    CHECK(omm_digest_equal(&receipt.submission_digest, &digest));
    (void)snprintf(s_says, sizeof s_says, "%s", receipt.sentence);
    return receipt.reason;
}

/* OK for a Wait, else the reason of the refusal. */
static omm_err send(omm_request_kind kind, omm_context context, omm_bytes payload,
                    const omm_key *key) {
    omm_buf envelope, request, reply;
    omm_arena arena;
    omm_reply said;
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&request, OMM_MESSAGE_BYTES_MAX);
    omm_buf_init(&reply, OMM_MESSAGE_BYTES_MAX);
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    CHECK_OK(omm_envelope_seal(&envelope, context, payload, key));
    CHECK_OK(omm_request_encode(&request,
                                &(omm_request){.kind = kind, .envelope = omm_buf_view(&envelope)}));
    fed_send(&s_fed, &reply, omm_buf_view(&request));
    CHECK_OK(omm_reply_decode(&said, omm_buf_view(&reply), &arena));
    CHECK(said.kind == OMM_REPLY_WAIT || said.kind == OMM_REPLY_REFUSED ||
          said.kind == OMM_REPLY_RECEIPT);
    omm_err reason = said.kind == OMM_REPLY_WAIT ? OMM_OK : said.reason;
    if (kind == OMM_REQUEST_ENROL && reason == OMM_OK)
        CHECK_EQ(said.retry_ms, 0); /* not: ask again */
    s_says[0] = '\0';
    if (said.kind == OMM_REPLY_RECEIPT)
        reason = reason_signed(&said, omm_buf_view(&envelope), key, &arena);
    omm_arena_fini(&arena);
    omm_buf_fini(&reply);
    omm_buf_fini(&request);
    omm_buf_fini(&envelope);
    return reason;
}

static omm_err ask(const omm_enrol *enrol, const omm_key *key) {
    omm_buf payload;
    omm_buf_init(&payload, 4096);
    CHECK_OK(omm_enrol_encode(&payload, enrol));
    omm_err reason = send(OMM_REQUEST_ENROL, OMM_CONTEXT_ENROL, omm_buf_view(&payload), key);
    omm_buf_fini(&payload);
    return reason;
}

static uint64_t s_counter;

static omm_err poll_as(const omm_key *key) {
    omm_buf payload;
    omm_poll poll = {.counter = ++s_counter};
    omm_buf_init(&payload, 4096);
    CHECK_OK(omm_poll_encode(&payload, &poll));
    omm_err reason = send(OMM_REQUEST_POLL, OMM_CONTEXT_POLL, omm_buf_view(&payload), key);
    omm_buf_fini(&payload);
    return reason;
}

static omm_enrol with_token(const omm_seed *token, const omm_key *node) {
    omm_enrol e = {.coordinator = s_fed.coordinator_key.public_key};
    omm_invitation_use(&e, token, &node->public_key);
    return e;
}

static omm_seed new_token(uint32_t hours) {
    omm_buf text;
    omm_seed token;
    omm_buf_init(&text, 4096);
    CHECK_OK(omm_coord_invite(&text, s_fed.coord, 1, hours, LABEL));
    CHECK_OK(omm_buf_append(&text, "", 1));
    CHECK_OK(omm_invitation_parse(&token, (const char *)text.data));
    omm_buf_fini(&text);
    return token;
}

static void open_quiet(uint32_t node_max) {
    fed_options o = guests();
    o.nodes = 2;
    o.node_max = node_max;
    o.silent[0] = o.silent[1] = true;
    fed_open(&s_fed, &o);
}

/* A listener has all that went over the wire, and his own key. */
static void test_thief(void) {
    const omm_key node = key_of(1), thief = key_of(2), elsewhere = key_of(3);
    open_quiet(8);
    omm_seed token = new_token(0);
    omm_enrol heard = with_token(&token, &node);
    CHECK_EQ(ask(&heard, &thief), OMM_ERR_REFUSED_SIGNATURE);
    omm_enrol other = heard;
    other.has_invitation = false;
    CHECK_EQ(ask(&other, &thief), OMM_ERR_REFUSED_KEY);
    other = with_token(&token, &thief); /* he guesses a token with the same public half: no */
    other.invitation_signature = heard.invitation_signature;
    CHECK_EQ(ask(&other, &thief), OMM_ERR_REFUSED_SIGNATURE);
    other = heard;
    other.coordinator = elsewhere.public_key;
    CHECK_EQ(ask(&other, &node), OMM_ERR_REFUSED_KEY);
    omm_seed unknown = omm_seed_from_u64(77);
    other = with_token(&unknown, &thief);
    CHECK_EQ(ask(&other, &thief), OMM_ERR_REFUSED_INVITATION);
    CHECK_EQ(poll_as(&node), OMM_ERR_REFUSED_KEY);
    CHECK_EQ(s_fed.run.node_count, 2); /* and the token is as good as it was */
    CHECK_OK(ask(&heard, &node));
    CHECK_EQ(s_fed.run.node_count, 3);
    CHECK_OK(poll_as(&node));
    fed_close(&s_fed);
}

static void test_once(void) {
    const omm_key first = key_of(1), second = key_of(2);
    open_quiet(8);
    omm_seed token = new_token(0);
    omm_enrol a = with_token(&token, &first), b = with_token(&token, &second);
    CHECK_OK(ask(&a, &first));
    CHECK(omm_coord_peer_is_fresh(s_fed.coord)); /* its connection is a node's from now on */
    CHECK_EQ(ask(&b, &second), OMM_ERR_REFUSED_INVITATION);
    CHECK(!omm_coord_peer_is_fresh(s_fed.coord));
    for (int i = 0; i < 3; i++) { /* the answer was lost: the same again, as often as it takes */
        CHECK_OK(ask(&a, &first));
        fed_restart_coordinator(&s_fed);
        CHECK_EQ(ask(&b, &second), OMM_ERR_REFUSED_INVITATION);
    }
    CHECK_EQ(s_fed.run.node_count, 3);
    CHECK(strncmp(s_fed.run.nodes[2].name, LABEL "-", sizeof LABEL) == 0);
    omm_seed more = new_token(0);
    a = with_token(&more, &first); /* who is in needs no other one, and does not use it up */
    CHECK_OK(ask(&a, &first));
    b = with_token(&more, &second);
    CHECK_OK(ask(&b, &second));
    CHECK_EQ(s_fed.run.node_count, 4);
    fed_close(&s_fed);
}

static void first_id(char out[17]) {
    omm_buf list;
    omm_buf_init(&list, 1 << 20);
    CHECK_OK(omm_coord_invitations(&list, s_fed.coord));
    CHECK(list.size > 16);
    memcpy(out, list.data, 16);
    out[16] = '\0';
    omm_buf_fini(&list);
}

static void test_ends(void) {
    const omm_key node = key_of(1);
    char id[17];
    open_quiet(8);
    omm_seed token = new_token(2);
    omm_enrol e = with_token(&token, &node);
    s_fed.clock.wall_ms += (uint64_t)2 * 3600 * 1000;
    CHECK_EQ(ask(&e, &node), OMM_ERR_REFUSED_INVITATION);
    s_fed.clock.wall_ms -= 1;
    CHECK_OK(ask(&e, &node));
    first_id(id);
    CHECK_ERR(omm_coord_uninvite(s_fed.coord, id), OMM_ERR_STATE); /* used */
    token = new_token(0);
    e = with_token(&token, &(omm_key){.public_key = key_of(2).public_key});
    const omm_key second = key_of(2);
    first_id(id);
    id[7] = '\0';
    CHECK_ERR(omm_coord_uninvite(s_fed.coord, id), OMM_ERR_NOT_FOUND); /* too short */
    CHECK_ERR(omm_coord_uninvite(s_fed.coord, "0123456789abcdeX"), OMM_ERR_NOT_FOUND);
    CHECK_ERR(omm_coord_uninvite(s_fed.coord, "%%%%%%%%"), OMM_ERR_NOT_FOUND);
    first_id(id);
    CHECK_OK(omm_coord_uninvite(s_fed.coord, id));
    CHECK_ERR(omm_coord_uninvite(s_fed.coord, id), OMM_ERR_STATE);
    CHECK_EQ(ask(&e, &second), OMM_ERR_REFUSED_INVITATION);
    fed_close(&s_fed);
}

static void expect_line(const omm_buf *list, const omm_seed *token, const char *rest) {
    char line[256], hex[OMM_DIGEST_HEX_SIZE];
    const omm_digest id = omm_invitation_id(token);
    omm_digest_hex(hex, &id);
    (void)snprintf(line, sizeof line, "%.16s  until %s\n", hex, rest);
    if (!strstr((const char *)list->data, line)) fprintf(stderr, "no %s", line);
    CHECK(strstr((const char *)list->data, line));
}

/* What the operator reads of each invitation; one that could not be kept is none, and nobody is told its token. */
static void test_lists(void) {
    const omm_key node = key_of(1);
    char id[17], used[128];
    omm_buf list;
    omm_buf_init(&list, 1 << 16);
    open_quiet(8);
    s_fed.clock.wall_ms = (uint64_t)1700000000 * 1000;
    CHECK_OK(omm_coord_invitations(&list, s_fed.coord));
    CHECK(omm_bytes_equal(omm_buf_view(&list), omm_bytes_str("no invitation was made\n")));
    const omm_seed tokens[] = {new_token(0), new_token(2), new_token(0), new_token(3)};
    first_id(id); /* the newest */
    CHECK_OK(omm_coord_uninvite(s_fed.coord, id));
    const omm_enrol e = with_token(&tokens[0], &node);
    CHECK_OK(ask(&e, &node));
    s_fed.clock.wall_ms += (uint64_t)2 * 3600 * 1000;
    omm_buf_clear(&list);
    fed_forbid_writing(true);
    CHECK_ERR(omm_coord_invite(&list, s_fed.coord, 1, 0, ""), OMM_ERR_IO);
    fed_forbid_writing(false);
    CHECK_EQ(list.size, 0);
    CHECK_OK(omm_coord_invitations(&list, s_fed.coord));
    CHECK_OK(omm_buf_append(&list, "", 1));
    char *hex = strrchr(s_fed.run.nodes[2].name, '-');
    CHECK(hex != NULL);
    (void)snprintf(used, sizeof used, "%-24s  used by \"" LABEL_QUOTED "%s\"  \"" LABEL_QUOTED "\"",
                   "-", hex);
    expect_line(&list, &tokens[0], used);
    CHECK(!strstr((const char *)list.data, "older ones"));
    expect_line(&list, &tokens[1], "2023-11-15T00:13:20.000Z  expired  \"" LABEL_QUOTED "\"");
    expect_line(&list, &tokens[2], "-                         open  \"" LABEL_QUOTED "\"");
    expect_line(&list, &tokens[3], "2023-11-15T01:13:20.000Z  withdrawn  \"" LABEL_QUOTED "\"");
    size_t lines = 0;
    for (size_t i = 0; i < list.size; i++) lines += list.data[i] == '\n';
    CHECK_EQ(lines, 4);
    omm_buf tokens_of_many;
    omm_buf_init(&tokens_of_many, 1 << 16);
    CHECK_OK(omm_coord_invite(&tokens_of_many, s_fed.coord, OMM_COORD_LIST_MAX - 1, 0, "more"));
    omm_buf_clear(&list);
    CHECK_OK(omm_coord_invitations(&list, s_fed.coord));
    CHECK_OK(omm_buf_append(&list, "", 1));
    CHECK(strstr((const char *)list.data, "\nand 3 older ones\n"));
    lines = 0;
    for (size_t i = 0; i < list.size; i++) lines += list.data[i] == '\n';
    CHECK_EQ(lines, OMM_COORD_LIST_MAX + 1);
    omm_buf_fini(&tokens_of_many);
    omm_buf_fini(&list);
    fed_close(&s_fed);
}

/* Who comes too late reads what happened and what helps; the others go on. */
static void test_expired_node(void) {
    fed_options o = guests();
    o.nodes = 3;
    o.token_hours = 2;
    fed_open(&s_fed, &o);
    s_fed.clock.wall_ms += (uint64_t)2 * 3600 * 1000;
    omm_node_status status = {.refused = "", .advice = ""};
    for (int i = 0; i < 1000 && strncmp(status.refused, "invitation", 10) != 0; i++) {
        CHECK(fed_step(&s_fed));
        status = omm_node_get_status(s_fed.nodes[2]);
    }
    CHECK(strncmp(status.refused, "invitation: ended at ", 21) == 0);
    CHECK(strstr(status.advice, "another invitation"));
    s_fed.done[2] = true;
    fed_run(&s_fed);
    CHECK_EQ(s_fed.run.node_count, 2);
    fed_close(&s_fed);
}

static void test_room(void) {
    open_quiet(3);
    const omm_key one = key_of(1), two = key_of(2);
    omm_seed a = new_token(0), b = new_token(0);
    omm_enrol e = with_token(&a, &one);
    CHECK_OK(ask(&e, &one));
    e = with_token(&b, &two);
    CHECK_EQ(ask(&e, &two), OMM_ERR_REFUSED_FULL);
    fed_restart_coordinator(&s_fed);
    CHECK_EQ(ask(&e, &two), OMM_ERR_REFUSED_FULL);
    omm_coord_close(s_fed.coord); /* who is in is not put out by a smaller number */
    s_fed.coord = NULL;
    const omm_coord_options o = fed_coord_options(&s_fed);
    s_fed.run.node_count = s_fed.enrolment.node_max = 2; /* as a new process begins */
    CHECK_ERR(omm_coord_open(&s_fed.coord, &o), OMM_ERR_MISMATCH);
    CHECK(strstr(omm_err_sentence(), "there is room for 2; raise node_max"));
    s_fed.enrolment.node_max = 3;
    fed_restart_coordinator(&s_fed);
    fed_close(&s_fed);
}

/* Two keys whose files in the bundle would have one name: it takes 2^32 keys to find such two. */
static void test_alike(void) {
    open_quiet(8);
    const omm_key one = key_of(1), two = key_of(2);
    const omm_digest id = omm_key_id(&two.public_key);
    omm_seed a = new_token(0), b = new_token(0);
    omm_enrol e = with_token(&a, &one);
    CHECK_OK(ask(&e, &one));
    e = with_token(&b, &two);
    omm_digest *first = &s_fed.run_nodes[2].id;
    const omm_digest was = *first;
    memcpy(first->b, id.b, 8);
    CHECK_EQ(ask(&e, &two), OMM_ERR_REFUSED_KEY);
    CHECK_EQ(s_fed.run.node_count, 3);
    first->b[7] ^= 1;
    CHECK_OK(ask(&e, &two));
    *first = was;
    fed_close(&s_fed);
}

/* A token that comes after the last round is as good as none, and says so. */
static void test_too_late(void) {
    fed_options o = guests();
    const omm_key late = key_of(1);
    o.nodes = 2;
    o.node_max = 3;
    fed_open(&s_fed, &o);
    const omm_seed token = new_token(0);
    const omm_enrol e = with_token(&token, &late);
    fed_run(&s_fed);
    CHECK_EQ(ask(&e, &late), OMM_ERR_REFUSED_LATE);
    CHECK_EQ(s_fed.run.node_count, 2);
    omm_buf out;
    omm_buf_init(&out, 4096);
    CHECK_ERR(omm_coord_invite(&out, s_fed.coord, 1, 0, ""), OMM_ERR_STATE);
    CHECK_EQ(out.size, 0);
    omm_buf_fini(&out);
    fed_close(&s_fed);
}

static omm_err admit_nobody(void *ud, const char *name, const omm_public_key *key) {
    (void)ud;
    (void)name;
    (void)key;
    return omm_raise(OMM_ERR_NOMEM, "no room for a node");
}

/* Who cannot be written down, or has no place in memory, is not in, and is when there is room again. */
static void test_not_written(void) {
    const omm_key node = key_of(1);
    omm_buf payload, envelope, request, reply;
    uint64_t deadline_ms = 0;
    open_quiet(3);
    const omm_seed token = new_token(0);
    const omm_enrol e = with_token(&token, &node);
    omm_buf_init(&payload, 4096);
    omm_buf_init(&envelope, OMM_ENVELOPE_BYTES_MAX);
    omm_buf_init(&request, OMM_MESSAGE_BYTES_MAX);
    omm_buf_init(&reply, OMM_MESSAGE_BYTES_MAX);
    CHECK_OK(omm_enrol_encode(&payload, &e));
    CHECK_OK(omm_envelope_seal(&envelope, OMM_CONTEXT_ENROL, omm_buf_view(&payload), &node));
    CHECK_OK(omm_request_encode(
        &request, &(omm_request){.kind = OMM_REQUEST_ENROL, .envelope = omm_buf_view(&envelope)}));
    const omm_coord_enrolment enrolment = s_fed.enrolment;
    for (int i = 0; i < 3; i++) {
        if (i == 2) s_fed.enrolment.admit = admit_nobody;
        fed_forbid_writing(i < 2);
        CHECK_ERR(omm_coord_step(&reply, &deadline_ms, s_fed.coord, s_fed.now_ms,
                                 omm_buf_view(&request), NULL),
                  i < 2 ? OMM_ERR_IO : OMM_ERR_NOMEM);
        fed_forbid_writing(false);
        CHECK_EQ(s_fed.run.node_count, 2);
    }
    s_fed.enrolment = enrolment;
    CHECK_OK(ask(&e, &node));
    CHECK_EQ(s_fed.run.node_count, 3);
    CHECK_OK(poll_as(&node));
    omm_buf_fini(&payload);
    omm_buf_fini(&envelope);
    omm_buf_fini(&request);
    omm_buf_fini(&reply);
    fed_close(&s_fed);
}

static void test_operator_limits(void) {
    omm_buf out;
    omm_buf_init(&out, 1 << 20);
    open_quiet(8);
    CHECK_ERR(omm_coord_invite(&out, s_fed.coord, 0, 0, ""), OMM_ERR_CONFIG);
    CHECK_ERR(omm_coord_invite(&out, s_fed.coord, OMM_COORD_INVITE_MAX + 1, 0, ""), OMM_ERR_CONFIG);
    CHECK_ERR(omm_coord_invite(&out, s_fed.coord, 1, OMM_COORD_HOURS_MAX + 1, ""), OMM_ERR_CONFIG);
    CHECK_ERR(omm_coord_invite(&out, s_fed.coord, 1, 0, "a\nb"), OMM_ERR_CONFIG);
    CHECK_ERR(
        omm_coord_invite(&out, s_fed.coord, 1, 0, "12345678901234567890123456789012345678901"),
        OMM_ERR_CONFIG);
    CHECK_EQ(out.size, 0);
    CHECK_OK(omm_coord_invite(&out, s_fed.coord, OMM_COORD_INVITE_MAX, 0, ""));
    CHECK_EQ(out.size, OMM_COORD_INVITE_MAX * OMM_INVITATION_TEXT_SIZE);
    for (uint32_t i = OMM_COORD_INVITE_MAX; i < OMM_COORD_INVITES_MAX; i += OMM_COORD_INVITE_MAX) {
        omm_buf_clear(&out);
        CHECK_OK(omm_coord_invite(&out, s_fed.coord, OMM_COORD_INVITE_MAX, 0, ""));
    }
    CHECK_ERR(omm_coord_invite(&out, s_fed.coord, 1, 0, ""), OMM_ERR_TOO_BIG);
    omm_buf_clear(&out);
    CHECK_OK(omm_coord_invitations(&out, s_fed.coord));
    CHECK(out.size < 64 << 10);
    /* Nothing on disk lets anybody in: no token, in digits or bytes. */
    fed_close(&s_fed);
    fed_options o = fed_options_default();
    fed_open(&s_fed, &o); /* a run with its list */
    CHECK_ERR(omm_coord_invite(&out, s_fed.coord, 1, 0, ""), OMM_ERR_STATE);
    fed_close(&s_fed);
    omm_buf_fini(&out);
}

static bool file_has(const char *path, omm_bytes what) {
    omm_buf bytes;
    bool has = false;
    omm_buf_init(&bytes, 1 << 26);
    CHECK_OK(omm_file_read(&bytes, path));
    for (size_t i = 0; i + what.size <= bytes.size && !has; i++)
        has = memcmp(bytes.data + i, what.data, what.size) == 0;
    omm_buf_fini(&bytes);
    return has;
}

static void test_nothing_secret_kept(void) {
    static const char *const files[] = {"enrolment.sqlite", "enrolment.sqlite-wal"};
    open_quiet(8);
    omm_seed token = new_token(0);
    const omm_digest id = omm_invitation_id(&token);
    bool has_id = false;
    char hex[65];
    omm_hex(hex, omm_bytes_of(token.b, 32));
    for (size_t i = 0; i < 2; i++) {
        char path[OMM_PATH_MAX], name[64];
        (void)snprintf(name, sizeof name, "coordinator/%s", files[i]);
        CHECK_OK(omm_path_join(path, s_fed.dir, name));
        if (!omm_file_exists(path)) continue;
        CHECK(!file_has(path, omm_bytes_of(token.b, 32)));
        CHECK(!file_has(path, omm_bytes_str(hex)));
        has_id |= file_has(path, omm_bytes_of(id.b, 32));
    }
    CHECK(has_id); /* so it is the file that is looked at */
    fed_close(&s_fed);
}

/* ---- work ---- */

static fed_options workers(void) {
    fed_options o = guests();
    o.on_disk = false;
    o.work_bits = 8;
    o.rounds = 6;
    return o;
}

static void open_door(void) {
    fed_options o = workers();
    o.on_disk = true;
    o.nodes = 2;
    o.node_max = 8;
    o.work_bits = 10;
    o.silent[0] = o.silent[1] = true;
    fed_open(&s_fed, &o);
}

/* Ask for a challenge as `key`; OK with what is to be worked on. */
static omm_digest challenge_for(const omm_key *key) {
    omm_enrol e = {.coordinator = s_fed.coordinator_key.public_key};
    omm_buf payload, envelope, request, reply;
    omm_arena arena;
    omm_reply said;
    omm_envelope opened;
    omm_challenge challenge;
    omm_buf_init(&payload, 4096);
    omm_buf_init(&envelope, 4096);
    omm_buf_init(&request, 4096);
    omm_buf_init(&reply, OMM_MESSAGE_BYTES_MAX);
    omm_arena_init(&arena, OMM_MESSAGE_ARENA_BYTES);
    CHECK_OK(omm_enrol_encode(&payload, &e));
    CHECK_OK(omm_envelope_seal(&envelope, OMM_CONTEXT_ENROL, omm_buf_view(&payload), key));
    CHECK_OK(omm_request_encode(
        &request, &(omm_request){.kind = OMM_REQUEST_ENROL, .envelope = omm_buf_view(&envelope)}));
    fed_send(&s_fed, &reply, omm_buf_view(&request));
    CHECK_OK(omm_reply_decode(&said, omm_buf_view(&reply), &arena));
    CHECK_EQ(said.kind, OMM_REPLY_CHALLENGE);
    CHECK_OK(omm_envelope_open_as(&opened, OMM_CONTEXT_CHALLENGE, said.envelope));
    CHECK(omm_public_key_equal(&opened.key, &s_fed.coordinator_key.public_key));
    CHECK_OK(omm_challenge_decode(&challenge, opened.payload, &arena));
    CHECK_EQ(challenge.bits, 10);
    const omm_digest digest = omm_hash(opened.payload);
    omm_arena_fini(&arena);
    omm_buf_fini(&reply);
    omm_buf_fini(&request);
    omm_buf_fini(&envelope);
    omm_buf_fini(&payload);
    return digest;
}

static omm_enrol worked(const omm_digest *challenge, const omm_key *key) {
    omm_enrol e = {
        .coordinator = s_fed.coordinator_key.public_key, .has_work = true, .challenge = *challenge};
    CHECK(omm_work_search(&e.work, challenge, &key->public_key, 10, 0, 1u << 20));
    return e;
}

static void test_work(void) {
    const omm_key node = key_of(1), thief = key_of(2), late = key_of(3);
    open_door();
    omm_digest challenge = challenge_for(&node);
    const omm_digest same = challenge_for(&thief);
    CHECK(omm_digest_equal(&challenge, &same)); /* asking costs no memory and no signature */
    omm_enrol e = worked(&challenge, &node);
    CHECK_EQ(ask(&e, &thief), OMM_ERR_REFUSED_WORK); /* it is the node's, not his */
    omm_enrol little = e;
    while (omm_work_bits(&challenge, &node.public_key, ++little.work) >= 10) continue;
    CHECK_EQ(ask(&little, &node), OMM_ERR_REFUSED_WORK);
    while (omm_work_bits(&challenge, &node.public_key, ++little.work) != 9) continue;
    CHECK_EQ(ask(&little, &node), OMM_ERR_REFUSED_WORK); /* one bit less is less */
    omm_enrol other = e;
    other.challenge.b[0] ^= 1;
    CHECK_EQ(ask(&other, &node), OMM_ERR_REFUSED_WORK);
    CHECK_EQ(s_fed.run.node_count, 2);
    for (int i = 0; i < 2; i++) CHECK_OK(ask(&e, &node));
    CHECK_EQ(s_fed.run.node_count, 3);
    /* A challenge lives for twenty minutes at most, and not over a restart. */
    e = worked(&challenge, &late);
    s_fed.now_ms += 600000;
    const omm_digest next = challenge_for(&late);
    CHECK(!omm_digest_equal(&challenge, &next));
    s_fed.now_ms += 599999;
    CHECK_OK(ask(&e, &late));
    CHECK_EQ(s_fed.run.node_count, 4);
    e = worked(&challenge, &thief);
    s_fed.now_ms += 1;
    CHECK_EQ(ask(&e, &thief), OMM_ERR_REFUSED_WORK);
    e = worked(&next, &thief);
    fed_restart_coordinator(&s_fed);
    CHECK_EQ(ask(&e, &thief), OMM_ERR_REFUSED_WORK);
    CHECK_EQ(s_fed.run.node_count, 4);
    /* A forged signature with good work does not come in, either. */
    challenge = challenge_for(&thief);
    e = worked(&challenge, &thief);
    omm_key forged = thief;
    forged.secret[5] ^= 1;
    CHECK_EQ(ask(&e, &forged), OMM_ERR_REFUSED_SIGNATURE);
    CHECK_EQ(s_fed.run.node_count, 4);
    fed_close(&s_fed);
    open_quiet(8); /* where the door is shut, work is no word */
    CHECK_EQ(ask(&e, &thief), OMM_ERR_REFUSED_KEY);
    fed_close(&s_fed);
}

/* Who is in and says so once more, its answer was lost, is in whatever has become of its challenge; and an invitation is looked
 * at by itself. */
static void test_work_is_over(void) {
    const omm_key node = key_of(1), guest = key_of(2);
    open_door();
    const omm_digest challenge = challenge_for(&node);
    const omm_enrol e = worked(&challenge, &node);
    const omm_seed token = new_token(0);
    CHECK_OK(ask(&e, &node));
    s_fed.now_ms += 86400000; /* a day */
    CHECK_OK(ask(&e, &node));
    fed_restart_coordinator(&s_fed);
    CHECK_OK(ask(&e, &node));
    CHECK_EQ(s_fed.run.node_count, 3);
    omm_enrol both = with_token(&token, &guest);
    both.has_work = true;
    both.challenge = challenge;
    CHECK_OK(ask(&both, &guest));
    CHECK_EQ(s_fed.run.node_count, 4);
    fed_close(&s_fed);
}

/* Claims without work, by keys that are made up: each is refused and counted, none leaves anything. */
static void test_flood(void) {
    enum { CLAIMS = 2000 };
    open_door();
    const omm_key node = key_of(1);
    const omm_digest challenge = challenge_for(&node);
    omm_enrol e = worked(&challenge, &node);
    omm_buf payload, envelope, request, reply;
    omm_envelope opened;
    omm_buf_init(&payload, 4096);
    omm_buf_init(&envelope, 4096);
    omm_buf_init(&request, 4096);
    omm_buf_init(&reply, OMM_MESSAGE_BYTES_MAX);
    CHECK_OK(omm_enrol_encode(&payload, &e));
    CHECK_OK(omm_envelope_seal(&envelope, OMM_CONTEXT_ENROL, omm_buf_view(&payload), &node));
    CHECK_OK(omm_envelope_open(&opened, omm_buf_view(&envelope)));
    const uint64_t refused = omm_coord_get_status(s_fed.coord).refusals_total;
    size_t live = 0;
    const uint64_t begin_ns = omm_measure_ns();
    for (uint32_t i = 0; i < CLAIMS; i++) {
        omm_envelope forged = opened;
        omm_put_u32(forged.key.b, i);
        if (omm_work_bits(&challenge, &forged.key, e.work) >= 10) forged.key.b[5] ^= 1;
        omm_buf_clear(&envelope);
        omm_buf_clear(&request);
        CHECK_OK(omm_envelope_encode(&envelope, &forged));
        CHECK_OK(omm_request_encode(&request, &(omm_request){.kind = OMM_REQUEST_ENROL,
                                                             .envelope = omm_buf_view(&envelope)}));
        fed_send(&s_fed, &reply, omm_buf_view(&request));
        if (i == 10) live = omm_mem_live();
    }
    printf("flood: %.0f claims/s are refused\n",
           CLAIMS * 1e9 / (double)(omm_measure_ns() - begin_ns));
    CHECK_EQ(omm_mem_live(), live);
    CHECK_EQ(omm_coord_get_status(s_fed.coord).refusals_total, refused + CLAIMS);
    CHECK_EQ(s_fed.run.node_count, 2);
    CHECK_OK(ask(&e, &node)); /* and the door is as open as it was */
    omm_buf_fini(&reply);
    omm_buf_fini(&request);
    omm_buf_fini(&envelope);
    omm_buf_fini(&payload);
    fed_close(&s_fed);
}

static void test_work_limit(void) {
    fed_options o = workers();
    o.listed = 2;
    o.nodes = 3;
    o.work_bits_max = 7; /* its owner agrees to less than is asked for */
    o.rounds = 1;
    fed_open(&s_fed, &o);
    bool is_said = false; /* to its owner */
    for (int i = 0; i < 200 && fed_step(&s_fed); i++)
        is_said |= strstr(omm_node_get_status(s_fed.nodes[2]).refused, "our limit is 7") != NULL;
    CHECK(is_said);
    CHECK_EQ(s_fed.run.node_count, 2);
    CHECK(strcmp(omm_node_get_status(s_fed.nodes[2]).phase, "polling") == 0);
    fed_close(&s_fed);
}

static void test_worked_runs(void) {
    omm_seed seed = omm_seed_from_u64(2);
    fed_options o = workers();
    run_and_verify(&o, "work");
    o.fault = fault_often_or_undo;
    o.ud = &seed;
    run_and_verify(&o, "work, messages lost");
}

/* ---- revocation ---- */

static void revoke(omm_err want, size_t node, const char *reason) {
    CHECK_ERR(omm_coord_revoke(&s_fed.coord_deadline_ms, s_fed.coord, s_fed.now_ms, node, reason),
              want);
}

/* In quarantine it is told so, signed; what it says there is heard again by nobody when it is released. */
static void test_quarantined(void) {
    const omm_key guest = key_of(1);
    open_quiet(8);
    omm_seed token = new_token(0);
    omm_enrol e = with_token(&token, &guest);
    CHECK_OK(ask(&e, &guest));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(poll_as(&guest));
        CHECK_EQ(s_says[0], '\0');
        CHECK_OK(
            omm_coord_quarantine(&s_fed.coord_deadline_ms, s_fed.coord, s_fed.now_ms, 2, true));
        fed_restart_coordinator(&s_fed);
        s_counter += OMM_COUNTER_BLOCK; /* as a node goes on */
        CHECK_EQ(poll_as(&guest), OMM_ERR_REFUSED_NOT_SELECTED);
        CHECK(strcmp(s_says, "round: node is in quarantine, by the operator's word") == 0);
        const uint64_t last = s_counter;
        CHECK_OK(
            omm_coord_quarantine(&s_fed.coord_deadline_ms, s_fed.coord, s_fed.now_ms, 2, false));
        s_counter = last - 2;
        CHECK_EQ(poll_as(&guest), OMM_ERR_REFUSED_DUPLICATE);
        s_counter = last;
    }
    fed_close(&s_fed);
}

static void test_revoked(void) {
    const omm_key guest = key_of(1);
    open_quiet(8);
    omm_seed token = new_token(0), second = new_token(0);
    omm_enrol e = with_token(&token, &guest);
    CHECK_OK(ask(&e, &guest));
    revoke(OMM_ERR_CONFIG, 2, "");
    revoke(OMM_ERR_CONFIG, 2, "line\nbreak");
    fed_forbid_writing(true); /* it would be back with the next start */
    revoke(OMM_ERR_IO, 2, "sends noise");
    fed_forbid_writing(false);
    CHECK_OK(poll_as(&guest));
    revoke(OMM_OK, 2, "sends noise");
    revoke(OMM_ERR_STATE, 2, "again");
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(poll_as(&guest), OMM_ERR_REFUSED_KEY);
        CHECK(strcmp(s_says, "public_key: revoked: sends noise") == 0);
        CHECK_EQ(ask(&e, &guest), OMM_ERR_REFUSED_KEY);
        omm_enrol again = with_token(&second, &guest); /* a new invitation does not help it */
        CHECK_EQ(ask(&again, &guest), OMM_ERR_REFUSED_KEY);
        CHECK_ERR(
            omm_coord_quarantine(&s_fed.coord_deadline_ms, s_fed.coord, s_fed.now_ms, 2, false),
            OMM_ERR_STATE);
        CHECK(omm_coord_get_node(s_fed.coord, 2).revoked);
        fed_restart_coordinator(&s_fed);
    }
    omm_buf list;
    omm_buf_init(&list, 1 << 20);
    CHECK_OK(omm_coord_nodes(&list, s_fed.coord));
    CHECK_OK(omm_buf_append(&list, "", 1));
    CHECK(strstr((const char *)list.data, "revoked: sends noise"));
    CHECK(strstr((const char *)list.data, "by list"));
    CHECK(strstr((const char *)list.data, "refused  \"" LABEL_QUOTED "-")); /* one column */
    CHECK(strstr((const char *)list.data, "by invitation "));
    omm_buf_fini(&list);
    fed_close(&s_fed);
}

/* In the middle of a run: the others go on, and what it gave is in the evidence. */
static void test_revoked_in_a_run(void) {
    fed_options o = guests();
    o.rounds = 3;
    o.on_disk = false;
    fed_open(&s_fed, &o);
    uint32_t over = 0;
    while (fed_step(&s_fed)) {
        (void)omm_coord_history(&over, s_fed.coord);
        if (over == 1 && !omm_coord_get_node(s_fed.coord, 3).revoked) {
            revoke(OMM_OK, 3, "asked to");
            for (uint32_t i = 0; i < o.nodes; i++)
                if (s_fed.of_node[i] == 3) s_fed.done[i] = true; /* it is not told of the end */
        }
    }
    const omm_coord_round *rounds = omm_coord_history(&over, s_fed.coord);
    CHECK_EQ(over, 3);
    CHECK_EQ(rounds[2].accepted, 4);
    CHECK_EQ(rounds[2].missing, 0);
    fed_seal_and_verify(&s_fed);
    fed_close(&s_fed);
}

/* ---- what is kept does not fit the run ---- */

static omm_err open_again(void) {
    const omm_coord_options options = fed_coord_options(&s_fed);
    omm_coord *coord = NULL;
    const omm_err err = omm_coord_open(&coord, &options);
    omm_coord_close(coord);
    return err;
}

/* `damage` is done to enrolment.sqlite, and undone: between them no coordinator begins, and it says why. */
static void refuses_damage(omm_err (*damage)(omm_db *db), const char *undo, omm_err want,
                           const char *why) {
    omm_db *db = NULL;
    CHECK_OK(open_again());
    CHECK_OK(enrol_store_open(&db, s_fed.state_dir));
    CHECK_OK(damage(db));
    omm_db_close(db);
    CHECK_ERR(open_again(), want);
    CHECK(strstr(omm_err_sentence(), why));
    CHECK_OK(enrol_store_open(&db, s_fed.state_dir));
    CHECK_OK(omm_db_exec(db, undo));
    omm_db_close(db);
    CHECK_OK(open_again());
}

static omm_err revoke_nobody(omm_db *db) {
    return enrol_store_revoke(db, 3, "nobody", 0);
}

static omm_err leave_a_gap(omm_db *db) {
    const omm_key key = key_of(9);
    return enrol_store_join(db, 4, "other", "list", &key.public_key, NULL);
}

static omm_err join_as_another(omm_db *db) {
    const omm_key key = key_of(9);
    OMM_TRY(omm_db_exec(db, "UPDATE member SET node = 5 WHERE node = 2"));
    return enrol_store_join(db, 2, "other", "list", &key.public_key, NULL);
}

static void test_damaged(void) {
    const omm_key guest = key_of(1);
    open_quiet(8);
    const omm_seed token = new_token(0);
    const omm_enrol e = with_token(&token, &guest);
    CHECK_OK(ask(&e, &guest));
    CHECK_EQ(s_fed.run.node_count, 3);
    omm_coord_close(s_fed.coord);
    s_fed.coord = NULL;
    refuses_damage(revoke_nobody, "DELETE FROM revoked", OMM_ERR_FORMAT,
                   "enrolment.sqlite: node 3 is revoked and unknown");
    refuses_damage(leave_a_gap, "DELETE FROM member WHERE node = 4", OMM_ERR_FORMAT,
                   "enrolment.sqlite: other is node 4, and node 3 is not there");
    refuses_damage(join_as_another,
                   "DELETE FROM member WHERE node = 2; UPDATE member SET node = 2 WHERE node = 5",
                   OMM_ERR_MISMATCH, "enrolment.sqlite: node 2 is another one");
    fed_close(&s_fed);
}

int main(void) {
    test_thief();
    test_once();
    test_ends();
    test_lists();
    test_expired_node();
    test_room();
    test_alike();
    test_too_late();
    test_not_written();
    test_operator_limits();
    test_nothing_secret_kept();
    test_work();
    test_work_is_over();
    test_flood();
    test_work_limit();
    test_worked_runs();
    test_quarantined();
    test_revoked();
    test_damaged();
    test_runs();
    test_revoked_in_a_run();
    test_no_memory();
    CHECK_EQ(omm_mem_live(), 0);
    return 0;
}

/* enrol_power_test - what a power cut leaves of who was let in and of the operator's words.
 *
 * Invitations are made, used and withdrawn, nodes are put in quarantine, released and revoked, on a disk that writes
 * every operation down.  After a cut behind any of them: what was answered is so, what had not begun is not, and an
 * invitation lets one key in, whoever comes with it first then. */
#include "disk.h"
#include "federation.h"
#include "hand.h"

#include "omm_test.h"

#include <string.h>

enum { LISTED = 2, TOKENS = 3 };

typedef enum word {
    INVITE,
    ANNA_JOINS, /* with the first token */
    QUARANTINE, /* the first of the list */
    REVOKE_ANNA,
    BERT_JOINS,
    RELEASE,
    UNINVITE, /* the third token */
    QUARANTINE_BERT,
    REVOKE_BERT,
    WORDS,
} word;

/* Operations of the disk when a word was said, and when it was answered. */
static struct { uint64_t said, answered; } s_words[WORDS];
static omm_seed s_tokens[TOKENS];
static uint64_t s_cut;
static bool s_goes_on; /* the same words were said again after the cut */

static bool is_answered(word w) {
    return s_words[w].answered <= s_cut;
}

static bool has_begun(word w) {
    return s_goes_on || s_words[w].said < s_cut;
}

static fed_options enrol_options(const char *dir) {
    fed_options o = fed_options_durable(dir);
    o.nodes = o.listed = LISTED;
    o.node_max = 8;
    o.batched = true;
    o.silent[0] = o.silent[1] = true;
    return o;
}

/* ---- who says it ---- */

static const uint64_t s_anna = 1, s_bert = 2;

/* Is it in, after this? */
static bool comes(fed *f, uint64_t number, const omm_seed *token) {
    hand h;
    hand_open(&h, f, number);
    const bool is_in = hand_enrol_by(&h, token) == OMM_REPLY_WAIT;
    hand_close(&h);
    return is_in;
}

/* Of a key in the run; -1: it is not in. */
static int index_of(fed *f, uint64_t number) {
    int found = -1;
    hand h;
    hand_open(&h, f, number);
    const omm_digest id = omm_key_id(&h.key.public_key);
    for (size_t i = 0; i < f->run.node_count; i++) {
        if (!omm_digest_equal(&f->run.nodes[i].id, &id)) continue;
        CHECK_EQ(found, -1); /* nobody is in twice */
        found = (int)i;
    }
    hand_close(&h);
    return found;
}

static void invite(fed *f) {
    omm_buf text;
    omm_buf_init(&text, 4096);
    CHECK_OK(omm_coord_invite(&text, f->coord, TOKENS, 0, "guest"));
    CHECK_EQ(text.size, TOKENS * OMM_INVITATION_TEXT_SIZE);
    for (size_t i = 0; i < TOKENS; i++) {
        char *line = (char *)text.data + i * OMM_INVITATION_TEXT_SIZE;
        line[OMM_INVITATION_TEXT_SIZE - 1] = '\0';
        CHECK_OK(omm_invitation_parse(&s_tokens[i], line));
    }
    omm_buf_fini(&text);
}

static void uninvite(fed *f, const omm_seed *token) {
    const omm_digest id = omm_invitation_id(token);
    char hex[OMM_DIGEST_HEX_SIZE];
    omm_digest_hex(hex, &id);
    CHECK_OK(omm_coord_uninvite(f->coord, hex));
}

static void quarantine(fed *f, int node, bool quarantined) {
    CHECK_OK(omm_coord_quarantine(&f->coord_deadline_ms, f->coord, f->now_ms, (size_t)node,
                                  quarantined));
}

static void revoke(fed *f, int node) {
    CHECK_OK(
        omm_coord_revoke(&f->coord_deadline_ms, f->coord, f->now_ms, (size_t)node, "a reason"));
}

static void say(fed *f, word w) {
    switch (w) {
    case INVITE: invite(f); break;
    case ANNA_JOINS: CHECK(comes(f, s_anna, &s_tokens[0])); break;
    case QUARANTINE: quarantine(f, 0, true); break;
    case REVOKE_ANNA: revoke(f, index_of(f, s_anna)); break;
    case BERT_JOINS: CHECK(comes(f, s_bert, &s_tokens[1])); break;
    case RELEASE: quarantine(f, 0, false); break;
    case UNINVITE: uninvite(f, &s_tokens[2]); break;
    case QUARANTINE_BERT: quarantine(f, index_of(f, s_bert), true); break;
    case REVOKE_BERT: revoke(f, index_of(f, s_bert)); break;
    case WORDS: break;
    }
}

static void record(void) {
    char dir[64];
    disk_folder(dir);
    disk_watch(dir);
    fed_options options = enrol_options(dir);
    fed f;
    fed_open(&f, &options);
    for (word w = INVITE; w < WORDS; w++) {
        s_words[w].said = disk_count();
        say(&f, w);
        s_words[w].answered = disk_count();
        CHECK(s_words[w].answered > s_words[w].said);
    }
    disk_rest();
    fed_close(&f);
}

/* ---- after a cut ---- */

static char s_at[64];
static void say_at(void) {
    if (s_at[0]) fprintf(stderr, "failed: enrol_power_test %s\n", s_at);
}

/* What is so, where a word makes it so. */
static void check_word(word w, bool is_so) {
    if (is_answered(w)) CHECK(is_so);
    if (!has_begun(w)) CHECK(!is_so);
}

static bool is_revoked(const fed *f, int node) {
    if (node < 0) return false;
    const omm_coord_node_status status = omm_coord_get_node(f->coord, (size_t)node);
    CHECK(status.quarantined || !status.revoked); /* from its first moment on */
    return status.revoked;
}

static void check_nodes(fed *f) {
    const int anna = index_of(f, s_anna), bert = index_of(f, s_bert);
    check_word(ANNA_JOINS, anna >= 0);
    check_word(BERT_JOINS, bert >= 0);
    check_word(REVOKE_ANNA, is_revoked(f, anna));
    check_word(REVOKE_BERT, is_revoked(f, bert));
    const bool is_out = omm_coord_get_node(f->coord, 0).quarantined;
    if (!has_begun(RELEASE)) check_word(QUARANTINE, is_out);
    if (is_answered(RELEASE)) CHECK(!is_out);
    if (bert >= 0)
        check_word(QUARANTINE_BERT, omm_coord_get_node(f->coord, (size_t)bert).quarantined);
    CHECK(!omm_coord_get_node(f->coord, 1).quarantined);
}

/* Two keys with one token, either of them first: one is in, and stays it. */
static void check_token(fed *f, uint64_t owner, const omm_seed *token, bool owner_first) {
    const uint64_t thief = owner + 100;
    const bool was_revoked = is_revoked(f, index_of(f, owner));
    bool is_in[2];
    for (int i = 0; i < 2; i++) is_in[i] = comes(f, (i == 0) == owner_first ? owner : thief, token);
    if (is_answered(INVITE)) CHECK(was_revoked || is_in[0] != is_in[1]);
    CHECK(!(is_in[0] && is_in[1]));
    CHECK(!was_revoked || (!is_in[0] && !is_in[1])); /* it was used, and its user is out */
}

static void check_tokens(fed *f, uint64_t count) {
    check_token(f, s_anna, &s_tokens[0], count % 2 == 0);
    check_token(f, s_bert, &s_tokens[1], count % 2 == 0);
    /* Whoever is revoked is not let in by another one, which is not used up by that. */
    const bool lets_in = is_answered(INVITE) && !has_begun(UNINVITE);
    if (is_revoked(f, index_of(f, s_anna))) CHECK(!comes(f, s_anna, &s_tokens[2]));
    const bool came = comes(f, 7, &s_tokens[2]);
    if (lets_in) CHECK(came);
    if (is_answered(UNINVITE)) CHECK(!came);
}

static void cut(uint64_t count, disk_loss loss) {
    char dir[64];
    s_cut = count;
    s_goes_on = false;
    (void)snprintf(s_at, sizeof s_at, "%u %d", (unsigned)count, (int)loss);
    disk_folder(dir);
    disk_rebuild(dir, count, loss, count, disk_everything, NULL);
    fed_options options = enrol_options(dir);
    fed f;
    fed_open(&f, &options);
    check_nodes(&f);
    check_tokens(&f, count);
    s_goes_on = true;
    const size_t nodes = f.run.node_count;
    CHECK(nodes <= LISTED + TOKENS);
    fed_restart_coordinator(&f);
    CHECK_EQ(f.run.node_count, nodes);
    check_nodes(&f);
    fed_close(&f);
    s_at[0] = '\0';
}

/* enrol_power_test [COUNT LOSS], to look at one cut. */
int main(int argc, char **argv) {
    (void)atexit(say_at);
    record();
    if (argc == 3) {
        disk_print();
        cut((uint64_t)strtol(argv[1], NULL, 10), (disk_loss)strtol(argv[2], NULL, 10));
        return 0;
    }
    uint64_t cuts = 0;
    for (uint64_t count = s_words[INVITE].said; count <= s_words[REVOKE_BERT].answered; count++)
        for (int loss = DISK_LOSE_NOTHING; loss <= DISK_LOSE_SOME; loss++, cuts++)
            cut(count, (disk_loss)loss);
    printf("%u words, %u cuts\n", (unsigned)WORDS, (unsigned)cuts);
    return 0;
}

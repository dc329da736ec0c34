/* Why nodes give nothing to a round, as the coordinator hears it and its operator reads it. */
#include "peer.h"

#include "omm/coordinator_enrol.h"
#include "omm/declined.h"
#include "omm_test.h"

#include <stdio.h>
#include <string.h>

#define NEWER 77u /* a reason of a newer node */

static uint32_t heard(const peer *p) {
    return omm_coord_get_node(p->f.coord, p->f.of_node[PEER]).declined;
}

static void say(peer *p, uint32_t declined) {
    peer_poll_with(p, &(omm_poll){.declined = declined}, false);
}

/* A round that only the peer can give to. */
static fed_options alone(const listener *l) {
    fed_options o = peer_options();
    for (uint32_t i = 0; i < o.nodes; i++) o.silent[i] = true;
    o.join_ms = 10;
    o.rounds = 2;
    o.log = &l->log;
    return o;
}

static bool lists(const peer *p, const char *what) {
    omm_buf list;
    omm_buf_init(&list, 1 << 20);
    CHECK_OK(omm_coord_nodes(&list, p->f.coord));
    CHECK_OK(omm_buf_append(&list, "", 1));
    const bool has = strstr((const char *)list.data, what) != NULL;
    omm_buf_fini(&list);
    return has;
}

/* Only what is said after the round's offer was taken is about it, and a change is one line. */
static void is_heard(void) {
    listener l;
    peer p;
    listener_open(&l, " node_declines ");
    const fed_options o = alone(&l);
    peer_open(&p, &o);
    say(&p, OMM_DECLINED_MEMORY); /* of a round before, if there was one */
    while (omm_coord_get_status(p.f.coord).state != OMM_COORD_OPEN) CHECK(fed_step(&p.f));
    say(&p, OMM_DECLINED_MEMORY); /* the same: this one is answered with the offer */
    CHECK(heard(&p) == OMM_DECLINED_NOTHING && l.lines == 0);
    CHECK(!lists(&p, "gave nothing"));
    for (int i = 0; i < 3; i++) say(&p, OMM_DECLINED_BASE);
    CHECK(heard(&p) == OMM_DECLINED_BASE && l.lines == 1);
    CHECK(strstr(l.last, "base: its model or tokenizer is another one"));
    CHECK(lists(&p,
                "; gave nothing to the last offer: base: its model or tokenizer is another one\n"));
    say(&p, NEWER);
    CHECK(heard(&p) == NEWER && l.lines == 2 && strstr(l.last, "other (77)"));
    CHECK(lists(&p, "; gave nothing to the last offer: other (77)\n"));
    say(&p, OMM_DECLINED_NOTHING);
    CHECK(heard(&p) == OMM_DECLINED_NOTHING && l.lines == 3);
    CHECK(!lists(&p, "gave nothing"));
    peer_close(&p);
}

/* Who plays a poll again says nothing. */
static void replays_say_nothing(void) {
    listener l;
    peer p;
    listener_open(&l, " node_declines ");
    const fed_options o = alone(&l);
    peer_open(&p, &o);
    peer_until_open(&p, 0);
    say(&p, OMM_DECLINED_BASE);
    say(&p, OMM_DECLINED_MEMORY);
    p.counter -= 2;
    say(&p, OMM_DECLINED_BASE);
    CHECK_EQ(p.last.kind, OMM_REPLY_REFUSED);
    say(&p, OMM_DECLINED_PAUSED); /* the last one's number */
    CHECK(heard(&p) == OMM_DECLINED_MEMORY && l.lines == 2);
    peer_close(&p);
}

/* Whatever a node makes up, its lines at INFO have an end. */
static void lines_have_an_end(void) {
    listener l;
    peer p;
    listener_open(&l, " node_declines ");
    l.log.level = OMM_LOG_INFO;
    const fed_options o = alone(&l);
    peer_open(&p, &o);
    peer_until_open(&p, 0);
    for (uint32_t i = 0; i < 20; i++) say(&p, 1 + i % 5);
    CHECK_EQ(l.lines, 2);
    peer_close(&p);
}

/* When too few are left the operator is warned, once; and the void round says why. */
static void too_few_are_left(void) {
    listener l;
    peer p;
    listener_open(&l, " round_");
    fed_options o = alone(&l);
    o.accept_min = 2;
    peer_open(&p, &o);
    for (uint32_t i = 0; i < o.nodes; i++) peer_poll_as(&p, i); /* ready */
    while (omm_coord_get_status(p.f.coord).state != OMM_COORD_OPEN) CHECK(fed_step(&p.f));
    CHECK_EQ(omm_coord_get_status(p.f.coord).selected, 3);
    peer_poll_as(&p, PEER);
    CHECK_EQ(l.warnings, 0);
    say(&p, OMM_DECLINED_BASE);
    CHECK_EQ(l.warnings, 0); /* two are left */
    for (uint32_t i = 0; i < 2; i++) peer_poll_as(&p, 0);
    CHECK_EQ(l.warnings, 0);
    CHECK_OK(
        omm_coord_quarantine(&p.f.coord_deadline_ms, p.f.coord, p.f.now_ms, p.f.of_node[1], true));
    say(&p, OMM_DECLINED_PAUSED); /* it has gone on */
    CHECK_EQ(l.warnings, 0);
    say(&p, OMM_DECLINED_WORK);
    CHECK(l.warnings == 1 && strstr(l.last, " round_declined ") && strstr(l.last, "work 1"));
    say(&p, OMM_DECLINED_BASE);
    CHECK_EQ(l.warnings, 1);
    while (omm_coord_get_status(p.f.coord).state != OMM_COORD_AGGREGATING) CHECK(fed_step(&p.f));
    CHECK(l.warnings == 2 && strstr(l.last, " round_void ") && strstr(l.last, "base 1"));
    peer_close(&p);
}

/* Who has given counts for what a round needs. */
static void enough_are_left(void) {
    listener l;
    peer p;
    listener_open(&l, " round_");
    fed_options o = alone(&l);
    o.accept_min = 2;
    o.silent[0] = false;
    peer_open(&p, &o);
    peer_poll_as(&p, 1);
    peer_until_open(&p, 0);
    CHECK_EQ(omm_coord_get_status(p.f.coord).selected, 3);
    while (omm_coord_get_status(p.f.coord).accepted < 1) CHECK(fed_step(&p.f));
    say(&p, OMM_DECLINED_BASE);
    CHECK_EQ(l.warnings, 0);
    CHECK_OK(
        omm_coord_quarantine(&p.f.coord_deadline_ms, p.f.coord, p.f.now_ms, p.f.of_node[1], true));
    say(&p, OMM_DECLINED_WORK);
    CHECK_EQ(l.warnings, 1);
    peer_close(&p);
}

/* Until the next round opens the last one's is shown; with a verdict, or in a new round, it is forgotten. */
static void is_forgotten(bool gives) {
    listener l;
    peer p;
    bool receipt = false;
    listener_open(&l, " node_declines ");
    const fed_options o = alone(&l);
    peer_open(&p, &o);
    peer_until_open(&p, 0);
    say(&p, OMM_DECLINED_TRAINING);
    if (gives) {
        peer_fill(&p, NULL);
        peer_give(&p);
        CHECK_OK(peer_reason_of(&p, &receipt));
    }
    CHECK_EQ(heard(&p), gives ? OMM_DECLINED_NOTHING : OMM_DECLINED_TRAINING);
    while (omm_coord_get_status(p.f.coord).state != OMM_COORD_JOINING) CHECK(fed_step(&p.f));
    CHECK_EQ(heard(&p), gives ? OMM_DECLINED_NOTHING : OMM_DECLINED_TRAINING);
    peer_until_open(&p, 1);
    CHECK_EQ(heard(&p), OMM_DECLINED_NOTHING);
    peer_close(&p);
}

/* Nothing is kept of it; who is asked again says it again. */
static void after_a_restart(void) {
    listener l;
    peer p;
    listener_open(&l, " node_declines ");
    fed_options o = alone(&l);
    o.on_disk = true;
    peer_open(&p, &o);
    peer_until_open(&p, 0);
    say(&p, OMM_DECLINED_BASE);
    fed_restart_coordinator(&p.f);
    CHECK_EQ(heard(&p), OMM_DECLINED_NOTHING);
    p.counter += OMM_COUNTER_BLOCK;
    say(&p, OMM_DECLINED_BASE);
    CHECK_EQ(heard(&p), OMM_DECLINED_BASE);
    peer_close(&p);
}

/* ---- dry runs ---- */

static bool is_open(const peer *p) {
    return omm_coord_get_status(p->f.coord).state == OMM_COORD_OPEN;
}

/* Of three nodes, whose round is open for 20 s, the peer says this; when the round has ended: 0, it is open at `until_ms`. */
static uint64_t ends_ms(uint32_t declined, uint32_t accept_min, uint64_t until_ms) {
    peer p;
    fed_options o = peer_options();
    o.accept_min = accept_min;
    peer_open(&p, &o);
    peer_until_open(&p, 0);
    say(&p, declined);
    while (is_open(&p) && p.f.now_ms < until_ms) CHECK(fed_step(&p.f));
    const uint64_t at_ms = is_open(&p) ? 0 : p.f.now_ms;
    while (!omm_coord_is_done(p.f.coord)) CHECK(fed_step(&p.f));
    const omm_round_record round = peer_last_round(&p);
    CHECK(round.accepted_count == 2 &&
          round.missing_count == 1); /* as of anybody who gave nothing */
    fed_seal_and_verify(&p.f);
    peer_close(&p);
    return at_ms;
}

/* A round that has enough ends without it, and not one that has not, or for who declines for another reason. */
static void dry_is_not_waited_for(void) {
    const uint64_t early_ms = 10000;
    CHECK(ends_ms(OMM_DECLINED_DRY, 2, early_ms) > 0);
    CHECK_EQ(ends_ms(OMM_DECLINED_DRY, 3, early_ms), 0);
    CHECK_EQ(ends_ms(OMM_DECLINED_BASE, 2, early_ms), 0);
    CHECK_EQ(ends_ms(OMM_DECLINED_NOTHING, 2, early_ms), 0);
}

/* The same when all others have given before it says so: the round ends with its word. */
static void dry_is_said_last(void) {
    peer p;
    const fed_options o = peer_options();
    peer_open(&p, &o);
    peer_until_open(&p, 0);
    while (omm_coord_get_status(p.f.coord).accepted < 2) CHECK(fed_step(&p.f));
    const uint64_t at_ms = p.f.now_ms;
    CHECK(is_open(&p));
    say(&p, OMM_DECLINED_DRY);
    CHECK(p.f.coord_deadline_ms <= p.f.now_ms);
    while (is_open(&p)) CHECK(fed_step(&p.f));
    CHECK_EQ(p.f.now_ms, at_ms);
    peer_close(&p);
}

/* While the round is open it may give what it has shown, and from its first message on it is waited for again. */
static void dry_may_give(void) {
    peer p;
    bool receipt = false;
    const fed_options o = peer_options();
    peer_open(&p, &o);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    say(&p, OMM_DECLINED_DRY);
    peer_seal(&p, OMM_CONTEXT_SUBMISSION, &p.f.keys[PEER]);
    peer_submit(&p);
    while (omm_coord_get_status(p.f.coord).accepted < 2) CHECK(fed_step(&p.f));
    for (int i = 0; i < 4; i++) CHECK(fed_step(&p.f));
    CHECK(is_open(&p));
    peer_upload(&p);
    CHECK_OK(peer_reason_of(&p, &receipt));
    CHECK(receipt && omm_coord_get_status(p.f.coord).accepted == 3);
    peer_close(&p);
}

/* Of a round before, or played again by another, it says nothing. */
static void dry_of_another_round(void) {
    peer p;
    fed_options o = peer_options();
    o.rounds = 2;
    peer_open(&p, &o);
    peer_until_open(&p, 0);
    say(&p, OMM_DECLINED_DRY);
    peer_until_open(&p, 1);
    p.counter--;
    say(&p, OMM_DECLINED_DRY); /* the offer's own number */
    CHECK_EQ(heard(&p), OMM_DECLINED_NOTHING);
    while (omm_coord_get_status(p.f.coord).accepted < 2) CHECK(fed_step(&p.f));
    for (int i = 0; i < 4; i++) CHECK(fed_step(&p.f));
    CHECK(is_open(&p));
    peer_close(&p);
}

/* In front of a round it makes nobody ready: who looks at what it would send gives to none. */
static void dry_is_not_ready(void) {
    listener l;
    peer p;
    listener_open(&l, " node_declines ");
    const fed_options o = alone(&l);
    peer_open(&p, &o);
    say(&p, OMM_DECLINED_DRY);
    for (int i = 0; i < 50 && fed_step(&p.f); i++)
        CHECK_EQ(omm_coord_get_status(p.f.coord).state, OMM_COORD_JOINING);
    say(&p, OMM_DECLINED_NOTHING);
    peer_until_open(&p, 0);
    peer_close(&p);
}

/* ---- a round that waits for dry runs alone ---- */

/* The peer's dry run has the round for itself, and all others come later. */
static void open_for_dry(peer *p, fed_options *o, uint32_t rounds) {
    o->rounds = rounds;
    o->on_disk = true;
    peer_open(p, o);
    peer_until_open(p, 0);
    say(p, OMM_DECLINED_DRY);
}

static bool ends_now(const peer *p) {
    return p->f.coord_deadline_ms <= p->f.now_ms;
}

/* From now on they ask by themselves, and train. */
static void come(peer *p, uint32_t node) {
    p->f.done[node] = p->f.o.silent[node] = false;
}

static void until_round(peer *p, uint32_t round) {
    while (omm_coord_get_status(p->f.coord).round < round) CHECK(fed_step(&p->f));
}

static void end_and_verify(peer *p) {
    while (!omm_coord_is_done(p->f.coord)) CHECK(fed_step(&p->f));
    fed_seal_and_verify(&p->f);
    peer_close(p);
}

static const omm_coord_round *round_of(const peer *p, uint32_t round) {
    uint32_t count = 0;
    const omm_coord_round *past = omm_coord_history(&count, p->f.coord);
    CHECK(round < count);
    return &past[round];
}

/* Two come to round 0, of a dry run, and have the next one at once. */
static void makes_way_for_two(peer *p, const listener *l) {
    const uint64_t come_ms = p->f.now_ms;
    come(p, 0);
    come(p, 1);
    until_round(p, 1);
    CHECK(p->f.now_ms < come_ms + 1000);
    CHECK(l->lines == 1 && strstr(l->last, "dry runs alone") && strstr(l->last, "dry 1"));
}

/* With others there it makes way at once, and the next round does not wait for who was dry. */
static void dry_makes_way(bool restarts) {
    listener l;
    peer p;
    listener_open(&l, " round_void ");
    fed_options o = alone(&l);
    o.join_ms = 5000;
    open_for_dry(&p, &o, 3);
    CHECK(!ends_now(&p));
    const uint64_t come_ms = p.f.now_ms;
    makes_way_for_two(&p, &l);
    CHECK(round_of(&p, 0)->voided && round_of(&p, 0)->ended_dry);
    if (restarts) fed_restart_coordinator(&p.f);
    CHECK(round_of(&p, 0)->ended_dry == !restarts);
    until_round(&p, 2);
    CHECK(round_of(&p, 1)->accepted == 2 && round_of(&p, 1)->selected == 2);
    CHECK(restarts || p.f.now_ms < come_ms + o.join_ms);
    CHECK(l.lines == 1);
    end_and_verify(&p);
}

/* No others: what it has made may come up to the deadline, and no round after it is opened for it. */
static void dry_alone_keeps_its_round(void) {
    listener l;
    peer p;
    listener_open(&l, " round_");
    fed_options o = alone(&l);
    open_for_dry(&p, &o, 3);
    const uint64_t opened_ms = p.f.now_ms;
    while (is_open(&p)) CHECK(fed_step(&p.f));
    CHECK(p.f.now_ms >= opened_ms + o.deadline_ms);
    for (int i = 0; i < 50 && fed_step(&p.f); i++) {
    }
    CHECK_EQ(omm_coord_get_status(p.f.coord).round, 1);
    CHECK_EQ(omm_coord_get_status(p.f.coord).state, OMM_COORD_JOINING);
    CHECK(!round_of(&p, 0)->ended_dry);
    peer_close(&p);
}

/* Too few others, or nothing that they could have instead: it waits on. */
static void dry_waits_for_nobodys_sake(void) {
    for (int i = 0; i < 6; i++) {
        listener l;
        peer p;
        listener_open(&l, " round_void ");
        fed_options o = alone(&l);
        o.is_timed = i == 4; /* the next round waits for its time */
        open_for_dry(&p, &o, i == 0 ? 1 : 3);
        if (i == 1) CHECK_OK(omm_coord_pause(&p.f.coord_deadline_ms, p.f.coord, p.f.now_ms, true));
        if (i == 2)
            peer_poll_with(&p, &(omm_poll){.declined = OMM_DECLINED_NOTHING}, false); /* it gives */
        if (i == 3) omm_coord_drain(p.f.coord);
        if (i < 5) peer_poll_as(&p, 0);
        CHECK(is_open(&p) && !ends_now(&p));
        if (i == 5) peer_poll_as(&p, 0);
        CHECK_EQ(ends_now(&p), i == 5); /* the same without all that */
        peer_close(&p);
    }
}

/* Another one's dry run is nobody who waits for a round, and neither is a poll that is played again when its node has gone. */
static void dry_and_nobody_waits(bool replayed) {
    listener l;
    peer p;
    listener_open(&l, " round_void ");
    fed_options o = alone(&l);
    open_for_dry(&p, &o, 3);
    const omm_key own = p.f.keys[PEER];
    if (replayed) {
        CHECK_OK(omm_coord_pause(&p.f.coord_deadline_ms, p.f.coord, p.f.now_ms, true));
        peer_poll_as(&p, 0);
        p.counter--;
        p.f.now_ms += o.deadline_ms / 2;
        CHECK_OK(omm_coord_pause(&p.f.coord_deadline_ms, p.f.coord, p.f.now_ms, false));
        peer_poll_as(&p, 0);
    } else {
        p.f.keys[PEER] = p.f.keys[0];
        say(&p, OMM_DECLINED_DRY);
        p.f.keys[PEER] = own;
    }
    CHECK(is_open(&p) && !ends_now(&p));
    peer_poll_as(&p, 0);
    CHECK(ends_now(&p));
    peer_close(&p);
}

/* Who has given counts, too, for what the next round needs. */
static void dry_and_too_few(void) {
    listener l;
    peer p;
    listener_open(&l, " round_void ");
    fed_options o = alone(&l);
    o.accept_min = 2;
    o.silent[0] = false;
    open_for_dry(&p, &o, 3);
    while (omm_coord_get_status(p.f.coord).accepted < 1) CHECK(fed_step(&p.f));
    for (int i = 0; i < 4; i++) CHECK(fed_step(&p.f));
    CHECK(is_open(&p) && !ends_now(&p));
    come(&p, 1);
    until_round(&p, 1);
    CHECK(p.f.now_ms < 10000);
    CHECK(round_of(&p, 0)->accepted == 1 && round_of(&p, 0)->ended_dry);
    until_round(&p, 2);
    CHECK_EQ(round_of(&p, 1)->accepted, 2);
    end_and_verify(&p);
}

/* Who says so again and again uses up no more rounds than with silence. */
static void dry_makes_way_once(void) {
    listener l;
    peer p;
    listener_open(&l, " round_void ");
    fed_options o = alone(&l);
    open_for_dry(&p, &o, 3);
    const uint64_t until_ms = p.f.coord_deadline_ms;
    peer_poll_as(&p, 0);
    CHECK(ends_now(&p));
    peer_until_open(&p, 1);
    say(&p, OMM_DECLINED_DRY);
    peer_poll_as(&p, 0);
    CHECK(is_open(&p) && !ends_now(&p));
    p.f.now_ms = until_ms;
    CHECK(p.f.coord_deadline_ms > until_ms);
    peer_poll_as(&p, 0);
    CHECK(ends_now(&p));
    peer_close(&p);
}

/* ---- a restart while a dry run trains, which has said so once and says it to nobody again ---- */

/* The round does not wait for it afterwards, either; it does for who has taken it back. */
static void dry_is_kept(bool takes_back) {
    peer p;
    fed_options o = peer_options();
    o.accept_min = 2;
    o.on_disk = true;
    peer_open(&p, &o);
    peer_until_open(&p, 0);
    const uint64_t opened_ms = p.f.now_ms;
    say(&p, OMM_DECLINED_DRY);
    if (takes_back) say(&p, OMM_DECLINED_NOTHING);
    for (int restarts = 0; restarts < 2; restarts++) { /* asking again has changed nothing */
        fed_restart_coordinator(&p.f);
        CHECK_EQ(heard(&p), takes_back ? OMM_DECLINED_NOTHING : OMM_DECLINED_DRY);
        p.counter += OMM_COUNTER_BLOCK;
        say(&p, takes_back ? OMM_DECLINED_NOTHING : OMM_DECLINED_DRY);
    }
    while (is_open(&p)) CHECK(fed_step(&p.f));
    CHECK_EQ(p.f.now_ms < opened_ms + o.deadline_ms / 2, !takes_back);
    CHECK_EQ(heard(&p), takes_back ? OMM_DECLINED_NOTHING : OMM_DECLINED_DRY);
    end_and_verify(&p);
}

/* Nor does it keep others from the next round, which forgets it. */
static void dry_is_kept_and_makes_way(void) {
    listener l;
    peer p;
    listener_open(&l, " round_void ");
    fed_options o = alone(&l);
    open_for_dry(&p, &o, 3);
    fed_restart_coordinator(&p.f);
    makes_way_for_two(&p, &l);
    fed_restart_coordinator(&p.f);
    CHECK_EQ(heard(&p), OMM_DECLINED_NOTHING);
    end_and_verify(&p);
}

/* Who has given all the same is no dry run any more. */
static void dry_that_gave(void) {
    peer p;
    bool receipt = false;
    fed_options o = peer_options();
    o.on_disk = true;
    peer_open(&p, &o);
    peer_until_open(&p, 0);
    peer_fill(&p, NULL);
    say(&p, OMM_DECLINED_DRY);
    peer_give(&p);
    CHECK_OK(peer_reason_of(&p, &receipt));
    fed_restart_coordinator(&p.f);
    CHECK_EQ(heard(&p), OMM_DECLINED_NOTHING);
    peer_close(&p);
}

/* Where a batch is undone, what nodes said is in memory all the same: an older word does not come back. */
static void dry_and_an_undone_batch(void) {
    peer p;
    fed_options o = peer_options();
    o.on_disk = o.batched = true;
    peer_open(&p, &o);
    peer_until_open(&p, 0);
    say(&p, OMM_DECLINED_DRY);
    CHECK_EQ(heard(&p), OMM_DECLINED_DRY);
    p.f.undo_next = true;
    say(&p, OMM_DECLINED_NOTHING);
    CHECK_EQ(p.f.undone, 1);
    CHECK_EQ(heard(&p), OMM_DECLINED_NOTHING);
    peer_close(&p);
}

int main(void) {
    is_heard();
    replays_say_nothing();
    lines_have_an_end();
    too_few_are_left();
    enough_are_left();
    is_forgotten(false);
    is_forgotten(true);
    after_a_restart();
    dry_is_not_waited_for();
    dry_is_said_last();
    dry_may_give();
    dry_of_another_round();
    dry_is_not_ready();
    dry_makes_way(false);
    dry_makes_way(true);
    dry_alone_keeps_its_round();
    dry_waits_for_nobodys_sake();
    for (int i = 0; i < 2; i++) dry_and_nobody_waits(i);
    dry_and_too_few();
    dry_makes_way_once();
    dry_is_kept(false);
    dry_is_kept(true);
    dry_is_kept_and_makes_way();
    dry_that_gave();
    dry_and_an_undone_batch();
    return 0;
}

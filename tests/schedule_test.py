#!/usr/bin/env python3
"""Rounds that begin by themselves, by the clock: with `every` each opens that long after the one before it, over a kill of the
coordinator too, also where a round has just been opened; with `at` at its time of the day and `every` after it, the first one as well.
Neither opens early, and neither late where the round before it was over in time.  Beside them a run that over-selects: of two nodes it needs one, and asks both.

usage: schedule_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import datetime, json, pathlib, re, sys, threading, time

import live
from live import check, wait_for

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), live.program(sys.argv[2:])
SCENARIO = (SOURCE / "scenarios" / "processes.yaml").read_text()
NODES = {"anna": "cafe-02", "bert": "studio-02"}
EVERY_S, PART_S = 4, 5  # of the first schedule; of the second: it divides a day
LONG_S = 10  # of the fourth: longer than a round and a start
LATE_S = 2.5  # a busy machine; for which everything stood still, this test too, is known and comes on top
standstills = []  # (begin, seconds) by the wall clock


def watch():
    before = time.time()
    while True:
        time.sleep(0.1)
        now = time.time()
        if now - before > 0.5:
            standstills.append((before, now - before))
        before = now


def stood_still(begin, end):
    """Seconds, between these two times."""
    return sum(max(0, min(at + seconds, end) - max(at, begin)) for at, seconds in standstills)


class Federation:
    def __init__(self, folder, rounds, needs, crash="", **schedule):
        folder.mkdir()
        self.folder, self.rounds, port = folder, rounds, live.free_port()
        public = live.keys(MESHMIND, folder, NODES)
        live.ship(folder, few=8)
        scenario = re.sub("(?m)^rounds: .*", f"rounds: {rounds}", SCENARIO).replace("test: base/test.jsonl", "test: few.jsonl")
        (folder / "own.yaml").write_text(scenario + f"policy: policies/service.yaml\nround: {{quorum: 2, {needs}}}\n")
        live.write_coordinator(folder, port, "own.yaml", enrolled={n: public[n]["public_key"] for n in NODES}, **schedule)
        for name, client in NODES.items():
            live.write_node(folder, name, port, **live.trains(name, client, public), answer_ms=3000)
        self.started = time.time()
        self.coordinator = live.start_service(MESHMIND, folder, "coordinator", "coordinator", **({"OMM_CRASH_AT": crash} if crash else {}))
        self.nodes = [live.start_service(MESHMIND, folder, "node", n) for n in NODES]

    def times(self, event):
        """When the log says so, each in seconds of the wall clock."""
        stamps = re.findall(rf"(?m)^(\S+)Z \w+ {event} round=", live.log_of(self.folder, "coordinator"))
        return [datetime.datetime.fromisoformat(s + "+00:00").timestamp() for s in stamps]

    def kill_and_start(self):
        live.stop(self.coordinator)
        self.coordinator = live.start_service(MESHMIND, self.folder, "coordinator", "coordinator")

    def end(self):
        processes = [self.coordinator, *self.nodes]
        wait_for("the end of the run", lambda: all(p.poll() is not None for p in processes), logs=self.folder)
        check(self.coordinator.returncode in (0, 1) and not any(n.returncode for n in self.nodes), [p.returncode for p in processes])
        opened, published = self.times("round_open"), self.times("round_published")
        check(len(opened) == len(published) == self.rounds, "rounds opened at", opened, "and published at", published)
        return opened, published


def every(f):
    opened, published = f.end()
    gaps = [b - a for a, b in zip(opened, opened[1:])]
    check(all(gap > EVERY_S - 0.1 for gap in gaps), "rounds open too early, after", gaps)
    for gap, over, begun in zip(gaps, published, opened):
        still = stood_still(begun, begun + gap)
        check(over - begun > EVERY_S or gap < EVERY_S + LATE_S + still, "a round opens too late, after", gap, "of", EVERY_S, "and", still, "s of standstill")
    return gaps


def at(f):
    opened, published = f.end()
    parts = [t // PART_S for t in opened]
    check(len(set(parts)) == len(parts) and parts[0] > f.started // PART_S, "rounds open in parts", parts, "started in", f.started // PART_S)
    for t, over in zip(opened[1:], published):
        late = t % PART_S
        check(over // PART_S == t // PART_S or late < LATE_S + stood_still(t - late, t), "a round opens", late, "s after its time")
    return [t % PART_S for t in opened]


def over_select(f):
    f.end()
    line = json.loads((f.folder / "coordinator" / "bundle" / "rounds.jsonl").read_text())
    check(len(line["selected"]) == 2, "where one is needed, twice as many shall be asked:", line)


threading.Thread(target=watch, daemon=True).start()
with live.workplace("schedule") as FOLDER:
    first = Federation(FOLDER / "every", 3, "accept_min: 2", every=f"{EVERY_S}s")
    second = Federation(FOLDER / "at", 2, "accept_min: 2", every=f"{PART_S}s", at='"00:00"')
    third = Federation(FOLDER / "over", 1, "select: 1, join_ms: 3600000", over_select=2)
    fourth = Federation(FOLDER / "killed", 2, "accept_min: 2", crash="after_offer", every=f"{LONG_S}s")
    wait_for("a kill when a round has just been opened", lambda: fourth.coordinator.poll() is not None, logs=FOLDER / "killed")
    fourth.kill_and_start()
    wait_for("the first round", lambda: first.times("round_published"), logs=FOLDER / "every")
    first.kill_and_start()
    over_select(third)
    opened, _ = fourth.end()
    check(opened[1] - opened[0] > LONG_S - 0.1, "killed when a round had just been opened: the next one after", opened[1] - opened[0])
    print("opened after", [f"{s:.1f}" for s in every(first)], "s; after their time", [f"{s:.1f}" for s in at(second)], "s")

#!/usr/bin/env python3
"""The end of a run, when all nodes have heard of it: strangers who ask without a pause, and one who plays a node's polls again, do
not keep the coordinator from sealing its bundle.  A node that is killed when it has heard of the end ends when it is started again
with no coordinator there; after that it is started for a next run, and says so, unless its file names the run that is over.
Who never comes back to hear of the end is waited for as long as linger_ms says, and no longer.

usage: ending_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import datetime, pathlib, re, signal, sys, threading

import hostile_peers as hp
import live
import protocol_peer as pp
from live import check, wait_for

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), live.program(sys.argv[2:])
SCENARIO = (SOURCE / "scenarios" / "processes.yaml").read_text()
NODES = {"anna": "cafe-02", "bert": "studio-02"}
STRANGERS = 4
SEALED_S = 25  # linger_ms is 60 s, what a node may still ask takes 5
LINGER_MS = 3000  # where one node does not come back


def write_files(folder, port, anna_port, **more):
    public = live.keys(MESHMIND, folder, NODES)
    live.ship(folder, few=8)
    scenario = re.sub("(?m)^rounds: .*", "rounds: 1", SCENARIO).replace("test: base/test.jsonl", "test: few.jsonl")
    (folder / "own.yaml").write_text(scenario + "policy: policies/service.yaml\nround: {quorum: 2, accept_min: 2, join_ms: 600000}\n")
    live.write_coordinator(folder, port, "own.yaml", enrolled={n: public[n]["public_key"] for n in NODES}, **more)
    for name, client in NODES.items():
        live.write_node(folder, name, anna_port if name == "anna" else port, **live.trains(name, client, public), answer_ms=3000)


def start(folder, name, **env):
    return live.start_service(MESHMIND, folder, "coordinator" if name == "coordinator" else "node", name, **env)


def ask_on(number, port, polls, stop):
    """Until the coordinator has gone: polls of a key that nobody knows, or (number 0) of a node, recorded."""
    key, counter, wire = pp.key_from_seed(pp.blake(f"stranger {number}".encode())), 0, None
    while not stop.is_set():
        counter += 1
        poll = pp.encode("Request", {"version": 1, "poll": pp.seal("poll", pp.encode("Poll", {"version": 1, "counter": counter}), key)})
        played = polls() if number == 0 else []
        try:
            wire = wire or hp.Wire(port, f"127.0.0.{20 + number}")
            wire.ask(played[-1] if played else poll)
        except OSError:
            wire = None
        stop.wait(0.02)


def said_at(log, event):
    found = re.search(rf"(?m)^(\S+)Z \w+ {event} ", log)
    check(found, "the coordinator's log has no", event)
    return datetime.datetime.fromisoformat(found[1])


def sealed_after_s(folder):
    log = live.log_of(folder, "coordinator")
    return (said_at(log, "bundle_sealed") - said_at(log, "run_closed")).total_seconds()


def status_of(folder, name):
    return live.run(MESHMIND, "node", "status", "-c", folder / f"{name}.yaml", code=(0, 1))


def ends(folder, what):
    """anna, started with no coordinator there."""
    anna = start(folder, "anna")
    wait_for(what, lambda: anna.poll() is not None, 30, logs=folder)
    check(anna.returncode == 0 and live.log_of(folder, "anna").rstrip().splitlines()[-1].startswith("run closed"), what, "ended with", anna.returncode)


def starts_again(folder):
    """anna was killed when she had heard of the end; the coordinator has gone."""
    ends(folder, "a node that was killed at the end of its run")
    anna = start(folder, "anna")
    wait_for("a word on what a node waits for", lambda: "its run is over; it asks for a next one" in status_of(folder, "anna"), logs=folder)
    check("then=\"asks for the coordinator's next run\"" in live.log_of(folder, "anna"), "its log does not say what it waits for")
    live.stop(anna)
    run_id = re.search("run_is_over .*run_id=(\\w+)", live.log_of(folder, "anna"))[1]
    with open(folder / "anna.yaml", "a") as file:
        file.write(f"run_id: {run_id}\n")
    ends(folder, "a node whose file names the run that is over")


def run(folder):
    pp.read_reasons(SOURCE)
    port, stop = live.free_port(), threading.Event()
    tap = live.Tap(port)
    write_files(folder, port, tap.port)
    coordinator = start(folder, "coordinator")
    strangers = [threading.Thread(target=ask_on, args=(i, port, lambda: hp.recorded(tap.out, "poll"), stop), daemon=True) for i in range(STRANGERS)]
    for thread in strangers:
        thread.start()
    nodes = [start(folder, "anna", OMM_CRASH_AT="after_close"), start(folder, "bert")]
    wait_for("the end of the coordinator", lambda: coordinator.poll() is not None, logs=folder)
    stop.set()
    check(coordinator.returncode in (0, 1), "coordinator ended with", coordinator.returncode)
    wait_for("the end of the nodes", lambda: all(n.poll() is not None for n in nodes), logs=folder)
    check([n.returncode for n in nodes] == [-signal.SIGKILL, 0], "nodes ended with", [n.returncode for n in nodes])
    took = sealed_after_s(folder)
    check(took < SEALED_S, "strangers kept it from sealing for", took, "s")
    live.check_verified(MESHMIND, folder / "coordinator" / "bundle")
    starts_again(folder)
    print(f"sealed {took:.1f} s after the close")


def lingers(folder):
    """anna is killed with the receipt of her last submission, and is not started again."""
    port = live.free_port()
    write_files(folder, port, port, linger_ms=LINGER_MS)
    coordinator = start(folder, "coordinator")
    nodes = [start(folder, "anna", OMM_CRASH_AT="after_receipt"), start(folder, "bert")]
    wait_for("the end of a coordinator that one node has left", lambda: coordinator.poll() is not None, logs=folder)
    wait_for("the end of the nodes", lambda: all(n.poll() is not None for n in nodes), logs=folder)
    check([coordinator.returncode in (0, 1), *(n.returncode for n in nodes)] == [True, -signal.SIGKILL, 0], "ended with",
          coordinator.returncode, [n.returncode for n in nodes])
    took = sealed_after_s(folder)
    check(took >= LINGER_MS / 1000, "it waited", took, "s for a node that had not heard of the end")
    live.check_verified(MESHMIND, folder / "coordinator" / "bundle")
    print(f"sealed {took:.1f} s after the close, where one node has not heard of it")


with live.workplace("ending") as FOLDER:
    run(FOLDER)
with live.workplace("lingers") as FOLDER:
    lingers(FOLDER)

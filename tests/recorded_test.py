#!/usr/bin/env python3
"""Polls that a listener recorded (plain tcp), sent again after node and coordinator were killed with -9: each is refused and
counted, the node is not taken for present, and no round begins without it.  When it comes back itself it is refused once, and goes on.

usage: recorded_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import http.client, json, pathlib, re, signal, sys, time

import hostile_peers as hp
import live
import protocol_peer as pp
from live import check, wait_for

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), live.program(sys.argv[2:])
SCENARIO = SOURCE / "scenarios" / "processes.yaml"
NODES = {"anna": "cafe-02", "bert": "studio-02"}
WAITS = 5  # polls after the verdict, of which nothing is kept but that they may have been


def write_files(folder, port, tap):
    public = live.keys(MESHMIND, folder, NODES)
    live.ship(folder, few=8)
    scenario = SCENARIO.read_text().replace("test: base/test.jsonl", "test: few.jsonl")
    (folder / "own.yaml").write_text(scenario + "policy: policies/service.yaml\nround: {quorum: 2, accept_min: 2, join_ms: 600000}\n")
    live.write_coordinator(folder, port, "own.yaml", enrolled={n: public[n]["public_key"] for n in NODES},
                           http="127.0.0.1:0", http_port_file="http_port")
    for name, client in NODES.items():
        live.write_node(folder, name, tap.port if name == "anna" else port, **live.trains(name, client, public), answer_ms=3000)


def start(folder, name, **env):
    return live.start_service(MESHMIND, folder, "coordinator" if name == "coordinator" else "node", name, **env)


def status(folder):
    """Of a coordinator that may not be there yet."""
    done = live.run(MESHMIND, "coordinator", "ctl", "-c", folder / "coordinator.yaml", "status", "--json", code=(0, 2, 3))
    return json.loads(done) if done.startswith("{") else {}


def duplicates(folder):
    time.sleep(1.1)  # a text is made anew after a second
    ask = http.client.HTTPConnection("127.0.0.1", int((folder / "http_port").read_text()), timeout=30)
    ask.request("GET", "/metrics")
    found = re.search(r'meshmind_requests_refused_total\{reason="DUPLICATE"\} (\d+)', ask.getresponse().read().decode())
    ask.close()
    return int(found[1]) if found else 0


def gathers(said):
    return said.get("state") == "joining" and said["round"] == 1 and said["nodes"]["ready"] == 1


def run(folder):
    pp.read_reasons(SOURCE)
    port = live.free_port()
    tap = live.Tap(port)
    write_files(folder, port, tap)
    coordinator, bert = start(folder, "coordinator"), start(folder, "bert", OMM_CRASH_AT="after_offer")
    anna = start(folder, "anna")
    wait_for("anna's receipt", lambda: "receipt node=anna" in live.log_of(folder, "anna"), logs=folder)
    check(bert.wait(live.LIMIT_S) == -signal.SIGKILL, "bert ended with", bert.returncode)
    known = len(hp.recorded(tap.out, "poll"))
    wait_for("polls of anna", lambda: len(hp.recorded(tap.out, "poll")) >= known + WAITS, logs=folder)
    live.stop(anna)
    live.stop(coordinator)
    (folder / "http_port").unlink()
    polls = hp.recorded(tap.out, "poll")

    coordinator, bert = start(folder, "coordinator"), start(folder, "bert")
    wait_for("the next round without anna", lambda: gathers(status(folder)), logs=folder)
    before, wire = duplicates(folder), hp.Wire(port, "127.0.0.7")
    for body in polls[::-1]:
        got = pp.decode("Reply", wire.ask(body))
        check(got.get("refused", {}).get("reason") == "REFUSED_DUPLICATE", "a recorded poll was answered:", got)
    wire.close()
    after = duplicates(folder)
    check(after - before == len(polls), after - before, "refusals in /metrics of", len(polls))
    said = status(folder)
    check(gathers(said), "anna is taken for present:", said)
    check("node=anna reason=REFUSED_DUPLICATE" in live.log_of(folder, "coordinator"), "no word on a replay")

    known = len(live.log_of(folder, "anna"))
    anna = start(folder, "anna")
    wait_for("the end", lambda: all(p.poll() is not None for p in (anna, bert, coordinator)), logs=folder)
    check(anna.returncode == bert.returncode == 0 and coordinator.returncode in (0, 1), anna.returncode, bert.returncode, coordinator.returncode)
    refused = live.log_of(folder, "anna")[known:].count("poll_refused")
    check(refused <= 1, "anna was refused", refused, "times")
    live.check_verified(MESHMIND, folder / "coordinator" / "bundle")
    print(f"{len(polls)} recorded polls refused, the node itself {refused} times")


with live.workplace("recorded") as FOLDER:
    run(FOLDER)

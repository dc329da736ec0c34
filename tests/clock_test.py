#!/usr/bin/env python3
"""Time that does not pass as it should, for real processes.

jump   the wall clock of coordinator and nodes is years off at the start and jumps back and forth in the middle: no
       deadline fires, nothing blocks, the audit log's chain holds, and the run has the simulator's digest
sleep  a laptop that is closed: a node stands still (SIGSTOP) while the coordinator dies and begins again; woken up, it
       goes on, and the run has the simulator's digest

usage: clock_test.py SOURCE_DIR MESHMIND WALL_LIBRARY jump|sleep
"""
import json, pathlib, random, signal, struct, sys, time

import live
from live import check, log_of

SOURCE, MESHMIND, WALL, WHAT = pathlib.Path(sys.argv[1]).resolve(), *map(pathlib.Path, sys.argv[2:4]), sys.argv[4]
NODES = ["cafe-02", "studio-02", "harbor-02"]
YEAR, SLEEP_S = 365 * 86400, 8


def write_files(folder):
    port = live.free_port()
    scenario = live.patient(folder)
    live.write_coordinator(folder, port, scenario)
    for name in NODES:
        live.write_node(folder, name, port, scenario=scenario, checkpoint_steps=1, answer_ms=5000)


def start(folder, name, **env):
    return live.start_service(MESHMIND, folder, "coordinator" if name == "coordinator" else "node", name, **env)


def wait_for(folder, what, test):
    live.wait_for(what, test, 2 * live.LIMIT_S, folder)


def finish(folder, processes, expected):
    wait_for(folder, "the end of the run", lambda: all(p.poll() is not None for p in processes))
    codes = [p.returncode for p in processes]
    check(codes[0] in (0, 1) and not any(codes[1:]), "ended with", codes, log_of(folder, "coordinator")[-2000:])
    bundle = folder / "coordinator" / "bundle"
    digest = live.run_digest(bundle)
    check(digest == expected, "run digest", digest, "the simulator's is", expected)
    live.run(MESHMIND, "coordinator", "audit", "verify", folder / "coordinator" / "audit.jsonl")
    rounds = [json.loads(line) for line in (bundle / "rounds.jsonl").read_text().splitlines()]
    check(all(not r["missing"] for r in rounds), "a deadline has fired")
    return digest


# ---- jump -------------------------------------------------------------------------------------------

class WallClock:
    def __init__(self, path, years):
        self.path = path
        path.write_bytes(bytes(8))
        self.set(years)

    def set(self, years):
        with open(self.path, "r+b") as f:  # in place: the file is mapped
            f.write(struct.pack("<q", years * YEAR))

    def env(self):
        return {"LD_PRELOAD": str(WALL), "OMM_WALL": str(self.path)}


def jump(folder, expected):
    write_files(folder)
    clocks = {n: WallClock(folder / f"{n}.wall", y) for n, y in zip(["coordinator", *NODES], [20, -30, 100, 0])}
    processes = [start(folder, n, **c.env()) for n, c in clocks.items()]
    rng, jumps = random.Random(5), 0
    wait_for(folder, "a round", lambda: "round_open" in log_of(folder, "coordinator"))
    while any(p.poll() is None for p in processes) and jumps < 2000:
        rng.choice(list(clocks.values())).set(rng.choice([-40, -1, 0, 1, 60, 500]))
        jumps += 1
        time.sleep(0.05)
    digest = finish(folder, processes, expected)
    entries = [json.loads(line) for line in (folder / "coordinator" / "audit.jsonl").read_text().splitlines()]
    years = {int(e["at"][:4]) for e in entries}
    check(any(y >= 2040 for y in years), "the clock was not off at all:", years)
    print(f"{jumps} jumps, years {sorted(years)}: run digest {digest}, as simulated")


# ---- sleep ------------------------------------------------------------------------------------------

def sleep(folder, expected):
    write_files(folder)
    coordinator = start(folder, "coordinator")
    nodes = [start(folder, n) for n in NODES]
    wait_for(folder, "a training", lambda: "training_begin" in log_of(folder, NODES[0]))
    nodes[0].send_signal(signal.SIGSTOP)
    live.stop(coordinator)
    coordinator = start(folder, "coordinator")
    time.sleep(SLEEP_S)
    check(coordinator.poll() is None, "the run ended without the one that slept")
    nodes[0].send_signal(signal.SIGCONT)
    begin = time.monotonic()
    digest = finish(folder, [coordinator, *nodes], expected)
    print(f"slept {SLEEP_S} s, ended {time.monotonic() - begin:.1f} s later: run digest {digest}, as simulated")


if not WALL.exists() or not MESHMIND.exists():
    live.skip(f"{WALL} and {MESHMIND} have not been built")
with live.workplace("clock") as folder:
    (jump if WHAT == "jump" else sleep)(folder, live.Simulation(MESHMIND, live.patient(folder), folder / "simulated").digest())

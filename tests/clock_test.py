#!/usr/bin/env python3
"""Time that does not pass as it should, for real processes.

jump   the wall clock of coordinator and nodes is years off at the start and jumps back and forth in the middle: no
       deadline fires, nothing blocks, the audit log's chain holds, and the run has the simulator's digest
sleep  a laptop that is closed: a node stands still (SIGSTOP) while the coordinator dies and begins again; woken up, it
       goes on, and the run has the simulator's digest

usage: clock_test.py SOURCE_DIR MESHMIND WALL_LIBRARY jump|sleep
"""
import json, os, pathlib, random, shutil, signal, socket, struct, subprocess, sys, tempfile, time

SOURCE, MESHMIND, WALL, WHAT = pathlib.Path(sys.argv[1]).resolve(), *map(pathlib.Path, sys.argv[2:4]), sys.argv[4]
SCENARIO = SOURCE / "scenarios" / "processes.yaml"
NODES = ["cafe-02", "studio-02", "harbor-02"]
YEAR, LIMIT_S, SLEEP_S = 365 * 86400, 240, 8


def check(ok, *what):
    if not ok:
        print(*what)
        sys.exit(1)


def simulate(folder):
    subprocess.run([MESHMIND, "simulate", SCENARIO, "--out", folder / "simulated", "--threads", "2"], check=False,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.loads((folder / "simulated" / "manifest.json").read_text())["run_digest"]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def write_files(folder, port, nodes):
    (folder / "coordinator.yaml").write_text(
        f"scenario: {SCENARIO}\nlisten: tcp://127.0.0.1:{port}\nstate_dir: coordinator\npoll_ms: 100\n"
        "linger_ms: 60000\nthreads: 1\n")
    for name, scenario in nodes:
        (folder / f"{name}.yaml").write_text(
            f"coordinator: tcp://127.0.0.1:{port}\nname: {name}\nstate_dir: {name}\nscenario: {scenario}\nthreads: 1\n"
            "checkpoint_steps: 1\nanswer_ms: 5000\n")


def start(folder, kind, name, **more):
    env = dict(os.environ, OMM_GUEST_ROOT="/nonexistent", **more)
    with open(folder / f"{name}.log", "ab") as log:
        return subprocess.Popen([MESHMIND, kind, "-c", folder / f"{name}.yaml"], stdout=log, stderr=log, env=env)


def wait_for(folder, what, test):
    end = time.monotonic() + LIMIT_S
    while not test():
        if time.monotonic() > end:
            logs = {p.name: p.read_text(errors="replace")[-1500:] for p in folder.glob("*.log")}
            check(False, what, f"not within {LIMIT_S} s", json.dumps(logs, indent=1))
        time.sleep(0.02)


def log_of(folder, name):
    path = folder / f"{name}.log"
    return path.read_text(errors="replace") if path.exists() else ""


def finish(folder, processes, expected):
    wait_for(folder, "the end of the run", lambda: all(p.poll() is not None for p in processes))
    codes = [p.returncode for p in processes]
    check(codes[0] in (0, 1) and not any(codes[1:]), "ended with", codes, log_of(folder, "coordinator")[-2000:])
    bundle = folder / "coordinator" / "bundle"
    digest = json.loads((bundle / "manifest.json").read_text())["run_digest"]
    check(digest == expected, "run digest", digest, "the simulator's is", expected)
    audit = subprocess.run([MESHMIND, "coordinator", "audit", "verify", folder / "coordinator" / "audit.jsonl"],
                           capture_output=True, text=True)
    check(audit.returncode == 0, audit.stdout, audit.stderr)
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
    write_files(folder, free_port(), [(n, SCENARIO) for n in NODES])
    clocks = {n: WallClock(folder / f"{n}.wall", y) for n, y in zip(["coordinator", *NODES], [20, -30, 100, 0])}
    processes = [start(folder, "coordinator" if n == "coordinator" else "node", n, **c.env()) for n, c in clocks.items()]
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
    write_files(folder, free_port(), [(n, SCENARIO) for n in NODES])
    coordinator = start(folder, "coordinator", "coordinator")
    nodes = [start(folder, "node", n) for n in NODES]
    wait_for(folder, "a training", lambda: "training_begin" in log_of(folder, NODES[0]))
    nodes[0].send_signal(signal.SIGSTOP)
    coordinator.kill()
    coordinator.wait()
    coordinator = start(folder, "coordinator", "coordinator")
    time.sleep(SLEEP_S)
    check(coordinator.poll() is None, "the run ended without the one that slept")
    nodes[0].send_signal(signal.SIGCONT)
    begin = time.monotonic()
    digest = finish(folder, [coordinator, *nodes], expected)
    print(f"slept {SLEEP_S} s, ended {time.monotonic() - begin:.1f} s later: run digest {digest}, as simulated")


def main():
    if not WALL.exists() or not MESHMIND.exists():
        print(f"skipped: {WALL} and {MESHMIND} have not been built")
        sys.exit(77)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="omm-clock-"))
    try:
        (jump if WHAT == "jump" else sleep)(folder, simulate(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()

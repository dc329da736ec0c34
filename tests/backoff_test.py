#!/usr/bin/env python3
"""A coordinator that takes connections and drops them: its nodes try again for as long as it takes, less and less often, and
not in step with each other.  Every node has a port of its own here, so that it is known whose attempt it was.  One more node has
a coordinator that takes its connection and its request and never answers, as after a change of networks: it comes again.

usage: backoff_test.py SOURCE_DIR MESHMIND [BETTER_MESHMIND]
"""
import os, pathlib, shutil, socket, subprocess, sys, tempfile, threading, time

from live import LIMIT_S

SOURCE = pathlib.Path(sys.argv[1]).resolve()
MESHMIND = next((p for p in sys.argv[3:] if pathlib.Path(p).exists()), sys.argv[2])
NODES, WATCH_S = 6, 12
TRIES = 3  # chance, or a machine that lets a node starve, does not fail all of them
SP_REP = b"\0SP\0\0\x31\0\0"  # how nng's replying end begins
FIRST = 3  # attempts after which a node has waited for 100, 200 and 400 ms at most, so that chance has had its say


def listen(times, stop, is_silent=False):
    s = socket.create_server(("127.0.0.1", 0), backlog=64)
    s.settimeout(0.2)

    def run():
        kept = []
        while not stop.is_set():
            try:
                connection, _ = s.accept()
            except TimeoutError:
                continue
            times.append(time.monotonic())
            if is_silent:
                connection.sendall(SP_REP)
                kept.append(connection)
            else:
                connection.close()
        for c in [s, *kept]:
            c.close()
    thread = threading.Thread(target=run)
    thread.start()
    return s.getsockname()[1], thread


def watch():
    """What was wrong."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="omm-backoff-"))
    stop, attempts, threads, processes, failures = threading.Event(), [[] for _ in range(NODES + 1)], [], [], []
    for i in range(NODES + 1):
        port, thread = listen(attempts[i], stop, is_silent=i == NODES)
        threads.append(thread)
        # All have one name and so one key: what tells them apart is chance alone.
        (folder / f"{i}.yaml").write_text(f"coordinator: tcp://127.0.0.1:{port}\nname: cafe-02\nstate_dir: '{i}'\n"
                                          f"scenario: {SOURCE / 'scenarios' / 'processes.yaml'}\nthreads: 1\npriority: normal\nanswer_ms: 500\n")
    try:
        for i in range(NODES + 1):
            with open(folder / f"{i}.log", "wb") as log:
                processes.append(subprocess.Popen([MESHMIND, "node", "-c", folder / f"{i}.yaml"], stdout=log, stderr=log,
                                                  env=dict(os.environ, OMM_GUEST_ROOT="/nonexistent")))
        end = time.monotonic() + LIMIT_S
        while not all(attempts) and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(WATCH_S)
        alive = [p.poll() is None for p in processes]
    finally:
        stop.set()
        for p in processes:
            p.kill()
            p.wait()
        for t in threads:
            t.join()
    if not all(attempts) or not all(alive):
        print("a node ended or never came:", alive, [len(a) for a in attempts], (folder / "0.log").read_text()[-1500:])
        sys.exit(1)
    silent = attempts.pop()
    if not 3 <= len(silent) <= 20:
        failures.append(f"{len(silent)} connections to a coordinator that does not answer")
    gaps = [[b - a for a, b in zip(own, own[1:])] for own in attempts]
    for own in attempts:
        own[:] = [t for t in own if t < own[0] + WATCH_S]
        early, late = sum(t < own[0] + WATCH_S / 4 for t in own), sum(t >= own[0] + 3 * WATCH_S / 4 for t in own)
        if not 4 <= len(own) <= 60 or late > early:
            failures.append(f"{len(own)} attempts in {WATCH_S} s, {early} in the first quarter, {late} in the last")
    # The same gap of two nodes within 5 ms is chance; all of them are step.
    for i in range(NODES):
        for j in range(i):
            pairs = list(zip(gaps[i], gaps[j]))[FIRST:]
            alike = sum(abs(a - b) < 0.02 for a, b in pairs)
            if not pairs or alike * 2 > len(pairs):
                failures.append(f"nodes {j} and {i} wait alike: {alike} of {len(pairs)} times")
    print("attempts", [len(a) for a in attempts], "longest wait %.1f s" % max((t for g in gaps for t in g), default=0))
    print("\n".join(failures))
    shutil.rmtree(folder)
    return failures


sys.exit(1 if all(watch() for _ in range(TRIES)) else 0)

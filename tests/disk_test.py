#!/usr/bin/env python3
"""A disk that fills up under real processes: coordinator and three nodes on a small file system (a tmpfs in a mount namespace of
this test) that is full to the last byte before anybody trains, and again when the first receipt is given.  Nobody leaves, what
is wrong is said with the path, nothing that was receipted is lost, and with room again the run goes on to the simulator's digest.  Its first round opens where the
file of byte counts cannot be written.
And a disk that cannot be written at all: coordinator and node end with 3 and the path.

usage: disk_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
Needs root (CAP_SYS_ADMIN) and unshare; else it is skipped with the reason.
"""
import contextlib, http.client, pathlib, re, shutil, signal, sqlite3, subprocess, sys, tempfile, time

import live
from live import check, log_of, wait_for
from small_disk import NO_ROOM, fill, in_a_namespace, mount

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), live.program(sys.argv[2:])
NODES = ["cafe-02", "studio-02", "harbor-02"]
ROUNDS, ROOM = 2, "size=48m"


def write_files(folder, disk, scenario):
    port = live.free_port()
    live.write_coordinator(folder, port, scenario, state_dir=disk / "coordinator", http="127.0.0.1:0", http_port_file=folder / "http_port")
    for name in NODES:
        live.write_node(folder, name, port, state_dir=disk / name, scenario=scenario, checkpoint_steps=1, answer_ms=2000)


def health(folder):
    ask = http.client.HTTPConnection("127.0.0.1", int((folder / "http_port").read_text()), timeout=live.LIMIT_S)
    ask.request("GET", "/healthz")
    answer = ask.getresponse()
    return answer.status, answer.read().decode()


def no_room(folder, disk, processes, when, stopped=None):
    """Full, until somebody has said so and a while more; all are there still.  Who was stopped goes on when it is full."""
    known = {n: len(log_of(folder, n)) for n in processes}
    if stopped:
        fill(disk)
        stopped.send_signal(signal.SIGCONT)
    said = lambda: [line for n in processes for line in log_of(folder, n)[known[n]:].splitlines() if re.search(NO_ROOM, line)]
    wait_for(f"a word on the full disk, {when}", lambda: fill(disk) or said(), logs=folder)  # and full it stays
    time.sleep(1)
    for name, p in processes.items():
        check(p.poll() is None, f"{when}: {name} left because of a full disk:\n{log_of(folder, name)[-2000:]}")
    nameless = [line for line in said() if str(disk) not in line]
    check(not nameless, f"{when}: no path in", *nameless[:5])
    status = health(folder)
    (disk / "filler").unlink()
    return f"{when}: {said()[0].split(' ', 1)[1]}", status


def receipts_are_kept(disk):
    """Each receipt that a node was given is in the evidence, byte for byte."""
    have = {p.read_bytes() for p in (disk / "coordinator" / "bundle" / "receipts").iterdir()}
    for name in NODES:
        with contextlib.closing(sqlite3.connect(disk / name / "node.sqlite")) as db:
            kept = [value for value, in db.execute("SELECT value FROM keep WHERE name LIKE 'receipt/%'")]
        check(len(kept) == ROUNDS and all(value in have for value in kept), f"{name}: {len(kept)} receipts, or others than in the bundle")


def takes_the_place_of(file):
    """A folder, of a file that may be written anew at any moment."""
    file.unlink(missing_ok=True)
    with contextlib.suppress(FileExistsError):
        file.mkdir()
    return file.is_dir()


def start(folder, disk):
    """The first round opens while the counts of bytes cannot be kept: between two writes of the state machine, too, nobody leaves."""
    coordinator = live.start_service(MESHMIND, folder, "coordinator", "coordinator")
    wait_for("the coordinator", lambda: "listening" in log_of(folder, "coordinator"), logs=folder)
    counts = disk / "coordinator" / "wire"
    wait_for("a folder where the counts belong", lambda: takes_the_place_of(counts), logs=folder)
    processes = {"coordinator": coordinator, **{n: live.start_service(MESHMIND, folder, "node", n) for n in NODES}}
    wait_for("a round", lambda: "round_open" in log_of(folder, "coordinator"), logs=folder)
    wait_for("a word on the counts", lambda: "wire_not_kept" in log_of(folder, "coordinator"), logs=folder)
    check(str(counts) in log_of(folder, "coordinator"), "wire_not_kept does not say where:", log_of(folder, "coordinator"))
    check(coordinator.poll() is None, "the coordinator left because of its counts:", log_of(folder, "coordinator")[-2000:])
    counts.rmdir()
    return processes


def full(folder, disk):
    processes = start(folder, disk)
    before = no_room(folder, disk, processes, "before the first training")
    # The round cannot end before the disk is full: of the last node nothing comes until then.
    processes[NODES[-1]].send_signal(signal.SIGSTOP)
    wait_for("a receipt", lambda: any(re.search(r"\breceipt\b", log_of(folder, n)) for n in NODES[:-1]), logs=folder)
    amid = no_room(folder, disk, processes, "after the first receipt", processes[NODES[-1]])
    wait_for("the end of the run", lambda: all(p.poll() is not None for p in processes.values()), logs=folder)
    for name, p in processes.items():
        check(p.returncode in ((0, 1) if name == "coordinator" else (0,)), name, "ended with", p.returncode,
              log_of(folder, name)[-3000:])
    receipts_are_kept(disk)
    return before, amid


def read_only(folder, disk):
    mount(disk, "-o", "remount,ro")
    for kind, name in (("coordinator", "coordinator"), ("node", NODES[0])):
        p = live.start_service(MESHMIND, folder, kind, name)
        wait_for(f"the end of {name}", lambda: p.poll() is not None, logs=folder)
        said = log_of(folder, name)
        check(p.returncode == 3 and f"{disk}/{name}" in said, f"{name} ended with {p.returncode} and said:\n{said[-1000:]}")
        check("Read-only file system" in said, name, "does not say why:", said[-1000:])
    mount(disk, "-o", "remount,rw")


def main():
    in_a_namespace()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="omm-disk-"))
    disk = folder / "disk"
    disk.mkdir()
    try:
        mount(disk, "-t", "tmpfs", "-o", ROOM, "tmpfs")
        scenario = live.patient(folder)
        write_files(folder, disk, scenario)
        read_only(folder, disk)
        simulation, begin = live.Simulation(MESHMIND, scenario, folder / "simulated"), time.monotonic()
        words = full(folder, disk)
        digest, expected = live.run_digest(disk / "coordinator" / "bundle"), simulation.digest()
        check(digest == expected, f"run digest {digest}, the simulator's is {expected}")
        for said, status in words:
            print(said, "healthz:", *status)
        print(f"run digest {digest}, as simulated, {time.monotonic() - begin:.0f} s")
    finally:
        live.end_all()
        subprocess.run(["umount", "-l", disk], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


main()

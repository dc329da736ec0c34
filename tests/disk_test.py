#!/usr/bin/env python3
"""A disk that fails under real processes for a while: before anybody trains, again when the first receipt is given, and while the
bundle is sealed.  Nobody leaves, what is wrong is said with the path, nothing that was receipted is lost, and with a good disk the
run goes on to the simulator's digest.  Its first round opens where the file of byte counts cannot be written.

full       coordinator and three nodes on a small file system (a tmpfs in a mount namespace of this test), full to the last byte.
           And one that cannot be written from the start: coordinator and node end with 3 and the path.
           Needs root (CAP_SYS_ADMIN) and unshare; else it is skipped with the reason.
late       the coordinator's alone is full from the round's opening until after its deadline, and then payloads alone have no place:
           nobody is late.  As full otherwise.
read_only  a node's disk becomes read-only, then the coordinator's, which after the first receipt is killed while it is: of what it
           could not keep nobody has a receipt.  Its state stays so when it seals, in another folder: it gives its verdict all the same.

usage: disk_test.py SOURCE_DIR MESHMIND full|late [FASTER_MESHMIND]
       disk_test.py SOURCE_DIR MESHMIND read_only LIBRARY
"""
import contextlib, http.client, json, os, pathlib, re, shutil, signal, sqlite3, subprocess, sys, tempfile, time

import live
from live import check, log_of, wait_for
from small_disk import NO_ROOM, fill, in_a_namespace, mount

SOURCE, WHAT = pathlib.Path(sys.argv[1]).resolve(), sys.argv[3]
MESHMIND = live.program([sys.argv[2], *(sys.argv[4:] if WHAT != "read_only" else [])])
NODES = ["cafe-02", "studio-02", "harbor-02"]
ROUNDS, ROOM = 2, "size=48m"
DEADLINE_S, ANSWER_MS = 30, 80000  # of `late`


def write_files(folder, disk, scenario, nodes, answer_ms):
    port = live.free_port()
    live.write_coordinator(folder, port, scenario, state_dir=disk / "coordinator", bundle=disk / "bundle", http="127.0.0.1:0", http_port_file=folder / "http_port")
    for name in NODES:
        live.write_node(folder, name, port, state_dir=nodes / name, scenario=scenario, checkpoint_steps=1, answer_ms=answer_ms)


def health(folder):
    ask = http.client.HTTPConnection("127.0.0.1", int((folder / "http_port").read_text()), timeout=live.LIMIT_S)
    ask.request("GET", "/healthz")
    answer = ask.getresponse()
    return answer.status, answer.read().decode()


class Full:
    """A tmpfs without room for a byte."""
    says, environment = NO_ROOM, {}

    def __init__(self, path):
        self.path = path

    def fail(self, _):
        fill(self.path)

    def mend(self, _=None):
        (self.path / "filler").unlink()


class ReadOnly:
    """A folder of the disk that no process can change anything in."""
    says = "Read-only file system|disk I/O error"

    def __init__(self, path, library):
        self.path, self.switch = path, path.parent / "read_only"
        self.switch.write_bytes(bytes(os.pathconf(path, "PC_PATH_MAX")))
        self.environment = {"LD_PRELOAD": library, "OMM_READ_ONLY": self.switch}

    def fail(self, what):
        with open(self.switch, "r+b") as f:  # in place: the file is mapped
            f.write(bytes(self.path / what).ljust(1024, b"\0") if what else bytes(1024))

    def mend(self, but=None):
        self.fail(but)


def start_service(folder, fault, kind, name):
    return live.start_service(MESHMIND, folder, kind, name, **fault.environment)


def no_disk(folder, disk, fault, processes, when, what="coordinator", then=lambda: None, kills=False, says="", leaves=None):
    """It fails, until somebody has said so and a while more; all are there still.  A coordinator that is killed before it is mended has
    what is on the disk, and nothing else.  what: the folder, of a disk that is read-only; leaves: the one that stays it; then: what is
    done when it fails."""
    known = {n: len(log_of(folder, n)) for n in processes}
    fault.fail(what)
    then()
    said = lambda: [line for n in processes for line in log_of(folder, n)[known[n]:].splitlines() if re.search(f"{says}.*({fault.says})", line)]
    wait_for(f"a word on the disk, {when}", lambda: fault.fail(what) or said(), logs=folder)  # and full it stays
    time.sleep(1)
    for name, p in processes.items():
        check(p.poll() is None, f"{when}: {name} left because of the disk:\n{log_of(folder, name)[-2000:]}")
    nameless = [line for line in said() if str(disk) not in line]
    check(not nameless, f"{when}: no path in", *nameless[:5])
    status = health(folder)
    check(status[0] == 503 or "coordinator" not in processes, f"{when}: healthz says", *status)
    if kills:
        live.stop(processes["coordinator"])
    fault.mend(leaves)
    if kills:
        processes["coordinator"] = start_service(folder, fault, "coordinator", "coordinator")
    return f"{when}: {said()[0].split(' ', 1)[1]}", status


def ready(folder):
    return json.loads(live.run(MESHMIND, "coordinator", "ctl", "-c", folder / "coordinator.yaml", "status", "--json"))["nodes"]["ready"]


def receipts_are_kept(disk, nodes):
    """Each receipt that a node was given is in the evidence, byte for byte."""
    have = {p.read_bytes() for p in (disk / "bundle" / "receipts").iterdir()}
    for name in NODES:
        with contextlib.closing(sqlite3.connect(nodes / name / "node.sqlite")) as db:
            kept = [value for value, in db.execute("SELECT value FROM keep WHERE name LIKE 'receipt/%'")]
        check(len(kept) == ROUNDS and all(value in have for value in kept), f"{name}: {len(kept)} receipts, or others than in the bundle")


def takes_the_place_of(file):
    """A folder, of a file that may be written anew at any moment."""
    file.unlink(missing_ok=True)
    with contextlib.suppress(FileExistsError):
        file.mkdir()
    return file.is_dir()


def start(folder, disk, fault):
    """The first round opens while the counts of bytes cannot be kept: between two writes of the state machine, too, nobody leaves.  It
    opens with the last node, and of a disk that is read-only the first one can keep nothing of its training then."""
    coordinator = start_service(folder, fault, "coordinator", "coordinator")
    wait_for("the coordinator", lambda: "listening" in log_of(folder, "coordinator"), logs=folder)
    counts = disk / "coordinator" / "traffic"
    wait_for("a folder where the counts belong", lambda: takes_the_place_of(counts), logs=folder)
    processes, words = {"coordinator": coordinator, **{n: start_service(folder, fault, "node", n) for n in NODES[:-1]}}, []
    wait_for("all nodes but one", lambda: ready(folder) == len(NODES) - 1, logs=folder)
    start_last = lambda: processes.update({NODES[-1]: start_service(folder, fault, "node", NODES[-1])})
    if WHAT == "full":
        start_last()
    else:
        words = [no_disk(folder, disk, fault, {NODES[0]: processes[NODES[0]]}, "at a node", NODES[0], start_last)]
    wait_for("a round", lambda: "round_open" in log_of(folder, "coordinator"), logs=folder)
    wait_for("a word on the counts", lambda: "wire_not_kept" in log_of(folder, "coordinator"), logs=folder)
    check(str(counts) in log_of(folder, "coordinator"), "wire_not_kept does not say where:", log_of(folder, "coordinator"))
    check(coordinator.poll() is None, "the coordinator left because of its counts:", log_of(folder, "coordinator")[-2000:])
    counts.rmdir()
    return processes, words


def sealing(folder, disk, fault, processes):
    """The bundle cannot be sealed, because of a folder that is in the way, then because it was moved away, then because of the disk."""
    bundle, away, coordinator = disk / "bundle", disk / "away", processes["coordinator"]

    def stands_still(why):
        said = lambda: re.search(f"sealing_stands_still .*{why}", log_of(folder, "coordinator"))
        wait_for(f"a word on what keeps it from sealing: {why}", lambda: said() or coordinator.poll() is not None or (away.exists() and bundle.exists()), logs=folder)
        check(coordinator.poll() is None, "the coordinator left and did not seal:", log_of(folder, "coordinator")[-2000:])
        check(not away.exists() or not bundle.exists(), "a bundle that was moved away is made again")

    wait_for("the nodes' end", lambda: all(processes[n].poll() is not None for n in NODES), logs=folder)
    stands_still("junit.xml exists and is not a regular file")
    manifest, attempts = bundle / "manifest.json", log_of(folder, "coordinator").count("sealing_stands_still")
    manifest.write_text("{}\n")  # as of an attempt that failed in its last step: nothing can be replaced beside it
    wait_for("the end of the manifest of an attempt that failed", lambda: not manifest.exists() or coordinator.poll() is not None, logs=folder)
    check(coordinator.poll() is None, "the coordinator left because of a manifest that an attempt has left:", log_of(folder, "coordinator")[-2000:])
    wait_for("the end of the attempt that removed it", lambda: log_of(folder, "coordinator").count("sealing_stands_still") > attempts, logs=folder)
    bundle.rename(away)
    stands_still("put it back")
    fault.fail(".")
    (away / "junit.xml").rmdir()
    away.rename(bundle)
    said, status = no_disk(folder, disk, fault, {"coordinator": coordinator}, "while it is sealed", ".", says="sealing_stands_still", leaves="coordinator")
    check(status[1].startswith("sick\nsealing: stands still"), "healthz says", *status)
    check(not manifest.exists(), "there is a manifest of what could not be sealed")
    return said, status


def failing(folder, disk, fault):
    processes, words = start(folder, disk, fault)
    words.append(no_disk(folder, disk, fault, processes, "before the first training"))
    # The round cannot end before the disk fails: of the last node nothing comes until then.
    last = processes[NODES[-1]]
    last.send_signal(signal.SIGSTOP)
    wait_for("a receipt", lambda: any(re.search(r"\breceipt\b", log_of(folder, n)) for n in NODES[:-1]), logs=folder)
    (disk / "bundle" / "junit.xml").mkdir()  # for the end, that it cannot be over before it is looked at
    words.append(no_disk(folder, disk, fault, processes, "after the first receipt", then=lambda: last.send_signal(signal.SIGCONT), kills=WHAT == "read_only"))
    words.append(sealing(folder, disk, fault, processes))
    wait_for("the end of the run", lambda: all(p.poll() is not None for p in processes.values()), logs=folder)
    for name, p in processes.items():
        check(p.returncode in ((0, 1) if name == "coordinator" else (0,)), name, "ended with", p.returncode,
              log_of(folder, name)[-3000:])
    log = log_of(folder, "coordinator")
    check(re.search(r"(?m)^run digest ", log), "the coordinator gives no verdict:", log[-3000:])
    check(WHAT == "full" or re.search("stop_not_kept .*audit.jsonl.*Read-only", log), "no word on the audit log:", log[-3000:])
    receipts_are_kept(disk, disk)
    live.check_verified(MESHMIND, disk / "bundle")
    return words


def late(folder, disk, fault):
    """What nodes have trained while there was no room is accepted when there is, though the deadline is over."""
    scenario = live.patient(folder)
    text = scenario.read_text().replace(live.PATIENT, live.PATIENT[:-2] + f", deadline_ms: {DEADLINE_S * 1000}}}\n")
    for less, more in (("rank: 2, alpha: 4", "rank: 64, alpha: 128"), ('"q,v"', '"q,k,v,o"'), (", topk_fraction: 0.5", "")):
        check(less in text, f"no {less} in the scenario")
        text = text.replace(less, more)  # a payload is a file, and no row of the database
    scenario.write_text(text)
    write_files(folder, disk, scenario, folder, ANSWER_MS)  # whoever got no answer would not come again in time
    processes = {"coordinator": start_service(folder, fault, "coordinator", "coordinator"), **{n: start_service(folder, fault, "node", n) for n in NODES}}
    said, nodes = lambda: log_of(folder, "coordinator"), [processes[n] for n in NODES]
    wait_for("a round", lambda: "round_open" in said(), logs=folder)
    opened = time.monotonic()
    for p in nodes:
        p.send_signal(signal.SIGSTOP)
    fault.fail(".")
    given = said().count("submission_accepted")
    check(given < len(NODES), "all have given before the disk was full")
    for p in nodes:
        p.send_signal(signal.SIGCONT)
    wait_for("the deadline", lambda: fault.fail(".") or time.monotonic() > opened + DEADLINE_S + 5, logs=folder)
    status = health(folder)
    check(status[0] == 503 and "\ndeadline: waits since 20" in status[1] and str(disk) in status[1], "healthz says", *status)
    check("deadline_waits" in said() and said().count("submission_accepted") == given, "in the log:", said()[-3000:])
    check(all(p.poll() is None for p in processes.values()), "somebody left because of the disk:", said()[-2000:])
    uploads, away = disk / "coordinator" / "uploads", disk / "away"
    uploads.rename(away)
    uploads.touch()
    fault.mend()
    wait_for("a payload that has no place", lambda: "request_failed" in said() or "receipt" in log_of(folder, NODES[0]), logs=folder)
    check("request_failed" in said(), "payloads have a place:", said()[-2000:])
    uploads.unlink()
    away.rename(uploads)
    mended = time.monotonic()
    wait_for("what the nodes gave", lambda: "round_published" in said(), logs=folder)
    took_s = time.monotonic() - mended
    check(took_s * 1000 < ANSWER_MS / 2, f"the nodes came after {took_s:.0f} s only")
    wait_for("the end of the run", lambda: all(p.poll() is not None for p in processes.values()), logs=folder)
    check(all(p.returncode == 0 for p in nodes) and processes["coordinator"].returncode in (0, 1), "ended with", *[p.returncode for p in processes.values()])
    check("REFUSED" not in said(), "somebody was refused:", said())
    rounds = [json.loads(line) for line in (disk / "bundle" / "rounds.jsonl").read_text().splitlines()]
    check(all(len(r["accepted"]) == len(NODES) and not r["missing"] for r in rounds), rounds)
    receipts_are_kept(disk, folder)
    live.check_verified(MESHMIND, disk / "bundle")
    print(f"{given} had given before; {took_s:.0f} s after there was room again the round was over; healthz: {status[1]}")


def read_only(folder, disk):
    mount(disk, "-o", "remount,ro")
    for kind, name in (("coordinator", "coordinator"), ("node", NODES[0])):
        p = live.start_service(MESHMIND, folder, kind, name)
        wait_for(f"the end of {name}", lambda: p.poll() is not None, logs=folder)
        said = log_of(folder, name)
        check(p.returncode == 3 and f"{disk}/" in said, f"{name} ended with {p.returncode} and said:\n{said[-1000:]}")
        check("Read-only file system" in said, name, "does not say why:", said[-1000:])
    mount(disk, "-o", "remount,rw")


def make_fault(folder, disk):
    if WHAT == "read_only":
        return ReadOnly(disk, pathlib.Path(sys.argv[4]).resolve())
    mount(disk, "-t", "tmpfs", "-o", ROOM, "tmpfs")
    return Full(disk)


def main():
    if WHAT != "read_only":
        in_a_namespace()
    elif not pathlib.Path(sys.argv[4]).exists():
        live.skip(f"{sys.argv[4]} is not built")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="omm-disk-"))
    disk = folder / "disk"
    disk.mkdir()
    try:
        fault, scenario = make_fault(folder, disk), live.patient(folder)
        if WHAT == "late":
            return late(folder, disk, fault)
        write_files(folder, disk, scenario, disk, 2000)
        if WHAT == "full":
            read_only(folder, disk)
        simulation, begin = live.Simulation(MESHMIND, scenario, folder / "simulated"), time.monotonic()
        words = failing(folder, disk, fault)
        digest, expected = live.run_digest(disk / "bundle"), simulation.digest()
        check(digest == expected, f"run digest {digest}, the simulator's is {expected}")
        for said, status in words:
            print(said, "healthz:", *status)
        print(f"run digest {digest}, as simulated, {time.monotonic() - begin:.0f} s")
    finally:
        live.end_all()
        if WHAT != "read_only":
            subprocess.run(["umount", "-l", disk], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


main()

#!/usr/bin/env python3
"""Many nodes and many rounds: every round completes, nobody is refused, and the coordinator's memory and
descriptors do not grow with rounds.  Without a word this is a measurement, and its state is on the disk.  With `heap` all blocks
of the coordinator's heap are counted (tests/fault/heap.c): what is left of a submission when its round is over is seen.  With
`chunks`: the same by nodes that do not send or take small adapters whole.

With `kills`: the coordinator is killed with -9 again and again, and the run has the digest of one that was not.  With
`allowance`: nodes that say too much in a minute, by messages or by bytes, what they are sent among these, are told to wait.

With `parts` no coordinator: what one submission costs, part by part, adds up.  With `idle`: so many nodes, and four times as many, that are
connected and ask in a pause; what one of them takes of the coordinator's memory.  With `peak`: adapters of two sizes; how many of
them the coordinator's process takes more for the larger one.  With `crowd`: four nodes, and so many, that submit; what one of them takes
at the peak, and that sealing the bundle takes no more.

usage: load_test.py SOURCE_DIR MESHMIND LOAD [NODES ROUNDS THREADS [heap | chunks | kills | allowance | idle | peak | crowd | parts]]
Memory means nothing with sanitizers, which keep what is freed: MESHMIND and LOAD are of a build without.
Prints a line a round; docs/measurements/service.md has what 2,000 nodes and 50 rounds gave.
"""
import contextlib, json, mmap, os, pathlib, random, re, resource, shutil, signal, statistics, struct, subprocess, sys, tempfile
import threading, time
import urllib.request

import hostile_peers as hp
import protocol_peer as pp
from live import LIMIT_S, PATIENT, fail, free_port, skip

SOURCE, MESHMIND, LOAD = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
NODES, ROUNDS, THREADS = (int(a) for a in sys.argv[4:7]) if len(sys.argv) > 4 else (60, 10, 16)
WHAT = sys.argv[7] if len(sys.argv) > 7 else ""
MODEL = SOURCE / "scenarios/base/openmeshmind-tiny-F16.gguf"
SETTLED = 5        # rounds until buffers have their sizes
SETTLED_SUBMISSIONS = 1200  # until the databases' caches of pages are full
GROWTH_MB_MAX = 4  # from then on, over all rounds
LEFT_BYTES_MAX = 1  # of the heap for each submission; what is measured is 0.1, the smallest block 24
IDLE_KB_MAX = 12   # of the coordinator's memory for one more node that is connected
PEAK_RANKS = {8: 0.93, 256: 29.88}  # of all targets, and what their adapters take in f32, MB
PEAK_ADAPTERS_MAX = 3.5             # three (docs/decisions.md 85), and what the heap leaves between them
RECIPE = 'rank: 2, alpha: 4, targets: "q,v"'
FEW = 4            # nodes, which a crowd is compared with
CROWD_KB_MAX = 20  # for one more node that submits, at the peak until the run is over
SEAL_MB_MAX = 4    # over the peak of the run, when its bundle is judged and sealed
OPEN_FILES = 4     # that are open for a moment, when one looks
KILL_EVERY_S = (0.15, 0.9)  # after it answers again
COUNTS_HEAP = WHAT in ("heap", "chunks")
HEAP_LIBRARY = LOAD.parent / "fault/libomm_heap.so"
MEMORY = pathlib.Path("/dev/shm")  # a disk that others use would decide how long a round takes
STATE_BYTES = 40_000  # of a submission: payload, manifest and receipt, in the database and in the bundle


if COUNTS_HEAP:
    SETTLED = max(SETTLED, -(-SETTLED_SUBMISSIONS // NODES))
if WHAT in ("", "heap", "chunks") and ROUNDS < SETTLED + 2:
    sys.exit(f"load_test.py: {ROUNDS} rounds; accepted: over {SETTLED + 1}, as nothing is compared in the first {SETTLED}")
for program in (MESHMIND, LOAD, *([HEAP_LIBRARY] if COUNTS_HEAP else [])):
    if not program.exists():
        skip(f"{program} is not there (cmake --build --preset release)")


def write_files(folder, port=0, messages=0, size=0, recipe=RECIPE):
    (folder / "base").symlink_to(SOURCE / "scenarios/base")
    shutil.copytree(SOURCE / "scenarios/policies", folder / "policies")
    (folder / "few.jsonl").write_text("".join((SOURCE / "scenarios/base/test.jsonl").open().readlines()[:8]))
    (folder / "load.yaml").write_text(
        "schema_version: 1\nname: load\nseed: 3\nmodel: base/openmeshmind-tiny-F16.gguf\n"
        f"train: base/train.jsonl\ntest: few.jsonl\nrounds: {ROUNDS}\n"
        "population: [{group: none, clients: [cafe-02]}]\n"
        f'recipe: {{{recipe}, steps: 1, batch_tokens: 64, learning_rate: 0.005}}\n'
        "codec: {up: {kind: int8}, down: {kind: f16}}\nevaluation: {round_items: 2, generate: false}\n"
        f"audit: {{submissions: 0, scalar_steps: 0}}\npolicy: policies/service.yaml\n{PATIENT}")
    for name in ("coordinator", "bundle"):
        subprocess.run([MESHMIND, "keygen", "--out", folder / f"{name}.key"], check=True, capture_output=True)
    keys = subprocess.run([LOAD, "keys", str(NODES)], check=True, capture_output=True, text=True).stdout.split()
    enrolled = "".join(f"  - {{name: n{i}, public_key: {key}}}\n" for i, key in enumerate(keys))
    (folder / "coordinator.yaml").write_text(
        f"scenario: load.yaml\nlisten: tcp://127.0.0.1:{port}\nport_file: port\nstate_dir: state\nkey: coordinator.key\n"
        f"bundle_key: bundle.key\npoll_ms: 10\nstrangers: {NODES}\nstrangers_per_address: {NODES}\n"
        f"node_messages_per_minute: {messages}\nnode_bytes_per_minute: {size}\nhttp: 127.0.0.1:0\nhttp_port_file: web\nthreads: 1\nlog_level: warn\nnodes:\n{enrolled}")


class Watched:
    """The coordinator's process, looked at from outside."""

    def __init__(self, process):
        self.proc = pathlib.Path(f"/proc/{process.pid}")

    def look(self):
        status = (self.proc / "status").read_text()
        rss_kb, peak_kb = (int(status.split(name)[1].split()[0]) for name in ("VmRSS:", "VmHWM:"))
        stat = (self.proc / "stat").read_text().rsplit(")", 1)[1].split()
        cpu_s = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
        return {"rss_mb": rss_kb / 1e3, "peak_mb": peak_kb / 1e3, "files": len(os.listdir(self.proc / "fd")), "cpu_s": cpu_s}



class Heap(threading.Thread):
    """The least that a process has on its heap, of many looks: what is only under way at one of them is not counted."""
    LAYOUT = "<66Q"  # heap_counts of tests/fault/heap.c

    def __init__(self, path):
        super().__init__(daemon=True)
        self.lock, self.low = threading.Lock(), None
        with open(path, "rb") as file:
            self.counts = mmap.mmap(file.fileno(), struct.calcsize(self.LAYOUT), access=mmap.ACCESS_READ)
        self.start()

    def run(self):
        while True:
            now = struct.unpack(self.LAYOUT, self.counts[:])
            with self.lock:
                self.low = tuple(map(min, self.low or now, now))
            time.sleep(0.002)

    def least(self):
        """Since it was asked last: usable bytes, then blocks by size."""
        with self.lock:
            low, self.low = self.low, None
        return low or struct.unpack(self.LAYOUT, self.counts[:])


def check_heap(counts):
    """counts: the least of each round, from when caches are full.  The middle one of the later half may have no more than
    that of the first: a single round in which some buffer was not there is no leak of the others."""
    early, late = ([statistics.median_low(column) for column in zip(*part)]
                   for part in (counts[:len(counts) // 2], counts[len(counts) // 2:]))
    submissions = NODES * (len(counts) // 2)
    left = (late[0] - early[0]) / submissions
    print(f"heap: {early[0]} bytes at rest in the first {len(counts) // 2} of {len(counts)} rounds, {late[0]} in the others: "
          f"{left:.2f} are left of a submission")
    if left > LEFT_BYTES_MAX:
        grown = {f"{8 + 16 * i}": late[i] - early[i] for i in range(1, len(late)) if late[i] - early[i] > submissions / 10}
        fail(f"{left:.1f} bytes are left of a submission, accepted are {LEFT_BYTES_MAX}; blocks more, by their bytes: {grown}")


def start(folder):
    """A coordinator that listens; or that was killed when its run was sealed, and says the verdict again."""
    (folder / "port").unlink(missing_ok=True)
    env = {**os.environ, "LD_PRELOAD": str(HEAP_LIBRARY), "OMM_HEAP": str(folder / "heap")} if COUNTS_HEAP else None
    with open(folder / "coordinator.log", "ab") as log:
        coordinator = subprocess.Popen([MESHMIND, "coordinator", "-c", folder / "coordinator.yaml"], stdout=log,
                                       stderr=log, env=env)
    while not (folder / "port").exists():
        if coordinator.poll() is not None:
            if coordinator.returncode in (0, 1) and (folder / "state/bundle/manifest.json").exists():
                break
            fail((folder / "coordinator.log").read_text()[-3000:])
        time.sleep(0.01)
    return coordinator


def start_load(folder, targets="q,v", *more):
    url = f"tcp://127.0.0.1:{(folder / 'port').read_text().strip()}"
    words = [LOAD, "run", url, "-", MODEL, targets, str(NODES), str(THREADS), *(["chunks"] if WHAT == "chunks" else more)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def check_counts(folder, rounds, killed=0):
    if sum(r["accepted"] for r in rounds) != NODES * ROUNDS or any(r["refused"] for r in rounds):
        fail(f"not every submission of {NODES} nodes in {ROUNDS} rounds was accepted")
    check_evidence(folder)
    # All do the same from one address: what one asked for must not be counted as another's.  Over kills they do not:
    # who had not submitted takes the adapter again.
    down = [node["down"] for node in json.loads((folder / "state/bundle/measured/wire.json").read_text())["nodes"]]
    if len(down) != NODES or not killed and max(down) > 1.5 * min(down):
        fail(f"of {len(down)} nodes one took {min(down)} bytes and one {max(down)}")


def check_evidence(folder):
    lines = [json.loads(line) for line in (folder / "state/bundle/rounds.jsonl").read_text().splitlines()]
    if [len(line["accepted"]) for line in lines] != [NODES] * ROUNDS:
        fail(f"{len(lines)} of {ROUNDS} rounds are in the evidence, or not all with {NODES} submissions")


def run_digest(folder):
    return json.loads((folder / "state/bundle/manifest.json").read_text())["run_digest"]


def federate(folder, kills):
    """The run digest, after so many kills at random moments."""
    coordinator, load, killed = start(folder), start_load(folder), 0
    try:
        while killed < kills and load.poll() is None:
            time.sleep(random.uniform(*KILL_EVERY_S))
            if coordinator.poll() is None:
                coordinator.send_signal(signal.SIGKILL)
                coordinator.wait()
                killed += 1
                coordinator = start(folder)
        rounds = [json.loads(line) for line in load.communicate(timeout=300)[0].splitlines() if "round" in line]
        if load.returncode != 0 or coordinator.wait(timeout=300) not in (0, 1):
            fail(f"load {load.returncode}, coordinator {coordinator.returncode}: "
                 + (folder / "coordinator.log").read_text()[-3000:])
        check_counts(folder, rounds, killed)
        return run_digest(folder), killed
    finally:
        for process in (load, coordinator):
            if process.poll() is None:
                process.kill()


def metrics(folder):
    web = (folder / "web").read_text().strip()
    return urllib.request.urlopen(f"http://127.0.0.1:{web}/metrics", timeout=60).read().decode()


def metric(folder, name):
    return float(re.search(rf"(?m)^meshmind_{name} (\S+)$", metrics(folder)).group(1))


def refused_for_budget(folder):
    """How many requests were, and whether a submission was."""
    text = metrics(folder)
    counts = dict(re.findall(r'^meshmind_(requests|submissions)_refused_total\{reason="BUDGET"\} (\d+)', text,
                             re.M))
    return int(counts.get("requests", 0)), int(counts.get("submissions", 0))


@contextlib.contextmanager
def fresh():
    """A folder and a list for processes, which live no longer than the block."""
    in_memory = WHAT and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 2 * STATE_BYTES * NODES * ROUNDS
    folder, processes = pathlib.Path(tempfile.mkdtemp(prefix="omm-load-", dir=MEMORY if in_memory else None)), []
    try:
        yield folder, processes
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def is_told_to_wait(what, **allowed):
    with fresh() as (folder, processes):
        write_files(folder, **allowed)
        processes.append(start(folder))
        while not (folder / "web").exists():
            time.sleep(0.05)
        processes.append(load := start_load(folder))
        end, seen = time.monotonic() + LIMIT_S, (0, 0)
        while seen[0] == 0 and load.poll() is None and time.monotonic() < end:
            time.sleep(0.2)
            with contextlib.suppress(OSError):  # when the run is over nobody answers
                seen = refused_for_budget(folder)
        if seen[0] == 0 or seen[1] > 0 or load.poll() is not None:
            fail(f"{what} a minute: {seen[0]} requests and {seen[1]} submissions over the budget")
        print(f"{what} a minute: {seen[0]} more were told to wait, and no submission was refused for it")


def answers_count(what, size):
    """Who asks for much in few words is told to wait for what it was sent: an adapter, or what the base model consists of."""
    with fresh() as (folder, processes):
        write_files(folder, port := free_port(), size=size)
        processes.append(start(folder))
        while not (folder / "web").exists():
            time.sleep(0.05)
        adapter = (folder / "state/bundle/adapters/r000.bin").read_bytes()
        asked = {"chunk": {"get": {"digest": pp.blake(adapter), "index": 0}}, "base_model": {"ask_base": True}}[what]
        get = pp.encode("Request", {"version": 1, **asked})
        wire, sent, end = hp.Wire(port, "127.0.0.1"), 0, time.monotonic() + LIMIT_S
        while refused_for_budget(folder)[0] == 0 and sent < 3 * size and time.monotonic() < end:
            reply = wire.ask(get)
            sent += len(get) + len(reply) if what in pp.decode("Reply", reply) else 0
        if not size / 2 < sent < 2 * size:
            fail(f"of {size} bytes a minute {sent} had come and gone when there were no more")


def allowance():
    answers_count("chunk", 100000)
    answers_count("base_model", 20000)
    is_told_to_wait("60 messages", messages=60)
    is_told_to_wait("100,000 bytes", size=100000)


def idle_mb():
    """The coordinator's memory when NODES nodes have asked, and ask on; no round is opened."""
    with fresh() as (folder, processes):
        write_files(folder)
        processes.append(coordinator := start(folder))
        subprocess.run([MESHMIND, "coordinator", "ctl", "-c", folder / "coordinator.yaml", "pause"], check=True, capture_output=True)
        processes.append(load := start_load(folder))
        end, ready = time.monotonic() + 120, 0
        while ready < NODES and time.monotonic() < end:
            time.sleep(0.5)
            ready = float(re.search(r'(?m)^meshmind_nodes\{is="ready"\} (\S+)$', metrics(folder)).group(1))
        connections = metric(folder, "connections")
        if ready < NODES or connections < NODES:
            fail(f"of {NODES} nodes {ready:.0f} have asked, {connections:.0f} are connected")
        time.sleep(3)  # all have asked once more, and what an answer takes has been given back
        return Watched(coordinator).look()["rss_mb"]


def allow_files(count):
    """For this process and those that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        skip(f"{hard} files may be open, and {NODES} nodes take {count}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))


def idle():
    global NODES
    few = NODES
    allow_files(8 * few + 500)
    before, NODES = idle_mb(), 4 * few
    after = idle_mb()
    each_kb = (after - before) * 1e3 / (NODES - few)
    print(f"{few} nodes {before:.1f} MB, {NODES} nodes {after:.1f} MB: {each_kb:.1f} kB each")
    if not 1 < each_kb < IDLE_KB_MAX:
        fail(f"a node that is connected takes {each_kb:.1f} kB, accepted are under {IDLE_KB_MAX}")


def end_of(process):
    """Waits for it; its exit code, and the most memory that it ever had, MB."""
    end = time.monotonic() + LIMIT_S
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        if time.monotonic() > end:
            fail(f"not ended within {LIMIT_S} s")
        time.sleep(0.01)
    process.returncode, peak_kb = os.waitstatus_to_exitcode(ended[1]), ended[2].ru_maxrss
    if peak_kb <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss:  # which a child begins with
        fail(f"{peak_kb} kB may be this test's own")
    return process.returncode, peak_kb / 1e3


def peaks_mb(recipe, *load_words):
    """The most that the coordinator's process has until its nodes have heard of the end, and the most over all, with the seal of the
    bundle."""
    with fresh() as (folder, processes):
        write_files(folder, recipe=recipe)
        processes.append(coordinator := start(folder))
        watched, until_end = Watched(coordinator), 0
        processes.append(load := start_load(folder, *load_words))
        while load.poll() is None:
            with contextlib.suppress(OSError, IndexError):  # it may have ended
                until_end = watched.look()["peak_mb"]
            time.sleep(0.01)
        code, most = end_of(coordinator)
        if load.returncode != 0 or code not in (0, 1):
            fail((folder / "coordinator.log").read_text()[-3000:])
        check_evidence(folder)
        return until_end, most


def peak():
    (small, small_mb), (large, large_mb) = PEAK_RANKS.items()
    few, many = (peaks_mb(f"rank: {rank}, alpha: {2 * rank}, targets: all-linear", "all", "chunks", str(rank))[1] for rank in (small, large))
    adapters = (many - few) / (large_mb - small_mb)
    print(f"{NODES} nodes, {ROUNDS} rounds: at most {few:.1f} MB at rank {small}, {many:.1f} at rank {large}: {adapters:.2f} adapters of {large_mb} MB")
    if not 0.5 < adapters < PEAK_ADAPTERS_MAX:
        fail(f"{adapters:.2f} adapters, accepted are under {PEAK_ADAPTERS_MAX}")


def check_seal(run_mb, most_mb):
    """The most of the run until its end, and over the seal."""
    if most_mb > run_mb + SEAL_MB_MAX:
        fail(f"sealing {NODES * ROUNDS} submissions took {most_mb - run_mb:.1f} MB over the {run_mb:.1f} of the run, accepted are {SEAL_MB_MAX}")


def crowd():
    global NODES
    allow_files(2 * NODES + 500)
    many, NODES = NODES, FEW
    few_mb, _ = peaks_mb(RECIPE)
    NODES = many
    many_mb, most_mb = peaks_mb(RECIPE)
    each_kb = (many_mb - few_mb) * 1e3 / (NODES - FEW)
    print(f"{FEW} nodes {few_mb:.1f} MB, {NODES} nodes {many_mb:.1f} MB over {ROUNDS} rounds: {each_kb:.1f} kB each; with the seal {most_mb:.1f} MB")
    if not 1 < each_kb < CROWD_KB_MAX:
        fail(f"accepted are under {CROWD_KB_MAX} kB for a node")
    check_seal(many_mb, most_mb)


def parts_of(percent):
    """What `load parts` says of small deltas, so much of which is kept: bytes sent, microseconds, MB/s and share of each part."""
    said = subprocess.run([LOAD, "parts", MODEL, "q,v", "2", str(percent)], check=True, capture_output=True, text=True).stdout
    head = re.match(rf"(\d+) values, ([\d.]+) MB as f32, ([\d.]+) MB sent \(int8, {percent} % kept\), one thread:\n", said)
    rows = re.findall(r"(?m)^  (\w+) +([\d.]+) us +(\d+) MB/s of f32(?: +(\d+) %)?$", said)
    if not head or [row[0] for row in rows] != ["hash", "signature", "judge", "add", "all"]:
        fail("load parts says\n" + said)
    return int(head[1]), float(head[3]), [(float(us), int(speed), int(share or 100)) for _, us, speed, share in rows]


def parts():
    sent = []
    for percent in (100, 25):
        values, sent_mb, (*shares, all_of_them) = parts_of(percent)
        sent.append(sent_mb)
        us, speed, _ = all_of_them
        ok = [values == 10752, abs(sum(part[0] for part in shares) - us) <= 0.3, abs(sum(part[2] for part in shares) - 100) <= 2,
              abs(speed - 4 * values / us) <= 1 + speed / us, all(abs(part[2] - 100 * part[0] / us) <= 1 for part in shares)]
        print(f"{percent} % kept: {us} us, {speed} MB/s of f32, parts {shares}")
        if not all(ok):
            fail(f"does not add up: {ok}")
    if not sent[1] < sent[0] < 4e-6 * values:
        fail(f"sent {sent} MB")


def survives_kills():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="omm-load-"))
    try:
        write_files(folder, free_port())
        (folder / "state").mkdir()
        seed = os.urandom(32)
        (folder / "state/run_seed").write_bytes(seed)
        (folder / "state/run_seed").chmod(0o600)
        expected, _ = federate(folder, 0)
        shutil.rmtree(folder / "state")
        (folder / "state").mkdir()
        (folder / "state/run_seed").write_bytes(seed)
        (folder / "state/run_seed").chmod(0o600)
        digest, killed = federate(folder, 2 * ROUNDS)
        if digest != expected or killed == 0:
            fail(f"after {killed} kills the run digest is {digest}, without {expected}")
        print(f"{NODES} nodes, {ROUNDS} rounds: {killed} kills, run digest {digest} as without")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    allow_files(2 * NODES + 500)
    with fresh() as (folder, processes):
        write_files(folder)
        processes.append(coordinator := start(folder))
        processes.append(load := start_load(folder))
        watched, rounds, cpu_s, work_s, begin = Watched(coordinator), [], 0, 0, time.monotonic()
        heap, counts = COUNTS_HEAP and Heap(folder / "heap"), []
        for line in load.stdout:
            row = {**json.loads(line), **watched.look()}
            if "opened" in row:
                work = metric(folder, "work_seconds_total")
                if rounds:  # sums, evaluation, evidence and polls between two rounds
                    print(json.dumps({"end_of": row["opened"] - 1, "work_s": round(work - work_s, 2),
                                      "cpu_s": round(row["cpu_s"] - cpu_s - rounds[-1]["cpu_s"], 2)}), flush=True)
                cpu_s, work_s = row["cpu_s"], work
                continue
            row["cpu_s"] = round(row["cpu_s"] - cpu_s, 2)  # from the offer to the last receipt, all threads
            row["per_second"] = round(row["accepted"] / row["seconds"])
            row["per_cpu_second"] = round(row["accepted"] / max(row["cpu_s"], 0.01))
            rounds.append(row)
            counts.append(heap and heap.least())
            print(json.dumps(row), flush=True)
        code, most_mb = end_of(coordinator)
        if load.wait() != 0 or code not in (0, 1):
            fail(f"load {load.returncode}, coordinator {code}: " + (folder / "coordinator.log").read_text()[-3000:])
        check_counts(folder, rounds)
        steady = rounds[SETTLED:]
        if heap:
            check_heap(counts[SETTLED:])
        growth = max(r["rss_mb"] for r in steady) - steady[0]["rss_mb"]
        files = [max(r["files"] for r in part) for part in (rounds[:SETTLED], steady)]
        check_seal(max(r["peak_mb"] for r in rounds), most_mb)
        if growth > GROWTH_MB_MAX or files[1] > files[0] + OPEN_FILES:
            fail(f"grew by {growth:.1f} MB, from {files[0]} to {files[1]} files")
        print(f"{NODES} nodes, {ROUNDS} rounds: memory {steady[0]['rss_mb']:.1f} MB after round {SETTLED}, "
              f"{steady[-1]['rss_mb']:.1f} at the end, {most_mb:.1f} at the peak with the seal; {steady[-1]['files']} files; "
              f"{NODES * ROUNDS / (time.monotonic() - begin):.0f} submissions a second over all, ends of rounds included")


{"kills": survives_kills, "idle": idle, "peak": peak, "crowd": crowd, "parts": parts, "allowance": allowance}.get(WHAT, main)()

#!/usr/bin/env python3
"""A node as a guest on somebody's machine, with real processes: what it takes while it idles, how it
pauses, how fast it stops, and that nothing of this changes a byte of what it sends.

The machine that it sees (battery, heat, load, network) is a tree of files, through OMM_GUEST_ROOT.

usage: guest_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import contextlib, os, pathlib, re, signal, sqlite3, sys, tempfile, time

import live
from live import check, free_port, wait_for

SOURCE = pathlib.Path(sys.argv[1])
MESHMIND = live.program(sys.argv[2:])
IS_MEASURED = "build/release" in str(MESHMIND)  # sanitizers take memory of their own
IDLE_KB = 10000
STEPS = 24  # what a fast machine trains, at SLOWED, between two looks at its battery is a fraction of them
SLOWED = max(1, 12 // os.cpu_count())  # percent of all processors: an eighth of one
KEPT_STEPS = 4  # between two checkpoints
END_S = 900  # of STEPS on a machine that others use, too
SCENARIO = """schema_version: 1
name: guest
seed: 5
model: base/openmeshmind-tiny-F16.gguf
train: {data}
test: test.jsonl
rounds: 1
population:
  - group: one
    clients: [cafe-02]
recipe: {%s, steps: %d, learning_rate: 0.005, warmup_steps: 1}
codec:
  up: {kind: int8, topk_fraction: 0.5}
  down: {kind: f16}
evaluation: {round_items: 4, generate: false}
audit: {submissions: 0, scalar_steps: 0}
"""
SMALL = 'rank: 2, alpha: 4, targets: "q,v", batch_tokens: 512, micro_tokens: 256'
LONG = 'rank: 2, targets: "q,v", batch_tokens: 8192, micro_tokens: 8192, seq_max: 8192'  # a pass takes ten seconds on a fast machine
LARGE = "rank: 32, batch_tokens: 64, micro_tokens: 64, seq_max: 64"  # 3.7 MB a copy, and little else


class Process:
    def __init__(self, folder, kind, name, root=None):
        self.path = folder / f"{name}.log"
        self.p = live.start_service(MESHMIND, folder, kind, name, OMM_GUEST_ROOT=root or live.NOWHERE, TZ="UTC")

    def log(self):
        return self.path.read_text(errors="replace")

    def says(self, pattern, count=1):
        return lambda: len(re.findall(pattern, self.log(), re.M)) >= count or self.p.poll() is not None

    def last_step(self):
        return int(re.findall(r"training_step .*step=(\d+)$", self.log(), re.M)[-1])

    def begins(self):
        return [int(n) for n in re.findall(r"training_begin .*from_step=(\d+)", self.log())]

    def passes_checkpoint(self, count):
        """Training has begun for the `count`th time, and is past the next checkpoint from there."""
        return lambda: (len(self.begins()) >= count and self.last_step() > next_checkpoint(self.begins()[count - 1])
                        or self.p.poll() is not None)

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.p.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def threads(self):
        return [int(p.name) for p in pathlib.Path(f"/proc/{self.p.pid}/task").iterdir()]

    def resident_kb(self, what="VmRSS"):
        """None where it has ended."""
        found = re.search(rf"{what}:\s+(\d+) kB", pathlib.Path(f"/proc/{self.p.pid}/status").read_text())
        return found and int(found[1])

    def planned_mb(self):
        return int(re.findall(r"training_begin .*memory_mb=(\d+)", self.log())[-1])

    def end(self, number):
        return live.stop_timed(self.p, number)


def put(root, path, text):
    path = root / path.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def next_checkpoint(step):
    return (step // KEPT_STEPS + 1) * KEPT_STEPS


def federation(folder, extra="priority: normal\n", steps=STEPS, threads=1, recipe=SMALL, data="train.jsonl"):
    """Files of a coordinator and one node with keys of their own; the run's bundle is in state/bundle.  A node that has to get
    somewhere is of normal priority: beside other tests the lowest may stand still.  Where its memory is measured after training it has
    the whole `data`; else its client's lines alone, which are read sooner."""
    folder.mkdir()
    port, public = free_port(), {n: live.keygen(MESHMIND, folder, n)["public_key"] for n in ("coordinator", "bundle", "node")}
    (folder / "base").symlink_to(SOURCE / "scenarios" / "base")
    for file in "train.jsonl", "test.jsonl":
        live.ship_lines_of(folder, file, ["cafe-02"])
    (folder / "run.yaml").write_text(SCENARIO.replace("{data}", data) % (recipe, steps))
    (folder / "coordinator.yaml").write_text(
        f"scenario: run.yaml\nlisten: tcp://127.0.0.1:{port}\nstate_dir: state\nkey: coordinator.key\n"
        "bundle_key: bundle.key\npoll_ms: 100\nlinger_ms: 60000\nthreads: 1\n"
        f"nodes:\n  - {{name: cafe-02, public_key: {public['node']}}}\n")
    (folder / "node.yaml").write_text(
        f"coordinator: tcp://127.0.0.1:{port}\nname: cafe-02\nstate_dir: node\nkey: node.key\n"
        f"coordinator_key: {public['coordinator']}\nmodel: base/openmeshmind-tiny-F16.gguf\n"
        f"data: {data}\nclient: cafe-02\nthreads: {threads}\n{extra}")


def rehearse(folder, extra):
    """The same with keys and nonces that derive from the scenario: bytes can be compared with a simulation's."""
    port = free_port()
    common = "scenario: run.yaml\nthreads: 1\n"
    (folder / "coordinator.yaml").write_text(
        f"{common}listen: tcp://127.0.0.1:{port}\nstate_dir: state\npoll_ms: 100\nlinger_ms: 60000\n")
    (folder / "node.yaml").write_text(
        f"{common}coordinator: tcp://127.0.0.1:{port}\nname: cafe-02\nstate_dir: node\n{extra}")


def waits(folder, node):
    board = folder / "node" / "status.json"
    return lambda: board.exists() and '"waiting"' in board.read_text() or node.p.poll() is not None


def write_again(folder, line, instead):
    """One line of node.yaml."""
    text, count = re.subn(f"^{line}$", instead, (folder / "node.yaml").read_text(), flags=re.M)
    check(count == 1, f"{line}: {count} lines")
    (folder / "node.yaml").write_text(text)


def checkpoints(folder):
    """Of the node's state, read while nobody has it open: the length of each kept value."""
    with contextlib.closing(sqlite3.connect(folder / "node" / "node.sqlite")) as db:
        return {name: size for name, size in db.execute("SELECT name, length(value) FROM keep")}


def idle(folder):
    """Nobody answers: it waits at its own low priority, with the weights of no model in memory."""
    federation(folder, "")
    node = Process(folder, "node", "node")
    try:
        wait_for("a node that waits", waits(folder, node))
        time.sleep(1.5)
        resident = node.resident_kb()
        nice = int(pathlib.Path(f"/proc/{node.p.pid}/stat").read_text().rsplit(")", 1)[1].split()[16])
        check(nice == 19, f"nice is {nice}, not 19")
        check(not IS_MEASURED or resident < IDLE_KB, f"idle: {resident} kB, not under {IDLE_KB}")
        before = node.cpu_s()
        time.sleep(1)
        check(node.cpu_s() - before < 0.1, f"idle: {node.cpu_s() - before} s of processor time in a second")
        code, seconds = node.end(signal.SIGHUP)  # as when its terminal is closed
        check(code == 0 and seconds < 2, f"idle: ended with {code} after {seconds:.1f} s")
        print(f"idle: {resident} kB, stopped after {seconds * 1000:.0f} ms")
    finally:
        node.p.kill()


def idle_over_tls(folder):
    """The same of a node that is connected over TLS and waits for a round, with certificate and session in memory."""
    federation(folder)
    live.run(MESHMIND, "keygen", "--tls", "--out", folder / "tls.key")
    with open(folder / "run.yaml", "a") as f:
        f.write(live.PATIENT)
    absent = live.keygen(MESHMIND, folder, "absent")["public_key"]
    for name, more in (("coordinator", f"  - {{name: absent, public_key: {absent}}}\ntls_key: tls.key\n"), ("node", "")):
        text = (folder / f"{name}.yaml").read_text().replace("tcp://", "tls+tcp://")
        (folder / f"{name}.yaml").write_text(text + more + "tls_certificate: tls.key.crt\n")
    coordinator, node = Process(folder, "coordinator", "coordinator"), Process(folder, "node", "node")
    ctl = [MESHMIND, "coordinator", "ctl", "-c", folder / "coordinator.yaml", "status"]
    try:
        wait_for("a coordinator", coordinator.says(" listening "))
        check(coordinator.p.poll() is None, coordinator.log())
        wait_for("a node that was heard", lambda: "1 ready" in live.run(*ctl))
        wait_for("a node that waits", waits(folder, node))
        time.sleep(1.5)
        resident = node.resident_kb()
        check(not IS_MEASURED or resident < IDLE_KB, f"idle over TLS: {resident} kB, not under {IDLE_KB}")
        check("1 ready" in live.run(*ctl) and node.p.poll() is None, node.log()[-2000:])
        print(f"idle over TLS: {resident} kB")
    finally:
        node.p.kill()
        coordinator.p.kill()


def as_the_kernel_sees_it(folder):
    """`threads: 7` are six more than `threads: 1`; with `priority: idle` each of them has only time that nobody else wants."""
    federation(folder)
    counts = []
    for threads in (1, 7):
        write_again(folder, "threads: .*", f"threads: {threads}")
        node = Process(folder, "node", "node")
        wait_for("a node that waits", waits(folder, node))
        counts.append(len(node.threads()))
        node.end(signal.SIGKILL)
        (folder / "node" / "status.json").unlink()
    check(counts[1] - counts[0] == 6, f"threads: 1 and 7 are {counts} threads")
    write_again(folder, "priority: .*", "priority: idle")
    node = Process(folder, "node", "node")  # it may get no time to say more
    wait_for("its threads", lambda: len(node.threads()) >= 7 or node.p.poll() is not None)
    policies = {os.sched_getscheduler(t) for t in node.threads()}
    check(policies == {os.SCHED_IDLE}, f"priority: idle, and the policies are {policies}")
    node.p.kill()


class Afterwards:
    """A node of four threads that has trained a round and waits for the next one, an hour: it idles like one that never did."""

    def __init__(self, folder):
        federation(folder, steps=2, threads=4, data="base/train.jsonl")
        (folder / "run.yaml").write_text((folder / "run.yaml").read_text().replace("rounds: 1", "rounds: 2"))
        with open(folder / "coordinator.yaml", "a") as f:
            f.write("every: 1h\n")
        self.coordinator, self.node = Process(folder, "coordinator", "coordinator"), Process(folder, "node", "node")

    def check(self):
        """Its idle time (SERVICE_IDLE_MS) has passed while other things were tested, or does now."""
        try:
            wait_for("a receipt", self.node.says("INFO receipt .*reason=OK"))
            below = lambda: not IS_MEASURED or self.node.resident_kb() < IDLE_KB
            end = time.monotonic() + live.LIMIT_S
            while not below() and time.monotonic() < end:
                time.sleep(0.2)
            check(below(), f"after a round: {self.node.resident_kb()} kB, not under {IDLE_KB}")
            check("training_begin" in self.node.log() and self.node.p.poll() is None, self.node.log()[-2000:])
            print(f"after a round: {self.node.resident_kb()} kB")
        finally:
            self.node.p.kill()
            self.coordinator.p.kill()


def disturbed(folder):
    """On battery, off it, stopped, killed: the same submission as a node that nobody disturbed."""
    federation(folder)
    simulation = live.Simulation(MESHMIND, folder / "run.yaml", folder / "simulated")
    rehearse(folder, f"checkpoint_steps: {KEPT_STEPS}\npause_hold_s: 0\nlog_level: debug\npriority: normal\nmax_cpu_percent: {SLOWED}\n")
    root = folder / "machine"
    battery = "/sys/class/power_supply/BAT0/"
    put(root, battery + "type", "Battery")
    put(root, battery + "status", "Discharging")
    coordinator = Process(folder, "coordinator", "coordinator")
    node = Process(folder, "node", "node", root)
    try:
        wait_for("pause at the start", node.says(r"paused .*reason=battery"))
        time.sleep(1)
        check("node_ready" not in coordinator.log() and "offer" not in node.log(), "it works in a pause")
        put(root, battery + "status", "Charging")
        wait_for("training", node.says("training_step .*step=2$"))
        put(root, battery + "status", "Discharging")  # in the middle: lets go, with a checkpoint
        wait_for("pause while it trains", node.says(r"round_left"))
        used = node.cpu_s()
        time.sleep(1)
        check(node.cpu_s() - used < 0.1, "it works in a pause")
        put(root, battery + "status", "Charging")
        wait_for("goes on", node.passes_checkpoint(2))
        asked_at = node.last_step()
        code, seconds = node.end(signal.SIGTERM)
        check(code == 0 and seconds < 2, f"training: ended with {code} after {seconds:.1f} s:\n{node.log()[-2000:]}")
        # A machine that is too busy to end the step in time loses that step, not the checkpoint before it.
        least = next_checkpoint(node.begins()[1]) if "from the last checkpoint" in node.log() else asked_at
        kept = checkpoints(folder)
        check(kept.get("checkpoint", 0) > 0, f"no checkpoint is kept: {kept}")
        node = Process(folder, "node", "node", root)
        wait_for("goes on again", node.passes_checkpoint(3))
        node.end(signal.SIGKILL)
        write_again(folder, "max_cpu_percent: .*", "")
        node = Process(folder, "node", "node", root)
        check(node.p.wait(timeout=END_S) == 0, f"the node failed:\n{node.log()[-3000:]}")
        check(coordinator.p.wait(timeout=END_S) in (0, 1), coordinator.log()[-3000:])
        resumed = node.begins()
        check(len(resumed) == 4 and resumed[0] == 0 and resumed[1] >= 2 and resumed[2] >= least
              and resumed[3] >= next_checkpoint(resumed[2]), f"steps that were resumed from: {resumed}\n{node.log()[-9000:]}")
        digest, undisturbed = live.run_digest(folder / "state" / "bundle"), simulation.digest()
        check(digest == undisturbed, f"run digest {digest}, undisturbed {undisturbed}")
        print(f"disturbed: resumed from steps {resumed[1:]}, stopped after {seconds * 1000:.0f} ms, the same bytes")
    finally:
        node.p.kill()
        coordinator.p.kill()


def in_a_long_step(folder):
    """Told to stop in the middle of a pass that takes long, it does not wait for its end."""
    federation(folder, "max_memory_mb: 500\npriority: normal\n", steps=2, recipe=LONG)
    write_again(folder, "client: .*", "")
    write_again(folder, "data: .*", "data: long.txt")
    (folder / "long.txt").write_text("The cat sat on the mat and looked at the rain. " * 1200)
    coordinator, node = Process(folder, "coordinator", "coordinator"), Process(folder, "node", "node")
    try:
        wait_for("training", node.says("training_begin|round_left"))
        code, seconds = node.end(signal.SIGTERM)
        check("stopped in the middle of a step" in node.log(), f"ended after {seconds:.1f} s:\n{node.log()[-2000:]}")
        check(code == 0 and seconds < 2, f"in a long step: ended with {code} after {seconds:.1f} s")
        print(f"in a long step: stopped after {seconds * 1000:.0f} ms")
    finally:
        node.p.kill()
        coordinator.p.kill()


def slow(folder):
    """A share of the processors, by the clock."""
    asked = max(1, 25 // os.cpu_count())
    federation(folder, f"max_cpu_percent: {asked}\npriority: normal\n", steps=10000)
    coordinator, node = Process(folder, "coordinator", "coordinator"), Process(folder, "node", "node")
    try:
        wait_for("training", node.says("training_begin"))
        time.sleep(1.2)
        begin, used = time.monotonic(), node.cpu_s()
        time.sleep(4)
        # A second may be saved up, and is where the machine had no time for it before: that much is used besides.
        wait_for("a step", lambda: node.cpu_s() > used)
        seconds, saved_s = time.monotonic() - begin, asked / 100 * os.cpu_count()
        share = (node.cpu_s() - used) / seconds / os.cpu_count() * 100
        own = (node.cpu_s() - used - saved_s) / seconds / os.cpu_count() * 100
        check(own < asked * 1.5 + 1, f"max_cpu_percent {asked}: {share:.1f} % of all processors")
        print(f"slow: {share:.1f} % of all processors, asked for {asked}")
    finally:
        node.p.kill()
        coordinator.p.kill()


def within_memory(folder):
    """A node that goes on from a checkpoint has most of an adapter in memory: it trains within what it planned, and a limit
    that is hardly more than that is neither refused when the training begins nor passed."""
    steps = 6
    federation(folder, f"checkpoint_steps: {KEPT_STEPS}\nlog_level: debug\npriority: normal\n", steps=steps, recipe=LARGE, data="base/train.jsonl")
    coordinator, node = Process(folder, "coordinator", "coordinator"), Process(folder, "node", "node")
    try:
        wait_for("a checkpoint", node.says(f"training_step .*step={KEPT_STEPS + 1}$"))
        node.end(signal.SIGKILL)
        limit, peak = node.planned_mb() + 4, 0  # reading the checkpoint leaves some of the database's pages
        with (folder / "node.yaml").open("a") as text:
            text.write(f"max_memory_mb: {limit}\n")
        (folder / "node.yaml").write_text((folder / "node.yaml").read_text().replace(f"checkpoint_steps: {KEPT_STEPS}", "checkpoint_steps: 1"))
        node = Process(folder, "node", "node")
        while node.p.poll() is None and "WARN round_left" not in node.log():
            peak = max(peak, node.resident_kb("VmHWM") or 0)
            time.sleep(0.005)
        check(node.begins() == [0, KEPT_STEPS] and node.p.wait(timeout=live.LIMIT_S) == 0, f"within {limit} MB:\n{node.log()[-2000:]}")
        check(not IS_MEASURED or peak * 1024 < limit * 1000000, f"max_memory_mb: {limit}, planned {node.planned_mb()}, peak {peak} kB")
        print(f"within memory: planned {node.planned_mb()} MB of {limit}, peak {peak * 1024 / 1e6:.1f} MB")
    finally:
        node.p.kill()
        coordinator.p.kill()


def refusals(folder):
    """What the owner's limits forbid is said plainly; outside of its hours it sends nothing."""
    federation(folder, "max_memory_mb: 12\npriority: normal\n")
    coordinator, node = Process(folder, "coordinator", "coordinator"), Process(folder, "node", "node")
    try:
        wait_for("refusal", node.says("round_left"))
        check(re.search(r"max_memory_mb of 12\.0 MB: .*take", node.log()), node.log()[-2000:])
        node.end(signal.SIGTERM)
        write_again(folder, "max_memory_mb: 12", f"limits: {{steps_max: {STEPS - 1}}}")
        node = Process(folder, "node", "node")
        wait_for("refusal", node.says("round_left .*recipe.steps"))
        check(f"recipe.steps: {STEPS} is over our limit of {STEPS - 1}" in node.log(), node.log()[-2000:])
        node.end(signal.SIGTERM)
        now = time.gmtime().tm_hour
        write_again(folder, "limits: .*", f'hours: "{(now + 2) % 24:02}:00-{(now + 3) % 24:02}:00"')
        node = Process(folder, "node", "node")
        wait_for("pause", node.says(r'paused .*reason=hours detail="it is'))
        code, seconds = node.end(signal.SIGTERM)
        check(code == 0 and seconds < 2, f"paused: ended with {code} after {seconds:.1f} s")
        write_again(folder, "hours: .*", 'hours: "late"')
        node = Process(folder, "node", "node")
        check(node.p.wait(timeout=live.LIMIT_S) == 2 and 'hours: "late"; accepted' in node.log(), node.log()[-500:])
    finally:
        node.p.kill()
        coordinator.p.kill()


with tempfile.TemporaryDirectory(prefix="omm-guest-") as name:
    name = pathlib.Path(name)
    afterwards = Afterwards(name / "afterwards")
    idle(name / "idle")
    idle_over_tls(name / "tls")
    as_the_kernel_sees_it(name / "kernel")
    disturbed(name / "disturbed")
    in_a_long_step(name / "long")
    slow(name / "slow")
    within_memory(name / "within")
    refusals(name / "refusals")
    afterwards.check()

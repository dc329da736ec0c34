#!/usr/bin/env python3
"""A soak: coordinator and honest nodes as processes, killed and stopped at random, among peers that mean harm.

One calm episode first, then episodes until the time is over: strangers (hostile_peers.py) send malformed, oversized,
slow, replayed and forged messages, one enrolled node sends zstd bombs in every round and one lies in its manifests, coordinator and
nodes are killed with -9 or asked to stop at random and started again.  After every episode: the masters and the ledger are those of the
calm one, each receipt that an honest node keeps is in the evidence, `verify` passes, no sanitizer has said anything in any process
(LeakSanitizer in each that ended by itself or was asked to), and every request of a stranger was answered but for those that a kill cut off.

Refusals: every reason that a peer may be refused for is provoked (PROVOKED) or has another test (ELSEWHERE).  What the coordinator has
counted since it began is compared with what all peers were told, honest nodes by what a tap heard, reason by reason, many times in an
episode: it is the same number, but where bytes of a submission or a chunk were sent again, whose verdict may be one that is kept, or
where a request had no answer.  In a census all that one stranger sends is refused and counted; and in the audit log is no less than was told.

usage: soak_test.py SOURCE_DIR MESHMIND DURATION [SEED]     DURATION: 30m, 90s; without SEED one is drawn and printed
"""
import http.client, json, os, pathlib, random, re, shutil, signal, sqlite3, struct, sys, tempfile, threading, time

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
sys.path.insert(0, str(SOURCE / "tests"))
import hostile_peers as hp
import live
import protocol_peer as pp
from live import check

UNITS = {"s": 1, "m": 60, "h": 3600}
DURATION_S = int(sys.argv[3][:-1]) * UNITS[sys.argv[3][-1]]
RSS_MAX, FDS_MAX = 256 << 20, 128  # of the coordinator, with sanitizers; twice what hours of it showed
SEED = int(sys.argv[4]) if len(sys.argv) > 4 else random.SystemRandom().randrange(2**32)
NODES, MALLORY, LIAR = ["cafe-02", "studio-02", "harbor-02"], "tower-01", "club-02"
ROUNDS, STRANGERS, EPISODE_S, LATE_KILLS_MAX = 6, 6, 1500, 2
SCENARIO = f"""schema_version: 1
name: soak
seed: 12
model: {SOURCE}/scenarios/base/openmeshmind-tiny-F16.gguf
train: {SOURCE}/scenarios/base/train.jsonl
test: {SOURCE}/scenarios/base/test.jsonl
policy: {SOURCE}/scenarios/policies/service.yaml
rounds: {ROUNDS}
population:
  - group: four
    clients: [{", ".join(NODES + [MALLORY, LIAR])}]
recipe: {{rank: 2, alpha: 4, targets: "q,v", steps: 2, batch_tokens: 256, learning_rate: 0.005, warmup_steps: 1}}
codec:
  up: {{kind: int8, topk_fraction: 0.5}}
  down: {{kind: f16}}
evaluation: {{round_items: 8, generate: false}}
audit: {{submissions: 1, scalar_steps: 0}}
round: {{join_ms: 600000}}
"""
MEMORY = pathlib.Path("/dev/shm")  # a disk that others use would decide how long an episode takes
EXACT = ["KEY", "SIGNATURE", "CONTEXT"]  # nobody but strangers provokes them, and nothing is kept of what they sent for it
# What nng 1.5 may lose when a process ends: a dialer or a listener with the connection that had just been greeted when it was closed
# and that nobody had taken yet.  Blocks of each, at most.
KNOWN_LEAKS = {"make_dialer": 16, "tcptran_accept_cb": 4, "omm_server_listen": 4}
CENSUS = 4  # requests of each kind
PROVOKED = ["BASE", "BUDGET", "CONTEXT", "DIGEST", "DUPLICATE", "FORMAT", "KEY", "RECIPE", "RESIDUAL", "ROUND", "SIGNATURE", "SIZE", "VALUE"]
ELSEWHERE = {  # what it would take is not in this run: who else provokes it
    "SHAPE": "codec_test", "NORM": "refusal_test", "RANGE": "refusal_test",  # a payload that decodes
    "LATE": "federation_test", "NOT_SELECTED": "refusal_test",  # a deadline, nodes that are left out
    "INVITATION": "enrol_test", "FULL": "enrol_test", "WORK": "enrol_test"}  # a door that is not only for who is listed


class Process:
    def __init__(self, folder, kind, name):
        self.folder, self.kind, self.name, self.kills, self.stops, self.process = folder, kind, name, 0, 0, None
        self.start()

    def start(self):
        known = self.folder / "known_leaks.txt"
        known.write_text("".join(f"leak:{function}\n" for function in KNOWN_LEAKS))
        env = {"LSAN_OPTIONS": f"suppressions={known}:print_suppressions=1",
               "ASAN_OPTIONS": "exitcode=99:detect_leaks=1:quarantine_size_mb=16:malloc_context_size=12",
               "UBSAN_OPTIONS": "halt_on_error=1:exitcode=99:print_stacktrace=1"}
        self.process = live.start_service(MESHMIND, self.folder, self.kind, self.name, **env)

    def kill(self, how):
        """False when it had ended by itself.  A node that had heard of the end has kept that: it ends when it is started again.
        Who is asked to stop frees what it has, and LeakSanitizer looks for the rest."""
        code = live.stop(self.process, how)
        check(code in (0, 1, -how), self.name, "ended with", code)
        self.kills += code == -signal.SIGKILL
        self.stops += how == signal.SIGTERM
        return code == -signal.SIGKILL or how == signal.SIGTERM

    def leak_checks(self):
        """How many of its processes ended so that leaks were looked for: by themselves or asked to, but for a node that was in the middle of a step."""
        cut_short = live.log_of(self.folder, self.name).count("stopped in the middle of a step")
        return self.stops + 1 - cut_short

    def seen(self):
        """Resident bytes and descriptors."""
        try:
            status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
            found = re.search(r"VmRSS:\s+(\d+)", status)
            return int(found[1]) * 1024 if found else 0, len(os.listdir(f"/proc/{self.process.pid}/fd"))
        except OSError:
            return 0, 0


def write_files(folder, port, taps):
    (folder / "soak.yaml").write_text(SCENARIO)
    live.write_coordinator(folder, port, "soak.yaml", http="127.0.0.1:0", http_port_file="http_port")
    for name in NODES:
        live.write_node(folder, name, taps[name].port, scenario="soak.yaml", checkpoint_steps=1, answer_ms=5000)


def refusals(folder):
    """What the coordinator has counted since it began, by reason."""
    time.sleep(1.1)  # a text is made anew after HTTP_FRESH_MS
    port = int((folder / "http_port").read_text())
    ask = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    ask.request("GET", "/metrics")
    out = {}
    pattern = r'meshmind_(?:submissions|requests)_refused_total\{reason="(\w+)"\} (\d+)'
    for reason, count in re.findall(pattern, ask.getresponse().read().decode()):
        out[reason] = out.get(reason, 0) + int(count)
    ask.close()
    return out


class Episode:
    def __init__(self, folder, rng, seed, is_calm, deadline):
        self.folder, self.rng, self.seed, self.is_calm, self.deadline = folder, rng, seed, is_calm, deadline
        self.port, self.tally, self.stop = live.free_port(), hp.Tally(), threading.Event()
        self.compared, self.exact, self.late_kills, self.captured_list, self.rss, self.fds = 0, 0, 0, [], [], []
        self.has_census = is_calm
        self.taps, self.poll_list = {name: live.Tap(self.port) for name in NODES}, []
        write_files(folder, self.port, self.taps)
        run_seed = pp.blake(b"omm seed" + struct.pack("<Q", 12))
        derive = lambda purpose, name: pp.key_from_seed(pp.blake(struct.pack("<I", purpose) + name.encode(), key=run_seed))
        self.mallories = [kind(self.port, derive(2, name), derive(3, "coordinator")[2], self.tally)
                          for kind, name in ((hp.Mallory, MALLORY), (hp.Liar, LIAR))]
        self.earlier = {name: 0 for name in NODES}  # connections of nodes when this coordinator began

    def captured(self):
        bundle = self.folder / "coordinator" / "bundle"
        known = len(self.captured_list)
        if self.rng.random() < 0.05 or not known:
            pairs = []
            for path in sorted((bundle / "submissions").glob("*.env")):
                receipt = bundle / "receipts" / path.name
                if receipt.exists():
                    pairs.append((path.read_bytes(), receipt.read_bytes()))
            self.captured_list = pairs
        return self.captured_list

    def polls(self):
        if self.rng.random() < 0.05 or not self.poll_list:
            self.poll_list = [body for tap in self.taps.values() for body in hp.recorded(tap.out, "poll")]
        return self.poll_list

    def is_over(self):
        return self.coordinator.process.poll() is not None and all(n.process.poll() is not None for n in self.nodes)

    def run(self):
        self.coordinator = Process(self.folder, "coordinator", "coordinator")
        self.nodes = [Process(self.folder, "node", n) for n in NODES]
        strangers = [] if self.is_calm else [
            hp.Stranger(11 + i, self.port, self.seed, self.tally, self.stop, self.captured, self.polls) for i in range(STRANGERS)]
        try:
            for thread in [*self.mallories, *strangers]:
                thread.start()
            self.wait()
        finally:
            self.stop.set()
            for mallory in self.mallories:
                mallory.quit.set()
            self.tally.go.set()
            live.end_all()
            for thread in [*self.mallories, *strangers]:
                thread.join(30)

    def wait(self):
        end, next_kill = time.monotonic() + EPISODE_S, time.monotonic() + self.rng.uniform(1, 6)
        next_look = next_kill + self.rng.uniform(1, 6)
        while not self.is_over():
            check(time.monotonic() < end, "an episode does not end")
            for mallory in self.mallories:
                check(mallory.fault is None, type(mallory).__name__, mallory.fault)
            check(not self.tally.faults, "strangers:", self.tally.faults[:3])
            for p in [self.coordinator, *self.nodes]:
                check(p.process.poll() in (None, 0, 1), p.name, "ended with", p.process.poll())
            self.sample()
            self.census()
            if not self.is_calm and time.monotonic() > next_kill and time.monotonic() < self.deadline:
                self.kill_one()
                next_kill = time.monotonic() + self.rng.uniform(1, 8)
            if time.monotonic() > next_look:
                self.compare()
                next_look = time.monotonic() + self.rng.uniform(4, 12)
            time.sleep(0.25)
        check(self.coordinator.process.returncode in (0, 1), "coordinator ended with", self.coordinator.process.returncode)
        check(all(n.process.returncode == 0 for n in self.nodes), "a node ended otherwise than done")

    def sample(self):
        rss, fds = self.coordinator.seen()
        if rss:
            self.rss.append(rss)
            self.fds.append(fds)

    def kill_one(self):
        victim = self.rng.choice([self.coordinator, *self.nodes, self.coordinator])
        if victim.process.poll() is not None:
            return
        # When the run is closed and all honest nodes have gone, a new coordinator only waits for somebody to ask (linger_ms),
        # and one that is killed before that is over begins to wait again: it could go on for ever.
        if all(n.process.poll() is not None for n in self.nodes):
            self.late_kills += 1
            if self.late_kills > LATE_KILLS_MAX:
                return
        if victim is self.coordinator and self.rng.random() < 0.5:
            self.compare()
        if victim.kill(self.rng.choice([signal.SIGKILL, signal.SIGTERM])):
            time.sleep(self.rng.choice([0.05, 0.05, 0.5, 3]))  # what it had answered has been read
            if victim is self.coordinator:
                self.next_process()
            victim.start()
        if victim is self.coordinator:
            self.tally.go.set()

    def so_far(self, of_all=False):
        """What strangers, enrolled attackers and honest nodes were told, by this process of the coordinator or by all."""
        out = self.tally.so_far(of_all)
        for name, tap in self.taps.items():
            for body in hp.bodies(tap.back, hp.HELLO_BACK, 0 if of_all else self.earlier[name]):
                out.note(pp.decode("Reply", body))
        return out

    def next_process(self):
        """The coordinator has ended."""
        self.tally.next_process()
        self.earlier = {name: tap.back.count(hp.HELLO_BACK) for name, tap in self.taps.items()}
        (self.folder / "http_port").unlink(missing_ok=True)  # the one that was killed wrote it

    def pause(self):
        """The strangers', until tally.go is set; False where one does not end what it does."""
        self.tally.hold()
        end = time.monotonic() + 40
        while self.tally.busy and time.monotonic() < end:
            time.sleep(0.05)
        return not self.tally.busy

    def census(self):
        """Once in an episode: what is sent by one stranger alone is refused and counted, to the last one."""
        if self.has_census or not (self.folder / "http_port").exists():
            return
        self.has_census = True
        try:
            if not self.pause():
                return
            before = refusals(self.folder)
            stranger = hp.Stranger(10, self.port, f"{self.seed}/census", self.tally, self.stop, self.captured, self.polls)
            try:
                sent = stranger.census(CENSUS)
            except OSError as e:
                live.fail("census: a request was not answered:", e)
            finally:
                stranger.drop()
            after = refusals(self.folder)
            for reason, count in sent.items():
                counted = after.get(reason, 0) - before.get(reason, 0)
                check(counted == count if reason in EXACT else counted >= count, "census:", reason, "refused", count, "counted", counted)
            self.compare_now()
        finally:
            self.tally.go.set()

    def compare(self):
        """The strangers pause, and what all were told is what was counted."""
        try:
            if self.pause():
                self.compare_now()
        finally:
            self.tally.go.set()

    def compare_now(self):
        """While strangers pause.  Nodes and enrolled attackers go on: what they are told meanwhile may be counted or not."""
        before = self.so_far()
        try:
            counted = refusals(self.folder)
        except (OSError, ValueError, http.client.HTTPException):
            return  # it had just begun or is about to end
        time.sleep(0.3)  # an answer follows on its count
        after = self.so_far()
        for reason in [*PROVOKED, *ELSEWHERE]:
            name = "REFUSED_" + reason
            least, most = before.least.get(name, 0), after.most.get(name, 0) + after.lost
            check(least <= counted.get(reason, 0) <= most, reason, "counted", counted.get(reason, 0), "told", least, "to", most, "of which nobody knows", after.lost)
            self.exact += least == most > 0
        self.compared += 1


# ---- what must hold ---------------------------------------------------------------------------------

def check_leaks(log, text):
    """Of what is known to be lost at the end of a process, no more than that."""
    for count, function in re.findall(r"(?m)^ +(\d+) +\d+ (\w+)$", text):
        check(int(count) <= KNOWN_LEAKS.get(function, 0), log.name, count, "blocks of", function, "are lost")


def check_refusals(episode):
    """No request of a stranger was passed over, and what strangers were told since the coordinator last began is in its audit log."""
    ends = episode.coordinator.kills + episode.coordinator.stops + 1
    tally, cut_off = episode.tally, STRANGERS * ends  # one each is under way at a kill, and at the end
    check(tally.cut_off <= cut_off, tally.cut_off, "requests were cut off, by kills at most", cut_off)
    slow = 1 + sum(tally.sent.values()) // 1000  # of a machine that has much else to do
    check(tally.passed_over <= slow, tally.passed_over, "requests were passed over, for want of time at most", slow)
    entries = [json.loads(line) for line in (episode.folder / "coordinator" / "audit.jsonl").read_text().splitlines()]
    begun = max(i for i, entry in enumerate(entries) if entry["event"] == "start")
    for reason, told in episode.so_far().least.items():
        logged = sum(entry.get("refusals", {}).get(reason, 0) for entry in entries[begun:])
        check(logged >= told, "audit log:", reason, "told", told, "logged", logged)


def outcome(bundle):
    """What honest nodes have made of the run."""
    out = {p.name: p.read_bytes() for p in sorted((bundle / "adapters").iterdir())}
    out["ledger"] = (bundle / "ledger.jsonl").read_bytes()
    out.update({p.name: p.read_bytes() for p in (bundle / "payloads").iterdir()})
    # An offer names the round's line before it, and that names what strangers were refused: so does every submission.
    for folder in ("submissions", "receipts"):
        out[folder] = sorted(p.name for p in (bundle / folder).iterdir())
    return out


def check_receipts(folder):
    """Every receipt that an honest node keeps is in the evidence, byte for byte."""
    bundle, count = folder / "coordinator" / "bundle", 0
    have = {p.read_bytes() for p in (bundle / "receipts").iterdir()}
    for name in NODES:
        with sqlite3.connect(folder / name / "node.sqlite") as db:
            kept = db.execute("SELECT name, value FROM keep WHERE name LIKE 'receipt/%'").fetchall()
        for where, envelope in kept:
            receipt = pp.decode("Receipt", pp.decode("Envelope", envelope)["payload"])
            check(receipt["accepted"], name, where, receipt["reason"])
            check(envelope in have, name, where, "is not in the evidence")
        check(len(kept) == ROUNDS, name, "has", len(kept), "receipts of", ROUNDS)
        count += len(kept)
    return count


def check_episode(episode, expected):
    bundle = episode.folder / "coordinator" / "bundle"
    for log in episode.folder.glob("*.log"):
        text = log.read_text(errors="replace")
        bad = re.search(r"(?m)^.*(AddressSanitizer|LeakSanitizer|runtime error|Assertion|ASSERT).*$", text)
        check(not bad, log.name, "says", bad and bad[0])
        check_leaks(log, text)
    check_refusals(episode)
    live.check_verified(MESHMIND, bundle)
    live.run(MESHMIND, "coordinator", "audit", "verify", episode.folder / "coordinator" / "audit.jsonl")
    got = outcome(bundle)
    if expected:
        different = sorted(k for k in set(got) | set(expected) if got.get(k) != expected.get(k))
        check(not different, "not as in the calm episode:", different)
    for mallory in episode.mallories:
        check(set(mallory.receipts) <= set(range(ROUNDS)), "receipts of", type(mallory).__name__)
    return got, check_receipts(episode.folder)


def check_reasons():
    """Each reason that a peer may be refused for is provoked here, or is somewhere else."""
    refusals = {name.removeprefix("REFUSED_") for name in pp.REASONS if name.startswith("REFUSED_")}
    check(refusals == {*PROVOKED, *ELSEWHERE}, "reasons that nobody knows of here:", refusals ^ {*PROVOKED, *ELSEWHERE})
    for reason, test in ELSEWHERE.items():
        check(any("REFUSED_" + reason in path.read_text() for path in SOURCE.glob(f"*/{test}.c")), test, "does not provoke", reason)


def check_provoked(told):
    missing = [reason for reason in PROVOKED if not told.get("REFUSED_" + reason)]
    check(not missing, "nobody was told", missing)


def main():
    print(f"soak of {DURATION_S} s, seed {SEED}", flush=True)
    pp.read_reasons(SOURCE)
    check_reasons()
    rng, begin = random.Random(SEED), time.monotonic()
    expected, number, total = None, 0, {"receipts": 0, "kills": 0, "stops": 0, "leak_checks": 0, "compared": 0, "exact": 0, "sent": {}, "told": {}, "rss": 0, "fds": 0}
    while number < 2 or time.monotonic() - begin < DURATION_S:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="omm-soak-", dir=MEMORY if MEMORY.is_dir() else None))
        episode = Episode(folder, random.Random(rng.random()), f"{SEED}/{number}", number == 0, begin + DURATION_S)
        try:
            episode.run()
            got, receipts = check_episode(episode, expected)
        except BaseException as e:
            print(f"episode {number}, {folder} is kept: {type(e).__name__}: {e}", flush=True)
            sys.exit(1)
        expected = expected or got
        services = [episode.coordinator, *episode.nodes]
        kills, stops, checked = sum(p.kills for p in services), sum(p.stops for p in services), sum(p.leak_checks() for p in services)
        print(f"episode {number}: {time.monotonic() - begin:.0f} s, {kills} kills ({episode.coordinator.kills} of the "
              f"coordinator), {stops} stops ({episode.coordinator.stops}), {checked} processes looked for leaks, {receipts} receipts, {sum(episode.tally.sent.values())} attacks, refusals compared "
              f"{episode.compared} times, coordinator at most {max(episode.rss) >> 20} MiB and {max(episode.fds)} "
              f"descriptors", flush=True)
        if max(episode.rss) > RSS_MAX or max(episode.fds) > FDS_MAX:
            print(f"episode {number}, {folder} is kept: over {RSS_MAX >> 20} MiB or {FDS_MAX} descriptors", flush=True)
            sys.exit(1)
        total["receipts"] += receipts
        total["kills"] += kills
        total["stops"] += stops
        total["leak_checks"] += checked
        total["compared"] += episode.compared
        total["exact"] += episode.exact
        total["rss"], total["fds"] = max(total["rss"], *episode.rss), max(total["fds"], *episode.fds)
        for name, counts in (("sent", episode.tally.sent), ("told", episode.so_far(of_all=True).told)):
            for key, count in counts.items():
                total[name][key] = total[name].get(key, 0) + count
        shutil.rmtree(folder)
        number += 1
    check_provoked(total["told"])
    print(f"seed {SEED}, {time.monotonic() - begin:.0f} s, {number} episodes: {json.dumps(total, sort_keys=True)}")


main()

#!/usr/bin/env python3
"""Probation as processes over plain TCP: a stranger works to be let in and trains two canaries before it counts; a cheat, played by
the second implementation of the protocol, answers with noise, is not let in and never will be.  The coordinator is killed with a
canary in its queue, with a verdict that is not kept, and with each that lets the stranger in.  The bundle verifies, and says which canaries were passed.

usage: probation_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import hashlib, json, os, pathlib, random, shutil, signal, subprocess, sys, time

sys.dont_write_bytecode = True
import protocol_peer as pp
import live
from live import free_port, wait_for
from hostile_peers import Member

SOURCE = pathlib.Path(sys.argv[1]).resolve()
MESHMIND = live.program(sys.argv[2:])
CLIENTS = {"listed": "cafe-02", "worker": "studio-02"}
findings = live.Findings()
check = findings.check


def start(kind, name, **env):
    return live.start_service(MESHMIND, FOLDER, kind, name, **env)


def ctl(*words):
    done = subprocess.run([MESHMIND, "coordinator", "ctl", "-c", FOLDER / "coordinator.yaml", *words], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def log_of(name):
    return live.log_of(FOLDER, name)


def write_coordinator(port, listed, canary):
    live.write_coordinator(FOLDER, port, "own.yaml", enrolled={"listed": listed}, poll_ms=50, linger_ms=30000, enrolment="open",
                           work_bits=8, node_max=5, canary=canary)


def refused_files(port, listed):
    """A shard that a node could not read, or that one answer would serve, is found when the service starts."""
    lines = (SOURCE / "scenarios" / "base" / "train.jsonl").read_text().splitlines(keepends=True)
    (FOLDER / "public.jsonl").write_text("".join(lines[:24]))
    (FOLDER / "public.json").write_text("[\n" + ",\n".join(lines[:24]) + "]\n")  # goes out as lines
    (FOLDER / "cut.json").write_text("[\n" + ",\n".join(lines[:24]))
    (FOLDER / "short.jsonl").write_text("".join(lines[:15]))
    (FOLDER / "broken.jsonl").write_text("".join(lines[:20]) + "{}\n")
    (FOLDER / "empty.jsonl").write_text("")
    for canary, says in (("{share: 0.1}", "needs canary.shards"), ("{shards: [short.jsonl]}", "15 examples; accepted: 16"),
                         ("{shards: [public.jsonl, broken.jsonl]}", "broken.jsonl:21"), ("{shards: [cut.json]}", "cut.json:49:1: after element 24 of the JSON array: the file ends"),
                         ("{shards: [empty.jsonl]}", "1 to 4194304 bytes"),
                         ("{shards: [public.jsonl], share: 1.5}", "share")):
        write_coordinator(port, listed, canary)
        done = subprocess.run([MESHMIND, "coordinator", "-c", FOLDER / "coordinator.yaml"], capture_output=True, text=True, timeout=live.LIMIT_S)
        check(done.returncode == 2 and says in done.stderr, f"{canary}: exit {done.returncode}, {done.stderr[-300:]}")
    shutil.rmtree(FOLDER / "coordinator", ignore_errors=True)


def tells_what_is_untested(port, listed):
    """Whoever opens the door and tests nobody, or nobody again, reads so in the log and as long as it runs."""
    for canary, says in ((None, "enrolment is open without canary"), ("{shards: [public.jsonl], passes: 0, share: 0.4}", "enrolment is open with canary.passes 0"),
                         ("{shards: [public.jsonl]}", "canary.share is 0"), ("{shards: [public.jsonl], share: 0.4}", None)):
        write_coordinator(port, listed, canary)
        process = start("coordinator", "coordinator")
        text = wait_for("a status", lambda: ctl("status"), logs=FOLDER)
        live.stop(process)
        check(text.startswith("ok\n") and (f"note: {says}" in text if says else "note: " not in text), f"{canary}: {text}")
        check(("nobody_is_tested" in log_of("coordinator")) == bool(says), f"{canary}: {log_of('coordinator')}")
        (FOLDER / "coordinator.log").unlink()
        shutil.rmtree(FOLDER / "coordinator")


def write_files(port):
    public = live.keys(MESHMIND, FOLDER, CLIENTS)
    live.ship(FOLDER, few=24)
    scenario = (SOURCE / "scenarios" / "processes.yaml").read_text().replace("test: base/test.jsonl", "test: few.jsonl")
    (FOLDER / "own.yaml").write_text(scenario + "round: {quorum: 2}\npolicy: policies/service.yaml\n")
    refused_files(port, public["listed"]["public_key"])
    tells_what_is_untested(port, public["listed"]["public_key"])
    write_coordinator(port, public["listed"]["public_key"], "{shards: [public.json], passes: 2, share: 0.4, threads: 2}")
    for name, client in CLIENTS.items():
        live.write_node(FOLDER, name, port, **live.trains(name, client, public), answer_ms=3000)
    return public


class Cheat(Member):
    """Does the work to be let in, takes a canary, and sends noise of the right form for it."""

    def __init__(self, port, coordinator):
        super().__init__(port, pp.key_from_seed(pp.blake(b"a cheat")))
        self.coordinator = bytes.fromhex(coordinator)

    def enrol(self, **proof):
        return self.ask(enrol=pp.seal("enrol", pp.encode("Enrol", {"version": 1, "coordinator_key": self.coordinator, **proof}), self.key))

    def work(self):
        challenge = pp.blake(pp.open_envelope("challenge", self.until("challenge", self.enrol))[1])
        head, work = pp.context("work") + challenge + self.key[2], 0
        while pp.blake(head + work.to_bytes(8, "little"))[0]:  # 8 bits
            work += 1
        self.until_killed("canary_candidate", lambda: self.enrol(challenge=challenge, work=work))

    def noise(self):
        """An answer that has all it must, but for the training."""
        envelope = self.until("offer", self.poll)
        o = pp.decode("Offer", pp.open_envelope("offer", envelope)[1])
        check("canary" in o and o["selected"] == [pp.blake(self.key[2])], "the stranger's offer is no canary for it alone")
        text = b"".join(self.until("chunk", lambda: self.ask(get={"digest": o["canary"]["digest"], "index": i}))["data"]
                        for i in range(len(o["canary"]["chunk_digests"])))
        check(text == (FOLDER / "public.jsonl").read_bytes(), "the shard is not the file's lines")
        run = json.loads((FOLDER / "coordinator" / "bundle" / "run.json").read_text())
        rng = random.Random(5)
        values = [pp.f32(rng.uniform(-0.01, 0.01)) for _ in range(o["adapter"]["value_count"])]
        payload = pp.payload_encode(pp.codec_of(o["codec_up"]), run["adapter"]["layout"], values)
        submit, sent = self.submission(envelope, payload, data_commitment=o["canary"]["digest"])
        self.give_to_the_killed(submit, sent)

    def give_to_the_killed(self, submit, sent):
        """The coordinator is killed with the one chunk kept, which it does not ask for again."""
        check(self.until("need", lambda: self.ask(submit=submit))["missing"] == [0] and len(sent) <= pp.CHUNK, "the payload is not one chunk")
        chunk = {"digest": pp.blake(sent), "index": 0, "data": sent}
        try:
            self.wire.ask(pp.encode("Request", {"version": 1, "put": chunk}))
            check(False, "the coordinator was not killed with the chunk")
        except OSError:
            self.wire = None
        self.until_killed("canary_waiting", lambda: check("wait" in self.ask(submit=submit), "the chunk was lost with the coordinator"))

    def until_killed(self, stage, ask):
        """Whoever is told to wait may have asked in a tick, and was not heard."""
        live.wait_for(f"{stage}, asked for", lambda: (ask(), (FOLDER / "coordinator" / f"crashed-{stage}").exists())[1])


def niceness(process):
    """Of each thread."""
    tasks = pathlib.Path(f"/proc/{process.pid}/task").glob("*/stat")
    return [int(stat.read_text().rsplit(")", 1)[1].split()[16]) for stat in tasks]


def passes_of_guests():
    return log_of("coordinator").count(" canary_passed node=guest-")


def killed_with_each_pass(passes):
    """From here on whoever is tried is the worker.  After its last pass is kept it is no node yet."""
    for n in range(1, passes + 1):
        (FOLDER / "coordinator" / "crashed-canary_kept").unlink(missing_ok=True)
        process = start("coordinator", "coordinator", OMM_CRASH_AT="canary_kept")
        wait_for(f"the kill after pass {n} is kept", lambda: process.poll() is not None, logs=FOLDER)
        check(process.returncode == -signal.SIGKILL, f"the coordinator ended with {process.returncode} at pass {n}: {log_of('coordinator')[-1000:]}")
    check(passes_of_guests() == passes, f"{passes_of_guests()} passes of {passes} at as many kills")
    check('"joined"' not in (FOLDER / "coordinator" / "audit.jsonl").read_text(), "the worker was let in before the kill")


def killed_while(process, does, *stages):
    """The coordinator, at each of these stages, the first of which it was started for; what asks goes on by itself.  One that is
    started for none of them, when that has its answers."""
    pid = os.fork()
    if pid == 0:
        does()
        os._exit(findings.code)
    for stage, following in zip(stages, [*stages[1:], None]):
        wait_for(f"the kill at {stage}", lambda: process.poll() is not None, logs=FOLDER)
        check(process.returncode == -signal.SIGKILL, f"the coordinator ended with {process.returncode} at {stage}")
        process = start("coordinator", "coordinator", **({"OMM_CRASH_AT": following} if following else {}))
    check(os.waitpid(pid, 0)[1] == 0, "the cheat was told something else")
    wait_for("the coordinator again", lambda: ctl("status"), logs=FOLDER)
    return process


def run():
    pp.read_reasons(SOURCE)
    port = free_port()
    public = write_files(port)
    first = start("coordinator", "coordinator", OMM_CRASH_AT="canary_candidate")
    wait_for("the coordinator", lambda: ctl("status"))
    cheat = Cheat(port, public["coordinator"]["public_key"])
    second = killed_while(first, cheat.work, "canary_candidate")
    check("0 of 2 canaries" in ctl("nodes") and "candidate" in ctl("nodes"), f"no candidate: {ctl('nodes')}")
    live.stop(second)
    third = killed_while(start("coordinator", "coordinator", OMM_CRASH_AT="canary_offered"), cheat.noise,
                         "canary_offered", "canary_upload", "canary_waiting", "canary_verdict")
    listed = start("node", "listed")
    refused = wait_for("no door for the cheat", lambda: cheat.poll().get("refused"))
    check("failed its canary: canary: step 1 is not what the recipe gives" in refused["sentence"], refused)
    check("failed its canary" in cheat.until("refused", cheat.enrol)["sentence"], "its key may work again")
    check("failed since the start" in ctl("status"), ctl("status"))
    canaries = json.loads(ctl("status", "--json"))["canaries"]
    check(canaries["replays"] >= 1 and canaries["replay_seconds"] > 0, f"no replay is counted: {canaries}")
    check(19 in niceness(third), f"no thread of the replays goes last: {niceness(third)}")
    check("canary_replayed" in log_of("coordinator"), "no log of a replay")
    live.stop(third)
    worker = start("node", "worker")
    killed_with_each_pass(2)
    last = start("coordinator", "coordinator")
    wait_for("the end", lambda: all(p.poll() is not None for p in (last, listed, worker)))
    for p, name in ((listed, "listed"), (worker, "worker")):
        check(p.returncode == 0, f"{name} ended with {p.returncode}: {log_of(name)[-2000:]}")
    bundle = FOLDER / "coordinator" / "bundle"
    live.check_verified(MESHMIND, bundle, "--trust", public["bundle"]["minisign"])
    ids = [n["id"] for n in json.loads((bundle / "run.json").read_text())["nodes"]]
    check(len(ids) == 2 and hashlib.blake2b(cheat.key[2], digest_size=32).hexdigest() not in ids, f"run.json: {ids}")
    entries = [json.loads(line) for line in (bundle / "measured" / "canaries.jsonl").read_text().splitlines()]
    verdicts = [(e["candidate"], e["verdict"]) for e in entries]
    check(verdicts.count((True, "accepted")) == 2 and verdicts.count((True, "REFUSED_DIGEST")) in (1, 2), verdicts)  # a kill says it twice
    audit = [json.loads(line) for line in (FOLDER / "coordinator" / "audit.jsonl").read_text().splitlines()]
    check(any(e["event"] == "joined" and e["by"] == "work of 8 bits, 2 canaries" for e in audit), "nobody joined by canaries")
    evidence = sorted(p.name for p in (FOLDER / "coordinator" / "canaries" / "failed").glob("*/*"))
    check(evidence == ["offer.env", "payload.bin", "shard.jsonl", "submission.env", "verdict.json"], evidence)
    status = json.loads(subprocess.run([MESHMIND, "node", "status", "-c", FOLDER / "worker.yaml", "--json"], capture_output=True, text=True,
                                       check=True).stdout)
    given = status["history"]["canaries"] if "history" in status else status["canaries"]
    check(len(given) >= 2 and all(c["verdict"] in ("OK", "REFUSED_LATE") for c in given), f"the worker's canaries: {given}")
    check([c["verdict"] for c in given].count("OK") >= 2, f"the worker's canaries: {given}")
    said = subprocess.run([MESHMIND, "node", "status", "-c", FOLDER / "worker.yaml"], capture_output=True, text=True, check=True).stdout
    for c in given:
        line = f" {c['payload_bytes']} bytes, digest {c['payload'][:16]}..., {'passed' if c['verdict'] == 'OK' else c['verdict']}\n"
        check(line in said.split("canaries     on public data, nothing of yours in them\n")[-1], f"{line} is not in {said}")
    check('"trouble"' not in log_of("coordinator") and "canary_trouble" not in log_of("coordinator"), "trouble with canaries")
    print(f"{len(entries)} verdicts on canaries, {len(given)} by the stranger that was let in")


with live.workplace("probation") as FOLDER:
    run()
sys.exit(findings.code)

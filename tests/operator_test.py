#!/usr/bin/env python3
"""What is said when something is wrong, to who runs a coordinator and to who owns a node: what it is, with which node, and
what to do.  One coordinator (tls+tcp, HTTP on) and its nodes; one thing is broken at a time, and mended again.

few       too few nodes for a round; another user's question
          a node that is not enrolled, one with another certificate
still     a round that cannot be written: sick until it can be, however well everything else goes
nodes     meanwhile, a node with a new state, one that stands still
changed   a coordinator that is started again with something else than its run began with
evidence  a file of an earlier round has changed
ground    files of the run are moved away while it goes on
lost      a state folder that has lost or broken a file; too few open files

usage: operator_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import http.client, json, os, pathlib, re, resource, shutil, signal, subprocess, sys, time

import live
from live import check, log_of, wait_for

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), live.program(sys.argv[2:])
NODES = {"anna": "cafe-02", "bert": "studio-02"}
STOPPED_S = 12
SCENARIO = """schema_version: 1
name: operator
seed: 7
model: base/openmeshmind-tiny-F16.gguf
train: base/train.jsonl
test: few.jsonl
policy: policies/service.yaml
rounds: 5000
population:
  - group: two
    clients: [cafe-02, studio-02]
recipe: {rank: 2, alpha: 4, targets: "q,v", steps: 1, batch_tokens: 128, learning_rate: 0.005, warmup_steps: 1}
round: {quorum: 2, accept_min: 2, join_ms: 1000, deadline_ms: 600000}
codec:
  up: {kind: int8, topk_fraction: 0.5}
  down: {kind: f16}
evaluation: {round_items: 4, generate: false}
audit: {submissions: 1, scalar_steps: 0}
"""


class Service:
    def __init__(self, folder):
        self.folder, self.port, self.http, self.running = folder, live.free_port(), live.free_port(), {}
        self.public = live.keys(MESHMIND, folder, [*NODES, "dora", "carl"])
        live.ship(folder, few=8)
        (folder / "run.yaml").write_text(SCENARIO)
        for name in ("tls", "other"):
            live.run(MESHMIND, "keygen", "--tls", "--out", folder / f"{name}.key")
        live.write_coordinator(folder, self.port, "run.yaml", enrolled={n: self.public[n]["public_key"] for n in NODES},
                               listen=f"tls+tcp://127.0.0.1:{self.port}", http=f"127.0.0.1:{self.http}", state_dir="state",
                               tls_certificate="tls.key.crt", tls_key="tls.key")
        for name in (*NODES, "dora", "carl"):
            self.write_node(name)

    def write_node(self, name, **more):
        fields = live.trains(name, NODES.get(name, "harbor-02"), self.public) | {"tls_certificate": "tls.key.crt"} | more
        live.write_node(self.folder, name, self.port, coordinator=f"tls+tcp://127.0.0.1:{self.port}", **fields)

    def start(self, *names):
        for name in names:
            kind = "coordinator" if name == "coordinator" else "node"
            self.running[name] = live.start_service(MESHMIND, self.folder, kind, name)
        if "coordinator" in names:
            known = len(self.log("coordinator"))
            self.wait("a coordinator that listens", lambda: "INFO listening" in self.log("coordinator")[known:])

    def stop(self, *names, how=signal.SIGTERM):
        for name in names:
            live.stop(self.running.pop(name), how)

    def log(self, name):
        return log_of(self.folder, name)

    def wait(self, what, test):
        return wait_for(what, test, logs=self.folder)

    def ask(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=30)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    def ctl(self, *words):
        return live.run(MESHMIND, "coordinator", "ctl", "-c", self.folder / "coordinator.yaml", *words)

    def node_says(self, name):
        said = json.loads(live.run(MESHMIND, "node", "status", "-c", self.folder / f"{name}.yaml", "--json"))
        return said.get("detail", "")

    def refuses(self, code, *words, **more):
        """The coordinator does not start: why."""
        done = subprocess.run([MESHMIND, "coordinator", "-c", self.folder / "coordinator.yaml"], capture_output=True, text=True,
                              timeout=live.LIMIT_S, env=live.environment(), **more)
        missing = [w for w in words if w not in done.stderr]
        check(done.returncode == code and not missing, f"exit {done.returncode}, wanted {code}; {missing} not in:\n{done.stderr[-1500:]}")


def few(s):
    """With one node a round waits; meanwhile two come that cannot take part."""
    s.write_node("carl", tls_certificate="other.key.crt")
    s.start("coordinator", "anna", "dora", "carl")
    s.wait("anna", lambda: "waits for nodes: 1 ready, at least 2 are needed (accept_min), with 2 it begins at once" in s.ctl("status"))
    said = json.loads(s.ctl("status", "--json"))
    check(said["needed"] == 2 and said["nodes"]["ready"] == 1 and said["seconds_left"] is None, said)
    check("have not come for this round yet: bert;" in s.ctl("status"), s.ctl("status"))
    s.wait("dora's owner knows why", lambda: s.node_says("dora") == "the coordinator refuses it: public_key: not enrolled in this run")
    key = s.public["dora"]["public_key"][:16]
    said = f'request_refused peer=127.0.0.1 node="key {key}..." reason=REFUSED_KEY'
    check(said in s.log("coordinator"), f"{said} is not in:\n{s.log('coordinator')[-1500:]}")
    s.wait("a word on too few nodes", lambda: re.search(r"WARN too_few_nodes round=0 ready=[01] accept_min=2 ", s.log("coordinator")))
    s.wait("carl's owner knows why", lambda: re.match(r"no answer for \d+ s: no TLS: the certificate there is not that of", s.node_says("carl")))
    s.wait("carl's log, too", lambda: "the certificate there is not that of tls_certificate" in s.log("carl"))
    s.stop("dora", "carl")
    aside = (s.folder / "state").rename(s.folder / "aside")
    s.wait("sick without its folder", lambda: s.ask("/healthz")[0] == 503)
    aside.rename(s.folder / "state")
    s.wait("well again, though no round goes on", lambda: s.ask("/healthz")[0] == 200)


def others(s):
    """Another user asks."""
    if os.geteuid() != 0:
        print("another user cannot be played: this test is not root's")
        return
    s.folder.chmod(0o755)
    done = subprocess.run([MESHMIND, "coordinator", "ctl", "-c", s.folder / "coordinator.yaml", "status"], capture_output=True, text=True,
                          user=65534, group=65534, extra_groups=[], timeout=live.LIMIT_S)
    check(done.returncode == 3 and "only the coordinator's own user and root may ask it" in done.stderr, done.returncode, done.stderr)


def nodes(s):
    """One node comes with its key and a new state, another stands still; nothing of it needs a round.  Then, when rounds are
    possible again: which node it is, that both go on by themselves, and that nobody's standstill is said to be the coordinator's."""
    s.stop("bert")
    shutil.rmtree(s.folder / "bert")
    known, began = len(s.log("bert")), time.monotonic()
    s.running["anna"].send_signal(signal.SIGSTOP)
    s.start("bert")
    yield
    time.sleep(max(0, began + STOPPED_S - time.monotonic()))
    s.running["anna"].send_signal(signal.SIGCONT)
    s.wait("a word on bert", lambda: "request_refused peer=127.0.0.1 node=bert reason=REFUSED_DUPLICATE" in s.log("coordinator"))
    s.wait("a word on the standstill", lambda: re.search(r"WARN stood_still node=anna seconds=\d+ ", s.log("anna")))
    after = s.log("anna").index("stood_still")
    s.wait("bert's receipts", lambda: len(re.findall(r"receipt node=bert", s.log("bert")[s.log("bert").index("which was seen: the node's state is new", known):])) > 1)
    s.wait("anna goes on", lambda: "receipt node=anna" in s.log("anna")[after:])
    silent = [int(t) for t in re.findall(r"no_answer node=anna .* seconds=(\d+)", s.log("anna")[after:])]
    check(all(t < STOPPED_S - 1 for t in silent), f"its own standstill is said to be the coordinator's: {silent}")


def still(s):
    """Where the adapters of the bundle belong is a file: rounds cannot be written, and all else can."""
    s.start("bert")
    s.wait("a round", lambda: "round_published round=1 " in s.log("coordinator"))
    adapters, aside = s.folder / "state/bundle/adapters", s.folder / "aside"
    adapters.rename(aside)
    adapters.write_text("")
    count = lambda: s.log("coordinator").count("ERROR round_stands_still")
    s.wait("a word on the round", count)
    s.wait("sick", lambda: s.ask("/healthz")[0] == 503)  # an answer is good for a moment
    meanwhile = nodes(s)
    next(meanwhile)
    begin, looks = count(), 0
    while count() < begin + 2:  # requests go well all the time
        status, body = s.ask("/healthz")
        if "\nloop: stands still for " in body:  # the whole machine did, and who serves the page was first to go on
            continue
        check(status == 503 and "\nround: stands still, and is tried again: " in body and str(adapters) in body, status, body)
        looks += 1
        time.sleep(0.1)
    check("\nmeshmind_healthy 0\n" in s.ask("/metrics")[1], "meshmind_healthy is not 0")
    check(looks > 2, f"two more attempts at the round within {looks} looks: it is to rest 5 s after each")
    adapters.unlink()
    aside.rename(adapters)
    known = len(s.log("coordinator"))
    s.wait("rounds again", lambda: "round_published" in s.log("coordinator")[known:])
    check(next(meanwhile, None) is None, "the look at the nodes does not end")
    s.wait("no word on the round any more", lambda: "round: " not in s.ask("/healthz")[1].partition("state:")[0])
    return looks


def ground(s):
    """The state folder is moved away, or its database, while the coordinator runs: nothing is made anew in its place."""
    for what in ("state", "state/coordinator.sqlite"):
        path, aside, known = s.folder / what, s.folder / "aside", len(s.log("coordinator"))
        path.rename(aside)
        s.wait(f"a word on {what}", lambda: "ERROR round_stands_still" in s.log("coordinator")[known:])
        s.wait(f"sick because of {what}", lambda: re.search(f"(?m)^round: .* tried again: {path}.*put it back", s.ask("/healthz")[1]))
        rounds = lambda: s.log("coordinator").count("INFO round_published")
        before = rounds()
        time.sleep(1)
        check(rounds() == before and not path.exists(), f"a round without {what}, or it was made again")
        aside.rename(path)
        s.wait("rounds again", lambda: rounds() > before)
        check("round_goes_on" in s.log("coordinator")[known:], "no word that it goes on")


def changed(s):
    check(s.log("coordinator").count("WARN too_few_nodes round=0 ") == 1, "that there are too few is said more than once")
    s.stop("coordinator")
    files = {n: (s.folder / n).read_text() for n in ("run.yaml", "coordinator.yaml", "policies/service.yaml", "few.jsonl")}
    seed = s.folder / "state/run_seed"
    for name, old, new, says in (
            ("run.yaml", "quorum: 2", "quorum: 1", 'the scenario is another one: where it had "quorum: 2" it has "quorum: 1"'),
            ("policies/service.yaml", "isa_mismatches: {level: informational}", "isa_mismatches: {level: required}", "the policy is another one"),
            ("few.jsonl", files["few.jsonl"].splitlines(keepends=True)[-1], "", "the held-out data are others (test)"),
            ("coordinator.yaml", "name: bert", "name: berta", "who is enrolled (nodes, node_max)"),
            ("coordinator.yaml", "key: coordinator.key", "key: dora.key", "the coordinator's key is another one (key)")):
        check(old in files[name], f"{old!r} is not in {name}")
        (s.folder / name).write_text(files[name].replace(old, new))
        s.refuses(2, f"{s.folder}/state holds a run that began with something else: ", says, "put that back, or begin a new run")
        (s.folder / name).write_text(files[name])
    # What can never work does not wait for it: a new state folder, as nothing has begun yet.
    fresh = files["coordinator.yaml"].replace("state_dir: state", "state_dir: fresh")
    (s.folder / "coordinator.yaml").write_text(fresh.replace("name: bert", "name: anna"))
    s.refuses(2, "nodes: two are called anna; accepted: a name for each")
    for name in ('"b\\u001b[31m"', '"b\\nc"', '"b\\u202ec"', "../../x", ".b", '"b c"'):
        (s.folder / "coordinator.yaml").write_text(fresh.replace("name: bert", f"name: {name}"))
        s.refuses(2, "nodes: name: '", "' is no plain name; accepted: letters, digits, '-', '_', '.'")
    (s.folder / "coordinator.yaml").write_text(fresh)
    (s.folder / "run.yaml").write_text(files["run.yaml"].replace("accept_min: 2", "accept_min: 3"))
    s.refuses(2, "round.accept_min: 3, and no more than 2 nodes can ever be in: no round would begin; accepted: 1 to 2")
    for name in ("coordinator.yaml", "run.yaml"):
        (s.folder / name).write_text(files[name])
    kept = seed.read_bytes()
    seed.write_bytes(bytes(32))
    s.refuses(2, "run_seed in the state folder is another one")
    seed.write_bytes(kept)
    known = len(s.log("coordinator"))
    s.start("coordinator")
    s.wait("the run goes on", lambda: "round_published" in s.log("coordinator")[known:])
    s.wait("a round that both nodes asked for", lambda: "round_open" in s.log("coordinator")[known:])
    check("before this start" not in s.log("coordinator")[known:], "after an orderly end a node's next poll was refused")


def lost(s):
    s.stop("coordinator", "anna", "bert")
    state, good = s.folder / "state", s.folder / "good"
    shutil.copytree(state, good)

    def broken(path, how, code, *words):
        data = bytearray((state / path).read_bytes())
        (state / path).unlink()
        if how == "empty":
            (state / path).touch()
        if how == "flipped":
            data[len(data) // 2] ^= 1
            (state / path).write_bytes(data)
        if how == "cut":
            (state / path).write_bytes(data[:len(data) // 2])
        for _ in range(2):  # a start that fails mends nothing by mistake
            s.refuses(code, f"{state}/{path}", *words)
        shutil.rmtree(state)
        shutil.copytree(good, state)

    for how in ("empty", "gone"):
        broken("coordinator.sqlite", how, 3, "is gone or empty, and the bundle", "put it back from a copy")
        broken("enrolment.sqlite", how, 3, "is gone or empty", "who is revoked", "put it back from a copy")
    for name in ("coordinator.sqlite", "enrolment.sqlite"):
        broken(name, "cut", 3, "the database is damaged", "put it back from a copy")
    broken(max((state / "bundle/adapters").glob("master-r*.f32")).relative_to(state), "flipped", 3, "is not as round", "put the file back")
    few_files = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    s.refuses(2, "64 open files are allowed to this process, and it needs", "LimitNOFILE", preexec_fn=few_files)

    s.start("coordinator", "anna", "bert")
    known = len(s.log("coordinator"))
    s.wait("the run goes on", lambda: "round_published" in s.log("coordinator")[known:])


def evidence(s):
    """A file of a round that is long over: said, while rounds go on, until it is back."""
    s.stop("coordinator")
    path = s.folder / "state/bundle/adapters/master-r001.f32"
    data, known = path.read_bytes(), len(s.log("coordinator"))
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    s.start("coordinator")
    warning = "\nwarning: bundle: adapters/master-r001.f32 is not as its round wrote it: put it back from a copy"
    s.wait("a warning", lambda: warning in s.ask("/healthz")[1])
    status, body = s.ask("/healthz")
    check(status == 200 and body.startswith("ok\n") and warning in s.ctl("status"), status, body)
    check("\nmeshmind_evidence_damaged 1\n" in s.ask("/metrics")[1] and "\nmeshmind_healthy 1\n" in s.ask("/metrics")[1], "metrics")
    s.wait("the run goes on", lambda: "round_published" in s.log("coordinator")[known:])
    path.write_bytes(data)
    yield  # it is looked at again after 10 s
    s.wait("no warning any more", lambda: "warning" not in s.ask("/healthz")[1])
    check("\nmeshmind_evidence_damaged 0\n" in s.ask("/metrics")[1], "metrics")
    entries = [json.loads(line) for line in (s.folder / "state/audit.jsonl").read_text().splitlines()]
    told = [(e["event"], e["round"]) for e in entries if e.get("file") == "adapters/master-r001.f32"]
    check(told[-2:] == [("evidence_damaged", 0), ("evidence_mended", 0)], f"the audit log says {told}")


def main(folder):
    s = Service(folder)
    few(s)
    others(s)
    looks = still(s)
    changed(s)
    looked = evidence(s)
    next(looked)
    ground(s)
    check(next(looked, None) is None, "the look at the evidence does not end")
    lost(s)
    print(f"{looks} looks at a round that stood still, all sick")


with live.workplace("operator") as folder:
    main(folder)

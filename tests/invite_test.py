#!/usr/bin/env python3
"""Nodes that come by invitation or by work, as processes over plain TCP: the operator makes tokens, the coordinator is killed
right after it let one in, a double tries a used token, one is withdrawn, one node is revoked.  No token is in what
goes over the wire, in logs, in the audit log or in the coordinator's state.  The bundle verifies, with everybody in.

usage: invite_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import hashlib, json, os, pathlib, re, shutil, signal, socket, subprocess, sys, tempfile, threading

import live
from live import free_port, wait_for

SOURCE = pathlib.Path(sys.argv[1]).resolve()
MESHMIND = live.program(sys.argv[2:])
SCENARIO = SOURCE / "scenarios" / "processes.yaml"
CLIENTS = {"listed": "cafe-02", "ada": "studio-02", "bob": "harbor-02", "double": "harbor-02", "noisy": "harbor-02", "worker": "cafe-02"}
os.environ["OMM_GUEST_ROOT"] = live.NOWHERE
findings = live.Findings()
check = findings.check


class Tap(threading.Thread):
    """Passes on what goes between nodes and the coordinator, and keeps it: anybody on the way can."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.to, self.seen, self.ended = port, bytearray(), 0
        self.door = socket.create_server(("127.0.0.1", 0))
        self.port = self.door.getsockname()[1]
        self.start()

    def run(self):
        while True:
            a = self.door.accept()[0]
            try:
                b = socket.create_connection(("127.0.0.1", self.to))
            except OSError:  # the coordinator is away
                a.close()
                continue
            for one, other in ((a, b), (b, a)):
                threading.Thread(target=self.pump, args=(one, other), daemon=True).start()

    def pump(self, one, other):
        try:
            while data := one.recv(65536):
                self.seen += data
                other.sendall(data)
        except OSError:
            pass
        self.ended += 1
        for s in (one, other):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def start(kind, name, **env):
    return live.start_service(MESHMIND, FOLDER, kind, name, **env)


def ctl(code, says, *words):
    done = subprocess.run([MESHMIND, "coordinator", "ctl", "-c", FOLDER / "coordinator.yaml", *words], capture_output=True, text=True,
                          timeout=live.LIMIT_S)
    check(done.returncode == code and re.search(says, done.stdout + done.stderr),
          f"ctl {words}: exit {done.returncode} (wanted {code}): {done.stdout}{done.stderr}")
    return done.stdout


def log_of(name):
    return live.log_of(FOLDER, name)


def write_coordinator(port, listed, extra):
    (FOLDER / "coordinator.yaml").write_text(
        f"scenario: own.yaml\nlisten: tcp://127.0.0.1:{port}\nstate_dir: coordinator\nkey: coordinator.key\n"
        f"bundle_key: bundle.key\npoll_ms: 100\nlinger_ms: 60000\nthreads: 1\n{extra}"
        + (f"nodes:\n  - {{name: listed, public_key: {listed}}}\n" if listed else ""))


def write_files(port):
    public = {}
    for name in ("coordinator", "bundle", *CLIENTS):
        done = subprocess.run([MESHMIND, "keygen", "--json", "--out", FOLDER / f"{name}.key"], capture_output=True, text=True, check=True)
        public[name] = json.loads(done.stdout)
    (FOLDER / "base").symlink_to(SOURCE / "scenarios" / "base")
    shutil.copytree(SOURCE / "scenarios" / "policies", FOLDER / "policies")
    lines = (SOURCE / "scenarios" / "base" / "test.jsonl").read_text().splitlines(keepends=True)
    (FOLDER / "few.jsonl").write_text("".join(lines[::len(lines) // 24][:24]))
    (FOLDER / "own.yaml").write_text(SCENARIO.read_text().replace("rounds: 2", "rounds: 1").replace("test: base/test.jsonl", "test: few.jsonl") + "policy: policies/service.yaml\n")
    listed = public["listed"]["public_key"]
    for extra, nodes, says in (("", None, "nodes: required with key, or enrolment: invitation"),
                               ("node_max: 9\n", listed, "node_max: 9; accepted with enrolment: invitation"),
                               ("enrolment: open-door\n", listed, "accepted.*list.*invitation|list, invitation"),
                               ("enrolment: open\nwork_bits: 27\n", listed, "work_bits"),
                               ("enrolment: invitation\nnode_max: 4096\n", listed, "node_max")):
        write_coordinator(port, nodes, extra)
        done = subprocess.run([MESHMIND, "coordinator", "-c", FOLDER / "coordinator.yaml"], capture_output=True, text=True, timeout=live.LIMIT_S)
        check(done.returncode == 2 and re.search(says, done.stderr), f"{extra}: exit {done.returncode}, {done.stderr[-300:]}")
    write_coordinator(port, listed, "enrolment: open\nwork_bits: 14\nnode_max: 5\n")
    return public


def write_node(name, port, public, more="", mode=0o600):
    path = FOLDER / f"{name}.yaml"
    path.write_text(f"coordinator: tcp://127.0.0.1:{port}\nname: {name}\nstate_dir: {name}\nkey: {name}.key\n"
                    f"coordinator_key: {public['coordinator']['public_key']}\nmodel: base/openmeshmind-tiny-F16.gguf\n"
                    f"data: base/train.jsonl\nclient: {CLIENTS[name]}\nthreads: 1\nanswer_ms: 3000\n{more}")
    path.chmod(mode)


def refused_files(port, public, token):
    """A token lies where only its owner reads it, or nothing is begun."""
    for more, mode, code, says in ((f"token: {token}\n", 0o644, 3, "ada.yaml"), ("token: invite-abc\n", 0o600, 2, "accepted: invite-"),
                                   (f"token: {token}\ntoken_file: t\n", 0o600, 2, "one of them"),
                                   ("token_file: nowhere\n", 0o600, 2, "nowhere")):
        write_node("ada", port, public, more, mode)
        done = subprocess.run([MESHMIND, "node", "-c", FOLDER / "ada.yaml"], capture_output=True, text=True, timeout=live.LIMIT_S)
        check(done.returncode == code and says in done.stderr and token not in done.stderr, f"{more[:9]}: exit {done.returncode}, {done.stderr}")


def names():
    return re.findall(r"(?m)^[0-9a-f]{16}  (\w+).*refused  (\S+) ", ctl(0, "accepted", "nodes"))


def tokens(*words):
    text = ctl(0, "^invite-", "invite", *words)
    got = text.split()
    check(all(re.fullmatch("invite-[0-9a-f]{64}", t) for t in got), text)
    return got


def no_token_in(where, data, all_tokens):
    for token in all_tokens:
        digits = token[len("invite-"):]
        check(digits.encode() not in data and bytes.fromhex(digits) not in data, f"a token is in {where}")


def run():
    port = free_port()
    public = write_files(port)
    tap, wire = Tap(port), Tap(port)  # the second is the noisy one's own
    first = start("coordinator", "coordinator", OMM_CRASH_AT="after_join")
    wait_for("the coordinator", lambda: (FOLDER / "coordinator" / "ctl.sock").exists())
    ctl(0, "no new round", "pause")
    ctl(2, "--reason TEXT is missing", "revoke", "listed")
    ctl(2, "are accepted with invite", "status", "--count", "2")
    ctl(1, "count: 0; accepted: 1 to 500", "invite", "--count", "0")
    made = tokens("--count", "4", "--label", "may", "--expires", "48")
    check(len(set(made)) == 4, f"{len(made)} tokens")
    listed = ctl(0, "open", "invitations")
    check(listed.count("open") == 4 and listed.count("may") == 4, listed)
    refused_files(port, public, made[0])
    write_node("listed", port, public)
    write_node("ada", tap.port, public, f"token: {made[0]}\n")
    nodes = [start("node", "listed"), start("node", "ada")]
    wait_for("the kill after the first guest", lambda: first.poll() is not None)
    check(first.returncode == -signal.SIGKILL, f"the coordinator ended with {first.returncode}")
    second = start("coordinator", "coordinator")
    wait_for("the coordinator again", ready)
    check([state for state, name in names() if name.startswith("may-")] == ["enrolled"], f"after the kill: {names()}")
    # The double has ada's token and a key of his own; then one that is withdrawn; then he comes in and makes noise.
    (FOLDER / "bob.token").write_text(made[1] + "\n")
    (FOLDER / "bob.token").chmod(0o600)
    write_node("bob", tap.port, public, "token_file: bob.token\n")
    write_node("double", tap.port, public, f"token: {made[0]}\n")
    gone = re.search(r"(?m)^([0-9a-f]{16}).*open", ctl(0, "open", "invitations")).group(1)  # the newest: made[3]
    ctl(0, "lets nobody in", "uninvite", gone)
    ctl(1, "withdrawn already", "uninvite", gone)
    write_node("noisy", tap.port, public, f"token: {made[3]}\n")
    write_node("worker", tap.port, public)
    nodes += [start("node", "bob"), start("node", "double"), start("node", "noisy"), start("node", "worker")]
    wait_for("the double", lambda: "another node has used it" in log_of("double"))
    wait_for("the withdrawn one", lambda: "invitation: withdrawn" in log_of("noisy"))
    nodes[4].kill()
    write_node("noisy", wire.port, public, f"token: {made[2]}\n")
    nodes[4] = start("node", "noisy")
    wait_for("everybody", lambda: len(names()) == 5)
    who = {id_of(public[n]["public_key"]): n for n in CLIENTS}
    noisy = next(k for k, n in who.items() if n == "noisy")
    ctl(1, "reason", "revoke", noisy[:16], "--reason", "")
    check(wire.ended == 0, "the noisy one has lost its connection before")
    ctl(0, "is revoked; what was accepted of it stays", "revoke", noisy[:16], "--reason", "sends noise")
    ctl(1, "revoked already", "revoke", noisy[:16], "--reason", "again")
    ctl(1, "that is for good", "release", noisy[:16])
    check("by work of 14 bits" in ctl(0, "accepted", "nodes"), "nobody came by work")
    wait_for("the end of its connection", lambda: wire.ended > 0, 10)
    wait_for("the revoked one hears it", lambda: "revoked: sends noise" in log_of("noisy"))
    check(sorted(state for state, _ in names()) == ["enrolled"] * 4 + ["revoked"], names())
    ctl(0, "opened again", "resume")
    wait_for("the end", lambda: all(p.poll() is not None for p in (second, *nodes[:3], nodes[5])))
    for p, name in ((second, "coordinator"), (nodes[0], "listed"), (nodes[1], "ada"), (nodes[2], "bob"), (nodes[5], "worker")):
        check(p.returncode in ((0, 1) if name == "coordinator" else (0,)), f"{name} ended with {p.returncode}: {log_of(name)[-2000:]}")
    bundle = FOLDER / "coordinator" / "bundle"
    verify = subprocess.run([MESHMIND, "verify", bundle, "--trust", public["bundle"]["minisign"]], capture_output=True, text=True)
    check(verify.returncode == 0 or "the evidence is intact" in verify.stdout, verify.stdout + verify.stderr)  # one round learns little
    ids = [n["id"] for n in json.loads((bundle / "run.json").read_text())["nodes"]]
    check(len(ids) == 5 and ids == sorted(ids) and noisy in ids, f"run.json: {ids}")
    rounds = [json.loads(line) for line in (bundle / "rounds.jsonl").read_text().splitlines()]
    check(len(rounds) == 1 and len(rounds[0]["accepted"]) == 4, f"accepted: {rounds}")
    audit = (FOLDER / "coordinator" / "audit.jsonl").read_text()
    events = [json.loads(line) for line in audit.splitlines()]
    check(len([e for e in events if e["event"] == "joined"]) == 4, f"audit: {[e['event'] for e in events]}")
    check(any(e.get("action") == "revoke" and e.get("argument", "").endswith("\tsends noise") for e in events), "no revocation in the audit log")
    no_token_in("what went over the wire", bytes(tap.seen + wire.seen), made)
    check(b"omm.enrol.v1" in tap.seen, "the tap has seen nothing")
    for path in [p for p in FOLDER.rglob("*") if p.is_file() and p.suffix not in (".yaml", ".token")]:
        no_token_in(path, path.read_bytes(), made)
    print(f"four joined, one revoked, {len(tap.seen)} bytes tapped")


def ready():
    words = [MESHMIND, "coordinator", "ctl", "-c", FOLDER / "coordinator.yaml", "status"]
    return subprocess.run(words, capture_output=True).returncode == 0


def id_of(public_key):
    return hashlib.blake2b(bytes.fromhex(public_key), digest_size=32).hexdigest()


FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="omm-invite-"))
try:
    run()
finally:
    live.end_all()
    shutil.rmtree(FOLDER, ignore_errors=True)
sys.exit(findings.code)

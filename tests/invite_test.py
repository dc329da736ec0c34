#!/usr/bin/env python3
"""Nodes that come by invitation or by work, as processes over plain TCP: the operator makes tokens, the coordinator is killed
right after it let one in, a double tries a used token, one is withdrawn, one is over, one node is revoked.  No token is in what
goes over the wire, in logs, in the audit log or in the coordinator's state.  The bundle verifies, with everybody in.

usage: invite_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import contextlib, hashlib, json, pathlib, re, shutil, signal, sqlite3, subprocess, sys

import live
from live import free_port, wait_for

SOURCE = pathlib.Path(sys.argv[1]).resolve()
MESHMIND = live.program(sys.argv[2:])
SCENARIO = SOURCE / "scenarios" / "processes.yaml"
CLIENTS = {"listed": "cafe-02", "ada": "studio-02", "bob": "harbor-02", "double": "harbor-02", "noisy": "harbor-02", "worker": "cafe-02", "late": "cafe-02"}
findings = live.Findings()
check = findings.check


def start(kind, name, **env):
    return live.start_service(MESHMIND, FOLDER, kind, name, **env)


def ctl(code, says, *words):
    done = subprocess.run([MESHMIND, "coordinator", "ctl", "-c", FOLDER / "coordinator.yaml", *words], capture_output=True, text=True,
                          timeout=live.LIMIT_S)
    check(done.returncode == code and re.search(says, done.stdout + done.stderr),
          f"ctl {words}: exit {done.returncode} (wanted {code}): {done.stdout}{done.stderr}")
    check("?" not in done.stderr, f"ctl {words} asks back, or has what is no text: {done.stderr}")
    return done.stdout


def status_of(name):
    return subprocess.run([MESHMIND, "node", "status", "-c", FOLDER / f"{name}.yaml"], capture_output=True, text=True).stdout


def log_of(name):
    return live.log_of(FOLDER, name)


def write_coordinator(port, listed, **more):
    live.write_coordinator(FOLDER, port, "own.yaml", enrolled={"listed": listed} if listed else {}, **more)


def write_files(port):
    public = live.keys(MESHMIND, FOLDER, CLIENTS)
    live.ship(FOLDER, few=24)
    scenario = SCENARIO.read_text().replace("rounds: 2", "rounds: 1").replace("test: base/test.jsonl", "test: few.jsonl")
    (FOLDER / "own.yaml").write_text(scenario + live.PATIENT + "policy: policies/service.yaml\n")
    listed = public["listed"]["public_key"]
    for more, nodes, says in (({}, None, "nodes: required with key, or enrolment: invitation"),
                              ({"node_max": 9}, listed, "node_max: 9; accepted with enrolment: invitation"),
                              ({"enrolment": "open-door"}, listed, "accepted.*list.*invitation|list, invitation"),
                              ({"enrolment": "open", "work_bits": 27}, listed, "work_bits"),
                              ({"enrolment": "invitation", "node_max": 4097}, listed, "node_max")):
        write_coordinator(port, nodes, **more)
        done = subprocess.run([MESHMIND, "coordinator", "-c", FOLDER / "coordinator.yaml"], capture_output=True, text=True, timeout=live.LIMIT_S)
        check(done.returncode == 2 and re.search(says, done.stderr), f"{more}: exit {done.returncode}, {done.stderr[-300:]}")
    tells_that_nobody_is_in(port)
    write_coordinator(port, listed, enrolment="open", work_bits=14, node_max=5)
    return public


def tells_that_nobody_is_in(port):
    write_coordinator(port, None, enrolment="invitation")
    process = start("coordinator", "coordinator")
    wait_for("the coordinator of nobody", ready)
    ctl(0, r"\Ano nodes yet: none is listed, and none has joined\n\Z", "nodes")
    check(json.loads(ctl(0, "", "nodes", "--json"))["answer"] == "", "a script is told of nodes")
    live.stop(process)
    shutil.rmtree(FOLDER / "coordinator")


def write_node(name, port, public, mode=0o600, **more):
    live.write_node(FOLDER, name, port, **live.trains(name, CLIENTS[name], public), answer_ms=3000, **more)
    (FOLDER / f"{name}.yaml").chmod(mode)


def joins_without_a_warning(name):
    """All goes well, and its owner reads what happens; a refusal is one to them who are refused."""
    joining, is_in, _ = log_of(name).partition(f" INFO enrolled node={name}")
    check(is_in and not re.search(" (WARN|ERROR) |asks_to_join", joining), f"{name} joins: {log_of(name)}")
    for refused in ("double", "noisy"):
        check(f" WARN enrol_refused node={refused} " in log_of(refused), f"{refused} is not warned: {log_of(refused)[:2000]}")


def refused_files(port, public, token):
    """A token lies where only its owner reads it, or nothing is begun."""
    for more, mode, code, says in (({"token": token}, 0o644, 2, "ada.yaml"), ({"token": "invite-abc"}, 0o600, 2, "accepted: invite-"),
                                   ({"token": token, "token_file": "t"}, 0o600, 2, "one of them"),
                                   ({"token_file": "nowhere"}, 0o600, 2, "nowhere")):
        write_node("ada", port, public, mode, **more)
        done = subprocess.run([MESHMIND, "node", "-c", FOLDER / "ada.yaml"], capture_output=True, text=True, timeout=live.LIMIT_S)
        check(done.returncode == code and says in done.stderr and token not in done.stderr, f"{says}: exit {done.returncode}, {done.stderr}")


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


def moves(name, process):
    """Its owner's machine is another one from now on: with the backup, and the data, it is the same node."""
    live.stop(process)
    live.run(MESHMIND, "node", "backup", FOLDER / "moved.backup", "-c", FOLDER / f"{name}.yaml")
    moved = FOLDER / "moved"
    live.run(MESHMIND, "node", "restore", FOLDER / "moved.backup", "-c", moved / f"{name}.yaml")
    (FOLDER / "moved.backup").unlink()
    (FOLDER / name).rename(FOLDER / "left behind")
    (moved / "base").symlink_to(FOLDER / "base")
    process = live.start_service(MESHMIND, moved, "node", name)
    board = moved / name / "status.json"
    said = lambda: json.loads(board.read_text()) if board.exists() else {}
    wait_for("the moved one is answered", lambda: process.poll() is not None or said().get("wire", {}).get("bytes_in", 0) > 0 and not said()["detail"])
    check(process.poll() is None and not re.search("asks_to_join|enrol_refused", live.log_of(moved, name)), live.log_of(moved, name))
    return process


def run():
    port = free_port()
    public = write_files(port)
    tap, wire = live.Tap(port), live.Tap(port)  # the second is the noisy one's own
    first = start("coordinator", "coordinator", OMM_CRASH_AT="after_join")
    wait_for("the coordinator", ready)
    ctl(0, "no new round", "pause")
    live.run(MESHMIND, "coordinator", "-c", FOLDER / "coordinator.yaml", code=3, says="another process writes into")
    ctl(2, "--reason TEXT is missing", "revoke", "listed")
    ctl(2, "are accepted with invite", "status", "--count", "2")
    ctl(2, "are accepted with invite", "status", "--expires", "2")
    ctl(2, "count: 0; accepted: 1 to 500", "invite", "--count", "0")
    made = tokens("--count", "4", "--label", "may", "--expires", "48")
    check(len(set(made)) == 4, f"{len(made)} tokens")
    listed = ctl(0, "open", "invitations")
    check(listed.count("open") == 4 and listed.count("may") == 4, listed)
    made += tokens("--label", "june", "--expires", "1")
    refused_files(port, public, made[0])
    write_node("listed", port, public)
    write_node("ada", tap.port, public, token=made[0])
    nodes = [start("node", "listed"), start("node", "ada")]
    wait_for("the kill after the first guest", lambda: first.poll() is not None)
    check(first.returncode == -signal.SIGKILL, f"the coordinator ended with {first.returncode}")
    with contextlib.closing(sqlite3.connect(FOLDER / "coordinator" / "enrolment.sqlite")) as db, db:  # an hour has passed
        check(db.execute("UPDATE invitation SET expires = 86400000 WHERE label = 'june'").rowcount == 1, "no invitation to end")
    second = start("coordinator", "coordinator")
    wait_for("the coordinator again", ready)
    check([state for state, name in names() if name.startswith("may-")] == ["enrolled"], f"after the kill: {names()}")
    # The double has ada's token and a key of his own; then one that is withdrawn; then he comes in and makes noise.
    (FOLDER / "bob.token").write_text(made[1] + "\n")
    (FOLDER / "bob.token").chmod(0o600)
    write_node("bob", tap.port, public, token_file="bob.token")
    write_node("double", tap.port, public, token=made[0])
    gone = re.search(r"(?m)^([0-9a-f]{16}).*open", ctl(0, "open", "invitations")).group(1)  # the newest: made[3]
    ctl(0, "lets nobody in", "uninvite", gone)
    ctl(2, "withdrawn already", "uninvite", gone)
    check(re.search("until 1970-01-02T.* expired  june", ctl(0, "open", "invitations")), "the list does not say that one is over")
    write_node("late", tap.port, public, token=made[4])
    late = start("node", "late")
    wait_for("the late one", lambda: re.search("enrol_refused .*invitation: ended at 1970-01-02T.*advice=.*another invitation", log_of("late")))
    wait_for("its owner reads it", lambda: re.search("the coordinator refuses it: invitation: ended at 1970-01-02T.*; ask whoever runs the coordinator "
                                                     "for another invitation", status_of("late")))
    live.stop(late)
    write_node("noisy", tap.port, public, token=made[3])
    write_node("worker", tap.port, public)
    nodes += [start("node", "bob"), start("node", "double"), start("node", "noisy"), start("node", "worker")]
    wait_for("the double", lambda: "another node has used it" in log_of("double"))
    wait_for("the withdrawn one", lambda: "invitation: withdrawn" in log_of("noisy"))
    wait_for("bob", lambda: " INFO enrolled " in log_of("bob"))
    joins_without_a_warning("bob")
    nodes[2] = moves("bob", nodes[2])
    live.stop(nodes[4])
    write_node("noisy", wire.port, public, token=made[2])
    nodes[4] = start("node", "noisy")
    wait_for("everybody", lambda: len(names()) == 5)
    who = {id_of(public[n]["public_key"]): n for n in CLIENTS}
    noisy = next(k for k, n in who.items() if n == "noisy")
    ctl(2, "reason", "revoke", noisy[:16], "--reason", "")
    wait_for("a connection of the noisy one", lambda: wire.open)  # on a slow machine not its first
    lost = wire.ended
    ctl(0, "is revoked; what was accepted of it stays", "revoke", noisy[:16], "--reason", "sends noise")
    ctl(2, "revoked already", "revoke", noisy[:16], "--reason", "again")
    ctl(2, "that is for good", "release", noisy[:16])
    check("by work of 14 bits" in ctl(0, "accepted", "nodes"), "nobody came by work")
    wait_for("the end of its connection", lambda: wire.ended > lost)
    wait_for("the revoked one hears it", lambda: re.search("kept_out .*revoked: sends noise", log_of("noisy")))
    wait_for("its owner reads it", lambda: "revoked: sends noise; that is for good: stop this node" in status_of("noisy"))
    check(sorted(state for state, _ in names()) == ["enrolled"] * 4 + ["revoked"], names())
    ctl(0, "opened again", "resume")
    wait_for("the end", lambda: all(p.poll() is not None for p in (second, *nodes[:3], nodes[5])))
    for p, name in ((second, "coordinator"), (nodes[0], "listed"), (nodes[1], "ada"), (nodes[2], "bob"), (nodes[5], "worker")):
        check(p.returncode in ((0, 1) if name == "coordinator" else (0,)), f"{name} ended with {p.returncode}: {log_of(name)[-2000:]}")
    bundle = FOLDER / "coordinator" / "bundle"
    live.check_verified(MESHMIND, bundle, "--trust", public["bundle"]["minisign"])
    ids = [n["id"] for n in json.loads((bundle / "run.json").read_text())["nodes"]]
    check(len(ids) == 5 and ids == sorted(ids) and noisy in ids, f"run.json: {ids}")
    rounds = [json.loads(line) for line in (bundle / "rounds.jsonl").read_text().splitlines()]
    check(len(rounds) == 1 and len(rounds[0]["accepted"]) == 4, f"accepted: {rounds}")
    audit = (FOLDER / "coordinator" / "audit.jsonl").read_text()
    events = [json.loads(line) for line in audit.splitlines()]
    check(len([e for e in events if e["event"] == "joined"]) == 4, f"audit: {[e['event'] for e in events]}")
    check(any(e.get("action") == "revoke" and e.get("argument", "").endswith("\tsends noise") for e in events), "no revocation in the audit log")
    no_token_in("what went over the wire", bytes(tap.out + tap.back + wire.out + wire.back), made)
    check(b"omm.enrol.v1" in tap.out, "the tap has seen nothing")
    for path in [p for p in FOLDER.rglob("*") if p.is_file() and p.suffix not in (".yaml", ".token")]:
        no_token_in(path, path.read_bytes(), made)
    print(f"four joined, one revoked, {len(tap.out) + len(tap.back)} bytes tapped")


def ready():
    words = [MESHMIND, "coordinator", "ctl", "-c", FOLDER / "coordinator.yaml", "status"]
    return subprocess.run(words, capture_output=True).returncode == 0


def id_of(public_key):
    return hashlib.blake2b(bytes.fromhex(public_key), digest_size=32).hexdigest()


with live.workplace("invite") as FOLDER:
    run()
sys.exit(findings.code)

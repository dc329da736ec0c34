#!/usr/bin/env python3
"""The coordinator seen from outside: health, metrics, status.json and the page, while a run goes on.

One run of processes with HTTP on, asked all the time, with hostile clients that dribble requests, take
no answers and send rubbish; its run digest is that of a run that nobody looked at.  Then the page in a
browser as wide as a phone, where there is one (browser.py), drawing what a hostile coordinator would say: nothing is
wider than the phone, and nothing asks anybody else.

Third way, ctl: an operator pauses, quarantines, releases, drains and resumes, with kills between; the bundle
verifies and says so, and so does the audit log.

The coordinator and what asks it are the program under test; nodes and the simulation may be a faster one.

usage: outside_test.py SOURCE_DIR MESHMIND [run|page|ctl [FASTER_MESHMIND]]
"""
import base64, http.client, http.server, json, os, pathlib, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time

import browser as browsers
import live
from live import free_port

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
FASTER = live.program([MESHMIND, *sys.argv[4:]])
# As it is shipped, but its nodes may come late: they are started when everybody else has had a look.
SCENARIO = (re.sub("base/(?=train|test)", "", (SOURCE / "scenarios" / "processes.yaml").read_text())
            .replace("base/", f"{SOURCE}/scenarios/base/") + live.PATIENT)
NODES = ["cafe-02", "studio-02", "harbor-02"]
LIMIT_S = 400
CONNECTION_S = 10  # connection_ms of coordinator/http.c
STARVED_S = 60  # for which a busy machine may let a process stand still
findings = live.Findings()
check = findings.check


def ask(port, path, method="GET", body=None, timeout=STARVED_S, headers={}):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        c.request(method, path, body=body, headers=headers)
        r = c.getresponse()
        return r.status, r.read(), {k.lower(): v for k, v in r.getheaders()}
    finally:
        c.close()


SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? '
                    r"(-?(?:[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|Inf|NaN))$")


def parse_metrics(text):
    """The text format, strictly: HELP and TYPE once and before the samples of a name, which stand together."""
    kinds, seen, last, values = {}, set(), None, {}
    check(text.endswith("\n"), "metrics: no line end at the end")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            continue
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            check(name not in kinds and kind in ("counter", "gauge"), f"metrics: {line}")
            kinds[name] = kind
            continue
        match = SAMPLE.match(line)
        check(match is not None, f"metrics: not a sample: {line}")
        if not match:
            continue
        name, labels, value = match.groups()
        check(name in kinds, f"metrics: {name} has no TYPE")
        check(name == last or name not in seen, f"metrics: {name} in two places")
        check((kinds.get(name) == "counter") == name.endswith("_total"), f"metrics: {name} is a {kinds.get(name)}")
        key = name + ("{" + labels + "}" if labels else "")
        check(key not in values, f"metrics: {key} twice")
        seen.add(name)
        last = name
        values[key] = float(value)
    return values


def write_scenario(folder):
    live.ship_lines_of(folder, "train.jsonl", NODES)
    live.ship_lines_of(folder, "test.jsonl", NODES, 2)
    (folder / "run.yaml").write_text(SCENARIO)


def write_files(folder, port, web, **more):
    write_scenario(folder)
    live.write_coordinator(folder, port, "run.yaml", http=web, http_port_file="http_port" if web else None, strangers_idle_ms=2000, **more)
    for name in NODES:
        live.write_node(folder, name, port, scenario="run.yaml", answer_ms=3000)


def start(folder, kind, name):
    return live.start_service(FASTER if kind == "node" else MESHMIND, folder, kind, name)


def wait_for(what, test, seconds=LIMIT_S):
    return live.wait_for(what, test, seconds)


def raw(port, data, half_close=False, source="127.0.0.1"):
    s = socket.create_connection(("127.0.0.1", port), timeout=CONNECTION_S + STARVED_S, source_address=(source, 0))
    try:
        s.sendall(data)
        if half_close:
            s.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # it was closed on us, which is an answer too
    return s


def drain(s):
    got = b""
    try:
        while True:
            part = s.recv(65536)
            if not part:
                return got
            got += part
    except OSError:
        return got
    finally:
        s.close()


def polite(port):
    status, body, heads = ask(port, "/healthz")
    check((status, body[:3]) == (200, b"ok\n"), f"healthz: {status} {body}")
    status, body, heads = ask(port, "/")
    check(status == 200 and heads["content-type"].startswith("text/html"), f"/: {status} {heads}")
    policy = heads.get("content-security-policy", "")
    check("default-src 'none'" in policy and "unsafe" not in policy, f"policy: {policy}")
    check(heads.get("x-content-type-options") == "nosniff", "no nosniff")
    check(heads.get("connection", "").lower() == "close", f"connection: {heads.get('connection')}")
    for text in (body, ask(port, "/status.js")[1], ask(port, "/status.css")[1]):
        check(not re.search(rb"//(?!www\.w3\.org/2000/svg)[a-z]+\.[a-z]|@import|url\(", text), "the page names another host")
    check(b"innerHTML" not in ask(port, "/status.js")[1], "the page makes markup of text")
    check(b"round + 1" not in ask(port, "/status.js")[1] and b"They count from 0" in ask(port, "/")[1], "the page counts rounds as rollback does not")
    status, body, heads = ask(port, "/", "HEAD")
    check((status, body) == (200, b"") and int(heads["content-length"]) > 300, f"HEAD: {status} {body} {heads}")
    status, body, heads = ask(port, "/metrics")
    check(heads["content-type"].startswith("text/plain; version=0.0.4"), f"metrics: {heads}")
    values = parse_metrics(body.decode())
    check(values['meshmind_nodes{is="enrolled"}'] == 3 and values["meshmind_resident_bytes"] > 1e6, f"metrics: {values}")
    check(sum(v for k, v in values.items() if k.startswith("meshmind_state{")) == 1, "not in one state")
    for path in ("/healthz/", "/../healthz", "/%2e%2e/etc/passwd", "/status.json%00.html", "//"):
        check(ask(port, path)[0] == 404, f"{path} is not 404")
    check(ask(port, "/healthz?x=1")[0] == 200, "a query is not ignored")
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"):
        status, body, heads = ask(port, "/status.json", method, body=b"x" if method in ("POST", "PUT") else None)
        check(status == 405 and heads.get("allow") == "GET, HEAD", f"{method}: {status} {heads}")


def rude(port):
    """Rubbish is refused or closed, and the server goes on."""
    for data in (b"\0" * 100, b"GET\n\n", b"\r\n" * 50, b"GET / HTTP/9.9\r\n\r\n", b"A" * 20000,
                 b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n",
                 b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 20000 + b"\r\n\r\n",
                 b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 3000 + b"\r\n", b"\x16\x03\x01\x02\x00\x01\x00",
                 b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n",
                 b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"):
        got = drain(raw(port, data, half_close=True))
        check(not got or re.match(rb"HTTP/1\.[01] (200|400|404|405|411|413|414|431|5\d\d)", got) is not None, f"{data[:30]}: {got[:80]}")
        check(b"HTTP/1.1 200" not in got[:12] or data.startswith(b"GET / HTTP/9.9"), f"{data[:30]} is answered with 200")
    got = drain(raw(port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2))
    check(got.count(b"HTTP/1.1 ") == 1, f"{got.count(b'HTTP/1.1 ')} answers on one connection")


def slow(port):
    """Dribbling clients of one address fill what it may have, are cut off in time, and cost others nothing."""
    begin = time.monotonic()
    word = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    sockets = [raw(port, word + b"X-A: ", source="127.0.0.2") for _ in range(16)]
    got = drain(raw(port, word + b"\r\n", source="127.0.0.2"))
    check(got == b"", f"a 17th connection of one address is answered with {got[:50]}")
    open_ones = list(sockets)
    while open_ones and time.monotonic() - begin < CONNECTION_S + STARVED_S:
        time.sleep(0.5)
        for s in list(open_ones):
            try:
                s.sendall(b"a")
                s.setblocking(False)
                ended = not s.recv(4096)
            except BlockingIOError:
                ended = False
            except OSError:
                ended = True
            if ended:
                open_ones.remove(s)
                s.close()
            else:
                s.setblocking(True)
    took = time.monotonic() - begin
    check(not open_ones and CONNECTION_S - 2 < took, f"{len(open_ones)} dribbling clients held on for {took:.0f} s")
    got = wait_for("an answer after the dribbling clients", lambda: drain(raw(port, word + b"\r\n", source="127.0.0.2")), STARVED_S)
    check(got.startswith(b"HTTP/1.1 200"), f"afterwards: {got[:50]}")


HELLO = b"\0SP\0\0\x30\0\0"


def heard(port, said):
    """What comes back on the nodes' port until the connection is closed, after its greeting."""
    with socket.create_connection(("127.0.0.1", port), STARVED_S, source_address=("127.0.0.3", 0)) as s:
        s.sendall(said)
        return drain(s)[len(HELLO):]


def silent(port):
    """Who says nothing and who says half of something are closed after strangers_idle_ms."""
    begin = time.monotonic()
    for said in (b"", HELLO + bytes(7)):
        heard(port, said)
    took = time.monotonic() - begin
    check(2 < took < STARVED_S, f"two silent connections were closed within {took:.1f} s")


def long_ones(port, message_bytes):
    """A message of message_bytes is answered (and then silence is not waited for), one byte more is not, nor is it read."""
    def frame(size):
        return HELLO + (4 + size).to_bytes(8, "big") + b"\x80\0\0\1" + bytes(size)

    check(len(heard(port, frame(message_bytes))) > 12, f"a message of {message_bytes} bytes was not answered")
    check(heard(port, frame(message_bytes + 1)) == b"", f"a message of {message_bytes + 1} bytes was answered")


def crowded(folder):
    """Of more strangers than `strangers` one has to go, and the operator reads how many may be there; and of more than
    `strangers_per_address` at one address."""
    folder.mkdir()
    write_files(folder, own_port := free_port(), "127.0.0.1:0", strangers=3, strangers_per_address=2)
    process = start(folder, "coordinator", "coordinator")
    wait_for("http", lambda: (folder / "http_port").exists())
    port = int((folder / "http_port").read_text())

    def is_told():
        crowd = [raw(own_port, HELLO, source=f"127.0.0.{i}") for i in (4, 4, 4, 5, 5)]
        status, body, _ = ask(port, "/healthz")
        for s in crowd:
            s.close()
        return status == 503 and b"strangers: all 3 places are taken" in body

    wait_for("word of the crowd", is_told, STARVED_S)
    metrics = ask(port, "/metrics")[1].decode()
    check(re.search(r'connections_turned_away_total\{reason="address"\} [1-9]', metrics), f"no third stranger of an address had to go: {metrics}")
    live.stop(process)


def least_sizes(folder, steps):
    """What a coordinator asks for that is told to take less than the nodes of a run of so many steps may send."""
    least = {}
    for key, below in (("submission_bytes", 1), ("message_bytes", 8192)):
        write_files(folder, free_port(), None, **{key: below})
        (folder / "run.yaml").write_text(SCENARIO.replace(" steps: 2,", f" steps: {steps},"))
        done = subprocess.run([MESHMIND, "coordinator", "-c", folder / "coordinator.yaml"], capture_output=True, text=True, timeout=LIMIT_S)
        found = re.search(rf"{key}: {below}, and .* accepted: (?:0, )?(\d+) ", done.stderr)
        check(done.returncode == 2 and found, f"{key}: {below}: exit {done.returncode}: {done.stderr}")
        least[key] = int(found[1])
    return least


def sizes_of_run(folder):
    """Each step has a digest of 8 bytes in the manifest, and none in the payload."""
    many, own = least_sizes(folder, 1000), least_sizes(folder, 2)
    check(many == own | {"message_bytes": own["message_bytes"] + 8 * 998}, f"least sizes: {own}, with 1000 steps {many}")
    return own


def look(port, stop, seen):
    """What an operator's browser and Prometheus do, all the time."""
    while not stop.is_set():
        try:
            status = json.loads(ask(port, "/status.json")[1])
            seen["states"].add(status["state"])
            seen["last"] = status
            seen["metrics"] = parse_metrics(ask(port, "/metrics")[1].decode())
            seen["health"].add(ask(port, "/healthz")[0])
            seen["looks"] += 1
        except (OSError, http.client.HTTPException) as error:
            seen["lost"].append(str(error))
        time.sleep(0.1)


def shown(folder, name, seen):
    """The node, after two deaths: with its first offer, until the open round was seen, and with its first receipt, until a round
    that is over was.  On a fast machine all would be over between two looks."""
    for stage, is_seen in (("after_offer", lambda: "open" in seen["states"]), ("after_receipt", lambda: seen.get("last", {}).get("history"))):
        dead = live.start_service(FASTER, folder, "node", name, OMM_CRASH_AT=stage)
        wait_for(f"its death {stage}", lambda: dead.poll() is not None)
        check(dead.returncode == -signal.SIGKILL, f"{name} ended with {dead.returncode} and not {stage}")
        wait_for(f"a look at what is {stage}", is_seen)
    return start(folder, "node", name)


def federate(folder, looked_at):
    folder.mkdir()
    own_port, sizes = free_port(), sizes_of_run(folder) if looked_at else {}
    write_files(folder, own_port, "127.0.0.1:0" if looked_at else None, **sizes)
    processes = [start(folder, "coordinator", "coordinator")]
    seen, stop = {"states": set(), "health": set(), "looks": 0, "lost": []}, threading.Event()
    try:
        if looked_at:
            wait_for("http", lambda: (folder / "http_port").exists() or processes[0].poll() is not None)
            check(processes[0].poll() is None, (folder / "coordinator.log").read_text(errors="replace")[-3000:])
            port = int((folder / "http_port").read_text())
            polite(port)
            rude(port)
            threads = [threading.Thread(target=look, args=(port, stop, seen)), threading.Thread(target=slow, args=(port,))]
            for t in threads:
                t.start()
            holders = [raw(port, b"GET / HTTP/1.1\r\n") for _ in range(4)]  # and never a word more
            silent(own_port)
            long_ones(own_port, sizes["message_bytes"])
        if looked_at:
            threads[1].join()  # nobody trains yet: the service is there as long as it takes
        processes += [start(folder, "node", n) for n in (NODES[:-1] if looked_at else NODES)]
        if looked_at:
            processes.append(shown(folder, NODES[-1], seen))
        wait_for("the end of the run", lambda: all(p.poll() is not None for p in processes))
    finally:
        stop.set()
        for p in processes:
            if p.poll() is None:
                p.kill()
                p.wait()
    if looked_at:
        for t in threads:
            t.join()
        for s in holders:
            s.close()
    check(processes[0].returncode in (0, 1), f"coordinator: {(folder / 'coordinator.log').read_text()[-3000:]}")
    return json.loads((folder / "coordinator" / "bundle" / "manifest.json").read_text())["run_digest"], seen


def run(folder):
    write_scenario(folder)
    simulation = live.Simulation(FASTER, folder / "run.yaml", folder / "simulated")
    crowded(folder / "crowd")
    digest, seen = federate(folder / "seen", True)
    expected = simulation.digest()
    check(digest == expected, f"run digest {digest}, the simulator's is {expected}")
    last, metrics = seen["last"], seen["metrics"]
    check(seen["looks"] >= 3 and seen["health"] == {200}, f"{seen['looks']} looks, health {seen['health']}")
    check({"joining", "open"} <= seen["states"], f"states seen: {seen['states']}")
    check(last["round_opened"] and last["round_over"] and last["time"] > last["started"], f"times: {last}")
    check(sorted(n["name"] for n in last["nodes"]) == sorted(NODES), f"nodes: {last['nodes']}")
    check(last["history"] and last["history"][0]["accepted"] == 3, f"history: {last['history']}")
    check(last["curve"] and last["curve"][0][0] == 0 and last["curve"][0][1] > 0, f"curve: {last['curve']}")
    check(len([v for v in last["verdicts"] if v["verdict"] == "accepted"]) >= 3, f"verdicts: {last['verdicts']}")
    check(fields(last) == fields(evil_status(1)), f"status.json and what the page is tested with: {fields(last)} and {fields(evil_status(1))}")
    check(last.get("resident_bytes", 0) > 1e6 and last["history"][0].get("tokens", 0) > 0, f"memory and tokens: {last}")
    check(all(n["up"] > 0 and n["down"] > 0 for n in last["nodes"]), f"bytes of nodes: {last['nodes']}")
    check(metrics["meshmind_submissions_accepted_total"] >= 3 and metrics["meshmind_loss"] > 0, f"metrics: {metrics}")
    check(metrics['meshmind_wire_bytes_total{direction="in"}'] > 1000, "metrics: no bytes")
    print(f"run digest {digest} as simulated, {seen['looks']} looks, states {sorted(seen['states'])}, lost {len(seen['lost'])}")


# ---- the operator ----


STATUS_FIELDS = {
    "schema_version": int, "run_id": str, "time": str, "sick": list, "healthy": bool, "state": str, "working": bool, "paused": bool,
    "draining": bool, "stage_seconds": int, "seconds_left": (int, type(None)), "round": int, "rounds": int, "needed": int, "selected": int,
    "accepted": int, "refused": int, "loss": (float, type(None)), "round_opened": (str, type(None)), "round_over": (str, type(None)),
    "nodes": dict, "declined": dict, "refusals": dict, "canaries": (dict, type(None)), "last_error": (dict, type(None)), "connections": int, "disk_free_bytes": (int, type(None)),
    "audit_entries": int, "audit_head": str}
NODE_FIELDS = {"enrolled", "ready", "working", "declining", "uploading", "settled", "silent", "away", "quarantined", "revoked", "late"}


def status_of(text):
    """The fields that docs/service.md promises to scripts, and no others."""
    is_now = json.loads(text)
    check(set(is_now) == set(STATUS_FIELDS), f"status --json: {set(is_now) ^ set(STATUS_FIELDS)}")
    check(all(isinstance(is_now[k], t) for k, t in STATUS_FIELDS.items()), f"status --json, types: {is_now}")
    check(set(is_now["nodes"]) == NODE_FIELDS and set(is_now["refusals"]) == {"submissions", "requests"}, f"status --json: {is_now}")
    docs = (SOURCE / "docs/service.md").read_text()
    check(all(f"`{k}`" in docs for k in [*STATUS_FIELDS, *NODE_FIELDS]), "docs/service.md does not have all fields of status --json")
    return is_now


def node_status(folder, name):
    done = subprocess.run([MESHMIND, "node", "status", "-c", folder / f"{name}.yaml"], capture_output=True, text=True, timeout=LIMIT_S)
    return done.stdout + done.stderr


def cannot(state, ask):
    """A coordinator that would do it and has no room: that is no refusal."""
    state.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(state / "ctl.sock"))
        door.listen()
        def answer():
            client, _ = door.accept()
            client.recv(100)
            client.sendall(b"failed\naudit.jsonl: No space left on device\n")
            client.close()
        thread = threading.Thread(target=answer)
        thread.start()
        ask()
        thread.join()
    (state / "ctl.sock").unlink()


def ctl(folder):
    write_files(folder, free_port(), "127.0.0.1:0")
    state, config = folder / "coordinator", folder / "coordinator.yaml"
    said = []

    def tell(code, says, *words):
        done = subprocess.run([MESHMIND, "coordinator", "ctl", "-c", config, *words], capture_output=True, text=True, timeout=LIMIT_S)
        check(done.returncode == code and re.search(says, done.stdout + done.stderr),
              f"ctl {words}: exit {done.returncode} (wanted {code}): {done.stdout}{done.stderr}")
        said.append((words, done.returncode))
        return done.stdout

    def audit(code, says, path=state / "audit.jsonl", *more):
        done = subprocess.run([MESHMIND, "coordinator", "audit", "verify", path, *more], capture_output=True, text=True)
        check(done.returncode == code and re.search(says, done.stdout + done.stderr),
              f"audit {more}: exit {done.returncode} (wanted {code}): {done.stdout}{done.stderr}")
        return done.stdout

    def up():
        (folder / "http_port").unlink(missing_ok=True)
        process = start(folder, "coordinator", "coordinator")
        processes.append(process)
        wait_for("the coordinator", lambda: (folder / "http_port").exists() or process.poll() is not None)
        return process

    def state_is(what):
        wait_for(f"state {what}", lambda: re.search(f"state: {what}", tell(0, "state", "status")))

    for bad in ("8080", "locals:80", "127.0.0.1:99999", "127.0.0.1:", "127.0.0.1:8080x", "[::1]80", "[]:80", "::1:80"):
        write_files(folder, free_port(), f"'{bad}'")
        done = subprocess.run([MESHMIND, "coordinator", "-c", config], capture_output=True, text=True, timeout=LIMIT_S)
        check(done.returncode == 2 and "accepted: an address of this machine and a port" in done.stderr, f"http: {bad}: {done.stderr[-300:]}")
    shutil.rmtree(state)
    write_files(folder, free_port(), "127.0.0.1:0")
    processes = []
    tell(2, "unknown action fly; accepted: status \\[json\\], pause, resume, quarantine NODE, release NODE, rollback ROUND --reason TEXT, drain, nodes", "fly")
    tell(2, "quarantine: NODE is missing", "quarantine")
    tell(2, "rollback ROUND --reason TEXT: both", "rollback", "1")
    tell(0, "(?s)rollback ROUND.*Rounds count from 0", "--help")
    tell(2, "pause takes no argument", "pause", "now")
    tell(2, "quarantine: not UTF-8; accepted: text in UTF-8", "quarantine", b"J\xfcrgen")
    tell(2, "quarantine: a line break; accepted: words on one line", "quarantine", "a\nb")
    tell(2, "quarantine: 411 bytes with all its words, accepted: up to 255", "quarantine", "a" * 400)
    for label in ("a\nb", "b" * 41, "b" * 400, "J\u00fcrgen"):
        tell(2, "--label: accepted are up to 40 printable ASCII characters", "invite", "--label", label)
    tell(2, "--reason: a line break; accepted: one line", "revoke", "anna", "--reason", "a\nb")
    tell(2, "revoke: 4[0-9]+ bytes with all its words, accepted: up to 255", "revoke", "anna", "--reason", "a" * 400)
    tell(2, "no coordinator runs|coordinator: No such", "status")
    cannot(state, lambda: tell(3, "audit.jsonl: No space left on device", "pause"))
    try:
        first = up()
        check((state / "ctl.sock").stat().st_mode & 0o777 == 0o600, "the socket is not 0600")
        silent = socket.socket(socket.AF_UNIX)
        silent.connect(str(state / "ctl.sock"))  # says nothing and holds the door for two seconds
        tell(0, "state: joining", "status")
        silent.close()
        first.send_signal(signal.SIGSTOP)  # as in a sum that takes long
        tell(3, "no answer within 1 s; it may still be done", "status", "--wait", "1")
        first.send_signal(signal.SIGCONT)
        tell(0, "state: joining", "status")
        tell(2, "status: yaml; accepted: json, or nothing", "status", "yaml")
        is_now = status_of(tell(0, "schema_version", "status", "--json"))
        check(is_now["state"] == "joining" and is_now["paused"] is False and is_now["healthy"] is True and is_now["seconds_left"] is None,
              f"status --json before anybody came: {is_now}")
        for rubbish in (b"\n", b"pause \n\n", b"\xff\xfe\n", b"x" * 300, b"status\0\n", b"quarantine \xff\n"):
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(str(state / "ctl.sock"))
                s.sendall(rubbish)
                s.settimeout(20)
                got = b""
                try:
                    while part := s.recv(4096):
                        got += part
                except ConnectionError:
                    pass
                check(not got.startswith(b"ok") or rubbish == b"pause \n\n", f"{rubbish[:20]}: {got}")
        tell(2, "it is paused already", "pause")
        processes += [start(folder, "node", n) for n in NODES]
        wait_for("three ready nodes", lambda: "3 ready" in tell(0, "paused", "status"))
        time.sleep(1)
        check("state: joining, paused" in tell(0, "state", "status"), "a round was opened in a pause")
        is_now = status_of(tell(0, "{", "status", "--json"))
        check(is_now["paused"] and is_now["nodes"]["ready"] == 3 and is_now["nodes"]["away"] == 0, f"status --json in a pause: {is_now}")
        tell(0, "cafe-02 is in quarantine", "quarantine", "cafe-02")
        tell(2, "cafe-02 is already in quarantine", "quarantine", "cafe-02")
        tell(2, "harbor-02 is not in quarantine", "release", "harbor-02")
        tell(2, "nobody: no enrolled node is called so", "quarantine", "nobody")
        wait_for("its owner reads why and what helps", lambda: re.search("waiting, the coordinator refuses it: round: node is in quarantine, "
                 "by the operator's word; .*`ctl release` ends it", node_status(folder, "cafe-02")))
        check(re.search("kept_out .*reason=REFUSED_NOT_SELECTED", (folder / "cafe-02.log").read_text()),
              "no word of it in the node's log")
        first.send_signal(signal.SIGKILL)  # what was said is kept
        first.wait()
        tell(2, "no coordinator runs", "status")
        second = up()
        tell(0, "joining, paused(.|\n)*1 in quarantine", "status")
        lasts = status_of(tell(0, "{", "status", "--json"))["stage_seconds"]
        check(lasts >= is_now["stage_seconds"] >= 1, f"a kill has shortened the stage: {is_now['stage_seconds']} s before it, then {lasts} s")
        for i in (2, 3):  # two that die of their offers: the round ends when the operator has had his say, on a fast machine, too
            live.stop(processes[i])
            processes[i] = live.start_service(FASTER, folder, "node", NODES[i - 1], OMM_CRASH_AT="after_offer")
        tell(0, "opened again", "resume")
        wait_for("two offers", lambda: all(p.poll() is not None for p in processes[2:4]))
        state_is("open")
        tell(0, "(?s)round: 0 \\(rounds 0 to 1\\).*2 selected", "status")
        is_now = status_of(tell(0, "{", "status", "--json"))
        check(is_now["state"] == "open" and is_now["selected"] == 2 and 0 < is_now["seconds_left"] <= 600 and is_now["stage_seconds"] < LIMIT_S,
              f"status --json: {is_now}")
        check(is_now["nodes"]["quarantined"] == 1 and is_now["last_error"] is None, f"status --json: {is_now}")
        refused = is_now["refusals"]["requests"]  # after a kill each node once: its next poll may have been seen
        check(refused.pop("DUPLICATE", 0) <= 3 and set(refused) <= {"NOT_SELECTED"}, f"status --json: {is_now}")
        tell(2, "round 7 is not over; accepted: start", "rollback", "7", "--reason", "no such round")
        tell(0, "round 1 begins from the run's first adapter", "rollback", "start", "--reason", "the first was noise")
        tell(0, "may take part again", "release", "cafe-02")
        tell(0, "open round is ended", "drain")
        for i in (2, 3):
            processes[i] = start(folder, "node", NODES[i - 1])
        wait_for("the end of a drained coordinator", lambda: second.poll() is not None)
        check(second.returncode == 0, f"drained: exit {second.returncode}")
        head = re.search("head ([0-9a-f]{64})", audit(0, "the chain holds")).group(1)
        rounds = (state / "bundle" / "rounds.jsonl").read_text().splitlines()
        check(len(rounds) == 1, f"{len(rounds)} rounds are over after the drain")
        last = up()
        wait_for("the end of the run", lambda: all(p.poll() is not None for p in processes))
        check(last.returncode in (0, 1), (folder / "coordinator.log").read_text(errors="replace")[-3000:])
    finally:
        for p in processes:
            if p.poll() is None:
                p.kill()
                p.wait()
    check(not (state / "ctl.sock").exists(), "the socket is still there")
    bundle = state / "bundle"
    verify = subprocess.run([MESHMIND, "verify", bundle], capture_output=True, text=True)
    check(not re.search("(?m)^FAIL", verify.stdout) and verify.returncode in (0, 1), verify.stdout + verify.stderr)
    rounds = [json.loads(line) for line in (bundle / "rounds.jsonl").read_text().splitlines()]
    check([r.get("begins") for r in rounds] == [None, 0], f"rounds begin from {[r.get('begins') for r in rounds]}")
    selected = [len(r["selected"]) for r in rounds]  # on a slow machine not all are back from their back-off
    check(len(selected) == 2 and selected[0] == 2 and 1 <= selected[1] <= 3, f"selected: {selected}")
    heard = sum(selected) - sum(len(r["missing"]) for r in rounds)
    log = state / "audit.jsonl"
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    names = [e["event"] for e in entries]
    check(names.count("start") == 3 and names.count("enrolled") == 3 and names.count("receipt") == heard, f"audit: {names}, {heard} heard")
    check(names[-1] == "stop" and entries[-1]["why"] == "sealed" and names.count("round_over") == 2, f"audit: {names}")
    check("drained" in [e.get("why") for e in entries], "the drain is not in the audit log")
    actions = [e["action"] for e in entries if e["event"] == "ctl"]
    check(actions == ["pause", "pause", "quarantine", "quarantine", "release", "resume", "rollback", "rollback", "release", "drain"], f"audit: {actions}")
    check(names.count("ctl_failed") >= 4, f"audit: {names}")
    evidence = [json.loads(line) for line in (bundle / "measured" / "operator.jsonl").read_text().splitlines()]
    check(evidence == [e for e in entries if e["event"] == "ctl"], "the bundle does not say what the operator did")
    # A reader of its own: the chain as the docs describe it.
    import hashlib
    previous = "0" * 64
    for line in log.read_bytes().splitlines(keepends=True):
        check(json.loads(line)["previous"] == previous, "previous is not what the docs say")
        previous = hashlib.blake2b(line, digest_size=32).hexdigest()
    audit(0, f"{len(entries)} entries(.|\n)*head {previous}", log, "--head", head)
    audit(1, "without the known head", log, "--head", "0" * 64)
    audit(2, "64 lower-case hex", log, "--head", "abc")
    said = json.loads(audit(0, "holds", log, "--json"))
    check(said["holds"] is True and said["entries"] == len(entries) and said["head"] == previous, f"audit --json: {said}")
    broken = folder / "broken.jsonl"
    broken.write_bytes(log.read_bytes().replace(b"drain", b"DRAIN", 1))
    said = json.loads(audit(1, "does not hold the one before", broken, "--json"))
    check(said["holds"] is False and "does not hold the one before" in said["reason"], f"audit --json of a broken log: {said}")
    check("the last line is believed" in audit(0, "the chain holds:", log), "without a head it says nothing of the last line")
    check("believed" not in audit(0, "the chain holds:", log, "--head", head), "with a head it does")
    audit(2, "a folder; accepted: a file, audit.jsonl", state)
    (folder / "empty.jsonl").touch()
    said = json.loads(audit(1, "empty; a coordinator begins its log with its start", folder / "empty.jsonl", "--json"))
    check(said["holds"] is False and "never started" in said["reason"], f"audit --json of an empty log: {said}")
    wrong = folder / "wrong.jsonl"
    wrong.write_text(log.read_text().replace('"action":"drain"', '"action":"pause"'))
    at = next(i for i, e in enumerate(entries) if e.get("action") == "drain")
    audit(1, f"entry {at + 1} \\(line {at + 2}\\) does not hold the one before: line {at + 1} was changed, or line {at + 2} names another", wrong)
    print(f"ctl: {len(said)} words, {len(entries)} entries, selected {selected}")


# ---- the page ----

EVIL = ['<img src=x onerror=alert(1)>', '"><script>document.title="owned"</script>', "a" * 300, "\u202edlrow",
        "javascript:alert(1)", "</td></tr></table><h1>owned</h1>"]


def evil_status(rounds):
    node = lambda i: {"id": "0" * 16, "name": EVIL[i % len(EVIL)], "is": "declines", "declined": "memory: more memory than it has, or than its owner allows" if i % 3 else "", "accepted": i, "refused": 1, "up": 10 ** 9, "down": 5}
    past = lambda i: {"round": i, "selected": 6, "accepted": 5, "refused": 1, "missing": 0, "tokens": 12345,
                      "loss": 3.0 - i / 100, "verdict": "published"}
    verdict = lambda i: {"time": "2026-11-20T19:40:12.123Z", "round": i, "verdict": "REFUSED_FORMAT",
                         "sentence": EVIL[i % len(EVIL)] + " is not this run", "peer": "[2001:db8::1]", "node": None}
    return {"schema_version": 1, "run_id": "0" * 32, "run": EVIL[0], "commit": "x", "state": "open", "working": True, "paused": False,
            "draining": False, "round": rounds, "rounds": 1000, "node_count": 4000, "ready": 1, "selected": 6, "accepted": 5, "refused": 1, "loss": 2.5,
            "bytes_in": 12345678901, "bytes_out": 5, "connections": 3, "resident_bytes": 10 ** 8,
            "time": "2026-11-20T19:42:12.123Z", "started": "2026-11-20T10:00:00.000Z", "round_opened": None,
            "round_over": "2026-11-20T19:00:00.000Z", "sick": [EVIL[1]], "audit_entries": 5, "audit_head": "0" * 64, "nodes": [node(i) for i in range(300)],
            "history": [past(i) for i in range(rounds)], "curve": [[i, 3.0 - i / 100, i % 7 != 3] for i in range(rounds)],
            "verdicts": [verdict(i) for i in range(40)]}


def fields(status):
    """What such a status has, and each row of its lists."""
    return sorted(status), *(sorted(set().union(*status[rows])) for rows in ("nodes", "history", "verdicts"))


class Page(http.server.BaseHTTPRequestHandler):
    """The page's files with the real headers and with a status that a hostile coordinator would give."""
    asked, policy, state = [], "", None
    TYPES = {"/": ("status.html", "text/html"), "/status.css": ("status.css", "text/css"), "/status.js": ("status.js", "text/javascript")}

    def do_GET(self):
        Page.asked.append(self.path)
        if self.path == "/status.json":
            kind, body = "application/json", json.dumps(Page.state).encode()
        elif self.path in Page.TYPES:
            name, kind = Page.TYPES[self.path]
            body = (SOURCE / "coordinator" / "page" / name).read_bytes()
        else:
            return self.send_error(404)
        self.send_response(200)
        self.send_header("Content-Type", kind + "; charset=utf-8")
        self.send_header("Content-Security-Policy", Page.policy)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


PHONE = 390
# What a reader on a phone sees: the page's width, and what of it is neither within the window nor in a box that scrolls.
LOOK = """(() => ({width: document.documentElement.scrollWidth, window: innerWidth, html: document.documentElement.outerHTML,
  over: [...document.querySelectorAll('body *')].filter(e => !e.closest('.wide table')
    && (e.getBoundingClientRect().right > PHONE + 0.5 || e.getBoundingClientRect().left < -0.5)).map(e => e.outerHTML.slice(0, 90))}))()""".replace("PHONE", str(PHONE))


def page(folder):
    program = browsers.needed()
    source = (SOURCE / "coordinator" / "http.c").read_text()
    Page.policy = "".join(re.findall(r'"([^"\n]*)"', source.split('{"Content-Security-Policy",')[1].split("},")[0]))
    check("default-src 'none'" in Page.policy, f"no policy in http.c: {Page.policy}")
    Page.state = evil_status(60)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    browser = browsers.Browser(program, folder / "profile")
    try:
        browser.open(PHONE, True, url)
        wait_for("the second poll", lambda: Page.asked.count("/status.json") >= 2, 60)
        look = browser.evaluate(LOOK)
        text = look["html"]
        check(look["window"] == PHONE and look["width"] <= PHONE, f"on a phone of {PHONE}: {look['width']} wide, window {look['window']}")
        check(not look["over"], f"on a phone of {PHONE}, not to be seen: {look['over']}")
        check("&lt;img src=x onerror=alert(1)&gt;" in text and "<img" not in text, "a name became markup")
        check("<title>open · &lt;img" in text, f"title: {re.findall('<title>.*?</title>', text)}")
        check("<h1>owned" not in text, "a name became a heading")
        check(text.count("<circle") == 60 and "<polyline" in text, f"{text.count('<circle')} points in the curve")
        check("open (working)" in text and "12 GB" in text and "60" in text, "facts are missing: " + text[:1500])
        check("declines (memory: more memory than it has, " in text, "the page does not say why a node declines")
        check("and 3800 more" in text, "the nodes that are not shown are not counted")
        check(set(Page.asked) <= {"/", "/status.css", "/status.js", "/status.json"}, f"asked for {set(Page.asked)}")
        picture = base64.b64decode(browser.call("Page.captureScreenshot")["data"])
        check(len(picture) > 5000, "no picture of the page")
        if keep := os.environ.get("OMM_KEEP_PICTURE"):
            pathlib.Path(keep).write_bytes(picture)
        said = browser.said()
        check(not said, f"the console says {said}")
        Page.state = {"state": "open"}  # what it cannot draw, it says
        wait_for("the page to say that it cannot draw", lambda: "no answer from the coordinator" in browser.evaluate(LOOK)["html"], 60)
        asked = [u for u in browser.asked() if not u.startswith((url, "data:"))]
        check(not asked and not browser.left, f"the page asks for {asked}, {browser.left} left")
        # The looks above can say no: one box that is too wide, one word to somebody else.
        browser.evaluate('document.body.append(Object.assign(document.createElement("p"), {style: "width: 900px", textContent: "x"})); 0')
        look = browser.evaluate(LOOK)
        check(look["width"] > PHONE and look["over"], f"a page that is too wide passes: {look['width']}, {look['over']}")
        browser.evaluate('location = "http://elsewhere.invalid/"; 0')
        wait_for("what left", lambda: any("elsewhere.invalid" in line for line in browser.left), 60)
    finally:
        browser.close()
        server.shutdown()
    print(f"page: {len(Page.asked)} requests, {sorted(set(Page.asked))}")


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="omm-outside-"))
    try:
        {"run": run, "page": page, "ctl": ctl}[sys.argv[3] if len(sys.argv) > 3 else "run"](folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(findings.code)


main()

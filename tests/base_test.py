#!/usr/bin/env python3
"""The base model reaches nodes that do not have it: from the coordinator, and from HTTP mirrors of all kinds.

A coordinator with one node enrolled; each case is a node with an empty state folder and other sources.  Whatever the
mirrors do (no Range, wrong bytes, stalls, cuts, bodies without an end, redirects in circles or to files, addresses
of private networks), the model that lies in the state folder at the end is the coordinator's, and nothing else has
its name.  Node and coordinator are killed in the middle and go on where they were.  At the end a node without a model
takes part in the run.

usage: base_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]     (the faster one where it is there)
"""
import gzip, hashlib, http.server, json, os, pathlib, re, shutil, signal, subprocess, sys, tempfile, threading, time, urllib.request

import live
from live import free_port, wait_for

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), next(p for p in sys.argv[:1:-1] if os.path.exists(p))
MODEL = SOURCE / "scenarios" / "base" / "openmeshmind-tiny-F16.gguf"
STALL_S = 4  # of a mirror; a machine that gives a node no processor for so long fails the test
os.environ["OMM_GUEST_ROOT"] = "/nonexistent"  # no load or heat of this machine pauses a node
findings = live.Findings()
check = findings.check


# ---- mirrors ----


class Mirror(http.server.BaseHTTPRequestHandler):
    """One server, one path for each way to be a mirror.  The path's first part is the way, the rest only a name."""
    protocol_version = "HTTP/1.1"
    data = MODEL.read_bytes()
    packed = gzip.compress(data, 1)
    asked = []

    def send(self, body, code=200, heads=(), length=None):
        self.send_response(code)
        for head in heads:
            self.send_header(*head)
        if length is not None or body is not None:
            self.send_header("Content-Length", str(len(body) if length is None else length))
        self.send_header("Connection", "close")
        self.close_connection = True
        self.end_headers()
        if body:
            self.wfile.write(body)

    def part(self):
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        begin, end = (int(match[1]), int(match[2]) + 1) if match else (0, len(self.data))
        return begin, self.data[begin:end]

    def do_GET(self):
        way = self.path.split("/")[1]
        begin, body = self.part()
        Mirror.asked.append((way, begin))
        ranged = [("Content-Range", f"bytes {begin}-{begin + len(body) - 1}/{len(self.data)}")]
        try:
            if way == "good":
                self.send(body, 206, ranged)
            elif way == "norange":  # as Python's own http.server
                self.send(self.data)
            elif way == "wrong":  # right up to the middle
                at = len(self.data) // 2 - begin
                self.send(body[:at] + bytes([body[at] ^ 1]) + body[at + 1:] if 0 <= at < len(body) else body, 206, ranged)
            elif way == "wrongstart":
                self.send(b"x" + body[1:], 206, ranged)
            elif way == "shifted":  # the wrong part of the right file
                self.send(self.data[:len(body)] if begin else body[1:] + b"\0", 206, ranged)
            elif way == "cut":
                self.send(body[:700000], 206, ranged, len(body))
            elif way == "early":  # no length, and an end too early
                self.send(None, 206, ranged)
                self.wfile.write(body[:700000])
            elif way == "stall":
                self.send(body[:300000], 206, ranged, len(body))
                time.sleep(4 * STALL_S)
            elif way == "drip":
                self.send(body[:300000], 206, ranged, len(body))
                for i in range(40 * STALL_S):
                    self.wfile.write(body[300000 + i:300001 + i])
                    time.sleep(0.1)
            elif way == "endless":
                self.send(None, 200)
                self.wfile.write(self.data)
                while True:
                    self.wfile.write(bytes(65536))
            elif way == "gzip":
                self.send(self.packed, 200, [("Content-Encoding", "gzip")])
            elif way == "loop":
                self.send(b"", 302, [("Location", "/loop/again")])
            elif way == "once":
                self.send(b"", 302, [("Location", "/good/model.gguf")])
            elif way == "tofile":
                self.send(b"", 302, [("Location", "file://" + str(MODEL))])
            elif way == "page":
                self.send(b"<html>welcome</html>")
            elif way in ("later", "laterpage"):  # right from the third question on
                if sum(a[0] == way for a in Mirror.asked) > 2:
                    self.send(body, 206, ranged)
                elif way == "later":
                    self.send(b"no", 404)
                else:
                    self.send(b"<html>who are you?</html>")
            elif way == "noend":  # of one header
                self.wfile.write(b"HTTP/1.1 206 Part\r\nX: " + b"a" * 10**7)
                self.close_connection = True
            elif way == "busy":
                self.send(b"come back later", 503)
            elif way == "heads":
                self.send(body, 206, [(f"X-{i}", "y" * 1000) for i in range(400)])
            elif way == "rubbish":
                self.wfile.write(b"\0\1\2 no HTTP at all\r\n" * 100)
                self.close_connection = True
            else:
                self.send(b"no", 404)
        except OSError:
            self.close_connection = True  # whoever fetched has had enough

    def log_message(self, *args):
        pass


# ---- the federation ----


class Federation:
    def __init__(self, folder):
        self.folder, self.port, self.http, self.running = folder, free_port(), free_port(), []
        self.public, self.state = {}, "coordinator"
        for name in ("coordinator", "bundle", "cafe-02", "late"):
            done = subprocess.run([MESHMIND, "keygen", "--json", "--out", folder / f"{name}.key"], capture_output=True, text=True, check=True)
            self.public[name] = json.loads(done.stdout)["public_key"]
        (folder / "base").symlink_to(SOURCE / "scenarios" / "base")
        shutil.copytree(SOURCE / "scenarios" / "policies", folder / "policies")
        text = (SOURCE / "scenarios" / "processes.yaml").read_text().replace("rounds: 2", "rounds: 1")
        (folder / "own.yaml").write_text(text + "policy: policies/service.yaml\n")

    def coordinator(self, more=""):
        (self.folder / "coordinator.yaml").write_text(
            f"scenario: own.yaml\nlisten: tcp://127.0.0.1:{self.port}\nstate_dir: {self.state}\nkey: coordinator.key\n"
            "bundle_key: bundle.key\npoll_ms: 100\nlinger_ms: 60000\nthreads: 1\nport_file: port\n"
            f"nodes:\n  - {{name: cafe-02, public_key: {self.public['cafe-02']}}}\n" + more)
        (self.folder / "port").unlink(missing_ok=True)
        process = self.start("coordinator", "coordinator")
        wait_for("the coordinator", lambda: (self.folder / "port").exists() or process.poll() is not None)
        check(process.poll() is None, self.log("coordinator")[-2000:])
        return process

    def node(self, case, mirrors=(), private=True, more="", key=None, port=None, own="cafe-02"):
        listed = "".join(f"  - {m}\n" for m in mirrors)
        (self.folder / f"{case}.yaml").write_text(
            f"coordinator: tcp://127.0.0.1:{port or self.port}\nname: cafe-02\nstate_dir: {case}\nkey: {own}.key\n"
            f"coordinator_key: {key or self.public['coordinator']}\ndata: base/train.jsonl\nclient: cafe-02\nthreads: 1\n"
            f"priority: normal\nanswer_ms: 1000\nmirror_stall_s: {STALL_S}\nprivate_mirrors: {'true' if private else 'false'}\n{more}"
            + ("mirrors:\n" + listed if listed else ""))
        return self.start("node", case)

    def start(self, kind, name):
        with open(self.folder / f"{name}.log", "ab") as log:
            self.running.append(subprocess.Popen([MESHMIND, kind, "-c", self.folder / f"{name}.yaml"], stdout=log, stderr=log))
        return self.running[-1]

    def log(self, name):
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def events(self, name, event):
        return [line for line in self.log(name).splitlines() if re.search(rf"\b{event}\b", line)]

    def until(self, case, process, event="base_ready"):
        wait_for(f"{case}: {event}", lambda: self.events(case, event) or process.poll() is not None)
        return self.events(case, event)

    def stop(self, process, how=signal.SIGKILL):
        process.send_signal(how)
        process.wait()
        self.running.remove(process)

    def files(self, case):
        base = self.folder / case / "base"
        return sorted(p.name for p in base.iterdir()) if base.exists() else []

    def part(self, case):
        return next(iter((self.folder / case / "base").glob("*.part")), None)

    def clean(self):
        for p in self.running:
            p.kill()
            p.wait()


NAME = hashlib.blake2b(MODEL.read_bytes(), digest_size=32).hexdigest()


def says(f, case, pattern):
    """`node status`, while it runs: why there is no model yet, and no word of it when there is."""
    def look():
        path = f.folder / case / "status.json"
        board = json.loads(path.read_text()) if path.exists() else {"state": "not there"}
        return board["state"] == "fetching" and re.match(pattern, board["detail"]) and time.time() - board["updated_s"] < 5
    wait_for(f"{case} says {pattern}", look)


def private(folder):
    """The residual is in it, and who was invited: others of the machine have no business there."""
    check(folder.stat().st_mode & 0o777 == 0o700, f"{folder.name}: mode {folder.stat().st_mode:o}")
    for path in folder.glob("*.sqlite*"):
        check(path.stat().st_mode & 0o777 == 0o600, f"{folder.name}/{path.name}: mode {path.stat().st_mode:o}")


def number(line, key):
    return int(re.search(rf'{key}"?[=:] ?(\d+)', line)[1])


def fetched(f, case, process):
    """It has the model, whole and right, for its owner alone, and nothing else has its name."""
    lines = f.until(case, process)
    check(lines, f"{case}: {f.log(case)[-1500:]}")
    if not lines:
        return None
    path = f.folder / case / "base" / f"{NAME}.gguf"
    check(path.read_bytes() == MODEL.read_bytes(), f"{case}: other bytes")
    check(path.stat().st_mode & 0o777 == 0o600, f"{case}: mode {path.stat().st_mode:o}")
    # Begun anew after mirrors, the node writes the manifest again: for a moment under another name.
    wait_for(f"{case}: the model, the manifest and nothing else", lambda: f.files(case) == sorted([f"{NAME}.gguf", "manifest.env"]))
    return lines[-1]


def one(f, url, case, ways, dropped, from_coordinator=None, private=True, names=("cafe-02",), more=""):
    del Mirror.asked[:]
    process = f.node(case, [f"{url}/{w}/model.gguf" if "://" not in w else w for w in ways], private, more)
    line = fetched(f, case, process)
    f.stop(process)
    if line is None:
        return []
    check(dropped is None or number(line, "mirrors_dropped") == dropped, f"{case}: {line}")
    got = number(line, "from_coordinator")
    if from_coordinator is not None:
        check((got > 0) == from_coordinator, f"{case}: {line}")
    return list(Mirror.asked)


def kills(f, coordinator):
    """Killed and cut on both ends in the middle, it goes on after what it had."""
    tap, some = live.Tap(f.port), 2 * 262144
    tap.hold(len(Mirror.data) // 3)
    process = f.node("killed", port=tap.port)
    wait_for("half a model", lambda: (p := f.part("killed")) and p.stat().st_size > some)
    check(f.part("killed").stat().st_mode & 0o777 == 0o600, "a part is not for its owner alone")
    f.stop(process)
    check(not (f.folder / "killed" / "base" / f"{NAME}.gguf").exists(), "a name before it is whole")
    before = f.part("killed").stat().st_size
    with open(f.part("killed"), "r+b") as part:  # what a power cut does: bytes that were never written
        part.seek(before - 100000)
        part.write(bytes(100000))
    tap.hold(len(Mirror.data) // 3)
    process = f.start("node", "killed")
    line = wait_for("the second start", lambda: (f.events("killed", "base_fetch") + [None] * 2)[1])
    here = number(line, "here")
    check(0 < here <= before - 100000 and here % 262144 == 0, f"it goes on from {here} of {before}")
    wait_for("more of it", lambda: f.part("killed") and f.part("killed").stat().st_size > here + 262144)
    f.stop(coordinator)
    time.sleep(0.3)
    check(process.poll() is None, "the node ends with the coordinator")
    tap.let_go()
    coordinator = f.coordinator(f"base_mbit: 0\nhttp: 127.0.0.1:{f.http}\n")
    line = fetched(f, "killed", process)
    check(line and number(line, "from_coordinator") < len(Mirror.data), f"all of it again: {line}")
    f.stop(process)
    process = f.start("node", "killed")  # it is here: no byte is fetched, and the node polls
    wait_for("a poll", lambda: f.events("killed", "round_open|training_begin|base_kept") or process.poll() is not None or
             json.loads((f.folder / "killed" / "status.json").read_text())["state"] != "fetching")
    check(len(f.events("killed", "base_fetch")) == 2, "it fetches what it has")
    wait_for("a poll that is counted", lambda: counted(f)["up"] > 0)
    f.stop(process)
    return coordinator


def mirrors(f, url):
    asked = one(f, url, "good", ["good"], 0, False)
    check(asked == [("good", 0)], f"good: {asked}")
    one(f, url, "norange", ["norange"], 0, False)
    one(f, url, "wrong", ["wrong", "good"], 1, False)
    check(("good", 0) not in Mirror.asked and Mirror.asked[-1][1] % 262144 == 0, f"after a wrong byte: {Mirror.asked}")
    one(f, url, "wrongstart", ["wrongstart", "shifted", "good"], 2, False)
    asked = one(f, url, "cut", ["cut"], 0, False)
    check([a for a in asked if a[1] % 262144] and len(set(asked)) == 16, f"a cut transfer does not go on where it was: {asked}")
    one(f, url, "early", ["early"], 0, False)
    one(f, url, "stall", ["stall", "norange"], 0, False)
    one(f, url, "drip", ["drip", "good"], 0, False)
    one(f, url, "endless", ["endless"], 0, False)
    one(f, url, "cutnorange", ["cut", "endless"], 0, False)
    one(f, url, "gzip", ["gzip", "page", "nothere", "good"], 3, False)
    one(f, url, "rubbish", ["rubbish", "good"], None, False)  # no HTTP, or a connection that was lost: it depends
    asked = one(f, url, "redirects", ["loop", "tofile", "once"], 2, False)
    check(asked.count(("loop", 0)) == 4, f"three redirects at most: {asked}")
    one(f, url, "busy", ["busy"], 0, True)
    one(f, url, "noend", ["noend", "good"], 1, False)
    asked = one(f, url, "lastresort", ["page"], 1, True)
    check(len(asked) == 1, f"a mirror that was wrong is asked again where the coordinator gives all: {asked}")
    asked = one(f, url, "heads", ["heads"], 0, None)
    asked = one(f, url, "private", ["good", "http://localhost:%s/good/m" % url.rsplit(":", 1)[1], "http://[::1]:9/m"], 3, True, private=False)
    check(asked == [], f"a private address is asked: {asked}")
    process = f.node("everywrong", [f"{url}/wrong/m"] * 2 + [f"{url}/page/m"])
    line = fetched(f, "everywrong", process)
    check(line and number(line, "mirrors_dropped") == 3 and number(line, "from_coordinator") > 0, f"all wrong: {line}")
    f.stop(process)


def counted(f):
    """Of the only node that is enrolled."""
    with urllib.request.urlopen(f"http://127.0.0.1:{f.http}/status.json") as answer:
        return json.load(answer)["nodes"][0]


def traffic(f):
    """Some fetched the model from the coordinator, at the address of the node that polled: nobody's traffic of a round."""
    node = counted(f)
    check(0 < node["up"] < 1000000 and 0 < node["down"] < 1000000, f"counted for the node: {node}")


def configuration(f):
    for bad in ("file:///etc/passwd", "ftp://host/m", "http://", "http://user@host/m", "'http://host/m#x'", "host/m", "'http://ho st/m'"):
        process = f.node("bad", [bad])
        check(process.wait() in (2, 3) and "accepted: http://host/path" in f.log("bad"), f"mirrors: {bad}: {f.log('bad')[-300:]}")
        (f.folder / "bad.log").unlink()
    (f.folder / "broken.jsonl").write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "a\n')
    text = (f.folder / "bad.yaml").read_text().split("mirrors:\n")[0]
    (f.folder / "bad.yaml").write_text(text.replace("base/train.jsonl", "broken.jsonl").replace("client: cafe-02\n", ""))
    process = f.start("node", "bad")  # before hours of fetching
    check(process.wait() in (2, 3) and "data: " in f.log("bad") and "broken.jsonl:2:13: " in f.log("bad"), f"broken data: {f.log('bad')[-300:]}")
    check(f.files("bad") == [], f"it has fetched {f.files('bad')}")
    process = f.node("stranger", key="0" * 64)  # the manifest of another coordinator is none
    wait_for("the refusal", lambda: f.events("stranger", "base_unknown"))
    says(f, "stranger", r"asks for the base model; without success for \d+ s: the coordinator: public_key: not the coordinator we pinned \(coordinator_key\)$")
    check("not the coordinator we pinned" in f.log("stranger") and f.files("stranger") == [], f.log("stranger")[-500:])
    f.stop(process, signal.SIGTERM)
    first = f.node("twice", more="hours: \"\"\n")
    fetched(f, "twice", first)
    f.stop(first)


def lets_in_first(f):
    """Whoever is not let in fetches nothing, and reads why; let in, it fetches."""
    f.state = "invites"
    coordinator = f.coordinator("enrolment: invitation\nnode_max: 8\n")
    token = f.folder / "late.token"
    token.write_text("invite-" + "c7" * 32)
    token.chmod(0o600)
    process = f.node("late", own="late", more="token_file: late.token\n")
    says(f, "late", r"asks to be let in, before it fetches the base model of \d+\.\d MB; without success for \d+ s: "
         "the coordinator: invitation: unknown in this run; ask whoever runs the coordinator for another invitation")
    check(f.events("late", "enrol_refused") and f.files("late") == ["manifest.env"], f"it has {f.files('late')}: {f.log('late')}")
    f.stop(process)
    done = subprocess.run([MESHMIND, "coordinator", "ctl", "-c", f.folder / "coordinator.yaml", "invite"], capture_output=True, text=True, check=True)
    token.write_text(re.search("invite-[0-9a-f]{64}", done.stdout)[0])
    process = f.start("node", "late")
    fetched(f, "late", process)
    check(re.search(r"(?s)\benrolled\b.*\bbase_fetch\b", f.log("late")) and not f.events("late", "asks_to_join"), f.log("late"))
    f.stop(process)
    f.stop(coordinator)
    f.state = "coordinator"


def named_mirrors(f, url):
    """The coordinator names a mirror and sends nothing itself; then a node without a model takes part, in a run whose only round has not
    waited in vain for one that was killed here before."""
    f.state = "another"
    f.coordinator(f"base_transfers: 0\nmirrors: [{url}/wrong/m, {url}/good/m]\n")
    process = f.node("whole", more="checkpoint_steps: 1\n")
    line = fetched(f, "whole", process)
    check(line and number(line, "from_coordinator") == 0 and number(line, "mirrors_dropped") == 1, f"named: {line}")
    check(f.until("whole", process, "training_begin"), f"whole: {f.log('whole')[-1500:]}")
    check((f.folder / "whole" / "node.sqlite").exists() and (f.folder / f.state / "coordinator.sqlite").exists(), "no databases")
    for name in ("whole", f.state):
        private(f.folder / name)


def comes_back(f, url):
    """The coordinator sends nothing, and its only mirror is right later: it is asked again.  Who has to wait sees for what."""
    f.coordinator(f"base_transfers: 0\nmirrors: [{url}/nothere/m]\n")
    process = f.node("nobody")
    says(f, "nobody", r"base model: 0\.0 of \d+\.\d MB, from .*; without success for \d+ s: the coordinator: .*base: only mirrors have it; http://\S+/nothere/m: status 404$")
    f.stop(process)
    f.stop(f.running[-1])
    for way in ("later", "laterpage"):
        f.coordinator(f"base_transfers: 0\nmirrors: [{url}/{way}/m]\n")
        asked = one(f, url, way, [], 1, False)
        check(len(asked) > 2, f"{way}: {asked}")
        f.stop(f.running[-1])


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="omm-base-"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    f = Federation(folder)
    begin = time.monotonic()
    try:
        coordinator = f.coordinator("base_mbit: 50\n")
        coordinator = kills(f, coordinator)
        mirrors(f, url)
        traffic(f)
        configuration(f)
        f.stop(coordinator)
        lets_in_first(f)
        comes_back(f, url)
        named_mirrors(f, url)
    finally:
        f.clean()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(findings.failures)} failures in {time.monotonic() - begin:.1f} s")
    sys.exit(findings.code)


main()

#!/usr/bin/env python3
"""A base model in several files reaches nodes that do not have it: from the coordinator, killed in the middle and gone on from
where it was; from a plain HTTP server with the files; from one whose second file is wrong, which is left.  What lies in the
state folder at the end are the coordinator's files, and the node trains with them in a round that names the same base.

usage: base_split_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import functools, hashlib, http.server, json, os, pathlib, re, shutil, signal, subprocess, sys, tempfile, threading

sys.dont_write_bytecode = True
import live, split_gguf
from live import free_port, wait_for

SOURCE = pathlib.Path(sys.argv[1]).resolve()
MESHMIND = live.program(sys.argv[2:])
MODEL = SOURCE / "scenarios" / "base" / "openmeshmind-tiny-F16.gguf"
PARTS = 3
os.environ["OMM_GUEST_ROOT"] = live.NOWHERE
findings = live.Findings()
check = findings.check


class Quiet(http.server.SimpleHTTPRequestHandler):
    asked = []

    def log_message(self, form, *words):
        pass

    def do_GET(self):
        Quiet.asked.append(self.path)
        super().do_GET()


def write_files(port):
    """The model in files at the coordinator's; the same behind a mirror; and with a wrong byte in the second."""
    public = {}
    for name in ("coordinator", "bundle", "cafe-02"):
        done = subprocess.run([MESHMIND, "keygen", "--json", "--out", FOLDER / f"{name}.key"], capture_output=True, text=True, check=True)
        public[name] = json.loads(done.stdout)["public_key"]
    (FOLDER / "base").symlink_to(SOURCE / "scenarios" / "base")
    shutil.copytree(SOURCE / "scenarios" / "policies", FOLDER / "policies")
    paths = split_gguf.write(MODEL, FOLDER, "tiny", PARTS)
    for name in ("good", "wrong"):
        (FOLDER / "http" / name).mkdir(parents=True)
        for path in paths:
            shutil.copy(path, FOLDER / "http" / name)
    wrong = FOLDER / "http" / "wrong" / paths[1].name
    data = bytearray(wrong.read_bytes())
    data[len(data) // 2] ^= 1
    wrong.write_bytes(data)
    text = (SOURCE / "scenarios" / "processes.yaml").read_text().replace("rounds: 2", "rounds: 1")
    (FOLDER / "own.yaml").write_text(re.sub(r"(?m)^model: .*$", f"model: {paths[1].name}", text) + "policy: policies/service.yaml\n")
    (FOLDER / "coordinator.yaml").write_text(
        f"scenario: own.yaml\nlisten: tcp://127.0.0.1:{port}\nstate_dir: coordinator\nkey: coordinator.key\nbundle_key: bundle.key\n"
        "poll_ms: 100\nlinger_ms: 60000\nthreads: 1\nport_file: port\nbase_mbit: 60\n"
        f"nodes:\n  - {{name: cafe-02, public_key: {public['cafe-02']}}}\n")
    return public, paths


def write_node(case, port, public, mirrors=()):
    listed = "".join(f"  - {m}\n" for m in mirrors)
    (FOLDER / f"{case}.yaml").write_text(
        f"coordinator: tcp://127.0.0.1:{port}\nname: cafe-02\nstate_dir: {case}\nkey: cafe-02.key\n"
        f"coordinator_key: {public['coordinator']}\ndata: base/train.jsonl\nclient: cafe-02\nthreads: 1\npriority: normal\nanswer_ms: 1000\n"
        "private_mirrors: true\n" + ("mirrors:\n" + listed if listed else ""))


def events(case, event):
    return [line for line in live.log_of(FOLDER, case).splitlines() if re.search(rf"\b{event}\b", line)]


def number(line, key):
    return int(re.search(rf'{key}"?[=:] ?(\d+)', line)[1])


def stop(process):
    process.send_signal(signal.SIGKILL)
    process.wait()


def fetched(case, process, paths):
    """The log's line of the end, with the files as they must be."""
    wait_for(f"{case}: the model", lambda: events(case, "base_ready") or process.poll() is not None)
    check(events(case, "base_ready"), f"{case}: {live.log_of(FOLDER, case)[-1500:]}")
    digest = hashlib.blake2b(b"".join(p.read_bytes() for p in paths), digest_size=32).hexdigest()
    folder = FOLDER / case / "base"
    names = [f"{digest}-{i + 1:05d}-of-{PARTS:05d}.gguf" for i in range(PARTS)]
    check(sorted(p.name for p in folder.iterdir()) == [*names, "manifest.env"], f"{case}: {sorted(p.name for p in folder.iterdir())}")
    for name, path in zip(names, paths):
        check((folder / name).read_bytes() == path.read_bytes(), f"{case}: {name} is not {path.name}")
        check((folder / name).stat().st_mode & 0o777 == 0o600, f"{case}: {name} is not for its owner alone")
    return events(case, "base_ready")[-1]


def from_coordinator(port, public, paths):
    tap, sizes = live.Tap(port), [p.stat().st_size for p in paths]
    write_node("killed", tap.port, public)
    tap.hold(sizes[0] + sizes[1] // 2)
    process = live.start_service(MESHMIND, FOLDER, "node", "killed")
    second = lambda: next((FOLDER / "killed" / "base").glob("*-00002-of-00003.part"), None)
    wait_for("some of the second file", lambda: (p := second()) and p.stat().st_size > 300000)
    stop(process)
    check(not list((FOLDER / "killed" / "base").glob("*.gguf")), "a name before all is there")
    tap.let_go()
    process = live.start_service(MESHMIND, FOLDER, "node", "killed")
    line = fetched("killed", process, paths)
    check(0 < number(line, "from_coordinator") < sum(sizes[1:]), f"it does not go on where it was: {line}")
    stop(process)


def from_mirrors(port, public, paths):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=FOLDER / "http"))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    write_node("good", port, public, [f"{url}/good/{paths[0].name}"])
    process = live.start_service(MESHMIND, FOLDER, "node", "good")
    line = fetched("good", process, paths)
    check(number(line, "from_coordinator") == 0 and number(line, "mirrors_dropped") == 0, f"good: {line}")
    check(Quiet.asked == [f"/good/{p.name}" for p in paths], f"asked for: {Quiet.asked}")
    stop(process)
    write_node("wrong", port, public, [f"{url}/good/tiny.gguf", f"{url}/wrong/{paths[0].name}"])
    process = live.start_service(MESHMIND, FOLDER, "node", "wrong")
    line = fetched("wrong", process, paths)
    check(number(line, "mirrors_dropped") == 2, f"wrong: {line}")
    check(number(line, "from_mirrors") > paths[0].stat().st_size, f"what was right of a mirror's is thrown away: {line}")
    wait_for("a training with it", lambda: events("wrong", "training_begin") or process.poll() is not None)
    check(events("wrong", "training_begin"), f"no round: {live.log_of(FOLDER, 'wrong')[-1500:]}")
    stop(process)


FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="omm-split-"))
try:
    PORT = free_port()
    PUBLIC, PATHS = write_files(PORT)
    coordinator = live.start_service(MESHMIND, FOLDER, "coordinator", "coordinator")
    wait_for("the coordinator", lambda: (FOLDER / "port").exists() or coordinator.poll() is not None)
    check(coordinator.poll() is None, live.log_of(FOLDER, "coordinator")[-2000:])
    from_coordinator(PORT, PUBLIC, PATHS)
    from_mirrors(PORT, PUBLIC, PATHS)
    print(f"{PARTS} files of {sum(p.stat().st_size for p in PATHS)} bytes came to three nodes, from here and from mirrors")
finally:
    live.end_all()
    shutil.rmtree(FOLDER, ignore_errors=True)
sys.exit(findings.code)

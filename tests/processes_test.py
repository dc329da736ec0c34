#!/usr/bin/env python3
"""Coordinator and three nodes as processes over TCP on loopback, keys from the scenario: the run
digest is the simulator's.  Then again with kill -9 at every named stage of a round.

Third way, own_keys: over TLS, keys and certificate made by keygen, data that only its node knows, a policy for services, nodes
that wait for an answer less long than the coordinator evaluates.

usage: processes_test.py SOURCE_DIR MESHMIND [plain|kills|own_keys [FASTER_MESHMIND]]
"""
import json, os, pathlib, re, shutil, signal, socket, subprocess, sys, tempfile, time

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]), sys.argv[2]
WHAT = sys.argv[3] if len(sys.argv) > 3 else "plain"
SCENARIO = SOURCE / "scenarios" / "processes.yaml"
NODES = ["cafe-02", "studio-02", "harbor-02"]
KILLED = "cafe-02"  # the node that is killed
COORDINATOR_STAGES = ["after_offer", "mid_upload", "mid_batch", "after_receipt",
                      "mid_aggregation", "before_publish"]
NODE_STAGES = ["after_offer", "mid_training", "mid_upload", "after_receipt"]
TIME_LIMIT_S = 500
# Nodes and coordinator that die at every stage: a build without sanitizers, where there is one, starts faster.
if len(sys.argv) > 4 and pathlib.Path(sys.argv[4]).exists():
    MESHMIND = sys.argv[4]


def fail(text):
    print(text)
    sys.exit(1)


def simulate(folder):
    out = folder / "simulated"
    subprocess.run([MESHMIND, "simulate", SCENARIO, "--out", out, "--threads", "2"], check=False,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.loads((out / "manifest.json").read_text())["run_digest"]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Service:
    """One process, started again each time a stage has killed it."""

    def __init__(self, folder, kind, name, stages):
        self.folder, self.kind, self.name = folder, kind, name
        self.stages, self.kills, self.process = list(stages), [], None
        self.start()

    def start(self):
        env = dict(os.environ)
        env.pop("OMM_CRASH_AT", None)
        env["OMM_GUEST_ROOT"] = str(self.folder / "nothing")  # no load or heat of this machine pauses it
        if self.stages:
            env["OMM_CRASH_AT"] = self.stages[0]
        log = open(self.folder / f"{self.name}.log", "ab")
        self.process = subprocess.Popen(
            [MESHMIND, self.kind, "-c", self.folder / f"{self.name}.yaml"], env=env,
            stdout=log, stderr=log)
        log.close()

    def is_running(self):
        """False when it is done; starts it again when it was killed at its stage."""
        code = self.process.poll()
        if code is None:
            return True
        if code == -signal.SIGKILL and self.stages:
            self.kills.append(self.stages.pop(0))
            self.start()
            return True
        self.code = code
        return False

    def log(self):
        return (self.folder / f"{self.name}.log").read_text(errors="replace")


def write_files(folder, port):
    (folder / "coordinator.yaml").write_text(
        f"scenario: {SCENARIO}\nlisten: tcp://127.0.0.1:{port}\nstate_dir: coordinator\n"
        "poll_ms: 100\nlinger_ms: 60000\nthreads: 1\n")
    for name in NODES:
        (folder / f"{name}.yaml").write_text(
            f"coordinator: tcp://127.0.0.1:{port}\nname: {name}\nstate_dir: {name}\n"
            f"scenario: {SCENARIO}\nthreads: 1\ncheckpoint_steps: 1\n")


def write_own_files(folder, port):
    """Nodes whose public keys are enrolled; the scenario's population is not used."""
    public = {}
    for name in ("coordinator", "bundle", *NODES):
        out = subprocess.run([MESHMIND, "keygen", "--json", "--out", folder / f"{name}.key"],
                             capture_output=True, text=True, check=True).stdout
        public[name] = json.loads(out)
    subprocess.run([MESHMIND, "keygen", "--tls", "--out", folder / "tls.key"], check=True,
                   capture_output=True)
    (folder / "base").symlink_to(SOURCE / "scenarios" / "base")
    shutil.copytree(SOURCE / "scenarios" / "policies", folder / "policies")
    (folder / "own.yaml").write_text(SCENARIO.read_text() + "policy: policies/service.yaml\n")
    enrolled = "".join(f"  - {{name: {n}, public_key: {public[n]['public_key']}}}\n" for n in NODES)
    (folder / "coordinator.yaml").write_text(
        f"scenario: own.yaml\nlisten: tls+tcp://127.0.0.1:{port}\nstate_dir: coordinator\n"
        "key: coordinator.key\nbundle_key: bundle.key\n"
        "tls_certificate: tls.key.crt\ntls_key: tls.key\n"
        f"poll_ms: 100\nlinger_ms: 60000\nthreads: 1\nnodes:\n{enrolled}")
    for name in NODES:
        (folder / f"{name}.yaml").write_text(
            f"coordinator: tls+tcp://127.0.0.1:{port}\nname: {name}\nstate_dir: {name}\n"
            f"tls_certificate: tls.key.crt\nkey: {name}.key\ncoordinator_key: {public['coordinator']['public_key']}\n"
            "model: base/openmeshmind-tiny-F16.gguf\ndata: base/train.jsonl\n"
            f"client: {name}\nthreads: 1\nanswer_ms: 1000\n")  # far below an evaluation
    return public["bundle"]["minisign"]


def own_keys(folder):
    trusted = write_own_files(folder, free_port())
    digest, bundle = federate(folder, [], [], codes=(0,))
    verify = subprocess.run([MESHMIND, "verify", bundle, "--trust", trusted], capture_output=True,
                            text=True)
    if verify.returncode != 0:
        fail(verify.stdout + verify.stderr)
    if shutil.which("minisign"):  # as a stranger checks it, without our code
        check = subprocess.run(["minisign", "-V", "-P", trusted, "-m", bundle / "manifest.json"],
                               capture_output=True, text=True)
        if check.returncode != 0:
            fail("minisign: " + check.stdout + check.stderr)
    run = json.loads((bundle / "run.json").read_text())
    if run["simulated"] or run["seed"] is not None or any(n["client"] for n in run["nodes"]):
        fail("run.json says more than a service knows")
    print(f"own keys: run digest {digest}, verified with the pinned key")


def federate(folder, coordinator_stages, node_stages, codes=(0, 1)):
    services = [Service(folder, "coordinator", "coordinator", coordinator_stages)]
    services += [Service(folder, "node", n, node_stages if n == KILLED else []) for n in NODES]
    end = time.monotonic() + TIME_LIMIT_S
    try:
        while any([s.is_running() for s in services]):
            if time.monotonic() > end:
                fail("the run does not end; the coordinator's log:\n" + services[0].log()[-4000:])
            time.sleep(0.05)
    finally:
        for s in services:
            if s.process.poll() is None:
                s.process.kill()
                s.process.wait()
    # 1 only says that gates on measured files fail: a service repeats no training.
    for s in services:
        if s.code not in (codes if s.kind == "coordinator" else (0,)):
            fail(f"{s.name} ended with {s.code}:\n{s.log()[-4000:]}")
    for s, stages in ((services[0], coordinator_stages),
                      (services[1 + NODES.index(KILLED)], node_stages)):
        if s.kills != stages:
            fail(f"{s.name} was killed at {s.kills}, not at {stages}:\n{s.log()[-4000:]}")
    bundle = folder / "coordinator" / "bundle"
    return json.loads((bundle / "manifest.json").read_text())["run_digest"], bundle


def differences(a, b):
    """Files of the manifests' deterministic class that differ."""
    files = [{f["path"]: f["sha256"] for f in json.loads((d / "manifest.json").read_text())["files"]
              if f["class"].startswith("d") or f["class"] == "D"} for d in (a, b)]
    return sorted(p for p in set(files[0]) | set(files[1]) if files[0].get(p) != files[1].get(p))


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="omm-processes-"))
    try:
        if WHAT == "own_keys":
            return own_keys(folder)
        expected = simulate(folder)
        write_files(folder, free_port())
        stages = (COORDINATOR_STAGES, NODE_STAGES) if WHAT == "kills" else ([], [])
        digest, bundle = federate(folder, *stages)
        if digest != expected:
            fail(f"run digest {digest}, the simulator's is {expected}; different: "
                 f"{differences(folder / 'simulated', bundle)}")
        verify = subprocess.run([MESHMIND, "verify", bundle], capture_output=True, text=True)
        if re.search(r"(?m)^FAIL", verify.stdout) and verify.returncode not in (0, 1):
            fail(verify.stdout)
        # Whoever watches over processes may start it again: it says the verdict once more, and changes nothing.
        sealed = {p: p.read_bytes() for p in bundle.rglob("*") if p.is_file()}
        again = subprocess.run([MESHMIND, "coordinator", "-c", folder / "coordinator.yaml"], capture_output=True, text=True, timeout=120)
        if again.returncode not in (0, 1) or f"run digest  {digest}" not in again.stdout:
            fail(f"started again after the end it exits with {again.returncode}:\n{again.stdout}{again.stderr}")
        if again.returncode != (0 if "gates: pass" in again.stdout else 1):
            fail(f"exit {again.returncode}, but it says:\n{again.stdout}")
        if {p: p.read_bytes() for p in bundle.rglob("*") if p.is_file()} != sealed:
            fail("started again after the end it changed the bundle")
        print(f"{WHAT}: run digest {digest}, as simulated; kills: {sum(map(len, stages))}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()

#!/usr/bin/env python3
"""Coordinator and three nodes as processes over TCP on loopback, keys from the scenario: the run
digest is the simulator's.  Then again with kill -9 at every named stage of a round and of sealing.

Third way, own_keys: over TLS, keys and certificate made by keygen, data that only its node knows, a policy for services, nodes
that wait for an answer less long than the coordinator evaluates.

usage: processes_test.py SOURCE_DIR MESHMIND [plain|kills|own_keys [FASTER_MESHMIND]]
"""
import json, pathlib, shutil, signal, subprocess, sys

import live
from live import check

SOURCE = pathlib.Path(sys.argv[1]).resolve()
WHAT = sys.argv[3] if len(sys.argv) > 3 else "plain"
FASTER = live.program([sys.argv[2], *sys.argv[4:]])
MESHMIND = sys.argv[2] if WHAT == "plain" else FASTER  # what dies at every stage starts faster without sanitizers
SCENARIO = SOURCE / "scenarios" / "processes.yaml"
NODES = ["cafe-02", "studio-02", "harbor-02"]
KILLED = "cafe-02"  # the node that is killed
COORDINATOR_STAGES = ["after_offer", "mid_upload", "mid_batch", "after_receipt",
                      "mid_aggregation", "before_publish", "mid_seal", "seal_signed", "after_seal"]
NODE_STAGES = ["after_offer", "mid_training", "mid_upload", "after_receipt", "after_close"]
TIME_LIMIT_S = 1200


class Service:
    """One process, started again each time a stage has killed it."""

    def __init__(self, folder, kind, name, stages):
        self.folder, self.kind, self.name = folder, kind, name
        self.stages, self.kills, self.process = list(stages), [], None
        self.start()

    def start(self):
        env = {"OMM_CRASH_AT": self.stages[0]} if self.stages else {}
        self.process = live.start_service(MESHMIND, self.folder, self.kind, self.name, **env)

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
        return live.log_of(self.folder, self.name)[-4000:]


def write_files(folder, port, scenario):
    # Begun again after the end it waits for nobody who has heard of it: that would be for longer than this test takes.
    live.write_coordinator(folder, port, scenario, linger_ms=1000 * TIME_LIMIT_S)
    for name in NODES:
        live.write_node(folder, name, port, scenario=scenario, checkpoint_steps=1)


def write_own_files(folder, port):
    """Nodes whose public keys are enrolled; the scenario's population is not used."""
    public, address = live.keys(MESHMIND, folder, NODES), f"tls+tcp://127.0.0.1:{port}"
    live.run(MESHMIND, "keygen", "--tls", "--out", folder / "tls.key")
    live.ship(folder)
    live.ship_lines_of(folder, "test.jsonl", NODES, 8)  # of those who train: what three clients teach may make others worse
    # Twice the steps: keys and run seed are new each time, and what two steps teach is near the policy's limit with some of them.
    scenario = SCENARIO.read_text().replace("steps: 2", "steps: 4").replace("base/test.jsonl", "test.jsonl")
    (folder / "own.yaml").write_text(scenario + live.PATIENT + "policy: policies/service.yaml\ncontrol_uncompressed: true\n")  # which no service has, nor its bundle
    # The policy limits all bytes, and polls are most of them where a busy machine takes its time.
    live.write_coordinator(folder, port, "own.yaml", enrolled={n: public[n]["public_key"] for n in NODES}, listen=address, poll_ms=500,
                           tls_certificate="tls.key.crt", tls_key="tls.key")
    for name in NODES:
        live.write_node(folder, name, port, **live.trains(name, name, public), coordinator=address,
                        tls_certificate="tls.key.crt", answer_ms=1000)  # far below an evaluation
    return public["bundle"]["minisign"]


def repeated_by_owners(folder, bundle):
    """Who has a node's data trains its rounds again, to the same bytes; on other data they differ, and nobody else can."""
    model, data = folder / "base/openmeshmind-tiny-F16.gguf", folder / "base/train.jsonl"
    own = ["--node-data", data, "-m", model]
    rounds = [json.loads(line) for line in (bundle / "rounds.jsonl").read_text().splitlines()]
    names = {n["id"]: n["name"] for n in json.loads((bundle / "run.json").read_text())["nodes"]}
    done = {(r["round"], names[a["node"]]) for r in rounds for a in r["accepted"]}
    check(len(done) >= 3, f"accepted: {done}")
    for number, name in sorted(done):
        live.run(MESHMIND, "replay", bundle, "--node", name, "--round", number, *own, "--client", name, says=f"identical: node {name}, round {number}")
    number, name = max(done)
    other = next(n for n in NODES if n != name)
    live.run(MESHMIND, "replay", bundle, "--node", name, "--round", number, *own, "--client", other, code=1, says="DIFFERENT: ")
    live.run(MESHMIND, "replay", bundle, "--node", name, "--round", number, code=3, says="what a node trained on lies with that node")


def adapters_counted(bundle):
    """What of the bytes that passed was adapters: at least those of accepted submissions, and no envelope, poll or frame."""
    rounds = [json.loads(line) for line in (bundle / "rounds.jsonl").read_text().splitlines()]
    least = {}
    for r in rounds:
        begun = (bundle / f"adapters/r{r['round']:03}.bin").stat().st_size
        for a in r["accepted"]:
            up, down = least.get(a["node"], (0, 0))
            least[a["node"]] = (up + (bundle / "payloads" / f"{a['payload']}.bin").stat().st_size, down + begun)
    for row in json.loads((bundle / "measured" / "wire.json").read_text())["nodes"]:
        up, down = least.get(row["node"], (0, 0))
        check(up <= row["up_payload"] < row["up"] and down <= row["down_payload"] < row["down"], f"not {up} and {down} at least: {row}")


def own_keys(folder):
    trusted = write_own_files(folder, live.free_port())
    digest, bundle = federate(folder, [], [], codes=(0,))
    live.run(MESHMIND, "verify", bundle, "--trust", trusted)
    live.run(MESHMIND, "replay", bundle, "--eval", "--data", folder, says="identical: ")
    repeated_by_owners(folder, bundle)
    if shutil.which("minisign"):  # as a stranger checks it, without our code
        live.run("minisign", "-V", "-P", trusted, "-m", bundle / "manifest.json")
    adapters_counted(bundle)
    run = json.loads((bundle / "run.json").read_text())
    check(not run["simulated"] and run["seed"] is None and not any(n["client"] for n in run["nodes"]),
          "run.json says more than a service knows")
    print(f"own keys: run digest {digest}, verified with the pinned key")


def federate(folder, coordinator_stages, node_stages, codes=(0, 1)):
    services = [Service(folder, "coordinator", "coordinator", coordinator_stages)]
    services += [Service(folder, "node", n, node_stages if n == KILLED else []) for n in NODES]
    live.wait_for("the end of the run", lambda: not any([s.is_running() for s in services]), TIME_LIMIT_S, folder)
    # 1 only says that gates on measured files fail: a service repeats no training.
    for s in services:
        check(s.code in (codes if s.kind == "coordinator" else (0,)), f"{s.name} ended with {s.code}:\n{s.log()}")
    for s, stages in ((services[0], coordinator_stages),
                      (services[1 + NODES.index(KILLED)], node_stages)):
        check(s.kills == stages, f"{s.name} was killed at {s.kills}, not at {stages}:\n{s.log()}")
    bundle = folder / "coordinator" / "bundle"
    return live.run_digest(bundle), bundle


def differences(a, b):
    """Files of the manifests' deterministic class that differ."""
    files = [{f["path"]: f["sha256"] for f in json.loads((d / "manifest.json").read_text())["files"]
              if f["class"].startswith("d") or f["class"] == "D"} for d in (a, b)]
    return sorted(p for p in set(files[0]) | set(files[1]) if files[0].get(p) != files[1].get(p))


def started_again(folder, bundle, digest):
    """Whoever watches over processes may start it again: it says the verdict once more, and changes nothing."""
    sealed = {p: p.read_bytes() for p in bundle.rglob("*") if p.is_file()}
    again = subprocess.run([MESHMIND, "coordinator", "-c", folder / "coordinator.yaml"], capture_output=True, text=True, timeout=live.LIMIT_S)
    check(again.returncode in (0, 1) and f"run digest  {digest}" in again.stdout,
          f"started again after the end it exits with {again.returncode}:\n{again.stdout}{again.stderr}")
    check(again.returncode == (0 if "gates: pass" in again.stdout else 1), f"exit {again.returncode}, but it says:\n{again.stdout}")
    check({p: p.read_bytes() for p in bundle.rglob("*") if p.is_file()} == sealed, "started again after the end it changed the bundle")


def as_simulated(folder):
    scenario = live.patient(folder)
    expected = live.Simulation(FASTER, scenario, folder / "simulated").digest()
    write_files(folder, live.free_port(), scenario)
    stages = (COORDINATOR_STAGES, NODE_STAGES) if WHAT == "kills" else ([], [])
    digest, bundle = federate(folder, *stages)
    check(digest == expected, f"run digest {digest}, the simulator's is {expected}; different: "
          f"{digest != expected and differences(folder / 'simulated', bundle)}")
    live.check_verified(MESHMIND, bundle)
    started_again(folder, bundle, digest)
    print(f"{WHAT}: run digest {digest}, as simulated; kills: {sum(map(len, stages))}")


with live.workplace("processes") as folder:
    (own_keys if WHAT == "own_keys" else as_simulated)(folder)

#!/usr/bin/env python3
"""Where a coordinator listens, with real processes: `[::]` takes nodes of IPv6 and of IPv4, over TLS as well; `ipc://` is a socket in
the file system, also where a coordinator that was killed has left its own behind.

usage: urls_test.py SOURCE_DIR MESHMIND ipv6|ipc [FASTER_MESHMIND]
"""
import pathlib, socket, sys

import live
from live import check

SOURCE = pathlib.Path(sys.argv[1]).resolve()
MESHMIND = live.program([sys.argv[2], *sys.argv[4:]])
NODES = ["cafe-02", "studio-02"]
SCENARIO = """schema_version: 1
name: urls
seed: 5
model: base/openmeshmind-tiny-F16.gguf
train: base/train.jsonl
test: few.jsonl
policy: policies/service.yaml
rounds: 1
population:
  - group: two
    clients: [cafe-02, studio-02]
recipe: {rank: 2, alpha: 4, targets: "q,v", steps: 1, batch_tokens: 256, learning_rate: 0.005, warmup_steps: 1}
codec:
  up: {kind: int8, topk_fraction: 0.5}
  down: {kind: f16}
evaluation: {round_items: 4, generate: false}
audit: {submissions: 1, scalar_steps: 0}
"""


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def federate(folder, listen, coordinators, kill=False, **tls):
    """One round of two nodes, each of which knows the coordinator by its own url."""
    live.ship(folder, few=12)
    (folder / "run.yaml").write_text(SCENARIO + live.PATIENT)
    public = live.keys(MESHMIND, folder, NODES)
    live.write_coordinator(folder, 0, "run.yaml", enrolled={n: public[n]["public_key"] for n in NODES}, listen=listen, **tls)
    for name, url in zip(NODES, coordinators):
        fields = live.trains(name, name, public) | {"coordinator": url}
        live.write_node(folder, name, 0, **fields, **({"tls_certificate": tls["tls_certificate"]} if tls else {}))
    coordinator = live.start_service(MESHMIND, folder, "coordinator", "coordinator")
    if kill:
        live.wait_for("a coordinator", lambda: " listening " in live.log_of(folder, "coordinator"), logs=folder)
        live.stop(coordinator)
        coordinator = live.start_service(MESHMIND, folder, "coordinator", "coordinator")
    nodes = [live.start_service(MESHMIND, folder, "node", n) for n in NODES]
    for name, p in zip(NODES, nodes):
        check(p.wait(timeout=live.LIMIT_S) == 0, f"{name}:\n{live.log_of(folder, name)[-2000:]}")
    check(coordinator.wait(timeout=live.LIMIT_S) in (0, 1), live.log_of(folder, "coordinator")[-3000:])
    lines = (folder / "coordinator" / "bundle" / "rounds.jsonl").read_text()
    check(lines.count('"submission":') == len(NODES), f"not both have taken part: {lines}")
    live.check_verified(MESHMIND, folder / "coordinator" / "bundle", "--trust", public["bundle"]["minisign"])


def part(folder, name):
    (folder / name).mkdir()
    return folder / name


def ipv6(folder):
    if not has_ipv6():
        live.skip("there is no IPv6 on this machine")
    port = live.free_port()
    federate(part(folder, "tcp"), f"tcp://[::]:{port}", [f"tcp://[::1]:{port}", f"tcp://127.0.0.1:{port}"])
    tls = part(folder, "tls")
    live.run(MESHMIND, "keygen", "--tls", "--out", tls / "tls.key")
    federate(tls, f"tls+tcp://[::]:{port}", [f"tls+tcp://127.0.0.1:{port}", f"tls+tcp://[::1]:{port}"],
             tls_certificate="tls.key.crt", tls_key="tls.key")
    print("tcp and TLS: a node of IPv6 and one of IPv4 at one listener")


def ipc(folder):
    url = f"ipc://{folder}/door"
    federate(part(folder, "ipc"), url, [url, url], kill=True)
    print("ipc: two nodes, at the socket that a killed coordinator has left")


with live.workplace("urls") as folder:
    {"ipv6": ipv6, "ipc": ipc}[sys.argv[3]](folder)

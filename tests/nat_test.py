#!/usr/bin/env python3
"""A node behind a router that hides it: the coordinator sees the router's address and has no way to the node, which dials out.  In the
middle of its upload the node's own address becomes another one; it dials again and goes on, and the run digest is the
simulator's, over TLS.  The router is a forwarder of connections (proxy.py): to both ends it is what a NAT is.

usage: nat_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
Needs root (CAP_NET_ADMIN), ip and tc; else it is skipped with the reason.
"""
import pathlib, subprocess, sys

SOURCE = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(SOURCE / "tests" / "network"))
import live
from live import check, wait_for
from machines import Proxy, inside, network, sh

MESHMIND = live.program(sys.argv[2:])
HIDDEN, OTHERS = "cafe-02", ["studio-02", "harbor-02"]
NEXT_ADDRESS = "10.78.0.77"
UPLINK = ["rate", "1mbit", "burst", "16kb", "latency", "400ms"]
IN_THE_UPLOAD = 40_000  # bytes that it has sent by then; its submission alone has more than twice as many


def write_files(folder, outside, router):
    text = live.quick(folder).read_text().replace("rank: 2", "rank: 8").replace('targets: "q,v"', 'targets: "all"')
    (folder / "nat.yaml").write_text(text + live.PATIENT)
    live.run(MESHMIND, "keygen", "--tls", "--out", folder / "tls.key")
    # With the scenario's keys it listens to its own machine alone: there, another forwarder is its door.
    live.write_coordinator(folder, 4712, "nat.yaml", listen="tls+tcp://127.0.0.1:4712", tls_certificate="tls.key.crt", tls_key="tls.key",
                           linger_ms=120000)
    for name in (HIDDEN, *OTHERS):
        live.write_node(folder, name, 4711, scenario="nat.yaml", coordinator=f"tls+tcp://{router if name == HIDDEN else outside}:4711",
                        tls_certificate="tls.key.crt", answer_ms=4000)


def start(folder, machine, kind, name):
    return live.start(inside(machine, MESHMIND, kind, "-c", folder / f"{name}.yaml"), folder / f"{name}.log")


def reaches(machine, address):
    """Is there a way there at all?"""
    done = subprocess.run(inside(machine, "ip", "route", "get", address), capture_output=True, text=True)
    return done.returncode == 0


def peers_at(machine):
    """Addresses of those who are connected to its port 4711."""
    lines = [line.split() for line in sh(*inside(machine, "cat", "/proc/net/tcp")).splitlines()[1:]]
    address = lambda text: ".".join(str(b) for b in reversed(bytes.fromhex(text.split(":")[0])))
    return {address(f[2]) for f in lines if f[1].endswith(f":{4711:04X}") and f[3] == "01"}


def federate(folder, net, nat):
    processes = [start(folder, "coordinator", "coordinator", "coordinator")]
    wait_for("a coordinator", lambda: " listening " in live.log_of(folder, "coordinator"), logs=folder)
    processes.append(start(folder, HIDDEN, "node", HIDDEN))
    before = net.address[HIDDEN]
    seen = wait_for("a node that dialled", lambda: peers_at("coordinator"), logs=folder)
    check(seen == {net.address["router"]}, f"the coordinator sees {seen}")
    processes += [start(folder, "coordinator", "node", n) for n in OTHERS]
    wait_for("its upload", lambda: nat.sent.get(before, 0) > IN_THE_UPLOAD, logs=folder)
    net.change_address(HIDDEN, NEXT_ADDRESS)
    check("receipt" not in live.log_of(folder, HIDDEN), "its upload was over before the address changed")
    wait_for("the end of the run", lambda: not any(p.poll() is None for p in processes), logs=folder)
    check(processes[0].returncode in (0, 1) and not any(p.returncode for p in processes[1:]), [p.returncode for p in processes])
    connects = [peer for event, peer in nat.events if event == "connect"]
    check({before, NEXT_ADDRESS} == set(connects), f"connections came from {connects}")
    return len(connects)


def main(folder, net):
    router, own = net.add_behind("router", HIDDEN)
    net.limit_uplink(HIDDEN, *UPLINK)
    outside = net.address["coordinator"]
    check(not reaches("coordinator", own) and not reaches(HIDDEN, outside), "there is a way past the router")
    write_files(folder, outside, router)
    expected = live.Simulation(MESHMIND, folder / "nat.yaml", folder / "simulated").digest()
    door = Proxy("coordinator", {"listen": [outside, 4711], "to": ["127.0.0.1", 4712], "peers": {}})
    nat = Proxy("router", {"listen": [router, 4711], "to": [outside, 4711], "peers": {}})
    try:
        count = federate(folder, net, nat)
    finally:
        for proxy in (nat, door):
            proxy.process.kill()
    digest = live.run_digest(folder / "coordinator" / "bundle")
    check(digest == expected, f"run digest {digest}, the simulator's is {expected}")
    print(f"nat: {own}, then {NEXT_ADDRESS}, behind {net.address['router']}: {count} connections, the simulator's digest")


net = network(["coordinator", "router"])
try:
    with live.workplace("nat") as folder:
        main(folder, net)
finally:
    net.close()

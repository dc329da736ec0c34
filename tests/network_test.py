#!/usr/bin/env python3
"""A coordinator and eight nodes on nine machines (network namespaces) with a bad network between them: 1 Mbit/s
uplinks, round trips of 20 to 300 ms, jitter, a stall, resets, and a partition that cuts three nodes off in the
middle of their uploads and heals.  The run digest is the simulator's, over TLS; and what the interface counted
agrees with the bytes in the evidence.

usage: network_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
Needs root (CAP_NET_ADMIN), ip and tc; else it is skipped with the reason.
"""
import json, pathlib, shutil, sys, tempfile, time

SOURCE = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(SOURCE / "tests" / "network"))
import live
from live import fail
from machines import Proxy, inside, network, sh

MESHMIND = live.program(sys.argv[2:])
NODES = ["cafe-02", "studio-02", "harbor-02", "office-03", "workshop-02", "club-02", "kitchen-03", "home-02"]
CUT_OFF = NODES[3:6]  # by the partition
UPLINK = ["rate", "1mbit", "burst", "16kb", "latency", "400ms"]
PARTITION_S = 6
TIME_LIMIT_S = 600
RESETS_AT = [60_000, 150_000]
# What a calm run carries besides is compared within 2 % by wire_bytes_test.py.  What the interface may count here above the messages' own bytes: TLS records and packets sent again; a handshake and a
# request without an answer for each connection; what a reset connection carried in vain, and what was under way
# when the partition came.  Headers of Ethernet, IP and TCP are taken off by the packet.
HEADERS_BYTES = 14 + 20 + 32
SHARE_MAX, PER_CONNECTION_MAX, UNDER_WAY_MAX = 1.06, 4096, 65536


def write_files(folder, address):
    (folder / "base").symlink_to(SOURCE / "scenarios" / "base")
    live.ship_lines_of(folder, "train.jsonl", NODES)
    live.ship_lines_of(folder, "test.jsonl", NODES, 2)
    text = live.quicker((SOURCE / "scenarios" / "processes.yaml").read_text()).replace("base/test.jsonl", "test.jsonl").replace("base/train.jsonl", "train.jsonl")
    text = text.replace("[cafe-02, studio-02, harbor-02]", f"[{', '.join(NODES)}]")
    text = text.replace("rank: 2", "rank: 8").replace('targets: "q,v"', 'targets: "all"')
    (folder / "network.yaml").write_text(text + live.PATIENT)
    sh(MESHMIND, "keygen", "--tls", "--out", folder / "tls.key")
    (folder / "coordinator.yaml").write_text(
        "scenario: network.yaml\nlisten: tls+tcp://127.0.0.1:4712\nstate_dir: coordinator\nthreads: 1\n"
        "tls_certificate: tls.key.crt\ntls_key: tls.key\npoll_ms: 500\nlinger_ms: 120000\n")
    for name in NODES:
        (folder / f"{name}.yaml").write_text(
            f"coordinator: tls+tcp://{address}:4711\ntls_certificate: tls.key.crt\nname: {name}\n"
            f"state_dir: {name}\nscenario: network.yaml\nthreads: 1\npriority: normal\nanswer_ms: 15000\n")


def start(folder, machine, *args):
    return live.start(inside(machine, *args), folder / f"{machine}.log")


def bad_network(net):
    rtt_ms = {name: 20 + 40 * i for i, name in enumerate(NODES)}  # 20 .. 300
    peers = {net.address[n]: {"delay_ms": rtt_ms[n] / 2, "jitter_ms": rtt_ms[n] / 8} for n in NODES}
    peers[net.address[NODES[1]]]["reset_at"] = RESETS_AT
    peers[net.address[NODES[2]]].update(stall_at=80_000, stall_s=5)
    return Proxy("coordinator", {"listen": [net.address["coordinator"], 4711], "to": ["127.0.0.1", 4712], "peers": peers})


def federate(folder, net, proxy):
    """Until all have ended; the partition comes when the first of those it cuts off is in its upload."""
    processes = {"coordinator": start(folder, "coordinator", MESHMIND, "coordinator", "-c", folder / "coordinator.yaml")}
    for name in NODES:
        processes[name] = start(folder, name, MESHMIND, "node", "-c", folder / f"{name}.yaml")
    end, healed_at, partitions = time.monotonic() + TIME_LIMIT_S, None, 0
    try:
        while any(p.poll() is None for p in processes.values()):
            if time.monotonic() > end:
                fail("the run does not end; the coordinator's log:\n"
                     + (folder / "coordinator.log").read_text()[-4000:])
            if partitions == 0 and max(proxy.sent.get(net.address[n], 0) for n in CUT_OFF) > 40_000:
                for name in CUT_OFF:
                    net.set_link(name, "down")
                partitions, healed_at = 1, time.monotonic() + PARTITION_S
            if healed_at and time.monotonic() > healed_at:
                healed_at = None
                for name in CUT_OFF:
                    net.set_link(name, "up")
            time.sleep(0.05)
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.kill()
    for name, process in processes.items():
        if process.returncode not in ((0, 1) if name == "coordinator" else (0,)):
            fail(f"{name} ended with {process.returncode}:\n{(folder / f'{name}.log').read_text()[-4000:]}")
    return partitions


def check_bytes(folder, net, proxy):
    """The interface of the coordinator's machine against measured/wire.json, in both directions."""
    wire = json.loads((folder / "coordinator/bundle/measured/wire.json").read_text())["nodes"]
    seen, connections = net.counters("coordinator"), proxy.count("connect")
    for direction, bytes_key, packets_key in (("up", "rx_bytes", "rx_packets"), ("down", "tx_bytes", "tx_packets")):
        counted = sum(n[direction] for n in wire)
        carried = seen[bytes_key] - HEADERS_BYTES * seen[packets_key]
        print(f"{direction}: evidence {counted}, interface {carried} without headers ({seen[bytes_key]} with), "
              f"{carried / counted:.3f}")
        lost = RESETS_AT[-1] + UNDER_WAY_MAX * len(CUT_OFF)
        if not counted <= carried <= SHARE_MAX * counted + PER_CONNECTION_MAX * connections + lost:
            fail(f"{direction}: the evidence has {counted} bytes, the interface {carried} over {connections} connections")


def not_in(bundle):
    """Names of the nodes whose submission is not in a round."""
    names = {n["id"]: n["name"] for n in json.loads((bundle / "run.json").read_text())["nodes"]}
    rounds = [json.loads(line) for line in (bundle / "rounds.jsonl").read_text().splitlines()]
    return [sorted(set(names.values()) - {names[a["node"]] for a in r["accepted"]}) for r in rounds]


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="omm-network-"))
    net = network(["coordinator", *NODES])
    proxy = None
    try:
        for name in NODES:
            net.limit_uplink(name, *UPLINK)
        write_files(folder, net.address["coordinator"])
        simulation = live.Simulation(MESHMIND, folder / "network.yaml", folder / "simulated")
        proxy = bad_network(net)
        begin = time.monotonic()
        partitions = federate(folder, net, proxy)
        took_s = time.monotonic() - begin
        digest, expected = live.run_digest(folder / "coordinator/bundle"), simulation.digest()
        if digest != expected:
            fail(f"run digest {digest}, the simulator's is {expected}; not in, by round: {not_in(folder / 'coordinator/bundle')}")
        faults = {"partition": partitions, "reset": proxy.count("reset"), "stall": proxy.count("stall")}
        if faults != {"partition": 1, "reset": 2, "stall": 1}:
            fail(f"not every fault happened: {faults}")
        if proxy.count("connect") <= len(NODES):
            fail("nobody had to connect again")
        check_bytes(folder, net, proxy)
        print(f"{len(NODES)} nodes, {proxy.count('connect')} connections, {faults}, {took_s:.0f} s: run digest "
              f"{digest}, as simulated")
    finally:
        if proxy:
            proxy.process.kill()
        net.close()
        shutil.rmtree(folder, ignore_errors=True)


main()

"""Machines of one test: network namespaces on a bridge of their own; nothing of this machine's network is used.

Needs root (CAP_NET_ADMIN), ip and tc; else `network` skips the test with the reason.
"""
import json, os, pathlib, re, shutil, subprocess, sys, threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import live

PREFIX = f"omm{os.getpid()}"


def sh(*args, check=True):
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, args))}: {done.stderr.strip()}")
    return done.stdout


def inside(machine, *args):
    return ["ip", "netns", "exec", f"{PREFIX}-{machine}", *map(str, args)]


class Network:
    """One namespace a machine, each on a bridge in a namespace of its own; `address` by machine."""

    def __init__(self, machines):
        self.address, self.names = {}, ["switch", *machines]
        for name in self.names:
            sh("ip", "netns", "add", f"{PREFIX}-{name}")
        sh(*inside("switch", "ip", "link", "add", "bridge", "type", "bridge"))
        sh(*inside("switch", "ip", "link", "set", "bridge", "up"))
        for i, name in enumerate(machines):
            port = f"port{i}"
            self.address[name] = f"10.77.0.{i + 1}"
            sh(*inside("switch", "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns",
                       f"{PREFIX}-{name}"))
            sh(*inside("switch", "ip", "link", "set", port, "master", "bridge", "up"))
            sh(*inside(name, "ip", "link", "set", "lo", "up"))
            sh(*inside(name, "ip", "addr", "add", f"{self.address[name]}/24", "dev", "eth0"))
            sh(*inside(name, "ip", "link", "set", "eth0", "up"))
        self.port = {name: f"port{i}" for i, name in enumerate(machines)}

    def add_behind(self, router, name):
        """A machine on a wire of its own to `router`, which passes no packet on: it can be reached from nowhere else, and
        reaches nobody else.  The two addresses on that wire: the router's, its own."""
        ends = "10.78.0.1", "10.78.0.2"
        self.names.append(name)
        sh("ip", "netns", "add", f"{PREFIX}-{name}")
        sh(*inside(router, "ip", "link", "add", "behind", "type", "veth", "peer", "name", "eth0", "netns", f"{PREFIX}-{name}"))
        for machine, device, address in ((router, "behind", ends[0]), (name, "eth0", ends[1]), (name, "lo", "127.0.0.1")):
            sh(*inside(machine, "ip", "addr", "add", f"{address}/24", "dev", device))
            sh(*inside(machine, "ip", "link", "set", device, "up"))
        self.address[name] = ends[1]
        return ends

    def change_address(self, name, address):
        """Another one instead of the one that it has."""
        sh(*inside(name, "ip", "addr", "del", f"{self.address[name]}/24", "dev", "eth0"))
        sh(*inside(name, "ip", "addr", "add", f"{address}/24", "dev", "eth0"))
        self.address[name] = address

    def limit_uplink(self, name, *rate):
        sh(*inside(name, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *rate))

    def set_link(self, name, state):
        sh(*inside("switch", "ip", "link", "set", self.port[name], state))

    def counters(self, name):
        out = {}
        for what in ("rx_bytes", "rx_packets", "tx_bytes", "tx_packets"):
            out[what] = int(sh(*inside(name, "cat", f"/sys/class/net/eth0/statistics/{what}")))
        return out

    def tcp(self, name):
        """What its kernel counts of TCP (RFC 4022), by name: RetransSegs, PassiveOpens ..."""
        lines = [line.split()[1:] for line in sh(*inside(name, "cat", "/proc/net/snmp")).splitlines() if line.startswith("Tcp:")]
        return dict(zip(lines[0], map(int, lines[1])))

    def close(self):
        for name in self.names:
            sh("ip", "netns", "del", f"{PREFIX}-{name}", check=False)


class Proxy:
    """proxy.py on a machine: `sent` by address of a peer, and what happened."""

    def __init__(self, machine, config):
        self.process = subprocess.Popen(inside(machine, sys.executable, pathlib.Path(__file__).with_name("proxy.py"), json.dumps(config)),
                                        stdout=subprocess.PIPE, text=True)
        self.sent, self.events = {}, []
        self.process.stdout.readline()  # it listens
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] == "sent":
                self.sent[event["peer"]] = event["bytes"]
            else:
                self.events.append((event["event"], event["peer"]))

    def count(self, kind):
        return sum(1 for event, _ in self.events if event == kind)


def remove_left_over():
    """Of runs that were killed: namespaces named after a process that is no more."""
    for name in sh("ip", "netns", "list", check=False).split():
        match = re.fullmatch(r"omm(\d+)-.*", name)
        if match and not pathlib.Path(f"/proc/{match[1]}").exists():
            sh("ip", "netns", "del", name, check=False)


def network(machines):
    for tool in ("ip", "tc"):
        if not shutil.which(tool):
            live.skip(f"there is no {tool} here (package iproute2)")
    remove_left_over()
    try:
        return Network(machines)
    except RuntimeError as why:
        for name in ("switch", *machines):
            sh("ip", "netns", "del", f"{PREFIX}-{name}", check=False)
        live.skip(f"network namespaces are not to be had here: {why}")

#!/usr/bin/env python3
"""Peers that never come as far as a request, on a listener without TLS and on one with it: who says nothing, half a hello, half a
handshake, half a frame byte by byte, rubbish, or asks and asks and does not read.  Each has one place and no thread of the
coordinator's, and is closed in the time that docs/service.md says; and meanwhile, and while others break off before the greeting,
a run goes on to the simulator's digest.

usage: hostile_test.py SOURCE_DIR MESHMIND tcp|tls [FASTER_MESHMIND]
"""
import contextlib, http.client, json, pathlib, random, re, socket, ssl, struct, sys, threading, time

import hostile_peers as hp
import live
from live import check, wait_for

MESHMIND, WHAT = live.program([sys.argv[2], *sys.argv[4:]]), sys.argv[3]
NODES = ["cafe-02", "studio-02", "harbor-02"]
IDLE_S = 3  # strangers_idle_ms
ADDRESSES, PER_ADDRESS = 12, hp.PER_ADDRESS
BROKEN = 30  # of them some are sure to have gone before the coordinator greets
STARVED_S = 100  # for which a busy machine may let a process stand still
TRUSTING = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TRUSTING.check_hostname, TRUSTING.verify_mode = False, ssl.CERT_NONE


# ---- peers ------------------------------------------------------------------------------------------

def client_hello():
    out = ssl.MemoryBIO()
    try:
        TRUSTING.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    except ssl.SSLWantReadError:
        return out.read()


REQUEST = struct.pack(">QI", 14, 1 << 31) + b"\xff" * 10
FRAME = struct.pack(">QI", 500, 1 << 31) + bytes(400)  # less than it says
# What is sent at once, what a byte at a time, after a handshake or without one; is it closed before its time?  With TLS a listener
# hears the first of these as rubbish, and closes at once.
PEERS = {
    "silent": (False, b"", b"", False),
    "half a hello": (True, hp.HELLO[:4], b"", False),
    "hello and silence": (True, hp.HELLO, b"", False),
    "half a frame": (True, hp.HELLO, FRAME, False),
    "rubbish": (False, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"", True),
    "a frame too long": (True, hp.HELLO + struct.pack(">QI", 1 << 40, 1 << 31), b"", True),
    "a flood": (True, hp.HELLO + REQUEST * 500, b"", True),
}
TLS_PEERS = {
    "half a handshake": (False, client_hello()[:100], b"", False),
    "a handshake byte by byte": (False, b"", client_hello()[:-1], False),
    "a handshake that stops": (False, client_hello(), b"", False),
    "a handshake and silence": (True, b"", b"", False),
    "no TLS": (False, hp.HELLO, b"", True),
}


class Peer:
    def __init__(self, kind, port, source):
        self.kind, self.closed_at, self.at = kind, None, 0
        shakes, said, self.drips, self.is_early = (PEERS | TLS_PEERS)[kind]
        self.began = time.monotonic()
        self.s = socket.create_connection(("127.0.0.1", port), STARVED_S, source_address=(source, 0))
        try:
            if shakes and WHAT == "tls":
                self.s = TRUSTING.wrap_socket(self.s)
            self.s.sendall(said)
            self.s.setblocking(False)
        except OSError:
            self.end()

    def end(self):
        self.closed_at = time.monotonic()
        self.s.close()

    def look(self):
        """Says a byte more, or the same again, and reads what there is.  True: it has been closed."""
        try:
            if self.closed_at is None and self.kind == "a flood":
                self.s.send(REQUEST)
            elif self.closed_at is None:
                self.s.send(self.drips[self.at:self.at + 1])
                self.at += 1
                while self.s.recv(4096):
                    pass
                self.end()
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError:
            self.end()
        return self.closed_at is not None


def peers_of(port, network):
    """So many of each address as it may have, every kind among them."""
    kinds = [*PEERS, *(TLS_PEERS if WHAT == "tls" else ())]
    return [Peer(kinds[i % len(kinds)], port, f"127.0.{network}.{1 + i // PER_ADDRESS}") for i in range(ADDRESSES * PER_ADDRESS)]


def greet_and_go(port):
    """Over TLS, without a word of farewell: its end comes in the middle of the coordinator's greeting."""
    with TRUSTING.wrap_socket(socket.create_connection(("127.0.0.1", port), STARVED_S, source_address=("127.0.9.201", 0))) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.sendall(hp.HELLO)


def cut_off(port, rng):
    """A hello, whole or changed or cut, and gone: with a close or a reset, and with half of it closed before or not."""
    hello = bytearray(client_hello() if WHAT == "tls" else hp.HELLO + REQUEST)
    hello[rng.randrange(len(hello))] ^= rng.choice([0, 1 << rng.randrange(8)])
    with socket.create_connection(("127.0.0.1", port), STARVED_S, source_address=(f"127.0.9.{rng.randrange(202, 250)}", 0)) as s:
        s.sendall(hello[:rng.randrange(len(hello) + 1)])
        time.sleep(rng.choice([0, 0.003 * rng.random()]))
        if rng.random() < 0.5:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if rng.random() < 0.5:
            s.shutdown(socket.SHUT_WR)


class Siege(threading.Thread):
    """They come again and again until `stop`."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.stop, self.count = port, threading.Event(), 0
        self.broken, self.rng = 0, random.Random(5)

    def run(self):
        all_of_them = []
        while not self.stop.wait(0.05):
            if not all_of_them:
                with contextlib.suppress(OSError):  # the coordinator has ended
                    all_of_them = peers_of(self.port, 9)
                    self.count += len(all_of_them)
            all_of_them = [p for p in all_of_them if not p.look()]
            with contextlib.suppress(OSError):
                self.broken += 1
                if WHAT == "tcp" or self.broken % 2:
                    hp.break_off(self.port, "127.0.9.200")
                else:
                    greet_and_go(self.port)
                for _ in range(5):
                    cut_off(self.port, self.rng)


# ---- the coordinator, seen from outside ---------------------------------------------------------------

class Threads(threading.Thread):
    """How many the process has at most, from one word to the next."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.status, self.most = pathlib.Path(f"/proc/{pid}/status"), 0
        self.start()

    def run(self):
        with contextlib.suppress(OSError, TypeError):  # it has ended
            while True:
                self.most = max(self.most, int(re.search(r"Threads:\s+(\d+)", self.status.read_text())[1]))
                time.sleep(0.01)

    def so_far(self):
        most, self.most = self.most, 0
        return most


def metrics(folder):
    c = http.client.HTTPConnection("127.0.0.1", int((folder / "http_port").read_text()), timeout=STARVED_S)
    c.request("GET", "/metrics")
    text = c.getresponse().read().decode()
    c.close()
    turned = dict(re.findall(r'connections_turned_away_total\{reason="(\w+)"\} (\d+)', text))
    gauge = lambda name: int(re.search(rf"(?m)^meshmind_{name} (\d+)$", text)[1])
    return {n: int(c) for n, c in turned.items()}, {n: gauge(n) for n in ("strangers", "connections", "connections_stuck")}


def write_files(folder, port):
    tls = {"tls_certificate": "tls.key.crt"} if WHAT == "tls" else {}
    address = f"{'tls+' if tls else ''}tcp://127.0.0.1:{port}"
    scenario = live.patient(folder)
    live.run(MESHMIND, "keygen", "--tls", "--out", folder / "tls.key")
    live.write_coordinator(folder, port, scenario, listen=address, http="127.0.0.1:0", http_port_file="http_port",
                           strangers_idle_ms=1000 * IDLE_S, **tls, **({"tls_key": "tls.key"} if tls else {}))
    for name in NODES:
        live.write_node(folder, name, port, scenario=scenario, coordinator=address, answer_ms=5000, **tls)
    return scenario


def closed_in_time(folder, port, threads):
    """All at once: each is counted, is closed after its time where it was given one, and has cost no thread."""
    calm = threads.so_far()
    peers = peers_of(port, 8)
    turned, now = wait_for("a place of each", lambda: (lambda t, n: n["strangers"] + sum(t.values()) >= len(peers) and (t, n))(*metrics(folder)))
    check(now["strangers"] + sum(turned.values()) == len(peers), f"{len(peers)} peers, and {now}, {turned}")
    now_at_once, end = now["strangers"], time.monotonic() + STARVED_S
    while not all([p.look() for p in peers]):
        check(time.monotonic() < end, "not closed:", {p.kind for p in peers if p.closed_at is None})
        time.sleep(0.02)
    for p in peers:
        took = p.closed_at - p.began
        check(p.is_early or took >= IDLE_S, f"{p.kind}: closed after {took:.2f} s, before its {IDLE_S} s")
    turned, now = wait_for("no stranger", lambda: (lambda t, n: (t, n) if n["strangers"] == n["connections_stuck"] == 0 else None)(*metrics(folder)))
    quiet = [p for p in peers if not p.is_early]
    check(turned["idle"] == len(quiet), f"{len(quiet)} had to go because they proved nothing, and not {turned}")
    check(sum(turned.values()) == len(peers), f"{len(peers)} peers: {turned}")
    most = threads.so_far()
    check(most == calm, f"{calm} threads, and {most} with {len(peers)} peers")
    took = {p.kind: round(p.closed_at - p.began, 1) for p in peers}
    print(f"{WHAT}: {len(peers)} peers, {now_at_once} at once, {most} threads; closed after s: {took}; {turned}")
    return calm


def run_under_siege(folder, port, processes, threads, expected):
    siege = Siege(port)
    siege.start()
    wait_for("a siege", lambda: siege.count > 0 and siege.broken >= BROKEN)
    processes += [live.start_service(MESHMIND, folder, "node", n) for n in NODES[1:]]
    wait_for("the end of the run", lambda: not any(p.poll() is None for p in processes), logs=folder)
    siege.stop.set()
    check([p.returncode for p in processes[1:]] == [0] * len(NODES) and processes[0].returncode in (0, 1), [p.returncode for p in processes])
    digest = live.run_digest(folder / "coordinator" / "bundle")
    check(digest == expected(), f"run digest {digest}, the simulator's is {expected()}")
    return siege.count, threads.so_far()


with live.workplace(f"hostile-{WHAT}") as folder:
    scenario = write_files(folder, port := live.free_port())
    expected = live.Simulation(MESHMIND, scenario, folder / "simulated").digest()
    coordinator = live.start_service(MESHMIND, folder, "coordinator", "coordinator")
    node = live.start_service(MESHMIND, folder, "node", NODES[0])
    wait_for("a page", (folder / "http_port").exists)
    wait_for("an honest node", lambda: metrics(folder)[1]["connections"] == 1 and metrics(folder)[1]["strangers"] == 0, logs=folder)
    threads = Threads(coordinator.pid)
    wait_for("its threads", lambda: threads.most)
    time.sleep(0.5)
    calm = closed_in_time(folder, port, threads)
    count, most = run_under_siege(folder, port, [coordinator, node], threads, lambda: expected)
    check(most <= calm + 1, f"{calm} threads and one that sums up, and {most} under siege")
    print(f"{WHAT}: a run beside {count} of them, {most} threads: the simulator's digest")

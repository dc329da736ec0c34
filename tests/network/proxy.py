#!/usr/bin/env python3
"""A TCP proxy that is a bad network: latency and jitter both ways, stalls, and connections that are reset.

usage: proxy.py '{"listen": ["10.0.0.1", 4711], "to": ["127.0.0.1", 4712], "peers": {"10.0.0.11": {
    "delay_ms": 20, "jitter_ms": 5, "reset_at": [50000, 90000], "stall_at": 70000, "stall_s": 3}}}'

Counts are of bytes that a peer has sent since the proxy began, over all its connections.  Order within a
connection is kept, as TCP keeps it.  Writes one JSON object a line to stdout: {"event": "listening"}, then
"connect", "reset", "stall" with the peer, and "sent" with each peer's count after every 4096 bytes.
"""
import asyncio, contextlib, json, random, socket, struct, sys

CONFIG = json.loads(sys.argv[1])
PIECE = 1448  # of one packet: what is delayed together
QUEUE = 64    # pieces on the way in one direction; then the sender waits, as with a full window


def say(event, peer=None, **more):
    print(json.dumps({"event": event, "peer": peer, **more}), flush=True)


class Peer:
    def __init__(self, address, options):
        self.address, self.sent, self.told = address, 0, 0
        self.delay, self.jitter = options.get("delay_ms", 0) / 1e3, options.get("jitter_ms", 0) / 1e3
        self.resets = list(options.get("reset_at", []))
        self.stall_at, self.stall_s = options.get("stall_at"), options.get("stall_s", 0)
        self.random = random.Random(address)  # faults fall where they fell the last time

    def wait_s(self):
        return self.delay + self.random.uniform(-self.jitter, self.jitter)

    def count(self, size):
        """What happens at this byte: "reset", "stall" or nothing."""
        self.sent += size
        if self.sent - self.told >= 4096:
            self.told = self.sent
            say("sent", self.address, bytes=self.sent)
        if self.resets and self.sent >= self.resets[0]:
            self.resets.pop(0)
            return "reset"
        if self.stall_at is not None and self.sent >= self.stall_at:
            self.stall_at = None
            return "stall"
        return None


def reset(writer):
    """RST instead of FIN, as a machine that lost its memory sends it."""
    with contextlib.suppress(OSError):  # it has gone by itself
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Reset(Exception):
    pass


async def carry(reader, writer, peer, is_up):
    loop, queue = asyncio.get_running_loop(), asyncio.Queue(QUEUE)

    async def deliver():
        while (item := await queue.get()) is not None:
            due, data = item
            await asyncio.sleep(max(0, due - loop.time()))
            writer.write(data)
            await writer.drain()
        writer.write_eof() if writer.can_write_eof() else None

    delivery = asyncio.create_task(deliver())
    due = 0
    try:
        while data := await reader.read(PIECE):
            fault = peer.count(len(data)) if is_up else None
            if fault == "reset":
                raise Reset
            if fault == "stall":
                say("stall", peer.address)
                due = loop.time() + peer.stall_s
            due = max(due, loop.time() + max(0, peer.wait_s()))
            await queue.put((due, data))
        await queue.put(None)
        await delivery
    finally:
        delivery.cancel()


async def serve(reader, writer):
    address = writer.get_extra_info("peername")[0]
    peer = PEERS.setdefault(address, Peer(address, CONFIG["peers"].get(address, {})))
    say("connect", address)
    try:
        down_reader, down_writer = await asyncio.open_connection(*CONFIG["to"])
    except OSError:  # nobody listens there (yet): the dialling side sees a reset
        reset(writer)
        return
    tasks = [asyncio.create_task(carry(reader, down_writer, peer, True)),
             asyncio.create_task(carry(down_reader, writer, peer, False))]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    if any(isinstance(t.exception(), Reset) for t in done if not t.cancelled()):
        say("reset", address)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for w in (writer, down_writer):
        reset(w)


async def main():
    server = await asyncio.start_server(serve, *CONFIG["listen"])
    say("listening")
    async with server:
        await server.serve_forever()


PEERS = {}
try:
    asyncio.run(main())
except KeyboardInterrupt:
    pass

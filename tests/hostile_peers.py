"""Peers that mean harm, for soak_test.py, probation_test.py and poison_test.py: they speak the protocol with the second implementation
(protocol_peer.py) and break it on purpose.  What they are told is decoded strictly, and counted."""
import random, socket, struct, threading, time

import live, protocol_peer as pp

HELLO, HELLO_BACK = b"\0SP\0\0\x30\0\0", b"\0SP\0\0\x31\0\0"
ANSWER_S = 20
PER_ADDRESS = 8  # strangers_per_address


class Wire:
    """A request and its reply, over SP on TCP."""

    def __init__(self, port, source):
        self.s = socket.create_connection(("127.0.0.1", port), ANSWER_S, source_address=(source, 0))
        self.s.sendall(HELLO)
        self.id = 0
        self.read(8)

    def read(self, size):
        got = b""
        while len(got) < size:
            part = self.s.recv(size - len(got))
            if not part:
                raise ConnectionError("closed")
            got += part
        return got

    def ask(self, body):
        self.id += 1
        self.s.sendall(struct.pack(">QI", len(body) + 4, self.id | 1 << 31) + body)
        size = struct.unpack(">Q", self.read(8))[0]
        assert 4 < size <= pp.MESSAGE_MAX + 4, f"a reply of {size} bytes"
        return self.read(size)[4:]

    def close(self):
        self.s.close()


def bodies(data, hello, first=0):
    """What was said one way in what a listener kept of connections, one after the other, that began with `hello`; from the
    connection number `first` on."""
    for stream in bytes(data).split(hello)[1 + first:]:
        at = 0
        while at + 12 <= len(stream):
            end = at + 8 + struct.unpack_from(">Q", stream, at)[0]
            if end > len(stream):
                break  # the connection broke in it
            yield stream[at + 12:end]
            at = end


def recorded(data, kind):
    """Bodies of the requests of this kind in what a listener kept."""
    return [body for body in bodies(data, HELLO) if kind in pp.decode("Request", body)]


class Member:
    """A node, or who wants to be one, that does what the test says.  key: as pp.key_from_seed gives it."""

    def __init__(self, port, key):
        self.port, self.key, self.wire, self.counter = port, key, None, 0

    def ask(self, **body):
        request, end = pp.encode("Request", {"version": 1, **body}), time.monotonic() + live.LIMIT_S
        while True:  # over kills of the coordinator: the same bytes again
            try:
                if self.wire is None:
                    self.wire = Wire(self.port, "127.0.0.1")
                return pp.decode("Reply", self.wire.ask(request))
            except OSError:
                self.wire = None
                live.check(time.monotonic() < end, "no coordinator answers")
                time.sleep(0.1)

    def poll(self):
        while True:
            self.counter += 1
            got = self.ask(poll=pp.seal("poll", pp.encode("Poll", {"version": 1, "counter": self.counter}), self.key))
            if got.get("refused", {}).get("reason") != "REFUSED_DUPLICATE":
                return got
            self.counter += pp.COUNTER_BLOCK  # the coordinator began again

    def until(self, wanted, ask):
        """While it sums up or evaluates, a coordinator answers nobody but with "wait"."""
        return live.wait_for(wanted, lambda: ask().get(wanted))

    def submission(self, offer, payload, **changed):
        """For the offer in this envelope, with this payload before zstd: all that it must have, but for the training.  Envelope, bytes as sent."""
        o = pp.decode("Offer", pp.open_envelope("offer", offer)[1])
        steps = struct.unpack_from("<I", o["recipe"], 28)[0]
        sent, zeros = b"\0" + payload, pp.blake(bytes(4 * o["adapter"]["value_count"]))
        s = {"version": 1, "run_id": o["run_id"], "round": o["round"], "nonce": o["nonce"], "offer_digest": pp.blake(offer),
             "base_digest": o["base_digest"], "global_digest": o["global"]["digest"], "tokens": 400, "examples": 24, "steps": steps,
             "loss_before": 3.0, "loss_after": 2.0, "codec": o["codec_up"], "data_commitment": pp.blake(b"data"),
             "residual_before": zeros, "residual_after": zeros, "step_digests": bytes(8 * steps),
             "payload": {"digest": pp.blake(sent), "canonical_digest": pp.blake(payload), "size": len(sent),
                         "chunk_digests": [pp.blake(sent[i:i + pp.CHUNK]) for i in range(0, len(sent), pp.CHUNK)]}}
        return pp.seal("submission", pp.encode("Submission", {**s, **changed}), self.key), sent

    def give(self, submit, sent):
        """Announces it and uploads it; the answer to the last chunk."""
        missing = self.until("need", lambda: self.ask(submit=submit))["missing"]
        return [self.ask(put={"digest": pp.blake(sent), "index": i, "data": sent[i * pp.CHUNK:(i + 1) * pp.CHUNK]}) for i in missing][-1]

    def verdict(self, submit):
        got = self.ask(submit=submit)
        return got.get("receipt") and pp.decode("Receipt", pp.open_envelope("receipt", got["receipt"])[1])


# ---- mutations that know the structure ------------------------------------------------------------

def split(data):
    """Top-level fields as (tag, kind, body); None where it is no message."""
    out, at = [], 0
    try:
        while at < len(data):
            tag, at = pp.read_varint(data, at)
            kind = tag & 7
            if kind == 0:
                value, at = pp.read_varint(data, at)
            elif kind == 5:
                value, at = data[at:at + 4], at + 4
            elif kind == 2:
                size, at = pp.read_varint(data, at)
                value, at = data[at:at + size], at + size
                if at > len(data):
                    return None
            else:
                return None
            out.append((tag >> 3, kind, value))
        return out
    except (pp.Refused, IndexError):
        return None


def join(fields, wide=None):
    """`wide`: the field whose number is spelled longer than needed."""
    out = b""
    for i, (number, kind, value) in enumerate(fields):
        head = pp.varint(number << 3 | kind)
        if i == wide:
            head = head[:-1] + bytes([head[-1] | 0x80, 0])
        out += head + (pp.varint(value) if kind == 0 else value if kind == 5 else pp.varint(len(value)) + value)
    return out


def mutate(rng, data, depth=0):
    fields = split(data)
    if not fields or rng.random() < 0.15:
        return flip(rng, data)
    i = rng.randrange(len(fields))
    number, kind, value = fields[i]
    if kind == 2 and depth < 4 and len(value) > 2 and rng.random() < 0.6:
        return join(fields[:i] + [(number, kind, mutate(rng, value, depth + 1))] + fields[i + 1:])
    how = rng.randrange(10)
    if how == 0:
        del fields[i]
    elif how == 1:
        fields.insert(rng.randrange(len(fields) + 1), fields[i])
    elif how == 2:
        rng.shuffle(fields)
    elif how == 3:
        return join(fields, wide=i)
    elif how == 4:
        fields[i] = (rng.choice([0, 19, 31, 2**28]) + number, kind, value)
    elif how == 5:
        fields[i] = (number, 0, rng.choice([0, 1, 2**31, 2**32, 2**63, 2**64 - 1]))
    elif how == 6 and kind == 2:
        fields[i] = (number, 2, value + bytes(rng.choice([1, 31, 300, 70000])))
    elif how == 7 and kind == 2:
        fields[i] = (number, 2, value[:rng.randrange(len(value) + 1)])
    elif how == 8:  # a length that points behind the end
        return join(fields[:i]) + pp.varint(number << 3 | 2) + pp.varint(rng.choice([2**20, 2**31, 2**63])) + b"x"
    else:
        return join(fields) + pp.varint(rng.randrange(1, 2**29) << 3 | rng.randrange(8)) + b"\x01"
    return join(fields)


def flip(rng, data):
    data = bytearray(data or b"\0")
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data[:rng.randrange(1, len(data) + 1)] if rng.random() < 0.2 else data)


# ---- what is counted ------------------------------------------------------------------------------

def refusal_of(reply):
    """Why a Reply refuses, by a word or by a receipt; None where it does not."""
    if "refused" in reply:
        return reply["refused"]["reason"]
    if "receipt" not in reply:
        return None
    receipt = pp.decode("Receipt", pp.decode("Envelope", reply["receipt"])["payload"])
    return None if receipt["accepted"] else receipt["reason"]


class Refusals:
    """What peers were told by one process of the coordinator, by reason: `told` of it was said, and `least` to `most` counted, as a
    verdict that is kept may be said again, which is not counted again.  `lost`: requests of which nobody knows."""

    def __init__(self):
        self.told, self.least, self.most, self.lost = {}, {}, {}, 0

    def note(self, reply, may_be_kept=False):
        if reason := refusal_of(reply):
            for counts, more in ((self.told, 1), (self.least, not may_be_kept), (self.most, 1)):
                counts[reason] = counts.get(reason, 0) + more

    def add(self, other):
        for mine, theirs in ((self.told, other.told), (self.least, other.least), (self.most, other.most)):
            for reason, count in theirs.items():
                mine[reason] = mine.get(reason, 0) + count
        self.lost += other.lost


class Tally:
    """Shared by all peers.  Every answer to them is noted, by the process that gave it: `process` says the how manyth there is."""

    def __init__(self):
        self.lock, self.refusals, self.process, self.known = threading.Lock(), [Refusals()], 0, set()
        self.sent, self.faults = {}, []
        self.cut_off, self.passed_over = 0, 0  # strangers' requests that went out: the connection ended, there was no answer within ANSWER_S
        self.go = threading.Event()  # cleared while the counts are compared
        self.go.set()
        self.busy = 0

    def connect(self, port, source):
        """What is heard over this connection is of the process of now: one that has gone says nothing any more."""
        wire = Wire(port, source)
        with self.lock:
            wire.process = self.process
        return wire

    def next_process(self):
        """The coordinator has ended; another one will begin."""
        with self.lock:
            self.process += 1
            self.refusals.append(Refusals())

    def was_sent(self, request):
        """Before; from now on it was.  With the lock."""
        digest = pp.blake(request)
        again = digest in self.known
        self.known.add(digest)
        return again

    def answered(self, wire, request, reply, is_poll):
        """is_poll: nothing is kept of it."""
        with self.lock:
            self.refusals[wire.process].note(reply, not is_poll and self.was_sent(request))

    def unanswered(self, wire, request):
        with self.lock:
            self.refusals[wire.process].lost += 1
            self.was_sent(request)

    def so_far(self, of_all=False):
        """What was told by this process, or by all that there were."""
        out = Refusals()
        with self.lock:
            for one in self.refusals if of_all else self.refusals[-1:]:
                out.add(one)
        return out

    def begin(self, kind):
        while True:
            self.go.wait()
            with self.lock:
                if self.go.is_set():
                    self.busy += 1
                    self.sent[kind] = self.sent.get(kind, 0) + 1
                    return

    def hold(self):
        """Nobody begins anything until `go` is set; who has begun is `busy`."""
        with self.lock:
            self.go.clear()

    def end(self):
        with self.lock:
            self.busy -= 1

    def fault(self, text):
        with self.lock:
            self.faults.append(text)


# ---- strangers ------------------------------------------------------------------------------------

class Stranger(threading.Thread):
    """One address of its own; attacks until `stop`.  captured(): submissions of honest nodes that were accepted; polls(): requests
    of theirs that a listener kept."""

    def __init__(self, number, port, seed, tally, stop, captured, polls):
        super().__init__(daemon=True)
        self.source, self.port, self.tally, self.stop = f"127.0.0.{number}", port, tally, stop
        self.rng, self.captured, self.polls, self.wire = random.Random(f"{seed}/{number}"), captured, polls, None
        self.key = pp.key_from_seed(pp.blake(f"stranger {seed} {number}".encode()))
        self.counter = 0

    ATTACKS = ["mutated", "mutated", "mutated", "mutated", "stranger", "oversize", "slow", "silent", "replay",
               "replay", "recorded", "recorded", "context", "signature", "junk", "chunk",
               "beyond", "deaf", "crowd", "broken"]

    def run(self):
        while not self.stop.is_set():
            kind = self.rng.choice(self.ATTACKS)
            self.tally.begin(kind)
            try:
                getattr(self, kind)()
            except OSError:
                self.drop()  # closed, or the coordinator is not there
            except Exception as e:
                self.tally.fault(f"{kind}: {type(e).__name__}: {e}")
                self.drop()
            finally:
                self.tally.end()
            if self.wire is None:
                self.stop.wait(0.2)
            self.stop.wait(self.rng.random() * 0.1)
        self.drop()

    def drop(self):
        if self.wire:
            self.wire.close()
        self.wire = None

    def ask(self, request, is_poll=False):
        """is_poll: nothing is kept of it, so it is counted whenever it is refused."""
        if self.wire is None:
            self.wire = self.tally.connect(self.port, self.source)
        try:
            reply = self.wire.ask(request)
        except OSError as e:
            self.tally.unanswered(self.wire, request)
            with self.tally.lock:
                self.tally.passed_over += isinstance(e, TimeoutError)
                self.tally.cut_off += not isinstance(e, TimeoutError)
            raise
        got = pp.decode("Reply", reply)
        self.tally.answered(self.wire, request, got, is_poll)
        return got

    def expect(self, got, reason):
        """True: refused so.  While it sums up, a coordinator answers nobody but with "wait"."""
        assert "wait" in got or ("refused" in got and reason in (None, got["refused"]["reason"])), got
        return "refused" in got

    def poll_envelope(self, purpose="poll"):
        self.counter += 1
        return pp.seal(purpose, pp.encode("Poll", {"version": 1, "counter": self.counter}), self.key)

    # one request each

    def stranger(self):
        got = self.ask(pp.encode("Request", {"version": 1, "poll": self.poll_envelope()}))
        return self.expect(got, "REFUSED_KEY")

    def context(self):
        poll = pp.encode("Request", {"version": 1, "poll": self.poll_envelope(self.rng.choice(["offer", "submission"]))})
        got = self.ask(poll)
        return self.expect(got, "REFUSED_CONTEXT")

    def signature(self):
        envelope = bytearray(self.poll_envelope())
        envelope[-1 - self.rng.randrange(64)] ^= 1 << self.rng.randrange(8)
        got = self.ask(pp.encode("Request", {"version": 1, "poll": bytes(envelope)}))
        return self.expect(got, "REFUSED_SIGNATURE")

    def census(self, each):
        """`each` requests of every kind whose refusal is certain, all refused so: reason -> how many.  Who is told to wait asks again."""
        sends = {"KEY": self.stranger, "CONTEXT": self.context, "SIGNATURE": self.signature, "DIGEST": self.chunk, "FORMAT": self.garbage,
                 "SIZE": self.beyond}
        out = {}
        for reason, send in sends.items():
            out[reason] = 0
            while out[reason] < each:
                out[reason] += send()
                self.stop.wait(0.02)
        return out

    def garbage(self):
        return self.expect(self.ask(b"\xff" * self.rng.randrange(10, 3000)), "REFUSED_FORMAT")

    def junk(self):
        body = self.rng.randbytes(self.rng.randrange(1, 3000))
        got = self.ask(body)
        self.expect(got, None)

    def chunk(self):
        data = self.rng.randbytes(self.rng.randrange(1, 5000))
        put = {"digest": self.rng.randbytes(32), "index": self.rng.randrange(pp.CHUNKS_MAX), "data": data}
        got = self.ask(pp.encode("Request", {"version": 1, "put": put}))
        return self.expect(got, "REFUSED_DIGEST")

    def beyond(self):
        put = {"digest": self.rng.randbytes(32), "index": pp.CHUNKS_MAX + self.rng.randrange(1000), "data": b"data"}
        return self.expect(self.ask(pp.encode("Request", {"version": 1, "put": put})), "REFUSED_SIZE")

    def sample(self):
        kinds = ["poll", "get", "put"] + ["submit"] * bool(self.captured())
        kind = self.rng.choice(kinds)
        body = {"poll": lambda: self.poll_envelope(), "get": lambda: {"digest": self.rng.randbytes(32), "index": 1},
                "put": lambda: {"digest": self.rng.randbytes(32), "index": 3, "data": b"data"},
                "submit": lambda: self.rng.choice(self.captured())[0]}[kind]()
        return pp.encode("Request", {"version": 1, kind: body})

    def mutated(self):
        request = self.sample()
        changed = mutate(self.rng, request)
        if changed != request and len(changed) <= pp.MESSAGE_MAX:
            self.ask(changed)

    def replay(self):
        """Accepted once: now a receipt, the same; or a refusal, when its round is over.  Never work."""
        if not self.captured():
            return
        envelope, receipt = self.rng.choice(self.captured())
        if self.rng.random() < 0.3:  # as if it were a poll
            got = self.ask(pp.encode("Request", {"version": 1, "poll": envelope}), is_poll=True)
            self.expect(got, "REFUSED_CONTEXT")
            return
        got = self.ask(pp.encode("Request", {"version": 1, "submit": envelope}))
        assert "wait" in got or got.get("receipt") == receipt or refusal_of(got), got

    def recorded(self):
        """A node's poll once more: its last one has the same answer again, the others say nothing any more."""
        if polls := self.polls():
            got = self.ask(self.rng.choice(polls), is_poll=True)
            assert got.keys() & {"wait", "offer", "done"} or got["refused"]["reason"] == "REFUSED_DUPLICATE", got

    # no request at all

    def oversize(self):
        self.drop()
        wire = Wire(self.port, self.source)
        size = self.rng.choice([pp.MESSAGE_MAX + 5, 2**24, 2**31, 2**40, 2**63, 2**64 - 1, 0, 3])
        try:
            wire.s.sendall(struct.pack(">QI", size, 1 << 31) + self.rng.randbytes(1000))
            wire.s.settimeout(5)
            assert wire.s.recv(1) == b"", f"an answer to a frame of {size} bytes"
        finally:
            wire.close()

    def slow(self):
        """A frame byte by byte; then half of one is left."""
        self.drop()
        s = socket.create_connection(("127.0.0.1", self.port), ANSWER_S, source_address=(self.source, 0))
        frame = HELLO + struct.pack(">QI", 500, 1 << 31) + bytes(300)
        try:
            for at in range(0, len(frame), 16):
                s.sendall(frame[at:at + 16])
                if self.stop.wait(0.05):
                    break
        finally:
            s.close()

    def silent(self):
        self.drop()
        s = socket.create_connection(("127.0.0.1", self.port), ANSWER_S, source_address=(self.source, 0))
        self.stop.wait(self.rng.random() * 3)
        s.close()

    def broken(self):
        self.drop()
        for _ in range(self.rng.randrange(1, 20)):
            break_off(self.port, self.source)

    def base_piece(self):
        got = self.ask(pp.encode("Request", {"version": 1, "ask_base": True}))
        return pp.decode("Base", pp.open_envelope("base", got["base_model"])[1])["piece_digests"][0] if "base_model" in got else None

    def deaf(self):
        """Asks for a chunk of the base model again and again, and reads nothing: the connection is ended."""
        piece = self.base_piece()
        self.drop()
        if piece is None:
            return  # it sums up; and another digest would be refused, with nobody to read it
        get = pp.encode("Request", {"version": 1, "get": {"digest": piece, "index": 0}})
        s = socket.socket()
        try:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            s.settimeout(ANSWER_S)
            s.bind((self.source, 0))
            s.connect(("127.0.0.1", self.port))
            s.sendall(HELLO + b"".join(struct.pack(">QI", len(get) + 4, i | 1 << 31) + get for i in range(200)))
            self.stop.wait(self.rng.random() * 4)
            end = time.monotonic() + ANSWER_S
            while s.recv(1 << 20) and time.monotonic() < end:
                pass
            assert time.monotonic() < end, "who asks ahead and does not read is not closed"
        except TimeoutError:
            raise AssertionError("who asks ahead and does not read is not closed") from None
        finally:
            s.close()

    def crowd(self):
        """Hoards sockets, some of which say hello: no more of one address are kept than may be."""
        self.drop()
        hoard = []
        try:
            for i in range(30):
                hoard.append(socket.create_connection(("127.0.0.1", self.port), ANSWER_S, source_address=(self.source, 0)))
                if self.rng.random() < 0.5:
                    hoard[-1].sendall(HELLO)
            self.stop.wait(1 + self.rng.random() * 2)
            kept = sum(not is_closed(s) for s in hoard)
            assert kept <= PER_ADDRESS, f"{kept} sockets of one address are kept"
        finally:
            for s in hoard:
                s.close()


def break_off(port, source):
    """Closed and reset before anybody said a word: what the coordinator greets with meets a broken pipe."""
    s = socket.create_connection(("127.0.0.1", port), ANSWER_S, source_address=(source, 0))
    with s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.shutdown(socket.SHUT_WR)


def is_closed(s):
    s.setblocking(False)
    try:
        while s.recv(4096):
            pass
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


# ---- an enrolled one that sends bombs -------------------------------------------------------------

def bomb(size_said, blocks):
    """A zstd frame (RFC 8878) that says its size and consists of blocks of 128 KiB of one byte."""
    body = b"".join(struct.pack("<I", 131072 << 3 | 2 | (i + 1 == blocks))[:3] + b"A" for i in range(blocks))
    return b"\1\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", size_said) + body


class Mallory(threading.Thread):
    """A node that takes part in every round, and whose submissions are all made to be refused: for their payloads."""
    SOURCE = "127.0.0.9"

    def __init__(self, port, key, coordinator, tally):
        super().__init__(daemon=True)
        self.port, self.key, self.coordinator, self.tally = port, key, coordinator, tally
        self.counter, self.receipts, self.done, self.fault, self.wire = 0, {}, False, None, None
        self.quit = threading.Event()

    def run(self):
        while not self.done and not self.quit.is_set():
            try:
                if self.wire is None:
                    self.wire = self.tally.connect(self.port, self.SOURCE)
                self.step()
            except OSError:
                if self.wire:
                    self.wire.close()
                self.wire = None
                self.quit.wait(0.3)
            except Exception as e:
                self.fault = f"{type(e).__name__}: {e}"
                return

    def ask(self, **body):
        request = pp.encode("Request", {"version": 1, **body})
        try:
            got = pp.decode("Reply", self.wire.ask(request))
        except OSError:
            self.tally.unanswered(self.wire, request)
            raise
        self.tally.answered(self.wire, request, got, "poll" in body)
        return got

    def step(self):
        self.counter += 1
        poll = pp.encode("Poll", {"version": 1, "counter": self.counter})
        got = self.ask(poll=pp.seal("poll", poll, self.key))
        if got.get("refused", {}).get("reason") == "REFUSED_DUPLICATE":
            self.counter += pp.COUNTER_BLOCK  # the coordinator began again
        if "done" in got:
            self.done = True
        elif "offer" in got:
            key, payload = pp.open_envelope("offer", got["offer"])
            assert key == self.coordinator, "an offer of another"
            self.follow(pp.decode("Offer", payload), pp.blake(got["offer"]))
        else:
            self.quit.wait(0.2)

    def payload(self, offer):
        """By round, so that every run of this seed has the same."""
        most, n = offer["payload_bytes_max"], offer["adapter"]["value_count"]
        blocks = max(1, min(8192, (most - 14) // 4))
        kinds = [bomb(blocks * 131072, blocks), bomb(8 * n, blocks), bomb(2**62, 1), b"\0" + bytes(min(most - 1, 4 * n)),
                 bomb(n, 1)[:20], b"\2what"]
        return kinds[offer["round"] % len(kinds)][:most]

    def submission(self, offer, offer_digest, sent, **changed):
        """An envelope with all that it must have, but for the training and what is said of the payload before zstd."""
        zero = pp.blake(bytes(4 * offer["adapter"]["value_count"]))
        blob = {"digest": pp.blake(sent), "canonical_digest": pp.blake(b"no"), "size": len(sent),
                "chunk_digests": [pp.blake(sent[i:i + pp.CHUNK]) for i in range(0, len(sent), pp.CHUNK)]}
        same = {f: offer[f] for f in ("version", "run_id", "round", "nonce", "base_digest")}
        steps = struct.unpack_from("<I", offer["recipe"], 28)[0]
        submission = {**same, "steps": steps, "step_digests": bytes(8 * steps), "offer_digest": offer_digest, "global_digest": offer["global"]["digest"], "tokens": 1,
                      "examples": 1, "codec": offer["codec_up"], "payload": blob, "data_commitment": pp.blake(b"mine"),
                      "residual_before": zero, "residual_after": zero, **changed}
        return pp.seal("submission", pp.encode("Submission", submission), self.key)

    def follow(self, offer, offer_digest):
        sent = self.payload(offer)
        got = self.ask(submit=self.submission(offer, offer_digest, sent))
        while "need" in got:
            for i in got["need"]["missing"]:
                got = self.ask(put={"digest": pp.blake(sent), "index": i, "data": sent[i * pp.CHUNK:(i + 1) * pp.CHUNK]})
                if "need" not in got:
                    break
        self.keep(offer, got)

    def keep(self, offer, got):
        """The verdict of a round: a refusal, always the same.  Its reason; None while it sums up: the next poll says how it goes on."""
        assert "wait" in got or "receipt" in got or "refused" in got, got
        if "receipt" not in got:
            return None
        key, payload = pp.open_envelope("receipt", got["receipt"])
        receipt = pp.decode("Receipt", payload)
        assert key == self.coordinator and not receipt["accepted"], receipt
        old = self.receipts.setdefault(offer["round"], got["receipt"])
        assert old == got["receipt"], "another receipt than before"
        return receipt["reason"]


class Liar(Mallory):
    """The same for what the submission says: by round another lie that settles the node, and in each some that do not."""
    SOURCE = "127.0.0.8"

    def lie(self, offer):
        """By round: why it must be refused, and what is changed."""
        most = offer["payload_bytes_max"]
        lies = [("BASE", {"base_digest": pp.blake(b"another")}), ("RESIDUAL", {"residual_before": pp.blake(b"none")}),
                ("RECIPE", {"codec": offer["codec_up"][:4] + struct.pack("<I", 7)}), ("SIZE", {"tokens": 2**40}),
                ("FORMAT", {"step_digests": bytes(8)}),
                ("BUDGET", {"payload": {"digest": pp.blake(b"long"), "canonical_digest": pp.blake(b"no"), "size": most + 1,
                                        "chunk_digests": [pp.blake(b"long")] * -(-(most + 1) // pp.CHUNK)}})]
        return lies[offer["round"] % len(lies)]

    def follow(self, offer, offer_digest):
        sent = b"\0 a payload that nobody asks for"
        tell = lambda **changed: self.ask(submit=self.submission(offer, offer_digest, sent, **changed))
        self.expect(tell(nonce=pp.blake(b"another")), "ROUND")
        self.expect(tell(loss_before=float("nan")), "VALUE")
        reason, changed = self.lie(offer)
        if (told := self.keep(offer, tell(**changed))) is not None:
            assert told == "REFUSED_" + reason, f"{told} for {reason}"
            self.expect(tell(tokens=2), "DUPLICATE", "ROUND")  # when all others are in, the round is over

    def expect(self, got, *reasons):
        assert "wait" in got or refusal_of(got) in ["REFUSED_" + r for r in reasons], got

#!/usr/bin/env python3
"""Two implementations of docs/protocol.md agree: the program, and protocol_peer.py beside this file.

usage: protocol_test.py SOURCE_DIR MESHMIND...  checks docs/protocol.json, and the whole bundle of a small run of the last program
       protocol_test.py SOURCE_DIR --write      writes docs/protocol.json anew

vectors_test.c checks the same vectors against the program's own encoders and decoders.
"""
import base64, hashlib, json, math, pathlib, re, struct, subprocess, sys, tempfile

sys.dont_write_bytecode = True
from live import program
from protocol_peer import (BASE, CHUNK, CHUNKS_MAX, KINDS, ORDER, P, ZSTD, blake, codec_of, context, decode, decode_fields, encode, f32,
                           key_from_seed, layout_digest, limit, mean, mod_order, norm, open_envelope, payload_decode, payload_encode, point_bytes,
                           read_reasons, rows_of, seal, sent_decode, sign, verify)
from records_peer import manifest_verify, recipe_decode, spell
from records_vectors import check_record_vectors, digest, minisign_check, reason_of, record_vectors


# ---- vectors ---------------------------------------------------------------------------------------

def samples():
    """The messages of proto/samples.h."""
    run = "00112233445566778899aabbccddeeff"
    envelope = b"any envelope"
    yield "Poll", {"version": 1, "run_id": run, "rounds_seen": 3, "counter": 300}
    yield "Offer", {
        "version": 1, "run_id": run, "round": 1, "rounds": 4, "nonce": digest(2), "base_digest": digest(3),
        "tokenizer_digest": digest(4), "recipe": b"recipe bytes", "codec_up": b"up", "codec_down": b"down",
        "adapter": {"rank": 8, "alpha": 16.0, "targets": 127, "value_count": 100000, "layout_digest": digest(5)},
        "value_max": 1.0, "weight_sum_max": 1 << 32, "norm_max": 10.0, "deadline_ms": 600000,
        "global": {"digest": digest(6), "canonical_digest": digest(7), "size": CHUNK + 5,
                   "chunk_digests": [digest(0x90), digest(0x91)]},
        "payload_bytes_max": 1 << 20, "tokens_max": 1 << 20, "selected": [digest(1), digest(0x21), digest(0x41)],
        "previous": digest(8)}
    yield "Submission", {
        "version": 1, "run_id": run, "round": 1, "nonce": digest(2), "offer_digest": digest(9), "base_digest": digest(3),
        "global_digest": digest(6), "tokens": 40000, "examples": 120, "steps": 2, "loss_before": 2.5,
        "loss_after": 1.25, "codec": b"up", "data_commitment": digest(12), "residual_before": digest(13),
        "residual_after": digest(14), "step_digests": b"step onestep two",
        "payload": {"digest": digest(10), "canonical_digest": digest(11), "size": 1000, "chunk_digests": [digest(0x91)]}}
    yield "Receipt", {"version": 1, "run_id": run, "round": 1, "node_id": digest(15), "submission_digest": digest(16),
                      "accepted": False, "reason": "REFUSED_NORM", "sentence": "norm is 11, at most 10 is allowed"}
    yield "Close", {"version": 1, "run_id": run, "rounds": 4, "last_round": digest(17), "final_digest": digest(18),
                    "eval_digest": digest(19)}
    yield "Enrol", {"version": 1, "coordinator_key": digest(22), "invitation_key": digest(23),
                    "invitation_signature": digest(24) + digest(25), "challenge": b"", "work": 0}
    chunk = {"digest": digest(20), "index": 200}
    yield "Request", {"version": 1, "poll": envelope}
    yield "Request", {"version": 1, "get": chunk}
    yield "Request", {"version": 1, "put": {**chunk, "data": b"chunk data"}}
    yield "Request", {"version": 1, "submit": envelope}
    yield "Request", {"version": 1, "enrol": envelope}
    yield "Reply", {"version": 1, "wait": {"retry_ms": 1500}}
    yield "Reply", {"version": 1, "offer": envelope}
    yield "Reply", {"version": 1, "chunk": {**chunk, "data": b"chunk data"}}
    yield "Reply", {"version": 1, "need": {"missing": [0, 1, 127, 300]}}
    yield "Reply", {"version": 1, "receipt": envelope}
    yield "Reply", {"version": 1, "refused": {"reason": "REFUSED_KEY", "sentence": "key is not enrolled"}}
    yield "Reply", {"version": 1, "done": {"close": envelope}}
    yield "Reply", {"version": 1, "challenge": envelope}
    yield "Challenge", {"version": 1, "run_id": run, "seed": digest(26), "bits": 22}
    yield "Base", {"version": 1, "digest": digest(3), "size": 5 * CHUNK + 1, "piece_chunks": 2,
                   "piece_digests": [digest(0xA0), digest(0xA1), digest(0xA2)],
                   "mirrors": ["http://mirror.example/a.gguf", "https://[2001:db8::1]:8443/a.gguf"]}
    yield "Request", {"version": 1, "ask_base": {}}
    yield "Reply", {"version": 1, "base_model": envelope}
    yield "Request", {"version": 1, "poll": envelope, "whole": True}
    yield "Request", {"version": 1, "submit": envelope, "payload": b"a payload"}
    yield "Reply", {"version": 1, "offer": envelope, "global": b"global adapter"}
    yield "Offer", canary_offer()
    yield "Base", {"version": 1, "digest": digest(3), "size": 5 * CHUNK + 1, "piece_chunks": 2,
                   "piece_digests": [digest(0xA0), digest(0xA1), digest(0xA2)],
                   "mirrors": ["http://mirror.example/a.gguf", "https://[2001:db8::1]:8443/a.gguf"],
                   "part_bytes": [CHUNK + 5, 4 * CHUNK - 4]}
    yield "Poll", {"version": 1, "run_id": run, "rounds_seen": 3, "counter": 300, "declined": 200}


def canary_offer():
    offer = next(fields for name, fields in samples() if name == "Offer")
    return {**offer, "selected": offer["selected"][:1],
            "canary": {"digest": digest(27), "canonical_digest": digest(27), "size": CHUNK + 9,
                       "chunk_digests": [digest(0xB0), digest(0xB1)]}}


def bad_messages():
    """What, as which message, bytes, reason."""
    messages = {}
    for name, fields in samples():
        messages.setdefault(name, fields)
    poll = encode("Poll", messages["Poll"])

    def changed(name, **fields):
        return encode(name, {**messages[name], **fields})

    yield "nothing", "Poll", b"", "REFUSED_SIZE"
    yield "a number with a byte too many", "Poll", b"\x08\x81\x00" + poll[2:], "REFUSED_FORMAT"
    yield "fields in another order", "Poll", poll[2:] + poll[:2], "REFUSED_FORMAT"
    yield "an unknown field", "Poll", poll + b"\x30\x01", "REFUSED_FORMAT"
    yield "a field twice", "Poll", poll[:2] + poll, "REFUSED_FORMAT"
    yield "a zero that is written", "Poll", poll[:36] + b"\x18\x00", "REFUSED_FORMAT"
    yield "a number of 33 bits", "Poll", poll[:36] + b"\x18\x80\x80\x80\x80\x10", "REFUSED_FORMAT"
    yield "cut off", "Poll", poll[:-1], "REFUSED_FORMAT"
    yield "a reason of none that is written", "Poll", poll + b"\x28\x00", "REFUSED_FORMAT"
    yield "a reason over 255", "Poll", changed("Poll", declined=256), "REFUSED_SIZE"
    yield "another version", "Poll", changed("Poll", version=2), "VERSION"
    yield "minus zero that is written", "Offer", changed("Offer", norm_max=0.0).replace(b"\x7a", b"\x75\0\0\0\x80\x7a", 1), "REFUSED_FORMAT"
    yield "a run id in capitals", "Poll", changed("Poll", run_id="00112233445566778899AABBCCDDEEFF"), "REFUSED_FORMAT"
    yield "no run id", "Close", changed("Close", run_id=""), "REFUSED_FORMAT"
    yield "a digest of 31 bytes", "Close", changed("Close", last_round=digest(1)[:31]), "REFUSED_FORMAT"
    yield "round = rounds", "Offer", changed("Offer", round=4), "REFUSED_SIZE"
    yield "nodes not ascending", "Offer", changed("Offer", selected=[digest(2), digest(1)]), "REFUSED_FORMAT"
    yield "a node twice", "Offer", changed("Offer", selected=[digest(2), digest(2)]), "REFUSED_FORMAT"
    yield "no node", "Offer", changed("Offer", selected=[]), "REFUSED_SIZE"
    yield "a chunk's digest too few", "Offer", changed(
        "Offer", **{"global": {**messages["Offer"]["global"], "chunk_digests": [digest(1)]}}), "REFUSED_FORMAT"
    yield "a blob that is too large", "Offer", changed(
        "Offer", **{"global": {**messages["Offer"]["global"], "size": CHUNK * CHUNKS_MAX + 1}}), "REFUSED_SIZE"
    for what, fields in (("an adapter of rank 0", {"rank": 0}), ("an adapter of no values", {"value_count": 0}),
                         ("an adapter of 2^32 values", {"value_count": 1 << 32})):
        yield what, "Offer", changed("Offer", adapter={**messages["Offer"]["adapter"], **fields}), "REFUSED_SIZE"
    yield "no weight", "Offer", changed("Offer", weight_sum_max=0), "REFUSED_SIZE"
    yield "no adapter", "Offer", changed("Offer", adapter=None), "REFUSED_FORMAT"
    yield "a recipe of 4097 bytes", "Offer", changed("Offer", recipe=b"r" * 4097), "REFUSED_SIZE"
    yield "a bound that is no number", "Offer", changed("Offer", norm_max=math.nan), "REFUSED_VALUE"
    one = canary_offer()
    for what, fields, reason in (
            ("a canary for two nodes", {"selected": [digest(1), digest(0x21)]}, "REFUSED_SIZE"),
            ("a canary with another canonical digest", {"canary": {**one["canary"], "canonical_digest": digest(28)}}, "REFUSED_FORMAT"),
            ("a canary over 4 MiB", {"canary": {**one["canary"], "size": (4 << 20) + 1, "chunk_digests": [digest(1)] * 17}}, "REFUSED_SIZE"),
            ("an empty canary", {"canary": {**one["canary"], "size": 0, "chunk_digests": []}}, "REFUSED_SIZE"),
            ("a canary's chunk digest too many", {"canary": {**one["canary"], "chunk_digests": [digest(1)] * 3}}, "REFUSED_FORMAT")):
        yield what, "Offer", encode("Offer", {**one, **fields}), reason
    yield "an infinite loss", "Submission", changed("Submission", loss_after=math.inf), "REFUSED_VALUE"
    yield "a negative loss", "Submission", changed("Submission", loss_before=-1.0), "REFUSED_VALUE"
    yield "step digests of 9 bytes", "Submission", changed("Submission", step_digests=b"123456789"), "REFUSED_FORMAT"
    yield "accepted with a reason against it", "Receipt", changed("Receipt", accepted=True), "REFUSED_FORMAT"
    yield "a reason that nobody knows", "Receipt", changed("Receipt", reason="REFUSED_MOOD"), "REFUSED_FORMAT"
    yield "a sentence with a line break", "Receipt", changed("Receipt", sentence="a\nb"), "REFUSED_FORMAT"
    yield "a sentence of 257 bytes", "Receipt", changed("Receipt", sentence="a" * 257), "REFUSED_SIZE"
    yield "an invitation without its signature", "Enrol", changed("Enrol", invitation_signature=b""), "REFUSED_FORMAT"
    yield "an invitation's key of 31 bytes", "Enrol", changed("Enrol", invitation_key=digest(23)[:31]), "REFUSED_FORMAT"
    yield "an Enrol of over 1024 bytes", "Enrol", changed("Enrol", invitation_key=bytes(1000)), "REFUSED_SIZE"
    yield "work for nothing", "Enrol", changed("Enrol", work=5), "REFUSED_FORMAT"
    yield "work for a challenge of 31 bytes", "Enrol", changed("Enrol", challenge=digest(1)[:31], work=5), "REFUSED_FORMAT"
    yield "a challenge of 27 bits", "Challenge", changed("Challenge", bits=27), "REFUSED_SIZE"
    yield "a challenge of no bits", "Challenge", changed("Challenge", bits=0), "REFUSED_SIZE"
    yield "no coordinator", "Enrol", changed("Enrol", coordinator_key=b""), "REFUSED_FORMAT"
    for what, url in (("a mirror in a file", "file:///etc/passwd"), ("a mirror without a host", "http:///a"), ("a mirror with a user", "http://u@h/a"),
                      ("a mirror with a blank", "http://h/a b"), ("a mirror with a fragment", "https://h/a#b"), ("a mirror of 256 bytes", "http://h/" + "a" * 247)):
        yield what, "Base", changed("Base", mirrors=[url]), "REFUSED_FORMAT"
    yield "nine mirrors", "Base", changed("Base", mirrors=["http://h/"] * 9), "REFUSED_SIZE"
    yield "a piece's digest too many", "Base", changed("Base", piece_digests=[digest(1)] * 4), "REFUSED_FORMAT"
    yield "pieces of 257 chunks", "Base", changed("Base", piece_chunks=257), "REFUSED_SIZE"
    yield "pieces of none", "Base", changed("Base", piece_chunks=0), "REFUSED_SIZE"
    yield "a base model of 4097 pieces", "Base", changed("Base", size=4096 * 2 * CHUNK + 1), "REFUSED_SIZE"
    yield "an empty base model", "Base", changed("Base", size=0), "REFUSED_SIZE"
    for what, parts in (("a model in one of several files", [5 * CHUNK + 1]), ("a file of no bytes", [5 * CHUNK + 1, 0]),
                        ("files with a byte more", [5 * CHUNK, 2]), ("files with a byte less", [5 * CHUNK - 1, 1]),
                        ("129 files", [1] * 128 + [5 * CHUNK - 127]), ("files whose sum is over 2^64", [(1 << 64) - 1, 5 * CHUNK + 2])):
        yield what, "Base", changed("Base", part_bytes=parts), "REFUSED_SIZE"
    yield "no body", "Request", encode("Request", {"version": 1}), "REFUSED_FORMAT"
    yield "two bodies", "Request", encode("Request", {"version": 1, "poll": b"x", "submit": b"y"}), "REFUSED_FORMAT"
    yield "chunk 4096", "Request", encode("Request", {"version": 1, "get": {"digest": digest(1), "index": 4096}}), \
        "REFUSED_SIZE"
    yield "no data", "Request", encode("Request", {"version": 1, "put": {"digest": digest(1), "index": 1}}), "REFUSED_SIZE"
    yield "a poll with a payload", "Request", encode("Request", {"version": 1, "poll": b"x", "payload": b"p"}), "REFUSED_FORMAT"
    yield "a submission that takes it whole", "Request", encode("Request", {"version": 1, "submit": b"x", "whole": True}), "REFUSED_FORMAT"
    yield "true spelled as 2", "Request", encode("Request", {"version": 1, "poll": b"x"}) + b"\x48\x02", "REFUSED_FORMAT"
    yield "an empty payload that is written", "Request", encode("Request", {"version": 1, "submit": b"x"}) + b"\x42\x00", "REFUSED_FORMAT"
    yield "a receipt with an adapter", "Reply", encode("Reply", {"version": 1, "receipt": b"x", "global": b"g"}), "REFUSED_FORMAT"
    yield "missing chunks not ascending", "Reply", encode("Reply", {"version": 1, "need": {"missing": [2, 1]}}), \
        "REFUSED_FORMAT"
    yield "refused because of OK", "Reply", encode("Reply", {"version": 1, "refused": {"reason": "OK"}}), "REFUSED_FORMAT"


def bad_envelopes(key, other):
    payload = encode(*next(samples()))
    good = seal("poll", payload, key)
    fields = decode_fields("Envelope", good)

    def changed(**new):
        return encode("Envelope", {**fields, **new})

    flipped = bytes([fields["signature"][0] ^ 1]) + fields["signature"][1:]
    scalar = int.from_bytes(fields["signature"][32:], "little") + ORDER
    yield "no signature", changed(signature=b""), "REFUSED_SIGNATURE"
    yield "one bit of the signature", changed(signature=flipped), "REFUSED_SIGNATURE"
    yield "a scalar over the order", changed(signature=fields["signature"][:32] + scalar.to_bytes(32, "little")), \
        "REFUSED_SIGNATURE"
    identity = (1).to_bytes(32, "little")
    challenge = mod_order(identity, fields["public_key"], context("poll") + payload)
    yield "an R of small order", changed(signature=identity + (challenge * key[0] % ORDER).to_bytes(32, "little")), "REFUSED_SIGNATURE"
    yield "a key of small order", changed(public_key=identity, signature=point_bytes(BASE) + (1).to_bytes(32, "little")), "REFUSED_SIGNATURE"
    yield "a key in another spelling", changed(public_key=(P + 1).to_bytes(32, "little"), signature=point_bytes(BASE) + (1).to_bytes(32, "little")), \
        "REFUSED_SIGNATURE"
    yield "one bit of the payload", changed(payload=payload[:-1] + bytes([payload[-1] ^ 1])), "REFUSED_SIGNATURE"
    yield "somebody else's key", changed(public_key=other[2]), "REFUSED_SIGNATURE"
    yield "another context, not signed anew", changed(context=context("offer")), "REFUSED_SIGNATURE"
    yield "signed for another purpose", seal("submission", payload, key), "REFUSED_CONTEXT"
    yield "a signature of 63 bytes", changed(signature=fields["signature"][:63]), "REFUSED_FORMAT"
    yield "a context of 31 bytes", changed(context=fields["context"][:31]), "REFUSED_FORMAT"
    yield "no payload", changed(payload=b""), "REFUSED_SIZE"
    yield "a byte behind it", good + b"\0", "REFUSED_FORMAT"


LAYOUT = [{"name": "blk.0.attn_q.weight.lora_a", "rows": 4, "cols": 8}, {"name": "blk.0.attn_q.weight.lora_b", "rows": 6, "cols": 4}]


def sample_layout():
    offset, out = 0, []
    for s in LAYOUT:
        out.append({**s, "offset": offset})
        offset += s["rows"] * s["cols"]
    return out


def sample_values(count, seed, top=1.0):
    """f32 values of many sizes, with zeros, ties and both signs."""
    out = []
    for i in range(count):
        h = int.from_bytes(hashlib.blake2b(struct.pack("<II", seed, i), digest_size=8).digest(), "little")
        value = ((h & 0xFFFFFF) - 0x800000) / 0x800000 * top * 2.0 ** -(h >> 24 & 15)
        out.append(0.0 if h >> 32 & 7 == 0 else -0.5 * top if h >> 32 & 7 == 1 else f32(value))
    return out


def hex_values(values):
    return struct.pack(f"<{len(values)}f", *values).hex()


def values_of(text):
    data = bytes.fromhex(text)
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def codec_vectors():
    segments = sample_layout()
    n = segments[-1]["offset"] + segments[-1]["rows"] * segments[-1]["cols"]
    for kind in KINDS:
        for keep in (0, 1, 5, 24, n):
            values = sample_values(n, 10 * KINDS[kind] + keep)
            if keep == 24:
                values[8:16] = [v * 2.0**-120 for v in values[8:16]]  # a row that int8 stores as zeros
            codec = {"kind": kind, "keep_count": keep}
            payload = payload_encode(codec, segments, values)
            yield {"kind": kind, "keep_count": keep, "codec": struct.pack("<BBBBI", KINDS[kind], 0, 0, 0, keep).hex(),
                   "values": hex_values(values), "payload": payload.hex(), "canonical": blake(payload).hex(),
                   "decoded": hex_values(payload_decode(codec, segments, payload))}


def spec(kind, keep=0, level=0, feedback=0):
    return struct.pack("<BBBBI", KINDS[kind], level, feedback, 0, keep)


def blocks(*parts):
    """Of a frame: (bytes, how often); more than once is a run."""
    out = b""
    for i, (data, times) in enumerate(parts):
        out += struct.pack("<I", (len(data) * times) << 3 | (times > 1) << 1 | (i + 1 == len(parts)))[:3] + data
    return out


def packed_vectors():
    """A payload of zeros, whose end is a run of one byte."""
    payload = payload_encode({"kind": "f16", "keep_count": 0}, sample_layout(), [0.0] * 56)
    frame = ZSTD + b"\x20" + bytes([len(payload)]) + blocks((payload[:24], 1), (b"\0", len(payload) - 24))
    yield {"what": "raw and run blocks", "codec": spec("f16", level=3).hex(), "sent": (b"\1" + frame).hex(), "payload": payload.hex()}


def bad_sent():
    """What, codec, bytes as sent, reason."""
    segments = sample_layout()
    n = segments[-1]["offset"] + segments[-1]["rows"] * segments[-1]["cols"]
    values = sample_values(n, 77)
    dense, sparse = ({kind: payload_encode({"kind": kind, "keep_count": keep}, segments, values) for kind in KINDS} for keep in (0, 24))
    one = payload_encode({"kind": "f16", "keep_count": 1}, segments, [0.0] * (n - 1) + [1.0])
    rows = len(rows_of(segments))

    def put(data, at, new):
        return data[:at] + new + data[at + len(new):]

    def sent(what, codec, payload, reason):
        return what, codec, b"\0" + payload, reason

    yield "nothing", spec("f16"), b"", "REFUSED_FORMAT"
    yield "a packing of 2", spec("f16", level=1), b"\2" + dense["f16"], "REFUSED_FORMAT"
    yield sent("half a header", spec("f16"), dense["f16"][:23], "REFUSED_FORMAT")
    yield sent("another beginning", spec("f16"), put(dense["f16"], 0, b"OMMR"), "REFUSED_FORMAT")
    yield sent("another version", spec("f16"), put(dense["f16"], 4, b"\2"), "REFUSED_FORMAT")
    yield sent("a byte that is not 0", spec("f16"), put(dense["f16"], 7, b"\1"), "REFUSED_FORMAT")
    yield sent("an index of 3", spec("f16", 24), put(sparse["f16"], 6, b"\3"), "REFUSED_FORMAT")
    yield sent("another kind", spec("f16"), dense["int8"], "REFUSED_RECIPE")
    yield sent("all values for some", spec("f16", n), dense["f16"], "REFUSED_RECIPE")
    yield sent("some values for all", spec("f16"), sparse["f16"], "REFUSED_RECIPE")
    yield sent("more than are kept", spec("f16", 24), put(sparse["f16"], 12, struct.pack("<I", 25)), "REFUSED_RECIPE")
    yield sent("another value_count", spec("f16"), put(dense["f16"], 8, struct.pack("<I", n + 1)), "REFUSED_SHAPE")
    yield sent("another layout", spec("f16"), put(dense["f16"], 16, b"12345678"), "REFUSED_SHAPE")
    yield sent("a count of all that is less", spec("f16"), put(dense["f16"], 12, struct.pack("<I", n - 1)), "REFUSED_FORMAT")
    yield sent("a value too few", spec("f16"), dense["f16"][:-2], "REFUSED_FORMAT")
    yield sent("a byte behind it", spec("int8"), dense["int8"] + b"\0", "REFUSED_SIZE")
    yield sent("a byte behind it, and there is room", spec("f16", 40), sparse["f16"] + b"\0", "REFUSED_FORMAT")
    for what, value in (("infinity", math.inf), ("no number", math.nan), ("32512.002", 32512.002), ("-32513", -32513.0)):
        yield sent(what, spec("none"), put(dense["none"], 24, struct.pack("<f", value)), "REFUSED_VALUE")
    yield sent("minus zero", spec("none"), put(dense["none"], 24, struct.pack("<f", -0.0)), "REFUSED_FORMAT")
    yield sent("a zero that is kept", spec("f16", 4), one[:-2] + b"\0\0", "REFUSED_FORMAT")
    yield sent("an index behind the last", spec("f16", 4), put(one, 24, bytes([n])), "REFUSED_SHAPE")
    yield sent("a gap with a byte too many", spec("f16", 4), one[:24] + bytes([n - 1 | 0x80, 0]) + one[25:], "REFUSED_FORMAT")
    bitmap = b"\0" * 6 + b"\x80"
    yield sent("a bitmap that is longer than gaps", spec("f16", 4), put(one, 6, b"\2")[:24] + bitmap + one[25:], "REFUSED_FORMAT")
    assert sparse["f16"][6] == 2
    yield sent("gaps that are longer than a bitmap", spec("f16", 40), put(sparse["f16"], 6, b"\1")[:24] + gaps_of(sparse["f16"], n) + sparse["f16"][31:],
               "REFUSED_FORMAT")
    yield sent("a bit too many", spec("f16", 24), put(sparse["f16"], 24, bytes([sparse["f16"][24] ^ 0xFF])), "REFUSED_FORMAT")
    for what, scale, reason in (("a scale that gives 32640", 0x438081, "REFUSED_VALUE"), ("a scale under 2^-100", 0x0A0000, "REFUSED_VALUE"),
                                ("a negative scale", 0xBF0000, "REFUSED_VALUE"), ("no number for a scale", 0x7FC000, "REFUSED_VALUE"),
                                ("a scale of 0 for codes", 0, "REFUSED_FORMAT")):
        yield sent(what, spec("int8"), put(dense["int8"], 24, struct.pack("<I", scale)[:3]), reason)
    row = next(i for i in range(24 + 3 * rows, len(dense["int8"])) if dense["int8"][i] in (127, 129))
    yield sent("a code of -128", spec("int8"), put(dense["int8"], row, b"\x80"), "REFUSED_FORMAT")
    yield sent("a row that does not use its scale", spec("int8"), dense["int8"][:24 + 3 * rows] + bytes(
        1 if b in (127, 129) else b for b in dense["int8"][24 + 3 * rows:24 + 3 * rows + 8]) + dense["int8"][24 + 3 * rows + 8:], "REFUSED_FORMAT")
    payload = payload_encode({"kind": "f16", "keep_count": 0}, segments, [0.0] * n)
    head, run = (payload[:24], 1), (b"\0", 112)
    good = ZSTD + b"\x20" + bytes([len(payload)]) + blocks(head, run)
    for what, codec, frame, reason in (
            ("a frame where nothing is packed", spec("f16"), good, "REFUSED_RECIPE"), ("a frame that is cut off", spec("f16", level=1), good[:-1], "REFUSED_FORMAT"),
            ("a byte behind a frame", spec("f16", level=1), good + b"\0", "REFUSED_FORMAT"), ("no frame", spec("f16", level=1), payload, "REFUSED_FORMAT"),
            ("a frame without its size", spec("f16", level=1), ZSTD + b"\0\0" + blocks(head, run), "REFUSED_FORMAT"),
            ("a frame that declares a byte less", spec("f16", level=1), put(good, 5, bytes([len(payload) - 1])), "REFUSED_FORMAT"),
            ("a frame that declares a byte too many", spec("f16", level=1), put(good, 5, bytes([len(payload) + 1])), "REFUSED_SIZE"),
            ("a frame that is not shorter", spec("f16", level=1), ZSTD + b"\x20" + bytes([len(payload)]) + blocks((payload, 1)), "REFUSED_SIZE"),
            ("a frame that is longer, and there is room", spec("f16", 40, 1), ZSTD + b"\x20" + bytes([len(one)]) + blocks((one, 1)), "REFUSED_FORMAT"),
            ("two frames", spec("f16", level=1), good + good, "REFUSED_FORMAT")):
        yield what, codec, b"\1" + frame, reason


def gaps_of(payload, n):
    out, before = b"", -1
    for i in range(n):
        if payload[24 + i // 8] >> i % 8 & 1:
            out, before = out + bytes([i - before - 1]), i
    return out


def bad_codecs():
    yield "seven bytes", spec("f16")[:7]
    yield "nine bytes", spec("f16") + b"\0"
    for what, at, value in (("kind 3", 0, 3), ("level 20", 1, 20), ("error feedback 2", 2, 2), ("a byte that is not 0", 3, 1)):
        yield what, spec("f16")[:at] + bytes([value]) + spec("f16")[at + 1:]


def mean_vectors():
    for value_log2, weight_log2 in ((0, 32), (-16, 0), (15, 40), (3, 12)):
        top = 2.0**value_log2
        weights = [1] if weight_log2 == 0 else [1, 1000, (1 << weight_log2) - 1001 - 17, 17]
        contributions = [(w, sample_values(12, w % 1000 + weight_log2, top)) for w in weights]
        contributions[0][1][0] = top
        yield {"value_max_log2": value_log2, "weight_sum_max_log2": weight_log2,
               "contributions": [{"weight": str(w), "values": hex_values(v)} for w, v in contributions],
               "mean": hex_values(mean(value_log2, weight_log2, contributions))}


def plain(value):
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if v is not None}
    return [plain(v) for v in value] if isinstance(value, list) else value.hex() if isinstance(value, bytes) else value


def invitation_vector(coordinator, node):
    """docs/protocol.md, enrolment: what a token is called, and what it signs."""
    token = digest(42)
    invitation = key_from_seed(token)
    fields = {"version": 1, "coordinator_key": coordinator[2], "invitation_key": invitation[2],
              "invitation_signature": sign(invitation, context("invitation") + coordinator[2] + node[2])}
    return {"token": "invite-" + token.hex(), "id": blake(invitation[2]).hex(), "node": node[2].hex(),
            "enrol": encode("Enrol", fields).hex()}


def work_vector(coordinator, node):
    """The first number that is work enough, and the Enrol that shows it."""
    challenge = blake(encode("Challenge", {"version": 1, "run_id": "00112233445566778899aabbccddeeff", "seed": digest(26), "bits": 12}))
    work = next(i for i in range(1 << 20) if zero_bits(blake(context("work") + challenge + node[2] + struct.pack("<Q", i))) >= 12)
    fields = {"version": 1, "coordinator_key": coordinator[2], "challenge": challenge, "work": work}
    return {"challenge": challenge.hex(), "bits": 12, "node": node[2].hex(), "work": work, "enrol": encode("Enrol", fields).hex()}


def zero_bits(data):
    return 256 - int.from_bytes(data, "big").bit_length()


def vectors():
    seed, other = digest(1), digest(99)
    key, stranger = key_from_seed(seed), key_from_seed(other)
    messages = list(samples())
    return {
        "schema_version": 1,
        "key": {"seed": seed.hex(), "public": key[2].hex(), "id": blake(key[2]).hex()},
        "messages": [{"message": name, "fields": plain(fields), "bytes": encode(name, fields).hex()}
                     for name, fields in messages],
        "envelopes": [{"purpose": name.lower(), "payload": encode(name, fields).hex(),
                       "bytes": seal(name.lower(), encode(name, fields), key).hex(),
                       "digest": blake(seal(name.lower(), encode(name, fields), key)).hex()}
                      for name, fields in messages[:6]],
        "invitation": invitation_vector(key, stranger),
        "work": work_vector(key, stranger),
        "refused_messages": [{"what": what, "message": name, "bytes": data.hex(), "reason": reason}
                             for what, name, data, reason in bad_messages()],
        "refused_envelopes": [{"what": what, "purpose": "poll", "bytes": data.hex(), "reason": reason}
                              for what, data, reason in bad_envelopes(key, stranger)],
        "layout": {"segments": sample_layout(), "digest": layout_digest(sample_layout()).hex()},
        "payloads": list(codec_vectors()),
        "packed": list(packed_vectors()),
        "refused_sent": [{"what": what, "codec": codec.hex(), "sent": sent.hex(), "reason": reason} for what, codec, sent, reason in bad_sent()],
        "refused_codecs": [{"what": what, "codec": codec.hex(), "reason": "REFUSED_FORMAT"} for what, codec in bad_codecs()],
        "means": list(mean_vectors()),
        **record_vectors(),
    }


failures = []


def check(ok, *what):
    if not ok:
        failures.append(" ".join(map(str, what)))


def check_vectors(source):
    stored = json.loads((source / "docs" / "protocol.json").read_text())
    check(stored == json.loads(json.dumps(vectors())), "docs/protocol.json is not what is made here: --write, and look")
    for v in stored["messages"]:
        check(plain(decode(v["message"], bytes.fromhex(v["bytes"]))) == v["fields"], v["message"], "decodes to other fields")
    for v in stored["envelopes"]:
        key, payload = open_envelope(v["purpose"], bytes.fromhex(v["bytes"]))
        check((key.hex(), payload.hex()) == (stored["key"]["public"], v["payload"]), v["purpose"], "envelope")
    enrol = decode("Enrol", bytes.fromhex(stored["invitation"]["enrol"]))
    check(verify(enrol["invitation_key"], enrol["invitation_signature"],
                 context("invitation") + enrol["coordinator_key"] + bytes.fromhex(stored["invitation"]["node"])), "invitation")
    for v in stored["refused_messages"]:
        reason = reason_of(decode, v["message"], bytes.fromhex(v["bytes"]))
        check(reason == v["reason"], v["what"], reason)
    for v in stored["refused_envelopes"]:
        reason = reason_of(open_envelope, v["purpose"], bytes.fromhex(v["bytes"]))
        check(reason == v["reason"], v["what"], reason)
    segments = stored["layout"]["segments"]
    for v in stored["packed"]:
        values = payload_decode(codec_of(bytes.fromhex(v["codec"])), segments, bytes.fromhex(v["payload"]))
        check(sent_decode(codec_of(bytes.fromhex(v["codec"])), segments, bytes.fromhex(v["sent"])) == values, v["what"])
    for v in stored["refused_sent"]:
        reason = reason_of(sent_decode, codec_of(bytes.fromhex(v["codec"])), segments, bytes.fromhex(v["sent"]))
        check(reason == v["reason"], v["what"], reason, v["reason"])
    for v in stored["refused_codecs"]:
        check(reason_of(codec_of, bytes.fromhex(v["codec"])) == v["reason"], v["what"])
    check_record_vectors(stored, check)


# ---- a run's bundle --------------------------------------------------------------------------------

def check_manifest(bundle):
    data = (bundle / "manifest.json").read_bytes()
    manifest = json.loads(data)
    key = base64.b64decode(manifest["bundle_key"])
    check(minisign_check((bundle / "manifest.json.minisig").read_text(), key[10:], data), "manifest.json.minisig")
    check(manifest_verify(data.decode()) == manifest["run_digest"], "manifest.json")
    paths = sorted(str(p.relative_to(bundle)) for p in bundle.rglob("*") if p.is_file())
    check(sorted(f["path"] for f in manifest["files"]) + ["manifest.json", "manifest.json.minisig"] ==
          sorted(set(paths) - {"manifest.json", "manifest.json.minisig"}) + ["manifest.json", "manifest.json.minisig"], "files")
    run = hashlib.sha256()
    for f in manifest["files"]:
        content = (bundle / f["path"]).read_bytes()
        check((len(content), hashlib.sha256(content).hexdigest()) == (f["bytes"], f["sha256"]), f["path"])
        if f["class"] == "D":
            run.update(f["path"].encode() + b"\0" + f["sha256"].encode() + b"\n")
    check(run.hexdigest() == manifest["run_digest"], "run digest")


def wire_bytes(*messages):
    return sum(12 + len(encode(name, {"version": 1, **body})) for name, body in messages)


def blob_chunks(blob):
    """Digest, index and bytes of as many."""
    return [{"digest": blob["digest"], "index": i, "data": bytes(min(CHUNK, blob["size"] - i * CHUNK))} for i in range(len(blob["chunk_digests"]))]


def ledger_line(run, offer, offer_bytes, submission, submission_bytes, receipt_bytes):
    """What a faultless exchange of these takes, in chunks."""
    poll = encode("Poll", {"version": 1, "run_id": run["run_id"], "rounds_seen": offer["round"], "counter": offer["round"] + 1})
    poll = encode("Envelope", {"context": context("poll"), "payload": poll, "public_key": bytes(32), "signature": bytes(64)})
    down, up = blob_chunks(offer["global"]), blob_chunks(submission["payload"])
    return {"up": wire_bytes(("Request", {"poll": poll}), *(("Request", {"get": {"digest": c["digest"], "index": c["index"]}}) for c in down),
                             ("Request", {"submit": submission_bytes}), *(("Request", {"put": c}) for c in up)),
            "down": wire_bytes(("Reply", {"offer": offer_bytes}), *(("Reply", {"chunk": c}) for c in down),
                               *(("Reply", {"need": {"missing": list(range(i, len(up)))}}) for i in range(len(up))), ("Reply", {"receipt": receipt_bytes})),
            "fp32": 8 * offer["adapter"]["value_count"], "round": offer["round"]}


def check_submission(bundle, run, accepted, offer, offer_bytes, coordinator, state):
    """Returns its weight and values."""
    node, number = accepted["node"], offer["round"]
    data = (bundle / "submissions" / f"r{number:03}-{node[:16]}.env").read_bytes()
    submitted, (key, payload) = data, open_envelope("submission", data)
    s = decode("Submission", payload)
    known = {n["id"]: n["public_key"] for n in run["nodes"]}
    check(known.get(node) == key.hex() and blake(key).hex() == node and blake(data).hex() == accepted["submission"], node)
    check(s["offer_digest"] == blake(offer_bytes) and s["nonce"] == offer["nonce"] and s["tokens"] == accepted["tokens"] and
          s["base_digest"] == offer["base_digest"] and s["global_digest"] == offer["global"]["digest"], node, "submission")
    data = (bundle / "receipts" / f"r{number:03}-{node[:16]}.env").read_bytes()
    key, payload = open_envelope("receipt", data)
    receipt = decode("Receipt", payload)
    check(key == coordinator and receipt["accepted"] and receipt["submission_digest"].hex() == accepted["submission"] and
          blake(data).hex() == accepted["receipt"], node, "receipt")
    sent = (bundle / "payloads" / f"{accepted['payload']}.bin").read_bytes()
    check(blake(sent) == s["payload"]["digest"] and blake(sent).hex() == accepted["payload"] and
          [blake(sent[i:i + CHUNK]) for i in range(0, len(sent), CHUNK)] == s["payload"]["chunk_digests"], node, "payload")
    limit(sent[0] == 0, "UNSUPPORTED", "zstd: make the run with zstd_level 0")
    check(blake(sent[1:]) == s["payload"]["canonical_digest"], node, "canonical digest")
    check({**ledger_line(run, offer, offer_bytes, s, submitted, data), "node": node} == state["ledger"].pop(0), node, "ledger.jsonl")
    check(s["residual_before"] in (state["residuals"].get(node), state["zero"]), node, "residual_before")
    state["residuals"][node] = s["residual_after"]
    check(s["codec"] == offer["codec_up"] and 1 <= s["tokens"] <= offer["tokens_max"] and len(s["step_digests"]) == 8 * s["steps"], node, "limits")
    values = payload_decode(codec_of(offer["codec_up"]), run["adapter"]["layout"], sent[1:])
    check(norm(values) == accepted["norm"] and (not run["norm_max"] or accepted["norm"] <= run["norm_max"]), node, "norm")
    return s["tokens"], values


def check_judgement(run, record, state):
    """Published unless the loss grew by more than was agreed; everybody who was selected is somewhere."""
    settled = {a["node"] for a in record["accepted"]} | {r["node"] for r in record["refused"]} - {None}
    check(sorted(record["selected"]) == record["selected"] and set(record["selected"]) - settled == set(record["missing"]) and
          {a["node"] for a in record["accepted"]} <= set(record["selected"]), "who took part", record["round"])
    if record["eval"]:
        line = {"state": record["round"] + 1, **record["eval"]}
        check(state["states"].pop(0) == line, "eval/rounds.jsonl", record["round"])
        published = not record["eval"]["loss"] > state["loss"] + run["loss_increase_max"]
        check(record["published"] == published and not record["void"], "published", record["round"])
        state["loss"] = record["eval"]["loss"] if published else state["loss"]


def agreed(bundle, run):
    """What round 0 follows."""
    texts = [spell({**run, "nodes": []}).encode() + b"\n", (bundle / "scenario.yaml").read_bytes(), (bundle / "policy.yaml").read_bytes()]
    return blake(b"omm.agreed" + b"".join(blake(text) for text in texts))


def check_round(bundle, run, number, line, before, master, state):
    """Returns the master after it."""
    data = (bundle / "offers" / f"r{number:03}.env").read_bytes()
    key, payload = open_envelope("offer", data)
    offer, record = decode("Offer", payload), json.loads(line)
    check(key.hex() == run["coordinator_key"] and offer["round"] == number and blake(data).hex() == record["offer"], "offer")
    check(offer["previous"] == (blake(before) if before else agreed(bundle, run)), "chain", number)
    seed = blake(b"omm seed" + struct.pack("<Q", run["seed"]))
    check(offer["nonce"] == blake(struct.pack("<II", 1, number), key=seed), "nonce", number)
    check(offer["adapter"]["layout_digest"] == layout_digest(run["adapter"]["layout"]), "layout digest")
    broadcast = (bundle / "adapters" / f"r{number:03}.bin").read_bytes()
    check(offer["global"]["digest"] == blake(broadcast) and broadcast[0] == 0 and
          broadcast[1:] == payload_encode(codec_of(offer["codec_down"]), run["adapter"]["layout"], master), "broadcast", number)
    check_judgement(run, record, state)
    given = [check_submission(bundle, run, a, offer, data, key, state) for a in record["accepted"]]
    check(sum(weight for weight, _ in given) == record["weight_sum"], "weights")
    if record["published"]:
        step = mean(int(math.log2(offer["value_max"])), int(math.log2(offer["weight_sum_max"])), given)
        master = [f32(a + b) for a, b in zip(master, step)]
    stored = (bundle / "adapters" / f"master-r{number + 1:03}.f32").read_bytes()
    check(struct.pack(f"<{len(master)}f", *master) == stored and blake(stored).hex() == record["master"], "master", number)
    return master


def check_close(bundle, run, last_line):
    key, payload = open_envelope("close", (bundle / "close.env").read_bytes())
    close = decode("Close", payload)
    names = ["eval/after.jsonl", "eval/before.jsonl", "eval/control.jsonl", "eval/rounds.jsonl", "ledger.jsonl",
             "policy.yaml", "run.json", "scenario.yaml"]
    lines = b"".join(f"{n}\0{blake((bundle / n).read_bytes()).hex()}\n".encode() for n in names if (bundle / n).exists())
    check(key.hex() == run["coordinator_key"] and close["last_round"] == blake(last_line) and
          close["final_digest"] == blake((bundle / "final.gguf").read_bytes()) and close["eval_digest"] == blake(lines), "close")


def derived_key(seed, purpose, name):
    return key_from_seed(blake(struct.pack("<I", purpose) + name.encode(), key=seed))[2].hex()


def check_simulated_keys(run, scenario):
    """Of a simulated run its id and its keys follow from seed and scenario."""
    seed = blake(b"omm seed" + struct.pack("<Q", run["seed"]))
    check(run["coordinator_key"] == derived_key(seed, 3, "coordinator"), "the coordinator's key")
    check(blake(b"omm.run" + seed + blake(scenario)).hex()[:32] == run["run_id"], "run_id")
    for node in run["nodes"]:
        check(node["public_key"] == derived_key(seed, 2, node["name"]), node["name"], "key")


def check_bundle(bundle):
    check_manifest(bundle)
    run = json.loads((bundle / "run.json").read_text())
    check_simulated_keys(run, (bundle / "scenario.yaml").read_bytes())
    check(recipe_decode(bytes.fromhex(run["recipe"]))["rank"] == run["adapter"]["rank"], "recipe")
    lines = (bundle / "rounds.jsonl").read_bytes().splitlines(True)
    stored = (bundle / "adapters" / "master-r000.f32").read_bytes()
    master, before = list(struct.unpack(f"<{len(stored) // 4}f", stored)), None
    read = lambda name: [json.loads(line) for line in (bundle / name).read_text().splitlines()]
    state = {"ledger": read("ledger.jsonl"), "states": read("eval/rounds.jsonl"), "residuals": {}, "zero": blake(bytes(len(stored)))}
    state["loss"] = state["states"].pop(0)["loss"]
    for number, line in enumerate(lines):
        master = check_round(bundle, run, number, line, before, master, state)
        before = line
    check(len(lines) == run["rounds"] and not state["ledger"] and not state["states"], "rounds, ledger.jsonl, eval/rounds.jsonl")
    check_close(bundle, run, before)


def main():
    source = pathlib.Path(sys.argv[1]).resolve()
    read_reasons(source)
    if sys.argv[2] == "--write":
        (source / "docs" / "protocol.json").write_text(json.dumps(vectors(), indent=1, sort_keys=True) + "\n")
        return
    check_vectors(source)
    with tempfile.TemporaryDirectory(prefix="omm-peer-") as folder:
        scenario = (source / "scenarios" / "processes.yaml").read_text()
        scenario = re.sub(r"\b(model|train|test): base/", rf"\1: {source}/scenarios/base/", scenario)
        scenario = re.sub(r"(up|down): \{", r"\1: {zstd_level: 0, ", scenario)
        path = pathlib.Path(folder) / "run.yaml"
        path.write_text(scenario)
        done = subprocess.run([program(sys.argv[2:]), "simulate", path, "--out", path.parent / "bundle"], capture_output=True, text=True,
                              cwd=source, timeout=500)
        check(done.returncode == 0, "simulate:", done.stderr[-300:])
        if done.returncode == 0:
            check_bundle(path.parent / "bundle")
    for failure in failures:
        print(failure)
    print(f"{len(failures)} differences")
    sys.exit(1 if failures else 0)


main()

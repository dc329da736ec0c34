#!/usr/bin/env python3
"""Two implementations of docs/protocol.md agree: the program, and protocol_peer.py beside this file.

usage: protocol_test.py SOURCE_DIR MESHMIND    checks docs/protocol.json, and the whole bundle of a small run
       protocol_test.py SOURCE_DIR --write     writes docs/protocol.json anew

vectors_test.c checks the same vectors against the program's own encoders and decoders.
"""
import base64, hashlib, json, math, pathlib, re, struct, subprocess, sys, tempfile

sys.dont_write_bytecode = True
from protocol_peer import (CHUNK, CHUNKS_MAX, KINDS, ORDER, Refused, blake, codec_of, context, decode, decode_fields, encode, f32,
                           key_from_seed, layout_digest, limit, mean, open_envelope, payload_decode, payload_encode,
                           read_reasons, seal, sign, verify)


# ---- vectors ---------------------------------------------------------------------------------------

def digest(first):
    """As sample_digest of proto/samples.h."""
    return bytes((first + i) % 256 for i in range(32))


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
    yield "an unknown field", "Poll", poll + b"\x28\x01", "REFUSED_FORMAT"
    yield "a field twice", "Poll", poll[:2] + poll, "REFUSED_FORMAT"
    yield "a zero that is written", "Poll", poll[:36] + b"\x18\x00", "REFUSED_FORMAT"
    yield "a number of 33 bits", "Poll", poll[:36] + b"\x18\x80\x80\x80\x80\x10", "REFUSED_FORMAT"
    yield "cut off", "Poll", poll[:-1], "REFUSED_FORMAT"
    yield "another version", "Poll", changed("Poll", version=2), "VERSION"
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
        "means": list(mean_vectors()),
    }


failures = []


def check(ok, *what):
    if not ok:
        failures.append(" ".join(map(str, what)))


def reason_of(function, *args):
    try:
        function(*args)
    except Refused as refused:
        return refused.args[0]
    return "OK"


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


# ---- a run's bundle --------------------------------------------------------------------------------

def minisign_check(text, public, data):
    lines = text.splitlines()
    signature, trusted = base64.b64decode(lines[1]), lines[2].removeprefix("trusted comment: ").encode()
    prehashed = hashlib.blake2b(data).digest()
    check(signature[:2] == b"ED" and signature[2:10] == blake(public)[:8] and verify(public, signature[10:], prehashed) and
          verify(public, base64.b64decode(lines[3]), signature[10:] + trusted), "manifest.json.minisig")


def check_manifest(bundle):
    data = (bundle / "manifest.json").read_bytes()
    manifest = json.loads(data)
    key = base64.b64decode(manifest["bundle_key"])
    minisign_check((bundle / "manifest.json.minisig").read_text(), key[10:], data)
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


def check_submission(bundle, run, accepted, offer, offer_bytes, coordinator):
    """Returns its weight and values."""
    node, number = accepted["node"], offer["round"]
    data = (bundle / "submissions" / f"r{number:03}-{node[:16]}.env").read_bytes()
    key, payload = open_envelope("submission", data)
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
    return s["tokens"], payload_decode(codec_of(offer["codec_up"]), run["adapter"]["layout"], sent[1:])


def check_round(bundle, run, number, line, before, master):
    """Returns the master after it."""
    data = (bundle / "offers" / f"r{number:03}.env").read_bytes()
    key, payload = open_envelope("offer", data)
    offer, record = decode("Offer", payload), json.loads(line)
    check(key.hex() == run["coordinator_key"] and offer["round"] == number and blake(data).hex() == record["offer"], "offer")
    check(offer["previous"] == (blake(before) if before else bytes(32)), "chain", number)
    check(offer["adapter"]["layout_digest"] == layout_digest(run["adapter"]["layout"]), "layout digest")
    broadcast = (bundle / "adapters" / f"r{number:03}.bin").read_bytes()
    check(offer["global"]["digest"] == blake(broadcast) and broadcast[0] == 0 and
          broadcast[1:] == payload_encode(codec_of(offer["codec_down"]), run["adapter"]["layout"], master), "broadcast", number)
    given = [check_submission(bundle, run, a, offer, data, key) for a in record["accepted"]]
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


def check_simulated_keys(run):
    """Of a simulated run nonces and keys follow from the seed."""
    seed = blake(b"omm seed" + struct.pack("<Q", run["seed"]))
    check(run["coordinator_key"] == derived_key(seed, 3, "coordinator"), "the coordinator's key")
    for node in run["nodes"]:
        check(node["public_key"] == derived_key(seed, 2, node["name"]), node["name"], "key")


def check_bundle(bundle):
    check_manifest(bundle)
    run = json.loads((bundle / "run.json").read_text())
    check_simulated_keys(run)
    lines = (bundle / "rounds.jsonl").read_bytes().splitlines(True)
    stored = (bundle / "adapters" / "master-r000.f32").read_bytes()
    master, before = list(struct.unpack(f"<{len(stored) // 4}f", stored)), None
    for number, line in enumerate(lines):
        master = check_round(bundle, run, number, line, before, master)
        before = line
    check(len(lines) == run["rounds"], "rounds")
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
        done = subprocess.run([sys.argv[2], "simulate", path, "--out", path.parent / "bundle"], capture_output=True, text=True,
                              cwd=source, timeout=500)
        check(done.returncode == 0, "simulate:", done.stderr[-300:])
        if done.returncode == 0:
            check_bundle(path.parent / "bundle")
    for failure in failures:
        print(failure)
    print(f"{len(failures)} differences")
    sys.exit(1 if failures else 0)


main()

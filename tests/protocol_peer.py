"""A second implementation of docs/protocol.md, with Python's standard library alone.

It shares no code with the program; protocol_test.py holds the two against each other.
"""
import fractions, hashlib, json, math, re, struct

Fraction = fractions.Fraction


class Refused(Exception):
    """A reason as on the wire, and a sentence."""


def blake(data, key=b""):
    return hashlib.blake2b(data, digest_size=32, key=key).digest()


# ---- Ed25519 (RFC 8032) ----------------------------------------------------------------------------

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT = pow(2, (P - 1) // 4, P)  # of -1


def lift_x(y, sign):
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * ROOT % P
    if x * x % P != square or (x == 0 and sign) or y >= P:
        return None
    return P - x if x & 1 != sign else x


def point_add(a, b):  # extended coordinates X, Y, Z, T
    m, n = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    c, d = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    e, f, g, h = n - m, d - c, d + c, n + m
    return e * f % P, g * h % P, f * g % P, e * h % P


def point_times(s, point):
    out = (0, 1, 1, 0)
    while s:
        if s & 1:
            out = point_add(out, point)
        point, s = point_add(point, point), s >> 1
    return out


def point_bytes(p):
    z = pow(p[2], P - 2, P)
    return (p[1] * z % P | (p[0] * z % P & 1) << 255).to_bytes(32, "little")


def point_from(data):
    y = int.from_bytes(data, "little")
    x = lift_x(y & (1 << 255) - 1, y >> 255)
    y &= (1 << 255) - 1
    return None if x is None else (x, y, 1, x * y % P)


BASE = point_from((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def mod_order(*parts):
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % ORDER


def key_from_seed(seed):
    """Secret scalar, prefix, public key."""
    h = hashlib.sha512(seed).digest()
    scalar = int.from_bytes(h[:32], "little") & (1 << 254) - 8 | 1 << 254
    return scalar, h[32:], point_bytes(point_times(scalar, BASE))


def sign(key, message):
    scalar, prefix, public = key
    r = mod_order(prefix, message)
    point = point_bytes(point_times(r, BASE))
    return point + ((r + mod_order(point, public, message) * scalar) % ORDER).to_bytes(32, "little")


def is_small(point):
    """Of an order that divides 8."""
    x, y, z, _ = point_times(8, point)
    return x % P == 0 and (y - z) % P == 0


def verify(public, signature, message):
    """Without the cofactor, nothing of small order, each in one spelling: lift_x refuses y >= P."""
    a, r, s = point_from(public), point_from(signature[:32]), int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= ORDER or is_small(a) or is_small(r):
        return False
    k = mod_order(signature[:32], public, message)
    return point_bytes(point_times(s, BASE)) == point_bytes(point_add(r, point_times(k, a)))


# ---- messages: one spelling each -------------------------------------------------------------------

# name: [(number, field, kind)]; kinds: u and U (numbers of 32 and 64 bits), b (bool), f (f32), bytes, text, d (32 bytes), [kind], message, ?kind of a oneof
SCHEMA = {
    "Envelope": "context:bytes payload:bytes public_key:bytes signature:bytes",
    "Poll": "version:u run_id:text rounds_seen:u counter:U declined:u",
    "Adapter": "rank:u alpha:f targets:u value_count:U layout_digest:d",
    "Blob": "digest:d canonical_digest:d size:U chunk_digests:[d]",
    "Offer": "version:u run_id:text round:u rounds:u nonce:d base_digest:d tokenizer_digest:d adapter:Adapter "
             "recipe:bytes codec_up:bytes codec_down:bytes value_max:f weight_sum_max:U norm_max:f global:Blob "
             "deadline_ms:U payload_bytes_max:U tokens_max:U selected:[d] previous:d canary:?Blob",
    "Submission": "version:u run_id:text round:u nonce:d offer_digest:d base_digest:d global_digest:d tokens:U "
                  "examples:U steps:u loss_before:f loss_after:f codec:bytes payload:Blob data_commitment:d "
                  "residual_before:d residual_after:d step_digests:bytes",
    "Receipt": "version:u run_id:text round:u node_id:d submission_digest:d accepted:b reason:text sentence:text",
    "Close": "version:u run_id:text rounds:u last_round:d final_digest:d eval_digest:d",
    "Enrol": "version:u coordinator_key:d invitation_key:bytes invitation_signature:bytes challenge:bytes work:U",
    "Challenge": "version:u run_id:text seed:d bits:u",
    "Base": "version:u digest:d size:U piece_chunks:u piece_digests:[d] mirrors:[text] part_bytes:[U]",
    "GetBase": "",
    "GetChunk": "digest:d index:u",
    "PutChunk": "digest:d index:u data:bytes",
    "Request": "version:u poll:?bytes get:?GetChunk put:?PutChunk submit:?bytes enrol:?bytes ask_base:?GetBase payload:bytes whole:b",
    "Wait": "retry_ms:U",
    "Need": "missing:[u]",
    "Chunk": "digest:d index:u data:bytes",
    "Refused": "reason:text sentence:text",
    "Done": "close:bytes",
    "Reply": "version:u wait:?Wait offer:?bytes chunk:?Chunk need:?Need receipt:?bytes refused:?Refused done:?Done challenge:?bytes base_model:?bytes global:bytes",
}
SCHEMA = {name: [(i, *field.split(":")) for i, field in enumerate(fields.split(), 1)] for name, fields in SCHEMA.items()}
WIRE = {"u": 0, "U": 0, "b": 0, "f": 5}  # all others: 2, length and bytes


def varint(v):
    out = bytearray()
    while v >= 0x80:
        out.append(v & 0x7F | 0x80)
        v >>= 7
    return bytes(out) + bytes([v])


def read_varint(data, at):
    value = 0
    for i in range(10):
        if at + i >= len(data):
            raise Refused("REFUSED_FORMAT", "ends within a number")
        value |= (data[at + i] & 0x7F) << 7 * i
        if data[at + i] < 0x80:
            return value & (1 << 64) - 1, at + i + 1
    raise Refused("REFUSED_FORMAT", "a number of over ten bytes")


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def encode_value(kind, value):
    if kind in ("u", "U", "b"):
        limit(value < 1 << (64 if kind == "U" else 32), "REFUSED_FORMAT", "a number is too large")
        return varint(int(value))
    if kind == "f":
        return struct.pack("<f", value)
    body = encode(kind, value) if kind in SCHEMA else value.encode("latin-1") if kind == "text" else value
    return varint(len(body)) + body


def encode(name, fields):
    """Ascending by number; what is 0, false or empty is left out, but for sub-messages and the member of a oneof."""
    out = bytearray()
    for number, field, kind in SCHEMA[name]:
        value, chosen = fields.get(field), kind[0] == "?"
        kind = kind.lstrip("?")
        if value is None or (not chosen and kind not in SCHEMA and not value):
            continue
        if kind in ("[u]", "[U]"):  # packed
            body = b"".join(encode_value(kind[1], one) for one in value)
            out += varint(number << 3 | 2) + varint(len(body)) + body
            continue
        for one in value if kind in ("[d]", "[text]") else [value]:
            out += varint(number << 3 | WIRE.get(kind, 2)) + encode_value(kind.strip("[]"), one)
    return bytes(out)


def decode_fields(name, data):
    known = {number: (field, kind.lstrip("?")) for number, field, kind in SCHEMA[name]}
    out, at = {}, 0
    while at < len(data):
        tag, at = read_varint(data, at)
        if tag >> 3 not in known or tag & 7 != WIRE.get(known[tag >> 3][1], 2):
            raise Refused("REFUSED_FORMAT", f"{name}: unknown field {tag >> 3}, or of another kind")
        field, kind = known[tag >> 3]
        if kind == "f":
            if at + 4 > len(data):
                raise Refused("REFUSED_FORMAT", "ends within a number")
            out[field], at = struct.unpack("<f", data[at:at + 4])[0], at + 4
            continue
        value, at = read_varint(data, at)
        if kind in ("u", "U", "b"):
            out[field] = bool(value) if kind == "b" else value
            continue
        if value > len(data) - at:
            raise Refused("REFUSED_FORMAT", f"{name}.{field} ends behind the message")
        body, at = data[at:at + value], at + value
        if kind in SCHEMA:
            out[field] = decode_fields(kind, body)
        elif kind in ("[d]", "[text]"):
            out.setdefault(field, []).append(body if kind == "[d]" else body.decode("latin-1"))
        elif kind in ("[u]", "[U]"):
            numbers, i = [], 0
            while i < len(body):
                one, i = read_varint(body, i)
                numbers.append(one)
            out[field] = numbers
        else:
            out[field] = body.decode("latin-1") if kind == "text" else body
    return out


ZERO = {"u": 0, "U": 0, "b": False, "f": 0.0, "bytes": b"", "text": "", "d": b"", "[d]": [], "[text]": [], "[u]": [], "[U]": []}
WHOLE, WHOLE_MAX = {"payload": "submit", "whole": "poll", "global": "offer"}, 65536  # what may come with which body
CHUNK, CHUNKS_MAX, MESSAGE_MAX, ENVELOPE_MAX, PAYLOAD_MAX = 262144, 3072, 266240, 262144, 262144 - 138
COUNTER_BLOCK = 1024


def complete(name, fields):
    out = {}
    for _, field, kind in SCHEMA[name]:
        if kind in SCHEMA:
            if field not in fields:
                raise Refused("REFUSED_FORMAT", f"{name}.{field} is missing")
            out[field] = complete(kind, fields[field])
        elif kind[0] == "?" or kind == "[U]" or field == "declined" or name in ("Request", "Reply") and field in WHOLE:  # shown where it is there
            if field in fields:
                out[field] = complete(kind[1:], fields[field]) if kind[1:] in SCHEMA else fields[field]
        else:
            out[field] = fields.get(field, ZERO[kind])
    for _, field, kind in SCHEMA[name]:
        for digest in {"d": [out.get(field)], "[d]": out.get(field)}.get(kind, []):
            if len(digest) != 32:
                raise Refused("REFUSED_FORMAT", f"{name}.{field} has {len(digest)} bytes, not 32")
    return out


def limit(ok, *what):
    if not ok:
        raise Refused(*what)


def check_size(value, least, most, field):
    limit(least <= value <= most, "REFUSED_SIZE", f"{field}: {value}, allowed are {least} to {most}")


def check_blob(blob, field):
    check_size(blob["size"], 1, CHUNK * CHUNKS_MAX, field)
    limit(len(blob["chunk_digests"]) == -(-blob["size"] // CHUNK), "REFUSED_FORMAT", f"{field}: digests of chunks")


def ascending(values):
    return all(a < b for a, b in zip(values, values[1:]))


def check_sentence(text):
    check_size(len(text), 0, 256, "sentence")
    limit(all(" " <= c <= "~" for c in text), "REFUSED_FORMAT", "sentence")


def check_limits(name, m):
    if "version" in m:
        limit(m["version"] == 1, "VERSION", f"{name} has version {m['version']}")
    if "run_id" in m and not (name == "Poll" and m["run_id"] == ""):
        limit(re.fullmatch("[0-9a-f]{32}", m["run_id"]), "REFUSED_FORMAT", "run_id")
    for _, field, kind in SCHEMA[name]:
        if kind == "f":
            limit(math.isfinite(m[field]) and m[field] >= 0, "REFUSED_VALUE", field)
    if name == "Poll":
        check_size(m.get("declined", 0), 0, 255, "declined")
    elif name == "Offer":
        check_size(m["rounds"], 1, 2**32 - 1, "rounds")
        check_size(m["round"], 0, m["rounds"] - 1, "round")
        check_size(m["adapter"]["rank"], 1, 2**32 - 1, "adapter.rank")
        check_limits("Adapter", m["adapter"])
        check_size(m["adapter"]["value_count"], 1, 2**32 - 1, "adapter.value_count")
        for field, most in (("recipe", 4096), ("codec_up", 256), ("codec_down", 256), ("selected", 4096)):
            check_size(len(m[field]), 1, most, field)
        check_size(m["weight_sum_max"], 1, 2**64 - 1, "weight_sum_max")
        if "canary" in m:
            check_size(m["canary"]["size"], 1, 4 << 20, "canary")
            check_blob(m["canary"], "canary")
            check_size(len(m["selected"]), 1, 1, "selected")
            limit(m["canary"]["digest"] == m["canary"]["canonical_digest"], "REFUSED_FORMAT", "canary.canonical_digest")
        check_blob(m["global"], "global")
        limit(ascending(m["selected"]), "REFUSED_FORMAT", "selected")
    elif name == "Submission":
        check_size(len(m["codec"]), 1, 256, "codec")
        check_blob(m["payload"], "payload")
        check_size(len(m["step_digests"]), 0, 131072, "step_digests")
        limit(len(m["step_digests"]) % 8 == 0, "REFUSED_FORMAT", "step_digests")
    elif name == "Enrol":
        sizes = len(m["invitation_key"]), len(m["invitation_signature"])
        limit(sizes in ((0, 0), (32, 64)), "REFUSED_FORMAT", "invitation_key and invitation_signature")
        limit(len(m["challenge"]) == 32 or not (m["challenge"] or m["work"]), "REFUSED_FORMAT", "challenge and work")
    elif name == "Challenge":
        check_size(m["bits"], 1, 26, "bits")
    elif name == "Base":
        check_size(m["piece_chunks"], 1, 256, "piece_chunks")
        piece = m["piece_chunks"] * CHUNK
        check_size(m["size"], 1, 4096 * piece, "size")
        limit(len(m["piece_digests"]) == -(-m["size"] // piece), "REFUSED_FORMAT", "piece_digests")
        if "part_bytes" in m:
            check_size(len(m["part_bytes"]), 2, 128, "part_bytes")
            limit(min(m["part_bytes"]) > 0 and sum(m["part_bytes"]) == m["size"], "REFUSED_SIZE", "part_bytes")
        check_size(len(m["mirrors"]), 0, 8, "mirrors")
        for url in m["mirrors"]:
            limit(len(url) <= 255 and re.fullmatch(r"https?://[!$-&(-.0-;=A-Z\[\]_a-z~]+([/?][!$-&(-;=?-\[\]_a-z~]*)?", url) and
                  "@" not in re.split("[/?]", url)[2], "REFUSED_FORMAT", "mirrors")
    elif name == "Receipt":
        limit(m["reason"] in REASONS, "REFUSED_FORMAT", "reason")
        limit(m["accepted"] == (m["reason"] == "OK"), "REFUSED_FORMAT", "accepted")
        check_sentence(m["sentence"])
        limit(not (m["accepted"] and m["sentence"]), "REFUSED_FORMAT", "sentence")
    elif name in ("Request", "Reply"):
        bodies = [item for item in m.items() if item[0] not in ("version", *WHOLE)]
        limit(len(bodies) == 1, "REFUSED_FORMAT", "one body")
        kind, body = bodies[0]
        for field, belongs in WHOLE.items():
            limit(kind == belongs or not m.get(field), "REFUSED_FORMAT", field)
            check_size(len(m.get(field) or b"") if field != "whole" else 0, 0, WHOLE_MAX, field)
        if isinstance(body, bytes):
            check_size(len(body), 1, ENVELOPE_MAX, "envelope")
        elif kind == "done":
            check_size(len(body["close"]), 1, ENVELOPE_MAX, "envelope")
        elif kind == "need":
            check_size(len(body["missing"]), 0, CHUNKS_MAX, "missing")
            limit(all(i < CHUNKS_MAX for i in body["missing"]), "REFUSED_SIZE", "missing")
            limit(ascending(body["missing"]), "REFUSED_FORMAT", "missing")
        elif kind == "refused":
            limit(body["reason"] in REASONS and body["reason"] != "OK", "REFUSED_FORMAT", "reason")
            check_sentence(body["sentence"])
        elif kind not in ("wait", "ask_base"):
            if "data" in body:
                check_size(len(body["data"]), 1, CHUNK, "data")
            check_size(body["index"], 0, CHUNKS_MAX - 1, "index")


def decode(name, data):
    check_size(len(data), 1, 1024 if name in ("Enrol", "Challenge") else MESSAGE_MAX, name)
    fields = decode_fields(name, data)
    limit(encode(name, fields) == data, "REFUSED_FORMAT", f"{name} is not in its canonical spelling")
    if "version" in dict((f, k) for _, f, k in SCHEMA[name]):
        limit(fields.get("version") == 1, "VERSION", f"{name} has version {fields.get('version', 0)}")
    message = complete(name, fields)
    check_limits(name, message)
    return message


def context(purpose):
    return f"omm.{purpose}.v1".encode().ljust(32, b"\0")


def seal(purpose, payload, key):
    signature = sign(key, context(purpose) + payload)
    return encode("Envelope", {"context": context(purpose), "payload": payload, "public_key": key[2], "signature": signature})


def open_envelope(purpose, data):
    """Key and payload; `data` is what was received."""
    check_size(len(data), 1, ENVELOPE_MAX, "envelope")
    e = decode("Envelope", data)
    limit(len(e["context"]) == 32, "REFUSED_FORMAT", "context")
    check_size(len(e["payload"]), 1, PAYLOAD_MAX, "payload")
    limit(len(e["public_key"]) == 32 and len(e["signature"]) in (0, 64), "REFUSED_FORMAT", "key or signature")
    limit(e["signature"] and verify(e["public_key"], e["signature"], e["context"] + e["payload"]),
          "REFUSED_SIGNATURE", "does not verify")
    limit(e["context"] == context(purpose), "REFUSED_CONTEXT", "for another purpose")
    return e["public_key"], e["payload"]


# ---- adapters as vectors, and their codec ----------------------------------------------------------

KINDS = {"none": 0, "f16": 1, "int8": 2}
VALUE_MAX = 32512


def layout_digest(segments):
    return blake(json.dumps(segments, sort_keys=True, separators=(",", ":")).encode() + b"\n")


def rows_of(segments):
    """First index behind each row."""
    return [s["offset"] + (r + 1) * s["cols"] for s in segments for r in range(s["rows"])]


def bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def from_bits(value):
    return struct.unpack("<f", struct.pack("<I", value))[0]


def row_scale(largest):
    return 0 if largest < 2.0**-100 else bits(f32(largest / 127)) + 255 >> 8


def codes_of(kind, values, kept, segments):
    """What is kept with its code, and the scales."""
    if kind == "none":
        return [(i, struct.pack("<f", values[i] + 0.0)) for i in kept], []
    if kind == "f16":
        codes = [(i, struct.pack("<e", values[i])) for i in kept]
        return [(i, b"\0\0" if c == b"\0\x80" else c) for i, c in codes], []
    out, scales, at, dense = [], [], 0, len(kept) == len(values)
    for end in rows_of(segments):
        row = []
        while at < len(kept) and kept[at] < end:
            row.append(kept[at])
            at += 1
        if not row:
            continue
        upper = row_scale(max(abs(values[i]) for i in row))
        scale = from_bits(upper << 8)
        out += [(i, struct.pack("b", round(f32(values[i] / scale)) if upper else 0)) for i in row]
        if upper or dense:
            scales.append(upper)
    return out, scales


def payload_encode(codec, segments, values):
    """codec: {"kind", "keep_count"}."""
    kept = range(len(values))
    if codec["keep_count"]:
        kept = sorted(sorted(kept, key=lambda i: (-abs(values[i]), i))[:codec["keep_count"]])
    codes, scales = codes_of(codec["kind"], values, list(kept), segments)
    index, coding = b"", 0
    if codec["keep_count"]:
        codes = [(i, c) for i, c in codes if any(c)]
        before, coding = -1, 1
        for i, _ in codes:
            index, before = index + varint(i - before - 1), i
        if -(-len(values) // 8) < len(index):
            bitmap = bytearray(-(-len(values) // 8))
            for i, _ in codes:
                bitmap[i // 8] |= 1 << i % 8
            index, coding = bytes(bitmap), 2
    return (b"OMMD" + bytes([1, KINDS[codec["kind"]], coding, 0]) + struct.pack("<II", len(values), len(codes))
            + layout_digest(segments)[:8] + index + b"".join(struct.pack("<I", s)[:3] for s in scales)
            + b"".join(c for _, c in codes))


def finite(values):
    limit(all(abs(v) <= VALUE_MAX for v in values), "REFUSED_VALUE", "a value")
    return list(values)


def read_header(codec, segments, data):
    """How indices are written, and how many."""
    limit(len(data) >= 24, "REFUSED_FORMAT", "ends within its header")
    limit(data[:5] == b"OMMD\1" and data[6] <= 2 and data[7] == 0, "REFUSED_FORMAT", "header")
    keep, (n, count) = codec["keep_count"], struct.unpack("<II", data[8:16])
    limit(data[5] == KINDS[codec["kind"]] and (data[6] == 0) == (keep == 0) and (keep == 0 or count <= keep), "REFUSED_RECIPE", "another codec")
    limit(n == rows_of(segments)[-1] and data[16:24] == layout_digest(segments)[:8], "REFUSED_SHAPE", "another layout")
    return n, count, data[6]


def read_indices(data, n, count, coding):
    """They, and where they end."""
    at, kept = 24, list(range(n))
    if coding == 1:
        kept, last = [], -1
        for _ in range(count):
            gap, at = read_varint(data, at)
            last += gap + 1
            limit(last < n, "REFUSED_SHAPE", "an index")
            kept.append(last)
    elif coding == 2:
        at += -(-n // 8)
        limit(len(data) >= at, "REFUSED_FORMAT", "ends within the bitmap")
        kept = [i for i in range(8 * (at - 24)) if data[24 + i // 8] >> i % 8 & 1]
        limit(not kept or kept[-1] < n, "REFUSED_SHAPE", "an index")
    limit(len(kept) == count, "REFUSED_FORMAT", "count")
    return kept, at


def read_rows(data, at, kept, segments, coding):
    """Values of int8: scales of the rows that keep something, then codes."""
    ends, rows, row = rows_of(segments), [], 0
    for i in kept:
        while i >= ends[row]:
            row += 1
        rows.append(row)
    order = {row: k for k, row in enumerate(dict.fromkeys(rows))}
    limit(len(data) == at + 3 * len(order) + len(kept), "REFUSED_FORMAT", "ends elsewhere")
    scales = [from_bits(int.from_bytes(data[at + 3 * k:at + 3 * k + 3], "little") << 8) for k in range(len(order))]
    limit(all(2.0**-100 <= s * 127 <= VALUE_MAX or s == 0 and coding == 0 for s in scales), "REFUSED_VALUE", "a scale")
    codes = struct.unpack(f"{len(kept)}b", data[at + 3 * len(order):])
    return [q * scales[order[row]] for row, q in zip(rows, codes)]


def payload_decode(codec, segments, data):
    n, count, coding = read_header(codec, segments, data)
    kept, at = read_indices(data, n, count, coding)
    values = [0.0] * n
    if codec["kind"] == "int8":
        read = read_rows(data, at, kept, segments, coding)
    else:
        letter, width = {"none": ("f", 4), "f16": ("e", 2)}[codec["kind"]]
        limit(len(data) == at + width * count, "REFUSED_FORMAT", "ends elsewhere")
        read = finite(struct.unpack(f"<{count}{letter}", data[at:]))
    for i, v in zip(kept, read):
        values[i] = v
    limit(payload_encode(codec, segments, values) == data, "REFUSED_FORMAT", "payload is not canonical")
    return values


# ---- zstd (RFC 8878): one frame of raw and run blocks, which is all that is needed here ------------

ZSTD = b"\x28\xb5\x2f\xfd"


def frame_decode(data, most):
    """Of a single segment: its size is declared in 1 or 2 bytes."""
    limit(data[:4] == ZSTD and len(data) >= 8, "REFUSED_FORMAT", "no frame")
    limit(data[4] in (0x20, 0x60), "REFUSED_FORMAT", "a frame without its size, or with more than is needed here")
    at = 6 + (data[4] >> 6)
    size = data[5] if data[4] == 0x20 else struct.unpack("<H", data[5:7])[0] + 256
    limit(size <= most, "REFUSED_SIZE", "declares too much")
    out, last = b"", False
    while not last:
        limit(len(data) >= at + 3, "REFUSED_FORMAT", "ends within a block")
        head = int.from_bytes(data[at:at + 3], "little")
        last, kind, length = head & 1, head >> 1 & 3, head >> 3
        body = data[at + 3:at + 3 + (length if kind == 0 else 1)]
        limit(kind < 2 and len(body) == (length if kind == 0 else 1), "REFUSED_FORMAT", "a block")
        out, at = out + (body if kind == 0 else body * length), at + 3 + len(body)
    limit(at == len(data) and len(out) == size > len(data), "REFUSED_FORMAT", "a frame that is not shorter, or ends elsewhere")
    return out


def payload_bytes_max(codec, segments):
    """Where all is kept.  Where not, this is more than there can be: what is over it is found to be malformed."""
    n = rows_of(segments)[-1]
    scales = 3 * len(rows_of(segments)) if codec["kind"] == "int8" else 0
    return 24 + {"none": 4, "f16": 2, "int8": 1}[codec["kind"]] * n + scales + (-(-n // 8) if codec["keep_count"] else 0)


def sent_decode(codec, segments, data):
    check_size(len(data), 0, 1 + payload_bytes_max(codec, segments), "payload")
    limit(len(data) >= 1 and data[0] <= 1, "REFUSED_FORMAT", "packing")
    if data[0] == 0:
        return payload_decode(codec, segments, data[1:])
    limit(codec["zstd_level"] > 0, "REFUSED_RECIPE", "packed, and the codec packs nothing")
    return payload_decode(codec, segments, frame_decode(data[1:], payload_bytes_max(codec, segments)))


def codec_of(data):
    limit(len(data) == 8, "REFUSED_FORMAT", "a codec of another size")
    kind, level, feedback, zero, keep = struct.unpack("<BBBBI", data)
    limit(kind <= 2 and level <= 19 and feedback <= 1 and zero == 0, "REFUSED_FORMAT", "codec")
    return {"kind": [k for k, v in KINDS.items() if v == kind][0], "keep_count": keep, "zstd_level": level}


# ---- the mean --------------------------------------------------------------------------------------

def rne(x):  # of a Fraction
    return round(x)


def f32_of(x):
    """A Fraction rounded once, half to even."""
    if x == 0:
        return 0.0
    size = abs(x)
    e = size.numerator.bit_length() - size.denominator.bit_length()
    e -= size < Fraction(2) ** e
    unit = Fraction(2) ** (max(e, -126) - 23)
    return float(rne(x / unit) * unit)


def mean(value_log2, weight_log2, contributions):
    """contributions: (weight, values)."""
    shift = 62 - value_log2 - weight_log2
    total = sum(weight for weight, _ in contributions)
    sums = [0] * len(contributions[0][1])
    for weight, values in contributions:
        for i, v in enumerate(values):
            if v:
                sums[i] += weight * rne(Fraction(v) * Fraction(2) ** shift)
    return [f32_of(Fraction(s, total) / Fraction(2) ** shift) if s else 0.0 for s in sums]


def norm(values):
    """In sixteen sums, as docs/protocol.md has it."""
    sums = [0.0] * 16
    for i, v in enumerate(values):
        sums[i % 16] += v * v
    for apart in (8, 4, 2, 1):
        for i in range(apart):
            sums[i] += sums[i + apart]
    return math.sqrt(sums[0])


REASONS = set()


def read_reasons(source):
    text = (source / "base" / "include" / "omm" / "err.h").read_text()
    REASONS.update(["OK"] + re.findall(r"XX\((\w+), \"", text))

"""A second implementation of docs/files.md, with Python's standard library alone: canonical JSON, recipes, locked keys, the
audit log's chain, the manifest.

It shares no code with the program; protocol_test.py holds the two against each other.
"""
import datetime, hashlib, hmac, json, math, re, struct

from protocol_peer import Refused, blake, f32, key_from_seed, limit


# ---- JSON in its canonical spelling ----------------------------------------------------------------

SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def spell_text(text):
    return '"' + "".join(SHORT.get(c) or (f"\\u{ord(c):04X}" if c < " " else c) for c in text) + '"'


def spell_real(value):
    digits, _, exponent = f"{value:.17g}".partition("e")
    if exponent:
        return f"{digits}e{int(exponent)}"
    return digits if "." in digits else digits + ".0"


def spell(value):
    if isinstance(value, dict):
        return "{" + ",".join(f"{spell_text(k)}:{spell(value[k])}" for k in sorted(value, key=lambda k: k.encode())) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(spell, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return spell_text(value) if isinstance(value, str) else str(value) if isinstance(value, int) else spell_real(value)


def spell_indented(value, depth=0):
    inner, outer = "\n" + "  " * (depth + 1), "\n" + "  " * depth
    if isinstance(value, dict) and value:
        return "{" + ",".join(f"{inner}{spell_text(k)}: {spell_indented(value[k], depth + 1)}"
                              for k in sorted(value, key=lambda k: k.encode())) + outer + "}"
    if isinstance(value, list) and value:
        return "[" + ",".join(inner + spell_indented(v, depth + 1) for v in value) + outer + "]"
    return spell(value)


def line_of(value):
    return (spell(value) + "\n").encode()


def members_once(pairs):
    limit(len(dict(pairs)) == len(pairs), "FORMAT", "a member twice")
    return dict(pairs)


def read_json(data):
    def no_number(text):
        raise Refused("FORMAT", text)

    try:
        return json.loads(data.decode(), object_pairs_hook=members_once, parse_constant=no_number)
    except ValueError as error:
        raise Refused("FORMAT", str(error))


def is_hex(text, size):
    return isinstance(text, str) and re.fullmatch(f"[0-9a-f]{{{2 * size}}}", text)


# ---- recipes ---------------------------------------------------------------------------------------

# name, whole or real, least, most; the first 19 are version 1, the last is version 5 (4 is gone)
RECIPE = [("rank", "I", 1, 256), ("alpha", "f", 1e-3, 4096), ("targets", "I", 1, 127), ("parts", "I", 0, 3), ("dropout", "f", 0, 0.9),
          ("steps", "I", 1, 1000000), ("batch_tokens", "I", 1, 1 << 24), ("micro_tokens", "I", 1, 1 << 16), ("seq_max", "I", 8, 32768),
          ("learning_rate", "f", 0, 10), ("warmup_steps", "I", 0, 1000000), ("lr_min_ratio", "f", 0, 1), ("beta1", "f", 0, 0.99999),
          ("beta2", "f", 0, 0.999999), ("epsilon", "f", 1e-12, 1), ("weight_decay", "f", 0, 10), ("clip_norm", "f", 0, 1e6),
          ("prox_mu", "f", 0, 1e3), ("seed_lane", "I", 0, 2**32 - 1),
          ("optimizer", "I", 0, 2), ("schedule", "I", 0, 2), ("momentum", "f", 0, 0.99999), ("nesterov", "I", 0, 1),
          ("relative_step", "I", 0, 1), ("rslora", "I", 0, 1), ("b_rate_ratio", "f", 0, 1024),
          ("activations", "I", 0, 1)]
RECIPE_TEXTS = ["target_pattern", "rank_pattern", "alpha_pattern"]
TEXT_BYTES = 128
NUMBER = r"[0-9]{1,7}(?:\.[0-9]{1,7})?"


def recipe_version(fields):
    if fields["activations"]:
        return 5
    if fields["parts"] == 3 or any(fields[name] for name in RECIPE_TEXTS):
        return 3
    return 2 if any(fields[name] for name, *_ in RECIPE[19:26]) else 1


def recipe_layout(version):
    kinds = "".join(kind for _, kind, *_ in RECIPE)
    texts = f"{TEXT_BYTES}s" * len(RECIPE_TEXTS) if version >= 3 else ""
    return "<4sI" + (kinds[:19] if version == 1 else kinds[:26]) + texts + (kinds[26:] if version == 5 else "")


def recipe_names(version):
    names = [name for name, *_ in RECIPE]
    return (names[:19] if version == 1 else names[:26]) + (RECIPE_TEXTS if version >= 3 else []) + (names[26:] if version == 5 else [])


def recipe_encode(fields):
    version = recipe_version(fields)
    values = (fields[name].encode() if name in RECIPE_TEXTS else fields[name] for name in recipe_names(version))
    return struct.pack(recipe_layout(version), b"OMMR", version, *values)


def recipe_check(fields):
    for name, kind, least, most in RECIPE:
        if kind == "f":
            least, most = f32(least), f32(most)
        limit(least <= fields[name] <= most, "CONFIG", name)
    limit(fields["optimizer"] == 1 or fields["momentum"] == 0, "CONFIG", "momentum without SGD")
    limit(fields["momentum"] > 0 or not fields["nesterov"], "CONFIG", "nesterov without momentum")
    limit(fields["optimizer"] == 2 or not fields["relative_step"], "CONFIG", "relative_step without Adafactor")
    limit(fields["targets"] == 127 or not fields["target_pattern"], "CONFIG", "targets with target_pattern")
    for name, good in (("rank_pattern", lambda x: 1 <= x <= 256 and x == int(x)), ("alpha_pattern", lambda x: 1e-3 <= x <= 4096)):
        for rule in fields[name].split(",") if fields[name] else []:
            match = re.fullmatch(f"([^=]+)=({NUMBER})", rule)
            limit(match and good(float(match[2])), "CONFIG", name)


def read_text(data):
    text = data.rstrip(b"\0")
    limit(len(text) < TEXT_BYTES and b"\0" not in text, "FORMAT", "a text that goes on after its end")
    return text.decode("latin-1")


def recipe_decode(data):
    limit(8 <= len(data) <= 500, "SIZE", len(data))
    limit(data[:4] == b"OMMR", "FORMAT", "no recipe")
    version = struct.unpack("<I", data[4:8])[0]
    limit(version in (1, 2, 3, 5), "VERSION", version)
    limit(len(data) == struct.calcsize(recipe_layout(version)), "SIZE", len(data))
    fields = {name: 0 for name, *_ in RECIPE} | {name: "" for name in RECIPE_TEXTS}
    fields |= dict(zip(recipe_names(version), struct.unpack(recipe_layout(version), data)[2:]))
    limit(not any(kind == "f" and fields[name] == 0 and math.copysign(1, fields[name]) < 0 for name, kind, *_ in RECIPE), "FORMAT", "-0")
    for name in RECIPE_TEXTS if version >= 3 else []:
        fields[name] = read_text(fields[name])
    recipe_check(fields)
    limit(recipe_version(fields) == version, "FORMAT", "a higher version than it needs")
    return fields


# ---- Argon2id, version 1.3 (RFC 9106): one lane ----------------------------------------------------

M64 = (1 << 64) - 1


def long_blake(size, data):  # H'
    data = struct.pack("<I", size) + data
    if size <= 64:
        return hashlib.blake2b(data, digest_size=size).digest()
    out, v = b"", hashlib.blake2b(data).digest()
    while size - len(out) > 64:
        out, v = out + v[:32], hashlib.blake2b(v, digest_size=min(64, size - len(out) - 32)).digest()
    return out + v


def mix(v, a, b, c, d):
    for turn, other in ((32, 24), (16, 63)):
        v[a] = v[a] + v[b] + 2 * (v[a] & 0xFFFFFFFF) * (v[b] & 0xFFFFFFFF) & M64
        x = v[d] ^ v[a]
        v[d] = (x >> turn | x << 64 - turn) & M64
        v[c] = v[c] + v[d] + 2 * (v[c] & 0xFFFFFFFF) * (v[d] & 0xFFFFFFFF) & M64
        x = v[b] ^ v[c]
        v[b] = (x >> other | x << 64 - other) & M64


def permute(v, at):
    for a, b, c, d in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15), (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
        mix(v, at[a], at[b], at[c], at[d])


ROWS = [[16 * r + i for i in range(16)] for r in range(8)]
COLUMNS = [[2 * c + 16 * (i // 2) + i % 2 for i in range(16)] for c in range(8)]


def compress(x, y):  # G
    r = [a ^ b for a, b in zip(x, y)]
    v = list(r)
    for at in ROWS + COLUMNS:
        permute(v, at)
    return [a ^ b for a, b in zip(r, v)]


def reference(j1, passes, piece, index, quarter):
    """Which block is mixed in: of those that are there and not the one before."""
    start = 0 if passes == 0 or piece == 3 else (piece + 1) * quarter
    area = (piece * quarter if passes == 0 else 3 * quarter) + index - 1
    x = j1 * j1 >> 32
    return (start + area - 1 - (area * x >> 32)) % (4 * quarter)


def argon2id(passphrase, salt, ops, kib, size=32):
    blocks = 4 * (kib // 4)
    quarter, zero = blocks // 4, [0] * 128
    h = hashlib.blake2b(struct.pack("<6I", 1, size, kib, ops, 0x13, 2) + b"".join(
        struct.pack("<I", len(part)) + part for part in (passphrase, salt, b"", b""))).digest()
    memory = [list(struct.unpack("<128Q", long_blake(1024, h + struct.pack("<II", i, 0)))) for i in (0, 1)] + [None] * (blocks - 2)
    for passes in range(ops):
        for piece in range(4):
            independent = passes == 0 and piece < 2
            for index in range(2 if passes == piece == 0 else 0, quarter):
                at = piece * quarter + index
                if independent and (index % 128 == 0 or index == 2 and piece == 0):
                    counter = [passes, 0, piece, blocks, ops, 2, index // 128 + 1] + [0] * 121
                    addresses = compress(zero, compress(zero, counter))
                word = addresses[index % 128] if independent else memory[at - 1][0]
                new = compress(memory[at - 1], memory[reference(word & 0xFFFFFFFF, passes, piece, index, quarter)])
                memory[at] = [a ^ b for a, b in zip(new, memory[at])] if passes else new
    return long_blake(size, struct.pack("<128Q", *memory[-1]))


# ---- crypto_secretbox: XSalsa20 and Poly1305 -------------------------------------------------------

def salsa_rounds(state):
    v = list(state)
    quarters = [(0, 4, 8, 12), (5, 9, 13, 1), (10, 14, 2, 6), (15, 3, 7, 11), (0, 1, 2, 3), (5, 6, 7, 4), (10, 11, 8, 9), (15, 12, 13, 14)]
    for _ in range(10):
        for a, b, c, d in quarters:
            for to, x, y, turn in ((b, a, d, 7), (c, b, a, 9), (d, c, b, 13), (a, d, c, 18)):
                s = v[x] + v[y] & 0xFFFFFFFF
                v[to] ^= (s << turn | s >> 32 - turn) & 0xFFFFFFFF
    return v


def salsa_state(key, block):
    c, k, n = struct.unpack("<4I", b"expand 32-byte k"), struct.unpack("<8I", key), struct.unpack("<4I", block)
    return [c[0], *k[:4], c[1], *n, c[2], *k[4:], c[3]]


def xsalsa(key, nonce, size):
    v = salsa_rounds(salsa_state(key, nonce[:16]))
    key, out = struct.pack("<8I", *(v[i] for i in (0, 5, 10, 15, 6, 7, 8, 9))), b""
    for i in range(-(-size // 64)):
        state = salsa_state(key, nonce[16:] + struct.pack("<Q", i))
        out += struct.pack("<16I", *(a + b & 0xFFFFFFFF for a, b in zip(state, salsa_rounds(state))))
    return out[:size]


def poly1305(key, data):
    r, s = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF, int.from_bytes(key[16:], "little")
    a = 0
    for i in range(0, len(data), 16):
        a = (a + int.from_bytes(data[i:i + 16] + b"\1", "little")) * r % ((1 << 130) - 5)
    return (a + s & (1 << 128) - 1).to_bytes(16, "little")


def box_seal(key, nonce, data):
    stream = xsalsa(key, nonce, 32 + len(data))
    hidden = bytes(a ^ b for a, b in zip(data, stream[32:]))
    return poly1305(stream[:32], hidden) + hidden


def box_open(key, nonce, box):
    stream = xsalsa(key, nonce, 16 + len(box))
    limit(hmac.compare_digest(poly1305(stream[:32], box[16:]), box[:16]), "SIGNATURE", "not its passphrase")
    return bytes(a ^ b for a, b in zip(box[16:], stream[32:]))


# ---- locked keys -----------------------------------------------------------------------------------

LOCK = {"salt": 16, "nonce": 24, "box": 48, "public": 32}


def lock_key(seed, passphrase, ops, mem_bytes, salt, nonce):
    key = argon2id(passphrase, salt, ops, mem_bytes // 1024)
    return {"schema_version": 1, "kind": "omm-locked-key", "public": key_from_seed(seed)[2].hex(), "ops": ops, "mem_bytes": mem_bytes,
            "salt": salt.hex(), "nonce": nonce.hex(), "box": box_seal(key, nonce, seed).hex()}


def unlock_key(text, passphrase):
    """The seed."""
    v = read_json(text.encode())
    limit(isinstance(v, dict) and v.get("kind") == "omm-locked-key" and v.get("schema_version") == 1, "FORMAT", "no locked key")
    limit(not {"ops", "mem_bytes", *LOCK} - set(v), "NOT_FOUND", "a member")
    for name in ("ops", "mem_bytes"):
        limit(type(v.get(name)) is int and v[name] >= 1, "FORMAT", name)
    limit(v["ops"] <= 16 and v["mem_bytes"] <= 1 << 30, "TOO_BIG", "more work than is done")
    limit(v["mem_bytes"] >= 8192, "FORMAT", "mem_bytes")
    limit(all(is_hex(v.get(name), size) for name, size in LOCK.items()), "FORMAT", "hex digits")
    key = argon2id(passphrase, bytes.fromhex(v["salt"]), v["ops"], v["mem_bytes"] // 1024)
    seed = box_open(key, bytes.fromhex(v["nonce"]), bytes.fromhex(v["box"]))
    limit(key_from_seed(seed)[2].hex() == v["public"], "MISMATCH", "the public key is another's")
    return seed


# ---- the audit log ---------------------------------------------------------------------------------

LINE_BYTES = 65536


def audit_append(lines, at, event, fields):
    """Lines of one more entry."""
    previous = blake(lines[-1]).hex() if lines else "0" * 64
    return lines + [line_of({**fields, "at": at, "event": event, "previous": previous, "seq": len(lines)})]


def audit_verify(data):
    """Entries and the head."""
    count, head = 0, bytes(32)
    for line in data.splitlines(True):
        limit(len(line) <= LINE_BYTES and line.endswith(b"\n"), "FORMAT", "a line without its end, or over 64 KiB")
        v = read_json(line)
        limit(isinstance(v, dict) and line_of(v) == line, "FORMAT", "not canonical")
        limit(all(type(v.get(k)) is kind for k, kind in (("seq", int), ("at", str), ("event", str), ("previous", str))), "FORMAT", "members")
        limit(len(v["at"]) == 24, "FORMAT", "at")
        limit(v["seq"] == count, "FORMAT", "seq")
        limit(v["previous"] == head.hex(), "FORMAT", "previous")
        count, head = count + 1, blake(line)
    return count, head


# ---- the manifest ----------------------------------------------------------------------------------

# The first table of docs/files.md; limits are not checked here.
NNN, NODE = r"(?:\d{3}|[1-9]\d{3,6})", "[0-9a-f]{16}"
CLASSES = [("-", r"manifest\.json(\.minisig)?"), ("V", r"virtual/(?!\.)[a-z0-9_.-]*[a-z0-9_-]"),
           ("M", r"measured/(?!\.)[a-z0-9_.-]*[a-z0-9_-]|junit\.xml"),
           ("D", r"(scenario|policy)\.yaml|(run|gates)\.json|(rounds|ledger)\.jsonl|final\.gguf|close\.env"),
           ("D", rf"offers/r{NNN}\.env|(submissions|receipts)/r{NNN}-{NODE}\.env|payloads/[0-9a-f]{{64}}\.bin"),
           ("D", rf"refused/r{NNN}-(0|[1-9]\d{{0,6}})(-[A-Z0-9_]+\.(env|bin)|\.receipt\.env)"),
           ("D", rf"adapters/(r{NNN}\.bin|master-r{NNN}\.f32)|eval/(before|after|control|rounds)\.jsonl")]


def class_of(path):
    return next((c for c, pattern in CLASSES if re.fullmatch(pattern, path)), None)


def run_digest(files):
    """files: {"path", "class", "sha256"}, ascending by path."""
    return hashlib.sha256(b"".join(f["path"].encode() + b"\0" + f["sha256"].encode() + b"\n" for f in files if f["class"] == "D")).hexdigest()


MANIFEST = {"schema_version", "kind", "run_id", "run_digest", "scenario_digest", "bundle_key", "commit", "build", "machine", "created", "files"}


def is_time(text):
    if not isinstance(text, str) or not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z", text):
        return False
    try:
        return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").year >= 1970
    except ValueError:
        return False


def manifest_verify(text):
    v = read_json(text.encode())
    limit(v.get("schema_version") == 1, "VERSION", "schema_version")
    limit(set(v) == MANIFEST and v["kind"] == "omm-bundle", "FORMAT", "members")
    limit(is_time(v["created"]), "FORMAT", "created")
    for f in v["files"]:
        limit(set(f) == {"path", "class", "bytes", "sha256"} and is_hex(f["sha256"], 32), "FORMAT", "a file")
        limit(class_of(f["path"]) == f["class"] and f["class"] in "DVM", "FORMAT", "a path or its class")
    paths = [f["path"] for f in v["files"]]
    limit(all(a.encode() < b.encode() for a, b in zip(paths, paths[1:])), "FORMAT", "order")
    limit(spell_indented(v) + "\n" == text, "FORMAT", "not in its spelling")
    limit(run_digest(v["files"]) == v["run_digest"], "REFUSED_DIGEST", "run_digest")
    return v["run_digest"]

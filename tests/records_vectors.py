"""Vectors of docs/files.md, made by records_peer.py: what protocol_test.py writes into docs/protocol.json and compares with it."""
import base64, hashlib, math, struct

from protocol_peer import Refused, blake, f32, key_from_seed, sign, verify
from records_peer import (RECIPE, RECIPE_TEXTS, audit_append, audit_verify, class_of, line_of, lock_key, manifest_verify, recipe_decode, recipe_encode,
                          run_digest, spell, spell_indented, unlock_key)


def digest(first):
    """As sample_digest of proto/samples.h."""
    return bytes((first + i) % 256 for i in range(32))


# ---- JSON ------------------------------------------------------------------------------------------

JSON_VALUES = [
    0.0, -0.0, 1.0, -1.0, 0.1, 1 / 3, 100.0, 1e15, 1e16, 1e17, 123456789012345680.0, 1e22, 0.001, 0.0001, 0.00001, 1e-5 / 3, 1e-10, 5e-324,
    2.2250738585072014e-308, 1.7976931348623157e308, -2.5e-7,
    0, -1, 2**63 - 1, -2**63, True, False, None, "", [], {},
    "".join(map(chr, range(1, 128))), "\u0080\u00e9\u2028\ufb00\ufffd\U0001f600",
    {"b": 1, "a": [1.0, 1, "1", None, True], "B": {}, "aa": [], "\u00e9": 0, "\ufb00": 0, "\U0001f600": 0, "a\n": 0},
]


def json_vectors():
    return [{"value": v, "text": spell(v), "indented": spell_indented(v)} for v in JSON_VALUES]


# ---- recipes ---------------------------------------------------------------------------------------

def recipes():
    first = {"rank": 8, "alpha": 16.0, "targets": 127, "parts": 0, "dropout": 0.0, "steps": 20, "batch_tokens": 2048, "micro_tokens": 512,
             "seq_max": 512, "learning_rate": f32(0.01), "warmup_steps": 2, "lr_min_ratio": f32(0.1), "beta1": f32(0.9), "beta2": f32(0.99),
             "epsilon": f32(1e-8), "weight_decay": 0.0, "clip_norm": 1.0, "prox_mu": 0.0, "seed_lane": 0, "optimizer": 0, "schedule": 0,
             "momentum": 0.0, "nesterov": 0, "relative_step": 0, "rslora": 0, "b_rate_ratio": 0.0,
             "target_pattern": "", "rank_pattern": "", "alpha_pattern": "", "activations": 0}
    yield "what is set where nothing is", first
    yield "each number its own", {**first, "rank": 3, "alpha": 4.5, "targets": 5, "parts": 2, "dropout": 0.25, "steps": 7, "batch_tokens": 1 << 24,
                                  "micro_tokens": 1 << 16, "seq_max": 8, "learning_rate": f32(0.3), "warmup_steps": 9, "lr_min_ratio": 1.0,
                                  "beta1": f32(0.99999), "beta2": f32(0.999999), "epsilon": f32(1e-12), "weight_decay": 10.0, "clip_norm": 1e6,
                                  "prox_mu": 1e3, "seed_lane": 2**32 - 1}
    yield "SGD", {**first, "optimizer": 1, "schedule": 1, "momentum": f32(0.9), "nesterov": 1, "rslora": 1, "b_rate_ratio": 16.0}
    yield "Adafactor", {**first, "optimizer": 2, "schedule": 2, "relative_step": 1}
    yield "a core", {**first, "parts": 3}
    yield "patterns", {**first, "rank": 4, "target_pattern": "blk.0-1.attn_*,ffn_up", "rank_pattern": "attn_q=2,blk.1.*=16",
                       "alpha_pattern": "ffn_*=0.125"}
    yield "activations in int8", {**first, "activations": 1}
    yield "all of it", {**first, "optimizer": 1, "momentum": 0.5, "target_pattern": "blk.3.*", "alpha_pattern": "q=2", "activations": 1}
    yield "texts of 127 bytes", {**first, "rank_pattern": "*" * 125 + "=1", "optimizer": 1}


def bad_recipes():
    one = dict(recipes())
    first, sgd, patterns, int8 = (recipe_encode(one[k]) for k in ("what is set where nothing is", "SGD", "patterns", "activations in int8"))

    def number(data, name, value):
        at = 8 + 4 * [n for n, *_ in RECIPE].index(name)
        return data[:at] + struct.pack("<f" if isinstance(value, float) else "<I", value) + data[at + 4:]

    yield "nothing", b"", "SIZE"
    yield "cut off", first[:-1], "SIZE"
    yield "a byte behind it", first + b"\0", "SIZE"
    yield "another beginning", b"OMMD" + first[4:], "FORMAT"
    yield "version 0", first[:4] + struct.pack("<I", 0) + first[8:], "VERSION"
    yield "version 6", first[:4] + struct.pack("<I", 6) + first[8:], "VERSION"
    yield "version 4, int8 products of another rounding", int8[:4] + struct.pack("<I", 4) + int8[8:], "VERSION"
    yield "version 5, of the size of 1", first[:4] + struct.pack("<I", 5) + first[8:], "SIZE"
    yield "version 2, of the size of 1", first[:4] + struct.pack("<I", 2) + first[8:], "SIZE"
    yield "version 2 without need", first[:4] + struct.pack("<I", 2) + first[8:] + bytes(28), "FORMAT"
    yield "version 3 without need", sgd[:4] + struct.pack("<I", 3) + sgd[8:] + bytes(384), "FORMAT"
    yield "version 5 without need", patterns[:4] + struct.pack("<I", 5) + patterns[8:] + bytes(4), "FORMAT"
    yield "activations 2", int8[:-4] + struct.pack("<I", 2), "CONFIG"
    yield "a text that goes on, in version 5", int8[:-5] + b"a" + int8[-4:], "FORMAT"
    yield "a core in version 1", number(first, "parts", 3), "FORMAT"
    for name, kind, least, most in RECIPE[:26]:
        past = [least - 1, most + 1]
        if kind == "f":
            past = [f32(least * 0.999) if least else -1e-6, f32(most * 1.001), math.nan]
        for value in past:
            if kind == "f" or 0 <= value < 2**32:
                yield f"{name} {value:g}", number(sgd, name, value), "CONFIG"
    yield "minus zero", number(first, "dropout", -0.0), "FORMAT"
    yield "momentum without SGD", number(sgd, "optimizer", 0), "CONFIG"
    yield "nesterov without momentum", number(sgd, "momentum", 0.0), "CONFIG"
    yield "relative_step without Adafactor", number(sgd, "relative_step", 1), "CONFIG"
    yield "not all targets beside a pattern", number(patterns, "targets", 1), "CONFIG"
    yield "a text of 128 bytes", patterns[:112] + b"a" * 128 + patterns[240:], "FORMAT"
    yield "a text that goes on after its end", patterns[:239] + b"a" + patterns[240:], "FORMAT"
    for text, field in (("=2", 1), ("a=0", 1), ("a=257", 1), ("a=1.5", 1), ("a=1,", 1), ("a", 1), ("a=", 1), ("a=1.", 1), ("a=12345678", 1), ("a= 1", 1),
                        ("a=1e1", 1), ("a=+1", 1), ("a=0.0009", 2), ("a=4096.5", 2), ("a==1", 2)):
        at = 112 + 128 * field
        yield f"{RECIPE_TEXTS[field]} {text}", patterns[:at] + text.encode().ljust(128, b"\0") + patterns[at + 128:], "CONFIG"


# ---- locked keys -----------------------------------------------------------------------------------

def locks():
    """Passphrase, seed, file; the passphrases are bytes and no more: nothing is normalised."""
    for passphrase, seed, ops, mem_bytes in (("correct horse", digest(1), 1, 8192), ("grüße dich, e\u0301va", digest(99), 3, 70000), ("x" * 1024, digest(7), 16, 9215)):
        record = lock_key(seed, passphrase.encode(), ops, mem_bytes, blake(seed)[:16], blake(seed + b"nonce")[:24])
        yield {"passphrase": passphrase, "seed": seed.hex(), "file": spell(record) + "\n"}


def bad_locks():
    seed, word = digest(1), "correct horse"
    record = lock_key(seed, word.encode(), 1, 8192, digest(5)[:16], digest(6)[:24])
    box = bytes.fromhex(record["box"])
    for what, changed, reason in (
            ("the tag's first bit", {"box": (bytes([box[0] ^ 1]) + box[1:]).hex()}, "SIGNATURE"),
            ("the seed's last bit", {"box": (box[:-1] + bytes([box[-1] ^ 128])).hex()}, "SIGNATURE"),
            ("another nonce", {"nonce": digest(9)[:24].hex()}, "SIGNATURE"),
            ("another salt", {"salt": digest(9)[:16].hex()}, "SIGNATURE"),
            ("another ops", {"ops": 2}, "SIGNATURE"),
            ("another mem_bytes", {"mem_bytes": 12288}, "SIGNATURE"),
            ("another's public key", {"public": key_from_seed(digest(2))[2].hex()}, "MISMATCH"),
            ("ops 0", {"ops": 0}, "FORMAT"), ("ops 17", {"ops": 17}, "TOO_BIG"), ("ops as a real", {"ops": 1.0}, "FORMAT"),
            ("mem_bytes 8191", {"mem_bytes": 8191}, "FORMAT"), ("mem_bytes over 1 GiB", {"mem_bytes": (1 << 30) + 1}, "TOO_BIG"),
            ("a salt of 15 bytes", {"salt": record["salt"][2:]}, "FORMAT"), ("capitals", {"salt": "AB" * 16}, "FORMAT"),
            ("a box of 49 bytes", {"box": record["box"] + "00"}, "FORMAT"), ("another kind", {"kind": "omm-secret-key"}, "FORMAT"),
            ("another schema_version", {"schema_version": 2}, "FORMAT")):
        yield what, word, spell({**record, **changed}) + "\n", reason
    yield "another passphrase", "correct horsf", spell(record) + "\n", "SIGNATURE"
    yield "a blank behind it", word + " ", spell(record) + "\n", "SIGNATURE"
    yield "without its nonce", word, spell({k: v for k, v in record.items() if k != "nonce"}) + "\n", "NOT_FOUND"
    yield "a member twice", word, spell(record)[:-1] + ',"ops":1}\n', "FORMAT"
    yield "cut off", word, spell(record)[:-1], "FORMAT"


# ---- the audit log ---------------------------------------------------------------------------------

AT, AT_LATER = "2026-11-23T04:35:56.487Z", "2028-02-29T23:59:59.999Z"


def audit_entries():
    """An entry of each event, and some of them in another form."""
    anna, run = {"node": "anna"}, "00112233445566778899aabbccddeeff"
    refusals = {"REFUSED_KEY": 2, "REFUSED_LATE": 1}
    for event, fields in (
            ("start", {"run_id": run, "run": "a \"run\" of é", "scenario": blake(b"scenario").hex(), "policy": blake(b"policy").hex(),
                       "coordinator_key": digest(3).hex(), "bundle_key": minisign_public(digest(4)), "nodes": 1, "round": 4, "state": "joining", "commit": "c0ffee",
                       "build": "gcc dev"}),
            ("enrolled", {**anna, "id": digest(4).hex()}),
            ("joined", {**anna, "id": digest(4).hex(), "by": "work"}),
            ("round_open", {"round": 4, "digest": digest(5).hex()}),
            ("receipt", {**anna, "round": 4, "digest": digest(6).hex(), "verdict": "accepted"}),
            ("receipt", {**anna, "round": 4, "digest": digest(6).hex(), "verdict": "REFUSED_LATE"}),
            ("canary", {"node": "4d4dbe91", "submission": digest(7).hex(), "verdict": "REFUSED_DIGEST", "why": "step 3: other bits", "candidate": True}),
            ("canary", {**anna, "submission": digest(8).hex(), "verdict": "accepted", "why": "", "candidate": False}),
            ("ctl", {"action": "revoke", "argument": "anna", "uid": 1000}),
            ("ctl_failed", {"action": "revoke", "uid": 1000, "why": "no\tnode"}),
            ("evidence_damaged", {"round": 2, "file": "offers/r002.env", "why": "is gone"}),
            ("evidence_mended", {"round": 2, "file": "offers/r002.env"}),
            ("closed", {"round": 4, "digest": digest(9).hex()}),
            ("stop", {"why": "sealed", "refusals": {"REFUSED_KEY": 2, "REFUSED_LATE": 1}})):
        yield AT, event, fields
    yield AT_LATER, "recovered", {"dropped_bytes": 15}
    yield AT_LATER, "round_over", {"round": 5, "digest": digest(10).hex(), "selected": 3, "accepted": 2, "missing": 1, "loss": 0.1, "verdict": "published",
                                   "refusals": refusals}
    yield AT_LATER, "round_over", {"round": 6, "digest": digest(11).hex(), "selected": 3, "accepted": 0, "missing": 3, "loss": None, "verdict": "void",
                                   "refusals": {}}


def audit_lines():
    lines = []
    for at, event, fields in audit_entries():
        lines = audit_append(lines, at, event, fields)
    return lines


def audit_vector():
    entries = [{"at": at, "event": event, "fields": fields, "line": line.decode()} for (at, event, fields), line in zip(audit_entries(), audit_lines())]
    return {"entries": entries, "head": blake(audit_lines()[-1]).hex()}


def bad_logs():
    lines = audit_lines()[:4]
    first, second = lines[0], lines[1]
    yield "an entry that is changed", [first.replace(b"c0ffee", b"c0ffef")] + lines[1:]
    yield "an entry taken out", [first] + lines[2:]
    yield "the first one taken out", lines[1:]
    yield "two in each other's place", [first, lines[2], second, lines[3]]
    yield "an entry twice", [first, second, second]
    yield "a blank", [first.replace(b'":', b'": ', 1)]
    yield "another order of members", [b'{"seq":0,' + first[1:].replace(b',"seq":0', b"")]
    yield "an escape without need", [first.replace(b'"c0ffee"', b'"\\u00630ffee"')]
    yield "a seq that begins with 1", [first.replace(b'"seq":0', b'"seq":1')]
    yield "a seq as a real", [first.replace(b'"seq":0', b'"seq":0.0')]
    yield "a previous in the first", [first.replace(b"0" * 64, b"0" * 63 + b"1")]
    yield "a time of another length", [first.replace(b".487Z", b".48Z")]
    yield "no event", [first.replace(b'"event":"start",', b"")]
    yield "no object", [b"[]\n"]
    yield "an empty line", [first, b"\n"]


# ---- the manifest ----------------------------------------------------------------------------------

def minisign_public(key):
    return base64.b64encode(b"Ed" + blake(key)[:8] + key).decode()


def minisign(key, data, trusted):
    number = blake(key[2])[:8]
    signature = sign(key, hashlib.blake2b(data).digest())
    lines = [f"untrusted comment: signature by key {number.hex()}", base64.b64encode(b"ED" + number + signature).decode(), f"trusted comment: {trusted}",
             base64.b64encode(sign(key, signature + trusted.encode())).decode()]
    return "\n".join(lines) + "\n"


def minisign_check(text, public, data):
    lines = text.splitlines()
    signature, trusted = base64.b64decode(lines[1]), lines[2].removeprefix("trusted comment: ").encode()
    return (signature[:2] == b"ED" and signature[2:10] == blake(public)[:8] and verify(public, signature[10:], hashlib.blake2b(data).digest()) and
            verify(public, base64.b64decode(lines[3]), signature[10:] + trusted))


def manifest():
    """Files of all classes, ascending by the bytes of their paths: a dot before a slash, both before letters, -01000 before -1000."""
    paths = ["adapters/master-r000.f32", "adapters/r000.bin", "adapters/r1000.bin", "close.env", "eval/after.jsonl", "gates.json", "junit.xml",
             "measured/times.json", "offers/r000.env", f"payloads/{'0a' * 32}.bin", "receipts/r000-4d4dbe917544b079.env",
             "refused/r000-0-REFUSED_NORM.env", "refused/r000-0.receipt.env", "refused/r000-10-REFUSED_FORMAT.bin", "refused/r000-2-REFUSED_LATE.env",
             "rounds.jsonl", "run.json", "virtual/timeline.jsonl"]
    key = key_from_seed(digest(1))
    files = [{"path": p, "class": class_of(p), "bytes": 100 * i, "sha256": hashlib.sha256(p.encode()).hexdigest()} for i, p in enumerate(paths)]
    return {"schema_version": 1, "kind": "omm-bundle", "run_id": "00112233445566778899aabbccddeeff", "run_digest": run_digest(files),
            "scenario_digest": digest(12).hex(), "commit": "c0ffee", "build": "gcc release", "machine": "a machine of é", "created": AT,
            "bundle_key": minisign_public(key[2]), "files": files}


def manifest_vector():
    v, key = manifest(), key_from_seed(digest(1))
    text = spell_indented(v) + "\n"
    trusted = f"openmeshmind bundle of run {v['run_id']}"
    return {"text": text, "run_digest": v["run_digest"], "trusted_comment": trusted, "minisig": minisign(key, text.encode(), trusted)}


def bad_manifests():
    v = manifest()
    files = v["files"]

    def with_files(new):
        return {**v, "files": new}

    def other(i, **new):
        return with_files(files[:i] + [{**files[i], **new}] + files[i + 1:])

    yield "another class", other(0, **{"class": "M"}), "FORMAT"
    yield "a path of no table", other(6, path="key.json"), "FORMAT"
    yield "a path out of the bundle", other(6, path="measured/../key.json"), "FORMAT"
    yield "a hidden file", other(7, path="measured/.times.json"), "FORMAT"
    yield "a folder in measured/", other(7, path="measured/a/times.json"), "FORMAT"
    yield "a round of two decimals", other(8, path="offers/r00.env"), "FORMAT"
    yield "a round with a zero too many", other(8, path="offers/r0001.env"), "FORMAT"
    yield "a file twice", with_files(files[:1] + files), "FORMAT"
    yield "not ascending", with_files([files[1], files[0]] + files[2:]), "FORMAT"
    yield "the manifest in itself", with_files(files[:7] + [{**files[7], "path": "manifest.json", "class": "-"}] + files[8:]), "FORMAT"
    yield "a digest in capitals", other(0, sha256="AB" * 32), "FORMAT"
    yield "another schema_version", {**v, "schema_version": 2}, "VERSION"
    yield "another kind", {**v, "kind": "omm-bundles"}, "FORMAT"
    yield "made at no time", {**v, "created": "yesterday"}, "FORMAT"
    yield "made in seconds, without their thousandths", {**v, "created": "2026-11-23T04:35:56Z"}, "FORMAT"
    yield "made in another time than UTC", {**v, "created": "2026-11-23T05:35:56.487+01:00"}, "FORMAT"
    yield "made on a day that there is not", {**v, "created": "2026-02-29T04:35:56.487Z"}, "FORMAT"
    yield "a member that nobody knows", {**v, "more": 1}, "FORMAT"
    yield "a file with a member that nobody knows", other(0, more=1), "FORMAT"


def bad_manifest_texts():
    for what, v, reason in bad_manifests():
        yield what, spell_indented(v) + "\n", reason
    yield "in the canonical spelling", line_of(manifest()).decode(), "FORMAT"
    yield "without its line break", spell_indented(manifest()), "FORMAT"


# ---- all of them -----------------------------------------------------------------------------------

def record_vectors():
    return {
        "json": json_vectors(),
        "recipes": [{"what": what, "fields": fields, "bytes": recipe_encode(fields).hex()} for what, fields in recipes()],
        "refused_recipes": [{"what": what, "bytes": data.hex(), "reason": reason} for what, data, reason in bad_recipes()],
        "locked_keys": list(locks()),
        "refused_locked_keys": [{"what": what, "passphrase": word, "file": text, "reason": reason} for what, word, text, reason in bad_locks()],
        "audit_log": audit_vector(),
        "refused_audit_logs": [{"what": what, "text": b"".join(lines).decode(), "reason": "FORMAT"} for what, lines in bad_logs()],
        "manifest": manifest_vector(),
        "refused_manifests": [{"what": what, "text": text, "reason": reason} for what, text, reason in bad_manifest_texts()],
    }


def reason_of(function, *args):
    try:
        function(*args)
    except Refused as refused:
        return refused.args[0]
    return "OK"


def check_record_vectors(stored, check):
    for v in stored["json"]:
        check(spell(v["value"]) == v["text"] and spell_indented(v["value"]) == v["indented"], v)
    for v in stored["recipes"]:
        check(recipe_decode(bytes.fromhex(v["bytes"])) == v["fields"], v["what"])
    for v in stored["locked_keys"]:
        check(unlock_key(v["file"], v["passphrase"].encode()).hex() == v["seed"], v["file"])
    log = "".join(e["line"] for e in stored["audit_log"]["entries"]).encode()
    check(audit_verify(log) == (len(stored["audit_log"]["entries"]), bytes.fromhex(stored["audit_log"]["head"])), "audit_log")
    v = stored["manifest"]
    check(manifest_verify(v["text"]) == v["run_digest"], "manifest")
    check(minisign_check(v["minisig"], key_from_seed(digest(1))[2], v["text"].encode()), "manifest: minisig")
    for kind, function in (("recipes", lambda v: recipe_decode(bytes.fromhex(v["bytes"]))),
                           ("locked_keys", lambda v: unlock_key(v["file"], v["passphrase"].encode())),
                           ("audit_logs", lambda v: audit_verify(v["text"].encode())), ("manifests", lambda v: manifest_verify(v["text"]))):
        for v in stored["refused_" + kind]:
            reason = reason_of(function, v)
            check(reason == v["reason"], kind, v["what"], reason, v["reason"])

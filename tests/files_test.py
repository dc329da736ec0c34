#!/usr/bin/env python3
"""docs/files.md is what a second implementation has: its tables are read here and nothing else says which paths, members and types
there are.  By them a simulated bundle with hostile nodes, a service's bundle and its audit log, keys (locked ones, too), a
backup and a node's status are read to the last member.

usage: files_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import fnmatch, hashlib, json, pathlib, re, shutil, struct, sys

import live
from live import check
from records_peer import RECIPE, spell, spell_indented

SOURCE = pathlib.Path(sys.argv[1]).resolve()
MESHMIND = live.program(sys.argv[2:])
TEXT = (SOURCE / "docs" / "files.md").read_text()
HOSTILE = """  - {group: unsigned, hostile: unsigned, count: 1}
  - {group: oversize, hostile: oversize, count: 1}
  - {group: out-of-range, hostile: out_of_range, count: 1}
"""


def blake(data):
    return hashlib.blake2b(data, digest_size=32).hexdigest()


# ---- the document ----------------------------------------------------------------------------------------

def rows(text):
    return [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")][2:]


def read_tables():
    """Name of a record or file -> (spelling, {member: (type, may be missing)})."""
    tables = {}
    for part in re.split(r"(?m)^### ", TEXT)[1:]:
        head, body = part.split("\n", 1)
        body = re.split(r"(?m)^#|^\| event ", body)[0]
        members = {r[0].rstrip("?").strip("`"): (r[1], r[0].endswith("?")) for r in rows(body)}
        names, spelling = (head.rsplit(": ", 1) + [""])[:2] if "`: " in head or ", locked: " in head else (head, "")
        for name in re.findall(r"`([^`]+)`", names):
            name = name.strip("{}") + (" locked" if "locked" in names else "")
            check(members and name not in tables, f"docs/files.md: {name}")
            tables[name] = (spelling, members)
    return tables


def read_paths():
    table = TEXT.split("| path | class |")[1].split("\n\n")[0]
    signs = {"NNN": r"(?:\d{3}|[1-9]\d{3,})", "NODE": "[0-9a-f]{16}", "DIGEST": "[0-9a-f]{64}", "REASON": "[A-Z0-9_]+", "K": r"(?:0|[1-9]\d*)"}
    out = []
    for r in rows("| path | class |" + table):
        pattern = re.escape(r[0].strip("`")).replace(r"\-", "-")
        for sign, what in signs.items():
            pattern = re.sub(rf"(?<![A-Z]){sign}(?![A-Z])", lambda m: what, pattern)
        out.append((pattern, r[1]))
    return out


def read_events():
    table = TEXT.split("| event | what else it has |")[1].split("\n\n")[0]
    return {r[0].strip("`"): {name: (kind, bool(maybe)) for name, maybe, kind in re.findall(r"`(\w+)`(\?)? (real or null|\{?\w+\}?)", r[1])}
            for r in rows("| event | what else it has |" + table)}


TABLES, PATHS, EVENTS = read_tables(), read_paths(), read_events()
NOT_HERE = {"BACKUP", "status.json", "audit.jsonl", "NAME.key", "NAME.key locked"}  # not in a bundle


# ---- values ----------------------------------------------------------------------------------------------

def whole(v):
    return type(v) is int and v >= 0


TYPES = {"whole": whole, "real": lambda v: type(v) is float, "bool": lambda v: type(v) is bool, "text": lambda v: type(v) is str,
         "digest": lambda v: type(v) is str and re.fullmatch("[0-9a-f]{64}", v), "key": lambda v: type(v) is str and re.fullmatch("[0-9a-f]{64}", v),
         "hex": lambda v: type(v) is str and re.fullmatch("(?:[0-9a-f]{2})*", v)}
seen = set()


def check_value(where, kind, v):
    if kind.endswith(" or null"):
        return v is None or check_value(where, kind[:-8], v)
    if kind == "{refusals}":
        return check(type(v) is dict and all(re.fullmatch("[A-Z_]+", k) and whole(n) and n > 0 for k, n in v.items()), where, v)
    if kind.startswith("["):
        check(type(v) is list, where, "is no list")
        return [check_value(where, kind[1:-1], item) for item in v] and None
    if kind.startswith("{"):
        return check_members(where, kind[1:-1], v)
    check(TYPES[kind](v), f"{where}: {v!r} is not {kind}")


def check_object(where, members, v):
    check(type(v) is dict, where, "is no object")
    missing = [m for m, (_, maybe) in members.items() if m not in v and not maybe]
    check(not missing and not set(v) - set(members), f"{where}: without {missing}; docs/files.md does not know {set(v) - set(members)}")
    for name, value in v.items():
        check_value(f"{where}: {name}", members[name][0], value)


def check_members(where, name, v):
    seen.add(name)
    check_object(where, TABLES[name][1], v)


def check_file(path, name):
    """Every object in it; the last one."""
    spelling, data = TABLES[name][0], path.read_bytes()
    objects = data.decode().splitlines(True) if name.endswith(".jsonl") else [data.decode()]
    for text in objects:
        v = json.loads(text)
        if "and more" not in spelling:
            check_members(f"{path.name}", name, v)
        check("canonical" not in spelling or spell(v) + "\n" == text, f"{path}: not canonical: {text[:300]}\n{spell(v)[:300]}")
        check("indented" not in spelling or spell_indented(v) + "\n" == text, f"{path}: not indented as it should be")
        check(v.get("schema_version", 1) == 1, path)
    return v


# ---- places ----------------------------------------------------------------------------------------------

def check_bundle(bundle):
    lines, listed = b"", {}
    manifest = check_file(bundle / "manifest.json", "manifest.json")
    for f in manifest["files"]:
        listed[f["path"]] = f
    for path in sorted(str(p.relative_to(bundle)) for p in bundle.rglob("*") if p.is_file()):
        classes = [c for pattern, c in PATHS if re.fullmatch(pattern, path)]
        check(len(classes) == 1, f"{path}: rows of docs/files.md that it matches: {classes}")
        data = (bundle / path).read_bytes()
        sha = hashlib.sha256(data).hexdigest()
        check((path in listed) == (classes[0] != "-"), f"{path}: not as the manifest has it")
        if classes[0] != "-":
            check(listed[path] == {"path": path, "class": classes[0], "bytes": len(data), "sha256": sha}, listed[path])
        if classes[0] == "D":
            lines += f"{path}\0{sha}\n".encode()
        if path in TABLES and path not in NOT_HERE:
            check_file(bundle / path, path)
        if fnmatch.fnmatch(path, "payloads/*"):
            check(path == f"payloads/{blake(data)}.bin", path)
    check(set(listed) == {str(p.relative_to(bundle)) for p in bundle.rglob("*") if p.is_file()} - {"manifest.json", "manifest.json.minisig"}, "the list")
    check(hashlib.sha256(lines).hexdigest() == manifest["run_digest"], "the run digest is not as docs/files.md makes it")
    check(manifest["scenario_digest"] == blake((bundle / "scenario.yaml").read_bytes()), "scenario_digest")
    check_rounds(bundle)


def check_rounds(bundle):
    """What the records name is there, by the text's rules."""
    run = json.loads((bundle / "run.json").read_text())
    check(all(n["id"] == blake(bytes.fromhex(n["public_key"])) for n in run["nodes"]), "ids")
    at = 0
    for m in run["adapter"]["layout"]:
        check(m["offset"] == at, "layout")
        at += m["rows"] * m["cols"]
    for line in (bundle / "rounds.jsonl").read_text().splitlines():
        r = json.loads(line)
        of = lambda path: blake((bundle / path).read_bytes())
        n, after = f"r{r['round']:03}", f"r{r['round'] + 1:03}"
        check(of(f"offers/{n}.env") == r["offer"] and of(f"adapters/master-{after}.f32") == r["master"], r["round"])
        check(of(f"adapters/{after}.bin") == r["broadcast"] and (bundle / f"adapters/master-{n}.f32").stat().st_size == 4 * at, "states")
        for a in r["accepted"]:
            check(of(f"submissions/{n}-{a['node'][:16]}.env") == a["submission"] and of(f"receipts/{n}-{a['node'][:16]}.env") == a["receipt"], a)
        check(r["weight_sum"] == sum(a["tokens"] for a in r["accepted"]), "weight_sum")
        for k, f in enumerate(r["refused"]):
            kept = list((bundle / "refused").glob(f"{n}-{k}-{f['reason']}.*"))
            check(len(kept) == 1 and blake(kept[0].read_bytes()) == f["submission"], f)
            check(f["receipt"] is None or of(f"refused/{n}-{k}.receipt.env") == f["receipt"], f)
    check_recipe(bytes.fromhex(run["recipe"]), run)


def read_recipe():
    """Version, name, type and range of each field."""
    return [(int(r[0]), r[1].strip("`"), r[2], r[3]) for r in rows(TEXT.split("A recipe as bytes")[1].split("\n\nA PATTERN")[0])]


def check_vectors():
    """The test vectors have what the tables say: recipe fields and their ranges, an entry of each event with its members."""
    numbers = [(f"{name}", {"I": "whole", "f": "real"}[kind], least, most) for name, kind, least, most in RECIPE]
    said = [(name, kind, *map(float, re.match(r"(\S+) to ([^\s;]+)", limits).groups())) for _, name, kind, limits in read_recipe() if kind != "text"]
    check(said == [(name, kind, float(least), float(most)) for name, kind, least, most in numbers], "the table of a recipe's fields is not RECIPE of records_peer.py")
    entries = json.loads((SOURCE / "docs" / "protocol.json").read_text())["audit_log"]["entries"]
    for e in entries:
        check_object(f"vector {e['event']}", TABLES["audit.jsonl"][1] | EVENTS[e["event"]], json.loads(e["line"]))
    check({e["event"] for e in entries} == set(EVENTS), "an event without a vector")


def check_recipe(data, run):
    version = struct.unpack("<I", data[4:8])[0]
    fields = [(name, kind) for since, name, kind, _ in read_recipe() if since <= min(version, 2)]
    check(data[:4] == b"OMMR" and len(data) == 8 + 4 * len(fields) + (384 if version == 3 else 0), f"a recipe of {len(data)} bytes")
    values = struct.unpack("<" + "".join({"whole": "I", "real": "f"}[kind] for _, kind in fields), data[8:8 + 4 * len(fields)])
    said = {name: v for (name, _), v in zip(fields, values)}
    check((said["rank"], said["alpha"], said["targets"]) == tuple(run["adapter"][k] for k in ("rank", "alpha", "targets")), said)
    check(said["steps"] == 1 and said["batch_tokens"] == 256 and abs(said["learning_rate"] - 0.005) < 1e-9 and said["warmup_steps"] == 1, said)


def check_named(bundle, entry):
    """The digest of an entry is of what the table says that it is of."""
    number, ours = entry.get("round"), lambda data: blake(data) == entry["digest"]
    if entry["event"] == "round_open":
        check(ours((bundle / f"offers/r{number:03}.env").read_bytes()), entry)
    if entry["event"] == "receipt" and entry["verdict"] == "accepted":
        check(any(map(ours, (p.read_bytes() for p in (bundle / "submissions").glob(f"r{number:03}-*.env")))), entry)
    if entry["event"] == "round_over":
        check(ours((bundle / "rounds.jsonl").read_bytes().splitlines(True)[number]), entry)
    if entry["event"] == "closed":
        check(ours((bundle / "close.env").read_bytes()), entry)


def check_audit(path):
    previous, names = "0" * 64, []
    for seq, line in enumerate(path.read_bytes().splitlines(True)):
        v = json.loads(line)
        check_object(f"entry {seq}", TABLES["audit.jsonl"][1] | EVENTS[v["event"]], v)
        check((v["seq"], v["previous"]) == (seq, previous), f"entry {seq} breaks the chain")
        previous = blake(line)
        names.append(v["event"])
        check_named(path.parent / "bundle", v)
    check_file(path, "audit.jsonl")
    return names


# ---- runs ------------------------------------------------------------------------------------------------

def simulate(folder):
    text = (SOURCE / "scenarios" / "processes.yaml").read_text().replace("rounds: 2", "rounds: 1")
    text = re.sub(r"recipe: .*", 'recipe: {rank: 2, alpha: 4, targets: "q,v", steps: 1, batch_tokens: 256, learning_rate: 0.005, warmup_steps: 1}', text)
    (folder / "run.yaml").write_text(text.replace("recipe:", HOSTILE + "recipe:") + "control_uncompressed: true\n")
    live.Simulation(MESHMIND, folder / "run.yaml", folder / "bundle").digest()
    return folder / "bundle"


def serve(folder):
    """A service with one node, asked to pause and resume."""
    text = (folder / "run.yaml").read_text().replace(HOSTILE, "").replace("base/test.jsonl", "few.jsonl").replace("control_uncompressed: true\n", "") + "policy: policies/service.yaml\n"
    (folder / "service.yaml").write_text(text)
    port, public = live.free_port(), live.keys(MESHMIND, folder, ["cafe-02"])
    live.write_coordinator(folder, port, "service.yaml", enrolled={"cafe-02": public["cafe-02"]["public_key"]})
    live.write_node(folder, "cafe-02", port, **live.trains("cafe-02", "cafe-02", public))
    coordinator = live.start_service(MESHMIND, folder, "coordinator", "coordinator")
    ctl = lambda *words, code=0: live.run(MESHMIND, "coordinator", "ctl", "-c", folder / "coordinator.yaml", *words, code=code)
    live.wait_for("a coordinator", lambda: "listening" in live.log_of(folder, "coordinator"), logs=folder)
    ctl("pause")
    ctl("quarantine", "nobody", code=2)
    ctl("resume")
    node = live.start_service(MESHMIND, folder, "node", "cafe-02")
    check(node.wait(timeout=live.LIMIT_S) == 0, live.log_of(folder, "cafe-02")[-2000:])
    check(coordinator.wait(timeout=live.LIMIT_S) in (0, 1), live.log_of(folder, "coordinator")[-2000:])
    return folder / "coordinator"


def check_keys(folder):
    check_file(folder / "cafe-02.key", "NAME.key")
    (folder / "word").write_text("correct horse\n")
    (folder / "word").chmod(0o600)
    (folder / "home").mkdir()
    live.run(MESHMIND, "node", "setup", "-c", folder / "home" / "node.yaml", "-k", folder / "home" / "locked.key", "--coordinator", "tcp://127.0.0.1:9",
             "--coordinator-key", "ab" * 32, "--token-file", folder / "token", "--model", "fetch", "--data", folder / "few.jsonl", "--hours", "always",
             "--cpu", "50", "--memory-mb", "0", "--passphrase-file", folder / "word")
    check_file(folder / "home" / "locked.key", "NAME.key locked")
    live.run(MESHMIND, "node", "backup", "-c", folder / "cafe-02.yaml", folder / "save.json")
    saved = check_file(folder / "save.json", "BACKUP")
    check(saved["config"] == (folder / "cafe-02.yaml").read_text() and saved["key"] == (folder / "cafe-02.key").read_text(), "the backup")


def main(folder):
    live.ship(folder, few=12)
    (folder / "token").write_text("invite-" + "c7" * 32 + "\n")
    (folder / "token").chmod(0o600)
    check_bundle(simulate(folder))
    state = serve(folder)
    check_bundle(state / "bundle")
    names = check_audit(state / "audit.jsonl")
    check({"start", "enrolled", "ctl", "ctl_failed", "round_open", "receipt", "round_over", "closed", "stop"} <= set(names), names)
    check_vectors()
    check_file(folder / "cafe-02" / "status.json", "status.json")
    check_keys(folder)
    for name in re.findall(r"\(([\w/]+(?:\.h|\.c))", TEXT) + re.findall(r"(?<=, )([\w/]+\.h)\)", TEXT):
        check((SOURCE / name).exists(), f"docs/files.md names {name}, which is not there")
    never = set(TABLES) - seen - {"audit.jsonl", "declined"}
    check(not never, f"no file had these, so their tables were compared with nothing: {never}")
    print(f"{len(PATHS)} kinds of paths, {len(seen)} kinds of records, {len(names)} entries of the audit log")


with live.workplace("files") as folder:
    main(folder)

#!/usr/bin/env python3
"""Whole runs, end to end, with the built program.

  digests   one scenario: one run digest for 1, 2 and 3 threads, every instruction set of this machine,
            gcc and clang, wherever the bundle is; and it is the golden one
  hostile   every hostile kind is refused in its own way, the final adapter is the honest nodes' alone
  faults    late and vanished nodes: rounds close, evidence says so, replay still gives the same bytes
  tamper    one bit flipped in any file of a real bundle: verify fails and names the file
  private   no training text in any file of the bundle, plain or decompressed

usage: runs_test.py SOURCE_DIR MESHMIND WHAT [OTHER_COMPILERS_MESHMIND]
"""
import json, os, pathlib, subprocess, sys, tempfile

import live
from live import check

SOURCE, MESHMIND, WHAT = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3]
OTHERS = sys.argv[4:]
SCENARIOS = SOURCE / "scenarios"
# Changes only with a deliberate change of arithmetic, formats or of scenarios/processes.yaml; say so in
# the commit.  A change nobody meant is what this test is for.
GOLDEN = (SOURCE / "tests" / "golden" / "processes.digest")

# hostile kind -> (reason, what its sentence must say)
HOSTILE = {
    "unsigned": ("REFUSED_SIGNATURE", ""),
    "wrong_key": ("REFUSED_KEY", "not enrolled"),
    "replayed": ("REFUSED_ROUND", "round: 0 is over"),
    "wrong_context": ("REFUSED_CONTEXT", "another purpose"),
    "nan": ("REFUSED_VALUE", ""),
    "out_of_range": ("REFUSED_RANGE", "is over 1"),
    "wrong_base": ("REFUSED_BASE", "base_digest"),
    "truncated": ("REFUSED_FORMAT", ""),
    "oversize": ("REFUSED_BUDGET", "payload.size"),
    "zstd_bomb": ("REFUSED_SIZE", ""),
}

CLIENTS = ["cafe-02", "studio-02", "harbor-02", "kitchen-03", "office-03"]
SMALL = """schema_version: 1
name: small
seed: 5
model: {base}/openmeshmind-tiny-F16.gguf
train: train.jsonl
test: test.jsonl
rounds: {rounds}
round: {{deadline_ms: {deadline}, quorum: {quorum}, join_ms: 3000}}
population:
{population}
recipe: {{rank: 2, alpha: 4, targets: "q,v", steps: 2, batch_tokens: 200, learning_rate: 0.005, warmup_steps: 1}}
codec: {{up: {{kind: int8, topk_fraction: {topk}}}, down: {{kind: f16}}}}
evaluation: {{round_items: 8, generate: false}}
audit: {{submissions: 0, scalar_steps: 0}}
"""


def run(*args, program=MESHMIND, env=None):
    return subprocess.run([program, *map(str, args)], capture_output=True, text=True,
                          env={**os.environ, **(env or {})})


def simulate(scenario, out, *args, program=MESHMIND, env=None):
    done = run("simulate", scenario, "--out", out, "--quiet", "--json", *args, program=program, env=env)
    check(done.returncode in (0, 1) and done.stdout, f"simulate {scenario}: exit {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def write_small(folder, name, population, rounds=2, deadline=60000, topk=1, quorum=0):
    path = folder / name
    for data in ("train.jsonl", "test.jsonl"):
        live.ship_lines_of(folder, data, CLIENTS)
    path.write_text(SMALL.format(base=SCENARIOS / "base", population=population, rounds=rounds,
                                 deadline=deadline, topk=topk, quorum=quorum))
    return path


def built_fast():
    """Another build of the program, where there is one: the tested one may carry sanitizers and take minutes."""
    return next((other for other in OTHERS if pathlib.Path(other).exists()), None)


def rounds_of(bundle):
    return [json.loads(line) for line in (bundle / "rounds.jsonl").read_text().splitlines()]


def verify(bundle):
    return run("verify", bundle)


def digests(folder):
    scenario = SCENARIOS / "processes.yaml"
    golden = GOLDEN.read_text().strip()
    others = [other for other in OTHERS if pathlib.Path(other).exists()]
    for other in sorted(set(OTHERS) - set(others)):
        print(f"{pathlib.Path(other).parts[-2]}: not built, skipped")
    fast = built_fast() or MESHMIND
    quick = live.quick(folder)  # of the program under test, which may carry sanitizers: what the next one makes of it, too
    tested, other = (simulate(quick, folder / name, program=program)["run_digest"] for name, program in (("tested", MESHMIND), ("fast", fast)))
    check(tested == other, f"run digest {tested} by the program under test, {other} by {fast}")
    seen = {}
    flags = pathlib.Path("/proc/cpuinfo").read_text().replace("\n", " ")
    # By another instruction set than the best, where it is here; the run above took the best.
    for threads, isa, flag in ((1, "avx2", " avx512_vnni "), (2, "avx2_vnni", " avx_vnni "), (3, None, "")):
        if flag not in flags:
            print(f"{isa}: not here, or the best on this machine: {threads} threads with the best")
        isa = isa if flag in flags else None
        seen[f"{threads} threads, {isa or 'the best'}"] = simulate(scenario, folder / f"t{threads}", "-t", threads, program=fast,
                                                                   env={"OMM_ISA": isa} if isa else None)["run_digest"]
    for number, other in enumerate(others[1:]):
        seen[other] = simulate(scenario, folder / f"other{number}", program=other)["run_digest"]
    for how, digest in seen.items():
        check(digest == golden, f"{how}: run digest {digest}, the golden one is {golden}")
    check(sorted(p.name for p in folder.iterdir()) == sorted(set(p.name for p in folder.iterdir())
          - {p.name for p in folder.iterdir() if p.name.endswith(".control")}), "a control folder stayed")
    print(f"{len(seen)} runs, one digest; and one of 2 small ones")


def hostile(folder):
    honest = "  - {group: honest, clients: [cafe-02, studio-02, harbor-02]}\n"
    evil = "".join(f"  - {{group: {kind.replace('_', '-')}, hostile: {kind}, count: 1}}\n"
                   for kind in HOSTILE)
    alone, mixed = folder / "alone", folder / "mixed"
    simulate(write_small(folder, "alone.yaml", honest), alone, program=built_fast() or MESHMIND)
    simulate(write_small(folder, "mixed.yaml", honest + evil), mixed)
    check((alone / "final.gguf").read_bytes() == (mixed / "final.gguf").read_bytes(),
          "hostile nodes changed the final adapter")
    run_json = json.loads((mixed / "run.json").read_text())
    names = {n["id"]: n["name"] for n in run_json["nodes"]}
    honest_names = {"cafe-02", "studio-02", "harbor-02"}
    for number, line in enumerate(rounds_of(mixed)):
        accepted = {names[a["node"]] for a in line["accepted"]}
        check(accepted == honest_names, f"round {number} accepted {accepted}")
        wanted = {kind: reason for kind, (reason, _) in HOSTILE.items()
                  if kind != "replayed" or number > 0}
        reasons = sorted(r["reason"] for r in line["refused"])
        check(reasons == sorted(wanted.values()), f"round {number} refused for {reasons}")
    # The coordinator's receipts say the sentence, in the envelope's plain bytes.
    receipts = b"".join(p.read_bytes() for d in ("receipts", "refused") for p in sorted((mixed / d).iterdir()))
    for kind, (reason, says) in HOSTILE.items():
        if kind not in ("unsigned", "wrong_key"):  # nobody proved to be somebody: no receipt is owed
            check(reason.encode() in receipts and says.encode() in receipts,
                  f"{kind}: no receipt says {reason}: {says}")
    done = verify(mixed)
    check("verify: " in done.stdout and "FAIL" not in done.stdout.split("communication")[0],
          f"verify: {done.stdout}")
    # Where only some values are kept: what is wrong with a payload is still the one fault that it has.
    payloads = ["nan", "out_of_range", "truncated"]
    evil = "".join(f"  - {{group: {kind.replace('_', '-')}, hostile: {kind}, count: 1}}\n" for kind in payloads)
    for topk in (0.5, 0.01):  # kept by a bitmap, and by gaps
        few = folder / f"few-{topk}"
        simulate(write_small(folder, "few.yaml", honest + evil, rounds=1, topk=topk), few, program=built_fast() or MESHMIND)
        reasons = sorted(r["reason"] for r in rounds_of(few)[0]["refused"])
        check(reasons == sorted(HOSTILE[kind][0] for kind in payloads), f"topk {topk}: refused for {reasons}")
    print(f"{len(HOSTILE)} kinds refused, final adapter untouched")


def faults(folder):
    population = ("  - {group: steady, clients: [cafe-02, studio-02]}\n"
                  "  - {group: slow, clients: [harbor-02], slowdown: 80}\n"
                  "  - {group: unsteady, clients: [kitchen-03, office-03], dropout: 0.6}\n")
    scenario = write_small(folder, "faults.yaml", population, rounds=4, deadline=30000, topk=0.25, quorum=5)
    one, two = folder / "one", folder / "two"
    first = simulate(scenario, one)
    second = simulate(scenario, two, "-t", 1, program=built_fast() or MESHMIND)
    check(first["run_digest"] == second["run_digest"], "two runs differ")
    lines = rounds_of(one)
    check(len(lines) == 4, "not all rounds closed")
    reasons = {r["reason"] for line in lines for r in line["refused"]}
    missing = sum(len(line["missing"]) for line in lines)
    check(missing > 0, "nobody was missing")
    check("REFUSED_LATE" in reasons, f"nobody was late: {reasons}")
    names = {n["id"]: n["name"] for n in json.loads((one / "run.json").read_text())["nodes"]}
    took_part = {}
    for line in lines:
        for a in line["accepted"]:
            took_part.setdefault(names[a["node"]], []).append(line["round"])
    vanished_and_back = [n for n, rounds in took_part.items()
                         if n in ("kitchen-03", "office-03") and rounds and len(rounds) < 4]
    check(vanished_and_back, f"no vanished node came back: {took_part}")
    for name in vanished_and_back:
        done = run("replay", one, "--node", name, "--round", took_part[name][-1], "--data", folder,
                   program=built_fast() or MESHMIND)
        check(done.returncode == 0 and "identical" in done.stdout, f"replay {name}: {done.stdout}{done.stderr}")
    check("verify: " in verify(one).stdout, "verify did not finish")
    print(f"missing {missing} times, refused for {sorted(reasons)}, back: {vanished_and_back}")


def tamper(folder):
    bundle = folder / "bundle"
    simulate(live.small(folder), bundle, program=built_fast() or MESHMIND)
    check(verify(bundle).returncode == 0, "the untouched bundle does not verify")
    files = sorted(p for p in bundle.rglob("*") if p.is_file())
    for number, path in enumerate(files):
        good = path.read_bytes()
        at = (number * 7919) % max(len(good), 1)
        bad = bytearray(good)
        bad[at] ^= 1 << (number % 8)
        path.write_bytes(bad)
        done = verify(bundle)
        path.write_bytes(good)
        name = str(path.relative_to(bundle))
        check(done.returncode == 1, f"{name}: a flipped bit at {at} went unnoticed ({done.returncode})")
        check(name in done.stdout or name.startswith("manifest.json"), f"{name} is not named: {done.stdout}")
    check(verify(bundle).returncode == 0, "the restored bundle does not verify")
    not_replayed(bundle)
    print(f"{len(files)} files")


def not_replayed(bundle):
    """What is no plain file holds nobody, and a submission is the node's own, the one that its round accepted."""
    nodes = {n["name"]: n["id"] for n in json.loads((bundle / "run.json").read_text())["nodes"]}
    mine, other = (f"submissions/r000-{nodes[name][:16]}.env" for name in ("cafe-02", "studio-02"))
    later = mine.replace("r000", "r001")

    def replay(path, bad, says):
        good = (bundle / path).read_bytes()
        (bundle / path).unlink()
        os.mkfifo(bundle / path) if bad is None else (bundle / path).write_bytes(bad)
        done = run("replay", bundle, "--node", "cafe-02", "--round", 0, "--steps", 1, "--data", bundle.parent)
        (bundle / path).unlink()
        (bundle / path).write_bytes(good)
        check(done.returncode == 1 and says in done.stderr and done.stderr.count(path) == 1, f"replay, {path}: {done.returncode}, {done.stderr}")

    for path in ("run.json", "rounds.jsonl", "scenario.yaml", "adapters/r000.bin", mine):
        replay(path, None, "is no plain file")
    replay(mine, (bundle / other).read_bytes(), "is not signed by its node")
    replay(mine, (bundle / later).read_bytes(), "is not the submission that round 0 accepted")


def private(folder):
    bundle = folder / "bundle"
    simulate(SCENARIOS / "processes.yaml", bundle, program=built_fast() or MESHMIND)
    held_out = (SCENARIOS / "base" / "test.jsonl").read_text()
    texts = set()
    for line in (SCENARIOS / "base" / "train.jsonl").read_text().splitlines():
        item = json.loads(line)
        if item["client"] in ("cafe-02", "studio-02", "harbor-02"):
            texts |= {m["content"] for m in item["messages"] if m["role"] != "system"}
    texts = {t for t in texts if len(t) >= 24 and t not in held_out}
    check(len(texts) > 50, f"only {len(texts)} texts to look for")
    looked = 0
    for path in bundle.rglob("*"):
        if path.is_file():
            body = path.read_bytes()
            for text in texts:
                check(text.encode() not in body, f"{path.name} holds training text: {text}")
            looked += 1
    planted = next(iter(texts)).encode()
    check(any(t.encode() in b"x" + planted for t in texts), "the search cannot find anything")
    print(f"{len(texts)} texts in none of {looked} files")


with tempfile.TemporaryDirectory(prefix="omm-runs-") as name:
    {"digests": digests, "hostile": hostile, "faults": faults, "tamper": tamper,
     "private": private}[WHAT](pathlib.Path(name))

#!/usr/bin/env python3
"""tests/bench/aims.py measures what it says, of a tiny model; what came out is not judged here.

    python3 tests/aims_test.py SOURCE BUILD
"""
import json, math, pathlib, subprocess, sys, tempfile

source, build = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
PROGRAM = source / "tests/bench/aims.py"
failures = []


def run(*words):
    return subprocess.run([sys.executable, PROGRAM, *map(str, words)], capture_output=True, text=True)


def check(holds, what):
    if not holds:
        failures.append(what)


if not (build / "tests/session_bench").exists():
    print(f"skipped: no release build in {build}")
    sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    short = ["--folder", folder, "--build", build, "--shapes", "tiny-llama", "-t", 2, "-r", 1, "--peak-seconds", 0.02]
    done = run(*short, "--json", f"{folder}/rows.json")
    check(done.returncode == 0, f"exit {done.returncode}: {done.stderr[-400:]}")
    if done.returncode == 0:
        got = json.loads(pathlib.Path(folder, "rows.json").read_text())
        rows = got["rows"]
        check(got["schema_version"] == 2 and got["threads"] == 2 and got["processor"] and "meshmind" in got["program"], f"{got}")
        check(0 <= got["others_share"] <= 1 and 0 <= got["stolen_share"] <= 1, f"{got}")
        names = [r["what"] for r in rows]
        check(len(set(names)) == len(names) == 17, f"{len(names)} rows: {names}")
        for kind, count in {"waiting": 2, "adapter of rank 16": 6, "at 8,192": 4, "products": 2, "a LoRA step, of the": 1, "one thread": 1, "memory": 1}.items():
            check(sum(kind in n for n in names) == count, f"{kind}: {names}")
        for r in rows:
            check(math.isfinite(r["measured"]) and r["bound"] > 0, f"{r}")
            check(r["holds"] == (r["measured"] <= r["bound"] if r["is_upper_bound"] else r["measured"] >= r["bound"]), f"{r}")
            line = next((line for line in done.stdout.splitlines() if line.startswith(f"| {r['what']} |")), "")
            check(line.endswith(f"| {'yes' if r['holds'] else '**no**'} | {r['command']} |"), f"{r}: {line}")
            # What is beside a measurement is never above the best of the run, so its share is never below.
            best = r["of_best"]
            check((best is not None) == ("multiply-adds" in r["what"]), f"{r}")
            check(best is None or (0 < best <= r["measured"] * 1.000001 and f" ({best:.3g}) |" in line), f"{r}: {line}")
            check(r["holds_of_best"] == (r["holds"] if best is None else best >= r["bound"]), f"{r}")
        memory = next(r for r in rows if "memory" in r["what"])
        check(1 < memory["measured"] < 400 and memory["unit"] == "MB", f"{memory}")
        held = sum(r["holds"] for r in rows)
        of_best = sum(r["holds_of_best"] for r in rows)
        check(f"\n{held} of 17 hold, {of_best} of the best milliseconds of each run; meanwhile other programs took " in done.stdout, done.stdout[-300:])
    for words, code, said in ((["-t", 0], 2, "-t and -r: at least 1"), (["--build", folder], 3, f"aims.py: no program at {folder}/meshmind"),
                              (["--shapes", "none"], 3, "none")):
        done = run(*short, *words)
        check(done.returncode == code and said in done.stderr, f"{words}: exit {done.returncode}: {done.stderr[-300:]}")
print("\n".join(failures) or "all passed")
sys.exit(1 if failures else 0)

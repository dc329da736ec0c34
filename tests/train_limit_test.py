#!/usr/bin/env python3
"""`train --max-memory-mb`: real runs, with evaluations, checkpoints and the best kept, never have more in memory
than they were allowed (VmHWM), of a stream neither, whose reader is then as large as there is room; a refusal names what would fit, and each way that it names does.

usage: train_limit_test.py SOURCE_DIR MESHMIND...    (programs that are missing or have a sanitizer are skipped)
"""
import json, pathlib, re, subprocess, sys, tempfile

from live import check

BASE = pathlib.Path(sys.argv[1]).resolve() / "scenarios" / "base"
programs = [p for p in (pathlib.Path(a).resolve() for a in sys.argv[2:]) if p.exists() and b"__asan_init" not in p.read_bytes()]
if not programs:
    print("no program without sanitizers: build the release preset")
    sys.exit(77)
BALLAST = b"x" * (150 << 20)  # this process is larger than what it starts: its size must not be told for theirs
OPTIONS = {"alone": [], "two threads": ["-t", 2],
           "checkpoints, the best": ["--eval", "held.jsonl", "--eval-every", 1, "--keep", "best", "--checkpoint", "a.ck",
                                     "--checkpoint-every", 1, "--new-tokens", 4, "--report", "report"],
           "all weights": ["--full", "--checkpoint", "a.ck", "--checkpoint-every", 1],
           "much to write": ["--optimizer", "sgd", "--rank", 128],
           "long prompts": ["-d", "prompts.jsonl"],  # shorter examples would have nothing to learn
           "a core": ["--parts", "core", "--rank", 32, "--checkpoint", "a.ck"]}


def train(folder, limit, options):
    command = [programs[0], "train", "-m", BASE / "openmeshmind-tiny-F16.gguf", *([] if "-d" in options else ["-d", folder / "train.jsonl"]), "-o", folder / "a.gguf",
               *([] if "--steps" in options else ["--steps", 2, "--batch", 512]), "-t", 1, "--json", "--max-memory-mb", limit, *options]
    (folder / "a.ck").unlink(missing_ok=True)
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=600, cwd=folder)


def check_peak(name, limit, done):
    """What was taken beyond the limit would be seen; the share of it that was used, for the reader."""
    check(done.returncode == 0, f"{name}, {limit} MB: exit {done.returncode}: {done.stderr}")
    peak = json.loads(done.stdout.splitlines()[-1])["peak_memory_bytes"]
    print(f"{name}: {peak / 1e6:.2f} of {limit} MB")
    check(peak <= limit * 10 ** 6, f"{name}: {peak} bytes at --max-memory-mb {limit}: {done.stderr}")


def ways_of(name, done):
    check(done.returncode == 2 and not done.stdout, f"{name}: exit {done.returncode}: {done.stderr}")
    named = re.search(r"; with (.+) it would fit$", done.stderr.strip())
    check(named, f"{name}: names nothing that would fit: {done.stderr}")
    return [way.split() for way in named[1].split(" or ")]


def follow(folder, name, limit, options, way, least):
    """Run what a refusal says would fit; `least` has been run."""
    if way[0] == "no":
        at = options.index(way[1])
        options = options[:at] + options[at + 2:]
    if way[0] == "--max-memory-mb":
        limit, way = int(way[1]), []
        if limit == least:
            return
    check_peak(f"{name}, refused, then with {' '.join(way) or 'more'}", limit,
               train(folder, limit, options + ([] if "no" in way else way)))


def check_options(folder, name, options):
    """From the least limit upwards; each way out of the refusals below it, followed from the nearest."""
    seen, followed = set(), False
    (least,) = [int(way[1]) for way in ways_of(name, train(folder, 20, options)) if way[0] == "--max-memory-mb"]
    for limit in (least, least + 20):
        check_peak(name, limit, train(folder, limit, options))
    for limit in (least - 3, least - 4, 20):
        done = train(folder, limit, options)
        if limit >= least - 3 and done.returncode == 0:  # the program itself takes up to 0.9 MB more or less each time
            check_peak(name, limit, done)
            continue
        for way in ways_of(name, done):
            seen.add(way[0] if way[0] != "no" else "no --eval")
            if not followed or limit == 20 and way[0] != "--max-memory-mb":
                follow(folder, name, limit, options, way, least)
        followed = True
    return seen


def long_lines(folder, count, size):
    """What a line says beyond what is cut off is read, and no part of it is kept; each line is another."""
    words, path = "mesh mind learns a packet of 17 and so on.".split(), folder / f"long-{count}.jsonl"
    with path.open("w") as out:
        for i in range(count):
            text = " ".join(words[(i + k * k) % len(words)] for k in range(size // 4))
            out.write(json.dumps({"prompt": f"q{i}", "completion": text}) + "\n")
    return path


def check_stream(folder):
    """Enough steps to read nearly all of a file: with what is cut off, or said as replies, these examples would be 7 MB."""
    data = long_lines(folder, 300, 14000)
    check(data.stat().st_size > 4 * 10 ** 6, "the file is shorter than it should be")
    options = ["-d", data, "--stream", "--seq", 16, "--batch", 2048, "--steps", 2, "--warmup", 0]
    (least,) = [int(way[1]) for way in ways_of("stream", train(folder, 20, options)) if way[0] == "--max-memory-mb"]
    files = set()
    for limit in (least, least + 200):
        done = train(folder, limit, options)
        check_peak("stream", limit, done)
        files.add((folder / "a.gguf").read_bytes())
        dry = json.loads(train(folder, limit, options + ["--steps", 1, "--dry-run"]).stdout)["memory"]
        peak = json.loads(done.stdout.splitlines()[-1])["peak_memory_bytes"]
        check(dry["planned_bytes"] >= peak, f"stream at {limit} MB: planned {dry['planned_bytes']}, the run had {peak}")
    check(len(files) == 1, f"{len(files)} adapters of caches of two sizes")


with tempfile.TemporaryDirectory(prefix="omm-limit-") as name:
    folder = pathlib.Path(name)
    (folder / "train.jsonl").write_text("".join((BASE / "train.jsonl").read_text().splitlines(True)[:40]))
    (folder / "held.jsonl").write_text("".join((BASE / "test.jsonl").read_text().splitlines(True)[:4]))
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": f"{i} " + "a crow and a fox " * 60, "completion": "Yes."}) + "\n" for i in range(8)))
    seen = set()
    for what, options in OPTIONS.items():
        seen |= check_options(folder, what, options)
    seen |= check_options(folder, "evaluation, two threads", ["-t", 2, "--eval", "held.jsonl", "--new-tokens", 400])
    check_stream(folder)
    check(seen == {"-t", "--new-tokens", "no --eval", "--seq", "--max-memory-mb"}, f"ways out: {seen}")

#!/usr/bin/env python3
"""Pipes where a file is named: what a process writes is read, as of <(command), whoever writes nothing is not waited for, and
what has to be a file says so; and a `train` that is refused says that alone.

usage: pipes_test.py SOURCE_DIR MESHMIND
"""
import os, pathlib, subprocess, sys, tempfile, threading

from live import Findings

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
MODEL = SOURCE / "scenarios" / "base" / "openmeshmind-tiny-F16.gguf"
SILENT = "pipe: a named pipe that nobody writes to"
found = Findings()
folder = tempfile.TemporaryDirectory(prefix="omm-pipes-")
work = pathlib.Path(folder.name)
pipe = work / "pipe"
os.mkfifo(pipe)
lines = (SOURCE / "scenarios" / "base" / "train.jsonl").read_text().splitlines(keepends=True)
(work / "d.jsonl").write_text("".join(lines[:8]))
(work / "e.jsonl").write_text("".join(lines[6:9]))
(work / "text.txt").write_text("The river was cold, and nobody swam in it until the sun came up.\n" * 12)


def run(*args, code=0, writes=None):
    """writes: what somebody writes into the pipe meanwhile."""
    writer = threading.Thread(target=lambda: pipe.write_bytes(writes), daemon=True)
    if writes is not None:
        writer.start()
    try:
        done = subprocess.run([MESHMIND, *map(str, args)], capture_output=True, text=True, timeout=120, cwd=work, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        found.check(False, f"{args}: waits for ever")
        return subprocess.CompletedProcess(args, None, "", "")
    found.check(done.returncode == code, f"{args}: exit {done.returncode} instead of {code}: {done.stderr[:300]}")
    return done


TRAIN = ["train", "-m", MODEL, "-s", 1, "--new-tokens", 0, "--rank", 2]
for args, code, says in ((["generate", "-m", "pipe", "x"], 3, "pipe is not a regular file"),
                         (["generate", "-m", MODEL, "--lora", "pipe", "x"], 3, "pipe is not a regular file"),
                         (["generate", "-m", MODEL, "-f", "pipe"], 3, SILENT),
                         (["generate", "-m", MODEL, "--json-schema", "pipe", "x"], 3, SILENT),
                         (["generate", "-m", MODEL, "--session", "pipe", "x"], 2, "--session pipe: not a regular file; accepted: "),
                         (["chat", "-m", MODEL, "--session", "pipe"], 2, "--session pipe: not a regular file; accepted: "),
                         (["perplexity", "-m", MODEL, "-f", "pipe"], 3, SILENT),
                         (["tokenize", "-m", MODEL, "-f", "pipe"], 3, SILENT),
                         ([*TRAIN, "-d", "pipe", "-o", "x.gguf"], 3, SILENT),
                         ([*TRAIN, "-d", "d.jsonl", "-e", "pipe", "-o", "x.gguf"], 3, SILENT),
                         ([*TRAIN, "-d", "d.jsonl", "--recipe", "pipe", "-o", "x.gguf"], 3, SILENT),
                         (["pretrain", "pipe", "--data", ".", "-o", "x.gguf"], 3, SILENT),
                         (["simulate", "pipe"], 3, SILENT)):
    done = run(*args, code=code)
    found.check(says in done.stderr, f"{args}: {done.stderr}")
# Somebody writes: as of a file of the same bytes.
for args in (["perplexity", "-m", MODEL, "-f"], ["tokenize", "-m", MODEL, "-f"], ["generate", "-m", MODEL, "-n", 4, "--temp", 0, "-f"]):
    text = (work / "text.txt").read_bytes()
    found.check(run(*args, "pipe", writes=text).stdout == run(*args, "text.txt").stdout, f"{args}: another result of a pipe")
for data, held_out in (("d.jsonl", "e.jsonl"), ("text.txt", "text.txt")):
    bytes_of = []
    for d, e, written in ((data, held_out, None), ("pipe", held_out, data), (data, "pipe", held_out)):
        run(*TRAIN, "-d", d, "-e", e, "-o", "x.gguf", writes=written and (work / written).read_bytes())
        bytes_of.append((work / "x.gguf").read_bytes() if (work / "x.gguf").exists() else None)
        (work / "x.gguf").unlink(missing_ok=True)
    found.check(len(set(bytes_of)) == 1 and bytes_of[0], f"{data}, {held_out}: a pipe trains another adapter")
# What is refused is said alone, before the words on data that are worth a thought (here: three examples are held out and trained on).
WITH = [*TRAIN, "-d", "d.jsonl", "-e", "e.jsonl", "-o", "x.gguf"]
found.check("2 of 3 held-out examples are also trained on" in run(*WITH).stderr, "nothing is said of shared examples")
(work / "taken").write_text("")
for more, code, says in ((["--text-separator", "x"], 2, "--text-separator is about plain text"), (["--targets", "nothing"], 2, "'nothing' names no layer"),
                         (["--rank-pattern", "zz*=4"], 2, "'zz*' names no layer"), (["--max-memory-mb", 30], 2, "--max-memory-mb 30: "),
                         (["--checkpoint", "taken/x.ck"], 3, "--checkpoint taken/x.ck: no file can be made"), (["--report", "taken"], 3, "--report taken"),
                         (["--start", "text.txt"], 3, "text.txt")):
    done = run(*WITH, *more, code=code)
    found.check(says in done.stderr and done.stderr.count("\n") == 1, f"{more}: {done.stderr}")
if not found.failures:
    print("pipes: ok")
sys.exit(found.code)

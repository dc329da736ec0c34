#!/usr/bin/env python3
"""What `train` says while it works: on a terminal one line that changes, in a log a line every 5 %, both with
step, loss, tokens/s, memory and the time that is left; and a warning for examples beyond the model's context.

usage: train_progress_test.py SOURCE_DIR MESHMIND
"""
import json, os, pathlib, pty, re, subprocess, sys, tempfile, time

from live import check

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
BASE = SOURCE / "scenarios" / "base"
STEPS = 60
STEP = r"(\d+) %  step (\d+)/60  loss (\d+\.\d{4})  (\d+) tokens/s  (\d+\.\d\d) [MG]B"


def command(folder, *options):
    return [*map(str, [MESHMIND, "train", "-m", BASE / "openmeshmind-tiny-F16.gguf", "-d", folder / "t.jsonl",
                       "-o", folder / "a.gguf", "--steps", STEPS, "--rank", 2, "--batch", 128, "-t", 1, "--json", *options])]


def on_terminal(args):
    """stderr as a terminal has it; events of stdout."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    said = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        said += more
    out = child.stdout.read()
    os.close(ours)
    check(child.wait() == 0, f"exit {child.returncode}: {said}")
    return said.decode(), [json.loads(line) for line in out.splitlines()]


def check_lines(name, lines, events):
    """Each says what the event of its step says."""
    losses = {e["step"]: e["loss"] for e in events if e.get("event") == "step"}
    check(sorted(losses) == list(range(1, STEPS + 1)), f"{name}: events of steps {sorted(losses)}")
    left = [e["eta_s"] for e in events if e.get("event") == "step"]
    check(min(left[:-1]) > 0 and left[-1] == 0, f"{name}: events say {left} s are left")
    check(min(e["memory_bytes"] for e in events if e.get("event") == "step") > 1 << 20, f"{name}: memory of the events")
    for percent, step, loss, speed, memory, _ in lines:
        step = int(step)
        check(int(percent) == step * 100 // STEPS, f"{name}: step {step} is {percent} %")
        check(abs(float(loss) - losses[step]) < 1e-4, f"{name}: step {step}: loss {loss}, event {losses[step]}")
        check(int(speed) > 0 and float(memory) > 1, f"{name}: step {step}: {speed} tokens/s, {memory}")
    check(int(lines[0][1]) == 1 and (int(lines[-1][1]) == STEPS or len(lines) == 1), f"{name}: from {lines[0]} to {lines[-1]}")


def check_left(name, lines):
    """A run of seconds: the time left is told before its end, and is none at the end."""
    told = [left for *_, left in lines if left not in ("...", None)]
    check(told and all(re.fullmatch(r"\d+ s|\d+ min \d+ s", left) for left in told) and told[-1] == "0 s", f"{name}: left {told}")


def check_judged(folder):
    """Evaluations of ten times the work of a step are no training: not in the speed, but in the time that is left."""
    args = command(folder, "--eval", folder / "many.jsonl", "--eval-every", 1, "--new-tokens", 0)
    args[args.index("--steps") + 1] = "4"
    began = time.monotonic()
    done = subprocess.run(args, capture_output=True, text=True)
    took = time.monotonic() - began
    check(done.returncode == 0, done.stderr)
    *events, result = [json.loads(line) for line in done.stdout.splitlines()]
    steps = [e for e in events if e.get("event") == "step"]
    trained = result["tokens"] / result["tokens_per_s"]
    check(trained < took / 3, f"judged: trained for {trained:.2f} s of {took:.2f} s, nearly all of which was judging")
    check(all(abs(sum(x["tokens"] for x in steps[:i + 1]) / e["tokens_per_s"]) < took / 3 for i, e in enumerate(steps)), f"judged: {steps}")
    check(result["tokens_per_s"] == steps[-1]["tokens_per_s"], f"judged: {result['tokens_per_s']} in the end, {steps[-1]} before")
    left = [e["eta_s"] for e in steps]  # behind the last step two judgements are still to come
    check(min(left) > trained / 4, f"judged: {left} s left, trained for {trained:.2f} s")


with tempfile.TemporaryDirectory(prefix="omm-progress-") as name:
    folder = pathlib.Path(name)
    (folder / "t.jsonl").write_text("".join((BASE / "train.jsonl").read_text().splitlines(True)[:10]))
    (folder / "many.jsonl").write_text("".join((BASE / "test.jsonl").read_text().splitlines(True)[:40]))
    said, events = on_terminal(command(folder))
    bars = re.findall(r"\r\x1b\[K\[[#.]{28}\] +" + STEP + r", ([^,()]+) left", said)
    check(len(bars) > 5 and said.endswith("\r\x1b[K"), f"terminal: {said[-300:]!r}")
    check_lines("terminal", bars, events)
    done = subprocess.run(command(folder), capture_output=True, text=True)
    check(done.returncode == 0, done.stderr)
    plain = [line for line in done.stderr.splitlines() if " %  " in line]
    lines = [re.fullmatch(" *" + STEP + r"(?: \(([^,()]+) left\))?", line) for line in plain]
    check(all(lines) and "\r" not in done.stderr, f"log: {plain}")
    lines = [line.groups() for line in lines]
    check_lines("log", lines, [json.loads(line) for line in done.stdout.splitlines()])
    seconds = json.loads(done.stdout.splitlines()[-1])["wall_s"]
    # In the first second there is one alone.
    check(20 * (1 - 1.2 / seconds) - 1 <= len(lines) <= 21 + seconds / 60, f"{len(lines)} lines in {seconds} s")
    if seconds > 3:  # less is too short to tell
        check_left("log", lines)
    check("trained for" not in done.stderr, done.stderr)
    check_judged(folder)
    (folder / "t.jsonl").write_text(json.dumps({"prompt": "", "completion": "no end of words " * 400}) + "\n")
    done = subprocess.run(command(folder, "--seq", 600, "--batch", 600, "--steps", 1, "--dry-run"), capture_output=True, text=True)
    check(done.returncode == 0 and re.search(r"--seq 600: the longest example has 600 tokens, and the model was trained for 512:",
                                             done.stderr), f"--seq 600: {done.stderr}")
    done = subprocess.run(command(folder, "--seq", 512, "--batch", 600, "--steps", 1, "--dry-run"), capture_output=True, text=True)
    check(done.returncode == 0 and "trained for" not in done.stderr, f"--seq 512: {done.stderr}")
    print(f"a bar on a terminal, {len(lines)} lines in a log of {seconds:.1f} s")

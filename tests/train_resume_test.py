#!/usr/bin/env python3
"""Training as a process: killed at random moments or stopped by a signal, then resumed, it ends with the
bytes of a run that nobody disturbed: adapter, checkpoint, evaluations, best step and early stop.

A second program, where there is one, takes half of the work: the bytes are the same for every build.

usage: train_resume_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import json, pathlib, random, resource, signal, subprocess, sys, tempfile, time

from live import fail, program

SOURCE, MESHMIND, FASTER = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], program(sys.argv[2:])
BASE = SOURCE / "scenarios" / "base"
STEPS = 16
work = tempfile.TemporaryDirectory(prefix="omm-resume-")
folder = pathlib.Path(work.name)
# Of two layers: what is kept and resumed is the same for any size, and most of these runs are begun again dozens of times.
COMMON = ["train", "-m", folder / "tiny.gguf", "--steps", STEPS, "--rank", 8, "--batch", 48,
          "--new-tokens", 0, "--json", "--threads", 1]
KEPT = ["--checkpoint-every", 3, "--checkpoint"]
# Also: an evaluation that gets worse (too high a rate) makes the best another step than the last, and
# patience end the run before its last step.
RUNS = {
    "adamw, best, dropout": ["--eval-every", 4, "--keep", "best", "--dropout", 0.1],
    "sgd, last": ["--optimizer", "sgd", "--momentum", 0.9, "--eval-every", 5],
    "adafactor, patience": ["--optimizer", "adafactor", "--lr", 0.5, "--lr-min", 1, "--eval-every", 2,
                            "--keep", "best", "--patience", 3],
    "no evaluation": ["--schedule", "linear", "--lora-plus", 4],
}
SAME = ("adapter_digest", "chain", "evaluations", "best_step", "stopped_early", "steps", "tokens",
        "loss_first", "loss_last", "evaluation")


def start(args, meshmind, **more):
    return subprocess.Popen([meshmind, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, **more)


def finish(args, name, meshmind=MESHMIND):
    child = start(args, meshmind)
    out, err = child.communicate(timeout=300)
    if child.returncode != 0:
        fail(f"{name}: exit {child.returncode}: {err}")
    return [json.loads(line) for line in out.splitlines()]


def disturb(args, how, dice):
    """Kill after a random number of events and a random while.  True when it had ended before.  What a signal stops is watched by
    sanitizers where there is most to keep: an evaluation and the best."""
    child = start(args, MESHMIND if how == signal.SIGTERM and "--keep" in args else FASTER)
    for _ in range(dice.randrange(1, 12)):
        if not child.stdout.readline():
            break
    time.sleep(dice.random() * 0.02)
    child.send_signal(how)
    out, err = child.communicate(timeout=300)
    if how == signal.SIGTERM and child.returncode == 3:
        if "b.ck keeps it: the same command with --resume goes on\n" not in err and "while judging" not in err:
            fail(f"SIGTERM: {err}")
    elif child.returncode not in (0, -how):
        fail(f"{how.name}: exit {child.returncode}: {err}")
    return child.returncode == 0


def compare(name, whole, result, folder, files):
    for key in SAME:
        if whole.get(key) != result.get(key):
            fail(f"{name}: {key} is {result.get(key)}, undisturbed {whole.get(key)}")
    for a, b in files:
        if (folder / a).read_bytes() != (folder / b).read_bytes():
            fail(f"{name}: {a} and {b} differ")


def one(name, options, folder, dice):
    data, held = folder / "train.jsonl", folder / "held.jsonl"
    args = COMMON + options + ["-d", data] + (["--eval", held] if "--eval-every" in options else [])
    events = finish(args + ["-o", folder / "whole.gguf", *KEPT, folder / "whole.ck"], name)
    whole = events[-1]
    steps = [e["step"] for e in events if e.get("event") == "step"]
    if steps != list(range(1, whole["steps"] + 1)) or min(e["tokens_per_s"] for e in events[:-1]
                                                          if e["event"] == "step") <= 0:
        fail(f"{name}: events {events}")
    judged = [e for e in events if e.get("event") == "evaluation"]
    best = [all(e["loss"] < before["loss"] for before in judged[:i]) for i, e in enumerate(judged)]
    if [e["best"] for e in judged] != best or ("--patience" in options) != (False in best):
        fail(f"{name}: the best so far are {best}: {judged}")
    plain = finish(args + ["-o", folder / "plain.gguf"], name, FASTER)[-1]  # checkpoints change nothing
    compare(name, whole, plain, folder, [("whole.gguf", "plain.gguf")])
    if (whole["steps"] < STEPS) != ("--patience" in options) or whole["stopped_early"] != ("--patience" in options):
        fail(f"{name}: {whole['steps']} steps, stopped early {whole['stopped_early']}")
    kills = 0
    for how in (signal.SIGKILL, signal.SIGTERM):
        again = args + ["-o", folder / "b.gguf", *KEPT, folder / "b.ck", "--resume"]
        while not disturb(again, how, dice):
            kills += 1
            if kills > 100:
                fail(f"{name}: no progress after {kills} kills")
        result = finish(again, name)[-1]  # all done: the same once more
        compare(name, whole, result, folder, [("whole.gguf", "b.gguf"), ("whole.ck", "b.ck")])
        if result["resumed_from"] != whole["steps"]:
            fail(f"{name}: resumed from {result['resumed_from']}")
        if result["tokens_per_s"] is not None or not whole["tokens_per_s"] > 0:  # nothing was left to train
            fail(f"{name}: {whole['tokens_per_s']}, then {result['tokens_per_s']} tokens/s")
        (folder / "b.ck").unlink()
        (folder / "b.gguf").unlink()
    print(f"{name}: {whole['steps']} steps, {kills} kills, the same bytes")
    return kills


def other_micro(folder):
    """Tokens of a pass change no byte: interrupted with one number of them, ended with another."""
    args = COMMON + ["-d", folder / "train.jsonl", "--dropout", 0.1, *KEPT]
    whole = finish(args + [folder / "m.ck", "-o", folder / "m.gguf", "--micro", 512], "micro", FASTER)[-1]
    again = args + [folder / "n.ck", "-o", folder / "n.gguf", "--resume", "--micro"]
    # Not ignored, as under nohup.
    child = start(again + [512], MESHMIND, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
    for _ in range(2):
        child.stdout.readline()
    child.send_signal(signal.SIGHUP)  # its terminal is closed
    child.communicate(timeout=300)
    if child.returncode != 3:
        fail(f"micro: exit {child.returncode}: nothing was interrupted")
    result = finish(again + [1], "another micro")[-1]
    if not 0 < result["resumed_from"] < STEPS:
        fail(f"micro: resumed from {result['resumed_from']}")
    compare("another micro", whole, result, folder, [("m.gguf", "n.gguf")])


def small_files(size):
    """Writes beyond so many bytes of a file fail, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def no_room_at_the_end(folder):
    """The last checkpoint has no room: the adapter, less than half as large, is written all the same.

    Room for the adapter is held from the first step on: its bytes, and at most 256 more for each tensor and 64 KiB."""
    args = COMMON + ["-d", folder / "train.jsonl"]
    whole = finish(args + ["-o", folder / "w.gguf"], "no checkpoint", FASTER)[-1]
    limit = (folder / "w.gguf").stat().st_size + 100_000
    if (folder / "whole.ck").stat().st_size <= limit:
        fail(f"a checkpoint fits in {limit} bytes: it would not be refused")
    done = subprocess.run([FASTER, *map(str, args), "-o", folder / "v.gguf", "--checkpoint-every", str(STEPS + 1),
                           "--checkpoint", folder / "v.ck"],
                          capture_output=True, text=True, preexec_fn=lambda: small_files(limit))
    if done.returncode != 0 or "v.ck: File too large" not in done.stderr or (folder / "v.ck").exists():
        fail(f"no room: exit {done.returncode}: {done.stderr}")
    compare("no room", whole, json.loads(done.stdout.splitlines()[-1]), folder, [("w.gguf", "v.gguf")])


def stopped_while_judged(folder):
    """After the last step: the adapter is there, which the message says, and judged when the run is resumed."""
    args = COMMON + ["-d", folder / "train.jsonl", "-e", folder / "train.jsonl", "-o", folder / "j.gguf", "--new-tokens", 64,
                     "--checkpoint", folder / "j.ck", "--steps", 2]
    child = start(args, MESHMIND)
    while json.loads(child.stdout.readline())["step"] < 2:
        pass
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=300)
    events = [json.loads(line) for line in out.splitlines()]
    if child.returncode != 3 or events[-1] != {"event": "interrupted", "step": 2, "steps": 2, "kept": str(folder / "j.gguf")} or "j.gguf is written; the same command with --resume judges it again" not in err:
        fail(f"stopped while judged: exit {child.returncode}: {err}")
    before = (folder / "j.gguf").read_bytes()
    result = finish(args + ["--resume"], "judged again", FASTER)[-1]
    if result["evaluation"]["after"]["items"] != 40 or (folder / "j.gguf").read_bytes() != before:
        fail(f"judged again: {result}")


def stopped_without_a_checkpoint(folder):
    """Nothing is kept, which is said with what would; no folder stays that the run made for nothing."""
    args = COMMON + ["-d", folder / "train.jsonl", "-o", folder / "new" / "deep" / "n.gguf", "--report", folder / "report" / "of", "--steps", 100000]
    for how in (signal.SIGINT, signal.SIGTERM):
        child = start(args, MESHMIND)
        child.stdout.readline()
        child.send_signal(how)
        _, err = child.communicate(timeout=300)
        if child.returncode != 3 or err.count("nothing of it is kept; with --checkpoint FILE it would be") != 1:
            fail(f"{how.name} without a checkpoint: exit {child.returncode}: {err}")
        if (folder / "new").exists() or (folder / "report").exists():
            fail(f"{how.name} without a checkpoint: folders stay")
    (folder / "report").mkdir()  # somebody's own
    child = start(args, MESHMIND)
    child.stdout.readline()
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=300)
    if list((folder / "report").iterdir()) or not (folder / "report").exists():
        fail("SIGINT: a folder that was there is not as it was")


def without_its_terminal(folder):
    """Under nohup, which has it ignore SIGHUP, it goes on when its terminal is closed."""
    args = COMMON + ["-d", folder / "train.jsonl", "-o", folder / "h.gguf", *KEPT, folder / "h.ck"]
    child = subprocess.Popen([MESHMIND, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    child.stdout.readline()
    child.send_signal(signal.SIGHUP)
    _, err = child.communicate(timeout=300)
    if child.returncode != 0:
        fail(f"SIGHUP under nohup: exit {child.returncode}: {err}")


def stopped_before_the_first_step(folder):
    args = COMMON + ["-d", folder / "train.jsonl", "-e", folder / "train.jsonl", "-o", folder / "f.gguf", "--new-tokens", 64,
                     "--checkpoint", folder / "f.ck"]
    child = start(args, MESHMIND)
    while "evaluating" not in child.stderr.readline():
        pass
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=300)
    event = {"event": "interrupted", "step": 0, "steps": STEPS, "kept": None}
    if child.returncode != 3 or [json.loads(line) for line in out.splitlines()] != [event] or "nothing is written, the same command begins again" not in err or list(folder.glob("f.*")):
        fail(f"stopped before the first step: exit {child.returncode}: {err}")


def refusals(folder):
    args = COMMON + RUNS["no evaluation"] + ["-d", folder / "train.jsonl", "-o", folder / "c.gguf", "--checkpoint", folder / "whole.ck"]
    wrong = [(args, 2, "is there already"),
             (args + ["--resume", "--lr", 0.02], 3, "another recipe (learning_rate is 0.01 there, 0.02 here)"),
             (args + ["--resume", "--steps", STEPS + 1], 3, f"another recipe (steps is {STEPS} there, {STEPS + 1} here)"),
             (args + ["--resume", "--optimizer", "sgd"], 3, "another recipe (another optimizer)"),
             (args + ["--resume", "--loss", "all"], 3, "whole.ck: the checkpoint belongs to another choice of what is learned of the same data\n"),
             (args + ["--resume", "--seed", 77], 3, "whole.ck: the checkpoint belongs to another seed\n"),
             (args + ["--resume", "--targets", "blk.0.*"], 3, "another recipe (another targets)"),
             (args + ["--resume", "--eval", folder / "held.jsonl"], 3, "the checkpoint was made without held-out data"),
             (args + ["--resume", "--eval", folder / "held.jsonl", "--eval-every", 1], 3, "evaluates every"),
             (args[:-2] + ["--resume"], 2, "--resume needs --checkpoint"),
             (args + ["--patience", 1], 2, "need --eval-every"),
             (args + ["--keep", "worst"], 2, "accepted: best, last"),
             (args + ["--eval-every", 1], 2, "needs --eval FILE"),
             (args + ["--checkpoint-every", 0], 2, "accepted: 1 and more")]
    for command, code, text in wrong:
        done = subprocess.run([MESHMIND, *map(str, command)], capture_output=True, text=True)
        if done.returncode != code or text not in done.stderr or (folder / "c.gguf").exists():
            fail(f"{command[-4:]}: exit {done.returncode} instead of {code}: {done.stderr}")


subprocess.run([FASTER, "synth", "tiny-llama", folder / "tiny.gguf", "--type", "F16"], check=True, stdout=subprocess.DEVNULL)
(folder / "train.jsonl").write_text("".join((BASE / "train.jsonl").read_text().splitlines(True)[:40]))
(folder / "held.jsonl").write_text("".join((BASE / "test.jsonl").read_text().splitlines(True)[:3]))
dice = random.Random(20261121)
kills = 0
for name, options in RUNS.items():
    for old in folder.glob("*.ck"):
        old.unlink()
    kills += one(name, options, folder, dice)
if kills < 8:
    fail(f"only {kills} kills: nothing was tested")
refusals(folder)
other_micro(folder)
no_room_at_the_end(folder)
stopped_while_judged(folder)
stopped_without_a_checkpoint(folder)
without_its_terminal(folder)
stopped_before_the_first_step(folder)

#!/usr/bin/env python3
"""Training learns: ten examples by heart, and what it was not shown better than before.

usage: learning_test.py SOURCE_DIR MESHMIND TESTDATA_DIR [RELEASE_MESHMIND [seeds]]

Runs RELEASE_MESHMIND where it is there: sanitizers make this ten times as long and check nothing new.  `seeds`: what
was not shown with seeds 1 to 5, where else seed 1 speaks for all.
"""
import json, pathlib, subprocess, sys, tempfile
import speakers

from live import check

SOURCE, TESTDATA = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[3])
MESHMIND = next((p for p in sys.argv[4:5] if pathlib.Path(p).exists()), sys.argv[2])
SEEDS = range(1, 6) if sys.argv[5:] == ["seeds"] else range(1, 2)
BASE = SOURCE / "scenarios" / "base"


def train(folder, data, held, *options):
    """The report, which has everything."""
    done = subprocess.run([MESHMIND, "train", "-m", BASE / "openmeshmind-tiny-F16.gguf", "-d", data, "-e", held, "-o",
                           folder / "a.gguf", "--json", "--report", folder, *map(str, options)], capture_output=True,
                          text=True)
    check(done.returncode == 0, f"exit {done.returncode}: {done.stderr}")
    return json.loads((folder / "report.json").read_text())


def by_heart(folder):
    """Ten examples whose prompts differ: two replies to one prompt cannot both be expected.  Half of them have a '|',
    which is in no text of the base model's training: its row, and those of others like it, can be told apart all the same."""
    ten = {False: {}, True: {}}
    for line in (BASE / "train.jsonl").read_text().splitlines(True):
        ten["|" in line].setdefault(json.dumps(json.loads(line)["messages"][:2]), line)
    ten = [line for half in ten.values() for line in list(half.values())[:5]]
    (folder / "ten.jsonl").write_text("".join(ten))
    report = train(folder, folder / "ten.jsonl", folder / "ten.jsonl", "--steps", 50, "--batch", 450, "--lr", 0.01)
    whole = report["held_out"]["all"][0]
    print(f"ten by heart: loss {whole['loss_before']:.3f}, then {whole['loss_after']:.5f}; {whole['exact_after']} exact")
    check(whole["loss_before"] > 3 and whole["loss_after"] < 0.01, "ten examples are not learned by heart")
    check((whole["exact_before"], whole["exact_after"]) == (0, 10), "not all answers are exact")


def held_out(folder, what, limit):
    """Of the whole, and of every client with enough examples to say so."""
    after = []
    for seed in SEEDS:
        report = train(folder, folder / "train.jsonl", folder / "held.jsonl", "--steps", 8, "--batch", 512, "--rank", 4,
                       "--warmup", 2, "--new-tokens", 0, "--seed", seed)
        whole, clients = report["held_out"]["all"][0], report["held_out"]["clients"]
        after.append(whole["loss_after"])
        print(f"{what}, seed {seed}: held-out loss {whole['loss_before']:.3f}, then {after[-1]:.3f}, {len(clients)} clients")
        check(after[-1] < limit < whole["loss_before"], f"the held-out loss is not below {limit}")
        for c in clients:
            better = c["loss_after"] < 0.9 * c["loss_before"]
            check(better or c["items"] < 3, f"not better for {c['name']}: {c}")
    check(len(set(after)) == len(SEEDS), "seeds change nothing:", after)


with tempfile.TemporaryDirectory(prefix="omm-learning-") as name:
    folder = pathlib.Path(name)
    by_heart(folder)
    for part, file, count in (("train", "train.jsonl", 400), ("held", "test.jsonl", 60)):
        lines = (BASE / file).read_text().splitlines(True)
        (folder / f"{part}.jsonl").write_text("".join(lines[:count]))
    held_out(folder, "chat data", 3.5)
    play = TESTDATA / "data" / "tinyshakespeare.txt"
    if not play.exists():
        print(f"skipped: no play at {play}")
        sys.exit(77)
    speakers.write(play, folder, 10, 3)
    held_out(folder, "tinyshakespeare by speaker", 7.5)

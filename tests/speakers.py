#!/usr/bin/env python3
"""A play's speeches by speaker, as prompt and completion lines: what each client of a federation would have.

usage: speakers.py PLAY FOLDER [SPEAKERS [HELD]]

PLAY has speeches with blank lines between them, "NAME:" before each.  The SPEAKERS (20) who speak most often go
to FOLDER/train.jsonl, but for HELD (6) speeches of each, evenly spread, which go to FOLDER/held.jsonl.  Prompt: the name.
Equal plays give equal files.
"""
import collections, json, pathlib, sys


def speeches(text):
    for block in text.split("\n\n"):
        name, _, said = block.strip().partition(":\n")
        if said and "\n" not in name:
            yield name, said


def split(text, speakers=20, held=6):
    """Lines to train on, lines held out; in the order of the play."""
    counts = collections.Counter(name for name, _ in speeches(text))
    most = {name: counts[name] for name in sorted(counts, key=lambda n: (-counts[n], n))[:speakers]}
    seen, parts = collections.Counter(), ([], [])
    for name, said in speeches(text):
        if name not in most:
            continue
        number, total = seen[name], most[name]
        seen[name] += 1
        is_held = (number + 1) * held // total > number * held // total
        parts[is_held].append(json.dumps({"prompt": f"{name}:\n", "completion": said, "client": name}) + "\n")
    return parts


def write(play, folder, *numbers):
    parts = split(pathlib.Path(play).read_text(), *numbers)
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    for name, lines in zip(("train.jsonl", "held.jsonl"), parts):
        (pathlib.Path(folder) / name).write_text("".join(lines))
    return [len(lines) for lines in parts]


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    print("%d speeches to train on, %d held out" % tuple(write(*sys.argv[1:3], *map(int, sys.argv[3:]))))

#!/usr/bin/env python3
"""Data as other programs write them, through the command line: each kind is told by its content, trained on, and refused where it
is not what was asked for or stands beside another; options of plain text go by what there is of it.

usage: data_kinds_test.py SOURCE_DIR MESHMIND
"""
import json, pathlib, subprocess, sys, tempfile

from live import check

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
MODEL = SOURCE / "scenarios" / "base" / "openmeshmind-tiny-F16.gguf"
KINDS = {"alpaca": '{"instruction": "Add.", "input": "1 and 2", "output": "3."}\n',
         "sharegpt": '{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]}\n',
         "lines": '{"text": "Once upon a time there was a fox."}\n'}


def run(*args):
    return subprocess.run([MESHMIND, *map(str, args)], capture_output=True, text=True)


with tempfile.TemporaryDirectory(prefix="omm-kinds-") as name:
    data, out = pathlib.Path(name) / "t.jsonl", pathlib.Path(name) / "a.gguf"
    for kind, text in KINDS.items():
        data.write_text(text)
        digests = []
        for more in ([], ["--stream"], ["--format", kind]):
            made = run("train", "-m", MODEL, "-d", data, "-o", out, "--steps", 1, "--warmup", 0, "--batch", 64, "--json", *more)
            check(made.returncode == 0, f"{kind} {more}: {made.stderr}")
            result = json.loads(made.stdout.splitlines()[-1])
            check(result["data"]["format"] == kind, f"{kind} {more}: {result['data']}")
            digests.append(result["adapter_digest"])
        check(len(set(digests)) == 1, f"{kind}: streamed or asked for, it is another adapter")
        strides = run("data", "check", data, "-m", MODEL, "--stride", 4)
        check(strides.returncode == (0 if kind == "lines" else 2), f"{kind}, --stride: {strides.stdout}{strides.stderr}")
        check(run("data", "check", data, "-m", MODEL, "--text-separator", "blank").returncode == 2, f"{kind}, --text-separator")
        other = run("data", "check", data, "-m", MODEL, "--format", "chat")
        check(other.returncode == 1 and f", where chats are asked for; accepted: \"messages\", or the format {kind}" in other.stdout, other.stdout)
    data.write_text("".join(KINDS.values()))
    mixed = run("data", "check", data, "-m", MODEL)
    check(mixed.returncode == 1 and "2 bad lines left out" in mixed.stdout and "t.jsonl:2: a conversation" in mixed.stdout
          and "first line is an instruction; accepted: one kind in a file" in mixed.stdout, mixed.stdout)
    data.write_text("{oops\n")
    done = run("train", "-m", MODEL, "-d", data, "-o", out)
    check(done.returncode == 3 and 'accepted: one JSON object a line, with "messages", or with "prompt" and "completion", "instruction" and "output", '
          '"conversations", or "text"' in done.stderr, done.stderr)

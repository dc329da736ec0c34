#!/usr/bin/env python3
"""Data as other programs write them, through the command line: each kind is told by its content, trained on, and refused where it
is not what was asked for or stands beside another; options of plain text go by what there is of it.  The same as one JSON array,
as most published sets are, give the same adapters, in `train` and in a scenario, and are checked and refused by element.

usage: data_kinds_test.py SOURCE_DIR MESHMIND
"""
import json, pathlib, re, subprocess, sys, tempfile

from live import check

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
MODEL = SOURCE / "scenarios" / "base" / "openmeshmind-tiny-F16.gguf"
KINDS = {"alpaca": '{"instruction": "Add.", "input": "1 and 2", "output": "3."}\n',
         "sharegpt": '{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]}\n',
         "lines": '{"text": "Once upon a time there was a fox."}\n'}


TRAIN = ["train", "-m", MODEL, "--steps", 1, "--warmup", 0, "--batch", 64, "--new-tokens", 0, "--json"]


def run(*args):
    return subprocess.run([MESHMIND, *map(str, args)], capture_output=True, text=True)


def talk(client, ask, answer):
    return json.dumps({"client": client, "messages": [{"role": "user", "content": ask}, {"role": "assistant", "content": answer}]})


def array_of_lines(folder):
    """What is held out, shared, doubled and bad in an array, by element; with what the same lines say."""
    lines = [talk("a", f"Is {i} even?", "Yes." * (i % 7 + 1)) for i in range(12)]
    held = [lines[3], talk("a", "Is it?", "It is."), lines[7], lines[7]]
    names = {}
    for name, texts in (("train", lines), ("held", held)):
        names[name] = folder / f"{name}.jsonl", folder / f"{name}.json"
        names[name][0].write_text("".join(line + "\n" for line in texts))
        names[name][1].write_text("[" + ", ".join(texts) + "]\n")
    said = []
    for i in (0, 1):
        for more in ([], ["--stream"]):
            for how in (["--eval", names["held"][i]], ["--split", 0.3]):
                done = run(*TRAIN, "-d", names["train"][i], "-o", folder / "a.gguf", *how, *more)
                check(done.returncode == 0, done.stderr)
                result = json.loads(done.stdout.splitlines()[-1])
                said.append([result[key] for key in ("adapter_digest", "data_digest", "evaluation")])
                said[-1][2].pop("shared_lines") if "--split" in how else None
                check(result["data"]["array"] == bool(i), f"array: {result['data']}")
                if i and "--eval" in how:
                    where = "example 4" if more else "element 4"
                    check(f"element 1 of {names['held'][1]} = {where} of {names['train'][1]}, element 3 of " in done.stderr, done.stderr)
    lines_said, array_said = said[:4], said[4:]
    for one, other in zip(lines_said, array_said):
        for result in one, other:
            for side in result[2]:
                if isinstance(result[2][side], dict): result[2][side].pop("seconds", None)
        check(one == other, f"an array trains otherwise: {one}, {other}")
    done = run("data", "check", names["train"][1], names["held"][1], "-m", MODEL)
    check(done.returncode == 1 and "train.json: chat, one JSON array\n" in done.stdout and "element 4 is element 3 again" in done.stdout
          and f"    element 1 of {names['held'][1]} = element 4 of {names['train'][1]}\n" in done.stdout, done.stdout)
    bad = folder / "bad.json"
    bad.write_text("[\n" + lines[0] + ',\n{"messages": []},\n{oops}, 7,\n' + lines[1] + "]")
    done = run(*TRAIN, "-d", bad, "-o", folder / "a.gguf")
    check(done.returncode == 3 and re.search(r"bad\.json:3: element 2: messages: a list of 1 to 256.*\(--skip-bad leaves bad ones out", done.stderr), done.stderr)
    done = run(*TRAIN, "-d", bad, "-o", folder / "a.gguf", "--skip-bad")
    totals = json.loads(done.stdout.splitlines()[-1])["data"]
    check((totals["examples"], totals["bad_by"]) == (2, {"messages": 1, "not JSON": 2}) and ":4:5: element 3: " in totals["bad_first"][1], f"{totals}")
    check(totals["tokens"] > totals["longest"] >= totals["tokens"] / 2, f"the longest of two examples: {totals}")
    done = run("data", "check", bad, "-m", MODEL)
    check(done.returncode == 1 and "3 bad elements left out: not JSON (2), messages (1)" in done.stdout, done.stdout)
    for text, says in (("[" + lines[0] + ",\n" + lines[1], f"bad.json:2:{len(lines[1]) + 1}: after element 2 of the JSON array: the file ends; accepted: ',' or ']'\n"),
                       ("[" + lines[0] + "\n" + lines[1] + "]", "bad.json:2:1: after element 1 of the JSON array: '{'; accepted: ',' or ']'\n")):
        bad.write_text(text)
        for args in ([*TRAIN, "-d", bad, "-o", folder / "a.gguf"], [*TRAIN, "-d", bad, "-o", folder / "a.gguf", "--skip-bad"], ["data", "check", bad, "-m", MODEL]):
            done = run(*args)
            check(done.returncode == 3 and says in done.stderr, f"{args}: {done.stdout}{done.stderr}")


def array_in_scenario(folder):
    """Nodes with arrays make the adapter that nodes with lines make; held-out examples that are trained on are refused by element."""
    clients, finals = ("c0", "c1"), []
    train = [talk(client, f"Is {i} even?", "Yes.") for client in clients for i in range(3)]
    held = [talk(client, "Is it?", "It is.") for client in clients]
    for kind in ("jsonl", "json", "leak"):
        for name, texts in (("train", train), ("held", [*held, train[4]] if kind == "leak" else held)):
            (folder / f"{name}.{kind}").write_text("".join(x + "\n" for x in texts) if kind == "jsonl" else "[\n " + ",\n ".join(texts) + "\n]\n")
        (folder / "one.yaml").write_text(
            f"schema_version: 1\nname: one\nmodel: {MODEL}\ntrain: train.{kind}\ntest: held.{kind}\nrounds: 1\n"
            "population: [{group: all, clients: [c0, c1]}]\nrecipe: {rank: 1, targets: q, steps: 1, batch_tokens: 16, seq_max: 32}\n"
            "codec: {up: {kind: int8}, down: {kind: f16}}\nevaluation: {round_items: 2, generate: false}\naudit: {submissions: 0, scalar_steps: 0}\n")
        done = run("simulate", folder / "one.yaml", "-o", folder / f"of-{kind}", "-q")
        if kind == "leak":
            check(done.returncode == 2 and re.search(r"held\.leak: 1 of 3 held-out examples, the first in element 3, are also what c0 trains on", done.stderr), done.stderr)
        else:
            check(done.returncode in (0, 1), f"simulate: exit {done.returncode}: {done.stderr}")  # 1: a gate failed, the run is whole
            bundle = folder / f"of-{kind}"
            finals.append([(bundle / name).read_bytes() for name in ("final.gguf", "eval/before.jsonl", "eval/after.jsonl", "ledger.jsonl")])
    check(finals[0] == finals[1], "a scenario's array makes another run than its lines")


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
        array = pathlib.Path(name) / "array"
        array.write_text(json.dumps([json.loads(text)], indent=4))
        made = run(*TRAIN, "-d", array, "-o", out)
        digests.append(json.loads(made.stdout.splitlines()[-1])["adapter_digest"])
        check(len(set(digests)) == 1, f"{kind}: streamed, asked for or in an array, it is another adapter")
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
    check(done.returncode == 3 and 'accepted: one JSON object a line, or all in one array, with "messages", or with "prompt" and "completion", "instruction" and "output", '
          '"conversations", or "text"' in done.stderr, done.stderr)
    array_of_lines(pathlib.Path(name))
    array_in_scenario(pathlib.Path(name))

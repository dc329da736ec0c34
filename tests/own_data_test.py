#!/usr/bin/env python3
"""README's "federate your own model and data", typed from README.md itself in a new folder, with chats of three people that are made
up here: what a new user would do, and see.

usage: own_data_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import json, pathlib, re, subprocess, sys

import live
from live import check

SOURCE = pathlib.Path(sys.argv[1]).resolve()
MESHMIND = live.program(sys.argv[2:])
README = (SOURCE / "README.md").read_text()
PART = README[README.index("## Federate your own model and data"):].split("\n## ")[0]
PEOPLE = ["anna", "ben", "cleo"]


def blocks():
    """Each indented block as its lines and their remarks."""
    for block in re.findall(r"(?:\n    .*)+", PART):
        yield [(re.split(r"\s+# ", line.strip(), maxsplit=1) + [""])[:2] for line in block.strip("\n").split("\n")]


def chats(path, numbers):
    """As README's example has them."""
    text = ""
    for name in PEOPLE:
        for i in numbers:
            example = json.loads(shown)
            example["client"] = name
            example["messages"][0]["content"], example["messages"][1]["content"] = f"How many apples has {name} on day {i}?", f"{name} has {i} apples."
            text += json.dumps(example) + "\n"
    path.write_text(text)


def scenario(rate):
    """The shipped one with model, data and clients named, fewer rounds and smaller steps."""
    text = (SOURCE / "scenarios" / "quickstart.yaml").read_text()
    text, models = re.subn(r"(?m)^model: .*", "model: own.gguf", text)
    text, data = re.subn(r"(?m)^(train|test): base/", r"\1: ", text)
    people = iter(PEOPLE)
    text, clients = re.subn(r"clients: \[.*?\]", lambda _: f"clients: [{next(people)}]", text)
    text, rounds = re.subn(r"(?m)^rounds: .*", "rounds: 1", text)
    text, tokens = re.subn(r"(?m)^  batch_tokens: .*", "  batch_tokens: 120", text)  # a third: their chats are short
    check((models, data, clients, rounds, tokens) == (1, 2, 3, 1, 1), "scenarios/quickstart.yaml is not as README says")
    return text.replace("learning_rate: 0.01", f"learning_rate: {rate}")


def typed(folder, line, code=0):
    done = subprocess.run(line, shell=True, cwd=folder, capture_output=True, text=True, timeout=500)
    print(f"$ {line}\n{done.stdout[-1500:]}{done.stderr[-500:]}")
    check(done.returncode == code, f"$ {line}\nended with {done.returncode}")
    return done.stdout


(example, lines) = blocks()
shown = example[0][0]
check(len(lines) == 6, f"{len(lines)} lines:", lines)
with live.workplace("own") as folder:
    (folder / "build/release").mkdir(parents=True)
    (folder / "build/release/meshmind").symlink_to(MESHMIND)
    (folder / "own.gguf").symlink_to(next((SOURCE / "scenarios" / "base").glob("*.gguf")))
    chats(folder / "train.jsonl", range(20))
    chats(folder / "test.jsonl", range(20, 24))
    found = []
    for rate in (0.005, 0.01):
        (folder / "my.yaml").write_text(scenario(rate))
        typed(folder, lines[0][0])
        found.append(next(p.name for p in (folder / "artifacts/runs").iterdir() if p.name not in found))
    policy = re.search(r"strict.yaml: (.*)", lines[4][1])
    (folder / "strict.yaml").write_text(policy[1] + "\n")
    said = [typed(folder, line.replace("<bundle>", found[1]).replace("<one>", found[0]).replace("<other>", found[1])) for line, _ in lines[1:]]
    for text, says in zip(said, ("verify: pass", "identical: node anna, round 0", "identical: 24 rows of eval/before.jsonl and eval/after.jsonl, 2 lines", "heldout_uplift .*>= 0.5 ", "learning_rate")):
        check(re.search(says, text), f"wanted /{says}/ in", text)
    check("<testsuite" in (folder / "report.xml").read_text(), "report.xml")
    (folder / "strict.yaml").write_text("quality: {heldout_uplift: {threshold: 50}}\n")
    typed(folder, lines[4][0].replace("<bundle>", found[1]), code=1)
    (folder / "elsewhere").mkdir()  # and where my.yaml is not in this folder
    line = lines[2][0].replace("<bundle>", found[1]).replace("build/", "../build/").replace("artifacts/", "../artifacts/")
    typed(folder / "elsewhere", line, code=2)
    typed(folder / "elsewhere", line + " --data ..")
print("own model, own data, six lines")

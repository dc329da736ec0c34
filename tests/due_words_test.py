#!/usr/bin/env python3
"""Where a result is not what was meant, though nothing failed, a word says so: an adapter that storing rounds away, a text that
the context ends. And what a file may say can be asked for: `--keys` of scenarios, policies and recipes. Where a scenario is
wrong in what no table checks, the line is named.

usage: due_words_test.py SOURCE_DIR MESHMIND
"""
import json, pathlib, re, subprocess, sys, tempfile

from live import Findings

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
BASE = SOURCE / "scenarios" / "base"
MODEL = BASE / "openmeshmind-tiny-F16.gguf"
found = Findings()
folder = tempfile.TemporaryDirectory(prefix="omm-words-")
work = pathlib.Path(folder.name)


def run(*args, code=0):
    done = subprocess.run([MESHMIND, *map(str, args)], capture_output=True, text=True, timeout=600)
    found.check(done.returncode == code, f"{args}: exit {done.returncode} instead of {code}: {done.stderr[:400]}")
    return done


# Four bits round away what a small adapter changes, in every layer; eight and sixteen keep it.
lines = (BASE / "train.jsonl").read_text().splitlines(keepends=True)
(work / "few.jsonl").write_text("".join(lines[:8]))
few, adapter = work / "q4.gguf", work / "a.gguf"
run("quantize", MODEL, few, "Q4_0")
run("train", "-m", MODEL, "-d", work / "few.jsonl", "--out", adapter, "--steps", 2, "--batch", 64, "--seq", 64, "--rank", 2, "--warmup", 0)
merge = ["adapter", "merge", "--lora", adapter, "-o", work / "merged.gguf", "-m"]
WORD = r"in 42 of 42 layers storing rounds away more than the adapter changes.*--type Q8_0 or F16 keeps it"
for more, due in ([few], True), ([few, "--json"], True), ([few, "--type", "F16"], False), ([MODEL], False):
    done = run(*merge, *more)
    found.check(bool(re.search(WORD, done.stderr)) == due, f"merge {more[1:]}: {done.stderr}")
    if "--json" in more:
        found.check(len(json.loads(done.stdout)["tensors"]) == 42, done.stdout[:200])
run("quantize", MODEL, work / "x.gguf", "Q4_K_M", "--pure", code=2)
found.check(not (work / "x.gguf").exists(), "quantize --pure of a mix wrote a file")
# A text that the context ends; the last token that was asked for is no early end.
for context, count, says in ((16, 60, "ends after 14 of 60 tokens: the context of 16 positions is full; -c takes up to 512"), (16, 14, None), (64, 8, None)):
    done = run("generate", "-m", MODEL, "-c", context, "-n", count, "leaf")
    got = [line for line in done.stderr.splitlines() if "context" in line]
    found.check(got == ([says] if says else []), f"-c {context} -n {count}: {done.stderr}")
# What files may say.
for command, keys in (("simulate", ("population[].clients", "round.deadline_ms", "codec.up.topk_fraction", "evaluation.clients", "audit.submissions")),
                      ("gate", ("quality.heldout_uplift.threshold", "communication.up_bytes_max.level")),
                      ("train", ("rank", "batch_tokens", "rank_pattern", "activations")),
                      ("pretrain", ("vocabulary.size", "training.steps"))):
    told = run(command, "--keys").stdout.splitlines()
    for key in keys:
        found.check(any(line.startswith(f"{key}: ") for line in told), f"{command} --keys has no {key}")
# What no table checks, with its line; a client without held-out items, with what would do.
(work / "test.jsonl").write_text("".join(line for line in (BASE / "test.jsonl").read_text().splitlines(keepends=True) if '"home-01"' in line))
SCENARIO = f"""schema_version: 1
name: words
model: {MODEL}
train: {BASE}/train.jsonl
test: test.jsonl
rounds: 1
population:
  - group: homes
    clients: [home-01, home-02]
recipe:
  rank: 4
"""
for old, new, says in (("name: words", "name: a/b", r"s.yaml:2:7: name: 'a/b' is no plain name"),
                       ("home-02", "home-01", r"s.yaml:8:3: population: node 'home-01' occurs twice"),
                       ("home-02", "nobody", r"s.yaml:8:3: population: .*no example of client 'nobody'"),
                       ("rank: 4", "rank: 4\n  momentum: 0.5", r"s.yaml:12:13: recipe: momentum is 0.5 with adamw"),
                       ("rank: 4", "rank: 4\n  optimizer: sgd\n  beta1: 0.5", r"s.yaml:13:10: recipe.beta1 is of adamw"),
                       ("rank: 4", "rank: 8", r"s.yaml:5:7: test: .*no example of client 'home-02'.*evaluation: .clients: all")):
    (work / "s.yaml").write_text(SCENARIO.replace(old, new))
    done = run("simulate", work / "s.yaml", "--out", work / "bundle", code=2)
    found.check(re.search(says, done.stderr), f"{new}: {done.stderr}")
if not found.failures:
    print("due_words: ok")
sys.exit(found.code)

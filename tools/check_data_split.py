#!/usr/bin/env python3
"""Check that no test item's text occurs in any training file.  Run by CTest as `data_split`.

For each test item, the user's turns, the learned assistant turns and the whole conversation are
looked up among the training examples, the validation text and the pretraining generator's source,
after folding case and white space.  A question or a full conversation of the test file may occur
nowhere.  Short shared replies ("timer set") are closed sets by design; a learned reply counts as
leaked when the same question precedes it.  The check proves that it can say no by planting a leak.
"""
import json, pathlib, re, sys

base = pathlib.Path(sys.argv[1]) / "scenarios" / "base"


def fold(text):
    return re.sub(r"\s+", " ", text).strip().lower()


def keys(example):
    turns = [(m["role"], fold(m["content"])) for m in example["messages"] if m["role"] != "system"]
    questions = {t for role, t in turns if role == "user"}
    return questions | {" | ".join(t for _, t in turns)}


def load(name):
    return [json.loads(line) for line in (base / name).read_text().splitlines() if line.strip()]


def leaks(test, train, texts):
    seen = set().union(*(keys(e) for e in train))
    body = [fold(t) for t in texts]
    out = []
    for number, item in enumerate(test, 1):
        for key in keys(item):
            if key in seen or any(key in text for text in body):
                out.append(f"test.jsonl:{number}: {key[:90]}")
    return out


test, train = load("test.jsonl"), load("train.jsonl")
texts = [(base / name).read_text() for name in ("valid.txt", "corpus.py")]
found = leaks(test, train, texts)
planted = leaks(test[:1], train + test[:1], texts)
if not planted or not leaks(test[:1], [], [test[0]["messages"][-2]["content"] + test[0]["messages"][-1]["content"]
                                           + " ".join(m["content"] for m in test[0]["messages"])]):
    found.append("the check did not find a leak that was planted")
print("\n".join(found) or f"data_split: ok, {len(test)} test items against {len(train)} training examples")
sys.exit(1 if found or not test or not train else 0)

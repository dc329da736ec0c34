#!/usr/bin/env python3
"""Does a base model copy?  Its loss by what a token has to do with the text before it, and on random lists three times over.

usage: copying.py MESHMIND MODEL [MODEL ...] [--text FILE] [--documents N]

A token of the text is `copied` if it followed the token at hand before, and nothing else did; `one of several` if something
else did too; `seen` if it is somewhere before; else `new`.  The lists are of syllables and names of scenarios/base/corpus.py, 12 to
20 in one line, and the line is there three times: a model that copies has no loss on the second and the third.
Losses are nats a token.  Standard library only; the text is scenarios/base/valid.txt, every Nth document of it.
"""
import argparse, array, collections, importlib.util, json, math, pathlib, subprocess, sys, tempfile

BASE = pathlib.Path(__file__).resolve().parents[2] / "scenarios" / "base"
END = "<|endoftext|>"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("meshmind")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--text", default=BASE / "valid.txt")
    parser.add_argument("--documents", type=int, default=60, help="of the text, spread over it (60)")
    return parser.parse_args()


ARGS = arguments()
FOLDER = tempfile.TemporaryDirectory()
WORK = pathlib.Path(FOLDER.name)


def meshmind(*args):
    done = subprocess.run([ARGS.meshmind, *map(str, args)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"copying.py: {args[0]}: {done.stderr.strip()}")
    return done.stdout


def ids_of(text):
    (WORK / "text").write_text(text)
    return json.loads(meshmind("tokenize", "-m", ARGS.models[0], "-f", WORK / "text", "--special", "--json"))["ids"]


def losses(model, ids):
    """Of every token but the first."""
    meshmind("logits", "-m", model, "--ids", ",".join(map(str, ids)), "-o", WORK / "logits")
    values = array.array("f", (WORK / "logits").read_bytes())
    width, found = len(values) // len(ids), []
    for i, wanted in enumerate(ids[1:]):
        row = values[i * width:(i + 1) * width]
        most = max(row)
        found.append(most + math.log(sum(math.exp(x - most) for x in row)) - row[wanted])
    return found


def kind_of(ids, i):
    """Of token i + 1."""
    followers = {ids[j + 1] for j in range(i) if ids[j] == ids[i]}
    if ids[i + 1] in followers:
        return "copied" if len(followers) == 1 else "one of several"
    return "seen" if ids[i + 1] in ids[:i + 1] else "new"


def report(title, sums):
    for name, (count, *loss) in sums.items():
        print(f"{title + name:34s} {count:6d}" + "".join(f" {x / count:14.3f}" for x in loss))


def by_kind(title, documents):
    sums = collections.defaultdict(lambda: [0] + [0.0] * len(ARGS.models))
    for text in documents:
        ids = ids_of(text + END)
        each = [losses(model, ids) for model in ARGS.models]
        for i in range(len(ids) - 1):
            sums[kind_of(ids, i)][0] += 1
            for m, loss in enumerate(each):
                sums[kind_of(ids, i)][1 + m] += loss[i]
    report(title, dict(sorted(sums.items())))


def lists():
    spec = importlib.util.spec_from_file_location("corpus", BASE / "corpus.py")
    corpus = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(corpus)
    draw = corpus.R
    draw.seed(77)
    for title, join, words in (("syllables", " ", lambda: [draw.choice(corpus.SYL) for _ in range(20)]),
                               ("syllables, commas", ", ", lambda: [draw.choice(corpus.SYL) for _ in range(20)]),
                               ("names", " ", lambda: draw.sample(corpus.FEMALE + corpus.MALE, 12))):
        sums = {f", time {k + 1}": [0] + [0.0] * len(ARGS.models) for k in range(3)}
        for _ in range(5):
            ids = ids_of("\n".join([join.join(words())] * 3))
            each = [losses(model, ids) for model in ARGS.models]
            for i in range(len(ids) - 1):
                sum_ = sums[f", time {3 * (i + 1) // len(ids) + 1}"]
                sum_[0] += 1
                for m, loss in enumerate(each):
                    sum_[1 + m] += loss[i]
        report(title, sums)


def main():
    documents = [x for x in pathlib.Path(ARGS.text).read_text().split(END) if x]
    tools = [x for x in documents if "<tool_call>" in x]
    chats = [x for x in documents if "<|im_start|>" in x and "<tool_call>" not in x]
    plain = [x for x in documents if "<|im_start|>" not in x]
    print(f"{'':34s} {'tokens':>6s}" + "".join(f" {pathlib.Path(m).name[-14:]:>14s}" for m in ARGS.models))
    for title, some in (("tools: ", tools), ("chats: ", chats), ("plain: ", plain)):
        by_kind(title, some[::max(1, len(some) * 3 // ARGS.documents)][:ARGS.documents // 3])
    lists()


main()

#!/usr/bin/env python3
"""How often does a base model give the very reply of the dialogues that it was kept from?  Exact match, greedy, by kind of reply.

usage: dialogues.py MESHMIND MODEL [MODEL ...] [--text FILE] [--every N]

Every assistant turn of the text's dialogues is asked for with all before it as the prompt.  A tool call has one right form; of other
replies several wordings would be right, so those figures are lower bounds.
Standard library only; the text is scenarios/base/valid.txt.
"""
import argparse, json, pathlib, re, subprocess, sys, tempfile

BASE = pathlib.Path(__file__).resolve().parents[2] / "scenarios" / "base"
TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>\n?", re.S)


def kind_of(turns, i):
    call = re.search(r'<tool_call>\s*{"name": "(\w+)"', turns[i][1])
    if call:
        return f"call {call[1]}"
    return "answer after a tool" if turns[i - 1][0] == "tool" else "other answer"


def items(text):
    for document in text.split("<|endoftext|>"):
        turns = TURN.findall(document)
        for i, (role, _) in enumerate(turns):
            if role == "assistant" and i > 0:
                messages = [{"role": r, "content": c} for r, c in turns[:i + 1]]
                yield {"client": "valid", "skill": kind_of(turns, i), "messages": messages}


def judge(meshmind, model, folder):
    """Rows of the report of a training that moves nothing: the replies of the model as it is."""
    done = subprocess.run([meshmind, "train", "-m", model, "--data", folder / "one.jsonl", "--eval", folder / "items.jsonl",
                           "--out", folder / "adapter.gguf", "--report", folder / "report", "--steps", "1", "--rank", "1",
                           "--lr", "1e-9", "--new-tokens", "96"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"dialogues.py: {model}: {done.stderr.strip()}")
    held_out = json.loads((folder / "report" / "report.json").read_text())["held_out"]
    return {row["name"]: row for row in held_out["skills"] + held_out["all"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("meshmind")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--text", type=pathlib.Path, default=BASE / "valid.txt")
    parser.add_argument("--every", type=int, default=1, help="ask for every Nth reply (1: all)")
    args = parser.parse_args()
    asked = list(items(args.text.read_text()))[::args.every]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in asked))
        (folder / "one.jsonl").write_text(json.dumps(asked[0]) + "\n")
        found = [judge(args.meshmind, model, folder) for model in args.models]
    print(" " * 22 + "replies" + "".join(f"{pathlib.Path(m).name[:24]:>26}" for m in args.models))
    for kind in found[0]:
        rows = [f[kind] for f in found]
        cells = "".join(f"{row['exact_before']:>14} ({row['loss_before']:.3f})" + " " * 4 for row in rows)
        print(f"{kind:22}{rows[0]['answers']:7}{cells}")
    print("exact replies (loss, nats a token of them)")


main()

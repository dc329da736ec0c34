#!/usr/bin/env python3
"""Tokens of a text: speed and equality, against Hugging Face tokenizers where that package is installed.

usage: tokenizing.py MESHMIND VOCAB.gguf TEXT [--rounds N]

VOCAB is a byte-level BPE model (gpt-2 or qwen2).  Both encode the whole text on one thread; the best of N
rounds counts.  Exit code 1 when the ids differ, 0 otherwise; without the peer only our figure is printed.
"""
import argparse, json, os, pathlib, subprocess, sys, time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
parser = argparse.ArgumentParser()
parser.add_argument("meshmind")
parser.add_argument("vocab")
parser.add_argument("text")
parser.add_argument("--rounds", type=int, default=5)
args = parser.parse_args()
PATTERNS = {
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
             r"|\s*[\r\n]+|\s+(?!\S)|\s+",
}


def ours():
    best = None
    for _ in range(args.rounds):
        run = subprocess.run([args.meshmind, "tokenize", "-m", args.vocab, "--file", args.text, "--json"],
                             capture_output=True, text=True, check=True)
        report = json.loads(run.stdout)
        seconds = report["measured"]["encode_seconds"]
        best = seconds if best is None else min(best, seconds)
    return report["ids"], best


def keys():
    run = subprocess.run([args.meshmind, "inspect", args.vocab, "--all", "--json"], capture_output=True, text=True,
                         check=True)
    return {kv["key"]: kv["value"] for kv in json.loads(run.stdout)["keys"]}


def peers():
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    kv = keys()
    vocab = {text: i for i, text in enumerate(kv["tokenizer.ggml.tokens"])}
    merges = [tuple(m.split(" ", 1)) for m in kv["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERNS[kv["tokenizer.ggml.pre"]]), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    text = pathlib.Path(args.text).read_bytes().decode()
    best = None
    for _ in range(args.rounds):
        start = time.perf_counter()
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        seconds = time.perf_counter() - start
        best = seconds if best is None else min(best, seconds)
    return ids, best


size = pathlib.Path(args.text).stat().st_size / 1e6
ids, seconds = ours()
print(f"meshmind        {size / seconds:7.2f} MB/s  {len(ids)} tokens in {seconds:.3f} s")
try:
    other, other_seconds = peers()
except ImportError:
    print("tokenizers      not installed")
    sys.exit(0)
print(f"tokenizers      {size / other_seconds:7.2f} MB/s  ratio {other_seconds / seconds:.2f}")
if ids != other:
    at = next((i for i, (a, b) in enumerate(zip(ids, other)) if a != b), min(len(ids), len(other)))
    print(f"the ids differ from token {at} on")
    sys.exit(1)

#!/usr/bin/env python3
"""A disk without room for what a training will write is known before its first step, and not after the last: the adapter, all
weights, the checkpoint, and what pretrain makes.  What lay there stays, and nothing else does.

Needs root (CAP_SYS_ADMIN) and unshare; else it is skipped with the reason.

usage: train_disk_test.py SOURCE_DIR MESHMIND
"""
import pathlib, subprocess, sys, tempfile

from live import Findings
from small_disk import in_a_namespace, leave, mount

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
MODEL = SOURCE / "scenarios" / "base" / "openmeshmind-tiny-F16.gguf"
in_a_namespace()
found = Findings()
folder = tempfile.TemporaryDirectory(prefix="omm-train-disk-")
work = pathlib.Path(folder.name)
disk = work / "disk"
disk.mkdir()
mount(disk, "-t", "tmpfs", "-o", "size=12m", "tmpfs")
(work / "d.jsonl").write_text("".join((SOURCE / "scenarios" / "base" / "train.jsonl").read_text().splitlines(keepends=True)[:6]))
(work / "texts.txt").write_text("The river was cold, and nobody swam in it until the sun came up.<|endoftext|>\n" * 80)
(work / "p.yaml").write_text("""name: small
vocabulary: {texts: [texts.txt], size: 290, control: ["<|endoftext|>"], bos: "<|endoftext|>", eos: "<|endoftext|>"}
model: {width: 64, layers: 2, heads: 4, kv_heads: 2, feed_forward: 128, context: 64}
training: {texts: [texts.txt], steps: 3, batch_tokens: 256}
type: F32
""")


def run(*args, code=0):
    done = subprocess.run([MESHMIND, *map(str, args)], capture_output=True, text=True, timeout=300, cwd=work)
    found.check(done.returncode == code, f"{args}: exit {done.returncode} instead of {code}: {done.stderr[-400:]}")
    return done


TRAIN = ["train", "-m", MODEL, "-d", "d.jsonl", "-s", 2, "--new-tokens", 0, "--json"]
old = disk / "old.gguf"
old.write_text("what was there before")
for what, args, kib, option in (("an adapter", [*TRAIN, "--rank", 8, "-o", old], 200, "--out"),
                                ("all weights", [*TRAIN, "--full", "-o", old], 9000, "--out"),
                                ("all weights in F32", [*TRAIN, "--full", "--type", "F32", "-o", old], 11000, "--out"),
                                ("all weights in Q4_K_M", [*TRAIN, "--full", "--type", "Q4_K_M", "-o", old], 2000, "--out"),
                                ("a checkpoint", [*TRAIN, "--rank", 8, "-o", "a.gguf", "--checkpoint", disk / "c", "--checkpoint-every", 2], 500, "--checkpoint"),
                                ("a checkpoint of all weights", [*TRAIN, "--full", "-o", "a.gguf", "--checkpoint", disk / "c", "--checkpoint-every", 1], 11000, "--checkpoint"),
                                ("pretrain", ["pretrain", "p.yaml", "-o", old, "--json"], 200, "--out"),
                                ("pretrain's checkpoint", ["pretrain", "p.yaml", "-o", "a.gguf", "--checkpoint", disk / "c", "--checkpoint-every", 3, "--json"], 400, "--checkpoint")):
    leave(disk, kib)
    done = run(*args, code=3)
    found.check(f"{option} " in done.stderr and "no room for" in done.stderr and "MB are free" in done.stderr, f"{what}: {done.stderr}")
    found.check('"step"' not in done.stdout, f"{what}: steps were made: {done.stdout[:300]}")
    left = {p.name for p in disk.iterdir()}
    found.check(left == {"filler", "old.gguf"} and old.read_text() == "what was there before", f"{what}: {left}")
    found.check(not (work / "a.gguf").exists(), f"{what}: a.gguf is written")
# With room it is used.
leave(disk, 4000)
run(*TRAIN, "--rank", 8, "-o", old, "--checkpoint", disk / "c")
run("train", "-m", MODEL, "-d", "d.jsonl", "-s", 2, "--new-tokens", 0, "--rank", 8, "-o", "b.gguf")
found.check(old.read_bytes() == (work / "b.gguf").read_bytes(), "on the small disk: another adapter")
old.unlink()
(disk / "c").unlink(missing_ok=True)
leave(disk, 1500)
run("pretrain", "p.yaml", "-o", disk / "p.gguf", "--checkpoint", disk / "c")
subprocess.run(["umount", disk], check=True)
if not found.failures:
    print("train_disk: ok")
sys.exit(found.code)

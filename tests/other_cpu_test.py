#!/usr/bin/env python3
"""A run of this machine, audited on another kind of CPU: the program built for AArch64 makes the run's tiny model
from nothing, verifies the bundle, trains a submission again (NEON kernels and plain C) and answers a prompt, all
to the same byte.

usage: other_cpu_test.py SOURCE_DIR MESHMIND BUILD_DIR
BUILD_DIR has aarch64/meshmind and sysroot-arm64, which ./test makes, and perhaps release/meshmind.
"""
import json, pathlib, shutil, subprocess, sys, tempfile

from live import fail, skip

SOURCE, MESHMIND, BUILD = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], pathlib.Path(sys.argv[3])
BASE = SOURCE / "scenarios" / "base"
MODEL = BASE / "openmeshmind-tiny-F16.gguf"
OTHER = ["qemu-aarch64", "-L", str(BUILD / "sysroot-arm64"), str(BUILD / "aarch64" / "meshmind")]
RELEASE = BUILD / "release" / "meshmind"
HERE = [str(RELEASE) if RELEASE.exists() else MESHMIND]
# As little work as still has every part: dropout, a second step with moments, int8 and top-k codecs.
SCENARIO = """schema_version: 1
name: other-cpu
seed: 12
model: here.gguf
train: train.jsonl
test: test.jsonl
rounds: 2
population:
  - {group: two, clients: [cafe-02, studio-02]}
recipe: {rank: 2, alpha: 4, targets: "q,v,down", steps: 2, batch_tokens: 60, learning_rate: 0.01, dropout: 0.1}
codec: {up: {kind: int8, topk_fraction: 0.5}, down: {kind: f16}}
evaluation: {round_items: 1, generate: false}
audit: {submissions: 0}
"""

PRETRAIN = """
name: Test
vocabulary:
  texts: [text.txt]
  size: 300
  control: ["<|endoftext|>"]
  bos: "<|endoftext|>"
  eos: "<|endoftext|>"
model: {layers: 2, width: 64, feed_forward: 96, heads: 4, kv_heads: 2, context: 512}
training: {texts: [text.txt], steps: 3, batch_tokens: 128, learning_rate: 0.01, warmup_steps: 1}
"""


def run(program, *args, codes=(0,)):
    done = subprocess.run([*program, *map(str, args)], capture_output=True, text=True)
    if done.returncode not in codes:
        fail(f"{program[-1]} {args[0]}: exit {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return done.stdout


def replay_everywhere(bundle):
    # Round 1 repeats both rounds: what top-k left over in the first goes into the second.
    for isa, node, number in (("neon", "cafe-02", 1), ("scalar", "studio-02", 0)):
        said = json.loads(run(OTHER, "replay", bundle, "--node", node, "--round", number, "--isa", isa,
                              "--json", "--data", bundle.parent))
        if said.get("equal") is not True:
            fail(f"replay of {node} with {isa}: {said}")
        print(f"{node}, round {number}, {isa}: the same bytes")
    said = json.loads(run(OTHER, "replay", bundle, "--eval", "--json", "--data", bundle.parent))
    if said.get("equal") is not True or said["states"] != 3 or said["rows"] != 4 or said["states_not_repeated"] or said["control_not_repeated"]:
        fail(f"replay --eval: {said}")
    print(f"eval/, {said['rows']} rows: the same bytes")


def damage_is_seen(folder, bundle):
    """The other build can also say no: a weight of a submission changed, the rest resealed by nobody."""
    broken = folder / "broken"
    shutil.copytree(bundle, broken)
    victim = sorted((broken / "submissions").iterdir())[0]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 4
    victim.write_bytes(data)
    if f"submissions/{victim.name}" not in run(OTHER, "verify", broken, codes=(1,)):
        fail(f"verify does not name {victim.name}")


def pretrains_alike(folder):
    subprocess.run([sys.executable, BASE / "corpus.py", folder / "text.txt", "--mb", "0.02", "--seed", "3", "--phase", "4"],
                   check=True, capture_output=True)
    (folder / "tiny.yaml").write_text(PRETRAIN)
    made = []
    for name, program in (("here.gguf", HERE), ("there.gguf", OTHER)):
        run(program, "pretrain", folder / "tiny.yaml", "--out", folder / name, "--threads", 2)
        made.append((folder / name).read_bytes())
    if made[0] != made[1]:
        fail("pretrain made another model")
    print(f"pretrain: the same {len(made[0])} bytes")


def main(folder):
    scenario, bundle = folder / "other_cpu.yaml", folder / "bundle"
    for name, most in (("train.jsonl", None), ("test.jsonl", 1)):  # theirs alone, and the shortest to judge: a file is read slowly there
        lines = sorted((BASE / name).read_text().splitlines(keepends=True), key=len)
        (folder / name).write_text("".join("".join([x for x in lines if json.loads(x).get("client") == c][:most]) for c in ("cafe-02", "studio-02")))
    pretrains_alike(folder)
    scenario.write_text(SCENARIO)  # on the model that was made: of the shipped one same_bytes_test.c trains layers there
    run(HERE, "simulate", scenario, "--out", bundle, "--quiet", codes=(0, 1))
    here, there = (json.loads(run(program, "verify", bundle, "--json", codes=(0, 1))) for program in (HERE, OTHER))
    if here != there:
        fail(f"verify differs: {here}\n{there}")
    damage_is_seen(folder, bundle)
    replay_everywhere(bundle)
    for model in ([MODEL], [folder / "here.gguf", "--lora", bundle / "final.gguf"]):
        prompt = ["generate", "-m", *model, "-n", 8, "--seed", 3, "--temp", 0.8, "What do you sell?"]
        here, there = run(HERE, *prompt), run(OTHER, *prompt)
        if here != there or not here.strip():
            fail(f"generate differs: {here!r} here, {there!r} there")
        print(f"8 tokens, sampled: the same, {here.strip()!r}")


missing = BUILD / "aarch64.missing"
if missing.exists():
    skip(missing.read_text().strip())
if not shutil.which("qemu-aarch64"):
    skip("no qemu-aarch64 (qemu-user)")
if not pathlib.Path(OTHER[-1]).exists():
    skip(f"{OTHER[-1]} is not built: ./test builds it")
with tempfile.TemporaryDirectory(prefix="omm-cpu-") as name:
    main(pathlib.Path(name))

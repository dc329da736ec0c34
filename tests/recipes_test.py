#!/usr/bin/env python3
"""What a recipe says of the adapter, in a run of several nodes: simulated, its bundle verified from its bytes
alone, a submission trained again with another number of threads, the adapter's ranks those that were asked for.

A second program, where there is one, simulates; what comes of it is checked by the first.

usage: recipes_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import json, pathlib, subprocess, sys, tempfile

from live import fail, program, ship_lines_of

SOURCE, MESHMIND, FASTER = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], program(sys.argv[2:])
BASE = SOURCE / "scenarios" / "base"
MODEL = BASE / "openmeshmind-tiny-F16.gguf"
CLIENTS = ["cafe-02", "studio-02"]
SCENARIO = """schema_version: 1
name: recipes
seed: 5
model: {model}
train: train.jsonl
test: test.jsonl
rounds: 2
population: [{{group: two, clients: [{clients}]}}]
recipe: {{steps: 2, batch_tokens: 96, warmup_steps: 0, {recipe}}}
codec: {{up: {{kind: int8, topk_fraction: 0.5}}, down: {{kind: f16}}}}
evaluation: {{round_items: 2, generate: false}}
audit: {{submissions: 1, scalar_steps: 0, lower_isa: false}}
policy: policy.yaml
"""
# A few hundred values of a core weigh less than the messages around them; two clients prove no uplift.
POLICY = """communication: {wire_saving_vs_fp32: {level: informational}, saving_vs_fp32: {level: informational}}
quality: {heldout_uplift_low: {level: informational}}
reproducibility: {isa_mismatches: {level: informational}}
"""
# The recipe; ranks of some layers in final.gguf (None: not adapted); rank and targets in run.json.
RUNS = {
    "layers and patterns": ('targets: "blk.0.attn_?,blk.1-2.ffn_*", rank: 4, alpha: 6, learning_rate: 0.01, '
                            'rank_pattern: "ffn_*=2,ffn_up=3", alpha_pattern: "attn_q=5", rslora: true, parts: b',
                            {"blk.0.q": 4, "blk.0.up": None, "blk.1.up": 3, "blk.2.down": 2, "blk.1.q": None,
                             "blk.3.down": None}, (4, 0x77)),
    "int8 activations": ('targets: "all", rank: 8, alpha: 16, activations: q8, learning_rate: 0.02, alpha_pattern: "attn_q=5"',
                         {"blk.0.q": 8, "blk.3.down": 8}, (8, 0x7f)),
    "cores": ('targets: "all", rank: 8, alpha: 16, parts: core, learning_rate: 0.1, prox_mu: 0.01, '
              'rank_pattern: "ffn_*=6"', {"blk.0.q": 8, "blk.1.down": 6}, (8, 0x7f)),
}


def meshmind(*args, code=0, by=MESHMIND):
    done = subprocess.run([by, *map(str, args)], capture_output=True, text=True, timeout=300)
    if done.returncode != code:
        fail(f"{args}: exit {done.returncode}, not {code}: {done.stdout[-2000:]}{done.stderr}")
    return done.stdout + done.stderr


def check_ranks(name, bundle, ranks):
    shown = json.loads(meshmind("adapter", "show", bundle / "final.gguf", "--tensors", "--json"))
    pairs = {f"blk.{pair['layer']}.{pair['target']}": pair["rank"] for pair in shown["pairs"]}
    for layer, rank in ranks.items():
        if pairs.get(layer) != rank:
            fail(f"{name}: {layer} has rank {pairs.get(layer)}, not {rank}")


def run(name, folder):
    recipe, ranks, record = RUNS[name]
    scenario, bundle = folder / "scenario.yaml", folder / name.replace(" ", "-")
    (folder / "policy.yaml").write_text(POLICY)
    scenario.write_text(SCENARIO.format(clients=", ".join(CLIENTS), model=MODEL, recipe=recipe))
    if "activations" in recipe:
        said = meshmind("simulate", scenario, "--out", bundle, code=2)
        if "activations is q8" not in said or "F16" not in said or bundle.exists():
            fail(f"{name}: a base that is not quantised: {said}")
        meshmind("quantize", MODEL, folder / "base.gguf", "Q4_0")
        scenario.write_text(SCENARIO.format(clients=", ".join(CLIENTS), model=folder / "base.gguf", recipe=recipe))
    meshmind("simulate", scenario, "--out", bundle, "--threads", 2, by=FASTER)
    meshmind("verify", bundle)
    said = meshmind("replay", bundle, "--node", "cafe-02", "--round", 1, "--threads", 1, "--data", folder)
    if not said.startswith("identical: node cafe-02, round 1"):
        fail(f"{name}: replay says {said}")
    adapter = json.loads((bundle / "run.json").read_text())["adapter"]
    if (adapter["rank"], adapter["targets"]) != record:
        fail(f"{name}: run.json says rank {adapter['rank']}, targets {adapter['targets']:#x}")
    check_ranks(name, bundle, ranks)
    rounds = [json.loads(line) for line in (bundle / "rounds.jsonl").read_text().splitlines()]
    if [len(r["accepted"]) for r in rounds] != [2, 2]:
        fail(f"{name}: not all submissions were accepted")
    if name == "cores" and [s["cols"] for s in adapter["layout"][:2]] != [8, 8]:
        fail(f"{name}: {adapter['layout'][:2]} travels")
    print(f"{name}: {sum(s['rows'] * s['cols'] for s in adapter['layout'])} values, verified, replayed")


def compare(bundles):
    """The two runs against each other; what is no comparison is refused."""
    first, second = bundles
    told = json.loads(meshmind("compare", first, second, "--json"))
    differ = {s["setting"]: (s["a"], s["b"]) for s in told["settings"]}
    if differ.get("recipe.parts") != ('"b"', '"core"') or "recipe.rank" not in differ or "name" in differ:
        fail(f"compare: settings {differ}")
    losses = [b["loss"] for b in told["bundles"]]
    loss = told["metrics"]["loss"]
    if not told["same_data"] or abs(loss["difference"] - (losses[1] - losses[0])) > 1e-9 or loss["clients"] != 2:
        fail(f"compare: {told}")
    if "recipe.rank" not in meshmind("compare", first, second):
        fail("compare: the text does not name the rank")
    meshmind("compare", first, first, code=2)
    rows = first / "eval" / "after.jsonl"
    rows.write_text(rows.read_text().replace('"nll":', '"nll":1', 1))
    if "not what was signed" not in meshmind("compare", first, second, code=1):
        fail("compare: takes a bundle that is not what was signed")


def starts_again(folder):
    """Layers of other alphas, in an adapter that training goes on from: as in one run, said again or not.  All examples are in
    each batch, and plain SGD has no state."""
    data = folder / "few.jsonl"
    data.write_text("".join((BASE / "train.jsonl").read_text().splitlines(True)[:4]))

    def steps(out, count, *args):
        events = meshmind("train", "-m", MODEL, "-d", data, "--batch", 4096, "--lr", 0.05, "--warmup", 0, "--schedule", "constant",
                          "--optimizer", "sgd", "--clip", 0, "--json", "-o", folder / out, "--steps", count, *args)
        return [(e["loss"], e["grad_norm"]) for e in (json.loads(line) for line in events.splitlines() if line[0] == "{")
                if e.get("event") == "step"]

    pattern = ("--rank", 4, "--alpha-pattern", "ffn_down=0.5")
    whole = steps("whole.gguf", 4, *pattern)
    steps("half.gguf", 2, *pattern)
    for again in ((), pattern):
        rest = steps("rest.gguf", 2, "--start", folder / "half.gguf", *again)
        # Examples of a later pass over the data come in another order.
        if len(whole) != 4 or len(rest) != 2 or any(
                abs(x / y - 1) > 1e-5 for a, b in zip(rest, whole[2:]) for x, y in zip(a, b)):
            fail(f"--start {again}: {rest}, in one run {whole[2:]}")
    print("goes on with the alphas of its layers")


with tempfile.TemporaryDirectory() as out:
    starts_again(pathlib.Path(out))
    for data in "train.jsonl", "test.jsonl":
        ship_lines_of(pathlib.Path(out), data, CLIENTS)  # of all clients, a program with sanitizers reads for a second
    for name in RUNS:
        run(name, pathlib.Path(out))
    compare([pathlib.Path(out) / name for name in ("layers-and-patterns", "cores")])

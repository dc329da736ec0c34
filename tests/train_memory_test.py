#!/usr/bin/env python3
"""What training holds, as planned and as measured (VmHWM of a step): in proportion to the length of an example, never the logits as a
whole, 16 bytes a parameter of the adapter, of a streamed file nothing but its index, and of a base one copy for all nodes of a simulation.

usage: train_memory_test.py SOURCE_DIR MESHMIND...          (programs that are missing or have a sanitizer are left out)
       train_memory_test.py SOURCE_DIR MESHMIND... large    whole models within the limits that we promise; a file that is larger than the peak
"""
import json, mmap, pathlib, struct, subprocess, sys, tempfile

MB = 1000 * 1000
BASE = pathlib.Path(sys.argv[1]) / "scenarios" / "base"
programs = [p for p in map(pathlib.Path, sys.argv[2:]) if p.is_file() and b"__asan_init" not in p.read_bytes()]
if not programs:
    print("no program without sanitizers: build the release preset")
    sys.exit(77)
failures = []
# smollm2-135m: what a layer's products take and give, its vocabulary, its widest result.
WIDTH, LAYER, VOCABULARY, WIDEST = 576, [(576, 576), (576, 192), (576, 192), (576, 576), (576, 1536), (576, 1536), (1536, 576)], 49152, 1536


def run(*args):
    done = subprocess.run([programs[0], *map(str, args)], capture_output=True, text=True, timeout=1200)
    if done.returncode != 0:
        sys.exit(f"{args}: exit {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def memory(model, data, *options):
    """Of one step on one thread, which is the first."""
    m = run("train", "-m", model, "-d", data, "--dry-run", "--steps", 1, "-t", 1, "--json", *options)["memory"]
    print(f"{model.name} {data.name} {options}: planned {m['planned_bytes'] / MB:.1f}, peak {m['peak_bytes'] / MB:.1f} MB")
    return m


def check(right, sentence):
    if not right:
        failures.append(sentence)


def one_example(folder, length):
    """Of about so many tokens, a few of which are learned: digits are tokens of their own."""
    data = folder / f"{length}.jsonl"
    data.write_text(json.dumps({"prompt": "".join(str(i * 7 % 10) for i in range(length - 40)), "completion": "01234567"}) + "\n")
    return data


def linear_in_length(folder, model):
    """From 1,024 to 2,048 tokens twice what is added from 512 to 1,024.  The scores of one layer as a whole would make it 2.8 times."""
    several = [memory(model, one_example(folder, n), "--seq", n, "--batch", n, "--micro", n) for n in (512, 1024, 2048)]
    for what in ("planned_bytes", "peak_bytes"):
        short, middle, long = (m[what] for m in several)
        check(1.6 < (long - middle) / (middle - short) < 2.3, f"{what} of 512, 1,024 and 2,048 tokens: {short}, {middle}, {long}")


def never_all_logits(model):
    tokens = 1024
    m = memory(model, BASE / "valid.txt", "--format", "text", "--seq", tokens, "--batch", tokens, "--micro", tokens)
    whole = 4 * tokens * VOCABULARY
    check(m["micro_tokens"] == tokens and m["peak_bytes"] < whole, f"logits of {tokens} tokens take {whole}, the peak is {m}")
    check(m["logits_bytes"] <= 64 << 20, f"logits: {m}")


def sixteen_bytes(folder, model):
    """Value, gradient and two moments; beside them room for one B a thread, which is not of the number of layers."""
    low, high = 16, 128
    first, second = (memory(model, one_example(folder, 512), "--rank", rank) for rank in (low, high))
    held = [m["adapter_bytes"] + m["optimizer_bytes"] for m in (first, second)]
    parameters = 2 * sum(a + b for a, b in LAYER)  # of two layers, for each rank
    for rank, planned in zip((low, high), held):
        want = 16 * rank * parameters + 4 * rank * WIDEST
        check(planned == want, f"rank {rank}: planned {planned}, 16 bytes a parameter and one B are {want}")
    passing = sum(second[k] - first[k] for k in ("activations_bytes", "work_bytes"))
    grown, allowed = second["peak_bytes"] - first["peak_bytes"], held[1] - held[0] + passing + 2 * MB
    check(grown < allowed, f"rank {low} to {high}: the peak grows by {grown}, not by at most {allowed}")


def judged_adapter(folder, model):
    """An evaluation packs the adapter: of cores the halves too, of a low rank whole strips of 16; each worker has room for what a batch of 256
    takes of it."""
    data = one_example(folder, 64)

    def held_out(*options):
        return memory(model, data, "--eval", data, "--new-tokens", 0, "-t", 2, *options)["held_out_bytes"]

    both, core = held_out("--rank", 64), held_out("--rank", 64, "--parts", "core")
    check(both == core, f"held-out data with cores of rank 64: {core}, with both halves {both}")
    low, high = (held_out("--targets", "v", "--rank", rank) for rank in (1, 16))
    check(high - low == 2 * 256 * 15 * 4, f"held-out data with rank 1 and 16, in one strip: {low}, {high}")


def chats(folder, size):
    """A file of so many bytes, of long lines: the index is 24 bytes a line."""
    data = folder / f"chats-{size}.jsonl"
    lines = [json.loads(line)["messages"] for line in (BASE / "train.jsonl").read_text().splitlines()[:300]]
    talks = [[m for talk in lines[i : i + 12] for m in talk if m["role"] in ("user", "assistant")] for i in range(0, len(lines), 12)]
    text = "".join(json.dumps({"messages": talk}) + "\n" for talk in talks)
    data.write_text(text * (size // len(text) + 1))
    return data


def streamed(folder, size, factor, *how):
    """Several times the file (more than the window over it, 2 MiB), the same peak; in memory each of its bytes takes three.  All examples are cut to one length: any step is alike."""
    model = BASE / "openmeshmind-tiny-F16.gguf"
    alike = ["--seq", 256, "--batch", 256, "--loss", "all"]
    small, large = (memory(model, chats(folder, n), *alike, *options) for n, options in ((size, ["--stream"]), (size * factor, how)))
    check(abs(large["peak_bytes"] - small["peak_bytes"]) < 2 * MB, f"{factor} times the file: peak {small['peak_bytes']}, then {large['peak_bytes']}")
    return large["peak_bytes"]


def one_base_for_all(folder):
    """Eight simulated nodes that train at once hold the weights that two hold: a copy each would be six times the model more."""
    model = folder / "wide.gguf"
    run("synth", "smollm2-135m", model, "--layers", 4, "--type", "F32", "--output", "Q8_0", "--json")
    peaks = []
    for nodes in (2, 8):
        clients = [f"c{i}" for i in range(nodes)]
        talk = [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}]
        (folder / "one.jsonl").write_text("".join(json.dumps({"client": c, "skill": "s", "messages": talk}) + "\n" for c in clients))
        talk[0]["content"] = "3"
        (folder / "held.jsonl").write_text("".join(json.dumps({"client": c, "skill": "s", "messages": talk}) + "\n" for c in clients))
        (folder / "one.yaml").write_text(
            f"schema_version: 1\nname: one\nmodel: {model.name}\ntrain: one.jsonl\ntest: held.jsonl\nrounds: 1\n"
            f"population: [{{group: all, clients: [{', '.join(clients)}]}}]\n"
            "recipe: {rank: 1, targets: q, steps: 1, batch_tokens: 16, seq_max: 16}\n"
            "codec: {up: {kind: int8}, down: {kind: f16}}\n"
            "evaluation: {round_items: 2, generate: false}\naudit: {submissions: 0, scalar_steps: 0}\n")
        out = folder / f"of-{nodes}"
        done = subprocess.run([programs[0], "simulate", folder / "one.yaml", "-o", out, "-t", "8", "-q"], capture_output=True, text=True, timeout=600)
        check(done.returncode in (0, 1), f"simulate: exit {done.returncode}: {done.stderr}")  # 1: a gate failed, the run is whole
        peaks.append(json.loads((out / "measured/times.json").read_text())["peak_memory_kib"] * 1024)
    base = model.stat().st_size
    print(f"{nodes} nodes at once instead of 2, base of {base / MB:.1f} MB: peaks {peaks[0] / MB:.1f}, {peaks[1] / MB:.1f} MB")
    check(peaks[0] > base and peaks[1] - peaks[0] < base, f"2 and {nodes} nodes at once: peaks {peaks}, the base is {base}")


def matrices_of(model):
    found = run("inspect", model, "--json")
    return [{**t, "at": found["data_offset"] + t["offset"]} for t in found["tensors"] if len(t["dims"]) > 1]


def q4_0_as_q4_k(model):
    """Eight blocks of Q4_0 have the bytes of one of Q4_K, and random bits are random scales, minima and codes: only d and dmin are written,
    2^-14 and 7.5 times that, which makes weights about 0 of the size that they had.  To encode them would take minutes."""
    q4_0, q4_k, block = 2, 12, 144
    with open(model, "r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        for t in matrices_of(model):
            head = t["name"].encode() + struct.pack("<IQQ", 2, *t["dims"])
            at = data.find(head + struct.pack("<I", q4_0))
            if at < 0:
                sys.exit(f"{model.name}: {t['name']} is no matrix in Q4_0")
            data[at + len(head) : at + len(head) + 4] = struct.pack("<I", q4_k)
            for i, byte in enumerate(struct.pack("<ee", 2**-14, 7.5 * 2**-14)):
                data[t["at"] + i : t["at"] + t["bytes"] : block] = bytes([byte]) * (t["bytes"] // block)


def within(folder, shape, kind, megabytes):
    model = folder / f"{shape}.gguf"
    run("synth", shape, model, "--type", "Q4_0" if kind == "Q4_K" else kind, "--json")
    if kind == "Q4_K":
        q4_0_as_q4_k(model)
    types = {t["type"] for t in matrices_of(model)}
    check(types == {kind}, f"{shape}: matrices in {types}, not {kind}")
    options = ["--format", "text", "--rank", 16, "--seq", 512, "--batch", 512, "--max-memory-mb", megabytes]
    peak = memory(model, BASE / "valid.txt", *options)["peak_bytes"]
    check(peak < megabytes * MB, f"{shape} in {kind}, rank 16, 512 tokens: peak {peak}, the limit was {megabytes} MB")
    model.unlink()


with tempfile.TemporaryDirectory(prefix="omm-train-memory-") as name:
    place = pathlib.Path(name)
    if sys.argv[-1] == "large":
        within(place, "smollm2-135m", "Q8_0", 400)
        within(place, "llama3.2-1b", "Q4_K", 1500)
        size = 66 << 20  # over 64 MiB files are streamed without being told
        if streamed(place, size // 10, 10) >= size:
            failures.append("a file that is streamed is smaller than the peak")
    else:
        synth = place / "model.gguf"
        run("synth", "smollm2-135m", synth, "--layers", 2, "--json")
        linear_in_length(place, synth)
        never_all_logits(synth)
        sixteen_bytes(place, synth)
        judged_adapter(place, synth)
        streamed(place, 5 * MB, 4, "--stream")
        one_base_for_all(place)
for failure in failures:
    print(failure)
sys.exit(1 if failures else 0)

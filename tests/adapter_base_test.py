#!/usr/bin/env python3
"""An adapter says which base it was trained on, and every command that takes one notices another: of the shipped model with one norm moved,
which has the same shape. Its quantised files are the same base. What the fingerprint is made of is worked out here a second time.

usage: adapter_base_test.py SOURCE_DIR MESHMIND
"""
import hashlib, json, pathlib, shutil, struct, subprocess, sys, tempfile

from live import SOURCE, check, said_until
from split_gguf import ALIGNMENT, ARRAY, STRING, Reader

MESHMIND = sys.argv[2]
BASE = SOURCE / "scenarios" / "base"
MODEL, NAME = BASE / "openmeshmind-tiny-F16.gguf", "OpenMeshMind Tiny Base"
OTHER_NAME = "OpenMeshMind Tiny Bold"
NUMBERS = ("block_count", "embedding_length", "feed_forward_length", "attention.head_count", "attention.head_count_kv")


def run(*args, code=0, text=""):
    done = subprocess.run([MESHMIND, *map(str, args)], input=text, capture_output=True, text=True, timeout=300)
    check(done.returncode == code, f"{args}: exit {done.returncode}, not {code}: {done.stdout}{done.stderr}")
    return done


def parts(data):
    """Where the value of each key begins, and (dimensions, type, place in the file) of each tensor."""
    r, keys, tensors = Reader(data), {}, {}
    r.at = 8
    tensor_count, key_count = r.take("Q"), r.take("Q")
    word = lambda: bytes(r.take("B") for _ in range(r.take("Q")))
    for _ in range(key_count):
        key = word().decode()
        kind = r.take("I")
        keys[key] = r.at
        r.skip_value(kind)
    for _ in range(tensor_count):
        name = word()
        dims = [r.take("Q") for _ in range(r.take("I"))]
        tensors[name] = (dims, r.take("I"), r.take("Q"))
    begin = r.at + -r.at % ALIGNMENT
    return keys, {name: (dims, kind, begin + at) for name, (dims, kind, at) in tensors.items()}, r


def fingerprint(path):
    data = path.read_bytes()
    keys, tensors, r = parts(data)
    u64 = lambda v: struct.pack("<Q", v)
    text = lambda v: u64(len(v)) + v
    at = lambda key, form: struct.unpack_from("<" + form, data, keys[key])
    size, = at("general.architecture", "Q")
    architecture = data[keys["general.architecture"] + 8:][:size].decode()
    made = text(b"openmeshmind base 1") + text(architecture.encode())
    made += b"".join(u64(at(f"{architecture}.{n}", "I")[0]) for n in NUMBERS)
    begin = keys["tokenizer.ggml.tokens"]
    of, count = struct.unpack_from("<IQ", data, begin)
    check(of == STRING, of)
    r.at = begin
    r.skip_value(ARRAY)
    made += u64(count) + text(data[begin + 12:r.at])
    for name, (dims, kind, place) in sorted(tensors.items()):
        if len(dims) == 1 and not name.startswith(b"rope_"):
            check(kind == 0, f"{name}: type {kind}")
            made += text(name) + u64(dims[0]) + data[place:place + 4 * dims[0]]
    return hashlib.blake2b(made, digest_size=32).hexdigest()


def write_other(path):
    """Another model of the same shape: a norm, and the name."""
    data = bytearray(MODEL.read_bytes().replace(NAME.encode(), OTHER_NAME.encode(), 1))
    _, tensors, _ = parts(bytes(data))
    place = tensors[b"output_norm.weight"][2]
    struct.pack_into("<f", data, place, struct.unpack_from("<f", data, place)[0] * 1.5)
    path.write_bytes(data)
    return path


def base_of(adapter):
    return json.loads(run("adapter", "show", adapter, "--json").stdout)["base"]


def uses(model, adapter, folder):
    """A command line for each command that takes an adapter for a model, and what it reads from stdin."""
    valid = folder / "text.txt"
    valid.write_text("The weather in Vilnius is fine today.\n")
    data = folder / "one.jsonl"
    data.write_text(BASE.joinpath("train.jsonl").read_text().split("\n")[0] + "\n")
    out = folder / "out"
    return [
        (("generate", "-m", model, "--lora", adapter, "-n", "2", "Hello"), ""),
        (("chat", "-m", model, "--lora", adapter), ""),
        (("logits", "-m", model, "--lora", adapter, "--ids", "1,2,3", "--out", out), ""),
        (("perplexity", "-m", model, "--lora", adapter, "-f", valid), ""),
        (("train", "-m", model, "--start", adapter, "--data", data, "--out", out, "--steps", "1", "--batch", "64", "--new-tokens", "0"), ""),
        (("adapter", "merge", "--lora", adapter, "-m", model, "-o", out), ""),
        (("adapter", "import", adapter, "-m", model, "-o", out), ""),
        (("adapter", "export", adapter, "-m", model, "-o", folder / "exported"), ""),
    ]


def serves(*args):
    """What `serve` says until it listens or ends."""
    return said_until([MESHMIND, "serve", "--listen", "127.0.0.1:0", *args], "at http://")


def check_refused(adapter, other, folder):
    for args, text in uses(other, adapter, folder):
        done = run(*args, code=3, text=text)
        check(f"trained on '{NAME}' (fingerprint " in done.stderr and f"not on '{OTHER_NAME}'" in done.stderr and "--any-base" in done.stderr,
              f"{args}: {done.stderr}")
        check(not (folder / "out").exists() and not (folder / "exported").exists(), f"{args}: wrote something")
    code, said = serves("-m", other, "--lora", adapter)
    check(code == 3 and f"not on '{OTHER_NAME}'" in said, f"serve: exit {code}: {said}")


def check_taken(model, adapter, folder, *options):
    for args, text in uses(model, adapter, folder):
        run(*args, *options, text=text)
        (folder / "out").unlink(missing_ok=True)
        shutil.rmtree(folder / "exported", ignore_errors=True)
    _, said = serves("-m", model, "--lora", adapter, *options)
    check("at http://" in said, f"serve {options}: {said}")


def check_rebound(adapter, other, folder):
    """What is trained or written for the other model is its own from then on."""
    other_base = {"name": OTHER_NAME, "fingerprint": fingerprint(other)}
    for args, _ in uses(other, adapter, folder):
        if args[0] == "train" or args[:2] == ("adapter", "import"):
            run(*args, "--any-base")
            check(base_of(folder / "out") == other_base, f"{args}: {base_of(folder / 'out')}")
            (folder / "out").unlink()


def check_peft(adapter, other, folder):
    peft, back = folder / "peft", folder / "back.gguf"
    run("adapter", "export", adapter, "-m", MODEL, "-o", peft)
    head = (peft / "adapter_model.safetensors").read_bytes()
    words = json.loads(head[8:8 + struct.unpack("<Q", head[:8])[0]])["__metadata__"]
    check(words == {"format": "pt", "openmeshmind.base.fingerprint": fingerprint(MODEL)}, words)
    check(json.loads((peft / "adapter_config.json").read_text())["base_model_name_or_path"] == NAME, "the folder's base")
    check(base_of(peft) == base_of(adapter), base_of(peft))
    run("adapter", "import", peft, "-m", MODEL, "-o", back)
    check(back.read_bytes() == adapter.read_bytes(), "there and back is another file")
    done = run("adapter", "import", peft, "-m", other, "-o", folder / "no.gguf", code=3)
    check(f"not on '{OTHER_NAME}'" in done.stderr, done.stderr)
    run("adapter", "import", peft, "-m", other, "-o", folder / "yes.gguf", "--any-base")
    (peft / "adapter_model.safetensors").write_bytes(head.replace(fingerprint(MODEL).encode(), b"x" * 64))
    check("64 hex digits" in run("adapter", "show", peft, code=3).stderr, "a fingerprint that is none")


def check_joined(adapter, other, folder):
    """Without a model: one base, several, none."""
    theirs, both = folder / "theirs.gguf", folder / "both.gguf"
    run("adapter", "import", adapter, "-m", other, "-o", theirs, "--any-base")
    run("adapter", "merge", "--lora", adapter, "--lora", f"{adapter}=0.5", "-o", both)
    check(base_of(both) == base_of(adapter), base_of(both))
    done = run("adapter", "merge", "--lora", adapter, "--lora", theirs, "-o", folder / "mixed.gguf", code=3)
    check(f"trained on '{OTHER_NAME}'" in done.stderr and f"not on '{NAME}'" in done.stderr, done.stderr)
    run("adapter", "merge", "--lora", adapter, "--lora", theirs, "-o", folder / "mixed.gguf", "--any-base")
    check(base_of(folder / "mixed.gguf") == {"name": None, "fingerprint": None}, "several bases")
    check("base          none is named" in run("adapter", "show", folder / "mixed.gguf").stdout, "show of none")
    return folder / "mixed.gguf"


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    other = write_other(folder / "other.gguf")
    check(fingerprint(other) != fingerprint(MODEL), "the other model is the same one")
    adapter, few = folder / "mine.gguf", folder / "few.jsonl"
    few.write_text("".join((BASE / "train.jsonl").read_text().splitlines(True)[:20]))
    run("train", "-m", MODEL, "--data", few, "--out", adapter, "--steps", "1", "--batch", "64", "--rank", "2", "--new-tokens", "0")
    check(base_of(adapter) == {"name": NAME, "fingerprint": fingerprint(MODEL)}, base_of(adapter))
    check(f"base          {NAME}, fingerprint {fingerprint(MODEL)}\n" in run("adapter", "show", adapter).stdout, "show")
    small = folder / "small.gguf"
    run("quantize", MODEL, small, "Q4_0")
    check(fingerprint(small) == fingerprint(MODEL), "Q4_0 is another base")
    check_taken(small, adapter, folder)
    check_refused(adapter, other, folder)
    check_taken(other, adapter, folder, "--any-base")
    check_rebound(adapter, other, folder)
    check_peft(adapter, other, folder)
    nameless = check_joined(adapter, other, folder)
    check_taken(other, nameless, folder)
print("9 commands ask what an adapter was trained on")

#!/usr/bin/env python3
"""A model whose vocabulary merges characters: the base model under gemma4's rules, made here, goes every way that others go.

usage: characters_test.py SOURCE_DIR MESHMIND FASTER_MESHMIND

Bytes keep their ids and merges theirs, in characters with U+2581 for a space, so that a plain text has the ids that it had, and
the model says what it said.
"""
import json, pathlib, struct, subprocess, sys, tempfile

from live import Findings, program
from split_gguf import ALIGNMENT, ARRAY, I32, STRING, Reader, text

SOURCE, MESHMIND, FASTER = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), program(sys.argv[2:])
BASE = SOURCE / "scenarios" / "base" / "openmeshmind-tiny-F16.gguf"
SPACE, BOS, LAST = "\u2581", 2043, 2042  # the last merge makes room for <0x20>: the byte is the space, which tokens are made from
BYTE = 6
shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
LETTERS = {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in shown)}
found = Findings()
folder = tempfile.TemporaryDirectory(prefix="omm-characters-")
work = pathlib.Path(folder.name)


def characters(letters):
    """The text that byte-level letters spell, or None where its characters are not whole."""
    try:
        return bytes(LETTERS[c] for c in letters).decode().replace(" ", SPACE)
    except (UnicodeDecodeError, KeyError):
        return None


def take_string(r):
    size = r.take("Q")
    r.at += size
    return r.data[r.at - size:r.at].decode()


def strings(r):
    of, count = r.take("I"), r.take("Q")
    assert of == STRING
    return [take_string(r) for _ in range(count)]


def array(values):
    return struct.pack("<IIQ", ARRAY, STRING, len(values)) + b"".join(map(text, values))


def revocabulary(path, model="gemma4", pre=None):
    data = BASE.read_bytes()
    r = Reader(data)
    r.at = 8
    tensors, count = r.take("Q"), r.take("Q")
    keys = []
    for _ in range(count):
        at = r.at
        name = take_string(r)
        kind = r.take("I")
        begin = r.at
        r.skip_value(kind)
        value = Reader(data)
        value.at = begin
        if name == "tokenizer.ggml.tokens":
            tokens = [f"<0x{i:02X}>" if i < 256 else t if i >= BOS else characters(t) or f"<unused{i}>" for i, t in enumerate(strings(value))]
            tokens[ord(" ")], tokens[LAST] = SPACE, tokens[ord(" ")]
            keys.append(text(name) + array(tokens))
        elif name == "tokenizer.ggml.token_type":
            types = [BYTE] * 256 + list(struct.unpack_from("<2048i", data, begin + 12))[256:]
            types[ord(" ")], types[LAST] = types[LAST], BYTE
            keys.append(text(name) + struct.pack("<IIQ2048i", ARRAY, I32, 2048, *types))
        elif name == "tokenizer.ggml.merges":
            pairs = [[characters(side) for side in line.split(" ")] for line in strings(value)]
            keys.append(text(name) + array([" ".join(pair) for pair in pairs[:-1] if None not in pair]))
        elif name == "tokenizer.ggml.model":
            keys.append(text(name) + struct.pack("<I", STRING) + text(model))
        elif name == "tokenizer.ggml.pre":
            keys += [text(name) + struct.pack("<I", STRING) + text(pre)] if pre else []
        else:
            keys.append(data[at:r.at])
    heads = r.at
    for _ in range(tensors):
        r.skip_string()
        dims = r.take("I")
        r.at += 8 * dims + 4 + 8  # type, offset
    head = b"GGUF" + struct.pack("<IQQ", 3, tensors, len(keys)) + b"".join(keys) + data[heads:r.at]
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + data[r.at + -r.at % ALIGNMENT:])
    return path


def run(*args, code=0, meshmind=FASTER, **more):
    done = subprocess.run([meshmind, *map(str, args)], capture_output=True, text=True, timeout=600, **more)
    if done.returncode != code:
        found.check(False, f"{args}: exit {done.returncode} instead of {code}: {done.stderr[:400]}")
    return done


def ids(model, text, *flags):
    return [int(i) for i in run("tokenize", "-m", model, "--text", text, *flags, meshmind=MESHMIND).stdout.split()]


# Ids.
gemma, sarvam = revocabulary(work / "gemma.gguf"), revocabulary(work / "sarvam.gguf", "gpt2", "sarvam-moe")
for plain in ("Once upon a time", "The answer is 42.", "What is the weather in Vilnius?", "a", " "):
    found.check(ids(gemma, plain) == ids(BASE, plain) == ids(sarvam, plain), f"{plain!r}: {ids(gemma, plain)} and {ids(BASE, plain)}")
found.check(ids(gemma, "\u20ac\n") == [0xe2, 0x82, 0xac, ids(BASE, "\n")[0]], f"bytes: {ids(gemma, chr(0x20ac))}")
found.check(ids(gemma, "a", "--bos") == [BOS, ord("a")] and ids(sarvam, "a", "--bos") == [ord("a")], "BOS is gemma4's, whatever the file says")

# What is said of it.
shown = run("inspect", gemma, meshmind=MESHMIND)
found.check("gemma4" in shown.stdout and "chat template: chatml" in shown.stdout and "assumed" not in shown.stdout, shown.stdout[-600:])
noted = run("tokenize", "-m", gemma, "--text", "a", meshmind=MESHMIND).stderr
found.check(noted == "", f"warns: {noted}")

# Generation: without BOS, which the base model has not, the text is the same.
texts = [run("generate", "-m", model, "--seed", 7, "-n", 40, "The weather in").stdout for model in (BASE, sarvam)]
found.check(texts[0] == texts[1] and len(texts[0]) > 40, f"{texts}")
texts = [run("generate", "-m", gemma, "-n", 24, "--chat", "Say \u20ac and 42.").stdout]
found.check(SPACE not in texts[0] and "<0x" not in texts[0] and len(texts[0]) > 1, f"{texts}")
(work / "schema.json").write_text(json.dumps({"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "n": {"type": "integer"}},
                                              "required": ["city", "n"], "additionalProperties": False}))
text_of = run("generate", "-m", gemma, "-n", 120, "--seed", 3, "--chat", "--json-schema", work / "schema.json", "Where?").stdout
try:
    found.check(set(json.loads(text_of)) == {"city", "n"}, text_of)
except json.JSONDecodeError:
    found.check(False, f"no JSON: {text_of}")

# Training: plain lessons have the ids that they had, so each step has the loss that it had.
lessons = [{"client": "a", "messages": [{"role": "user", "content": f"What is {i} and {i}?"}, {"role": "assistant", "content": f"It is {2 * i}."}]}
           for i in range(8)]
(work / "train.jsonl").write_text("\n".join(map(json.dumps, lessons)) + "\n")
losses = []
for model in (BASE, sarvam, gemma):
    out = run("train", "-m", model, "--data", work / "train.jsonl", "--out", work / f"{model.stem}.lora.gguf", "--steps", 3, "--json").stdout
    losses.append([e["loss"] for e in map(json.loads, out.splitlines()) if e.get("event") == "step"])
found.check(len(losses[0]) == 3 and losses[0] == losses[1] and len(losses[2]) == 3, f"losses {losses}")
run("generate", "-m", gemma, "--lora", work / "gemma.lora.gguf", "-n", 8, "--chat", "What is 3 and 3?")

# What is broken is named.
found.check("known are: gpt2, llama, gemma4, whitespace" in run("tokenize", "-m", revocabulary(work / "bert.gguf", "bert"), "--text", "a", code=3).stderr, "model")
err = run("tokenize", "-m", revocabulary(work / "none.gguf", "gpt2", "gemma5"), "--text", "a", code=3).stderr
found.check("tokenizer.ggml.pre 'gemma5' is not known" in err and "gemma4 granite-embed-multi-311m sarvam-moe whitespace" in err, err)

sys.exit(found.code)

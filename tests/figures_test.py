#!/usr/bin/env python3
"""Figures that commands say of files, against what is counted here: the errors of `quantize`, what `inspect` shows of keys of every
kind, the counts of `data check` and `synth`, what `adapter merge` changes and loses, and the plan of `train --dry-run`, in words as in JSON.

usage: figures_test.py SOURCE_DIR MESHMIND
"""
import json, math, pathlib, re, struct, subprocess, sys, tempfile

from live import check
from split_gguf import text

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
BASE = SOURCE / "scenarios" / "base"
MODEL = BASE / "openmeshmind-tiny-F16.gguf"
STRING, ARRAY = 8, 9
FORMS = {"u8": (0, "B"), "i8": (1, "b"), "u16": (2, "H"), "i16": (3, "h"), "u32": (4, "I"), "i32": (5, "i"), "f32": (6, "f"), "bool": (7, "?"),
         "u64": (10, "Q"), "i64": (11, "q"), "f64": (12, "d")}


def run(*args, code=0):
    done = subprocess.run([MESHMIND, *map(str, args)], capture_output=True, text=True, timeout=600)
    check(done.returncode == code, f"{args}: exit {done.returncode}, not {code}: {done.stdout[-300:]}{done.stderr[-300:]}")
    return done


def told(*args, code=0):
    return json.loads(run(*args, code=code).stdout)


def write(path, keys, tensors=()):
    """keys: encoded; tensors: (name, dims, values), all F32."""
    head, body = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys), b""
    for name, dims, values in tensors:
        head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, len(body))
        body += struct.pack(f"<{len(values)}f", *values)
        body += bytes(-len(body) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + body)
    return path


def word(key, value):
    return text(key) + struct.pack("<I", STRING) + text(value)


def values_of(path):
    """Of each tensor, all F32."""
    shown, data = told("inspect", path, "--json"), path.read_bytes()
    return {t["name"]: struct.unpack_from(f"<{math.prod(t['dims'])}f", data, shown["data_offset"] + t["offset"]) for t in shown["tensors"]}


def rms(values):
    return math.sqrt(math.fsum(x * x for x in values) / len(values))


def near(a, b, share=1e-6):
    return abs(a - b) <= share * max(abs(a), abs(b))


def quantised(folder):
    """Two matrices of one type, another of columns that its blocks do not divide, and a vector."""
    wave = [math.sin(i * i * 0.001) * (1 + i % 7) for i in range(5 * 256)]
    tensors = [("blk.0.ffn_down.weight", (256, 3), wave[:768]), ("blk.1.ffn_up.weight", (256, 2), [x / 50 for x in wave[768:]]),
               ("blk.0.attn_q.weight", (64, 2), wave[:128]), ("output_norm.weight", (5,), wave[:5])]
    model, small, back = (folder / name for name in ("f32.gguf", "small.gguf", "back.gguf"))
    write(model, [word("general.architecture", "other")], tensors)
    report, said = told("quantize", model, small, "Q4_K", "--json"), run("quantize", model, small, "Q4_K").stdout
    run("quantize", small, back, "F32")
    was, now, one = values_of(model), values_of(back), {t["name"]: t for t in report["tensors"]}
    types = {name: (t["from"], t["to"], t["fallback"], t["values"], t["bytes"]) for name, t in one.items()}
    check(types == {"blk.0.ffn_down.weight": ("F32", "Q4_K", False, 768, 3 * 144), "blk.1.ffn_up.weight": ("F32", "Q4_K", False, 512, 2 * 144),
                    "blk.0.attn_q.weight": ("F32", "Q8_0", True, 128, 4 * 34), "output_norm.weight": ("F32", "F32", False, 5, 20)}, f"types: {types}")
    for name, t in one.items():
        errors = [a - b for a, b in zip(was[name], now[name])]
        wanted = rms(was[name]), rms(errors), max(map(abs, errors))
        check(all(near(t[key], x) for key, x in zip(("rms", "rms_error", "max_error"), wanted)), f"{name}: {t}, by hand {wanted}")
    check(report["bytes"] == small.stat().st_size, f"bytes: {report}")
    rows = re.findall(r"(?m)^(F32) +(\w+) +(\d+) +(\d+) +(\d+) +(\S+) +(\S+) % +(\S+)$", said)
    check([row[1] for row in rows] == ["Q4_K", "Q8_0", "F32"], f"rows: {said}")
    for _, to, count, values, size, error, share, most in rows:
        of = [t for t in one.values() if t["to"] == to]
        all_values = sum(t["values"] for t in of)
        check((int(count), int(values), int(size)) == (len(of), all_values, sum(t["bytes"] for t in of)), f"{to}: {said}")
        errors, squares = (math.sqrt(sum(t[key] ** 2 * t["values"] for t in of) / all_values) for key in ("rms_error", "rms"))
        check(near(float(error), errors, 1e-3) and near(float(share), 100 * errors / squares, 1e-3) and near(float(most), max(t["max_error"] for t in of), 1e-3),
              f"{to}: {errors}, {squares}: {said}")
    check("blk.0.attn_q.weight is Q8_0: its columns do not divide into blocks of Q4_K\n" in said, said)
    check(f"{small}: {report['bytes']} bytes, {8 * report['bytes'] / (768 + 512 + 128 + 5):.3f} bits a value\n" in said, said)


def inspected(folder):
    """A key of each kind at the ends of its range; an array longer than what is shown; text that is none."""
    values = {"u8": 200, "i8": -5, "u16": 60000, "i16": -300, "u32": 4000000000, "i32": -70000, "f32": 1.5, "bool": True, "u64": 2 ** 63 - 1, "i64": -2 ** 63, "f64": 0.1}
    keys = [text(kind) + struct.pack("<I" + form, number, values[kind]) for kind, (number, form) in FORMS.items()]
    keys += [text("large") + struct.pack("<IQ", 10, 2 ** 63 + 1), text("nan") + struct.pack("<If", 6, math.nan), text("bytes") + struct.pack("<IQ", STRING, 3) + b"a\xff\x1b",
             text("short") + struct.pack("<IIQ10h", ARRAY, 3, 10, *range(-5, 5)), text("words") + struct.pack("<IIQ", ARRAY, STRING, 2) + text("one") + text("two")]
    file = write(folder / "kinds.gguf", keys, [("x", (3, 2, 2), [0.0] * 12)])
    shown, whole = ({k["key"]: k for k in told("inspect", file, "--json", *more)["keys"]} for more in ([], ["--all"]))
    check({kind: (shown[kind]["kind"], shown[kind]["value"]) for kind in values} == {kind: (kind, value) for kind, value in values.items()}, f"{shown}")
    check((shown["large"]["value"], shown["nan"]["value"], shown["bytes"]["value"]) == (str(2 ** 63 + 1), None, "hex:61ff1b"), f"{shown}")
    check((shown["short"]["element"], shown["short"]["count"], shown["short"]["value"]) == ("i16", 10, list(range(-5, 3))), f"{shown['short']}")
    check(whole["short"]["value"] == list(range(-5, 5)) and shown["words"]["value"] == ["one", "two"], f"{whole}")
    check(told("inspect", file, "--json")["parameters"] == 12, "parameters")
    said = run("inspect", file).stdout
    for line in (r"u64 +u64 +9223372036854775807", r'bytes +string +"hex:61ff1b"', r"short +i16\[10\] +\[-5, -4, -3, -2, -1, 0, 1, 2\]", r"x +F32 +3 x 2 x 2 +48 bytes at 0"):
        check(re.search(rf"(?m)^  {line}$", said), f"no '{line}' in {said}")


def counted(folder):
    """Clients, skills, doubles, and what two files share: the first of equal ones is named."""
    def line(client, skill, ask):
        return json.dumps({"client": client, "skill": skill, "messages": [{"role": "user", "content": ask}, {"role": "assistant", "content": "Yes."}]}) + "\n"
    one, other, none = (folder / name for name in ("one.jsonl", "other.jsonl", "none.jsonl"))
    one.write_text(line("b", "x", "A?") + line("a", "y", "B?") + line("a", "x", "C?") + line("a", "x", "B?"))
    other.write_text(line("c", "z", "D?") + line("c", "z", "B?"))
    none.write_text("")
    report = told("data", "check", one, "-m", MODEL, "--json")
    (file,) = report["files"]
    check(report["passed"] and (file["clients"], file["skills"], file["duplicates"], file["examples"], file["calls"]) == ({"a": 3, "b": 1}, {"x": 3, "y": 1}, 1, 4, 0), f"{report}")
    said = run("data", "check", one, "-m", MODEL).stdout
    for words in (r"clients +2  a 3, b 1\n", r"skills +2  x 3, y 1\n", r"duplicates +1  line 4 is line 2 again\n", rf"learned +{file['learned']}  {100 * file['learned'] / file['tokens']:.1f} % of"):
        check(re.search(words, said), f"no '{words}' in {said}")
    report = told("data", "check", one, other, "-m", MODEL, "--json", code=1)  # nothing else is wrong with either
    check(not report["passed"] and (report["shared"], report["shared_lines"]) == (1, [[2, 2]]), f"{report}")
    check("data: FAIL" in run("data", "check", none, "-m", MODEL, code=1).stdout, "a file without an example")


def made(folder):
    """What `synth` says is what the file has."""
    file = folder / "synth.gguf"
    report = told("synth", "tiny-llama", file, "--json")
    shown = told("inspect", file, "--json")
    wanted = {"bytes": file.stat().st_size, "fallbacks": 0, "parameters": shown["parameters"], "schema_version": 1, "seed": 1, "shape": "tiny-llama",
              "tensors": len(shown["tensors"]), "type": "Q8_0"}
    check(report == wanted, f"{report}, in the file: {wanted}")
    said = run("synth", "tiny-llama", file).stdout
    check(said == "{}: {parameters} parameters in {tensors} tensors, {bytes} bytes, Q8_0, seed 1\n".format(file, **wanted), said)


def merged(folder):
    """What an adapter changes and what storing it loses, of a matrix and in all; a type of few bits loses more than there was."""
    (folder / "t.jsonl").write_text("".join((BASE / "train.jsonl").read_text().splitlines(True)[:8]))
    adapter, out, f32, own = (folder / name for name in ("a.gguf", "merged.gguf", "merged-f32.gguf", "own.gguf"))
    run("train", "-m", MODEL, "-d", folder / "t.jsonl", "--steps", 2, "--batch", 64, "--rank", 1, "--alpha", 2, "--targets", "k,v", "--warmup", 0, "--lr", 0.003, "-o", adapter)
    run("quantize", MODEL, own, "F32")
    was, parts, name = values_of(own), values_of(adapter), "blk.0.attn_k.weight"
    a, b = parts[f"{name}.lora_a"], parts[f"{name}.lora_b"]
    delta = [0.5 * 2 * x * y for y in b for x in a]  # times the scale that is asked for and that of alpha and rank
    for of_type in [], ["--type", "Q4_0"]:
        command = ["adapter", "merge", "--lora", f"{adapter}=0.5", "-m", MODEL, *of_type, "-o", out]
        done, tensors = run(*command), told(*command, "--json")["tensors"]
        adapted = [t for t in tensors if t["adapted"]]
        check(sorted(t["name"] for t in adapted) == sorted({key.rpartition(".")[0] for key in parts}) and len(adapted) == 12, f"{adapted}")
        run("quantize", out, f32, "F32")
        errors = [now - w - d for now, w, d in zip(values_of(f32)[name], was[name], delta)]
        (one,) = [t for t in tensors if t["name"] == name]
        wanted = rms(delta), rms(errors), max(map(abs, errors))
        check(all(near(one[key], x, 1e-3) for key, x in zip(("change", "error", "error_max"), wanted)), f"{one}, by hand {wanted}")
        row = re.search(rf"(?m)^{re.escape(name)} +F16 +(\w+) +(\S+) +(\S+) +(\S+)$", done.stdout).groups()
        check(row[0] == one["to"] and all(near(float(x), w, 1e-3) for x, w in zip(row[1:], wanted)), f"{row}, by hand {wanted}")
        lost = sum(t["error"] >= t["change"] for t in adapted)
        check((lost > 0) == bool(of_type), f"{lost} lost: {adapted}")
        check((f"in {lost} of 12 layers storing rounds away more than the adapter changes" in done.stderr) == (lost > 0), f"{lost}: {done.stderr}")
        check(f"{out}: 12 tensors adapted (" in done.stdout, done.stdout)


def planned(folder):
    """The table in words has the parts of the JSON, which make up its total."""
    (folder / "t.jsonl").write_text("".join((BASE / "train.jsonl").read_text().splitlines(True)[:8]))
    train = ["train", "-m", MODEL, "-d", folder / "t.jsonl", "--steps", 1, "--batch", 300, "-t", 1, "--eval", folder / "t.jsonl", "--checkpoint", folder / "c", "--optimizer", "adafactor", "--dry-run"]
    memory = told(*train, "--json")["memory"]
    parts = dict(re.findall(r"(?m)^  ([a-z, -]+?) +([\d.]+) MB", run(*train).stdout))
    for name in "weights", "adapter", "optimizer", "activations", "logits", "work", "reader", "checkpoint", "held-out":
        check(parts.get(name) == f"{memory[name.replace('-', '_') + '_bytes'] / 1e6:.1f}", f"{name}: {parts}, {memory}")
    total, available = float(parts.pop("total")), float(parts.pop("available"))
    check(abs(sum(map(float, parts.values())) - total) < 0.05 * (len(parts) + 1) and available > total, f"{parts}: {total} of {available}")


with tempfile.TemporaryDirectory(prefix="omm-figures-") as name:
    folder = pathlib.Path(name)
    quantised(folder)
    inspected(folder)
    counted(folder)
    made(folder)
    merged(folder)
    planned(folder)
    print("figures: ok")

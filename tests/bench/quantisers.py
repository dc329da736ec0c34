#!/usr/bin/env python3
"""`meshmind quantize` against llama.cpp's quantisers, without importance matrix, over the same rows.

usage: quantisers.py MESHMIND [--models FILE ...] [--ggml LIBRARY] [--types Q4_K,...] [--rows N] [--seed N]

Needs numpy and gguf; the reference is libggml-base of LIBRARY, or of the installed llama_cpp.  Rows of 2048 values
each: distributions from a fixed seed, and the first rows that the models' matrices fill.  Types whose rounding
the format prescribes must have equal bytes; the others no larger sum of squared errors in any set.  "Weighted" errors
are by what llama.cpp's search minimises: x x; |x| + rms in Q4_K and Q5_K; |x| in Q2_K.  Exit code 1 where ours is worse.
"""
import sys
sys.path.pop(0)  # the tokenize.py beside this file is not the one that numpy means
import argparse, ctypes, os, pathlib, subprocess, tempfile

import numpy as np
import gguf

EQUAL = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "TQ1_0", "TQ2_0"]
FITTED = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"]
COLS = 2048

parser = argparse.ArgumentParser()
parser.add_argument("meshmind", type=pathlib.Path)
parser.add_argument("--models", nargs="*", default=[], type=pathlib.Path)
parser.add_argument("--ggml")
parser.add_argument("--types", default=",".join(EQUAL + FITTED))
parser.add_argument("--rows", type=int, default=64)
parser.add_argument("--seed", type=int, default=4)
args = parser.parse_args()


def library():
    if args.ggml:
        return args.ggml
    import llama_cpp
    folder = os.environ.get("LLAMA_CPP_LIB_PATH") or pathlib.Path(llama_cpp.__file__).parent / "lib"
    return next(pathlib.Path(folder).glob("libggml-base.*"))


ggml = ctypes.CDLL(str(library()))
ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
                                     ctypes.c_int64, ctypes.c_void_p]


def made_rows(n):
    """Sets of rows from one seed."""
    rng = np.random.default_rng(args.seed)
    shape = (n, COLS)
    outliers = rng.standard_normal(shape)
    outliers[rng.random(shape) < 0.002] *= 20
    constants = np.repeat(rng.standard_normal((n, COLS // 32)), 32, axis=1)  # 32 equal values, or all of a row
    constants[::2] = constants[::2, :1]
    edges = np.zeros(shape)
    edges[::2, ::97] = rng.standard_normal(edges[::2, ::97].shape)
    edges[1::4] = rng.integers(-8, 8, edges[1::4].shape) * 12.5  # times 0.02 a quarter: ties
    sets = {"gaussian": rng.standard_normal(shape), "student t, 3": rng.standard_t(3, shape),
            "uniform": rng.uniform(-1, 1, shape), "laplace": rng.laplace(size=shape),
            "shifted": rng.standard_normal(shape) + 1.5, "shifted down": rng.standard_normal(shape) - 1.5,
            "outliers": outliers, "constants": constants, "zeros, ties": edges}
    made = {name: (0.02 * rows).astype("<f4") for name, rows in sets.items()}
    made["least halves"] = (2.0 ** -24 * rng.standard_normal(shape)).astype("<f4")  # f16 has nothing below
    return made


def model_rows(path, n):
    parts = [gguf.dequantize(t.data, t.tensor_type).ravel() for t in gguf.GGUFReader(path).tensors if len(t.shape) == 2]
    flat = np.concatenate(parts).astype("<f4")
    n = min(n, flat.size // COLS)
    return flat[:n * COLS].reshape(n, COLS)


def write_model(path, sets):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(len(sets))
    for i, rows in enumerate(sets.values()):
        writer.add_tensor(f"blk.{i}.ffn_up.weight", rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def ours(folder, kind, count):
    out = folder / "out.gguf"
    done = subprocess.run([args.meshmind, "quantize", folder / "in.gguf", out, kind, "--pure"], capture_output=True,
                          text=True)
    if done.returncode != 0:
        sys.exit(f"meshmind quantize {kind}: exit {done.returncode}: {done.stderr}")
    tensors = {t.name: t for t in gguf.GGUFReader(out).tensors}
    found = [tensors[f"blk.{i}.ffn_up.weight"] for i in range(count)]
    wrong = [t.tensor_type.name for t in found if t.tensor_type.name != kind]
    if wrong:
        sys.exit(f"meshmind quantize {kind} wrote {wrong[0]}")
    return [np.array(t.data).view(np.uint8).reshape(t.data.shape[0], -1) for t in found]


def theirs(kind, rows):
    type_id = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[type_id]
    out = np.zeros((len(rows), COLS // block * size), np.uint8)
    done = ggml.ggml_quantize_chunk(int(type_id), rows.ctypes.data, out.ctypes.data, 0, len(rows), COLS, None)
    assert done == out.size, (kind, done, out.size)
    return out


def squares(kind, rows, data):
    """Sums of the squared errors: plain, weighted."""
    x = rows.astype(np.float64)
    type_id = gguf.GGMLQuantizationType[kind]
    error = (gguf.dequantize(data, type_id).reshape(x.shape).astype(np.float64) - x) ** 2
    group = np.abs(x).reshape(len(x), -1, 32)
    weight = {"Q2_K": group, "Q4_K": group + np.sqrt((group ** 2).mean(-1, keepdims=True)),
              "Q5_K": group + np.sqrt((group ** 2).mean(-1, keepdims=True))}.get(kind, group ** 2)
    return error.sum(), (error * weight.reshape(x.shape)).sum()


def ratio(a, b):
    return 1.0 if a == b else np.sqrt(a / b) if b > 0 else np.inf


def compare(kind, sets, have):
    """A line of the table; True where ours is no worse."""
    want = [theirs(kind, rows) for rows in sets.values()]
    unequal = [name for name, a, b in zip(sets, have, want) if not np.array_equal(a, b)]
    if kind in EQUAL:
        print(f"{kind:8}{'every byte equal' if not unequal else 'OTHER BYTES: ' + ', '.join(unequal)}", flush=True)
        return not unequal
    pairs = [[squares(kind, rows, data) for data in both] for rows, *both in zip(sets.values(), have, want)]
    plain = np.array([ratio(a[0], b[0]) for a, b in pairs])
    weighted = np.array([ratio(a[1], b[1]) for a, b in pairs])
    names = list(sets)
    print(f"{kind:8}{plain.mean():7.4f} {plain.max():7.4f}  {names[plain.argmax()]:22}"
          f"{weighted.mean():7.4f} {weighted.max():7.4f}  {names[weighted.argmax()]:22}", flush=True)
    for name, r, (a, b) in zip(names, plain, pairs):
        if r > 1:
            print(f"        WORSE on {name}: {a[0]:.9g} against {b[0]:.9g}")
    return not (plain > 1).any()


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    all_sets = made_rows(args.rows)
    for model in args.models:
        all_sets[model.stem] = model_rows(model, 4 * args.rows)
    write_model(folder / "in.gguf", all_sets)
    print("type    root mean square error, ours to theirs: plain (mean, worst, where), weighted (the same)")
    good = [compare(kind, all_sets, ours(folder, kind, len(all_sets))) for kind in args.types.split(",")]
sys.exit(0 if all(good) else 1)

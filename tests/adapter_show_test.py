#!/usr/bin/env python3
"""What `adapter show` says of adapters whose values are known: ranks, alpha, the scale of each pair, norms worked out by hand, sizes,
the digest of the file; as text and as JSON; of GGUF files and PEFT folders, with one alpha for all, one for each, and rsLoRA.

usage: adapter_show_test.py SOURCE_DIR MESHMIND
"""
import hashlib, json, math, pathlib, re, struct, subprocess, sys, tempfile

from live import check
from split_gguf import text

MESHMIND = sys.argv[2]
D_IN, D_OUT, DOWN_IN = 1200, 1000, 1400  # of q and v; of down, whose B has the rows of D_OUT too
MODULES = {"q": ("attn_q", "self_attn.q_proj"), "v": ("attn_v", "self_attn.v_proj"), "down": ("ffn_down", "mlp.down_proj")}
# A, B, and of them: norm of A, of B, of B A, and the largest factor by which B A makes a vector longer.
LINE = ([[1, 2, 2]], [[2], [1], [2]], (3, 3, 9, 9))
DIAGONAL = ([[3, 0], [0, 4]], [[1, 0], [0, 2]], (5, math.sqrt(5), math.sqrt(73), 8))
SHEAR = ([[1, 0], [0, 1]], [[1, 1], [0, 1]], (math.sqrt(2), math.sqrt(3), math.sqrt(3), (1 + math.sqrt(5)) / 2))
FOUR = ([[1, 0, 0, 0], [0, 2, 0, 0], [0, 0, -3, 0], [0, 0, 0, 4]], [[0.5 * (i == j) for j in range(4)] for i in range(4)],
        (math.sqrt(30), 1, math.sqrt(7.5), 2))
NORMS = ("norm_a", "norm_b", "norm_product")


def floats(rows, height, width):
    """The rows in a matrix of that size, the rest 0."""
    wide = [list(row) + [0] * (width - len(row)) for row in rows] + [[0] * width] * (height - len(rows))
    return struct.pack(f"<{height * width}f", *(x for row in wide for x in row))


def tensors(pairs):
    """(layer, target), "A" or "B", rows, columns, bytes."""
    for (layer, target), ((a, b, _), _) in pairs.items():
        width = DOWN_IN if target == "down" else D_IN
        yield layer, target, "A", len(a), width, floats(a, len(a), width)
        yield layer, target, "B", D_OUT, len(a), floats(b, D_OUT, len(a))


def write_gguf(path, pairs, alpha):
    words = {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora"}
    head = b"GGUF" + struct.pack("<IQQ", 3, 2 * len(pairs), len(words) + 1)
    head += b"".join(text(key) + struct.pack("<I", 8) + text(value) for key, value in words.items())
    head += text("adapter.lora.alpha") + struct.pack("<If", 6, alpha)
    body = b""
    for layer, target, part, rows, columns, data in tensors(pairs):
        head += text(f"blk.{layer}.{MODULES[target][0]}.weight.lora_{part.lower()}") + struct.pack("<IQQIQ", 2, columns, rows, 0, len(body))
        body += data + bytes(-len(data) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + body)
    return path


def write_peft(folder, pairs, config):
    folder.mkdir()
    head, body = {}, b""
    for layer, target, part, rows, columns, data in tensors(pairs):
        head[f"base_model.model.model.layers.{layer}.{MODULES[target][1]}.lora_{part}.weight"] = {
            "dtype": "F32", "shape": [rows, columns], "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    names = json.dumps(head).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(names)) + names + body)
    modules = sorted({MODULES[target][1].split(".")[1] for _, target in pairs})
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "target_modules": modules, "bias": "none", **config}))
    return folder / "adapter_model.safetensors"


def show(path, *options):
    done = subprocess.run([MESHMIND, "adapter", "show", path, *options], capture_output=True, text=True)
    check(done.returncode == 0 and not done.stderr, f"show {path.name}: exit {done.returncode}: {done.stderr}")
    return done.stdout


def close(a, b):
    return abs(a - b) <= 1e-6 * abs(b)


def by_hand(pairs):
    """What is expected of each pair, and of each target over all layers."""
    each, targets = [], {}
    for (layer, target), ((a, _, norms), scale) in pairs.items():
        width = DOWN_IN if target == "down" else D_IN
        row = {"layer": layer, "target": target, "rank": len(a), "d_in": width, "d_out": D_OUT, "scale": scale, "trained_scale": scale, "norm_a": norms[0],
               "norm_b": norms[1], "norm_product": abs(scale) * norms[2], "spectral_product": abs(scale) * norms[3]}
        each.append(row)
        targets.setdefault(target, []).append(row)
    sums = {}
    for target, rows in targets.items():
        ranks = [row["rank"] for row in rows]
        sums[target] = {"tensors": 2 * len(rows), "values": sum(r["rank"] * (r["d_in"] + r["d_out"]) for r in rows), "rank_min": min(ranks),
                        "rank_max": max(ranks), "spectral_product_max": max(r["spectral_product"] for r in rows),
                        **{norm: math.sqrt(sum(r[norm] ** 2 for r in rows)) for norm in NORMS}}
    return each, sums


def same(said, wanted, where):
    check(set(said) == set(wanted), f"{where}: {sorted(said)}, not {sorted(wanted)}")
    for key, value in wanted.items():
        right = close(said[key], value) if isinstance(value, float) else said[key] == value
        check(right, f"{where}: {key} is {said[key]}, not {value}")


def check_json(case, said, head, pairs):
    each, targets = by_hand(pairs)
    check(len(said["pairs"]) == len(each) and set(said["targets"]) == set(targets), f"{case}: {said}")
    for row, wanted in zip(said["pairs"], each):
        same(row, wanted, f"{case}, layer {row['layer']}, {row['target']}")
    for target, wanted in targets.items():
        same(said["targets"][target], wanted, f"{case}, {target}")
    rest = {key: value for key, value in said.items() if key not in ("pairs", "targets")}
    same(rest, {"schema_version": 1, "kind": "omm-adapter", "value_count": sum(t["values"] for t in targets.values()),
                "layers": 1 + max(layer for layer, _ in pairs), **head}, case)


def printed(*values):
    return [f"{value:.6g}" if isinstance(value, float) else str(value) for value in values]


def check_text(case, lines, said):
    """The same as the JSON, number by number."""
    facts = dict(re.split("  +", line, maxsplit=1) for line in lines[: lines.index("")])
    count = said["value_count"]
    ranks, scales = ({p[what] for p in said["pairs"]} for what in ("rank", "scale"))
    check(facts["rank"] == (f"{said['rank']}" if len(ranks) == 1 else f"up to {said['rank']}, differs"), f"{case}: {facts}")
    alpha = "differs" if said["alpha"] is None else f"{said['alpha']:g}"
    scale = f"scale {scales.pop():g}" if len(ranks) == 1 and alpha != "differs" else "see --tensors"
    check(facts["alpha"] == f"{alpha} ({scale})", f"{case}: {facts}")
    check(facts["values"] == f"{count} ({count * 4e-6:.2f} MB as f32)" and facts["BLAKE2b-256"] == said["digest"], f"{case}: {facts}")
    check(facts["format"] == {"gguf": "GGUF", "peft": "PEFT folder"}[said["format"]], f"{case}: {facts}")
    base = f"{said['base']['name']}, no fingerprint" if said["base"]["name"] else "none is named"  # adapter_base_test.py has one
    check(facts["base"] == base, f"{case}: {facts}")
    check(facts["architecture"] == f"{said['architecture'] or '(not said in the folder)'}, {said['layers']} layers", f"{case}: {facts}")
    table = [line.split() for line in lines[lines.index("") + 1 :]]
    between = table.index([])
    for target, *row in table[1:between]:
        t = said["targets"][target]
        rank = str(t["rank_max"]) if t["rank_min"] == t["rank_max"] else f"{t['rank_min']}-{t['rank_max']}"
        wanted = printed(t["tensors"], rank, t["values"], *(t[norm] for norm in NORMS), t["spectral_product_max"])
        check(row == wanted, f"{case}: {target} {row}, not {wanted}")
    check(between - 1 == len(said["targets"]) and len(table) == between + 2 + len(said["pairs"]), f"{case}: {table}")
    for (name, *row), p in zip(table[between + 2 :], said["pairs"]):
        wanted = printed(p["rank"], p["scale"], *(p[norm] for norm in NORMS), p["spectral_product"])
        check(name == f"blk.{p['layer']}.{MODULES[p['target']][0]}" and row == wanted, f"{case}: {name} {row}, not {wanted}")


def check_case(case, path, file, head, pairs):
    digest = hashlib.blake2b(file.read_bytes(), digest_size=32).hexdigest()
    said = json.loads(show(path, "--json"))
    check_json(case, said, {"digest": digest, **head}, pairs)
    whole = show(path, "--tensors")
    check_text(case, whole.splitlines(), said)
    check(whole.startswith(show(path)) and show(path).count("\n") == whole.splitlines().index("") + 2 + len(said["targets"]),
          f"{case}: without --tensors something else")


# The alpha (None: no one alpha gives the scales), whether it and one rank say all, the largest rank, the pairs with their scales.
GGUF = {
    "one rank": (16.0, True, 2, {(0, "q"): (DIAGONAL, 8.0), (1, "q"): (SHEAR, 8.0)}),
    "ranks differ": (6.0, False, 4, {(0, "q"): (DIAGONAL, 3.0), (0, "down"): (FOUR, 1.5), (1, "q"): (LINE, 6.0)}),
    "below zero": (-0.5, True, 2, {(0, "v"): (DIAGONAL, -0.25), (1, "v"): (SHEAR, -0.25)}),
    "no alpha": (0.0, False, 2, {(0, "q"): (DIAGONAL, 1.0), (1, "v"): (LINE, 1.0)}),
    "one rank, not everywhere": (5.0, False, 2, {(0, "q"): (DIAGONAL, 2.5), (1, "v"): (SHEAR, 2.5)}),
}
PEFT = {
    "folder, one rank": (3.0, True, 2, {(0, "v"): (DIAGONAL, 1.5)}, {"r": 2, "lora_alpha": 3, "base_model_name_or_path": "maker/model-1B"}),
    "folder, ranks differ": (7.0, False, 4, {(0, "q"): (LINE, 7.0), (0, "v"): (FOUR, 1.75)},
                             {"r": 4, "lora_alpha": 7, "rank_pattern": {"q_proj": 1}}),
    "folder, alphas differ": (None, False, 4, {(0, "q"): (DIAGONAL, 4.0), (0, "v"): (SHEAR, 1.5), (0, "down"): (FOUR, 2.0),
                                               (1, "q"): (SHEAR, 10.0), (1, "v"): (DIAGONAL, 1.5), (1, "down"): (FOUR, 2.0)},
                              {"r": 2, "lora_alpha": 8, "rank_pattern": {"down_proj": 4},
                               "alpha_pattern": {"v_proj": 3, "layers.1.self_attn.q_proj": 20}}),
    "folder, rsLoRA": (None, False, 4, {(0, "q"): (SHEAR, 6 / math.sqrt(2)), (0, "v"): (FOUR, 3.0)},
                       {"r": 4, "lora_alpha": 6, "use_rslora": True, "rank_pattern": {"q_proj": 2}}),
}

with tempfile.TemporaryDirectory(prefix="omm-show-") as name:
    folder = pathlib.Path(name)
    for case, (alpha, uniform, rank, pairs) in GGUF.items():
        path = write_gguf(folder / f"{case}.gguf", pairs, alpha)
        check_case(case, path, path, {"format": "gguf", "architecture": "llama", "alpha": alpha, "rank": rank, "uniform": uniform,
                                      "base": {"name": None, "fingerprint": None}}, pairs)
    for case, (alpha, uniform, rank, pairs, config) in PEFT.items():
        file = write_peft(folder / case, pairs, config)
        head = {"format": "peft", "architecture": None, "alpha": alpha, "rank": rank, "uniform": uniform,
                "base": {"name": config.get("base_model_name_or_path"), "fingerprint": None}}
        check_case(case, file.parent, file, head, pairs)
print(f"adapter show: {len(GGUF)} files and {len(PEFT)} folders as worked out by hand")

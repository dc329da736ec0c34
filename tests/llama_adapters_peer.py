#!/usr/bin/env python3
"""Adapters against llama.cpp: files that we wrote, loaded by it, and logits of all positions compared with ours.

Runs where llama-cpp-python and gguf are installed; peers_test.py starts it:
    python3 tests/llama_adapters_peer.py MESHMIND TESTDATA OUT_FOLDER
The models are the reference models of the test data; phi3 with a window as long as its context, since llama.cpp
leaves that model's window out.
"""
import ctypes, json, pathlib, struct, subprocess, sys

import gguf
import llama_cpp as llama
import numpy as np

MESHMIND, DATA, OUT = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
REFERENCE = DATA / "reference"
IDS = [int(i) for i in (REFERENCE / "ids.txt").read_text().replace(",", " ").split()]
CLOSE = 1e-5       # of the spread of the logits; measured maximum 2.1e-6
CLOSE_GELU = 2e-3  # llama.cpp's table of GELU is in f16; measured maximum 8.2e-4
CLOSE_HALF = 1e-3  # llama.cpp rounds what it multiplies by a matrix of 16 bits to 16 bits too; measured maximum 3.5e-4
CLOSE_EIGHT = 3e-3  # and by one of 8 bits to 8; measured maximum 8.5e-4
STORED = {"F16": 2e-3, "Q8_0": 0.07, "Q6_K": 0.2, "Q4_K": 0.45, "IQ4_XS": 0.55}  # random weights; measured: half
failures = []
quiet = llama.llama_log_callback(lambda level, text, data: None)
llama.llama_log_set(quiet, ctypes.c_void_p(0))
llama.llama_backend_init()


def theirs(model_path, *adapters):
    """Logits of llama.cpp: F32 cache, no fused attention, one thread; adapters are (path, scale)."""
    model_params = llama.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model_params.use_extra_bufts = False  # weights as the file has them: its AMX path has crashed with 128 columns
    model = llama.llama_model_load_from_file(str(model_path).encode(), model_params)
    if not model:
        raise SystemExit(f"llama.cpp does not load {model_path}")
    params = llama.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch, params.n_threads, params.n_threads_batch = 256, 64, 64, 1, 1
    params.type_k = params.type_v = llama.GGML_TYPE_F32
    params.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = llama.llama_init_from_model(model, params)
    loaded = [llama.llama_adapter_lora_init(model, str(path).encode()) for path, _ in adapters]
    if not all(loaded):
        raise SystemExit(f"llama.cpp does not load one of {adapters}")
    if loaded:
        handles = (llama.llama_adapter_lora_p_ctypes * len(loaded))(*loaded)
        scales = (ctypes.c_float * len(loaded))(*[scale for _, scale in adapters])
        assert llama.llama_set_adapters_lora(context, handles, len(loaded), scales) == 0
    batch = llama.llama_batch_init(len(IDS), 0, 1)
    batch.n_tokens = len(IDS)
    for i, token in enumerate(IDS):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = token, i, 1, 0, 1
    assert llama.llama_decode(context, batch) == 0
    width = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    logits = np.ctypeslib.as_array(llama.llama_get_logits(context), (len(IDS), width)).copy()
    llama.llama_batch_free(batch)
    llama.llama_free(context)
    llama.llama_model_free(model)
    return logits


def run(*args):
    done = subprocess.run([MESHMIND, *map(str, args)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"meshmind {' '.join(map(str, args))}: exit {done.returncode}: {done.stderr}")


def ours(model_path, *adapters):
    out = OUT / "logits.f32"
    loras = [a for path, scale in adapters for a in ("--lora", f"{path}={scale}")]
    run("logits", "-m", model_path, "--ids", ",".join(map(str, IDS)), *loras, "--out", out)
    return np.fromfile(out, "<f4").reshape(len(IDS), -1)


def compare(what, a, b, base, close=CLOSE):
    spread = float(b.max() - b.min())
    off, moved = float(np.abs(a - b).max()) / spread, float(np.abs(b - base).max()) / spread
    ok = off <= close and moved > max(2 * close, 1e-3)
    print(f"{'ok ' if ok else 'BAD'} {what}: off by {off:.2e} of the spread, the adapter moves {moved:.2e}", flush=True)
    if not ok:
        failures.append(what)


# ---- adapters made here -------------------------------------------------------------------------

MODULES = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
           "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
           "ffn_down": "mlp.down_proj"}


def shapes(model_path):
    """What each target of a layer is: (in, out), with phi3's fused tensors taken apart."""
    reader = gguf.GGUFReader(model_path)
    found = {t.name.split(".")[2]: [int(d) for d in t.shape] for t in reader.tensors if t.name.startswith("blk.0.")
             and len(t.shape) == 2}
    layers = 1 + max(int(t.name.split(".")[1]) for t in reader.tensors if t.name.startswith("blk."))
    if "attn_qkv" in found:
        width, rows = found.pop("attn_qkv")
        key = lambda name: int(reader.fields["phi3.attention." + name].contents())
        kv = key("head_count_kv") * key("key_length")
        found.update(attn_q=[width, rows - 2 * kv], attn_k=[width, kv], attn_v=[width, kv])
        found["ffn_gate"] = found["ffn_up"] = [width, found["ffn_up"][1] // 2]
    return {k: found[k] for k in MODULES}, layers


def pairs(model_path, ranks, seed, one_a=False):
    """A and B of every layer's targets in `ranks`; one_a: q, k, v have the same A, and so have gate and up."""
    rng = np.random.default_rng(seed)
    made = {}
    widths, layers = shapes(model_path)
    for layer in range(layers):
        for target, rank in ranks.items():
            width, rows = widths[target]
            a = rng.standard_normal((rank, width)).astype("<f4") * 0.1
            first = {"attn_k": "attn_q", "attn_v": "attn_q", "ffn_up": "ffn_gate"}.get(target)
            made[layer, target] = (made[layer, first][0] if one_a and first else a,
                                   rng.standard_normal((rows, rank)).astype("<f4") * 0.1)
    return made


def write_gguf(path, architecture, made, alpha):
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    for (layer, target), (a, b) in made.items():
        writer.add_tensor(f"blk.{layer}.{target}.weight.lora_a", a)
        writer.add_tensor(f"blk.{layer}.{target}.weight.lora_b", b)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_peft(folder, made, alphas):
    """A PEFT folder; the rank and alpha of each module stand in patterns."""
    folder.mkdir()
    tensors, ranks = {}, {}
    for (layer, target), (a, b) in made.items():
        name = f"base_model.model.model.layers.{layer}.{MODULES[target]}"
        tensors[name + ".lora_A.weight"], tensors[name + ".lora_B.weight"] = a, b
        ranks[MODULES[target].split(".")[1]] = len(a)
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": sorted(ranks), "rank_pattern": ranks,
              "alpha_pattern": {MODULES[t].split(".")[1]: v for t, v in alphas.items()}, "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    header, at = {}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(header).encode()
    (folder / "adapter_model.safetensors").write_bytes(
        struct.pack("<Q", len(text)) + text + b"".join(t.tobytes() for t in tensors.values()))


# ---- checks -------------------------------------------------------------------------------------

def model_of(name):
    return REFERENCE / "models" / f"{name}.gguf"


def check_reference(name):
    """The reference adapter as it is, and after export to PEFT and import."""
    model, adapter, again = model_of(name), REFERENCE / "lora" / f"{name}.gguf", OUT / f"{name}-again.gguf"
    base = theirs(model)
    compare(f"{name}: reference adapter", ours(model, (adapter, 1)), theirs(model, (adapter, 1)), base)
    run("adapter", "export", adapter, "-m", model, "-o", OUT / f"{name}-folder")
    run("adapter", "import", OUT / f"{name}-folder", "-m", model, "-o", again)
    compare(f"{name}: after export and import", ours(model, (again, 1)), theirs(model, (again, 1)), base)


def check_mixed():
    """Ranks and alphas that no one alpha serves; joined with another; merged into the model, in several types."""
    model, reference = model_of("llama-F32"), REFERENCE / "lora" / "llama-F32.gguf"
    ranks = {t: 3 + i % 3 for i, t in enumerate(MODULES)}
    write_peft(OUT / "mixed", pairs(model, ranks, 3), {t: 2 + 2 * r for t, r in ranks.items()})
    mixed, joined, merged = OUT / "mixed.gguf", OUT / "joined.gguf", OUT / "merged.gguf"
    run("adapter", "import", OUT / "mixed", "-m", model, "-o", mixed, "--allow-rounding")
    base = theirs(model)
    compare("mixed ranks and alphas", ours(model, (mixed, 1)), theirs(model, (mixed, 1)), base)
    both = (mixed, 1), (reference, 0.5)
    compare("two adapters at once", ours(model, *both), theirs(model, *both), base)
    run("adapter", "merge", "--lora", mixed, "--lora", f"{reference}=0.5", "-o", joined, "--allow-rounding")
    want = ours(model, (joined, 1))
    compare("those two joined", theirs(model, (joined, 1)), want, base)
    run("adapter", "merge", "-m", model, "--lora", mixed, "--lora", f"{reference}=0.5", "-o", merged)
    compare("those two merged into the model", theirs(merged), want, base)
    for kind, close in STORED.items():
        run("adapter", "merge", "-m", model, "--lora", mixed, "--lora", f"{reference}=0.5", "-o", merged, "--type", kind)
        off = float(np.abs(theirs(merged) - want).max() / (want.max() - want.min()))
        print(f"{'ok ' if off <= close else 'BAD'} merged and stored as {kind}: off by {off:.2e} of the spread")
        if off > close:
            failures.append(f"stored as {kind}")


PHI3 = {
    "equal ranks": (dict.fromkeys(MODULES, 4), 8.0, False),
    "one A for q, k, v and for gate, up": (dict.fromkeys(MODULES, 4), 8.0, True),
    "other ranks, by powers of two": ({**dict.fromkeys(MODULES, 4), "attn_k": 2, "attn_v": 1, "ffn_up": 8}, 16.0, False),
    "q and v alone": (dict.fromkeys(["attn_q", "attn_v"], 3), 6.0, False),
    "k and gate alone": (dict.fromkeys(["attn_k", "ffn_gate"], 5), 10.0, False),
    "alpha 0, ranks 3 to 5": ({t: 3 + i % 3 for i, t in enumerate(MODULES)}, 0.0, False),
}


def check_phi3():
    """Adapters in parts, as training makes them, and fused for the model's own tensors."""
    whole = model_of("phi3-F32").read_bytes()
    key = b"phi3.attention.sliding_window" + struct.pack("<I", 4)
    at = whole.index(key) + len(key)
    model = OUT / "phi3.gguf"
    model.write_bytes(whole[:at] + struct.pack("<I", 8192) + whole[at + 4:])
    base = theirs(model)
    for i, (case, (ranks, alpha, one_a)) in enumerate(PHI3.items()):
        apart, fused, again = (OUT / f"phi3-{i}-{kind}.gguf" for kind in ("apart", "fused", "again"))
        write_gguf(apart, "phi3", pairs(model, ranks, i, one_a), alpha)
        run("adapter", "import", apart, "-m", model, "-o", fused)
        want = theirs(model, (fused, 1))
        compare(f"phi3, {case}: fused there, apart here", ours(model, (apart, 1)), want, base)
        compare(f"phi3, {case}: fused here", ours(model, (fused, 1)), want, base)
        run("adapter", "export", apart, "-m", model, "-o", OUT / f"phi3-{i}-folder")
        run("adapter", "import", OUT / f"phi3-{i}-folder", "-m", model, "-o", again)
        compare(f"phi3, {case}: through PEFT's form", theirs(model, (again, 1)), want, base)
        run("adapter", "merge", "-m", model, "--lora", apart, "-o", OUT / "phi3-merged.gguf")
        compare(f"phi3, {case}: merged", theirs(OUT / "phi3-merged.gguf"), want, base)


def check_types():
    """Adapters in 16 bits or 8 that we wrote, in llama.cpp; and those whose types its converter writes, here: to the
    logits of the same values in f32."""
    model, reference, narrow, wide = model_of("llama-F32"), REFERENCE / "lora" / "llama-F32.gguf", OUT / "narrow.gguf", OUT / "wide.gguf"
    base = theirs(model)
    for kind in ("F16", "BF16", "Q8_0"):
        run("adapter", "merge", "--lora", reference, "-o", narrow, "--type", kind)
        compare(f"written in {kind}", ours(model, (narrow, 1)), theirs(model, (narrow, 1)), base, CLOSE_EIGHT if kind == "Q8_0" else CLOSE_HALF)
    made = pairs(model, dict.fromkeys(MODULES, 4), 5)
    types = gguf.GGMLQuantizationType
    for kind in (types.F16, types.BF16, types.Q8_0, types.Q4_0):
        halves, values = {}, {}
        for key, (a, b) in made.items():
            types_here = kind if a.shape[1] % 32 == 0 else types.F16, kind if b.shape[1] % 32 == 0 else types.F16
            halves[key] = [(gguf.quants.quantize(m, t), t) for m, t in zip((a, b), types_here)]
            values[key] = [gguf.quants.dequantize(m, t) for m, t in halves[key]]
        writer = gguf.GGUFWriter(narrow, "llama")
        writer.add_type("adapter")
        writer.add_string("adapter.type", "lora")
        writer.add_float32("adapter.lora.alpha", 4.0)
        for (layer, target), parts in halves.items():
            for name, (data, its_type) in zip(("lora_a", "lora_b"), parts):
                writer.add_tensor(f"blk.{layer}.{target}.weight.{name}", data, raw_dtype=its_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        write_gguf(wide, "llama", values, 4.0)
        same = bool((ours(model, (narrow, 1)) == ours(model, (wide, 1))).all())
        print(f"{'ok ' if same else 'BAD'} read in {kind.name}: the logits of the same values in F32", flush=True)
        if not same:
            failures.append(f"read in {kind.name}")


def check_gemma(name):
    model, adapter = model_of(name), OUT / f"{name}.gguf"
    write_gguf(adapter, name.split("-")[0], pairs(model, dict.fromkeys(MODULES, 4), 9), 4.0)
    compare(f"{name}: an adapter of all targets", ours(model, (adapter, 1)), theirs(model, (adapter, 1)), theirs(model),
            CLOSE_GELU)


for model_name in ("llama-F32", "qwen2-F32", "qwen3-F32"):
    check_reference(model_name)
check_mixed()
check_types()
check_phi3()
for model_name in ("gemma2-F32", "gemma3-F32"):
    check_gemma(model_name)
print("\n".join(failures) or "llama_adapters: ok")
sys.exit(1 if failures else 0)

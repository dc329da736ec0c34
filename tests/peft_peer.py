#!/usr/bin/env python3
"""Adapters against PEFT itself: our export loaded by it, its adapters imported by us, equal logits.

Runs where torch, transformers and peft are installed; peers_test.py starts it:
    python3 tests/peft_peer.py MESHMIND TESTDATA OUT_FOLDER
The models are the reference models of the test data, built as transformers models with random-weight
shapes, q and k rows put back into the order of transformers for architecture llama.
"""
import json, pathlib, struct, subprocess, sys

import numpy as np
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors import safe_open
from safetensors.numpy import save_file

MESHMIND, DATA, OUT = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
REFERENCE = DATA / "reference"
IDS = [int(i) for i in (REFERENCE / "ids.txt").read_text().replace(",", " ").split()]
CLOSE = 1e-5  # of the spread of the logits; measured maximum 1.8e-6
failures = []


def table(path):
    """Entries of the header in their order, without the metadata; the data behind it."""
    b = path.read_bytes()
    size = int.from_bytes(b[:8], "little")
    return [entry for entry in json.loads(b[8:8 + size], object_pairs_hook=list) if entry[0] != "__metadata__"], size % 8, b[8 + size:]


def read_gguf(path):
    """Keys and F32 tensors of a GGUF file."""
    b = path.read_bytes()
    at = 8
    scalar = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}

    def take(fmt):
        nonlocal at
        v = struct.unpack_from(fmt, b, at)[0]
        at += struct.calcsize(fmt)
        return v

    def text():
        nonlocal at
        n = take("<Q")
        at += n
        return b[at - n:at].decode("utf-8", "replace")

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            element, n = take("<I"), take("<Q")
            return [value(element) for _ in range(n)]
        return take(scalar[kind])

    tensor_count, kv_count = take("<Q"), take("<Q")
    keys = {}
    for _ in range(kv_count):
        name = text()
        keys[name] = value(take("<I"))
    infos = []
    for _ in range(tensor_count):
        name = text()
        dims = [take("<Q") for _ in range(take("<I"))]
        infos.append((name, dims, take("<I"), take("<Q")))
    align = keys.get("general.alignment", 32)
    begin = (at + align - 1) // align * align
    tensors = {}
    for name, dims, kind, offset in infos:
        assert kind == 0, f"{name} is not F32"
        n = int(np.prod(dims))
        tensors[name] = np.frombuffer(b, "<f4", n, begin + offset).reshape(dims[::-1])
    return keys, tensors


def unpermute(w, heads):
    """GGUF rows h*hd + 2i + p back to h*hd + p*hd/2 + i."""
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def build(name):
    keys, t = read_gguf(REFERENCE / "models" / f"{name}.gguf")
    arch = keys["general.architecture"]
    get = lambda k, d=None: keys.get(f"{arch}.{k}", d)
    heads = get("attention.head_count")
    kv = get("attention.head_count_kv", heads)
    head_dim = get("attention.key_length") or t["blk.0.attn_q.weight"].shape[0] // heads
    kind = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "phi3": "Phi3", "gemma2": "Gemma2", "gemma3": "Gemma3"}[arch]
    gemma = arch.startswith("gemma")
    more = {"sliding_window": get("attention.sliding_window"), "pad_token_id": 0, "eos_token_id": 2} if arch == "phi3" or gemma else {}
    if gemma:
        more.update(query_pre_attn_scalar=head_dim)
    if arch == "gemma2":
        more.update(attn_logit_softcapping=get("attn_logit_softcapping"), final_logit_softcapping=get("final_logit_softcapping"))
    if arch != "gemma3":  # which has two bases, both the usual ones here
        more.update(rope_parameters={"rope_type": "default", "rope_theta": get("rope.freq_base", 10000.0)})
    config = getattr(transformers, kind + ("TextConfig" if arch == "gemma3" else "Config"))(
        vocab_size=t["token_embd.weight"].shape[0], hidden_size=get("embedding_length"),
        intermediate_size=get("feed_forward_length"), num_hidden_layers=get("block_count"),
        num_attention_heads=heads, num_key_value_heads=kv, head_dim=head_dim,
        rms_norm_eps=get("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=get("context_length"), tie_word_embeddings="output.weight" not in t,
        attn_implementation="eager", **more)
    model = getattr(transformers, kind + "ForCausalLM")(config).float().eval()
    names = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
             "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
             "ffn_norm": "post_attention_layernorm", "attn_q_norm": "self_attn.q_norm",
             "attn_k_norm": "self_attn.k_norm"}
    if arch == "phi3":
        names.update(attn_qkv="self_attn.qkv_proj", ffn_up="mlp.gate_up_proj")
    if gemma:
        names.update(ffn_norm="pre_feedforward_layernorm", post_attention_norm="post_attention_layernorm",
                     post_ffw_norm="post_feedforward_layernorm")
    state = {}
    for k, w in t.items():
        w = np.array(w) - gemma if "norm" in k else np.array(w)  # its norms multiply by 1 + w there
        if k.startswith("blk."):
            _, layer, part, end = k.split(".")
            if arch == "llama" and part in ("attn_q", "attn_k"):
                w = unpermute(w, heads if part == "attn_q" else kv)
            state[f"model.layers.{layer}.{names[part]}.{end}"] = torch.tensor(w)
        else:
            top = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
                   "output.weight": "lm_head.weight"}
            state[top[k]] = torch.tensor(w)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model


def logits_of(model):
    with torch.no_grad():
        return model(torch.tensor([IDS])).logits[0].numpy()


def run(*args):
    done = subprocess.run([MESHMIND, *map(str, args)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"meshmind {' '.join(map(str, args))}: exit {done.returncode}: {done.stderr}")


def ours(name, adapter):
    out = OUT / "logits.f32"
    run("logits", "-m", REFERENCE / "models" / f"{name}.gguf", "--ids", ",".join(map(str, IDS)), "--lora", adapter,
        "--out", out)
    return np.fromfile(out, "<f4").reshape(len(IDS), -1)


def compare(what, a, b, base):
    spread = float(b.max() - b.min())
    off, moved = float(np.abs(a - b).max()) / spread, float(np.abs(b - base).max()) / spread
    ok = off <= CLOSE and moved > 100 * CLOSE
    print(f"{'ok ' if ok else 'BAD'} {what}: off by {off:.2e} of the spread, the adapter moves {moved:.2e}")
    if not ok:
        failures.append(what)


def same_file_as_reference_writer(folder):
    """Our safetensors bytes are those of the format's own writer, but for the order in which it has the metadata."""
    path = folder / "adapter_model.safetensors"
    with safe_open(path, "np") as f:
        tensors = {k: f.get_tensor(k) for k in f.keys()}
    with safe_open(path, "np") as opened:
        metadata = opened.metadata()
    save_file(tensors, OUT / "again.safetensors", metadata=metadata)
    if set(metadata) != {"format", "openmeshmind.base.fingerprint"} or table(OUT / "again.safetensors") != table(path):
        failures.append(f"{folder.name}: other bytes than the reference writer")


def trained(name, *options, rate=0.05):
    """An adapter that we trained, where the test data have none; the arguments decide its bytes."""
    text, adapter = OUT / "text.txt", OUT / f"trained-{name}.gguf"
    text.write_text("The tide comes in and the tide goes out. " * 200)
    run("train", "-m", REFERENCE / "models" / f"{name}.gguf", "--data", text, "--out", adapter, "--steps", 8, "--batch", 256,
        "--seq", 64, "--lr", rate, *options)
    return adapter


def values(path):
    """Tensors of a PEFT folder or of an adapter's file: shape and bytes by name."""
    if not path.is_dir():
        return {k: (w.shape, w.tobytes()) for k, w in read_gguf(path)[1].items()}
    with safe_open(path / "adapter_model.safetensors", "np") as f:
        return {k: (f.get_tensor(k).shape, f.get_tensor(k).tobytes()) for k in f.keys()}


def same_values(what, a, b):
    a, b = values(a), values(b)
    different = [k for k in a.keys() | b.keys() if a.get(k) != b.get(k)]
    print(f"{'BAD' if different else 'ok '} {what}: {len(a)} tensors{', not ' if different else ''}{', '.join(different[:3])}")
    if different or not a:
        failures.append(what)


def check_export(name, adapter=None):
    folder = OUT / f"export-{name}"
    adapter = adapter or REFERENCE / "lora" / f"{name}.gguf"
    run("adapter", "export", adapter, "-m", REFERENCE / "models" / f"{name}.gguf", "-o", folder)
    same_file_as_reference_writer(folder)
    base = logits_of(build(name))
    model = PeftModel.from_pretrained(build(name), folder).eval()
    compare(f"{name}: our export in PEFT", ours(name, adapter), logits_of(model), base)
    saved, again = OUT / f"saved-{name}", OUT / f"again-{name}.gguf"
    model.save_pretrained(saved)
    same_values(f"{name}: our export, saved by PEFT", saved, folder)
    run("adapter", "import", saved, "-m", REFERENCE / "models" / f"{name}.gguf", "-o", again)
    same_values(f"{name}: our export, from PEFT", again, adapter)


ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CASES = {
    "plain": dict(r=4, lora_alpha=8, target_modules=ALL),
    "rslora": dict(r=8, lora_alpha=5, use_rslora=True, target_modules=["q_proj", "k_proj"]),
    "patterns": dict(r=8, lora_alpha=16, target_modules="all-linear",
                     rank_pattern={"q_proj": 4, "layers.1.mlp.*": 2}, alpha_pattern={"k_proj": 32, ".*mlp.up_proj": 4}),
    "layers": dict(r=4, lora_alpha=4, target_modules=["q_proj", "down_proj"], layers_to_transform=[1]),
    "regex": dict(r=4, lora_alpha=4, target_modules=r".*layers\.0\..*(k|v)_proj", rank_pattern={"v_proj": 8}),
    "fused": dict(r=4, lora_alpha=8, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]),
    "fused patterns": dict(r=8, lora_alpha=16, target_modules="all-linear", rank_pattern={"qkv_proj": 6},
                           alpha_pattern={"qkv_proj": 12, "layers.1.mlp.gate_up_proj": 32}),
    "rounded": dict(r=6, lora_alpha=7, use_rslora=True, target_modules=ALL, rank_pattern={"v_proj": 5}),
}


def check_import(name, case):
    torch.manual_seed(sum(map(ord, name + case)))
    base = logits_of(build(name))
    model = get_peft_model(build(name), LoraConfig(task_type="CAUSAL_LM", **CASES[case])).eval()
    with torch.no_grad():
        for k, p in model.named_parameters():
            if "lora_B" in k:
                p.normal_(0, 0.05)
    folder = OUT / f"{name}-{case}"
    model.save_pretrained(folder)
    adapter = OUT / f"{name}-{case}.gguf"
    run("adapter", "import", folder, "-m", REFERENCE / "models" / f"{name}.gguf", "-o", adapter,
        *(["--allow-rounding"] if case == "rounded" else []))
    compare(f"{name}: {case} of PEFT here", ours(name, adapter), logits_of(model), base)
    again = OUT / f"{name}-{case}-again"
    run("adapter", "export", adapter, "-m", REFERENCE / "models" / f"{name}.gguf", "-o", again)
    theirs = logits_of(PeftModel.from_pretrained(build(name), again).eval())
    compare(f"{name}: {case} there and back", theirs, logits_of(model), base)
    if case not in ("rounded", "fused patterns"):  # there scales are in B: rounded, or in a file that cannot say them
        same_values(f"{name}: {case} there and back", again, folder)


for model_name in ("llama-F32", "qwen2-F32", "qwen3-F32"):
    check_export(model_name)
    apart = [c for c in CASES if "fused" not in c]
    for case_name in apart if model_name == "llama-F32" else ("plain", "patterns"):
        check_import(model_name, case_name)
for options in ("--rank", 4), ("--rank", 3, "--targets", "q,v,ffn_gate"):  # in parts here, in phi3's fused modules there
    check_export("phi3-F32", trained("phi3-F32", *options))
for case_name in "fused", "fused patterns":
    check_import("phi3-F32", case_name)
for model_name in ("gemma2-F32", "gemma3-F32"):
    check_export(model_name, trained(model_name, "--rank", 4, "--rank-pattern", "ffn_*=2,blk.0.*=8", "--alpha-pattern", "ffn_*=32",
                                     rate=0.01))
    check_import(model_name, "patterns")
print("\n".join(failures) or "peft: ok")
sys.exit(1 if failures else 0)

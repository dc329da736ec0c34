#!/usr/bin/env python3
"""Architectures against transformers: random models made there in double, converted, the same logits
and the same steps of training here.

Runs where torch, transformers, peft and gguf are installed; peers_test.py starts it:
    python3 tests/architectures_peer.py MESHMIND TESTDATA OUT_FOLDER [CASE...]
Sizes are odd on purpose; tensor names and the order of rows are those of llama.cpp's converter.  The
tokenizer is that of a reference model, since training wants one.
"""
import contextlib, pathlib, subprocess, sys

import gguf
import numpy as np
import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

MESHMIND, DATA, OUT = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
TOKENIZER = gguf.GGUFReader(DATA / "reference" / "models" / "llama-F32.gguf")
VOCAB = len(TOKENIZER.fields["tokenizer.ggml.tokens"].data)
IDS = [(i * i * 7 + 3 * i) % VOCAB for i in range(90)]
LOGITS_CLOSE = 2e-6  # of the spread of the logits; measured maximum 8.7e-7
STEPS = 3
RATES = {"granite": 5.0, "granite4": 5.0}  # else 0.02: small steps of f32 numbers are mostly rounding, large ones jump about
WAY_CLOSE = 1e-4  # of the way that a tensor of the adapter goes; measured maximum 5.3e-5
LESS = {"granite4": ["q_proj", "k_proj", "v_proj", "o_proj"]}  # whose gate and up are one layer there
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
COMMON = dict(vocab_size=VOCAB, hidden_size=72, intermediate_size=88, num_attention_heads=6, num_key_value_heads=2,
              max_position_embeddings=300, attn_implementation="eager", pad_token_id=0, bos_token_id=1, eos_token_id=2)
ROPE = lambda theta, **more: {"rope_parameters": {"rope_type": "default", "rope_theta": theta, **more}}
CASES = {  # what it is called, its kind and architecture, what its configuration has
    "smollm3": ("SmolLM3", "smollm3", dict(num_hidden_layers=9, rms_norm_eps=1e-6, tie_word_embeddings=True, **ROPE(5e6))),
    "smollm3 untied": ("SmolLM3", "smollm3", dict(num_hidden_layers=5, rms_norm_eps=1e-5, tie_word_embeddings=False, **ROPE(1e4))),
    "granite": ("Granite", "granite", dict(num_hidden_layers=3, rms_norm_eps=1e-5, tie_word_embeddings=True, embedding_multiplier=12.0,
                                           residual_multiplier=0.22, attention_multiplier=0.1, logits_scaling=8.0, **ROPE(1e7))),
    "granite untied": ("Granite", "granite", dict(num_hidden_layers=2, rms_norm_eps=1e-6, tie_word_embeddings=False, embedding_multiplier=0.7,
                                                  residual_multiplier=1.3, attention_multiplier=0.5, logits_scaling=0.4, **ROPE(1e4))),
    "granite4": ("GraniteMoeHybrid", "granite", dict(num_hidden_layers=3, rms_norm_eps=1e-5, tie_word_embeddings=True, embedding_multiplier=12.0,
                                                     residual_multiplier=0.22, attention_multiplier=0.1, logits_scaling=8.0, num_local_experts=0,
                                                     shared_intermediate_size=88, layer_types=["attention"] * 3, position_embedding_type="rope",
                                                     mamba_n_heads=4, mamba_d_head=36, **ROPE(1e7))),
    "gemma": ("Gemma", "gemma", dict(num_hidden_layers=3, head_dim=16, rms_norm_eps=1e-6, hidden_activation="gelu_pytorch_tanh", **ROPE(1e4))),
    "olmo2": ("Olmo2", "olmo2", dict(num_hidden_layers=3, rms_norm_eps=1e-6, tie_word_embeddings=False, **ROPE(5e5))),
    "olmo2 deep": ("Olmo2", "olmo2", dict(num_hidden_layers=8, rms_norm_eps=1e-5, tie_word_embeddings=False, **ROPE(1e4))),
    "olmo3": ("Olmo3", "olmo2", dict(num_hidden_layers=5, rms_norm_eps=1e-6, tie_word_embeddings=False, sliding_window=40, rope_parameters={
        "full_attention": dict(rope_type="yarn", rope_theta=5e5, factor=8.0, original_max_position_embeddings=32, beta_fast=32.0, beta_slow=1.0,
                               attention_factor=1.2079441541679836),
        "sliding_attention": dict(rope_type="default", rope_theta=5e5)})),
    "olmo3 short": ("Olmo3", "olmo2", dict(num_hidden_layers=4, rms_norm_eps=1e-5, tie_word_embeddings=False, sliding_window=24, rope_parameters={
        "full_attention": dict(rope_type="default", rope_theta=1e4), "sliding_attention": dict(rope_type="default", rope_theta=1e4)})),
    "ministral3": ("Ministral3", "mistral3", dict(num_hidden_layers=3, head_dim=12, rms_norm_eps=1e-5, tie_word_embeddings=True,
                                                  **ROPE(1e6, rope_type="yarn", factor=16.0, original_max_position_embeddings=32, beta_fast=32.0,
                                                         beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1))),
    "ministral3 untied": ("Ministral3", "mistral3", dict(num_hidden_layers=2, head_dim=16, rms_norm_eps=1e-6, tie_word_embeddings=False,
                                                         **ROPE(1e4, rope_type="yarn", factor=4.0, original_max_position_embeddings=20, beta_fast=32.0,
                                                                beta_slow=1.0, mscale=1.0, mscale_all_dim=0.5, llama_4_scaling_beta=0.5))),
    "exaone4": ("Exaone4", "exaone4", dict(num_hidden_layers=5, rms_norm_eps=1e-5, tie_word_embeddings=True, sliding_window=None,
                                           layer_types=["full_attention"] * 5, **ROPE(1e6))),
    "exaone4 windows": ("Exaone4", "exaone4", dict(num_hidden_layers=8, rms_norm_eps=1e-5, tie_word_embeddings=False, sliding_window=40,
                                                   sliding_window_pattern=4, **ROPE(1e6))),
    "ernie4.5": ("Ernie4_5", "ernie4_5", dict(num_hidden_layers=3, head_dim=16, rms_norm_eps=1e-5, tie_word_embeddings=True, use_bias=False, **ROPE(5e5))),
    "hunyuan": ("HunYuanDenseV1", "hunyuan-dense", dict(num_hidden_layers=3, head_dim=16, rms_norm_eps=1e-5, tie_word_embeddings=True,
                                                        **ROPE(1e4, rope_type="dynamic", alpha=1000.0, factor=1.0))),
    "hunyuan untied": ("HunYuanDenseV1", "hunyuan-dense", dict(num_hidden_layers=2, head_dim=12, rms_norm_eps=1e-6, tie_word_embeddings=False, **ROPE(1e4))),
}
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
PARTS = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm"}
LLAMA_NORMS = {"post_attention_layernorm": "ffn_norm"}
POST_NORMS = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm",
              "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
MORE_PARTS = {"smollm3": LLAMA_NORMS, "granite": LLAMA_NORMS | {"shared_mlp.output_linear": "ffn_down"},
              "olmo2": POST_NORMS, "exaone4": POST_NORMS, "mistral3": LLAMA_NORMS, "ernie4_5": LLAMA_NORMS, "gemma": LLAMA_NORMS,
              "hunyuan-dense": LLAMA_NORMS | {"self_attn.query_layernorm": "attn_q_norm", "self_attn.key_layernorm": "attn_k_norm"}}
PAIRED = {"smollm3", "granite", "mistral3"}  # rows of q and k are in pairs there
failures = []


def check(what, off, close):
    ok = off <= close
    print(f"{'ok ' if ok else 'BAD'} {what}: {off:.2e}")
    if not ok:
        failures.append(what)


@contextlib.contextmanager
def all_in_double():
    """transformers takes norms, softmax and rotations in f32 whatever the weights are: here that word means f64."""
    single, to_single = torch.float32, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32 = torch.float = single
        torch.Tensor.float = to_single
        torch.set_default_dtype(single)


def build(name):
    """In double, of values that an F32 file has to the bit."""
    kind, _, more = CASES[name]
    torch.manual_seed(sum(map(ord, name)))
    with all_in_double():
        model = getattr(transformers, kind + "ForCausalLM")(getattr(transformers, kind + "Config")(**COMMON, **more)).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            p.normal_(0, 1 if "embed" in key else p.shape[1]**-0.5) if p.dim() > 1 else p.uniform_(0.5, 1.5)
            p.copy_(p.float().double())
    return model


def permuted(w, heads):
    """The pairs (i, i + half) of each head side by side."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def tensor_of(arch, key, w, config):
    stem, end = key.rsplit(".", 1)
    if stem in TOP:
        return f"{TOP[stem]}.{end}", w + np.float32(1) if arch == "gemma" and stem == "model.norm" else w
    _, _, layer, part = stem.split(".", 3)
    part = (PARTS | MORE_PARTS[arch])[part]
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(part)
    if arch == "gemma" and part.endswith("norm"):
        w = w + np.float32(1)
    return f"blk.{layer}.{part}.{end}", permuted(w, heads) if arch in PAIRED and heads else w


def copy_tokenizer(w):
    for key, field in TOKENIZER.fields.items():
        if key.startswith("tokenizer."):
            kind = field.types[0]
            w.add_key_value(key, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)


def add_more(w, name, c):
    arch, rope = CASES[name][1], c.rope_parameters
    if arch == "mistral3":
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(rope["factor"])
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        w.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        w.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
    rope = rope.get("full_attention", rope)
    if name == "olmo3":  # as earlier converters wrote it, with what yarn gives by itself
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(rope["factor"])
        w.add_rope_scaling_attn_factors(rope["attention_factor"])
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if arch in ("exaone4", "olmo2") and getattr(c, "sliding_window", None):
        w.add_sliding_window(c.sliding_window)
        w.add_sliding_window_pattern([kind == "sliding_attention" for kind in c.layer_types])
    if rope.get("alpha"):
        w.add_float32(f"{arch}.rope.scaling.alpha", rope["alpha"])


def convert(path, name, model):
    arch, c = CASES[name][1], model.config
    w = gguf.GGUFWriter(path, arch)
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_rope_freq_base(c.rope_parameters.get("full_attention", c.rope_parameters)["rope_theta"])
    head_dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    w.add_rope_dimension_count(head_dim)
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    add_more(w, name, c)
    if arch == "granite":
        w.add_embedding_scale(c.embedding_multiplier)
        w.add_residual_scale(c.residual_multiplier)
        w.add_attention_scale(c.attention_multiplier)
        w.add_logit_scale(c.logits_scaling)
    copy_tokenizer(w)
    state = dict(model.state_dict())
    if c.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    for key, value in state.items():
        rows, keys = value.float().numpy(), [key]
        if "shared_mlp.input_linear" in key:
            keys = [key.replace("shared_mlp.input_linear", f"mlp.{half}_proj") for half in ("gate", "up")]
        for part, values in zip(keys, np.split(rows, len(keys))):
            tensor, values = tensor_of(arch, part, values, c)
            w.add_tensor(tensor, np.ascontiguousarray(values))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def run(*args):
    done = subprocess.run([MESHMIND, *map(str, args)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"meshmind {' '.join(map(str, args))}: exit {done.returncode}: {done.stderr}")
    return done.stdout


def check_logits(name, path, model):
    out = OUT / "logits.f32"
    run("logits", "-m", path, "--ids", ",".join(map(str, IDS)), "--out", out)
    ours = np.fromfile(out, "<f4").reshape(len(IDS), -1).astype(np.float64)
    with torch.no_grad(), all_in_double():
        theirs = model(torch.tensor([IDS])).logits[0].numpy()
    check(f"{name}: logits, of their spread", np.abs(ours - theirs).max() / (theirs.max() - theirs.min()), LOGITS_CLOSE)


def with_adapter(name, folder):
    """An adapter of theirs whose halves both do something; its file is in f32, so the model is, too."""
    model = get_peft_model(build(name), LoraConfig(task_type="CAUSAL_LM", r=3, lora_alpha=6, target_modules=LESS.get(name, ALL)))
    torch.manual_seed(5)
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "lora_" in key:
                p.copy_(torch.empty_like(p).uniform_(-1, 1).mul(0.3 if "lora_B" in key else 0.2).float().double())
    model.save_pretrained(folder)
    file = folder / "adapter_model.safetensors"
    save_file({k: v.float() for k, v in load_file(file).items()}, file, metadata={"format": "pt"})
    return model


def train_there(model, ids, rate):
    """Plain gradient descent over one text."""
    batch = torch.tensor([ids])
    moved = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(moved, lr=rate)
    for _ in range(STEPS):
        optimizer.zero_grad()
        with all_in_double():
            loss = torch.nn.functional.cross_entropy(model(batch).logits[0, :-1], batch[0, 1:])
            loss.backward()
        optimizer.step()


def check_training(name, path):
    """Their adapter read, trained by both, ours written in their form: so rows, names and gradients agree."""
    text, start, end = OUT / "text.txt", OUT / "start.gguf", OUT / "end.gguf"
    text.write_text("The tide comes in and the tide goes out, and the boats turn on their chains.\n")
    there, back = OUT / f"{name}-start", OUT / f"{name}-end"
    model, rate = with_adapter(name, there), RATES.get(name, 0.02)
    run("adapter", "import", there, "-m", path, "-o", start)
    run("train", "-m", path, "--data", text, "--start", start, "--out", end, "--steps", STEPS, "--lr", rate, "--warmup", 0,
               "--schedule", "constant", "--optimizer", "sgd", "--clip", 0, "--seq", 128, "--batch", 128)
    run("adapter", "export", end, "-m", path, "-o", back)
    before, ours = load_file(there / "adapter_model.safetensors"), load_file(back / "adapter_model.safetensors")
    train_there(model, [1, *map(int, run("tokenize", "-m", path, "-f", text).split()), 2], rate)
    theirs = {k.replace(".default", ""): v.detach() for k, v in model.named_parameters() if "lora_" in k}
    worst = 0.0
    for key, value in theirs.items():
        way = (value - before[key].double()).norm().item()
        worst = max(worst, (ours[key].double() - value).norm().item() / way)
    check(f"{name}: {STEPS} steps of descent, of the way of a tensor", worst, WAY_CLOSE)


for case in sys.argv[4:] or CASES:
    file, there = OUT / f"{case}.gguf", build(case)
    convert(file, case, there)
    check_logits(case, file, there)
    check_training(case, file)
print("\n".join(failures) or "architectures: ok")
sys.exit(1 if failures else 0)

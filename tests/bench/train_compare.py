#!/usr/bin/env python3
"""A LoRA step of PyTorch with PEFT against one of `meshmind bench --train`, of the same shape, turn by turn, so that both
meet the same moods of the machine: what the one-chain rule costs against arithmetic that may differ from machine to machine.

The peer has random f32 weights of the model's shape (architecture llama), attention by its fused kernel, AdamW, clipping, its own
default of everything else; it computes a step for each line that it is given, so that its start counts for nothing.  (-P: tokenize.py beside this file is not the library's.)

usage: train_compare.py --peer PYTHON_WITH_PEFT -m MODEL.gguf [--meshmind PATH] [-t THREADS] [--seq N] [--rank N] [-r TURNS]
                        [--wait]
"""
import argparse, json, pathlib, statistics, subprocess, sys, time

LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def serve(shape):
    """In the peer's Python: a step for every line of standard input."""
    import torch, transformers, peft
    torch.set_num_threads(shape["threads"])
    torch.manual_seed(1)
    key = lambda name: shape["keys"]["llama." + name]
    config = transformers.LlamaConfig(
        vocab_size=key("vocab_size"), hidden_size=key("embedding_length"), intermediate_size=key("feed_forward_length"),
        num_hidden_layers=key("block_count"), num_attention_heads=key("attention.head_count"),
        num_key_value_heads=key("attention.head_count_kv"), rms_norm_eps=key("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=shape["seq"] + 1, tie_word_embeddings=True, use_cache=False, attn_implementation="sdpa")
    model = transformers.LlamaForCausalLM(config).float()
    lora = peft.LoraConfig(r=shape["rank"], lora_alpha=2 * shape["rank"], target_modules=LINEAR, lora_dropout=0.0)
    model = peft.get_peft_model(model, lora).train()
    moved = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(moved, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, fused=True)
    ids = torch.randint(0, key("vocab_size"), (1, shape["seq"] + 1))
    print(json.dumps({"versions": [torch.__version__, transformers.__version__, peft.__version__],
                      "adapter_parameters": sum(p.numel() for p in moved)}), flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        logits = model(input_ids=ids[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), ids[0, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(moved, 1.0)
        optimizer.step()
        loss = loss.item()
        print(json.dumps({"seconds": time.perf_counter() - start, "loss": loss}), flush=True)


def keys_of(meshmind, model):
    shown = json.loads(subprocess.run([meshmind, "inspect", model, "--json"], check=True, capture_output=True, text=True).stdout)
    return {k["key"]: k["value"] for k in shown["keys"] if k["key"].startswith("llama.") and "value" in k}


def ours(a):
    args = [a.meshmind, "bench", "--train", "-m", a.model, "-r", "1", "-t", a.threads, "--seq", a.seq, "--rank", a.rank,
            "--peak-seconds", "0", "--json"]
    done = json.loads(subprocess.run([str(x) for x in args], check=True, capture_output=True, text=True).stdout)
    return done["train"][0]["tokens_per_second"]["median"], done["adapter_parameters"]


class Peer:
    def __init__(self, a):
        shape = {"keys": keys_of(a.meshmind, a.model), "threads": a.threads, "seq": a.seq, "rank": a.rank}
        self.child = subprocess.Popen([a.peer, "-P", __file__, "--serve", json.dumps(shape)], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        self.about = self.answer()

    def answer(self):
        line = self.child.stdout.readline()
        if not line:
            sys.exit(f"train_compare.py: the peer ended with exit {self.child.wait()}")
        return json.loads(line)

    def step(self):
        self.child.stdin.write("step\n")
        self.child.stdin.flush()
        return self.answer()["seconds"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--peer", required=True)
    p.add_argument("-m", dest="model", required=True)
    p.add_argument("--meshmind", default=pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "meshmind")
    p.add_argument("-t", dest="threads", type=int, default=2)
    p.add_argument("--seq", type=int, default=512)
    p.add_argument("--rank", type=int, default=16)
    p.add_argument("-r", dest="turns", type=int, default=5)
    p.add_argument("--wait", action="store_true", help="for a line on standard input, when the peer is ready")
    a = p.parse_args()
    peer = Peer(a)
    print("peer: torch, transformers, peft", *peer.about["versions"], flush=True)
    peer.step()  # takes its memory
    if a.wait:
        print("ready", flush=True)
        sys.stdin.readline()
    ratios, mine, theirs = [], [], []
    for turn in range(a.turns):
        seconds = min(peer.step(), peer.step())
        time.sleep(0.4)  # its threads go to sleep
        speed, parameters = ours(a)
        if parameters != peer.about["adapter_parameters"]:
            sys.exit(f"train_compare.py: adapters of {parameters} and {peer.about['adapter_parameters']} values")
        mine.append(speed)
        theirs.append(a.seq / seconds)
        ratios.append(speed / theirs[-1])
        print(f"turn {turn + 1}: meshmind {speed:.1f}, peer {theirs[-1]:.1f} tokens/s: {ratios[-1]:.2f}", flush=True)
    print(f"medians: meshmind {statistics.median(mine):.1f}, peer {statistics.median(theirs):.1f} tokens/s: "
          f"{statistics.median(ratios):.2f} ({min(ratios):.2f} .. {max(ratios):.2f})")


if sys.argv[1:2] == ["--serve"]:
    serve(json.loads(sys.argv[2]))
else:
    main()

#!/usr/bin/env python3
"""What train, adapter and pretrain do with files: an adapter with alphas of its own goes to PEFT and back byte for byte, with them; what
cannot says so; no input is taken for a checkpoint, no file is named twice, an ended run's last event says what is kept; pretrain prints
its keys.

usage: train_files_test.py SOURCE_DIR MESHMIND
"""
import json, os, pathlib, re, signal, struct, subprocess, sys, tempfile

from live import check, wait_for
from split_gguf import STRING, text

SOURCE = pathlib.Path(sys.argv[1]).resolve()
MESHMIND = pathlib.Path(sys.argv[2]).resolve()
BASE = SOURCE / "scenarios" / "base"
MODEL = BASE / "openmeshmind-tiny-F16.gguf"


def run(*args, code=0):
    done = subprocess.run([MESHMIND, *map(str, args)], capture_output=True, text=True, timeout=600)
    check(done.returncode == code, f"{args}: exit {done.returncode}, not {code}: {done.stderr}")
    return done


def train(*args, code=0, steps=1):
    return run("train", "-m", MODEL, "-d", "train.jsonl", "--steps", steps, "--warmup", 0, "--batch", 128, "--micro", 128, "-t", 1, *args, code=code)


def says(done, *words):
    for word in words:
        check(word in done.stderr, f"'{word}' is not said: {done.stderr}")


def same_folder(a, b):
    return all((a / name).read_bytes() == (b / name).read_bytes() for name in ("adapter_config.json", "adapter_model.safetensors"))


def round_trips(folder):
    """File, folder, file, folder: equal bytes; and training goes on the same way from either file."""
    shape = ["--targets", "attn_q,attn_k,ffn_*", "--rank-pattern", "ffn_*=4,blk.0.*=2"]
    for alphas in ("ffn_*=8,blk.0.attn_q=4", "ffn_*=8,blk.1.attn_q=4"):
        train(*shape, "--alpha-pattern", alphas, "-o", "a.gguf")
        check("exact" in run("adapter", "export", "a.gguf", "-m", MODEL, "-o", "first").stdout, "export is not exact")
        config = json.loads((folder / "first" / "adapter_config.json").read_text())
        check(config["alpha_pattern"].get("model.layers.1.mlp.up_proj") == 8 and 4 in (config["lora_alpha"], *config["alpha_pattern"].values()), f"{config}")
        check("exact" in run("adapter", "import", "first", "-m", MODEL, "-o", "b.gguf").stdout, "import is not exact")
        check((folder / "a.gguf").read_bytes() == (folder / "b.gguf").read_bytes(), "there and back is another file")
        run("adapter", "export", "b.gguf", "-m", MODEL, "-o", "second")
        check(same_folder(folder / "first", folder / "second"), "back and there is another folder")
    shown = json.loads(run("adapter", "show", "b.gguf", "--json").stdout)["pairs"]
    (pair,) = [p for p in shown if p["layer"] == 1 and p["target"] == "q"]
    check((pair["scale"], pair["trained_scale"]) == (2, 0.5), f"{pair}")
    check(re.search(r"blk\.1\.attn_q +8 +2 +0\.5 ", run("adapter", "show", "b.gguf", "--tensors").stdout), "the table has no trained scale")
    train(*shape, "--alpha-pattern", "ffn_*=7", "-o", "c.gguf")
    lost = run("adapter", "export", "c.gguf", "-m", MODEL, "-o", "third").stdout
    check("exact" not in lost and "are lost" in lost, lost)
    # A folder whose alphas one of a file does not give without rounding: refused, or rounded, which is said.
    config = folder / "first" / "adapter_config.json"
    config.write_text(re.sub(r'(mlp\.up_proj": *)8', r"\g<1>7", config.read_text()))
    says(run("adapter", "import", "first", "-m", MODEL, "-o", "r.gguf", code=3), "only with rounding of B (--allow-rounding)")
    rounding = ["adapter", "import", "first", "-m", MODEL, "-o", "r.gguf", "--allow-rounding"]
    check("B rounded" in run(*rounding).stdout and json.loads(run(*rounding, "--json").stdout)["rounded"], "a rounded adapter is said to be exact")
    # Over there q, k and v of phi3 are one tensor, of one alpha; a file may have them apart, of ranks of their own.
    for name in ("llama", "phi3"):
        run("synth", f"tiny-{name}", f"{name}.gguf", "--type", "F32", "--layers", 2)
    for ranks, said in (([], "exact"), (["--rank-pattern", "attn_q=4"], "the alphas that 2 of the layers were trained with are lost")):
        run("train", "-m", "llama.gguf", "-d", "train.jsonl", "--steps", 1, "--warmup", 0, "--batch", 64, "-t", 1, "--targets", "q,k,v", *ranks, "-o", "qkv.gguf")
        at = json.loads(run("inspect", "qkv.gguf", "--json").stdout)["data_offset"]
        data = (folder / "qkv.gguf").read_bytes()
        names = [text("general.architecture") + struct.pack("<I", STRING) + text(name) for name in ("llama", "phi3")]
        (folder / "qkv.gguf").write_bytes(data[:at].replace(*names).ljust(at, b"\0") + data[at:])
        done = run("adapter", "export", "qkv.gguf", "-m", "phi3.gguf", "--any-base", "-o", f"phi3-{len(ranks)}")
        check(said in done.stdout, f"phi3, {ranks}: {done.stdout}")
    says(run("adapter", "show", "empty", code=2), "adapter_config.json", "adapter_model.safetensors")


def goes_on_as_it_was(folder):
    """Two steps are one and, from its file, one more: alphas that differ are trained as they were, though a file has one of them.  Of
    one example each step is the same one, and SGD keeps nothing."""
    (folder / "one.jsonl").write_text((folder / "train.jsonl").read_text().splitlines(True)[0])
    common = ["train", "-m", MODEL, "-d", "one.jsonl", "--warmup", 0, "--batch", 128, "-t", 1, "--optimizer", "sgd", "--schedule", "constant", "--lr", 0.5, "--clip", 0]
    shape = ["--targets", "attn_q,attn_v", "--alpha-pattern", "attn_q=4"]
    run(*common, *shape, "--steps", 2, "-o", "both.gguf")
    run(*common, *shape, "--steps", 1, "-o", "first.gguf")
    run(*common, "--steps", 1, "--start", "first.gguf", "-o", "second.gguf")
    files = [(folder / name).read_bytes() for name in ("both.gguf", "second.gguf", "first.gguf")]
    check(files[0] == files[1] != files[2], "training that goes on from a file with alphas of its own goes another way")
    for weight, rounded in (0.3, True), (0.5, False):  # of two that become one
        said = run(*common, "--steps", 1, "--start", f"first.gguf={weight}", "--start", "first.gguf", "-o", "third.gguf").stderr
        check(("--start: scales times weights differ by no power of two: B was rounded once\n" in said) == rounded, f"{weight}: {said}")


def refusals(folder):
    says(train("--start", "a.gguf", "--rank", 2, "--targets", "v", "-o", "x.gguf", code=2), "blk.0.attn_q: ", "rank 2, alpha 16 (scale 8), the recipe says nothing there")
    says(train("--start", "a.gguf", "--rslora", "-o", "x.gguf", code=2), "alpha 16 with rsLoRA (scale 5.6569)")
    before = {name: (folder / name).read_bytes() for name in ("train.jsonl", "held.jsonl", "a.gguf")}
    for name, option in (("train.jsonl", "--data"), ("held.jsonl", "--eval"), ("a.gguf", "--start"), (MODEL, "--model")):
        says(train("--eval", "held.jsonl", "--start", "a.gguf", "-o", "x.gguf", "--checkpoint", name, code=2), f"--checkpoint is {option}")
    check(all((folder / name).read_bytes() == text for name, text in before.items()), "an input has changed")
    says(train("-d", "held.jsonl", "-o", "x.gguf", code=2), "given twice", "-d")
    says(run("train", "-m", "a.gguf", "-d", "train.jsonl", "-o", "x.gguf", code=3), "--start")
    says(run("adapter", "merge", "--lora", "a.gguf", "--lora", "a.gguf=0", "-o", "x.gguf", code=2), "--lora a.gguf=0: with a scale of 0 it changes nothing")
    says(train("--start", "a.gguf=1e30", "--eval", "held.jsonl", "-o", "x.gguf", code=3), "before step 1", "held.jsonl", "a.gguf=1e30")
    check(not (folder / "x.gguf").exists(), "a refused run has written")
    train("--targets", "attn_q, attn_v ,ffn_up", "-o", "spaced.gguf")
    train("--targets", "attn_q,attn_v,ffn_up", "-o", "plain.gguf")
    check((folder / "spaced.gguf").read_bytes() == (folder / "plain.gguf").read_bytes(), "spaces make another adapter")


def events_of(text):
    return [json.loads(line) for line in text.splitlines() if '"event"' in line]


def events(folder):
    done = train("-o", "k.gguf", "--checkpoint", "k.ck", "--checkpoint-every", 2, "--json", steps=4)
    kept = [(e["step"], e["file"]) for e in events_of(done.stdout) if e["event"] == "checkpoint"]
    check((2, "k.ck") in kept and kept[-1] == (4, "k.ck"), f"checkpoints: {kept}")
    says(train("--full", "--checkpoint", "k.ck", "--resume", "-o", "f.gguf", code=3, steps=4), "not a checkpoint of training over all weights (--full)")
    for keeps in (["--checkpoint", "i.ck"], []):
        command = [MESHMIND, "train", "-m", MODEL, "-d", "train.jsonl", "--steps", "5000", "--warmup", "0", "--batch", "128", "-t", "1", "-o", "i.gguf", "--json", *keeps]
        running = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        running.stdout.readline()
        running.send_signal(signal.SIGTERM)
        last = events_of(running.communicate(timeout=300)[0])[-1]
        check(last["event"] == "interrupted" and last["steps"] == 5000 and last["kept"] == (keeps[1] if keeps else None), f"last event: {last}")


def second_signal(folder):
    """The first ends a run in order; whoever does not wait for that ends it with the same signal once more."""
    def catches(process):
        caught = re.search(r"SigCgt:\s*(\w+)", pathlib.Path(f"/proc/{process.pid}/status").read_text())[1]
        return process.poll() is None and int(caught, 16) >> (signal.SIGINT - 1) & 1

    command = ["train", "-m", MODEL, "-d", "train.jsonl", "--steps", 1, "--warmup", 0, "--batch", 4096, "--micro", 4096, "-t", 1, "-o", "s.gguf", "--checkpoint", "s.ck"]
    process = subprocess.Popen([MESHMIND, *map(str, command)], stderr=subprocess.PIPE, text=True, env={**os.environ, "OMM_ISA": "scalar"},
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    wait_for("a run that takes signals", lambda: catches(process))
    process.send_signal(signal.SIGINT)  # its only micro-batch takes a second and more
    wait_for("the first signal", lambda: not catches(process))
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=300)[1]
    check(process.returncode == -signal.SIGINT and not list(folder.glob("s.*")), f"two signals: exit {process.returncode}: {said}")


def shared_checkpoint(folder):
    """Of two runs with one checkpoint that neither found, who comes second ends there, and what the first has kept stays; one that was
    taken away is written anew."""
    def events_until(process, name):
        for line in process.stdout:
            if json.loads(line)["event"] == name:
                return
        check(False, f"no {name}: {process.stderr.read()}")

    def start(rate, every=2):
        args = ["train", "-m", MODEL, "-d", "train.jsonl", "--steps", 3000, "--warmup", 0, "--batch", 128, "--micro", 128, "-t", 1, "--lr", rate,
                "--checkpoint", "shared.ck", "--checkpoint-every", every, "-o", f"of-{rate}.gguf", "--json"]
        return subprocess.Popen([MESHMIND, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    first, second, third = start(0.001), None, None
    try:
        events_until(first, "step")
        first.send_signal(signal.SIGSTOP)
        (folder / "shared.ck").unlink(missing_ok=True)
        second = start(0.002)
        events_until(second, "checkpoint")
        second.send_signal(signal.SIGSTOP)
        kept = (folder / "shared.ck").read_bytes()
        first.send_signal(signal.SIGCONT)
        _, said = first.communicate(timeout=300)
        check(first.returncode == 3 and "--checkpoint shared.ck: another program has written it meanwhile" in said, f"{first.returncode}: {said}")
        check((folder / "shared.ck").read_bytes() == kept, "the other run's checkpoint was written over")
        (folder / "shared.ck").unlink()
        second.send_signal(signal.SIGCONT)
        events_until(second, "checkpoint")
        second.send_signal(signal.SIGINT)
        _, said = second.communicate(timeout=300)
        check(second.returncode == 3 and "shared.ck keeps it" in said and (folder / "shared.ck").exists(), f"{second.returncode}: {said}")
        # Also where it was the run's own before, and whether another file has its name or another text is in it.
        for into in False, True:
            (folder / "shared.ck").unlink()
            third = start(0.003, 50)  # far from its next one when it is stopped
            events_until(third, "checkpoint")
            third.send_signal(signal.SIGSTOP)
            (folder / "other.ck").write_bytes(b"another's")
            if into:
                (folder / "shared.ck").write_bytes(b"another's")
            else:
                (folder / "other.ck").rename(folder / "shared.ck")
            third.send_signal(signal.SIGCONT)
            _, said = third.communicate(timeout=300)
            check(third.returncode == 3 and "another program has written it meanwhile" in said and (folder / "shared.ck").read_bytes() == b"another's", f"{third.returncode}: {said}")
    finally:
        for process in (first, second, third):
            if process and process.poll() is None:
                process.kill()


def pretraining(folder):
    keys = run("pretrain", "--keys").stdout
    documented = (SOURCE / "docs" / "training.md").read_text()
    for key in ("vocabulary.control", "model.start", "training.order", "training.unseen_spread", "valid_every"):
        check(re.search(rf"^{re.escape(key)}: .* - .", keys, re.M), f"{key} is not described: {keys}")
    check("pretrain --keys" in documented, "docs/training.md does not say where the keys are")
    says(run("pretrain", BASE / "pretrain.yaml", "-o", "p.gguf", code=2), "pretrain.yaml", "vocabulary.txt", "--data", "tools/make_base.sh")
    text = (BASE / "pretrain.yaml").read_text()
    (folder / "chat_template.jinja").write_text((BASE / "chat_template.jinja").read_text())
    for one in ("vocabulary.txt", "part1.txt", "part2.txt", "valid.txt"):
        (folder / one).write_text("the mesh learns a word\n" * 400)
    (folder / "bad.yaml").write_text(text.replace('eos: "<|im_end|>"', 'eos: "<|end|>"'))
    says(run("pretrain", "bad.yaml", "-o", "p.gguf", code=2), "bad.yaml", "vocabulary.eos", "<|end|>", "accepted")
    run("pretrain", "bad.yaml", "-o", "made/for/p.gguf", "--checkpoint", "made/too/p.ck", code=2)
    check(not (folder / "made").exists(), "folders of a model that was not made stay behind")
    for more in (["--checkpoint", "p.ck"], ["--resume"]):
        says(run("pretrain", "pretrain.yaml", "-o", "p.gguf", "--start", *more, code=2), "--start makes no step")


with tempfile.TemporaryDirectory(prefix="omm-train-files-") as name:
    folder = pathlib.Path(name)
    os.chdir(folder)
    lines = (BASE / "train.jsonl").read_text().splitlines(True)
    (folder / "train.jsonl").write_text("".join(lines[:12]))
    (folder / "held.jsonl").write_text("".join(lines[12:14]))
    (folder / "empty").mkdir()
    round_trips(folder)
    goes_on_as_it_was(folder)
    refusals(folder)
    events(folder)
    second_signal(folder)
    shared_checkpoint(folder)
    pretraining(folder)

#!/usr/bin/env python3
"""A tiny model from nothing: the same bytes with any number of threads and on every instruction set, and
those of the golden below; stopped by a signal and resumed; what the file says is in the model; refusals.

A second program, where there is one, takes a part of the runs: the bytes are the same for every build.

usage: pretrain_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
       pretrain_test.py SOURCE_DIR MESHMIND shipped      the shipped base model: its vocabulary made again, and the first steps of its training
"""
import hashlib, json, math, os, pathlib, random, re, resource, signal, subprocess, sys, tempfile

from live import fail, program
from retemplate import retemplate

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
FASTER = MESHMIND if sys.argv[3:] == ["shipped"] else program(sys.argv[2:])
BASE = SOURCE / "scenarios" / "base"
# Text and model of the run below.  Another Python would have to write other text to change the second alone.
TEXT = "f32d394fb3c457545d8134b73f9d02996329906eee92749e0967d2064891df6b"
MUON = "a7042de3b702c7ffb3358ceaf4a44cad8f91853a3ad44b0826dee366f485cd5c"
MODEL = "7ecc52e3af752268469610510e3d5ae4fb0808d55a567a798736bf24c4027f5f"
# Of the same where tokens of no text stay as training leaves them.
LEFT = "818a6dfad08b2091fa91e41fceadf127619d11e14d6cb7250b65803d2b707615"
# Of the steps of scenarios/base/pretrain.yaml.
FIRST_LOSSES = [7.677770137786865, 7.783690452575684, 7.780003070831299, 7.580641746520996, 7.272591590881348, 7.085103511810303]
CONFIG = """
name: Test
vocabulary:
  texts: [text.txt]
  size: 340
  control: ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
  user: ["<tool_call>", "</tool_call>"]
  bos: "<|endoftext|>"
  eos: "<|im_end|>"
model: {layers: 2, width: 24, feed_forward: 40, heads: 4, kv_heads: 2, context: 128}
training:
  texts: [text.txt]
  steps: 12
  batch_tokens: 512
  micro_tokens: 300
  learning_rate: 0.01
  warmup_steps: 2
valid_text: valid.txt
valid_every: 6
"""
folder = tempfile.TemporaryDirectory()
work = pathlib.Path(folder.name)


def run(*args, code=0, meshmind=MESHMIND, **env):
    done = subprocess.run([meshmind, *map(str, args)], capture_output=True, text=True, env={**os.environ, **env},
                          timeout=1200)
    if done.returncode != code:
        fail(f"{args}: exit {done.returncode} instead of {code}: {done.stderr}")
    return done


def corpus(name, *args):
    subprocess.run([sys.executable, BASE / "corpus.py", work / name, *map(str, args)], check=True, capture_output=True)
    return hashlib.sha256((work / name).read_bytes()).hexdigest()


def pretrain(*args, config="tiny.yaml", **more):
    out = run("pretrain", work / config, "--out", work / "out.gguf", "--json", *args, **more).stdout
    return [json.loads(line) for line in out.splitlines()]


def shipped():
    """The 52 MB that the vocabulary was trained on give its merges again, key by key; and what tools/make_base.sh trains begins as it did
    when the shipped file was made: a change of arithmetic, of corpus.py or of the recipe shows in the first losses."""
    child = subprocess.Popen(["bash", SOURCE / "tools" / "make_base.sh", work / "out.gguf", work, "--json"], env={**os.environ, "MESHMIND": MESHMIND},
                             stdout=subprocess.PIPE, text=True)
    losses = [json.loads(child.stdout.readline())["loss"] for _ in FIRST_LOSSES]
    child.kill()
    child.wait()
    if losses != FIRST_LOSSES:
        fail(f"the first steps of the recipe had losses of {FIRST_LOSSES}, now {losses}")
    run("pretrain", BASE / "pretrain.yaml", "--data", work, "--out", work / "start.gguf", "--start")
    (work / "sample").write_text("A sample.")
    ids = [run("tokenize", "-m", model, "--file", work / "sample", "--json").stdout
           for model in (work / "start.gguf", BASE / "openmeshmind-tiny-F16.gguf")]
    digests = [json.loads(t)["tokenizer_digest"] for t in ids]
    if digests[0] != digests[1]:
        fail("the vocabulary is not that of the shipped model")


if sys.argv[3:] == ["shipped"]:
    shipped()
    sys.exit(0)

text = corpus("text.txt", "--mb", 0.15, "--seed", 3, "--phase", 4)
corpus("valid.txt", "--mb", 0.01, "--seed", 4, "--phase", 4)
(work / "tiny.yaml").write_text(CONFIG)
events = pretrain("--threads", 1)
result = events[-1]
if text != TEXT:
    fail(f"corpus.py wrote another text: {text}")
if result["digest"] != MODEL:
    fail(f"another model: {result['digest']}")
steps = [e for e in events if e["event"] == "step"]
losses = [e["loss"] for e in steps]
if min(e["memory_bytes"] for e in steps) < 1 << 20 or not steps[0]["eta_s"] > steps[-1]["eta_s"] == 0:
    fail(f"memory and time left: {steps}")
judged = [(e["step"], e["loss"]) for e in events if e["event"] == "evaluation"]
if len(losses) != 12 or losses[-1] > losses[0] - 0.6 or [s for s, _ in judged] != [6, 12]:
    fail(f"losses {losses}, judged {judged}")
weights = 340 * 24 + 2 * (24 * (2 * 24 + 2 * 12) + 3 * 24 * 40 + 2 * 24) + 24
if (result["weights"], result["moments"]) != (weights, 2 * weights):
    fail(f"{weights} weights: {result}")
if not judged[1][1] < judged[0][1] or abs(result["held_out_loss"] - judged[1][1]) > 0.02 or result["vocabulary"] != 340:
    fail(f"judged {judged}, result {result}")

# What it says of itself, and that it is a model like any other.
shown = run("inspect", work / "out.gguf").stdout
for word in ('"llama"', '"Test"', "string[340]", "F16      24 x 340", "F32      24"):
    if " ".join(word.split()) not in " ".join(shown.split()):
        fail(f"inspect does not show {word}: {shown}")
loss = json.loads(run("perplexity", "-m", work / "out.gguf", "-f", work / "valid.txt", "--separator",
                      "<|endoftext|>", "--special", "--json").stdout)["loss"]
if abs(loss - result["held_out_loss"]) > 0.005:
    fail(f"perplexity of the file finds a loss of {loss}, pretrain {result['held_out_loss']}")

# What is judged at the end is the file: of four bits a weight it is not what was trained.
(work / "coarse.yaml").write_text(CONFIG.replace("width: 24, feed_forward: 40", "width: 32, feed_forward: 64") + "type: Q4_0\n")
*events, coarse = [json.loads(line) for line in run("pretrain", work / "coarse.yaml", "--out", work / "coarse.gguf", "--json", meshmind=FASTER).stdout.splitlines()]
trained = [e["loss"] for e in events if e["event"] == "evaluation"][-1]
loss = json.loads(run("perplexity", "-m", work / "coarse.gguf", "-f", work / "valid.txt", "--separator",
                      "<|endoftext|>", "--special", "--json", meshmind=FASTER).stdout)["loss"]
if abs(coarse["held_out_loss"] - loss) > 0.01 or coarse["held_out_loss"] == trained:
    fail(f"perplexity of the file finds {loss}, pretrain {coarse['held_out_loss']}, and {trained} on the way")

# The same bytes.
for threads, isa in ((3, None), (2, "scalar"), (1, "avx2")):
    more = {"meshmind": FASTER, **({"OMM_ISA": isa} if isa else {})}
    if isa == "avx2" and "avx2" not in pathlib.Path("/proc/cpuinfo").read_text():
        continue
    got = pretrain("--threads", threads, **more)[-1]["digest"]
    if got != MODEL:
        fail(f"{threads} threads, {isa or 'best'}: {got}")
(work / "other.yaml").write_text(CONFIG.replace("micro_tokens: 300", "micro_tokens: 4096"))
if pretrain(config="other.yaml", meshmind=FASTER)[-1]["digest"] != MODEL:
    fail("micro_tokens changed the model")
(work / "other.yaml").write_text(CONFIG + "seed: 2\n")
if pretrain(config="other.yaml", meshmind=FASTER)[-1]["digest"] == MODEL:
    fail("the seed changes nothing")
(work / "left.yaml").write_text(CONFIG.replace("steps: 12", "steps: 12\n  unseen_spread: 0"))
left = pretrain(config="left.yaml", meshmind=FASTER)[-1]
if left["digest"] != LEFT or left["unseen_tokens"] != result["unseen_tokens"] or abs(left["held_out_loss"] - judged[1][1]) > 0.001:
    fail(f"tokens of no text set apart, or left: {result}, {left}")
if not 100 < result["unseen_tokens"] < 240:  # of 256 bytes those that no text of ASCII has, at least
    fail(f"tokens of no text: {result}")

# Stopped and resumed.
checkpoint = ["--checkpoint", work / "ck", "--checkpoint-every", "5"]
child = subprocess.Popen([MESHMIND, "pretrain", work / "tiny.yaml", "--out", work / "stopped.gguf", "--json",
                          *checkpoint], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
child.stdout.readline()
child.send_signal(signal.SIGTERM)
_, err = child.communicate(timeout=600)
if child.returncode not in (0, 3) or (child.returncode == 3 and "stopped after step" not in err):
    fail(f"SIGTERM: exit {child.returncode}: {err}")
err = run("pretrain", work / "tiny.yaml", "--out", work / "x.gguf", "--data", "/nowhere", *checkpoint, code=2).stderr
if "is there already: --resume goes on with it" not in err:  # before texts are looked for, of which a vocabulary may take minutes
    fail(f"a checkpoint that is there: {err}")
resumed, done = pretrain(*checkpoint, "--resume"), 0
if resumed[-1]["digest"] != MODEL:
    fail("a resumed run ends with another model")
steps = [e for e in resumed if e["event"] == "step"]
for e in steps:  # speed and time left are of what this process has done
    done += e["tokens"]
    left = done / e["tokens_per_s"] * (12 - e["step"]) / (e["step"] - (12 - len(steps)))
    if abs(e["eta_s"] - left) > 1e-6 * left:
        fail(f"resumed: {done} tokens done, {left} s left: {e}")
if steps and abs(done / steps[-1]["tokens_per_s"] / resumed[-1]["seconds"] - 1) > 1e-6:
    fail(f"resumed: {done} tokens: {steps[-1]}, {resumed[-1]}")
again = pretrain(*checkpoint, "--resume")  # nothing is left to do: the same once more
if [e["event"] for e in again if e["event"] == "step"] or (again[-1]["digest"], again[-1]["held_out_loss"]) != (MODEL, result["held_out_loss"]):
    fail(f"resumed at its end: {again}")
run("pretrain", work / "other.yaml", "--out", work / "x.gguf", *checkpoint, "--resume", code=3)

# What the file will have beside its weights is the checkpoint's, too: another vocabulary of as many tokens, a template, a name.
KEYS = "ck: the checkpoint belongs to another vocabulary, another chat template or other keys of the model's file\n"
corpus("words.txt", "--mb", 0.05, "--seed", 5, "--phase", 4)
(work / "one.jinja").write_text("one")
for change in (("texts: [text.txt]\n  size", "texts: [words.txt]\n  size"), ("name: Test", "name: Test\nchat_template: one.jinja"), ("name: Test", "name: Tess")):
    (work / "keys.yaml").write_text(CONFIG.replace(*change))
    err = run("pretrain", work / "keys.yaml", "--out", work / "x.gguf", *checkpoint, "--resume", code=3).stderr
    if KEYS not in err or (work / "x.gguf").exists():
        fail(f"{change[1]}: {err}")

# The last checkpoint has no room (a limit of a file's size here): the model, which is smaller, is written all the same.
room = (work / "out.gguf").stat().st_size + 1000
done = subprocess.run([FASTER, "pretrain", work / "tiny.yaml", "--out", work / "small.gguf", "--checkpoint", work / "no.ck"], capture_output=True, text=True,
                      preexec_fn=lambda: (signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))))
if done.returncode != 0 or "no.ck: File too large" not in done.stderr or MODEL not in done.stdout or (work / "no.ck").exists():
    fail(f"no room for the last checkpoint: exit {done.returncode}: {done.stderr}")
told = f"held-out loss {result['held_out_loss']:.4f} as the file has it (F16), perplexity {math.exp(result['held_out_loss']):.4f}; {result['unseen_tokens']} of its tokens are in no text"
if told not in done.stdout:
    fail(f"no '{told}' in {done.stdout}")

# Without a checkpoint: nothing is kept, which is said with what would.
child = subprocess.Popen([MESHMIND, "pretrain", work / "tiny.yaml", "--out", work / "lost.gguf", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True)
child.stdout.readline()
child.send_signal(signal.SIGINT)
_, err = child.communicate(timeout=600)
if child.returncode != 3 or "nothing of it is kept; with --checkpoint FILE it would be" not in err or (work / "lost.gguf").exists():
    fail(f"SIGINT without a checkpoint: exit {child.returncode}: {err}")

# Muon, texts one after the other, a start that copies: learns, keeps less, the same bytes with any number of threads and when resumed.
corpus("first.txt", "--mb", 0.02, "--seed", 3, "--phase", 6)
(work / "muon.yaml").write_text(
    CONFIG.replace("steps: 12", "steps: 12\n  order: listed\n  optimizer: muon\n  momentum: 0.9\n  matrix_rate: 4")
    .replace("  texts: [text.txt]\n  steps", "  texts: [first.txt, text.txt]\n  steps").replace("context: 128", "context: 128, start: induction"))
events = pretrain("--threads", 1, config="muon.yaml")
first, muon = next(e for e in events if e["event"] == "evaluation"), events[-1]
if muon["digest"] != MUON or not muon["held_out_loss"] < first["loss"] or not muon["moments"] < result["moments"]:
    fail(f"muon: {first}, {muon}")
kept = ["--checkpoint", work / "mk", "--checkpoint-every", "5"]
stopped = subprocess.Popen([FASTER, "pretrain", work / "muon.yaml", "--out", work / "x.gguf", "--json", *kept],
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
stopped.stdout.readline()
stopped.send_signal(signal.SIGTERM)
stopped.communicate(timeout=600)
if pretrain(*kept, "--resume", "--threads", 3, config="muon.yaml", meshmind=FASTER)[-1]["digest"] != MUON:
    fail("a resumed run with muon ends with another model")
run("pretrain", work / "tiny.yaml", "--out", work / "x.gguf", *kept, "--resume", code=3)

# Start weights with the circuit: before any training, words that come again and again are expected, others are not.
words = sorted(set(re.findall("[a-z]{4,}", (BASE / "valid.txt").read_text())))
draw = random.Random(1)


def lists(name, again):
    drawn = [[draw.sample(words, 12) for _ in range(8)] for _ in range(8)]
    (work / name).write_text("".join(" ".join(w for line in (d[:1] * 8 if again else d) for w in line) + "<|endoftext|>" for d in drawn))


def untrained(start):
    (work / "start.yaml").write_text(f"""
name: Start
vocabulary: {{from: {BASE / 'openmeshmind-tiny-F16.gguf'}}}
model: {{layers: 3, width: 256, feed_forward: 64, heads: 8, kv_heads: 4, context: 512, start: {start}}}
training: {{texts: [text.txt], steps: 1}}
""")
    run("pretrain", work / "start.yaml", "--out", work / "start.gguf", "--start", meshmind=FASTER)
    return [json.loads(run("perplexity", "-m", work / "start.gguf", "-f", work / name, "--separator", "<|endoftext|>", "--special", "--json",
                           meshmind=FASTER).stdout)["loss"] for name in ("again.txt", "new.txt")]


lists("again.txt", True)
lists("new.txt", False)
(again, new), (drawn_again, drawn_new) = untrained("induction"), untrained("random")
if not again < new - 0.25 or not abs(drawn_again - drawn_new) < 0.1:
    fail(f"start: induction: loss {again} on words again and again, {new} on others; random: {drawn_again}, {drawn_new}")

# All weights of a model that is there: the loss on what it learns falls, with AdamW and in GaLore's subspaces,
# with the same bytes for any number of threads; the file is a model of the same kind.  It has the vocabulary and the width of the shipped
# model, and a third of its weights, as every run reads and writes all of them.
(work / "chat.jinja").write_text((BASE / "chat_template.jinja").read_text())
(work / "third.yaml").write_text(f"""
name: Third
chat_template: chat.jinja
vocabulary: {{from: {BASE / 'openmeshmind-tiny-F16.gguf'}}}
model: {{layers: 3, width: 256, feed_forward: 256, heads: 8, kv_heads: 4, context: 512}}
training: {{texts: [text.txt], steps: 1}}
""")
run("pretrain", work / "third.yaml", "--out", work / "third.gguf", "--start", meshmind=FASTER)
WEIGHTS = 2048 * 256 + 3 * (256 * (2 * 256 + 2 * 128) + 3 * 256 * 256 + 2 * 256) + 256
lines = (BASE / "train.jsonl").read_text().split("\n")[:4]
(work / "few.jsonl").write_text("\n".join(lines) + "\n")


def full(*args, code=0, meshmind=FASTER, data="few.jsonl"):
    done = run("train", "-m", work / "third.gguf", "--data", work / data, "--eval",
               work / "few.jsonl", "--out", work / "full.gguf", "--full", "--json", "--batch", 400, "--new-tokens", 0, *args, code=code,
               meshmind=meshmind)
    return [json.loads(line) for line in done.stdout.splitlines()] if code == 0 else done.stderr


def loss_of(result, when):
    return result["evaluation"][when]["loss"]


for kind in ([], ["--optimizer", "galore", "--galore-rank", 8, "--galore-every", 1, "--lr", 0.01]):
    first = full("--steps", 2, "--threads", 1, *kind, meshmind=MESHMIND)[-1]
    if not loss_of(first, "after") < 0.95 * loss_of(first, "before"):
        fail(f"--full {kind}: {first}")
    if first["weights"] != WEIGHTS or (first["moments"] != 2 * WEIGHTS) != bool(kind):
        fail(f"--full {kind} keeps {first}")
    again = full("--steps", 2, "--threads", 2, "--micro", 300, "--checkpoint", work / f"fk{len(kind)}",
                 "--checkpoint-every", 1, *kind, meshmind=FASTER)[-1]
    if again["model_digest"] != first["model_digest"] or loss_of(again, "after") != loss_of(first, "after"):
        fail(f"--full {kind}: {first}, then {again}")
    resumed = full("--steps", 2, "--micro", 300, "--checkpoint", work / f"fk{len(kind)}", "--resume", *kind)[-1]
    if resumed["model_digest"] != first["model_digest"] or loss_of(resumed, "before") != loss_of(first, "before"):
        fail(f"--full {kind}, resumed: {resumed}")
    own = (work / "third.gguf").read_bytes()
    retemplate(work / "third.gguf", work / "other.gguf", "another")
    (work / "other.gguf").rename(work / "third.gguf")
    err = full("--steps", 2, "--checkpoint", work / f"fk{len(kind)}", "--resume", *kind, code=3)
    if KEYS not in err.replace(f"fk{len(kind)}", "ck"):
        fail(f"--full {kind}, resumed with another template: {err}")
    (work / "third.gguf").write_bytes(own)

# Of a model's file that is another one's by the end the keys are kept; what was written into is not trusted.
for into in False, True:
    child = subprocess.Popen([FASTER, *map(str, ["train", "-m", work / "third.gguf", "--data", work / "few.jsonl", "--out", work / "full.gguf", "--full", "--json", "--batch", 400,
                              "--steps", 2])], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    child.stdout.readline()
    child.send_signal(signal.SIGSTOP)
    retemplate(work / "third.gguf", work / "other.gguf", "another")
    if into:
        (work / "third.gguf").write_bytes(own)
    else:
        (work / "other.gguf").rename(work / "third.gguf")
    child.send_signal(signal.SIGCONT)
    out, err = child.communicate(timeout=600)
    if into and (child.returncode != 3 or "third.gguf was written to while" not in err):
        fail(f"--full, the model was written into: exit {child.returncode}: {err}")
    if not into and "chat template: chatml" not in run("inspect", work / "full.gguf").stdout:
        fail(f"--full has the template of the file that took the model's place: {err}")
    (work / "third.gguf").write_bytes(own)
shown = run("inspect", work / "full.gguf").stdout
if "F16" not in shown or "chat template: chatml" not in shown:
    fail(shown)
coarse = full("--steps", 1, "--type", "Q2_K")[-1]
done = run("train", "-m", work / "full.gguf", "--data", work / "few.jsonl", "--eval", work / "few.jsonl", "--out", work / "none.gguf", "--steps", 1,
           "--batch", 64, "--new-tokens", 0, "--json", meshmind=FASTER)
if loss_of(coarse, "after") != loss_of(json.loads(done.stdout.splitlines()[-1]), "before"):
    fail(f"--full --type Q2_K: judged is not what is written: {coarse}")
full("--steps", 1, "--type", "Q4_K_M")  # as `quantize` has it: more bits for what decides on every token
shown = run("inspect", work / "full.gguf").stdout
if not re.search(r"token_embd.weight +Q6_K", shown) or not re.search(r"blk.0.attn_q.weight +Q4_K", shown):
    fail(shown)
# As an adapter has it: the best is kept (in f32, which are the weights that were judged), patience stops, a report, a plan within a limit
# and the same bytes.
judged = full("--steps", 6, "--type", "F32", "--lr", 0.05, "--eval-every", 1, "--keep", "best", "--patience", 2, "--report", work / "fr")[-1]
page = (work / "fr" / "report.html").read_text()
if not judged["stopped_early"] or judged["best_step"] == 0 or loss_of(judged, "after") != min(e["loss"] for e in judged["evaluations"]) or "<td>model</td>" not in page:
    fail(f"--full --keep best: {judged}")
(work / "many.jsonl").write_text("".join((BASE / "train.jsonl").read_text().splitlines(True)[:30]))
many = ["--batch", 2500, "--micro", 2500, "--steps", 1]
plan = full(*many, "--dry-run", data="many.jsonl")[-1]["memory"]
limit = ["--max-memory-mb", plan["planned_bytes"] // 1000000 - 20]
less = full(*many, "--dry-run", *limit, data="many.jsonl")[-1]["memory"]
if less["planned_bytes"] > limit[1] * 1000000 or not less["micro_tokens"] < plan["micro_tokens"]:
    fail(f"--full --max-memory-mb: {plan}, {less}")
tight, whole = (full(*many, *more, meshmind=meshmind, data="many.jsonl")[-1]["model_digest"]
                for more, meshmind in ((limit, MESHMIND), (["--checkpoint-layers", 2], FASTER)))
if tight != whole:
    fail(f"--full {limit}: {tight} instead of {whole}")
for megabytes, says in ((20, "loading the model takes"), (100, "weights and gradient")):
    if says not in (said := full("--steps", 1, "--max-memory-mb", megabytes, code=2)):
        fail(f"--full --max-memory-mb {megabytes}: {said}")
for args, says in ((["--start", "r"], "--start does not go with --full"), (["--dropout", 0.1], "--dropout does not"),
                   (["--rank", 8], "--rank does not"), (["--targets", "q"], "--targets does not"),
                   (["--galore-rank", 8], "needs --optimizer galore"),
                   (["--optimizer", "adam"], "accepted: adamw, sgd, adafactor, galore"), (["--optimizer", "muon"], "pretrain"), (["--type", "Q99"], "Q99"),
                   (["--optimizer", "galore", "--galore-every", 0], "every 0 steps")):
    if says not in full("--steps", 1, *args, code=2):
        fail(f"train --full {args}: {full('--steps', 1, *args, code=2)}")

# A rate that never comes to what the file says: allowed, and told.
(work / "warm.yaml").write_text(CONFIG.replace("warmup_steps: 2", "warmup_steps: 2000").replace("steps: 12", "steps: 2"))
said = [run("pretrain", work / name, "--out", work / "warm.gguf", meshmind=FASTER).stderr for name in ("tiny.yaml", "warm.yaml")]
if "warmup" in said[0] or "training.warmup_steps 2000 is longer than training.steps 2: the rate ends at 1e-05" not in said[1]:
    fail(f"warmup: {said}")

# Refusals, with what would be accepted.
for change, says in ((("kv_heads: 2", "kv_heads: 3"), "bad.yaml:LINE:COLUMN: model.kv_heads: 3 kv_heads do not divide 4 heads"),
                     (("heads: 4, ", "heads: 5, "), "bad.yaml:LINE:COLUMN: model.width: 24 in 5 heads"),
                     (("heads: 4, ", "heads: 8, "), "24 in 8 heads"),  # of an odd width
                     (("layers: 2, width: 24", "start: induction, layers: 1, width: 24"), "accepted: at least 2, 2 and 6"),
                     (("layers: 2, width: 24", "start: induction, layers: 2, width: 16"), "heads of 4 values"),
                     (("context: 128", "context: 128, start: copy"), "induction"),
                     (("steps: 12", "steps: 12\n  order: sorted"), "listed"),
                     (("texts: [text.txt]\n  size: 340", "texts: [valid.txt]\n  size: 60000"), "bad.yaml:LINE:COLUMN: vocabulary.size: the text gives"),
                     (("size: 340", "size: 340\n  words: nobody"), "bad.yaml:LINE:COLUMN: vocabulary.words: tokenizer.ggml.pre 'nobody' is not known"),
                     (("size: 340", "size: 340\n  words: gemma4"), "bad.yaml:LINE:COLUMN: vocabulary.words: tokenizer.ggml.pre 'gemma4' merges characters"),
                     (("steps: 12", "steps: 12\n  momentum: 0.5"), "bad.yaml:LINE:COLUMN: training.momentum is 0.5 with adamw"),
                     (("name: Test", "name: Test\ntype: Q9"), "bad.yaml:LINE:COLUMN: type: element type 'Q9'"),
                     (("valid_text: valid.txt", "valid_text: none.txt"), f"bad.yaml:LINE:COLUMN: valid_text: {work}/none.txt is not there; it is looked for beside CONFIG"),
                     (("steps: 12", "steps: x"), "steps"),
                     (("steps: 12", "steps: 12\n  matrix_rate: 2"), "bad.yaml:LINE:COLUMN: training.matrix_rate is 2 without muon"),
                     (("steps: 12", "steps: 12\n  optimizer: lion"), "muon"),
                     (("  texts: [text.txt]\n  steps", "  texts: [none.txt]\n  steps"),
                      f"bad.yaml:LINE:COLUMN: training.texts: {work}/none.txt is not there; texts are looked for in {work}: give --data DIR"),
                     (("  texts: [text.txt]\n  size", "  texts: [none.txt]\n  size"), f"bad.yaml:LINE:COLUMN: vocabulary.texts: {work}/none.txt is not there"),
                     (("micro_tokens: 300", 'separator: "<eos>"'), "training.separator: '<eos>' is no special token"),
                     (("  size: 340", "  from: x.gguf\n  size: 340"), "one of the two")):
    (work / "bad.yaml").write_text(CONFIG.replace(*change))
    err = run("pretrain", work / "bad.yaml", "--out", work / "bad.gguf", code=2).stderr
    if says not in re.sub(r"yaml:[1-9][0-9]*:[1-9][0-9]*:", "yaml:LINE:COLUMN:", err) or (work / "bad.gguf").exists():
        fail(f"{change[1]}: {err}")
err = run("pretrain", work / "tiny.yaml", "--out", work / "idle.gguf", "--checkpoint-every", "5", code=2).stderr
if "--checkpoint-every needs --checkpoint" not in err or (work / "idle.gguf").exists():
    fail(err)
# What the model is made from stays as it is; a text that is none is named.
for name in ("tiny.yaml", "text.txt", "valid.txt"):
    before = (work / name).read_bytes()
    err = run("pretrain", work / "tiny.yaml", "--out", work / name, code=2).stderr
    if "--out is " not in err or name not in err or (work / name).read_bytes() != before:
        fail(f"--out {name}: {err}")
(work / "named.yaml").write_text(CONFIG.replace("texts: [text.txt]\n  size", "texts: [words.txt]\n  size").replace("name: Test", "name: Test\nchat_template: one.jinja"))
for config, name in (("named.yaml", "words.txt"), ("named.yaml", "one.jinja"), ("from.yaml", "third.gguf")):
    (work / "from.yaml").write_text((work / "third.yaml").read_text().replace(str(BASE / "openmeshmind-tiny-F16.gguf"), "third.gguf"))
    before = (work / name).read_bytes()
    for more in [], ["--start"]:
        err = run("pretrain", work / config, "--out", work / name, *more, code=2).stderr
        if "--out is a file that CONFIG names" not in err or name not in err or (work / name).read_bytes() != before:
            fail(f"{config}, --out {name}: {err}")
(work / "bytes.txt").write_bytes(b"ab\xff")
(work / "bad.yaml").write_text(CONFIG.replace("[text.txt]", "[bytes.txt]"))
err = run("pretrain", work / "bad.yaml", "--out", work / "bad.gguf", code=3).stderr
if "bytes.txt: byte 2, 0xff, is not UTF-8 text" not in err:
    fail(f"a text of other bytes: {err}")
(work / "none.txt").write_text("")
for old, new, code, says in (("  texts: [text.txt]\n  steps", "  texts: [text.txt, bytes.txt]\n  steps", 3, "bytes.txt:1:3: byte 0xff is not UTF-8 text"),
                             ("valid_text: valid.txt", "valid_text: bytes.txt", 3, "bytes.txt:1:3: byte 0xff is not UTF-8 text"),
                             ("valid_text: valid.txt", "valid_text: none.txt", 2, "none.txt: no example to learn from: nothing is in it")):
    (work / "bad.yaml").write_text(CONFIG.replace(old, new))
    err = run("pretrain", work / "bad.yaml", "--out", work / "bad.gguf", code=code).stderr
    if says not in err or (work / "bad.gguf").exists():
        fail(f"{new}: {err}")
# Of a run that writes nothing no folder stays.
run("pretrain", work / "bad.yaml", "--out", work / "new" / "deep" / "bad.gguf", "--checkpoint", work / "kept" / "bad.ck", code=2)
if (work / "new").exists() or (work / "kept").exists():
    fail("folders of a run that failed stay")
print("pretrain: ok")

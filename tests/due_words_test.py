#!/usr/bin/env python3
"""Where a result is not what was meant, though nothing failed, a word says so: an adapter that storing rounds away, a text that
the context ends. And what a file may say can be asked for: `--keys` of scenarios, policies and recipes. Where a scenario is
wrong in what no table checks, the line is named.

usage: due_words_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import hashlib, json, os, pathlib, re, subprocess, sys, tempfile

from live import Findings, program, quick, said_until, write_coordinator

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), program(sys.argv[2:])
BASE = SOURCE / "scenarios" / "base"
MODEL = BASE / "openmeshmind-tiny-F16.gguf"
found = Findings()
folder = tempfile.TemporaryDirectory(prefix="omm-words-")
work = pathlib.Path(folder.name)


def run(*args, code=0):
    done = subprocess.run([MESHMIND, *map(str, args)], capture_output=True, text=True, timeout=600)
    found.check(done.returncode == code, f"{args}: exit {done.returncode} instead of {code}: {done.stderr[:400]}")
    return done


# Four bits round away what a small adapter changes, in every layer; eight and sixteen keep it.
lines = (BASE / "train.jsonl").read_text().splitlines(keepends=True)
(work / "few.jsonl").write_text("".join(lines[:8]))
few, adapter = work / "q4.gguf", work / "a.gguf"
run("quantize", MODEL, few, "Q4_0")
run("train", "-m", MODEL, "-d", work / "few.jsonl", "--out", adapter, "--steps", 2, "--batch", 64, "--seq", 64, "--rank", 2, "--warmup", 0)
merge = ["adapter", "merge", "--lora", adapter, "-o", work / "merged.gguf", "-m"]
WORD = r"in 42 of 42 layers storing rounds away more than the adapter changes.*--type Q8_0 or F16 keeps it"
for more, due in ([few], True), ([few, "--json"], True), ([few, "--type", "F16"], False), ([MODEL], False):
    done = run(*merge, *more)
    found.check(bool(re.search(WORD, done.stderr)) == due, f"merge {more[1:]}: {done.stderr}")
    if "--json" in more:
        found.check(len(json.loads(done.stdout)["tensors"]) == 42, done.stdout[:200])
    else:
        found.check(done.stdout.splitlines()[-1].startswith(f"{work / 'merged.gguf'}: 42 tensors adapted (change and error: "), done.stdout[-200:])
# Text and speeds in one file: the text first.
with open(work / "both.txt", "w") as both:
    subprocess.run([MESHMIND, "generate", "-m", str(MODEL), "-n", "3", "--stats", "Once"], stdout=both, stderr=both, check=True)
found.check((work / "both.txt").read_text().splitlines()[-1].startswith("prompt "), (work / "both.txt").read_text()[-200:])
run("quantize", MODEL, work / "x.gguf", "Q4_K_M", "--pure", code=2)
found.check(not (work / "x.gguf").exists(), "quantize --pure of a mix wrote a file")
# A text that the context ends; the last token that was asked for is no early end.
for context, count, says in ((16, 60, "ends after 14 of 60 tokens: the context of 16 positions is full; -c takes up to the 512 that the model was trained for"), (16, 14, None), (64, 8, None)):
    done = run("generate", "-m", MODEL, "-c", context, "-n", count, "leaf")
    got = [line for line in done.stderr.splitlines() if "context" in line]
    found.check(got == ([says] if says else []), f"-c {context} -n {count}: {done.stderr}")
# What files may say.
for command, keys in (("simulate", ("population[].clients", "round.deadline_ms", "codec.up.topk_fraction", "evaluation.clients", "audit.submissions")),
                      ("gate", ("quality.heldout_uplift.threshold", "communication.up_bytes_max.level")),
                      ("train", ("rank", "batch_tokens", "rank_pattern", "activations")),
                      ("pretrain", ("vocabulary.size", "training.steps"))):
    told = run(command, "--keys").stdout.splitlines()
    for key in keys:
        found.check(any(line.startswith(f"{key}: ") for line in told), f"{command} --keys has no {key}")
# What no table checks, with its line; a client without held-out items, with what would do.
(work / "test.jsonl").write_text("".join([line for line in (BASE / "test.jsonl").read_text().splitlines(keepends=True) if '"home-01"' in line][:12]))
SCENARIO = f"""schema_version: 1
name: words
model: {MODEL}
train: {BASE}/train.jsonl
test: test.jsonl
rounds: 1
population:
  - group: homes
    clients: [home-01, home-02]
recipe:
  rank: 4
"""
for old, new, says in (("name: words", "name: a/b", r"s.yaml:2:7: name: 'a/b' is no plain name"),
                       ("home-02", "home-01", r"s.yaml:8:3: population: node 'home-01' occurs twice"),
                       ("home-02", "nobody", r"s.yaml:8:3: population: .*no example of client 'nobody'"),
                       ("rank: 4", "rank: 4\n  momentum: 0.5", r"s.yaml:12:13: recipe: momentum is 0.5 with adamw"),
                       ("rank: 4", "rank: 4\n  optimizer: sgd\n  beta1: 0.5", r"s.yaml:13:10: recipe.beta1 is of adamw"),
                       ("rank: 4", "rank: 8", r"s.yaml:5:7: test: .*no example of client 'home-02'.*evaluation: .clients: all")):
    (work / "s.yaml").write_text(SCENARIO.replace(old, new))
    done = run("simulate", work / "s.yaml", "--out", work / "bundle", code=2)
    found.check(re.search(says, done.stderr), f"{new}: {done.stderr}")
# What the recipe does to data and rate, and a number of nodes that there is not; nothing of it without need.
one = SCENARIO.replace("rank: 4", "rank: 4\n  steps: 1\n  warmup_steps: 0\n  batch_tokens: 64").replace(", home-02", "")
one += "evaluation: {round_items: 4, generate: false}\naudit: {submissions: 1, scalar_steps: 0}\n"
one = one.replace(f"{BASE}/train.jsonl", "home.jsonl")
(work / "home.jsonl").write_text("".join(line for line in lines if '"home-01"' in line))
for count, (old, new, says) in enumerate((
        ("rank: 4", "rank: 4", ()),
        ("warmup_steps: 0", "warmup_steps: 1", ()),
        ("rank: 4", "rank: 4\n  seq_max: 64", (r"train: recipe.seq_max 64 cuts \d+ of \d+ examples and leaves out \d+, in which nothing is learned before it", r"test: recipe.seq_max 64 cuts")),
        ("warmup_steps: 0", 'warmup_steps: 2\n  rank_pattern: "q=2,*=3"', (r"recipe.warmup_steps 2 is longer than recipe.steps 1, .* does not come to recipe.learning_rate 0.01",
                                                                          r"recipe.rank_pattern: 'q' changes nothing: rules behind it name all of its layers")),
        ("rounds: 1", "rounds: 1\nround: {select: 2}", (r"round.select is 2, of 1 in all: every node is selected",)))):
    (work / "one.yaml").write_text(one.replace(old, new))
    done = run("simulate", work / "one.yaml", "--out", work / f"one {count}", "-q", code=1)
    got = re.findall("warning: (.*)", done.stderr)
    found.check(len(got) == len(says) and all(map(re.search, says, got)), f"{new}: {done.stderr}")
    found.check(done.stdout.endswith(f"verify '{work}/one {count}'\n"), f"what comes next, of a path with a space: {done.stdout[-200:]}")
done = run("compare", work / "one 0", work / "one 2", code=2)
found.check(re.search(r"another vocabulary, or a recipe.seq_max that cuts it|judged on .*a recipe.seq_max that leaves some out", done.stderr), f"compare, seq_max: {done.stderr}")
cut = json.loads((work / "one 2/run.json").read_text())["test"]
(work / "cut.yaml").write_text(one.replace("rank: 4", "rank: 4\n  seq_max: 64"))
done = run("simulate", work / "cut.yaml", "--out", work / "again", "-q", code=1)
told = re.search(r"test: recipe.seq_max 64 cuts (\d+) of (\d+) examples and leaves out (\d+)", done.stderr)
found.check(told and (cut.get("cut", 0), cut["items"] + cut.get("left_out", 0), cut.get("left_out", 0)) == tuple(map(int, told.groups())) and cut["cut"] > 0,
            f"run.json says {cut}, and the warning {told and told.groups()}")
found.check(set(json.loads((work / "one 0/run.json").read_text())["test"]) == {"digest", "items"}, "of data that nothing cuts run.json says more than it did")
done = run("replay", work / "again", "--eval", "--data", work)
found.check("identical: " in done.stdout and "\n  not verified: whether the bundle is what was signed; `meshmind verify` says\n" in done.stdout, done.stdout)
# Of this very file run.json says something that is not so: no trouble, but a difference.
was = (agreed := work / "again/run.json").read_text()
agreed.write_text(was.replace(f'"cut":{cut["cut"]}', f'"cut":{cut["cut"] + 1}'))
done = run("replay", work / "again", "--eval", "--data", work, code=1)
found.check(f"first difference: run.json, test.cut: in the bundle {cut['cut'] + 1}, repeated {cut['cut']}\n" in done.stdout, done.stdout)
said = json.loads(run("replay", work / "again", "--eval", "--data", work, "--json", code=1).stdout)
found.check((said["verified"], said["equal"], said["path"], said["what"]) == (False, False, "run.json", "test.cut"), said)
agreed.write_text(was)
# A file that is cut off is the bundle's fault, as it is to verify, and no trouble to try again.
was = (rows := work / "again/eval/after.jsonl").read_bytes()
rows.write_bytes(was[:-1])
done = run("replay", work / "again", "--eval", "--data", work, code=1)
found.check("replay: eval/after.jsonl: the last line has no newline\n" in done.stderr, done.stderr)
rows.write_bytes(was)
# A held-out item that is there twice counts twice: simulate, a service that begins (not one that goes on), and train say so.
items = (work / "test.jsonl").read_text().splitlines(keepends=True)
(work / "twice.jsonl").write_text("".join([*items[:4], items[1], items[5], items[1]]))
TWICE = "2 of 7 held-out items are there before, and count again: line 5 = 2, line 7 = 2"
doubled = one.replace("test: test.jsonl", "test: twice.jsonl").replace("rank: 4", "rank: 4\n  seq_max: 64")
(work / "twice.yaml").write_text(doubled)
done = run("simulate", work / "twice.yaml", "--out", work / "twice", "-q", code=1)
found.check(f"warning: test: {TWICE}\n" in done.stderr, done.stderr)
write_coordinator(work, 0, "twice.yaml")

begin = [MESHMIND, "coordinator", "-c", work / "coordinator.yaml"]
_, said = said_until(begin, "listening")
for word in (f"test: {TWICE}", "train: recipe.seq_max 64 cuts", "test: recipe.seq_max 64 cuts"):
    found.check(any("scenario_doubt" in line and word in line for line in said.splitlines()), f"no '{word}' in {said}")
_, again = said_until(begin, "listening")
found.check("listening" in again and "scenario_doubt" not in again, again)
short = ["train", "-m", MODEL, "-d", work / "few.jsonl", "--eval", work / "twice.jsonl", "--out", work / "b.gguf", "--steps", 1, "--batch", 64, "--seq", 64, "--rank", 2,
         "--warmup", 0, "--new-tokens", 0]
done = run(*short, "--json")
name = work / "twice.jsonl"
found.check(f"2 of 7 held-out examples are there before, and count again: {name}:5 = {name}:2, {name}:7 = {name}:2\n" in done.stderr, done.stderr)
judged = json.loads(done.stdout.splitlines()[-1])["evaluation"]
found.check((judged["doubles"], judged["double_lines"], judged["seq_max"], judged["cut"], judged["left_out"]) == (2, [[2, 5], [2, 7]], 512, 0, 0), judged)
done = run(*short[:5], *short[7:], "--split", 0.5, "--json")
judged = json.loads(done.stdout.splitlines()[-1])["evaluation"]
found.check(judged["seq_max"] == 64 and judged["cut"] is None and judged["left_out"] is None and judged["doubles"] == 0 and "count again" not in done.stderr, f"--split: {judged}, {done.stderr}")
# Another model than the run's, more steps than a round has: what would be taken, and what was compared.
(data := work / "three").mkdir()
quick(data)
run("simulate", data / "processes.yaml", "--out", work / "run", "-q")
run("simulate", data / "processes.yaml", "--out", work / "run", "-q", code=2)
done = run("replay", work / "run", "--node", "cafe-02", "--round", 5, "--data", data, code=2)
found.check("round 5 has no accepted submission of that node: the run has rounds 0 to 1, and accepted it in 0, 1\n" in done.stderr, f"replay --round 5: {done.stderr}")
again = ["replay", work / "run", "--node", "cafe-02", "--round", 0, "--data", data, "--steps"]
done = run(*again, 99, code=2)
steps = re.search(r"--steps 99: round 0 has (\d+); accepted: 1 to (\d+), or without --steps all of them and the payload", done.stderr)
found.check(steps and steps[1] == steps[2], done.stderr)
done = run(*again, steps[1])
found.check(re.search(rf"its first {steps[1]} steps and no more .*\n  signed    [0-9a-f]{{16}}\n  repeated  [0-9a-f]{{16}}\n", done.stdout), done.stdout)
said = json.loads(run(*again, 1, "--json").stdout)
found.check(len(said["expected"]) == 16 and said["verified"] is False, f"replay --steps --json: a padded digest, or verified: {said}")
for how in (again[2:6], ["--eval"]):
    done = run("replay", work / "run", *how, "--data", data, "-m", few, code=2)
    found.check(re.search(r"the base model here is not the run's: q4.gguf, BLAKE2b-256 [0-9a-f]{64}; accepted: the run's openmeshmind-tiny-F16.gguf, "
                          rf"{MODEL.stat().st_size} bytes, BLAKE2b-256 {hashlib.blake2b(MODEL.read_bytes(), digest_size=32).hexdigest()}", done.stderr), done.stderr)
# Shares and rates that cannot be meant.
train = ["train", "-m", MODEL, "-d", work / "few.jsonl", "--out", work / "b.gguf", "--steps", 1, "--batch", 64, "--seq", 64, "--rank", 2]
for share in (0, 1, 1.5, -1, "nan"):
    done = run(*train, "--split", share, code=2)
    found.check(f"--split {share}; accepted: over 0 and under 1" in done.stderr or (share == "nan" and "--split" in done.stderr), done.stderr)
done = run(*train, "--lr", 0, "--warmup", 5)
found.check("--lr 0: nothing is learned: what comes out is what the run starts from\n" in done.stderr and "--warmup" not in done.stderr, done.stderr)
found.check("--lr" not in run(*train, "--warmup", 0).stderr, "--lr is warned of for nothing")
for options, due in ((["--new-tokens", 5], True), (["--new-tokens", 0], False), ([], False), (["--new-tokens", 5, "--split", 0.5], False)):
    done = run(*train, "--warmup", 0, *options)
    found.check(("--new-tokens 5: nothing is held out (--eval FILE, --split X), so nothing is answered\n" in done.stderr) == due, f"{options}: {done.stderr}")
# What the options alone say is refused before a file is read, and nothing else is said then: not of the file that would be replaced, nor of the rate.
(work / "ck").write_text("")
absent = [*train[:4], work / "absent.jsonl", *train[5:]]
for options, word in ((["--rank", 0], "--rank: rank is 0"), (["--threads", "x"], "--threads 'x'"), (["--keep", "all"], "--keep 'all'"), (["--patience", 2], "--eval-every N"),
                      (["--keep", "best"], "--eval-every N"), (["--eval-every", 1], "--eval FILE or --split X"), (["--split-by", "item"], "X is missing"),
                      (["--split", 0.5, "--split-by", "clock"], "accepted: item, client"), (["--split", 0.5, "--eval", "x"], "one of them is enough"), (["--resume"], "--checkpoint FILE"),
                      (["--checkpoint", work / "ck"], "is there already: --resume"), (["--full", "--checkpoint", work / "ck"], "is there already: --resume"),
                      (["--checkpoint-every", 0, "--checkpoint", work / "new.ck"], "accepted: 1 and more"), (["--rank-pattern", "q"], "--rank-pattern: 'q'; accepted: PATTERN=RANK")):
    done = run(*(absent[:-2] if options[0] in ("--rank", "--full") else absent), *options, code=2)
    found.check(done.stderr.count("\n") == 1 and done.stderr.startswith("meshmind train: ") and word in done.stderr, f"{options}: {done.stderr}")
for options, word in ((["--rank-pattern", "v=3", "--targets", "q"], "--rank-pattern: 'v' names no layer"), (["--alpha-pattern", "v=3", "--targets", "q"], "--alpha-pattern: 'v' names"),
                      (["--rank-pattern", "foo=3"], "--rank-pattern: LoRA target 'foo' in 'foo' names no layer of this model"),
                      (["--activations", "q8"], "--activations: activations is q8")):
    done = run(*train, *options, code=2)
    found.check(word in done.stderr and "replaces" not in done.stderr and "--warmup" not in done.stderr, f"{options}: {done.stderr}")
# Spaces round a comma are no part of a pattern.
for spaced in ("--rank-pattern", "blk.0.*=3, blk.1.*=4"), ("--alpha-pattern", " q=3 ,v=4 "):
    digests = [hashlib.sha256((run(*train, spaced[0], text), work / "b.gguf")[1].read_bytes()).digest() for text in (spaced[1], spaced[1].replace(" ", ""))]
    found.check(digests[0] == digests[1], f"{spaced}: another adapter than without the spaces")
# A separator that is no line of a text leaves it one document.
(work / "plain.txt").write_text("One story.\r\n---\r\nAnother one.\r\n")
(work / "apart.txt").write_text("One story.\n--- \nAnother one.\n")
for command in (["data", "check", "FILE", "-m", MODEL], [*train[:4], "FILE", *train[5:], "--warmup", 0], [*train[:4], "FILE", *train[5:], "--warmup", 0, "--stream"],
                [*train, "--warmup", 0, "--new-tokens", 0, "--eval", "FILE"]):
    for name, separator, due in (("plain.txt", "---", False), ("apart.txt", "---", True), ("apart.txt", "blank", True), ("apart.txt", "--- ", False), ("apart.txt", "file", False)):
        done = run(*[work / name if one == "FILE" else one for one in command], "--text-separator", separator)
        found.check((f"--text-separator '{separator}': no line of {work / name} is that, so all of it is one document\n" in done.stderr) == due, f"{command}, {name}, '{separator}': {done.stderr}")
        found.check(done.stderr.count("--text-separator") == due, f"{command}, {name}, '{separator}': {done.stderr}")
# Another shape than the start adapter's.
done = run(*train, "--start", adapter, "--rank", 4, code=2)
found.check(re.search("--start: .*the start adapter has rank 2.*accepted:", done.stderr), done.stderr)
# Lines that other programs write: blank ones are none, an id may be longer than 64 bits.
(work / "ids.jsonl").write_text("".join(line.replace("{", '{"id": 123456789012345678901234567890, ', 1) + "\n" for line in lines[:8]) + "  \n")
told = [json.loads(run("data", "check", work / name, "-m", MODEL, "--json").stdout)["files"][0] for name in ("few.jsonl", "ids.jsonl")]
found.check(told[0]["bad"] == told[1]["bad"] == 0 and all(told[0][k] == told[1][k] for k in ("examples", "tokens", "learned")), told)
(work / "wide.jsonl").write_bytes("".join(lines[:8]).encode("utf-16"))
done = run("data", "check", work / "wide.jsonl", "-m", MODEL, code=3)
found.check("wide.jsonl: a text of UTF-16; accepted: UTF-8" in done.stderr, done.stderr)
# A byte order mark is no part of a prompt.
texts = []
for mark in ("", "\ufeff"):
    (work / "prompt").write_text(mark + "leaf")
    texts.append(run("generate", "-m", MODEL, "-n", 4, "--temp", 0, "-f", work / "prompt").stdout)
    with open(work / "prompt") as prompt:
        texts.append(subprocess.run([MESHMIND, "generate", "-m", MODEL, "-n", "4", "--temp", "0", "-"], stdin=prompt, capture_output=True, text=True).stdout)
found.check(texts[0] and len(set(texts)) == 1 and "\ufeff" not in texts[0], texts)
ids = []
for mark in ("", "\ufeff"):
    (work / "prompt").write_text(mark + "leaf\ufeff")
    ids.append(json.loads(run("tokenize", "-m", MODEL, "-f", work / "prompt", "--json").stdout))
found.check(ids[0]["ids"] == ids[1]["ids"] and ids[0]["bytes"] == ids[1]["bytes"] == 7, f"tokenize with a byte order mark: {ids}")
found.check("byte order mark" in run("tokenize", "--help").stdout, "tokenize --help does not say what becomes of a byte order mark")
# What is no file of data, or has none: what it is, and what would be taken.
os.mkfifo(work / "pipe.jsonl")
for path, says in ((work, ": a folder; accepted: a regular file"), ("/dev/null", "/dev/null: a device; accepted: a regular file"), (work / "pipe.jsonl", "pipe.jsonl: a pipe; accepted: a regular file")):
    found.check(says in run("data", "check", path, "-m", MODEL, code=3).stderr, f"data check {path}: not '{says}'")
for name, text, says in (("empty.jsonl", "", "nothing is in the file; accepted: at least one"), ("bad.jsonl", "{}\n", "none to learn from; accepted: at least one")):
    (work / name).write_text(text)
    found.check(re.search(rf"examples +0 +{says}\n", run("data", "check", work / name, "-m", MODEL, code=1).stdout), f"data check {name}: not '{says}'")
# A folder that nothing came into is not left behind.
for out, words in ((work / "peft" / "new", ["adapter", "export", adapter, "-m", MODEL, "-o", work / "peft" / "new"]),
                   (work / "q" / "q.gguf", ["quantize", MODEL, work / "q" / "q.gguf", "Q8_0"]),
                   *((work / name / "new" / "x", [*words, work / name / "new" / "x"]) for name, words in
                     (("import", ["adapter", "import", adapter, "-m", MODEL, "-o"]), ("merge", ["adapter", "merge", "--lora", adapter, "-m", MODEL, "-o"]),
                      ("join", ["adapter", "merge", "--lora", adapter, "-o"]), ("logits", ["logits", "-m", MODEL, "--ids", "1,2,3,4", "-o"]),
                      ("synth", ["synth", "tiny-llama"])))):
    full = subprocess.run(["prlimit", "--fsize=4096", MESHMIND, *map(str, words)], capture_output=True, text=True)
    found.check(full.returncode == 3 and "File too large" in full.stderr and not out.parent.exists() and not (work / out.relative_to(work).parts[0]).exists(), f"{words}: {full}")
    run(*words)
    found.check(out.exists(), f"{out} is not there")
if not found.failures:
    print("due_words: ok")
sys.exit(found.code)

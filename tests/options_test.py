#!/usr/bin/env python3
"""Options of generate, chat, perplexity and bench: what is wrong is said before anybody waits for a model, and what would do
nothing is refused by name.

Also: docs/design.md names every command, and of one that is not there it says so.

A second program, where there is one, says what must not differ from what the first says.

usage: options_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import json, os, pathlib, re, subprocess, sys, tempfile

from live import Findings, program

SOURCE, MESHMIND, FASTER = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), program(sys.argv[2:])
MODEL = SOURCE / "scenarios" / "base" / "openmeshmind-tiny-F16.gguf"
found = Findings()


def run(*args, stdin="", cwd=SOURCE, meshmind=MESHMIND, **options):
    return subprocess.run([meshmind, *map(str, args)], capture_output=True, text=True, input=stdin, cwd=cwd, timeout=600, **options)


def refused(args, says, **options):
    """Exit 2 with these words, before a plan of memory: the model has not been touched."""
    done = run(*args, **options)
    found.check(done.returncode == 2 and re.search(says, done.stderr) and "memory:" not in done.stderr and not done.stdout,
                f"{args}: exit {done.returncode}, wanted 2 and /{says}/, nothing loaded: {done.stderr[:300]}{done.stdout[:100]}")


GENERATE, CHAT = ["generate", "-m", MODEL], ["chat", "-m", MODEL, "--no-notes"]
for more, says in ((["--draft", MODEL, "--lookup"], "--draft or --lookup: one of them"),
                   (["--draft", "/nowhere.gguf"], "--draft /nowhere.gguf: .*No such file"),
                   (["--drafts", 3], "--drafts: together with"),
                   (["--lookup", "--drafts", 65], "--drafts 65: accepted are 1 to 64"),
                   (["--lookup", "--drafts", 0], "--drafts N: '0'; accepted: a whole number from 1"),
                   (["--temp", -1], "temperature -1: must be 0 to 100"),
                   (["--top-p", 2, "--temp", 1], "top-p 2: must be above 0"),
                   (["--top-p", 0], "top-p 0: must be above 0"),
                   (["--top-k", 5], "--top-k: nothing is drawn at temperature 0"),
                   (["--top-p", 0.5], "--top-p: nothing is drawn at temperature 0"),
                   (["--min-p", 0.1], "--min-p: nothing is drawn at temperature 0"),
                   (["--min-p", 1.5, "--temp", 1], "min-p 1.5: must be 0 to 1"),
                   (["--min-p", -0.1, "--temp", 1], "min-p -0.1: must be 0 to 1"),
                   (["--frequency-penalty", 2.5], "frequency-penalty 2.5: must be -2 to 2"),
                   (["--presence-penalty", -3], "presence-penalty -3: must be -2 to 2"),
                   (["--repeat-penalty", 0], "repeat-penalty 0: must be 0.01 to 100"),
                   (["--repeat-last-n", 32], "--repeat-last-n 32 with --repeat-penalty 1: together they change nothing"),
                   (["--repeat-last-n", 0, "--repeat-penalty", 1.5], "--repeat-last-n 0 with --repeat-penalty 1.5: together they change nothing"),
                   (["--system", "Be brief."], "--system: together with --chat"),
                   (["--stop", "a", "--stop", "", "--chat"], "a stop text of 0 bytes"),
                   (["--stop", "a"] * 33, "--stop TEXT: 'a'; accepted: at most 32 of them"),
                   (["--stop", ""], "a stop text of 0 bytes"),
                   (["--chat=1"], "this option takes no value: '--chat=1'"), (["--lora", "/nowhere"] * 9, "--lora: 9 adapters; at most 8 at once"),
                   (["--session", "/nowhere", "--chat"], "--session continues a text")):
    refused([*GENERATE, *more, "x"], says)
for more, says in ((["--docs", "/nowhere"], "/nowhere"), (["--top-k", 5], "--top-k: nothing is drawn at temperature 0"),
                   (["--drafts", 3], "--drafts: together with --lookup"), (["--lookup", "--drafts", 65], "--drafts 65: accepted are 1 to 64"),
                   (["--top-p", 2, "--temp", 1], "top-p 2: must be above 0"), (["--min-p", 2, "--temp", 1], "min-p 2: must be 0 to 1"), (["--temp", -1], "temperature -1: must be 0 to 100"),
                   (["--frequency-penalty", "nan"], "frequency-penalty X: 'nan'"), (["--repeat-last-n", 32], "--repeat-last-n 32 with"),
                   (["-n", 0], "-n 0: an answer has at least 1 token"), (["-c", 96], "-c 96: room for an answer takes 96"), (["--calls", 0], "--calls 0")):
    refused([*CHAT, *more], says, stdin="Hi\n")
bare = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_DATA_HOME")}
refused(["chat", "-m", MODEL], "HOME is not set, so there is no place for notes.sqlite", stdin="Hi\n", env=bare)
refused(["chat", "-m", MODEL, "--notes", "docs"], "--notes .*docs is no regular file", stdin="Hi\n")
for args in ([*GENERATE, "x"], CHAT, ["serve", "-m", MODEL], ["logits", "-m", MODEL, "--ids", "1"], ["perplexity", "-m", MODEL, "-f", "README.md"]):
    refused([*args, "--any-base"], "--any-base: together with --lora FILE")
refused(["train", "-m", MODEL, "-d", MODEL.parent / "test.jsonl", "--dry-run", "--start", "a=b.gguf=0"], "--start a=b.gguf=0: with a weight of 0 it changes nothing")
refused(["train", "-m", MODEL, "-d", MODEL.parent / "test.jsonl", "--dry-run", "--any-base"], "--any-base needs --start FILE")
for more, says in (([], "which text"), (["-f", "/nowhere"], "/nowhere"), (["-f", "README.md", "--window", 1], "--window 1"),
                   (["-f", "README.md", "--window", 0], "--window N: '0'; accepted: a whole number from 1"),
                   (["-f", "README.md", "-c", 1], "-c 1: must be at least 2"), (["-f", "README.md", "--window", 300, "-c", 256], "--window 300: -c 256 holds less")):
    refused(["perplexity", "-m", MODEL, *more], says)
for option in (["-p", 8], ["-n", 8], ["--kv", "f16"], ["--max-memory-mb", 50], ["--profile"]):
    name = {"-p": "--prompt", "-n": "--generate"}.get(option[0], option[0])
    refused(["bench", "-m", MODEL, "--train", *option], f"{name} is not of bench --train")
for args, option in ((["synth", "tiny-llama", "/nowhere/x.gguf"], "--layers"), (["synth", "tiny-llama", "/nowhere/x.gguf"], "--threads"),
                     (["quantize", MODEL, "/nowhere/x.gguf", "Q8_0"], "--threads"), (["replay", "/nowhere", "--eval"], "--steps")):
    refused([*args, option, 0], f"{option} N: '0'; accepted: a whole number from 1 to 4294967295")
pretrain = ["pretrain", MODEL.parent / "pretrain.yaml", "--out", pathlib.Path(tempfile.gettempdir()) / "none.gguf"]
for more, says in ((["--threads", "auto"], "--threads auto: pretrain wants a number"), (["--checkpoint", pretrain[1], "--resume"], "--checkpoint is CONFIG"),
                   (["--checkpoint", pretrain[3]], "--out is --checkpoint")):
    refused([*pretrain, *more], says)
for option in "--seq", "--rank", "--checkpoint-layers":
    refused(["bench", "-m", MODEL, option, 8], f"{option} is of bench --train")

# A second file, key, text or list in one argument would leave one out in silence; a setting that is said again is changed, a list of arguments goes on.
for args, option in ((["gate", "x", "--trust", "a", "--trust=b"], "--trust=b"), (["verify", "x", "--coordinator", "a", "--coordinator", "b"], "--coordinator"),
                     (["gate", "x", "--junit", "a", "--junit", "b"], "--junit"), (["tokenize", "-m", MODEL, "-t", "a", "-t", "b"], "-t"), (["node", "status", "--config", "a", "--config", "b"], "--config"),
                     (["train", "--targets", "q", "--targets", "v"], "--targets"), (["train", "--rank-pattern", "q=2", "--rank-pattern=v=4"], "--rank-pattern=v=4"),
                     (["train", "--clients", "a", "--clients", "b"], "--clients"), (["logits", "--ids", "1,2", "--ids", "3"], "--ids")):
    refused(args, f"given twice, and one is taken: '{option}'")
refused([*GENERATE, "--json", "--json", "--seed", 1, "--seed", 2, "--kv", "f16", "--kv", "f32", "--stop", "a", "--stop", "", "x"], "a stop text of 0 bytes")

# The prompt may come from a file or standard input: the same text, to the last line end; one of them.
for more, says in (([], "which prompt.: PROMPT, - for standard input, or -f FILE"), (["-f", "/nowhere"], "/nowhere"),
                   (["-f", "README.md", "x"], "two prompts"), (["-f", "README.md", "-"], "two prompts")):
    refused([*GENERATE, *more], says)
with tempfile.TemporaryDirectory(prefix="omm-options-") as folder:
    file = pathlib.Path(folder) / "prompt"
    for prompt in "Once upon a time", "Two lines\nand their end\n", "":
        file.write_text(prompt)
        for chat in [], ["--chat"]:
            texts = [run(*GENERATE, *chat, "-n", 8, "--json", *how, stdin=stdin) for how, stdin in
                     (([prompt], "not read"), (["-"], prompt), (["-f", file], "not read"))]
            told = [(t.returncode, {k: v for k, v in json.loads(t.stdout or "{}").items() if k not in ("memory", "measured")}) for t in texts]
            said = [t.stderr.splitlines()[-1].partition(";")[0] for t in texts]
            found.check(told[0] == told[1] == told[2] and (said[0] == said[1] == said[2]), f"{prompt!r} {chat}: {told} {said}")
            found.check(told[0][0] == 0 or prompt == "", f"{prompt!r} {chat}: {texts}")
    file.write_bytes(b"x" * ((1 << 24) + 1))
    for how, says in (["-"], "a prompt on standard input of more than 16777216 bytes"), (["-f", file], "prompt: larger than the limit of 16777216 bytes"):
        done = run(*GENERATE, *how, stdin="x" * ((1 << 24) + 1))
        found.check(done.returncode == 3 and re.search(says, done.stderr) and "memory:" not in done.stderr, f"generate {how}, too much: {done.returncode} {done.stderr}")

# Each stop text ends the text where it would begin, whichever was given first.
whole = run(*GENERATE, "--special", "-n", 30, "Once upon a time").stdout
early, late = whole[8:12], whole[20:24]
for stops in [early, late], [late, early], [late] * 30 + [early]:
    got = run(*GENERATE, "--special", "-n", 30, *[f"--stop={stop}" for stop in stops], "Once upon a time").stdout
    found.check(got == whole[:whole.index(early)] + "\n", f"--stop {stops}: {got!r} of {whole!r}")

# An answer that ends too early says why, and what gives more of it.
for more, says in ((["-n", 3], r"\[the answer was cut here: -n N takes more tokens\]"), (["-c", 140, "-n", 400], r"\[the answer was cut here: the context is full \(-c N takes more\)\]")):
    done = run(*CHAT, *more, stdin="Write a short story.\n")
    found.check(done.returncode == 0 and re.search(says, done.stdout), f"chat {more}: {done.returncode} {done.stdout} {done.stderr}")

# More positions than the model has, and a window that the context has no room for: what would be accepted is named.
for command in ([*GENERATE, "x"], CHAT, ["logits", "-m", MODEL, "--ids", 1], ["perplexity", "-m", MODEL, "-f", "README.md"]):
    refused([*command, "-c", 9999], "-c 9999: the model was trained for 512 positions", stdin="Hi\n")
done = run("perplexity", "-m", MODEL, "-f", "README.md", "--window", 600)
found.check(done.returncode == 2 and "--window 600: the context holds 512; the model was trained for no more" in done.stderr, f"--window: {done}")
with tempfile.TemporaryDirectory(prefix="omm-options-") as folder:
    refused(["chat", "--no-notes"], "give -m FILE: there is no scenarios/base/openmeshmind-tiny-F16.gguf here", stdin="Hi\n", cwd=folder)

# What a limit lowers is said: the cache's type, its positions and the layers in memory.
least = re.search(r"the least is (\d+) MB", run(*GENERATE, "-n", 1, "--max-memory-mb", 1, "x").stderr)
done = run(*GENERATE, "-n", 1, "--max-memory-mb", least[1] if least else 1, "x")
found.check(done.returncode == 0 and re.search(r"; cache q8_0 instead of f16, \d+ instead of 512 positions, \d+ layers streamed for \d+ MB\n", done.stderr),
            f"generate within the least: {done}")

# The plan is said before loading: of a model whose last weights are no numbers it comes first, then what is wrong with them.
with tempfile.TemporaryDirectory(prefix="omm-options-") as folder:
    damaged = pathlib.Path(folder) / "damaged.gguf"
    damaged.write_bytes(MODEL.read_bytes()[:-64] + b"\xff\x7f" * 32)  # F16 or F32: NaN
    for command in ["generate", "x"], ["chat", "--no-notes"], ["logits", "--ids", 1], ["perplexity", "-f", "README.md"], ["bench"]:
        done = run(*command, "-m", damaged, stdin="Hi\n")
        found.check(done.returncode == 3 and re.fullmatch(rf"memory: .* available\nmeshmind {command[0]}: .*damaged.gguf.*not a finite number.*\n", done.stderr),
                    f"{command} of a damaged model: exit {done.returncode}: {done.stderr}{done.stdout}")
    done = run("bench", "--train", "-m", damaged)
    found.check(done.returncode == 3 and "damaged.gguf: tensor" in done.stderr, f"bench --train of a damaged model: {done}")

# Penalties: a text goes round in circles less, greedy or drawn, with proposals or without; each of them counts, and none at its neutral value.
CIRCLES = "12 12 12 12 12 12 12 12 12", "Once upon a time there was a dog. The dog was a good dog, and the dog"


def circles(*how, meshmind=MESHMIND):
    return [json.loads(run(*GENERATE, "-n", 40, "--json", *how, prompt, meshmind=meshmind).stdout)["ids"] for prompt in CIRCLES]


plain, texts = circles(), {}
for how in (["--frequency-penalty", 0.8], ["--presence-penalty", 1.5], ["--repeat-penalty", 1.4], ["--repeat-penalty", 1.4, "--repeat-last-n", 4],
            ["--frequency-penalty", 0.5, "--repeat-penalty", 1.2, "--temp", 1.5, "--seed", 1 << 40]):
    texts[" ".join(map(str, how))] = ids = circles(*how)
    for more in ["--lookup"], ["--draft", MODEL]:
        found.check(circles(*how, *more, meshmind=MESHMIND if "--temp" in how else FASTER) == ids, f"{how}: {more} changes the text")
found.check(len({json.dumps(ids) for ids in [plain, *texts.values()]}) == 6, f"penalties that change nothing: {plain} {texts}")
found.check(len(plain[0]) > 2 * len(texts["--frequency-penalty 0.8"][0]), f"as often with a penalty: {plain} {texts}")
found.check(circles("--frequency-penalty", 0, "--presence-penalty", 0, "--repeat-penalty", 1, meshmind=FASTER) == plain, f"neutral penalties are not {plain}")

# The help has each default that is not plain.
for command, defaults in (("generate", {"--activations": "q8", "-c": "the model's, at most 4096", "--top-k": "default", "--top-p": "default", "--min-p": "default"}),
                          ("chat", {"--activations": "q8", "-c": "the model's, at most 4096", "-m": "that of the repository, from its folder"}),
                          ("logits", {"--activations": "f32", "-c": "the model's, at most 4096"}),
                          ("perplexity", {"--activations": "f32", "-c": "the model's, at most 4096", "--window": "as many as -c"})):
    rows = [" ".join(row.split()) for row in re.split(r"\n(?=  -)", run(command, "--help").stdout)]
    for option, default in defaults.items():
        row = [row for row in rows if row.startswith(option)]
        found.check(len(row) == 1 and f"({default})" in row[0], f"{command} --help: {option}: {row}, no ({default})")

# A chat draws as it is told: from one id it is the likeliest, and proposals are of the same text.
QUESTIONS = "What is 47 times 86?\nSay: to be or not to be, to be or not to be.\n"
told = {" ".join(map(str, more)): run(*CHAT, "--stats", *more, stdin=QUESTIONS, meshmind=MESHMIND if not more or "--drafts" in more else FASTER)
        for more in ([], ["--temp", 2], ["--temp", 2, "--top-k", 1], ["--temp", 2, "--top-p", 1e-6], ["--temp", 2, "--min-p", 1], ["--repeat-penalty", 1.5],
                     ["--lookup"], ["--lookup", "--drafts", 16])}
plain = told.pop("").stdout
for more, done in told.items():
    found.check(done.returncode == 0 and (done.stdout == plain) == (more != "--temp 2" and "penalty" not in more), f"chat {more}: {done.stdout}{done.stderr}")
    accepted = [int(n) for n in re.findall(r"(\d+) of them proposed before\n", done.stderr)]
    found.check(len(accepted) == 2 * ("--lookup" in more) and (sum(accepted) > 0) == ("--lookup" in more), f"chat {more}: {done.stderr}")

here = set(re.findall(r"(?m)^  ([a-z]+) {2,}", run("--help").stdout))
rows = re.findall(r"(?m)^\| ((?:\\\||[^|])*)\|", (SOURCE / "docs" / "design.md").read_text().partition("## 7. The command line")[2])
named = {name: row for row in rows for name in re.findall(r"`([a-z]+)[ `]", row)}
found.check(here and here <= set(named), f"docs/design.md, 7, does not name {sorted(here - set(named))}")
for name, row in named.items():
    found.check((name in here) != ("(not built)" in row), f"docs/design.md, 7: {row}: {name} is {'there' if name in here else 'not there'}")

sys.exit(found.code)

#!/usr/bin/env python3
"""The command line: help, exit codes, and messages that say what, where and what would be accepted.

A second program, where there is one, is asked where the same question is put with every limit there is.

usage: cli_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import json, os, pathlib, pty, re, shutil, signal, socket, struct, subprocess, sys, tempfile, time

from live import program, quick, ship_lines_of
from retemplate import retemplate
import split_gguf

SOURCE, MESHMIND, FASTER = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], program(sys.argv[2:])
BASE = SOURCE / "scenarios" / "base"
MODEL = BASE / "openmeshmind-tiny-F16.gguf"
failures = []
OLD_CERTIFICATE = """-----BEGIN CERTIFICATE-----
MIIBCDCBr6ADAgECAgFNMAoGCCqGSM49BAMCMA4xDDAKBgNVBAMMA29sZDAeFw0w
MTAyMDMwMDAwMDBaFw0wMjAzMDQwMDAwMDBaMA4xDDAKBgNVBAMMA29sZDBZMBMG
ByqGSM49AgEGCCqGSM49AwEHA0IABATD1OKRB91ebdA+Kd5GFN7dZQZ/VjESCk7E
lVmrosqWU2A6ZR/SwsqfsBNTCoPV+81HMdzI50s3FZIeAzJ7bHwwCgYIKoZIzj0E
AwIDSAAwRQIgaVqvdXXavfRIu1FFLPRoLZSO0jZk+Fos+1acaD5U3IUCIQDJAfuu
Jc+TZ6yqVvUHQGbhyTU/h1FYLumAE6zZMz+EOg==
-----END CERTIFICATE-----
"""  # proto/tls_test.c has it, too


def run(*args, stdin="", meshmind=MESHMIND, cwd=SOURCE):
    return subprocess.run([meshmind, *map(str, args)], capture_output=True, text=True, input=stdin,
                          cwd=cwd, timeout=600)


def first_said(path, pattern):
    """The first line of a node's log."""
    process = subprocess.Popen([MESHMIND, "node", "-c", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMM_GUEST_ROOT": "/nonexistent"})
    line = process.stderr.readline()
    if not re.search(pattern, line):
        failures.append(f"node -c {path} says first: {line}")
    process.terminate()
    process.communicate(timeout=100)


def expect(args, code, says, stream="stderr", meshmind=MESHMIND):
    done = run(*args, meshmind=meshmind)
    text = getattr(done, stream)
    if done.returncode != code or not re.search(says, text):
        failures.append(f"{' '.join(map(str, args))}: exit {done.returncode} (wanted {code}), "
                        f"{stream} (wanted /{says}/): {text[:300]}")
    if code == 2 and done.stdout.strip():
        failures.append(f"{args}: an error wrote to stdout: {done.stdout[:100]}")


def beside_at_least(share, speed, factor):
    """Shares of what was beside each repeat, whose mean is never above the best of the run."""
    return all(share[which] >= speed[which] * factor * (1 - 1e-6) > 0 for which in ("min", "median", "max"))


def packed_copies(folder, model):
    """Made once and then used; made anew when the model has changed; where there can be none that is said, and no
    reason to stop."""
    own = folder / "packed.gguf"
    shutil.copy(model, own)
    ask = ["generate", "-m", own, "-n", 3, "--temp", 0, "a text"]
    plain = run(*ask)
    says = [r"(?s)^memory: .*\npacked copy: made in [\d.]+ s\npacked copy: (\S+/packed\.gguf\.[0-9a-f]{16}\.packed), 1\.\d MB\n$",
            r"(?s)^memory: [^\n]*\npacked copy: (\S+), 1\.\d MB\n$",
            r"(?s)^memory: [^\n]*\npacked copy: made in [\d.]+ s\npacked copy: (\S+), "]
    names = []
    for i, pattern in enumerate(says):
        if i == 2:
            time.sleep(0.02)
            own.chmod(0o640)
        done = run(*ask, "--packed")
        said = re.search(pattern, done.stderr)
        if done.returncode != 0 or done.stdout != plain.stdout or not said:
            failures.append(f"--packed, {i}: {done.returncode} {done.stdout} {done.stderr}")
        else:
            names.append(said[1])
    size = pathlib.Path(names[2]).stat().st_size
    if f"{names[2]}, {size / 1e6:.1f} MB\n" not in done.stderr:
        failures.append(f"--packed: {size} bytes: {done.stderr}")
    if names[:1] != names[1:2] or names[2:] != [str(p) for p in folder.glob("packed.gguf.*")] or names[1:2] == names[2:]:
        failures.append(f"--packed: copies {names}")
    pathlib.Path(names[2]).chmod(0o666)
    again = run(*ask, "--packed")
    if again.stdout != plain.stdout or not re.search(r"\npacked copy: \S+ has rights 666, and the model 640\npacked copy: made in", again.stderr):
        failures.append(f"--packed, open to all: {again.stderr}")
    two = run("generate", "-m", own, "--draft", own, "-n", 3, "--temp", 0, "a text", "--packed")
    if two.stdout != plain.stdout or two.stderr.count("packed copy: ") != 2:
        failures.append(f"--packed --draft: {two.stdout} {two.stderr}")
    bench = ["bench", "-m", own, "-p", 8, "-n", 2, "-r", 1, "--peak-seconds", 0]
    expect([*bench, "--packed", "--stream"], 0, r"loaded from a packed copy in [\d.]+ s\n(?s:.*)MB of the copy in every pass\n(?s:.*)GB/s of the copy read\n", "stdout")
    told = [json.loads(run(*bench, "--json", *more).stdout)["packed"] for more in ([], ["--packed"])]
    if told != [False, True]:
        failures.append(f"bench: packed {told}")
    expect(["bench", "-m", own, "--train", "--packed"], 2, "--train --packed: a step is measured as `train` takes it")
    longest = folder / ("n" * 240 + ".gguf")
    own.rename(longest)
    done = run("generate", "-m", longest, *ask[3:], "--packed")
    if done.returncode != 0 or done.stdout != plain.stdout or not re.search(
            r"\nmeshmind: warning: no packed copy: .*File name too long; loading the model as without --packed\n", done.stderr):
        failures.append(f"--packed, no room for a name: {done.returncode} {done.stdout} {done.stderr}")
    longest.unlink()


def sums_up(text):
    """The parts of a plan's line give its total, each rounded to its last digit."""
    parts, total = re.search(r"memory[^:\n]*: ([^;\n]*); ([\d.]+ [MG]B) of", text).groups()
    sizes = [[(float(size) * 1000 ** (unit == "G"), 0.5 * 1000 ** (unit == "G") / 10 ** len(size.partition(".")[2]))
              for size, unit in re.findall(r"([\d.]+) ([MG])B", part)] for part in (parts, total)]
    return abs(sum(s for s, _ in sizes[0]) - sizes[1][0][0]) <= sum(half for part in sizes for _, half in part) + 1e-6


commands = re.findall(r"XX\((\w+),", (SOURCE / "cli" / "commands.h").read_text())
commands = [c for c in commands if c != "name"]
assert len(commands) >= 12, commands
expect(["--help"], 0, "subcommand|SUBCOMMAND", "stdout")
expect([], 2, "usage")
expect(["--version"], 0, r"meshmind \d+\.\d+\.\d+ \(", "stdout")
with tempfile.NamedTemporaryFile(suffix=".gguf") as damaged:  # a key of it is gone: a damaged file, not a wrong command
    damaged.write((SOURCE / "scenarios/base/openmeshmind-tiny-F16.gguf").read_bytes().replace(b"llama.block_count", b"llama.block_counX", 1))
    damaged.flush()
    for words in ["generate", "x"], ["bench"], ["bench", "--train"], ["perplexity", "-f", "README.md"], ["logits", "--ids", "1", "--out", "x.f32"]:
        expect([words[0], "-m", damaged.name, *words[1:]], 3, re.escape(f"-m {damaged.name}: ") + ".*llama.block_count is missing")
        expect([words[0], "-m", "no.gguf", *words[1:]], 2, r"no\.gguf: No such file")
expect(["--help-env"], 0, r"(?s)OMM_ISA.*OMM_CRASH_AT.*mid_training", "stdout")
sources = "".join(p.read_text() for p in SOURCE.glob("*/*.c") if not re.search("test|fuzz", str(p.relative_to(SOURCE))))
for variable in sorted(set(re.findall(r'getenv\("(\w+)"\)', sources))):
    if variable not in run("--help-env").stdout:
        failures.append(f"--help-env does not list {variable}")
stages = set(re.findall(r"(?m)^  (\w+) ", run("--help-env").stdout.split("Stages of OMM_CRASH_AT:")[1]))
passed = set(re.findall(r'(?:omm_crash_point|may_crash)\([^;"]*"(\w+)"', sources))
tests = "".join(p.read_text() for p in (SOURCE / "tests").glob("*_test.py"))
killed = {s for s in stages if re.search(rf'["\']{s}["\']', tests)}
if not stages or stages != passed or stages != killed:
    failures.append(f"stages of the table that no code passes: {stages - passed}, of the code that are not in it: {passed - stages}, "
                    f"at which no test kills: {stages - killed}")
expect(["fly"], 2, "unknown subcommand 'fly'")
# Every help fits a terminal of 80 columns, and is what people try first.
tools = [["node", a] for a in ("status", "setup", "backup", "restore")] + [["coordinator", a] for a in ("ctl", "audit")]
tools += [["adapter", a] for a in ("show", "import", "export", "merge")]
for words in [[], *([c] for c in commands), *tools]:
    text = run(*words, "--help").stdout
    wide = [line for line in text.splitlines() if len(line) > 80 or line != line.rstrip()]
    if wide or not text:
        failures.append(f"{words} --help: {wide[:3]}")
    for same in (run(*words, "-h", meshmind=FASTER), run("help", *words, meshmind=FASTER)):
        if (same.returncode, same.stdout) != (0, text):
            failures.append(f"{words}: -h or help says something else: {same.stdout[:100]}{same.stderr[:200]}")
for command in commands:
    expect([command, "--help"], 0, f"usage: meshmind {command}", "stdout")
    expect([command, "--no-such-option"], 2, "unknown (option|action) .--no-such-option.")
    if command not in run("--help").stdout:
        failures.append(f"{command} is not in --help")

expect(["simulate"], 2, "missing argument")
expect(["coordinator", "ctl", "-c", "x.yaml"], 2, "meshmind coordinator ctl: missing argument\nusage: meshmind coordinator ctl -c FILE")
if "required" in run("node", "--help").stdout:
    failures.append("node --help: its file is not required, there is a place for it")
expect(["simulate", "/nowhere.yaml"], 2, "/nowhere.yaml")
expect(["simulate", "scenarios/quickstart.yaml", "--threads", "3x"], 2, "3x.*whole number.*1 to 256")
expect(["simulate", "scenarios/quickstart.yaml", "--threads", "0"], 2, "accepted: 1 to")
expect(["verify", "/nowhere"], 2, "nowhere")
expect(["verify", BASE], 2, "is no bundle: it has neither manifest.json nor run.json")
expect(["replay", "/nowhere"], 2, "--node and --round")
for more in ["-r", 0], ["-n", "x"], ["--steps", 2]:
    expect(["replay", "/nowhere", "--eval", *more], 2, "--eval is without --node, --round and --steps")
expect(["replay", "/nowhere", "--eval"], 2, "nowhere is not there")
expect(["replay", BASE, "--eval"], 2, "is no bundle: it has neither manifest.json nor run.json")
expect(["replay", "/nowhere", "-n", "x", "-r", 4294967296], 2, "--round 4294967296; accepted: a round")
# Which option it was, and what it takes.
expect(["generate", "-m", MODEL, "-n", "-3", "x"], 2, r"-n, --\S+ N: '-3'; accepted: a whole number from 0 to 4294967295")
expect(["generate", "-m", MODEL, "--temp", "warm", "x"], 2, r"--temp \S+: 'warm'; accepted: a finite number")
expect(["help", "fly"], 2, "unknown subcommand 'fly'")
for words in (["help", "node", "fly"], ["node", "fly"]):
    expect(words, 2, "unknown action fly; accepted: status, setup, backup, restore")
expect(["help", "coordinator", "fly"], 2, "unknown action fly; accepted: ctl, audit")
if "usage is" in run("verify").stderr or run("verify").stderr.count("verify BUNDLE") != 1:
    failures.append("a missing argument is explained twice")
# A place where nothing can be written is found before the work, not after it.
with tempfile.TemporaryDirectory(prefix="omm-cli-") as folder:
    config = pathlib.Path(folder) / "pretrain.yaml"
    config.touch()
    few = pathlib.Path(folder) / "few.jsonl"
    few.write_text("".join((BASE / "train.jsonl").read_text().splitlines(True)[:20]))
    for args in (["train", "-m", MODEL, "--data", few, "--steps", "1", "--out"], ["pretrain", config, "--out"]):
        expect([*args, config / "a.gguf"], 3, rf"--out {config}/a.gguf: no file can be made in {config}: Not a directory")
        expect([*args, folder], 2, f"--out: {folder} is a folder; accepted: a file")
        for nowhere, why in (("/proc/a.gguf", "No such file"), ("/dev/null", "not a regular file")):
            expect([*args, nowhere], 3, f"--out {nowhere}: no file can be made there: .*{why}")
        out = [*args, pathlib.Path(folder) / "a.gguf", "--checkpoint"]
        expect([*out, "/proc/a.ck"], 3, "--checkpoint /proc/a.ck: no file can be made there: .*No such file")
        expect([*out, config / "a.ck"], 3, rf"--checkpoint {config}/a.ck: no file can be made in {config}: Not a directory")
        expect([*out, folder], 2, f"--checkpoint: {folder} is a folder; accepted: a file")
    expect(["train", "-m", MODEL, "--data", few, "--steps", "1", "--batch", "64", "--out", pathlib.Path(folder) / "a.gguf",
            "--checkpoint", pathlib.Path(folder) / "new" / "a.ck"], 0, "trained 1 step,", "stdout")
    # Who trains may pipe his data in; what a bundle's scenario names is no pipe, which would hold a replay for ever.
    done = run("train", "-m", MODEL, "--data", "/dev/stdin", "--steps", "1", "--batch", "64", "--out", pathlib.Path(folder) / "a.gguf", stdin=few.read_text())
    if done.returncode != 0 or "trained 1 step," not in done.stdout:
        failures.append(f"train -d /dev/stdin: {done.returncode}, {done.stderr[-300:]}")
    os.mkfifo(pathlib.Path(folder) / "pipe.jsonl")
    for key in ("train", "test"):
        text = re.sub(r"(?m)^(model|train|test): base/", rf"\1: {BASE}/", (SOURCE / "scenarios/processes.yaml").read_text())
        (pathlib.Path(folder) / "pipe.yaml").write_text(re.sub(rf"(?m)^{key}: .*", f"{key}: pipe.jsonl", text))
        expect(["simulate", pathlib.Path(folder) / "pipe.yaml", "--out", pathlib.Path(folder) / "piped"], 3, "pipe.jsonl is not a regular file")
    # Replies that no generation of this length meets are counted before the first step.
    one = pathlib.Path(folder) / "one.jsonl"
    one.write_text("".join(json.dumps({"client": "a", "messages": [{"role": "user", "content": "ask"}, {"role": "assistant", "content": text}]}) + "\n" for text in ("a b c d", "a")))
    said = run("train", "-m", MODEL, "--data", few, "--eval", one, "--steps", 1, "--batch", 64, "--new-tokens", 1, "--json", "--out", pathlib.Path(folder) / "a.gguf")
    if "1 of 2 held-out examples have a reply of more than 1 tokens" not in said.stderr or json.loads(said.stdout.splitlines()[-1])["evaluation"]["replies_cut"] != 1:
        failures.append(f"train --new-tokens 1: {said.stderr} {said.stdout}")
    expect(["train", "-m", MODEL, "--data", few, "--steps", "1", "--out", pathlib.Path(folder) / "a.gguf", "--report", config],
           3, rf"--report {config}/report.json: no file can be made in {config}: Not a directory")
    half = pathlib.Path(folder) / "half"
    half.mkdir()
    (half / "run.json").write_text("{}")
    expect(["simulate", "scenarios/quickstart.yaml", "--out", half], 2, "half is there already, of a run that did not end: remove it")
# Of what is held out, and of --full, nothing is left out without a word.
with tempfile.TemporaryDirectory(prefix="omm-cli-") as folder:
    text, held, recipe, out = (pathlib.Path(folder) / name for name in ("t.txt", "h.jsonl", "r.yaml", "a.gguf"))
    text.write_text("The sky is blue and wide. " * 20)
    turns = [[{"role": "user", "content": "word " * words}, {"role": "assistant", "content": "Yes."}] for words in (2, 90, 9000)]
    turns += [[{"role": "user", "content": ask}, {"role": "assistant", "content": "word " * 600}] for ask in ("one", "two")]
    held.write_text("".join(json.dumps({"messages": m}) + "\n" for m in turns) + "{}\n")
    recipe.write_text("rank: 4\n")
    train = ["train", "-m", MODEL, "--data", text, "--steps", "1", "--warmup", "0", "--batch", "64", "--seq", "64", "--out", out]
    expect([*train, "--eval", held, "--new-tokens", "0", "--skip-bad"], 0,
           r"held-out data: 4 examples \(chat\), .*, 2 cut to the model's context, 1 left out: nothing to learn within the model's context\n  1 bad line left out", "stdout")
    expect([*train, "--eval", text, "--new-tokens", "0"], 0, r"(?s)data: (\d+) examples .*held-out data: \1 examples \(text\)", "stdout")
    turns = [{"role": "user", "content": "house " * 480}, {"role": "assistant", "content": "Yes."}]
    held.write_text(json.dumps({"messages": turns}) + "\n")  # less than 64 tokens are left of the context
    expect([*train, "--eval", held], 0, r"other reply exact +\d +\d +of 1", "stdout")
    text.write_text("The sky is blue and wide. " * 200)
    expect([*train, "--split", "0"], 2, "--split 0; accepted: over 0 and under 1")
    expect([*train, "--seq", "800", "--split", "0.5"], 2, "--seq 800: the longest held-out example has 800 tokens, .*accepted with held-out data: at most 512")
    expect([*train, "--full", "--recipe", recipe], 2, "--recipe does not go with --full")
    recipe.write_text("optimizer: sgd\nmomentum: 0.5\n")
    expect([*train, "--recipe", recipe, "--optimizer", "adamw"], 2, f"--momentum, or {recipe}: momentum is 0.5 with adamw; accepted: 0")
    expect([*train, "--full", "--optimizer", "galore", "--galore-rank", "0"], 2, "--galore-rank 0; accepted: 1 and more")
    peft = pathlib.Path(folder) / "peft"
    peft.mkdir()
    (peft / "adapter_config.json").write_text("{}")
    for args in ([*train, "--start"], ["generate", "-m", MODEL, "x", "--lora"], ["adapter", "merge", "-o", out, "--lora"]):
        expect([*args, peft], 2, f"{peft} is a PEFT folder; accepted: the GGUF file that `adapter import` makes of it")
    for part in split_gguf.write(out, folder, "adapter", 2):
        expect(["adapter", "show", part], 0, "rank ", "stdout")
    expect(["adapter", "show", MODEL], 3, f"{MODEL}: no adapter: not one LoRA tensor")
for key, value in (("HOME", folder), ("HOME", None)):
    env = {k: v for k, v in os.environ.items() if k != "XDG_CONFIG_HOME" and k != key} | ({key: value} if value else {})
    for args in (["node"], ["node", "status"]):
        done = subprocess.run([MESHMIND, *args], capture_output=True, text=True, env=env)
        if done.returncode != 2 or not re.search("`node setup` makes it" if value else "HOME is not set", done.stderr):
            failures.append(f"{args} with {key}={value}: exit {done.returncode}: {done.stderr}")
expect(["gate", "/nowhere"], 2, "nowhere")
expect(["tokenize", "-m", "/nowhere.gguf", "--file", "README.md"], 2, "nowhere.gguf")
# A certificate for TLS: made once, its key for its owner alone, and asked for where it is needed.
with tempfile.TemporaryDirectory(prefix="omm-cli-") as folder:
    key = pathlib.Path(folder) / "tls.key"
    expect(["keygen", "--tls", "--out", key], 0, rf"(?s){key}.crt.*sha256 +[0-9a-f]{{64}}", "stdout")
    if key.stat().st_mode & 0o777 != 0o600 or b"PRIVATE" in pathlib.Path(f"{key}.crt").read_bytes():
        failures.append("keygen --tls: the key is not its owner's alone")
    before = key.read_bytes()
    expect(["keygen", "--tls", "--out", key], 2, "tls.key.crt exists")
    pathlib.Path(f"{key}.crt").unlink()
    expect(["keygen", "--tls", "--out", key], 2, "tls.key exists")
    if key.read_bytes() != before:
        failures.append("keygen --tls wrote over a key")
    expect(["keygen", "--tls", "--show", key], 2, "--out, not --show")
    long = pathlib.Path(folder) / ("k" * 253)  # the name of its certificate is too long for a file
    expect(["keygen", "--tls", "--out", long], 3, "a file's name has at most 255 bytes")
    if long.exists():
        failures.append("keygen --tls leaves a key without a certificate")
    service = pathlib.Path(folder) / "service.yaml"
    config = f"scenario: {SOURCE}/scenarios/processes.yaml\nlisten: tls+tcp://127.0.0.1:0\nstate_dir: state\n"
    service.write_text(config)
    expect(["coordinator", "-c", service], 2, "listen: tls.tcp://127.0.0.1:0 needs tls_certificate and tls_key")
    service.write_text(config + "tls_key: tls.key\n")
    expect(["coordinator", "-c", service], 2, "tls_certificate and tls_key: one needs the other")
    service.write_text(config + "tls_certificate: nowhere.crt\ntls_key: tls.key\n")
    expect(["coordinator", "-c", service], 2, "nowhere.crt")
    key.chmod(0o644)
    pathlib.Path(f"{key}.crt").write_text("no certificate\n")
    service.write_text(config + "tls_certificate: tls.key.crt\ntls_key: tls.key\n")
    expect(["coordinator", "-c", service], 2, "tls.key holds a secret .a key or token. but has mode 0644")
    key.chmod(0o600)
    expect(["coordinator", "-c", service], 2, "tls_certificate tls.key.crt.*keygen --tls")
    node = pathlib.Path(folder) / "node.yaml"
    node.write_text(f"coordinator: tls+tcp://127.0.0.1:1\nname: cafe-02\nstate_dir: node\n"
                    f"scenario: {SOURCE}/scenarios/processes.yaml\n")
    expect(["node", "-c", node], 2, "coordinator: tls.tcp://127.0.0.1:1 needs tls_certificate")
# Ordinary mistakes in files: which key of which file it is, what is wrong, and what would be accepted.
with tempfile.TemporaryDirectory(prefix="omm-cli-") as folder:
    folder = pathlib.Path(folder)
    shipped = (SOURCE / "scenarios" / "quickstart.yaml").read_text()
    (folder / "copied.yaml").write_text(shipped)
    expect(["simulate", folder / "copied.yaml"], 2, rf"{folder}/copied.yaml: model: there is no {folder}/base/openmeshmind-tiny-F16.gguf")
    (folder / "zoe.yaml").write_text(re.sub(r"\[home-01.*?\]", "[zoe]", shipped.replace(" base/", f" {BASE}/")))
    expect(["simulate", folder / "zoe.yaml"], 2, "train: .*no example of client 'zoe'; it has cafe-01, cafe-02, .*\\.\\.\\.", meshmind=FASTER)
    for name in ("a.key", "b.key"):
        expect(["keygen", "--out", folder / name], 0, "public key", "stdout")
    (folder / "text.key").write_text("-----BEGIN PRIVATE KEY-----\n")
    (folder / "text.key").chmod(0o600)
    service = {"scenario": f"{SOURCE}/scenarios/processes.yaml", "listen": "tcp://127.0.0.1:0", "state_dir": "state", "key": "a.key", "bundle_key": "b.key",
               "enrolment": "invitation"}
    (folder / "same.key").symlink_to("a.key")
    (folder / "file").touch()
    (folder / "blank.jsonl").write_text("\n \r\n")
    for changed, says in (({"bundle_key": "same.key"}, "bundle_key: same.key holds the same key as key: a.key; accepted: a key of its own"),
                          ({"state_dir": "file/state"}, "state_dir: make folder .*/file: File exists; accepted: a folder, or a path where one can be made"),
                          ({"key": "nowhere.key"}, "key: cannot open .*nowhere.key: No such file"), ({"bundle_key": "nowhere.key"}, "bundle_key: cannot open"),
                          ({"canary": "{shards: [blank.jsonl]}"}, "canary.shards: blank.jsonl: blank lines alone; accepted: 16 examples or more"),
                          ({"listen": "tcp://host"}, "listen: tcp://host: .*; accepted: tls.tcp://ADDRESS:PORT, tcp://ADDRESS:PORT or ipc://PATH"),
                          ({"listen": "127.0.0.1:0"}, "listen: .127.0.0.1:0. is no url here; accepted: tls.tcp://host:port, tcp://host:port"),
                          ({"canary": "{shards: [nowhere.jsonl]}"}, "canary.shards: open .*nowhere.jsonl: No such file"), ({"scenario": "nowhere.yaml"}, "scenario: there is no .*nowhere.yaml"),
                          ({"bundle": "file/bundle"}, "bundle: make folder .*/file: File exists"), ({"port_file": "nowhere/port"}, "port_file: create .*nowhere/port"),
                          ({"tls_certificate": "nowhere.pem", "tls_key": "a.key", "listen": "tls+tcp://127.0.0.1:0"}, "tls_certificate: open .*nowhere.pem: No such file"),
                          ({"nodes": "[{name: anna, public_key: 1234}]"}, "nodes\\[0\\].public_key: .* is too short; accepted: text of 64 bytes")):
        (folder / "service.yaml").write_text("".join(f"{k}: {v}\n" for k, v in (service | changed).items()))
        expect(["coordinator", "-c", folder / "service.yaml"], 3 if {"bundle", "port_file"} & set(changed) else 2, says)
        if {"key", "bundle_key"} & set(changed) and (folder / "state").exists():
            failures.append(f"coordinator, {changed}: a state folder is left behind")
        shutil.rmtree(folder / "state", ignore_errors=True)
    (folder / "service.yaml").write_text("".join(f"{k}: {v}\n" for k, v in (service | {"key": "text.key"}).items()))
    expect(["coordinator", "-c", folder / "service.yaml"], 3, "key: .*text.key is no key; accepted: a file that keygen has written")
    # The port of a socket that nobody listens at: a node without a model says so soon, and is seen to run.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        node = {"coordinator": f"tcp://127.0.0.1:{taken.getsockname()[1]}", "coordinator_key": "ab" * 32, "name": "anna", "state_dir": "node", "key": "a.key",
                "data": BASE / "test.jsonl"}
        path = folder / "node.yaml"
        path.touch(mode=0o600)
        for changed, code, says in (({"data": "nowhere"}, 2, "data: .*nowhere: No such file"), ({"key": "text.key"}, 3, "key: .*text.key is no key"),
                                    ({"token": "invite-abc"}, 2, "node.yaml: not an invitation; accepted: invite- and 64"),
                                    ({"coordinator_key": "zz" * 32}, 2, "coordinator_key: not 64 lower-case hex digits")):
            path.write_text("".join(f"{k}: {v}\n" for k, v in (node | changed).items()))
            expect(["node", "-c", path], code, says)  # before a model is asked for
        path.write_text("".join(f"{k}: {v}\n" for k, v in node.items()))
        process = subprocess.Popen([MESHMIND, "node", "-c", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMM_GUEST_ROOT": "/nonexistent"})
        line = process.stderr.readline()
        if not re.search("no_answer .*seconds=([5-9]|[12]\d) .*nobody listens at that address and port", line):
            failures.append(f"a node that asks for a model where nobody listens says: {line}")
        expect(["node", "status", "-c", path], 0, "anna: fetching, no answer for .*nobody listens", "stdout")
        process.terminate()
        process.communicate(timeout=100)
        expect(["node", "status", "-c", path], 0, "anna: not running", "stdout")
        # Its notice, of a process that is there: what it says is believed, and that it says nothing for long is told.
        board, now = {"pid": os.getpid(), "state": "fetching", "running": True}, int(time.time())
        times = [time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now - ago)) for ago in (5000, 700)]
        long_ago = {"since_s": now - 5000, "resident_bytes": 12300000, "wire": {"since_s": now - 700, "bytes_out": 1, "bytes_in": 2}}
        for more, says in (({"updated_s": now - 100}, r"anna: fetching.*; no word from it for 1\d\d s: "), ({"updated_s": now}, r"anna: fetching\n"),
                           ({"updated_s": now} | long_ago, rf"; since {times[0]}, 12.3 MB in memory\n.*\nconnection   1 bytes out, 2 in, since {times[1]}\n")):
            (folder / "node" / "status.json").write_text(json.dumps(board | more))
            expect(["node", "status", "-c", path], 0, says, "stdout")
        # An invitation is for its owner alone, wherever it stands; in two places it is in one too many.
        (folder / "token").write_text("invite-" + "c7" * 32 + "\n")
        for mode, changed, code, says in ((0o644, {"token_file": "token"}, 2, "token holds a secret .a key or token. but has mode 0644"),
                                          (0o600, {"token_file": "token", "token": "invite-" + "c7" * 32}, 2, "token and token_file: one of them")):
            (folder / "token").chmod(mode)
            path.write_text("".join(f"{k}: {v}\n" for k, v in (node | changed).items()))
            expect(["node", "-c", path], code, says)
        # Where a node has never been its file has to be there; once it has been let in the file may go.
        path.write_text("".join(f"{k}: {v}\n" for k, v in (node | {"token_file": "gone"}).items()))
        expect(["node", "-c", path], 2, "token_file: .*gone is not there")
        (folder / "node" / "node.sqlite").touch()
        first_said(path, "INFO no_token_file .*a node that has been let in needs none")
        (folder / "node" / "node.sqlite").unlink()
        # A state folder that others may read, or change, is told of; that of one group is not, as long as it only reads.
        path.write_text("".join(f"{k}: {v}\n" for k, v in node.items()))
        for mode, says in ((0o755, "WARN state_is_open dir=.*node mode=0755 what=.*may read in it.* do=.chmod 700"),
                           (0o770, "WARN state_is_open .*mode=0770 what=.*may change"), (0o750, "WARN no_answer ")):
            (folder / "node").chmod(mode)
            first_said(path, says)
        path.chmod(0o644)
        path.write_text("".join(f"{k}: {v}\n" for k, v in (node | {"token": "invite-" + "c7" * 32}).items()))
        expect(["node", "-c", path], 2, "node.yaml holds a secret .a key or token. but has mode 0644")
        # A certificate whose time is over is said to be, before anybody wonders why there is no connection.
        (folder / "old.crt").write_text(OLD_CERTIFICATE)
        path.write_text("".join(f"{k}: {v}\n" for k, v in (node | {"coordinator": "tls+" + node["coordinator"], "tls_certificate": "old.crt"}).items()))
        first_said(path, "WARN certificate_not_valid .*valid from 2001-02-03 to 2002-03-04")
# What is no model is said to be none, and which file; what nobody gets is no success.
with tempfile.TemporaryDirectory(prefix="omm-cli-") as folder:
    wrong = {name: pathlib.Path(folder) / name for name in ("empty.gguf", "text.gguf", "cut.gguf", "v1.gguf", "big.gguf", "iq3.gguf", "folder")}
    wrong["folder"].mkdir()
    wrong["empty.gguf"].touch()
    wrong["text.gguf"].write_text("hello\n")
    wrong["cut.gguf"].write_bytes(MODEL.read_bytes()[:100000])
    wrong["v1.gguf"].write_bytes(b"GGUF\1" + bytes(40))
    wrong["big.gguf"].write_bytes(b"GGUF\0\0\0\3" + bytes(40))
    head, tail = MODEL.read_bytes().split(b"blk.0.attn_q.weight", 1)  # then u32 n_dims, two u64, u32 type
    wrong["iq3.gguf"].write_bytes(head + b"blk.0.attn_q.weight" + tail[:20] + b"\x15" + tail[21:])
    says = {"empty.gguf": "empty.gguf is empty", "text.gguf": "text.gguf is not a GGUF file", "folder": "not a regular file",
            "cut.gguf": r"cut.gguf: GGUF: tensor \S+ of \d+ bytes ends behind", "v1.gguf": "v1.gguf: GGUF version 1, .* only 2 and 3",
            "big.gguf": "big.gguf: GGUF version 3 in big-endian byte order",
            "iq3.gguf": "iq3.gguf: GGUF: tensor blk.0.attn_q.weight: type IQ3_S is not read; these are: F32, .* TQ2_0$"}
    for name, path in wrong.items():
        for command in (["inspect", path], ["generate", "-m", path, "x"], ["chat", "-m", path, "--no-notes"],
                        ["bench", "-m", path], ["quantize", path, path.with_name("out.gguf"), "Q8_0"]):
            expect(command, 3, says[name])
    model, out = pathlib.Path(folder) / "model.gguf", pathlib.Path(folder) / "out.gguf"
    model.write_bytes(b"GGUF\2" + MODEL.read_bytes()[5:])  # version 2 is the same file
    old, new = [run("generate", "-m", m, "-n", 8, "--special", "x") for m in (model, MODEL)]
    if old.returncode != 0 or old.stdout != new.stdout or not old.stdout:
        failures.append(f"GGUF version 2: exit {old.returncode}: {old.stdout[:100]!r}, {new.stdout[:100]!r} {old.stderr[:200]}")
    model.write_bytes(MODEL.read_bytes())
    (pathlib.Path(folder) / "link.gguf").symlink_to(model)
    expect(["quantize", model, pathlib.Path(folder) / "link.gguf", "Q8_0"], 2, "OUT is IN, .*model.gguf: give another name")
    parts = [pathlib.Path(part) for part in split_gguf.write(model, folder, "parts", 2)]
    whole = [part.read_bytes() for part in parts]
    expect(["quantize", parts[0], parts[1], "Q8_0"], 2, "OUT is a part of IN, .*parts-00001-of-00002.gguf: give another name")
    expect(["logits", "-m", parts[0], "--ids", "1,2", "-o", parts[1]], 2, "--out is --model, .*parts-00001-of-00002.gguf")
    expect(["logits", "-m", model, "--ids", "1,2", "-o", model], 2, "--out is --model, .*model.gguf: give another name")
    expect(["adapter", "merge", "-m", parts[1], "--lora", model, "-o", parts[0]], 2, "--out is --model, .*: give another name")
    if [part.read_bytes() for part in parts] != whole:
        failures.append("a part of the model that was read has been written")
    made = out.with_name("none") / "two" / "out.gguf"  # as train's --out: the folders are made, and gone where nothing comes into them
    made.parent.parent.mkdir()
    expect(["quantize", model, model / "x.gguf", "Q8_0"], 3, "OUT .*x.gguf: no file can be made in .*: Not a directory")
    expect(["quantize", model, made, "Q8_0"], 0, "bits a value", "stdout")
    shutil.rmtree(made.parent.parent)
    expect(["synth", "tiny-llama", "/dev/full"], 3, "/dev/full exists and is not a regular file")
    if model.read_bytes() != MODEL.read_bytes() or out.exists():
        failures.append("quantize: wrong use has written something")
    for args in (["inspect", MODEL], ["inspect", MODEL, "--json"], ["generate", "-m", MODEL, "-n", "3", "x"], ["--help"],
                 ["generate", "-m", MODEL, "-n", "3", "--json", "x"], ["quantize", MODEL, out, "Q8_0", "--json"],
                 ["synth", "tiny-llama", out], ["bench", "-m", MODEL, "-p", "2", "-n", "1", "-r", "1", "--peak-seconds", "0"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([MESHMIND, *map(str, args)], stdout=full, stderr=subprocess.PIPE, text=True, cwd=SOURCE, timeout=600)
        if done.returncode != 3 or not re.search("cannot write the output|No space left", done.stderr):
            failures.append(f"{args} > /dev/full: exit {done.returncode}: {done.stderr[-200:]}")
    # A reader that goes away ends the text; Ctrl-C ends it whole, and keeps the session; a kill leaves no file.
    endless = [MESHMIND, "generate", "-m", str(MODEL), "-n", "400", "--special", "--temp", "1", "Once"]
    for _ in range(5):  # on a busy machine the text may be over before its reader has gone
        talk = subprocess.Popen(endless, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=SOURCE)
        talk.stdout.read(1)
        talk.stdout.close()
        said = talk.stderr.read()
        talk.stderr.close()
        if talk.wait(timeout=600) != 0:
            break
    if talk.returncode != 3 or b"cannot write the output: Broken pipe" not in said:
        failures.append(f"generate | head: exit {talk.returncode}")
    session = pathlib.Path(folder) / "session"
    talk = subprocess.Popen([*endless, "--session", str(session)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=SOURCE)
    first = talk.stdout.read(1)
    talk.send_signal(signal.SIGINT)
    text, said = talk.communicate(timeout=600)
    if talk.returncode == 0:
        print("generate: was done before the interrupt")
    elif talk.returncode != 3 or not re.search(rb"stopped after \d+ tokens; kept in .*session", said) or not text.endswith(b"\n"):
        failures.append(f"generate, Ctrl-C: exit {talk.returncode}: {said[-200:]} {text[-50:]}")
    expect(["generate", "-m", MODEL, "--session", session / "x", "-n", 3, "Once"], 3, "--session .*session/x: no file can be made in .*session: Not a directory")
    if run("generate", "-m", MODEL, "--session", session / "x", "-n", 3, "Once").stdout:
        failures.append("generate: text before a session that cannot be kept")
    if json.loads(run("generate", "-m", MODEL, "--session", session, "-n", 1, "--json", "x").stdout)["restored_tokens"] < 2:
        failures.append("generate, Ctrl-C: no session")
    # The same while the prompt is read, which plain C takes a second for: the whole prompt is kept.
    early, words = pathlib.Path(folder) / "early", "The cat sat on the mat and looked at the rain. " * 30
    talk = subprocess.Popen([MESHMIND, "generate", "-m", str(MODEL), "-n", "100", "--kv", "f32", "--session", str(early), words],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=SOURCE, env={**os.environ, "OMM_ISA": "scalar"})
    while not early.exists() and talk.poll() is None:
        time.sleep(0.005)
    time.sleep(0.1)
    talk.send_signal(signal.SIGINT)
    text, said = talk.communicate(timeout=600)
    if talk.returncode != 3 or b"kept in" not in said:
        failures.append(f"generate, Ctrl-C in the prompt: exit {talk.returncode}: {said[-200:]}")
    prompt = run("tokenize", "-m", MODEL, "-t", words).stdout.split()
    again = json.loads(run("generate", "-m", MODEL, "--session", early, "-n", 1, "--json", "x").stdout or "{}")
    if len(prompt) < 100 or again.get("restored_tokens", 0) < len(prompt) - 1:
        failures.append(f"generate, Ctrl-C in the prompt: {again.get('restored_tokens')} of {len(prompt)} tokens are kept")
    job = subprocess.Popen([MESHMIND, "synth", "smollm2-135m", str(out), "--type", "Q4_K"], stdout=subprocess.PIPE, cwd=SOURCE)
    time.sleep(0.3)
    job.kill()
    job.communicate()
    left = sorted(p.name for p in pathlib.Path(folder).glob("*.tmp.*"))
    if left and os.path.exists("/proc/self/fd"):
        failures.append(f"synth, killed: {left}")
expect(["inspect", "README.md"], 3, "README.md is not a GGUF file")
expect(["pretrain", "scenarios/base/pretrain.yaml"], 2, "CONFIG and --out are needed")
expect(["pretrain", "--out", "/tmp/x.gguf"], 2, "CONFIG and --out are needed")
expect(["pretrain", "/nowhere.yaml", "--out", "/tmp/x.gguf"], 2, "/nowhere.yaml")
expect(["pretrain", "README.md", "--out", "/tmp/x.gguf"], 2, "README.md:")
expect(["pretrain", "scenarios/base/pretrain.yaml", "--out", "/tmp/x.gguf", "--resume"], 2, "needs --checkpoint")
expect(["inspect", MODEL], 0, "chat template: chatml\n  tools announced briefly, calls <tool_call> ", "stdout")
whole = run("generate", "-m", MODEL, "--chat", "-n", 24, "--json", "What can you do?")
answer = json.loads(whole.stdout)["text"]
stop = answer[4:12]  # in the middle of pieces
done = json.loads(run("generate", "-m", MODEL, "--chat", "-n", 24, "--json", "--stop", stop, "What can you do?").stdout)
if "warning" in whole.stderr or done["stop"] != "text" or done["text"] != answer[:answer.index(stop)]:
    failures.append(f"generate --stop {stop!r} of {answer!r}: {done}; {whole.stderr}")
# A text that begins with what may be a stop text, or is one, is empty at first.
for stop, text in (("Tx", "T\n"), ("T", "\n")):
    expect(["generate", "-m", MODEL, "--temp", 9, "--seed", 7, "-n", 1, "--stop", stop, "x"], 0, rf"\A{text}\Z", "stdout")
expect(["generate", "-m", MODEL, "-c", 16, "Once upon a time there was a crow. The crow said that it was old."], 3,
       r"a prompt of \d\d tokens: the context holds 16; -c takes up to the 512 that")
# Where a limit has lowered the context, or the model knows no more, -c would change nothing, and is not what they are told to give.
for more, holds, says in (["--max-memory-mb", 18], r"\d\d\d", "with more memory it would be 512"), ([], "512", "the model was trained for no more"):
    expect(["generate", "-m", MODEL, *more, "a " * 600], 3, rf"a prompt of \d+ tokens: the context holds {holds}; {says}$")
    ends = run("generate", "-m", MODEL, *more, "-n", 600, "--stop", "never said", "leaf").stderr
    if not re.search(rf"the context of {holds} positions is full; {says}$", ends, re.M):
        failures.append(f"generate {more}, the context is full: {ends}")
# A file without a template, in whose vocabulary ChatML's marks are nothing but text, is talked to with a warning; one whose template
# names marks that its vocabulary lacks is damaged.
with tempfile.TemporaryDirectory(prefix="omm-cli-") as folder:
    plain, damaged = pathlib.Path(folder) / "plain.gguf", pathlib.Path(folder) / "damaged.gguf"
    start = struct.pack("<Q", 12) + b"<|im_start|>"
    lacks = MODEL.read_bytes().replace(start, start.replace(b"im", b"xy"))
    damaged.write_bytes(lacks)
    plain.write_bytes(lacks.replace(b"tokenizer.chat_template", b"tokenizer.xxxx_template"))
    for command in (["generate", "--chat", "-n", 8, "Hi", "-m"], ["chat", "--no-notes", "-n", 8, "-m"]):
        done = run(*command, plain, stdin="Hi\n")
        if done.returncode != 0 or not re.search("warning: the model has no chat template; ChatML is used, its marks as plain text", done.stderr) or len(
                done.stdout.strip()) < 2:
            failures.append(f"{command} without marks: exit {done.returncode}: {done.stdout[:200]} {done.stderr[:300]}")
        done = run(*command, damaged, stdin="Hi\n")
        if done.returncode != 3 or "this model has no <|im_start|> token" not in done.stderr:
            failures.append(f"{command} of a damaged file: exit {done.returncode}: {done.stdout[:200]} {done.stderr[:300]}")
# A file that does not say how its texts are cut into words: said once by whatever makes tokens of text, and by inspect.
with tempfile.TemporaryDirectory(prefix="omm-cli-") as folder:
    unsaid, empty, none = (pathlib.Path(folder) / name for name in ("unsaid.gguf", "empty.gguf", "none.gguf"))
    unsaid.write_bytes(MODEL.read_bytes().replace(b"tokenizer.ggml.pre", b"tokenizer.ggml.xxx"))
    none.write_bytes(MODEL.read_bytes().replace(b"tokenizer.chat_template", b"tokenizer.xxxx_template"))
    retemplate(MODEL, empty, "")
    texts, data = pathlib.Path(folder) / "t.txt", pathlib.Path(folder) / "one.jsonl"
    data.write_text((BASE / "test.jsonl").read_text().splitlines(True)[0])
    texts.write_text("Once upon a time there was a crow. " * 20)
    WORDS = "warning: the model's file has no tokenizer.ggml.pre: its texts are cut into words as by 'default'"
    for args in (["generate", "-n", 2, "Hi"], ["generate", "--chat", "-n", 2, "Hi"], ["generate", "--draft", unsaid, "-n", 2, "Hi"],
                 ["chat", "--no-notes", "-n", 2], ["perplexity", "-f", texts], ["tokenize", "--text", "Hi"], ["data", "check", data],
                 ["train", "--data", data, "--dry-run", "--out", pathlib.Path(folder) / "out.gguf"], ["bench", "--train", "--peak-seconds", 0, "--repeat", 1, "--seq", 32]):
        done, plain = run(*args, "-m", unsaid, stdin="Hi\n"), run(*args, "-m", MODEL, stdin="Hi\n", meshmind=FASTER)
        if done.returncode != 0 or done.stderr.count(WORDS) != 1 or WORDS in plain.stderr:
            failures.append(f"{args} without tokenizer.ggml.pre: exit {done.returncode}: {done.stderr[:500]}")
    size = struct.pack("<Q", 16) + b"llama.vocab_size" + struct.pack("<I", 4)
    at = (data := bytearray(MODEL.read_bytes())).index(size) + len(size)
    count = struct.unpack_from("<I", data, at)[0]
    struct.pack_into("<I", data, at, 5)
    none.with_name("five.gguf").write_bytes(data)
    expect(["generate", "-n", 2, "-m", none.with_name("five.gguf"), "Hi"], 0,
           f"warning: the model's file says a vocab_size of 5, and its list has {count} tokens: the list is taken")
    # A model of others is quantised; that it is not run here is said.
    other, small = none.with_name("other.gguf"), none.with_name("small.gguf")
    name = b"general.architecture" + struct.pack("<IQ", 8, 5)
    other.write_bytes(MODEL.read_bytes().replace(name + b"llama", name + b"other"))
    expect(["quantize", other, small, "Q8_0"], 0, "note: this program does not run the model: architecture 'other' is not supported; these are: llama")
    if "note" in (said := run("quantize", MODEL, small, "Q8_0").stderr):
        failures.append(f"quantize says {said}")
    for path, says, assumed, template in ((unsaid, "words: the file has no tokenizer.ggml.pre, 'default' is assumed\nchat template: chatml\n", "default", "chatml"),
                                          (MODEL, "parameters\nchat template: chatml\n", None, "chatml"), (empty, "parameters\nchat template: none, ChatML is used\n", None, None),
                                          (none, "parameters\nchat template: none, ChatML is used\n", None, None)):
        expect(["inspect", path], 0, says, "stdout")
        shown = json.loads(run("inspect", path, "--json").stdout)
        if (shown["words_assumed"], shown["chat_template"]) != (assumed, template):
            failures.append(f"inspect --json {path}: {shown['words_assumed']}, {shown['chat_template']}")
        said = run("generate", "--chat", "-n", 2, "-m", path, "Hi").stderr
        if ("the model has no chat template; ChatML is used" in said) != (template is None):
            failures.append(f"generate --chat {path}: {said}")
expect(["bench"], 2, "-m FILE")

def generated(*args):
    done = run("generate", "-m", MODEL, "-n", 40, "--json", *args)
    if done.returncode != 0:
        failures.append(f"generate {args}: exit {done.returncode}: {done.stderr[:300]}")
        return {"ids": [], "text": "", "drafts": {}}
    return json.loads(done.stdout)


# Proposals change nothing but the speed; a session file goes on where the text ended.
STORY = "Once upon a time there was a crow. The crow said that"
for how in [[], ["--temp", "0.9", "--seed", "7"], ["--kv", "q8_0", "--top-k", "20", "--temp", "1.5"]]:
    plain = generated(*how, STORY)
    for proposer in [["--lookup"], ["--draft", MODEL, "--drafts", "6"]]:
        ahead = generated(*how, *proposer, STORY)
        if ahead["ids"] != plain["ids"] or not plain["ids"]:
            failures.append(f"generate {how} {proposer}: other ids: {ahead} {plain}")
        if not 0 < ahead["drafts"]["accepted"] <= ahead["drafts"]["proposed"] and "--draft" in proposer:
            failures.append(f"more right than there were: {ahead['drafts']}")
        # The end leaves at most one batch of proposals undecided.
        if "--draft" in proposer and ahead["drafts"]["accepted"] + 6 < ahead["drafts"]["proposed"]:
            failures.append(f"a model is no draft of itself: {ahead['drafts']}")
        # Logits of all proposals are in the plan.
        rows = (ahead["memory"]["work_bytes"] - plain["memory"]["work_bytes"]) / (2048 * 4)
        if rows != (4 if "--lookup" in proposer else 6) + 2:
            failures.append(f"generate {proposer}: memory for {rows} more rows of logits is planned")
    with tempfile.TemporaryDirectory() as folder:
        parts = [run("generate", "-m", MODEL, "-n", 20, "--json", "--session", folder + "/s", *how, text)
                 for text in [STORY, ""]]
        ids = [i for part in parts for i in json.loads(part.stdout)["ids"]]
        if ids != plain["ids"][:40]:
            failures.append(f"generate --session {how}: {ids} is not {plain['ids']}")
        # One that ended with the context goes on with a longer one: what was said is in the file, nothing is said twice.
        full = pathlib.Path(folder) / "full"
        for proposer in [], ["--lookup"]:
            full.unlink(missing_ok=True)
            parts = [json.loads(run("generate", "-m", MODEL, "-c", context, "-n", count, "--json", "--session", full, *how, *proposer, text,
                                    meshmind=MESHMIND if proposer else FASTER).stdout)
                     for context, count, text in ((30, 40, STORY), (30, 40, ""), (512, 5, ""))]
            ids = [i for part in parts for i in part["ids"]]
            if ids != plain["ids"][:len(ids)] or [p["stop"] for p in parts] != ["context", "context", "length"] or parts[1]["ids"]:
                failures.append(f"generate --session {how} {proposer}, the context is full: {parts} is not {plain['ids']}")
        expect(["generate", "-m", MODEL, "--session", folder + "/s", "--activations", "f32", *how, "x"], 3,
               "other activations")
        expect(["generate", "-m", MODEL, "--session", folder + "/s", "--chat", "x"], 2, "--session")
# A session that ends inside a character goes on with the whole character.
with tempfile.TemporaryDirectory() as folder:
    letters = ["--temp", "20", "--top-k", "0", "--seed", "1", "--json"]  # token 80 begins a letter of two bytes, token 81 ends it
    parts = [json.loads(run("generate", "-m", MODEL, *letters, "-n", n, "--session", folder + "/made/s", *text).stdout)["text"] for n, text in ((80, ("a",)), (2, ()))]
    if not parts[0].endswith("sp\ufffd") or not parts[1].startswith("\u01f9"):
        failures.append(f"generate --session, inside a character: {parts[0][-8:]!a} {parts[1]!a}")
    # Of a model that asks for it the begin token stands before the text alone, and not where a session goes on.
    asks, key = pathlib.Path(folder) / "asks.gguf", b"tokenizer.ggml.add_bos_token" + b"\7\0\0\0"
    asks.write_bytes(MODEL.read_bytes().replace(key + b"\0", key + b"\1"))
    counts = [json.loads(run("generate", "-m", model, "-n", 1, "--json", "--session", f"{folder}/{model.stem}", "Once upon").stdout)["prompt_tokens"]
              for model in (MODEL, asks, asks)]
    if counts != [counts[0], counts[0] + 1, counts[0]]:
        failures.append(f"generate --session, the begin token: {counts} tokens")
    expect(["generate", "-m", MODEL, "--session", folder + "/new"], 2, "which prompt.*a text goes on without one where --session's file is there")
    if (pathlib.Path(folder) / "new").exists():
        failures.append("generate --session without a prompt left a file")
# One program at a time goes on with a session; the second is refused, and the first one's turns are kept.
with tempfile.TemporaryDirectory() as folder:
    session = pathlib.Path(folder) / "made" / "s"
    first = subprocess.Popen([MESHMIND, "chat", "-m", MODEL, "-t", "1", "--no-notes", "--session", str(session)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=SOURCE)
    deadline = time.monotonic() + 60
    for turn in "hi", "thanks":  # before and after a save, which puts another file there
        size = session.stat().st_size if session.exists() else 0
        first.stdin.write(turn + "\n")
        first.stdin.flush()
        while (not session.exists() or session.stat().st_size <= size) and time.monotonic() < deadline:
            time.sleep(0.05)
        expect(["chat", "-m", MODEL, "-t", 1, "--no-notes", "--session", session], 3, "another program goes on with this session")
        expect(["generate", "-m", MODEL, "-t", 1, "-n", 1, "--session", session, "x"], 3, "another program goes on with this session")
    first.stdin.close()
    if first.wait() or "going on from" not in run("chat", "-m", MODEL, "-t", 1, "--no-notes", "--session", session).stdout + first.stderr.read():
        failures.append("chat --session, refused to another: lost its turns")
# What /reset forgets is in the session's file no more, even where the program is killed after it.
with tempfile.TemporaryDirectory() as folder:
    sizes = []
    for lines in "My secret is bluebird seven\n", "My secret is bluebird seven\n/reset\n":
        said = run("chat", "-m", MODEL, "-t", 1, "--no-notes", "--session", folder + "/s", stdin=lines)
        sizes.append((pathlib.Path(folder) / "s").stat().st_size)
        again = run("chat", "-m", MODEL, "-t", 1, "--no-notes", "--session", folder + "/s", stdin="/reset\n")
        if said.returncode or again.returncode:
            failures.append(f"chat --session: {said.stderr} {again.stderr}")
    if not sizes[1] < 1000 < sizes[0]:
        failures.append(f"chat, /reset: session files of {sizes} bytes")
# Names in data and adapters are a stranger's text.
with tempfile.TemporaryDirectory() as folder:
    names = pathlib.Path(folder) / "names.jsonl"
    names.write_text(json.dumps({"client": "c 1\ndata: pass\n\x1b]0;owned\x07\x9b", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}) + "\n")
    said = run("data", "check", names, "-m", MODEL).stdout
    if "c 1?data: pass??]0;owned?? 1" not in said:
        failures.append(f"data check, a client's name: {said!a}")
    adapter = pathlib.Path(folder) / "a.gguf"
    made = run("train", "-m", MODEL, "-d", names, "-o", adapter, "--steps", 1, "--batch", 64, "--rank", 1)
    at = adapter.read_bytes().index(b"llama", adapter.read_bytes().index(b"general.architecture"))
    adapter.write_bytes(adapter.read_bytes()[:at] + b"l\x1b[mX" + adapter.read_bytes()[at + 5:])
    expect(["adapter", "show", adapter], 0, r"architecture +l\?\[mX, 6 layers", "stdout")
# `--full` with GaLore of a rank that no matrix has would be without it.
expect(["train", "--full", "-m", MODEL, "-d", BASE / "test.jsonl", "-o", "/tmp/none.gguf", "--optimizer", "galore", "--galore-rank", "256"], 2,
       "galore: rank 256 leaves every matrix of this model whole; accepted: 1 to 255")
expect(["bench", "--train", "-m", MODEL, "--seq", "513"], 2, "--seq 513: the model was trained for 512 tokens")
expect(["tokenize", "-m", MODEL, "--special", "--plain", "--file", "/dev/null"], 2, "--special and --plain: one of them")
# Speeds are said on stderr, beside JSON too.
for how in [], ["--json"], ["--json", "--lookup"]:
    said = run("generate", "-m", MODEL, "-n", 6, "--stats", *how, "Once").stderr
    if not re.search(r"prompt \d+ tokens at [\d.]+ tokens/s, .*generated 6 at [\d.]+ tokens/s, stop: length", said) or ("proposals: " in said) != ("--lookup" in how):
        failures.append(f"generate --stats {how}: {said}")
# The cache is as asked, else the session file's, else F16; another than the file's is refused.
with tempfile.TemporaryDirectory() as folder:
    for asked, kept in [[], "f16"], [["--kv", "f32"], "f32"], [["--kv", "q8_0"], "q8_0"]:
        file = pathlib.Path(folder) / kept
        caches = [json.loads(run("generate", "-m", MODEL, "-n", 2, "--json", "--session", file, *kv, "Once").stdout)["memory"]["kv"]
                  for kv in (asked, [])]
        if caches != [kept, kept]:
            failures.append(f"generate {asked} --session: caches {caches}")
        expect(["generate", "-m", MODEL, "--session", file, "--kv", "f16" if kept == "f32" else "f32", "x"], 3, f"cache of type {kept}, not")
        # A limit that lowers the cache of a new one leaves that of a file: shorter contexts are next, then streaming.
        top = json.loads(run("generate", "-m", MODEL, "-n", 1, "--json", "--session", file, "x").stdout)["memory"]
        less = run("generate", "-m", MODEL, "-n", 1, "--json", "--session", file, "--max-memory-mb", top["planned_bytes"] // 1_000_000, "x")
        now = json.loads(less.stdout or "{}").get("memory")
        if not now or now["kv"] != kept or now["planned_bytes"] >= top["planned_bytes"]:
            failures.append(f"generate --session of {kept} with less memory: {now} {less.stderr}")
    (pathlib.Path(folder) / "other").write_text("no session")
    expect(["generate", "-m", MODEL, "--session", folder + "/other", "x"], 3, "other is no session file")
expect(["generate", "-m", MODEL, "--draft", MODEL, "-c", 96, "-n", 1, "x"], 0, r"memory of the draft: .*\(96 positions, f16\)")
narrow = pathlib.Path(os.environ.get("OMM_TESTDATA", SOURCE.parent / "shared" / "testdata")) / "models" / "stories260K-f32.gguf"
if narrow.exists():  # heads of 8: no cache of a draft may be Q8_0
    expect(["generate", "-m", narrow, "--draft", narrow, "-n", 3, "Once"], 0, "memory of the draft")
    # A vocabulary whose " time" clears the screen: a file gets its bytes, a terminal does not.
    told = narrow.read_bytes().replace(struct.pack("<Q", 7) + "\u2581time".encode(), struct.pack("<Q", 7) + "\u2581\x1b[2J".encode())
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        file.write(told)
        file.flush()
        args = [MESHMIND, "generate", "-m", file.name, "-n", "4", "Once"]
        piped = subprocess.run(args, capture_output=True, cwd=SOURCE).stdout
        shown, end = pty.openpty()
        subprocess.run(args, stdout=end, stderr=subprocess.DEVNULL, cwd=SOURCE)
        seen = os.read(shown, 4096)
        if b" \x1b[2J" not in piped or b"\x1b" in seen or b" ?[2J" not in seen:
            failures.append(f"generate, control characters: {piped} to a pipe, {seen} to a terminal")
expect(["generate", "-m", MODEL, "--kv", "q8", "x"], 2, "f32, f16 or q8_0")
expect(["generate", "-m", MODEL] + ["--lora=a"] * 9 + ["x"], 2, "at most 8")
expect(["synth", "llama9", "/nowhere.gguf"], 2, "llama9.*llama3.2-1b.*tiny-phi3")
expect(["synth", "tiny-llama", "/nowhere.gguf", "--type", "Q9"], 2, "Q9.*Q8_0")
expect(["synth", "tiny-llama"], 2, "missing argument")
expect(["synth", "tiny-llama", "/proc/nowhere/x.gguf"], 3, "nowhere")
expect(["quantize", MODEL, "/nowhere/q.gguf"], 2, "missing argument")
unmade = f"{tempfile.gettempdir()}/omm-cli-nowhere/q.gguf"
expect(["quantize", MODEL, unmade, "Q4_7"], 2, "Q4_7.*Q4_K_M.*TQ1_0")
expect(["quantize", MODEL, unmade, "Q4_0", "--keep", "output.weight"], 2, "PATTERN=TYPE")
if pathlib.Path(unmade).parent.exists():
    failures.append("quantize, wrong use: a folder stays behind")
expect(["quantize", MODEL, "/proc/nowhere/q.gguf", "Q4_0"], 3, "make folder /proc/nowhere")
expect(["quantize", "/nowhere.gguf", "/nowhere/q.gguf", "Q4_0"], 2, "nowhere.gguf")
expect(["coordinator"], 2, "-c FILE")
expect(["data"], 2, "data check FILE")
expect(["data", "check", BASE / "test.jsonl"], 2, "which model")
expect(["data", "chekc"], 2, "unknown action chekc; accepted: check")
expect(["data", "check", "-m", MODEL], 2, "check: which file")
expect(["simlate", "x.yaml"], 2, r"^meshmind: unknown subcommand 'simlate', did you mean 'simulate'\?\n$")
expect(["nosuch"], 2, r"(?s)unknown subcommand 'nosuch'\n\nusage: .*simulate")
expect(["simulate", "x.yaml", "--thraeds=2"], 2, r"did you mean --threads\? unknown option '--thraeds=2'")
expect(["simulate", "x.yaml", "--nothing-like-it"], 2, r"^meshmind simulate: unknown option '--nothing-like-it'")
expect(["data", "check", "/nowhere.jsonl", "-m", MODEL], 2, "nowhere.jsonl")
expect(["data", "check", BASE / "train.jsonl", BASE / "test.jsonl", "-m", MODEL], 0,
       r"(?s)examples +6500\n.*clients +24 .*shared: 0 examples of .*data: pass", "stdout", meshmind=FASTER)
expect(["node"], 2, "-c FILE")

with tempfile.TemporaryDirectory(prefix="omm-cli-") as name:
    folder = pathlib.Path(name)
    bad = folder / "bad.yaml"
    scenario = quick(folder)
    ship_lines_of(folder, "test.jsonl", ["cafe-02", "studio-02", "harbor-02"], 5)
    good = scenario.read_text()
    bad.write_text(good.replace("rounds: 2", "rounds: many"))
    expect(["simulate", bad], 2, r"bad\.yaml:8:9: rounds: .*many.*accepted")
    bad.write_text(good.replace("rounds: 2", "rouns: 2"))
    expect(["simulate", bad], 2, r"bad\.yaml:8:1: rouns: unknown key, did you mean \"rounds\"")
    bad.write_text(good.replace("cafe-02", "nobody-77"))
    expect(["simulate", bad, "--out", folder / "x"], 2, "nobody-77", meshmind=FASTER)
    bad.write_text(good.replace("train.jsonl", "test.jsonl"))
    expect(["simulate", bad, "--out", folder / "x"], 2, r"test.jsonl: \d+ of \d+ held-out examples, the first in line \d+, are also what \S+ trains on", meshmind=FASTER)
    bad.write_text(good + "round: {accept_min: 3, select: 2}\n")
    expect(["simulate", bad, "--out", folder / "x"], 2, "round.accept_min is 3, but a round has 2 clients at most")
    bad.write_text(re.sub(r"(?s)population:\n.*?(?=\n\w)", "population: [{group: good, clients: [cafe-02]}, {group: bad, count: 2, hostile: nan}]", good)
                   + "round: {accept_min: 2}\n")  # of hostile nodes none is ever accepted
    expect(["simulate", bad, "--out", folder / "x"], 2, "round.accept_min is 2, but a round has 1 clients at most", meshmind=FASTER)
    bad.write_text(re.sub(r"(?s)population:\n.*?(?=\n\w)", "population: [{group: bad, count: 2, hostile: nan}]", good))
    expect(["simulate", bad, "--out", folder / "x"], 2, "bad.yaml: population: all groups are hostile, so no round would ever begin; accepted: a group with `clients`", meshmind=FASTER)
    bad.write_text(re.sub(r"(?m)^policy:.*\n", "", good) + "policy: nowhere.yaml\n")
    expect(["simulate", bad, "--out", folder / "x"], 2, r"bad.yaml: policy: there is no \S*/nowhere.yaml")
    bad.write_text(good.replace("scalar_steps: 0", "scalar_steps: 9"))  # found out before anything is trained
    expect(["simulate", bad, "--out", folder / "x"], 2, "audit.scalar_steps is 9, and a submission has recipe.steps: 2; accepted: 0 .* to 2")
    bad.write_text(good + "round: {quorum: 40}\n")
    expect(["simulate", bad, "--out", folder / "x"], 2, r"round.quorum is 40, but there are (\d) clients, and nobody can join a simulated run; accepted: 0 .* to \1", meshmind=FASTER)
    bad.write_text(good)
    expect(["simulate", bad, "--seed", 2**53 + 1, "--out", folder / "x"], 2, "--seed 9007199254740993; accepted: 0 to 9007199254740992")
    bad.write_text(good.replace("seed: ", "seed: 900719925474099"))
    expect(["simulate", bad, "--out", folder / "x"], 2, "seed: .*is out of range")
    # A pass as large as the scenario says: what a volunteer's node would decline is the scenario's own affair.
    bad.write_text(re.sub(r"rounds: 2", "rounds: 1", good.replace("recipe: {", "recipe: {micro_tokens: 65536, ")))
    wide = run("simulate", bad, "--out", folder / "wide", "-q", "--json", meshmind=FASTER)
    if json.loads(wide.stdout)["accepted"] == 0 or json.loads(wide.stdout)["refusals"]:
        failures.append(f"simulate, micro_tokens 65536: {wide.stdout}{wide.stderr}")
    if "warning" in wide.stderr or not json.loads(wide.stdout)["after"]["client_loss"] > json.loads(wide.stdout)["after"]["loss"] / 2:
        failures.append(f"simulate, all gates have samples: {wide.stdout}{wide.stderr}")
    shutil.rmtree(folder / "wide")
    # Gates that have no way to pass are named before the run; who ends it is told that nothing of it is of use.
    unsaid = folder / "unsaid.gguf"
    unsaid.write_bytes(MODEL.read_bytes().replace(b"tokenizer.ggml.pre", b"tokenizer.ggml.xxx"))
    bad.write_text(good.replace("submissions: 1", "submissions: 0").replace("base/openmeshmind-tiny-F16.gguf", str(unsaid)) + "policy: strict.yaml\n")
    (folder / "strict.yaml").write_text("quality: {tool_named_gain: {level: required}}\n"
                                        "reproducibility: {isa_mismatches: {level: informational}}\n")
    ends = subprocess.Popen([FASTER, "simulate", bad, "--out", folder / "ended"], stderr=subprocess.PIPE, text=True, cwd=SOURCE)
    said = ""
    while " %  " not in said and (line := ends.stderr.readline()):
        said += line
    ends.send_signal(signal.SIGINT)
    said += ends.communicate(timeout=100)[1]
    named = re.findall(r"warning: (\S+) is required with samples_min 1, which this scenario does not give", said)
    if named != ["quality.tool_named_gain", "reproducibility.threads_mismatches"] or said.count("warning: the model's file has no tokenizer.ggml.pre") != 1:
        failures.append(f"simulate, gates without samples: {named}: {said}")
    if ends.returncode != -signal.SIGINT or f"interrupted: {folder}/ended is of a run that did not end, and nothing goes on from it" not in said:
        failures.append(f"simulate, SIGINT: {ends.returncode}: {said}")
    shutil.rmtree(folder / "ended")
    unsaid.unlink()
    # What went wrong in a run is in its summary: why submissions were refused, and rounds that made it worse.
    for change, more, words in (("learning_rate: 0.005, beta2: 0", "", r"\d accepted, \d refused \(REFUSED_RANGE \d\); 2 rounds, \d void; .*\n  REFUSED_RANGE: a value larger than aggregation.value_max; "),
                                ("learning_rate: 0.005", "aggregation: {weight_sum_max: 256}\n", r"\(nothing was accepted\)\nSubmissions: 0 accepted, \d refused \(REFUSED_SIZE \d\).*\n  REFUSED_SIZE: over a limit of size; for tokens it is aggregation.weight_sum_max"),
                                ("learning_rate: 0.3", "round: {loss_increase_max: 0}\n", r"\nOf a delta the largest (\d+) of \d+ values are sent \(50 %: codec.up\)\nSubmissions: 6 accepted, 0 refused; 2 rounds, 0 void, \d held back \(worse by more than.*\n(?!  REFUSED|  \d)"),
                                ("learning_rate: 0.005", "population: [{group: three, clients: [cafe-02, studio-02, harbor-02], dropout: 1}]\n",
                                 r"\nSubmissions: 0 accepted, 0 refused; 2 rounds, 2 void; 3 nodes\n  6 more were asked for and did not come before round.deadline_ms: ")):
        one = re.sub(r"(?s)population:\n.*?\n(?=\w)", "", good) if more.startswith("population") else good
        bad.write_text(re.sub(r"learning_rate: [\d.]+", change, one) + more)
        said = run("simulate", bad, "--out", folder / "wrong", "-q", meshmind=FASTER).stdout
        if not re.search(words, said):
            failures.append(f"simulate, {change}: no '{words}' in {said}")
        shutil.rmtree(folder / "wrong")
    small = folder / "small.gguf"
    expect(["quantize", MODEL, small, "q4_0", "--threads", "2"], 0, r"(?s)F16 +Q4_0 .*F16 +F32|F32 +F32",
           "stdout")
    done = run("quantize", MODEL, small, "Q8_0", "--keep", "blk.0.*=F16", "--keep", "*.ffn_down.*=Q5_1",
               "--json")
    types = {t["name"]: t["to"] for t in json.loads(done.stdout)["tensors"]} if done.returncode == 0 else {}
    if (types.get("blk.0.ffn_down.weight"), types.get("blk.1.ffn_down.weight"),
            types.get("blk.1.attn_q.weight")) != ("F16", "Q5_1", "Q8_0"):
        failures.append(f"quantize --keep --json: exit {done.returncode}: {done.stderr[:300]} {types}")
    expect(["inspect", small], 0, "Q5_1", "stdout")
    small.unlink()
    out = folder / "run"
    done = run("simulate", scenario, "--out", out, "--json", "--threads", "auto", meshmind=FASTER)
    report = json.loads(done.stdout)
    if done.returncode == 0:  # what the report offers to type can be typed: the program as it was called
        again = run("simulate", scenario, "--out", folder / "again", "-q", meshmind=FASTER)
        line = re.search(r"(?m)^next: +(.*)$", again.stdout)
        done_next = subprocess.run(line[1] if line else "false", shell=True, capture_output=True, text=True, cwd=SOURCE)
        if "no replies were generated" not in again.stdout or "tool" in again.stdout.split("Bytes on the wire")[0].replace("tool calls (evaluation", ""):
            failures.append(f"simulate without replies: {again.stdout}")
        if done_next.returncode != 0 or "verify: pass" not in done_next.stdout:
            failures.append(f"what simulate offers as the next command does not work: {line}: {done_next.stderr[:200]}")
        shutil.rmtree(folder / "again", ignore_errors=True)
    if done.returncode != 0 or report["bundle"] != str(out) or not report["passed"]:
        failures.append(f"simulate --json: exit {done.returncode}: {done.stdout[:300]}")
    if not re.search("threads: [12]", done.stderr):
        failures.append(f"simulate --threads auto does not say what it chose: {done.stderr[:200]}")
    if not re.search(r"\d+ %  ", done.stderr) or "\r" in done.stderr:
        failures.append("progress is not plain lines where stderr is no terminal")
    expect(["simulate", scenario, "--out", out], 2, "there already")
    served = folder / "served.yaml"
    (folder / "other.yaml").write_text(good.replace("seed: 11", "seed: 12"))
    served.write_text(f"scenario: other.yaml\nlisten: tcp://127.0.0.1:0\nstate_dir: served\nbundle: {out}\n")
    expect(["coordinator", "-c", served], 2, "bundle: .* is sealed, and of run [0-9a-f]+; this one is [0-9a-f]+; accepted: another folder in bundle, or in state_dir")
    shutil.rmtree(folder / "served")
    served.unlink()
    (folder / "other.yaml").unlink()
    expect(["verify", out, "--trust", "abc"], 2, "--trust: 'abc' is neither a key nor a file; accepted: a minisign public key of 56 base64 characters")
    expect(["verify", out, "--trust", folder], 2, "--trust: .*; accepted: a file with a minisign public key")
    place = folder / "place"  # whose scenarios/ has what the bundle's scenario names
    place.mkdir()
    (place / "scenarios").symlink_to(folder)
    for args in (["verify", out, "--json"], ["gate", out, "--json"], ["inspect", MODEL, "--json"],
                 ["inspect", out / "final.gguf", "--json"],
                 ["replay", out, "--node", "cafe-02", "--round", "0", "--json"]):
        done = run(*args, cwd=place)
        try:
            json.loads(done.stdout)
        except ValueError:
            failures.append(f"{args}: stdout is not one JSON object: {done.stdout[:200]}")
        if done.returncode != 0:
            failures.append(f"{args}: exit {done.returncode}: {done.stderr[:300]}")
    shutil.rmtree(place)
    unsigned = folder / "unsigned"
    shutil.copytree(out, unsigned)
    (unsigned / "manifest.json.minisig").unlink()
    expect(["verify", unsigned], 1, r"(?s)^run +unknown\nrun digest +unknown\n.*\n  not done: 15 of 17 checks, as the manifest is not signed \(digests, run, .*complete\)\n", "stdout")
    (unsigned / "manifest.json").unlink()
    expect(["verify", unsigned], 1, "unsigned was never sealed: its run has not ended")
    shutil.copy(out / "manifest.json.minisig", unsigned)
    expect(["verify", unsigned], 1, "unsigned was sealed, and its manifest.json is gone since")
    shutil.rmtree(unsigned)
    strict = folder / "strict.yaml"
    strict.write_text("quality: {heldout_uplift: {threshold: 50}}\n")
    expect(["gate", out, "--policy", strict, "--junit", folder / "j.xml"], 1, "FAIL.*heldout_uplift", "stdout")
    if "<failure" not in (folder / "j.xml").read_text():
        failures.append("the JUnit file holds no failure")
    key = json.loads((out / "manifest.json").read_text())["bundle_key"]
    expect(["verify", out, "--trust", key], 0, "verify: pass", "stdout")
    other = "RWQ" + key[3:][::-1]
    done = run("verify", out, "--trust", other)
    if done.returncode not in (1, 2):
        failures.append(f"verify --trust of another key: exit {done.returncode}")
    lines = (BASE / "test.jsonl").read_text().splitlines()[:4]
    mixed = folder / "mixed.jsonl"
    mixed.write_text("\n".join([lines[0], '{"messages": []}', lines[1], "{oops", lines[1], lines[2]]) + "\n")
    expect(["train", "-m", MODEL, "-d", mixed, "-o", folder / "x.gguf", "--steps", "1"], 3,
           r"mixed\.jsonl:2: messages: a list of 1 to 256.*\(--skip-bad leaves bad ones out")
    made = folder / "new" / "folder" / "x.gguf"
    done = run("train", "-m", MODEL, "-d", mixed, "-o", made, "--steps", "1", "--skip-bad", "--json",
               "--split", "0.3", "--new-tokens", "0")
    data = json.loads(done.stdout.splitlines()[-1])["data"]
    if (data["bad_by"] != {"messages": 1, "not JSON": 1} or data["examples"] != 4
            or ":4:5: " not in data["bad_first"][1] or not 0 < data["split"]["held_out"] < 4):
        failures.append(f"train --skip-bad --split: {data}")
    done = run("data", "check", mixed, BASE / "test.jsonl", "-m", MODEL, "--json")
    report = json.loads(done.stdout)
    if (done.returncode, report["passed"], report["files"][0]["duplicates"], report["shared"]) != (1, False, 1, 3):
        failures.append(f"data check: exit {done.returncode}: {report}")
    for more, code in ([], 1), (["--skip-bad"], 0):
        done = run("data", "check", mixed, "-m", MODEL, *more)
        if done.returncode != code or "mixed.jsonl:2: " not in done.stdout:
            failures.append(f"data check {more} of two bad lines: exit {done.returncode}: {done.stdout}")
    said, want = run("data", "check", BASE / "test.jsonl", "-m", MODEL), 0
    for line in (BASE / "test.jsonl").read_text().splitlines():
        want += "<tool_call>" in next(m["content"] for m in json.loads(line)["messages"] if m["role"] == "assistant")
    if want < 10 or not re.search(rf"calls +{want}  answers with tool calls; tool_calls are learned as <tool_call>", said.stdout):
        failures.append(f"data check, {want} calls: {said.stdout}")
    # Model and adapter in each other's place.
    for args in (["generate", "x"], ["train", "-d", mixed, "-o", folder / "x.gguf"], ["data", "check", mixed],
                 ["tokenize", "--text", "x"]):
        expect([*args, "-m", made], 3, f"-m {made}: an adapter, not a model: .*--lora")
    for args in (["merge", "--lora", made], ["export", made]):
        expect(["adapter", *args, "-m", made, "-o", folder / "x.gguf"], 3, f"-m {made}: an adapter, not a model: .*--lora")
    expect(["generate", "-m", MODEL, "--draft", made, "x"], 3, f"--draft {made}: an adapter, not a model: .*--lora")
    # What is wrong is said of the option, and of the recipe's field.
    for option, value, field in (("rank", 0, "rank"), ("alpha", 0, "alpha"), ("steps", 0, "steps"), ("batch", 0, "batch_tokens"),
                                 ("micro", 0, "micro_tokens"), ("seq", 0, "seq_max"), ("lr", 11, "learning_rate"),
                                 ("lr-min", 2, "lr_min_ratio"), ("warmup", 1000001, "warmup_steps"), ("dropout", 1, "dropout"),
                                 ("weight-decay", 11, "weight_decay"), ("clip", -1, "clip_norm"), ("beta2", 1, "beta2"),
                                 ("prox", -1, "prox_mu"), ("momentum", 0.5, "momentum"), ("nesterov", None, "nesterov"),
                                 ("relative-step", None, "relative_step"), ("lora-plus", -1, "b_rate_ratio")):
        expect(["train", "-m", MODEL, "-d", mixed, "-o", folder / "x.gguf", f"--{option}", *([] if value is None else [value])], 2,
               rf"(?m)^meshmind train: --{option}: {field} is [-\d.]+ ?.*; accepted: ")
    expect(["generate", "-m", MODEL, "--lora", MODEL, "x"], 3, rf"{MODEL}: adapter: general.type is 'model', wanted 'adapter'")
    lacks = folder / "lacks.gguf"  # a file that is there and lacks something is damaged; one that is not there is a wrong path
    lacks.write_bytes(MODEL.read_bytes().replace(b"general.type", b"general.typx", 1))
    expect(["generate", "-m", MODEL, "--lora", lacks, "x"], 3, "lacks.gguf: GGUF: key general.type is missing")
    lacks.write_bytes(MODEL.read_bytes().replace(b"general.architecture", b"general.architecturx", 1))
    expect(["adapter", "show", lacks], 3, "lacks.gguf: GGUF: key general.architecture is missing")
    lacks.unlink()
    expect(["generate", "-m", MODEL, "--lora", lacks, "x"], 2, "lacks.gguf: No such file")
    shutil.rmtree(folder / "new")
    mixed.unlink()
    adapter = run("generate", "-m", MODEL, "--lora", out / "final.gguf", "Once", "-n", "4")
    with_adapter = run("generate", "-m", MODEL, "--lora", f"{out / 'final.gguf'}=1", "Once", "-n", "4")
    halves = run("generate", "-m", MODEL, *[f"--lora={out / 'final.gguf'}=0.5"] * 2, "Once", "-n", "4")
    if with_adapter.stdout != adapter.stdout or halves.returncode != 0:
        failures.append(f"generate --lora FILE=X: {with_adapter.stderr} {halves.stderr}")
    if adapter.returncode != 0:
        failures.append(f"generate --lora final.gguf: exit {adapter.returncode}: {adapter.stderr[:300]}")
    synth = [folder / "synth-1.gguf", folder / "synth-2.gguf"]
    for threads, path in enumerate(synth, 1):
        done = run("synth", "tiny-llama", path, "--json", "-t", threads)
        if done.returncode != 0 or json.loads(done.stdout)["bytes"] != path.stat().st_size:
            failures.append(f"synth: exit {done.returncode}: {done.stdout}{done.stderr[:300]}")
    if synth[0].read_bytes() != synth[1].read_bytes():
        failures.append("synth: other bytes with 2 threads")
    done = run("bench", "-m", synth[0], "-p", 8, "-n", 4, "-t", "1,2", "-r", 2, "--peak-seconds", 0.01, "--json")
    report = json.loads(done.stdout)
    if done.returncode != 0 or [r["threads"] for r in report["runs"]] != [1, 2] or \
            report["parameters"] != 512 * 256 + 2 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 512 * 256):  # tiny-llama's matrices
        failures.append(f"bench --json: exit {done.returncode}: {done.stdout[:300]}{done.stderr[:300]}")
    for one in report["runs"]:
        speeds = [one[what]["tokens_per_second"] for what in ("prefill", "decode")]
        speeds.append(one["decode"]["share_of_read_in_turns"])
        shares = [one["prefill"]["share_of_fma"], one["prefill"]["share_of_dot"], one["decode"]["share_of_read"],
                  one["decode"]["share_of_sustained_read"]]
        peaks = one["peaks"]
        if not all(0 < s["min"] <= s["median"] <= s["max"] for s in speeds) or not all(s > 0 for s in shares) or \
                peaks["read_sustained_bytes_per_second"] > peaks["read_bytes_per_second"] * 1.000001:
            failures.append(f"bench --json: {one}")
        # Each share is what the speed makes of the model, by the peak of the same run.
        prefill, decode = (s["median"] * n for s, n in zip(speeds, (2 * report["parameters"], report["bytes_per_token"])))
        made = [prefill / peaks["fma_flops"], prefill / peaks["dot_ops"], decode / peaks["read_bytes_per_second"],
                decode / peaks["read_sustained_bytes_per_second"]]
        if any(abs(share / want - 1) > 1e-9 for share, want in zip(shares, made)):
            failures.append(f"bench --json: shares {shares}, not {made}: {one}")
        if not beside_at_least(one["prefill"]["share_of_fma_in_turns"], speeds[0], 2 * report["parameters"] / peaks["fma_flops"]):
            failures.append(f"bench --json: what is beside a prefill is above the peak: {one}")
        if not all(0 <= one["decode"][w] <= 1 for w in ("waiting_share", "alone_share")):
            failures.append(f"bench --json: {one}")
        parts = one["decode"]["parts"]
        if sum(p["weight_bytes"] for p in parts.values()) != report["bytes_per_token"] or not all(
                parts[p]["seconds_per_token"] > 0 for p in ("qkv", "attention", "out", "gate_up", "down", "head")):
            failures.append(f"bench --json: {parts}")
    # Up to the model's last position, and not beyond.
    for prompt, generate in ((511, 1), (0, 512), (512, 0), (500, 12), (480, 32)):
        done = run("bench", "-m", synth[0], "-p", prompt, "-n", generate, "-r", 2, "-t", 1, "--peak-seconds", 0, "--json", meshmind=FASTER)
        if done.returncode != 0 or json.loads(done.stdout)["memory"]["positions"] != 512:
            failures.append(f"bench -p {prompt} -n {generate}: exit {done.returncode}: {done.stderr[:300]}{done.stdout[-300:]}")
    expect(["bench", "-m", synth[0], "-p", "99999999"], 2, "-p 99999999, .*at most 1048576")
    expect(["bench", "-m", synth[0], "-p", "512", "-n", "1"], 2, "-p and -n, together 513: the model was trained for 512 positions")
    # The peak is the most of all runs, each with the session full.
    few, many = [json.loads(run("bench", "-m", MODEL, "-p", 1, "-n", n, "-r", 1, "-t", "1,2", "--kv", "f32", "--peak-seconds", 0.01, "--json",
                                meshmind=FASTER).stdout) for n in (1, 511)]
    for report in few, many:
        peaks = [one["memory_peak_bytes"] for one in report["runs"]]
        if not report["memory_peak_bytes"] == report["memory"]["peak_bytes"] == max(peaks) or min(peaks) < report["memory"]["weights_bytes"]:
            failures.append(f"bench: peaks {peaks} of {report['memory_peak_bytes']}")
    grown = [b["memory_peak_bytes"] - a["memory_peak_bytes"] for a, b in zip(few["runs"], many["runs"])]
    if min(grown) < (many["memory"]["cache_bytes"] - few["memory"]["cache_bytes"]) / 2:
        failures.append(f"bench: 510 positions more took {grown} bytes: {few} {many}")
    expect(["bench", "-m", synth[0], "-p", "0", "-n", "3", "-r", "1", "--peak-seconds", "0"], 0,
           r"(?s)parameters.*peak memory.*\d thread.*decode +3 .*tokens/s", "stdout")
    expect(["bench", "-m", synth[0], "-p", "0", "-n", "3", "-r", "1", "--peak-seconds", "0", "--profile"], 0,
           r"(?s)decode +3 .*qkv +[\d.]+ us +[\d.]+ % +[\d.]+ MB +[\d.]+ GB/s\n.*head ", "stdout")
    # What is planned is said before loading; a limit lowers the cache's type, then the context, or refuses.
    line = (r"memory: weights 1\.4 MB, cache [\d.]+ MB \(%s\), work [\d.]+ MB, vocabulary [\d.]+ MB, program [\d.]+ MB(?:, loading [\d.]+ MB more)?; "
            r"[\d.]+ MB of [\d.]+ [GM]B available")
    context = folder / "context.txt"
    context.write_text("a crow " * 40)
    for command in [["generate", "--kv", "f32", "-n", 2, "x"], ["logits", "--ids", "1,2"], ["perplexity", "-f", context]]:
        done = run(*command, "-m", synth[0], "--json")
        memory = json.loads(done.stdout)["memory"]
        if not re.search(line % "512 positions, f32", done.stderr) or memory["positions"] != 512:
            failures.append(f"{command}: memory: {done.stderr} {memory}")
        parts = sum(memory[part + "_bytes"] for part in ("weights", "cache", "adapter", "work", "streaming", "vocabulary", "program", "loading_more"))
        if parts != memory["planned_bytes"] or memory["peak_bytes"] < memory["weights_bytes"] or not sums_up(done.stderr):
            failures.append(f"{command}: memory: {parts} {memory} {done.stderr}")
        # Lower and lower, from what it takes to what cannot be: types fall, then positions.
        memory = json.loads(run(*command, "-m", synth[0], "--json", meshmind=FASTER).stdout)["memory"]
        top, chosen = -(-memory["planned_bytes"] // 1000000), []
        for limit in range(top, 0, -1):
            fit = run(*command, "-m", synth[0], "--json", "--max-memory-mb", limit, meshmind=FASTER)
            if fit.returncode != 0:
                break
            now = json.loads(fit.stdout)["memory"]
            streamed = now["layers_in_memory"] < now["layers"]
            chosen.append((streamed, ["f32", "f16", "q8_0"].index(now["kv"]), -now["positions"]))
            if (now["planned_bytes"] > limit * 1000000 or (chosen[-1][1:] != (0, -512)) != ("instead of" in fit.stderr)
                    or streamed != ("layers streamed for" in fit.stderr)):
                failures.append(f"{command} --max-memory-mb {limit}: {now} {fit.stderr}")
        least = re.search(r"the least is (\d+) MB .*positions, q8_0", fit.stderr)
        if fit.returncode != 2 or chosen != sorted(chosen) or chosen[0] != (False, 0, -512) or not least or fit.stdout:
            failures.append(f"{command} --max-memory-mb: {chosen} {fit.returncode} {fit.stderr}")
        elif run(*command, "-m", synth[0], "--max-memory-mb", least[1], meshmind=FASTER).returncode != 0:
            failures.append(f"{command} --max-memory-mb {least[1]}: the least is not enough")
        # Layers from the file give the same answer, and so does a packed copy.
        ways = [[], ["--stream"], ["--packed"], ["--packed", "--stream"]]
        reports = [json.loads(run(*command, "-m", synth[0], "--json", *more).stdout) for more in ways]
        counts = [report["memory"]["layers_in_memory"] for report in reports]
        for report in reports:
            for key in ("memory", "measured", "seconds", "tokens_per_second"):
                report.pop(key, None)
        if counts != [2, 0, 2, 0] or any(report != reports[0] for report in reports):
            failures.append(f"{command} --stream, --packed: {counts} {reports}")
    context.unlink()
    packed_copies(folder, synth[0])
    for copy in folder.glob("*.packed"):
        copy.unlink()
    expect(["logits", "-m", synth[0], "--ids", ",".join("1" * 300), "--max-memory-mb", "1"], 2, "300 positions, q8_0")
    expect(["logits", "-m", MODEL, "--ids", "1,2048"], 2, "--ids: 2048, number 2 of them; accepted: 0 to 2047")
    # What one model takes at the least leaves no room for a second one; from where both have room, both are there.
    alone = int(re.search(r"the least is (\d+) MB", run("generate", "-m", synth[0], "--max-memory-mb", 1, "x").stderr)[1])
    two = ["generate", "-m", synth[0], "--draft", synth[0], "-n", 1, "--json", "x", "--max-memory-mb"]
    expect([*two, alone], 2, "beside a draft of")
    least = int(re.search(r"beside a draft of [\d.]+ MB\).* the least is (\d+) MB with that", run(*two, alone).stderr)[1])
    expect([*two, least - 1], 2, f"beside a draft of .* the least is {least} MB with that")
    for limit in range(least, least + 25, 3):
        done = run(*two, limit, meshmind=FASTER)
        totals = [float(t) for t in re.findall(r"memory.*; ([\d.]+) MB of ", done.stderr)]
        if done.returncode != 0 or len(totals) != 2 or sum(totals) > limit + 0.1:
            failures.append(f"{two} {limit}: exit {done.returncode}: {done.stderr}")
    expect(["generate", "-m", synth[0], "--draft", synth[0], "-n", "1", "x"], 0, r"memory of the draft: weights 1\.4")
    expect(["bench", "-m", synth[0], "-p", "300", "-n", "2", "-r", "1", "--peak-seconds", "0"], 0,
           line % "302 positions, f16")
    expect(["bench", "-m", synth[0], "-p", "300", "--max-memory-mb", "1"], 2, "364 positions, q8_0")
    expect(["bench", "-m", synth[0], "--train", "--stream"], 2, "learning needs the model in memory")
    with_adapter = run("generate", "-m", MODEL, "--lora", out / "final.gguf", "-n", 1, "x")
    if not re.search(r"memory: .*\), adapters [\d.]+ MB, work", with_adapter.stderr):
        failures.append(f"generate --lora: {with_adapter.stderr}")
    says = r"threads: (?:1 \(\d+|(\d+) \(\1) are [\d.]+ times as fast as 1|threads: 1, there is one core"
    text = {}
    for threads in ("auto", "1", "2"):
        args = ["generate", "-m", synth[0], "a text", "-n", "6", "--threads", threads]
        expect(args, 0, says if threads == "auto" else "")
        text[threads] = run(*args).stdout
    if len(set(text.values())) != 1:
        failures.append(f"generate --threads: other texts: {text}")
    expect(["generate", "-m", synth[0], "x", "--threads", "many"], 2, "'many': expected auto or a whole number")
    expect(["bench", "-m", synth[0], "-p", "4", "-n", "2", "-r", "1", "--peak-seconds", "0", "-t", "auto"], 0, says)
    expect(["bench", "-m", synth[0], "-p", "600"], 2, "trained for 512")
    expect(["bench", "-m", synth[0], "-t", "1,0"], 2, "--threads '1,0'.*1 to")
    expect(["bench", "-m", synth[0], "-p", "0", "-n", "0"], 2, "nothing to measure")
    # Training by the clock: every part of a step is named, and the parts make up its time.
    train = ["bench", "--train", "-m", synth[0], "--seq", 24, "--rank", 4]
    done = run(*train, "-t", "1,2", "-r", 2, "--peak-seconds", 0.01, "--checkpoint-layers", 1, "--json")
    report = json.loads(done.stdout)
    if done.returncode != 0 or [r["threads"] for r in report["train"]] != [1, 2] or report["checkpoint_layers"] != 1:
        failures.append(f"bench --train: exit {done.returncode}: {done.stdout[:300]}{done.stderr[:300]}")
    embedding, parameters = 512 * 256, report["parameters"]  # tiny-llama: the output is the embedding, the rest is of two layers
    if report["flop_per_token"] != 4 * parameters + 2 * (parameters - embedding) / report["layers"]:
        failures.append(f"bench --train: 4 a parameter, 2 more for each of the layer that is computed again: {report}")
    for one in report["train"]:
        parts, speed = one["seconds_by_part"], one["tokens_per_second"]
        mean = sum(parts.values())
        if not 0 < speed["min"] <= speed["median"] <= speed["max"]:
            failures.append(f"bench --train: {one}")
        flops = speed["median"] * report["flop_per_token"]
        if abs(one["flops"] / flops - 1) > 1e-9 or abs(one["share_of_fma"] * one["fma_flops"] / flops - 1) > 1e-9:
            failures.append(f"bench --train: {flops} FLOP/s: {one}")
        if not beside_at_least(one["share_of_fma_in_turns"], speed, report["flop_per_token"] / one["fma_flops"]) or \
                not 0 < one["fma_beside_flops"] <= one["fma_flops"] * 1.000001:
            failures.append(f"bench --train: what is beside a step is above the peak: {one}")
        # of a layer's 589,824 parameters: the second again without its last product, the first's q, k and v no further
        # and of an adapter of rank 4 z and dz, z again in one layer, whose d_in are 2048 together; dA and dB go with backward
        adapter = 2 * report["adapter_parameters"]
        for part, flop in ("forward", 2 * (3 * 589824 - 131072)), ("backward", 2 * (2 * 589824 - 131072) + adapter), \
                ("adapter", adapter + 2 * 4 * 2048):
            if abs(one[f"{part}_flops"] * parts[part] / (24 * flop) - 1) > 1e-6:
                failures.append(f"bench --train: {part} takes {flop} FLOP a token: {one}")
        if not 24 / speed["max"] <= mean * 1.0001 or not mean * 0.9999 <= 24 / speed["min"] or min(parts.values()) < 0:
            failures.append(f"bench --train: parts take {mean} s: {one}")
        idle = one["idle_share_by_part"]
        if idle.keys() | {"other"} != parts.keys() or not all(0 <= x < 1 for x in idle.values()) or (one["threads"] == 1) != (max(idle.values()) == 0):
            failures.append(f"bench --train: threads without work: {one}")
        if any(parts[p] == 0 for p in parts if p != "other") or parts["other"] > mean / 2:
            failures.append(f"bench --train: {parts}")
    first, second = (one["speed_over_first"] for one in report["train"])
    speeds = [one["tokens_per_second"] for one in report["train"]]
    least, most = speeds[1]["min"] / speeds[0]["max"], speeds[1]["max"] / speeds[0]["min"]
    if set(first.values()) != {1.0} or not least * 0.9999 <= second["min"] <= second["median"] <= second["max"] <= most * 1.0001:
        failures.append(f"bench --train: speeds in turns, {first} and {second} of {speeds}")
    expect([*train, "-r", "1", "--peak-seconds", "0"], 0, r"(?s)0 of 2 layers.*step.*tokens/s.*time: forward", "stdout")
    expect([*train, "-t", "1,2", "-r", "1", "--peak-seconds", "0"], 0, r"(?s)1 thread\n.*2 threads\n.*[0-9.]+ x the speed of 1 thread, in turns \(", "stdout")
    quantised = folder / "bench-q8.gguf"
    run("quantize", MODEL, quantised, "Q8_0")
    train[train.index("-m") + 1] = quantised
    for activations in "f32", "q8":
        done = run(*train, "-r", 1, "--peak-seconds", 0, "--activations", activations, "--json")
        if done.returncode != 0 or json.loads(done.stdout)["activations"] != activations:
            failures.append(f"bench --train --activations {activations}: {done.stdout[:300]}{done.stderr[:300]}")
    expect([*train, "-r", 1, "--peak-seconds", 0, "--activations", "q8"], 0, r"activations q8 in forward \(products in int8 count as those of f32\)", "stdout")
    expect(["bench", "--train", "-m", MODEL, "--activations", "q8"], 2, "activations is q8, .* its matrices are F16")
    train[train.index("-m") + 1] = synth[0]
    quantised.unlink()
    share = r"\d+\.\d\d"
    ratios = rf"(?s)peak in this run: fma \d+ GFLOP/s.*GFLOP/s: {share} \({share} \.\. {share}\) of the multiply-adds beside it, {share} of the fma peak" \
             rf".*; z, dz \d+ \({share}, {share}, {share} of the multiply-adds beside the steps; {share}, {share}, {share} of the peak\)"
    expect([*train, "-r", "1", "-t", "1", "--peak-seconds", "0.01"], 0, ratios, "stdout")
    expect([*train, "--seq", "5000"], 2, "--seq 5000: accepted are 8 to 4096")
    expect([*train, "--rank", "0"], 2, "--rank 0: accepted are 1 to 256")
    expect([*train, "-t", "auto"], 2, "give numbers")
    # Training within a limit: first smaller micro-batches, then layers computed again; the same adapter.
    lines = folder / "lines.jsonl"
    lines.write_text("".join((BASE / "train.jsonl").read_text().splitlines(True)[:40]))
    train = ["train", "-m", MODEL, "-d", lines, "-t", 1, "--steps", 1, "--batch", 600, "--micro", 600, "--seq", 96]
    plan = json.loads(run(*train, "--dry-run", "--json", meshmind=FASTER).stdout)
    done = run(*train, "--steps", 5, "--dry-run", meshmind=FASTER)  # two steps by the clock, whatever they add up to
    if not re.search(r"measured over 2 steps: .*\n5 steps: about", done.stdout) or "--warmup" in done.stderr:
        failures.append(f"train --dry-run: {done.stdout[-400:]}{done.stderr[-400:]}")
    done = run(*train, "--warmup", 2, "--lr", 0.01, "--dry-run", meshmind=FASTER)
    if done.returncode != 0 or "--warmup 2 is longer than --steps 1: the rate ends at 0.005, and does not come to --lr 0.01" not in done.stderr:
        failures.append(f"train --warmup 2: exit {done.returncode}: {done.stderr[-400:]}")
    done = run(*train, "--rank-pattern", "ffn_*=4,*=3", "--dry-run", meshmind=FASTER)
    if done.returncode != 0 or "\n--rank-pattern: 'ffn_*' changes nothing: rules behind it name all" not in "\n" + done.stderr:
        failures.append(f"train with a pattern that is overridden: exit {done.returncode}: {done.stderr[-400:]}")
    several = json.loads(run(*train, "--steps", 5, "--dry-run", "--json", meshmind=FASTER).stdout)
    if several["measured_steps"] != 2 or abs(several["estimated_s"] - 5 * several["step_s"]) > 1e-6 * several["estimated_s"]:
        failures.append(f"train --dry-run --json: {several}")
    if plan["measured_steps"] != 1:
        failures.append(f"train --dry-run of one step: {plan}")
    top, adapters, chosen = -(-plan["memory"]["planned_bytes"] // 1000000), set(), []
    if plan["steps"] != 1 or plan["step_s"] <= 0 or plan["memory"]["checkpoint_layers"] != 0:
        failures.append(f"train --dry-run: {plan}")
    for limit in range(top + 2, 0, -5):  # what is resident differs a little from run to run
        fit = run(*train, "--dry-run", "--json", "--max-memory-mb", limit, meshmind=FASTER)
        if fit.returncode != 0:
            break
        memory = json.loads(fit.stdout)["memory"]
        chosen.append((memory["checkpoint_layers"], -memory["micro_tokens"]))
        order = list(chosen)
        parts = sum(memory[part + "_bytes"] for part in ("before", "weights", "adapter", "optimizer", "activations", "logits", "work", "held_out",
                                                         "loading_more", "checkpoint", "writing", "reader"))
        if memory["planned_bytes"] > limit * 1000000 or parts != memory["planned_bytes"]:
            failures.append(f"train --max-memory-mb {limit}: {memory}")
    chosen.sort(key=lambda c: c[1])  # stable: with as many tokens at once, more and more layers
    if fit.returncode != 2 or chosen[0] != (0, -600) or chosen[-1][0] == 0 or fit.stdout or chosen != order:
        failures.append(f"train --max-memory-mb: {chosen} {fit.returncode} {fit.stderr}")
    if not re.search("training takes at least.*left for it|loading the model takes", fit.stderr):
        failures.append(f"train --max-memory-mb {limit}: {fit.stderr}")
    for more, meshmind in ([], MESHMIND), (["--max-memory-mb", limit + 7], FASTER), (["--checkpoint-layers", 99], MESHMIND):
        done = run(*train, "-o", folder / "m.gguf", *more, meshmind=meshmind)
        adapters.add((folder / "m.gguf").read_bytes())
        if done.returncode != 0 or not re.search(r"memory: weights [\d.]+ MB, adapter", done.stderr) or not sums_up(done.stderr):
            failures.append(f"train {more}: exit {done.returncode}: {done.stderr}")
    if len(adapters) != 1:
        failures.append("train: other bytes with other memory")
    expect([*train, "--dry-run"], 0, r"(?s)weights +[\d.]+ MB.*adapter +.*optimizer.*adamw.*activations.*logits +[\d.]+ MB.*total.*measured over 1 step:", "stdout")
    expect(["train", "-m", MODEL, "-d", lines], 2, "--out .or --dry-run. are needed")
    for idle, says in (["--optimizer", "galore"], "needs --full"), (["--type", "F16"], "--type needs --full"), (["--galore-rank", 8], "needs --optimizer galore"), \
            (["--optimizer", "sgd", "--beta2", 0.9], "--beta2 is of adamw"), (["--schedule", "constant", "--lr-min", 0.5], "--lr-min does not go"), \
            (["--parts", "core", "--lora-plus", 4], "--lora-plus is the rate of B"), (["--parts", "a", "--lora-plus", 4], "leave alone"), \
            (["--parts", "a"], "--parts a needs --start"), (["--checkpoint-every", 5], "--checkpoint-every needs --checkpoint"), \
            (["--galore-every", 3], "--galore-every needs"), (["--galore-scale", 1], "--galore-scale needs"), (["--eval-every", 2], "--eval-every needs --eval"), \
            (["--checkpoint", folder / "idle.ck", "--checkpoint-every", 0], "--checkpoint-every 0; accepted: 1 and more"), (["--clients", ","], "--clients: no name"), \
            (["--clients", ",".join(map(str, range(257)))], "--clients: at most 256 names"), (["--optimizer", "lion"], "accepted: adamw, sgd, adafactor$"), \
            *((["--full", *of_adapters], f"{of_adapters[0]} does not go with --full") for of_adapters in
              (["--alpha", 4], ["--activations", "q8"], ["--parts", "b"], ["--prox", 0.1], ["--lora-plus", 2], ["--rslora"], ["--rank-pattern", "q=1"],
               ["--alpha-pattern", "q=1"])):
        expect(["train", "-m", MODEL, "-d", lines, "-o", folder / "idle.gguf", *idle], 2, says)
    expect(["adapter", "merge", "--lora", folder / "m.gguf", "-m", MODEL, "-o", folder / "idle.gguf", "--type", "Q4_K_M"], 2, "BF16.*TQ2_0; for a mix")
    joined, same = ["adapter", "merge", "--lora", folder / "m.gguf", "--lora"], folder / "j.gguf"
    expect([*joined, f"{folder / 'm.gguf'}=0.3", "-o", same], 3, r"only with rounding of B \(--allow-rounding\)")
    expect([*joined, f"{folder / 'm.gguf'}=0.3", "-o", same, "--allow-rounding"], 0, "B rounded", "stdout")
    expect([*joined, f"{folder / 'm.gguf'}=0.3", "-m", MODEL, "-o", same, "--allow-rounding"], 2, "--allow-rounding: for joining, without -m")
    expect([*joined, f"{folder / 'm.gguf'}=0.5", "-o", same], 0, "exact", "stdout")
    for model in [], ["-m", MODEL]:
        expect([*joined, f"{same}=0.5", *model, "-o", same], 2, "--out is --lora, .*j.gguf: give another name")
    for places, code, says in ([["--out", same, "--start", same], 2, "--out is --start, .*j.gguf: give another name"],
                               [["--out", folder / "report.json", "--report", folder], 2, "--report is --out, .*report.json"],
                               [["--out", folder / "o.gguf", "--checkpoint", f"{folder}/./o.gguf"], 2, "--out is --checkpoint"],
                               [["--out", folder / "o.gguf", "--checkpoint", folder / "report.html", "--report", folder], 2, "--report is --checkpoint"],
                               [["--out", ""], 2, "-o, --out FILE: ''; accepted: a path"], [["--out", f"{folder}/models/"], 3, "--out .*models/: .*has no name of a file"]):
        expect(["train", "-m", MODEL, "-d", lines, "--steps", 1000, *places], code, says)  # before the first of them
    # A model of few positions is trained; what lies in a stranger's folder holds nobody.
    few, small = folder / "few.gguf", folder / "few.txt"
    file = bytearray(MODEL.read_bytes())
    at = file.index(b"llama.context_length") + len(b"llama.context_length") + 4
    file[at:at + 4] = struct.pack("<I", 32)
    few.write_bytes(file)
    small.write_text("A crow is a bird.\n")
    expect(["train", "-m", few, "-d", small, "--seq", 16, "--steps", 1, "--rank", 1, "-o", folder / "few-a.gguf"], 0, "trained 1 step,", "stdout")
    (folder / "piped").mkdir()
    os.mkfifo(folder / "piped" / "adapter_config.json")
    expect(["adapter", "show", folder / "piped"], 3, "adapter_config.json is not a regular file")
    for made in few, small, folder / "few-a.gguf":
        made.unlink()
    shutil.rmtree(folder / "piped")
    # No command writes over an adapter that it reads, whatever form it has; and says which file is none.
    peft = folder / "peft"
    expect(["adapter", "export", same, "-m", MODEL, "-o", peft], 0, "exact", "stdout")
    before = {path: path.read_bytes() for path in (same, *peft.iterdir())}
    expect(["logits", "-m", MODEL, "--lora", f"{same}=0.5", "--ids", "1,2", "-o", same], 2, "--out is --lora, .*j.gguf: give another name")
    expect(["adapter", "import", same, "-m", MODEL, "-o", same], 2, "--out is the adapter to import, .*j.gguf: give another name")
    for path in peft.iterdir():
        expect(["adapter", "import", peft, "-m", MODEL, "-o", path], 2, f"--out is the adapter to import, .*{path.name}: give another name")
    if before != {path: path.read_bytes() for path in before} or len(before) != 3:
        failures.append("an adapter was written over")
    expect(["generate", "-m", MODEL, "--lora", folder / "none.gguf", "-n", 1, "x"], 2, f"generate: --lora {folder}/none.gguf: ")
    expect(["adapter", "merge", "--lora", MODEL, "--lora", same, "-o", folder / "idle.gguf"], 3, f"--lora {MODEL}: no adapter: ")
    # What is printed where nobody listens lies in no file.
    for closed, code in ((">&-", 3), ("2>&-", 0), ("<&-", 0)):
        done = subprocess.run(["bash", "-c", f'"$0" "$@" {closed}', MESHMIND, "quantize", MODEL, folder / "idle.gguf", "Q8_0"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600)
        if done.returncode != code:
            failures.append(f"quantize {closed}: exit {done.returncode}")
        expect(["inspect", folder / "idle.gguf"], 0, "Q8_0", "stdout")
        (folder / "idle.gguf").unlink()
    # More than the shell lets a file have is an error as a full disk is one.
    limited = subprocess.run(["bash", "-c", 'ulimit -f 100; exec "$0" "$@"', MESHMIND, "quantize", MODEL, folder / "idle.gguf", "Q8_0"],
                             capture_output=True, text=True, timeout=600)
    if limited.returncode != 3 or "File too large" not in limited.stderr or (folder / "idle.gguf").exists():
        failures.append(f"ulimit -f: exit {limited.returncode}: {limited.stderr[:300]}")
    for path in peft.iterdir():
        path.unlink()
    peft.rmdir()
    for path in (lines, folder / "m.gguf", same):
        path.unlink()
    # The script that compares engines, with a stand-in that answers as llama-bench does.
    other = folder / "other"
    other.write_text("#!/bin/sh\necho '[{\"n_gen\": 0, \"avg_ts\": 10.0}, {\"n_gen\": 4, \"avg_ts\": 5.0}]'\n")
    other.chmod(0o755)
    script = [SOURCE / "tests/bench/compare.sh", "--meshmind", MESHMIND, "-m", synth[0], "-p", "8", "-n", "4", "-r", "2"]
    done = subprocess.run([*map(str, script), "--other", str(other)], capture_output=True, text=True, timeout=600)
    pairs = re.findall(r"(prefill|decode) +([0-9.]+) +([0-9.]+) .* ratio ([0-9.]+)", done.stdout)
    right = all(float(b) == (10 if what == "prefill" else 5) and abs(float(a) / float(b) - float(ratio)) < 0.02
                for what, a, b, ratio in pairs)
    if done.returncode != 0 or len(pairs) != 6 or not right:
        failures.append(f"compare.sh: exit {done.returncode}: {done.stdout[:400]}{done.stderr[:300]}")
    done = subprocess.run([*map(str, script), "--other", "/nowhere"], capture_output=True, text=True, timeout=600)
    if done.returncode != 2 or "/nowhere" not in done.stderr:
        failures.append(f"compare.sh --other /nowhere: exit {done.returncode}: {done.stderr[:300]}")
    other.unlink()
    for path in synth:
        expect(["generate", "-m", path, "a text", "-n", "4"], 0, "", "stdout")
        path.unlink()
    left = sorted(p.name for p in folder.iterdir())
    if left != ["bad.yaml", "base", "j.xml", "processes.yaml", "run", "strict.yaml", "test.jsonl", "train.jsonl"]:
        failures.append(f"something was left behind: {left}")

print("\n".join(failures) or f"cli: ok, {len(commands)} commands")
sys.exit(1 if failures else 0)

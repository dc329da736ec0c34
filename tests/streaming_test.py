#!/usr/bin/env python3
"""A model larger than what the machine has left is streamed without being asked for, to the same bytes.

What is left is made up: OMM_MEMORY_FROM names a folder with the kernel's files (omm/memory.h), of a machine
and of a control group in it.

A second program, where there is one, takes drafts, all things together and bench, and shows the peak of memory.

usage: streaming_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import json, os, pathlib, re, subprocess, sys, tempfile, time

from live import program

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
FASTER = program(sys.argv[2:])
LAYERS = 24
IDS = ",".join(str(i * 37 % 500) for i in range(70))
sanitized = b"__asan_init" in FASTER.read_bytes()
failures = []


def check(right, *what):
    if not right:
        failures.append(" ".join(map(str, what)))


def machine(left, group=None):
    """Files that say: `left` bytes are available; `group`: limit, in use, and what of that would go."""
    (folder / "meminfo").write_text(f"MemTotal: {64 << 20} kB\nMemFree: 1 kB\nMemAvailable: {left // 1024} kB\n")
    for name, text in zip(("memory.max", "memory.current", "memory.stat"),
                          (f"{group[0]}\n", f"{group[1]}\n", f"anon 1\ninactive_file {group[2]}\n") if group else ()):
        (folder / name).write_text(text)
    if not group:
        for name in ("memory.max", "memory.current", "memory.stat"):
            (folder / name).unlink(missing_ok=True)


def full_pipe():
    """A pipe that is full: whoever writes waits for a reader."""
    out, full = os.pipe()
    os.set_blocking(full, False)
    try:
        while os.write(full, b"x" * 256):
            pass
    except BlockingIOError:
        os.set_blocking(full, True)
    return out, full


def wait_until_stuck(pid):
    """Until its first thread sleeps, which one that computes alone never does."""
    for _ in range(3000):
        if pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S":
            return
        time.sleep(0.01)
    check(False, "the program never waited to be read")


def run(*args, stdin=""):
    done = subprocess.run([MESHMIND, *map(str, args)], capture_output=True, text=True, input=stdin, timeout=600,
                          env={**os.environ, "OMM_MEMORY_FROM": str(folder)})
    check(done.returncode == 0, args, "exit", done.returncode, done.stderr[:300])
    return done


def logits(*more):
    """What was planned, what it said, and the bytes of the logits."""
    out = folder / "logits.f32"
    done = run("logits", "-m", model, "--ids", IDS, "-c", 512, "-t", 2, "-o", out, "--json", *more)
    return json.loads(done.stdout)["memory"], done.stderr, out.read_bytes()


def same(whole, *what, streams, left):
    machine(left)
    now, says, got = logits()
    streamed = now["layers"] - now["layers_in_memory"]
    check(got == whole, *what, "other logits")
    check(streams(streamed), *what, "streamed", streamed, "layers")
    check(f"{streamed} layers streamed for what is available" in says if streamed else "streamed" not in says,
          *what, says)
    check(abs(now["available_bytes"] - left) < 1024, *what, "available", now["available_bytes"])
    check(not streamed or now["planned_bytes"] <= left, *what, "planned", now["planned_bytes"])
    return now


def test_logits(planned, least, whole):
    last = -1
    for step in range(9):  # from all of it down to the least
        left = planned - (planned - least) * step // 8
        left += 1023 - (left - 1) % 1024  # in kB, rounded up
        now = same(whole, "step", step, left=left, streams=lambda n: n > 0 if step else n == 0)
        check(now["layers"] - now["layers_in_memory"] >= last, "fewer layers in more memory")
        last = now["layers"] - now["layers_in_memory"]
    check(last == LAYERS, "the least has layers in memory")
    # A group of processes may have less than the machine; what it would let go counts.
    middle = (planned + least) // 2
    machine(1 << 35, (middle + 5_000_000, 7_000_000, 2_000_000))
    now, says, got = logits()
    check(got == whole and 0 < now["layers_in_memory"] < LAYERS, "group:", says)
    # Where even streaming is too much it is tried all the same, and said.
    machine(1_000_000)
    now, says, got = logits()
    check(got == whole and now["layers_in_memory"] == LAYERS and "(more than there is)" in says, "too little:", says)
    # A limit that the user gives is the user's.
    machine(middle)
    now, says, got = logits("--max-memory-mb", 4000)
    check(got == whole and now["layers_in_memory"] == LAYERS, "--max-memory-mb:", says)


def test_commands(planned, least):
    text = folder / "text"
    text.write_text("a crow could count " * 20)
    middle = (planned + least) // 2
    generate = ["generate", "-m", model, "-c", 512, "--kv", "f32", "-n", 6, "-t", 1, "--json", "a crow"]
    perplexity = ["perplexity", "-m", model, "-f", text, "-c", 512, "--json"]
    for command in (generate, perplexity):
        reports = []
        for left in (1 << 35, middle):
            machine(left)
            report = json.loads(run(*command).stdout)
            streamed = report["memory"]["layers_in_memory"] < LAYERS
            check(streamed == (left == middle), command, report["memory"])
            reports.append({k: v for k, v in report.items()
                            if k not in ("memory", "measured", "seconds", "tokens_per_second")})
        check(reports[0] == reports[1], command, reports)
    chats = []
    for left in (1 << 35, middle):
        machine(left)
        done = run("chat", "-m", model, "-c", 512, "--kv", "f32", "--no-notes", "-n", 6, stdin="Hi\n")
        check(("layers streamed" in done.stderr) == (left == middle), "chat:", done.stderr)
        chats.append(done.stdout)
    check(chats[0] == chats[1], "chat:", chats)


def test_draft(least):
    """A model leaves room for its draft, which takes no more than that: both plans together are what the machine has, and
    the ids those of a plain run."""
    draft = folder / "draft.gguf"
    run("synth", "tiny-llama", draft)
    generate = ["generate", "-m", model, "-c", 512, "--kv", "f32", "-n", 6, "-t", 1, "--json", "a crow"]
    both = [*generate, "--draft", draft]
    machine(1 << 35)
    plain = json.loads(run(*generate).stdout)["ids"]

    def plans():
        """Bytes of model and draft, and what was said."""
        done = run(*both)
        report = json.loads(done.stdout)
        check(report["ids"] == plain, "--draft: other ids:", report["ids"], plain)
        lines = re.findall(r"(?m)^memory.*", done.stderr)
        check(len(lines) == 2 and lines[1].startswith("memory of the draft:"), done.stderr)
        totals = [float(re.search(r"; ([\d.]+) MB of ", line)[1]) * 1e6 for line in lines]
        return report["memory"], totals, lines

    whole, asked, lines = plans()
    check("streamed" not in lines[0] and "instead" not in "".join(lines), lines)
    machine(1_000_000)
    _, _, lines = plans()
    check(all("(more than there is)" in line for line in lines), "too little for both:", lines)
    for left in range(int(sum(asked)) + 200_000, least + 5_000_000, -1_500_000):
        machine(left)
        memory, totals, lines = plans()
        check(sum(totals) <= left + 100_000, "--draft:", totals, "of", left)  # rounded to 0.1 MB
        streamed = memory["layers_in_memory"] < LAYERS
        check("layers" not in lines[1], "a draft is streamed:", lines)
        check(streamed == (left < sum(asked)) and ("beside a draft of" in lines[0]) == streamed and "more than" not in lines[0], left, lines)
    check(streamed, "nothing was streamed")
    # When the draft asks what there is, the model has taken its part: it is not counted twice.
    first = int(sum(asked)) + 200_000
    machine(first)
    out, full = full_pipe()
    process = subprocess.Popen([MESHMIND, *map(str, both)], stdout=subprocess.DEVNULL, stderr=full,
                               env={**os.environ, "OMM_MEMORY_FROM": str(folder)})
    os.close(full)
    wait_until_stuck(process.pid)  # it wants to say what it plans for the model, and has not asked for the draft
    machine(first - int(asked[0]))
    with open(out, errors="replace") as reader:
        says = reader.read().lstrip("x")
    check(process.wait(600) == 0 and "memory of the draft:" in says and "more than" not in says, "counted twice:", says)


def test_together():
    """Windows that have passed the beginning, two adapters, a small cache, proposals, a text in three runs, some of them
    streamed: the ids of one plain run."""
    base, data, session = folder / "windows.gguf", folder / "data.jsonl", folder / "session"
    lines = (SOURCE / "scenarios" / "base" / "train.jsonl").read_text().splitlines(True)
    data.write_text("".join(lines[:8]))
    run("synth", "tiny-gemma3", base, "--layers", 7)
    adapters = []
    for rank, scale in ((3, 1), (5, 0.5)):
        run("train", "-m", base, "--data", data, "--out", folder / f"{rank}.gguf", "--steps", 3, "--batch", 128, "--lr", 0.05,
            "--rank", rank, "--seed", rank)
        adapters += ["--lora", f"{folder / str(rank)}.gguf={scale}"]
    prompt = "a crow said that it was old " * 23
    different = set()
    for kv, more in (("q8_0", []), ("f16", ["--top-k", 9]), ("q8_0", ["--activations", "f32"])):
        command = ["generate", "-m", base, *adapters, "--kv", kv, *more, "--temp", 4, "--seed", 8, "--json"]
        whole = json.loads(run(*command, "-t", 1, "-n", 45, prompt).stdout)
        check(whole["prompt_tokens"] > 64 + 256 + 64, whole)
        different |= set(whole["ids"])
        # Near the least with all layers in memory, where the cache need not be smaller.
        limit = -(-whole["memory"]["planned_bytes"] // 1000000) - 1
        for ahead in ([], ["--lookup"], ["--draft", base, "--drafts", 7]):
            session.unlink(missing_ok=True)
            ids = []
            for count, text, how in ((20, prompt, ["--stream"]), (1, "", []), (24, "", ["--stream", "--max-memory-mb", limit])):
                if "--draft" in ahead and "--max-memory-mb" in how:
                    how = ["--stream"]  # there is no room for two
                part = json.loads(run(*command, "-t", 2, "-n", count, "--session", session, *ahead, *how, text).stdout)
                ids += part["ids"]
                check((part["memory"]["layers_in_memory"] < 7) == ("--stream" in how) and part["memory"]["kv"] == kv, ahead, how, part["memory"])
                if part["stop"] == "end":
                    break
            check(ids == whole["ids"], kv, more, ahead, ids, whole["ids"])
    check(len(different) > 30, "the texts are monotonous:", different)


def test_bench():
    command = ["bench", "-m", model, "-p", 20, "-n", 3, "-t", "1,2", "-r", 1, "--peak-seconds", 0]
    machine(1 << 35)
    planned, least = (json.loads(run(*command, "--json", *more).stdout)["memory"]["planned_bytes"]
                      for more in ([], ["--stream"]))
    machine((planned + least) // 2)
    for more, few in (([], range(1, LAYERS)), (["--stream"], range(1, LAYERS + 1))):
        report = json.loads(run(*command, "--json", *more).stdout)
        streamed = LAYERS - report["memory"]["layers_in_memory"]
        check(streamed in few, command, more, report["memory"])
        per_layer = report["streamed_bytes_per_pass"] / max(streamed, 1)
        check(0.98 < per_layer * LAYERS / (report["bytes_per_token"] - report["runs"][0]["decode"]["parts"]["head"]
                                           ["weight_bytes"]) < 1.02, "bytes of the file:", report)
        for one in report["runs"]:
            decode = one["decode"]
            want = report["streamed_bytes_per_pass"] * decode["tokens_per_second"]["median"]
            check(abs(decode.get("file_bytes_per_second", 0) / max(want, 1) - 1) < 1e-9 and
                  decode["parts"]["read"]["seconds_per_token"] > 0, "bench:", one)
        says = run(*command, "--profile", *more).stdout
        check(re.search(rf"(?s){streamed} of {LAYERS} layers streamed: [\d.]+ MB of the file in every pass\n.*"
                        r"[\d.]+ GB/s of the file read and packed\n.*  read  +[\d.]+ us", says), says)
    machine(1 << 35)
    report = json.loads(run(*command, "--json", "--stream").stdout)
    check(report["memory"]["layers_in_memory"] == 0, "bench --stream:", report["memory"])
    report = json.loads(run(*command, "--json").stdout)
    check(report["streamed_bytes_per_pass"] == 0 and "file_bytes_per_second" not in report["runs"][0]["decode"] and
          report["runs"][0]["decode"]["parts"]["read"]["seconds_per_token"] == 0, "bench, in memory:", report)
    # The peaks' buffer comes beside the model: it is no reason to be ended by the system.
    machine(500_000_000)
    done = subprocess.run([MESHMIND, *map(str, command[:-1]), "0.01"], capture_output=True, text=True,
                          env={**os.environ, "OMM_MEMORY_FROM": str(folder)}, timeout=600)
    check(done.returncode == 3 and re.search(r"a buffer of \d{3,4} MB, and 500 MB are available: --peak-seconds 0",
                                             done.stderr), "bench, no room for peaks:", done)


with tempfile.TemporaryDirectory(prefix="omm-streaming-") as name:
    folder = pathlib.Path(name)
    model = folder / "model.gguf"
    machine(1 << 35)
    run("synth", "tiny-llama", model, "--layers", LAYERS)
    asked, says, whole = logits()
    check(asked["layers_in_memory"] == LAYERS and "streamed" not in says, says)
    streamed = logits("--stream")
    check(streamed[2] == whole, "--stream: other logits")
    planned, least = asked["planned_bytes"], streamed[0]["planned_bytes"]
    test_logits(planned, least, whole)
    test_commands(planned, least)
    machine(1 << 35)
    MESHMIND = FASTER  # of all below
    # It is not only said: the process takes less.
    if not sanitized:
        peaks = [logits(*more)[0]["peak_bytes"] for more in ([], ["--stream"])]
        check(peaks[1] < peaks[0] - (planned - least) // 2, peaks, planned, least)
    test_draft(least)
    machine(1 << 35)
    test_together()
    test_bench()
for failure in failures:
    print(failure)
sys.exit(1 if failures else 0)

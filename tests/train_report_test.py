#!/usr/bin/env python3
"""The report of a training run: report.json agrees with the result on stdout, adds up, and is right where it can be counted or measured
from outside; report.html has every one of its figures, is well-formed, asks nobody for anything, runs nothing, and shows names from
the data as text.

A second program, where there is one, trains what is trained again by the first: the bytes are the same for every build.

usage: train_report_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import hashlib, html.parser, json, math, os, pathlib, re, shlex, shutil, subprocess, sys, tempfile, time

import split_gguf
from live import check, program

SOURCE, MESHMIND, FASTER = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], program(sys.argv[2:])
BASE = SOURCE / "scenarios" / "base"
EVIL = '<script src="http://x.y/">&amp;"\'</script>'
STEPS = 7


class Page(html.parser.HTMLParser):
    """Tags in balance; texts, tags and curves collected; tables and curves by the title above them."""
    VOID = {"meta", "br"}
    TITLES = {"h1", "h2"}

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.texts, self.curves, self.attributes = [], [], [], [], []
        self.tables, self.curves_of, self.title = {}, {}, ""
        self.feed(text)
        self.close()
        check(not self.open, f"left open: {self.open}")

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)
        if tag in self.TITLES:
            self.title = ""
        elif tag == "tr":
            self.tables.setdefault(self.title, []).append([])
        elif tag in ("td", "th"):
            self.tables[self.title][-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "polyline":
            self.curves.append([tuple(map(float, p.split(","))) for p in dict(attrs)["points"].split()])
            self.curves_of.setdefault(self.title, []).append(self.curves[-1])

    def handle_endtag(self, tag):
        check(self.open and self.open.pop() == tag, f"</{tag}> closes nothing")

    def handle_data(self, data):
        self.texts.append(data)
        if self.open and self.open[-1] in self.TITLES:
            self.title += data
        elif self.open and self.open[-1] in ("td", "th"):
            self.tables[self.title][-1][-1] += data


def train(folder, *options):
    done = subprocess.run([MESHMIND, "train", "-m", BASE / "openmeshmind-tiny-F16.gguf", "-d", folder / "t.jsonl",
                           "-o", folder / "a.gguf", "--steps", str(STEPS), "--rank", "2", "--batch", "64", "--json",
                           "--report", folder / "new" / "report", *map(str, options)], capture_output=True, text=True)
    check(done.returncode == 0, f"exit {done.returncode}: {done.stderr}")
    report = folder / "new" / "report"
    return (json.loads(done.stdout.splitlines()[-1]), json.loads((report / "report.json").read_text()),
            (report / "report.html").read_text())


def for_people(report, folder):
    """What the same command says without --json."""
    words = [word for word in report["arguments"] if word != "--json"]
    words[words.index("--report") + 1] = folder / "for people"
    return subprocess.run([FASTER, "train", *words], capture_output=True, text=True).stdout


def set_counters(root, *joules):
    for zone, (name, value) in enumerate(zip(("package-0", "package-1", "psys"), joules)):
        folder = root / f"intel-rapl:{zone}"
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in (("name", name), ("max_energy_range_uj", 10 ** 12), ("energy_uj", int(value * 10 ** 6))):
            (folder / "new").write_text(f"{text}\n")
            (folder / "new").rename(folder / file)  # as the kernel: whole or not at all


def check_energy(folder):
    """Counters that grow while it trains: their sum is in the result, the report and on the page."""
    root, out = folder / "rapl", folder / "energy"
    set_counters(root, 100, 20, 7)
    command = [MESHMIND, "train", "-m", BASE / "openmeshmind-tiny-F16.gguf", "-d", folder / "t.jsonl", "-o", folder / "a.gguf",
               "--steps", 20, "--rank", 2, "--batch", 64, "--json", "--report", out]
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "OMM_ENERGY_FROM": str(root)}) as child:
        child.stdout.readline()
        set_counters(root, 1300, 54, 1000)
        result = json.loads(child.stdout.read().splitlines()[-1])
    check(child.returncode == 0 and abs(result["energy_j"] - 1234) < 1e-6, f"energy: {result}")
    check(json.loads((out / "report.json").read_text())["energy_j"] == result["energy_j"], "energy in the report")
    check_figures(Page((out / "report.html").read_text()), {**json.loads((out / "report.json").read_text()), "energy_j": 1234})
    text = [str(word) for word in command if word != "--json"]
    set_counters(root, 100, 20, 7)
    with subprocess.Popen(text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "OMM_ENERGY_FROM": str(root)}) as child:
        while "step 1/20" not in (line := child.stderr.readline()):
            check(line, "progress")
        set_counters(root, 1300, 54, 1000)
        said = child.communicate()[0]
    check(", 1234 J\n" in said, f"energy for people: {said}")
    done = subprocess.run([*map(str, command), "--steps", "2"], capture_output=True, text=True,
                          env={**os.environ, "OMM_ENERGY_FROM": str(folder / "nothing")})
    check("energy_j" not in json.loads(done.stdout.splitlines()[-1]), "energy of a machine that does not tell")
    check("this machine does not tell" in (out / "report.html").read_text(), "a page without energy")


def check_folder(folder):
    """Where no report can be written is known before the first step."""
    (folder / "file").write_text("")
    for bad in ("/proc/x", "/proc/self", folder / "file" / "x", folder / "file"):
        (folder / "a.gguf").unlink(missing_ok=True)
        command = [MESHMIND, "train", "-m", BASE / "openmeshmind-tiny-F16.gguf", "-d", folder / "t.jsonl",
                   "-o", folder / "a.gguf", "--steps", 3, "--json", "--report", bad]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True)
        check(done.returncode == 3 and not done.stdout and not (folder / "a.gguf").exists() and str(bad) in done.stderr,
              f"--report {bad}: exit {done.returncode}: {done.stdout[:200]} {done.stderr}")


def check_numbers(result, report):
    for key, value in result.items():
        check(report[key] == value, f"{key}: {report[key]} in the report, {value} on stdout")
    curves = report["curves"]
    for name in ("loss", "grad_norm", "learning_rate"):
        check(len(curves[name]) == STEPS and all(math.isfinite(x) and x > 0 for x in curves[name]), name)
    check(abs(curves["loss"][0] - report["loss_first"]) < 1e-6, "the first loss is another")
    check(report["wall_s"] > 0 and report["peak_memory_bytes"] > 1 << 20, "wall time or memory")
    check("energy_j" not in report or report["energy_j"] >= 0, "energy")
    held, judged = report["held_out"], report["evaluation"]
    whole = held["all"][0]
    for when in ("before", "after"):
        check(abs(whole[f"loss_{when}"] - judged[when]["loss"]) < 1e-9, f"loss {when}")
        exact = judged[when]["call_exact"] + judged[when]["reply_exact"]
        check(whole[f"exact_{when}"] == exact, f"exact {when}: {whole}, {judged[when]}")
    for kind in ("skills", "clients"):
        names = [row["name"] for row in held[kind]]
        check(names == sorted(set(names), key=lambda n: n.encode()) and len(names) > 1, f"{kind}: {names}")
        for key in ("items", "answers", "exact_before", "exact_after"):
            check(sum(row[key] for row in held[kind]) == whole[key], f"{kind}: {key} does not add up")


FACTS = {"steps": ("steps", 0), "tokens": ("tokens", 0), "training loss, first steps": ("loss_first", 4), "tokens/s": ("tokens_per_s", 0),
         "training loss, last steps": ("loss_last", 4), "best held-out step": ("best_step", 0), "wall time, s": ("wall_s", 1),
         "peak memory, bytes": ("peak_memory_bytes", 0), "energy of the processors, J": ("energy_j", 0)}
GROUPS = {"Held-out data": "all", "By skill": "skills", "By client": "clients"}
REPLIES = [("call parses", "call_parses", "calls"), ("right tool", "tool_right", "calls"), ("call exact", "call_exact", "calls"),
           ("other reply exact", "reply_exact", "replies")]
COLUMNS = ["", "items", "loss before", "after", "exact before", "after", "of"]


def check_figures(page, report):
    """Each figure of report.json that a reader looks for stands on the page, under its name, in its place."""
    facts = dict(page.tables["Training report"])
    wanted = {"adapter": report["adapter"]}
    for name, (key, decimals) in FACTS.items():
        if key in report:
            wanted[name] = f"{report[key]:.{decimals}f}"
    if "energy_j" not in report:
        wanted["energy"] = "this machine does not tell"
    check(facts == wanted, f"on the page: {facts}, in the report: {wanted}")
    settings = {"seed": report["seed"], **report["recipe"]}
    shown = {key: text if isinstance(settings.get(key), str) else json.loads(text) for key, text in page.tables["Recipe"]}
    check(all(len(text) < 12 for key, text in page.tables["Recipe"] if isinstance(settings[key], float)), f"long numbers: {page.tables['Recipe']}")
    check(shown == settings, f"recipe on the page: {shown}, in the report: {settings}")
    check_origin(page.tables["Origin"], report)
    held = report.get("held_out", {})
    for title, key in GROUPS.items():
        rows = []
        for row in held.get(key, []):
            exact = [str(row[k]) for k in ("exact_before", "exact_after", "answers")] if row.get("answers") else [""] * 3
            rows.append([row["name"], str(row["items"]), f"{row['loss_before']:.4f}", f"{row['loss_after']:.4f}", *exact])
        check(page.tables.get(title, []) == ([COLUMNS, *rows] if rows else []), f"{title}: {page.tables.get(title)}, in the report: {rows}")


    judged = report.get("evaluation", {})
    rows = [[name, *(str(judged[when][key]) for when in ("before", "after")), str(judged["after"][of])]
            for name, key, of in REPLIES if judged.get("after", {}).get(of)]
    check(page.tables.get("Replies", []) == ([["", "before", "after", "of"], *rows] if rows else []), f"Replies: {page.tables.get('Replies')}, in the report: {rows}")


def check_origin(rows, report):
    """What was trained on what: files with digests and counts, the command as a shell takes it, the program."""
    wanted = [["base model", f"{report['base']['file']}BLAKE2b-256 {report['base']['digest']}"]]
    wanted += [["start", f"{one['file']}BLAKE2b-256 {one['digest']}"] for one in report["start"]]
    for name, key in (("trained on", "trained_on"), ("judged on", "judged_on")):
        if key in report:
            wanted.append([name, "{file}: {examples} examples, {tokens} tokensBLAKE2b-256 {digest}".format(**report[key])])
    command = dict(rows)["command"]
    check(shlex.split(command) == ["meshmind", "train", *report["arguments"]], f"command: {command}, in the report: {report['arguments']}")
    wanted += [["command", command], ["program", f"meshmind {report['program']['version']}, {report['program']['commit']}"]]
    check(rows == wanted, f"origin on the page: {rows}, in the report: {wanted}")
    check(report["trained_on"]["digest"] == report["data_digest"] and report["trained_on"]["examples"] == report["examples"], f"{report['trained_on']}")
    check(("judged_on" in report) == ("evaluation" in report), "judged on")


def check_curves(page, report):
    """Under each title its values: the highest at the top, the lowest at the bottom, the others where they belong."""
    curves, judged = report["curves"], [e["loss"] for e in report.get("evaluations", [])]
    wanted = {"Loss: training grey, held-out red": [curves["loss"], judged], "Held-out loss": [judged],
              "Gradient norm": [curves["grad_norm"]], "Learning rate": [curves["learning_rate"]]}
    wanted = {title: [x for x in lists if x] for title, lists in wanted.items() if any(lists)}
    check(page.curves_of.keys() == wanted.keys(), f"curves {list(page.curves_of)}")
    for title, lists in wanted.items():
        values, heights = [x for one in lists for x in one], [-y for curve in page.curves_of[title] for _, y in curve]
        check([len(x) for x in lists] == [len(x) for x in page.curves_of[title]], f"{title}: points")
        shares = [[(x - min(many)) / (max(many) - min(many)) for x in many] for many in (values, heights)]
        check(all(abs(a - b) < 2e-3 for a, b in zip(*shares)), f"{title}: drawn {shares[1]}, in the report {shares[0]}")


def check_page(text, report):
    page = Page(text)
    check_figures(page, report)
    check_curves(page, report)
    check(not {"script", "img", "link", "iframe", "object", "a", "form"} & set(page.tags), f"tags {set(page.tags)}")
    check(not any(n in ("src", "href", "xlink:href", "style") or n.startswith("on") for n, _ in page.attributes),
          "an attribute that loads or runs")
    check(not re.search(r"url\(|@import|javascript:", text), "the style loads something")
    check(("name", "viewport") in page.attributes and any("default-src 'none'" in (v or "") for _, v in page.attributes),
          "no viewport or no policy")
    for curve in page.curves:
        check(all(0 <= x <= 640 and 0 <= y <= 220 for x, y in curve) and curve == sorted(curve), f"curve {curve}")
    return page


# Of these the first two are learned by heart, so that what comes out is known: items, exact before and after, answers.  A call is
# exact by what it says: the held-out one is written in another order.
TALKS = [("zoe", "names", "Who?", "Me."), ("mia", "tools", "Add milk.", '<tool_call>\n{"name": "list_add", "arguments": {"item": "milk"}}\n</tool_call>'),
         ("adam", "sums", "Two and two?", "Four."), ("zoe", "sums", "Three and three?", "Six.")]
COUNTED = {"all": {"all": (4, 0, 2, 4)}, "clients": {"adam": (1, 0, 0, 1), "mia": (1, 0, 1, 1), "zoe": (2, 0, 1, 2)},
           "skills": {"names": (1, 0, 1, 1), "sums": (2, 0, 0, 2), "tools": (1, 0, 1, 1)}}


def measured(command):
    """What it says, its report, how long it took, the seconds of processors and the bytes that the kernel counted."""
    began = time.monotonic()
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        said = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    check(child.returncode == 0, f"exit {child.returncode}: {said}")
    return said, time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def check_measured(report, said, elapsed, work, most):
    """On one thread no second of work is shorter than one of the clock.  The kernel counts what this script had before, too, which is less."""
    took, peak = report["wall_s"], report["peak_memory_bytes"]
    check(report["threads"] == 1 and work / 2 < took < 1.01 * elapsed, f"wall_s {took}: {elapsed:.2f} s, {work:.2f} s of the processor")
    check(most / 2 < peak < most + (4 << 20), f"peak_memory_bytes {peak}, the kernel says {most}")
    trained = report["tokens"] / report["tokens_per_s"]
    check(work / 10 < trained <= took, f"tokens_per_s {report['tokens_per_s']}: trained for {trained:.2f} of {took:.2f} s")
    minutes, seconds, memory = re.search(r"^in (?:(\d+) min )?(\d+) s, memory at most ([\d.]+) MB", said, re.M).groups()
    seconds = int(seconds) + 60 * int(minutes or 0)
    check(took - 0.6 <= seconds <= elapsed + 0.6, f"{seconds} s in the text, {took} in the report")
    check(abs(float(memory) * 1e6 - peak) < 0.02 * peak, f"{memory} MB in the text, {peak} in the report")


def check_counted(folder):
    """Exact answers and losses of a run whose outcome is known, in text, JSON and on the page."""
    lines = [json.dumps({"client": client, "skill": skill, "messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]})
             + "\n" for client, skill, asked, answer in TALKS]
    train, held, out = folder / "two.jsonl", folder / "four.jsonl", folder / "counted"
    train.write_text("".join(lines[:2]))
    call = """{"name": "list_add", "arguments": {"item": "milk"}}"""
    turned = """{"arguments": {"item": "milk"}, "name": "list_add"}"""
    held.write_text("".join(lines).replace(json.dumps(call)[1:-1], json.dumps(turned)[1:-1]))
    command = [MESHMIND, "train", "-m", BASE / "openmeshmind-tiny-F16.gguf", "-d", train, "-t", 1]
    adapter, same = folder / "a.gguf", folder / "same.gguf"
    said, *figures = measured([*command, "-o", adapter, "--eval", held, "--lr", 0.01, "--steps", 30, "--rank", 4, "--batch", 256, "--new-tokens", 40, "--report", out])
    report = json.loads((out / "report.json").read_text())
    check_measured(report, said, *figures)
    for kind, rows in COUNTED.items():
        found = {row["name"]: tuple(row[k] for k in ("items", "exact_before", "exact_after", "answers")) for row in report["held_out"][kind]}
        check(found == rows, f"{kind}: {found}")
    learned, not_learned = report["held_out"]["skills"][:2]
    check(learned["loss_before"] > 1 and learned["loss_after"] < 0.05 and not_learned["loss_after"] > 0.5, f"losses: {learned}, {not_learned}")
    for when, calls, replies in (("before", 0, 0), ("after", 1, 1)):
        judged = report["evaluation"][when]
        exact = [judged[k] for k in ("items", "calls", "call_parses", "tool_right", "call_exact", "replies", "reply_exact")]
        check(exact == [4, 1, exact[2] if when == "before" else 1, calls, calls, 3, replies], f"{when}: {judged}")
    whole = report["held_out"]["all"][0]
    gained = re.escape(f"({whole['loss_after'] - whole['loss_before']:+.4f})")
    for words in (f"loss +{whole['loss_before']:.4f} +{whole['loss_after']:.4f}   nats per token {gained}\n", "call exact +0 +1 +of 1", "other reply exact +0 +1 +of 3"):
        check(re.search(words, said), f"no '{words}' in {said}")
    check_page((out / "report.html").read_text(), report)
    # From that adapter, at a rate of 0: before is what after was, and after too.
    once = [*command, "-o", same, "--eval", held, "--lr", 0, "--warmup", 0, "--steps", 1]
    measured([*once, "--start", adapter, "--new-tokens", 40, "--report", folder / "again"])
    for kind, rows in json.loads((folder / "again" / "report.json").read_text())["held_out"].items():
        for row, was in zip(rows, report["held_out"][kind]):
            for what in ("exact", "loss"):
                check(row[f"{what}_before"] == row[f"{what}_after"] == was[f"{what}_after"], f"nothing trained: {row}, {was}")
    held.write_text(lines[0] + lines[3])  # what a client has is what its examples have alone: a mean over tokens
    said, *_ = measured([*once, "--new-tokens", 0, "--json"])
    alone, zoe = json.loads(said.splitlines()[-1])["evaluation"]["before"]["loss"], report["held_out"]["clients"][2]
    check(abs(zoe["loss_before"] - alone) < 1e-9, f"loss of zoe: {zoe}, alone {alone}")
    said, *_ = measured([*once, "--new-tokens", 0, "--json", "--loss", "all"])  # whatever is learned, replies are judged
    judged = json.loads(said.splitlines()[-1])["evaluation"]["before"]["loss"]
    check(judged == alone, f"with --loss all {judged}, else {alone}")
    held.write_text(json.dumps({"text": "A crow is a bird."}) + "\n")  # which asks for no answer
    measured([*once, "--new-tokens", 4, "--report", folder / "text"])
    (row,) = json.loads((folder / "text" / "report.json").read_text())["held_out"]["all"]
    check((row["items"], row["answers"], row["exact_after"]) == (1, 0, 0), f"a text: {row}")
    text = folder / "crows.txt"  # a text is judged in windows as long as those that are learned
    text.write_text("A crow is a bird. " * 40)
    said, *_ = measured([*command[:-4], "-d", text, "-t", 1, "-o", same, "--eval", text, "--seq", 32, "--lr", 0, "--warmup", 0, "--steps", 1, "--new-tokens", 0, "--json"])
    judged = json.loads(said.splitlines()[-1])["evaluation"]
    check(judged["seq_max"] == 32 and judged["before"]["items"] > 4, f"windows: {judged}")


def blake(path):
    return hashlib.blake2b(path.read_bytes(), digest_size=32).hexdigest()


def trained(*args, meshmind=None):
    done = subprocess.run([meshmind or MESHMIND, "train", *map(str, args), "--json"], capture_output=True, text=True)
    check(done.returncode == 0, f"exit {done.returncode}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def check_again(folder):
    """From the report alone, with base and data: the same adapter; of a run from others its start says ranks and targets again."""
    base = BASE / "openmeshmind-tiny-F16.gguf"
    first, report, page = train(folder, "--targets", "ffn_*,q", "--rank-pattern", "q=3", "--parts", "b", "--lora-plus", 3, "--dropout", 0.1, "--seed", 2**63 - 1,
                                "--optimizer", "sgd", "--momentum", 0.9, "--nesterov", "--schedule", "linear", "--lr", 0.0123)
    check_page(page, report)
    check(report["base"] == {"file": str(base), "digest": blake(base)} and report["seed"] == 2**63 - 1 and report["start"] == [], f"origin: {report}")
    check(report["arguments"][:4] == ["-m", str(base), "-d", str(folder / "t.jsonl")] and "--nesterov" in report["arguments"], f"arguments: {report}")
    recipe, common = folder / "recipe.json", ("-m", base, "-d", folder / "t.jsonl", "--report", folder / "more")
    recipe.write_text(json.dumps(report["recipe"]))
    again = trained(*common, "-o", folder / "b.gguf", "--recipe", recipe, "--seed", report["seed"])
    check(again["adapter_digest"] == first["adapter_digest"] == report["adapter_digest"], f"again: {again}")
    # From one of another rank, scale and targets than any default; twice of it, with weights.
    trained(*common, "-o", folder / "s.gguf", "--steps", 1, "--rank", 3, "--alpha", 5, "--targets", "v,down", "--warmup", 0, "--batch", 96, meshmind=FASTER)
    for starts in [folder / "s.gguf"], [f"{folder / 's.gguf'}=0.5", folder / "s.gguf"]:
        options = [word for start in starts for word in ("--start", start)]
        first = trained(*common, "-o", folder / "c.gguf", "--steps", 2, "--lr", 0.02, "--batch", 96, *options, meshmind=FASTER)
        report = json.loads((folder / "more" / "report.json").read_text())
        check(report["start"] == [{"file": str(start), "digest": blake(folder / "s.gguf")} for start in starts], f"start: {report['start']}")
        check(not {"rank", "alpha", "targets"} & set(report["recipe"]) and report["recipe"]["parts"] == "ab", f"recipe: {report['recipe']}")
        recipe.write_text(json.dumps(report["recipe"]))
        check(trained(*common, "-o", folder / "d.gguf", "--recipe", recipe, *options)["adapter_digest"] == first["adapter_digest"], f"from {starts}")
    recipe.write_text(json.dumps({**report["recipe"], "rank": 2}))
    done = subprocess.run([MESHMIND, "train", *map(str, [*common, "-o", folder / "d.gguf", "--recipe", recipe, "--start", folder / "s.gguf"])], capture_output=True, text=True)
    check(done.returncode == 2 and "the start adapter has nothing there, the recipe says rank 2, alpha 16 (scale 8)" in done.stderr, f"another rank than the start's: {done.stderr}")
    trained(*common, "-o", folder / "f.gguf", "--steps", 1, "--full", "--optimizer", "galore", "--galore-every", 7, "--batch", 96, meshmind=FASTER)
    report = json.loads((folder / "more" / "report.json").read_text())
    check(not {"rank", "parts", "activations"} & set(report["recipe"]), f"of all weights: {report}")
    check({"optimizer": "galore", "galore_rank": 32, "galore_every": 7, "galore_scale": 0.25}.items() <= report["recipe"].items(), f"galore: {report}")


def check_shared(folder):
    """Held-out examples that are trained on are counted and named, whoever's they are and however they are written, in memory and streamed;
    one that training cuts is met by what training sees of it."""
    train, held = folder / "own.jsonl", folder / "shared.jsonl"
    lines = [json.dumps({"client": "a", "messages": [{"role": "user", "content": f"Is {i} even?"}, {"role": "assistant", "content": "Yes. " * i}]})
             for i in (4, 6, 8, 10, 60)]
    train.write_text("\n".join(lines) + "\n")
    other = lines[2].replace('"a"', '"b"').replace(": ", ":")
    longer = lines[4].replace("Yes. " * 60, "Yes. " * 61)
    held.write_text("\n".join([lines[1].replace("6", "7"), other, longer, lines[0]]) + "\n")
    common = [MESHMIND, "train", "-m", BASE / "openmeshmind-tiny-F16.gguf", "-o", folder / "own.gguf", "--steps", 1, "--warmup", 0, "--batch", 64,
              "--seq", 64, "--new-tokens", 0, "--json"]
    base = f"{held}:2 = ", f"{held}:3 = ", f"{held}:4 = "
    for more, places in ([], [f"{train}:{i}" for i in (3, 5, 1)]), (["--stream"], [f"example {i} of {train}" for i in (3, 5, 1)]):
        done = subprocess.run([*map(str, [*common, "-d", train, "-e", held, *more])], capture_output=True, text=True)
        check(done.returncode == 0, done.stderr)
        said = json.loads(done.stdout.splitlines()[-1])["evaluation"]
        check((said["shared"], said["shared_lines"]) == (3, [[3, 2], [5, 3], [1, 4]]), f"shared: {said}")
        check(f"3 of 4 held-out examples are also trained on: the loss after says little of them (equal in their first 64 tokens): "
              + ", ".join(a + b for a, b in zip(base, places)) + "\n" in done.stderr, f"shared: {done.stderr}")
    # What is held out of one file: the same talk of two clients stands on both sides where clients are held out.
    train.write_text("\n".join([*lines, *(line.replace('"a"', '"b"') for line in lines)]) + "\n")
    done = subprocess.run([*map(str, [*common, "-d", train, "--split", 0.5, "--split-by", "client"])], capture_output=True, text=True)
    check(done.returncode == 0 and json.loads(done.stdout.splitlines()[-1])["evaluation"]["shared"] == 5 and "5 of 5 held-out" in done.stderr, f"split: {done.stderr}")
    streamed = subprocess.run([*map(str, [*common, "-d", train, "--split", 0.5, "--split-by", "client", "--stream"])], capture_output=True, text=True)
    check("5 of 5 held-out examples are also trained on: the loss after says little of them (equal in their first 64 tokens)\n" in streamed.stderr, f"split of a stream: {streamed.stderr}")
    check(f"--out replaces {folder / 'own.gguf'}\n" in done.stderr, f"replaces: {done.stderr}")
    train.write_text("\n".join(lines) + "\n")
    (folder / "own.gguf").unlink()
    done = subprocess.run([*map(str, [*common, "-d", train, "--split", 0.5])], capture_output=True, text=True)
    check(done.returncode == 0 and "also trained on" not in done.stderr and "replaces" not in done.stderr, f"split: {done.stderr}")


def check_names(folder):
    """A base in several files is named by all of them; no name need be UTF-8."""
    whole, digests = hashlib.blake2b(digest_size=32), []
    for part in split_gguf.write(BASE / "openmeshmind-tiny-F16.gguf", folder, "parts", 3):
        whole.update(part.read_bytes())
    strange = os.fsencode(folder) + b"/m\xff.gguf"
    shutil.copy(BASE / "openmeshmind-tiny-F16.gguf", strange)
    for model in os.fsencode(folder / "parts-00001-of-00003.gguf"), strange:
        command = [os.fsencode(MESHMIND), b"train", b"-m", model, b"-d", os.fsencode(folder / "t.jsonl"), b"-o", os.fsencode(folder / "p.gguf"), b"--steps", b"1",
                   b"--warmup", b"0", b"--batch", b"64", b"--report", os.fsencode(folder / "names")]
        done = subprocess.run(command, capture_output=True)
        check(done.returncode == 0, f"{model}: {done.stderr}")
        digests.append(json.loads((folder / "names" / "report.json").read_text())["base"])
    check(digests[0]["digest"] == whole.hexdigest(), f"three parts: {digests[0]}")
    check(digests[1] == {"file": f"{folder}/m?.gguf", "digest": blake(BASE / "openmeshmind-tiny-F16.gguf")}, f"a strange name: {digests[1]}")


with tempfile.TemporaryDirectory(prefix="omm-report-") as name:
    folder = pathlib.Path(name)
    (folder / "t.jsonl").write_text("".join((BASE / "train.jsonl").read_text().splitlines(True)[:10]))
    held = [json.loads(line) for line in (BASE / "test.jsonl").read_text().splitlines()[:6]]
    held[2]["skill"] = EVIL
    held[3]["client"] = "zz"
    (folder / "h.jsonl").write_text("".join(json.dumps(x) + "\n" for x in held))
    check_shared(folder)
    result, report, page = train(folder, "--eval", folder / "h.jsonl", "--eval-every", 3, "--new-tokens", 8)
    check_numbers(result, report)
    shown = check_page(page, report)
    said = for_people(report, folder)
    best = min(result["evaluations"], key=lambda e: e["loss"])
    check(f"held-out loss on the way: {len(result['evaluations'])} times, lowest {best['loss']:.4f} after step {best['step']}\n" in said
          and best["step"] == result["best_step"] > result["evaluations"][0]["step"], f"{result['evaluations']}: {said}")
    lines = (folder / "h.jsonl").read_bytes(), (folder / "t.jsonl").read_bytes()
    check([report[k]["digest"] for k in ("judged_on", "trained_on")] == [hashlib.blake2b(x, digest_size=32).hexdigest() for x in lines], "digests of whole files")
    check(result["evaluation"]["shared"] == 0 and result["evaluation"]["shared_lines"] == [], f"shared: {result['evaluation']}")
    check(EVIL in shown.texts and "<script" not in page, "a name from the data is not shown as text")
    _, plain, page = train(folder)  # nothing held out: curves of the training alone
    check("held_out" not in plain and len(check_page(page, plain).curves) == 3, "a report without held-out data")
    _, short, page = train(folder, "--split", "0.3", "--new-tokens", 0, "--stream")
    check("answers" not in short["held_out"]["all"][0] and len(short["held_out"]["clients"]) == 3,
          f"losses alone: {short['held_out']}")
    check(len(check_page(page, short).curves) == 3, "curves of a streamed run")
    items, clients, split = short["held_out"]["all"][0]["items"], len(short["held_out"]["clients"]), short["data"]["split"]
    check((round(split["share"], 6), split["by"], split["held_out"], split["held_out_clients"]) == (0.3, "item", items, clients), f"split: {split}")
    said = for_people(short, folder)
    check(f"  held out by --split 0.3: {items} examples of {clients} clients; trained on {short['examples']} of {short['data']['clients']}\n" in said
          and (items, clients) != (short["examples"], short["data"]["clients"]), f"split: {said}")
    check_energy(folder)
    check_folder(folder)
    check_counted(folder)
    check_again(folder)
    check_names(folder)
    print("report.json and report.html hold what they should")

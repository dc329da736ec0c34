#!/usr/bin/env python3
"""The report of a training run: report.json agrees with the result on stdout and adds up; report.html is
well-formed, asks nobody for anything, runs nothing, and shows names from the data as text.

usage: train_report_test.py SOURCE_DIR MESHMIND
"""
import html.parser, json, math, os, pathlib, re, subprocess, sys, tempfile

from live import check

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
BASE = SOURCE / "scenarios" / "base"
EVIL = '<script src="http://x.y/">&amp;"\'</script>'
STEPS = 7


class Page(html.parser.HTMLParser):
    """Tags in balance; texts, tags and curves collected."""
    VOID = {"meta", "br"}

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.texts, self.curves, self.attributes = [], [], [], [], []
        self.feed(text)
        self.close()
        check(not self.open, f"left open: {self.open}")

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "polyline":
            self.curves.append([tuple(map(float, p.split(","))) for p in dict(attrs)["points"].split()])

    def handle_endtag(self, tag):
        check(self.open and self.open.pop() == tag, f"</{tag}> closes nothing")

    def handle_data(self, data):
        self.texts.append(data)


def train(folder, *options):
    done = subprocess.run([MESHMIND, "train", "-m", BASE / "openmeshmind-tiny-F16.gguf", "-d", folder / "t.jsonl",
                           "-o", folder / "a.gguf", "--steps", str(STEPS), "--rank", "2", "--batch", "64", "--json",
                           "--report", folder / "new" / "report", *map(str, options)], capture_output=True, text=True)
    check(done.returncode == 0, f"exit {done.returncode}: {done.stderr}")
    report = folder / "new" / "report"
    return (json.loads(done.stdout.splitlines()[-1]), json.loads((report / "report.json").read_text()),
            (report / "report.html").read_text())


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
    texts = Page((out / "report.html").read_text()).texts
    check("1234" in texts and "this machine does not tell" not in texts, f"energy on the page: {texts}")
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


def check_page(text, report):
    page = Page(text)
    check(not {"script", "img", "link", "iframe", "object", "a", "form"} & set(page.tags), f"tags {set(page.tags)}")
    check(not any(n in ("src", "href", "xlink:href", "style") or n.startswith("on") for n, _ in page.attributes),
          "an attribute that loads or runs")
    check(not re.search(r"url\(|@import|javascript:", text), "the style loads something")
    check(("name", "viewport") in page.attributes and any("default-src 'none'" in (v or "") for _, v in page.attributes),
          "no viewport or no policy")
    check(sorted(len(c) for c in page.curves) == sorted([STEPS] * 3 + [len(report["evaluations"])] * 2),
          f"curves of {[len(c) for c in page.curves]} points")
    for curve in page.curves:
        check(all(0 <= x <= 640 and 0 <= y <= 220 for x, y in curve) and curve == sorted(curve), f"curve {curve}")
    rates = report["curves"]["learning_rate"]
    drawn = [y for _, y in page.curves[-1]]  # the last curve: high rates are high up
    check(all((a < b) == (x > y) for a, b, x, y in zip(rates, rates[1:], drawn, drawn[1:])), "the rates are upside down")
    check(EVIL in page.texts and "<script" not in text, "a name from the data is not shown as text")
    for row in report["held_out"]["clients"]:
        check(row["name"] in page.texts, f"{row['name']} is not on the page")


with tempfile.TemporaryDirectory(prefix="omm-report-") as name:
    folder = pathlib.Path(name)
    (folder / "t.jsonl").write_text("".join((BASE / "train.jsonl").read_text().splitlines(True)[:10]))
    held = [json.loads(line) for line in (BASE / "test.jsonl").read_text().splitlines()[:6]]
    held[2]["skill"] = EVIL
    held[3]["client"] = "zz"
    (folder / "h.jsonl").write_text("".join(json.dumps(x) + "\n" for x in held))
    result, report, page = train(folder, "--eval", folder / "h.jsonl", "--eval-every", 3, "--new-tokens", 8)
    check_numbers(result, report)
    check_page(page, report)
    _, plain, page = train(folder)  # nothing held out: curves of the training alone
    check("held_out" not in plain and len(Page(page).curves) == 3, "a report without held-out data")
    _, short, page = train(folder, "--split", "0.3", "--new-tokens", 0, "--stream")
    check("answers" not in short["held_out"]["all"][0] and len(short["held_out"]["clients"]) == 3,
          f"losses alone: {short['held_out']}")
    check(len(Page(page).curves) == 3, "curves of a streamed run")
    check_energy(folder)
    check_folder(folder)
    one = {"client": "a", "messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Me."}]}
    (folder / "t.jsonl").write_text(json.dumps(one) + "\n")  # learned by heart: answers become exact
    result, learned, _ = train(folder, "--eval", folder / "t.jsonl", "--steps", 30, "--new-tokens", 8)
    whole, judged = learned["held_out"]["all"][0], result["evaluation"]
    check((judged["before"]["reply_exact"], judged["after"]["reply_exact"]) == (0, 1), f"not learned: {judged}")
    check((whole["exact_before"], whole["exact_after"], whole["answers"]) == (0, 1, 1), f"exact answers: {whole}")
    print("report.json and report.html hold what they should")

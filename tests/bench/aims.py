#!/usr/bin/env python3
"""What the engine and the trainer are aimed at, measured on this machine: one row for each aim, with the command that measured it,
as a table of Markdown.  Speeds are shares of what the machine itself gave in the same run (reads, f32 multiply-adds), so that the rows of
two machines compare: of what it gave right before and after each measurement, and in brackets of the best milliseconds of the run, which on a
machine that others use too is more than anything that takes longer can have.  Whoever reads it wants an idle machine: the last line says how much
of it others took meanwhile.

usage: aims.py [--folder DIR] [--shapes NAME,NAME] [-t THREADS] [-r REPEATS] [--peak-seconds X] [--build DIR] [--json FILE]

It takes about ten minutes.  --folder keeps the models of random weights (4.1 GB; made once, some minutes more).  --shapes: of `meshmind synth`; what is aimed at is said for
llama3.2-1b and smollm2-135m, and another is held to what the second is.  --json writes the rows as well.
Exit codes: 0 measured, whatever came out; 3 something could not be measured.
"""
import argparse, datetime, json, os, pathlib, platform, re, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BIG, SMALL = "llama3.2-1b", "smollm2-135m"
TYPES = {True: ["Q8_0", "Q4_0", "Q4_K_M", "Q6_K"], False: ["Q8_0", "Q4_0"]}  # is it the big one?
DECODE = {"Q8_0": 0.85, "Q4_0": 0.85, "Q4_K_M": 0.80, "Q6_K": 0.80}  # of the reads beside it
AVX2 = {"Q8_0": 180, "Q4_0": 250}  # GOPS
PRODUCTS = {True: 0.80, False: 0.72}  # of the f32 peak; width 576 has short chains
STEP = {True: 0.68, False: 0.55}
TRAINED = {True: ("Q4_K_M", 1500), False: ("Q8_0", 400)}  # million bytes of a LoRA step
SEQ = 512


def give_up(why):
    print(f"aims.py: {why}", file=sys.stderr)
    sys.exit(3)


class Bench:
    def __init__(self, options):
        self.o = options
        self.build = pathlib.Path(options.build)
        self.rows = []

    def run(self, *command):
        command = [str(word) for word in command]
        if not pathlib.Path(command[0]).exists():
            give_up(f"no program at {command[0]} (`cmake --preset release && cmake --build build/release` makes it)")
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            give_up(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()[-400:]}")
        return done.stdout

    def meshmind(self, *words):
        return self.run(self.build / "meshmind", *words)

    def model(self, shape, kind):
        path = pathlib.Path(self.o.folder) / f"{shape}-{kind}.gguf"
        if not path.exists():
            print(f"making {path}", file=sys.stderr)
            self.meshmind("synth", shape, path, "--type", kind)
        return path

    def row(self, what, value, bound, most, unit, command, of_best=None):
        """most: the bound is an upper one.  of_best: the same as a share of the best of the run."""
        def holds(x):
            return x <= bound if most else x >= bound
        self.rows.append({"what": what, "measured": value, "bound": bound, "is_upper_bound": most, "unit": unit, "holds": holds(value),
                          "of_best": of_best, "holds_of_best": holds(value if of_best is None else of_best), "command": command})
        print(f"{what}: {value:.3g} {unit}{'' if of_best is None else f' ({of_best:.3g})'}", file=sys.stderr)

    # ---- the engine ----

    def decode_and_prompts(self, shape, kind):
        path, t = self.model(shape, kind), self.o.threads
        words = ["-p", 256, "-n", 64, "-t", t, "-r", self.o.repeats, "--peak-seconds", self.o.peak_seconds]
        got = json.loads(self.meshmind("bench", "-m", path, *words, "--json"))["runs"][0]
        command = "`bench -m M " + " ".join(map(str, words)) + "`"
        name = f"{shape} {kind}"
        if shape != BIG:
            self.row(f"{name}: threads' time waiting, decode", 100 * got["decode"]["waiting_share"], 10, True, "%", command)
            return
        decode = got["decode"]
        self.row(f"{name}: decode, of the reads beside it", decode["share_of_read_in_turns"]["median"], DECODE[kind], False, "x", command,
                 decode["share_of_read"])
        self.prompt(f"{name}: prompt of 256", got, command)
        words = ["-p", 512, "-n", 0, "-t", t, "-r", self.o.repeats, "--peak-seconds", self.o.peak_seconds]
        got = json.loads(self.meshmind("bench", "-m", path, *words, "--json"))["runs"][0]
        self.prompt(f"{name}: prompt of 512", got, "`bench -m M " + " ".join(map(str, words)) + "`")

    def prompt(self, what, got, command):
        shares = got["prefill"]
        self.row(f"{what}, of the f32 multiply-adds beside it", shares["share_of_fma_in_turns"]["median"], 2.0, False, "x", command,
                 shares["share_of_fma"])

    def steps(self, shape, kind):
        """An adapter, and a token far from the beginning."""
        out = self.run(self.build / "tests/session_bench", self.model(shape, kind), self.o.threads)
        command = f"`session_bench M {self.o.threads}`"
        step = re.search(r"^q8, 1 sequences: ([\d.]+) ms a step.* with rank 16 in f32 [\d.]+ ms \(([+-][\d.]+) %\), "
                         r"in bf16 [\d.]+ ms \(([+-][\d.]+) %\), in q8_0 [\d.]+ ms \(([+-][\d.]+) %\)", out, re.M)
        ms = float(step[1])
        for number, stored in enumerate(["f32", "bf16", "q8_0"], 2):
            self.row(f"{shape} {kind}: an adapter of rank 16 in {stored}, decode", float(step[number]), 10, True, "% more", command)
        for cache in "f16", "q8_0":
            near, far = map(float, re.search(rf"layers, {cache}: ([\d.]+) ms at 512, ([\d.]+) ms at 8192", out).groups())
            self.row(f"{shape} {kind}: a token at 8,192 of one at 512, {cache} cache", (ms - near + far) / ms, 2.0, True, "x", command)

    def kernels_of_avx2(self):
        if platform.machine() != "x86_64":
            print("products of AVX2: not on this machine", file=sys.stderr)
            return
        for kind, bound in AVX2.items():
            out = self.run(self.build / "tests/kernels_bench", self.o.threads, "avx2", kind, 256)
            gops = float(re.search(rf"^{kind} .*?([\d.]+) GOPS", out, re.M)[1])
            self.row(f"AVX2 without VNNI, {kind}, 256 tokens, {self.o.threads} threads", gops, bound, False, "GOPS",
                     f"`kernels_bench {self.o.threads} avx2 {kind} 256`")

    def first_token(self, shape, kind):
        words = ["generate", "-m", self.model(shape, kind), "-c", 512, "-n", 1, "-t", self.o.threads, "Hi"]
        took = []
        for _ in range(3):
            start = time.perf_counter()
            self.meshmind(*words)
            took.append(time.perf_counter() - start)
        self.row(f"{shape} {kind}: from the command to the first token, best of 3", min(took), 2.0, True, "s",
                 f"`generate -m M -c 512 -n 1 -t {self.o.threads} Hi`")

    # ---- the trainer ----

    def train(self, shape, kind):
        t = self.o.threads
        counts = [1, t] if t > 1 else [1]
        words = ["--train", "--seq", SEQ, "-t", ",".join(map(str, counts)), "-r", self.o.repeats, "--peak-seconds", self.o.peak_seconds]
        got = json.loads(self.meshmind("bench", "-m", self.model(shape, kind), *words, "--json"))["train"]
        command = "`bench -m M " + " ".join(map(str, words)) + "`"
        name = f"{shape} {kind}, rank 16, {SEQ} tokens, {t} threads"
        last = got[-1]
        for way in "forward", "backward":
            flops = last[f"{way}_flops"]
            self.row(f"{name}: products {way}, of the f32 multiply-adds beside the steps", flops / last["fma_beside_flops"], PRODUCTS[shape == BIG],
                     False, "x", command, flops / last["fma_flops"])
        self.row(f"{name}: a LoRA step, of the f32 multiply-adds beside it", last["share_of_fma_in_turns"]["median"], STEP[shape == BIG], False, "x",
                 command, last["share_of_fma"])
        if t == 2:
            over = last["speed_over_first"]["median"]
            given = last["fma_beside_flops"] / got[0]["fma_beside_flops"]
            self.row(f"{name}: of one thread's speed, in turns", over, 1.85, False, "x", f"{command}; multiply-adds beside them {given:.2f} x")

    def train_memory(self, shape):
        kind, bound = TRAINED[shape == BIG]
        words = ["--seq", SEQ, "--batch", SEQ, "--rank", 16, "-t", self.o.threads, "--max-memory-mb", bound]
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder) / "text.txt"
            text.write_text("\n".join(f"line {n} of what is learned" for n in range(2000)) + "\n")
            out = self.meshmind("train", "-m", self.model(shape, kind), "-d", text, *words, "--dry-run", "--json")
        peak = json.loads(out.splitlines()[-1])["memory"]["peak_bytes"]
        self.row(f"{shape} {kind}: memory of a LoRA step, rank 16, {SEQ} tokens", peak / 1e6, bound, True, "MB",
                 "`train -m M -d TEXT " + " ".join(map(str, words)) + " --dry-run`")

    def all(self, shapes):
        for shape in shapes:
            for kind in TYPES[shape == BIG]:
                self.decode_and_prompts(shape, kind)
            for kind in "Q8_0", "Q4_0":
                self.steps(shape, kind)
            self.train(shape, "Q8_0")
            self.train_memory(shape)
        if BIG in shapes:
            self.first_token(BIG, "Q8_0")
            self.kernels_of_avx2()


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def times():
    """Seconds of all processors: ours, others' here, other guests', all."""
    ticks = [int(word) / os.sysconf("SC_CLK_TCK") for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    ours = sum(os.times()[:4])
    return ours, sum(ticks) - ticks[3] - ticks[4] - ticks[7] - ours, ticks[7], sum(ticks)


def table(rows):
    lines = ["| what | aimed at | measured | holds | command |", "|---|---|---|---|---|"]
    for r in rows:
        bound = f"{'at most' if r['is_upper_bound'] else 'at least'} {r['bound']:g} {r['unit']}"
        best = "" if r["of_best"] is None else f" ({r['of_best']:.3g})"
        lines.append(f"| {r['what']} | {bound} | {r['measured']:.3g} {r['unit']}{best} | {'yes' if r['holds'] else '**no**'} | {r['command']} |")
    return "\n".join(lines)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--folder", default=str(ROOT / "build/aims"))
    p.add_argument("--shapes", default=f"{BIG},{SMALL}")
    p.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("-r", "--repeats", type=int, default=3)
    p.add_argument("--peak-seconds", type=float, default=0.6)
    p.add_argument("--build", default=str(ROOT / "build/release"))
    p.add_argument("--json")
    options = p.parse_args()
    if options.threads < 1 or options.repeats < 1 or options.peak_seconds <= 0:
        p.error("-t and -r: at least 1; --peak-seconds: more than 0")
    pathlib.Path(options.folder).mkdir(parents=True, exist_ok=True)
    bench = Bench(options)
    before = times()
    bench.all(options.shapes.split(","))
    spent = [after - then for after, then in zip(times(), before)]
    about = {"processor": processor(), "threads": options.threads, "date": datetime.date.today().isoformat(),
             "program": bench.meshmind("--version").strip(), "others_share": max(spent[1] / spent[3], 0.0), "stolen_share": spent[2] / spent[3]}
    held = sum(r["holds"] for r in bench.rows)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"schema_version": 2, **about, "rows": bench.rows}, indent=1) + "\n")
    print(f"{about['processor']}, {about['threads']} threads, {about['date']}, {about['program']}\n\n{table(bench.rows)}\n")
    of_best = sum(r["holds_of_best"] for r in bench.rows)
    print(f"{held} of {len(bench.rows)} hold, {of_best} of the best milliseconds of each run; meanwhile other programs took "
          f"{100 * about['others_share']:.1f} % of the processors, and other guests of the machine {100 * about['stolen_share']:.1f} %")


main()

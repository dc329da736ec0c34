#!/usr/bin/env python3
"""README's "fine-tune your own model, in five lines", typed from README.md itself in an empty folder, with the shipped model and all
of its data but most of the held-out examples: what a new user would do, and see.

usage: five_lines_test.py SOURCE_DIR MESHMIND
"""
import pathlib, re, subprocess, sys, tempfile

from live import check

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
BASE = SOURCE / "scenarios" / "base"
README = (SOURCE / "README.md").read_text()
QUESTION = "Where is the spare key?\n"
if not MESHMIND.exists():
    print(f"{MESHMIND} is not there: build the release preset")
    sys.exit(77)


def five_lines():
    block = re.search(r"(?:\n    .*)+", README[README.index("## Fine-tune your own model, in five lines"):])
    lines = [re.split(r"\s+# ", line.strip(), maxsplit=1)[0] for line in block[0].strip("\n").split("\n")]
    check(len(lines) == 5, f"{len(lines)} lines:", lines)
    return lines


with tempfile.TemporaryDirectory(prefix="omm-five-") as name:
    folder = pathlib.Path(name)
    (folder / "build/release").mkdir(parents=True)
    (folder / "build/release/meshmind").symlink_to(MESHMIND)
    (folder / "notes").mkdir()
    (folder / "notes/home.txt").write_text("The spare key is under the blue pot.\n")
    (folder / "model.gguf").symlink_to(next(BASE.glob("*.gguf")))
    (folder / "train.jsonl").symlink_to(BASE / "train.jsonl")  # all of it: minutes are of steps, not of lines
    (folder / "test.jsonl").write_text("".join((BASE / "test.jsonl").read_text().splitlines(True)[::6]))
    said = []
    for line in five_lines():
        done = subprocess.run(line, shell=True, cwd=folder, env={"HOME": name, "PATH": "/usr/bin:/bin"}, input=QUESTION,
                              capture_output=True, text=True, timeout=900)
        print(f"$ {line}\n{done.stdout}{done.stderr}")
        check(done.returncode == 0, f"$ {line}\nended with {done.returncode}")
        said.append(done.stdout)
    counts = {what: [int(n) for n in re.search(rf"{what} +(\d+) +(\d+) +of (\d+)", said[1]).groups()] for what in ("right tool", "call exact")}
    # Of 35 calls 33 and 34, 18 and 18 with seeds 1 and 2; with the default steps, batch and rate 9 and 11 are exact.
    for what, least in (("right tool", 0.75), ("call exact", 0.4)):
        before, after, all_calls = counts[what]
        check(before == 0 and after >= least * all_calls, f"train: {what}, wanted {least} of the calls:", said[1])
    check("Vilnius" not in (BASE / "train.jsonl").read_text(), "the model shall not know the city from its lessons")
    call = '{"name": "weather_lookup", "arguments": {"city": "Vilnius", "day": "Friday"}}'
    check(call in said[2], "generate:", said[2])
    check("under the blue pot" in said[3] and "[source: home.txt" in said[3], "chat:", said[3])
    merged = subprocess.run([MESHMIND, "generate", "-m", folder / "merged.gguf", "--chat", "--system", "Tools: weather_lookup(city, day).",
                             "Will it rain in Vilnius on Friday?"], capture_output=True, text=True)
    check(call in merged.stdout, "merged:", merged.stdout, merged.stderr)
print("five lines, and a model that asks for the weather")

#!/usr/bin/env python3
"""Run clang-tidy over every C file of the project, two at a time.  Run by CTest as `tidy`.

A file whose preprocessed inputs are unchanged since its last clean run is not linted again: the
stamp is a digest over the file, all headers of the project, .clang-tidy and the compile command.
"""
import concurrent.futures, hashlib, json, os, pathlib, shutil, subprocess, sys

root, build = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
if not shutil.which("clang-tidy"):
    print("skipped: clang-tidy is not installed")
    sys.exit(77)
entries = {e["file"]: e for e in json.loads((build / "compile_commands.json").read_text())
           if str(root) in e["file"] and str(build) not in e["file"]}
shared = hashlib.sha256((root / ".clang-tidy").read_bytes())
for header in sorted(root.glob("*/include/omm/*.h")) + sorted(root.glob("*/*.h")):
    shared.update(header.read_bytes())
stamps = build / "tidy-stamps"
stamps.mkdir(exist_ok=True)


def lint(entry):
    digest = shared.copy()
    digest.update(pathlib.Path(entry["file"]).read_bytes() + entry.get("command", "").encode())
    stamp = stamps / digest.hexdigest()
    if stamp.exists():
        return 0, ""
    run = subprocess.run(["clang-tidy", "--quiet", "--extra-arg=-Wno-unused-command-line-argument", "-p", str(build),
                          entry["file"]], capture_output=True, text=True)
    if run.returncode == 0:
        stamp.touch()
    return run.returncode, run.stdout


with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
    results = list(pool.map(lint, entries.values()))
bad = [text for code, text in results if code != 0]
print("\n".join(bad)[-20000:] or f"tidy: ok, {len(results)} files")
sys.exit(1 if bad or not results else 0)

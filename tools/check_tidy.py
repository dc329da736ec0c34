#!/usr/bin/env python3
"""Run clang-tidy over every C file of the project.  Run by CTest as `tidy_0` and so on, a part each.

usage: check_tidy.py SOURCE_DIR BUILD_DIR [PART OF]
PART of OF parts: one file at a time; the analyzer follows PART_NODES states of a function, and leaves out tests, which run under sanitizers.
Else all files, on all processors, with the analyzer's own limit, which is over forty times that.

A file whose inputs are unchanged since its last clean run is not linted again: the stamp is a digest over the file, every
header that it includes (as Ninja knows them from the build; else all of the project), .clang-tidy, the compile command and the
linter's version.  Stamps are in build/tidy-stamps, or in the folder OMM_TIDY_STAMPS, which may outlive a checkout.
"""
import concurrent.futures, functools, hashlib, json, os, pathlib, re, subprocess, sys

import llvm_tool

root, build = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
clang_tidy = llvm_tool.find_or_skip("clang-tidy")
PART_NODES = 5000
stamps = pathlib.Path(os.environ.get("OMM_TIDY_STAMPS") or root / "build" / "tidy-stamps")
stamps.mkdir(parents=True, exist_ok=True)
version = subprocess.run([clang_tidy, "--version"], capture_output=True).stdout
config = (root / ".clang-tidy").read_bytes()
all_headers = sorted(str(p) for p in root.glob("**/*.h") if build not in p.parents)


@functools.cache
def digest_of(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).digest()


@functools.cache
def changed(path):
    """When, in nanoseconds; a file that is gone has just changed."""
    return os.stat(path).st_mtime_ns if os.path.exists(path) else 1 << 62


def known_inputs(objects):
    """Object -> the files it was made from, where that is not older than any of them."""
    done = subprocess.run(["ninja", "-C", str(build), "-t", "deps", *objects], capture_output=True, text=True)
    out = {}
    for block in done.stdout.split("\n\n"):
        head, *files = block.strip().split("\n")
        match = re.match(r"(.*): #deps \d+, deps mtime \d+ \(VALID\)", head)
        if match and (build / match[1]).exists():
            paths = [os.path.normpath(build / f.strip()) for f in files]
            if max(map(changed, paths)) <= changed(build / match[1]):
                out[match[1]] = paths
    return out


def object_of(entry):
    match = re.search(r" -o (\S+)", entry["command"])
    return match[1] if match else ""


def options_of(entry):
    path = os.path.relpath(entry["file"], root)
    only_tests = path.endswith("_test.c") or path.startswith("tests/")
    return options + (["--checks=-clang-analyzer-*"] if in_parts and only_tests else [])


def stamp_of(entry):
    inputs = known.get(object_of(entry), all_headers)
    key = hashlib.sha256(version + config + " ".join(options_of(entry)).encode() + entry["command"].replace(str(root), ".").encode())
    for path in [entry["file"], *sorted(inputs)]:
        key.update(os.path.relpath(path, root).encode() + b"\0" + digest_of(path))
    return stamps / key.hexdigest()


def lint(entry):
    stamp = stamp_of(entry)
    if stamp.exists():
        return 0, ""
    run = subprocess.run([clang_tidy, *options_of(entry), "-p", str(build), entry["file"]], capture_output=True, text=True)
    if run.returncode == 0:
        stamp.touch()
    return run.returncode, run.stdout


entries = {e["file"]: e for e in json.loads((build / "compile_commands.json").read_text())
           if str(root) in e["file"] and str(build) not in e["file"]}
chosen = sorted(entries.values(), key=lambda e: (-os.path.getsize(e["file"]), e["file"]))
threads, options = os.cpu_count() or 2, ["--quiet", "--extra-arg=-Wno-unused-command-line-argument"]
in_parts = len(sys.argv) > 4
if in_parts:
    chosen, threads = chosen[int(sys.argv[3])::int(sys.argv[4])], 1
    for word in ("-Xclang", "-analyzer-config", "-Xclang", f"max-nodes={PART_NODES}"):
        options.append(f"--extra-arg={word}")
known = known_inputs([object_of(e) for e in chosen])
with concurrent.futures.ThreadPoolExecutor(threads) as pool:
    results = list(pool.map(lint, chosen))
bad = [text for code, text in results if code != 0]
print("\n".join(bad)[-20000:] or f"tidy: ok, {len(results)} files")
sys.exit(1 if bad or not results else 0)

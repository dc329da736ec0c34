#!/usr/bin/env python3
"""Run clang-tidy over every C file of the project.  Run by CTest as `tidy_0` and so on, a part each.

usage: check_tidy.py SOURCE_DIR BUILD_DIR [PART OF]
PART of OF parts: one file at a time; the analyzer follows PART_NODES states of a function, and leaves out tests, which run under sanitizers.
Of those one process has up to TOGETHER, as its start is a fifth of what a file takes.  The analyzer has a process for each file:
version 14 keeps some names of functions from one file to the next, and then says that a va_list was not begun.
Else all files, each by itself on all processors, with the analyzer's own limit, which is over forty times that.

A file whose inputs are unchanged since its last clean run is not linted again: the stamp is a digest over the file, every
header that it includes (as Ninja knows them from the build; else all of the project), .clang-tidy, the compile command and the
linter's version.  Stamps are in build/tidy-stamps, or in the folder OMM_TIDY_STAMPS, which may outlive a checkout.
"""
import concurrent.futures, functools, hashlib, json, os, pathlib, re, subprocess, sys

import llvm_tool

root, build = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
clang_tidy = llvm_tool.find_or_skip("clang-tidy")
PART_NODES, TOGETHER, NO_ANALYZER = 5000, 16, "--checks=-clang-analyzer-*"
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
    return options + ([NO_ANALYZER] if in_parts and only_tests else [])


def stamp_of(entry):
    inputs = known.get(object_of(entry), all_headers)
    key = hashlib.sha256(version + config + " ".join(options_of(entry)).encode() + entry["command"].replace(str(root), ".").encode())
    for path in [entry["file"], *sorted(inputs)]:
        key.update(os.path.relpath(path, root).encode() + b"\0" + digest_of(path))
    return stamps / key.hexdigest()


def lint(group):
    """Exit status and text of each file of a group, all of the same options."""
    group = [e for e in group if not stamp_of(e).exists()]
    if not group:
        return []
    run = subprocess.run([clang_tidy, *options_of(group[0]), "-p", str(build), *(e["file"] for e in group)], capture_output=True, text=True)
    if run.returncode == 0:
        for entry in group:
            stamp_of(entry).touch()
    elif len(group) > 1:  # each by itself: those without a finding have their stamps
        alone = [result for entry in group for result in lint([entry])]
        return alone if any(code for code, _ in alone) else [(run.returncode, run.stdout)]
    return [(run.returncode, run.stdout)]


def groups_of(chosen, together):
    """What the analyzer leaves out at most so many at once, each other file by itself."""
    analyzed = [entry for entry in chosen if NO_ANALYZER not in options_of(entry)]
    others = [entry for entry in chosen if entry not in analyzed]
    return [[entry] for entry in analyzed] + [others[i:i + together] for i in range(0, len(others), together)]


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
    results = [one for group in pool.map(lint, groups_of(chosen, TOGETHER)) for one in group]
bad = [text for code, text in results if code != 0]
print("\n".join(bad)[-20000:] or f"tidy: ok, {len(chosen)} files")
sys.exit(1 if bad or not chosen else 0)

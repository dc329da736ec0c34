#!/usr/bin/env python3
"""Check that every C file is formatted by .clang-format.  Run by CTest as `format`."""
import pathlib, shutil, subprocess, sys

root = pathlib.Path(sys.argv[1])
if not shutil.which("clang-format"):
    print("skipped: clang-format is not installed")
    sys.exit(77)
files = [p for p in sorted(root.rglob("*.[ch]"))
         if p.relative_to(root).parts[0] not in {"build", "artifacts/runs"}
         and ".git" not in p.parts
         and not str(p.relative_to(root)).startswith("build")]
if not files:
    print("no C files found")
    sys.exit(1)
run = subprocess.run(["clang-format", "--dry-run", "-Werror", *map(str, files)], capture_output=True, text=True)
print(run.stderr[-4000:] or f"format: ok, {len(files)} files")
sys.exit(run.returncode)

#!/usr/bin/env python3
"""Check that every C file is formatted by .clang-format.  Run by CTest as `format`."""
import pathlib, subprocess, sys

import llvm_tool

root = pathlib.Path(sys.argv[1])
clang_format = llvm_tool.find_or_skip("clang-format")
files = [p for p in sorted(root.rglob("*.[ch]"))
         if p.relative_to(root).parts[0] not in {"build", "artifacts/runs"}
         and ".git" not in p.parts
         and not str(p.relative_to(root)).startswith("build")]
if not files:
    print("no C files found")
    sys.exit(1)
run = subprocess.run([clang_format, "--dry-run", "-Werror", *map(str, files)], capture_output=True, text=True)
print(run.stderr[-4000:] or f"format: ok, {len(files)} files")
sys.exit(run.returncode)

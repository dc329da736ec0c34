#!/usr/bin/env python3
"""Check that no two folders define a function or object of the same name: a linker takes the first that it finds, without a
word.  Within a folder the compiler sees to that.  Run by CTest as `symbols`.

usage: check_symbols.py SOURCE_DIR LIBRARY.a ...
"""
import collections, pathlib, subprocess, sys

places = collections.defaultdict(set)
for library in sys.argv[2:]:
    out = subprocess.run(["nm", "--defined-only", "--extern-only", library], capture_output=True, text=True, check=True).stdout
    for line in out.splitlines():
        words = line.split()
        if len(words) == 3 and not words[2].startswith("__"):
            places[words[2]].add(pathlib.Path(library).name)
double = {name: where for name, where in places.items() if len(where) > 1}
for name, where in sorted(double.items()):
    print(f"{name} is in {', '.join(sorted(where))}")
print(f"symbols: {len(places)} names of {len(sys.argv) - 2} libraries, {len(double)} of them in several")
sys.exit(1 if double or not places else 0)

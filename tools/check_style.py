#!/usr/bin/env python3
"""Check what STYLE asks and no other tool sees.  Run by CTest as `style`.

Every public header begins with "name.h - ...", says what it depends on and what threads may do;
no C file is over 1,000 lines; no tracked text names unfinished work or a path of somebody's machine; a file that a document
names by folder is there; a table of a document is in one piece; the table of decisions names each of them.
"""
import pathlib, re, subprocess, sys

root = pathlib.Path(sys.argv[1])
bad = []
for header in sorted(root.glob("*/include/omm/*.h")):
    text = header.read_text()
    if not text.startswith(f"/* {header.name} - "):
        bad.append(f"{header.relative_to(root)}: does not begin with '/* {header.name} - '")
    for word in ("Depends on:", "Threads:"):
        if word not in text.split("\n#include")[0]:
            bad.append(f"{header.relative_to(root)}: '{word}' is missing at the top")
tracked = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True).stdout.split("\n")
unfinished = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")
machine = re.compile(r"/(work|farm|root|home/[a-z]+)/")
for name in filter(None, tracked):
    path = root / name
    if path.suffix not in {".c", ".h", ".py", ".sh", ".md", ".yaml", ".cmake", ".txt"} or not path.exists():
        continue
    lines = path.read_text(errors="replace").split("\n")
    if path.suffix in {".c", ".h"} and len(lines) > 1000:
        bad.append(f"{name}: {len(lines)} lines")
    if name.startswith("scenarios/base/") or name == "tools/check_style.py":
        continue
    for number, line in enumerate(lines, 1):
        if unfinished.search(line) or machine.search(line):
            bad.append(f"{name}:{number}: {line.strip()[:80]}")
folders = "|".join(sorted({p.parent.relative_to(root).as_posix() for p in root.glob("*/*.[ch]")} | {"tests", "tools"}))
named = re.compile(rf"(?<![\w/.-])(?:{folders})/[\w./-]*\w\.(?:c|h|py|sh|proto)\b")
for document in sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")]):
    for name in sorted(set(named.findall(document.read_text()))):
        if not (root / name).exists():
            bad.append(f"{document.relative_to(root)}: there is no {name}")
# A row behind an empty line belongs to no table: it is shown as text.
for document in sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")]):
    rows = re.sub(r"(?ms)^```.*?^```$", lambda code: re.sub(r"(?m)^.*$", "", code[0]), document.read_text()).split("\n")
    for number, (above, row, below) in enumerate(zip(["", *rows], rows, [*rows[1:], ""]), 1):
        if row.startswith("|") and not above.startswith("|") and not re.fullmatch(r"\|[-:| ]+\|", below):
            bad.append(f"{document.relative_to(root)}:{number}: a row without a table: {row[:60]}")
decisions = (root / "docs/decisions.md").read_text()
index, _, rest = decisions.partition("\n1. **")
listed = {n for a, b in re.findall(r"\b(\d+)(?:-(\d+))?\b", index.partition("|---|")[2]) for n in range(int(a), int(b or a) + 1)}
taken = {int(n) for n in re.findall(r"^(\d+)\. ", "1. **" + rest, re.M)}
bad += [f"docs/decisions.md: decision {n} is not in the table at the top" for n in sorted(taken - listed)]
bad += [f"docs/decisions.md: the table names {n}, and there is no such decision" for n in sorted(listed - taken)]
print("\n".join(bad) or f"style: ok, {len(tracked)} files")
sys.exit(1 if bad else 0)

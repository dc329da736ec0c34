#!/usr/bin/env python3
"""The shipped base model is the file that the texts speak of: its digest stands in scenarios/base/README.md, in the row of
docs/measurements/base-model.md about the run that made it, and wherever README.md or tools/make_base.sh name one.

usage: base_file_test.py SOURCE_DIR
"""
import hashlib, pathlib, re, sys

source = pathlib.Path(sys.argv[1])
digest = hashlib.blake2b((source / "scenarios/base/openmeshmind-tiny-F16.gguf").read_bytes(), digest_size=32).hexdigest()
failures = []


def check(name, needed, line=lambda text: True):
    """Every digest that is called a BLAKE2b-256, in the lines that `line` takes; a line may break before it."""
    text = (source / name).read_text()
    lines = re.sub(r"BLAKE2b-256\s+`", "BLAKE2b-256 `", text).splitlines()
    found = [d for one in lines if line(one) for d in re.findall(r"BLAKE2b-256 `([0-9a-f]*)`", one)]
    failures.extend(f"{name} says {d}, the shipped model is {digest}" for d in found if d != digest)
    if needed and not found:
        failures.append(f"{name} does not say the digest of the shipped model, {digest}")


check("scenarios/base/README.md", True)
check("docs/measurements/base-model.md", True, lambda line: "of which the shipped file is" in line)
check("README.md", False)
check("tools/make_base.sh", False)
print("\n".join(failures) or f"base file: {digest}")
sys.exit(1 if failures else 0)

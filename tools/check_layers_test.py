#!/usr/bin/env python3
"""Check that check_layers.py says no: copies a tiny tree, breaks each rule in turn."""
import pathlib, subprocess, sys, tempfile

root = pathlib.Path(sys.argv[1])
script = root / "tools" / "check_layers.py"


def run(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return subprocess.run([sys.executable, script, folder], capture_output=True).returncode


good = {"base/include/omm/err.h": "", "engine/include/omm/model.h": '#include "omm/err.h"\n',
        "train/lora.c": '#include "omm/model.h"\n', "base/hash.c": "#include <sodium.h>\n"}
cases = {
    "good tree": ({}, 0),
    "upward include": ({"engine/bad.c": '#include "omm/trainer.h"\n', "train/include/omm/trainer.h": ""}, 1),
    "sideways include": ({"compress/bad.c": '#include "omm/model.h"\n'}, 1),
    "foreign library": ({"train/bad.c": "#include <sodium.h>\n"}, 1),
    "parent path": ({"train/bad.c": '#include "../engine/internal.h"\n'}, 1),
    "unknown folder": ({"misc/x.c": "\n"}, 1),
    "missing header": ({"train/bad.c": '#include "omm/nothing.h"\n'}, 1),
}
failed = [name for name, (extra, want) in cases.items() if run({**good, **extra}) != want]
print("\n".join(f"wrong verdict: {name}" for name in failed) or f"layers_says_no: ok, {len(cases)} trees")
sys.exit(1 if failed else 0)

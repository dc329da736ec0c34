#!/usr/bin/env python3
"""Start peft_peer.py where OMM_PEERS names a folder with a Python that has PEFT: OMM_PEERS/peft-venv.

    python3 tests/peft_test.py SOURCE MESHMIND TESTDATA
"""
import os, pathlib, subprocess, sys, tempfile

source, meshmind, testdata = map(pathlib.Path, sys.argv[1:4])
peers = os.environ.get("OMM_PEERS")
if not peers:
    print("skipped: OMM_PEERS is not set (a folder whose peft-venv has torch, transformers, peft)")
    sys.exit(77)
python = pathlib.Path(peers) / "peft-venv" / "bin" / "python"
if not python.exists():
    print(f"skipped: {python} is missing")
    sys.exit(77)
if not (testdata / "README.md").exists():
    print(f"skipped: no test data in {testdata} (set OMM_TESTDATA)")
    sys.exit(77)
with tempfile.TemporaryDirectory() as out:
    sys.exit(subprocess.run([python, source / "tests" / "peft_peer.py", meshmind, testdata, out],
                            env={**os.environ, "HF_HUB_OFFLINE": "1"}).returncode)

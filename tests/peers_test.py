#!/usr/bin/env python3
"""Start a comparison with another implementation where OMM_PEERS names a folder that has it.

    python3 tests/peers_test.py SOURCE MESHMIND TESTDATA peft|architectures|quantisers|llama_adapters|characters|characters_hf

OMM_PEERS/peft-venv is a Python environment with torch, transformers (with tokenizers), peft and gguf;
OMM_PEERS/llama-venv one with llama-cpp-python and gguf.
"""
import os, pathlib, subprocess, sys, tempfile

source, meshmind, testdata = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
name = sys.argv[4]
models = [testdata / "models" / "stories260K-f32.gguf", source / "scenarios" / "base" / "openmeshmind-tiny-F16.gguf"]
venv, modules, program = {
    "peft": ("peft-venv", "torch, transformers, peft", ["peft_peer.py", meshmind, testdata, "OUT"]),
    "architectures": ("peft-venv", "torch, transformers, peft, gguf", ["architectures_peer.py", meshmind, testdata, "OUT"]),
    "quantisers": ("llama-venv", "llama_cpp, gguf", ["bench/quantisers.py", meshmind, "--models", *models]),
    "llama_adapters": ("llama-venv", "llama_cpp, gguf", ["llama_adapters_peer.py", meshmind, testdata, "OUT"]),
    "characters": ("llama-venv", "llama_cpp, gguf", ["characters_peer.py", source, meshmind, "OUT", "llama"]),
    "characters_hf": ("peft-venv", "tokenizers, gguf", ["characters_peer.py", source, meshmind, "OUT", "hf"]),
}[name]


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


if not os.environ.get("OMM_PEERS"):
    skip(f"OMM_PEERS is not set (a folder whose {venv} has {modules})")
python = pathlib.Path(os.environ["OMM_PEERS"]) / venv / "bin" / "python"
if not python.exists():
    skip(f"{python} is missing")
if subprocess.run([python, "-c", f"import {modules}"], capture_output=True).returncode != 0:
    skip(f"{python} does not have all of {modules}")
if not (testdata / "README.md").exists():
    skip(f"no test data in {testdata} (set OMM_TESTDATA)")
with tempfile.TemporaryDirectory() as out:
    arguments = [out if a == "OUT" else a for a in program[1:]]
    sys.exit(subprocess.run([python, source / "tests" / program[0], *arguments],
                            env={**os.environ, "HF_HUB_OFFLINE": "1"}).returncode)

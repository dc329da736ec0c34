#!/usr/bin/env python3
"""A disk without room for what a command will write: quantize, synth, adapter merge, import and export say what is needed and what
is free before they work, and what lay there stays.  With room the same command writes what it writes elsewhere.

Needs root (CAP_SYS_ADMIN) and unshare; else it is skipped with the reason.

usage: outputs_disk_test.py SOURCE_DIR MESHMIND
"""
import json, pathlib, re, subprocess, sys, tempfile

from live import Findings
from small_disk import in_a_namespace, leave, mount

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
MODEL = SOURCE / "scenarios" / "base" / "openmeshmind-tiny-F16.gguf"
in_a_namespace()
found = Findings()
folder = tempfile.TemporaryDirectory(prefix="omm-outputs-disk-")
work = pathlib.Path(folder.name)
disk = work / "disk"
disk.mkdir()
mount(disk, "-t", "tmpfs", "-o", "size=24m", "tmpfs")


def run(*args, code=0):
    done = subprocess.run([MESHMIND, *map(str, args)], capture_output=True, text=True, timeout=300, cwd=work)
    found.check(done.returncode == code, f"{args}: exit {done.returncode} instead of {code}: {done.stderr[-400:]}")
    return done


def there():
    return {p.relative_to(disk).as_posix() for p in disk.rglob("*")}


(work / "d.jsonl").write_text("".join((SOURCE / "scenarios" / "base" / "train.jsonl").read_text().splitlines(keepends=True)[:6]))
run("train", "-m", MODEL, "-d", "d.jsonl", "-s", 2, "--new-tokens", 0, "--rank", 8, "-o", "a.gguf")
told = json.loads(run("adapter", "export", "a.gguf", "-m", MODEL, "-o", "peft", "--json").stdout)
taken = json.loads(run("adapter", "import", "peft", "-m", MODEL, "-o", "b.gguf", "--json").stdout)
shown = json.loads(run("adapter", "show", "a.gguf", "--json").stdout)
same = {"layers": told["layers"], "rank": 8, "schema_version": 1, "value_count": told["value_count"]}
found.check(told == {"alphas_lost": 0, "kind": "omm-adapter-export", **same} and told["layers"] > 0 and told["value_count"] == shown["value_count"], f"export --json: {told}, {shown}")
found.check(taken == {"kind": "omm-adapter-import", "rounded": False, **same}, f"import --json: {taken}")
old = disk / "old.gguf"
old.write_text("what was there before")
for what, args, name in (("quantize", ["quantize", MODEL, old, "F32"], "old.gguf"),
                         ("synth", ["synth", "tiny-llama", old, "--type", "F32"], "old.gguf"),
                         ("merge into a model", ["adapter", "merge", "--lora", "a.gguf", "-m", MODEL, "-o", old], "old.gguf"),
                         ("merge into a model, another type", ["adapter", "merge", "--lora", "a.gguf", "-m", MODEL, "--type", "Q8_0", "-o", old], "old.gguf"),
                         ("merge", ["adapter", "merge", "--lora", "a.gguf", "--lora", "a.gguf", "-o", old], "old.gguf"),
                         ("import", ["adapter", "import", "peft", "-m", MODEL, "-o", old], "old.gguf"),
                         ("export", ["adapter", "export", "a.gguf", "-m", MODEL, "-o", disk / "folder"], "folder/adapter_model.safetensors")):
    elsewhere = work / "elsewhere"
    run(*[elsewhere if str(arg).startswith(str(disk)) else arg for arg in args])
    written = elsewhere / "adapter_model.safetensors" if name.startswith("folder") else elsewhere
    size = written.stat().st_size
    kib = size // 1024 - 8  # too little by some pages only
    leave(disk, kib)
    done = run(*args, code=3)
    said = re.search(r"%s: no room for ([0-9.]+) MB: ([0-9.]+) MB are free\n" % re.escape(str(disk / name)), done.stderr)
    found.check(said and abs(float(said[1]) - size / 1e6) < 0.06 and abs(float(said[2]) - (kib << 10) / 1e6) < 0.06, f"{what}, {size} bytes, {kib} KiB free: {done.stderr}")
    found.check(there() == {"filler", "old.gguf"} and old.read_text() == "what was there before", f"{what}: {there()}")
    leave(disk, size // 1024 + 64)
    run(*args)
    found.check((disk / name).read_bytes() == written.read_bytes(), f"{what}: on the small disk another file")
    if name == "old.gguf":
        old.write_text("what was there before")
    else:
        subprocess.run(["rm", "-r", disk / "folder"], check=True)
    subprocess.run(["rm", "-r", elsewhere], check=True)
subprocess.run(["umount", disk], check=True)
if not found.failures:
    print("outputs_disk: ok")
sys.exit(found.code)

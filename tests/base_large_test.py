#!/usr/bin/env python3
"""A base model of more than 4 GiB reaches a node from its coordinator: whole, with its digest, in little memory.

Synthesised in the shape of llama3.2-1b in F32 (4.9 GB), so that offsets do not fit into 32 bits.  The node is killed once when it has
more than 2^32 bytes of it, the coordinator once earlier; neither makes anything come twice but the chunk in hand.

usage: base_large_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]     (skipped where the disk has not 12 GB)
"""
import hashlib, pathlib, re, shutil, sys, tempfile, time

import live
from live import check, wait_for

MESHMIND = live.program(sys.argv[2:])
NAME = "cafe-02"
NEEDED_BYTES = 12 << 30
CHUNK_BYTES = 262144
FETCHING_KB = 64 << 10  # at most, of the node: two hundredths of what comes
LONG_S = 1800


def digest(path):
    state = hashlib.blake2b(digest_size=32)
    with open(path, "rb") as file:
        while block := file.read(1 << 24):
            state.update(block)
    return state.hexdigest()


def events(folder, name, event):
    return [line for line in live.log_of(folder, name).splitlines() if re.search(rf"\b{event}\b", line)]


def number(line, key):
    return int(re.search(rf"\b{key}=(\d+)", line)[1])


def resident_kb(process, what):
    return int(re.search(rf"{what}:\s+(\d+) kB", pathlib.Path(f"/proc/{process.pid}/status").read_text())[1])


def until_bytes(folder, process, least):
    """The node's part of the model is that long; nobody else touches it."""
    def reached():
        check(process.poll() is None, live.log_of(folder, NAME)[-2000:])
        part = next((folder / NAME / "base").glob("*.part"), None)
        return part and part.stat().st_size >= least
    wait_for(f"{least} bytes", reached, LONG_S, folder)


def main(folder):
    live.ship(folder, few=2)
    live.run(MESHMIND, "synth", "llama3.2-1b", folder / "large.gguf", "--type", "F32")
    size, name = (folder / "large.gguf").stat().st_size, digest(folder / "large.gguf")
    check(size > 1 << 32, f"{size} bytes are no large model")
    text = (live.SOURCE / "scenarios" / "processes.yaml").read_text()
    text = text.replace("base/openmeshmind-tiny-F16.gguf", "large.gguf").replace("base/test.jsonl", "few.jsonl")
    (folder / "own.yaml").write_text(text.replace("round_items: 8", "round_items: 1") + "policy: policies/service.yaml\n")
    public, port = live.keys(MESHMIND, folder, [NAME]), live.free_port()
    live.write_coordinator(folder, port, "own.yaml", enrolled={NAME: public[NAME]["public_key"]}, base_mbit=0)
    live.write_node(folder, NAME, port, **{**live.trains(NAME, NAME, public), "model": None})
    coordinator = live.start_service(MESHMIND, folder, "coordinator", "coordinator")
    begin, node = time.monotonic(), live.start_service(MESHMIND, folder, "node", NAME)
    until_bytes(folder, node, size // 4)
    live.stop(coordinator)
    coordinator = live.start_service(MESHMIND, folder, "coordinator", "coordinator")
    until_bytes(folder, node, (1 << 32) + CHUNK_BYTES)
    peak = resident_kb(node, "VmHWM")
    live.stop(node)
    node = live.start_service(MESHMIND, folder, "node", NAME)
    again = wait_for("the second start", lambda: (events(folder, NAME, "base_fetch") + [None] * 2)[1], LONG_S, folder)
    here = number(again, "here")
    check(here >= 1 << 32 and here % CHUNK_BYTES == 0, f"it goes on from {here} of {size}: {again}")
    wait_for("the model", lambda: events(folder, NAME, "base_ready") or node.poll() is not None, LONG_S, folder)
    spent = time.monotonic() - begin
    ready = events(folder, NAME, "base_ready")
    check(ready and number(ready[-1], "from_coordinator") < size - here + 2 * CHUNK_BYTES, live.log_of(folder, NAME)[-2000:])
    check(digest(folder / NAME / "base" / f"{name}.gguf") == name, "other bytes")
    check(peak < FETCHING_KB, f"{peak} kB while it fetched, not under {FETCHING_KB}")
    print(f"{size} bytes in {spent:.0f} s, both killed once: {size / spent / 1e6:.0f} MB/s; gone on from {here}; the node took {peak} kB at most")


if shutil.disk_usage(tempfile.gettempdir()).free < NEEDED_BYTES:
    live.skip(f"{tempfile.gettempdir()} has not {NEEDED_BYTES >> 30} GiB free")
with live.workplace("base-large") as place:
    main(place)

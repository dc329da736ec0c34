#!/usr/bin/env python3
"""Disks that fill up around a base model in several files.  The node's, while the second file comes: the node says which file
has no room and stays, keeps what it has, asks for none of it again, and has the model soon after there is room; killed on the
full disk and started again there, it ends with 3 and a path.  The coordinator's: it serves on, and one that is started on a
full disk ends with 3 and a path, and with room again indexes the files and serves them.

usage: base_disk_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import pathlib, re, shutil, subprocess, sys, tempfile, time

sys.dont_write_bytecode = True
import live, split_gguf
from live import check, log_of, wait_for
from small_disk import NO_ROOM, fill, in_a_namespace, mount

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), live.program(sys.argv[2:])
PARTS, NODES = 3, ["cafe-02", "studio-02", "harbor-02"]
SLOW = 100  # megabits a second: the model takes about a second


def write_files(folder, port, tap):
    """A run with a base model in several files, and a node with each of the names; the first comes through the tap."""
    public = live.keys(MESHMIND, folder, NODES)
    live.ship(folder, few=2)
    paths = split_gguf.write(SOURCE / "scenarios" / "base" / "openmeshmind-tiny-F16.gguf", folder, "tiny", PARTS)
    text = (SOURCE / "scenarios" / "processes.yaml").read_text().replace("rounds: 2", "rounds: 1")
    text = re.sub(r"(?m)^test: .*$", "test: few.jsonl", re.sub(r"(?m)^model: .*$", f"model: {paths[0].name}", text))
    (folder / "own.yaml").write_text(text + "policy: policies/service.yaml\n")
    live.write_coordinator(folder, port, "own.yaml", enrolled={n: public[n]["public_key"] for n in NODES},
                           state_dir="server/state", base_mbit=SLOW, port_file="port")
    for name in NODES:
        live.write_node(folder, name, tap.port if name == NODES[0] else port, answer_ms=1000, state_dir=f"{'volunteer/' if name == NODES[0] else ''}{name}",
                        **live.trains(name, name, public) | {"model": None})
    return paths


def events(folder, name, event):
    return [line for line in log_of(folder, name).splitlines() if re.search(rf"\b{event}\b", line)]


def bytes_said(line, key):
    return int(re.search(rf'{key}"?[=:] ?(\d+)', line)[1])


def here(base):
    return sum(p.stat().st_size for p in base.glob("*.part"))


def ready(folder, name, base, paths):
    """The log's line of the end, with the coordinator's files where they belong."""
    wait_for(f"the model of {name}", lambda: events(folder, name, "base_ready"), logs=folder)
    got = sorted(base.glob("*.gguf"))
    check([p.read_bytes() for p in got] == [p.read_bytes() for p in paths], f"{name}: other files than the coordinator's: {got}")
    check(not list(base.glob("*.part")), f"{name}: parts are left")
    return events(folder, name, "base_ready")[-1]


def volunteers_disk(folder, paths, tap):
    name, disk, sizes = NODES[0], folder / "volunteer", [p.stat().st_size for p in paths]
    base, whole = disk / name / "base", sum(sizes)
    tap.hold(sizes[0] + sizes[1] // 2)
    node = live.start_service(MESHMIND, folder, "node", name)
    wait_for("some of the second file", lambda: any(p.stat().st_size > 100000 for p in base.glob("*-00002-of-*.part")), logs=folder)
    fill(disk)
    tap.let_go()
    said = wait_for("a word on the full disk", lambda: events(folder, name, "base_stands_still"), logs=folder)[0]
    check(re.search(rf"{re.escape(str(base))}/\w+-0000[23]-of-00003\.part: ({NO_ROOM})", said), "which file has no room?", said)
    check(node.poll() is None, "it left because of a full disk:", log_of(folder, name)[-2000:])
    check(0 < bytes_said(said, "here") <= here(base) < whole and not list(base.glob("*.gguf")), "what it had is gone:", said)
    (disk / "filler").unlink()
    line = ready(folder, name, base, paths)
    check(bytes_said(line, "from_coordinator") == whole, f"of {whole} bytes some came twice: {line}")
    live.stop(node)
    return said


def killed_on_a_full_disk(folder, paths):
    name, disk = NODES[0], folder / "volunteer"
    base = disk / name / "base"
    last = sorted(base.glob("*.gguf"))[-1]  # as if it had been killed before the last file came
    for path in sorted(base.glob("*.gguf"))[:-1]:
        path.rename(path.with_suffix(".part"))
    last.unlink()
    (base / "manifest.env").unlink()
    (folder / f"{name}.log").rename(folder / f"{name}.before")
    fill(disk)
    node = live.start_service(MESHMIND, folder, "node", name)
    wait_for("its end", lambda: node.poll() is not None, logs=folder)
    check(node.returncode == 3 and re.search(rf"{re.escape(str(disk))}\S*: .*({NO_ROOM})", log_of(folder, name)),
          f"started on a full disk it ended with {node.returncode} and said:\n{log_of(folder, name)[-1000:]}")
    (disk / "filler").unlink()
    node = live.start_service(MESHMIND, folder, "node", name)
    line = ready(folder, name, base, paths)
    check(bytes_said(line, "from_coordinator") < sum(p.stat().st_size for p in paths[-1:]) * 2, "it begins anew:", line)
    live.stop(node)


def coordinators_disk(folder, coordinator, paths):
    disk = folder / "server"
    fill(disk)
    live.start_service(MESHMIND, folder, "node", NODES[1])
    ready(folder, NODES[1], folder / NODES[1] / "base", paths)
    check(coordinator.poll() is None, "the coordinator left because of a full disk")
    live.stop(coordinator)
    for path in (disk / "state").glob("*"):  # a new run, so that there is something to write
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    (disk / "filler").unlink()
    fill(disk)
    (folder / "port").unlink()
    (folder / "coordinator.log").rename(folder / "coordinator.before")
    again = live.start_service(MESHMIND, folder, "coordinator", "coordinator")
    wait_for("its end", lambda: again.poll() is not None, logs=folder)
    check(again.returncode == 3 and re.search(rf"{re.escape(str(disk))}\S*: .*({NO_ROOM})", log_of(folder, "coordinator")),
          f"on a full disk it ended with {again.returncode} and said:\n{log_of(folder, 'coordinator')[-1000:]}")
    (disk / "filler").unlink()
    live.start_service(MESHMIND, folder, "coordinator", "coordinator")
    live.start_service(MESHMIND, folder, "node", NODES[2])
    ready(folder, NODES[2], folder / NODES[2] / "base", paths)


def main():
    in_a_namespace()
    folder, begin = pathlib.Path(tempfile.mkdtemp(prefix="omm-base-disk-")), time.monotonic()
    disks = {"volunteer": "size=112m", "server": "size=24m"}  # a node asks for the model and 64 MB before it begins
    try:
        for name, size in disks.items():
            (folder / name).mkdir()
            mount(folder / name, "-t", "tmpfs", "-o", size, "tmpfs")
        port = live.free_port()
        tap = live.Tap(port)
        paths = write_files(folder, port, tap)
        coordinator = live.start_service(MESHMIND, folder, "coordinator", "coordinator")
        wait_for("the coordinator", lambda: (folder / "port").exists(), logs=folder)
        print(volunteers_disk(folder, paths, tap).split(" ", 1)[1])
        killed_on_a_full_disk(folder, paths)
        coordinators_disk(folder, coordinator, paths)
        print(f"{PARTS} files of a base model, {time.monotonic() - begin:.0f} s")
    finally:
        live.end_all()
        for name in disks:
            subprocess.run(["umount", "-l", folder / name], capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


main()

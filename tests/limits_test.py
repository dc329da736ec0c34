#!/usr/bin/env python3
"""The table of time-outs and limits in docs/service.md says what the program does.

Each row's default is compared with the key's (`coordinator --keys`, `node --keys`), with the scenario's, or with the constant
in the source.  Every key that is a time of coordinator.yaml and node.yaml has a row, and every constant of the source that is
one, unless it is listed here with the reason.  Other numbers in a row's text would be compared with nothing: there are none.

usage: limits_test.py SOURCE_DIR MESHMIND
"""
import pathlib, re, subprocess, sys

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
PLACES = ["coordinator/*.[ch]", "node/*.[ch]", "proto/*.[ch]", "store/*.[ch]", "cli/cmd_node.c", "cli/node_*.c",
          "cli/cmd_coordinator.c", "cli/coordinator_*.c"]
# Times that nobody waits for: how often a loop looks, what is rounded or kept apart, lengths of a day.
NO_ROW = {"coordinator/enrol_operator.c HOUR_MS", "coordinator/http.h HTTP_FRESH_MS", "coordinator/http.c HTTP_WAIT_MS",
          "coordinator/meter.h METER_WINDOW_MS", "coordinator/parts.c SERVICE_EPOCH_MS", "coordinator/service.c SERVICE_BATCH_MS",
          "coordinator/service.c SERVICE_BUSY_SLICE_MS", "coordinator/service.c SERVICE_DRAIN_MS", "coordinator/service.c SERVICE_SLICE_MS",
          "coordinator/timetable.c TIMETABLE_NEAR_MS", "coordinator/timetable.h TIMETABLE_DAY_MS",
          "coordinator/timetable.h TIMETABLE_KEEP_MS", "coordinator/watch.h WATCH_TAKE_MS",
          "node/board.c HISTORY_MS", "node/board.c WRITE_MS", "node/guest.c LOAD_MS", "node/guest.c LOOK_MS",
          "node/patience.h PATIENCE_SLICE_MS", "node/service.c SERVICE_LATE_MS", "node/service.c SERVICE_WATCH_MS",
          "proto/mend.c NNG_LISTENER_REST_MS", "proto/mend.c REST_MS", "proto/nng_glue.c WAIT_MS_MAX", "proto/server.c SWEEP_MS"}
failures = []


def check(ok, what):
    if not ok:
        failures.append(what)
        print("FAIL", what)


def keys(kind):
    text = subprocess.run([MESHMIND, kind, "--keys"], capture_output=True, text=True, check=True).stdout
    return dict(re.findall(r"(?m)^([\w.]+): .*?; default (\S+) - ", text))


def scenario_default(key):
    match = re.search(rf'omm_scenario_round, {key}, \.fallback = "([^"]*)"', (SOURCE / "scenarios" / "scenario.c").read_text())
    return match and match[1]


def constant(path, name):
    text = (SOURCE / path).read_text()
    found = re.search(rf"(?m)^#define {re.escape(name)} (.*?)(?:\s*/\*.*)?$", text)
    if name.startswith("."):
        found = re.search(rf"{re.escape(name)} = (.*?)[,}}]", text)
    if not found:
        return None
    value = re.sub(r"\(uint64_t\)|(?<=\d)[uU]+", "", found[1])
    return str(eval(value, {"__builtins__": {}})) if re.fullmatch(r"[\d\s()*+<-]+", value) else value


def times_of_source():
    for place in PLACES:
        for path in SOURCE.glob(place):
            if not path.stem.endswith("_test"):
                for name in re.findall(r"(?m)^#define (\w+_(?:MS|S|MS_MAX|MS_MIN)) ", path.read_text()):
                    yield f"{path.relative_to(SOURCE)} {name}"


def main():
    text = (SOURCE / "docs" / "service.md").read_text().split("## Time-outs and limits of coordinator and node")[1].split("\n## ")[0]
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")][2:]
    files = {"coordinator.yaml": keys("coordinator"), "node.yaml": keys("node")}
    named = set()
    for row in rows:
        check(len(row) == 4 and all(row), f"a row with an empty cell: {row}")
        what, default, (where, name) = row[0], row[1], row[2].split(" ")
        named.add((where, name))
        if where in files:
            is_default = files[where].get(name)
        else:
            is_default = scenario_default(name) if where == "scenario" else constant(where, name)
        check(is_default == default, f"{what}: {where} {name} is {is_default}, the table says {default}")
        for number in re.findall(r"\b\d{3,}\b", row[3]):
            check(False, f"{what}: {number} in its text is compared with nothing; it needs a row of its own")
    for file, defaults in files.items():
        for name in defaults:
            if re.search(r"_(ms|s|gb|mbit|transfers|minute|address|max|bits)$|^strangers$", name) and not name.startswith("limits."):
                check((file, name) in named, f"{file}: {name} is in no row of the table")
    rows_of_source, times = {f"{where} {name}" for where, name in named}, set(times_of_source())
    for name in sorted(times - rows_of_source - NO_ROW):
        check(False, f"{name} is in no row of the table, and not among those that need none")
    check(NO_ROW <= times and not NO_ROW & rows_of_source, f"these are not there, or have a row: {NO_ROW - (times - rows_of_source)}")
    check(len(times) >= 40 and len(rows) >= 25, f"{len(rows)} rows")
    print(f"limits: {len(rows)} rows, {len(failures)} failures")
    sys.exit(1 if failures else 0)


main()

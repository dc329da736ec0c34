#!/usr/bin/env python3
"""The table of time-outs and limits in docs/service.md says what the program does.

Each row's default is compared with the key's (`coordinator --keys`, `node --keys`), with the scenario's, or with the constant
in the source.  Every key that is a time of coordinator.yaml and node.yaml has a row.

usage: limits_test.py SOURCE_DIR MESHMIND
"""
import pathlib, re, subprocess, sys

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
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
    for file, defaults in files.items():
        for name in defaults:
            if re.search(r"_(ms|s|gb|mbit|transfers|minute|address|max|bits)$|^strangers$", name) and not name.startswith("limits."):
                check((file, name) in named, f"{file}: {name} is in no row of the table")
    check(len(rows) >= 25, f"{len(rows)} rows")
    print(f"limits: {len(rows)} rows, {len(failures)} failures")
    sys.exit(1 if failures else 0)


main()

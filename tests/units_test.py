#!/usr/bin/env python3
"""The systemd units of coordinator and node: systemd itself finds nothing wrong, the coordinator's leaves little open, and both
let the program take a low priority for what must not hurry.

usage: units_test.py SOURCE_DIR MESHMIND
"""
import functools, pathlib, re, shutil, subprocess, sys, tempfile

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
EXPOSURE_MAX = 2.0  # of 10, as systemd-analyze security counts; 1.2 to 1.4 with systemd 252
NEEDED = {"coordinator": ("NoNewPrivileges=yes", "PrivateTmp=yes", "MemoryMax=", "ProtectSystem=strict"),
          "node": ("NoNewPrivileges=yes", "Nice=19", "TimeoutStopSec=5", "ExecStart=%h/.local/bin/meshmind node")}
CALLS = ("setpriority", "ioprio_set")  # base/priority.c
if not shutil.which("systemd-analyze"):
    print("skipped: there is no systemd-analyze here")
    sys.exit(77)
failures = []


def analyze(*args):
    return subprocess.run(["systemd-analyze", *args], capture_output=True, text=True)


@functools.lru_cache(None)
def members(word):
    """The calls that a word of SystemCallFilter= stands for."""
    if not word.startswith("@"):
        return frozenset([word])
    done = analyze("syscall-filter", "--no-pager", word)
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()[1:]]
    return frozenset().union(*(members(line) for line in lines if line and not line.startswith("#")))


def allowed(text):
    """What the lines of SystemCallFilter= leave, one after the other; None: everything."""
    calls = None
    for line in re.findall(r"(?m)^SystemCallFilter=(.*)$", text):
        taken = frozenset().union(*(members(word) for word in line.lstrip("~").split()))
        calls = (calls or frozenset()) - taken if line.startswith("~") else (calls or frozenset()) | taken
    return calls


def check_unit(unit, kind, folder):
    text = unit.read_text()
    failures.extend(f"{unit.name}: {needed} is missing" for needed in NEEDED[kind] if needed not in text)
    calls = allowed(text)
    failures.extend(f"{unit.name}: {c} is denied: what should step back would not" for c in CALLS if calls is not None and c not in calls)
    local = folder / unit.name  # the program is where it was built, the user is one of this machine
    text = re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={MESHMIND}", text)
    local.write_text(re.sub(r"(?m)^(User|Group)=.*", r"\1=daemon", text))
    done = analyze("verify", "--man=no", *(["--user"] if kind == "node" else []), str(local))
    about = [line for line in done.stderr.splitlines() if unit.name in line]
    if about:
        failures.append("\n".join(about))
    if kind == "coordinator":
        check_exposure(unit, local)


def check_exposure(unit, local):
    done = analyze("security", "--offline=yes", "--no-pager", str(local))
    level = re.search(rf"Overall exposure level for {re.escape(unit.name)}: ([0-9.]+)", done.stdout)
    if not level:
        print(f"{unit.name}: this systemd-analyze judges no files: {(done.stderr or done.stdout)[-200:].strip()}")
    elif float(level.group(1)) > EXPOSURE_MAX:
        failures.append(f"{unit.name}: exposure {level.group(1)}, at most {EXPOSURE_MAX}\n{done.stdout}")
    else:
        print(f"{unit.name}: exposure {level.group(1)}")


with tempfile.TemporaryDirectory(prefix="omm-units-") as folder:
    for kind in NEEDED:
        units = sorted((SOURCE / "tools").glob(f"meshmind-{kind}*.service"))
        assert units, kind
        for unit in units:
            check_unit(unit, kind, pathlib.Path(folder))
print("\n".join(failures))
sys.exit(1 if failures else 0)

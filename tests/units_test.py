#!/usr/bin/env python3
"""The coordinator's systemd unit: systemd itself finds nothing wrong, and little that they leave open.

usage: units_test.py SOURCE_DIR MESHMIND
"""
import pathlib, re, shutil, subprocess, sys, tempfile

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
EXPOSURE_MAX = 2.0  # of 10, as systemd-analyze security counts; 1.2 to 1.4 with systemd 252
if not shutil.which("systemd-analyze"):
    print("skipped: there is no systemd-analyze here")
    sys.exit(77)
failures = []
units = sorted((SOURCE / "tools").glob("meshmind-coordinator*.service"))
assert units
with tempfile.TemporaryDirectory(prefix="omm-units-") as folder:
    for unit in units:
        text = unit.read_text()
        for needed in ("NoNewPrivileges=yes", "PrivateTmp=yes", "MemoryMax=", "ProtectSystem=strict"):
            if needed not in text:
                failures.append(f"{unit.name}: {needed} is missing")
        local = pathlib.Path(folder) / unit.name  # the program is where it was built, the user is one of this machine
        text = re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={MESHMIND}", text)
        local.write_text(re.sub(r"(?m)^(User|Group)=.*", r"\1=daemon", text))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", local], capture_output=True, text=True)
        about = [line for line in done.stderr.splitlines() if unit.name in line]
        if about:
            failures.append("\n".join(about))
        done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--no-pager", local], capture_output=True, text=True)
        level = re.search(rf"Overall exposure level for {re.escape(unit.name)}: ([0-9.]+)", done.stdout)
        if not level:
            print(f"{unit.name}: this systemd-analyze judges no files: {(done.stderr or done.stdout)[-200:].strip()}")
        elif float(level.group(1)) > EXPOSURE_MAX:
            failures.append(f"{unit.name}: exposure {level.group(1)}, at most {EXPOSURE_MAX}\n{done.stdout}")
        else:
            print(f"{unit.name}: exposure {level.group(1)}")
print("\n".join(failures))
sys.exit(1 if failures else 0)

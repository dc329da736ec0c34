#!/usr/bin/env python3
"""An nng that proto/mend.c cannot mend is refused when the build is configured, by what it lacks and what would do.

usage: nng_archive_test.py SOURCE_DIR NNG_ARCHIVE
"""
import pathlib, re, subprocess, sys, tempfile

source, archive = sys.argv[1:3]
failures = []


def refused(folder, library, reason):
    run = subprocess.run(["cmake", "-G", "Ninja", "-S", source, "-B", folder / "build", f"-DNNG_LIBRARY={library}"], capture_output=True, text=True)
    said = re.sub(r"\s+", " ", run.stderr)
    if run.returncode == 0:
        failures.append(f"not refused: {library}")
    for words in (reason, "known to work: 1.5.2 and 1.10.1", "-DBUILD_SHARED_LIBS=OFF"):
        if words not in said:
            failures.append(f"'{words}' is not said of {library}: {said[:600]}")


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    other = folder / "libnng.a"
    subprocess.run(["objcopy", "--redefine-sym", "nni_sleep_aio=nni_rest_aio", archive, other], check=True)
    refused(folder, other, f"{other} has no nni_sleep_aio proto/mend.c leads")
    refused(folder, "", "no libnng.a with its header nng/nng.h was found")
    other.write_bytes(b"no archive")
    refused(folder, other, f"a program cannot be linked with {other}")
print("\n".join(failures) or "nng archive: ok, 3 refused")
sys.exit(1 if failures else 0)

"""clang-format and clang-tidy of the version by which this project is formatted and linted, Debian 12's: others format a few
lines in another way and have other checks under the same names."""
import re, shutil, subprocess, sys

VERSION = "14"


def version_of(program):
    said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    return re.search(r"version (\d+)", said)[1]


def find_or_skip(name):
    """The program `name` of that version; where it is not here, says so and ends as a skipped test."""
    for program in filter(shutil.which, (f"{name}-{VERSION}", name)):
        if version_of(program) == VERSION:
            return program
    here = f"the one here is {version_of(name)}, which does it in another way" if shutil.which(name) else "it is not installed"
    print(f"skipped: {name} {VERSION} is needed; {here}")
    sys.exit(77)

"""Small disks of a test's own: a tmpfs in a mount namespace, filled to the last byte when the test wants it.

Needs root (CAP_SYS_ADMIN) and unshare; else the test is skipped with the reason.
"""
import contextlib, errno, os, shutil, subprocess, sys

import live
from live import check

NO_ROOM = "No space left on device|database or disk is full"


def in_a_namespace():
    """Starts this test again where its mounts are nobody else's."""
    if os.environ.get("OMM_DISK_TEST"):
        return
    if not shutil.which("unshare"):
        live.skip("there is no unshare here (package util-linux)")
    tried = subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True)
    if tried.returncode != 0:
        live.skip(f"file systems cannot be mounted here: {tried.stderr.strip()}")
    os.environ["OMM_DISK_TEST"] = "1"
    os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv])


def mount(disk, *options):
    done = subprocess.run(["mount", *options, disk], capture_output=True, text=True)
    check(done.returncode == 0, "mount:", done.stderr)


def fill(disk):
    """Until not one byte more has room: what somebody gives back meanwhile, as a file that was begun in vain, is taken too."""
    live.wait_for("a full disk", lambda: is_full_now(disk))


def leave(disk, kib):
    """So much is free on the disk."""
    (disk / "filler").unlink(missing_ok=True)
    room = os.statvfs(disk)
    with open(disk / "filler", "wb") as f:
        os.posix_fallocate(f.fileno(), 0, room.f_bavail * room.f_frsize - (kib << 10))


def is_full_now(disk):
    with open(disk / "filler", "ab", buffering=0) as f:
        room = os.statvfs(disk)
        with contextlib.suppress(OSError):
            os.posix_fallocate(f.fileno(), f.tell(), room.f_bavail * room.f_frsize)
        f.seek(0, os.SEEK_END)
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    f.write(bytes(size))
    try:
        (disk / "probe").write_bytes(bytes(8192))
    except OSError as error:
        check(error.errno == errno.ENOSPC, error)
        return True
    finally:
        (disk / "probe").unlink(missing_ok=True)
    return False

"""What the tests of live processes share: ports, processes with logs, waiting for an event, keys, HTTP.

A test imports it and says which program it is about: `meshmind = live.program(sys.argv[2:])`.
"""
import atexit, json, os, pathlib, signal, socket, subprocess, sys, time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
LIMIT_S = 120  # of wait_for where nothing else is said: many times what an idle machine needs
NOWHERE = "/nonexistent"  # OMM_GUEST_ROOT: no load or heat of this machine pauses a node


def fail(*what):
    print(*what, flush=True)
    sys.exit(1)


def check(ok, *what):
    if not ok:
        fail(*what)


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


class Findings:
    """For tests that go on after something was wrong: `check` collects, `code` is the exit code at the end."""

    def __init__(self):
        self.failures = []

    def check(self, ok, what):
        if not ok:
            self.failures.append(what)
            print("FAIL", what, flush=True)

    @property
    def code(self):
        return 1 if self.failures else 0


def program(paths):
    """The last of these paths that is there: the build under test first, then faster ones."""
    found = [p for p in paths if pathlib.Path(p).exists()]
    check(found, "none of these programs is there:", *paths)
    return pathlib.Path(found[-1]).resolve()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(what, test, seconds=LIMIT_S, logs=None):
    """Until `test` says something; its word.  Else the test fails, and shows the end of the logs in the folder `logs`."""
    end = time.monotonic() + seconds
    while not (got := test()):
        if time.monotonic() > end:
            for path in sorted(pathlib.Path(logs).glob("*.log")) if logs else ():
                print(f"---- {path.name}\n{path.read_text(errors='replace')[-1500:]}")
            fail(f"{what}: not within {seconds} s")
        time.sleep(0.02)
    return got


def environment(**more):
    env = {"OMM_GUEST_ROOT": NOWHERE, **os.environ}
    env.pop("OMM_CRASH_AT", None)
    return {**env, **{k: str(v) for k, v in more.items()}}


started = []  # processes that do not outlive the test, however it ends


def start(command, log, **env):
    """A process whose two outputs are appended to the file `log`."""
    with open(log, "ab") as out:
        started.append(subprocess.Popen([str(c) for c in command], stdout=out, stderr=out, env=environment(**env)))
    return started[-1]


def start_service(meshmind, folder, kind, name, **env):
    """`meshmind coordinator` or `node` with NAME.yaml of the folder, its log in NAME.log."""
    return start([meshmind, kind, "-c", folder / f"{name}.yaml"], folder / f"{name}.log", **env)


def log_of(folder, name):
    path = folder / f"{name}.log"
    return path.read_text(errors="replace") if path.exists() else ""


def stop(process, how=signal.SIGKILL):
    process.send_signal(how)
    return process.wait(timeout=LIMIT_S)


def end_all(processes=started):
    for p in processes:
        if p.poll() is None:
            p.kill()
            p.wait()


atexit.register(end_all)


def keygen(meshmind, folder, name):
    """Makes NAME.key; what is public of it: public_key, minisign."""
    done = subprocess.run([meshmind, "keygen", "--json", "--out", folder / f"{name}.key"], capture_output=True, text=True)
    check(done.returncode == 0, "keygen:", done.stderr)
    return json.loads(done.stdout)


def run_digest(bundle):
    return json.loads((pathlib.Path(bundle) / "manifest.json").read_text())["run_digest"]


class Simulation:
    """`simulate` of a scenario, while something else waits; `digest()` is its run digest."""

    def __init__(self, meshmind, scenario, out):
        self.out, self.process = out, subprocess.Popen(
            [meshmind, "simulate", scenario, "--out", out, "--threads", "1"], stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, env=environment())

        started.append(self.process)

    def digest(self):
        said = self.process.communicate()[1]
        check(self.process.returncode in (0, 1), "simulate:", said[-1000:])  # 1: a gate failed, the run is whole
        return run_digest(self.out)

"""What the tests of live processes share: ports, processes with logs, terminals, waiting for an event, service files and keys, a
relay that keeps every byte, simulations to compare with, what is said of a bundle.

A test imports it and says which program it is about: `meshmind = live.program(sys.argv[2:])`.
"""
import atexit, contextlib, json, math, os, pathlib, pty, random, re, select, shutil, signal, socket, subprocess, sys, tempfile, threading, time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
LIMIT_S = 300  # of wait_for where nothing else is said: many times what an idle machine needs
NOWHERE = "/nonexistent"  # OMM_GUEST_ROOT: no load or heat of this machine pauses a node
# Of a scenario whose every round shall have every node, however late a starved machine lets one come.
PATIENT = "round: {join_ms: 3600000}\n"


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


ports_taken = []  # sockets whose names say which ports are ours until this test ends


def free_port():
    """A port that is this test's until it ends, whoever listens there and however often: no other test takes it, and it is none
    that the kernel gives to those who ask for any, as every connection does."""
    low = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = range(max(low - 10000, 1024), low) or range(1024, 65536)
    for port in random.sample(ports, len(ports)):
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0omm-test-port-{port}")
            with socket.create_server(("127.0.0.1", port)):
                ports_taken.append(name)
            return port
        except OSError:  # another test's, or somebody listens there
            name.close()
    fail("no port is free")


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


class Terminal:
    """A command on a terminal of its own: what is typed, and what is seen."""

    CONTROL_C = b"\x03"

    def __init__(self, command, folder, env):
        self.seen, self.read_to, self.gone = b"", 0, False
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(str(command[0]), [str(c) for c in command], env)

    def read(self):
        """What was seen since what was read."""
        while not self.gone and select.select([self.fd], [], [], 0)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:  # nobody has the other end
                data = b""
            self.gone = not data
            self.seen += data.replace(b"\r", b"")
        return self.text()

    def text(self):
        return self.seen[self.read_to:].decode(errors="surrogateescape")  # what is generated may be any bytes

    def until(self, pattern, seconds=LIMIT_S):
        """What was seen since what was read up to `pattern`, which must come."""
        end = time.monotonic() + seconds
        while not (match := re.search(pattern, self.read())):
            check(not self.gone, f"ended before /{pattern}/:\n{self.text()}")
            check(time.monotonic() < end, f"no /{pattern}/ within {seconds} s:\n{self.text()}")
            select.select([self.fd], [], [], 0.1)
        return match

    def pass_over(self, match):
        """What stands up to the end of `match` is read."""
        self.read_to += len(self.text()[:match.end()].encode(errors="surrogateescape"))

    def begin(self, line):
        os.write(self.fd, line.encode() + b"\n")

    def control_c(self):
        os.write(self.fd, self.CONTROL_C)

    def end(self, seconds=LIMIT_S):
        """The exit code of the command, which must end by itself; a signal's is negative."""
        end = time.monotonic() + seconds
        while not self.gone:
            check(time.monotonic() < end, f"it does not end within {seconds} s:\n{self.read()}")
            select.select([self.fd], [], [], 0.1)
            self.read()
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self):
        os.kill(self.pid, signal.SIGHUP)
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def log_of(folder, name):
    path = folder / f"{name}.log"
    text = path.read_text(errors="replace") if path.exists() else ""
    place = re.search(r'(?m)^.*="\S*\.c:\d+: [A-Z_]+: .*$', text)
    check(not place, "a line that is for people names a place in the source:", place and place[0])
    return text


def run(*command, code=0, says="", **options):
    """Ends within LIMIT_S with exit code `code` (or one of them), and says what is wanted: what it said on stdout."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=LIMIT_S, env=environment(), **options)
    wanted = code if isinstance(code, tuple) else (code,)
    check(done.returncode in wanted and says in done.stdout + done.stderr,
          *command[1:], f"exit {done.returncode}, wanted {code} and {says!r}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def said_until(command, word):
    """What a program says (both streams) until a line with `word`, upon which it is asked to end, and with which code it did."""
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        said = ""
        for line in process.stdout:
            said += line
            if word in line:
                process.terminate()
        return process.wait(60), said


def stop(process, how=signal.SIGKILL):
    process.send_signal(how)
    return process.wait(timeout=LIMIT_S)


def starved_s(pid, known):
    """Seconds for which the threads of a process were ready to go on and other programs had the processors, since the first look
    with this `known`; none where the kernel does not say."""
    with contextlib.suppress(OSError):
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError, IndexError, ValueError):
                waited = int((task / "schedstat").read_text().split()[1])
                known[task.name] = (known.get(task.name, (waited, 0))[0], waited)
    return sum(last - first for first, last in known.values()) / 1e9


def stop_timed(process, how):
    """Its exit code, and the seconds that it took of its own: without those that it had no processor for."""
    known, begin = {pid: {} for pid in (process.pid, os.getpid())}, time.monotonic()
    starved = lambda: sum(starved_s(pid, known[pid]) for pid in known)
    starved()
    process.send_signal(how)
    while process.poll() is None:
        starved()
        check(time.monotonic() < begin + LIMIT_S, f"not stopped within {LIMIT_S} s")
        time.sleep(0.01)
    return process.returncode, time.monotonic() - begin - starved()


def end_all(processes=started):
    for p in processes:
        if p.poll() is None:
            p.kill()
            p.wait()


atexit.register(end_all)


@contextlib.contextmanager
def workplace(name):
    """A folder for `with`; afterwards its processes have ended and it is gone."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"omm-{name}-")).resolve()
    try:
        yield folder
    finally:
        end_all()
        shutil.rmtree(folder, ignore_errors=True)


# ---- files ------------------------------------------------------------------------------------------

def keygen(meshmind, folder, name):
    """Makes NAME.key; what is public of it: public_key, minisign."""
    return json.loads(run(meshmind, "keygen", "--json", "--out", folder / f"{name}.key"))


def keys(meshmind, folder, names):
    """Keys of a service with enrolled nodes: of coordinator, bundle and every name; what is public of each."""
    return {name: keygen(meshmind, folder, name) for name in ("coordinator", "bundle", *names)}


def ship(folder, few=0):
    """What a scenario needs beside it: the base model, the policies, and `few` test items for short evaluations."""
    (folder / "base").symlink_to(SOURCE / "scenarios" / "base")
    shutil.copytree(SOURCE / "scenarios" / "policies", folder / "policies")
    if few:
        lines = (SOURCE / "scenarios" / "base" / "test.jsonl").read_text().splitlines(keepends=True)
        (folder / "few.jsonl").write_text("".join(lines[::len(lines) // few][:few]))


def ship_lines_of(folder, name, clients, most=None):
    """train.jsonl or test.jsonl (`name`) of the shipped data with these clients' lines alone, at most so many of each, for scenarios
    that name them: a small file is read and judged sooner."""
    left, lines = dict.fromkeys(clients, most), []
    for line in (SOURCE / "scenarios" / "base" / name).read_text().splitlines(keepends=True):
        client = json.loads(line)["client"]
        if client in left and left[client] != 0:
            left[client] = most and left[client] - 1
            lines.append(line)
    check(lines and not (most and any(left.values())), f"{name}: lines that are missing: {left}")
    (folder / name).write_text("".join(lines))


def small(folder, more=""):
    """The scenario of real processes with the data of its clients alone, and lines that are added: its path in the folder,
    beside `base`, train.jsonl and test.jsonl.  The whole files are read in a second by a program with sanitizers."""
    if not (folder / "base").exists():
        (folder / "base").symlink_to(SOURCE / "scenarios" / "base")
    text = (SOURCE / "scenarios" / "processes.yaml").read_text()
    clients = re.search(r"(?m)^ +clients: \[(.*)\]$", text)[1].split(", ")
    for data in ("train.jsonl", "test.jsonl"):
        ship_lines_of(folder, data, clients)
        text = text.replace(f"base/{data}", data)
    path = folder / "processes.yaml"
    path.write_text(text + more)
    return path


def quicker(scenario):
    """The text of processes.yaml with a fourth of the tokens in a step and of the items after a round, where neither matters: half
    of the time, and its gates pass, too."""
    text, count = re.subn("(?<=batch_tokens: )256|(?<=round_items: )8", lambda found: str(int(found[0]) // 4), scenario)
    check(count == 2, "processes.yaml is another scenario")
    return text


def quick(folder):
    """small() with the text made quicker."""
    path = small(folder)
    path.write_text(quicker(path.read_text()))
    return path


def patient(folder):
    """The same with rounds that wait for every node: what shall have the simulator's digest must not
    miss one that came late."""
    return small(folder, more=PATIENT)


def write_yaml(path, fields):
    """One line a field; those that are None are left out."""
    path.write_text("".join(f"{k}: {v}\n" for k, v in fields.items() if v is not None))


def write_coordinator(folder, port, scenario, name="coordinator", enrolled=None, **more):
    """NAME.yaml of a service; `enrolled`: its own keys, and node name -> public key."""
    fields = {"scenario": scenario, "listen": f"tcp://127.0.0.1:{port}", "state_dir": "coordinator", "poll_ms": 100,
              "linger_ms": 60000, "threads": 1}
    if enrolled is not None:
        fields |= {"key": "coordinator.key", "bundle_key": "bundle.key"}
        if enrolled:
            fields["nodes"] = "".join(f"\n  - {{name: {n}, public_key: {k}}}" for n, k in enrolled.items())
    write_yaml(folder / f"{name}.yaml", fields | more)


def write_node(folder, name, port, /, **more):
    """NAME.yaml of a node; either `scenario` or what `trains` gives is needed in `more`.  Not at a guest's lowest priority: there
    it would starve beside other tests."""
    write_yaml(folder / f"{name}.yaml", {"coordinator": f"tcp://127.0.0.1:{port}", "name": name, "state_dir": name, "threads": 1,
                                         "priority": "normal"} | more)


def trains(name, client, public):
    """Fields of a node with the key NAME.key that trains on what one client of the shipped data says."""
    return {"key": f"{name}.key", "coordinator_key": public["coordinator"]["public_key"], "client": client,
            "model": "base/openmeshmind-tiny-F16.gguf", "data": "base/train.jsonl"}


# ---- what comes out ---------------------------------------------------------------------------------

def run_digest(bundle):
    return json.loads((pathlib.Path(bundle) / "manifest.json").read_text())["run_digest"]


def check_verified(meshmind, bundle, *options):
    """Nobody has changed it.  Gates may fail: a service repeats no training, and one short round learns little."""
    done = subprocess.run([meshmind, "verify", bundle, *options], capture_output=True, text=True)
    check(done.returncode == 0 or (done.returncode == 1 and "the evidence is intact" in done.stdout), "verify:", done.stdout, done.stderr)


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


class Tap(threading.Thread):
    """Passes connections on to `port`, and keeps what goes `out` to it and comes `back`: anybody on the way can.
    After hold(n) it stands still, and is `holding`, when over n bytes more have come back, until let_go()."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.to, self.out, self.back, self.open, self.ended = port, bytearray(), bytearray(), set(), 0  # connections
        self.back_max, self.holding, self.flows = math.inf, threading.Event(), threading.Event()
        self.door = socket.create_server(("127.0.0.1", 0))
        self.port = self.door.getsockname()[1]
        self.start()

    def hold(self, more):
        self.holding.clear()
        self.flows.clear()
        self.back_max = len(self.back) + more

    def let_go(self):
        self.back_max = math.inf
        self.flows.set()

    def run(self):
        while True:
            near = self.door.accept()[0]
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:  # the coordinator is away
                near.close()
                continue
            self.open.add(near)
            for a, b, kept in ((near, far, self.out), (far, near, self.back)):
                threading.Thread(target=self.pump, args=(a, b, kept, near), daemon=True).start()

    def pump(self, a, b, kept, near):
        try:
            while data := a.recv(65536):
                kept += data
                if kept is self.back and len(kept) > self.back_max:
                    self.holding.set()
                    self.flows.wait()
                b.sendall(data)
        except OSError:
            pass
        with contextlib.suppress(KeyError):  # the other direction has said so
            self.open.remove(near)
            self.ended += 1
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

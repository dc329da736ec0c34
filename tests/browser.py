"""A headless Chromium asked through its debugging pipe, for tests of pages: what a page looks like at a width, what it
complains of on its console, what it asks for, and whether anything at all leaves this machine.

Debian's chromium-headless-shell is enough (tools/packages.txt, set `page`: .ci/run installs it, ./test alone does not).
"""
import contextlib, fcntl, json, os, shutil, signal, socket, subprocess, threading, time

from live import check, skip

TIMEOUT = 60
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def needed():
    """The browser's program; without one the test is skipped."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if not program:
        skip("no browser to look at the page with (package chromium-headless-shell, set `page` of tools/packages.txt)")
    return program


class Browser:
    """Messages over two pipes, each JSON and a zero byte.  What is for another address than this machine's goes to a
    proxy that answers nothing and remembers: `left` has the first line of each."""

    def __init__(self, program, profile):
        self.left = []
        self.proxy = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.remember, daemon=True).start()
        near, self.out = os.pipe()
        self.input, far = os.pipe()
        # Above the 3 and 4 that they become; dash knows no numbers of two digits.
        commands, answers = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (near, far))
        flags = ["--headless=new", "--disable-gpu", "--no-sandbox", "--no-first-run", "--remote-debugging-pipe",
                 "--disable-background-networking", "--disable-dev-shm-usage", f"--user-data-dir={profile}",
                 f"--proxy-server=http://127.0.0.1:{self.proxy.getsockname()[1]}"]
        self.child = subprocess.Popen(["bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "bash", program, *flags],
                                      pass_fds=(commands, answers), stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, start_new_session=True)
        for fd in (near, far, commands, answers):
            os.close(fd)
        os.set_blocking(self.input, False)
        self.rest, self.number, self.events, self.session = b"", 0, [], None

    def remember(self):
        while True:
            try:
                one, _ = self.proxy.accept()
            except OSError:
                return  # closed
            with one:
                one.settimeout(TIMEOUT)
                try:
                    self.left.append(one.recv(4096).split(b"\r\n")[0].decode(errors="replace"))
                except OSError as error:
                    self.left.append(str(error))

    def next(self, end):
        while b"\0" not in self.rest:
            check(time.monotonic() < end, "the browser does not answer")
            try:
                data = os.read(self.input, 1 << 16)
            except BlockingIOError:
                time.sleep(0.02)
                continue
            check(data, "the browser ended")
            self.rest += data
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + TIMEOUT
        while True:
            got = self.next(end)
            if got.get("id") == self.number:
                check("error" not in got, f"{method}: {got}")
                return got["result"]
            self.events.append(got)

    def wait(self, event):
        end = time.monotonic() + TIMEOUT
        while not any(e.get("method") == event for e in self.events):
            self.events.append(self.next(end))

    def evaluate(self, expression):
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        check("exceptionDetails" not in got, f"{expression[:60]}: {got}")
        return got["result"].get("value")

    def open(self, width, mobile, url):
        """A page of its own, loaded; said() and asked() are about it from here on."""
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=740, deviceScaleFactor=2, mobile=mobile)
        self.events = []
        self.call("Page.navigate", url=url)
        self.wait("Page.loadEventFired")

    def said(self):
        """The page's complaints and other words on its console; nothing comes after it."""
        self.call("Log.disable")  # what was on its way has come with the answer
        return [e for e in self.events if e.get("method") in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")]

    def asked(self):
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def close(self):
        """It and its helpers, who write to its profile to the last: then the folder can be removed."""
        end = time.monotonic() + 5  # where nobody waits for orphans, they stay in the table
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < end:
                os.killpg(self.child.pid, signal.SIGKILL)
                self.child.poll()
                time.sleep(0.02)
        self.child.wait(TIMEOUT)
        self.proxy.close()

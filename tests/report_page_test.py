#!/usr/bin/env python3
"""The report of a training run in a browser, at the width of a phone and of a desk: no complaint on its console,
no request for anything but the page, curves drawn, figures before and after there, nothing cut off.

usage: report_page_test.py SOURCE_DIR MESHMIND [RELEASE_MESHMIND]

The browser is Debian's chromium, which ./test does not install (300 MB): skipped where it is missing.
It is asked through its debugging pipe; the page itself runs no script.
"""
import json, os, pathlib, shutil, subprocess, sys, tempfile, time

from live import check

SOURCE = pathlib.Path(sys.argv[1]).resolve()
MESHMIND = next((p for p in reversed(sys.argv[3:]) if pathlib.Path(p).exists()), sys.argv[2])
BASE = SOURCE / "scenarios" / "base"
TIMEOUT = 60
# What a reader sees: is all of it within the window, how large is the smallest letter, which curves have an extent.
LOOK = """(() => {
  const lines = [...document.querySelectorAll('polyline')].map(p => p.getBoundingClientRect());
  const letters = [...document.querySelectorAll('body *')].filter(e => e.childElementCount == 0 && e.textContent.trim()
    && !(e instanceof SVGElement)).map(e => parseFloat(getComputedStyle(e).fontSize));
  const marks = [...document.querySelectorAll('svg text')].map(t => t.getBoundingClientRect());
  return {width: document.documentElement.scrollWidth, window: innerWidth, text: document.body.innerText,
    strokes: [...document.querySelectorAll('polyline')].map(p => getComputedStyle(p).stroke),
    curves: lines.map(r => [r.left, r.right, r.width, r.height]), smallest: Math.min(...letters),
    mark: Math.min(...marks.map(r => r.height)), outside: marks.filter(r => r.left < 0 || r.right > innerWidth).length};
})()"""


class Browser:
    """Messages over two pipes, each JSON and a zero byte."""

    def __init__(self, program, profile):
        commands, self.out = os.pipe()
        self.input, answers = os.pipe()
        flags = ["--headless=new", "--disable-gpu", "--no-sandbox", "--no-first-run", "--remote-debugging-pipe",
                 "--disable-background-networking", "--disable-dev-shm-usage", f"--user-data-dir={profile}"]
        self.child = subprocess.Popen(["sh", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "sh", program, *flags],
                                      pass_fds=(commands, answers), stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(answers)
        os.set_blocking(self.input, False)
        self.rest, self.number, self.events, self.session = b"", 0, [], None

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

    def open(self, width, mobile, path):
        """A page of its own; what it looks like, its complaints, and what it asked for."""
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=740, deviceScaleFactor=2, mobile=mobile)
        self.events = []
        self.call("Page.navigate", url=path.as_uri())
        self.wait("Page.loadEventFired")
        look = self.call("Runtime.evaluate", expression=LOOK, returnByValue=True)["result"]["value"]
        self.call("Log.disable")  # what was on its way has come with the answer
        says = [e for e in self.events if e.get("method") in
                ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")]
        asked = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return look, says, [url for url in asked if url != path.as_uri()]

    def close(self):
        self.child.terminate()
        self.child.wait(TIMEOUT)


def looks_right(browser, path, report, width, mobile):
    look, says, asked = browser.open(width, mobile, path)
    check(not says, f"at {width}: the console says {says}")
    check(not asked, f"at {width}: the page asks for {asked}")
    check(look["window"] == width and look["width"] <= width, f"at {width}: {look['width']} wide")
    check(look["smallest"] >= 12 and look["mark"] >= 5, f"at {width}: letters of {look['smallest']}, marks {look['mark']}")
    check(look["outside"] == 0, f"at {width}: {look['outside']} marks are cut off")
    check(len(look["curves"]) == 5 and all(0 <= left < right <= width and w > width / 3 and h > 5
                                           for left, right, w, h in look["curves"]), f"at {width}: {look['curves']}")
    check("none" not in look["strokes"], f"curves without colour: {look['strokes']}")
    whole = report["held_out"]["all"][0]
    for figure in (whole["loss_before"], whole["loss_after"]):
        check(f"{figure:.4f}" in look["text"] or f"{figure:.3f}" in look["text"], f"{figure} is not on the page")
    print(f"{width} wide: {len(look['curves'])} curves, letters of {look['smallest']:g} and more, nothing cut off")


def complains(browser, folder, page):
    """The same page with what must not be: the test sees it."""
    bad = folder / "bad.html"
    bad.write_text(page.replace("</body>", '<img src="http://127.0.0.1:9/x.png"><script>1</script><div style="width:'
                                '900px">x</div></body>'))
    look, says, asked = browser.open(360, True, bad)
    check(says and look["width"] > 360, f"a bad page passes: {says}, {asked}, {look['width']}")


program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if not program:
    print("skipped: no chromium (package chromium)")
    sys.exit(77)
with tempfile.TemporaryDirectory(prefix="omm-page-", ignore_cleanup_errors=True) as name:
    folder = pathlib.Path(name)
    for part, file, count in (("train", "train.jsonl", 10), ("held", "test.jsonl", 6)):
        lines = (BASE / file).read_text().splitlines(True)
        (folder / f"{part}.jsonl").write_text("".join(lines[:count]))
    done = subprocess.run([MESHMIND, "train", "-m", BASE / "openmeshmind-tiny-F16.gguf", "-d", folder / "train.jsonl",
                           "-e", folder / "held.jsonl", "-o", folder / "a.gguf", "--steps", "7", "--rank", "2", "--batch",
                           "64", "--eval-every", "3", "--new-tokens", "8", "--report", folder / "report"],
                          capture_output=True, text=True)
    check(done.returncode == 0, done.stderr)
    path, report = folder / "report" / "report.html", json.loads((folder / "report" / "report.json").read_text())
    browser = Browser(program, folder / "profile")
    try:
        for width, mobile in ((360, True), (1280, False)):
            looks_right(browser, path, report, width, mobile)
        complains(browser, folder, path.read_text())
    finally:
        browser.close()

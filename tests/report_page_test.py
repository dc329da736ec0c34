#!/usr/bin/env python3
"""The report of a training run in a browser, at the width of a phone and of a desk: no complaint on its console,
no request for anything but the page, curves drawn, figures before and after there, nothing cut off.

usage: report_page_test.py SOURCE_DIR MESHMIND [RELEASE_MESHMIND]

The page itself runs no script.  Skipped where there is no browser (browser.py).
"""
import json, pathlib, re, subprocess, sys, tempfile

import browser as browsers
from live import check

SOURCE = pathlib.Path(sys.argv[1]).resolve()
MESHMIND = next((p for p in reversed(sys.argv[3:]) if pathlib.Path(p).exists()), sys.argv[2])
BASE = SOURCE / "scenarios" / "base"
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


def looks_right(browser, path, report, width, mobile):
    browser.open(width, mobile, path.as_uri())
    look, says = browser.evaluate(LOOK), browser.said()
    asked = [url for url in browser.asked() if url != path.as_uri()]
    check(not says, f"at {width}: the console says {says}")
    check(not asked and not browser.left, f"at {width}: the page asks for {asked}, {browser.left} left")
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
    page = re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)  # which lets nothing leave
    bad.write_text(page.replace("</body>", '<img src="http://elsewhere.invalid/x.png"><script>1</script><div style="width:'
                                '900px">x</div></body>'))
    browser.open(360, True, bad.as_uri())
    look, says = browser.evaluate(LOOK), browser.said()
    check(says and look["width"] > 360, f"a bad page passes: {says}, {look['width']}")
    check(any("elsewhere.invalid" in line for line in browser.left), f"a bad page passes: {browser.asked()}, {browser.left}")


program = browsers.needed()
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
    browser = browsers.Browser(program, folder / "profile")
    try:
        for width, mobile in ((360, True), (1280, False)):
            looks_right(browser, path, report, width, mobile)
        complains(browser, folder, path.read_text())
    finally:
        browser.close()

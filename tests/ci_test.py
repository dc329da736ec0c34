#!/usr/bin/env python3
"""What a CI job meets: `gate` on a bundle that is not what was signed, files that a command must not write over, and `--json` in
folders whose names are no UTF-8 (a name on disk is bytes; JSON is not).

usage: ci_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import json, os, pathlib, re, shutil, subprocess, sys, tempfile
import xml.etree.ElementTree

from live import Findings, program, quick, ship_lines_of

SOURCE, MESHMIND, FASTER = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), program(sys.argv[2:])  # faster: whole runs
BASE = SOURCE / "scenarios" / "base"
MODEL = BASE / "openmeshmind-tiny-F16.gguf"
found = Findings()


def run(*args, cwd=SOURCE):
    return subprocess.run([FASTER if args[0] == "simulate" else MESHMIND, *map(os.fspath, args)], capture_output=True, cwd=cwd, timeout=100)


def reads(what, args, code=0):
    """The objects that a command with --json prints, a line each."""
    done = run(*args, "--json")
    said = done.stderr.decode(errors="replace")
    found.check(done.returncode == code, f"{what}: exit {done.returncode}, wanted {code}: {said[-300:]}")
    try:
        return [json.loads(line) for line in done.stdout.decode().splitlines()] or [{}]
    except ValueError as error:
        found.check(False, f"{what}: no JSON ({error}): {done.stdout[:200]}")
        return [{}]


def refused(args, says, cwd=SOURCE):
    done = run(*args, cwd=cwd)
    said = done.stderr.decode(errors="replace")
    found.check(done.returncode == 2 and re.search(says, said) and not done.stdout, f"{args}: exit {done.returncode}, wanted 2 and /{says}/: {said[:300]}")


def bundle_that_is_none(folder, bundle):
    """Exit 1, and both reports say so: an earlier bundle's, in which all passed, is not what is collected."""
    broken, junit = folder / "broken", folder / "junit.xml"
    other = reads("keygen", ["keygen", "-o", folder / "other.key"])[0].get("minisign", "")
    shutil.copytree(bundle, broken)
    (broken / "measured" / "odd.name").write_text("x")
    with open(broken / "final.gguf", "ab") as file:
        file.write(b"x")
    os.mkdir(os.fsencode(broken) + b"/<\xe9&>")
    with open(os.fsencode(broken) + b"/<\xe9&>/x", "wb") as file:
        file.write(b"x")
    for place, more, check in ((broken, [], "files"), (bundle, ["--trust", other], "signature")):
        passed = run("gate", bundle, "--junit", junit)
        found.check(passed.returncode == 0 and b"<failure" not in junit.read_bytes(), f"gate: exit {passed.returncode}: {passed.stderr[:300]}")
        said = reads(f"gate of {place.name}", ["gate", place, *more, "--junit", junit], 1)[0]
        found.check(said.get("kind") == "omm-gate" and said.get("passed") is False and said.get("gates", 0) is None and said.get("measured_gates", 0) is None,
                    f"gate of {place.name} says: {str(said)[:300]}")
        found.check(any(c["name"] == check and not c["passed"] for c in said.get("checks", [])) and said.get("failures"), f"{check} is not named: {str(said)[:300]}")
        suites = xml.etree.ElementTree.parse(junit).getroot()
        failed = [case.get("name") for case in suites.iter("testcase") if case.find("failure") is not None]
        found.check(check in failed and suites.get("failures") == str(len(failed)), f"junit of {place.name}: {failed}, {suites.attrib}")
        told = [{p.get("name"): p.get("value") for p in suite.find("properties")} for suite in suites]
        found.check(told and all(t == told[0] for t in told) and told[0]["bundle"] == str(place) and told[0]["verified"] == "true" and told[0]["signer"] == said["signer"]
                    and told[0]["pinned"] == "false", f"junit of {place.name} is of {told[:1]}")
    odd = folder / 'a "b" <&> \u00e4'
    shutil.copytree(bundle, odd)
    whose = reads("verify", ["verify", bundle])[0]
    for more, keys in (([], ("signer", "pinned", "run_digest", "run_id", "coordinator_key", "coordinator_pinned")), (["--unverified"], ())):
        run("gate", odd, *more, "--junit", junit)
        told = [{p.get("name"): p.get("value") for p in suite.find("properties")} for suite in xml.etree.ElementTree.parse(junit).getroot()]
        wanted = {"bundle": str(odd), "verified": "false" if more else "true"} | {k: str(whose[k]).lower() if isinstance(whose[k], bool) else whose[k] for k in keys}
        found.check(len(told) == 5 and all(t == wanted for t in told), f"junit {more} is of {told[:1]}, not {wanted}")
    found.check(b"<properties>" not in (bundle / "junit.xml").read_bytes(), "the bundle's own junit.xml has changed")
    shutil.rmtree(odd)
    for more, pinned in (([], False), (["--trust", whose["signer"]], True)):
        said = reads("gate", ["gate", bundle, *more])[0]
        found.check(said.get("verified") is True and said.get("pinned") is pinned and all(said.get(key) == whose[key] for key in
                    ("intact", "signer", "run_id", "run_digest", "coordinator_key", "coordinator_pinned", "simulated")), f"gate {more} does not say of what: {str(said)[:300]}")
    (folder / "own.yaml").write_text("{}\n")
    done = run("gate", bundle, "--policy", folder / "own.yaml", "--json")
    found.check(b"own.yaml, and by the defaults" in done.stderr and json.loads(done.stdout).get("policy") == str(folder / "own.yaml"), f"gate by a file of one's own does not say so: {done}")
    found.check("policy" in said and said["policy"] is None, f"gate by the bundle's policy: {str(said)[:200]}")
    said = reads("gate --unverified", ["gate", bundle, "--unverified"])[0]
    found.check(said.get("verified") is False and "signer" not in said and "run_digest" not in said and said.get("passed") is True, f"gate --unverified: {str(said)[:300]}")
    said = reads("compare of one that is none", ["compare", bundle, broken], 1)[0]
    found.check(said.get("kind") == "omm-comparison" and said.get("refused") == [str(broken)] and "metrics" not in said, f"compare of one that is none: {said}")
    text = run("gate", broken)
    found.check(text.returncode == 1 and b"is not what was signed; `meshmind verify` says why" in text.stderr and not text.stdout, f"gate without --json: {text}")


def files_that_stay(folder, bundle, key):
    """The report of a gate is none of the files that it judges by."""
    policy, trust, link = folder / "policy.yaml", folder / "key.pub", folder / "link"
    policy.write_text("{}\n")
    trust.write_text(f"untrusted comment: minisign public key\n{key}\n")
    link.symlink_to(bundle)
    refused(["gate", bundle, "--policy", policy, "--junit", policy], "--junit is --policy, .*: give another name")
    refused(["gate", bundle, "--trust", trust, "--junit", f"{folder}/runs/../key.pub"], "--junit is --trust, .*: give another name")
    for place in (bundle / "junit.xml", bundle / "measured" / "x.xml", link / "x.xml", bundle / "measured" / ".." / "x.xml"):
        refused(["gate", bundle, "--junit", place], "--junit: .* is in BUNDLE, .*: give another folder")
    refused(["gate", ".", "--junit", "junit.xml"], "--junit: junit.xml is in BUNDLE, .: give another folder", cwd=bundle)
    beside = run("gate", ".", "--junit", "../beside.xml", "--trust", trust, cwd=bundle)
    found.check(beside.returncode == 0 and (bundle.parent / "beside.xml").exists(), f"a report beside the bundle: {beside}")
    new = folder / "reports" / "new" / "junit.xml"
    done = run("gate", folder / "runs", "--junit", new)
    found.check(done.returncode == 2 and not (folder / "reports").exists(), f"a folder for the report of what is no bundle: {done}")
    found.check(run("gate", bundle, "--junit", new).returncode == 0 and new.exists(), "a report in a new folder")
    found.check(policy.read_text() == "{}\n" and key in trust.read_text(), "a file that gate reads was written over")
    found.check(run("verify", bundle, "--trust", trust).returncode == 0, "the bundle is not what it was")


def bundles_that_stay(folder, bundle):
    """Whatever a command writes, it is not in a sealed bundle; what only has a manifest is none."""
    final, lines, deep = bundle / "final.gguf", folder / "few.jsonl", bundle / "measured" / "new" / "er"
    lines.write_text("".join((BASE / "train.jsonl").read_text().splitlines(True)[:4]))
    train = ["train", "-m", MODEL, "-d", lines, "--steps", "1", "--batch", "64", "--warmup", "0", "-t", "1"]
    before = sorted(bundle.rglob("*"))
    for args in (["adapter", "merge", "--lora", final, "-m", MODEL, "-o"], ["adapter", "merge", "--lora", final, "-o"], ["adapter", "import", final, "-m", MODEL, "-o"],
                 ["adapter", "export", final, "-m", MODEL, "-o"], ["logits", "-m", MODEL, "--ids", "1,2", "-o"], ["synth", "tiny-llama"], ["quantize", MODEL],
                 ["keygen", "-o"], ["keygen", "--tls", "-o"], ["generate", "-m", MODEL, "x", "--session"], ["chat", "-m", MODEL, "--notes"],
                 ["simulate", folder / "s.yaml", "--out"], [*train, "--out"], [*train, "--out", folder / "x.gguf", "--checkpoint"],
                 [*train, "--out", folder / "x.gguf", "--report"], ["pretrain", BASE / "pretrain.yaml", "--out"], ["gate", folder / "broken", "--junit"],
                 ["node", "backup"], ["node", "setup", "-c"], ["node", "setup", "-c", folder / "n.yaml", "-k"]):
        for place in (deep / "other.file", *((bundle / "other.file", folder / "link" / "other.file") if "import" in args else ())):
            refused([*args, place, *(["Q8_0"] if args[0] == "quantize" else [])], f"is in the bundle {bundle.resolve()}, which is sealed and does not change: give another place")
    refused(["adapter", "export", final, "-m", MODEL, "-o", bundle], "--out: .* is in the bundle")
    refused(["synth", "tiny-llama", "other.file"], "OUT: other.file is in the bundle", cwd=bundle / "measured")
    refused(["simulate", folder / "s.yaml"], "--out: artifacts is in the bundle", cwd=bundle)
    # What services keep: beside the bundle would do.
    config, place = folder / "service.yaml", bundle / "measured" / "new" / "x"
    COORDINATOR = f"scenario: {folder}/s.yaml\nlisten: tcp://127.0.0.1:0\nstate_dir: {folder}/service\n"
    for text, key in ((COORDINATOR.replace(f"{folder}/service", str(place)), "state_dir"), (COORDINATOR + f"bundle: {place}\n", "bundle"), (COORDINATOR + f"port_file: {place}\n", "port_file"),
                      (COORDINATOR + f"http: 127.0.0.1:0\nhttp_port_file: {place}\n", "http_port_file")):
        config.write_text(text)
        refused(["coordinator", "-c", config], f"{key}: .* is in the bundle {bundle.resolve()}, which is sealed")
    config.write_text(f"coordinator: tcp://127.0.0.1:9\nname: cafe-02\nscenario: {folder}/s.yaml\nstate_dir: {place}\n")
    refused(["node", "-c", config], f"state_dir: .* is in the bundle {bundle.resolve()}, which is sealed")
    found.check(sorted(bundle.rglob("*")) == before and run("verify", bundle).returncode == 0, "a command wrote into a sealed bundle")
    (folder / "page").mkdir()
    (folder / "page" / "manifest.json").write_text("{}")
    done = run("adapter", "import", final, "-m", MODEL, "-o", folder / "page" / "a" / "b.gguf")
    found.check(done.returncode == 0 and (folder / "page" / "a" / "b.gguf").exists(), f"beside another program's manifest: {done}")


def places_and_values(folder, bundle):
    """A variable of the shell that is not set, and a folder that is somebody's."""
    own = folder / "own"
    own.mkdir()
    (own / "thesis.txt").write_text("x")
    for taken in (own, own / "thesis.txt"):
        refused(["simulate", SOURCE / "scenarios/processes.yaml", "--out", taken], "is there already, and is no run's: name a folder that is not there")
    refused(["gate", own, "--unverified"], "own is no bundle: it has neither manifest.json nor run.json")
    (own / "run.json").write_text("{}")
    refused(["simulate", SOURCE / "scenarios/processes.yaml", "--out", own], "is there already, of a run that did not end: remove it, or name another folder")
    for args in (["simulate", SOURCE / "scenarios/processes.yaml", "--out", ""], ["gate", "x", "--policy="], ["gate", "x", "--junit", ""],
                 ["tokenize", "-m", "", "-t", "x"], ["generate", "-m", MODEL, "--session", "", "x"]):
        refused(args, r"(FILE|DIR): ''; accepted: a path\nusage: ")
    refused(["gate", bundle, "--coordinator", "AB" * 32], "--coordinator: 'ABAB.*' is no public key; accepted: 64 digits of 0-9a-f")
    # A disk that is full leaves half a bundle, and says so.
    half = folder / "half"
    done = subprocess.run(["bash", "-c", 'ulimit -f 20; exec "$@"', "-", FASTER, "simulate", folder / "s.yaml", "--out", half, "-q"], capture_output=True, text=True, timeout=600)
    found.check(done.returncode == 3 and f"{half} is of a run that did not end, and nothing goes on from it: remove it" in done.stderr, f"a full disk: {done}")


def runs_of_one_second(folder):
    """Jobs that share a folder and name none: each has its own bundle."""
    many = 4
    ship_lines_of(folder, "test.jsonl", ["cafe-02", "studio-02", "harbor-02"], 1)
    (folder / "short.yaml").write_text((folder / "s.yaml").read_text().replace("rounds: 2", "rounds: 1"))
    jobs = [subprocess.Popen([FASTER, "simulate", folder / "short.yaml", "-q", "-t", "1", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
            for _ in range(many)]
    said = [(job.communicate(timeout=600), job.returncode) for job in jobs]
    found.check(all(code in (0, 1) for _, code in said), f"runs beside one another: {said}")
    made = {json.loads(out)["bundle"] for (out, _), code in said if code in (0, 1)}
    found.check(len(made) == many, f"bundles of runs beside one another: {made}")
    for bundle in made:
        checked = json.loads(run("verify", bundle, "--json", cwd=folder).stdout)
        found.check(checked["intact"], f"{bundle}: {checked['failures']}")


def json_in_any_folder(folder, bundle):
    """The work is done, so its report must not fail for how a folder is called."""
    odd = os.fsencode(folder) + b"/caf\xe9 \"q\""
    os.mkdir(odd)
    at = lambda name: odd + b"/" + name
    few = at(b"few.jsonl")
    with open(few, "w") as file:
        file.writelines((BASE / "train.jsonl").read_text().splitlines(keepends=True)[:40])
    for name in ("train.jsonl", "test.jsonl"):
        shutil.copy(folder / name, at(os.fsencode(name)))
    os.symlink(BASE, at(b"base"))
    with open(at(b"s.yaml"), "w") as file:
        file.write((folder / "s.yaml").read_text().replace("rank: 2", "rank: 3"))
    shown = 'caf? "q"/'
    made = reads("simulate", ["simulate", at(b"s.yaml"), "--out", at(b"run"), "-q"])[0]
    found.check(made.get("bundle", "").endswith(shown + "run"), f"simulate: {made.get('bundle')}")
    sides = reads("compare", ["compare", bundle, at(b"run")])[0].get("bundles", [{}, {}])
    found.check(sides[1].get("bundle", "").endswith(shown + "run"), f"compare: {sides}")
    written = reads("quantize", ["quantize", MODEL, at(b"q.gguf"), "Q8_0"])[0]
    found.check(written.get("out", "").endswith(shown + "q.gguf"), f"quantize: {written.get('out')}")
    for more in (["-p", "8", "-n", "2"], ["--train", "--seq", "16"]):
        speed = reads("bench", ["bench", "-m", at(b"q.gguf"), "-r", "1", "--peak-seconds", "0", *more])[0]
        found.check(speed.get("model", "").endswith(shown + "q.gguf"), f"bench {more}: {speed.get('model')}")
    pair = reads("keygen --tls", ["keygen", "--tls", "-o", at(b"t.key")])[0]
    found.check(pair.get("key", "").endswith(shown + "t.key") and pair.get("certificate", "").endswith(shown + "t.key.crt"), f"keygen: {pair}")
    looked = reads("data check", ["data", "check", few, "-m", MODEL])[0].get("files", [{}])
    found.check(looked[0].get("path", "").endswith(shown + "few.jsonl"), f"data check: {looked}")
    events = reads("train", ["train", "-m", MODEL, "-d", few, "-o", at(b"a.gguf"), "--steps", "2", "--batch", "64", "--warmup", "0", "--checkpoint", at(b"ck"),
                             "--checkpoint-every", "1"])
    found.check(any(e.get("event") == "checkpoint" and e["file"].endswith(shown + "ck") for e in events), f"train: {events}")
    with open(at(b"pretrain.yaml"), "w") as file:
        file.write(f"{{name: tiny, seed: 1, vocabulary: {{from: {MODEL}}}, training: {{texts: [few.jsonl], steps: 1}}, "
                   "model: {layers: 1, width: 32, feed_forward: 32, heads: 2, kv_heads: 2, context: 64}}\n")
    events = reads("pretrain", ["pretrain", at(b"pretrain.yaml"), "-o", at(b"tiny.gguf"), "--start"])
    found.check(events[-1].get("file", "").endswith(shown + "tiny.gguf"), f"pretrain: {events}")
    public = reads("keygen", ["keygen", "-o", at(b"node.key")])[0].get("public_key")
    with open(at(b"node.yaml"), "w") as file:
        file.write(f"{{coordinator: 'tcp://127.0.0.1:9', coordinator_key: {public}, name: anna, key: node.key, state_dir: state, data: few.jsonl, model: {MODEL}}}\n")
    status = reads("node status", ["node", "status", "-c", at(b"node.yaml")])[0]
    found.check(status.get("writes", "").endswith(shown + "state") and status["reads"]["data"].endswith(shown + "few.jsonl"), f"node status: {status}")
    refused(["node", "backup", at(b"backup"), "-c", at(b"node.yaml")], "node.yaml: a backup says where this file was, in UTF-8, which its path is not: ")
    found.check(not os.path.exists(at(b"backup")), "half a backup")


with tempfile.TemporaryDirectory(prefix="omm-ci-") as name:
    top = pathlib.Path(name)
    quick(top).rename(top / "s.yaml")
    (top / "runs").mkdir()
    sealed = top / "runs" / "run"
    found.check(reads("simulate", ["simulate", top / "s.yaml", "--out", sealed, "-q"])[0].get("passed") is not None, "simulate says no verdict")
    (top / "policy.yaml").write_text("quality: {heldout_uplift: {level: informational}, heldout_uplift_low: {level: informational}}\n")
    trusted = json.loads((sealed / "manifest.json").read_text())["bundle_key"]
    bundle_that_is_none(top, sealed)
    files_that_stay(top, sealed, trusted)
    bundles_that_stay(top, sealed)
    places_and_values(top, sealed)
    json_in_any_folder(top, sealed)
    runs_of_one_second(top)
sys.exit(found.code)

#!/usr/bin/env python3
"""A node is honest with its owner: what `node status` says, what a dry run shows, and that no part of
the owner's texts is in any byte that leaves the machine, plain or decompressed.

Between node and coordinator stands a relay that keeps every byte.

usage: owner_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import ctypes, ctypes.util, hashlib, json, os, pathlib, re, sqlite3, subprocess, sys, threading, time

import live
from live import check

SOURCE = pathlib.Path(sys.argv[1]).resolve()
MESHMIND = live.program(sys.argv[2:])
WINDOW = 24  # bytes in a row that must not be seen
SCENARIO = """schema_version: 1
name: owner
seed: 5
model: base/openmeshmind-tiny-F16.gguf
train: base/train.jsonl
test: few.jsonl
rounds: 2
population:
  - group: one
    clients: [cafe-02]
recipe: {rank: 2, alpha: 4, targets: "q,v", steps: 2, batch_tokens: 256, learning_rate: 0.005, warmup_steps: 1}
codec:
  up: {kind: int8, topk_fraction: 0.5}
  down: {kind: f16}
evaluation: {round_items: 4, generate: false}
audit: {submissions: 1, scalar_steps: 0}
"""


def meshmind(*args):
    return live.run(MESHMIND, *args)


def private_texts():
    """Of this client alone: what the public part of the data says, too, is no secret."""
    texts, public = set(), (SOURCE / "scenarios" / "base" / "test.jsonl").read_text()
    for line in (SOURCE / "scenarios" / "base" / "train.jsonl").read_text().splitlines():
        item = json.loads(line)
        for m in item["messages"]:
            if item["client"] == "cafe-02" and m["role"] != "system":
                texts.add(m["content"])
    texts = {t for t in texts if len(t) >= WINDOW and t not in public}
    check(len(texts) > 20, f"only {len(texts)} texts to look for")
    return texts


def windows(texts):
    out = set()
    for text in texts:
        data = text.encode()
        out |= {data[i:i + WINDOW] for i in range(len(data) - WINDOW + 1)}
    return out


def zstd_library():
    zstd = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
    for call in (zstd.ZSTD_findFrameCompressedSize, zstd.ZSTD_decompress, zstd.ZSTD_compress):
        call.restype = ctypes.c_size_t
    zstd.ZSTD_findFrameCompressedSize.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    zstd.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    zstd.ZSTD_compress.argtypes = [*zstd.ZSTD_decompress.argtypes, ctypes.c_int]
    return zstd


def compressed(data):
    room = ctypes.create_string_buffer(len(data) + 1000)
    size = zstd_library().ZSTD_compress(room, len(room), data, len(data), 3)
    return room.raw[:size]


def decompressed(data):
    """What every zstd frame in these bytes holds, wherever it begins."""
    zstd = zstd_library()
    parts, at = [], data.find(b"\x28\xb5\x2f\xfd")
    while at >= 0:
        rest = bytes(data[at:])
        size = zstd.ZSTD_findFrameCompressedSize(rest, len(rest))
        room = ctypes.create_string_buffer(1 << 24)
        if not zstd.ZSTD_isError(ctypes.c_size_t(size)):
            got = zstd.ZSTD_decompress(room, len(room), rest, size)
            if not zstd.ZSTD_isError(ctypes.c_size_t(got)):
                parts.append(room.raw[:got])
        at = data.find(b"\x28\xb5\x2f\xfd", at + 1)
    return parts


def leaks(data, secret):
    return any(bytes(data[i:i + WINDOW]) in secret for i in range(len(data) - WINDOW + 1))


def write_files(folder, port, tap):
    public = live.keys(MESHMIND, folder, ["anna", "early"])
    live.ship(folder, few=12)
    (folder / "run.yaml").write_text(SCENARIO)
    enrolled = {"cafe-02": public["anna"]["public_key"]}
    live.write_coordinator(folder, port, "run.yaml", enrolled=enrolled, state_dir="state")
    live.write_coordinator(folder, port, "run.yaml", "second", enrolled, state_dir="state2")
    fields = live.trains("anna", "cafe-02", public)
    live.write_node(folder, "anna", tap.port, **fields)
    live.write_node(folder, "early", live.free_port(), **live.trains("early", "cafe-02", public))  # nobody is there
    live.write_node(folder, "strict", tap.port, **fields | {"limits": "{steps_max: 1}", "name": "anna"})


def status(folder, name="anna"):
    return json.loads(meshmind("node", "status", "-c", folder / f"{name}.yaml", "--json"))


def dry_run(folder, tap):
    """Trains, writes, and sends nothing of it; then the very same bytes are sent."""
    shown = json.loads(meshmind("node", "--dry-run", "--json", "-c", folder / "anna.yaml"))
    envelope = (folder / "anna" / "dry-run" / "submission.env").read_bytes()
    payload = (folder / "anna" / "dry-run" / "payload.bin").read_bytes()
    check(shown["sent"] is False and shown["told"] is True and shown["payload_bytes"] == len(payload) > 100, shown)
    ctl = lambda *words: meshmind("coordinator", "ctl", "-c", folder / "coordinator.yaml", *words)
    live.wait_for("its operator reads it", lambda: json.loads(ctl("status", "--json"))["declined"] == {"dry": 1}, logs=folder)
    check("dry: a dry run: " in ctl("nodes"), ctl("nodes"))
    check(shown["payload"] == hashlib.blake2b(payload, digest_size=32).hexdigest(), "the digest shown is another's")
    check(envelope not in tap.out and payload[:64] not in tap.out, "a dry run has sent its submission")
    text = meshmind("node", "--dry-run", "-c", folder / "anna.yaml")
    check("not sent: " in text and shown["payload"] in text and "This start did not tell the coordinator" in text, text)
    said = status(folder)
    check(not said["running"] and set(said["history"]["sent"].values()) == {0}, "what was not sent counts as sent:", said)
    check([(r["sent"], r["verdict"], r["payload_bytes"]) for r in said["history"]["rounds"]] == [(False, "", len(payload))], said)
    text = meshmind("node", "status", "-c", folder / "anna.yaml")
    check("sent         0 rounds, 0 of them accepted: 0 bytes of updates, 0 of" in text and ", made, not sent\n" in text, text)
    return envelope, payload


def holds_nobody_up(folder):
    """Another node's round ends without waiting for the dry run, within minutes of the hour that it has; what was shown comes too late
    then, with a receipt, and the next round has both."""
    folder.mkdir()
    live.ship(folder, few=12)
    port, public = live.free_port(), live.keys(MESHMIND, folder, ["bert", "cleo"])
    (folder / "hour.yaml").write_text(SCENARIO + "round: {quorum: 2, deadline_ms: 3600000, join_ms: 3600000}\n")
    live.write_coordinator(folder, port, "hour.yaml", "third", {n: public[n]["public_key"] for n in ("bert", "cleo")}, state_dir="state3")
    for name in ("bert", "cleo"):
        live.write_node(folder, name, port, **live.trains(name, "cafe-02", public))
    coordinator = live.start_service(MESHMIND, folder, "coordinator", "third")
    bert = live.start_service(MESHMIND, folder, "node", "bert")
    shown = json.loads(meshmind("node", "--dry-run", "--json", "-c", folder / "cleo.yaml"))
    check(shown["told"] is True and shown["round"] == 0, shown)
    now = lambda: json.loads(meshmind("coordinator", "ctl", "-c", folder / "third.yaml", "status", "--json"))
    live.wait_for("the end of a round that has enough", lambda: now()["round"] == 1, logs=folder)
    cleo = live.start_service(MESHMIND, folder, "node", "cleo")
    check(bert.wait(timeout=live.LIMIT_S) == cleo.wait(timeout=live.LIMIT_S) == 0, live.log_of(folder, "cleo"))
    check(coordinator.wait(timeout=live.LIMIT_S) in (0, 1), live.log_of(folder, "third"))
    said = status(folder, "cleo")["history"]
    check([r["verdict"] for r in said["rounds"]] == ["OK", "REFUSED_LATE"] and (said["sent"]["rounds"], said["sent"]["accepted"]) == (2, 1), said)
    bundle = folder / "state3" / "bundle"
    rounds = [json.loads(line) for line in (bundle / "rounds.jsonl").read_text().splitlines()]
    mine = hashlib.blake2b(bytes.fromhex(public["cleo"]["public_key"]), digest_size=32).hexdigest()
    check([(len(r["accepted"]), r["missing"]) for r in rounds] == [(1, [mine]), (2, [])], rounds)
    live.check_verified(MESHMIND, bundle)


def stands_in_nobodys_way(folder):
    """A dry run that has a round for itself gives it up to the first other node, within minutes of the hour that it has: the next round
    is that node's.  What was shown comes too late then, with a receipt."""
    folder.mkdir()
    live.ship(folder, few=12)
    port, public = live.free_port(), live.keys(MESHMIND, folder, ["bert", "cleo"])
    (folder / "hour.yaml").write_text(SCENARIO + "round: {quorum: 1, deadline_ms: 3600000, join_ms: 3600000}\n")
    live.write_coordinator(folder, port, "hour.yaml", "fourth", {n: public[n]["public_key"] for n in ("bert", "cleo")}, state_dir="state4")
    for name in ("bert", "cleo"):
        live.write_node(folder, name, port, **live.trains(name, "cafe-02", public))
    coordinator = live.start_service(MESHMIND, folder, "coordinator", "fourth")
    shown = json.loads(meshmind("node", "--dry-run", "--json", "-c", folder / "cleo.yaml"))
    check(shown["told"] is True and shown["round"] == 0, shown)
    check("round_void" not in live.log_of(folder, "fourth"), "with nobody to make way for")
    bert = live.start_service(MESHMIND, folder, "node", "bert")
    live.wait_for("another's round", lambda: "INFO receipt node=bert round=1 canary=0 reason=OK" in live.log_of(folder, "bert"), logs=folder)
    cleo = live.start_service(MESHMIND, folder, "node", "cleo")
    check(bert.wait(timeout=live.LIMIT_S) == cleo.wait(timeout=live.LIMIT_S) == 0, live.log_of(folder, "cleo"))
    check(coordinator.wait(timeout=live.LIMIT_S) in (0, 1), live.log_of(folder, "fourth"))
    said = [line for line in live.log_of(folder, "fourth").splitlines() if "round_void" in line]
    check(len(said) == 1 and "round=0" in said[0] and "it waited for dry runs alone" in said[0], said)
    check([r["verdict"] for r in status(folder, "cleo")["history"]["rounds"]] == ["REFUSED_LATE"], status(folder, "cleo"))
    bundle = folder / "state4" / "bundle"
    rounds = [json.loads(line) for line in (bundle / "rounds.jsonl").read_text().splitlines()]
    check([len(r["accepted"]) for r in rounds] == [0, 1], rounds)
    live.check_verified(MESHMIND, bundle)


def whole_run(folder, coordinator, tap):
    """Until the run is over; what is said of the node while it works, once at the least: before that it gets no answer."""
    tap.hold(0)
    node, seen = live.start_service(MESHMIND, folder, "node", "anna"), []
    live.wait_for("a word on a node that runs", lambda: node.poll() is not None or status(folder)["running"], logs=folder)
    seen.append(status(folder))
    tap.let_go()
    while node.poll() is None:
        seen.append(status(folder))
        time.sleep(0.05)
    check(node.returncode == 0, live.log_of(folder, "anna"))
    check(coordinator.wait(timeout=live.LIMIT_S) in (0, 1), "the coordinator failed")
    running = [s for s in seen if s["running"]]
    check(any(s.get("pid") == node.pid for s in running), f"nothing was said while it ran: {seen[-1:]}")
    check(all(s["state"] in ("starting", "waiting", "fetching", "training", "sending", "done", "stopped")
              for s in running), running)


def hears_nothing(folder, node):
    """Whoever has a wrong address is told, in the log and when he asks, and not ten times a second."""
    word = "WARN no_answer node=early coordinator=tcp://127.0.0.1:"
    live.wait_for("a word on the silence", lambda: word in live.log_of(folder, "early"), logs=folder)
    reads = lambda said: said["running"] and said["state"] == "waiting" and re.fullmatch(
        r"no answer for \d+ s: connection refused: nobody .*", said["detail"])
    live.wait_for("its owner reads it", lambda: reads(status(folder, "early")), logs=folder)
    live.stop(node)
    times = [int(t) for t in re.findall(r"no_answer .* seconds=(\d+)", live.log_of(folder, "early"))]
    check(times and all(t >= 5 * 2**i for i, t in enumerate(times)), f"said after {times} seconds")


def main(folder):
    secret, port = windows(private_texts()), live.free_port()
    tap = live.Tap(port)
    write_files(folder, port, tap)
    check("never started" in meshmind("node", "status", "-c", folder / "anna.yaml"), "status before the first start")
    gone = subprocess.Popen(["true"])
    gone.wait()
    (folder / "anna").mkdir(mode=0o700)
    (folder / "anna" / "status.json").write_text(json.dumps({"pid": gone.pid, "state": "fetching"}))
    said = status(folder)
    check(said["state"] == "not running" and said["running"] is False, f"killed while it fetched a base model: {said}")
    early = live.start_service(MESHMIND, folder, "node", "early")
    coordinator = live.start_service(MESHMIND, folder, "coordinator", "coordinator")
    envelope, payload = dry_run(folder, tap)
    whole_run(folder, coordinator, tap)
    hears_nothing(folder, early)
    check(envelope in tap.out and payload[:60000] in tap.out, "not what the dry run showed has been sent")

    said = status(folder)
    rounds, sent = said["history"]["rounds"], said["history"]["sent"]
    check([(r["round"], r["verdict"]) for r in rounds] == [(1, "OK"), (0, "OK")] and sent["accepted"] == sent["rounds"] == 2, rounds)
    check(sent["payload_bytes"] == sum(r["payload_bytes"] for r in rounds) < len(tap.out), sent)
    check(all(r["sent"] is True for r in rounds), rounds)
    text = lambda: meshmind("node", "status", "-c", folder / "anna.yaml")
    # Somebody else who looks at the same time is not taken for a node that runs.
    held = sqlite3.connect(folder / "anna" / "node.sqlite", check_same_thread=False)
    held.execute("PRAGMA locking_mode=EXCLUSIVE")
    held.execute("BEGIN EXCLUSIVE")
    threading.Timer(0.3, held.close).start()
    seen = status(folder)
    check(seen["running"] is False, f"a node that has ended is said to run: {seen}")
    # One that lives, has its database and says nothing.
    notice = (folder / "anna" / "status.json").read_text()
    (folder / "anna" / "status.json").write_text(json.dumps(json.loads(notice) | {
        "pid": os.getpid(), "updated_s": int(time.time()) - 100, "round": 7, "steps": 9, "steps_done": 4}))
    held = sqlite3.connect(folder / "anna" / "node.sqlite")
    held.execute("PRAGMA locking_mode=EXCLUSIVE")
    held.execute("BEGIN EXCLUSIVE")
    wire = json.loads(notice)["wire"]
    check(", round 7, step 4 of 9; since 20" in text() and "; no word from it for 10" in text(), text())
    check(f"connection   {wire['bytes_out']} bytes out, {wire['bytes_in']} in, since 20" in text(), text())
    held.close()
    (folder / "anna" / "status.json").write_text(notice)
    check(sent["payload_bytes"] + sent["submission_bytes"] < wire["bytes_out"] <= len(tap.out), (wire, sent, len(tap.out)))
    for r in rounds:
        path = next((folder / "state" / "bundle" / "payloads").rglob(r["payload"] + "*"), None)
        check(path and path.stat().st_size == r["payload_bytes"], f"no payload {r['payload']} in the bundle")
    for words in ("anna: not running", f"reads        {folder}/base/train.jsonl (data): used here, never sent",
                  f"writes       {folder}/anna", "declined     nothing", "sent         2 rounds, 2 of them accepted: "
                  f"{sent['payload_bytes']} bytes of updates, {sent['submission_bytes']} of signed manifests\n",
                  *(f" {r['payload_bytes']} bytes, digest {r['payload'][:16]}..., accepted\n" for r in rounds)):
        check(words in text(), f"{words} is not in:\n{text()}")

    # What came of it: the newest global adapter, as a file and by name.
    text = meshmind("generate", "-m", folder / "base" / "openmeshmind-tiny-F16.gguf", "--lora",
                    folder / "anna" / "newest.gguf", "-n", "8", "--temp", "0", "Hello")
    home = folder / "home" / "openmeshmind"
    home.mkdir(parents=True)
    (home / "node").symlink_to(folder / "anna")
    os.environ["XDG_STATE_HOME"] = str(folder / "home")
    check(text == meshmind("generate", "-m", folder / "base" / "openmeshmind-tiny-F16.gguf", "--lora", "newest",
                           "-n", "8", "--temp", "0", "Hello"), "--lora newest is not the newest adapter")

    # The same in a chat.
    chat = ["chat", "-m", folder / "base" / "openmeshmind-tiny-F16.gguf", "--no-notes", "-n", "12", "--json"]
    said = {lora: live.run(MESHMIND, *chat, "--lora", lora, input="Hello\n") for lora in ("newest", folder / "anna" / "newest.gguf")}
    check(said["newest"] == said[folder / "anna" / "newest.gguf"] and len(said["newest"]) > 20, "chat --lora newest:", said)

    frames = decompressed(tap.out)
    check(frames, "no compressed frame was sent, so none was looked into")
    for name, data in [("what was sent", tap.out), ("what came back", tap.back),
                       *((f"frame {i}", f) for i, f in enumerate(frames))]:
        check(not leaks(data, secret), f"{name} holds the owner's text")
    for word in (str(folder), "train.jsonl", "anna.key", "anna.yaml", "openmeshmind-tiny", "newest.gguf", "node.sqlite", "status.json"):
        check(not any(word.encode() in data for data in (tap.out, *frames)), f"what was sent holds {word}")
    # The search itself finds what is there, plain and compressed.
    planted = next(iter(private_texts())).encode()
    check(leaks(b"xy" + planted, secret), "the search finds nothing")
    check(any(leaks(p, secret) for p in decompressed(b"ab" + compressed(planted * 9) + b"c")), "the search does not look into frames")
    print(f"{len(tap.out)} bytes sent, {len(frames)} compressed frames, none of {len(secret)} pieces of the data")

    # What it declines is on the record, with the reason, once for many times.
    coordinator = live.start_service(MESHMIND, folder, "coordinator", "second")
    node = live.start_service(MESHMIND, folder, "node", "strict")
    said = lambda: status(folder, "strict").get("history", {}).get("declined", [])
    live.wait_for("a refusal on the record, twice", lambda: any(d["times"] > 1 for d in said()), logs=folder)
    check([d["reason"] for d in said()] == ["recipe.steps: 2 is over our limit of 1"], said())
    live.wait_for("why it left the round", lambda: status(folder, "strict").get("detail") ==
                  "it left the last round: recipe.steps: 2 is over our limit of 1", logs=folder)

    # The operator sees why, too, as one of a few words: not what the limit is.
    ctl = lambda *words: meshmind("coordinator", "ctl", "-c", folder / "second.yaml", *words)
    live.wait_for("the reason at the coordinator", lambda: json.loads(ctl("status", "--json"))["declined"] == {"work": 1}, logs=folder)
    check("work: more steps or tokens than its owner allows\n" in ctl("nodes"), ctl("nodes"))
    check("gives nothing, and says why: work 1; " in ctl("status"), ctl("status"))
    live.end_all([node, coordinator])
    (declined,) = said()
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(declined["last_s"]))
    line = f"declined     \n  round {declined['round']:<4} {at}  {declined['times']} times: recipe.steps: 2 is over our limit of 1\n"
    check(line in meshmind("node", "status", "-c", folder / "strict.yaml"), f"{line} is not in:\n" + meshmind("node", "status", "-c", folder / "strict.yaml"))
    holds_nobody_up(folder / "hour")
    stands_in_nobodys_way(folder / "way")


with live.workplace("owner") as folder:
    main(folder)

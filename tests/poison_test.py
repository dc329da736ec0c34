#!/usr/bin/env python3
"""Two nodes of the run send a delta that is no number, as processes over plain TCP: NaN and infinities where a codec has floats, as
values (f32, f16) and as scales (int8), played by the second implementation of the protocol.  Each is refused by name, with a signed
receipt that says so, again and again; metrics and evidence count it by reason; and the round ends with the adapter, byte for byte, that
a simulation without the two has.

The coordinator is the program under test; nodes and the simulation may be a faster one.

usage: poison_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import json, pathlib, re, signal, struct, sys, urllib.request

sys.dont_write_bytecode = True
import live
import protocol_peer as pp
from hostile_peers import Member
from live import check

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
FASTER = live.program(sys.argv[2:])
SEED, HONEST = 7, ["cafe-02", "studio-02"]
HEADER = 24  # bytes of a dense payload before its first value or scale
POISON = {"none": (b"\0\0\xc0\x7f", b"\0\0\x80\xff"), "f16": (b"\0\x7e", b"\0\xfc"), "int8": (b"\0\xc0\x7f", b"\0\x80\x7f")}  # NaN, infinity
SAYS = {"none": "entry 0 is not finite or over 32512", "f16": "entry 0 is not finite or over 32512", "int8": "scale 0 is out of range"}
SCENARIO = """schema_version: 1
name: poison
seed: {seed}
model: base/openmeshmind-tiny-F16.gguf
train: train.jsonl
test: few.jsonl
rounds: 1
round: {{join_ms: 600000}}
population:
  - {{group: honest, clients: [cafe-02, studio-02]}}
{evil}recipe: {{rank: 2, alpha: 4, targets: "q,v", steps: 1, batch_tokens: 64, learning_rate: 0.005, warmup_steps: 1}}
codec: {{up: {{kind: {kind}, topk_fraction: 1}}, down: {{kind: f16}}}}
evaluation: {{round_items: 2, generate: false}}
audit: {{submissions: 1, scalar_steps: 0}}
"""


def key_of(name):
    """As a scenario gives it to its nodes (docs/protocol.md)."""
    seed = pp.blake(b"omm seed" + struct.pack("<Q", SEED))
    return pp.key_from_seed(pp.blake(struct.pack("<I", 2) + name.encode(), key=seed))


def write_files(folder, kind, port):
    live.ship(folder)
    live.ship_lines_of(folder, "train.jsonl", HONEST)
    lines = (SOURCE / "scenarios/base/test.jsonl").read_text().splitlines(keepends=True)
    (folder / "few.jsonl").write_text("".join([l for l in lines if json.loads(l).get("client") == c][0] for c in HONEST))
    (folder / "alone.yaml").write_text(SCENARIO.format(seed=SEED, kind=kind, evil=""))
    (folder / "mixed.yaml").write_text(SCENARIO.format(seed=SEED, kind=kind, evil="  - {group: evil, hostile: nan, count: 2}\n"))
    live.write_coordinator(folder, port, "mixed.yaml", http="127.0.0.1:0", http_port_file="web")
    for name in HONEST:
        live.write_node(folder, name, port, scenario="mixed.yaml")


def poisoned(folder, offer, bad):
    """A payload of the round's form, whose first float is `bad`."""
    o = pp.decode("Offer", pp.open_envelope("offer", offer)[1])
    codec, layout = pp.codec_of(o["codec_up"]), json.loads((folder / "coordinator" / "bundle" / "run.json").read_text())["adapter"]["layout"]
    check(codec["keep_count"] == 0, "the payload is not dense")
    payload = pp.payload_encode(codec, layout, [2.0**-10] * o["adapter"]["value_count"])
    return payload[:HEADER] + bad + payload[HEADER + len(bad):]


def send_poison(folder, kind, member, bad):
    """Until there is a verdict; the submission and the signed refusal."""
    offer = member.until("offer", member.poll)
    submit, sent = member.submission(offer, poisoned(folder, offer, bad))
    answer = member.give(submit, sent)
    check("receipt" in answer, "no receipt for the last chunk, but", answer)
    for receipt in (answer["receipt"], member.ask(submit=submit)["receipt"]):
        key, payload = pp.open_envelope("receipt", receipt)
        said = pp.decode("Receipt", payload)
        check(key == pp.open_envelope("offer", offer)[0], "somebody else signed the receipt")
        check(not said["accepted"] and said["reason"] == "REFUSED_VALUE" and said["submission_digest"] == pp.blake(submit) and
              said["node_id"] == pp.blake(member.key[2]) and said["sentence"] == SAYS[kind], "receipt:", said)
    check("wait" in member.poll(), "it was offered the round again")
    return pp.blake(submit).hex()


def metrics(folder, name):
    port = (folder / "web").read_text().strip()
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=live.LIMIT_S).read().decode()
    return int(re.search(rf"(?m)^meshmind_{re.escape(name)} (\d+)$", text).group(1))


def federate(folder, kind):
    port = live.free_port()
    write_files(folder, kind, port)
    simulation = live.Simulation(FASTER, folder / "alone.yaml", folder / "simulated")
    coordinator = live.start_service(MESHMIND, folder, "coordinator", "coordinator")
    evil = [Member(port, key_of(f"evil-0{i}")) for i in (1, 2)]
    live.wait_for("two that are ready", lambda: all("wait" in m.poll() for m in evil) and metrics(folder, 'nodes{is="ready"}') == 2)
    # The first dies of its offer: the coordinator waits for it until everybody has had a look.
    nodes = [live.start_service(FASTER, folder, "node", HONEST[0], OMM_CRASH_AT="after_offer"), live.start_service(FASTER, folder, "node", HONEST[1])]
    evil[0].until("offer", evil[0].poll)
    check(nodes[0].wait(timeout=live.LIMIT_S) == -signal.SIGKILL, HONEST[0], "ended with", nodes[0].returncode)
    sent = [send_poison(folder, kind, member, bad) for member, bad in zip(evil, POISON[kind])]
    live.wait_for(f"{kind}: metrics count two", lambda: metrics(folder, 'submissions_refused_total{reason="VALUE"}') == 2)
    nodes[0] = live.start_service(FASTER, folder, "node", HONEST[0])
    live.wait_for("the end of the run", lambda: all(p.poll() is not None for p in (coordinator, *nodes)), logs=folder)
    check(coordinator.returncode in (0, 1) and not any(n.returncode for n in nodes), "ended with", coordinator.returncode,
          live.log_of(folder, "coordinator")[-2000:])
    simulation.digest()
    compare(folder, folder / "coordinator" / "bundle", sent, kind)


def compare(folder, bundle, sent, kind):
    mixed, alone = ([json.loads(line) for line in (b / "rounds.jsonl").read_text().splitlines()] for b in (bundle, folder / "simulated"))
    check(len(mixed) == len(alone) == 1, "not one round")
    for what in ("master", "broadcast", "weight_sum", "published"):
        check(mixed[0][what] == alone[0][what], f"{kind}: {what} is {mixed[0][what]}, without the two {alone[0][what]}")
    check((bundle / "final.gguf").read_bytes() == (folder / "simulated" / "final.gguf").read_bytes(), f"{kind}: another final adapter")
    refused = sorted((r["submission"], r["reason"]) for r in mixed[0]["refused"])
    check(refused == sorted((digest, "REFUSED_VALUE") for digest in sent), f"{kind}: the evidence says {refused}")
    live.check_verified(MESHMIND, bundle)


pp.read_reasons(SOURCE)
for kind in POISON:
    with live.workplace("poison") as FOLDER:
        federate(FOLDER, kind)
print(f"{len(POISON)} codecs: NaN and infinity refused, adapters untouched")

#!/usr/bin/env python3
"""`meshmind node setup`, backup and restore: what is asked, what is written and with which modes, what is
never overwritten, keys with a passphrase; as a new user would, with a home of its own.

usage: setup_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
"""
import json, os, pathlib, pty, re, signal, stat, subprocess, sys, tempfile, termios, time

from live import LIMIT_S, check, wait_for

SOURCE = pathlib.Path(sys.argv[1]).resolve()
MESHMIND = pathlib.Path(next((p for p in sys.argv[3:] if pathlib.Path(p).exists()), sys.argv[2])).resolve()
MODEL = SOURCE / "scenarios" / "base" / "openmeshmind-tiny-F16.gguf"
KEY = "ab" * 32
TOKEN = "invite-" + "c7" * 32


# docs/service.md has these.
ASKED = ["address", "public key", "its certificate (file)", "its invitation, or none", "base model (a file, or fetch)", "data (file)", "hours",
         "percent of all processors", "megabytes of memory, 0 for what is free"]


class Home:
    def __init__(self, path):
        self.path = path
        path.mkdir()
        (path / "my data.jsonl").write_text('{"prompt": "a", "completion": "b"}\n')
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("XDG_")}
        self.env.update(HOME=str(path), OMM_GUEST_ROOT="/nonexistent")
        self.config = path / ".config/openmeshmind/node.yaml"
        self.key = path / ".local/share/openmeshmind/node.key"

    def run(self, *args, answers="", code=0):
        done = subprocess.run([MESHMIND, "node", *map(str, args)], input=answers, capture_output=True, text=True,
                              env=self.env, cwd=self.path, timeout=LIMIT_S, start_new_session=True)
        check(done.returncode in (code if isinstance(code, tuple) else (code,)),
              f"node {args}: exit {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def on_terminal(self, args, *dialogue):
        """Exit code, and all that the terminal shows."""
        pid, fd = pty.fork()
        if pid == 0:
            os.chdir(self.path)
            os.execve(MESHMIND, ["meshmind", "node", *map(str, args)], self.env)
        seen, at = "", 0
        for question, answer in dialogue:
            while question not in seen[at:]:
                seen += os.read(fd, 1000).decode()
            at = len(seen)
            os.write(fd, f"{answer}\n".encode())
        try:
            while data := os.read(fd, 1000):
                seen += data.decode()
        except OSError:
            pass
        check(termios.tcgetattr(fd)[3] & termios.ECHO, f"the terminal shows nothing any more: {seen}")
        os.close(fd)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen

    def full(self, *more):
        """With `more`, which may have others of these."""
        usual = {"--coordinator": "tcp://127.0.0.1:9", "--coordinator-key": KEY, "--model": MODEL, "--data": "my data.jsonl",
                 "--hours": "always", "--cpu": "50", "--memory-mb": "0"}
        return ["setup", *(word for option in usual.items() if option[0] not in more for word in option), *more]


def asks_what_it_says(home):
    """Nine answers under four questions, as the documents have them; the five with a default may be empty."""
    subprocess.run([MESHMIND, "keygen", "--tls", "--out", home.path / "tls"], check=True, capture_output=True)
    certificate = next(p.name for p in home.path.iterdir() if "BEGIN CERTIFICATE" in p.read_text(errors="replace"))
    text = home.run("setup", answers=f"tls+tcp://127.0.0.1:9\n{KEY}\n{certificate}\n\n\nmy data.jsonl\n\n\n\n")
    asked = re.findall(r"  ([^:\n]+?)(?: \[[^]\n]*\])?: ", re.sub(r"\d of 4: .*", "", text[text.index("1 of 4: "):]))
    check(asked == ASKED and text.count(" of 4: ") == 4, f"it asks {asked}, and not {ASKED}:\n{text}")
    documented = " ".join((SOURCE / "docs" / "service.md").read_text().split())
    check(f"nine answers under four questions: {'; '.join(ASKED)}." in documented, "docs/service.md does not say what is asked")


def follows_xdg(home):
    """Each of the three folders of its own; a path that is not absolute is none, as the specification has it."""
    places = {"XDG_CONFIG_HOME": home.path / "c", "XDG_DATA_HOME": home.path / "d", "XDG_STATE_HOME": home.path / "s"}
    home.env.update({name: str(path) for name, path in places.items()})
    config, key, state = (path / "openmeshmind" / name for path, name in zip(places.values(), ("node.yaml", "node.key", "node")))
    home.run(*home.full())
    check(config.exists() and key.exists() and not home.config.exists() and not home.key.exists(), "not where XDG_* say")
    yaml = config.read_text()
    check('hours: "always"\n' in yaml and f'key: "{key}"' in yaml and f'state_dir: "{state}"' in yaml, yaml)
    check(f"writes       {state}\n" in home.run("status"), "status does not find the file")
    home.env.update({name: "relative" for name in places})
    home.run(*home.full())
    check(home.config.exists() and home.key.exists() and not (home.path / "relative").exists(), "a relative path is followed")
    check(str(home.path / ".local/state/openmeshmind/node") in home.run("status"), "the state is not in its home")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def asks(home):
    """Answers on stdin: a wrong one is asked again with what is accepted, an empty one takes the default."""
    check("setup" in home.run(code=2), "a node without a file says how to make one")
    (home.path / "empty.jsonl").write_text("")
    (home.path / "bad.jsonl").write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "a"}\n')
    answers = (f"example.org\ntcp://127.0.0.1:\ntcp://127.0.0.1:70000\n tcp://127.0.0.1:9\r\nxyz\n{KEY} \ninvite-me\n {TOKEN}\n/nowhere\nempty.jsonl\n"
               f"{MODEL}\nempty.jsonl\nbad.jsonl\n~/my data.jsonl\nlate\n22:00-07:00\n101\n25\n\n")
    text = home.run("setup", answers=answers)
    for words in ("1 of 4", "2 of 4", "3 of 4", "4 of 4", "accepted: tls+tcp://host:port", "64 lower-case hex",
                  "accepted: invite- and 64", "/nowhere", "accepted: HH:MM-HH:MM, up to 4 of these with commas, or always", "accepted: 1 to 100", "your public key, which your invitation lets in",
                  "with the port's number", "empty.jsonl is empty, and no GGUF file", "empty.jsonl is empty", "bad.jsonl:2: ", "  1 example\n",
                  "then: meshmind node --dry-run   trains for a round", "uses the invitation", "no\n        round that others are enough for waits for it"):
        check(words in text, f"{words} is not in:\n{text}")
    yaml = home.config.read_text()
    check(TOKEN[7:] not in text, "it shows the invitation")
    for line in (f'data: "{home.path}/my data.jsonl"', 'hours: "22:00-07:00"', "max_cpu_percent: 25", "max_memory_mb: 0",
                 f'coordinator_key: "{KEY}"', f'model: "{MODEL}"', "priority: idle",
                 f'token: "{TOKEN}"', 'coordinator: "tcp://127.0.0.1:9"'):
        check(line in yaml.split("\n"), f"{line} is not in:\n{yaml}")
    check(mode(home.config) == mode(home.key) == 0o600 and mode(home.key.parent) == 0o700, "others may read it")
    check("never started" in home.run("status"), "status finds the file by itself")
    check("--coordinator is needed" in Home(home.path / "poor").run("setup", code=2), "no input, no options")


def refuses_first(home):
    """An option that `node` would refuse is named, and nothing is written: the next attempt finds nothing in its way."""
    for option, value, words in (("--cpu", "200", "--cpu: \"200\"; accepted: 1 to 100"), ("--cpu", "0", "accepted: 1 to 100"),
                                 ("--memory-mb", "16000001", "--memory-mb: \"16000001\""), ("--hours", "late", "--hours: "),
                                 ("--coordinator", "example.org", "--coordinator: "), ("--name", "n" * 65, "text of 1 to 64 bytes")):
        said = home.run(*home.full(option, value), code=2)
        check(words in said, f"{option} {value}: {said}")
        check(not home.config.exists() and not home.key.exists(), f"{option} {value}: something was written")
    home.run(*home.full())


def takes_one_client(home):
    """Of a file with several only this one's examples are counted, and asked for by the node."""
    lines = ['{"client": "%s", "prompt": "a", "completion": "b"}\n' % client for client in ("anna", "bert", "anna")]
    (home.path / "several.jsonl").write_text("".join(lines))
    for model in [], ["--model", "fetch"]:  # seen with the model's vocabulary, and without one
        said = home.run(*home.full("--data", "several.jsonl", "--client", "carl", *model), code=2)
        check("several.jsonl: nothing to learn from of client carl" in said and not home.config.exists() and not home.key.exists(), said)
    for client, count in ("anna", "  2 examples\n"), ("bert", "  1 example\n"):
        said = home.run(*home.full("--data", "several.jsonl", "--client", client, "--replace"))
        check(count in said and f'client: "{client}"\n' in home.config.read_text(), f"{client}: {said}{home.config.read_text()}")
    said = home.run(*home.full("--data", "several.jsonl", "--replace"))
    check("  3 examples\n" in said and "client:" not in home.config.read_text(), f"{said}{home.config.read_text()}")


def asks_for_the_invitation(home):
    """Also where options say which coordinator: an invitation is nothing of theirs.  A script that says all has none to give."""
    said = home.run(*home.full(), answers=f"invite-me\n{TOKEN}\n")
    check("its invitation, or none [none]: " in said and "accepted: invite- and 64" in said and "lets in" in said, said)
    check(f'token: "{TOKEN}"' in home.config.read_text() and TOKEN[7:] not in said, said)
    said = home.run(*home.full("--replace"))
    check("must let it in" in said and "token" not in home.config.read_text(), said)
    for key in "own.key", home.path / "other.key":
        home.run(*home.full("--replace", "--key", key))
        key = home.path / key
        check(key.is_file() and f'key: "{key}"' in home.config.read_text(), f"--key {key}: {home.config.read_text()}")


def reads_without_a_model(home):
    """The base model comes later; what the data and the invitation are can be seen now."""
    for name, text, words in (("cut.jsonl", '{"prompt": "a", "completion": "b"}\n{"prompt": "a\n', "cut.jsonl:2:13: "),
                              ("keys.jsonl", '{"prompt": "a"}\n', "keys.jsonl:1: completion: "), ("bytes.txt", "a\n\0\n", "bytes.txt:2:1: byte 0x00")):
        (home.path / name).write_text(text)
        said = home.run(*home.full("--model", "fetch", "--data", name), code=(2, 3))
        check("--data: " in said and words in said, f"{name}: {said}")
    for name, text, rights, words in (("page.token", "<html>", 0o600, "accepted: invite- and 64"), ("wide.token", TOKEN + "\n", 0o644, "has mode 0644"),
                                      ("long.token", "x" * 5000, 0o600, "accepted: invite- and 64"), ("none.token", None, 0, "none.token")):
        if text is not None:
            (home.path / name).write_text(text)
            (home.path / name).chmod(rights)
        said = home.run(*home.full("--token-file", name), code=(2, 3))
        check("--token-file: " in said and words in said, f"{name}: {said}")
    check("--token-file: /dev/null" in home.run(*home.full("--token-file", "/dev/null"), code=(2, 3)), "/dev/null is an invitation")
    check(not home.config.exists() and not home.key.exists(), "something was written")
    (home.path / "good.token").write_text(TOKEN + "\n")
    (home.path / "good.token").chmod(0o600)
    said = home.run(*home.full("--model", "fetch", "--token-file", "good.token"))
    check("which your invitation lets in" in said and f'token_file: "{home.path}/good.token"' in home.config.read_text(), said)


def can_be_pasted(home):
    """The lines that setup prints are commands, whatever the file is called; and where there is no home it says what to do."""
    for name, shown in (("my node.yaml", "-c './my node.yaml'"), ("it's.yaml", "-c './it'\\''s.yaml'"), ("plain.yaml", "-c ./plain.yaml")):
        said = home.run(*home.full("-c", name))
        check(f"meshmind node {shown}   takes part" in said, f"{name}: {said}")
    del home.env["HOME"]
    said = home.run(*home.full(), code=2)
    check("HOME is not set" in said and "set HOME or XDG_CONFIG_HOME to a folder" in said, said)


def keeps(home):
    """What is there stays, unless its owner says otherwise; the key always."""
    was, key = home.config.read_bytes(), home.key.read_bytes()
    check("stays as it is" in home.run(*home.full(), code=2), "it replaces without being asked to")
    check("stays as it is" in home.run(*home.full(), answers="y\n", code=2), "y is not yes")
    check(home.config.read_bytes() == was, "it has been replaced")
    home.run(*home.full(), answers="yes\n")
    check(home.config.read_bytes() != was and home.key.read_bytes() == key, "yes, and the key is the same")
    said = json.loads(home.run(*home.full("--replace", "--json")).split("\n")[0])
    check(said["config"] == str(home.config) and said["public_key"] == json.loads(key)["public"], said)
    check("/nowhere" in home.run(*home.full("--replace", "--data", "/nowhere"), code=2), "data that are not there")
    said = home.run(*home.full("--replace", "--tls-certificate", MODEL, "--coordinator", "tls+tcp://127.0.0.1:9"), code=(2, 3))
    check("accepted: the PEM file" in said, f"a certificate that is none: {said}")


def backs_up(home, other):
    home.run("backup", "save.json")
    save = home.path / "save.json"
    check(mode(save) == 0o600 and json.loads(save.read_text())["kind"] == "omm-node-backup", "the backup")
    home.run("backup", "save.json", code=2)  # never overwritten
    was, key = home.config.read_bytes(), home.key.read_bytes()
    home.run("restore", save, code=2)
    home.key.unlink()
    home.config.unlink()
    home.run("restore", save)
    check(home.config.read_bytes() == was and home.key.read_bytes() == key, "not what was saved")
    check(mode(home.config) == mode(home.key) == 0o600, "others may read what was restored")
    home.config.unlink()
    home.key.unlink()
    alias = home.path / "alias"  # the same folder by another name
    alias.symlink_to(home.config.parent)
    home.run("restore", save, "-c", alias / home.config.name)
    check(home.config.read_bytes() == was and home.key.read_bytes() == key, "by another name of its folder: not what was saved")
    alias.unlink()
    home.config.unlink()
    home.run("restore", save, code=2)  # the key is there: nothing is changed
    check(not home.config.exists() and home.key.read_bytes() == key, "half of it was restored")
    home.key.write_text("another")
    home.key.chmod(0o644)
    home.run("restore", save, "--replace")
    check(home.config.read_bytes() == was and home.key.read_bytes() == key, "not replaced")
    check(mode(home.config) == mode(home.key) == 0o600, "others may read what was replaced")
    home.key.write_text("another")  # none of what would not be restored
    home.run("backup", "none.json", code=3)
    check(not (home.path / "none.json").exists(), "a backup of what is no key")
    home.key.unlink()
    home.key.mkdir()  # where no key can be put: the file that was there stays
    newer = was + b"# newer\n"
    home.config.write_bytes(newer)
    home.run("restore", save, "--replace", code=3)
    check(home.config.read_bytes() == newer and mode(home.config) == 0o600, "its file is gone, another, or open to others")
    home.key.rmdir()
    home.run("restore", save, "--replace")
    check(home.config.read_bytes() == was, "not replaced when it could be")
    save.chmod(0o644)
    check("save.json" in home.run("restore", save, "--replace", code=2), "a backup that others may read")
    wrong = home.path / "wrong.json"
    for text, code in ("{}", 2), (json.dumps(json.loads(save.read_text()) | {"kind": "another"}), 3), (json.dumps(json.loads(save.read_text()) | {"schema_version": 2}), 3):
        wrong.write_text(text)
        wrong.chmod(0o600)
        other.run("restore", wrong, code=code)
        check(not other.config.exists(), f"something was restored from {text[:60]}")
    home.run("restore", wrong, "--replace", code=3)  # where nothing else is in its way


def backs_up_certificate(home):
    """It comes back, stays as it is where there is one, and is replaced where its owner says so."""
    save, certificate = home.path / "save.json", home.path / "tls.crt"
    home.run("backup", save)
    was = certificate.read_bytes()
    certificate.unlink()
    home.run("backup", "none.json", code=2)  # none without what it should have
    check(not (home.path / "none.json").exists(), "a backup without its certificate")
    for more, there, want in ([], None, was), ([], b"another", b"another"), (["--replace"], b"another", was):
        if there:
            certificate.write_bytes(there)
        home.key.unlink()
        home.config.unlink()
        home.run("restore", save, *more)
        check(certificate.read_bytes() == want, f"restore {more} where there was {there}")


def waits_for_coordinator(home, config, state):
    """A node that is started has its key, and asks."""
    node = subprocess.Popen([MESHMIND, "node", *(["-c", config] if config else [])], env=home.env, cwd=home.path, stderr=subprocess.PIPE, text=True)
    board = state / "status.json"
    wait_for("a node that waits for its coordinator", lambda: node.poll() is not None or
             board.exists() and json.loads(board.read_text())["state"] == "waiting")
    check(node.poll() is None, node.poll() is not None and node.stderr.read())
    node.terminate()
    time.sleep(0.01)
    node.send_signal(signal.SIGSTOP)  # a machine on which it does not end within its second
    time.sleep(1.5)
    node.send_signal(signal.SIGCONT)
    said = node.communicate(timeout=LIMIT_S)[1]
    check(node.returncode == 0 and "in the middle of a step" not in said, f"the end: {node.returncode}\n{said}")  # it had trained nothing


def moves(home, elsewhere):
    """A backup of another home, whose folders are gone: all that it brings is in this user's, or beside the file that is named, and
    what it does not bring is named.  With that the node starts."""
    for name, text in (("invitation", TOKEN + "\n"), ("passphrase", "correct horse\n")):
        (home.path / name).write_text(text)
        (home.path / name).chmod(0o600)
    subprocess.run([MESHMIND, "keygen", "--tls", "--out", home.path / "tls"], check=True, capture_output=True)
    (certificate,) = (p for p in home.path.iterdir() if "BEGIN CERTIFICATE" in p.read_text(errors="replace"))
    home.run(*home.full("--coordinator", "tls+tcp://127.0.0.1:9", "--tls-certificate", certificate, "--token-file", "invitation",
                        "--passphrase-file", "passphrase"))
    home.run("backup", "save.json")
    save = elsewhere.path / "save.json"
    (home.path / "save.json").rename(save)
    text, key, pem = save.read_text(), home.key.read_bytes(), certificate.read_bytes()
    check("correct horse" not in text and TOKEN in text and mode(save) == 0o600, f"the backup has {text}")
    home.path.rename(home.path.with_name("gone"))

    data, state = elsewhere.key.parent, elsewhere.path / ".local/state/openmeshmind/node"
    said = elsewhere.run("restore", "save.json")
    yaml = elsewhere.config.read_text()
    for line in (f'key: "{elsewhere.key}"', f'tls_certificate: "{data}/coordinator.crt"', f'token_file: "{data}/node.token"',
                 f'passphrase_file: "{data}/node.passphrase"', f'state_dir: "{state}"', "max_cpu_percent: 50"):
        check(line in yaml.split("\n"), f"{line} is not in:\n{yaml}")
    check([l for l in yaml.split("\n") if str(home.path) in l] == [f'data: "{home.path}/my data.jsonl"'], yaml)
    check(elsewhere.key.read_bytes() == key and (data / "coordinator.crt").read_bytes() == pem and (data / "node.token").read_text() == TOKEN + "\n", said)
    for name in (elsewhere.key, data / "coordinator.crt", data / "node.token", elsewhere.config):
        check(mode(name) == 0o600 and f"written: {name}\n" in said, f"{name}: {said}")
    for words in (f"not there: {home.path}/my data.jsonl (data), ", f"not there: {data}/node.passphrase (passphrase_file), ", "does not run any more"):
        check(words in said, f"{words} is not in:\n{said}")
    elsewhere.config.write_text(yaml.replace(str(home.path), str(elsewhere.path)))
    check("node.passphrase" in elsewhere.run(code=(2, 3)), "it starts without its passphrase")
    (data / "node.passphrase").write_text("correct horse\n")
    (data / "node.passphrase").chmod(0o600)
    waits_for_coordinator(elsewhere, None, state)

    said = elsewhere.run("restore", save, "-c", "sub/node.yaml")
    sub = elsewhere.path / "sub"
    for line in ('key: "node.key"', 'tls_certificate: "coordinator.crt"', 'token_file: "node.token"', 'passphrase_file: "node.passphrase"', 'state_dir: "node"'):
        check(line in (sub / "node.yaml").read_text().split("\n"), f"{line}: {said}")
    (data / "node.passphrase").rename(sub / "node.passphrase")
    (sub / "node.yaml").write_text((sub / "node.yaml").read_text().replace(str(home.path), str(elsewhere.path)))
    sub = sub.rename(elsewhere.path / "moved again")
    waits_for_coordinator(elsewhere, sub / "node.yaml", sub / "node")
    check((sub / "node.key").read_bytes() == key, "another key")

    strange = elsewhere.path / "strange"  # another node's lie where these would
    strange.mkdir()
    (strange / "coordinator.crt").write_text("another")
    said = elsewhere.run("restore", save, "-c", "strange/node.yaml", code=2)
    check("coordinator.crt is there already" in said and [f.name for f in strange.iterdir()] == ["coordinator.crt"], said)
    (strange / "coordinator.crt").unlink()
    (strange / "node.token").write_text("another")
    said = elsewhere.run("restore", save, "-c", "strange/node.yaml", code=2)
    check("node.token is there already" in said and [f.name for f in strange.iterdir()] == ["node.token"], said)
    sealed = elsewhere.path / "sealed"  # nor does anything come into a bundle
    sealed.mkdir()
    for name in "manifest.json", "manifest.json.minisig":
        (sealed / name).touch()
    said = elsewhere.run("restore", save, "-c", "sealed/deep/node.yaml", code=2)
    check("sealed/deep/node.yaml is in the bundle" in said and len(list(sealed.iterdir())) == 2, said)
    for member in "key", "token", "tls_certificate":  # a stranger's backup puts nothing else into the places that it names
        evil = elsewhere.path / f"evil-{member}.json"
        evil.write_text(json.dumps(json.loads(text) | {member: "ssh-ed25519 AAAA"}))
        evil.chmod(0o600)
        said = elsewhere.run("restore", evil, "-c", "evil/node.yaml", code=3)
        check(f"the backup's {member} is no" in said and not (elsewhere.path / "evil").exists(), said)
    whole = json.loads(text)  # nor anything beside what belongs there, which a shell would run
    for member, more in [("key", whole["key"].replace("{", '{"x":"$(touch x)",', 1)), ("token", whole["token"].rstrip() + "\ntouch x\n"),
                         ("key", whole["key"].replace('"public":"', '"public":"$(touch x)')), ("key", whole["key"].replace('"salt":"', '"salt":"$(touch x)')),
                         ("tls_certificate", whole["tls_certificate"] + "touch x\n"),
                         ("tls_certificate", "-----BEGIN CERTIFICATE-----\ntouch x\n-----END CERTIFICATE-----\n"),
                         ("tls_certificate", "-----BEGIN CERTIFICATE-----\nMIIB\n"),
                         ("tls_certificate", f"-----BEGIN CERTIFICATE-----\n{'M' * 77}\n-----END CERTIFICATE-----\n")]:
        evil.write_text(json.dumps(whole | {member: more}))
        said = elsewhere.run("restore", evil, "-c", "evil/node.yaml", code=3)
        check(f"the backup's {member} is no" in said and not (elsewhere.path / "evil").exists(), said)
    lacks = elsewhere.path / "lacks.json"
    lacks.write_text(json.dumps(whole | {"config": whole["config"].replace(str(MODEL), "/nowhere/m.gguf")}))
    lacks.chmod(0o600)
    said = elsewhere.run("restore", lacks, "-c", "lacks/node.yaml")
    check("not there: /nowhere/m.gguf (model), which no backup has" in said, said)
    coloured = {k: v for k, v in whole.items() if k != "config_path"}  # nor does it move the cursor of who restores it
    coloured["config"] = re.sub(r"(?m)^key: .*$", r'key: "c\\e[2J\\n.key"', coloured["config"])
    coloured["config"] = re.sub(r"(?m)^(tls_certificate|token_file|passphrase_file): .*$", r'\1: "\1"', coloured["config"])
    evil.write_text(json.dumps(coloured))  # nor lies a certificate where a shell looks for its own
    said = elsewhere.run("restore", evil, "-c", "evil/node.yaml", code=3)
    check("the backup's tls_certificate is no file of a certificate's name" in said and not (elsewhere.path / "evil").exists(), said)
    coloured["config"] = coloured["config"].replace('tls_certificate: "tls_certificate"', 'tls_certificate: "coordinator.crt"')
    evil.write_text(json.dumps(coloured))
    said = elsewhere.run("restore", evil, "-c", "evil/node.yaml")
    check("c?[2J?.key" in said and "\x1b" not in said, said)
    said = elsewhere.run("status", "-c", "evil/node.yaml")
    check("c?[2J?.key" in said and "\x1b" not in said, said)
    (data / "node.token").unlink()  # it was let in
    elsewhere.run("backup", "later.json")
    elsewhere.run("restore", "later.json", "-c", "third/node.yaml")
    third = (elsewhere.path / "third/node.yaml").read_text()
    check("token" not in third and 'key: "node.key"' in third and not (elsewhere.path / "third/node.token").exists(), third)
    folded = json.loads(text)
    before = elsewhere.path / "before"
    folded["config"] = "{" + ", ".join(l for l in yaml.split("\n") if l and l[0] != "#").replace(str(elsewhere.path), str(before)) + "}\n"
    save.write_text(json.dumps(folded))
    said = elsewhere.run("restore", save, "-c", "folded/node.yaml", code=2)
    check("key is not a line of its own" in said and not (elsewhere.path / "folded/node.yaml").exists(), said)
    del folded["config_path"]  # of a backup from before: where the file says
    save.write_text(json.dumps(folded))
    elsewhere.run("restore", save, "-c", "folded/node.yaml")
    check((before / ".local/share/openmeshmind/node.key").read_bytes() == key, "a backup from before is moved")


def locked(home):
    secret = home.path / "passphrase"
    secret.write_text("correct horse\n")
    check("passphrase" in home.run(*home.full("--passphrase-file", "passphrase"), code=2), "others may read it")
    secret.chmod(0o600)
    home.run(*home.full("--passphrase-file", "passphrase"))
    check(json.loads(home.key.read_text())["kind"] == "omm-locked-key", home.key.read_text())
    text = home.config.read_text()
    waits_for_coordinator(home, None, home.path / ".local/state/openmeshmind/node")
    secret.write_text("correct horsf\n")
    check("not its passphrase" in home.run(code=3), "another passphrase")
    home.config.write_text("".join(l + "\n" for l in text.split("\n") if not l.startswith("passphrase_file")))
    check("no terminal" in home.run(code=2), "nobody to ask")
    # On a terminal it asks, and shows nothing of the answer.
    code, seen = home.on_terminal([], ("passphrase of the key: ", "wrong passphrase"))
    check(code == 3 and "not its passphrase" in seen, seen)
    check("wrong passphrase" not in seen, "the terminal shows it")


def asks_twice(home):
    """The passphrase of a new key: two that are not the same make none."""
    invited, ask, again = ("its invitation, or none [none]: ", ""), "passphrase for the new key: ", "the same again: "
    code, seen = home.on_terminal(home.full("--passphrase"), invited, (ask, "correct horse"), (again, "correct horsf"))
    check(code == 2 and "the two are not the same" in seen and not home.key.exists(), f"exit {code}: {seen}")
    code, seen = home.on_terminal(home.full("--passphrase"), invited, (ask, "correct horse"), (again, "correct horse"))
    check(code == 0 and json.loads(home.key.read_text())["kind"] == "omm-locked-key", f"exit {code}: {seen}")
    code, seen = home.on_terminal([], ("passphrase of the key: ", "correct horsf"))
    check(code == 3 and "not its passphrase" in seen, f"exit {code}: {seen}")


with tempfile.TemporaryDirectory(prefix="omm-setup-") as name:
    name = pathlib.Path(name).resolve()
    first = Home(name / "first")
    asks(first)
    plain = Home(name / "plain")
    asks_what_it_says(plain)
    backs_up_certificate(plain)
    follows_xdg(Home(name / "xdg"))
    refuses_first(Home(name / "refused"))
    takes_one_client(Home(name / "several"))
    asks_for_the_invitation(Home(name / "invited"))
    can_be_pasted(Home(name / "pasted"))
    reads_without_a_model(Home(name / "unmodelled"))
    keeps(first)
    backs_up(first, Home(name / "other"))
    moves(Home(name / "left"), Home(name / "arrived"))
    locked(Home(name / "locked"))
    asks_twice(Home(name / "twice"))
print("setup, backup, restore, passphrases")

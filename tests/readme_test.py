#!/usr/bin/env python3
"""README's "run a coordinator" and "join with your laptop", typed line by line from README.md itself at the terminals of
machines (network namespaces): what a new user would do, and see.  A round waits for two volunteers: the other one types less of it.  What a user has to fill in is filled in: the address of
the coordinator, the keys, an editor, the answers of setup.  Only systemctl is not there.

usage: readme_test.py SOURCE_DIR MESHMIND [FASTER_MESHMIND]
Needs root (CAP_NET_ADMIN) and ip; else it is skipped with the reason.
"""
import json, os, pathlib, re, select, shutil, signal, sys, tempfile, time

SOURCE = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(SOURCE / "tests" / "network"))
import machines
from live import LIMIT_S, Terminal, check, fail, log_of, program, ship_lines_of, starved_s, wait_for

MESHMIND = program(sys.argv[2:])
README = (SOURCE / "README.md").read_text()
sys.stdout.reconfigure(errors="backslashreplace")


def lines_after(words):
    """The indented lines of the first block after `words`, without their remarks; and the remarks."""
    match = re.search(r"(?:\n    .*)+", README[README.index(words):])
    parts = [re.split(r"\s+# ", line.strip(), maxsplit=1) for line in match[0].strip("\n").split("\n")]
    return [p[0] for p in parts], [p[1] if len(p) > 1 else "" for p in parts]


def columns():
    """coordinator.yaml and node.yaml, which stand side by side."""
    block = re.search(r"```yaml\n(# coordinator\.yaml .*?)```", README, re.S)[1].split("\n")
    at = block[0].index("# node.yaml")
    return ["\n".join(part.rstrip() for part in half).strip() + "\n" for half in
            ([line[:at] for line in block], [line[at:] for line in block])]


class Shell(Terminal):
    """A shell on a terminal of one machine.  Its prompt says how the last command ended."""

    def __init__(self, machine, folder, home, path):
        env = {"HOME": str(home), "PATH": f"{path}:{os.environ['PATH']}", "OMM_GUEST_ROOT": "/nonexistent", "TERM": "dumb",
               "PROMPT_COMMAND": r'printf "\n<%d>\n" $?', "PS1": "", "PS2": "", "LC_ALL": "C.UTF-8"}
        super().__init__(machines.inside(machine, "bash", "--norc", "--noprofile", "--noediting", "-i"), folder, env)
        self.end_of_command()

    def end_of_command(self):
        match = self.until(r"(?m)^<(\d+)>\n")
        said, code = self.text()[:match.start()], int(match[1])
        self.pass_over(match)
        return code, said

    def type(self, line, answers=(), code=0):
        """What the command said; it must end with `code`.  Answers are (what is asked, what is typed)."""
        self.begin(line)
        at = 0
        for asked, typed in answers:
            self.until(re.escape(self.text()[:at]) + r"(?s:.*?)" + asked)
            at = len(self.text())
            self.begin(typed)
        got, said = self.end_of_command()
        check(got == code, f"$ {line}\n{said}\nended with {got}")
        return said

    def interrupt(self):
        """Ctrl-C: the seconds until the prompt comes, without those for which command, shell or we had no processor."""
        pids = [self.pid, os.getpid(), *map(int, pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split())]
        known, begin = {pid: {} for pid in pids}, time.monotonic()
        starved = lambda: sum(starved_s(pid, known[pid]) for pid in pids)
        starved()
        self.control_c()
        while not re.search(r"(?m)^<\d+>\n", self.read()):
            starved()
            check(time.monotonic() < begin + LIMIT_S, f"Ctrl-C does not end it:\n{self.text()}")
            select.select([self.fd], [], [], 0.01)
        self.end_of_command()
        return time.monotonic() - begin - starved()


def checkout(folder):
    """What a user has cloned and built; but a run is judged on what its own clients hold out, which the coordinator has done sooner."""
    (folder / "scenarios" / "base").mkdir(parents=True)
    for path in (SOURCE / "tools", *(SOURCE / "scenarios").glob("*.yaml"), SOURCE / "scenarios" / "policies", *(SOURCE / "scenarios" / "base").iterdir()):
        if path.name != "test.jsonl":
            (folder / path.relative_to(SOURCE)).symlink_to(path)
    ship_lines_of(folder / "scenarios" / "base", "test.jsonl", ["cafe-02", "studio-02", "harbor-02"])
    (folder / "build" / "release").mkdir(parents=True)
    (folder / "build" / "release" / "meshmind").symlink_to(MESHMIND)
    return folder


def command(folder, name, text):
    path = folder / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def own_chats(path, client):
    """A volunteer's: one client of the shipped data, who does not say so in every line."""
    with open(path, "w") as f:
        for line in (SOURCE / "scenarios" / "base" / "train.jsonl").read_text().splitlines():
            item = json.loads(line)
            if item.pop("client") == client:
                f.write(json.dumps(item) + "\n")


def edited(remark, address):
    """coordinator.yaml as README shows it, with what the remark beside `editor` says."""
    text, wanted = columns()[0], re.findall(r'"(\w+: [^"]+)"', remark)
    check(len(wanted) == 2, f"the remark beside editor: {remark}")
    text = text[:text.index("nodes:")] + "".join(w + "\n" for w in wanted)
    return text.replace("coordinator.example", address)


def run_coordinator(operator, folder, bin_folder, address):
    """All lines but the last, which is for the end.  Gives what volunteers are given, and the line for the end."""
    lines, remarks = lines_after("Run a coordinator, in ten lines")
    check(len(lines) == 10, f"{len(lines)} lines:", lines)
    editor = next(i for i, line in enumerate(lines) if line.startswith("editor"))
    (folder / "typed.yaml").write_text(edited(remarks[editor], address))
    command(bin_folder, "editor", f'cp "{folder}/typed.yaml" "$1"\n')
    if not shutil.which("curl"):
        command(bin_folder, "curl", 'exec python3 -c "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())" "$2"\n')
    said = {}
    for line in lines[:-1]:
        said[line] = operator.type(line)
        if line.endswith("&"):
            wait_for("the coordinator", lambda: "listening" in log_of(folder / "checkout/op", "coordinator"), logs=folder / "checkout/op")
    keys = re.findall(r"public key +([0-9a-f]{64})", operator.type("meshmind keygen --show coordinator.key"))
    check(len(keys) == 1, "keygen --show coordinator.key:", keys)
    health = next(text for line, text in said.items() if line.startswith("curl"))
    check(re.search(r"(?m)^ok$", health), "healthz says:", health)
    tokens = re.findall(r"invite-[0-9a-f]{64}", said[lines[-2]])
    check(len(tokens) == 5, "invite said:", said[lines[-2]])
    minisign = re.search(r"minisign +(\S+)", operator.type("meshmind keygen --show bundle.key"))[1]
    return keys[0], tokens, lines[-1].replace("KEY", minisign)


def take_turns(path):
    """A guest takes only time that nobody else wants, and this one is blind (OMM_GUEST_ROOT): beside other tests it would starve."""
    text = path.read_text()
    check("priority: idle" in text, text)
    path.write_text(text.replace("priority: idle", "priority: normal"))


def answers_of(address, key, token):
    return [("address: $", f"tls+tcp://{address}:4711"), ("public key: $", key), ("certificate .file.: $", "~/tls.key.crt"),
            ("invitation, or none .*: $", token), ("base model .*: $", ""), ("data .file.: $", "~/chats.jsonl"),
            ("hours .*: $", ""), ("percent .*: $", "100"), ("megabytes .*: $", "")]


def befriend(friend, home, answers):
    """The other volunteer, who trusts us and leaves the dry run away; its node goes on until the run is over."""
    lines, _ = lines_after("### Join with your laptop")
    friend.type(lines[0])
    friend.type("meshmind node setup", answers)
    take_turns(home / ".config/openmeshmind/node.yaml")
    friend.begin("meshmind node")


def join(laptop, folder, bin_folder, answers, token):
    lines, _ = lines_after("### Join with your laptop")
    check(len(lines) <= 10, f"{len(lines)} lines")
    command(bin_folder, "systemctl", f'echo "$@" > "{folder}/systemctl"\n')
    said = {}
    for line in lines:
        if line == "meshmind node":
            laptop.begin(line)
            laptop.until("training_begin|enrolled|waiting|receipt")
            seconds = laptop.interrupt()
            check(seconds < 2, f"Ctrl-C took {seconds:.1f} s")
        said[line] = laptop.type(line, answers if line == "meshmind node setup" else ())
        if line == "meshmind node setup":
            take_turns(folder / "home/.config/openmeshmind/node.yaml")
    for line, says in (("meshmind node --dry-run", "not sent: (?s:.*)payload "), ("meshmind node", r"run closed: \d rounds accepted, 0 refused"),
                       ("meshmind node status", "sent +3 rounds, 3 of them accepted")):
        check(re.search(says, said[line]), f"$ {line}\n{said[line]}")
    home = folder / "home"
    unit = (home / ".config/systemd/user/meshmind-node.service").read_text()
    started = re.search(r"ExecStart=%h/(\S+)", unit)[1]
    check(os.access(home / started, os.X_OK), f"the unit starts {started}, which is not there")
    check((folder / "systemctl").read_text().strip() == "--user enable --now meshmind-node", "systemctl was not asked")
    check((folder / "checkout/node.backup").stat().st_mode & 0o777 == 0o600, "the backup may be read by others")
    check(token not in "".join(said.values()).replace(token, "", 1), "the invitation is shown again")


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="omm-readme-"))
    net = machines.network(["coordinator", "laptop", "friend"])
    terminals, begin = [], time.monotonic()
    try:
        address, bin_folder = net.address["coordinator"], folder / "bin"
        for name in (bin_folder, folder / "home", folder / "friend", folder / "operator"):
            name.mkdir()
        here = checkout(folder / "checkout")
        own_chats(folder / "home" / "chats.jsonl", "cafe-02")
        own_chats(folder / "friend" / "chats.jsonl", "studio-02")
        terminals.append(Shell("coordinator", here, folder / "operator", bin_folder))
        terminals.append(Shell("laptop", here, folder / "home", bin_folder))
        terminals.append(Shell("friend", here, folder / "friend", bin_folder))
        operator, laptop, friend = terminals
        key, tokens, last = run_coordinator(operator, folder, bin_folder, address)
        for home in ("home", "friend"):
            shutil.copy(here / "op/tls.key.crt", folder / home / "tls.key.crt")  # by mail
        befriend(friend, folder / "friend", answers_of(address, key, tokens[1]))
        join(laptop, folder, bin_folder, answers_of(address, key, tokens[0]), tokens[0])
        code, said = friend.end_of_command()
        check(code == 0 and "run closed: 3 rounds accepted, 0 refused" in said, f"the other volunteer's node ended with {code}:\n{said}")
        said = operator.type("wait; " + last)
        check(re.search("verify: pass|the evidence is intact, a gate failed", said) and "the chain holds" in said, said)
        print(f"all lines of README typed on their machines, {time.monotonic() - begin:.0f} s")
    finally:
        for terminal in terminals:
            terminal.close()
        net.close()
        shutil.rmtree(folder, ignore_errors=True)


main()

#!/usr/bin/env python3
"""`chat` at a terminal, on the model that is shipped: a line is typed and answered, Ctrl-C ends an answer, in the middle of
it or while its prompt is read, once more it ends the program, and at the prompt it does so at once.  Piped, under templates
of models that think: thoughts are shown as such, and left out where they are not wanted.

On plain C that calls the C library for each multiply-add, and one thread, a batch of the prompt takes a second: long enough to
be interrupted.

usage: chat_test.py SOURCE_DIR MESHMIND
"""
import json, os, pathlib, re, signal, subprocess, sys, tempfile, termios, time

from live import Terminal, check, wait_for
from retemplate import OPENS, OWN, retemplate, with_positions

SOURCE, MESHMIND = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
MODEL = SOURCE / "scenarios" / "base" / "openmeshmind-tiny-F16.gguf"
LONG = "7" * 360  # as many tokens: more than one batch of 256
sys.stdout.reconfigure(errors="backslashreplace")


class Chat(Terminal):
    def __init__(self, folder, *more, isa="scalar", locale="C.UTF-8", slow=False):
        env = {**os.environ, "HOME": str(folder), "TERM": "dumb", "OMM_ISA": isa, "LC_ALL": locale}
        if slow:  # glibc hides the instruction
            env["GLIBC_TUNABLES"] = "glibc.cpu.hwcaps=-FMA,-FMA4"
        notes = [] if "--notes" in more else ["--no-notes"]
        super().__init__([MESHMIND, "chat", "-m", MODEL, *notes, "--stats", "-t", 1, *more], SOURCE, env)
        self.prompt()

    def prompt(self):
        """What was seen up to the prompt, which comes at the beginning of a line.  From now on the line editor reads: it has
        told the terminal not to echo."""
        match = self.until(r"(?m)^> \Z")
        wait_for("the line editor", lambda: not self.echoes())
        said = self.text()[:match.start()]
        self.pass_over(match)
        return said

    def echoes(self):
        return termios.tcgetattr(self.fd)[3] & termios.ECHO

    def catches(self):
        """Has it a handler of Ctrl-C?"""
        caught = re.search(r"SigCgt:\s*(\w+)", pathlib.Path(f"/proc/{self.pid}/status").read_text())[1]
        return int(caught, 16) >> (signal.SIGINT - 1) & 1

    def wait_until_busy(self):
        """The line editor has gone, and an answer has begun: its prompt is read."""
        wait_for("an answer", lambda: self.echoes() and self.catches())

    def say(self, line):
        """Type it; its echo is seen."""
        self.begin(line)
        self.pass_over(self.until(re.escape(line) + r"\n"))


def counts(said):
    """Tokens of the prompt and of the answer, from --stats."""
    match = re.search(r"prompt (\d+) tokens, \d+ of them in the cache; answer (\d+) tokens", said)
    check(match, "no --stats:", said)
    return int(match[1]), int(match[2])


def test_line(folder):
    chat = Chat(folder, isa="")
    chat.say("Hello!")
    said = chat.prompt()
    check(re.search(r"(?m)^H\w+[!.,].*\n", said) and counts(said)[1] > 2, "Hello! was answered with:", said)
    chat.say("/quit")
    check(chat.end() == 0, "/quit:", chat.text())


def test_characters(folder):
    """What is typed arrives, whatever the locale; a tab in pasted text, too."""
    for locale in "C.UTF-8", "C":
        notes = folder / f"notes-{locale}"
        chat = Chat(folder, "--notes", notes, isa="", locale=locale)
        chat.begin("Save this note: Stra\u00dfe\t5, 3 \u20ac f\u00fcr \u041a\u0430\u0442\u044f")
        chat.prompt()
        chat.say("/notes ")
        said = chat.prompt()
        check(re.search("note 1: Stra\u00dfe[ \t]+5, 3 \u20ac f\u00fcr \u041a\u0430\u0442\u044f]", said), f"typed in {locale}:", said)
        chat.say("/quit ")
        check(chat.end() == 0, "/quit:", chat.text())


def test_gone(folder):
    """Who reads the answers has gone: nothing more is done for nobody."""
    questions = "".join(f"Save this note: item {i}\n" for i in range(8))
    notes = folder / "gone.sqlite"
    chat = subprocess.Popen([MESHMIND, "chat", "-m", MODEL, "-t", "1", "--notes", notes], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=SOURCE, env={**os.environ, "HOME": str(folder)})
    chat.stdout.close()
    try:
        chat.stdin.write(questions.encode())
        chat.stdin.close()
    except BrokenPipeError:
        pass
    said = chat.stderr.read().decode()
    check(chat.wait(timeout=600) == 3 and "cannot write the output" in said, f"exit {chat.returncode}:", said)
    kept = subprocess.run([MESHMIND, "chat", "-m", MODEL, "--notes", notes], input="/notes\n", capture_output=True, text=True, cwd=SOURCE)
    check(re.search(r"\[[01] notes\]", kept.stdout), "saved for nobody:", kept.stdout)


def interrupted(chat, line, begun):
    """What is seen of the answer to `line`, interrupted once it has begun.  On a machine that stands still meanwhile the answer
    may have come to its end first: then once more."""
    for _ in range(5):
        chat.say(line)
        begun()
        chat.control_c()
        said = chat.prompt()
        if re.search(r"(?m)^(\^C)?\[stopped\]\n", said):
            return said
    check(False, "no answer was interrupted:", said)


def test_answer(folder):
    chat = Chat(folder, "-n", 400)
    said = interrupted(chat, "Write a short story.", lambda: chat.until(r"\w \w"))
    check(counts(said)[1] > 1, "Ctrl-C in an answer:", said)
    chat.say("Hello!")  # it goes on
    check(counts(chat.prompt())[1] > 2, "after Ctrl-C:", chat.text())
    chat.say("/quit")
    check(chat.end() == 0, "/quit:", chat.text())


def test_prompt(folder):
    chat = Chat(folder)
    said = interrupted(chat, LONG, chat.wait_until_busy)  # the first batch takes most of a second
    check(counts(said)[1] < 160, "Ctrl-C while the prompt is read:", said)
    chat.say("Hello!")  # a question without an answer has not been asked
    said = chat.prompt()
    check(re.search(r"(?m)^H\w+[!.,].*\n", said), "after Ctrl-C:", said)
    chat.say("/quit")
    check(chat.end() == 0, "/quit:", chat.text())


def test_twice(folder):
    for _ in range(5):  # if the first was answered to in time, the second was one at the prompt
        chat = Chat(folder, slow=True)
        chat.say(LONG)
        chat.wait_until_busy()
        time.sleep(0.3)  # at once, it would find nothing begun, and the prompt would be back before the second one
        chat.control_c()
        wait_for("the first Ctrl-C", lambda: not chat.catches() or not chat.echoes())  # or its answer is over already
        chat.control_c()
        code = chat.end()
        check(code == -signal.SIGINT, f"Ctrl-C twice: exit {code}:", chat.text())
        if "[stopped]" not in chat.text():
            return
    check(False, "the second Ctrl-C ends nothing:", chat.text())


def test_at_prompt(folder):
    chat = Chat(folder)
    chat.control_c()
    code = chat.end()
    check(code == -signal.SIGINT, f"Ctrl-C at the prompt: exit {code}:", chat.text())


def piped(model, *more):
    done = subprocess.run([MESHMIND, "chat", "-m", model, "--no-notes", "-t", "1", *more], input="What is 47 times 86?\n",
                          capture_output=True, text=True, timeout=300)
    check(done.returncode == 0, done.stderr)
    return done.stdout, done.stderr


def generated(model, *more):
    command = [MESHMIND, "generate", "-m", model, "-t", "1", "-n", "4", "--json", *more, "What is 47 times 86?"]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_thoughts(folder):
    """The shipped model thinks nothing; under the templates of models that do, its prompts are theirs."""
    opened = retemplate(MODEL, folder / "opened.gguf", OPENS)
    own = retemplate(MODEL, folder / "own.gguf", OWN)
    said, warned = piped(MODEL)
    check("[calculator: 47*86 = 4042]" in said and "no thoughts" not in warned, said, warned)
    same, warned = piped(MODEL, "--no-think")
    check(same == said and "--no-think changes nothing" in warned, same, warned)
    check(piped(own)[0] == said, "a model that may think and does not:", piped(own)[0])
    said, _ = piped(opened, "-n", "3")  # what it thinks is not counted
    check(re.search(r"\[thinks\]\n(.|\n){30}", said) and "[answers]" not in said, "opened:", said)
    events = [json.loads(line) for line in piped(opened, "--json")[0].splitlines()]
    kinds = [e["event"] for e in events]
    check(kinds[1] == "thought" and "text" not in kinds and "call" not in kinds, kinds)
    check("said nothing" in str(events) or "context is full" in str(events), events)
    for model in own, opened:
        said, warned = piped(model, "--no-think")
        check("[thinks]" not in said and "changes nothing" not in warned, "at once:", said, warned)
    counts = {}
    for name, model in ("none", MODEL), ("own", own), ("opened", opened):
        for how in (), ("--no-think",):
            counts[name, len(how)] = json.loads(generated(model, "--chat", *how).stdout)["prompt_tokens"]
    bound = {name: json.loads(generated(model, "--chat", "--json-object").stdout)["prompt_tokens"] for name, model in (("own", own), ("opened", opened))}
    check(bound == {name: counts[name, 1] for name in bound}, "an answer that has to be JSON has no thought before it:", bound, counts)
    check(counts["none", 0] == counts["none", 1] == counts["own", 0] < counts["opened", 0] < counts["own", 1] == counts["opened", 1], counts)
    done = subprocess.run([MESHMIND, "chat", "-m", MODEL, "--json-object", "--docs", folder], capture_output=True, text=True, timeout=300)
    check(done.returncode == 2 and "--docs: an answer that has to be JSON" in done.stderr, done.stderr)
    said, _ = piped(opened, "--json-object")
    check("[thinks]" not in said and json.loads(said.splitlines()[1]) is not None, said)
    refused = generated(own, "--no-think")
    check(refused.returncode == 2 and "together with --chat" in refused.stderr, refused.stderr)


def test_announced(folder):
    """With room for it the model is told its tools as its own template has them, the results come back, and it answers."""
    roomy = with_positions(MODEL, folder / "roomy.gguf", 2048)
    said, _ = piped(roomy)
    check("[calculator: 47*86 = 4042]" in said and "4042" in said.split("4042]")[1], said)
    brief, whole = (json.loads(piped(model, "--json")[0].splitlines()[-1])["prompt_tokens"] for model in (MODEL, roomy))
    check(whole > brief + 60, "tokens of prompts, brief and whole:", brief, whole)
    # where all of that has no room, their names do
    said, _ = piped(roomy, "-c", "256")
    check("[calculator: 47*86 = 4042]" in said, said)


def test_counts(folder):
    """What an answer took is of this answer alone; notes are kept where nobody else looks."""
    home = folder / "home"
    home.mkdir()
    done = subprocess.run([MESHMIND, "chat", "-m", MODEL, "-t", "1", "--json", "--lookup"], input="What is 47 times 86?\n" * 5, capture_output=True, text=True,
                          timeout=300, env={**{k: v for k, v in os.environ.items() if not k.startswith("XDG_")}, "HOME": str(home)}, umask=0o022)
    ends = [e for e in map(json.loads, done.stdout.splitlines()) if e["event"] == "end"]
    check(len(ends) == 5 and all(e["reused_tokens"] <= e["prompt_tokens"] and e["accepted_tokens"] <= e["answer_tokens"] for e in ends), done.stdout, done.stderr)
    check(sum(e["reused_tokens"] for e in ends) > max(e["prompt_tokens"] for e in ends) and
          sum(e["accepted_tokens"] for e in ends) > max(e["answer_tokens"] for e in ends), "too little to tell:", ends)
    place = home / ".local/share/openmeshmind"
    modes = [path.stat().st_mode & 0o777 for path in (place, place / "notes.sqlite")]
    check(modes == [0o700, 0o600], "modes of notes:", [oct(m) for m in modes])


with tempfile.TemporaryDirectory(prefix="omm-chat-") as name:
    for test in test_counts, test_line, test_characters, test_gone, test_answer, test_prompt, test_twice, test_at_prompt, test_thoughts, test_announced:
        test(pathlib.Path(name))

#!/usr/bin/env python3
"""`serve` as a process, on the model that is shipped: what it says when it starts, the texts of `generate` with the same seed,
adapters by name, a key, and how it ends: what is being written is finished first.

usage: serve_test.py SOURCE_DIR MESHMIND [MESHMIND ...]
"""
import atexit, contextlib, http.client, json, pathlib, re, resource, shutil, signal, socket, subprocess, sys, tempfile, threading, time

import live
from live import check, wait_for
from retemplate import GRANITE, GRANITE_MARKS, LLAMA3, LLAMA3_MARKS, OPENS, retemplate, with_positions

SOURCE = pathlib.Path(sys.argv[1]).resolve()
MESHMIND = live.program(sys.argv[2:])
MODEL = SOURCE / "scenarios" / "base" / "openmeshmind-tiny-F16.gguf"
NAME = MODEL.name.removesuffix(".gguf")


class Server:
    def __init__(self, *options, model=MODEL, before=None):
        self.process = subprocess.Popen([MESHMIND, "serve", "-m", model, "--listen", "127.0.0.1:0", "-t", "1", *options],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=SOURCE, preexec_fn=before)
        self.log = []
        atexit.register(self.process.kill)
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr), daemon=True)
        self.reader.start()
        self.said = self.process.stdout.readline()
        at = re.match(r"serving (\S+) at http://127\.0\.0\.1:(\d+)/v1, ", self.said)
        check(at, "serve said:", self.said, *self.log)
        self.name, self.port = at[1], int(at[2])

    def connection(self, timeout=live.LIMIT_S):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, path, body, status=200, **headers):
        with contextlib.closing(self.connection()) as c:
            c.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **headers})
            answer = c.getresponse()
            text = answer.read().decode()
        check(answer.status == status, body, answer.status, text)
        return json.loads(text)

    def get(self, path, **headers):
        with contextlib.closing(self.connection()) as c:
            c.request("GET", path, headers=headers)
            answer = c.getresponse()
            return answer.status, answer.read().decode()

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        code = self.process.wait(timeout=live.LIMIT_S)
        self.reader.join()
        check(code == 0, "exit", code, *self.log)
        return "".join(self.log)


def generate(*options, model=MODEL):
    done = subprocess.run([MESHMIND, "generate", "-m", model, "-t", "2", "--json", *options], capture_output=True, text=True, cwd=SOURCE)
    check(done.returncode == 0, done.stderr)
    return json.loads(done.stdout)["text"]


def make_adapter(path, seed):
    done = subprocess.run([MESHMIND, "train", "-m", MODEL, "-d", SOURCE / "scenarios/base/test.jsonl", "--steps", "2", "--batch", "256",
                           "--rank", "2", "--lr", "0.05", "--new-tokens", "0", "--seed", str(seed), "--out", path],
                          capture_output=True, text=True, cwd=SOURCE)
    check(done.returncode == 0, done.stderr)


def test_texts(folder):
    """Those of `generate`, chat and text, base and adapters; by adapters' names, joined in their order."""
    one, two = folder / "first tone.gguf", folder / "b=2.gguf"
    make_adapter(one, 1)
    make_adapter(two, 2)
    (folder / "terse").mkdir()  # of that name, and no file
    server = Server("--lora", one, "--lora", f"terse={two}=0.5")
    check(server.name == NAME, server.said)
    models = [m["id"] for m in json.loads(server.get("/v1/models")[1])["data"]]
    check(models == [NAME, "first-tone", "terse"], models)
    loras = {NAME: [], "first-tone": [one], "terse": [f"{two}=0.5"]}
    loras["first-tone+terse"] = loras["first-tone"] + loras["terse"]
    loras["terse+first-tone"] = loras["terse"] + loras["first-tone"]
    texts = set()
    for seed, (model, files) in enumerate(loras.items()):
        lora = [x for f in files for x in ("--lora", f)]
        want = generate(*lora, "--chat", "--system", "Be kind.", "--temp", "0.8", "--seed", str(seed), "-n", "30", "Tell me of the sea.")
        body = {"model": model, "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Tell me of the sea."}],
                "temperature": 0.8, "seed": seed, "max_tokens": 30}
        got = server.ask("/v1/chat/completions", body)
        check(got["choices"][0]["message"]["content"] == want, model, got, "not", want)
        want = generate(*lora, "--temp", "1", "--top-k", "20", "--top-p", "0.9", "--min-p", "0.03", "--seed", "7", "-n", "20", "In the morning")
        got = server.ask("/v1/completions", {"model": model, "prompt": "In the morning", "temperature": 1, "top_k": 20, "top_p": 0.9, "min_p": 0.03,
                                             "seed": 7, "max_tokens": 20})
        check(got["choices"][0]["text"] == want, model, got, "not", want)
        texts.add(want)
    check(len(texts) >= 4, "adapters change nothing:", texts)
    server.ask("/v1/chat/completions", {"messages": [{"role": "the sea", "content": "of the morning"}], "the sea": 1}, 400)
    server.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "model": "sea"}, 404)
    log = server.end(signal.SIGHUP)  # as when its terminal is closed
    check("status=404 param=model code=model_not_found" in log, log)
    check("sea" not in log and "morning" not in log, "what was asked is in the log:", log)


def test_turns(folder):
    """The next turn finds the one before computed, and says the same as without that."""
    turns, texts = [], []
    for i in range(3):
        turns.append({"role": "user", "content": f"Question {i}: " + "why is the sky blue over the hills of the north " * 6})
        turns.append({"role": "assistant", "content": f"Because of reason {i}."})
    for keep in "1", "0":
        server = Server("--keep", keep, "--parallel", "2")
        cached = []
        for n in range(1, 6, 2):
            got = server.ask("/v1/chat/completions", {"messages": turns[:n], "seed": 5, "max_tokens": 12})
            cached.append(got["usage"]["prompt_tokens_details"]["cached_tokens"])
            texts.append(got["choices"][0]["message"]["content"])
        check(cached[0] == 0 and (cached[2] > cached[1] > 0) == (keep == "1"), "cached:", cached)
        server.end()
    check(texts[:3] == texts[3:], texts)


def test_context(folder):
    """The last token of a context, as of `generate`."""
    server = Server("-c", "40")
    want = generate("-c", "40", "-n", "500", "--temp", "1", "--seed", "1", "Once upon a time")
    got = server.ask("/v1/completions", {"prompt": "Once upon a time", "temperature": 1, "seed": 1, "max_tokens": 500})
    check(got["choices"][0]["text"] == want and got["choices"][0]["finish_reason"] in ("length", "stop"), got, want)
    server.end()


SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 15}, "born": {"type": ["integer", "null"]},
                                             "tags": {"type": "array", "items": {"enum": ["sea", "hill", "town"]}, "maxItems": 3},
                                             "home": {"$ref": "#/$defs/place"}},
          "required": ["name", "born", "tags", "home"], "additionalProperties": False,
          "$defs": {"place": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"in": {"$ref": "#/$defs/place"}}, "required": ["in"],
                                                           "additionalProperties": False}]}}}


def test_json(folder):
    """Texts that a schema describes are those of `generate`, with proposals or without, and those of `chat` are of that kind, too."""
    path = folder / "person.json"
    path.write_text(json.dumps(SCHEMA))
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
    server = Server()
    for seed in range(4):
        options = "--chat", "--json-schema", path, "--temp", "1", "--seed", str(seed), "-n", "300", "Tell me of somebody."
        want = generate(*options)
        said = json.loads(want)
        check(list(said) == list(SCHEMA["properties"]) and len(said["name"]) <= 15 and set(said["tags"]) <= {"sea", "hill", "town"}, want)
        check(generate("--lookup", *options) == want and generate("--draft", MODEL, *options) == want, "other with proposals:", want)
        body = {"messages": [{"role": "user", "content": "Tell me of somebody."}], "temperature": 1, "seed": seed, "response_format": form}
        got = server.ask("/v1/chat/completions", body)["choices"][0]
        check(got["message"]["content"] == want and got["finish_reason"] == "stop", got, "not", want)
    got = server.ask("/v1/chat/completions", {**body, "max_tokens": 5})["choices"][0]
    check(got["finish_reason"] == "length" and want.startswith(got["message"]["content"]), got)
    server.end()
    done = subprocess.run([MESHMIND, "chat", "-m", MODEL, "-t", "1", "--no-notes", "--json-schema", path, "--json"], input="Who?\n",
                          capture_output=True, text=True, cwd=SOURCE)
    check(done.returncode == 0, done.stderr)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    said = json.loads("".join(e["text"] for e in events if e["event"] == "text"))
    check(list(said) == list(SCHEMA["properties"]), done.stdout)


def test_penalties(folder):
    """Texts of `generate` with the same penalties, alone and beside others; those of the server where a request says nothing."""
    prompt = "12 12 12 12 12 12 12 12 12"
    ways = ({}, {"frequency_penalty": 0.8}, {"presence_penalty": 1.5, "temperature": 1.2}, {"repeat_penalty": 1.4},
            {"repeat_penalty": 1.4, "repeat_last_n": 4}, {"frequency_penalty": 0.5, "repeat_penalty": 1.2, "temperature": 1.5})
    want = []
    for way in ways:
        options = [str(x) for name, value in {"temperature": 0, **way}.items() for x in ("--" + name.replace("temperature", "temp").replace("_", "-"), value)]
        want.append(generate("-n", "30", "--seed", "3", *options, prompt))
    check(len(set(want)) == len(ways), "penalties that change nothing:", want)
    bodies = [{"prompt": prompt, "temperature": 0, "seed": 3, "max_tokens": 30, **way} for way in ways]
    server, default = Server("--parallel", "4"), Server("--repeat-penalty", "1.4", "--repeat-last-n", "4")
    got = [None] * len(bodies) * 2

    def ask(i):
        got[i] = server.ask("/v1/completions", bodies[i % len(bodies)])["choices"][0]["text"]

    for i in range(len(bodies)):
        ask(i)
    clients = [threading.Thread(target=ask, args=(len(bodies) + i,)) for i in range(len(bodies))]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    check(got == want * 2, got, "not", want)
    got = default.ask("/v1/completions", bodies[0])
    check(got["choices"][0]["text"] == want[4], got, want)
    plain = server.ask("/v1/completions", bodies[0])
    check(plain["system_fingerprint"] != got["system_fingerprint"], "servers of other texts have one fingerprint:", got)
    off = default.ask("/v1/completions", {**bodies[0], "repetition_penalty": 1})
    check(off["choices"][0]["text"] == want[0], off, want)
    with contextlib.closing(server.connection()) as c:
        c.request("POST", "/v1/completions", json.dumps({**bodies[1], "stream": True}), {"Content-Type": "application/json"})
        parts = [json.loads(line)["choices"][0]["text"] for line in stream_lines(c.getresponse()) if line != "[DONE]"]
    check("".join(parts) == want[1], parts, want)
    plain = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 4, "logprobs": 0}
    drawn = server.ask("/v1/completions", plain)["choices"][0]["logprobs"]
    one = server.ask("/v1/completions", {"prompt": [70], "echo": True, "max_tokens": 0})["choices"][0]["text"]
    for bias, same in (100, [one] * 4), (-100, drawn["tokens"]), (0, drawn["tokens"]):
        got = server.ask("/v1/completions", {**plain, "logit_bias": {"70": bias}})["choices"][0]["logprobs"]
        check(one not in drawn["tokens"] and got["tokens"] == same, bias, got, drawn)
        check(bias == 100 or got == drawn, "log probabilities are those without a bias", got, drawn)
    for name, value in ("frequency_penalty", 2.5), ("presence_penalty", "much"), ("repeat_penalty", 0), ("repeat_last_n", -2), ("repetition_penalty", 0):
        error = server.ask("/v1/completions", {**bodies[0], name: value}, 400)["error"]
        check(error["param"] == name and error["message"].startswith(f"{name}: accepted are"), error)
    server.end()
    default.end()


# What clients send by themselves, whatever a user asks for: openai-python and LangChain, Continue, Open WebUI by LiteLLM, llama.cpp's own page, vLLM's.
CLIENTS = ({"frequency_penalty": 0, "presence_penalty": 0, "n": 1, "logit_bias": {}, "user": "u", "store": False, "metadata": {}, "service_tier": "auto",
            "parallel_tool_calls": True, "verbosity": "medium", "reasoning_effort": "medium", "prediction": None, "tools": None, "stop": None},
           {"max_tokens": 9, "top_p": 1, "frequency_penalty": 0.0, "presence_penalty": 0.0, "stop": [], "best_of": 1, "cache_prompt": True, "top_k": -1, "min_p": 0},
           {"cache_prompt": True, "dynatemp_range": 0, "dynatemp_exponent": 1, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "xtc_probability": 0,
            "xtc_threshold": 0.1, "typ_p": 1, "repeat_last_n": 64, "repeat_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0, "dry_multiplier": 0,
            "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": -1, "max_tokens": -1, "timings_per_token": False, "reasoning_format": "auto",
            "mirostat": 0, "typical_p": 1, "seed": -1, "samplers": []},
           {"repetition_penalty": 1.0, "length_penalty": 1.0, "ignore_eos": False, "min_tokens": 0, "skip_special_tokens": True,
            "spaces_between_special_tokens": True, "add_generation_prompt": True, "guided_json": None, "echo": False, "top_k": -1})


def test_clients(folder):
    """What they send is let through where it says what holds anyway; browsers' pages that are named may ask; ids of texts."""
    ui = "https://ui.example:3000"
    server = Server("--cors", "http://localhost:1", "--cors", ui)
    body = {"messages": [{"role": "user", "content": "Hello!"}], "temperature": 0}
    want = server.ask("/v1/chat/completions", body)["choices"]
    for more in CLIENTS:
        got = server.ask("/v1/chat/completions", {**body, **more})["choices"]
        check(got[0]["message"] == want[0]["message"], more, got, "not", want)
    cut = "A face: \ud83d"  # as a program writes it that has cut a text in the middle of a character
    replaced, as_cut = ({**body, "messages": [{"role": "user", "content": text}]} for text in (cut.replace("\ud83d", "\ufffd"), cut))
    check(server.ask("/v1/chat/completions", as_cut)["choices"] == server.ask("/v1/chat/completions", replaced)["choices"], "half of a pair")
    check("invalid Unicode" in server.ask("/v1/chat/completions", {**body, "model": cut}, 400)["error"]["message"], "half of a pair in a name")
    both = server.ask("/v1/completions", {"prompt": "Once", "n": 2, "best_of": 2, "max_tokens": 3, "seed": 1})["choices"]
    check(len(both) == 2, both)
    for more in {"mirostat": 2}, {"typical_p": 0.5}, {"best_of": 2}, {"ignore_eos": True}, {"dry_multiplier": 0.8}, {"grammar": "root ::= [0-9]"}:
        error = server.ask("/v1/chat/completions", {**body, **more}, 400)["error"]
        check(error["param"] in more and "not supported; accepted: " in error["message"], error)
    for origin, allowed in (ui, ui), ("https://evil.example", None):
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
        for method, path, status in ("OPTIONS", "/v1/chat/completions", 204 if allowed else 403), ("GET", "/v1/models", 200), ("GET", "/none", 404):
            with contextlib.closing(server.connection()) as c:
                c.request(method, path, headers=asked)
                answer = c.getresponse()
                answer.read()
            check(answer.status == status and answer.getheader("Access-Control-Allow-Origin") == allowed, origin, method, path, answer.getheaders())
    ids = server.ask("/tokenize", {"content": "12 * 7 = 84"})["tokens"]
    check(len(ids) > 2 and server.ask("/detokenize", {"tokens": ids}) == {"content": "12 * 7 = 84"}, ids)
    text = server.ask("/v1/completions", {"prompt": "12 * 7 =", "temperature": 0, "max_tokens": 4})
    again = server.ask("/v1/completions", {"prompt": server.ask("/tokenize", {"content": "12 * 7 =", "add_special": True})["tokens"], "temperature": 0, "max_tokens": 4})
    check(text["choices"][0]["text"] == again["choices"][0]["text"] and text["usage"]["prompt_tokens"] == again["usage"]["prompt_tokens"], text, again)
    check(server.ask("/tokenize", {"text": "x"}, 400)["error"]["message"].startswith("text: not known here"), "an unknown member")
    check(server.get("/tokenize")[0] == 405, "GET of /tokenize")
    server.ask("/detokenize", {"tokens": [1] * 200_000}, 413)
    log = server.end()
    check("evil" not in log, log)


def stream_lines(answer):
    for line in iter(answer.readline, b""):
        if line.startswith(b"data: "):
            yield line[6:].decode().strip()


def test_announced(folder):
    """A model with room for it is told its tools as its own template says: the shipped one knows that form, too."""
    model = with_positions(MODEL, folder / "roomy.gguf", 2048)
    parameters = {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}
    tools = [{"type": "function", "function": {"name": "calculator", "description": "Works out sums.", "parameters": parameters}}]
    body = {"messages": [{"role": "user", "content": "What is 12 * 7?"}], "temperature": 0, "tools": tools}
    spent = []
    for given in MODEL, model:
        server = Server(model=given)
        got = server.ask("/v1/chat/completions", body)
        call = got["choices"][0]["message"]["tool_calls"][0]["function"]
        check(call["name"] == "calculator" and json.loads(call["arguments"]) == {"expression": "12*7"}, got)
        spent.append(got["usage"]["prompt_tokens"])
        server.end()
    check(spent[1] > spent[0] + 60, "tokens of a prompt, brief and whole:", spent)


def test_bare_calls(folder):
    """Of a model that writes calls bare, as Llama 3 does."""
    learn_calls(folder, "llama3", "bare", LLAMA3, LLAMA3_MARKS)


def test_listed_calls(folder):
    """Of one that lists them behind a mark of its own, as Granite 3 does."""
    learn_calls(folder, "granite", "granite", GRANITE, GRANITE_MARKS)


def learn_calls(folder, family, form, jinja, marks):
    """A model has learned some calls: read in its form, streamed, and asked for; judged so by `train`."""
    model = retemplate(MODEL, folder / f"{family}.gguf", jinja, marks)
    shown = json.loads(subprocess.run([MESHMIND, "inspect", model, "--json"], capture_output=True, text=True, check=True).stdout)
    check(shown["chat_template"] == family and shown["chat"] == {"announces_tools": False, "calls": form, "thinking": "none"}, shown["chat"])
    tools = [{"type": "function", "function": {"name": "calculator", "parameters": {
        "type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}}]
    sums = {"12*7": 84, "30+4": 34, "9-2": 7}

    def turns(text, value):
        call = {"name": "calculator", "arguments": json.dumps({"expression": text})}
        return [{"role": "user", "content": f"What is {text}?"}, {"role": "assistant", "content": None, "tool_calls": [{"function": call}]},
                {"role": "tool", "content": str(value)}, {"role": "assistant", "content": f"It is {value}."}]

    data = folder / f"{form}.jsonl"
    data.write_text("".join(json.dumps({"client": "a", "tools": tools, "messages": turns(*one)}) + "\n" for one in sums.items()))
    done = subprocess.run([MESHMIND, "train", "-m", model, "--data", data, "--eval", data, "--out", folder / f"{form}-lora.gguf", "--report",
                           folder / f"{form}-report", "--steps", "40", "--batch", "256", "--lr", "0.01", "-t", "2"], capture_output=True, text=True,
                          cwd=SOURCE, timeout=live.LIMIT_S)
    check(done.returncode == 0, done.stderr)
    after = json.loads((folder / f"{form}-report" / "report.json").read_text())["evaluation"]["after"]
    check(after["calls"] == after["call_exact"] == len(sums), after)
    server = Server("--lora", f"sum={folder / f'{form}-lora.gguf'}", model=model)
    body = {"model": "sum", "tools": tools, "temperature": 0, "max_tokens": 60}
    for text, value in sums.items():
        asked = turns(text, value)
        for more in {}, {"tool_choice": "required"}, {"tool_choice": {"type": "function", "function": {"name": "calculator"}}}:
            got = server.ask("/v1/chat/completions", {**body, **more, "messages": asked[:1]})["choices"][0]
            calls = got["message"]["tool_calls"]
            check(len(calls) == 1 and calls[0]["function"] == {"name": "calculator", "arguments": json.dumps({"expression": text})}, got)
            check(got["finish_reason"] == "tool_calls" and not got["message"]["content"], got)
        with contextlib.closing(server.connection()) as c:
            c.request("POST", "/v1/chat/completions", json.dumps({**body, "stream": True, "messages": asked[:1]}), {"Content-Type": "application/json"})
            parts = [json.loads(line)["choices"][0]["delta"] for line in stream_lines(c.getresponse()) if line != "[DONE]"]
        functions = [call["function"] for part in parts for call in part.get("tool_calls", [])]
        check("".join(f.get("arguments", "") for f in functions) == json.dumps({"expression": text}), parts)
        check([f["name"] for f in functions if f.get("name")] == ["calculator"] and not any(p.get("content") for p in parts), parts)
        got = server.ask("/v1/chat/completions", {**body, "messages": asked[:3]})["choices"][0]
        check(got["message"]["content"] == f"It is {value}." and got["finish_reason"] == "stop", got)
    held = {**body, "messages": turns("12*7", 84)[:1],
            "response_format": {"type": "json_schema", "json_schema": {"name": "one", "schema": {"enum": [{"sum": 1}, {"sum": 2}]}}}}
    for seed in range(12):  # beside a format: calls, as without it, or what it describes, and nothing else
        for stream in False, True:
            got, parts = None, []
            with contextlib.closing(server.connection()) as c:
                c.request("POST", "/v1/chat/completions", json.dumps({**held, "seed": seed, "temperature": 3 * (seed > 0), "stream": stream}),
                          {"Content-Type": "application/json"})
                answer = c.getresponse()
                parts = [json.loads(line)["choices"][0] for line in stream_lines(answer) if line != "[DONE]"] if stream else json.loads(answer.read())["choices"]
            said = [part.get("delta", part.get("message")) for part in parts]
            content = "".join(one.get("content") or "" for one in said)
            calls = [call["function"] for one in said for call in one.get("tool_calls") or []]
            check(bool(calls) == (not content) and (calls or json.loads(content)["sum"] in (1, 2)), parts)
            check(seed > 0 or "".join(f.get("arguments", "") for f in calls) == json.dumps({"expression": "12*7"}), parts)
            check(parts[-1]["finish_reason"] in (("tool_calls", "length") if calls else ("stop",)), parts)
    got = server.ask("/v1/chat/completions", {**held, "tool_choice": "none"})["choices"][0]
    check(json.loads(got["message"]["content"])["sum"] in (1, 2) and got["finish_reason"] == "stop", got)
    got = server.ask("/v1/chat/completions", {**held, "tool_choice": "required"})["choices"][0]
    check(got["message"]["tool_calls"] and not got["message"]["content"], got)
    got = server.ask("/v1/chat/completions", {**body, "tool_choice": "none", "messages": turns("12*7", 84)[:1]})["choices"][0]
    check("tool_calls" not in got["message"], got)
    server.end()


def test_thoughts(folder):
    """Of a model whose prompt opens a thought: apart from the answer, or none, as the request says or else the server."""
    model = retemplate(MODEL, folder / "thinks.gguf", OPENS)
    options = "--chat", "--temp", "1", "--seed", "7", "-n", "60", "Tell me a story."
    thought, answer = generate(*options, model=model).strip(), generate("--no-think", *options, model=model)
    check(thought and answer and thought != answer.strip(), thought, answer)
    body = {"messages": [{"role": "user", "content": "Tell me a story."}], "temperature": 1, "seed": 7, "max_tokens": 60}
    off = {"chat_template_kwargs": {"enable_thinking": False}}, {"reasoning_effort": "none"}
    prints = set()
    for server, plain, asked in (Server(model=model), [*off], [{}, {"reasoning_effort": "low"}]), \
                                (Server("--no-think", model=model), [{}, *off], [{"chat_template_kwargs": {"enable_thinking": True}}]):
        for more in asked:
            got = server.ask("/v1/chat/completions", {**body, "logprobs": True, **more})
            one = got["choices"][0]
            check(one["message"]["reasoning_content"] == thought and one["message"]["content"] == "" and one["logprobs"]["content"] == [], one)
            spent = got["usage"]["completion_tokens_details"]["reasoning_tokens"]
            check(0 < spent <= got["usage"]["completion_tokens"], got)
            with contextlib.closing(server.connection()) as c:
                c.request("POST", "/v1/chat/completions", json.dumps({**body, "stream": True, **more}), {"Content-Type": "application/json"})
                parts = [json.loads(line)["choices"][0]["delta"] for line in stream_lines(c.getresponse()) if line != "[DONE]"]
            check("".join(p.get("reasoning_content", "") for p in parts) == thought and not any(p.get("content") for p in parts), parts)
            check(sum("reasoning_content" in p for p in parts) > 10, "all at once:", parts)
        for more in plain:
            got = server.ask("/v1/chat/completions", {**body, **more})
            message = got["choices"][0]["message"]
            check(message["content"] == answer and "reasoning_content" not in message, message, answer)
            check("completion_tokens_details" not in got["usage"], got)
        prints.add(got["system_fingerprint"])
        server.end()
    check(len(prints) == 2, prints)


def test_end(folder):
    """SIGTERM: a text that is being written is written to its end, nothing new begins; a second one ends it at once."""
    for signals in 1, 2:
        server = Server()
        with contextlib.closing(server.connection()) as c:
            c.request("POST", "/v1/completions", json.dumps({"prompt": "x", "temperature": 9, "seed": 3, "max_tokens": 400, "stream": True}),
                      {"Content-Type": "application/json"})
            lines = stream_lines(c.getresponse())
            next(lines)
            if signals == 2:
                server.process.send_signal(signal.SIGTERM)
                wait_for("stopping", lambda: any(" stopping " in line for line in server.log) or server.process.poll() is not None)
            log = server.end()
            got = list(lines)
            done = got[-1:] == ["[DONE]"] and json.loads(got[-2])["choices"][0]["finish_reason"] in ("length", "stop")
            stopped = "the server was stopped" in got[-1]
            check(done if signals == 1 else done or stopped, got[-2:], log)


def test_key(folder):
    key = folder / "key"
    key.write_text("sesame\r\n")
    key.chmod(0o600)
    server = Server("--api-key-file", key, "--name", "mine:1")
    check(server.get("/v1/models")[0] == 401 and server.get("/health") == (200, '{"status":"ok"}\n'), "without a key")
    check(json.loads(server.get("/v1/models/mine:1", Authorization="Bearer sesame")[1])["id"] == "mine:1", "with the key")
    for path in "/tokenize", "/detokenize":
        server.ask(path, {"content": "x"}, 401)
    check(server.ask("/tokenize", {"content": ""}, Authorization="Bearer sesame") == {"tokens": []}, "with the key")
    status, text = server.get("/v1/models/other", Authorization="Bearer sesame")
    check(status == 404 and "there is no model other; accepted: mine:1" in text, status, text)
    check("sesame" not in server.end(), "the key is in the log")


def test_written_to(folder):
    """A model that is streamed is not what it was: the page for those who watch says so, without a path."""
    model = folder / "streamed.gguf"
    shutil.copy(MODEL, model)
    for options in ["--stream"], []:
        server = Server(*options, model=model)
        check(server.get("/health") == (200, '{"status":"ok"}\n'), "before it is written to")
        time.sleep(0.05)  # a tick of the clock that stamps files
        with open(model, "r+b") as f:
            f.seek(model.stat().st_size // 2)
            byte = f.read(1)
            f.seek(-1, 1)
            f.write(byte)
        status, text = server.get("/health")
        if options:
            check(status == 503 and json.loads(text)["status"] == "broken" and "was written to" in text and str(folder) not in text, status, text)
            server.ask("/v1/completions", {"prompt": "x", "max_tokens": 2}, 500)
        else:
            check((status, text) == (200, '{"status":"ok"}\n'), "it is in memory:", status, text)
        server.end()


def test_few_files(folder):
    """Fewer files may be open than there may be connections: said, and more taken where the system gives more."""
    for most, says in ((64, True), (1024, False)):
        server = Server(before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (60, most)))
        check(json.loads(server.get("/v1/models")[1])["data"], "nothing is served")
        log = server.end()
        check(bool(re.search(r"WARN few_open_files allowed=64 wanted=288 then=.*--connections", log)) == says, most, log)


def refused(words, *options, code=2):
    done = subprocess.run([MESHMIND, "serve", *options], capture_output=True, text=True, cwd=SOURCE, timeout=live.LIMIT_S)
    check(done.returncode == code and re.search(words, done.stderr), options, done.returncode, done.stderr)


def test_options(folder):
    key = folder / "open"
    key.write_text("sesame\n")
    key.chmod(0o644)
    m = ["-m", MODEL]
    refused("which model")
    refused("--queue 65537: accepted are 0 to 65536", *m, "--queue", "65537")
    refused("--connections 0: accepted are 1 to 16384", *m, "--connections", "0")
    refused(r"--lora x=: accepted is \[NAME=\]FILE\[=X\]", *m, "--lora", "x=")
    for text, words in (("a b\n", "printable ASCII"), ("\r\n", "first line is empty")):
        wrong = folder / "wrong"
        wrong.touch(0o600)
        wrong.write_text(text)
        refused(words, *m, "--api-key-file", wrong)
    refused("--parallel 0: accepted are 1 to 64", *m, "--parallel", "0")
    refused("--keep 5000: accepted are 0 to 4096", *m, "--keep", "5000")
    refused("--log-level loud; accepted: debug", *m, "--log-level", "loud")
    for place in "here", "8080", ":8080", "localhost", "127.0.0.1:x":
        refused(f"serve: --listen {place}: accepted are .*127.0.0.1:8080, localhost:8080 or", *m, "--listen", place)
    for origin in "http://localhost:3000/", "localhost:3000", "null", "HTTP://a":
        refused(f"origin {origin}: accepted are", *m, "--cors", origin)
    refused("frequency-penalty 3: must be -2 to 2", *m, "--frequency-penalty", "3")
    refused("presence-penalty -2.5: must be -2 to 2", *m, "--presence-penalty", "-2.5")
    refused("repeat-penalty 0: must be 0.01 to 100", *m, "--repeat-penalty", "0")
    refused("nothing.gguf", *m, "--lora", "a=nothing.gguf")
    refused("two models are named a: --name NAME and --lora NAME=FILE give others", *m, "--name", "a", "--lora", f"a={MODEL}")
    refused("accepted are 1 to 64 letters", *m, "--name", "a b")
    refused("only its owner may read it", *m, "--api-key-file", key)
    refused("top-p 2", *m, "--top-p", "2")
    refused("min-p 2", *m, "--min-p", "2")
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        refused("in use", *m, "--listen", f"127.0.0.1:{taken.getsockname()[1]}", code=3)


with tempfile.TemporaryDirectory(prefix="omm-serve-") as name:
    for test in test_texts, test_turns, test_context, test_json, test_penalties, test_clients, test_announced, test_bare_calls, test_listed_calls, test_thoughts, test_end, test_key, test_written_to, test_few_files, test_options:
        test(pathlib.Path(name))

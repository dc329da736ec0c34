#!/usr/bin/env python3
"""Tokens a second of an OpenAI-compatible server with so many clients at once: each asks for a text of so many tokens, over and
over, all counts of clients by turns in one run; then what one turn more of a conversation costs with what is kept.

usage: serve_load.py URL [URL ...] [--clients 1,4,8] [--prompt 64] [--tokens 64] [--temp 0] [--repeat 3]

URLs end in /v1; several servers are asked by turns, and the ratio of each to the first is printed.  What counts is what the
answers say that they have; a model of random weights (`meshmind synth`) hardly ends by itself.
"""
import argparse, collections, concurrent.futures, json, statistics, time, urllib.error, urllib.request

parser = argparse.ArgumentParser(usage=__doc__)
parser.add_argument("urls", nargs="+")
parser.add_argument("--clients", default="1,2,4,8")
parser.add_argument("--prompt", type=int, default=64, help="token ids of each prompt, none like another's")
parser.add_argument("--tokens", type=int, default=64)
parser.add_argument("--temp", type=float, default=0)
parser.add_argument("--repeat", type=int, default=3)
o = parser.parse_args()
made = 0
failures = collections.Counter()


def ask(url, ids, tokens):
    """Tokens of the answer, and of the prompt those that were not computed again."""
    body = {"prompt": ids, "max_tokens": tokens, "temperature": o.temp, "seed": len(ids)}
    request = urllib.request.Request(url + "/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        usage = json.load(urllib.request.urlopen(request, timeout=3600))["usage"]
    except urllib.error.HTTPError as error:
        failures[url, error.code] += 1
        return 0, 0
    return usage["completion_tokens"], (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)


def fresh_prompt(count):
    global made
    made += 1
    return [5 + (made * 7919 + i * i * 31) % 900 for i in range(count)]


def rate(url, clients):
    prompts = [fresh_prompt(o.prompt) for _ in range(clients)]
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        tokens = sum(t for t, _ in pool.map(lambda p: ask(url, p, o.tokens), prompts))
    return tokens / (time.monotonic() - begin)


counts = [int(c) for c in o.clients.split(",")]
for url in o.urls:
    ask(url, fresh_prompt(o.prompt), 4)
rates = {(url, c): [] for url in o.urls for c in counts}
for _ in range(o.repeat):
    for c in counts:
        for url in o.urls:
            rates[url, c].append(rate(url, c))
for url in o.urls:
    for c in counts:
        r, one, first = (statistics.median(rates[k]) for k in ((url, c), (url, counts[0]), (o.urls[0], c)))
        print(f"{url}: {c} at once: {r:.1f} tokens/s ({min(rates[url, c]):.1f} .. {max(rates[url, c]):.1f}), {r / one:.2f} x {counts[0]}, "
              f"{r / first:.2f} x the first server")
for url in o.urls:
    ids = fresh_prompt(o.prompt * 4)
    times = []
    for more in 0, 8:
        begin = time.monotonic()
        _, cached = ask(url, ids + fresh_prompt(more), 1)
        times.append(time.monotonic() - begin)
    print(f"{url}: {len(ids)} tokens of prompt {times[0]:.2f} s, the same and 8 more {times[1]:.2f} s ({cached} of them kept)")
for (url, code), count in failures.items():
    print(f"{url}: {count} answers of status {code}, which count as no token")

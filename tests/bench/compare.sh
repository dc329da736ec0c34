#!/usr/bin/env bash
# Another engine's llama-bench against `meshmind bench` on the same file, turn by turn, so that both
# meet the same moods of the machine; prints both speeds and their ratio for every turn, and medians.
#
# usage: tests/bench/compare.sh -m MODEL --other LLAMA_BENCH [--other ...] [-p N] [-n N] [-t N] [-r TURNS]
#                               [--activations f32|q8] [--meshmind PATH]
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
meshmind=$here/build/release/meshmind
model= prompt=256 generate=64 threads= turns=5 activations=q8 others=()

usage() {
    sed -n 's/^# \{0,1\}//; 5,6p' "$0" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    [ "$1" = --help ] && { sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0; }
    [ $# -ge 2 ] || usage
    case $1 in
    -m) model=$2 ;;
    --other) others+=("$2") ;;
    -p) prompt=$2 ;;
    -n) generate=$2 ;;
    -t) threads=$2 ;;
    -r) turns=$2 ;;
    --activations) activations=$2 ;;
    --meshmind) meshmind=$2 ;;
    *) echo "compare.sh: unknown option '$1'" >&2; usage ;;
    esac
    shift 2
done
[ -n "$model" ] && [ ${#others[@]} -gt 0 ] || usage
for number in "$prompt" "$generate" "$turns" "${threads:-1}"; do
    [[ $number =~ ^[0-9]+$ ]] || { echo "compare.sh: '$number' is no number" >&2; exit 2; }
done
[ "$turns" -ge 1 ] || { echo "compare.sh: -r must be at least 1" >&2; exit 2; }
for program in "$meshmind" "${others[@]}"; do
    [ -x "$program" ] || { echo "compare.sh: no program at $program" >&2; exit 2; }
done
threads=${threads:-$(nproc)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for turn in $(seq "$turns"); do
    "$meshmind" bench -m "$model" -p "$prompt" -n "$generate" -t "$threads" --activations "$activations" \
        --repeat 1 --peak-seconds 0 --json >"$work/ours.$turn"
    for i in "${!others[@]}"; do
        "${others[$i]}" -m "$model" -p "$prompt" -n "$generate" -t "$threads" -ngl 0 -r 1 -o json \
            >"$work/other$i.$turn" 2>"$work/log" || { tail -3 "$work/log" >&2; exit 3; }
    done
done

python3 - "$work" "$turns" "${others[@]}" <<'END'
import json, pathlib, statistics, sys
work, turns, others = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]

def ours(turn):
    run = json.loads((work / f"ours.{turn}").read_text())["runs"][0]
    return {what: run[what]["tokens_per_second"]["median"] for what in ("prefill", "decode") if what in run}

def theirs(i, turn):
    out = {}
    for test in json.loads((work / f"other{i}.{turn}").read_text()):
        out["prefill" if test["n_gen"] == 0 else "decode"] = test["avg_ts"]
    return out

for i, name in enumerate(others):
    print(name)
    for what in ("prefill", "decode"):
        pairs = [(ours(t).get(what), theirs(i, t).get(what)) for t in range(1, turns + 1)]
        if None in pairs[0]:
            continue
        for a, b in pairs:
            print(f"  {what:8} {a:9.1f} {b:9.1f} tokens/s   ratio {a / b:.2f}")
        ratios = sorted(a / b for a, b in pairs)
        print(f"  {what:8} {statistics.median(a for a, _ in pairs):9.1f} {statistics.median(b for _, b in pairs):9.1f} "
              f"median     ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} .. {ratios[-1]:.2f})")
END

#!/usr/bin/env bash
# fuzz.sh - build every fuzz target with libFuzzer and the sanitizers (clang) and run them one after another.
#
#   tools/fuzz.sh [SECONDS] [TARGET...]      300 seconds each; all targets, or those named (gguf_fuzz ...)
#
# Each begins with its corpus, FOLDER/fuzz/TARGET, and with what earlier runs found, build/fuzz/found/TARGET,
# where new inputs go.  What reaches new code and is small may be copied into the corpus, which the tests
# replay (./test).  A fault lies in build/fuzz/faults/; build/fuzz/bin/TARGET FILE repeats it.
# Exit codes: 0 no fault, 1 a fault, 2 usage, 3 no build.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 3

INPUT_BYTES_MAX=65536 # as tests/harness/fuzz_replay.c
seconds=300
case "${1-}" in
-h | --help)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
[0-9]*)
    seconds=$1
    shift
    ;;
esac
. tools/setup.sh
need_packages build fuzz || exit 3
mkdir -p build/fuzz/faults
cmake --preset fuzz >/dev/null && cmake --build --preset fuzz >build/fuzz/build.log || {
    echo "tools/fuzz.sh: no build; see build/fuzz/build.log" >&2
    exit 3
}
targets=("$@")
[ $# -gt 0 ] || for program in build/fuzz/bin/*_fuzz; do targets+=("${program##*/}"); done

status=0
printf '%-20s %12s %9s %7s %7s  %s\n' target inputs seconds edges corpus found
for target in "${targets[@]}"; do
    corpus=$(echo ./*/fuzz/"$target")
    if [ ! -x "build/fuzz/bin/$target" ] || [ ! -d "$corpus" ]; then
        echo "tools/fuzz.sh: no target '$target' (there are: $(cd build/fuzz/bin && echo *_fuzz))" >&2
        exit 2
    fi
    found=build/fuzz/found/$target log=build/fuzz/$target.log
    mkdir -p "$found"
    nice -n 19 "build/fuzz/bin/$target" -max_total_time="$seconds" -max_len=$INPUT_BYTES_MAX -timeout=20 \
        -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="build/fuzz/faults/$target-" \
        "$found" "$corpus" 2>"$log"
    code=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    added=$(sed -n 's/^stat::new_units_added: *//p' "$log")
    edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
    spent=$(sed -n 's/^Done .* in \([0-9]*\) second.*/\1/p' "$log")
    printf '%-20s %12s %9s %7s %7s  %s\n' "$target" "${runs:-?}" "${spent:-?}" "${edges:-?}" \
        "$(find "$corpus" -type f | wc -l)" "${added:-?}"
    if [ $code -ne 0 ]; then
        status=1
        echo "$target: a fault (exit $code):"
        grep -m 3 -E 'ERROR|runtime error|SUMMARY|Test unit written' "$log"
    fi
done
exit $status

#!/usr/bin/env bash
# make_base.sh OUT.gguf [WORK_FOLDER]: the base model of scenarios/base from nothing: texts, vocabulary, weights.
# The same bytes on any machine.  A run that was stopped goes on where it was, if the work folder is the same.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:?which file is the model to be?}
work=${2:-$root/build/base}
meshmind=${MESHMIND:-$root/build/release/meshmind}
base=$root/scenarios/base
mkdir -p "$work"
# text NAME SHA256 ARGUMENTS: a text of the corpus, unless it is there already.
text() {
    local name=$1 digest=$2
    shift 2
    if ! echo "$digest  $work/$name" | sha256sum --check --status 2>/dev/null; then
        python3 "$base/corpus.py" "$work/$name" "$@" >/dev/null
        echo "$digest  $work/$name" | sha256sum --check --quiet ||
            { echo "make_base.sh: corpus.py wrote another $name than it should" >&2; exit 3; }
    fi
}
text vocabulary.txt 21d7d6dcd301cf62439f452d84f0463945ab636515c10a761b874231a4173a8d --mb 52 --seed 1 --phase 1
text part1.txt 579b0af30c5503e28ddf4a94e95c23c88fbe33df2ee71037cade249d2f28bb6f --mb 24 --seed 7 --phase 4
text part2.txt dde5b8c795ada23412dd98f9d6fb8b9b2ce1ee9f13c2cbbd42e1e645075284a6 --mb 1.5 --seed 11 --phase 5
exec "$meshmind" pretrain "$base/pretrain.yaml" --data "$work" --out "$out" --checkpoint "$work/checkpoint" --resume

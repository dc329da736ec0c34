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
text part1.txt 38bb0d1597d96470cf0b21e404717f9794b2a9549daccf2e4b3a69c5a6bdfc3e --mb 42 --seed 7 --phase 4
text part2.txt d40fea3e990b385e9fc58b96a240e26a77a445331b2665035498b6e20f6887c0 --mb 2 --seed 11 --phase 5
exec "$meshmind" pretrain "$base/pretrain.yaml" --data "$work" --out "$out" --checkpoint "$work/checkpoint" --resume

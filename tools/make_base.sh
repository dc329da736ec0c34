#!/usr/bin/env bash
# make_base.sh OUT.gguf [WORK_FOLDER [OPTION...]]: the base model of scenarios/base from nothing: texts, vocabulary, weights.
# The same bytes on any machine.  A run that was stopped goes on where it was, if the work folder is the same.
# Options are those of `meshmind pretrain`: --threads, --json.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:?which file is the model to be?}
work=${2:-$root/build/base}
shift $(($# < 2 ? $# : 2))
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
text part1.txt 29873e6cc6771076c9e57d4a52104dc8450e87c4db6a2c54f47f56ee990a15f7 --mb 2 --seed 13 --phase 6
text part2.txt dac07ed1a73aa2f041ed9fa27266c083cbd0c108fbc29b7c722ef88cb6b356f1 --mb 34 --seed 7 --phase 4
exec "$meshmind" pretrain "$base/pretrain.yaml" --data "$work" --out "$out" --checkpoint "$work/checkpoint" --resume "$@"

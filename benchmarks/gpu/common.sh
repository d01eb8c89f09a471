# Sourced by the jobs of this folder, after the settings that README.md lists.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
DATA=$(realpath "${DATA:-$ROOT/carry}") WEIGHTS=$(realpath "${WEIGHTS:-$ROOT/carry}")
: "${OUT:?a folder for the rows}" "${LIMIT:=540}" "${DEVICE:=cuda}" "${PYTHON:=python3}"
mkdir -p "$OUT"
OUT=$(realpath "$OUT")
export PYTHONPATH=$ROOT/src PYTHONUNBUFFERED=1

# Data sets in data/, weights beside it: rows go on only where these are named as they were.
# Trainings that were interrupted lie here as long as the machine is held.
WORK=${WORK:-${TMPDIR:-/tmp}/scaseg-jobs}
mkdir -p "$WORK/data"
cd "$WORK"
for one in "$DATA"/*/; do [ ! -d "$one" ] || ln -sfn "${one%/}" data/; done
for one in "$WEIGHTS"/*.safetensors; do [ ! -f "$one" ] || ln -sfn "$one" .; done

# Seconds of LIMIT that are left, less those that a command needs to end in.
left() { echo $((LIMIT - SECONDS - ${1:-0} > 0 ? LIMIT - SECONDS - ${1:-0} : 1)); }

# Asked to end when the time is over, and not killed before it had half a minute to do so.
scaseg() { timeout --signal=INT --kill-after=30 "$(left)" "$PYTHON" -m scaseg.cli "$@"; }

# A comparison goes on from its rows in docs/results/NAME, whose folder here is runs/NAME.
begin() {
    [ ! -d "runs/$1" ] || return 0
    mkdir -p "runs/$1"
    for one in results.csv recipe.yaml; do
        [ ! -f "$ROOT/docs/results/$1/$one" ] || cp "$ROOT/docs/results/$1/$one" "runs/$1/"
    done
}

# The rows and recipes of runs/NAME and of studies in it, as OUT/NAME.tgz, / of NAME as _.
keep() {
    cd "$WORK/runs"
    find "$1" -maxdepth 2 -name results.csv -printf '%p\n%h/recipe.yaml\n' |
        tar czf "$OUT/${1//\//_}.tgz" -T -
}

# Tables of `scaseg bench`, FOLDER/WHAT.csv, as OUT/h200_FOLDER.csv.
tables() {
    for one in "$@"; do [ ! -f "$one" ] || cp "$one" "$OUT/h200_$(dirname "$one").csv"; done
}

# Trainings side by side share the GPU under MPS; without it they take turns.
start_mps() {
    if command -v nvidia-cuda-mps-control > /dev/null; then
        nvidia-cuda-mps-control -d || echo "MPS runs already"
    fi
}

#!/usr/bin/env bash
# What coefficients follow from at a tenth of the rate, in the full trainings of ATLANTIS.
source "$(dirname "$0")/common.sh"
begin score_rate
if [ ! -f runs/score_rate/results.csv ]; then # the average has no scores: its rows are the same
    grep -E '^(variant|average),' "$ROOT/docs/results/atlantis/results.csv" > runs/score_rate/results.csv
    sed 's/^  head_lr: .*/&\n  score_lr_factor: 0.1/' "$ROOT/docs/results/atlantis/recipe.yaml" \
        > runs/score_rate/recipe.yaml
fi
trap 'keep score_rate' EXIT
start_mps
scaseg compare atlantis_contexts --data data/atlantis --backbone-weights vgg16_features_fp16.safetensors \
    --training.score_lr_factor 0.1 --contexts average sca dot object \
    --seeds "${SEEDS:-3}" --jobs "${JOBS:-5}" --split test --keep nothing ${EXTRA:-} \
    --time-limit "$(left 60)" --out runs/score_rate

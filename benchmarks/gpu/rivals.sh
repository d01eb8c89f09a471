#!/usr/bin/env bash
# Contexts of other papers on ATLANTIS: the rows that docs/rivals.md has not.
source "$(dirname "$0")/common.sh"
begin rivals/atlantis
trap 'keep rivals/atlantis' EXIT
start_mps
scaseg compare atlantis_contexts --data data/atlantis --backbone-weights vgg16_features_fp16.safetensors \
    --contexts none average parsenet psp dilated aspp dagrnn crf dot ccnet gcnet a2 ema object psa sca \
    --seeds "${SEEDS:-3}" --jobs "${JOBS:-5}" --split test --keep nothing ${EXTRA:-} \
    --time-limit "$(left 60)" --out runs/rivals/atlantis

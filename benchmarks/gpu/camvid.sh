#!/usr/bin/env bash
# The strongest contexts of ATLANTIS on CamVid.
source "$(dirname "$0")/common.sh"
begin rivals/camvid
trap 'keep rivals/camvid' EXIT
start_mps
scaseg compare camvid_contexts --data data/camvid --backbone-weights vgg16_features_fp16.safetensors \
    --contexts none object psp aspp dot sca --seeds "${SEEDS:-3}" --jobs "${JOBS:-6}" \
    --split test --keep nothing ${EXTRA:-} --time-limit "$(left 60)" --out runs/rivals/camvid

#!/usr/bin/env bash
# MobileNetV2 cut off after its fifth stage, learning, on ATLANTIS: does selection lead there too?
source "$(dirname "$0")/common.sh"
begin cut/atlantis
trap 'keep cut' EXIT
start_mps
# channels_last: side by side the GPU is the limit, not the host, and its kernels take 9.9 ms of 15.9
scaseg compare atlantis_contexts --data data/atlantis --backbone mobilenet_v2 \
    --backbone-weights mobilenet_v2_features.safetensors --model.backbone_options.stages 5 \
    --model.backbone_options.stride 16 --head pointwise --training.score_lr_factor 0.1 \
    --machine.channels_last true \
    --contexts average cells sca:activation=exp none dot object \
    --seeds "${SEEDS:-3}" --jobs "${JOBS:-9}" --split test --keep nothing ${EXTRA:-} \
    --time-limit "$(left 60)" --out runs/cut/atlantis

#!/usr/bin/env bash
# The largest image that trains with all of the GPU's memory, activations kept and checkpointed.
source "$(dirname "$0")/common.sh"
timeout --kill-after=30 "$(left)" "$PYTHON" "$ROOT/benchmarks/largest_image.py" --gib 0 \
    --backbones ${BACKBONES:-vgg16 mobilenet_v2} ${EXTRA:-} --out "$OUT/h200_largest_image.csv"

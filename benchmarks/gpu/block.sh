#!/usr/bin/env bash
# The block and a step of the paper's network, eager and compiled.
source "$(dirname "$0")/common.sh"
trap 'tables block*/block.csv step*/step.csv' EXIT

scaseg bench --what block --device "$DEVICE" --precision bf16 --channels 512 --repeats 7 \
    --batch 3 --sizes "${SMALL:-3136}" --compiled ${EXTRA:-} --out block_3x3136
scaseg bench --what block --device "$DEVICE" --precision bf16 --channels 512 --repeats 7 \
    --sizes "${LARGE:-32768,131072}" --compiled ${EXTRA:-} --out block
for batch in 3 16; do
    scaseg bench --what step --device "$DEVICE" --precision bf16 --batch "$batch" \
        --sizes "${SIDE:-448}" --compiled ${EXTRA:-} --out "step_$batch"
done

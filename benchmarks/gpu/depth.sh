#!/usr/bin/env bash
# Backbones that were cut off early, with and without context, on Stanford Background.
source "$(dirname "$0")/common.sh"
trap 'keep depth' EXIT
start_mps
compare() { # backbone, weights, stages
    begin "depth/$1_$3"
    scaseg compare atlantis_contexts --data data/stanford_background \
        --backbone "$1" --backbone-weights "$2" --model.backbone_options.stages "$3" \
        --augment.scale 0.75,1.25 --augment.crop 192,256 --epochs 15 --batch-size 8 \
        --training.warmup 50 --training.pictures 0 --contexts none average sca object \
        --seeds "${SEEDS:-3}" --jobs "${JOBS:-6}" --split test --keep nothing ${EXTRA:-} \
        --time-limit "$(left 60)" --out "runs/depth/$1_$3"
}
for stages in ${VGG16-2 3 4}; do compare vgg16 vgg16_features_fp16.safetensors "$stages"; done
for stages in ${MOBILENET-3 5 7}; do
    compare mobilenet_v2 mobilenet_v2_features.safetensors "$stages"
done

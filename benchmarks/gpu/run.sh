#!/usr/bin/env bash
# A training and a prediction beside their parts: own_folder, and the VGG16 network.
source "$(dirname "$0")/common.sh"
trap 'tables run*/run.csv' EXIT

for data in ${SETS:-stanford_background camvid atlantis}; do
    scaseg bench --what run --device "$DEVICE" --data "data/$data" ${EXTRA:-} --out "run_$data"
done
"$PYTHON" -c 'import scaseg
scaseg.create_model("vgg16", "sca", "compact", classes=56).save_pretrained("vgg16_compact")'
for data in ${SETS:-stanford_background camvid atlantis}; do
    recipe=${data}_contexts
    [ "$data" != stanford_background ] || recipe=stanford_background
    scaseg bench --what run --device "$DEVICE" --data "data/$data" --recipe "$recipe" \
        --model vgg16_compact ${EXTRA:-} --out "run_vgg16_$data"
done

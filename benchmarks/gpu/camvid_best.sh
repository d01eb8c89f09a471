#!/usr/bin/env bash
# Which recipe brings VGG16 furthest on CamVid: candidates side by side, on val, one seed each.
source "$(dirname "$0")/common.sh"
trap 'keep camvid_best' EXIT
start_mps
compare() { # name, options
    begin "camvid_best/$1"
    scaseg compare camvid_contexts --data data/camvid --backbone-weights vgg16_features_fp16.safetensors \
        --training.optimizer AdamW --training.lr 1e-4 --training.head_lr 1e-3 --training.ema 0.99 \
        --training.weight_decay 0.01 --training.warmup 100 --training.pictures 0 \
        --epochs 80 --batch-size 8 --augment.scale 0.75,2.0 --augment.fill mirror "${@:2}" \
        --contexts none --seeds 1 --jobs 1 --split val --keep nothing ${EXTRA:-} \
        --time-limit "$(left 20)" --out "runs/camvid_best/$1" &
}
pyramid=(--head pyramid)
for name in ${NAMES:-compact pyramid weights enlarged lovasz}; do
    case $name in
        compact) compare compact ;; # as the contexts were compared, but for optimizer and length
        pyramid) compare pyramid "${pyramid[@]}" ;;
        weights) compare weights "${pyramid[@]}" --training.class_weights paper \
            --training.class_weight_range 1,16 ;;
        enlarged) compare enlarged "${pyramid[@]}" --augment.fit 512,684 ;;
        lovasz) compare lovasz "${pyramid[@]}" --training.loss lovasz ;;
    esac
done
wait
tail -n 1 runs/camvid_best/*/results.csv | cut -d, -f1-6

#!/usr/bin/env bash
# Successors of the built-in model, side by side: chosen on the tenth of train that is held out,
# then, with FINAL=NAME, on all of train. Models and metrics come back; test is judged by hand.
source "$(dirname "$0")/common.sh"
bring() {
    for one in runs/outdoor/*/model; do
        name=$(basename "$(dirname "$one")")
        tar czf "$OUT/outdoor_$name.tgz" -C "runs/outdoor/$name" model metrics.csv recipe.yaml
    done
}
trap bring EXIT
start_mps
start() { # name, options
    scaseg train own_folder --data data/stanford_background --context dot \
        --model.context_options '{identity_dropout: 0.5, sharpness: 1.0}' --epochs "${EPOCHS:-80}" \
        --training.pictures 0 "${@:2}" ${EXTRA:-} --quiet \
        --out "runs/outdoor/$1" --auto-resume &
}
all=(--training.validate_every 10)
for name in ${FINAL:-${NAMES:-usual even slow imagenet}}; do
    [ -z "${FINAL:-}" ] || all=(--data.val null)
    case $name in
        usual) start "${FINAL:+all_}$name" "${all[@]}" ;;
        even) start "${FINAL:+all_}$name" --training.class_weights none "${all[@]}" ;;
        slow) start "${FINAL:+all_}$name" --training.score_lr_factor 0.1 "${all[@]}" ;;
        imagenet) start "${FINAL:+all_}$name" --backbone-weights mobilenet_v2_features.safetensors \
            "${all[@]}" ;;
    esac
done
wait
tail -n 1 runs/outdoor/*/metrics.csv

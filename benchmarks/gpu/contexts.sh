#!/usr/bin/env bash
# Every context on maps of three sizes.
source "$(dirname "$0")/common.sh"
trap 'tables contexts*/contexts.csv' EXIT
for size in ${SIZES:-3136 32768 131072}; do
    scaseg bench --what contexts --device "$DEVICE" --precision bf16 --channels "${CHANNELS:-512}" \
        --repeats 3 --limit 0.5 --sizes "$size" ${EXTRA:-} --out "contexts_$size"
done

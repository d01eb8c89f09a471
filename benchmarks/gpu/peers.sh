#!/usr/bin/env bash
# own_folder beside the decoders of other libraries on 800 photographs of ATLANTIS, side by side.
source "$(dirname "$0")/common.sh"
start_mps
# (what a script starts beside itself is deaf to INT)
for net in ${NETS:-new fpn deeplab}; do
    timeout --kill-after=30 "$(left)" "$PYTHON" "$ROOT/benchmarks/peers.py" data/atlantis \
        --weights mobilenet_v2_features.safetensors --nets "$net" --seeds "${SEEDS:-3}" \
        --key data.limit=800 ${EXTRA:-} --out "$OUT/peers_$net.csv" &
done
wait
cut -d, -f1-4,7 "$OUT"/peers_*.csv

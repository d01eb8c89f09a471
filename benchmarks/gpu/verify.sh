#!/usr/bin/env bash
# make test-gpu, whole: what has changed since it last ran on a GPU.
source "$(dirname "$0")/common.sh"
cd "$ROOT"
code=0
timeout --kill-after=30 "$(left)" make test-gpu PYTHON="$PYTHON" ARGS="${EXTRA:--rs --durations=5}" \
    2>&1 | tee "$OUT/verify.log" || code=$?
echo "exit code $code; the last line of each of eight processes:"
grep -E "(passed|failed|errors?|skipped|deselected|no tests ran).* in [0-9]" "$OUT/verify.log" || true
exit $code

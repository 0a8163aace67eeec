#!/usr/bin/env bash
# Makes docs/report.png and docs/nights.png again: the reports of one dry run, and of the last of six, photographed by
# headless Chromium. Needs `make run`'s .venv and chromium.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-$PWD/.venv/bin/python}"
browser="$(command -v chromium || command -v chromium-browser || command -v google-chrome)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

run() { (cd "$work" && PREFECT_HOME="$work/prefect" "$python" -m tfgrpo.flows.cli run --dry-run "$@"); }
picture() {
  "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/browser" --window-size="$3" \
    --screenshot="$work/$1.png" "file://$work/out/$2/report.html" 2>/dev/null
  mv "$work/$1.png" "docs/$1.png"
}

run --run-id picture
picture report tfgrpo-learning/runs/picture "${SIZE:-1100,900}"
for night in 1 2 3 4 5 6; do
  drift=$([ "$night" -gt 3 ] && echo 3 || echo 99)
  run --task-id nights --run-id "night-$night" --sample-size 40 --set simulated.effect=25 --set tfgrpo.seed=3 --set simulated.drift="$drift"
done
picture nights nights/runs/night-6 "${SIZE:-1100,1230}"

#!/usr/bin/env bash
# Makes docs/report.png again: the report of one dry run, photographed by headless Chromium. Needs `make run`'s .venv and chromium.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-.venv/bin/python}"
browser="$(command -v chromium || command -v chromium-browser || command -v google-chrome)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

PREFECT_HOME="$work/prefect" "$python" -m flows.tfgrpo --dry-run --out "$work/out" --run-id picture
"$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/browser" --window-size="${SIZE:-1100,1000}" \
  --screenshot="$work/report.png" "file://$work/out/tfgrpo-learning/runs/picture/report.html" 2>/dev/null
mv "$work/report.png" docs/report.png

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
root="$PWD"
(cd "$work" && PYTHONPATH="$root" PREFECT_HOME="$work/prefect" "$python" - <<'END'
import tfgrpo
from benchmarks.dials import dialled

for night in range(1, 7):
    with dialled(effect=25.0, drifted=night > 3):
        tfgrpo.learn(dry_run=True, seed=3, sample_size=40, out="out", task_id="nights", run_id=f"night-{night}")
END
)
picture nights nights/runs/night-6 "${SIZE:-1100,1230}"

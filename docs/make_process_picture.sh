#!/usr/bin/env bash
# Makes docs/process-model.png again: the first Mermaid block of docs/process-models.md, drawn by Mermaid in headless Chromium.
# Needs chromium, and MERMAID=path/to/mermaid.min.js (`npm pack mermaid@11` brings it in package/dist/).
set -euo pipefail
cd "$(dirname "$0")/.."
: "${MERMAID:?set it to the path of mermaid.min.js}"
browser="$(command -v chromium || command -v chromium-browser || command -v google-chrome)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

cp "$MERMAID" "$work/mermaid.min.js"
{
  printf '<!doctype html><meta charset="utf-8"><body style="margin:16px;background:white"><pre class="mermaid">'
  awk '/^```mermaid$/ {inside = 1; next} /^```$/ {if (inside) exit} inside' docs/process-models.md | sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g'
  printf '</pre><script src="mermaid.min.js"></script><script>mermaid.initialize({startOnLoad: true, theme: "neutral"})</script>'
} > "$work/page.html"
"$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --allow-file-access-from-files --user-data-dir="$work/browser" \
  --virtual-time-budget=15000 --force-device-scale-factor=1 --window-size="${SIZE:-1500,200}" --screenshot="$work/picture.png" "file://$work/page.html" 2>/dev/null
mv "$work/picture.png" docs/process-model.png

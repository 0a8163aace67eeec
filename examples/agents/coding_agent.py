"""A stand-in for a command-line coding agent: it finds Anthropic's API in its environment, and edits the folder it is in.

``claude -p {prompt}`` is started in the same way; see ``coding-agent.yaml``.
"""

import json
import os
import sys
import urllib.request
from pathlib import Path

request = urllib.request.Request(
    f"{os.environ['ANTHROPIC_BASE_URL']}/v1/messages",
    json.dumps(
        {
            "model": "claude-sonnet-5",
            "max_tokens": 1000,
            "system": "You write what is asked for to a file.",
            "messages": [{"role": "user", "content": sys.argv[1]}],
        }
    ).encode(),
    {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01", "content-type": "application/json"},
)
with urllib.request.urlopen(request) as reply:
    text = json.load(reply)["content"][0]["text"]
Path("answer.txt").write_text(text)

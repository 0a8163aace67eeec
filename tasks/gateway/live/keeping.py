"""Keep the traffic of production as items of a dataset: one a conversation, without secrets, in a file of bounded size."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tfgrpo.prompt_packs.safety import without_secrets
from tfgrpo.stores.canonical import sha256_hex
from tfgrpo.stores.errors import StoreError
from tfgrpo.stores.files.atomic import read_lines
from tfgrpo.stores.files.lines import LineFile, disk
from tfgrpo.stores.telemetry.names import SentArm
from tfgrpo.stores.text import replace_surrogates
from tfgrpo.tasks.gateway.live.conversations import Opening
from tfgrpo.tasks.gateway.outgoing import Outgoing
from tfgrpo.tasks.models.base import ChatReply
from tfgrpo.tasks.models.endpoint import Scrub


class KeptItems:
    """The file of items, JSON lines, 0600. A question that it holds already is not kept again.

    Its lines have no checksums, because people add answers to them. It is opened for each item: one that was moved away or
    emptied begins anew, and a full disk may have room again.
    """

    def __init__(self, path: Path, max_bytes: int, say: Callable[[str], None]) -> None:
        """``say`` reports why nothing is kept. Raises ``StoreError`` for a file that cannot be written."""
        self._path = path
        self._max_bytes = max_bytes
        self._say = say
        with LineFile(path), disk(path):
            path.chmod(0o600)  # one that was there may have another mode
        self._ids: set[str] = set()
        for line in read_lines(path):
            with suppress(ValueError, KeyError, TypeError):  # a line of the user's own, which stays as it is
                self._ids.add(json.loads(line)["id"])
        self._added = 0
        self._problem: str | None = None

    def add(self, opening: Opening, arm: SentArm, request: Outgoing, reply: ChatReply, scrub: Scrub) -> None:
        """Keep the question and the answer that ends a turn; one that only calls tools, or is not of text, is left out."""
        text = reply.message.content
        if reply.message.tool_calls or not text or opening.media or not opening.prompt.strip():
            return
        name = "live-" + sha256_hex(f"{opening.system}\x1f{opening.prompt}")[:16]
        if _is_empty(self._path):
            self._ids.clear()
        if name in self._ids:
            return

        def clean(given: str) -> str:
            return without_secrets(replace_surrogates(scrub(given)))

        metadata = {
            "foreign": True,
            "arm": arm,
            "model": reply.model,
            "tools": sorted(request.tools),
            "reply": clean(text),
        }
        item = {"id": name, "prompt": clean(opening.prompt), "system_prompt": clean(opening.system)}
        try:
            problem = self._write(name, json.dumps({**item, "metadata": metadata}, ensure_ascii=False))
        except StoreError as error:  # a full disk must not fail an answer
            problem = str(error)
        if problem is not None and problem != self._problem:
            self._say(f"no traffic is kept: {problem}")
        self._problem = problem

    def facts(self) -> dict[str, Any]:
        """Return what was kept, as JSON."""
        return {"file": str(self._path), "items": len(self._ids), "added": self._added, "problem": self._problem}

    def _write(self, name: str, line: str) -> str | None:
        """Append an item; return why it cannot be kept, None if it is."""
        data = f"{line}\n".encode()
        with LineFile(self._path) as file:
            if file.size() + len(data) > self._max_bytes:
                return f"the file has reached {self._max_bytes >> 20} MiB"
            file.cut_incomplete()
            file.write(data)
        self._ids.add(name)
        self._added += 1
        return None


def _is_empty(path: Path) -> bool:
    try:
        return path.stat().st_size == 0
    except OSError:
        return True

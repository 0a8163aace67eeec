"""What the clients in production share: the lessons, the draw of the arm, counts by arm, and the file of kept items."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from tfgrpo.stores.canonical import sha256_hex
from tfgrpo.stores.files.lines import LineFile
from tfgrpo.stores.runs.journal import GATEWAY
from tfgrpo.stores.telemetry.names import SentArm
from tfgrpo.stores.telemetry.setup import Telemetry
from tfgrpo.tasks.gateway.live.conversations import Conversation, Conversations
from tfgrpo.tasks.gateway.live.keeping import KeptItems
from tfgrpo.tasks.models.base import ChatReply
from tfgrpo.tasks.models.journaled import count_call

_UNDECIDED_S: Final = 30.0
"""Seconds in which an agent that names its conversation begins its own work, after calls for a title for example."""
_REMEMBERED: Final = 100_000
_ID: Final = re.compile(r"([0-9a-f]{16})\.(lessons|held-out)\.([\w-]+)")
PROVIDER: Final = "openai"
"""The endpoint as spans and metrics call it: by the protocol."""


@dataclass(slots=True)
class Traffic:
    """State of one gateway in production. For one event loop."""

    task_id: str
    lessons: Callable[[], str]
    """Returns the block of the lessons in force; empty without any. Does not raise."""
    telemetry: Telemetry
    held_out: float = 0.0
    """Share of conversations without lessons."""
    models: Mapping[str, str] = field(default_factory=dict)
    lessons_in: Literal["system", "user"] = "system"
    max_tokens: int = 1024
    kept: KeptItems | None = None
    library: Callable[[], str | None] = lambda: None
    """Returns the id of the lessons in force."""
    outcomes: Path | None = None
    """File of what conversations were worth."""
    conversations: Conversations = field(default_factory=Conversations)
    _counts: dict[SentArm, Counter[str]] = field(default_factory=dict)
    _seconds: defaultdict[SentArm, float] = field(default_factory=lambda: defaultdict(float))
    _ids: OrderedDict[str, str] = field(default_factory=OrderedDict)
    _undecided: list[tuple[Conversation, Callable[[], None]]] = field(default_factory=list)
    _since: float = field(default_factory=time.monotonic)

    def arm_of(self, conversation: str) -> SentArm:
        """Draw the arm of a conversation, always the same one."""
        drawn = int(sha256_hex(f"{self.task_id}\n{conversation}")[:13], 16) / 16**13
        return "held-out" if drawn < self.held_out else "lessons"

    def id_of(self, conversation: str) -> str:
        """Return the id of a conversation, with its arm and the lessons that were in force when it began.

        It needs no memory: a client may report what came of it after a restart, and to another gateway.
        """
        name = self._name(conversation)
        if name not in self._ids:
            self._ids[name] = f"{name}.{self.arm_of(conversation)}.{self.library() or 'none'}"
            if len(self._ids) > _REMEMBERED:
                self._ids.popitem(last=False)
        return self._ids[name]

    def outcome(self, conversation: str, score: float) -> bool | None:
        """Keep what a conversation was worth, from 0 to 1, the first time; None for one that is not known.

        ``conversation``: its id, or the name that the client gave it since this gateway began. Raises ``StoreError``.
        """
        match = _ID.fullmatch(self._ids.get(self._name(conversation), conversation))
        if match is None or self.outcomes is None:
            return None
        name, arm, library = match.groups()
        line = {"line_id": name, "arm": arm, "library": library, "score": score, "at": time.time()}
        if (new := LineFile(self.outcomes, "line_id").add([line])) == 1:
            self._of("lessons" if arm == "lessons" else "held-out").update(outcomes=1)
        return new == 1

    def _name(self, conversation: str) -> str:
        return sha256_hex(f"{self.task_id}\n{conversation}")[:16]

    def begun(self, arm: SentArm, *, taught: bool) -> None:
        """Count a request."""
        self._of(arm).update(calls=1, with_lessons=int(taught))

    def ended(self, arm: SentArm, model: str, result: ChatReply | str, took_s: float) -> None:
        """Count an answer, or the kind of a failure."""
        count_call(self.telemetry, result, took_s, role=GATEWAY, arm=arm, model=model, provider=PROVIDER)
        if isinstance(result, str):
            self._of(arm).update(failed=1)
            return
        usage = result.usage
        tokens = {} if usage is None else {"input_tokens": usage.prompt, "output_tokens": usage.completion}
        self._of(arm).update(answered=1, of_unknown_usage=int(usage is None), **tokens)
        self._seconds[arm] += took_s

    def keep(self, conversation: Conversation, keep: Callable[[], None], *, undecided: bool) -> None:
        """Keep an answer; of an agent's call without tools after a while, in which calls with tools may come."""
        if not undecided:
            keep()
            return
        self._undecided.append((conversation, keep))
        asyncio.get_running_loop().call_later(_UNDECIDED_S, self.decide, 1)

    def decide(self, count: int | None = None) -> None:
        """Keep the oldest answers that wait, all without ``count``, unless they are auxiliary by now."""
        waiting, self._undecided = self._undecided[:count], self._undecided[len(self._undecided[:count]) :]
        for conversation, keep in waiting:
            if not self.conversations.is_auxiliary(conversation, tools=False):
                keep()

    def facts(self) -> dict[str, Any]:
        """Return the counts, as JSON."""
        arms = {
            arm: {**counts, "mean_s": round(self._seconds[arm] / counts["answered"], 4) if counts["answered"] else None}
            for arm, counts in self._counts.items()
        }
        kept = None if self.kept is None else self.kept.facts()
        up_s = round(time.monotonic() - self._since, 1)
        return {"task_id": self.task_id, "held_out": self.held_out, "up_s": up_s, "arms": arms, "kept": kept}

    def samples(self) -> list[str]:
        """Return the counts in the form of Prometheus."""
        where = [(arm, f'{{task="{self.task_id}",arm="{arm}"}}') for arm in self._counts]
        counted = [
            f"tfgrpo_gateway_{name}_total{labels} {count}"
            for arm, labels in where
            for name, count in self._counts[arm].items()
        ]
        return counted + [f"tfgrpo_gateway_seconds_total{labels} {self._seconds[arm]}" for arm, labels in where]

    def _of(self, arm: SentArm) -> Counter[str]:
        return self._counts.setdefault(arm, Counter())

"""What the clients in production share, and one request of one of them: lessons, draw of the arm, counts, kept items."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from aiohttp import web

from tfgrpo.prompt_packs.safety import without_secrets
from tfgrpo.prompt_packs.stamps import holds_lessons
from tfgrpo.stores.canonical import sha256_hex
from tfgrpo.stores.errors import StoreError
from tfgrpo.stores.files.atomic import read_lines
from tfgrpo.stores.files.lines import LineFile, disk
from tfgrpo.stores.runs import GATEWAY, IDEMPOTENCY_KEY
from tfgrpo.stores.telemetry.setup import SentArm, Telemetry
from tfgrpo.stores.text import replace_surrogates
from tfgrpo.tasks.gateway.dialects import Dialect, EmbeddingsDialect, ResponsesDialect, offers_tools
from tfgrpo.tasks.gateway.live.conversations import Conversation, Conversations, name_by_agent, opening_of
from tfgrpo.tasks.gateway.outgoing import Additions, Outgoing
from tfgrpo.tasks.gateway.session import AnswerKey, Caller
from tfgrpo.tasks.gateway.upstream import keys_in
from tfgrpo.tasks.models.base import ChatReply
from tfgrpo.tasks.models.endpoint import Scrub
from tfgrpo.tasks.models.journaled import count_call

_UNDECIDED_S: Final = 30.0
"""Seconds in which an agent that names its conversation starts its own work, after calls for a title for example."""
_REMEMBERED: Final = 100_000
_ID: Final = re.compile(r"([0-9a-f]{16})\.(lessons|held-out)\.([\w-]+)")
_PROVIDER: Final = "openai"
"""The endpoint as spans and metrics call it: by the protocol."""
_CONVERSATION: Final = "x-tfgrpo-conversation"
_TRACE: Final = ("traceparent", "tracestate")
_MIN_SECRET: Final = 6


class KeptItems:
    """The traffic of production as items of a dataset: JSON lines, 0600. A question that it holds is not kept again.

    Its lines have no checksums, because people add answers to them. It is opened for each item: one that was moved away or
    emptied starts anew, and a full disk may have room again.
    """

    def __init__(self, path: Path, max_bytes: int, say: Callable[[str], None]) -> None:
        """``say`` reports why nothing is kept. Raises ``StoreError`` for a file that cannot be written."""
        self._path, self._max_bytes, self._say = path, max_bytes, say
        with LineFile(path), disk(path):
            path.chmod(0o600)  # one that was there may have another mode
        self._ids: set[str] = set()
        for line in read_lines(path):
            with suppress(ValueError, KeyError, TypeError):  # a line of the user's own, which stays as it is
                self._ids.add(json.loads(line)["id"])
        self._added = 0
        self._problem: str | None = None

    def add(
        self, system: str, conversation: Conversation, arm: SentArm, request: Outgoing, reply: ChatReply, scrub: Scrub
    ) -> None:
        """Keep the question and the answer that ends a turn; one that only calls tools, or is not of text, is omitted."""
        text, prompt = reply.message.content, conversation.prompt
        if reply.message.tool_calls or not text or conversation.media or not prompt.strip():
            return
        name, size = "live-" + sha256_hex(f"{system}\x1f{prompt}")[:16], 0
        with suppress(OSError):
            size = self._path.stat().st_size
        if not size:
            self._ids.clear()
        if name in self._ids:
            return

        def clean(given: str) -> str:
            return without_secrets(replace_surrogates(scrub(given)))

        item = {
            "id": name,
            "prompt": clean(prompt),
            "system_prompt": clean(system),
            "metadata": {
                "foreign": True,
                "arm": arm,
                "model": reply.model,
                "tools": sorted(request.tools),
                "reply": clean(text),
            },
        }
        try:
            problem = self._write(name, item)
        except StoreError as error:  # a full disk must not fail an answer
            problem = str(error)
        if problem is not None and problem != self._problem:
            self._say(f"no traffic is kept: {problem}")
        self._problem = problem

    def facts(self) -> dict[str, Any]:
        """Return what was kept, as JSON."""
        return {"file": str(self._path), "items": len(self._ids), "added": self._added, "problem": self._problem}

    def _write(self, name: str, item: Mapping[str, Any]) -> str | None:
        data = f"{json.dumps(item, ensure_ascii=False)}\n".encode()
        with LineFile(self._path) as file:
            if file.size() + len(data) > self._max_bytes:
                return f"the file has reached {self._max_bytes >> 20} MiB"
            file.cut_incomplete()
            file.write(data)
        self._ids.add(name)
        self._added += 1
        return None


@dataclass(slots=True)
class Traffic:
    """State of one task's gateway in production. For one event loop."""

    task_id: str
    lessons: Callable[[], str]
    """Returns the block of the lessons in force; empty without any. Does not raise."""
    telemetry: Telemetry
    served: Callable[[], Mapping[str, Any]] = dict
    """Returns what is in force, as ``/meta`` shows it: ``library``, and in ``problem`` why the task is not ready."""
    held_out: float = 0.0
    """Share of conversations without lessons."""
    models: Mapping[str, str] = field(default_factory=dict)
    lessons_in: Literal["system", "user"] = "system"
    max_tokens: int = 1024
    kept: KeptItems | None = None
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
            self._ids[name] = f"{name}.{self.arm_of(conversation)}.{self.served().get('library') or 'none'}"
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
            self.count("lessons" if arm == "lessons" else "held-out", outcomes=1)
        return new == 1

    def _name(self, conversation: str) -> str:
        return sha256_hex(f"{self.task_id}\n{conversation}")[:16]

    def count(self, arm: SentArm, **more: int) -> None:
        """Add to the counts of an arm."""
        self._counts.setdefault(arm, Counter()).update(more)

    def ended(self, arm: SentArm, model: str, result: ChatReply | str, took_s: float) -> None:
        """Count an answer, or the kind of a failure."""
        count_call(self.telemetry, result, took_s, role=GATEWAY, arm=arm, model=model, provider=_PROVIDER)
        if isinstance(result, str):
            self.count(arm, failed=1)
            return
        usage = result.usage
        tokens = {} if usage is None else {"input_tokens": usage.prompt, "output_tokens": usage.completion}
        self.count(arm, answered=1, of_unknown_usage=int(usage is None), **tokens)
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
        """Return the counts and what is in force, as JSON."""
        arms = {
            arm: {**counts, "mean_s": round(self._seconds[arm] / counts["answered"], 4) if counts["answered"] else None}
            for arm, counts in self._counts.items()
        }
        kept = None if self.kept is None else self.kept.facts()
        up_s = round(time.monotonic() - self._since, 1)
        counted = {"task_id": self.task_id, "held_out": self.held_out, "up_s": up_s, "arms": arms, "kept": kept}
        return {**self.served(), **counted}

    def samples(self) -> Iterator[str]:
        """Yield the counts in the form of Prometheus."""
        for arm, counts in self._counts.items():
            for name, count in {**counts, "seconds": self._seconds[arm]}.items():
                yield f'tfgrpo_gateway_{name}_total{{task="{self.task_id}",arm="{arm}"}} {count}'


class LiveClient(Caller):
    """The caller of one request. Nothing of it is journalled."""

    def __init__(self, traffic: Traffic, request: web.BaseRequest, scrub: Scrub) -> None:
        """``scrub`` removes the endpoint's own secrets; the client's keys are removed with them."""
        carrier = {name: request.headers[name] for name in _TRACE if name in request.headers}
        super().__init__(traffic.telemetry, _PROVIDER, traffic.max_tokens, carrier, self._masked)
        self.arm: SentArm = "off"
        self._traffic, self._request, self._scrub = traffic, request, scrub
        self._secrets = [key for key in keys_in(request) if len(key) >= _MIN_SECRET]
        self._conversation, self._system = Conversation("", ""), ""
        self._keeps = self._undecided = False

    def additions_for(self, dialect: Dialect, body: Mapping[str, Any]) -> Additions:
        """Draw the arm of the conversation, and return its lessons."""
        traffic, headers = self._traffic, self._request.headers
        opening, named = opening_of(body), name_by_agent(headers, body)
        self._system = opening.system
        self._conversation = of = traffic.conversations.of(body, opening, headers.get(_CONVERSATION) or named)
        tools = offers_tools(dialect, body)
        auxiliary = traffic.conversations.is_auxiliary(of, tools=tools)
        self._undecided = bool(named) and not tools
        taught = ""
        if headers.get("x-tfgrpo-lessons", "").lower() != "off" and not isinstance(dialect, EmbeddingsDialect):
            self.arm = traffic.arm_of(of.name)
            taught = traffic.lessons() if self.arm == "lessons" else ""
            self._keeps = of.begun_here and not auxiliary and not holds_lessons(opening.system)
            self.headers = {_CONVERSATION: traffic.id_of(of.name)}
        self.headers = {**self.headers, "x-tfgrpo-arm": self.arm}
        return Additions(taught, models=traffic.models, lessons_in=traffic.lessons_in, auxiliary=auxiliary)

    @contextmanager
    def idempotency_key(self, key: AnswerKey) -> Iterator[str]:
        """Yield the client's own key of a call, which it may repeat, else a new one."""
        with super().idempotency_key(key) as new:
            yield self._request.headers.get(IDEMPOTENCY_KEY) or new

    def begin(self, request: Outgoing) -> int:
        """Count the request."""
        self._traffic.count(self.arm, calls=1, with_lessons=int(request.added is not None))
        return 0

    def answered(self, place: int, request: Outgoing, reply: ChatReply) -> None:  # noqa: ARG002 - there are no frames
        """Remember the conversation, and keep the answer if traffic is kept."""
        traffic, of = self._traffic, self._conversation
        if isinstance(request.dialect, ResponsesDialect):
            traffic.conversations.remember(of, reply.response_id)
        if self._keeps and traffic.kept is not None:
            keep = partial(traffic.kept.add, self._system, of, self.arm, request, reply, self.scrub)
            traffic.keep(of, keep, undecided=self._undecided)

    def count(self, model: str, result: ChatReply | str, took_s: float) -> None:
        """Count an answer or a failure by arm."""
        self._traffic.ended(self.arm, model, result, took_s)

    def _masked(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return self._scrub(text)

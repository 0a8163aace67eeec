"""Read what an attempt did from its journalled calls, by an index of the journal's lines."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.files.lines import disk, lines_of
from tfgrpo.stores.json_values import canonical_json, json_of, sha256_hex
from tfgrpo.stores.runs import GATEWAY, UNFINISHED, attempt_and_role
from tfgrpo.tasks.actors.registry import no_such_tool
from tfgrpo.tasks.models.base import ChatReply
from tfgrpo.tasks.models.chat import reply_of_json
from tfgrpo.tasks.shapes import Frame, frame_of_json, model_frame, tool_frame

Calls: TypeAlias = Mapping[str, dict[tuple[int, int], tuple[str, Mapping[str, Any]]]]
"""Digest and payload of each call by role, then by turn and number; of a key that occurs twice, the later entry."""
ANSWER_ROLES: Final = frozenset({"rollout", "tool", "agent"})
STEP_ROLES: Final = ANSWER_ROLES | {GATEWAY, UNFINISHED}
"""Roles of the entries that ``recorded_steps`` reads."""
_DIGITS: Final = 16
_HEAD: Final = re.compile(rb'\{"schema":1,"key":("(?:[^"\\]|\\.)*"),"kind":"(reply|failure)"')


class LineIndex:
    """Lines of a file by a key in each, as they are now; memory has 300 bytes a line. Those whose key is None are skipped."""

    def __init__(self, path: Path, key_of: Callable[[bytes], str | None]) -> None:
        self.path = path
        self._offsets: defaultdict[str, list[int]] = defaultdict(list)
        for line in lines_of(path):
            if line.length and (key := key_of(line.data)) is not None:
                self._offsets[key].append(line.offset)

    def lines(self, key: str) -> list[bytes]:
        """Return the lines of a key, in file order. Raise ``CorruptFile`` when the file was cut meanwhile."""
        if key not in self._offsets:
            return []
        lines = []
        with disk(self.path), self.path.open("rb") as file:
            for offset in self._offsets[key]:
                file.seek(offset)
                lines.append(file.readline())
        if not lines[-1].endswith(b"\n"):
            raise CorruptFile(f"{self.path}: the line at byte {self._offsets[key][-1]} was cut off since it was read")
        return lines


class RecordedTurn(NamedTuple):
    """A reply of the model, and the journalled result of each tool call in it; None for one that has none."""

    reply: ChatReply
    results: tuple[Mapping[str, Any] | None, ...]


class Steps(NamedTuple):
    """The calls of an attempt, and its output; None while it has not ended."""

    frames: tuple[Frame, ...]
    output: str | None


def attempt_of_key(line: bytes, roles: Collection[str] = ANSWER_ROLES) -> str | None:
    """Return the attempt that a line of the journal belongs to, ``epoch/arm/batch/item/rollout``; None for other calls."""
    # The key comes first in a line, so that replies, which are long, are not parsed.
    head = _HEAD.match(line)
    try:
        entry = {"key": json.loads(head[1]), "kind": head[2].decode()} if head else json.loads(line)
        attempt, role = attempt_and_role(entry["key"] if entry["kind"] == "reply" else "")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None  # a damaged line: its attempt counts as one without answer
    return attempt if role in roles else None


def calls_of(lines: Iterable[bytes], name: str) -> Calls:
    """Return the calls of the attempt ``name``. Raise ``CorruptFile`` for an entry of another shape."""
    calls: Calls = {role: {} for role in STEP_ROLES}
    for line in lines:
        try:
            entry = json.loads(line)
            _, turn, role, number = entry["key"].rpartition("#")[0].rsplit("/", 3)
            # Answers of the gateway are numbered among equal requests only.
            index = len(calls[GATEWAY]) if role == GATEWAY else int(number)
            calls[role][int(turn), index] = entry["key"].rpartition("#")[2], {**entry["payload"]}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptFile(f"an entry of the journal about attempt {name} is none: {line[:120]!r}") from error
    return calls


def turns_of(calls: Calls, name: str) -> list[RecordedTurn]:
    """Return the replies of an attempt with the results of their tool calls. Raise ``CorruptFile``."""
    turns = []
    for (turn, _), (_, payload) in sorted(calls["rollout"].items()):
        try:
            reply = reply_of_json(payload)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFile(f"an entry of the journal about attempt {name} is none: {payload!r:.120}") from error
        waiting = [result for key, result in sorted(calls["tool"].items()) if key[0] == turn]
        results: list[Mapping[str, Any] | None] = []
        for call in reply.message.tool_calls:
            request = canonical_json({"tool": call.name, "arguments": call.arguments})
            digest = sha256_hex(request.encode("utf-8", "surrogatepass"))[:_DIGITS]
            # Of equal calls each takes a result of its own.
            index = next((index for index, (recorded, _) in enumerate(waiting) if recorded == digest), None)
            results.append(None if index is None else waiting.pop(index)[1])
        turns.append(RecordedTurn(reply, tuple(results)))
    return turns


def recorded_steps(lines: Iterable[bytes], name: str, tools: Sequence[str]) -> Steps:
    """Return what the attempt ``name``, which could call ``tools``, did or was seen to do. Raise ``CorruptFile``."""
    calls = calls_of((line for line in lines if json_of(line) is not None), name)
    for role in ("agent", UNFINISHED):
        for _, payload in calls[role].values():
            trajectory = payload["trajectory"]
            frames = tuple(map(frame_of_json, trajectory["frames"]))
            return Steps(frames, trajectory["output"] if role == "agent" else None)
    turns, did = turns_of(calls, name), list[Frame]()
    for reply, results in turns:
        did.append(model_frame(reply))
        for call, result in zip(reply.message.tool_calls, results, strict=True):
            if result is not None:
                failed = not result["ok"]
                did.append(tool_frame(call.name, result["text"], result["latency_ms"], result["cost_usd"], failed=failed))
            elif call.name not in tools:
                did.append(tool_frame(call.name, no_such_tool(call.name, tools), 0.0, None, failed=True))
    if calls[GATEWAY]:
        from tfgrpo.tasks.gateway.call import read_answer  # noqa: PLC0415 - 80 ms, and few attempts need it

        answers = (read_answer(payload) for _, payload in calls[GATEWAY].values())
        did += (model_frame(answer) for answer in answers if answer is not None)
    ended = bool(turns) and not turns[-1].reply.message.tool_calls
    return Steps(tuple(did), (turns[-1].reply.message.content or "") if ended else None)

"""Rebuild the whole answer of an attempt from its journalled calls: one message, or a conversation with tools.

An answer is used only when its end is the one that was graded, as ``rollouts.jsonl`` shows it. Without it in the journal
there is no completion and no log-probability.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tfgrpo.stores.batch.shapes import LogProbs
from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.frozen_json import Json
from tfgrpo.stores.runs.journal import attempt_and_role
from tfgrpo.tasks.actors.registry import no_such_tool
from tfgrpo.tasks.group import RECORDED_CHARS
from tfgrpo.tasks.learning.summarize import shorten_middle
from tfgrpo.tasks.models.wire import called, usage_of

_Calls: TypeAlias = dict[str, dict[tuple[int, int], tuple[str, Mapping[str, Any]]]]
"""Digest and payload of each call by role, then by turn and number; of a key that occurs twice, the later entry."""
_ROLES: Final = frozenset({"rollout", "tool", "agent"})
_SHORTENED: Final = re.compile(r"\n\[… \d+ characters left out …\]\n")
_DIGITS: Final = 16
_HEAD: Final = (b'{"schema":1,"key":"', b'{"schema":2,"key":"')
_HEAD_BYTES: Final = 1_000


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer of one attempt."""

    completion: Json
    """A text; chat messages for an attempt with tools; None when the whole answer is unknown."""
    logprob: LogProbs | None = None
    model: str | None = None
    """As the endpoint reports it; None when no call is known."""
    usage_known: bool = True
    reasoning_tokens: int | None = None


def attempt_of_key(line: bytes) -> str | None:
    """Return the attempt that a line of the journal belongs to, ``epoch/arm/batch/item/rollout``; None for other calls."""
    # The key comes first in a line and ends before the kind, so that most replies, which are long, are not parsed.
    head = line[:_HEAD_BYTES]
    end = head.find(b'","kind":"reply"')
    try:
        if head.startswith(_HEAD) and end >= 0:
            key = json.loads(head[len(_HEAD[0]) - 1 : end + 1])
        else:
            entry = json.loads(line)
            key = entry["key"] if entry["kind"] == "reply" else ""
        attempt, role = attempt_and_role(key)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None  # a damaged line: its attempt counts as one without answer
    return attempt if role in _ROLES else None


def answer_of(lines: Iterable[bytes], name: str, recorded: str, tools: Sequence[str]) -> Answered:
    """Return the answer of the attempt ``name`` whose end is ``recorded``; ``tools`` are the names it could call.

    ``lines`` may contain entries of other attempts. Raise ``CorruptFile`` for a damaged entry.
    """
    calls = _calls(lines, name)
    turns = [payload for _, (_, payload) in sorted(calls["rollout"].items())]
    model = turns[-1]["model"] if turns else None
    known = bool(turns) and all(reply["usage"] for reply in turns)
    agent = next(iter(calls["agent"].values()), None)
    if agent is not None:
        output = agent[1]["trajectory"]["output"]
        # No call's log-probabilities are those of the answer of an agent's own code.
        return Answered(output if _ends(output, recorded) else None, model=model, usage_known=known)
    if not turns:
        whole = len(recorded) < RECORDED_CHARS or not _SHORTENED.search(recorded)
        return Answered(recorded if whole and recorded else None, usage_known=False)
    ended = _ends(turns[-1]["content"] or "", recorded)
    completion = (turns[0]["content"] if len(turns) == 1 else _conversation(calls, tools)) if ended else None
    reasoning = sum(reply["usage"].reasoning for reply in turns) if known else None
    return Answered(completion, _logprobs(turns) if ended else None, model, known, reasoning)


def _ends(text: str, recorded: str) -> bool:
    return bool(recorded) and shorten_middle(text, RECORDED_CHARS) == recorded


def _calls(lines: Iterable[bytes], name: str) -> _Calls:
    calls: _Calls = {role: {} for role in _ROLES}
    for line in lines:
        try:
            entry = json.loads(line)
            where, _, digest = entry["key"].rpartition("#")
            attempt, turn, role, number = where.rsplit("/", 3)
            payload = {**entry["payload"]}
            if attempt != name or entry["kind"] != "reply":
                continue
            if role == "rollout":
                payload["usage"] = usage_of(payload["usage"])
            calls[role][int(turn), int(number)] = (digest, payload)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptFile(f"an entry of the journal about attempt {name} is none: {line[:120]!r}") from error
    return calls


def _conversation(calls: _Calls, tools: Sequence[str]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for (turn, _), (_, reply) in sorted(calls["rollout"].items()):
        requested = reply.get("tool_calls", ())
        message: dict[str, Any] = {"role": "assistant", "content": reply["content"]}
        if requested:
            message["tool_calls"] = [called(*call[:3]) for call in requested]
        messages.append(message)
        results = sorted((key, result) for key, result in calls["tool"].items() if key[0] == turn)
        waiting = [(digest, payload["text"]) for _, (digest, payload) in results]
        for name, function, arguments, *_ in requested:
            text = _result(waiting, function, arguments, tools)
            messages.append({"role": "tool", "tool_call_id": name, "name": function, "content": text})
    return messages


def _result(waiting: list[tuple[str, str]], function: str, arguments: str, tools: Sequence[str]) -> str:
    """Return and remove the first result of such a call; calls of unknown tools have none and got a standard answer."""
    request = canonical_json({"tool": function, "arguments": arguments})
    digest = sha256_hex(request.encode("utf-8", "surrogatepass"))[:_DIGITS]
    for index, (known, text) in enumerate(waiting):
        if known == digest:
            del waiting[index]
            return text
    return no_such_tool(function, tools)


def _logprobs(turns: Sequence[Mapping[str, Any]]) -> LogProbs | None:
    """Return those of one reply by token; of several replies only the sum, as tool results have none.

    They are complete with a value for every token that the endpoint counted; hidden reasoning has no values.
    """
    values = [reply.get("token_logprobs") for reply in turns]
    known = [tokens for tokens in values if tokens]
    if not known:
        return None
    complete = all(
        tokens and (usage := reply["usage"]) and not usage.reasoning and len(tokens) >= usage.completion
        for tokens, reply in zip(values, turns, strict=True)
    )
    total = math.fsum(value for tokens in known for value in tokens) if len(known) == len(turns) else None
    count = sum(map(len, known)) if total is not None else None
    tokens = tuple(known[0]) if len(turns) == 1 else None
    return LogProbs(tokens=tokens, total=total, count=count, complete=complete and total is not None)

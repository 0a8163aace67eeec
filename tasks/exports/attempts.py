"""What did an attempt answer, in full? Put together from its journalled calls: one message, or a conversation with tools.

The answer counts only when its end is the one that was graded, as ``rollouts.jsonl`` shows it. Nothing is guessed: where the
journal does not tell, there is no completion, and no log-probability is made up.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Final

from tfgrpo.stores.batch.shapes import LogProbs
from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.frozen_json import Json
from tfgrpo.tasks.actors.tools import no_such_tool
from tfgrpo.tasks.group import RECORDED_CHARS
from tfgrpo.tasks.learning.summarize import shorten_middle
from tfgrpo.tasks.models.replies import usage_of

_ROLES: Final = frozenset({"rollout", "tool", "agent"})
_SHORTENED: Final = re.compile(r"\n\[… \d+ characters left out …\]\n")
_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer of one attempt."""

    completion: Json
    """A text; chat messages for an attempt with tools; None when the whole answer is not known."""
    logprob: LogProbs | None = None
    model: str | None = None
    """As the endpoint names itself; None when no call is known."""
    usage_known: bool = True
    reasoning_tokens: int | None = None


@dataclass(slots=True)
class _Calls:
    """Journalled calls of one attempt; of a key that occurs twice, the later entry."""

    replies: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    """By turn."""
    tools: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    """Digest of the request and text of the result, by turn and number."""
    agent: Mapping[str, Any] | None = None


def attempt_of_key(line: bytes) -> str | None:
    """Name of the attempt that a line of the journal belongs to: ``epoch/arm/batch/item/rollout``. None for other calls."""
    # The key stands first in a line and ends before the kind; replies are not parsed for it.
    head = line[:_HEAD_BYTES]
    end = head.find(b'","kind":"reply"')
    if not head.startswith(_HEAD) or end < 0:
        return _slowly(line)
    return _attempt(json.loads(head[len(_HEAD[0]) - 1 : end + 1]))


_HEAD: Final = (b'{"schema":1,"key":"', b'{"schema":2,"key":"')
_HEAD_BYTES: Final = 1_000


def _slowly(line: bytes) -> str | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(entry, dict) and entry.get("kind") == "reply" and isinstance(entry.get("key"), str)
    return _attempt(entry["key"]) if whole else None


def _attempt(key: str) -> str | None:
    parts = key.rpartition("#")[0].rsplit("/", 3)
    return parts[0] if len(parts) == 4 and parts[2] in _ROLES else None


def answer_of(lines: Iterable[bytes], name: str, recorded: str, tools: Sequence[str]) -> Answered:
    """The answer of the attempt called ``name``, whose end is ``recorded``; ``tools`` are those it was given.

    ``lines`` may hold entries of other attempts. Raises ``CorruptFile`` for an entry that is none.
    """
    calls = _calls(lines, name)
    if calls.agent is not None:
        return _of_agent(calls, recorded)
    if not calls.replies:
        whole = len(recorded) < RECORDED_CHARS or not _SHORTENED.search(recorded)
        return Answered(recorded if whole and recorded else None, usage_known=False)
    turns = [calls.replies[turn] for turn in sorted(calls.replies)]
    model, known = turns[-1]["model"], all(reply["usage"] for reply in turns)
    ended = shorten_middle(turns[-1]["content"] or "", RECORDED_CHARS) == recorded and bool(recorded)
    completion = (turns[0]["content"] if len(turns) == 1 else _conversation(calls, tools)) if ended else None
    reasoning = sum(reply["usage"][3] for reply in turns) if known else None
    return Answered(completion, _logprobs(turns) if ended else None, model, known, reasoning)


def _calls(lines: Iterable[bytes], name: str) -> _Calls:
    calls = _Calls()
    for line in lines:
        try:
            entry = json.loads(line)
            where, _, digest = entry["key"].rpartition("#")
            attempt, turn, role, number = where.rsplit("/", 3)
            payload = {**entry["payload"]}
            if attempt != name or entry["kind"] != "reply":
                continue
            if role == "rollout":
                usage = usage_of(payload["usage"])
                calls.replies[int(turn)] = {**payload, "usage": None if usage is None else astuple(usage)}
            elif role == "tool":
                calls.tools[int(turn), int(number)] = (digest, payload["text"])
            else:
                calls.agent = payload
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFile(f"an entry of the journal about attempt {name} is none: {line[:120]!r}") from error
    return calls


def _of_agent(calls: _Calls, recorded: str) -> Answered:
    """An agent's own code made the answer out of whatever it asked, so no call's log-probabilities are the answer's."""
    output = (calls.agent or {})["trajectory"]["output"]
    ended = bool(recorded) and shorten_middle(output, RECORDED_CHARS) == recorded
    last = calls.replies[max(calls.replies)] if calls.replies else None
    return Answered(
        output if ended else None,
        model=last["model"] if last else None,
        usage_known=bool(calls.replies) and all(reply["usage"] for reply in calls.replies.values()),
    )


def _conversation(calls: _Calls, tools: Sequence[str]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for turn in sorted(calls.replies):
        reply = calls.replies[turn]
        asked = reply.get("tool_calls", ())
        message: dict[str, Any] = {"role": "assistant", "content": reply["content"]}
        if asked:
            message["tool_calls"] = [
                {"id": name, "type": "function", "function": {"name": function, "arguments": arguments}}
                for name, function, arguments, *_ in asked
            ]
        messages.append(message)
        results = sorted((number, result) for (at, number), result in calls.tools.items() if at == turn)
        waiting = [result for _, result in results]
        for name, function, arguments, *_ in asked:
            text = _result(waiting, function, arguments, tools)
            messages.append({"role": "tool", "tool_call_id": name, "name": function, "content": text})
    return messages


def _result(waiting: list[tuple[str, str]], function: str, arguments: str, tools: Sequence[str]) -> str:
    """The first result of such a call that was not handed out yet; a call of no tool was answered without being one."""
    request = canonical_json({"tool": function, "arguments": arguments})
    digest = sha256_hex(request.encode("utf-8", "surrogatepass"))[:_DIGITS]
    for place, (found, text) in enumerate(waiting):
        if found == digest:
            del waiting[place]
            return text
    return no_such_tool(function, tools)


def _logprobs(turns: Sequence[Mapping[str, Any]]) -> LogProbs | None:
    """Of one reply with its tokens; of several only the sum, because nobody counted the tokens of the tools' results.

    Complete is a reply with a value for every token that the endpoint counted; hidden reasoning has none.
    """
    values = [reply.get("token_logprobs") for reply in turns]
    known = [tokens for tokens in values if tokens]
    if not known:
        return None
    complete = all(
        tokens and reply["usage"] and not reply["usage"][3] and len(tokens) >= reply["usage"][1]
        for tokens, reply in zip(values, turns, strict=True)
    )
    total = math.fsum(value for tokens in known for value in tokens) if len(known) == len(turns) else None
    count = sum(map(len, known)) if total is not None else None
    tokens = tuple(known[0]) if len(turns) == 1 else None
    return LogProbs(tokens=tokens, total=total, count=count, complete=complete and total is not None)

"""Rebuild an attempt from its journalled calls: its whole answer, as a message or a conversation with tools, and its steps.

An answer is used only when its end is the one that was graded, as ``rollouts.jsonl`` shows it. Without it in the journal
there is no completion and no log-probability.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from tfgrpo.stores.batch.shapes import LogProbs
from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.frozen_json import Json, json_of
from tfgrpo.stores.runs.journal import GATEWAY, UNFINISHED, attempt_and_role
from tfgrpo.tasks.actors.registry import no_such_tool
from tfgrpo.tasks.group import RECORDED_CHARS
from tfgrpo.tasks.learning.summarize import shorten_middle
from tfgrpo.tasks.models.journaled import reply_of_json
from tfgrpo.tasks.models.wire import called, usage_of
from tfgrpo.tasks.shapes import Frame, frame_of_json, model_frame, tool_frame

_Calls: TypeAlias = dict[str, dict[tuple[int, int], tuple[str, Mapping[str, Any]]]]
"""Digest and payload of each call by role, then by turn and number; of a key that occurs twice, the later entry."""
_ROLES: Final = frozenset({"rollout", "tool", "agent"})
STEP_ROLES: Final = _ROLES | {GATEWAY, UNFINISHED}
"""Roles of the entries that ``steps_of`` reads."""
_SHORTENED: Final = re.compile(r"\n\[… \d+ characters left out …\]\n")
_DIGITS: Final = 16
_HEAD: Final = re.compile(rb'\{"schema":2,"key":("(?:[^"\\]|\\.)*"),"kind":"(reply|failure)"')


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


class Steps(NamedTuple):
    """The calls of an attempt, and its output; None while it has not ended."""

    frames: tuple[Frame, ...]
    output: str | None


def attempt_of_key(line: bytes, roles: Collection[str] = _ROLES) -> str | None:
    """Return the attempt that a line of the journal belongs to, ``epoch/arm/batch/item/rollout``; None for other calls."""
    # The key comes first in a line, so that replies, which are long, are not parsed.
    head = _HEAD.match(line)
    try:
        entry = {"key": json.loads(head[1]), "kind": head[2].decode()} if head else json.loads(line)
        attempt, role = attempt_and_role(entry["key"] if entry["kind"] == "reply" else "")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None  # a damaged line: its attempt counts as one without answer
    return attempt if role in roles else None


def answer_of(lines: Iterable[bytes], name: str, recorded: str, tools: Sequence[str]) -> Answered:
    """Return the answer of the attempt ``name`` whose end is ``recorded``; ``tools`` are the names it could call.

    ``lines`` may contain entries of other attempts. Raise ``CorruptFile`` for a damaged entry.
    """
    calls = _calls(lines, name)
    rollout = (payload for _, (_, payload) in sorted(calls["rollout"].items()))
    turns = [{**payload, "usage": usage_of(payload["usage"])} for payload in rollout]
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


def steps_of(lines: Iterable[bytes], name: str, tools: Sequence[str]) -> Steps:
    """Return what the attempt ``name`` did; ``tools`` are the names it could call.

    Of an agent of the user's own, what was seen of it; of one that was killed, its answered model calls. ``lines`` may contain
    entries of other attempts, and damaged ones, which are left out. Raise ``CorruptFile`` for an entry of another shape.
    """
    calls = _calls((line for line in lines if json_of(line) is not None), name)
    for role in ("agent", UNFINISHED):
        for _, payload in calls[role].values():
            trajectory = payload["trajectory"]
            frames = tuple(map(frame_of_json, trajectory["frames"]))
            return Steps(frames, trajectory["output"] if role == "agent" else None)
    frames = (*_turns(calls, tools), *_gateway_frames(calls))
    last = max(calls["rollout"].items(), default=None)
    ended = last is not None and not last[1][1].get("tool_calls")
    return Steps(frames, (last[1][1]["content"] or "") if last is not None and ended else None)


def _turns(calls: _Calls, tools: Sequence[str]) -> Iterator[Frame]:
    """Yield each reply of the model, and what the tools returned to its calls."""
    for (turn, _), (_, payload) in sorted(calls["rollout"].items()):
        reply = reply_of_json(payload)
        yield model_frame(reply)
        waiting = [result for key, result in sorted(calls["tool"].items()) if key[0] == turn]
        for call in reply.message.tool_calls:
            result = _result(waiting, call.name, call.arguments)
            if result is not None:
                failed = not result["ok"]
                yield tool_frame(call.name, result["text"], result["latency_ms"], result["cost_usd"], failed=failed)
            elif call.name not in tools:
                yield tool_frame(call.name, no_such_tool(call.name, tools), 0.0, None, failed=True)


def _gateway_frames(calls: _Calls) -> Iterator[Frame]:
    if not calls[GATEWAY]:
        return
    # With the HTTP server; few attempts need it.
    from tfgrpo.tasks.gateway.server import read_answer  # noqa: PLC0415 - see above
    from tfgrpo.tasks.gateway.session import Recorded  # noqa: PLC0415 - see above

    for _, payload in calls[GATEWAY].values():
        answer = Recorded.from_json(payload)
        reply = read_answer(answer.content_type, answer.body)
        if reply is not None:
            yield model_frame(reply)


def _ends(text: str, recorded: str) -> bool:
    return bool(recorded) and shorten_middle(text, RECORDED_CHARS) == recorded


def _calls(lines: Iterable[bytes], name: str) -> _Calls:
    calls: _Calls = {role: {} for role in STEP_ROLES}
    for line in lines:
        try:
            entry = json.loads(line)
            where, _, digest = entry["key"].rpartition("#")
            attempt, turn, role, number = where.rsplit("/", 3)
            payload = {**entry["payload"]}
            if attempt != name or entry["kind"] != "reply":
                continue
            if role == "rollout":
                usage_of(payload["usage"])  # has to be there
            # Answers of the gateway are numbered among equal requests only.
            place = len(calls[GATEWAY]) if role == GATEWAY else int(number)
            calls[role][int(turn), place] = (digest, payload)
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
        waiting = [result for key, result in sorted(calls["tool"].items()) if key[0] == turn]
        for name, function, arguments, *_ in requested:
            result = _result(waiting, function, arguments)
            # Calls of unknown tools have none and got a standard answer.
            text = no_such_tool(function, tools) if result is None else result["text"]
            messages.append({"role": "tool", "tool_call_id": name, "name": function, "content": text})
    return messages


def _result(waiting: list[tuple[str, Mapping[str, Any]]], function: str, arguments: str) -> Mapping[str, Any] | None:
    """Return and remove the first result of such a call; None without one."""
    request = canonical_json({"tool": function, "arguments": arguments})
    digest = sha256_hex(request.encode("utf-8", "surrogatepass"))[:_DIGITS]
    for index, (known, result) in enumerate(waiting):
        if known == digest:
            del waiting[index]
            return result
    return None


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

"""Answer one request: a function of the server's seed, the request and, if it has no seed, how often it was seen.

Independent of HTTP.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.seeds import derive_seed, stream
from tfgrpo.tasks.models.simulated.actor import act
from tfgrpo.tasks.models.simulated.options import FaultKind, SimulatedOptions, any_faults, choose_fault
from tfgrpo.tasks.models.simulated.protocol import MODEL_NAME, ChatBody
from tfgrpo.tasks.models.simulated.roles import learned_answer, structured_answer
from tfgrpo.tasks.models.simulated.worlds import ToolCall, Turn, open_world

LABEL = "SIMULATED"
_REMEMBERED = 100_000
"""Requests whose count is kept; the oldest are forgotten first."""
_LIMIT = 1024
_CHARS_PER_TOKEN = 4


def digest_of(value: Mapping[str, Any]) -> str:
    """Return a digest of a request's content, independent of spacing, order of keys and token limit.

    A limit cuts a reply; it does not change what the model would answer. The constant keeps seeded figures as they were.
    """
    if "max_tokens" in value:
        value = {**value, "max_tokens": _LIMIT}
    return sha256_hex(canonical_json(value).encode("utf-8", "surrogatepass"))


class Engine:
    """The simulated model without its service."""

    def __init__(self, options: SimulatedOptions) -> None:
        self._options = options
        self._world = open_world(options.world)
        self._faulty = any_faults(options.faults)
        self._seen: dict[str, int] = {}

    def arrive(self, body: ChatBody, digest: str) -> int:
        """Count a request and return how often it came before; 0 where the count changes no answer."""
        if body.seed is not None and not self._faulty:
            return 0
        before = self._seen.pop(digest, 0)
        self._seen[digest] = before + 1
        if len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return before

    def fault(self, digest: str, seen: int) -> FaultKind | None:
        """Return how this call breaks, or None."""
        return choose_fault(self._options.faults, self._options.seed, digest, seen) if self._faulty else None

    def answer(self, body: ChatBody, digest: str, seen: int, *, cut_off: bool = False) -> dict[str, Any]:
        """Return the completion. ``cut_off``: its text ends halfway."""
        count = seen if body.seed is None else 0
        rng = random.Random(derive_seed(self._options.seed, "reply", digest, count))
        learned = learned_answer(self._world, body, rng)
        if learned is not None:
            turn = Turn(json.dumps(learned, ensure_ascii=False))
        else:
            turn = act(self._world, body, self._options.seed, rng)
            turn = Turn(structured_answer(body, turn.text), turn.calls)
        return _completion(body, digest, turn, cut_off=cut_off)


def _completion(body: ChatBody, digest: str, turn: Turn, *, cut_off: bool) -> dict[str, Any]:
    calls = [_call(digest, index, call) for index, call in enumerate(turn.calls)]
    arguments = "".join(call["function"]["name"] + call["function"]["arguments"] for call in calls)
    whole = _count_tokens(turn.text + arguments)
    limit = max(1, whole // 2) if cut_off else body.limit
    text, finish = turn.text, "tool_calls" if calls else "stop"
    if limit is not None and (cut_off or whole > limit):
        text, calls, arguments, finish = turn.text[: limit * _CHARS_PER_TOKEN], [], "", "length"
    message: dict[str, Any] = {"role": "assistant", "content": text or None if calls else text, "refusal": None}
    if calls:
        message["tool_calls"] = calls
    logprobs = _logprobs(text, digest) if body.logprobs else None
    prompt, completion = _prompt_tokens(body), _count_tokens(text + arguments)
    return {
        "id": f"chatcmpl-simulated-{digest[:24]}",
        "object": "chat.completion",
        "created": 0,
        "model": MODEL_NAME,
        "system_fingerprint": LABEL,
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": logprobs}],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def _call(digest: str, index: int, call: ToolCall) -> dict[str, Any]:
    function = {"name": call.tool, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
    return {"id": f"call_{digest[:12]}_{index}", "type": "function", "function": function}


def _logprobs(text: str, digest: str) -> dict[str, Any]:
    rng = stream(0, "logprobs", digest)
    tokens = (text[start : start + _CHARS_PER_TOKEN] for start in range(0, len(text), _CHARS_PER_TOKEN))
    content = [
        {"token": token, "logprob": -rng.expovariate(4.0), "bytes": list(token.encode()), "top_logprobs": []}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def _count_tokens(text: str) -> int:
    """Return one token for four characters, rounded up: never more than the UTF-8 bytes of the text."""
    return -(-len(text) // _CHARS_PER_TOKEN)


def _prompt_tokens(body: ChatBody) -> int:
    shown = [message.text for message in body.messages]
    shown += [call.function.name + call.function.arguments for m in body.messages for call in m.tool_calls or ()]
    schemas: list[object] = [tool.model_dump(exclude_unset=True) for tool in body.tools or ()]
    if body.response_format is not None and body.response_format.json_schema is not None:
        schemas.append(body.response_format.json_schema.body)
    shown += [json.dumps(schema, ensure_ascii=False, separators=(",", ":")) for schema in schemas]
    return max(1, _count_tokens("".join(shown)))

"""What does a reply look like on the wire? One choice, usage that was counted, and the word SIMULATED."""

from __future__ import annotations

import json
from typing import Any

from tfgrpo.stores.seeds import stream
from tfgrpo.tasks.models.simulated.service.protocol import MODEL_NAME, ChatBody
from tfgrpo.tasks.models.simulated.service.tokens import count_tokens, cut, pieces
from tfgrpo.tasks.models.simulated.worlds.puzzle import PlannedCall, Speech

LABEL = "SIMULATED"


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def prompt_tokens(body: ChatBody) -> int:
    """Tokens of everything the request shows the model."""
    shown = [message.text for message in body.messages]
    shown += [call.function.name + call.function.arguments for m in body.messages for call in m.tool_calls or ()]
    if body.tools:
        shown += [_compact(tool.model_dump(exclude_unset=True)) for tool in body.tools]
    if body.response_format is not None and body.response_format.json_schema is not None:
        shown.append(_compact(body.response_format.json_schema.body))
    return max(1, count_tokens("".join(shown)))


def encode_completion(body: ChatBody, digest: str, speech: Speech, *, broken_off: bool = False) -> dict[str, Any]:
    """The body of a 200 answer. ``broken_off``: the reply ends halfway, as if the limit had been reached."""
    calls = [_call(digest, index, call) for index, call in enumerate(speech.calls)]
    arguments = "".join(call["function"]["name"] + call["function"]["arguments"] for call in calls)
    whole = count_tokens(speech.text + arguments)
    limit = body.limit if not broken_off else max(1, whole // 2)
    text, finish = speech.text, "tool_calls" if calls else "stop"
    if broken_off or (limit is not None and whole > limit):
        text, calls, arguments, finish = cut(speech.text, limit or whole), [], "", "length"
    message: dict[str, Any] = {"role": "assistant", "content": text or None if calls else text, "refusal": None}
    if calls:
        message["tool_calls"] = calls
    prompt, completion = prompt_tokens(body), count_tokens(text + arguments)
    return {
        "id": f"chatcmpl-simulated-{digest[:24]}",
        "object": "chat.completion",
        "created": 0,
        "model": MODEL_NAME,
        "system_fingerprint": LABEL,
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": finish,
                "logprobs": _logprobs(text, digest) if body.logprobs else None,
            }
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


def _call(digest: str, index: int, call: PlannedCall) -> dict[str, Any]:
    function = {"name": call.tool, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
    return {"id": f"call_{digest[:12]}_{index}", "type": "function", "function": function}


def _logprobs(text: str, digest: str) -> dict[str, Any]:
    rng = stream(0, "logprobs", digest)
    content = [
        {"token": piece, "logprob": -rng.expovariate(4.0), "bytes": list(piece.encode()), "top_logprobs": []}
        for piece in pieces(text)
    ]
    return {"content": content, "refusal": None}

"""What can the operator do about a request that an endpoint refused? The setting to change, where there is one.

Endpoints differ in what they take: reasoning models refuse a temperature, newer ones a ``max_tokens``, others a seed or
a schema. It reads the refusal and names the setting; it changes nothing by itself.
"""

from __future__ import annotations

import re
from typing import Final

_NEW_LIMIT: Final = "set model.max_tokens_field: max_completion_tokens"
_HINTS: Final = (
    # The first that fits: refusals of one parameter often name another one to use instead.
    (
        re.compile(
            r"context.?(length|window|size)|maximum (context|number of tokens)|tokens.{0,20}too large"
            r"|prompt is too long|reduce the length",
            re.IGNORECASE | re.DOTALL,
        ),
        "shorten the prompts, or lower model.max_tokens (of reflection and curation: model.learner_max_tokens)",
    ),
    (re.compile(r"max_completion_tokens.{0,40}instead", re.IGNORECASE | re.DOTALL), _NEW_LIMIT),
    (re.compile(r"\bmax_completion_tokens\b", re.IGNORECASE), "set model.max_tokens_field: max_tokens"),
    (re.compile(r"\bmax_tokens\b.{0,80}(unsupported|not supported|unrecognized)", re.IGNORECASE), _NEW_LIMIT),
    (
        re.compile(r"\b(reasoning\w*|extra_content)\b.{0,40}(unsupported|not supported|not permitted)", re.IGNORECASE),
        "set model.send_reasoning: false",
    ),
    (
        re.compile(r"\breasoning_(content|details)\b|\bthought.?signature", re.IGNORECASE),
        "set model.send_reasoning: true",
    ),
    (re.compile(r"\btemperature\b", re.IGNORECASE), "set model.send_temperature: false"),
    (re.compile(r"\bseed\b", re.IGNORECASE), "set model.send_seed: false"),
    (re.compile(r"\blogprobs\b", re.IGNORECASE), "set model.logprobs: false"),
    (
        re.compile(r"response_format|json_schema|structured.?output|guided", re.IGNORECASE),
        "set model.structured: json_object, or none",
    ),
    (
        re.compile(
            r"not support tools|\btools?\b.{0,60}(not support|unsupported)|tool.choice|tool-call-parser",
            re.IGNORECASE | re.DOTALL,
        ),
        "this model or server takes no tools as it is set up",
    ),
)
_BY_STATUS: Final = {
    404: "check the base URL (…/v1) and the model's name",
    405: "check the base URL (…/v1)",
}


def hint_of(status: int, said: str) -> str:
    """A hint to put behind the refusal, with a separator in front; empty when there is none."""
    if status in {400, 422}:
        for pattern, advice in _HINTS:
            if pattern.search(said):
                return f"; {advice}"
    advice = _BY_STATUS.get(status, "")
    return f"; {advice}" if advice else ""

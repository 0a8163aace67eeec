"""Read the error body of a refused request: its message, what kind of refusal it is, and which setting may help.

Vendors shape such bodies differently: ``error`` as an object (OpenAI) or a text (Ollama), ``message`` without it (vLLM),
``detail`` (FastAPI), a list around it (Gemini), or a page of a proxy. Whether to ask again is decided in ``retry``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tfgrpo.tasks.models.replies import json_of, mapping_of

_NO_CREDIT: Final = ("insufficient_quota", "billing_not_active", "exceeded_current_quota")
"""Codes of OpenAI and Moonshot for an empty account, sent as 429 although waiting does not help."""
_UNREADABLE: Final = ("tool_use_failed", "json_validate_failed")
"""Groq's codes, sent as 400, for an answer of the model's that it could not read."""
_FLAGGED: Final = re.compile(
    r"flagged|moderation|content[_ -]?policy|usage (guidelines|policies)|\brefusal\b", re.IGNORECASE
)
"""Words of OpenRouter and xAI, sent as 403, for a prompt that they do not pass on."""
_SCOPE: Final = re.compile(
    r"missing scope|insufficient (permission|scope)|(have|has) no (access|permission)|not have (access|permission)",
    re.IGNORECASE,
)

_NEW_LIMIT: Final = "set model.max_tokens_field: max_completion_tokens"
_TOO_LONG: Final = (
    r"context.?(length|window|size)|maximum (context|number of tokens)|tokens.{0,20}too large"
    r"|prompt is too long|reduce the length"
)
_HINTS: Final = (
    # The first match counts: refusals of one parameter often name another one to use instead.
    (
        _TOO_LONG,
        "shorten the prompts, or lower model.max_tokens (of reflection and curation: model.learner_max_tokens)",
    ),
    (r"max_completion_tokens.{0,40}instead", _NEW_LIMIT),
    (r"\bmax_completion_tokens\b", "set model.max_tokens_field: max_tokens"),
    (r"\bmax_tokens\b.{0,80}(unsupported|not supported|unrecognized)", _NEW_LIMIT),
    (
        r"\b(reasoning\w*|extra_content)\b.{0,40}(unsupported|not supported|not permitted)",
        "set model.send_reasoning: false",
    ),
    (r"\breasoning_(content|details)\b|\bthought.?signature", "set model.send_reasoning: true"),
    (r"\btemperature\b", "set model.send_temperature: false"),
    (r"\bseed\b", "set model.send_seed: false"),
    (r"\blogprobs\b", "set model.logprobs: false"),
    (r"response_format|json_schema|structured.?output|guided", "set model.structured: json_object, or none"),
    (
        r"not support tools|\btools?\b.{0,60}(not support|unsupported)|tool.choice|tool-call-parser",
        "this model or server takes no tools as it is set up",
    ),
)
_BY_STATUS: Final = {404: "check the base URL (…/v1) and the model's name", 405: "check the base URL (…/v1)"}


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error body, read."""

    status: int
    message: str
    """For people; the whole body where no message can be found in it."""
    label: str = ""
    """Its code and type, for machines; empty without any."""
    flagged_input: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that a gateway passes on within the body (OpenRouter), names in lower case."""

    @property
    def words(self) -> str:
        """Message and label."""
        return f"{self.message} {self.label}"

    @property
    def no_credit(self) -> bool:
        """The account is empty."""
        return self.status == 402 or (self.status == 429 and any(word in self.words for word in _NO_CREDIT))

    @property
    def unreadable(self) -> bool:
        """The model answered, and the endpoint could not parse the answer."""
        return self.status == 400 and any(word in self.words for word in _UNREADABLE)

    @property
    def flagged(self) -> bool:
        """It concerns the content of this prompt, not the account."""
        return self.flagged_input or bool(_FLAGGED.search(self.words))

    @property
    def out_of_scope(self) -> bool:
        """The key is valid, but not for this method."""
        return bool(_SCOPE.search(self.words))


def read_refusal(status: int, raw: bytes) -> Refusal:
    """Read the body of an error reply, or of an error behind a success status."""
    text = raw.decode("utf-8", "replace")
    body = json_of(text)
    body = mapping_of(body[0] if isinstance(body, list) and body else body)
    error = body.get("error", body)
    details = mapping_of(error)
    metadata = mapping_of(details.get("metadata"))
    messages = (details.get("message", details.get("detail")), error)
    return Refusal(
        status,
        message=next((each for each in messages if isinstance(each, str)), text),
        label=" ".join(str(details[name]) for name in ("code", "type") if isinstance(details.get(name), str | int)),
        flagged_input=bool(metadata.get("reasons") or metadata.get("flagged_input")),
        headers={str(name).lower(): str(value) for name, value in mapping_of(metadata.get("headers")).items()},
    )


def hidden_status(body: Mapping[str, Any]) -> int | None:
    """Return the status of an error behind a success status (OpenRouter); None for a real success."""
    code = mapping_of(body.get("error")).get("code") if not body.get("choices") else None
    if isinstance(code, str) and code.isascii() and code.isdigit():
        code = int(code[:4])
    return code if isinstance(code, int) and 400 <= code < 600 else None


def hint_of(status: int, words: str) -> str:
    """Return a hint to append to the refusal, with a separator in front; empty when there is none."""
    advice = _BY_STATUS.get(status, "")
    if status in {400, 422}:
        flags = re.IGNORECASE | re.DOTALL
        advice = next((each for pattern, each in _HINTS if re.search(pattern, words, flags)), "")
    return f"; {advice}" if advice else ""

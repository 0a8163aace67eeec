"""What does an endpoint say that refuses a request? The words of its error body, and what kind of refusal they tell of.

Vendors shape such bodies differently: ``error`` as an object (OpenAI) or a text (Ollama), ``message`` without it (vLLM),
``detail`` (FastAPI), a list around it (Gemini), or a page of a proxy. Whether to ask again is ``retry``'s to say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_SPENT: Final = ("insufficient_quota", "billing_not_active", "exceeded_current_quota")
"""OpenAI's and Moonshot's words for an account that has nothing left, sent as 429 though no waiting brings it back."""
_SLIPS: Final = ("tool_use_failed", "json_validate_failed")
"""Groq's words, sent as 400, for an answer of the model's that it could not read."""
_FLAGGED: Final = re.compile(
    r"flagged|moderation|content[_ -]?policy|usage (guidelines|policies)|\brefusal\b", re.IGNORECASE
)
"""OpenRouter's and xAI's words, sent as 403, for a prompt that they do not pass on."""
_SCOPE: Final = re.compile(
    r"missing scope|insufficient (permission|scope)|(have|has) no (access|permission)|not have (access|permission)",
    re.IGNORECASE,
)


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
    """Headers that a gateway passes on within the body (OpenRouter), names in small letters."""

    @property
    def words(self) -> str:
        """All that it says."""
        return f"{self.message} {self.label}"

    @property
    def spent(self) -> bool:
        """The account has nothing left."""
        return self.status == 402 or (self.status == 429 and any(word in self.words for word in _SPENT))

    @property
    def slip(self) -> bool:
        """The model answered, and the endpoint could make nothing of it."""
        return self.status == 400 and any(word in self.words for word in _SLIPS)

    @property
    def flagged(self) -> bool:
        """It is about what this one prompt says, not about who asks."""
        return self.flagged_input or bool(_FLAGGED.search(self.words))

    @property
    def out_of_scope(self) -> bool:
        """The key is good, and not for this."""
        return bool(_SCOPE.search(self.words))


def read_refusal(status: int, raw: bytes) -> Refusal:
    """Read the body of an answer that is no success, or that hides one."""
    text = raw.decode("utf-8", "replace")
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return Refusal(status, text)
    body = _mapping(body[0] if isinstance(body, list) and body else body)
    error = body.get("error", body)
    told = _mapping(error)
    metadata = _mapping(told.get("metadata"))
    said = (told.get("message", told.get("detail")), error)
    return Refusal(
        status,
        message=next((each for each in said if isinstance(each, str)), text),
        label=" ".join(str(told[name]) for name in ("code", "type") if isinstance(told.get(name), str | int)),
        flagged_input=bool(metadata.get("reasons") or metadata.get("flagged_input")),
        headers={str(name).lower(): str(value) for name, value in _mapping(metadata.get("headers")).items()},
    )


def hidden_status(body: Mapping[str, Any]) -> int | None:
    """The status that an error behind a success status stands for, where it says so (OpenRouter); else None."""
    code = _mapping(body.get("error")).get("code") if not body.get("choices") else None
    if isinstance(code, str) and code.isascii() and code.isdigit():
        code = int(code[:4])
    return code if isinstance(code, int) and 400 <= code < 600 else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}

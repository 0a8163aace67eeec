"""What does the reply of a judge say? Structured answers first, tolerant text second; a range that is kept.

It reads one reply. What it cannot read is a ``ValueError`` with the reason, never a number; nothing is guessed from
prose without a label, from NaN or infinity, or from a reply that was cut off.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeVar

Scale: TypeAlias = Literal["unit", "signed"]
Preference: TypeAlias = Literal["first", "second", "tie"]

LOWEST: Final[dict[Scale, float]] = {"unit": 0.0, "signed": -1.0}
"""What the worst output is given; the best is given 1."""

_T = TypeVar("_T")
_THOUGHT: Final = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_FENCE: Final = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_MARKUP: Final = r"[\s*_`\"'\u201c\u201d]*"
_NUMBER: Final = r"[-+\u2212\u2013]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][-+]?\d+)?"
_PER: Final = r"(?:/|\b(?:out\s+)?of\b)"
_SCORE: Final = re.compile(
    rf"(?<!\w)score{_MARKUP}(?:\([^()\n]*\){_MARKUP})?(?:[:=]|\bis\b|\bof\b){_MARKUP}"
    rf"(?P<value>{_NUMBER})(?:{_MARKUP}{_PER}{_MARKUP}(?P<of>{_NUMBER})|{_MARKUP}(?P<percent>%|percent\b))?"
    rf"(?![\w%/]|[.,]\d|{_MARKUP}{_PER}{_MARKUP}\d|{_MARKUP}%)",
    re.IGNORECASE,
)
_BETTER: Final = re.compile(
    rf"(?<!\w)(?:better|winner|verdict){_MARKUP}(?:[:=]|\bis\b){_MARKUP}(?:the\s+)?"
    r"(?P<which>first|second|tie|equal|neither|both|[ab12])(?!\w)",
    re.IGNORECASE,
)
_WHICH: Final[dict[str, Preference]] = {
    **dict.fromkeys(("first", "a", "1"), "first"),
    **dict.fromkeys(("second", "b", "2"), "second"),
    **dict.fromkeys(("tie", "equal", "neither", "both"), "tie"),
}


@dataclass(frozen=True, slots=True)
class ReadScore:
    """A score as the judge gave it, on a scale from 0 to 1."""

    score: float
    clamped: bool
    """It lay outside the range asked for, and was moved to its end."""
    reason: str
    """In the judge's words; empty when it gave none."""


@dataclass(frozen=True, slots=True)
class ReadPreference:
    """Which of two outputs the judge prefers."""

    better: Preference
    reason: str


def read_score(text: str, scale: Scale = "unit") -> ReadScore:
    """The score in a reply: the member ``score`` of its last JSON object that has a usable one, else its last labelled number.

    Labels may be in any case, in bold, in a list, behind words; ``x/y``, ``x out of y`` and ``x%`` are divided out, commas
    and the Unicode minus understood. Raises ``ValueError`` when there is none that is finite.
    """
    return _read(text, lambda answer: _score_of(answer, scale), lambda spoken: _spoken_score(spoken, scale), "score")


def read_preference(text: str) -> ReadPreference:
    """The preference in a reply: the member ``better`` of its last JSON object, else its last line that labels one.

    Raises ``ValueError`` when there is none.
    """
    return _read(text, _preference_of, _spoken_preference, "preference")


def _read(
    text: str, structured: Callable[[dict[str, Any]], _T | None], spoken: Callable[[str], _T | None], what: str
) -> _T:
    said = _THOUGHT.sub("", text).strip()
    if not said:
        raise ValueError("the reply is empty")
    for piece, answer in _objects(said):
        found = structured(answer)
        if found is not None:
            return found
        # What an object says elsewhere, in the words of its reason, is no verdict: it may quote the output.
        said = said.replace(piece, " ")
    heard = spoken(said)
    if heard is None:
        raise ValueError(f"no {what} in the reply")
    return heard


def _objects(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """JSON objects of a reply, the last one first: the whole of it, what stands in fences, or between first and last brace."""
    pieces = [text, *reversed(_FENCE.findall(text)), text[text.find("{") : text.rfind("}") + 1]]
    for piece in pieces:
        if not piece.lstrip().startswith("{"):
            continue
        try:
            value = json.loads(piece)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield piece, value


def _score_of(answer: dict[str, Any], scale: Scale) -> ReadScore | None:
    given = answer.get("score")
    if isinstance(given, str):
        spoken = _SCORE.fullmatch(f"score: {given.strip()}")
        value = _value_of(spoken) if spoken else None
    else:
        value = _finite(given)
    return None if value is None else _on_scale(value, scale, _reason_of(answer))


def _spoken_score(text: str, scale: Scale) -> ReadScore | None:
    values = [value for match in _SCORE.finditer(text) if (value := _value_of(match)) is not None]
    return _on_scale(values[-1], scale, "") if values else None


def _value_of(match: re.Match[str]) -> float | None:
    value = _number(match["value"])
    if value is None:
        return None
    if match["percent"]:
        return value / 100.0
    if match["of"] is None:
        return value
    whole = _number(match["of"])
    return _finite(value / whole) if whole is not None and whole > 0.0 else None


def _number(text: str) -> float | None:
    plain = text.replace("\u2212", "-").replace("\u2013", "-").replace(",", ".")
    return _finite(float(plain))


def _finite(given: object) -> float | None:
    """The number, if it is one; a truth value is none, and neither is a whole number beyond the range of a float."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    try:
        value = float(given)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def _on_scale(value: float, scale: Scale, reason: str) -> ReadScore:
    lowest = LOWEST[scale]
    kept = min(max(value, lowest), 1.0)
    return ReadScore((kept - lowest) / (1.0 - lowest), kept != value, reason)


def _preference_of(answer: dict[str, Any]) -> ReadPreference | None:
    better = _WHICH.get(str(answer.get("better")).strip().lower())
    return None if better is None else ReadPreference(better, _reason_of(answer))


def _spoken_preference(text: str) -> ReadPreference | None:
    found = _BETTER.findall(text)
    return ReadPreference(_WHICH[found[-1].lower()], "") if found else None


def _reason_of(answer: dict[str, Any]) -> str:
    reason = answer.get("reason")
    return reason if isinstance(reason, str) else ""

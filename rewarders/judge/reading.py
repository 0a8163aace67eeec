"""Read a judge's reply: structured answers first, tolerant text second, one verdict or none.

A reply may quote the output it judges, so nothing in it is believed by its place alone. Two different verdicts, a score
outside the scale, NaN, or prose without a label are a ``ValueError`` with the reason, never a number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeVar

from tfgrpo.rewarders.judge.prose import HELD, is_stated
from tfgrpo.stores.numeric import is_finite

Scale: TypeAlias = Literal["unit", "signed"]
Preference: TypeAlias = Literal["first", "second", "tie"]

LOWEST: Final[dict[Scale, float]] = {"unit": 0.0, "signed": -1.0}
"""What the worst output is given; the best is given 1."""

_T = TypeVar("_T")
_ROUNDING: Final = 1e-6
"""A score so little outside the scale is moved to its end."""
_THOUGHT: Final = re.compile(r"\A\s*<think>.*?(?:</think>|\Z)", re.DOTALL)
_OPENING: Final = re.compile(r"\{(?=\s*[\"'])")
_BACKSLASH: Final = re.compile(r"\\(?:[\"\\/bfnrt]|u[0-9a-fA-F]{4})?")
_MARKUP: Final = r"[\s*_`\"'\u201c\u201d]*"
_NUMBER: Final = r"[-+\u2212\u2013]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][-+]?\d+)?"
_PER: Final = r"(?:/|\b(?:out\s+)?of\b)"
_IN_WORDS: Final = r"zero|one|two|three|four|five|six|seven|eight|nine|ten|half|full|none|nothing"
_SCORE: Final = re.compile(
    rf"(?<!\w)score{_MARKUP}(?:\([^()\n]*\){_MARKUP})?(?:[:=]|\bis\b|\bof\b){_MARKUP}"
    rf"(?:(?P<value>{_NUMBER})(?:{_MARKUP}{_PER}{_MARKUP}(?P<of>{_NUMBER})|{_MARKUP}(?P<percent>%|percent\b))?"
    rf"(?![\w%/]|[.,]\d|{_MARKUP}{_PER}{_MARKUP}\d|{_MARKUP}%)|(?:{_IN_WORDS})\b)",
    re.IGNORECASE,
)
_BETTER: Final = re.compile(
    rf"(?<!\w)(?:better|winner|verdict){_MARKUP}(?:[:=]|\bis\b){_MARKUP}(?:the\s+|a\s+(?=tie))?"
    r"(?P<which>first|second|tie|equal|neither|both|[ab12])(?![\w/%]|[.,]\d)",
    re.IGNORECASE,
)
_WHICH: Final[dict[str, Preference]] = {
    **dict.fromkeys(("first", "a", "1"), "first"),
    **dict.fromkeys(("second", "b", "2"), "second"),
    **dict.fromkeys(("tie", "equal", "neither", "both"), "tie"),
}
_TOP: Final = r"(?:5|10|20|100)\b"
_OTHER_SCALE: Final = re.compile(
    rf"(?:/|\b(?:out\s+)?of\b|\bscale\b|\bto\b|[-\u2013]|\bmax\w*(?:\s+score)?(?:\s+is\b)?|\bwhere\b)[\s*:(]*{_TOP}"
    rf"|\b{_TOP}[\s-]*(?:is|max\w*|points?|stars?)\b",
    re.IGNORECASE,
)
"""Names a scale on which 1 is far from the best."""


@dataclass(frozen=True, slots=True)
class ReadScore:
    """A score as the judge gave it, on a scale from 0 to 1."""

    score: float
    reason: str
    """In the judge's words; empty when it gave none."""


@dataclass(frozen=True, slots=True)
class ReadPreference:
    """Which of two outputs the judge prefers."""

    better: Preference
    reason: str


def read_score(text: str, scale: Scale = "unit") -> ReadScore:
    """Return the score of a reply: the member ``score`` of a JSON object in it, or a labelled number.

    Labels may be in any case, in bold, in a list, behind words; ``x/y``, ``x out of y`` and ``x%`` are divided out, commas
    and the Unicode minus understood. Raises ``ValueError`` when there is none, when there are different ones, when all are
    quotations, and when one is outside the scale.
    """
    prose, given = _split(text, "score")
    said = list(_SCORE.finditer(prose))
    values = [_structured_score(answer) for answer in given] + [_value_of(match) for match in said]
    value = _agreed((_on_scale(value, scale) for value in values), "score")
    divided = any(match["of"] or match["percent"] for match in said)
    if value == 1.0 and not divided and (_OTHER_SCALE.search(prose) or any(map(_names_a_top, given))):
        raise ValueError("the score 1 is beside another scale; divide by its top")
    _require_stated(prose, _SCORE, "score")
    return ReadScore(value, _reason(given))


def read_preference(text: str) -> ReadPreference:
    """Return the preference of a reply: the member ``better`` of a JSON object in it, or a labelled word.

    Raises ``ValueError`` when there is none, when there are different ones, and when all are quotations.
    """
    prose, given = _split(text, "better")
    labelled = [_WHICH[match["which"].lower()] for match in _BETTER.finditer(prose)]
    better = _agreed([*map(_structured_preference, given), *labelled], "preference")
    _require_stated(prose, _BETTER, "preference")
    return ReadPreference(better, _reason(given))


def _split(text: str, member: str) -> tuple[str, list[dict[str, Any]]]:
    """The text of a reply without its JSON objects, with ``HELD`` for those that have ``member``, and these.

    What an object says elsewhere, in the words of its reason, is no verdict: it may quote the output.
    """
    said = _THOUGHT.sub("", text).replace(HELD, "").strip()
    if not said:
        raise ValueError("the reply is empty")
    # Judges of mathematics write "\(" into JSON strings, where a backslash has to be doubled.
    said = _BACKSLASH.sub(lambda found: found[0] if len(found[0]) > 1 else "\\\\", said)
    pieces: list[str] = []
    given: list[dict[str, Any]] = []
    place = 0
    while opening := _OPENING.search(said, place):
        try:
            answer, end = _DECODER.raw_decode(said, opening.start())
        except (ValueError, RecursionError):
            # Where its strings end is unknown, so words of the output in them may look like the judge's.
            raise ValueError("no score or preference: a JSON object in the reply cannot be read") from None
        pieces.append(said[place : opening.start()])
        if member in answer:
            pieces.append(HELD)
            given.append(answer)
        place = end
    return "".join([*pieces, said[place:]]), given


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = {name.lower(): value for name, value in pairs}
    if len(members) < len(pairs):
        raise ValueError("a member is given twice")
    return members


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_members, strict=False)


def _agreed(values: Iterable[_T], what: str) -> _T:
    distinct = sorted(set(values), key=str)
    if not distinct:
        raise ValueError(f"no {what} in the reply")
    if len(distinct) > 1:
        raise ValueError(f"more than one {what} in the reply: {', '.join(map(str, distinct))}")
    return distinct[0]


def _require_stated(prose: str, label: re.Pattern[str], what: str) -> None:
    if not is_stated(prose, label):
        raise ValueError(f"no {what} in the reply but in quotations")


def _structured_score(answer: dict[str, Any]) -> float:
    given = answer["score"]
    if isinstance(given, str) and (said := _SCORE.fullmatch(f"score: {given.strip()}")):
        return _value_of(said)
    return _finite(given)


def _value_of(said: re.Match[str]) -> float:
    value = _number(said["value"])
    if said["percent"]:
        return value / 100.0
    if said["of"] is None:
        return value
    whole = _number(said["of"])
    return _finite(value / whole if whole > 0.0 else None)


def _number(text: str | None) -> float:
    plain = (text or "NaN").replace("\u2212", "-").replace("\u2013", "-").replace(",", ".")
    return _finite(float(plain))


def _finite(given: object) -> float:
    """The number, if it is one; a truth value is none, and neither is a whole number beyond the range of a float."""
    if not isinstance(given, bool) and isinstance(given, int | float) and is_finite(given):
        return float(given)
    raise ValueError("no score in the reply that is a number")


def _on_scale(value: float, scale: Scale) -> float:
    lowest = LOWEST[scale]
    if not lowest - _ROUNDING <= value <= 1.0 + _ROUNDING:
        raise ValueError(f"the score {value:g} is outside the scale from {lowest:g} to 1")
    return (min(max(value, lowest), 1.0) - lowest) / (1.0 - lowest)


def _names_a_top(answer: dict[str, Any]) -> bool:
    """Whether a member beside score and reason names another scale, as ``"max": 10`` does."""
    others = {name: value for name, value in answer.items() if name not in ("score", "reason")}
    return re.search(rf"\b{_TOP}", json.dumps(others)) is not None


def _structured_preference(answer: dict[str, Any]) -> Preference:
    better = _WHICH.get(str(answer["better"]).strip().lower())
    if better is None:
        raise ValueError("no preference in the reply that is first, second or tie")
    return better


def _reason(given: list[dict[str, Any]]) -> str:
    return next((answer["reason"] for answer in given if isinstance(answer.get("reason"), str)), "")

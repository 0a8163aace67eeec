"""Parse a judge's reply: structured answers first, tolerant text second, one verdict or none.

A reply may quote the output it judges, so its quotations are distinguished from its statements. What is not one verdict raises
``ValueError`` with the reason.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar, cast

from tfgrpo.stores.numeric import as_list, is_number

if TYPE_CHECKING:
    from tfgrpo.rewarders.judge.model import Point

Preference: TypeAlias = Literal["first", "second", "tie"]

_PLACEHOLDER: Final = "\x00"

_T = TypeVar("_T")
# A score this little outside the scale is clamped
_ROUNDING: Final = 1e-6
_THOUGHT: Final = re.compile(r"\A\s*<(think|thinking)>.*?(?:</\1>|\Z)", re.DOTALL)
_OPENING: Final = re.compile(r"\{(?=\s*[\"'])")
_BACKSLASH: Final = re.compile(r"\\(?:[\"'\\/bfnrt]|u[0-9a-fA-F]{4})?")
# What JSON and a Python literal write differently, and brackets
_LEXEME: Final = re.compile(
    r"(?P<string>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')|(?P<open>[\"'])|(?P<bracket>[{}\[\]])|,(?=\s*[}\]])|\b(?P<name>True|False|None)\b",
    re.DOTALL,
)
_IN_STRING: Final = re.compile(r"\\.|\"", re.DOTALL)
_ESCAPES: Final = {"\\'": "'", '"': r"\""}
_CONSTANTS: Final = {"True": "true", "False": "false", "None": "null"}
_MARKUP: Final = r"[\s*_`\"'\u201c\u201d]*"
_LEFT: Final = r"(?:[\s*_`$\"'\u201c\u201d(\[]|\\boxed\{)*"
_RIGHT: Final = r"[\s*_`$\"'\u201c\u201d)\]}]*"
_NUMBER: Final = r"[-+\u2212\u2013]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][-+]?\d+)?"
_PER: Final = r"(?:/|\b(?:out\s+)?of\b)"
_VALUE: Final = (
    rf"(?P<value>{_NUMBER})(?:{_RIGHT}{_PER}{_LEFT}(?P<of>{_NUMBER})|{_RIGHT}(?P<percent>%|percent\b))?"
    rf"(?![\w%/]|[.,]\d|{_RIGHT}{_PER}{_RIGHT}\d|{_RIGHT}%)"
)
_IN_WORDS: Final = r"zero|one|two|three|four|five|six|seven|eight|nine|ten|half|full|none|nothing"
_SIGN: Final = r"(?:->|=>|\u2192|[:=\uff1a]|\bis\b\s*:?)"
_SCORE: Final = re.compile(
    rf"(?:(?<!\w)(?:score|rating|grade){_MARKUP}(?:\([^()\n]*\){_MARKUP})?"
    rf"(?:{_SIGN}|\bof\b\s*:?|(?<=\s)[-\u2013\u2014](?=\s)|(?:(?<=<score)|(?<=<rating)|(?<=<grade))>)"
    rf"|(?<!\w)(?:give|rate|award|assign)(?:\s+(?:it|this|that|the))?(?:\s+(?:answer|output|reply|response|solution))?"
    rf"(?:\s+(?:an?|as|at))?\s(?={_LEFT}{_NUMBER}{_RIGHT}(?:{_PER}|%|percent\b)))"
    rf"{_LEFT}(?:{_VALUE}|(?:{_IN_WORDS})\b)",
    re.IGNORECASE,
)
# A reply that is only a value
_ALONE: Final = re.compile(
    rf"(?:[\s*_`$]|\[\[|\\boxed\{{)*{_VALUE}(?:[\s*_`$}}]|\]\])*(?:(?:stars?|points?)\b[\s*_`]*)?[.!]?\s*", re.IGNORECASE
)
_HEADING: Final = re.compile(
    r"^[ \t]*(?:#{1,6}[ \t]+|\*\*|__)(?:(?:final|overall|total)[ \t]+)?(?:score|rating|grade)(?:\*\*|__)?[ \t]*\n\s*"
    rf"(?=[ \t*_`\[]*{_NUMBER}(?:[ \t]*(?:/|out[ ]of)[ \t]*{_NUMBER}|[ \t]*%)?[ \t*_`\].]*$)",
    re.IGNORECASE | re.MULTILINE,
)
_LOWEST_OF_TEN: Final = re.compile(r"\[\[\s*1\s*\]\](?!\s*/)")
_BETTER: Final = re.compile(
    rf"(?:(?<!\w)(?:better|winner|verdict|preference){_MARKUP}(?:{_SIGN}|(?:(?<=<better)|(?<=<winner)|(?<=<verdict))>)"
    rf"{_LEFT}(?:the\s+|a\s+(?=tie))?(?:(?:answer|assistant|candidate|model|output|response)\s+)?"
    r"(?P<which>first|second|tie|equal|neither|both|[ab12])(?!\s*(?:[>=]|<(?!/)))"
    r"|\[\[\s*(?P<bracketed>first|second|tie|[abc12]|a\s*(?:<<?|>>?|=)\s*b|b\s*(?:<<?|>>?|=)\s*a)\s*\]\])(?![\w/%]|[.,]\d)",
    re.IGNORECASE,
)
# Verdicts, also in the brackets that MT-Bench and Arena-Hard ask for
_PREFERENCES: Final[dict[str, Preference]] = {
    **dict.fromkeys(("first", "a", "1", "a>b", "a>>b", "b<a", "b<<a"), "first"),
    **dict.fromkeys(("second", "b", "2", "b>a", "b>>a", "a<b", "a<<b"), "second"),
    **dict.fromkeys(("tie", "equal", "neither", "both", "c", "a=b", "b=a"), "tie"),
}
_VERDICTS: Final = {
    "correct": "correct",
    **dict.fromkeys(("incorrect", "wrong"), "incorrect"),
    **dict.fromkeys(("unattempted", "notattempted", "not_attempted"), "unattempted"),
}
_VERDICT: Final = re.compile(
    rf"(?<!\w)(?:verdict|grade|assessment){_MARKUP}{_SIGN}{_LEFT}(?P<which>(?:in)?correct|wrong|unattempted|not[ _]attempted)"
    r"\b",
    re.IGNORECASE,
)
_NOTHING: Final = re.compile(r"(?!)")
_TOP: Final = r"(?:5|10|20|100)\b"
# Names a scale on which 1 is far from the best
_OTHER_SCALE: Final = re.compile(
    rf"(?:/|\b(?:out\s+)?of\b|\bscale\b|\bto\b|[-\u2013]|\bmax\w*(?:\s+score)?(?:\s+is\b)?|\bwhere\b)[\s*:(]*{_TOP}"
    rf"|\b{_TOP}[\s-]*(?:is|max\w*|points?|stars?)\b",
    re.IGNORECASE,
)
_WHOLE: Final = re.compile(r"\s*(?:```[^\n`]*\n([^`]*)```|[\"\u201c`]([^\"\u201c\u201d`]*)[\"\u201d`])\s*")
_FENCED: Final = re.compile(r"^[ \t]*(```|~~~)[^\n]*\n(.*?)(?:^[ \t]*\1[^\n]*$|\Z)", re.DOTALL | re.MULTILINE)
_QUOTED: Final = re.compile(
    r"^[ \t]*>.*$|\"[^\"]*(?:\"|\Z)|\u201c[^\u201d]*(?:\u201d|\Z)|\u00ab[^\u00bb]*(?:\u00bb|\Z)|`[^`\n]*`", re.MULTILINE
)
# Ends a sentence; a line break behind a colon does not
_SENTENCE: Final = re.compile(
    r"(?<![:\s])\s*\n|[.!?;](?=\s)|</(?:analysis|critique|explanation|feedback|justification|rationale|reason(?:ing)?)>"
)
_WORD: Final = re.compile(r"[^\W\d_]+")
_LEAD_CHARS: Final = 160
_JUDGE: Final = {
    *"assessment deserves earns evaluation gets i judgement judgment me merits my rating receives verdict".split()  # noqa: SIM905
}
# Words that need one of ``_JUDGE`` too: ``the output: score: 1`` quotes, ``I give the output a score of 1`` states
_OUTPUT: Final = {"answer", "assistant", "output", "reply", "response"}
_LINKING: Final = {
    *"a an and as assign award b based be below better choice choose conclusion d evaluate final following for "  # noqa: SIM905
    "format gave give given go grade hence here in is it json judge let ll object of on overall pick prefer "
    "preference rate requested result rubric s select significantly slightly so summary sure that the therefore "
    "think this thus tie to total up will winner with would".split()
}
_LEADING: Final = _JUDGE | _OUTPUT | _LINKING
# What may follow a statement: ``1 to 10``, ``1 - 0.7`` and ``1 would be too much`` state something else
_AFTER: Final = re.compile(
    r"(?:</\w+>)?[*_`$\"'\u201d)\]}]*(?:\s*\Z|[ \t]*\n|\s*[.!;](?!\w)|\s*[(\u2013\u2014](?!\s*\d)|\s+-\s(?!\s*\d)|\s*\|\s*[a-z]"
    r"|,?\s+(?:of\s+course|because|since|as|overall|points?|stars?|output|response)\b"
    r"|,\s+(?:explanation|feedback|justification|rationale|reason(?:ing)?)\b)",
    re.IGNORECASE,
)


class Judgement(NamedTuple, Generic[_T]):
    """Verdict of a judge, with the reason in its words; empty without one."""

    value: _T
    reason: str


def read_score(text: str) -> Judgement[float]:
    """Return the score of a reply, from 0 to 1: the member ``score`` of a JSON object in it, or a labelled number.

    Labels (score, rating, grade) may be in any case, in bold, in a list, a heading, a tag, after words; ``x/y``, ``x out of
    y`` and ``x%`` are divided, commas and the Unicode minus are accepted. A number that is the whole reply needs no label.
    Raises ``ValueError`` for no score, for different ones, for quotations alone, and for one outside the scale.
    """
    prose, answers = _split(text, "score")
    alone = _ALONE.fullmatch(_unwrapped(prose))
    prose = _HEADING.sub("Score: ", prose)
    labelled = [alone] if alone else [*_SCORE.finditer(prose)]
    members = [answer["score"] for answer in answers]
    written = [_SCORE.fullmatch(f"score: {each.strip()}") if isinstance(each, str) else None for each in members]
    values = [_value_of(match) if match else _finite(each) for match, each in zip(written, members, strict=True)]
    value = _agreed((*values, *map(_value_of, labelled)), "score")
    if not -_ROUNDING <= value <= 1.0 + _ROUNDING:
        raise ValueError(f"the score {value:g} is outside the scale from 0 to 1")
    value = min(max(value, 0.0), 1.0)
    if value == 1.0 and not any(match["of"] or match["percent"] for match in labelled):
        # A member other than score and reason may name another scale, as ``"max": 10`` does.
        others = json.dumps([{key: each for key, each in one.items() if key not in ("score", "reason")} for one in answers])
        if _OTHER_SCALE.search(prose) or _LOWEST_OF_TEN.search(prose) or re.search(rf"\b{_TOP}", others):
            raise ValueError("the score 1 may be of another scale; divide by its top")
    if alone is None:
        _require_stated(prose, _SCORE, "score")
    return Judgement(value, _reason(answers))


def read_preference(text: str) -> Judgement[Preference]:
    """Return the preference of a reply: the member ``better`` of a JSON object, or a labelled word. Raises ``ValueError``."""
    prose, answers = _split(text, "better")
    return Judgement(_word_of(prose, answers, "better", _BETTER, _PREFERENCES), _reason(answers))


def read_verdict(text: str) -> Judgement[float]:
    """Return 1 for the verdict ``correct``, 0 for ``incorrect`` and ``unattempted``. Raises ``ValueError``."""
    prose, answers = _split(text, "verdict")
    alone = _VERDICTS.get(_bare(_unwrapped(prose).rstrip(".")))
    verdict = alone or _word_of(prose, answers, "verdict", _VERDICT, _VERDICTS)
    return Judgement(float(verdict == "correct"), f"{verdict}: {_reason(answers)}".removesuffix(": "))


def read_checklist(text: str, points: Sequence[Point]) -> Judgement[float]:
    """Return the share of the points' weight that is met. Raises ``ValueError`` unless a reply says it of each point once."""
    prose, answers = _split(text, "points")
    rows = [row for answer in answers for row in as_list(answer["points"]) or ()]
    met: dict[Any, object] = {row.get("point"): row.get("met") for row in rows if isinstance(row, dict)}
    booleans = all(isinstance(each, bool) for each in met.values())
    if not booleans or len(rows) != len(points) or met.keys() != {*range(1, len(points) + 1)}:
        raise ValueError(f"no reply that says of each of the {len(points)} points once whether it is met")
    _require_stated(prose, _NOTHING, "checklist")
    share = math.fsum(points[number - 1].weight for number in met if met[number]) / math.fsum(p.weight for p in points)
    missed = [f"{number}. {points[number - 1].text}" for number in sorted(met) if not met[number]]
    return Judgement(share, f"not met: {'; '.join(missed)}" if missed else "every point is met")


def _bare(word: str) -> str:
    return re.sub(r"[\s*`\[\]]", "", word).lower()


def _word_of(prose: str, answers: Sequence[dict[str, Any]], member: str, label: re.Pattern[str], words: Mapping[str, _T]) -> _T:
    """Return the one meaning of the member and of the labelled words. Raises ``ValueError``."""
    what = "preference" if member == "better" else member
    written = [str(answer[member]) for answer in answers]
    labelled = [next(filter(None, match.groups())) for match in label.finditer(prose)]
    if any(_bare(each) not in words for each in written):
        raise ValueError(f"no {what} in the reply that is {', '.join(map(str, dict.fromkeys(words.values())))}")
    meaning = _agreed([words[_bare(each)] for each in (*written, *labelled)], what)
    _require_stated(prose, label, what)
    return meaning


def _split(text: str, member: str) -> tuple[str, list[dict[str, Any]]]:
    """Put a placeholder for each object with ``member``. Other members, such as the reason, may quote the output."""
    reply = re.sub("\r\n?", "\n", _THOUGHT.sub("", text)).replace(_PLACEHOLDER, "").strip()
    if not reply:
        raise ValueError("the reply is empty")
    # Judges of mathematics write "\(" into JSON strings, where a backslash has to be doubled.
    reply = _BACKSLASH.sub(lambda match: match[0] if len(match[0]) > 1 else "\\\\", reply)
    prose, end = "", 0
    answers: list[dict[str, Any]] = []
    while opening := _OPENING.search(reply, end):
        prose += reply[end : opening.start()]
        try:
            answer, end = _read_object(reply, opening.start())
        except (ValueError, RecursionError):
            # The ends of its strings are unknown, so words of the output in them may look like the judge's.
            raise ValueError("no score or preference: a JSON object in the reply cannot be read") from None
        if member in answer:
            prose += _PLACEHOLDER
            answers.append(answer)
    return prose + reply[end:], answers


def _read_object(text: str, begin: int) -> tuple[dict[str, Any], int]:
    """Return the object that starts here, and its end: of JSON, also with trailing commas, or of a Python literal."""
    with suppress(json.JSONDecodeError):
        return _DECODER.raw_decode(text, begin)
    pieces: list[str] = []
    depth, end = 0, begin
    for lexeme in _LEXEME.finditer(text, begin):
        if lexeme["open"]:
            break
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(lexeme["bracket"] or "", 0)
        in_json = lexeme["bracket"] or _CONSTANTS.get(lexeme["name"] or "", "")
        if lexeme["string"] is not None:
            in_json = f'"{_IN_STRING.sub(lambda sign: _ESCAPES.get(sign[0], sign[0]), lexeme["string"][1:-1])}"'
        pieces += (text[end : lexeme.start()], in_json)
        end = lexeme.end()
        if depth == 0:
            return _DECODER.decode("".join(pieces)), end
    raise ValueError("the object has no end")


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


def _value_of(match: re.Match[str]) -> float:
    signs = str.maketrans("\u2212\u2013,", "--.")
    value = _finite(float((match["value"] or "NaN").translate(signs)))
    if match["of"] is None:
        return value / 100.0 if match["percent"] else value
    whole = _finite(float(match["of"].translate(signs)))
    return _finite(value / whole if whole > 0.0 else None)


def _finite(score: object) -> float:
    if is_number(score, allow_nan=False):
        return float(cast("float", score))
    raise ValueError("no score in the reply that is a number")


def _reason(answers: Sequence[dict[str, Any]]) -> str:
    return next((answer["reason"] for answer in answers if isinstance(answer.get("reason"), str)), "")


def _require_stated(text: str, label: re.Pattern[str], what: str) -> None:
    # A statement is outside quotation marks, fences and block quotes, after words of a closed list, and before none that
    # qualify it. Unclear prose counts as a quotation: to ask again costs less than a wrong score.
    if _WHOLE.fullmatch(text):
        own = _unwrapped(text)  # a reply that is quoted as a whole is no quotation
    else:
        own = _FENCED.sub(lambda fence: fence[2] if _PLACEHOLDER in fence[2] else "", text)
        own = _QUOTED.sub(lambda span: "" if _PLACEHOLDER in span[0] or label.search(span[0]) else span[0], own)
    objects = (_is_led(own, each) for each in re.finditer(_PLACEHOLDER, own))
    labels = (_is_led(own, each) and _AFTER.match(own, each.end()) for each in label.finditer(own))
    if not any(objects) and not any(labels):
        raise ValueError(f"no {what} in the reply but in quotations")


def _unwrapped(text: str) -> str:
    whole = _WHOLE.fullmatch(text)
    return (whole[1] or whole[2] or "") if whole else text


def _is_led(own: str, statement: re.Match[str]) -> bool:
    lead = _SENTENCE.split(own[max(0, statement.start() - _LEAD_CHARS) : statement.start()])[-1]
    words = set(_WORD.findall(lead.lower()))
    return words <= _LEADING and (not words & _OUTPUT or bool(words & _JUDGE))

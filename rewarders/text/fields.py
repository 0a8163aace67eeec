"""Find the field of a reply that a question asks for: ``capital_city`` of an object for "What is the capital city …"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tfgrpo.rewarders.text import answers
from tfgrpo.rewarders.text.spelling import is_form_of

_FIELD_LINE: Final = re.compile(
    r"[ \t>*_#•-]*(?P<name>[^\W\d_][^:|\n]{0,40}?)[ \t*_]*(?:\||:)(?=[ *_])[*_]*[ \t]+(?P<value>\S.*)"
)
_MOST_FIELDS: Final = 50
_MOST_WORDS: Final = 400
"""Of a question that are searched."""
_NO_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?:(?![,;(\n])[_\W])+")
"""Between the words of a name: ``unitPrice``, ``unit_price``."""
_ASKS: Final = re.compile(
    r"(?is)(?:.*?\b(?=(?:what|which|who(?:m|se)?|when|where|how|extract|find|give|return|state|identify|determine|tell)\b))?"
    r"(.+?)(?:[?!:\n]|\.\s|\Z)"
)
"""A question, behind what it supposes: ``Given the country Peru, what …``."""
_IS_NAME: Final = re.compile(r"[^\W\d]{2}")
_GIVEN: Final = re.compile(r"text|question|prompt|input|sentence|id")
"""Fields that repeat what was given."""
_BESIDE: Final = re.compile(r"(?:and|or)(?: the| its)?|,.*|")
"""Between two that are both asked for."""
_OWNS: Final = ("", "s")
"""Between two of which the second is asked for: ``the employee's start date``."""


def field_asked_for(output: str, prompt: str) -> str | None:
    """Return the text or number in the field of a reply that a question asks for; None where it asks for none of several.

    ``{"city": "Lyon", "former": "Turin"}`` answers "In which city …" with Lyon, and so does a line ``City: Lyon`` of several.
    It is the only field beside a reason, else the one that the question names first.
    """
    text = (answers.without_reasoning(output) or "").strip()
    fenced = answers.FENCED.fullmatch(text) or (answers.OBJECT_LAST.search(text) if text[-1:] in "}`" else None)
    value = answers.without_envelope(answers.written_value(fenced["inside"] if fenced else text))
    if value and fenced and fenced.start() and answers.marked(text):
        return None
    if not value:
        lines = [_FIELD_LINE.fullmatch(each.strip()) for each in text.splitlines() if each.strip()]
        fields = {each["name"]: each["value"] for each in lines if each}
        alone = len(fields) == len(lines) and not (answers.marked(text) or answers.TAKES_BACK.search(text))
        value = fields if alone else None  # a text of fields, a line each
    if not isinstance(value, dict) or not 1 < len(value) < _MOST_FIELDS:
        return None
    asks = _ASKS.match(question := answers.last_question(prompt)[: answers.LOOKED_AT])
    asked, whole = (_words(re.sub(r"\b[Ww]ho(?:m|se)?\b", r"\g<0> name", each)) for each in (asks[1] if asks else "", question))
    while isinstance(value, dict):
        named = {_words(str(key)): each for key, each in value.items()}
        named = {name: each for name, each in named.items() if not _is_beside(name, asked)}
        if not named or {*named} & {"answer", "final answer"} or len(named) > len({*named} - {"value"}) > 0:
            return None  # which says itself what its answer is, or is one name with its value
        results = [name for name in named if not _GIVEN.fullmatch(name)]
        mentioned = [name for name in named if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", whole) and _IS_NAME.search(name)]
        only = next((each[0] for each in (results, mentioned) if len(each) == 1), "")
        value = named.get(_first_named(named, asked) or only)
    is_told = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value).translate(answers.UNESCAPED) if is_told else None


def _is_beside(name: str, asked: str) -> bool:
    """Return whether a field is beside the answer: a reason, or what asks: ``What does the customer want``."""
    about = rf"(?:^(?:is|are|was|were)|\b(?:do|does|did|can|will|has|have|should)) (?:the|this|an?) {re.escape(name)}(?!\w)"
    return bool(answers.BESIDE_ANSWER.fullmatch(name) or re.search(about, asked))


def _words(text: str) -> str:
    return " ".join(re.sub(r"[,;(\n]+", " , ", _NO_WORD.sub(" ", text)).casefold().split())


def _first_named(names: Mapping[str, Any], asked: str) -> str:
    """Return the name that a question has first, as it is, else in another form; empty for none, and for two together."""
    words = asked.split()[:_MOST_WORDS]
    for same in (str.__eq__, is_form_of):
        places: dict[int, list[str]] = {}
        for own in (name.split() for name in filter(_IS_NAME.search, names)):
            spans = ((at, words[at : at + len(own)]) for at in range(len(words) - len(own) + 1))
            at = next((at for at, span in spans if all(map(same, own, span))), -1)
            if at >= 0 and len(own) > len(places.get(at, ())):
                places[at] = own
        end = -1
        found: list[str] = []
        for at, own in sorted(places.items()):
            between = " ".join(words[end:at])
            if found and at >= end and between not in _OWNS:
                return "" if _BESIDE.fullmatch(between) else " ".join(found)
            if at >= end:
                end, found = at + len(own), own
        if found:
            return " ".join(found)
    return ""

"""The data file of a world, ``<world>.yaml``: templates of its items, and pitfalls with the words that lessons use.

Phrases of a pitfall are written as words in the order in which they must occur, ``"tax after discount|rebate"``. A word
matches everything that starts with it, ``|`` separates alternatives, ``=per`` asks for exactly that word. Up to three
other words may come between two of a phrase, but no negation and no end of a sentence.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias, get_args

import yaml

from tfgrpo.stores.experiences.record import Polarity

Slots: TypeAlias = Mapping[str, str]

# The C loader takes 4 ms for the largest file, the Python one 30 ms; builds without libyaml lack the former.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PHRASES: Final = ("about", "right", "wrong", "shown_avoided", "shown_hit")
_SLOT = re.compile(r"\{(\w+)\}")
_LETTERS = "ABCDEFGHKLMNPRSTUVWXYZ"
_CENTS = ("00", "20", "25", "40", "50", "60", "75", "80", "90", "95")
_NAMES = (
    "Amara", "Bela", "Chidi", "Dana", "Emeka", "Farah", "Goran", "Hana", "Imre", "Jonas", "Keiko", "Lena", "Mateo",
    "Nadia", "Olga", "Pedro", "Quentin", "Rosa", "Samir", "Tove", "Umut", "Vera", "Wiktor", "Xenia", "Yara", "Zoltan",
)  # fmt: skip
_MONTHS = ("January", "March", "May", "July", "August", "October", "December")
_CUSTOMERS = (
    "Nordwind", "Aldana", "Kestrel", "Brightwater", "Ostrava", "Lindqvist", "Tamarind", "Falkenried", "Juniper",
)  # fmt: skip


def _draw(rng: random.Random, kind: str, drawn: Slots) -> str:
    """Return one value; ``drawn`` are the slots drawn before it.

    Kinds: ``name``, ``month`` (of 31 days), ``customer``, ``account``, ``day YEAR``, ``whole LOW HIGH``,
    ``price LOW HIGH`` (with cents), ``later SLOT LOW HIGH`` (that slot plus a number), ``multiple SLOT LOW HIGH``.
    """
    draw, *arguments = kind.split()
    match draw:
        case "name":
            value = rng.choice(_NAMES)
        case "month":
            value = rng.choice(_MONTHS)
        case "customer":
            value = f"{rng.choice(_CUSTOMERS)}-{rng.randrange(10, 100)}"
        case "account":
            value = f"{''.join(rng.choices(_LETTERS, k=2))}-{rng.randrange(1000, 10000)}-{rng.randrange(1, 4)}"
        case "day":
            value = f"{arguments[0]}-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"
        case "whole":
            value = str(rng.randint(*map(int, arguments)))
        case "price":
            value = f"{rng.randrange(*map(int, arguments))}.{rng.choice(_CENTS)}"
        case "later":
            value = str(int(drawn[arguments[0]]) + rng.randint(*map(int, arguments[1:])))
        case "multiple":
            value = str(int(drawn[arguments[0]]) * rng.randint(*map(int, arguments[1:])))
        case _:
            raise ValueError(f"unknown kind of draw: {kind!r}")
    return value


@dataclass(frozen=True, slots=True)
class Template:
    """One kind of item."""

    name: str
    text: str
    """With ``{slots}``; every slot occurs once and takes one word."""
    slots: Mapping[str, str | Sequence[int | str]]
    """How each slot is drawn, in the order of the draws: a kind of draw, or the values to choose from."""
    pitfalls: tuple[str, ...] = ()
    weight: int = 1
    """How often this template is drawn, relative to the others."""
    pattern: re.Pattern[str] = field(init=False)
    anchor: str = field(init=False)
    """Longest fixed piece of the text; a cheap first test before the pattern."""

    def __post_init__(self) -> None:
        pieces = _SLOT.split(self.text)
        regex = [re.escape(piece) if i % 2 == 0 else rf"(?P<{piece}>[\w.:-]*\w)" for i, piece in enumerate(pieces)]
        object.__setattr__(self, "pattern", re.compile("".join(regex)))
        object.__setattr__(self, "anchor", max(pieces[::2], key=len))

    def draw(self, rng: random.Random) -> Slots:
        """Return random values for the slots."""
        drawn: dict[str, str] = {}
        for slot, kind in self.slots.items():
            drawn[slot] = _draw(rng, kind, drawn) if isinstance(kind, str) else str(rng.choice(kind))
        return drawn

    def fill(self, slots: Slots) -> str:
        """Return the prompt with these values."""
        return _SLOT.sub(lambda match: slots[match.group(1)], self.text)


def match_template(templates: Iterable[Template], text: str) -> tuple[Template, Slots] | None:
    """Return the first template that the text contains, with the values of its slots."""
    for template in templates:
        if template.anchor in text and (match := template.pattern.search(text)):
            return template, match.groupdict()
    return None


@dataclass(frozen=True, slots=True)
class Advice:
    """One wording of a lesson."""

    polarity: Polarity
    text: str


@dataclass(frozen=True, slots=True)
class Pitfall:
    """One typical mistake."""

    name: str
    about: tuple[str, ...]
    """Advice on this pitfall matches every one of these words (same notation, one word each)."""
    right: tuple[str, ...]
    """Phrases for the right way."""
    wrong: tuple[str, ...]
    """Phrases for the mistake."""
    shown_avoided: tuple[str, ...]
    """What a step of a worked solution reads when it got this right."""
    shown_hit: tuple[str, ...]
    """What it reads when it made the mistake."""
    good_advice: tuple[Advice, ...]
    bad_advice: tuple[Advice, ...]


def pitfall_of(name: str, row: Mapping[str, Any]) -> Pitfall:
    """Return a pitfall from its entry in a world's data file."""
    phrases = {key: tuple(row[key]) for key in _PHRASES}
    return Pitfall(name, **phrases, good_advice=_advice(row["good_advice"]), bad_advice=_advice(row["bad_advice"]))


def _advice(texts: Mapping[Polarity, Sequence[str]]) -> tuple[Advice, ...]:
    return tuple(Advice(polarity, text) for polarity in get_args(Polarity) for text in texts.get(polarity, ()))


@dataclass(frozen=True, slots=True)
class WorldData:
    """The content of ``<world>.yaml``."""

    domain: str
    prefix: str
    """Start of the item ids."""
    templates: tuple[Template, ...]
    pitfalls: Mapping[str, Pitfall]


@cache
def load_world(name: str) -> WorldData:
    """Return the data of a world, read once per process."""
    raw = yaml.load(Path(__file__).with_name(f"{name}.yaml").read_text("utf-8"), Loader=_LOADER)  # noqa: S506
    return WorldData(
        domain=raw["domain"],
        prefix=raw["prefix"],
        templates=tuple(Template(kind, **row) for kind, row in raw["templates"].items()),
        pitfalls={pitfall: pitfall_of(pitfall, row) for pitfall, row in raw["pitfalls"].items()},
    )

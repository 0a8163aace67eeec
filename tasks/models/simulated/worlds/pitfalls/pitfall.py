"""What is a pitfall? Something an attempt can get wrong, with the words people use for it.

Data only: recognising advice in a text is ``lexicon``, deciding whether an attempt avoids the pitfall is ``mind``.

Phrases are written as words in the order in which they must occur, ``"tax after discount|rebate"``. A word stands for
everything that begins with it, ``|`` separates alternatives, ``=per`` asks for exactly that word. Up to three other
words may come between two of a phrase, but no negation and no end of a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfgrpo.stores.experiences.record import Polarity


@dataclass(frozen=True, slots=True)
class Advice:
    """One lesson as somebody may word it."""

    polarity: Polarity
    text: str


@dataclass(frozen=True, slots=True)
class Pitfall:
    """One thing that goes wrong, and how to talk about it."""

    name: str
    about: tuple[str, ...]
    """Advice on this pitfall touches every one of these words (same notation, one word each)."""
    right: tuple[str, ...]
    """Phrases that describe the right way."""
    wrong: tuple[str, ...]
    """Phrases that describe the mistake."""
    shown_avoided: tuple[str, ...]
    """What a worked solution says at the step where it got this right."""
    shown_hit: tuple[str, ...]
    """What it says where it fell in."""
    good_advice: tuple[Advice, ...]
    bad_advice: tuple[Advice, ...]


def do(*texts: str) -> tuple[Advice, ...]:
    """Lessons that say what to do."""
    return tuple(Advice("do", text) for text in texts)


def avoid(*texts: str) -> tuple[Advice, ...]:
    """Lessons that say what to avoid."""
    return tuple(Advice("avoid", text) for text in texts)

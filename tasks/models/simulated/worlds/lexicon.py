"""Recognise from the words of a lesson which pitfalls it is about, and whether it helps; items are never seen.

A lesson counts for a pitfall when it mentions the pitfall's subject and contains a phrase for the right way or for the
mistake. Each phrase votes; a negation shortly before it, or the polarity *avoid*, reverses its vote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from statistics import fmean
from typing import Literal

from tfgrpo.stores.experiences.record import Polarity
from tfgrpo.tasks.models.simulated.worlds.data import Advice, Pitfall, world_data

Stance = Literal[-1, 1]

_NEGATION = r"(?:no|not|never|without|avoid\w*|insteadof|ratherthan)"
_TURNS = re.compile(rf"{_NEGATION}|forg[eo]t\w*|skip\w*|omit\w*|ignor\w*|neglect\w*|leaveout")
_REACH = 4
"""How many words after a negation are negated."""
_JOINED = [(re.compile(pattern), text) for pattern, text in world_data("words")["joined"].items()]
_LESSON_LINE = re.compile(r"^- (Do|Avoid): (.+)$", re.MULTILINE)
_BLOCK = re.compile(r"<lessons>(.*?)</lessons>", re.DOTALL)
_CACHED_TEXTS = 256


def _word(alternatives: str) -> str:
    """Return the pattern of one word of a phrase."""
    words = (f"{word[1:]}\\b" if word.startswith("=") else f"{word}\\w*" for word in alternatives.split("|"))
    return f"(?:{'|'.join(words)})"


def _phrase(phrase: str) -> re.Pattern[str]:
    gap = rf"(?: (?!{_NEGATION}\b)[\w,]+){{0,3}}? "
    return re.compile(rf"(?<!\S){gap.join(_word(word) for word in phrase.split())}(?!\S)")


def normalised(text: str) -> str:
    """Return lower case with single spaces, ``/`` for the end of a sentence or clause, and negations as one word."""
    text = text.lower().replace("\u2019", "'")
    for pattern, replacement in _JOINED:
        text = pattern.sub(replacement, text)
    return " ".join(text.split()).strip("/ ")


def _reversed(words: str, start: int, *, avoided: bool) -> bool:
    """Whether the phrase at ``start`` means the opposite."""
    clause = words[:start].rsplit("/", 1)[-1].rsplit(",", 1)[-1].split()
    turns = sum(1 for word in clause[-_REACH:] if _TURNS.fullmatch(word))
    first_sentence = "/" not in words[:start]
    negates_itself = words.startswith(("not ", "never ", "avoid"))
    return (turns + (avoided and first_sentence and not negates_itself)) % 2 == 1


class Lexicon:
    """Recognises advice on a closed set of pitfalls. Caches the system prompts read last."""

    def __init__(self, pitfalls: Mapping[str, Pitfall]) -> None:
        self._about = {
            name: [re.compile(rf"(?<!\S){_word(word)}(?!\S)") for word in pitfall.about]
            for name, pitfall in pitfalls.items()
        }
        self._votes = {
            name: [*((_phrase(text), 1) for text in pitfall.right), *((_phrase(text), -1) for text in pitfall.wrong)]
            for name, pitfall in pitfalls.items()
        }
        self.advice = lru_cache(_CACHED_TEXTS)(self._advice)

    def stances(self, polarity: Polarity, text: str) -> dict[str, Stance]:
        """Return, by pitfall, 1 when the text helps against it and -1 when it leads into it."""
        words = normalised(text)
        stances: dict[str, Stance] = {}
        for name, about in self._about.items():
            if not all(pattern.search(words) for pattern in about):
                continue
            total = sum(
                -vote if _reversed(words, match.start(), avoided=polarity == "avoid") else vote
                for pattern, vote in self._votes[name]
                for match in pattern.finditer(words)
            )
            if total:
                stances[name] = 1 if total > 0 else -1
        return stances

    def _advice(self, system_text: str) -> Mapping[str, float]:
        """Return, by pitfall, the mean stance of the lessons in a system prompt, from -1 to 1."""
        votes: dict[str, list[int]] = {}
        for lesson in advice_in(system_text):
            for name, stance in self.stances(lesson.polarity, lesson.text).items():
                votes.setdefault(name, []).append(stance)
        return {name: fmean(stances) for name, stances in votes.items()}


def advice_in(system_text: str) -> tuple[Advice, ...]:
    """Return the lessons of the prompt's block, in order; text outside the block is not advice."""
    block = _BLOCK.search(system_text)
    if block is None:
        return ()
    return tuple(Advice("do" if word == "Do" else "avoid", text) for word, text in _LESSON_LINE.findall(block.group(1)))

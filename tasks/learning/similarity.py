"""Compare lessons by the words they share, and merge the proposals of a batch that say the same, without a model.

Two lessons are the same when the Jaccard index of their sets of content words (case-folded, without articles and the
like) reaches a threshold, unless they differ in their negations or numbers. Text without spaces between words compares
as a whole, so there only literal repetition is recognised.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

from tfgrpo.stores.experiences.record import Polarity
from tfgrpo.tasks.shapes import Proposal

THRESHOLD = 0.6
"""Jaccard index from which two lessons count as one."""

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_NEGATIONS = frozenset({"not", "never", "no", "none", "nor", "neither", "without", "cannot", "unless", "except"})
# With "do" among them, "don't" and "do not" differ little enough for a short lesson to count as the same.
_STOP_WORD_LIST = (
    "a an any and are as at be been being by do each for from has have if in into is it its of on or so that the their "
    "them then these this those to was were when which while will with you your"
)
_STOP_WORDS = frozenset(_STOP_WORD_LIST.split())


@dataclass(frozen=True, slots=True)
class LessonWords:
    """What is compared of a lesson."""

    words: frozenset[str]
    negations: frozenset[str]
    numbers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProposedLesson:
    """One lesson as several groups proposed it, in the words of the group with the widest spread."""

    sources: tuple[Proposal, ...]

    @property
    def text(self) -> str:
        """Its wording."""
        return self.sources[0].text

    @property
    def polarity(self) -> Polarity:
        """That of all its sources."""
        return self.sources[0].polarity

    @property
    def support(self) -> float:
        """Number of groups that proposed it; one in which all attempts fail counts half."""
        return sum({each.contrast.group_id: each.contrast.amount for each in self.sources}.values())

    @property
    def group_ids(self) -> tuple[str, ...]:
        """Groups that proposed it, the one with the widest spread first."""
        return tuple(dict.fromkeys(proposal.contrast.group_id for proposal in self.sources))


def lesson_words(text: str) -> LessonWords:
    """Return the words, negations and numbers of a lesson."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    words = frozenset(_WORD.findall(folded))
    negations = _NEGATIONS.intersection("not" if word.endswith("n't") else word for word in words)
    return LessonWords((words - _STOP_WORDS) or words, negations, tuple(sorted(_NUMBER.findall(folded))))


def same_lesson(first: LessonWords, second: LessonWords) -> bool:
    """Whether two lessons say the same. Symmetric and reflexive."""
    if first.negations != second.negations or first.numbers != second.numbers:
        return False
    either = len(first.words | second.words)
    return first == second if not either else len(first.words & second.words) / either >= THRESHOLD


def merge_proposals(proposals: Iterable[Proposal]) -> tuple[ProposedLesson, ...]:
    """Return candidates, best supported first; the order in which groups came back does not matter.

    A proposal joins the first candidate of its polarity that says the same.
    """
    clusters: list[tuple[LessonWords, list[Proposal]]] = []
    order = attrgetter("contrast.item_id", "contrast.group_id", "contrast.number", "polarity", "text")
    for proposal in sorted(proposals, key=lambda each: (-each.contrast.spread, order(each))):
        words = lesson_words(proposal.text)
        for first, cluster in clusters:
            if cluster[0].polarity == proposal.polarity and same_lesson(first, words):
                cluster.append(proposal)
                break
        else:
            clusters.append((words, [proposal]))
    candidates = (ProposedLesson(tuple(cluster)) for _, cluster in clusters)
    return tuple(sorted(candidates, key=lambda candidate: -candidate.support))

"""Do two lessons say the same? By the words they share, locally and for free.

Likeness is the Jaccard index of the sets of content words (case-folded, without articles and the like), with two
vetoes: lessons that differ in their negations or in their numbers are never the same, however many words they share.
Text without spaces between words compares as a whole, so there only literal repetition is found.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

THRESHOLD = 0.6
"""Jaccard index from which two lessons count as one."""

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_NEGATIONS = frozenset({"not", "never", "no", "none", "nor", "neither", "without", "cannot", "unless", "except"})
_FILLERS = frozenset(
    {
        "a",
        "an",
        "any",
        "and",
        "are",
        "as",
        "at",
        "be",
        "been",
        "being",
        "by",
        "do",
        "each",
        "for",
        "from",
        "has",
        "have",
    }
    | {"if", "in", "into", "is", "it", "its", "of", "on", "or", "so", "that", "the", "their", "them", "then", "these"}
    | {"this", "those", "to", "was", "were", "when", "which", "while", "will", "with", "you", "your"}
)


@dataclass(frozen=True, slots=True)
class Gist:
    """What of a lesson is compared."""

    words: frozenset[str]
    negations: frozenset[str]
    numbers: tuple[str, ...]


def gist_of(text: str) -> Gist:
    """Take a lesson apart for comparison."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    words = frozenset(_WORD.findall(folded))
    negations = frozenset("not" if word.endswith("n't") else word for word in words)
    return Gist(
        words=(words - _FILLERS) or words,
        negations=negations & _NEGATIONS,
        numbers=tuple(sorted(_NUMBER.findall(folded))),
    )


def alike(first: Gist, second: Gist) -> bool:
    """Whether two lessons say the same. Symmetric, and true of a lesson and itself."""
    if first.negations != second.negations or first.numbers != second.numbers:
        return False
    shared = len(first.words & second.words)
    either = len(first.words | second.words)
    return first == second if not either else shared / either >= THRESHOLD

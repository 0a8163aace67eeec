"""Rough test whether words are in a meaningful order, so that shuffled lessons act as a placebo.

It looks at function words and punctuation only, never at the content.
"""

from __future__ import annotations

import re
from itertools import pairwise

_ARTICLES = frozenset({"a", "an", "the"})
_OWNERS = frozenset({"their", "its"})
_PREPOSITIONS = frozenset({"of", "to", "in", "on", "at", "by", "from", "for", "with", "into", "than"})
_CONJUNCTIONS = frozenset({"and", "or", "but", "because", "if"})
_VERBS = frozenset({"is", "are", "was", "were", "has", "must", "should", "can"})
_ORDERS = frozenset(
    {"add", "apply", "ask", "check", "convert", "deduct", "divide", "fetch", "get", "give", "go", "keep", "multiply"}
    | {"query", "subtract", "take", "treat", "use"}
)
_ALONE = frozenset(
    {"they", "it", "them", "what", "each", "every", "all", "any", "both", "so", "whether", "when", "then"}
)
_SMALL = _ARTICLES | _OWNERS | _PREPOSITIONS | _CONJUNCTIONS | _VERBS
_NOT_LAST = _ARTICLES | _OWNERS | _CONJUNCTIONS | frozenset(
    {"is", "are", "must", "of", "to", "at", "by", "from", "with", "into", "than", "as", "before", "after"}
    | {"every", "they", "when", "where", "whether", "whatever"}
)  # fmt: skip
_NOT_FIRST = frozenset({"of", "than", "and", "or", "but", "is", "are", "was", "has", "must", "them", "again", "up"})
_AFTER_ARTICLE = _SMALL | _ORDERS | _ALONE | {"not", "never", "be", "that", "before", "after", "as"}
_MUST_NOT_FOLLOW = {
    **dict.fromkeys(_ARTICLES | _OWNERS, _AFTER_ARTICLE),
    **dict.fromkeys(_PREPOSITIONS, _CONJUNCTIONS | _VERBS | (_PREPOSITIONS - {"in"}) | {"then", "be", "they", "so"}),
    **dict.fromkeys(_CONJUNCTIONS, _CONJUNCTIONS | {"of", "than"}),
    **dict.fromkeys(_VERBS, _VERBS | {"of", "and", "or", "but", "because"}),
    "to": _CONJUNCTIONS | _VERBS | _PREPOSITIONS | {"then", "they", "so"},
    "be": _ARTICLES | _CONJUNCTIONS | _VERBS | {"of", "be"},
    "every": _SMALL | _ORDERS,
}
_WORD = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
_PLURAL = re.compile(r"\w{2,}[^\Wsiu]s")
_SOUNDS_LIKE_CONSONANT = re.compile(r"(?:one|once|eu|u[bfgknrst][aeiou])[\w-]*")


def _sentences(text: str) -> list[list[str]]:
    sentences = re.split(r"[.;:!?]+(?:\s|$)", text)
    return [words for words in (_WORD.findall(sentence.lower()) for sentence in sentences) if words]


def _article_fits(article: str, word: str) -> bool:
    """``a`` before a consonant, ``an`` before a vowel or a silent h, neither before a plural; loosely."""
    if _PLURAL.fullmatch(word):
        return False
    vowel = (word[0] in "aeiou" and not _SOUNDS_LIKE_CONSONANT.fullmatch(word)) or word.startswith(("hour", "honest"))
    return (article == "an") is vowel


def _fits(word: str, after: str) -> bool:
    if after in _MUST_NOT_FOLLOW.get(word, ()):
        return False
    if word in {"a", "an"}:
        return _article_fits(word, after)
    return not (word == "every" and _PLURAL.fullmatch(after))


def _ordered(words: list[str]) -> bool:
    if words[0] in _NOT_FIRST or words[-1] in _NOT_LAST:
        return False
    return all(_fits(word, after) for word, after in pairwise(words))


def _cased(text: str) -> bool:
    """False when the capital or the full stop of a sentence occurs in its middle."""
    words = text.split()
    if words[-1].endswith(","):
        return False
    ends_early = any(word.endswith(".") and after[0].islower() for word, after in pairwise(words))
    begins_late = words[0][0].islower() and any(word[:1].isupper() and word[1:].islower() for word in words[1:])
    return not ends_early and not begins_late


def reads_as_language(text: str) -> bool:
    """True unless the order of the words rules it out; False for a text without words."""
    sentences = _sentences(text)
    return bool(sentences) and _cased(text) and all(_ordered(words) for words in sentences)

"""Order lessons by their likeness to a text: Okapi BM25 over the words of each lesson and of its cause."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from tfgrpo.stores.experiences.record import ExperienceRecord

_UNSPACED: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Scripts that put no space between words: Thai, Lao, Burmese, Khmer, kana, Han."""
_STEM: Final = 5
_RUN: Final = re.compile(rf"([{_UNSPACED}]+)|[^\W_{_UNSPACED}]+")


def by_likeness(records: Sequence[ExperienceRecord], text: str) -> list[ExperienceRecord]:
    """Return the records, those most like the text first; equally alike ones, such as those unlike it, keep their order."""
    scores = likeness(tuple(f"{record.summary32} {record.cause or ''}" for record in records), text)
    return [records[place] for place in sorted(range(len(records)), key=lambda place: -scores[place])]


def likeness(documents: tuple[str, ...], text: str) -> list[float]:
    """Return the BM25 score of each document for a text, in Lucene's form: a word in every document still counts a little."""
    index, asked = _index(documents), list(words_of(text))
    return [0.0] * len(documents) if index is None or not asked else index.get_scores(asked).tolist()


def words_of(text: str) -> Iterator[str]:
    """Yield the words of a text without case, and of long ones the beginning too, in which inflected forms mostly agree.

    Of scripts without spaces, every two neighbouring characters.
    """
    for found in _RUN.finditer(unicodedata.normalize("NFKC", text).casefold()):
        run = found.group()
        if found.group(1) and len(run) > 1:
            yield from (run[at : at + 2] for at in range(len(run) - 1))
        else:
            yield run
            if len(run) > _STEM:
                yield run[:_STEM]


@lru_cache(maxsize=16)
def _index(documents: tuple[str, ...]) -> Any:
    """Return the index of these documents; None if they have no words."""
    import bm25s  # noqa: PLC0415 - only libraries that outgrow their slots pay for it

    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets DEBUG when it is imported
    words = [list(words_of(document)) for document in documents]
    if not any(words):
        return None
    index = bm25s.BM25(method="lucene")
    index.index(words, show_progress=False)
    return index

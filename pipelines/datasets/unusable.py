"""Count the records of a dataset that scorers cannot use: references, schemas, and keywords that one does not look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tfgrpo.rewarders.composite import AnyScorer, scorers_within
from tfgrpo.rewarders.gt import MATCH_OF
from tfgrpo.rewarders.scorer import Scorer
from tfgrpo.rewarders.text.references import read_column
from tfgrpo.stores.errors import PipelineError, Problem

_EXAMPLES: Final = 3
_KEYWORDS: Final = 5
"""Most keywords that a warning names."""


class RecordCounts:
    """Counts what each of some scorers cannot use."""

    def __init__(self, scorers: Iterable[AnyScorer]) -> None:
        found = (each for scorer in scorers for _, each in scorers_within(scorer) if isinstance(each, Scorer))
        self._counts = [_Count(each) for each in found if each.unusable is not None or each.overlooked is not None]

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, where: str, record: object) -> None:
        """Count the record of the item at ``where``."""
        fields = record if isinstance(record, Mapping) else {}
        for count in self._counts:
            count.add(where, fields)

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence for each scorer that cannot use some records, or does not look at all of them."""
        return tuple(sentence for count in self._counts for sentence in count.sentences())

    def refuse_useless(self, names: Collection[str], answers: Sequence[str]) -> None:
        """Raise ``PipelineError`` for scorers of these names that can use no record at all."""
        useless = [count for count in self._counts if count.name in names and 0 < count.total == count.unusable]
        if useless:
            column = read_column(answers)
            fitting = f"a rewarder that can; for gt `match: {MATCH_OF.get(column.kind, 'auto')}` fits: {column}"
            raise PipelineError([Problem(f"rewarders: {each.name}", str(each), fitting) for each in useless])


class _Count:
    """What one scorer cannot use, with the first examples."""

    def __init__(self, scorer: Scorer) -> None:
        self.name = scorer.rewarder_id
        self.total = self.unusable = 0
        self._scorer = scorer
        self._examples: list[str] = []
        self._overlooked: Counter[str] = Counter()
        self._partly, self._first = 0, ""

    def add(self, where: str, record: Mapping[str, Any]) -> None:
        if self._scorer.needs_answer and record.get("answer") in (None, "", []):
            return  # counted as an item without an answer
        self.total += 1
        reason = self._scorer.unusable(record) if self._scorer.unusable is not None else None
        if reason is not None:
            self.unusable += 1
            if len(self._examples) < _EXAMPLES:
                self._examples.append(f"{where}: {reason}")
        if self._scorer.overlooked is not None and (names := self._scorer.overlooked(record)):
            self._partly += 1
            self._first = self._first or where
            self._overlooked.update(names)

    def __str__(self) -> str:
        return f"{self.unusable:,} of {self.total:,} items that it cannot grade: {'; '.join(self._examples)}"

    def sentences(self) -> Iterator[str]:
        if self.unusable:
            yield f"{self.name}: {self}; they have no reward"
        if self._partly:
            names = [name for name, _ in self._overlooked.most_common()]
            which = ", ".join(names[:_KEYWORDS]) + (" and more" if len(names) > _KEYWORDS else "")
            where = f"in {self._partly:,} of {self.total:,} schemas, the first at {self._first}"
            yield f"{self.name} does not look at {which} {where}; json_conforms validates against the whole schema"

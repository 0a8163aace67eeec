"""Sum the lines of ``credit.jsonl``: rows by run and sides, words by lesson and night.

A night of 100,000 attempts leaves 67,000 lines, of some 400 pairs of sides and 50 lessons.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from tfgrpo.rewarders.statistics.credit import Differences
from tfgrpo.stores.experiences.credit import CreditLine, Row, RowSource, Word


class Sides(NamedTuple):
    """What many rows have in common, since groups share few divisions of the lessons."""

    run_id: str
    source: RowSource
    night: int
    conditions: str
    one: tuple[str, ...]
    """Ids of the lessons that only this side carried: the side whose ids come first, whichever it was in a row."""
    other: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowSums:
    """Rows with the same sides, and their scored attempts."""

    rows: int = 0
    attempts: int = 0
    differences: Differences = Differences()  # noqa: RUF009 - frozen
    losses: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Lost and made attempts of the first side, then of the second."""
    swept: tuple[float, ...] = ()
    """Of a sweep, the difference of each row that has one, first side minus second as in the row."""

    def after(self, rows: Iterable[Row]) -> RowSums:
        """Return the sums with these rows. One without a reward on one side counts for its losses alone."""
        count, attempts, differences, losses, swept = self.rows, self.attempts, self.differences, [*self.losses], [*self.swept]
        for row in rows:
            sides = ((row.one, row.rewards_one, row.lost_one), (row.other, row.rewards_other, row.lost_other))
            # By ids alone: both sides may have none.
            (_, one, lost_one), (_, other, lost_other) = sorted(sides, key=itemgetter(0))
            count, attempts = count + 1, attempts + len(one) + len(other)
            differences = differences.after(one, other)
            made = (lost_one, lost_one + len(one), lost_other, lost_other + len(other))
            losses = [before + more for before, more in zip(losses, made, strict=True)]
            if row.source == "sweep" and row.difference is not None:
                swept.append(row.difference)
        a, b, c, d = losses
        return RowSums(count, attempts, differences, (a, b, c, d), tuple(swept))


@dataclass(frozen=True, slots=True)
class WordSums:
    """What was said of one lesson in one night."""

    net: float = 0.0
    """Contrasts for it minus those against it; ``weight``: for and against."""
    weight: float = 0.0
    strangers: bool = False
    """Whether an item that strangers wrote, or that says it itself, speaks for it."""
    others: bool = False
    """Whether another item, or a person, does."""
    groups_for: frozenset[str] = frozenset()
    groups_against: frozenset[str] = frozenset()
    opposites: frozenset[str] = frozenset()

    def after(self, words: Iterable[Word]) -> WordSums:
        """Return the sums with these words."""
        net, weight, strangers, others = self.net, self.weight, self.strangers, self.others
        groups_for, groups_against, opposites = {*self.groups_for}, {*self.groups_against}, {*self.opposites}
        for word in words:
            net, weight = net + word.amount, weight + abs(word.amount)
            if word.amount > 0:
                strangers, others = strangers or word.foreign, others or not word.foreign
            if word.group_id and word.amount:
                (groups_for if word.amount > 0 else groups_against).add(word.group_id)
            if word.opposite is not None:
                opposites.add(word.opposite)
        return WordSums(net, weight, strangers, others, frozenset(groups_for), frozenset(groups_against), frozenset(opposites))


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over lines, in the order in which each key was first seen. Never changed."""

    rows: Mapping[Sides, RowSums] = field(default_factory=dict)
    words: Mapping[tuple[str, int], WordSums] = field(default_factory=dict)

    def plus(self, lines: Iterable[CreditLine]) -> Tally:
        """Return the sums with these lines."""
        rows, words = dict(self.rows), dict(self.words)
        new_rows: dict[Sides, list[Row]] = {}
        new_words: dict[tuple[str, int], list[Word]] = {}
        for line in lines:
            if isinstance(line, Row):
                sides = Sides(line.run_id, line.source, line.night, line.conditions, *sorted((line.one, line.other)))
                new_rows.setdefault(sides, []).append(line)
            else:
                new_words.setdefault((line.experience_id, line.night), []).append(line)
        rows |= {sides: rows.get(sides, RowSums()).after(more) for sides, more in new_rows.items()}
        words |= {key: words.get(key, WordSums()).after(more) for key, more in new_words.items()}
        return Tally(rows, words)

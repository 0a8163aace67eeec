"""Credit as the product sums it up: the policy with ``tasks/learning/credit.py`` in place of its own sums.

Unlike the policy, it leaves out the rows of lessons under which an unequal share of attempts is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from benchmarks.worlds.credit import Credit, Standing
from benchmarks.worlds.engine import Group
from benchmarks.worlds.policies import opposite
from benchmarks.worlds.world import Lesson, Pack
from tfgrpo.stores.experiences.credit import PERSON_GROUPS, Row, Said, Word
from tfgrpo.stores.experiences.store import ExperienceRecord, Reward
from tfgrpo.tasks.learning.credit import Memory, credit_of
from tfgrpo.tasks.learning.tally import Tally

_NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
_CONDITIONS: Final = "proving-ground"


class OfProduct(Credit):
    """Credit by the product's own rows and words."""

    def __init__(self, brought_in: Iterable[Lesson] = ()) -> None:
        super().__init__(brought_in)
        records = tuple(_record((habit, show)) for habit in range(80) for show in (False, True))
        self.memory = Memory(records, Tally(), 0, _CONDITIONS, slots=self.rules.most_on_trial)
        for lesson in sorted(self.serving):
            self._say(lesson, PERSON_GROUPS, "brought in")

    def standing(self, swept: Pack | None = None) -> Standing:
        """Return what follows from all rows and words so far; ``swept`` is what the night's sweep carried, after it."""
        carried = None if swept is None else tuple(map(_name, sorted(swept)))
        credit = credit_of(replace(self.memory, swept=carried))
        on_trial, follows = (frozenset(map(_lesson, records)) for records in (credit.on_trial, credit.follows))
        return Standing(on_trial, follows, credit.total, credit.held_out.gain)

    def _age(self) -> None:
        serving = tuple(map(_name, sorted(self.serving)))
        self.memory = replace(self.memory, night=self._nights, in_force=serving)

    def _credit(self, one: Pack, other: Pack, first: Sequence[Group], second: Sequence[Group], *, sweep: bool = False) -> None:
        rows = [
            Row(
                line_id=f"{number}",
                run_id=f"night-{self.memory.night}",
                night=self.memory.night,
                source="sweep" if sweep else "learning",
                item_id=f"{number}",
                one=tuple(map(_name, sorted(one))),
                other=tuple(map(_name, sorted(other))),
                rewards_one=left.rewards,
                rewards_other=right.rewards,
                lost_one=left.lost,
                lost_other=right.lost,
                conditions=_CONDITIONS,
                simulated=True,
                created_at=_NOW,
            )
            for number, (left, right) in enumerate(zip(first, second, strict=True))
        ]
        self.memory = self.memory.plus(lines=rows)

    def _count(self, lesson: Lesson, weight: float) -> None:
        self._say(lesson, weight, "confirmed")
        self._say(opposite(lesson), -weight, "contradicted")

    def _say(self, lesson: Lesson, amount: float, said: Said) -> None:
        word = Word(
            run_id=f"night-{self.memory.night}",
            night=self.memory.night,
            experience_id=_name(lesson),
            said=said,
            amount=amount,
            opposite=_name(opposite(lesson)),
            simulated=True,
            created_at=_NOW,
        )
        self.memory = self.memory.plus(lines=[word])


def _name(lesson: Lesson) -> str:
    return f"{lesson[0]:02d}-{'shown' if lesson[1] else 'omitted'}"


def _lesson(record: ExperienceRecord) -> Lesson:
    habit, _, how = record.experience_id.partition("-")
    return int(habit), how == "shown"


def _record(lesson: Lesson) -> ExperienceRecord:
    return ExperienceRecord(
        experience_id=_name(lesson),
        run_id="proving-ground",
        task_id="proving-ground",
        domain="habits",
        pack_id="habits",
        epoch=1,
        batch=0,
        group_id="",
        operation="add",
        summary32=f"{'Show' if lesson[1] else 'Omit'} habit {lesson[0]}.",
        polarity="do",
        reward=Reward(gt_score=1.0, relative_rank=1.0),
        stamp_signature="",
        created_at=_NOW,
    )

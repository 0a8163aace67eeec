"""What does not help leaves what is in force within some nights, and what is right stays. Whole runs, without Prefect."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import pytest

from benchmarks.dials import dialled, turned_rules
from tests.support.records.tasks import Task
from tests.support.runs.running import TASK, lines, manifest, run
from tfgrpo.stores.experiences.credit import Row, read_credit
from tfgrpo.stores.experiences.decisions import VERDICTS, Decision, chain_problems, read_decisions
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.tasks.decision import ENTER
from tfgrpo.tasks.models.simulated.puzzle import Advice, open_world
from tfgrpo.tasks.rollout import FinishedRollout, run_rollout
from tfgrpo.tasks.shapes import GroupSpec

pytestmark = pytest.mark.untraced

WORLD = open_world("arithmetic")
RIGHT = [each.good_advice[0] for each in [*WORLD.pitfalls.values()][5:]]
WRONG = [each.bad_advice[0] for each in [*WORLD.pitfalls.values()][:5]]
IDLE = [("do", f"Write the result of step {step} on its own line.") for step in ("one", "two", "three", "four", "five")]
ASKED = {"dry_run": True, "sample_size": 32, "batch_size": 16}
QUIET: dict[str, Any] = {**ASKED, "tfgrpo__min_spread": 2.0}
"""Nights without a reflection: only what was brought in is on trial."""


def said(advices: Iterable[Advice]) -> list[tuple[str, str]]:
    return [(each.polarity, each.text) for each in advices]


def night(out: Path, number: int, dials: Mapping[str, Any] = MappingProxyType({}), **asked: Any) -> Decision:
    with dialled(**dials):
        summary = run(out, run_id=f"night-{number}", **asked)
    assert summary.exit_code == 0, summary.message
    *_, last = read_decisions(TaskPaths.of(out, TASK).promotions)
    assert last.decision in VERDICTS, "no person is asked"
    return last


def effects(out: Path, decision: Decision, turned: Iterable[str] = ()) -> Counter[int]:
    """How many lessons in force help, 1, harm, -1, and do nothing, 0, by the rules of the world."""
    found: Counter[int] = Counter()
    for row in lines(TaskPaths.of(out, TASK).experiences):
        if row["experience_id"] in decision.experience_ids:
            stances = WORLD.stances(row["polarity"], row["summary32"])
            total = sum(-stance if name in turned else stance for name, stance in stances.items())
            found[(total > 0) - (total < 0)] += 1
    return found


@pytest.mark.slow
def test_what_was_in_force_is_replaced_within_some_nights_of_a_drift(tmp_path):
    asked = {**ASKED, "seed": 2, "simulated__seed": 2}
    turned = turned_rules("arithmetic", 2)
    before = night(tmp_path, 0, **asked)
    assert effects(tmp_path, before, turned)[-1] >= 2, "the drift turns round what was learned"
    after = [night(tmp_path, number, {"drifted": True}, **asked) for number in (1, 2, 3)]
    assert not effects(tmp_path, after[-1], turned)[-1]
    assert effects(tmp_path, after[-1], turned)[1] >= len(WORLD.pitfalls) - 1
    rewards = manifest(tmp_path, "night-3")["decision"]["rewards"]
    assert rewards["library"]["mean"] > rewards["none"]["mean"]
    assert chain_problems(TaskPaths.of(tmp_path, TASK).promotions) == []


def test_harmful_lessons_that_a_person_puts_into_force_leave_within_some_nights_and_no_right_one(tmp_path, capsys):
    Task(tmp_path, TASK, capsys).learn(*said([*RIGHT, *WRONG]))
    for number in range(4):
        found = effects(tmp_path, last := night(tmp_path, number, **ASKED))
        if last.decision == "in force" and not found[-1]:
            break
    assert not found[-1]
    assert found[1] >= len(RIGHT)


@pytest.mark.parametrize(
    ("brought", "dials"), [pytest.param(said(WRONG), {}, id="harmful"), pytest.param(IDLE, {"attention": 0.05}, id="costly")]
)
@pytest.mark.slow
def test_a_library_that_only_harms_or_costs_is_taken_back_although_a_person_put_it_into_force(tmp_path, capsys, brought, dials):
    Task(tmp_path, TASK, capsys).learn(*brought)
    decided = []
    for number in range(5):
        decided.append(night(tmp_path, number, dials, **QUIET))
        if not decided[-1].experience_ids:
            break
    assert decided[-1].decision == "taken back"
    assert night(tmp_path, 9, dials, **QUIET).decision == "not yet", "nor does it come back"


def answering(monkeypatch: pytest.MonkeyPatch, right: Callable[[GroupSpec, int], bool]) -> None:
    """Let attempts be right as a function of the group, with the prompt of the side, and the index says."""

    async def answered(spec: GroupSpec, index: int, *rest: Any) -> FinishedRollout:
        answer = spec.item.answer if right(spec, index) else "-1"  # decided when the attempt begins
        rollout = await run_rollout(spec, index, *rest)
        return replace(rollout, output=f"Answer: {answer}")

    monkeypatch.setattr("tfgrpo.tasks.group.run_rollout", answered)


@pytest.mark.parametrize("in_force", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_lesson_that_helps_only_where_it_was_learned_is_in_force_for_one_night_at_most(
    tmp_path, capsys, monkeypatch, in_force
):
    def memorised(spec: GroupSpec, index: int) -> bool:
        chance = 0.5 if not spec.pack.experience_ids else 0.9 if spec.key.phase == "train" else 0.3
        return Random(f"{spec.group_id}/{index}").random() < chance

    answering(monkeypatch, memorised)
    Task(tmp_path, TASK, capsys).learn(*said(RIGHT[:1]), in_force=in_force)
    one, two = (night(tmp_path, number, **QUIET) for number in (0, 1))
    assert one.total is not None
    assert one.total.likely > ENTER, "the rows of learning speak for it"
    assert one.held_out is not None
    assert one.held_out.mean < 0.0
    assert (one.decision, two.decision) == ("taken back" if in_force else "not yet", "not yet")


def test_what_is_attempted_first_puts_no_lesson_into_force_however_much_better_it_does(tmp_path, capsys, monkeypatch):
    begun: Counter[tuple[int, str]] = Counter()

    def first_half(spec: GroupSpec, _: int) -> bool:
        begun[spec.key.epoch, spec.item.id] += 1
        return begun[spec.key.epoch, spec.item.id] <= 2

    answering(monkeypatch, first_half)
    Task(tmp_path, TASK, capsys).learn(*said(RIGHT), *IDLE, in_force=False)
    decided = night(tmp_path, 0, **QUIET, gate__group_size=2)
    rows = [line for line in read_credit(TaskPaths.of(tmp_path, TASK).credit) if isinstance(line, Row)]
    learned = [row for row in rows if row.source == "learning"]
    assert {row.difference for row in learned} == {1.0}, "the first side is the better one"
    first = Counter(name for row in learned for name in row.one)
    assert all(0.3 < first[name] / len(learned) < 0.7 for name in {*first, *(n for row in learned for n in row.other)})
    swept = [row.difference for row in rows if row.source == "sweep"]
    assert ({*swept}, sum(filter(None, swept))) == ({1.0, -1.0}, 0.0)
    assert decided.decision == "not yet"

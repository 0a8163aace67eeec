"""Which attempts of a group are held against each other, and what each contrast is worth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.tasks.learning.test_curate import TEXTS, groups, lesson
from tests.tasks.learning.test_reflect import lessons, ranked, reflect
from tests.tasks.learning.test_signed_curation import curate, unasked
from tfgrpo.stores.errors import BudgetRefused, ModelServerFault
from tfgrpo.tasks.learning.reflect import contrasts_of
from tfgrpo.tasks.shapes import LessonJudgement

CARRY = TEXTS[0]


def shown(attempts, how):
    return [[attempt.rollout.index for attempt in contrast] for contrast in contrasts_of(attempts, how)]


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([1.0, 0.0, 1.0, 0.0], [[0, 1], [2, 3]]),
        ([1.0, 0.0, 0.0, 0.0], [[0, 1], [0, 2]]),
        ([0.0, 1.0, 1.0, 1.0], [[1, 0], [2, 0]]),
        ([0.9, 0.1, 0.5, 0.4], [[0, 1], [2, 3]]),
        ([0.9, 0.1, 0.5], [[0, 1], [0, 2]]),
        ([1.0, 0.0], [[0, 1]]),
        ([0.0, 0.0, 0.0], [[0, 1]]),
    ],
)
def test_two_contrasts_pair_the_better_with_the_worse_attempts(rewards, expected):
    attempts = [ranked(reward, index=index) for index, reward in enumerate(rewards)]
    assert shown(attempts, "pairs") == expected
    assert shown(attempts, "extremes") == expected[:1]


@pytest.mark.parametrize(
    ("rewards", "expected", "before"),
    [
        ([1.0, 0.0, 1.0, 0.0], [[0, 1], [2, 3]], [[0, 1], [2, 3]]),
        ([1.0, 0.0, 0.0, 1.0], [[0, 1], [3, 2]], [[0, 1], [3, 2]]),
        ([1.0, 1.0, 1.0, 0.0], [[2, 3], [0, 3]], [[0, 3], [1, 3]]),
        ([0.0, 0.0, 1.0, 1.0], [[2, 0], [3, 1]], [[2, 0], [3, 1]]),
        ([0.0, 1.0, 0.0, 0.0], [[1, 0], [1, 2]], [[1, 0], [1, 2]]),
        ([0.0, 0.0, 0.0, 1.0], [[3, 2], [3, 0]], [[3, 0], [3, 1]]),
        ([0.2, 0.6, 0.9, 0.3], [[2, 0], [1, 3]], [[2, 0], [1, 3]]),
    ],
)
def test_among_equals_attempts_of_one_half_are_contrasted_first(rewards, expected, before):
    attempts = [replace(ranked(reward, index=index), half=index // 2) for index, reward in enumerate(rewards)]
    assert shown(attempts, "pairs") == expected
    older = contrasts_of(attempts, "pairs", alike=False)
    assert [[attempt.rollout.index for attempt in contrast] for contrast in older] == before


FOUR = tuple(
    ranked(reward, index=index, output=f"Answer: {index}") for index, reward in enumerate((1.0, 0.0, 1.0, 0.0))
)


async def test_each_contrast_is_a_question_of_its_own_and_shares_the_lessons(tmp_path):
    model, reflection = await reflect(lambda *_: lessons("Add the tens first.", "Third."), tmp_path, FOUR)
    asked = model.asked("reflect")
    assert [[each["transcript"] for each in question["attempts"]] for question in asked] == [
        ["Answer: 0", "Answer: 1"],
        ["Answer: 2", "Answer: 3"],
    ]
    assert [question["max_lessons"] for question in asked] == [1, 1]
    assert [key.turn for _, key in model.requests if key.role == "reflect"] == [0, 1]
    assert [(each.text, each.contrast, each.evidence) for each in reflection.proposals] == [
        ("Add the tens first.", 0, ("g/0", "g/1")),
        ("Add the tens first.", 1, ("g/2", "g/3")),
    ]


async def test_a_contrast_whose_question_fails_costs_only_itself(tmp_path):
    def second_only(_, key):
        return lessons("Add the tens first.") if key.turn else ModelServerFault("500")

    _, reflection = await reflect(second_only, tmp_path, FOUR)
    assert [each.contrast for each in reflection.proposals] == [1]
    assert (reflection.spend.failure, len(reflection.spend.broken)) == (None, 1)
    _, reflection = await reflect(lambda *_: ModelServerFault("500"), tmp_path / "both", FOUR)
    assert (reflection.spend.failure is not None, len(reflection.spend.broken)) == (True, 2)


async def test_a_refused_budget_ends_the_contrasts_of_a_group(tmp_path):
    model, reflection = await reflect(lambda *_: BudgetRefused("no calls left"), tmp_path, FOUR)
    assert (len(model.asked("reflect")), reflection.proposals) == (1, ())
    assert reflection.spend.budget_refused is not None


def test_among_equals_the_cheaper_attempt_is_shown_then_the_earlier():
    attempts = [
        ranked(1.0, tokens=9, index=0),
        ranked(1.0, tokens=3, index=1),
        ranked(0.0, tokens=8, index=2),
        ranked(0.0, tokens=2, index=3),
        ranked(0.0, tokens=2, index=4),
    ]
    assert shown(attempts, "extremes") == [[1, 3]]
    assert shown(attempts, "pairs") == [[1, 3], [0, 4]]
    assert shown(attempts, "all") == [[1, 0, 3, 4, 2]]


def twice(result):
    """The same group, with all that it says said by a second contrast as well."""
    again = tuple(replace(each, contrast=1) for each in result.proposals)
    judged = tuple(replace(each, contrast=1) for each in result.judgements)
    return replace(result, proposals=result.proposals + again, judgements=result.judgements + judged)


async def test_what_two_contrasts_of_a_group_say_counts_twice_and_what_one_repeats_counts_once(tmp_path):
    library = [lesson("a", CARRY), lesson("b", TEXTS[1])]
    [said] = groups(CARRY)
    said = replace(said, judgements=(LessonJudgement("b", "misled"),))
    repeated = replace(said, proposals=said.proposals * 2, judgements=said.judgements * 2)
    for result, weight in ((said, 1.0), (repeated, 1.0), (twice(said), 2.0)):
        curated = await curate(unasked, tmp_path, [result], library)
        events = [(each.experience_id, each.kind, each.weight) for each in curated.events]
        assert events == [("b", "judged", weight), ("a", "confirmed", weight)]
    assert len({each.event_id for each in curated.events}) == 2

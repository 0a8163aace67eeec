"""What a reflection is shown: whole attempts within the budget, otherwise every step in a digest, and where they part."""

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.agents.steps import ScriptedModel, lessons, runtime, spec
from tfgrpo.pipelines.settings.tree import LearningSettings
from tfgrpo.stores.errors import BudgetRefused, ModelServerFault
from tfgrpo.stores.ledger import Usage
from tfgrpo.stores.outcomes import RewardScore
from tfgrpo.tasks.learning.reflect import RankedAttempt, Step, fair_share, first_difference, fitted, reflect_on_group
from tfgrpo.tasks.rollout import FinishedRollout
from tfgrpo.tasks.shapes import Frame

TURNS, CHARS = 20, 1_500


def frame(kind, text):
    return Frame(kind, "look", text, 1, None, 1.0)


def long_attempt(index, reward, *, parts_at=12):
    """Return an attempt of 20 tool calls with results of 1,500 characters; two of them differ from ``parts_at`` on."""
    frames = tuple(
        frame("tool", f"result {n} of {'both' if n < parts_at else index} ".ljust(CHARS - 8, "x") + f" end {n:02}")
        for n in range(1, TURNS + 1)
    )
    output = f"Answer: {7 + index}"
    rollout = FinishedRollout(f"g/{index}", index, 1, None, frames, (), Usage(1, 1, 5), 0.1, output)
    score = RewardScore("gt", reward, f"answered {7 + index}, reference 7")
    return RankedAttempt(rollout, reward, reward, (score,))


LONG = (long_attempt(0, 1.0), long_attempt(1, 0.0))
DIGEST = "Twenty looks, then the answer."
EMPTY = lessons()


def answer(request, key):
    return {"digest": DIGEST} if key.role == "digest" else EMPTY


async def reflect(tmp_path, script=answer, *, replay=False, model=None, attempts=LONG, chars=64_000, **tfgrpo):
    model = model or ScriptedModel(script)
    with patch.object(LearningSettings, "REFLECTION_CHARS", chars):
        return model, await reflect_on_group(spec(), attempts, 0.5, runtime(model, tmp_path, replay=replay, tfgrpo=tfgrpo))


def seen(text):
    return {n for n in range(1, TURNS + 1) if f"result {n} " in text and f"end {n:02}" in text}


async def test_twenty_turns_of_fifteen_hundred_characters_are_all_shown_by_default_with_the_words_of_the_graders(tmp_path):
    model, _ = await reflect(tmp_path)
    [payload] = model.asked("reflect")
    for attempt, reward, answered in zip(payload["attempts"], (1.0, 0.0), (7, 8), strict=True):
        assert seen(attempt["transcript"]) == set(range(1, TURNS + 1))
        assert len(attempt["transcript"]) > TURNS * CHARS
        assert "digest" not in attempt
        assert attempt["graders"] == [{"grader": "gt", "score": reward, "says": f"answered {answered}, reference 7"}]


async def test_what_does_not_fit_is_digested_with_all_its_steps_and_shown_around_the_first_difference(tmp_path):
    model, reflection = await reflect(tmp_path, chars=32_000)
    digested = model.asked("digest")
    assert [seen(each["transcript"]) for each in digested] == [set(range(1, TURNS + 1))] * 2
    [payload] = model.asked("reflect")
    for attempt, end in zip(payload["attempts"], ("Answer: 7", "Answer: 8"), strict=True):
        assert attempt["digest"] == DIGEST
        assert seen(attempt["transcript"]) == {10, 11, 12, 13, 14}
        assert attempt["transcript"].endswith(end)
    assert reflection.spend.usage.calls == 3
    assert [key.turn for _, key in model.requests if key.role == "digest"] == [0, 1]


@pytest.mark.parametrize("budget", [4_000, 32_000])
async def test_what_is_shown_stays_within_the_budget(tmp_path, budget):
    def long_digests(request, key):
        return {"digest": "d" * 99_000} if key.role == "digest" else EMPTY

    model, _ = await reflect(tmp_path, long_digests, chars=budget)
    [payload] = model.asked("reflect")
    assert sum(len(each["transcript"]) + len(each["digest"]) for each in payload["attempts"]) <= budget
    assert all(len(each["transcript"]) <= budget for each in model.asked("digest"))


async def test_an_attempt_that_fits_is_shown_whole_beside_a_digest(tmp_path):
    short = replace(LONG[1], rollout=replace(LONG[1].rollout, frames=LONG[1].rollout.frames[:2]))
    model, _ = await reflect(tmp_path, attempts=(LONG[0], short), chars=20_000)
    first, second = model.asked("reflect")[0]["attempts"]
    assert "digest" in first
    assert "digest" not in second
    assert "end 02" in second["transcript"]
    assert len(model.asked("digest")) == 1


async def test_without_a_digest_every_step_is_shown_shortened(tmp_path):
    def script(request, key):
        return ModelServerFault("503") if key.role == "digest" else EMPTY

    model, reflection = await reflect(tmp_path, script, chars=32_000)
    for attempt in model.asked("reflect")[0]["attempts"]:
        assert seen(attempt["transcript"]) == set(range(1, TURNS + 1))
        assert "digest" not in attempt
    assert reflection.spend.failure is None
    assert [broken.error_type for broken in reflection.spend.broken] == ["ModelServerFault"] * 2


async def test_a_resumed_or_replayed_reflection_pays_for_no_digest_twice(tmp_path):
    def once(request, key):
        return answer(request, key) if key.role == "digest" else BudgetRefused("max_calls 2")

    await reflect(tmp_path, once, chars=4_000)
    resumed, reflection = await reflect(tmp_path, chars=4_000)
    assert [key.role for _, key in resumed.requests] == ["reflect"]
    assert reflection.spend.usage.calls == 3
    _, replayed = await reflect(tmp_path, replay=True, chars=4_000)
    assert replayed.spend.usage.calls == 3
    assert replayed.spend.fatal is None


def steps(*names):
    return [Step("tool look" if name.islower() else "model", name) for name in names]


@pytest.mark.parametrize(("one", "other", "at"), [
    (("A", "x", "B", "y", "C"), ("D", "x", "E", "z", "C"), (3, 3)), (("A", "x", "B"), ("D", "E", "x", "y", "B"), (2, 3)),
    (("A", "x", "B"), ("A", "x", "C"), (2, 2)), (("A", "B"), ("A", "B"), (1, 1)), (("A",), ("A", "B", "C"), (0, 1)),
    (("A",), ("B",), (0, 0)),
], ids=str)  # fmt: skip
def test_attempts_part_where_a_tool_first_returned_something_else_or_else_at_the_first_other_step(one, other, at):
    assert first_difference(steps(*one), steps(*other)) == at
    assert first_difference(steps(*other), steps(*one)) == at[::-1]


@given(st.lists(st.text("ab", max_size=300), min_size=1, max_size=20), st.integers(0, 3_000))
def test_texts_cut_to_their_fair_share_fit_in_their_order_and_leave_no_room_unused(texts, room):
    lengths = [len(text) for text in texts]
    share = fair_share(lengths, room)
    used = sum(min(length, share) for length in lengths)
    assert used <= room
    assert share >= max(lengths) or used + len(lengths) > room
    shown = fitted(texts, room)
    assert len(shown) <= room
    if sum(map(len, texts)) + len(texts) - 1 <= room:
        assert shown == "\n".join(texts)

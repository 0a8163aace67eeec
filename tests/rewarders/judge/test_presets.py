"""Presets of judges and panels of models: what they ask, how replies are read, and what is refused."""

from __future__ import annotations

import json

import pytest

from tests.support.models.strict_schemas import strict_fault
from tests.support.rewards.judges import FakeJudge, judged, material
from tests.support.vectors import rows_of
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.rewarders.composite import judge_loads
from tfgrpo.rewarders.judge.reading import read_checklist
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.scorer import Abstained
from tfgrpo.stores.errors import ModelTimeout, PipelineError

POINTS = ["names a source", {"text": "is right", "weight": 3}]


async def verdicts(options, answers, outputs=("A",), **more):
    model = FakeJudge(answers)
    scorer = build_scorer("judge", options)
    return await scorer.call(judged(outputs, model, **more)), model


async def test_against_the_reference_an_answer_is_right_or_it_is_not():
    said = {"A": "correct", "B": "incorrect", "C": "unattempted"}
    found, model = await verdicts(
        {"preset": "reference"},
        lambda asked: {"reason": "seen", "verdict": said[material(asked)["output"]]},
        "ABC",
        answer="Paris",
        alternatives=("Lutetia",),
    )
    assert [each.score for each in found] == [1.0, 0.0, 0.0]
    assert found[2].evidence == "0 of 0: 'unattempted: seen'"
    assert material(model.asked[0])["reference_answer"] == "Paris\nalso accepted: Lutetia"
    assert [strict_fault(asked.schema) for asked in model.asked] == [None] * 3


async def test_an_item_without_reference_or_source_is_not_judged_and_counted_beforehand():
    for options, missing in (({"preset": "reference"}, "no reference answer"), ({"preset": "grounded"}, "no 'source'")):
        found, model = await verdicts(options, lambda _: "correct", "AB", answer=" ")
        assert all(isinstance(each, Abstained) and missing in each.reason for each in found)
        assert model.asked == []
        assert missing in build_scorer("judge", options).unusable({"prompt": "p", "answer": None, "metadata": {}})
    assert build_scorer("judge", {"preset": "reference"}).unusable({"answer": "4"}) is None
    assert build_scorer("judge").unusable({"answer": None}) is None


async def test_grounded_shows_the_source_of_the_item_whole_or_not_at_all():
    score = {"reason": "half", "score": 0.5}
    (found,), model = await verdicts({"preset": "grounded"}, lambda _: score, metadata={"source": "Tea is hot."})
    assert found.score == 0.5
    assert material(model.asked[0]) == {"task": "How many?", "output": "A", "source": "Tea is hot."}
    passages = {"preset": "grounded", "source": "passages"}
    _, model = await verdicts(passages, lambda _: score, metadata={"passages": ["Tea", "Hot"]})
    assert material(model.asked[0])["source"] == '["Tea","Hot"]'
    (long,), model = await verdicts({"preset": "grounded", "max_chars": 200}, lambda _: score, metadata={"source": "x" * 201})
    assert isinstance(long, Abstained)
    assert long.reason == "the source has 201 characters, more than max_chars of 200"


async def test_a_checklist_is_one_call_and_the_share_of_the_weight_that_is_met():
    reply = {"points": [{"point": 2, "reason": "", "met": True}, {"point": 1, "reason": "", "met": False}]}
    (found,), model = await verdicts({"preset": "checklist", "checklist": POINTS}, lambda _: reply)
    assert (found.score, found.evidence) == (0.75, "0.75 of 0.75: 'not met: 1. names a source'")
    (asked,) = model.asked
    assert "1. names a source\n2. is right" in asked.messages[0][1]
    assert strict_fault(asked.schema) is None


@pytest.mark.parametrize(
    "points",
    [
        [{"point": 1, "met": True}],
        [{"point": 1, "met": True}, {"point": 1, "met": True}],
        [{"point": 1, "met": True}, {"point": 3, "met": True}],
        [{"point": 1, "met": True}, {"point": 2, "met": "yes"}],
        [{"point": 1, "met": True}, {"point": 2, "met": True}, {"point": 2, "met": False}],
        "all",
    ],
)
async def test_a_reply_that_leaves_a_point_open_is_asked_for_again(points):
    options = {"preset": "checklist", "checklist": POINTS}
    with pytest.raises(ValueError, match="each of the 2 points"):
        read_checklist(json.dumps({"points": points}), (None, None))
    (found,), model = await verdicts(options, lambda _: {"points": points})
    assert isinstance(found, Abstained)
    assert len(model.asked) == 2


SCORES = {"a": 0.2, "b": 0.6, "c": 0.9}


def of_model(asked):
    return {"reason": str(asked.model), "score": SCORES[asked.model]}


async def test_a_panel_asks_each_model_for_all_votes_under_calls_of_their_own():
    (found,), model = await verdicts({"models": ["a", "b", "c"], "votes": 2}, of_model)
    assert found.score == pytest.approx(17 / 30)
    assert [(row["model"], row["score"], row["votes"]) for row in found.details["panel"]] == [
        ("a", 0.2, (0.2, 0.2)),
        ("b", 0.6, (0.6, 0.6)),
        ("c", 0.9, (0.9, 0.9)),
    ]
    turns = {(asked.model, asked.turn) for asked in model.asked}
    assert turns == {("a", 0), ("a", 1), ("b", 2), ("b", 3), ("c", 4), ("c", 5)}


@pytest.mark.parametrize(("lost", "score"), [("b", 0.55), ("ab", None), ("abc", None)])
async def test_a_lost_model_does_not_lose_the_verdict_while_more_than_half_answer(lost, score):
    (found,), _ = await verdicts(
        {"models": ["a", "b", "c"]}, lambda asked: ModelTimeout("late") if asked.model in lost else of_model(asked)
    )
    if score is None:
        assert isinstance(found, Abstained)
        assert found.reason.endswith(f"'ModelTimeout: late'; {len(lost)} of 3 models are lost")
    else:
        assert found.score == pytest.approx(score)
        assert found.details["panel"][1] == {"model": "b", "score": None, "votes": (None,)}


def test_the_forecast_and_the_prices_know_every_model_of_a_panel():
    options = {"models": ["a", "b"], "votes": 3}
    loads = judge_loads(build_scorer("judge", options), 4)
    assert [(load.options.model, load.calls_low, load.questions) for load in loads] == [("a", 3, 12), ("b", 3, 12)]
    settings = Settings.model_validate(
        {"model": {"name": "m", "base_url": "http://h/v1"}, "rewarders": [{"name": "judge", "options": options}]}
    )
    assert choose_models(settings).judges == ("a", "b")
    (grounded,) = judge_loads(build_scorer("judge", {"preset": "grounded"}), 1)
    assert grounded.shown == 2


@pytest.mark.parametrize(("options", "key"), rows_of("judge_presets", "options_that_mean_nothing_together_are_refused"))
def test_options_that_mean_nothing_together_are_refused(options, key):
    with pytest.raises(PipelineError) as refused:
        build_scorer("judge", options)
    assert [each.source for each in refused.value.problems] == [f"rewarders: judge: options.{key}"]


@pytest.mark.parametrize("options", [{"preset": "reference"}, {"models": ["a", "b"]}])
def test_comparisons_have_no_presets_and_no_panels(options):
    with pytest.raises(PipelineError, match="presets and panels do not compare"):
        build_scorer("relative", {"judge": options})

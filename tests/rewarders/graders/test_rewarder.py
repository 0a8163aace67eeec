"""Graders as rewarders: what they see of an item, what a missing grade means, and how a pipeline names them."""

from __future__ import annotations

import asyncio
import pickle
import sys
import textwrap
import threading
import time
from dataclasses import replace

import pytest
from aiohttp import web
from tfgrpo.rewarders.graders.combine import GraderSet, NamedGrader
from tfgrpo.rewarders.graders.loading import BUILT_IN
from tfgrpo.rewarders.graders.rewarder import GraderRewarder, graded_inputs
from tfgrpo.rewarders.scoring import Weighted, score_group

from tfgrpo.rewarders.graders import grader
from tfgrpo.rewarders.registry import GRADERS, build_scorer
from tfgrpo.rewarders.scorer import Abstained, Attempt, RewardContext
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.errors import PipelineError, RewardError


def context(*outputs: str, answer: str = "42", metadata=None) -> RewardContext:
    attempts = tuple(Attempt(f"r{n}", n, output, tokens=n) for n, output in enumerate(outputs))
    return RewardContext("items.jsonl#q1", "q1", "How many?", answer, attempts, metadata=metadata or {})


def said(rewarder, asked: RewardContext, limit: float | None = None):
    """Verdicts as a run gets them."""

    async def run():
        with RewarderThreads() as threads:
            return await score_group([Weighted(rewarder, timeout_s=limit)], asked, threads)

    scores = asyncio.run(run())
    assert not scores.faults
    return [row[0] for row in scores.verdicts]


def scores(rewarder, asked: RewardContext) -> list[float | None]:
    return [None if isinstance(verdict, Abstained) else verdict.score for verdict in said(rewarder, asked)]


def named(function, name="mine", **more) -> GraderRewarder:
    return GraderRewarder(GraderSet((NamedGrader(name, grader(function)),), format_weight=0.0), name, **more)


def test_a_record_has_the_list_of_answers_where_several_are_accepted():
    several = replace(context("a", answer="x"), alternatives=("y",))
    assert [item.record["answer"] for item in graded_inputs(several, "auto")] == [["x", "y"]]
    assert [item.record["answer"] for item in graded_inputs(context("a", answer="x"), "auto")] == ["x"]
    right = named(lambda item: float(item.answer in item.record["answer"]))
    assert scores(right, replace(context("y", "z", answer="x"), alternatives=("y",))) == [1.0, 0.0]


NEEDED = {
    "category_match": {"allowed_categories": ["a"]},
    "completion_length_cap": {"max_completion_tokens": 5},
    "remote": {"url": "http://127.0.0.1:9/grade"},
}


@pytest.mark.parametrize("name", sorted(GRADERS))
def test_every_built_in_grader_can_be_named_in_a_pipeline(name):
    if name.startswith("math") and "verify" in name:
        pytest.importorskip("math_verify")
    rewarder = build_scorer(name, NEEDED.get(name, {}))
    assert rewarder.rewarder_id == name
    assert getattr(rewarder, "quick", False) == (name not in {"remote", "json_conforms", "math_verify", "math-verify"})
    again = pickle.loads(pickle.dumps(rewarder))
    assert again.rewarder_id == name
    assert set(GRADERS) == {*BUILT_IN, "remote"}


@pytest.mark.parametrize(
    ("output", "auto", "think", "whole"),
    [
        ("42", "42", None, "42"),
        ("  42\n", "42", None, "42"),
        ("<think>r</think>\n42", "42", "42", "<think>r</think>\n42"),
        ("r</think>\n42", "42", None, "r</think>\n42"),
        ("<think>still 42", None, None, "<think>still 42"),
        ("<think>r</think>", None, None, "<think>r</think>"),
        ("</think>", None, None, "</think>"),
        ("", None, None, None),
    ],
)
def test_what_counts_as_the_answer_is_an_option(output, auto, think, whole):
    for parse, expected in (("auto", auto), ("think", think), ("whole", whole)):
        (item,) = graded_inputs(context(output), parse)
        assert item.answer == expected
        assert item.completion == output


def test_a_model_that_does_not_think_out_loud_is_graded_by_default_and_not_under_think():
    asked = context("The answer is 42", "<think>r</think>\n42", "r</think>42", "<think>42")
    assert scores(build_scorer("math_exact"), asked) == [1.0, 1.0, 1.0, 0.0]
    assert scores(build_scorer("math_exact", {"parse": "think"}), asked) == [0.0, 1.0, 0.0, 0.0]
    assert scores(build_scorer("math_exact", {"parse": "whole"}), asked) == [1.0, 1.0, 1.0, 1.0]


def test_graders_are_given_prompt_answer_metadata_tokens_and_index():
    seen = []
    rewarder = named(lambda item: seen.append(item) or 1.0)
    said(rewarder, context("a", "b", metadata={"schema": "{}"}))
    assert [(item.sample_id, item.completion_index, item.completion_tokens) for item in seen] == [
        ("q1", 0, 0),
        ("q1", 1, 1),
    ]
    assert seen[0].record == {"prompt": "How many?", "answer": "42", "metadata": {"schema": "{}"}}
    seen.clear()
    said(rewarder, context("a", answer=""))
    assert seen[0].record["answer"] is None


def test_evidence_is_one_line_with_what_was_graded_and_compared():
    verdict = said(build_scorer("math_exact"), context("x" * 100 + "\nAnswer: 42"))[0]
    assert verdict.evidence.startswith("math_exact 1; answer '…xxx")
    assert verdict.evidence.endswith("xxx\\nAnswer: 42', reference '42'")
    assert said(build_scorer("number_only"), context("<think>"))[0].evidence == "number_only 0; no final answer"


def test_the_parts_of_a_set_are_kept():
    parts = GraderSet((NamedGrader("half", grader(lambda item: 0.5)),))
    verdict = said(GraderRewarder(parts, "set", quick=True), context("<think>r</think>\n42"))[0]
    assert verdict.score == 0.75
    assert verdict.details == {"parts": {"half": 0.5, "reasoning_format": 1.0}}
    assert verdict.evidence == "half 0.5, reasoning_format 1; answer '42'"
    again = said(GraderRewarder(parts, "set"), context("<think>r</think>\n42"))[0]
    assert again == verdict


@pytest.mark.parametrize("name", ["math_exact", "number_match", "label_match", "category_match"])
def test_without_a_reference_answer_graders_that_compare_abstain(name):
    verdicts = said(build_scorer(name, NEEDED.get(name, {})), context("42", "41", answer=" "))
    assert verdicts == [Abstained(name, "the item has no reference answer")] * 2
    assert scores(build_scorer("number_only"), context("42", answer="")) == [1.0]
    assert said(named(lambda item: 1.0, needs_answer=True), context("42", answer="")) == [
        Abstained("mine", "the item has no reference answer")
    ]


def test_what_could_not_be_graded_is_abstained_on_and_the_rest_is_scored():
    def picky(item):
        if item.completion == "boom":
            raise ValueError("cannot read")
        return float("nan") if item.completion == "nan" else 1.0

    for rewarder in (named(picky), GraderRewarder(named(picky).graders, "mine", quick=True)):
        first, second, third = said(rewarder, context("ok", "boom", "nan"))
        assert first.score == 1.0
        assert second == Abstained("mine", "mine: ValueError: cannot read", broke=True)
        assert third == Abstained("mine", "mine: the reward nan is no finite number")


def test_a_grader_may_say_of_an_item_that_it_cannot_be_graded_without_having_failed_itself():
    def honest(item):
        raise RewardError("two answers")

    assert said(named(honest), context("a")) == [Abstained("mine", "mine: two answers")]


def test_a_hanging_grader_loses_only_ungraded_attempts():
    release = threading.Event()
    rewarder = named(lambda item: release.wait(10) if item.completion == "hang" else 1.0)
    first, second = said(rewarder, context("ok", "hang"), limit=1.0)
    release.set()
    assert first.score == 1.0
    assert second.reason.startswith("mine: no reward within")


async def test_a_quick_grader_that_is_late_gives_no_verdict():
    with RewarderThreads() as threads:
        late = Weighted(named(lambda item: time.sleep(0.1) or 1.0, quick=True), timeout_s=0.05)
        graded = await score_group([late], context("x"), threads)
    assert graded.timed_out == "mine: no verdict within 0.05 s"


def test_a_remote_grader_scores_a_group():
    async def run():
        async def handle(request):
            samples = (await request.json())["samples"]
            results = [
                {"completion_index": one["completion_index"], "reward": len(one["completion"])} for one in samples
            ]
            return web.json_response({"results": results[::-1]})

        app = web.Application()
        app.router.add_post("/grade", handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = "http://{}:{}/grade".format(*runner.addresses[0])
        rewarder = build_scorer("remote", {"url": url, "timeout_s": 5, "rewarder_id": "house"})
        with RewarderThreads() as threads:
            found = await score_group([Weighted(rewarder)], context("a", "bcd"), threads)
        await runner.cleanup()
        return found

    found = asyncio.run(run())
    assert found.totals == {"r0": 1.0, "r1": 3.0}
    assert found.verdicts[0][0].rewarder_id == "house"


def test_options_reach_the_grader_and_the_rewarder():
    rewarder = build_scorer(
        "category_match", {"allowed_categories": ["42", "41"], "rewarder_id": "label", "parse": "whole"}
    )
    assert rewarder.rewarder_id == "label"
    assert scores(rewarder, context("42", "41", "40")) == [1.0, 0.3, 0.0]


@pytest.mark.parametrize(
    ("name", "options", "places"),
    [
        ("json_schema", {"parse": "guess", "reward": 1}, ["json_schema: options.parse", "json_schema: options.reward"]),
        ("math_exact", {"rewarder_id": " "}, ["math_exact: options.rewarder_id"]),
        ("remote", {"uri": "x"}, ["remote: options.uri", "remote: options.url"]),
        (
            "remote",
            {"url": "nowhere", "timeout_s": "1", "parse": 3, "pool": 1},
            ["remote: options.parse", "remote: options.pool", "remote: options.url", "remote: options.timeout_s"],
        ),
        ("category_match", {}, ["category_match: options.allowed_categories"]),
    ],
)
def test_all_problems_of_the_options_are_reported_at_once(name, options, places):
    with pytest.raises(PipelineError) as caught:
        build_scorer(name, options, source="p.yaml")
    assert [problem.source for problem in caught.value.problems] == [f"p.yaml: {place}" for place in places]


@pytest.fixture
def own_graders(tmp_path, monkeypatch):
    (tmp_path / "own_graders.py").write_text(
        textwrap.dedent(
            """
            from tfgrpo.rewarders.graders import GradeResult, grader

            class Constant:
                def __init__(self, reward=0.5, parse=None):
                    self.reward = reward
                async def grade_batch(self, inputs):
                    return [GradeResult(i.sample_id, self.reward, i.completion_index) for i in inputs]

            constant = Constant(0.25)

            @grader
            def answered(item):
                return float(item.answer is not None)

            class Both:
                rewarder_id = "both"
                def score(self, context):
                    return []
                def grade_batch(self, inputs):
                    return []
            """
        )
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("own_graders", None)


@pytest.mark.usefixtures("own_graders")
def test_graders_of_the_users_own_are_rewarders_by_module_and_name():
    asked = context("42")
    assert scores(build_scorer("own_graders:Constant"), asked) == [0.5]
    assert scores(build_scorer("own_graders:Constant", {"reward": 2, "rewarder_id": "c"}), asked) == [2.0]
    assert scores(build_scorer("own_graders:constant"), asked) == [0.25]
    assert scores(build_scorer("own_graders:answered"), asked) == [1.0]
    assert scores(build_scorer("own_graders:answered", {"parse": "think"}), asked) == [0.0]
    assert build_scorer("own_graders:Both").rewarder_id == "both"
    travelled = pickle.loads(pickle.dumps(build_scorer("own_graders:constant")))
    assert scores(travelled, asked) == [0.25]


@pytest.mark.usefixtures("own_graders")
def test_wrong_options_of_own_graders_are_reported_with_their_location():
    with pytest.raises(PipelineError) as caught:
        build_scorer("own_graders:Constant", {"parse": "guess", "worth": 1}, source="p.yaml")
    assert [problem.source for problem in caught.value.problems] == [
        "p.yaml: own_graders:Constant: options.parse",
        "p.yaml: own_graders:Constant: options",
    ]
    with pytest.raises(PipelineError, match="no options: it is an object already"):
        build_scorer("own_graders:constant", {"reward": 1})


def test_a_rewarder_needs_a_name_and_a_reading_that_exists():
    with pytest.raises(PipelineError) as caught:
        GraderRewarder(GraderSet(), "", "guess")
    assert len(caught.value.problems) == 2

"""Scorers of text: known answers of the libraries that users know, several references, and what has no score."""

import builtins
import importlib.util
import json

import pytest

from tests.support.rewards.judges import FakeJudge
from tests.support.rewards.scoring import built, group, numbers, told
from tests.support.vectors import read_vectors, rows_of
from tfgrpo.rewarders.composite import judge_loads
from tfgrpo.rewarders.graders.builtin.ifeval import _CHECKS
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.scorer import GraderInput
from tfgrpo.stores.errors import BudgetRefused, ModelServerFault, PipelineError, RewardError


def scored(name, answer, output, prompt="", metadata=None, **options):
    return told(name, output, {"prompt": prompt, "answer": answer, "metadata": metadata or {}}, **options)


def test_an_option_that_cannot_be_used_is_refused_when_the_scorer_is_made():
    for name, options, problem in rows_of("texts", "an_option_that_cannot_be_used_is_refused_when_the_scorer_is_made"):
        with pytest.raises(PipelineError) as caught:
            build_scorer(name, options)
        assert problem in str(caught.value)


def test_a_library_that_is_not_installed_is_named_with_the_line_that_installs_it(monkeypatch):
    find = importlib.util.find_spec
    for name, options, missing, extra in (
        ("regex", {"pattern": "a"}, "re2", "re2"),
        ("similarity", {}, "sacrebleu", "similarity"),
        ("similarity", {"metric": "edit"}, "rapidfuzz", "similarity"),
        ("ifeval", {}, "langdetect", "ifeval"),
        ("math-verify", {}, "math_verify", "math"),
    ):
        monkeypatch.setattr(
            "tfgrpo.rewarders.options.find_spec", lambda module, absent=missing: None if module == absent else find(module)
        )
        with pytest.raises(PipelineError, match=rf'got no .*; accepted: .* pip install "tfgrpo\[{extra}\]"'):
            build_scorer(name, options)


def test_scorers_without_an_extra_need_no_library(monkeypatch):
    importing = builtins.__import__

    def guarded(name, *arguments):
        assert name.partition(".")[0] not in ("re2", "sacrebleu", "rapidfuzz", "langdetect"), name
        return importing(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", guarded)
    for name in ("choice", "em", "exact", "f1", "includes"):
        assert scored(name, "B", "(B)" if name == "choice" else "B")[0] == 1.0


def embedder(vectors):
    """Return a model that embeds, by words."""
    return FakeJudge(lambda question: json.dumps([vectors[text] for _, text in question.messages]))


async def alike(model, *outputs, **more):
    scorer = built("similarity", metric="embeddings", model="embedder")
    with ScoreRunner() as runner:
        ((*found,),) = await runner.score(scorer, [group(*outputs, judge=model, **more)])
    return found


async def test_similarity_by_embeddings_asks_once_for_the_texts_of_a_group():
    model = embedder({"cat": [3.0, 0.0], "kitten": [4.0, 3.0], "dog": [0.0, 2.0], "no cat": [-1.0, 0.0]})
    outputs = ("Answer: cat", "Answer: kitten", "Answer: dog", "Answer: no cat", "<think>", "Answer: cat")
    found = await alike(model, *outputs, answer="cat")
    assert numbers(found) == pytest.approx([1.0, 0.8, 0.0, 0.0, 0.0, 1.0])
    assert found[1].evidence.startswith("embeddings 0.800: answered 'kitten' ~ reference 'cat'")
    (question,) = model.asked
    assert (question.embeds, question.model, question.schema) == (True, "embedder", None)
    assert sorted(text for _, text in question.messages) == ["cat", "dog", "kitten", "no cat"]
    assert numbers(await alike(model, "Answer: kitten", answer="dog", alternatives=("cat",))) == pytest.approx([0.8])


async def test_embeddings_that_are_lost_leave_the_attempts_ungraded_and_a_cap_ends_the_run():
    assert numbers(await alike(embedder({}), "Answer: cat", answer="")) == [None]
    assert numbers(await alike(None, "Answer: cat", answer="cat")) == [None]
    lost = await alike(FakeJudge(lambda _: ModelServerFault("503")), "Answer: cat", answer="cat")
    assert "503" in lost[0].reason
    capped = group("Answer: cat", answer="cat", judge=FakeJudge(lambda _: BudgetRefused("cap")))
    with pytest.raises(BudgetRefused):
        await built("similarity", metric="embeddings", model="embedder").call(capped)
    (load,) = judge_loads(built("similarity", metric="embeddings", model="embedder"), 4)
    assert (load.options.model, load.calls_high) == ("embedder", 1)
    assert judge_loads(built("similarity"), 4) == []


WORDS = "length_constraints:number_words"


def test_all_25_instructions_have_samples():
    rows = [row["record"].get("metadata") or row["record"] for row in read_vectors("instructions")]
    assert len({name for row in rows for name in row.get("instruction_id_list") or () if name in _CHECKS}) == 25


def test_instructions_that_cannot_be_checked_are_counted_and_not_graded():
    scorer = build_scorer("ifeval")
    for names, settings, reason in (
        *rows_of("ifeval", "instructions_that_cannot_be_checked_are_counted_and_not_graded"),
        ([WORDS], [{"num_words": 5}], f"{WORDS} has kwargs num_words; it takes num_words, relation"),
        ([WORDS], [{"num_words": 5, "relation": "at most"}], f"{WORDS} has kwargs relation 'at most': "),
        ([WORDS], [{"num_words": -1, "relation": "at least"}], f"{WORDS} has kwargs num_words -1: "),
    ):
        record = {"metadata": {"instruction_id_list": names, "kwargs": settings}}
        assert str(scorer.unusable(record)).startswith(reason)
        with pytest.raises(RewardError) as caught:
            scorer.call(GraderInput.of("s", record, "x"))
        assert str(caught.value) == scorer.unusable(record)
